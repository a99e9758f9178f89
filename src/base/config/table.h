/* Private to src/base/config/: the key table as an array, and the place where each key was set. */
#ifndef ZERO3D_BASE_CONFIG_TABLE_H
#define ZERO3D_BASE_CONFIG_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/config.h"
#include "src/base/config/convert/foreign.h"

enum { CONFIG_FILE_LIMIT = 1 << 20 }; /* bytes of a file */

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

/* A key without a field: accepted without effect, or not supported yet ("later"). */
typedef struct config_note {
    const char *path, *why;
    const char *off; /* later: values, with | between them, that ask for nothing and are accepted;
                        NULL: the key is accepted */
    const char *instead; /* later: the error; "": "<why>: not supported yet" */
} config_note;

#define X(...) +1
enum { CONFIG_NOTE_COUNT = 0 Z3D_CONFIG_ACCEPTED(X) Z3D_CONFIG_LATER(X) };
#undef X
extern const config_note config_notes[CONFIG_NOTE_COUNT];

/* The place of a value. source: index of the origin's names; -1: the value is the default. line 0:
 * an override. */
typedef struct config_place {
    int source, line, column;
} config_place;

/* All errors. text: the first `kept` of them, one line each. */
typedef struct config_errors {
    z3d_string text;
    int kept, total;
} config_errors;

/* Adds the stored message. */
void config_errors_add(config_errors *errors);
/* Removes the error with exactly this line. */
void config_errors_remove(config_errors *errors, const char *line);
/* OK without errors, else ERR_CONFIG with all lines. */
z3d_status config_errors_status(const config_errors *errors);

/* Z3D_CONFIG_PEERS: keys of other frameworks that set a key of ours. */
enum {
#define X(name, path, type, rule) CONFIG_PEER_##name,
    Z3D_CONFIG_PEERS(X)
#undef X
        CONFIG_PEER_COUNT
};

typedef struct config_peer {
    config_place place; /* source -1: nobody wrote it */
    double value;
} config_peer;

extern const config_key config_peer_key[CONFIG_PEER_COUNT]; /* they have no field */

/* A conversion's report: rows of text for each verdict. The most important verdict is the last one,
 * since a terminal shows the end. */
typedef enum config_verdict {
    CONFIG_TAKEN,
    CONFIG_NO_EFFECT,
    CONFIG_DEFAULTED, /* not given: their default, which differs from ours, is written out */
    CONFIG_DIFFERENT, /* the run differs from theirs */
    CONFIG_REFUSED,
    CONFIG_VERDICTS
} config_verdict;

typedef struct config_report {
    z3d_string rows[CONFIG_VERDICTS];
    int count[CONFIG_VERDICTS];
} config_report;

/* Appends a row: `what`, then the text. */
void config_report_add(config_report *report, config_verdict verdict, const char *what,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Removes the rows about the key `path`. */
void config_report_remove(config_report *report, config_verdict verdict, const char *path);

/* A note about a key. Notes with the same reason share a line (tell.c). */
typedef struct config_told {
    config_place place;
    char *path;
    const char *what; /* static; after the path: CONFIG_IDLE_HERE, CONFIG_IS_AUTO or other words */
    char *why;        /* the reason; with CONFIG_IS_AUTO the value */
    int group;        /* index of the first note in the same line */
    bool folded;      /* printed without its reason */
} config_told;

#define CONFIG_IDLE_HERE "has no effect here:"
#define CONFIG_IS_AUTO "is auto:"

struct z3d_config_origin {
    config_place place[CONFIG_KEY_COUNT];
    bool wrong[CONFIG_KEY_COUNT];   /* an error is about this key: no check uses its value */
    bool is_auto[CONFIG_KEY_COUNT]; /* written auto (Z3D_CONFIG_AUTO) */
    bool cut;                       /* reading ended early: the rest is not known */
    config_errors errors;           /* of reading */
    char *later[CONFIG_NOTE_COUNT]; /* the error of a file's entry; an override may remove it */
    config_peer peer[CONFIG_PEER_COUNT];
    config_report *report; /* of a conversion; NULL: notes and errors instead */
    config_told *told;     /* notes that z3d_config_tell will log */
    int told_count, untold;
    bool type_told;
    int64_t epoch_samples; /* 0: not known */
    z3d_data_list name;    /* names of files, texts of overrides */
};

/* Adds the stored message as an error of reading, or as a row of the report. path: the key or
 * section that it is about, or NULL. */
void config_add_error(z3d_config *config, const char *path);
/* Marks the key `path`, or all keys below the section `path`, as wrong. */
void config_mark_wrong(z3d_config *config, const char *path);
/* Marks as wrong the keys that an unknown setting of another framework may mean. */
void config_doubt(z3d_config *config, const char *name);
/* Stores a note for z3d_config_tell: "<place>: <path> <what> <why>". place: where `path` was
 * written; what: static. In a conversion the note becomes a row of the report. */
void config_tell(const z3d_config *config, config_place place, const char *path, const char *what,
                 const char *why);
void config_forget_told(struct z3d_config_origin *origin);
/* Sets a key to its default, and removes its place. */
void config_unset(z3d_config *config, int key);
/* Whether an override set the key. */
bool config_is_overridden(const z3d_config *config, const char *path);
/* Whether a file or an override has the key, also with the value auto. */
bool config_is_written(const z3d_config *config, const char *path);

/* What z3d_config_check and z3d_config_resolve work on. */
typedef struct config_checker {
    z3d_config *c;
    const z3d_config_rules *rules; /* NULL: none */
    config_errors *errors;
    int ranks;   /* 0: not known */
    bool trains; /* also check what only training needs */
    bool wrong[CONFIG_KEY_COUNT];
} config_checker;

void config_checker_begin(config_checker *k, z3d_config *config, const z3d_config_rules *rules,
                          config_errors *errors);
/* Whether none of the named keys (up to NULL) has an error. */
bool config_sound(const config_checker *k, ...) __attribute__((sentinel));
/* Adds an error at the place of the key, and marks the key as wrong. */
void config_complain(config_checker *k, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Refuses each of `keys` ("a b") that is set and not at its default: the values of `causes` leave
 * it without effect. If only an override is the cause, a key of the file is noted instead, and gets
 * its default. Does nothing if a cause has an error. remedy: an alternative to leaving the key out,
 * or NULL. */
void config_refuse_idle(config_checker *k, const char *keys, const char *causes,
                        const char *because, const char *remedy);
/* The same; accepted: a key of the file is noted in any case (a block is off). */
void config_note_idle(config_checker *k, const char *keys, const char *causes, const char *because,
                      const char *remedy, bool accepted);
/* config_note_idle for keys that only stage 3 reads; false: the stage is 3, or has an error. */
bool config_refuse_below_3(config_checker *k, const char *keys, const char *remedy, bool accepted);
void config_check_into(config_checker *k);
/* Checks of pipelines: of keys alone; of the micro-batches, after the batch is resolved. False:
 * refused. */
void config_check_pipeline(config_checker *k);
bool config_check_micro_batches(config_checker *k, int64_t data);
/* Checks communication_data_type of a resolved batch. */
void config_check_wire(config_checker *k);
/* Checks of hpZ, hybrid sharding and hierarchical collectives: of keys alone; with `data` data
 * ranks. False: refused. */
void config_check_sharding(config_checker *k);
bool config_check_partition(config_checker *k, int64_t data);
/* Checks that a list of device speeds has one for each rank. False: refused. */
bool config_check_ranks_speeds(config_checker *k, int ranks);

void config_check_comms(config_checker *k);
void config_check_offload(config_checker *k);
/* Refuses offload_param without offload_optimizer: only generate and evaluate allow it. */
void config_check_offload_alone(config_checker *k);

void config_check_checkpoint_folder(config_checker *k);
/* training.epochs: sets training.steps to auto; the second to a number, if the samples of a pass
 * are known. False: refused. */
void config_check_epochs(config_checker *k);
bool config_resolve_epochs(config_checker *k);
/* Checks that the warm-up is not beyond the decay's end, if that is known, or cuts the warm-up.
 * given: the key that sets the length of the run. */
void config_check_warmup(config_checker *k, const char *given);
/* Adam with adam_w_mode becomes AdamW. */
void config_settle_optimizer(z3d_config *c);
/* Sets our keys from Z3D_CONFIG_PEERS; complains if a key of ours has another value. */
void config_settle_peers(config_checker *k);

/* Appends a key's value as YAML. indent: of a list's lines. */
void config_append_value(z3d_string *out, const z3d_config *config, const config_key *key,
                         int indent);
/* Whether a key has its default's value. */
bool config_is_standard(const z3d_config *config, const char *path);
/* Appends the keys that are set, as YAML. */
void config_write_set(const z3d_config *config, z3d_string *out);

/* Writes the multiples of `unit` below and above a value: "8 or 16"; "8": 0 is below. */
enum { CONFIG_MULTIPLES = 48 };
const char *config_multiples(int64_t value, int64_t unit, char out[CONFIG_MULTIPLES]);

/* Keeps a copy of the name; *source is its index. ERR_MEMORY. */
z3d_status config_add_source(z3d_config *config, const char *name, int *source);
/* Appends "run.yaml:12:3" or "override model.num_layers=3". */
void config_format_place(const z3d_config *config, config_place place, z3d_string *out);
/* Returns ERR_CONFIG "<place>: <message>", without "key: " at the start of the message if the place
 * is an override of that key, which names it already. */
z3d_status config_error_at(const z3d_config *config, config_place place, const char *message);

/* Index of a key / a key without a field / another framework's key with this path; -1: none. */
int config_find(const char *path);
int config_find_note(const char *path);
int config_find_peer(const char *path);
/* Whether `key` begins with "path." */
bool config_is_below(const char *key, const char *path);
/* Whether some key's path (in any of the tables) begins with "path." */
bool config_is_section(const char *path);
/* The part of a path after its last dot; whether the parts up to there are equal. */
const char *config_leaf(const char *path);
bool config_is_beside(const char *a, const char *b);
/* The key or section that a user may have meant, also by its name in other frameworks
 * ("global_batch_size"); NULL: none is near. May use buf. */
const char *config_nearest(const char *path, char *buf, size_t size);
/* Sets a key from a text as in keys.h: "[0.9, 0.95]", "5e8". */
z3d_status config_set_text(z3d_config *config, const config_key *key, const char *text);
void config_release_value(z3d_config *config, const config_key *key);
/* The option of "a|b|c" nearest to text, in buf; NULL: none is near. */
const char *config_nearest_option(const char *options, const char *text, char *buf, size_t size);

/* The interval of a number's rule. */
typedef struct config_range {
    bool low_open, high_open, allow_auto, allow_epoch;
    double low, high; /* of FLOAT and FLOAT2 */
    int64_t low_int, high_int;
} config_range;

/* Reads the rule. ERR_INTERNAL: it is not valid. */
z3d_status config_parse_range(const config_key *key, config_range *out);

/* Appends the values that a key accepts: "an integer from 1 to 65536 or auto". */
void config_expected(const config_key *key, z3d_string *out);
/* The comment in a YAML text; NULL: none. */
const char *config_comment(const char *text);
/* Option `index` of "a|b|c" into buf; false if there are fewer. */
bool config_option(const char *options, int index, char *buf, size_t size);

/* One scalar as the file has it. quoted: between quotes, or a block scalar. */
typedef struct config_scalar {
    const char *text;
    bool quoted;
} config_scalar;

/* Stores "<problem>; expected <values>" as ERR_CONFIG. `problem` may be the stored message. */
z3d_status config_refuse(const config_key *key, const char *problem);
/* Sets a key from a scalar. ERR_CONFIG: the message has the problem and the accepted values,
 * without place and key. */
z3d_status config_set_scalar(z3d_config *config, const config_key *key, config_scalar scalar);
/* The same for a number alone, such as a FLOAT2's element; for one of Z3D_CONFIG_PEERS. */
z3d_status config_set_float(const config_key *key, config_scalar scalar, double *out);
z3d_status config_parse_peer(const config_key *key, config_scalar scalar, double *out);
/* Whether a plain scalar is ~ or null; whether it is ~, null or empty. */
bool config_is_null(config_scalar scalar);
bool config_is_empty(config_scalar scalar);
/* The value that Hugging Face's Trainer puts for "auto"; NULL: not in Z3D_CONFIG_AUTO. */
const char *config_auto(const char *path);
/* Appends a copy of the path or text. ERR_MEMORY. */
z3d_status config_list_append(z3d_data_list *list, const char *path, double weight);
void config_list_free(z3d_data_list *list);

static inline void *config_field(const z3d_config *config, const config_key *key) {
    return (char *)(uintptr_t)config + key->offset;
}

#endif
