/* Packing of lifetimes. Spans are placed one by one, in an order, in one of two ways. Skyline:
 * above all placed spans that overlap it in time; a segment tree over time makes it O(log n). Gaps:
 * in the lowest (or tightest) gap among these spans. An interval tree finds these; while the order
 * goes forward in time, the list of living spans is only updated. Several orders are tried with
 * gaps, and the best is improved: the highest spans are placed earlier. Effort is counted in spans,
 * not in seconds, so the result depends only on the spans. */
#include "zero/plan_memory/packer.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* In spans that the gap searches of one packing look at; the limit is about half a second. */
static const int64_t effort_limit = 60 * 1000 * 1000, enough_effort = 1000 * 1000;

typedef struct item {
    int first, last;
    int64_t size;       /* rounded */
    int64_t contention; /* most bytes alive at a moment of its life */
    int until;          /* the first item that begins after its end */
    int class;          /* of its duration (classify) */
    int span;           /* its index in the caller's array */
} item;

typedef struct extent {
    int64_t begin, end;
    int last, item;
} extent;

typedef struct packer {
    int count, times;
    item *items; /* sorted by first */
    int64_t *offset, *best_offset;
    int *order, *best_order; /* best_order: improve begins with it */
    int64_t best, bound, effort;
    bool patient;
    int time_leaves, item_leaves; /* powers of two */
    int64_t *high, *laid;         /* segment tree over time, see skyline_* */
    int *latest;                  /* interval tree: latest end of placed items, by place in items */
    /* Extents of placed items, sorted by address. alive: of those alive at moment `now`; later: of
     * items `reached`, the first that begins after `now`, to `seen` - 1. */
    extent *alive, *later, *found; /* found: scratch */
    int num_alive, num_later, now, reached, seen;
    int *place;   /* by span: its place in items */
    item *sorted; /* scratch */
} packer;

/* ---- the skyline: maximum over a range of times, raising a range ---- */

static void skyline_clear(packer *p) {
    memset(p->high, 0, sizeof *p->high * 2 * (size_t)p->time_leaves);
    memset(p->laid, 0, sizeof *p->laid * 2 * (size_t)p->time_leaves);
}

static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* The larger one of the maximum and `best`. */
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

static extent extent_of(const packer *p, int index) {
    const item *it = &p->items[index];
    return (extent){p->offset[index], p->offset[index] + it->size, it->last, index};
}

/* Appends the extents of placed items in [from, limit) that end at `first` or later. */
static int collect(const packer *p, int node, int low, int high, int from, int limit, int first,
                   extent *out, int found) {
    if (low >= limit || high < from || p->latest[node] < first) return found;
    if (low == high) {
        out[found] = extent_of(p, low);
        return found + 1;
    }
    int middle = low + (high - low) / 2;
    found = collect(p, 2 * node, low, middle, from, limit, first, out, found);
    return collect(p, 2 * node + 1, middle + 1, high, from, limit, first, out, found);
}

static int by_begin(const void *a, const void *b) {
    int64_t x = ((const extent *)a)->begin, y = ((const extent *)b)->begin;
    return (x > y) - (x < y);
}

static int collect_sorted(const packer *p, int from, int limit, int first, extent *out) {
    int found = collect(p, 1, 0, p->item_leaves - 1, from, limit, first, out, 0);
    if (found > 1) qsort(out, (size_t)found, sizeof *out, by_begin);
    return found;
}

/* The place after the items that begin at or before `time`. */
static int items_until(const packer *p, int time) {
    int low = 0, high = p->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (p->items[middle].first <= time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void insert_alive(packer *p, extent new) {
    int low = 0, high = p->num_alive;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (p->alive[middle].begin <= new.begin)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(&p->alive[low + 1], &p->alive[low], sizeof new *(size_t)(p->num_alive++ - low));
    p->alive[low] = new;
}

/* Makes `alive` the placed items that are alive at moment `now`. */
static void go_to(packer *p, int now) {
    int until = p->now <= now ? p->reached : p->count, kept = 0;
    if (p->now > now) {
        p->num_later = p->seen = 0;
        until = items_until(p, now);
        p->num_alive = collect_sorted(p, 0, until, now, p->alive);
    } else if (p->now < now) {
        for (int i = 0; i < p->num_alive; i++)
            if (p->alive[i].last >= now) p->alive[kept++] = p->alive[i];
        p->num_alive = kept;
        for (; until < p->count && p->items[until].first <= now; until++)
            if (p->latest[p->item_leaves + until] >= now) insert_alive(p, extent_of(p, until));
    }
    p->now = now;
    p->reached = until;
}

/* Adds to `later` the placed items that begin in the item's life; it may have others. While the
 * order goes forward in time, what was placed since the last call has begun: so only items from
 * `seen` on can be new in `later`. */
static void look_ahead(packer *p, const item *it) {
    int from = p->seen > p->reached ? p->seen : p->reached, kept = 0;
    int fresh = from < it->until ? collect_sorted(p, from, it->until, it->first, p->found) : 0;
    for (int i = 0; i < p->num_later; i++)
        if (p->later[i].item >= p->reached) p->later[kept++] = p->later[i];
    p->num_later = kept + fresh;
    for (int i = kept - 1, j = fresh - 1; j >= 0;) {
        bool old = i >= 0 && p->later[i].begin > p->found[j].begin;
        p->later[i + j + 1] = old ? p->later[i] : p->found[j];
        if (old)
            i--;
        else
            j--;
    }
    if (p->seen < it->until) p->seen = it->until;
}

/* The lowest gap that is large enough for the item, or the tightest one. */
static int64_t find_gap(const packer *p, const item *it, bool tight) {
    int64_t top = 0, best = -1, best_room = INT64_MAX;
    const extent *a = p->alive, *a_end = a + p->num_alive;
    const extent *b = p->later, *b_end = b + p->num_later;
    while (a < a_end || b < b_end) {
        const extent *next = b == b_end || (a < a_end && a->begin <= b->begin) ? a++ : b++;
        int64_t room = next->begin - top;
        if (next->item >= it->until) continue;
        if (room >= it->size && room < best_room) {
            best = top;
            best_room = room;
            if (!tight) return best;
        }
        top = max64(top, next->end);
    }
    return best >= 0 ? best : top;
}

static void mark_placed(packer *p, int index) {
    for (int node = p->item_leaves + index; node >= 1; node /= 2)
        if (p->latest[node] < p->items[index].last) p->latest[node] = p->items[index].last;
    insert_alive(p, extent_of(p, index));
}

/* Returns INT64_MAX if the effort runs out or the height exceeds `enough`. */
static int64_t place_in_gaps(packer *p, const int *order, bool tight, int64_t enough) {
    int64_t height = 0;
    for (int i = 0; i < 2 * p->item_leaves; i++) p->latest[i] = -1;
    p->num_alive = p->num_later = p->reached = p->seen = 0;
    p->now = -1;
    for (int i = 0; i < p->count; i++) {
        int index = order[i];
        const item *it = &p->items[index];
        go_to(p, it->first);
        look_ahead(p, it);
        p->effort += p->num_alive + p->num_later + 8;
        if (p->effort > effort_limit) return INT64_MAX;
        p->offset[index] = find_gap(p, it, tight);
        mark_placed(p, index);
        height = max64(height, p->offset[index] + it->size);
        if (height > enough) return INT64_MAX;
    }
    return height;
}

/* ---- orders ---- */

/* What an order compares first, second, ...: the largest value comes first, of FIRST the smallest.
 * Equal items are in the order of their spans. */
typedef enum key { END, CLASS, CONTENTION, SIZE, DURATION, AREA, FIRST, LAST } key;
typedef struct order {
    key by[5];
} order;

static const order by_first = {{FIRST, DURATION}}, by_duration = {{DURATION, SIZE}},
                   by_contention = {{CONTENTION, DURATION, SIZE}};

static int64_t duration(const item *it) {
    return (int64_t)it->last - it->first + 1;
}

/* Exact, except AREA: sizes are multiples of Z3D_PACK_ALIGN. */
static double key_of(const item *it, key by) {
    switch (by) {
    case CLASS:
        return it->class;
    case CONTENTION:
        return (double)it->contention;
    case SIZE:
        return (double)it->size;
    case DURATION:
        return (double)duration(it);
    case AREA:
        return (double)duration(it) * (double)it->size;
    case FIRST:
        return -(double)it->first;
    default:
        return it->last;
    }
}

static int compare(const void *x, const void *y, void *context) {
    const item *a = x, *b = y;
    const order *order = context;
    for (int k = 0; order->by[k] != END; k++) {
        const double p = key_of(a, order->by[k]), q = key_of(b, order->by[k]);
        if (p != q) return p > q ? -1 : 1;
    }
    return (a->span > b->span) - (a->span < b->span);
}

static void sort(item *items, int count, order by) {
    qsort_r(items, (size_t)count, sizeof *items, compare, &by);
}

/* Makes `sorted` the items in this order. */
static void sort_items(packer *p, order by) {
    memcpy(p->sorted, p->items, sizeof *p->sorted * (size_t)p->count);
    sort(p->sorted, p->count, by);
}

/* Attempts, in this order; tight: items go to the tightest gap. */
static const struct attempt {
    order order;
    bool tight;
} attempts[] = {{{{CLASS, SIZE, FIRST, DURATION}}, false},
                {{{SIZE, FIRST, DURATION}}, false},
                {{{FIRST, DURATION}}, false},
                {{{CLASS, FIRST, DURATION}}, false},
                {{{CLASS, SIZE, FIRST, DURATION}}, true},
                {{{CONTENTION, DURATION, SIZE}}, false},
                {{{DURATION, SIZE}}, false},
                {{{AREA}}, false},
                {{{CONTENTION, SIZE, FIRST, DURATION}}, false},
                {{{LAST, DURATION}}, false},
                {{{SIZE, DURATION}}, false},
                {{{SIZE, FIRST, DURATION}}, true},
                {{{FIRST, DURATION}}, true},
                {{{CLASS, FIRST, DURATION}}, true},
                {{{DURATION, SIZE}}, true},
                {{{CONTENTION, DURATION, SIZE}}, true},
                {{{AREA}}, true},
                {{{CONTENTION, SIZE, FIRST, DURATION}}, true},
                {{{LAST, DURATION}}, true},
                {{{SIZE, DURATION}}, true}};
enum { ATTEMPTS = sizeof attempts / sizeof attempts[0], PATIENT_ATTEMPTS = 6 };

/* A class ends where the next duration is over twice as long; all short ones are one class. */
static void classify(packer *p) {
    enum { SHORT = 64 };
    sort_items(p, by_duration);
    for (int i = p->count - 1, class = 0; i >= 0; i--) {
        int64_t here = duration(&p->sorted[i]);
        if (i < p->count - 1 && here > SHORT && here > 2 * duration(&p->sorted[i + 1])) class ++;
        p->items[p->place[p->sorted[i].span]].class = class;
    }
}

/* Fills p->order. */
static void make_order(packer *p, order by) {
    sort_items(p, by);
    for (int i = 0; i < p->count; i++) p->order[i] = p->place[p->sorted[i].span];
}

/* ---- the search ---- */

static void keep_if_better(packer *p, int64_t height) {
    if (height >= p->best) return;
    p->best = height;
    memcpy(p->best_offset, p->offset, sizeof *p->offset * (size_t)p->count);
    memcpy(p->best_order, p->order, sizeof *p->order * (size_t)p->count);
}

/* At most 1/2000 above the bound; after PATIENT_ATTEMPTS and enough_effort 1/32. */
static bool good_enough(const packer *p) {
    return p->best <= p->bound + p->bound / (p->patient ? 2000 : 32);
}

/* The place in the best order of the first item that ends at the top. */
static int place_of_top(const packer *p) {
    for (int i = 0; i < p->count; i++) {
        const int index = p->best_order[i];
        if (p->best_offset[index] + p->items[index].size == p->best) return i;
    }
    return 0;
}

/* Moves the highest item forward until it helps: to the front, then 1/2, 1/3, 1/4 of the way. */
static void improve(packer *p) {
    for (int round = 0; round < 400 && !good_enough(p); round++) {
        int64_t before = p->best;
        p->patient = p->effort < enough_effort;
        int top = place_of_top(p);
        for (int way = 1; way <= 4 && p->best == before; way++) {
            int to = way == 1 ? 0 : top - top / way;
            memcpy(p->order, p->best_order, sizeof *p->order * (size_t)p->count);
            memmove(p->order + to + 1, p->order + to, sizeof *p->order * (size_t)(top - to));
            p->order[to] = p->best_order[top];
            keep_if_better(p, place_in_gaps(p, p->order, false, before - 1));
        }
        if (p->best == before || p->effort > effort_limit) return;
    }
}

/* Drops each item into the lowest gap, the lowest item first: none rises. */
static void settle(packer *p) {
    for (int i = 0; i < p->count; i++) {
        p->sorted[i] = p->items[i];
        p->sorted[i].contention = -p->best_offset[i]; /* contentions sort large first */
        p->sorted[i].span = i;
    }
    sort(p->sorted, p->count, by_contention);
    for (int i = 0; i < p->count; i++) p->order[i] = p->sorted[i].span;
    keep_if_better(p, place_in_gaps(p, p->order, false, p->best - 1));
}

static void search(packer *p) {
    classify(p);
    make_order(p, attempts[0].order);
    keep_if_better(p, place_on_skyline(p, p->order));
    for (int i = 0; i < ATTEMPTS; i++) {
        p->patient = i < PATIENT_ATTEMPTS || p->effort < enough_effort;
        if (good_enough(p)) return;
        make_order(p, attempts[i].order);
        keep_if_better(p, place_in_gaps(p, p->order, attempts[i].tight, p->best - 1));
    }
    if (!good_enough(p)) settle(p);
    improve(p);
}

static int power_of_two(int at_least) {
    int n = 1;
    while (n < at_least) n *= 2;
    return n;
}

/* live: bytes at each moment, with one element more than moments; zero-initialised. Returns the
 * most. */
static int64_t count_live(const z3d_span *spans, int count, int times, int64_t *live) {
    int64_t most = 0;
    for (int i = 0; i < count; i++) {
        int64_t size = z3d_round_up(spans[i].bytes, Z3D_PACK_ALIGN);
        live[spans[i].first] += size;
        live[spans[i].last + 1] -= size;
    }
    for (int t = 0; t < times; t++) {
        if (t > 0) live[t] += live[t - 1];
        most = max64(most, live[t]);
    }
    return most;
}

/* Finds the bound, and every item's contention and `until`. */
static z3d_status measure(packer *p, const z3d_span *spans) {
    int64_t *live = NULL;
    Z3D_TRY(z3d_new((size_t)p->times + 1, sizeof *live, "packing", &live));
    p->bound = count_live(spans, p->count, p->times, live);
    skyline_clear(p);
    memcpy(p->high + p->time_leaves, live, (size_t)p->times * sizeof *live);
    for (int node = p->time_leaves - 1; node > 0; node--)
        p->high[node] = max64(p->high[2 * node], p->high[2 * node + 1]);
    for (int i = 0; i < p->count; i++) {
        item *it = &p->items[i];
        it->contention = skyline_max(p, 1, 0, p->time_leaves - 1, it->first, it->last, 0);
        it->until = items_until(p, it->last);
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
    free(p->alive);
    free(p->later);
    free(p->found);
    free(p->place);
    free(p->sorted);
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
    Z3D_TRY(z3d_new(n + 1, sizeof *p->alive, "packing", &p->alive));
    Z3D_TRY(z3d_new(n, sizeof *p->later, "packing", &p->later));
    Z3D_TRY(z3d_new(n, sizeof *p->found, "packing", &p->found));
    Z3D_TRY(z3d_new(n, sizeof *p->place, "packing", &p->place));
    return z3d_new(n, sizeof *p->sorted, "packing", &p->sorted);
}

static z3d_status pack(packer *p, const z3d_span *spans) {
    Z3D_TRY(reserve(p));
    for (int i = 0; i < p->count; i++) {
        p->items[i] = (item){.first = spans[i].first,
                             .last = spans[i].last,
                             .size = z3d_round_up(spans[i].bytes, Z3D_PACK_ALIGN),
                             .span = i};
    }
    sort(p->items, p->count, by_first);
    for (int i = 0; i < p->count; i++) p->place[p->items[i].span] = i;
    Z3D_TRY(measure(p, spans));
    p->best = INT64_MAX;
    search(p);
    return Z3D_OK;
}

z3d_status z3d_pack(z3d_span *spans, int count, int times, int64_t *height, int64_t *bound) {
    *height = *bound = 0;
    if (count == 0) return Z3D_OK;
    packer p = {.count = count, .times = times};
    z3d_status status = pack(&p, spans);
    if (status == Z3D_OK) {
        for (int i = 0; i < count; i++) spans[p.items[i].span].offset = p.best_offset[i];
        *height = p.best;
        *bound = p.bound;
    }
    release(&p);
    return status;
}

z3d_status z3d_pack_apart(z3d_span *spans, int count, int times, int64_t *height, int64_t *bound) {
    int64_t *live = NULL;
    *height = 0;
    Z3D_TRY(z3d_new((size_t)times + 1, sizeof *live, "packing", &live));
    *bound = count_live(spans, count, times, live);
    free(live);
    for (int i = 0; i < count; i++) {
        spans[i].offset = *height;
        *height += z3d_round_up(spans[i].bytes, Z3D_PACK_ALIGN);
    }
    return Z3D_OK;
}
