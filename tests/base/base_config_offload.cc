/* Where optimizer states and parameters lie: DeepSpeed's blocks of offload. */
#include "tests/base/config_harness.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include <unistd.h>

#define OPTIMIZER "zero_optimization.offload_optimizer"
#define PARAM "zero_optimization.offload_param"

static std::string block(const std::string &optimizer, const std::string &rest = "") {
    return "zero_optimization: {stage: 3, offload_optimizer: {" + optimizer + "}" + rest + "}\n";
}

static std::string data_file(const char *name) {
    return std::string(ZERO3D_TEST_DATA) + "/configs/" + name;
}

static std::string text_of(const char *name) {
    std::ifstream file(data_file(name));
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Offload, DefaultsAreDeepspeeds) {
    Config c;
    EXPECT_EQ(c->zero_optimization_offload_optimizer_device, Z3D_OFFLOAD_DEVICE_NONE);
    EXPECT_STREQ(c->zero_optimization_offload_optimizer_nvme_path, "");
    EXPECT_EQ(c->zero_optimization_offload_optimizer_buffer_count, 4);
    EXPECT_EQ(c->zero_optimization_offload_optimizer_ratio, 1);
    EXPECT_EQ(c->zero_optimization_offload_param_device, Z3D_OFFLOAD_DEVICE_NONE);
    EXPECT_STREQ(c->zero_optimization_offload_param_nvme_path, "");
    EXPECT_EQ(c->zero_optimization_sub_group_size, 1000000000);
    EXPECT_EQ(c->zero_optimization_stage3_prefetch_bucket_size, Z3D_AUTO); // 5e7 with offload_param
}

TEST(Offload, PastedZeroOffload) {
    const std::string text = text_of("ds_zero_offload.json");
    EXPECT_EQ(all_errors(text, {}), "accepted");
    testing::internal::CaptureStderr();
    Config c(text);
    (void)z3d_config_check(c.get, NULL);
    std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(c->zero_optimization_offload_optimizer_device, Z3D_OFFLOAD_DEVICE_CPU);
    for (const char *line :
         {OPTIMIZER ".pin_memory has no effect here: host memory for a GPU is always page-locked\n",
          OPTIMIZER ".fast_init has no effect here: ",
          OPTIMIZER ".nvme_path has no effect unless " OPTIMIZER ".device is nvme\n",
          "contiguous_gradients has no effect here"})
        EXPECT_TRUE(has(said, line)) << line << " in\n" << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 4) << said;
}

TEST(Offload, PastedZeroInfinity) {
    const std::string text = text_of("ds_zero_infinity.json");
    EXPECT_EQ(all_errors(text, {}), "accepted");
    testing::internal::CaptureStderr();
    Config c(text);
    (void)z3d_config_check(c.get, NULL);
    std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(c->zero_optimization_offload_optimizer_device, Z3D_OFFLOAD_DEVICE_NVME);
    EXPECT_STREQ(c->zero_optimization_offload_optimizer_nvme_path, "/local_nvme");
    EXPECT_EQ(c->zero_optimization_offload_optimizer_buffer_count, 5);
    EXPECT_EQ(c->zero_optimization_offload_param_device, Z3D_OFFLOAD_DEVICE_NVME);
    EXPECT_STREQ(c->zero_optimization_offload_param_nvme_path, "/local_nvme");
    EXPECT_EQ(c->zero_optimization_sub_group_size, 100000000);
    EXPECT_EQ(c->zero_optimization_stage3_prefetch_bucket_size, 10000000);
    for (const char *keys :
         {OPTIMIZER ".{pipeline_read, pipeline_write, fast_init}, " PARAM
                    ".{buffer_count, buffer_size, max_in_cpu}, aio have no effect here: ",
          OPTIMIZER ".pin_memory, " PARAM ".pin_memory have no effect here: "})
        EXPECT_TRUE(has(said, keys)) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
    // Switched off on a machine without such a disk: the file stays as it is.
    EXPECT_EQ(all_errors(text, {OPTIMIZER ".device=none", PARAM ".device=none"}), "accepted");
    EXPECT_EQ(all_errors(text, {OPTIMIZER "=null", PARAM "=null"}), "accepted");
    EXPECT_EQ(all_errors(text, {PARAM ".device=cpu"}), "accepted");
    EXPECT_EQ(all_errors(text, {"zero_optimization.stage=2"}), "accepted"); // offload_param is told
}

TEST(Offload, NvmeNeedsAFolder) {
    EXPECT_EQ(all_errors(block("device: nvme", ", offload_param: {device: nvme}"), {}),
              "run.yaml:1:51: " OPTIMIZER
              ".device: nvme needs a folder on a local disk; set " OPTIMIZER ".nvme_path\n"
              "run.yaml:1:82: " PARAM ".device: nvme needs a folder on a local disk; set " PARAM
              ".nvme_path");
    EXPECT_EQ(all_errors(block("device: nvme, nvme_path: null"), {}),
              "run.yaml:1:51: " OPTIMIZER
              ".device: nvme needs a folder on a local disk; set " OPTIMIZER ".nvme_path");
    EXPECT_EQ(all_errors(block("device: nvme, nvme_path: tier"), {}), "accepted");
}

// Activation checkpoints have a folder of their own, or that of the other blocks: a rank has one
// file.
TEST(Offload, CheckpointsOnTheDiskNeedAFolder) {
    const std::string on = "activation_checkpointing: {cpu_checkpointing: nvme";
    EXPECT_EQ(all_errors(on + "}\n", {}),
              "run.yaml:1:28: activation_checkpointing.cpu_checkpointing: nvme needs a folder on a "
              "local disk; set activation_checkpointing.nvme_path");
    EXPECT_EQ(all_errors(on + ", nvme_path: a}\n", {}), "accepted");
    for (const char *other : {"offload_optimizer", "offload_param"}) {
        const std::string theirs = std::string("zero_optimization: {stage: 3, ") + other +
                                   ": {device: nvme, nvme_path: a}}\n";
        EXPECT_EQ(all_errors(on + "}\n" + theirs, {}), "accepted");
        EXPECT_EQ(all_errors(on + ", nvme_path: a}\n" + theirs, {}), "accepted");
        EXPECT_EQ(all_errors(on + ", nvme_path: b}\n" + theirs, {}),
                  "run.yaml:1:53: activation_checkpointing.nvme_path: 'b', but zero_optimization." +
                      std::string(other) +
                      ".nvme_path is 'a': a rank has one file for both; write the same folder");
    }
    EXPECT_TRUE(has(all_errors("activation_checkpointing: {nvme_path: a}\n", {}),
                    "has no effect unless activation_checkpointing.cpu_checkpointing is nvme; set "
                    "it to nvme, or leave this key out"));
    // A file stays as it is while overrides try this and that.
    for (const char *change : {"activation_checkpointing.cpu_checkpointing=true",
                               "activation_checkpointing.granularity=none"})
        EXPECT_EQ(all_errors(on + ", nvme_path: a}\n", {change}), "accepted") << change;
}

TEST(Offload, StatesInEveryStageParametersInStage3) {
    for (const char *stage : {"0", "1", "2", "3"}) {
        std::string start = std::string("zero_optimization: {stage: ") + stage;
        EXPECT_EQ(all_errors(start + ", offload_optimizer: {device: cpu}}", {}), "accepted")
            << stage;
        for (const char *param : {"device: cpu", "device: nvme, nvme_path: a, buffer_count: 7"})
            EXPECT_EQ(all_errors(start + ", offload_param: {" + param + "}}", {}),
                      *stage == '3' ? "accepted"
                                    : "run.yaml:1:47: " PARAM ".device: has no effect below "
                                      "zero_optimization.stage 3: every rank keeps whole "
                                      "parameters; set the stage to 3, or leave this key out")
                << stage;
    }
}

TEST(Offload, WhatTheDeviceLeavesWithoutEffect) {
    const struct {
        const char *key, *value, *because;
    } keys[] = {
        {OPTIMIZER ".nvme_path", "a", "unless " OPTIMIZER ".device is nvme"},
        {OPTIMIZER ".buffer_count", "8", "while " OPTIMIZER ".device is none"},
        {OPTIMIZER ".ratio", "0.5", "while " OPTIMIZER ".device is none"},
        {OPTIMIZER ".delayed_param_update", "true", "while " OPTIMIZER ".device is none"},
        {PARAM ".nvme_path", "a", "unless " PARAM ".device is nvme"},
        {"zero_optimization.sub_group_size", "7", "while " OPTIMIZER ".device is none"},
        {"zero_optimization.stage3_prefetch_bucket_size", "7", "below zero_optimization.stage 3"},
        {"zero_optimization.stage3_max_live_parameters", "7", "below zero_optimization.stage 3"},
        {"zero_optimization.stage3_max_reuse_distance", "7", "below zero_optimization.stage 3"},
    };
    for (const auto &k : keys) {
        std::string assignment = std::string(k.key) + "=" + k.value;
        EXPECT_TRUE(
            has(all_errors("", {assignment.c_str()}), std::string("has no effect ") + k.because))
            << assignment;
    }
    // A block that nobody switched on is a mistake, one that is switched off is not.
    EXPECT_TRUE(has(all_errors(block("nvme_path: a"), {}), "; set it to nvme, or leave this key"));
    EXPECT_EQ(all_errors(block("device: none, nvme_path: a, buffer_count: 8, ratio: 0.5"), {}),
              "accepted");
    EXPECT_EQ(all_errors("zero_optimization: {sub_group_size: 5e7}\n", {}), "accepted");
    EXPECT_EQ(all_errors("zero_optimization: {offload_optimizer: null}\n", {}), "accepted");
}

TEST(CommsLogger, SaysWhatHasNoEffect) {
    const char *const on = "comms_logger: {enabled: true}\n", *const some =
                                                                  "comms_logger.prof_all=false";
    EXPECT_EQ(all_errors("comms_logger: {enabled: false, verbose: true, debug: true, "
                         "prof_all: false, prof_ops: [send]}\n",
                         {}),
              "accepted");
    EXPECT_TRUE(has(all_errors("", {"comms_logger.prof_ops=[send]"}),
                    "has no effect while comms_logger.enabled is false; set it to true"));
    EXPECT_TRUE(has(all_errors(on, {"comms_logger.prof_ops=[send]"}),
                    "has no effect while comms_logger.prof_all is true; set it to false"));
    EXPECT_TRUE(has(all_errors(on, {some}), "names no collective"));
    for (const char *name : {"recv", "barrier", "all_to_all_single"})
        EXPECT_TRUE(
            has(all_errors(on, {some, (std::string("comms_logger.prof_ops=") + name).c_str()}),
                std::string(name) + " is no collective whose bytes are counted; write some of"));
    for (const char *key : {"comms_logger.verbose=true", "comms_logger.debug=true"})
        EXPECT_TRUE(has(all_errors(on, {key}), "not supported: training.trace_steps")) << key;
}

TEST(Sharding, OnlyWhatIsKeptOrGatheredAheadCanBeLimited) {
    const char *const live = "zero_optimization.stage3_max_live_parameters=7",
                      *const reuse = "zero_optimization.stage3_max_reuse_distance=7",
                      *const alone = "zero_optimization.overlap_comm=false",
                      *const pipeline = "parallel.pipeline_model_parallel_size=2",
                      *const per_step = "zero_optimization.pipeline_gather=per_step";
    const std::string three = "zero_optimization: {stage: 3}\n";
    EXPECT_EQ(all_errors(three, {live, reuse}), "accepted");
    EXPECT_EQ(all_errors(three, {live, reuse, alone}), "accepted");
    EXPECT_TRUE(has(all_errors(three, {live, alone}), "only the unit that runs"));
    EXPECT_EQ(all_errors(three, {live, pipeline, per_step}), "accepted");
    EXPECT_EQ(all_errors(three, {live, alone, pipeline, per_step}), "accepted");
    EXPECT_TRUE(has(all_errors(three, {reuse, pipeline, per_step}), "all stay gathered"));
}

TEST(Offload, ADelayedUpdateIsOfWhatTheHostStepsOnly) {
    for (const char *accepted : {"device: cpu, delayed_param_update: true",
                                 "device: nvme, nvme_path: a, delayed_param_update: true",
                                 "device: cpu, ratio: 0.3, delayed_param_update: null",
                                 "device: none, delayed_param_update: true"})
        EXPECT_EQ(all_errors(block(accepted), {}), "accepted");
    for (const char *ratio : {"0.3", "auto"})
        EXPECT_EQ(
            all_errors(
                block(std::string("device: cpu, delayed_param_update: true, ratio: ") + ratio), {}),
            "run.yaml:1:64: " OPTIMIZER ".delayed_param_update: this key needs " OPTIMIZER
            ".ratio 1: the device steps its part at once, not a step later; write "
            "ratio: 1, or leave this key out");
}

TEST(Offload, WhatIsNotThereYetIsNamed) {
    EXPECT_EQ(all_errors(block("device: cpu, super_offload: true"), {}),
              "run.yaml:1:64: " OPTIMIZER ".super_offload: SuperOffload: not supported yet; leave "
              "it out or write false");
    EXPECT_EQ(all_errors(block("device: cpu, ratio: 0.3, delayed_param_update: false, "
                               "super_offload: false, cpuadam_cores_perc: 0.8"),
                         {}),
              "accepted");
    EXPECT_TRUE(has(all_errors(block("device: disk"), {}),
                    "'disk' is not supported; use one of none, cpu, nvme"));
    EXPECT_TRUE(has(all_errors(block("device: nvme, nvme_pth: a"), {}),
                    "did you mean " OPTIMIZER ".nvme_path?"));
    EXPECT_TRUE(has(all_errors("zero_optimization: {offload_optimizer: cpu}\n", {}),
                    "write " OPTIMIZER ": {device: cpu}"));
}

// DeepSpeed's names of before 2021.
TEST(Offload, OldNames) {
    Config c("zero_optimization: {stage: 3, cpu_offload: true, cpu_offload_params: true, "
             "cpu_offload_use_pin_memory: true}\n");
    EXPECT_EQ(z3d_config_check(c.get, NULL), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(c->zero_optimization_offload_optimizer_device, Z3D_OFFLOAD_DEVICE_CPU);
    EXPECT_EQ(c->zero_optimization_offload_param_device, Z3D_OFFLOAD_DEVICE_CPU);
    const std::string both =
        "zero_optimization: {cpu_offload: true, offload_optimizer: {device: none}}\n";
    EXPECT_EQ(all_errors(both, {}),
              "run.yaml:1:21: zero_optimization.cpu_offload: it sets " OPTIMIZER
              ".device to cpu, but that key is none; leave one of them out");
    EXPECT_EQ(all_errors("zero_optimization: {stage: 3, cpu_offload_param: true, offload_param: "
                         "{device: cpu}}\n",
                         {}),
              "accepted");
    for (const char *nothing : {"false", "null"}) {
        std::string text = std::string("zero_optimization: {cpu_offload: ") + nothing + "}\n";
        EXPECT_EQ(all_errors(text, {}), "accepted");
    }
    const std::string old = "zero_optimization: {cpu_offload: true}\n";
    EXPECT_EQ(all_errors(old, {"zero_optimization.cpu_offload=false"}), "accepted");
    EXPECT_EQ(all_errors(old, {OPTIMIZER ".device=none"}), "accepted");
    EXPECT_TRUE(has(all_errors("zero_optimization: {cpu_offload: 1}\n", {}),
                    "'1' is neither true nor false; expected true or false"));
    EXPECT_TRUE(has(all_errors("zero_optimization: {cpu_offload: {device: cpu}}\n", {}),
                    "zero_optimization.cpu_offload: expected true or false"));
}

TEST(Offload, WhatIsAcceptedIsWrittenAndReadAgain) {
    Config c(text_of("ds_zero_infinity.json"));
    Config again(c.written());
    EXPECT_EQ(again->zero_optimization_offload_optimizer_device, Z3D_OFFLOAD_DEVICE_NVME);
    EXPECT_STREQ(again->zero_optimization_offload_param_nvme_path, "/local_nvme");
    EXPECT_EQ(again.written(), c.written());
}

static std::string expanded(const std::string &path) {
    Config c(block("device: nvme, nvme_path: '" + path + "'"));
    z3d_string out = {};
    z3d_status status = z3d_config_expand(c.get, OPTIMIZER ".nvme_path", &out);
    EXPECT_TRUE(status == Z3D_OK || status == Z3D_ERR_CONFIG);
    std::string text = status ? z3d_error_message() : std::string(out.text, out.length);
    z3d_string_free(&out);
    return text;
}

TEST(Offload, FoldersOfTheEnvironment) {
    setenv("HOME", "/home/user", 1);
    setenv("JOB_7", "/scratch/7", 1);
    unsetenv("NOT_SET");
    EXPECT_EQ(expanded("/local_nvme"), "/local_nvme");
    EXPECT_EQ(expanded("tier/a"), "tier/a");
    EXPECT_EQ(expanded("~"), "/home/user");
    EXPECT_EQ(expanded("~/tier"), "/home/user/tier");
    EXPECT_EQ(expanded("~other/a~"), "~other/a~");
    EXPECT_EQ(expanded("$JOB_7/a"), "/scratch/7/a");
    EXPECT_EQ(expanded("${JOB_7}x$JOB_7"), "/scratch/7x/scratch/7");
    EXPECT_EQ(expanded("/a/$NOT_SET"), "run.yaml:1:65: " OPTIMIZER ".nvme_path: $NOT_SET is not "
                                       "set on this rank; set it, or write the folder");
    for (const char *wrong : {"/a/$", "/a/$/b", "/a/${JOB_7", "/a/${}"})
        EXPECT_TRUE(has(expanded(wrong), "a $ without the name of a variable; write $NAME or"))
            << wrong;
}

/* ---- converted ---- */

using converter = z3d_status (*)(const char *, const z3d_config_rules *, z3d_string *, z3d_string *,
                                 bool *);

static z3d_status from_deepspeed(const char *path, const z3d_config_rules *rules, z3d_string *yaml,
                                 z3d_string *table, bool *complete) {
    return z3d_config_from_deepspeed(path, NULL, rules, yaml, table, complete);
}

/* The table of a conversion. */
static std::string converted(converter from, const std::string &text) {
    std::string path = testing::TempDir() + "offload." + std::to_string(getpid());
    std::ofstream(path) << text;
    z3d_string yaml = {}, table = {};
    bool complete = false;
    EXPECT_EQ(from(path.c_str(), NULL, &yaml, &table, &complete), Z3D_OK) << z3d_error_message();
    std::string said = table.text ? table.text : "";
    EXPECT_EQ(all_errors(yaml.text ? yaml.text : "", {}), "accepted");
    z3d_string_free(&yaml);
    z3d_string_free(&table);
    unlink(path.c_str());
    return said;
}

TEST(OffloadConverted, FromDeepspeed) {
    std::string table = converted(from_deepspeed, text_of("ds_zero_infinity.json"));
    size_t taken = table.find("Taken:"), idle = table.find("No effect here:");
    EXPECT_LT(taken, table.find("  " OPTIMIZER ".device  ")) << table;
    EXPECT_LT(idle, table.find("  " OPTIMIZER ".pipeline_read\n")) << table;
    EXPECT_LT(idle, table.find("  aio  ")) << table;
    EXPECT_FALSE(has(table, "Not supported:")) << table;
}

TEST(OffloadConverted, FromMegatron) {
    std::string table =
        converted(z3d_config_from_megatron,
                  "--num-layers 4 --optimizer-cpu-offload --optimizer-offload-fraction 1.0 "
                  "--overlap-cpu-optimizer-d2h-h2d --use-precision-aware-optimizer\n");
    EXPECT_TRUE(has(table, OPTIMIZER ".device: cpu\n")) << table;
    EXPECT_TRUE(has(table, OPTIMIZER ".ratio: 1")) << table;
    EXPECT_FALSE(has(table, "unknown")) << table;
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
