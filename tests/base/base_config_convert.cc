/* Files of other frameworks: where Megatron-LM's arguments come from, their dialects, and every
 * known key in a grid. */
#include "tests/base/config_harness.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include <unistd.h>

extern "C" {
#include "src/base/config/convert/megatron.h"
}

struct conversion {
    z3d_status status = Z3D_OK;
    bool complete = false;
    std::string yaml, table, error;
};

static conversion take(z3d_status status, bool complete, z3d_string *yaml, z3d_string *table) {
    conversion out;
    out.status = status;
    out.complete = complete;
    out.error = status == Z3D_OK ? "" : z3d_error_message();
    out.yaml = yaml->text ? yaml->text : "";
    out.table = table->text ? table->text : "";
    z3d_string_free(yaml);
    z3d_string_free(table);
    return out;
}

static std::string written(const std::string &text) {
    std::string path = testing::TempDir() + "convert." + std::to_string(getpid());
    std::ofstream(path) << text;
    return path;
}

static conversion megatron(const std::string &text) {
    const std::string path = written(text);
    z3d_string yaml = {}, table = {};
    bool complete = false;
    z3d_status status = z3d_config_from_megatron(path.c_str(), nullptr, &yaml, &table, &complete);
    unlink(path.c_str());
    return take(status, complete, &yaml, &table);
}

static conversion command(const std::vector<const char *> &words) {
    z3d_string yaml = {}, table = {};
    bool complete = false;
    z3d_status status = z3d_config_from_megatron_command(words.data(), (int)words.size(), nullptr,
                                                         &yaml, &table, &complete);
    return take(status, complete, &yaml, &table);
}

static conversion deepspeed(const std::string &text, const char *type = nullptr) {
    const std::string path = written(text);
    z3d_string yaml = {}, table = {};
    bool complete = false;
    z3d_status status =
        z3d_config_from_deepspeed(path.c_str(), type, nullptr, &yaml, &table, &complete);
    unlink(path.c_str());
    return take(status, complete, &yaml, &table);
}

/* The rows under a title. */
static std::string part(const conversion &c, const std::string &title) {
    size_t begin = c.table.find(title + "\n");
    if (begin == std::string::npos) return "";
    return c.table.substr(begin, c.table.find("\n\n", begin) - begin + 1);
}

static const char REFUSED[] = "Not supported:", IDLE[] = "No effect here:", TAKEN[] = "Taken:",
                  DIFFERENT[] = "Not the same here:";

static bool is_in(const conversion &c, const char *title, const std::string &name) {
    const std::string rows = part(c, title);
    return has(rows, "  " + name + " ") || has(rows, "  " + name + "\n");
}

// ---- where arguments come from ----

TEST(Sources, OnlyWhatFollowsTheTrainingScriptCounts) {
    conversion c = command({"torchrun", "--nproc-per-node", "8", "pretrain_gpt.py", "--num-layers",
                            "6", "--lr", "1e-4", "--data-path", "0.3", "a", "0.7", "b"});
    EXPECT_TRUE(c.complete) << c.table;
    EXPECT_FALSE(has(c.table, "nproc")) << c.table;
    Config m(c.yaml);
    EXPECT_EQ(m->model_num_layers, 6);
    ASSERT_EQ(m->data_train.count, 2);
    EXPECT_TRUE(command({"--num-layers", "6", "--lr", "1"}).complete);
    EXPECT_TRUE(has(command({"a.py", "--lr", "1", "b.py", "--lr", "2"}).error,
                    "a.py and b.py are two programs"));
    EXPECT_TRUE(has(command({"echo", "--lr", "1"}).error, "'echo' is no argument"));
    EXPECT_TRUE(has(command({"a.py"}).error, "has no arguments"));
    EXPECT_TRUE(has(command({}).error, "has no arguments"));
}

TEST(Sources, AShellsScriptIsRefusedWithTheWayOut) {
    const char *const scripts[] = {
        "TP=4\npretrain_gpt.py --lr 1\n",
        "pretrain_gpt.py --lr $LR\n",
        "pretrain_gpt.py --lr \"${LR:-4}\"\n",
        "pretrain_gpt.py --num-layers $((8 / 2))\n",
        "if true\nthen\npretrain_gpt.py --lr 1\nfi\n",
        "case x in\nesac\npretrain_gpt.py --lr 1",
        "for i in 1 2\ndo\npretrain_gpt.py --lr 1\ndone",
        "run() { pretrain_gpt.py --lr 1; }",
        "cat <<EOF\n--hidden-dropout 0.3\nEOF\n",
        "pretrain_gpt.py --lr 1 | tee log",
        "pretrain_gpt.py --lr 1 > log",
        "ARGS=(\n--lr 1\n)\n",
        "torchrun pretrain_gpt.py --lr 1\nrun other --lr 2\n",
        "pretrain_gpt.py --lr '1",
    };
    for (const char *script : scripts) {
        conversion c = megatron(script);
        EXPECT_EQ(c.status, Z3D_ERR_DATA) << script << c.yaml;
        EXPECT_TRUE(has(c.error, "--from-megatron --")) << script << c.error;
        EXPECT_EQ(c.yaml, "");
    }
    EXPECT_TRUE(has(megatron("python convert.py --num-layers 2 --lr 5\n").yaml, "num_layers: 2"));
    EXPECT_EQ(megatron("python convert.py --num-layers 2 --lr 5\npretrain_gpt.py --lr 1").status,
              Z3D_ERR_DATA);
}

TEST(Sources, AListAndYaml) {
    conversion c =
        megatron("# mine\n--num-layers 4 # blocks\n--hidden_size=64\n--merge-file 'a b'\n"
                 "--lr \\\n 1e-4\n--bf16\n");
    EXPECT_TRUE(c.complete) << c.table;
    Config m(c.yaml);
    EXPECT_EQ(m->model_num_layers, 4);
    EXPECT_EQ(m->model_hidden_size, 64);
    EXPECT_TRUE(m->bf16_enabled);
    c = megatron("ENV_VARS:\n  A: 1\nMODEL_ARGS:\n  --num-layers: 12 # n\n  --lr: \"1e-4\"\n"
                 "  --bf16: true\n  --fp16: false\n  - 3\n  --data-path: [0.3, a, 0.7]\n  - b\n");
    EXPECT_TRUE(c.complete) << c.table;
    Config y(c.yaml);
    EXPECT_EQ(y->model_num_layers, 12);
    EXPECT_TRUE(y->bf16_enabled);
    EXPECT_FALSE(y->fp16_enabled);
    ASSERT_EQ(y->data_train.count, 2);
    EXPECT_EQ(y->data_train.weight[1], 0.7);
}

TEST(Sources, ArgumentsInTwoMappingsOfYamlAreRefusedByName) {
    conversion c = megatron("SMALL:\n  ARGS:\n    --num-layers: 12\n    X: 1\n    --lr: 1\n"
                            "LARGE:\n  # or\n  MORE:\n    --hidden-size: 64\n");
    EXPECT_EQ(c.status, Z3D_ERR_DATA) << c.yaml;
    EXPECT_TRUE(has(c.error, "ARGS and MORE both have --arguments")) << c.error;
    EXPECT_EQ(megatron("--num-layers: 12\n---\n--hidden-size: 64\n").status, Z3D_ERR_DATA);
    EXPECT_EQ(megatron("A:\n  --num-layers: 12\nB:\n  c: 1\n").status, Z3D_OK);
    EXPECT_TRUE(has(megatron("A:\n  --data-path: [a,\n    b]\n").error, "a list without its end"));
    EXPECT_TRUE(has(megatron("A:\n  --data-path: a\n    b\n").error, "'b' continues the value"));
    EXPECT_TRUE(has(megatron("A:\n  --data-path: |\n    a\n").error, "'|' is not read"));
}

static std::vector<std::string> paths(const conversion &c) {
    Config m(c.yaml);
    std::vector<std::string> out;
    for (int i = 0; i < m->data_train.count; i++)
        out.push_back(std::to_string((int)(10 * m->data_train.weight[i])) + m->data_train.path[i]);
    return out;
}

using Paths = std::vector<std::string>;

TEST(Sources, APathIsAsTheShellOrTheFileHasIt) {
    EXPECT_EQ(paths(command({"--data-path", "my data", "b"})), (Paths{"10my data", "10b"}));
    EXPECT_EQ(paths(command({"--data-path", "my data"})), (Paths{"10my data"}));
    EXPECT_EQ(paths(command({"--data-path", "2 files"})), (Paths{"102 files"}));
    EXPECT_EQ(paths(command({"--data-path", "0.5 a 0.7 b"})), (Paths{"5a", "7b"}));
    EXPECT_EQ(paths(megatron("--data-path 0.5 'my data' 0.7 b \\")), (Paths{"5my data", "7b"}));
    EXPECT_EQ(megatron("--data-path my\\ data").status, Z3D_ERR_DATA);
    EXPECT_EQ(paths(megatron("--data-path: \"my #data\" # x\n")), (Paths{"10my #data"}));
    EXPECT_EQ(paths(megatron("--data-path: [0.5, 'a, b', 0.7, c]\n")), (Paths{"5a, b", "7c"}));
    EXPECT_EQ(paths(megatron("--data-path: 0.5 a 0.7 b\n")), (Paths{"5a", "7b"}));
}

static const std::string begin = "0: ------------------------ arguments ------------------------\n",
                         end = "0: -------------------- end of arguments ---------------------\n";

static std::string line(const std::string &name, const std::string &value) {
    return "0:   " + name + " " + std::string(name.size() < 48 ? 48 - name.size() : 0, '.') + " " +
           value + "\n";
}

TEST(Sources, ALogIsReadWhole) {
    std::string files;
    for (int i = 0; i < 300; i++)
        files += std::string(i ? ", " : "") + "'1.0', '" + std::string(80, 'a') + "/file " +
                 std::to_string(i) + "'";
    Paths found = paths(megatron(begin + line("data_path", "[" + files + "]") + end));
    ASSERT_EQ(found.size(), 300u);
    EXPECT_EQ(found.back(), "10" + std::string(80, 'a') + "/file 299");
    // Bytes of 0, where a file was cut, end nothing.
    const std::string cut = begin + line("lr", "7") + end + std::string(9, '\0') + begin +
                            line("lr", "1") + line("save", "a, b") + end;
    EXPECT_EQ(Config(megatron(cut).yaml)->optimizer_params_lr, 1);
    EXPECT_STREQ(Config(megatron(cut).yaml)->checkpoint_dir, "a, b");
    // 0 is no sign that an argument is harmless.
    conversion c = megatron(begin + line("lr", "1") + line("residual_scale", "0.0") +
                            line("fp8_margin", "0") + end);
    EXPECT_TRUE(is_in(c, REFUSED, "--residual-scale")) << c.table;
    EXPECT_TRUE(is_in(c, IDLE, "--fp8-margin")) << c.table;
    c = megatron(begin + line("lr", "1") + line("train_iters", "500") +
                 line("lr_warmup_samples", "0") + line("lr_warmup_iters", "5") + end);
    EXPECT_TRUE(c.complete) << c.table;
    EXPECT_EQ(Config(c.yaml)->scheduler_params_warmup_num_steps, 5);
    c = megatron(begin + line("lr", "1") + line("train_samples", "4000") +
                 line("global_batch_size", "8") + line("lr_warmup_samples", "80") +
                 line("lr_warmup_iters", "0") + end);
    EXPECT_TRUE(c.complete) << c.table;
    EXPECT_EQ(Config(c.yaml)->scheduler_params_warmup_num_steps, 10);
}

TEST(Sources, TheLogOfARunHasTheFinalValues) {
    std::string arguments =
        line("num_layers", "2") + line("hidden_size", "64") + line("num_attention_heads", "4") +
        line("kv_channels", "16") + line("add_bias_linear", "True") + line("add_qkv_bias", "True") +
        line("normalization", "LayerNorm") + line("position_embedding_type", "learned_absolute") +
        line("rotary_base", "10000") + line("rotary_percent", "1.0") + line("bf16", "True") +
        line("fp16", "False") + line("lr", "0.0001") + line("train_samples", "None") +
        line("train_iters", "500") + line("lr_warmup_iters", "0") + line("lr_warmup_init", "0.0") +
        line("start_weight_decay", "0.01") + line("weight_decay", "0.01") +
        line("data_path", "['0.3', 'a', '0.7', 'b']") + line("dino_bottleneck_size", "256") +
        line("data_parallel_sharding_strategy", "optim_grads_params") +
        line("microbatch_group_size_per_virtual_pipeline_stage_x", "False") +
        line("inference_dynamic_batching_cuda_graph_sizing_distribution", "exponential") +
        line("num_experts", "None") + line("world_size", "8");
    conversion c = megatron("deepspeed: begins\n" + begin + line("lr", "7") + end + "restarted\n" +
                            begin + arguments + end + "iteration 1\n");
    EXPECT_TRUE(c.complete) << c.table << c.error;
    Config m(c.yaml);
    EXPECT_EQ(m->model_num_layers, 2);
    EXPECT_EQ(m->optimizer_params_lr, 1e-4); // of the last start
    EXPECT_EQ(m->zero_optimization_stage, 0);
    EXPECT_EQ(m->training_steps, 500);
    ASSERT_EQ(m->data_train.count, 2);
    EXPECT_STREQ(m->data_train.path[1], "b");
    c = megatron(begin + line("add_bias_linear", "False") + line("swiglu", "True") +
                 line("normalization", "RMSNorm") + line("position_embedding_type", "rope") +
                 line("hidden_dropout", "0.0") + line("new_attention", "5") + end);
    EXPECT_STREQ(Config(c.yaml)->model_type, "llama");
    EXPECT_TRUE(is_in(c, REFUSED, "--new-attention")) << c.table;
    EXPECT_TRUE(has(megatron(begin + line("lr", "1")).error, "is cut"));
    EXPECT_TRUE(has(megatron(begin + line("lr", "None") + end).error, "has no arguments"));
}

TEST(Sources, APlaceholderIsNoValueAndNoDefaultStandsForIt) {
    conversion c = command({"--tensor-model-parallel-size", "$N", "--sequence-parallel", "--seed",
                            "<YOUR SEED>", "--zero-stage", "{{stage}}", "--lr", "1e-4"});
    EXPECT_FALSE(c.complete);
    for (const char *name :
         {"--tensor-model-parallel-size", "--seed", "--zero-stage", "--sequence-parallel"})
        EXPECT_TRUE(is_in(c, REFUSED, name)) << name << c.table;
    Config m(c.yaml);
    EXPECT_FALSE(z3d_config_is_set(m.get, "training.seed")) << c.yaml;
    EXPECT_FALSE(z3d_config_is_set(m.get, "zero_optimization.stage")) << c.yaml;
}

// ---- dialects ----

TEST(Dialects, MegatronDeepSpeedAndOlderNames) {
    conversion c = megatron(
        "--deepspeed --zero-stage 3 --cpu-optimizer --remote-device cpu --batch-size 4 "
        "--model-parallel-size 2 --warmup 0.01 --train-iters 1000 --lr 1e-4 "
        "--checkpoint-activations --deepspeed-activation-checkpointing --layernorm-epsilon 1e-5 "
        "--distribute-checkpointed-activations --DDP-impl local --no-pipeline-parallel");
    EXPECT_TRUE(c.complete) << c.table;
    Config m(c.yaml);
    EXPECT_EQ(m->zero_optimization_stage, 3);
    EXPECT_EQ(m->zero_optimization_offload_optimizer_device, Z3D_OFFLOAD_DEVICE_CPU);
    EXPECT_EQ(m->zero_optimization_offload_param_device, Z3D_OFFLOAD_DEVICE_CPU);
    EXPECT_EQ(m->train_micro_batch_size_per_gpu, 4);
    EXPECT_EQ(m->parallel_tensor_model_parallel_size, 2);
    EXPECT_EQ(m->scheduler_params_warmup_num_steps, 10);
    EXPECT_EQ(m->activation_checkpointing_granularity, Z3D_GRANULARITY_FULL);
    EXPECT_TRUE(m->activation_checkpointing_partition_activations);
    EXPECT_TRUE(has(c.table, "an older name of --micro-batch-size")) << c.table;
    c = megatron("--activations-checkpoint-method uniform --lr 1");
    EXPECT_EQ(Config(c.yaml)->activation_checkpointing_granularity, Z3D_GRANULARITY_FULL);
    EXPECT_TRUE(
        is_in(megatron("--deepspeed_config ds.json --lr 1"), REFUSED, "--deepspeed-config"));
}

TEST(Dialects, SamplesAreDividedByTheBatch) {
    conversion c = megatron("--lr 1 --global-batch-size 1024 --train-samples 220_000_000 "
                            "--lr-warmup-samples 183_105 --lr-decay-samples 200000000");
    EXPECT_TRUE(c.complete) << c.table;
    Config m(c.yaml);
    EXPECT_EQ(m->training_steps, 214843);
    EXPECT_EQ(m->scheduler_params_warmup_num_steps, 178);
    EXPECT_EQ(m->scheduler_params_total_num_steps, 195312);
    c = megatron("--lr 1 --global-batch-size 1024 --train-samples 2000 "
                 "--rampup-batch-size 32 32 1000");
    EXPECT_TRUE(is_in(c, REFUSED, "--train-samples")) << c.table;
    EXPECT_TRUE(is_in(c, REFUSED, "--rampup-batch-size")) << c.table;
    EXPECT_TRUE(is_in(megatron("--lr 1 --train-samples 2000"), REFUSED, "--train-samples"));
    const std::string both = "--lr 1 --global-batch-size 8 --train-samples 800 --train-iters ";
    EXPECT_TRUE(megatron(both + "100").complete);
    c = megatron(both + "200");
    EXPECT_TRUE(is_in(c, REFUSED, "--train-samples")) << c.table;
    EXPECT_TRUE(has(c.table, "--train-iters 200 says otherwise")) << c.table;
    c = megatron("--lr 1 --lr-decay-style constant --lr-decay-samples 800");
    EXPECT_TRUE(is_in(c, IDLE, "--lr-decay-samples")) << c.table;
}

TEST(Dialects, NoDefaultStandsBesideAnUnknownArgumentOfItsMatter) {
    const struct {
        const char *argument, *path;
    } matters[] = {{"--attn-dropout 0", "model.attention_dropout"},
                   {"--lr-schedule constant", "scheduler.type"},
                   {"--clip-gradients 0.5", "gradient_clipping"},
                   {"--max_grad_norm 0.5", "gradient_clipping"},
                   {"--wd 0.1", "optimizer.params.weight_decay"}};
    for (const auto &m : matters) {
        conversion c = megatron(std::string("--lr 1 --min-lr 0.1 ") + m.argument);
        EXPECT_FALSE(z3d_config_is_set(Config(c.yaml).get, m.path)) << c.yaml;
        EXPECT_TRUE(is_in(c, DIFFERENT, m.path)) << c.table;
    }
    conversion c = deepspeed("{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1, "
                             "\"wd\": 0.1}}, \"grad_clip\": 0.5}");
    for (const char *path : {"optimizer.params.weight_decay", "gradient_clipping"}) {
        EXPECT_FALSE(z3d_config_is_set(Config(c.yaml).get, path)) << c.yaml;
        EXPECT_TRUE(is_in(c, DIFFERENT, path)) << c.table;
    }
}

TEST(Dialects, WhatIsLostHasARow) {
    conversion c = megatron("--lr 1 --data-path a --split 90,10,0 --eval-interval 5 --eval-iters 2 "
                            "--lr-warmup-iters 10 --train-iters 100");
    for (const char *name : {"--split", "--eval-interval", "--eval-iters", "--tokenizer-type",
                             "scheduler.params.warmup_num_steps"})
        EXPECT_TRUE(is_in(c, DIFFERENT, name)) << name << c.table;
    EXPECT_TRUE(is_in(megatron("--lr 1 --data-path <DATA> --split 9,1,0"), DIFFERENT, "--split"));
    EXPECT_TRUE(is_in(megatron("--lr 1 --valid-data-path <DATA> --eval-iters 9"), DIFFERENT,
                      "--eval-iters"));
    c = megatron("--lr 1 --vocab-size 257 --fp16 --hysteresis 0");
    EXPECT_FALSE(is_in(c, DIFFERENT, "--tokenizer-type")) << c.table;
    EXPECT_EQ(Config(c.yaml)->fp16_hysteresis, 1); // both mean at once
}

TEST(Dialects, BothFrameworksTrainOnGpus) {
    for (const conversion &c : {megatron("--lr 1"), deepspeed("{\"train_batch_size\": 8}")}) {
        EXPECT_EQ(Config(c.yaml)->training_device, Z3D_TRAINING_CUDA) << c.yaml;
        EXPECT_TRUE(has(c.table, "to train on CPUs write cpu")) << c.table;
    }
}

TEST(Dialects, AnUnknownArgumentMayChangeTheModel) {
    for (const char *argument :
         {"--attention-head-type multiquery", "--embed-layernorm", "--decoupled-lr 1e-3"}) {
        conversion c = megatron(std::string("--lr 1 ") + argument);
        EXPECT_FALSE(c.complete);
        EXPECT_TRUE(has(part(c, REFUSED), "it may change the model or the run")) << c.table;
        EXPECT_FALSE(has(c.table, "leave it out")) << c.table;
    }
}

TEST(Dialects, MethodsOfRecomputation) {
    const std::string full = "--lr 1 --recompute-granularity full --recompute-num-layers ";
    EXPECT_TRUE(megatron(full + "8 --recompute-method block --num-layers 8").complete);
    conversion c = megatron(full + "4 --recompute-method block --num-layers 8");
    EXPECT_TRUE(is_in(c, REFUSED, "--recompute-method")) << c.table;
    EXPECT_TRUE(is_in(c, REFUSED, "--recompute-num-layers")) << c.table;
    EXPECT_TRUE(is_in(megatron(full + "2"), REFUSED, "--recompute-num-layers"));
    c = megatron("--lr 1 --recompute-method uniform --recompute-num-layers 2");
    EXPECT_TRUE(c.complete) << c.table;
    EXPECT_TRUE(is_in(c, IDLE, "--recompute-method") && is_in(c, IDLE, "--recompute-num-layers"));
}

TEST(Dialects, ASwitchHasNoValue) {
    EXPECT_TRUE(is_in(megatron("--lr 1 --bf16 2"), REFUSED, "--bf16"));
    EXPECT_TRUE(is_in(megatron("--lr 1 --num-layers 2 3"), REFUSED, "--num-layers"));
}

TEST(Dialects, TheMissingSignOfALlamaIsNamed) {
    conversion c = megatron("--lr 1 --swiglu --normalization rmsnorm "
                            "--use-rotary-position-embeddings");
    EXPECT_TRUE(has(c.table, "which also needs --disable-bias-linear\n")) << c.table;
    EXPECT_TRUE(megatron("--lr 1 --swiglu --normalization rmsnorm --hidden-dropout 0 "
                         "--use-rotary-position-embeddings --disable-bias-linear")
                    .complete);
}

// ---- DeepSpeed ----

// Nothing follows from sizes that the file does not have.
TEST(DeepSpeed, OnlyWhatTheFileSaysIsCompared) {
    conversion c = deepspeed("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
                             "{\"warmup_num_steps\": 4000}}}");
    EXPECT_EQ(Config(c.yaml)->scheduler_params_warmup_num_steps, 4000) << c.table;
    c = deepspeed("{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
                  "{\"warmup_num_steps\": 4000}}}");
    EXPECT_EQ(Config(c.yaml)->scheduler_params_warmup_num_steps, 4000) << c.table;
    EXPECT_TRUE(c.complete) << c.table;
    c = deepspeed("{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
                  "{\"warmup_num_steps\": 4000, \"total_num_steps\": 300}}}");
    EXPECT_TRUE(is_in(c, REFUSED, "scheduler.params.warmup_num_steps")) << c.table;
}

TEST(DeepSpeed, ZeroPlusPlusAndMics) {
    conversion c =
        deepspeed("{\"zero_optimization\": {\"stage\": 3, \"zero_hpz_partition_size\": 8,"
                  " \"zero_quantized_weights\": false}}");
    EXPECT_TRUE(c.complete) << c.table;
    EXPECT_EQ(Config(c.yaml)->zero_optimization_zero_hpz_partition_size, 8);
    c = deepspeed("{\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 8,"
                  " \"mics_hierarchical_params_gather\": true}}");
    EXPECT_FALSE(c.complete) << c.table;
    EXPECT_TRUE(is_in(c, REFUSED, "zero_optimization.mics_hierarchical_params_gather")) << c.table;
    c = deepspeed("{\"zero_optimization\": {\"stage\": 3, \"zero_quantized_gradients\": true}}");
    EXPECT_TRUE(is_in(c, REFUSED, "zero_optimization.zero_quantized_gradients")) << c.table;
}

TEST(DeepSpeed, TypeOfCommunication) {
    const std::string key = "communication_data_type", fp32 = "{\"" + key + "\": \"fp32\", ",
                      bf16 = "{\"" + key + "\": \"bf16\", ", on = "\"bf16\": {\"enabled\": true}",
                      cpu = ", \"training\": {\"device\": \"cpu\"}",
                      two = ", \"gradient_accumulation_steps\": 2",
                      one = ", \"gradient_accumulation_steps\": 1";
    conversion c = deepspeed(fp32 + on + one + "}"); // adds in fp32: so do fp32 gradients
    EXPECT_TRUE(c.complete) << c.table;
    EXPECT_EQ(Config(c.yaml)->data_types_grad_accum_dtype, Z3D_ACCUM_FP32) << c.yaml;
    EXPECT_EQ(Config(c.yaml)->communication_data_type, Z3D_ACCUM_FP32);
    c = deepspeed(bf16 + on + one + "}");
    EXPECT_TRUE(is_in(c, IDLE, key)) << c.table;
    EXPECT_EQ(Config(c.yaml)->communication_data_type, Z3D_ACCUM_AUTO) << c.yaml;
    c = deepspeed(bf16 + on + two + "}"); // it is for GPUs
    EXPECT_TRUE(is_in(c, DIFFERENT, key)) << c.table;
    EXPECT_EQ(Config(c.yaml)->communication_data_type, Z3D_ACCUM_AUTO) << c.yaml;
    c = deepspeed(bf16 + on + two + cpu + "}");
    EXPECT_TRUE(c.complete) << c.table;
    EXPECT_EQ(Config(c.yaml)->communication_data_type, Z3D_ACCUM_BF16) << c.yaml;
    c = deepspeed(fp32 + on + two + ", \"data_types\": {\"grad_accum_dtype\": \"bf16\"}}");
    EXPECT_TRUE(is_in(c, DIFFERENT, key)) << c.table;
    EXPECT_EQ(Config(c.yaml)->communication_data_type, Z3D_ACCUM_AUTO) << c.yaml;
    c = deepspeed("{\"" + key + "\": \"int8\"}");
    EXPECT_TRUE(is_in(c, REFUSED, key)) << c.table;
}

TEST(DeepSpeed, ALoudLoggerIsALogger) {
    conversion c = deepspeed("{\"comms_logger\": {\"enabled\": true, \"verbose\": true, "
                             "\"prof_all\": true, \"debug\": false}}");
    EXPECT_TRUE(c.complete) << c.table;
    EXPECT_TRUE(is_in(c, IDLE, "comms_logger.verbose")) << c.table;
    EXPECT_TRUE(Config(c.yaml)->comms_logger_enabled) << c.yaml;
}

TEST(DeepSpeed, NamesRangesAndNotes) {
    conversion c = deepspeed(
        "{\"_comment\": \"x\", \"//\": [1], \"#a\": {\"b\": 1}, \"bf16\": {\"enabled\": True},\n"
        " \"zero_optimization\": {\"stage\": 3, \"param_persistence_threshold\": 1,\n"
        " \"model_persistence_threshold\": 1, \"max_live_parameters\": 1, \"max_reuse_distance\": "
        "1,"
        " \"gather_16bit_weights_on_model_save\": False, \"module_granularity_threshold\": 0,\n"
        " \"use_all_reduce_for_fetch_params\": false, \"allgather_sequential\": false,\n"
        " \"prefetch_bucket_size\": 7, \"sub_group_size\": 1e14,\n"
        " \"offload_optimizer\": {\"device\": \"cpu\"}, \"offload_param\": {\"device\": "
        "\"cpu\"}},\n"
        " \"wandb\": {\"enabled\": true}, \"flops_profiler\": {\"enabled\": true},\n"
        " \"compile\": {\"enabled\": true}, \"local_rank\": 0,\n"
        " \"tensor_parallel\": {\"autotp_size\": 2}}");
    EXPECT_TRUE(c.complete) << c.table << c.error;
    Config m(c.yaml);
    EXPECT_TRUE(m->bf16_enabled);
    EXPECT_EQ(m->zero_optimization_stage3_prefetch_bucket_size, 7);
    EXPECT_EQ(m->zero_optimization_stage3_param_persistence_threshold, 1);
    EXPECT_EQ(m->zero_optimization_stage3_max_live_parameters, 1);
    EXPECT_EQ(m->zero_optimization_stage3_max_reuse_distance, 1);
    EXPECT_EQ(m->zero_optimization_sub_group_size, 100000000000000);
    EXPECT_EQ(m->parallel_tensor_model_parallel_size, 2);
    for (const char *name : {"_comment", "//", "#a", "wandb", "flops_profiler", "compile"})
        EXPECT_TRUE(is_in(c, IDLE, name)) << name << c.table;
    EXPECT_EQ(
        all_errors("zero_optimization: {sub_group_size: 0, offload_optimizer: {device: cpu}}", {}),
        "accepted");
}

TEST(Megatron, NamesOfOneKindHaveOneAnswer) {
    conversion c = megatron("--lr 1e-4 --log-anything 3 --new-fusion --moe-router-topk 2");
    for (const char *name : {"--log-anything", "--new-fusion"})
        EXPECT_TRUE(is_in(c, IDLE, name)) << c.table;
    EXPECT_TRUE(is_in(c, REFUSED, "--moe-router-topk")) << c.table; // idle only in a log
}

TEST(DeepSpeed, AKeyHasOneFate) {
    conversion c = deepspeed("{\"zero_optimization\": {\"stage\": 2, \"sub_group_size\": 5,"
                             "\"offload_param\": {\"device\": \"cpu\"}}}");
    EXPECT_TRUE(c.complete) << c.table; // it has no effect there either
    EXPECT_TRUE(is_in(c, IDLE, "zero_optimization.offload_param.device")) << c.table;
    EXPECT_FALSE(is_in(c, TAKEN, "zero_optimization.offload_param.device")) << c.table;
    EXPECT_FALSE(is_in(c, TAKEN, "zero_optimization.sub_group_size")) << c.table;
    c = deepspeed("{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": "
                  "\"cpu\"}}}");
    EXPECT_TRUE(is_in(c, REFUSED, "zero_optimization.offload_param.device")) << c.table;
    EXPECT_FALSE(is_in(c, TAKEN, "zero_optimization.offload_param.device")) << c.table;
}

TEST(DeepSpeed, WhatTheTrainerFillsIn) {
    const std::string autos =
        "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\"}}, "
        "\"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": \"auto\"}}";
    conversion c = deepspeed(autos);
    Config trainer(c.yaml);
    EXPECT_EQ(trainer->scheduler_type, Z3D_LR_WARMUP_DECAY);
    EXPECT_EQ(trainer->scheduler_params_warmup_num_steps, 0);
    EXPECT_EQ(trainer->optimizer_params_lr, 5e-5);
    EXPECT_TRUE(is_in(c, DIFFERENT, "bf16, fp16")) << c.table;
    EXPECT_TRUE(has(c.yaml, "(auto): this is fp32")) << c.yaml;
    EXPECT_TRUE(is_in(c, DIFFERENT, "activation_checkpointing.granularity")) << c.table;
    EXPECT_TRUE(has(deepspeed("{\"train_batch_size\": \"auto\"}").table,
                    "auto, zero3d's default, is left out"));
    c = deepspeed(autos, "bf16");
    EXPECT_FALSE(has(c.yaml, "fp32")) << c.yaml;
    EXPECT_TRUE(Config(c.yaml)->bf16_enabled);
    EXPECT_FALSE(is_in(c, DIFFERENT, "bf16, fp16")) << c.table;
    EXPECT_TRUE(c.complete) << c.table;
    EXPECT_TRUE(Config(deepspeed(autos, "fp16").yaml)->fp16_enabled);
    EXPECT_FALSE(deepspeed("{\"train_batch_size\": 8}", "fp16").complete);
    auto peak = [](const char *type) {
        return Config(deepspeed(std::string("{\"optimizer\": {\"type\": \"AdamW\", \"params\": "
                                            "{\"lr\": 2e-3}}, \"scheduler\": {\"type\": \"") +
                                type + "\"}}")
                          .yaml)
            ->optimizer_params_lr;
    };
    EXPECT_EQ(peak("WarmupLR"), 2e-3);
    EXPECT_EQ(peak("WarmupDecayLR"), 1e-3);
}

TEST(DeepSpeed, SuggestionsStayWithinTheSection) {
    conversion c = deepspeed("{\"fp16\": {\"enabled\": true, \"opt_level\": \"O2\"}}");
    EXPECT_TRUE(has(c.table, "unknown key fp16.opt_level")) << c.table;
    EXPECT_FALSE(has(c.table, "did you mean")) << c.table;
}

TEST(Formats, OtherProgramsFilesAreRefusedByName) {
    const struct {
        const char *text, *what;
    } files[] = {
        {"compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  zero_stage: 3\n", "Accelerate"},
        {"{\"distributed_type\": \"DEEPSPEED\"}", "Accelerate"},
        {"model_name_or_path: x\ndeepspeed: ds.json\n", "its key deepspeed names"},
        {"{\"pipe-parallel-size\": 1, \"num-layers\": 2}", "GPT-NeoX"},
        {"trainer:\n  devices: 8\nexp_manager:\n  x: 1\n", "NeMo"},
        {"{\n  \"architectures\": [\"LlamaForCausalLM\"]\n}", "description of a model"},
    };
    for (const auto &file : files) {
        conversion a = deepspeed(file.text), b = megatron(file.text);
        for (const conversion &c : {a, b}) {
            EXPECT_EQ(c.status, Z3D_ERR_DATA) << file.text;
            EXPECT_TRUE(has(c.error, file.what)) << c.error;
            EXPECT_EQ(c.yaml, "");
        }
    }
    EXPECT_EQ(deepspeed("{\"a\": {\"deepspeed\": 1, \"trainer\": 2}}").status, Z3D_OK);
}

// ---- overrides ----

TEST(Overrides, AListsTextIsTakenAsItIs) {
    Config c("");
    EXPECT_EQ(c.set("data.train=corpus #2.bin"), Z3D_OK);
    ASSERT_EQ(c->data_train.count, 1);
    EXPECT_STREQ(c->data_train.path[0], "corpus #2.bin");
    EXPECT_EQ(c.set("generate.stop=a: b, c"), Z3D_OK);
    EXPECT_STREQ(c->generate_stop.path[0], "a: b, c");
    EXPECT_EQ(c.set("data.train=[\"a #1\", 'b #2', c#3]"), Z3D_OK);
    ASSERT_EQ(c->data_train.count, 3);
    EXPECT_STREQ(c->data_train.path[1], "b #2");
    EXPECT_EQ(c.set("data.validation="), Z3D_OK);
    EXPECT_EQ(c->data_validation.count, 0);
    for (const char *wrong : {"data.train=[a, b #2]", "data.train='a' # b", "training.steps=5 #6"})
        EXPECT_TRUE(has(all_errors("", {wrong}), "would be a comment")) << wrong;
}

// ---- the grid ----

/* What a run could not start with. */
static void check_yaml(const conversion &c, const std::string &what) {
    ASSERT_EQ(c.status, Z3D_OK) << what << ": " << c.error;
    Config config(c.yaml);
    if (!z3d_config_is_set(config.get, "training.steps")) {
        EXPECT_EQ(config.set("training.steps=10000000"), Z3D_OK);
    }
    EXPECT_EQ(z3d_config_check_training(config.get, nullptr), Z3D_OK)
        << what << ": " << z3d_error_message() << c.yaml;
}

static int fates(const conversion &c, const std::string &name) {
    return is_in(c, TAKEN, name) + is_in(c, IDLE, name) + is_in(c, REFUSED, name);
}

TEST(Grid, EveryArgumentOfMegatron) {
    const std::string without = megatron("--lr 1e-4").table;
    std::string names, name;
    for (int i = 0; i < megatron_argument_count; i++)
        if (megatron_arguments[i].kind != MEGATRON_PRINTED)
            names += std::string(megatron_arguments[i].names) + " ";
    std::replace(names.begin(), names.end(), '*', 'x');
    for (std::istringstream words(names); words >> name;) {
        for (const char *value : {"", " 2", " 0.5", " auto", " full", " 1 2 3"}) {
            const std::string text = "--lr 1e-4 --" + name + value;
            conversion c = megatron(text);
            check_yaml(c, text);
            EXPECT_NE(c.table, without) << text; // it has a row
        }
    }
}

static std::string json_of(const std::string &path, const std::string &value) {
    size_t dot = path.find('.');
    if (dot == std::string::npos) return "{\"" + path + "\": " + value + "}";
    return "{\"" + path.substr(0, dot) + "\": " + json_of(path.substr(dot + 1), value) + "}";
}

TEST(Grid, EveryKeyOfDeepSpeed) {
    std::vector<std::string> paths;
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) paths.push_back(config_table[i].path);
    for (const config_note &note : config_notes) paths.push_back(note.path);
    for (int i = 0; i < CONFIG_PEER_COUNT; i++) paths.push_back(config_peer_key[i].path);
    for (const std::string &path : paths) {
        int key = config_find(path.c_str());
        std::string standard = key >= 0 ? config_table[key].standard : "";
        if (standard.empty()) standard = "null";
        if (standard.find_first_of("[{") != 0 && standard != "true" && standard != "false" &&
            standard != "null" && !isdigit((unsigned char)standard[0]))
            standard = "\"" + standard + "\"";
        for (const std::string &value : {standard, std::string("\"auto\""), std::string("2"),
                                         std::string("true"), std::string("False")}) {
            conversion c = deepspeed(json_of(path, value));
            check_yaml(c, path + " " + value);
            EXPECT_LE(fates(c, path), 1) << path << " " << value << c.table;
        }
    }
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
