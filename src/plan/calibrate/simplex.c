#include "src/plan/calibrate/simplex.h"

#include <string.h>

enum { MOST = Z3D_SIMPLEX_MOST };

typedef struct simplex {
    const z3d_minimum *of;
    double x[MOST + 1][MOST], value[MOST + 1];
    int best, worst, second;
} simplex;

static double value_at(const simplex *m, const double *x) {
    return m->of->value(m->of->context, x);
}

static void rank_points(simplex *m) {
    m->best = m->worst = 0;
    for (int i = 1; i <= m->of->count; i++) {
        if (m->value[i] < m->value[m->best]) m->best = i;
        if (m->value[i] > m->value[m->worst]) m->worst = i;
    }
    m->second = m->best;
    for (int i = 0; i <= m->of->count; i++)
        if (i != m->worst && m->value[i] > m->value[m->second]) m->second = i;
}

/* Tries the point centre + factor x (worst - centre) in place of the worst point; returns its
 * value. */
static double move(simplex *m, double factor) {
    const int count = m->of->count;
    double x[MOST];
    for (int c = 0; c < count; c++) {
        double centre = 0;
        for (int i = 0; i <= count; i++)
            if (i != m->worst) centre += m->x[i][c] / count;
        x[c] = centre + factor * (m->x[m->worst][c] - centre);
    }
    double value = value_at(m, x);
    if (value < m->value[m->worst]) {
        memcpy(m->x[m->worst], x, (size_t)count * sizeof *x);
        m->value[m->worst] = value;
    }
    return value;
}

static void shrink(simplex *m) {
    for (int i = 0; i <= m->of->count; i++) {
        if (i == m->best) continue;
        for (int c = 0; c < m->of->count; c++) m->x[i][c] = 0.5 * (m->x[i][c] + m->x[m->best][c]);
        m->value[i] = value_at(m, m->x[i]);
    }
}

double z3d_simplex(const z3d_minimum *of, double *x, double size, int steps) {
    simplex m = {.of = of};
    const size_t bytes = (size_t)of->count * sizeof *x;
    for (int i = 0; i <= of->count; i++) {
        memcpy(m.x[i], x, bytes);
        if (i < of->count) m.x[i][i] += m.x[i][i] > 0.5 ? -size : size;
        m.value[i] = value_at(&m, m.x[i]);
    }
    for (int step = 0; step < steps; step++) {
        rank_points(&m);
        if (m.value[m.worst] - m.value[m.best] < 1e-6) break;
        double reflected = move(&m, -1);
        if (reflected < m.value[m.best]) {
            move(&m, 2);
        } else if (reflected >= m.value[m.second]) {
            double before = m.value[m.worst];
            if (move(&m, 0.5) >= before) shrink(&m);
        }
    }
    rank_points(&m);
    memcpy(x, m.x[m.best], bytes);
    return m.value[m.best];
}
