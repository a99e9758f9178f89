/* What a configuration may look like, and what it then holds. */
#include "tests/base/config_harness.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

TEST(Config, DefaultsAreThoseOfTheTable) {
    Config c;
    EXPECT_EQ(c->model_num_layers, 12);
    EXPECT_EQ(c->model_hidden_size, 768);
    EXPECT_EQ(c->zero_optimization_reduce_bucket_size, 1000000000000);
    EXPECT_EQ(c->train_batch_size, Z3D_AUTO);
    EXPECT_EQ(c->zero_optimization_grad_reduce, Z3D_GRAD_REDUCE_AUTO);
    EXPECT_EQ(c->optimizer_params_betas.value[0], 0.9);
    EXPECT_EQ(c->optimizer_params_betas.value[1], 0.95);
    EXPECT_EQ(c->optimizer_params_eps, 1e-8);
    EXPECT_EQ(c->scheduler_type, Z3D_LR_CONSTANT);
    EXPECT_STREQ(c->run_dir, "runs/default");
    EXPECT_STREQ(c->generate_prompt, "");
    EXPECT_EQ(c->data_train.count, 0);
    EXPECT_TRUE(c->zero_optimization_overlap_comm);
    EXPECT_FALSE(z3d_config_is_set(c.get, "model.num_layers"));
}

TEST(Config, TheDesignSExampleInBlockAndFlowStyle) {
    Config c("model:\n"
             "  num_layers: 24     # a comment\n"
             "  hidden_size: 1024\n"
             "\n"
             "train_batch_size: 32\n"
             "zero_optimization: { stage: 3, reduce_bucket_size: 5e7, overlap_comm: false }\n"
             "bf16: { enabled: true }\n"
             "gradient_clipping: 1.0\n"
             "optimizer: { type: AdamW, params: { lr: 6e-4, betas: [0.8, 0.99] } }\n"
             "scheduler: { type: WarmupCosineLR, params: { warmup_num_steps: 100 } }\n"
             "run: { dir: runs/gpt2 }\n");
    EXPECT_EQ(c->model_num_layers, 24);
    EXPECT_EQ(c->model_hidden_size, 1024);
    EXPECT_EQ(c->train_batch_size, 32);
    EXPECT_EQ(c->zero_optimization_stage, 3);
    EXPECT_EQ(c->zero_optimization_reduce_bucket_size, 50000000);
    EXPECT_FALSE(c->zero_optimization_overlap_comm);
    EXPECT_TRUE(c->bf16_enabled);
    EXPECT_EQ(c->gradient_clipping, 1.0);
    EXPECT_EQ(c->optimizer_params_lr, 6e-4);
    EXPECT_EQ(c->optimizer_params_betas.value[0], 0.8);
    EXPECT_EQ(c->optimizer_params_betas.value[1], 0.99);
    EXPECT_EQ(c->scheduler_type, Z3D_LR_WARMUP_COSINE);
    EXPECT_EQ(c->scheduler_params_warmup_num_steps, 100);
    EXPECT_STREQ(c->run_dir, "runs/gpt2");
    EXPECT_TRUE(z3d_config_is_set(c.get, "model.num_layers"));
    EXPECT_FALSE(z3d_config_is_set(c.get, "model.seq_length"));
    EXPECT_FALSE(z3d_config_is_set(c.get, "model.nonsense"));
}

TEST(Config, AnOptionSFormerNameIsRead) {
    Config c("training: { collectives: mpi }\n");
    EXPECT_EQ(c->training_collectives, Z3D_COLLECTIVES_HOST);
}

TEST(Config, NumbersAreReadWhole) {
    Config c("training: { steps: 5e8, seed: 9223372036854775807, log_interval: 1.5e3 }\n"
             "generate: { temperature: .5, top_k: 0 }\n"
             "data: { seed: 0 }\n");
    EXPECT_EQ(c->training_steps, 500000000);
    EXPECT_EQ(c->training_seed, INT64_MAX);
    EXPECT_EQ(c->training_log_interval, 1500);
    EXPECT_EQ(c->generate_temperature, 0.5);
    Config negative_zero("gradient_clipping: -0.0\n");
    EXPECT_FALSE(std::signbit(negative_zero->gradient_clipping));
}

TEST(Config, ADeepspeedFileWorks) {
    Config c("{\n"
             "\t\"train_batch_size\": 32,\n" /* JSON may be indented with tabs */
             "\t\"gradient_accumulation_steps\": \"auto\",\n"
             "\t\"steps_per_print\": 2000,\n"
             "\t\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001, \"betas\": [0.8, "
             "0.999]}},\n"
             "\t\"fp16\": {\"enabled\": true, \"auto_cast\": false, \"loss_scale\": 0},\n"
             "\t\"zero_optimization\": {\"stage\": 2, \"contiguous_gradients\": true,\n"
             "\t\t\"allgather_partitions\": [1, {\"not\": \"looked at\"}],\n"
             "\t\t\"offload_optimizer\": {\"device\": \"none\", \"pin_memory\": true},\n"
             "\t\t\"offload_param\": {}, \"cpu_offload\": false}\n"
             "}\n");
    EXPECT_EQ(c->train_batch_size, 32);
    EXPECT_EQ(c->gradient_accumulation_steps, Z3D_AUTO);
    EXPECT_EQ(c->optimizer_params_lr, 0.001);
    EXPECT_TRUE(c->fp16_enabled);
    EXPECT_EQ(c->zero_optimization_stage, 2);
}

TEST(Config, WhatHasNoEffectIsSaidInOneLineEach) {
    testing::internal::CaptureStderr();
    z3d_log_configure(Z3D_LOG_INFO, 0);
    Config c("zero_optimization:\n  reduce_scatter: true\nsteps_per_print: 5\n");
    EXPECT_EQ(z3d_config_check(c.get, NULL), Z3D_OK);
    EXPECT_EQ(z3d_config_check(c.get, NULL), Z3D_OK); // said once
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "zero3d: note: run.yaml:2:3: zero_optimization.reduce_scatter has no effect here: "
              "gradients are always reduce-scattered\n"
              "zero3d: note: run.yaml:3:1: steps_per_print has no effect here: use "
              "training.log_interval\n");
    z3d_log_configure(Z3D_LOG_WARN, 0);
}

TEST(Config, DataFiles) {
    Config one("data: {train: a.bin}\n");
    ASSERT_EQ(one->data_train.count, 1);
    EXPECT_STREQ(one->data_train.path[0], "a.bin");
    EXPECT_EQ(one->data_train.weight[0], 1);
    Config many("data:\n"
                "  train:\n"
                "    - a.bin\n"
                "    - {path: 'b b.bin', weight: 2.5}\n"
                "    - weight: 1e-3\n"
                "      path: c.bin\n"
                "  validation: []\n");
    ASSERT_EQ(many->data_train.count, 3);
    EXPECT_STREQ(many->data_train.path[1], "b b.bin");
    EXPECT_EQ(many->data_train.weight[1], 2.5);
    EXPECT_STREQ(many->data_train.path[2], "c.bin");
    EXPECT_EQ(many->data_train.weight[2], 1e-3);
    EXPECT_EQ(many->data_validation.count, 0);
    ASSERT_EQ(many.read("data: {train: [only.bin]}\n"), Z3D_OK); /* replaces, does not append */
    ASSERT_EQ(many->data_train.count, 1);
    ASSERT_EQ(many.read("data: {train: null}\n"), Z3D_OK);
    EXPECT_EQ(many->data_train.count, 0);
}

TEST(Config, Texts) {
    Config c("generate:\n"
             "  prompt: |\n"
             "    To be,\n"
             "    or not.\n"
             "run: { dir: \"caf\\u00e9/\u00e9\" }\n");
    EXPECT_STREQ(c->generate_prompt, "To be,\nor not.\n");
    EXPECT_STREQ(c->run_dir, "caf\u00e9/\u00e9");
    Config unset("generate: {prompt: null}\n");
    EXPECT_STREQ(unset->generate_prompt, "");
    Config word("generate: {prompt: 'null'}\n");
    EXPECT_STREQ(word->generate_prompt, "null");
    Config number("run: {dir: 007}\n"); /* a text that looks like a number is a text */
    EXPECT_STREQ(number->run_dir, "007");
}

// What lies beside the file goes with it; other names are the working directory's.
TEST(Config, ATokenizerBesideTheFile) {
    char folder[] = "/tmp/base_config_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    const std::string dir = folder, file = dir + "/run.yaml";
    std::ofstream(dir + "/a.json") << "{}";
    auto vocab = [&](const std::string &name) {
        z3d_config *c = nullptr;
        std::ofstream(file) << "data: { vocab: " << name << " }\n";
        EXPECT_EQ(z3d_config_create(&c), Z3D_OK);
        EXPECT_EQ(z3d_config_read_file(c, file.c_str()), Z3D_OK) << z3d_error_message();
        std::string got = c->data_vocab;
        z3d_config_destroy(c);
        return got;
    };
    EXPECT_EQ(vocab("a.json"), dir + "/a.json");
    EXPECT_EQ(vocab("b.json"), "b.json");
    EXPECT_EQ(vocab("/dev/null"), "/dev/null");
    EXPECT_EQ(vocab("''"), "");
    std::filesystem::remove_all(dir);
}

TEST(Config, FilesWithoutKeysChangeNothing) {
    for (const char *text : {"", "\n\n", "# only a comment\n", "---\n...\n", "{}", "model: {}\n",
                             "%YAML 1.1\n---\nmodel: {}\n"}) {
        Config c;
        if (std::string(text) == "---\n...\n") { /* a document that holds an empty text */
            EXPECT_EQ(c.read(text), Z3D_ERR_CONFIG);
            continue;
        }
        EXPECT_EQ(c.read(text), Z3D_OK) << text << z3d_error_message();
        EXPECT_EQ(c->model_num_layers, 12);
    }
}

TEST(Config, NoTextAtAll) {
    Config c;
    EXPECT_EQ(z3d_config_read_text(c.get, nullptr, 0, "nothing"), Z3D_OK);
}

TEST(Config, ByteOrderMarkAndCarriageReturns) {
    Config c("\xEF\xBB\xBFmodel:\r\n  num_layers: 3\r\nbf16:\r\n  enabled: true\r\n");
    EXPECT_EQ(c->model_num_layers, 3);
    EXPECT_TRUE(c->bf16_enabled);
}

TEST(Config, FilesAreLayered) {
    Config c("model: {num_layers: 3, hidden_size: 64}\n");
    ASSERT_EQ(c.read("model: {num_layers: 4}\n", "second.yaml"), Z3D_OK);
    EXPECT_EQ(c->model_num_layers, 4);
    EXPECT_EQ(c->model_hidden_size, 64);
    EXPECT_EQ(z3d_config_error(c.get, "model.num_layers", "n"), Z3D_ERR_CONFIG);
    EXPECT_STREQ(z3d_error_message(), "second.yaml:1:9: model.num_layers: n");
}

TEST(Config, Overrides) {
    Config c("model: {num_layers: 3}\ndata: {train: a.bin}\n");
    ASSERT_EQ(c.set("model.num_layers=5e0"), Z3D_OK);
    EXPECT_EQ(c->model_num_layers, 5);
    ASSERT_EQ(c.set("model.num_layers=6"), Z3D_OK); /* the last one counts */
    EXPECT_EQ(c->model_num_layers, 6);
    ASSERT_EQ(c.set("train_batch_size=auto"), Z3D_OK);
    EXPECT_EQ(c->train_batch_size, Z3D_AUTO);
    ASSERT_EQ(c.set("data.train=[x.bin, {path: y.bin, weight: 3}]"), Z3D_OK);
    ASSERT_EQ(c->data_train.count, 2);
    EXPECT_EQ(c->data_train.weight[1], 3);
    ASSERT_EQ(c.set("data.train="), Z3D_OK);
    EXPECT_EQ(c->data_train.count, 0);
    ASSERT_EQ(c.set("fp16={enabled: true, hysteresis: 4}"), Z3D_OK);
    EXPECT_TRUE(c->fp16_enabled);
    EXPECT_EQ(c->fp16_hysteresis, 4);
    ASSERT_EQ(c.set("optimizer.params.betas=[0, 0.5]"), Z3D_OK);
    EXPECT_EQ(c->optimizer_params_betas.value[1], 0.5);
    ASSERT_EQ(c.set("generate.prompt=To be, or: not # to = be"), Z3D_OK); /* no YAML needed */
    EXPECT_STREQ(c->generate_prompt, "To be, or: not # to = be");
    ASSERT_EQ(c.set("generate.prompt=\"a\\nb\""), Z3D_OK); /* but understood in quotes */
    EXPECT_STREQ(c->generate_prompt, "a\nb");
    ASSERT_EQ(c.set("generate.prompt="), Z3D_OK);
    EXPECT_STREQ(c->generate_prompt, "");
    ASSERT_EQ(c.set("zero_optimization.cpu_offload=false"), Z3D_OK);
}

TEST(Config, ErrorNamesThePlaceOrTheDefault) {
    Config c("model:\n  num_layers: 3\n\n  hidden_size: 64\n");
    z3d_config_error(c.get, "model.hidden_size", "is %d", 64);
    EXPECT_STREQ(z3d_error_message(), "run.yaml:4:3: model.hidden_size: is 64");
    z3d_config_error(c.get, "model.seq_length", "m");
    EXPECT_STREQ(z3d_error_message(), "model.seq_length (not set, default 1024): m");
    z3d_config_error(c.get, "data.train", "m");
    EXPECT_STREQ(z3d_error_message(), "data.train: m");
    z3d_config_error(c.get, "no.key", "m");
    EXPECT_STREQ(z3d_error_message(), "no.key: m");
    ASSERT_EQ(c.set("model.hidden_size=128"), Z3D_OK);
    z3d_config_error(c.get, "model.hidden_size", "m");
    EXPECT_STREQ(z3d_error_message(), "override model.hidden_size=128: m");
}

TEST(Config, ARefusedValueLeavesTheOldOne) {
    Config c("model: {num_layers: 3}\nrun: {dir: here}\ndata: {train: [a, b]}\n");
    EXPECT_EQ(c.set("model.num_layers=0"), Z3D_ERR_CONFIG);
    EXPECT_EQ(c.set("data.train=[c, {weight: 1}]"), Z3D_ERR_CONFIG);
    EXPECT_EQ(c.set("optimizer.params.betas=[0.1, 2]"), Z3D_ERR_CONFIG);
    EXPECT_EQ(c->model_num_layers, 3);
    ASSERT_EQ(c->data_train.count, 2);
    EXPECT_STREQ(c->data_train.path[0], "a");
    EXPECT_EQ(c->optimizer_params_betas.value[0], 0.9);
}

TEST(Config, Files) {
    namespace fs = std::filesystem;
    std::string name = (fs::temp_directory_path() / "zero3d-config-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    std::string path = name + "/run.yaml";
    std::ofstream(path) << "model:\n  num_layers: 7\n";
    Config c;
    EXPECT_EQ(z3d_config_read_file(c.get, path.c_str()), Z3D_OK);
    EXPECT_EQ(c->model_num_layers, 7);
    std::ofstream(path) << "model:\n  num_layers: x\n";
    EXPECT_EQ(z3d_config_read_file(c.get, path.c_str()), Z3D_ERR_CONFIG);
    EXPECT_EQ(
        std::string(z3d_error_message()).find(path + ":2:15: model.num_layers: 'x' is not a "), 0u);
    std::ofstream(path) << "# " << std::string(2 << 20, 'x') << "\n";
    EXPECT_EQ(z3d_config_read_file(c.get, path.c_str()), Z3D_ERR_IO);
    EXPECT_EQ(z3d_config_read_file(c.get, (name + "/none.yaml").c_str()), Z3D_ERR_IO);
    EXPECT_EQ(z3d_config_read_file(c.get, name.c_str()), Z3D_ERR_IO);
    fs::remove_all(name);
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
