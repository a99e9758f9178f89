/* z3d_replay_rank: runs one rank of a recording alone. */
#include <stdlib.h>
#include <string.h>

#include "src/train/replay/look.h"
#include "src/train/trainer.h"

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
    replay->stop = z3d_find_instruction(program, request->until);
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
    Z3D_TRY(z3d_look_at_instruction(replay->trainer.engine, index, text));
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
