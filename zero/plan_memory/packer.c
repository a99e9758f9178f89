/* Packing of lifetimes. For a given order there are two ways to place a span: on the skyline (above
 * all spans that were placed in its lifetime; a segment tree over time makes it O(log n)), or in
 * the lowest (or tightest) gap among the placed spans that overlap it in time (an interval tree
 * finds them). It tries several orders by skyline, the good ones again by gaps, and improves the
 * best by moving the highest spans to the front. Effort is counted in spans, not in seconds, so the
 * result depends on the spans only. */
#include "zero/plan_memory/packer.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Spans looked at by all gap searches of one packing: about a second. */
static const int64_t effort_limit = 60 * 1000 * 1000;

typedef struct item {
    int first, last;
    int64_t size;       /* rounded */
    int64_t contention; /* most bytes alive at a moment of its life */
    int span;           /* whose */
} item;

typedef struct extent {
    int64_t begin, end;
} extent;

typedef struct packer {
    int count, times;
    bool rough;
    item *items; /* by first */
    int64_t *offset, *best_offset;
    int *order, *best_order; /* best_order: what improvement starts from */
    int64_t best, bound, effort;
    int time_leaves, item_leaves; /* powers of two */
    int64_t *high, *laid;         /* segment tree over time, see skyline_* */
    int *latest;                  /* interval tree: latest end of placed items, by place in items */
    extent *extents;              /* scratch of gap searches */
} packer;

/* ---- the skyline: maximum over a range of times, raising a range ---- */

static void skyline_clear(packer *p) {
    memset(p->high, 0, sizeof *p->high * 2 * (size_t)p->time_leaves);
    memset(p->laid, 0, sizeof *p->laid * 2 * (size_t)p->time_leaves);
}

static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* The maximum, or `best` where it is not higher. */
static int64_t skyline_max(const packer *p, int node, int low, int high, int first, int last,
                           int64_t best) {
    if (last < low || high < first || p->high[node] <= best) return best;
    if (first <= low && high <= last) return p->high[node];
    int middle = low + (high - low) / 2;
    best = skyline_max(p, 2 * node, low, middle, first, last, max64(best, p->laid[node]));
    return skyline_max(p, 2 * node + 1, middle + 1, high, first, last, best);
}

static void skyline_raise(packer *p, int node, int low, int high, int first, int last,
                          int64_t value) {
    if (last < low || high < first) return;
    p->high[node] = max64(p->high[node], value);
    if (first <= low && high <= last) {
        p->laid[node] = max64(p->laid[node], value);
        return;
    }
    int middle = low + (high - low) / 2;
    skyline_raise(p, 2 * node, low, middle, first, last, value);
    skyline_raise(p, 2 * node + 1, middle + 1, high, first, last, value);
}

static int64_t place_on_skyline(packer *p, const int *order) {
    int64_t height = 0;
    skyline_clear(p);
    for (int i = 0; i < p->count; i++) {
        const item *it = &p->items[order[i]];
        int64_t at = skyline_max(p, 1, 0, p->time_leaves - 1, it->first, it->last, 0);
        p->offset[order[i]] = at;
        skyline_raise(p, 1, 0, p->time_leaves - 1, it->first, it->last, at + it->size);
        height = max64(height, at + it->size);
    }
    return height;
}

/* ---- gaps ---- */

/* Appends the extents of placed items that meet [first, last]. `limit`: items before it begin early
 * enough. */
static int collect(packer *p, int node, int low, int high, int limit, int first, int found) {
    if (low >= limit || p->latest[node] < first) return found;
    if (low == high) {
        p->extents[found].begin = p->offset[low];
        p->extents[found].end = p->offset[low] + p->items[low].size;
        return found + 1;
    }
    int middle = low + (high - low) / 2;
    found = collect(p, 2 * node, low, middle, limit, first, found);
    return collect(p, 2 * node + 1, middle + 1, high, limit, first, found);
}

static int by_begin(const void *a, const void *b) {
    int64_t x = ((const extent *)a)->begin, y = ((const extent *)b)->begin;
    return (x > y) - (x < y);
}

/* Items that begin at or before `time` stand in front of the returned place. */
static int items_until(const packer *p, int time) {
    int low = 0, high = p->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (p->items[middle].first <= time) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The lowest gap that is large enough, or the tightest one. */
static int64_t find_gap(const extent *extents, int count, int64_t size, bool tight) {
    int64_t top = 0, best = -1, best_room = INT64_MAX;
    for (int i = 0; i < count; i++) {
        int64_t room = extents[i].begin - top;
        if (room >= size && room < best_room) {
            best = top;
            best_room = room;
            if (!tight) return best;
        }
        top = max64(top, extents[i].end);
    }
    return best >= 0 ? best : top;
}

static void mark_placed(packer *p, int index) {
    for (int node = p->item_leaves + index; node >= 1; node /= 2) {
        if (p->latest[node] < p->items[index].last) p->latest[node] = p->items[index].last;
    }
}

/* Returns INT64_MAX when the effort runs out or the height gets past `enough`. */
static int64_t place_in_gaps(packer *p, const int *order, bool tight, int64_t enough) {
    int64_t height = 0;
    for (int i = 0; i < 2 * p->item_leaves; i++) p->latest[i] = -1;
    for (int i = 0; i < p->count; i++) {
        int index = order[i];
        const item *it = &p->items[index];
        int found = collect(p, 1, 0, p->item_leaves - 1, items_until(p, it->last), it->first, 0);
        p->effort += found + 8;
        if (p->effort > effort_limit) return INT64_MAX;
        qsort(p->extents, (size_t)found, sizeof *p->extents, by_begin);
        p->offset[index] = find_gap(p->extents, found, it->size, tight);
        mark_placed(p, index);
        height = max64(height, p->offset[index] + it->size);
        if (height > enough) return INT64_MAX;
    }
    return height;
}

/* ---- orders ---- */

static int compare64(int64_t a, int64_t b) {
    return (a < b) - (a > b); /* large first */
}

static int64_t duration(const item *it) {
    return (int64_t)it->last - it->first + 1;
}

static double area(const item *it) {
    return (double)duration(it) * (double)it->size;
}

static int tie(const item *a, const item *b) {
    return (a->span > b->span) - (a->span < b->span);
}

static int by_size(const void *x, const void *y) {
    const item *a = x, *b = y;
    int c = compare64(a->size, b->size);
    if (c == 0) c = compare64(duration(a), duration(b));
    return c != 0 ? c : tie(a, b);
}

static int by_duration(const void *x, const void *y) {
    const item *a = x, *b = y;
    int c = compare64(duration(a), duration(b));
    if (c == 0) c = compare64(a->size, b->size);
    return c != 0 ? c : tie(a, b);
}

static int by_area(const void *x, const void *y) {
    const item *a = x, *b = y;
    double s = area(a), t = area(b);
    int c = (s < t) - (s > t);
    return c != 0 ? c : tie(a, b);
}

static int by_contention_duration(const void *x, const void *y) {
    const item *a = x, *b = y;
    int c = compare64(a->contention, b->contention);
    return c != 0 ? c : by_duration(x, y);
}

static int by_contention_size(const void *x, const void *y) {
    const item *a = x, *b = y;
    int c = compare64(a->contention, b->contention);
    return c != 0 ? c : by_size(x, y);
}

static int by_first(const void *x, const void *y) {
    const item *a = x, *b = y;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    int c = compare64(duration(a), duration(b));
    return c != 0 ? c : tie(a, b);
}

static int by_last(const void *x, const void *y) {
    const item *a = x, *b = y;
    if (a->last != b->last) return a->last > b->last ? -1 : 1;
    int c = compare64(duration(a), duration(b));
    return c != 0 ? c : tie(a, b);
}

typedef int (*comparison)(const void *, const void *);
static const comparison comparisons[] = {by_duration, by_contention_duration, by_size, by_area,
                                         by_first,    by_contention_size,     by_last};
enum { ORDERS = sizeof comparisons / sizeof comparisons[0] };

/* Fills p->order; `sorted` is scratch for count items, `place` for count ints. */
static void make_order(packer *p, int which, item *sorted, const int *place) {
    memcpy(sorted, p->items, sizeof *sorted * (size_t)p->count);
    qsort(sorted, (size_t)p->count, sizeof *sorted, comparisons[which]);
    for (int i = 0; i < p->count; i++) p->order[i] = place[sorted[i].span];
}

/* ---- the search ---- */

static void keep_if_better(packer *p, int64_t height) {
    if (height >= p->best) return;
    p->best = height;
    memcpy(p->best_offset, p->offset, sizeof *p->offset * (size_t)p->count);
    memcpy(p->best_order, p->order, sizeof *p->order * (size_t)p->count);
}

static bool good_enough(const packer *p) {
    return p->best <= p->bound + p->bound / 2000;
}

/* The item that ends at the top, the first in order; its place in `order`. */
static int place_of_top(const packer *p, const int *order, const int64_t *offset, int64_t height) {
    for (int i = 0; i < p->count; i++) {
        if (offset[order[i]] + p->items[order[i]].size == height) return i;
    }
    return 0;
}

static void move_to(int *order, int from, int to) {
    int moved = order[from];
    memmove(order + to + 1, order + to, sizeof *order * (size_t)(from - to));
    order[to] = moved;
}

/* What sticks out at the top is placed earlier: to the front, then halfway, a quarter of the way.
 */
static void improve(packer *p) {
    for (int round = 0; round < 400 && !good_enough(p); round++) {
        int64_t before = p->best;
        int top = place_of_top(p, p->best_order, p->best_offset, p->best);
        for (int way = 1; way <= 4 && p->best == before; way++) {
            int to = way == 1 ? 0 : top - top / way;
            memcpy(p->order, p->best_order, sizeof *p->order * (size_t)p->count);
            move_to(p->order, top, to);
            keep_if_better(p, place_in_gaps(p, p->order, false, before - 1));
        }
        if (p->best == before || p->effort > effort_limit) return;
    }
}

/* Drops every item into the lowest gap, lowest first: never raises one. */
static void settle(packer *p) {
    item *sorted = NULL;
    if (z3d_new((size_t)p->count, sizeof *sorted, "packing", &sorted) != Z3D_OK) return;
    for (int i = 0; i < p->count; i++) {
        sorted[i] = p->items[i];
        sorted[i].contention = -p->best_offset[i]; /* contentions sort large first */
        sorted[i].span = i;
    }
    qsort(sorted, (size_t)p->count, sizeof *sorted, by_contention_duration);
    for (int i = 0; i < p->count; i++) p->order[i] = sorted[i].span;
    free(sorted);
    keep_if_better(p, place_in_gaps(p, p->order, false, p->best - 1));
}

static void search(packer *p, item *sorted, const int *place) {
    for (int which = 0; which < (p->rough ? 1 : ORDERS) && !good_enough(p); which++) {
        make_order(p, which, sorted, place);
        keep_if_better(p, place_on_skyline(p, p->order));
    }
    if (p->rough) return;
    for (int which = 0; which < ORDERS && !good_enough(p); which++) {
        for (int tight = 0; tight < 2 && !good_enough(p); tight++) {
            make_order(p, which, sorted, place);
            keep_if_better(p, place_in_gaps(p, p->order, tight != 0, p->best - 1));
        }
    }
    if (!good_enough(p)) settle(p);
    improve(p);
}

static int power_of_two(int at_least) {
    int n = 1;
    while (n < at_least) n *= 2;
    return n;
}

/* Bytes alive at each moment; the bound; every item's contention. */
static z3d_status measure(packer *p) {
    int64_t *live = NULL;
    Z3D_TRY(z3d_new((size_t)p->times + 1, sizeof *live, "packing", &live));
    for (int i = 0; i < p->count; i++) {
        live[p->items[i].first] += p->items[i].size;
        live[p->items[i].last + 1] -= p->items[i].size;
    }
    skyline_clear(p);
    for (int t = 0; t < p->times; t++) {
        if (t > 0) live[t] += live[t - 1];
        p->high[p->time_leaves + t] = live[t];
        p->bound = max64(p->bound, live[t]);
    }
    for (int node = p->time_leaves - 1; node > 0; node--)
        p->high[node] = max64(p->high[2 * node], p->high[2 * node + 1]);
    for (int i = 0; i < p->count; i++) {
        item *it = &p->items[i];
        it->contention = skyline_max(p, 1, 0, p->time_leaves - 1, it->first, it->last, 0);
    }
    free(live);
    return Z3D_OK;
}

static void release(packer *p) {
    free(p->items);
    free(p->offset);
    free(p->best_offset);
    free(p->order);
    free(p->best_order);
    free(p->high);
    free(p->laid);
    free(p->latest);
    free(p->extents);
}

static z3d_status reserve(packer *p) {
    size_t n = (size_t)p->count;
    p->time_leaves = power_of_two(p->times);
    p->item_leaves = power_of_two(p->count);
    Z3D_TRY(z3d_new(n, sizeof *p->items, "packing", &p->items));
    Z3D_TRY(z3d_new(n, sizeof *p->offset, "packing", &p->offset));
    Z3D_TRY(z3d_new(n, sizeof *p->best_offset, "packing", &p->best_offset));
    Z3D_TRY(z3d_new(n, sizeof *p->order, "packing", &p->order));
    Z3D_TRY(z3d_new(n, sizeof *p->best_order, "packing", &p->best_order));
    Z3D_TRY(z3d_new(2 * (size_t)p->time_leaves, sizeof *p->high, "packing", &p->high));
    Z3D_TRY(z3d_new(2 * (size_t)p->time_leaves, sizeof *p->laid, "packing", &p->laid));
    Z3D_TRY(z3d_new(2 * (size_t)p->item_leaves, sizeof *p->latest, "packing", &p->latest));
    return z3d_new(n, sizeof *p->extents, "packing", &p->extents);
}

static z3d_status pack(packer *p, const z3d_span *spans) {
    item *sorted = NULL;
    int *place = NULL;
    z3d_status status = reserve(p);
    if (status == Z3D_OK) status = z3d_new((size_t)p->count, sizeof *sorted, "packing", &sorted);
    if (status == Z3D_OK) status = z3d_new((size_t)p->count, sizeof *place, "packing", &place);
    if (status != Z3D_OK) goto done;
    for (int i = 0; i < p->count; i++) {
        p->items[i] = (item){.first = spans[i].first,
                             .last = spans[i].last,
                             .size = z3d_round_up(spans[i].bytes, Z3D_PACK_ALIGN),
                             .span = i};
    }
    qsort(p->items, (size_t)p->count, sizeof *p->items, by_first);
    for (int i = 0; i < p->count; i++) place[p->items[i].span] = i;
    Z3D_TRY_GOTO(status, measure(p), done);
    p->best = INT64_MAX;
    search(p, sorted, place);
done:
    free(sorted);
    free(place);
    return status;
}

z3d_status z3d_pack(z3d_span *spans, int count, int times, bool rough, int64_t *height,
                    int64_t *bound) {
    *height = *bound = 0;
    if (count == 0) return Z3D_OK;
    packer p = {.count = count, .times = times, .rough = rough};
    z3d_status status = pack(&p, spans);
    if (status == Z3D_OK) {
        for (int i = 0; i < count; i++) spans[p.items[i].span].offset = p.best_offset[i];
        *height = p.best;
        *bound = p.bound;
    }
    release(&p);
    return status;
}
