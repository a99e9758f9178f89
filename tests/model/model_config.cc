// What the models know of their keys: limits, told with everything else that is wrong with a file.
#include <algorithm>

#include "tests/base/config_harness.h"

extern "C" {
#include "src/model/model.h"
}

static std::string check_model(const std::string &text) {
    return check(text, &z3d_model_rules);
}

static void expect_check(const std::string &text, const std::string &message) {
    EXPECT_EQ(check_model(text), message) << text;
}

TEST(ModelConfig, DefaultsPass) {
    EXPECT_EQ(check_model(""), "accepted");
    EXPECT_EQ(check_model("model: {type: gpt2}"), "accepted");
}

TEST(ModelConfig, UnknownModel) {
    expect_check(
        "model: {type: gtp2, num_attention_heads: 7}",
        "run.yaml:1:9: model.type: 'gtp2' is not a model that this program knows; write gpt2");
    Config c("model: {type: gtp2}");
    z3d_model *model = (z3d_model *)&c;
    EXPECT_EQ(z3d_model_from_config(c.get, &model), Z3D_ERR_CONFIG);
    EXPECT_EQ(model, nullptr);
}

TEST(ModelConfig, HeadsHiddenAndTensorSize) {
    expect_check("model: {hidden_size: 100, num_attention_heads: 3}",
                 "run.yaml:1:27: model.num_attention_heads: 3 does not divide model.hidden_size "
                 "100; write 2 or 4");
    expect_check("model: {hidden_size: 8, num_attention_heads: 16}",
                 "run.yaml:1:25: model.num_attention_heads: 16 does not divide model.hidden_size "
                 "8; write 8");
    expect_check("model:\n  hidden_size: 100\n",
                 "model.num_attention_heads (not set, default 12): 12 does not divide "
                 "model.hidden_size 100; write 10 or 20");
    expect_check("parallel: {tensor_model_parallel_size: 8}",
                 "run.yaml:1:12: parallel.tensor_model_parallel_size: 8 does not divide "
                 "model.num_attention_heads 12; write 6 or 12");
    expect_check("parallel: {tensor_model_parallel_size: 24}",
                 "run.yaml:1:12: parallel.tensor_model_parallel_size: 24 does not divide "
                 "model.num_attention_heads 12; write 12");
    for (const char *size : {"1", "2", "3", "4", "6", "12"}) {
        EXPECT_EQ(check_model(std::string("parallel: {tensor_model_parallel_size: ") + size + "}"),
                  "accepted");
    }
}

TEST(ModelConfig, Within64Bits) {
    EXPECT_NE(
        check_model("model: {num_layers: 1000000, hidden_size: 1048576, num_attention_heads: 64}")
            .find("too large a model for 64-bit sizes"),
        std::string::npos);
    EXPECT_EQ(check_model("model: {num_layers: 212, hidden_size: 20480, num_attention_heads: 160}"),
              "accepted"); /* a trillion parameters */
}

TEST(ModelConfig, SequenceParallel) {
    EXPECT_EQ(
        check_model("parallel: {tensor_model_parallel_size: 4, sequence_parallel: true}\n"
                    "model: {seq_length: 1023}"),
        "run.yaml:2:9: model.seq_length: parallel.sequence_parallel cannot divide 1023 tokens by "
        "4 tensor ranks; write 1020 or 1024");
    EXPECT_NE(check_model("parallel: {tensor_model_parallel_size: 4, sequence_parallel: true}\n"
                          "model: {seq_length: 3}")
                  .find("write 4"),
              std::string::npos);
    EXPECT_EQ(check_model("parallel: {tensor_model_parallel_size: 4}\nmodel: {seq_length: 1023}"),
              "accepted");
}

// Sizes are known when the batch is.
TEST(ModelConfig, LargestTensorWithin64Bits) {
    Config c("train_micro_batch_size_per_gpu: 1000000\nmodel: {seq_length: 16777216}");
    int data;
    EXPECT_EQ(z3d_config_resolve(c.get, &z3d_model_rules, 1, &data), Z3D_ERR_CONFIG);
    EXPECT_TRUE(has(z3d_error_message(), "64-bit sizes"));
}

TEST(ModelConfig, ErrorsOfFileOverridesAndModelInOneMessage) {
    std::string message =
        all_errors("model: {num_layer: 4, hidden_size: 100}\n"
                   "train_batch_size: -4\n"
                   "fp16: {enabled: true}\n"
                   "bf16: {enabled: true}\n"
                   "zero_optimization: {stage: 4, offload_param: {device: nvme}}\n"
                   "training: {steps: 010}\n",
                   {"optimizer.params.lr=fast", "nonsense"}, 0, &z3d_model_rules);
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n') + 1, 9) << message;
    for (const char *part :
         {"run.yaml:1:9: unknown key model.num_layer; did you mean",
          "run.yaml:2:19: train_batch_size", "run.yaml:5:28: zero_optimization.stage",
          "run.yaml:5:31: zero_optimization.offload_param", "run.yaml:6:19: training.steps: '010'",
          "override optimizer.params.lr=fast: 'fast'", "'nonsense' is not an override",
          "12 does not divide model.hidden_size 100", "run.yaml:4:8: bf16.enabled"})
        EXPECT_TRUE(has(message, part)) << part << " in\n" << message;
}

// A value that is refused is not the default: nothing is concluded from it.
TEST(ModelConfig, NothingFollowsFromAWrongValue) {
    std::string message =
        all_errors("model: {hidden_size: x, num_attention_heads: 7}\n", {}, 0, &z3d_model_rules);
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
