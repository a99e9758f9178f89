/* The input and output of a step: data and step state at its start, the control vector that is
 * summed over all ranks, and the results that the host reads at the end. In between the host reads
 * nothing: the device decides from the sums. */
#include <math.h>
#include <string.h>

#include "zero/execute/executor.h"
#include "zero/program/layout.h"

static double *device_control(const z3d_executor *executor) {
    return z3d_executor_address(executor, Z3D_BUFFER_CONTROL, 0, Z3D_F64);
}

/* ---- in ---- */

/* Parts of the mailbox are aligned as kernels' operands are. */
enum { APART = 256 };

/* State, control vector, then the fields of each micro-batch, in every mode. */
static int64_t mailbox_control(void) {
    return z3d_round_up((int64_t)sizeof(z3d_step_state), APART);
}

static int64_t mailbox_field(const z3d_program *p, int micro, int field) {
    int64_t numbers = z3d_control_capacity(p->layout), stride = 0, before = 0;
    for (int f = 0; f < p->model->num_fields; f++) {
        int64_t bytes = z3d_round_up(z3d_program_batch_bytes(p, 0, f), APART);
        stride += bytes;
        if (f < field) before += bytes;
    }
    return mailbox_control() + z3d_round_up(numbers * (int64_t)sizeof(double), APART) +
           micro * stride + before;
}

int64_t z3d_executor_mailbox_bytes(const z3d_program *program) {
    return mailbox_field(program, program->config.accumulation, 0);
}

void z3d_executor_give(z3d_executor *executor, const z3d_host_step *host) {
    const z3d_program *p = executor->program;
    if (!executor->mailbox) return;
    memcpy(executor->mailbox, &host->state, sizeof host->state);
    for (int m = 0; m < host->micro_count; m++)
        for (int f = 0; f < p->model->num_fields; f++)
            if (host->micro[m].field[f])
                memcpy(executor->mailbox + mailbox_field(p, m, f), host->micro[m].field[f],
                       (size_t)z3d_program_field_bytes(p, f));
}

/* In training every field is written, because a captured step does the same each time: a field that
 * is not given has its old value in the mailbox. */
static z3d_status write_field(z3d_executor *executor, const z3d_host_step *host, int m, int f) {
    const z3d_program *p = executor->program;
    const void *given = host->micro[m].field[f];
    void *to = z3d_executor_address(executor, z3d_program_batch_buffer(p, m, f), 0, Z3D_U8);
    if (executor->mailbox && (given || p->mode == Z3D_MODE_TRAIN))
        return z3d_device_post(executor->device, to, executor->mailbox + mailbox_field(p, m, f),
                               z3d_program_field_bytes(p, f));
    return given ? z3d_device_write(executor->device, to, given, z3d_program_field_bytes(p, f))
                 : Z3D_OK;
}

/* If any group's gradients leave the device, squares are added up before step_control. */
static bool adds_squares_early(const z3d_program *p) {
    for (int g = 0; g < p->layout->num_groups && p->mode == Z3D_MODE_TRAIN; g++)
        if (z3d_gradients_leave(p->layout, g)) return true;
    return false;
}

z3d_status z3d_executor_begin(z3d_executor *executor, const z3d_host_step *host) {
    z3d_step_state *state = z3d_executor_state(executor);
    if (adds_squares_early(executor->program))
        Z3D_TRY(Z3D_LAUNCH(executor->device, fill,
                           .x = device_control(executor) + Z3D_CONTROL_SQUARES,
                           .count = executor->program->layout->num_groups, .dtype = Z3D_F64));
    for (int m = 0; m < host->micro_count; m++)
        for (int f = 0; f < executor->program->model->num_fields; f++)
            Z3D_TRY(write_field(executor, host, m, f));
    return executor->mailbox
               ? z3d_device_post(executor->device, state, executor->mailbox, sizeof *state)
               : z3d_device_write(executor->device, state, &host->state, sizeof *state);
}

/* ---- the sums ---- */

/* If all tensor ranks or two pipeline stages hold a parameter, the first of them counts it. */
z3d_status z3d_executor_square(z3d_executor *executor, int g, int buffer) {
    const z3d_program *p = executor->program;
    const z3d_layout *layout = p->layout;
    double *squares = device_control(executor) + Z3D_CONTROL_SQUARES;
    for (int r = 0; r < layout->group[g].num_ranges && layout->group[g].counts; r++) {
        z3d_range range;
        if (!z3d_layout_shard_range(layout, g, r, &range)) continue;
        if (range.replicated && layout->tensor_index != 0) continue;
        Z3D_TRY(Z3D_LAUNCH(
            executor->device, sum_squares,
            .x = executor->arena[Z3D_SPACE_DEVICE] +
                 z3d_executor_place(executor, g, buffer, 0, 1, range.first, p->config.grad_dtype),
            .count = range.count, .dtype = p->config.grad_dtype, .out = &squares[g]));
    }
    return Z3D_OK;
}

bool z3d_executor_counts_loss(const z3d_executor *executor) {
    const z3d_program *p = executor->program;
    return p->layout->tensor_index == 0 && z3d_layout_has_unit(p->layout, p->model->num_units - 1);
}

static z3d_status sum_over_world(z3d_executor *executor) {
    const z3d_program *p = executor->program;
    int64_t count = z3d_control_count(p);
    double *control = device_control(executor);
    const bool counts = z3d_executor_counts_loss(executor);
    Z3D_TRY(Z3D_LAUNCH(
        executor->device, control_begin, .state = z3d_executor_state(executor), .control = control,
        .count = adds_squares_early(p) ? Z3D_CONTROL_SQUARES : count, .counts = counts));
    for (int g = 0; g < p->layout->num_groups && p->mode == Z3D_MODE_TRAIN; g++)
        if (!z3d_gradients_leave(p->layout, g) && !p->layout->group[g].frozen)
            Z3D_TRY(z3d_executor_square(executor, g,
                                        z3d_program_group_buffer(p, g, Z3D_STATE_GRADIENT)));
    z3d_collective call = {.kind = Z3D_COLLECTIVE_ALL_REDUCE,
                           .op = Z3D_SUM,
                           .dtype = Z3D_F64,
                           .buffer = control,
                           .count = count,
                           .scalar = true};
    return z3d_collective_run(executor->group[Z3D_AXES_WORLD], &call);
}

z3d_status z3d_executor_exchange(z3d_executor *executor, const z3d_host_step *host) {
    Z3D_TRY(sum_over_world(executor));
    if (executor->program->mode != Z3D_MODE_TRAIN) return Z3D_OK;
    Z3D_TRY(Z3D_LAUNCH(executor->device, control_end, .control = device_control(executor),
                       .state = z3d_executor_state(executor),
                       .count = z3d_control_count(executor->program),
                       .clipping = host->gradient_clipping));
    if (executor->program->config.offload.optimizer == Z3D_SPACE_DEVICE) return Z3D_OK;
    return z3d_device_read(executor->device, &executor->now, z3d_executor_state(executor),
                           sizeof executor->now);
}

/* ---- out ---- */

/* How near group g is to the loss: the number of its unit. A group of several units (a tied table)
 * counts as the farthest, because an infinity may come from any of them. */
static int nearness(const z3d_model *model, int g) {
    int place = -1, users = 0;
    for (int u = 0; u < model->num_units; u++)
        for (int s = 0; s < model->unit[u].num_groups; s++)
            if (model->unit[u].group[s] == g) place = u, users++;
    return users == 1 ? place : -1;
}

/* The group nearest to the loss whose squares are not finite: backward carries an infinity to all
 * units below. -1: none, or the loss itself is not finite, and so all are. */
static int overflow_group(const z3d_model *model, double loss, const double *squares) {
    int group = -1;
    for (int g = 0; g < model->num_groups && isfinite(loss); g++)
        if (!isfinite(squares[g]) && (group < 0 || nearness(model, g) > nearness(model, group)))
            group = g;
    return group;
}

/* The norm by the same additions as control_end. */
static void take_gradients(z3d_executor *executor, z3d_host_step *host) {
    const z3d_program *p = executor->program;
    const double *sums = executor->sums;
    const double mean = z3d_step_mean(host->state.targets, sums[Z3D_CONTROL_TARGETS]);
    double squares = 0;
    for (int g = 0; g < p->layout->num_groups; g++) squares += sums[Z3D_CONTROL_SQUARES + g];
    host->grad_norm = sqrt(squares) * mean / (double)host->state.loss_scale;
    host->overflow_group =
        overflow_group(p->model, sums[Z3D_CONTROL_LOSS], sums + Z3D_CONTROL_SQUARES);
    host->skipped = sums[Z3D_CONTROL_SKIP] > 0;
    executor->gradient_scale = mean > 0 ? (float)((double)host->state.loss_scale / mean) : 1;
}

z3d_status z3d_executor_read_sums(z3d_executor *executor) {
    return z3d_device_read(executor->device, executor->sums, device_control(executor),
                           z3d_control_count(executor->program) * (int64_t)sizeof *executor->sums);
}

z3d_status z3d_executor_fetch(z3d_executor *executor) {
    int64_t count = z3d_control_count(executor->program);
    if (!executor->mailbox || count == 0) return Z3D_OK;
    return z3d_device_fetch(executor->device, executor->mailbox + mailbox_control(),
                            device_control(executor), count * (int64_t)sizeof(double));
}

/* The one place in a step where the host waits for a device that has a queue. */
static z3d_status wait_for_sums(z3d_executor *executor) {
    if (!executor->mailbox) return z3d_executor_read_sums(executor);
    Z3D_TRY(z3d_device_synchronize(executor->device));
    memcpy(executor->sums, executor->mailbox + mailbox_control(),
           (size_t)z3d_control_count(executor->program) * sizeof *executor->sums);
    return Z3D_OK;
}

z3d_status z3d_executor_end(z3d_executor *executor, z3d_host_step *host) {
    const double *sums = executor->sums;
    if (z3d_control_count(executor->program) == 0) return Z3D_OK;
    Z3D_TRY(wait_for_sums(executor));
    host->loss_sum = sums[Z3D_CONTROL_LOSS];
    host->targets = sums[Z3D_CONTROL_TARGETS];
    host->stop = sums[Z3D_CONTROL_STOP] > 0;
    if (executor->program->mode == Z3D_MODE_TRAIN) take_gradients(executor, host);
    return Z3D_OK;
}
