/* One case of every kernel: random operands in host memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/check.h"

typedef struct maker {
    const check_sizes *s;
    z3d_dtype t;
    check_case c;
    z3d_status status;
    uint64_t random;
    z3d_status (*use)(void *argument, check_case *c);
    void *argument;
} maker;

double check_number(const void *from, z3d_dtype type, int64_t i) {
    if (type == Z3D_F64) return ((const double *)from)[i];
    if (type == Z3D_F32) return (double)((const float *)from)[i];
    uint16_t bits = ((const uint16_t *)from)[i];
    return (double)(type == Z3D_BF16 ? z3d_bf16_to_float(bits) : z3d_f16_to_float(bits));
}

void check_set_number(void *to, z3d_dtype type, int64_t i, double value) {
    if (type == Z3D_F32)
        ((float *)to)[i] = (float)value;
    else if (type == Z3D_F64)
        ((double *)to)[i] = value;
    else
        ((uint16_t *)to)[i] =
            type == Z3D_BF16 ? z3d_float_to_bf16((float)value) : z3d_float_to_f16((float)value);
}

static double uniform(maker *m) { /* in -1 .. 1 */
    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(m->random >> 11) * 0x1p-52 - 1;
}

static void *block(maker *m, int64_t bytes) {
    void *made = NULL;
    if (m->status == Z3D_OK)
        m->status = z3d_new((size_t)(bytes > 0 ? bytes : 1), 1, "an operand", &made);
    if (made) m->c.block[m->c.blocks++] = made;
    return made;
}

/* `count` numbers of around `scale`. */
static void *numbers(maker *m, z3d_dtype type, int64_t count, double scale) {
    void *made = block(m, count * (int64_t)z3d_dtype_size(type));
    for (int64_t i = 0; made && i < count; i++)
        check_set_number(made, type, i, (double)(float)(uniform(m) * scale));
    return made;
}

static void *model_numbers(maker *m, int64_t count, double scale) {
    return numbers(m, m->t, count, scale);
}

static int32_t *tokens(maker *m, int64_t count, int64_t vocabulary) {
    int32_t *made = block(m, count * 4);
    for (int64_t i = 0; made && i < count; i++)
        made[i] = (int32_t)((uniform(m) * 0.5 + 0.5) * (double)vocabulary * 0.999);
    return made;
}

static z3d_step_state *state(maker *m) {
    z3d_step_state *made = block(m, sizeof *made);
    if (made)
        *made = (z3d_step_state){.step = 4,
                                 .optimizer_step = 3,
                                 .seed = 11,
                                 .learning_rate = 1e-2f,
                                 .loss_scale = 1,
                                 .gradient_seed = 0.01f,
                                 .gradient_factor = 0.5f};
    return made;
}

static void result(maker *m, const void *pointer, z3d_dtype type) {
    int i = 0;
    while (i < CHECK_RESULTS - 1 && m->c.result[i]) i++;
    m->c.result[i] = pointer;
    m->c.type[i] = type;
}

/* Hands the case over and begins the next one. */
static void done(maker *m, const char *name, z3d_kernel_kind kind, double tolerance) {
    snprintf(m->c.name, sizeof m->c.name, "%s %s", name, z3d_dtype_name(m->t));
    m->c.kernel.kind = kind;
    m->c.tolerance = tolerance;
    if (m->status == Z3D_OK) m->status = m->use(m->argument, &m->c);
    for (int i = 0; i < m->c.blocks; i++) free(m->c.block[i]);
    memset(&m->c, 0, sizeof m->c);
}

/* DONE(m, gelu_forward, 1e-5, .x = x, ...) */
#define DONE(m, kind, tolerance, ...)                                                              \
    do {                                                                                           \
        (m)->c.kernel.as.kind = (z3d_##kind){__VA_ARGS__};                                         \
        done((m), #kind, Z3D_KERNEL_##kind, (tolerance));                                          \
    } while (0)

static int64_t rows(const maker *m) {
    return m->s->batch * m->s->seq;
}

static int64_t width(const maker *m) {
    return m->s->heads * m->s->head_dim;
}

/* ---- products ---- */

static void gemm(maker *m, bool ta, bool tb, bool accumulate, bool with_bias, z3d_dtype c_type) {
    int64_t r = rows(m), k = width(m), n = 3 * width(m);
    void *a = model_numbers(m, r * k, 1), *b = model_numbers(m, k * n, 0.1);
    void *c = numbers(m, c_type, r * n, 1);
    void *bias = with_bias ? model_numbers(m, n, 1) : NULL;
    result(m, c, c_type);
    DONE(m, gemm, 1e-5, .m = r, .n = n, .k = k, .transpose_a = ta, .transpose_b = tb,
         .accumulate = accumulate, .a = a, .b = b, .c = c, .lda = ta ? r : k, .ldb = tb ? k : n,
         .ldc = n, .dtype = m->t, .c_dtype = c_type, .bias = bias);
}

/* ---- and what they have behind them ---- */

/* What a fused gelu may be off because its tanh t(x) is (relatively by 2^-11 at most, as the PTX
 * manual says of tanh.approx): 0.5 |x t| 2^-11, and its slope |0.5 - x t s| |t| 2^-11 with
 * s = sqrt(2/pi) (1 + 3 x 0.044715 x^2). */
static double tanh_slack(double x, bool slope) {
    double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
    double s = sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
    return fabs(slope ? (0.5 - x * t * s) * t : 0.5 * x * t) * 0x1p-11;
}

/* The slack of C = A B (+ bias) with gelu or its gradient behind it; fp32 is not fused. */
static const double *gelu_slack(maker *m, const z3d_gemm *g) {
    if (m->t == Z3D_F32) return NULL;
    double *slack = block(m, g->m * g->n * (int64_t)sizeof(double));
    for (int64_t i = 0; slack && i < g->m * g->n; i++) {
        int64_t row = i / g->n, col = i % g->n;
        double sum = g->bias ? check_number(g->bias, m->t, col) : 0;
        for (int64_t k = 0; k < g->k; k++)
            sum += check_number(g->a, m->t, row * g->lda + k) *
                   check_number(g->b, m->t, g->transpose_b ? col * g->ldb + k : k * g->ldb + col);
        slack[i] = g->before_gelu
                       ? fabs(sum) * tanh_slack(check_number(g->before_gelu, m->t, i), true)
                       : tanh_slack(sum, false);
    }
    return slack;
}

/* Where the sum is fused, the product, which is about as large, is not rounded before it. */
static void product_with_residual(maker *m) {
    double u = m->t == Z3D_BF16 ? 0x1p-8 : m->t == Z3D_F16 ? 0x1p-11 : 0;
    int64_t r = rows(m), k = width(m), n = 2 * width(m);
    void *a = model_numbers(m, r * k, 1), *b = model_numbers(m, n * k, 0.3);
    void *bias = model_numbers(m, n, 1), *residual = model_numbers(m, r * n, 1);
    void *c = model_numbers(m, r * n, 1);
    result(m, c, m->t);
    DONE(m, gemm, 1e-5 + 2 * u, .m = r, .n = n, .k = k, .transpose_b = true, .a = a, .b = b, .c = c,
         .lda = k, .ldb = k, .ldc = n, .dtype = m->t, .c_dtype = m->t, .bias = bias,
         .residual = residual);
}

/* Where gelu is fused, C is not rounded before it, which makes u |C| times its slope. Where C is
 * positive that is at most 1.13 u (gelu(C) + 0.17), else at most 0.2 u; results are around 0.4. */
static void products_with_gelu(maker *m) {
    double u = m->t == Z3D_BF16 ? 0x1p-8 : m->t == Z3D_F16 ? 0x1p-11 : 0;
    int64_t r = rows(m), k = width(m), n = 4 * width(m);
    z3d_gemm forward = {.m = r,
                        .n = n,
                        .k = k,
                        .transpose_b = true,
                        .a = model_numbers(m, r * k, 1),
                        .b = model_numbers(m, n * k, 0.3),
                        .c = model_numbers(m, r * n, 1),
                        .lda = k,
                        .ldb = k,
                        .ldc = n,
                        .dtype = m->t,
                        .c_dtype = m->t,
                        .bias = model_numbers(m, n, 1),
                        .gelu = model_numbers(m, r * n, 1)};
    result(m, forward.gelu, m->t);
    result(m, forward.c, m->t);
    m->c.roundings = 1.13;
    m->c.slack[0] = gelu_slack(m, &forward);
    m->c.kernel.as.gemm = forward;
    done(m, "gemm, gelu", Z3D_KERNEL_gemm, 1e-5 + 0.5 * u);
    z3d_gemm backward = {.m = r,
                         .n = n,
                         .k = k,
                         .a = model_numbers(m, r * k, 1),
                         .b = model_numbers(m, k * n, 0.3),
                         .c = model_numbers(m, r * n, 1),
                         .lda = k,
                         .ldb = n,
                         .ldc = n,
                         .dtype = m->t,
                         .c_dtype = m->t,
                         .before_gelu = model_numbers(m, r * n, 3)};
    result(m, backward.c, m->t);
    m->c.roundings = 1;
    m->c.slack[0] = gelu_slack(m, &backward);
    m->c.kernel.as.gemm = backward;
    done(m, "gemm, gelu's gradient", Z3D_KERNEL_gemm, 1e-5);
}

static void products_with_bias_gradient(maker *m) {
    int64_t r = rows(m), k = width(m), n = 4 * width(m);
    for (int form = 0; form < 3; form++) { /* written; added; in fp32 */
        z3d_dtype type = form == 2 ? Z3D_F32 : m->t;
        void *dy = model_numbers(m, r * n, 1), *x = model_numbers(m, r * k, 1);
        void *c = numbers(m, type, n * k, 1), *bias = numbers(m, type, n, 1);
        result(m, c, type);
        result(m, bias, type);
        DONE(m, gemm, 1e-5, .m = n, .n = k, .k = r, .transpose_a = true, .accumulate = form == 1,
             .a = dy, .b = x, .c = c, .lda = n, .ldb = k, .ldc = k, .dtype = m->t, .c_dtype = type,
             .bias_gradient = bias);
    }
}

static void products(maker *m) {
    gemm(m, false, true, false, true, m->t);
    gemm(m, false, false, false, false, m->t);
    gemm(m, true, false, false, false, m->t);
    gemm(m, true, false, true, false, m->t);
    gemm(m, true, true, true, false, Z3D_F32);
}

/* ---- elementwise ---- */

static void elementwise(maker *m) {
    int64_t count = rows(m) * width(m), cols = width(m);
    void *x = model_numbers(m, count, 3), *y = model_numbers(m, count, 3);
    result(m, y, m->t);
    DONE(m, gelu_forward, 1e-5, .x = x, .y = y, .count = count, .dtype = m->t);
    x = model_numbers(m, count, 3), y = model_numbers(m, count, 1);
    result(m, y, m->t);
    DONE(m, gelu_backward, 1e-5, .x = x, .dy = y, .dx = y, .count = count, .dtype = m->t);
    x = numbers(m, Z3D_F32, count, 3), y = model_numbers(m, count, 1);
    result(m, y, m->t);
    DONE(m, cast, 0, .destination = y, .source = x, .count = count, .destination_dtype = m->t,
         .source_dtype = Z3D_F32);
    x = model_numbers(m, count, 3), y = numbers(m, Z3D_F32, count, 1);
    result(m, y, Z3D_F32);
    DONE(m, accumulate, 1e-6, .y = y, .x = x, .count = count, .y_dtype = Z3D_F32, .x_dtype = m->t);
    x = model_numbers(m, count, 3);
    result(m, x, m->t);
    DONE(m, fill, 0, .x = x, .count = count, .dtype = m->t, .value = 0.5f);
    x = model_numbers(m, cols, 3), y = model_numbers(m, count, 1);
    result(m, y, m->t);
    DONE(m, add_bias, 1e-6, .y = y, .bias = x, .rows = rows(m), .cols = cols, .dtype = m->t);
    float *drawn = numbers(m, Z3D_F32, count, 1);
    result(m, drawn, Z3D_F32);
    DONE(m, init_normal, 1e-5, .x = drawn, .count = count, .outer = 1, .local = count,
         .global = count, .inner = 1, .key = 5, .standard_deviation = 0.02f);
}

static void dropout(maker *m) {
    int64_t count = rows(m) * width(m);
    z3d_dropout drop = {.p = 0.25f, .site = 99, .sample = 2, .state = state(m)};
    void *x = model_numbers(m, count, 1), *y = model_numbers(m, count, 1);
    void *residual = model_numbers(m, count, 1), *bias = model_numbers(m, width(m), 1);
    result(m, y, m->t);
    DONE(m, dropout_forward, 1e-6, .x = x, .bias = bias, .residual = residual, .y = y,
         .rows = rows(m), .seq = m->s->seq, .cols = width(m), .dtype = m->t, .dropout = drop);
    drop.state = state(m);
    x = model_numbers(m, count, 1), y = model_numbers(m, count, 1);
    result(m, y, m->t);
    DONE(m, dropout_backward, 1e-6, .dy = x, .dx = y, .rows = rows(m), .seq = m->s->seq,
         .cols = width(m), .dtype = m->t, .dropout = drop);
}

/* ---- rows ---- */

static void layernorm(maker *m) {
    int64_t r = rows(m), cols = width(m);
    void *x = model_numbers(m, r * cols, 2), *weight = model_numbers(m, cols, 1);
    void *bias = model_numbers(m, cols, 1), *y = model_numbers(m, r * cols, 1);
    float *mean = numbers(m, Z3D_F32, r, 1), *rstd = numbers(m, Z3D_F32, r, 1);
    result(m, y, m->t);
    result(m, mean, Z3D_F32);
    result(m, rstd, Z3D_F32);
    DONE(m, layernorm_forward, 1e-5, .x = x, .weight = weight, .bias = bias, .y = y, .mean = mean,
         .rstd = rstd, .rows = r, .cols = cols, .epsilon = 1e-5f, .dtype = m->t);
    x = model_numbers(m, r * cols, 2), weight = model_numbers(m, cols, 1);
    void *dy = model_numbers(m, r * cols, 1), *dx = model_numbers(m, r * cols, 1);
    void *dw = numbers(m, m->t, cols, 1), *db = numbers(m, m->t, cols, 1);
    mean = numbers(m, Z3D_F32, r, 0.1), rstd = numbers(m, Z3D_F32, r, 1);
    result(m, dx, m->t);
    result(m, dw, m->t);
    result(m, db, m->t);
    DONE(m, layernorm_backward, 1e-4, .dy = dy, .x = x, .weight = weight, .mean = mean,
         .rstd = rstd, .add_to = dx, .dx = dx, .weight_gradient = dw, .bias_gradient = db,
         .rows = r, .cols = cols, .dtype = m->t, .gradient_dtype = m->t, .accumulate = true);
    dy = model_numbers(m, r * cols, 1), db = numbers(m, Z3D_F32, cols, 1);
    result(m, db, Z3D_F32);
    DONE(m, bias_backward, 1e-4, .dy = dy, .gradient = db, .rows = r, .cols = cols, .dtype = m->t,
         .gradient_dtype = Z3D_F32, .accumulate = false);
}

/* Of the heads of queries and keys in a row of queries, keys and values: strides are not widths. */
static void rmsnorm(maker *m) {
    int64_t r = rows(m), heads = 2 * m->s->heads, cols = m->s->head_dim, stride = 3 * width(m);
    void *x = model_numbers(m, r * stride, 2), *weight = model_numbers(m, cols, 1);
    float *rstd = numbers(m, Z3D_F32, r * heads, 1);
    result(m, x, m->t);
    result(m, rstd, Z3D_F32);
    DONE(m, rmsnorm_forward, 1e-5, .x = x, .weight = weight, .y = x, .rstd = rstd, .rows = r,
         .heads = heads, .cols = cols, .x_stride = stride, .y_stride = stride, .epsilon = 1e-5f,
         .dtype = m->t);
    x = model_numbers(m, r * stride, 2), weight = model_numbers(m, cols, 1);
    rstd = numbers(m, Z3D_F32, r * heads, 1);
    void *dy = model_numbers(m, r * stride, 1), *dw = numbers(m, Z3D_F32, cols, 1);
    result(m, dy, m->t);
    result(m, dw, Z3D_F32);
    DONE(m, rmsnorm_backward, 1e-4, .dy = dy, .x = x, .weight = weight, .rstd = rstd, .dx = dy,
         .weight_gradient = dw, .rows = r, .heads = heads, .cols = cols, .x_stride = stride,
         .y_stride = stride, .dx_stride = stride, .dtype = m->t, .gradient_dtype = Z3D_F32,
         .accumulate = true);
}

static void swiglu(maker *m) {
    int64_t count = rows(m) * width(m);
    void *x = model_numbers(m, 2 * count, 3), *y = model_numbers(m, count, 1);
    result(m, y, m->t);
    DONE(m, swiglu_forward, 1e-5, .x = x, .y = y, .rows = rows(m), .cols = width(m), .dtype = m->t);
    x = model_numbers(m, 2 * count, 3), y = model_numbers(m, count, 1);
    result(m, x, m->t);
    DONE(m, swiglu_backward, 1e-5, .x = x, .dy = y, .dx = x, .rows = rows(m), .cols = width(m),
         .dtype = m->t);
}

/* The position of each sample's first row, so that `rows` end within a cache of seq. */
static int32_t *starts(maker *m, int64_t rows) {
    int32_t *made = block(m, m->s->batch * 4);
    for (int64_t i = 0; made && i < m->s->batch; i++)
        made[i] = (int32_t)((m->s->seq - rows) / (i + 1));
    return made;
}

static void rotary(maker *m) {
    int64_t stride = 3 * width(m);
    void *x = model_numbers(m, rows(m) * stride, 1);
    result(m, x, m->t);
    DONE(m, rotary, 1e-5, .x = x, .starts = starts(m, 1), .rows = rows(m), .seq = m->s->seq,
         .heads = 2 * m->s->heads, .head_dim = m->s->head_dim, .stride = stride,
         .rope = {.theta = 10000}, .dtype = m->t);
}

static void cross_entropy(maker *m) {
    int64_t r = rows(m), cols = (m->s->vocabulary + 127) / 128 * 128, valid = m->s->vocabulary;
    void *logits = model_numbers(m, r * cols, 4);
    float *max = numbers(m, Z3D_F32, r, 1);
    result(m, max, Z3D_F32);
    DONE(m, cross_entropy_max, 0, .logits = logits, .max_out = max, .rows = r, .cols = cols,
         .valid = valid, .dtype = m->t);
    float *sums;
    int32_t *targets;
    for (int alone = 0; alone < 2; alone++) {
        logits = model_numbers(m, r * cols, 4), max = numbers(m, Z3D_F32, r, 1);
        for (int64_t i = 0; logits && max && i < r * cols; i++)
            if (alone && i % cols < valid)
                max[i / cols] = fmaxf(i % cols ? max[i / cols] : -INFINITY,
                                      (float)check_number(logits, m->t, i));
        sums = numbers(m, Z3D_F32, 2 * r, 1), targets = tokens(m, r, valid);
        result(m, sums, Z3D_F32);
        result(m, max, Z3D_F32);
        DONE(m, cross_entropy_sum, 1e-4, .logits = logits, .max = max, .targets = targets,
             .sums = sums, .rows = r, .cols = cols, .valid = valid, .dtype = m->t, .alone = alone);
    }
    sums = numbers(m, Z3D_F32, 2 * r, 1), targets = tokens(m, r, valid);
    for (int64_t i = 0; sums && i < r; i++) sums[i] = sums[i] * sums[i] + 1;
    z3d_step_state *s = state(m);
    result(m, s, Z3D_U8); /* its two sums, in fp64 */
    DONE(m, cross_entropy_loss, 1e-6, .sums = sums, .targets = targets, .rows = r, .state = s);
    logits = model_numbers(m, r * cols, 4), max = numbers(m, Z3D_F32, r, 1);
    sums = numbers(m, Z3D_F32, 2 * r, 1), targets = tokens(m, r, valid);
    for (int64_t i = 0; sums && i < r; i++) sums[i] = sums[i] * sums[i] + (float)cols;
    if (targets) targets[0] = -1;
    result(m, logits, m->t);
    DONE(m, cross_entropy_backward, 1e-4, .logits = logits, .max = max, .sums = sums,
         .targets = targets, .rows = r, .cols = cols, .valid = valid, .dtype = m->t,
         .state = state(m));
}

/* ---- tables ---- */

static void tables(maker *m) {
    int64_t r = rows(m), cols = width(m), table = m->s->vocabulary;
    int32_t *t = tokens(m, r, table);
    void *weights = model_numbers(m, table * cols, 1), *out = model_numbers(m, r * cols, 1);
    result(m, out, m->t);
    DONE(m, embedding_forward, 0, .tokens = t, .table = weights, .out = out, .rows = r,
         .cols = cols, .table_rows = table, .dtype = m->t);
    t = tokens(m, r, table);
    void *dy = model_numbers(m, r * cols, 1), *gradient = model_numbers(m, table * cols, 1);
    result(m, gradient, m->t);
    DONE(m, embedding_backward, 1e-5, .tokens = t, .dy = dy, .table_gradient = gradient, .rows = r,
         .cols = cols, .table_rows = table, .dtype = m->t, .gradient_dtype = m->t,
         .accumulate = true);
    void *x = model_numbers(m, r * cols, 1), *positions = model_numbers(m, m->s->seq * cols, 1);
    result(m, x, m->t);
    DONE(m, position_forward, 1e-6, .x = x, .positions = positions, .rows = rows(m),
         .seq = m->s->seq, .cols = cols, .dtype = m->t);
    dy = model_numbers(m, r * cols, 1), gradient = model_numbers(m, m->s->seq * cols, 1);
    result(m, gradient, m->t);
    DONE(m, position_backward, 1e-5, .dy = dy, .gradient = gradient, .rows = rows(m),
         .seq = m->s->seq, .cols = cols, .dtype = m->t, .gradient_dtype = m->t);
    x = model_numbers(m, r * cols, 1), out = model_numbers(m, m->s->batch * cols, 1);
    result(m, out, m->t);
    t = tokens(m, m->s->batch, m->s->seq);
    DONE(m, select_row, 0, .x = x, .y = out, .row = t, .batch = m->s->batch, .seq = m->s->seq,
         .cols = cols, .dtype = m->t);
}

/* In fp64, to the bit. */
static void control(maker *m) {
    enum { GROUPS = 5, COUNT = 4 + GROUPS };
    double *vector = numbers(m, Z3D_F64, COUNT, 1);
    z3d_step_state *s = state(m);
    result(m, vector, Z3D_F64);
    if (s) s->loss_sum = 2.5, s->valid_targets = 7, s->stop_requested = 1;
    DONE(m, control_begin, 0, .state = s, .control = vector, .count = COUNT, .counts = true);
    vector = numbers(m, Z3D_F64, COUNT, 1), s = state(m);
    for (int i = 0; vector && i < COUNT; i++) vector[i] *= vector[i];
    result(m, vector, Z3D_F64);
    result(m, s, Z3D_U8);
    DONE(m, control_end, 0, .control = vector, .state = s, .count = COUNT, .clipping = 0.5);
}

/* skip: an overflow, and nothing may change. */
static void adamw(maker *m, bool skip) {
    int64_t count = rows(m) * width(m) + 3;
    float *master = numbers(m, Z3D_F32, count, 1), *momentum = numbers(m, Z3D_F32, count, 0.1);
    float *variance = numbers(m, Z3D_F32, count, 0.1);
    for (int64_t i = 0; variance && i < count; i++) variance[i] *= variance[i];
    void *gradient = model_numbers(m, count, 1), *parameter = model_numbers(m, count, 1);
    z3d_step_state *s = state(m);
    if (s) s->skip = skip;
    bool apart = m->t != Z3D_F32;
    result(m, master, Z3D_F32);
    result(m, momentum, Z3D_F32);
    result(m, variance, Z3D_F32);
    if (apart && !skip) result(m, parameter, m->t);
    DONE(m, adamw, 1e-5, .master = master, .momentum = momentum, .variance = variance,
         .gradient = gradient, .parameter = apart ? parameter : NULL, .count = count,
         .decayed = count / 2 + 1, .dtype = m->t, .gradient_dtype = m->t,
         .constants = {.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f},
         .state = s);
}

static void sgd(maker *m) {
    int64_t count = rows(m) * width(m) + 3;
    float *master = numbers(m, Z3D_F32, count, 1), *momentum = numbers(m, Z3D_F32, count, 0.1);
    void *gradient = model_numbers(m, count, 1), *parameter = model_numbers(m, count, 1);
    result(m, master, Z3D_F32);
    result(m, momentum, Z3D_F32);
    if (m->t != Z3D_F32) result(m, parameter, m->t);
    DONE(m, sgd, 1e-5, .master = master, .momentum = momentum, .gradient = gradient,
         .parameter = m->t != Z3D_F32 ? parameter : NULL, .count = count, .decayed = count / 2 + 1,
         .dtype = m->t, .gradient_dtype = m->t,
         .constants = {.momentum = 0.9f, .weight_decay = 0.1f}, .state = state(m));
}

static void optimizer(maker *m) {
    int64_t count = rows(m) * width(m) + 3;
    adamw(m, false);
    adamw(m, true);
    sgd(m);
    control(m);
    void *x = model_numbers(m, count, 1);
    double *sum = numbers(m, Z3D_F64, 1, 1);
    result(m, sum, Z3D_F64);
    DONE(m, sum_squares, 1e-6, .x = x, .count = count, .dtype = m->t, .out = sum);
}

/* ---- attention ---- */

/* What is allowed beside the slack is fp32's. Numbers of up to 1 in 64 columns: a score's sum of
 * products is off by at most 64 x 2^-24 of 64 x 0.25 (their mean size), after the scale by 2^-17,
 * and so is the exponential, relatively; two implementations by twice that. What is added up then
 * is at most 5 times the result's typical size, in the rows of few keys: 5 x 2^-16 < 1e-4. */
#define ATTENTION_TOLERANCE 1e-4

/* The reference of a case's attention; backward needs what forward left. */
static void reference(maker *m, const check_attention *a) {
    if (m->status == Z3D_OK) m->status = check_attention_reference(a);
}

static double *slack(maker *m, int64_t count) {
    return block(m, count * (int64_t)sizeof(double));
}

/* Queries, keys and values beside each other in each row of qkv. */
#define PARTS(q_, k_, v_, qkv)                                                                     \
    .q_ = (qkv), .k_ = (char *)(uintptr_t)(qkv) + width(m) * (int64_t)z3d_dtype_size(m->t),        \
    .v_ = (char *)(uintptr_t)(qkv) + 2 * width(m) * (int64_t)z3d_dtype_size(m->t)

static void attention(maker *m, float p) {
    const check_sizes *s = m->s;
    int64_t count = rows(m) * width(m);
    z3d_dropout drop = {.p = p, .site = 7, .state = state(m)};
    check_attention a = {.batch = s->batch,
                         .seq = s->seq,
                         .heads = s->heads,
                         .head_dim = s->head_dim,
                         .dtype = m->t,
                         .qkv = model_numbers(m, 3 * count, 1),
                         .out = model_numbers(m, count, 1),
                         .log_sum_exp = numbers(m, Z3D_F32, rows(m) * s->heads, 1),
                         .out_slack = slack(m, count)};
    reference(m, &a);
    /* What is left of dropped probabilities is larger. */
    for (int64_t i = 0; a.out_slack && i < count; i++) a.out_slack[i] /= 1 - (double)p;
    result(m, a.out, m->t);
    result(m, a.log_sum_exp, Z3D_F32);
    m->c.slack[0] = a.out_slack;
    DONE(m, attention_forward, ATTENTION_TOLERANCE, PARTS(q, k, v, a.qkv), .out = a.out,
         .log_sum_exp = a.log_sum_exp, .batch = s->batch, .seq = s->seq, .capacity = s->seq,
         .heads = s->heads, .kv_heads = s->heads, .head_dim = s->head_dim, .q_stride = 3 * width(m),
         .kv_stride = 3 * width(m), .dtype = m->t, .dropout = drop);
    if (p > 0) return; /* its backward needs the dropped output, which training compares */
    drop.state = state(m);
    a.qkv = model_numbers(m, 3 * count, 1), a.out = model_numbers(m, count, 1);
    a.log_sum_exp = numbers(m, Z3D_F32, rows(m) * s->heads, 1);
    a.out_slack = slack(m, count), a.dqkv_slack = slack(m, 3 * count);
    void *dqkv = model_numbers(m, 3 * count, 1);
    a.dout = model_numbers(m, count, 1);
    reference(m, &a);
    result(m, dqkv, m->t);
    m->c.slack[0] = a.dqkv_slack;
    DONE(m, attention_backward, ATTENTION_TOLERANCE, PARTS(q, k, v, a.qkv), .out = a.out,
         .dout = a.dout, .log_sum_exp = a.log_sum_exp, PARTS(dq, dk, dv, dqkv), .batch = s->batch,
         .seq = s->seq, .heads = s->heads, .kv_heads = s->heads, .head_dim = s->head_dim,
         .q_stride = 3 * width(m), .kv_stride = 3 * width(m), .dtype = m->t, .dropout = drop);
}

/* Some rows of each sample behind others: all query heads read one head of a cache. */
static void generation(maker *m) {
    const check_sizes *s = m->s;
    int64_t seq = (s->seq + 2) / 3, count = s->batch * seq * width(m), d = s->head_dim;
    int64_t cached = s->batch * s->seq * d;
    void *x = model_numbers(m, count, 1), *table = model_numbers(m, s->seq * width(m), 1);
    result(m, x, m->t);
    DONE(m, position_forward, 1e-6, .x = x, .positions = table, .starts = starts(m, seq),
         .rows = s->batch * seq, .seq = seq, .capacity = s->seq, .cols = width(m), .dtype = m->t);
    x = model_numbers(m, count, 1);
    void *cache = model_numbers(m, cached, 1);
    result(m, cache, m->t);
    DONE(m, cache_store, 0, .x = x, .cache = cache, .starts = starts(m, seq), .batch = s->batch,
         .seq = seq, .capacity = s->seq, .cols = d, .stride = width(m), .dtype = m->t);
    for (int64_t window = 0; window < s->seq; window += s->seq / 2 + 1) {
        void *q = model_numbers(m, count, 1), *out = model_numbers(m, count, 1);
        void *k = model_numbers(m, cached, 1), *v = model_numbers(m, cached, 1);
        double *off = slack(m, count); /* probabilities add up to 1, and may be rounded */
        for (int64_t i = 0; off && i < count; i++)
            off[i] = m->t == Z3D_BF16 ? 0x1p-9 : m->t == Z3D_F16 ? 0x1p-12 : 0;
        result(m, out, m->t);
        m->c.slack[0] = off;
        DONE(m, attention_forward, ATTENTION_TOLERANCE, .q = q, .k = k, .v = v, .out = out,
             .starts = starts(m, seq), .batch = s->batch, .seq = seq, .capacity = s->seq,
             .heads = s->heads, .kv_heads = 1, .head_dim = d, .q_stride = width(m), .kv_stride = d,
             .window = window, .dtype = m->t);
    }
}

z3d_status check_each_case(const check_sizes *sizes, z3d_dtype dtype,
                           z3d_status (*use)(void *argument, check_case *c), void *argument) {
    maker m = {.s = sizes, .t = dtype, .random = 1, .use = use, .argument = argument};
    products(&m);
    product_with_residual(&m);
    products_with_gelu(&m);
    products_with_bias_gradient(&m);
    elementwise(&m);
    dropout(&m);
    layernorm(&m);
    rmsnorm(&m);
    swiglu(&m);
    rotary(&m);
    cross_entropy(&m);
    tables(&m);
    optimizer(&m);
    attention(&m, 0);
    attention(&m, 0.1f);
    generation(&m);
    return m.status;
}
