// granularity and recompute_activation auto: what leaves a tenth of the memory free, in a run or on
// a described machine.
#include <gtest/gtest.h>

#include <string>

#include "tests/plan/choices.h"

namespace {

const char *const TEXT = "model: {num_layers: 6, hidden_size: 256, num_attention_heads: 4, "
                         "seq_length: 256, vocab_size: 512}\nbf16: {enabled: true}\n"
                         "train_micro_batch_size_per_gpu: 4\ngradient_accumulation_steps: 2\n"
                         "parallel: {pipeline_model_parallel_size: 2}\n"
                         "activation_checkpointing: {granularity: ";

const char *const SMALL = "model.vocab_size=512", *const LARGE = "model.vocab_size=50257";

// What stays free in a run: a tenth, but at least this, which is more where runs are small.
const int64_t FREE = 64 << 20;

struct Choice {
    int value = -1;
    std::string why;
};

Choice choose(const std::string &granularity, const z3d_hardware *hardware, const z3d_room *room,
              const std::string &given = "auto", const char *more = SMALL) {
    Config c(TEXT + granularity + ", recompute_activation: " + given + "}\n");
    EXPECT_EQ(z3d_config_override(c.it, more), Z3D_OK) << z3d_error_message();
    z3d_string why = {};
    Choice out;
    const z3d_choice at = {4, 1, hardware, room};
    EXPECT_EQ(z3d_choose_activation(c.it, &at, &why), Z3D_OK) << z3d_error_message();
    out.value = c.it->activation_checkpointing_recompute_activation;
    if (why.text) out.why = why.text;
    z3d_string_free(&why);
    return out;
}

void expect(const Choice &c, int value, const char *words) {
    EXPECT_EQ(c.value, value) << c.why;
    EXPECT_NE(c.why.find(words), std::string::npos) << c.why;
}

int64_t arena(const std::string &granularity, const char *recompute, const char *more = SMALL) {
    Config c(TEXT + granularity + ", recompute_activation: " + recompute + "}\n");
    EXPECT_EQ(z3d_config_override(c.it, more), Z3D_OK) << z3d_error_message();
    z3d_need need{};
    const z3d_choice at = {4, 1, nullptr, nullptr};
    EXPECT_EQ(z3d_plan_need(c.it, &at, &need), Z3D_OK) << z3d_error_message();
    return need.arena[Z3D_SPACE_DEVICE];
}

/* Of the GPU that a machine has, which needs other scratch. */
int64_t arena_there(const std::string &granularity) {
    Config c(TEXT + granularity + ", recompute_activation: false}\n");
    const z3d_hardware hardware = machine(1000);
    z3d_case *of = nullptr;
    z3d_estimate e{};
    EXPECT_EQ(z3d_case_create(c.it, 4, 0, z3d_case_node(c.it, &hardware), &of), Z3D_OK)
        << z3d_error_message();
    EXPECT_EQ(z3d_estimate_make(of, &hardware, 0, nullptr, &e), Z3D_OK) << z3d_error_message();
    z3d_case_destroy(of);
    return e.fullest.arena;
}

Choice granularity(const z3d_hardware *hardware, const z3d_room *room, const char *more = SMALL,
                   int first = Z3D_GRANULARITY_NONE) {
    Config c(std::string(TEXT) + "auto}\n");
    EXPECT_EQ(z3d_config_override(c.it, more), Z3D_OK) << z3d_error_message();
    z3d_string why = {};
    Choice out;
    const z3d_choice at = {4, 1, hardware, room};
    EXPECT_EQ(z3d_choose_granularity(c.it, &at, first, &why), Z3D_OK) << z3d_error_message();
    out.value = c.it->activation_checkpointing_granularity;
    if (why.text) out.why = why.text;
    z3d_string_free(&why);
    return out;
}

} // namespace

// The first of none, selective and full that leaves a tenth of the memory free.
TEST(Granularity, IsTheFirstThatFits) {
    const int64_t none = arena("none", "true"), selective = arena("selective", "true"),
                  full = arena("full", "true");
    ASSERT_GT(none, selective);
    ASSERT_GT(selective, full);
    EXPECT_EQ(arena("auto", "true"), full);
    z3d_room room = {};
    room.device = none + FREE;
    expect(granularity(nullptr, &room), Z3D_GRANULARITY_NONE, "none: a rank needs ");
    room.device = none + FREE - 1;
    expect(granularity(nullptr, &room), Z3D_GRANULARITY_SELECTIVE, ", with none ");
    room.device = selective + FREE - 1;
    expect(granularity(nullptr, &room), Z3D_GRANULARITY_FULL, ", with selective ");
    room.device = 1;
    expect(granularity(nullptr, &room), Z3D_GRANULARITY_FULL, "of which a tenth stays free");
    const z3d_hardware wide = machine(10000), tight = machine(0.001);
    expect(granularity(&wide, nullptr), Z3D_GRANULARITY_NONE, "none: a rank needs ");
    expect(granularity(&tight, nullptr), Z3D_GRANULARITY_FULL, "full: a rank needs ");
}

TEST(Granularity, KeepsWhatARunHad) {
    z3d_room room = {};
    room.device = INT64_MAX;
    EXPECT_EQ(granularity(nullptr, &room, SMALL, Z3D_GRANULARITY_SELECTIVE).value,
              Z3D_GRANULARITY_SELECTIVE);
    EXPECT_EQ(granularity(nullptr, &room, SMALL, Z3D_GRANULARITY_FULL).value, Z3D_GRANULARITY_FULL);
    room.device = 1;
    EXPECT_EQ(granularity(nullptr, &room, SMALL, Z3D_GRANULARITY_SELECTIVE).value,
              Z3D_GRANULARITY_FULL);
}

TEST(Granularity, IsFullWhereOtherKeysOrAnUnknownMachineWantIt) {
    z3d_room room = {};
    room.device = INT64_MAX;
    for (const char *more :
         {"activation_checkpointing.number_checkpoints=3", "activation_checkpointing.replay=full",
          "activation_checkpointing.cpu_checkpointing=true"})
        expect(granularity(nullptr, &room, more), Z3D_GRANULARITY_FULL, "which the other keys");
    expect(granularity(nullptr, nullptr), Z3D_GRANULARITY_FULL, "a run decides by the memory");
}

TEST(Activation, IsKeptWhereATenthOfTheMemoryStaysFree) {
    for (const char *granularity : {"full", "selective", "none"}) {
        SCOPED_TRACE(granularity);
        const int64_t kept = arena(granularity, "false");
        EXPECT_GT(kept, arena(granularity, "true"));
        EXPECT_EQ(arena(granularity, "auto"), arena(granularity, "true"));
        z3d_room room = {};
        room.device = kept + FREE;
        expect(choose(granularity, nullptr, &room), Z3D_RECOMPUTE_FALSE, "false: a rank");
        room.device = kept + FREE - 1;
        expect(choose(granularity, nullptr, &room), Z3D_RECOMPUTE_TRUE, "of which a tenth stays");
        const double mib = double(arena_there(granularity)) / 0.9 / 1048576;
        z3d_hardware wide = machine(mib * 1.001), tight = machine(mib * 0.999);
        expect(choose(granularity, &wide, nullptr), Z3D_RECOMPUTE_FALSE, "false: a rank");
        expect(choose(granularity, &tight, nullptr), Z3D_RECOMPUTE_TRUE, "of which a tenth stays");
    }
}

// With whole blocks recomputed and a large vocabulary the peak is at the head.
TEST(Activation, IsKeptWhereItTakesNoMemory) {
    const int64_t bytes = arena("full", "true", LARGE);
    EXPECT_EQ(arena("full", "false", LARGE), bytes);
    z3d_room room = {};
    room.device = bytes;
    expect(choose("full", nullptr, &room, "auto", LARGE), Z3D_RECOMPUTE_FALSE,
           "as much as one that does not");
}

TEST(Activation, IsComputedAgainWhereTheMemoryIsUnknown) {
    const Choice c = choose("none", nullptr, nullptr);
    EXPECT_EQ(c.value, Z3D_RECOMPUTE_TRUE);
    EXPECT_EQ(c.why, "");
}

TEST(Activation, WhatIsGivenStays) {
    z3d_room large = {}, small = {};
    large.device = INT64_MAX, small.device = 1000;
    const Choice again = choose("none", nullptr, &large, "true");
    EXPECT_EQ(again.value, Z3D_RECOMPUTE_TRUE);
    EXPECT_EQ(again.why, "");
    EXPECT_EQ(choose("none", nullptr, &small, "false").value, Z3D_RECOMPUTE_FALSE);
}

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
