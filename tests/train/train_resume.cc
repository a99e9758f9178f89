// Runs that end and go on, in this process: a run that goes on is one that never stopped, and what
// it may not go on from is refused by name. ZERO3D_LONG: every combination, and longer.
#include <cmath>

#include "run.h"

extern "C" {
#include "checkpoint/checkpoint.h"
#include "checkpoint/io.h"
#include "src/train/trainer.h"
}

namespace {

int rank() {
    return z3d_world_rank(world);
}

class Resume : public ::testing::Test {
  protected:
    void SetUp() override {
        on_rank_0([&] { write_file(folder / "train.bin", token_bytes(some_tokens(20000))); });
    }
    template <typename F> void on_rank_0(F f) {
        SharedFolder::barrier();
        if (rank() == 0) f();
        SharedFolder::barrier();
    }
    std::string dir(int64_t step) {
        char name[40];
        snprintf(name, sizeof name, "run/checkpoints/step-%08d", (int)step);
        return folder / name;
    }
    Outcome go(const std::string &more) {
        return train(folder, "run.tensorboard=false\ncheckpoint.interval=3\n" + more);
    }
    void expect_runs(const std::string &more) {
        Outcome o = go(more);
        ASSERT_EQ(o.status, Z3D_OK) << o.message;
    }
    void expect_refusal(const std::string &more, z3d_status status,
                        const std::vector<std::string> &words) {
        Outcome o = go(more);
        EXPECT_EQ(o.status, status) << o.message;
        for (const std::string &word : words)
            EXPECT_NE(o.message.find(word), std::string::npos) << word << " in: " << o.message;
    }
    // Every line of metrics without what clocks and memory say.
    std::vector<std::string> facts(const std::string &run) {
        std::vector<std::string> out;
        for (const std::string &line : metrics(folder, run)) {
            out.emplace_back();
            for (const char *name :
                 {"step", "loss", "lr", "grad_norm", "tokens", "loss_scale", "skipped"})
                out.back() += field(line, name) + " ";
        }
        return out;
    }
    SharedFolder folder;
};

struct Combination {
    int stage;
    const char *type;
    int accumulation;
    const char *dropout, *async;
};

std::vector<Combination> combinations() {
    std::vector<Combination> all;
    const char *types[] = {"fp32", "bf16", "fp16"};
    for (int stage = 0; stage < 4; stage++)
        for (int type = 0; type < 3; type++)
            for (int bits = 0; bits < 8; bits++)
                all.push_back({stage, types[type], bits & 1 ? 2 : 1, bits & 2 ? "0.1" : "0",
                               bits & 4 ? "true" : "false"});
    if (is_long()) return all;
    // Every value of every choice, each stage once.
    return {{0, "bf16", 2, "0", "true"},
            {1, "fp32", 1, "0.1", "false"},
            {2, "fp16", 2, "0.1", "true"},
            {3, "bf16", 1, "0.1", "false"}};
}

TEST_F(Resume, IsNeverStopped) {
    int half = is_long() ? 20 : 4, whole = 2 * half;
    for (const Combination &c : combinations()) {
        std::string options =
            "zero_optimization.stage=" + std::to_string(c.stage) +
            "\ngradient_accumulation_steps=" + std::to_string(c.accumulation) +
            "\ntrain_micro_batch_size_per_gpu=auto\nmodel.hidden_dropout=" + c.dropout +
            "\nmodel.attention_dropout=" + c.dropout + "\ncheckpoint.async=" + c.async +
            "\nscheduler.type=WarmupCosineLR\nscheduler.params.warmup_num_steps="
            "2\nscheduler.params.total_num_steps=" +
            std::to_string(whole) + "\n";
        if (strcmp(c.type, "fp32") != 0) options += c.type + std::string(".enabled=true\n");
        // Overflows at first, so that scale, skipped steps and optimizer steps differ.
        if (!strcmp(c.type, "fp16"))
            options += "fp16.initial_scale_power=20\nfp16.hysteresis=1\nfp16.loss_scale_window=4\n";
        SCOPED_TRACE(options);
        std::string steps = "training.steps=";
        expect_runs(options + steps + std::to_string(whole) + "\nrun.dir=" + folder / "whole");
        expect_runs(options + steps + std::to_string(half));
        EXPECT_EQ(metrics(folder).size(), (size_t)half);
        expect_runs(options + steps + std::to_string(whole));
        auto wanted = facts("whole"), got = facts("run");
        ASSERT_EQ(wanted.size(), (size_t)whole);
        EXPECT_EQ(got, wanted);
        if (!strcmp(c.type, "fp16")) {
            EXPECT_NE(wanted[0].find("true"), std::string::npos) << wanted[0]; // skipped
            EXPECT_EQ(wanted[(size_t)half - 1].find("true"), std::string::npos);
        }
        auto losses = series(metrics(folder), "loss");
        EXPECT_TRUE(std::isfinite(losses.back())); // not only skipped steps were compared
        on_rank_0([&] {
            std::filesystem::remove_all(folder / "whole");
            std::filesystem::remove_all(folder / "run");
        });
        if (::testing::Test::HasFailure()) return;
    }
}

// Lines beyond the checkpoint, as a crash leaves them, are removed; at its end nothing is to do.
TEST_F(Resume, LinesBeyondTheCheckpointAreRemoved) {
    expect_runs("");
    auto wanted = metrics(folder);
    on_rank_0([&] {
        std::filesystem::remove_all(dir(6));
        std::ofstream out(folder / "run/metrics.jsonl", std::ios::app);
        out << "{\"step\":7,\"loss\":1.5,\"lr\":1}\n{\"step\":8,\"lo";
    });
    expect_runs("");
    auto lines = metrics(folder);
    ASSERT_EQ(lines.size(), 6u);
    for (size_t i = 0; i < 6; i++) EXPECT_EQ(field(lines[i], "loss"), field(wanted[i], "loss"));
    Outcome o = go("");
    EXPECT_EQ(o.status, Z3D_OK) << o.message;
    EXPECT_EQ(o.said.find("Nothing to do: the run is complete (step 6). To train further, raise "
                          "training.steps.") != std::string::npos,
              rank() == 0)
        << o.said;
    EXPECT_EQ(metrics(folder).size(), 6u);
}

// What a run kept for its backward is kept when it goes on, also where there is room for more.
TEST_F(Resume, KeepsItsGranularity) {
    for (const char *kept : {"selective", "full", "none"}) {
        const std::string key = "activation_checkpointing.granularity=";
        expect_runs("training.steps=3\n" + key + kept);
        expect_runs(key + "auto");
        EXPECT_NE(read_file(folder / "run/config.yaml").find(std::string("granularity: ") + kept),
                  std::string::npos);
        on_rank_0([&] { std::filesystem::remove_all(folder / "run"); });
    }
}

// In bf16 micro-batches are added up in fp32. What a run had is kept, however its batch is cut; so
// is what an older run's `auto` meant.
TEST_F(Resume, KeepsTheTypeOfGradients) {
    const std::string bf16 = "bf16.enabled=true\n", first = bf16 + "training.steps=3\n",
                      parts = "train_micro_batch_size_per_gpu=auto\ngradient_accumulation_steps=";
    auto expect_type = [&](const std::string &type) {
        const std::string config = read_file(folder / "run/config.yaml");
        EXPECT_NE(config.find("grad_accum_dtype: " + type), std::string::npos) << config;
        SharedFolder::barrier();
    };
    for (const std::string cut : {"1", "2"}) {
        const std::string type = cut == "1" ? "bf16" : "fp32", other = cut == "1" ? "2" : "1";
        expect_runs(first + parts + cut);
        expect_type(type);
        expect_runs(bf16 + parts + other);
        expect_type(type);
        on_rank_0([&] { std::filesystem::remove_all(folder / "run"); });
    }
    expect_runs("training.steps=3\n" + parts + "2");
    expect_type("auto"); // of fp32
    expect_runs(bf16 + parts + "2");
    expect_type("fp32");
    z3d_config *old = nullptr;
    ASSERT_EQ(z3d_config_create(&old), Z3D_OK);
    ASSERT_EQ(z3d_config_override(old, "bf16.enabled=true"), Z3D_OK);
    old->gradient_accumulation_steps = 2;
    EXPECT_EQ(z3d_trainer_saved_accum(old), Z3D_ACCUM_BF16);
    z3d_config_destroy(old);
}

// Another way to multiply gives other bits: what a run chose is kept when it goes on.
TEST_F(Resume, KeepsTheWayToMultiply) {
    for (const char *method : {"portable", "sgemm"}) {
        std::string chosen = std::string("training.gemm.fp32=") + method;
        expect_runs("training.steps=3\n" + chosen);
        expect_runs("training.gemm.fp32=auto");
        EXPECT_NE(read_file(folder / "run/config.yaml").find(std::string("fp32: ") + method),
                  std::string::npos)
            << read_file(folder / "run/config.yaml");
        // From a path, and past a newest one that cannot be read.
        expect_runs("training.gemm.fp32=auto\nrun.dir=" + folder / "other" +
                    "\ncheckpoint.resume=" + dir(3));
        EXPECT_NE(read_file(folder / "other/config.yaml").find(std::string("fp32: ") + method),
                  std::string::npos);
        on_rank_0([&] { write_file(dir(6) + "/manifest.json", "?"); });
        expect_runs("training.gemm.fp32=measured");
        EXPECT_NE(read_file(folder / "run/config.yaml").find(std::string("fp32: ") + method),
                  std::string::npos);
        on_rank_0([&] {
            std::filesystem::remove_all(folder / "run");
            std::filesystem::remove_all(folder / "other");
        });
    }
}

TEST_F(Resume, AShareOfWarmUpNamesTheKeyThatKeepsIt) {
    const std::string share = "scheduler.params.warmup_ratio=0.5\n",
                      falls = "scheduler.type=linear\n",
                      stays = "scheduler.type=constant_with_warmup\n", more = "training.steps=9\n";
    expect_runs(falls + share);
    expect_refusal(falls + share + more, Z3D_ERR_CONFIG,
                   {"5 here, 3 in the checkpoint of step 6",
                    "scheduler.params.warmup_ratio is a share of the schedule's steps: "
                    "scheduler.params.total_num_steps=6 keeps the warm-up"});
    expect_runs(falls + share + more + "scheduler.params.total_num_steps=6");
    on_rank_0([&] { std::filesystem::remove_all(folder / "run"); });
    expect_runs(stays + share);
    expect_refusal(stays + share + more, Z3D_ERR_CONFIG,
                   {"scheduler.params.warmup_ratio is a share of the run's steps: "
                    "scheduler.params.warmup_num_steps=3 in its place keeps the warm-up"});
    expect_runs(stays + more + "scheduler.params.warmup_num_steps=3");
}

TEST_F(Resume, WhatMustStayIsRefusedByName) {
    expect_runs("");
    expect_refusal("training.steps=9\noptimizer.params.lr=2e-3", Z3D_ERR_CONFIG,
                   {"optimizer.params.lr=2e-3: 0.002 here, 0.01 in the checkpoint of step 6"});
    expect_refusal("training.steps=9\noptimizer.params.lr=2e-3", Z3D_ERR_CONFIG,
                   {"must keep this value; to change it, start a new run from the checkpoint's "
                    "weights (checkpoint.init_from)"});
    // Weights of another size are of no use; all that differs is told.
    expect_refusal("training.steps=9\nmodel.num_layers=2", Z3D_ERR_CONFIG,
                   {"model.num_layers=2: 2 here, 1 in the checkpoint of step 6",
                    "to change it, start a new run in another run.dir"});
    expect_refusal("training.steps=9\nmodel.num_layers=2\noptimizer.params.lr=2e-3\ndata.seed=5",
                   Z3D_ERR_CONFIG,
                   {"model.num_layers=2: 2 here, 1 in",
                    "optimizer.params.lr=2e-3: 0.002 here, 0.01 in", "data.seed=5: 5 here, ",
                    "a resumed run must keep these values; to change them, start a new run in "
                    "another run.dir"});
    // The rest of the table in docs/checkpoint-format.md.
    for (const char *change :
         {"model.hidden_dropout=0.1", "model.init_method_std=0.03", "model.num_attention_heads=1",
          "train_batch_size=16\ntrain_micro_batch_size_per_gpu=auto", "gradient_clipping=2",
          "optimizer.params.betas=[0.8, 0.9]", "optimizer.type=SGD",
          "optimizer.param_groups=*bias weight_decay=1", "training.freeze=wpe",
          "scheduler.type=WarmupLR", "data.seed=5", "training.seed=6"}) {
        std::string first = std::string(change).substr(0, strcspn(change, "\n"));
        expect_refusal(std::string("training.steps=9\n") + change, Z3D_ERR_CONFIG,
                       {first + ": ", " here, ", " in the checkpoint of step 6"});
    }
    std::string data = folder / "train.bin";
    expect_refusal("training.steps=9\ndata.train=[" + data + ", " + data + "]", Z3D_ERR_CONFIG,
                   {": 2 files with weights 1 1 here, 1 file with weights 1 in"});
    std::string decay =
        "scheduler.type=WarmupDecayLR\nscheduler.params.min_lr=1e-4\nrun.dir=" + folder / "decay";
    expect_runs(decay);
    expect_refusal("training.steps=9\n" + decay, Z3D_ERR_CONFIG,
                   {"add --extend to the command", "ends at step 6", "its final rate, 0.0001"});
    expect_refusal("checkpoint.resume=never", Z3D_ERR_CONFIG,
                   {"checkpoint.resume=never: never, but", "has a checkpoint of step 6"});
    expect_refusal("checkpoint.resume=" + dir(3), Z3D_ERR_CONFIG, {"has a checkpoint of step 6"});
    expect_refusal("checkpoint.interval=0\ncheckpoint.keep=2", Z3D_ERR_CONFIG,
                   {"checkpoint.keep=2: has no effect while checkpoint.interval is 0"});
    on_rank_0([&] { write_file(folder / "train.bin", token_bytes(some_tokens(19000))); });
    expect_refusal("training.steps=9", Z3D_ERR_CONFIG, {": 19000 tokens here, 20000"});
}

// Without an interval a run goes on as well, saves none, and does not start over what is there.
TEST_F(Resume, GoesOnWithoutAnInterval) {
    expect_runs("");
    expect_runs("training.steps=8\ncheckpoint.interval=0");
    EXPECT_EQ(metrics(folder).size(), 8u);
    EXPECT_TRUE(std::filesystem::exists(dir(6)) && !std::filesystem::exists(dir(8)));
    expect_refusal("checkpoint.interval=0\ncheckpoint.resume=never", Z3D_ERR_CONFIG,
                   {"checkpoint.resume=never: never, but", "has a checkpoint of step 6"});
    EXPECT_EQ(metrics(folder).size(), 8u);
    // From another place than the run's own.
    expect_runs("training.steps=7\ncheckpoint.interval=0\nrun.dir=" + folder / "other" +
                "\ncheckpoint.dir=" + folder / "run/checkpoints");
    EXPECT_EQ(field(metrics(folder, "other").at(0), "step"), "7");
}

// Another run's checkpoint of the same step: after a kill before the first save, auto would go on
// with the wrong one. Its own newest is accepted, by whatever path.
TEST_F(Resume, AnotherRunsCheckpointOfTheSameStepIsRefused) {
    std::string other = "run.dir=" + folder / "other" + "\ncheckpoint.resume=";
    expect_runs("training.steps=3");
    expect_runs("training.steps=3\nrun.dir=" + folder / "other");
    expect_refusal("training.steps=4\n" + other + dir(3), Z3D_ERR_CONFIG,
                   {"other/checkpoints has a checkpoint of step 3"});
    EXPECT_EQ(metrics(folder, "other").size(), 3u);
    on_rank_0([&] {
        std::filesystem::create_directory_symlink(folder / "other/checkpoints", folder / "link");
    });
    expect_runs("training.steps=4\n" + other + folder / "link");
    EXPECT_EQ(metrics(folder, "other").size(), 4u);
}

// What is checked before a checkpoint is used: all of it, what is read, only lengths.
TEST_F(Resume, ChecksAsMuchAsItIsTold) {
    expect_runs("");
    auto damage = [&](const char *name, bool cut) {
        on_rank_0([&] {
            std::string file = dir(6) + name, bytes = read_file(file);
            bytes[bytes.size() / 2] = (char)(bytes[bytes.size() / 2] ^ 1);
            write_file(file, cut ? bytes.substr(1) : bytes);
        });
    };
    auto falls_back = [&](const char *verify) {
        expect_runs(std::string("training.steps=6\ncheckpoint.verify=") + verify);
        bool aside = std::filesystem::exists(dir(6) + ".damaged");
        on_rank_0([&] { std::filesystem::remove_all(dir(6) + ".damaged"); });
        return aside;
    };
    ::testing::internal::CaptureStderr();
    damage("/checkpoint.h5", false); // which no run reads
    EXPECT_FALSE(falls_back("sizes"));
    EXPECT_FALSE(falls_back("read"));
    EXPECT_TRUE(falls_back("full"));
    damage("/shard-00000.h5", false);
    EXPECT_FALSE(falls_back("sizes"));
    EXPECT_TRUE(falls_back("read"));
    damage("/shard-00000.h5", true);
    EXPECT_TRUE(falls_back("sizes"));
    (void)::testing::internal::GetCapturedStderr();
}

TEST_F(Resume, WhatIsNoCheckpointOfThisModelIsRefused) {
    expect_runs("");
    std::string other = "run.dir=" + folder / "other" + "\ncheckpoint.";
    expect_refusal(other + "resume=" + folder / "nowhere", Z3D_ERR_IO, {"nowhere: No such file"});
    expect_refusal(other + "resume=" + folder / "run", Z3D_ERR_IO,
                   {"run has no checkpoints itself: the run's checkpoints are in " +
                    folder / "run/checkpoints"});
    // Weights of another model: names or shapes.
    expect_refusal(other + "init_from=" + dir(6) + "\nmodel.num_layers=2", Z3D_ERR_CONFIG,
                   {"from a different model", "block.1/ln_1.weight is missing in the checkpoint"});
    expect_refusal(other + "init_from=" + dir(6) + "\nmodel.hidden_size=32", Z3D_ERR_CONFIG,
                   {"from a different model",
                    "wte/weight is 257 x 16 in the checkpoint and 257 x 32 in this run"});
    // As a newer program would write it: with a right digest.
    on_rank_0([&] {
        std::string text = read_file(dir(6) + "/manifest.json");
        std::string body = text.substr(text.find('\n') + 1), old = "\"version\":1";
        body.replace(body.find(old), old.size(), "\"version\":9");
        char digest[Z3D_DIGEST_TEXT];
        z3d_digest_text(z3d_digest_of(body.data(), (int64_t)body.size()), digest);
        write_file(dir(6) + "/manifest.json",
                   "{\"xxh3_128\":\"" + std::string(digest) + "\",\n" + body);
    });
    expect_refusal("training.steps=9", Z3D_ERR_UNSUPPORTED,
                   {"step-00000006", "format version 9; this program reads versions 1 and 2"});
    EXPECT_TRUE(std::filesystem::exists(dir(6))); // it is not damaged: nothing is put aside
}

TEST_F(Resume, FallsBackLoudlyAndOnlyWhereItCan) {
    expect_runs("");
    on_rank_0([&] { std::filesystem::remove(dir(6) + "/shard-00000.h5"); });
    ::testing::internal::CaptureStderr();
    expect_runs("");
    std::string said = ::testing::internal::GetCapturedStderr();
    if (rank() == 0) {
        EXPECT_NE(said.find("cannot use the checkpoint of step 6"), std::string::npos) << said;
        EXPECT_NE(said.find("shard-00000.h5: this file of the checkpoint is missing"),
                  std::string::npos)
            << said;
    }
    EXPECT_TRUE(std::filesystem::exists(dir(6) + ".damaged"));
    EXPECT_TRUE(std::filesystem::exists(dir(6))); // made again
    // None is whole: the run ends and moves nothing.
    on_rank_0([&] {
        for (int step : {3, 6}) {
            std::string shard = dir(step) + "/shard-00000.h5", bytes = read_file(shard);
            bytes[bytes.size() / 2] = (char)(bytes[bytes.size() / 2] ^ 1);
            write_file(shard, bytes);
        }
    });
    ::testing::internal::CaptureStderr();
    expect_refusal("", Z3D_ERR_DATA,
                   {"none of its checkpoints is intact",
                    "rank 0's shard: ", "step-00000003/shard-00000.h5: damaged", "datasets /"});
    (void)::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(std::filesystem::exists(dir(3)) && std::filesystem::exists(dir(6)));
}

TEST_F(Resume, FromAPathAndWithWeightsOnly) {
    expect_runs("");
    std::string other = "run.dir=" + folder / "other" + "\ncheckpoint.";
    expect_runs("training.steps=5\n" + other + "resume=" + dir(3));
    EXPECT_EQ(field(metrics(folder, "other").at(0), "step"), "4");
    EXPECT_EQ(field(metrics(folder, "other").at(0), "loss"), field(metrics(folder).at(3), "loss"));
    other = "run.dir=" + folder / "third" + "\ncheckpoint.";
    expect_runs("training.steps=1\noptimizer.params.lr=1e-4\n" + other + "init_from=" + dir(3));
    auto first = metrics(folder, "third").at(0);
    EXPECT_EQ(field(first, "step"), "1");
    EXPECT_NE(field(first, "loss"), field(metrics(folder).at(0), "loss"));
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
