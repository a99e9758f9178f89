/* z3d_replay_rank: runs one rank of a recording alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/train/trainer.h"
#include "zero/program.h"

/* ---- what is in an instruction's buffers ---- */

static bool begins_with(const char *text, const char *name) {
    const size_t length = strlen(name);
    return strncmp(text, name, length) == 0 && (text[length] == '\0' || text[length] == ' ');
}

/* Squeezes runs of spaces to one space and removes those at the ends, as in descriptions;
 * --print-program writes its columns with more spaces. False: longer than `size`. */
static bool squeeze(const char *name, char *out, size_t size) {
    size_t length = 0;
    for (; *name; name++) {
        if (*name == ' ' && (length == 0 || name[1] == ' ' || name[1] == '\0')) continue;
        if (length + 1 == size) return false;
        out[length++] = *name;
    }
    out[length] = '\0';
    return true;
}

/* The first instruction that `words` name: by its number, its description, or the first words of
 * its description. "start" and "wait" may be left out: then the wait is meant. A run of spaces
 * counts as one. -1: no such instruction. */
static int find_instruction(const z3d_program *program, const char *words) {
    int64_t number;
    char name[96];
    if (!squeeze(words, name, sizeof name)) return -1;
    if (strspn(name, "0123456789") == strlen(name))
        return z3d_parse_int(name, &number) == Z3D_OK && number < program->num_instructions
                   ? (int)number
                   : -1;
    for (int n = 0; n < program->num_instructions; n++) {
        char what[96];
        z3d_instruction_describe(program, n, what, sizeof what);
        if (begins_with(what, name)) return n;
        if (strncmp(what, "wait ", 5) == 0 && begins_with(what + 5, name)) return n;
    }
    return -1;
}

typedef struct statistics {
    double smallest, largest, sum, squares;
    int64_t numbers, others; /* others: infinities and NaNs */
} statistics;

static void add(statistics *s, double x) {
    if (!isfinite(x)) {
        s->others++;
        return;
    }
    if (s->numbers == 0 || x < s->smallest) s->smallest = x;
    if (s->numbers == 0 || x > s->largest) s->largest = x;
    s->sum += x;
    s->squares += x * x;
    s->numbers++;
}

static z3d_status measure(const z3d_engine *engine, int buffer, int64_t bytes, z3d_dtype dtype,
                          statistics *out) {
    enum { PIECE = 1 << 14 };
    char piece[PIECE];
    float value[PIECE];
    *out = (statistics){0};
    for (int64_t done = 0; done < bytes; done += PIECE) {
        const int64_t part = bytes - done < PIECE ? bytes - done : PIECE;
        Z3D_TRY(z3d_engine_read_buffer(engine, buffer, done, piece, part));
        const int64_t count = z3d_values_in(dtype, part);
        z3d_codec_of(dtype)->decode(value, piece, count);
        for (int64_t k = 0; k < count; k++) add(out, (double)value[k]);
    }
    return Z3D_OK;
}

/* The type of a slot; false: it has pieces of several types. */
static bool type_of(const z3d_program *program, int slot, z3d_dtype *out) {
    const z3d_slot role = z3d_slot_role(slot);
    *out = program->config.dtype;
    if (role == Z3D_SLOT_OPTIMIZER) *out = Z3D_F32;
    if (role == Z3D_SLOT_GRADIENTS || role == Z3D_SLOT_SHARD) *out = program->config.grad_dtype;
    return slot != Z3D_SLOT_SAVED && slot != Z3D_SLOT_WORKSPACE && slot != Z3D_SLOT_DEFERRED &&
           slot != Z3D_SLOT_CACHE;
}

static const char *access_name(unsigned access) {
    return access & Z3D_ACCESS_CLOBBER                         ? "used"
           : (access & Z3D_ACCESS_UPDATE) == Z3D_ACCESS_UPDATE ? "updated"
           : access & Z3D_ACCESS_WRITE                         ? "written"
                                                               : "read";
}

/* Appends a line for each buffer of the instruction: smallest and largest value, mean, root of the
 * mean square, number of values that are not finite. Call it after the instruction, while its step
 * runs. */
static z3d_status look_at(const z3d_engine *engine, int index, z3d_string *out) {
    const z3d_program *p = z3d_engine_program(engine, Z3D_MODE_TRAIN);
    const z3d_instruction *i = &p->instruction[index];
    char bytes[32];
    z3d_string_append(out, "  %-28s %-8s %-11s %-5s %12s %12s %12s %12s %s\n", "buffer", "", "size",
                      "type", "min", "max", "mean", "rms", "inf or NaN");
    for (int slot = 0; slot < i->num_slots; slot++) {
        const int buffer = i->buffer[slot];
        statistics s;
        z3d_dtype dtype;
        if (buffer < 0) continue;
        const z3d_buffer *b = &p->buffer[buffer];
        z3d_string_append(out, "  %-28s %-8s %-11s", z3d_buffer_name(b).text,
                          access_name(z3d_instruction_access(i, slot)),
                          z3d_format_bytes(b->bytes, bytes, sizeof bytes));
        const bool under_way =
            i->phase == Z3D_PHASE_START && z3d_instruction_access(i, slot) & Z3D_ACCESS_WRITE;
        const bool one_type = type_of(p, slot, &dtype);
        if (under_way || !one_type) {
            z3d_string_append(out, under_way ? " under way\n" : " several\n");
            continue;
        }
        Z3D_TRY(measure(engine, buffer, b->bytes, dtype, &s));
        const double count = s.numbers > 0 ? (double)s.numbers : NAN;
        z3d_string_append(out, " %-5s %12.5g %12.5g %12.5g %12.5g %lld\n", z3d_dtype_name(dtype),
                          s.smallest, s.largest, s.sum / count, sqrt(s.squares / count),
                          (long long)s.others);
    }
    return Z3D_OK;
}

/* ---- the replay ---- */

typedef struct replay {
    const z3d_replay_request *request;
    z3d_replay_result *result;
    z3d_trainer trainer;
    z3d_rank_tape tape;
    int64_t stop_step;
    int stop; /* the instruction to stop after; -1: none */
    bool stopped;
} replay;

/* Allows only keys on which no result depends: folders, files and the number of threads. */
static z3d_status check_assignment(const char *assignment) {
    static const char *const allowed[] = {"zero_optimization.offload_optimizer.nvme_path",
                                          "zero_optimization.offload_param.nvme_path",
                                          "activation_checkpointing.nvme_path",
                                          "parallel.pipeline_schedule_file", "training.threads"};
    const size_t length = strcspn(assignment, "=");
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if (strlen(allowed[i]) == length && strncmp(allowed[i], assignment, length) == 0)
            return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_USAGE,
                     "%.*s cannot be changed: a replay has the recorded configuration; only the "
                     "three keys nvme_path, parallel.pipeline_schedule_file and training.threads "
                     "may differ",
                     (int)(length < 80 ? length : 80), assignment);
}

static z3d_status read_config(replay *replay) {
    const z3d_replay_request *request = replay->request;
    char *text;
    z3d_status status = z3d_rank_tape_get_title(&replay->tape, &text);
    if (status == Z3D_OK) status = z3d_config_create(&replay->trainer.config);
    if (status == Z3D_OK)
        status = z3d_config_read_text(replay->trainer.config, text, strlen(text),
                                      "the recorded configuration");
    for (int i = 0; i < request->count && status == Z3D_OK; i++) {
        status = check_assignment(request->assignments[i]);
        if (status == Z3D_OK)
            status = z3d_config_override(replay->trainer.config, request->assignments[i]);
    }
    free(text);
    return status;
}

static z3d_status find_stop(replay *replay) {
    const z3d_replay_request *request = replay->request;
    const z3d_rank_tape_title *title = &replay->tape.title;
    replay->stop = -1;
    replay->stop_step = request->step ? request->step : title->steps.first;
    if (replay->stop_step < title->steps.first || replay->stop_step > title->steps.last)
        return Z3D_ERROR(Z3D_ERR_USAGE, "step %lld is not recorded; steps %lld to %lld are",
                         (long long)request->step, (long long)title->steps.first,
                         (long long)title->steps.last);
    if (!request->until) return Z3D_OK;
    const z3d_program *program = z3d_engine_program(replay->trainer.engine, Z3D_MODE_TRAIN);
    replay->stop = find_instruction(program, request->until);
    if (replay->stop >= 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_USAGE,
                     "no instruction \"%s\" in rank %lld's step; `zero3d plan CONFIG --ranks %lld "
                     "--rank %lld --print-program` lists them",
                     request->until, (long long)title->rank, (long long)title->ranks,
                     (long long)title->rank);
}

static z3d_status finished(void *context, const z3d_program *program, int index) {
    replay *replay = context;
    z3d_string *text = &replay->result->text;
    char what[96];
    if (index != replay->stop || replay->tape.step != replay->stop_step) return Z3D_OK;
    z3d_string_append(text, "step %lld, entry %d: %s\n", (long long)replay->stop_step, index,
                      z3d_instruction_describe(program, index, what, sizeof what));
    Z3D_TRY(look_at(replay->trainer.engine, index, text));
    replay->stopped = true;
    return Z3D_AGAIN;
}

/* If the recording ends early because the run was stopped, tells how many complete steps were
 * equal. */
static z3d_status say_end(const replay *replay, z3d_status status) {
    const long long whole = (long long)replay->result->steps;
    if (!z3d_block_file_ended(replay->tape.file)) return status;
    return z3d_error_context(status,
                             "the recording ends in step %lld; %lld whole step%s before it "
                             "%s as recorded",
                             (long long)replay->tape.step, whole, whole == 1 ? "" : "s",
                             whole == 1 ? "is" : "are");
}

static z3d_status run_steps(replay *replay) {
    z3d_rank_tape *tape = &replay->tape;
    z3d_replay_result *result = replay->result;
    for (int64_t step = tape->title.steps.first; step <= tape->title.steps.last; step++) {
        z3d_step_input input = {.micro = replay->trainer.micro};
        z3d_step_result out;
        z3d_status status = z3d_rank_tape_step(tape, &input, &out);
        result->entries = tape->entries;
        if (status == Z3D_AGAIN && replay->stopped) return Z3D_OK;
        if (status != Z3D_OK) return say_end(replay, status);
        result->steps++;
        result->skipped = out.skipped;
        result->loss = out.loss;
        result->grad_norm = out.grad_norm;
    }
    return Z3D_OK;
}

static z3d_status run(replay *replay) {
    z3d_rank_tape *tape = &replay->tape;
    const z3d_rank_tape_title *title = &tape->title;
    tape->plays = true;
    Z3D_TRY(z3d_block_file_open(replay->request->path, &tape->file));
    Z3D_TRY(read_config(replay));
    replay->result->ranks = title->ranks;
    replay->result->rank = title->rank;
    replay->result->first = title->steps.first;
    replay->result->last = title->steps.last;
    Z3D_TRY(z3d_trainer_setup_replay(&replay->trainer, (int)title->ranks, (int)title->rank));
    tape->engine = replay->trainer.engine;
    tape->group = replay->trainer.group;
    tape->vocab_size = replay->trainer.config->model_vocab_size;
    tape->finished = finished;
    tape->context = replay;
    Z3D_TRY(find_stop(replay));
    return run_steps(replay);
}

z3d_status z3d_replay_rank(const z3d_replay_request *request, z3d_replay_result *result) {
    replay replay = {.request = request, .result = result};
    memset(result, 0, sizeof *result);
    const z3d_kept_error end = z3d_error_keep(run(&replay));
    z3d_block_file_close(replay.tape.file);
    z3d_trainer_destroy(&replay.trainer);
    z3d_config_destroy(replay.trainer.config);
    return z3d_error_restore(&end);
}
