// Every CUDA kernel but attention (cuda_attention.cc) against the cpu device, compiled for the
// host.
#include "tests/device/cuda_harness.h"

namespace {

const int64_t COUNTS[] = {1, 7, 8, 300, 2056};

struct Shape {
    int64_t rows, cols;
};
const Shape SHAPES[] = {{1, 1}, {3, 5}, {2, 8}, {17, 40}, {5, 264}, {35, 24}};

z3d_step_state state_of() {
    z3d_step_state state;
    std::memset(&state, 0, sizeof state);
    state.optimizer_step = 7;
    state.sample_base = ((int64_t)3 << 32) + 5;
    state.seed = 99;
    state.learning_rate = 6e-3f;
    state.gradient_seed = 0.125f;
    state.gradient_factor = 0.25f;
    state.loss_sum = 1.5;
    state.valid_targets = 2;
    return state;
}

Array random_array(z3d_dtype dtype, int64_t count, uint32_t seed, double scale = 1,
                   double shift = 0) {
    Array x(dtype, count);
    x.random(seed, scale, shift);
    return x;
}

TEST(CudaKernels, Fill) {
    for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16, Z3D_F16, Z3D_F64})
        for (int64_t count : COUNTS)
            for (float value : {0.0f, -0.0f, 3.14159f, INFINITY}) {
                std::vector<double> x((size_t)count);
                COMPARE(fill, results(Result{x.data(), dtype, 0, 0}), k.x = x.data(),
                        k.count = count, k.dtype = dtype, k.value = value);
            }
}

TEST(CudaKernels, FillWholeNumbers) {
    int32_t i32[9];
    uint8_t u8[9];
    const z3d_cuda_lane lane = {nullptr, nullptr, 0};
    const z3d_fill fills[] = {{i32, 9, Z3D_I32, -7.0f}, {u8, 9, Z3D_U8, 3.0f}};
    for (const z3d_fill &fill : fills) ASSERT_EQ(z3d_cuda_fill(&lane, &fill), Z3D_OK);
    for (int i = 0; i < 9; i++) {
        EXPECT_EQ(i32[i], -7);
        EXPECT_EQ(u8[i], 3);
    }
}

TEST(CudaKernels, Cast) {
    for (z3d_dtype from : float_types())
        for (z3d_dtype to : float_types())
            for (int64_t count : COUNTS) {
                Array x = random_array(from, count, 1, 100), y(to, count);
                x.set(0, INFINITY), x.set(count / 2, 1e-6), x.set(count - 1, 1e5);
                COMPARE(cast, results(Result{y.data(), to, 0, 0}), k.destination = y.data(),
                        k.source = x.data(), k.count = count, k.destination_dtype = to,
                        k.source_dtype = from);
            }
}

// Every pattern of a 16-bit type there and back, and what lies between neighbours.
TEST(CudaKernels, CastEveryPattern) {
    for (z3d_dtype dtype : {Z3D_BF16, Z3D_F16}) {
        Array x(dtype, 65536), wide(Z3D_F32, 65536), middle(Z3D_F32, 65536), y(dtype, 65536);
        for (int i = 0; i < 65536; i++) ((uint16_t *)x.data())[i] = (uint16_t)i;
        COMPARE(cast, results(Result{wide.data(), Z3D_F32, 0, 0}), k.destination = wide.data(),
                k.source = x.data(), k.count = 65536, k.destination_dtype = Z3D_F32,
                k.source_dtype = dtype);
        for (int i = 0; i < 65536; i++) middle.set(i, (x[i] + x[(i + 1) % 65536]) / 2);
        COMPARE(cast, results(Result{y.data(), dtype, 0, 0}), k.destination = y.data(),
                k.source = middle.data(), k.count = 65536, k.destination_dtype = dtype,
                k.source_dtype = Z3D_F32);
    }
}

TEST(CudaKernels, Accumulate) {
    for (z3d_dtype y_type : float_types())
        for (z3d_dtype x_type : float_types())
            for (int64_t count : COUNTS) {
                Array x = random_array(x_type, count, 1), y = random_array(y_type, count, 2);
                COMPARE(accumulate, results(Result{y.data(), y_type, 0, 0}), k.y = y.data(),
                        k.x = x.data(), k.count = count, k.y_dtype = y_type, k.x_dtype = x_type);
            }
}

TEST(CudaKernels, AddBias) {
    for (z3d_dtype dtype : float_types())
        for (Shape s : SHAPES) {
            Array y = random_array(dtype, s.rows * s.cols, 1), b = random_array(dtype, s.cols, 2);
            COMPARE(add_bias, results(Result{y.data(), dtype, 0, 0}), k.y = y.data(),
                    k.bias = b.data(), k.rows = s.rows, k.cols = s.cols, k.dtype = dtype);
        }
}

TEST(CudaKernels, Gelu) {
    for (z3d_dtype dtype : float_types())
        for (int64_t count : COUNTS) {
            Array x = random_array(dtype, count, 1, 3), dy = random_array(dtype, count, 2);
            Array y(dtype, count), dx(dtype, count);
            if (count > 8) x.set(1, 30), x.set(2, -30), x.set(3, NAN), x.set(4, INFINITY);
            COMPARE(gelu_forward, results(Result{y.data(), dtype, 2e-5, 1e-37}), k.x = x.data(),
                    k.y = y.data(), k.count = count, k.dtype = dtype);
            COMPARE(gelu_backward, results(Result{dx.data(), dtype, 2e-6, 5e-6}), k.x = x.data(),
                    k.dy = dy.data(), k.dx = dx.data(), k.count = count, k.dtype = dtype);
            COMPARE(gelu_backward, results(Result{dy.data(), dtype, 2e-6, 5e-6}), k.x = x.data(),
                    k.dy = dy.data(), k.dx = dy.data(), k.count = count, k.dtype = dtype);
        }
}

TEST(CudaKernels, BiasBackward) {
    for (z3d_dtype dtype : float_types())
        for (z3d_dtype gradient_dtype : {dtype, Z3D_F32})
            for (Shape s : {Shape{0, 3}, Shape{1, 1}, Shape{35, 24}, Shape{150, 5}, Shape{9, 264}})
                for (bool accumulate : {false, true}) {
                    Array dy = random_array(dtype, s.rows * s.cols, 1);
                    Array gradient = random_array(gradient_dtype, s.cols, 2);
                    COMPARE(bias_backward,
                            results(Result{gradient.data(), gradient_dtype, 1e-6,
                                           1e-6 * (double)s.rows}),
                            k.dy = dy.data(), k.gradient = gradient.data(), k.rows = s.rows,
                            k.cols = s.cols, k.dtype = dtype, k.gradient_dtype = gradient_dtype,
                            k.accumulate = accumulate);
                }
}

TEST(CudaKernels, LayerNormForward) {
    for (z3d_dtype dtype : float_types())
        for (Shape s : SHAPES) {
            if (s.cols == 1) continue; // rstd 1 / sqrt(epsilon): rounding of the mean is all
            Array x = random_array(dtype, s.rows * s.cols, 1, 2, 5), y(dtype, s.rows * s.cols);
            Array weight = random_array(dtype, s.cols, 2), bias = random_array(dtype, s.cols, 3);
            Array mean(Z3D_F32, s.rows), rstd(Z3D_F32, s.rows);
            COMPARE(layernorm_forward,
                    results(Result{y.data(), dtype, 4e-6, 4e-6},
                            Result{mean.data(), Z3D_F32, 1e-6, 0},
                            Result{rstd.data(), Z3D_F32, 2e-6, 0}),
                    k.x = x.data(), k.weight = weight.data(), k.bias = bias.data(), k.y = y.data(),
                    k.mean = mean.f32(), k.rstd = rstd.f32(), k.rows = s.rows, k.cols = s.cols,
                    k.epsilon = 1e-5f, k.dtype = dtype);
        }
}

// form 0: no residual, 1: apart, 2: in place.
void layernorm_backward(z3d_dtype dtype, z3d_dtype gradient_dtype, Shape s, int form,
                        bool accumulate) {
    const int64_t count = s.rows * s.cols;
    Array x = random_array(dtype, count, 1, 2, 5), dy = random_array(dtype, count, 2);
    Array weight = random_array(dtype, s.cols, 3), add = random_array(dtype, count, 4);
    Array dx = random_array(dtype, count, 5), mean(Z3D_F32, s.rows), rstd(Z3D_F32, s.rows);
    Array dw = random_array(gradient_dtype, s.cols, 6),
          db = random_array(gradient_dtype, s.cols, 7);
    for (int64_t r = 0; r < s.rows; r++) mean.set(r, 5 + 0.1 * (double)(r % 3)), rstd.set(r, 0.5);
    const double rows = (double)s.rows;
    COMPARE(layernorm_backward,
            results(Result{dx.data(), dtype, 2e-6, 2e-6},
                    Result{dw.data(), gradient_dtype, 1e-6, 4e-6 * rows},
                    Result{db.data(), gradient_dtype, 1e-6, 2e-6 * rows}),
            k.dy = dy.data(), k.x = x.data(), k.weight = weight.data(), k.mean = mean.f32(),
            k.rstd = rstd.f32(),
            k.add_to = form == 0   ? nullptr
                       : form == 1 ? add.data()
                                   : dx.data(),
            k.dx = dx.data(), k.weight_gradient = dw.data(), k.bias_gradient = db.data(),
            k.rows = s.rows, k.cols = s.cols, k.dtype = dtype, k.gradient_dtype = gradient_dtype,
            k.accumulate = accumulate);
}

TEST(CudaKernels, LayerNormBackward) {
    // A few threads for a vector, warps for two at a time, several packs for a thread.
    const Shape shapes[] = {{0, 8}, {1, 3}, {67, 40}, {5, 300}, {35, 768}, {2, 2056}, {3, 4101}};
    int form = 0;
    for (z3d_dtype dtype : float_types())
        for (z3d_dtype gradient_dtype : {dtype, Z3D_F32})
            for (Shape s : shapes) {
                layernorm_backward(dtype, gradient_dtype, s, form % 3, form % 2 == 1);
                if (HasFatalFailure()) return;
                form++;
            }
}

TEST(CudaKernels, Dropout) {
    z3d_step_state state = state_of();
    const int64_t rows = 13, first = 4, seq = 5; // from within a sample to within another
    for (z3d_dtype dtype : float_types())
        for (int64_t cols : {1, 6, 8, 40})
            for (float p : {0.0f, 0.25f, 1.0f - 0x1p-24f})
                for (bool whole : {false, true}) {
                    const int64_t count = rows * cols;
                    Array x = random_array(dtype, count, 1), y(dtype, count);
                    Array bias = random_array(dtype, cols, 2);
                    Array residual = random_array(dtype, count, 3);
                    const z3d_dropout dropout = {p, 4, 7, p > 0 ? &state : nullptr};
                    COMPARE(dropout_forward, results(Result{y.data(), dtype, 0, 0}), k.x = x.data(),
                            k.bias = whole ? bias.data() : nullptr,
                            k.residual = whole ? residual.data() : nullptr, k.y = y.data(),
                            k.rows = rows, k.first = first, k.seq = seq, k.cols = cols,
                            k.dtype = dtype, k.dropout = dropout);
                    COMPARE(dropout_backward, results(Result{y.data(), dtype, 0, 0}),
                            k.dy = x.data(), k.dx = y.data(), k.rows = rows, k.first = first,
                            k.seq = seq, k.cols = cols, k.dtype = dtype, k.dropout = dropout);
                    COMPARE(dropout_backward, results(Result{x.data(), dtype, 0, 0}),
                            k.dy = x.data(), k.dx = x.data(), k.rows = rows, k.first = first,
                            k.seq = seq, k.cols = cols, k.dtype = dtype, k.dropout = dropout);
                }
}

std::vector<int32_t> tokens_for(int64_t rows, int64_t first, int64_t table_rows) {
    std::mt19937 engine(5);
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < rows; i++) {
        int64_t token = first + (int64_t)(engine() % (uint32_t)table_rows);
        if (i % 4 == 1) token = first + table_rows / 2; // a frequent one
        if (i % 7 == 2) token = first - 1;
        if (i % 7 == 3) token = first + table_rows;
        if (i % 11 == 10) token = i % 2 ? INT32_MAX : INT32_MIN;
        tokens.push_back((int32_t)token);
    }
    return tokens;
}

struct Table {
    int64_t rows, cols, first, table_rows;
};
const Table TABLES[] = {
    {1, 1, 0, 1}, {17, 3, 10, 1}, {63, 40, 100, 7}, {270, 8, 3, 50}, {0, 8, 0, 4}};

TEST(CudaKernels, Embedding) {
    for (z3d_dtype dtype : float_types())
        for (Table c : TABLES) {
            std::vector<int32_t> tokens = tokens_for(c.rows, c.first, c.table_rows);
            Array table = random_array(dtype, c.table_rows * c.cols, 1);
            Array out(dtype, c.rows * c.cols), dy = random_array(dtype, c.rows * c.cols, 2);
            COMPARE(embedding_forward, results(Result{out.data(), dtype, 0, 0}),
                    k.tokens = tokens.data(), k.table = table.data(), k.out = out.data(),
                    k.rows = c.rows, k.cols = c.cols, k.first = c.first,
                    k.table_rows = c.table_rows, k.dtype = dtype);
            for (z3d_dtype gradient_dtype : {dtype, Z3D_F32})
                for (bool accumulate : {false, true}) {
                    Array gradient = random_array(gradient_dtype, c.table_rows * c.cols, 3);
                    COMPARE(embedding_backward,
                            results(Result{gradient.data(), gradient_dtype, 0, 0}),
                            k.tokens = tokens.data(), k.dy = dy.data(),
                            k.table_gradient = gradient.data(), k.rows = c.rows, k.cols = c.cols,
                            k.first = c.first, k.table_rows = c.table_rows, k.dtype = dtype,
                            k.gradient_dtype = gradient_dtype, k.accumulate = accumulate);
                }
        }
}

TEST(CudaKernels, Position) {
    const int64_t seq = 5;
    for (z3d_dtype dtype : float_types())
        for (int64_t cols : {1, 7, 8, 40})
            for (int64_t first : {0, 4})
                for (bool accumulate : {false, true}) {
                    const int64_t rows = first ? 3 : 15; // 3: positions 4, 0 and 1
                    const int64_t sample = seq * cols;
                    Array x = random_array(dtype, rows * cols, 1);
                    Array positions = random_array(dtype, sample, 2);
                    Array gradient = random_array(Z3D_F32, sample, 3);
                    COMPARE(position_forward, results(Result{x.data(), dtype, 0, 0}),
                            k.x = x.data(), k.positions = positions.data(), k.rows = rows,
                            k.first = first, k.seq = seq, k.cols = cols, k.dtype = dtype);
                    COMPARE(position_backward, results(Result{gradient.data(), Z3D_F32, 0, 0}),
                            k.dy = x.data(), k.gradient = gradient.data(), k.rows = rows,
                            k.first = first, k.seq = seq, k.cols = cols, k.dtype = dtype,
                            k.gradient_dtype = Z3D_F32, k.accumulate = accumulate);
                }
}

// Rows of one vector and of several, with gaps behind them; plain, added to, and in place.
TEST(CudaKernels, RmsNorm) {
    struct Rows {
        int64_t rows, heads, cols, gap;
    };
    for (z3d_dtype dtype : float_types())
        for (Rows s :
             {Rows{3, 1, 5, 0}, Rows{17, 3, 40, 8}, Rows{40, 2, 16, 5}, Rows{5, 1, 2064, 0}})
            for (bool in_place : {false, true}) {
                const int64_t stride = s.heads * s.cols + s.gap, count = s.rows * stride;
                Array x = random_array(dtype, count, 1, 2), y = random_array(dtype, count, 2);
                Array weight = random_array(dtype, s.cols, 3), rstd(Z3D_F32, s.rows * s.heads);
                COMPARE(rmsnorm_forward,
                        results(Result{in_place ? x.data() : y.data(), dtype, 2e-6, 0},
                                Result{rstd.data(), Z3D_F32, 1e-6, 0}),
                        k.x = x.data(), k.weight = weight.data(),
                        k.y = in_place ? x.data() : y.data(), k.rstd = rstd.f32(), k.rows = s.rows,
                        k.heads = s.heads, k.cols = s.cols, k.x_stride = k.y_stride = stride,
                        k.epsilon = 1e-5f, k.dtype = dtype);
                COMPARE(rmsnorm_forward, results(Result{y.data(), dtype, 2e-6, 0}), k.x = x.data(),
                        k.weight = weight.data(), k.y = y.data(), k.rows = s.rows,
                        k.heads = s.heads, k.cols = s.cols, k.x_stride = k.y_stride = stride,
                        k.epsilon = 1e-5f, k.dtype = dtype);
                for (int64_t i = 0; i < s.rows * s.heads; i++) rstd.set(i, 0.5 + 0.01 * (double)i);
                const z3d_dtype gradient_dtype = in_place ? dtype : Z3D_F32;
                Array gradient = random_array(gradient_dtype, s.cols, 4);
                Array dy = random_array(dtype, count, 5), dx = random_array(dtype, count, 6);
                Array add_to = random_array(dtype, count, 7);
                const double several = (double)(s.rows * s.heads);
                COMPARE(rmsnorm_backward,
                        results(Result{in_place ? dy.data() : dx.data(), dtype, 1e-5, 4e-6},
                                Result{gradient.data(), gradient_dtype, 1e-5, 2e-6 * several}),
                        k.dy = dy.data(), k.x = x.data(), k.weight = weight.data(),
                        k.rstd = rstd.f32(), k.add_to = in_place ? nullptr : add_to.data(),
                        k.dx = in_place ? dy.data() : dx.data(),
                        k.weight_gradient = gradient.data(), k.rows = s.rows, k.heads = s.heads,
                        k.cols = s.cols, k.x_stride = k.y_stride = k.dx_stride = stride,
                        k.dtype = dtype, k.gradient_dtype = gradient_dtype,
                        k.accumulate = in_place);
            }
}

TEST(CudaKernels, Rotary) {
    const int32_t starts[] = {0, 3, 400};
    for (z3d_dtype dtype : float_types())
        for (int64_t head_dim : {6, 32, 272}) // pairs one by one, eight at a time, in two launches
            for (bool inverse : {false, true}) {
                const int64_t stride = 3 * head_dim + (inverse ? 16 : 0);
                Array x = random_array(dtype, 7 * stride, 1);
                COMPARE(rotary, results(Result{x.data(), dtype, 0, 1e-6}), k.x = x.data(),
                        k.starts = inverse ? nullptr : starts, k.rows = 7, k.first = 2, k.seq = 4,
                        k.heads = 3, k.head_dim = head_dim, k.stride = stride, k.inverse = inverse,
                        k.rope.type = Z3D_ROPE_YARN, k.rope.theta = 10000, k.rope.factor = 4,
                        k.rope.original_positions = 2048, k.dtype = dtype);
            }
}

TEST(CudaKernels, Swiglu) {
    for (z3d_dtype dtype : float_types())
        for (Shape s : SHAPES) {
            const int64_t count = s.rows * s.cols;
            Array x = random_array(dtype, 2 * count, 1, 3), dy = random_array(dtype, count, 2);
            Array y(dtype, count), dx(dtype, 2 * count);
            if (count > 8)
                x.set(1, 30), x.set(2, -30), x.set(3, NAN), x.set(4, 1e4), x.set(5, -1e4);
            COMPARE(swiglu_forward, results(Result{y.data(), dtype, 2e-5, 1e-30}), k.x = x.data(),
                    k.y = y.data(), k.rows = s.rows, k.cols = s.cols, k.dtype = dtype);
            for (Array *to : {&dx, &x})
                COMPARE(swiglu_backward, results(Result{to->data(), dtype, 2e-5, 5e-6}),
                        k.x = x.data(), k.dy = dy.data(), k.dx = to->data(), k.rows = s.rows,
                        k.cols = s.cols, k.dtype = dtype);
        }
}

TEST(CudaKernels, PositionBehindStarts) {
    const int32_t starts[] = {0, 6, 3};
    for (z3d_dtype dtype : float_types())
        for (int64_t cols : {7, 40}) {
            Array x = random_array(dtype, 10 * cols, 1);
            Array positions = random_array(dtype, 8 * cols, 2); // 9: the last
            COMPARE(position_forward, results(Result{x.data(), dtype, 0, 0}), k.x = x.data(),
                    k.positions = positions.data(), k.starts = starts, k.rows = 10, k.first = 2,
                    k.seq = 4, k.capacity = 8, k.cols = cols, k.dtype = dtype);
        }
}

TEST(CudaKernels, CacheStore) {
    const int32_t starts[] = {0, 7, 12}; // the second's last two, all of the third's: none
    for (z3d_dtype dtype : float_types())
        for (int64_t cols : {5, 16})
            for (int64_t gap : {0, 2, 8}) {
                Array x = random_array(dtype, 12 * (cols + gap), 1);
                Array cache = random_array(dtype, 3 * 9 * cols, 2);
                COMPARE(cache_store, results(Result{cache.data(), dtype, 0, 0}), k.x = x.data(),
                        k.cache = cache.data(), k.starts = starts, k.batch = 3, k.seq = 4,
                        k.capacity = 9, k.cols = cols, k.stride = cols + gap, k.dtype = dtype);
            }
}

TEST(CudaKernels, SelectRow) {
    for (z3d_dtype dtype : float_types())
        for (int64_t cols : {1, 24}) {
            int32_t row[] = {4, 0, 2};
            Array x = random_array(dtype, 3 * 5 * cols, 1), y(dtype, 3 * cols);
            COMPARE(select_row, results(Result{y.data(), dtype, 0, 0}), k.x = x.data(),
                    k.y = y.data(), k.row = row, k.batch = 3, k.seq = 5, k.cols = cols,
                    k.dtype = dtype);
            row[1] = 5; // unknown on the host
            const z3d_select_row select = {x.data(), y.data(), row, 3, 5, cols, dtype};
            const z3d_cuda_lane lane = {nullptr, nullptr, 0};
            ASSERT_EQ(z3d_cuda_select_row(&lane, &select), Z3D_OK);
            for (int64_t i = 0; i < 3 * cols; i++) ASSERT_EQ(std::isnan(y[i]), i / cols == 1) << i;
        }
}

TEST(CudaKernels, CrossEntropy) {
    z3d_step_state state = state_of();
    struct Case {
        int64_t rows, cols, valid, first;
    };
    for (z3d_dtype dtype : float_types())
        for (Case c :
             {Case{3, 5, 5, 0}, Case{7, 40, 37, 40}, Case{2, 2056, 2049, 0}, Case{4, 8, 0, 16}}) {
            Array logits = random_array(dtype, c.rows * c.cols, 1, 4);
            Array max(Z3D_F32, c.rows), sums(Z3D_F32, 2 * c.rows);
            std::vector<int32_t> targets;
            for (int64_t r = 0; r < c.rows; r++) {
                targets.push_back(r % 3 == 1 ? -1 : (int32_t)(c.first + r * 5 % (c.cols + 2)));
                max.set(r, 9 + 0.5 * (double)r);
                sums.set(r, 3 + (double)r);
                sums.set(c.rows + r, -2 - (double)r);
                for (int64_t i = c.valid; i < c.cols; i++) logits.set(r * c.cols + i, NAN);
            }
            Array max_out(Z3D_F32, c.rows), sums_out(Z3D_F32, 2 * c.rows);
            COMPARE(cross_entropy_max, results(Result{max_out.data(), Z3D_F32, 0, 0}),
                    k.logits = logits.data(), k.max_out = max_out.f32(), k.rows = c.rows,
                    k.cols = c.cols, k.valid = c.valid, k.dtype = dtype);
            COMPARE(cross_entropy_sum, results(Result{sums_out.data(), Z3D_F32, 2e-6, 0}),
                    k.logits = logits.data(), k.max = max.f32(), k.targets = targets.data(),
                    k.sums = sums_out.f32(), k.rows = c.rows, k.cols = c.cols, k.valid = c.valid,
                    k.first = c.first, k.dtype = dtype);
            for (int64_t r = 0; r < c.rows; r++) {
                max.set(r, -INFINITY);
                for (int64_t i = 0; i < c.valid; i++)
                    max.set(r, std::fmax(max[r], logits[r * c.cols + i]));
            }
            COMPARE(cross_entropy_sum,
                    results(Result{sums_out.data(), Z3D_F32, 2e-6, 0},
                            Result{max.data(), Z3D_F32, 0, 0}),
                    k.logits = logits.data(), k.max = max.f32(), k.targets = targets.data(),
                    k.sums = sums_out.f32(), k.rows = c.rows, k.cols = c.cols, k.valid = c.valid,
                    k.first = c.first, k.dtype = dtype, k.alone = true);
            COMPARE(cross_entropy_backward, results(Result{logits.data(), dtype, 2e-6, 1e-8}),
                    k.logits = logits.data(), k.max = max.f32(), k.sums = sums.f32(),
                    k.targets = targets.data(), k.rows = c.rows, k.cols = c.cols, k.valid = c.valid,
                    k.first = c.first, k.dtype = dtype, k.state = &state);
        }
}

TEST(CudaKernels, CrossEntropyLoss) {
    z3d_step_state state = state_of();
    for (int64_t rows : {1, 33, 2100}) {
        Array sums(Z3D_F32, 2 * rows);
        std::vector<int32_t> targets;
        for (int64_t r = 0; r < rows; r++) {
            sums.set(r, 1 + (double)(r % 9)), sums.set(rows + r, -(double)(r % 5));
            targets.push_back(r % 4 == 1 ? -7 : 3);
        }
        z3d_step_state got = state, want = state;
        const z3d_cuda_lane lane = {nullptr, nullptr, 0};
        const z3d_cross_entropy_loss loss = {sums.f32(), targets.data(), rows, &got};
        ASSERT_EQ(z3d_cuda_cross_entropy_loss(&lane, &loss), Z3D_OK);
        Device cpu("generic", 1);
        LAUNCH(cpu, cross_entropy_loss, k.sums = sums.f32(), k.targets = targets.data(),
               k.rows = rows, k.state = &want);
        EXPECT_NEAR(got.loss_sum, want.loss_sum, 1e-12 * want.loss_sum);
        EXPECT_EQ(got.valid_targets, want.valid_targets);
        got.loss_sum = want.loss_sum;
        EXPECT_EQ(std::memcmp(&got, &want, sizeof got), 0);
    }
}

TEST(CudaKernels, AdamW) {
    z3d_step_state state = state_of();
    for (z3d_dtype dtype : float_types())
        for (z3d_dtype gradient_dtype : float_types())
            for (int64_t count : COUNTS)
                for (float skip : {0.0f, 1.0f}) {
                    const int64_t decayed = skip == 1.0f ? count : count / 2 + 3;
                    state.skip = skip;
                    state.optimizer_step = count;
                    Array master = random_array(Z3D_F32, count, 1);
                    Array momentum = random_array(Z3D_F32, count, 2, 0.1);
                    Array variance = random_array(Z3D_F32, count, 3, 0.01, 1);
                    Array gradient = random_array(gradient_dtype, count, 4);
                    Array parameter = random_array(dtype, count, 5);
                    void *const parameters[] = {parameter.data(), nullptr, master.data()};
                    for (void *where : parameters) {
                        if (where == master.data() && dtype != Z3D_F32) continue;
                        std::vector<Result> wanted = {{master.data(), Z3D_F32, 1e-6, 1e-8},
                                                      {momentum.data(), Z3D_F32, 1e-6, 1e-8},
                                                      {variance.data(), Z3D_F32, 1e-6, 1e-8}};
                        if (where == parameter.data()) wanted.push_back({where, dtype, 1e-6, 1e-8});
                        COMPARE(adamw, wanted, k.master = master.f32(), k.momentum = momentum.f32(),
                                k.variance = variance.f32(), k.gradient = gradient.data(),
                                k.parameter = where, k.count = count, k.decayed = decayed,
                                k.dtype = dtype, k.gradient_dtype = gradient_dtype,
                                k.constants.beta1 = 0.9f, k.constants.beta2 = 0.95f,
                                k.constants.epsilon = 1e-8f, k.constants.weight_decay = 0.1f,
                                k.state = &state);
                    }
                }
}

TEST(CudaKernels, SumSquares) {
    for (z3d_dtype dtype : float_types())
        for (int64_t count : {1, 7, 300, 4096, 9001}) {
            Array x = random_array(dtype, count, 1);
            double out = 2.5;
            COMPARE(sum_squares, results(Result{&out, Z3D_F64, 1e-13, 0}), k.x = x.data(),
                    k.count = count, k.dtype = dtype, k.out = &out);
            for (double bad : {(double)INFINITY, (double)NAN}) {
                x.set(count - 1, bad);
                COMPARE(sum_squares, results(Result{&out, Z3D_F64, 0, 0}), k.x = x.data(),
                        k.count = count, k.dtype = dtype, k.out = &out);
            }
        }
    Array large(Z3D_F32, 300);
    for (int64_t i = 0; i < 300; i++) large.set(i, 3.4e38);
    double out = 0;
    COMPARE(sum_squares, results(Result{&out, Z3D_F64, 1e-13, 0}), k.x = large.data(),
            k.count = 300, k.dtype = Z3D_F32, k.out = &out);
}

TEST(CudaKernels, Control) {
    z3d_step_state state = state_of();
    state.loss_scale = 3;
    state.stop_requested = 1;
    for (bool counts : {true, false}) {
        double control[7];
        COMPARE(control_begin, results(Result{control, Z3D_F64, 0, 0}), k.state = &state,
                k.control = control, k.count = 7, k.counts = counts);
    }
    for (double clipping : {0.0, 0.4, 1e9})
        for (double last : {1.7, (double)INFINITY, (double)NAN}) {
            double control[7] = {1, 2, 1, 0, 0.1, 1e15, last};
            COMPARE(control_end,
                    results(Result{control, Z3D_F64, 0, 0}, Result{&state, Z3D_F32, 0, 0}),
                    k.control = control, k.state = &state, k.count = 7, k.clipping = clipping);
        }
}

TEST(CudaKernels, InitNormal) {
    const int64_t outer = 3, global = 8, inner = 67, local = 4;
    Array x(Z3D_F32, outer * local * inner);
    COMPARE(init_normal, results(Result{x.data(), Z3D_F32, 0, 0}), k.x = x.f32(), k.first = 0,
            k.count = outer * local * inner, k.outer = outer, k.local = local, k.global = global,
            k.inner = inner, k.offset = 4, k.key = z3d_key(5, "some.weight"),
            k.standard_deviation = 0.02f);
    COMPARE(init_normal, results(Result{x.data(), Z3D_F32, 0, 0}), k.x = x.f32(), k.first = 101,
            k.count = 37, k.outer = outer, k.local = local, k.global = global, k.inner = inner,
            k.offset = 0, k.key = 1, k.standard_deviation = 1.0f);
}

TEST(CudaKernels, BadArgumentsAreErrors) {
    const z3d_cuda_lane lane = {nullptr, nullptr, 0};
    float x[8] = {0};
    z3d_bias_backward bias = {x, x, 2, 4, Z3D_F32, Z3D_F32, false};
    EXPECT_EQ(z3d_cuda_bias_backward(&lane, &bias), Z3D_ERR_INTERNAL); // no scratch
    EXPECT_NE(std::string(z3d_error_message()).find("scratch of 0 bytes"), std::string::npos);
    bias.dtype = Z3D_I32;
    EXPECT_EQ(z3d_cuda_bias_backward(&lane, &bias), Z3D_ERR_INTERNAL);
    const z3d_init_normal init = {x, 0, 1, 1, 4, 4, 1, 1, 0, 1};
    EXPECT_EQ(z3d_cuda_init_normal(&lane, &init), Z3D_ERR_INTERNAL);
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
