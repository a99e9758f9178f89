// The order of samples: the keyed permutation, the blend of files, the learning-rate schedules.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

extern "C" {
#include "src/train/data/order.h"
#include "src/train/schedule.h"
}

namespace {

TEST(Permutation, IsOne) {
    for (int64_t count : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4096, 4097}) {
        std::vector<bool> seen(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; i++) {
            int64_t to = z3d_permute(99, count, i);
            ASSERT_GE(to, 0);
            ASSERT_LT(to, count);
            ASSERT_FALSE(seen[static_cast<size_t>(to)]) << count << " " << i;
            seen[static_cast<size_t>(to)] = true;
        }
    }
}

TEST(Permutation, DependsOnItsKey) {
    int same = 0, fixed = 0, neighbours = 0;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t to = z3d_permute(1, 1000, i);
        same += to == z3d_permute(2, 1000, i);
        fixed += to == i;
        neighbours += i > 0 && std::abs(to - z3d_permute(1, 1000, i - 1)) == 1;
    }
    // Of random permutations each is about 1, 1 and 2.
    EXPECT_LT(same, 10);
    EXPECT_LT(fixed, 10);
    EXPECT_LT(neighbours, 15);
}

TEST(Permutation, LooksUniform) {
    // Where does each of 8 elements go under 8000 keys: 1000 times to each place, +- 5 sigma.
    int count[8][8] = {};
    for (uint64_t key = 0; key < 8000; key++)
        for (int64_t i = 0; i < 8; i++) count[i][z3d_permute(key, 8, i)]++;
    for (auto &row : count)
        for (int c : row) EXPECT_NEAR(c, 1000, 150);
}

TEST(Permutation, ReachesLargeDomains) {
    int64_t count = (int64_t(1) << 40) + 12345;
    std::set<int64_t> seen;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t to = z3d_permute(7, count, count - 1 - i);
        ASSERT_GE(to, 0);
        ASSERT_LT(to, count);
        seen.insert(to);
    }
    EXPECT_EQ(seen.size(), 1000u);
    EXPECT_GT(*seen.rbegin() - *seen.begin(), count / 2);
}

TEST(Blend, EveryPrefixIsNearItsShares) {
    const double weight[] = {5, 1, 2.5, 0.25};
    double total = 8.75;
    z3d_blend *blend;
    ASSERT_EQ(z3d_blend_create(weight, 4, &blend), Z3D_OK);
    std::vector<int64_t> given(4);
    for (int64_t k = 0; k < 3 * Z3D_BLEND_PERIOD; k++) {
        int source;
        int64_t nth;
        z3d_blend_locate(blend, k, &source, &nth);
        ASSERT_GE(source, 0);
        ASSERT_LT(source, 4);
        // The index within the source counts without gaps, across periods too.
        ASSERT_EQ(nth, given[static_cast<size_t>(source)]++) << k;
        for (int i = 0; i < 4; i++)
            ASSERT_NEAR(static_cast<double>(given[static_cast<size_t>(i)]),
                        static_cast<double>(k + 1) * weight[i] / total, 5)
                << k;
    }
    free(blend);
}

TEST(Blend, OneSourceAndTinyWeights) {
    const double one[] = {0.001};
    z3d_blend *blend;
    int source;
    int64_t nth;
    ASSERT_EQ(z3d_blend_create(one, 1, &blend), Z3D_OK);
    z3d_blend_locate(blend, 123456789012345, &source, &nth);
    EXPECT_EQ(source, 0);
    EXPECT_EQ(nth, 123456789012345);
    free(blend);

    const double tiny[] = {1e300, 1e-300, 1e300}; // the tiny one still comes once a period
    ASSERT_EQ(z3d_blend_create(tiny, 3, &blend), Z3D_OK);
    int64_t count[3] = {};
    for (int64_t k = 0; k < Z3D_BLEND_PERIOD; k++) {
        z3d_blend_locate(blend, k, &source, &nth);
        count[source]++;
    }
    EXPECT_EQ(count[1], 1);
    EXPECT_NEAR(static_cast<double>(count[0]), static_cast<double>(count[2]), 1.0);
    free(blend);
}

TEST(Blend, RefusesBadWeights) {
    z3d_blend *blend;
    for (double bad : {0.0, -1.0, std::nan(""), static_cast<double>(INFINITY)}) {
        const double weight[] = {1, bad};
        EXPECT_EQ(z3d_blend_create(weight, 2, &blend), Z3D_ERR_CONFIG);
        EXPECT_EQ(blend, nullptr);
    }
    std::vector<double> many(Z3D_BLEND_MAX + 1, 1.0);
    EXPECT_EQ(z3d_blend_create(many.data(), static_cast<int>(many.size()), &blend), Z3D_ERR_CONFIG);
    EXPECT_EQ(z3d_blend_create(many.data(), 0, &blend), Z3D_ERR_CONFIG);
}

class Schedule : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(z3d_config_create(&config), Z3D_OK);
        config->optimizer_params_lr = 1e-3;
        config->scheduler_params_min_lr = 1e-4;
        config->scheduler_params_warmup_num_steps = 10;
        config->scheduler_params_total_num_steps = 110;
        config->training_steps = 1000;
    }
    void TearDown() override {
        z3d_config_destroy(config);
    }
    float at(int kind, int64_t step) {
        config->scheduler_type = kind;
        return z3d_learning_rate(config, step);
    }
    z3d_config *config = nullptr;
};

TEST_F(Schedule, Constant) {
    EXPECT_FLOAT_EQ(at(Z3D_LR_CONSTANT, 1), 1e-3f);
    EXPECT_FLOAT_EQ(at(Z3D_LR_CONSTANT, 5000), 1e-3f);
}

TEST_F(Schedule, WarmUp) {
    for (int kind : {Z3D_LR_WARMUP, Z3D_LR_WARMUP_DECAY, Z3D_LR_WARMUP_COSINE}) {
        EXPECT_FLOAT_EQ(at(kind, 1), 1e-4f);
        EXPECT_FLOAT_EQ(at(kind, 5), 5e-4f);
        EXPECT_FLOAT_EQ(at(kind, 10), 1e-3f);
    }
    EXPECT_FLOAT_EQ(at(Z3D_LR_WARMUP, 100000), 1e-3f);
}

TEST_F(Schedule, Decays) {
    config->scheduler_params_total_num_steps = 109; // 100 steps of decay
    EXPECT_FLOAT_EQ(at(Z3D_LR_WARMUP_DECAY, 60), 5.5e-4f);
    EXPECT_FLOAT_EQ(at(Z3D_LR_WARMUP_COSINE, 60), 5.5e-4f);
    EXPECT_FLOAT_EQ(at(Z3D_LR_WARMUP_DECAY, 35), 1e-4f + 9e-4f * 0.75f);
    EXPECT_FLOAT_EQ(at(Z3D_LR_WARMUP_COSINE, 35),
                    static_cast<float>(1e-4 + 9e-4 * 0.5 * (1 + std::cos(M_PI / 4))));
    EXPECT_FLOAT_EQ(at(Z3D_LR_WARMUP_DECAY, 109), 1e-4f + 9e-4f * 0.01f);
    for (int kind : {Z3D_LR_WARMUP_DECAY, Z3D_LR_WARMUP_COSINE}) {
        EXPECT_GT(at(kind, 109), 1e-4f);
        EXPECT_FLOAT_EQ(at(kind, 110), 1e-4f);
        EXPECT_FLOAT_EQ(at(kind, 100000), 1e-4f);
    }
}

// transformers 5.24's own, in thousandths of 1, of 12 steps with a peak of 1e-3; names as written.
TEST_F(Schedule, EqualsTransformers) {
    const struct {
        const char *type, *params;
        int64_t warmup;
        double rate[12];
    } known[] = {
        {"linear",
         "",
         3,
         {0, 0.333333, 0.666667, 1, 0.888889, 0.777778, 0.666667, 0.555556, 0.444444, 0.333333,
          0.222222, 0.111111}},
        {"cosine",
         "",
         3,
         {0, 0.333333, 0.666667, 1, 0.969846, 0.883022, 0.75, 0.586824, 0.413176, 0.25, 0.116978,
          0.0301537}},
        {"cosine_with_restarts",
         "num_cycles: 2",
         3,
         {0, 0.333333, 0.666667, 1, 0.883022, 0.586824, 0.25, 0.0301537, 0.969846, 0.75, 0.413176,
          0.116978}},
        {"cosine_with_restarts",
         "num_cycles: 3",
         0,
         {1, 0.853553, 0.5, 0.146447, 1, 0.853553, 0.5, 0.146447, 1, 0.853553, 0.5, 0.146447}},
        {"constant_with_warmup", "", 3, {0, 0.333333, 0.666667, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
        {"inverse_sqrt",
         "",
         3,
         {0, 0.333333, 0.666667, 1, 0.866025, 0.774597, 0.707107, 0.654654, 0.612372, 0.57735,
          0.547723, 0.522233}},
        {"polynomial",
         "min_lr: 1e-4, power: 2",
         3,
         {0, 0.333333, 0.666667, 1, 0.811111, 0.644444, 0.5, 0.377778, 0.277778, 0.2, 0.144444,
          0.111111}},
        {"warmup_stable_decay",
         "num_decay_steps: 4",
         3,
         {0, 0.333333, 0.666667, 1, 1, 1, 1, 1, 1, 0.853553, 0.5, 0.146447}},
        {"wsd",
         "num_decay_steps: 4, decay_type: linear, min_lr: 1e-4",
         3,
         {0.1, 0.4, 0.7, 1, 1, 1, 1, 1, 1, 0.775, 0.55, 0.325}},
        {"WSD",
         "num_decay_steps: 4, decay_type: 1-sqrt",
         3,
         {0, 0.333333, 0.666667, 1, 1, 1, 1, 1, 1, 0.5, 0.292893, 0.133975}},
        {"cosine_with_min_lr",
         "min_lr: 1e-4",
         3,
         {0, 0.333333, 0.666667, 1, 0.972862, 0.89472, 0.775, 0.628142, 0.471858, 0.325, 0.20528,
          0.127138}},
        {"linear",
         "",
         0,
         {1, 0.916667, 0.833333, 0.75, 0.666667, 0.583333, 0.5, 0.416667, 0.333333, 0.25, 0.166667,
          0.0833333}},
        {"inverse_sqrt",
         "",
         0,
         {1, 0.99995, 0.9999, 0.99985, 0.9998, 0.99975, 0.9997, 0.99965, 0.9996, 0.99955, 0.9995,
          0.99945}},
        {"polynomial",
         "min_lr: 1e-4, power: 2",
         0,
         {1, 0.85625, 0.725, 0.60625, 0.5, 0.40625, 0.325, 0.25625, 0.2, 0.15625, 0.125, 0.10625}},
    };
    for (const auto &k : known)
        for (bool ratio : {false, true}) {
            SCOPED_TRACE(std::string(k.type) + " " + k.params + (ratio ? " ratio" : ""));
            std::string warmup = ratio ? "warmup_ratio: " + std::to_string(k.warmup / 12.001)
                                       : "warmup_num_steps: " + std::to_string(k.warmup);
            std::string text = "optimizer: {params: {lr: 1e-3}}\ntraining: {steps: 12}\nscheduler: "
                               "{type: " +
                               std::string(k.type) + ", params: {" + warmup +
                               (*k.params ? ", " : "") + k.params + "}}\n";
            z3d_config *c;
            int data;
            ASSERT_EQ(z3d_config_create(&c), Z3D_OK);
            ASSERT_EQ(z3d_config_read_text(c, text.c_str(), text.size(), "run.yaml"), Z3D_OK)
                << z3d_error_message();
            ASSERT_EQ(z3d_config_settle(c, nullptr, 1, &data), Z3D_OK) << z3d_error_message();
            EXPECT_EQ(c->scheduler_params_warmup_num_steps, k.warmup);
            for (int step = 1; step <= 12; step++)
                EXPECT_NEAR(z3d_learning_rate(c, step), 1e-3 * k.rate[step - 1], 1e-9) << step;
            z3d_config_destroy(c);
        }
}

TEST_F(Schedule, TotalFollowsTheRunWhenAuto) {
    config->scheduler_params_total_num_steps = Z3D_AUTO;
    EXPECT_GT(at(Z3D_LR_WARMUP_DECAY, 999), 1e-4f);
    EXPECT_GT(at(Z3D_LR_WARMUP_DECAY, 1000), 1e-4f);
    EXPECT_FLOAT_EQ(at(Z3D_LR_WARMUP_DECAY, 1001), 1e-4f);
}

// Whatever the lengths: the first step's rate is above 0, the last one's above the minimum, and the
// peak is the rate at the end of the warm-up.
TEST_F(Schedule, EveryStepTrains) {
    config->scheduler_params_min_lr = 0;
    for (int64_t total = 1; total <= 12; total++)
        for (int64_t warmup = 0; warmup <= total; warmup++)
            for (int kind : {Z3D_LR_WARMUP, Z3D_LR_WARMUP_DECAY, Z3D_LR_WARMUP_COSINE}) {
                SCOPED_TRACE(std::to_string(total) + " steps, warm-up " + std::to_string(warmup));
                config->scheduler_params_warmup_num_steps = warmup;
                config->scheduler_params_total_num_steps = total;
                for (int64_t step = 1; step <= total; step++) EXPECT_GT(at(kind, step), 0);
                EXPECT_FLOAT_EQ(at(kind, warmup ? warmup : 1), 1e-3f);
            }
    EXPECT_EQ(at(Z3D_LR_WARMUP_DECAY, 13), 0);
}

TEST_F(Schedule, NoWarmUpAndNoRoomToDecay) {
    config->scheduler_params_warmup_num_steps = 0;
    EXPECT_FLOAT_EQ(at(Z3D_LR_WARMUP, 1), 1e-3f);
    config->scheduler_params_warmup_num_steps = 200; // longer than total
    EXPECT_FLOAT_EQ(at(Z3D_LR_WARMUP_COSINE, 100), 5e-4f);
    EXPECT_FLOAT_EQ(at(Z3D_LR_WARMUP_COSINE, 200), 1e-4f);
}

} // namespace

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
