/* A block's MLP, or one tile of it: two products, and between them gelu or silu(gate) * up. Forward
 * saves the first product's output. The second product's input is saved too with
 * run->keep_activation; otherwise backward computes it again. */
#include "src/model/transformer.h"

z3d_mlp z3d_mlp_of(const z3d_unit_run *run, int first) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    const int64_t rows = z3d_unit_rows(run), hidden = shape->hidden_size, inner = shape->mlp_inner;
    const bool gated = shape->gated_mlp, bias = !gated && run->unit->kind != Z3D_KIND_TILE;
    z3d_mlp mlp = {
        .up = z3d_unit_linear(run, 0, first, gated ? -1 : first + 1, rows, hidden,
                              z3d_mlp_columns(shape)),
        .down = z3d_unit_linear(run, 0, first + 2, bias ? first + 3 : -1, rows, inner, hidden),
        .trains_up = z3d_unit_trains_layer(run, first, gated ? -1 : first + 1) ||
                     (gated && z3d_unit_trains_layer(run, first + 1, -1)),
        .trains_down = z3d_unit_trains_layer(run, first + 2, bias ? first + 3 : -1)};
    z3d_unit_add_adapter(run, &mlp.up, first, 0, inner);
    if (gated) z3d_unit_add_adapter(run, &mlp.up, first + 1, inner, inner);
    z3d_unit_add_adapter(run, &mlp.down, first + 2, 0, hidden);
    return mlp;
}

/* *x = the first product's input, all rows. */
static z3d_status find_input(z3d_unit_run *run, const z3d_mlp *mlp, const void **x) {
    void *all = mlp->x;
    if (!mlp->norm) return z3d_unit_all_rows(run, mlp->own, x);
    if (!all) Z3D_TRY(z3d_unit_take_all(run, &all));
    *x = all;
    return z3d_norm_forward_all(run, mlp->norm, all);
}

static z3d_status activate(z3d_unit_run *run, const z3d_mlp *mlp, void *y) {
    const z3d_linear *down = &mlp->down;
    if (z3d_transformer_of(run)->gated_mlp)
        return Z3D_LAUNCH(run->device, swiglu_forward, .x = mlp->before, .y = y, .rows = down->rows,
                          .cols = down->in, .dtype = run->dtype);
    return Z3D_LAUNCH(run->device, gelu_forward, .x = mlp->before, .y = y,
                      .count = down->rows * down->in, .dtype = run->dtype);
}

static int64_t inner_row(const z3d_unit_run *run, const z3d_mlp *mlp) {
    return z3d_row_bytes(run, mlp->down.in);
}

z3d_status z3d_mlp_take_saved(z3d_unit_run *run, z3d_mlp *mlp) {
    mlp->activated = NULL;
    Z3D_TRY(z3d_unit_take_saved(run, mlp->up.rows, z3d_row_bytes(run, mlp->up.out), &mlp->before));
    if (!run->keep_activation) return Z3D_OK;
    return z3d_unit_take_saved(run, mlp->down.rows, inner_row(run, mlp), &mlp->activated);
}

/* *out = memory for the input of `down`. */
static z3d_status take_inner(z3d_unit_run *run, const z3d_mlp *mlp, void **out) {
    *out = mlp->activated;
    return *out ? Z3D_OK : z3d_unit_take_workspace(run, mlp->down.rows, inner_row(run, mlp), out);
}

z3d_status z3d_mlp_forward(z3d_unit_run *run, const z3d_mlp *mlp, const void *residual, void *y) {
    z3d_linear up = mlp->up;
    const bool activates = run->need_output || mlp->activated;
    const bool gated = z3d_transformer_of(run)->gated_mlp;
    const bool fused = activates && !gated; /* gelu is fused into the product */
    const void *x;
    void *inner = NULL;
    if (fused) Z3D_TRY(take_inner(run, mlp, &inner));
    up.gelu = inner;
    int64_t mark = z3d_unit_workspace_mark(run);
    Z3D_TRY(find_input(run, mlp, &x));
    Z3D_TRY(z3d_unit_column_forward(run, &up, x, mlp->before));
    z3d_unit_workspace_release(run, mark);
    if (activates && !fused) {
        Z3D_TRY(take_inner(run, mlp, &inner));
        Z3D_TRY(activate(run, mlp, inner));
    }
    if (!run->need_output) return Z3D_OK;
    return z3d_residual_forward(run, &mlp->down, inner, residual, "mlp", y);
}

/* Whether the weight half of a layer's backward reads the layer's input: not if only its bias is
 * trained. */
static bool reads_input(const z3d_linear *layer) {
    return !layer->input_only && (layer->weight_gradient || layer->adapters > 0);
}

/* dy -> d_up, the gradient of the first product's output. */
static z3d_status inner_backward(z3d_unit_run *run, z3d_halves halves, const z3d_mlp *mlp,
                                 const void *dy, void *d_up) {
    z3d_linear down = mlp->down;
    const bool input = halves & Z3D_INPUT_HALF, gated = z3d_transformer_of(run)->gated_mlp;
    void *inner = NULL, *d_inner = input ? d_up : NULL;
    down.input_only = halves == Z3D_INPUT_HALF;
    if (gated && input)
        Z3D_TRY(z3d_unit_take_workspace(run, down.rows, inner_row(run, mlp), &d_inner));
    if (reads_input(&down)) {
        Z3D_TRY(take_inner(run, mlp, &inner));
        if (!mlp->activated) Z3D_TRY(activate(run, mlp, inner));
    }
    down.before_gelu = gated ? NULL : mlp->before;
    Z3D_TRY(z3d_unit_row_backward(run, &down, inner, dy, d_inner));
    if (!gated || !input) return Z3D_OK;
    return Z3D_LAUNCH(run->device, swiglu_backward, .x = mlp->before, .dy = d_inner, .dx = d_up,
                      .rows = down.rows, .cols = down.in, .dtype = run->dtype);
}

z3d_status z3d_mlp_backward(z3d_unit_run *run, z3d_halves halves, const z3d_mlp *mlp,
                            const void *after, void **dx) {
    z3d_linear up = mlp->up;
    const void *dy, *x = mlp->x;
    void *d_up;
    *dx = NULL;
    up.input_only = halves == Z3D_INPUT_HALF;
    Z3D_TRY(z3d_residual_backward(run, halves, mlp->trains_down, after, "mlp", &dy));
    Z3D_TRY(z3d_unit_take_between(run, halves, mlp->trains_up, up.rows, z3d_row_bytes(run, up.out),
                                  &d_up));
    int64_t mark = z3d_unit_workspace_mark(run);
    Z3D_TRY(inner_backward(run, halves, mlp, dy, d_up));
    z3d_unit_workspace_release(run, mark);
    if (halves & Z3D_INPUT_HALF) Z3D_TRY(z3d_unit_take_all(run, dx));
    if (reads_input(&up) && !x) Z3D_TRY(find_input(run, mlp, &x));
    return z3d_unit_columns_backward(run, &up, 1, x, (const void *const *)&d_up, *dx);
}
