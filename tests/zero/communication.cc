// Communication as it is counted at run time against the formulas, exactly, in elements x (N-1)/N.
#include "tests/zero/harness.h"

using namespace harness;

namespace {

struct Traffic {
    int64_t reduce_scatter, all_gather, all_reduce, calls;
};

Traffic traffic_of(const Trainer &t, z3d_axis axis) {
    auto volume = [&](z3d_collective_kind kind) {
        return z3d_group_traffic(t.group[axis], kind)->volume_elements;
    };
    return {volume(Z3D_COLLECTIVE_REDUCE_SCATTER), volume(Z3D_COLLECTIVE_ALL_GATHER),
            volume(Z3D_COLLECTIVE_ALL_REDUCE),
            z3d_group_traffic(t.group[axis], Z3D_COLLECTIVE_ALL_REDUCE)->calls};
}

// What one step (the second) adds.
Traffic one_step(Trainer &t, z3d_axis axis) {
    z3d_step_result result;
    EXPECT_Z3D(t.create());
    EXPECT_Z3D(t.step(&result));
    Traffic before = traffic_of(t, axis);
    EXPECT_Z3D(t.step(&result));
    Traffic after = traffic_of(t, axis);
    return {after.reduce_scatter - before.reduce_scatter, after.all_gather - before.all_gather,
            after.all_reduce - before.all_reduce, after.calls - before.calls};
}

int64_t padded(const Trainer &t, int group) {
    return z3d_engine_layout(t.engine)->group[group].padded;
}

std::vector<int> tensor_sizes() {
    std::vector<int> sizes;
    for (int k = 1; k <= 4 && z3d_world_size(world) % k == 0; k *= 2) sizes.push_back(k);
    return sizes;
}

} // namespace

TEST(Communication, DataGroup) {
    for (int tensor : tensor_sizes()) {
        for (int stage = 0; stage < 4; stage++) {
            for (int micros = 1; micros <= 2; micros++) {
                for (int per_step = 0; per_step < 2; per_step++) {
                    for (bool recompute : {true, false}) {
                        Options o;
                        o.tensor = tensor;
                        o.stage = stage;
                        o.accumulation = micros;
                        o.reduce_per_step = per_step;
                        o.recompute = recompute;
                        o.bucket = 700;
                        Trainer t(o);
                        Traffic got = one_step(t, Z3D_AXIS_DATA);
                        int64_t n = t.data(), p = z3d_engine_layout(t.engine)->padded_total;
                        int64_t reductions = per_step ? 1 : micros, gathers = 1;
                        // Groups in the model's order: wte, wpe, blocks, ln_f. Stage 3 gathers for
                        // forward and again for backward, but the embedding's backward reads
                        // neither wpe nor wte, and the head's follows its forward at once: nobody
                        // reads a second gather of wpe and ln_f; wte's two are embedding and head.
                        int64_t skipped = padded(t, 1) + padded(t, t.model->num_groups - 1);
                        if (stage == 3) gathers = 2 * micros;
                        if (stage != 3) skipped = 0;
                        std::string what = "stage " + std::to_string(stage) + ", " +
                                           std::to_string(micros) + " micro-batches, tensor " +
                                           std::to_string(tensor) + ", data " + std::to_string(n);
                        EXPECT_EQ(got.reduce_scatter, reductions * p / n * (n - 1)) << what;
                        EXPECT_EQ(got.all_gather, (gathers * p - micros * skipped) / n * (n - 1))
                            << what;
                        EXPECT_EQ(got.all_reduce, 0) << what;
                    }
                }
            }
        }
    }
}

TEST(Communication, TensorGroup) {
    for (int tensor : tensor_sizes()) {
        for (int replay = 0; replay < 3; replay++) { // minimal, full, none
            Options o;
            o.tensor = tensor;
            o.stage = 2;
            o.accumulation = 2;
            o.recompute = replay < 2;
            o.replay_full = replay == 1;
            Trainer t(o);
            Traffic got = one_step(t, Z3D_AXIS_TENSOR);
            int64_t bsh = t.micro_batch() * o.sequence * o.hidden;
            int64_t per_block = replay == 0   ? 5
                                : replay == 1 ? 6
                                              : 4; // all-reduces of b s h: 10, 12 and 8 bsh
            int64_t all_reduces = (per_block * o.layers + 2) * o.accumulation;
            EXPECT_EQ(got.all_reduce,
                      tensor == 1 ? 0 : all_reduces * 2 * bsh * (tensor - 1) / tensor)
                << "replay " << replay << ", tensor " << tensor;
            EXPECT_EQ(got.calls, all_reduces) << "replay " << replay << ", tensor " << tensor;
            EXPECT_EQ(got.reduce_scatter + got.all_gather, 0);
        }
    }
}

// Counted apart: the cross entropy's largest logit, then its two sums, of every row and
// micro-batch, and one small collective of the world a step.
TEST(Communication, Scalars) {
    for (int tensor : tensor_sizes()) {
        Options o;
        o.tensor = tensor;
        o.stage = 3;
        o.accumulation = 2;
        Trainer t(o);
        z3d_step_result result;
        ASSERT_Z3D(t.create());
        ASSERT_Z3D(t.step(&result));
        auto reduced = [&](z3d_axis axis) {
            return *z3d_group_traffic(t.group[axis], Z3D_COLLECTIVE_ALL_REDUCE);
        };
        z3d_traffic in_tensor = reduced(Z3D_AXIS_TENSOR), in_world = reduced(Z3D_AXIS_WORLD);
        ASSERT_Z3D(t.step(&result));
        int64_t rows = t.micro_batch() * o.sequence, ranks = z3d_world_size(world);
        EXPECT_EQ(reduced(Z3D_AXIS_TENSOR).scalar_calls - in_tensor.scalar_calls,
                  2 * o.accumulation);
        EXPECT_EQ(reduced(Z3D_AXIS_TENSOR).scalar_bytes - in_tensor.scalar_bytes,
                  o.accumulation * 3 * rows * 2 * (tensor - 1) / tensor * 4);
        EXPECT_EQ(reduced(Z3D_AXIS_WORLD).scalar_calls - in_world.scalar_calls, 1);
        EXPECT_EQ(reduced(Z3D_AXIS_WORLD).scalar_bytes - in_world.scalar_bytes,
                  2 * (4 + t.model->num_groups) * (ranks - 1) / ranks * 8);
        EXPECT_EQ(reduced(Z3D_AXIS_WORLD).volume_elements, 0);
    }
}

// P_a brings each block's input back by one all-gather over the tensor group, b s h (t-1)/t
// elements a rank; nothing else changes, with the parts in host memory neither.
TEST(Communication, PartitionedActivations) {
    for (int tensor : tensor_sizes()) {
        if (tensor == 1) continue;
        for (bool offload : {false, true}) {
            Options o;
            o.tensor = tensor;
            o.stage = 2;
            o.accumulation = 2;
            Trainer plain(o);
            Traffic before = one_step(plain, Z3D_AXIS_TENSOR);
            o.partition = true;
            o.offload = offload;
            Trainer split(o);
            Traffic got = one_step(split, Z3D_AXIS_TENSOR);
            int64_t bsh = split.micro_batch() * o.sequence * o.hidden;
            EXPECT_EQ(got.all_gather, o.layers * o.accumulation * bsh * (tensor - 1) / tensor);
            EXPECT_EQ(got.all_reduce, before.all_reduce);
            EXPECT_EQ(got.calls, before.calls);
            EXPECT_EQ(got.reduce_scatter, 0);
        }
    }
}

int main(int argc, char **argv) {
    return main_with_world(argc, argv);
}
