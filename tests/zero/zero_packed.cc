// Packed documents train like the same documents as samples of their own: each sees itself only,
// and counts its own positions.
#include "tests/zero/harness.h"

#include <cmath>

using namespace harness;

namespace {

constexpr int DOCUMENTS = 3, SAMPLES = 4;

// Of sample `s`, in sixteenths of it. What is left is filled up, each token for itself.
const int LENGTHS[SAMPLES][DOCUMENTS] = {{5, 7, 4}, {16, 0, 0}, {1, 2, 13}, {8, 6, 1}};

// Token `i` of a document: its target is the next one, but for its last and for every fifth.
void write(int document, int64_t i, int64_t length, int32_t *tokens, int32_t *targets) {
    *tokens = token(document, i, 27);
    *targets = i + 1 == length || i % 5 == document % 5 ? -1 : token(document, i + 1, 27);
}

void fill_up(int64_t from, int64_t seq, int32_t *tokens, int32_t *targets) {
    for (int64_t i = from; i < seq; i++) tokens[i] = 0, targets[i] = -1;
}

void packed_sample(int64_t s, int64_t seq, int32_t *tokens, int32_t *targets, int32_t *positions) {
    int64_t at = 0;
    for (int d = 0; d < DOCUMENTS; d++) {
        const int64_t length = LENGTHS[s % SAMPLES][d] * seq / 16;
        for (int64_t i = 0; i < length; i++, at++) {
            write((int)(s % SAMPLES) * DOCUMENTS + d, i, length, tokens + at, targets + at);
            positions[at] = (int32_t)i;
        }
    }
    fill_up(at, seq, tokens, targets);
}

void single_sample(int64_t s, int64_t seq, int32_t *tokens, int32_t *targets) {
    const int64_t document = s % (SAMPLES * DOCUMENTS);
    const int64_t length = LENGTHS[document / DOCUMENTS][document % DOCUMENTS] * seq / 16;
    for (int64_t i = 0; i < length; i++) write((int)document, i, length, tokens + i, targets + i);
    fill_up(length, seq, tokens, targets);
}

Options options(Kind kind, int64_t seq, bool packed) {
    Options o;
    o.kind = kind;
    o.packed = packed;
    o.global_batch = packed ? SAMPLES : SAMPLES * DOCUMENTS;
    o.hidden = 16;
    o.sequence = seq;
    o.vocabulary = 27;
    o.bucket = 1000;
    o.optimizer = Z3D_OPTIMIZER_sgd;
    if (packed)
        o.sample = [seq](int64_t s, int32_t *tokens, int32_t *targets, int32_t *positions) {
            packed_sample(s, seq, tokens, targets, positions);
        };
    else
        o.sample = [seq](int64_t s, int32_t *tokens, int32_t *targets, int32_t *) {
            single_sample(s, seq, tokens, targets);
        };
    return o;
}

struct Step {
    z3d_step_result result{};
    Tensors gradients;
};

Step step(const Options &o) {
    Step s;
    Trainer t(o);
    EXPECT_Z3D(t.create());
    EXPECT_Z3D(t.step(&s.result));
    s.gradients = t.whole(Z3D_TENSOR_GRADIENT);
    return s;
}

void expect_near(const Step &packed, const Step &single) {
    EXPECT_EQ(packed.result.targets, single.result.targets);
    EXPECT_NEAR(packed.result.loss, single.result.loss, 1e-6 * single.result.loss);
    ASSERT_EQ(packed.gradients.size(), single.gradients.size());
    double most = 0;
    for (size_t i = 0; i < packed.gradients.size(); i++)
        for (size_t j = 0; j < packed.gradients[i].size(); j++)
            most = std::fmax(most, std::fabs(packed.gradients[i][j] - single.gradients[i][j]));
    EXPECT_LT(most, 1e-6);
}

// All divisions of the world, with and without recompute.
void expect_like_single(Kind kind, int64_t seq) {
    const Step single = step(options(kind, seq, false));
    EXPECT_GT(single.result.targets, 0);
    for (int pipeline : {1, 2})
        for (int tensor : {1, 2})
            for (bool recompute : {true, false}) {
                if (z3d_world_size(world) % (pipeline * tensor) != 0) continue;
                Options o = options(kind, seq, true);
                o.pipeline = pipeline, o.tensor = tensor;
                o.recompute = recompute;
                o.sequence_parallel = tensor > 1 && recompute == (pipeline == 1);
                o.stage = recompute ? 3 : 0;
                SCOPED_TRACE(name_of(o));
                expect_near(step(o), single);
            }
}

} // namespace

TEST(Packed, GptTrainsLikeSingleDocuments) {
    expect_like_single(GPT, 16);
}

TEST(Packed, LlamaTrainsLikeSingleDocuments) {
    expect_like_single(LLAMA, 16);
}

// With a window of 5 tokens, norms of heads, biases and a tied table.
TEST(Packed, QwenTrainsLikeSingleDocuments) {
    expect_like_single(QWEN, 16);
}

// Documents end in and between the attention kernel's blocks.
TEST(Packed, LongSamplesTrainLikeSingleDocuments) {
    for (Kind kind : {GPT, LLAMA}) {
        Options single = options(kind, 560, false), packed = options(kind, 560, true);
        single.layers = packed.layers = 1;
        expect_near(step(packed), step(single));
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
