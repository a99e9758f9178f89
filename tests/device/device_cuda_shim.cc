// The shim's own promises: what it must find wrong in a kernel.
#include "tests/device/cuda_shim/cuda_runtime.h"

#include <gtest/gtest.h>

#include <vector>

namespace {

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

TEST(CudaShim, Shuffles) {
    std::vector<int> out(64);
    const cudaLaunchConfig_t config = config_of(1, 64);
    for (bool descend : {false, true}) {
        cuda_shim_descend(descend);
        ASSERT_EQ(cudaLaunchKernelEx(
                      &config,
                      +[](int *to) {
                          int sum = (int)threadIdx.x;
                          for (int lane = 16; lane > 0; lane /= 2)
                              sum += __shfl_xor_sync(~0u, sum, lane);
                          to[threadIdx.x] = sum + __shfl_sync(~0u, (int)threadIdx.x, 3);
                      },
                      out.data()),
                  cudaSuccess);
        for (int i = 0; i < 64; i++)
            EXPECT_EQ(out[(size_t)i], i < 32 ? 496 + 3 : 496 + 32 * 32 + 35);
    }
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
