/* Causal attention without the batch x heads x seq x seq matrix, after Dao et al.,
 * "FlashAttention", 2022: a tile of scores at a time, with a running maximum and sum; backward
 * recomputes the probabilities from the stored logarithm of the sum. Operands are copied (and
 * converted to fp32) into contiguous rows. oneDNN computes the products on one thread. A thread's
 * task is some query rows of a head (backward: a head); tasks write to separate memory. */
#include <math.h>

#include "src/device/cpu/isa/attention.h"
#include "src/device/cpu/isa/dropout.h"
#include "src/device/cpu/isa/isa.h"
#include "src/device/cpu/isa/lanes.h"

enum { QUERIES = Z3D_ATTENTION_QUERIES, KEYS = Z3D_ATTENTION_KEYS };

_Static_assert(KEYS % QUERIES == 0 && Z3D_ATTENTION_FORWARD % QUERIES == 0 && KEYS % LANES == 0,
               "tiles of scores end where blocks of keys and tasks do");

/* What all tasks of one launch share. */
typedef struct attention {
    const z3d_cpu *cpu;
    int64_t seq, heads, head_dim, first_head;
    z3d_dtype dtype;
    float scale;
    bool drops;
    z3d_dropout_rule rule;
} attention;

static attention attention_of(const z3d_cpu *cpu, int64_t seq, int64_t heads, int64_t head_dim,
                              int64_t first_head, z3d_dtype dtype, const z3d_dropout *dropout) {
    attention with = {.cpu = cpu,
                      .seq = seq,
                      .heads = heads,
                      .head_dim = head_dim,
                      .first_head = first_head,
                      .dtype = dtype,
                      .scale = (float)(1.0 / sqrt((double)head_dim)),
                      .drops = dropout->p > 0};
    if (with.drops) with.rule = z3d_dropout_rule_of(dropout);
    return with;
}

/* All or one: OpenMP would end the threads that a smaller team spares, and make them anew. */
static int team_for(const z3d_cpu *cpu, int64_t tasks) {
    return tasks > 1 ? cpu->threads : 1;
}

/* The next `rows` x `cols` floats of a thread's scratch. */
static float *take(char **at, int64_t rows, int64_t cols) {
    float *taken = (float *)*at;
    *at += z3d_attention_floats(rows, cols);
    return taken;
}

/* Where row 0 of a head of part 0, 1, 2 (query, key, value) of qkv begins, in elements. */
static int64_t qkv_offset(const attention *with, int64_t sample, int64_t part, int64_t head) {
    return ((sample * with->seq * 3 + part) * with->heads + head) * with->head_dim;
}

/* Rows first .. first + count - 1 of a head, whose rows are `stride` elements apart. */
static void load_rows(const attention *with, float *to, const void *base, int64_t offset,
                      int64_t stride, int64_t first, int64_t count) {
    for (int64_t row = 0; row < count; row++)
        widen(to + row * with->head_dim,
              element(base, with->dtype, offset + (first + row) * stride), with->dtype,
              with->head_dim);
}

static void store_rows(const attention *with, const float *from, void *base, int64_t offset,
                       int64_t stride, int64_t first, int64_t count) {
    char *to = base;
    for (int64_t row = 0; row < count; row++)
        narrow(to + (offset + (first + row) * stride) * (with->dtype == Z3D_F32 ? 4 : 2),
               with->dtype, from + row * with->head_dim, with->head_dim);
}

/* Scores of keys after the query, and of those that fill up the last lanes, are minus infinity.
 * Returns the number of columns that rows are then worked on in, a multiple of LANES. */
static int64_t mask_scores(float *scores, int64_t first_query, int64_t queries, int64_t first_key,
                           int64_t keys) {
    const int64_t width = (keys + LANES - 1) / LANES * LANES;
    for (int64_t row = 0; row < queries; row++) {
        int64_t seen = min_int64(first_query + row - first_key + 1, keys);
        for (int64_t col = seen; col < width; col++) scores[row * KEYS + col] = -INFINITY;
    }
    return width;
}

static float row_maximum(const float *restrict x, int64_t n) {
    float lane[LANES];
    for (int j = 0; j < LANES; j++) lane[j] = x[j];
    for (int64_t i = LANES; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            lane[j] = lane[j + width] > lane[j] ? lane[j + width] : lane[j];
    return lane[0];
}

/* x = exp(x - shift). */
static void row_exp(float *restrict x, float shift, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] = z3d_exp(x[i] - shift);
}

static void row_scale(float *restrict x, float factor, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

static void row_multiply(float *restrict x, const float *restrict y, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] *= y[i];
}

/* One thread's arrays in forward. */
typedef struct forward_scratch {
    float *keys, *values, *queries, *scores, *out, *maximum, *sum, *mask;
} forward_scratch;

/* The block of keys from first_key on, for the tile of queries in scratch: adds to out and sum,
 * which are relative to the maximum so far. */
static void forward_block(const attention *with, const forward_scratch *s, int64_t sample,
                          int64_t head, int64_t first_query, int64_t queries, int64_t first_key,
                          int64_t keys) {
    const int64_t d = with->head_dim;
    z3d_cpu_sgemm_serial(with->cpu, false, true, queries, keys, d, with->scale, s->queries, d,
                         s->keys + first_key * d, d, 0.0f, s->scores, KEYS);
    const int64_t width = mask_scores(s->scores, first_query, queries, first_key, keys);
    for (int64_t row = 0; row < queries; row++) {
        float *scores = s->scores + row * KEYS;
        const float largest = row_maximum(scores, width);
        const bool rises = first_key == 0 || largest > s->maximum[row];
        const float maximum = rises ? largest : s->maximum[row];
        row_exp(scores, maximum, width);
        if (first_key == 0) {
            s->sum[row] = sum_tile(scores, width);
        } else {
            const float correction = z3d_exp(s->maximum[row] - maximum);
            s->sum[row] = s->sum[row] * correction + sum_tile(scores, width);
            if (rises) row_scale(s->out + row * d, correction, d);
        }
        s->maximum[row] = maximum;
        if (with->drops) {
            z3d_dropout_mask(&with->rule, sample, with->first_head + head, first_query + row,
                             first_key, width, s->mask);
            row_multiply(scores, s->mask, width);
        }
    }
    z3d_cpu_sgemm_serial(with->cpu, false, false, queries, d, keys, 1.0f, s->scores, KEYS,
                         s->values + first_key * d, d, first_key == 0 ? 0.0f : 1.0f, s->out, d);
}

/* Query rows first .. end - 1 of one head. */
static void forward_task(const attention *with, const z3d_attention_forward *kernel, char *scratch,
                         int64_t sample, int64_t head, int64_t first, int64_t end, bool polls) {
    const int64_t d = with->head_dim, heads = with->heads, seq = with->seq;
    forward_scratch s;
    s.keys = take(&scratch, seq, d);
    s.values = take(&scratch, seq, d);
    s.queries = take(&scratch, QUERIES, d);
    s.scores = take(&scratch, QUERIES, KEYS);
    s.out = take(&scratch, QUERIES, d);
    s.maximum = take(&scratch, QUERIES, 1);
    s.sum = take(&scratch, QUERIES, 1);
    s.mask = take(&scratch, KEYS, 1);
    load_rows(with, s.keys, kernel->qkv, qkv_offset(with, sample, 1, head), 3 * heads * d, 0, end);
    load_rows(with, s.values, kernel->qkv, qkv_offset(with, sample, 2, head), 3 * heads * d, 0,
              end);
    for (int64_t query = first; query < end; query += QUERIES) {
        const int64_t queries = min_int64(QUERIES, end - query);
        load_rows(with, s.queries, kernel->qkv, qkv_offset(with, sample, 0, head), 3 * heads * d,
                  query, queries);
        for (int64_t key = 0; key < query + queries; key += KEYS)
            forward_block(with, &s, sample, head, query, queries, key,
                          min_int64(KEYS, query + queries - key));
        float *log_sum_exp = kernel->log_sum_exp + (sample * heads + head) * seq + query;
        for (int64_t row = 0; row < queries; row++) {
            row_scale(s.out + row * d, 1.0f / s.sum[row], d);
            log_sum_exp[row] = s.maximum[row] + z3d_log(s.sum[row]);
        }
        store_rows(with, s.out, kernel->out, (sample * seq * heads + head) * d, heads * d, query,
                   queries);
        if (polls) z3d_cpu_poll(with->cpu);
    }
}

#define REQUIRE_SHAPE(kernel_name, kernel)                                                         \
    Z3D_REQUIRE((kernel)->batch >= 0 && (kernel)->seq >= 0 && (kernel)->heads >= 0 &&              \
                    (kernel)->head_dim > 0 && (kernel)->first_head >= 0,                           \
                "kernel " #kernel_name ": batch %lld, seq %lld, heads %lld (first %lld) of %lld",  \
                (long long)(kernel)->batch, (long long)(kernel)->seq, (long long)(kernel)->heads,  \
                (long long)(kernel)->first_head, (long long)(kernel)->head_dim);                   \
    Z3D_REQUIRE(!((kernel)->dropout.p > 0) ||                                                      \
                    ((kernel)->seq <= Z3D_DROPOUT_MAX_ROWS &&                                      \
                     (kernel)->first_head + (kernel)->heads <= Z3D_DROPOUT_MAX_HEADS),             \
                "kernel " #kernel_name ": dropout counts %lld heads and %lld rows at most",        \
                (long long)Z3D_DROPOUT_MAX_HEADS, (long long)Z3D_DROPOUT_MAX_ROWS)

z3d_status Z3D_CPU_NAME(attention_forward)(z3d_cpu *cpu, const z3d_kernel *launched) {
    const z3d_attention_forward *kernel = &launched->as.attention_forward;
    REQUIRE_FLOAT(attention_forward, kernel->dtype);
    REQUIRE_SHAPE(attention_forward, kernel);
    REQUIRE_SCRATCH(attention_forward, cpu, z3d_scratch_attention_forward(kernel, cpu->threads));
    const int64_t per_thread = z3d_scratch_attention_forward(kernel, 1);
    const attention with = attention_of(cpu, kernel->seq, kernel->heads, kernel->head_dim,
                                        kernel->first_head, kernel->dtype, &kernel->dropout);
    /* Whole heads, or parts of them where threads would lack work: the results are the same. */
    const int64_t heads = kernel->batch * kernel->heads;
    const int64_t rows = heads >= 4 * cpu->threads ? kernel->seq : Z3D_ATTENTION_FORWARD;
    const int64_t per_head = kernel->seq > 0 ? (kernel->seq + rows - 1) / rows : 0;
    const int64_t tasks = heads * per_head;
#pragma omp parallel num_threads(team_for(cpu, tasks))
    {
        const int thread = omp_get_thread_num();
        char *scratch = cpu->scratch + thread * per_thread;
        /* The last rows of all heads come first: they see the most keys, and short tasks at the end
         * leave no thread waiting. */
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < tasks; task++) {
            const int64_t first = (per_head - 1 - task / heads) * rows;
            const int64_t sample = task % heads / kernel->heads, head = task % kernel->heads;
            forward_task(&with, kernel, scratch, sample, head, first,
                         min_int64(first + rows, kernel->seq), thread == 0);
        }
    }
    return Z3D_OK;
}

/* One thread's arrays in backward. */
typedef struct backward_scratch {
    float *queries, *dout, *dqueries, *delta; /* of the whole head */
    float *keys, *values, *dkeys, *dvalues;   /* of the block of keys */
    float *probabilities, *dscores, *mask;    /* of the tile */
} backward_scratch;

/* One row of the tile: from the scores to the probabilities as the values saw them (dropped ones 0,
 * the others scaled), and from the probabilities' gradient to the scores' gradient. */
static void backward_row(float *restrict scores, float *restrict gradient,
                         const float *restrict mask, float log_sum_exp, float delta, int64_t n) {
    if (mask) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float p = z3d_exp(scores[i] - log_sum_exp);
            gradient[i] = p * (gradient[i] * mask[i] - delta);
            scores[i] = p * mask[i];
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float p = z3d_exp(scores[i] - log_sum_exp);
            gradient[i] = p * (gradient[i] - delta);
            scores[i] = p;
        }
    }
}

/* A tile of queries against the block of keys in scratch: adds to the gradients of all three. */
static void backward_tile(const attention *with, const backward_scratch *s,
                          const float *log_sum_exp, int64_t sample, int64_t head,
                          int64_t first_query, int64_t queries, int64_t first_key, int64_t keys) {
    const z3d_cpu *cpu = with->cpu;
    const int64_t d = with->head_dim;
    const float *q = s->queries + first_query * d, *dout = s->dout + first_query * d;
    float *p = s->probabilities, *ds = s->dscores;
    keys = min_int64(keys, first_query + queries - first_key);
    z3d_cpu_sgemm_serial(cpu, false, true, queries, keys, d, with->scale, q, d, s->keys, d, 0.0f, p,
                         KEYS);
    z3d_cpu_sgemm_serial(cpu, false, true, queries, keys, d, 1.0f, dout, d, s->values, d, 0.0f, ds,
                         KEYS);
    const int64_t width = mask_scores(p, first_query, queries, first_key, keys);
    for (int64_t row = 0; row < queries; row++) {
        if (with->drops)
            z3d_dropout_mask(&with->rule, sample, with->first_head + head, first_query + row,
                             first_key, width, s->mask);
        backward_row(p + row * KEYS, ds + row * KEYS, with->drops ? s->mask : NULL,
                     log_sum_exp[first_query + row], s->delta[first_query + row], width);
    }
    z3d_cpu_sgemm_serial(cpu, true, false, keys, d, queries, 1.0f, p, KEYS, dout, d, 1.0f,
                         s->dvalues, d);
    z3d_cpu_sgemm_serial(cpu, true, false, keys, d, queries, with->scale, ds, KEYS, q, d, 1.0f,
                         s->dkeys, d);
    z3d_cpu_sgemm_serial(cpu, false, false, queries, d, keys, with->scale, ds, KEYS, s->keys, d,
                         first_key == 0 ? 0.0f : 1.0f, s->dqueries + first_query * d, d);
}

/* delta = sum over the head's columns of out x dout, which is also the sum over all keys of
 * probability x its gradient. A row of `out` is read into where the queries' gradient will be. */
static void load_delta(const attention *with, const backward_scratch *s, const void *out,
                       int64_t offset, int64_t stride) {
    const int64_t d = with->head_dim;
    for (int64_t row = 0; row < with->seq; row++) {
        load_rows(with, s->dqueries, out, offset, stride, row, 1);
        row_multiply(s->dqueries, s->dout + row * d, d);
        s->delta[row] = sum_tile(s->dqueries, d);
    }
}

static void backward_task(const attention *with, const z3d_attention_backward *kernel,
                          char *scratch, int64_t sample, int64_t head, bool polls) {
    const int64_t d = with->head_dim, seq = with->seq, stride = 3 * with->heads * d;
    const int64_t at[3] = {qkv_offset(with, sample, 0, head), qkv_offset(with, sample, 1, head),
                           qkv_offset(with, sample, 2, head)};
    const int64_t out = (sample * seq * with->heads + head) * d;
    const float *log_sum_exp = kernel->log_sum_exp + (sample * with->heads + head) * seq;
    backward_scratch s;
    s.queries = take(&scratch, seq, d);
    s.dout = take(&scratch, seq, d);
    s.dqueries = take(&scratch, seq, d);
    s.delta = take(&scratch, seq, 1);
    s.keys = take(&scratch, KEYS, d);
    s.values = take(&scratch, KEYS, d);
    s.dkeys = take(&scratch, KEYS, d);
    s.dvalues = take(&scratch, KEYS, d);
    s.probabilities = take(&scratch, QUERIES, KEYS);
    s.dscores = take(&scratch, QUERIES, KEYS);
    s.mask = take(&scratch, KEYS, 1);
    load_rows(with, s.queries, kernel->qkv, at[0], stride, 0, seq);
    load_rows(with, s.dout, kernel->dout, out, with->heads * d, 0, seq);
    load_delta(with, &s, kernel->out, out, with->heads * d);
    for (int64_t key = 0; key < seq; key += KEYS) {
        const int64_t keys = min_int64(KEYS, seq - key);
        load_rows(with, s.keys, kernel->qkv, at[1], stride, key, keys);
        load_rows(with, s.values, kernel->qkv, at[2], stride, key, keys);
        memset(s.dkeys, 0, (size_t)(keys * d) * sizeof *s.dkeys);
        memset(s.dvalues, 0, (size_t)(keys * d) * sizeof *s.dvalues);
        for (int64_t query = key; query < seq; query += QUERIES) {
            backward_tile(with, &s, log_sum_exp, sample, head, query,
                          min_int64(QUERIES, seq - query), key, keys);
            if (polls) z3d_cpu_poll(with->cpu);
        }
        store_rows(with, s.dkeys, kernel->dqkv, at[1], stride, key, keys);
        store_rows(with, s.dvalues, kernel->dqkv, at[2], stride, key, keys);
    }
    store_rows(with, s.dqueries, kernel->dqkv, at[0], stride, 0, seq);
}

z3d_status Z3D_CPU_NAME(attention_backward)(z3d_cpu *cpu, const z3d_kernel *launched) {
    const z3d_attention_backward *kernel = &launched->as.attention_backward;
    REQUIRE_FLOAT(attention_backward, kernel->dtype);
    REQUIRE_SHAPE(attention_backward, kernel);
    REQUIRE_SCRATCH(attention_backward, cpu, z3d_scratch_attention_backward(kernel, cpu->threads));
    const int64_t per_thread = z3d_scratch_attention_backward(kernel, 1);
    const attention with = attention_of(cpu, kernel->seq, kernel->heads, kernel->head_dim,
                                        kernel->first_head, kernel->dtype, &kernel->dropout);
    const int64_t tasks = kernel->batch * kernel->heads;
#pragma omp parallel num_threads(team_for(cpu, tasks))
    {
        const int thread = omp_get_thread_num();
        char *scratch = cpu->scratch + thread * per_thread;
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < tasks; task++)
            backward_task(&with, kernel, scratch, task / kernel->heads, task % kernel->heads,
                          thread == 0);
    }
    return Z3D_OK;
}
