// The loops that sum and compare, in every instruction set of this machine, against scalar
// arithmetic: all pairs with special values, rounding, lengths around the vector widths, NaN.
#include <gtest/gtest.h>

#include "tests/parallel/reference.h"

extern "C" {
#include "parallel/reduce/reduce.h"
}

static const z3d_dtype kTypes[] = {Z3D_F32, Z3D_F64, Z3D_BF16, Z3D_F16, Z3D_I32};
static const z3d_reduce_op kOps[] = {Z3D_SUM, Z3D_MAX};

static bool is_nan(z3d_dtype dtype, const unsigned char *at) {
    float single;
    double whole;
    uint16_t half;
    std::memcpy(&half, at, 2);
    switch (dtype) {
    case Z3D_F32:
        return std::memcpy(&single, at, 4), std::isnan(single);
    case Z3D_F64:
        return std::memcpy(&whole, at, 8), std::isnan(whole);
    case Z3D_BF16:
        return std::isnan(z3d_bf16_to_float(half));
    case Z3D_F16:
        return std::isnan(z3d_f16_to_float(half));
    default:
        return false;
    }
}

// Payloads of NaN are not promised; everything else is, to the bit.
static void expect_same(z3d_dtype dtype, const Bytes &got, const Bytes &want) {
    size_t size = z3d_dtype_size(dtype);
    for (size_t at = 0; at < want.size(); at += size) {
        if (std::memcmp(&got[at], &want[at], size) == 0) continue;
        ASSERT_TRUE(is_nan(dtype, &want[at]) && is_nan(dtype, &got[at]))
            << z3d_dtype_name(dtype) << " element " << at / size;
    }
}

static void check(z3d_dtype dtype, z3d_reduce_op op, const Bytes &a, const Bytes &b) {
    int64_t size = int64_t(z3d_dtype_size(dtype)), count = int64_t(a.size()) / size;
    Bytes want(a.size()), got(a.size());
    for (int64_t i = 0; i < count; i++)
        combine(dtype, op, &want[size_t(i * size)], &a[size_t(i * size)], &b[size_t(i * size)]);
    for (auto function : {z3d_reduce_find(dtype, op), z3d_reduce_find_plain(dtype, op)}) {
        ASSERT_NE(function, nullptr);
        function(got.data(), a.data(), b.data(), count);
        expect_same(dtype, got, want);
        got = a; // in place, either operand
        function(got.data(), got.data(), b.data(), count);
        expect_same(dtype, got, want);
        got = b;
        function(got.data(), a.data(), got.data(), count);
        expect_same(dtype, got, want);
    }
}

TEST(Reduce, RandomValuesOfAllLengths) {
    for (z3d_dtype dtype : kTypes)
        for (z3d_reduce_op op : kOps)
            for (int64_t count : {0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 1001})
                check(dtype, op, make_input(dtype, count, 1, 0), make_input(dtype, count, 1, 1));
}

// Every 16-bit pattern (subnormals, infinities, NaN) with a few partners on both sides.
TEST(Reduce, EveryHalf) {
    for (z3d_dtype dtype : {Z3D_BF16, Z3D_F16})
        for (z3d_reduce_op op : kOps)
            for (uint32_t partner :
                 {0x0000u, 0x8000u, 0x0001u, 0x03ffu, 0x3c00u, 0x3c01u, 0x7bffu, 0x7c00u, 0xfc00u,
                  0x7e00u, 0x3f80u, 0x7f7fu, 0x7f80u, 0xff80u, 0x7fc0u, 0x1234u}) {
                Bytes a(2 * 65536), b(2 * 65536);
                for (uint32_t i = 0; i < 65536; i++) {
                    uint16_t x = uint16_t(i), y = uint16_t(partner);
                    std::memcpy(&a[2 * i], &x, 2);
                    std::memcpy(&b[2 * i], &y, 2);
                }
                check(dtype, op, a, b);
                check(dtype, op, b, a);
            }
}

TEST(Reduce, NanWinsAndInfinityStays) {
    const float values[] = {0.f, -0.f, 1.f, -1.f, INFINITY, -INFINITY, NAN, 3e38f, 1e-45f};
    Bytes a, b;
    for (float x : values)
        for (float y : values) {
            a.insert(a.end(), (unsigned char *)&x, (unsigned char *)&x + 4);
            b.insert(b.end(), (unsigned char *)&y, (unsigned char *)&y + 4);
        }
    check(Z3D_F32, Z3D_MAX, a, b);
    check(Z3D_F32, Z3D_SUM, a, b);
    float nan = NAN, one = 1, got = 0;
    z3d_reduce_find(Z3D_F32, Z3D_MAX)(&got, &nan, &one, 1);
    EXPECT_TRUE(std::isnan(got));
    z3d_reduce_find(Z3D_F32, Z3D_MAX)(&got, &one, &nan, 1);
    EXPECT_TRUE(std::isnan(got));
}

TEST(Reduce, UnknownTypesHaveNone) {
    EXPECT_EQ(z3d_reduce_find(Z3D_U8, Z3D_SUM), nullptr);
    EXPECT_EQ(z3d_reduce_find(z3d_dtype(77), Z3D_SUM), nullptr);
    EXPECT_EQ(z3d_reduce_find(Z3D_F32, z3d_reduce_op(5)), nullptr);
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
