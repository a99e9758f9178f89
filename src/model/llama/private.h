/* Private to Llama: what its files share. */
#ifndef ZERO3D_MODEL_LLAMA_PRIVATE_H
#define ZERO3D_MODEL_LLAMA_PRIVATE_H

#include "src/model/llama/llama.h"
#include "src/model/transformer.h"

/* limits.c: reports every broken limit to the judge, by its configuration key. */
void z3d_llama_check(const z3d_llama_config *config, const z3d_config_judge *judge);
int64_t z3d_llama_parameters(const z3d_llama_config *config); /* INT64_MAX: beyond 64 bits */
/* interop.c */
extern const z3d_model_interop z3d_llama_interop;

#endif
