// Llama's kernels against plain loops in double: rmsnorm, rotary, swiglu, cache_store.
#include "tests/device/kernels_harness.h"

namespace {

// Rows of heads x cols, with gaps of `gap` elements behind each row.
struct Rows {
    int64_t rows, heads, cols, gap;
    int64_t stride() const {
        return heads * cols + gap;
    }
    int64_t count() const {
        return rows * stride();
    }
    int64_t at(int64_t v, int64_t c) const { // element c of vector v
        return v / heads * stride() + v % heads * cols + c;
    }
};

const Rows SHAPES[] = {{1, 1, 1, 0},    {3, 1, 17, 0},    {17, 3, 63, 5}, {5, 1, 1000, 0},
                       {3, 1, 2500, 7}, {300, 4, 16, 32}, {1100, 1, 5, 0}};

// What stands in the gaps, before and after.
void expect_gaps(const Array &x, const Array &before, const Rows &s) {
    for (int64_t row = 0; row < s.rows; row++)
        for (int64_t c = s.heads * s.cols; c < s.stride(); c++)
            ASSERT_EQ(x[row * s.stride() + c], before[row * s.stride() + c]) << row << ", " << c;
}

TEST(RmsNorm, ForwardEveryTypeAndShape) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype dtype : float_types())
            for (Rows s : SHAPES)
                for (bool in_place : {false, true}) {
                    const Rows to = in_place ? s : Rows{s.rows, s.heads, s.cols, 3};
                    Array x(dtype, s.count(), 3), weight(dtype, s.cols);
                    Array y(dtype, to.count(), 5), rstd(Z3D_F32, s.rows * s.heads);
                    x.random(1, 2), weight.random(2), y.random(3);
                    Array before = x.copy(), old = in_place ? x.copy() : y.copy();
                    Array &result = in_place ? x : y;
                    LAUNCH(device, rmsnorm_forward, k.x = x.data(), k.weight = weight.data(),
                           k.y = result.data(), k.rstd = in_place ? nullptr : rstd.f32(),
                           k.rows = s.rows, k.heads = s.heads, k.cols = s.cols,
                           k.x_stride = s.stride(), k.y_stride = to.stride(), k.epsilon = 1e-5f,
                           k.dtype = dtype);
                    for (int64_t v = 0; v < s.rows * s.heads && device.first; v++) {
                        double sum = 0;
                        for (int64_t c = 0; c < s.cols; c++)
                            sum += before[s.at(v, c)] * before[s.at(v, c)];
                        const double want = 1 / std::sqrt(sum / (double)s.cols + 1e-5);
                        if (!in_place) expect_near(rstd, v, want, want, 1e-6);
                        for (int64_t c = 0; c < s.cols; c++) {
                            const double of = before[s.at(v, c)] * want * weight[c];
                            expect_near(result, to.at(v, c), of, std::fabs(of), 1e-6);
                            if (testing::Test::HasFatalFailure()) return;
                        }
                    }
                    expect_gaps(result, old, to);
                    result.append_to(bytes);
                    if (!in_place) rstd.append_to(bytes);
                }
    });
}

struct RmsBackward {
    Rows x_shape, dy_shape, dx_shape;
    Array x, weight, dy, add_to, dx, rstd, gradient, old_gradient;

    RmsBackward(const Rows &s, z3d_dtype dtype, z3d_dtype gradient_dtype, int64_t dy_gap,
                int64_t dx_gap)
        : x_shape(s), dy_shape{s.rows, s.heads, s.cols, dy_gap}, dx_shape{s.rows, s.heads, s.cols,
                                                                          dx_gap} {
        x = Array(dtype, s.count(), 3), weight = Array(dtype, s.cols);
        dy = Array(dtype, dy_shape.count(), 5), dx = Array(dtype, dx_shape.count());
        add_to = Array(dtype, dx_shape.count(), 7), rstd = Array(Z3D_F32, s.rows * s.heads);
        gradient = Array(gradient_dtype, s.cols);
        x.random(1, 2), weight.random(2), dy.random(3), add_to.random(4), dx.random(5);
        gradient.random(6);
        old_gradient = gradient.copy();
        for (int64_t v = 0; v < s.rows * s.heads; v++) {
            double sum = 0;
            for (int64_t c = 0; c < s.cols; c++) sum += x[s.at(v, c)] * x[s.at(v, c)];
            rstd.set(v, 1 / std::sqrt(sum / (double)s.cols + 1e-5));
        }
    }
    void launch(z3d_device *device, const Array *add, Array &to, bool accumulate) {
        const Rows &s = x_shape;
        LAUNCH(device, rmsnorm_backward, k.dy = dy.data(), k.x = x.data(), k.weight = weight.data(),
               k.rstd = rstd.f32(), k.add_to = add ? add->data() : nullptr, k.dx = to.data(),
               k.weight_gradient = gradient.data(), k.rows = s.rows, k.heads = s.heads,
               k.cols = s.cols, k.x_stride = s.stride(), k.y_stride = dy_shape.stride(),
               k.dx_stride = dx_shape.stride(), k.dtype = x.dtype(),
               k.gradient_dtype = gradient.dtype(), k.accumulate = accumulate);
    }
    // dy, add: as they were before the launch.
    void check(const Array &before_dy, const Array *add, const Array &got, bool accumulate) {
        const Rows &s = x_shape;
        std::vector<double> sum((size_t)s.cols), scale((size_t)s.cols);
        for (int64_t v = 0; v < s.rows * s.heads; v++) {
            double mean = 0;
            for (int64_t c = 0; c < s.cols; c++)
                mean += before_dy[dy_shape.at(v, c)] * weight[c] * x[s.at(v, c)] * rstd[v] /
                        (double)s.cols;
            for (int64_t c = 0; c < s.cols; c++) {
                const double normalized = x[s.at(v, c)] * rstd[v];
                const double g = before_dy[dy_shape.at(v, c)], gw = g * weight[c];
                const double plus = add ? (*add)[dx_shape.at(v, c)] : 0;
                const double size = std::fabs(gw) + std::fabs(normalized * mean) + 1;
                expect_near(got, dx_shape.at(v, c), plus + rstd[v] * (gw - normalized * mean),
                            std::fabs(plus) + rstd[v] * size, 2e-6);
                if (testing::Test::HasFatalFailure()) return;
                sum[(size_t)c] += g * normalized;
                scale[(size_t)c] += std::fabs(g * normalized);
            }
        }
        for (int64_t c = 0; c < s.cols; c++)
            expect_near(gradient, c, sum[(size_t)c] + (accumulate ? old_gradient[c] : 0),
                        scale[(size_t)c] + 1, 2e-6);
    }
};

TEST(RmsNorm, BackwardEveryTypeAndShape) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype dtype : float_types())
            for (Rows s : SHAPES)
                for (int way = 0; way < 4; way++) { // apart; + add_to; over add_to; over dy
                    const bool accumulate = way % 2 == 1;
                    RmsBackward b(s, dtype, way < 2 ? Z3D_F32 : dtype, 3, way == 3 ? 3 : 2);
                    Array dy = b.dy.copy(), add_to = b.add_to.copy(), old = b.dx.copy();
                    Array &to = way == 2 ? b.add_to : way == 3 ? b.dy : b.dx;
                    const bool adds = way == 1 || way == 2;
                    b.launch(device, adds ? &b.add_to : nullptr, to, accumulate);
                    if (device.first) b.check(dy, adds ? &add_to : nullptr, to, accumulate);
                    if (testing::Test::HasFatalFailure()) return;
                    expect_gaps(to, way == 2 ? add_to : way == 3 ? dy : old, b.dx_shape);
                    to.append_to(bytes), b.gradient.append_to(bytes);
                }
    });
}

// transformers' formulas, in double.
double frequency(const z3d_rope &rope, int64_t head_dim, int64_t pair) {
    const double pi = std::acos(-1.0), d = (double)head_dim;
    const double power = std::pow(rope.theta, 2 * (double)pair / d), base = 1 / power;
    if (rope.type == Z3D_ROPE_LINEAR) return base / rope.factor;
    if (rope.type == Z3D_ROPE_LLAMA3) {
        const double turns = rope.original_positions * base / (2 * pi);
        if (turns > rope.high_freq_factor) return base;
        if (turns < rope.low_freq_factor) return base / rope.factor;
        const double smooth =
            (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
        return (1 - smooth) * base / rope.factor + smooth * base;
    }
    if (rope.type == Z3D_ROPE_YARN) {
        const auto pair_of = [&](double turns) {
            return d * std::log(rope.original_positions / (turns * 2 * pi)) /
                   (2 * std::log(rope.theta));
        };
        const double low = std::max(std::floor(pair_of(32)), 0.0);
        const double high = std::min(std::ceil(pair_of(1)), d - 1);
        const double ramp = std::min(std::max(((double)pair - low) / (high - low), 0.0), 1.0);
        return base / rope.factor * ramp + base * (1 - ramp);
    }
    return base;
}

std::vector<z3d_rope> ropes() {
    z3d_rope rope;
    std::memset(&rope, 0, sizeof rope);
    rope.theta = 10000;
    std::vector<z3d_rope> all = {rope};
    rope.type = Z3D_ROPE_LINEAR, rope.factor = 4;
    all.push_back(rope);
    rope.type = Z3D_ROPE_LLAMA3, rope.theta = 500000, rope.factor = 8, rope.low_freq_factor = 1;
    rope.high_freq_factor = 4, rope.original_positions = 8192;
    all.push_back(rope);
    rope.type = Z3D_ROPE_YARN, rope.theta = 1000000, rope.factor = 4;
    rope.original_positions = 32768;
    all.push_back(rope);
    rope.attention_factor = 1.25;
    all.push_back(rope);
    return all;
}

double factor_of(const z3d_rope &rope) {
    if (rope.attention_factor > 0) return rope.attention_factor;
    return rope.type == Z3D_ROPE_YARN ? 0.1 * std::log(rope.factor) + 1 : 1;
}

TEST(Rotary, EveryTypeAndRope) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype dtype : float_types())
            for (const z3d_rope &rope : ropes())
                for (Rows s : {Rows{7, 3, 64, 0}, Rows{9, 1, 6, 5}, Rows{5, 2, 300, 16}})
                    for (bool inverse : {false, true}) {
                        const int32_t starts[] = {0, 3, 4000};
                        const int64_t seq = 4, first = 2; // rows 2 .. of three samples
                        Array x(dtype, s.count(), 3);
                        x.random(1);
                        Array before = x.copy();
                        LAUNCH(device, rotary, k.x = x.data(), k.starts = starts, k.rows = s.rows,
                               k.first = first, k.seq = seq, k.heads = s.heads, k.head_dim = s.cols,
                               k.stride = s.stride(), k.inverse = inverse, k.rope = rope,
                               k.dtype = dtype);
                        for (int64_t v = 0; v < s.rows * s.heads; v++)
                            for (int64_t i = 0; i < s.cols / 2; i++) {
                                const int64_t row = first + v / s.heads;
                                const double position = (double)(starts[row / seq] + row % seq);
                                const double angle = position * frequency(rope, s.cols, i);
                                const double factor = factor_of(rope);
                                const double c = factor * std::cos(angle);
                                const double n = factor * std::sin(angle) * (inverse ? -1 : 1);
                                const double a = before[s.at(v, i)];
                                const double b = before[s.at(v, i + s.cols / 2)];
                                // fp32 angles: transformers has them, too
                                const double bound = 1e-6 + 3e-7 * angle;
                                const double size = std::fabs(a) + std::fabs(b);
                                expect_near(x, s.at(v, i), a * c - b * n, size, bound);
                                expect_near(x, s.at(v, i + s.cols / 2), b * c + a * n, size, bound);
                                if (testing::Test::HasFatalFailure()) return;
                            }
                        expect_gaps(x, before, s);
                        x.append_to(bytes);
                    }
    });
}

TEST(Rotary, NoStartsAndOddHeads) {
    Device device(isas().back(), 1);
    const z3d_rope rope = ropes()[0];
    const int32_t zeros[] = {0, 0};
    Array x(Z3D_F32, 6 * 8), y(Z3D_F32, 6 * 8);
    x.random(1), y.random(1);
    for (Array *to : {&x, &y})
        LAUNCH(device, rotary, k.x = to->data(), k.starts = to == &x ? zeros : nullptr, k.rows = 6,
               k.seq = 3, k.heads = 1, k.head_dim = k.stride = 8, k.rope = rope);
    for (int64_t i = 0; i < 48; i++) ASSERT_EQ(x[i], y[i]);
    z3d_kernel kernel;
    std::memset(&kernel, 0, sizeof kernel);
    kernel.kind = Z3D_KERNEL_rotary;
    kernel.as.rotary.x = x.data(), kernel.as.rotary.rows = kernel.as.rotary.seq = 1;
    kernel.as.rotary.heads = 1, kernel.as.rotary.head_dim = kernel.as.rotary.stride = 7;
    kernel.as.rotary.rope = rope;
    EXPECT_EQ(launch_with_scratch(device, kernel), Z3D_ERR_INTERNAL);
}

const double GATES[] = {0, 1, -1, 20, -20, 100, -100, 1e4, -1e4};

TEST(Swiglu, EveryTypeAndShape) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype dtype : float_types())
            for (int64_t rows : {1, 7, 300})
                for (int64_t cols : {1, 33, 1100}) {
                    if (rows * cols > 40000) continue;
                    Array x(dtype, rows * 2 * cols, 3), y(dtype, rows * cols, 5);
                    Array dy(dtype, rows * cols), dx(dtype, rows * 2 * cols);
                    x.random(1, 3), dy.random(2);
                    for (int64_t i = 0; i < 9 && i < rows * 2 * cols; i++) x.set(i, GATES[i]);
                    LAUNCH(device, swiglu_forward, k.x = x.data(), k.y = y.data(), k.rows = rows,
                           k.cols = cols, k.dtype = dtype);
                    LAUNCH(device, swiglu_backward, k.x = x.data(), k.dy = dy.data(),
                           k.dx = dx.data(), k.rows = rows, k.cols = cols, k.dtype = dtype);
                    for (int64_t i = 0; i < rows * cols; i++) {
                        const int64_t at = i / cols * 2 * cols + i % cols;
                        const double gate = x[at], up = x[at + cols];
                        const double s = 1 / (1 + std::exp(-gate)), d = dy[i];
                        const double slope = s + gate * s * (1 - s);
                        expect_near(y, i, gate * s * up, std::fabs(gate * s * up) + 1e-20, 1e-6);
                        expect_near(dx, at, d * up * slope, std::fabs(d * up), 2e-6);
                        expect_near(dx, at + cols, d * gate * s, std::fabs(d * gate * s) + 1e-20,
                                    1e-6);
                        if (testing::Test::HasFatalFailure()) return;
                    }
                    LAUNCH(device, swiglu_backward, k.x = x.data(), k.dy = dy.data(),
                           k.dx = x.data(), k.rows = rows, k.cols = cols, k.dtype = dtype);
                    for (int64_t i = 0; i < x.count(); i++) ASSERT_EQ(x[i], dx[i]) << "in place";
                    y.append_to(bytes), dx.append_to(bytes);
                }
    });
}

TEST(CacheStore, PutsRowsWhereTheyBelong) {
    on_every_device([](Device &device, Bytes &) {
        for (z3d_dtype dtype : float_types()) {
            const int64_t batch = 3, seq = 4, capacity = 9, cols = 5, stride = 7;
            const int32_t starts[] = {0, 7, 12}; // the second's last two, all of the third's: none
            Array x(dtype, batch * seq * stride), cache(dtype, batch * capacity * cols);
            x.random(1), cache.random(2);
            Array old = cache.copy();
            LAUNCH(device, cache_store, k.x = x.data(), k.cache = cache.data(), k.starts = starts,
                   k.batch = batch, k.seq = seq, k.capacity = capacity, k.cols = cols,
                   k.stride = stride, k.dtype = dtype);
            for (int64_t i = 0; i < cache.count(); i++) {
                const int64_t b = i / cols / capacity, row = i / cols % capacity - starts[b];
                const bool stored = row >= 0 && row < seq;
                ASSERT_EQ(cache[i], stored ? x[(b * seq + row) * stride + i % cols] : old[i]) << i;
            }
            const int32_t negative[] = {0, -1, 0};
            z3d_kernel kernel;
            std::memset(&kernel, 0, sizeof kernel);
            kernel.kind = Z3D_KERNEL_cache_store;
            kernel.as.cache_store = {x.data(), cache.data(), negative, batch, seq,
                                     capacity, cols,         stride,   dtype};
            EXPECT_EQ(z3d_launch(device, &kernel), Z3D_ERR_INTERNAL);
        }
    });
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
