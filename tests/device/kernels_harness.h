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
    Device(const std::string &isa_name, int threads);
    Device(const Device &) = delete;
    ~Device();
    operator z3d_device *() const;
};

// Gives the kernel exactly the scratch that z3d_kernel_scratch promises, full of NaN: a kernel that
// wants more, or trusts what it finds there, fails.
z3d_status launch_with_scratch(z3d_device *device, const z3d_kernel &kernel);

std::vector<std::string> isas();

const std::vector<z3d_dtype> &float_types();

// The nearest value of the type, as double.
inline double round_to(z3d_dtype dtype, double value) {
    if (dtype == Z3D_BF16) return (double)z3d_bf16_to_float(z3d_float_to_bf16((float)value));
    if (dtype == Z3D_F16) return (double)z3d_f16_to_float(z3d_float_to_f16((float)value));
    return (double)(float)value;
}

// Normally distributed numbers that begin again after a prime, so that no vector, tile or row of
// kernels begins so far behind another one.
double normal_number(size_t i);

// An array of a float type that starts off 64-byte alignment, between guards, filled with NaN.
class Array {
  public:
    Array() = default;
    Array(z3d_dtype dtype, int64_t count, int64_t misalign = 1);
    Array(const Array &) = delete;
    Array(Array &&) = default;
    Array &operator=(Array &&) = default;
    ~Array();
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
    Array &random(uint32_t seed, double scale = 1.0, double shift = 0.0);
    Array copy() const;
    void append_to(std::vector<unsigned char> &bytes) const;

  private:
    static constexpr size_t GUARD = 256;
    z3d_dtype dtype_ = Z3D_F32;
    int64_t count_ = 0, size_ = 4;
    std::vector<unsigned char> bytes_;
    size_t start_ = 0;
};

// |got - want| within fp32 rounding errors of `scale` plus one rounding to the type.
void expect_near(const Array &got, int64_t i, double want, double scale, double relative);

using Bytes = std::vector<unsigned char>;

// Runs a case on every instruction set with 1, 2, 3 threads, 2 with polling: `run` checks values
// itself and returns the bytes of all results, which must not depend on threads and polling.
void on_every_device(const std::function<void(Device &, Bytes &)> &run);

#endif
