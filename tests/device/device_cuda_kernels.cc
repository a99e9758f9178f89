// The CUDA kernels, compiled for the host (cuda_shim), against the cpu device: all cases of
// tests/gpu/cases.c, with what only the host can show. Threads run in both orders, operands have
// exactly their bytes (AddressSanitizer sees the rest), and scratch has what is promised, full of
// NaN. Then what no device can be asked, and the shim's own promises.
#include <cstdarg>

#include "tests/device/kernels_harness.h"

extern "C" {
#include "tests/gpu/check.h"
}

#include "src/device/cuda/kernels/cuda_kernels.h"
#include "src/device/cuda/kernels/scratch.h"
#include "tests/device/cuda_shim/cuda_runtime.h"

z3d_status z3d_cuda_gemm(const z3d_cuda_lane *, const z3d_gemm *) {
    return Z3D_ERROR(Z3D_ERR_INTERNAL, "products are a library's");
}

void check_say(check_context *, check_kind kind, const char *name, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    EXPECT_NE(kind, CHECK_FAILED) << name << ": " << text;
}

namespace {

z3d_status launch(const check_target *, const z3d_kernel *kernel, int way) {
    const int64_t bytes = z3d_cuda_kernel_scratch(kernel);
    std::unique_ptr<unsigned char[]> scratch(new unsigned char[(size_t)bytes]);
    std::memset(scratch.get(), 0xff, (size_t)bytes);
    const z3d_cuda_lane lane = {nullptr, scratch.get(), bytes};
    cuda_shim_descend(way == 1);
    switch (kernel->kind) {
#define X(name, type)                                                                              \
    case Z3D_KERNEL_##name:                                                                        \
        return z3d_cuda_##name(&lane, &kernel->as.name);
        Z3D_KERNEL_MAP(X)
#undef X
    case Z3D_KERNEL_COUNT:
        break;
    }
    return Z3D_ERROR(Z3D_ERR_INTERNAL, "kernel kind %d", (int)kernel->kind);
}

class CudaKernels : public testing::TestWithParam<z3d_dtype> {};

TEST_P(CudaKernels, AgreeWithTheCpu) {
    check_target target = {nullptr, 2, launch};
    check_all_kernels(nullptr, &target, GetParam());
}

INSTANTIATE_TEST_SUITE_P(, CudaKernels, testing::Values(Z3D_F32, Z3D_BF16, Z3D_F16));

const z3d_cuda_lane NO_SCRATCH = {nullptr, nullptr, 0};

// The host does not know the row.
TEST(CudaSelectRow, ARowOutsideIsNaN) {
    const int32_t row[] = {4, 5, -1};
    Array x(Z3D_F32, 3 * 5 * 24), y(Z3D_F32, 3 * 24);
    x.random(1);
    const z3d_select_row select = {x.data(), y.data(), row, 3, 5, 24, Z3D_F32};
    ASSERT_EQ(z3d_cuda_select_row(&NO_SCRATCH, &select), Z3D_OK);
    for (int64_t i = 0; i < 3 * 24; i++) ASSERT_EQ(std::isnan(y[i]), i / 24 > 0) << i;
}

TEST(CudaArguments, WrongOnesAreErrors) {
    float x[64] = {0};
    z3d_bias_backward bias = {x, x, 2, 4, Z3D_F32, Z3D_F32, false};
    EXPECT_EQ(z3d_cuda_bias_backward(&NO_SCRATCH, &bias), Z3D_ERR_INTERNAL);
    EXPECT_NE(std::string(z3d_error_message()).find("scratch of 0 bytes"), std::string::npos);
    bias.dtype = Z3D_I32;
    EXPECT_EQ(z3d_cuda_bias_backward(&NO_SCRATCH, &bias), Z3D_ERR_INTERNAL);
    const z3d_init_normal init = {x, 1, {0, 0, 4, 4, 1, 1}, 1};
    EXPECT_EQ(z3d_cuda_init_normal(&NO_SCRATCH, &init), Z3D_ERR_INTERNAL);

    z3d_attention_backward b = {x, x, x, x, x, x, x,  x,  x, nullptr, nullptr, 0,
                                4, 4, 1, 1, 8, 0, 24, 24, 0, Z3D_F32, {}};
    EXPECT_EQ(z3d_cuda_attention_backward(&NO_SCRATCH, &b), Z3D_OK); // nothing to do
    b.batch = 1;
    EXPECT_EQ(z3d_cuda_attention_backward(&NO_SCRATCH, &b), Z3D_ERR_INTERNAL); // no scratch
    b.head_dim = 0;
    EXPECT_EQ(z3d_cuda_attention_backward(&NO_SCRATCH, &b), Z3D_ERR_INTERNAL);
    const int32_t starts[] = {0};
    b.batch = 0, b.head_dim = 8, b.starts = starts;
    EXPECT_EQ(z3d_cuda_attention_backward(&NO_SCRATCH, &b), Z3D_ERR_INTERNAL);
    b.batch = 1, b.starts = nullptr;
    z3d_attention_forward f = b;
    f.head_dim = 8;
    f.first_head = 70000;
    f.dropout.p = 0.5f;
    EXPECT_EQ(z3d_cuda_attention_forward(&NO_SCRATCH, &f), Z3D_ERR_INTERNAL); // beyond the counter
    f.dropout.p = 0;
    f.seq = 0;
    EXPECT_EQ(z3d_cuda_attention_forward(&NO_SCRATCH, &f), Z3D_OK);
    f.head_dim = 257;
    EXPECT_EQ(z3d_cuda_attention_forward(&NO_SCRATCH, &f), Z3D_ERR_UNSUPPORTED);
}

// ---- what the shim must find wrong in a kernel ----

// Every thread gives its number to its neighbour through shared memory.
void rotate(int *out, bool barrier) {
    int *shared = static_cast<int *>(cuda_shim_shared_memory());
    shared[threadIdx.x] = (int)threadIdx.x;
    if (barrier) __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x];
}

void half_a_barrier() {
    if (threadIdx.x < blockDim.x / 2) __syncthreads();
}

void half_a_shuffle(int *out) {
    if (threadIdx.x % 32 < 16) *out = __shfl_sync(~0u, 1, 0);
}

cudaLaunchConfig_t config_of(unsigned blocks, unsigned threads) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks), config.blockDim = dim3(threads);
    config.dynamicSmemBytes = threads * sizeof(int);
    return config;
}

std::vector<int> rotated(bool barrier, bool descend) {
    std::vector<int> out(2 * 96, -1);
    const cudaLaunchConfig_t config = config_of(2, 96);
    cuda_shim_descend(descend);
    EXPECT_EQ(cudaLaunchKernelEx(&config, rotate, out.data(), barrier), cudaSuccess);
    return out;
}

TEST(CudaShim, BarriersOrderThreads) {
    std::vector<int> want;
    for (int i = 0; i < 2 * 96; i++) want.push_back((i + 1) % 96);
    EXPECT_EQ(rotated(true, false), want);
    EXPECT_EQ(rotated(true, true), want);
}

TEST(CudaShim, AMissingBarrierShows) {
    EXPECT_NE(rotated(false, false), rotated(false, true));
}

TEST(CudaShim, WhatIsRefused) {
    cudaLaunchConfig_t config = config_of(1, 2048);
    EXPECT_NE(cudaLaunchKernelEx(&config, half_a_barrier), cudaSuccess);
    config = config_of(0, 32);
    EXPECT_NE(cudaLaunchKernelEx(&config, half_a_barrier), cudaSuccess);
    config = config_of(1, 32);
    config.dynamicSmemBytes = 100 << 10; // not asked for
    EXPECT_NE(cudaLaunchKernelEx(&config, half_a_barrier), cudaSuccess);
}

TEST(CudaShimDeath, ThreadsThatDoNotMeet) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    int out = 0;
    const cudaLaunchConfig_t config = config_of(1, 64);
    EXPECT_DEATH(cudaLaunchKernelEx(&config, half_a_barrier), "a barrier that not all threads");
    EXPECT_DEATH(cudaLaunchKernelEx(&config, half_a_shuffle, &out), "a shuffle that not all lanes");
}

#ifdef ZERO3D_SANITIZED
void beyond(int *out) {
    int *shared = static_cast<int *>(cuda_shim_shared_memory());
    shared[threadIdx.x] = (int)threadIdx.x;
    *out = shared[blockDim.x];
}

TEST(CudaShimDeath, SharedMemoryHasBounds) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    int out = 0;
    const cudaLaunchConfig_t config = config_of(1, 64);
    EXPECT_DEATH(cudaLaunchKernelEx(&config, beyond, &out), "heap-buffer-overflow");
}
#endif

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
