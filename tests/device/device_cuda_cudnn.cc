// Attention's graphs for cuDNN, against an H200 that is only described: engines must take them. No
// GPU and no driver; the toolkit's stub driver stands for the one whose presence engines look for.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

extern "C" {
#include "src/device/cuda/attention_plan.h"
}

// A GPU in cuDNN's own words.
static std::string described(const char *name, int version, int processors, int shared) {
    return R"({"deviceName": ")" + std::string(name) + R"(", "cudaDeviceId": 0, "deviceVer": )" +
           std::to_string(version) + R"(, "driverVer": 13000, "multiProcessorCount": )" +
           std::to_string(processors) +
           R"(, "warpSize": 32, "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64], "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
    "maxCtasPerSM": 32, "regsPerBlock": 65536, "maxRegistersPerSM": 65536,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": )" +
           std::to_string(shared) + R"(,
    "reservedSharedMemoryPerBlock": 1024, "totalGlobalMem": 85899345920, "l2CacheSize": 41943040,
    "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "pciDeviceId": 0, "isTccDriver": 0,
    "supportCoopLaunch": 1})";
}

static z3d_attention_shape shape_of(int64_t batch, int64_t seq, int64_t heads, int64_t head_dim) {
    z3d_attention_shape shape = {};
    shape.batch = batch, shape.seq = seq, shape.heads = shape.row_heads = heads;
    shape.kv_heads = heads, shape.head_dim = head_dim, shape.dtype = Z3D_BF16;
    shape.q_stride = shape.kv_stride = 3 * heads * head_dim;
    shape.backward = shape.deterministic = true;
    return shape;
}

class Cudnn : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!dlopen(CUDA_STUB_DRIVER, RTLD_NOW | RTLD_GLOBAL)) GTEST_SKIP() << dlerror();
        if (z3d_cudnn_load(&library) != Z3D_OK) GTEST_SKIP() << z3d_error_message();
        describe("NVIDIA H200", 900, 132, 232448);
    }
    void describe(const char *name, int version, int processors, int shared) {
        const std::string words = described(name, version, processors, shared);
        ASSERT_EQ(Z3D_OK, z3d_cudnn_describe_device(&library, words.c_str()))
            << z3d_error_message();
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

// Llama 70B's and 8B's heads, others, one of keys for all; with a window, as Mistral has it.
TEST_F(Cudnn, GroupedHeadsAndWindows) {
    const struct {
        const char *name;
        int version, processors, shared;
    } gpus[] = {{"NVIDIA A100-SXM4-80GB", 800, 108, 166912},
                {"NVIDIA H100 80GB HBM3", 900, 132, 232448},
                {"NVIDIA B200", 1000, 148, 232448}};
    const int64_t heads[][2] = {{64, 8}, {32, 8}, {12, 4}, {16, 16}, {32, 1}};
    for (const auto &gpu : gpus) {
        describe(gpu.name, gpu.version, gpu.processors, gpu.shared);
        for (const auto &h : heads)
            for (int64_t window : {0, 512})
                for (bool backward : {false, true})
                    for (bool deterministic : {false, true}) {
                        z3d_attention_shape shape = shape_of(2, 2048, h[0], 128);
                        shape.kv_heads = h[1], shape.window = window;
                        if (h[0] == 12) shape.dtype = Z3D_F16, shape.seq = 1001;
                        shape.q_stride = shape.kv_stride = (h[0] + 2 * h[1]) * 128;
                        shape.backward = backward, shape.deterministic = deterministic;
                        EXPECT_EQ(Z3D_OK, plan(shape))
                            << gpu.name << " " << h[0] << "/" << h[1] << " window " << window
                            << (backward ? " backward" : "") << (deterministic ? " det " : " ")
                            << z3d_error_message();
                    }
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
    // Grouped heads stay together.
    z3d_attention_shape grouped = shape_of(4, 8192, 32, 128);
    grouped.kv_heads = 8;
    EXPECT_EQ(z3d_attention_piece(&grouped).heads, 8);
    EXPECT_EQ(z3d_attention_piece(&grouped).kv_heads, 2);
    grouped.seq = 16384; // a group alone has more
    EXPECT_EQ(z3d_attention_piece(&grouped).heads, 4);
    EXPECT_EQ(z3d_attention_piece(&grouped).kv_heads, 1);
    z3d_attention_shape any = shape_of(16, 8192, 25, 64);
    any.deterministic = false; // keeps none
    EXPECT_EQ(z3d_attention_piece(&any).batch, 16);
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
