// Embedding, positions, select_row, and dropout.
#include "tests/device/kernels_harness.h"

namespace {

// Tokens with repetitions; some belong to other ranks, some to nobody.
std::vector<int32_t> tokens_for(int64_t rows, int64_t first, int64_t table_rows, uint32_t seed) {
    std::mt19937 engine(seed);
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < rows; i++) {
        int64_t token = first + (int64_t)(engine() % (uint32_t)table_rows);
        if (i % 4 == 1) token = first + table_rows / 2; // a frequent one
        if (i % 8 == 4 && table_rows / 2 >= 2048)       // equal to it in the sort's first digit
            token = first + table_rows / 2 - 2048;
        if (i % 7 == 2) token = first - 1;
        if (i % 7 == 3) token = first + table_rows;
        if (i % 11 == 10) token = i % 2 ? INT32_MAX : INT32_MIN;
        tokens.push_back((int32_t)token);
    }
    return tokens;
}

struct Case {
    int64_t rows, cols, first, table_rows;
};
const Case CASES[] = {{1, 1, 0, 1},       {3, 17, 0, 5},   {17, 3, 10, 1},
                      {63, 65, 100, 7},   {65, 63, 0, 50}, {200, 1000, 3, 9},
                      {700, 17, 5, 4200}, {1000, 3, 0, 2}, {300, 520, 7, 40}};

TEST(Embedding, Forward) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype dtype : float_types())
            for (Case c : CASES) {
                std::vector<int32_t> tokens = tokens_for(c.rows, c.first, c.table_rows, 1);
                Array table(dtype, c.table_rows * c.cols), out(dtype, c.rows * c.cols, 3);
                table.random(1);
                LAUNCH(device, embedding_forward, k.tokens = tokens.data(), k.table = table.data(),
                       k.out = out.data(), k.rows = c.rows, k.cols = c.cols, k.first = c.first,
                       k.table_rows = c.table_rows, k.dtype = dtype);
                for (int64_t i = 0; i < c.rows * c.cols && device.first; i++) {
                    int64_t row = (int64_t)tokens[(size_t)(i / c.cols)] - c.first;
                    ASSERT_EQ(out[i], row >= 0 && row < c.table_rows
                                          ? table[row * c.cols + i % c.cols]
                                          : 0.0);
                }
                out.append_to(bytes);
            }
    });
}

// Sums in fp32 in row order, rounded once: exact against that recipe.
TEST(Embedding, Backward) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype dtype : float_types())
            for (Case c : CASES) {
                std::vector<int32_t> tokens = tokens_for(c.rows, c.first, c.table_rows, 2);
                const int64_t count = c.table_rows * c.cols;
                Array dy(dtype, c.rows * c.cols);
                dy.random(2);
                for (z3d_dtype gradient_dtype : {dtype, Z3D_F32})
                    for (bool accumulate : {false, true}) {
                        Array gradient(gradient_dtype, count, 3);
                        if (accumulate) gradient.random(3);
                        Array old = gradient.copy();
                        LAUNCH(device, embedding_backward, k.tokens = tokens.data(),
                               k.dy = dy.data(), k.table_gradient = gradient.data(),
                               k.rows = c.rows, k.cols = c.cols, k.first = c.first,
                               k.table_rows = c.table_rows, k.dtype = dtype,
                               k.gradient_dtype = gradient_dtype, k.accumulate = accumulate);
                        gradient.append_to(bytes);
                        if (!device.first) continue;
                        std::vector<float> want((size_t)count);
                        std::vector<bool> touched((size_t)c.table_rows);
                        for (int64_t r = 0; r < c.rows; r++) {
                            int64_t row = (int64_t)tokens[(size_t)r] - c.first;
                            if (row < 0 || row >= c.table_rows) continue;
                            touched[(size_t)row] = true;
                            for (int64_t j = 0; j < c.cols; j++)
                                want[(size_t)(row * c.cols + j)] += (float)dy[r * c.cols + j];
                        }
                        for (int64_t i = 0; i < count; i++) {
                            double value = want[(size_t)i];
                            if (accumulate)
                                value = touched[(size_t)(i / c.cols)]
                                            ? want[(size_t)i] + (float)old[i]
                                            : (float)old[i];
                            ASSERT_EQ(gradient[i], round_to(gradient_dtype, value)) << i;
                        }
                    }
            }
    });
}

TEST(Position, ForwardAndBackward) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype dtype : float_types())
            for (int64_t batch : {1, 3, 17})
                for (int64_t seq : {1, 17})
                    for (int64_t cols : {1, 65, 1100})
                        for (bool accumulate : {false, true}) {
                            if (batch * seq * cols > 20000) continue;
                            const int64_t sample = seq * cols;
                            Array x(dtype, batch * sample), positions(dtype, sample, 3);
                            x.random(1);
                            positions.random(2);
                            Array old = x.copy();
                            LAUNCH(device, position_forward, k.x = x.data(),
                                   k.positions = positions.data(), k.rows = batch * seq,
                                   k.seq = seq, k.cols = cols, k.dtype = dtype);
                            for (int64_t i = 0; i < batch * sample && device.first; i++)
                                ASSERT_EQ(x[i],
                                          round_to(dtype, (double)((float)old[i] +
                                                                   (float)positions[i % sample])));
                            Array gradient(Z3D_F32, sample);
                            if (accumulate) gradient.random(4);
                            Array before = gradient.copy();
                            LAUNCH(device, position_backward, k.dy = x.data(),
                                   k.gradient = gradient.data(), k.rows = batch * seq, k.seq = seq,
                                   k.cols = cols, k.dtype = dtype, k.gradient_dtype = Z3D_F32,
                                   k.accumulate = accumulate);
                            for (int64_t i = 0; i < sample && device.first; i++) {
                                double want = accumulate ? before[i] : 0;
                                for (int64_t b = 0; b < batch; b++) want += x[b * sample + i];
                                expect_near(gradient, i, want, 2.0 * (double)batch, 1e-6);
                            }
                            x.append_to(bytes);
                            gradient.append_to(bytes);
                        }
    });
}

// Any cut of the rows among several launches gives what one launch over all of them gives.
TEST(Rows, PartsAreThoseOfTheWhole) {
    const int64_t seq = 5, cols = 37, rows = 3 * seq;
    on_every_device([&](Device &device, Bytes &) {
        for (z3d_dtype dtype : float_types()) {
            z3d_step_state state;
            std::memset(&state, 0, sizeof state);
            z3d_dropout rule = {0.4f, 7, 1, &state};
            Array x(dtype, rows * cols), residual(dtype, rows * cols), positions(dtype, seq * cols);
            x.random(1), residual.random(2), positions.random(3);
            const auto launch = [&](int64_t first, int64_t count, Array &y, Array &dx, Array &sum,
                                    Array &gradient, bool accumulate) {
                const int64_t skip = first * cols * (int64_t)z3d_dtype_size(dtype);
                const auto part = [&](Array &whole) { return (char *)whole.data() + skip; };
                LAUNCH(device, dropout_forward, k.x = part(x), k.residual = part(residual),
                       k.y = part(y), k.rows = count, k.first = first, k.seq = seq, k.cols = cols,
                       k.dtype = dtype, k.dropout = rule);
                LAUNCH(device, dropout_backward, k.dy = part(x), k.dx = part(dx), k.rows = count,
                       k.first = first, k.seq = seq, k.cols = cols, k.dtype = dtype,
                       k.dropout = rule);
                LAUNCH(device, position_forward, k.x = part(sum), k.positions = positions.data(),
                       k.rows = count, k.first = first, k.seq = seq, k.cols = cols,
                       k.dtype = dtype);
                LAUNCH(device, position_backward, k.dy = part(x), k.gradient = gradient.data(),
                       k.rows = count, k.first = first, k.seq = seq, k.cols = cols, k.dtype = dtype,
                       k.gradient_dtype = Z3D_F32, k.accumulate = accumulate);
            };
            Array y(dtype, rows * cols), dx(dtype, rows * cols), sum = x.copy();
            Array gradient(Z3D_F32, seq * cols);
            launch(0, rows, y, dx, sum, gradient, false);
            for (int64_t cut : {1, 5, 7, 12}) {
                Array y_2(dtype, rows * cols), dx_2(dtype, rows * cols), sum_2 = x.copy();
                Array gradient_2(Z3D_F32, seq * cols);
                gradient_2.random(9); // must be overwritten, where no row is too
                launch(0, cut, y_2, dx_2, sum_2, gradient_2, false);
                launch(cut, rows - cut, y_2, dx_2, sum_2, gradient_2, true);
                for (int64_t i = 0; i < rows * cols; i++) {
                    ASSERT_EQ(y[i], y_2[i]);
                    ASSERT_EQ(dx[i], dx_2[i]);
                    ASSERT_EQ(sum[i], sum_2[i]);
                }
                for (int64_t i = 0; i < seq * cols; i++)
                    expect_near(gradient_2, i, gradient[i], 6, 1e-6);
            }
        }
    });
}

// Decoding: each sample's rows begin at their own position; beyond the table its last row counts.
TEST(Positions, Starts) {
    on_every_device([](Device &device, Bytes &) {
        for (z3d_dtype dtype : float_types()) {
            const int64_t batch = 3, seq = 4, cols = 33, capacity = 10;
            const int32_t starts[] = {0, 5, 8};
            Array x(dtype, batch * seq * cols), positions(dtype, capacity * cols, 3);
            x.random(1), positions.random(2);
            Array old = x.copy();
            const int64_t first = 1, rows = batch * seq - first;
            LAUNCH(device, position_forward,
                   k.x = (char *)x.data() + first * cols * (int64_t)z3d_dtype_size(dtype),
                   k.positions = positions.data(), k.starts = starts, k.rows = rows,
                   k.first = first, k.seq = seq, k.capacity = capacity, k.cols = cols,
                   k.dtype = dtype);
            for (int64_t i = 0; i < batch * seq * cols; i++) {
                const int64_t row = i / cols;
                const int64_t position = std::min(starts[row / seq] + row % seq, capacity - 1);
                const float add = row < first ? 0 : (float)positions[position * cols + i % cols];
                ASSERT_EQ(x[i], round_to(dtype, (double)((float)old[i] + add))) << i;
            }
        }
    });
}

TEST(SelectRow, PicksAndRefuses) {
    on_every_device([](Device &device, Bytes &) {
        for (z3d_dtype dtype : float_types()) {
            int32_t row[] = {4, 0, 2};
            Array x(dtype, 3 * 5 * 17), y(dtype, 3 * 17);
            x.random(1);
            LAUNCH(device, select_row, k.x = x.data(), k.y = y.data(), k.row = row, k.batch = 3,
                   k.seq = 5, k.cols = 17, k.dtype = dtype);
            for (int64_t i = 0; i < 3 * 17; i++)
                ASSERT_EQ(y[i], x[(i / 17 * 5 + row[i / 17]) * 17 + i % 17]);
            for (int32_t bad : {-1, 5, INT32_MAX}) {
                row[1] = bad;
                z3d_kernel kernel;
                std::memset(&kernel, 0, sizeof kernel);
                kernel.kind = Z3D_KERNEL_select_row;
                kernel.as.select_row = z3d_select_row{x.data(), y.data(), row, 3, 5, 17, dtype};
                EXPECT_EQ(z3d_launch(device, &kernel), Z3D_ERR_INTERNAL);
            }
        }
    });
}

struct Dropped {
    Array y, dx;
};

Dropped dropout(Device &device, z3d_dtype dtype, int64_t batch, int64_t seq, int64_t cols, float p,
                int64_t sample, int64_t sample_base, const Array &x, const Array *bias,
                const Array *residual) {
    z3d_step_state state;
    std::memset(&state, 0, sizeof state);
    state.seed = 42;
    state.sample_base = sample_base;
    z3d_dropout rule = {p, 7, sample, p > 0 ? &state : nullptr};
    Dropped out{Array(dtype, batch * seq * cols, 3), Array(dtype, batch * seq * cols, 5)};
    LAUNCH(device, dropout_forward, k.x = x.data(), k.bias = bias ? bias->data() : nullptr,
           k.residual = residual ? residual->data() : nullptr, k.y = out.y.data(),
           k.rows = batch * seq, k.seq = seq, k.cols = cols, k.dtype = dtype, k.dropout = rule);
    LAUNCH(device, dropout_backward, k.dy = x.data(), k.dx = out.dx.data(), k.rows = batch * seq,
           k.seq = seq, k.cols = cols, k.dtype = dtype, k.dropout = rule);
    return out;
}

// Without dropout, backward copies bytes: signalling NaNs stay what they are.
TEST(Dropout, BackwardWithoutDropoutCopiesBytes) {
    on_every_device([](Device &device, Bytes &) {
        const int64_t rows = 3, cols = 65;
        for (z3d_dtype dtype : {Z3D_BF16, Z3D_F16}) {
            const uint16_t nan = dtype == Z3D_BF16 ? 0x7f81 : 0x7c01;
            std::vector<uint16_t> dy((size_t)(rows * cols), nan), dx(dy.size());
            LAUNCH(device, dropout_backward, k.dy = dy.data(), k.dx = dx.data(), k.rows = rows,
                   k.seq = rows, k.cols = cols, k.dtype = dtype);
            ASSERT_EQ(dx, dy);
        }
    });
}

// Backward on ones shows the mask; forward must use the same one: residual + mask * (x + bias).
TEST(Dropout, ForwardAndBackwardShareTheMask) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype dtype : float_types())
            for (float p : {0.0f, 0.1f, 0.9f})
                for (int64_t cols : {1, 17, 65, 1100}) {
                    const int64_t batch = 3, seq = 5, count = batch * seq * cols;
                    Array x(dtype, count), ones(dtype, count), bias(dtype, cols),
                        residual(dtype, count, 9);
                    x.random(1);
                    bias.random(2);
                    residual.random(3);
                    for (int64_t i = 0; i < count; i++) ones.set(i, 1.0);
                    Dropped mask =
                        dropout(device, dtype, batch, seq, cols, p, 2, 100, ones, nullptr, nullptr);
                    for (int form = 0; form < 4; form++) {
                        Dropped got =
                            dropout(device, dtype, batch, seq, cols, p, 2, 100, x,
                                    form & 1 ? &bias : nullptr, form & 2 ? &residual : nullptr);
                        got.y.append_to(bytes);
                        got.dx.append_to(bytes);
                        const double keep = 1 / (1 - (double)p);
                        for (int64_t i = 0; i < count && device.first; i++) {
                            double m = mask.dx[i] == 0 ? 0 : keep;
                            ASSERT_EQ(mask.dx[i], m == 0 ? 0 : round_to(dtype, keep));
                            double want = m * (x[i] + (form & 1 ? bias[i % cols] : 0)) +
                                          (form & 2 ? residual[i] : 0);
                            expect_near(got.y, i, want, keep * 4, 1e-6);
                            expect_near(got.dx, i, m * x[i], keep * 4, 1e-6);
                        }
                    }
                }
    });
}

// Micro-batches and ranks cut the batch differently: a sample's mask goes by its global index.
TEST(Dropout, GoesByTheGlobalSample) {
    on_every_device([](Device &device, Bytes &) {
        const int64_t batch = 4, seq = 5, cols = 19, sample = seq * cols;
        Array ones(Z3D_F32, batch * sample);
        for (int64_t i = 0; i < batch * sample; i++) ones.set(i, 1.0);
        Dropped all =
            dropout(device, Z3D_F32, batch, seq, cols, 0.5f, 0, 10, ones, nullptr, nullptr);
        int differing = 0;
        for (int64_t b = 0; b < batch; b++) {
            Dropped one =
                dropout(device, Z3D_F32, 1, seq, cols, 0.5f, b, 10, ones, nullptr, nullptr);
            Dropped other =
                dropout(device, Z3D_F32, 1, seq, cols, 0.5f, b, 11, ones, nullptr, nullptr);
            for (int64_t i = 0; i < sample; i++) {
                ASSERT_EQ(one.y[i], all.y[b * sample + i]);
                differing += other.y[i] != one.y[i];
            }
        }
        EXPECT_GT(differing, 100); // another data position, another mask
    });
}

TEST(Dropout, DropsTheRightShare) {
    Device device(isas().back(), 1);
    const int64_t count = 100 * 1000;
    Array ones(Z3D_F32, count);
    for (int64_t i = 0; i < count; i++) ones.set(i, 1.0);
    for (float p : {0.1f, 0.5f}) {
        Dropped d = dropout(device, Z3D_F32, 1, 100, 1000, p, 0, 0, ones, nullptr, nullptr);
        double dropped = 0;
        for (int64_t i = 0; i < count; i++) dropped += d.y[i] == 0;
        EXPECT_NEAR(dropped / (double)count, (double)p, 0.006);
    }
}

TEST(Dropout, InPlace) {
    on_every_device([](Device &device, Bytes &) {
        for (z3d_dtype dtype : float_types()) {
            const int64_t seq = 7, cols = 33, count = seq * cols;
            z3d_step_state state;
            std::memset(&state, 0, sizeof state);
            z3d_dropout rule = {0.25f, 1, 0, &state};
            Array x(dtype, count), y(dtype, count), residual(dtype, count);
            x.random(1);
            residual.random(2);
            Array in_place = x.copy(), gradient = x.copy(), dx(dtype, count);
            for (int form = 0; form < 2; form++)
                LAUNCH(device, dropout_forward, k.x = form ? in_place.data() : x.data(),
                       k.residual = residual.data(), k.y = form ? in_place.data() : y.data(),
                       k.rows = seq, k.seq = seq, k.cols = cols, k.dtype = dtype, k.dropout = rule);
            for (int form = 0; form < 2; form++)
                LAUNCH(device, dropout_backward, k.dy = form ? gradient.data() : x.data(),
                       k.dx = form ? gradient.data() : dx.data(), k.rows = seq, k.seq = seq,
                       k.cols = cols, k.dtype = dtype, k.dropout = rule);
            for (int64_t i = 0; i < count; i++) {
                ASSERT_EQ(in_place[i], y[i]);
                ASSERT_EQ(gradient[i], dx[i]);
            }
        }
    });
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
