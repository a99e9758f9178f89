/* Charts of a page. The page stretches a drawing to its width. So its lines are non-scaling
 * strokes, which keep their width, and its words are HTML on top of it, placed in percent. */
#include <math.h>
#include <stdio.h>

#include "src/base/page.h"

/* The drawing's own units. */
enum { WIDTH = 2000, HEIGHT = 1000, BUCKETS = 250, MARK = 60 };

double z3d_axis_step(double range, int parts) {
    double power = pow(10, floor(log10(range / parts))), share = range / parts / power;
    return power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
}

/* The range of an axis. */
typedef struct range {
    double low, high;
    bool any;
} range;

typedef struct drawing {
    const z3d_chart *chart;
    range x, y; /* y: its logarithm in a logarithmic chart */
    z3d_string *out;
} drawing;

static void widen(range *r, double value) {
    r->low = r->any ? fmin(r->low, value) : value;
    r->high = r->any ? fmax(r->high, value) : value;
    r->any = true;
}

/* The place of a value on the y axis; NAN: not drawn. Extreme values, for which ranges and ticks
 * would overflow, are not drawn either. */
static double level_of(const z3d_chart *chart, double y) {
    double level = chart->logarithmic ? log10(y) : y;
    return fabs(level) < 1e30 ? level : NAN;
}

static bool find_ranges(drawing *d) {
    const z3d_chart *chart = d->chart;
    for (int c = 0; c < chart->curves; c++)
        for (int64_t i = 0; i < chart->curve[c].count; i++) {
            double level = level_of(chart, chart->curve[c].y[i]);
            if (isnan(level)) continue;
            widen(&d->x, chart->curve[c].x[i]);
            widen(&d->y, level);
        }
    if (!d->y.any) return false;
    if (chart->from_zero) widen(&d->y, 0);
    double most = fmax(fabs(d->y.low), fabs(d->y.high)), room = 0.04 * (d->y.high - d->y.low);
    if (chart->logarithmic) most = fmax(most, 1);
    if (room < 1e-9 * most) room = 0.05 * most; /* else all ticks would be the same number */
    if (room < 1e-30) room = 1;
    d->y.high += room;
    if (!chart->from_zero) d->y.low -= room;
    if (d->x.high == d->x.low) d->x.high += 1;
    return true;
}

static double share_of(const range *r, double value) {
    return (value - r->low) / (r->high - r->low);
}

static int x_of(const drawing *d, double x) {
    return (int)lround(WIDTH * share_of(&d->x, x));
}

static int y_of(const drawing *d, double level) {
    return (int)lround(HEIGHT * (1 - share_of(&d->y, level)));
}

/* ---- axes ---- */

/* Large numbers with K, M, B. */
static const char *tick_name(double value, double step, char *text, size_t size) {
    static const char *const units[] = {"", " K", " M", " B", " T"};
    int unit = 0;
    if (fabs(value) < step * 1e-6) return "0";
    for (double top = fmax(fabs(value), step); top >= (unit ? 999.5 : 9999.5) && unit < 4;
         unit++, top /= 1000)
        value /= 1000;
    snprintf(text, size, "%.6g%s", value, units[unit]);
    return text;
}

static void draw_x_axis(const drawing *d, z3d_string *names) {
    double step = z3d_axis_step(d->x.high - d->x.low, 5);
    char text[32];
    for (double k = ceil(d->x.low / step); k * step <= d->x.high; k++)
        z3d_string_append(names, "<span class=\"x\" style=\"left:%.2f%%\">%s</span>\n",
                          100 * share_of(&d->x, k * step),
                          tick_name(k * step, step, text, sizeof text));
}

static void draw_level(const drawing *d, double level, const char *name, z3d_string *names) {
    z3d_string_append(d->out, "M0 %dh%d", y_of(d, level), WIDTH);
    z3d_string_append(names, "<span class=\"y\" style=\"top:%.2f%%\">%s</span>\n",
                      100 * (1 - share_of(&d->y, level)), name);
}

/* Ticks at powers of ten; over less than two powers also at 2 and 5 times. The range has at least
 * one power. */
static void draw_logarithmic_axis(const drawing *d, z3d_string *names) {
    static const double times[] = {1, 2, 5};
    int every = (int)ceil((d->y.high - d->y.low) / 6);
    char text[32];
    for (int power = (int)floor(d->y.low); power <= d->y.high; power++)
        for (int t = 0; t < (d->y.high - d->y.low < 2 ? 3 : 1); t++) {
            double level = power + log10(times[t]);
            if (level < d->y.low || level > d->y.high || power % every != 0) continue;
            snprintf(text, sizeof text, "%.3g", times[t] * pow(10, power));
            draw_level(d, level, text, names);
        }
}

static void draw_y_axis(const drawing *d, z3d_string *names) {
    const bool powers = d->chart->logarithmic;
    const double low = powers ? pow(10, d->y.low) : d->y.low;
    const double high = powers ? pow(10, d->y.high) : d->y.high;
    double step = z3d_axis_step(high - low, 5);
    char text[32];
    for (double k = ceil(low / step); k * step <= high; k++)
        draw_level(d, powers ? log10(k * step) : k * step,
                   tick_name(k * step, step, text, sizeof text), names);
}

/* ---- curves ---- */

/* One place of x: the points i of a curve, begin <= i < end, that have a level. */
typedef struct bucket {
    int64_t count;
    double x, sum;
    range level;
} bucket;

static bucket find_bucket(const drawing *d, const z3d_curve *curve, int64_t begin, int64_t end) {
    bucket b = {.count = 0};
    for (int64_t i = begin; i < end; i++) {
        double level = level_of(d->chart, curve->y[i]);
        if (isnan(level)) continue;
        b.x += curve->x[i];
        widen(&b.level, level);
        b.sum += level;
        b.count++;
    }
    if (b.count) b.x /= (double)b.count;
    return b;
}

static int64_t buckets_of(const z3d_curve *curve) {
    return curve->count > 2 * BUCKETS ? BUCKETS : curve->count;
}

static bucket bucket_of(const drawing *d, const z3d_curve *curve, int64_t b) {
    int64_t buckets = buckets_of(curve);
    return find_bucket(d, curve, b * curve->count / buckets, (b + 1) * curve->count / buckets);
}

/* The extent of a long curve, drawn under it: vertical strokes from the lowest to the highest value
 * of each bucket. */
static void draw_extent(const drawing *d, const z3d_curve *curve) {
    int64_t buckets = buckets_of(curve);
    if (buckets == curve->count) return;
    z3d_string_append(d->out, "<path class=\"extent s%d %s\" d=\"", curve->series,
                      z3d_page_colour(curve->colour));
    for (int64_t b = 0; b < buckets; b++) {
        bucket at = bucket_of(d, curve, b);
        if (at.count < 2) continue;
        int low = y_of(d, at.level.low), high = y_of(d, at.level.high);
        if (low != high) z3d_string_append(d->out, "M%d %dV%d", x_of(d, at.x), low, high);
    }
    z3d_string_append(d->out, "\"/>\n");
}

/* Joins the means of the buckets; a single one is a dot. */
static void draw_curve(const drawing *d, const z3d_curve *curve) {
    static const char *const styles[] = {"", " dashed", " points"};
    bool open = false;
    z3d_string_append(d->out, "<path class=\"s%d %s%s\" d=\"", curve->series,
                      z3d_page_colour(curve->colour), styles[curve->style]);
    for (int64_t b = 0; b < buckets_of(curve); b++) {
        bucket at = bucket_of(d, curve, b);
        bool begins = !open || curve->style == Z3D_CURVE_POINTS;
        open = at.count > 0;
        if (open)
            z3d_string_append(d->out, "%c%d %d%s", begins ? 'M' : 'L', x_of(d, at.x),
                              y_of(d, at.sum / (double)at.count), begins ? "h0" : "");
    }
    z3d_string_append(d->out, "\"/>\n");
}

/* Strokes at the same place are drawn once. */
static void draw_marks(const drawing *d, const z3d_marks *marks) {
    static const char *const kinds[] = {" line", "", ""};
    int last = -1;
    z3d_string_append(d->out, "<path class=\"mark s%d %s%s\" d=\"", marks->series,
                      z3d_page_colour(marks->colour), kinds[marks->kind]);
    for (int64_t i = 0; i < marks->count; i++) {
        if (marks->x[i] < d->x.low || marks->x[i] > d->x.high) continue;
        int x = x_of(d, marks->x[i]);
        if (x == last) continue;
        last = x;
        z3d_string_append(d->out, "M%d %dv%d", x, marks->kind == Z3D_MARK_BELOW ? HEIGHT : 0,
                          marks->kind == Z3D_MARK_BELOW   ? -MARK
                          : marks->kind == Z3D_MARK_ABOVE ? MARK
                                                          : HEIGHT);
    }
    z3d_string_append(d->out, "\"/>\n");
}

void z3d_page_chart(z3d_string *out, const z3d_chart *chart) {
    drawing d = {.chart = chart, .out = out};
    z3d_string names = {0};
    if (!find_ranges(&d)) return;
    z3d_string_append(out, "<figure><figcaption>%s <small>%s</small></figcaption>\n", chart->title,
                      chart->unit);
    z3d_string_append(out,
                      "<div class=\"plot\"><svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" "
                      "role=\"img\" aria-label=\"%s over %s\">\n<path class=\"grid\" d=\"",
                      WIDTH, HEIGHT, chart->title, chart->x_name);
    if (chart->logarithmic && d.y.high - d.y.low >= 1)
        draw_logarithmic_axis(&d, &names);
    else
        draw_y_axis(&d, &names);
    z3d_string_append(out, "M0 %dh%d\"/>\n", HEIGHT, WIDTH);
    for (int m = 0; m < chart->num_marks; m++)
        if (chart->marks[m].count > 0) draw_marks(&d, &chart->marks[m]);
    for (int c = 0; c < chart->curves; c++)
        if (chart->curve[c].count > 0) draw_extent(&d, &chart->curve[c]);
    for (int c = 0; c < chart->curves; c++)
        if (chart->curve[c].count > 0) draw_curve(&d, &chart->curve[c]);
    draw_x_axis(&d, &names);
    z3d_string_append(out, "</svg>\n%s</div></figure>\n", names.text ? names.text : "");
    out->failed |= names.failed;
    z3d_string_free(&names);
}
