/* Codecs: how values are stored. A codec computes the bytes of values and converts them from and to
 * fp32. All other code asks it for the bytes of a tensor. */
#ifndef ZERO3D_BASE_CODEC_H
#define ZERO3D_BASE_CODEC_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/dtype.h"

typedef struct z3d_codec_bytes {
    int64_t payload, scales;
} z3d_codec_bytes;

typedef struct z3d_codec {
    const char *name;
    /* The bytes of `count` values. False: they exceed int64. */
    bool (*layout)(int64_t count, z3d_codec_bytes *out);
    /* Convert `count` values. encode rounds each value once, to nearest even. `to` may be `from`.
     * Both are NULL for types that tensors' values never have. */
    void (*encode)(void *to, const float *from, int64_t count);
    void (*decode)(float *to, const void *from, int64_t count);
} z3d_codec;

const z3d_codec *z3d_codec_of(z3d_dtype dtype);

/* *bytes: payload and scales of `count` values together; false: they exceed int64. */
bool z3d_codec_fit(const z3d_codec *codec, int64_t count, int64_t *bytes);
/* The same for a type. Use it for sizes from a user or a file. */
bool z3d_bytes_fit(z3d_dtype dtype, int64_t count, int64_t *bytes);
/* The same for a count that is known to fit (else INT64_MAX). Also the offset of value `count` in a
 * tensor. */
int64_t z3d_bytes_of(z3d_dtype dtype, int64_t count);
/* The most values whose bytes are at most `bytes`. */
int64_t z3d_values_in(z3d_dtype dtype, int64_t bytes);

#endif
