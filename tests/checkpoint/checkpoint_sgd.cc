// A run with SGD, Adagrad or moments in bf16, saved on one topology and stage and resumed on every
// other of this world, goes on as if it had never stopped: to the bit where only the stage differs.
#include <cmath>

#include "engine.h"

namespace {

enum { BEFORE = 2, AFTER = 3 };

Options options(z3d_optimizer optimizer, int tensor, int stage, int accumulation) {
    Options o;
    o.tensor = tensor;
    o.stage = stage;
    o.accumulation = accumulation;
    o.reduce_per_step = 0; // in every stage alike
    o.optimizer = optimizer;
    o.dropout = 0.1;
    o.hidden = 16;
    o.heads = 4;
    o.sequence = 8;
    o.vocabulary = 27;
    return o;
}

void expect_resumed(z3d_optimizer optimizer, z3d_tensor_kind state) {
    int ranks = z3d_world_size(world);
    for (int from = 1; from <= ranks; from *= 2)
        for (int accumulation : {1, 2}) {
            if (!is_long() && ranks > 1 && accumulation != (from == 1 ? 2 : 1)) continue;
            SharedFolder folder;
            Options o = options(optimizer, from, (from + accumulation) % 4, accumulation);
            Trainer t(o);
            Trace before, never_stopped;
            z3d_store *store;
            ASSERT_Z3D(t.create());
            ASSERT_Z3D(open_store(t, folder.path, false, 0, &store));
            steps(t, BEFORE, before);
            ASSERT_Z3D(save(store, BEFORE * t.o.global_batch));
            z3d_store_close(store);
            auto saved = everything(t);
            steps(t, AFTER, never_stopped);
            auto last = everything(t);
            ASSERT_NE(before.loss[0], never_stopped.loss.back());
            for (int to = 1; to <= ranks; to *= 2)
                for (int stage = 0; stage < 4; stage++) {
                    SCOPED_TRACE(name_of(o) + " to " +
                                 name_of(options(optimizer, to, stage, accumulation)));
                    Trainer other(options(optimizer, to, stage, accumulation));
                    Trace after;
                    resume(other, folder.path);
                    ASSERT_EQ(z3d_engine_kinds(other.engine), Z3D_KIND(PARAMETER) | 1U << state);
                    ASSERT_TRUE(everything(other) == saved);
                    steps(other, AFTER, after);
                    ASSERT_EQ(after.loss.size(), (size_t)AFTER);
                    if (to == from) {
                        EXPECT_TRUE(harness::same_bits(after.loss, never_stopped.loss));
                        EXPECT_TRUE(harness::same_bits(after.norm, never_stopped.norm));
                        EXPECT_TRUE(everything(other) == last);
                    }
                    for (size_t k = 0; k < AFTER; k++)
                        EXPECT_LT(std::abs(after.loss[k] / never_stopped.loss[k] - 1), 1e-5);
                }
        }
}

} // namespace

TEST(Sgd, ResumesOnOtherTopologies) {
    expect_resumed(Z3D_OPTIMIZER_sgd, Z3D_TENSOR_MOMENTUM);
}

TEST(Adagrad, ResumesOnOtherTopologies) {
    expect_resumed(Z3D_OPTIMIZER_adagrad, Z3D_TENSOR_SQUARE_SUM);
}

TEST(MomentsInBf16, ResumeOnOtherTopologies) {
    expect_resumed(Z3D_OPTIMIZER_adamw_bf16, Z3D_TENSOR_MOMENTS);
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
