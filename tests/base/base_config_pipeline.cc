/* The keys of pipelines: what they mean, and what is refused. */
#include "tests/base/config_harness.h"

#include <fstream>

#include <unistd.h>

static int64_t units(const z3d_config *config) {
    return config->model_num_layers + 2;
}

static const z3d_config_rules rules = {
    [](const z3d_config *, const z3d_config_judge *) {},
    [](const z3d_config *config) { return config->model_hidden_size; }, units};

/* What is wrong with these keys of `parallel`, in a model of 12 blocks. */
static std::string told(const std::string &keys, int world = 0) {
    return all_errors("parallel: {" + keys + "}\n", {}, world, &rules);
}

static const std::string SIZE = "pipeline_model_parallel_size: ",
                         VIRTUAL = "virtual_pipeline_model_parallel_size: ",
                         SCHEDULE = "pipeline_schedule: ", PARTITION = "pipeline_partition: ",
                         S = ", ", P = "run.yaml:1:12: parallel.";

TEST(Pipeline, WhatFits) {
    for (const char *keys :
         {"1", "2", "14", "2, virtual_pipeline_model_parallel_size: 7",
          "4, pipeline_schedule: 1f1b", "4, pipeline_schedule: gpipe",
          "4, pipeline_schedule: zb-h1",
          "4, pipeline_schedule: zb-v, virtual_pipeline_model_parallel_size: 2",
          "4, pipeline_schedule: interleaved, virtual_pipeline_model_parallel_size: 3",
          "4, pipeline_partition: parameters", "4, pipeline_partition: [4, 3, 3, 4]",
          "4, pipeline_partition: '4,3,3,4'", "1, pipeline_partition: time"})
        EXPECT_EQ(told(SIZE + keys), "accepted") << keys;
}

TEST(Pipeline, MoreChunksThanUnits) {
    EXPECT_EQ(told(SIZE + "15"), P + SIZE +
                                     "15 stages are more than the model's 14 units "
                                     "(embedding, blocks, head); write at most 14");
    EXPECT_EQ(told(VIRTUAL + "4" + S + SIZE + "4"),
              P + VIRTUAL +
                  "4 stages x 4 chunks are more than the model's 14 units (embedding, "
                  "blocks, head); write at most 3");
    EXPECT_TRUE(
        has(told(VIRTUAL + "2" + S + SIZE + "20"), "write at most 14 stages and 1 chunk in each"));
    EXPECT_TRUE(has(told(SIZE + "1025"), "expected an integer from 1 to 1024"));
    // Without the models' rules only the limit of chunks is known.
    EXPECT_TRUE(has(all_errors("parallel: {" + SIZE + "64" + S + VIRTUAL + "17}\n", {}),
                    "64 stages x 17 chunks are more than 1024 chunks; write at most 16"));
}

TEST(Pipeline, ScheduleAndChunksPerStage) {
    const std::string two = S + VIRTUAL + "2",
                      key = "parallel.virtual_pipeline_model_parallel_size";
    for (const char *one : {"1f1b", "gpipe", "zb-h1"})
        EXPECT_EQ(told(SCHEDULE + one + S + SIZE + "4" + two),
                  P + SCHEDULE + one + " has 1 chunk per pipeline stage, not 2; set " + key +
                      " to 1, or write interleaved or zb-v");
    EXPECT_EQ(told(SCHEDULE + "zb-v" + S + SIZE + "4"),
              P + SCHEDULE + "zb-v has 2 chunks per pipeline stage, not 1; set " + key +
                  " to 2, or write 1f1b, gpipe or zb-h1");
    EXPECT_EQ(told(SCHEDULE + "zb-v" + S + SIZE + "4" + S + VIRTUAL + "3"),
              P + SCHEDULE + "zb-v has 2 chunks per pipeline stage, not 3; set " + key +
                  " to 2, or write interleaved");
    EXPECT_EQ(told(SCHEDULE + "interleaved" + S + SIZE + "4"),
              P + SCHEDULE + "interleaved has 2 or more chunks per pipeline stage, not 1; set " +
                  key + " to 2 or more, or write 1f1b, gpipe or zb-h1");
    EXPECT_TRUE(has(told(SCHEDULE + "1F1B"), "'1F1B' is not supported; use 1f1b"));
}

TEST(Pipeline, AutoIsInterleavedWithSeveralChunks) {
    auto schedule = [](const std::string &keys) {
        Config c("parallel: {" + keys + "}");
        return z3d_config_pipeline_schedule(c.get);
    };
    EXPECT_EQ(schedule(SIZE + "4"), Z3D_SCHEDULE_1F1B);
    EXPECT_EQ(schedule(SIZE + "4" + S + VIRTUAL + "2"), Z3D_SCHEDULE_INTERLEAVED);
    EXPECT_EQ(schedule(SIZE + "4" + S + VIRTUAL + "2" + S + SCHEDULE + "zb-v"), Z3D_SCHEDULE_ZB_V);
    Config c("parallel: {" + SIZE + "4" + S + VIRTUAL + "3}");
    EXPECT_EQ(z3d_config_chunks(c.get), 12);
}

TEST(Pipeline, KeysWithoutEffect) {
    const std::string one = "has no effect with parallel.pipeline_model_parallel_size 1";
    for (const char *key : {"virtual_pipeline_model_parallel_size: 2", "pipeline_schedule: gpipe",
                            "pipeline_schedule_file: s.csv", "pipeline_partition: uniform",
                            "pipeline_partition: [7, 7]"}) {
        std::string name(key);
        name = name.substr(0, name.find(':'));
        EXPECT_EQ(told(key), P + name + ": " + one + "; leave this key out");
    }
    EXPECT_TRUE(has(all_errors("zero_optimization: {pipeline_gather: per_step}\n", {}), one));
    EXPECT_TRUE(has(all_errors("zero_optimization: {stage: 2, pipeline_gather: per_step}\n"
                               "parallel: {pipeline_model_parallel_size: 2}\n",
                               {}),
                    "has no effect below zero_optimization.stage 3"));
    // A file stays as it is while an override tries one stage.
    EXPECT_EQ(all_errors("parallel: {" + SIZE + "2" + S + SCHEDULE + "gpipe}\n",
                         {"parallel.pipeline_model_parallel_size=1"}),
              "accepted");
}

TEST(Pipeline, AScheduleOfYourOwn) {
    std::string path = testing::TempDir() + "schedule." + std::to_string(getpid()) + ".csv";
    std::ofstream(path) << "stage,pass,chunk,micro\n";
    const std::string file = S + SCHEDULE + "file", at = S + "pipeline_schedule_file: ";
    EXPECT_EQ(told(SIZE + "2" + file + at + path), "accepted");
    EXPECT_TRUE(has(told(SIZE + "2" + file), "parallel.pipeline_schedule: file needs the path of a "
                                             "schedule; set parallel.pipeline_schedule_file"));
    EXPECT_TRUE(has(told(SIZE + "2" + at + path),
                    "parallel.pipeline_schedule_file: has no effect unless "
                    "parallel.pipeline_schedule is file; set it to file, or leave this key out"));
    unlink(path.c_str());
    EXPECT_TRUE(has(told(SIZE + "2" + file + at + path),
                    "' cannot be read: No such file or directory; write the path of a CSV file"));
}

TEST(Pipeline, AListOfUnits) {
    auto refused = [](const std::string &list) { return told(PARTITION + list + S + SIZE + "4"); };
    EXPECT_EQ(refused("[5, 4, 5]"),
              P + PARTITION +
                  "the list has 3 numbers, but there are 4 chunks (pipeline size 4 x "
                  "virtual size 1); write the units of each chunk");
    EXPECT_EQ(refused("[4, 3, 3, 3]"),
              P + PARTITION +
                  "the list's sum is 13; write numbers whose sum is the model's 14 "
                  "units (embedding, blocks, head)");
    EXPECT_EQ(refused("[4, 0, 5, 5]"),
              P + PARTITION + "chunk 1 of the list has 0 units; write at least 1");
    EXPECT_TRUE(has(refused("[4, -1, 6, 5]"), "chunk 1 of the list has -1 units"));
    const std::string expected =
        "; expected time, parameters, uniform or a list of integers, as [4, 3, 3, 4]";
    for (const char *list : {"[4, x, 3, 4]", "[4, 3.5, 3, 4]", "'4,,3,4'", "'[4, 3, 3, 4'",
                             "'4, 3, 3, 4]'", "'[4, 3] 3'", "[]", "'[9999999999999999999999]'",
                             "'4,'", "'[11111111111111111111111111111111111111111111111]'"})
        EXPECT_TRUE(has(refused(list), expected)) << list << "\n" << refused(list);
    EXPECT_TRUE(has(refused("[[4, 3], 3, 4]"), "a list or mapping in the list"));
    EXPECT_TRUE(has(refused("parameter"), "'parameter' is not supported; use parameters"));
    EXPECT_TRUE(has(refused("''"), "is not supported; use time, parameters, uniform or a list"));
}

TEST(Pipeline, TheListReadsBack) {
    for (const char *list : {"[4, 3, 3, 4]", "4,3,3,4", " [4 , 3,3,4 ] "}) {
        Config c;
        ASSERT_EQ(c.set((std::string("parallel.pipeline_partition=") + list).c_str()), Z3D_OK)
            << z3d_error_message();
        Config again(c.written());
        int64_t numbers[4] = {};
        int count;
        EXPECT_EQ(z3d_config_partition(again.get, numbers, 4, &count), Z3D_PARTITION_LIST);
        EXPECT_EQ(count, 4);
        EXPECT_EQ(numbers[0] * 1000 + numbers[1] * 100 + numbers[2] * 10 + numbers[3], 4334);
        EXPECT_EQ(z3d_config_partition(again.get, NULL, 0, &count), Z3D_PARTITION_LIST);
        EXPECT_EQ(count, 4);
    }
    int count;
    EXPECT_EQ(
        z3d_config_partition(Config("parallel: {pipeline_partition: null}").get, NULL, 0, &count),
        Z3D_PARTITION_TIME);
    EXPECT_EQ(z3d_config_partition(Config("parallel: {pipeline_partition: uniform}").get, NULL, 0,
                                   &count),
              Z3D_PARTITION_UNIFORM);
    EXPECT_EQ(count, 0);
}

/* ---- with a world ---- */

/* z3d_config_resolve alone: batch = micro-batch x accumulation x data. */
static std::string resolve(const std::string &text, int world) {
    Config c(text);
    int data = 0;
    if (z3d_config_resolve(c.get, &rules, world, &data) != Z3D_OK) return z3d_error_message();
    return std::to_string(c->train_batch_size) + " = " +
           std::to_string(c->train_micro_batch_size_per_gpu) + " x " +
           std::to_string(c->gradient_accumulation_steps) + " x " + std::to_string(data);
}

TEST(Pipeline, TheWorldIsTensorTimesPipelineTimesData) {
    const std::string four = "parallel: {pipeline_model_parallel_size: 2, "
                             "tensor_model_parallel_size: 2}\n";
    EXPECT_EQ(resolve(four, 8), "2 = 1 x 1 x 2");
    EXPECT_EQ(resolve(four + "train_batch_size: 24\ntrain_micro_batch_size_per_gpu: 3\n", 8),
              "24 = 3 x 4 x 2");
    EXPECT_EQ(resolve(four, 6),
              "run.yaml:1:12: parallel.pipeline_model_parallel_size: 2 x "
              "parallel.tensor_model_parallel_size 2 needs a multiple of 4 ranks, but the run has "
              "6; start 4 or 8 ranks (zero3d-launch -n 4 ...)");
    EXPECT_EQ(
        resolve("parallel: {pipeline_model_parallel_size: 4}\n", 2),
        "run.yaml:1:12: parallel.pipeline_model_parallel_size: 4 needs a multiple of 4 ranks, "
        "but the run has 2; start 4 ranks (zero3d-launch -n 4 ...)");
}

TEST(Pipeline, ASpeedForEachRank) {
    const std::string speeds = "device_speeds: ", is = P + speeds;
    for (const char *fits : {"equal", "measured", "[1, 0.5]", "'1,.5'", "[2, 3e-1]"})
        EXPECT_EQ(told(speeds + fits, 2), "accepted") << fits;
    EXPECT_EQ(told(speeds + "[1]", 2),
              is + "the list has 1 number, but there are 2 ranks; write one number per rank, or "
                   "measured");
    EXPECT_TRUE(has(told(speeds + "[1, 1, 1]", 2), "has 3 numbers, but there are 2 ranks"));
    EXPECT_EQ(told(speeds + "[1, 0]"),
              is + "rank 1's speed is 0; write a number from 0.001 to 1000");
    EXPECT_TRUE(has(told(speeds + "[-1, 1]"), "rank 0's speed is -1; write"));
    EXPECT_TRUE(has(told(speeds + "[1, fast]"),
                    "; expected equal, measured or a list of numbers, as [1, 0.5]"));
    EXPECT_TRUE(has(told(speeds + "measure"), "'measure' is not supported; use measured"));
    Config c("parallel: {device_speeds: [1, 0.25]}");
    double numbers[2] = {};
    int count;
    EXPECT_EQ(z3d_config_device_speeds(c.get, numbers, 2, &count), Z3D_SPEEDS_LIST);
    EXPECT_EQ(count, 2);
    EXPECT_EQ(numbers[1], 0.25);
}

TEST(Pipeline, InterleavedNeedsGroupsOfMicroBatches) {
    const std::string interleaved = "parallel: {pipeline_model_parallel_size: 4, "
                                    "virtual_pipeline_model_parallel_size: 2}\n",
                      at = "run.yaml:2:1: ";
    EXPECT_EQ(resolve(interleaved + "gradient_accumulation_steps: 8\n", 4), "8 = 1 x 8 x 1");
    EXPECT_EQ(resolve(interleaved + "gradient_accumulation_steps: 6\n", 4),
              at + "gradient_accumulation_steps: interleaved on 4 pipeline stages needs a multiple "
                   "of 4 micro-batches in a step, not 6; write 4 or 8, or choose 1 chunk per "
                   "pipeline stage");
    EXPECT_TRUE(
        has(resolve(interleaved, 4),
            "gradient_accumulation_steps (not set, default auto): interleaved on 4 pipeline "
            "stages needs a multiple of 4 micro-batches in a step, not 1; write 4, or"));
    EXPECT_TRUE(has(resolve(interleaved + "train_batch_size: 36\n"
                                          "train_micro_batch_size_per_gpu: 3\n",
                            8),
                    at + "train_batch_size: interleaved on 4 pipeline stages needs a multiple of 4 "
                         "micro-batches in a step, not 6; write 24 or 48, or"));
    // Other schedules take any number.
    EXPECT_EQ(resolve("parallel: {pipeline_model_parallel_size: 4}\ngradient_accumulation_steps: "
                      "3\n",
                      4),
              "3 = 1 x 3 x 1");
}

TEST(Pipeline, DeepspeedsBlock) {
    const std::string key = "parallel.pipeline_model_parallel_size";
    auto stages = [](const std::string &text) {
        Config c(text);
        EXPECT_EQ(z3d_config_check(c.get, NULL), Z3D_OK) << z3d_error_message();
        return c->parallel_pipeline_model_parallel_size;
    };
    EXPECT_EQ(stages("pipeline: {stages: 4, partition: best, seed_layers: true, "
                     "activation_checkpoint_interval: 0, pipe_partitioned: true, "
                     "grad_partitioned: true}\n"),
              4);
    EXPECT_EQ(stages("pipeline: {stages: auto}\n"), 1);
    EXPECT_EQ(stages("pipeline: {}\n"), 1);
    EXPECT_EQ(stages("pipeline: null\n"), 1);
    EXPECT_EQ(stages("pipeline: {stages: 2}\nparallel: {pipeline_model_parallel_size: 2}\n"), 2);
    EXPECT_TRUE(has(all_errors("pipeline: {stages: 2}\nparallel: {" + SIZE + "4}\n", {}),
                    "run.yaml:1:12: pipeline.stages: it sets " + key +
                        " to 2, but that key is 4; leave one of them out"));
    for (const char *bad : {"2.5", "0", "5000"})
        EXPECT_TRUE(has(all_errors(std::string("pipeline: {stages: ") + bad + "}\n", {}),
                        "expected an integer from 1 to 1024"))
            << bad;
    EXPECT_TRUE(has(all_errors("pipeline: {partition: 'type:block'}\n", {}),
                    "pipeline.partition: not supported: use parallel.pipeline_partition; leave it "
                    "out or write best"));
    EXPECT_TRUE(has(all_errors("pipeline: {activation_checkpoint_interval: 2}\n", {}),
                    "use activation_checkpointing.granularity and number_checkpoints"));
    EXPECT_TRUE(has(all_errors("pipeline: {num_stages: 2}\n", {}), "did you mean " + key + "?"));
}

TEST(Pipeline, NamesElsewhere) {
    const struct {
        const char *theirs, *ours;
    } names[] = {
        {"pp_size", "pipeline_model_parallel_size"},
        {"parallelism.pipeline_parallel_degree", "pipeline_model_parallel_size"},
        {"num_stages", "pipeline_model_parallel_size"},
        {"parallel.num_stages", "pipeline_model_parallel_size"},
        {"parallel.vpp", "virtual_pipeline_model_parallel_size"},
        {"parallel.num_model_chunks", "virtual_pipeline_model_parallel_size"},
        {"parallel.num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size"},
        {"parallelism.pipeline_parallel_schedule", "pipeline_schedule"},
        {"parallelism.pipeline_parallel_schedule_csv", "pipeline_schedule_file"},
        {"pipeline.partition_method", "pipeline_partition"},
    };
    for (const auto &name : names) {
        std::string message = all_errors("", {(std::string(name.theirs) + "=1").c_str()});
        EXPECT_TRUE(has(message, std::string("did you mean parallel.") + name.ours + "?"))
            << message;
    }
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
