/* Tables 1 and 2, from the states of a built program: a model of exactly P parameters in one group,
 * with the usual layout and builder. */
#include "src/plan/paper/paper.h"
#include "zero/program/layout.h"

#include <math.h>
#include <stdio.h>

/* ---- a model of parameters alone ---- */

static z3d_status weigh(z3d_unit_run *run) {
    const z3d_parameter *p = run->unit->data;
    return Z3D_LAUNCH(run->device, sum_squares, .x = z3d_unit_parameter(run, 0, 0),
                      .count = p->shape[0], .dtype = run->dtype, .out = &run->state->loss_sum);
}

static z3d_status weigh_backward(z3d_unit_run *run) {
    const z3d_parameter *p = run->unit->data;
    return Z3D_LAUNCH(run->device, fill, .x = z3d_unit_gradient(run, 0, 0), .count = p->shape[0],
                      .dtype = run->gradient_dtype);
}

static const struct z3d_unit_ops weight_ops = {.forward = weigh, .backward = weigh_backward};

static z3d_status make_model(int64_t parameters, z3d_model **out) {
    Z3D_TRY(z3d_model_create(1, 1, 1, out));
    z3d_parameter_group *group = &(*out)->group[0];
    z3d_unit *unit = &(*out)->unit[0];
    snprintf(group->name, sizeof group->name, "all");
    group->num_parameters = 1;
    group->parameter[0] = (z3d_parameter){
        .name = "weight", .dims = 1, .shape = {parameters}, .split_dim = -1, .weight_decay = true};
    *unit = (z3d_unit){
        .name = "all", .ops = &weight_ops, .data = &group->parameter[0], .num_groups = 1};
    (*out)->tensor_size = 1;
    return Z3D_OK;
}

/* Bytes of a rank's parameters, gradients and optimizer states. */
static z3d_status states(const z3d_model *model, int data, int stage, double *bytes) {
    z3d_mesh mesh;
    z3d_program_set set;
    z3d_program_config config = {.stage = stage,
                                 .dtype = Z3D_F16,
                                 .grad_dtype = Z3D_F16,
                                 .micro_batch = 1,
                                 .accumulation = 1,
                                 .reduce_bucket = 500000000,
                                 .gather_bucket = 500000000};
    Z3D_TRY(z3d_mesh_make(1, data, 1, 0, &mesh));
    z3d_status status = z3d_program_set_create(model, &mesh, &config, 0, false, &set);
    *bytes = 0;
    for (int g = 0; g < model->num_groups && status == Z3D_OK; g++)
        for (int role = 0; role < Z3D_STATE_COUNT; role++)
            *bytes += (double)z3d_state_bytes(set.layout, g, (z3d_state_role)role);
    z3d_program_set_release(&set);
    return status;
}

/* ---- table 1 ---- */

/* The paper rounds numbers below 10 to two decimals, below 100 to one; it truncates others. */
double z3d_paper_printed(double gigabytes) {
    if (gigabytes >= 100) return floor(gigabytes + 1e-6);
    double digits = gigabytes >= 10 ? 10 : 100;
    return floor(gigabytes * digits + 0.5 + 1e-6) / digits;
}

static const char *const names[] = {"base", "os", "os+g", "os+g+p"}; /* by ZeRO stage */
static const struct {
    const char *name;
    int64_t parameters;
} sizes[] = {{"7.5B", 7500000000}, {"128B", 128000000000}, {"1T", 1000000000000}};

static const struct {
    int data;
    double published[3][3]; /* by size, by column */
} table1[] = {
    {1, {{120, 120, 120}, {2048, 2048, 2048}, {16000, 16000, 16000}}},
    {4, {{52.5, 41.3, 30}, {896, 704, 512}, {7000, 5500, 4000}}},
    {16, {{35.6, 21.6, 7.5}, {608, 368, 128}, {4750, 2875, 1000}}},
    {64, {{31.4, 16.6, 1.88}, {536, 284, 32}, {4187, 2218, 250}}},
    {256, {{30.4, 15.4, 0.47}, {518, 263, 8}, {4046, 2054, 62.5}}},
    {1024, {{30.1, 15.1, 0.12}, {513, 257, 2}, {4011, 2013, 15.6}}},
};

static z3d_status table1_size(int s, z3d_points *out) {
    z3d_model *model = NULL;
    z3d_status status = make_model(sizes[s].parameters, &model);
    for (size_t r = 0; r < sizeof table1 / sizeof *table1; r++) {
        for (int stage = 1; stage <= 3 && status == Z3D_OK; stage++) {
            double bytes;
            status = states(model, table1[r].data, stage, &bytes);
            if (status != Z3D_OK) break;
            z3d_point point = {.figure = "table1",
                               .system = names[stage],
                               .size = sizes[s].name,
                               .gpus = table1[r].data,
                               .quantity = "gb",
                               .published = table1[r].published[s][stage - 1],
                               .ours = z3d_paper_printed(bytes * 1e-9),
                               .other = NAN};
            status = z3d_points_add(out, &point);
        }
    }
    z3d_model_destroy(model);
    return status;
}

z3d_status z3d_paper_table1(z3d_points *out) {
    for (int s = 0; s < 3; s++) Z3D_TRY(table1_size(s, out));
    return Z3D_OK;
}

/* ---- table 2 ---- */

static const struct row {
    const char *size;
    int tensor;
    double theory[4], measured[2]; /* parameters / 1e9 */
} table2[] = {
    {"MP 1", 1, {2, 7.6, 14.4, 128}, {1.3, 6.2}},
    {"MP 2", 2, {4, 15.2, 28.8, 256}, {2.5, 12.5}},
    {"MP 4", 4, {8, 30.4, 57.6, 500}, {5, 25}},
    {"MP 8", 8, {16, 60.8, 115.2, 1000}, {10, 50}},
    {"MP 16", 16, {32, 121.6, 230.4, 2000}, {20, 100}},
};
enum { TABLE2_DATA = 64 };

static z3d_status add(const struct row *row, const char *system, double published, double ours,
                      double other, z3d_points *out) {
    const z3d_point point = {.figure = "table2",
                             .system = system,
                             .size = row->size,
                             .gpus = TABLE2_DATA * row->tensor,
                             .quantity = "max_params",
                             .published = published * 1e9,
                             .ours = ours,
                             .other = other};
    return z3d_points_add(out, &point);
}

/* 32 GB / bytes per parameter; the paper's other rows are multiples of its rounded first row. */
static z3d_status theory(z3d_points *out) {
    enum { PARAMETERS = TABLE2_DATA * Z3D_SHARD_ALIGN * 250000 };
    z3d_model *model = NULL;
    z3d_status status = make_model(PARAMETERS, &model);
    for (int stage = 0; stage < 4 && status == Z3D_OK; stage++) {
        double bytes;
        status = states(model, TABLE2_DATA, stage, &bytes);
        if (status != Z3D_OK) break;
        double largest = 32e9 / (bytes / PARAMETERS), row = floor(largest * 1e-8 + 0.5) * 1e8;
        for (size_t r = 0; r < sizeof table2 / sizeof *table2 && status == Z3D_OK; r++)
            status = add(&table2[r], names[stage], table2[r].theory[stage], row * table2[r].tensor,
                         largest * table2[r].tensor, out);
    }
    z3d_model_destroy(model);
    return status;
}

/* The paper does not name its models. We take hidden sizes as in its other figures, a batch of 8 a
 * replica, and as many layers as fit. */
static z3d_status measured(const z3d_hardware *hardware, z3d_points *out) {
    static const int hidden[2][5] = {{1920, 2560, 3072, 4096, 6144},
                                     {3072, 4096, 6144, 8192, 8192}};
    static const char *const names[] = {"measured base", "measured os"};
    for (size_t r = 0; r < sizeof table2 / sizeof *table2; r++) {
        for (int stage = 0; stage < 2; stage++) {
            int tensor = table2[r].tensor;
            z3d_paper_row row = {.figure = "table2",
                                 .system = names[stage],
                                 .size = "largest",
                                 .hidden = hidden[stage][r],
                                 .heads = hidden[stage][r] / 64,
                                 .gpus = TABLE2_DATA * tensor,
                                 .tensor = tensor,
                                 .batch = 8,
                                 .layers = 1,
                                 .stage = stage,
                                 .partition = tensor > 1 && stage > 0,
                                 .fused_buffer = stage == 0};
            if (row.heads % 16 != 0) row.heads = 16 * (row.heads / 16 > 0 ? row.heads / 16 : 1);
            double parameters;
            Z3D_TRY(z3d_paper_largest(&row, hardware, &parameters));
            Z3D_TRY(add(&table2[r], names[stage], table2[r].measured[stage], parameters, NAN, out));
        }
    }
    return Z3D_OK;
}

z3d_status z3d_paper_table2(const z3d_hardware *hardware, z3d_points *out) {
    Z3D_TRY(theory(out));
    return measured(hardware, out);
}
