/* Digests of instructions' outputs, to find the first instruction in which two runs differ. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdlib.h>

#include "zero/execute/executor.h"
#include "zero/program/layout.h"

static z3d_status hash_run(z3d_executor *executor, XXH3_state_t *hash, z3d_run run) {
    char chunk[65536];
    while (run.bytes > 0) {
        int64_t part = run.bytes < (int64_t)sizeof chunk ? run.bytes : (int64_t)sizeof chunk;
        Z3D_TRY(z3d_executor_read(executor, run.space, run.place, chunk, part));
        XXH3_64bits_update(hash, chunk, (size_t)part);
        run.place += part;
        run.bytes -= part;
    }
    return Z3D_OK;
}

/* The bytes from this address in the buffer on. */
static z3d_status hash_bytes(z3d_executor *executor, XXH3_state_t *hash, int buffer,
                             const void *from, int64_t bytes) {
    const z3d_space space = executor->program->buffer[buffer].space;
    const int64_t place = (const char *)from - executor->arena[space];
    return hash_run(executor, hash, (z3d_run){space, place, bytes});
}

/* The destination of a copy between memory spaces, each tensor. */
static z3d_status hash_copied(z3d_executor *executor, XXH3_state_t *hash,
                              const z3d_instruction *i) {
    const int to = i->buffer[z3d_opcode_info_of(i->opcode)->to];
    const int tensors = z3d_instruction_matrix(executor->program, i).tensors;
    for (int tensor = 0; tensor < tensors; tensor++)
        Z3D_TRY(hash_run(executor, hash, z3d_executor_run_of(executor, i, to, tensor)));
    return Z3D_OK;
}

/* The destination of a move, without padding: the own row of reduced gradients and copies, all rows
 * of a gather, the summed columns of an all-reduce. */
static z3d_status hash_moved(z3d_executor *executor, XXH3_state_t *hash, const z3d_instruction *i) {
    const z3d_program *p = executor->program;
    const z3d_opcode_info *info = z3d_opcode_info_of(i->opcode);
    z3d_matrix m = z3d_instruction_matrix(p, i);
    int buffer = i->buffer[info->to];
    int64_t first = i->first, count = z3d_executor_own_elements(executor, i);
    if (i->phase == Z3D_PHASE_WAIT && info->rules == Z3D_CLASS_COPY)
        return hash_copied(executor, hash, i);
    if (i->group < 0 && info->rules == Z3D_CLASS_ALL_GATHER) /* the whole input */
        return hash_bytes(executor, hash, buffer,
                          z3d_executor_address(executor, buffer, 0, m.dtype),
                          z3d_program_output_bytes(p, z3d_instruction_source(p, i)));
    if (info->rules == Z3D_CLASS_ALL_REDUCE) {
        z3d_instruction_columns(p, i, &first, &count);
        return hash_bytes(executor, hash, buffer,
                          z3d_executor_matrix_address(executor, i, buffer, 0, first),
                          z3d_bytes_of(m.dtype, count));
    }
    for (int row = 0; row < m.ranks; row++) {
        if (info->rules != Z3D_CLASS_ALL_GATHER && row != m.own) continue;
        Z3D_TRY(hash_bytes(executor, hash, buffer,
                           z3d_executor_matrix_address(executor, i, buffer, row, first),
                           z3d_bytes_of(m.dtype, count)));
    }
    return Z3D_OK;
}

/* The entry's columns of each tensor that the host has stepped. The rest of a disk's last block is
 * undefined. */
static z3d_status hash_stepped(z3d_executor *executor, XXH3_state_t *hash,
                               const z3d_instruction *i) {
    const z3d_program *p = executor->program;
    const int64_t flat = z3d_state_first(p->layout, i->group, Z3D_STATE_OPTIMIZER) + i->first;
    const bool some = i->rows == Z3D_ROWS_OWN && i->count > 0;
    const int64_t count =
        some ? i->count : z3d_state_elements(p->layout, i->group, Z3D_STATE_OPTIMIZER);
    const int states = z3d_count_kinds(p->layout->group[i->group].state[Z3D_STATE_OPTIMIZER].kinds);
    for (int tensor = -1; tensor < states; tensor++) { /* -1: the parameters */
        const int buffer = i->buffer[tensor < 0 ? Z3D_SLOT_PARAMETERS : Z3D_SLOT_OPTIMIZER];
        const z3d_dtype dtype = tensor < 0 ? p->config.dtype : Z3D_F32;
        const int64_t place =
            z3d_executor_place(executor, i->group, buffer, tensor < 0 ? 0 : tensor,
                               tensor < 0 ? 1 : states, flat, dtype);
        Z3D_TRY(hash_run(executor, hash,
                         (z3d_run){p->buffer[buffer].space, place, z3d_bytes_of(dtype, count)}));
    }
    return Z3D_OK;
}

/* The buffers that a unit or the optimizer has written; not what it leaves undefined. */
static z3d_status hash_written(z3d_executor *executor, XXH3_state_t *hash,
                               const z3d_instruction *i) {
    const z3d_program *p = executor->program;
    if (z3d_opcode_info_of(i->opcode)->rules == Z3D_CLASS_HOST_OPTIMIZER)
        return hash_stepped(executor, hash, i);
    for (int s = 0; s < i->num_slots; s++) {
        z3d_buffer_operand o = z3d_instruction_operand(p, i, s);
        if (o.buffer >= 0 && o.access & Z3D_ACCESS_WRITE)
            Z3D_TRY(hash_bytes(executor, hash, o.buffer,
                               z3d_executor_address(executor, o.buffer, 0, Z3D_U8),
                               p->buffer[o.buffer].bytes));
    }
    return Z3D_OK;
}

static bool writes(const z3d_instruction *i) {
    for (int s = 0; s < i->num_slots; s++)
        if (i->buffer[s] >= 0 && z3d_instruction_access(i, s) & Z3D_ACCESS_WRITE) return true;
    return false;
}

static bool exchanges(const z3d_instruction *i) {
    return z3d_opcode_info_of(i->opcode)->rules == Z3D_CLASS_EXCHANGE;
}

/* Entries that change the step state: the head adds to the loss, step_control sets the results. */
static bool changes_state(const z3d_program *p, const z3d_instruction *i) {
    bool forward = z3d_opcode_info_of(i->opcode)->rules == Z3D_CLASS_FORWARD;
    return exchanges(i) || (forward && z3d_model_is_last(p->model, i->unit));
}

static z3d_status hash_state(z3d_executor *executor, XXH3_state_t *hash, const z3d_instruction *i) {
    const double *sums = executor->sums;
    z3d_step_state state;
    Z3D_TRY(z3d_device_read(executor->device, &state, z3d_executor_state(executor), sizeof state));
    if (exchanges(i)) {
        Z3D_TRY(z3d_executor_read_sums(executor));
        XXH3_64bits_update(hash, sums, Z3D_CONTROL_STOP * sizeof *sums);
        XXH3_64bits_update(hash, sums + Z3D_CONTROL_SQUARES,
                           (size_t)executor->program->layout->num_groups * sizeof *sums);
        XXH3_64bits_update(hash, &state.gradient_factor, sizeof state.gradient_factor);
        XXH3_64bits_update(hash, &state.skip, sizeof state.skip);
    } else {
        XXH3_64bits_update(hash, &state.loss_sum, sizeof state.loss_sum);
        XXH3_64bits_update(hash, &state.valid_targets, sizeof state.valid_targets);
    }
    return Z3D_OK;
}

/* *any: the instruction has written something; else it has no digest. */
static z3d_status digest_of(z3d_executor *executor, bool *any, uint64_t *out) {
    const z3d_program *p = executor->program;
    const z3d_instruction *i = &p->instruction[executor->position];
    bool moves = z3d_opcode_info_of(i->opcode)->moves != Z3D_MOVES_NONE;
    bool written = i->phase != Z3D_PHASE_START && writes(i), state = changes_state(p, i);
    *any = written || state;
    if (!*any) return Z3D_OK;
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    if (written && moves) Z3D_TRY(hash_moved(executor, &hash, i));
    if (written && !moves) Z3D_TRY(hash_written(executor, &hash, i));
    if (state) Z3D_TRY(hash_state(executor, &hash, i));
    *out = XXH3_64bits_digest(&hash);
    return Z3D_OK;
}

static z3d_status write_digest(const z3d_executor *executor, uint64_t digest) {
    char what[96];
    z3d_instruction_describe(executor->program, executor->position, what, sizeof what);
    if (fprintf(executor->digest, "%lld %d %016llx %s\n", (long long)executor->step,
                executor->position, (unsigned long long)digest, what) < 0)
        return Z3D_ERROR(Z3D_ERR_IO, "cannot write the digest file: %m");
    return Z3D_OK;
}

z3d_status z3d_executor_digest(z3d_executor *executor) {
    bool any;
    uint64_t digest = 0;
    Z3D_TRY(digest_of(executor, &any, &digest));
    if (any && executor->digest) Z3D_TRY(write_digest(executor, digest));
    if (!executor->finished) return Z3D_OK;
    return executor->finished(executor->finished_context, executor->program, executor->position,
                              any ? &digest : NULL);
}
