/* Draws the next token from logits. */
#include <math.h>
#include <string.h>

#include "src/train/generation/generate.h"

/* The largest logit first; of equal ones the smaller id first. So the order is the same on every
 * rank. */
static bool before(const float *logits, int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* Restores the heap property below `at`; the top is the last one in the order. */
static void sift(const float *logits, int32_t *heap, int64_t count, int64_t at) {
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= count) return;
        if (child + 1 < count && before(logits, heap[child], heap[child + 1])) child++;
        if (before(logits, heap[child], heap[at])) return;
        int32_t swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
        at = child;
    }
}

/* heap[0 .. k-1] become the ids of the k largest logits, in order. */
static void select_top(const float *logits, int32_t count, int64_t k, int32_t *heap) {
    for (int32_t i = 0; i < k; i++) heap[i] = i;
    for (int64_t i = k / 2; i-- > 0;) sift(logits, heap, k, i);
    for (int32_t i = (int32_t)k; i < count; i++)
        if (before(logits, i, heap[0])) {
            heap[0] = i;
            sift(logits, heap, k, 0);
        }
    for (int64_t left = k - 1; left > 0; left--) {
        int32_t last = heap[0];
        heap[0] = heap[left];
        heap[left] = last;
        sift(logits, heap, left, 0);
    }
}

/* The number of most likely ids, of k and at least one, whose weights sum to at least `wanted`; k
 * if all weigh less. *sum: the sum of their weights. */
static int64_t reach(const float *logits, const int32_t *top, int64_t k, double temperature,
                     double wanted, double *sum) {
    int64_t count = 0;
    double reached = 0;
    while (count < k && (count == 0 || reached < wanted))
        reached += exp((logits[top[count++]] - (double)logits[top[0]]) / temperature);
    *sum = reached;
    return count;
}

void z3d_penalize(float *logits, int32_t count, double penalty, const int32_t *token,
                  int64_t length, int32_t *scratch) {
    if (penalty == 1) return;
    memset(scratch, 0, (size_t)count * sizeof *scratch);
    for (int64_t i = 0; i < length; i++) {
        int32_t id = token[i];
        if (id >= count || scratch[id]++) continue;
        logits[id] = logits[id] < 0 ? logits[id] * (float)penalty : logits[id] / (float)penalty;
    }
}

int32_t z3d_sample_token(const float *logits, int32_t count, const z3d_sampling *sampling,
                         float uniform, int32_t *scratch) {
    const double temperature = sampling->temperature, top_p = sampling->top_p;
    const int64_t top_k = sampling->top_k;
    int32_t best = 0;
    for (int32_t i = 0; i < count; i++) {
        if (isnan(logits[i])) return -1;
        if (before(logits, i, best)) best = i;
    }
    if (!isfinite(logits[best])) return -1;
    if (temperature == 0 || top_k == 1) return best;
    int64_t k = top_k > 0 && top_k < count ? top_k : count;
    select_top(logits, count, k, scratch);
    double sum;
    reach(logits, scratch, k, temperature, INFINITY, &sum);
    if (top_p < 1) k = reach(logits, scratch, k, temperature, top_p * sum, &sum);
    k = reach(logits, scratch, k, temperature, (double)uniform * sum, &sum);
    return scratch[k - 1];
}
