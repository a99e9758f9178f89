// The draw of one token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

extern "C" {
#include "src/train/generation/generate.h"
}

namespace {

int32_t draw(const std::vector<float> &logits, double temperature, int64_t top_k, float uniform,
             double top_p = 1) {
    std::vector<int32_t> scratch(logits.size());
    return z3d_sample_token(logits.data(), static_cast<int32_t>(logits.size()), temperature, top_k,
                            top_p, uniform, scratch.data());
}

TEST(Sampling, ColdIsTheMostLikely) {
    std::vector<float> logits{1, 5, 5, -3};
    for (float u : {0.01f, 0.5f, 1.0f}) {
        EXPECT_EQ(draw(logits, 0, 0, u), 1); // the smaller id of equals
        EXPECT_EQ(draw(logits, 3, 1, u), 1);
    }
}

TEST(Sampling, FollowsTheSoftmax) {
    std::vector<float> logits{0, 1, -1, 2, 0.5f};
    for (double temperature : {0.5, 1.0, 2.0}) {
        double sum = 0;
        for (float l : logits) sum += std::exp(l / temperature);
        std::map<int32_t, int> count;
        int draws = 20000;
        for (int i = 0; i < draws; i++)
            count[draw(logits, temperature, 0, (static_cast<float>(i) + 1) / draws)]++;
        for (int32_t i = 0; i < 5; i++)
            EXPECT_NEAR(count[i] / static_cast<double>(draws),
                        std::exp(logits[static_cast<size_t>(i)] / temperature) / sum, 1e-3);
    }
}

TEST(Sampling, TopKIsExactlyTheKLargest) {
    std::vector<float> logits;
    for (int i = 0; i < 300; i++) logits.push_back(static_cast<float>((i * 7919) % 101));
    for (int64_t k : {2, 3, 10, 150, 299, 300, 1000}) {
        std::vector<int32_t> ids(logits.size());
        for (size_t i = 0; i < ids.size(); i++) ids[i] = static_cast<int32_t>(i);
        std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
            return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
        });
        ids.resize(std::min<size_t>(static_cast<size_t>(k), ids.size()));
        // At a very high temperature all k are equally likely: one draw in the middle of each
        // share.
        for (size_t i = 0; i < ids.size(); i++)
            EXPECT_EQ(draw(logits, 1e9, k,
                           (static_cast<float>(i) + 0.5f) / static_cast<float>(ids.size())),
                      ids[i])
                << k << " " << i;
    }
}

// By hand: the most likely tokens until p is reached, the one that reaches it among them.
TEST(Sampling, TopPIsTheSmallestSetThatReachesP) {
    std::vector<double> share{0.5, 0.05, 0.25, 0.15, 0.05}; // by id; by rank: 0 2 3 1 4
    std::vector<float> logits;
    for (double s : share) logits.push_back(static_cast<float>(std::log(s)));
    auto kept = [&](double top_p, int64_t top_k) {
        std::map<int32_t, int> count;
        for (int i = 1; i <= 2000; i++)
            count[draw(logits, 1, top_k, static_cast<float>(i) / 2000, top_p)]++;
        return count;
    };
    EXPECT_EQ(kept(0.3, 0).size(), 1u);
    EXPECT_EQ(kept(1e-9, 0).size(), 1u); // never none
    auto two = kept(0.6, 0);             // 0.5 + 0.25
    ASSERT_EQ(two.size(), 2u);
    EXPECT_NEAR(two[0], 2000 * 0.5 / 0.75, 2); // their shares are those among themselves
    EXPECT_NEAR(two[2], 2000 * 0.25 / 0.75, 2);
    EXPECT_EQ(kept(0.8, 0).size(), 3u);
    EXPECT_EQ(kept(0.92, 0).size(), 4u);
    EXPECT_EQ(kept(0.92, 0).count(1), 1u); // of equals the smaller id
    EXPECT_EQ(kept(0.96, 0).size(), 5u);
    EXPECT_EQ(kept(0.6, 2).size(), 1u); // of the two: 0.5 of 0.75 is more than 0.6
    EXPECT_EQ(kept(0.7, 2).size(), 2u);
    for (int i = 1; i <= 2000; i++) { // 1: what it was without it, to the bit
        float u = static_cast<float>(i) / 2000;
        ASSERT_EQ(draw(logits, 0.7, 0, u, 1), draw(logits, 0.7, 0, u));
    }
    EXPECT_EQ(draw(logits, 0, 0, 1.0f, 0.9), 0);
}

TEST(Sampling, SurvivesBadLogits) {
    EXPECT_EQ(draw({1, NAN, 2}, 1, 0, 0.5f), -1);
    EXPECT_EQ(draw({-INFINITY, -INFINITY}, 1, 0, 0.5f), -1);
    EXPECT_EQ(draw({1, INFINITY}, 1, 0, 0.5f), -1);
    EXPECT_EQ(draw({-INFINITY, 3, -INFINITY}, 1, 0, 1.0f), 1);
    EXPECT_EQ(draw({1e30f, -1e30f}, 1e-6, 0, 1.0f), 0);
}

} // namespace

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
