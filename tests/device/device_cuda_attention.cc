// The CUDA attention kernels against the cpu device, compiled for the host.
#include "tests/device/cuda_harness.h"

namespace {

struct Shape {
    int64_t batch, seq, heads, head_dim;
    int64_t kv_heads = 0, window = 0; // 0: as many as heads; all keys
    int64_t kv() const {
        return kv_heads > 0 ? kv_heads : heads;
    }
    int64_t columns() const { // of a row of queries, keys and values beside each other
        return (heads + 2 * kv()) * head_dim;
    }
};

// Backward's inputs are the forward's of the cpu device.
struct Attention {
    Shape s;
    z3d_dtype dtype;
    z3d_step_state state;
    z3d_dropout dropout;
    Array qkv, out, lse, dout, dqkv;

    Attention(Shape shape, z3d_dtype type, float p) : s(shape), dtype(type) {
        std::memset(&state, 0, sizeof state);
        state.seed = 77, state.sample_base = 1000;
        dropout = {p, 5, 3, p > 0 ? &state : nullptr};
        const int64_t count = s.batch * s.seq * s.heads * s.head_dim;
        qkv = Array(dtype, s.batch * s.seq * s.columns());
        dqkv = Array(dtype, s.batch * s.seq * s.columns());
        out = Array(dtype, count), dout = Array(dtype, count);
        lse = Array(Z3D_F32, s.batch * s.heads * s.seq);
        qkv.random(1), dout.random(2);
    }
    char *part(Array &of, int64_t which) {
        const int64_t head = which == 0 ? 0 : s.heads + (which - 1) * s.kv();
        return (char *)of.data() + head * s.head_dim * (int64_t)z3d_dtype_size(dtype);
    }
    z3d_attention_forward forward(int64_t first_head) {
        z3d_attention_forward f;
        std::memset(&f, 0, sizeof f);
        f.q = part(qkv, 0), f.k = part(qkv, 1), f.v = part(qkv, 2);
        f.out = out.data(), f.log_sum_exp = lse.f32();
        f.batch = s.batch, f.seq = f.capacity = s.seq, f.heads = s.heads;
        f.kv_heads = s.kv(), f.window = s.window;
        f.head_dim = s.head_dim, f.first_head = first_head;
        f.q_stride = f.kv_stride = s.columns();
        f.dtype = dtype, f.dropout = dropout;
        return f;
    }
    z3d_attention_backward backward(int64_t first_head) {
        const z3d_attention_forward f = forward(first_head);
        return {f.q,           f.k,           f.v,           f.out,         dout.data(),
                f.log_sum_exp, part(dqkv, 0), part(dqkv, 1), part(dqkv, 2), f.batch,
                f.seq,         f.heads,       f.kv_heads,    f.head_dim,    f.first_head,
                f.q_stride,    f.kv_stride,   f.window,      f.dtype,       f.dropout};
    }
    // Scores are sums of head_dim products; probabilities are rounded to the 16-bit types before
    // they meet the values.
    double absolute(double factor) const {
        return factor * (dtype == Z3D_BF16 ? 0x1p-8 : dtype == Z3D_F16 ? 0x1p-11 : 0x1p-22);
    }
};

z3d_status launch_forward(const z3d_cuda_lane *lane, const z3d_kernel *k) {
    return z3d_cuda_attention_forward(lane, &k->as.attention_forward);
}

z3d_status launch_backward(const z3d_cuda_lane *lane, const z3d_kernel *k) {
    return z3d_cuda_attention_backward(lane, &k->as.attention_backward);
}

void check(Shape shape, z3d_dtype dtype, float p, const std::vector<size_t> &offsets) {
    Attention x(shape, dtype, p);
    SCOPED_TRACE(std::string(z3d_dtype_name(x.dtype)) + " " + std::to_string(x.s.batch) + "x" +
                 std::to_string(x.s.seq) + "x" + std::to_string(x.s.heads) + "x" +
                 std::to_string(x.s.head_dim) + " p " + std::to_string(x.dropout.p) +
                 ", kv heads " + std::to_string(x.s.kv()) + ", window " +
                 std::to_string(x.s.window));
    z3d_kernel f, b;
    std::memset(&f, 0, sizeof f), std::memset(&b, 0, sizeof b);
    f.kind = Z3D_KERNEL_attention_forward;
    f.as.attention_forward = x.forward(4);
    compare(f, launch_forward,
            {{x.out.data(), x.dtype, 0, x.absolute(4)}, {x.lse.data(), Z3D_F32, 2e-6, 2e-6}},
            offsets);
    if (testing::Test::HasFatalFailure()) return;
    Device cpu("generic", 1);
    ASSERT_EQ(launch_with_scratch(cpu, f), Z3D_OK);
    b.kind = Z3D_KERNEL_attention_backward;
    b.as.attention_backward = x.backward(4);
    compare(b, launch_backward, {{x.dqkv.data(), x.dtype, 0, x.absolute(16)}}, offsets);
}

TEST(CudaAttention, Tiled) {
    struct Case {
        Shape shape;
        float p;
    };
    for (z3d_dtype dtype : float_types())
        for (Case c : {Case{{1, 1, 1, 8}, 0}, Case{{1, 7, 2, 16}, 0.3f}, Case{{1, 67, 1, 64}, 0},
                       Case{{1, 17, 1, 72}, 0.3f}}) {
            check(c.shape, dtype, c.p, {0});
            if (HasFatalFailure()) return;
        }
}

// What is read element by element: what is not aligned, and heads that are no multiple of 8. Heads
// wider than 128 take two blocks for a tile's results.
TEST(CudaAttention, PaddedAndWide) {
    for (z3d_dtype dtype : float_types()) {
        check({2, 5, 1, 8}, dtype, 0, {8});
        check({1, 5, 3, 7}, dtype, 0, {0});
        check({1, 67, 1, 13}, dtype, 0.3f, {0});
        check({1, 3, 1, 136}, dtype, 0.3f, {0});
        check({1, 18, 2, 251, 1}, dtype, 0, {0});
        if (HasFatalFailure()) return;
    }
}

TEST(CudaAttention, GroupedHeadsAndWindows) {
    const Shape tiled[] = {{1, 67, 4, 8, 2}, {1, 140, 2, 8, 1, 5}, {1, 140, 1, 16, 1, 70}};
    for (z3d_dtype dtype : float_types()) {
        for (Shape shape : tiled) check(shape, dtype, 0, {0});
        check({2, 17, 3, 8, 1, 4}, dtype, 0.3f, {0});
        check({2, 40, 4, 7, 2, 33}, dtype, 0.3f, {0});
        if (HasFatalFailure()) return;
    }
}

// Some rows at other positions in each sample, against a cache; NaN behind a sample's last row.
TEST(CudaAttention, Caches) {
    const Shape shapes[] = {// seq: the call's rows; 1: by chunks; the last: padded
                            {3, 1, 4, 8, 2},     {3, 1, 2, 16, 1, 40}, {3, 2, 2, 72, 1},
                            {3, 1, 1, 136},      {3, 20, 2, 8},        {3, 20, 2, 8, 2, 3},
                            {3, 20, 3, 7, 1, 40}};
    const int64_t capacity = 300; // two chunks
    const int32_t starts[] = {0, 63, 280};
    for (z3d_dtype dtype : float_types())
        for (Shape s : shapes) {
            const int64_t columns = s.kv() * s.head_dim, width = s.heads * s.head_dim;
            Array q(dtype, s.batch * s.seq * width), out(dtype, s.batch * s.seq * width);
            Array k(dtype, s.batch * capacity * columns), v(dtype, s.batch * capacity * columns);
            q.random(1), k.random(2), v.random(3);
            for (int64_t b = 0; b < s.batch; b++)
                for (int64_t i = (starts[b] + s.seq) * columns; i < capacity * columns; i++)
                    k.set(b * capacity * columns + i, NAN), v.set(b * capacity * columns + i, NAN);
            z3d_kernel f;
            std::memset(&f, 0, sizeof f);
            f.kind = Z3D_KERNEL_attention_forward;
            f.as.attention_forward = {q.data(), k.data(), v.data(), out.data(), nullptr, starts,
                                      s.batch,  s.seq,    capacity, s.heads,    s.kv(),  s.head_dim,
                                      0,        width,    columns,  s.window,   dtype,   {}};
            const double step = dtype == Z3D_BF16 ? 0x1p-8 : dtype == Z3D_F16 ? 0x1p-11 : 0x1p-22;
            compare(f, launch_forward, {{out.data(), dtype, 0, 4 * step}}, {0, 8});
            if (HasFatalFailure()) return;
        }
}

// Rows beyond the capacity, which a cache does not have, spoil no others.
TEST(CudaAttention, FullCache) {
    const int64_t capacity = 70;
    const int32_t starts[] = {66};
    for (int64_t window : {0, 2})
        for (int64_t head_dim : {8, 7}) {
            Array q(Z3D_F32, 9 * head_dim), out(Z3D_F32, 9 * head_dim), want = out.copy();
            Array k(Z3D_F32, capacity * head_dim), v(Z3D_F32, capacity * head_dim);
            q.random(1), k.random(2), v.random(3);
            z3d_attention_forward f = {q.data(), k.data(), v.data(), out.data(), nullptr, starts,
                                       1,        9,        capacity, 1,          1,       head_dim,
                                       0,        head_dim, head_dim, window,     Z3D_F32, {}};
            const z3d_cuda_lane lane = {nullptr, nullptr, 0};
            ASSERT_EQ(z3d_cuda_attention_forward(&lane, &f), Z3D_OK);
            z3d_kernel kernel;
            std::memset(&kernel, 0, sizeof kernel);
            kernel.kind = Z3D_KERNEL_attention_forward;
            kernel.as.attention_forward = f;
            kernel.as.attention_forward.out = want.data();
            Device cpu("generic", 1);
            ASSERT_EQ(launch_with_scratch(cpu, kernel), Z3D_OK);
            for (int64_t i = 0; i < 4 * head_dim; i++) EXPECT_NEAR(out[i], want[i], 1e-6) << i;
        }
}

// Scores of hundreds, with the largest in a later tile: exponentials overflow unless the maximum
// so far is taken off.
TEST(CudaAttention, LargeScores) {
    Attention x({1, 80, 1, 16}, Z3D_F32, 0);
    for (int64_t t = 0; t < 80; t++)
        for (int64_t i = 0; i < 16; i++) {
            x.qkv.set((t * 3 + 0) * 16 + i, 20);
            x.qkv.set((t * 3 + 1) * 16 + i, (double)(t * 7 % 13) * 0.25 + (double)t * 0.01);
        }
    z3d_kernel f;
    std::memset(&f, 0, sizeof f);
    f.kind = Z3D_KERNEL_attention_forward;
    f.as.attention_forward = x.forward(0);
    compare(f, launch_forward, {{x.out.data(), Z3D_F32, 0, 2e-4}, {x.lse.data(), Z3D_F32, 1e-6, 0}},
            {0});
}

TEST(CudaAttention, OverflowIsVisible) {
    Attention x({1, 70, 1, 8}, Z3D_F16, 0);
    x.qkv.set(66 * 3 * 8 + 3, INFINITY); // a query
    const z3d_cuda_lane lane = {nullptr, nullptr, 0};
    const z3d_attention_forward f = x.forward(0);
    ASSERT_EQ(z3d_cuda_attention_forward(&lane, &f), Z3D_OK);
    for (int64_t t = 0; t < 70; t++) {
        EXPECT_EQ(std::isfinite(x.out[t * 8]), t != 66) << t;
    }
}

TEST(CudaAttention, NothingToDoAndBadArguments) {
    const z3d_cuda_lane lane = {nullptr, nullptr, 0};
    Attention x({1, 4, 1, 8}, Z3D_F32, 0);
    z3d_attention_backward b = x.backward(0);
    b.batch = 0;
    EXPECT_EQ(z3d_cuda_attention_backward(&lane, &b), Z3D_OK);
    b.batch = 1;
    EXPECT_EQ(z3d_cuda_attention_backward(&lane, &b), Z3D_ERR_INTERNAL); // no scratch
    b.head_dim = 0;
    EXPECT_EQ(z3d_cuda_attention_backward(&lane, &b), Z3D_ERR_INTERNAL);
    z3d_attention_forward f = x.forward(70000);
    f.dropout.p = 0.5f;
    EXPECT_EQ(z3d_cuda_attention_forward(&lane, &f), Z3D_ERR_INTERNAL); // beyond the counter
    f.dropout.p = 0;
    f.seq = 0;
    EXPECT_EQ(z3d_cuda_attention_forward(&lane, &f), Z3D_OK);
    f.head_dim = 257;
    EXPECT_EQ(z3d_cuda_attention_forward(&lane, &f), Z3D_ERR_UNSUPPORTED);
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
