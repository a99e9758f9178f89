/* Private to Llama. A unit's data is the z3d_llama. */
#ifndef ZERO3D_MODEL_LLAMA_UNITS_H
#define ZERO3D_MODEL_LLAMA_UNITS_H

#include "src/model/llama/llama.h"
#include "src/model/transformer.h"

/* A block's parameters. Some models lack the last ones. Neighbours of one kind lie end to end in a
 * group's flat buffer, so gate and up are one matrix, and queries, keys and values are one unless
 * tensor ranks share heads of keys and values. */
typedef enum llama_parameter {
    LLAMA_INPUT_NORM,
    LLAMA_Q,
    LLAMA_K,
    LLAMA_V,
    LLAMA_O,
    LLAMA_POST_NORM,
    LLAMA_GATE,
    LLAMA_UP,
    LLAMA_DOWN,
    LLAMA_Q_BIAS,
    LLAMA_K_BIAS,
    LLAMA_V_BIAS,
    LLAMA_Q_NORM,
    LLAMA_K_NORM,
    LLAMA_BLOCK_PARAMETERS
} llama_parameter;
_Static_assert((int)LLAMA_BLOCK_PARAMETERS <= (int)Z3D_LORA_PLACES, "each has a place");

typedef struct z3d_llama {
    z3d_transformer shape;
    z3d_llama_config config;
    int place[LLAMA_BLOCK_PARAMETERS]; /* of a parameter in a block's group, -1: there is none */
    bool shares_kv; /* more tensor ranks than heads of keys and values: every rank has all of these
                       parameters, and computes the one head that its queries read */
    int64_t local_heads, local_kv_heads; /* on one tensor rank */
} z3d_llama;

extern const struct z3d_unit_ops z3d_llama_block_ops;

static inline const z3d_llama *llama_of(const z3d_unit_run *run) {
    return run->unit->data;
}

/* ---- heads.c: queries, keys and values ---- */

enum { LLAMA_PARTS = 3 }; /* queries, keys, values */

/* Queries, keys and values of all rows, or their gradients: parts of one buffer. */
typedef struct llama_heads {
    void *part[LLAMA_PARTS];
    int64_t stride[LLAMA_PARTS]; /* elements from row to row of a part */
} llama_heads;

/* Elements of a row of all parts. */
int64_t z3d_llama_qkv_columns(const z3d_llama *llama);
llama_heads z3d_llama_heads_of(const z3d_unit_run *run, void *qkv);

/* What forward leaves of queries and keys for backward. */
typedef struct llama_heads_saved {
    void *qkv;              /* turned by the rotary embedding; with qk_norm: before the norms */
    float *q_rstd, *k_rstd; /* of the norms */
    float *log_sum_exp;
} llama_heads_saved;

z3d_status z3d_llama_heads_take_saved(z3d_unit_run *run, llama_heads_saved *saved);
/* saved->qkv from x T[rows, hidden], and what attention reads of it: *heads, which with qk_norm is
 * in workspace. */
z3d_status z3d_llama_heads_forward(z3d_unit_run *run, const llama_heads_saved *saved, const void *x,
                                   llama_heads *heads);
/* *heads once more, in backward. */
z3d_status z3d_llama_heads_again(z3d_unit_run *run, const llama_heads_saved *saved,
                                 llama_heads *heads);
/* Whether a gradient of the products' parameters is ever wanted. */
bool z3d_llama_trains_heads(const z3d_unit_run *run);
/* In backward, d_qkv is what attention's backward left; after the input half it is the gradient of
 * the products' outputs, NULL in the weight half if that does not read it. x: what they read, for
 * the weight half. dx T[rows, hidden], NULL: nobody wants it. */
z3d_status z3d_llama_heads_backward(z3d_unit_run *run, z3d_halves halves,
                                    const llama_heads_saved *saved, void *d_qkv, const void *x,
                                    void *dx);

/* limits.c: reports every broken limit to the judge, by its configuration key. */
void z3d_llama_check(const z3d_llama_config *config, const z3d_config_judge *judge);
int64_t z3d_llama_parameters(const z3d_llama_config *config); /* INT64_MAX: beyond 64 bits */
/* flops.c */
z3d_model_flops z3d_llama_flops(const z3d_llama_config *config);
/* interop.c */
extern const z3d_model_interop z3d_llama_interop;

#endif
