/* The state that the trainer's parts share. setup.c fills it in, trainer.c runs the loop. */
#ifndef ZERO3D_TRAIN_TRAINER_H
#define ZERO3D_TRAIN_TRAINER_H

#include "checkpoint/checkpoint.h"
#include "parallel/parallel.h"
#include "src/base/config.h"
#include "src/base/param_groups.h"
#include "src/model/model.h"
#include "src/plan/choose/choose.h"
#include "src/train/data.h"
#include "src/train/replay/tape.h"
#include "src/train/report/console.h"
#include "src/train/report/metrics.h"
#include "src/train/report/tensorboard.h"
#include "src/train/run_folder.h"
#include "src/train/train.h"
#include "zero/zero.h"

typedef struct z3d_trainer {
    z3d_world *world;
    z3d_config *config;               /* resolved by setup */
    const z3d_train_options *options; /* NULL: nothing is trained */
    int rank;
    char place[64]; /* the last z3d_trainer_place */
    z3d_mesh mesh;
    z3d_optimizer_group optimizer_group[Z3D_PARAM_GROUPS];
    z3d_program_config program; /* of all ranks: z3d_samples_of has this one's samples */

    z3d_device *device;
    z3d_device *host_device; /* a cpu device beside one that does not compute in host memory, if
                         anything is offloaded; else NULL */
    z3d_host_memory host;    /* there was when this rank looked for room */
    z3d_group *group[Z3D_AXES_COUNT];
    z3d_model *model;
    z3d_engine *engine;
    z3d_dataset *train, *validation; /* validation: NULL without */
    int32_t largest_token;           /* in them; -1: unknown */
    z3d_tokenizer *tokenizer;        /* NULL unless text is generated */
    bool evaluates;                  /* it is for evaluation only: z3d_trainer_begin_inference */
    bool empty_prompt; /* text is generated from nothing, whatever generate.prompt is */

    z3d_store *store;     /* NULL after start-up: no checkpoints are saved */
    char *checkpoint_dir; /* the run's, even if there are none */
    bool resumes_newest;  /* checkpoint.resume names the latest one in it */
    int64_t resumed_step; /* 0: a new run */
    double epochs;        /* training.epochs as it was given; 0: training.steps was */
    bool complete;        /* the resumed run has made all its steps, or ended early */
    bool save_waits;      /* a save was due at a skipped step */
    int64_t saved_step;   /* the last one with a save; 0: none */
    z3d_evaluations evaluations;
    z3d_base base; /* whose weights the run began with */
    double begin;  /* when the run began, for the time limit */

    z3d_string weights;     /* where they come from */
    z3d_string offload_why; /* rank 0: what cpu_checkpointing auto became; empty: it was not auto */
    z3d_string gather_why;  /* and pipeline_gather, */
    int first_granularity;  /* rank 0: that `auto` tries first: of the run that goes on */
    z3d_string granularity_why; /* granularity, */
    z3d_string activation_why;  /* recompute_activation, */
    z3d_string ratio_why;       /* offload_optimizer.ratio */
    z3d_string products_why;    /* and training.gemm of the run's type */

    const char *graph_obstacle; /* why train steps cannot be captured; NULL: they can */

    double peak_tflops;                 /* of one rank; 0: unknown */
    bool peak_measured, peak_kept;      /* kept: at an earlier start */
    double model_flops, hardware_flops; /* per token; the latter includes recomputation */

    /* Host memory of one step's data on this rank. */
    int32_t *tokens, *targets; /* [accumulation, samples of this rank, seq] */
    int32_t *positions;        /* likewise, in the document; NULL: samples are windows */
    z3d_micro_batch *micro;    /* [accumulation] */

    z3d_rank_tape *tape; /* while steps of this rank are recorded; else NULL */

    /* Rank 0 only. */
    z3d_run_folder folder;
    z3d_line_file metrics, events, samples; /* samples: fd -1 without generate.every */
    z3d_string line;                        /* buffer for one of its lines, reused */
    z3d_tensorboard board;
    z3d_console console;
    /* Why rank 0 could not write a line: the run stops at the next step, on all ranks. */
    z3d_kept_error write_error;
} z3d_trainer;

/* trainer.c, rank 0. Keeps the first failure to write until all ranks can hear of it. */
void z3d_trainer_note_write(z3d_trainer *trainer, z3d_status status);
/* Writes what was made in trainer->line. */
void z3d_trainer_write_line(z3d_trainer *trainer, z3d_line_file *file);
/* A line of events.jsonl, now. seconds NAN, detail NULL: left out. */
void z3d_trainer_event(z3d_trainer *trainer, int64_t step, const char *event, double seconds,
                       const char *detail);

/* setup.c. Zero-initialise, then set world and config; destroy also after a failure. Collective,
 * agreed. */
z3d_status z3d_trainer_setup(z3d_trainer *trainer);
/* For generation only, or with `evaluates` for evaluation, with no data and no run folder. First
 * configuration, model and tokenizer, then the rest, for so many prompts, whose texts have so many
 * positions at most (equal on all ranks; evaluation has none): of the ZeRO stage (unless it is
 * `given`) and of the batch what there is room for. */
z3d_status z3d_trainer_begin_inference(z3d_trainer *trainer);
z3d_status z3d_trainer_setup_inference(z3d_trainer *trainer, int64_t prompts, int64_t positions,
                                       bool stage_given);
/* For one rank of many that are not there, of a recording: its place in that world, groups that
 * nobody else is in, the engine. world NULL; the configuration is the recorded one. Not collective.
 */
z3d_status z3d_trainer_setup_replay(z3d_trainer *trainer, int ranks, int rank);
void z3d_trainer_destroy(z3d_trainer *trainer);

/* replay/record.c. With --record-rank: refuses what cannot be recorded, and opens the recording on
 * its rank. Collective, agreed. */
z3d_status z3d_trainer_open_recording(z3d_trainer *trainer);
/* A training step, recorded where that is asked for. Collective, as z3d_engine_train_step. */
z3d_status z3d_trainer_run_step(z3d_trainer *trainer, int64_t step, z3d_step_input *input,
                                z3d_step_result *result);
bool z3d_trainer_records(const z3d_trainer *trainer); /* a rank of this run, not just this one */
void z3d_trainer_close_recording(z3d_trainer *trainer);

/* start.c: what is checked or chosen before anything is built. All collective, agreed. */
/* Checks and resolves the configuration; every rank must have the same one. */
z3d_status z3d_trainer_agree_config(z3d_trainer *trainer);
/* The program's configuration, from that of the run; every rank must read the same schedule. */
z3d_status z3d_trainer_make_program(z3d_trainer *trainer);
/* This rank's place; refuses tensor groups across nodes. */
z3d_status z3d_trainer_find_place(z3d_trainer *trainer);
/* A resumed run multiplies matrices as before: training.gemm's `auto` or `measured` becomes the
 * choice in the checkpoint's configuration, and so does data_types.grad_accum_dtype, which a new
 * run chooses by its micro-batches. On a GPU it goes on to compute activations again. With --extend
 * it also keeps the schedule's end. */
z3d_status z3d_trainer_keep_choices(z3d_trainer *trainer);
/* Decides what is `auto` of granularity, cpu_checkpointing, offload_optimizer.ratio,
 * pipeline_gather and recompute_activation: rank 0 decides, the first and the last by the memory of
 * a rank, the two before the last also if no machine is described. All ranks measure before, if
 * training.hardware is `measure`. */
z3d_status z3d_trainer_choose_program(z3d_trainer *trainer, int threads, const z3d_room *room);
/* Chooses how matrices are multiplied and finds the peak: rank 0 looks at its table or measures,
 * all use its answer. */
z3d_status z3d_trainer_choose_gemm(z3d_trainer *trainer, int threads);

/* products.c. Chooses what a list in training.gemm.cuda says. Not collective. */
z3d_status z3d_trainer_use_products(z3d_trainer *trainer);
/* training.gemm.cuda `timed` becomes a list: of the run that is resumed, if it is for this machine,
 * or of the algorithms that are fastest; all ranks choose alike. Call it before the engine takes
 * memory. Collective, agreed. */
z3d_status z3d_trainer_time_products(z3d_trainer *trainer);

/* speeds.c. device_speeds `measured` becomes a list: of the run that is resumed, or measured on all
 * ranks at once, which takes a second. The program's configuration follows. Call it when there is a
 * device. Collective, agreed. */
z3d_status z3d_trainer_choose_speeds(z3d_trainer *trainer);
/* ERR_TOPOLOGY where this rank shares its GPU with a lower one, unless training.collectives is
 * host.
 */
z3d_status z3d_trainer_check_sharing(z3d_trainer *trainer);
/* If the device has only one way to multiply: rank 0 measures the peak, unless one is configured.
 */
z3d_status z3d_trainer_measure_peak(z3d_trainer *trainer);
/* Rank 0, of a run that is resumed: a busy machine measures too little, so of all its starts on
 * this device the largest peak counts. */
void z3d_trainer_keep_peak(z3d_trainer *trainer);

/* What training.gemm says for operands of `dtype` (fp32, bf16, fp16). */
z3d_gemm_method z3d_trainer_gemm_method(const z3d_config *config, z3d_dtype dtype);

/* Sets what this rank does between the engine's instructions, for reports of who waits for whom:
 * "start-up: opening data" (up to 60 bytes). */
void z3d_trainer_place(z3d_trainer *trainer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same, while it waits for the other ranks; until the next place. */
void z3d_trainer_wait_place(z3d_trainer *trainer);

/* Every rank's text becomes that of `rank`, at least "". Collective, agreed. */
z3d_status z3d_trainer_share(z3d_trainer *trainer, int rank, z3d_string *text);
/* As z3d_world_agree, but rank 0's own failure keeps its message unchanged. */
z3d_status z3d_trainer_agree(z3d_trainer *trainer, z3d_status mine);
/* The same; then rank 0's bytes of `data` become everybody's. Collective, agreed. */
z3d_status z3d_trainer_take_from_root(z3d_trainer *trainer, z3d_status mine, void *data,
                                      int64_t bytes);

/* checkpoints.c. */
/* Sets checkpoint_dir. Not collective. */
z3d_status z3d_trainer_name_checkpoints(z3d_trainer *trainer);
/* The resolved configuration of the run that this one resumes; NULL: none. Not collective. */
z3d_status z3d_trainer_saved_config(const z3d_trainer *trainer, z3d_config **out);
/* extend.c. Not collective. */
/* With --extend: the schedule's end becomes the checkpoint's, or the run's new end if the learning
 * rate is 0 there; one line says so. `saved`: the checkpoint's configuration, NULL: none. */
z3d_status z3d_trainer_extend(z3d_trainer *trainer, const z3d_config *saved);
/* Without --extend: the error that says how to train further after the end of that schedule. */
z3d_status z3d_trainer_refuse_extension(const z3d_trainer *trainer, const z3d_config *saved);

/* kept_keys.c. data_types.grad_accum_dtype of a checkpoint's run. `auto` is of an older one, whose
 * gradients had the model's type; an fp32 run has no other. */
z3d_accum z3d_trainer_saved_accum(const z3d_config *saved);
/* ERR_CONFIG with every key that a resumed run must keep and does not. Not collective.
 */
z3d_status z3d_trainer_compare_configs(const z3d_trainer *trainer, const z3d_checkpoint_info *info);
/* *out = the configuration in a checkpoint, the caller's to destroy; NULL if there was no memory
 * for it. Errors: those of z3d_config_read_text. */
z3d_status z3d_trainer_read_saved(const char *text, z3d_config **out);
/* Refuses other factors than those that the checkpoint's adapters were trained with. */
z3d_status z3d_trainer_compare_adapters(const z3d_trainer *trainer,
                                        const z3d_checkpoint_info *info);
/* Appends the sizes of the model that `there` has otherwise, as arguments: "model.num_layers=2". */
void z3d_trainer_name_sizes(const z3d_config *here, const z3d_config *there, z3d_string *out);

/* These are collective and agreed. */
/* Takes the run's folder of checkpoints, and resumes from one of them or starts with weights, as
 * the configuration says. Call it after creating the engine. */
z3d_status z3d_trainer_resume(z3d_trainer *trainer);
/* The link to the best checkpoint becomes what the last save should have left. A complete run saves
 * nothing, so it removes none. */
z3d_status z3d_trainer_link_best(z3d_trainer *trainer);
/* Loads only the weights of the checkpoint that a user's path means; *step: after which it was
 * saved. */
z3d_status z3d_trainer_load_weights(z3d_trainer *trainer, const char *path, bool average,
                                    int64_t *step);
/* Call after step `step`: advances a save in flight, or begins one that is due. A skipped step has
 * nothing new to save and must not replace a good checkpoint, so the save waits for the next step
 * that is not skipped. now: it does not, because the run ends here, or has its lowest validation
 * loss here. */
z3d_status z3d_trainer_checkpoint(z3d_trainer *trainer, int64_t step, bool skipped, bool last,
                                  bool now);
/* Call after a failure of all ranks; returns that failure. It finishes a save in flight, so the
 * next start resumes from it. */
z3d_status z3d_trainer_end_save(z3d_trainer *trainer, z3d_status failure);

/* generate_from.c: continues a prompt as the configuration says. Appends it and its continuation,
 * fit for a terminal, to *out on rank 0. *stopped: a signal ended it early. Collective, agreed. */
z3d_status z3d_trainer_sample(z3d_trainer *trainer, const char *prompt, z3d_string *out,
                              bool *stopped);
/* Whether the model can read it. Not collective. */
z3d_status z3d_trainer_check_prompt(const z3d_trainer *trainer, const char *prompt);

/* samples.c. */
/* Whether the model can read the run's prompts. Not collective. */
z3d_status z3d_trainer_check_prompts(const z3d_trainer *trainer);
/* Continues them, shows that, and with generate.every writes it to samples.jsonl, unless the run
 * was complete before. *stopped: a signal ended it early. Collective, agreed. */
z3d_status z3d_trainer_sample_all(z3d_trainer *trainer, int64_t step, bool last, bool *stopped);

/* best.c. */
/* Takes the validation loss of a step; whether it is the lowest so far. */
bool z3d_trainer_judge(z3d_trainer *trainer, int64_t step, double loss);
/* Whether training.early_stopping_patience ends the run. */
bool z3d_trainer_ends_early(const z3d_trainer *trainer);
enum { Z3D_EARLY_TEXT = 160 };
/* Why, in `out`; NULL: it does not. */
const char *z3d_trainer_why_early(const z3d_trainer *trainer, char out[Z3D_EARLY_TEXT]);
/* At the start, with those of the checkpoint: the lowest loss and the count begin anew, and one
 * line says so, where they are of other validation data, or with keep_best where the folder does
 * not have their checkpoint. Collective, agreed. */
z3d_status z3d_trainer_take_evaluations(z3d_trainer *trainer);

/* For a failure of this rank alone, while the others continue to a collective or wait in one. Ends
 * the run on all ranks and does not return; in a world of one it returns `status`. Not collective.
 */
z3d_status z3d_trainer_stop_all(z3d_trainer *trainer, z3d_status status);

/* memory.c: peak of this process's resident memory minus what is planned (arenas, communication
 * buffers, the copy of asynchronous saves): MPI, oneDNN, libraries, the program itself. On a device
 * with its own memory: the bytes in use there, by anybody, minus the arena: context, libraries'
 * workspaces, kernels' scratch. At least 0; -1: unknown. */
int64_t z3d_trainer_outside_bytes(const z3d_trainer *trainer);
/* On a device with its own memory: bytes of it that libraries will take beside the plan. opened:
 * what they took with the device's creation is left out. */
int64_t z3d_trainer_reserve(const z3d_trainer *trainer, bool opened);
/* This process's memory now that belongs to no file and is not shared; 0: unknown. */
int64_t z3d_trainer_own_bytes(void);
/* What the rank that takes most takes: rank 0, or with pipeline stages or unequal samples the first
 * whose planned peaks are the largest. Collective, agreed. */
z3d_status z3d_trainer_find_memory(z3d_trainer *trainer, z3d_rank_memory *out);
/* The process's resident memory by use; false: the system does not say. */
bool z3d_trainer_resident(const z3d_trainer *trainer, z3d_resident *out);
/* Device memory is the process' own memory. */
bool z3d_trainer_device_is_host(const z3d_trainer *trainer);
/* Bytes of this rank's arenas in its own memory; bytes of its groups' buffers. */
int64_t z3d_trainer_arena_bytes(const z3d_trainer *trainer);
int64_t z3d_trainer_buffer_bytes(const z3d_trainer *trainer);

/* data/batches.c: fills micro with the data of training step `step` / of validation call `call` of
 * z3d_trainer_validation_calls. */
z3d_status z3d_trainer_read_step(z3d_trainer *trainer, int64_t step);
z3d_status z3d_trainer_read_validation(z3d_trainer *trainer, int file, int64_t call);
int64_t z3d_trainer_validation_calls(const z3d_trainer *trainer, int file);
/* Whether training.eval_steps batches are less than a file has. */
bool z3d_trainer_validation_is_cut(const z3d_trainer *trainer);
/* Of the samples that validation reads, and their files' weights: 53 bits, not 0. Not collective.
 */
z3d_status z3d_trainer_digest_validation(const z3d_trainer *trainer, int64_t *out);

#endif
