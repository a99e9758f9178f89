/* The inside of the configuration reader: the key table as an array, and where each key was set.
 * Only src/base/config/ includes this. */
#ifndef ZERO3D_BASE_CONFIG_TABLE_H
#define ZERO3D_BASE_CONFIG_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/config.h"
#include "src/base/config/convert/foreign.h"

typedef enum config_type {
    CONFIG_INT,
    CONFIG_FLOAT,
    CONFIG_BOOL,
    CONFIG_STRING,
    CONFIG_ENUM,
    CONFIG_FLOAT2,
    CONFIG_LIST
} config_type;

typedef struct config_key {
    const char *path, *standard, *rule, *help;
    config_type type;
    size_t offset; /* of the field in z3d_config */
} config_key;

enum {
#define X(field, ...) CONFIG_KEY_##field,
    Z3D_CONFIG_KEYS(X)
#undef X
        CONFIG_KEY_COUNT
};

extern const config_key config_table[CONFIG_KEY_COUNT];

/* Keys without a field: accepted without effect, or of a later version. */
typedef struct config_note {
    const char *path, *why;
    const char *off;     /* later: values without effect, which are accepted, with | between */
    const char *instead; /* later: what is wrong with it; "": "<why>: not supported yet" */
} config_note;

extern const config_note config_accepted[];
extern const int config_accepted_count;
enum {
#define X(path, off, why, instead) +1
    CONFIG_LATER_COUNT = 0 Z3D_CONFIG_LATER(X)
#undef X
};
extern const config_note config_later[CONFIG_LATER_COUNT];

/* Where something was written. source indexes the origin's names; -1: nowhere, it is the default.
 * line 0: an override, which has a text but no lines. */
typedef struct config_place {
    int source, line, column;
} config_place;

/* All errors, one line each; only the first ones are kept. */
typedef struct config_errors {
    z3d_string text;
    int kept, total;
} config_errors;

/* Adds the stored message. */
void config_errors_add(config_errors *errors);
/* Removes an error with exactly this line. */
void config_errors_remove(config_errors *errors, const char *line);
/* OK when there are none, else ERR_CONFIG with all lines. */
z3d_status config_errors_status(const config_errors *errors);

/* One of Z3D_CONFIG_PEERS as it was written; a switch is 1. */
enum {
#define X(name, path, type, rule) CONFIG_PEER_##name,
    Z3D_CONFIG_PEERS(X)
#undef X
        CONFIG_PEER_COUNT
};

typedef struct config_peer {
    config_place place; /* source -1: not written */
    double value;
} config_peer;

extern const config_key config_peer_key[CONFIG_PEER_COUNT]; /* without a field */
int config_find_peer(const char *path);

/* The report about another framework's settings: rows of text, by verdict. The most important rows
 * come last, where a terminal shows them. */
typedef enum config_verdict {
    CONFIG_TAKEN,
    CONFIG_NO_EFFECT,
    CONFIG_DEFAULTED, /* not set: their default, which differs from ours, is written */
    CONFIG_DIFFERENT, /* not the same here: no key of ours has this value */
    CONFIG_REFUSED,
    CONFIG_VERDICTS
} config_verdict;

typedef struct config_report {
    z3d_string rows[CONFIG_VERDICTS];
    int count[CONFIG_VERDICTS];
} config_report;

void config_report_add(config_report *report, config_verdict verdict, const char *what,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Removes the rows about the key `path`. */
void config_report_remove(config_report *report, config_verdict verdict, const char *path);

/* One line for people, or a part of one (tell.c). */
typedef struct config_told {
    config_place place;
    char *path;
    const char *what; /* static: CONFIG_IDLE_HERE, CONFIG_IS_AUTO, or other words after the path */
    char *why;        /* the reason; with CONFIG_IS_AUTO: the key's value */
    int group;        /* index of the first one on the same line */
    bool folded;      /* the line leaves out the reason */
} config_told;

#define CONFIG_IDLE_HERE "has no effect here:"
#define CONFIG_IS_AUTO "is auto:"

struct z3d_config_origin {
    config_place place[CONFIG_KEY_COUNT];
    bool wrong[CONFIG_KEY_COUNT];    /* an error is about this key: checks do not use its value */
    bool is_auto[CONFIG_KEY_COUNT];  /* written auto (Z3D_CONFIG_AUTO) */
    bool cut;                        /* a syntax error ended a text: later keys are unknown */
    config_errors errors;            /* of reading */
    char *later[CONFIG_LATER_COUNT]; /* the error of a file's entry; an override may remove it */
    config_peer peer[CONFIG_PEER_COUNT];
    config_report *report; /* of a conversion; NULL: notes are logged, errors are errors */
    config_told *told;     /* until z3d_config_tell */
    int told_count, untold;
    bool type_told;
    int64_t epoch_samples; /* 0: not known */
    char **name;           /* of files, and the texts of overrides */
    int name_count;
};

/* Adds the stored message to the errors of reading. path: what it is about (a key, a section or
 * NULL). */
void config_add_error(z3d_config *config, const char *path);
/* Marks all keys that are `path` or lie below it as wrong. */
void config_mark_wrong(z3d_config *config, const char *path);
/* For an unknown setting of another framework: marks the keys that its name may mean as wrong, so
 * that no default is written for them. */
void config_doubt(z3d_config *config, const char *name);
/* Adds a line for z3d_config_tell: "<place>: <path> <what> <why>". `what` must be static. */
void config_tell(const z3d_config *config, config_place place, const char *path, const char *what,
                 const char *why);
void config_forget_told(struct z3d_config_origin *origin);
/* Gives a key its default again, as if nobody had set it. */
void config_unset(z3d_config *config, int key);
/* The same for all keys below `path`. */
void config_unset_section(z3d_config *config, const char *path);
/* Whether the key's value is from a file; from an override. */
bool config_is_from_file(const z3d_config *config, const char *path);
bool config_is_overridden(const z3d_config *config, const char *path);
/* Whether the user wrote the key, also as auto. */
bool config_is_written(const z3d_config *config, const char *path);

/* The state of z3d_config_check and z3d_config_resolve, which add to `errors`. */
typedef struct config_checker {
    z3d_config *c;
    const z3d_config_rules *rules; /* NULL: none */
    config_errors *errors;
    int ranks;   /* 0: not known */
    bool trains; /* also refuses what is wrong only in training */
    bool wrong[CONFIG_KEY_COUNT];
} config_checker;

void config_checker_begin(config_checker *k, z3d_config *config, const z3d_config_rules *rules,
                          config_errors *errors);
/* Whether none of the keys has an error; NULL ends the list. */
bool config_sound(const config_checker *k, ...) __attribute__((sentinel));
/* Adds an error with the key's place, and marks the key as wrong. */
void config_complain(config_checker *k, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void config_check_into(config_checker *k);
/* Rules of pipelines: those of the file alone; those of the number of micro-batches. */
void config_check_pipeline(config_checker *k);
bool config_check_micro_batches(config_checker *k, int64_t data);
/* The type in which gradients travel; the batch must be resolved. */
void config_check_wire(config_checker *k);
/* hpZ, hybrid sharding, hierarchical collectives: rules of the file alone; of the number of data
 * ranks. */
void config_check_sharding(config_checker *k);
bool config_check_partition(config_checker *k, int64_t data);
/* Which collectives are reported. */
void config_check_comms(config_checker *k);
/* The ranks' speeds: each of them; their number. */
void config_check_speeds(config_checker *k);
/* Where optimizer states and parameters lie. */
void config_check_offload(config_checker *k);
/* Refuses offloaded parameters without an offloaded optimizer, which only generate and evaluate
 * allow. */
void config_check_offload_alone(config_checker *k);
/* The folder of activation checkpoints. */
void config_check_checkpoint_folder(config_checker *k);
bool config_check_ranks_speeds(config_checker *k, int ranks);
/* training.epochs. The check sets training.steps to auto; config_resolve_epochs computes the number
 * if the samples of a pass are known. False: refused. */
void config_check_epochs(config_checker *k);
bool config_resolve_epochs(config_checker *k);
/* Checks that the warm-up ends before the decay's end, if that end is known. given: the key that
 * says how long the run is. */
void config_check_warmup(config_checker *k, const char *given);
void config_resolve_into(config_checker *k, int world_size, int *data_parallel_size);
/* Adam with adam_w_mode is AdamW. */
void config_settle_optimizer(z3d_config *c);
/* Sets the keys that Z3D_CONFIG_PEERS stand for, or reports a contradiction. */
void config_settle_peers(config_checker *k);

/* A key's value as YAML. */
void config_append_value(z3d_string *out, const z3d_config *config, const config_key *key,
                         int indent);
/* Whether a key has its default's value. */
bool config_is_standard(const z3d_config *config, const char *path);
/* The keys that are set, as YAML. */
void config_write_set(const z3d_config *config, z3d_string *out);

/* Keeps a copy of the name; *source is its index. */
z3d_status config_add_source(z3d_config *config, const char *name, int *source);
/* "run.yaml:12:3" or "override model.num_layers=3". */
void config_format_place(const z3d_config *config, config_place place, z3d_string *out);

/* Length of the "key: " that begins a message and that its place repeats (an override of this key);
 * else 0. */
size_t config_repeated_key(const z3d_config *config, config_place place, const char *message);

/* Index of a key / an accepted key / a later key with exactly this path, -1: none. */
int config_find(const char *path);
int config_find_accepted(const char *path);
int config_find_later(const char *path);
/* Whether some key's path (of any of the three tables) begins with "path." */
bool config_is_section(const char *path);
/* The key or section that a user may mean, also by a name of another framework
 * ("global_batch_size"), in buf; NULL: none is near. */
const char *config_nearest(const char *path, char *buf, size_t size);
/* Sets a key from its text in keys.h: "[0.9, 0.95]", "5e8". */
z3d_status config_set_text(z3d_config *config, const config_key *key, const char *text);
/* Frees what a key's value has on the heap. */
void config_release_value(z3d_config *config, const config_key *key);
/* The option of "a|b|c" nearest to text, NULL if none is near; in buf. */
const char *config_nearest_option(const char *options, const char *text, char *buf, size_t size);

/* Interval of a number's rule. */
typedef struct config_range {
    bool low_open, high_open, allow_auto, allow_epoch;
    double low, high;
    int64_t low_int, high_int;
} config_range;

z3d_status config_parse_range(const config_key *key, config_range *out);

/* A list of numbers as text, "[4, 3, 3, 4]" or "4,3,3,4". type: INT (out: int64_t) or FLOAT (out:
 * double). Keeps the first `capacity`, counts all. Errors: ERR_CONFIG with what is no number. */
z3d_status config_parse_numbers(const char *text, config_type type, void *out, int capacity,
                                int *count);
/* Whether a text is meant as such a list. */
bool config_is_numbers(const char *text);
/* The index of a STRING's text among the words of its rule. For a list it is the number of words;
 * *count is then the list's length, and out (may be NULL) gets the first `capacity` numbers. */
int config_word_or_list(const config_key *key, const char *text, void *out, int capacity,
                        int *count);
/* Type INT or FLOAT of the numbers in the list that the rule of a STRING allows. */
config_type config_list_type(const config_key *key);

/* What would be right: "an integer from 1 to 65536 or auto". */
void config_expected(const config_key *key, z3d_string *out);
/* A type's name for people: "integer". */
const char *config_type_name(config_type type);
/* Option `index` of "a|b|c" into buf; false if there are fewer. */
bool config_option(const char *options, int index, char *buf, size_t size);

/* One scalar as it stands in the file. quoted: between quotes or a block scalar. */
typedef struct config_scalar {
    const char *text;
    bool quoted;
} config_scalar;

/* Sets a key from a scalar. On failure the message says what is wrong and what would be right,
 * without place and key. */
z3d_status config_set_scalar(z3d_config *config, const config_key *key, config_scalar scalar);
/* A FLOAT2's element; a data list's weight; one of Z3D_CONFIG_PEERS. */
z3d_status config_parse_element(const config_key *key, config_scalar scalar, double *out);
z3d_status config_parse_weight(config_scalar scalar, double *out);
z3d_status config_parse_peer(const config_key *key, config_scalar scalar, double *out);
/* Whether a plain scalar says "no value": ~ or null. config_is_empty: or nothing. */
bool config_is_null(config_scalar scalar);
bool config_is_empty(config_scalar scalar);
/* What "auto" stands for in Hugging Face's integration; NULL: this key has none. */
const char *config_auto(const char *path);

z3d_status config_list_append(z3d_data_list *list, const char *path, double weight);
void config_list_free(z3d_data_list *list);

static inline void *config_field(const z3d_config *config, const config_key *key) {
    return (char *)(uintptr_t)config + key->offset;
}

#endif
