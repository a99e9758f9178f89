/* Files of other frameworks: where Megatron-LM's arguments come from, their dialects, and every
 * known key in a grid. */
#include "tests/base/config_harness.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include <unistd.h>

extern "C" {
#include "src/base/config/megatron.h"
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
    EXPECT_TRUE(has(command({"echo", "--lr", "1"}).error, "'echo' begins no argument"));
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

TEST(Sources, TheLogOfARunHasTheFinalValues) {
    auto line = [](const std::string &name, const std::string &value) {
        return "0:   " + name + " " + std::string(name.size() < 48 ? 48 - name.size() : 0, '.') +
               " " + value + "\n";
    };
    const std::string begin = "0: ------------------------ arguments ------------------------\n",
                      end = "0: -------------------- end of arguments ---------------------\n";
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
    EXPECT_TRUE(has(c.table, "it is --micro-batch-size")) << c.table;
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
    EXPECT_TRUE(is_in(megatron(full + "4 --recompute-method block --num-layers 8"), REFUSED,
                      "--recompute-method"));
    EXPECT_TRUE(is_in(megatron(full + "2"), REFUSED, "--recompute-num-layers"));
    conversion c = megatron("--lr 1 --recompute-method uniform --recompute-num-layers 2");
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
    EXPECT_EQ(m->zero_optimization_sub_group_size, 100000000000000);
    EXPECT_EQ(m->parallel_tensor_model_parallel_size, 2);
    for (const char *name : {"_comment", "//", "#a", "wandb", "flops_profiler", "compile"})
        EXPECT_TRUE(is_in(c, IDLE, name)) << name << c.table;
    EXPECT_EQ(
        all_errors("zero_optimization: {sub_group_size: 0, offload_optimizer: {device: cpu}}", {}),
        "accepted");
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
    c = deepspeed(autos, "bf16");
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
#define X(name, kind, text) name,
    const char *const names[] = {MEGATRON_ARGUMENTS(X)};
#undef X
    const std::string without = megatron("--lr 1e-4").table;
    for (const char *name : names) {
        for (const char *value : {"", " 2", " 0.5", " auto", " full", " 1 2 3"}) {
            const std::string text = std::string("--lr 1e-4 --") + name + value;
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
    for (int i = 0; i < config_accepted_count; i++) paths.push_back(config_accepted[i].path);
    for (int i = 0; i < CONFIG_LATER_COUNT; i++) paths.push_back(config_later[i].path);
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
