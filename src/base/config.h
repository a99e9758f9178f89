/* The configuration: one YAML file, read through one table of typed keys (config/keys.h). The
 * struct below, the reader, `zero3d config`, the reference page and shell completion come from this
 * table. A key's C field is its path with dots as underscores. */
#ifndef ZERO3D_BASE_CONFIG_H
#define ZERO3D_BASE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/config/keys.h"
#include "src/base/status.h"
#include "src/base/strings.h"

/* The value `auto` of an integer key; z3d_config_resolve replaces it. */
#define Z3D_AUTO INT64_MIN
/* The value `epoch` of an interval: the steps of one pass over the training data, which
 * z3d_config_resolve computes. */
#define Z3D_EPOCH (INT64_MIN + 1)
/* Whether a FLOAT key is `auto`: its value is then NaN. */
static inline bool z3d_is_auto(double value) {
    return value != value;
}

/* Enumerations, in the order of their key's option list in the table. */
typedef enum {
    Z3D_GRANULARITY_FULL,
    Z3D_GRANULARITY_SELECTIVE,
    Z3D_GRANULARITY_NONE,
    Z3D_GRANULARITY_AUTO
} z3d_granularity;
typedef enum { Z3D_OFFLOAD_OFF, Z3D_OFFLOAD_ON, Z3D_OFFLOAD_AUTO, Z3D_OFFLOAD_NVME } z3d_offload;
typedef enum {
    Z3D_OFFLOAD_DEVICE_NONE,
    Z3D_OFFLOAD_DEVICE_CPU,
    Z3D_OFFLOAD_DEVICE_NVME
} z3d_offload_device;
typedef enum { Z3D_REPLAY_MINIMAL, Z3D_REPLAY_FULL } z3d_replay;
typedef enum { Z3D_RECOMPUTE_AUTO, Z3D_RECOMPUTE_TRUE, Z3D_RECOMPUTE_FALSE } z3d_recompute;
typedef enum {
    Z3D_GRAD_REDUCE_AUTO,
    Z3D_GRAD_REDUCE_PER_STEP,
    Z3D_GRAD_REDUCE_PER_MICROBATCH
} z3d_grad_reduce;
typedef enum {
    Z3D_PIPELINE_GATHER_AUTO,
    Z3D_PIPELINE_GATHER_PER_STEP,
    Z3D_PIPELINE_GATHER_PER_MICROBATCH
} z3d_pipeline_gather;
typedef enum {
    Z3D_PIPELINE_AUTO,
#define X(NAME, ...) Z3D_PIPELINE_##NAME, /* z3d_schedule_kind + 1 */
    Z3D_SCHEDULE_MAP(X)
#undef X
} z3d_pipeline_schedule;
typedef enum { Z3D_ALGORITHM_RING, Z3D_ALGORITHM_HIERARCHICAL, Z3D_ALGORITHM_AUTO } z3d_algorithm;
typedef enum { Z3D_ACCUM_AUTO, Z3D_ACCUM_FP32, Z3D_ACCUM_BF16, Z3D_ACCUM_FP16 } z3d_accum;
typedef enum { Z3D_MOMENTS_FP32, Z3D_MOMENTS_BF16 } z3d_moments_dtype;
typedef enum { Z3D_DECAY_COSINE, Z3D_DECAY_LINEAR, Z3D_DECAY_1_SQRT } z3d_decay_type;
typedef enum { Z3D_TRAINING_CPU, Z3D_TRAINING_CUDA } z3d_training_device;
typedef enum { Z3D_COLLECTIVES_AUTO, Z3D_COLLECTIVES_NCCL, Z3D_COLLECTIVES_HOST } z3d_collectives;
typedef enum { Z3D_CUDA_GRAPH_AUTO, Z3D_CUDA_GRAPH_ON, Z3D_CUDA_GRAPH_OFF } z3d_cuda_graph;
typedef enum {
    Z3D_CONFIG_ATTENTION_AUTO,
    Z3D_CONFIG_ATTENTION_CUDNN,
    Z3D_CONFIG_ATTENTION_OWN
} z3d_config_attention;
typedef enum { Z3D_IGNORE_EOS_AUTO, Z3D_IGNORE_EOS_TRUE, Z3D_IGNORE_EOS_FALSE } z3d_ignore_eos;
typedef enum {
    Z3D_TOKENIZER_BYTES,
    Z3D_TOKENIZER_GPT2,
    Z3D_TOKENIZER_HUGGINGFACE
} z3d_tokenizer_kind;
typedef enum {
    Z3D_SPECIAL_AUTO,
    Z3D_SPECIAL_NONE,
    Z3D_SPECIAL_BOS,
    Z3D_SPECIAL_EOS,
    Z3D_SPECIAL_BOTH
} z3d_special;
typedef enum { Z3D_SAMPLES_WINDOWS, Z3D_SAMPLES_DOCUMENTS } z3d_samples;
/* The treatment of documents with more than model.seq_length tokens. */
typedef enum {
    Z3D_TOO_LONG_TRUNCATE, /* keep the first tokens */
    Z3D_TOO_LONG_DROP,
    Z3D_TOO_LONG_SPLIT /* into documents of model.seq_length tokens and a rest */
} z3d_too_long;

/* The value of a LIST. A STRING belongs to the configuration, and is NULL or "" if not set. */
typedef struct z3d_data_list {
    int count;
    const char **path; /* of data files, or texts */
    double *weight;    /* positive; 1 if not set */
} z3d_data_list;

/* parallel.pipeline_partition: one of the words, in the order of the rule, or a list. */
typedef enum {
    Z3D_PARTITION_TIME,
    Z3D_PARTITION_PARAMETERS,
    Z3D_PARTITION_UNIFORM,
    Z3D_PARTITION_LIST
} z3d_partition;

/* training.gemm.cuda: one of its words, or the lines of src/device/gemm_choices.h. */
typedef enum { Z3D_CUDA_GEMM_HEURISTIC, Z3D_CUDA_GEMM_TIMED, Z3D_CUDA_GEMM_LIST } z3d_gemm_policy;
/* parallel.device_speeds: likewise. */
typedef enum { Z3D_SPEEDS_EQUAL, Z3D_SPEEDS_MEASURED, Z3D_SPEEDS_LIST } z3d_device_speeds;

/* How two values of a key change the bits of a run. ..._SUMS: every sum depends on the key, so the
 * sums of two values are not compared. src/plan/prove/keys.c has the rule of each class. */
typedef enum {
    Z3D_BITS_NONE,   /* never */
    Z3D_BITS_SUM,    /* only through the step programs, whose sums `prove` compares */
    Z3D_BITS_DECIDE, /* the bits may differ, or be equal: numbers round alike, the run never reaches
                        the key's case, or two names mean the same */
    Z3D_BITS_DECIDE_SUMS,    /* likewise */
    Z3D_BITS_ROUND_SUMS,     /* likewise: the key chooses between two kinds of reductions */
    Z3D_BITS_BOUND,          /* likewise: the key is a bound that some steps reach */
    Z3D_BITS_FILES,          /* likewise: the key names files, whose contents may be equal */
    Z3D_BITS_METHOD,         /* likewise: the key chooses how a product is computed */
    Z3D_BITS_METHOD_ON_GPUS, /* likewise, only with training.device cuda */
    Z3D_BITS_DECIDE_ON_GPUS, /* DECIDE, only with training.device cuda */
    Z3D_BITS_UPDATE,         /* the bits differ after the first step that changes parameters */
    Z3D_BITS_WEIGHTS,        /* the bits differ if the first weights are random numbers */
    Z3D_BITS_WEIGHTS_SUMS,   /* likewise */
    Z3D_BITS_DIFFER,         /* the bits always differ */
    Z3D_BITS_DIFFER_SUMS     /* as DIFFER */
} z3d_config_bits;

/* Whether a resumed run must keep the value of the checkpoint's run (src/train/kept_keys.c). */
typedef enum {
    Z3D_RESUME_FREE,    /* no */
    Z3D_RESUME_KEPT,    /* yes. With another value a new run can start from the weights */
    Z3D_RESUME_SIZE,    /* yes. With another value the weights do not fit */
    Z3D_RESUME_ADAPTED, /* yes. With another value the adapters do not fit, but their base does */
    Z3D_RESUME_SCALE,   /* likewise; a new run that starts from the adapters must keep it, too */
    Z3D_RESUME_PENDING, /* only while gradients wait for the next step: it decides their type */
    Z3D_RESUME_END      /* only if the learning rate decays: it is the decay's end */
} z3d_config_resume;

/* Whether generate and evaluate take the value from a checkpoint (src/train/inference_config.c). */
typedef enum {
    Z3D_INFERENCE_STAYS,   /* yes */
    Z3D_INFERENCE_STANDARD /* no, the default: the value is about the training's ranks, samples or
                              memory */
} z3d_config_inference;

/* The part of a key's row that is about other runs. */
typedef struct z3d_config_meaning {
    const char *path;
    z3d_config_bits bits;
    z3d_config_resume resume;
    z3d_config_inference inference;
} z3d_config_meaning;

#define X(...) +1
enum { Z3D_CONFIG_KEY_COUNT = 0 Z3D_CONFIG_KEYS(X) };
#undef X
extern const z3d_config_meaning z3d_config_meanings[Z3D_CONFIG_KEY_COUNT];

typedef int64_t z3d_config_INT;
typedef double z3d_config_FLOAT;
typedef bool z3d_config_BOOL;
typedef const char *z3d_config_STRING;
typedef int z3d_config_ENUM;
typedef struct {
    double value[2];
} z3d_config_FLOAT2;
typedef z3d_data_list z3d_config_LIST;

typedef struct z3d_config {
#define X(field, path, type, ...) z3d_config_##type field;
    Z3D_CONFIG_KEYS(X)
#undef X
    struct z3d_config_origin *origin; /* private: the place of each key, for messages */
} z3d_config;

/* Creates a configuration with all keys at their defaults. ERR_MEMORY. */
z3d_status z3d_config_create(z3d_config **out);
void z3d_config_destroy(z3d_config *config);

/* Reads a file, or a text (`name` is for messages); its keys replace values that were set before.
 * Safe for any bytes. ERR_CONFIG for unknown keys, keys set twice, wrong types, values out of
 * range, tabs, anchors: one line for each error, "file:line:column: problem; remedy". The
 * configuration keeps the errors: after an error, continue with overrides and z3d_config_check,
 * whose message has all lines. Names in data.vocab, data.merges and checkpoint.init_from become
 * whole paths if they lie beside the file. ERR_IO: the file cannot be read. */
z3d_status z3d_config_read_file(z3d_config *config, const char *path);
z3d_status z3d_config_read_text(z3d_config *config, const char *text, size_t length,
                                const char *name);
/* Sets one "key.path=value" from the command line; the value is YAML, or plain text for a text key.
 * Errors as above. */
z3d_status z3d_config_override(z3d_config *config, const char *assignment);
/* Sets keys to their defaults, as overrides do: those of `paths`, which are separated by spaces;
 * those of class Z3D_INFERENCE_STANDARD. */
z3d_status z3d_config_leave(z3d_config *config, const char *paths);
z3d_status z3d_config_leave_training(z3d_config *config);

/* Logs the notes, such as keys without effect, once: one line for all keys with the same reason.
 * The checks below call it. */
void z3d_config_tell(z3d_config *config);

/* True if the user set this key (file or override). */
bool z3d_config_is_set(const z3d_config *config, const char *path);
/* Returns ERR_CONFIG; the message begins with the place where `path` was set: "run.yaml:12:3:
 * model.hidden_size: <message>". */
z3d_status z3d_config_error(const z3d_config *config, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Takes the errors of a model's keys. sound: whether this key has no error so far. */
typedef struct z3d_config_judge {
    void *context;
    bool (*sound)(void *context, const char *key);
    void (*complain)(void *context, const char *key, const char *message);
    /* `key` has no effect because of the value of `cause`; because: "with model.type gpt2". An
     * error, if `key` is not at its default. */
    void (*idle)(void *context, const char *key, const char *cause, const char *because);
    int ranks; /* ranks of the run; 0: not known */
} z3d_config_judge;

/* The models' rules for their keys (z3d_model_rules in src/model/model.h). */
typedef struct z3d_config_rules {
    void (*check)(const z3d_config *config, const z3d_config_judge *judge);
    int64_t (*width)(const z3d_config *config); /* elements per token of the widest activation */
    int64_t (*units)(
        const z3d_config *config); /* units to divide over pipeline stages; 0: not known */
} z3d_config_rules;

/* Checks that need only the configuration: heads divide hidden, not both fp16 and bf16, options
 * without effect, ... ERR_CONFIG has one line for each error. z3d_config_resolve has the checks
 * that depend on the world. If an override makes a key of the file useless, the key gets its
 * default again, with a note. rules: NULL leaves out the models' rules. */
z3d_status z3d_config_check(z3d_config *config, const z3d_config_rules *rules);
/* The same, with the checks that only training needs. */
z3d_status z3d_config_check_training(z3d_config *config, const z3d_config_rules *rules);
/* The number of ranks with one copy of the model: the product of Z3D_CONFIG_AXES; INT64_MAX: too
 * many. */
int64_t z3d_config_model_ranks(const z3d_config *config);
/* The reason why the data axis is cut into data_inner and data_outer (z3d_sharding). */
typedef enum z3d_data_cut {
    Z3D_CUT_NONE,
    Z3D_CUT_HIERARCHICAL,
    Z3D_CUT_HPZ,
    Z3D_CUT_HYBRID
} z3d_data_cut;
z3d_data_cut z3d_config_data_cut(const z3d_config *config);
/* Whether this cut is possible with the ZeRO stage. */
bool z3d_cut_takes_stage(z3d_data_cut cut, int stage);
/* Whether comms_logger reports this kind of collective (z3d_collective_name). */
bool z3d_config_logs_collective(const z3d_config *config, const char *name);
/* The size of data_inner for `data` data ranks; `data` if the axis is not cut. */
int64_t z3d_config_data_inner(const z3d_config *config, int64_t data);
/* The steps of warm-up: warmup_num_steps, or warmup_ratio times the steps up to the schedule's end.
 * z3d_config_resolve writes the number to warmup_num_steps. */
int64_t z3d_config_warmup_steps(const z3d_config *config);
/* Whether the learning-rate schedule has an end, scheduler.params.total_num_steps. */
bool z3d_config_decays(const z3d_config *config);
/* Whether a run generates samples. */
bool z3d_config_has_prompts(const z3d_config *config);
/* Whether checkpoint.resume is a path, neither auto nor never. */
bool z3d_config_resumes_path(const z3d_config *config);
/* The pipeline schedule, never AUTO; the number of its chunks over all pipeline stages. */
z3d_schedule_kind z3d_config_pipeline_schedule(const z3d_config *config);
int64_t z3d_config_chunks(const z3d_config *config);
z3d_gemm_policy z3d_config_cuda_gemm(const z3d_config *config);
/* Whether a key is set that has an effect only with activation checkpoints (granularity full). */
bool z3d_config_wants_checkpoints(const z3d_config *config);
/* data_types.grad_accum_dtype of a resolved configuration; AUTO only in fp32 runs, which have no
 * choice. */
z3d_accum z3d_config_grad_accum(const z3d_config *config);
/* The kind of partition of units over chunks. For a LIST *count is its length, and units (may be
 * NULL) gets the first `capacity` numbers; otherwise *count is 0. */
z3d_partition z3d_config_partition(const z3d_config *config, int64_t *units, int capacity,
                                   int *count);
/* The same for the ranks' speeds. */
z3d_device_speeds z3d_config_device_speeds(const z3d_config *config, double *speed, int capacity,
                                           int *count);
/* Appends the folder in key `path`, with a leading ~, $NAME and ${NAME} replaced from the
 * environment. ERR_CONFIG: a variable is not set. */
z3d_status z3d_config_expand(const z3d_config *config, const char *path, z3d_string *out);
/* Computes the values that depend on the world size: data-parallel size, the third batch key.
 * ERR_CONFIG: a contradiction, with the numbers and a remedy. */
z3d_status z3d_config_resolve(z3d_config *config, const z3d_config_rules *rules, int world_size,
                              int *data_parallel_size);
/* Sets the number of samples in one pass over data.train. z3d_config_resolve then computes
 * training.steps from training.epochs, which becomes 0. Without this call steps stay auto. */
void z3d_config_set_epoch(z3d_config *config, int64_t samples);
/* z3d_config_check and z3d_config_resolve together: one message has all errors. */
z3d_status z3d_config_settle(z3d_config *config, const z3d_config_rules *rules, int world_size,
                             int *data_parallel_size);

/* Converts a DeepSpeed file, or Megatron-LM's arguments (a list, YAML, a log, or the words of a
 * command), to our YAML. table: a report with a row for each setting. *complete: every setting is
 * supported. type: "bf16" or "fp16", for a DeepSpeed file that says auto; NULL: not known.
 * ERR_DATA, ERR_IO: the input cannot be read. */
z3d_status z3d_config_from_deepspeed(const char *path, const char *type,
                                     const z3d_config_rules *rules, z3d_string *yaml,
                                     z3d_string *table, bool *complete);
z3d_status z3d_config_from_megatron(const char *path, const z3d_config_rules *rules,
                                    z3d_string *yaml, z3d_string *table, bool *complete);
z3d_status z3d_config_from_megatron_command(const char *const *words, int count,
                                            const z3d_config_rules *rules, z3d_string *yaml,
                                            z3d_string *table, bool *complete);

/* Appends every key as YAML that reads back to the same values. */
void z3d_config_write(const z3d_config *config, z3d_string *out);
/* Creates a configuration with the keys that are set in this one. ERR_MEMORY. */
z3d_status z3d_config_copy(const z3d_config *config, z3d_config **out);
/* z3d_config_write without the keys that have their defaults, except those in `also` (up to NULL).
 */
void z3d_config_write_changed(const z3d_config *config, const char *const *also, z3d_string *out);
/* Appends a key's value on one line, as YAML. */
void z3d_config_value(const z3d_config *config, const char *path, z3d_string *out);
/* Appends a key's value for a message that compares runs: lists without brackets; for data files,
 * which may have moved, only their number and weights. */
void z3d_config_value_to_compare(const z3d_config *config, const char *path, z3d_string *out);
/* Appends every key with type, default and meaning, as text for a terminal or as the Markdown
 * reference page. */
void z3d_config_describe(bool markdown, z3d_string *out);
/* Appends all key paths, one per line, for shell completion. */
void z3d_config_list_keys(z3d_string *out);

/* The key that ends in this name, or that has this name in another framework; NULL: none. */
const char *z3d_config_key_named(const char *name);

#endif
