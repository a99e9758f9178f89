// The optimizers, sum_squares, the step's control and initial values.
#include "tests/device/kernels_harness.h"

namespace {

struct Adam {
    float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-3f, decay = 0.1f;
};

z3d_step_state state_of(int64_t step) {
    z3d_step_state state;
    std::memset(&state, 0, sizeof state);
    state.optimizer_step = step;
    state.learning_rate = 6e-3f;
    state.gradient_factor = 0.25f;
    return state;
}

void launch(Device &device, Array &master, Array &momentum, Array &variance, const Array &gradient,
            Array *parameter, const z3d_step_state *state, int64_t first, int64_t count) {
    const Adam adam;
    LAUNCH(device, adamw, k.master = master.f32() + first, k.momentum = momentum.f32() + first,
           k.variance = variance.f32() + first,
           k.gradient =
               (const char *)gradient.data() + first * (int64_t)z3d_dtype_size(gradient.dtype()),
           k.parameter = parameter ? (char *)parameter->data() +
                                         first * (int64_t)z3d_dtype_size(parameter->dtype())
                                   : nullptr,
           k.count = count, k.decayed = count, k.dtype = parameter ? parameter->dtype() : Z3D_F32,
           k.gradient_dtype = gradient.dtype(), k.constants.beta1 = adam.beta1,
           k.constants.beta2 = adam.beta2, k.constants.epsilon = adam.epsilon,
           k.constants.weight_decay = adam.decay, k.constants.lr_scale = 1, k.state = state);
}

// Several steps against the same recurrence in double.
TEST(AdamW, FollowsTheRecurrence) {
    const Adam adam;
    on_every_device([&](Device &device, Bytes &bytes) {
        for (z3d_dtype dtype : float_types())
            for (z3d_dtype gradient_dtype : float_types())
                for (int64_t count : {1, 3, 17, 63, 65, 1000, 9001}) {
                    Array master(Z3D_F32, count), momentum(Z3D_F32, count, 2),
                        variance(Z3D_F32, count, 3), parameter(dtype, count, 5);
                    master.random(1);
                    for (int64_t i = 0; i < count; i++) momentum.set(i, 0), variance.set(i, 0);
                    std::vector<double> p((size_t)count), m((size_t)count), v((size_t)count);
                    for (int64_t i = 0; i < count; i++) p[(size_t)i] = master[i];
                    for (int step = 1; step <= 3; step++) {
                        Array gradient(gradient_dtype, count, 7);
                        gradient.random(10u + (uint32_t)step);
                        for (int64_t i = 0; i < count; i += 5) gradient.set(i, 0); // 0 / epsilon
                        const z3d_step_state state = state_of(step);
                        launch(device, master, momentum, variance, gradient, &parameter, &state, 0,
                               count);
                        for (int64_t j = 0; j < count; j++) {
                            size_t i = (size_t)j;
                            double lr = (double)state.learning_rate;
                            double g = gradient[j] * (double)state.gradient_factor;
                            double b1 = (double)adam.beta1, b2 = (double)adam.beta2;
                            p[i] *= 1 - lr * (double)adam.decay;
                            m[i] = b1 * m[i] + (1 - b1) * g;
                            v[i] = b2 * v[i] + (1 - b2) * g * g;
                            p[i] -=
                                lr * (m[i] / (1 - std::pow(b1, step))) /
                                (std::sqrt(v[i] / (1 - std::pow(b2, step))) + (double)adam.epsilon);
                            ASSERT_NEAR(momentum[j], m[i], 1e-6);
                            ASSERT_NEAR(variance[j], v[i], 1e-6);
                            ASSERT_NEAR(master[j], p[i], 2e-6 * step) << step;
                            ASSERT_EQ(parameter[j], round_to(dtype, master[j]));
                        }
                    }
                    for (Array *a : {&master, &momentum, &variance, &parameter})
                        a->append_to(bytes);
                }
    });
}

// A shard is stepped in several ranges that differ between ZeRO stages and parallel sizes.
TEST(AdamW, DoesNotDependOnCuts) {
    const z3d_step_state state = state_of(2);
    on_every_device([&](Device &device, Bytes &) {
        const int64_t count = 3001;
        Array gradient(Z3D_BF16, count);
        gradient.random(1);
        std::vector<Bytes> results;
        for (int64_t piece : {3001, 1, 7, 100, 1024}) {
            Array master(Z3D_F32, count, piece % 16), momentum(Z3D_F32, count, 2),
                variance(Z3D_F32, count, 3), parameter(Z3D_BF16, count);
            master.random(2);
            momentum.random(3, 0.1);
            variance.random(4, 0.01, 0.1);
            for (int64_t first = 0; first < count; first += piece)
                launch(device, master, momentum, variance, gradient, &parameter, &state, first,
                       std::min(piece, count - first));
            Bytes bytes;
            for (Array *a : {&master, &momentum, &variance, &parameter}) a->append_to(bytes);
            results.push_back(bytes);
            ASSERT_TRUE(results[0] == bytes) << "pieces of " << piece;
        }
    });
}

// Several steps against torch.optim.SGD's recurrence in double; a skipped one changes nothing.
TEST(Sgd, FollowsTheRecurrence) {
    const double rate = 6e-3, factor = 0.25, decay = 0.1, rest = 0.9;
    for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16, Z3D_F16})
        on_every_device([&](Device &device, Bytes &bytes) {
            const int64_t count = 1500, decayed = 1100;
            Array master(Z3D_F32, count), momentum(Z3D_F32, count, 2), parameter(dtype, count, 5);
            master.random(1);
            std::vector<double> p((size_t)count), m((size_t)count);
            for (int64_t i = 0; i < count; i++) momentum.set(i, 0), p[(size_t)i] = master[i];
            for (int step = 1; step <= 4; step++) {
                z3d_step_state state = state_of(step);
                state.skip = step == 3 ? 1.0f : 0.0f;
                Array gradient(Z3D_BF16, count);
                gradient.random(10u + (uint32_t)step);
                LAUNCH(device, sgd, k.master = master.f32(), k.momentum = momentum.f32(),
                       k.gradient = gradient.data(), k.parameter = parameter.data(),
                       k.count = count, k.decayed = decayed, k.dtype = dtype,
                       k.gradient_dtype = Z3D_BF16, k.constants.momentum = 0.9f,
                       k.constants.weight_decay = 0.1f, k.constants.lr_scale = 1, k.state = &state);
                for (size_t i = 0; i < (size_t)count; i++) {
                    if (state.skip == 0.0f) {
                        double g = gradient[(int64_t)i] * factor;
                        m[i] = rest * m[i] + g + ((int64_t)i < decayed ? decay * p[i] : 0);
                        p[i] -= rate * m[i];
                    }
                    ASSERT_NEAR(momentum[(int64_t)i], m[i], 1e-5) << step;
                    ASSERT_NEAR(master[(int64_t)i], p[i], 1e-6 * step) << step;
                    ASSERT_EQ(parameter[(int64_t)i], round_to(dtype, master[(int64_t)i]));
                }
            }
            for (Array *a : {&master, &momentum, &parameter}) a->append_to(bytes);
        });
}

// What torch.optim 2.15 makes of the parameters cos(i) with the gradients below in 1, 10 and 20
// steps; the first three decay.
struct Known {
    z3d_kernel_kind kind;
    double after[3][6];
};

const Known known[] = {
    {Z3D_KERNEL_adamw,
     {{0.9890000, 0.5297620, -0.4257307, -0.9799925, -0.6436436, 0.2936622},
      {0.9655770, 0.5225544, -0.4083937, -0.9578437, -0.6248664, 0.3027919},
      {0.9530345, 0.5161976, -0.4031483, -0.9547948, -0.6214797, 0.3049541}}},
    {Z3D_KERNEL_adam,
     {{0.9900000, 0.5303023, -0.4261468, -0.9799925, -0.6436436, 0.2936622},
      {0.9401610, 0.5155303, -0.4058698, -0.9578437, -0.6248664, 0.3027919},
      {0.8921638, 0.5001701, -0.3970243, -0.9547948, -0.6214797, 0.3049541}}},
    {Z3D_KERNEL_sgd,
     {{0.9965911, 0.5352155, -0.4189360, -0.9874371, -0.6434152, 0.2986047},
      {0.9496295, 0.5134776, -0.3817220, -0.9443944, -0.5957846, 0.3214724},
      {0.8705230, 0.4700482, -0.3465175, -0.9292985, -0.5747669, 0.3374090}}},
    {Z3D_KERNEL_adagrad,
     {{0.9900000, 0.5303023, -0.4261468, -0.9799925, -0.6436436, 0.2936622},
      {0.9768918, 0.5305611, -0.4164518, -0.9773634, -0.6457778, 0.2890121},
      {0.9640566, 0.5260771, -0.4142321, -0.9760397, -0.6441427, 0.2902502}}},
};

TEST(Optimizers, TwentyStepsOfTorch) {
    for (const Known &k : known)
        on_every_device([&](Device &device, Bytes &) {
            float p[6], g[6], momentum[6] = {}, variance[6] = {}, square_sum[6] = {};
            for (int i = 0; i < 6; i++) p[i] = (float)std::cos(i);
            for (int step = 1; step <= 20; step++) {
                z3d_step_state state = state_of(step);
                state.learning_rate = 1e-2f, state.gradient_factor = 0.5f;
                for (int i = 0; i < 6; i++)
                    g[i] = (float)(std::sin(0.7 * i + 1.3 * step) * (i + 1) / 2);
                z3d_kernel kernel = {};
                kernel.kind = k.kind;
                z3d_optimizer_update &u = kernel.as.update;
                u.master = p, u.gradient = g, u.count = 6, u.decayed = 3;
                u.momentum = momentum, u.variance = variance, u.square_sum = square_sum;
                u.constants = {0.9f, 0.95f, 1e-8f, 0.9f, 0.1f, 1, 0};
                u.state = &state;
                ASSERT_EQ(z3d_launch(device, &kernel), Z3D_OK) << z3d_error_message();
                if (step != 1 && step % 10) continue;
                for (int i = 0; i < 6; i++)
                    ASSERT_NEAR(p[i], k.after[step / 10][i], 1e-6) << step << " " << k.kind;
            }
        });
}

// Both moments in bf16, rounded at random: the same bits however a parameter is split over tensor
// ranks, along its middle dimension, and stepped in pieces.
TEST(MomentsInBf16, DoNotDependOnPlaces) {
    const int64_t outer = 3, global = 8, inner = 67, all = outer * global * inner;
    z3d_step_state state = state_of(5);
    state.seed = 17;
    on_every_device([&](Device &device, Bytes &bytes) {
        for (z3d_kernel_kind kind : {Z3D_KERNEL_adamw_bf16, Z3D_KERNEL_adam_bf16}) {
            std::vector<float> first;
            for (int64_t parts : {1, 2, 4})
                for (int64_t piece : {(int64_t)1000000, (int64_t)1, (int64_t)50}) {
                    std::vector<float> after((size_t)(2 * all));
                    for (int64_t part = 0; part < parts; part++) {
                        const int64_t local = global / parts, count = outer * local * inner;
                        Array master(Z3D_F32, count), moments(Z3D_F32, count, 1);
                        Array gradient(Z3D_F32, count, 2);
                        auto place = [&](int64_t i) {
                            const int64_t o = i / (local * inner), rest = i % (local * inner);
                            return (o * global + part * local) * inner + rest;
                        };
                        for (int64_t i = 0; i < count; i++) {
                            const double x = (double)place(i);
                            master.set(i, std::cos(x)), moments.set(i, 0);
                            gradient.set(i, std::sin(3 * x));
                        }
                        for (int64_t at = 0; at < count; at += piece) {
                            z3d_kernel kernel = {};
                            kernel.kind = kind;
                            z3d_optimizer_update &u = kernel.as.update;
                            u.master = master.f32() + at, u.moments = moments.f32() + at;
                            u.gradient = gradient.f32() + at;
                            u.count = u.decayed = std::min(piece, count - at);
                            u.place = {99, at, local, global, inner, part * local};
                            u.constants = {0.9f, 0.95f, 1e-8f, 0, 0.1f, 1, 0};
                            u.state = &state;
                            ASSERT_EQ(z3d_launch(device, &kernel), Z3D_OK) << z3d_error_message();
                        }
                        for (int64_t i = 0; i < count; i++) {
                            after[(size_t)place(i)] = master.f32()[i];
                            after[(size_t)(all + place(i))] = moments.f32()[i];
                        }
                    }
                    if (first.empty()) first = after;
                    ASSERT_EQ(std::memcmp(first.data(), after.data(), after.size() * 4), 0)
                        << parts << " " << piece;
                }
            const unsigned char *data = (const unsigned char *)first.data();
            bytes.insert(bytes.end(), data, data + first.size() * 4);
        }
    });
}

// What rounding adds and takes is nothing on average, where rounding to the nearest stands still.
TEST(MomentsInBf16, AreRightOnAverage) {
    const int64_t count = 4096;
    const int steps = 600;
    Device device(isas().back(), 1);
    Array master(Z3D_F32, count), moments(Z3D_F32, count), gradient(Z3D_F32, count);
    for (int64_t i = 0; i < count; i++)
        master.set(i, 0), moments.set(i, 0), gradient.set(i, i % 2 ? 0.7 : -0.7);
    for (int step = 1; step <= steps; step++) {
        z3d_step_state state = state_of(step);
        state.gradient_factor = 1;
        LAUNCH(device, adamw_bf16, k.master = master.f32(), k.moments = moments.f32(),
               k.gradient = gradient.data(), k.count = count, k.dtype = Z3D_F32,
               k.gradient_dtype = Z3D_F32, k.place.local = count, k.place.global = count,
               k.place.inner = 1, k.constants.beta1 = 0.99f, k.constants.beta2 = 0.999f,
               k.constants.epsilon = 1e-8f, k.constants.lr_scale = 1, k.state = &state);
    }
    double m = 0, v = 0, p = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        std::memcpy(&bits, moments.f32() + i, 4);
        const double sign = i % 2 ? 1 : -1;
        m += sign * z3d_bf16_to_float((uint16_t)bits) / count;
        v += z3d_bf16_to_float((uint16_t)(bits >> 16)) / (double)count;
        p += sign * master[i] / count;
    }
    EXPECT_NEAR(m, 0.7 * (1 - std::pow(0.99, steps)), 1e-3);
    EXPECT_NEAR(v, 0.49 * (1 - std::pow(0.999, steps)), 1e-3);
    EXPECT_NEAR(p, -6e-3 * steps, 2e-2) << "each step is one rate";
}

// Its paper's recurrence: sign(0) is 0, so a parameter without gradient only decays.
TEST(Lion, FollowsTheRecurrence) {
    const double rate = 6e-3, factor = 0.25, decay = 0.1, b1 = 0.9, b2 = 0.99;
    for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16, Z3D_F16})
        on_every_device([&](Device &device, Bytes &bytes) {
            const int64_t count = 1500, decayed = 1100;
            Array master(Z3D_F32, count), momentum(Z3D_F32, count, 2), parameter(dtype, count, 5);
            master.random(1);
            std::vector<double> p((size_t)count), m((size_t)count);
            for (int64_t i = 0; i < count; i++) momentum.set(i, 0), p[(size_t)i] = master[i];
            for (int step = 1; step <= 20; step++) {
                z3d_step_state state = state_of(step);
                state.skip = step == 3 ? 1.0f : 0.0f;
                Array gradient(Z3D_BF16, count);
                gradient.random(10u + (uint32_t)step);
                for (int64_t i = 0; i < count; i += 5) gradient.set(i, 0);
                LAUNCH(device, lion, k.master = master.f32(), k.momentum = momentum.f32(),
                       k.gradient = gradient.data(), k.parameter = parameter.data(),
                       k.count = count, k.decayed = decayed, k.dtype = dtype,
                       k.gradient_dtype = Z3D_BF16, k.constants.beta1 = 0.9f,
                       k.constants.beta2 = 0.99f, k.constants.weight_decay = 0.1f,
                       k.constants.lr_scale = 1, k.state = &state);
                for (size_t i = 0; i < (size_t)count; i++) {
                    if (state.skip == 0.0f) {
                        double g = gradient[(int64_t)i] * factor, c = b1 * m[i] + (1 - b1) * g;
                        ASSERT_TRUE(c == 0 || std::fabs(c) > 1e-8) << "its sign is not sure";
                        p[i] *= (int64_t)i < decayed ? 1 - rate * decay : 1;
                        p[i] -= rate * (c > 0 ? 1 : c < 0 ? -1 : 0);
                        m[i] = b2 * m[i] + (1 - b2) * g;
                    }
                    ASSERT_NEAR(momentum[(int64_t)i], m[i], 1e-6) << step;
                    ASSERT_NEAR(master[(int64_t)i], p[i], 1e-6 * step) << step;
                    ASSERT_EQ(parameter[(int64_t)i], round_to(dtype, master[(int64_t)i]));
                }
            }
            for (Array *a : {&master, &momentum, &parameter}) a->append_to(bytes);
        });
}

// A launch whose first elements decay is two launches, one with decay and one without.
TEST(AdamW, DecaysTheFirst) {
    const z3d_step_state state = state_of(2);
    const int64_t count = 9001;
    on_every_device([&](Device &device, Bytes &) {
        for (int64_t decayed : {-5, 0, 1, 1023, 1024, 5000, 9001, 9002}) {
            Array gradient(Z3D_BF16, count);
            gradient.random(1);
            Bytes bytes[2];
            for (bool apart : {false, true}) {
                Array master(Z3D_F32, count), momentum(Z3D_F32, count), variance(Z3D_F32, count);
                Array parameter(Z3D_BF16, count);
                master.random(2);
                momentum.random(3, 0.1);
                variance.random(4, 0.01, 0.1);
                const int64_t border = std::min(std::max<int64_t>(decayed, 0), count);
                auto step = [&](int64_t first, int64_t end, int64_t decays, float decay) {
                    LAUNCH(device, adamw, k.master = master.f32() + first,
                           k.momentum = momentum.f32() + first, k.variance = variance.f32() + first,
                           k.gradient = (const uint16_t *)gradient.data() + first,
                           k.parameter = (uint16_t *)parameter.data() + first,
                           k.count = end - first, k.decayed = decays, k.dtype = Z3D_BF16,
                           k.gradient_dtype = Z3D_BF16, k.constants.beta1 = 0.9f,
                           k.constants.beta2 = 0.95f, k.constants.epsilon = 1e-3f,
                           k.constants.weight_decay = decay, k.constants.lr_scale = 1,
                           k.state = &state);
                };
                if (apart) {
                    step(0, border, border, 0.1f);
                    step(border, count, count, 0.0f);
                } else {
                    step(0, count, decayed, 0.1f);
                }
                for (Array *a : {&master, &momentum, &variance, &parameter})
                    a->append_to(bytes[apart]);
            }
            EXPECT_TRUE(bytes[0] == bytes[1]) << decayed;
        }
    });
}

TEST(AdamW, SkipLeavesEverything) {
    z3d_step_state state = state_of(1);
    state.skip = 1;
    on_every_device([&](Device &device, Bytes &) {
        Array gradient(Z3D_F32, 33), master(Z3D_F32, 33), momentum(Z3D_F32, 33),
            variance(Z3D_F32, 33), parameter(Z3D_F16, 33);
        Bytes before, after;
        for (Array *a : {&master, &momentum, &variance, &parameter}) {
            a->random(5);
            a->append_to(before);
        }
        launch(device, master, momentum, variance, gradient, &parameter, &state, 0, 33);
        for (Array *a : {&master, &momentum, &variance, &parameter}) a->append_to(after);
        EXPECT_TRUE(before == after);
    });
}

// fp32 runs keep no separate master: the parameter is the master, or there is none to write.
TEST(AdamW, MasterIsTheParameter) {
    const z3d_step_state state = state_of(1);
    on_every_device([&](Device &device, Bytes &) {
        Array gradient(Z3D_F32, 100);
        gradient.random(1);
        std::vector<Bytes> results;
        for (int form = 0; form < 2; form++) {
            Array master(Z3D_F32, 100), momentum(Z3D_F32, 100), variance(Z3D_F32, 100);
            master.random(2);
            momentum.random(3);
            variance.random(4, 0.01, 1.0);
            launch(device, master, momentum, variance, gradient, form ? &master : nullptr, &state,
                   0, 100);
            Bytes bytes;
            master.append_to(bytes);
            results.push_back(bytes);
        }
        EXPECT_TRUE(results[0] == results[1]);
    });
}

TEST(Control, BeginsWithWhatThisRankHas) {
    z3d_step_state state = state_of(1);
    state.loss_sum = 7.25;
    state.valid_targets = 3;
    state.stop_requested = 1;
    on_every_device([&](Device &device, Bytes &) {
        for (bool counts : {true, false}) {
            std::vector<double> control(6, NAN);
            LAUNCH(device, control_begin, k.state = &state, k.control = control.data(), k.count = 6,
                   k.counts = counts);
            const std::vector<double> want = {counts ? 7.25 : 0, counts ? 3.0 : 0, 1, 0, 0, 0};
            EXPECT_EQ(control, want);
        }
    });
}

// As the host computed it before the device did: the same bits.
TEST(Control, EndsWithClipFactorAndSkip) {
    on_every_device([&](Device &device, Bytes &) {
        for (double clipping : {0.0, 0.3, 1e9})
            for (double bad : {0.0, (double)INFINITY, (double)NAN}) {
                z3d_step_state state = state_of(1);
                state.loss_scale = 48;
                state.skip = 0.5f;
                std::vector<double> control = {5, 6, 1, 0, 0.1 + bad, 1e16, 1.7};
                const double squares = control[4] + control[5] + control[6];
                const double norm = std::sqrt(squares) / 48;
                double factor = clipping > 0 ? clipping / (norm + 1e-6) : 1;
                factor = (factor < 1 ? factor : 1) / 48;
                LAUNCH(device, control_end, k.control = control.data(), k.state = &state,
                       k.count = 7, k.clipping = clipping);
                EXPECT_EQ(state.gradient_factor, (float)factor) << clipping << ", " << bad;
                EXPECT_EQ(state.skip, std::isfinite(squares) ? 0.0f : 1.0f);
                EXPECT_EQ(control[3], (double)state.skip);
                EXPECT_EQ(control[2], 1);
            }
    });
}

TEST(SumSquares, AgainstLongDouble) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype dtype : float_types())
            for (int64_t count : {0, 1, 3, 15, 17, 63, 65, 1000, 8193, 100003}) {
                Array x(dtype, count, 3);
                x.random(9);
                double out = 2.5;
                LAUNCH(device, sum_squares, k.x = x.data(), k.count = count, k.dtype = dtype,
                       k.out = &out);
                long double want = 2.5L;
                for (int64_t i = 0; i < count; i++) want += (long double)x[i] * (long double)x[i];
                ASSERT_NEAR(out, (double)want, 1e-12 * (double)want);
                bytes.insert(bytes.end(), (unsigned char *)&out, (unsigned char *)(&out + 1));
            }
    });
}

// Overflow is found by this kernel: finite inputs, however large, must not look like one, and a
// single infinity or NaN anywhere must.
TEST(SumSquares, NotFiniteExactlyWithInfinityOrNaN) {
    on_every_device([](Device &device, Bytes &) {
        const int64_t count = 8200;
        Array x(Z3D_F32, count);
        for (int64_t i = 0; i < count; i++) x.set(i, (double)std::numeric_limits<float>::max());
        double out = 0;
        LAUNCH(device, sum_squares, k.x = x.data(), k.count = count, k.dtype = Z3D_F32,
               k.out = &out);
        EXPECT_TRUE(std::isfinite(out));
        for (z3d_dtype dtype : float_types())
            for (int64_t at : {(int64_t)0, (int64_t)17, (int64_t)8191, count - 1})
                for (double bad : {(double)INFINITY, -(double)INFINITY, (double)NAN}) {
                    Array y(dtype, count);
                    y.random(1);
                    y.set(at, bad);
                    out = 0;
                    LAUNCH(device, sum_squares, k.x = y.data(), k.count = count, k.dtype = dtype,
                           k.out = &out);
                    EXPECT_FALSE(std::isfinite(out)) << bad << " at " << at;
                }
    });
}

TEST(SumSquares, DoesNotDependOnAlignment) {
    on_every_device([](Device &device, Bytes &) {
        double first = 0;
        for (int64_t misalign = 0; misalign < 16; misalign++) {
            Array x(Z3D_F32, 5003, misalign);
            x.random(3);
            double out = 0;
            LAUNCH(device, sum_squares, k.x = x.data(), k.count = 5003, k.dtype = Z3D_F32,
                   k.out = &out);
            if (misalign == 0) first = out;
            ASSERT_EQ(out, first);
        }
    });
}

// The same values however the tensor is split over ranks and filled in pieces.
TEST(InitNormal, ByGlobalIndex) {
    on_every_device([](Device &device, Bytes &bytes) {
        const int64_t outer = 3, global = 8, inner = 67;
        const uint64_t key = z3d_key(5, "some.weight");
        for (int64_t parts : {1, 2, 4})
            for (int64_t piece : {(int64_t)1000000, (int64_t)1, (int64_t)50})
                for (int64_t part = 0; part < parts; part++) {
                    const int64_t local = global / parts, count = outer * local * inner;
                    Array x(Z3D_F32, count);
                    for (int64_t first = 0; first < count; first += piece)
                        LAUNCH(device, init_normal, k.x = x.f32() + first,
                               k.count = std::min(piece, count - first),
                               k.place = (z3d_parameter_place{key, first, local, global, inner,
                                                              part * local}),
                               k.standard_deviation = 0.02f);
                    for (int64_t i = 0; i < count; i++) {
                        int64_t o = i / (local * inner), j = i / inner % local, c = i % inner;
                        int64_t index = (o * global + part * local + j) * inner + c;
                        ASSERT_EQ((float)x[i], z3d_philox_normal(key, (uint64_t)index) * 0.02f);
                    }
                    x.append_to(bytes);
                }
    });
}

TEST(InitNormal, HasTheRightMoments) {
    Device device(isas().back(), 2);
    const int64_t count = 200000;
    Array x(Z3D_F32, count);
    LAUNCH(device, init_normal, k.x = x.f32(), k.count = count,
           k.place = (z3d_parameter_place{77, 0, count, count, 1, 0}), k.standard_deviation = 0.5f);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) sum += x[i], squares += x[i] * x[i];
    EXPECT_NEAR(sum / (double)count, 0.0, 0.005);
    EXPECT_NEAR(std::sqrt(squares / (double)count), 0.5, 0.005);
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
