// pipeline_gather auto: by time on a described machine, by memory in a run, and why.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/plan/choices.h"

namespace {

const char *const TEXT = "model: {num_layers: 6, hidden_size: 256, num_attention_heads: 4, "
                         "seq_length: 256, vocab_size: 512}\nbf16: {enabled: true}\n"
                         "train_micro_batch_size_per_gpu: 1\ngradient_accumulation_steps: 4\n";

struct Choice {
    int value = -1;
    z3d_gather_price price[2];
    std::string why;
};

Choice choose(const z3d_hardware *hardware, const z3d_room *room, const std::string &gather = "",
              int stage = 3, int pipeline = 2, int ranks = 4) {
    Config c(TEXT + ("parallel: {pipeline_model_parallel_size: " + std::to_string(pipeline)) +
             "}\nzero_optimization: {stage: " + std::to_string(stage) + gather + "}\n");
    z3d_string why = {};
    Choice out;
    const z3d_choice at = {ranks, 1, hardware, room};
    EXPECT_EQ(z3d_choose_gather(c.it, &at, out.price, &why), Z3D_OK) << z3d_error_message();
    out.value = c.it->zero_optimization_pipeline_gather;
    if (why.text) out.why = why.text;
    z3d_string_free(&why);
    EXPECT_EQ(z3d_config_check(c.it, &z3d_model_rules), Z3D_OK) << z3d_error_message();
    return out;
}

void expect(const Choice &c, int value, const char *words) {
    EXPECT_EQ(c.value, value) << c.why;
    EXPECT_NE(c.why.find(words), std::string::npos) << c.why;
}

/* Data ranks are of different nodes. */
z3d_hardware slow_network(double mib) {
    z3d_hardware hardware = machine(mib);
    hardware.devices = 1;
    hardware.network_bandwidth = 1;
    return hardware;
}

z3d_need need_of(const char *gather) {
    Config c(TEXT +
             std::string("parallel: {pipeline_model_parallel_size: 2}\nzero_optimization: "
                         "{stage: 3, pipeline_gather: ") +
             gather + "}\n");
    z3d_need need{};
    const z3d_choice at = {4, 1, nullptr, nullptr};
    EXPECT_EQ(z3d_plan_need(c.it, &at, &need), Z3D_OK) << z3d_error_message();
    return need;
}

} // namespace

TEST(Gather, ByTimeWhereAMachineIsDescribed) {
    z3d_hardware wide = slow_network(1000);
    Choice c = choose(&wide, nullptr);
    expect(c, Z3D_PIPELINE_GATHER_PER_STEP, "per_step (per_step: ");
    EXPECT_LT(c.price[1].seconds, c.price[0].seconds);
    EXPECT_GT(c.price[1].arena, c.price[0].arena);
    z3d_hardware tight = slow_network(double(c.price[0].arena + c.price[1].arena) / 2 / 1048576);
    expect(choose(&tight, nullptr), Z3D_PIPELINE_GATHER_PER_MICROBATCH, "only per_microbatch fits");
    z3d_hardware tiny = slow_network(1);
    expect(choose(&tiny, nullptr), Z3D_PIPELINE_GATHER_PER_MICROBATCH, "neither fits");
}

TEST(Gather, ByMemoryInARun) {
    z3d_need least = need_of("per_microbatch"), most = need_of("per_step");
    EXPECT_LT(most.sent, least.sent);
    z3d_room room = {};
    room.device = most.arena[Z3D_SPACE_DEVICE] / 9 * 10 + 1000;
    expect(choose(nullptr, &room), Z3D_PIPELINE_GATHER_PER_STEP, "per_step (per_step: ");
    room.device = most.arena[Z3D_SPACE_DEVICE] + 1000;
    expect(choose(nullptr, &room), Z3D_PIPELINE_GATHER_PER_MICROBATCH, "of which a tenth stays");
    expect(choose(nullptr, nullptr), Z3D_PIPELINE_GATHER_PER_MICROBATCH, "needs least memory");
}

TEST(Gather, LeavesTheRestAlone) {
    z3d_hardware hardware = slow_network(1000);
    z3d_room room = {};
    Choice given = choose(&hardware, &room, ", pipeline_gather: per_microbatch");
    expect(given, Z3D_PIPELINE_GATHER_PER_MICROBATCH, "");
    EXPECT_EQ(given.why, "");
    EXPECT_GT(given.price[1].seconds, 0);
    struct {
        int stage, pipeline, ranks;
    } const without[] = {{2, 2, 4}, {3, 1, 4}, {3, 2, 2}};
    for (const auto &w : without) {
        Choice c = choose(&hardware, &room, "", w.stage, w.pipeline, w.ranks);
        expect(c, Z3D_PIPELINE_GATHER_AUTO, "");
        EXPECT_EQ(c.why, "");
        EXPECT_EQ(c.price[0].seconds, 0);
    }
}

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
