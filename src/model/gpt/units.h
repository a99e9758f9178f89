/* Private to GPT: shared by its units. A unit's data is the z3d_gpt; the block number follows from
 * the unit's index. */
#ifndef ZERO3D_MODEL_GPT_UNITS_H
#define ZERO3D_MODEL_GPT_UNITS_H

#include "src/model/gpt/gpt.h"
#include "src/model/transformer.h"

typedef struct z3d_gpt {
    z3d_transformer shape;
    z3d_gpt_config config;
    int64_t head_dim;
    int64_t local_heads, local_hidden; /* heads of one tensor rank, and their columns */
} z3d_gpt;

/* Places of a block's parameters in its group. */
enum {
    GPT_LN_1_WEIGHT,
    GPT_LN_1_BIAS,
    GPT_ATTN_WEIGHT,
    GPT_ATTN_BIAS,
    GPT_ATTN_PROJ_WEIGHT,
    GPT_ATTN_PROJ_BIAS,
    GPT_LN_2_WEIGHT,
    GPT_LN_2_BIAS,
    GPT_FC_WEIGHT,
    GPT_FC_BIAS,
    GPT_MLP_PROJ_WEIGHT,
    GPT_MLP_PROJ_BIAS,
    GPT_BLOCK_PARAMETERS
};
_Static_assert((int)GPT_BLOCK_PARAMETERS <= (int)Z3D_LORA_PLACES, "each has a place");

extern const struct z3d_unit_ops z3d_gpt_block_ops;

static inline const z3d_gpt *gpt_of(const z3d_unit_run *run) {
    return run->unit->data;
}

/* limits.c: reports every broken limit to the judge, by its configuration key. */
void z3d_gpt_check(const z3d_gpt_config *config, const z3d_config_judge *judge);
int64_t z3d_gpt_parameters(const z3d_gpt_config *config); /* INT64_MAX: beyond 64 bits */
/* flops.c */
z3d_model_flops z3d_gpt_flops(const z3d_gpt_config *config);

/* interop.c */
extern const z3d_model_interop z3d_gpt_interop;

#endif
