/* Fits the few free constants to the points marked PAPER_FITTED. The search is in the unit cube of
 * the bounds, and begins again around the best point. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/plan/calibrate/simplex.h"
#include "src/plan/paper/paper.h"

/* Unpublished properties of the paper's machine and its software of 2019. Equal bounds: not fitted,
 * because an earlier fit ended at this limit of plausible values. */
static const struct constant {
    const char *path;
    double low, high;
} constants[] = {
    {"software.overlap", 0, 1},
    {"software.allocator_ms", 0, 100},
    {"device.overhead_gb", 2.6, 4.1},
    {"device.gemm_efficiency", 0.4, 0.95},
    {"device.gemm_half", 32, 32},
    {"device.memory_efficiency", 0.9, 0.9},
    {"device.attention_efficiency", 0.05, 0.6},
    {"device.launch_us", 2, 50},
    {"node.link_efficiency", 0.9, 0.9},
    {"node.link_latency_us", 1, 1},
    {"node.network_efficiency", 0.36, 0.36},
    {"node.network_latency_us", 30, 30},
};
enum { CONSTANTS = sizeof constants / sizeof *constants };

static bool is_fitted(int constant) {
    return constants[constant].low < constants[constant].high;
}

int z3d_paper_constants(void) {
    int fitted = 0;
    for (int c = 0; c < CONSTANTS; c++) fitted += is_fitted(c);
    return fitted;
}

/* A row after its run on the sim device. */
typedef struct run {
    const z3d_paper_row *row;
    z3d_case *of;         /* fitted rows only */
    z3d_memory_need need; /* on the first machine; later only the overhead differs */
} run;

typedef struct search {
    z3d_hardware machine;
    run *run;
    int runs;
    z3d_status status;
} search;

/* x: the fitted constants, in their order. */
static z3d_hardware at_point(const search *s, const double *x) {
    z3d_hardware hardware = s->machine;
    for (int c = 0; c < CONSTANTS; c++) {
        const double share = is_fitted(c) ? fmin(1, fmax(0, *x)) : 0;
        *z3d_hardware_number(&hardware, constants[c].path) =
            constants[c].low + share * (constants[c].high - constants[c].low);
        x += is_fitted(c);
    }
    return hardware;
}

/* GB that a row misses to fit, or not to fit, as published. */
static double misfit(const run *r, const z3d_hardware *hardware) {
    if (!(r->row->shows & PAPER_FITS)) return 0;
    double free = (r->need.free + r->need.overhead) * 1e-9 - hardware->overhead_gb;
    const double margin = 0.05;
    if (r->row->fits) return free < margin ? margin - free : 0;
    return free > -margin ? free + margin : 0;
}

static double error_of(search *s, const run *r, const z3d_hardware *hardware, int *count) {
    z3d_estimate e;
    if (!r->of || s->status != Z3D_OK) return 0;
    s->status = z3d_paper_estimate(r->row, r->of, hardware, &e);
    if (s->status != Z3D_OK) return 0;
    double sum = 0;
    if (r->row->shows & PAPER_SPEED) {
        sum += pow(log(e.tflops_96 / r->row->speed), 2);
        ++*count;
    }
    if (r->row->shows & PAPER_MEMORY) {
        double ours = ((double)e.memory.arena + e.memory.overhead) * 1e-9;
        sum += pow(log(ours / r->row->memory), 2);
        ++*count;
    }
    return sum;
}

/* The root of the mean squared log error, plus penalties for misfits and for leaving the bounds. */
static double objective(void *context, const double *x) {
    search *s = context;
    z3d_hardware hardware = at_point(s, x);
    double sum = 0, outside = 0;
    int count = 0;
    for (int r = 0; r < s->runs; r++) {
        sum += error_of(s, &s->run[r], &hardware, &count);
        outside += misfit(&s->run[r], &hardware);
    }
    for (int c = 0; c < z3d_paper_constants(); c++) outside += fmax(0, -x[c]) + fmax(0, x[c] - 1);
    return (count > 0 ? sqrt(sum / count) : 0) + outside;
}

/* ---- rows ---- */

static z3d_status prepare(search *s) {
    Z3D_TRY(z3d_new((size_t)z3d_paper_row_count, sizeof *s->run, "calibration", &s->run));
    for (int i = 0; i < z3d_paper_row_count; i++) {
        const z3d_paper_row *row = &z3d_paper_rows[i];
        run *r = &s->run[s->runs++];
        z3d_estimate e;
        r->row = row;
        Z3D_TRY(z3d_paper_case(row, 0, &r->of));
        Z3D_TRY(z3d_paper_estimate(row, r->of, &s->machine, &e));
        r->need = e.memory;
        if (row->shows & PAPER_FITTED) continue;
        z3d_case_destroy(r->of);
        r->of = NULL;
    }
    return Z3D_OK;
}

z3d_status z3d_paper_calibrate(z3d_hardware *hardware, int rounds, double *before, double *after) {
    enum { STEPS = 400 };
    search s = {.machine = *hardware};
    double x[CONSTANTS], *at = x;
    for (int c = 0; c < CONSTANTS; c++) {
        if (!is_fitted(c)) continue;
        double value = *z3d_hardware_number(hardware, constants[c].path);
        const double share = (value - constants[c].low) / (constants[c].high - constants[c].low);
        *at++ = fmin(1, fmax(0, share));
    }
    s.status = prepare(&s);
    if (s.status == Z3D_OK) {
        *before = objective(&s, x);
        const z3d_minimum of = {z3d_paper_constants(), objective, &s};
        for (int round = 0; round < rounds && s.status == Z3D_OK; round++)
            *after = z3d_simplex(&of, x, round % 2 == 0 ? 0.3 : 0.1, STEPS);
        *hardware = at_point(&s, x);
    }
    for (int r = 0; r < s.runs; r++) z3d_case_destroy(s.run[r].of);
    free(s.run);
    return s.status;
}

/* Rounds values to the four digits in the file, so that the file gives the published results. */
static void write_section(const z3d_hardware *hardware, const char *section, z3d_string *out) {
    z3d_hardware copy = *hardware;
    const size_t length = strlen(section);
    for (int c = 0; c < CONSTANTS; c++) {
        double low, high;
        const char *meaning = "";
        if (strncmp(constants[c].path, section, length) != 0) continue;
        z3d_hardware_describe(constants[c].path, &low, &high, &meaning);
        z3d_string_append(out, "  # %s; ", meaning);
        if (is_fitted(c))
            z3d_string_append(out, "fitted, from %g to %g\n", constants[c].low, constants[c].high);
        else
            z3d_string_append(out, "as far as such machines go\n");
        z3d_string_append(out, "  %s: %.4g\n", constants[c].path + length + 1,
                          *z3d_hardware_number(&copy, constants[c].path));
    }
}

void z3d_paper_write_calibration(const z3d_hardware *hardware, z3d_string *out) {
    z3d_string_append(
        out,
        "%sreproduce --calibrate`: what the runs of the ZeRO paper (arXiv\n"
        "# 1910.02054) reached. %d numbers are fitted, on the points that src/plan/paper/rows.c "
        "marks as fitted; every\n"
        "# other published point is validation.\n"
        "software:\n"
        "  name: DeepSpeed and Megatron-LM of 2019\n"
        "  # checkpoints are copied to the host before the next layer runs: assumption\n"
        "  copy_overlap: 0\n",
        z3d_output_software.begins, z3d_paper_constants());
    write_section(hardware, "software", out);
    z3d_string_append(out, "device:\n");
    write_section(hardware, "device", out);
    z3d_string_append(out, "node:\n");
    write_section(hardware, "node", out);
    z3d_string_append(out, "compared:\n  device: ");
    z3d_string_append_json(out, hardware->device);
    z3d_string_append(out,
                      "\n  nodes_runs: %g\n  nodes_low: %.2f\n  nodes_high: %.2f\n"
                      "  nodes_ranks_least: %g\n  nodes_ranks_most: %g\n"
                      "  nodes_billions_least: %g\n  nodes_billions_most: %g\n"
                      "  stage: %g\n  offload: %g\n",
                      hardware->nodes_runs, hardware->nodes_low, hardware->nodes_high,
                      hardware->nodes_ranks_least, hardware->nodes_ranks_most,
                      hardware->nodes_billions_least, hardware->nodes_billions_most,
                      hardware->compared_stage, hardware->compared_offload);
}
