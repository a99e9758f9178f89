/* Trains an MLP to separate two spirals, with ZeRO stage 3, on any number of ranks: scripts/launch
 * -n 4 build/bin/two_spirals. The model is a chain of units. A unit says only what a layer
 * computes, not who holds parameters, gathers them or reduces gradients. */
#include <math.h>
#include <stdio.h>

#include "src/model/layers.h"
#include "zero/zero.h"

enum { LAYERS = 4, POINTS = 256, STEPS = 300, POINT = 2 * sizeof(float) };
static const int64_t width[LAYERS + 1] = {2, 64, 64, 64, 2}; /* from (x, y) to two logits */
static const z3d_vocab_range classes = {.first = 0, .local = 2, .valid = 2};

/* z = gelu(input) W^T + b. The first layer reads the points, the last one's z are the logits. */
static z3d_status layer(z3d_unit_run *run, bool backward) {
    const int64_t *size = run->unit->data, rows = run->batch, count = rows * size[0];
    z3d_tensor_lane lane = z3d_unit_lane(run);
    z3d_linear linear = z3d_unit_linear(run, 0, 0, 1, rows, size[0], size[1]);
    float *gelu, *logits; /* forward leaves to backward: gelu(input); the logits and their sums */
    Z3D_TRY(z3d_unit_take_saved(run, count, sizeof(float), &gelu));
    Z3D_TRY(z3d_unit_take_saved(run, rows * (2 + 3), sizeof(float), &logits));
    const void *in = run->input, *x = in ? gelu : run->field[0], *dz = run->output_gradient;
    if (!backward) {
        if (in) Z3D_TRY(Z3D_LAUNCH(run->device, gelu_forward, in, gelu, count, Z3D_F32));
        if (run->output) return z3d_column_linear_forward(&lane, &linear, x, run->output);
        Z3D_TRY(z3d_column_linear_forward(&lane, &linear, x, logits));
        return z3d_vocab_cross_entropy_forward(&lane, classes, logits, run->field[1], rows,
                                               logits + 2 * rows, run->state);
    }
    if (!dz) /* the last layer: its logits become their gradient */
        Z3D_TRY(z3d_vocab_cross_entropy_backward(&lane, classes, logits, run->field[1], rows,
                                                 logits + 2 * rows, run->state));
    void *dx = run->input_gradient;
    Z3D_TRY(z3d_column_linear_backward(&lane, &linear, x, dz ? dz : logits, dx));
    return dx ? Z3D_LAUNCH(run->device, gelu_backward, in, dx, dx, count, Z3D_F32) : Z3D_OK;
}
static z3d_status forward(z3d_unit_run *run) {
    return layer(run, false);
}
static z3d_status backward(z3d_unit_run *run) {
    return layer(run, true);
}
static const struct z3d_unit_ops ops = {.forward = forward, .backward = backward};

/* Point i of two spirals of 1.5 turns; `shift` moves it along its spiral. */
static void make_point(int i, double shift, float *point, int32_t *class) {
    int step = i / 2, steps = POINTS / 2;
    double t = (step + shift) / steps, pi = acos(-1), angle = 3 * pi * t + (i % 2 ? pi : 0);
    point[0] = (float)(t * cos(angle)), point[1] = (float)(t * sin(angle)), *class = i % 2;
}

#define CHECK(call)                                                                                \
    if ((call) != Z3D_OK) z3d_world_abort(c.world, Z3D_ERR_INTERNAL, z3d_error_message())

int main(int argc, char **argv) {
    z3d_engine_config c = {.optimizer = {.beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f},
                           .scaler.scale = 1};
    z3d_step_result result;
    z3d_engine *engine;
    z3d_model *model;
    float point[POINTS][2], logits[2];
    int32_t class[POINTS], right = 0;
    if (z3d_world_create(&argc, &argv, &c.world) != Z3D_OK) return puts(z3d_error_message()), 1;
    int ranks = z3d_world_size(c.world), rank = z3d_world_rank(c.world), batch = POINTS / ranks;
    CHECK(z3d_mesh_make(1, ranks, 1, rank, &c.mesh));
    CHECK(z3d_device_create(&(z3d_device_config){.backend = "cpu", .threads = 1}, &c.device));
    CHECK(z3d_groups_create(c.world, &c.mesh, c.device, c.group));
    CHECK(z3d_model_create(LAYERS, LAYERS, &model));
    for (int i = 0; i < LAYERS; i++) {
        int64_t in = width[i], out = width[i + 1], z = i < LAYERS - 1 ? out : 0;
        z3d_parameter w = {"w", 2, {out, in}, .split_dim = -1, .weight_decay = true};
        z3d_parameter b = {.name = "b", .dims = 1, .shape = {out}, .split_dim = -1};
        w.init = Z3D_INIT_NORMAL, w.standard_deviation = 1 / sqrtf((float)in);
        model->group[i] = (z3d_parameter_group){{(char)('0' + i)}, 2, {w, b}};
        model->unit[i] = (z3d_unit){"layer", &ops, &width[i], i, i, false, 1, {i}, {z, z, out}, 0};
    }
    model->num_fields = 2;
    model->field[0] = (z3d_field){"point", {POINT, POINT, POINT}};
    model->field[1] = (z3d_field){"class", {4, 4, 4}};
    c.model = model, c.verify = true, c.program.stage = 3, c.program.micro_batch = batch;
    c.program.accumulation = 1, c.program.reduce_bucket = c.program.gather_bucket = 1 << 20;
    CHECK(z3d_engine_create(&c, &engine));
    for (int i = 0; i < POINTS; i++) make_point(i, 0.5, point[i], &class[i]);
    z3d_micro_batch mine = {{point[rank * batch], &class[rank * batch]}};
    z3d_step_input input = {&mine, 0, .global_targets = batch * ranks, 1e-2f, false};
    for (int s = 0; s < STEPS; s++) CHECK(z3d_engine_train_step(engine, &input, &result));
    for (int i = 0; i < POINTS; i++) { /* between the points it has seen */
        make_point(i, 1.0, point[0], class);
        CHECK(z3d_engine_generate(engine, Z3D_MODE_PREFILL, 0, point[0], class, logits));
        right += (logits[1] > logits[0]) == *class;
    }
    if (!rank) printf("loss %.4f, %d of %d unseen points right\n", result.loss, right, POINTS);
    z3d_engine_destroy(engine);
    z3d_groups_destroy(c.group);
    z3d_device_destroy(c.device);
    z3d_model_destroy(model);
    z3d_world_destroy(c.world);
    return 0;
}
