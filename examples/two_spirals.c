/* Trains an MLP to separate two spirals, with ZeRO stage 3, on any number of ranks:
 *
 *   zero3d-launch -n 4 build/bin/two_spirals
 *
 * A model is a chain of units. A unit says what one layer computes. It does not say who holds
 * parameters, who gathers them, and who reduces gradients: the engine does. */
#include <math.h>
#include <stdio.h>

#include "src/model/layers.h"
#include "zero/zero.h"

enum { LAYERS = 4, POINTS = 256, STEPS = 300 };

/* What a unit reads of its layer (unit->data). */
typedef struct layer_shape {
    int64_t in, out;
    bool first, last; /* the first layer reads the points, the last one's outputs are the logits */
} layer_shape;

static const layer_shape shape_of[LAYERS] = {
    {.in = 2, .out = 64, .first = true},
    {.in = 64, .out = 64},
    {.in = 64, .out = 64},
    {.in = 64, .out = 2, .last = true},
};

enum { WEIGHT, BIAS, PARAMETERS }; /* of a layer's parameter group */
enum { POINT, CLASS, FIELDS };     /* of the batch */

/* ---- the unit: z = gelu(input) W^T + b; the first layer has no gelu ---- */

/* Memory that forward leaves to backward. */
typedef struct layer_saved {
    float *gelu;       /* [rows, in] */
    float *logits;     /* [rows, 2], of the last layer */
    float *statistics; /* [rows, 3], of the cross entropy */
} layer_saved;

/* Forward and backward both call it: they request equal sizes in equal order. */
static z3d_status take_saved(z3d_unit_run *run, layer_saved *saved) {
    const layer_shape *shape = run->unit->data;
    *saved = (layer_saved){0};
    if (!shape->first)
        Z3D_TRY(z3d_unit_take_saved(run, run->batch * shape->in, sizeof(float), &saved->gelu));
    if (!shape->last) return Z3D_OK;
    Z3D_TRY(z3d_unit_take_saved(run, run->batch * 2, sizeof(float), &saved->logits));
    return z3d_unit_take_saved(run, run->batch * 3, sizeof(float), &saved->statistics);
}

static z3d_linear linear_of(const z3d_unit_run *run) {
    const layer_shape *shape = run->unit->data;
    return z3d_unit_linear(run, 0, WEIGHT, BIAS, run->batch, shape->in, shape->out);
}

static const z3d_vocab_range classes = {.first = 0, .local = 2, .valid = 2};

static z3d_status forward(z3d_unit_run *run) {
    const layer_shape *shape = run->unit->data;
    z3d_tensor_lane lane = z3d_unit_lane(run);
    z3d_linear linear = linear_of(run);
    layer_saved saved;
    Z3D_TRY(take_saved(run, &saved));
    const void *x = run->field[POINT];
    if (!shape->first) {
        Z3D_TRY(Z3D_LAUNCH(run->device, gelu_forward, .x = run->input, .y = saved.gelu,
                           .count = run->batch * shape->in, .dtype = run->dtype));
        x = saved.gelu;
    }
    if (run->output) return z3d_column_linear_forward(&lane, &linear, x, run->output);
    Z3D_TRY(z3d_column_linear_forward(&lane, &linear, x, saved.logits));
    return z3d_vocab_cross_entropy_forward(&lane, classes, saved.logits, run->field[CLASS],
                                           run->batch, saved.statistics, run->state);
}

static z3d_status backward(z3d_unit_run *run) {
    const layer_shape *shape = run->unit->data;
    z3d_tensor_lane lane = z3d_unit_lane(run);
    z3d_linear linear = linear_of(run);
    layer_saved saved;
    Z3D_TRY(take_saved(run, &saved));
    const void *x = shape->first ? run->field[POINT] : saved.gelu, *dz = run->output_gradient;
    if (shape->last) {
        Z3D_TRY(z3d_vocab_cross_entropy_backward(&lane, classes, saved.logits, run->field[CLASS],
                                                 run->batch, saved.statistics, run->state));
        dz = saved.logits; /* the logits have become their gradient */
    }
    void *dx = run->input_gradient; /* NULL in the first layer */
    Z3D_TRY(z3d_column_linear_backward(&lane, &linear, x, dz, dx));
    if (shape->first) return Z3D_OK;
    return Z3D_LAUNCH(run->device, gelu_backward, .x = run->input, .dy = dx, .dx = dx,
                      .count = run->batch * shape->in, .dtype = run->dtype);
}

static const struct z3d_unit_ops layer_ops = {.forward = forward, .backward = backward};

/* ---- the model: a parameter group and a unit for each layer ---- */

static void describe_layer(z3d_model *model, int i) {
    const layer_shape *shape = &shape_of[i];
    int64_t hidden = shape->last ? 0 : shape->out; /* the last layer's output is the loss */
    z3d_parameter *parameter = model->group[i].parameter;
    model->group[i].num_parameters = PARAMETERS;
    parameter[WEIGHT] = (z3d_parameter){.name = "w",
                                        .dims = 2,
                                        .shape = {shape->out, shape->in},
                                        .split_dim = -1, /* every tensor rank has all of it */
                                        .weight_decay = true,
                                        .init = Z3D_INIT_NORMAL,
                                        .standard_deviation = 1 / sqrtf((float)shape->in)};
    parameter[BIAS] =
        (z3d_parameter){.name = "b", .dims = 1, .shape = {shape->out}, .split_dim = -1};
    model->unit[i] = (z3d_unit){.ops = &layer_ops,
                                .data = shape,
                                .kind = i,
                                .index = i,
                                .num_groups = 1,
                                .group = {i},
                                .output_elements = {[Z3D_MODE_TRAIN] = hidden,
                                                    [Z3D_MODE_EVALUATE] = hidden,
                                                    [Z3D_MODE_PREFILL] = shape->out}};
    snprintf(model->group[i].name, sizeof model->group[i].name, "%d", i);
    snprintf(model->unit[i].name, sizeof model->unit[i].name, "layer.%d", i);
}

static z3d_status create_model(z3d_model **out) {
    Z3D_TRY(z3d_model_create(LAYERS, PARAMETERS, LAYERS, out));
    for (int i = 0; i < LAYERS; i++) describe_layer(*out, i);
    (*out)->num_fields = FIELDS;
    (*out)->field[POINT] = (z3d_field){.name = "point"};
    (*out)->field[CLASS] = (z3d_field){.name = "class"};
    for (int mode = Z3D_MODE_TRAIN; mode <= Z3D_MODE_PREFILL; mode++) {
        (*out)->field[POINT].bytes_per_sample[mode] = 2 * sizeof(float);
        (*out)->field[CLASS].bytes_per_sample[mode] = sizeof(int32_t);
    }
    return Z3D_OK;
}

/* ---- data, training ---- */

/* Point i of two spirals of 1.5 turns; `shift` moves it along its spiral. */
static void make_point(int i, double shift, float *point, int32_t *class) {
    int step = i / 2, steps = POINTS / 2;
    double t = (step + shift) / steps, pi = acos(-1), angle = 3 * pi * t + (i % 2 ? pi : 0);
    point[0] = (float)(t * cos(angle)), point[1] = (float)(t * sin(angle)), *class = i % 2;
}

/* A failure of one rank ends the run on all ranks. */
static void check(z3d_world *world, z3d_status status) {
    if (status != Z3D_OK) z3d_world_abort(world, status, z3d_error_message());
}

int main(int argc, char **argv) {
    z3d_engine_config c = {.optimizer = {.beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f},
                           .scaler = {.scale = 1},
                           .verify = true};
    z3d_device_config cpu = {.backend = "cpu", .threads = 1};
    z3d_model *model;
    z3d_engine *engine;

    if (z3d_world_create(&argc, &argv, &c.world) != Z3D_OK) return puts(z3d_error_message()), 1;
    int ranks = z3d_world_size(c.world), rank = z3d_world_rank(c.world), batch = POINTS / ranks;
    check(c.world, z3d_mesh_make(1, ranks, 1, rank, &c.mesh)); /* tensor, data, pipeline */
    check(c.world, z3d_device_create(&cpu, &c.device));
    check(c.world, z3d_groups_create(c.world, &c.mesh, c.device, c.group));
    check(c.world, create_model(&model));
    c.model = model;
    c.program = (z3d_program_config){.stage = 3,
                                     .micro_batch = batch,
                                     .accumulation = 1,
                                     .reduce_bucket = 1 << 20,
                                     .gather_bucket = 1 << 20};
    check(c.world, z3d_engine_create(&c, &engine));

    float point[POINTS][2], logits[2];
    int32_t class[POINTS];
    for (int i = 0; i < POINTS; i++) make_point(i, 0.5, point[i], &class[i]);
    z3d_micro_batch mine = {
        .field = {[POINT] = point[rank * batch], [CLASS] = &class[rank * batch]}};
    z3d_step_input input = {
        .micro = &mine, .global_targets = batch * ranks, .learning_rate = 1e-2f};
    z3d_step_result result;
    for (int s = 0; s < STEPS; s++) check(c.world, z3d_engine_train_step(engine, &input, &result));

    int right = 0;
    for (int i = 0; i < POINTS; i++) { /* between the points of the training */
        make_point(i, 1.0, point[0], class);
        check(c.world, z3d_engine_generate(engine, Z3D_MODE_PREFILL, 0, point[0], class, logits));
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
