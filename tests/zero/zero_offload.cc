// Optimizer states and parameters in host memory or on the disk: the bits of training are those of
// the run that keeps everything on the device, and memory is as planned.
#include <gtest/gtest.h>

#include "tests/zero/harness.h"

using harness::Result;
using harness::same_bits;
using harness::train;
using harness::Trainer;
using Options = harness::Options;

namespace {

const int STEPS = SANITIZED ? 3 : 5;

struct Tier {
    z3d_space optimizer, parameters;
};

const Tier TIERS[] = {{Z3D_SPACE_HOST, Z3D_SPACE_DEVICE}, {Z3D_SPACE_DISK, Z3D_SPACE_DEVICE},
                      {Z3D_SPACE_HOST, Z3D_SPACE_HOST},   {Z3D_SPACE_HOST, Z3D_SPACE_DISK},
                      {Z3D_SPACE_DISK, Z3D_SPACE_HOST},   {Z3D_SPACE_DISK, Z3D_SPACE_DISK}};

std::string name_of_tier(const Options &o) {
    static const char *const space[] = {"device", "host", "disk"};
    return harness::name_of(o) + " optimizer " + space[o.tiers.optimizer] + " parameters " +
           space[o.tiers.parameters] + " sub_group " + std::to_string(o.tiers.sub_group) +
           " pieces " + std::to_string(o.tiers.pieces) + " resident " +
           std::to_string(o.tiers.resident);
}

void expect_same(const Result &a, const Result &b) {
    EXPECT_TRUE(same_bits(a.loss, b.loss)) << "losses differ";
    EXPECT_TRUE(same_bits(a.norm, b.norm)) << "gradient norms differ";
    EXPECT_EQ(a.scale, b.scale);
    EXPECT_EQ(a.skipped, b.skipped);
}

// Tiers that the stage allows, against the run without: all of them, or with a turn some, so that
// neighbouring turns have different ones.
void compare_with(const Result &without, Options o, int turn = -1) {
    const z3d_offload_plan tiers = o.tiers;
    ASSERT_EQ(without.loss.size(), (size_t)o.steps);
    const int allowed = o.stage < 3 ? 2 : 6, every = turn < 0 ? 1 : o.stage < 3 ? 2 : 3;
    for (int k = turn < 0 ? 0 : turn % every; k < allowed; k += every) {
        o.tiers = tiers;
        o.tiers.optimizer = TIERS[k].optimizer;
        o.tiers.parameters = TIERS[k].parameters;
        SCOPED_TRACE(name_of_tier(o));
        expect_same(without, train(o));
    }
}

void compare(const Options &o, int turn = -1) {
    Options none = o;
    none.tiers = {};
    compare_with(train(none), o, turn);
}

// 1, 2 and 4 ranks take different parts.
int turn_of_world() {
    return z3d_world_size(world) / 2;
}

// One rank does everything. What only other numbers do in a part is sampled on more ranks.
int turn_of(int turn) {
    return z3d_world_size(world) == 1 ? -1 : turn + turn_of_world();
}

std::vector<Options> topologies() {
    const int ranks = z3d_world_size(world);
    std::vector<Options> all;
    for (int tensor = 1; tensor <= ranks; tensor *= 2)
        for (int pipeline = 1; tensor * pipeline <= ranks && pipeline <= 2; pipeline *= 2) {
            Options o;
            o.tensor = tensor, o.pipeline = pipeline, o.accumulation = pipeline;
            all.push_back(o);
        }
    return all;
}

} // namespace

TEST(Offload, StagesAndTopologiesAreBitwiseEqual) {
    int turn = 0;
    for (Options o : topologies()) {
        o.steps = 3;
        for (o.stage = 0; o.stage < 4; o.stage++) compare(o, turn + o.stage);
        turn++;
    }
}

TEST(Offload, TypesAreBitwiseEqual) {
    for (z3d_dtype dtype : {Z3D_BF16, Z3D_F16})
        for (int stage : {1, 3}) {
            Options o;
            o.stage = stage;
            o.steps = STEPS;
            o.dtype = dtype;
            o.grad_fp32 = dtype == Z3D_BF16;
            if (dtype == Z3D_F16)
                o.scaler = {true, 1048576, 1, 1000, 1}; // the first step is skipped
            compare(o, turn_of(stage + (dtype == Z3D_F16)));
        }
}

// Groups in pieces, of which more or fewer are under way at once.
TEST(Offload, PiecesAreBitwiseEqual) {
    for (bool overlap : {true, false}) {
        Options o;
        o.stage = 3;
        o.hidden = 64;
        o.steps = 2;
        o.build_folder = true; // a disk that takes whole blocks only
        o.overlap = overlap;
        const Result without = train(o);
        int turn = 0;
        for (int pieces : overlap ? std::vector<int>{1, 3, 5} : std::vector<int>{2})
            for (int64_t columns : {1, 3000, 100000}) {
                // Each number and each length once.
                if (z3d_world_size(world) > 1 && turn++ % 4 != (overlap ? 0 : 1)) continue;
                o.tiers = {Z3D_SPACE_DISK, Z3D_SPACE_DISK, columns, pieces, 0, false};
                SCOPED_TRACE(name_of_tier(o));
                expect_same(without, train(o));
            }
    }
}

// More parameters on their way, up to all.
TEST(Offload, PrefetchIsBitwiseEqual) {
    for (bool recompute : {true, false}) {
        Options o;
        o.stage = 3;
        o.layers = 4;
        o.steps = 2;
        o.accumulation = 2;
        o.recompute = recompute;
        const Result without = train(o);
        for (z3d_space space : {Z3D_SPACE_HOST, Z3D_SPACE_DISK})
            for (int64_t elements : {30000, 1 << 30}) {
                if (z3d_world_size(world) > 1 && recompute != (space == Z3D_SPACE_DISK)) continue;
                o.tiers.optimizer = o.tiers.parameters = space;
                o.prefetch = elements;
                SCOPED_TRACE(name_of_tier(o) + " prefetch " + std::to_string(elements));
                expect_same(without, train(o));
            }
    }
}

TEST(Offload, AccumulationModelsAndOptimizersAreBitwiseEqual) {
    int turn = turn_of(0); // all tiers, then some
    for (harness::Kind kind : {harness::GPT, harness::LLAMA})
        for (int k = 0; k < 3; k++) {
            static const z3d_optimizer optimizers[2][3] = {
                {Z3D_OPTIMIZER_adamw, Z3D_OPTIMIZER_adam, Z3D_OPTIMIZER_adagrad},
                {Z3D_OPTIMIZER_lion, Z3D_OPTIMIZER_adamw_bf16, Z3D_OPTIMIZER_sgd}};
            const z3d_optimizer optimizer = optimizers[kind != harness::GPT][k];
            Options o;
            o.kind = kind;
            o.optimizer = optimizer;
            o.stage = 3;
            o.accumulation = 2;
            o.steps = 3;
            o.dropout = kind == harness::GPT ? 0.1 : 0;
            compare(o, turn++);
        }
}

// Of some groups the states are elsewhere, and of the others on the device.
TEST(Offload, SharesAreBitwiseEqual) {
    int topology = 0;
    for (Options o : topologies()) {
        o.steps = 2;
        o.layers = 4;
        for (o.stage = 0; o.stage < 4; o.stage++) {
            // 2 and 4 ranks together have each stage in both types on data ranks alone.
            o.dtype = (o.stage + topology + turn_of_world()) % 2 ? Z3D_BF16 : Z3D_F32;
            const Result without = train(o);
            Options far = o;
            // Data ranks alone have all shares, and other topologies one by turns.
            const int one = (o.stage + topology) % 3 ? 1 : 2;
            for (int k = 0; k < 3; k++) {
                if (o.tensor * o.pipeline > 1 && k != one) continue;
                far.tiers.resident = 1 - 0.3 * k;
                compare_with(without, far, k + o.stage + topology + turn_of_world());
            }
        }
        topology++;
    }
}

// As beside a device that does not compute in host memory.
TEST(Offload, AHostDeviceOfItsOwnIsBitwiseEqual) {
    int turn = 0;
    for (z3d_dtype dtype : {Z3D_F32, Z3D_F16}) {
        Options o;
        o.stage = 3;
        o.steps = 3;
        o.dtype = dtype;
        o.host_device = true;
        if (dtype == Z3D_F16) o.scaler = {true, 1048576, 1, 1000, 1};
        compare(o, turn_of(turn++));
    }
}

TEST(Offload, ASharesGroupsAreSpread) {
    for (double share : {0.0, 0.3, 0.6, 1.0}) {
        Options o;
        o.stage = 3;
        o.layers = 8;
        o.tiers = {Z3D_SPACE_HOST, Z3D_SPACE_HOST, 0, 0, 1 - share, false};
        Trainer t(o);
        ASSERT_Z3D(t.create());
        const z3d_layout *layout = z3d_engine_layout(t.engine);
        EXPECT_NEAR(z3d_offloaded_share(layout), share, 0.08);
        int places = 0; // where it changes from one group to the next
        for (int g = 1; g < layout->num_groups; g++)
            places += layout->group[g].state[Z3D_STATE_OPTIMIZER].at.space !=
                      layout->group[g - 1].state[Z3D_STATE_OPTIMIZER].at.space;
        EXPECT_EQ(places >= 4, share > 0 && share < 1) << share;
    }
}

// What is read of the states, and written to them, is what is kept.
TEST(Offload, StatesAreReadAndWritten) {
    for (const Tier &tier : TIERS) {
        Options o;
        o.stage = 3;
        o.dtype = Z3D_BF16;
        o.steps = 2;
        o.build_folder = true;
        Trainer plain(o);
        o.tiers.optimizer = tier.optimizer;
        o.tiers.parameters = tier.parameters;
        SCOPED_TRACE(name_of_tier(o));
        Trainer far(o);
        z3d_step_result result;
        ASSERT_Z3D(plain.create());
        ASSERT_Z3D(far.create());
        ASSERT_Z3D(plain.step(&result));
        for (int g = 0; g < far.model->num_groups; g++)
            for (int p = 0; p < far.model->group[g].num_parameters; p++)
                for (z3d_tensor_kind kind :
                     {Z3D_TENSOR_PARAMETER, Z3D_TENSOR_MOMENTUM, Z3D_TENSOR_VARIANCE}) {
                    const z3d_parameter &parameter = far.model->group[g].parameter[p];
                    int64_t count = 1;
                    for (int d = 0; d < parameter.dims; d++) count *= parameter.shape[d];
                    std::vector<float> values((size_t)count), back((size_t)count);
                    ASSERT_Z3D(z3d_engine_get(plain.engine, kind, g, p, values.data()));
                    ASSERT_Z3D(z3d_engine_set(far.engine, kind, g, p, values.data()));
                    ASSERT_Z3D(z3d_engine_get(far.engine, kind, g, p, back.data()));
                    ASSERT_EQ(values, back);
                }
        z3d_engine_state state;
        z3d_engine_get_state(plain.engine, &state);
        z3d_engine_set_state(far.engine, &state);
        far.next_step = plain.next_step;
        z3d_step_result a, b;
        ASSERT_Z3D(plain.step(&a));
        ASSERT_Z3D(far.step(&b));
        EXPECT_EQ(a.loss, b.loss);
        EXPECT_EQ(a.grad_norm, b.grad_norm);
        double expected, loss;
        ASSERT_Z3D(plain.evaluate(&expected));
        ASSERT_Z3D(far.evaluate(&loss));
        EXPECT_EQ(expected, loss);
        std::vector<float> logits, far_logits;
        ASSERT_Z3D(plain.generate(&logits));
        ASSERT_Z3D(far.generate(&far_logits));
        EXPECT_EQ(logits, far_logits);
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
