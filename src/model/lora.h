/* LoRA (Hu et al., 2106.09685): which of a model's layers have adapters, and what the configuration
 * says of them. lora.c describes their parameters, adapter.c runs them, lora_config.c reads the
 * section `lora`. */
#ifndef ZERO3D_MODEL_LORA_H
#define ZERO3D_MODEL_LORA_H

#include "src/model/model.h"

/* A linear layer that may have an adapter: "attn.c_attn", of which the weight's first `outputs`
 * dimensions are its outputs. usual: it has one where nobody says which have. A list ends with a
 * NULL name. */
typedef struct z3d_lora_module {
    const char *name;
    int outputs;
    bool usual;
} z3d_lora_module;

/* The adapters of a model. rank 0: none. targets: bits, the places of modules in their list. */
typedef struct z3d_lora {
    int64_t rank;
    double scale, dropout;
    unsigned targets;
} z3d_lora;

/* Only so many first parameters of a block may have adapters: its own ones. */
enum { Z3D_LORA_PLACES = 16 };

/* How the parameters of a module's adapter are called, as in PEFT. */
#define Z3D_LORA_A ".lora_A.weight"
#define Z3D_LORA_B ".lora_B.weight"
/* Whether a parameter's name is that of an adapter. */
bool z3d_is_adapter(const char *name);

/* Appends the parameters of the adapters to a block's group, which has the modules' weights. */
void z3d_add_adapters(z3d_parameter_group *group, const z3d_lora *lora,
                      const z3d_lora_module *modules);
/* Parameters that adapters may add to a group. */
int z3d_count_adapter_parameters(const z3d_lora_module *modules);
/* Where they are in such a group: z3d_transformer.adapter, which is all 0 before. */
void z3d_find_adapters(const z3d_parameter_group *group, const z3d_lora_module *modules,
                       int place[Z3D_LORA_PLACES]);

/* lora_alpha / r, or by its root: what an adapter's output is multiplied by. */
double z3d_lora_scale(const z3d_config *config);
/* The adapters that the section `lora` asks for. Targets that match nothing are left out:
 * z3d_lora_check finds them. */
z3d_lora z3d_lora_of(const z3d_config *config, const z3d_lora_module *modules);
/* Reports what is wrong with that section, of a model with these modules. tied: its head is its
 * token table. */
void z3d_lora_check(const z3d_config *config, const z3d_lora_module *modules, bool tied,
                    const z3d_config_judge *judge);
/* Of a whole model with adapters: marks what is not trained. Appends what is wrong with
 * lora.modules_to_save. Without adapters it does nothing. */
void z3d_lora_freeze(const z3d_config *config, const z3d_model_interop *interop, z3d_model *model,
                     z3d_string *wrong);
/* Reports what the sizes of a model with adapters make wrong. */
void z3d_lora_check_model(const z3d_config *config, const z3d_model *model,
                          const z3d_config_judge *judge);

#endif
