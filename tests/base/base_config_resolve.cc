/* What follows from the world size. */
#include "tests/base/config_harness.h"

/* Batch, micro-batch and accumulation, and the data-parallel size, after resolving. */
static std::string resolve(const std::string &text, int world) {
    Config c(text);
    int data = -1;
    if (z3d_config_resolve(c.get, NULL, world, &data) != Z3D_OK) {
        EXPECT_EQ(data, -1);
        return z3d_error_message();
    }
    EXPECT_EQ(c->train_batch_size,
              c->train_micro_batch_size_per_gpu * c->gradient_accumulation_steps * data);
    return std::to_string(c->train_batch_size) + " = " +
           std::to_string(c->train_micro_batch_size_per_gpu) + " x " +
           std::to_string(c->gradient_accumulation_steps) + " x " + std::to_string(data);
}

static const std::string B = "train_batch_size: ", M = "train_micro_batch_size_per_gpu: ",
                         A = "gradient_accumulation_steps: ", n = "\n";

TEST(Resolve, AnyTwoGiveTheThird) {
    EXPECT_EQ(resolve(B + "32\n" + M + "4", 2), "32 = 4 x 4 x 2");
    EXPECT_EQ(resolve(B + "32\n" + A + "4", 2), "32 = 4 x 4 x 2");
    EXPECT_EQ(resolve(M + "4\n" + A + "4", 2), "32 = 4 x 4 x 2");
    EXPECT_EQ(resolve(B + "32\n" + M + "4\n" + A + "4", 2), "32 = 4 x 4 x 2");
}

TEST(Resolve, FewerGiveOneAccumulation) {
    EXPECT_EQ(resolve("", 4), "4 = 1 x 1 x 4");
    EXPECT_EQ(resolve(B + "32", 4), "32 = 8 x 1 x 4");
    EXPECT_EQ(resolve(M + "3", 4), "12 = 3 x 1 x 4");
    EXPECT_EQ(resolve(A + "3", 4), "12 = 1 x 3 x 4");
    EXPECT_EQ(resolve(B + "auto\n" + M + "auto\n" + A + "auto", 1), "1 = 1 x 1 x 1");
}

TEST(Resolve, ContradictionsNameTheNumbers) {
    EXPECT_EQ(resolve(B + "33\n" + M + "4\n" + A + "4", 2),
              "run.yaml:1:1: train_batch_size: 33 is not train_micro_batch_size_per_gpu 4 x "
              "gradient_accumulation_steps 4 x data-parallel size 2 = 32; leave one of the three "
              "out");
    EXPECT_EQ(resolve(B + "30", 4), "run.yaml:1:1: train_batch_size: 30 is not a multiple of 4 "
                                    "samples (4 data ranks); write 28 or 32");
    EXPECT_EQ(resolve(B + "3", 4), "run.yaml:1:1: train_batch_size: 3 is smaller than one step's 4 "
                                   "samples (4 data ranks); write 4");
    EXPECT_EQ(resolve(B + "36\n" + A + "4", 2),
              "run.yaml:1:1: train_batch_size: 36 is not a multiple of 8 samples (accumulation 4 x "
              "2 data ranks); write 32 or 40, or an accumulation of 3");
}

TEST(Resolve, HugeBatchesAreRefusedNotWrapped) {
    EXPECT_NE(resolve(M + "1000000\n" + A + "1000000", 2).find("10^9 samples a step"),
              std::string::npos);
    EXPECT_NE(resolve(M + "1000000\n" + A + "1001", 1).find("10^9 samples a step"),
              std::string::npos);
    EXPECT_NE(resolve(M + "1\n", 2000000000).find("10^9 samples a step"), std::string::npos);
    EXPECT_NE(resolve(B + "1000000000\n" + M + "1", 1).find("10^6"), std::string::npos);
    EXPECT_NE(resolve("training: {steps: 1e12}\nmodel: {seq_length: 16777216}", 1)
                  .find("training.steps: 1000000000000 steps of 1 samples of 16777216 tokens are "
                        "beyond 64-bit"),
              std::string::npos);
}

TEST(Resolve, TheWorldIsTensorTimesData) {
    const std::string tensor = "parallel: {tensor_model_parallel_size: 2}\n";
    EXPECT_EQ(resolve(tensor, 2), "1 = 1 x 1 x 1");
    EXPECT_EQ(resolve(tensor, 8), "4 = 1 x 1 x 4");
    EXPECT_EQ(resolve(tensor, 3),
              "run.yaml:1:12: parallel.tensor_model_parallel_size: 2 needs a multiple of 2 "
              "ranks, but the run has 3; start 2 or 4 ranks (zero3d-launch -n 2 ...)");
    EXPECT_EQ(resolve("parallel: {world_size: 4}\n", 4), "4 = 1 x 1 x 4");
    EXPECT_EQ(resolve("parallel: {world_size: 4}\n", 2),
              "run.yaml:1:12: parallel.world_size: asks for 4 ranks, but the run was started with "
              "2; start 4, or write auto");
    EXPECT_EQ(resolve("", 0), "a world of 0 ranks; expected 1 or more");
}

TEST(Resolve, AutosBecomeConcrete) {
    int data;
    Config steps("training: {steps: 77}\nscheduler: {type: WarmupDecayLR}");
    ASSERT_EQ(z3d_config_resolve(steps.get, NULL, 6, &data), Z3D_OK);
    EXPECT_EQ(steps->scheduler_params_total_num_steps, 77);
    EXPECT_EQ(steps->parallel_world_size, 6);
    Config c("scheduler: {type: WarmupDecayLR, params: {total_num_steps: 5}}");
    ASSERT_EQ(z3d_config_resolve(c.get, NULL, 1, &data), Z3D_OK);
    EXPECT_EQ(c->scheduler_params_total_num_steps, 5);
    Config constant("training: {steps: 77}"); // another number of steps must pass, too
    ASSERT_EQ(z3d_config_resolve(constant.get, NULL, 1, &data), Z3D_OK);
    EXPECT_EQ(constant->scheduler_params_total_num_steps, Z3D_AUTO);
}

TEST(Resolve, TwiceIsOnceAndTheWrittenResultPassesAgain) {
    for (const char *schedule : {"constant", "WarmupLR", "WarmupCosineLR"}) {
        Config c(std::string("train_batch_size: 24\nscheduler: {type: ") + schedule +
                 "}\nzero_optimization: {stage: 1}\n");
        int data, again;
        ASSERT_EQ(z3d_config_check(c.get, NULL), Z3D_OK);
        ASSERT_EQ(z3d_config_resolve(c.get, NULL, 4, &data), Z3D_OK);
        std::string first = c.written();
        ASSERT_EQ(z3d_config_resolve(c.get, NULL, 4, &again), Z3D_OK);
        EXPECT_EQ(data, again);
        EXPECT_EQ(c.written(), first);
        Config read(first);
        EXPECT_EQ(z3d_config_check(read.get, NULL), Z3D_OK) << z3d_error_message();
        EXPECT_EQ(z3d_config_resolve(read.get, NULL, 4, &again), Z3D_OK) << z3d_error_message();
        EXPECT_EQ(read.written(), first);
    }
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}

/* Steps, epochs and the decay's end after all checks, "" for auto; or what is refused. */
static std::string length(const std::string &text, std::initializer_list<const char *> set,
                          int64_t samples) {
    Config c(text);
    int data;
    for (const char *assignment : set) EXPECT_EQ(c.set(assignment), Z3D_OK);
    if (samples > 0) z3d_config_set_epoch(c.get, samples);
    if (z3d_config_settle(c.get, NULL, 1, &data) != Z3D_OK) return z3d_error_message();
    auto number = [](int64_t value) {
        return value == Z3D_AUTO ? std::string("auto") : std::to_string(value);
    };
    // What is written says the same again.
    Config again(c.written());
    EXPECT_EQ(z3d_config_check(again.get, NULL), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(again->training_steps, c->training_steps);
    EXPECT_EQ(again->training_epochs, c->training_epochs);
    return number(c->training_steps) + ", " + std::to_string(c->training_epochs).substr(0, 3) +
           ", " + number(c->scheduler_params_total_num_steps);
}

TEST(Epochs, AreStepsWhereAPassIsKnown) {
    const std::string batch = "train_batch_size: 8\n",
                      decay = batch + "scheduler: {type: WarmupDecayLR}\n";
    EXPECT_EQ(length(batch, {"training.epochs=2"}, 100), "25, 0.0, auto");
    EXPECT_EQ(length(decay, {"training.epochs=2.5"}, 100), "32, 0.0, 32");
    EXPECT_EQ(length(decay, {"training.epochs=0.01"}, 100), "1, 0.0, 1");
    EXPECT_EQ(length("train_batch_size: 1\n", {"training.epochs=0.1"}, 30), "3, 0.0, auto");
    EXPECT_EQ(length(decay, {"training.epochs=3"}, 0), "auto, 3.0, auto"); // a plan has no data
    EXPECT_EQ(length(decay, {"training.epochs=3", "training.steps=auto"}, 8), "3, 0.0, 3");
    EXPECT_EQ(length(decay, {"training.epochs=0"}, 100), "1000, 0.0, 1000");
}

TEST(Epochs, AndStepsAreOneTooMany) {
    const std::string epochs = "training: {epochs: 2}\n", steps = "training: {steps: 7}\n";
    EXPECT_EQ(
        length("training: {epochs: 2, steps: 7}\n", {}, 8),
        "run.yaml:1:12: training.epochs: this key and training.steps say how long the run is; "
        "leave one of them out");
    EXPECT_EQ(length(epochs, {"training.steps=7"}, 8), "7, 0.0, auto");
    EXPECT_EQ(length(steps, {"training.epochs=2"}, 8), "16, 0.0, auto");
    EXPECT_EQ(length("", {"training.steps=auto"}, 8),
              "override training.steps=auto: auto needs training.epochs; write a number");
    EXPECT_EQ(length("training: {epochs: 1e6}\n", {}, INT64_MAX / 2),
              "run.yaml:1:12: training.epochs: 1e+06 passes over 4611686018427387903 samples are "
              "more than 1e12 steps");
}

TEST(Epochs, AreIntervals) {
    const std::string both = "train_batch_size: 8\ndata: {validation: v.bin}\n"
                             "training: {epochs: 2, eval_interval: epoch}\n"
                             "checkpoint: {interval: epoch}\n";
    Config c(both);
    int data;
    z3d_config_set_epoch(c.get, 100);
    ASSERT_EQ(z3d_config_settle(c.get, NULL, 1, &data), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(c->training_eval_interval, 13); // 12.5 steps
    EXPECT_EQ(c->checkpoint_interval, 13);
    EXPECT_EQ(length(both, {}, 0), "auto, 2.0, auto"); // a plan has no data
    const std::string why = ": epoch needs training.epochs, which counts passes over the data; set "
                            "it, or write a number of steps";
    EXPECT_EQ(length("checkpoint: {interval: epoch}\n", {}, 100),
              "run.yaml:1:14: checkpoint.interval" + why);
    EXPECT_EQ(length("data: {validation: v.bin}\ntraining: {epochs: 2, eval_interval: epoch}\n",
                     {"training.steps=3"}, 100),
              "run.yaml:2:23: training.eval_interval" + why);
    EXPECT_TRUE(has(refusal("training: {log_interval: epoch}\n"),
                    "'epoch' is not a number; expected an integer from 1 to 1000000000"));
}

TEST(Epochs, TheWarmupEndsBeforeTheRun) {
    const std::string warm = "scheduler: {type: WarmupCosineLR, params: {warmup_num_steps: 9}}\n";
    EXPECT_EQ(length(warm + "training: {epochs: 2}\n", {}, 4),
              "run.yaml:1:44: scheduler.params.warmup_num_steps: 9 is beyond the end of the decay, "
              "training.steps 8; write at most that");
    EXPECT_EQ(length(warm, {"training.epochs=2"}, 4), "8, 0.0, 8"); // cut, as with steps
}
