// Ranks of unequal speeds: data ranks with more and less samples train as with equal shares;
// samples and units are shared out so that who takes longest takes as little as possible.
#include "tests/zero/harness.h"

extern "C" {
#include "zero/program/pipeline.h"
}

#include <cmath>
#include <functional>

using namespace harness;

namespace {

// Two data ranks with 2 samples each of a micro-batch, or 3 and 1; or four with 1 to 3 of 8.
Options unequal_options(int tensor, int pipeline) {
    Options o;
    o.tensor = tensor;
    o.pipeline = pipeline;
    o.layers = 3;
    o.dropout = 0.1; // by global samples: it does not depend on who has them
    o.micro_batch = 2;
    o.accumulation = 2;
    o.steps = SANITIZED ? 2 : 6;
    return o;
}

std::vector<int64_t> shares(int data) {
    return data == 2 ? std::vector<int64_t>{0, 3, 4} : std::vector<int64_t>{0, 1, 4, 6, 8};
}

void expect_equal_training(Options o) {
    int data = z3d_world_size(world) / o.tensor / o.pipeline;
    for (o.stage = 0; o.stage < 4; o.stage++) {
        SCOPED_TRACE(name_of(o));
        o.first_sample.clear();
        Result equal = train(o);
        o.first_sample = shares(data);
        Result unequal = train(o);
        ASSERT_EQ((size_t)o.steps, unequal.loss.size());
        for (size_t i = 0; i < equal.loss.size(); i++) {
            EXPECT_NEAR(equal.loss[i], unequal.loss[i], 1e-5);
            EXPECT_NEAR(equal.norm[i], unequal.norm[i], 1e-4 * equal.norm[i]);
        }
    }
}

// Every way to write `sum` as `count` numbers.
void each_division(int sum, int count, std::vector<int> &parts,
                   const std::function<void(const std::vector<int> &)> &visit) {
    if (count == 1) {
        parts.push_back(sum);
        visit(parts);
        parts.pop_back();
        return;
    }
    for (int first = 0; first <= sum; first++) {
        parts.push_back(first);
        each_division(sum - first, count - 1, parts, visit);
        parts.pop_back();
    }
}

} // namespace

TEST(Unequal, TrainsLikeEqualShares) {
    int ranks = z3d_world_size(world);
    expect_equal_training(unequal_options(1, 1));
    if (ranks < 4) return;
    expect_equal_training(unequal_options(2, 1));
    expect_equal_training(unequal_options(1, 2));
}

TEST(Unequal, Evaluates) {
    double loss[2] = {};
    for (int way = 0; way < 2; way++) {
        Options o = unequal_options(1, 1);
        o.stage = 3;
        if (way) o.first_sample = shares(z3d_world_size(world));
        Trainer t(o);
        ASSERT_Z3D(t.create());
        ASSERT_Z3D(t.evaluate(&loss[way]));
    }
    EXPECT_NEAR(loss[0], loss[1], 1e-5 * loss[0]);
}

// No other way to share out ends earlier.
TEST(Unequal, SamplesBySpeed) {
    const std::vector<std::vector<double>> worlds = {{1, 1},         {1, 0.5},  {0.4, 1},
                                                     {1, 0.99},      {1, 1, 1}, {0.1, 0.1, 0.1},
                                                     {1, 0.7, 0.35}, {2, 3, 4}};
    for (const auto &speed : worlds) {
        int count = (int)speed.size();
        for (int samples = count; samples < 13; samples++) {
            std::vector<int64_t> first((size_t)count + 1);
            bool all = z3d_share_samples(samples, speed.data(), count, first.data());
            auto longest = [&](const std::vector<int> &parts) {
                double time = 0;
                for (int i = 0; i < count; i++)
                    time = std::fmax(time, parts[(size_t)i] / speed[(size_t)i]);
                return time;
            };
            std::vector<int> ours, parts;
            bool some = true;
            for (int i = 0; i < count; i++) {
                ours.push_back((int)(first[(size_t)i + 1] - first[(size_t)i]));
                some = some && ours.back() > 0;
            }
            EXPECT_EQ(some, all);
            EXPECT_EQ(0, first[0]);
            EXPECT_EQ(samples, first[(size_t)count]);
            each_division(samples, count, parts, [&](const std::vector<int> &other) {
                EXPECT_LE(longest(ours), longest(other) * (1 + 1e-12))
                    << samples << " samples, speed of rank 1 " << speed[1];
            });
        }
    }
    int64_t first[3];
    const double far[] = {1, 0.1};
    EXPECT_FALSE(z3d_share_samples(8, far, 2, first));
    EXPECT_TRUE(z3d_share_samples(11, far, 2, first));
    const double half[] = {1, 0.5}; // 2 and 0 would take as long as 1 and 1
    EXPECT_TRUE(z3d_share_samples(2, half, 2, first));
}

TEST(Unequal, UnitsBySpeed) {
    Options o;
    o.layers = 7; // 9 units
    z3d_model *model;
    ASSERT_Z3D(o.create_model(&model));
    const double speeds[][3] = {{1, 1, 1}, {1, 0.5, 1}, {0.25, 1, 1}, {1, 2, 4}};
    for (const double(&speed)[3] : speeds) {
        z3d_program_config config = o.program_config();
        config.pipeline = {};
        ASSERT_Z3D(z3d_partition_units(model, 3, Z3D_BALANCE_UNIFORM, speed, &config));
        const int *at = config.pipeline.first_unit;
        auto longest = [&](int a, int b, int c) {
            return std::fmax(a / speed[0], std::fmax(b / speed[1], c / speed[2]));
        };
        double ours = longest(at[1], at[2] - at[1], 9 - at[2]);
        for (int a = 1; a < 8; a++)
            for (int b = 1; a + b < 9; b++) EXPECT_LE(ours, longest(a, b, 9 - a - b)) << speed[1];
        EXPECT_EQ(9, at[3]);
    }
    // An interleaved stage is as slow in each of its chunks.
    z3d_program_config config = o.program_config();
    config.pipeline.chunks_per_stage = 2;
    config.pipeline.schedule = Z3D_SCHEDULE_INTERLEAVED;
    const double pair[] = {2, 1};
    ASSERT_Z3D(z3d_partition_units(model, 2, Z3D_BALANCE_UNIFORM, pair, &config));
    const int *at = config.pipeline.first_unit;
    EXPECT_LE(at[1], 4);
    EXPECT_LE(at[2] - at[1], 2);
    EXPECT_LE(at[3] - at[2], 4);
    EXPECT_LE(at[4] - at[3], 2);
    // A stage that were better left out.
    const double far[] = {1, 0.05};
    config.pipeline = {};
    EXPECT_EQ(Z3D_ERR_CONFIG, z3d_partition_units(model, 2, Z3D_BALANCE_UNIFORM, far, &config));
    EXPECT_NE(strstr(z3d_error_message(), "pipeline stage 1 with speed 0.05 is too slow"), nullptr)
        << z3d_error_message();
    z3d_model_destroy(model);
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
