/* What the keys of pipelines become for the builder. */
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

extern "C" {
#include "src/plan/plan.h"
}

namespace {

/* A model of 6 units on 2 pipeline stages with 4 micro-batches; `parallel` has the other keys. */
struct Made {
    z3d_config *config = nullptr;
    z3d_model *model = nullptr;
    z3d_program_config program = {};
    std::string message;

    explicit Made(const std::string &parallel, const std::string &rest = "", int stages = 2,
                  int data = 1) {
        std::string text = "model: {num_layers: 4, hidden_size: 32, num_attention_heads: 2, "
                           "seq_length: 8, vocab_size: 4096}\ngradient_accumulation_steps: 4\n" +
                           rest +
                           "parallel: {pipeline_model_parallel_size: " + std::to_string(stages) +
                           parallel + "}\n";
        z3d_mesh mesh;
        EXPECT_EQ(z3d_config_create(&config), Z3D_OK);
        z3d_status status = z3d_config_read_text(config, text.data(), text.size(), "run.yaml");
        if (status == Z3D_OK) status = z3d_plan_place(config, stages * data, 0, &mesh);
        if (status == Z3D_OK) status = z3d_model_from_config(config, &model);
        if (status == Z3D_OK) status = z3d_plan_program_config(config, model, &program);
        if (status != Z3D_OK) message = z3d_error_message();
    }
    ~Made() {
        z3d_plan_program_config_release(&program);
        z3d_model_destroy(model);
        z3d_config_destroy(config);
    }
    Made(const Made &) = delete;
    Made &operator=(const Made &) = delete;

    std::vector<int> first(int count) const {
        return {program.pipeline.first_unit, program.pipeline.first_unit + count};
    }
};

} // namespace

TEST(PlanPipeline, SchedulesAndChunks) {
    const struct {
        const char *keys;
        z3d_schedule_kind schedule;
        int chunks;
    } cases[] = {
        {"", Z3D_SCHEDULE_1F1B, 1},
        {", pipeline_schedule: gpipe", Z3D_SCHEDULE_GPIPE, 1},
        {", pipeline_schedule: zb-h1", Z3D_SCHEDULE_ZB_H1, 1},
        {", virtual_pipeline_model_parallel_size: 2", Z3D_SCHEDULE_INTERLEAVED, 2},
        {", virtual_pipeline_model_parallel_size: 2, pipeline_schedule: zb-v", Z3D_SCHEDULE_ZB_V,
         2},
    };
    for (const auto &c : cases) {
        Made made(c.keys);
        ASSERT_EQ(made.message, "") << c.keys;
        EXPECT_EQ(made.program.pipeline.schedule, c.schedule) << c.keys;
        EXPECT_EQ(made.program.pipeline.chunks_per_stage, c.chunks) << c.keys;
        EXPECT_EQ(made.program.pipeline.first_unit[2 * c.chunks], 6) << c.keys;
    }
    EXPECT_EQ(Made("", "", 1).first(2), (std::vector<int>{0, 0}));
}

TEST(PlanPipeline, Partitions) {
    EXPECT_EQ(Made(", pipeline_partition: uniform").first(3), (std::vector<int>{0, 3, 6}));
    EXPECT_EQ(Made(", pipeline_partition: [1, 5]").first(3), (std::vector<int>{0, 1, 6}));
    EXPECT_EQ(
        Made(", pipeline_partition: '2,1,2,1', virtual_pipeline_model_parallel_size: 2").first(5),
        (std::vector<int>{0, 2, 3, 5, 6}));
    /* The table is large beside a block. By parameters both ends have it; by time the head has
     * products and the embedding none, so the first chunk gets more units. */
    EXPECT_EQ(Made(", pipeline_partition: parameters").first(3), (std::vector<int>{0, 3, 6}));
    EXPECT_GT(Made("").first(3)[1], 3);
}

/* A rank that is slow is made up for once: along the pipeline where its whole stage is slow, else
 * along data. */
/* No chunk gets what the others leave over, and a stage's chunks count together: zb-v's first stage
 * has the light embedding and the heavy head. */
TEST(PlanPipeline, ChunksAreEven) {
    const std::string deep = "model: {num_layers: 18, hidden_size: 32, num_attention_heads: 2, "
                             "seq_length: 8, vocab_size: 4096}\ngradient_accumulation_steps: 8\n"
                             "parallel: {pipeline_model_parallel_size: ";
    auto units = [&](const std::string &parallel, int stages, int chunks) {
        std::string text = deep + parallel + "}\n";
        z3d_config *config = nullptr;
        z3d_model *model = nullptr;
        z3d_program_config program = {};
        z3d_mesh mesh;
        std::vector<int> out;
        EXPECT_EQ(z3d_config_create(&config), Z3D_OK);
        EXPECT_EQ(z3d_config_read_text(config, text.data(), text.size(), "run.yaml"), Z3D_OK);
        EXPECT_EQ(z3d_plan_place(config, stages, 0, &mesh), Z3D_OK) << z3d_error_message();
        EXPECT_EQ(z3d_model_from_config(config, &model), Z3D_OK);
        EXPECT_EQ(z3d_plan_program_config(config, model, &program), Z3D_OK) << z3d_error_message();
        for (int c = 0; c < chunks; c++)
            out.push_back(program.pipeline.first_unit[c + 1] - program.pipeline.first_unit[c]);
        z3d_plan_program_config_release(&program);
        z3d_model_destroy(model);
        z3d_config_destroy(config);
        return out;
    };
    std::vector<int> uniform = units("8, pipeline_partition: uniform", 8, 8);
    EXPECT_EQ(*std::min_element(uniform.begin(), uniform.end()), 2);
    EXPECT_EQ(*std::max_element(uniform.begin(), uniform.end()), 3);
    std::vector<int> v = units("4, virtual_pipeline_model_parallel_size: 2, "
                               "pipeline_schedule: zb-v, pipeline_partition: uniform",
                               4, 8);
    for (int stage = 0; stage < 4; stage++)
        EXPECT_EQ(v[(size_t)stage] + v[(size_t)(7 - stage)], 5) << "stage " << stage;
}

TEST(PlanPipeline, UnequalRanks) {
    auto shares = [](const Made &made, int data) {
        std::vector<int64_t> out;
        for (int d = 0; d < data && made.program.first_sample; d++)
            out.push_back(made.program.first_sample[d + 1] - made.program.first_sample[d]);
        return out;
    };
    auto uniform = [](const std::string &speeds) {
        return ", pipeline_partition: uniform, device_speeds: " + speeds;
    };
    const std::string three = "train_micro_batch_size_per_gpu: 3\n";
    EXPECT_EQ(Made(uniform("[2, 1]")).first(3), (std::vector<int>{0, 4, 6}));
    EXPECT_EQ(Made(", pipeline_partition: [1, 5], device_speeds: [2, 1]").first(3),
              (std::vector<int>{0, 1, 6}));
    EXPECT_EQ(Made(", device_speeds: measured").first(3), Made("").first(3));
    Made one(", device_speeds: [1, 0.5]", three, 1, 2);
    EXPECT_EQ(shares(one, 2), (std::vector<int64_t>{4, 2})) << one.message;
    EXPECT_EQ(shares(Made("", three, 1, 2), 2), (std::vector<int64_t>{}));
    /* Of the four ranks 2 and 3 are the second stage: both slow, or one of them. */
    Made both(uniform("[2, 2, 1, 1]"), three, 2, 2);
    EXPECT_EQ(both.first(3), (std::vector<int>{0, 4, 6})) << both.message;
    EXPECT_EQ(shares(both, 2), (std::vector<int64_t>{3, 3}));
    Made listed(", pipeline_partition: [3, 3], device_speeds: [2, 2, 2, 1]", three, 2, 2);
    EXPECT_EQ(listed.first(3), (std::vector<int>{0, 3, 6})) << listed.message;
    EXPECT_EQ(shares(listed, 2), (std::vector<int64_t>{4, 2}));
    EXPECT_NE(Made(uniform("[1, 0.01]")).message.find("pipeline stage 1 with speed 0.01"),
              std::string::npos);
    EXPECT_NE(
        Made(", device_speeds: [1, 0.2]", "", 1, 2)
            .message.find("data rank 1 is too slow for even one of a micro-batch's 2 samples; "
                          "write train_micro_batch_size_per_gpu 3 or more"),
        std::string::npos);
}

TEST(PlanPipeline, Gathers) {
    auto once = [](const char *choice) {
        return Made("",
                    std::string("zero_optimization: {stage: 3, pipeline_gather: ") + choice + "}\n")
            .program.pipeline.gather_per_step;
    };
    EXPECT_TRUE(once("per_step"));
    EXPECT_FALSE(once("per_microbatch"));
    EXPECT_FALSE(once("auto"));
}

TEST(PlanPipeline, AScheduleFile) {
    std::string path = testing::TempDir() + "plan." + std::to_string(getpid()) + ".csv";
    const std::string keys = ", pipeline_schedule: file, pipeline_schedule_file: " + path;
    z3d_schedule *gpipe = nullptr;
    ASSERT_EQ(z3d_schedule_create(Z3D_SCHEDULE_GPIPE, 2, 2, 4, &gpipe), Z3D_OK);
    ASSERT_EQ(z3d_schedule_write(gpipe, path.c_str()), Z3D_OK);
    z3d_schedule_destroy(gpipe);
    Made made(keys);
    ASSERT_EQ(made.message, "");
    ASSERT_NE(made.program.pipeline.file, nullptr);
    EXPECT_EQ(made.program.pipeline.file->micros, 4);
    std::ofstream(path, std::ios::app) << "0,forward,9,0\n";
    EXPECT_NE(Made(keys).message.find(path + ", line "), std::string::npos) << Made(keys).message;
    unlink(path.c_str());
    EXPECT_NE(Made(keys).message.find("cannot be read"), std::string::npos) << Made(keys).message;
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
