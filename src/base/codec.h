/* Codecs: how values are stored. A codec says how many bytes values take, and turns fp32 values
 * into them and back. A tensor's bytes come from here and from nowhere else. */
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
    /* Of `count` values. False: more bytes than an int64 has. */
    bool (*layout)(int64_t count, z3d_codec_bytes *out);
    /* Each value rounded once, to nearest even. `to` may be `from`. NULL, like decode: the type is
     * none of tensors' values. */
    void (*encode)(void *to, const float *from, int64_t count);
    void (*decode)(float *to, const void *from, int64_t count);
} z3d_codec;

const z3d_codec *z3d_codec_of(z3d_dtype dtype);

/* Payload and scales of `count` values together; false: more bytes than an int64 has. */
bool z3d_codec_fit(const z3d_codec *codec, int64_t count, int64_t *bytes);
/* The same of a type. For sizes that a user or a file gives. */
bool z3d_bytes_fit(z3d_dtype dtype, int64_t count, int64_t *bytes);
/* The same of a count that fits (INT64_MAX: it does not). Also from a tensor's first value to its
 * value number `count`. */
int64_t z3d_bytes_of(z3d_dtype dtype, int64_t count);
/* Values that so many bytes have room for. */
int64_t z3d_values_in(z3d_dtype dtype, int64_t bytes);

#endif
