// cpu_checkpointing auto: on where copies hide or nothing else fits, off elsewhere, and why.
#include <gtest/gtest.h>

#include <functional>
#include <string>

extern "C" {
#include "src/plan/choose/choose.h"
}

namespace {

const char *const TEXT = "model: {num_layers: 8, hidden_size: 1024, num_attention_heads: 16, "
                         "vocab_size: 512}\n"
                         "train_micro_batch_size_per_gpu: 8\nbf16: {enabled: true}\n"
                         "zero_optimization: {stage: 2}\n"
                         "activation_checkpointing: {cpu_checkpointing: auto";

struct Choice {
    int value = -1;
    std::string why;
    bool concrete = false; // nothing of `auto` is left
};

// What `auto` becomes on an H100 node after `change`; known: false: no machine is described.
Choice choose(const std::function<void(z3d_hardware &)> &change, const std::string &more = "",
              bool known = true) {
    z3d_config *config = nullptr;
    z3d_hardware hardware{};
    z3d_string why = {};
    Choice out;
    std::string text = std::string(TEXT) + more + "}\n";
    EXPECT_EQ(z3d_config_create(&config), Z3D_OK);
    EXPECT_EQ(z3d_config_read_text(config, text.data(), text.size(), "test"), Z3D_OK)
        << z3d_error_message();
    EXPECT_EQ(z3d_config_override(config, "training.hardware=some.yaml"), Z3D_OK);
    EXPECT_EQ(z3d_hardware_read_with(ZERO3D_CONFIGS "/hardware/dgx-h100.yaml", nullptr, &hardware),
              Z3D_OK);
    change(hardware);
    const z3d_choice at = {2, 0, known ? &hardware : nullptr, nullptr};
    EXPECT_EQ(z3d_choose_offload(config, &at, &why), Z3D_OK) << z3d_error_message();
    out.value = config->activation_checkpointing_cpu_checkpointing;
    if (why.text) out.why = why.text;
    z3d_string written = {};
    z3d_config_write(config, &written);
    out.concrete = std::string(written.text).find("cpu_checkpointing: auto") == std::string::npos &&
                   std::string(written.text).find("some.yaml") == std::string::npos &&
                   z3d_config_check(config, &z3d_model_rules) == Z3D_OK;
    z3d_string_free(&written);
    z3d_string_free(&why);
    z3d_config_destroy(config);
    return out;
}

void expect(const Choice &c, int value, const char *words) {
    EXPECT_EQ(c.value, value) << c.why;
    EXPECT_NE(c.why.find(words), std::string::npos) << c.why;
    EXPECT_TRUE(c.concrete);
}

TEST(Offload, OnWhereCopiesHide) {
    expect(choose([](z3d_hardware &h) { h.host_bandwidth = 500; }), Z3D_OFFLOAD_ON,
           "on: copying 128 MiB of checkpoints to the host and back is hidden by");
}

TEST(Offload, OffWhereTheyDoNot) {
    expect(choose([](z3d_hardware &h) { h.host_bandwidth = 0.5; }), Z3D_OFFLOAD_OFF,
           "off: copying 128 MiB of checkpoints to the host and back is not hidden by");
    expect(choose([](z3d_hardware &h) { h.host_bandwidth = 2, h.copy_overlap = 0; }),
           Z3D_OFFLOAD_OFF, "is not hidden by");
}

// The device's memory is halfway between the two needs.
TEST(Offload, OnWhereNothingElseFits) {
    double missing = 64.0 * 1024 * 1024;
    auto tight = [&](z3d_hardware &h) {
        h.host_bandwidth = 0.5;
        h.overhead_gb = 0;
        z3d_config *config = nullptr;
        z3d_case *of = nullptr;
        z3d_estimate e{};
        std::string text = std::string(TEXT) + "}\n";
        ASSERT_EQ(z3d_config_create(&config), Z3D_OK);
        ASSERT_EQ(z3d_config_read_text(config, text.data(), text.size(), "test"), Z3D_OK);
        config->activation_checkpointing_cpu_checkpointing = Z3D_OFFLOAD_OFF;
        ASSERT_EQ(z3d_case_create(config, 2, 0, {}, &of), Z3D_OK);
        ASSERT_EQ(z3d_estimate_make(of, &h, 0, nullptr, &e), Z3D_OK);
        h.memory_gib = (double(e.memory.arena) - missing) / 1073741824.0;
        z3d_case_destroy(of);
        z3d_config_destroy(config);
    };
    expect(choose(tight), Z3D_OFFLOAD_ON, "on: without it a rank needs 64.0 MiB more");
    missing = 1e9;
    expect(choose(tight), Z3D_OFFLOAD_OFF, "the run does not fit with or without it");
    expect(choose([](z3d_hardware &h) { h.host_memory_gib = 0.1; }), Z3D_OFFLOAD_OFF,
           "128 MiB of checkpoints do not fit into a rank's host memory");
}

TEST(Offload, HasAStatedDefault) {
    expect(choose([](z3d_hardware &) {}, "", false), Z3D_OFFLOAD_OFF,
           "off: the speed of this machine is unknown");
    expect(choose([](z3d_hardware &) {}, ", granularity: selective"), Z3D_OFFLOAD_OFF,
           "only granularity full");
}

TEST(Offload, LeavesAConcreteValueAlone) {
    z3d_config *config = nullptr;
    z3d_string why = {};
    const z3d_choice nothing = {};
    ASSERT_EQ(z3d_config_create(&config), Z3D_OK);
    for (const char *value : {"false", "true"}) {
        std::string assignment = std::string("activation_checkpointing.cpu_checkpointing=") + value;
        ASSERT_EQ(z3d_config_override(config, assignment.c_str()), Z3D_OK);
        EXPECT_EQ(z3d_choose_offload(config, &nothing, &why), Z3D_OK);
        EXPECT_EQ(config->activation_checkpointing_cpu_checkpointing, value[0] == 't');
        EXPECT_EQ(why.length, 0u);
    }
    z3d_config_destroy(config);
}

} // namespace

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
