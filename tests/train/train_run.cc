// Whole runs of the trainer on 1, 2 and 4 ranks: what they leave, and how they fail.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>

#include "run.h"

extern "C" {
#include "src/train/trainer.h"
}

namespace {

int ranks() {
    return z3d_world_size(world);
}
int rank() {
    return z3d_world_rank(world);
}

class Run : public ::testing::Test {
  protected:
    void SetUp() override {
        if (rank() == 0) {
            write_file(folder / "train.bin", token_bytes(some_tokens(20000)));
            write_file(folder / "val.bin", token_bytes(some_tokens(1000, 2)));
        }
        SharedFolder::barrier();
    }
    // The run fails on every rank with `status` and a message with all of `words`.
    void expect_failure(const std::string &more, z3d_status status,
                        const std::vector<std::string> &words) {
        Outcome o = train(folder, more);
        EXPECT_EQ(o.status, status) << o.message;
        for (const std::string &word : words)
            EXPECT_NE(o.message.find(word), std::string::npos) << word << " in: " << o.message;
    }
    // The steps of the run's checkpoints.
    std::vector<int> checkpoints() {
        std::vector<int> steps;
        SharedFolder::barrier();
        for (auto &entry : std::filesystem::directory_iterator(folder / "run/checkpoints"))
            if (entry.is_directory())
                steps.push_back(std::stoi(entry.path().filename().string().substr(5)));
        std::sort(steps.begin(), steps.end());
        SharedFolder::barrier();
        return steps;
    }
    SharedFolder folder;
};

TEST_F(Run, LeavesMetricsConfigAndTraffic) {
    Outcome o = train(folder, "data.validation=" + folder / "val.bin" +
                                  "\ntraining.eval_interval=4\ntraining.eval_steps=3\n");
    ASSERT_EQ(o.status, Z3D_OK) << o.message;
    auto lines = metrics(folder);
    ASSERT_EQ(lines.size(), 8u); // six steps, validation after steps 4 and 6
    auto losses = series(lines, "loss");
    ASSERT_EQ(losses.size(), 6u);
    EXPECT_NEAR(losses[0], std::log(257), 0.3);
    EXPECT_LT(losses[5], losses[0]);
    auto validation = series(lines, "validation_loss");
    ASSERT_EQ(validation.size(), 2u);
    EXPECT_GT(validation[0], 0);
    EXPECT_EQ(field(lines[4], "step"), "4");
    EXPECT_EQ(field(lines[7], "step"), "6");
    // 3 batches of 8 windows of 16.
    EXPECT_EQ(field(lines[4], "validation_targets"), "384");
    for (const std::string &line : lines) {
        if (field(line, "loss").empty()) continue;
        EXPECT_EQ(field(line, "tokens"), "128");
        EXPECT_EQ(std::stoll(field(line, "total_tokens")), 128 * std::stoll(field(line, "step")));
        EXPECT_LT(std::fabs(std::stod(field(line, "time")) - double(time(nullptr))), 600);
        EXPECT_GT(std::stod(field(line, "mfu")), 0);
        EXPECT_GT(std::stod(field(line, "optimizer")), 0);
        EXPECT_GT(std::stod(field(line, "outside")), 1e6); // the program is larger than that
        EXPECT_EQ(std::stod(field(line, "comm_bytes")) > 0, ranks() > 1);
    }
    // The written configuration is the run: read again, it gives the same losses.
    std::string resolved = read_file(folder / "run/config.yaml");
    z3d_config *config = nullptr;
    ASSERT_EQ(z3d_config_create(&config), Z3D_OK);
    ASSERT_EQ(z3d_config_read_text(config, resolved.data(), resolved.size(), "config.yaml"), Z3D_OK)
        << z3d_error_message();
    ASSERT_EQ(z3d_config_override(config, ("run.dir=" + folder / "again").c_str()), Z3D_OK);
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(z3d_train(world, config), Z3D_OK) << z3d_error_message();
    ::testing::internal::GetCapturedStdout();
    z3d_config_destroy(config);
    SharedFolder::barrier();
    EXPECT_EQ(series(metrics(folder, "again"), "loss"), losses);
    EXPECT_EQ(series(metrics(folder, "again"), "validation_loss"), validation);
    EXPECT_NE(read_file(folder / "run/summary.json").find("\"steps\":6"), std::string::npos);
}

// Of several files: the loss of each, as alone, and their mean by the weights.
TEST_F(Run, ValidatesByTheFilesWeights) {
    const std::string train_file = folder / "train.bin", held = folder / "val.bin";
    const std::string steps = "\ntraining.eval_steps=2\ntraining.steps=2\nrun.dir=" + folder / "";
    auto loss = [&](const std::string &files, const std::string &name) {
        Outcome o = train(folder, "data.validation=" + files + steps + name + "\n");
        EXPECT_EQ(o.status, Z3D_OK) << o.message;
        return series(metrics(folder, name), "validation_loss").back();
    };
    const double a = loss(train_file, "a"), b = loss(held, "b");
    ASSERT_NE(a, b);
    for (int weight : {1, 9}) {
        const std::string name = "w" + std::to_string(weight);
        const double mean = loss("[{path: " + train_file + ", weight: " + std::to_string(weight) +
                                     "}, " + held + "]",
                                 name);
        EXPECT_NEAR(mean, (weight * a + b) / (weight + 1), 1e-12);
        const std::string last = metrics(folder, name).back();
        EXPECT_NE(last.find("\"validation_losses\":["), std::string::npos) << last;
        EXPECT_NEAR(std::stod(last.substr(last.find("losses\":[") + 9)), a, 1e-12);
    }
}

// What a run of the default file decides is not measured: the same bits, and config.yaml has it.
TEST_F(Run, TwoRunsWithDefaultsHaveEqualBits) {
    std::vector<double> losses;
    for (const char *name : {"one", "two", "three"}) {
        Outcome o = train(folder, std::string("training.gemm.fp32=auto\nrun.dir=") + (folder / "") +
                                      name + "\n");
        ASSERT_EQ(o.status, Z3D_OK) << o.message;
        if (losses.empty()) losses = series(metrics(folder, name), "loss");
        EXPECT_EQ(series(metrics(folder, name), "loss"), losses);
        const std::string said = read_file(folder / (std::string(name) + "/config.yaml"));
        EXPECT_NE(
            said.find(std::string("fp32: ") + z3d_gemm_method_name(z3d_gemm_from_table(Z3D_F32))),
            std::string::npos);
        EXPECT_NE(said.find("granularity: none"), std::string::npos);
        if (rank() == 0) {
            EXPECT_NE(o.said.find("granularity auto: none: a rank needs "), std::string::npos);
        }
    }
    Outcome o = train(folder, "training.gemm.fp32=measured\nrun.dir=" + folder / "measured" + "\n");
    ASSERT_EQ(o.status, Z3D_OK) << o.message;
    const std::string said = read_file(folder / "measured/config.yaml");
    EXPECT_EQ(said.find("fp32: measured"), std::string::npos);
    EXPECT_EQ(said.find("fp32: auto"), std::string::npos);
}

// cpu_checkpointing auto is settled by rank 0, for all, and said; the run is the same.
TEST_F(Run, SettlesWhereCheckpointsLie) {
    ASSERT_EQ(train(folder, "").status, Z3D_OK);
    auto losses = series(metrics(folder), "loss");
    std::string machine =
        "name: m\ndevice: {name: d, kind: cpu, memory_gib: 1, gemm_efficiency: 1, "
        "memory_gb_per_s: 1, memory_efficiency: 1, attention_efficiency: 1, peak_tflops: {fp32: "
        "0.001}}\nnode: {devices: 8, link_gb_per_s: 1, network_gb_per_s: 1, host_memory_gib: 1, "
        "host_gb_per_s: ";
    if (rank() == 0) write_file(folder / "fast.yaml", machine + "100}\n");
    if (rank() == 0) write_file(folder / "slow.yaml", machine + "0.001}\n");
    SharedFolder::barrier();
    for (const char *speed : {"fast", "slow", ""}) {
        std::string file = *speed ? folder / (std::string(speed) + ".yaml") : "";
        Outcome o = train(folder,
                          "activation_checkpointing.granularity=full\n"
                          "activation_checkpointing.cpu_checkpointing=auto\n" +
                              (*speed ? "training.hardware=" + file + "\n" : ""),
                          true);
        ASSERT_EQ(o.status, Z3D_OK) << o.message;
        bool on = speed == std::string("fast");
        EXPECT_EQ(series(metrics(folder), "loss"), losses);
        std::string resolved = read_file(folder / "run/config.yaml");
        EXPECT_NE(resolved.find(on ? "cpu_checkpointing: true" : "cpu_checkpointing: false"),
                  std::string::npos);
        const char *said = on ? "cpu_checkpointing auto: on:" : "cpu_checkpointing auto: off:";
        EXPECT_TRUE(rank() != 0 || o.said.find(said) != std::string::npos) << o.said;
    }
    expect_failure("activation_checkpointing.cpu_checkpointing=auto\ntraining.hardware=" +
                       folder / "none.yaml",
                   Z3D_ERR_IO, {"training.hardware", "none.yaml"});
}

// pipeline_gather auto is settled by rank 0, for all, and said; the run is the same bit for bit.
TEST_F(Run, SettlesWhenParametersAreGathered) {
    if (ranks() < 4) return;
    const std::string keys = "parallel.pipeline_model_parallel_size=2\nzero_optimization.stage=3\n"
                             "zero_optimization.pipeline_gather=";
    ASSERT_EQ(train(folder, keys + "per_microbatch\n").status, Z3D_OK);
    auto losses = series(metrics(folder), "loss"), norms = series(metrics(folder), "grad_norm");
    if (rank() == 0)
        write_file(folder / "here.yaml",
                   "name: m\ndevice: {name: d, kind: cpu, memory_gib: 1, gemm_efficiency: 1, "
                   "memory_gb_per_s: 1, memory_efficiency: 1, attention_efficiency: 1, "
                   "peak_tflops: {fp32: 0.001}}\nnode: {devices: 8, link_gb_per_s: 1000, "
                   "network_gb_per_s: 1, host_memory_gib: 1, host_gb_per_s: 1}\n");
    SharedFolder::barrier();
    for (const char *how : {"per_step", "auto", "auto\ntraining.hardware=here.yaml"}) {
        std::string more = how;
        if (more.find(".yaml") != std::string::npos) more.insert(more.find("here"), folder / "");
        Outcome o = train(folder, keys + more + "\n", true);
        ASSERT_EQ(o.status, Z3D_OK) << o.message;
        EXPECT_EQ(series(metrics(folder), "loss"), losses) << how;
        EXPECT_EQ(series(metrics(folder), "grad_norm"), norms) << how;
        std::string resolved = read_file(folder / "run/config.yaml");
        EXPECT_EQ(resolved.find("pipeline_gather: auto"), std::string::npos);
        if (how != std::string("auto")) continue;
        EXPECT_NE(resolved.find("pipeline_gather: per_step"), std::string::npos);
        EXPECT_TRUE(rank() != 0 ||
                    o.said.find("pipeline_gather auto: per_step (per_step: ") != std::string::npos)
            << o.said;
    }
    Outcome few = train(folder, keys + "per_step\ntrain_micro_batch_size_per_gpu=4\n");
    EXPECT_TRUE(
        rank() != 0 ||
        few.said.find("warning: fewer micro-batches (1) than pipeline stages (2): at most 1 "
                      "stage works at a time") != std::string::npos)
        << few.said;
}

// recompute_activation auto: rank 0 decides by the memory that it finds, and says so; there is
// enough for so small a model. The run is the same bit for bit.
TEST_F(Run, SettlesWhetherActivationsAreComputedAgain) {
    const std::string key = "activation_checkpointing.recompute_activation=";
    ASSERT_EQ(train(folder, key + "true\n").status, Z3D_OK);
    const auto losses = series(metrics(folder), "loss");
    const Outcome o = train(folder, key + "auto\n", true);
    ASSERT_EQ(o.status, Z3D_OK) << o.message;
    EXPECT_EQ(series(metrics(folder), "loss"), losses);
    EXPECT_EQ(o.recompute_activation, Z3D_RECOMPUTE_FALSE);
    EXPECT_NE(read_file(folder / "run/config.yaml").find("recompute_activation: false"),
              std::string::npos);
    EXPECT_TRUE(rank() != 0 || o.said.find("recompute_activation auto: false: a rank that keeps") !=
                                   std::string::npos)
        << o.said;
}

// The global batch holds the same samples whatever the topology, and so does a validation.
TEST_F(Run, BatchesDependOnNoParallelSize) {
    auto batch = [&](int data_size, int64_t micro_batch, int accumulation, bool validation) {
        std::string path = folder / "train.bin";
        const char *paths[] = {path.c_str()};
        double weights[] = {1};
        z3d_data_list list{1, paths, weights};
        z3d_dataset_config dataset{&list, 16, 257, 3, true, false, Z3D_TOO_LONG_TRUNCATE};
        z3d_config *config = nullptr;
        EXPECT_EQ(z3d_config_create(&config), Z3D_OK);
        config->model_seq_length = 16;
        config->train_batch_size = 8;
        config->training_eval_steps = 5;
        z3d_trainer trainer{};
        trainer.config = config;
        trainer.program.micro_batch = micro_batch;
        trainer.program.accumulation = accumulation;
        EXPECT_EQ(z3d_dataset_open(&dataset, &trainer.train), Z3D_OK) << z3d_error_message();
        trainer.validation = trainer.train;
        std::vector<int32_t> tokens(8 * 16), targets(8 * 16);
        trainer.tokens = tokens.data(), trainer.targets = targets.data();
        std::map<int64_t, std::vector<int32_t>> by_position;
        std::multiset<std::vector<int32_t>> windows;
        for (int r = 0; r < data_size; r++) {
            EXPECT_EQ(z3d_mesh_make(1, data_size, 1, r, &trainer.mesh), Z3D_OK);
            if (validation) {
                for (int64_t call = 0; call < z3d_trainer_validation_calls(&trainer, 0); call++) {
                    EXPECT_EQ(z3d_trainer_read_validation(&trainer, 0, call), Z3D_OK);
                    for (int64_t row = 0; row < micro_batch; row++)
                        if (targets[static_cast<size_t>(row * 16)] >= 0)
                            windows.emplace(targets.begin() + row * 16,
                                            targets.begin() + (row + 1) * 16);
                }
                continue;
            }
            EXPECT_EQ(z3d_trainer_read_step(&trainer, 7), Z3D_OK);
            for (int m = 0; m < accumulation; m++)
                for (int64_t row = 0; row < micro_batch; row++) {
                    auto at = tokens.begin() + (m * micro_batch + row) * 16;
                    by_position[(m * data_size + r) * micro_batch + row] = {at, at + 16};
                }
        }
        std::vector<std::vector<int32_t>> out;
        for (auto &[position, sample] : by_position) out.push_back(sample);
        out.insert(out.end(), windows.begin(), windows.end());
        z3d_dataset_close(trainer.train);
        z3d_config_destroy(config);
        return out;
    };
    for (bool validation : {false, true}) {
        auto alone = batch(1, 8, 1, validation);
        EXPECT_EQ(alone.size(), validation ? 40u : 8u);
        EXPECT_EQ(batch(1, 2, 4, validation), alone);
        EXPECT_EQ(batch(2, 4, 1, validation), alone);
        EXPECT_EQ(batch(4, 1, 2, validation), alone);
        EXPECT_EQ(batch(8, 1, 1, validation), alone);
    }
}

TEST_F(Run, TensorAndDataParallelRunsAgree) {
    if (ranks() == 1) GTEST_SKIP() << "needs ranks";
    std::string common = "data.validation=" + folder / "val.bin" + "\n";
    ASSERT_EQ(train(folder, common + "run.dir=" + folder / "data").status, Z3D_OK);
    ASSERT_EQ(train(folder,
                    common + "parallel.tensor_model_parallel_size=2\nrun.dir=" + folder / "tensor")
                  .status,
              Z3D_OK);
    ASSERT_EQ(train(folder, common +
                                "parallel.tensor_model_parallel_size=2\n"
                                "parallel.sequence_parallel=true\nrun.dir=" +
                                folder / "sequence")
                  .status,
              Z3D_OK);
    for (const char *name : {"loss", "validation_loss", "grad_norm"})
        for (const char *run : {"tensor", "sequence"}) {
            auto a = series(metrics(folder, "data"), name), b = series(metrics(folder, run), name);
            ASSERT_EQ(a.size(), b.size());
            ASSERT_FALSE(a.empty());
            for (size_t i = 0; i < a.size(); i++)
                EXPECT_NEAR(a[i], b[i], 1e-4 * a[i]) << run << " " << name << i;
        }
}

// ZeRO is a layout of memory: what a run writes down does not depend on its stage, to the digit.
TEST_F(Run, StagesWriteTheSameNumbers) {
    if (ranks() != 4) GTEST_SKIP() << "needs 4 ranks";
    std::vector<std::string> first;
    for (const char *stage : {"0", "1", "2", "3"}) {
        // One micro-batch a step: gradients are reduced at the same place in all stages.
        Outcome o = train(folder, std::string("zero_optimization.stage=") + stage +
                                      "\nrun.dir=" + folder / stage +
                                      "\nparallel.tensor_model_parallel_size=2\n"
                                      "train_micro_batch_size_per_gpu=4\nbf16.enabled=true\n"
                                      "gradient_clipping=0.5\nmodel.num_layers=2\n");
        ASSERT_EQ(o.status, Z3D_OK) << o.message;
        std::vector<std::string> numbers;
        for (const std::string &line : metrics(folder, stage))
            numbers.push_back(field(line, "loss") + " " + field(line, "grad_norm"));
        ASSERT_EQ(numbers.size(), 6u);
        EXPECT_EQ(std::set<std::string>(numbers.begin(), numbers.end()).size(), 6u);
        if (first.empty()) first = numbers;
        EXPECT_EQ(numbers, first) << "stage " << stage;
    }
}

TEST_F(Run, TensorBoardCanBeOff) {
    auto event_files = [&] {
        int found = 0;
        for (auto &entry : std::filesystem::directory_iterator(folder / "run"))
            found += entry.path().filename().string().rfind("events.out", 0) == 0;
        SharedFolder::barrier(); // all have looked before the next run
        return found;
    };
    ASSERT_EQ(train(folder, "training.steps=1").status, Z3D_OK);
    EXPECT_EQ(event_files(), 1);
    ASSERT_EQ(
        train(folder, "training.steps=1\nrun.tensorboard=false\nrun.dir=" + folder / "run2").status,
        Z3D_OK);
    EXPECT_EQ(metrics(folder, "run2").size(), 1u);
    EXPECT_TRUE(std::filesystem::exists(folder / "run2/config.yaml"));
    for (auto &entry : std::filesystem::directory_iterator(folder / "run2"))
        EXPECT_NE(entry.path().filename().string().rfind("events.out", 0), 0u);
}

TEST_F(Run, RefusesBadData) {
    if (rank() == 0) {
        write_file(folder / "empty.bin", "");
        write_file(folder / "text.bin", "once upon a time");
        std::string good = read_file(folder / "train.bin");
        write_file(folder / "cut.bin", good.substr(0, good.size() / 2));
        write_file(folder / "short.bin", token_bytes(std::vector<uint16_t>(16, 1)));
        auto tokens = some_tokens(20000);
        tokens[15000] = 257; // with several ranks not in rank 0's part of the check
        write_file(folder / "beyond.bin", token_bytes(tokens));
    }
    SharedFolder::barrier();
    auto data = [&](const std::string &name) { return "data.train=" + folder / name; };
    expect_failure(data("missing.bin"), Z3D_ERR_IO, {"data.train", "missing.bin", "No such file"});
    expect_failure(data("empty.bin"), Z3D_ERR_DATA, {"data.train", "empty.bin", "empty"});
    expect_failure(data("text.bin"), Z3D_ERR_DATA, {"text.bin", "not a token file"});
    expect_failure(data("cut.bin"), Z3D_ERR_DATA, {"cut.bin", "truncated"});
    expect_failure(data("short.bin"), Z3D_ERR_DATA, {"short.bin", "16 tokens"});
    expect_failure(data("beyond.bin"), Z3D_ERR_DATA,
                   {"beyond.bin", "token 15000 is 257", "vocabulary"});
    expect_failure("data.validation=" + folder / "text.bin", Z3D_ERR_DATA,
                   {"data.validation", "text.bin"});
    EXPECT_FALSE(std::filesystem::exists(folder / "run/metrics.jsonl"));
}

TEST_F(Run, RefusesBadRunFolders) {
    if (rank() == 0) write_file(folder / "file", "x");
    SharedFolder::barrier();
    expect_failure("run.dir=" + folder / "file/run", Z3D_ERR_IO, {"run.dir", "file"});
    expect_failure("run.dir=/proc/run", Z3D_ERR_IO, {"run.dir", "/proc/run"});
    expect_failure("run.dir=", Z3D_ERR_CONFIG, {"run.dir"});
}

TEST_F(Run, FullDiskWhileLoggingEndsTheRunOnAllRanks) {
    for (const char *name :
         {"metrics.jsonl", "events.jsonl", "config.yaml.part", "summary.json.part"}) {
        if (rank() == 0) {
            std::filesystem::create_directories(folder / "run");
            std::filesystem::create_symlink("/dev/full", folder / (std::string("run/") + name));
        }
        SharedFolder::barrier();
        expect_failure("", Z3D_ERR_IO, {name, "No space left on device"});
        if (rank() == 0) std::filesystem::remove_all(folder / "run");
        SharedFolder::barrier();
    }
}

TEST_F(Run, RanksMustHaveOneConfiguration) {
    if (ranks() == 1) GTEST_SKIP() << "needs ranks";
    std::string last = rank() == ranks() - 1 ? "training.seed=2" : "training.seed=3";
    expect_failure(last, Z3D_ERR_CONFIG,
                   {"rank " + std::to_string(ranks() - 1), "seed: 2", "seed: 3"});
}

TEST_F(Run, OverflowsInARowEndTheRun) {
    // A fixed scale beyond fp16's range: every step overflows.
    expect_failure("fp16.enabled=true\nfp16.loss_scale=1e30\ntraining.max_skipped_steps=3\n",
                   Z3D_ERR_NUMERIC,
                   {"step 3", "3 steps in a row", "in ln_f", "training.max_skipped_steps 3"});
    auto lines = metrics(folder);
    ASSERT_EQ(lines.size(), 3u);
    for (const std::string &line : lines) {
        EXPECT_EQ(field(line, "skipped"), "true");
        EXPECT_EQ(field(line, "overflow_group"), "\"ln_f\"") << line;
    }
}

// The save that a step began beside training is there for the next start.
TEST_F(Run, AFailedRunFinishesItsSave) {
    expect_failure("optimizer.params.lr=1e6\noptimizer.params.weight_decay=1000\n"
                   "training.max_skipped_steps=1\ntraining.steps=50\n"
                   "checkpoint.interval=1\ncheckpoint.async=true\n",
                   Z3D_ERR_NUMERIC, {"1 step in a row"});
    ASSERT_GT(metrics(folder).size(), 1u);
    EXPECT_EQ(checkpoints().back(), int(metrics(folder).size()) - 1);
}

const char no_step[] = "fp16.enabled=true\nfp16.loss_scale=1e30\n"; // skips every one

// Its steps of NaN neither push the last good ones out nor end as if all were well.
TEST_F(Run, ADivergedRunFailsAndKeepsItsGoodCheckpoints) {
    std::string saving = "checkpoint.interval=2\ncheckpoint.keep=2\n";
    ASSERT_EQ(train(folder, saving).status, Z3D_OK);
    EXPECT_EQ(checkpoints(), (std::vector<int>{4, 6}));
    for (int again = 0; again < 2; again++) { // the same command is not "nothing to do"
        expect_failure(
            saving + no_step + "training.steps=12", Z3D_ERR_NUMERIC,
            {"its last 6 steps (up to step 12) skipped", "the latest checkpoint is step 6"});
        EXPECT_EQ(checkpoints(), (std::vector<int>{4, 6}));
    }
    // Stopped by its time limit it must get on, so it saves, but removes none.
    Outcome o = train(folder, saving + no_step + "training.steps=12\ntraining.time_limit=1e-9");
    EXPECT_EQ(o.status, Z3D_OK) << o.message;
    EXPECT_EQ(checkpoints(), (std::vector<int>{4, 6, 7}));
}

TEST_F(Run, AllStepsSkippedIsAFailure) {
    expect_failure(no_step, Z3D_ERR_NUMERIC, {"its last 6 steps (up to step 6) skipped"});
    // The search for a loss scale has not ended, and no step was taken.
    expect_failure("fp16.enabled=true\nfp16.initial_scale_power=32\ntraining.steps=2\n",
                   Z3D_ERR_NUMERIC,
                   {"all its steps (up to step 2) skipped the update",
                    "the loss scale is still falling (now 2.1e+09): train more steps, or set "
                    "fp16.initial_scale_power to 16"});
    expect_failure("optimizer.params.lr=1e6\ntraining.steps=12\n", Z3D_ERR_NUMERIC,
                   {"(up to step 12) skipped the update, because numbers in ", " (loss nan)"});
}

TEST_F(Run, ACheckpointThatFallsOnASkippedStepWaits) {
    Outcome o = train(folder, "fp16.enabled=true\nfp16.initial_scale_power=30\nfp16.hysteresis=1\n"
                              "training.steps=30\ncheckpoint.interval=3\ncheckpoint.keep=0\n");
    ASSERT_EQ(o.status, Z3D_OK) << o.message;
    std::vector<int> wanted;
    bool waits = false, waited = false;
    for (const std::string &line : metrics(folder)) {
        int step = std::stoi(field(line, "step"));
        waits = waits || step % 3 == 0;
        bool skipped = field(line, "skipped") == "true";
        waited = waited || (waits && skipped);
        if (waits && !skipped) wanted.push_back(step);
        waits = waits && skipped;
    }
    EXPECT_TRUE(waited);
    EXPECT_EQ(checkpoints(), wanted);
    bool said =
        o.said.find("step 3 was skipped: its checkpoint is saved after") != std::string::npos;
    EXPECT_EQ(said, rank() == 0) << o.said;
}

TEST_F(Run, SaysWhenStage2KeepsWholeGradients) {
    Outcome o = train(folder, "training.steps=1\nzero_optimization.stage=2\n"
                              "zero_optimization.grad_reduce=per_step\n");
    ASSERT_EQ(o.status, Z3D_OK) << o.message;
    bool said = o.said.find("once per step, kept whole until then") != std::string::npos;
    EXPECT_EQ(said, rank() == 0) << o.said;
}

// At its start and at its end.
TEST_F(Run, SaysWhenItSavesNothing) {
    const std::string line =
        "this run saves no checkpoints; set checkpoint.interval to keep the model";
    for (const char *more : {"", "checkpoint.interval=3"}) {
        Outcome o = train(folder, more);
        ASSERT_EQ(o.status, Z3D_OK) << o.message;
        size_t start = o.said.find(line), end = o.said.rfind(line), done = o.said.find("done:");
        if (rank() != 0) {
            EXPECT_EQ(o.said, "");
        } else if (*more) {
            EXPECT_EQ(start, std::string::npos) << o.said;
            EXPECT_NE(o.said.find("checkpoints every 3 steps in "), std::string::npos) << o.said;
        } else {
            EXPECT_TRUE(start < done && done < end && end < o.said.size()) << o.said;
        }
    }
}

TEST_F(Run, DynamicScaleRecovers) {
    Outcome o = train(folder, "fp16.enabled=true\nfp16.initial_scale_power=30\nfp16.hysteresis=1\n"
                              "training.steps=30\ntraining.max_skipped_steps=25\n");
    ASSERT_EQ(o.status, Z3D_OK) << o.message;
    auto lines = metrics(folder);
    EXPECT_EQ(field(lines.front(), "skipped"), "true");
    EXPECT_EQ(field(lines.back(), "skipped"), "false");
    auto scales = series(lines, "loss_scale");
    EXPECT_LT(scales.back(), scales.front());
}

TEST_F(Run, GeneratesAndNeedsAVocabularyForIt) {
    Outcome o = train(folder, "training.steps=1\ngenerate.prompt=Hello\ngenerate.tokens=30\n");
    const std::string &said = o.said;
    ASSERT_EQ(o.status, Z3D_OK) << o.message;
    EXPECT_EQ(said.find("sample (30 tokens") != std::string::npos, rank() == 0) << said;
    EXPECT_EQ(said.find("\nHello") != std::string::npos, rank() == 0);
    EXPECT_EQ(said.find('\x1b'), std::string::npos);
    expect_failure("generate.prompt=Hello\nmodel.vocab_size=256\n", Z3D_ERR_CONFIG,
                   {"model.vocab_size", "257"});
    expect_failure("generate.prompt=Hello\ndata.tokenizer=gpt2\n", Z3D_ERR_CONFIG,
                   {"data.vocab: the gpt2 tokenizer needs its vocabulary"});
    expect_failure("generate.prompt=Hello\ndata.tokenizer=gpt2\ndata.vocab=nowhere\n", Z3D_ERR_IO,
                   {"data.vocab: cannot open nowhere"});
}

TEST_F(Run, ConsoleIsAlignedAndOnlyRank0Speaks) {
    Outcome o = train(folder, "data.validation=" + folder / "val.bin" + "\ntraining.steps=20\n");
    const std::string &said = o.said;
    ASSERT_EQ(o.status, Z3D_OK) << o.message;
    if (rank() != 0) {
        EXPECT_EQ(said, "");
        return;
    }
    std::istringstream in(said);
    std::set<size_t> rate_columns;
    int steps = 0;
    for (std::string line; std::getline(in, line);) {
        EXPECT_LE(line.size(), 200u) << line;
        for (unsigned char c : line) EXPECT_GE(c, 0x20) << line;
        bool step = line.find("/20  ") == 2;
        bool validation = line.find("validation loss, nats") != std::string::npos;
        if (!step || validation) continue;
        steps++;
        rate_columns.insert(line.find('.', 7)); // the loss' point
    }
    EXPECT_EQ(steps, 11); // step 1, then every second
    EXPECT_EQ(rate_columns.size(), 1u);
    for (const char *word :
         {"model", "ranks", "device", "memory", "GFLOP/s/rank", "\ndone: ", "\nmemory   peak ",
          "\nfiles    ", "\nnext     report:   zero3d report "})
        EXPECT_NE(said.find(word), std::string::npos) << word;
    EXPECT_EQ(said.find("\nexposed  communication ") != std::string::npos, ranks() > 1) << said;
    EXPECT_EQ(said.find("\nexposed ") != std::string::npos, ranks() > 1) << said;
    // Planned bytes are measured bytes, and the process' memory is explained.
    EXPECT_EQ(said.find("  ! "), std::string::npos) << said;
    for (const char *word : {"resident memory", "\npeak ", "\nbuckets ", "peak use"})
        EXPECT_EQ(said.find(word), std::string::npos) << word; // of --verbose
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
