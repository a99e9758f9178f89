// Pipelines: every schedule with every ZeRO stage trains like one rank, and equally to the bit
// across stages and schedules. Without a tied table it trains like one pipeline stage to the bit,
// whatever else is on.
//
// What fewer ranks have computed is in files: ctest runs the worlds in order.
#include "tests/zero/harness.h"
#include "tests/zero/random_schedule.h"

#include <cmath>
#include <fstream>

using namespace harness;

namespace {

struct Sizes {
    int pipeline, tensor, data;
};

std::vector<Sizes> sizes_of_world() {
    std::vector<Sizes> list;
    for (int pipeline : {1, 2, 4})
        for (int tensor : {1, 2})
            for (int data : {1, 2})
                if (pipeline * tensor * data == z3d_world_size(world))
                    list.push_back({pipeline, tensor, data});
    return list;
}

Options with_sizes(const Sizes &s) {
    Options o;
    o.pipeline = s.pipeline, o.tensor = s.tensor, o.data = s.data;
    o.layers = 7; // with embedding and head 9 units: no number of chunks divides them
    o.global_batch = 16;
    o.accumulation = 8 / s.data;
    o.reduce_per_step = 0;
    o.steps = SANITIZED || z3d_world_size(world) > 2 ? 2 : 3;
    return o;
}

std::vector<Schedule> schedules_of(int pipeline) {
    if (pipeline == 1) return {SCHEDULES[0]};
    return {std::begin(SCHEDULES), std::end(SCHEDULES)};
}

std::vector<double> numbers_of(const Result &r) {
    std::vector<double> all = r.loss;
    all.insert(all.end(), r.norm.begin(), r.norm.end());
    for (size_t k = 0; k < r.loss.size(); k++) {
        all.push_back(r.scale[k]);
        all.push_back(r.skipped[k]);
        all.push_back(r.overflow_group[k]);
    }
    return all;
}

void keep(const std::string &name, const std::vector<double> &numbers) {
    if (z3d_world_rank(world) != 0) return;
    std::ofstream("pipeline-" + name + ".bin", std::ios::binary)
        .write((const char *)numbers.data(), (long)(numbers.size() * sizeof(double)));
}

std::vector<double> kept(const std::string &name) {
    std::ifstream in("pipeline-" + name + ".bin", std::ios::binary | std::ios::ate);
    EXPECT_TRUE(in.good()) << name << ": run the test on fewer ranks first";
    std::vector<double> numbers(in.good() ? (size_t)in.tellg() / sizeof(double) : 0);
    in.seekg(0);
    in.read((char *)numbers.data(), (long)(numbers.size() * sizeof(double)));
    return numbers;
}

std::string at_sizes(const char *what, const Sizes &s) {
    return std::string(what) + "-t" + std::to_string(s.tensor) + "-d" + std::to_string(s.data);
}

void expect_like_one_rank(const Result &r) {
    std::vector<double> one = kept("one-rank");
    size_t steps = one.size() / (numbers_of(r).size() / r.loss.size());
    ASSERT_GE(steps, r.loss.size());
    for (size_t k = 0; k < r.loss.size(); k++) {
        double norm = one[steps + k];
        EXPECT_LT(std::fabs(r.loss[k] - one[k]) / one[k], 1e-5) << "step " << k + 1;
        EXPECT_LT(std::fabs(r.norm[k] - norm) / norm, 1e-4) << "step " << k + 1;
    }
}

} // namespace

TEST(Pipeline, TrainsLikeOneRank) {
    for (const Sizes &s : sizes_of_world()) {
        Options o = with_sizes(s);
        Result first;
        const std::vector<Schedule> schedules = schedules_of(s.pipeline);
        for (size_t k = 0; k < schedules.size(); k++) {
            const Schedule &schedule = schedules[k];
            o.schedule = schedule.kind, o.chunks = schedule.chunks;
            for (o.stage = 0; o.stage < 4; o.stage++) {
                if (SANITIZED && o.stage != 0 && o.stage != 3) continue;
                // One data rank shards nothing: a stage for each schedule.
                bool own = s.pipeline == 1 || o.stage == (int)k % 4;
                if (s.data == 1 && !own) continue;
                o.gather_per_step = o.stage == 3 && s.tensor == 1;
                SCOPED_TRACE(name_of(o));
                Result r = train(o);
                ASSERT_EQ((size_t)o.steps, r.loss.size());
                if (first.loss.empty()) first = r;
                EXPECT_TRUE(same_bits(first.loss, r.loss));
                EXPECT_TRUE(same_bits(first.norm, r.norm));
            }
        }
        if (z3d_world_size(world) == 1) keep("one-rank", numbers_of(first));
        SCOPED_TRACE(name_of(o));
        expect_like_one_rank(first);
    }
}

// The tied table's gradients of embedding and head are added on two stages, then together, instead
// of one after the other: its sum alone differs in the last bits.
TEST(Pipeline, OnlyTheTiedTablesSumDiffersFromOneStages) {
    for (const Sizes &s : sizes_of_world()) {
        Options o = with_sizes(s);
        o.stage = 2;
        Trainer t(o);
        z3d_step_result result;
        ASSERT_Z3D(t.create());
        ASSERT_Z3D(t.step(&result));
        std::vector<double> all = {result.loss};
        size_t table = 0; // numbers of the table's gradient, which come behind the loss
        for (int g = 0; g < t.model->num_groups; g++)
            for (int i = 0; i < t.model->group[g].num_parameters; i++) {
                const z3d_parameter &p = t.model->group[g].parameter[i];
                int64_t count = 1;
                for (int d = 0; d < p.dims; d++) count *= p.shape[d];
                std::vector<float> gradient((size_t)count);
                ASSERT_Z3D(z3d_engine_get(t.engine, Z3D_TENSOR_GRADIENT, g, i, gradient.data()));
                all.insert(all.end(), gradient.begin(), gradient.end());
                if (g == 0) table += gradient.size();
            }
        if (s.pipeline == 1) {
            keep(at_sizes("gradients", s), all);
            continue;
        }
        std::vector<double> one = kept(at_sizes("gradients", s));
        ASSERT_EQ(one.size(), all.size());
        size_t differ = 0;
        for (size_t k = 1; k <= table; k++) {
            EXPECT_NEAR(one[k], all[k], 1e-6);
            differ += one[k] != all[k];
        }
        EXPECT_GT(differ, 0u) << "the sums are equal now: say so";
        one.erase(one.begin() + 1, one.begin() + 1 + (long)table);
        all.erase(all.begin() + 1, all.begin() + 1 + (long)table);
        EXPECT_TRUE(same_bits(one, all)) << name_of(o);
    }
}

namespace {

// What else may be on in a run; every one at tensor size 2 or at data size 2.
struct Feature {
    const char *name;
    bool tensor;
    void (*set)(Options &o);
};

const Feature FEATURES[] = {
    {"fp32", false, [](Options &) {}},
    {"fp32 of tensor ranks", true, [](Options &) {}},
    {"one reduction a step", false, [](Options &o) { o.reduce_per_step = 1; }},
    {"bf16", true, [](Options &o) { o.dtype = Z3D_BF16; }},
    {"bf16, fp32 gradients", false,
     [](Options &o) {
         o.dtype = Z3D_BF16;
         o.grad_fp32 = true;
     }},
    {"fp16, skipped steps", true,
     [](Options &o) {
         o.dtype = Z3D_F16;
         o.scaler = {true, 1048576, 1, 1000, 1};
     }},
    {"clipping", false, [](Options &o) { o.clipping = 0.01; }},
    {"dropout", true, [](Options &o) { o.dropout = 0.1; }},
    {"sequence parallelism", true,
     [](Options &o) {
         o.sequence_parallel = true;
         o.dropout = 0.1;
     }},
    {"P_a", true, [](Options &o) { o.partition = true; }},
    {"P_a+cpu", true,
     [](Options &o) {
         o.partition = true;
         o.checkpoint_space = Z3D_SPACE_HOST;
     }},
    {"P_a+nvme", true,
     [](Options &o) {
         o.partition = true;
         o.checkpoint_space = Z3D_SPACE_DISK;
     }},
    {"no recompute", false, [](Options &o) { o.recompute = false; }},
    {"selective recompute", true,
     [](Options &o) {
         o.recompute = false;
         o.selective = true;
     }},
    {"activations kept", true, [](Options &o) { o.keep_activation = true; }},
    {"every second checkpoint", false, [](Options &o) { o.checkpoint_every = 2; }},
    {"full replay", true, [](Options &o) { o.replay_full = true; }},
    {"no overlap", false, [](Options &o) { o.overlap = false; }},
    {"small buckets", false, [](Options &o) { o.bucket = 500; }},
    {"SGD", true, [](Options &o) { o.optimizer = Z3D_OPTIMIZER_sgd; }},
    {"gathered once a step", false, [](Options &o) { o.gather_per_step = true; }},
};

} // namespace

// Each in another stage and schedule, two of them on two pipeline stages.
TEST(Pipeline, WithoutATiedTableItEqualsOneStage) {
    size_t turn = 0, count = std::size(SCHEDULES);
    for (const Feature &f : FEATURES) {
        turn++;
        Sizes s = {z3d_world_size(world) / 2, f.tensor ? 2 : 1, f.tensor ? 1 : 2};
        if (s.pipeline == 0) continue;
        if (SANITIZED && s.pipeline > 1 && turn % 3 != 0) continue;
        SCOPED_TRACE(f.name);
        Options o = with_sizes(s);
        o.tied = false;
        o.accumulation = 4;
        o.global_batch = 4 * s.data;
        o.steps = 3; // fp16 skips one or two
        f.set(o);
        std::string name = "feature-" + std::to_string(turn);
        if (s.pipeline == 1) {
            o.stage = 0;
            keep(name, numbers_of(train(o)));
            continue;
        }
        for (int way = s.pipeline == 4; way < 2; way++) {
            const Schedule &schedule = SCHEDULES[(turn + (size_t)way) % count];
            o.schedule = schedule.kind, o.chunks = schedule.chunks;
            o.stage = way == 0 ? 3 : (int)turn % 4;
            SCOPED_TRACE(name_of(o));
            EXPECT_TRUE(same_bits(numbers_of(train(o)), kept(name)));
        }
    }
}

// A user's own schedule, whatever its order, changes no bit either.
TEST(Pipeline, AnyScheduleThatCanRunGivesTheSameBits) {
    for (const Sizes &s : sizes_of_world()) {
        if (s.pipeline == 1) continue;
        Options o = with_sizes(s);
        o.accumulation = 4;
        o.global_batch = 8 * s.data;
        Result expected = train(o);
        o.schedule = Z3D_SCHEDULE_FILE;
        for (unsigned seed = 0; seed < 4; seed++) {
            o.stage = (int)seed;
            o.chunks = seed % 2 ? 2 : 1;
            o.recompute = seed < 2;
            if (seed < 2) o.checkpoint_space = seed ? Z3D_SPACE_HOST : Z3D_SPACE_DISK;
            RandomSchedule any(seed, s.pipeline, o.chunks, o.accumulation);
            o.file = &any.schedule;
            SCOPED_TRACE(name_of(o));
            Result r = train(o);
            EXPECT_TRUE(same_bits(expected.loss, r.loss));
            EXPECT_TRUE(same_bits(expected.norm, r.norm));
        }
    }
}

TEST(Pipeline, StepsAreSkippedInTheTestOfFp16) {
    if (z3d_world_size(world) < 2) GTEST_SKIP() << "two tensor ranks";
    size_t turn = 0;
    for (const Feature &f : FEATURES) {
        turn++;
        if (strcmp(f.name, "fp16, skipped steps") != 0) continue;
        std::vector<double> all = kept("feature-" + std::to_string(turn));
        EXPECT_EQ(all[all.size() / 5 * 2 + 1], 1) << "the first step";
        EXPECT_GE(all[all.size() / 5 * 2 + 2], 0) << "its overflow's group";
        EXPECT_EQ(all[all.size() - 2], 0) << "the last step";
    }
}

namespace {

// On all data ranks that there are; the first data rank's first sample is always the same.
void look(Options o, double *loss, std::vector<float> *logits) {
    o.data = 0;
    o.stage = 3;
    o.accumulation = o.pipeline;    // interleaved wants as many; the first is looked at
    o.micro_batch = 2 * o.pipeline; // the same samples on all data ranks together
    SCOPED_TRACE(name_of(o));
    Trainer t(o);
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(t.evaluate(loss));
    ASSERT_Z3D(t.generate(logits));
    logits->resize((size_t)o.vocabulary);
}

} // namespace

// The last unit may be on any stage: all get its result.
TEST(Pipeline, EvaluatesAndGeneratesLikeOneStage) {
    double one, loss;
    std::vector<float> expected, logits;
    int ranks = z3d_world_size(world);
    look(with_sizes({1, 1, 1}), &one, &expected);
    for (int pipeline = 2; pipeline <= ranks && pipeline <= 4; pipeline *= 2)
        for (const Schedule &schedule : SCHEDULES) {
            Options o = with_sizes({pipeline, 1, 1});
            o.schedule = schedule.kind, o.chunks = schedule.chunks;
            look(o, &loss, &logits);
            EXPECT_NEAR(one, loss, 1e-5 * one) << name_of(o);
            // Ranks of the first data rank have its sample, on every stage.
            std::vector<float> first = expected;
            ASSERT_Z3D(z3d_world_broadcast(world, first.data(), (int64_t)first.size() * 4, 0));
            if (z3d_world_rank(world) % (ranks / pipeline) == 0) {
                EXPECT_EQ(logits, first) << name_of(o);
            }
        }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
