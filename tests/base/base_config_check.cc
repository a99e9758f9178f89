/* Contradictions and options without effect. */
#include "tests/base/config_harness.h"

static void expect_check(const std::string &text, const std::string &message) {
    EXPECT_EQ(check(text), message) << text;
}

TEST(Check, DefaultsPass) {
    EXPECT_EQ(check(""), "accepted");
}

TEST(Check, TokenizerFiles) {
    EXPECT_EQ(check("data: {tokenizer: gpt2}"), "accepted"); // generate asks for the files
    EXPECT_NE(check("data: {vocab: gpt2}").find("run.yaml:1:8: data.vocab:"), std::string::npos);
    EXPECT_NE(check("data: {merges: m.txt}").find("set data.tokenizer to gpt2"), std::string::npos);
    EXPECT_EQ(check("data: {tokenizer: gpt2, vocab: gpt2}"), "accepted");
    EXPECT_EQ(check("data: {tokenizer: gpt2, vocab: v.json, merges: m.txt}"), "accepted");
    expect_check("data: {tokenizer: huggingface, merges: m.txt}",
                 "run.yaml:1:32: data.merges: has no effect with data.tokenizer huggingface: "
                 "tokenizer.json has its own; leave this key out");
}

TEST(Check, StraddlingWithNothingToStraddle) {
    expect_check("parallel: {allow_tensor_across_nodes: true}",
                 "run.yaml:1:12: parallel.allow_tensor_across_nodes: has no effect with "
                 "parallel.tensor_model_parallel_size 1; leave this key out");
    EXPECT_EQ(check("parallel: {allow_tensor_across_nodes: true, tensor_model_parallel_size: 2}"),
              "accepted");
}

TEST(Check, Precision) {
    EXPECT_NE(
        check("fp16: {enabled: true}\nbf16: {enabled: true}").find("run.yaml:2:8: bf16.enabled:"),
        std::string::npos);
    EXPECT_EQ(check("fp16: {enabled: true, hysteresis: 4}"), "accepted");
    EXPECT_EQ(check("bf16: {enabled: true}\nfp16: {enabled: false, hysteresis: 2}"), "accepted");
    for (const char *option : {"initial_scale_power: 8", "loss_scale_window: 10", "hysteresis: 4",
                               "min_loss_scale: 2", "loss_scale: 128"}) {
        std::string key = std::string(option).substr(0, std::string(option).find(':'));
        EXPECT_EQ(check(std::string("fp16: {") + option + "}"),
                  "run.yaml:1:8: fp16." + key +
                      ": has no effect while fp16.enabled is false; set fp16.enabled to true, or "
                      "leave this key out");
    }
    for (const char *option : {"initial_scale_power: 8", "loss_scale_window: 10", "hysteresis: 4",
                               "min_loss_scale: 2"}) {
        EXPECT_NE(check(std::string("fp16: {enabled: true, loss_scale: 128, ") + option + "}")
                      .find("has no effect with a fixed fp16.loss_scale"),
                  std::string::npos);
    }
    EXPECT_EQ(check("fp16: {enabled: true, loss_scale: 128}"), "accepted");
    EXPECT_NE(check("fp16: {enabled: true, initial_scale_power: 2, min_loss_scale: 8}")
                  .find("above the first loss scale, 2^2"),
              std::string::npos);
}

TEST(Check, KeysOfOneDevice) {
    for (std::string key : {"tf32: true", "attention: own", "collectives: nccl",
                            "deterministic: false", "cuda_graph: on"})
        EXPECT_TRUE(has(check("training: {" + key + "}"),
                        "training." + key.substr(0, key.find(':')) + ": has no effect on the cpu"));
    EXPECT_TRUE(has(check("training: {device: cuda, gemm: {fp32: sgemm}}"),
                    "training.gemm.fp32: has no effect on the cuda device"));
    EXPECT_TRUE(has(check("training: {device: cuda, tf32: true}\nbf16: {enabled: true}"),
                    "training.tf32: has no effect in a 16-bit run"));
    EXPECT_TRUE(has(check("training: {device: cuda, attention: cudnn}"),
                    "training.attention: cudnn computes attention only in bf16 and fp16"));
    for (std::string key : {"digest: true", "trace_steps: 1"})
        EXPECT_TRUE(has(check("training: {device: cuda, cuda_graph: on, " + key + "}"),
                        "training.cuda_graph: on is not possible with training." +
                            key.substr(0, key.find(':')) + ", which looks at every instruction"));
}

TEST(Check, ActivationCheckpointsWithEffectOnly) {
    EXPECT_NE(check("activation_checkpointing: {partition_activations: true}")
                  .find("activation_checkpointing.partition_activations: has no effect with "
                        "parallel.tensor_model_parallel_size 1"),
              std::string::npos);
    EXPECT_EQ(
        check("parallel: {tensor_model_parallel_size: 2}\n"
              "activation_checkpointing: {partition_activations: true, cpu_checkpointing: true}"),
        "accepted");
    EXPECT_EQ(check("activation_checkpointing: {granularity: none, cpu_checkpointing: auto}\n"
                    "training: {hardware: here.yaml}"),
              "accepted");
    EXPECT_NE(check("training: {hardware: here.yaml}").find("has no effect unless"),
              std::string::npos);
    for (const char *granularity : {"none", "selective"})
        for (const char *key : {"partition_activations: true", "cpu_checkpointing: true",
                                "cpu_checkpointing: nvme, nvme_path: a", "number_checkpoints: 3"})
            EXPECT_NE(
                check("parallel: {tensor_model_parallel_size: 2}\n"
                      "activation_checkpointing: {granularity: " +
                      std::string(granularity) + ", " + key + "}")
                    .find("has no effect unless activation_checkpointing.granularity is full"),
                std::string::npos)
                << granularity << " " << key;
}

// An override of any key that training.hardware depends on leaves a note, as for every key.
TEST(Check, OverridesMayMakeTheHardwareUseless) {
    const std::string hardware = "training: {hardware: here.yaml}\n",
                      gather = "zero_optimization: {stage: 3}\n"
                               "parallel: {pipeline_model_parallel_size: 2}\n",
                      ratio = "zero_optimization: {offload_optimizer: {device: cpu, ratio: auto}}",
                      cpu = "activation_checkpointing: {cpu_checkpointing: auto}";
    for (auto [file, override] :
         {std::pair(cpu, "activation_checkpointing.cpu_checkpointing=true"),
          std::pair(gather, "zero_optimization.stage=2"),
          std::pair(gather, "parallel.pipeline_model_parallel_size=1"),
          std::pair(gather, "zero_optimization.pipeline_gather=per_step"),
          std::pair(ratio, "zero_optimization.offload_optimizer.device=none"),
          std::pair(ratio, "zero_optimization.offload_optimizer.ratio=0.5")}) {
        EXPECT_EQ(check(hardware + file), "accepted") << file;
        Config c(hardware + file);
        ASSERT_EQ(c.set(override), Z3D_OK);
        testing::internal::CaptureStderr();
        EXPECT_EQ(z3d_config_check(c.get, nullptr), Z3D_OK) << z3d_error_message();
        EXPECT_NE(testing::internal::GetCapturedStderr().find("training.hardware has no effect"),
                  std::string::npos)
            << override;
        EXPECT_EQ(c.get->training_hardware[0], '\0') << override;
    }
}

// An override of another key does not excuse the file, and an error beside it is told, too.
TEST(Check, AHardwareWithoutUseIsAnErrorOfTheFile) {
    Config c("training: {hardware: here.yaml}\n");
    ASSERT_EQ(c.set("zero_optimization.stage=3"), Z3D_OK);
    EXPECT_EQ(z3d_config_check(c.get, nullptr), Z3D_ERR_CONFIG);
    EXPECT_NE(std::string(z3d_error_message()).find("training.hardware: has no effect"),
              std::string::npos)
        << z3d_error_message();
    const std::string both = check("training: {hardware: here.yaml}\n"
                                   "zero_optimization: {offload_optimizer: {ratio: 0.5}}");
    EXPECT_NE(both.find("training.hardware: has no effect"), std::string::npos) << both;
    EXPECT_NE(both.find("offload_optimizer.ratio"), std::string::npos) << both;
}

// One in every n blocks: not every number of checkpoints comes out.
TEST(Check, NumberOfCheckpointsIsWhatOneGets) {
    auto with = [](int number) {
        return check("model: {num_layers: 12}\n"
                     "activation_checkpointing: {number_checkpoints: " +
                     std::to_string(number) + "}");
    };
    for (int number : {1, 2, 3, 4, 6, 12}) EXPECT_EQ(with(number), "accepted") << number;
    EXPECT_EQ(with(5), "run.yaml:2:28: activation_checkpointing.number_checkpoints: 5 cannot be "
                       "spread evenly over 12 blocks; write 4 or 6");
    for (int number : {7, 11})
        EXPECT_NE(with(number).find("; write 6 or 12"), std::string::npos) << with(number);
    EXPECT_NE(with(13).find("13 is more than the 12 blocks; write auto"), std::string::npos);
}

TEST(Check, VerifyNeedsSomethingToLoad) {
    EXPECT_NE(check("checkpoint: {resume: never, verify: read}")
                  .find("checkpoint.verify: has no effect with checkpoint.resume never and no "
                        "checkpoint.init_from"),
              std::string::npos);
    EXPECT_EQ(check("checkpoint: {resume: never, init_from: here, verify: read}"), "accepted");
    EXPECT_EQ(check("checkpoint: {verify: sizes}"), "accepted");
}

TEST(Check, SequenceParallel) {
    EXPECT_EQ(
        check("parallel: {sequence_parallel: true}"),
        "run.yaml:1:12: parallel.sequence_parallel: has no effect with "
        "parallel.tensor_model_parallel_size 1: only tensor ranks share a sequence; leave this "
        "key out");
    EXPECT_EQ(check("parallel: {tensor_model_parallel_size: 4, sequence_parallel: true}\n"
                    "activation_checkpointing: {partition_activations: true}"),
              "accepted");
}

TEST(Check, ReplayNeedsRecompute) {
    EXPECT_NE(check("activation_checkpointing: {granularity: none, replay: full}")
                  .find("run.yaml:1:47: activation_checkpointing.replay: has no effect"),
              std::string::npos);
    EXPECT_NE(check("activation_checkpointing: {granularity: selective, replay: full}")
                  .find("granularity selective, which never replays a whole block"),
              std::string::npos);
    EXPECT_EQ(check("activation_checkpointing: {granularity: full, replay: full}"), "accepted");
    EXPECT_EQ(check("activation_checkpointing: {granularity: none, replay: minimal}"), "accepted");
}

// Keys of another optimizer; the resolved configuration of a run has their defaults.
TEST(Check, Optimizer) {
    EXPECT_NE(check("optimizer: {type: SGD, params: {betas: [0.9, 0.99]}}")
                  .find("optimizer.params.betas: has no effect with optimizer.type SGD"),
              std::string::npos);
    EXPECT_NE(check("optimizer: {params: {momentum: 0.5}}")
                  .find("optimizer.params.momentum: has no effect with optimizer.type AdamW"),
              std::string::npos);
    EXPECT_EQ(check("optimizer: {type: SGD, params: {betas: [0.9, 0.95], momentum: 0.5}}"),
              "accepted");
}

TEST(Check, TypesOfMoments) {
    EXPECT_EQ(check("optimizer: {params: {exp_avg_dtype: bf16, exp_avg_sq_dtype: bf16}}"),
              "accepted");
    for (const char *one : {"exp_avg_dtype: bf16", "exp_avg_sq_dtype: bf16"})
        EXPECT_NE(check("optimizer: {params: {" + std::string(one) + "}}")
                      .find("must be equal; write bf16 for both, or for none"),
                  std::string::npos);
    EXPECT_NE(check("optimizer: {type: SGD, params: {exp_avg_dtype: bf16, exp_avg_sq_dtype: bf16}}")
                  .find("exp_avg_sq_dtype: has no effect with optimizer.type SGD"),
              std::string::npos);
}

TEST(Check, ParameterGroups) {
    auto groups = [](const std::string &text) {
        return check("optimizer: {param_groups: " + text + "}");
    };
    EXPECT_EQ(groups("[{params: ['*bias', ln_], weight_decay: 0}, {params: wte, lr: 1e-5}]"),
              "accepted");
    EXPECT_EQ(groups("'*bias lr_scale=0.5 weight_decay=1'"), "accepted");
    EXPECT_EQ(groups("[]"), "accepted");
    for (auto &[text, says] : std::vector<std::pair<std::string, std::string>>{
             {"[{weight_decay: 0}]", "a group without params; write patterns of names there"},
             {"[{}]", "a group without params"},
             {"[{params: a}]", "a group that changes nothing; write its lr, lr_scale or weight"},
             {"[{params: a, lr: 1, lr_scale: 1}]", "a group with lr and lr_scale; write one"},
             {"[{params: a, lr: -1}]", "lr: '-1' is not a number of 0 to 1e+06"},
             {"[{params: a, weight_decay: much}]", "weight_decay: 'much' is not a number"},
             {"[{params: a, weight_decay: nan}]", "weight_decay: 'nan' is not a number"},
             {"'a lr=1 lr=2'", "lr is given twice"},
             {"'a betas=1'", "unknown 'betas'; write params, lr, lr_scale or weight_decay"},
             {"'a " + std::string(200, 'b') + " lr=1'", "has more than 127 characters"}})
        EXPECT_NE(groups(text).find(says), std::string::npos) << groups(text);
    for (auto &[text, says] : std::vector<std::pair<std::string, std::string>>{
             {"[{params: a, betas: [1, 2]}]", "unknown 'betas'; write params, lr, lr_scale or"},
             {"[{params: {a: 1}, lr: 1}]", "params needs a pattern of names, or a list of them"},
             {"[{params: [[a]], lr: 1}]", "params needs a pattern of names, or a list of them"},
             {"[{params: a b, lr: 1}]", "params: 'a b' is not a pattern of names"},
             {"[{params: a=1, lr: 1}]", "params: 'a=1' is not a pattern of names"},
             {"[{params: a, x.lr: 1}]", "unknown 'x.lr'; write params, lr, lr_scale or"},
             {"[{params: '', lr: 1}]", "params: '' is not a pattern of names"},
             {"[{params: a, lr: [1]}]", "lr needs one value"},
             {"{params: a, lr: 1}", "expected a list of {params"},
             {"[[a]]", "expected a list of {params"}}) {
        const std::string all = "optimizer: {param_groups: " + text + "}";
        z3d_config *c;
        ASSERT_EQ(z3d_config_create(&c), Z3D_OK);
        (void)z3d_config_read_text(c, all.c_str(), all.size(), "run.yaml");
        EXPECT_EQ(z3d_config_check(c, nullptr), Z3D_ERR_CONFIG);
        EXPECT_NE(std::string(z3d_error_message()).find(says), std::string::npos)
            << z3d_error_message();
        z3d_config_destroy(c);
    }
    EXPECT_NE(check("optimizer: {params: {lr: 0}, param_groups: 'a lr=1'}").find("write a peak"),
              std::string::npos);
    // What is written is read.
    Config c("optimizer: {param_groups: [{params: ['*bias', ln_], weight_decay: 0}]}");
    z3d_string text = {};
    z3d_config_write(c.get, &text);
    Config again(text.text);
    ASSERT_EQ(again->optimizer_param_groups.count, 1);
    EXPECT_STREQ(again->optimizer_param_groups.path[0], "*bias ln_ weight_decay=0");
    z3d_string_free(&text);
}

TEST(Check, Schedule) {
    for (const char *option : {"warmup_num_steps: 10", "total_num_steps: 10", "min_lr: 1e-5"}) {
        std::string params = std::string("params: {") + option + "}}";
        EXPECT_NE(check("scheduler: {" + params).find("has no effect with scheduler.type constant"),
                  std::string::npos);
        EXPECT_EQ(check("scheduler: {type: WarmupCosineLR, " + params), "accepted");
        EXPECT_EQ(check("scheduler: {type: WarmupDecayLR, " + params), "accepted");
        bool warmup = option[0] == 'w';
        std::string answer = check("scheduler: {type: WarmupLR, " + params);
        EXPECT_EQ(warmup, answer == "accepted") << answer;
    }
    auto says = [](const std::string &params, const std::string &what) {
        EXPECT_NE(check("scheduler: {" + params + "}").find(what), std::string::npos) << what;
    };
    says("type: linear, params: {power: 2}",
         "params.power: has no effect with scheduler.type linear; choose polynomial, or");
    says("type: cosine, params: {num_cycles: 2}", "choose cosine_with_restarts, or");
    says("type: cosine, params: {num_decay_steps: 2}", "choose warmup_stable_decay, or");
    says("type: polynomial, params: {decay_type: linear}", "has no effect with");
    says("type: inverse_sqrt, params: {min_lr: 1e-5}", "has no effect with");
    says("type: constant_with_warmup, params: {total_num_steps: 9}", "has no effect with");
    says("type: linear, params: {warmup_ratio: 0.5, warmup_num_steps: 3}",
         "0.5, but scheduler.params.warmup_num_steps 3 also sets the warm-up; leave one of them "
         "out");
    says("type: WSD, params: {warmup_ratio: 0.5, num_decay_steps: 501}",
         "501 steps and 500 of warm-up are more than training.steps 1000; write at most 500");
    says("type: WSD, params: {warmup_num_steps: 1000, num_decay_steps: 1}",
         "1 steps and 1000 of warm-up are more than training.steps 1000; shorten the warm-up");
    for (const char *accepted :
         {"type: WSD, params: {warmup_ratio: 0.5, num_decay_steps: 500, decay_type: 1-sqrt}}",
          "type: WSD, params: {warmup_num_steps: 1000}}", "type: polynomial, params: {power: 2}}",
          "type: constant_with_warmup, params: {warmup_ratio: 0.1, total_num_steps: 50}}"})
        EXPECT_EQ(check("scheduler: {" + std::string(accepted)), "accepted");
    EXPECT_NE(check("scheduler: {type: WarmupCosineLR, params: {min_lr: 1e-3}}")
                  .find("run.yaml:1:44: scheduler.params.min_lr: 0.001 is above the peak "
                        "optimizer.params.lr 0.0006"),
              std::string::npos);
    EXPECT_NE(check("scheduler: {type: WarmupCosineLR, params: {warmup_num_steps: 1001}}")
                  .find("1001 is beyond the end of the decay, training.steps 1000"),
              std::string::npos);
    EXPECT_EQ(check("scheduler: {type: WarmupCosineLR, params: {warmup_num_steps: 1000}}"),
              "accepted");
    // A run that the command line makes short warms up as long as it runs.
    for (const char *key : {"training.steps=1", "scheduler.params.total_num_steps=1"}) {
        Config c("scheduler: {type: WarmupCosineLR, params: {warmup_num_steps: 100}}");
        ASSERT_EQ(c.set(key), Z3D_OK);
        testing::internal::CaptureStderr();
        EXPECT_EQ(z3d_config_check(c.get, nullptr), Z3D_OK) << z3d_error_message();
        const std::string said = testing::internal::GetCapturedStderr();
        EXPECT_NE(said.find("scheduler.params.warmup_num_steps is cut to 1 steps: the command line "
                            "sets"),
                  std::string::npos)
            << said;
        EXPECT_EQ(c->scheduler_params_warmup_num_steps, 1);
        ASSERT_EQ(c.set("scheduler.params.warmup_num_steps=2"), Z3D_OK);
        EXPECT_EQ(z3d_config_check(c.get, nullptr), Z3D_ERR_CONFIG);
    }
    for (const char *type : {"WarmupLR", "WarmupDecayLR"}) {
        Config c(std::string("scheduler: {type: ") + type + ", params: {warmup_num_steps: 10" +
                 (type[6] == 'D' ? ", total_num_steps: 50}}" : "}}"));
        ASSERT_EQ(c.set("training.steps=1"), Z3D_OK);
        testing::internal::CaptureStderr();
        EXPECT_EQ(z3d_config_check(c.get, nullptr), Z3D_OK) << z3d_error_message();
        EXPECT_NE(testing::internal::GetCapturedStderr().find(
                      "to keep it, write scheduler.params.warmup_num_steps=10 there too"),
                  std::string::npos);
        EXPECT_EQ(c->scheduler_params_warmup_num_steps, 1) << type;
        ASSERT_EQ(c.set("scheduler.params.warmup_num_steps=10"), Z3D_OK);
        EXPECT_EQ(z3d_config_check(c.get, nullptr), Z3D_OK) << z3d_error_message();
        EXPECT_EQ(c->scheduler_params_warmup_num_steps, 10) << type;
    }
    EXPECT_EQ(check("scheduler: {type: WarmupLR, params: {warmup_num_steps: 4000}}"), "accepted");
    EXPECT_NE(check("scheduler: {type: WarmupCosineLR, params: {warmup_num_steps: 11, "
                    "total_num_steps: 10}}")
                  .find("total_num_steps 10"),
              std::string::npos);
}

TEST(Check, TypesOnTheWire) {
    auto on = [](const std::string &more, int ranks) {
        Config c;
        int data;
        z3d_status status = c.read("communication_data_type: " + more);
        if (status == Z3D_OK) status = z3d_config_resolve(c.get, nullptr, ranks, &data);
        return status == Z3D_OK ? std::string("accepted") : std::string(z3d_error_message());
    };
    const std::string at = "run.yaml:1:1: communication_data_type: ",
                      bf16 = "\nbf16: {enabled: true}\n", two = "gradient_accumulation_steps: 2\n",
                      way = "set data_types.grad_accum_dtype to fp32, or leave this key out";
    for (const char *type : {"auto", "null", "fp32", "bf16", "fp16"})
        EXPECT_EQ(on(type + bf16 + two, 2), "accepted") << type;
    for (const char *type : {"auto", "fp32", "bf16", "fp16"})
        EXPECT_EQ(on(type, 1), "accepted") << type << " in an fp32 run";
    EXPECT_EQ(on("bf16" + bf16, 2),
              at + "bf16 has no effect: the gradients are bf16 already; " + way);
    EXPECT_EQ(on("fp16" + bf16, 2),
              at + "fp16 has no effect: the gradients are bf16 already; " + way);
    EXPECT_EQ(on("fp32" + bf16, 2),
              at + "fp32 is wider than the gradients, which are bf16; " + way);
    EXPECT_EQ(on("fp16\nfp16: {enabled: true}\n", 2),
              at + "fp16 has no effect: the gradients are fp16 already; " + way);
    EXPECT_EQ(on("bf16" + bf16 + "data_types: {grad_accum_dtype: fp32}\n", 2), "accepted");
    // On other ranks an elastic run may accumulate.
    EXPECT_EQ(on("bf16" + bf16 +
                     "parallel: {elastic: true}\ntrain_batch_size: 2\n"
                     "train_micro_batch_size_per_gpu: 1\n",
                 2),
              "accepted");
    const std::string gpu = "bf16" + bf16 + two + "training: {device: cuda";
    EXPECT_EQ(on(gpu + "}\n", 2),
              at + "bf16 is not built for NCCL, which adds in the type it sends; set "
                   "training.collectives to host, or leave this key out");
    EXPECT_EQ(on(gpu + ", collectives: host}\n", 2), "accepted");
    EXPECT_NE(on("int8", 2).find("use one of auto, fp32, bf16, fp16"), std::string::npos)
        << on("int8", 2);
}

TEST(Check, TypesThatARunDoesNotUse) {
    expect_check(
        "data_types: {grad_accum_dtype: fp32}",
        "run.yaml:1:14: data_types.grad_accum_dtype: has no effect in an fp32 run, whose "
        "gradients are fp32; set bf16.enabled or fp16.enabled to true, or leave this key out");
    EXPECT_EQ(check("bf16: {enabled: true}\ndata_types: {grad_accum_dtype: fp32}"), "accepted");
    EXPECT_EQ(check("data_types: {grad_accum_dtype: auto}"), "accepted");
    EXPECT_EQ(check("bf16: {enabled: true}\ndata_types: {grad_accum_dtype: bf16}"), "accepted");
    expect_check("fp16: {enabled: true}\ndata_types: {grad_accum_dtype: bf16}",
                 "run.yaml:2:14: data_types.grad_accum_dtype: bf16 needs bf16.enabled true; write "
                 "auto");
    expect_check("data_types: {grad_accum_dtype: fp16}",
                 "run.yaml:1:14: data_types.grad_accum_dtype: fp16 needs fp16.enabled true; write "
                 "auto");
    const std::string types[] = {"fp32", "bf16", "fp16"};
    for (const std::string &run : types)
        for (const std::string &type : types) {
            std::string text = run == "fp32" ? "" : run + ": {enabled: true}\n";
            std::string answer = check(text + "training: {gemm: {" + type + ": portable}}");
            if (type == run)
                EXPECT_EQ(answer, "accepted") << run;
            else
                EXPECT_NE(answer.find("training.gemm." + type + ": has no effect in a"),
                          std::string::npos)
                    << run << ": " << answer;
            EXPECT_EQ(check(text + "training: {gemm: {" + type + ": auto}}"), "accepted");
        }
}

TEST(Check, OptionsOfPartsThatAreOff) {
    for (const char *option : {"eval_interval: 7", "eval_steps: 7"}) {
        std::string text = std::string("training: {") + option + "}\n";
        EXPECT_NE(check(text).find("has no effect without data.validation; set data.validation"),
                  std::string::npos)
            << option;
        EXPECT_EQ(check(text + "data: {validation: val.bin}"), "accepted");
    }
    for (const char *option : {"tokens: 7", "temperature: 0", "top_k: 7", "seed: 7"}) {
        EXPECT_NE(check(std::string("generate: {") + option + "}")
                      .find("has no effect without generate.prompt and generate.prompts; set one "
                            "of them"),
                  std::string::npos)
            << option;
        EXPECT_EQ(check(std::string("generate: {prompt: x, ") + option + "}"), "accepted");
    }
    EXPECT_EQ(check("training: {eval_interval: 100, eval_steps: 10}\n"
                    "generate: {tokens: 200, temperature: 0.8, top_k: 40, seed: 1}"),
              "accepted");
    /* Without effect where there is one data rank or one micro-batch, but no mistake. */
    EXPECT_EQ(check("zero_optimization: {stage: 3, grad_reduce: per_step}"), "accepted");
}

TEST(Check, RunFolder) {
    EXPECT_NE(check("run: {dir: ''}").find("run.yaml:1:7: run.dir: is empty"), std::string::npos);
}

TEST(Check, ClippingAndPastedDefaultsAreFine) {
    EXPECT_EQ(check("gradient_clipping: 1.0\n"
                    "fp16: {enabled: false, loss_scale: 0, loss_scale_window: 1000, "
                    "initial_scale_power: 16, hysteresis: 2, min_loss_scale: 1}\n"),
              "accepted");
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
