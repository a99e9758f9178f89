/* Fits the few free constants on a named part of the published points. The search is a simplex
 * (Nelder and Mead, 1965) in the unit cube that the bounds span, started anew around the best. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/plan/paper/paper.h"

/* Each is a property of that machine and its software of 2019 that nobody published. */
static const struct constant {
    const char *path;
    double low, high;
} constants[] = {
    {"device.overhead_gb", 2.6, 4.1},
    {"device.gemm_efficiency", 0.4, 0.95},
    {"device.gemm_half", 32, 512},
    {"device.memory_efficiency", 0.2, 0.9},
    {"device.attention_efficiency", 0.05, 0.6},
    {"device.launch_us", 2, 50},
    {"node.link_efficiency", 0.4, 0.9},
    {"node.link_latency_us", 1, 30},
    {"node.network_efficiency", 0.36, 0.5},
    {"node.network_latency_us", 30, 90},
    {"software.overlap", 0, 1},
    {"software.allocator_slowdown", 0, 1},
};
enum { CONSTANTS = sizeof constants / sizeof *constants };

/* A row that was run once on the sim device. */
typedef struct run {
    const z3d_paper_row *row;
    z3d_case *of;         /* fitted rows only */
    z3d_memory_need need; /* of the machine as it was at first: overhead is what varies */
} run;

typedef struct search {
    z3d_hardware machine;
    run *run;
    int runs;
    z3d_status status;
} search;

static z3d_hardware at_point(const search *s, const double *x) {
    z3d_hardware hardware = s->machine;
    for (int c = 0; c < CONSTANTS; c++) {
        double share = x[c] < 0 ? 0 : x[c] > 1 ? 1 : x[c];
        *z3d_hardware_number(&hardware, constants[c].path) =
            constants[c].low + share * (constants[c].high - constants[c].low);
    }
    return hardware;
}

/* How far a row is from fitting or not fitting as published, in GB. */
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

/* Root of the mean squared log error, plus what misfits and leaving the bounds cost. */
static double objective(search *s, const double *x) {
    z3d_hardware hardware = at_point(s, x);
    double sum = 0, outside = 0;
    int count = 0;
    for (int r = 0; r < s->runs; r++) {
        sum += error_of(s, &s->run[r], &hardware, &count);
        outside += misfit(&s->run[r], &hardware);
    }
    for (int c = 0; c < CONSTANTS; c++) outside += x[c] < 0 ? -x[c] : x[c] > 1 ? x[c] - 1 : 0;
    return (count > 0 ? sqrt(sum / count) : 0) + outside;
}

/* ---- the simplex ---- */

typedef struct simplex {
    double x[CONSTANTS + 1][CONSTANTS], value[CONSTANTS + 1];
    int best, worst, second;
} simplex;

static void rank_points(simplex *m) {
    m->best = m->worst = 0;
    for (int i = 1; i <= CONSTANTS; i++) {
        if (m->value[i] < m->value[m->best]) m->best = i;
        if (m->value[i] > m->value[m->worst]) m->worst = i;
    }
    m->second = m->best;
    for (int i = 0; i <= CONSTANTS; i++)
        if (i != m->worst && m->value[i] > m->value[m->second]) m->second = i;
}

/* Tries the point at centre + factor x (worst - centre) in place of the worst; its value. */
static double move(search *s, simplex *m, double factor) {
    double x[CONSTANTS];
    for (int c = 0; c < CONSTANTS; c++) {
        double centre = 0;
        for (int i = 0; i <= CONSTANTS; i++)
            if (i != m->worst) centre += m->x[i][c] / CONSTANTS;
        x[c] = centre + factor * (m->x[m->worst][c] - centre);
    }
    double value = objective(s, x);
    if (value < m->value[m->worst]) {
        memcpy(m->x[m->worst], x, sizeof x);
        m->value[m->worst] = value;
    }
    return value;
}

static void shrink(search *s, simplex *m) {
    for (int i = 0; i <= CONSTANTS; i++) {
        if (i == m->best) continue;
        for (int c = 0; c < CONSTANTS; c++) m->x[i][c] = 0.5 * (m->x[i][c] + m->x[m->best][c]);
        m->value[i] = objective(s, m->x[i]);
    }
}

static double minimise(search *s, double *x, double size, int steps) {
    simplex m;
    for (int i = 0; i <= CONSTANTS; i++) {
        memcpy(m.x[i], x, sizeof m.x[i]);
        if (i < CONSTANTS) m.x[i][i] += m.x[i][i] > 0.5 ? -size : size;
        m.value[i] = objective(s, m.x[i]);
    }
    for (int step = 0; step < steps && s->status == Z3D_OK; step++) {
        rank_points(&m);
        if (m.value[m.worst] - m.value[m.best] < 1e-6) break;
        double reflected = move(s, &m, -1);
        if (reflected < m.value[m.best]) {
            move(s, &m, 2);
        } else if (reflected >= m.value[m.second]) {
            double before = m.value[m.worst];
            if (move(s, &m, 0.5) >= before) shrink(s, &m);
        }
    }
    rank_points(&m);
    memcpy(x, m.x[m.best], sizeof m.x[m.best]);
    return m.value[m.best];
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
    double x[CONSTANTS];
    for (int c = 0; c < CONSTANTS; c++) {
        double value = *z3d_hardware_number(hardware, constants[c].path);
        x[c] = (value - constants[c].low) / (constants[c].high - constants[c].low);
        x[c] = x[c] < 0 ? 0 : x[c] > 1 ? 1 : x[c];
    }
    s.status = prepare(&s);
    if (s.status == Z3D_OK) {
        *before = objective(&s, x);
        for (int round = 0; round < rounds; round++)
            *after = minimise(&s, x, round % 2 == 0 ? 0.3 : 0.1, STEPS);
        *hardware = at_point(&s, x);
    }
    for (int r = 0; r < s.runs; r++) z3d_case_destroy(s.run[r].of);
    free(s.run);
    return s.status;
}

/* Values as they are written: four digits, so that the file is what the numbers come from. */
static void write_section(const z3d_hardware *hardware, const char *section, z3d_string *out) {
    z3d_hardware copy = *hardware;
    size_t length = strlen(section);
    z3d_string_append(out, "%s:\n", section);
    for (int c = 0; c < CONSTANTS; c++) {
        double low, high;
        const char *meaning = "";
        if (strncmp(constants[c].path, section, length) != 0) continue;
        z3d_hardware_describe(constants[c].path, &low, &high, &meaning);
        z3d_string_append(out, "  # %s; from %g to %g\n  %s: %.4g\n", meaning, constants[c].low,
                          constants[c].high, constants[c].path + length + 1,
                          *z3d_hardware_number(&copy, constants[c].path));
    }
}

void z3d_paper_write_calibration(const z3d_hardware *hardware, z3d_string *out) {
    z3d_string_append(
        out,
        "%sfitted on the points\n# that src/plan/paper/rows.c marks as fitted; every other "
        "published point is validation. They replace the\n# numbers of the same name in "
        "configs/hardware/dgx2-v100.yaml.\n",
        z3d_output_calibration.begins);
    write_section(hardware, "device", out);
    write_section(hardware, "node", out);
    write_section(hardware, "software", out);
}
