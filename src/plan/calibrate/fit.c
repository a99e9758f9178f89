/* Fits the numbers of a software description to measured steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/sort.h"
#include "src/plan/calibrate/calibrate.h"
#include "src/plan/calibrate/simplex.h"

/* Numbers that may be fitted, the most important first: the speed of products, the host, the links.
 * The first three on which enough rows depend are fitted. */
static const struct number {
    const char *path;
    double low, high;
} numbers[] = {{"device.gemm_efficiency", 0.05, 1},
               {"software.launch_us", 0.5, 1000},
               {"node.network_efficiency", 0.02, 1},
               {"node.link_efficiency", 0.02, 1}};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

typedef struct fit {
    const z3d_measured_steps *steps;
    z3d_hardware hardware;
    int most, count, number[Z3D_CALIBRATED_MOST]; /* most: candidates; count: fitted numbers */
    int modulus, left_out; /* the fit ignores rows with index % modulus == left_out */
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

/* The mean absolute error, plus a penalty outside the bounds. */
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

/* The number of rows whose time differs between the two bounds of the number. */
static int rows_of(fit *f, const struct number *n) {
    const double least = 0.01; /* of the time's logarithm: 1 % */
    int rows = 0;
    z3d_hardware low = f->hardware, high = f->hardware;
    z3d_hardware_set(&low, n->path, n->low);
    z3d_hardware_set(&high, n->path, n->high);
    for (int row = 0; row < f->steps->count; row++)
        rows += fabs(error_of(f, &low, row) - error_of(f, &high, row)) > least;
    return rows;
}

static void list_numbers(fit *f) {
    for (int i = 0; i < NUMBERS && f->most < Z3D_CALIBRATED_MOST; i++)
        if (rows_of(f, &numbers[i]) >= Z3D_STEPS_LEAST) f->number[f->most++] = i;
}

/* ---- errors of the predictions ---- */

/* The ratios' tenth and ninetieth percentile, interpolated; of fewer than Z3D_COMPARED_FEW ratios
 * the least and the largest. */
static void find_range(double *ratio, int count, double *low, double *high) {
    z3d_sort_numbers(ratio, (size_t)count);
    for (int end = 0; end < 2; end++) {
        const double outside = count < Z3D_COMPARED_FEW ? 0 : 0.1;
        const double at = (end ? 1 - outside : outside) * (count - 1);
        const int below = (int)at, above = below + 1 < count ? below + 1 : below;
        *(end ? high : low) = ratio[below] + (at - below) * (ratio[above] - ratio[below]);
    }
}

/* Sets the keys of one class. unseen: logarithms of measured over predicted time of rows that the
 * fit did not use. */
static void say_class(const fit *f, const double *unseen, bool nodes, z3d_hardware *hardware) {
    z3d_compared_class c = {.low = 1, .high = 1, .ranks_least = 1};
    double ratio[Z3D_STEPS_MOST], stage = 0, offload = 0;
    int count = 0;
    for (int row = 0; row < f->steps->count; row++) {
        const z3d_run_kind kind = z3d_case_kind(f->steps->step[row].of);
        const double billions = 1e-9 * kind.parameters;
        if ((kind.ranks > hardware->devices) != nodes) continue;
        c.ranks_least = count ? fmin(c.ranks_least, kind.ranks) : kind.ranks;
        c.ranks_most = fmax(c.ranks_most, kind.ranks);
        c.billions_least = count ? fmin(c.billions_least, billions) : billions;
        c.billions_most = fmax(c.billions_most, billions);
        stage = fmax(stage, kind.stage);
        offload = fmax(offload, kind.offload);
        ratio[count++] = exp(unseen[row]);
    }
    if (count >= Z3D_STEPS_LEAST) {
        c.runs = count;
        hardware->compared_stage = fmax(hardware->compared_stage, stage);
        hardware->compared_offload = fmax(hardware->compared_offload, offload);
        find_range(ratio, count, &c.low, &c.high);
    }
    z3d_compared_set(hardware, nodes, &c);
}

static void say_range(const fit *f, const double *unseen, z3d_hardware *hardware) {
    hardware->compared_stage = hardware->compared_offload = 0;
    say_class(f, unseen, false, hardware);
    say_class(f, unseen, true, hardware);
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

/* The mean error of each half of the rows, with numbers fitted on the other half. */
static double error_unseen(fit *f, double *unseen) {
    for (int half = 0; half < 2; half++) {
        const z3d_hardware fitted = fit_rows(f, half);
        errors_of(f, &fitted, 2, half, unseen);
    }
    return mean_error(unseen, f->steps->count);
}

/* Fits as many numbers as predict unseen rows best, at most one for every four rows, because with
 * few rows one odd row could spoil the fit. */
static double choose_count(fit *f, double *unseen) {
    double best = INFINITY, error[Z3D_STEPS_MOST];
    int most = f->steps->count / Z3D_STEPS_LEAST, chosen = 0;
    if (most > f->most) most = f->most;
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
        if (f.status != Z3D_OK || mean >= best) continue;
        best = mean;
        *hardware = f.hardware;
        *name = z3d_software_name(i);
    }
    return f.status;
}

/* Merges rows with equal prices of the device's work into one row with their mean time: they have
 * one configuration, or differ only in ways that a fit does not see. */
static z3d_status merge_alike(fit *f, z3d_measured_step *out, int *count) {
    double price[Z3D_STEPS_MOST];
    int alike[Z3D_STEPS_MOST];
    z3d_hardware device = f->hardware;
    device.host_launch_us = 0; /* a very slow host would make all small steps equal */
    for (int i = 0; i < f->steps->count; i++) {
        z3d_estimate e;
        int same = 0;
        Z3D_TRY(z3d_estimate_make(f->steps->step[i].of, &device, 0, NULL, &e));
        while (same < *count && price[same] != e.time.seconds) same++;
        if (same < *count) {
            out[same].seconds += (f->steps->step[i].seconds - out[same].seconds) / ++alike[same];
            continue;
        }
        price[same] = e.time.seconds;
        alike[same] = 1;
        out[(*count)++] = f->steps->step[i];
    }
    if (*count >= Z3D_STEPS_LEAST) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "%d measured steps of %d different configurations are too few: give at least "
                     "%d, of different sizes",
                     f->steps->count, *count, Z3D_STEPS_LEAST);
}

static z3d_status check_unseen(double error) {
    if (error <= 0.5) return Z3D_OK;
    return Z3D_ERROR(
        Z3D_ERR_CONFIG,
        "the times that a fit predicts for the other steps are %.3g %% off on average, "
        "more than 50 %%: see whether `seconds` has milliseconds, and whether the "
        "configuration is what was measured",
        100 * error);
}

static z3d_status fit_numbers(fit *f, z3d_hardware *hardware, z3d_calibration *out) {
    double error[Z3D_STEPS_MOST], unseen[Z3D_STEPS_MOST];
    list_numbers(f);
    errors_of(f, hardware, 1, 0, error);
    out->rows = f->steps->count;
    out->before = mean_error(error, out->rows);
    out->unseen = choose_count(f, unseen);
    Z3D_TRY(f->status);
    Z3D_TRY(check_unseen(out->unseen));
    out->count = f->count;
    *hardware = fit_rows(f, -1);
    errors_of(f, hardware, 1, 0, error);
    out->fitted = mean_error(error, out->rows);
    say_range(f, unseen, hardware);
    for (int i = 0; i < f->count; i++) {
        out->path[i] = numbers[f->number[i]].path;
        out->value[i] = *z3d_hardware_number(hardware, out->path[i]);
    }
    return f->status;
}

z3d_status z3d_calibrate(const z3d_measured_steps *steps, z3d_hardware *hardware,
                         z3d_calibration *out) {
    fit f = {.steps = steps, .hardware = *hardware};
    z3d_measured_steps different = {0};
    *out = (z3d_calibration){.steps = steps->count};
    Z3D_TRY(z3d_new((size_t)steps->count + 1, sizeof *different.step, "measured steps",
                    &different.step));
    z3d_status status = merge_alike(&f, different.step, &different.count);
    f.steps = &different;
    if (status == Z3D_OK) status = fit_numbers(&f, hardware, out);
    free(different.step);
    return status;
}

void z3d_calibration_print(const z3d_calibration *c, z3d_string *out) {
    z3d_string_append(out, "%d measured steps", c->steps);
    if (c->rows < c->steps) z3d_string_append(out, " of %d configurations", c->rows);
    z3d_string_append(out, ", %d fitted number%s%s\n", c->count, z3d_plural(c->count),
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
