/* Megatron-LM's arguments: the table, and the text that has them. */
#ifndef ZERO3D_BASE_CONFIG_MEGATRON_H
#define ZERO3D_BASE_CONFIG_MEGATRON_H

#include "src/base/config/convert/convert.h"

typedef enum megatron_kind {
    MEGATRON_KEY,    /* its value is that of our key `text` */
    MEGATRON_TRUE,   /* a switch: our key `text` is true */
    MEGATRON_OWN,    /* a function below knows it */
    MEGATRON_SAME,   /* asks for what is done anyway: `text` */
    MEGATRON_NONE,   /* no effect: why */
    MEGATRON_LATER,  /* not supported: what to do, or what differs */
    MEGATRON_PRINTED /* no effect, in a log, which has every argument's default */
} megatron_kind;

/* `names`: words with - for _, as patterns of fnmatch; "name=value" has this value only. The first
 * row counts. */
typedef struct megatron_argument {
    megatron_kind kind;
    const char *text, *names;
} megatron_argument;

extern const megatron_argument megatron_arguments[];
extern const int megatron_argument_count;

enum { MEGATRON_GIVEN = 1024 };

/* "--name values", values joined with spaces; "": a switch. */
typedef struct megatron_given {
    char *name, *values;
    z3d_data_list words; /* the values one by one, each as the shell or the file has it */
    const char *old;     /* the older name that the text has; NULL: it has this one */
    bool unknown;        /* a placeholder stands for the value */
} megatron_given;

typedef struct megatron_text {
    megatron_given given[MEGATRON_GIVEN];
    int count;
    bool is_log; /* every argument is there, most with their default */
} megatron_text;

/* The arguments after the training script's name, or all words if no script is among them.
 * `source`: for messages. ERR_DATA without any argument, or with what is not one command's. */
z3d_status megatron_read_words(const char *const *words, int count, const char *source,
                               megatron_text *out);
/* The same from a file's text, which is cut in pieces: a list, YAML with --names as keys, or the
 * log of a run. ERR_DATA for a shell's script. */
z3d_status megatron_read_text(char *text, const char *source, megatron_text *out);
/* NULL: not known here. */
const megatron_argument *megatron_find(const megatron_text *text, const megatron_given *given);
void megatron_text_free(megatron_text *text);
/* The values of --name ("" for a switch), NULL: not given, or not known. The last one counts. */
const char *megatron_value(const megatron_text *text, const char *name);
/* The values one by one, in place of joined. */
const z3d_data_list *megatron_words(const megatron_text *text, const char *name);
/* "0.3" "a" "0.7" "b" or "a" "b" as files with weights; also those of a single word that is itself
 * weights and paths. */
z3d_status megatron_data_list(const z3d_data_list *words, z3d_data_list *out);
/* It is given, but its value is still to be written: no default stands for it. */
bool megatron_is_unknown(const megatron_text *text, const char *name);
/* A conversion and its arguments. */
typedef struct megatron_converter {
    config_conversion v;
    megatron_text text;
} megatron_converter;

/* megatron_take.c: whether an argument is given; also by a placeholder. Its value as a number;
 * false: it is not given, or no number. */
bool megatron_has(const megatron_converter *m, const char *name);
bool megatron_is_given(const megatron_converter *m, const char *name);
bool megatron_number(const megatron_converter *m, const char *name, double *out);
/* It is given and is not 0, which a log has where another argument counts. */
bool megatron_counts(const megatron_converter *m, const char *name);
/* A row of the report. */
void megatron_row(megatron_converter *m, config_verdict verdict, const char *name,
                  const char *what);
/* The same for each of `names` ("a b c") that is given. */
void megatron_rows(megatron_converter *m, config_verdict verdict, const char *names,
                   const char *what);
/* A row for an argument that may only say what is done here. */
void megatron_must(megatron_converter *m, const char *name, bool same, const char *else_why);
/* Takes the argument for our key, if it is given; as another text, unless that is NULL. No default
 * stands for a value that is still to be written. */
bool megatron_take(megatron_converter *m, const char *name, const char *path);
bool megatron_take_as(megatron_converter *m, const char *name, const char *path, const char *text);
void megatron_take_or_default(megatron_converter *m, const char *name, const char *path,
                              const char *text);
extern const char megatron_default[]; /* "Megatron-LM's default" */

/* The arguments of the model, and what splits it; the numbers of tensor ranks and of layers are
 * taken already. Those of pipelines; the number of stages is taken already. Those of steps and of
 * the learning rate. */
void megatron_convert_model(megatron_converter *m);
void megatron_convert_pipeline(megatron_converter *m);
void megatron_convert_schedule(megatron_converter *m);
/* It is given by an older name. */
bool megatron_is_renamed(const megatron_text *text, const char *name);

#endif
