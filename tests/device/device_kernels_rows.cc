// Kernels that work on rows: bias_backward, layernorm, cross entropy; their gradients also against
// finite differences.
#include "tests/device/kernels_harness.h"

namespace {

struct Shape {
    int64_t rows, cols;
};
const Shape SHAPES[] = {{1, 1},  {1, 3},    {3, 17},   {17, 63},   {63, 65},
                        {65, 3}, {5, 1000}, {3, 2500}, {1000, 17}, {1100, 5}};

TEST(BiasBackward, EveryTypeAndShape) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype dtype : float_types())
            for (z3d_dtype gradient_dtype : float_types())
                for (Shape s : SHAPES)
                    for (bool accumulate : {false, true}) {
                        Array dy(dtype, s.rows * s.cols, 3), gradient(gradient_dtype, s.cols);
                        dy.random(1);
                        if (accumulate) gradient.random(2);
                        Array old = gradient.copy();
                        LAUNCH(device, bias_backward, k.dy = dy.data(),
                               k.gradient = gradient.data(), k.rows = s.rows, k.cols = s.cols,
                               k.dtype = dtype, k.gradient_dtype = gradient_dtype,
                               k.accumulate = accumulate);
                        for (int64_t j = 0; j < s.cols && device.first; j++) {
                            double sum = accumulate ? old[j] : 0, scale = std::fabs(sum);
                            for (int64_t i = 0; i < s.rows; i++) {
                                sum += dy[i * s.cols + j];
                                scale += std::fabs(dy[i * s.cols + j]);
                            }
                            expect_near(gradient, j, sum, scale, 1e-6);
                        }
                        gradient.append_to(bytes);
                    }
    });
}

struct Norm {
    std::vector<double> y, mean, rstd;
};

// In double.
Norm layernorm(const std::vector<double> &x, const std::vector<double> &weight,
               const std::vector<double> &bias, int64_t rows, int64_t cols) {
    Norm norm;
    norm.y.resize(x.size());
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, variance = 0;
        for (int64_t c = 0; c < cols; c++) mean += x[(size_t)(r * cols + c)] / (double)cols;
        for (int64_t c = 0; c < cols; c++)
            variance += std::pow(x[(size_t)(r * cols + c)] - mean, 2) / (double)cols;
        double rstd = 1 / std::sqrt(variance + 1e-5);
        norm.mean.push_back(mean);
        norm.rstd.push_back(rstd);
        for (int64_t c = 0; c < cols; c++)
            norm.y[(size_t)(r * cols + c)] =
                (x[(size_t)(r * cols + c)] - mean) * rstd * weight[(size_t)c] + bias[(size_t)c];
    }
    return norm;
}

std::vector<double> doubles(const Array &a) {
    std::vector<double> out;
    for (int64_t i = 0; i < a.count(); i++) out.push_back(a[i]);
    return out;
}

TEST(LayerNorm, Forward) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype dtype : float_types())
            for (Shape s : SHAPES) {
                Array x(dtype, s.rows * s.cols), weight(dtype, s.cols, 3), bias(dtype, s.cols, 5),
                    y(dtype, s.rows * s.cols, 7), mean(Z3D_F32, s.rows), rstd(Z3D_F32, s.rows);
                x.random(1, 2.0, 5.0);
                weight.random(2, 0.5, 1.0);
                bias.random(3);
                LAUNCH(device, layernorm_forward, k.x = x.data(), k.weight = weight.data(),
                       k.bias = bias.data(), k.y = y.data(), k.mean = mean.f32(),
                       k.rstd = rstd.f32(), k.rows = s.rows, k.cols = s.cols, k.epsilon = 1e-5f,
                       k.dtype = dtype);
                for (Array *a : {&y, &mean, &rstd}) a->append_to(bytes);
                if (!device.first) continue;
                Norm want = layernorm(doubles(x), doubles(weight), doubles(bias), s.rows, s.cols);
                for (int64_t r = 0; r < s.rows; r++) {
                    ASSERT_NEAR(mean[r], want.mean[(size_t)r], 2e-6 * 10);
                    if (s.cols > 1) {
                        ASSERT_NEAR(rstd[r], want.rstd[(size_t)r], 1e-5 * want.rstd[(size_t)r]);
                    }
                }
                for (int64_t i = 0; i < s.rows * s.cols; i++)
                    expect_near(y, i, want.y[(size_t)i],
                                1 + std::fabs(want.rstd[(size_t)(i / s.cols)]) * 10, 1e-6);
            }
    });
}

struct Grads {
    std::vector<double> dx, weight, bias;
};

Grads layernorm_gradients(const Array &x, const Array &dy, const Array &weight, const Norm &norm,
                          int64_t rows, int64_t cols) {
    Grads g;
    g.dx.resize((size_t)(rows * cols));
    g.weight.resize((size_t)cols);
    g.bias.resize((size_t)cols);
    for (int64_t r = 0; r < rows; r++) {
        double mean_g = 0, mean_gx = 0, mean = norm.mean[(size_t)r], rstd = norm.rstd[(size_t)r];
        for (int64_t c = 0; c < cols; c++) {
            double hat = (x[r * cols + c] - mean) * rstd, d = dy[r * cols + c];
            mean_g += d * weight[c] / (double)cols;
            mean_gx += d * weight[c] * hat / (double)cols;
            g.weight[(size_t)c] += d * hat;
            g.bias[(size_t)c] += d;
        }
        for (int64_t c = 0; c < cols; c++) {
            double hat = (x[r * cols + c] - mean) * rstd;
            g.dx[(size_t)(r * cols + c)] =
                rstd * (dy[r * cols + c] * weight[c] - mean_g - hat * mean_gx);
        }
    }
    return g;
}

// add_to: none, another buffer, dx itself.
TEST(LayerNorm, Backward) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype dtype : float_types())
            for (z3d_dtype gradient_dtype : {dtype, Z3D_F32})
                for (Shape s : SHAPES)
                    for (int form = 0; form < 3; form++) {
                        if (s.cols == 1) continue; // rstd is 1 / sqrt(eps): all rounding error
                        const int64_t count = s.rows * s.cols;
                        Array x(dtype, count), dy(dtype, count, 3), weight(dtype, s.cols, 5),
                            add(dtype, count, 7), dx(dtype, count, 9), mean(Z3D_F32, s.rows),
                            rstd(Z3D_F32, s.rows), dw(gradient_dtype, s.cols),
                            db(gradient_dtype, s.cols, 3);
                        x.random(1, 2.0, 1.0);
                        dy.random(2);
                        weight.random(3, 0.5, 1.0);
                        add.random(4);
                        if (form == 2)
                            for (int64_t i = 0; i < count; i++) dx.set(i, add[i]);
                        const bool accumulate = form > 0;
                        if (accumulate) dw.random(5), db.random(6);
                        Norm norm = layernorm(doubles(x), doubles(weight),
                                              std::vector<double>((size_t)s.cols), s.rows, s.cols);
                        for (int64_t r = 0; r < s.rows; r++) {
                            mean.set(r, norm.mean[(size_t)r]);
                            rstd.set(r, norm.rstd[(size_t)r]);
                        }
                        Array old_dw = dw.copy(), old_db = db.copy();
                        LAUNCH(device, layernorm_backward, k.dy = dy.data(), k.x = x.data(),
                               k.weight = weight.data(), k.mean = mean.f32(), k.rstd = rstd.f32(),
                               k.add_to = form == 0   ? nullptr
                                          : form == 1 ? add.data()
                                                      : dx.data(),
                               k.dx = dx.data(), k.weight_gradient = dw.data(),
                               k.bias_gradient = db.data(), k.rows = s.rows, k.cols = s.cols,
                               k.dtype = dtype, k.gradient_dtype = gradient_dtype,
                               k.accumulate = accumulate);
                        for (Array *a : {&dx, &dw, &db}) a->append_to(bytes);
                        if (!device.first) continue;
                        Grads want = layernorm_gradients(x, dy, weight, norm, s.rows, s.cols);
                        for (int64_t i = 0; i < count; i++)
                            expect_near(dx, i, want.dx[(size_t)i] + (form ? add[i] : 0),
                                        4 + 10 * norm.rstd[(size_t)(i / s.cols)], 2e-6);
                        for (int64_t c = 0; c < s.cols; c++) {
                            double scale = 4 * std::sqrt((double)s.rows) + 4;
                            expect_near(dw, c,
                                        want.weight[(size_t)c] + (accumulate ? old_dw[c] : 0),
                                        scale * 3, 2e-6);
                            expect_near(db, c, want.bias[(size_t)c] + (accumulate ? old_db[c] : 0),
                                        scale, 2e-6);
                        }
                    }
    });
}

// The backward kernel against the numeric derivative of the forward in double.
TEST(LayerNorm, BackwardIsTheDerivative) {
    const int64_t rows = 3, cols = 7;
    Device device(isas().back(), 1);
    Array x(Z3D_F32, rows * cols), w(Z3D_F32, cols), b(Z3D_F32, cols), dy(Z3D_F32, rows * cols),
        y(Z3D_F32, rows * cols), dx(Z3D_F32, rows * cols), mean(Z3D_F32, rows), rstd(Z3D_F32, rows),
        dw(Z3D_F32, cols), db(Z3D_F32, cols);
    x.random(1);
    w.random(2);
    b.random(3);
    dy.random(4);
    LAUNCH(device, layernorm_forward, k.x = x.data(), k.weight = w.data(), k.bias = b.data(),
           k.y = y.data(), k.mean = mean.f32(), k.rstd = rstd.f32(), k.rows = rows, k.cols = cols,
           k.epsilon = 1e-5f, k.dtype = Z3D_F32);
    LAUNCH(device, layernorm_backward, k.dy = dy.data(), k.x = x.data(), k.weight = w.data(),
           k.mean = mean.f32(), k.rstd = rstd.f32(), k.dx = dx.data(),
           k.weight_gradient = dw.data(), k.bias_gradient = db.data(), k.rows = rows, k.cols = cols,
           k.dtype = Z3D_F32, k.gradient_dtype = Z3D_F32);
    std::vector<double> vx = doubles(x), vw = doubles(w), vb = doubles(b);
    auto objective = [&] {
        Norm norm = layernorm(vx, vw, vb, rows, cols);
        double sum = 0;
        for (int64_t i = 0; i < rows * cols; i++) sum += norm.y[(size_t)i] * dy[i];
        return sum;
    };
    auto check = [&](std::vector<double> &v, const Array &gradient) {
        for (int64_t i = 0; i < gradient.count(); i++) {
            double old = v[(size_t)i];
            v[(size_t)i] = old + 1e-5;
            double up = objective();
            v[(size_t)i] = old - 1e-5;
            double down = objective();
            v[(size_t)i] = old;
            EXPECT_NEAR(gradient[i], (up - down) / 2e-5, 1e-4);
        }
    };
    check(vx, dx);
    check(vw, dw);
    check(vb, db);
}

// A vocabulary split over `parts` ranks with padding at the end of the last, the all-reduces done
// by hand.
struct CrossEntropy {
    int64_t rows, vocabulary, parts, local; // local columns, padded
    std::vector<Array> logits;
    Array max, sums;
    std::vector<int32_t> targets;
    z3d_step_state state;

    int64_t valid(int64_t part) const {
        return std::max((int64_t)0, std::min(local, vocabulary - part * local));
    }

    CrossEntropy(z3d_dtype dtype, int64_t rows_, int64_t vocabulary_, int64_t parts_,
                 int64_t padding, double scale, uint32_t seed)
        : rows(rows_), vocabulary(vocabulary_), parts(parts_),
          local((vocabulary_ + padding + parts_ - 1) / parts_), max(Z3D_F32, rows_),
          sums(Z3D_F32, 2 * rows_) {
        std::memset(&state, 0, sizeof state);
        state.gradient_seed = 0.25f;
        state.loss_sum = 1.5;
        state.valid_targets = 2;
        Array all(dtype, rows * vocabulary);
        all.random(seed, scale);
        for (int64_t part = 0; part < parts; part++) {
            logits.emplace_back(dtype, rows * local, 3); // padding stays NaN
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < valid(part); c++)
                    logits[(size_t)part].set(r * local + c, all[r * vocabulary + part * local + c]);
        }
        std::mt19937 engine(seed);
        for (int64_t r = 0; r < rows; r++)
            targets.push_back(r % 5 == 3 ? -1 - (int32_t)(r % 2) * 99
                                         : (int32_t)(engine() % (uint32_t)vocabulary));
    }

    double logit(int64_t row, int64_t column) const {
        return logits[(size_t)(column / local)][row * local + column % local];
    }

    void run(Device &device, bool backward) {
        Array part_max(Z3D_F32, rows), part_sums(Z3D_F32, 2 * rows);
        for (int64_t r = 0; r < rows; r++) max.set(r, -INFINITY);
        for (int64_t r = 0; r < 2 * rows; r++) sums.set(r, 0);
        for (int64_t part = 0; part < parts; part++) {
            Array &x = logits[(size_t)part];
            LAUNCH(device, cross_entropy_max, k.logits = x.data(), k.max_out = part_max.f32(),
                   k.rows = rows, k.cols = local, k.valid = valid(part), k.dtype = x.dtype());
            for (int64_t r = 0; r < rows; r++) max.set(r, std::fmax(max[r], part_max[r]));
        }
        for (int64_t part = 0; part < parts; part++) {
            Array &x = logits[(size_t)part];
            LAUNCH(device, cross_entropy_sum, k.logits = x.data(), k.max = max.f32(),
                   k.targets = targets.data(), k.sums = part_sums.f32(), k.rows = rows,
                   k.cols = local, k.valid = valid(part), k.first = part * local,
                   k.dtype = x.dtype());
            for (int64_t r = 0; r < 2 * rows; r++) sums.set(r, sums[r] + part_sums[r]);
        }
        LAUNCH(device, cross_entropy_loss, k.sums = sums.f32(), k.targets = targets.data(),
               k.rows = rows, k.state = &state);
        for (int64_t part = 0; part < parts && backward; part++) {
            Array &x = logits[(size_t)part];
            LAUNCH(device, cross_entropy_backward, k.logits = x.data(), k.max = max.f32(),
                   k.sums = sums.f32(), k.targets = targets.data(), k.rows = rows, k.cols = local,
                   k.valid = valid(part), k.first = part * local, k.dtype = x.dtype(),
                   k.state = &state);
        }
    }
};

// By the formula, before it has run.
struct Wanted {
    double loss = 0, count = 0;
    std::vector<double> gradient;

    explicit Wanted(const CrossEntropy &c) : gradient((size_t)(c.rows * c.vocabulary)) {
        std::vector<double> x((size_t)c.vocabulary);
        for (int64_t r = 0; r < c.rows; r++) {
            const int32_t target = c.targets[(size_t)r];
            if (target < 0) continue;
            double max = -INFINITY, sum = 0;
            for (int64_t v = 0; v < c.vocabulary; v++)
                max = std::fmax(max, x[(size_t)v] = c.logit(r, v));
            loss += max - x[(size_t)target];
            for (double &e : x) sum += e = std::exp(e - max);
            for (int64_t v = 0; v < c.vocabulary; v++)
                gradient[(size_t)(r * c.vocabulary + v)] =
                    0.25 * (x[(size_t)v] / sum - (v == target));
            loss += std::log(sum);
            count += 1;
        }
    }
};

void check_values(const CrossEntropy &c, const Wanted &want) {
    ASSERT_NEAR(c.state.loss_sum, 1.5 + want.loss, 2e-6 * (want.loss + 1));
    ASSERT_EQ(c.state.valid_targets, 2 + want.count);
    for (int64_t part = 0; part < c.parts; part++)
        for (int64_t i = 0; i < c.rows * c.local; i++) {
            int64_t column = i % c.local, row = i / c.local;
            double gradient =
                column < c.valid(part)
                    ? want.gradient[(size_t)(row * c.vocabulary + part * c.local + column)]
                    : 0;
            expect_near(c.logits[(size_t)part], i, gradient, 1, 1e-6);
        }
}

void check_cross_entropy(Device &device, Bytes &bytes, CrossEntropy &c) {
    const std::unique_ptr<Wanted> want(device.first ? new Wanted(c) : nullptr);
    c.run(device, true);
    if (want) check_values(c, *want);
    for (Array &x : c.logits) x.append_to(bytes);
    c.sums.append_to(bytes);
    c.max.append_to(bytes);
    bytes.insert(bytes.end(), (unsigned char *)&c.state.loss_sum,
                 (unsigned char *)(&c.state.loss_sum + 1));
}

TEST(CrossEntropy, SplitPaddedIgnored) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype dtype : float_types())
            for (int64_t rows : {1, 3, 17, 65})
                for (int64_t vocabulary : {1, 3, 17, 65, 257, 2500})
                    for (int64_t parts : {1, 2, 4}) {
                        if (rows * vocabulary > 65 * 257) continue;
                        CrossEntropy c(dtype, rows, vocabulary, parts, parts == 1 ? 0 : 7, 2.0,
                                       (uint32_t)(rows + vocabulary));
                        check_cross_entropy(device, bytes, c);
                        if (testing::Test::HasFatalFailure()) return;
                    }
    });
}

TEST(CrossEntropy, LargeLogits) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (double scale : {100.0, 10000.0}) {
            CrossEntropy c(Z3D_F32, 17, 129, 2, 3, scale, 5);
            check_cross_entropy(device, bytes, c);
        }
    });
}

TEST(CrossEntropy, ManyRows) {
    on_every_device([](Device &device, Bytes &bytes) {
        CrossEntropy c(Z3D_F32, 5000, 5, 1, 0, 1.0, 5);
        check_cross_entropy(device, bytes, c);
    });
}

// A NaN or infinity in the logits must reach the loss.
TEST(CrossEntropy, OverflowReachesTheLoss) {
    on_every_device([](Device &device, Bytes &) {
        for (double bad : {(double)NAN, (double)INFINITY})
            for (int64_t column : {0, 15, 16, 63}) {
                CrossEntropy c(Z3D_F32, 4, 64, 1, 0, 1.0, 1);
                c.logits[0].set(2 * 64 + column, bad);
                c.run(device, true);
                EXPECT_FALSE(std::isfinite(c.state.loss_sum)) << bad << " at " << column;
            }
    });
}

TEST(CrossEntropy, BackwardIsTheDerivative) {
    Device device(isas().back(), 1);
    const int64_t rows = 3, vocabulary = 7;
    CrossEntropy c(Z3D_F32, rows, vocabulary, 1, 0, 1.0, 11);
    std::vector<double> x = doubles(c.logits[0]);
    auto objective = [&] {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) {
            double total = 0;
            for (int64_t v = 0; v < vocabulary; v++)
                total += std::exp(x[(size_t)(r * vocabulary + v)]);
            sum += std::log(total) - x[(size_t)(r * vocabulary + c.targets[(size_t)r])];
        }
        return 0.25 * sum;
    };
    c.run(device, true);
    for (int64_t i = 0; i < rows * vocabulary; i++) {
        double old = x[(size_t)i];
        x[(size_t)i] = old + 1e-5;
        double up = objective();
        x[(size_t)i] = old - 1e-5;
        double down = objective();
        x[(size_t)i] = old;
        EXPECT_NEAR(c.logits[0][i], (up - down) / 2e-5, 1e-5);
    }
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
