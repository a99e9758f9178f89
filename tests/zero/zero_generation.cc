// Prefill and decode: with keys and values in caches the logits are those of the whole text, on any
// topology, and caches disturb nothing else.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/zero/harness.h"

using harness::same_bits;
using harness::Trainer;
using Options = harness::Options;

namespace {

const int64_t SAMPLES = 3; // that generation works on together

Options options() {
    Options o;
    o.sequence = 160; // a short prefill is shorter
    o.micro_batch = 1;
    o.steps = 1;
    o.generate_batch = SAMPLES;
    return o;
}

// A call for some samples from `sample` on; the output is of the last token before `length`.
z3d_status call_one(Trainer &t, z3d_mode mode, int64_t sample, int64_t samples,
                    const std::vector<int64_t> &first, const std::vector<int64_t> &length,
                    float *logits) {
    std::vector<int32_t> tokens, positions((size_t)(2 * samples));
    const int64_t count = t.model->tokens[mode];
    for (int64_t i = 0; i < samples; i++) {
        const int64_t from = first[(size_t)(sample + i)], until = length[(size_t)(sample + i)];
        // Behind the end lies something that nobody may look at.
        for (int64_t at = from; at < from + count; at++)
            tokens.push_back(at < until ? harness::token(sample + i, at, t.o.vocabulary) : 1);
        positions[(size_t)i] = (int32_t)from;
        positions[(size_t)(samples + i)] =
            (int32_t)std::min(std::max<int64_t>(until - 1 - from, 0), count - 1);
    }
    return z3d_engine_generate(t.engine, mode, sample, tokens.data(), positions.data(), logits);
}

int64_t columns_of(const Trainer &t) {
    return t.model->unit[t.model->num_units - 1].output_elements[Z3D_MODE_DECODE];
}

// Every sample's tokens [first, length), or of a prefill as many as it takes.
z3d_status call(Trainer &t, z3d_mode mode, const std::vector<int64_t> &first,
                const std::vector<int64_t> &length, std::vector<float> *logits) {
    logits->assign((size_t)(SAMPLES * columns_of(t)), NAN);
    if (mode == Z3D_MODE_DECODE)
        return call_one(t, mode, 0, SAMPLES, first, length, logits->data());
    for (int64_t s = 0; s < SAMPLES; s++)
        Z3D_TRY(call_one(t, mode, s, 1, first, length, logits->data() + s * columns_of(t)));
    return Z3D_OK;
}

// -log of the probability of sample s's token `at`.
double loss_of(const Trainer &t, const std::vector<float> &logits, int64_t s, int64_t at) {
    const int64_t columns = (int64_t)logits.size() / SAMPLES;
    const float *x = logits.data() + s * columns;
    double sum = 0, largest = -INFINITY;
    for (int64_t i = 0; i < t.o.vocabulary; i++) largest = std::max(largest, (double)x[i]);
    for (int64_t i = 0; i < t.o.vocabulary; i++) sum += exp(x[i] - largest);
    return log(sum) + largest - x[harness::token(s, at, t.o.vocabulary)];
}

// Sum of the losses of the first samples' tokens, one token at a time.
double decoded_loss(Trainer &t, int64_t samples) {
    double loss = 0;
    std::vector<float> logits;
    for (int64_t at = 0; at < t.o.sequence; at++) {
        const std::vector<int64_t> first(SAMPLES, at), length(SAMPLES, at + 1);
        EXPECT_Z3D(call(t, Z3D_MODE_DECODE, first, length, &logits));
        for (int64_t s = 0; s < samples; s++) loss += loss_of(t, logits, s, at + 1);
    }
    return loss;
}

void expect_near(const std::vector<float> &a, const std::vector<float> &b, float bound) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); i++) ASSERT_NEAR(a[i], b[i], bound) << "logit " << i;
}

std::vector<Options> topologies() {
    const int ranks = z3d_world_size(world);
    std::vector<Options> all;
    for (int tensor = 1; tensor <= ranks; tensor *= 2)
        for (int pipeline = 1; tensor * pipeline <= ranks && pipeline <= 2; pipeline *= 2)
            for (int stage : {0, 1, 3}) {
                Options o = options();
                o.tensor = tensor, o.pipeline = pipeline, o.stage = stage;
                o.sequence_parallel = tensor > 1 && stage == 1;
                all.push_back(o);
                if (stage == 0) continue;
                o.kind = stage == 1 ? harness::LLAMA : harness::QWEN;
                all.push_back(o);
            }
    return all;
}

} // namespace

TEST(Generation, DecodesWithTheLossOfEvaluation) {
    for (const Options &o : topologies()) {
        SCOPED_TRACE(name_of(o));
        Trainer t(o);
        double loss;
        ASSERT_Z3D(t.create());
        int64_t samples = std::min<int64_t>(t.o.data, SAMPLES);
        if (t.o.data > SAMPLES) continue; // evaluation has a sample of each data rank
        ASSERT_Z3D(t.evaluate(&loss));
        EXPECT_NEAR(decoded_loss(t, samples), loss, 1e-5 * loss);
    }
}

// Samples of other lengths, in parts: the last one begins where its end is the last position, over
// what was read before. A short prefill may follow a long one, and one sample another.
TEST(Generation, PrefillsWhatItWouldDecode) {
    for (const Options &o : topologies()) {
        SCOPED_TRACE(name_of(o));
        Trainer t(o), other(o);
        ASSERT_Z3D(t.create());
        ASSERT_Z3D(other.create());
        const std::vector<int64_t> length{5, 64, 150};
        const int64_t columns = columns_of(t);
        std::vector<float> prefilled((size_t)(SAMPLES * columns)), decoded, expected(prefilled);
        for (int64_t s : {2, 0, 1}) {
            float *logits = &prefilled[(size_t)(s * columns)];
            for (int64_t at : {0, 64, 96}) {
                const std::vector<int64_t> first(SAMPLES, at);
                if (at >= length[(size_t)s]) break;
                ASSERT_Z3D(call_one(t, Z3D_MODE_PREFILL_SHORT, s, 1, first, length, logits));
            }
        }
        for (int64_t at = 0; at < 150; at++) {
            const std::vector<int64_t> from(SAMPLES, at), until(SAMPLES, at + 1);
            ASSERT_Z3D(call(other, Z3D_MODE_DECODE, from, until, &decoded));
            for (size_t s = 0; s < SAMPLES; s++) {
                if (length[s] != at + 1) continue;
                const size_t from = s * (size_t)columns;
                std::copy_n(&decoded[from], columns, &expected[from]);
            }
        }
        expect_near(expected, prefilled, 1e-4f);
        ASSERT_Z3D(call(t, Z3D_MODE_PREFILL, std::vector<int64_t>(SAMPLES, 0), length, &prefilled));
        expect_near(expected, prefilled, 1e-4f);
    }
}

TEST(Generation, RefusesASampleThatThereIsNot) {
    Trainer t(options());
    ASSERT_Z3D(t.create());
    for (int64_t sample : {(int64_t)-1, SAMPLES})
        EXPECT_EQ(Z3D_ERR_USAGE, z3d_engine_generate(t.engine, Z3D_MODE_PREFILL, sample, nullptr,
                                                     nullptr, nullptr));
}

// Caches lie where a training step has its activations.
TEST(Generation, LeavesTrainingAlone) {
    for (Options o : topologies()) {
        o.steps = 3;
        o.micro_batch = SAMPLES; // a training step touches all of the batch's buffers
        SCOPED_TRACE(name_of(o));
        std::vector<double> losses[2];
        for (int generates = 0; generates < 2; generates++) {
            Trainer t(o);
            std::vector<float> logits;
            ASSERT_Z3D(t.create());
            for (int step = 0; step < o.steps; step++) {
                z3d_step_result result;
                ASSERT_Z3D(t.step(&result));
                losses[generates].push_back(result.loss);
                if (!generates) continue;
                const std::vector<int64_t> zero(SAMPLES, 0), length(SAMPLES, 100);
                ASSERT_Z3D(call(t, Z3D_MODE_PREFILL, zero, length, &logits));
                ASSERT_Z3D(call(t, Z3D_MODE_DECODE, length, {101, 101, 101}, &logits));
            }
        }
        EXPECT_TRUE(same_bits(losses[0], losses[1]));
    }
}

// Without training there are only parameters, in their own type, and the same logits.
TEST(Generation, InferenceKeepsParametersOnly) {
    for (Options o : topologies())
        for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16}) {
            o.dtype = dtype;
            SCOPED_TRACE(name_of(o));
            const std::vector<int64_t> zero(SAMPLES, 0), length(SAMPLES, 100);
            std::vector<float> expected, logits;
            Trainer trained(o);
            ASSERT_Z3D(trained.create());
            ASSERT_Z3D(call(trained, Z3D_MODE_PREFILL, zero, length, &expected));
            o.inference = true;
            Trainer t(o);
            ASSERT_Z3D(t.create());
            EXPECT_EQ(nullptr, z3d_engine_program(t.engine, Z3D_MODE_TRAIN));
            const z3d_program *program = z3d_engine_program(t.engine, Z3D_MODE_PREFILL);
            z3d_ledger ledger;
            z3d_program_ledger(program, Z3D_SPACE_DEVICE, &ledger);
            EXPECT_EQ(0, ledger.peak[Z3D_CATEGORY_GRADIENTS]);
            EXPECT_EQ(0, ledger.peak[Z3D_CATEGORY_OPTIMIZER]);
            EXPECT_GT(ledger.peak[Z3D_CATEGORY_CACHE], 0);
            for (int g = 0; g < t.model->num_groups; g++)
                for (int p = 0; p < t.model->group[g].num_parameters; p++) {
                    int64_t count = 1;
                    const z3d_parameter &parameter = t.model->group[g].parameter[p];
                    for (int d = 0; d < parameter.dims; d++) count *= parameter.shape[d];
                    std::vector<float> values((size_t)count);
                    ASSERT_Z3D(
                        z3d_engine_get(trained.engine, Z3D_TENSOR_PARAMETER, g, p, values.data()));
                    ASSERT_Z3D(z3d_engine_set(t.engine, Z3D_TENSOR_PARAMETER, g, p, values.data()));
                }
            ASSERT_Z3D(call(t, Z3D_MODE_PREFILL, zero, length, &logits));
            ASSERT_EQ(0, memcmp(expected.data(), logits.data(), logits.size() * sizeof(float)));
        }
}

// Shorter caches hold what they have room for, and give the same logits.
TEST(Generation, CachesAreAsLongAsAsked) {
    for (Options o : topologies()) {
        o.sequence = 640;
        SCOPED_TRACE(name_of(o));
        const std::vector<int64_t> zero(SAMPLES, 0), length(SAMPLES, 511), more(SAMPLES, 512);
        std::vector<float> prefilled[2], decoded[2];
        int64_t bytes[2];
        for (int is_short = 0; is_short < 2; is_short++) {
            o.generate_positions = is_short ? 1 : 0; // at least those of a prefill
            Trainer t(o);
            ASSERT_Z3D(t.create());
            const z3d_program *program = z3d_engine_program(t.engine, Z3D_MODE_DECODE);
            z3d_ledger ledger;
            z3d_program_ledger(program, Z3D_SPACE_DEVICE, &ledger);
            bytes[is_short] = ledger.peak[Z3D_CATEGORY_CACHE];
            EXPECT_EQ(z3d_cache_positions(&program->config, t.model), is_short ? 512 : 640);
            ASSERT_Z3D(call(t, Z3D_MODE_PREFILL, zero, length, &prefilled[is_short]));
            ASSERT_Z3D(call(t, Z3D_MODE_DECODE, length, more, &decoded[is_short]));
        }
        EXPECT_GT(bytes[1], 0);
        EXPECT_LT(bytes[1], bytes[0]);
        expect_near(prefilled[0], prefilled[1], 1e-6f);
        expect_near(decoded[0], decoded[1], 1e-6f);
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
