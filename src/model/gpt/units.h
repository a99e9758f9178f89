/* Private to GPT: what its units share. A unit's data is the z3d_gpt; the block number follows from
 * the unit's index. */
#ifndef ZERO3D_MODEL_GPT_UNITS_H
#define ZERO3D_MODEL_GPT_UNITS_H

#include "src/model/gpt/gpt.h"
#include "src/model/layers.h"

typedef struct z3d_gpt {
    z3d_gpt_config config;
    int64_t head_dim, padded_vocab;
    int64_t local_heads, local_hidden, local_inner; /* on one tensor rank: of heads, of hidden (all
                                                       heads' columns), of the 4 x hidden inside */
} z3d_gpt;

/* Units of one kind do the same launches. */
enum { GPT_KIND_EMBEDDING, GPT_KIND_BLOCK, GPT_KIND_HEAD };

/* What a call of a unit's backward does: a half, or all of it. */
typedef enum gpt_halves {
    GPT_INPUT_HALF = 1,
    GPT_WEIGHT_HALF = 2,
    GPT_BOTH_HALVES = GPT_INPUT_HALF | GPT_WEIGHT_HALF
} gpt_halves;

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

extern const struct z3d_unit_ops z3d_gpt_embedding_ops, z3d_gpt_block_ops, z3d_gpt_head_ops;

#define GPT_EPSILON 1e-5f

static inline const z3d_gpt *gpt_of(const z3d_unit_run *run) {
    return run->unit->data;
}

static inline int64_t gpt_rows(const z3d_unit_run *run) {
    return run->batch * run->tokens;
}

/* This rank's part of the vocabulary. */
static inline z3d_vocab_range gpt_vocab_range(const z3d_unit_run *run) {
    const z3d_gpt *gpt = gpt_of(run);
    return z3d_vocab_range_of(gpt->config.vocab_size, gpt->padded_vocab, gpt->config.tensor_size,
                              z3d_group_index(run->tensor));
}

/* Dropout at one site of this unit; only in training. */
static inline z3d_dropout gpt_dropout(const z3d_unit_run *run, double p, const char *site) {
    return (z3d_dropout){.p = run->mode == Z3D_MODE_TRAIN ? (float)p : 0.0f,
                         .site = z3d_key((uint64_t)run->unit->index, site),
                         .sample = run->sample,
                         .state = run->state};
}

/* limits.c: reports every broken limit to the judge, by its configuration key. */
void z3d_gpt_check(const z3d_gpt_config *config, const z3d_config_judge *judge);
int64_t z3d_gpt_parameters(const z3d_gpt_config *config); /* INT64_MAX: beyond 64 bits */
/* flops.c */
z3d_model_flops z3d_gpt_flops(const z3d_gpt_config *config);

/* interop.c */
extern const z3d_model_interop z3d_gpt_interop;

/* ---- rows.c: the rows between the tensor-parallel layers ---- */

z3d_tensor_lane z3d_gpt_lane(const z3d_unit_run *run);
/* This rank's own rows of T[rows, hidden] between the layers, and their byte offset in a buffer of
 * all rows. */
z3d_row_range z3d_gpt_own_rows(const z3d_unit_run *run);
int64_t z3d_gpt_own_offset(const z3d_unit_run *run);
/* *all = memory for all rows, of which the own ones will go to `own`; it is `own` if these are all.
 */
z3d_status z3d_gpt_take_all(z3d_unit_run *run, void *own, void **all);
/* Whether the gradient of all rows before a dropout is that of the own rows after it: nothing drops
 * and all rows are own. Else this computes it; all: T[rows, hidden]. */
bool z3d_gpt_dropout_is_identity(const z3d_unit_run *run);
z3d_status z3d_gpt_dropout_gradient(const z3d_unit_run *run, const void *dy, const char *site,
                                    void *all);

/* ---- layernorm.c ---- */

/* A layernorm of the own rows: its weight is parameter `weight` of group `slot`, its bias the next
 * one. mean and rstd are what forward left. */
typedef struct gpt_layernorm {
    int slot, weight;
    const void *x;
    const float *mean, *rstd;
} gpt_layernorm;

/* Its backward, or a half of it. dy: T[rows, hidden], of which the own rows count. dx = residual
 * (NULL: 0; may be dx itself) + the input's gradient, of the own rows. The weight half wants
 * neither dy nor dx: the input half leaves its sums in deferred memory. */
z3d_status z3d_gpt_layernorm_backward(z3d_unit_run *run, gpt_halves halves,
                                      const gpt_layernorm *norm, const void *dy,
                                      const void *residual, void *dx);

#endif
