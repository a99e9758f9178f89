/* A transformer block of one's own, trained with ZeRO and tensor parallelism:
 *
 *   zero3d-launch -n 4 build/bin/own_block [STAGE [TENSOR]]      (ZeRO stage 3, tensor 2)
 *
 * The block is the parallel block of GPT-J and PaLM: attention and MLP read the same norm,
 *
 *   out = x + Wo attention(Wqkv n) + Wd gelu(Wu n),   n = rmsnorm(x)
 *
 * so it needs one sum over the tensor group each way; GPT-2's block needs two. Embedding and head
 * are the library's (src/model/transformer.h). Task: a sequence repeats its first half; the model
 * has to say the second half. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/transformer.h"
#include "zero/zero.h"

enum { HIDDEN = 32, HEADS = 4, HEAD = HIDDEN / HEADS, MLP = 4 * HIDDEN, BLOCKS = 2 };
enum { VOCAB = 16, HALF = 8, SEQ = 2 * HALF, SAMPLES = 32, STEPS = 60 }; /* SAMPLES a step */
static const float STD = 0.15f;

/* ---- parameters: whole shapes; split_dim says which dimension the tensor ranks divide ---- */

enum { NORM, QKV, UP, OUT, DOWN, PARAMETERS };

static void describe_block(z3d_parameter_group *group, int index) {
    static const z3d_parameter parameters[PARAMETERS] = {
        [NORM] = {.name = "norm", .dims = 1, .shape = {HIDDEN}, .split_dim = -1},
        [QKV] = {.name = "qkv", .dims = 4, .shape = {3, HEADS, HEAD, HIDDEN}, .split_dim = 1},
        [UP] = {.name = "up", .dims = 2, .shape = {MLP, HIDDEN}, .split_dim = 0},
        [OUT] = {.name = "out", .dims = 3, .shape = {HIDDEN, HEADS, HEAD}, .split_dim = 1},
        [DOWN] = {.name = "down", .dims = 2, .shape = {HIDDEN, MLP}, .split_dim = 1}};
    snprintf(group->name, sizeof group->name, "block.%d", index);
    group->num_parameters = PARAMETERS;
    memcpy(group->parameter, parameters, sizeof parameters);
    group->parameter[NORM].init = Z3D_INIT_ONES;
    for (int i = QKV; i < PARAMETERS; i++) {
        group->parameter[i].init = Z3D_INIT_NORMAL;
        group->parameter[i].standard_deviation = STD;
        group->parameter[i].weight_decay = true;
    }
}

/* ---- the unit ---- */

/* What a call works with. Sizes are this tensor rank's. A row of q has its queries, keys and
 * values, each `part` bytes long. */
typedef struct block {
    z3d_tensor_lane lane;
    int64_t rows, heads, columns, mlp, part; /* columns = heads x HEAD */
    z3d_linear qkv, up, out, down;
    z3d_norm norm;                /* n = norm of the block's input */
    void *n, *attention, *before; /* saved; before: gelu's input */
    char *q;                      /* saved */
    float *log_sum_exp;           /* saved, of the attention */
} block;

/* Saved memory keeps its content from forward to backward. Both begin with this function, so both
 * request equal sizes in equal order. */
static z3d_status begin(z3d_unit_run *run, block *b) {
    int64_t rows = z3d_unit_rows(run), ranks = z3d_group_size(run->process_group[0]);
    int64_t heads = HEADS / ranks, columns = heads * HEAD, mlp = MLP / ranks;
    *b = (block){.lane = z3d_unit_lane(run),
                 .rows = rows,
                 .heads = heads,
                 .columns = columns,
                 .mlp = mlp,
                 .part = z3d_row_bytes(run, columns),
                 .qkv = z3d_unit_linear(run, 0, QKV, -1, rows, HIDDEN, 3 * columns),
                 .up = z3d_unit_linear(run, 0, UP, -1, rows, HIDDEN, mlp),
                 .out = z3d_unit_linear(run, 0, OUT, -1, rows, columns, HIDDEN),
                 .down = z3d_unit_linear(run, 0, DOWN, -1, rows, mlp, HIDDEN),
                 .norm = {.slot = 0, .weight = NORM, .x = run->input}};
    Z3D_TRY(z3d_norm_take_saved(run, rows, &b->norm));
    Z3D_TRY(z3d_unit_take_saved(run, rows, z3d_row_bytes(run, HIDDEN), &b->n));
    Z3D_TRY(z3d_unit_take_saved(run, rows, z3d_row_bytes(run, 3 * columns), &b->q));
    Z3D_TRY(z3d_unit_take_saved(run, rows, z3d_row_bytes(run, columns), &b->attention));
    Z3D_TRY(z3d_unit_take_saved(run, rows, z3d_row_bytes(run, mlp), &b->before));
    return z3d_unit_take_saved(run, rows * heads, sizeof(float), &b->log_sum_exp);
}

/* y = x W^T, or y += x W^T: this rank's addend of a row-parallel product. */
static z3d_status addend(const z3d_unit_run *run, const z3d_linear *l, const void *x, void *y,
                         bool add) {
    return Z3D_LAUNCH(run->device, gemm, .m = l->rows, .n = l->out, .k = l->in, .transpose_b = true,
                      .accumulate = add, .a = x, .b = l->weight, .c = y, .lda = l->in, .ldb = l->in,
                      .ldc = l->out, .dtype = run->dtype, .c_dtype = run->dtype);
}

static z3d_status forward(z3d_unit_run *run) {
    block b;
    void *gelu;
    Z3D_TRY(begin(run, &b));
    /* Workspace is this call's only: backward computes gelu again. */
    Z3D_TRY(z3d_unit_take_workspace(run, b.rows, z3d_row_bytes(run, b.mlp), &gelu));
    Z3D_TRY(z3d_norm_forward(run, &b.norm, b.rows, b.n));
    b.up.gelu = run->need_output ? gelu : NULL;
    Z3D_TRY(z3d_column_linear_forward(&b.lane, &b.qkv, b.n, b.q));
    Z3D_TRY(z3d_column_linear_forward(&b.lane, &b.up, b.n, b.before));
    Z3D_TRY(Z3D_LAUNCH(run->device, attention_forward, .q = b.q, .k = b.q + b.part,
                       .v = b.q + 2 * b.part, .out = b.attention, .log_sum_exp = b.log_sum_exp,
                       .batch = run->batch, .seq = run->tokens, .capacity = run->tokens,
                       .heads = b.heads, .kv_heads = b.heads, .head_dim = HEAD,
                       .q_stride = 3 * b.columns, .kv_stride = 3 * b.columns, .dtype = run->dtype));
    if (!run->need_output) return Z3D_OK; /* a recompute: backward does not read output */
    z3d_collective sum = z3d_sum_rows(&b.lane, run->output, b.rows, HIDDEN);
    Z3D_TRY(addend(run, &b.out, b.attention, run->output, false));
    Z3D_TRY(addend(run, &b.down, gelu, run->output, true));
    Z3D_TRY(z3d_collective_run(run->process_group[0], &sum));
    return Z3D_LAUNCH(run->device, accumulate, .y = run->output, .x = run->input,
                      .count = b.rows * HIDDEN, .y_dtype = run->dtype, .x_dtype = run->dtype);
}

/* Writes input_gradient and all parameters' gradients (z3d_linear and z3d_norm have them). */
static z3d_status backward(z3d_unit_run *run) {
    const void *dy = run->output_gradient;
    block b;
    void *gelu, *d_attention, *d_before, *dn;
    char *d_q;
    Z3D_TRY(begin(run, &b));
    Z3D_TRY(z3d_unit_take_workspace(run, b.rows, z3d_row_bytes(run, 3 * b.columns), &d_q));
    Z3D_TRY(z3d_unit_take_workspace(run, b.rows, z3d_row_bytes(run, b.mlp), &d_before));
    int64_t mark = z3d_unit_workspace_mark(run);

    /* The row-parallel layers: dy is whole on every rank, nothing is communicated. */
    Z3D_TRY(z3d_unit_take_workspace(run, b.rows, z3d_row_bytes(run, b.mlp), &gelu));
    Z3D_TRY(Z3D_LAUNCH(run->device, gelu_forward, .x = b.before, .y = gelu, .count = b.rows * b.mlp,
                       .dtype = run->dtype));
    b.down.before_gelu = b.before; /* so d_before is the gradient of gelu's input */
    Z3D_TRY(z3d_row_linear_backward(&b.lane, &b.down, gelu, dy, d_before));
    z3d_unit_workspace_release(run, mark); /* gelu is no longer needed: its memory is used again */
    Z3D_TRY(z3d_unit_take_workspace(run, b.rows, z3d_row_bytes(run, b.columns), &d_attention));
    Z3D_TRY(z3d_row_linear_backward(&b.lane, &b.out, b.attention, dy, d_attention));
    Z3D_TRY(Z3D_LAUNCH(run->device, attention_backward, .q = b.q, .k = b.q + b.part,
                       .v = b.q + 2 * b.part, .out = b.attention, .dout = d_attention,
                       .log_sum_exp = b.log_sum_exp, .dq = d_q, .dk = d_q + b.part,
                       .dv = d_q + 2 * b.part, .batch = run->batch, .seq = run->tokens,
                       .heads = b.heads, .kv_heads = b.heads, .head_dim = HEAD,
                       .q_stride = 3 * b.columns, .kv_stride = 3 * b.columns, .dtype = run->dtype));
    z3d_unit_workspace_release(run, mark);

    /* The column-parallel layers have one input: its gradient is one sum over the tensor group. */
    Z3D_TRY(z3d_unit_take_workspace(run, b.rows, z3d_row_bytes(run, HIDDEN), &dn));
    Z3D_TRY(z3d_column_linears_backward(&b.lane, (z3d_linear[]){b.qkv, b.up}, 2, b.n,
                                        (const void *[]){d_q, d_before}, dn));
    return z3d_norm_backward(run, Z3D_BOTH_HALVES, &b.norm, dn, dy, run->input_gradient);
}

static const struct z3d_unit_ops block_ops = {.forward = forward, .backward = backward};

/* ---- the model: parameter groups; units embedding, blocks, head ---- */

enum { TABLE, POSITIONS, FIRST_BLOCK, LAST_NORM = FIRST_BLOCK + BLOCKS, GROUPS };

/* *shape is the units' data and must live as long as the model. */
static z3d_status create_model(int tensor_size, z3d_transformer *shape, z3d_model **out) {
    *shape = (z3d_transformer){.num_layers = BLOCKS,
                               .hidden_size = HIDDEN,
                               .seq_length = SEQ,
                               .vocab_size = VOCAB,
                               .padded_vocab = VOCAB,
                               .init_std = STD,
                               .tensor_size = tensor_size,
                               .learned_positions = true,
                               .tiling = 1,
                               .norm = Z3D_NORM_RMS,
                               .epsilon = 1e-5f};
    Z3D_TRY(z3d_model_create(GROUPS, PARAMETERS, BLOCKS + 2, out));
    z3d_parameter_group *group = (*out)->group;
    z3d_add_token_table(&group[TABLE], "tokens", shape);
    snprintf(group[POSITIONS].name, Z3D_NAME, "positions");
    z3d_add_matrix(&group[POSITIONS], "weight", -1, STD, SEQ, HIDDEN);
    for (int i = 0; i < BLOCKS; i++) describe_block(&group[FIRST_BLOCK + i], i);
    snprintf(group[LAST_NORM].name, Z3D_NAME, "norm");
    z3d_add_vector(&group[LAST_NORM], "weight", -1, Z3D_INIT_ONES, HIDDEN);
    z3d_describe_units(*out, shape,
                       &(z3d_transformer_units){.block = "block",
                                                .block_ops = &block_ops,
                                                .embedding = {TABLE, POSITIONS},
                                                .first_block = FIRST_BLOCK,
                                                .table = TABLE,
                                                .norm = LAST_NORM});
    return Z3D_OK;
}

/* ---- data, gradient check, training ---- */

/* Samples first .. first + count - 1: the second half repeats the first. A negative target does not
 * count: nobody can know the first half. */
static void make_samples(int64_t first, int count, int32_t tokens[][SEQ], int32_t targets[][SEQ]) {
    for (int s = 0; s < count; s++)
        for (int t = 0; t <= SEQ; t++) {
            uint32_t random = z3d_philox(1, (uint64_t)(first + s), (uint64_t)(t % HALF)).word[0];
            int32_t token = (int32_t)(random % VOCAB);
            if (t < SEQ) tokens[s][t] = token;
            if (t > 0) targets[s][t - 1] = t < HALF ? -1 : token;
        }
}

/* Moves each parameter of the first block a little both ways along a line, its gradient and some
 * noise. *worst: the largest difference between the loss's slope and what the gradient says, as a
 * part of the gradient's length. */
static z3d_status check_gradients(z3d_engine *engine, const z3d_parameter_group *block,
                                  z3d_step_input input, double *worst) {
    enum { MOST = (3 * HIDDEN + MLP) * HIDDEN }; /* no parameter has more elements */
    static float value[MOST], gradient[MOST], moved[MOST];
    const double step = 5e-3;
    z3d_step_result result;
    input.learning_rate = 0; /* this step computes gradients and changes no parameter */
    Z3D_TRY(z3d_engine_train_step(engine, &input, &result));
    *worst = 0;
    for (int p = 0; p < PARAMETERS; p++) {
        const int count = (int)z3d_parameter_local_elements(&block->parameter[p], 1);
        double length = 0, expected = 0, slope = 0;
        Z3D_TRY(z3d_engine_get(engine, Z3D_TENSOR_PARAMETER, FIRST_BLOCK, p, value));
        Z3D_TRY(z3d_engine_get(engine, Z3D_TENSOR_GRADIENT, FIRST_BLOCK, p, gradient));
        for (int e = 0; e < count; e++) length += gradient[e] * gradient[e];
        length = sqrt(length);
        for (int side = -1; side <= 1; side += 2) {
            double loss = 0, targets = 0;
            bool stop;
            for (int e = 0; e < count; e++) {
                double noise = z3d_philox_normal(2, (uint64_t)e) / sqrt(count);
                moved[e] = (float)(value[e] + side * step * (gradient[e] / length + noise));
                expected += (moved[e] - value[e]) * gradient[e] * side / (2 * step);
            }
            Z3D_TRY(z3d_engine_set(engine, Z3D_TENSOR_PARAMETER, FIRST_BLOCK, p, moved));
            Z3D_TRY(z3d_engine_evaluate(engine, &input, &loss, &targets, &stop));
            slope += side * loss / targets / (2 * step);
        }
        Z3D_TRY(z3d_engine_set(engine, Z3D_TENSOR_PARAMETER, FIRST_BLOCK, p, value));
        *worst = fmax(*worst, fabs(slope - expected) / length);
    }
    return Z3D_OK;
}

/* A failure of one rank ends the run on all ranks. */
static void check(z3d_world *world, z3d_status status) {
    if (status != Z3D_OK) z3d_world_abort(world, status, z3d_error_message());
}

int main(int argc, char **argv) {
    static int32_t tokens[SAMPLES][SEQ], targets[SAMPLES][SEQ];
    z3d_engine_config c = {.optimizer = {.beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-6f},
                           .scaler = {.scale = 1},
                           .verify = true};
    z3d_device_config cpu = {.backend = "cpu", .threads = 1};
    z3d_transformer shape;
    z3d_model *model;
    z3d_engine *engine;

    if (z3d_world_create(&argc, &argv, &c.world) != Z3D_OK) return puts(z3d_error_message()), 1;
    int ranks = z3d_world_size(c.world), rank = z3d_world_rank(c.world);
    int stage = argc > 1 ? atoi(argv[1]) : 3, tensor = argc > 2 ? atoi(argv[2]) : ranks > 1 ? 2 : 1;
    if (stage < 0 || stage > 3 || tensor < 1 || HEADS % tensor || ranks % tensor ||
        SAMPLES % (ranks / tensor))
        check(c.world,
              Z3D_ERROR(Z3D_ERR_USAGE,
                        "stage %d, tensor size %d, ranks %d: stages are 0 to 3; the tensor "
                        "size divides %d heads and the ranks; data ranks divide %d samples",
                        stage, tensor, ranks, HEADS, SAMPLES));
    int data = ranks / tensor, batch = SAMPLES / data;
    check(c.world, z3d_mesh_make(tensor, data, 1, rank, &c.mesh)); /* 1: pipeline stages */
    check(c.world, z3d_device_create(&cpu, &c.device));
    check(c.world, z3d_groups_create(c.world, &c.mesh, c.device, c.group));
    check(c.world, create_model(tensor, &shape, &model));
    c.model = model;
    c.program = (z3d_program_config){.stage = stage,
                                     .micro_batch = batch,
                                     .accumulation = 1,
                                     .recompute = true, /* blocks keep their input only */
                                     .reduce_bucket = 1 << 20,
                                     .gather_bucket = 1 << 20,
                                     .without_generation = true};
    check(c.world, z3d_engine_create(&c, &engine));

    int first = batch * z3d_mesh_index(&c.mesh, Z3D_AXES_DATA, rank);
    z3d_micro_batch mine = {.field = {tokens, targets}};
    z3d_step_input input = {
        .micro = &mine, .global_targets = SAMPLES * (HALF + 1), .learning_rate = 1e-2f};
    double worst;
    make_samples(first, batch, tokens, targets);
    check(c.world, check_gradients(engine, &model->group[FIRST_BLOCK], input, &worst));
    if (!rank) printf("gradients: within %.1e of finite differences\n", worst);
    for (int s = 1; s <= STEPS; s++) {
        z3d_step_result result;
        input.sample_base = (int64_t)s * SAMPLES;
        make_samples(input.sample_base + first, batch, tokens, targets);
        check(c.world, z3d_engine_train_step(engine, &input, &result));
        if (!rank && (s == 1 || s % 20 == 0)) printf("step %2d  loss %.12f\n", s, result.loss);
    }

    z3d_engine_destroy(engine);
    z3d_groups_destroy(c.group);
    z3d_device_destroy(c.device);
    z3d_model_destroy(model);
    z3d_world_destroy(c.world);
    return 0;
}
