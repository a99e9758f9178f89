// Matrix products: every method, type and layout against sums in double; cuts, threads, scratch.
#include "tests/device/kernels_harness.h"
#include "tests/expect.h"

namespace {

const z3d_gemm_method METHODS[] = {Z3D_GEMM_SGEMM, Z3D_GEMM_MATMUL, Z3D_GEMM_PORTABLE};

// oneDNN's matmul takes bf16 only where the CPU has AVX-512.
bool matmul_has_bf16() {
    return isas().back() == "avx512";
}

// A device that multiplies by one method; self is null where this machine cannot.
struct Multiplier {
    z3d_device *self = nullptr;
    Multiplier(z3d_gemm_method method, int threads, const char *isa = nullptr) {
        z3d_device_config config;
        std::memset(&config, 0, sizeof config);
        config.backend = "cpu";
        config.threads = threads;
        config.isa = isa;
        config.gemm[Z3D_F32] = config.gemm[Z3D_BF16] = method;
        if (method == Z3D_GEMM_MATMUL && !matmul_has_bf16()) config.gemm[Z3D_BF16] = Z3D_GEMM_SGEMM;
        config.gemm[Z3D_F16] = method == Z3D_GEMM_MATMUL ? Z3D_GEMM_SGEMM : method;
        EXPECT_EQ(z3d_device_create(&config, &self), Z3D_OK) << z3d_error_message();
    }
    Multiplier(const Multiplier &) = delete;
    ~Multiplier() {
        z3d_device_destroy(self);
    }
};

struct Shape {
    int64_t m, n, k;
};

// Numbers between -2 and 2: faster than Array's random, since much time would go there.
void fill(Array &x, uint32_t seed, double scale = 1) {
    uint32_t word = seed * 2654435761u + 1;
    for (int64_t i = 0; i < x.count(); i++) {
        word = word * 1664525u + 1013904223u;
        x.set(i, scale * ((double)(word >> 8) * 0x1p-22 - 2));
    }
}

// One product with its operands. Rows are longer than the matrix needs by `gap`.
struct Product {
    z3d_gemm gemm;
    Array a, b, c, bias, before;

    Product(Shape s, z3d_dtype dtype, z3d_dtype c_dtype, bool ta, bool tb, bool accumulate,
            bool with_bias, int64_t gap) {
        std::memset(&gemm, 0, sizeof gemm);
        gemm.m = s.m, gemm.n = s.n, gemm.k = s.k;
        gemm.transpose_a = ta, gemm.transpose_b = tb, gemm.accumulate = accumulate;
        gemm.dtype = dtype, gemm.c_dtype = c_dtype;
        gemm.lda = (ta ? s.m : s.k) + gap;
        gemm.ldb = (tb ? s.k : s.n) + 2 * gap;
        gemm.ldc = s.n + gap;
        a = Array(dtype, (ta ? s.k : s.m) * gemm.lda);
        b = Array(dtype, (tb ? s.n : s.k) * gemm.ldb);
        c = Array(c_dtype, s.m * gemm.ldc);
        bias = Array(dtype, s.n);
        fill(a, 1), fill(b, 2), fill(c, 3), fill(bias, 4, 10);
        before = c.copy();
        gemm.a = a.data(), gemm.b = b.data(), gemm.c = c.data();
        gemm.bias = with_bias ? bias.data() : nullptr;
    }

    z3d_status run(z3d_device *device) {
        z3d_kernel kernel;
        std::memset(&kernel, 0, sizeof kernel);
        kernel.kind = Z3D_KERNEL_gemm;
        kernel.as.gemm = gemm;
        return launch_with_scratch(device, kernel);
    }

    void check(int64_t row, int64_t col) const {
        double sum = 0, scale = 0;
        for (int64_t i = 0; i < gemm.k; i++) {
            double x = a[gemm.transpose_a ? i * gemm.lda + row : row * gemm.lda + i];
            double y = b[gemm.transpose_b ? col * gemm.ldb + i : i * gemm.ldb + col];
            sum += x * y;
            scale += std::fabs(x * y);
        }
        int64_t at = row * gemm.ldc + col;
        if (gemm.accumulate) sum += before[at], scale += std::fabs(before[at]);
        if (gemm.bias) sum += bias[col], scale += std::fabs(bias[col]);
        expect_near(c, at, sum, scale, 0x1p-24 * (4 + 2 * std::sqrt((double)gemm.k)));
    }

    void check_all() const {
        for (int64_t row = 0; row < gemm.m; row++)
            for (int64_t col = 0; col < gemm.ldc; col++) {
                if (col < gemm.n)
                    check(row, col);
                else
                    ASSERT_EQ(c[row * gemm.ldc + col], before[row * gemm.ldc + col])
                        << "written between rows";
                if (testing::Test::HasFatalFailure()) return;
            }
    }

    Bytes bytes() const {
        Bytes out;
        c.append_to(out);
        return out;
    }
};

std::string name_of(const z3d_gemm &g, z3d_gemm_method method) {
    return std::string(z3d_gemm_method_name(method)) + " " + std::to_string(g.m) + "x" +
           std::to_string(g.n) + "x" + std::to_string(g.k) + (g.transpose_a ? " TA" : "") +
           (g.transpose_b ? " TB" : "") + (g.accumulate ? " accumulate" : "") +
           (g.bias ? " bias " : " ") + z3d_dtype_name(g.dtype) + " to " + z3d_dtype_name(g.c_dtype);
}

void every_layout(z3d_device *device, z3d_gemm_method method, Shape shape) {
    for (z3d_dtype dtype : float_types())
        for (z3d_dtype c_dtype : {Z3D_F32, dtype == Z3D_F32 ? Z3D_BF16 : dtype})
            for (int flags = 0; flags < 16; flags++) {
                Product p(shape, dtype, c_dtype, flags & 1, flags & 2, flags & 4, flags & 8,
                          flags % 3);
                SCOPED_TRACE(name_of(p.gemm, method));
                ASSERT_EQ(p.run(device), Z3D_OK) << z3d_error_message();
                p.check_all();
                if (testing::Test::HasFatalFailure()) return;
            }
}

TEST(Gemm, EveryMethodTypeAndLayout) {
    const Shape shapes[] = {{1, 1, 1},   {5, 7, 3}, {33, 17, 65}, {1, 200, 64},
                            {100, 1, 7}, {2, 3, 1}, {70, 130, 40}};
    for (z3d_gemm_method method : METHODS) {
        Multiplier device(method, 2);
        for (Shape shape : shapes) {
            every_layout(device.self, method, shape);
            if (HasFatalFailure()) return;
        }
    }
}

// The generic and avx2 helpers widen, narrow and multiply too.
TEST(Gemm, EveryInstructionSet) {
    for (const std::string &isa : isas())
        for (z3d_gemm_method method : {Z3D_GEMM_SGEMM, Z3D_GEMM_PORTABLE}) {
            Multiplier device(method, 2, isa.c_str());
            SCOPED_TRACE(isa);
            every_layout(device.self, method, {37, 53, 29});
            if (HasFatalFailure()) return;
        }
}

// Nothing to add up: C is zero, or what it was, plus bias; no rows or columns: nothing happens.
TEST(Gemm, EmptyDimensions) {
    for (z3d_gemm_method method : METHODS) {
        Multiplier device(method, 2);
        for (Shape shape : {Shape{9, 5, 0}, Shape{0, 5, 4}, Shape{9, 0, 4}, Shape{0, 0, 0}}) {
            every_layout(device.self, method, shape);
            if (HasFatalFailure()) return;
        }
    }
    Multiplier device(Z3D_GEMM_SGEMM, 2);
    for (Shape shape : {Shape{0, 5, 4}, Shape{9, 0, 4}}) {
        Product p(shape, Z3D_BF16, Z3D_F32, false, true, false, false, 0);
        z3d_kernel kernel;
        std::memset(&kernel, 0, sizeof kernel);
        kernel.kind = Z3D_KERNEL_gemm;
        kernel.as.gemm = p.gemm;
        kernel.as.gemm.inference = true;
        EXPECT_EQ(z3d_launch(device.self, &kernel), Z3D_OK) << z3d_error_message(); // no scratch
    }
}

// Several tiles, chunks and panels in each dimension: k above 4096 cuts panels along k, and what
// remains fits no tile. Elements are sampled, the last ones of each cut among them.
TEST(Gemm, LargerThanEveryCut) {
    const Shape shapes[] = {
        {300, 401, 4500}, {1423, 65, 4101}, {40, 1471, 4197}, {530, 800, 50}, {1100, 20, 70}};
    std::mt19937 engine(7);
    for (z3d_gemm_method method : {Z3D_GEMM_SGEMM, Z3D_GEMM_MATMUL}) {
        Multiplier device(method, 2);
        for (Shape s : shapes)
            for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16})
                for (int flags = dtype == Z3D_F32 ? 2 : 0; flags < 4; flags++) {
                    bool ta = flags & 1, tb = flags & 2;
                    Product p(s, dtype, flags == 2 ? Z3D_F32 : dtype, ta, tb, ta == tb, true, 3);
                    SCOPED_TRACE(name_of(p.gemm, method));
                    ASSERT_EQ(p.run(device.self), Z3D_OK) << z3d_error_message();
                    for (int i = 0; i < 200; i++) {
                        p.check((int64_t)(engine() % s.m), (int64_t)(engine() % s.n));
                        if (HasFatalFailure()) return;
                    }
                    for (int64_t row : {(int64_t)0, s.m - 1})
                        for (int64_t col : {(int64_t)0, s.n - 1}) p.check(row, col);
                    if (HasFatalFailure()) return;
                }
    }
}

// Rows of B, of a transposed A, or of both lie whole pages apart: these operands are copied to
// panels on AVX2, if their elements are used often enough. k above 4096 has several panels.
TEST(Gemm, RowsThatArePagesApart) {
    const struct {
        Shape shape;
        bool ta, tb, copied;
    } cases[] = {{{70, 1024, 4200}, false, false, true}, {{128, 2048, 300}, false, false, true},
                 {{1024, 70, 4200}, true, false, true},  {{2048, 1024, 90}, true, false, true},
                 {{40, 1024, 100}, false, false, false}, {{70, 1000, 100}, false, false, false},
                 {{70, 1024, 100}, false, true, false}};
    std::mt19937 engine(7);
    for (const std::string &isa : isas()) {
        if (isa == "generic") continue; // does not copy, and is slow
        Multiplier device(Z3D_GEMM_SGEMM, 2, isa.c_str());
        for (const auto &of : cases) {
            Product p(of.shape, Z3D_F32, Z3D_F32, of.ta, of.tb, of.ta, true, 0);
            SCOPED_TRACE(isa + " " + name_of(p.gemm, Z3D_GEMM_SGEMM));
            z3d_kernel kernel;
            std::memset(&kernel, 0, sizeof kernel);
            kernel.kind = Z3D_KERNEL_gemm;
            kernel.as.gemm = p.gemm;
            EXPECT_EQ(z3d_kernel_scratch(&kernel, 2) > 0, of.copied);
            ASSERT_EQ(p.run(device.self), Z3D_OK) << z3d_error_message();
            for (int i = 0; i < 300; i++) {
                p.check((int64_t)(engine() % of.shape.m), (int64_t)(engine() % of.shape.n));
                if (HasFatalFailure()) return;
            }
        }
    }
}

// The portable loops are slower: one product with cuts is enough.
TEST(Gemm, PortableWithCuts) {
    Multiplier device(Z3D_GEMM_PORTABLE, 2);
    Product p({70, 120, 4200}, Z3D_BF16, Z3D_BF16, false, true, true, true, 1);
    ASSERT_EQ(p.run(device.self), Z3D_OK) << z3d_error_message();
    p.check_all();
}

// Same bits for any number of threads, with and without polling; and long products do poll.
TEST(Gemm, IndependentOfThreadsAndPolling) {
    for (z3d_gemm_method method : METHODS)
        for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16}) {
            Bytes first;
            for (int variant = 0; variant < 5; variant++) {
                Multiplier device(method, variant % 4 + 1);
                int polls = 0;
                if (variant >= 2)
                    z3d_device_set_poll(
                        device.self, [](void *context) { ++*(int *)context; }, &polls);
                Product p({150, 300, 2500}, dtype, dtype, true, false, true, true, 0);
                SCOPED_TRACE(name_of(p.gemm, method));
                ASSERT_EQ(p.run(device.self), Z3D_OK) << z3d_error_message();
                if (variant == 0) first = p.bytes();
                ASSERT_TRUE(first == p.bytes()) << variant % 4 + 1 << " threads";
                if (variant == 4) {
                    EXPECT_GE(polls, 4);
                }
            }
        }
}

// Few rows in generation: every cut of rows, columns and sums, in every type on every instruction
// set. 17 rows are not few.
TEST(Gemm, FewRowsOfInference) {
    const Shape shapes[] = {{1, 1, 1},   {1, 5, 15},  {2, 4, 16},    {3, 7, 17},  {4, 1, 33},
                            {5, 70, 40}, {8, 6, 100}, {16, 131, 48}, {17, 9, 20}, {7, 3, 0}};
    for (const std::string &isa : isas()) {
        Multiplier device(Z3D_GEMM_SGEMM, 2, isa.c_str());
        SCOPED_TRACE(isa);
        for (Shape shape : shapes)
            for (z3d_dtype dtype : float_types())
                for (int flags = 0; flags < 8; flags++) {
                    const z3d_dtype c_dtype = flags & 1 ? dtype : Z3D_F32;
                    Product p(shape, dtype, c_dtype, false, true, flags == 6, flags & 2,
                              flags & 4 ? 3 : 0);
                    p.gemm.inference = true;
                    SCOPED_TRACE(name_of(p.gemm, Z3D_GEMM_SGEMM));
                    ASSERT_EQ(p.run(device.self), Z3D_OK) << z3d_error_message();
                    p.check_all();
                    if (HasFatalFailure()) return;
                }
    }
}

// A sample's results have the same bits in any batch, by any number of threads.
TEST(Gemm, FewRowsHaveBitsOfTheirOwn) {
    for (const std::string &isa : isas())
        for (z3d_dtype dtype : float_types()) {
            SCOPED_TRACE(isa + " " + z3d_dtype_name(dtype));
            Product all({16, 333, 211}, dtype, dtype, false, true, false, true, 0);
            all.gemm.inference = true;
            Multiplier device(Z3D_GEMM_SGEMM, 1, isa.c_str());
            ASSERT_EQ(all.run(device.self), Z3D_OK) << z3d_error_message();
            for (int64_t rows : {1, 2, 3, 6, 15, 16}) {
                Product some({16, 333, 211}, dtype, dtype, false, true, false, true, 0);
                some.gemm.inference = true;
                some.gemm.m = rows;
                Multiplier other(Z3D_GEMM_SGEMM, (int)rows % 4 + 1, isa.c_str());
                ASSERT_EQ(some.run(other.self), Z3D_OK) << z3d_error_message();
                const size_t bytes = (size_t)(rows * 333) * z3d_dtype_size(dtype);
                EXPECT_EQ(std::memcmp(some.c.data(), all.c.data(), bytes), 0) << rows << " rows";
            }
        }
}

// A product under one shape leaves nothing behind for the next: primitives are cached by shape.
TEST(Gemm, ManyShapesOnOneDevice) {
    for (z3d_gemm_method method : METHODS) {
        Multiplier device(method, 2);
        for (int round = 0; round < 2; round++)
            for (int64_t m = 1; m < 40; m += 7)
                for (int flags = 0; flags < 8; flags++) {
                    Product p({m, 41 - m, m + 3}, Z3D_BF16, Z3D_F32, flags & 1, flags & 2,
                              flags & 4, false, round);
                    SCOPED_TRACE(name_of(p.gemm, method));
                    ASSERT_EQ(p.run(device.self), Z3D_OK) << z3d_error_message();
                    p.check_all();
                    if (HasFatalFailure()) return;
                }
    }
}

// Infinities and NaN come through: overflow is found in the gradients.
TEST(Gemm, OverflowIsVisible) {
    for (z3d_gemm_method method : METHODS) {
        Multiplier device(method, 2);
        Product p({20, 30, 40}, Z3D_BF16, Z3D_BF16, false, false, false, false, 0);
        p.a.set(5 * 40 + 7, INFINITY);
        ASSERT_EQ(p.run(device.self), Z3D_OK) << z3d_error_message();
        EXPECT_FALSE(std::isfinite(p.c[5 * 30 + 4]));
        EXPECT_TRUE(std::isfinite(p.c[6 * 30 + 4]));
        Product q({4, 4, 4}, Z3D_F16, Z3D_F16, false, false, false, true, 0);
        q.bias.set(2, 65504), q.a.set(0, 60000), q.b.set(2, 60000);
        ASSERT_EQ(q.run(device.self), Z3D_OK) << z3d_error_message();
        EXPECT_TRUE(std::isinf(q.c[2]));
    }
}

TEST(Gemm, MatmulOfBf16IsRefusedWhereTheCpuHasNone) {
    z3d_device_config config = {};
    z3d_device *device;
    config.backend = "cpu";
    config.gemm[Z3D_BF16] = Z3D_GEMM_MATMUL;
    ASSERT_Z3D(z3d_device_create(&config, &device));
    Product p({20, 30, 40}, Z3D_BF16, Z3D_F32, false, false, false, false, 0);
    if (matmul_has_bf16()) {
        EXPECT_Z3D(p.run(device));
        p.check_all();
    } else {
        EXPECT_EQ(p.run(device), Z3D_ERR_UNSUPPORTED);
        EXPECT_NE(std::string(z3d_error_message()).find("training.gemm"), std::string::npos);
    }
    z3d_device_destroy(device);
}

TEST(Gemm, ScratchThatIsTooSmallIsAnError) {
    Multiplier device(Z3D_GEMM_SGEMM, 2);
    Product p({20, 30, 40}, Z3D_BF16, Z3D_F32, false, false, false, false, 0);
    z3d_kernel kernel;
    std::memset(&kernel, 0, sizeof kernel);
    kernel.kind = Z3D_KERNEL_gemm;
    kernel.as.gemm = p.gemm;
    ASSERT_EQ(z3d_launch(device.self, &kernel), Z3D_ERR_INTERNAL);
    EXPECT_NE(std::string(z3d_error_message()).find("gemm"), std::string::npos);
    alignas(64) char little[128];
    z3d_device_set_scratch(device.self, little, sizeof little);
    ASSERT_EQ(z3d_launch(device.self, &kernel), Z3D_ERR_INTERNAL);
}

TEST(Gemm, BadShapesAreErrors) {
    Multiplier device(Z3D_GEMM_SGEMM, 1);
    for (int i = 0; i < 6; i++) {
        Product p({4, 5, 6}, Z3D_F32, Z3D_F32, false, false, false, false, 0);
        if (i == 0) p.gemm.m = -1;
        if (i == 1) p.gemm.lda = 5;
        if (i == 2) p.gemm.ldb = 4;
        if (i == 3) p.gemm.ldc = 4;
        if (i == 4) p.gemm.dtype = Z3D_I32;
        if (i == 5) p.gemm.c_dtype = Z3D_F64;
        EXPECT_EQ(p.run(device.self), Z3D_ERR_INTERNAL) << i;
        z3d_kernel kernel;
        std::memset(&kernel, 0, sizeof kernel);
        kernel.kind = Z3D_KERNEL_gemm;
        kernel.as.gemm = p.gemm;
        double seconds;
        EXPECT_EQ(z3d_device_time(device.self, &kernel, &seconds), Z3D_ERR_INTERNAL) << i;
    }
}

// What a product has behind it has the bits of kernels launched one by one.
TEST(Gemm, BehindIt) {
    Multiplier device(Z3D_GEMM_SGEMM, 2);
    for (z3d_dtype dtype : float_types())
        for (int what = 1; what < 16; what++) {
            const bool adds = what & 8;
            const int64_t m = 20, n = 33, k = 40;
            Product one({m, n, k}, dtype, dtype, true, false, adds, true, 0);
            Product apart({m, n, k}, dtype, dtype, true, false, adds, true, 0);
            Array before(dtype, m * n), gelu[2], sums[2];
            before.random(5, 3);
            for (int i = 0; i < 2; i++) {
                gelu[i] = Array(dtype, m * n), sums[i] = Array(dtype, m);
                gelu[i].random(6), sums[i].random(7);
            }
            if (what & 1) one.gemm.gelu = gelu[0].data();
            if (what & 2) one.gemm.before_gelu = before.data();
            if (what & 4) one.gemm.bias_gradient = sums[0].data();
            ASSERT_EQ(one.run(device.self), Z3D_OK) << z3d_error_message();
            ASSERT_EQ(apart.run(device.self), Z3D_OK);
            z3d_kernel kernel;
            std::memset(&kernel, 0, sizeof kernel);
            kernel.kind = Z3D_KERNEL_gelu_backward;
            kernel.as.gelu_backward = {before.data(), apart.c.data(), apart.c.data(), m * n, dtype};
            if (what & 2) {
                ASSERT_EQ(launch_with_scratch(device.self, kernel), Z3D_OK);
            }
            kernel.kind = Z3D_KERNEL_gelu_forward;
            kernel.as.gelu_forward = {apart.c.data(), gelu[1].data(), m * n, dtype};
            if (what & 1) {
                ASSERT_EQ(launch_with_scratch(device.self, kernel), Z3D_OK);
            }
            kernel.kind = Z3D_KERNEL_bias_backward;
            kernel.as.bias_backward = {apart.a.data(), sums[1].data(), k, m, dtype, dtype, adds};
            if (what & 4) {
                ASSERT_EQ(launch_with_scratch(device.self, kernel), Z3D_OK);
            }
            Bytes bytes[2];
            one.c.append_to(bytes[0]), gelu[0].append_to(bytes[0]), sums[0].append_to(bytes[0]);
            apart.c.append_to(bytes[1]), gelu[1].append_to(bytes[1]), sums[1].append_to(bytes[1]);
            EXPECT_TRUE(bytes[0] == bytes[1]) << z3d_dtype_name(dtype) << " " << what;
        }
}

// Matrices with gaps, other types, a gradient of what is not transposed.
TEST(Gemm, BehindItNeedsWholeMatrices) {
    Multiplier device(Z3D_GEMM_SGEMM, 1);
    for (int i = 0; i < 5; i++) {
        const bool transposed = i != 3;
        Product p({4, 5, 6}, Z3D_BF16, i == 2 ? Z3D_F32 : Z3D_BF16, transposed, false, false, false,
                  i == 0 || i == 1 || i == 4);
        Array other(Z3D_BF16, 20);
        if (i == 0 || i == 2) p.gemm.gelu = other.data();
        if (i == 1) p.gemm.before_gelu = other.data();
        if (i == 3 || i == 4) p.gemm.bias_gradient = other.data();
        EXPECT_EQ(p.run(device.self), Z3D_ERR_INTERNAL) << i;
        EXPECT_NE(std::string(z3d_error_message()).find("without gaps"), std::string::npos);
    }
}

// The answer names a method that works, with a plausible speed.
TEST(Gemm, Measure) {
    Multiplier device(Z3D_GEMM_PORTABLE, 2);
    for (z3d_dtype dtype : float_types()) {
        z3d_gemm_method best = Z3D_GEMM_AUTO;
        double gflops = 0;
        ASSERT_EQ(z3d_device_measure_gemm(device.self, dtype, 64, 96, 128, &best, &gflops), Z3D_OK)
            << z3d_error_message();
        EXPECT_TRUE(best == Z3D_GEMM_SGEMM || best == Z3D_GEMM_MATMUL || best == Z3D_GEMM_PORTABLE);
        if (dtype == Z3D_F16) {
            EXPECT_NE(best, Z3D_GEMM_MATMUL);
        }
        EXPECT_GT(gflops, 0);
    }
    // Measuring leaves the device as it was.
    Product p({20, 30, 40}, Z3D_BF16, Z3D_F32, false, false, false, false, 0);
    ASSERT_EQ(p.run(device.self), Z3D_OK) << z3d_error_message();
    p.check_all();
    z3d_gemm_method best;
    double gflops;
    EXPECT_EQ(z3d_device_measure_gemm(device.self, Z3D_F32, 0, 1, 1, &best, &gflops),
              Z3D_ERR_INTERNAL);
    EXPECT_EQ(z3d_device_measure_gemm(device.self, Z3D_I32, 1, 1, 1, &best, &gflops),
              Z3D_ERR_INTERNAL);
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
