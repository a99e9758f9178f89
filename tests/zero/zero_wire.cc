// Gradients that travel in 16 bits to be summed in fp32: losses, bytes, overflows. That memory is
// as planned, the trainer looks on itself.
#include "tests/zero/harness.h"

#include <cmath>

using namespace harness;

namespace {

Options bf16_run() {
    Options o;
    o.dtype = Z3D_BF16;
    o.grad_fp32 = true;
    o.accumulation = 2;
    o.global_batch = 16;
    o.reduce_per_step = 1;
    o.steps = 6;
    o.bucket = 700;
    return o;
}

void expect_same(const Result &a, const Result &b, const std::string &what) {
    EXPECT_TRUE(same_bits(a.loss, b.loss)) << what << ": losses differ";
    EXPECT_TRUE(same_bits(a.norm, b.norm)) << what << ": gradient norms differ";
}

// Of the group's sums of gradients in one step.
z3d_traffic one_step(Trainer &t, z3d_axes axes, z3d_collective_kind kind) {
    z3d_step_result result;
    EXPECT_Z3D(t.create());
    EXPECT_Z3D(t.step(&result));
    z3d_traffic before = *z3d_group_traffic(t.group[axes], kind);
    EXPECT_Z3D(t.step(&result));
    z3d_traffic after = *z3d_group_traffic(t.group[axes], kind);
    after.bytes -= before.bytes;
    after.volume_elements -= before.volume_elements;
    return after;
}

} // namespace

TEST(Wire, StagesAreBitwiseEqualAndNearFp32) {
    for (z3d_dtype wire : {Z3D_BF16, Z3D_F16})
        for (int reduce_per_step : {1, 0}) {
            Options o = bf16_run();
            o.reduce_per_step = reduce_per_step;
            const Result wide = train(o);
            o.wire = wire;
            const Result zero = train(o);
            EXPECT_FALSE(same_bits(wide.norm, zero.norm)) << "nothing was rounded";
            for (size_t i = 0; i < wide.loss.size(); i++)
                EXPECT_NEAR(zero.loss[i], wide.loss[i], 1e-2 * wide.loss[i]) << "step " << i;
            EXPECT_LT(zero.loss.back(), zero.loss.front());
            for (o.stage = 1; o.stage < 4; o.stage++) expect_same(zero, train(o), name_of(o));
        }
}

TEST(Wire, NodeByNode) {
    if (z3d_world_size(world) < 4) GTEST_SKIP() << "nodes of two ranks";
    Options o = bf16_run();
    o.wire = Z3D_BF16;
    o.outer = 2;
    o.sharding = Z3D_SHARDING_HIERARCHICAL;
    const Result parts = train(o);
    for (o.stage = 1; o.stage < 4; o.stage++) expect_same(parts, train(o), name_of(o));
    o.sharding = Z3D_SHARDING_HYBRID, o.stage = 1;
    const Result hybrid = train(o);
    for (o.stage = 2; o.stage < 4; o.stage++) expect_same(hybrid, train(o), name_of(o));
    for (size_t i = 0; i < parts.loss.size(); i++)
        EXPECT_NEAR(parts.loss[i], hybrid.loss[i], 1e-2 * parts.loss[i]) << "step " << i;
}

// With sequence parallelism the tensor ranks sum parts of gradients, too.
TEST(Wire, TensorRanksAndStages) {
    for (int pipeline : {1, 2}) {
        Options o = bf16_run();
        o.tensor = 2 / pipeline, o.pipeline = pipeline;
        o.sequence_parallel = o.tensor > 1;
        const Result wide = train(o);
        o.wire = Z3D_BF16;
        const Result zero = train(o);
        for (size_t i = 0; i < wide.loss.size(); i++)
            EXPECT_NEAR(zero.loss[i], wide.loss[i], 1e-2 * wide.loss[i]) << "step " << i;
        for (o.stage = 1; o.stage < 4; o.stage++) expect_same(zero, train(o), name_of(o));
    }
}

TEST(Wire, HalvesTheBytesOfEachSum) {
    const bool nodes = z3d_world_size(world) >= 4;
    for (bool parts : {false, true}) {
        if (parts && !nodes) continue;
        Options o = bf16_run();
        o.stage = 2;
        if (parts) o.outer = 2, o.sharding = Z3D_SHARDING_HYBRID;
        const struct {
            z3d_axes axes;
            z3d_collective_kind kind;
        } sums[] = {
            {(z3d_axes)(parts ? Z3D_ROLE_BLOCKS : Z3D_ROLE_ROWS), Z3D_COLLECTIVE_REDUCE_SCATTER},
            {Z3D_ROLE_NODES, Z3D_COLLECTIVE_ALL_REDUCE}};
        for (int k = 0; k <= (parts ? 1 : 0); k++) {
            o.wire = Z3D_F32;
            Trainer wide(o);
            const z3d_traffic before = one_step(wide, sums[k].axes, sums[k].kind);
            o.wire = Z3D_BF16;
            Trainer narrow(o);
            const z3d_traffic after = one_step(narrow, sums[k].axes, sums[k].kind);
            EXPECT_GT(before.volume_elements, 0);
            EXPECT_EQ(after.volume_elements, before.volume_elements);
            EXPECT_EQ(before.bytes, 4 * before.volume_elements);
            EXPECT_EQ(after.bytes, 2 * after.volume_elements);
        }
    }
}

// Scaled gradients are finite in fp32 and in bf16, but beyond fp16: the step is skipped.
TEST(Wire, OverflowOnTheWireSkipsTheStep) {
    for (int stage = 0; stage < 4; stage++)
        for (z3d_dtype wire : {Z3D_F32, Z3D_BF16, Z3D_F16}) {
            Options o = bf16_run();
            o.stage = stage;
            o.wire = wire;
            o.scaler.scale = 1e9f;
            Trainer t(o);
            ASSERT_Z3D(t.create());
            z3d_step_result result;
            ASSERT_Z3D(t.step(&result));
            EXPECT_EQ(result.skipped, wire == Z3D_F16) << name_of(t.o);
            EXPECT_EQ(result.overflow_group >= 0, wire == Z3D_F16) << name_of(t.o);
        }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
