/* src/train: the trainer. Configuration -> mesh -> model -> engine -> run; data, learning-rate
 * schedule, metrics, generation, evaluation. data/ reads token files, text/ makes them, report/
 * writes a run's reports, trace/ reads its timelines. It may call every floor below it. Start
 * reading at trainer.c, then data.h. */
#ifndef ZERO3D_TRAIN_TRAIN_H
#define ZERO3D_TRAIN_TRAIN_H

#include "parallel/parallel.h"
#include "src/base/base.h"
#include "src/base/config.h"

/* All of `zero3d train` after the configuration was read: resolves it, checks data and run folder,
 * builds, trains, evaluates, generates, writes the run folder. Collective over the world. The error
 * is agreed: the same status on every rank. */
z3d_status z3d_train(z3d_world *world, z3d_config *config);
typedef struct z3d_train_options {
    /* --extend: a resumed run keeps the end of its learning-rate schedule, also if training.steps
     * is beyond it. */
    bool extend;
    const char *command; /* the command without --extend, for messages that say how to continue;
                            NULL: unknown */
    const char *program; /* the program as the user calls it, for the same messages; NULL: zero3d */
    bool verbose;        /* the start tells the reasons of decisions, the end has all tables */
    /* Steps record_first .. record_last of rank record_rank are recorded with all data that it
     * receives, in RUN/replay-rankR.z3d, for z3d_replay_rank. record_first 0: nothing is recorded.
     */
    int64_t record_rank, record_first, record_last;
} z3d_train_options;

/* The same, with options. *unfinished: a signal or training.time_limit stopped the run before its
 * last step; it saved a checkpoint, and a new start resumes there. */
z3d_status z3d_train_part(z3d_world *world, z3d_config *config, const z3d_train_options *options,
                          bool *unfinished);

typedef struct z3d_generate_request {
    const char *path; /* a checkpoint, or a folder of them */
    char *const
        *assignments; /* `count` key=value texts that override the checkpoint's configuration */
    int count;
    const char *prompts; /* a file of prompts, JSON lines, or "-" for standard input; NULL:
                            generate.prompt is the prompt */
    /* The file for their answers, which must not exist; NULL: answers go to `show`. */
    const char *output;
    /* chat: each prompt is a user's message in a chat template, and only the answer is shown.
     * chat_template: its name; NULL: the template in the model's folder. system: the system message
     * before it; NULL: the template's usual one, or none. */
    bool chat;
    bool ema; /* use the average of the parameters instead of the parameters */
    const char *chat_template, *system;
    /* Called on rank 0 with the prompt, then with each new piece of its continuation; or with a
     * whole line of an answer. An error ends the generation. */
    z3d_status (*show)(void *context, const char *text, size_t length);
    void *context;
} z3d_generate_request;

typedef struct z3d_generate_rate {
    int64_t tokens;
    double seconds;
} z3d_generate_rate;

typedef struct z3d_generate_result {
    bool stopped;             /* a signal ended it: answers are missing, or one is incomplete */
    int64_t prompts, answers; /* answers: written, on rank 0 */
    int64_t batch;            /* prompts that one replica continued together */
    int replicas, stage;      /* replicas of the model; the ZeRO stage */
    z3d_generate_rate prefill, decode;
} z3d_generate_result;

/* Generates text with a checkpoint's weights and configuration, on any number of ranks. Collective,
 * agreed. ERR_DATA has a line for every wrong line of the file of prompts. */
z3d_status z3d_generate_from(z3d_world *world, const z3d_generate_request *request,
                             z3d_generate_result *result);

/* Whether the checkpoint's configuration, with the assignments, has a generate.prompt; an empty
 * prompt counts if an assignment sets it. Not collective. */
z3d_status z3d_generate_has_prompt(const char *path, char *const *assignments, int count,
                                   bool *out);

typedef struct z3d_replay_request {
    const char *path;         /* the recording */
    char *const *assignments; /* `count` key=value texts that override its configuration: other
                                 folders, number of threads */
    int count;
    const char *until; /* stop after this instruction: its number, its description or the first
                          words of it ("backward block.3"); NULL: run all */
    int64_t step;      /* the step of `until`; 0: the first recorded step */
} z3d_replay_request;

typedef struct z3d_replay_result {
    int64_t ranks, rank, first, last; /* of the recording; first, last: steps */
    int64_t steps;                    /* steps that were run completely */
    int64_t entries;        /* instructions whose output was compared with the recording */
    double loss, grad_norm; /* of the last complete step */
    bool skipped;           /* the last complete step was skipped for overflow: it has no norm */
    z3d_string text;        /* statistics of the buffers of the instruction that `until` names */
} z3d_replay_result;

/* Runs a recorded rank alone: data from other ranks come from the recording. Every output is
 * compared with the recorded one. Free result->text. Not collective. ERR_NUMERIC names the first
 * instruction that differs; ERR_DATA: the file was changed, is incomplete, or was written by
 * another version of the program; ERR_USAGE: an assignment to another key, or a step or instruction
 * that the recording does not have. */
z3d_status z3d_replay_rank(const z3d_replay_request *request, z3d_replay_result *result);

typedef struct z3d_evaluate_request {
    const char *path;     /* a checkpoint, or a folder of them */
    const char *data;     /* a token file, JSON lines, or a text */
    const char *json_key; /* key of the text in JSON lines */
    bool ema;             /* use the average of the parameters instead of the parameters */
    char *const
        *assignments; /* `count` key=value texts that override the checkpoint's configuration */
    int count;
} z3d_evaluate_request;

typedef struct z3d_evaluate_result {
    int64_t step;      /* of the checkpoint; 0: it was imported */
    double loss;       /* mean of -log(probability) over `tokens`, in nats */
    double perplexity; /* exp(loss) */
    int64_t tokens;    /* predicted tokens: all but the first */
    int64_t bytes;     /* of their text; -1: unknown, `why` says the reason */
    double bits_per_byte;
    z3d_string why;
    int64_t windows, window; /* number of windows, each of `window` tokens; a token is predicted
                                from the earlier tokens of its window */
} z3d_evaluate_result;

/* Computes the loss of a checkpoint's model on data, on any number of ranks. Windows follow each
 * other in the order of the data; the first token of a window is the last target of the window
 * before it. The losses of samples are added in this order on any distribution of the samples. So
 * the result has equal bits for every number of data ranks, ZeRO stage and number of pipeline
 * stages, if the samples per micro-batch are equal (1 unless assigned) and the tensor size is equal
 * (1 unless assigned; split matrices change the order of sums). Free result->why. Collective,
 * agreed. ERR_IO: a signal ended it. */
z3d_status z3d_evaluate(z3d_world *world, const z3d_evaluate_request *request,
                        z3d_evaluate_result *result);

#endif
