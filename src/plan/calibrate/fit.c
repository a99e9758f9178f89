/* Fits what software reaches on measured steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/plan/calibrate/calibrate.h"
#include "src/plan/calibrate/simplex.h"
#include "src/plan/price/accuracy.h"

/* What may be fitted, in the order of its weight: the speed of products, the host, the links. */
static const struct number {
    const char *path;
    double low, high;
} numbers[] = {{"device.gemm_efficiency", 0.05, 1},
               {"software.launch_us", 0.5, 1000},
               {"node.link_efficiency", 0.02, 1},
               {"node.network_efficiency", 0.02, 1}};

typedef struct fit {
    const z3d_measured_steps *steps;
    z3d_hardware hardware;
    int count, number[Z3D_CALIBRATED_MOST];
    int modulus, left_out; /* rows that it does not look at: index % modulus == left_out */
    z3d_status status;
} fit;

/* Measured over predicted seconds of a row, as a logarithm. */
static double error_of(fit *f, const z3d_hardware *hardware, int row) {
    const z3d_measured_step *step = &f->steps->step[row];
    z3d_estimate e;
    if (f->status == Z3D_OK) f->status = z3d_estimate_make(step->of, hardware, 0, NULL, &e);
    return f->status == Z3D_OK ? log(step->seconds / e.time.seconds) : 0;
}

static z3d_hardware at_point(const fit *f, const double *x) {
    z3d_hardware hardware = f->hardware;
    for (int i = 0; i < f->count; i++) {
        const struct number *n = &numbers[f->number[i]];
        const double share = fmin(1, fmax(0, x[i]));
        z3d_hardware_set(&hardware, n->path, n->low * pow(n->high / n->low, share));
    }
    return hardware;
}

/* The mean absolute error, plus what leaving the bounds costs. */
static double objective(void *context, const double *x) {
    fit *f = context;
    const z3d_hardware hardware = at_point(f, x);
    double sum = 0, outside = 0;
    int rows = 0;
    for (int row = 0; row < f->steps->count; row++) {
        if (row % f->modulus == f->left_out) continue;
        sum += fabs(error_of(f, &hardware, row));
        rows++;
    }
    for (int i = 0; i < f->count; i++) outside += fmax(0, -x[i]) + fmax(0, x[i] - 1);
    return sum / rows + outside;
}

/* left_out -1: fits on all rows. */
static z3d_hardware fit_rows(fit *f, int left_out) {
    enum { MOVES = 20 };
    double x[Z3D_SIMPLEX_MOST];
    const z3d_minimum of = {f->count, objective, f};
    f->modulus = 2;
    f->left_out = left_out;
    for (int i = 0; i < f->count; i++) {
        const struct number *n = &numbers[f->number[i]];
        const double value = *z3d_hardware_number(&f->hardware, n->path);
        x[i] = log(fmin(n->high, fmax(n->low, value)) / n->low) / log(n->high / n->low);
    }
    if (f->count > 0) z3d_simplex(&of, x, 0.15, MOVES * f->count);
    return at_point(f, x);
}

static bool has_nodes(const z3d_case *of, const z3d_hardware *hardware) {
    return z3d_mesh_size(&of->mesh, Z3D_AXES_WORLD) > hardware->devices;
}

/* Of a network only if there is one. */
static void list_numbers(fit *f) {
    bool nodes = false;
    for (int row = 0; row < f->steps->count; row++)
        nodes |= has_nodes(f->steps->step[row].of, &f->hardware);
    f->number[0] = 0, f->number[1] = 1, f->number[2] = nodes ? 3 : 2;
}

/* ---- how far predictions are ---- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The ratios' tenth and ninetieth percentile, between their neighbours in order; of fewer than
 * Z3D_COMPARED_FEW the first and the last. */
static void set_range(double *ratio, int count, double *runs, double *low, double *high) {
    *runs = count;
    *low = *high = 1;
    if (count == 0) return;
    qsort(ratio, (size_t)count, sizeof *ratio, by_value);
    for (int end = 0; end < 2; end++) {
        const double outside = count < Z3D_COMPARED_FEW ? 0 : 0.1;
        const double at = (end ? 1 - outside : outside) * (count - 1);
        const int below = (int)at, above = below + 1 < count ? below + 1 : below;
        *(end ? high : low) = ratio[below] + (at - below) * (ratio[above] - ratio[below]);
    }
}

static void say_range(const fit *f, const double *unseen, z3d_hardware *hardware) {
    double ratio[Z3D_STEPS_MOST];
    for (int nodes = 0; nodes < 2; nodes++) {
        int count = 0;
        for (int row = 0; row < f->steps->count; row++)
            if (has_nodes(f->steps->step[row].of, hardware) == nodes)
                ratio[count++] = exp(unseen[row]);
        if (nodes)
            set_range(ratio, count, &hardware->nodes_runs, &hardware->nodes_low,
                      &hardware->nodes_high);
        else
            set_range(ratio, count, &hardware->node_runs, &hardware->node_low,
                      &hardware->node_high);
    }
    memcpy(hardware->compared, hardware->device, sizeof hardware->compared);
}

/* Mean absolute error of the predicted times, from logarithms of measured over predicted ones. */
static double mean_error(const double *error, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++) sum += fabs(exp(-error[i]) - 1);
    return sum / count;
}

static void errors_of(fit *f, const z3d_hardware *hardware, int every, int first, double *out) {
    for (int row = first; row < f->steps->count; row += every)
        out[row] = error_of(f, hardware, row);
}

/* Each half of the rows with numbers fitted on the other. */
static double error_unseen(fit *f, double *unseen) {
    for (int half = 0; half < 2; half++) {
        const z3d_hardware fitted = fit_rows(f, half);
        errors_of(f, &fitted, 2, half, unseen);
    }
    return mean_error(unseen, f->steps->count);
}

/* As many numbers as predict unseen rows best, at most one for every four rows: few rows say
 * little, and a fit may follow one of them away from the others. */
static double choose_count(fit *f, double *unseen) {
    double best = INFINITY, error[Z3D_STEPS_MOST];
    int most = f->steps->count / 4, chosen = 0;
    if (most > Z3D_CALIBRATED_MOST) most = Z3D_CALIBRATED_MOST;
    for (f->count = 0; f->count <= most; f->count++) {
        const double mean = error_unseen(f, error);
        if (mean >= best) continue;
        best = mean;
        chosen = f->count;
        memcpy(unseen, error, (size_t)f->steps->count * sizeof *error);
    }
    f->count = chosen;
    return best;
}

z3d_status z3d_nearest_software(const z3d_measured_steps *steps, z3d_hardware *hardware,
                                const char **name) {
    fit f = {.steps = steps};
    const z3d_hardware machine = *hardware;
    double error[Z3D_STEPS_MOST], best = INFINITY;
    for (int i = 0; z3d_software_name(i); i++) {
        f.hardware = machine;
        Z3D_TRY(z3d_hardware_adjust(z3d_software_name(i), &f.hardware));
        errors_of(&f, &f.hardware, 1, 0, error);
        const double mean = mean_error(error, steps->count);
        if (mean >= best) continue;
        best = mean;
        *hardware = f.hardware;
        *name = z3d_software_name(i);
    }
    return f.status;
}

z3d_status z3d_calibrate(const z3d_measured_steps *steps, z3d_hardware *hardware,
                         z3d_calibration *out) {
    fit f = {.steps = steps, .hardware = *hardware};
    double error[Z3D_STEPS_MOST], unseen[Z3D_STEPS_MOST];
    if (steps->count < Z3D_STEPS_LEAST)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "%d measured steps are too few: give at least %d, of different sizes",
                         steps->count, Z3D_STEPS_LEAST);
    list_numbers(&f);
    *out = (z3d_calibration){.rows = steps->count};
    errors_of(&f, hardware, 1, 0, error);
    out->before = mean_error(error, steps->count);
    out->unseen = choose_count(&f, unseen);
    out->count = f.count;
    *hardware = fit_rows(&f, -1);
    errors_of(&f, hardware, 1, 0, error);
    out->fitted = mean_error(error, steps->count);
    say_range(&f, unseen, hardware);
    for (int i = 0; i < f.count; i++) {
        out->path[i] = numbers[f.number[i]].path;
        out->value[i] = *z3d_hardware_number(hardware, out->path[i]);
    }
    return f.status;
}

void z3d_calibration_print(const z3d_calibration *c, z3d_string *out) {
    z3d_string_append(out, "%d measured steps, %d fitted number%s%s\n", c->rows, c->count,
                      z3d_plural(c->count),
                      c->count ? "" : ": a fit predicts other steps no better");
    for (int i = 0; i < c->count; i++)
        z3d_string_append(out, "  %-26s %.4g\n", c->path[i], c->value[i]);
    z3d_string_append(
        out,
        "mean error of a step's predicted time\n"
        "  %5.1f %%  before\n"
        "  %5.1f %%  fitted on all steps\n"
        "  %5.1f %%  of steps that the fit did not use: each half, fitted on the other\n",
        100 * c->before, 100 * c->fitted, 100 * c->unseen);
}
