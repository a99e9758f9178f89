/* What an executor writes about its run: a digest of every instruction's output, by which two runs
 * are compared down to the first instruction that differs, and a timeline in Chrome's trace format.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdlib.h>

#include "zero/execute/executor.h"

/* Slots that an instruction writes whole, as a mask; its digest is over the memory in them. */
static unsigned written_slots(const z3d_instruction *i) {
    const z3d_opcode_info *info = z3d_opcode_info_of(i->opcode);
    unsigned left_out = (i->need_output ? 0 : 1u << Z3D_SLOT_OUTPUT);
    if (!i->keep) left_out |= 1u << Z3D_SLOT_SAVED;
    return info->writes & ~left_out;
}

static z3d_status hash_bytes(z3d_executor *executor, XXH3_state_t *hash, const void *from,
                             int64_t bytes) {
    char chunk[65536];
    while (bytes > 0) {
        int64_t part = bytes < (int64_t)sizeof chunk ? bytes : (int64_t)sizeof chunk;
        Z3D_TRY(z3d_device_read(executor->device, chunk, from, part));
        XXH3_64bits_update(hash, chunk, (size_t)part);
        from = (const char *)from + part;
        bytes -= part;
    }
    return Z3D_OK;
}

/* A finished collective's result: the columns it moved, of this rank's row (reduced) or of all rows
 * (gathered). */
static z3d_status hash_columns(z3d_executor *executor, XXH3_state_t *hash,
                               const z3d_instruction *i) {
    const z3d_program *p = executor->program;
    const z3d_layout *layout = p->layout;
    bool reduced = z3d_instruction_kind(i) == Z3D_COLLECTIVE_REDUCE_SCATTER;
    z3d_dtype dtype = z3d_instruction_dtype(p, i);
    int buffer = i->buffer[z3d_opcode_info_of(i->opcode)->slot];
    for (int row = 0; row < layout->data_size; row++) {
        if (reduced && row != layout->data_index) continue;
        int64_t first = row * layout->group[i->group].shard + i->first;
        Z3D_TRY(hash_bytes(executor, hash, z3d_executor_address(executor, buffer, first, dtype),
                           i->count * (int64_t)z3d_dtype_size(dtype)));
    }
    return Z3D_OK;
}

/* Of the own row, what was summed over the tensor group. */
static z3d_status hash_sum(z3d_executor *executor, XXH3_state_t *hash, const z3d_instruction *i) {
    const z3d_program *p = executor->program;
    int64_t first, count;
    z3d_layout_replicated_part(p->layout, i->group, &first, &count);
    return hash_bytes(executor, hash,
                      z3d_executor_kept_address(executor, i->group, Z3D_PART_GRADIENTS, first),
                      count * (int64_t)z3d_dtype_size(p->config.grad_dtype));
}

/* The leg that makes a unit's input whole again; a part's padding and what another leg will bring
 * are nobody's output. */
static bool completes_input(const z3d_program *p, const z3d_instruction *i) {
    if (z3d_opcode_info_of(i->opcode)->moves != Z3D_MOVES_ACTIVATIONS) return false;
    bool to_host = p->buffer[i->buffer[Z3D_SLOT_OUTPUT]].space == Z3D_SPACE_HOST;
    return !to_host && (z3d_is_collective(i) || !p->config.partition_activations);
}

static z3d_status hash_input(z3d_executor *executor, XXH3_state_t *hash, const z3d_instruction *i) {
    const z3d_program *p = executor->program;
    return hash_bytes(executor, hash,
                      z3d_executor_address(executor, i->buffer[Z3D_SLOT_OUTPUT], 0, Z3D_U8),
                      z3d_program_output_bytes(p, z3d_instruction_source(p, i)));
}

/* A checkpoint that is a copy: this rank's part of the input. */
static bool copies_input(const z3d_program *p, const z3d_instruction *i) {
    return z3d_opcode_info_of(i->opcode)->rules == Z3D_CLASS_COPY && i->phase != Z3D_PHASE_START &&
           !completes_input(p, i) && i->buffer[Z3D_SLOT_INPUT] != i->buffer[Z3D_SLOT_OUTPUT];
}

static z3d_status hash_copy(z3d_executor *executor, XXH3_state_t *hash, const z3d_instruction *i) {
    int64_t first, count;
    z3d_executor_checkpoint_part(executor->program, i, &first, &count);
    return hash_bytes(executor, hash,
                      z3d_executor_address(executor, i->buffer[Z3D_SLOT_OUTPUT], 0, Z3D_U8),
                      count * (int64_t)z3d_dtype_size(executor->program->config.dtype));
}

static bool exchanges(const z3d_instruction *i) {
    return z3d_opcode_info_of(i->opcode)->rules == Z3D_CLASS_EXCHANGE;
}

/* What is in the step state: the head's loss so far, what the exchange makes of all ranks' sums. */
static bool changes_state(const z3d_program *p, const z3d_instruction *i) {
    bool gives_output = z3d_opcode_info_of(i->opcode)->writes >> Z3D_SLOT_OUTPUT & 1;
    return exchanges(i) || (gives_output && z3d_model_is_last(p->model, i->unit));
}

static z3d_status hash_state(z3d_executor *executor, XXH3_state_t *hash, const z3d_instruction *i) {
    const double *sums = executor->sums;
    z3d_step_state state;
    Z3D_TRY(z3d_device_read(executor->device, &state,
                            z3d_executor_address(executor, Z3D_BUFFER_STATE, 0, Z3D_U8),
                            sizeof state));
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

z3d_status z3d_executor_digest(z3d_executor *executor, int index, int64_t step) {
    const z3d_program *p = executor->program;
    const z3d_instruction *i = &p->instruction[index];
    unsigned slots = written_slots(i);
    bool over = i->phase == Z3D_PHASE_WAIT;
    bool sum = over && z3d_opcode_info_of(i->opcode)->rules == Z3D_CLASS_ALL_REDUCE;
    bool columns = over && i->group >= 0 && !sum, input = over && completes_input(p, i);
    bool copy = copies_input(p, i), state = changes_state(p, i);
    if (!slots && !columns && !input && !sum && !copy && !state) return Z3D_OK;
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    if (columns) Z3D_TRY(hash_columns(executor, &hash, i));
    if (input) Z3D_TRY(hash_input(executor, &hash, i));
    if (sum) Z3D_TRY(hash_sum(executor, &hash, i));
    if (copy) Z3D_TRY(hash_copy(executor, &hash, i));
    if (state) Z3D_TRY(hash_state(executor, &hash, i));
    for (int s = 0; s < Z3D_SLOT_COUNT; s++)
        if (slots >> s & 1 && i->buffer[s] >= 0)
            Z3D_TRY(hash_bytes(executor, &hash,
                               z3d_executor_address(executor, i->buffer[s], 0, Z3D_U8),
                               p->buffer[i->buffer[s]].bytes));
    char what[96];
    z3d_instruction_describe(p, index, what, sizeof what);
    if (fprintf(executor->digest, "%lld %d %016llx %s\n", (long long)step, index,
                (unsigned long long)XXH3_64bits_digest(&hash), what) < 0)
        return Z3D_ERROR(Z3D_ERR_IO, "cannot write the digest file: %m");
    return Z3D_OK;
}

void z3d_executor_trace(z3d_executor *executor, int index, double begin, double end) {
    char what[96];
    const z3d_instruction *i = &executor->program->instruction[index];
    z3d_string name = {0}; /* a user's units have any name */
    z3d_string_append_json(&name,
                           z3d_instruction_describe(executor->program, index, what, sizeof what));
    fprintf(executor->trace,
            "{\"name\":%s,\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,"
            "\"tid\":\"%s\"},\n",
            name.failed ? "null" : name.text, z3d_opcode_name(i->opcode), begin * 1e6,
            (end - begin) * 1e6, executor->program->mesh.rank,
            i->phase == Z3D_PHASE_WAIT ? "waits" : "compute");
    z3d_string_free(&name);
}
