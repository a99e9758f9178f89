/* Transfers between pipeline stages: inputs of units, their gradients, and the gradients of groups
 * that two stages hold. They run beside compute on a lane of their own: first in, first out, in one
 * order over all ranks (struct transfer). So no transport needs to buffer a send. With tensor
 * parallelism each tensor rank sends its part, and the receiving stage gathers the parts (Narayanan
 * et al. 2104.04473, section 4.1). */
#include <stdlib.h>

#include "zero/build/builder.h"

/* ---- the list of transfers ---- */

/* Adds the transfer of task number `task` between chunk `chunk` and the chunk before it, if data
 * crosses stages there. */
static void add_transfer(struct builder *b, int task, int chunk, bool gradient, bool send) {
    const z3d_program *p = b->program;
    const int *stage = p->layout->stage_of_chunk;
    if (chunk == 0 || chunk == p->layout->num_chunks || stage[chunk] == stage[chunk - 1]) return;
    int micro = b->task[task].micro, unit = p->layout->first_unit[chunk];
    if (z3d_model_input(p->model, unit, p->mode) < 0) return;
    if (gradient && !z3d_layout_wants_input_gradient(p->layout, unit)) return;
    const z3d_timetable *t = b->timetable;
    double when = gradient ? t->gradient_end[chunk * t->schedule->micros + micro]
                           : t->forward_end[(chunk - 1) * t->schedule->micros + micro];
    b->transfer[b->num_transfers++] = (struct transfer){.when = when,
                                                        .unit = unit,
                                                        .micro = micro,
                                                        .task = task,
                                                        .gradient = gradient,
                                                        .send = send};
}

/* Sender and receiver sort alike. At equal times inputs precede gradients, and a chunk's receive
 * precedes its send, so that it can start one task early. */
static int in_order(const void *a, const void *b) {
    const struct transfer *x = a, *y = b;
    if (x->when != y->when) return x->when < y->when ? -1 : 1;
    if (x->gradient != y->gradient) return x->gradient - y->gradient;
    if (x->unit != y->unit) return x->gradient ? y->unit - x->unit : x->unit - y->unit;
    return x->micro - y->micro;
}

z3d_status z3d_builder_list_transfers(struct builder *b) {
    if (b->program->layout->stages == 1) return Z3D_OK;
    z3d_status status =
        z3d_new(2 * (size_t)b->num_tasks + 1, sizeof *b->transfer, "transfers", &b->transfer);
    for (int task = 0; task < b->num_tasks && status == Z3D_OK; task++) {
        z3d_task t = b->task[task];
        if (t.pass == Z3D_PASS_BACKWARD_WEIGHT) continue;
        bool back = t.pass != Z3D_PASS_FORWARD;
        add_transfer(b, task, t.chunk, back, back);
        add_transfer(b, task, t.chunk + 1, back, !back);
    }
    if (status == Z3D_OK)
        status = z3d_new((size_t)b->num_tasks, sizeof *b->of_task, "transfers", &b->of_task);
    if (status != Z3D_OK) return status;
    qsort(b->transfer, (size_t)b->num_transfers, sizeof *b->transfer, in_order);
    for (int task = 0; task < b->num_tasks; task++) b->of_task[task] = (struct crossing){-1, -1};
    for (int n = 0; n < b->num_transfers; n++) {
        struct crossing *of = &b->of_task[b->transfer[n].task];
        *(b->transfer[n].send ? &of->send : &of->receive) = n;
    }
    return Z3D_OK;
}

/* ---- entries ---- */

/* OWN: tensor ranks have equal copies, so each sends a part. ALL: each sends all that it has. */
static z3d_rows rows_of(const z3d_program *p) {
    const bool equal = p->layout->tensor_size > 1 && !z3d_model_splits_rows(p->model, p->mode);
    return equal ? Z3D_ROWS_OWN : Z3D_ROWS_ALL;
}

static z3d_matrix matrix_of(const z3d_program *p, const struct transfer *t) {
    const z3d_instruction like = {.opcode = Z3D_OP_RECV_INPUT, .unit = t->unit, .rows = rows_of(p)};
    return z3d_instruction_matrix(p, &like);
}

static z3d_instruction *emit(struct builder *b, z3d_opcode opcode, z3d_phase phase, int *ticket,
                             const struct transfer *t) {
    const z3d_program *p = b->program;
    const struct subject subject = {t->unit, t->micro, -1, rows_of(p), 0, matrix_of(p, t).columns};
    return z3d_builder_emit_subject(b, opcode, phase, ticket, &subject);
}

/* The buffer that is sent or received: the output of an earlier unit, or its gradient. */
static int *crossing_buffer(const struct builder *b, const struct transfer *t) {
    int source = z3d_model_input(b->program->model, t->unit, b->program->mode);
    struct unit_state *state = z3d_builder_state(b, source, t->micro);
    return t->gradient ? &state->output_gradient : &state->output;
}

static void emit_transfer(struct builder *b, z3d_phase phase, struct transfer *t) {
    const z3d_layout *layout = b->program->layout;
    z3d_opcode send = t->gradient ? Z3D_OP_SEND_INPUT_GRADIENT : Z3D_OP_SEND_INPUT;
    z3d_opcode receive = t->gradient ? Z3D_OP_RECV_INPUT_GRADIENT : Z3D_OP_RECV_INPUT;
    z3d_instruction *i = emit(b, t->send ? send : receive, phase, &t->ticket, t);
    /* One end has the unit, the other the chunk before it. */
    const int *stage = &layout->stage_of_chunk[layout->chunk_of_unit[t->unit]];
    i->peer = stage[0] == layout->stage ? stage[-1] : stage[0];
    i->buffer[t->send ? Z3D_SLOT_INPUT : Z3D_SLOT_OUTPUT] = t->buffer;
}

static void start(struct builder *b, struct transfer *t) {
    const z3d_program *p = b->program;
    if (!t->send) {
        int source = z3d_model_input(p->model, t->unit, p->mode);
        const z3d_matrix m = matrix_of(p, t);
        *crossing_buffer(b, t) = z3d_builder_buffer(
            b, Z3D_CATEGORY_ACTIVATIONS, z3d_bytes_of(m.dtype, m.ranks * m.columns),
            t->gradient ? "received gradient" : "received", p->model->unit[source].name, t->micro);
    }
    t->buffer = *crossing_buffer(b, t);
    emit_transfer(b, Z3D_PHASE_START, t);
}

static void finish_receive(struct builder *b, struct transfer *t) {
    z3d_opcode gather = t->gradient ? Z3D_OP_GATHER_INPUT_GRADIENT : Z3D_OP_GATHER_INPUT;
    int ticket = -1;
    emit_transfer(b, Z3D_PHASE_WAIT, t);
    if (rows_of(b->program) == Z3D_ROWS_ALL) return;
    for (int phase = Z3D_PHASE_START; phase <= Z3D_PHASE_WAIT; phase++) {
        z3d_instruction *i = emit(b, gather, (z3d_phase)phase, &ticket, t);
        i->buffer[Z3D_SLOT_INPUT] = i->buffer[Z3D_SLOT_OUTPUT] = t->buffer;
    }
}

/* ---- when ---- */

static void start_through(struct builder *b, int last) {
    while (b->started <= last) start(b, &b->transfer[b->started++]);
}

void z3d_builder_finish_sends(struct builder *b) {
    for (; b->finished < b->started; b->finished++)
        if (b->transfer[b->finished].send)
            emit_transfer(b, Z3D_PHASE_WAIT, &b->transfer[b->finished]);
}

/* Starts transfers, in order, up to the one that the task needs. With overlap it also starts those
 * up to the next task's, as long as they are receives. */
void z3d_builder_receive(struct builder *b, int task) {
    if (!b->of_task) return;
    bool ahead = b->program->config.overlap && task + 1 < b->num_tasks;
    int last = b->of_task[task].receive, next = ahead ? b->of_task[task + 1].receive : -1;
    start_through(b, last);
    while (b->started <= next && !b->transfer[b->started].send) start_through(b, b->started);
    if (last >= 0) finish_receive(b, &b->transfer[last]);
}

/* With overlap a send's wait comes after the next task. */
void z3d_builder_send(struct builder *b, int task) {
    if (!b->of_task) return;
    z3d_builder_finish_sends(b);
    start_through(b, b->of_task[task].send);
    if (!b->program->config.overlap) z3d_builder_finish_sends(b);
}

/* ---- groups that two stages hold ---- */

/* The lower stage sends first, the other one receives first: lanes are first in, first out. */
int z3d_builder_exchange(struct builder *b, int group) {
    const z3d_program *p = b->program;
    const int twin = p->layout->group[group].twin;
    const struct subject row = {-1, -1, group, Z3D_ROWS_OWN, 0, p->layout->group[group].shard};
    int64_t bytes = z3d_bytes_of(p->config.grad_dtype, row.count);
    int kept = z3d_program_group_buffer(p, group, Z3D_STATE_GRADIENT), ticket[2] = {-1, -1};
    int other = z3d_builder_buffer(b, Z3D_CATEGORY_TEMPORARY, bytes, "gradients of the other stage",
                                   p->model->group[group].name, -1);
    if (b->status != Z3D_OK) return other;
    b->program->buffer[other].rows = Z3D_ROWS_OWN;
    bool sends_first = p->layout->stage < twin;
    for (int phase = Z3D_PHASE_START; phase <= Z3D_PHASE_WAIT; phase++) {
        for (int n = 0; n < 2; n++) {
            bool send = (n == 0) == sends_first;
            z3d_opcode opcode = send ? Z3D_OP_SEND_GRADS : Z3D_OP_RECV_GRADS;
            z3d_instruction *i =
                z3d_builder_emit_subject(b, opcode, (z3d_phase)phase, &ticket[n], &row);
            i->peer = twin;
            i->buffer[send ? Z3D_SLOT_SHARD : Z3D_SLOT_GRADIENTS] = send ? kept : other;
        }
    }
    return other;
}
