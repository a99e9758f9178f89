/* Seconds of a model's matrix products alone, the floor of its steps: each by the faster of
 * oneDNN's sgemm and its matmul primitive whose right operand is packed beforehand at no cost.
 * fp32, best of three, on all threads of the process. Returns -1 if there is not enough memory. */
#ifndef ZERO3D_BENCH_FLOOR_H
#define ZERO3D_BENCH_FLOOR_H

#include <stdbool.h>
#include <stdint.h>

/* Forward and both backward products of `rows` tokens. */
double bench_floor_train(bool llama, int64_t rows);
/* Forward products of a prefill of `rows` tokens, with the logits of the last one. */
double bench_floor_prefill(bool llama, int64_t rows);

#endif
