/* src/train: the trainer. Configuration -> mesh -> model -> engine -> run; data, learning-rate
 * schedule, metrics, generation, evaluation. data/ reads token files, text/ makes them, report/
 * reports what a run does, trace/ reads its timelines back. It may call every floor below it. Start
 * reading at trainer.c, then data.h. */
#ifndef ZERO3D_TRAIN_TRAIN_H
#define ZERO3D_TRAIN_TRAIN_H

#include "parallel/parallel.h"
#include "src/base/base.h"
#include "src/base/config.h"

/* Everything that `zero3d train` does after it has read the configuration: resolves it, checks data
 * and run folder, builds, trains, evaluates, generates, writes the run folder. Collective over the
 * world. The error is agreed: the same status on every rank. */
z3d_status z3d_train(z3d_world *world, z3d_config *config);
typedef struct z3d_train_options {
    /* A resumed run keeps its learning-rate schedule's end if training.steps is beyond it. */
    bool extend;
    const char *command; /* the command without --extend, for messages that say how to continue;
                            NULL: unknown */
    const char *program; /* the program as it is called, for such messages; NULL: zero3d */
    bool verbose;        /* the start says why, the end has all tables */
    /* Steps first .. last of one rank are recorded with all that comes into it, as
     * RUN/replay-rankR.z3d, for z3d_replay_rank. first 0: nothing is. */
    int64_t record_rank, record_first, record_last;
} z3d_train_options;

/* The same. *unfinished: the run was asked to stop (a signal, training.time_limit) before its last
 * step and saved a checkpoint, so starting it again resumes from there. */
z3d_status z3d_train_part(z3d_world *world, z3d_config *config, const z3d_train_options *options,
                          bool *unfinished);

typedef struct z3d_generate_request {
    const char *path;         /* a checkpoint, or a folder of them */
    char *const *assignments; /* `count` key=value texts over the checkpoint's configuration */
    int count;
    const char *prompts; /* a file of prompts as JSON lines, - for standard input; NULL:
                            generate.prompt */
    const char *output;  /* the file of their answers, which must not be there; NULL: shown */
    /* A prompt is the user's message, in the chat template of the model's folder or that of this
     * name, and only the answer is shown. system: the message before it; NULL: none. */
    bool chat;
    bool ema; /* with the average of the parameters in their place */
    const char *chat_template, *system;
    /* Rank 0: the prompt and its continuation as it comes, or a whole line of an answer. An error
       ends the generation. */
    z3d_status (*show)(void *context, const char *text, size_t length);
    void *context;
} z3d_generate_request;

typedef struct z3d_generate_rate {
    int64_t tokens;
    double seconds;
} z3d_generate_rate;

typedef struct z3d_generate_result {
    bool stopped;             /* a signal ended it: answers are missing, or one is shorter */
    int64_t prompts, answers; /* answers: written, on rank 0 */
    int64_t batch;            /* prompts that a replica continued together */
    int replicas, stage;      /* of the model; of ZeRO */
    z3d_generate_rate prefill, decode;
} z3d_generate_result;

/* Generates text with a checkpoint's weights and its configuration, on any number of ranks.
 * Collective; agreed. ERR_DATA has a line for every line of the prompts' file that is wrong. */
z3d_status z3d_generate_from(z3d_world *world, const z3d_generate_request *request,
                             z3d_generate_result *result);

/* Whether that configuration has a generate.prompt; an empty prompt from an assignment counts. Not
 * collective. */
z3d_status z3d_generate_has_prompt(const char *path, char *const *assignments, int count,
                                   bool *out);

typedef struct z3d_replay_request {
    const char *path;         /* the recording */
    char *const *assignments; /* `count` key=value texts over its configuration: other folders,
                                 number of threads */
    int count;
    const char *until; /* stop behind this instruction: its number, or its description or how that
                          begins ("backward block.3"); NULL: run all */
    int64_t step;      /* in this step; 0: the first */
} z3d_replay_request;

typedef struct z3d_replay_result {
    int64_t ranks, rank, first, last; /* of the recording: steps */
    int64_t steps;                    /* that were run whole */
    int64_t entries;                  /* instructions whose output was compared */
    double loss, grad_norm;           /* of the last whole step */
    bool skipped;                     /* it, for overflow: it has no norm */
    z3d_string text; /* of the instruction it stopped behind: statistics of its buffers */
} z3d_replay_result;

/* Runs a recorded rank alone: what the other ranks sent comes from the recording. Every output is
 * compared with the recorded one. Free result->text. Not collective. ERR_NUMERIC names the first
 * instruction that differs; ERR_DATA: the file was changed or cut, or is another program's;
 * ERR_USAGE: another assignment, step or instruction than there can be. */
z3d_status z3d_replay_rank(const z3d_replay_request *request, z3d_replay_result *result);

typedef struct z3d_evaluate_request {
    const char *path;         /* a checkpoint, or a folder of them */
    const char *data;         /* a token file, JSON lines, or a text */
    const char *json_key;     /* of the text in JSON lines */
    bool ema;                 /* with the average of the parameters in their place */
    char *const *assignments; /* `count` key=value texts over the checkpoint's configuration */
    int count;
} z3d_evaluate_request;

typedef struct z3d_evaluate_result {
    int64_t step;      /* of the checkpoint; an imported one: 0 */
    double loss;       /* mean of -log(probability) over `tokens`, in nats */
    double perplexity; /* exp(loss) */
    int64_t tokens;    /* that were predicted: all but the first */
    int64_t bytes;     /* of their text; -1: unknown, which `why` explains */
    double bits_per_byte;
    z3d_string why;
    int64_t windows, window; /* windows of so many tokens; each token is predicted from those before
                                it in its window */
} z3d_evaluate_result;

/* The loss of a checkpoint's model on data, on any number of ranks. Windows follow each other in
 * the order of the data; a window's first token is the last one that the window before it predicts.
 * Samples' losses are added in this order, whichever rank has them: equal bits for every number of
 * data ranks, ZeRO stage and pipeline stage, at equal samples per micro-batch (1 unless assigned)
 * and equal tensor size (1 unless assigned: split matrices add in another order). Free result->why.
 * Collective; agreed. ERR_IO: a signal ended it. */
z3d_status z3d_evaluate(z3d_world *world, const z3d_evaluate_request *request,
                        z3d_evaluate_result *result);

#endif
