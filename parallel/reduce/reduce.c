/* Sums and maxima of two arrays in every reducible type. Each loop is written once and compiled for
 * the plain instruction set and, on x86, for AVX2 and AVX-512. fp16 uses the CPU's conversions
 * where the CPU has them. */
#include "parallel/reduce/reduce.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define HAVE_X86 1
#endif

#define INLINE static inline __attribute__((always_inline))

/* ---- one element ---- */

#define KEEP(x) (x)
#define ADD(a, b) ((a) + (b))
#define LARGER(a, b) ((((a) > (b)) | ((a) != (a))) ? (a) : (b))
#define ADD_WRAPPING(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))

/* ---- one loop ---- */

#define LOOP(name, type, wide, widen, narrow, combine)                                             \
    INLINE void name(type *to, const type *a, const type *b, int64_t count) {                      \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++) {                                  \
            wide x = widen(a[i]), y = widen(b[i]);                                                 \
            to[i] = narrow(combine(x, y));                                                         \
        }                                                                                          \
    }
LOOP(f32_sum, float, float, KEEP, KEEP, ADD)
LOOP(f32_max, float, float, KEEP, KEEP, LARGER)
LOOP(f64_sum, double, double, KEEP, KEEP, ADD)
LOOP(f64_max, double, double, KEEP, KEEP, LARGER)
LOOP(i32_sum, int32_t, int32_t, KEEP, KEEP, ADD_WRAPPING)
LOOP(i32_max, int32_t, int32_t, KEEP, KEEP, LARGER)
LOOP(bf16_sum, uint16_t, float, z3d_bf16_to_float, z3d_float_to_bf16, ADD)
LOOP(bf16_max, uint16_t, float, z3d_bf16_to_float, z3d_float_to_bf16, LARGER)
LOOP(f16_sum, uint16_t, float, z3d_f16_to_float, z3d_float_to_f16, ADD)
LOOP(f16_max, uint16_t, float, z3d_f16_to_float, z3d_float_to_f16, LARGER)

/* ---- one instruction set ---- */

#define FUNCTION(isa, target, name)                                                                \
    target static void name##_##isa(void *to, const void *a, const void *b, int64_t count) {       \
        name(to, a, b, count);                                                                     \
    }
#define FUNCTIONS(isa, target)                                                                     \
    FUNCTION(isa, target, f32_sum)                                                                 \
    FUNCTION(isa, target, f32_max)                                                                 \
    FUNCTION(isa, target, f64_sum)                                                                 \
    FUNCTION(isa, target, f64_max)                                                                 \
    FUNCTION(isa, target, i32_sum)                                                                 \
    FUNCTION(isa, target, i32_max)                                                                 \
    FUNCTION(isa, target, bf16_sum)                                                                \
    FUNCTION(isa, target, bf16_max)

typedef struct reduce_table {
    z3d_reduce_function by[Z3D_DTYPE_COUNT][2]; /* type, operation */
} reduce_table;

#define TABLE(isa)                                                                                 \
    static const reduce_table isa##_table = {{[Z3D_F32] = {f32_sum_##isa, f32_max_##isa},          \
                                              [Z3D_F64] = {f64_sum_##isa, f64_max_##isa},          \
                                              [Z3D_I32] = {i32_sum_##isa, i32_max_##isa},          \
                                              [Z3D_BF16] = {bf16_sum_##isa, bf16_max_##isa},       \
                                              [Z3D_F16] = {f16_sum_##isa, f16_max_##isa}}};

FUNCTIONS(plain, )
FUNCTION(plain, , f16_sum)
FUNCTION(plain, , f16_max)
TABLE(plain)

#ifdef HAVE_X86
#define TARGET_AVX2 __attribute__((target("avx2,f16c")))
#define TARGET_AVX512 __attribute__((target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")))

#define F16_AVX2(name, combine)                                                                    \
    TARGET_AVX2 static void name##_avx2(void *to, const void *a, const void *b, int64_t count) {   \
        uint16_t *t = to;                                                                          \
        const uint16_t *p = a, *q = b;                                                             \
        int64_t i = 0;                                                                             \
        for (; i + 8 <= count; i += 8) {                                                           \
            __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + i)));                    \
            __m256 y = _mm256_cvtph_ps(_mm_loadu_si128((const void *)(q + i)));                    \
            _mm_storeu_si128((void *)(t + i), _mm256_cvtps_ph(combine(x, y), 0));                  \
        }                                                                                          \
        if (i < count) name(t + i, p + i, q + i, count - i);                                       \
    }
/* maxps returns its second operand when one is NaN; so a NaN in the first operand needs the blend.
 */
#define ADD_AVX2(x, y) _mm256_add_ps(x, y)
#define LARGER_AVX2(x, y)                                                                          \
    _mm256_blendv_ps(_mm256_max_ps(x, y), x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q))
FUNCTIONS(avx2, TARGET_AVX2)
F16_AVX2(f16_sum, ADD_AVX2)
F16_AVX2(f16_max, LARGER_AVX2)
TABLE(avx2)

FUNCTIONS(avx512, TARGET_AVX512)
#define f16_sum_avx512 f16_sum_avx2
#define f16_max_avx512 f16_max_avx2
TABLE(avx512)
#endif

static const reduce_table *best_table(void) {
#ifdef HAVE_X86
    /* Every CPU with AVX2 and FMA has f16c, too. (clang 14 cannot ask for f16c by name, and the
     * cpuid instruction is slow in a virtual machine.) */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
        return wide ? &avx512_table : &avx2_table;
    }
#endif
    return &plain_table;
}

static z3d_reduce_function find(const reduce_table *table, z3d_dtype dtype, z3d_reduce_op op) {
    if ((unsigned)dtype >= Z3D_DTYPE_COUNT || (op != Z3D_SUM && op != Z3D_MAX)) return NULL;
    return table->by[dtype][op];
}

z3d_reduce_function z3d_reduce_find(z3d_dtype dtype, z3d_reduce_op op) {
    return find(best_table(), dtype, op);
}

z3d_reduce_function z3d_reduce_find_plain(z3d_dtype dtype, z3d_reduce_op op) {
    return find(&plain_table, dtype, op);
}
