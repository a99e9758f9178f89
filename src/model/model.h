/* src/model: the unit type (unit.h, which zero/ runs and which knows no model), and the registry of
 * the models that the program knows, each in a folder of its own. What is above asks the registry
 * and reads a model's facts; only gpt/ knows GPT. It may call tensor_parallel/, parallel/,
 * src/device and src/base. Start reading at unit.h, then gpt/gpt.h. */
#ifndef ZERO3D_MODEL_MODEL_H
#define ZERO3D_MODEL_MODEL_H

#include "src/base/config.h"
#include "src/model/unit.h"

/* What a model's configuration comes to before it is made. */
typedef struct z3d_model_sizes {
    int64_t width;        /* elements per token of its widest activation */
    int64_t tensor_limit; /* tensor sizes divide it */
} z3d_model_sizes;

/* A model that the program knows: its folder, and a line of registry.c. */
typedef struct z3d_model_type {
    const char *name; /* as model.type names it */
    /* Tells the judge every limit that its keys break. */
    void (*check)(const z3d_config *config, const z3d_config_judge *judge);
    void (*sizes)(const z3d_config *config, z3d_model_sizes *out);
    /* Errors: ERR_CONFIG where check has something to tell, ERR_MEMORY. Not collective. */
    z3d_status (*create)(const z3d_config *config, z3d_model **out);
} z3d_model_type;

/* The model that a configuration describes, for its tensor size; its limits and sizes. Errors:
 * ERR_CONFIG (also an unknown model.type), ERR_MEMORY. Not collective. */
z3d_status z3d_model_from_config(const z3d_config *config, z3d_model **out);
z3d_status z3d_model_sizes_of(const z3d_config *config, z3d_model_sizes *out);
/* For z3d_config_check and those like it: what the models know of their keys. */
extern const z3d_config_rules z3d_model_rules;

#endif
