/* Speed curves from samples: fits a line through the logarithms of time and size; nearer samples
 * have more weight (locally weighted regression; Cleveland, 1979). */
#include "src/device/sim/measured.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIZES = Z3D_MEASURED_SIZES, TERMS = SIZES + 1 };

/* ---- samples ---- */

static bool is_attention(int of) {
    return of == Z3D_KERNEL_attention_forward || of == Z3D_KERNEL_attention_backward;
}

z3d_sample z3d_sample_of_kernel(const z3d_event *kernel) {
    z3d_sample sample = {.of = kernel->of,
                         .dtype = kernel->dtype,
                         .form = kernel->form,
                         .size = {(double)kernel->bytes, 1, 1},
                         .seconds = kernel->seconds};
    if (kernel->of == Z3D_KERNEL_gemm || is_attention(kernel->of)) {
        sample.size[0] = (double)kernel->m;
        sample.size[1] = (double)kernel->n;
        sample.size[2] = (double)kernel->k;
    }
    return sample;
}

static bool same_curve(const z3d_sample *a, const z3d_sample *b) {
    return a->of == b->of && a->dtype == b->dtype && a->form == b->form;
}

/* Distance of two sizes in octaves, the largest of the dimensions. */
static double apart(const z3d_sample *a, const z3d_sample *b) {
    double most = 0;
    for (int i = 0; i < SIZES; i++) most = fmax(most, fabs(log2(a->size[i] / b->size[i])));
    return most;
}

bool z3d_sample_same(const z3d_sample *a, const z3d_sample *b) {
    return same_curve(a, b) && apart(a, b) == 0;
}

z3d_status z3d_measured_add(z3d_measured *measured, const z3d_sample *sample) {
    const double close = 0.07; /* octaves: 5 % */
    for (int i = 0; i < measured->count; i++) {
        z3d_sample *other = &measured->sample[i];
        if (z3d_sample_same(other, sample)) other->seconds = fmin(other->seconds, sample->seconds);
        if (same_curve(other, sample) && apart(other, sample) < close) return Z3D_OK;
    }
    if (measured->count == Z3D_MEASURED_MOST)
        return Z3D_ERROR(Z3D_ERR_MEMORY, "too many measured sizes: at most %d", Z3D_MEASURED_MOST);
    measured->sample[measured->count++] = *sample;
    return Z3D_OK;
}

/* ---- curves ---- */

/* How time grows with each size if the samples do not show it. */
static double usual_growth(int of, int dimension) {
    return is_attention(of) && dimension == 1 ? 2 : 1;
}

/* Gaussian elimination of a positive definite system [TERMS][TERMS + 1]; returns the first
 * unknown. */
static double solve(double m[TERMS][TERMS + 1]) {
    for (int pivot = TERMS - 1; pivot > 0; pivot--)
        for (int row = 0; row < pivot; row++) {
            double factor = m[row][pivot] / m[pivot][pivot];
            for (int col = 0; col <= TERMS; col++) m[row][col] -= factor * m[pivot][col];
        }
    return m[0][TERMS] / m[0][0];
}

/* The line's value at `at`, over log(time) without the usual growth. */
static double line_at(const z3d_measured *measured, const z3d_sample *like, const double *at) {
    double m[TERMS][TERMS + 1] = {{0}}, weights = 0;
    for (int s = 0; s < measured->count; s++) {
        const z3d_sample *sample = &measured->sample[s];
        if (!same_curve(sample, like)) continue;
        double term[TERMS] = {1}, y = log(sample->seconds), square = 0;
        for (int i = 0; i < SIZES; i++) {
            double x = log(sample->size[i]);
            y -= usual_growth(like->of, i) * x;
            term[i + 1] = x - at[i];
            square += term[i + 1] * term[i + 1];
        }
        double weight = 1 / ((square + 0.01) * (square + 0.01));
        weights += weight;
        for (int row = 0; row < TERMS; row++) {
            for (int col = 0; col < TERMS; col++) m[row][col] += weight * term[row] * term[col];
            m[row][TERMS] += weight * term[row] * y;
        }
    }
    /* If samples are few: the usual growth. */
    for (int i = 1; i < TERMS; i++) m[i][i] += 1e-3 * weights;
    return solve(m);
}

/* Outside the range of the samples' sizes, time grows as usual from the nearest edge of the
 * range. */
static bool clamp_to_samples(const z3d_measured *measured, const z3d_sample *wanted, double *at) {
    double low[SIZES], high[SIZES] = {0};
    for (int i = 0; i < SIZES; i++) low[i] = INFINITY;
    for (int s = 0; s < measured->count; s++)
        for (int i = 0; i < SIZES && same_curve(&measured->sample[s], wanted); i++) {
            low[i] = fmin(low[i], measured->sample[s].size[i]);
            high[i] = fmax(high[i], measured->sample[s].size[i]);
        }
    const bool any = high[0] > 0;
    for (int i = 0; i < SIZES && any; i++)
        at[i] = log(fmin(fmax(wanted->size[i], low[i]), high[i]));
    return any;
}

double z3d_measured_seconds(const z3d_measured *measured, const z3d_sample *wanted) {
    double at[SIZES];
    if (!clamp_to_samples(measured, wanted, at)) return -1;
    double y = line_at(measured, wanted, at);
    for (int i = 0; i < SIZES; i++) y += usual_growth(wanted->of, i) * log(wanted->size[i]);
    return exp(y);
}

/* ---- names ---- */

static const char *name_of(int of) {
    static const char *const collectives[] = {
#define X(name) #name,
        Z3D_MEASURED_COLLECTIVES(X)
#undef X
    };
    return of < Z3D_KERNEL_COUNT ? z3d_kernel_name((z3d_kernel_kind)of)
                                 : collectives[of - Z3D_KERNEL_COUNT];
}

static const char *form_name(int of, int form) {
    static const char *const products[] = {"nn", "nt", "tn", "tt"};
    static const char *const others[] = {"plain", "random"};
    if (of == Z3D_KERNEL_gemm) return form < 4 ? products[form] : NULL;
    return form < 2 ? others[form] : NULL;
}

static int sizes_of(int of) {
    return of == Z3D_KERNEL_gemm || is_attention(of) ? SIZES : 1;
}

const char *z3d_sample_name(const z3d_sample *sample, char *buf, size_t size) {
    int used = snprintf(buf, size, "%s %s %s", name_of(sample->of),
                        form_name(sample->of, sample->form), z3d_dtype_name(sample->dtype));
    for (int i = 0; i < sizes_of(sample->of) && used > 0 && (size_t)used < size; i++)
        used += snprintf(buf + used, size - (size_t)used, "%c%.0f", i ? 'x' : ' ', sample->size[i]);
    return buf;
}

static bool find_name(const char *text, int *of) {
    for (*of = 0; *of < Z3D_MEASURED_COUNT; ++*of)
        if (strcmp(text, name_of(*of)) == 0) return true;
    return false;
}

static bool find_form(const char *text, int of, int *form) {
    const char *name;
    for (*form = 0; (name = form_name(of, *form)) != NULL; ++*form)
        if (strcmp(text, name) == 0) return true;
    return false;
}

static bool find_dtype(const char *text, z3d_dtype *dtype) {
    for (int d = 0; d < Z3D_DTYPE_COUNT; d++) {
        *dtype = (z3d_dtype)d;
        if (strcmp(text, z3d_dtype_name(*dtype)) == 0) return true;
    }
    return false;
}

z3d_status z3d_sample_parse(const char *name, z3d_sample *out) {
    char of[32], form[8], dtype[8], again[96];
    *out = (z3d_sample){.size = {1, 1, 1}};
    double *size = out->size;
    int read =
        sscanf(name, "%31s %7s %7s %lfx%lfx%lf", of, form, dtype, &size[0], &size[1], &size[2]);
    bool good = read >= 4 && find_name(of, &out->of) && find_form(form, out->of, &out->form) &&
                find_dtype(dtype, &out->dtype);
    for (int i = 0; i < SIZES && good; i++) good = size[i] >= 1 && size[i] <= 1e15;
    if (good && strcmp(z3d_sample_name(out, again, sizeof again), name) == 0) return Z3D_OK;
    return Z3D_ERROR(
        Z3D_ERR_CONFIG,
        "'%.60s' is not a measured size: expected NAME FORM TYPE SIZES, as in \"gemm nt fp32 "
        "512x384x384\" or \"adamw plain fp32 1048576\"",
        name);
}
