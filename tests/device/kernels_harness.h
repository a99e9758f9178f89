// For the kernel tests: devices of every instruction set this CPU has, arrays of every type with
// guards around them, and comparison with references in double precision.
#ifndef ZERO3D_TESTS_DEVICE_KERNELS_HARNESS_H
#define ZERO3D_TESTS_DEVICE_KERNELS_HARNESS_H

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

extern "C" {
#include "src/base/base.h"
#include "src/device/device.h"
}

// Z3D_LAUNCH's compound literal is C only.
#define LAUNCH(device, name, ...)                                                                  \
    [&] {                                                                                          \
        z3d_kernel kernel;                                                                         \
        std::memset(&kernel, 0, sizeof kernel);                                                    \
        kernel.kind = Z3D_KERNEL_##name;                                                           \
        z3d_##name &k = kernel.as.name;                                                            \
        __VA_ARGS__;                                                                               \
        z3d_status status = launch_with_scratch((device), kernel);                                 \
        EXPECT_EQ(status, Z3D_OK) << z3d_error_message();                                          \
    }()

struct Device {
    z3d_device *self = nullptr;
    std::string isa;
    bool first = true; // of on_every_device's: results of the others are compared with its
    Device(const std::string &isa_name, int threads) : isa(isa_name) {
        z3d_device_config config;
        std::memset(&config, 0, sizeof config);
        config.backend = "cpu";
        config.threads = threads;
        config.isa = isa.c_str();
        if (z3d_device_create(&config, &self) != Z3D_OK) self = nullptr;
    }
    Device(const Device &) = delete;
    ~Device() {
        z3d_device_destroy(self);
    }
    operator z3d_device *() const {
        return self;
    }
};

// Gives the kernel exactly the scratch that z3d_kernel_scratch promises, full of NaN: a kernel that
// wants more, or trusts what it finds there, fails.
inline z3d_status launch_with_scratch(z3d_device *device, const z3d_kernel &kernel) {
    int64_t bytes = z3d_kernel_scratch(&kernel, z3d_device_threads(device));
    void *block = nullptr;
    std::vector<unsigned char> storage((size_t)bytes + 64, 0xff);
    block = storage.data() + (64 - (uintptr_t)storage.data() % 64) % 64;
    z3d_device_set_scratch(device, block, bytes);
    z3d_status status = z3d_launch(device, &kernel);
    if (status == Z3D_OK) status = z3d_device_synchronize(device);
    z3d_device_set_scratch(device, nullptr, 0);
    return status;
}

inline std::vector<std::string> isas() {
    static const std::vector<std::string> found = [] {
        std::vector<std::string> names;
        for (const char *name : {"generic", "avx2", "avx512"})
            if (Device(name, 1).self) names.push_back(name);
        return names;
    }();
    EXPECT_FALSE(found.empty());
    return found;
}

inline const std::vector<z3d_dtype> &float_types() {
    static const std::vector<z3d_dtype> types = {Z3D_F32, Z3D_BF16, Z3D_F16};
    return types;
}

// The nearest value of the type, as double.
inline double round_to(z3d_dtype dtype, double value) {
    if (dtype == Z3D_BF16) return (double)z3d_bf16_to_float(z3d_float_to_bf16((float)value));
    if (dtype == Z3D_F16) return (double)z3d_f16_to_float(z3d_float_to_f16((float)value));
    return (double)(float)value;
}

// Normally distributed numbers that begin again after a prime, so that no vector, tile or row of
// kernels begins so far behind another one.
inline double normal_number(size_t i) {
    static const std::vector<double> numbers = [] {
        std::mt19937 engine(1);
        std::normal_distribution<double> normal;
        std::vector<double> made(16411);
        for (double &x : made) x = normal(engine);
        return made;
    }();
    return numbers[i % numbers.size()];
}

// An array of a float type that starts off 64-byte alignment, between guards, filled with NaN.
class Array {
  public:
    Array() = default;
    Array(z3d_dtype dtype, int64_t count, int64_t misalign = 1)
        : dtype_(dtype), count_(count), size_((int64_t)z3d_dtype_size(dtype)),
          bytes_((size_t)(count * size_) + 2 * GUARD + 64, 0xff) {
        start_ = GUARD + (64 - ((uintptr_t)bytes_.data() + GUARD) % 64) % 64 +
                 (size_t)(misalign * size_);
    }
    Array(const Array &) = delete;
    Array(Array &&) = default;
    Array &operator=(Array &&) = default;
    ~Array() {
        for (size_t i = 0; i < bytes_.size(); i++)
            if (i < start_ || i >= start_ + (size_t)(count_ * size_)) {
                EXPECT_EQ(bytes_[i], 0xff) << "written outside at " << (int64_t)(i - start_);
                if (bytes_[i] != 0xff) break;
            }
    }
    int64_t count() const {
        return count_;
    }
    z3d_dtype dtype() const {
        return dtype_;
    }
    void *data() {
        return bytes_.data() + start_;
    }
    const void *data() const {
        return bytes_.data() + start_;
    }
    float *f32() {
        return (float *)data();
    }
    double operator[](int64_t i) const {
        if (dtype_ == Z3D_F32) return (double)((const float *)data())[i];
        uint16_t bits = ((const uint16_t *)data())[i];
        return (double)(dtype_ == Z3D_BF16 ? z3d_bf16_to_float(bits) : z3d_f16_to_float(bits));
    }
    void set(int64_t i, double value) {
        if (dtype_ == Z3D_F32)
            ((float *)data())[i] = (float)value;
        else
            ((uint16_t *)data())[i] = dtype_ == Z3D_BF16 ? z3d_float_to_bf16((float)value)
                                                         : z3d_float_to_f16((float)value);
    }
    Array &random(uint32_t seed, double scale = 1.0, double shift = 0.0) {
        for (int64_t i = 0; i < count_; i++)
            set(i, shift + scale * normal_number(seed * size_t{4801} + (size_t)i));
        return *this;
    }
    Array copy() const {
        Array other(dtype_, count_);
        std::memcpy(other.data(), data(), (size_t)(count_ * size_));
        return other;
    }
    void append_to(std::vector<unsigned char> &bytes) const {
        const unsigned char *first = (const unsigned char *)data();
        bytes.insert(bytes.end(), first, first + count_ * size_);
    }

  private:
    static constexpr size_t GUARD = 256;
    z3d_dtype dtype_ = Z3D_F32;
    int64_t count_ = 0, size_ = 4;
    std::vector<unsigned char> bytes_;
    size_t start_ = 0;
};

// |got - want| within fp32 rounding errors of `scale` plus one rounding to the type.
inline void expect_near(const Array &got, int64_t i, double want, double scale, double relative) {
    double step = got.dtype() == Z3D_BF16 ? 0x1p-8 : got.dtype() == Z3D_F16 ? 0x1p-11 : 0x1p-24;
    double floor = got.dtype() == Z3D_F16 ? 0x1p-25 : 0.0;
    double bound = step * std::fabs(want) + floor + relative * scale * (1 + step) + 1e-36;
    if (std::fabs(got[i] - want) <= bound) return; // ASSERT_LE takes its time
    ASSERT_LE(std::fabs(got[i] - want), bound)
        << "element " << i << " of " << got.count() << ", " << z3d_dtype_name(got.dtype())
        << ": got " << got[i] << ", want " << want;
}

using Bytes = std::vector<unsigned char>;

// Runs a case on every instruction set with 1, 2, 3 threads, 2 with polling: `run` returns the
// bytes of all results, which must not depend on threads and polling, and checks values itself. Of
// those that it returns, the first device's are enough.
inline void on_every_device(const std::function<void(Device &, Bytes &)> &run) {
    for (const std::string &isa : isas()) {
        Bytes first;
        for (int variant = 0; variant < 4; variant++) {
            SCOPED_TRACE(isa + ", variant " + std::to_string(variant));
            Device device(isa, variant == 3 ? 2 : variant + 1);
            ASSERT_NE(device.self, nullptr) << z3d_error_message();
            device.first = variant == 0;
            int polls = 0;
            if (variant == 3)
                z3d_device_set_poll(
                    device, [](void *context) { ++*(int *)context; }, &polls);
            Bytes bytes;
            run(device, bytes);
            if (testing::Test::HasFatalFailure()) return;
            if (variant == 0)
                first = bytes;
            else
                ASSERT_TRUE(first == bytes) << "results depend on threads or polling";
        }
    }
}

#endif
