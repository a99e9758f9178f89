// Import from and export to Hugging Face's Llama, Mistral, Qwen2, Qwen3 and SmolLM, against
// tests/data/hf_models: models that transformers saved, and their logits by PyTorch
// (tests/data/make-huggingface-fixtures.py).
#include "huggingface.h"

#include <algorithm>
#include <cmath>

namespace {

const char *const models[] = {"llama", "smollm", "mistral", "qwen2", "qwen3"};

// The largest difference from PyTorch's logits.
double difference(Trainer &t, const Logits &wanted) {
    const std::vector<float> logits = logits_of(t, wanted.tokens);
    double worst = 0;
    for (size_t i = 0; i < wanted.values.size(); i++)
        worst = std::max(worst, (double)std::fabs(logits[i] - wanted.values[i]));
    return worst;
}

// Rank 0 imports; every way to divide the ranks gives PyTorch's logits.
void expect_logits(const std::string &from, const std::string &model) {
    SharedFolder shared;
    if (z3d_world_rank(world) == 0) {
        EXPECT_Z3D(import(from, shared.path));
    }
    SharedFolder::barrier();
    Checkpoint checkpoint(shared.path);
    const Logits wanted(model);
    for (int tensor = 1; tensor <= z3d_world_size(world); tensor *= 2)
        for (int pipeline = 1; tensor * pipeline <= z3d_world_size(world); pipeline *= 2) {
            Options o;
            o.config = checkpoint.config;
            o.tensor = tensor, o.pipeline = pipeline, o.stage = 3;
            o.global_batch = z3d_world_size(world);
            Trainer t(o);
            ASSERT_Z3D(t.create());
            ASSERT_Z3D(load(t, checkpoint));
            EXPECT_LT(difference(t, wanted), 1e-5)
                << model << ", tensor " << tensor << ", pipeline " << pipeline;
        }
}

TEST(Logits, OfImportedModelsArePyTorchs) {
    for (const char *model : models) expect_logits(fixtures + model, model);
}

TEST(Logits, SurviveExportAndImport) {
    for (const char *model : models) {
        SharedFolder shared;
        if (z3d_world_rank(world) == 0) {
            ASSERT_Z3D(import(fixtures + model, shared.path + "/a"));
            ASSERT_Z3D(Checkpoint(shared.path + "/a").write(shared.path + "/hf", Z3D_F32, 9000));
        }
        SharedFolder::barrier();
        expect_logits(shared.path + "/hf", model);
    }
}

// What follows is one process' work.
class Alone : public ::testing::Test {
  protected:
    void SetUp() override {
        if (z3d_world_rank(world) != 0) GTEST_SKIP();
    }
    Folder folder;
};

bool has(const std::string &file, const std::string &text) {
    return read_file(file).find(text) != std::string::npos;
}

TEST_F(Alone, ExportsSayWhichModelTheyAre) {
    const char *const types[] = {"llama", "llama", "mistral", "qwen2", "qwen3"};
    for (size_t i = 0; i < 5; i++) {
        std::string name = models[i], config = folder / (name + "-hf/config.json");
        ASSERT_Z3D(import(fixtures + name, folder / name));
        Checkpoint c(folder / name);
        ASSERT_Z3D(c.write(folder / (name + "-hf")));
        EXPECT_EQ(c.shards, 1);
        EXPECT_TRUE(has(config, std::string("\"model_type\": \"") + types[i] + "\"")) << name;
        // In again, out again: the same files.
        ASSERT_Z3D(import(folder / (name + "-hf"), folder / (name + "-2")));
        Checkpoint again(folder / (name + "-2"));
        ASSERT_Z3D(again.write(folder / (name + "-hf2")));
        for (const char *file : {"config.json", "model.safetensors"})
            EXPECT_EQ(read_file(folder / (name + "-hf/" + file)),
                      read_file(folder / (name + "-hf2/" + file)));
    }
    EXPECT_TRUE(has(folder / "mistral-hf/config.json", "\"sliding_window\": 7"));
    EXPECT_TRUE(has(folder / "qwen3-hf/config.json", "\"max_window_layers\": 0"));
    EXPECT_TRUE(has(folder / "smollm-hf/config.json", "\"tie_word_embeddings\": true"));
    // transformers' own file of the same weights, but for its metadata and the order of its
    // tensors.
    EXPECT_EQ(std::filesystem::file_size(folder / "llama-hf/model.safetensors") / 100,
              std::filesystem::file_size(fixtures + "llama/model.safetensors") / 100);
}

TEST_F(Alone, ShardsAreAsLargeAsTheyMayBe) {
    ASSERT_Z3D(import(fixtures + "qwen2", folder / "a"));
    Checkpoint c(folder / "a");
    ASSERT_Z3D(c.write(folder / "hf", Z3D_BF16, 6000));
    EXPECT_GT(c.shards, 2);
    int files = 0;
    for (auto &entry : std::filesystem::directory_iterator(folder / "hf")) {
        std::string name = entry.path().filename();
        if (entry.path().extension() == ".safetensors") {
            uint64_t header = 0;
            files++;
            memcpy(&header, read_file(entry.path()).data(), 8);
            EXPECT_LE(entry.file_size() - 8 - header, 6000u) << name;
        }
    }
    EXPECT_EQ(files, c.shards);
    EXPECT_TRUE(has(folder / "hf/model.safetensors.index.json",
                    "\"lm_head.weight\": \"model-0000" + std::to_string(c.shards) + "-of-0000" +
                        std::to_string(c.shards) + ".safetensors\""));
}

TEST_F(Alone, WhatNoProgramHasIsRefused) {
    ASSERT_Z3D(import(fixtures + "llama", folder / "a"));
    Checkpoint c(folder / "a");
    EXPECT_EQ(Z3D_ERR_UNSUPPORTED, c.write(folder / "x.bin", Z3D_F32, 0, Z3D_INTEROP_LLMC));
    EXPECT_STREQ(z3d_error_message(),
                 "llm.c has no llama, only GPT-2; export with --format huggingface");
    EXPECT_FALSE(std::filesystem::exists(folder / "x.bin"));
}

// ---- memory ----

// Bytes of resident memory that this process had at most since the last call of `forget`.
int64_t peak() {
    std::string status = read_file("/proc/self/status");
    return atoll(status.c_str() + status.find("VmHWM:") + 6) * 1024;
}
void forget() {
    write_file("/proc/self/clear_refs", "5");
}

// A model of zeros whose tables take 64 MB each in fp32, and which takes no room on the disk.
void write_large(const std::string &folder) {
    std::string header = "{";
    int64_t at = 0;
    auto add = [&](const std::string &name, int64_t rows, int64_t columns) {
        int64_t end = at + (rows ? rows : 1) * columns * 2;
        header += (at ? ",\"" : "\"") + name + "\":{\"dtype\":\"BF16\",\"shape\":[" +
                  (rows ? std::to_string(rows) + "," : "") + std::to_string(columns) +
                  "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(end) + "]}";
        at = end;
    };
    add("model.embed_tokens.weight", 62500, 256);
    add("lm_head.weight", 62500, 256);
    add("model.norm.weight", 0, 256);
    for (const char *norm : {"input", "post_attention"})
        add(std::string("model.layers.0.") + norm + "_layernorm.weight", 0, 256);
    for (const char *part : {"q", "k", "v", "o"})
        add(std::string("model.layers.0.self_attn.") + part + "_proj.weight", 256, 256);
    for (const char *part : {"gate", "up"})
        add(std::string("model.layers.0.mlp.") + part + "_proj.weight", 16, 256);
    add("model.layers.0.mlp.down_proj.weight", 256, 16);
    header += "}";
    uint64_t length = header.size();
    std::filesystem::create_directories(folder);
    write_file(folder + "/model.safetensors", std::string((const char *)&length, 8) + header);
    std::filesystem::resize_file(folder + "/model.safetensors", 8 + length + (uint64_t)at);
    write_file(folder + "/config.json",
               "{\"model_type\": \"llama\", \"hidden_size\": 256, \"num_hidden_layers\": 1, "
               "\"num_attention_heads\": 2, \"intermediate_size\": 16, \"vocab_size\": 62500, "
               "\"max_position_embeddings\": 8}");
}

TEST_F(Alone, NeitherImportNorExportHoldsATensor) {
    const int64_t most = 40 << 20; // of 128 MB, in tensors of 64 MB
    if (SANITIZED) GTEST_SKIP() << "freed memory stays";
    write_large(folder / "in");
    forget();
    int64_t before = peak();
    ASSERT_Z3D(import(folder / "in", folder / "a"));
    EXPECT_LT(peak() - before, most);
    forget();
    before = peak();
    ASSERT_Z3D(Checkpoint(folder / "a").write(folder / "hf", Z3D_BF16, 40000000));
    EXPECT_LT(peak() - before, most);
    EXPECT_TRUE(has(folder / "hf/model.safetensors.index.json", "-of-00002"));
}

// ---- bad folders ----

class Changed : public Alone {
  protected:
    void take(const std::string &model) {
        std::filesystem::remove_all(folder / "in");
        std::filesystem::copy(fixtures + model, folder / "in");
    }
    void edit(const std::string &file, const std::string &from, const std::string &to) {
        std::string text = read_file(folder / ("in/" + file));
        size_t at = text.find(from);
        ASSERT_NE(at, std::string::npos) << from;
        text.replace(at, from.size(), to);
        write_file(folder / ("in/" + file), text);
    }
    // All lines of the refusal.
    std::string refusal(z3d_status wanted) {
        std::filesystem::remove_all(folder / "out");
        EXPECT_EQ(wanted, import(folder / "in", folder / "out"));
        EXPECT_FALSE(std::filesystem::exists(folder / "out/step-00000000"));
        return z3d_error_message();
    }
    void refused(const std::string &model, const std::string &from, const std::string &to,
                 z3d_status wanted, const std::string &what) {
        take(model);
        edit("config.json", from, to);
        std::string said = refusal(wanted);
        EXPECT_NE(said.find((folder / "in/config.json: ") + what), std::string::npos) << said;
    }
    void accepted(const std::string &model, const std::string &from, const std::string &to) {
        take(model);
        edit("config.json", from, to);
        std::filesystem::remove_all(folder / "out");
        EXPECT_Z3D(import(folder / "in", folder / "out"));
    }
};

TEST_F(Changed, WhatComputesSomethingElseIsRefusedWithItsKey) {
    const z3d_status no = Z3D_ERR_UNSUPPORTED;
    refused("llama", "\"silu\"", "\"gelu\"", no, "hidden_act: gelu is not supported; only silu is");
    refused("llama", "\"attention_bias\": false", "\"attention_bias\": true", no,
            "attention_bias: true is not supported; only false is");
    refused("llama", "\"mlp_bias\": false", "\"mlp_bias\": true", no, "mlp_bias: true");
    refused("llama", "{", "{\"num_experts\": 8,", no, "num_experts: this key is not known");
    refused("llama", "{", "{\"quantization_config\": {},", no, "quantization_config: ");
    refused("llama", "{", "{\"sliding_window\": 5,", no,
            "sliding_window: 5 is not supported; only null is");
    refused("llama", "\"llama3\"", "\"dynamic\"", no,
            "rope_parameters: rope_type: dynamic is not supported; only default, linear, llama3 or "
            "yarn is");
    refused("llama", "\"factor\": 4.0,", "\"scale\": 4.0,", no,
            "rope_parameters: scale: this key is not known");
    refused("llama", "\"model_type\": \"llama\"", "\"model_type\": \"gemma\"", no,
            "model_type gemma is not supported; these are: gpt2, llama, mistral, qwen2, qwen3");
    refused("llama", "\"model_type\": \"llama\",", "", Z3D_ERR_DATA,
            "\"model_type\" is missing; these are supported: gpt2, llama, mistral, qwen2, qwen3");
    refused("qwen2", "\"num_attention_heads\": 2", "\"num_attention_heads\": 6", Z3D_ERR_DATA,
            "num_attention_heads: 6 does not divide hidden_size 20");
    refused("llama", "\"num_hidden_layers\": 2,", "", Z3D_ERR_DATA,
            "\"num_hidden_layers\" is missing");
    refused("qwen3", "\"max_window_layers\": 0", "\"layer_type\": 1", no, "layer_type: ");
    refused("qwen3", "\"sliding_attention\",", "\"full_attention\",", no,
            "layer_types: a sliding window in some layers only is not supported; only in all or in "
            "none is");
    // Two errors, two lines.
    take("llama");
    edit("config.json", "\"silu\"", "\"gelu\"");
    edit("config.json", "\"mlp_bias\": false", "\"mlp_bias\": true");
    std::string said = refusal(no);
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST_F(Changed, WhatComputesTheSameIsAccepted) {
    accepted("llama", "{", "{\"pad_token_id\": 3, \"_name_or_path\": \"x\", \"new_key\": null,");
    accepted("qwen2", "\"max_window_layers\": 28", "\"max_window_layers\": 1");
    // Of two keys the last counts, as in Python.
    accepted("llama", "{", "{\"num_hidden_layers\": 7,");
    refused("llama", "\"num_hidden_layers\": 2,",
            "\"num_hidden_layers\": 2, \"num_hidden_layers\": \"x\",", Z3D_ERR_DATA,
            "\"num_hidden_layers\" is not a number");
}

TEST_F(Changed, WholeNumbersMayHaveAPoint) {
    accepted("llama", "\"original_max_position_embeddings\": 8,",
             "\"original_max_position_embeddings\": 8.0,");
    EXPECT_EQ(
        8, Checkpoint(folder / "out").config->model_rope_scaling_original_max_position_embeddings);
    refused("llama", "\"original_max_position_embeddings\": 8,",
            "\"original_max_position_embeddings\": 8.5,", Z3D_ERR_DATA,
            "rope_parameters: \"original_max_position_embeddings\": 8.5 is not a whole number");
}

// Of two names for one table, transformers may leave out the table's.
TEST_F(Changed, ATiedModelMayHaveItsHeadAlone) {
    take("smollm");
    const std::string table = "\"model.embed_tokens.weight\"", head = "\"lm_head.weight\"";
    edit("model.safetensors", table, head + std::string(table.size() - head.size(), ' '));
    ASSERT_Z3D(import(folder / "in", folder / "out"));
    ASSERT_Z3D(import(fixtures + "smollm", folder / "whole"));
    EXPECT_EQ(Checkpoint(folder / "out").values("embed_tokens", "weight"),
              Checkpoint(folder / "whole").values("embed_tokens", "weight"));
}

// The last value of the last tensor in the file.
void set_last(const std::string &path, float value) {
    std::string text = read_file(path);
    memcpy(&text[text.size() - sizeof value], &value, sizeof value);
    write_file(path, text);
}

TEST_F(Changed, ValuesThatATypeCannotHoldAreRefused) {
    take("llama");
    set_last(folder / "in/model.safetensors", 70000);
    ASSERT_Z3D(import(folder / "in", folder / "out"));
    Checkpoint c(folder / "out");
    EXPECT_EQ(Z3D_ERR_NUMERIC, c.write(folder / "half", Z3D_F16));
    std::string said = z3d_error_message();
    EXPECT_NE(said.find("half: 1 value is not finite in fp16, the first in tensor "),
              std::string::npos)
        << said;
    EXPECT_FALSE(std::filesystem::exists(folder / "half"));
    EXPECT_Z3D(c.write(folder / "bf16", Z3D_BF16));
    c.allow_nonfinite = true;
    EXPECT_Z3D(c.write(folder / "half", Z3D_F16));
    set_last(folder / "in/model.safetensors", std::nanf(""));
    said = refusal(Z3D_ERR_NUMERIC);
    EXPECT_NE(said.find("in: 1 value is not finite in fp32, the first in tensor "),
              std::string::npos)
        << said;
    ASSERT_Z3D(import(folder / "in", folder / "nan", true));
    EXPECT_EQ(Z3D_ERR_NUMERIC, Checkpoint(folder / "nan").write(folder / "hf"));
}

TEST_F(Changed, TheTypeAndTheContextComeBack) {
    for (z3d_dtype dtype : {Z3D_BF16, Z3D_F16, Z3D_F32}) {
        const std::string name = z3d_dtype_name(dtype);
        const char *const names[] = {"float32", "bfloat16", "float16"};
        ASSERT_Z3D(import(fixtures + "llama", folder / (name + "-a")));
        ASSERT_Z3D(Checkpoint(folder / (name + "-a")).write(folder / (name + "-hf"), dtype));
        ASSERT_Z3D(import(folder / (name + "-hf"), folder / (name + "-b")));
        Checkpoint b(folder / (name + "-b"));
        b.own_dtype = true;
        ASSERT_Z3D(b.write(folder / (name + "-again")));
        EXPECT_EQ(read_file(folder / (name + "-hf/model.safetensors")),
                  read_file(folder / (name + "-again/model.safetensors")));
        EXPECT_TRUE(
            has(folder / (name + "-again/config.json"),
                std::string("\"torch_dtype\": \"") + names[b.config->checkpoint_export_dtype]));
    }
    Checkpoint c(folder / "fp32-b");
    const int64_t context = c.config->model_seq_length;
    EXPECT_EQ(c.config->checkpoint_export_max_position_embeddings, context);
    z3d_string text = {};
    c.config->model_seq_length = context / 2; // a run with shorter samples
    const z3d_model_type *type;
    ASSERT_Z3D(z3d_model_type_of(c.config, &type));
    EXPECT_Z3D(type->interop->append_config(c.config, &text));
    EXPECT_NE(
        std::string(text.text).find("\"max_position_embeddings\": " + std::to_string(context)),
        std::string::npos)
        << text.text;
    z3d_string_free(&text);
}

TEST_F(Changed, OtherFormatsHaveTheirAnswers) {
    const z3d_status no = Z3D_ERR_UNSUPPORTED;
    refused("llama", "{", "{\"quantization_config\": {\"quant_method\": \"gptq\"},", no,
            "quantization_config: the weights are quantized (gptq)");
    const struct {
        const char *file, *answer;
    } folders[] = {{"adapter_config.json", "it has an adapter"},
                   {"params.json", "it has Meta's own format"},
                   {"model.Q4_K_M.gguf", "GGUF files (llama.cpp) are not read"}};
    for (const auto &f : folders) {
        std::filesystem::remove_all(folder / "in");
        write_file(folder / (std::string("in/") + f.file), "{}");
        const std::string said = refusal(no);
        EXPECT_NE(said.find(f.answer), std::string::npos) << said;
    }
    write_file(folder / "a.gguf", "GGUF" + std::string(2000, '\0'));
    EXPECT_EQ(no, import(folder / "a.gguf", folder / "out"));
    EXPECT_NE(std::string(z3d_error_message()).find("GGUF files"), std::string::npos);
}

TEST_F(Changed, AllBadTensorsAreNamedAtOnce) {
    take("mistral");
    const std::string index = "model.safetensors.index.json";
    edit("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    edit("config.json", "\"vocab_size\": 61", "\"vocab_size\": 60");
    std::string said = refusal(Z3D_ERR_DATA);
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 10) << said; // 9 of a layer, 2 tables
    EXPECT_NE(said.find("tensor model.embed_tokens.weight: its shape does not fit config.json: "
                        "expected [60, 20]"),
              std::string::npos)
        << said;
    EXPECT_NE(said.find("model.layers.1.mlp.up_proj.weight does not belong to a Llama of 1 layers"),
              std::string::npos)
        << said;
    // More tensors in config.json than in the files.
    take("qwen2");
    edit("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    edit("config.json", "\"full_attention\",", "\"full_attention\", \"full_attention\",");
    said = refusal(Z3D_ERR_DATA);
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 11) << said;
    EXPECT_NE(said.find("tensor model.layers.2.mlp.up_proj.weight is missing"), std::string::npos);
    // Shards that are not there, both named.
    take("mistral");
    std::filesystem::remove(folder / "in/model-00002-of-00004.safetensors");
    std::filesystem::remove(folder / "in/model-00003-of-00004.safetensors");
    said = refusal(Z3D_ERR_IO);
    EXPECT_NE(said.find("00002-of-00004.safetensors: cannot open"), std::string::npos) << said;
    EXPECT_NE(said.find("00003-of-00004.safetensors: cannot open"), std::string::npos) << said;
    // An index that names a tensor in another file, or one that no file has.
    take("mistral");
    edit(index, "\"lm_head.weight\": \"model-00004", "\"lm_head.weight\": \"model-00002");
    said = refusal(Z3D_ERR_DATA);
    EXPECT_NE(said.find(index + ": tensor lm_head.weight is not in model-00002-of-00004"),
              std::string::npos)
        << said;
    take("mistral");
    edit(index, "\"model.norm.weight\"",
         "\"model.norm.bias\": \"model-00001-of-00004.safetensors\", "
         "\"model.norm.weight\"");
    said = refusal(Z3D_ERR_DATA);
    EXPECT_NE(said.find("tensor model.norm.bias is not in model-00001-of-00004"), std::string::npos)
        << said;
    // An index without a tensor, which lies in one of its files.
    take("mistral");
    edit(index, "\"model.norm.weight\"", "\"model.rotary_emb.inv_freq\"");
    said = refusal(Z3D_ERR_DATA);
    EXPECT_NE(said.find(index + ": \"weight_map\" does not name tensor model.norm.weight"),
              std::string::npos)
        << said;
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
