/* Private to block.c and heads.c: queries, keys and values of z3d_block_ops. */
#ifndef ZERO3D_MODEL_HEADS_H
#define ZERO3D_MODEL_HEADS_H

#include "src/model/transformer.h"

enum { Z3D_HEADS_PARTS = 3 }; /* queries, keys, values */

/* The queries, keys and values of all rows, or their gradients: three parts of one buffer. */
typedef struct z3d_heads {
    void *part[Z3D_HEADS_PARTS];
    int64_t stride[Z3D_HEADS_PARTS]; /* elements from one row of a part to the next */
} z3d_heads;

/* Elements of one row in all parts together. */
int64_t z3d_heads_columns(const z3d_transformer *shape);
z3d_heads z3d_heads_of(const z3d_unit_run *run, void *qkv);

/* Queries, keys and values as forward saves them for backward. */
typedef struct z3d_heads_saved {
    void *qkv;      /* after the rotary embedding; with qk_norm: before the norms */
    float *rstd[2]; /* statistics of the norms of queries and keys */
    float *log_sum_exp;
} z3d_heads_saved;

z3d_status z3d_heads_take_saved(z3d_unit_run *run, z3d_heads_saved *saved);
/* Computes saved->qkv from x, T[rows, hidden]. *heads: the input of attention; with qk_norm it is
 * in workspace, else in saved->qkv. */
z3d_status z3d_heads_forward(z3d_unit_run *run, const z3d_heads_saved *saved, const void *x,
                             z3d_heads *heads);
/* Gives *heads again, in backward. */
z3d_status z3d_heads_again(z3d_unit_run *run, const z3d_heads_saved *saved, z3d_heads *heads);
/* Whether any parameter of the products is trained. */
bool z3d_trains_heads(const z3d_unit_run *run);
/* Backward of products, norms and rotary embedding, or a half of it. d_qkv: before the input half,
 * the gradients from attention's backward; after it, the gradients of the products' outputs. The
 * weight half reads these; NULL if it does not need them. x: the products' input, for the weight
 * half. dx: gradient of x, T[rows, hidden]; NULL: not needed. */
z3d_status z3d_heads_backward(z3d_unit_run *run, z3d_halves halves, const z3d_heads_saved *saved,
                              void *d_qkv, const void *x, void *dx);

#endif
