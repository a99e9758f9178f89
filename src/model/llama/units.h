/* Private to Llama. A unit's data is the z3d_llama. */
#ifndef ZERO3D_MODEL_LLAMA_UNITS_H
#define ZERO3D_MODEL_LLAMA_UNITS_H

#include "src/model/llama/llama.h"
#include "src/model/transformer.h"

/* A block's parameters. Some models lack the last ones. Neighbours in this list are contiguous in a
 * group's flat buffer. So gate and up are used as one matrix; queries, keys and values too, unless
 * tensor ranks share key/value heads. */
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
    int place[LLAMA_BLOCK_PARAMETERS]; /* index of each parameter in a block's group; -1: the model
                                          lacks it */
    bool shares_kv; /* more tensor ranks than key/value heads: every rank has all parameters of keys
                       and values, and computes only the head that its queries read */
    int64_t local_heads, local_kv_heads; /* on one tensor rank */
} z3d_llama;

extern const struct z3d_unit_ops z3d_llama_block_ops;

static inline const z3d_llama *llama_of(const z3d_unit_run *run) {
    return run->unit->data;
}

/* ---- heads.c: queries, keys and values ---- */

enum { LLAMA_PARTS = 3 }; /* queries, keys, values */

/* The queries, keys and values of all rows, or their gradients: three parts of one buffer. */
typedef struct llama_heads {
    void *part[LLAMA_PARTS];
    int64_t stride[LLAMA_PARTS]; /* elements from one row of a part to the next */
} llama_heads;

/* Elements of one row in all parts together. */
int64_t z3d_llama_qkv_columns(const z3d_llama *llama);
llama_heads z3d_llama_heads_of(const z3d_unit_run *run, void *qkv);

/* Queries, keys and values as forward saves them for backward. */
typedef struct llama_heads_saved {
    void *qkv;              /* after the rotary embedding; with qk_norm: before the norms */
    float *q_rstd, *k_rstd; /* statistics of the norms */
    float *log_sum_exp;
} llama_heads_saved;

z3d_status z3d_llama_heads_take_saved(z3d_unit_run *run, llama_heads_saved *saved);
/* Computes saved->qkv from x, T[rows, hidden]. *heads: the input of attention; with qk_norm it is
 * in workspace, else in saved->qkv. */
z3d_status z3d_llama_heads_forward(z3d_unit_run *run, const llama_heads_saved *saved, const void *x,
                                   llama_heads *heads);
/* Gives *heads again, in backward. */
z3d_status z3d_llama_heads_again(z3d_unit_run *run, const llama_heads_saved *saved,
                                 llama_heads *heads);
/* Whether any parameter of the three products is trained. */
bool z3d_llama_trains_heads(const z3d_unit_run *run);
/* Backward of the three products, norms and rotary embedding, or a half of it. d_qkv: before the
 * input half, the gradients from attention's backward; after it, the gradients of the products'
 * outputs. The weight half reads these; NULL if it does not need them. x: the products' input, for
 * the weight half. dx: gradient of x, T[rows, hidden]; NULL: not needed. */
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
