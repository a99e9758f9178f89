/* GPT-2 124M, or a Llama of its shape. */
#ifndef ZERO3D_BENCH_MODEL_H
#define ZERO3D_BENCH_MODEL_H

#include "src/model/model.h"

enum { LAYERS = 12, HIDDEN = 768, VOCABULARY = 50257, PADDED = 50304 };
enum { HEADS = 12, KV_HEADS = 4, HEAD_DIM = HIDDEN / HEADS, LLAMA_INNER = 2048 };

/* A block's products, in -> out. */
enum { BENCH_PRODUCTS = 4 };
typedef struct bench_product {
    int64_t in, out;
} bench_product;
const bench_product *bench_model_products(bool llama);

/* packed: samples have several documents. */
z3d_status bench_model_create(bool llama, int64_t seq, bool packed, z3d_model **out);

/* floor.c: seconds of the model's matrix products alone, the floor of its steps: each by the faster
 * of oneDNN's sgemm and its matmul primitive whose right operand is packed beforehand at no cost.
 * fp32, best of three, on all threads of the process. Returns -1 if there is not enough memory. */

/* Forward and both backward products of `rows` tokens. */
double bench_floor_train(bool llama, int64_t rows);
/* Forward products of a prefill of `rows` tokens, with the logits of the last one. */
double bench_floor_prefill(bool llama, int64_t rows);

#endif
