/* src/model: the unit type (unit.h; zero/ runs it, and it knows no model), and the registry of the
 * models that the program knows, each in its own folder. Higher floors ask the registry and read a
 * model's facts; only gpt/ knows GPT. It may call tensor_parallel/, parallel/, src/device and
 * src/base. Start reading at unit.h, then gpt/gpt.h. */
#ifndef ZERO3D_MODEL_MODEL_H
#define ZERO3D_MODEL_MODEL_H

#include "src/base/config.h"
#include "src/base/json.h"
#include "src/base/problems.h"
#include "src/model/unit.h"

/* Sizes of a model, from its configuration alone. */
typedef struct z3d_model_sizes {
    int64_t width;        /* elements per token of its widest activation */
    int64_t tensor_limit; /* tensor sizes must divide it */
    int64_t units;        /* units to divide over pipeline stages: embedding, blocks, head */
    int64_t parameters;   /* without padding; INT64_MAX: beyond 64 bits */
} z3d_model_sizes;

/* ---- the model in Hugging Face's files ---- */

/* A parameter as a tensor of Hugging Face's file. */
typedef struct z3d_view {
    char name[2 * Z3D_NAME + 8]; /* its name there, without the prefix */
    int64_t rows, columns;       /* our parameter as a matrix [out, in]; a vector has 0 rows */
    bool turned;                 /* the file stores it as [in, out] */
} z3d_view;

/* The longest text, in tokens, that is written to other programs' files. */
int64_t z3d_positions_of(const z3d_config *config);

/* find: the shape of a checkpoint's tensor and its number of dimensions; NULL: no such tensor. */
typedef struct z3d_shapes {
    void *context;
    const int64_t *(*find)(void *context, const char *group, const char *name, int *dims);
} z3d_shapes;

/* A model's rules for import and export. */
typedef struct z3d_model_interop {
    const char *title;         /* for messages: "GPT-2" */
    const char *const *names;  /* model_type in config.json, up to NULL */
    const char *prefix;        /* prefix that tensors' names may have */
    const char *adapter;       /* prefix of tensors' names in a file of PEFT's adapters */
    const char *copy, *copied; /* the tensor `copy` may repeat the tensor `copied` */
    z3d_tokenizer_kind tokenizer;
    int64_t end_of_text; /* id of the token that ends, and begins, a text, if no tokenizer says it;
                            -1: none */
    bool (*ignores)(const char *name);
    void (*view)(const char *group, const char *name, int dims, const int64_t *shape,
                 z3d_view *out);
    /* Sets the configuration's keys of section `model` from config.json, whose model_type is one of
     * `names`. Adds problems: ERR_DATA; ERR_UNSUPPORTED if config.json describes another
     * computation. */
    void (*read)(const z3d_json *root, z3d_config *config, z3d_problems *problems);
    /* Appends the members of config.json, each with a comma and a newline after it.
     * ERR_UNSUPPORTED: no model of Hugging Face computes this. */
    z3d_status (*append_config)(const z3d_config *config, z3d_string *out);
    /* Sets the model's sizes from the shapes of a checkpoint's tensors. ERR_DATA: the tensors are
     * not this model's. */
    z3d_status (*read_shapes)(const z3d_shapes *shapes, z3d_config *config);
} z3d_model_interop;

/* A model that the program knows. It has its own folder and a line in registry.c. */
typedef struct z3d_model_type {
    const char *name;        /* the value of model.type */
    const char *const *keys; /* its keys of section `model` that not every model has, up to NULL */
    /* Reports every broken limit of its keys to the judge. */
    void (*check)(const z3d_config *config, const z3d_config_judge *judge);
    void (*sizes)(const z3d_config *config, z3d_model_sizes *out);
    /* Errors: ERR_CONFIG if check finds a broken limit, ERR_MEMORY. Not collective. */
    z3d_status (*create)(const z3d_config *config, z3d_model **out);
    const z3d_model_interop *interop;
} z3d_model_type;

/* The type that model.type names. ERR_CONFIG: no such type. */
z3d_status z3d_model_type_of(const z3d_config *config, const z3d_model_type **out);
/* The type whose interop has this model_type of Hugging Face; NULL: none.
 * z3d_model_types_of_huggingface: all model_types as text, "gpt2, llama, ...", cut to size. */
const z3d_model_type *z3d_model_type_of_huggingface(const char *name);
const char *z3d_model_types_of_huggingface(char *buf, size_t size);
/* Creates the model that a configuration describes, for its tensor size. Errors: ERR_CONFIG (also
 * an unknown model.type), ERR_MEMORY. Not collective. */
z3d_status z3d_model_from_config(const z3d_config *config, z3d_model **out);
/* A part of z3d_model_from_config: sets the parameters' optimizer_group by optimizer.param_groups.
 * Appends errors to *wrong: patterns that match no parameter. */
void z3d_model_set_optimizer_groups(const z3d_config *config, z3d_model *model, z3d_string *wrong);
/* The same for `frozen`, by training.freeze; to freeze all parameters is an error too. */
void z3d_model_set_frozen(const z3d_config *config, z3d_model *model, z3d_string *wrong);
z3d_status z3d_model_sizes_of(const z3d_config *config, z3d_model_sizes *out);
/* The models' rules for their keys, for z3d_config_check and the like. */
extern const z3d_config_rules z3d_model_rules;

#endif
