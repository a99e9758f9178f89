#include "src/train/replay/tape.h"
#include "zero/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16, CONFIG_LIMIT = 1 << 22 };

/* The events of a tape. Data may follow an event; their size follows from the event. */
typedef enum kind { KEPT = 1, STEP, RESULT, WRITTEN, STEP_END, END } kind;

typedef struct event {
    int32_t kind, index;
    uint64_t value;
    int64_t number[2];
    double x[2];
} event;

/* A full disk must not stop a run of many ranks: the run continues without recording. */
static void keep_up(z3d_rank_tape *tape, z3d_status written) {
    if (written == Z3D_OK) return;
    z3d_log(Z3D_LOG_WARN, "%s; the recording ends here", z3d_error_message());
    tape->ended = true;
}

static z3d_status move(void *context, void *data, int64_t bytes) {
    z3d_rank_tape *tape = context;
    if (tape->plays) return z3d_block_file_get(tape->file, data, bytes);
    if (!tape->ended) keep_up(tape, z3d_block_file_put(tape->file, data, bytes));
    return Z3D_OK;
}

static void flush(z3d_rank_tape *tape) {
    if (!tape->plays && !tape->ended) keep_up(tape, z3d_block_file_flush(tape->file));
}

/* "a result (3)". If another program wrote the file, data may be in the place of an event. */
static const char *name_event(const event *event, char *out, size_t size) {
    static const char *const names[] = {
        [KEPT] = "the rank's state", [STEP] = "a step",           [RESULT] = "a result",
        [WRITTEN] = "an output",     [STEP_END] = "a step's end", [END] = "the end"};
    if (event->kind < KEPT || event->kind > END) return "other data";
    snprintf(out, size, "%s (%d)", names[event->kind], (int)event->index);
    return out;
}

/* Playing: the next event must be of this kind and have this number. */
static z3d_status expect(z3d_rank_tape *tape, event *event, bool index) {
    const struct event mine = *event;
    char theirs[48], ours[48];
    Z3D_TRY(move(tape, event, sizeof *event));
    if (event->kind == mine.kind && (!index || event->index == mine.index)) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "%s has %s where this program has %s: it was recorded by another program "
                     "(zero3d %s) or configuration",
                     z3d_block_file_path(tape->file), name_event(event, theirs, sizeof theirs),
                     name_event(&mine, ours, sizeof ours), tape->title.version);
}

/* ---- title ---- */

z3d_status z3d_rank_tape_put_title(z3d_rank_tape *tape, const char *config) {
    tape->title.config_bytes = (int64_t)strlen(config);
    Z3D_TRY(move(tape, &tape->title, sizeof tape->title));
    return move(tape, (char *)config, tape->title.config_bytes);
}

/* Checks a text that will be shown to people. */
static bool is_text(char *text, size_t size) {
    text[size - 1] = '\0';
    for (const char *c = text; *c; c++)
        if (*c < ' ' || *c > '~') return false;
    return true;
}

z3d_status z3d_rank_tape_get_title(z3d_rank_tape *tape, char **config) {
    z3d_rank_tape_title *title = &tape->title;
    *config = NULL;
    Z3D_TRY(move(tape, title, sizeof *title));
    bool good = is_text(title->version, sizeof title->version) &&
                is_text(title->device, sizeof title->device) && title->ranks > 0 &&
                title->ranks <= INT32_MAX && title->rank >= 0 && title->rank < title->ranks &&
                title->steps.first > 0 && title->steps.last >= title->steps.first &&
                title->config_bytes > 0 && title->config_bytes <= CONFIG_LIMIT;
    if (!good)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: rank %lld of %lld, steps %lld:%lld: no such recording",
                         z3d_block_file_path(tape->file), (long long)title->rank,
                         (long long)title->ranks, (long long)title->steps.first,
                         (long long)title->steps.last);
    Z3D_TRY(z3d_new((size_t)title->config_bytes + 1, 1, "the recorded configuration", config));
    return move(tape, *config, title->config_bytes);
}

/* ---- data that the rank receives ---- */

/* Playing: an error in the content, which digests do not detect. */
static z3d_status refuse(const z3d_rank_tape *tape, const char *what) {
    return Z3D_ERROR(Z3D_ERR_DATA, "%s: step %lld has %s: no such recording",
                     z3d_block_file_path(tape->file), (long long)tape->step, what);
}

static z3d_status check_state(const z3d_rank_tape *tape, const z3d_engine_state *state) {
    const bool good = state->step == tape->step - 1 && state->optimizer_step >= 0 &&
                      state->optimizer_step <= state->step && state->skipped_in_a_row >= 0 &&
                      state->skipped_in_a_row <= state->step && state->good_steps >= 0 &&
                      state->good_steps <= state->step;
    return good ? Z3D_OK : refuse(tape, "the state of another step");
}

/* The third field has positions in documents: each continues its document or begins one. */
static z3d_status check_positions(const z3d_rank_tape *tape, const int32_t *positions,
                                  int64_t count, int64_t seq) {
    for (int64_t k = 0; k < count; k++)
        if (positions[k] != 0 && (k % seq == 0 || positions[k] != positions[k - 1] + 1))
            return refuse(tape, "positions of no document");
    return Z3D_OK;
}

/* The first field has tokens, the second targets; a negative target is ignored. */
static z3d_status check_tokens(const z3d_rank_tape *tape, int field, const int32_t *tokens,
                               int64_t count) {
    for (int64_t k = 0; k < count; k++)
        if (tokens[k] >= tape->vocab_size || (field == 0 && tokens[k] < 0))
            return refuse(tape, "tokens outside the vocabulary");
    return Z3D_OK;
}

static z3d_status move_kept(z3d_rank_tape *tape) {
    event event = {.kind = KEPT};
    z3d_engine_state state;
    memset(&state, 0, sizeof state);
    Z3D_TRY(expect(tape, &event, true));
    if (!tape->plays) z3d_engine_get_state(tape->engine, &state);
    Z3D_TRY(move(tape, &state, sizeof state));
    if (tape->plays) Z3D_TRY(check_state(tape, &state));
    if (tape->plays) z3d_engine_set_state(tape->engine, &state);
    return z3d_engine_move_kept(tape->engine, tape->plays, move, tape);
}

static z3d_status move_input(z3d_rank_tape *tape, z3d_step_input *input) {
    const z3d_program *p = z3d_engine_program(tape->engine, Z3D_MODE_TRAIN);
    event event = {.kind = STEP,
                   .index = input->stop_requested,
                   .value = (uint64_t)tape->step,
                   .number = {input->sample_base, input->global_targets},
                   .x = {input->learning_rate}};
    Z3D_TRY(expect(tape, &event, false));
    if (event.value != (uint64_t)tape->step || event.number[0] < 0 ||
        event.number[0] > INT64_MAX / 2 || event.number[1] < 0)
        return refuse(tape, "the data of another step");
    input->stop_requested = event.index != 0;
    input->sample_base = event.number[0];
    input->global_targets = event.number[1];
    input->learning_rate = (float)event.x[0];
    for (int m = 0; m < p->config.accumulation; m++)
        for (int f = 0; f < p->model->num_fields; f++) {
            int32_t *tokens = (int32_t *)(uintptr_t)input->micro[m].field[f];
            const int64_t bytes = z3d_program_field_bytes(p, f);
            Z3D_TRY(move(tape, tokens, bytes));
            const int64_t count = bytes / (int64_t)sizeof *tokens;
            if (!tape->plays) continue;
            if (f < 2)
                Z3D_TRY(check_tokens(tape, f, tokens, count));
            else
                Z3D_TRY(check_positions(tape, tokens, count, p->model->tokens[Z3D_MODE_TRAIN]));
        }
    return Z3D_OK;
}

/* A group as a number in a recording: a bit for each of these sets of axes that it contains, and
 * the remaining axes. */
static int32_t number_of(z3d_axes axes) {
    static const z3d_axes whole[] = {Z3D_ROLE_PARTS, Z3D_ROLE_SAMPLES, Z3D_ROLE_STAGES};
    int32_t number = 0;
    for (int bit = 0; bit < 3; bit++) {
        if ((axes & whole[bit]) != whole[bit]) continue;
        number |= 1 << bit;
        axes &= (z3d_axes)~whole[bit];
    }
    return number | (int32_t)axes << 3;
}

/* Records the result of a collective, or replaces it by the recorded one. */
static z3d_status move_result(void *context, z3d_group *group, const z3d_collective *call) {
    z3d_rank_tape *tape = context;
    z3d_device *device = z3d_engine_device(tape->engine);
    char piece[PIECE];
    void *at;
    int64_t bytes;
    if (!z3d_collective_result(group, call, 0, &at, &bytes)) return Z3D_OK;
    event event = {.kind = RESULT,
                   .index = (int32_t)call->kind | (int32_t)call->dtype << 8 |
                            number_of(z3d_group_axes(group)) << 16};
    event.number[0] = call->count;
    Z3D_TRY(expect(tape, &event, true));
    if (event.number[0] != call->count)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s has a result of %lld elements, this program of %lld",
                         z3d_block_file_path(tape->file), (long long)event.number[0],
                         (long long)call->count);
    for (int run = 0; z3d_collective_result(group, call, run, &at, &bytes); run++)
        for (int64_t done = 0; done < bytes; done += PIECE) {
            const int64_t part = bytes - done < PIECE ? bytes - done : PIECE;
            if (!tape->plays) Z3D_TRY(z3d_device_read(device, piece, (char *)at + done, part));
            Z3D_TRY(move(tape, piece, part));
            if (tape->plays) Z3D_TRY(z3d_device_write(device, (char *)at + done, piece, part));
        }
    return Z3D_OK;
}

/* ---- outputs ---- */

static z3d_status compare_written(z3d_rank_tape *tape, int index, uint64_t digest) {
    event event = {.kind = WRITTEN, .index = index, .value = digest};
    Z3D_TRY(expect(tape, &event, true));
    tape->entries++;
    if (event.value == digest) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_NUMERIC,
                     "the output of entry %d differs from the run's (digest %016llx, recorded "
                     "%016llx); recorded on %s, replayed on %s",
                     index, (unsigned long long)digest, (unsigned long long)event.value,
                     tape->title.device, z3d_device_description(z3d_engine_device(tape->engine)));
}

static z3d_status finished(void *context, const z3d_program *program, int index,
                           const uint64_t *digest) {
    z3d_rank_tape *tape = context;
    if (digest) Z3D_TRY(compare_written(tape, index, *digest));
    return tape->finished ? tape->finished(tape->context, program, index) : Z3D_OK;
}

/* Two NaNs are equal too. */
static bool same(double a, double b) {
    uint64_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x == y;
}

static z3d_status compare_end(z3d_rank_tape *tape, const z3d_step_result *result) {
    event event = {.kind = STEP_END,
                   .index = result->skipped,
                   .number = {result->step},
                   .x = {result->loss, result->grad_norm}};
    Z3D_TRY(expect(tape, &event, false));
    if (event.index == result->skipped && event.number[0] == result->step &&
        same(event.x[0], result->loss) && same(event.x[1], result->grad_norm))
        return Z3D_OK;
    return Z3D_ERROR(
        Z3D_ERR_NUMERIC, "step %lld: loss %.17g and norm %.17g, but the run had %.17g and %.17g",
        (long long)result->step, result->loss, result->grad_norm, event.x[0], event.x[1]);
}

/* ---- a step ---- */

/* On: the engine and its groups call the tape's functions. */
static void connect(z3d_rank_tape *tape, bool on) {
    z3d_engine_set_finished(tape->engine, on ? finished : NULL, tape);
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        if (tape->group[axes])
            z3d_group_set_result_observer(tape->group[axes], on ? move_result : NULL, tape);
}

z3d_status z3d_rank_tape_step(z3d_rank_tape *tape, z3d_step_input *input, z3d_step_result *result) {
    tape->step = tape->step ? tape->step + 1 : tape->title.steps.first;
    if (tape->step == tape->title.steps.first) Z3D_TRY(move_kept(tape));
    Z3D_TRY(move_input(tape, input));
    connect(tape, true);
    z3d_status status = z3d_engine_train_step(tape->engine, input, result);
    connect(tape, false);
    if (status != Z3D_OK) { /* the steps before it can be played */
        const z3d_kept_error why = z3d_error_keep(status);
        flush(tape);
        return z3d_error_restore(&why);
    }
    Z3D_TRY(compare_end(tape, result));
    event end = {.kind = END};
    if (tape->step < tape->title.steps.last) {
        flush(tape);
        return Z3D_OK;
    }
    Z3D_TRY(expect(tape, &end, true));
    if (tape->plays) return z3d_block_file_at_end(tape->file);
    flush(tape);
    return Z3D_OK;
}
