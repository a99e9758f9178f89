// Causal attention against the plain formula in double: forward, backward, dropout, grouped heads,
// windows, caches, shapes that do not fit the tiles.
#define restrict __restrict // dropout.h is C
#include "tests/device/kernels_harness.h"

extern "C" {
#include "src/device/cpu/isa/attention.h"
#include "src/device/cpu/isa/dropout.h"
}

namespace {

struct Shape {
    int64_t batch, seq, heads, head_dim;
    int64_t kv_heads = 0, window = 0, document = 0; // 0: as many as heads; all keys; one document
    int64_t kv() const {
        return kv_heads > 0 ? kv_heads : heads;
    }
    int64_t columns() const { // of a row of queries, keys and values beside each other
        return (heads + 2 * kv()) * head_dim;
    }
    // Where element i of query head h (part 0), or of its key or value, lies in sample b, row t.
    int64_t at(int64_t b, int64_t t, int64_t part, int64_t h, int64_t i) const {
        const int64_t head = part == 0 ? h : heads + (part - 1) * kv() + h / (heads / kv());
        return (b * seq + t) * columns() + head * head_dim + i;
    }
    int64_t first_key(int64_t t) const {
        const int64_t begin = document > 0 ? t / document * document : 0;
        return window > 0 ? std::max(begin, t - window + 1) : begin;
    }
};

using Numbers = std::vector<double>;

// Multipliers of the probabilities, from z3d_philox itself: the counter is (global sample, head,
// row, column / 4), the word column % 4.
double multiplier(const z3d_dropout &dropout, int64_t sample, int64_t head, int64_t row,
                  int64_t column) {
    if (!(dropout.p > 0)) return 1;
    z3d_dropout_rule rule = z3d_dropout_rule_of(&dropout);
    uint64_t key = (uint64_t)rule.key[1] << 32 | rule.key[0];
    uint64_t low = (uint64_t)(dropout.state->sample_base + dropout.sample + sample);
    uint64_t high = (uint64_t)head << 48 | (uint64_t)row << 24 | (uint64_t)(column / 4);
    uint32_t word = z3d_philox(key, low, high).word[column % 4];
    return (double)word < (double)dropout.p * 4294967296.0 ? 0 : 1 / (1 - (double)dropout.p);
}

// The plain formula, on rows of queries, keys and values beside each other.
struct Reference {
    Shape s;
    int64_t first_head;
    z3d_dropout dropout;
    Numbers qkv, out, lse, dqkv;
    std::vector<Numbers> seen, kept; // by row: probabilities of the keys from the first one that it
                                     // sees; their multipliers

    size_t row_at(int64_t b, int64_t h, int64_t t) const {
        return (size_t)((b * s.heads + h) * s.seq + t);
    }
    double *at(Numbers &x, int64_t b, int64_t t, int64_t part, int64_t h) {
        return &x[(size_t)s.at(b, t, part, h, 0)];
    }
    double *at(Numbers &x, int64_t b, int64_t t, int64_t h) {
        return &x[(size_t)(((b * s.seq + t) * s.heads + h) * s.head_dim)];
    }
    double dot(const double *x, const double *y) const {
        double sum = 0;
        for (int64_t i = 0; i < s.head_dim; i++) sum += x[i] * y[i];
        return sum;
    }
    void add(double *to, double times, const double *x) const {
        for (int64_t i = 0; i < s.head_dim; i++) to[i] += times * x[i];
    }
    // Finds a row's probabilities, their multipliers and its lse.
    void find_row(int64_t b, int64_t h, int64_t t) {
        const int64_t first = s.first_key(t);
        Numbers &p = seen[row_at(b, h, t)], &m = kept[row_at(b, h, t)];
        double most = -INFINITY, sum = 0;
        for (int64_t j = first; j <= t; j++) {
            p.push_back(dot(at(qkv, b, t, 0, h), at(qkv, b, j, 1, h)) /
                        std::sqrt((double)s.head_dim));
            m.push_back(multiplier(dropout, b, first_head + h, t, j));
            most = std::max(most, p.back());
        }
        for (double &x : p) sum += x = std::exp(x - most);
        for (double &x : p) x /= sum;
        lse[row_at(b, h, t)] = most + std::log(sum);
    }
    void begin() {
        const size_t rows = (size_t)(s.batch * s.heads * s.seq);
        out.assign(rows * (size_t)s.head_dim, 0);
        lse.assign(rows, 0);
        seen.assign(rows, {});
        kept.assign(rows, {});
    }
    void forward_rows(int64_t b, int64_t begin, int64_t end) {
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t t = begin; t < end; t++) {
                find_row(b, h, t);
                const Numbers &p = seen[row_at(b, h, t)], &m = kept[row_at(b, h, t)];
                for (size_t k = 0; k < p.size(); k++)
                    add(at(out, b, t, h), p[k] * m[k],
                        at(qkv, b, s.first_key(t) + (int64_t)k, 2, h));
            }
    }
    void forward() {
        begin();
        for (int64_t b = 0; b < s.batch; b++) forward_rows(b, 0, s.seq);
    }
    void backward_row(Numbers &dout, int64_t b, int64_t h, int64_t t) {
        const double scale = 1 / std::sqrt((double)s.head_dim);
        const int64_t first = s.first_key(t);
        const Numbers &p = seen[row_at(b, h, t)], &m = kept[row_at(b, h, t)];
        const double *from = at(dout, b, t, h);
        Numbers dp(p.size());
        double delta = 0;
        for (size_t k = 0; k < p.size(); k++) {
            dp[k] = m[k] * dot(from, at(qkv, b, first + (int64_t)k, 2, h));
            add(at(dqkv, b, first + (int64_t)k, 2, h), m[k] * p[k], from);
            delta += p[k] * dp[k];
        }
        for (size_t k = 0; k < p.size(); k++) {
            const int64_t j = first + (int64_t)k;
            double ds = p[k] * (dp[k] - delta) * scale;
            add(at(dqkv, b, t, 0, h), ds, at(qkv, b, j, 1, h));
            add(at(dqkv, b, j, 1, h), ds, at(qkv, b, t, 0, h));
        }
    }
    // Behind forward().
    void backward(Numbers &dout) {
        dqkv.assign(qkv.size(), 0);
        for (int64_t b = 0; b < s.batch; b++)
            for (int64_t h = 0; h < s.heads; h++)
                for (int64_t t = 0; t < s.seq; t++) backward_row(dout, b, h, t);
    }
};

Numbers numbers(const Array &x) {
    Numbers out((size_t)x.count());
    for (int64_t i = 0; i < x.count(); i++) out[(size_t)i] = x[i];
    return out;
}

void expect_close(const Array &got, const Numbers &want, double bound, const char *what) {
    double largest = 0;
    for (double x : want) largest = std::max(largest, std::fabs(x));
    ASSERT_EQ((size_t)got.count(), want.size());
    for (int64_t i = 0; i < got.count(); i++)
        ASSERT_LE(std::fabs(got[i] - want[(size_t)i]), bound * largest)
            << what << " " << i << ": got " << got[i] << ", want " << want[(size_t)i];
}

// A case's inputs and results.
struct Attention {
    Shape s;
    z3d_dtype dtype;
    int64_t first_head;
    z3d_step_state state;
    z3d_dropout dropout;
    Array qkv, out, lse, dout, dqkv;
    std::vector<int32_t> position;

    Attention(Shape shape, z3d_dtype type, float p, int64_t first = 0, double spread = 1)
        : s(shape), dtype(type), first_head(first) {
        std::memset(&state, 0, sizeof state);
        std::memset(&dropout, 0, sizeof dropout);
        state.seed = 77, state.sample_base = 1000;
        dropout.p = p, dropout.site = 5, dropout.sample = 3;
        dropout.state = p > 0 ? &state : nullptr;
        int64_t count = s.batch * s.seq * s.heads * s.head_dim;
        qkv = Array(dtype, s.batch * s.seq * s.columns());
        dqkv = Array(dtype, s.batch * s.seq * s.columns());
        out = Array(dtype, count);
        dout = Array(dtype, count);
        lse = Array(Z3D_F32, s.batch * s.heads * s.seq);
        qkv.random(1, spread), dout.random(2);
    }
    void *part(Array &of, int64_t which) {
        return (char *)of.data() + s.at(0, 0, which, 0, 0) * (int64_t)z3d_dtype_size(dtype);
    }
    // Of each row in its document.
    const int32_t *positions() {
        for (int64_t row = 0; row < s.batch * s.seq && s.document > 0; row++)
            position.push_back((int32_t)(row % s.seq % s.document));
        return position.empty() ? nullptr : position.data();
    }
    void forward(z3d_device *device) {
        LAUNCH(device, attention_forward, k.row_position = positions(), k.q = part(qkv, 0),
               k.k = part(qkv, 1), k.v = part(qkv, 2), k.out = out.data(),
               k.log_sum_exp = lse.f32(), k.batch = s.batch, k.seq = k.capacity = s.seq,
               k.heads = s.heads, k.kv_heads = s.kv(), k.head_dim = s.head_dim, k.window = s.window,
               k.first_head = first_head, k.q_stride = k.kv_stride = s.columns(), k.dtype = dtype,
               k.dropout = dropout);
    }
    void backward(z3d_device *device) {
        LAUNCH(device, attention_backward, k.row_position = positions(), k.q = part(qkv, 0),
               k.k = part(qkv, 1), k.v = part(qkv, 2), k.out = out.data(), k.dout = dout.data(),
               k.log_sum_exp = lse.f32(), k.dq = part(dqkv, 0), k.dk = part(dqkv, 1),
               k.dv = part(dqkv, 2), k.batch = s.batch, k.seq = s.seq, k.heads = s.heads,
               k.kv_heads = s.kv(), k.head_dim = s.head_dim, k.window = s.window,
               k.first_head = first_head, k.q_stride = k.kv_stride = s.columns(), k.dtype = dtype,
               k.dropout = dropout);
    }
    Reference reference() const {
        Reference r;
        r.s = s, r.first_head = first_head, r.dropout = dropout, r.qkv = numbers(qkv);
        return r;
    }
    Bytes bytes() const {
        Bytes all;
        out.append_to(all), lse.append_to(all), dqkv.append_to(all);
        return all;
    }
    // Results are NaN again.
    void forget() {
        for (Array *result : {&out, &lse, &dqkv})
            std::memset(result->data(), 0xff,
                        (size_t)result->count() * z3d_dtype_size(result->dtype()));
    }
};

// On every instruction set.
void check(Shape shape, z3d_dtype dtype, float p, int64_t first_head = 0) {
    SCOPED_TRACE(std::string(z3d_dtype_name(dtype)) + " " + std::to_string(shape.batch) + "x" +
                 std::to_string(shape.seq) + "x" + std::to_string(shape.heads) + "x" +
                 std::to_string(shape.head_dim) + " p " + std::to_string(p) + ", kv heads " +
                 std::to_string(shape.kv()) + ", window " + std::to_string(shape.window) +
                 ", documents of " + std::to_string(shape.document));
    Attention x(shape, dtype, p, first_head);
    Reference want = x.reference();
    Numbers dout = numbers(x.dout);
    want.forward();
    want.backward(dout);
    const double step = dtype == Z3D_BF16 ? 0x1p-8 : dtype == Z3D_F16 ? 0x1p-11 : 0x1p-24;
    for (const std::string &isa : isas()) {
        SCOPED_TRACE(isa);
        Device device(isa, 2);
        x.forget();
        x.forward(device);
        x.backward(device);
        expect_close(x.out, want.out, dtype == Z3D_F32 ? 16 * step : 1.5 * step, "out");
        // Backward's row sums use the rounded output.
        expect_close(x.dqkv, want.dqkv, dtype == Z3D_F32 ? 32 * step : 3 * step, "dqkv");
        expect_close(x.lse, want.lse, 8 * 0x1p-24, "log_sum_exp");
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Attention, PlainFormula) {
    const Shape shapes[] = {{1, 1, 1, 1},   {2, 5, 3, 8},    {1, 64, 2, 64}, {1, 65, 1, 16},
                            {1, 257, 2, 5}, {2, 300, 1, 20}, {1, 600, 1, 33}};
    for (Shape shape : shapes)
        for (z3d_dtype dtype : float_types())
            for (float p : {0.0f, 0.3f}) {
                check(shape, dtype, p, p > 0 ? 4 : 0);
                if (HasFatalFailure()) return;
            }
}

// Documents one after the other in a sample: shorter than a tile, longer, with the last one cut,
// and of which a tile sees the end of one and the beginning of the next; in windows, too.
TEST(Attention, PackedDocuments) {
    const Shape shapes[] = {{2, 70, 2, 8, 0, 0, 1},     {2, 300, 2, 16, 0, 0, 23},
                            {1, 600, 4, 8, 2, 0, 257},  {1, 520, 1, 20, 0, 0, 64},
                            {2, 270, 4, 20, 1, 40, 90}, {1, 520, 2, 8, 0, 300, 400}};
    for (Shape shape : shapes)
        for (z3d_dtype dtype : float_types())
            for (float p : {0.0f, 0.3f}) {
                if (p > 0 && dtype != Z3D_BF16) continue;
                check(shape, dtype, p);
                if (HasFatalFailure()) return;
            }
}

// Few and many key/value heads (tasks of one query head and of a group), windows shorter and longer
// than a tile and than the rows.
TEST(Attention, GroupedHeadsAndWindows) {
    const Shape shapes[] = {{1, 65, 4, 16, 2, 0},   {2, 270, 4, 20, 1, 40}, {1, 520, 2, 33, 1, 300},
                            {1, 257, 4, 8, 2, 1},   {1, 520, 2, 8, 2, 256}, {2, 70, 8, 8, 4, 0},
                            {4, 270, 8, 4, 2, 257}, {1, 70, 3, 8, 1, 1000}};
    for (Shape shape : shapes)
        for (z3d_dtype dtype : float_types())
            for (float p : {0.0f, 0.3f}) {
                if (p > 0 && dtype != Z3D_BF16) continue;
                check(shape, dtype, p);
                if (HasFatalFailure()) return;
            }
}

// Rows starts[b] .. starts[b] + seq - 1 of each sample against a cache that has the rows before
// them, too, and NaN elsewhere.
struct Cached {
    Attention &whole;
    int64_t seq, capacity;
    std::vector<int32_t> starts;
    Array keys, values, out, lse;

    Cached(Attention &of, int64_t rows, int64_t slots, std::vector<int32_t> at)
        : whole(of), seq(rows), capacity(slots), starts(std::move(at)) {
        const Shape &s = whole.s;
        const z3d_dtype dtype = whole.dtype;
        const int64_t columns = s.kv() * s.head_dim;
        keys = Array(dtype, s.batch * capacity * columns);
        values = Array(dtype, s.batch * capacity * columns);
        out = Array(dtype, s.batch * seq * s.heads * s.head_dim);
        lse = Array(Z3D_F32, s.batch * s.heads * seq);
    }
    // Of all rows that are there by then: earlier ones first, as earlier calls leave them.
    void store(z3d_device *device, Array &cache, int64_t part) {
        const Shape &s = whole.s;
        const std::vector<int32_t> zeros(starts.size(), 0);
        const int64_t columns = s.kv() * s.head_dim;
        LAUNCH(device, cache_store, k.x = whole.part(whole.qkv, part), k.cache = cache.data(),
               k.starts = zeros.data(), k.batch = s.batch, k.seq = s.seq, k.capacity = capacity,
               k.cols = columns, k.stride = s.columns(), k.dtype = whole.dtype);
        for (int64_t b = 0; b < s.batch; b++)
            for (int64_t row = 0; row < capacity; row++) {
                const bool nobody = row >= starts[(size_t)b] + seq; // beyond this call's rows
                for (int64_t i = 0; i < columns && (nobody || row >= s.seq); i++)
                    cache.set((b * capacity + row) * columns + i, nobody ? NAN : 0);
            }
    }
    void run(z3d_device *device) {
        const Shape &s = whole.s;
        Array queries(whole.dtype, s.batch * seq * s.heads * s.head_dim);
        for (int64_t b = 0; b < s.batch; b++)
            for (int64_t t = 0; t < seq; t++)
                for (int64_t i = 0; i < s.heads * s.head_dim; i++)
                    queries.set(
                        (b * seq + t) * s.heads * s.head_dim + i,
                        whole.qkv[s.at(b, std::min(starts[(size_t)b] + t, s.seq - 1), 0, 0, i)]);
        store(device, keys, 1);
        store(device, values, 2);
        LAUNCH(device, attention_forward, k.q = queries.data(), k.k = keys.data(),
               k.v = values.data(), k.out = out.data(), k.log_sum_exp = lse.f32(),
               k.starts = starts.data(), k.batch = s.batch, k.seq = seq, k.capacity = capacity,
               k.heads = s.heads, k.kv_heads = s.kv(), k.head_dim = s.head_dim, k.window = s.window,
               k.q_stride = s.heads * s.head_dim, k.kv_stride = s.kv() * s.head_dim,
               k.dtype = whole.dtype);
    }
    // Rows beyond the capacity are anything.
    void check(Reference &want) {
        const Shape &s = whole.s;
        const double step = out.dtype() == Z3D_BF16  ? 0x1p-8
                            : out.dtype() == Z3D_F16 ? 0x1p-11
                                                     : 16 * 0x1p-24;
        for (int64_t b = 0; b < s.batch; b++)
            for (int64_t t = 0; t < seq && starts[(size_t)b] + t < s.seq; t++)
                for (int64_t h = 0; h < s.heads; h++) {
                    const int64_t row = starts[(size_t)b] + t;
                    ASSERT_NEAR(lse[(b * s.heads + h) * seq + t],
                                want.lse[(size_t)((b * s.heads + h) * s.seq + row)], 4e-6);
                    for (int64_t i = 0; i < s.head_dim; i++)
                        ASSERT_NEAR(out[((b * seq + t) * s.heads + h) * s.head_dim + i],
                                    want.at(want.out, b, row, h)[i], 6 * step)
                            << "sample " << b << ", row " << row << ", head " << h;
                }
    }
};

TEST(Attention, Caches) {
    const Shape shapes[] = {{4, 300, 2, 16, 2, 0},
                            {4, 300, 6, 20, 2, 0},
                            {4, 300, 3, 64, 1, 130},
                            {4, 300, 4, 32, 2, 1},
                            {4, 300, 2, 8, 1, 128}};
    for (Shape shape : shapes)
        for (z3d_dtype dtype : float_types()) {
            Attention whole(shape, dtype, 0);
            Reference want = whole.reference();
            const std::vector<int32_t> starts = {0, 127, 128, 299};
            want.begin();
            for (int64_t b = 0; b < shape.batch; b++)
                want.forward_rows(b, starts[(size_t)b],
                                  std::min<int64_t>(starts[(size_t)b] + 65, shape.seq));
            for (int64_t seq : {1, 2, 65})
                on_every_device([&](Device &device, Bytes &bytes) {
                    if (dtype != Z3D_BF16 && device.isa != isas().back()) return;
                    SCOPED_TRACE(std::string(z3d_dtype_name(dtype)) + ", " + std::to_string(seq) +
                                 " rows of " + std::to_string(shape.heads) + " heads, window " +
                                 std::to_string(shape.window));
                    Cached x(whole, seq, 320, starts);
                    x.run(device);
                    x.check(want);
                    x.out.append_to(bytes);
                });
        }
}

// Rows beyond the capacity, which a cache does not have, spoil no others.
TEST(Attention, FullCache) {
    Device device(isas().back(), 2);
    for (int64_t window : {0, 3}) {
        Attention whole({2, 50, 2, 8, 1, window}, Z3D_F32, 0);
        Cached x(whole, 9, 50, {45, 30});
        x.run(device);
        Reference want = x.whole.reference();
        want.forward();
        x.check(want);
    }
}

// Scores of hundreds: exponentials overflow unless the maximum is taken off, also when a later
// block of keys has the larger one.
TEST(Attention, LargeScores) {
    Device device(isas().back(), 2);
    Attention x({1, 520, 1, 16}, Z3D_F32, 0);
    for (int64_t t = 0; t < 520; t++)
        for (int64_t i = 0; i < 16; i++) {
            x.qkv.set((t * 3 + 0) * 16 + i, 20);
            x.qkv.set((t * 3 + 1) * 16 + i, (double)(t * 7 % 13) * 0.25 + (double)t * 0.01);
        }
    x.forward(device);
    Reference want = x.reference();
    want.forward();
    expect_close(x.out, want.out, 1e-4, "out");
    expect_close(x.lse, want.lse, 1e-6, "log_sum_exp");
}

// Backward is the derivative of forward: central differences through the reference.
TEST(Attention, BackwardIsTheDerivative) {
    Device device(isas().back(), 1);
    for (float p : {0.0f, 0.4f}) {
        Attention x({1, 6, 2, 3}, Z3D_F32, p, 1);
        x.forward(device);
        x.backward(device);
        Reference f = x.reference();
        Numbers dout = numbers(x.dout);
        auto loss = [&] {
            double sum = 0;
            f.forward();
            for (size_t i = 0; i < dout.size(); i++) sum += f.out[i] * dout[i];
            return sum;
        };
        for (size_t i = 0; i < f.qkv.size(); i++) {
            const double before = f.qkv[i], step = 1e-5;
            f.qkv[i] = before + step;
            double up = loss();
            f.qkv[i] = before - step;
            double down = loss();
            f.qkv[i] = before;
            EXPECT_NEAR(x.dqkv[(int64_t)i], (up - down) / (2 * step), 1e-5) << i;
        }
    }
}

TEST(Attention, IndependentOfThreadsAndPolling) {
    for (float p : {0.0f, 0.2f})
        on_every_device([&](Device &device, Bytes &bytes) {
            Attention x({1, 530, 3, 24}, Z3D_BF16, p);
            x.forward(device);
            x.backward(device);
            bytes = x.bytes();
        });
}

// A head's result is the same whether its neighbours are computed on this rank or on another one,
// and so is a sample's in whichever micro-batch it lies.
TEST(Attention, DropoutFollowsGlobalHeadAndSample) {
    Device device(isas().back(), 2);
    const int64_t seq = 70, d = 8;
    Attention whole({2, seq, 4, d}, Z3D_F32, 0.5f);
    Attention part({1, seq, 2, d}, Z3D_F32, 0.5f, 2);
    part.dropout.sample = whole.dropout.sample + 1;
    for (int64_t t = 0; t < seq; t++)
        for (int64_t which = 0; which < 3; which++)
            for (int64_t i = 0; i < 2 * d; i++)
                part.qkv.set((t * 3 + which) * 2 * d + i,
                             whole.qkv[((seq + t) * 3 + which) * 4 * d + 2 * d + i]);
    whole.forward(device);
    part.forward(device);
    int64_t differ = 0;
    for (int64_t t = 0; t < seq; t++)
        for (int64_t i = 0; i < 2 * d; i++) {
            ASSERT_EQ(part.out[t * 2 * d + i], whole.out[(seq + t) * 4 * d + 2 * d + i]);
            differ += part.out[t * 2 * d + i] != whole.out[t * 4 * d + 2 * d + i];
        }
    EXPECT_GT(differ, 0);
}

// Other steps, seeds and sites drop others; as many as asked for.
TEST(Attention, DropoutMask) {
    z3d_step_state state;
    std::memset(&state, 0, sizeof state);
    state.seed = 3, state.sample_base = (int64_t)5 << 32;
    z3d_dropout dropout = {0.25f, 9, 2, &state};
    const int64_t columns = 1003;
    auto mask = [&] {
        z3d_dropout_rule rule = z3d_dropout_rule_of(&dropout);
        std::vector<float> row((size_t)columns);
        z3d_dropout_mask(&rule, 1, 65535, ((int64_t)1 << 24) - 1, 8, columns, row.data());
        return row;
    };
    const std::vector<float> first = mask();
    int64_t dropped = 0;
    for (int64_t i = 0; i < columns; i++) {
        ASSERT_FLOAT_EQ(first[(size_t)i],
                        (float)multiplier(dropout, 1, 65535, ((int64_t)1 << 24) - 1, 8 + i));
        dropped += first[(size_t)i] == 0;
    }
    EXPECT_NEAR((double)dropped / (double)columns, 0.25, 0.06);
    state.seed++;
    EXPECT_NE(mask(), first);
    state.seed--, dropout.site++;
    EXPECT_NE(mask(), first);
    dropout.site--, state.sample_base++;
    EXPECT_NE(mask(), first);
    state.sample_base--;
    EXPECT_EQ(mask(), first);
}

// An infinity makes rows that see it not finite (as a key it may also get probability 0, depending
// on the sign); rows before its tile stay good.
TEST(Attention, OverflowIsVisible) {
    Device device(isas().back(), 2);
    for (int64_t which : {0, 1, 2}) {
        Attention x({1, 300, 1, 8}, Z3D_F16, 0);
        x.qkv.set((270 * 3 + which) * 8 + 3, INFINITY);
        x.forward(device);
        int64_t bad = 0;
        for (int64_t i = 270 * 8; i < 300 * 8; i++) bad += !std::isfinite(x.out[i]);
        EXPECT_GT(bad, 0) << which;
        for (int64_t i = 0; i < 256 * 8; i++) ASSERT_TRUE(std::isfinite(x.out[i])) << which;
    }
}

TEST(Attention, NothingToDo) {
    Device device(isas().back(), 2);
    for (Shape shape : {Shape{0, 4, 2, 8}, Shape{1, 0, 2, 8}, Shape{1, 4, 0, 8}}) {
        Attention x(shape, Z3D_F32, 0);
        x.forward(device);
        x.backward(device);
    }
}

TEST(Attention, BadArgumentsAreErrors) {
    Device device(isas().back(), 1);
    z3d_kernel kernel;
    std::memset(&kernel, 0, sizeof kernel);
    kernel.kind = Z3D_KERNEL_attention_forward;
    kernel.as.attention_forward.batch = kernel.as.attention_forward.seq = 2;
    kernel.as.attention_forward.capacity = 2;
    kernel.as.attention_forward.heads = kernel.as.attention_forward.kv_heads = 1;
    EXPECT_EQ(launch_with_scratch(device, kernel), Z3D_ERR_INTERNAL); // head_dim 0
    kernel.as.attention_forward.head_dim = 4;
    EXPECT_EQ(z3d_launch(device, &kernel), Z3D_ERR_INTERNAL); // no scratch
    EXPECT_NE(std::string(z3d_error_message()).find("attention_forward"), std::string::npos);
    kernel.as.attention_forward.kv_heads = 0;
    EXPECT_EQ(launch_with_scratch(device, kernel), Z3D_ERR_INTERNAL); // no keys
    kernel.as.attention_forward.kv_heads = 1;
    kernel.as.attention_forward.window = -1;
    EXPECT_EQ(launch_with_scratch(device, kernel), Z3D_ERR_INTERNAL);
    kernel.as.attention_forward.window = 0;
    const int32_t starts[] = {0, 2};
    kernel.as.attention_forward.starts = starts;
    EXPECT_EQ(launch_with_scratch(device, kernel), Z3D_ERR_INTERNAL); // starts beyond its keys
    kernel.as.attention_forward.starts = nullptr;
    const int32_t back[] = {0, 1, 0, 2}; // the last one goes on with no document
    kernel.as.attention_forward.row_position = back;
    EXPECT_EQ(launch_with_scratch(device, kernel), Z3D_ERR_INTERNAL);
    kernel.as.attention_forward.row_position = nullptr;
    kernel.as.attention_forward.capacity = 3;
    EXPECT_EQ(launch_with_scratch(device, kernel), Z3D_ERR_INTERNAL); // keys of nobody
    kernel.as.attention_forward.capacity = 2;
    kernel.as.attention_forward.dtype = Z3D_I32;
    EXPECT_EQ(launch_with_scratch(device, kernel), Z3D_ERR_INTERNAL);
    kernel.as.attention_forward.dtype = Z3D_F32;
    kernel.as.attention_forward.first_head = 70000;
    kernel.as.attention_forward.dropout.p = 0.5f;
    EXPECT_EQ(launch_with_scratch(device, kernel), Z3D_ERR_INTERNAL); // beyond the counter
    kernel.kind = Z3D_KERNEL_attention_backward;
    kernel.as.attention.dropout.p = 0;
    kernel.as.attention.starts = back;
    EXPECT_EQ(launch_with_scratch(device, kernel), Z3D_ERR_INTERNAL);
    EXPECT_NE(std::string(z3d_error_message()).find("starts must be NULL"), std::string::npos);
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
