// The CUDA attention kernels, tiled and plain, against the cpu device, compiled for the host.
#include "tests/device/cuda_harness.h"

namespace {

struct Shape {
    int64_t batch, seq, heads, head_dim;
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
        qkv = Array(dtype, 3 * count), dqkv = Array(dtype, 3 * count);
        out = Array(dtype, count), dout = Array(dtype, count);
        lse = Array(Z3D_F32, s.batch * s.heads * s.seq);
        qkv.random(1), dout.random(2);
    }
    char *part(Array &of, int64_t which) {
        return (char *)of.data() + which * s.heads * s.head_dim * (int64_t)z3d_dtype_size(dtype);
    }
    z3d_attention_forward forward(int64_t first_head) {
        z3d_attention_forward f;
        std::memset(&f, 0, sizeof f);
        f.q = part(qkv, 0), f.k = part(qkv, 1), f.v = part(qkv, 2);
        f.out = out.data(), f.log_sum_exp = lse.f32();
        f.batch = s.batch, f.seq = f.capacity = s.seq, f.heads = f.kv_heads = s.heads;
        f.head_dim = s.head_dim, f.first_head = first_head;
        f.q_stride = f.kv_stride = 3 * s.heads * s.head_dim;
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

using Forward = z3d_status (*)(const z3d_cuda_lane *, const z3d_attention_forward *);
using Backward = z3d_status (*)(const z3d_cuda_lane *, const z3d_attention_backward *);

// offsets: unaligned operands take the plain way.
void check(Shape shape, z3d_dtype dtype, float p, Forward forward, Backward backward,
           const std::vector<size_t> &offsets) {
    Attention x(shape, dtype, p);
    SCOPED_TRACE(std::string(z3d_dtype_name(x.dtype)) + " " + std::to_string(x.s.batch) + "x" +
                 std::to_string(x.s.seq) + "x" + std::to_string(x.s.heads) + "x" +
                 std::to_string(x.s.head_dim) + " p " + std::to_string(x.dropout.p));
    z3d_kernel f, b;
    std::memset(&f, 0, sizeof f), std::memset(&b, 0, sizeof b);
    f.kind = Z3D_KERNEL_attention_forward;
    f.as.attention_forward = x.forward(4);
    compare(
        f,
        [forward](const z3d_cuda_lane *lane, const z3d_kernel *k) {
            return forward(lane, &k->as.attention_forward);
        },
        {{x.out.data(), x.dtype, 0, x.absolute(4)}, {x.lse.data(), Z3D_F32, 2e-6, 2e-6}}, offsets);
    if (testing::Test::HasFatalFailure()) return;
    Device cpu("generic", 1);
    ASSERT_EQ(launch_with_scratch(cpu, f), Z3D_OK);
    b.kind = Z3D_KERNEL_attention_backward;
    b.as.attention_backward = x.backward(4);
    compare(
        b,
        [backward](const z3d_cuda_lane *lane, const z3d_kernel *k) {
            return backward(lane, &k->as.attention_backward);
        },
        {{x.dqkv.data(), x.dtype, 0, x.absolute(16)}}, offsets);
}

TEST(CudaAttention, Tiled) {
    struct Case {
        Shape shape;
        float p;
    };
    for (z3d_dtype dtype : float_types())
        for (Case c : {Case{{1, 1, 1, 8}, 0}, Case{{1, 7, 2, 16}, 0.3f}, Case{{1, 67, 1, 64}, 0},
                       Case{{1, 17, 1, 72}, 0.3f}}) {
            check(c.shape, dtype, c.p, z3d_cuda_attention_forward, z3d_cuda_attention_backward,
                  {0});
            if (HasFatalFailure()) return;
        }
}

// Also what the tiled kernels leave to it: what is not aligned, heads that are no multiple of 8,
// and wider than 128.
TEST(CudaAttention, Plain) {
    for (z3d_dtype dtype : float_types()) {
        check({1, 35, 2, 8}, dtype, 0.3f, z3d_cuda_plain_attention_forward,
              z3d_cuda_plain_attention_backward, {0});
        check({2, 5, 1, 8}, dtype, 0, z3d_cuda_attention_forward, z3d_cuda_attention_backward, {8});
        check({1, 5, 3, 7}, dtype, 0, z3d_cuda_attention_forward, z3d_cuda_attention_backward, {0});
        check({1, 3, 1, 136}, dtype, 0.3f, z3d_cuda_attention_forward, z3d_cuda_attention_backward,
              {0});
        if (HasFatalFailure()) return;
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
    for (Forward forward : {z3d_cuda_attention_forward, z3d_cuda_plain_attention_forward})
        compare(f,
                [forward](const z3d_cuda_lane *lane, const z3d_kernel *k) {
                    return forward(lane, &k->as.attention_forward);
                },
                {{x.out.data(), Z3D_F32, 0, 2e-4}, {x.lse.data(), Z3D_F32, 1e-6, 0}}, {0});
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
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
