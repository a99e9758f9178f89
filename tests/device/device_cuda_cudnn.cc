// Attention's graphs for cuDNN, against an H200 that is only described: engines must take them. No
// GPU and no driver; the toolkit's stub driver stands for the one whose presence engines look for.
#include <dlfcn.h>
#include <gtest/gtest.h>

extern "C" {
#include "src/device/cuda/attention_plan.h"
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

static z3d_attention_shape shape_of(int64_t batch, int64_t seq, int64_t heads, int64_t head_dim) {
    z3d_attention_shape shape = {};
    shape.batch = batch, shape.seq = seq, shape.heads = shape.row_heads = heads;
    shape.head_dim = head_dim, shape.dtype = Z3D_BF16;
    shape.backward = shape.deterministic = true;
    return shape;
}

class Cudnn : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!dlopen(CUDA_STUB_DRIVER, RTLD_NOW | RTLD_GLOBAL)) GTEST_SKIP() << dlerror();
        if (z3d_cudnn_load(&library) != Z3D_OK) GTEST_SKIP() << z3d_error_message();
        ASSERT_EQ(Z3D_OK, z3d_cudnn_describe_device(&library, h200)) << z3d_error_message();
    }
    // OK, or why not; the graph's operations.
    z3d_status plan(const z3d_attention_shape &shape) {
        static z3d_attention_plan made;
        Z3D_TRY(z3d_attention_make_plan(&library, &shape, &made));
        operations = made.operations;
        z3d_attention_drop_plan(&made);
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
                    z3d_attention_shape shape = shape_of(16, 1024, 12, head_dim);
                    shape.dtype = dtype, shape.backward = backward;
                    shape.deterministic = deterministic;
                    ASSERT_EQ(Z3D_OK, plan(shape)) << z3d_error_message();
                    EXPECT_EQ(operations, !backward ? 14 : deterministic ? 21 : 22);
                }
}

TEST_F(Cudnn, AHeadThatNoEngineTakesIsUnsupported) {
    EXPECT_EQ(Z3D_ERR_UNSUPPORTED, plan(shape_of(16, 1024, 12, 72 + 3)));
}

// Backward keeps the scores of at most 1 GiB: of all, of some samples, of some heads of one.
TEST_F(Cudnn, LargeScoresAreCut) {
    const struct {
        int64_t batch, seq, heads, piece_batch, piece_heads;
    } cases[] = {{16, 1024, 25, 16, 25},
                 {16, 2048, 25, 4, 25},
                 {16, 8192, 25, 1, 5},
                 {2, 32768, 7, 1, 1},
                 {16, 2050, 25, 16, 25}};
    for (const auto &c : cases) {
        const z3d_attention_shape shape = shape_of(c.batch, c.seq, c.heads, 64);
        const z3d_attention_shape piece = z3d_attention_piece(&shape);
        EXPECT_EQ(piece.batch, c.piece_batch) << c.seq;
        EXPECT_EQ(piece.heads, c.piece_heads) << c.seq;
        EXPECT_EQ(piece.row_heads, c.heads);
        EXPECT_EQ(Z3D_OK, plan(piece)) << z3d_error_message();
    }
    z3d_attention_shape any = shape_of(16, 8192, 25, 64);
    any.deterministic = false; // keeps none
    EXPECT_EQ(z3d_attention_piece(&any).batch, 16);
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
