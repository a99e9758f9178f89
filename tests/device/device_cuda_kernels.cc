// The CUDA kernels, compiled for the host (cuda_shim), against the cpu device: all cases of
// tests/gpu/cases.c, with what only the host can show. Threads run in both orders, operands have
// exactly their bytes (AddressSanitizer sees the rest), and scratch has what is promised, full of
// NaN. Then what no device can be asked.
#include <cstdarg>

#include "tests/device/kernels_harness.h"

extern "C" {
#include "tests/gpu/check.h"
}

#include "src/device/cuda/kernels/cuda_kernels.h"
#include "src/device/cuda/kernels/scratch.h"

void cuda_shim_descend(bool descend); // cuda_shim/cuda_runtime.h

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
#define X(name)                                                                                    \
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
    EXPECT_EQ(check_all_kernels(nullptr, &target, GetParam()), Z3D_OK) << z3d_error_message();
}

INSTANTIATE_TEST_SUITE_P(, CudaKernels, testing::Values(Z3D_F32, Z3D_BF16, Z3D_F16));

const z3d_cuda_lane NO_SCRATCH = {nullptr, nullptr, 0};

// Every pattern of a 16-bit type there and back, and what lies between neighbours.
TEST(CudaCast, EveryPattern) {
    for (z3d_dtype dtype : {Z3D_BF16, Z3D_F16}) {
        Array x(dtype, 65536), wide(Z3D_F32, 65536), middle(Z3D_F32, 65536), y(dtype, 65536);
        for (int i = 0; i < 65536; i++) ((uint16_t *)x.data())[i] = (uint16_t)i;
        const z3d_cast widen = {wide.data(), x.data(), 65536, Z3D_F32, dtype};
        ASSERT_EQ(z3d_cuda_cast(&NO_SCRATCH, &widen), Z3D_OK);
        for (int i = 0; i < 65536; i++) {
            ASSERT_TRUE(wide[i] == x[i] || (std::isnan(wide[i]) && std::isnan(x[i]))) << i;
            middle.set(i, (x[i] + x[(i + 1) % 65536]) / 2);
        }
        const z3d_cast narrow = {y.data(), middle.data(), 65536, dtype, Z3D_F32};
        ASSERT_EQ(z3d_cuda_cast(&NO_SCRATCH, &narrow), Z3D_OK);
        for (int i = 0; i < 65536; i++) {
            const double want = round_to(dtype, middle[i]);
            ASSERT_TRUE(y[i] == want || (std::isnan(y[i]) && std::isnan(want))) << i;
        }
    }
}

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
    const z3d_init_normal init = {x, 0, 1, 1, 4, 4, 1, 1, 0, 1};
    EXPECT_EQ(z3d_cuda_init_normal(&NO_SCRATCH, &init), Z3D_ERR_INTERNAL);

    z3d_attention_backward b = {x, x, x, x, x, x,  x,  x, x,       0,
                                4, 1, 1, 8, 0, 24, 24, 0, Z3D_F32, {}};
    EXPECT_EQ(z3d_cuda_attention_backward(&NO_SCRATCH, &b), Z3D_OK); // nothing to do
    b.batch = 1;
    EXPECT_EQ(z3d_cuda_attention_backward(&NO_SCRATCH, &b), Z3D_ERR_INTERNAL); // no scratch
    b.head_dim = 0;
    EXPECT_EQ(z3d_cuda_attention_backward(&NO_SCRATCH, &b), Z3D_ERR_INTERNAL);
    z3d_attention_forward f = {x, x, x, x,     x,  nullptr, 1, 4,       4,
                               1, 1, 8, 70000, 24, 24,      0, Z3D_F32, {}};
    f.dropout.p = 0.5f;
    EXPECT_EQ(z3d_cuda_attention_forward(&NO_SCRATCH, &f), Z3D_ERR_INTERNAL); // beyond the counter
    f.dropout.p = 0;
    f.seq = 0;
    EXPECT_EQ(z3d_cuda_attention_forward(&NO_SCRATCH, &f), Z3D_OK);
    f.head_dim = 257;
    EXPECT_EQ(z3d_cuda_attention_forward(&NO_SCRATCH, &f), Z3D_ERR_UNSUPPORTED);
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
