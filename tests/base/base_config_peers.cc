/* Users of other frameworks: blocks that an override switches off, names elsewhere, and messages
 * that name what is to be written. */
#include "tests/base/config_harness.h"

#include <initializer_list>
#include <string>

#include <fstream>
#include <unistd.h>

TEST(OverrideOfABlock, ThatIsNotSupportedWinsWhenItSwitchesItOff) {
    const std::string zenflow = "zero_optimization: {zenflow: {topk_ratio: 0.1}}\n";
    EXPECT_EQ(all_errors(zenflow, {"zero_optimization.zenflow=null"}), "accepted");
    EXPECT_TRUE(has(all_errors(zenflow, {"nebula.enabled=false"}),
                    "run.yaml:1:21: zero_optimization.zenflow:"));
    for (const char *block : {"elasticity", "curriculum_learning", "amp"}) {
        std::string text = std::string(block) + ": {enabled: true, x: 1}\n";
        std::string off = std::string(block) + ".enabled=false";
        EXPECT_EQ(all_errors(text, {off.c_str()}), "accepted") << block;
        EXPECT_TRUE(has(all_errors(text, {}), "run.yaml:1:1: ")) << block;
    }
    EXPECT_EQ(all_errors("fp32_allreduce: true\n", {"fp32_allreduce=false"}), "accepted");
    // Other errors stay; so does an override that switches it on again.
    EXPECT_EQ(all_errors(zenflow + "training: {steps: 0}\namp: {enabled: true}\n",
                         {"zero_optimization.zenflow=null", "amp.enabled=false"}),
              "run.yaml:2:19: training.steps: '0' is out of range; expected an integer from 1 to "
              "1000000000000 or auto");
    EXPECT_TRUE(
        has(all_errors("", {"amp.enabled=false", "amp.enabled=true"}), "override amp.enabled"));
}

TEST(Idle, TensorParallelismSwitchedOffByAnOverride) {
    const char *alone = "parallel.tensor_model_parallel_size=1";
    for (const char *key : {"sequence_parallel", "allow_tensor_across_nodes"}) {
        std::string text =
            std::string("parallel: {tensor_model_parallel_size: 2, ") + key + ": true}\n";
        testing::internal::CaptureStderr();
        EXPECT_EQ(all_errors(text, {alone}), "accepted");
        std::string said = testing::internal::GetCapturedStderr();
        EXPECT_TRUE(has(said, std::string("parallel.") + key +
                                  " has no effect with parallel.tensor_model_parallel_size 1"))
            << said;
    }
    testing::internal::CaptureStderr();
    EXPECT_EQ(all_errors("checkpoint: {interval: 5, keep: 2}\n", {"checkpoint.interval=0"}),
              "accepted");
    EXPECT_TRUE(has(testing::internal::GetCapturedStderr(),
                    "checkpoint.keep has no effect while checkpoint.interval is 0"));
}

TEST(Names, OfOtherFrameworks) {
    const struct {
        const char *theirs, *ours;
    } names[] = {
        {"train_micro_batch_size", "train_micro_batch_size_per_gpu"},
        {"per_device_train_batch_size", "train_micro_batch_size_per_gpu"},
        {"model.vocab", "model.vocab_size"},
        {"model.d_model", "model.hidden_size"},
        {"model.n_embd", "model.hidden_size"},
        {"model.dim", "model.hidden_size"},
        {"model.n_layer", "model.num_layers"},
        {"model.layers", "model.num_layers"},
        {"model.n_head", "model.num_attention_heads"},
        {"model.heads", "model.num_attention_heads"},
        {"model.n_ctx", "model.seq_length"},
        {"model.max_position_embeddings", "model.seq_length"},
        {"model.context_length", "model.seq_length"},
        {"model.dropout", "model.hidden_dropout"},
        {"training.save_interval", "checkpoint.interval"},
        {"checkpoint.save_interval", "checkpoint.interval"},
        {"save_interval", "checkpoint.interval"},
        {"save_steps", "checkpoint.interval"},
        {"save", "checkpoint.dir"},
        {"load", "checkpoint.resume"},
        {"seed", "training.seed"},
        {"run.name", "run.dir"},
        {"zero", "zero_optimization"},
        {"parallel.tp", "parallel.tensor_model_parallel_size"},
        {"tensor_parallel_size", "parallel.tensor_model_parallel_size"},
        {"parallel.tensor_parallel_size", "parallel.tensor_model_parallel_size"},
        {"parallel.pp", "parallel.pipeline_model_parallel_size"},
        {"lr", "optimizer.params.lr"},
        {"learning_rate", "optimizer.params.lr"},
        {"training.lr", "optimizer.params.lr"},
        {"training.max_steps", "training.steps"},
        {"max_steps", "training.steps"},
        {"train_iters", "training.steps"},
        {"warmup_ratio", "scheduler.params.warmup_ratio"},
        {"logging_steps", "training.log_interval"},
        {"gradient_checkpointing", "activation_checkpointing.granularity"},
        {"training.validation_interval", "training.eval_interval"},
        {"eval_steps", "training.eval_interval"},
        {"eval_strategy", "training.eval_interval"},
        {"eval_iters", "training.eval_steps"},
        {"max_length", "model.seq_length"},
        {"torch_dtype", "bf16.enabled"},
        {"packing", "data.samples"},
        {"save_total_limit", "checkpoint.keep"},
        {"load_best_model_at_end", "checkpoint.keep_best"},
        {"metric_for_best_model", "checkpoint.keep_best"},
        {"early_stopping_patience", "training.early_stopping_patience"},
    };
    for (const auto &name : names) {
        std::string message = all_errors("", {(std::string(name.theirs) + "=1").c_str()});
        EXPECT_TRUE(has(message, std::string("did you mean ") + name.ours + "?")) << message;
    }
    EXPECT_TRUE(has(all_errors("", {"report_to=wandb"}), "unknown key report_to; a run writes "));
    EXPECT_TRUE(has(all_errors("", {"report_to=wandb"}), "examples/follow.py sends its metrics"));
    EXPECT_TRUE(has(all_errors("", {"save_strategy=best"}), "checkpoint.keep_best: true keeps"));
    for (const char *epochs : {"epochs", "num_train_epochs", "training.num_epochs", "max_epochs"})
        EXPECT_EQ(all_errors("", {(std::string(epochs) + "=3").c_str()}),
                  std::string("override ") + epochs + "=3: unknown key " + epochs +
                      "; did you mean training.epochs?");
    EXPECT_TRUE(
        has(all_errors("training: {device: gpu}\n", {}), "'gpu' is not supported; use cuda"));
}

TEST(Messages, SayWhatToWrite) {
    EXPECT_EQ(all_errors("", {"bf16=true"}), "override bf16=true: bf16 is a section: expected keys "
                                             "below it, not a value; write bf16.enabled=true");
    EXPECT_TRUE(has(all_errors("optimizer: adamw\n", {}), "write optimizer: {type: AdamW}"));
    EXPECT_TRUE(has(all_errors("data: x.bin\n", {}), "write data: {train: FILE}"));
    EXPECT_EQ(all_errors("zero_optimization: {stage: \"auto\"}\n", {}),
              "run.yaml:1:28: zero_optimization.stage: 'auto' is not supported here; expected an "
              "integer from 0 to 3");
    EXPECT_EQ(all_errors("curriculum_learning: {enabled: true}\n", {}),
              "run.yaml:1:1: curriculum_learning: not supported; write \"enabled\": false, or "
              "leave the block out");
    EXPECT_EQ(all_errors("amp: {enabled: true}\n", {}),
              "run.yaml:1:1: amp: not supported: use bf16.enabled; write \"enabled\": false, or "
              "leave the block out");
    EXPECT_EQ(all_errors("optimizer: {params: {betas: [0.9, 0.99999999]}}\n", {}),
              "run.yaml:1:22: optimizer.params.betas: 0.99999999 is too close to 1 (in fp32 it is "
              "1); write at most 0.9999999");
    EXPECT_EQ(all_errors("{\n  // ZeRO-3\n  \"train_batch_size\": 8\n}\n", {}),
              "run.yaml:2:3: a comment in a configuration begins with #, not with //");
    EXPECT_EQ(
        all_errors("{\"bf16\": {\"enabled\": true, // why\n \"check_grad_overflow\": true}}\n", {}),
        "run.yaml:1:28: a comment in a configuration begins with #, not with //");
    EXPECT_EQ(all_errors("zero_optimization: {aio: {block_size: 1}}\n", {}), "accepted");
    EXPECT_EQ(all_errors("", {"checkpoint.verify=X"}),
              "override checkpoint.verify=X: 'X' is not supported; use one of full, read, sizes");
}

TEST(Messages, BothWaysOutOfABatchThatDoesNotDivide) {
    const std::string batch = "train_batch_size: ", micro = "train_micro_batch_size_per_gpu: ";
    EXPECT_EQ(all_errors(batch + "16\n" + micro + "32\n", {}, 1),
              "run.yaml:1:1: train_batch_size: 16 is smaller than one step's 32 samples "
              "(micro-batch 32 x 1 data rank); write 32, or a micro-batch of 16");
    EXPECT_EQ(all_errors(batch + "36\n" + micro + "4\n", {}, 2),
              "run.yaml:1:1: train_batch_size: 36 is not a multiple of 8 samples (micro-batch 4 x "
              "2 data ranks); write 32 or 40, or a micro-batch of 3");
    EXPECT_EQ(all_errors(batch + "3\n" + micro + "1\n", {}, 4),
              "run.yaml:1:1: train_batch_size: 3 is smaller than one step's 4 samples (micro-batch "
              "1 x 4 data ranks); write 4");
    EXPECT_EQ(all_errors("parallel: {tensor_model_parallel_size: 2}\n", {}, 1),
              "run.yaml:1:12: parallel.tensor_model_parallel_size: 2 needs a multiple of 2 ranks, "
              "but the run has 1; start 2 ranks (zero3d-launch -n 2 ...)");
}

struct conversion {
    std::string yaml, table;
};

static conversion convert(bool megatron, const std::string &text) {
    std::string path = testing::TempDir() + "peers." + std::to_string(getpid());
    std::ofstream(path) << text;
    z3d_string yaml = {}, table = {};
    bool complete;
    EXPECT_EQ(megatron
                  ? z3d_config_from_megatron(path.c_str(), NULL, &yaml, &table, &complete)
                  : z3d_config_from_deepspeed(path.c_str(), NULL, NULL, &yaml, &table, &complete),
              Z3D_OK)
        << z3d_error_message();
    unlink(path.c_str());
    conversion out = {yaml.text ? yaml.text : "", table.text ? table.text : ""};
    z3d_string_free(&yaml);
    z3d_string_free(&table);
    return out;
}

TEST(FromMegatron, CheckpointsWhoseFolderIsStillToBeWritten) {
    conversion c = convert(true, "pretrain_gpt.py --fp16 --lr 1e-4 "
                                 "--save '<PATH TO SAVE>' --load '<PATH TO SAVE>' "
                                 "--save-interval 10000\n");
    Config m(c.yaml);
    EXPECT_EQ(m->checkpoint_interval, 10000) << c.table;
    EXPECT_STREQ(m->checkpoint_resume, "auto");
    EXPECT_TRUE(has(c.table, "set checkpoint.dir")) << c.table;
    EXPECT_FALSE(has(c.table, "there is no --save")) << c.table;
    EXPECT_EQ(m->fp16_initial_scale_power, 32);
    EXPECT_TRUE(has(c.table, "first steps are skipped")) << c.table;
    c = convert(true, "--fp16 --lr 1e-4 --initial-loss-scale 65536 --save-interval 10");
    EXPECT_FALSE(has(c.table, "first steps are skipped")) << c.table;
    EXPECT_TRUE(has(c.table, "there is no --save")) << c.table;
    c = convert(true, "--bf16 --lr 1e-4 --save a --save b --save-interval 10");
    EXPECT_FALSE(has(c.table, "the folder is not known")) << c.table;
    EXPECT_TRUE(has(c.yaml, "dir: \"b\"")) << c.yaml;
}

TEST(FromDeepspeed, RowsAreSentences) {
    conversion c = convert(false, "{\"gradient_clipping\": \"auto\", \"zero_optimization\": "
                                  "{\"stage\": 3, \"zero_quantized_weights\": false, "
                                  "\"stage3_gather_16bit_weights_on_model_save\": true}}");
    EXPECT_TRUE(has(c.table, " the file says auto; the Trainer's default is 1, zero3d's is 0\n"))
        << c.table;
    EXPECT_TRUE(has(c.table, "same as zero3d\n")) << c.table;
    EXPECT_TRUE(has(c.table, "stage3_gather_16bit_weights_on_model_save\n  ")) << c.table;
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
