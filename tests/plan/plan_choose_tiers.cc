// offload_optimizer.ratio auto: by time on a described machine, by memory in a run, and why; and
// what plan --recommend makes of models that fit with offload only.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/plan/choices.h"

namespace {

const std::string TEXT = "model: {num_layers: 12, hidden_size: 256, num_attention_heads: 4, "
                         "seq_length: 256, vocab_size: 512}\nbf16: {enabled: true}\n"
                         "train_micro_batch_size_per_gpu: 1\ngradient_accumulation_steps: 2\n";

std::string text_of(const std::string &ratio, const std::string &device = "cpu") {
    return TEXT + "zero_optimization: {stage: 2, offload_optimizer: {device: " + device +
           ", ratio: " + ratio + "}}\n";
}

struct Choice {
    double value = -1;
    std::string why;
};

Choice choose(const z3d_hardware *hardware, const z3d_room *room, const std::string &ratio = "auto",
              const std::string &more = "") {
    Config c(text_of(ratio) + more);
    z3d_string why = {};
    Choice out;
    const z3d_choice at = {2, 1, hardware, room};
    EXPECT_EQ(z3d_choose_ratio(c.it, &at, &why), Z3D_OK) << z3d_error_message();
    out.value = c.it->zero_optimization_offload_optimizer_ratio;
    if (why.text) out.why = why.text;
    z3d_string_free(&why);
    EXPECT_EQ(z3d_config_check(c.it, &z3d_model_rules), Z3D_OK) << z3d_error_message();
    return out;
}

// A case does not depend on the machine.
const z3d_case *case_of(double ratio) {
    static std::map<double, std::unique_ptr<z3d_case, void (*)(z3d_case *)>> known;
    auto found = known.find(ratio);
    if (found == known.end()) {
        Config c(text_of(std::to_string(ratio)));
        z3d_case *made = nullptr;
        EXPECT_EQ(z3d_case_create(c.it, 2, 0, {}, &made), Z3D_OK) << z3d_error_message();
        found = known.emplace(ratio, decltype(known)::mapped_type(made, z3d_case_destroy)).first;
    }
    return found->second.get();
}

z3d_estimate estimate(double ratio, const z3d_hardware &hardware) {
    z3d_estimate e{};
    EXPECT_EQ(z3d_estimate_make(case_of(ratio), &hardware, 0, nullptr, &e), Z3D_OK)
        << z3d_error_message();
    return e;
}

z3d_need need_of(const std::string &ratio) {
    Config c(text_of(ratio));
    z3d_need need{};
    const z3d_choice at = {2, 1, nullptr, nullptr};
    EXPECT_EQ(z3d_plan_need(c.it, &at, &need), Z3D_OK) << z3d_error_message();
    return need;
}

// Of the shares that fit the fastest, as they are one by one.
void expect_best(double mib) {
    z3d_hardware hardware = machine(mib);
    Choice c = choose(&hardware, nullptr);
    double best = INFINITY;
    for (int part = 0; part <= 8; part++) {
        z3d_estimate e = estimate(part / 8.0, hardware);
        if (e.fullest.fits) best = std::fmin(best, e.time.seconds);
    }
    z3d_estimate chosen = estimate(c.value, hardware);
    EXPECT_TRUE(chosen.fullest.fits) << c.why;
    EXPECT_EQ(chosen.time.seconds, best) << c.why;
}

} // namespace

TEST(Ratio, TheFastestOfThoseThatFit) {
    z3d_hardware wide = machine(1000);
    const double most = double(estimate(0, wide).fullest.arena) / 1048576,
                 least = double(estimate(1, wide).fullest.arena) / 1048576;
    ASSERT_LT(least, 0.8 * most);
    for (double share : {1.2, 0.9, 0.5, 0.1, 0.001}) expect_best(least + share * (most - least));
    Choice c = choose(&wide, nullptr);
    EXPECT_EQ(c.value, 0) << c.why;
    EXPECT_EQ(c.why.find("0, "), 0u) << c.why;
    EXPECT_NE(c.why.find(", 1: "), std::string::npos) << c.why;
    z3d_hardware tight = machine(least + 0.5 * (most - least));
    c = choose(&tight, nullptr);
    EXPECT_GT(c.value, 0) << c.why;
    EXPECT_LT(c.value, 1) << c.why;
    EXPECT_NE(c.why.find("0.125"), std::string::npos) << c.why;
    EXPECT_NE(c.why.find(" do not fit)"), std::string::npos) << c.why;
    z3d_hardware tiny = machine(0.5 * least);
    c = choose(&tiny, nullptr);
    EXPECT_EQ(c.value, 1);
    EXPECT_EQ(c.why, "1 (no share fits)");
}

// The smallest that leaves a tenth free.
TEST(Ratio, ByMemoryInARun) {
    const int64_t host = INT64_C(1) << 40;
    z3d_room room = {.device = 0, .host = host, .shared = false, .reserved = 0, .from = nullptr};
    for (const char *ratio : {"0", "0.5", "1"}) {
        const int64_t needed = need_of(ratio).arena[Z3D_SPACE_DEVICE];
        room.device = needed / 9 * 10 + 100;
        Choice c = choose(nullptr, &room);
        EXPECT_EQ(need_of(std::to_string(c.value)).arena[Z3D_SPACE_DEVICE], needed) << c.why;
        room.device -= 1000;
        c = choose(nullptr, &room);
        EXPECT_LE(need_of(std::to_string(c.value)).arena[Z3D_SPACE_DEVICE], needed) << c.why;
        EXPECT_TRUE(c.value > std::stod(ratio) || c.value == 1) << c.why;
        EXPECT_NE(c.why.find("a tenth stays free"), std::string::npos) << c.why;
    }
    Choice unknown = choose(nullptr, nullptr);
    EXPECT_EQ(unknown.value, 1);
    EXPECT_NE(unknown.why.find("needs least device memory"), std::string::npos) << unknown.why;
}

TEST(Ratio, LeavesTheRestAlone) {
    z3d_hardware hardware = machine(1000);
    Choice given = choose(&hardware, nullptr, "0.5");
    EXPECT_EQ(given.value, 0.5);
    EXPECT_EQ(given.why, "");
    // A machine's name is needed until it has decided.
    Choice named = choose(&hardware, nullptr, "auto", "training: {hardware: here.yaml}\n");
    EXPECT_EQ(named.value, 0);
    Config written(text_of("auto"));
    z3d_string text = {};
    z3d_config_write(written.it, &text);
    EXPECT_NE(std::string(text.text).find("ratio: auto"), std::string::npos) << text.text;
    Config again(text.text);
    z3d_string_free(&text);
    EXPECT_TRUE(z3d_ratio_is_open(again.it));
    Config none(text_of("auto", "none"));
    EXPECT_FALSE(z3d_ratio_is_open(none.it));
}

/* ---- plan --recommend ---- */

namespace {

z3d_hardware dgx2() {
    z3d_hardware hardware{};
    EXPECT_EQ(z3d_hardware_read_with(ZERO3D_CONFIGS "/hardware/dgx2-v100.yaml", "deepspeed-2021",
                                     &hardware),
              Z3D_OK);
    return hardware;
}

// Of few blocks, each of which takes its time: a fourth as many as of the usual width.
const std::string MODEL_8B = "model: {num_layers: 10, hidden_size: 8192, num_attention_heads: 64, "
                             "seq_length: 1024, vocab_size: 50304}\nfp16: {enabled: true}\n"
                             "train_batch_size: 32\n";

z3d_status recommend(const std::string &text, int ranks, const z3d_hardware &hardware,
                     z3d_recommendation *found, std::string *written = nullptr) {
    Config c(text);
    z3d_status status = z3d_recommend(c.it, ranks, &hardware, false, nullptr, found);
    z3d_string out = {};
    z3d_config_write(c.it, &out);
    if (written) *written = out.text;
    z3d_string_free(&out);
    return status;
}

} // namespace

// ZeRO-Offload's promise: 8B parameters on one V100, which no stage brings there.
TEST(RecommendTiers, EightBillionOnOneV100) {
    z3d_recommendation found;
    std::string written;
    ASSERT_EQ(recommend(MODEL_8B, 1, dgx2(), &found, &written), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(found.row[0].tiers.optimizer, Z3D_OFFLOAD_DEVICE_CPU);
    for (int i = 0; i < found.count; i++) EXPECT_NE(found.row[i].tiers.optimizer, 0) << i;
    EXPECT_GT(found.row[0].loss[Z3D_LOSS_HOST], 0);
    EXPECT_EQ(found.row[0].loss[Z3D_LOSS_DISK], 0);
    Config again(written);
    EXPECT_EQ(again.it->zero_optimization_offload_optimizer_device, Z3D_OFFLOAD_DEVICE_CPU);
}

// What is written stays, and a refusal says that it could be left out.
TEST(RecommendTiers, WrittenTiersStay) {
    const std::string block = "zero_optimization: {offload_optimizer: {device: ";
    z3d_recommendation found;
    EXPECT_EQ(recommend(MODEL_8B + block + "none}}\n", 1, dgx2(), &found), Z3D_ERR_MEMORY);
    std::string said = z3d_error_message();
    EXPECT_NE(said.find("leave the devices of offload_optimizer and offload_param out"),
              std::string::npos)
        << said;
    std::string written;
    ASSERT_EQ(
        recommend(MODEL_8B + block + "nvme, nvme_path: /data}}\n", 1, dgx2(), &found, &written),
        Z3D_OK)
        << z3d_error_message();
    for (int i = 0; i < found.count; i++)
        EXPECT_EQ(found.row[i].tiers.optimizer, Z3D_OFFLOAD_DEVICE_NVME) << i;
    EXPECT_STREQ(found.folder, "/data");
    EXPECT_NE(written.find("/data"), std::string::npos) << written;
}

// 70B on a node: host memory is enough only where there is enough of it, else the disk is, where
// it is described.
TEST(RecommendTiers, TheDiskWhereHostMemoryIsShort) {
    const std::string model =
        "model: {num_layers: 20, hidden_size: 16384, num_attention_heads: 128, "
        "seq_length: 1024, vocab_size: 50304}\nfp16: {enabled: true}\n"
        "train_batch_size: 16\n";
    z3d_hardware hardware = dgx2();
    z3d_recommendation found;
    ASSERT_EQ(recommend(model, 16, hardware, &found), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(found.row[0].tiers.optimizer, Z3D_OFFLOAD_DEVICE_CPU);
    hardware.host_memory_gib = 384;
    ASSERT_EQ(recommend(model, 16, hardware, &found), Z3D_OK) << z3d_error_message();
    for (int i = 0; i < found.count; i++)
        EXPECT_EQ(found.row[i].tiers.optimizer, Z3D_OFFLOAD_DEVICE_NVME) << i;
    EXPECT_GT(found.row[0].loss[Z3D_LOSS_DISK], 0);
    EXPECT_STREQ(found.folder, z3d_tiers_folder);
    hardware.nvme_read = 0;
    ASSERT_EQ(recommend(model, 16, hardware, &found), Z3D_ERR_MEMORY);
    std::string said = z3d_error_message();
    EXPECT_NE(said.find("fits the device, but a rank's share of host memory is "),
              std::string::npos)
        << said;
    EXPECT_NE(said.find("node.nvme_read_gb_per_s"), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
}

// ZeRO-Infinity's: 1T parameters on 16 GPUs, from the disk only.
TEST(RecommendTiers, OneTrillionOnANode) {
    const std::string model = "model: {num_layers: 64, hidden_size: 36864, num_attention_heads: "
                              "288, seq_length: 1024, vocab_size: 50304}\nfp16: {enabled: true}\n"
                              "train_batch_size: 16\n";
    z3d_hardware hardware = dgx2();
    z3d_recommendation found;
    ASSERT_EQ(recommend(model, 16, hardware, &found), Z3D_OK) << z3d_error_message();
    for (int i = 0; i < found.count; i++) {
        EXPECT_EQ(found.row[i].tiers.optimizer, Z3D_OFFLOAD_DEVICE_NVME) << i;
        EXPECT_NE(found.row[i].tiers.parameters, Z3D_OFFLOAD_DEVICE_NONE) << i;
    }
    hardware.nvme_read = 0;
    EXPECT_EQ(recommend(model, 16, hardware, &found), Z3D_ERR_MEMORY);
}

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
