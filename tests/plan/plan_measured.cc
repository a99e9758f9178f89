// Steps that others have measured: Megatron-LM on 2 to 512 A100s, priced with its software; the
// range that is printed; and a calibration on half of them, which predicts the other half.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <string>

extern "C" {
#include "src/plan/calibrate/calibrate.h"
#include "src/plan/price/accuracy.h"
}

namespace {

const std::string machine = ZERO3D_CONFIGS "/hardware/hgx-a100-800g.yaml",
                  shipped = ZERO3D_CONFIGS "/../tests/data/steps-a100.csv";

const char base[] =
    R"(model: { seq_length: 1024, vocab_size: 51200, hidden_dropout: 0.1, attention_dropout: 0.1 }
parallel: { pipeline_schedule: 1f1b }
zero_optimization: { stage: 0, overlap_comm: false }
gradient_clipping: 1
activation_checkpointing: { granularity: full, replay: full, recompute_activation: true }
fp16: { enabled: true }
)";

z3d_status read_steps(const std::string &path, z3d_measured_steps *out) {
    z3d_config *config;
    z3d_hardware hardware;
    EXPECT_EQ(z3d_hardware_read(machine.c_str(), &hardware), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(z3d_config_create(&config), Z3D_OK);
    EXPECT_EQ(z3d_config_read_text(config, base, sizeof base - 1, "base"), Z3D_OK)
        << z3d_error_message();
    const z3d_status status = z3d_measured_steps_read(config, &hardware, path.c_str(), out);
    z3d_config_destroy(config);
    return status;
}

// The file of this repository, read once.
const z3d_measured_steps &shipped_steps() {
    static z3d_measured_steps steps{};
    if (steps.count == 0) {
        EXPECT_EQ(read_steps(shipped, &steps), Z3D_OK) << z3d_error_message();
    }
    return steps;
}

double predicted(const z3d_measured_step &step, const z3d_hardware *hardware) {
    z3d_estimate e{};
    EXPECT_EQ(z3d_estimate_make(step.of, hardware, 0, nullptr, &e), Z3D_OK) << z3d_error_message();
    return e.time.seconds;
}

int ranks_of(const z3d_measured_step &step) {
    return z3d_mesh_size(&step.of->mesh, Z3D_AXES_WORLD);
}

TEST(Measured, MegatronOnA100s) {
    const z3d_measured_steps &steps = shipped_steps();
    z3d_hardware hardware;
    ASSERT_EQ(z3d_hardware_read_with(machine.c_str(), "megatron-2021", &hardware), Z3D_OK)
        << z3d_error_message();
    double sum[2] = {0, 0};
    int count[2] = {0, 0}, inside = 0;
    for (int i = 0; i < steps.count; i++) {
        const z3d_measured_step &step = steps.step[i];
        const double seconds = predicted(step, &hardware);
        const bool nodes = ranks_of(step) > 8;
        z3d_compared range;
        sum[nodes] += std::fabs(seconds / step.seconds - 1);
        count[nodes]++;
        const z3d_run_kind kind = z3d_case_kind(step.of);
        ASSERT_TRUE(z3d_compared_find(&hardware, &kind, &range)) << i;
        inside += step.seconds >= range.low * seconds && step.seconds <= range.high * seconds;
        EXPECT_LE(std::fabs(range.low - 1), 0.25);
        EXPECT_LE(std::fabs(range.high - 1), 0.25);
    }
    EXPECT_EQ(count[0], 12);
    EXPECT_EQ(count[1], 12);
    EXPECT_LE(sum[0] / count[0], 0.15);
    EXPECT_LE(sum[1] / count[1], 0.10);
    EXPECT_GE(inside, 0.75 * steps.count); // 8 of 10 of all 396 steps: a part varies
    printf("one node %.1f %%, several %.1f %%; %d of %d in the range\n", 100 * sum[0] / count[0],
           100 * sum[1] / count[1], inside, steps.count);
}

// Of another generation nobody has compared anything.
TEST(Measured, NeverCompared) {
    z3d_hardware hardware;
    z3d_compared range;
    z3d_string text{};
    ASSERT_EQ(
        z3d_hardware_read_with(ZERO3D_CONFIGS "/hardware/h200.yaml", "megatron-2021", &hardware),
        Z3D_OK);
    const z3d_run_kind kind = {8, 0, 0, 1e9};
    EXPECT_FALSE(z3d_compared_find(&hardware, &kind, &range));
    z3d_compared_print(&hardware, &kind, 1, &text);
    EXPECT_NE(strstr(text.text, "never compared"), nullptr) << text.text;
    EXPECT_NE(strstr(text.text,
                     "\n  nearest: 8 in 10 of 360 measured steps of this software on 2 to 8 "
                     "A100-SXM4-80GB took 0.87 to 1.13\n  times as long as predicted (0.2 to 1.32 "
                     "billion parameters, ZeRO stage at most 1, no offload)\n"),
              nullptr)
        << text.text;
    z3d_string_free(&text);
    z3d_compared_others_print(&hardware, &text);
    EXPECT_EQ(text.length, 0u) << text.text; // no software was compared on this device
    z3d_string_free(&text);
}

// The default software was never compared on A100s; another one was.
TEST(Measured, SoftwareThatWasComparedOnThisDevice) {
    z3d_hardware hardware;
    z3d_string text{};
    ASSERT_EQ(z3d_hardware_read_with(machine.c_str(), nullptr, &hardware), Z3D_OK);
    z3d_compared_others_print(&hardware, &text);
    EXPECT_STREQ(text.text, "--software megatron-2021 was compared with 396 measured steps of "
                            "A100-SXM4-80GB; the default software was not\n");
    z3d_string_free(&text);
    ASSERT_EQ(z3d_hardware_read_with(machine.c_str(), "megatron-2021", &hardware), Z3D_OK);
    z3d_compared_others_print(&hardware, &text);
    EXPECT_EQ(text.length, 0u) << text.text;
    z3d_string_free(&text);
}

// A run that is not like the compared ones has no range.
TEST(Measured, NeverComparedWithSuchARun) {
    z3d_hardware hardware;
    z3d_compared range;
    ASSERT_EQ(z3d_hardware_read_with(machine.c_str(), "megatron-2021", &hardware), Z3D_OK);
    auto is_compared = [&](const z3d_run_kind &kind) {
        return z3d_compared_find(&hardware, &kind, &range);
    };
    EXPECT_TRUE(is_compared({8, 1, 0, 1e9}));
    EXPECT_EQ(range.runs, 360);
    EXPECT_TRUE(is_compared({512, 0, 0, 39e9}));
    EXPECT_EQ(range.runs, 36);
    EXPECT_FALSE(is_compared({8, 3, 0, 1e9}));     // ZeRO stage
    EXPECT_FALSE(is_compared({8, 1, 1, 1e9}));     // offload
    EXPECT_FALSE(is_compared({1, 0, 0, 1e9}));     // ranks
    EXPECT_FALSE(is_compared({8, 1, 0, 13e9}));    // parameters
    EXPECT_FALSE(is_compared({1024, 1, 0, 39e9})); // ranks
    z3d_string text{};
    const z3d_run_kind large = {1024, 1, 0, 39e9};
    z3d_compared_print(&hardware, &large, 1, &text);
    EXPECT_STREQ(
        text.text,
        "never compared with measured steps of this software on several nodes of "
        "A100-SXM4-80GB\n  nearest: 8 in 10 of 36 measured steps of this software on 64 to "
        "512 A100-SXM4-80GB took 0.94 to 1.2\n  times as long as predicted (3.5 to 175 billion "
        "parameters, ZeRO stage at most 1, no offload)\n");
    z3d_string_free(&text);
    const std::string h100 = ZERO3D_CONFIGS "/hardware/dgx-h100.yaml";
    ASSERT_EQ(z3d_hardware_read_with(h100.c_str(), nullptr, &hardware), Z3D_OK);
    EXPECT_TRUE(is_compared({1, 0, 0, 1.5e9})); // nine steps of ours on one H100
    EXPECT_EQ(range.runs, 9);
    EXPECT_FALSE(is_compared({8, 1, 0, 1.5e9}));
    snprintf(hardware.kind, sizeof hardware.kind, "cpu");
    hardware.measured.count = 1;
    hardware.devices = 8;
    EXPECT_TRUE(is_compared({8, 3, 2, 1e7}));
    EXPECT_EQ(range.runs, 50);
    EXPECT_FALSE(is_compared({9, 3, 0, 1e7})); // several nodes
    hardware.measured.count = 0;
    EXPECT_FALSE(is_compared({8, 3, 0, 1e7})); // not measured
}

TEST(Measured, CalibratedOnHalfOfThem) {
    const z3d_measured_steps &steps = shipped_steps();
    z3d_hardware hardware;
    z3d_calibration found;
    const char *name = nullptr;
    z3d_measured_step half[12], rest[12]; // of steps of one node and of several
    for (int i = 0; i < 24; i++) (i % 2 ? rest : half)[i / 2] = steps.step[i];
    ASSERT_EQ(z3d_hardware_read(machine.c_str(), &hardware), Z3D_OK);
    const z3d_measured_steps seen = {12, half};
    ASSERT_EQ(z3d_nearest_software(&seen, &hardware, &name), Z3D_OK) << z3d_error_message();
    EXPECT_STREQ(name, "megatron-2021");
    ASSERT_EQ(z3d_calibrate(&seen, &hardware, &found), Z3D_OK) << z3d_error_message();
    EXPECT_LE(found.count, 3);
    EXPECT_LE(found.unseen, found.before + 1e-9);
    double sum = 0;
    for (const z3d_measured_step &step : rest)
        sum += std::fabs(predicted(step, &hardware) / step.seconds - 1);
    EXPECT_LE(sum / 12, 0.12);
    // What it writes is read again, with the same prices.
    z3d_string text{};
    z3d_hardware again;
    z3d_software_write(&hardware, "", &text);
    ASSERT_EQ(z3d_hardware_read(machine.c_str(), &again), Z3D_OK);
    ASSERT_EQ(z3d_hardware_adjust_text(text.text, text.length, "written", &again), Z3D_OK)
        << z3d_error_message();
    EXPECT_NEAR(predicted(rest[0], &again), predicted(rest[0], &hardware), 1e-9);
    EXPECT_EQ(again.node_runs + again.nodes_runs, 12);
    z3d_string_free(&text);
    const z3d_measured_steps few = {3, half};
    EXPECT_EQ(z3d_calibrate(&few, &hardware, &found), Z3D_ERR_CONFIG);
}

// Steps of one configuration are one row; a class and a number need four rows.
TEST(Measured, OneRowSaysNothing) {
    const z3d_measured_step *shipped_step = shipped_steps().step;
    z3d_hardware hardware;
    z3d_calibration found;
    z3d_measured_step rows[9];
    for (int i = 0; i < 9; i++) rows[i] = shipped_step[12 + (i < 8 ? i % 3 : 3)];
    z3d_measured_steps steps = {8, rows};
    ASSERT_EQ(z3d_hardware_read_with(machine.c_str(), "megatron-2021", &hardware), Z3D_OK);
    EXPECT_EQ(z3d_calibrate(&steps, &hardware, &found), Z3D_ERR_CONFIG);
    EXPECT_NE(strstr(z3d_error_message(), "8 measured steps of 3 different configurations"),
              nullptr)
        << z3d_error_message();
    steps.count = 9;
    ASSERT_EQ(z3d_calibrate(&steps, &hardware, &found), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(found.steps, 9);
    EXPECT_EQ(found.rows, 4);
    EXPECT_EQ(hardware.node_runs, 4);
    EXPECT_EQ(hardware.node_ranks_most, 8);
    EXPECT_EQ(hardware.compared_stage, 0);

    // Eleven of one node and one of several: no number of the network, and no range on several.
    z3d_measured_step mixed[12];
    for (int i = 0; i < 12; i++) mixed[i] = shipped_step[i == 5 ? 0 : 12 + i];
    const z3d_measured_steps most = {12, mixed};
    ASSERT_EQ(z3d_hardware_read_with(machine.c_str(), "megatron-2025", &hardware), Z3D_OK);
    const double network = hardware.network_efficiency;
    ASSERT_EQ(z3d_calibrate(&most, &hardware, &found), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(hardware.network_efficiency, network);
    EXPECT_EQ(hardware.node_runs, 11);
    EXPECT_EQ(hardware.nodes_runs, 0);
}

// Milliseconds in place of seconds are not fitted.
TEST(Measured, ErrorAboveHalfIsRefused) {
    z3d_hardware hardware;
    z3d_calibration found;
    z3d_measured_step rows[12];
    for (int i = 0; i < 12; i++) {
        rows[i] = shipped_steps().step[12 + i];
        rows[i].seconds *= 1000;
    }
    const z3d_measured_steps steps = {12, rows};
    ASSERT_EQ(z3d_hardware_read_with(machine.c_str(), "megatron-2021", &hardware), Z3D_OK);
    EXPECT_EQ(z3d_calibrate(&steps, &hardware, &found), Z3D_ERR_CONFIG);
    EXPECT_NE(strstr(z3d_error_message(), "milliseconds"), nullptr) << z3d_error_message();
}

// From software that is far from these steps three numbers take most of the way.
TEST(Measured, CalibratedFromAfar) {
    z3d_hardware hardware;
    z3d_calibration found;
    z3d_measured_step near[12];
    for (int i = 0; i < 12; i++) near[i] = shipped_steps().step[12 + i];
    const z3d_measured_steps node = {12, near};
    ASSERT_EQ(z3d_hardware_read_with(machine.c_str(), "megatron-2025", &hardware), Z3D_OK);
    ASSERT_EQ(z3d_calibrate(&node, &hardware, &found), Z3D_OK) << z3d_error_message();
    EXPECT_GT(found.count, 0);
    EXPECT_LT(found.unseen, 0.7 * found.before);
    EXPECT_GT(hardware.host_launch_us, 20);
    EXPECT_EQ(hardware.node_runs, 12);
    EXPECT_LT(hardware.node_low, hardware.node_high);
}

void refused(const std::string &text, const std::string &word) {
    z3d_measured_steps steps{};
    std::ofstream("steps.csv") << text;
    EXPECT_NE(read_steps("steps.csv", &steps), Z3D_OK) << text;
    EXPECT_NE(std::string(z3d_error_message()).find(word), std::string::npos)
        << z3d_error_message();
    EXPECT_EQ(steps.count, 0);
    z3d_measured_steps_free(&steps);
}

TEST(Measured, FilesThatAreRefused) {
    const std::string head = "layers,hidden,heads,tensor,batch,micro_batch,ranks,seconds\n";
    refused("", "no header");
    refused("layers,seconds\n", "line 1: there is no column ranks; expected a header");
    refused("layers,ranks,time\n", "line 1: there is no column seconds; expected a header");
    refused(head + "2,64,2,1,4,4,1\n", "line 2: not as many fields");
    refused(head + "2,64,2,1,4,4,0,1\n", "line 2: ranks");
    refused(head + "\n2,64,2,1,4,4,1,-1\n", "line 3: seconds");
    refused(head + "2,64,2,1,4,4,1,nan\n", "line 2: seconds");
    refused(head + "2,64,2,1,4,4,1,1e-310\n", "line 2: seconds of a step: 1e-310");
    refused(head + "2,64,2,1,4,4,1,9e-7\n", "expected 1e-6 to 1e6");
    refused("layers,model.num_layers,ranks,seconds\n", "line 1: two columns mean the same");
    refused(head + std::string("2,64,2,1,4,4,1,1\0#\n", 19), "zero byte");
    refused(head + "2,64,3,1,4,4,1,1\n", "line 2");
    refused("speed,ranks,seconds\n1,1,1\n", "line 2");
    refused(head + std::string(300, ',') + "\n", "line 2: not as many fields");
    refused(std::string(40, ',') + "\n", "32 columns");
    refused(head + std::string(400, 'x') + ",64,2,1,4,4,1,1\n", "a long field");
    z3d_measured_steps steps{};
    EXPECT_NE(read_steps("no-such-file.csv", &steps), Z3D_OK);
}

// What spreadsheets write: a byte-order mark, spaces beside commas.
TEST(Measured, FilesOfSpreadsheets) {
    z3d_measured_steps steps{};
    std::ofstream("steps.csv")
        << "\xef\xbb\xbflayers , hidden,heads\t,pipeline,batch, micro_batch ,ranks "
           ",seconds \r\n2 , 64,2,1,4,4,1 ,0.5 \r\n";
    EXPECT_EQ(read_steps("steps.csv", &steps), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(steps.count, 1);
    z3d_measured_steps_free(&steps);
}

// Nodes have as many ranks as the described machine: hierarchical collectives are priced.
TEST(Measured, NodesOfTheMachine) {
    z3d_measured_steps steps{};
    std::ofstream("steps.csv")
        << "layers,hidden,heads,pipeline,batch,micro_batch,ranks,seconds,"
           "zero_optimization.stage,zero_optimization.zero_hpz_partition_size"
           "\n2,64,2,1,64,4,16,0.5,3,8\n";
    EXPECT_EQ(read_steps("steps.csv", &steps), Z3D_OK) << z3d_error_message();
    z3d_measured_steps_free(&steps);
}

// The host launches while the device works: what it takes for that shows only where it is longer.
TEST(Measured, LaunchesHideBesideWork) {
    const z3d_measured_steps &steps = shipped_steps();
    z3d_hardware hardware;
    ASSERT_EQ(z3d_hardware_read_with(machine.c_str(), "megatron-2021", &hardware), Z3D_OK);
    const z3d_measured_step *small = nullptr;
    for (int i = 0; i < steps.count; i++)
        if (steps.step[i].seconds < 0.125) small = &steps.step[i];
    ASSERT_NE(small, nullptr);
    z3d_estimate e{};
    const double at_once[] = {0, 150e-6};
    double seconds[2][2];
    for (int slow = 0; slow < 2; slow++) {
        hardware.host_launch_us = 1e6 * at_once[slow];
        seconds[slow][0] = predicted(steps.step[0], &hardware);
        EXPECT_EQ(z3d_estimate_make(small->of, &hardware, 0, nullptr, &e), Z3D_OK);
        seconds[slow][1] = e.time.seconds;
    }
    EXPECT_LT(seconds[1][0], 1.001 * seconds[0][0]); // 3.6B, micro-batches of 4 x 2048 tokens
    EXPECT_GT(seconds[1][1], 1.05 * seconds[0][1]);
    EXPECT_GT(e.time.launch, 0);
    hardware.transfers_block = 0; // then the host has launched what follows a receive
    const z3d_measured_step *pipeline = nullptr;
    for (int i = 0; i < steps.count; i++)
        if (steps.step[i].seconds < 0.12) pipeline = &steps.step[i];
    ASSERT_NE(pipeline, nullptr);
    const double goes_on = predicted(*pipeline, &hardware);
    hardware.transfers_block = 1;
    EXPECT_GT(predicted(*pipeline, &hardware), goes_on);
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    z3d_log_configure(Z3D_LOG_WARN, 0);
    return RUN_ALL_TESTS();
}
