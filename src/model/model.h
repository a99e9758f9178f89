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
    int64_t tensor_limit; /* tensor sizes divide it */
    int64_t units;        /* that pipeline stages split: embedding, blocks, head */
    int64_t parameters;   /* without padding; INT64_MAX: beyond 64 bits */
} z3d_model_sizes;

/* ---- in Hugging Face's files ---- */

/* A tensor there. */
typedef struct z3d_view {
    char name[2 * Z3D_NAME + 8]; /* without the prefix */
    int64_t rows, columns;       /* ours, as a matrix [out, in]; a vector has 0 rows */
    bool turned;                 /* there this matrix is [in, out] */
} z3d_view;

/* The longest text of the model as other programs' files have it. */
int64_t z3d_positions_of(const z3d_config *config);

/* The shape of a checkpoint's tensor; NULL: it has no such tensor. */
typedef struct z3d_shapes {
    void *context;
    const int64_t *(*find)(void *context, const char *group, const char *name, int *dims);
} z3d_shapes;

/* What import and export ask of a model. */
typedef struct z3d_model_interop {
    const char *title;         /* for messages: "GPT-2" */
    const char *const *names;  /* model_type in config.json, up to NULL */
    const char *prefix;        /* prefix that names may have */
    const char *adapter;       /* prefix of those names in an adapter's file of PEFT's */
    const char *copy, *copied; /* a tensor that may exist twice, under another name */
    z3d_tokenizer_kind tokenizer;
    int64_t end_of_text; /* its id, and that of the begin, if no tokenizer says; -1: none */
    bool (*ignores)(const char *name);
    void (*view)(const char *group, const char *name, int dims, const int64_t *shape,
                 z3d_view *out);
    /* Reads its keys from config.json, whose model_type is one of `names`. ERR_DATA;
     * ERR_UNSUPPORTED if it computes something else. */
    void (*read)(const z3d_json *root, z3d_config *config, z3d_problems *problems);
    /* The members of config.json, each with a comma and a newline behind it. ERR_UNSUPPORTED: no
     * model there computes this. */
    z3d_status (*append_config)(const z3d_config *config, z3d_string *out);
    /* Finds its sizes from a checkpoint's tensors. ERR_DATA: not this model. */
    z3d_status (*read_shapes)(const z3d_shapes *shapes, z3d_config *config);
} z3d_model_interop;

/* A model that the program knows: its folder, and a line of registry.c. */
typedef struct z3d_model_type {
    const char *name;        /* as model.type names it */
    const char *const *keys; /* of section `model`, up to NULL: those that not every model has */
    /* Reports every limit that its keys break to the judge. */
    void (*check)(const z3d_config *config, const z3d_config_judge *judge);
    void (*sizes)(const z3d_config *config, z3d_model_sizes *out);
    /* Errors: ERR_CONFIG if check finds a broken limit, ERR_MEMORY. Not collective. */
    z3d_status (*create)(const z3d_config *config, z3d_model **out);
    const z3d_model_interop *interop;
} z3d_model_type;

/* The type that model.type names. ERR_CONFIG if there is none. */
z3d_status z3d_model_type_of(const z3d_config *config, const z3d_model_type **out);
/* NULL: there is none. */
const z3d_model_type *z3d_model_type_named(const char *name);
/* The type whose interop has this model_type of Hugging Face's; NULL: none. All of them as text,
 * "gpt2, llama, ...", cut to size. */
const z3d_model_type *z3d_model_type_of_huggingface(const char *name);
const char *z3d_model_types_of_huggingface(char *buf, size_t size);
/* All names, "gpt2 or ...", cut to size, into buf, which is returned. */
const char *z3d_model_type_names(char *buf, size_t size);
/* The model that a configuration describes, for its tensor size; its limits and sizes. Errors:
 * ERR_CONFIG (also an unknown model.type), ERR_MEMORY. Not collective. */
z3d_status z3d_model_from_config(const z3d_config *config, z3d_model **out);
/* Its last part: parameters' optimizer_group, by optimizer.param_groups. Appends what is wrong:
 * patterns that name no parameter. */
void z3d_model_set_optimizer_groups(const z3d_config *config, z3d_model *model, z3d_string *wrong);
/* The same of parameters that training.freeze freezes; freezing all of them is wrong, too. */
void z3d_model_set_frozen(const z3d_config *config, z3d_model *model, z3d_string *wrong);
z3d_status z3d_model_sizes_of(const z3d_config *config, z3d_model_sizes *out);
/* The models' rules for their keys, for z3d_config_check and the like. */
extern const z3d_config_rules z3d_model_rules;

#endif
