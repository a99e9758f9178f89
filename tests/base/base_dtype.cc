/* Conversions against a reference that knows only what the patterns mean: every 16-bit pattern, and
 * rounding at, beside and between all of them. */
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

extern "C" {
#include "src/base/codec.h"
}

/* A 16-bit format by its definition. */
struct Format {
    int exponent_bits, fraction_bits;
    float (*to_float)(uint16_t);
    uint16_t (*from_float)(float);

    uint16_t infinity() const {
        return static_cast<uint16_t>(((1 << exponent_bits) - 1) << fraction_bits);
    }
    /* A positive pattern's value; infinity's is where the next number would stand. */
    double value(uint16_t pattern) const {
        int exponent = pattern >> fraction_bits;
        int fraction = pattern & ((1 << fraction_bits) - 1);
        int bias = (1 << (exponent_bits - 1)) - 1;
        if (exponent == 0) return std::ldexp(fraction, 1 - bias - fraction_bits);
        return std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
    }
    /* Nearest pattern of a number >= 0, ties to the even one. */
    uint16_t nearest(double number) const {
        uint16_t low = 0, high = infinity();
        if (number >= value(high)) return high;
        while (high - low > 1) {
            uint16_t middle = static_cast<uint16_t>((low + high) / 2);
            (value(middle) <= number ? low : high) = middle;
        }
        double below = number - value(low), above = value(high) - number;
        if (below != above) return below < above ? low : high;
        return low % 2 == 0 ? low : high;
    }
};

static const Format bf16 = {8, 7, z3d_bf16_to_float, z3d_float_to_bf16};
static const Format fp16 = {5, 10, z3d_f16_to_float, z3d_float_to_f16};

static float with_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

class Dtype : public testing::TestWithParam<Format> {};

TEST_P(Dtype, EveryPatternMeansWhatItsBitsSayAndComesBack) {
    const Format &f = GetParam();
    for (int pattern = 0; pattern < 65536; pattern++) {
        uint16_t bits = static_cast<uint16_t>(pattern), magnitude = bits & 0x7FFF;
        float value = f.to_float(bits);
        if (magnitude > f.infinity()) {
            ASSERT_TRUE(std::isnan(value)) << pattern;
            ASSERT_TRUE(std::isnan(f.to_float(f.from_float(value)))) << pattern;
            ASSERT_EQ(std::signbit(value), bits >> 15 == 1);
            continue;
        }
        double expected = magnitude == f.infinity() ? INFINITY : f.value(magnitude);
        ASSERT_EQ(std::fabs(value), expected) << pattern;
        ASSERT_EQ(std::signbit(value), bits >> 15 == 1) << pattern;
        ASSERT_EQ(f.from_float(value), bits) << pattern;
    }
}

TEST_P(Dtype, RoundsToNearestEvenAroundEveryMidpoint) {
    const Format &f = GetParam();
    for (int pattern = 0; pattern < f.infinity(); pattern++) {
        uint16_t low = static_cast<uint16_t>(pattern), high = static_cast<uint16_t>(pattern + 1);
        double middle = (f.value(low) + f.value(high)) / 2;
        float tie = static_cast<float>(middle); /* one bit more: exact */
        ASSERT_EQ(static_cast<double>(tie), middle);
        for (float number : {std::nextafterf(tie, 0.0f), tie, std::nextafterf(tie, INFINITY)}) {
            ASSERT_EQ(f.from_float(number), f.nearest(number)) << number;
            ASSERT_EQ(f.from_float(-number), f.nearest(number) | 0x8000) << -number;
        }
        ASSERT_EQ(f.from_float(tie), low % 2 == 0 ? low : high);
    }
}

// Between the midpoints, where the rounding does not change.
TEST_P(Dtype, RoundsToNearestEvenOverTheWholeRangeOfFloats) {
    const Format &f = GetParam();
    for (uint64_t bits = 0; bits < 0x7F800000; bits += 12007) {
        float number = with_bits(static_cast<uint32_t>(bits));
        ASSERT_EQ(f.from_float(number), f.nearest(number)) << number;
    }
}

TEST_P(Dtype, TheEndsOfTheRange) {
    const Format &f = GetParam();
    uint16_t largest = static_cast<uint16_t>(f.infinity() - 1);
    double step = f.value(f.infinity()) - f.value(largest);
    float tie = static_cast<float>(f.value(largest) + step / 2);
    EXPECT_EQ(f.from_float(tie), f.infinity());
    EXPECT_EQ(f.from_float(std::nextafterf(tie, 0)), largest);
    EXPECT_EQ(f.from_float(INFINITY), f.infinity());
    EXPECT_EQ(f.from_float(-INFINITY), f.infinity() | 0x8000);
    EXPECT_EQ(f.from_float(with_bits(1)), 0); /* smallest subnormal float */
    EXPECT_EQ(f.from_float(with_bits(0x80000001)), 0x8000);
}

TEST_P(Dtype, NoNanBecomesANumber) {
    const Format &f = GetParam();
    std::mt19937 random(11);
    for (int i = 0; i < 100000; i++) {
        uint32_t payload = i < 23 ? 1u << i : random() & 0x7FFFFF;
        if (payload == 0) continue;
        for (uint32_t sign : {0u, 0x80000000u}) {
            uint16_t bits = f.from_float(with_bits(sign | 0x7F800000u | payload));
            ASSERT_GT(bits & 0x7FFF, f.infinity()) << payload;
            ASSERT_EQ(bits >> 15, sign >> 31);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(formats, Dtype, testing::Values(bf16, fp16),
                         [](const testing::TestParamInfo<Format> &info) {
                             return info.param.exponent_bits == 8 ? "bf16" : "fp16";
                         });

TEST(Codec, BytesOfEachTypeAndOfTooManyValues) {
    const int64_t size[] = {4, 2, 2, 8, 4, 1};
    for (int d = 0; d < Z3D_DTYPE_COUNT; d++) {
        const z3d_dtype dtype = static_cast<z3d_dtype>(d);
        z3d_codec_bytes parts;
        int64_t bytes;
        EXPECT_STREQ(z3d_codec_of(dtype)->name, z3d_dtype_name(dtype));
        ASSERT_TRUE(z3d_codec_of(dtype)->layout(1000, &parts));
        EXPECT_EQ(parts.payload, 1000 * size[d]);
        EXPECT_EQ(parts.scales, 0);
        EXPECT_EQ(z3d_bytes_of(dtype, 3), 3 * size[d]);
        EXPECT_EQ(z3d_values_in(dtype, 17), 17 / size[d]);
        ASSERT_TRUE(z3d_bytes_fit(dtype, INT64_MAX / size[d], &bytes));
        EXPECT_EQ(bytes, INT64_MAX / size[d] * size[d]);
        if (size[d] == 1) continue;
        EXPECT_FALSE(z3d_bytes_fit(dtype, INT64_MAX / size[d] + 1, &bytes));
        EXPECT_EQ(z3d_bytes_of(dtype, INT64_MAX / size[d] + 1), INT64_MAX);
    }
}

// int8 in blocks of 32, each with an fp32 scale: no row of the table has scales.
static bool int8_layout(int64_t count, z3d_codec_bytes *out) {
    out->payload = count;
    out->scales = (count + 31) / 32 * 4;
    return true;
}

TEST(Codec, BytesOfOneOfItsOwnHaveItsScales) {
    const z3d_codec int8 = {"int8x32", int8_layout, nullptr, nullptr};
    int64_t bytes;
    ASSERT_TRUE(z3d_codec_fit(&int8, 65, &bytes));
    EXPECT_EQ(bytes, 65 + 3 * 4);
    EXPECT_FALSE(z3d_codec_fit(&int8, INT64_MAX - 64, &bytes));
}

TEST(Codec, ValuesGoThereAndBackAlsoInPlace) {
    const float value[] = {1.0f, -2.5f, 65520.0f, 1e-7f, 3.14159f, -0.0f, 1e30f};
    const int64_t count = sizeof value / sizeof *value;
    for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16, Z3D_F16}) {
        const z3d_codec *codec = z3d_codec_of(dtype);
        float in_place[count], back[count];
        char stored[4 * count];
        memcpy(in_place, value, sizeof value);
        codec->encode(stored, value, count);
        codec->encode(in_place, in_place, count);
        EXPECT_EQ(memcmp(stored, in_place, static_cast<size_t>(z3d_bytes_of(dtype, count))), 0);
        codec->decode(back, stored, count);
        for (int64_t i = 0; i < count; i++) {
            float expected = dtype == Z3D_BF16  ? bf16.to_float(bf16.from_float(value[i]))
                             : dtype == Z3D_F16 ? fp16.to_float(fp16.from_float(value[i]))
                                                : value[i];
            EXPECT_EQ(memcmp(&back[i], &expected, sizeof expected), 0) << codec->name << i;
        }
    }
}

TEST(Dtypes, SizesAndNames) {
    EXPECT_EQ(z3d_dtype_size(Z3D_F32), 4u);
    EXPECT_EQ(z3d_dtype_size(Z3D_BF16), 2u);
    EXPECT_EQ(z3d_dtype_size(Z3D_F16), 2u);
    EXPECT_EQ(z3d_dtype_size(Z3D_F64), 8u);
    EXPECT_EQ(z3d_dtype_size(Z3D_I32), 4u);
    EXPECT_EQ(z3d_dtype_size(Z3D_U8), 1u);
    EXPECT_EQ(z3d_dtype_size(Z3D_DTYPE_COUNT), 0u);
    EXPECT_STREQ(z3d_dtype_name(Z3D_BF16), "bf16");
    EXPECT_STREQ(z3d_dtype_name(Z3D_F32), "fp32");
    EXPECT_STREQ(z3d_dtype_name(Z3D_DTYPE_COUNT), "?");
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
