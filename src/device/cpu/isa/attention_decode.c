/* Attention of one query row per sample over a cache of keys and values. Reading the cache takes
 * most of the time, so each key or value is read once, in place, for all query heads that use it.
 * Keys are cut into fixed ranges. For each query head a range leaves its maximum, its sum of
 * exponentials and its weighted sum of values; a second step adds the ranges up in order. A thread
 * takes adjacent key/value heads, so it reads rows in the order of memory. */
#include <math.h>

#include "src/device/cpu/isa/attention.h"
#include "src/device/cpu/isa/isa.h"
#include "src/device/cpu/isa/lanes.h"

enum { RANGE = Z3D_ATTENTION_RANGE, ROWS = Z3D_ATTENTION_ROWS };

_Static_assert(RANGE % ROWS == 0 && ROWS % 4 == 0 && RANGE % LANES == 0, "ranges are whole rows");

typedef struct decode {
    const z3d_cpu *cpu;
    const z3d_attention_forward *kernel;
    int64_t group, ranges, stride; /* ranges: partial results of a query head; stride: floats of one
                                      partial result */
    float scale;
    float *partials;
} decode;

/* The keys of a sample's range: [first, end). */
typedef struct key_range {
    int64_t sample, index, first, end; /* index: counted from the first range that is seen */
} key_range;

/* One thread's arrays. */
typedef struct decode_scratch {
    float *queries, *scores, *rows;
} decode_scratch;

/* The keys of range `index` that the query sees; none if first >= end. */
static key_range range_of(const decode *with, int64_t sample, int64_t index) {
    const z3d_attention_forward *kernel = with->kernel;
    const int64_t position = kernel->starts[sample], window = kernel->window;
    const int64_t begin = window > 0 && position >= window ? position - window + 1 : 0;
    const int64_t first = (begin / RANGE + index) * RANGE;
    return (key_range){sample, index, first > begin ? first : begin,
                       min_int64(first + RANGE, position + 1)};
}

/* The partial result of a range: its weighted sum, padded to whole cache lines, then its maximum
 * and its sum of exponentials. */
static float *partial_of(const decode *with, const key_range *range, int64_t head) {
    const int64_t row = range->sample * with->kernel->heads + head;
    return with->partials + (row * with->ranges + range->index) * with->stride;
}

/* Rows key .. key + n - 1 of heads first .. of keys or values, `cols` elements: in place if they
 * are fp32, else converted into scratch. */
static const float *cache_rows(const decode *with, const decode_scratch *s, const void *base,
                               int64_t sample, int64_t key, int64_t n, int64_t first, int64_t cols,
                               int64_t *stride) {
    const z3d_attention_forward *kernel = with->kernel;
    const int64_t at =
        (sample * kernel->capacity + key) * kernel->kv_stride + first * kernel->head_dim;
    const int64_t padded = cols + LANES; /* rows that are a page apart would compete for the same
                                            cache lines */
    *stride = kernel->dtype == Z3D_F32 ? kernel->kv_stride : padded;
    if (kernel->dtype == Z3D_F32) return (const float *)base + at;
    for (int64_t row = 0; row < n; row++)
        widen(s->rows + row * padded, element(base, kernel->dtype, at + row * kernel->kv_stride),
              kernel->dtype, cols);
    return s->rows;
}

/* out[4] = products of four rows with one vector of d elements, a multiple of LANES. */
static inline void dot_four(float *out, const float *restrict rows, int64_t stride,
                            const float *restrict vector_d, int64_t d) {
    lanes sum[4] = {0};
    for (int64_t i = 0; i < d; i += LANES)
#pragma GCC unroll 4
        for (int row = 0; row < 4; row++)
            lanes_add_products(&sum[row], rows + row * stride + i, vector_d + i);
    lanes_totals(out, sum);
}

static void dot_rows(float *out, const float *rows, int64_t n, int64_t stride, const float *query,
                     int64_t d) {
    int64_t row = 0;
    for (; d % LANES == 0 && row + 4 <= n; row += 4)
        dot_four(out + row, rows + row * stride, stride, query, d);
    for (; row < n; row++) out[row] = dot_tile(rows + row * stride, query, d);
}

/* sum[d] += weights[n] x rows. */
static void add_rows(float *restrict sum, const float *restrict rows, int64_t n, int64_t stride,
                     const float *restrict weights, int64_t d) {
    enum { WIDTH = 4 * VECTOR };
    int64_t i = 0;
    for (; i + WIDTH <= d; i += WIDTH) {
        vector part[4];
        memcpy(part, sum + i, sizeof part);
        for (int64_t row = 0; row < n; row++)
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                part[j] += weights[row] * LOAD_VECTOR(rows + row * stride + i + j * VECTOR);
        memcpy(sum + i, part, sizeof part);
    }
    for (int64_t row = 0; row < n && i < d; row++)
#pragma omp simd
        for (int64_t j = i; j < d; j++) sum[j] += weights[row] * rows[row * stride + j];
}

/* Turns scores into exponentials relative to their maximum. */
static void exponentials(float *scores, int64_t n, float *maximum, float *sum) {
    const int64_t width = (n + LANES - 1) / LANES * LANES;
    for (int64_t i = n; i < width; i++) scores[i] = -INFINITY;
    *maximum = row_maximum(scores, width);
    row_exp(scores, *maximum, width);
    *sum = sum_tile(scores, width);
}

/* Key/value heads first .. end - 1 of a range, and all query heads that read them. */
static void decode_range(const decode *with, const decode_scratch *s, const key_range *range,
                         int64_t first, int64_t end) {
    const z3d_attention_forward *kernel = with->kernel;
    const int64_t d = kernel->head_dim, group = with->group, keys = range->end - range->first;
    const int64_t head = first * group, heads = (end - first) * group, cols = (end - first) * d;
    int64_t stride;
    widen(s->queries,
          element(kernel->q, kernel->dtype, range->sample * kernel->q_stride + head * d),
          kernel->dtype, heads * d);
    row_scale(s->queries, with->scale, heads * d);
    for (int64_t key = 0; key < keys; key += ROWS) {
        const int64_t n = min_int64(ROWS, keys - key);
        const float *rows = cache_rows(with, s, kernel->k, range->sample, range->first + key, n,
                                       first, cols, &stride);
        for (int64_t h = 0; h < heads; h++)
            dot_rows(s->scores + h * RANGE + key, rows + h / group * d, n, stride,
                     s->queries + h * d, d);
    }
    for (int64_t h = 0; h < heads; h++) {
        float *partial = partial_of(with, range, head + h);
        exponentials(s->scores + h * RANGE, keys, &partial[d], &partial[d + 1]);
        memset(partial, 0, (size_t)d * sizeof *partial);
    }
    for (int64_t key = 0; key < keys; key += ROWS) {
        const int64_t n = min_int64(ROWS, keys - key);
        const float *rows = cache_rows(with, s, kernel->v, range->sample, range->first + key, n,
                                       first, cols, &stride);
        for (int64_t h = 0; h < heads; h++)
            add_rows(partial_of(with, range, head + h), rows + h / group * d, n, stride,
                     s->scores + h * RANGE + key, d);
    }
}

/* The number of keys that one head reads, over all samples. */
static int64_t keys_seen(const z3d_attention_forward *kernel) {
    int64_t keys = 0;
    for (int64_t sample = 0; sample < kernel->batch; sample++) {
        const int64_t all = (int64_t)kernel->starts[sample] + 1;
        keys += kernel->window > 0 ? min_int64(all, kernel->window) : all;
    }
    return keys;
}

/* Heads begin every `keys` keys, the first at `before`. Returns the first head that begins at
 * `from` or later. */
static int64_t first_head_from(int64_t from, int64_t before, int64_t keys, int64_t heads) {
    if (from <= before) return 0;
    return min_int64((from - before + keys - 1) / keys, heads);
}

/* A thread's part: imagine all keys of all heads of all ranges in one row; the thread takes the
 * heads of a range that begin at from .. to - 1. */
static void decode_part(const decode *with, const decode_scratch *s, int64_t from, int64_t to,
                        bool polls) {
    const int64_t heads = with->kernel->kv_heads;
    int64_t before = 0;
    for (int64_t sample = 0; sample < with->kernel->batch; sample++)
        for (int64_t i = 0; i < with->ranges; i++) {
            const key_range range = range_of(with, sample, i);
            const int64_t keys = range.end - range.first;
            if (keys <= 0) break;
            const int64_t first = first_head_from(from, before, keys, heads);
            const int64_t end = first_head_from(to, before, keys, heads);
            before += keys * heads;
            if (first >= end) continue;
            decode_range(with, s, &range, first, end);
            if (polls) z3d_cpu_poll(with->cpu);
        }
}

/* Adds up the ranges of one query head of one sample. */
static void combine(const decode *with, int64_t sample, int64_t head) {
    const z3d_attention_forward *kernel = with->kernel;
    const int64_t d = kernel->head_dim;
    key_range range = range_of(with, sample, 0);
    float *out = partial_of(with, &range, head), maximum = out[d], sum = out[d + 1];
    for (int64_t i = 1; i < with->ranges; i++) {
        range = range_of(with, sample, i);
        if (range.first >= range.end) break;
        const float *other = partial_of(with, &range, head);
        const float most = other[d] > maximum ? other[d] : maximum;
        const float ours = z3d_exp(maximum - most), theirs = z3d_exp(other[d] - most);
        sum = sum * ours + other[d + 1] * theirs;
#pragma omp simd
        for (int64_t j = 0; j < d; j++) out[j] = out[j] * ours + other[j] * theirs;
        maximum = most;
    }
    row_scale(out, 1.0f / sum, d);
    const int64_t row = sample * kernel->heads + head;
    narrow(element_to_write(kernel->out, kernel->dtype, row * d), kernel->dtype, out, d);
    if (kernel->log_sum_exp) kernel->log_sum_exp[row] = maximum + z3d_log(sum);
}

void Z3D_CPU_NAME(attention_decode)(z3d_cpu *cpu, const z3d_attention_forward *kernel) {
    const int64_t d = kernel->head_dim, rows = kernel->batch * kernel->heads;
    if (rows == 0) return;
    const int64_t per_thread = z3d_attention_decode_thread(kernel);
    const decode with = {.cpu = cpu,
                         .kernel = kernel,
                         .group = kernel->heads / kernel->kv_heads,
                         .ranges = z3d_attention_ranges(kernel),
                         .stride = z3d_attention_partial(kernel),
                         .scale = (float)(1.0 / sqrt((double)d)),
                         .partials = (float *)(void *)(cpu->scratch + cpu->threads * per_thread)};
    const int64_t total = keys_seen(kernel) * kernel->kv_heads;
    const int threads = total * d > BLOCK ? cpu->threads : 1;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const int64_t thread = omp_get_thread_num(), team = omp_get_num_threads();
        char *scratch = cpu->scratch + thread * per_thread;
        decode_scratch s;
        s.queries = z3d_attention_take(&scratch, kernel->heads, d);
        s.scores = z3d_attention_take(&scratch, kernel->heads, RANGE);
        s.rows = (float *)(void *)scratch;
        decode_part(&with, &s, total * thread / team, total * (thread + 1) / team, thread == 0);
#pragma omp barrier
#pragma omp for
        for (int64_t row = 0; row < rows; row++)
            combine(&with, row / kernel->heads, row % kernel->heads);
    }
}
