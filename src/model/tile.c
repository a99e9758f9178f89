/* Memory-centric tiling (ZeRO-Infinity, 2104.07857, section 5.1.3): a block's MLP is cut into
 * tiles, each a unit, so that with ZeRO-3 the parameters of only one tile are gathered at a time.
 * Tile i has the same part of the inner width in all matrices: rows of the first ones, columns of
 * the last. The tiles run one after the other. Each tile reads x = norm(x1) and a running sum,
 * which begins as x1, and adds its part of the MLP's output to the sum:
 *
 *   (x, x1) -> (x, x1 + tile 0) -> (x, x1 + tile 0 + tile 1) -> ... -> block's output
 *
 * So the sum over the inner width has another order than in one product: it is rounded after each
 * tile. The last tile has the bias. All tiles drop the same elements, which is the dropout of the
 * sum. */
#include "src/model/transformer.h"

/* x and the sum in a unit's input or output, T[2, own rows, hidden]; the last tile's output has
 * only the sum. */
typedef struct stream {
    char *x, *sum; /* NULL: not there */
} stream;

static stream stream_in(const z3d_unit_run *run, const void *buffer) {
    const int64_t row = z3d_row_bytes(run, z3d_transformer_of(run)->hidden_size);
    char *x = (char *)(uintptr_t)buffer;
    return (stream){x, x ? x + z3d_unit_own_rows(run).count * row : NULL};
}

static stream stream_out(const z3d_unit_run *run, const void *buffer) {
    if (run->unit->kind != Z3D_KIND_LAST_TILE) return stream_in(run, buffer);
    return (stream){NULL, (char *)(uintptr_t)buffer};
}

z3d_status z3d_tiles_begin(z3d_unit_run *run, const z3d_norm *norm) {
    const int64_t own = z3d_unit_own_rows(run).count;
    void *x;
    if (run->need_output) {
        stream out = stream_out(run, run->output);
        Z3D_TRY(z3d_norm_forward(run, norm, own, out.x));
        return z3d_unit_copy_rows(run, out.sum, norm->x);
    }
    Z3D_TRY(z3d_unit_take_workspace(run, own,
                                    z3d_row_bytes(run, z3d_transformer_of(run)->hidden_size), &x));
    return z3d_norm_forward(run, norm, own, x);
}

z3d_status z3d_tiles_begin_backward(z3d_unit_run *run, z3d_halves halves, const z3d_norm *norm,
                                    void *d_x1) {
    const stream d = stream_out(run, run->output_gradient);
    return z3d_norm_backward(run, halves, norm, d.x, d.sum, d_x1);
}

static z3d_status take_saved(z3d_unit_run *run, z3d_mlp *mlp) {
    *mlp = z3d_mlp_of(run, 0);
    mlp->own = stream_in(run, run->input).x;
    return z3d_mlp_take_saved(run, mlp);
}

static z3d_status forward(z3d_unit_run *run) {
    const stream in = stream_in(run, run->input), out = stream_out(run, run->output);
    z3d_mlp mlp;
    Z3D_TRY(take_saved(run, &mlp));
    Z3D_TRY(z3d_mlp_forward(run, &mlp, in.sum, out.sum));
    return run->need_output && out.x ? z3d_unit_copy_rows(run, out.x, in.x) : Z3D_OK;
}

/* dx = the gradient from later tiles + this tile's part. */
static z3d_status add_gradient(z3d_unit_run *run, const void *later, const void *part, void *dx) {
    const z3d_row_range own = z3d_unit_own_rows(run);
    return Z3D_LAUNCH(run->device, dropout_forward, .x = part, .residual = later, .y = dx,
                      .rows = own.count, .first = own.first, .seq = run->tokens,
                      .cols = z3d_transformer_of(run)->hidden_size, .dtype = run->dtype);
}

static z3d_status backward_halves(z3d_unit_run *run, z3d_halves halves) {
    const stream after = stream_out(run, run->output_gradient);
    z3d_mlp mlp;
    void *part;
    Z3D_TRY(take_saved(run, &mlp));
    Z3D_TRY(z3d_mlp_backward(run, halves, &mlp, after.sum, &part));
    if (!(halves & Z3D_INPUT_HALF) || run->ends_backward) return Z3D_OK;
    const stream d = stream_in(run, run->input_gradient);
    Z3D_TRY(add_gradient(run, after.x, z3d_unit_own_part(run, part), d.x));
    return z3d_unit_copy_rows(run, d.sum, after.sum);
}

const struct z3d_unit_ops z3d_tile_ops = {.forward = forward, .backward_halves = backward_halves};
