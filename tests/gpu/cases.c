/* Cases of every kernel: shapes, types and forms, with random operands, and how far results may be
 * from the cpu device's. Shapes are those where kernels change their way: less than a vector of 16
 * bytes, a few more, more than a warp or a block has, nothing at all. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/check.h"

/* Numbers that kernels read by these names; what is left out is 0. */
enum { ROWS, COLS, DEPTH, FIRST, SHAPE };
enum { HEADS = DEPTH, VALID = DEPTH, TABLE_ROWS = DEPTH, GAP = FIRST };
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
    const double *special;
    int specials;
    uint64_t random;
    void (*use)(void *argument, const check_case *c);
    void *argument;
};

#define SET(to, ...)                                                                               \
    to = (__typeof__(to)) {                                                                        \
        __VA_ARGS__                                                                                \
    }
#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static double number_of(z3d_dtype type, uint16_t bits) {
    return (double)(type == Z3D_BF16 ? z3d_bf16_to_float(bits) : z3d_f16_to_float(bits));
}

double check_number(const void *from, z3d_dtype type, int64_t i) {
    if (type == Z3D_F64) return ((const double *)from)[i];
    if (type == Z3D_F32) return (double)((const float *)from)[i];
    if (type == Z3D_I32) return ((const int32_t *)from)[i];
    if (type == Z3D_U8) return ((const uint8_t *)from)[i];
    return number_of(type, ((const uint16_t *)from)[i]);
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

static double *slack(maker *m, const void *data) {
    check_array *a = array_of(m, data);
    if (!a->slack) a->slack = check_new((a->count + 1) * (int64_t)sizeof(double));
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
        void *data = check_new(bytes + 1);
        check_move_operand(&m->c.kernel, a->data, bytes + 1, data);
        a->data = data;
        a->count = bytes / (int64_t)z3d_dtype_size(a->type);
        if (content->from) memcpy(data, content->from, (size_t)bytes);
        for (int64_t e = 0; !content->from && e < a->count; e++)
            check_set_number(data, a->type, e, content->middle + uniform(m) * content->scale);
        if (content->change) content->change(m, s, a);
    }
}

static void drop(maker *m) {
    for (int i = 0; i < m->c.arrays; i++) {
        free(m->c.array[i].data);
        free(m->c.array[i].slack);
    }
}

/* KERNEL(its name, shapes, number of forms, its struct's sizes and flags) { its operands, what is
 * allowed }: a function that runs all shapes in all forms. */
#define KERNEL(name, shapes, forms, ...)                                                           \
    static void name##_operands(maker *m, z3d_##name *k, const int64_t *s, int form);              \
    static void name(maker *m) {                                                                   \
        for (int i = 0; i < COUNT(shapes) * (forms); i++) {                                        \
            const int64_t *s = (shapes)[i / (forms)];                                              \
            const int form = i % (forms);                                                          \
            z3d_##name *k = begin(m, Z3D_KERNEL_##name);                                           \
            SET(*k, __VA_ARGS__);                                                                  \
            name##_operands(m, k, s, form);                                                        \
            make(m, s);                                                                            \
            m->use(m->argument, &m->c);                                                            \
            drop(m);                                                                               \
        }                                                                                          \
    }                                                                                              \
    static void name##_operands(maker *m UNUSED, z3d_##name *k UNUSED, const int64_t *s UNUSED,    \
                                int form UNUSED)
#define UNUSED __attribute__((unused))

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
/* To the comparison, a step state is ten doubles. */
#define STATE(field) FROM(field, Z3D_F64, &m->state)
#define IN_PLACE(field, of) (void)(k->field = (void *)(uintptr_t)k->of)
/* set_special() puts these at an array's beginning. */
#define SPECIAL(numbers, count) m->special = (numbers), m->specials = (count)
#define WITHIN(field, relative, absolute) within(m, k->field, relative, absolute)

static void set_special(maker *m, const int64_t *s UNUSED, check_array *a) {
    for (int i = 0; i < m->specials && i < a->count; i++)
        check_set_number(a->data, m->type, i, m->special[i]);
}

static const z3d_dtype types[] = {Z3D_F32, Z3D_BF16, Z3D_F16};

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

/* The slack of gelu(C), or of gelu's gradient times C; fp32 is not fused. */
static void find_gelu_slack(maker *m, const int64_t *s, check_array *a) {
    const void *x = m->c.kernel.as.gemm.before_gelu;
    double *to = slack(m, a->data);
    z3d_kernel plain = m->c.kernel;
    plain.as.gemm.gelu = NULL, plain.as.gemm.before_gelu = NULL;
    check_launch_cpu(m->cpu, &plain);
    for (int64_t i = 0; m->type != Z3D_F32 && i < s[ROWS] * s[COLS]; i++) {
        double c = check_number(plain.as.gemm.c, m->type, i);
        to[i] = x ? fabs(c) * tanh_slack(check_number(x, m->type, i), true) : tanh_slack(c, false);
    }
}

enum { RESIDUAL = 6, GELU, GELUS_GRADIENT, BIAS_GRADIENT, PRODUCTS = 12 };

/* Plain ones, with all transpositions; a linear layer with something behind it; weights' gradients
 * with bias's, written, added, in fp32. */
static const bool a_turned[PRODUCTS] = {0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1};
static const bool b_turned[PRODUCTS] = {1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0};
static const bool added[PRODUCTS] = {0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0};
static const shape products[] = {{1, 48, 16}, {18, 64, 16}, {128, 384, 128}};

KERNEL(gemm, products, m->gpu ? PRODUCTS : 0, .m = s[ROWS], .n = s[COLS], .k = s[DEPTH],
       .transpose_a = a_turned[form], .transpose_b = b_turned[form], .accumulate = added[form],
       .lda = a_turned[form] ? s[ROWS] : s[DEPTH], .ldb = b_turned[form] ? s[DEPTH] : s[COLS],
       .ldc = s[COLS], .dtype = m->type, .c_dtype = form == 4 || form == 11 ? Z3D_F32 : m->type) {
    const double u = half_unit(m);
    /* What the order of sums, and the rounding of what is near zero, may make of usual numbers. */
    const double near = (1e-5 + u / 4) * (0.6 + 0.1 * sqrt((double)s[DEPTH]));
    T(a), AROUND(b, m->type, 0, 0.3);
    if (form == 0 || form == RESIDUAL || form == GELU) T(bias);
    if (form == RESIDUAL) T(residual);
    if (form == GELUS_GRADIENT) AROUND(before_gelu, m->type, 0, 3);
    CHANGED(c, k->c_dtype, 1, form == GELUS_GRADIENT ? find_gelu_slack : NULL);
    /* C may not be rounded before the residual, about as large, is added, nor before it meets
     * gelu's gradient. A 16-bit C that is added to in place may: cuBLASLt does so on an H100. */
    const bool rounded = form == RESIDUAL || (added[form] && k->c_dtype == m->type);
    allow(m, k->c, form == GELUS_GRADIENT ? u + 0x1p-22 : 0x1p-22, rounded ? near + 2 * u : near);
    /* Nor before gelu, which makes u |C| times gelu's slope. Where C is positive that is at most
     * 1.13 u (gelu(C) + 0.17), else at most 0.2 u. */
    if (form == GELU) CHANGED(gelu, m->type, 1, find_gelu_slack);
    if (form == GELU) allow(m, k->gelu, 1.13 * u + 0x1p-22, near + 0.2 * u);
    if (form >= BIAS_GRADIENT) AROUND(bias_gradient, k->c_dtype, 0, 1);
    if (form >= BIAS_GRADIENT) allow(m, k->bias_gradient, 0x1p-22, 4 * near);
}

/* ---- elementwise ---- */

static const shape lines[] = {{1}, {7}, {8}, {300}, {2056}};
static const shape matrices[] = {{1, 1}, {3, 5}, {2, 8}, {17, 40}, {35, 24}, {5, 264}, {128, 128}};

static const float value[] = {3, -0.0f, 3.14159f, INFINITY, 3.14159f, -7, 3};

KERNEL(fill, lines, 7, .count = s[ROWS], .value = value[form]) {
    const z3d_dtype type[] = {m->type, m->type, m->type, m->type, Z3D_F64, Z3D_I32, Z3D_U8};
    k->dtype = type[form];
    AROUND(x, type[form], 0, 1);
}

/* Every pattern of a 16-bit type; of fp32, what lies between two. */
static void set_patterns(maker *m, const int64_t *s, check_array *a) {
    const z3d_dtype to = m->c.kernel.as.cast.destination_dtype;
    for (int64_t i = 0; i < s[ROWS]; i++)
        if (m->type != Z3D_F32)
            ((uint16_t *)a->data)[i] = (uint16_t)i;
        else if (to != Z3D_F32)
            ((float *)a->data)[i] =
                (float)((number_of(to, (uint16_t)i) + number_of(to, (uint16_t)(i + 1))) / 2);
}

/* With columns: so many rows. */
static const shape casts[] = {{1}, {7}, {8}, {300}, {2056}, {65536}, {7, 3}, {2056, 4}};
static const double misfits[] = {INFINITY, 1e-6, 1e5};

KERNEL(cast, casts, 3, .count = s[ROWS], .destination_dtype = s[COLS] ? m->type : types[form],
       .source_dtype = m->type, .rows = s[COLS], .destination_stride = s[ROWS] + 9,
       .source_stride = s[ROWS] + 1) {
    SPECIAL(misfits, 3);
    CHANGED(source, m->type, 100, s[ROWS] == 65536 ? set_patterns : set_special);
    AROUND(destination, k->destination_dtype, 0, 1);
}

KERNEL(accumulate, lines, 3, .count = s[ROWS], .y_dtype = types[form], .x_dtype = m->type) {
    T(x), AROUND(y, types[form], 0, 1);
}

KERNEL(scale, lines, 1, .count = s[ROWS], .dtype = m->type, .factor = 1.5f) {
    AROUND(x, m->type, 5, 1);
}

/* Where functions end, and beyond. */
static const double extremes[] = {30, -30, 1e4, -1e4, NAN, INFINITY};

KERNEL(gelu_forward, lines, 1, .count = s[ROWS], .dtype = m->type) {
    SPECIAL(extremes, 6);
    CHANGED(x, m->type, 5, set_special), T(y), WITHIN(y, 2e-5, 1e-37);
}

KERNEL(gelu_backward, lines, 2, .count = s[ROWS], .dtype = m->type) {
    SPECIAL(extremes, 6);
    CHANGED(x, m->type, 5, set_special), T(dx), WITHIN(dx, 2e-6, 5e-6);
    form ? IN_PLACE(dy, dx) : T(dy);
}

KERNEL(swiglu_forward, matrices, 1, MATRIX) {
    SPECIAL(extremes, 5);
    CHANGED(x, m->type, 5, set_special), T(y), WITHIN(y, 2e-5, 1e-30);
}

KERNEL(swiglu_backward, matrices, 2, MATRIX) {
    SPECIAL(extremes, 5);
    CHANGED(x, m->type, 5, set_special), T(dy);
    form ? IN_PLACE(dx, x) : T(dx);
    WITHIN(dx, 2e-5, 5e-6);
}

/* Of rows from within a sample to within another. */
static const shape dropped[] = {{13, 1}, {13, 6}, {13, 8}, {13, 40}};
static const float probability[] = {0, 0.25f, 1 - 0x1p-24f};
#define DROPOUT                                                                                    \
    MATRIX, .first = 4, .seq = 5, .dropout = {.p = probability[form / 2], .site = 4, .sample = 7}

KERNEL(dropout_forward, dropped, 6, DROPOUT) {
    T(x), T(y), WITHIN(y, 0, 0);
    if (form % 2) T(bias), T(residual);
    if (k->dropout.p > 0) STATE(dropout.state);
}

KERNEL(dropout_backward, dropped, 6, DROPOUT) {
    T(dx);
    form % 2 ? IN_PLACE(dy, dx) : T(dy);
    if (k->dropout.p > 0) STATE(dropout.state);
}

/* ---- rows ---- */

static const shape biases[] = {{0, 3}, {1, 1}, {35, 24}, {150, 5}, {9, 264}, {128, 128}};

KERNEL(bias_backward, biases, 4, MATRIX, GRADIENT) {
    T(dy), G(gradient), WITHIN(gradient, 1e-6, 1e-6 * (double)s[ROWS]);
}

/* Of one column only the mean's rounding would be left. */
static const shape normalized[] = {{3, 5}, {2, 8}, {17, 40}, {35, 24}, {5, 264}, {128, 128}};

KERNEL(layernorm_forward, normalized, 1, MATRIX, .epsilon = 1e-5f) {
    AROUND(x, m->type, 5, 3), T(weight), T(bias), T(y), F(mean), F(rstd);
    WITHIN(y, 4e-6, 4e-6), WITHIN(mean, 1e-6, 0), WITHIN(rstd, 2e-6, 0);
}

/* A few threads for a vector, warps for two at a time, several packs for a thread. A residual:
 * none, apart, in place. */
static const shape vectors[] = {{0, 8},    {1, 3},    {67, 40}, {5, 300},
                                {35, 768}, {2, 2056}, {3, 4101}};

KERNEL(layernorm_backward, vectors, 6, MATRIX, GRADIENT) {
    T(dy), AROUND(x, m->type, 5, 3), T(weight), T(dx), G(weight_gradient), G(bias_gradient);
    AROUND(mean, Z3D_F32, 5, 0.2), AROUND(rstd, Z3D_F32, 0.5, 0.1);
    if (form % 3 == 1) T(add_to);
    if (form % 3 == 2) IN_PLACE(add_to, dx);
    WITHIN(dx, 2e-6, 2e-6), WITHIN(weight_gradient, 1e-6, 4e-6 * (double)s[ROWS]);
    WITHIN(bias_gradient, 1e-6, 2e-6 * (double)s[ROWS]);
}

/* Rows of one vector and of several, with gaps behind them. Apart, in place, for no backward. */
static const shape heads[] = {{3, 5, 1, 0}, {17, 40, 3, 8}, {40, 16, 2, 5}, {5, 2064, 1, 0}};
#define STRIDE (s[HEADS] * s[COLS] + s[GAP])

KERNEL(rmsnorm_forward, heads, 3, MATRIX, .heads = s[HEADS], .x_stride = STRIDE, .y_stride = STRIDE,
       .epsilon = 1e-5f) {
    AROUND(x, m->type, 0, 3), T(weight);
    form == 1 ? IN_PLACE(y, x) : T(y);
    WITHIN(y, 2e-6, 0);
    if (form < 2) F(rstd), WITHIN(rstd, 1e-6, 0);
}

KERNEL(rmsnorm_backward, heads, 4, MATRIX, GRADIENT, .heads = s[HEADS], .x_stride = STRIDE,
       .y_stride = STRIDE, .dx_stride = STRIDE) {
    AROUND(x, m->type, 0, 3), T(weight), T(dx), G(weight_gradient), AROUND(rstd, Z3D_F32, 0.7, 0.2);
    form % 2 ? IN_PLACE(dy, dx) : T(dy);
    if (form % 2 == 0) T(add_to);
    WITHIN(dx, 1e-5, 4e-6), WITHIN(weight_gradient, 1e-5, 2e-6 * (double)(s[ROWS] * s[HEADS]));
}

/* Pairs one by one, eight at a time, in two launches. */
static const shape rotated[] = {{7, 6}, {7, 32}, {7, 272}};

KERNEL(rotary, rotated, 3, .rows = s[ROWS], .first = 2, .seq = 4, .heads = 3, .head_dim = s[COLS],
       .stride = 3 * s[COLS] + 16 * form, .inverse = form > 0, .dtype = m->type,
       .rope = {.type = Z3D_ROPE_YARN, .theta = 10000, .factor = 4, .original_positions = 2048}) {
    static const int32_t starts[] = {0, 3, 400}, packed[] = {0, 1, 2, 0, 0, 1, 2, 3, 0, 0, 1, 0};
    T(x), WITHIN(x, 0, 1e-6);
    if (!form) FROM(starts, Z3D_I32, starts);
    if (form == 2) FROM(row_position, Z3D_I32, packed);
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
        ((int32_t *)a->data)[i] = (int32_t)token;
    }
}

static const shape lookups[] = {
    {1, 1, 1, 0}, {17, 3, 1, 10}, {63, 40, 7, 100}, {270, 8, 50, 3}, {0, 8, 4, 0}};

KERNEL(embedding_forward, lookups, 1, MATRIX, .first = s[FIRST], .table_rows = s[TABLE_ROWS]) {
    CHANGED(tokens, Z3D_I32, 0, set_tokens), T(table), T(out);
}

KERNEL(embedding_backward, lookups, 4, MATRIX, GRADIENT, .first = s[FIRST],
       .table_rows = s[TABLE_ROWS]) {
    CHANGED(tokens, Z3D_I32, 0, set_tokens), T(dy), G(table_gradient);
}

/* Three whole samples; positions 4, 0 and 1. Behind starts, some rows have the last position. */
static const shape positions[] = {{15, 1},      {15, 7},      {15, 8},      {15, 40},
                                  {3, 1, 0, 4}, {3, 7, 0, 4}, {3, 8, 0, 4}, {3, 40, 0, 4}};

KERNEL(position_forward, positions, 3, MATRIX, .first = s[FIRST], .seq = 5,
       .capacity = form == 1 ? 8 : 0) {
    static const int32_t starts[] = {0, 6, 3};
    static const int32_t packed[] = {0, 1, 2, 0, 1, 0, 1, 2, 3, 4, 0, 0, 1, 0, 1};
    T(x), T(positions);
    if (form == 1) FROM(starts, Z3D_I32, starts);
    if (form == 2) FROM(row_position, Z3D_I32, packed);
}

KERNEL(position_backward, positions, 4, MATRIX, GRADIENT, .first = s[FIRST], .seq = 5) {
    T(dy), G(gradient);
}

/* The second sample's last two rows and all of the third's are beyond the cache. */
static const shape caches[] = {{0, 5}, {0, 16}};
static const int64_t gap[] = {0, 2, 8};

KERNEL(cache_store, caches, 3, .batch = 3, .seq = 4, .capacity = 9, .cols = s[COLS],
       .stride = s[COLS] + gap[form], .dtype = m->type) {
    static const int32_t starts[] = {0, 7, 12};
    T(x), T(cache), FROM(starts, Z3D_I32, starts);
}

static const shape selected[] = {{0, 1}, {0, 24}};

KERNEL(select_row, selected, 1, .batch = 3, .seq = 5, .cols = s[COLS], .dtype = m->type) {
    static const int32_t row[] = {4, 0, 2};
    T(x), T(y), FROM(row, Z3D_I32, row);
}

/* ---- cross entropy ---- */

/* What lies in the padding may not count. */
static void set_padding(maker *m, const int64_t *s, check_array *a) {
    for (int64_t i = 0; i < a->count; i++)
        if (i % s[COLS] >= s[VALID]) check_set_number(a->data, m->type, i, NAN);
}

static void set_targets(maker *m UNUSED, const int64_t *s, check_array *a) {
    for (int64_t r = 0; r < a->count; r++)
        ((int32_t *)a->data)[r] = r % 3 == 1 ? -1 : (int32_t)(s[FIRST] + r * 5 % (s[COLS] + 2));
}

/* Each row's, which stays what it is, whoever finds it. */
static void find_max(maker *m, const int64_t *s, check_array *a) {
    const void *logits = m->c.kernel.as.cross_entropy_sum.logits;
    for (int64_t r = 0; r < a->count; r++) {
        double most = -INFINITY;
        for (int64_t i = 0; i < s[VALID]; i++)
            most = fmax(most, check_number(logits, m->type, r * s[COLS] + i));
        ((float *)a->data)[r] = (float)most;
    }
}

static const shape vocabularies[] = {
    {3, 5, 5, 0}, {7, 40, 37, 40}, {2, 2056, 2049, 0}, {4, 8, 0, 16}, {128, 384, 300, 0}};

KERNEL(cross_entropy_max, vocabularies, 1, MATRIX, .valid = s[VALID]) {
    CHANGED(logits, m->type, 8, set_padding), F(max_out);
}

KERNEL(cross_entropy_sum, vocabularies, 2, MATRIX, .valid = s[VALID], .first = s[FIRST],
       .alone = form) {
    CHANGED(logits, m->type, 8, set_padding), CHANGED(targets, Z3D_I32, 0, set_targets);
    form ? CHANGED(max, Z3D_F32, 0, find_max) : AROUND(max, Z3D_F32, 9, 1);
    F(sums), WITHIN(sums, 2e-6, 0);
}

KERNEL(cross_entropy_backward, vocabularies, 1, MATRIX, .valid = s[VALID], .first = s[FIRST]) {
    CHANGED(logits, m->type, 8, set_padding), CHANGED(targets, Z3D_I32, 0, set_targets);
    AROUND(max, Z3D_F32, 9, 1), AROUND(sums, Z3D_F32, 5, 2), STATE(state);
    WITHIN(logits, 2e-6, 1e-8);
}

static void allow_loss_sum(maker *m, const int64_t *s, check_array *a) {
    slack(m, a->data)[offsetof(z3d_step_state, loss_sum) / 8] = 1e-12 * (double)s[ROWS];
}

static const shape losses[] = {{1, 9}, {33, 9}, {2100, 9}};

KERNEL(cross_entropy_loss, losses, 1, .rows = s[ROWS]) {
    AROUND(sums, Z3D_F32, 5, 2), CHANGED(targets, Z3D_I32, 0, set_targets);
    operand(m, &k->state, Z3D_F64, (content){.from = &m->state, .change = allow_loss_sum});
}

/* ---- a step's end, and a run's beginning ---- */

/* The gradient in three types; an overflow, when nothing may change; the parameter apart, none, or
 * the master itself. */
#define UPDATE_FORMS (m->type == Z3D_F32 ? 18 : 12)
#define UPDATE                                                                                     \
    .count = s[ROWS], .decayed = form / 3 % 2 ? s[ROWS] : s[ROWS] / 2 + 3, .dtype = m->type,       \
    .gradient_dtype = types[form % 3], .constants = {0.9f,                                         \
                                                     0.95f,                                        \
                                                     1e-8f,                                        \
                                                     .momentum = 0.8f,                             \
                                                     .weight_decay = 0.1f,                         \
                                                     .lr_scale = 0.7f,                             \
                                                     .ema_decay = 0.9f}

KERNEL(sgd, lines, UPDATE_FORMS, UPDATE) {
    F(master), AROUND(momentum, Z3D_F32, 0, 0.1), G(gradient), STATE(state);
    WITHIN(master, 1e-6, 1e-8), WITHIN(momentum, 1e-6, 1e-8);
    if (form / 6 == 0) T(parameter), WITHIN(parameter, 1e-6, 1e-8);
    if (form / 6 == 2) IN_PLACE(parameter, master);
    m->state.skip = (float)(form / 3 % 2), m->state.optimizer_step = s[ROWS];
}

KERNEL(adamw, lines, UPDATE_FORMS, UPDATE) {
    sgd_operands(m, k, s, form);
    AROUND(variance, Z3D_F32, 1, 0.03), WITHIN(variance, 1e-6, 1e-8);
    if (form % 2) F(ema), WITHIN(ema, 1e-6, 1e-8);
}

KERNEL(adam, lines, UPDATE_FORMS, UPDATE) {
    adamw_operands(m, k, s, form);
}

/* A moment of two bytes may be rounded the other way where its last bits differ. */
KERNEL(adamw_bf16, lines, UPDATE_FORMS, UPDATE,
       .place = {.key = 77, .first = 3, .local = 5, .global = 9, .inner = 7, .offset = 2}) {
    F(master), AROUND(moments, Z3D_BF16, 0.06, 0.03), G(gradient), STATE(state);
    WITHIN(master, 1e-6, 1e-8), WITHIN(moments, m->gpu ? 0.01 : 0, 0);
    if (form / 6 == 0) T(parameter), WITHIN(parameter, 1e-6, 1e-8);
    if (form / 6 == 2) IN_PLACE(parameter, master);
    m->state.skip = (float)(form / 3 % 2), m->state.optimizer_step = s[ROWS];
}

KERNEL(adam_bf16, lines, UPDATE_FORMS, UPDATE,
       .place = {.key = 78, .local = 1, .global = 1, .inner = 100}) {
    adamw_bf16_operands(m, k, s, form);
}

KERNEL(lion, lines, UPDATE_FORMS, UPDATE) {
    sgd_operands(m, k, s, form);
}

KERNEL(adagrad, lines, UPDATE_FORMS, UPDATE) {
    F(master), AROUND(square_sum, Z3D_F32, 1, 0.03), G(gradient), STATE(state);
    WITHIN(master, 1e-6, 1e-8), WITHIN(square_sum, 1e-6, 1e-8);
    if (form / 6 == 0) T(parameter), WITHIN(parameter, 1e-6, 1e-8);
    if (form / 6 == 2) IN_PLACE(parameter, master);
    m->state.skip = (float)(form / 3 % 2), m->state.optimizer_step = s[ROWS];
}

static const shape squares[] = {{1}, {7}, {300}, {4096}, {9001}};

KERNEL(sum_squares, squares, 4, .count = s[ROWS], .dtype = m->type) {
    static const double before = 2.5;
    static const double ends[] = {0.5, INFINITY, NAN, 65504}, most = 3.3e38;
    SPECIAL(form == 3 && m->type != Z3D_F16 ? &most : &ends[form], 1);
    CHANGED(x, m->type, 1, set_special), FROM(out, Z3D_F64, &before), WITHIN(out, 1e-13, 0);
}

static const shape controls[] = {{7}};

KERNEL(control_begin, controls, 2, .count = s[ROWS], .counts = form) {
    STATE(state), AROUND(control, Z3D_F64, 0, 1);
}

static const double clipping[] = {0, 0.4, 1e9};

KERNEL(control_end, controls, 9, .count = s[ROWS], .clipping = clipping[form / 3]) {
    static const double sums[][7] = {{1, 2, 1, 0, 0.1, 1e15, 1.7},
                                     {1, 2, 1, 0, 0.1, 1e15, INFINITY},
                                     {1, 2, 1, 0, 0.1, 1e15, NAN}};
    STATE(state), FROM(control, Z3D_F64, sums[form % 3]);
}

/* A part of a split parameter, and some elements within one. */
static const shape drawn[] = {{804}, {37, 0, 0, 101}};

KERNEL(init_normal, drawn, 2, .count = s[ROWS],
       .place = {.key = z3d_key(5, "some.weight"),
                 .first = s[FIRST],
                 .local = 4,
                 .global = 8,
                 .inner = 67,
                 .offset = form ? 0 : 4},
       .standard_deviation = form ? 1 : 0.02f) {
    F(x), WITHIN(x, 0, 0);
}

/* ---- attention ---- */

enum { BATCH, SEQ, HEAD_DIM = HEADS + 1, KV_HEADS, WINDOW, DOCUMENT, ATTENTION };

/* Batch, rows, heads, their width; heads of keys and values (0: as many); window (0: all keys);
 * rows of a sample's first document (0: one document). */
typedef int64_t attention_shape[ATTENTION];

static int64_t kv_heads(const int64_t *s) {
    return s[KV_HEADS] ? s[KV_HEADS] : s[HEADS];
}

#define HEADS_OF(s, q, kv)                                                                         \
    .batch = (s)[BATCH], .seq = (s)[SEQ], .heads = (s)[HEADS], .kv_heads = kv_heads(s),            \
    .head_dim = (s)[HEAD_DIM], .window = (s)[WINDOW], .q_stride = (q), .kv_stride = (kv),          \
    .dtype = m->type

/* Scores of hundreds, the largest in a later tile: exponentials overflow unless the maximum so far
 * is taken off. */
static void set_large(maker *m, const int64_t *s, check_array *a) {
    const int64_t d = s[HEAD_DIM];
    for (int64_t i = 0; i < s[SEQ] * d; i++) {
        int64_t t = i / d, at = t * 3 * d + i % d;
        check_set_number(a->data, m->type, at, 20);
        check_set_number(a->data, m->type, at + d, (double)(t * 7 % 13) / 4 + 0.01 * (double)t);
    }
}

/* One query, whose row, and no other, is not finite. */
static void set_infinity(maker *m, const int64_t *s, check_array *a) {
    check_set_number(a->data, m->type, 66 * 3 * s[HEAD_DIM] + 3, INFINITY);
}

/* What is allowed beside the slack is fp32's. For libraries: numbers of up to 1 in 64 columns: a
 * score's sum of products is off by at most 64 x 2^-24 of 64 x 0.25 (their mean size), after the
 * scale by 2^-17, and so is the exponential, relatively; two implementations by twice that. What is
 * added up then is at most 2. */
static void use_attention(maker *m, const z3d_attention_forward *f, const z3d_attention_backward *g,
                          const void *result, double host) {
    allow(m, result, 0, m->gpu ? fmax(host, 0x1p-15) : host);
    check_attention_slack(f, g, slack(m, result));
    m->use(m->argument, &m->c);
    drop(m);
}

/* Documents of n, 1, 2n, 1, 3n rows and so on; a sample's last one is cut. */
static void set_documents(maker *m, const int64_t *s, check_array *a) {
    (void)m;
    int64_t length = s[DOCUMENT], position = 0;
    for (int64_t i = 0; i < a->count; i++, position++) {
        if (i % s[SEQ] == 0) length = s[DOCUMENT], position = 0;
        if (position == length) length = length > 1 ? 1 : (i % s[SEQ]) + 1, position = 0;
        ((int32_t *)a->data)[i] = (int32_t)position;
    }
}

/* Queries, keys and values beside each other in each row. Backward reads what the cpu's forward
 * leaves. */
static void attend(maker *m, const int64_t *s, float p, filler *special, bool backward) {
    z3d_attention_backward *k = begin(m, Z3D_KERNEL_attention_backward);
    const int64_t stride = (s[HEADS] + 2 * kv_heads(s)) * s[HEAD_DIM];
    const int64_t size = s[HEAD_DIM] * (int64_t)z3d_dtype_size(m->type);
    const z3d_dropout dropout = {.p = p, .site = 5, .sample = 3};
    SET(*k, HEADS_OF(s, stride, stride), .first_head = 4, .dropout = dropout);
    CHANGED(q, m->type, 1, special), T(out), T(dout), F(log_sum_exp), T(dq);
    if (s[DOCUMENT] > 0) CHANGED(row_position, Z3D_I32, 0, set_documents);
    if (p > 0) STATE(dropout.state);
    k->k = (const char *)k->q + s[HEADS] * size, k->v = (const char *)k->k + kv_heads(s) * size;
    k->dk = (char *)k->dq + s[HEADS] * size, k->dv = (char *)k->dk + kv_heads(s) * size;
    make(m, s);
    const z3d_attention_backward g = *k;
    z3d_attention_forward f;
    SET(f, HEADS_OF(s, stride, stride), .first_head = 4, .capacity = s[SEQ], .dropout = g.dropout,
        .row_position = g.row_position, .q = g.q, .k = g.k, .v = g.v,
        .out = array_of(m, g.out)->data, .log_sum_exp = array_of(m, g.log_sum_exp)->data);
    m->c.kernel = (z3d_kernel){.kind = Z3D_KERNEL_attention_forward, .as.attention_forward = f};
    allow(m, f.log_sum_exp, 2e-6, m->gpu ? 1e-4 : 2e-6);
    if (special == set_infinity) slack(m, f.log_sum_exp);
    if (!backward) {
        use_attention(m, &f, NULL, f.out, special == set_large ? 2e-4 : 1e-6);
        return;
    }
    check_launch_cpu(m->cpu, &m->c.kernel);
    m->c.kernel = (z3d_kernel){.kind = Z3D_KERNEL_attention_backward, .as.attention_backward = g};
    use_attention(m, &f, &g, g.dq, 4e-6);
}

/* Some rows of each sample at other positions, against a cache: NaN behind a sample's last row.
 * Rows that a full cache does not have may be anything, but spoil no others. */
static void attend_cache(maker *m, const int64_t *s, int64_t capacity, const int32_t *starts) {
    const int64_t width = s[HEADS] * s[HEAD_DIM], columns = kv_heads(s) * s[HEAD_DIM];
    z3d_attention_forward *k = begin(m, Z3D_KERNEL_attention_forward);
    SET(*k, HEADS_OF(s, width, columns), .capacity = capacity);
    FROM(starts, Z3D_I32, starts), T(q), T(out), T(k), T(v);
    make(m, s);
    for (int64_t b = 0; b < s[BATCH]; b++) {
        for (int64_t i = (starts[b] + s[SEQ]) * columns; i < capacity * columns; i++) {
            check_set_number(array_of(m, k->k)->data, m->type, b * capacity * columns + i, NAN);
            check_set_number(array_of(m, k->v)->data, m->type, b * capacity * columns + i, NAN);
        }
        for (int64_t i = (capacity - starts[b]) * width; i < s[SEQ] * width; i++)
            slack(m, k->out)[b * s[SEQ] * width + i] = INFINITY;
    }
    use_attention(m, k, NULL, k->out, 1e-6);
}

/* Parts of a tile, more than one, heads that fill none. Heads that are no multiple of 8 are read
 * element by element; those wider than 128 take two blocks for a tile's results. Grouped heads,
 * windows, packed documents. */
static void attend_all(maker *m, bool backward) {
    static const attention_shape plain[] = {{1, 1, 1, 8},
                                            {1, 67, 1, 64},
                                            {1, 128, 2, 64},
                                            {2, 5, 1, 8},
                                            {1, 5, 3, 7},
                                            {1, 18, 2, 251, 1},
                                            {1, 67, 4, 8, 2},
                                            {1, 140, 2, 8, 1, 5},
                                            {1, 140, 1, 16, 1, 70},
                                            {2, 40, 4, 7, 2, 33},
                                            {2, 72, 4, 16, 2},
                                            {2, 72, 4, 16, 2, 30},
                                            {1, 140, 1, 8, 1, 0, 9},
                                            {2, 70, 2, 7, 1, 11, 20}};
    static const attention_shape with_dropout[] = {
        {1, 7, 2, 16},  {1, 17, 1, 72},      {1, 128, 2, 64},       {1, 67, 1, 13},
        {1, 3, 1, 136}, {2, 17, 3, 8, 1, 4}, {2, 40, 2, 8, 1, 0, 9}};
    for (int i = 0; i < COUNT(plain); i++) attend(m, plain[i], 0, NULL, backward);
    for (int i = 0; i < COUNT(with_dropout); i++) attend(m, with_dropout[i], 0.3f, NULL, backward);
}

static void attention_forward(maker *m) {
    static const attention_shape large = {1, 80, 1, 16}, infinite = {1, 70, 1, 8};
    /* The call's rows: 1 and 2 by chunks of a cache, of which 300 rows take two, more by tiles. */
    static const attention_shape cached[] = {
        {3, 1, 4, 8, 2}, {3, 1, 2, 16, 1, 40}, {3, 2, 2, 72, 1},    {3, 1, 1, 136},
        {3, 20, 2, 8},   {3, 20, 2, 8, 2, 3},  {3, 20, 3, 7, 1, 40}};
    static const attention_shape full[] = {
        {1, 9, 1, 8}, {1, 9, 1, 7}, {1, 9, 1, 8, 1, 2}, {1, 9, 1, 7, 1, 2}};
    static const int32_t starts[] = {0, 63, 280}, last[] = {66};
    attend_all(m, false);
    attend(m, large, 0, set_large, false);
    attend(m, infinite, 0, set_infinity, false);
    for (int i = 0; i < COUNT(cached); i++) attend_cache(m, cached[i], 300, starts);
    for (int i = 0; i < COUNT(full); i++) attend_cache(m, full[i], 70, last);
}

static void attention_backward(maker *m) {
    attend_all(m, true);
}

void check_each_case(z3d_dtype type, bool gpu, z3d_device *cpu,
                     void (*use)(void *argument, const check_case *c), void *argument) {
    maker m = {.type = type, .gpu = gpu, .cpu = cpu, .random = 1, .use = use, .argument = argument};
#define X(name, type) name(&m);
    Z3D_KERNEL_MAP(X)
#undef X
}
