#include "tests/device/kernels_harness.h"

Device::Device(const std::string &isa_name, int threads) : isa(isa_name) {
    z3d_device_config config;
    std::memset(&config, 0, sizeof config);
    config.backend = "cpu";
    config.threads = threads;
    config.isa = isa.c_str();
    if (z3d_device_create(&config, &self) != Z3D_OK) self = nullptr;
}

Device::~Device() {
    z3d_device_destroy(self);
}

Device::operator z3d_device *() const {
    return self;
}

z3d_status launch_with_scratch(z3d_device *device, const z3d_kernel &kernel) {
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

std::vector<std::string> isas() {
    static const std::vector<std::string> found = [] {
        std::vector<std::string> names;
        for (const char *name : {"generic", "avx2", "avx512"})
            if (Device(name, 1).self) names.push_back(name);
        return names;
    }();
    EXPECT_FALSE(found.empty());
    return found;
}

const std::vector<z3d_dtype> &float_types() {
    static const std::vector<z3d_dtype> types = {Z3D_F32, Z3D_BF16, Z3D_F16};
    return types;
}

double normal_number(size_t i) {
    static const std::vector<double> numbers = [] {
        std::mt19937 engine(1);
        std::normal_distribution<double> normal;
        std::vector<double> made(16411);
        for (double &x : made) x = normal(engine);
        return made;
    }();
    return numbers[i % numbers.size()];
}

Array::Array(z3d_dtype dtype, int64_t count, int64_t misalign)
    : dtype_(dtype), count_(count), size_((int64_t)z3d_dtype_size(dtype)),
      bytes_((size_t)(count * size_) + 2 * GUARD + 64, 0xff) {
    start_ =
        GUARD + (64 - ((uintptr_t)bytes_.data() + GUARD) % 64) % 64 + (size_t)(misalign * size_);
}

Array::~Array() {
    for (size_t i = 0; i < bytes_.size(); i++)
        if (i < start_ || i >= start_ + (size_t)(count_ * size_)) {
            EXPECT_EQ(bytes_[i], 0xff) << "written outside at " << (int64_t)(i - start_);
            if (bytes_[i] != 0xff) break;
        }
}

Array &Array::random(uint32_t seed, double scale, double shift) {
    for (int64_t i = 0; i < count_; i++)
        set(i, shift + scale * normal_number(seed * size_t{4801} + (size_t)i));
    return *this;
}

Array Array::copy() const {
    Array other(dtype_, count_);
    std::memcpy(other.data(), data(), (size_t)(count_ * size_));
    return other;
}

void Array::append_to(std::vector<unsigned char> &bytes) const {
    const unsigned char *first = (const unsigned char *)data();
    bytes.insert(bytes.end(), first, first + count_ * size_);
}

void expect_near(const Array &got, int64_t i, double want, double scale, double relative) {
    double step = got.dtype() == Z3D_BF16 ? 0x1p-8 : got.dtype() == Z3D_F16 ? 0x1p-11 : 0x1p-24;
    double floor = got.dtype() == Z3D_F16 ? 0x1p-25 : 0.0;
    double bound = step * std::fabs(want) + floor + relative * scale * (1 + step) + 1e-36;
    if (std::fabs(got[i] - want) <= bound) return; // an assertion for each element takes long
    ASSERT_LE(std::fabs(got[i] - want), bound)
        << "element " << i << " of " << got.count() << ", " << z3d_dtype_name(got.dtype())
        << ": got " << got[i] << ", want " << want;
}

void on_every_device(const std::function<void(Device &, Bytes &)> &run) {
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
