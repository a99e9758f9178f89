// The cost table tells the truth: every kernel is built with addresses of the recording device, its
// operands are given memory of exactly the extents that z3d_kernel_cost says, and it is run on the
// cpu device: what is not said to be written stays, what is not said to be read has no influence,
// what is said to be read has, and a page that cannot be touched follows each operand.
#include <sys/mman.h>

#include "tests/device/kernels_harness.h"

namespace {

enum class Fill { NUMBERS, INDICES, STATE };

// One pointer of a kernel: what stands there, and how many bytes the test thinks it has.
struct Slot {
    const void *fake;
    Fill fill;
    z3d_dtype dtype;
    int64_t bytes;
};

struct Case {
    std::string name;
    z3d_kernel kernel;
    std::vector<Slot> slots;
    z3d_device *recorder = nullptr;

    void *make(Fill fill, z3d_dtype dtype, int64_t bytes) {
        void *fake = nullptr;
        EXPECT_EQ(z3d_device_alloc(recorder, Z3D_SPACE_DEVICE, bytes, &fake), Z3D_OK);
        slots.push_back({fake, fill, dtype, bytes});
        return fake;
    }
    void *numbers(z3d_dtype dtype, int64_t count) {
        return make(Fill::NUMBERS, dtype, count * (int64_t)z3d_dtype_size(dtype));
    }
    float *floats(int64_t count) {
        return (float *)numbers(Z3D_F32, count);
    }
    int32_t *indices(int64_t count) {
        return (int32_t *)make(Fill::INDICES, Z3D_I32, count * 4);
    }
    z3d_step_state *state() {
        return (z3d_step_state *)make(Fill::STATE, Z3D_U8, (int64_t)sizeof(z3d_step_state));
    }
    z3d_dropout dropout(float p) {
        return {p, 3, 1, state()};
    }
};

using Contents = std::vector<std::vector<unsigned char>>;

// Memory that ends where the operand does.
class Fenced {
  public:
    explicit Fenced(const std::vector<unsigned char> &bytes) : bytes_(bytes.size()) {
        length_ = (bytes_ + PAGE - 1) / PAGE * PAGE + PAGE;
        void *mapped =
            mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(mapped, MAP_FAILED);
        mapped_ = (unsigned char *)mapped;
        EXPECT_EQ(mprotect(mapped_ + length_ - PAGE, PAGE, PROT_NONE), 0);
        std::memcpy(data(), bytes.data(), bytes_);
    }
    Fenced(const Fenced &) = delete;
    ~Fenced() {
        munmap(mapped_, length_);
    }
    unsigned char *data() {
        return mapped_ + length_ - PAGE - bytes_;
    }
    std::vector<unsigned char> contents() {
        return {data(), data() + bytes_};
    }

  private:
    static constexpr size_t PAGE = 4096;
    size_t bytes_, length_;
    unsigned char *mapped_;
};

// Values near 1, or near 2 when changed; indices 0, 1, 2, or one further.
std::vector<unsigned char> contents_of(const Slot &slot, bool changed, bool skips) {
    if (slot.fill == Fill::STATE) {
        z3d_step_state state;
        std::memset(&state, 0, sizeof state);
        state.step = state.optimizer_step = changed ? 7 : 1;
        state.sample_base = changed, state.seed = changed;
        state.learning_rate = state.gradient_seed = state.gradient_factor = changed ? 2 : 1;
        state.loss_sum = state.valid_targets = changed ? 9 : 4;
        state.skip = skips ? 1 : 0;
        const unsigned char *bytes = (const unsigned char *)&state;
        return {bytes, bytes + sizeof state};
    }
    std::mt19937 engine((uint32_t)((uintptr_t)slot.fake >> 12)); // each slot its own values
    std::uniform_real_distribution<double> uniform(0.5, 1.5);
    int64_t size = (int64_t)z3d_dtype_size(slot.dtype), count = slot.bytes / size;
    std::vector<unsigned char> bytes((size_t)slot.bytes);
    for (int64_t i = 0; i < count; i++) {
        double value = uniform(engine) * (changed ? 1.75 : 1);
        float single = (float)value;
        uint16_t half =
            slot.dtype == Z3D_BF16 ? z3d_float_to_bf16(single) : z3d_float_to_f16(single);
        int32_t index = (int32_t)((i + changed) % 3);
        const void *from = slot.dtype == Z3D_F64   ? (const void *)&value
                           : slot.dtype == Z3D_F32 ? (const void *)&single
                           : slot.dtype == Z3D_I32 ? (const void *)&index
                                                   : (const void *)&half;
        std::memcpy(bytes.data() + i * size, from, (size_t)size);
    }
    return bytes;
}

// Puts real addresses where fake ones of the slot stand in the kernel's struct, wherever that is.
void redirect(z3d_kernel &kernel, const Slot &slot, unsigned char *real) {
    auto *words = (unsigned char *)&kernel;
    for (size_t at = 0; at + sizeof real <= sizeof kernel; at += sizeof(void *)) {
        uintptr_t word;
        std::memcpy(&word, words + at, sizeof word);
        if (word < (uintptr_t)slot.fake || word >= (uintptr_t)slot.fake + (size_t)slot.bytes)
            continue;
        unsigned char *moved = real + (word - (uintptr_t)slot.fake);
        std::memcpy(words + at, &moved, sizeof moved);
    }
}

// Runs the case with the contents of slot `changed` (or none: -1) changed; all contents after it.
Contents run(const Case &with, z3d_device *device, int changed, bool skips) {
    std::vector<std::unique_ptr<Fenced>> memory;
    z3d_kernel kernel = with.kernel;
    for (size_t i = 0; i < with.slots.size(); i++) {
        memory.push_back(
            std::make_unique<Fenced>(contents_of(with.slots[i], (int)i == changed, skips)));
        redirect(kernel, with.slots[i], memory[i]->data());
    }
    EXPECT_EQ(launch_with_scratch(device, kernel), Z3D_OK) << z3d_error_message();
    Contents after;
    for (auto &block : memory) after.push_back(block->contents());
    return after;
}

const z3d_operand *operand_of(const z3d_cost &cost, const Slot &slot) {
    for (int i = 0; i < cost.num_operands; i++)
        if (cost.operands[i].pointer == slot.fake) return &cost.operands[i];
    return nullptr;
}

void check(const Case &with, z3d_device *device) {
    SCOPED_TRACE(with.name);
    z3d_cost cost;
    z3d_kernel_cost(&with.kernel, &cost);
    ASSERT_EQ((size_t)cost.num_operands, with.slots.size());
    const Contents base = run(with, device, -1, false), skipped = run(with, device, -1, true);
    int64_t bytes_read = 0, bytes_written = 0;
    for (size_t i = 0; i < with.slots.size(); i++) {
        SCOPED_TRACE("operand " + std::to_string(i));
        const z3d_operand *operand = operand_of(cost, with.slots[i]);
        ASSERT_NE(operand, nullptr) << "not listed";
        ASSERT_EQ(operand->bytes, with.slots[i].bytes);
        EXPECT_TRUE(operand->read || operand->written);
        EXPECT_EQ(operand->written, base[i] != contents_of(with.slots[i], false, false));
        bool influences =
            run(with, device, (int)i, false) != base || run(with, device, (int)i, true) != skipped;
        bool itself = base[i] != contents_of(with.slots[i], true, false); // not left as it was
        EXPECT_EQ(operand->read, influences && (operand->written || itself));
        bytes_read += operand->read ? operand->bytes : 0;
        bytes_written += operand->written ? operand->bytes : 0;
    }
    EXPECT_LE(cost.bytes_read, bytes_read);
    EXPECT_LE(cost.bytes_written, bytes_written);
    EXPECT_GT(cost.bytes_written, 0);
    EXPECT_GE(cost.flops, 0);
}

class Cost : public testing::Test {
  protected:
    z3d_device *recorder = nullptr;
    std::vector<Case> cases;

    void SetUp() override {
        z3d_device_config config;
        std::memset(&config, 0, sizeof config);
        config.backend = "record";
        ASSERT_EQ(z3d_device_create(&config, &recorder), Z3D_OK);
    }
    void TearDown() override {
        Device device(isas().back(), 2);
        for (const Case &with : cases) check(with, device);
        z3d_device_destroy(recorder);
    }
    Case &add(z3d_kernel_kind kind, const std::string &what = "") {
        cases.emplace_back();
        Case &with = cases.back();
        with.name = std::string(z3d_kernel_name(kind)) + " " + what;
        std::memset(&with.kernel, 0, sizeof with.kernel);
        with.kernel.kind = kind;
        with.recorder = recorder;
        return with;
    }
};

const z3d_dtype T = Z3D_BF16;

TEST_F(Cost, Gemm) {
    for (int flags = 0; flags < 16; flags++) {
        bool ta = flags & 1, tb = flags & 2, accumulate = flags & 4, more = flags & 8;
        Case &c = add(Z3D_KERNEL_gemm, std::to_string(flags));
        z3d_gemm &k = c.kernel.as.gemm;
        k.m = 6, k.n = 10, k.k = 4, k.dtype = T, k.c_dtype = more ? Z3D_F32 : T;
        k.transpose_a = ta, k.transpose_b = tb, k.accumulate = accumulate;
        int64_t gap = more ? 2 : 0;
        k.lda = (ta ? k.m : k.k) + gap, k.ldb = (tb ? k.k : k.n) + gap, k.ldc = k.n + gap;
        k.a = c.numbers(T, ta ? 3 * k.lda + 6 : 5 * k.lda + 4);
        k.b = c.numbers(T, tb ? 9 * k.ldb + 4 : 3 * k.ldb + 10);
        k.c = c.numbers(k.c_dtype, 5 * k.ldc + 10);
        if (more) k.bias = c.numbers(T, k.n);
    }
}

TEST_F(Cost, GemmWithSomethingBehindIt) {
    for (int flags = 1; flags < 16; flags++) {
        bool gelu = flags & 1, before = flags & 2, bias = flags & 4, accumulate = flags & 8;
        if (!gelu && !before && !bias) continue;
        Case &c = add(Z3D_KERNEL_gemm, "behind " + std::to_string(flags));
        z3d_gemm &k = c.kernel.as.gemm;
        k.m = 6, k.n = 10, k.k = 4, k.dtype = k.c_dtype = T;
        k.transpose_a = true, k.accumulate = accumulate;
        k.lda = k.m, k.ldb = k.ldc = k.n;
        k.a = c.numbers(T, 24), k.b = c.numbers(T, 40), k.c = c.numbers(T, 60);
        if (gelu) k.gelu = c.numbers(T, 60);
        if (before) k.before_gelu = c.numbers(T, 60);
        if (bias) k.bias_gradient = c.numbers(T, 6);
    }
}

TEST_F(Cost, Elementwise) {
    Case &fill = add(Z3D_KERNEL_fill);
    fill.kernel.as.fill = {fill.numbers(T, 20), 20, T, 3};
    Case &cast = add(Z3D_KERNEL_cast);
    cast.kernel.as.cast = {cast.numbers(T, 20), cast.floats(20), 20, T, Z3D_F32, 0, 0, 0};
    Case &rows = add(Z3D_KERNEL_cast, "rows");
    rows.kernel.as.cast = {rows.numbers(T, 18), rows.numbers(T, 14), 4, T, T, 3, 7, 5};
    Case &sum = add(Z3D_KERNEL_accumulate);
    sum.kernel.as.accumulate = {sum.floats(20), sum.numbers(T, 20), 20, Z3D_F32, T};
    Case &scale = add(Z3D_KERNEL_scale);
    scale.kernel.as.scale = {scale.numbers(T, 20), 20, T, 1.5F};
    for (bool accumulate : {false, true}) {
        Case &c = add(Z3D_KERNEL_bias_backward, accumulate ? "accumulate" : "");
        c.kernel.as.bias_backward = {c.numbers(T, 20), c.floats(4), 5, 4, T, Z3D_F32, accumulate};
    }
    Case &gelu = add(Z3D_KERNEL_gelu_forward);
    gelu.kernel.as.gelu_forward = {gelu.numbers(T, 20), gelu.numbers(T, 20), 20, T};
    Case &back = add(Z3D_KERNEL_gelu_backward);
    back.kernel.as.gelu_backward = {back.numbers(T, 20), back.numbers(T, 20), back.numbers(T, 20),
                                    20, T};
    Case &squares = add(Z3D_KERNEL_sum_squares);
    squares.kernel.as.sum_squares = {squares.numbers(T, 20), 20, T,
                                     (double *)squares.numbers(Z3D_F64, 1)};
    Case &begin = add(Z3D_KERNEL_control_begin);
    begin.kernel.as.control_begin = {begin.state(), (double *)begin.numbers(Z3D_F64, 7), 7, true};
    Case &end = add(Z3D_KERNEL_control_end);
    end.kernel.as.control_end = {(double *)end.numbers(Z3D_F64, 7), end.state(), 7, 1.5};
    Case &init = add(Z3D_KERNEL_init_normal);
    init.kernel.as.init_normal = {init.floats(12), 12, {5, 0, 4, 8, 1, 4}, 0.5f};
}

TEST_F(Cost, LayerNorm) {
    const int64_t rows = 5, cols = 20;
    Case &f = add(Z3D_KERNEL_layernorm_forward);
    f.kernel.as.layernorm_forward = {f.numbers(T, rows * cols),
                                     f.numbers(T, cols),
                                     f.numbers(T, cols),
                                     f.numbers(T, rows * cols),
                                     f.floats(rows),
                                     f.floats(rows),
                                     rows,
                                     cols,
                                     1e-5f,
                                     T};
    for (bool accumulate : {false, true}) {
        Case &c = add(Z3D_KERNEL_layernorm_backward, accumulate ? "accumulate" : "");
        z3d_layernorm_backward &k = c.kernel.as.layernorm_backward;
        k.dy = c.numbers(T, rows * cols), k.x = c.numbers(T, rows * cols);
        k.weight = c.numbers(T, cols);
        k.mean = c.floats(rows), k.rstd = c.floats(rows);
        if (accumulate) k.add_to = c.numbers(T, rows * cols);
        k.dx = c.numbers(T, rows * cols);
        k.weight_gradient = c.numbers(T, cols), k.bias_gradient = c.numbers(T, cols);
        k.rows = rows, k.cols = cols, k.dtype = k.gradient_dtype = T, k.accumulate = accumulate;
    }
}

TEST_F(Cost, RmsNorm) {
    const int64_t rows = 5, heads = 2, cols = 10;
    for (int64_t gap : {0, 6}) {
        const int64_t stride = heads * cols + gap, extent = rows * stride - gap;
        Case &f = add(Z3D_KERNEL_rmsnorm_forward, std::to_string(gap));
        z3d_rmsnorm_forward &k = f.kernel.as.rmsnorm_forward;
        k.x = f.numbers(T, extent), k.weight = f.numbers(T, cols), k.y = f.numbers(T, extent);
        k.rstd = f.floats(rows * heads);
        k.rows = rows, k.heads = heads, k.cols = cols, k.x_stride = k.y_stride = stride;
        k.epsilon = 1e-5f, k.dtype = T;
        Case &b = add(Z3D_KERNEL_rmsnorm_backward, std::to_string(gap));
        z3d_rmsnorm_backward &l = b.kernel.as.rmsnorm_backward;
        l.dy = b.numbers(T, extent), l.x = b.numbers(T, extent), l.weight = b.numbers(T, cols);
        l.rstd = b.floats(rows * heads);
        if (gap > 0) l.add_to = b.numbers(T, extent);
        l.dx = b.numbers(T, extent), l.weight_gradient = b.numbers(T, cols);
        l.rows = rows, l.heads = heads, l.cols = cols;
        l.x_stride = l.y_stride = l.dx_stride = stride;
        l.dtype = l.gradient_dtype = T, l.accumulate = gap > 0;
    }
}

TEST_F(Cost, Rotary) {
    for (int64_t gap : {0, 6}) {
        const int64_t rows = 5, heads = 2, d = 4, stride = heads * d + gap;
        Case &c = add(Z3D_KERNEL_rotary, std::to_string(gap));
        z3d_rotary &k = c.kernel.as.rotary;
        k.x = c.numbers(T, rows * stride - gap),
        k.starts = c.indices(3); // rows 2 .. 6 of 3 a sample
        k.rows = rows, k.first = 2, k.seq = 3, k.heads = heads, k.head_dim = d, k.stride = stride;
        k.rope.theta = 10000, k.dtype = T;
    }
}

TEST_F(Cost, PackedDocuments) {
    const int64_t rows = 5, heads = 2, d = 4;
    Case &r = add(Z3D_KERNEL_rotary, "packed");
    z3d_rotary &k = r.kernel.as.rotary;
    k.x = r.numbers(T, rows * heads * d), k.row_position = r.indices(7); // of rows 2 .. 6
    k.rows = rows, k.first = 2, k.seq = 7, k.heads = heads, k.head_dim = d, k.stride = heads * d;
    k.rope.theta = 10000, k.dtype = T;
    Case &p = add(Z3D_KERNEL_position_forward, "packed");
    p.kernel.as.position_forward = {
        p.numbers(T, 8), p.numbers(T, 20), nullptr, p.indices(5), 2, 3, 5, 0, 4, T};
}

TEST_F(Cost, Swiglu) {
    Case &f = add(Z3D_KERNEL_swiglu_forward);
    f.kernel.as.swiglu_forward = {f.numbers(T, 40), f.numbers(T, 20), 5, 4, T};
    Case &b = add(Z3D_KERNEL_swiglu_backward);
    b.kernel.as.swiglu_backward = {b.numbers(T, 40), b.numbers(T, 20), b.numbers(T, 40), 5, 4, T};
}

TEST_F(Cost, Dropout) {
    for (float p : {0.0f, 0.5f}) {
        Case &f = add(Z3D_KERNEL_dropout_forward, std::to_string(p));
        z3d_dropout_forward &k = f.kernel.as.dropout_forward;
        k.x = f.numbers(T, 60), k.y = f.numbers(T, 60);
        k.bias = f.numbers(T, 10), k.residual = f.numbers(T, 60);
        k.rows = 6, k.first = 2, k.seq = 5, k.cols = 10, k.dtype = T;
        if (p > 0) k.dropout = f.dropout(p);
        Case &b = add(Z3D_KERNEL_dropout_backward, std::to_string(p));
        z3d_dropout_backward &l = b.kernel.as.dropout_backward;
        l.dy = b.numbers(T, 60), l.dx = b.numbers(T, 60);
        l.rows = 6, l.first = 2, l.seq = 5, l.cols = 10, l.dtype = T;
        if (p > 0) l.dropout = b.dropout(p);
    }
}

TEST_F(Cost, Attention) {
    for (float p : {0.0f, 0.5f}) {
        const int64_t batch = 2, seq = 5, heads = 2, d = 4, count = batch * seq * heads * d;
        Case &f = add(Z3D_KERNEL_attention_forward, std::to_string(p));
        z3d_attention_forward &k = f.kernel.as.attention_forward;
        char *qkv = (char *)f.numbers(T, 3 * count);
        k.q = qkv, k.k = qkv + 2 * heads * d, k.v = qkv + 4 * heads * d; // one operand
        k.q_stride = k.kv_stride = 3 * heads * d, k.kv_heads = heads, k.capacity = seq;
        k.out = f.numbers(T, count);
        k.log_sum_exp = f.floats(batch * heads * seq);
        k.batch = batch, k.seq = seq, k.heads = heads, k.head_dim = d, k.dtype = T;
        if (p > 0) k.dropout = f.dropout(p);
        Case &b = add(Z3D_KERNEL_attention_backward, std::to_string(p));
        z3d_attention_backward &l = b.kernel.as.attention_backward;
        qkv = (char *)b.numbers(T, 3 * count);
        l.q = qkv, l.k = qkv + 2 * heads * d, l.v = qkv + 4 * heads * d;
        qkv = (char *)b.numbers(T, 3 * count);
        l.dq = qkv, l.dk = qkv + 2 * heads * d, l.dv = qkv + 4 * heads * d;
        l.q_stride = l.kv_stride = 3 * heads * d, l.kv_heads = heads;
        l.out = b.numbers(T, count), l.dout = b.numbers(T, count);
        l.log_sum_exp = b.floats(batch * heads * seq);
        l.batch = batch, l.seq = seq, l.heads = heads, l.head_dim = d, l.dtype = T;
        if (p > 0) l.dropout = b.dropout(p);
    }
}

TEST_F(Cost, GroupedAttention) {
    const int64_t batch = 2, seq = 5, heads = 4, kv = 2, d = 4, rows = batch * seq;
    Case &f = add(Z3D_KERNEL_attention_forward, "apart");
    z3d_attention_forward &k = f.kernel.as.attention_forward;
    k.q = f.numbers(T, rows * heads * d);
    k.k = f.numbers(T, rows * kv * d), k.v = f.numbers(T, rows * kv * d);
    k.out = f.numbers(T, rows * heads * d);
    k.batch = batch, k.seq = k.capacity = seq, k.heads = heads, k.kv_heads = kv, k.head_dim = d;
    k.q_stride = heads * d, k.kv_stride = kv * d, k.window = 3, k.dtype = T;
    Case &b = add(Z3D_KERNEL_attention_backward, "with gaps");
    z3d_attention_backward &l = b.kernel.as.attention_backward;
    const int64_t q_extent = (rows - 1) * (heads * d + 8) + heads * d;
    l.q = b.numbers(T, q_extent), l.dq = b.numbers(T, q_extent);
    l.k = b.numbers(T, rows * kv * d), l.v = b.numbers(T, rows * kv * d);
    l.dk = b.numbers(T, rows * kv * d), l.dv = b.numbers(T, rows * kv * d);
    l.out = b.numbers(T, rows * heads * d), l.dout = b.numbers(T, rows * heads * d);
    l.log_sum_exp = b.floats(rows * heads);
    l.batch = batch, l.seq = seq, l.heads = heads, l.kv_heads = kv, l.head_dim = d;
    l.q_stride = heads * d + 8, l.kv_stride = kv * d, l.window = 3, l.dtype = T;
}

TEST_F(Cost, Caches) {
    const int64_t batch = 2, capacity = 7, heads = 4, kv = 2, d = 4;
    for (int64_t seq : {1, 3}) {
        Case &f = add(Z3D_KERNEL_attention_forward, "cache " + std::to_string(seq));
        z3d_attention_forward &k = f.kernel.as.attention_forward;
        k.q = f.numbers(T, batch * seq * heads * d), k.k = f.numbers(T, batch * capacity * kv * d);
        k.v = f.numbers(T, batch * capacity * kv * d), k.starts = f.indices(batch);
        k.out = f.numbers(T, batch * seq * heads * d);
        k.batch = batch, k.seq = seq, k.capacity = capacity, k.heads = heads, k.kv_heads = kv;
        k.head_dim = d, k.q_stride = heads * d, k.kv_stride = kv * d, k.dtype = T;
        Case &s = add(Z3D_KERNEL_cache_store, std::to_string(seq));
        s.kernel.as.cache_store = {s.numbers(T, batch * seq * 6 - 2),
                                   s.numbers(T, batch * capacity * 4),
                                   s.indices(batch),
                                   batch,
                                   seq,
                                   capacity,
                                   4,
                                   6,
                                   T};
    }
}

TEST_F(Cost, Embedding) {
    const int64_t rows = 6, cols = 4, table = 7;
    Case &f = add(Z3D_KERNEL_embedding_forward);
    f.kernel.as.embedding_forward = {f.indices(rows),
                                     f.numbers(T, table * cols),
                                     f.numbers(T, rows * cols),
                                     rows,
                                     cols,
                                     0,
                                     table,
                                     T};
    Case &p = add(Z3D_KERNEL_position_forward);
    p.kernel.as.position_forward = {
        p.numbers(T, 24), p.numbers(T, 12), nullptr, nullptr, 6, 0, 3, 0, 4, T};
    Case &part = add(Z3D_KERNEL_position_forward, "part"); // rows 5 and 6 are positions 0 and 1
    part.kernel.as.position_forward = {
        part.numbers(T, 8), part.numbers(T, 8), nullptr, nullptr, 2, 5, 5, 0, 4, T};
    Case &later = add(Z3D_KERNEL_position_forward, "starts");
    later.kernel.as.position_forward = {
        later.numbers(T, 16), later.numbers(T, 32), later.indices(2), nullptr, 4, 1, 3, 8, 4, T};
    for (bool accumulate : {false, true}) {
        Case &b = add(Z3D_KERNEL_embedding_backward, accumulate ? "accumulate" : "");
        b.kernel.as.embedding_backward = {b.indices(rows),
                                          b.numbers(T, rows * cols),
                                          b.numbers(T, table * cols),
                                          rows,
                                          cols,
                                          0,
                                          table,
                                          T,
                                          T,
                                          accumulate};
        Case &q = add(Z3D_KERNEL_position_backward, accumulate ? "accumulate" : "");
        q.kernel.as.position_backward = {q.numbers(T, 24), q.numbers(T, 12), 6, 2, 3, 4, T, T,
                                         accumulate};
    }
}

TEST_F(Cost, SelectRow) {
    Case &c = add(Z3D_KERNEL_select_row);
    c.kernel.as.select_row = {c.numbers(T, 24), c.numbers(T, 8), c.indices(2), 2, 3, 4, T};
}

TEST_F(Cost, CrossEntropy) {
    const int64_t rows = 4, cols = 8, valid = 5, seen = (rows - 1) * cols + valid;
    Case &most = add(Z3D_KERNEL_cross_entropy_max);
    most.kernel.as.cross_entropy_max = {
        most.numbers(T, seen + 1), most.floats(rows), rows, cols, valid, T, false};
    most.slots[0].bytes -= 2;
    Case &sum = add(Z3D_KERNEL_cross_entropy_sum);
    sum.kernel.as.cross_entropy_sum = {sum.numbers(T, seen),
                                       sum.floats(rows),
                                       sum.indices(rows),
                                       sum.floats(2 * rows),
                                       rows,
                                       cols,
                                       valid,
                                       0,
                                       T,
                                       false};
    Case &loss = add(Z3D_KERNEL_cross_entropy_loss);
    loss.kernel.as.cross_entropy_loss = {loss.floats(2 * rows), loss.indices(rows), rows,
                                         loss.state()};
    Case &back = add(Z3D_KERNEL_cross_entropy_backward);
    back.kernel.as.cross_entropy_backward = {back.numbers(T, rows * cols),
                                             back.floats(rows),
                                             back.floats(rows),
                                             back.indices(rows),
                                             rows,
                                             cols,
                                             valid,
                                             0,
                                             T,
                                             back.state()};
}

TEST_F(Cost, Adamw) {
    for (bool parameter : {false, true}) {
        Case &c = add(Z3D_KERNEL_adamw, parameter ? "parameter" : "");
        z3d_adamw &k = c.kernel.as.adamw;
        k.master = c.floats(20), k.momentum = c.floats(20), k.variance = c.floats(20);
        k.gradient = c.numbers(T, 20);
        if (parameter) k.parameter = c.numbers(T, 20);
        k.count = 20, k.decayed = 8, k.dtype = k.gradient_dtype = T;
        k.constants.beta1 = 0.9f, k.constants.beta2 = 0.95f, k.constants.epsilon = 1e-8f,
        k.constants.weight_decay = 0.1f;
        k.constants.lr_scale = 1;
        k.state = c.state();
    }
}

TEST_F(Cost, Sgd) {
    Case &c = add(Z3D_KERNEL_sgd, "");
    z3d_sgd &k = c.kernel.as.sgd;
    k.master = c.floats(20), k.momentum = c.floats(20);
    k.gradient = c.numbers(T, 20);
    k.count = 20, k.decayed = 8, k.dtype = k.gradient_dtype = T;
    k.constants.momentum = 0.9f, k.constants.weight_decay = 0.1f;
    k.constants.lr_scale = 1;
    k.state = c.state();
}

TEST_F(Cost, Lion) {
    Case &c = add(Z3D_KERNEL_lion, "");
    z3d_lion &k = c.kernel.as.lion;
    k.master = c.floats(20), k.momentum = c.floats(20);
    k.gradient = c.numbers(T, 20);
    k.count = 20, k.decayed = 8, k.dtype = k.gradient_dtype = T;
    k.constants.beta1 = 0.9f, k.constants.beta2 = 0.99f, k.constants.weight_decay = 0.1f;
    k.constants.lr_scale = 1;
    k.state = c.state();
}

TEST_F(Cost, Adam) {
    Case &c = add(Z3D_KERNEL_adam, "");
    z3d_adam &k = c.kernel.as.adam;
    k.master = c.floats(20), k.momentum = c.floats(20), k.variance = c.floats(20);
    k.gradient = c.numbers(T, 20);
    k.count = 20, k.decayed = 8, k.dtype = k.gradient_dtype = T;
    k.constants.beta1 = 0.9f, k.constants.beta2 = 0.95f, k.constants.epsilon = 1e-8f;
    k.constants.lr_scale = 1;
    k.state = c.state();
}

TEST_F(Cost, MomentsInBf16) {
    for (z3d_kernel_kind kind : {Z3D_KERNEL_adamw_bf16, Z3D_KERNEL_adam_bf16}) {
        Case &c = add(kind, "");
        z3d_optimizer_update &k = c.kernel.as.update;
        k.master = c.floats(20), k.moments = c.floats(20);
        k.gradient = c.numbers(T, 20);
        k.count = 20, k.decayed = 8, k.dtype = k.gradient_dtype = T;
        k.place = {1, 0, 20, 20, 1, 0};
        k.ema = c.floats(20), k.constants.ema_decay = 0.9f;
        k.constants.beta1 = 0.9f, k.constants.beta2 = 0.95f, k.constants.epsilon = 1e-8f;
        k.constants.lr_scale = 1;
        k.state = c.state();
    }
}

TEST_F(Cost, Adagrad) {
    Case &c = add(Z3D_KERNEL_adagrad, "");
    z3d_adagrad &k = c.kernel.as.adagrad;
    k.master = c.floats(20), k.square_sum = c.floats(20);
    k.gradient = c.numbers(T, 20);
    k.count = 20, k.decayed = 8, k.dtype = k.gradient_dtype = T;
    k.constants.epsilon = 1e-8f;
    k.constants.lr_scale = 1;
    k.state = c.state();
}

// The numbers that time and volume are reckoned from.
TEST(CostNumbers, Flops) {
    z3d_kernel kernel;
    z3d_cost cost;
    std::memset(&kernel, 0, sizeof kernel);
    kernel.kind = Z3D_KERNEL_gemm;
    char a[1], b[1], c[1];
    z3d_gemm &g = kernel.as.gemm;
    g.m = 1024, g.n = 50304, g.k = 768, g.lda = g.ldb = 768, g.ldc = 50304, g.transpose_b = true;
    g.dtype = Z3D_BF16, g.c_dtype = Z3D_F32, g.a = a, g.b = b, g.c = c;
    z3d_kernel_cost(&kernel, &cost);
    EXPECT_EQ(cost.flops, 2.0 * 1024 * 50304 * 768);
    EXPECT_EQ(cost.bytes_read, 2 * (1024 * 768 + 50304 * 768));
    EXPECT_EQ(cost.bytes_written, (int64_t)4 * 1024 * 50304);

    std::memset(&kernel, 0, sizeof kernel);
    kernel.kind = Z3D_KERNEL_attention_forward;
    z3d_attention_forward &k = kernel.as.attention_forward;
    k.batch = 2, k.seq = 100, k.heads = 3, k.head_dim = 64;
    z3d_kernel_cost(&kernel, &cost);
    double products = 2.0 * 3 * (100 * 101 / 2) * 4 * 64; // the causal half
    EXPECT_GE(cost.flops, products);
    EXPECT_LE(cost.flops, 1.05 * products);
    EXPECT_EQ(cost.num_operands, 0); // no pointers: nothing to list
    const double pair = cost.flops / (2.0 * 3 * (100 * 101 / 2));
    for (int64_t window : {1, 30, 99, 100, 500}) {
        double pairs = 0;
        for (int64_t row = 0; row < 100; row++) pairs += (double)std::min(row + 1, window);
        k.window = window;
        z3d_kernel_cost(&kernel, &cost);
        EXPECT_DOUBLE_EQ(cost.flops, 2.0 * 3 * pairs * pair) << window;
        const int32_t starts[2] = {0, 0};
        z3d_kernel cached = kernel; // rows 60 .. 99 of a full cache
        cached.as.attention_forward.starts = starts, cached.as.attention_forward.seq = 40;
        cached.as.attention_forward.capacity = 100;
        for (int64_t row = 0; row < 60; row++) pairs -= (double)std::min(row + 1, window);
        z3d_kernel_cost(&cached, &cost);
        EXPECT_DOUBLE_EQ(cost.flops, 2.0 * 3 * pairs * pair) << window;
    }
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
