/* Reads, writes and costs of each kernel, from its struct alone: one function per kernel. The
 * recorder learns from the operands which buffers a unit touches, so flags and extents are exact.
 * If a kernel may leave part of an operand unchanged, the operand counts as read, too. */
#include <string.h>

#include "src/device/device.h"

/* Adds an operand with `extent` bytes from pointer, of which `moved` bytes are moved each way. */
static void add_operand(z3d_cost *cost, const void *pointer, int64_t extent, int64_t moved,
                        bool read, bool written) {
    if (!pointer || extent <= 0) return;
    cost->operands[cost->num_operands++] = (z3d_operand){pointer, extent, read, written};
    if (read) cost->bytes_read += moved;
    if (written) cost->bytes_written += moved;
}

static void reads(z3d_cost *cost, const void *pointer, int64_t bytes) {
    add_operand(cost, pointer, bytes, bytes, true, false);
}

static void writes(z3d_cost *cost, const void *pointer, int64_t bytes) {
    add_operand(cost, pointer, bytes, bytes, false, true);
}

static void updates(z3d_cost *cost, const void *pointer, int64_t bytes) {
    add_operand(cost, pointer, bytes, bytes, true, true);
}

/* The result of a kernel with an `accumulate` flag. */
static void writes_or_adds(z3d_cost *cost, const void *pointer, int64_t bytes, bool accumulate) {
    add_operand(cost, pointer, bytes, bytes, accumulate, true);
}

static void reads_state(z3d_cost *cost, const z3d_step_state *state) {
    reads(cost, state, (int64_t)sizeof *state);
}

/* Without dropout the state is not read. */
static void reads_dropout(z3d_cost *cost, const z3d_dropout *dropout) {
    if (dropout->p > 0) reads_state(cost, dropout->state);
}

/* `rows` rows of `cols` elements, `ld` elements apart. */
static void matrix(z3d_cost *cost, const void *pointer, int64_t rows, int64_t cols, int64_t ld,
                   z3d_dtype dtype, bool read, bool written) {
    int64_t extent = rows > 0 && cols > 0 ? (rows - 1) * ld + cols : 0;
    bool gaps = written && ld > cols && rows > 1; /* bytes between the rows keep their values */
    add_operand(cost, pointer, z3d_bytes_of(dtype, extent), z3d_bytes_of(dtype, rows * cols),
                read || gaps, written);
}

static void cost_gemm(const z3d_gemm *kernel, z3d_cost *cost) {
    int64_t m = kernel->m, n = kernel->n, k = kernel->k;
    bool ta = kernel->transpose_a, tb = kernel->transpose_b;
    if (m > 0 && n > 0) {
        matrix(cost, kernel->a, ta ? k : m, ta ? m : k, kernel->lda, kernel->dtype, true, false);
        matrix(cost, kernel->b, tb ? n : k, tb ? k : n, kernel->ldb, kernel->dtype, true, false);
        if (kernel->bias) reads(cost, kernel->bias, z3d_bytes_of(kernel->dtype, n));
    }
    matrix(cost, kernel->c, m, n, kernel->ldc, kernel->c_dtype, kernel->accumulate, true);
    cost->flops = (double)m * (double)n * (2.0 * (double)k + (kernel->bias ? 1 : 0));
    int64_t bytes = z3d_bytes_of(kernel->dtype, m * n);
    reads(cost, kernel->residual, bytes);
    reads(cost, kernel->before_gelu, bytes);
    writes(cost, kernel->gelu, bytes);
    writes_or_adds(cost, kernel->bias_gradient, z3d_bytes_of(kernel->c_dtype, m),
                   kernel->accumulate);
    if (kernel->residual) cost->flops += (double)m * (double)n;
    if (kernel->before_gelu) cost->flops += 17.0 * (double)m * (double)n;
    if (kernel->gelu) cost->flops += 9.0 * (double)m * (double)n;
    if (kernel->bias_gradient) cost->flops += (double)m * (double)k;
}

static void cost_fill(const z3d_fill *kernel, z3d_cost *cost) {
    writes(cost, kernel->x, z3d_bytes_of(kernel->dtype, kernel->count));
}

static void cost_accumulate(const z3d_accumulate *kernel, z3d_cost *cost) {
    updates(cost, kernel->y, z3d_bytes_of(kernel->y_dtype, kernel->count));
    reads(cost, kernel->x, z3d_bytes_of(kernel->x_dtype, kernel->count));
    cost->flops = (double)kernel->count;
}

static void cost_scale(const z3d_scale *kernel, z3d_cost *cost) {
    updates(cost, kernel->x, z3d_bytes_of(kernel->dtype, kernel->count));
    cost->flops = (double)kernel->count;
}

static void cost_bias_backward(const z3d_bias_backward *kernel, z3d_cost *cost) {
    int64_t count = kernel->rows * kernel->cols;
    reads(cost, kernel->dy, z3d_bytes_of(kernel->dtype, count));
    writes_or_adds(cost, kernel->gradient, z3d_bytes_of(kernel->gradient_dtype, kernel->cols),
                   kernel->accumulate);
    cost->flops = (double)count;
}

static void cost_layernorm_forward(const z3d_layernorm_forward *kernel, z3d_cost *cost) {
    int64_t count = kernel->rows * kernel->cols, row = z3d_bytes_of(kernel->dtype, kernel->cols);
    int64_t statistics = kernel->rows * (int64_t)sizeof(float);
    if (count > 0) {
        reads(cost, kernel->x, z3d_bytes_of(kernel->dtype, count));
        reads(cost, kernel->weight, row);
        reads(cost, kernel->bias, row);
    }
    writes(cost, kernel->y, z3d_bytes_of(kernel->dtype, count));
    writes(cost, kernel->mean, statistics);
    writes(cost, kernel->rstd, statistics);
    cost->flops = 8.0 * (double)count;
}

static void cost_layernorm_backward(const z3d_layernorm_backward *kernel, z3d_cost *cost) {
    int64_t count = kernel->rows * kernel->cols, bytes = z3d_bytes_of(kernel->dtype, count);
    int64_t statistics = kernel->rows * (int64_t)sizeof(float);
    int64_t gradient = z3d_bytes_of(kernel->gradient_dtype, kernel->cols);
    if (count > 0) {
        reads(cost, kernel->dy, bytes);
        reads(cost, kernel->x, bytes);
        reads(cost, kernel->weight, z3d_bytes_of(kernel->dtype, kernel->cols));
        reads(cost, kernel->mean, statistics);
        reads(cost, kernel->rstd, statistics);
        reads(cost, kernel->add_to, bytes);
    }
    writes(cost, kernel->dx, bytes);
    writes_or_adds(cost, kernel->weight_gradient, gradient, kernel->accumulate);
    writes_or_adds(cost, kernel->bias_gradient, gradient, kernel->accumulate);
    cost->flops = 15.0 * (double)count;
}

static void cost_cast(const z3d_cast *kernel, z3d_cost *cost) {
    const int64_t rows = kernel->rows ? kernel->rows : 1;
    matrix(cost, kernel->source, rows, kernel->count, kernel->source_stride, kernel->source_dtype,
           true, false);
    matrix(cost, kernel->destination, rows, kernel->count, kernel->destination_stride,
           kernel->destination_dtype, false, true);
}

static void cost_rmsnorm_forward(const z3d_rmsnorm_forward *kernel, z3d_cost *cost) {
    int64_t rows = kernel->rows, cols = kernel->heads * kernel->cols;
    if (rows * cols > 0) {
        matrix(cost, kernel->x, rows, cols, kernel->x_stride, kernel->dtype, true, false);
        reads(cost, kernel->weight, z3d_bytes_of(kernel->dtype, kernel->cols));
    }
    matrix(cost, kernel->y, rows, cols, kernel->y_stride, kernel->dtype, false, true);
    writes(cost, kernel->rstd, rows * kernel->heads * (int64_t)sizeof(float));
    cost->flops = 4.0 * (double)rows * (double)cols;
}

static void cost_rmsnorm_backward(const z3d_rmsnorm_backward *kernel, z3d_cost *cost) {
    int64_t rows = kernel->rows, cols = kernel->heads * kernel->cols;
    z3d_dtype dtype = kernel->dtype;
    if (rows * cols > 0) {
        matrix(cost, kernel->dy, rows, cols, kernel->y_stride, dtype, true, false);
        matrix(cost, kernel->x, rows, cols, kernel->x_stride, dtype, true, false);
        reads(cost, kernel->weight, z3d_bytes_of(dtype, kernel->cols));
        reads(cost, kernel->rstd, rows * kernel->heads * (int64_t)sizeof(float));
        matrix(cost, kernel->add_to, rows, cols, kernel->dx_stride, dtype, true, false);
    }
    matrix(cost, kernel->dx, rows, cols, kernel->dx_stride, dtype, false, true);
    writes_or_adds(cost, kernel->weight_gradient,
                   z3d_bytes_of(kernel->gradient_dtype, kernel->cols), kernel->accumulate);
    cost->flops = 11.0 * (double)rows * (double)cols;
}

/* The starts of the samples of rows 0 .. end - 1, and these rows' positions. */
static void reads_positions(z3d_cost *cost, const int32_t *starts, const int32_t *positions,
                            int64_t end, int64_t seq) {
    if (seq > 0) reads(cost, starts, (end + seq - 1) / seq * (int64_t)sizeof *starts);
    reads(cost, positions, end * (int64_t)sizeof *positions);
}

static void cost_rotary(const z3d_rotary *kernel, z3d_cost *cost) {
    int64_t rows = kernel->rows, cols = kernel->heads * kernel->head_dim;
    if (rows * cols > 0)
        reads_positions(cost, kernel->starts, kernel->row_position, kernel->first + rows,
                        kernel->seq);
    matrix(cost, kernel->x, rows, cols, kernel->stride, kernel->dtype, true, true);
    cost->flops = 3.0 * (double)rows * (double)cols;
}

static void cost_swiglu_forward(const z3d_swiglu_forward *kernel, z3d_cost *cost) {
    int64_t count = kernel->rows * kernel->cols, bytes = z3d_bytes_of(kernel->dtype, count);
    reads(cost, kernel->x, 2 * bytes);
    writes(cost, kernel->y, bytes);
    cost->flops = 5.0 * (double)count;
}

static void cost_swiglu_backward(const z3d_swiglu_backward *kernel, z3d_cost *cost) {
    int64_t count = kernel->rows * kernel->cols, bytes = z3d_bytes_of(kernel->dtype, count);
    reads(cost, kernel->x, 2 * bytes);
    reads(cost, kernel->dy, bytes);
    writes(cost, kernel->dx, 2 * bytes);
    cost->flops = 11.0 * (double)count;
}

static void cost_gelu_forward(const z3d_gelu_forward *kernel, z3d_cost *cost) {
    int64_t bytes = z3d_bytes_of(kernel->dtype, kernel->count);
    reads(cost, kernel->x, bytes);
    writes(cost, kernel->y, bytes);
    cost->flops = 9.0 * (double)kernel->count;
}

static void cost_gelu_backward(const z3d_gelu_backward *kernel, z3d_cost *cost) {
    int64_t bytes = z3d_bytes_of(kernel->dtype, kernel->count);
    reads(cost, kernel->x, bytes);
    reads(cost, kernel->dy, bytes);
    writes(cost, kernel->dx, bytes);
    cost->flops = 17.0 * (double)kernel->count;
}

static void cost_dropout_forward(const z3d_dropout_forward *kernel, z3d_cost *cost) {
    int64_t count = kernel->rows * kernel->cols;
    int64_t bytes = z3d_bytes_of(kernel->dtype, count);
    if (count > 0) {
        reads(cost, kernel->x, bytes);
        reads(cost, kernel->bias, z3d_bytes_of(kernel->dtype, kernel->cols));
        reads(cost, kernel->residual, bytes);
        reads_dropout(cost, &kernel->dropout);
    }
    writes(cost, kernel->y, bytes);
    cost->flops = (double)count * ((kernel->bias ? 1 : 0) + (kernel->residual ? 1 : 0) +
                                   (kernel->dropout.p > 0 ? 1 : 0));
}

static void cost_dropout_backward(const z3d_dropout_backward *kernel, z3d_cost *cost) {
    int64_t count = kernel->rows * kernel->cols;
    int64_t bytes = z3d_bytes_of(kernel->dtype, count);
    if (count > 0) {
        reads(cost, kernel->dy, bytes);
        reads_dropout(cost, &kernel->dropout);
    }
    writes(cost, kernel->dx, bytes);
    cost->flops = kernel->dropout.p > 0 ? (double)count : 0;
}

/* Pairs of a query and a key that it may see, over all heads. With `starts` the cache counts as
 * full. The lengths of packed documents are not known here: they count as one document, which has
 * the most pairs. */
static double attention_pairs(const z3d_attention *kernel) {
    double seq = (double)kernel->seq, window = (double)kernel->window;
    double before = kernel->starts ? (double)kernel->capacity - seq : 0; /* keys of earlier rows */
    double pairs = 0.5 * seq * (seq + 1) + seq * before;
    if (window > 0 && window < seq + before) {
        double cut = seq + before - window; /* rows that do not see all keys, if the sequence has so
                                               many */
        pairs -= 0.5 * cut * (cut + 1);
        if (cut > seq) pairs += 0.5 * (cut - seq) * (cut - seq + 1);
    }
    return (double)kernel->batch * (double)kernel->heads * pairs;
}

/* Queries, keys and values, or their gradients. If they lie next to each other in one matrix, they
 * are one operand: between the rows of one part lie the other parts. */
static void attention_parts(z3d_cost *cost, const z3d_attention *shape, const void *q,
                            const void *k, const void *v, bool read, bool written) {
    int64_t rows = shape->batch * shape->seq, kv_rows = shape->batch * shape->capacity;
    int64_t q_cols = shape->heads * shape->head_dim, kv_cols = shape->kv_heads * shape->head_dim;
    int64_t stride = shape->q_stride;
    bool one = q && rows == kv_rows && stride == shape->kv_stride &&
               (const char *)k == (const char *)q + z3d_bytes_of(shape->dtype, q_cols) &&
               (const char *)v == (const char *)k + z3d_bytes_of(shape->dtype, kv_cols) &&
               q_cols + 2 * kv_cols <= stride;
    if (one) {
        matrix(cost, q, rows, q_cols + 2 * kv_cols, stride, shape->dtype, read, written);
        return;
    }
    matrix(cost, q, rows, q_cols, stride, shape->dtype, read, written);
    matrix(cost, k, kv_rows, kv_cols, shape->kv_stride, shape->dtype, read, written);
    matrix(cost, v, kv_rows, kv_cols, shape->kv_stride, shape->dtype, read, written);
}

static void cost_attention_forward(const z3d_attention_forward *kernel, z3d_cost *cost) {
    int64_t rows = kernel->batch * kernel->seq * kernel->heads;
    int64_t out = z3d_bytes_of(kernel->dtype, rows * kernel->head_dim);
    if (out > 0) {
        attention_parts(cost, kernel, kernel->q, kernel->k, kernel->v, true, false);
        reads_positions(cost, kernel->starts, kernel->row_position, kernel->batch * kernel->seq,
                        kernel->seq);
        reads_dropout(cost, &kernel->dropout);
    }
    writes(cost, kernel->out, out);
    writes(cost, kernel->log_sum_exp, rows * (int64_t)sizeof(float));
    cost->flops = attention_pairs(kernel) * (4.0 * (double)kernel->head_dim + 5);
}

static void cost_attention_backward(const z3d_attention_backward *kernel, z3d_cost *cost) {
    z3d_attention shape = *kernel;
    shape.capacity = kernel->seq;
    int64_t rows = kernel->batch * kernel->seq * kernel->heads;
    int64_t out = z3d_bytes_of(kernel->dtype, rows * kernel->head_dim);
    if (out > 0) {
        attention_parts(cost, &shape, kernel->q, kernel->k, kernel->v, true, false);
        reads(cost, kernel->out, out);
        reads(cost, kernel->dout, out);
        reads(cost, kernel->log_sum_exp, rows * (int64_t)sizeof(float));
        reads_positions(cost, NULL, kernel->row_position, kernel->batch * kernel->seq, kernel->seq);
        reads_dropout(cost, &kernel->dropout);
    }
    attention_parts(cost, &shape, kernel->dq, kernel->dk, kernel->dv, false, true);
    cost->flops = attention_pairs(&shape) * (10.0 * (double)kernel->head_dim + 7);
}

/* Which rows of the cache are written is known on the device only. */
static void cost_cache_store(const z3d_cache_store *kernel, z3d_cost *cost) {
    int64_t rows = kernel->batch * kernel->seq, row = z3d_bytes_of(kernel->dtype, kernel->cols);
    if (rows * row > 0) {
        matrix(cost, kernel->x, rows, kernel->cols, kernel->stride, kernel->dtype, true, false);
        reads(cost, kernel->starts, kernel->batch * (int64_t)sizeof *kernel->starts);
    }
    add_operand(cost, kernel->cache, kernel->batch * kernel->capacity * row, rows * row, true,
                true);
}

/* Only the tokens' rows of the table are moved. */
static void cost_embedding_forward(const z3d_embedding_forward *kernel, z3d_cost *cost) {
    int64_t out = z3d_bytes_of(kernel->dtype, kernel->rows * kernel->cols);
    int64_t table = z3d_bytes_of(kernel->dtype, kernel->table_rows * kernel->cols);
    if (out > 0) {
        reads(cost, kernel->tokens, kernel->rows * (int64_t)sizeof(int32_t));
        add_operand(cost, kernel->table, table, out, true, false);
    }
    writes(cost, kernel->out, out);
}

static void cost_embedding_backward(const z3d_embedding_backward *kernel, z3d_cost *cost) {
    int64_t count = kernel->rows * kernel->cols;
    int64_t table = z3d_bytes_of(kernel->gradient_dtype, kernel->table_rows * kernel->cols);
    if (table > 0) {
        reads(cost, kernel->tokens, kernel->rows * (int64_t)sizeof(int32_t));
        reads(cost, kernel->dy, z3d_bytes_of(kernel->dtype, count));
    }
    add_operand(cost, kernel->table_gradient, table,
                kernel->accumulate ? z3d_bytes_of(kernel->gradient_dtype, count) : table,
                kernel->accumulate, true);
    cost->flops = (double)count;
}

static void cost_position_forward(const z3d_position_forward *kernel, z3d_cost *cost) {
    int64_t count = kernel->rows * kernel->cols, row = z3d_bytes_of(kernel->dtype, kernel->cols);
    updates(cost, kernel->x, z3d_bytes_of(kernel->dtype, count));
    cost->flops = (double)count;
    if (count == 0) return;
    if (kernel->starts || kernel->row_position) {
        reads_positions(cost, kernel->starts, kernel->row_position, kernel->first + kernel->rows,
                        kernel->seq);
        add_operand(cost, kernel->positions,
                    (kernel->starts ? kernel->capacity : kernel->seq) * row,
                    z3d_bytes_of(kernel->dtype, count), true, false);
        return;
    }
    int64_t first = kernel->first % kernel->seq, end = first + kernel->rows;
    if (end > kernel->seq) first = 0, end = kernel->seq; /* the rows belong to several samples */
    reads(cost, (const char *)kernel->positions + first * row, (end - first) * row);
}

static void cost_position_backward(const z3d_position_backward *kernel, z3d_cost *cost) {
    int64_t count = kernel->rows * kernel->cols;
    reads(cost, kernel->dy, z3d_bytes_of(kernel->dtype, count));
    writes_or_adds(cost, kernel->gradient,
                   z3d_bytes_of(kernel->gradient_dtype, kernel->seq * kernel->cols),
                   kernel->accumulate);
    cost->flops = (double)count;
}

/* The padding columns of the last row are not read. */
static void cost_cross_entropy_max(const z3d_cross_entropy_max *kernel, z3d_cost *cost) {
    int64_t count = kernel->rows * kernel->valid;
    matrix(cost, kernel->logits, kernel->rows, kernel->valid, kernel->cols, kernel->dtype, true,
           false);
    writes(cost, kernel->max_out, kernel->rows * (int64_t)sizeof(float));
    cost->flops = (double)count;
}

static void cost_cross_entropy_sum(const z3d_cross_entropy_sum *kernel, z3d_cost *cost) {
    int64_t count = kernel->rows * kernel->valid;
    matrix(cost, kernel->logits, kernel->rows, kernel->valid, kernel->cols, kernel->dtype, true,
           false);
    reads(cost, kernel->max, kernel->rows * (int64_t)sizeof(float));
    reads(cost, kernel->targets, kernel->rows * (int64_t)sizeof(int32_t));
    writes(cost, kernel->sums, 2 * kernel->rows * (int64_t)sizeof(float));
    cost->flops = 3.0 * (double)count;
}

static void cost_cross_entropy_loss(const z3d_cross_entropy_loss *kernel, z3d_cost *cost) {
    reads(cost, kernel->sums, 2 * kernel->rows * (int64_t)sizeof(float));
    reads(cost, kernel->targets, kernel->rows * (int64_t)sizeof(int32_t));
    updates(cost, kernel->state, (int64_t)sizeof *kernel->state);
    cost->flops = 3.0 * (double)kernel->rows;
}

static void cost_cross_entropy_backward(const z3d_cross_entropy_backward *kernel, z3d_cost *cost) {
    int64_t count = kernel->rows * kernel->cols;
    updates(cost, kernel->logits, z3d_bytes_of(kernel->dtype, count));
    if (count > 0) {
        reads(cost, kernel->max, kernel->rows * (int64_t)sizeof(float));
        reads(cost, kernel->sums, kernel->rows * (int64_t)sizeof(float));
        reads(cost, kernel->targets, kernel->rows * (int64_t)sizeof(int32_t));
        reads_state(cost, kernel->state);
    }
    cost->flops = 4.0 * (double)count;
}

static void cost_select_row(const z3d_select_row *kernel, z3d_cost *cost) {
    int64_t out = z3d_bytes_of(kernel->dtype, kernel->batch * kernel->cols);
    add_operand(cost, kernel->x, out * kernel->seq, out, true, false);
    writes(cost, kernel->y, out);
    if (out > 0) reads(cost, kernel->row, kernel->batch * (int64_t)sizeof *kernel->row);
}

/* A skipped step changes nothing: so every written operand counts as read, too. */
static void cost_update(const z3d_optimizer_update *kernel, double flops, z3d_cost *cost) {
    int64_t bytes = kernel->count * (int64_t)sizeof(float);
    updates(cost, kernel->master, bytes);
#define X(NAME, name) updates(cost, kernel->name, bytes);
    Z3D_OPTIMIZER_STATES(X)
#undef X
    reads(cost, kernel->gradient, z3d_bytes_of(kernel->gradient_dtype, kernel->count));
    if (kernel->parameter != (const void *)kernel->master)
        updates(cost, kernel->parameter, z3d_bytes_of(kernel->dtype, kernel->count));
    if (kernel->count > 0) reads_state(cost, kernel->state);
    cost->flops = flops * (double)kernel->count;
}

#define X(_, id, name, reads, states, flops)                                                       \
    static void cost_##id(const z3d_##id *kernel, z3d_cost *cost) {                                \
        cost_update(kernel, flops, cost);                                                          \
    }
Z3D_OPTIMIZER_KERNELS(X, )
#undef X

static void cost_sum_squares(const z3d_sum_squares *kernel, z3d_cost *cost) {
    reads(cost, kernel->x, z3d_bytes_of(kernel->dtype, kernel->count));
    updates(cost, kernel->out, (int64_t)sizeof *kernel->out);
    cost->flops = 2.0 * (double)kernel->count;
}

static void cost_control_begin(const z3d_control_begin *kernel, z3d_cost *cost) {
    reads_state(cost, kernel->state);
    writes(cost, kernel->control, kernel->count * (int64_t)sizeof *kernel->control);
}

static void cost_control_end(const z3d_control_end *kernel, z3d_cost *cost) {
    updates(cost, kernel->control, kernel->count * (int64_t)sizeof *kernel->control);
    updates(cost, kernel->state, (int64_t)sizeof *kernel->state);
    cost->flops = (double)kernel->count;
}

static void cost_init_normal(const z3d_init_normal *kernel, z3d_cost *cost) {
    writes(cost, kernel->x, kernel->count * (int64_t)sizeof(float));
    cost->flops = 4.0 * (double)kernel->count;
}

void z3d_kernel_cost(const z3d_kernel *kernel, z3d_cost *out) {
    memset(out, 0, sizeof *out);
    switch (kernel->kind) {
#define X(name, type)                                                                              \
    case Z3D_KERNEL_##name:                                                                        \
        cost_##name(&kernel->as.name, out);                                                        \
        break;
        Z3D_KERNEL_MAP(X)
#undef X
    case Z3D_KERNEL_COUNT:
        break;
    }
}
