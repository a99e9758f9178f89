/* Cases of every kernel: shapes, types and forms, with random operands, and how far results may be
 * from the cpu device's. Shapes are those where kernels change their way: less than a vector of 16
 * bytes, a few more, more than a warp or a block has, nothing at all. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/check.h"

/* Numbers that kernels read by these names; what is left out is 0. */
enum {
    ROWS,
    COLS,
    DEPTH,
    HEADS = DEPTH,
    VALID = DEPTH,
    TABLE_ROWS = DEPTH,
    FIRST,
    GAP = FIRST,
    SHAPE
};
typedef int64_t shape[SHAPE];

typedef struct maker maker;
typedef void filler(maker *m, const int64_t *s, check_array *a);

/* What an array is filled with: random numbers around `middle`, or the bytes at `from`; then
 * `change` is called. */
typedef struct content {
    double middle, scale;
    const void *from;
    filler *change;
} content;

struct maker {
    z3d_dtype type;
    bool gpu;
    z3d_device *cpu;
    check_case c;
    content content[CHECK_ARRAYS];
    z3d_step_state state; /* what STATE() copies */
    z3d_status status;
    uint64_t random;
    z3d_status (*use)(void *argument, const check_case *c);
    void *argument;
};

#define SET(to, ...)                                                                               \
    to = (__typeof__(to)) {                                                                        \
        __VA_ARGS__                                                                                \
    }
#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

double check_number(const void *from, z3d_dtype type, int64_t i) {
    if (type == Z3D_F64) return ((const double *)from)[i];
    if (type == Z3D_F32) return (double)((const float *)from)[i];
    if (type == Z3D_I32) return ((const int32_t *)from)[i];
    if (type == Z3D_U8) return ((const uint8_t *)from)[i];
    uint16_t bits = ((const uint16_t *)from)[i];
    return (double)(type == Z3D_BF16 ? z3d_bf16_to_float(bits) : z3d_f16_to_float(bits));
}

void check_set_number(void *to, z3d_dtype type, int64_t i, double value) {
    if (type == Z3D_F64)
        ((double *)to)[i] = value;
    else if (type == Z3D_F32)
        ((float *)to)[i] = (float)value;
    else if (type == Z3D_I32)
        ((int32_t *)to)[i] = (int32_t)value;
    else if (type == Z3D_U8)
        ((uint8_t *)to)[i] = (uint8_t)value;
    else
        ((uint16_t *)to)[i] =
            type == Z3D_BF16 ? z3d_float_to_bf16((float)value) : z3d_float_to_f16((float)value);
}

/* ---- operands ---- */

/* Until its size is known, when all of the struct is, an address stands for an operand. */
static void operand(maker *m, void *field, z3d_dtype type, content content) {
    uintptr_t stands = (uintptr_t)(m->c.arrays + 1) << 40;
    if (m->c.arrays == CHECK_ARRAYS) abort();
    m->content[m->c.arrays] = content;
    m->c.array[m->c.arrays++] = (check_array){.data = (void *)stands, .type = type};
    memcpy(field, &stands, sizeof stands);
}

static check_array *array_of(maker *m, const void *data) {
    check_array *a = m->c.array;
    while (a->data != data) a++;
    return a;
}

/* How far a result may be off. */
static void allow(maker *m, const void *data, double relative, double absolute) {
    check_array *a = array_of(m, data);
    a->relative = relative, a->absolute = absolute;
}

/* The same for the host, which rounds every operation: 0, 0 there is equal. A GPU has functions of
 * its own, and rounds a product and a sum once. */
static void within(maker *m, const void *data, double relative, double absolute) {
    const double rounding = !m->gpu ? 0 : array_of(m, data)->type == Z3D_F64 ? 0x1p-51 : 0x1p-22;
    const double times = m->gpu ? 4 : 1;
    allow(m, data, times * relative + rounding, times * absolute + rounding);
}

static double uniform(maker *m) { /* in -1 .. 1 */
    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(m->random >> 11) * 0x1p-52 - 1;
}

static void *new_array(size_t count, size_t bytes) {
    void *made;
    if (z3d_new(count, bytes, "an array", &made) == Z3D_OK) return made;
    fprintf(stderr, "%s\n", z3d_error_message());
    exit(1);
}

static double *slack(maker *m, const void *data) {
    check_array *a = array_of(m, data);
    if (!a->slack) a->slack = new_array((size_t)a->count + 1, sizeof(double));
    return a->slack;
}

/* ---- a case ---- */

static void *begin(maker *m, z3d_kernel_kind kind) {
    memset(&m->c, 0, sizeof m->c);
    m->c.type = m->type;
    m->c.kernel.kind = kind;
    SET(m->state, .optimizer_step = 7, .sample_base = ((int64_t)3 << 32) + 5, .seed = 99,
        .learning_rate = 6e-3f, .loss_scale = 3, .gradient_seed = 0.125f, .gradient_factor = 0.25f,
        .stop_requested = 1, .loss_sum = 1.5, .valid_targets = 2);
    return &m->c.kernel.as;
}

/* Gives the operands memory. */
static void make(maker *m, const int64_t *s) {
    z3d_cost cost;
    z3d_kernel_cost(&m->c.kernel, &cost);
    for (int i = 0; i < m->c.arrays; i++) {
        check_array *a = &m->c.array[i];
        const content *content = &m->content[i];
        int64_t bytes = 0;
        for (int o = 0; o < cost.num_operands; o++)
            if (cost.operands[o].pointer == a->data) bytes = cost.operands[o].bytes;
        void *data = new_array((size_t)bytes + 1, 1);
        check_move_operand(&m->c.kernel, a->data, bytes + 1, data);
        a->data = data;
        a->count = bytes / (int64_t)z3d_dtype_size(a->type);
        if (content->from) memcpy(data, content->from, (size_t)bytes);
        for (int64_t e = 0; !content->from && e < a->count; e++)
            check_set_number(data, a->type, e, content->middle + uniform(m) * content->scale);
        if (content->change) content->change(m, s, a);
    }
}

static void run(maker *m) {
    if (m->status == Z3D_OK) m->status = m->use(m->argument, &m->c);
}

static void drop(maker *m) {
    for (int i = 0; i < m->c.arrays; i++) {
        free(m->c.array[i].data);
        free(m->c.array[i].slack);
    }
}

/* A function that says what the cases of a kernel are: the struct's sizes and flags, its operands,
 * what is allowed. */
#define KERNEL(name)                                                                               \
    static void name(maker *m, z3d_##name *k, const int64_t *s __attribute__((unused)),            \
                     int form __attribute__((unused)))

/* Runs them: all shapes of a list in so many forms. */
#define RUN(name, list, forms)                                                                     \
    for (int i = 0; i < COUNT(list) * (forms); i++) {                                              \
        name(m, begin(m, Z3D_KERNEL_##name), (list)[i / (forms)], i % (forms));                    \
        make(m, (list)[i / (forms)]);                                                              \
        run(m);                                                                                    \
        drop(m);                                                                                   \
    }

#define MATRIX .rows = s[ROWS], .cols = s[COLS], .dtype = m->type
/* Forms 0 to 3. */
#define GRADIENT .gradient_dtype = form / 2 % 2 ? Z3D_F32 : m->type, .accumulate = form % 2

#define AROUND(field, type, middle, scale)                                                         \
    operand(m, (void *)&k->field, type, (content){middle, scale, NULL, NULL})
#define FROM(field, type, bytes) operand(m, (void *)&k->field, type, (content){.from = bytes})
#define CHANGED(field, type, scale, filler)                                                        \
    operand(m, (void *)&k->field, type, (content){0, scale, NULL, filler})
/* Of the model's type, of the gradients' type, of fp32; from -1 to 1. */
#define T(field) AROUND(field, m->type, 0, 1)
#define G(field) AROUND(field, k->gradient_dtype, 0, 1)
#define F(field) AROUND(field, Z3D_F32, 0, 1)
/* To the comparison, a step state is nine doubles. */
#define STATE(field) FROM(field, Z3D_F64, &m->state)
#define IN_PLACE(field, of) (void)(k->field = (void *)(uintptr_t)k->of)
#define WITHIN(field, relative, absolute) within(m, k->field, relative, absolute)

/* ---- products, which are a library's ---- */

/* A 16-bit rounding's largest error. */
static double half_unit(const maker *m) {
    return m->type == Z3D_BF16 ? 0x1p-8 : m->type == Z3D_F16 ? 0x1p-11 : 0;
}

/* What a fused gelu may be off because its tanh t(x) is (relatively by 2^-11 at most, as the PTX
 * manual says of tanh.approx): 0.5 |x t| 2^-11, and its slope |0.5 - x t s| |t| 2^-11 with
 * s = sqrt(2/pi) (1 + 3 x 0.044715 x^2). */
static double tanh_slack(double x, bool slope) {
    double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
    double s = sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
    return fabs(slope ? (0.5 - x * t * s) * t : 0.5 * x * t) * 0x1p-11;
}

/* The slack of C = A B (+ bias) with gelu or its gradient behind it; fp32 is not fused. */
static void find_gelu_slack(maker *m, const int64_t *s, check_array *a) {
    const z3d_gemm *g = &m->c.kernel.as.gemm;
    double *to = slack(m, a->data);
    for (int64_t i = 0; m->type != Z3D_F32 && i < s[ROWS] * s[COLS]; i++) {
        int64_t row = i / s[COLS], col = i % s[COLS];
        double sum = g->bias ? check_number(g->bias, m->type, col) : 0;
        for (int64_t k = 0; k < s[DEPTH]; k++) {
            int64_t b = g->transpose_b ? col * g->ldb + k : k * g->ldb + col;
            sum += check_number(g->a, m->type, row * g->lda + k) * check_number(g->b, m->type, b);
        }
        to[i] = g->before_gelu
                    ? fabs(sum) * tanh_slack(check_number(g->before_gelu, m->type, i), true)
                    : tanh_slack(sum, false);
    }
}

enum { PLAIN = 6, RESIDUAL = PLAIN, GELU, GELUS_GRADIENT, BIAS_GRADIENT, PRODUCTS = 12 };

/* Plain ones, with all transpositions; a linear layer with something behind it; weights' gradients
 * with bias's, written, added, in fp32. */
KERNEL(gemm) {
    static const bool ta[PRODUCTS] = {0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1};
    static const bool tb[PRODUCTS] = {1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0};
    static const bool added[PRODUCTS] = {0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0};
    const z3d_dtype type = form == 4 || form == 11 ? Z3D_F32 : m->type;
    const bool bias = form == 0 || form == RESIDUAL || form == GELU;
    /* What the order of sums, and the rounding of what is near zero, may make of usual numbers. */
    const double near = (1e-5 + half_unit(m) / 4) * (0.6 + 0.1 * sqrt((double)s[DEPTH]));
    SET(*k, .m = s[ROWS], .n = s[COLS], .k = s[DEPTH], .transpose_a = ta[form],
        .transpose_b = tb[form], .accumulate = added[form], .lda = ta[form] ? s[ROWS] : s[DEPTH],
        .ldb = tb[form] ? s[DEPTH] : s[COLS], .ldc = s[COLS], .dtype = m->type, .c_dtype = type);
    T(a), AROUND(b, m->type, 0, 0.3);
    if (bias) T(bias);
    if (form == RESIDUAL) T(residual);
    if (form == GELUS_GRADIENT) AROUND(before_gelu, m->type, 0, 3);
    CHANGED(c, type, 1, form == GELUS_GRADIENT ? find_gelu_slack : NULL);
    if (form == GELU) CHANGED(gelu, m->type, 1, find_gelu_slack);
    if (form >= BIAS_GRADIENT) AROUND(bias_gradient, type, 0, 1);
    allow(m, k->c, 0x1p-22, near);
    if (form >= BIAS_GRADIENT) allow(m, k->bias_gradient, 0x1p-22, 4 * near);
    /* A product, about as large as C, that is not rounded before the residual is added. */
    if (form == RESIDUAL) allow(m, k->c, 0x1p-22, near + 2 * half_unit(m));
    /* C that is not rounded before gelu, which makes u |C| times gelu's slope. Where C is positive
     * that is at most 1.13 u (gelu(C) + 0.17), else at most 0.2 u. */
    if (form == GELU) allow(m, k->gelu, 0x1p-22 + 1.13 * half_unit(m), near + 0.2 * half_unit(m));
    if (form == GELUS_GRADIENT) allow(m, k->c, 0x1p-22 + half_unit(m), near);
}

/* ---- elementwise ---- */

static const z3d_dtype types[] = {Z3D_F32, Z3D_BF16, Z3D_F16};

KERNEL(fill) {
    const z3d_dtype type[] = {m->type, m->type, m->type, m->type, Z3D_F64, Z3D_I32, Z3D_U8};
    static const float value[] = {0, -0.0f, 3.14159f, INFINITY, 3.14159f, -7, 3};
    SET(*k, .count = s[ROWS], .dtype = type[form], .value = value[form]);
    AROUND(x, type[form], 0, 1);
}

/* Some that do not fit. */
static void set_misfits(maker *m, const int64_t *s, check_array *a) {
    check_set_number(a->data, m->type, 0, INFINITY);
    check_set_number(a->data, m->type, s[ROWS] / 2, 1e-6);
    check_set_number(a->data, m->type, s[ROWS] - 1, 1e5);
}

KERNEL(cast) {
    SET(*k, .count = s[ROWS], .destination_dtype = types[form], .source_dtype = m->type);
    CHANGED(source, m->type, 100, set_misfits), AROUND(destination, types[form], 0, 1);
}

KERNEL(accumulate) {
    SET(*k, .count = s[ROWS], .y_dtype = types[form], .x_dtype = m->type);
    T(x), AROUND(y, types[form], 0, 1);
}

/* Where functions end, and beyond. */
static void set_extremes(maker *m, const int64_t *s, check_array *a) {
    static const double extremes[] = {30, -30, NAN, 1e4, -1e4, INFINITY};
    for (int i = 0; s[ROWS] > 8 && i < (s[COLS] ? 5 : 6); i++)
        check_set_number(a->data, m->type, i + 1, extremes[i]);
}

KERNEL(gelu_forward) {
    SET(*k, .count = s[ROWS], .dtype = m->type);
    CHANGED(x, m->type, 5, set_extremes), T(y), WITHIN(y, 2e-5, 1e-37);
}

KERNEL(gelu_backward) {
    SET(*k, .count = s[ROWS], .dtype = m->type);
    CHANGED(x, m->type, 5, set_extremes), T(dx), WITHIN(dx, 2e-6, 5e-6);
    form ? IN_PLACE(dy, dx) : T(dy);
}

KERNEL(add_bias) {
    SET(*k, MATRIX);
    T(y), T(bias);
}

KERNEL(swiglu_forward) {
    SET(*k, MATRIX);
    CHANGED(x, m->type, 5, set_extremes), T(y), WITHIN(y, 2e-5, 1e-30);
}

KERNEL(swiglu_backward) {
    SET(*k, MATRIX);
    CHANGED(x, m->type, 5, set_extremes), T(dy);
    form ? IN_PLACE(dx, x) : T(dx);
    WITHIN(dx, 2e-5, 5e-6);
}

/* Of rows from within a sample to within another. */
static const float probability[] = {0, 0.25f, 1 - 0x1p-24f};
#define DROPOUT                                                                                    \
    .rows = 13, .first = 4, .seq = 5, .cols = s[COLS], .dtype = m->type,                           \
    .dropout = {.p = probability[form / 2], .site = 4, .sample = 7}

KERNEL(dropout_forward) {
    SET(*k, DROPOUT);
    T(x), T(y), WITHIN(y, 0, 0);
    if (form % 2) T(bias), T(residual);
    if (k->dropout.p > 0) STATE(dropout.state);
}

KERNEL(dropout_backward) {
    SET(*k, DROPOUT);
    T(dx);
    form % 2 ? IN_PLACE(dy, dx) : T(dy);
    if (k->dropout.p > 0) STATE(dropout.state);
}

static void elementwise(maker *m) {
    static const shape lines[] = {{1}, {7}, {8}, {300}, {2056}};
    static const shape rows[] = {{1, 1}, {3, 5}, {2, 8}, {17, 40}, {35, 24}, {5, 264}, {128, 128}};
    static const shape cols[] = {{13, 1}, {13, 6}, {13, 8}, {13, 40}};
    RUN(fill, lines, 7)
    RUN(cast, lines, 3)
    RUN(accumulate, lines, 3)
    RUN(gelu_forward, lines, 1)
    RUN(gelu_backward, lines, 2)
    RUN(add_bias, rows, 1)
    RUN(swiglu_forward, rows, 1)
    RUN(swiglu_backward, rows, 2)
    RUN(dropout_forward, cols, 6)
    RUN(dropout_backward, cols, 6)
}

/* ---- rows ---- */

KERNEL(bias_backward) {
    SET(*k, MATRIX, GRADIENT);
    T(dy), G(gradient), WITHIN(gradient, 1e-6, 1e-6 * (double)s[ROWS]);
}

KERNEL(layernorm_forward) {
    SET(*k, MATRIX, .epsilon = 1e-5f);
    AROUND(x, m->type, 5, 3), T(weight), T(bias), T(y), F(mean), F(rstd);
    WITHIN(y, 4e-6, 4e-6), WITHIN(mean, 1e-6, 0), WITHIN(rstd, 2e-6, 0);
}

/* A residual: none, apart, in place. */
KERNEL(layernorm_backward) {
    SET(*k, MATRIX, GRADIENT);
    T(dy), AROUND(x, m->type, 5, 3), T(weight), T(dx), G(weight_gradient), G(bias_gradient);
    AROUND(mean, Z3D_F32, 5, 0.2), AROUND(rstd, Z3D_F32, 0.5, 0.1);
    if (form % 3 == 1) T(add_to);
    if (form % 3 == 2) IN_PLACE(add_to, dx);
    WITHIN(dx, 2e-6, 2e-6), WITHIN(weight_gradient, 1e-6, 4e-6 * (double)s[ROWS]);
    WITHIN(bias_gradient, 1e-6, 2e-6 * (double)s[ROWS]);
}

/* Rows of one vector and of several, with gaps behind them. Apart, in place, for no backward. */
KERNEL(rmsnorm_forward) {
    const int64_t stride = s[HEADS] * s[COLS] + s[GAP];
    SET(*k, MATRIX, .heads = s[HEADS], .x_stride = stride, .y_stride = stride, .epsilon = 1e-5f);
    AROUND(x, m->type, 0, 3), T(weight);
    form == 1 ? IN_PLACE(y, x) : T(y);
    WITHIN(y, 2e-6, 0);
    if (form < 2) F(rstd), WITHIN(rstd, 1e-6, 0);
}

KERNEL(rmsnorm_backward) {
    const int64_t stride = s[HEADS] * s[COLS] + s[GAP];
    SET(*k, MATRIX, GRADIENT, .heads = s[HEADS], .x_stride = stride, .y_stride = stride,
        .dx_stride = stride);
    AROUND(x, m->type, 0, 3), T(weight), T(dx), G(weight_gradient), AROUND(rstd, Z3D_F32, 0.7, 0.2);
    form % 2 ? IN_PLACE(dy, dx) : T(dy);
    if (form % 2 == 0) T(add_to);
    WITHIN(dx, 1e-5, 4e-6), WITHIN(weight_gradient, 1e-5, 2e-6 * (double)(s[ROWS] * s[HEADS]));
}

KERNEL(rotary) {
    static const int32_t starts[] = {0, 3, 400};
    SET(*k, .rows = s[ROWS], .first = 2, .seq = 4, .heads = 3, .head_dim = s[COLS],
        .stride = 3 * s[COLS] + 16 * form, .inverse = form, .dtype = m->type,
        .rope = {.type = Z3D_ROPE_YARN, .theta = 10000, .factor = 4, .original_positions = 2048});
    T(x), WITHIN(x, 0, 1e-6);
    if (!form) FROM(starts, Z3D_I32, starts);
}

static void rows(maker *m) {
    static const shape bias[] = {{0, 3}, {1, 1}, {35, 24}, {150, 5}, {9, 264}, {128, 128}};
    /* Of one column only the mean's rounding is left. */
    static const shape forward[] = {{3, 5}, {2, 8}, {17, 40}, {35, 24}, {5, 264}, {128, 128}};
    /* A few threads for a vector, warps for two at a time, several packs for a thread. */
    static const shape backward[] = {{0, 8},    {1, 3},    {67, 40}, {5, 300},
                                     {35, 768}, {2, 2056}, {3, 4101}};
    static const shape vectors[] = {{3, 5, 1, 0}, {17, 40, 3, 8}, {40, 16, 2, 5}, {5, 2064, 1, 0}};
    /* Pairs one by one, eight at a time, in two launches. */
    static const shape rotated[] = {{7, 6}, {7, 32}, {7, 272}};
    RUN(bias_backward, bias, 4)
    RUN(layernorm_forward, forward, 1)
    RUN(layernorm_backward, backward, 6)
    RUN(rmsnorm_forward, vectors, 3)
    RUN(rmsnorm_backward, vectors, 4)
    RUN(rotary, rotated, 2)
}

/* ---- tables ---- */

/* One token is frequent; some are other ranks', just beside the table or far away. */
static void set_tokens(maker *m, const int64_t *s, check_array *a) {
    for (int64_t i = 0; i < a->count; i++) {
        int64_t token = s[FIRST] + (int64_t)((uniform(m) + 1) / 2 * (double)s[TABLE_ROWS]);
        if (i % 4 == 1) token = s[FIRST] + s[TABLE_ROWS] / 2;
        if (i % 7 == 2) token = s[FIRST] - 1;
        if (i % 7 == 3) token = s[FIRST] + s[TABLE_ROWS];
        if (i % 11 == 10) token = i % 2 ? INT32_MAX : INT32_MIN;
        check_set_number(a->data, a->type, i, (double)token);
    }
}

KERNEL(embedding_forward) {
    SET(*k, MATRIX, .first = s[FIRST], .table_rows = s[TABLE_ROWS]);
    CHANGED(tokens, Z3D_I32, 0, set_tokens), T(table), T(out);
}

KERNEL(embedding_backward) {
    SET(*k, MATRIX, GRADIENT, .first = s[FIRST], .table_rows = s[TABLE_ROWS]);
    CHANGED(tokens, Z3D_I32, 0, set_tokens), T(dy), G(table_gradient);
}

/* Behind starts, some rows have the last position. */
KERNEL(position_forward) {
    static const int32_t starts[] = {0, 6, 3, 0};
    SET(*k, MATRIX, .first = s[FIRST], .seq = 5, .capacity = form ? 8 : 0);
    T(x), T(positions);
    if (form) FROM(starts, Z3D_I32, starts);
}

KERNEL(position_backward) {
    SET(*k, MATRIX, GRADIENT, .first = s[FIRST], .seq = 5);
    T(dy), G(gradient);
}

/* The second sample's last two rows and all of the third's are beyond the cache. */
KERNEL(cache_store) {
    static const int32_t starts[] = {0, 7, 12};
    static const int64_t gap[] = {0, 2, 8};
    SET(*k, .batch = 3, .seq = 4, .capacity = 9, .cols = s[COLS], .stride = s[COLS] + gap[form],
        .dtype = m->type);
    T(x), T(cache), FROM(starts, Z3D_I32, starts);
}

KERNEL(select_row) {
    static const int32_t row[] = {4, 0, 2};
    SET(*k, .batch = 3, .seq = 5, .cols = s[COLS], .dtype = m->type);
    T(x), T(y), FROM(row, Z3D_I32, row);
}

static void tables(maker *m) {
    static const shape lookups[] = {
        {1, 1, 1, 0}, {17, 3, 1, 10}, {63, 40, 7, 100}, {270, 8, 50, 3}, {0, 8, 4, 0}};
    /* Three whole samples; positions 4, 0 and 1. */
    static const shape positions[] = {{15, 1},      {15, 7},      {15, 8},      {15, 40},
                                      {3, 1, 0, 4}, {3, 7, 0, 4}, {3, 8, 0, 4}, {3, 40, 0, 4}};
    RUN(embedding_forward, lookups, 1)
    RUN(embedding_backward, lookups, 4)
    RUN(position_forward, positions, 2)
    RUN(position_backward, positions, 4)
    RUN(cache_store, positions, 3)
    RUN(select_row, positions, 1)
}

/* ---- cross entropy ---- */

/* What lies in the padding may not count. */
static void set_padding(maker *m, const int64_t *s, check_array *a) {
    for (int64_t i = 0; i < a->count; i++)
        if (i % s[COLS] >= s[VALID]) check_set_number(a->data, m->type, i, NAN);
}

static void set_targets(maker *m, const int64_t *s, check_array *a) {
    (void)m;
    for (int64_t r = 0; r < a->count; r++)
        ((int32_t *)a->data)[r] = r % 3 == 1 ? -1 : (int32_t)(s[FIRST] + r * 5 % (s[COLS] + 2));
}

/* Each row's, which stays what it is, whoever finds it. */
static void find_max(maker *m, const int64_t *s, check_array *a) {
    float *max = a->data;
    for (int64_t i = 0; i < a->count; i++) max[i] = -INFINITY;
    for (int64_t i = 0; i < s[ROWS] * s[COLS]; i++)
        if (i % s[COLS] < s[VALID])
            max[i / s[COLS]] =
                fmaxf(max[i / s[COLS]],
                      (float)check_number(m->c.kernel.as.cross_entropy_sum.logits, m->type, i));
}

KERNEL(cross_entropy_max) {
    SET(*k, MATRIX, .valid = s[VALID]);
    CHANGED(logits, m->type, 8, set_padding), F(max_out);
}

KERNEL(cross_entropy_sum) {
    SET(*k, MATRIX, .valid = s[VALID], .first = s[FIRST], .alone = form);
    CHANGED(logits, m->type, 8, set_padding), CHANGED(targets, Z3D_I32, 0, set_targets);
    form ? CHANGED(max, Z3D_F32, 0, find_max) : AROUND(max, Z3D_F32, 9, 1);
    F(sums), WITHIN(sums, 2e-6, 0);
}

KERNEL(cross_entropy_backward) {
    SET(*k, MATRIX, .valid = s[VALID], .first = s[FIRST]);
    CHANGED(logits, m->type, 8, set_padding), CHANGED(targets, Z3D_I32, 0, set_targets);
    AROUND(max, Z3D_F32, 9, 1), AROUND(sums, Z3D_F32, 5, 2), STATE(state);
    WITHIN(logits, 2e-6, 1e-8);
}

static void allow_loss_sum(maker *m, const int64_t *s, check_array *a) {
    slack(m, a->data)[offsetof(z3d_step_state, loss_sum) / 8] = 1e-12 * (double)s[ROWS];
}

KERNEL(cross_entropy_loss) {
    SET(*k, .rows = s[ROWS]);
    AROUND(sums, Z3D_F32, 5, 2), CHANGED(targets, Z3D_I32, 0, set_targets);
    operand(m, &k->state, Z3D_F64, (content){.from = &m->state, .change = allow_loss_sum});
}

static void losses(maker *m) {
    static const shape vocabulary[] = {
        {3, 5, 5, 0}, {7, 40, 37, 40}, {2, 2056, 2049, 0}, {4, 8, 0, 16}, {128, 384, 300, 0}};
    static const shape rows[] = {{1, 9}, {33, 9}, {2100, 9}};
    RUN(cross_entropy_max, vocabulary, 1)
    RUN(cross_entropy_sum, vocabulary, 2)
    RUN(cross_entropy_backward, vocabulary, 1)
    RUN(cross_entropy_loss, rows, 1)
}

/* ---- a step's end, and a run's beginning ---- */

/* The gradient in three types; an overflow, when nothing may change; the parameter apart, none, or
 * the master itself. */
KERNEL(adamw) {
    const bool skip = form / 3 % 2, variance = m->c.kernel.kind == Z3D_KERNEL_adamw;
    SET(*k, .count = s[ROWS], .decayed = skip ? s[ROWS] : s[ROWS] / 2 + 3, .dtype = m->type,
        .gradient_dtype = types[form % 3],
        .constants = {.beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .epsilon = 1e-8f,
                      .momentum = 0.9f,
                      .weight_decay = 0.1f});
    F(master), AROUND(momentum, Z3D_F32, 0, 0.1), G(gradient), STATE(state);
    WITHIN(master, 1e-6, 1e-8), WITHIN(momentum, 1e-6, 1e-8);
    if (variance) AROUND(variance, Z3D_F32, 1, 0.03), WITHIN(variance, 1e-6, 1e-8);
    if (form / 6 == 0) T(parameter), WITHIN(parameter, 1e-6, 1e-8);
    if (form / 6 == 2) IN_PLACE(parameter, master);
    m->state.skip = skip, m->state.optimizer_step = s[ROWS];
}

KERNEL(sgd) {
    adamw(m, k, s, form);
}

static void set_last(maker *m, const int64_t *s, check_array *a) {
    const double last[] = {0.5, INFINITY, NAN, m->type == Z3D_F16 ? 65504 : 3.3e38};
    check_set_number(a->data, m->type, a->count - 1, last[s[COLS]]);
}

KERNEL(sum_squares) {
    static const double before = 2.5;
    SET(*k, .count = s[ROWS], .dtype = m->type);
    CHANGED(x, m->type, 1, set_last), FROM(out, Z3D_F64, &before), WITHIN(out, 1e-13, 0);
}

KERNEL(control_begin) {
    SET(*k, .count = s[ROWS], .counts = form);
    STATE(state), AROUND(control, Z3D_F64, 0, 1);
}

KERNEL(control_end) {
    static const double clipping[] = {0, 0.4, 1e9}, last[] = {1.7, INFINITY, NAN};
    static double sums[] = {1, 2, 1, 0, 0.1, 1e15, 0};
    SET(*k, .count = s[ROWS], .clipping = clipping[form / 3]);
    sums[6] = last[form % 3];
    STATE(state), FROM(control, Z3D_F64, sums);
}

/* A part of a split parameter, and some elements within one. */
KERNEL(init_normal) {
    SET(*k, .first = s[FIRST], .count = s[ROWS], .outer = 3, .local = 4, .global = 8, .inner = 67,
        .offset = form ? 0 : 4, .key = z3d_key(5, "some.weight"),
        .standard_deviation = form ? 1 : 0.02f);
    F(x), WITHIN(x, 0, 0);
}

static void steps(maker *m) {
    static const shape counts[] = {{1}, {7}, {8}, {300}, {2056}};
    static const shape squares[] = {{1, 0},    {7, 0},    {7, 1},    {7, 2},   {7, 3},
                                    {300, 0},  {300, 1},  {300, 2},  {300, 3}, {4096, 0},
                                    {9001, 0}, {9001, 1}, {9001, 2}, {9001, 3}};
    static const shape control[] = {{7}}, drawn[] = {{804}, {37, 0, 0, 101}};
    RUN(adamw, counts, m->type == Z3D_F32 ? 18 : 12)
    RUN(sgd, counts, m->type == Z3D_F32 ? 18 : 12)
    RUN(sum_squares, squares, 1)
    RUN(control_begin, control, 2)
    RUN(control_end, control, 9)
    RUN(init_normal, drawn, 2)
}

/* ---- attention ---- */

enum { BATCH, SEQ, HEAD_DIM = HEADS + 1, KV_HEADS, WINDOW, PERCENT, SCORES, ATTENTION };
enum { USUAL, LARGE, INFINITE };

/* Batch, rows, heads, their width; heads of keys and values (0: as many); window (0: all keys);
 * dropout in percent; which scores. */
typedef int64_t attention_shape[ATTENTION];

static int64_t kv_heads(const int64_t *s) {
    return s[KV_HEADS] ? s[KV_HEADS] : s[HEADS];
}

#define HEADS_OF(s, q, kv)                                                                         \
    .batch = (s)[BATCH], .seq = (s)[SEQ], .heads = (s)[HEADS], .kv_heads = kv_heads(s),            \
    .head_dim = (s)[HEAD_DIM], .window = (s)[WINDOW], .q_stride = (q), .kv_stride = (kv),          \
    .dtype = m->type, .dropout = {.p = (float)(s)[PERCENT] / 100, .site = 5, .sample = 3}

/* LARGE: scores of hundreds, the largest in a later tile: exponentials overflow unless the maximum
 * so far is taken off. INFINITE: one query, whose row, and no other, is not finite. */
static void set_scores(maker *m, const int64_t *s, check_array *a) {
    const int64_t d = s[HEAD_DIM];
    for (int64_t i = 0; s[SCORES] == LARGE && i < s[SEQ] * d; i++) {
        int64_t t = i / d, at = t * 3 * d + i % d;
        check_set_number(a->data, m->type, at, 20);
        check_set_number(a->data, m->type, at + d, (double)(t * 7 % 13) / 4 + 0.01 * (double)t);
    }
    if (s[SCORES] == INFINITE) check_set_number(a->data, m->type, 66 * 3 * d + 3, INFINITY);
}

/* A backward, with queries, keys and values beside each other in each row; the forward that leaves
 * what it reads. */
static void begin_attention(maker *m, const int64_t *s, z3d_attention_backward *g,
                            z3d_attention_forward *f) {
    z3d_attention_backward *k = begin(m, Z3D_KERNEL_attention_backward);
    const int64_t stride = (s[HEADS] + 2 * kv_heads(s)) * s[HEAD_DIM];
    const int64_t size = s[HEAD_DIM] * (int64_t)z3d_dtype_size(m->type);
    SET(*k, HEADS_OF(s, stride, stride), .first_head = 4);
    CHANGED(q, m->type, 1, set_scores), T(out), T(dout), F(log_sum_exp), T(dq);
    if (s[PERCENT]) STATE(dropout.state);
    k->k = (const char *)k->q + s[HEADS] * size, k->v = (const char *)k->k + kv_heads(s) * size;
    k->dk = (char *)k->dq + s[HEADS] * size, k->dv = (char *)k->dk + kv_heads(s) * size;
    make(m, s);
    *g = *k;
    SET(*f, HEADS_OF(s, stride, stride), .first_head = 4, .capacity = s[SEQ], .q = g->q, .k = g->k,
        .v = g->v, .out = array_of(m, g->out)->data,
        .log_sum_exp = array_of(m, g->log_sum_exp)->data);
    f->dropout.state = g->dropout.state;
}

/* What is allowed beside the slack is fp32's. For libraries: numbers of up to 1 in 64 columns: a
 * score's sum of products is off by at most 64 x 2^-24 of 64 x 0.25 (their mean size), after the
 * scale by 2^-17, and so is the exponential, relatively; two implementations by twice that. What is
 * added up then is at most 2. */
static void use_attention(maker *m, const z3d_attention_forward *f, const z3d_attention_backward *g,
                          const void *result, double host) {
    allow(m, result, 0, m->gpu ? fmax(host, 0x1p-15) : host);
    if (m->status == Z3D_OK) m->status = check_attention_slack(f, g, slack(m, result));
    run(m);
}

/* Forward, and backward from what the cpu's forward left. */
static void attention(maker *m, const int64_t *s) {
    z3d_attention_backward g;
    z3d_attention_forward f;
    begin_attention(m, s, &g, &f);
    m->c.kernel = (z3d_kernel){.kind = Z3D_KERNEL_attention_forward, .as.attention_forward = f};
    allow(m, f.log_sum_exp, 2e-6, m->gpu ? 1e-4 : 2e-6);
    use_attention(m, &f, NULL, f.out, s[SCORES] == LARGE ? 2e-4 : 1e-6);
    if (m->status == Z3D_OK) m->status = check_launch_cpu(m->cpu, &m->c.kernel);
    m->c.kernel = (z3d_kernel){.kind = Z3D_KERNEL_attention_backward, .as.attention_backward = g};
    if (s[SCORES] == USUAL) use_attention(m, &f, &g, g.dq, 4e-6);
    drop(m);
}

/* Behind a sample's last row. */
static void set_unused(maker *m, const int64_t *s, check_array *a) {
    const z3d_attention_forward *k = &m->c.kernel.as.attention_forward;
    const int64_t rows = a->count / k->kv_stride;
    for (int64_t i = 0; i < a->count; i++) {
        int64_t row = i / k->kv_stride;
        if (row % k->capacity >= k->starts[row / k->capacity] + s[SEQ] && row < rows)
            check_set_number(a->data, m->type, i, NAN);
    }
}

/* Some rows of each sample at other positions, against a cache. Rows that a full cache does not
 * have may be anything, but spoil no others. */
static void cached(maker *m, const int64_t *s, int64_t capacity, const int32_t *starts) {
    const int64_t width = s[HEADS] * s[HEAD_DIM];
    z3d_attention_forward *k = begin(m, Z3D_KERNEL_attention_forward);
    SET(*k, HEADS_OF(s, width, kv_heads(s) * s[HEAD_DIM]), .capacity = capacity);
    FROM(starts, Z3D_I32, starts), T(q), T(out);
    CHANGED(k, m->type, 1, set_unused), CHANGED(v, m->type, 1, set_unused);
    make(m, s);
    double *off = slack(m, k->out);
    for (int64_t b = 0; b < s[BATCH]; b++)
        for (int64_t i = (capacity - starts[b]) * width; i < s[SEQ] * width; i++)
            off[b * s[SEQ] * width + i] = INFINITY;
    use_attention(m, k, NULL, k->out, 1e-6);
    drop(m);
}

static void attentions(maker *m) {
    static const attention_shape all[] = {
        /* Parts of a tile, more than one, heads that fill none. */
        {1, 1, 1, 8},
        {1, 7, 2, 16, 0, 0, 30},
        {1, 67, 1, 64},
        {1, 17, 1, 72, 0, 0, 30},
        {1, 128, 2, 64, 0, 0, 10},
        {1, 80, 1, 16, 0, 0, 0, LARGE},
        {1, 70, 1, 8, 0, 0, 0, INFINITE},
        /* Heads that are no multiple of 8 are read element by element; those wider than 128 take
         * two blocks for a tile's results. */
        {2, 5, 1, 8},
        {1, 5, 3, 7},
        {1, 67, 1, 13, 0, 0, 30},
        {1, 3, 1, 136, 0, 0, 30},
        {1, 18, 2, 251, 1},
        /* Grouped heads, windows. */
        {1, 67, 4, 8, 2},
        {1, 140, 2, 8, 1, 5},
        {1, 140, 1, 16, 1, 70},
        {2, 17, 3, 8, 1, 4, 30},
        {2, 40, 4, 7, 2, 33}};
    /* The call's rows: 1 and 2 by chunks of a cache, more by tiles; the last padded. */
    static const attention_shape caches[] = {
        {3, 1, 4, 8, 2}, {3, 1, 2, 16, 1, 40}, {3, 2, 2, 72, 1},    {3, 1, 1, 136},
        {3, 20, 2, 8},   {3, 20, 2, 8, 2, 3},  {3, 20, 3, 7, 1, 40}};
    static const attention_shape full[] = {
        {1, 9, 1, 8}, {1, 9, 1, 7}, {1, 9, 1, 8, 1, 2}, {1, 9, 1, 7, 1, 2}};
    static const int32_t starts[] = {0, 63, 280}, last[] = {66};
    for (int i = 0; i < COUNT(all); i++) attention(m, all[i]);
    for (int i = 0; i < COUNT(caches); i++) cached(m, caches[i], 300, starts); /* two chunks */
    for (int i = 0; i < COUNT(full); i++) cached(m, full[i], 70, last);
}

z3d_status check_each_case(z3d_dtype type, bool gpu, z3d_device *cpu,
                           z3d_status (*use)(void *argument, const check_case *c), void *argument) {
    static const shape products[] = {{1, 48, 16}, {18, 64, 16}, {128, 384, 128}};
    maker made = {
        .type = type, .gpu = gpu, .cpu = cpu, .random = 1, .use = use, .argument = argument};
    maker *m = &made;
    if (gpu) RUN(gemm, products, PRODUCTS)
    elementwise(m);
    rows(m);
    tables(m);
    losses(m);
    steps(m);
    attentions(m);
    return m->status;
}
