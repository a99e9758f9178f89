/* Private to GPT: what its files share. */
#ifndef ZERO3D_MODEL_GPT_PRIVATE_H
#define ZERO3D_MODEL_GPT_PRIVATE_H

#include "src/model/gpt/gpt.h"
#include "src/model/transformer.h"

/* limits.c: reports every broken limit to the judge, by its configuration key. */
void z3d_gpt_check(const z3d_gpt_config *config, const z3d_config_judge *judge);
int64_t z3d_gpt_parameters(const z3d_gpt_config *config); /* INT64_MAX: beyond 64 bits */

/* interop.c */
extern const z3d_model_interop z3d_gpt_interop;

#endif
