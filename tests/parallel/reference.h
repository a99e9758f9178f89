// What a collective must give, computed alone: scalar arithmetic on the conversions of src/base, in
// the order that parallel.h promises. Inputs are a function of (seed, member, element), so that
// every rank knows what the others put in. They begin again after PERIOD elements, and so do sums
// of them: no part of a message begins so far behind another one, so what is misplaced differs.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

extern "C" {
#include "parallel/parallel.h"
}

using Bytes = std::vector<unsigned char>;

uint64_t mix(uint64_t x);

// Values of many magnitudes, so that the order of a sum shows in its bits.
void put_value(z3d_dtype dtype, void *to, uint64_t random);

constexpr int64_t PERIOD = 16411; // a prime

// Bytes of `count` elements at `to`, of which the first PERIOD are there.
void repeat(unsigned char *to, int64_t count, size_t size);

// So many elements from `first` on.
Bytes make_input(z3d_dtype dtype, int64_t count, uint64_t seed, int member, int64_t first = 0);

template <typename T> T larger(T a, T b) {
    if (a != a) return a;
    if (b != b) return b;
    return a > b ? a : b;
}

template <typename T> T combine_as(z3d_reduce_op op, const void *a, const void *b) {
    T x, y;
    std::memcpy(&x, a, sizeof x);
    std::memcpy(&y, b, sizeof y);
    return op == Z3D_SUM ? T(x + y) : larger(x, y);
}

void combine(z3d_dtype dtype, z3d_reduce_op op, void *to, const void *a, const void *b);

// One element over all members, beginning with member `first`, modulo the group's size.
void reduce_element(z3d_dtype dtype, z3d_reduce_op op, const std::vector<Bytes> &inputs,
                    int64_t element, int first, void *to);

// So many elements from `element` on.
void reduce_elements(z3d_dtype dtype, z3d_reduce_op op, const std::vector<Bytes> &inputs,
                     int64_t element, int64_t count, int first, unsigned char *to);

Bytes reference_all_reduce(z3d_dtype dtype, z3d_reduce_op op, const std::vector<Bytes> &inputs);

// The same of fp32 sums that travel in type `wire`: own row `row` first, the others rounded.
void reduce_rounded(z3d_dtype wire, const std::vector<Bytes> &inputs, int64_t element,
                    int64_t count, int row, unsigned char *to);

Bytes reference_rounded_all_reduce(z3d_dtype wire, const std::vector<Bytes> &inputs);
