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
    const z3d_train_options *options; /* NULL: a run that does not train */
    int rank;
    char place[64]; /* the last z3d_trainer_place */
    z3d_mesh mesh;
    z3d_optimizer_group optimizer_group[Z3D_PARAM_GROUPS];
    z3d_program_config program; /* of all ranks: z3d_samples_of has this one's samples */

    z3d_device *device;
    z3d_device *host_device; /* a cpu device for offloaded states, beside a device with its own
                                memory; NULL: not needed */
    z3d_host_memory host;    /* the free host memory when this rank computed its memory budget */
    z3d_group *group[Z3D_AXES_COUNT];
    z3d_model *model;
    z3d_engine *engine;
    z3d_dataset *train, *validation; /* validation NULL: none */
    int32_t largest_token;           /* in both datasets; -1: unknown */
    z3d_tokenizer *tokenizer;        /* NULL unless text is generated */
    bool evaluates;                  /* evaluation only: z3d_trainer_begin_inference */
    bool empty_prompt; /* generates from an empty prompt, whatever generate.prompt is */

    z3d_store *store;     /* NULL, after start-up: no checkpoints are saved */
    char *checkpoint_dir; /* the run's folder of checkpoints, also if it has none */
    bool resumes_newest;  /* checkpoint.resume names the latest checkpoint in checkpoint_dir */
    int64_t resumed_step; /* 0: a new run */
    double epochs;        /* training.epochs as the user set it; 0: the user set training.steps */
    bool complete;        /* the resumed run has made all its steps, or has ended early */
    bool save_waits;      /* a save was due at a skipped step */
    int64_t saved_step;   /* the last step with a save; 0: none */
    z3d_evaluations evaluations;
    z3d_base base; /* the checkpoint whose weights the run began with */
    double begin;  /* when the run began, for the time limit */

    z3d_string weights;     /* where the weights come from */
    z3d_string offload_why; /* rank 0: what cpu_checkpointing auto became, and why; empty: it was
                               not auto. The same for the other ..._why: */
    z3d_string gather_why;  /* pipeline_gather */
    int first_granularity;  /* rank 0: the granularity that `auto` tries first: that of the resumed
                               run */
    z3d_string granularity_why; /* granularity */
    z3d_string activation_why;  /* recompute_activation */
    z3d_string ratio_why;       /* offload_optimizer.ratio */
    z3d_string products_why;    /* training.gemm for the run's type */

    const char *graph_obstacle; /* why training steps cannot be CUDA graphs; NULL: they can */

    double peak_tflops;                 /* of one rank; 0: unknown */
    bool peak_measured, peak_kept;      /* kept: measured at an earlier start */
    double model_flops, hardware_flops; /* per token; the latter includes recomputation */

    /* Host memory of one step's data on this rank. */
    int32_t *tokens, *targets; /* [accumulation, samples of this rank, seq] */
    /* Each token's position in its document, in the same order; NULL: samples are windows. */
    int32_t *positions;
    z3d_micro_batch *micro; /* [accumulation] */

    z3d_rank_tape *tape; /* while steps of this rank are recorded; else NULL */

    /* Rank 0 only. */
    z3d_run_folder folder;
    z3d_line_file metrics, events, samples; /* samples: fd -1 without generate.every */
    z3d_string line;                        /* buffer for one of its lines, reused */
    z3d_tensorboard board;
    z3d_console console;
    /* Rank 0's first error in writing a line: the run stops at the next step, on all ranks. */
    z3d_kept_error write_error;
} z3d_trainer;

/* trainer.c, rank 0, not collective. Writes trainer->line to `file`, and keeps the first error
 * until all ranks can be told. */
void z3d_trainer_write_line(z3d_trainer *trainer, z3d_line_file *file);
/* Writes a line to events.jsonl with the present time. seconds NAN, detail NULL: left out. */
void z3d_trainer_event(z3d_trainer *trainer, int64_t step, const char *event, double seconds,
                       const char *detail);

/* setup.c. Zero-initialise, then set world and config; destroy also after a failure. Collective,
 * agreed. */
z3d_status z3d_trainer_setup(z3d_trainer *trainer);
/* For generation, or with trainer->evaluates for evaluation; without data and run folder. Call
 * begin first: it makes configuration, model and tokenizer. Then setup makes the rest, for
 * `prompts` prompts whose texts have at most `positions` positions (equal on all ranks; 0 for
 * evaluation). It chooses the ZeRO stage (unless stage_given) and the batch by the memory budget.
 * Collective, agreed. */
z3d_status z3d_trainer_begin_inference(z3d_trainer *trainer);
z3d_status z3d_trainer_setup_inference(z3d_trainer *trainer, int64_t prompts, int64_t positions,
                                       bool stage_given);
/* For the replay of one rank of a recording: makes its place in the recorded world, groups without
 * other members, and the engine. trainer->world is NULL; the configuration is the recorded one. Not
 * collective. */
z3d_status z3d_trainer_setup_replay(z3d_trainer *trainer, int ranks, int rank);
void z3d_trainer_destroy(z3d_trainer *trainer);

/* replay/record.c. With --record-rank: refuses runs that cannot be recorded, and opens the
 * recording on its rank. Collective, agreed. */
z3d_status z3d_trainer_open_recording(z3d_trainer *trainer);
/* Runs a training step; records it if this rank and step are recorded. Collective, as
 * z3d_engine_train_step. */
z3d_status z3d_trainer_run_step(z3d_trainer *trainer, int64_t step, z3d_step_input *input,
                                z3d_step_result *result);
bool z3d_trainer_records(const z3d_trainer *trainer); /* whether any rank of this run is recorded */
void z3d_trainer_close_recording(z3d_trainer *trainer);

/* start.c: checks and choices before the engine is built. All are collective and agreed. */
/* Checks and resolves the configuration; ERR_CONFIG if a rank has another one. */
z3d_status z3d_trainer_agree_config(z3d_trainer *trainer);
/* Makes the program's configuration from the run's; an error if a rank reads another schedule file.
 */
z3d_status z3d_trainer_make_program(z3d_trainer *trainer);
/* Sets trainer->mesh; refuses tensor groups across nodes, and partitions of the data axis that must
 * not span nodes. */
z3d_status z3d_trainer_find_place(z3d_trainer *trainer);
/* Keeps the choices of a resumed run. training.gemm `auto` or `measured` becomes the choice in the
 * checkpoint's configuration; so does data_types.grad_accum_dtype `auto`, which a new run decides
 * by its micro-batches. On a GPU recompute_activation `auto` stays as it was. Also applies --extend
 * (z3d_trainer_extend). */
z3d_status z3d_trainer_keep_choices(z3d_trainer *trainer);
/* Decides granularity, cpu_checkpointing, offload_optimizer.ratio, pipeline_gather and
 * recompute_activation where they are `auto` (src/plan/choose/choose.h). Rank 0 decides, by `room`,
 * the memory budget of a rank, and by the machine that training.hardware describes. All ranks first
 * measure the machine if training.hardware is `measure`. */
z3d_status z3d_trainer_choose_program(z3d_trainer *trainer, int threads, const z3d_room *room);
/* Chooses how matrices are multiplied, and finds the peak: rank 0 looks in its table or measures;
 * all ranks use its answer. */
z3d_status z3d_trainer_choose_gemm(z3d_trainer *trainer, int threads);

/* products.c. If training.gemm.cuda is a list, makes the device use its algorithms. Not collective.
 */
z3d_status z3d_trainer_use_products(z3d_trainer *trainer);
/* training.gemm.cuda `timed` becomes a list: that of the resumed run, if it was made for this
 * device; else the fastest algorithms. All ranks use the same list. Call it before the engine takes
 * memory. Collective, agreed. */
z3d_status z3d_trainer_time_products(z3d_trainer *trainer);

/* speeds.c. device_speeds `measured` becomes a list: that of the resumed run, or one measured on
 * all ranks at once, which takes a second. Makes the program's configuration again. Call it after
 * the device is created. Collective, agreed. */
z3d_status z3d_trainer_choose_speeds(z3d_trainer *trainer);
/* ERR_TOPOLOGY if this rank shares its GPU with a lower rank, unless training.collectives is host.
 * Collective; the caller agrees on the error. */
z3d_status z3d_trainer_check_sharing(z3d_trainer *trainer);
/* For a device with only one way to multiply: rank 0 measures the peak, unless one is configured.
 * Collective, agreed. */
z3d_status z3d_trainer_measure_peak(z3d_trainer *trainer);
/* Rank 0, resumed runs. A busy machine measures a peak that is too low, so the largest peak of all
 * starts of the run on this device is used. Not collective. */
void z3d_trainer_keep_peak(z3d_trainer *trainer);

/* The method that training.gemm sets for operands of `dtype` (fp32, bf16, fp16). */
z3d_gemm_method z3d_trainer_gemm_method(const z3d_config *config, z3d_dtype dtype);

/* Says what this rank does between the engine's instructions, for the watchdog's reports:
 * "start-up: opening data" (up to 60 bytes). Not collective. */
void z3d_trainer_place(z3d_trainer *trainer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Says that this rank waits for the other ranks, until the next z3d_trainer_place. Not collective.
 */
void z3d_trainer_wait_place(z3d_trainer *trainer);

/* Every rank's *text becomes that of `rank` (never NULL). Collective, agreed. */
z3d_status z3d_trainer_share(z3d_trainer *trainer, int rank, z3d_string *text);
/* As z3d_world_agree, but rank 0's own failure keeps its message unchanged. */
z3d_status z3d_trainer_agree(z3d_trainer *trainer, z3d_status mine);
/* z3d_trainer_agree; then rank 0's `data` is copied to all ranks. Collective, agreed. */
z3d_status z3d_trainer_take_from_root(z3d_trainer *trainer, z3d_status mine, void *data,
                                      int64_t bytes);

/* checkpoints.c. */
/* Sets checkpoint_dir. Not collective. */
z3d_status z3d_trainer_name_checkpoints(z3d_trainer *trainer);
/* *out: the resolved configuration of the run that this one resumes; NULL: it resumes none. Not
 * collective. */
z3d_status z3d_trainer_saved_config(const z3d_trainer *trainer, z3d_config **out);
/* extend.c. Not collective. */
/* With --extend: the end of the learning-rate schedule becomes that in the checkpoint; or
 * training.steps, if the learning rate at that end is 0. One line tells it. saved: the checkpoint's
 * configuration; NULL: none. */
z3d_status z3d_trainer_extend(z3d_trainer *trainer, const z3d_config *saved);
/* Without --extend: returns the error that says how to train beyond the end of the checkpoint's
 * schedule. */
z3d_status z3d_trainer_refuse_extension(const z3d_trainer *trainer, const z3d_config *saved);

/* kept_keys.c. The type of gradients in a checkpoint's run. `auto` in its configuration is from an
 * older version or an fp32 run: its gradients had the model's type. */
z3d_accum z3d_trainer_saved_accum(const z3d_config *saved);
/* ERR_CONFIG with every key that a resumed run changes but must keep. Not collective. */
z3d_status z3d_trainer_compare_configs(const z3d_trainer *trainer, const z3d_checkpoint_info *info);
/* *out: the configuration in a checkpoint; the caller destroys it, also after an error; NULL: no
 * memory. Errors: those of z3d_config_read_text. */
z3d_status z3d_trainer_read_saved(const char *text, z3d_config **out);
/* Accepts a checkpoint for its weights (z3d_checkpoint_accept; trainer: a z3d_trainer). ERR_CONFIG
 * if the adapters' factors differ from those in the checkpoint. Not collective. */
z3d_status z3d_trainer_compare_adapters(void *trainer, const z3d_checkpoint_info *info);
/* Appends the model's sizes in `there` that differ from `here`, as arguments: "model.num_layers=2".
 */
void z3d_trainer_name_sizes(const z3d_config *here, const z3d_config *there, z3d_string *out);

/* These are collective and agreed. */
/* Opens the run's folder of checkpoints. Resumes from a checkpoint, or loads weights, as the
 * configuration says. Call it after creating the engine. */
z3d_status z3d_trainer_resume(z3d_trainer *trainer);
/* Sets the link to the best checkpoint as the last save should have left it; without
 * checkpoint.keep_best removes it. A complete run, which saves nothing, never removes it. */
z3d_status z3d_trainer_link_best(z3d_trainer *trainer);
/* Loads only the weights of the checkpoint that a user's path means; average: the average of the
 * weights instead. *step: the step after which it was saved. */
z3d_status z3d_trainer_load_weights(z3d_trainer *trainer, const char *path, bool average,
                                    int64_t *step);
/* Call it after step `step`: advances a save in flight, or begins a save that is due. A skipped
 * step has nothing new to save and must not replace a good checkpoint, so a due save waits for the
 * next step that is not skipped. now: save at this step in any case, because the run ends here or
 * has its lowest validation loss here. last: the run ends here; finishes the save before it
 * returns. */
z3d_status z3d_trainer_checkpoint(z3d_trainer *trainer, int64_t step, bool skipped, bool last,
                                  bool now);
/* Call it after a failure of all ranks; returns that failure. Finishes a save in flight, so that
 * the next start resumes from it. */
z3d_status z3d_trainer_end_save(z3d_trainer *trainer, z3d_status failure);

/* generate_from.c: continues a prompt as the configuration says. Rank 0 appends the prompt and its
 * continuation, fit for a terminal, to *out. *stopped: a signal ended it early. Collective, agreed.
 */
z3d_status z3d_trainer_sample(z3d_trainer *trainer, const char *prompt, z3d_string *out,
                              bool *stopped);
/* An error if the model cannot read the prompt. Not collective. */
z3d_status z3d_trainer_check_prompt(const z3d_trainer *trainer, const char *prompt);

/* samples.c. */
/* The same for all prompts of the run. Not collective. */
z3d_status z3d_trainer_check_prompts(const z3d_trainer *trainer);
/* Continues the run's prompts and shows the texts. With generate.every it also writes them to
 * samples.jsonl, unless the run was complete at its start. *stopped: a signal ended it early.
 * Collective, agreed. */
z3d_status z3d_trainer_sample_all(z3d_trainer *trainer, int64_t step, bool last, bool *stopped);

/* best.c. */
/* Records the validation loss of a step; returns whether it is the lowest so far. The same on all
 * ranks, not collective. */
bool z3d_trainer_judge(z3d_trainer *trainer, int64_t step, double loss);
/* Whether training.early_stopping_patience ends the run. */
bool z3d_trainer_ends_early(const z3d_trainer *trainer);
enum { Z3D_EARLY_TEXT = 160 };
/* Writes the reason to `out` and returns it; NULL: the run does not end early. */
const char *z3d_trainer_why_early(const z3d_trainer *trainer, char out[Z3D_EARLY_TEXT]);
/* Call it at the start, after the checkpoint's evaluations were loaded. The lowest loss and the
 * count of early_stopping_patience begin again if the validation data have changed, or if
 * checkpoint.keep_best is set and the folder lacks the best checkpoint; one line says so.
 * Collective, agreed. */
z3d_status z3d_trainer_take_evaluations(z3d_trainer *trainer);

/* placement.c. Divides the cores of a node among its ranks. *threads = `wanted`; for Z3D_AUTO, the
 * number of cores that this process may use, divided by the number of ranks of this node that may
 * use the same cores, at least 1. If every rank gets its own cores, this process is bound to its
 * share. (mpirun's binding would put all threads of a rank on one core; zero3d-launch turns it
 * off.) Collective over the world; failures are agreed. */
z3d_status z3d_place_threads(z3d_world *world, int64_t wanted, int *threads);

/* For a failure of this rank alone, while the others are in a collective or on the way to one. Ends
 * the run on all ranks and does not return; in a world of one rank it returns `status`. Not
 * collective. */
z3d_status z3d_trainer_stop_all(z3d_trainer *trainer, z3d_status status);

/* memory.c, not collective except for z3d_trainer_find_memory. Bytes outside the plan; -1: unknown.
 * The peak of this process's resident memory minus planned bytes (arenas, communication buffers,
 * the copy for asynchronous saves): MPI, oneDNN, other libraries, the program itself. On a device
 * with its own memory: the bytes in use there, by any process, minus the arena: context, libraries'
 * workspaces, kernels' scratch. */
int64_t z3d_trainer_outside_bytes(const z3d_trainer *trainer);
/* Bytes of device memory that libraries will take outside the plan; 0 if device memory is host
 * memory. opened: without the bytes that they took when the device was created. */
int64_t z3d_trainer_reserve(const z3d_trainer *trainer, bool opened);
/* Resident bytes of this process that belong to no file and are not shared; 0: unknown. */
int64_t z3d_trainer_own_bytes(void);
/* The memory of the rank with the largest planned peaks. With one pipeline stage and equal samples
 * all ranks have the same plan: then each rank gets its own. Collective, agreed. */
z3d_status z3d_trainer_find_memory(z3d_trainer *trainer, z3d_rank_memory *out);
/* The process's resident memory by use; false: unknown. */
bool z3d_trainer_resident(const z3d_trainer *trainer, z3d_resident *out);
/* Bytes of this rank's arenas in the process's memory. */
int64_t z3d_trainer_arena_bytes(const z3d_trainer *trainer);

/* data/batches.c, not collective. Fills trainer->micro with the data of training step `step`, or of
 * call `call` (from 0) of z3d_trainer_validation_calls for one validation file. ERR_DATA, ERR_IO.
 */
z3d_status z3d_trainer_read_step(z3d_trainer *trainer, int64_t step);
z3d_status z3d_trainer_read_validation(z3d_trainer *trainer, int file, int64_t call);
int64_t z3d_trainer_validation_calls(const z3d_trainer *trainer, int file);
/* Whether training.eval_steps batches are fewer than a validation file has. */
bool z3d_trainer_validation_is_cut(const z3d_trainer *trainer);
/* *out: a digest of the samples that validation reads and of their files' weights, 53 bits, not 0.
 * Not collective. */
z3d_status z3d_trainer_digest_validation(const z3d_trainer *trainer, int64_t *out);

#endif
