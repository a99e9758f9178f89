/* Philox against its authors' known answers; the distributions drawn from it. */
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

extern "C" {
#include "src/base/rng.h"
}

static void expect_block(z3d_philox_block block, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    EXPECT_EQ(block.word[0], a);
    EXPECT_EQ(block.word[1], b);
    EXPECT_EQ(block.word[2], c);
    EXPECT_EQ(block.word[3], d);
}

/* Random123's known-answer vectors of philox4x32, 10 rounds. */
TEST(Philox, KnownAnswers) {
    expect_block(z3d_philox(0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
    expect_block(z3d_philox(UINT64_MAX, UINT64_MAX, UINT64_MAX), 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
                 0x6d5451fd);
    expect_block(z3d_philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e), 0xd16cfe09,
                 0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(Philox, UniformIsAboveZeroAndAtMostOne) {
    EXPECT_EQ(z3d_philox_uniform(0), 0x1p-24f);
    EXPECT_EQ(z3d_philox_uniform(0xFFFFFFFF), 1.0f);
    EXPECT_EQ(z3d_philox_uniform(0x80000000), 0.5f + 0x1p-24f);
    double sum = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        sum += z3d_philox_uniform(z3d_philox(7, i, 0).word[i % 4]);
    }
    EXPECT_NEAR(sum / 100000, 0.5, 0.004);
}

TEST(Normal, MomentsAndTails) {
    const int count = 400000;
    double sum[5] = {};
    int beyond[5] = {};
    for (int i = 0; i < count; i++) {
        double x = z3d_philox_normal(42, static_cast<uint64_t>(i));
        ASSERT_TRUE(std::isfinite(x));
        for (int power = 1; power < 5; power++) sum[power] += std::pow(x, power);
        for (int k = 1; k < 5; k++) beyond[k] += std::fabs(x) > k;
    }
    EXPECT_NEAR(sum[1] / count, 0, 0.008); /* five deviations of each estimate */
    EXPECT_NEAR(sum[2] / count, 1, 0.012);
    EXPECT_NEAR(sum[3] / count, 0, 0.031);
    EXPECT_NEAR(sum[4] / count, 3, 0.078);
    EXPECT_NEAR(beyond[1] / (double)count, 0.3173, 0.004);
    EXPECT_NEAR(beyond[2] / (double)count, 0.0455, 0.0017);
    EXPECT_NEAR(beyond[3] / (double)count, 0.0027, 0.0005);
}

TEST(Normal, NeighboursAndKeysDoNotCorrelate) {
    const int count = 200000;
    double lag[5] = {}, keys = 0;
    std::vector<float> x(count + 4), y(count);
    z3d_philox_normal_fill(1, 0, count + 4, x.data());
    z3d_philox_normal_fill(2, 0, count, y.data());
    for (int i = 0; i < count; i++) {
        for (int k = 1; k < 5; k++) lag[k] += x[i] * x[i + k];
        keys += x[i] * y[i];
    }
    for (int k = 1; k < 5; k++) EXPECT_NEAR(lag[k] / count, 0, 0.0112) << k;
    EXPECT_NEAR(keys / count, 0, 0.0112);
}

/* Box and Muller, of this element's two words. */
float normal_of(uint64_t key, uint64_t index) {
    const z3d_philox_block block = z3d_philox(key, index / 4, 0);
    const uint32_t *word = block.word + index % 4 / 2 * 2;
    const double radius = std::sqrt(-2 * std::log((word[0] + 1.0) / 4294967296.0));
    const double angle = word[1] / 4294967296.0 * 6.283185307179586476925;
    return static_cast<float>(radius * (index % 2 ? std::sin(angle) : std::cos(angle)));
}

TEST(Normal, FillGivesTheSameElementsFromAnyStart) {
    for (uint64_t first : {0ull, 1ull, 2ull, 3ull, 4ull, 1000003ull, (1ull << 40) + 1}) {
        for (int64_t count : {0, 1, 2, 3, 5, 64}) {
            std::vector<float> values(static_cast<size_t>(count) + 1, -77.0f);
            z3d_philox_normal_fill(9, first, count, values.data());
            for (int64_t i = 0; i < count; i++) {
                const uint64_t index = first + static_cast<uint64_t>(i);
                ASSERT_EQ(values[static_cast<size_t>(i)], z3d_philox_normal(9, index));
                ASSERT_FLOAT_EQ(values[static_cast<size_t>(i)], normal_of(9, index));
            }
            EXPECT_EQ(values.back(), -77.0f);
        }
    }
}

/* Weights of old runs are drawn again from their seeds: these values must never change. */
TEST(Normal, StaysWhatItIs) {
    EXPECT_FLOAT_EQ(z3d_philox_normal(0, 0), 0.991137683f);
    EXPECT_FLOAT_EQ(z3d_philox_normal(0, 3), -0.482068598f);
    EXPECT_EQ(z3d_key(1, "block.0/attn.c_attn.weight"), 0xb4fd11d4bd7a566du);
}

TEST(Key, EveryBitOfSeedAndTextCounts) {
    std::set<uint64_t> keys;
    for (uint64_t seed = 0; seed < 64; seed++) {
        for (int unit = 0; unit < 64; unit++) {
            keys.insert(z3d_key(seed, ("block." + std::to_string(unit)).c_str()));
        }
    }
    EXPECT_EQ(keys.size(), 64u * 64u);
    EXPECT_NE(z3d_key(1, "ab"), z3d_key(1, "ba"));
    EXPECT_NE(z3d_key(1, ""), z3d_key(2, ""));
    int flipped = 0;
    for (int bit = 0; bit < 64; bit++) {
        flipped += __builtin_popcountll(z3d_key(5, "w") ^ z3d_key(5 ^ (1ull << bit), "w"));
    }
    EXPECT_NEAR(flipped / 64.0, 32, 4);
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
