/* LoRA (Hu et al., 2106.09685): the adapters of a model's layers. lora.c describes their
 * parameters, adapter.c runs them, lora_config.c reads the section `lora` of the configuration. */
#ifndef ZERO3D_MODEL_LORA_H
#define ZERO3D_MODEL_LORA_H

#include "src/model/model.h"

/* A linear layer that may have an adapter, such as "attn.c_attn". outputs: the first so many
 * dimensions of its weight are outputs, the others inputs. usual: it has an adapter if
 * lora.target_modules is not set. A list ends with a NULL name. */
typedef struct z3d_lora_module {
    const char *name;
    int outputs;
    bool usual;
} z3d_lora_module;

/* The adapters of a model. rank 0: none. targets: bit i is set if module i of the list has an
 * adapter. */
typedef struct z3d_lora {
    int64_t rank;
    double scale, dropout;
    unsigned targets;
} z3d_lora;

/* A parameter of a block may have an adapter if its index is less than this: the block's own
 * parameters come first. */
enum { Z3D_LORA_PLACES = 16 };

/* The ends of the names of an adapter's parameters, as in PEFT. */
#define Z3D_LORA_A ".lora_A.weight"
#define Z3D_LORA_B ".lora_B.weight"
/* Whether a parameter's name is that of an adapter. */
bool z3d_is_adapter(const char *name);

/* Appends the parameters of the adapters to a block's group, which has the modules' weights. */
void z3d_add_adapters(z3d_parameter_group *group, const z3d_lora *lora,
                      const z3d_lora_module *modules);
/* The most parameters that adapters add to a group. */
int z3d_count_adapter_parameters(const z3d_lora_module *modules);
/* Sets place[], which must be all 0, to the indices of the adapters in the group: see
 * z3d_transformer.adapter. */
void z3d_find_adapters(const z3d_parameter_group *group, const z3d_lora_module *modules,
                       int place[Z3D_LORA_PLACES]);

/* The factor of an adapter's output: lora_alpha / r; with lora.use_rslora lora_alpha / sqrt(r). */
double z3d_lora_scale(const z3d_config *config);
/* The adapters that the section `lora` sets. Targets that match no module are ignored here;
 * z3d_lora_check reports them. */
z3d_lora z3d_lora_of(const z3d_config *config, const z3d_lora_module *modules);
/* Reports errors in the section `lora`, for a model with these modules. tied: the model's head is
 * its token table. */
void z3d_lora_check(const z3d_config *config, const z3d_lora_module *modules, bool tied,
                    const z3d_config_judge *judge);
/* In a model with adapters: marks all parameters as frozen, except adapters and
 * lora.modules_to_save. Appends errors in lora.modules_to_save to *wrong. Does nothing in a model
 * without adapters. */
void z3d_lora_freeze(const z3d_config *config, const z3d_model_interop *interop, z3d_model *model,
                     z3d_string *wrong);
/* Reports errors in the section `lora` that depend on the sizes of the model. */
void z3d_lora_check_model(const z3d_config *config, const z3d_model *model,
                          const z3d_config_judge *judge);

#endif
