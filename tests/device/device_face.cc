// The device's face: creation and its errors, memory, the recording device, names.
#include <omp.h>

#include "tests/device/kernels_harness.h"

namespace {

z3d_device_config config_of(const char *backend) {
    z3d_device_config config;
    std::memset(&config, 0, sizeof config);
    config.backend = backend;
    return config;
}

// Creation must fail with this status, give no device and a message that has `text` in it.
void expect_refused(const z3d_device_config &config, z3d_status want, const char *text) {
    z3d_device *device = (z3d_device *)&config;
    EXPECT_EQ(z3d_device_create(&config, &device), want);
    EXPECT_EQ(device, nullptr);
    EXPECT_NE(std::string(z3d_error_message()).find(text), std::string::npos)
        << z3d_error_message();
}

TEST(Create, RefusesWhatIsNotThere) {
    expect_refused(config_of("cuda"), Z3D_ERR_UNSUPPORTED, "cuda");
    expect_refused(config_of(""), Z3D_ERR_UNSUPPORTED, "backend");
    expect_refused(config_of(nullptr), Z3D_ERR_UNSUPPORTED, "backend");
    z3d_device_config config = config_of("cpu");
    config.isa = "avx1024";
    expect_refused(config, Z3D_ERR_UNSUPPORTED, "avx1024");
    config = config_of("cpu");
    config.threads = -1;
    expect_refused(config, Z3D_ERR_UNSUPPORTED, "-1 threads");
    config.threads = 1000000;
    expect_refused(config, Z3D_ERR_UNSUPPORTED, "threads");
    config = config_of("cpu");
    config.gemm[Z3D_F16] = Z3D_GEMM_MATMUL;
    expect_refused(config, Z3D_ERR_UNSUPPORTED, "fp16");
    config.gemm[Z3D_F16] = (z3d_gemm_method)17;
    expect_refused(config, Z3D_ERR_UNSUPPORTED, "method");
    z3d_device_destroy(nullptr);
}

TEST(Create, SaysWhatItIs) {
    z3d_device_config config = config_of("cpu");
    config.threads = 3;
    config.isa = "generic";
    z3d_device *device = nullptr;
    ASSERT_EQ(z3d_device_create(&config, &device), Z3D_OK) << z3d_error_message();
    EXPECT_STREQ(z3d_device_backend(device), "cpu");
    EXPECT_EQ(z3d_device_threads(device), 3);
    std::string text = z3d_device_description(device);
    for (const char *part : {"cpu: ", "generic", "3 threads", "oneDNN 2."})
        EXPECT_NE(text.find(part), std::string::npos) << text;
    z3d_device_destroy(device);
    config = config_of("cpu");
    ASSERT_EQ(z3d_device_create(&config, &device), Z3D_OK) << z3d_error_message();
    EXPECT_GE(z3d_device_threads(device), 1);
    z3d_device_destroy(device);
}

TEST(Names, OfMethodsAndKernels) {
    EXPECT_STREQ(z3d_gemm_method_name(Z3D_GEMM_MATMUL), "matmul");
    EXPECT_STREQ(z3d_gemm_method_name((z3d_gemm_method)-1), "?");
    EXPECT_STREQ(z3d_kernel_name(Z3D_KERNEL_attention_backward), "attention_backward");
    EXPECT_STREQ(z3d_kernel_name(Z3D_KERNEL_COUNT), "?");
}

TEST(Launch, LeavesOpenMpAsItWas) {
    Device device(isas().back(), 2);
    omp_set_num_threads(5);
    Array x(Z3D_F32, 100);
    LAUNCH(device, fill, k.x = x.data(), k.count = 100, k.dtype = Z3D_F32, k.value = 3);
    EXPECT_EQ(omp_get_max_threads(), 5);
    EXPECT_EQ(x[99], 3);
    z3d_kernel kernel;
    std::memset(&kernel, 0, sizeof kernel);
    kernel.kind = Z3D_KERNEL_COUNT;
    EXPECT_EQ(z3d_launch(device, &kernel), Z3D_ERR_INTERNAL);
}

TEST(Memory, AlignedZeroedAndFreed) {
    Device device(isas().back(), 2);
    for (int64_t bytes : {(int64_t)0, (int64_t)1, (int64_t)4097, (int64_t)5 << 20})
        for (z3d_space space : {Z3D_SPACE_DEVICE, Z3D_SPACE_HOST}) {
            void *block = nullptr;
            ASSERT_EQ(z3d_device_alloc(device, space, bytes, &block), Z3D_OK)
                << z3d_error_message();
            ASSERT_NE(block, nullptr);
            EXPECT_EQ((uintptr_t)block % 4096, 0u);
            unsigned char *byte = (unsigned char *)block;
            for (int64_t i = 0; i < bytes; i++) ASSERT_EQ(byte[i], 0);
            if (bytes) byte[bytes - 1] = 1;
            z3d_device_free(device, space, block, bytes);
        }
    z3d_device_free(device, Z3D_SPACE_DEVICE, nullptr, 100);
}

TEST(Memory, TooMuchIsAnErrorWithoutTouchingIt) {
    Device device(isas().back(), 1);
    for (int64_t bytes : {(int64_t)1 << 50, INT64_MAX, INT64_MAX - 4096}) {
        void *block = &device;
        EXPECT_EQ(z3d_device_alloc(device, Z3D_SPACE_DEVICE, bytes, &block), Z3D_ERR_MEMORY);
        EXPECT_EQ(block, nullptr);
        EXPECT_NE(std::string(z3d_error_message()), "");
    }
    void *block;
    EXPECT_EQ(z3d_device_alloc(device, Z3D_SPACE_DEVICE, -1, &block), Z3D_ERR_INTERNAL);
    EXPECT_EQ(z3d_device_alloc(device, Z3D_SPACE_COUNT, 1, &block), Z3D_ERR_INTERNAL);
}

TEST(Memory, ReadsAndWrites) {
    Device device(isas().back(), 1);
    void *block = nullptr;
    ASSERT_EQ(z3d_device_alloc(device, Z3D_SPACE_DEVICE, 100, &block), Z3D_OK);
    char host[8] = "zero3d!", back[8] = "";
    EXPECT_EQ(z3d_device_write(device, (char *)block + 5, host, 8), Z3D_OK);
    EXPECT_EQ(z3d_device_read(device, back, (char *)block + 5, 8), Z3D_OK);
    EXPECT_STREQ(back, host);
    EXPECT_EQ(z3d_device_read(device, back, block, -1), Z3D_ERR_INTERNAL);
    EXPECT_EQ(z3d_device_write(device, block, host, -1), Z3D_ERR_INTERNAL);
    z3d_device_free(device, Z3D_SPACE_DEVICE, block, 100);
}

// Large copies take another way; from and to any address, by whole lines and not.
TEST(Memory, CopiesMuch) {
    Device device(isas().back(), 1);
    const int64_t most = (4 << 20) + 200;
    void *block = nullptr;
    ASSERT_EQ(z3d_device_alloc(device, Z3D_SPACE_DEVICE, most + 64, &block), Z3D_OK);
    std::vector<char> host((size_t)most + 64), back(host.size());
    for (size_t i = 0; i < host.size(); i++) host[i] = (char)(i * 7 + i / 251);
    for (int64_t bytes : {most, most - 137, (int64_t)4 << 20})
        for (int64_t shift : {0, 1, 16, 37}) {
            char *there = (char *)block + shift;
            std::fill(back.begin(), back.end(), 'x');
            ASSERT_EQ(z3d_device_write(device, there, host.data() + 3, bytes), Z3D_OK);
            ASSERT_EQ(z3d_device_read(device, back.data() + shift, there, bytes), Z3D_OK);
            EXPECT_EQ(memcmp(back.data() + shift, host.data() + 3, (size_t)bytes), 0);
            EXPECT_EQ(back[(size_t)(shift + bytes)], 'x');
            if (shift) {
                EXPECT_EQ(back[(size_t)shift - 1], 'x');
            }
        }
    z3d_device_free(device, Z3D_SPACE_DEVICE, block, most + 64);
}

struct Seen {
    std::vector<z3d_kernel> kernels;
    z3d_status answer = Z3D_OK;
};

z3d_status observe(void *context, const z3d_kernel *kernel) {
    Seen *seen = (Seen *)context;
    seen->kernels.push_back(*kernel);
    return seen->answer;
}

TEST(Record, ShowsEveryLaunchAndTouchesNothing) {
    z3d_device_config config = config_of("record");
    z3d_device *device = nullptr;
    ASSERT_EQ(z3d_device_create(&config, &device), Z3D_OK) << z3d_error_message();
    EXPECT_STREQ(z3d_device_backend(device), "record");
    EXPECT_EQ(z3d_device_threads(device), 1);

    // More memory than any machine has; blocks lie apart, and no extent of one reaches the next.
    const int64_t huge = (int64_t)1 << 50;
    void *x = nullptr, *y = nullptr, *nothing = nullptr;
    ASSERT_EQ(z3d_device_alloc(device, Z3D_SPACE_DEVICE, huge, &x), Z3D_OK);
    ASSERT_EQ(z3d_device_alloc(device, Z3D_SPACE_DEVICE, 0, &nothing), Z3D_OK);
    ASSERT_EQ(z3d_device_alloc(device, Z3D_SPACE_HOST, 100, &y), Z3D_OK);
    EXPECT_NE(x, nullptr);
    EXPECT_NE(nothing, nullptr);
    EXPECT_EQ((uintptr_t)y % 4096, 0u);
    EXPECT_GT((uintptr_t)nothing, (uintptr_t)x + (uintptr_t)huge);
    EXPECT_GT((uintptr_t)y, (uintptr_t)nothing);

    z3d_kernel kernel;
    std::memset(&kernel, 0, sizeof kernel);
    kernel.kind = Z3D_KERNEL_fill;
    kernel.as.fill = {x, huge, Z3D_U8, 1};
    EXPECT_EQ(z3d_launch(device, &kernel), Z3D_OK); // nobody looks
    Seen seen;
    z3d_device_set_recorder(device, observe, &seen);
    EXPECT_EQ(z3d_launch(device, &kernel), Z3D_OK);
    seen.answer = Z3D_ERR_PROGRAM;
    EXPECT_EQ(z3d_launch(device, &kernel), Z3D_ERR_PROGRAM);
    ASSERT_EQ(seen.kernels.size(), 2u);
    EXPECT_EQ(seen.kernels[0].kind, Z3D_KERNEL_fill);
    EXPECT_EQ(seen.kernels[0].as.fill.x, x);

    char host[4] = "abc";
    EXPECT_EQ(z3d_device_read(device, host, x, 4), Z3D_OK);
    EXPECT_EQ(z3d_device_write(device, x, host, 4), Z3D_OK);
    EXPECT_STREQ(host, "abc");
    EXPECT_EQ(z3d_device_synchronize(device), Z3D_OK);
    z3d_device_set_scratch(device, x, 100);
    z3d_device_set_poll(device, nullptr, nullptr);
    z3d_gemm_method best;
    double gflops;
    EXPECT_EQ(z3d_device_measure_gemm(device, Z3D_F32, 8, 8, 8, &best, &gflops), Z3D_OK);
    EXPECT_EQ(best, Z3D_GEMM_SGEMM);
    z3d_device_free(device, Z3D_SPACE_DEVICE, x, huge);
    z3d_device_destroy(device);
}

TEST(Record, RunsOutOfAddressesWithAnError) {
    z3d_device_config config = config_of("record");
    z3d_device *device = nullptr;
    ASSERT_EQ(z3d_device_create(&config, &device), Z3D_OK);
    void *block = nullptr;
    EXPECT_EQ(z3d_device_alloc(device, Z3D_SPACE_DEVICE, INT64_MAX / 4, &block), Z3D_OK);
    EXPECT_EQ(z3d_device_alloc(device, Z3D_SPACE_DEVICE, INT64_MAX / 2, &block), Z3D_ERR_MEMORY);
    EXPECT_EQ(block, nullptr);
    z3d_device_destroy(device);
}

} // namespace

// After a failure nobody waits for a copy: the memory that it reads and writes is still there.
TEST(Face, ACopyEndsBeforeItsMemoryIsFreed) {
    const int64_t bytes = 256 << 20;
    z3d_device_config config{};
    config.backend = "cpu";
    config.threads = 1;
    z3d_device *device = nullptr;
    void *from = nullptr, *to = nullptr;
    z3d_copy copy;
    ASSERT_EQ(Z3D_OK, z3d_device_create(&config, &device));
    ASSERT_EQ(Z3D_OK, z3d_device_alloc(device, Z3D_SPACE_DEVICE, bytes, &from));
    ASSERT_EQ(Z3D_OK, z3d_device_alloc(device, Z3D_SPACE_HOST, bytes, &to));
    ASSERT_EQ(Z3D_OK, z3d_copy_start(device, to, from, bytes, &copy));
    z3d_device_free(device, Z3D_SPACE_HOST, to, bytes);
    z3d_device_free(device, Z3D_SPACE_DEVICE, from, bytes);
    z3d_device_destroy(device);
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
