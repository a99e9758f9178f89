// fill, cast, accumulate and GELU against scalar references.
#include "tests/device/kernels_harness.h"

namespace {

const int64_t SIZES[] = {1, 3, 17, 63, 65, 1000, 20011};

// 0.5 (1 + tanh(u)) = 1 / (1 + e^-2u), which does not cancel for negative x.
double gelu(double x) {
    return x / (1 + std::exp(-2 * std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

double gelu_slope(double x) {
    double u = std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x), t = std::tanh(u);
    return 0.5 * (1 + t) +
           0.5 * x * (1 - t * t) * std::sqrt(2.0 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

TEST(Fill, EveryTypeAndSize) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype dtype : float_types())
            for (int64_t count : SIZES)
                for (double value : {0.0, -0.0, 1.5, -3.14159, 1e6, (double)INFINITY}) {
                    Array x(dtype, count);
                    LAUNCH(device, fill, k.x = x.data(), k.count = count, k.dtype = dtype,
                           k.value = (float)value);
                    for (int64_t i = 0; i < count; i++) {
                        ASSERT_EQ(x[i], round_to(dtype, value));
                        ASSERT_EQ(std::signbit(x[i]), std::signbit(value));
                    }
                    x.append_to(bytes);
                }
    });
}

TEST(Fill, OtherTypes) {
    on_every_device([](Device &device, Bytes &) {
        double f64[5] = {9, 9, 9, 9, 9};
        int32_t i32[5] = {9, 9, 9, 9, 9};
        uint8_t u8[5] = {9, 9, 9, 9, 9};
        LAUNCH(device, fill, k.x = f64, k.count = 4, k.dtype = Z3D_F64, k.value = -2.5f);
        LAUNCH(device, fill, k.x = i32, k.count = 4, k.dtype = Z3D_I32, k.value = -7.0f);
        LAUNCH(device, fill, k.x = u8, k.count = 4, k.dtype = Z3D_U8, k.value = 3.0f);
        for (int i = 0; i < 4; i++) {
            EXPECT_EQ(f64[i], -2.5);
            EXPECT_EQ(i32[i], -7);
            EXPECT_EQ(u8[i], 3);
        }
        EXPECT_EQ(f64[4], 9);
        EXPECT_EQ(i32[4], 9);
        EXPECT_EQ(u8[4], 9);
    });
}

// All 65536 values of both 16-bit types. x86 turns fp16's signalling NaN into quiet ones.
TEST(Cast, WidensEveryBitPattern) {
    on_every_device([](Device &device, Bytes &) {
        for (z3d_dtype dtype : {Z3D_BF16, Z3D_F16}) {
            Array from(dtype, 65536), to(Z3D_F32, 65536);
            for (int i = 0; i < 65536; i++) ((uint16_t *)from.data())[i] = (uint16_t)i;
            LAUNCH(device, cast, k.destination = to.data(), k.source = from.data(), k.count = 65536,
                   k.destination_dtype = Z3D_F32, k.source_dtype = dtype);
            for (int i = 0; i < 65536; i++) {
                float want = dtype == Z3D_BF16 ? z3d_bf16_to_float((uint16_t)i)
                                               : z3d_f16_to_float((uint16_t)i);
                if (dtype == Z3D_F16 && std::isnan(want))
                    ASSERT_TRUE(std::isnan(to[i]));
                else
                    ASSERT_EQ(std::memcmp(&want, to.f32() + i, 4), 0)
                        << z3d_dtype_name(dtype) << " 0x" << std::hex << i;
            }
        }
    });
}

// Every value half-way between two neighbours of the 16-bit type and the floats beside it, and a
// sample of all floats.
TEST(Cast, NarrowsToNearestEven) {
    std::vector<uint32_t> patterns;
    for (z3d_dtype dtype : {Z3D_BF16, Z3D_F16})
        for (uint32_t i = 0; i < 65536; i++) {
            float value =
                dtype == Z3D_BF16 ? z3d_bf16_to_float((uint16_t)i) : z3d_f16_to_float((uint16_t)i);
            float next = dtype == Z3D_BF16 ? z3d_bf16_to_float((uint16_t)(i + 1))
                                           : z3d_f16_to_float((uint16_t)(i + 1));
            float middle = (float)(((double)value + (double)next) / 2);
            for (float f : {value, middle}) {
                uint32_t bits;
                std::memcpy(&bits, &f, 4);
                for (uint32_t delta : {0u, 1u, ~0u}) patterns.push_back(bits + delta);
            }
        }
    for (uint64_t bits = 0; bits < (1ull << 32); bits += 65521) patterns.push_back((uint32_t)bits);
    const int64_t count = (int64_t)patterns.size();
    on_every_device([&](Device &device, Bytes &) {
        for (z3d_dtype dtype : {Z3D_BF16, Z3D_F16}) {
            Array from(Z3D_F32, count), to(dtype, count);
            std::memcpy(from.data(), patterns.data(), patterns.size() * 4);
            LAUNCH(device, cast, k.destination = to.data(), k.source = from.data(), k.count = count,
                   k.destination_dtype = dtype, k.source_dtype = Z3D_F32);
            for (int64_t i = 0; i < count; i++) {
                float value = from.f32()[i];
                uint16_t want =
                    dtype == Z3D_BF16 ? z3d_float_to_bf16(value) : z3d_float_to_f16(value);
                ASSERT_EQ(((uint16_t *)to.data())[i], want)
                    << z3d_dtype_name(dtype) << " of 0x" << std::hex << patterns[(size_t)i];
            }
        }
    });
}

TEST(Cast, EveryPairAndSize) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype source : float_types())
            for (z3d_dtype destination : float_types())
                for (int64_t count : SIZES) {
                    Array from(source, count), to(destination, count, 3);
                    from.random(7);
                    LAUNCH(device, cast, k.destination = to.data(), k.source = from.data(),
                           k.count = count, k.destination_dtype = destination,
                           k.source_dtype = source);
                    for (int64_t i = 0; i < count; i++)
                        ASSERT_EQ(to[i], round_to(destination, from[i]));
                    to.append_to(bytes);
                }
    });
}

TEST(Cast, OtherTypesCopyOrAreRefused) {
    Device device(isas()[0], 1);
    int32_t from[3] = {1, -2, 3}, to[3] = {0, 0, 0};
    LAUNCH(device, cast, k.destination = to, k.source = from, k.count = 3,
           k.destination_dtype = Z3D_I32, k.source_dtype = Z3D_I32);
    EXPECT_EQ(to[1], -2);
    z3d_kernel kernel;
    std::memset(&kernel, 0, sizeof kernel);
    kernel.kind = Z3D_KERNEL_cast;
    kernel.as.cast = z3d_cast{to, from, 3, Z3D_F32, Z3D_I32, 0, 0, 0};
    EXPECT_EQ(z3d_launch(device, &kernel), Z3D_ERR_INTERNAL);
}

// Rows from one matrix to another; what lies between them stays.
TEST(Cast, RowsOfMatrices) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype type : float_types())
            for (int64_t count : {1, 5, 3000})
                for (int64_t rows : {2, 7}) {
                    const int64_t wide = count + 3, wider = count + 8;
                    Array from(type, rows * wide), to(type, rows * wider, 3);
                    from.random(7);
                    to.random(8);
                    std::vector<double> want((size_t)to.count());
                    for (int64_t i = 0; i < rows * wider; i++)
                        want[(size_t)i] =
                            i % wider < count ? from[i / wider * wide + i % wider] : to[i];
                    LAUNCH(device, cast, k.destination = to.data(), k.source = from.data(),
                           k.count = count, k.destination_dtype = type, k.source_dtype = type,
                           k.rows = rows, k.destination_stride = wider, k.source_stride = wide);
                    for (int64_t i = 0; i < rows * wider; i++) ASSERT_EQ(to[i], want[(size_t)i]);
                    to.append_to(bytes);
                }
    });
}

TEST(Cast, OfRowsNeedsEqualTypes) {
    Device device(isas()[0], 1);
    float from[4] = {}, to[4] = {};
    z3d_kernel kernel;
    std::memset(&kernel, 0, sizeof kernel);
    kernel.kind = Z3D_KERNEL_cast;
    kernel.as.cast = z3d_cast{to, from, 2, Z3D_BF16, Z3D_F32, 2, 2, 2};
    EXPECT_EQ(z3d_launch(device, &kernel), Z3D_ERR_INTERNAL);
}

TEST(Accumulate, EveryPairAndSize) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype x_type : float_types())
            for (z3d_dtype y_type : float_types())
                for (int64_t count : SIZES) {
                    Array x(x_type, count, 5), y(y_type, count);
                    x.random(1);
                    y.random(2);
                    Array old = y.copy();
                    LAUNCH(device, accumulate, k.y = y.data(), k.x = x.data(), k.count = count,
                           k.y_dtype = y_type, k.x_dtype = x_type);
                    for (int64_t i = 0; i < count; i++)
                        ASSERT_EQ(y[i], round_to(y_type, (double)((float)old[i] + (float)x[i])));
                    y.append_to(bytes);
                }
    });
}

TEST(Scale, EveryTypeAndSize) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype type : float_types())
            for (int64_t count : SIZES) {
                Array x(type, count, 5);
                x.random(1);
                Array old = x.copy();
                LAUNCH(device, scale, k.x = x.data(), k.count = count, k.dtype = type,
                       k.factor = 0.3F);
                for (int64_t i = 0; i < count; i++)
                    ASSERT_EQ(x[i], round_to(type, (double)(0.3F * (float)old[i])));
                x.append_to(bytes);
            }
    });
}

TEST(Gelu, ForwardAndBackward) {
    on_every_device([](Device &device, Bytes &bytes) {
        for (z3d_dtype dtype : float_types())
            for (int64_t count : SIZES) {
                Array x(dtype, count), y(dtype, count, 2), dy(dtype, count), dx(dtype, count, 3);
                x.random(3, 3.0);
                dy.random(4);
                LAUNCH(device, gelu_forward, k.x = x.data(), k.y = y.data(), k.count = count,
                       k.dtype = dtype);
                LAUNCH(device, gelu_backward, k.x = x.data(), k.dy = dy.data(), k.dx = dx.data(),
                       k.count = count, k.dtype = dtype);
                for (int64_t i = 0; i < count; i++) {
                    expect_near(y, i, gelu(x[i]), std::fabs(gelu(x[i])), 1e-5);
                    expect_near(y, i, gelu(x[i]), std::fabs(x[i]), 3e-7);
                    expect_near(dx, i, dy[i] * gelu_slope(x[i]), std::fabs(dy[i]), 1e-6);
                }
                y.append_to(bytes);
                dx.append_to(bytes);
                Array in_place = dy.copy();
                LAUNCH(device, gelu_backward, k.x = x.data(), k.dy = in_place.data(),
                       k.dx = in_place.data(), k.count = count, k.dtype = dtype);
                for (int64_t i = 0; i < count; i++) ASSERT_EQ(in_place[i], dx[i]);
            }
    });
}

TEST(Gelu, SlopeIsTheDerivative) {
    for (double x = -9; x < 9; x += 0.37) {
        double u = std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
        EXPECT_NEAR(gelu(x), 0.5 * x * (1 + std::tanh(u)), 1e-14);
        EXPECT_NEAR(gelu_slope(x), (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5, 1e-8);
    }
}

// Large inputs give limits, not NaN; infinities and NaN are not lost.
TEST(Gelu, ExtremeInputs) {
    on_every_device([](Device &device, Bytes &) {
        const float inf = INFINITY, nan = NAN;
        const float values[] = {0.0f,  -0.0f, 1e30f,  -1e30f, 3e38f, -3e38f, 65504.0f,
                                -20.f, 20.0f, -10.0f, 10.0f,  inf,   -inf,   nan};
        const int64_t count = sizeof values / sizeof *values;
        Array x(Z3D_F32, count), y(Z3D_F32, count), dy(Z3D_F32, count), dx(Z3D_F32, count);
        for (int64_t i = 0; i < count; i++) x.set(i, (double)values[i]);
        for (int64_t i = 0; i < count; i++) dy.set(i, 1.0);
        LAUNCH(device, gelu_forward, k.x = x.data(), k.y = y.data(), k.count = count,
               k.dtype = Z3D_F32);
        LAUNCH(device, gelu_backward, k.x = x.data(), k.dy = dy.data(), k.dx = dx.data(),
               k.count = count, k.dtype = Z3D_F32);
        for (int64_t i = 0; i < count; i++) {
            double v = x[i];
            if (!std::isfinite(v)) {
                EXPECT_FALSE(std::isfinite(y[i])) << v;
                EXPECT_EQ(std::isnan(dx[i]), std::isnan(v)) << v;
            } else {
                EXPECT_NEAR(y[i], v > 0 ? v : 0.0, 1e-6 * std::fabs(v)) << v;
                EXPECT_NEAR(dx[i], v > 9 ? 1.0 : v < -9 ? 0.0 : 0.5, 1e-6) << v;
            }
        }
        dy.set(3, NAN);
        dy.set(4, -INFINITY);
        LAUNCH(device, gelu_backward, k.x = x.data(), k.dy = dy.data(), k.dx = dx.data(),
               k.count = count, k.dtype = Z3D_F32);
        EXPECT_TRUE(std::isnan(dx[3]));
        EXPECT_EQ(dx[4], -INFINITY);
    });
}

// The memory planner puts the same tensor elsewhere in another program: bits must not change.
TEST(Gelu, DoesNotDependOnAlignment) {
    on_every_device([](Device &device, Bytes &) {
        for (z3d_dtype dtype : float_types()) {
            const int64_t count = 515;
            Array x0(dtype, count, 0), y0(dtype, count, 0);
            x0.random(3, 2.0);
            LAUNCH(device, gelu_forward, k.x = x0.data(), k.y = y0.data(), k.count = count,
                   k.dtype = dtype);
            for (int64_t misalign = 1; misalign < 16; misalign += 2) {
                Array x(dtype, count, misalign), y(dtype, count, 16 - misalign);
                for (int64_t i = 0; i < count; i++) x.set(i, x0[i]);
                LAUNCH(device, gelu_forward, k.x = x.data(), k.y = y.data(), k.count = count,
                       k.dtype = dtype);
                for (int64_t i = 0; i < count; i++) ASSERT_EQ(y[i], y0[i]);
            }
        }
    });
}

// Nothing to do, nothing touched.
TEST(Empty, NoElements) {
    on_every_device([](Device &device, Bytes &) {
        z3d_step_state state;
        std::memset(&state, 0, sizeof state);
        Array x(Z3D_BF16, 0), f(Z3D_F32, 0);
        double out = 0;
        LAUNCH(device, fill, k.x = x.data(), k.dtype = Z3D_BF16, k.value = 1.0f);
        LAUNCH(device, cast, k.destination = f.data(), k.source = x.data(),
               k.destination_dtype = Z3D_F32, k.source_dtype = Z3D_BF16);
        LAUNCH(device, sum_squares, k.x = f.data(), k.out = &out);
        LAUNCH(device, adamw, k.master = f.f32(), k.momentum = f.f32(), k.variance = f.f32(),
               k.gradient = x.data(), k.gradient_dtype = Z3D_BF16, k.constants.beta1 = 0.9f,
               k.constants.beta2 = 0.9f, k.constants.lr_scale = 1, k.state = &state);
        LAUNCH(device, embedding_backward, k.dy = x.data(), k.table_gradient = f.data(), k.cols = 4,
               k.dtype = Z3D_BF16, k.gradient_dtype = Z3D_F32);
        LAUNCH(device, cross_entropy_loss, k.state = &state);
        EXPECT_EQ(out, 0);
        EXPECT_EQ(state.loss_sum, 0);
        // No rows: column sums are 0.
        Array gradient(Z3D_F32, 5);
        LAUNCH(device, bias_backward, k.dy = x.data(), k.gradient = gradient.data(), k.cols = 5,
               k.dtype = Z3D_BF16, k.gradient_dtype = Z3D_F32);
        for (int i = 0; i < 5; i++) EXPECT_EQ(gradient[i], 0);
    });
}

TEST(Poll, LongKernelsPollOften) {
    for (const std::string &isa : isas())
        for (int threads : {1, 2}) {
            Device device(isa, threads);
            int polls = 0;
            z3d_device_set_poll(
                device, [](void *context) { ++*(int *)context; }, &polls);
            const int64_t count = 4 << 20;
            std::vector<float> x((size_t)count, 0.5f), y((size_t)count);
            LAUNCH(device, gelu_forward, k.x = x.data(), k.y = y.data(), k.count = count,
                   k.dtype = Z3D_F32);
            EXPECT_GE(polls, 4) << isa << " " << threads;
            EXPECT_LE(polls, 1000);
        }
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
