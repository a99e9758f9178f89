/* Runs a step program: one function for each class of instructions, in list order. A unit's
 * collectives are compared with its recording. */
#include <stdlib.h>

#include "zero/execute/executor.h"
#include "zero/program/layout.h"

z3d_status z3d_executor_create(const z3d_program *program, z3d_executor *executor) {
    executor->program = program;
    Z3D_TRY(z3d_new((size_t)program->num_tickets, sizeof *executor->ticket, "executor",
                    &executor->ticket));
    Z3D_TRY(
        z3d_new((size_t)program->num_buffers, sizeof *executor->live, "executor", &executor->live));
    Z3D_TRY(z3d_new((size_t)z3d_control_capacity(program->layout), sizeof *executor->sums,
                    "executor", &executor->sums));
    for (int b = 0; b < program->num_buffers; b++)
        if (program->buffer[b].persistent)
            z3d_ledger_add(&executor->measured[program->buffer[b].space],
                           program->buffer[b].category, program->buffer[b].bytes);
    return Z3D_OK;
}

void z3d_executor_destroy(z3d_executor *executor) {
    if (executor->graph.region) z3d_region_destroy(executor->device, executor->graph.region);
    free(executor->ticket);
    free(executor->live);
    free(executor->sums);
    *executor = (z3d_executor){0};
}

/* ---- memory ---- */

/* The ledger measures real use: a buffer counts from its first use to its last, with the bytes that
 * were taken from it. */
static void touch(z3d_executor *executor, int buffer, int64_t bytes) {
    const z3d_program *p = executor->program;
    if (buffer < 0 || p->buffer[buffer].persistent) return;
    int64_t more = bytes - executor->live[buffer];
    if (more > 0) {
        z3d_ledger_add(&executor->measured[p->buffer[buffer].space], p->buffer[buffer].category,
                       more);
        executor->live[buffer] = bytes;
    }
}

static void release(z3d_executor *executor, int buffer) {
    const z3d_buffer *b = &executor->program->buffer[buffer];
    z3d_ledger_add(&executor->measured[b->space], b->category, -executor->live[buffer]);
    executor->live[buffer] = 0;
}

static void release_dead(z3d_executor *executor) {
    const z3d_program *p = executor->program;
    const z3d_instruction *i = &p->instruction[executor->position];
    for (int s = 0; s < i->num_slots; s++) {
        int b = i->buffer[s];
        if (b >= 0 && !p->buffer[b].persistent && p->buffer[b].last == executor->position)
            release(executor, b);
    }
}

/* Copies this rank's row from one buffer to another, or adds it there, in device memory. */
static z3d_status move_own(z3d_executor *executor, const z3d_instruction *i) {
    const z3d_opcode_info *info = z3d_opcode_info_of(i->opcode);
    z3d_matrix m = z3d_instruction_matrix(executor->program, i);
    int64_t count = z3d_executor_own_elements(executor, i);
    void *to = z3d_executor_matrix_address(executor, i, i->buffer[info->to], m.own, i->first);
    void *from = z3d_executor_matrix_address(executor, i, i->buffer[info->from], m.own, i->first);
    if (i->accumulate)
        return Z3D_LAUNCH(executor->device, accumulate, .y = to, .x = from, .count = count,
                          .y_dtype = m.dtype, .x_dtype = m.dtype);
    return Z3D_LAUNCH(executor->device, cast, .destination = to, .source = from, .count = count,
                      .destination_dtype = m.dtype, .source_dtype = m.dtype);
}

/* ---- copies between memory spaces ---- */

/* NULL if a space has no memory (a simulated disk): then only the size of a copy counts. */
static char *memory_of(const z3d_executor *executor, const z3d_run *run) {
    char *arena = executor->arena[run->space];
    return arena ? arena + run->place : NULL;
}

static z3d_status start_run(z3d_executor *executor, const z3d_instruction *i, int tensor,
                            int64_t *id) {
    const z3d_opcode_info *info = z3d_opcode_info_of(i->opcode);
    const z3d_run run[2] = {z3d_executor_run_of(executor, i, i->buffer[info->from], tensor),
                            z3d_executor_run_of(executor, i, i->buffer[info->to], tensor)};
    for (int end = 0; end < 2; end++) {
        if (run[end].space != Z3D_SPACE_DISK || !executor->disk) continue;
        char *memory = memory_of(executor, &run[1 - end]);
        const int64_t blocks = z3d_round_up(run[end].bytes, Z3D_DISK_ALIGN);
        z3d_device_touch(executor->device, memory, blocks);
        return z3d_disk_start(executor->disk, end == 1, run[end].place, memory, blocks, id);
    }
    z3d_copy copy;
    Z3D_TRY(z3d_copy_start(executor->device, memory_of(executor, &run[1]),
                           memory_of(executor, &run[0]), run[0].bytes, &copy));
    *id = copy.id;
    return Z3D_OK;
}

/* Starts one copy for each tensor; their ids follow each other. */
static z3d_status start_copy(z3d_executor *executor, const z3d_instruction *i) {
    const int tensors = z3d_instruction_matrix(executor->program, i).tensors;
    int64_t id;
    if (z3d_executor_own_elements(executor, i) == 0) return Z3D_OK; /* only padding */
    for (int tensor = 0; tensor < tensors; tensor++) {
        Z3D_TRY(start_run(executor, i, tensor, &id));
        if (tensor == 0) executor->ticket[i->ticket].id = id;
    }
    return Z3D_OK;
}

/* Whether one end of the copy is the disk. */
static bool is_disk_copy(const z3d_program *p, const z3d_instruction *i) {
    const z3d_opcode_info *info = z3d_opcode_info_of(i->opcode);
    if (info->rules != Z3D_CLASS_COPY) return false;
    return p->buffer[i->buffer[info->from]].space == Z3D_SPACE_DISK ||
           p->buffer[i->buffer[info->to]].space == Z3D_SPACE_DISK;
}

int z3d_executor_disk_requests(const z3d_program *p) {
    int now = 0, most = 0;
    for (int n = 0; n < p->num_instructions; n++) {
        const z3d_instruction *i = &p->instruction[n];
        if (!is_disk_copy(p, i)) continue;
        int runs = z3d_instruction_matrix(p, i).tensors;
        now += i->phase == Z3D_PHASE_START ? runs : -runs;
        if (now > most) most = now;
    }
    return most;
}

/* The host's step or a disk uses a group's host memory, so the host itself must wait for its
 * copies. With a disk it waits for all copies: the disk may use host memory that a checkpoint has
 * left. */
static z3d_status wait_copy(z3d_executor *executor, const z3d_instruction *i) {
    const z3d_program *p = executor->program;
    const int64_t id = executor->ticket[i->ticket].id;
    const bool disk = executor->disk && is_disk_copy(p, i);
    const bool finish = i->group >= 0 || p->arena[Z3D_SPACE_DISK] > 0;
    const int tensors = z3d_instruction_matrix(p, i).tensors;
    z3d_status status = Z3D_OK;
    if (z3d_executor_own_elements(executor, i) == 0) return Z3D_OK; /* only padding */
    double *waited = disk ? &executor->disk_wait_seconds : &executor->transfer_wait_seconds;
    double begin = z3d_now();
    for (int tensor = 0; tensor < tensors && status == Z3D_OK; tensor++)
        status = disk     ? z3d_disk_wait(executor->disk, id + tensor)
                 : finish ? z3d_copy_finish(executor->device, (z3d_copy){id + tensor})
                          : z3d_copy_wait(executor->device, (z3d_copy){id + tensor});
    *waited += z3d_now() - begin;
    return status;
}

/* Starts a collective on the entry's columns of a matrix [ranks x stride], or on one run
 * (all-reduce). */
static z3d_status start_collective(z3d_executor *executor, const z3d_instruction *i) {
    const z3d_program *p = executor->program;
    z3d_matrix m = z3d_instruction_matrix(p, i);
    int64_t first, count;
    z3d_instruction_columns(p, i, &first, &count);
    if (count == 0) return Z3D_OK;
    const z3d_opcode_info *info = z3d_opcode_info_of(i->opcode);
    bool apart = z3d_is_point_to_point(i); /* the own row, without padding */
    if (apart) count = z3d_executor_own_elements(executor, i);
    int buffer = i->buffer[info->rules == Z3D_CLASS_SEND ? info->from : info->to];
    z3d_collective call = {
        .kind = z3d_instruction_kind(i),
        .op = Z3D_SUM,
        .dtype = m.dtype,
        .wire = z3d_instruction_wire(p, i),
        .buffer = z3d_executor_matrix_address(executor, i, buffer, apart ? m.own : 0, first),
        .count = count,
        .stride = m.columns,
        .peer = apart ? i->peer : 0,
    };
    if (i->columns > 0) {
        call.buffer = z3d_executor_address(executor, i->buffer[Z3D_SLOT_WORKSPACE], 0, m.dtype);
        call.count = call.stride = i->columns;
    }
    return z3d_collective_start(executor->group[i->axes], &call, &executor->ticket[i->ticket]);
}

/* Joined collectives: copies the entry's input to its columns of the packed matrix; back: copies
 * the result from there. A gather brings this rank's row and gets all rows, a reduction the
 * reverse. */
static z3d_status copy_packed(z3d_executor *executor, const z3d_instruction *i, bool back) {
    const z3d_opcode_info *info = z3d_opcode_info_of(i->opcode);
    const z3d_matrix m = z3d_instruction_matrix(executor->program, i);
    const bool all = back == (info->rules == Z3D_CLASS_ALL_GATHER);
    const int row = all ? 0 : m.own;
    void *own = z3d_executor_matrix_address(executor, i, i->buffer[info->to], row, 0);
    void *packed = z3d_executor_address(executor, i->buffer[Z3D_SLOT_WORKSPACE],
                                        row * i->columns + i->column, m.dtype);
    return Z3D_LAUNCH(
        executor->device, cast, .destination = back ? own : packed, .source = back ? packed : own,
        .count = m.columns, .destination_dtype = m.dtype, .source_dtype = m.dtype,
        .rows = all ? m.ranks : 1, .destination_stride = back ? m.columns : i->columns,
        .source_stride = back ? i->columns : m.columns);
}

/* The last entry of a joined collective; its start starts the collective. */
static const z3d_instruction *last_joined(const z3d_instruction *i) {
    while (i->column + i->count < i->columns) i++;
    return i;
}

/* ---- beside compute ---- */

static z3d_status start(z3d_executor *executor, const z3d_instruction *i) {
    if (!z3d_is_collective(i)) return start_copy(executor, i);
    if (z3d_moves_apart(i)) Z3D_TRY(move_own(executor, i));
    if (i->columns > 0) Z3D_TRY(copy_packed(executor, i, false));
    return last_joined(i) == i ? start_collective(executor, i) : Z3D_OK;
}

static z3d_status wait(z3d_executor *executor, const z3d_instruction *i) {
    if (!z3d_is_collective(i)) return wait_copy(executor, i);
    int64_t first, count;
    z3d_instruction_columns(executor->program, i, &first, &count);
    if (count == 0) return Z3D_OK;
    if (i->column == 0) /* the first wait is for all that are joined */
        Z3D_TRY(z3d_collective_wait(executor->group[i->axes],
                                    executor->ticket[last_joined(i)->ticket]));
    return i->columns > 0 ? copy_packed(executor, i, true) : Z3D_OK;
}

/* ---- the watchdog ---- */

/* Tells the watchdog this rank's position. `call`: an inner collective of the unit that runs; NULL:
 * none. */
static void announce(z3d_executor *executor, const z3d_child *call) {
    if (!executor->config->world) return;
    const z3d_program *p = executor->program;
    const z3d_instruction *i = &p->instruction[executor->position];
    bool waits = i->phase == Z3D_PHASE_WAIT;
    bool communicates = call || (z3d_communicates(i) && (waits || !z3d_is_collective(i)));
    char what[112], group[64] = "", place[192];
    z3d_instruction_describe(p, executor->position, what, sizeof what);
    if (communicates)
        snprintf(group, sizeof group, " (%s group)",
                 z3d_axes_name(call ? call->axes : i->axes).text);
    snprintf(place, sizeof place, "step %lld: %s%s%s%s", (long long)executor->step, what,
             call ? ": " : "", call ? z3d_collective_name(call->kind) : "", group);
    z3d_watchdog_position(executor->config->world, communicates || waits, place);
}

void z3d_executor_announce_wait(const z3d_executor *executor, const char *what) {
    char place[160];
    if (!executor->config->world) return;
    snprintf(place, sizeof place, "step %lld: %s", (long long)executor->step, what);
    z3d_watchdog_position(executor->config->world, true, place);
}

/* ---- units ---- */

static z3d_status check_child(void *context, z3d_group *group, const z3d_collective *call) {
    z3d_executor *executor = context;
    const z3d_instruction *i = &executor->program->instruction[executor->position];
    int n = executor->next_child++;
    if (n >= i->num_children)
        return Z3D_ERROR(Z3D_ERR_PROGRAM,
                         "runs %s as its collective %d, but its recording has only %d collectives",
                         z3d_collective_name(call->kind), n + 1, i->num_children);
    const z3d_child *child = &i->child[n];
    const z3d_child ran = z3d_child_of(group, call);
    if (!z3d_child_equal(child, &ran))
        return Z3D_ERROR(Z3D_ERR_PROGRAM,
                         "its collective %d is %s of %lld %s over the %s group, but its recording "
                         "has %s of %lld %s over the %s group",
                         n + 1, z3d_collective_name(call->kind), (long long)call->count,
                         z3d_dtype_name(call->dtype), z3d_axes_name(ran.axes).text,
                         z3d_collective_name(child->kind), (long long)child->count,
                         z3d_dtype_name(child->dtype), z3d_axes_name(child->axes).text);
    announce(executor, child);
    return Z3D_OK;
}

/* NULL: the slot has no buffer. */
static void *memory_in(const z3d_executor *executor, const z3d_instruction *i, int slot) {
    return z3d_executor_address(executor, i->buffer[slot], 0, Z3D_U8);
}

static z3d_bump bump_over(const z3d_executor *executor, const z3d_instruction *i, int slot) {
    const int buffer = i->buffer[slot];
    const int64_t bytes = buffer >= 0 ? executor->program->buffer[buffer].bytes : 0;
    return (z3d_bump){memory_in(executor, i, slot), 0, 0, bytes};
}

static z3d_unit_run make_run(z3d_executor *executor, const z3d_instruction *i) {
    const z3d_program *p = executor->program;
    const z3d_mesh *t = &p->mesh;
    z3d_unit_run run = z3d_unit_run_of(p->model, p->layout, &p->config, p->mode, i->unit);
    run.device = executor->device;
    run.sample = i->micro * z3d_samples_in_all(&p->config, t) + z3d_samples_before(&p->config, t);
    run.need_output = i->need_output;
    run.input = memory_in(executor, i, Z3D_SLOT_INPUT);
    run.output = memory_in(executor, i, Z3D_SLOT_OUTPUT);
    run.output_gradient = memory_in(executor, i, Z3D_SLOT_OUTPUT_GRADIENT);
    run.input_gradient = memory_in(executor, i, Z3D_SLOT_INPUT_GRADIENT);
    run.state = z3d_executor_state(executor);
    run.cache = memory_in(executor, i, Z3D_SLOT_CACHE);
    run.cache_first = executor->cache_first;
    run.saved = bump_over(executor, i, Z3D_SLOT_SAVED);
    run.workspace = bump_over(executor, i, Z3D_SLOT_WORKSPACE);
    run.deferred = bump_over(executor, i, Z3D_SLOT_DEFERRED);
    z3d_unit_take_groups(&run, executor->group);
    for (int f = 0; f < p->model->num_fields; f++)
        run.field[f] =
            z3d_executor_address(executor, z3d_program_batch_buffer(p, i->micro, f), 0, Z3D_U8);
    for (int s = 0; s < run.unit->num_groups; s++) {
        run.group[s].parameters = memory_in(executor, i, z3d_slot_parameters(s));
        run.group[s].gradients = memory_in(executor, i, z3d_slot_gradients(s));
        run.group[s].accumulate = i->accumulate >> s & 1;
    }
    return run;
}

/* Whether anybody asks for digests. */
static bool wants_digests(const z3d_executor *executor) {
    return executor->digest || executor->finished;
}

/* Collectives and digests read a gradient buffer's padding: it is zero from the first write on. */
static z3d_status clear_padding(z3d_executor *executor, const z3d_instruction *i) {
    const z3d_program *p = executor->program;
    const z3d_unit *unit = &p->model->unit[i->unit];
    for (int s = 0; s < unit->num_groups; s++) {
        const z3d_group_layout *g = &p->layout->group[unit->group[s]];
        int buffer = i->buffer[z3d_slot_gradients(s)];
        if (buffer < 0 || i->accumulate >> s & 1 || g->padded == g->elements) continue;
        Z3D_TRY(Z3D_LAUNCH(
            executor->device, fill,
            .x = z3d_executor_address(executor, buffer, g->elements, p->config.grad_dtype),
            .count = g->padded - g->elements, .dtype = p->config.grad_dtype));
    }
    return Z3D_OK;
}

/* No unit writes the gaps between its saved pieces, but the digest reads them. */
static z3d_status clear_gaps(z3d_executor *executor, const z3d_bump *bump) {
    return Z3D_LAUNCH(executor->device, fill, .x = bump->base,
                      .count = bump->capacity / (int64_t)sizeof(float), .dtype = Z3D_F32);
}

static z3d_status run_unit(z3d_executor *executor, const z3d_instruction *i) {
    z3d_unit_run run = make_run(executor, i);
    z3d_call call = z3d_instruction_call(i);
    if (call >= Z3D_CALL_BACKWARD) Z3D_TRY(clear_padding(executor, i));
    if (wants_digests(executor) && i->keep) Z3D_TRY(clear_gaps(executor, &run.saved));
    if (wants_digests(executor) && call == Z3D_CALL_BACKWARD_INPUT && run.deferred.base)
        Z3D_TRY(clear_gaps(executor, &run.deferred));
    executor->next_child = 0;
    z3d_unit_set_observer(&run, check_child, executor);
    z3d_status status = z3d_unit_call(&run, call);
    z3d_unit_set_observer(&run, NULL, NULL);
    if (status != Z3D_OK) return status;
    if (executor->next_child != i->num_children)
        return Z3D_ERROR(Z3D_ERR_PROGRAM, "ran %d collectives, but its recording has %d",
                         executor->next_child, i->num_children);
    touch(executor, i->buffer[Z3D_SLOT_SAVED], run.saved.used);
    touch(executor, i->buffer[Z3D_SLOT_WORKSPACE], run.workspace.peak);
    touch(executor, i->buffer[Z3D_SLOT_DEFERRED], run.deferred.used);
    return Z3D_OK;
}

static z3d_status give_result(z3d_executor *executor, const z3d_instruction *i,
                              const z3d_host_step *host) {
    const z3d_program *p = executor->program;
    int last = p->model->num_units - 1;
    bool own = i->buffer[Z3D_SLOT_INPUT] >= 0;
    const int buffer = i->buffer[own ? Z3D_SLOT_INPUT : Z3D_SLOT_OUTPUT];
    z3d_collective call = {.kind = z3d_instruction_kind(i),
                           .dtype = p->config.dtype,
                           .buffer = z3d_executor_address(executor, buffer, 0, p->config.dtype),
                           .count = z3d_program_output_elements(p, last),
                           .peer = z3d_layout_stage_of(p->layout, last)};
    if (p->layout->stages > 1) Z3D_TRY(z3d_collective_run(executor->group[i->axes], &call));
    return z3d_executor_read_floats(executor, Z3D_SPACE_DEVICE, p->buffer[buffer].offset,
                                    p->config.dtype, call.count, host->output);
}

static z3d_status host_step(z3d_executor *executor, const z3d_instruction *i) {
    double begin = z3d_now();
    z3d_status status = z3d_executor_optimize(executor, i);
    executor->host_step_seconds += z3d_now() - begin;
    return status;
}

/* ---- the loop ---- */

static z3d_status execute(z3d_executor *executor, const z3d_instruction *i,
                          const z3d_host_step *host) {
    if (i->phase == Z3D_PHASE_START) return start(executor, i);
    if (i->phase == Z3D_PHASE_WAIT) return wait(executor, i);
    switch (z3d_opcode_info_of(i->opcode)->rules) {
    case Z3D_CLASS_MARK:
        return Z3D_OK;
    case Z3D_CLASS_BEGIN:
        return z3d_executor_begin(executor, host);
    case Z3D_CLASS_EXCHANGE:
        return z3d_executor_exchange(executor, host);
    case Z3D_CLASS_RESULT:
        return give_result(executor, i, host);
    case Z3D_CLASS_FORWARD:
    case Z3D_CLASS_BACKWARD:
    case Z3D_CLASS_BACKWARD_INPUT:
    case Z3D_CLASS_BACKWARD_WEIGHT:
        return run_unit(executor, i);
    case Z3D_CLASS_COPY: /* an input that stays is only kept alive */
        return z3d_moves_apart(i) ? move_own(executor, i) : Z3D_OK;
    case Z3D_CLASS_SUM:
        return move_own(executor, i);
    case Z3D_CLASS_NORM:
        return z3d_executor_square(executor, i->group,
                                   i->buffer[z3d_opcode_info_of(i->opcode)->from]);
    case Z3D_CLASS_OPTIMIZER:
        return z3d_executor_optimize(executor, i);
    case Z3D_CLASS_HOST_OPTIMIZER:
        return host_step(executor, i);
    default: /* these are started and waited for */
        break;
    }
    return Z3D_ERROR(Z3D_ERR_PROGRAM, "unknown instruction (opcode %d)", (int)i->opcode);
}

/* A unit's own memory counts with the bytes that the unit takes. */
static bool takes_itself(const z3d_instruction *i, int slot) {
    return i->unit >= 0 &&
           (slot == Z3D_SLOT_SAVED || slot == Z3D_SLOT_WORKSPACE || slot == Z3D_SLOT_DEFERRED);
}

/* The instruction at `position`. */
static z3d_status run_instruction(z3d_executor *executor, const z3d_host_step *host) {
    const z3d_program *p = executor->program;
    const z3d_engine_config *c = executor->config;
    const z3d_instruction *i = &p->instruction[executor->position];
    announce(executor, NULL);
    double begin = executor->trace ? z3d_now() : 0;
    if (c->enter) Z3D_TRY(c->enter(c->enter_context, p, executor->position));
    Z3D_TRY(execute(executor, i, host));
    if (wants_digests(executor)) Z3D_TRY(z3d_executor_digest(executor));
    if (executor->trace) z3d_executor_trace(executor, begin, z3d_now());
    for (int s = 0; s < i->num_slots; s++)
        if (!takes_itself(i, s) && i->buffer[s] >= 0)
            touch(executor, i->buffer[s], p->buffer[i->buffer[s]].bytes);
    release_dead(executor);
    return Z3D_OK;
}

z3d_status z3d_executor_run_list(z3d_executor *executor, const z3d_host_step *host) {
    const z3d_program *p = executor->program;
    long long step = executor->step;
    char what[96];
    for (int n = 0; n < p->num_instructions; n++) {
        executor->position = n;
        z3d_status status = run_instruction(executor, host);
        if (status != Z3D_OK)
            return z3d_error_context(status, "step %lld, %s", step,
                                     z3d_instruction_describe(p, n, what, sizeof what));
    }
    z3d_status status = z3d_executor_fetch(executor);
    return status == Z3D_OK ? Z3D_OK : z3d_error_context(status, "step %lld, at its end", step);
}

void z3d_executor_reset(z3d_executor *executor) {
    for (int b = 0; b < executor->program->num_buffers; b++) release(executor, b);
}
