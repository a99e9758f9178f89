// Pipelines: every schedule with every ZeRO stage trains like one rank, and equally to the bit
// across stages and schedules.
#include "tests/zero/harness.h"

#include <cmath>

using namespace harness;

namespace {

struct Way {
    z3d_schedule_kind schedule;
    int chunks;
};

const Way WAYS[] = {{Z3D_SCHEDULE_1F1B, 1},
                    {Z3D_SCHEDULE_GPIPE, 1},
                    {Z3D_SCHEDULE_INTERLEAVED, 2},
                    {Z3D_SCHEDULE_ZB_H1, 1},
                    {Z3D_SCHEDULE_ZB_V, 2}};

Options pipeline_options(int pipeline, int tensor, const Way &way) {
    Options o;
    o.pipeline = pipeline;
    o.tensor = tensor;
    o.schedule = way.schedule;
    o.chunks = way.chunks;
    o.layers = 7; // with embedding and head 9 units: no number of chunks divides them
    o.global_batch = 16;
    o.accumulation = 16 / (2 * z3d_world_size(world) / (pipeline * tensor));
    if (o.accumulation > 8) o.accumulation = 8;
    o.steps = SANITIZED ? 2 : 4;
    return o;
}

} // namespace

// A sum over micro-batches is the same in every schedule, so nothing but the number of stages
// changes bits: the gradients of the tied table's two uses are then summed apart.
TEST(Pipeline, TrainsLikeOneStage) {
    int ranks = z3d_world_size(world);
    for (int pipeline = 2; pipeline <= 4 && pipeline <= ranks; pipeline *= 2) {
        for (int tensor = 1; tensor <= 2 && pipeline * tensor <= ranks; tensor++) {
            Options one = pipeline_options(pipeline, tensor, WAYS[0]);
            one.pipeline = 1;
            one.reduce_per_step = 0;
            one.accumulation = 16 / (2 * ranks / tensor);
            Result alone = train(one), first;
            for (const Way &way : WAYS) {
                Options o = pipeline_options(pipeline, tensor, way);
                for (o.stage = 0; o.stage < 4; o.stage++) {
                    o.reduce_per_step = 0;
                    o.gather_per_step = o.stage == 3 && tensor == 1;
                    SCOPED_TRACE(name_of(o));
                    Result r = train(o);
                    ASSERT_EQ((size_t)o.steps, r.loss.size()) << name_of(o);
                    if (first.loss.empty()) first = r;
                    EXPECT_TRUE(same_bits(first.loss, r.loss)) << name_of(o);
                    EXPECT_TRUE(same_bits(first.norm, r.norm)) << name_of(o);
                }
            }
            for (size_t i = 0; i < alone.loss.size(); i++) {
                EXPECT_NEAR(alone.loss[i], first.loss[i], 1e-5);
                EXPECT_NEAR(alone.norm[i], first.norm[i], 1e-4 * alone.norm[i]);
            }
        }
    }
}

TEST(Pipeline, EvaluatesAndGeneratesLikeOneStage) {
    std::vector<float> logits[2];
    double loss[2] = {};
    for (int way = 0; way < 2; way++) {
        Options o = pipeline_options(way ? 2 : 1, 1, WAYS[way]);
        o.data = 0;
        o.stage = 3;
        o.accumulation = 1;
        o.global_batch = 0;
        o.micro_batch = way ? 4 : 2;
        Trainer t(o);
        ASSERT_EQ(Z3D_OK, t.create()) << z3d_error_message();
        ASSERT_EQ(Z3D_OK, t.evaluate(&loss[way])) << z3d_error_message();
        ASSERT_EQ(Z3D_OK, t.generate(&logits[way])) << z3d_error_message();
        logits[way].resize(67);
    }
    EXPECT_NEAR(loss[0], loss[1], 1e-5 * loss[0]);
    if (z3d_world_rank(world) == 0) { // both times it has the first sample
        EXPECT_EQ(logits[0], logits[1]);
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
