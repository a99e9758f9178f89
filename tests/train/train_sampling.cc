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
    const z3d_sampling sampling = {
        .repetition_penalty = 1, .temperature = temperature, .top_k = top_k, .top_p = top_p};
    return z3d_sample_token(logits.data(), static_cast<int32_t>(logits.size()), &sampling, uniform,
                            scratch.data());
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

// What transformers 5.23.0 makes of logits: RepetitionPenaltyLogitsProcessor,
// TemperatureLogitsWarper, TopKLogitsWarper and TopPLogitsWarper, in the order of GenerationMixin,
// then softmax in fp64.
struct Warped {
    double penalty, temperature;
    int64_t top_k;
    double top_p;
    std::vector<float> logits;
    std::vector<int32_t> text;
    std::vector<double> probability;
};
const std::vector<Warped> transformers{
    {1,
     1,
     0,
     1,
     {0.256,  -3.057, -1.189, 0.133, -2.471, -1.243, -1.778, 0.998, -1.574, 0.237,  -1.514, 0.987,
      -1.679, -2.03,  -0.685, 3.769, -0.542, -2.903, -2.16,  5.13,  -0.44,  -0.179, 0.553,  3.225},
     {14, 8, 12, 16, 22, 8},
     {0.005111439,  0.0001860911, 0.001205002,  0.00451986,  0.000334366,  0.001141657,
      0.0006686336, 0.01073469,   0.0008199441, 0.005015238, 0.0008706466, 0.01061726,
      0.0007382158, 0.0005196919, 0.001994675,  0.1714825,   0.002301315,  0.0002170735,
      0.0004563391, 0.6687973,    0.002548439,  0.003308454, 0.006879052,  0.09953216}},
    {1.3,
     1,
     0,
     1,
     {-0.864, 0.309,  -1.141, 3.727,  4.14,  -0.823, -2.204, 1.769,  -0.617, 0.541, -3.657, 1.79,
      -1.387, -1.233, -1.209, -2.396, 0.089, -0.367, 1.516,  -1.687, -3.326, 3.507, -0.588, 2.629},
     {15, 13, 2, 4, 3, 14},
     {0.003714537,  0.01200417,  0.001999614,  0.1549616,    0.21291,     0.003869999,
      0.0009726356, 0.05168948,  0.004755273,  0.0151387,    0.000227468, 0.05278643,
      0.002201754,  0.001774208, 0.001830436,  0.0003911964, 0.009633573, 0.006105892,
      0.04013522,   0.001631099, 0.0003167173, 0.2939043,    0.004895195, 0.1221505}},
    {1,
     0.7,
     5,
     1,
     {0.618,  4.021,  3.349, 1.006, 2.055,  1.27,   -0.344, -0.442, -1.459, 3.042, -1.882, -0.873,
      -0.403, -1.735, 3.107, 1.07,  -4.508, -2.012, 1.744,  -1.068, 0.33,   0.508, 0.327,  -1.332},
     {19, 2, 18, 15, 23, 14},
     {0, 0.5099147, 0.1952427, 0, 0.03074331, 0, 0, 0, 0, 0.1259232, 0, 0,
      0, 0,         0.1381761, 0, 0,          0, 0, 0, 0, 0,         0, 0}},
    {1,
     1,
     0,
     0.8,
     {-1.675, 0.684,  0.214,  0.652,  1.443,  -0.21, -2.063, 1.827,  1.019, -2.097, -2.147, 0.803,
      1.3,    -3.218, -0.652, -1.099, -0.407, 1.096, 3.611,  -1.643, 3.187, 2.203,  4.569,  0.239},
     {9, 21, 2, 6, 23, 21},
     {0, 0, 0, 0, 0, 0, 0,         0, 0,         0,          0,         0,
      0, 0, 0, 0, 0, 0, 0.2219493, 0, 0.1452489, 0.05429591, 0.5785059, 0}},
    {1,
     1.5,
     7,
     0.6,
     {-0.564, 2.158, -0.246, -2.525, -0.621, -0.675, 1.557,  3.217, 4.182, -2.146, 0.412,  0.597,
      -4.83,  2.981, 2.238,  -0.191, -0.061, 1.55,   -4.427, 0.087, -2.08, -0.665, -1.183, -1.306},
     {7, 23, 17, 4, 11, 8},
     {0, 0,         0, 0, 0, 0, 0, 0.2661534, 0.5064401, 0, 0, 0,
      0, 0.2274065, 0, 0, 0, 0, 0, 0,         0,         0, 0, 0}},
    {1.2,
     0.9,
     6,
     0.9,
     {-2.574, 1.431, 0.91,   2.168, -0.078, -0.335, -0.375, 2.155,  1.641, 2.027, -1.435, 0.556,
      -1.321, 3.173, -1.965, 2.632, -0.895, -2.128, 2.583,  -2.427, 1.865, 1.16,  -1.287, -1.925},
     {18, 17, 6, 16, 11, 7},
     {0, 0,         0, 0.1321503, 0, 0, 0,         0, 0, 0.1129871, 0, 0,
      0, 0.4036738, 0, 0.2212948, 0, 0, 0.1298939, 0, 0, 0,         0, 0}},
    {0.8,
     2,
     0,
     0.5,
     {-2.024, 1.325, 0.884, 0.943, -0.017, 1.41,   2.68,  -0.158, 2.467, 0.444,  -3.142, 2.719,
      0.768,  2.744, -0.68, 0.306, -0.812, -2.477, 0.731, 3.321,  0.596, -0.377, -1.067, -2.363},
     {23, 23, 3, 15, 21, 23},
     {0, 0,         0, 0, 0, 0, 0.1876525, 0,         0.1686949, 0, 0, 0.1913476,
      0, 0.1937544, 0, 0, 0, 0, 0,         0.2585507, 0,         0, 0, 0}},
    {2,
     0.3,
     3,
     0.99,
     {3.505,  -0.138, -0.299, 0.67,   2.026, -3.047, 1.315,  -2.093, 1.8,   0.903,  -0.665, -2.548,
      -1.827, -2.209, -0.661, -3.279, 2.55,  0.69,   -2.862, -1.597, 2.394, -0.499, -0.395, -2.615},
     {1, 7, 21, 7, 1, 5},
     {0.9380085, 0, 0, 0, 0,          0, 0, 0, 0,         0, 0, 0,
      0,         0, 0, 0, 0.03887785, 0, 0, 0, 0.0231137, 0, 0, 0}},
};

TEST(Sampling, HasTheDistributionOfTransformers) {
    for (const Warped &w : transformers) {
        const auto count = static_cast<int32_t>(w.logits.size());
        std::vector<float> logits = w.logits;
        std::vector<int32_t> scratch(logits.size()), order(logits.size());
        z3d_penalize(logits.data(), count, w.penalty, w.text.data(),
                     static_cast<int64_t>(w.text.size()), scratch.data());
        for (int32_t i = 0; i < count; i++) order[static_cast<size_t>(i)] = i;
        std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
            return w.probability[static_cast<size_t>(a)] > w.probability[static_cast<size_t>(b)];
        });
        double below = 0;
        for (int32_t id : order) { // where each id's share begins and ends
            const double share = w.probability[static_cast<size_t>(id)];
            if (share == 0) break;
            for (double at : {below + 1e-5, below + share - 1e-5})
                EXPECT_EQ(id, draw(logits, w.temperature, w.top_k, static_cast<float>(at), w.top_p))
                    << w.penalty << " " << w.temperature << " " << w.top_k << " " << w.top_p;
            below += share;
        }
        EXPECT_NEAR(1, below, 1e-5);
    }
}

TEST(Sampling, PenalizesATokenOnce) {
    std::vector<float> logits{2, -2, 0, 4};
    std::vector<int32_t> scratch(4), text{0, 1, 0, 9, 1};
    z3d_penalize(logits.data(), 4, 2, text.data(), 5, scratch.data());
    EXPECT_EQ(logits, (std::vector<float>{1, -4, 0, 4}));
}

} // namespace

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
