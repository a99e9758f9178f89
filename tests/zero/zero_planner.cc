// The memory planner: nothing alive shares addresses, persistent buffers lie alike in every
// program, the arena is close to the largest sum of live bytes, and errors name the buffer. The
// programs here are only lists of buffers: what the planner reads.
#include <gtest/gtest.h>

#include <climits>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

extern "C" {
#include "zero/plan_memory/packer.h"
#include "zero/program.h"
}

namespace {

struct Buffers {
    static std::set<std::string> names;
    std::vector<z3d_buffer> list;
    z3d_program program{};

    z3d_buffer &add(const std::string &name, int64_t bytes, int first, int last,
                    z3d_space space = Z3D_SPACE_DEVICE,
                    z3d_category category = Z3D_CATEGORY_ACTIVATIONS) {
        z3d_buffer b{};
        b.what = "buffer";
        b.owner = names.insert(name).first->c_str();
        b.micro = -1;
        b.bytes = bytes;
        b.first = first;
        b.last = last;
        b.space = space;
        b.category = category;
        b.persistent = last == INT_MAX;
        b.group = -1;
        b.offset = -1;
        list.push_back(b);
        return list.back();
    }
    z3d_buffer &keep(const std::string &name, int64_t bytes, z3d_category category) {
        return add(name, bytes, 0, INT_MAX, Z3D_SPACE_DEVICE, category);
    }
    z3d_program *make(int instructions) {
        program.num_instructions = instructions;
        program.num_buffers = static_cast<int>(list.size());
        program.buffer = list.data();
        return &program;
    }
};

std::set<std::string> Buffers::names;

int64_t rounded(int64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

// Plain check of a plan, quadratic, knowing nothing of how it was made.
void expect_disjoint(const z3d_program &p) {
    for (int i = 0; i < p.num_buffers; i++) {
        const z3d_buffer &a = p.buffer[i];
        ASSERT_EQ(a.offset % 256, 0) << a.owner;
        ASSERT_GE(a.offset, 0) << a.owner;
        ASSERT_LE(a.offset + a.bytes, p.arena[a.space]) << a.owner;
        for (int j = 0; j < i; j++) {
            const z3d_buffer &b = p.buffer[j];
            if (a.space != b.space || a.first > b.last || b.first > a.last) continue;
            bool apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
            ASSERT_TRUE(apart || a.bytes == 0 || b.bytes == 0) << a.owner << " and " << b.owner;
        }
    }
}

// The lifetimes of a training step: `layers` blocks, `micros` micro-batches; without recompute
// every block keeps `saved`; under stage 3 parameters are gathered ahead and released.
Buffers training_step(int layers, int micros, bool recompute, bool stage3, int64_t unit) {
    Buffers b;
    b.keep("parameters", layers * 12 * unit + 100, Z3D_CATEGORY_PARAMETERS);
    b.keep("optimizer", layers * 36 * unit, Z3D_CATEGORY_OPTIMIZER);
    int t = 1;
    int steps = 2 * layers * micros * 2;
    for (int m = 0; m < micros; m++) {
        int forward = t, backward = t + 2 * layers, end = t + 4 * layers;
        for (int l = 0; l < layers; l++) {
            int at = forward + 2 * l, back = backward + 2 * (layers - 1 - l);
            std::string name = std::to_string(m) + "." + std::to_string(l);
            b.add("output" + name, 4 * unit + 64, at, recompute ? back + 1 : at + 2);
            b.add("saved" + name, 34 * unit, recompute ? back : at, back + 1);
            b.add("workspace" + name, 5 * unit + l % 3 * 1000, at, at);
            b.add("gradient" + name, 4 * unit, back + 1, std::min(back + 3, end - 1));
            b.add("grads" + name, 12 * unit, back + 1, back + 1, Z3D_SPACE_DEVICE,
                  Z3D_CATEGORY_TEMPORARY);
            if (stage3) {
                b.add("full" + name, 12 * unit, std::max(at - 2, 0), at, Z3D_SPACE_DEVICE,
                      Z3D_CATEGORY_TEMPORARY);
                b.add("again" + name, 12 * unit, std::max(back - 2, 0), back + 1, Z3D_SPACE_DEVICE,
                      Z3D_CATEGORY_TEMPORARY);
            }
        }
        t = end;
    }
    b.make(steps + 1);
    return b;
}

double over_bound(const z3d_program &p, z3d_space space = Z3D_SPACE_DEVICE) {
    return static_cast<double>(p.arena[space]) / static_cast<double>(p.bound[space]) - 1.0;
}

int64_t largest_live(const z3d_program &p, z3d_space space) {
    int64_t most = 0;
    for (int t = 0; t < p.num_instructions; t++) {
        int64_t live = 0;
        for (int i = 0; i < p.num_buffers; i++) {
            const z3d_buffer &b = p.buffer[i];
            if (b.space == space && b.first <= t && t <= b.last) live += rounded(b.bytes);
        }
        most = std::max(most, live);
    }
    return most;
}

TEST(Planner, PacksTrainingStepsWithinTwoPercentOfTheBound) {
    for (int layers : {1, 2, 5, 12}) {
        for (int micros : {1, 3}) {
            for (int shape = 0; shape < 4; shape++) {
                Buffers b = training_step(layers, micros, shape & 1, shape & 2, 3000);
                z3d_program *p = b.make(4 * layers * micros + 1);
                ASSERT_EQ(z3d_program_plan(&p, 1), Z3D_OK) << z3d_error_message();
                expect_disjoint(*p);
                EXPECT_EQ(p->bound[Z3D_SPACE_DEVICE], largest_live(*p, Z3D_SPACE_DEVICE));
                EXPECT_GE(p->arena[Z3D_SPACE_DEVICE], p->bound[Z3D_SPACE_DEVICE]);
                EXPECT_LT(over_bound(*p), 0.02) << layers << " " << micros << " " << shape;
            }
        }
    }
}

TEST(Planner, PacksAHundredThousandBuffers) {
    for (int shape = 0; shape < 4; shape++) {
        Buffers b = training_step(200, 64, shape & 1, shape & 2, 3000);
        z3d_program *p = b.make(4 * 200 * 64 + 1);
        ASSERT_GT(p->num_buffers, 60000);
        ASSERT_EQ(z3d_program_plan(&p, 1), Z3D_OK) << z3d_error_message();
        EXPECT_LT(over_bound(*p), 0.02) << shape;
    }
}

TEST(Planner, PacksRandomLifetimes) {
    std::mt19937 random(7);
    for (int round = 0; round < 60; round++) {
        Buffers b;
        int times = 1 + static_cast<int>(random() % 40), count = static_cast<int>(random() % 60);
        for (int i = 0; i < count; i++) {
            int first = static_cast<int>(random() % times);
            int last = first + static_cast<int>(random() % (times - first));
            z3d_space space = random() % 4 == 0 ? Z3D_SPACE_HOST : Z3D_SPACE_DEVICE;
            b.add("b" + std::to_string(i), static_cast<int64_t>(random() % 5000), first, last,
                  space);
        }
        z3d_program *p = b.make(times);
        ASSERT_EQ(z3d_program_plan(&p, 1), Z3D_OK) << z3d_error_message();
        expect_disjoint(*p);
        for (z3d_space space : {Z3D_SPACE_DEVICE, Z3D_SPACE_HOST}) {
            EXPECT_EQ(p->bound[space], largest_live(*p, space));
            if (p->bound[space] > 0) {
                EXPECT_LT(over_bound(*p, space), 0.12) << round;
            }
        }
    }
}

TEST(Planner, IsDeterministic) {
    Buffers a = training_step(7, 2, true, true, 777), b = training_step(7, 2, true, true, 777);
    z3d_program *p = a.make(57), *q = b.make(57);
    ASSERT_EQ(z3d_program_plan(&p, 1), Z3D_OK);
    ASSERT_EQ(z3d_program_plan(&q, 1), Z3D_OK);
    for (int i = 0; i < p->num_buffers; i++) EXPECT_EQ(p->buffer[i].offset, q->buffer[i].offset);
    std::vector<z3d_buffer> once = a.list;
    ASSERT_EQ(z3d_program_plan(&p, 1), Z3D_OK);
    for (int i = 0; i < p->num_buffers; i++) EXPECT_EQ(p->buffer[i].offset, once[i].offset);
}

TEST(Planner, GivesPersistentBuffersTheSamePlacesInEveryProgram) {
    Buffers train, evaluate;
    train.keep("wte.parameters", 1000, Z3D_CATEGORY_PARAMETERS);
    train.add("x", 5000, 0, 3);
    train.keep("wte.optimizer", 300, Z3D_CATEGORY_OPTIMIZER);
    train.add("host", 700, 1, 2, Z3D_SPACE_HOST);
    evaluate.add("y", 90000, 1, 1);
    evaluate.keep("wte.parameters", 1000, Z3D_CATEGORY_PARAMETERS);
    evaluate.keep("wte.optimizer", 300, Z3D_CATEGORY_OPTIMIZER);
    z3d_program *programs[] = {train.make(4), evaluate.make(2)};
    ASSERT_EQ(z3d_program_plan(programs, 2), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(train.list[0].offset, 0);
    EXPECT_EQ(train.list[2].offset, 1024);
    EXPECT_EQ(evaluate.list[1].offset, 0);
    EXPECT_EQ(evaluate.list[2].offset, 1024);
    EXPECT_EQ(train.list[1].offset, 1536);
    EXPECT_EQ(evaluate.list[0].offset, 1536);
    EXPECT_EQ(train.list[3].offset, 0); // another space
    for (z3d_program *p : programs) {
        EXPECT_EQ(p->arena[Z3D_SPACE_DEVICE], 1536 + rounded(90000));
        EXPECT_EQ(p->arena[Z3D_SPACE_HOST], 768);
        expect_disjoint(*p);
    }
}

TEST(Planner, RefusesProgramsWhosePersistentBuffersDiffer) {
    Buffers a, b, c;
    a.keep("wte.parameters", 1000, Z3D_CATEGORY_PARAMETERS);
    b.keep("wte.parameters", 1256, Z3D_CATEGORY_PARAMETERS);
    z3d_program *differ[] = {a.make(1), b.make(1)}, *lack[] = {a.make(1), c.make(1)};
    EXPECT_EQ(z3d_program_plan(differ, 2), Z3D_ERR_PROGRAM);
    EXPECT_NE(std::string(z3d_error_message()).find("wte.parameters"), std::string::npos);
    EXPECT_EQ(z3d_program_plan(lack, 2), Z3D_ERR_PROGRAM);
    EXPECT_NE(std::string(z3d_error_message()).find("none"), std::string::npos);
}

TEST(Planner, RefusesImpossibleBuffers) {
    struct {
        int64_t bytes;
        int first, last;
    } bad[] = {{-1, 0, 0},  {INT64_MAX, 0, 0}, {INT64_C(1) << 61, 0, 0}, {10, 1, 0},
               {10, -1, 0}, {10, 0, 2},        {10, 0, INT_MAX - 1}};
    for (const auto &row : bad) {
        Buffers b;
        b.add("odd", row.bytes, row.first, row.last);
        z3d_program *p = b.make(2);
        EXPECT_EQ(z3d_program_plan(&p, 1), Z3D_ERR_PROGRAM);
        EXPECT_NE(std::string(z3d_error_message()).find("odd"), std::string::npos);
    }
    Buffers many;
    for (int i = 0; i < 20; i++) many.add("many", INT64_C(1) << 57, 0, 1);
    z3d_program *p = many.make(2);
    EXPECT_EQ(z3d_program_plan(&p, 1), Z3D_ERR_PROGRAM);
}

TEST(Planner, AnEmptyProgramNeedsNothing) {
    Buffers b;
    z3d_program *p = b.make(0);
    ASSERT_EQ(z3d_program_plan(&p, 1), Z3D_OK);
    EXPECT_EQ(p->arena[Z3D_SPACE_DEVICE], 0);
    ASSERT_EQ(z3d_program_plan(nullptr, 0), Z3D_OK);
}

TEST(Ledger, CountsExactBytesByCategoryAndTheirPeaks) {
    Buffers b;
    b.keep("p", 1001, Z3D_CATEGORY_PARAMETERS);
    b.add("a", 100, 0, 1);
    b.add("b", 50, 1, 2);
    b.add("c", 20, 2, 2);
    b.add("t", 7, 2, 3, Z3D_SPACE_HOST, Z3D_CATEGORY_TEMPORARY);
    z3d_ledger ledger;
    z3d_program_ledger(b.make(4), Z3D_SPACE_DEVICE, &ledger);
    EXPECT_EQ(ledger.peak[Z3D_CATEGORY_PARAMETERS], 1001);
    EXPECT_EQ(ledger.live[Z3D_CATEGORY_PARAMETERS], 1001);
    EXPECT_EQ(ledger.peak[Z3D_CATEGORY_ACTIVATIONS], 150); // a and b at 1, though a ends there
    EXPECT_EQ(ledger.live[Z3D_CATEGORY_ACTIVATIONS], 0);
    EXPECT_EQ(ledger.peak[Z3D_CATEGORY_TEMPORARY], 0);
    EXPECT_EQ(ledger.total_peak, 1151);
    EXPECT_EQ(ledger.total_live, 1001);
    z3d_program_ledger(b.make(4), Z3D_SPACE_HOST, &ledger);
    EXPECT_EQ(ledger.peak[Z3D_CATEGORY_TEMPORARY], 7);
    EXPECT_EQ(ledger.total_peak, 7);
}

TEST(Ledger, DoesNotCountWhatFollowsAsAliveTogether) {
    Buffers b;
    b.add("a", 100, 0, 0);
    b.add("b", 100, 1, 1);
    z3d_ledger ledger;
    z3d_program_ledger(b.make(2), Z3D_SPACE_DEVICE, &ledger);
    EXPECT_EQ(ledger.total_peak, 100);
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
