/* All errors at once, and the settings of other frameworks: pasted, and converted. */
#include "src/base/config/convert/foreign.h"
#include "tests/base/config_harness.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include <unistd.h>

static std::string data_file(const char *name) {
    return std::string(ZERO3D_TEST_DATA) + "/configs/" + name;
}

static std::string text_of(const char *name) {
    std::ifstream file(data_file(name));
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

static long lines(const std::string &text) {
    return 1 + std::count(text.begin(), text.end(), '\n');
}

TEST(AllErrors, OneStaysOneLine) {
    EXPECT_EQ(
        all_errors("train_batch_size: 8 8\n", {}),
        "run.yaml:1:19: train_batch_size: '8 8' is not an integer; expected an integer from 1 "
        "to 1000000000 or auto");
    EXPECT_EQ(all_errors("training: {steps: 5}\n", {}), "accepted");
}

// A value that is refused is not the default: nothing is concluded from it.
TEST(AllErrors, NothingFollowsFromAWrongValue) {
    EXPECT_EQ(lines(all_errors("data: {validation: {a: b}}\ntraining: {eval_interval: 7}\n", {})),
              1);
    EXPECT_EQ(lines(all_errors("fp16: {enabled: maybe, hysteresis: 9}\n", {})), 1);
    EXPECT_EQ(lines(all_errors("model: {num_layers: 3}\nmodel: 7\n", {})), 1);
}

// The reader finds its way out of any wrong value.
TEST(AllErrors, AfterWrongShapes) {
    std::string message =
        all_errors("model: {num_layers: [1, {a: [2]}], hidden_size: {b: c}, x: {y: [z, {}]}}\n"
                   "optimizer: {params: {betas: [0.9, [1, 2], {q: r}], lr: -1}}\n"
                   "[a, b]: c\n"
                   "data: {train: [a, {weight: 2}, {path: b, path: c}], seed: -1}\n"
                   "run: &anchor {dir: a}\n"
                   "train_batch_size: &n 8\n"
                   "gradient_clipping: -1\n",
                   {});
    EXPECT_EQ(lines(message), 11) << message;
    EXPECT_TRUE(has(message, "run.yaml:7:20: gradient_clipping: '-1'")) << message;
    EXPECT_TRUE(has(message, "run.yaml:4:59: data.seed: '-1'")) << message;
}

TEST(AllErrors, ASyntaxErrorEndsTheReadingAndNoCheckGuessesTheRest) {
    std::string message = all_errors("train_batch_size: x\nmodel:\n  hidden_size: 100\n\tb: 2\n",
                                     {"training.steps=0"});
    EXPECT_EQ(lines(message), 3) << message;
    EXPECT_TRUE(has(message, "run.yaml:4:1: a tab")) << message;
    EXPECT_FALSE(has(message, "does not divide")) << message;
}

TEST(AllErrors, CheckAndResolveTogether) {
    std::string message = all_errors("train_batch_size: 7\nfp16: {enabled: true}\n"
                                     "bf16: {enabled: true}\n",
                                     {"parallel.world_size=auto"}, 2);
    EXPECT_EQ(lines(message), 2) << message;
    EXPECT_TRUE(has(message, "train_batch_size: 7 is not a multiple of 2 samples (2 data ranks)"));
}

TEST(AllErrors, SoManyThatOnlyTheFirstAreShown) {
    std::string text;
    for (int i = 0; i < 300; i++) text += "key" + std::to_string(i) + ": 1\n";
    std::string message = all_errors(text, {});
    EXPECT_EQ(lines(message), 51) << message;
    EXPECT_TRUE(has(message, "\n... and 250 more errors")) << message;
    EXPECT_LT(message.size(), 8192u);
    std::string large;
    for (int i = 0; i < 100000; i++) large += "k" + std::to_string(i) + ": 1\n";
    EXPECT_TRUE(has(all_errors(large, {}), "more errors"));
}

// data.validation= on the command line must not oblige anybody to edit the file.
TEST(Idle, WhatOnlyAnOverrideLeftWithoutEffectIsTold) {
    const std::string file = "data: {validation: v.bin}\ntraining: {eval_interval: 7}\n";
    testing::internal::CaptureStderr();
    Config c(file);
    EXPECT_EQ(c.set("data.validation="), Z3D_OK);
    EXPECT_EQ(z3d_config_check(c.get, NULL), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(z3d_config_check(c.get, NULL), Z3D_OK);
    std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(lines(said), 2) << said; // once
    EXPECT_TRUE(has(said, "run.yaml:2:12: training.eval_interval has no effect without "
                          "data.validation"))
        << said;
    EXPECT_EQ(c->training_eval_interval, 100);
    Config again(c.written());
    EXPECT_EQ(z3d_config_check(again.get, NULL), Z3D_OK) << z3d_error_message();
}

TEST(Idle, InTheSamePlaceItIsRefused) {
    EXPECT_TRUE(has(all_errors("training: {eval_interval: 7}\n", {}), "has no effect without"));
    EXPECT_TRUE(has(all_errors("", {"training.eval_interval=7"}), "has no effect without"));
    EXPECT_TRUE(has(
        all_errors("data: {validation: v.bin}\n", {"training.eval_interval=7", "data.validation="}),
        "has no effect without"));
    EXPECT_EQ(all_errors("scheduler: {type: WarmupLR, params: {warmup_num_steps: 5}}\n",
                         {"scheduler.type=constant"}),
              "accepted");
    EXPECT_EQ(all_errors("activation_checkpointing: {cpu_checkpointing: true}\n",
                         {"activation_checkpointing.granularity=none"}),
              "accepted");
}

// 1 - beta^t is 0 in fp32, and 0 / 0 is a NaN from the first step on.
TEST(Numbers, WhatFp32RoundsTo1Or0IsRefused) {
    for (const char *beta : {"0.99999999", "0.9999999999999999"}) {
        std::string message =
            all_errors(std::string("optimizer: {params: {betas: [0.9, ") + beta + "]}}", {});
        EXPECT_TRUE(has(message, "optimizer.params.betas:") && has(message, "in fp32 it is 1"))
            << message;
    }
    EXPECT_EQ(all_errors("optimizer: {params: {betas: [0.99999994, 0.99999994]}}", {}), "accepted");
    EXPECT_TRUE(has(all_errors("optimizer: {params: {eps: 1e-50}}", {}), "in fp32 it is 0"));
}

TEST(Deepspeed, NullIsTheDefaultAndIntegralFloatsAreIntegers) {
    Config c("{\"zero_optimization\": {\"reduce_bucket_size\": 200000000.0, \"stage\": null},\n"
             " \"communication_data_type\": null, \"gradient_clipping\": null, \"fp16\": null,\n"
             " \"activation_checkpointing\": {\"number_checkpoints\": null}}");
    EXPECT_EQ(c->zero_optimization_reduce_bucket_size, 200000000);
    EXPECT_EQ(c->zero_optimization_stage, 2);
    EXPECT_EQ(c->activation_checkpointing_number_checkpoints, Z3D_AUTO);
    EXPECT_FALSE(z3d_config_is_set(c.get, "gradient_clipping"));
    EXPECT_EQ(c.set("zero_optimization.stage=3"), Z3D_OK);
    EXPECT_EQ(c.set("zero_optimization.stage=null"), Z3D_OK);
    EXPECT_EQ(c->zero_optimization_stage, 2);
    EXPECT_EQ(z3d_config_check(c.get, NULL), Z3D_OK) << z3d_error_message();
}

TEST(Deepspeed, AdamIsAdamwUnlessItSaysOtherwise) {
    const std::string start = "optimizer: {type: Adam, params: {lr: 1e-3";
    EXPECT_EQ(all_errors(start + "}}", {}), "accepted");
    EXPECT_EQ(all_errors(start + ", adam_w_mode: true, torch_adam: true}}", {}), "accepted");
    EXPECT_EQ(all_errors(start + ", adam_w_mode: false}}", {}), "accepted");
    auto type = [&](const std::string &rest) {
        Config c(start + rest + "}}");
        EXPECT_EQ(z3d_config_check(c.get, NULL), Z3D_OK) << z3d_error_message();
        return c->optimizer_type;
    };
    EXPECT_EQ(type(""), Z3D_OPTIMIZER_adamw);
    EXPECT_EQ(type(", adam_w_mode: true"), Z3D_OPTIMIZER_adamw);
    EXPECT_EQ(type(", adam_w_mode: false"), Z3D_OPTIMIZER_adam);
    EXPECT_TRUE(has(all_errors("optimizer: {params: {adam_w_mode: false}}", {}),
                    "optimizer.params.adam_w_mode: has no effect with optimizer.type AdamW"));
}

TEST(Deepspeed, NamesOfOptimizers) {
    const std::pair<const char *, z3d_optimizer> names[] = {
        {"lion", Z3D_OPTIMIZER_lion},
        {"lion_32bit", Z3D_OPTIMIZER_lion},
        {"adamw_torch", Z3D_OPTIMIZER_adamw},
        {"adamw_torch_fused", Z3D_OPTIMIZER_adamw},
        {"paged_adamw_32bit", Z3D_OPTIMIZER_adamw},
        {"sgd", Z3D_OPTIMIZER_sgd},
        {"adagrad", Z3D_OPTIMIZER_adagrad}};
    for (auto &[name, optimizer] : names)
        EXPECT_EQ(Config("optimizer: {type: " + std::string(name) + "}")->optimizer_type, optimizer)
            << name;
}

TEST(Deepspeed, ThePeakSaidTwiceMustAgree) {
    auto with = [](const std::string &lr, const std::string &peak) {
        return all_errors("optimizer: {params: {lr: " + lr +
                              "}}\nscheduler: {type: WarmupLR, "
                              "params: {warmup_min_lr: 0.0, warmup_max_lr: " +
                              peak + ", warmup_type: linear, warmup_num_steps: 5}}\n",
                          {});
    };
    for (const char *peak : {"3e-5", "0.00003", "auto", "null"})
        EXPECT_EQ(with("3e-5", peak), "accepted") << peak;
    EXPECT_TRUE(
        has(with("3e-5", "1e-3"),
            "scheduler.params.warmup_max_lr: it sets optimizer.params.lr to 0.001, but that key "
            "is 3e-05; leave one of them out"))
        << with("3e-5", "1e-3");
    Config over("optimizer: {params: {lr: 3e-5}}\n"
                "scheduler: {type: WarmupLR, params: {warmup_max_lr: 3e-5}}\n");
    EXPECT_EQ(over.set("optimizer.params.lr=1e-3"), Z3D_OK);
    EXPECT_EQ(z3d_config_check(over.get, NULL), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(over->optimizer_params_lr, 1e-3);
    Config alone("scheduler: {type: WarmupLR, params: {warmup_max_lr: 3e-5}}\n");
    EXPECT_EQ(z3d_config_check(alone.get, NULL), Z3D_OK);
    EXPECT_EQ(alone->optimizer_params_lr, 3e-5);
    Config cosine("optimizer: {params: {lr: 1e-3}}\n"
                  "scheduler: {type: WarmupCosineLR, params: {cos_min_ratio: 0.1}}\n");
    EXPECT_EQ(z3d_config_check(cosine.get, NULL), Z3D_OK);
    EXPECT_DOUBLE_EQ(cosine->scheduler_params_min_lr, 1e-4);
}

TEST(Deepspeed, BlocksThatAreOff) {
    for (const char *block : {"amp", "elasticity", "curriculum_learning", "data_efficiency",
                              "eigenvalue", "progressive_layer_drop", "hybrid_engine", "nebula"}) {
        std::string off = std::string(block) + ": {enabled: false, x: [1, {y: z}]}\n";
        EXPECT_EQ(all_errors(off, {}), "accepted") << block;
        std::string on = all_errors(std::string(block) + ": {enabled: true, x: 1}\n", {});
        EXPECT_TRUE(has(on, std::string("run.yaml:1:1: ") + block + ":") && lines(on) == 1) << on;
    }
    EXPECT_EQ(all_errors("", {"zero_optimization.offload_param.device=none",
                              "flops_profiler.enabled=false", "aio.block_size=3"}),
              "accepted");
    // What only looks on changes nothing.
    for (const char *block : {"flops_profiler", "wandb", "csv_monitor", "comet", "autotuning",
                              "compile", "monitor_config"})
        EXPECT_EQ(all_errors(std::string(block) + ": {enabled: true, x: [1, {y: z}]}\n", {}),
                  "accepted");
    Config logged("comms_logger: {enabled: true, verbose: false, prof_all: false, debug: false, "
                  "prof_ops: [all_reduce, all_gather_into_tensor, isend]}\n");
    EXPECT_EQ(z3d_config_check(logged.get, NULL), Z3D_OK);
    for (const char *kind : {"all_reduce", "all_gather", "send"})
        EXPECT_TRUE(z3d_config_logs_collective(logged.get, kind)) << kind;
    EXPECT_FALSE(z3d_config_logs_collective(logged.get, "reduce_scatter"));
    Config split("tensor_parallel: {autotp_size: 4}\n");
    EXPECT_EQ(z3d_config_check(split.get, NULL), Z3D_OK);
    EXPECT_EQ(split->parallel_tensor_model_parallel_size, 4);
    EXPECT_EQ(all_errors("tensor_parallel: null\n", {}), "accepted");
    EXPECT_EQ(all_errors("fp16: {enabled: false, initial_scale_power: 32}\n", {}), "accepted");
    EXPECT_EQ(all_errors("fp16: {enabled: auto, initial_scale_power: 32}\n", {}), "accepted");
}

/* What is told of a text and its overrides. */
static std::string notes(const std::string &text, std::initializer_list<const char *> set = {}) {
    testing::internal::CaptureStderr();
    z3d_log_configure(Z3D_LOG_INFO, 0);
    Config c(text);
    for (const char *assignment : set) EXPECT_EQ(c.set(assignment), Z3D_OK);
    (void)z3d_config_check(c.get, NULL);
    z3d_log_configure(Z3D_LOG_WARN, 0);
    return testing::internal::GetCapturedStderr();
}

// On 100 columns.
static long rows(const std::string &text) {
    long count = 0;
    for (size_t at = 0, end; at < text.size(); at = end + 1) {
        end = text.find('\n', at);
        count += 1 + static_cast<long>((end - at - 1) / 100);
    }
    return count;
}

TEST(Notes, KeysWithOneReasonStandTogetherAndTheTypeIsLast) {
    const std::string said = notes(text_of("hf_zero3.json"));
    EXPECT_TRUE(has(said,
                    "zero3d: note: run.yaml: auto, so the default: optimizer.params.{lr 6e-4, "
                    "betas [0.9, 0.95], eps 1e-8, weight_decay 0.1}, "
                    "scheduler.params.warmup_num_steps 0, "))
        << said;
    EXPECT_TRUE(has(said, "zero_optimization.offload_optimizer.pin_memory, "
                          "zero_optimization.offload_param.pin_memory have no effect here: "))
        << said;
    const std::string last = said.substr(said.rfind('\n', said.size() - 2) + 1);
    EXPECT_EQ(last, "zero3d: note: bf16.enabled and fp16.enabled are auto, so this is fp32; write "
                    "bf16.enabled=true or fp16.enabled=true if your script chooses one\n");
    EXPECT_FALSE(has(notes(text_of("hf_zero3.json"), {"bf16.enabled=true"}), "fp32"));
    EXPECT_LE(rows(said), 24) << said;
}

// A file with every key that has no effect.
TEST(Notes, FitOnAScreen) {
    std::string text;
#define X(path, why) text += std::string(path) + "\n";
    Z3D_CONFIG_ACCEPTED(X)
#undef X
    std::string nested = "zero_optimization:\n", rest;
    for (size_t at = 0, end; at < text.size(); at = end + 1) {
        end = text.find('\n', at);
        const std::string path = text.substr(at, end - at);
        const size_t dot = path.find('.');
        if (dot == std::string::npos)
            rest += path + ": 1\n";
        else if (path.compare(0, dot, "zero_optimization") == 0 &&
                 path.find('.', dot + 1) == std::string::npos)
            nested += "  " + path.substr(dot + 1) + ": 1\n";
    }
    const std::string said = notes(nested + rest);
    EXPECT_LE(rows(said), 40) << said;
    EXPECT_TRUE(has(said, "zero3d decides this itself; `zero3d config --from-deepspeed run.yaml` "
                          "says why"))
        << said;
    EXPECT_TRUE(has(said, "steps_per_print has no effect here: use training.log_interval")) << said;
}

TEST(Notes, OfAFileOfNonsenseAreFew) {
    std::string text = "{";
    for (int i = 0; i < 50000; i++) text += "\"_" + std::to_string(i) + "\": 1,\n";
    const std::string said = notes(text + "\"train_batch_size\": 8}");
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
    EXPECT_TRUE(has(said, "note: 49500 more keys have no effect\n")) << said;
}

// The examples of Hugging Face's documentation.
TEST(Deepspeed, HuggingFaceExamples) {
    for (const char *name : {"hf_zero2.json", "hf_zero3.json"})
        EXPECT_EQ(all_errors(text_of(name), {}, 2), "accepted") << name;
    Config c(text_of("hf_zero3.json"));
    EXPECT_EQ(c->zero_optimization_offload_param_device, Z3D_OFFLOAD_DEVICE_CPU);
    EXPECT_EQ(c->zero_optimization_offload_optimizer_device, Z3D_OFFLOAD_DEVICE_CPU);
    EXPECT_EQ(c->scheduler_type, Z3D_LR_WARMUP);
    EXPECT_EQ(c->optimizer_params_lr, 6e-4);
}

struct conversion {
    bool complete = false;
    std::string yaml, table;
};

using converter = z3d_status (*)(const char *, const z3d_config_rules *, z3d_string *, z3d_string *,
                                 bool *);

static z3d_status from_deepspeed(const char *path, const z3d_config_rules *rules, z3d_string *yaml,
                                 z3d_string *table, bool *complete) {
    return z3d_config_from_deepspeed(path, NULL, rules, yaml, table, complete);
}

static conversion convert(converter from, const std::string &path) {
    conversion out;
    z3d_string yaml = {}, table = {};
    EXPECT_EQ(from(path.c_str(), NULL, &yaml, &table, &out.complete), Z3D_OK)
        << z3d_error_message();
    out.yaml = yaml.text ? yaml.text : "";
    out.table = table.text ? table.text : "";
    z3d_string_free(&yaml);
    z3d_string_free(&table);
    /* What comes out is valid. */
    EXPECT_EQ(all_errors(out.yaml, {}), "accepted") << out.yaml;
    return out;
}

static conversion convert_text(converter from, const std::string &text) {
    std::string path = testing::TempDir() + "settings." + std::to_string(getpid());
    std::ofstream(path) << text;
    conversion out = convert(from, path);
    unlink(path.c_str());
    return out;
}

TEST(Deepspeed, TensorboardIsOurs) {
    const std::string places = "output_path: logs/, job_name: x";
    for (const char *on : {"true", "false"}) {
        Config c("tensorboard: {enabled: " + std::string(on) + ", " + places + "}\n");
        EXPECT_EQ(z3d_config_check(c.get, NULL), Z3D_OK) << z3d_error_message();
        EXPECT_EQ(c->run_tensorboard, strcmp(on, "true") == 0);
    }
    EXPECT_EQ(all_errors("tensorboard: null\n", {}), "accepted");
    EXPECT_TRUE(has(all_errors("tensorboard: {enabled: false}\nrun: {tensorboard: true}\n", {}),
                    "tensorboard.enabled: it sets run.tensorboard to false, but that key is true"));
    EXPECT_EQ(all_errors("tensorboard: {enabled: false}\n", {"run.tensorboard=true"}), "accepted");
    conversion converted = convert_text(
        from_deepspeed, "{\"tensorboard\": {\"enabled\": false, \"output_path\": \"logs\"}}");
    EXPECT_TRUE(converted.complete) << converted.table;
    EXPECT_TRUE(has(converted.yaml, "tensorboard: false")) << converted.yaml;
}

TEST(FromDeepspeed, TheExampleAndItsTable) {
    conversion c = convert(from_deepspeed, data_file("hf_zero3.json"));
    EXPECT_TRUE(c.complete) << c.table;
    Config config(c.yaml);
    EXPECT_EQ(config->zero_optimization_stage, 3);
    EXPECT_EQ(config->zero_optimization_offload_optimizer_device, Z3D_OFFLOAD_DEVICE_CPU);
    EXPECT_EQ(config->zero_optimization_offload_param_device, Z3D_OFFLOAD_DEVICE_CPU);
    EXPECT_EQ(config->optimizer_params_lr, 5e-5); // the Trainer's, where the file says auto
    EXPECT_EQ(config->optimizer_params_betas.value[1], 0.999);
    EXPECT_EQ(config->optimizer_params_weight_decay, 0);
    EXPECT_EQ(config->gradient_clipping, 1);
    EXPECT_TRUE(has(c.table, "zero_optimization.sub_group_size"));
}

TEST(FromDeepspeed, ItsDefaultsAreWrittenOut) {
    conversion c = convert_text(from_deepspeed, "{\"optimizer\": {\"type\": \"Adam\"}}");
    EXPECT_TRUE(c.complete) << c.table;
    Config config(c.yaml);
    EXPECT_EQ(config->zero_optimization_stage, 0);
    EXPECT_EQ(config->gradient_clipping, 1);
    EXPECT_EQ(config->optimizer_params_lr, 1e-3);
    EXPECT_EQ(config->optimizer_params_betas.value[1], 0.999);
    EXPECT_EQ(config->optimizer_params_weight_decay, 0);
    EXPECT_TRUE(has(c.table, "DeepSpeed's default")) << c.table;
    EXPECT_EQ(config->scheduler_type, Z3D_LR_CONSTANT);
    EXPECT_TRUE(has(c.table, "before June 2026")) << c.table;
    EXPECT_FALSE(has(c.table, "for matrices only")) << c.table;
    c = convert_text(from_deepspeed,
                     "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"weight_decay\": 0.1}}, "
                     "\"gradient_clipping\": 0}");
    EXPECT_TRUE(has(c.table, "for matrices only")) << c.table;
    EXPECT_FALSE(has(c.table, "before June 2026")) << c.table;
    c = convert_text(from_deepspeed,
                     "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 2e-3}}, "
                     "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
                     "{\"total_num_steps\": 5000, \"warmup_max_lr\": 4e-4}}, \"xyzzy\": 3}");
    EXPECT_FALSE(c.complete);
    Config decay(c.yaml);
    EXPECT_EQ(decay->optimizer_params_lr, 4e-4);
    EXPECT_EQ(decay->scheduler_params_warmup_num_steps, 1000);
    EXPECT_TRUE(has(c.table, "unknown key xyzzy")) << c.table;
    // WarmupDecayLR has a peak of its own, 1e-3, whatever the optimizer's rate is.
    for (const char *type : {"WarmupLR", "WarmupDecayLR"}) {
        c = convert_text(from_deepspeed,
                         std::string("{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": "
                                     "2e-3}}, \"scheduler\": {\"type\": \"") +
                             type + "\", \"params\": {\"warmup_num_steps\": 10}}}");
        Config peak(c.yaml);
        EXPECT_EQ(peak->optimizer_params_lr, strcmp(type, "WarmupLR") == 0 ? 2e-3 : 1e-3) << type;
    }
}

TEST(FromDeepspeed, Optimizers) {
    // What DeepSpeed does with each.
    conversion c = convert_text(from_deepspeed, "{\"optimizer\": {\"type\": \"Adam\", "
                                                "\"params\": {\"adam_w_mode\": false}}}");
    EXPECT_TRUE(c.complete) << c.table;
    EXPECT_EQ(Config(c.yaml)->optimizer_type, Z3D_OPTIMIZER_adam);
    EXPECT_FALSE(Config(c.yaml)->optimizer_params_adam_w_mode);
    c = convert_text(from_deepspeed, "{\"optimizer\": {\"type\": \"AdamW\", \"params\": "
                                     "{\"adam_w_mode\": false}}}");
    EXPECT_TRUE(c.complete) << c.table;
    EXPECT_EQ(Config(c.yaml)->optimizer_type, Z3D_OPTIMIZER_adamw);
    EXPECT_TRUE(has(c.table, "only Adam reads it")) << c.table;
    c = convert_text(from_deepspeed, "{\"optimizer\": {\"type\": \"Adagrad\"}}");
    EXPECT_EQ(Config(c.yaml)->optimizer_params_eps, 1e-10) << c.table;
    c = convert_text(from_deepspeed, "{\"optimizer\": {\"type\": \"Lion\"}}");
    EXPECT_EQ(Config(c.yaml)->optimizer_params_betas.value[1], 0.999) << c.table;
    EXPECT_FALSE(has(c.yaml, "eps")) << c.yaml;
}

TEST(FromMegatron, AScript) {
    conversion c = convert(z3d_config_from_megatron, data_file("megatron_gpt.txt"));
    EXPECT_TRUE(c.complete) << c.table;
    Config m(c.yaml);
    EXPECT_EQ(m->model_num_layers, 24);
    EXPECT_EQ(m->model_hidden_size, 1024);
    EXPECT_EQ(m->model_hidden_dropout, 0.1); // Megatron-LM's default
    EXPECT_EQ(m->train_batch_size, 32);
    EXPECT_EQ(m->zero_optimization_stage, 1);
    EXPECT_TRUE(m->parallel_sequence_parallel);
    EXPECT_EQ(m->fp16_initial_scale_power, 16);
    EXPECT_EQ(m->optimizer_params_betas.value[0], 0.9);
    EXPECT_EQ(m->optimizer_params_betas.value[1], 0.95);
    EXPECT_EQ(m->scheduler_type, Z3D_LR_WARMUP_COSINE);
    EXPECT_EQ(m->scheduler_params_total_num_steps, 4000);
    EXPECT_EQ(m->scheduler_params_min_lr, 1e-5);
    EXPECT_EQ(m->training_seed, 1234);
    ASSERT_EQ(m->data_train.count, 2);
    EXPECT_STREQ(m->data_train.path[1], "corpus/text_b");
    EXPECT_EQ(m->data_train.weight[1], 0.7);
    EXPECT_STREQ(m->data_vocab, "gpt2/vocab.json");
    EXPECT_EQ(m->checkpoint_interval, 1000);
}

TEST(FromMegatron, DefaultsAndWhatThereIsNot) {
    conversion c = convert_text(
        z3d_config_from_megatron,
        "python pretrain_gpt.py --num-layers 4 --hidden-size=64 --num-attention-heads 4 --bf16 "
        "--swiglu --frobnicate 3 --lr 1e-4 --data-path <YOUR DATA> --pipeline-model-parallel-size "
        "2 "
        "--recompute-granularity full --recompute-num-layers 2 --adam-beta1 0.9999999999");
    EXPECT_FALSE(c.complete);
    Config m(c.yaml);
    EXPECT_EQ(m->zero_optimization_stage, 0);
    EXPECT_EQ(m->data_types_grad_accum_dtype, Z3D_ACCUM_FP32);
    EXPECT_EQ(m->gradient_clipping, 1);
    EXPECT_EQ(m->optimizer_params_weight_decay, 0.01);
    EXPECT_EQ(m->scheduler_type, Z3D_LR_WARMUP_DECAY);
    EXPECT_EQ(m->activation_checkpointing_number_checkpoints, 2);
    EXPECT_EQ(m->parallel_pipeline_model_parallel_size, 2);
    EXPECT_STREQ(m->parallel_pipeline_partition, "[3, 3]");
    for (const char *name : {"--swiglu", "--frobnicate", "--data-path", "optimizer.params.betas"})
        EXPECT_TRUE(has(c.table.substr(c.table.find("Not supported:")), name)) << name << c.table;
    c = convert_text(z3d_config_from_megatron, "--train-iters 5000 --lr-decay-iters 4000 "
                                               "--lr-warmup-fraction 0.01 --lr 1e-4 --bf16 "
                                               "--lr-decay-style constant --hysteresis 3");
    EXPECT_TRUE(c.complete) << c.table;
    Config warm(c.yaml);
    EXPECT_EQ(warm->scheduler_type, Z3D_LR_WARMUP);
    EXPECT_EQ(warm->scheduler_params_warmup_num_steps, 40);
    z3d_string yaml = {}, table = {};
    bool complete;
    EXPECT_EQ(z3d_config_from_megatron("/nowhere", NULL, &yaml, &table, &complete), Z3D_ERR_IO);
}

TEST(FromMegatron, ALlama) {
    const std::string llama =
        "--num-layers 4 --hidden-size 256 --num-attention-heads 8 --lr 1e-4 --hidden-dropout 0 "
        "--attention-dropout 0 --swiglu --normalization RMSNorm --position-embedding-type rope "
        "--disable-bias-linear ";
    conversion c = convert_text(
        z3d_config_from_megatron,
        llama + "--group-query-attention --num-query-groups 2 --rotary-base 500000 "
                "--ffn-hidden-size 700 --untie-embeddings-and-output-weights --norm-epsilon 1e-6 "
                "--max-position-embeddings 8192 --use-rope-scaling --qk-layernorm --kv-channels 64 "
                "--tokenizer-type HuggingFaceTokenizer --tokenizer-model models/llama");
    EXPECT_TRUE(c.complete) << c.table;
    Config m(c.yaml);
    EXPECT_STREQ(m->model_type, "llama");
    EXPECT_EQ(m->model_num_key_value_heads, 2);
    EXPECT_EQ(m->model_rope_theta, 500000);
    EXPECT_EQ(m->model_intermediate_size, 700);
    EXPECT_EQ(m->model_head_dim, 64);
    EXPECT_EQ(m->model_rms_norm_eps, 1e-6);
    EXPECT_TRUE(has(c.yaml, "rope_type: llama3")) << c.yaml;
    EXPECT_EQ(m->model_rope_scaling_factor, 8);
    EXPECT_EQ(m->model_rope_scaling_original_max_position_embeddings, 8192);
    EXPECT_TRUE(m->model_qk_norm);
    EXPECT_FALSE(m->model_tie_word_embeddings);
    EXPECT_EQ(m->data_tokenizer, Z3D_TOKENIZER_HUGGINGFACE);
    EXPECT_STREQ(m->data_vocab, "models/llama");
    // Their defaults.
    c = convert_text(z3d_config_from_megatron, llama + "--group-query-attention");
    EXPECT_TRUE(c.complete) << c.table;
    Config defaults(c.yaml);
    EXPECT_EQ(defaults->model_num_key_value_heads, 1);
    EXPECT_EQ(defaults->model_intermediate_size, 640);
    EXPECT_TRUE(defaults->model_tie_word_embeddings);
    EXPECT_FALSE(has(c.yaml, "rope_scaling")) << c.yaml;
    c = convert_text(z3d_config_from_megatron,
                     llama + "--num-query-groups 2 --rotary-seq-len-interpolation-factor 4");
    Config linear(c.yaml);
    EXPECT_EQ(linear->model_num_key_value_heads, Z3D_AUTO);
    EXPECT_TRUE(has(c.yaml, "rope_type: linear")) << c.yaml;
    EXPECT_EQ(linear->model_rope_scaling_factor, 4);
    // What there is not.
    c = convert_text(z3d_config_from_megatron,
                     llama + "--hidden-dropout 0.1 --rotary-percent 0.5 --rotary-interleaved "
                             "--apply-layernorm-1p");
    EXPECT_FALSE(c.complete);
    for (const char *name :
         {"--hidden-dropout", "--rotary-percent", "--rotary-interleaved", "--apply-layernorm-1p"})
        EXPECT_TRUE(has(c.table.substr(c.table.find("Not supported:")), name)) << name << c.table;
}

TEST(FromMegatron, HalfALlamaIsRefusedByName) {
    conversion c = convert_text(
        z3d_config_from_megatron,
        "--lr 1e-4 --swiglu --normalization RMSNorm --group-query-attention --num-query-groups 2 "
        "--position-embedding-type rope --rotary-base 500000");
    EXPECT_FALSE(c.complete);
    Config m(c.yaml);
    EXPECT_STREQ(m->model_type, "gpt2");
    EXPECT_EQ(m->model_hidden_dropout, 0.1);
    for (const char *name : {"--swiglu", "--normalization", "--position-embedding-type",
                             "--group-query-attention", "--num-query-groups", "--rotary-base"})
        EXPECT_TRUE(has(c.table.substr(c.table.find("Not supported:")), name)) << name << c.table;
    EXPECT_TRUE(has(c.table, "--disable-bias-linear")) << c.table;
}

TEST(FromMegatron, ItsSplitIsAListOfUnits) {
    auto table = [](const std::string &arguments) {
        return convert_text(z3d_config_from_megatron,
                            "--lr 1e-3 --pipeline-model-parallel-size " + arguments)
            .table;
    };
    const struct {
        const char *arguments, *units;
    } splits[] = {
        {"4 --num-layers 8", "[3, 2, 2, 3]"},
        {"2 --num-layers 8 --num-layers-per-virtual-pipeline-stage 2", "[3, 2, 2, 3]"},
        {"2 --num-layers 8 --num-virtual-stages-per-pipeline-rank 4", "[2, 1, 1, 1, 1, 1, 1, 2]"},
        {"4 --num-layers 6 --account-for-embedding-in-pipeline-split "
         "--account-for-loss-in-pipeline-split",
         "[2, 2, 2, 2]"},
        {"4 --num-layers 7 --account-for-loss-in-pipeline-split", "[3, 2, 2, 2]"},
        {"4 --num-layers 8 --decoder-first-pipeline-num-layers 1 "
         "--decoder-last-pipeline-num-layers 3",
         "[2, 2, 2, 4]"},
        {"4 --num-layers 11 --decoder-last-pipeline-num-layers 2", "[4, 3, 3, 3]"},
        {"2 --num-layers 8 --decoder-first-pipeline-num-layers 2 "
         "--decoder-last-pipeline-num-layers 6 --num-virtual-stages-per-pipeline-rank 2",
         "[2, 3, 1, 4]"},
    };
    for (const auto &split : splits) {
        std::string rows = table(split.arguments);
        EXPECT_TRUE(has(rows, std::string("Megatron-LM's split is ") + split.units + ","))
            << split.arguments << "\n"
            << rows;
        EXPECT_FALSE(has(rows, "do not divide")) << rows;
    }
    for (const char *arguments : {"4 --num-layers 9", "16 --num-layers 8",
                                  "2 --num-layers 8 --decoder-first-pipeline-num-layers 8",
                                  "2 --num-layers 8 --decoder-first-pipeline-num-layers 5 "
                                  "--decoder-last-pipeline-num-layers 4",
                                  "2 --num-layers 8 --num-virtual-stages-per-pipeline-rank 3"})
        EXPECT_TRUE(has(table(arguments), "the layers do not divide over these chunks"))
            << arguments;
    EXPECT_TRUE(has(table("2 --num-layers 8 --num-layers-per-virtual-pipeline-stage 3"),
                    "it does not divide the layers of a pipeline stage"));
    EXPECT_TRUE(has(table("1 --num-layers 8 --decoder-first-pipeline-num-layers 2"),
                    "there is one pipeline stage"));
    EXPECT_TRUE(has(table("2 --num-layers 8 --pipeline-model-parallel-layout 'Etttt|ttttL'"),
                    "write the units of each chunk in parallel.pipeline_partition"));
}

// Megatron-LM reads the flags of its own optimizer only, and scripts give those of both.
TEST(FromMegatron, FlagsOfAnotherOptimizerHaveNoEffect) {
    const std::string all = "--num-layers 4 --lr 1e-4 --adam-beta1 0.8 --adam-beta2 0.99 "
                            "--adam-eps 1e-6 --sgd-momentum 0.7 --optimizer ";
    auto idle = [](const conversion &c, const char *flag) {
        size_t rows = c.table.find("No effect here:\n");
        return rows != std::string::npos && has(c.table.substr(rows), flag);
    };
    const char *const adam[] = {"--adam-beta1 ", "--adam-beta2 ", "--adam-eps "};
    conversion c = convert_text(z3d_config_from_megatron, all + "sgd");
    EXPECT_TRUE(c.complete) << c.table;
    Config sgd(c.yaml);
    EXPECT_EQ(sgd->optimizer_params_momentum, 0.7);
    EXPECT_FALSE(has(c.yaml, "betas") || has(c.yaml, "eps")) << c.yaml;
    for (const char *flag : adam) EXPECT_TRUE(idle(c, flag)) << flag << c.table;
    EXPECT_FALSE(idle(c, "--sgd-momentum ")) << c.table;
    EXPECT_TRUE(has(c.table, "SGD does not read it")) << c.table;
    c = convert_text(z3d_config_from_megatron, all + "adam");
    EXPECT_TRUE(c.complete) << c.table;
    Config adamw(c.yaml);
    EXPECT_EQ(adamw->optimizer_params_betas.value[0], 0.8);
    EXPECT_EQ(adamw->optimizer_params_betas.value[1], 0.99);
    EXPECT_EQ(adamw->optimizer_params_eps, 1e-6);
    EXPECT_FALSE(has(c.yaml, "momentum")) << c.yaml;
    for (const char *flag : adam) EXPECT_FALSE(idle(c, flag)) << flag << c.table;
    EXPECT_TRUE(idle(c, "--sgd-momentum ")) << c.table;
    c = convert_text(z3d_config_from_megatron, all + "lion --lion-beta2 0.97");
    EXPECT_TRUE(c.complete) << c.table;
    Config lion(c.yaml);
    EXPECT_EQ(lion->optimizer_type, Z3D_OPTIMIZER_lion);
    EXPECT_EQ(lion->optimizer_params_betas.value[0], 0.95);
    EXPECT_EQ(lion->optimizer_params_betas.value[1], 0.97);
    for (const char *flag : adam) EXPECT_TRUE(idle(c, flag)) << flag << c.table;
    c = convert_text(z3d_config_from_megatron, all + "muon");
    EXPECT_TRUE(has(c.table, "it is not built yet; write adam, sgd or lion")) << c.table;
    c = convert_text(z3d_config_from_megatron,
                     all + "adam --lion-beta1 0.9 --use-precision-aware-optimizer "
                           "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16");
    EXPECT_TRUE(c.complete && idle(c, "--lion-beta1 ")) << c.table;
    EXPECT_EQ(Config(c.yaml)->optimizer_params_exp_avg_sq_dtype, Z3D_MOMENTS_BF16);
    c = convert_text(z3d_config_from_megatron, all + "adam --exp-avg-dtype fp16");
    EXPECT_TRUE(has(c.table, "write fp32, or bf16 for both moments")) << c.table;
}

TEST(FromMegatron, StableDecay) {
    const std::string start = "--num-layers 4 --lr 1e-4 --train-iters 100 --lr-warmup-iters 10 "
                              "--lr-wsd-decay-iters 20 --lr-decay-style ";
    conversion c =
        convert_text(z3d_config_from_megatron, start + "WSD --lr-wsd-decay-style minus_sqrt");
    EXPECT_TRUE(c.complete) << c.table;
    Config wsd(c.yaml);
    EXPECT_EQ(wsd->scheduler_type, Z3D_LR_WARMUP_STABLE_DECAY);
    EXPECT_EQ(wsd->scheduler_params_num_decay_steps, 20);
    EXPECT_EQ(wsd->scheduler_params_decay_type, Z3D_DECAY_1_SQRT);
    EXPECT_FALSE(has(c.table, "the first rate is")) << c.table;
    c = convert_text(z3d_config_from_megatron, start + "WSD");
    EXPECT_FALSE(c.complete);
    EXPECT_TRUE(has(c.table, "its default is exponential; write linear, cosine or minus_sqrt"));
    c = convert_text(z3d_config_from_megatron, start + "cosine");
    EXPECT_TRUE(c.complete && has(c.table, "--lr-decay-style is not WSD")) << c.table;
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
