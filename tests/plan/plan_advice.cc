// What is said of a plan that does not fit: by how much, what is largest, and changes that really
// make it fit.
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
#include "src/plan/choose/advice.h"
}

namespace {

struct Config {
    z3d_config *config = nullptr;
    explicit Config(const std::vector<std::string> &more = {}) {
        const std::string text =
            "model: { num_layers: 8, hidden_size: 256, num_attention_heads: 4, seq_length: 256,"
            " vocab_size: 512 }\nparallel: { tensor_model_parallel_size: 2 }\n"
            "train_batch_size: 32\ntrain_micro_batch_size_per_gpu: 8\nbf16: { enabled: true }\n"
            "zero_optimization: { stage: 0 }\nactivation_checkpointing: { granularity: none }\n";
        EXPECT_EQ(z3d_config_create(&config), Z3D_OK);
        EXPECT_EQ(z3d_config_read_text(config, text.data(), text.size(), "test"), Z3D_OK)
            << z3d_error_message();
        for (const std::string &m : more)
            EXPECT_EQ(z3d_config_override(config, m.c_str()), Z3D_OK) << z3d_error_message();
    }
    ~Config() {
        z3d_config_destroy(config);
    }
    z3d_need need() {
        z3d_need n{};
        const z3d_choice at = {4, 1, nullptr, nullptr};
        EXPECT_EQ(z3d_plan_need(config, &at, &n), Z3D_OK) << z3d_error_message();
        return n;
    }
};

std::string advice(const Config &c, const z3d_room &room, const z3d_hardware *hardware = nullptr) {
    z3d_string text{};
    const z3d_choice at = {4, 1, hardware, &room};
    EXPECT_EQ(z3d_plan_advice(c.config, &at, &text), Z3D_OK) << z3d_error_message();
    std::string out = text.text ? text.text : "";
    z3d_string_free(&text);
    return out;
}

// The assignments of each change that the text proposes.
std::vector<std::vector<std::string>> proposed(const std::string &text) {
    std::vector<std::vector<std::string>> list;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::vector<std::string> change;
        for (std::string word; words >> word;)
            if (word.find('=') != std::string::npos) change.push_back(word);
        if (!change.empty()) list.push_back(change);
    }
    return list;
}

TEST(Advice, NothingWhereItFits) {
    Config c;
    z3d_need need = Config().need();
    z3d_room room = {.device = need.arena[Z3D_SPACE_DEVICE],
                     .host = 0,
                     .shared = false,
                     .reserved = 0,
                     .from = nullptr};
    EXPECT_EQ(advice(c, room), "");
    const z3d_choice at = {4, 1, nullptr, &room};
    EXPECT_EQ(z3d_plan_check_room(c.config, &at), Z3D_OK);
}

// NCCL's groups copy what is smaller than a parameter group; others work in place, or on the host.
TEST(Advice, BucketsThatAreCopiedTakeMemory) {
    const std::string cuda = "training.device=cuda",
                      cut = "zero_optimization.reduce_bucket_size=1000";
    const z3d_need need = Config({cuda, cut}).need();
    const z3d_room room = {};
    EXPECT_GT(need.buckets, 1000);
    EXPECT_LE(need.buckets, 4000);
    EXPECT_EQ(z3d_need_total(&need, &room), need.arena[Z3D_SPACE_DEVICE] + need.buckets);
    EXPECT_EQ(Config({cuda}).need().buckets, 0);
    EXPECT_EQ(Config({cut}).need().buckets, 0);
    EXPECT_EQ(Config({cuda, cut, "training.collectives=host"}).need().buckets, 0);
}

// Rank 0 fits; a rank of the second pipeline stage does not.
TEST(Advice, LooksAtEveryPipelineStage) {
    const std::vector<std::string> stages = {"parallel.pipeline_model_parallel_size=2",
                                             "parallel.pipeline_partition=2,8"};
    std::vector<std::string> first = stages;
    first[1] = "parallel.pipeline_partition=8,2";
    z3d_need need = Config(stages).need();
    EXPECT_EQ(need.rank, 2);
    EXPECT_EQ(Config(first).need().rank, 0);
    z3d_room room = {.device = need.arena[Z3D_SPACE_DEVICE] - 1,
                     .host = 0,
                     .shared = false,
                     .reserved = 0,
                     .from = nullptr};
    EXPECT_NE(advice(Config(stages), room).find("does not fit: rank 2 needs "), std::string::npos);
}

TEST(Advice, EveryChangeMakesItFit) {
    z3d_need need = Config().need();
    std::set<std::string> keys;
    for (int percent : {99, 90, 75, 65, 55}) {
        z3d_room room = {.device = need.arena[Z3D_SPACE_DEVICE] * percent / 100,
                         .host = INT64_C(1) << 40,
                         .shared = false,
                         .reserved = 0,
                         .from = nullptr};
        std::string text = advice(Config(), room);
        SCOPED_TRACE(text);
        EXPECT_NE(text.find("one change that makes it fit:"), std::string::npos);
        EXPECT_NE(text.find("the largest part is activations"), std::string::npos);
        ASSERT_FALSE(proposed(text).empty());
        for (const std::vector<std::string> &change : proposed(text)) {
            z3d_need changed = Config(change).need();
            EXPECT_EQ(z3d_need_missing(&changed, &room), 0) << change[0];
            keys.insert(change[0].substr(0, change[0].find('=')));
        }
    }
    for (const char *key : {"zero_optimization.stage", "activation_checkpointing.granularity",
                            "parallel.sequence_parallel", "parallel.tensor_model_parallel_size",
                            "train_micro_batch_size_per_gpu"})
        EXPECT_EQ(keys.count(key), 1u) << key;
}

// On a described machine each change has its price, and the fastest comes first.
TEST(Advice, TheFastestChangeComesFirst) {
    z3d_hardware hardware{};
    ASSERT_EQ(z3d_hardware_read_with("dgx-h100", nullptr, &hardware), Z3D_OK);
    const z3d_need need = Config().need();
    const z3d_room room = {.device = need.arena[Z3D_SPACE_DEVICE] * 75 / 100,
                           .host = INT64_C(1) << 40,
                           .shared = false,
                           .reserved = 0,
                           .from = nullptr};
    const std::string text = advice(Config({"training.device=cuda"}), room, &hardware);
    EXPECT_NE(text.find("the fastest first:"), std::string::npos) << text;
    double before = 0;
    int priced = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const size_t at = line.find("iB, ");
        if (line.find(" s a step") == std::string::npos || at == std::string::npos) continue;
        const double seconds = std::stod(line.substr(at + 4));
        EXPECT_GE(seconds, before) << text;
        before = seconds;
        priced++;
    }
    EXPECT_EQ(priced, (int)proposed(text).size()) << text;
    EXPECT_GT(priced, 3);
}

TEST(Advice, AKeptActivationMayBeComputedAgain) {
    const std::string key = "activation_checkpointing.recompute_activation=";
    z3d_need need = Config({key + "true"}).need();
    z3d_room room = {.device = need.arena[Z3D_SPACE_DEVICE],
                     .host = INT64_C(1) << 40,
                     .shared = false,
                     .reserved = 0,
                     .from = nullptr};
    EXPECT_NE(advice(Config({key + "false"}), room).find("\n  " + key + "true needs "),
              std::string::npos);
    room.device--;
    EXPECT_EQ(advice(Config({key + "true"}), room).find(key), std::string::npos);
}

TEST(Advice, ByHowMuchToTheByte) {
    z3d_need need = Config().need();
    z3d_room room = {.device = need.arena[Z3D_SPACE_DEVICE] - 1000,
                     .host = 0,
                     .shared = false,
                     .reserved = 0,
                     .from = nullptr};
    EXPECT_EQ(z3d_need_missing(&need, &room), 1000);
    EXPECT_NE(advice(Config(), room).find(": 1000 B too little device memory"), std::string::npos)
        << advice(Config(), room);
}

// Of the parts of a micro-batch the largest that fits is named, and only that.
TEST(Advice, NamesThePartOfAMicroBatch) {
    std::vector<std::string> given = {"zero_optimization.stage=3",
                                      "activation_checkpointing.granularity=full",
                                      "activation_checkpointing.partition_activations=true"};
    auto with = [&](const char *micro, const char *accumulation) {
        std::vector<std::string> v = given;
        v.push_back(std::string("train_micro_batch_size_per_gpu=") + micro);
        v.push_back(std::string("gradient_accumulation_steps=") + accumulation);
        return Config(v).need();
    };
    z3d_need quarter = with("2", "8");
    ASSERT_GT(with("4", "4").arena[Z3D_SPACE_DEVICE], quarter.arena[Z3D_SPACE_DEVICE]);
    z3d_room room = {.device = quarter.arena[Z3D_SPACE_DEVICE],
                     .host = INT64_C(1) << 40,
                     .shared = false,
                     .reserved = 0,
                     .from = nullptr};
    std::string text = advice(Config(given), room);
    EXPECT_NE(text.find("train_micro_batch_size_per_gpu=2 "), std::string::npos) << text;
    EXPECT_EQ(text.find("train_micro_batch_size_per_gpu=4 "), std::string::npos) << text;
    EXPECT_EQ(text.find("train_micro_batch_size_per_gpu=1 "), std::string::npos) << text;
}

TEST(Advice, FewerCheckpoints) {
    std::vector<std::string> full = {"activation_checkpointing.granularity=full",
                                     "model.num_layers=64", "zero_optimization.stage=3"};
    z3d_need need = Config(full).need();
    z3d_room room = {.device = need.arena[Z3D_SPACE_DEVICE] - 1000,
                     .host = INT64_C(1) << 40,
                     .shared = false,
                     .reserved = 0,
                     .from = nullptr};
    EXPECT_NE(advice(Config(full), room).find("number_checkpoints=32 needs"), std::string::npos)
        << advice(Config(full), room);
}

// Checkpoints in host memory help where that is other memory; P_a where there is a tensor group.
TEST(Advice, KnowsTheSpaces) {
    std::vector<std::string> full = {"activation_checkpointing.granularity=full",
                                     "activation_checkpointing.replay=full"};
    z3d_need need = Config(full).need();
    z3d_room room = {.device = need.arena[Z3D_SPACE_DEVICE] - 1000,
                     .host = INT64_C(1) << 40,
                     .shared = false,
                     .reserved = 0,
                     .from = nullptr};
    std::string text = advice(Config(full), room);
    EXPECT_NE(text.find("activation_checkpointing.cpu_checkpointing=true"), std::string::npos)
        << text;
    EXPECT_NE(text.find("activation_checkpointing.partition_activations=true"), std::string::npos)
        << text;
    room.host = 0;
    EXPECT_EQ(advice(Config(full), room).find("cpu_checkpointing=true"), std::string::npos);
    full.push_back("activation_checkpointing.cpu_checkpointing=true");
    need = Config(full).need();
    room = {.device = need.arena[Z3D_SPACE_DEVICE],
            .host = need.arena[Z3D_SPACE_HOST] - 1,
            .shared = false,
            .reserved = 0,
            .from = nullptr};
    EXPECT_EQ(z3d_need_missing(&need, &room), 1);
    EXPECT_NE(advice(Config(full), room).find("too little host memory"), std::string::npos);
    room.device = INT64_C(1) << 40;
    EXPECT_NE(advice(Config(full), room).find("cpu_checkpointing=false needs"), std::string::npos);
    // On CPUs all of it, and what is outside of the plan.
    room = {.device = need.arena[Z3D_SPACE_DEVICE] + need.arena[Z3D_SPACE_HOST] + need.outside - 1,
            .host = 0,
            .shared = true,
            .reserved = 0,
            .from = nullptr};
    EXPECT_EQ(z3d_need_missing(&need, &room), 1);
    EXPECT_NE(advice(Config(full), room).find("are outside the plan"), std::string::npos);
    EXPECT_GE(need.outside, Z3D_OUTSIDE_BYTES);
}

// States go to host memory where that is other memory, and to the disk; parameters after them.
TEST(Advice, Offload) {
    const std::string optimizer = "zero_optimization.offload_optimizer.device=";
    const std::string param = "zero_optimization.offload_param.device=";
    const std::string folder = "zero_optimization.offload_optimizer.nvme_path=/local_nvme";
    std::vector<std::string> given = {
        "train_micro_batch_size_per_gpu=1", "model.num_layers=24", "model.hidden_size=2048",
        "activation_checkpointing.granularity=full", "zero_optimization.stage=3"};
    auto expect = [&](bool shared, const std::string &change, bool said) {
        std::vector<std::string> more = given;
        std::istringstream words(change);
        for (std::string word; words >> word;) more.push_back(word);
        z3d_room room = {.device = 0,
                         .host = INT64_C(1) << 40,
                         .shared = shared,
                         .reserved = 0,
                         .from = nullptr};
        z3d_need need = Config(more).need(), before = Config(given).need();
        room.device = z3d_need_total(&need, &room);
        ASSERT_TRUE(!said || z3d_need_missing(&before, &room) > 0) << change;
        room.device = said ? room.device : z3d_need_total(&before, &room) - 1;
        std::string text = advice(Config(given), room);
        EXPECT_EQ(text.find("  " + change + " needs ") != std::string::npos, said) << text;
    };
    expect(false, optimizer + "cpu", true);
    expect(false, optimizer + "nvme " + folder, true);
    expect(true, optimizer + "cpu", false);
    expect(true, optimizer + "nvme " + folder, true);
    given.push_back(optimizer + "cpu");
    expect(false, param + "cpu", true);
}

// The copy of an asynchronous save lies in host memory, as large as the optimizer states of stage 3
// without their padding, and synchronous saves are among the changes.
TEST(Advice, KnowsTheCopyOfAsynchronousSaves) {
    std::vector<std::string> async = {"checkpoint.interval=5", "checkpoint.async=true"}, third;
    z3d_need need = Config(async).need();
    EXPECT_EQ(Config().need().snapshot, 0);
    third = async;
    third.push_back("zero_optimization.stage=3");
    int64_t states = Config(third).need().ledger.peak[Z3D_CATEGORY_OPTIMIZER];
    EXPECT_EQ(Config(third).need().snapshot, need.snapshot);
    EXPECT_LE(need.snapshot, states);
    EXPECT_GT(need.snapshot, states - states / 50);
    z3d_room room = {.device = need.arena[Z3D_SPACE_DEVICE],
                     .host = need.arena[Z3D_SPACE_HOST] + need.snapshot - 1,
                     .shared = false,
                     .reserved = 0,
                     .from = nullptr};
    EXPECT_EQ(z3d_need_missing(&need, &room), 1);
    std::string text = advice(Config(async), room);
    EXPECT_NE(text.find("1 B too little host memory"), std::string::npos) << text;
    EXPECT_NE(text.find("checkpoint.async=false"), std::string::npos) << text;
    room = {.device = room.device + room.host + need.outside,
            .host = 0,
            .shared = true,
            .reserved = 0,
            .from = nullptr};
    EXPECT_EQ(z3d_need_missing(&need, &room), 1);
}

TEST(Advice, WhereNoChangeIsEnoughTheBestIsNamed) {
    z3d_room room = {
        .device = 1 << 20, .host = 1 << 20, .shared = false, .reserved = 0, .from = nullptr};
    std::string text = advice(Config(), room);
    EXPECT_NE(text.find("no single change makes it fit; this one helps most"), std::string::npos);
    ASSERT_EQ(proposed(text).size(), 1u) << text;
    z3d_need best = Config(proposed(text)[0]).need();
    for (const char *other :
         {"zero_optimization.stage=3", "activation_checkpointing.granularity=selective"}) {
        z3d_need n = Config({other}).need();
        EXPECT_LE(best.arena[Z3D_SPACE_DEVICE], n.arena[Z3D_SPACE_DEVICE]) << other;
    }
}

// A resolved configuration (the trainer's) gets the same advice as the file.
TEST(Advice, ResolvedOrNot) {
    Config given, resolved;
    z3d_need need = resolved.need();
    z3d_room room = {.device = need.outside + need.arena[Z3D_SPACE_DEVICE] * 8 / 10,
                     .host = INT64_C(1) << 40,
                     .shared = true,
                     .reserved = 0,
                     .from = nullptr};
    EXPECT_EQ(advice(given, room), advice(resolved, room));
    room.from = " (memory cgroup /a is limited to 8.00 GiB)";
    const z3d_choice at = {4, 1, nullptr, &room};
    EXPECT_EQ(z3d_plan_check_room(resolved.config, &at), Z3D_ERR_MEMORY);
    std::string line = z3d_error_message();
    EXPECT_NE(line.find("iB (memory cgroup /a is limited to 8.00 GiB): "), std::string::npos)
        << line;
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_NE(line.find("does not fit: rank 0 needs"), std::string::npos);
    EXPECT_NE(line.find("memory; the largest part is activations"), std::string::npos) << line;
    EXPECT_NE(line.find("; one change that makes it fit: activation_checkpointing."),
              std::string::npos)
        << line;
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
