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
    expect_check("model: {type: gtp2, num_attention_heads: 7}",
                 "run.yaml:1:9: model.type: 'gtp2' is not a model that this program knows; write "
                 "gpt2 or llama");
    Config c("model: {type: gtp2}");
    z3d_model *model = (z3d_model *)&c;
    EXPECT_EQ(z3d_model_from_config(c.get, &model), Z3D_ERR_CONFIG);
    EXPECT_EQ(model, nullptr);
}

TEST(ModelConfig, GroupsOfParameters) {
    const std::string model = "model: {type: llama, num_layers: 2, tiling: 2}\n";
    z3d_model *made;
    Config c(model + "optimizer: {param_groups: [{params: 'layers.1/*norm*', lr: 0}, {params: "
                     "[norm, 'embed?tokens*'], weight_decay: 1}]}");
    ASSERT_EQ(z3d_model_from_config(c.get, &made), Z3D_OK) << z3d_error_message();
    int of[3] = {};
    for (int g = 0; g < made->num_groups; g++)
        for (int i = 0; i < made->group[g].num_parameters; i++) {
            const z3d_parameter &p = made->group[g].parameter[i];
            const std::string group = z3d_parameter_home(&made->group[g], i), name = p.name;
            const bool norm = has(name, "norm") || has(group, "norm");
            of[p.optimizer_group]++;
            if (norm) {
                EXPECT_EQ(p.optimizer_group, group == "layers.1" ? 1 : 2) << group << "." << name;
            }
        }
    EXPECT_EQ(of[1], 2);
    EXPECT_GE(of[2], 3);
    EXPECT_GT(of[0], 0);
    z3d_model_destroy(made);
    Config wrong(model + "optimizer: {param_groups: [{params: [norm, no_such], lr: 0}, {params: "
                         "also_not, lr: 0}]}");
    EXPECT_EQ(z3d_model_from_config(wrong.get, &made), Z3D_ERR_CONFIG);
    EXPECT_EQ(made, nullptr);
    EXPECT_TRUE(has(z3d_error_message(), "run.yaml:2:13: optimizer.param_groups: no parameter is "
                                         "called 'no_such', 'also_not'; names are "))
        << z3d_error_message();
    // Without ranks or a device, beside other errors.
    wrong.set("training.threads=-1");
    EXPECT_EQ(z3d_config_check(wrong.get, &z3d_model_rules), Z3D_ERR_CONFIG);
    EXPECT_TRUE(has(z3d_error_message(), "called 'no_such', 'also_not'; names are embed_tokens."))
        << z3d_error_message();
}

TEST(ModelConfig, FrozenParameters) {
    const std::string model = "model: {num_layers: 2, tiling: 2}\n";
    z3d_model *made;
    Config c(model + "training: {freeze: [wte, 'block.1/*', '*.c_fc.*']}");
    ASSERT_EQ(z3d_model_from_config(c.get, &made), Z3D_OK) << z3d_error_message();
    Config whole(model);
    z3d_model *all;
    ASSERT_EQ(z3d_model_from_config(whole.get, &all), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(z3d_model_parameter_count(made), z3d_model_parameter_count(all));
    EXPECT_EQ(z3d_model_trained_count(all), z3d_model_parameter_count(all));
    // wpe, of block 0 all but c_fc, ln_f.
    const int64_t h = 768;
    EXPECT_EQ(z3d_model_trained_count(made),
              1024 * h + 4 * h + 4 * h * h + 4 * h + 4 * h * h + h + 2 * h);
    EXPECT_EQ(z3d_model_first_trained(made), 0);
    // Both tiles of block 0 are divided; nothing else is.
    ASSERT_EQ(made->num_groups, all->num_groups + 2);
    for (int g = 0; g < made->num_groups; g++)
        for (int i = 0; i < made->group[g].num_parameters; i++)
            EXPECT_EQ(made->group[g].parameter[i].frozen, made->group[g].frozen);
    EXPECT_STREQ(made->group[3].name, "block.0.mlp.0");
    EXPECT_STREQ(made->group[4].name, "block.0.mlp.0.frozen");
    EXPECT_STREQ(z3d_parameter_home(&made->group[4], 0), "block.0");
    // A unit finds each parameter where its description has it.
    z3d_unit_run run{};
    run.unit = &made->unit[2];
    ASSERT_EQ(run.unit->num_groups, 2);
    for (int i = 0; i < all->group[3].num_parameters; i++) {
        const z3d_place at = z3d_unit_place(&run, 0, i);
        EXPECT_STREQ(made->group[run.unit->group[at.slot]].parameter[at.index].name,
                     all->group[3].parameter[i].name);
    }
    z3d_model_destroy(made);
    z3d_model_destroy(all);
}

TEST(ModelConfig, WhatCannotBeFrozen) {
    z3d_model *made;
    Config nothing("training: {freeze: [wte, no_such]}");
    EXPECT_EQ(z3d_model_from_config(nothing.get, &made), Z3D_ERR_CONFIG);
    EXPECT_EQ(made, nullptr);
    expect_check("training: {freeze: [wte, no_such]}",
                 "run.yaml:1:12: training.freeze: no parameter is called 'no_such'; names are "
                 "wte.weight ... ln_f.bias (zero3d checkpoint show)");
    expect_check("training: {freeze: '*'}",
                 "run.yaml:1:12: training.freeze: it freezes all parameters; leave some to train");
    expect_check("model: {type: llama}\ntraining: {freeze: ['layers.3.mlp.gate_proj*']}",
                 "run.yaml:2:12: training.freeze: layers.3.mlp.gate_proj.weight is frozen, but "
                 "mlp.up_proj.weight is trained, and one product reads both; freeze both or "
                 "neither");
}

static std::string llama(const std::string &keys) {
    return "model: {type: llama, hidden_size: 64, num_attention_heads: 8, " + keys;
}

// What is proposed can be started on these ranks.
TEST(ModelConfig, TensorSizesAreProposedForTheRanks) {
    const std::string tensor = "\nparallel: {tensor_model_parallel_size: ";
    const struct {
        std::string text;
        int ranks;
        const char *proposed;
    } cases[] = {
        {"model: {hidden_size: 64, num_attention_heads: 8}" + tensor + "3}", 3, "write 1"},
        {"model: {hidden_size: 64, num_attention_heads: 8}" + tensor + "6}", 12, "write 4"},
        {llama("}") + tensor + "3}", 3, "write 1"},
        {llama("}") + tensor + "3}", 12, "write 2 or 4"}};
    for (const auto &c : cases) {
        Config config(c.text);
        int data;
        EXPECT_EQ(z3d_config_settle(config.get, &z3d_model_rules, c.ranks, &data), Z3D_ERR_CONFIG);
        const std::string said = z3d_error_message();
        EXPECT_EQ(said.substr(said.rfind("; ") + 2), c.proposed) << said;
    }
}

TEST(ModelConfig, Tiling) {
    EXPECT_EQ(check_model("model: {tiling: 3}"), "accepted");
    EXPECT_EQ(check_model("model: {tiling: auto}"), "accepted");
    expect_check("model: {tiling: 5}",
                 "run.yaml:1:9: model.tiling: 5 tiles cannot share the MLP's 3072 columns equally; "
                 "write 4 or 6");
    expect_check(
        llama("intermediate_size: 40, tiling: 5}\nparallel: {tensor_model_parallel_size: ") + "4}",
        "accepted");
    expect_check("model: {num_layers: 100000, tiling: 512}",
                 "run.yaml:1:29: model.tiling: 512 tiles in each of 100000 layers are more than "
                 "16777216; write at most 167");
    // As few as make no tile larger than the attention, of those that divide the width.
    const struct {
        std::string text;
        int64_t units; // 12 blocks, embedding and head
    } cases[] = {
        {"model: {tiling: auto}", 12 * 3 + 2},
        {llama("intermediate_size: 60, tiling: auto}"), 12 * 1 + 2},
        {llama("intermediate_size: 99, tiling: auto}"), 12 * 4 + 2},
        {llama("num_key_value_heads: 1, intermediate_size: 250, tiling: auto}"), 12 * 11 + 2}};
    for (const auto &c : cases) {
        Config config(c.text);
        z3d_model_sizes sizes;
        ASSERT_EQ(z3d_model_sizes_of(config.get, &sizes), Z3D_OK);
        EXPECT_EQ(sizes.units, c.units) << c.text;
    }
}

TEST(ModelConfig, AdaptersThatAreRefused) {
    EXPECT_EQ(check_model("lora: {r: 8}"), "accepted");
    EXPECT_EQ(check_model("lora: {r: 8, target_modules: all-linear, modules_to_save: [ln_f]}"),
              "accepted");
    EXPECT_EQ(check_model(llama("}\nlora: {r: 4, target_modules: [q_proj, mlp.down_proj], "
                                "use_rslora: true, lora_dropout: 0.1, bias: none}")),
              "accepted");
    const struct {
        const char *lora, *said;
    } cases[] = {
        {"{r: 8, target_modules: [c_attn, q_proj]}",
         "lora.target_modules: 'q_proj' is no layer of this model; write all-linear, or some of "
         "these: "
         "attn.c_attn, attn.c_proj, mlp.c_fc, mlp.c_proj"},
        {"{r: 8, target_modules: [wte]}",
         "lora.target_modules: 'wte': adapters of embeddings and of the head are not supported, "
         "and this model's head is its token table, which lora.modules_to_save does not train; "
         "leave it out"},
        {"{r: 8, target_modules: [wpe]}",
         "lora.target_modules: 'wpe': adapters of embeddings and of the head are not supported; "
         "lora.modules_to_save trains them whole"},
        {"{r: 1000}", "lora.r: 1000 is above a width of attn.c_attn; write at most 768"},
        {"{r: 8, modules_to_save: [lm_head]}",
         "lora.modules_to_save: 'lm_head' is no module of this model; names are wte ... ln_f"},
        {"{r: 8, modules_to_save: [wte]}",
         "lora.modules_to_save: wte is tied to the head, and PEFT keeps two tables; leave it out"},
        {"{r: 8, modules_to_save: [c_attn]}", "h.0.attn.c_attn has an adapter, too; leave it out"},
        {"{r: 8}\ntraining: {freeze: [ln_f]}",
         "training.freeze: a run with adapters trains adapters and lora.modules_to_save only"},
        {"{r: 65, target_modules: all-linear}\nmodel: {type: llama, hidden_size: 128, "
         "num_attention_heads: 4, num_key_value_heads: 1}",
         "65 is above a width of self_attn.k_proj; write at most 32"},
        {"{target_modules: [c_attn]}", "has no effect while lora.r is 0"},
        {"{r: 8, target_modules: [c_proj], lora_dropout: 0.1}\n"
         "parallel: {tensor_model_parallel_size: 2}",
         "lora.lora_dropout: it is not supported for attn.c_proj, whose inputs tensor ranks share; "
         "write 0, or leave that module out of lora.target_modules"},
        {"{r: 8}\nmodel: {tiling: 2}",
         "lora.r: adapters are not supported with model.tiling; set model.tiling to 1"}};
    for (const auto &c : cases) {
        const std::string said = check_model(std::string("lora: ") + c.lora);
        EXPECT_TRUE(has(said, c.said)) << c.lora << ": " << said;
    }
}

TEST(ModelConfig, AdaptersAloneAreTrained) {
    z3d_model *made;
    Config c("model: {type: llama, num_layers: 2}\nlora: {r: 8, modules_to_save: [norm]}");
    ASSERT_EQ(z3d_model_from_config(c.get, &made), Z3D_OK) << z3d_error_message();
    std::string trained;
    for (int g = 0; g < made->num_groups; g++)
        for (int i = 0; i < made->group[g].num_parameters; i++)
            if (const z3d_parameter &p = made->group[g].parameter[i]; !p.frozen)
                trained += std::string(z3d_parameter_home(&made->group[g], i)) + "/" + p.name + " ";
    EXPECT_EQ(trained, "layers.0/input_layernorm.weight layers.0/post_attention_layernorm.weight "
                       "layers.0/self_attn.q_proj.lora_A.weight "
                       "layers.0/self_attn.q_proj.lora_B.weight "
                       "layers.0/self_attn.v_proj.lora_A.weight "
                       "layers.0/self_attn.v_proj.lora_B.weight "
                       "layers.1/input_layernorm.weight layers.1/post_attention_layernorm.weight "
                       "layers.1/self_attn.q_proj.lora_A.weight "
                       "layers.1/self_attn.q_proj.lora_B.weight "
                       "layers.1/self_attn.v_proj.lora_A.weight "
                       "layers.1/self_attn.v_proj.lora_B.weight "
                       "norm/weight ");
    z3d_model_destroy(made);
}

// FLOPs of a token's step: 6 for each element of a trained matrix, 4 where it is frozen, 2 where
// nothing before it is trained.
TEST(ModelConfig, FlopsOfWhatIsTrained) {
    const std::string model = "model: {num_layers: 2, hidden_size: 64, num_attention_heads: 4, "
                              "seq_length: 32, vocab_size: 100}\n";
    auto step = [&](const std::string &rest) {
        z3d_model *made = nullptr;
        Config c(model + rest);
        EXPECT_EQ(z3d_model_from_config(c.get, &made), Z3D_OK) << z3d_error_message();
        if (!made) return 0.0;
        const double flops = made->facts.flops.step;
        z3d_model_destroy(made);
        return flops;
    };
    const double block = 12.0 * 64 * 64, attention = 4.0 * 32 * 64, head = 100.0 * 64;
    EXPECT_EQ(step(""), 2 * (6 * block + 3 * attention) + 6 * head);
    EXPECT_EQ(step("training: {freeze: [wte]}"), 2 * (6 * block + 3 * attention) + 4 * head);
    EXPECT_EQ(step("training: {freeze: [wte, wpe, 'block.0/*']}"),
              2 * block + attention + 6 * block + 3 * attention + 4 * head);
    const double adapters = 8 * (64 + 3 * 64); // c_attn's, of rank 8
    EXPECT_EQ(step("lora: {r: 8}"), 2 * (4 * block + 3 * attention + 6 * adapters) + 4 * head);
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

TEST(ModelConfig, KeysOfAnotherModel) {
    expect_check("model: {rope_theta: 500000}",
                 "run.yaml:1:9: model.rope_theta: has no effect with model.type gpt2; leave this "
                 "key out");
    expect_check("model: {rope_theta: 10000, qk_norm: false}", "accepted");
    expect_check("model: {type: llama, hidden_dropout: 0.1}",
                 "run.yaml:1:22: model.hidden_dropout: has no effect with model.type llama; leave "
                 "this key out");
    expect_check("model: {type: llama, rope_scaling: {factor: 8}}",
                 "run.yaml:1:37: model.rope_scaling.factor: has no effect with rope_type default; "
                 "leave this key out");
    expect_check("model: {type: llama, rope_scaling: {rope_type: linear, beta_fast: 8}}",
                 "run.yaml:1:56: model.rope_scaling.beta_fast: has no effect with rope_type "
                 "linear; leave this key out");
}

TEST(ModelConfig, Llama) {
    expect_check(llama("}"), "accepted");
    expect_check(llama("num_key_value_heads: 2}\nparallel: {tensor_model_parallel_size: 4}"),
                 "accepted");
    expect_check(llama("num_key_value_heads: 3}"),
                 "run.yaml:1:63: model.num_key_value_heads: 3 does not divide "
                 "model.num_attention_heads 8; write 2 or 4");
    expect_check("model: {type: llama, hidden_size: 60, num_attention_heads: 8}",
                 "run.yaml:1:39: model.num_attention_heads: 8 does not divide model.hidden_size "
                 "60; write 6 or 10");
    expect_check("model: {type: llama, hidden_size: 60, num_attention_heads: 8, head_dim: 16}",
                 "accepted");
    expect_check(llama("head_dim: 7}"),
                 "run.yaml:1:63: model.head_dim: 7 is odd, but rotary embeddings turn pairs of "
                 "elements; write 6 or 8");
    expect_check(llama("intermediate_size: 100}\nparallel: {tensor_model_parallel_size: 8}"),
                 "run.yaml:2:12: parallel.tensor_model_parallel_size: 8 ranks cannot share 8 "
                 "attention heads, 8 key/value heads and 100 columns of the MLP equally; write 4");
    expect_check(llama("rope_scaling: {rope_type: llama3, factor: 8}}"),
                 "model.rope_scaling.original_max_position_embeddings (not set, default auto): "
                 "rope_type llama3 needs it; write the context that the model had before it was "
                 "stretched");
    expect_check(llama("rope_scaling: {rope_type: llama3, factor: 8, low_freq_factor: 4, "
                       "original_max_position_embeddings: 64}}"),
                 "model.rope_scaling.high_freq_factor (not set, default 4): 4 is not above "
                 "low_freq_factor 4");
    expect_check(
        llama("rope_scaling: {rope_type: yarn, factor: 8, mscale: 1, "
              "original_max_position_embeddings: 64}}"),
        "run.yaml:1:106: model.rope_scaling.mscale: it has an effect only with mscale_all_dim; "
        "set both or neither");
    expect_check(llama("rope_scaling: {rope_type: yarn, factor: 8, "
                       "original_max_position_embeddings: 64}}"),
                 "accepted");
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
          "run.yaml:5:47: zero_optimization.offload_param.device: nvme needs",
          "run.yaml:6:19: training.steps: '010'", "override optimizer.params.lr=fast: 'fast'",
          "'nonsense' is not an override", "12 does not divide model.hidden_size 100",
          "run.yaml:4:8: bf16.enabled"})
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
