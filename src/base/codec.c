/* The table of codecs. */
#include "src/base/codec.h"

#include <string.h>

#include "src/base/strings.h"

/* ---- bytes ---- */

#define X(NAME, name, bytes)                                                                       \
    static bool layout_##NAME(int64_t count, z3d_codec_bytes *out) {                               \
        out->scales = 0;                                                                           \
        return z3d_mul_i64(count, bytes, &out->payload);                                           \
    }
Z3D_DTYPE_MAP(X)
#undef X

/* ---- conversions: in ascending order, so that `to` may be `from` ---- */

static void encode_fp32(void *to, const float *from, int64_t count) {
    memmove(to, from, (size_t)count * sizeof *from);
}

static void decode_fp32(float *to, const void *from, int64_t count) {
    memcpy(to, from, (size_t)count * sizeof *to);
}

#define HALF(name, narrow, widen)                                                                  \
    static void encode_##name(void *to, const float *from, int64_t count) {                        \
        for (int64_t i = 0; i < count; i++) {                                                      \
            float value;                                                                           \
            memcpy(&value, (const char *)from + 4 * i, sizeof value);                              \
            const uint16_t half = narrow(value);                                                   \
            memcpy((char *)to + 2 * i, &half, sizeof half);                                        \
        }                                                                                          \
    }                                                                                              \
    static void decode_##name(float *to, const void *from, int64_t count) {                        \
        for (int64_t i = 0; i < count; i++) {                                                      \
            uint16_t half;                                                                         \
            memcpy(&half, (const char *)from + 2 * i, sizeof half);                                \
            to[i] = widen(half);                                                                   \
        }                                                                                          \
    }
HALF(bf16, z3d_float_to_bf16, z3d_bf16_to_float)
HALF(fp16, z3d_float_to_f16, z3d_f16_to_float)

static const z3d_codec codecs[] = {
    [Z3D_F32] = {"fp32", layout_F32, encode_fp32, decode_fp32},
    [Z3D_BF16] = {"bf16", layout_BF16, encode_bf16, decode_bf16},
    [Z3D_F16] = {"fp16", layout_F16, encode_fp16, decode_fp16},
    [Z3D_F64] = {"fp64", layout_F64, NULL, NULL},
    [Z3D_I32] = {"int32", layout_I32, NULL, NULL},
    [Z3D_U8] = {"uint8", layout_U8, NULL, NULL},
};
_Static_assert(sizeof codecs / sizeof *codecs == Z3D_DTYPE_COUNT, "each type has a codec");

const z3d_codec *z3d_codec_of(z3d_dtype dtype) {
    return &codecs[dtype];
}

bool z3d_codec_fit(const z3d_codec *codec, int64_t count, int64_t *bytes) {
    z3d_codec_bytes parts;
    return codec->layout(count, &parts) && z3d_add_i64(parts.payload, parts.scales, bytes);
}

bool z3d_bytes_fit(z3d_dtype dtype, int64_t count, int64_t *bytes) {
    return z3d_codec_fit(&codecs[dtype], count, bytes);
}

int64_t z3d_bytes_of(z3d_dtype dtype, int64_t count) {
    int64_t bytes;
    return z3d_bytes_fit(dtype, count, &bytes) ? bytes : INT64_MAX;
}

int64_t z3d_values_in(z3d_dtype dtype, int64_t bytes) {
    return bytes / z3d_bytes_of(dtype, 1);
}
