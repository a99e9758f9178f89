// Communication as it is counted at run time against the formulas, exactly, in elements x (N-1)/N.
#include "tests/zero/harness.h"

using namespace harness;

namespace {

struct Traffic {
    int64_t reduce_scatter, all_gather, all_reduce, calls;
};

Traffic traffic_of(const Trainer &t, z3d_axes axes) {
    auto volume = [&](z3d_collective_kind kind) {
        return z3d_group_traffic(t.group[axes], kind)->volume_elements;
    };
    return {volume(Z3D_COLLECTIVE_REDUCE_SCATTER), volume(Z3D_COLLECTIVE_ALL_GATHER),
            volume(Z3D_COLLECTIVE_ALL_REDUCE),
            z3d_group_traffic(t.group[axes], Z3D_COLLECTIVE_ALL_REDUCE)->calls};
}

// What one step (the second) adds.
Traffic one_step(Trainer &t, z3d_axes axes) {
    z3d_step_result result;
    EXPECT_Z3D(t.create());
    EXPECT_Z3D(t.step(&result));
    Traffic before = traffic_of(t, axes);
    EXPECT_Z3D(t.step(&result));
    Traffic after = traffic_of(t, axes);
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
                        if (SANITIZED && recompute != (per_step == 1)) continue;
                        Options o;
                        o.tensor = tensor;
                        o.stage = stage;
                        o.accumulation = micros;
                        o.reduce_per_step = per_step;
                        o.recompute = recompute;
                        o.bucket = 700;
                        Trainer t(o);
                        Traffic got = one_step(t, Z3D_AXES_DATA);
                        int64_t n = t.o.data, p = z3d_engine_layout(t.engine)->padded_total;
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
            Traffic got = one_step(t, Z3D_AXES_TENSOR);
            int64_t bsh = t.o.micro_batch * o.sequence * o.hidden;
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
        auto reduced = [&](z3d_axes axes) {
            return *z3d_group_traffic(t.group[axes], Z3D_COLLECTIVE_ALL_REDUCE);
        };
        z3d_traffic in_tensor = reduced(Z3D_AXES_TENSOR), in_world = reduced(Z3D_AXES_WORLD);
        ASSERT_Z3D(t.step(&result));
        int64_t rows = t.o.micro_batch * o.sequence, ranks = z3d_world_size(world);
        EXPECT_EQ(reduced(Z3D_AXES_TENSOR).scalar_calls - in_tensor.scalar_calls,
                  2 * o.accumulation);
        EXPECT_EQ(reduced(Z3D_AXES_TENSOR).scalar_bytes - in_tensor.scalar_bytes,
                  o.accumulation * 3 * rows * 2 * (tensor - 1) / tensor * 4);
        EXPECT_EQ(reduced(Z3D_AXES_WORLD).scalar_calls - in_world.scalar_calls, 1);
        EXPECT_EQ(reduced(Z3D_AXES_WORLD).scalar_bytes - in_world.scalar_bytes,
                  2 * (4 + t.model->num_groups) * (ranks - 1) / ranks * 8);
        EXPECT_EQ(reduced(Z3D_AXES_WORLD).volume_elements, 0);
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
            Traffic before = one_step(plain, Z3D_AXES_TENSOR);
            o.partition = true;
            o.offload = offload;
            Trainer split(o);
            Traffic got = one_step(split, Z3D_AXES_TENSOR);
            int64_t bsh = split.o.micro_batch * o.sequence * o.hidden;
            EXPECT_EQ(got.all_gather, o.layers * o.accumulation * bsh * (tensor - 1) / tensor);
            EXPECT_EQ(got.all_reduce, before.all_reduce);
            EXPECT_EQ(got.calls, before.calls);
            EXPECT_EQ(got.reduce_scatter, 0);
        }
    }
}

namespace {

// Elements that all ranks' gathers of one evaluation or one generated token move on this rank.
int64_t evaluation(Trainer &t, double *loss) {
    int64_t before = traffic_of(t, Z3D_AXES_DATA).all_gather;
    EXPECT_Z3D(t.evaluate(loss));
    return traffic_of(t, Z3D_AXES_DATA).all_gather - before;
}

int64_t token(Trainer &t, std::vector<float> *logits) {
    int64_t before = traffic_of(t, Z3D_AXES_DATA).all_gather;
    EXPECT_Z3D(t.generate(logits));
    return traffic_of(t, Z3D_AXES_DATA).all_gather - before;
}

} // namespace

// Stages 1 and 2 fetch the others' rows once after a change, not for every evaluation and
// token.
TEST(Communication, ParametersAreGatheredOnceAfterAChange) {
    int ranks = z3d_world_size(world);
    for (int stage = 0; stage < 4; stage++) {
        Options o;
        o.stage = stage;
        o.accumulation = stage == 3 ? 1 : 2;
        Trainer t(o);
        ASSERT_Z3D(t.create());
        int64_t whole = z3d_engine_layout(t.engine)->padded_total / ranks * (ranks - 1);
        int64_t first = stage == 0 ? 0 : whole, later = stage == 3 ? whole : 0;
        double loss, again, before = 0;
        std::vector<float> logits, same;
        z3d_step_result result;
        for (int round = 0; round < 2; round++) {
            EXPECT_GE(evaluation(t, &loss), first) << "stage " << stage;
            EXPECT_NE(before, loss) << "the step's changes were not fetched";
            before = loss;
            for (int k = 0; k < 2; k++) {
                EXPECT_EQ(evaluation(t, &again) > 0, later > 0) << "stage " << stage;
                EXPECT_EQ(loss, again);
            }
            EXPECT_EQ(token(t, &logits) > 0, first > 0) << "stage " << stage;
            EXPECT_EQ(token(t, &same) > 0, later > 0) << "stage " << stage;
            EXPECT_EQ(logits, same);
            ASSERT_Z3D(t.step(&result));
        }
        evaluation(t, &loss);
        // The program without gathers is right only where they have run.
        if ((stage == 1 || stage == 2) && ranks > 1) {
            z3d_program stale = *t.engine->set.again[Z3D_MODE_EVALUATE];
            EXPECT_Z3D(z3d_program_verify(&stale));
            stale.config.gathered = false;
            EXPECT_EQ(z3d_program_verify(&stale), Z3D_ERR_PROGRAM);
        }
        // A parameter that is set is fetched too.
        const z3d_parameter &p = t.model->group[0].parameter[0];
        int64_t count = 1;
        for (int d = 0; d < p.dims; d++) count *= p.shape[d];
        std::vector<float> values(static_cast<size_t>(count));
        ASSERT_Z3D(z3d_engine_get(t.engine, Z3D_TENSOR_PARAMETER, 0, 0, values.data()));
        for (float &v : values) v *= 0.5f;
        ASSERT_Z3D(z3d_engine_set(t.engine, Z3D_TENSOR_PARAMETER, 0, 0, values.data()));
        EXPECT_EQ(evaluation(t, &again) > 0, first > 0) << "stage " << stage;
        EXPECT_NE(loss, again);
    }
}

// Sequence parallelism: each all-reduce becomes a reduce-scatter and an all-gather of the same
// volume together. A replay gathers what its products read, too, and a lean backward (selective)
// gathers the layernorms' outputs again: 11 b s h a block (10 without), 10 (8).
TEST(Communication, TensorGroupOfSequenceParallelism) {
    struct {
        const char *name;
        bool recompute, replay_full, selective;
        int64_t scatters, gathers; // of b s h, a block
    } ways[] = {{"minimal", true, false, false, 5, 6},
                {"full", true, true, false, 6, 6},
                {"selective", false, false, true, 4, 6},
                {"none", false, false, false, 4, 4}};
    for (int tensor : tensor_sizes()) {
        if (tensor == 1) continue;
        for (const auto &way : ways) {
            Options o;
            o.tensor = tensor;
            o.stage = 2;
            o.accumulation = 2;
            o.recompute = way.recompute;
            o.replay_full = way.replay_full;
            o.selective = way.selective;
            o.partition = way.recompute; // brings nothing more
            o.sequence_parallel = true;
            Trainer t(o);
            Traffic got = one_step(t, Z3D_AXES_TENSOR);
            int64_t share = t.o.micro_batch * o.sequence * o.hidden / tensor * (tensor - 1);
            int64_t outside = 2; // each: the embedding's and the head's
            EXPECT_EQ(got.reduce_scatter,
                      (way.scatters * o.layers + outside) * o.accumulation * share)
                << way.name << ", tensor " << tensor;
            EXPECT_EQ(got.all_gather, (way.gathers * o.layers + outside) * o.accumulation * share)
                << way.name << ", tensor " << tensor;
            // Once a step: what all tensor ranks hold, of this rank's shard.
            const z3d_layout *layout = z3d_engine_layout(t.engine);
            int64_t sums = 0, calls = 0;
            for (int g = 0; g < layout->num_groups; g++) {
                int64_t count = 0;
                for (int r = 0; r < layout->group[g].num_ranges; r++) {
                    z3d_range range;
                    if (z3d_layout_shard_range(layout, g, r, &range) && range.replicated)
                        count += range.count;
                }
                sums += 2 * count * (tensor - 1) / tensor;
                calls += count > 0;
            }
            EXPECT_EQ(got.all_reduce, sums) << way.name << ", tensor " << tensor;
            EXPECT_EQ(got.calls, calls) << way.name << ", tensor " << tensor;
            EXPECT_EQ(got.reduce_scatter + got.all_gather + got.all_reduce,
                      z3d_program_volume(z3d_engine_program(t.engine, Z3D_MODE_TRAIN),
                                         Z3D_AXES_TENSOR, true));
            if (strcmp(way.name, "none") != 0) continue;
            o.sequence_parallel = false;
            Trainer plain(o);
            EXPECT_EQ(one_step(plain, Z3D_AXES_TENSOR).all_reduce,
                      got.reduce_scatter + got.all_gather);
        }
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
