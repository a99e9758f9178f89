/* The lookup tables: tokens (split over ranks by rows) and positions; select_row, and the cache of
 * keys and values. */
#include "src/device/cpu/isa/isa.h"

static void embedding_forward_rows(const void *context, int64_t first, int64_t end) {
    const z3d_embedding_forward *embedding = context;
    const int64_t cols = embedding->cols;
    const size_t bytes = (size_t)cols * z3d_dtype_size(embedding->dtype);
    for (int64_t row = first; row < end; row++) {
        const int64_t index = (int64_t)embedding->tokens[row] - embedding->first;
        void *out = element_to_write(embedding->out, embedding->dtype, row * cols);
        if (index >= 0 && index < embedding->table_rows)
            memcpy(out, element(embedding->table, embedding->dtype, index * cols), bytes);
        else
            memset(out, 0, bytes);
    }
}

KERNEL_BY_ROWS(embedding_forward, embedding_forward_rows)

/* Backward sorts the rows by token, so that each table row is summed in fp32, in row order, and
 * rounded once. A key is (table row) << 32 | row. */
enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

/* Collects the keys of the rows whose token this rank has, in row order; returns their number. */
static int64_t collect_keys(const z3d_embedding_backward *embedding, uint64_t *keys) {
    int64_t count = 0;
    for (int64_t row = 0; row < embedding->rows; row++) {
        const int64_t index = (int64_t)embedding->tokens[row] - embedding->first;
        if (index >= 0 && index < embedding->table_rows)
            keys[count++] = (uint64_t)index << 32 | (uint64_t)row;
    }
    return count;
}

/* Stable radix sort by table row; returns the array that holds the result. */
static const uint64_t *sort_keys(uint64_t *keys, uint64_t *other, int64_t count,
                                 int64_t table_rows) {
    for (int shift = 32; shift < 64 && (table_rows - 1) >> (shift - 32) > 0; shift += DIGIT_BITS) {
        int64_t start[DIGITS + 1] = {0};
        for (int64_t i = 0; i < count; i++) start[(keys[i] >> shift) % DIGITS + 1]++;
        for (int digit = 0; digit < DIGITS; digit++) start[digit + 1] += start[digit];
        for (int64_t i = 0; i < count; i++) other[start[(keys[i] >> shift) % DIGITS]++] = keys[i];
        uint64_t *sorted = other;
        other = keys;
        keys = sorted;
    }
    return keys;
}

typedef struct scatter {
    const z3d_embedding_backward *embedding;
    const uint64_t *keys; /* sorted */
    int64_t count;        /* of keys */
    int64_t ranges;       /* tasks: ranges of keys, times tiles of columns */
} scatter;

/* A task has the table rows whose first key is in its range of so many keys, and TILE columns. */
enum { SCATTER_KEYS = 64 };

static inline uint64_t table_row(const scatter *s, int64_t key) {
    return s->keys[key] >> 32;
}

static void scatter_group(const scatter *s, int64_t first, int64_t end, int64_t column, int64_t n) {
    const z3d_embedding_backward *embedding = s->embedding;
    const int64_t i = (int64_t)table_row(s, first) * embedding->cols + column;
    float sum[TILE] = {0}, tile[TILE];
    for (int64_t key = first; key < end; key++) {
        const int64_t row = (int64_t)(s->keys[key] & UINT32_MAX);
        const float *dy =
            load_tile(tile, embedding->dy, embedding->dtype, row * embedding->cols + column, n);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) sum[j] += dy[j];
    }
    store_sum(sum, embedding->table_gradient, embedding->gradient_dtype, embedding->accumulate, i,
              n);
}

static void scatter_tasks(const void *context, int64_t first, int64_t end) {
    const scatter *s = context;
    for (int64_t task = first; task < end; task++) {
        const int64_t column = task / s->ranges * TILE;
        const int64_t n = min_int64(TILE, s->embedding->cols - column);
        const int64_t begin = task % s->ranges * SCATTER_KEYS;
        const int64_t limit = min_int64(begin + SCATTER_KEYS, s->count);
        int64_t key = begin;
        while (key > 0 && key < limit && table_row(s, key) == table_row(s, key - 1))
            key++; /* belongs to an earlier task */
        while (key < limit) {
            int64_t next = key + 1;
            while (next < s->count && table_row(s, next) == table_row(s, key)) next++;
            scatter_group(s, key, next, column, n);
            key = next;
        }
    }
}

static void clear_table(const void *context, int64_t first, int64_t end) {
    const z3d_embedding_backward *embedding = context;
    memset(element_to_write(embedding->table_gradient, embedding->gradient_dtype, first), 0,
           (size_t)(end - first) * z3d_dtype_size(embedding->gradient_dtype));
}

z3d_status Z3D_CPU_NAME(embedding_backward)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    const z3d_embedding_backward *embedding = &kernel->as.embedding_backward;
    REQUIRE_FLOAT(embedding_backward, embedding->dtype);
    REQUIRE_FLOAT(embedding_backward, embedding->gradient_dtype);
    if (!embedding->accumulate)
        for_elements(cpu, embedding->table_rows * embedding->cols, clear_table, embedding);
    uint64_t *keys = (uint64_t *)(void *)cpu->scratch;
    scatter s = {.embedding = embedding, .count = collect_keys(embedding, keys)};
    s.keys = sort_keys(keys, keys + embedding->rows, s.count, embedding->table_rows);
    s.ranges = (s.count + SCATTER_KEYS - 1) / SCATTER_KEYS;
    const int64_t tiles = (embedding->cols + TILE - 1) / TILE;
    for_blocks(cpu, s.ranges * tiles, 1, SCATTER_KEYS * TILE, scatter_tasks, &s);
    return Z3D_OK;
}

/* The row of the position table that is added to `row`. */
static int64_t position_of(const z3d_position_forward *position, int64_t row) {
    const int64_t index = position->first + row, at = index % position->seq;
    if (position->row_position) return position->row_position[index];
    if (!position->starts) return at;
    return min_int64(position->starts[index / position->seq] + at, position->capacity - 1);
}

static void position_forward_rows(const void *context, int64_t first, int64_t end) {
    const z3d_position_forward *position = context;
    const int64_t cols = position->cols;
    for (int64_t row = first; row < end; row++)
        for (int64_t column = 0; column < cols; column += TILE) {
            const int64_t n = min_int64(TILE, cols - column);
            const int64_t i = position_of(position, row) * cols + column;
            const int64_t at = row * cols + column;
            float position_tile[TILE], x_tile[TILE];
            const float *add = load_tile(position_tile, position->positions, position->dtype, i, n);
            const float *x = load_tile(x_tile, position->x, position->dtype, at, n);
            float *sum = open_tile(x_tile, position->x, position->dtype, at);
#pragma omp simd
            for (int64_t j = 0; j < n; j++) sum[j] = x[j] + add[j];
            close_tile(sum, position->x, position->dtype, at, n);
        }
}

KERNEL_BY_ROWS(position_forward, position_forward_rows)

static void position_backward_block(const void *context, int64_t first, int64_t end) {
    const z3d_position_backward *position = context;
    const int64_t sample = position->seq * position->cols;
    const int64_t begin = position->first * position->cols; /* elements of the micro-batch */
    const int64_t limit = begin + position->rows * position->cols;
    for (int64_t i = first; i < end; i += TILE) {
        const int64_t n = min_int64(TILE, end - i);
        float sum[TILE] = {0}, tile[TILE];
        for (int64_t at = begin - begin % sample + i; at < limit; at += sample) {
            const int64_t skip = at < begin ? begin - at : 0, count = min_int64(n, limit - at);
            if (skip >= count) continue;
            const float *dy =
                load_tile(tile, position->dy, position->dtype, at + skip - begin, count - skip);
#pragma omp simd
            for (int64_t j = skip; j < count; j++) sum[j] += dy[j - skip];
        }
        store_sum(sum, position->gradient, position->gradient_dtype, position->accumulate, i, n);
    }
}

/* Of each sum as many rows as there are samples. */
KERNEL_OF_TYPES(position_backward, dtype, gradient_dtype,
                for_blocks(cpu, kernel->seq * kernel->cols, TILE,
                           (kernel->rows + kernel->seq - 1) / kernel->seq, position_backward_block,
                           kernel))

z3d_status Z3D_CPU_NAME(select_row)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    (void)cpu;
    const z3d_select_row *select = &kernel->as.select_row;
    REQUIRE_FLOAT(select_row, select->dtype);
    const size_t bytes = (size_t)select->cols * z3d_dtype_size(select->dtype);
    for (int64_t b = 0; b < select->batch; b++) {
        const int64_t row = select->row[b];
        Z3D_REQUIRE(row >= 0 && row < select->seq, "kernel select_row: row %lld of %lld",
                    (long long)row, (long long)select->seq);
        memcpy(element_to_write(select->y, select->dtype, b * select->cols),
               element(select->x, select->dtype, (b * select->seq + row) * select->cols), bytes);
    }
    return Z3D_OK;
}

static void store_rows(const void *context, int64_t first, int64_t end) {
    const z3d_cache_store *store = context;
    const size_t bytes = (size_t)store->cols * z3d_dtype_size(store->dtype);
    for (int64_t row = first; row < end; row++) {
        const int64_t sample = row / store->seq;
        const int64_t position = store->starts[sample] + row % store->seq;
        if (position >= store->capacity) continue;
        memcpy(element_to_write(store->cache, store->dtype,
                                (sample * store->capacity + position) * store->cols),
               element(store->x, store->dtype, row * store->stride), bytes);
    }
}

z3d_status Z3D_CPU_NAME(cache_store)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    const z3d_cache_store *store = &kernel->as.cache_store;
    REQUIRE_FLOAT(cache_store, store->dtype);
    for (int64_t sample = 0; sample < store->batch; sample++)
        Z3D_REQUIRE(store->starts[sample] >= 0, "kernel cache_store: sample %lld begins at %d",
                    (long long)sample, (int)store->starts[sample]);
    for_rows(cpu, store->batch * store->seq, store->cols, store_rows, store);
    return Z3D_OK;
}
