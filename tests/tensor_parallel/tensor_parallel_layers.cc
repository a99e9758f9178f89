// The tensor-parallel layers on real ranks, each against plain loops in double on the whole
// matrices.
#include <cmath>
#include <string>
#include <vector>

#include "tests/ranks.h"

extern "C" {
#include "tensor_parallel/tensor_parallel.h"
}

namespace {

z3d_mesh mesh;
z3d_device *device;
z3d_group *group;
int ranks, rank_index;

// Deterministic values in [-1, 1).
double value(int salt, int64_t i) {
    uint64_t x = (uint64_t)i * 0x9E3779B97F4A7C15ull + (uint64_t)salt * 0xD1B54A32D192ED03ull;
    x ^= x >> 29, x *= 0xBF58476D1CE4E5B9ull, x ^= x >> 32;
    return (double)(x % 20011) / 10005.5 - 1;
}

// Elements in a dtype, as kernels see them.
struct Tensor {
    z3d_dtype dtype;
    std::vector<char> bytes;
    Tensor(z3d_dtype dtype, int64_t count)
        : dtype(dtype), bytes((size_t)count * z3d_dtype_size(dtype)) {
        for (int64_t i = 0; i < count; i++) set(i, NAN); // what is not written shows
    }
    void set(int64_t i, double v) {
        if (dtype == Z3D_F32)
            ((float *)bytes.data())[i] = (float)v;
        else
            ((uint16_t *)bytes.data())[i] =
                dtype == Z3D_BF16 ? z3d_float_to_bf16((float)v) : z3d_float_to_f16((float)v);
    }
    double operator[](int64_t i) const {
        if (dtype == Z3D_F32) return ((const float *)bytes.data())[i];
        uint16_t bits = ((const uint16_t *)bytes.data())[i];
        return dtype == Z3D_BF16 ? z3d_bf16_to_float(bits) : z3d_f16_to_float(bits);
    }
    void *data() {
        return bytes.data();
    }
};

struct Types {
    z3d_dtype dtype, gradient;
    double tolerance;
    bool sequence_parallel;
};

class Layers : public ::testing::TestWithParam<Types> {
  protected:
    Types types = GetParam();
    z3d_tensor_lane lane{device, group, types.dtype, types.gradient, types.sequence_parallel};
    bool own(int64_t row, int64_t rows) const {
        z3d_row_range range = z3d_own_rows(&lane, rows);
        return row >= range.first && row < range.first + range.count;
    }
    // A whole matrix: rounded to the dtype, so that the reference multiplies the same numbers.
    double element(int salt, int64_t i) {
        Tensor t(types.dtype, 1);
        t.set(0, value(salt, i));
        return t[0];
    }
    void near(double expected, double got, double scale, const char *what, int64_t i) {
        ASSERT_NEAR(expected, got, types.tolerance * scale) << what << " " << i;
    }
};

enum { X = 1, W, B, DY, ACC, ACCB, TABLE, LOGITS };
constexpr int64_t ROWS = 8, IN = 8, OUT = 12;

TEST_P(Layers, ColumnParallel) {
    int64_t local = OUT / ranks, first = local * rank_index;
    Tensor x(types.dtype, ROWS * IN), w(types.dtype, local * IN), b(types.dtype, local);
    Tensor y(types.dtype, ROWS * local), dy(types.dtype, ROWS * local), dx(types.dtype, ROWS * IN);
    Tensor dw(types.gradient, local * IN), db(types.gradient, local);
    for (int64_t i = 0; i < ROWS * IN; i++) x.set(i, value(X, i));
    for (int64_t i = 0; i < local * IN; i++) w.set(i, value(W, first * IN + i));
    for (int64_t i = 0; i < local; i++) b.set(i, value(B, first + i));
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t o = 0; o < local; o++) dy.set(r * local + o, value(DY, r * OUT + first + o));
    z3d_linear linear = {ROWS,  IN,    local,   w.data(), b.data(), dw.data(), db.data(), false,
                         false, false, nullptr, nullptr,  nullptr,  0,         {}};
    ASSERT_Z3D(z3d_column_linear_forward(&lane, &linear, x.data(), y.data()));
    ASSERT_Z3D(z3d_column_linear_backward(&lane, &linear, x.data(), dy.data(), dx.data()));
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t o = 0; o < local; o++) {
            double sum = element(B, first + o);
            for (int64_t i = 0; i < IN; i++)
                sum += element(X, r * IN + i) * element(W, (first + o) * IN + i);
            near(sum, y[r * local + o], IN, "y", r * local + o);
        }
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t i = 0; i < IN; i++) {
            double sum = 0;
            for (int64_t o = 0; o < OUT; o++)
                sum += element(DY, r * OUT + o) * element(W, o * IN + i);
            if (own(r, ROWS)) near(sum, dx[r * IN + i], OUT, "dx", r * IN + i);
        }
    for (int pass = 1; pass <= 2; pass++) { // the second adds the same again
        for (int64_t o = 0; o < local; o++) {
            double bias = 0;
            for (int64_t r = 0; r < ROWS; r++) bias += element(DY, r * OUT + first + o);
            near(pass * bias, db[o], ROWS, "db", o);
            for (int64_t i = 0; i < IN; i++) {
                double sum = 0;
                for (int64_t r = 0; r < ROWS; r++)
                    sum += element(DY, r * OUT + first + o) * element(X, r * IN + i);
                near(pass * sum, dw[o * IN + i], ROWS, "dW", o * IN + i);
            }
        }
        linear.accumulate = true;
        ASSERT_Z3D(z3d_column_linear_backward(&lane, &linear, x.data(), dy.data(), NULL));
    }
}

TEST_P(Layers, RowParallel) {
    int64_t local = IN / ranks, first = local * rank_index;
    Tensor x(types.dtype, ROWS * local), w(types.dtype, OUT * local), y(types.dtype, ROWS * OUT);
    Tensor dy(types.dtype, ROWS * OUT), dx(types.dtype, ROWS * local), b(types.dtype, OUT);
    Tensor dw(types.gradient, OUT * local), db(types.gradient, OUT);
    for (int64_t i = 0; i < OUT; i++) b.set(i, value(B, i));
    for (int64_t i = 0; i < ROWS * OUT; i++) dy.set(i, value(DY, i));
    for (int64_t i = 0; i < local; i++) {
        for (int64_t r = 0; r < ROWS; r++) x.set(r * local + i, value(X, r * IN + first + i));
        for (int64_t o = 0; o < OUT; o++) w.set(o * local + i, value(W, o * IN + first + i));
    }
    z3d_linear linear = {ROWS,  local, OUT,     w.data(), b.data(), dw.data(), db.data(), false,
                         false, false, nullptr, nullptr,  nullptr,  0,         {}};
    ASSERT_Z3D(z3d_row_linear_forward(&lane, &linear, x.data(), y.data()));
    ASSERT_Z3D(z3d_row_linear_backward(&lane, &linear, x.data(), dy.data(), dx.data()));
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t o = 0; o < OUT; o++) {
            double sum = 0; // the bias is the caller's
            for (int64_t i = 0; i < IN; i++) sum += element(X, r * IN + i) * element(W, o * IN + i);
            if (own(r, ROWS)) near(sum, y[r * OUT + o], IN, "y", r * OUT + o);
        }
    for (int64_t i = 0; i < local; i++) {
        for (int64_t r = 0; r < ROWS; r++) {
            double sum = 0;
            for (int64_t o = 0; o < OUT; o++)
                sum += element(DY, r * OUT + o) * element(W, o * IN + first + i);
            near(sum, dx[r * local + i], OUT, "dx", r * local + i);
        }
        for (int64_t o = 0; o < OUT; o++) {
            double sum = 0;
            for (int64_t r = 0; r < ROWS; r++)
                sum += element(DY, r * OUT + o) * element(X, r * IN + first + i);
            near(sum, dw[o * local + i], ROWS, "dW", o * local + i);
        }
    }
    for (int64_t o = 0; o < OUT; o++) {
        double sum = 0; // of this rank's rows
        for (int64_t r = 0; r < ROWS; r++) sum += own(r, ROWS) ? element(DY, r * OUT + o) : 0;
        near(sum, db[o], ROWS, "db", o);
    }
}

TEST_P(Layers, VocabEmbedding) {
    constexpr int64_t VOCAB = 10, PADDED = 16, HIDDEN = 6;
    z3d_vocab_range range = z3d_vocab_range_of(VOCAB, PADDED, ranks, rank_index);
    Tensor table(types.dtype, range.local * HIDDEN);
    for (int64_t i = 0; i < range.local * HIDDEN; i++)
        table.set(i, value(TABLE, range.first * HIDDEN + i));
    std::vector<int32_t> tokens = {9, 0, 3, 4, 4, 7, 8, 1};
    Tensor out(types.dtype, (int64_t)tokens.size() * HIDDEN);
    ASSERT_Z3D(z3d_vocab_embedding_forward(&lane, range, tokens.data(), table.data(),
                                           (int64_t)tokens.size(), HIDDEN, out.data()));
    for (size_t r = 0; r < tokens.size(); r++)
        for (int64_t c = 0; c < HIDDEN; c++) { // one rank has it, the others add zeros: exact
            if (!own((int64_t)r, (int64_t)tokens.size())) continue;
            ASSERT_EQ(element(TABLE, tokens[r] * HIDDEN + c), out[(int64_t)r * HIDDEN + c]);
        }
    // Everybody's own rows are all rows.
    ASSERT_Z3D(z3d_gather_rows(&lane, out.data(), (int64_t)tokens.size(), HIDDEN));
    for (size_t r = 0; r < tokens.size(); r++)
        for (int64_t c = 0; c < HIDDEN; c++)
            ASSERT_EQ(element(TABLE, tokens[r] * HIDDEN + c), out[(int64_t)r * HIDDEN + c]);
}

// Vocabulary 9 of 16: with 4 ranks the last holds padding only. Logits far from zero on purpose.
TEST_P(Layers, VocabCrossEntropy) {
    constexpr int64_t VOCAB = 9, PADDED = 16, N = 6;
    constexpr double SEED = 0.25;
    z3d_vocab_range range = z3d_vocab_range_of(VOCAB, PADDED, ranks, rank_index);
    std::vector<int32_t> targets = {8, 0, -1, 3, 4, 5};
    auto logit = [&](int64_t r, int64_t v) {
        Tensor t(types.dtype, 1);
        t.set(0, 200.0 * (double)(r % 3 - 1) + 4 * value(LOGITS, r * VOCAB + v));
        return t[0];
    };
    Tensor logits(types.dtype, N * range.local);
    for (int64_t r = 0; r < N; r++)
        for (int64_t c = 0; c < range.local; c++)
            // Padding holds large numbers here: it must count for nothing.
            logits.set(r * range.local + c, c < range.valid ? logit(r, range.first + c) : 1e4);
    std::vector<float> statistics(3 * N);
    z3d_step_state state{};
    state.loss_sum = 1000;
    state.gradient_seed = (float)SEED;
    ASSERT_Z3D(z3d_vocab_cross_entropy_forward(&lane, range, logits.data(), targets.data(), N,
                                               statistics.data(), &state));
    ASSERT_Z3D(z3d_vocab_cross_entropy_backward(&lane, range, logits.data(), targets.data(), N,
                                                statistics.data(), &state));
    double loss = 1000;
    for (int64_t r = 0; r < N; r++) {
        double max = -1e30, sum = 0;
        for (int64_t v = 0; v < VOCAB; v++) max = std::max(max, logit(r, v));
        for (int64_t v = 0; v < VOCAB; v++) sum += std::exp(logit(r, v) - max);
        if (targets[(size_t)r] >= 0) loss += std::log(sum) + max - logit(r, targets[(size_t)r]);
        for (int64_t c = 0; c < range.local; c++) {
            int64_t v = range.first + c;
            double expected = 0;
            if (c < range.valid && targets[(size_t)r] >= 0)
                expected = SEED * (std::exp(logit(r, v) - max) / sum - (v == targets[(size_t)r]));
            near(expected, logits[r * range.local + c], 1, "dlogits", r * range.local + c);
        }
    }
    EXPECT_NEAR(loss, state.loss_sum, 1e-4);
    EXPECT_EQ(5, state.valid_targets);
}

INSTANTIATE_TEST_SUITE_P(Types, Layers,
                         ::testing::Values(Types{Z3D_F32, Z3D_F32, 1e-6, false},
                                           Types{Z3D_BF16, Z3D_F32, 1e-2, false},
                                           Types{Z3D_F16, Z3D_F16, 2e-3, false},
                                           Types{Z3D_F32, Z3D_F32, 1e-6, true},
                                           Types{Z3D_BF16, Z3D_BF16, 2e-2, true}));

TEST(Vocab, RangesCoverTheVocabularyOnce) {
    for (int size : {1, 2, 4, 8})
        for (int64_t vocab : {1, 7, 8, 9, 31, 32}) {
            int64_t next = 0, valid = 0;
            for (int i = 0; i < size; i++) {
                z3d_vocab_range range = z3d_vocab_range_of(vocab, 32, size, i);
                EXPECT_EQ(next, range.first);
                EXPECT_EQ(32 / size, range.local);
                EXPECT_LE(0, range.valid);
                EXPECT_LE(range.valid, range.local);
                next += range.local;
                valid += range.valid;
            }
            EXPECT_EQ(vocab, valid);
        }
}

// What happens in which order, on the recording device: Megatron-LM's communication.
struct Events {
    std::string text;
    static z3d_status kernel(void *context, const z3d_kernel *kernel) {
        ((Events *)context)->text += std::string(z3d_kernel_name(kernel->kind)) + " ";
        return Z3D_OK;
    }
    static z3d_status collective(void *context, z3d_group *, const z3d_collective *call) {
        std::string &text = ((Events *)context)->text;
        text += std::string(z3d_collective_name(call->kind)) + (call->op == Z3D_MAX ? "(max)" : "");
        text += (call->scalar ? ":scalar:" : ":") + std::to_string(call->count) + " ";
        return Z3D_OK;
    }
};

TEST(Communication, OrderAndAmount) {
    z3d_device *recorder;
    z3d_group *group2;
    z3d_device_config config{};
    config.backend = "record";
    ASSERT_Z3D(z3d_device_create(&config, &recorder));
    ASSERT_Z3D(z3d_group_create_recording(Z3D_AXES_TENSOR, 2, 0, &group2));
    Events events;
    z3d_device_set_recorder(recorder, Events::kernel, &events);
    z3d_group_set_observer(group2, Events::collective, &events);
    z3d_tensor_lane lane{recorder, group2, Z3D_BF16, Z3D_BF16, false};
    std::vector<char> memory(16);
    void *p = memory.data();
    z3d_linear linear = {4,     6,     8,       p,       p,       p, p, false,
                         false, false, nullptr, nullptr, nullptr, 0, {}};
    auto take = [&] {
        std::string text = events.text;
        events.text.clear();
        return text;
    };

    ASSERT_Z3D(z3d_column_linear_forward(&lane, &linear, p, p));
    EXPECT_EQ("gemm ", take());
    // The all-reduce travels while the weight's gradient is computed.
    ASSERT_Z3D(z3d_column_linear_backward(&lane, &linear, p, p, p));
    EXPECT_EQ("gemm all_reduce:24 gemm bias_backward ", take());
    ASSERT_Z3D(z3d_row_linear_forward(&lane, &linear, p, p));
    EXPECT_EQ("gemm all_reduce:32 ", take());
    ASSERT_Z3D(z3d_row_linear_backward(&lane, &linear, p, p, p));
    EXPECT_EQ("gemm gemm bias_backward ", take());
    // Without one of the gradients only the others are computed; a bias's needs no x.
    z3d_linear input = linear, bias = linear;
    input.input_only = true;
    bias.weight_gradient = nullptr;
    ASSERT_Z3D(z3d_column_linear_backward(&lane, &input, NULL, p, p));
    EXPECT_EQ("gemm all_reduce:24 ", take());
    ASSERT_Z3D(z3d_column_linear_backward(&lane, &linear, p, p, NULL));
    EXPECT_EQ("gemm bias_backward ", take());
    ASSERT_Z3D(z3d_column_linear_backward(&lane, &bias, NULL, p, NULL));
    EXPECT_EQ("bias_backward ", take());
    ASSERT_Z3D(z3d_row_linear_backward(&lane, &input, NULL, p, p));
    EXPECT_EQ("gemm ", take());
    ASSERT_Z3D(z3d_row_linear_backward(&lane, &linear, p, p, NULL));
    EXPECT_EQ("gemm bias_backward ", take());
    ASSERT_Z3D(z3d_row_linear_backward(&lane, &bias, NULL, p, NULL));
    EXPECT_EQ("bias_backward ", take());
    z3d_vocab_range range = {0, 8, 8};
    ASSERT_Z3D(z3d_vocab_embedding_forward(&lane, range, (int32_t *)p, p, 4, 6, p));
    EXPECT_EQ("embedding_forward all_reduce:24 ", take());
    ASSERT_Z3D(z3d_vocab_cross_entropy_forward(&lane, range, p, (int32_t *)p, 4, (float *)p,
                                               (z3d_step_state *)p));
    EXPECT_EQ("cross_entropy_max all_reduce(max):scalar:4 cross_entropy_sum all_reduce:scalar:8 "
              "cross_entropy_loss ",
              take());
    ASSERT_Z3D(z3d_vocab_cross_entropy_backward(&lane, range, p, (int32_t *)p, 4, (float *)p,
                                                (z3d_step_state *)p));
    EXPECT_EQ("cross_entropy_backward ", take());

    // With sequence parallelism a sum is half an all-reduce, and a gather is the other half.
    lane.sequence_parallel = true;
    ASSERT_Z3D(z3d_column_linear_backward(&lane, &linear, p, p, p));
    EXPECT_EQ("gemm reduce_scatter:12 gemm bias_backward ", take());
    ASSERT_Z3D(z3d_row_linear_forward(&lane, &linear, p, p));
    EXPECT_EQ("gemm reduce_scatter:16 ", take());
    ASSERT_Z3D(z3d_vocab_embedding_forward(&lane, range, (int32_t *)p, p, 4, 6, p));
    EXPECT_EQ("embedding_forward reduce_scatter:12 ", take());
    ASSERT_Z3D(z3d_gather_rows(&lane, p, 4, 6));
    EXPECT_EQ("all_gather:12 ", take());
    z3d_group_destroy(group2);
    z3d_device_destroy(recorder);
}

constexpr int64_t SCRATCH = 1 << 22;
void *scratch;

z3d_status start() {
    ranks = z3d_world_size(world);
    Z3D_TRY(z3d_mesh_make(ranks, 1, 1, z3d_world_rank(world), &mesh));
    z3d_device_config config{};
    config.backend = "cpu";
    config.threads = 1;
    Z3D_TRY(z3d_device_create(&config, &device));
    Z3D_TRY(z3d_device_alloc(device, Z3D_SPACE_DEVICE, SCRATCH, &scratch));
    z3d_device_set_scratch(device, scratch, SCRATCH);
    Z3D_TRY(z3d_group_create(world, &mesh, Z3D_AXES_TENSOR, device, &group));
    rank_index = z3d_group_index(group);
    return Z3D_OK;
}

void end() {
    z3d_group_destroy(group);
    z3d_device_free(device, Z3D_SPACE_DEVICE, scratch, SCRATCH);
    z3d_device_destroy(device);
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv, start, end);
}
