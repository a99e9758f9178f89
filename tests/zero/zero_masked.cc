// The loss is the mean over the trained tokens of the whole step, however unequally these lie in
// micro-batches and on ranks. A step without any changes nothing.
#include "tests/zero/harness.h"

#include <cmath>
#include <fstream>

using namespace harness;

namespace {

constexpr int64_t BATCH = 12;
constexpr int EMPTY_STEP = 3; // counted from 1

// How many of a sample's tokens are trained, its last ones: most samples have none.
int64_t trained(int64_t sample) {
    static const int64_t counts[BATCH] = {8, 0, 1, 0, 0, 3, 0, 7, 0, 0, 0, 2};
    const int64_t step = sample / BATCH + 1;
    return step == EMPTY_STEP ? 0 : counts[(sample + 5 * (step - 1)) % BATCH];
}

int64_t trained_in_step(int64_t step) {
    int64_t count = 0;
    for (int64_t s = 0; s < BATCH; s++) count += trained((step - 1) * BATCH + s);
    return count;
}

Options options() {
    Options o;
    o.optimizer = Z3D_OPTIMIZER_sgd; // a small gradient stays one
    o.steps = 4;
    o.global_batch = BATCH;
    o.hidden = 16;
    o.heads = 2;
    o.sequence = 8;
    o.vocabulary = 27;
    o.bucket = 1000;
    o.clipping = 0.5; // every step is clipped
    o.sample = [](int64_t s, int32_t *, int32_t *targets, int32_t *) {
        for (int64_t i = 0; i < 8 - trained(s); i++) targets[i] = -1;
    };
    return o;
}

void append(std::vector<float> &all, const Tensors &tensors) {
    for (const auto &values : tensors) all.insert(all.end(), values.begin(), values.end());
}

// What a run is compared by.
struct Run {
    std::vector<double> loss, norm;
    std::vector<float> values; // the last step's gradients, then the parameters after it
};

Run run(const Options &o) {
    Run r;
    Trainer t(o);
    EXPECT_Z3D(t.create());
    for (int k = 1; k <= o.steps; k++) {
        z3d_step_result step{};
        EXPECT_Z3D(t.step(&step));
        EXPECT_EQ(step.targets, trained_in_step(k));
        EXPECT_EQ(step.skipped, k == EMPTY_STEP);
        r.loss.push_back(step.loss);
        r.norm.push_back(step.grad_norm);
    }
    append(r.values, t.whole(Z3D_TENSOR_GRADIENT));
    append(r.values, t.whole(Z3D_TENSOR_PARAMETER));
    return r;
}

void expect_near(const Run &a, const Run &b) {
    for (size_t k = 0; k < a.loss.size(); k++) {
        if (k + 1 == EMPTY_STEP) continue;
        EXPECT_NEAR(a.loss[k], b.loss[k], 1e-6 * b.loss[k]) << "step " << k + 1;
        EXPECT_NEAR(a.norm[k], b.norm[k], 1e-6 * b.norm[k]) << "step " << k + 1;
    }
    ASSERT_EQ(a.values.size(), b.values.size());
    double most = 0;
    for (size_t i = 0; i < a.values.size(); i++)
        most = std::fmax(most, std::fabs(a.values[i] - b.values[i]));
    EXPECT_LT(most, 1e-6);
}

constexpr const char *ONE_RANK = "masked-one-rank.bin";

void keep(const Run &r) {
    std::ofstream file(ONE_RANK, std::ios::binary);
    file.write((const char *)r.loss.data(), (long)(r.loss.size() * sizeof(double)));
    file.write((const char *)r.norm.data(), (long)(r.norm.size() * sizeof(double)));
    file.write((const char *)r.values.data(), (long)(r.values.size() * sizeof(float)));
}

// One rank's run with one micro-batch; sizes are those of `like`.
Run kept(const Run &like) {
    Run r = like;
    std::ifstream file(ONE_RANK, std::ios::binary);
    file.read((char *)r.loss.data(), (long)(r.loss.size() * sizeof(double)));
    file.read((char *)r.norm.data(), (long)(r.norm.size() * sizeof(double)));
    file.read((char *)r.values.data(), (long)(r.values.size() * sizeof(float)));
    EXPECT_TRUE(file.good()) << "run the one-rank test first";
    return r;
}

void expect_same_bits(const Run &a, const Run &b) {
    EXPECT_TRUE(same_bits(a.loss, b.loss));
    EXPECT_TRUE(same_bits(a.norm, b.norm));
    EXPECT_EQ(0, memcmp(a.values.data(), b.values.data(), b.values.size() * sizeof(float)));
}

// Stage 0 trains like one rank; the other stages, and the host's optimizer, equal it to the bit.
void expect_like_one_rank(Options o) {
    const Run first = run(o);
    if (z3d_world_size(world) == 1 && o.accumulation == 1) keep(first);
    SCOPED_TRACE(name_of(o));
    expect_near(first, kept(first));
    for (o.stage = 1; o.stage < 4; o.stage++) {
        SCOPED_TRACE("stage " + std::to_string(o.stage));
        expect_same_bits(run(o), first);
    }
    SCOPED_TRACE("offloaded");
    o.stage = 2;
    o.tiers.optimizer = Z3D_SPACE_HOST;
    expect_same_bits(run(o), first);
}

} // namespace

TEST(Masked, EveryDivisionTrainsLikeOneRankAndOneMicroBatch) {
    for (int pipeline : {1, 2})
        for (int accumulation : {1, 3}) {
            if (z3d_world_size(world) % pipeline != 0) continue;
            Options o = options();
            o.pipeline = pipeline;
            o.accumulation = accumulation;
            o.reduce_per_step = pipeline == 1;
            expect_like_one_rank(o);
        }
}

// Whatever number the step is given before it counts them itself.
TEST(Masked, GradientsAndNormAreOfTheMean) {
    for (int64_t places : {BATCH * 8, trained_in_step(1), (int64_t)7}) {
        Options o = options();
        o.accumulation = 3;
        if (z3d_world_size(world) > 1) o.pipeline = 2;
        Trainer t(o);
        ASSERT_Z3D(t.create());
        const Tensors before = t.whole(Z3D_TENSOR_PARAMETER);
        std::vector<std::vector<int32_t>> storage;
        std::vector<z3d_micro_batch> micro;
        t.batch(1, storage, micro);
        z3d_step_input in = t.input(1, micro);
        in.global_targets = places;
        z3d_step_result step{};
        ASSERT_Z3D(z3d_engine_train_step(t.engine, &in, &step));
        const Tensors gradients = t.whole(Z3D_TENSOR_GRADIENT);
        static const Tensors first = gradients;
        double squares = 0;
        for (size_t i = 0; i < gradients.size(); i++)
            for (size_t j = 0; j < gradients[i].size(); j++) {
                squares += (double)gradients[i][j] * gradients[i][j];
                ASSERT_NEAR(gradients[i][j], first[i][j], 1e-6) << places;
            }
        EXPECT_NEAR(step.grad_norm, std::sqrt(squares), 1e-6 * step.grad_norm) << places;
        EXPECT_GT(step.grad_norm, o.clipping);
        const Tensors after = t.whole(Z3D_TENSOR_PARAMETER);
        for (size_t j = 0; j < after[0].size(); j++) {
            const double g = gradients[0][j] * o.clipping / std::sqrt(squares);
            ASSERT_NEAR(after[0][j], before[0][j] - 0.01 * (g + 0.1 * before[0][j]), 1e-6);
        }
    }
}

// Steps are counted from `first`; scale 1e30 overflows.
void expect_unchanged_by_the_empty_step(Options o, int first, float scale) {
    o.dtype = Z3D_F16;
    o.scaler = {true, scale, 1, 1000, 2};
    SCOPED_TRACE(name_of(o) + " scale " + std::to_string(scale));
    Trainer t(o);
    ASSERT_Z3D(t.create());
    t.next_step = first;
    z3d_step_result step{};
    while (t.next_step < EMPTY_STEP) ASSERT_Z3D(t.step(&step));
    EXPECT_EQ(step.skipped, scale > 1e20f);
    z3d_engine_state before, after;
    z3d_engine_get_state(t.engine, &before);
    EXPECT_EQ(before.skipped_in_a_row, step.skipped ? 1 : 0);
    const Tensors values = t.whole(Z3D_TENSOR_PARAMETER), momentum = t.whole(Z3D_TENSOR_MOMENTUM);
    ASSERT_Z3D(t.step(&step));
    EXPECT_EQ(step.targets, 0);
    EXPECT_TRUE(std::isnan(step.loss));
    EXPECT_EQ(step.grad_norm, 0);
    EXPECT_TRUE(step.skipped);
    z3d_engine_get_state(t.engine, &after);
    EXPECT_EQ(after.step, before.step + 1);
    EXPECT_EQ(after.optimizer_step, before.optimizer_step);
    EXPECT_EQ(after.skipped_in_a_row, before.skipped_in_a_row);
    EXPECT_EQ(after.loss_scale, before.loss_scale);
    EXPECT_EQ(after.good_steps, before.good_steps);
    EXPECT_EQ(after.hysteresis_left, before.hysteresis_left);
    EXPECT_EQ(t.whole(Z3D_TENSOR_PARAMETER), values);
    EXPECT_EQ(t.whole(Z3D_TENSOR_MOMENTUM), momentum);
}

TEST(Masked, AStepWithoutATrainedTokenChangesNothing) {
    Options o = options();
    if (z3d_world_size(world) > 1) o.pipeline = 2;
    for (o.stage = 0; o.stage < 4; o.stage += 3) {
        expect_unchanged_by_the_empty_step(o, 1, 64);
        expect_unchanged_by_the_empty_step(o, 2, 1e30f);
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
