/* Causal attention without the batch x heads x seq x seq matrix, after Dao et al.,
 * "FlashAttention", 2022: a tile of scores at a time, with a running maximum and sum; backward
 * recomputes the probabilities from the stored logarithm of the sum. Operands are copied (and
 * converted to fp32) into contiguous rows. oneDNN computes the products on one thread. One task is
 * some query rows of the query heads of one key/value head (backward: all rows); tasks write to
 * separate memory. Blocks of keys that no query of a tile sees are skipped. */
#include <math.h>

#include "src/device/cpu/isa/attention.h"
#include "src/device/cpu/isa/dropout.h"
#include "src/device/cpu/isa/isa.h"
#include "src/device/cpu/isa/lanes.h"

enum { QUERIES = Z3D_ATTENTION_QUERIES, KEYS = Z3D_ATTENTION_KEYS };

_Static_assert(KEYS % QUERIES == 0 && Z3D_ATTENTION_FORWARD % QUERIES == 0 && KEYS % LANES == 0,
               "tiles of scores end where blocks of keys and tasks do");

/* Shared by all tasks of one launch. */
typedef struct attention {
    const z3d_cpu *cpu;
    const z3d_attention *shape;
    int64_t group; /* query heads of a key/value head */
    float scale;
    bool drops;
    z3d_dropout_rule rule;
} attention;

static attention attention_of(const z3d_cpu *cpu, const z3d_attention *shape) {
    attention with = {.cpu = cpu,
                      .shape = shape,
                      .group = shape->kv_heads > 0 ? shape->heads / shape->kv_heads : 0,
                      .scale = (float)(1.0 / sqrt((double)shape->head_dim)),
                      .drops = shape->dropout.p > 0};
    if (with.drops) with.rule = z3d_dropout_rule_of(&shape->dropout);
    return with;
}

/* Rows of one head in an operand: the start of row 0 and the distance between rows, in elements. */
typedef struct head_rows {
    int64_t offset, stride;
} head_rows;

static head_rows query_rows(const z3d_attention *shape, int64_t sample, int64_t head) {
    return (head_rows){sample * shape->seq * shape->q_stride + head * shape->head_dim,
                       shape->q_stride};
}

static head_rows key_rows(const z3d_attention *shape, int64_t sample, int64_t kv_head) {
    return (head_rows){sample * shape->capacity * shape->kv_stride + kv_head * shape->head_dim,
                       shape->kv_stride};
}

static head_rows out_rows(const z3d_attention *shape, int64_t sample, int64_t head) {
    return (head_rows){(sample * shape->seq * shape->heads + head) * shape->head_dim,
                       shape->heads * shape->head_dim};
}

/* Rows first .. first + count - 1 of a head. */
static void load_rows(const attention *with, float *to, const void *base, head_rows rows,
                      int64_t first, int64_t count) {
    const int64_t d = with->shape->head_dim;
    const z3d_dtype dtype = with->shape->dtype;
    for (int64_t row = 0; row < count; row++)
        widen(to + row * d, element(base, dtype, rows.offset + (first + row) * rows.stride), dtype,
              d);
}

static void store_rows(const attention *with, const float *from, void *base, head_rows rows,
                       int64_t first, int64_t count) {
    const int64_t d = with->shape->head_dim;
    const z3d_dtype dtype = with->shape->dtype;
    for (int64_t row = 0; row < count; row++)
        narrow(element_to_write(base, dtype, rows.offset + (first + row) * rows.stride), dtype,
               from + row * d, d);
}

/* The first key that the query at `position` sees. It never goes back from a query to the next. */
static int64_t first_seen(const attention *with, int64_t sample, int64_t position) {
    const z3d_attention *shape = with->shape;
    int64_t first = 0;
    if (shape->row_position) first = position - shape->row_position[sample * shape->seq + position];
    if (shape->window > 0 && position - shape->window + 1 > first)
        first = position - shape->window + 1;
    return first;
}

/* The start of the first block of keys that a query at `position` sees, and so its tile. */
static int64_t first_block(const attention *with, int64_t sample, int64_t position) {
    return min_int64(first_seen(with, sample, position), with->shape->capacity - 1) / KEYS * KEYS;
}

/* The tile of queries in scratch. */
typedef struct query_tile {
    int64_t sample, head, position, queries; /* position: of the first query */
} query_tile;

/* Sets the scores of keys that a query does not see to minus infinity, and also those that fill the
 * last lanes. Returns the number of columns to work on, a multiple of LANES. */
static int64_t mask_scores(const attention *with, float *scores, const query_tile *tile,
                           int64_t first_key, int64_t keys) {
    const int64_t width = (keys + LANES - 1) / LANES * LANES;
    for (int64_t row = 0; row < tile->queries; row++) {
        const int64_t position = tile->position + row;
        const int64_t seen = min_int64(position - first_key + 1, keys);
        const int64_t end = min_int64(first_seen(with, tile->sample, position) - first_key, keys);
        for (int64_t col = 0; col < end; col++) scores[row * KEYS + col] = -INFINITY;
        for (int64_t col = seen < 0 ? 0 : seen; col < width; col++)
            scores[row * KEYS + col] = -INFINITY;
    }
    return width;
}

/* One thread's arrays in forward. */
typedef struct forward_scratch {
#define X(name, rows, cols) float *name;
    Z3D_ATTENTION_FORWARD_ARRAYS(X)
#undef X
} forward_scratch;

/* Turns a row of scores into weights of the values, relative to the row's maximum so far. If the
 * row has seen no key yet, it has no maximum. */
static void forward_row(const attention *with, const forward_scratch *s, const query_tile *tile,
                        int64_t row, int64_t first_key, int64_t width, bool first) {
    const int64_t d = with->shape->head_dim;
    float *scores = s->scores + row * KEYS;
    const float largest = row_maximum(scores, width);
    const bool rises = first || largest > s->maximum[row];
    const float maximum = rises ? largest : s->maximum[row];
    const float shift = maximum == -INFINITY ? 0.0f : maximum;
    row_exp(scores, shift, width);
    if (first) {
        s->sum[row] = sum_tile(scores, width);
    } else {
        const float correction = z3d_exp(s->maximum[row] - shift);
        s->sum[row] = s->sum[row] * correction + sum_tile(scores, width);
        if (rises) row_scale(s->out + row * d, correction, d);
    }
    s->maximum[row] = maximum;
    if (with->drops) {
        z3d_dropout_mask(&with->rule, tile->sample, with->shape->first_head + tile->head,
                         tile->position + row, first_key, width, s->mask);
        row_multiply(scores, s->mask, width);
    }
}

/* Adds the block of keys that begins at first_key to out and sum, which are relative to the maximum
 * so far. first: it is the first block. keys, values: the block's rows. */
static void forward_block(const attention *with, const forward_scratch *s, const query_tile *tile,
                          const float *keys, const float *values, int64_t first_key, int64_t count,
                          bool first) {
    const int64_t d = with->shape->head_dim, queries = tile->queries;
    z3d_cpu_sgemm_serial(false, true, queries, count, d, with->scale, s->queries, d, keys, d, 0.0f,
                         s->scores, KEYS);
    const int64_t width = mask_scores(with, s->scores, tile, first_key, count);
    for (int64_t row = 0; row < queries; row++)
        forward_row(with, s, tile, row, first_key, width, first);
    z3d_cpu_sgemm_serial(false, false, queries, d, count, 1.0f, s->scores, KEYS, values, d,
                         first ? 0.0f : 1.0f, s->out, d);
}

/* One tile: query rows of one head, from `row` on. The keys in scratch begin at `base`. */
static void forward_tile(const attention *with, const forward_scratch *s, const query_tile *tile,
                         int64_t row, int64_t base) {
    const z3d_attention *shape = with->shape;
    const int64_t d = shape->head_dim, queries = tile->queries;
    const int64_t end = min_int64(tile->position + queries, shape->capacity);
    const int64_t begin = first_block(with, tile->sample, tile->position);
    load_rows(with, s->queries, shape->q, query_rows(shape, tile->sample, tile->head), row,
              queries);
    for (int64_t key = begin; key < end; key += KEYS)
        forward_block(with, s, tile, s->keys + (key - base) * d, s->values + (key - base) * d, key,
                      min_int64(KEYS, end - key), key == begin);
    for (int64_t i = 0; i < queries; i++) row_scale(s->out + i * d, 1.0f / s->sum[i], d);
    store_rows(with, s->out, shape->out, out_rows(shape, tile->sample, tile->head), row, queries);
    if (!shape->log_sum_exp) return;
    float *log_sum_exp =
        shape->log_sum_exp + (tile->sample * shape->heads + tile->head) * shape->seq + row;
    for (int64_t i = 0; i < queries; i++) log_sum_exp[i] = s->maximum[i] + z3d_log(s->sum[i]);
}

/* Query rows first .. end - 1 of `heads` query heads from `head` on, which read one key/value head.
 */
static void forward_task(const attention *with, char *scratch, int64_t sample, int64_t head,
                         int64_t heads, int64_t first, int64_t end, bool polls) {
    const z3d_attention *k = with->shape;
    const int64_t start = k->starts ? k->starts[sample] : 0;
    const int64_t base = first_block(with, sample, start + first);
    const int64_t count = min_int64(start + end, k->capacity) - base;
    const head_rows rows = key_rows(k, sample, head / with->group);
    forward_scratch s;
#define X(name, rows, cols) s.name = z3d_attention_take(&scratch, rows, cols);
    Z3D_ATTENTION_FORWARD_ARRAYS(X)
#undef X
    load_rows(with, s.keys, k->k, rows, base, count);
    load_rows(with, s.values, k->v, rows, base, count);
    for (int64_t h = head; h < head + heads; h++)
        for (int64_t row = first; row < end; row += QUERIES) {
            const query_tile tile = {sample, h, start + row, min_int64(QUERIES, end - row)};
            forward_tile(with, &s, &tile, row, base);
            if (polls) z3d_cpu_poll(with->cpu);
        }
}

static z3d_status check_shape(const char *name, const z3d_attention *k) {
    Z3D_REQUIRE(k->batch >= 0 && k->seq >= 0 && k->heads >= 0 && k->head_dim > 0 &&
                    k->first_head >= 0 && k->window >= 0,
                "kernel %s: batch %lld, seq %lld, heads %lld (first %lld) of %lld, window %lld",
                name, (long long)k->batch, (long long)k->seq, (long long)k->heads,
                (long long)k->first_head, (long long)k->head_dim, (long long)k->window);
    Z3D_REQUIRE(k->heads == 0 || (k->kv_heads > 0 && k->heads % k->kv_heads == 0),
                "kernel %s: %lld heads in groups of %lld key/value heads", name,
                (long long)k->heads, (long long)k->kv_heads);
    Z3D_REQUIRE(!(k->dropout.p > 0) || (k->seq <= Z3D_DROPOUT_MAX_ROWS &&
                                        k->first_head + k->heads <= Z3D_DROPOUT_MAX_HEADS),
                "kernel %s: dropout counts %lld heads and %lld rows at most", name,
                (long long)Z3D_DROPOUT_MAX_HEADS, (long long)Z3D_DROPOUT_MAX_ROWS);
    return Z3D_OK;
}

/* Each row continues the document of the row before it, or begins a new one. */
static z3d_status check_positions(const char *name, const z3d_attention *k) {
    const int32_t *positions = k->starts ? NULL : k->row_position;
    for (int64_t row = 0; positions && row < k->batch * k->seq; row++)
        Z3D_REQUIRE(positions[row] == 0 ||
                        (row % k->seq > 0 && positions[row] == positions[row - 1] + 1),
                    "kernel %s: row %lld of %lld is at position %d of its document", name,
                    (long long)(row % k->seq), (long long)k->seq, (int)positions[row]);
    return Z3D_OK;
}

static z3d_status check_starts(const z3d_attention *kernel) {
    Z3D_REQUIRE(kernel->starts || kernel->capacity == kernel->seq,
                "kernel attention_forward: %lld keys for %lld queries that begin at 0",
                (long long)kernel->capacity, (long long)kernel->seq);
    for (int64_t sample = 0; kernel->starts && sample < kernel->batch; sample++)
        Z3D_REQUIRE(kernel->starts[sample] >= 0 && kernel->starts[sample] < kernel->capacity,
                    "kernel attention_forward: sample %lld begins at %d of %lld", (long long)sample,
                    (int)kernel->starts[sample], (long long)kernel->capacity);
    return Z3D_OK;
}

z3d_status Z3D_CPU_NAME(attention_forward)(z3d_cpu *cpu, const z3d_kernel *launched) {
    const z3d_attention_forward *kernel = &launched->as.attention_forward;
    REQUIRE_FLOAT(attention_forward, kernel->dtype);
    Z3D_TRY(check_shape("attention_forward", kernel));
    Z3D_TRY(check_starts(kernel));
    Z3D_TRY(check_positions("attention_forward", kernel));
    if (z3d_attention_decodes(kernel)) {
        Z3D_CPU_NAME(attention_decode)(cpu, kernel);
        return Z3D_OK;
    }
    const int64_t per_thread = z3d_scratch_attention_forward(kernel, 1);
    const attention with = attention_of(cpu, kernel);
    /* A task has all query heads of a key/value head and all rows, or only parts of them if some
     * threads would have no work. The results are equal. */
    const int64_t most = 4 * cpu->threads, groups = kernel->batch * kernel->kv_heads;
    const int64_t rows =
        kernel->batch * kernel->heads >= most ? kernel->seq : Z3D_ATTENTION_FORWARD;
    const int64_t per_head = kernel->seq > 0 ? (kernel->seq + rows - 1) / rows : 0;
    const int64_t heads = groups * per_head >= most ? with.group : 1; /* of one task */
    const int64_t bundles = heads > 0 ? kernel->batch * kernel->heads / heads : 0;
    const int64_t per_sample = bundles > 0 ? bundles / kernel->batch : 0;
    const int64_t tasks = bundles * per_head;
#pragma omp parallel num_threads(z3d_cpu_team(cpu, tasks))
    {
        const int thread = omp_get_thread_num();
        char *scratch = cpu->scratch + thread * per_thread;
        /* The last rows of all heads come first, because they see the most keys. Short tasks at the
         * end keep all threads busy. */
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < tasks; task++) {
            const int64_t first = (per_head - 1 - task / bundles) * rows;
            const int64_t bundle = task % bundles;
            forward_task(&with, scratch, bundle / per_sample, bundle % per_sample * heads, heads,
                         first, min_int64(first + rows, kernel->seq), thread == 0);
        }
    }
    return Z3D_OK;
}

/* One thread's arrays in backward. */
typedef struct backward_scratch {
#define X(name, rows, cols) float *name;
    Z3D_ATTENTION_BACKWARD_ARRAYS(X)
#undef X
} backward_scratch;

/* One row of the tile: turns the scores into the probabilities that weighted the values (dropped
 * ones 0, the others scaled), and the probabilities' gradient into the scores' gradient. */
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

/* A tile of queries with the block of keys in scratch: adds to the gradients of queries, keys and
 * values. */
static void backward_tile(const attention *with, const backward_scratch *s,
                          const float *log_sum_exp, const query_tile *tile, int64_t first_key,
                          int64_t keys) {
    const int64_t d = with->shape->head_dim, first_query = tile->position, queries = tile->queries;
    const float *q = s->queries + first_query * d, *dout = s->dout + first_query * d;
    float *p = s->probabilities, *ds = s->dscores;
    keys = min_int64(keys, first_query + queries - first_key);
    z3d_cpu_sgemm_serial(false, true, queries, keys, d, with->scale, q, d, s->keys, d, 0.0f, p,
                         KEYS);
    z3d_cpu_sgemm_serial(false, true, queries, keys, d, 1.0f, dout, d, s->values, d, 0.0f, ds,
                         KEYS);
    const int64_t width = mask_scores(with, p, tile, first_key, keys);
    for (int64_t row = 0; row < queries; row++) {
        if (with->drops)
            z3d_dropout_mask(&with->rule, tile->sample, with->shape->first_head + tile->head,
                             first_query + row, first_key, width, s->mask);
        backward_row(p + row * KEYS, ds + row * KEYS, with->drops ? s->mask : NULL,
                     log_sum_exp[first_query + row], s->delta[first_query + row], width);
    }
    z3d_cpu_sgemm_serial(true, false, keys, d, queries, 1.0f, p, KEYS, dout, d, 1.0f, s->dvalues,
                         d);
    z3d_cpu_sgemm_serial(true, false, keys, d, queries, with->scale, ds, KEYS, q, d, 1.0f, s->dkeys,
                         d);
    z3d_cpu_sgemm_serial(false, false, queries, d, keys, with->scale, ds, KEYS, s->keys, d,
                         first_key == first_block(with, tile->sample, first_query) ? 0.0f : 1.0f,
                         s->dqueries + first_query * d, d);
}

/* delta = sum over the head's columns of out x dout, which is also the sum over all keys of
 * probability x its gradient. A row of `out` is loaded into the memory of the queries' gradient,
 * which is not yet in use. */
static void load_delta(const attention *with, const backward_scratch *s, const void *out,
                       head_rows rows) {
    const int64_t d = with->shape->head_dim;
    for (int64_t row = 0; row < with->shape->seq; row++) {
        load_rows(with, s->dqueries, out, rows, row, 1);
        row_multiply(s->dqueries, s->dout + row * d, d);
        s->delta[row] = sum_tile(s->dqueries, d);
    }
}

/* The block of keys that begins at first_key, for all queries of the head in scratch. */
static void backward_block(const attention *with, const backward_scratch *s,
                           const float *log_sum_exp, int64_t sample, int64_t head,
                           int64_t first_key, int64_t keys, bool polls) {
    const int64_t seq = with->shape->seq;
    for (int64_t query = first_key; query < seq && first_block(with, sample, query) <= first_key;
         query += QUERIES) {
        const query_tile tile = {sample, head, query, min_int64(QUERIES, seq - query)};
        backward_tile(with, s, log_sum_exp, &tile, first_key, keys);
        if (polls) z3d_cpu_poll(with->cpu);
    }
}

/* One query head. It adds to the gradients of keys and values that the group's earlier heads left
 * in scratch; with several heads scratch has all rows of these gradients. */
static void backward_head(const attention *with, backward_scratch s, int64_t sample, int64_t head,
                          bool polls) {
    const z3d_attention *shape = with->shape;
    const int64_t d = shape->head_dim, seq = shape->seq, group = with->group;
    const head_rows rows = query_rows(shape, sample, head), out = out_rows(shape, sample, head);
    const head_rows kv = key_rows(shape, sample, head / group);
    const float *log_sum_exp = shape->log_sum_exp + (sample * shape->heads + head) * seq;
    float *dkeys = s.dkeys, *dvalues = s.dvalues;
    load_rows(with, s.queries, shape->q, rows, 0, seq);
    load_rows(with, s.dout, shape->dout, out, 0, seq);
    load_delta(with, &s, shape->out, out);
    for (int64_t key = 0; key < seq; key += KEYS) {
        const int64_t keys = min_int64(KEYS, seq - key);
        load_rows(with, s.keys, shape->k, kv, key, keys);
        load_rows(with, s.values, shape->v, kv, key, keys);
        s.dkeys = dkeys + (group > 1 ? key * d : 0);
        s.dvalues = dvalues + (group > 1 ? key * d : 0);
        if (head % group == 0) {
            memset(s.dkeys, 0, (size_t)(keys * d) * sizeof *s.dkeys);
            memset(s.dvalues, 0, (size_t)(keys * d) * sizeof *s.dvalues);
        }
        backward_block(with, &s, log_sum_exp, sample, head, key, keys, polls);
        if (head % group == group - 1) {
            store_rows(with, s.dkeys, shape->dk, kv, key, keys);
            store_rows(with, s.dvalues, shape->dv, kv, key, keys);
        }
    }
    store_rows(with, s.dqueries, shape->dq, rows, 0, seq);
}

/* The query heads of one key/value head. */
static void backward_task(const attention *with, char *scratch, int64_t sample, int64_t kv_head,
                          bool polls) {
    const z3d_attention *k = with->shape;
    backward_scratch s;
#define X(name, rows, cols) s.name = z3d_attention_take(&scratch, rows, cols);
    Z3D_ATTENTION_BACKWARD_ARRAYS(X)
#undef X
    for (int64_t i = 0; i < with->group; i++)
        backward_head(with, s, sample, kv_head * with->group + i, polls);
}

z3d_status Z3D_CPU_NAME(attention_backward)(z3d_cpu *cpu, const z3d_kernel *launched) {
    const z3d_attention_backward *kernel = &launched->as.attention_backward;
    REQUIRE_FLOAT(attention_backward, kernel->dtype);
    Z3D_TRY(check_shape("attention_backward", kernel));
    Z3D_REQUIRE(!kernel->starts, "kernel attention_backward: starts must be NULL");
    Z3D_TRY(check_positions("attention_backward", kernel));
    const int64_t per_thread = z3d_scratch_attention_backward(kernel, 1);
    z3d_attention shape = *kernel;
    shape.capacity = kernel->seq;
    const attention with = attention_of(cpu, &shape);
    const int64_t tasks = kernel->heads > 0 ? kernel->batch * kernel->kv_heads : 0;
#pragma omp parallel num_threads(z3d_cpu_team(cpu, tasks))
    {
        const int thread = omp_get_thread_num();
        char *scratch = cpu->scratch + thread * per_thread;
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < tasks; task++)
            backward_task(&with, scratch, task / kernel->kv_heads, task % kernel->kv_heads,
                          thread == 0);
    }
    return Z3D_OK;
}
