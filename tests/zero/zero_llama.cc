// Llama on every topology: stages and schedules are equal to the bit, and it trains like one rank.
// Four tensor ranks share two heads of keys and values.
#include "tests/zero/harness.h"

#include <cmath>
#include <fstream>

using namespace harness;

namespace {

struct Sizes {
    int pipeline, tensor, data;
};

std::vector<Sizes> sizes_of_world() {
    std::vector<Sizes> list;
    for (int pipeline : {1, 2, 4})
        for (int tensor : {1, 2, 4})
            for (int data : {1, 2, 4})
                if (pipeline * tensor * data == z3d_world_size(world))
                    list.push_back({pipeline, tensor, data});
    return list;
}

Options with_sizes(Kind kind, const Sizes &s) {
    Options o;
    o.kind = kind;
    o.pipeline = s.pipeline, o.tensor = s.tensor, o.data = s.data;
    o.layers = 6;
    o.global_batch = 16;
    o.accumulation = 8 / s.data;
    o.reduce_per_step = 0;
    o.steps = 3;
    return o;
}

std::string file_of(Kind kind) {
    return "llama-one-rank" + std::to_string(kind) + ".bin";
}

void keep(Kind kind, const Result &r) {
    std::ofstream file(file_of(kind), std::ios::binary);
    file.write((const char *)r.loss.data(), (long)(r.loss.size() * sizeof(double)));
    file.write((const char *)r.norm.data(), (long)(r.norm.size() * sizeof(double)));
}

void expect_like_one_rank(Kind kind, const Result &r) {
    std::vector<double> one(2 * r.loss.size());
    std::ifstream file(file_of(kind), std::ios::binary);
    ASSERT_TRUE(file.read((char *)one.data(), (long)(one.size() * sizeof(double))).good())
        << "run the one-rank test first";
    for (size_t k = 0; k < r.loss.size(); k++) {
        double norm = one[r.loss.size() + k];
        EXPECT_LT(std::fabs(r.loss[k] - one[k]) / one[k], 1e-5) << "step " << k + 1;
        // Parameters that tensor ranks share count once.
        EXPECT_LT(std::fabs(r.norm[k] - norm) / norm, 1e-4) << "step " << k + 1;
    }
}

void expect_same(const Result &a, const Result &b, const Options &o) {
    EXPECT_TRUE(same_bits(a.loss, b.loss)) << name_of(o);
    EXPECT_TRUE(same_bits(a.norm, b.norm)) << name_of(o);
}

// All stages in the first schedule, and the other schedules in turn; the last way recomputes
// nothing. Activations are kept and computed again by turns.
Result train_all_ways(Options o) {
    Result first;
    int ways = o.pipeline > 1 ? (int)std::size(SCHEDULES) : 1;
    for (int way = 0; way < std::max(ways, 4); way++) {
        const Schedule &schedule = SCHEDULES[way < ways ? way : 0];
        o.schedule = schedule.kind, o.chunks = schedule.chunks;
        o.stage = way % 4;
        o.recompute = way != 3, o.selective = way == 2;
        o.keep_activation = way % 2 == 1;
        Result r = train(o);
        EXPECT_EQ((size_t)o.steps, r.loss.size()) << name_of(o);
        if (way == 0) first = r;
        expect_same(first, r, o);
    }
    return first;
}

} // namespace

TEST(Llama, TrainsLikeOneRank) {
    for (Kind kind : {LLAMA, QWEN})
        for (const Sizes &s : sizes_of_world())
            for (bool sequence_parallel : {false, true}) {
                if (sequence_parallel && s.tensor == 1) continue;
                Options o = with_sizes(kind, s);
                o.sequence_parallel = sequence_parallel;
                SCOPED_TRACE(name_of(o));
                Result r = train_all_ways(o);
                EXPECT_LT(r.loss.back(), r.loss.front()) << "it must learn";
                if (z3d_world_size(world) == 1) keep(kind, r);
                expect_like_one_rank(kind, r);
            }
}

// In 16 bits, with clipping and skipped steps, too.
TEST(Llama, StagesAreBitwiseEqualInSixteenBits) {
    int turn = 0;
    for (const Sizes &s : sizes_of_world())
        for (z3d_dtype dtype : {Z3D_BF16, Z3D_F16}) {
            Options o = with_sizes(turn++ % 2 ? LLAMA : QWEN, s);
            o.dtype = dtype;
            o.grad_fp32 = dtype == Z3D_BF16;
            o.dropout = 0.1;
            if (dtype == Z3D_F16) o.scaler = {true, 16777216, 1, 1000, 1};
            train_all_ways(o);
        }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
