/* The trainer's parts share this state. setup.c fills it in, trainer.c runs the loop. */
#ifndef ZERO3D_TRAIN_TRAINER_H
#define ZERO3D_TRAIN_TRAINER_H

#include "checkpoint/checkpoint.h"
#include "parallel/parallel.h"
#include "src/base/config.h"
#include "src/model/model.h"
#include "src/train/data.h"
#include "src/train/report/console.h"
#include "src/train/report/metrics.h"
#include "src/train/report/tensorboard.h"
#include "src/train/run_folder.h"
#include "zero/zero.h"

typedef struct z3d_trainer {
    z3d_world *world;
    z3d_config *config;  /* resolved by setup */
    bool extend;         /* as of z3d_train_options */
    const char *command; /* likewise; NULL: unknown */
    int rank;
    char place[64]; /* the last z3d_trainer_place */
    z3d_topology topology;
    z3d_gpt_config gpt;
    z3d_program_config program;

    z3d_device *device;
    z3d_group *group[Z3D_AXIS_COUNT];
    z3d_model *model;
    z3d_engine *engine;
    z3d_dataset *train, *validation; /* validation: NULL without */
    z3d_tokenizer *tokenizer;        /* NULL unless text is generated */
    bool empty_prompt; /* text is generated from nothing, whatever generate.prompt is */

    z3d_store *store;     /* NULL behind the start-up: no checkpoints are saved */
    char *checkpoint_dir; /* the run's, whether there are any */
    bool resumes_newest;  /* checkpoint.resume names the newest one in there */
    int64_t resumed_step; /* 0: a new run */
    bool save_waits;      /* one was due at a step that was skipped */
    double begin;         /* when the process came here, for the time limit */

    z3d_string offload_why; /* rank 0: what cpu_checkpointing auto became; empty: it was not auto */

    const char *graph_obstacle; /* why train steps cannot be captured; NULL: they can */

    double peak_tflops; /* of one rank; 0: unknown */
    bool peak_measured;
    double model_flops, hardware_flops; /* a token; the latter with what is replayed */

    /* Host memory of one step's data on this rank. */
    int32_t *tokens, *targets; /* [accumulation, micro_batch, seq] */
    z3d_micro_batch *micro;    /* [accumulation] */

    /* Rank 0 only. */
    z3d_run_folder folder;
    z3d_line_file metrics;
    z3d_string line; /* of it, as it is made: its memory is used again */
    z3d_tensorboard board;
    z3d_console console;
    /* A line that could not be written on rank 0: the run stops at the next step, on all ranks. */
    z3d_kept_error write_error;
} z3d_trainer;

/* setup.c. Zero-initialise with world and config set; destroy also after a failure. Collective,
 * agreed. */
z3d_status z3d_trainer_setup(z3d_trainer *trainer);
/* For generation only: no data, no run folder. */
z3d_status z3d_trainer_setup_generate(z3d_trainer *trainer);
void z3d_trainer_destroy(z3d_trainer *trainer);

/* start.c: what is checked or chosen before anything is built. All collective, agreed. */
/* Checks and resolves the configuration; every rank must have the same one. */
z3d_status z3d_trainer_agree_config(z3d_trainer *trainer);
/* This rank's place; refuses tensor groups across nodes. */
z3d_status z3d_trainer_find_place(z3d_trainer *trainer);
/* A run that is resumed multiplies matrices as it did before: training.gemm's `auto` becomes what
 * the checkpoint's configuration says. With --extend it keeps the schedule's end, too. */
z3d_status z3d_trainer_keep_choices(z3d_trainer *trainer);
/* Settles cpu_checkpointing auto: rank 0 decides, after all have measured where that is asked for.
 */
z3d_status z3d_trainer_choose_offload(z3d_trainer *trainer, int threads);
/* Chooses how matrices are multiplied and finds the peak: rank 0 measures, all use its answer. */
z3d_status z3d_trainer_choose_gemm(z3d_trainer *trainer, int threads);

/* ERR_TOPOLOGY where this rank shares its GPU with a lower one, unless training.collectives is
 * host.
 */
z3d_status z3d_trainer_check_sharing(z3d_trainer *trainer);
/* Where the device multiplies in one way only: rank 0 measures the peak, if none is configured. */
z3d_status z3d_trainer_measure_peak(z3d_trainer *trainer);

/* What training.gemm says for operands of `dtype` (fp32, bf16, fp16). */
z3d_gemm_method z3d_trainer_gemm_method(const z3d_config *config, z3d_dtype dtype);

/* What this rank does between the engine's instructions, for reports of who waits for whom:
 * "start-up: opening data" (up to 60 bytes). */
void z3d_trainer_place(z3d_trainer *trainer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same, standing in a wait for the other ranks; until the next place. */
void z3d_trainer_wait_place(z3d_trainer *trainer);

/* z3d_world_agree; rank 0 keeps the message of its own failure as it is. */
z3d_status z3d_trainer_agree(z3d_trainer *trainer, z3d_status mine);

/* checkpoints.c. */
/* Sets checkpoint_dir. Not collective. */
z3d_status z3d_trainer_name_checkpoints(z3d_trainer *trainer);
/* The resolved configuration of the run that this one goes on from; NULL: there is none. Not
 * collective. */
z3d_status z3d_trainer_saved_config(const z3d_trainer *trainer, z3d_config **out);
/* extend.c. Not collective. */
/* With --extend: the schedule's end becomes the checkpoint's, or where the learning rate is 0 there
 * the run's new end; one line says so. `saved`: its configuration, NULL: there is none. */
z3d_status z3d_trainer_extend(z3d_trainer *trainer, const z3d_config *saved);
/* Without: the error that says how to train on after the end of that schedule. */
z3d_status z3d_trainer_refuse_extension(const z3d_trainer *trainer, const z3d_config *saved);

/* kept_keys.c: ERR_CONFIG with every key that a resumed run must keep and does not. Not collective.
 */
z3d_status z3d_trainer_compare_configs(const z3d_trainer *trainer, const z3d_checkpoint_info *info);
/* The run that is resumed has made all its steps. */
bool z3d_trainer_is_complete(const z3d_trainer *trainer);

/* These are collective and agreed. */
/* Takes the run's folder of checkpoints, and goes on from one of them or begins with weights, as
 * the configuration says. After the engine was made. */
z3d_status z3d_trainer_resume(z3d_trainer *trainer);
/* Only the weights, of the checkpoint that a user's path means. */
z3d_status z3d_trainer_load_weights(z3d_trainer *trainer, const char *path);
/* After step `step`: moves on a save in flight, begins one where it is due. A step that was skipped
 * has nothing new to save and pushes no good checkpoint out: what is due waits for the next step
 * that is taken. last: the run ends here. */
z3d_status z3d_trainer_checkpoint(z3d_trainer *trainer, int64_t step, bool skipped, bool last);
/* After all ranks' failure, which it returns: what the next start goes on from is a save that was
 * in flight, not the one before. */
z3d_status z3d_trainer_end_save(z3d_trainer *trainer, z3d_status failure);

/* generate_from.c: continues generate.prompt as the configuration says; the prompt and what follows
 * it, fit for a terminal, are appended to *out on every rank. *stopped: a signal cut it short.
 * Collective, agreed. */
z3d_status z3d_trainer_sample(z3d_trainer *trainer, z3d_string *out, bool *stopped);

/* A failure that is this rank's alone, where the others go on to a collective or stand in one: ends
 * the run on all ranks, without return. In a world of one it returns `status`. Not collective. */
z3d_status z3d_trainer_stop_all(z3d_trainer *trainer, z3d_status status);

/* memory.c: peak of this process' resident memory less what is planned (arenas, communication
 * buffers, the copy of asynchronous saves): MPI, oneDNN, libraries, the program itself. On a device
 * with memory of its own: what is in use of that, by anybody, less the arena: context, libraries'
 * workspaces, kernels' scratch. At least 0; -1: unknown. */
int64_t z3d_trainer_outside_bytes(const z3d_trainer *trainer);
/* What the process' resident memory is for; false: the system does not say. */
bool z3d_trainer_resident(const z3d_trainer *trainer, z3d_resident *out);
/* Device memory is the process' own memory. */
bool z3d_trainer_device_is_host(const z3d_trainer *trainer);
/* Of this rank's arenas in its own memory; of its groups' buffers. */
int64_t z3d_trainer_arena_bytes(const z3d_trainer *trainer);
int64_t z3d_trainer_buffer_bytes(const z3d_trainer *trainer);

/* data/batches.c: fills micro with the data of training step `step` / of validation call `call` of
 * z3d_trainer_validation_calls. */
z3d_status z3d_trainer_read_step(z3d_trainer *trainer, int64_t step);
z3d_status z3d_trainer_read_validation(z3d_trainer *trainer, int64_t call);
int64_t z3d_trainer_validation_calls(const z3d_trainer *trainer);

#endif
