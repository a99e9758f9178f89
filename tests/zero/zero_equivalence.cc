// Stages 0-3 train bitwise equally at equal parallel sizes, in every precision; every topology
// trains like one rank. ZERO3D_LONG: 20 steps each, and against one rank in all stages.
#include "tests/zero/harness.h"

#include <algorithm>
#include <cmath>
#include <fstream>

using namespace harness;

namespace {

struct Precision {
    const char *name;
    z3d_dtype dtype;
    z3d_loss_scaler scaler;
};

const Precision PRECISIONS[] = {
    {"fp32", Z3D_F32, {false, 1, 1, 1000, 2}},
    {"bf16", Z3D_BF16, {false, 1, 1, 1000, 2}},
    // The first scale overflows fp16: its step is skipped.
    {"fp16", Z3D_F16, {true, 1048576, 1, 1000, 1}},
};

std::vector<int> tensor_sizes() {
    std::vector<int> sizes;
    int ranks = z3d_world_size(world);
    if (ranks == 8) return {2}; // with data 4: the one that fewer ranks do not have
    for (int t = 1; t <= 4 && t <= ranks; t *= 2)
        if (ranks % t == 0 && 8 % (ranks / t) == 0) sizes.push_back(t);
    if (SANITIZED && sizes.size() > 1) sizes.pop_back(); // one data rank, which shards nothing
    return sizes;
}

// Each step runs the same program, so fewer than the options' show mistakes, too.
int steps_of(const Options &o, int fewer) {
    return is_long() ? o.steps : std::min(fewer, o.steps);
}

void expect_same(const Result &a, const Result &b, const std::string &what) {
    EXPECT_TRUE(same_bits(a.loss, b.loss)) << what << ": losses differ";
    EXPECT_TRUE(same_bits(a.norm, b.norm)) << what << ": gradient norms differ";
    EXPECT_EQ(a.scale, b.scale) << what;
    EXPECT_EQ(a.skipped, b.skipped) << what;
}

void expect_close(const Result &a, const Result &b, double share, const std::string &what) {
    EXPECT_EQ(a.skipped, b.skipped) << what;
    for (size_t i = 0; i < a.loss.size(); i++) {
        EXPECT_NEAR(a.loss[i], b.loss[i], share * std::fabs(a.loss[i])) << what << ", step " << i;
        if (a.skipped[i]) continue;
        EXPECT_NEAR(a.norm[i], b.norm[i], share * std::fabs(a.norm[i])) << what << ", step " << i;
    }
}

// Data 2 x 2: `vary` changes what else a step has.
void expect_sharded_alike(const std::function<void(Options &)> &vary, const std::string &what) {
    Options o;
    o.outer = 2;
    o.global_batch = 16;
    o.steps = steps_of(o, 3);
    vary(o);
    if (z3d_world_size(world) < 4 * o.tensor * o.pipeline) return;
    Options flat = o;
    flat.stage = 1, flat.outer = 1;
    const Result plain = train(flat);
    o.sharding = Z3D_SHARDING_HIERARCHICAL, o.stage = 0;
    const Result parts = train(o);
    const double share = o.dtype == Z3D_F32 ? 1e-5 : 1e-3; // another order of sums
    expect_close(plain, parts, share, what + ": in parts");
    for (o.stage = 1; o.stage < 4; o.stage++)
        expect_same(parts, train(o), what + ": in parts, stage " + std::to_string(o.stage));
    o.sharding = Z3D_SHARDING_HPZ, o.stage = 3;
    expect_same(parts, train(o), what + ": hpZ");
    o.sharding = Z3D_SHARDING_HYBRID, o.stage = 1;
    const Result hybrid = train(o);
    expect_close(plain, hybrid, share, what + ": hybrid");
    for (o.stage = 2; o.stage < 4; o.stage++)
        expect_same(hybrid, train(o), what + ": hybrid, stage " + std::to_string(o.stage));
}

} // namespace

TEST(Equivalence, StagesAreBitwiseEqual) {
    for (int tensor : tensor_sizes()) {
        for (const Precision &precision : PRECISIONS) {
            Options o;
            o.tensor = tensor;
            o.dtype = precision.dtype;
            o.scaler = precision.scaler;
            o.steps = steps_of(o, 8);
            Result zero = train(o);
            ASSERT_EQ(zero.loss.size(), (size_t)o.steps);
            EXPECT_LT(zero.loss.back(), zero.loss.front()) << "it must learn";
            if (precision.dtype == Z3D_F16) {
                EXPECT_TRUE(zero.skipped.front()) << "the test wants an overflow among its steps";
                EXPECT_FALSE(zero.skipped[1]);
                EXPECT_GE(zero.overflow_group.front(), 0);
            }
            for (int stage = 1; stage <= 3; stage++) {
                o.stage = stage;
                expect_same(zero, train(o),
                            std::string(precision.name) + ", tensor size " +
                                std::to_string(tensor) + ", stage " + std::to_string(stage));
            }
        }
    }
}

// Members and rows change their ranks together: the same sums on other ranks.
TEST(Equivalence, TheDataAxisMayBeCut) {
    const int ranks = z3d_world_size(world);
    if (ranks < 4) GTEST_SKIP() << "data 2 x 2";
    for (int pipeline : {1, 2}) {
        Options o;
        o.pipeline = pipeline, o.data = 4, o.tensor = ranks / (4 * pipeline);
        if (o.tensor < 1) continue;
        o.steps = steps_of(o, 3);
        o.accumulation = pipeline;
        for (int stage : {1, 3}) {
            o.stage = stage, o.outer = 1;
            const Result whole = train(o);
            o.outer = 2;
            expect_same(whole, train(o), "cut, stage " + std::to_string(stage));
        }
    }
}

TEST(Equivalence, StagesAreBitwiseEqualUnderEachSharding) {
    const int ranks = z3d_world_size(world);
    expect_sharded_alike([](Options &o) { o.bucket = 100; }, "small buckets");
    expect_sharded_alike(
        [](Options &o) {
            o.accumulation = 2, o.reduce_per_step = 0;
            o.dtype = Z3D_F16, o.scaler = PRECISIONS[2].scaler;
        },
        "fp16, accumulation");
    expect_sharded_alike([](Options &o) { o.overlap = false, o.tied = false; }, "no overlap");
    expect_sharded_alike([](Options &o) { o.frozen = {"block.0.*", "*bias"}; }, "frozen");
    expect_sharded_alike(
        [](Options &o) {
            o.tiers.optimizer = Z3D_SPACE_HOST;
            o.tiers.resident = 0.5;
        },
        "optimizer in host memory");
    if (ranks < 8) return;
    expect_sharded_alike(
        [](Options &o) {
            o.tensor = 2, o.kind = LLAMA;
            o.sequence_parallel = true;
        },
        "tensor ranks");
    expect_sharded_alike(
        [](Options &o) {
            o.pipeline = 2, o.accumulation = 2;
            o.reduce_per_step = 0;
        },
        "pipeline");
}

// Small groups are kept whole and gathered once a step, whatever else a step has.
TEST(Equivalence, KeptGroupsOfStage3AreBitwiseEqual) {
    if (z3d_world_size(world) != 4) GTEST_SKIP() << "data 2 x 2";
    for (z3d_space space : {Z3D_SPACE_DEVICE, Z3D_SPACE_HOST})
        for (z3d_sharding sharding : {Z3D_SHARDING_FLAT, Z3D_SHARDING_HPZ}) {
            Options o;
            o.outer = sharding == Z3D_SHARDING_FLAT ? 1 : 2;
            o.sharding = sharding;
            o.stage = 3, o.accumulation = 2;
            o.steps = steps_of(o, 3);
            o.tiers.optimizer = o.tiers.parameters = space;
            const Result plain = train(o);
            o.persistence = 600; // wpe, ln_f
            o.gather_ahead = 20000;
            expect_same(plain, train(o), name_of(o) + ", space " + std::to_string(space));
        }
}

// What stays gathered, and how much of it, changes no bit.
TEST(Equivalence, ReuseOfGatheredParametersIsBitwiseEqual) {
    if (z3d_world_size(world) != 4) GTEST_SKIP() << "data 2 x 2";
    for (z3d_space space : {Z3D_SPACE_DEVICE, Z3D_SPACE_HOST})
        for (z3d_sharding sharding : {Z3D_SHARDING_FLAT, Z3D_SHARDING_HIERARCHICAL}) {
            Options o;
            o.outer = sharding == Z3D_SHARDING_FLAT ? 1 : 2;
            o.sharding = sharding;
            o.stage = 3, o.accumulation = 2, o.layers = 4;
            o.steps = steps_of(o, 3);
            o.tiers.optimizer = o.tiers.parameters = space;
            const Result plain = train(o);
            for (int64_t live : {0, 1, 30000}) {
                o.reuse_distance = 1 << 20, o.max_live = live;
                expect_same(plain, train(o),
                            name_of(o) + ", live " + std::to_string(live) + ", space " +
                                std::to_string(space));
            }
        }
}

// Parameters come from their tier once a step; the secondary value stays on the device.
TEST(Equivalence, HpzWithOffloadedParametersIsBitwiseEqual) {
    if (z3d_world_size(world) != 4) GTEST_SKIP() << "data 2 x 2";
    for (z3d_space space : {Z3D_SPACE_HOST, Z3D_SPACE_DISK})
        for (bool overlap : {true, false}) {
            Options o;
            o.outer = 2, o.stage = 3, o.layers = 4;
            o.steps = steps_of(o, 3);
            o.accumulation = 2;
            o.overlap = overlap;
            o.sharding = Z3D_SHARDING_HIERARCHICAL;
            const Result plain = train(o);
            for (z3d_sharding sharding : {Z3D_SHARDING_HIERARCHICAL, Z3D_SHARDING_HPZ}) {
                o.sharding = sharding;
                o.tiers.optimizer = Z3D_SPACE_HOST;
                o.tiers.parameters = space;
                o.prefetch = sharding == Z3D_SHARDING_HPZ ? 1 << 20 : 0;
                const std::string what = name_of(o) + ", space " + std::to_string(space);
                expect_same(plain, train(o), what);
                o.tiers.delayed = true;
                EXPECT_GT(train(o).loss.size(), 0u) << what;
                o.tiers = {};
            }
        }
}

// The sums over the tensor group stand behind the reductions, on the same elements in every stage.
TEST(Equivalence, StagesAreBitwiseEqualUnderSequenceParallelism) {
    for (int tensor : tensor_sizes()) {
        if (tensor == 1) continue;
        for (const Precision &precision : {PRECISIONS[0], PRECISIONS[1]}) {
            Options o;
            o.tensor = tensor;
            o.dtype = precision.dtype;
            o.sequence_parallel = true;
            o.dropout = 0.1;
            o.steps = steps_of(o, 4);
            Result zero = train(o);
            for (o.stage = 1; o.stage <= 3; o.stage++)
                expect_same(zero, train(o),
                            std::string(precision.name) + ", tensor size " +
                                std::to_string(tensor) + ", stage " + std::to_string(o.stage));
            Result per_micro[2];
            for (int way = 0; way < 2; way++) { // with accumulation, reduced every micro-batch
                o.stage = way == 0 ? 0 : 3;
                o.overlap = way == 0;
                o.accumulation = z3d_world_size(world) / tensor > 4 ? 1 : 2;
                o.reduce_per_step = 0;
                per_micro[way] = train(o);
            }
            expect_same(per_micro[0], per_micro[1], "per_microbatch, stage 3, no overlap");
        }
    }
}

TEST(Equivalence, Accumulation) {
    if (z3d_world_size(world) > 4) GTEST_SKIP() << "fewer ranks show it";
    for (int tensor : tensor_sizes()) {
        for (const Precision &precision : PRECISIONS) {
            for (int wide = 0; wide < 2; wide++) {
                if (wide && precision.dtype == Z3D_F32) continue;
                if (SANITIZED && wide != (precision.dtype == Z3D_BF16)) continue;
                Options o;
                o.tensor = tensor;
                o.dtype = precision.dtype;
                o.scaler = precision.scaler;
                o.grad_fp32 = wide == 1;
                o.accumulation = 2;
                o.steps = steps_of(o, 4);
                Result by_stage[4], per_step[4], per_micro[4];
                for (o.stage = 0; o.stage < 4; o.stage++) {
                    o.reduce_per_step = 1;
                    per_step[o.stage] = train(o);
                    o.reduce_per_step = 0;
                    per_micro[o.stage] = train(o);
                    o.reduce_per_step = -1; // one of the two, so a program that has just run
                    if (is_long()) by_stage[o.stage] = train(o);
                }
                if (precision.dtype == Z3D_F16 && !wide) {
                    EXPECT_TRUE(per_step[0].skipped.front()) << "it wants an overflow";
                    EXPECT_NE(
                        std::count(per_step[0].skipped.begin(), per_step[0].skipped.end(), false),
                        0);
                }
                for (int stage = 1; stage < 4; stage++) {
                    expect_same(per_step[0], per_step[stage],
                                "per_step, stage " + std::to_string(stage));
                    expect_same(per_micro[0], per_micro[stage],
                                "per_microbatch, stage " + std::to_string(stage));
                }
                if (!is_long()) continue;
                for (int stage = 0; stage < 4; stage++)
                    expect_same(by_stage[stage], stage < 2 ? per_step[stage] : per_micro[stage],
                                "by default, stage " + std::to_string(stage));
            }
        }
    }
}

// What changes only the schedule or what is recomputed changes no bit.
TEST(Equivalence, ScheduleAndRecomputeChangeNoBit) {
    if (z3d_world_size(world) > 4) GTEST_SKIP() << "fewer ranks show it";
    for (int tensor : tensor_sizes()) {
        for (const Precision &precision : {PRECISIONS[0], PRECISIONS[1]}) {
            if (SANITIZED && precision.dtype == Z3D_F32) continue;
            Options o;
            o.tensor = tensor;
            o.stage = 3;
            o.dtype = precision.dtype;
            o.steps = steps_of(o, 4);
            o.dropout = 0.1;
            Result reference = train(o);
            Options other = o;
            other.recompute = false;
            expect_same(reference, train(other), "no recompute");
            other = o;
            other.replay_full = true;
            expect_same(reference, train(other), "full replay");
            other = o;
            other.overlap = false;
            expect_same(reference, train(other), "no overlap");
            other = o;
            other.bucket = 100;
            expect_same(reference, train(other), "small odd buckets");
            if (z3d_world_size(world) > 1) continue;
            other = o;
            other.threads = 2;
            expect_same(reference, train(other), "two threads");
        }
    }
}

// The run on one rank leaves its losses in files; the runs on more ranks are held against them
// (ctest orders them as a fixture).
TEST(Equivalence, LikeOneRank) {
    static const char *const PATH = "equivalence-one-rank.bin";
    for (double dropout : {0.0, 0.1}) {
        for (int accumulation : {1, 2}) {
            if (z3d_world_size(world) > 4 && (dropout == 0 || accumulation > 1)) continue;
            Options o;
            o.dropout = dropout;
            o.accumulation = accumulation;
            std::string path =
                std::string(PATH) + std::to_string(accumulation) + (dropout > 0 ? "d" : "");
            if (z3d_world_size(world) == 1) {
                Result one = train(o);
                std::ofstream(path, std::ios::binary)
                    .write((const char *)one.loss.data(), (long)(one.loss.size() * 8));
                Options two = o;
                two.stage = 3;
                two.reduce_per_step = 1;
                expect_same(one, train(two), "stage 3 on one rank");
                continue;
            }
            std::vector<double> one((size_t)o.steps);
            std::ifstream file(path, std::ios::binary);
            ASSERT_TRUE(file.read((char *)one.data(), (long)(one.size() * 8)).good())
                << "run the one-rank test first";
            for (int tensor : tensor_sizes()) {
                o.tensor = tensor;
                if (o.global_batch % (z3d_world_size(world) / tensor * accumulation)) continue;
                Result r;
                for (o.stage = 0; o.stage < 4; o.stage += is_long() ? 1 : 3) { // they are equal
                    r = train(o);
                    ASSERT_EQ(r.loss.size(), one.size());
                    for (size_t k = 0; k < one.size(); k++)
                        EXPECT_LT(std::fabs(r.loss[k] - one[k]) / one[k], 1e-5)
                            << "tensor " << tensor << " stage " << o.stage << " step " << k + 1;
                }
                if (tensor == 1) continue;
                Options sequence = o; // all stages are equal under it: see above
                sequence.sequence_parallel = true;
                sequence.stage = 2;
                Result s = train(sequence);
                ASSERT_EQ(s.loss.size(), one.size());
                for (size_t k = 0; k < one.size(); k++) {
                    EXPECT_LT(std::fabs(s.loss[k] - one[k]) / one[k], 1e-5)
                        << "tensor " << tensor << " sequence parallel, step " << k + 1;
                    // Replicated parameters count once in the norm.
                    EXPECT_LT(std::fabs(s.norm[k] - r.norm[k]) / r.norm[k], 1e-4)
                        << "tensor " << tensor << " sequence parallel, step " << k + 1;
                }
            }
        }
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
