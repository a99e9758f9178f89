// Memory: persistent bytes by the paper's formulas, planned = measured, and no allocation by our
// code in a step after the first.
#include "tests/zero/harness.h"

#include "tests/base/allocations.h"

using namespace harness;

namespace {

std::string describe(const Options &o) {
    return "stage " + std::to_string(o.stage) + ", " + z3d_dtype_name(o.dtype) + ", tensor " +
           std::to_string(o.tensor);
}

// The whole persistent state, parameters + gradients + optimizer: 16-bit 16P, 4P + 12P/N, 2P +
// 14P/N, 16P/N; fp32 16P, 8P + 8P/N, 4P + 12P/N, 16P/N (P: padded local parameters, N:
// data-parallel size).
void expect_formula(const Options &o, const z3d_ledger *ledger, int64_t p, int64_t n) {
    bool narrow = o.dtype != Z3D_F32;
    int64_t parameter = narrow ? 2 : 4, gradient = parameter, states = narrow ? 12 : 8,
            shard = p / n;
    ASSERT_EQ(p % n, 0);
    EXPECT_EQ(ledger->peak[Z3D_CATEGORY_PARAMETERS], parameter * (o.stage < 3 ? p : shard))
        << describe(o);
    EXPECT_EQ(ledger->peak[Z3D_CATEGORY_GRADIENTS], gradient * (o.stage < 2 ? p : shard))
        << describe(o);
    EXPECT_EQ(ledger->peak[Z3D_CATEGORY_OPTIMIZER], states * (o.stage < 1 ? p : shard))
        << describe(o);
    int64_t sum = ledger->peak[Z3D_CATEGORY_PARAMETERS] + ledger->peak[Z3D_CATEGORY_GRADIENTS] +
                  ledger->peak[Z3D_CATEGORY_OPTIMIZER];
    const int64_t wide[] = {16 * p, 8 * p + 8 * shard, 4 * p + 12 * shard, 16 * shard};
    const int64_t half[] = {16 * p, 4 * p + 12 * shard, 2 * p + 14 * shard, 16 * shard};
    EXPECT_EQ(sum, narrow ? half[o.stage] : wide[o.stage]) << describe(o);
}

std::vector<int> tensor_sizes() {
    std::vector<int> sizes;
    for (int t = 1; t <= 2 && z3d_world_size(world) % t == 0; t *= 2) sizes.push_back(t);
    return sizes;
}

} // namespace

TEST(Memory, PersistentBytesAreTheFormulas) {
    for (int tensor : tensor_sizes()) {
        for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16, Z3D_F16}) {
            for (int stage = 0; stage < 4; stage++) {
                Options o;
                o.tensor = tensor;
                o.dtype = dtype;
                o.stage = stage;
                Trainer t(o);
                ASSERT_Z3D(t.create());
                z3d_step_result result;
                ASSERT_Z3D(t.step(&result));
                expect_formula(o, z3d_engine_planned(t.engine, Z3D_SPACE_DEVICE),
                               z3d_engine_layout(t.engine)->padded_total, t.o.data);
                expect_formula(o, z3d_engine_measured(t.engine, Z3D_SPACE_DEVICE),
                               z3d_engine_layout(t.engine)->padded_total, t.o.data);
            }
        }
    }
}

// SGD keeps one tensor less than AdamW: 4 bytes of each element that is stepped.
TEST(Memory, OptimizerStatesFollowTheTable) {
    for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16})
        for (int stage : {0, 2}) {
            Options o;
            o.dtype = dtype;
            o.stage = stage;
            o.optimizer = Z3D_OPTIMIZER_sgd;
            Trainer t(o);
            ASSERT_Z3D(t.create());
            z3d_step_result result;
            ASSERT_Z3D(t.step(&result));
            int64_t bytes = dtype == Z3D_F32 ? 4 : 8;
            int64_t p = z3d_engine_layout(t.engine)->padded_total;
            for (const z3d_ledger *ledger : {z3d_engine_planned(t.engine, Z3D_SPACE_DEVICE),
                                             z3d_engine_measured(t.engine, Z3D_SPACE_DEVICE)})
                EXPECT_EQ(ledger->peak[Z3D_CATEGORY_OPTIMIZER],
                          bytes * (stage < 1 ? p : p / t.o.data));
        }
}

// Reducing once a step under accumulation keeps full gradients whatever the stage; fp32
// accumulation adds 2 bytes a gradient kept.
TEST(Memory, GradientsKept) {
    for (int stage = 0; stage < 4; stage++) {
        Options o;
        o.stage = stage;
        o.dtype = Z3D_BF16;
        o.accumulation = 2;
        o.reduce_per_step = 1;
        Trainer whole(o);
        ASSERT_Z3D(whole.create());
        int64_t p = z3d_engine_layout(whole.engine)->padded_total, n = whole.o.data;
        EXPECT_EQ(z3d_engine_planned(whole.engine, Z3D_SPACE_DEVICE)->peak[Z3D_CATEGORY_GRADIENTS],
                  2 * p);
        o.reduce_per_step = 0;
        o.grad_fp32 = true;
        Trainer wide(o);
        ASSERT_Z3D(wide.create());
        EXPECT_EQ(z3d_engine_planned(wide.engine, Z3D_SPACE_DEVICE)->peak[Z3D_CATEGORY_GRADIENTS],
                  4 * (stage < 1 ? p : p / n)); // stage 1: nobody reads others' rows
    }
}

TEST(Memory, PlannedIsMeasuredByCategory) {
    for (int tensor : tensor_sizes()) {
        for (int stage = 0; stage < 4; stage++) {
            for (int bits = 0; bits < 4; bits++) {
                Options o;
                o.tensor = tensor;
                o.stage = stage;
                o.dtype = Z3D_BF16;
                o.recompute = bits & 1;
                o.accumulation = bits & 2 ? 2 : 1;
                o.sequence_parallel = tensor > 1 && stage % 2 == bits / 2;
                Trainer t(o);
                ASSERT_Z3D(t.create());
                z3d_step_result result;
                ASSERT_Z3D(t.step(&result));
                ASSERT_Z3D(t.step(&result));
                for (int k = 0; k < Z3D_CATEGORY_COUNT; k++)
                    EXPECT_EQ(z3d_engine_planned(t.engine, Z3D_SPACE_DEVICE)->peak[k],
                              z3d_engine_measured(t.engine, Z3D_SPACE_DEVICE)->peak[k])
                        << describe(o) << ", " << z3d_category_name((z3d_category)k);
                EXPECT_EQ(z3d_engine_planned(t.engine, Z3D_SPACE_DEVICE)->total_peak,
                          z3d_engine_measured(t.engine, Z3D_SPACE_DEVICE)->total_peak);
                EXPECT_GE(z3d_engine_arena_bytes(t.engine) + t.engine->group_bytes,
                          z3d_engine_planned(t.engine, Z3D_SPACE_DEVICE)->total_peak);
            }
        }
    }
}

TEST(Memory, NoAllocationInAStep) {
    for (int tensor : tensor_sizes()) {
        for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16, Z3D_F16}) {
            for (int stage = 0; stage < 4; stage++) {
                Options o;
                o.tensor = tensor;
                o.stage = stage;
                o.dtype = dtype;
                o.sequence_parallel = tensor > 1 && stage % 2 == 1;
                Trainer t(o);
                long before = allocations::ours;
                ASSERT_Z3D(t.create());
                EXPECT_GT(allocations::ours, before) << "the counter must count";
                std::vector<std::vector<int32_t>> storage;
                std::vector<z3d_micro_batch> micro;
                t.batch(1, storage, micro);
                z3d_step_input input = {};
                input.micro = micro.data();
                input.global_targets = o.global_batch * o.sequence;
                input.learning_rate = 1e-3f;
                z3d_step_result result;
                ASSERT_Z3D(z3d_engine_train_step(t.engine, &input, &result));
                before = allocations::ours;
                for (int k = 0; k < 3; k++)
                    ASSERT_Z3D(z3d_engine_train_step(t.engine, &input, &result));
                EXPECT_EQ(allocations::ours - before, 0) << describe(o);
            }
        }
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
