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
// data-parallel size). twice: what of P has a second sum of gradients in a step, since two chunks
// of the stage use it.
void expect_formula(const Options &o, const z3d_ledger *ledger, int64_t p, int64_t n,
                    int64_t twice = 0) {
    bool narrow = o.dtype != Z3D_F32;
    int64_t parameter = narrow ? 2 : 4, gradient = parameter, states = narrow ? 12 : 8,
            shard = p / n;
    ASSERT_EQ(p % n, 0);
    EXPECT_EQ(ledger->peak[Z3D_CATEGORY_PARAMETERS], parameter * (o.stage < 3 ? p : shard))
        << describe(o);
    int64_t second = gradient * (o.stage < 2 ? twice : twice / n);
    EXPECT_EQ(ledger->peak[Z3D_CATEGORY_GRADIENTS], gradient * (o.stage < 2 ? p : shard) + second)
        << describe(o);
    EXPECT_EQ(ledger->peak[Z3D_CATEGORY_OPTIMIZER], states * (o.stage < 1 ? p : shard))
        << describe(o);
    int64_t sum = ledger->peak[Z3D_CATEGORY_PARAMETERS] + ledger->peak[Z3D_CATEGORY_GRADIENTS] +
                  ledger->peak[Z3D_CATEGORY_OPTIMIZER] - second;
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

// SGD, Lion and AdamW with moments in bf16 keep one tensor less than AdamW: 4 bytes of each element
// that is stepped.
TEST(Memory, OptimizerStatesFollowTheTable) {
    const z3d_optimizer optimizers[] = {Z3D_OPTIMIZER_sgd, Z3D_OPTIMIZER_lion,
                                        Z3D_OPTIMIZER_adamw_bf16, Z3D_OPTIMIZER_adam};
    int turn = 0;
    for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16})
        for (int stage : {0, 2}) {
            Options o;
            o.dtype = dtype;
            o.stage = stage;
            o.optimizer = optimizers[turn++];
            Trainer t(o);
            ASSERT_Z3D(t.create());
            z3d_step_result result;
            ASSERT_Z3D(t.step(&result));
            int64_t bytes = dtype == Z3D_F32 ? 4 : 8;
            if (o.optimizer == Z3D_OPTIMIZER_adam) bytes += 4;
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

// Parameters that stay gathered take memory, up to the limit; planned is measured with both.
TEST(Memory, GatheredParametersThatStay) {
    const int64_t any = 0;
    int64_t before = 0;
    for (int64_t live : {(int64_t)1, (int64_t)40000, any}) {
        Options o;
        o.stage = 3, o.layers = 6, o.recompute = true;
        o.reuse_distance = 1 << 20, o.max_live = live;
        Trainer t(o);
        ASSERT_Z3D(t.create());
        z3d_step_result result;
        ASSERT_Z3D(t.step(&result));
        const z3d_ledger *planned = z3d_engine_planned(t.engine, Z3D_SPACE_DEVICE),
                         *measured = z3d_engine_measured(t.engine, Z3D_SPACE_DEVICE);
        for (int k = 0; k < Z3D_CATEGORY_COUNT; k++) EXPECT_EQ(planned->peak[k], measured->peak[k]);
        EXPECT_EQ(planned->total_peak, measured->total_peak);
        // One data rank keeps all parameters: nothing is gathered.
        const int64_t now = planned->peak[Z3D_CATEGORY_TEMPORARY];
        EXPECT_EQ(now > before || z3d_world_size(world) == 1, true) << live;
        before = now;
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

namespace {

// The pipelines of this world: two stages, or four.
std::vector<Options> pipelines() {
    std::vector<Options> list;
    int ranks = z3d_world_size(world), turn = 0;
    for (const Schedule &schedule : SCHEDULES)
        for (int pipeline : {2, 4})
            for (int tensor : {1, 2}) {
                if (ranks % (pipeline * tensor) != 0) continue;
                Options o;
                o.schedule = schedule.kind, o.chunks = schedule.chunks;
                o.pipeline = pipeline, o.tensor = tensor;
                o.layers = 7;
                o.dtype = turn % 2 ? Z3D_BF16 : Z3D_F32;
                o.accumulation = 4;
                o.global_batch = 8;
                turn++;
                list.push_back(o);
            }
    return list;
}

} // namespace

// The formulas hold of what each stage has; all stages together have the model,
// and the tied table twice where its uses are on two stages.
TEST(Memory, PersistentBytesOfPipelineStagesAreTheFormulas) {
    for (Options &o : pipelines())
        for (o.stage = 0; o.stage < 4; o.stage++) {
            SCOPED_TRACE(name_of(o));
            Trainer t(o);
            z3d_step_result result;
            ASSERT_Z3D(t.create());
            ASSERT_Z3D(t.step(&result));
            const z3d_layout *layout = z3d_engine_layout(t.engine);
            int64_t table = layout->group[0].padded;
            bool both = z3d_layout_stage_of(layout, 0) ==
                        z3d_layout_stage_of(layout, t.model->num_units - 1); // its two uses
            for (const z3d_ledger *ledger : {z3d_engine_planned(t.engine, Z3D_SPACE_DEVICE),
                                             z3d_engine_measured(t.engine, Z3D_SPACE_DEVICE)})
                expect_formula(o, ledger, layout->padded_total, t.o.data,
                               both && layout->stage == 0 ? table : 0);
            int64_t all = 0, model = both ? 0 : table, size = z3d_world_size(world);
            std::vector<int64_t> own((size_t)size);
            ASSERT_Z3D(z3d_world_gather_all(world, &layout->padded_total, own.data(), 8));
            for (int stage = 0; stage < o.pipeline; stage++)
                all += own[(size_t)z3d_mesh_member(&t.mesh, Z3D_AXES_PIPELINE, t.mesh.rank, stage)];
            for (int g = 0; g < layout->num_groups; g++) model += layout->group[g].padded;
            EXPECT_EQ(all, model);
        }
}

TEST(Memory, PlannedIsMeasuredByCategoryOnEveryPipelineStage) {
    for (Options &o : pipelines())
        for (int way = 0; way < 6; way++) {
            o.stage = way % 4;
            o.recompute = way % 2 == 0;
            o.selective = way == 3;
            o.keep_activation = way > 2;
            o.partition = o.tensor > 1 && way == 4;
            if (way == 4) o.checkpoint_space = o.tensor > 1 ? Z3D_SPACE_HOST : Z3D_SPACE_DISK;
            o.sequence_parallel = o.tensor > 1 && way == 2;
            o.gather_per_step = way == 3;
            o.overlap = way != 1;
            SCOPED_TRACE(name_of(o));
            Trainer t(o);
            z3d_step_result result;
            ASSERT_Z3D(t.create());
            ASSERT_Z3D(t.step(&result));
            ASSERT_Z3D(t.step(&result));
            for (z3d_space space : {Z3D_SPACE_DEVICE, Z3D_SPACE_HOST}) {
                const z3d_ledger *planned = z3d_engine_planned(t.engine, space),
                                 *measured = z3d_engine_measured(t.engine, space);
                for (int k = 0; k < Z3D_CATEGORY_COUNT; k++)
                    EXPECT_EQ(planned->peak[k], measured->peak[k])
                        << z3d_category_name((z3d_category)k) << " in space " << space;
                EXPECT_EQ(planned->total_peak, measured->total_peak) << "space " << space;
            }
        }
}

TEST(Memory, NoAllocationInAStepOfAPipeline) {
    for (Options &o : pipelines()) {
        o.stage = 3;
        SCOPED_TRACE(name_of(o));
        Trainer t(o);
        z3d_step_result result;
        ASSERT_Z3D(t.create());
        std::vector<std::vector<int32_t>> storage;
        std::vector<z3d_micro_batch> micro;
        t.batch(1, storage, micro);
        z3d_step_input input = t.input(1, micro);
        ASSERT_Z3D(z3d_engine_train_step(t.engine, &input, &result));
        long before = allocations::ours;
        for (int k = 0; k < 3; k++) ASSERT_Z3D(z3d_engine_train_step(t.engine, &input, &result));
        EXPECT_EQ(allocations::ours - before, 0);
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
