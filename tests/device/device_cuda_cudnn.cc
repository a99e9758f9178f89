// Attention's graphs for cuDNN, against an H200 that is only described: engines must take them. No
// GPU and no driver; the toolkit's stub driver stands for the one whose presence engines look for.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>

extern "C" {
#include "src/device/cuda/attention.h"

// What only a device that is there calls.
z3d_status z3d_cuda_check(cudaError_t, const char *) {
    return Z3D_ERROR(Z3D_ERR_INTERNAL, "there is no device");
}
z3d_status z3d_cuda_reserve(z3d_cuda *, int64_t) {
    return Z3D_ERROR(Z3D_ERR_INTERNAL, "there is no device");
}
}

// An H200 in cuDNN's own words.
static const char h200[] =
    R"({"deviceName": "NVIDIA H200", "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000,
    "multiProcessorCount": 132, "warpSize": 32, "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64], "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
    "maxCtasPerSM": 32, "regsPerBlock": 65536, "maxRegistersPerSM": 65536,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
    "reservedSharedMemoryPerBlock": 1024, "totalGlobalMem": 150754820096, "l2CacheSize": 62914560,
    "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "pciDeviceId": 0, "isTccDriver": 0,
    "supportCoopLaunch": 1})";

class Cudnn : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!dlopen(CUDA_STUB_DRIVER, RTLD_NOW | RTLD_GLOBAL)) GTEST_SKIP() << dlerror();
        if (z3d_cudnn_load(&library) != Z3D_OK) GTEST_SKIP() << z3d_error_message();
        ASSERT_EQ(Z3D_OK, z3d_cudnn_describe_device(&library, h200)) << z3d_error_message();
    }
    // OK, or why not; the graph's operations.
    z3d_status plan(int64_t head_dim, z3d_dtype dtype, bool backward, bool deterministic) {
        z3d_attention_shape shape;
        memset(&shape, 0, sizeof shape);
        shape.batch = 16, shape.seq = 1024, shape.heads = 12, shape.head_dim = head_dim;
        shape.dtype = dtype, shape.backward = backward, shape.deterministic = deterministic;
        static z3d_cudnn_plan made;
        Z3D_TRY(z3d_attention_make_plan(&library, &shape, &made));
        operations = made.graph.operations;
        z3d_cudnn_drop_plan(&made);
        return Z3D_OK;
    }
    z3d_cudnn library;
    int operations = 0;
};

TEST_F(Cudnn, EnginesTakeTheGraphs) {
    for (z3d_dtype dtype : {Z3D_BF16, Z3D_F16})
        for (int64_t head_dim : {64, 80, 128})
            for (bool backward : {false, true})
                for (bool deterministic : {false, true}) {
                    ASSERT_EQ(Z3D_OK, plan(head_dim, dtype, backward, deterministic))
                        << z3d_error_message();
                    EXPECT_EQ(operations, !backward ? 14 : deterministic ? 21 : 22);
                }
}

TEST_F(Cudnn, AHeadThatNoEngineTakesIsUnsupported) {
    EXPECT_EQ(Z3D_ERR_UNSUPPORTED, plan(72 + 3, Z3D_BF16, false, true));
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
