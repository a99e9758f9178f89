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
static inline bool z3d_attention_decodes(const z3d_attention_forward *kernel) {
    return kernel->seq == 1 && kernel->starts && !(kernel->dropout.p > 0);
}

/* Partial results of a query head: the number of ranges of keys, and the floats of one range. */
static inline int64_t z3d_attention_ranges(const z3d_attention_forward *kernel) {
    const int64_t range = Z3D_ATTENTION_RANGE, all = (kernel->capacity + range - 1) / range;
    const int64_t seen = (kernel->window + range - 2) / range + 1;
    return kernel->window > 0 && seen < all ? seen : all;
}

static inline int64_t z3d_attention_partial(const z3d_attention_forward *kernel) {
    return (kernel->head_dim + 2 + 15) / 16 * 16;
}

/* Floats of one thread: queries, scores, converted rows. */
static inline int64_t z3d_attention_decode_thread(const z3d_attention_forward *kernel) {
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

/* Scratch for keys and values; queries, scores, output of a tile; maximum, sum; mask. */
static inline int64_t z3d_scratch_attention_forward(const z3d_attention_forward *kernel,
                                                    int threads) {
    if (z3d_attention_decodes(kernel))
        return threads * z3d_attention_decode_thread(kernel) +
               kernel->batch * kernel->heads * z3d_attention_ranges(kernel) *
                   z3d_attention_partial(kernel) * (int64_t)sizeof(float);
    return threads * (2 * z3d_attention_floats(kernel->capacity, kernel->head_dim) +
                      2 * z3d_attention_floats(Z3D_ATTENTION_QUERIES, kernel->head_dim) +
                      z3d_attention_floats(Z3D_ATTENTION_QUERIES, Z3D_ATTENTION_KEYS) +
                      2 * z3d_attention_floats(Z3D_ATTENTION_QUERIES, 1) +
                      z3d_attention_floats(Z3D_ATTENTION_KEYS, 1));
}

/* Rows of the gradients of keys and values in scratch: one block, or all rows if several query
 * heads add to them. */
static inline int64_t z3d_attention_gradient_rows(const z3d_attention_backward *kernel) {
    return kernel->heads > kernel->kv_heads ? kernel->seq : (int64_t)Z3D_ATTENTION_KEYS;
}

/* Scratch for a head's queries, output's gradient, queries' gradient and one number per row; a
 * tile's keys, values and their gradients; probabilities and their gradient; mask. */
static inline int64_t z3d_scratch_attention_backward(const z3d_attention_backward *kernel,
                                                     int threads) {
    return threads *
           (3 * z3d_attention_floats(kernel->seq, kernel->head_dim) +
            z3d_attention_floats(kernel->seq, 1) +
            2 * z3d_attention_floats(Z3D_ATTENTION_KEYS, kernel->head_dim) +
            2 * z3d_attention_floats(z3d_attention_gradient_rows(kernel), kernel->head_dim) +
            2 * z3d_attention_floats(Z3D_ATTENTION_QUERIES, Z3D_ATTENTION_KEYS) +
            z3d_attention_floats(Z3D_ATTENTION_KEYS, 1));
}

#endif
