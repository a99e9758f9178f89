/* Megatron-LM's arguments: the table, and the text that has them. */
#ifndef ZERO3D_BASE_CONFIG_MEGATRON_H
#define ZERO3D_BASE_CONFIG_MEGATRON_H

#include "src/base/config/convert/convert.h"

typedef enum megatron_kind {
    MEGATRON_KEY,    /* our key `text` gets its value */
    MEGATRON_TRUE,   /* a switch: our key `text` becomes true */
    MEGATRON_OWN,    /* a function converts it */
    MEGATRON_SAME,   /* we always do this: `text` says how */
    MEGATRON_NONE,   /* no effect: `text` says why */
    MEGATRON_LATER,  /* not supported: `text` says what to do, or the difference */
    MEGATRON_PRINTED /* no effect, in a log, which has every argument's default */
} megatron_kind;

/* `names`: words with - for _, as patterns of fnmatch; "name=value" has this value only. The first
 * match is used. */
typedef struct megatron_argument {
    megatron_kind kind;
    const char *text, *names;
} megatron_argument;

extern const megatron_argument megatron_arguments[];
extern const int megatron_argument_count;

enum { MEGATRON_GIVEN = 1024 };

/* "--name values": the values joined with spaces; a switch has "". */
typedef struct megatron_given {
    char *name, *values;
    z3d_data_list words; /* the single values, as in the shell or the file */
    const char *old;     /* the older name in the text; NULL: the text has `name` */
    bool unknown;        /* the value is a placeholder */
} megatron_given;

typedef struct megatron_text {
    megatron_given given[MEGATRON_GIVEN];
    int count;
    bool is_log; /* has every argument, most with their default */
} megatron_text;

/* Reads the arguments after the training script's name, or all words if they have no script.
 * source: for messages. ERR_DATA: no arguments, or not one command. ERR_MEMORY. */
z3d_status megatron_read_words(const char *const *words, int count, const char *source,
                               megatron_text *out);
/* The same from a file's text: a list, YAML with --names as keys, or the log of a run. Changes the
 * text. ERR_DATA also for a shell script. */
z3d_status megatron_read_text(char *text, const char *source, megatron_text *out);
/* NULL: not known here. */
const megatron_argument *megatron_find(const megatron_text *text, const megatron_given *given);
void megatron_text_free(megatron_text *text);
/* The values of the last --name ("" for a switch); NULL: not given, or a placeholder. */
const char *megatron_value(const megatron_text *text, const char *name);
/* The same as single values. */
const z3d_data_list *megatron_words(const megatron_text *text, const char *name);
/* Whether the value is a placeholder, which no default replaces. */
bool megatron_is_unknown(const megatron_text *text, const char *name);
/* A conversion and its arguments. */
typedef struct megatron_converter {
    config_conversion v;
    megatron_text text;
} megatron_converter;

/* megatron_take.c. Whether an argument has a value; whether it has a value or a placeholder; its
 * value as a number (false: no value, or no number). */
bool megatron_has(const megatron_converter *m, const char *name);
bool megatron_is_given(const megatron_converter *m, const char *name);
bool megatron_number(const megatron_converter *m, const char *name, double *out);
/* Whether it is given and not 0. In a log 0 means: not used. */
bool megatron_counts(const megatron_converter *m, const char *name);

void megatron_row(megatron_converter *m, config_verdict verdict, const char *name,
                  const char *what);
/* A row for each of `names` ("a b c") that is given. */
void megatron_rows(megatron_converter *m, config_verdict verdict, const char *names,
                   const char *what);
/* A row for an argument. same: its value is what we always do; else_why: the text if not. */
void megatron_must(megatron_converter *m, const char *name, bool same, const char *else_why);
/* Set our key `path` if the argument has a value (else false): to this value; to `text`, or to the
 * value if text is NULL. */
bool megatron_take(megatron_converter *m, const char *name, const char *path);
bool megatron_take_as(megatron_converter *m, const char *name, const char *path, const char *text);
/* The same as megatron_take; if the argument is not given, the key gets Megatron-LM's default,
 * text.
 */
void megatron_take_or_default(megatron_converter *m, const char *name, const char *path,
                              const char *text);
/* The second word of the row whose first word is the argument's value; NULL: none. */
const char *megatron_choice(const megatron_converter *m, const char *name,
                            const char *const (*rows)[2], size_t count);
extern const char megatron_default[]; /* "Megatron-LM's default" */

/* Convert the arguments of the model, of pipelines, of steps and learning rate. The keys for tensor
 * ranks, layers and pipeline stages are set before. */
void megatron_convert_model(megatron_converter *m);
void megatron_convert_pipeline(megatron_converter *m);
void megatron_convert_schedule(megatron_converter *m);
/* Whether an older name is given. */
bool megatron_is_renamed(const megatron_text *text, const char *name);

#endif
