/* How attention is cut, and the scratch that the parts need. Tiles are fixed, because they decide
 * the order of sums. */
#ifndef ZERO3D_DEVICE_CPU_ISA_ATTENTION_H
#define ZERO3D_DEVICE_CPU_ISA_ATTENTION_H

#include "src/base/strings.h"
#include "src/device/kernels.h"

enum {
    Z3D_ATTENTION_QUERIES = 64,  /* rows of a tile of scores */
    Z3D_ATTENTION_KEYS = 256,    /* columns; a multiple of QUERIES */
    Z3D_ATTENTION_FORWARD = 256, /* query rows of one task of the forward */
    Z3D_ATTENTION_RANGE = 128,   /* keys of one partial result of a decode */
    Z3D_ATTENTION_ROWS = 4       /* keys that a decode converts together */
};

/* fp32 arrays of one thread, each at a multiple of 64 bytes. */
static inline int64_t z3d_attention_floats(int64_t rows, int64_t cols) {
    return z3d_round_up(rows * cols * (int64_t)sizeof(float), 64);
}

/* One query row per sample: attention_decode.c computes it. */
static inline bool z3d_attention_decodes(const z3d_attention *kernel) {
    return kernel->seq == 1 && kernel->starts && !(kernel->dropout.p > 0);
}

/* Partial results of a query head: the number of ranges of keys, and the floats of one range. */
static inline int64_t z3d_attention_ranges(const z3d_attention *kernel) {
    const int64_t range = Z3D_ATTENTION_RANGE, all = (kernel->capacity + range - 1) / range;
    const int64_t seen = (kernel->window + range - 2) / range + 1;
    return kernel->window > 0 && seen < all ? seen : all;
}

static inline int64_t z3d_attention_partial(const z3d_attention *kernel) {
    return (kernel->head_dim + 2 + 15) / 16 * 16;
}

/* Floats of one thread: queries, scores, converted rows. */
static inline int64_t z3d_attention_decode_thread(const z3d_attention *kernel) {
    return z3d_attention_floats(kernel->heads, kernel->head_dim) +
           z3d_attention_floats(kernel->heads, Z3D_ATTENTION_RANGE) +
           z3d_attention_floats(Z3D_ATTENTION_ROWS, kernel->kv_heads * kernel->head_dim + 16);
}

/* The next `rows` x `cols` floats of a thread's scratch. */
static inline float *z3d_attention_take(char **at, int64_t rows, int64_t cols) {
    float *taken = (float *)(void *)*at;
    *at += z3d_attention_floats(rows, cols);
    return taken;
}

/* One thread's arrays in forward: X(name, rows, cols), for the kernel k. Those after `values`
 * belong to a tile. */
#define Z3D_ATTENTION_FORWARD_ARRAYS(X)                                                            \
    X(keys, k->capacity, k->head_dim)                                                              \
    X(values, k->capacity, k->head_dim)                                                            \
    X(queries, Z3D_ATTENTION_QUERIES, k->head_dim)                                                 \
    X(scores, Z3D_ATTENTION_QUERIES, Z3D_ATTENTION_KEYS)                                           \
    X(out, Z3D_ATTENTION_QUERIES, k->head_dim)                                                     \
    X(maximum, Z3D_ATTENTION_QUERIES, 1)                                                           \
    X(sum, Z3D_ATTENTION_QUERIES, 1)                                                               \
    X(mask, Z3D_ATTENTION_KEYS, 1)

/* Likewise in backward. keys and values: a block of keys. dkeys, dvalues: the block's, or all rows
 * if several query heads add to them. probabilities, dscores, mask: a tile's. */
#define Z3D_ATTENTION_BACKWARD_ARRAYS(X)                                                           \
    X(queries, k->seq, k->head_dim)                                                                \
    X(dout, k->seq, k->head_dim)                                                                   \
    X(dqueries, k->seq, k->head_dim)                                                               \
    X(delta, k->seq, 1)                                                                            \
    X(keys, Z3D_ATTENTION_KEYS, k->head_dim)                                                       \
    X(values, Z3D_ATTENTION_KEYS, k->head_dim)                                                     \
    X(dkeys, k->heads > k->kv_heads ? k->seq : (int64_t)Z3D_ATTENTION_KEYS, k->head_dim)           \
    X(dvalues, k->heads > k->kv_heads ? k->seq : (int64_t)Z3D_ATTENTION_KEYS, k->head_dim)         \
    X(probabilities, Z3D_ATTENTION_QUERIES, Z3D_ATTENTION_KEYS)                                    \
    X(dscores, Z3D_ATTENTION_QUERIES, Z3D_ATTENTION_KEYS)                                          \
    X(mask, Z3D_ATTENTION_KEYS, 1)

#define X(name, rows, cols) +z3d_attention_floats(rows, cols)
static inline int64_t z3d_scratch_attention_forward(const z3d_attention *k, int threads) {
    if (!z3d_attention_decodes(k)) return threads * (Z3D_ATTENTION_FORWARD_ARRAYS(X));
    return threads * z3d_attention_decode_thread(k) +
           k->batch * k->heads * z3d_attention_ranges(k) * z3d_attention_partial(k) *
               (int64_t)sizeof(float);
}

static inline int64_t z3d_scratch_attention_backward(const z3d_attention *k, int threads) {
    return threads * (Z3D_ATTENTION_BACKWARD_ARRAYS(X));
}
#undef X

#endif
