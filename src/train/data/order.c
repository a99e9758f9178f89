/* The keyed permutation and the blend. */
#include "src/train/data/order.h"

#include <math.h>

enum { FEISTEL_ROUNDS = 6 };

int64_t z3d_permute(uint64_t key, int64_t count, int64_t index) {
    int bits = 1; /* bits of each half; the domain, 4^bits, is less than 4 x count: at most 4 rounds
                     on average */
    while (bits < 31 && ((int64_t)1 << (2 * bits)) < count) bits++;
    uint64_t mask = ((uint64_t)1 << bits) - 1, place = (uint64_t)index;
    do {
        uint64_t left = place >> bits, right = place & mask;
        for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
            uint64_t mixed = left ^ (z3d_philox(key, right, round).word[0] & mask);
            left = right;
            right = mixed;
        }
        place = left << bits | right;
    } while (place >= (uint64_t)count);
    return (int64_t)place;
}

struct z3d_blend {
    int count;
    int32_t quota[Z3D_BLEND_MAX]; /* samples of each source in one period */
    int32_t source[Z3D_BLEND_PERIOD];
    int32_t nth[Z3D_BLEND_PERIOD]; /* how many samples of the same source came before it in the
                                      period */
};

/* Sets integer quotas whose sum is the period: each rounded down, but at least one; the sources
 * with the largest remainders get the rest. */
static void set_quotas(z3d_blend *blend, const double *weight) {
    double total = 0, largest = 0, share[Z3D_BLEND_MAX];
    for (int i = 0; i < blend->count; i++) largest = fmax(largest, weight[i]);
    for (int i = 0; i < blend->count; i++)
        total += weight[i] / largest; /* divided first, so that the sum cannot overflow */
    int32_t sum = 0;
    for (int i = 0; i < blend->count; i++) {
        share[i] = weight[i] / largest / total * Z3D_BLEND_PERIOD;
        blend->quota[i] = share[i] < 1 ? 1 : (int32_t)share[i];
        sum += blend->quota[i];
    }
    while (sum != Z3D_BLEND_PERIOD) {
        int best = -1;
        double best_gap = -INFINITY, sign = sum < Z3D_BLEND_PERIOD ? 1 : -1;
        for (int i = 0; i < blend->count; i++) {
            double gap = sign * (share[i] - blend->quota[i]);
            if (gap > best_gap && (sign > 0 || blend->quota[i] > 1)) best = i, best_gap = gap;
        }
        blend->quota[best] += (int32_t)sign;
        sum += (int32_t)sign;
    }
}

/* The source with the largest deficit is next. A source is chosen only while it is below its share,
 * so after one period each source has exactly its quota. */
static void deal_period(z3d_blend *blend) {
    int32_t given[Z3D_BLEND_MAX] = {0};
    for (int64_t t = 0; t < Z3D_BLEND_PERIOD; t++) {
        int best = 0;
        int64_t best_deficit = INT64_MIN;
        for (int i = 0; i < blend->count; i++) {
            int64_t deficit = blend->quota[i] * (t + 1) - (int64_t)given[i] * Z3D_BLEND_PERIOD;
            if (deficit > best_deficit) best = i, best_deficit = deficit;
        }
        blend->source[t] = best;
        blend->nth[t] = given[best]++;
    }
}

z3d_status z3d_blend_create(const double *weight, int count, z3d_blend **out) {
    *out = NULL;
    if (count < 1 || count > Z3D_BLEND_MAX)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "%d data files: expected 1 to %d", count, Z3D_BLEND_MAX);
    for (int i = 0; i < count; i++)
        if (!(weight[i] > 0 && isfinite(weight[i])))
            return Z3D_ERROR(Z3D_ERR_CONFIG,
                             "weight %g of data file %d: expected a positive number", weight[i], i);
    Z3D_TRY(z3d_new(1, sizeof **out, "the blend of data files", out));
    (*out)->count = count;
    if (count == 1) return Z3D_OK; /* one source has all samples */
    set_quotas(*out, weight);
    deal_period(*out);
    return Z3D_OK;
}

void z3d_blend_locate(const z3d_blend *blend, int64_t sample, int *source, int64_t *nth) {
    if (blend->count == 1) {
        *source = 0;
        *nth = sample;
        return;
    }
    int64_t period = sample / Z3D_BLEND_PERIOD, place = sample % Z3D_BLEND_PERIOD;
    *source = blend->source[place];
    *nth = period * blend->quota[*source] + blend->nth[place];
}
