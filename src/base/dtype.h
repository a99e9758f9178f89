/* Element types of tensors and the exact scalar conversions between them (round to nearest even,
 * NaN stays NaN). */
#ifndef ZERO3D_BASE_DTYPE_H
#define ZERO3D_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/* X(NAME, name, bytes) */
#define Z3D_DTYPE_MAP(X)                                                                           \
    X(F32, fp32, 4)                                                                                \
    X(BF16, bf16, 2)                                                                               \
    X(F16, fp16, 2)                                                                                \
    X(F64, fp64, 8)                                                                                \
    X(I32, int32, 4)                                                                               \
    X(U8, uint8, 1)

typedef enum z3d_dtype {
#define X(NAME, name, bytes) Z3D_##NAME,
    Z3D_DTYPE_MAP(X)
#undef X
        Z3D_DTYPE_COUNT
} z3d_dtype;

size_t z3d_dtype_size(z3d_dtype dtype);      /* bytes of one element */
const char *z3d_dtype_name(z3d_dtype dtype); /* "bf16" */

float z3d_bf16_to_float(uint16_t bits);
uint16_t z3d_float_to_bf16(float value);
float z3d_f16_to_float(uint16_t bits);
uint16_t z3d_float_to_f16(float value);

#endif
