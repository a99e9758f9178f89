// Import from and export to other programs' GPT-2, against tests/data/gpt2_tiny: a model that
// transformers saved, its logits by PyTorch, and the digests of the same weights in llm.c's format
// (tests/data/make-gpt2-fixture.py).
#include "engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

namespace {

const std::string fixture = ZERO3D_TEST_DATA "/gpt2_tiny";

// A file of tensors as model.safetensors has them.
struct Tensors {
    struct Tensor {
        std::string name, dtype, shape, bytes;
    };
    std::vector<Tensor> all;

    static Tensors read(const std::string &path) {
        Tensors t;
        std::string file = read_file(path);
        uint64_t length = 0;
        memcpy(&length, file.data(), 8);
        std::string header = file.substr(8, length), data = file.substr(8 + length);
        const std::string middle = "\":{\"dtype\":\"", offsets = "\"data_offsets\":[";
        for (size_t at = 0; (at = header.find(middle, at)) != std::string::npos; at++) {
            size_t name = header.rfind('"', at - 1) + 1, type = at + middle.size();
            size_t shape = header.find('[', at) + 1, place = header.find(offsets, at);
            unsigned long begin = 0, end = 0;
            sscanf(header.c_str() + place + offsets.size(), "%lu,%lu", &begin, &end);
            t.all.push_back({header.substr(name, at - name),
                             header.substr(type, header.find('"', type) - type),
                             header.substr(shape, header.find(']', shape) - shape),
                             data.substr(begin, end - begin)});
        }
        EXPECT_EQ(t.all.size(), 28u);
        return t;
    }
    void write(const std::string &path) const {
        std::string header = "{", data;
        for (const Tensor &t : all) {
            header += (header.size() > 1 ? ",\"" : "\"") + t.name + "\":{\"dtype\":\"" + t.dtype +
                      "\",\"shape\":[" + t.shape + "],\"data_offsets\":[" +
                      std::to_string(data.size()) + ",";
            data += t.bytes;
            header += std::to_string(data.size()) + "]}";
        }
        header += "}";
        uint64_t length = header.size();
        write_file(path, std::string((const char *)&length, 8) + header + data);
    }
    Tensor &find(const std::string &name) {
        for (Tensor &t : all)
            if (t.name == name) return t;
        ADD_FAILURE() << name;
        return all[0];
    }
};

z3d_status import(const std::string &from, const std::string &to, const char *vocab = nullptr) {
    z3d_import what = {};
    char *folder;
    what.from = from.c_str(), what.to = to.c_str(), what.program = "test", what.vocab = vocab;
    z3d_status status = z3d_checkpoint_import(&what, &folder);
    EXPECT_TRUE(status != Z3D_OK || folder == to + "/step-00000000");
    free(folder);
    return status;
}

struct Checkpoint {
    explicit Checkpoint(const std::string &dir) {
        EXPECT_Z3D(z3d_checkpoint_open((dir + "/step-00000000").c_str(), &c));
    }
    ~Checkpoint() {
        z3d_checkpoint_close(c);
    }
    std::vector<std::vector<float>> values() {
        std::vector<std::vector<float>> all;
        for (int t = 0; t < z3d_checkpoint_num_tensors(c); t++) {
            z3d_part whole;
            z3d_checkpoint_whole(c, t, &whole);
            all.emplace_back((size_t)whole.count);
            EXPECT_Z3D(z3d_checkpoint_read(c, Z3D_TENSOR_PARAMETER, t, &whole, 0, whole.count,
                                           all.back().data()));
        }
        return all;
    }
    void write(z3d_interop_format format, z3d_dtype dtype, const std::string &to) {
        EXPECT_Z3D(try_write(format, dtype, to));
    }
    z3d_status try_write(z3d_interop_format format, z3d_dtype dtype, const std::string &to,
                         const char *vocab = nullptr) {
        z3d_export what = {};
        what.format = format, what.dtype = dtype, what.to = to.c_str(), what.vocab = vocab;
        z3d_status status = z3d_checkpoint_export(c, &what);
        tokenizer = what.tokenizer;
        return status;
    }
    bool tokenizer = false;
    z3d_checkpoint *c = nullptr;
};

Options tiny(int tensor) {
    Options o;
    o.tensor = tensor, o.stage = 3, o.global_batch = z3d_world_size(world);
    o.sequence = 32, o.vocabulary = 557;
    return o;
}

// Rank 0 imports; every way to divide the ranks gives PyTorch's logits.
void expect_logits(const std::string &from) {
    SharedFolder shared;
    if (z3d_world_rank(world) == 0) {
        EXPECT_Z3D(import(from, shared.path));
    }
    SharedFolder::barrier();
    std::string file = read_file(fixture + "/logits.bin");
    int32_t count = 0;
    memcpy(&count, file.data(), 4);
    std::vector<int32_t> tokens((size_t)count);
    memcpy(tokens.data(), file.data() + 4, tokens.size() * 4);
    ASSERT_EQ(file.size(), 4 + tokens.size() * 4 + tokens.size() * 557 * 4);
    const char *at = file.data() + 4 + tokens.size() * 4;
    for (int tensor = 1; tensor <= z3d_world_size(world); tensor *= 2) {
        Trainer t(tiny(tensor));
        ASSERT_Z3D(t.create());
        ASSERT_Z3D(z3d_checkpoint_load_all(world, (shared.path + "/step-00000000").c_str(), nullptr,
                                           t.model, t.engine, Z3D_VERIFY_FULL, true, nullptr,
                                           nullptr, nullptr));
        std::vector<float> logits(600), wanted(557);
        double worst = 0;
        for (int32_t i = 0; i < count; i++) {
            const int32_t positions[] = {0, i};
            ASSERT_Z3D(z3d_engine_generate(t.engine, Z3D_MODE_PREFILL, 0, tokens.data(), positions,
                                           logits.data()));
            memcpy(wanted.data(), at + (size_t)i * 557 * 4, 557 * 4);
            for (size_t v = 0; v < 557; v++)
                worst = std::max(worst, (double)std::fabs(logits[v] - wanted[v]));
        }
        EXPECT_LT(worst, 1e-4) << "tensor " << tensor;
        // Only weights: no run goes on from them.
        EXPECT_EQ(Z3D_ERR_CONFIG,
                  z3d_checkpoint_load_all(world, (shared.path + "/step-00000000").c_str(), nullptr,
                                          t.model, t.engine, Z3D_VERIFY_READ, false, nullptr,
                                          nullptr, nullptr));
        EXPECT_NE(strstr(z3d_error_message(), "init_from"), nullptr) << z3d_error_message();
    }
}

TEST(Logits, OfAnImportedModelArePyTorchs) {
    expect_logits(fixture);
}

TEST(Logits, SurviveExportAndImport) {
    SharedFolder shared;
    if (z3d_world_rank(world) == 0) {
        ASSERT_Z3D(import(fixture, shared.path + "/a"));
        Checkpoint a(shared.path + "/a");
        a.write(Z3D_INTEROP_HUGGINGFACE, Z3D_F32, shared.path + "/hf");
        a.write(Z3D_INTEROP_LLMC, Z3D_F32, shared.path + "/llmc.bin");
    }
    SharedFolder::barrier();
    expect_logits(shared.path + "/hf");
    expect_logits(shared.path + "/llmc.bin");
}

// What follows is one process' work.
class Alone : public ::testing::Test {
  protected:
    void SetUp() override {
        if (z3d_world_rank(world) != 0) GTEST_SKIP();
    }
    Folder folder;
};

TEST_F(Alone, ImportThenExportKeepsEveryByte) {
    ASSERT_Z3D(import(fixture, folder / "a"));
    Checkpoint a(folder / "a");
    EXPECT_Z3D(z3d_checkpoint_check(a.c, Z3D_VERIFY_FULL, 0, 0, 1, nullptr));
    a.write(Z3D_INTEROP_HUGGINGFACE, Z3D_F32, folder / "hf");
    Tensors before = Tensors::read(fixture + "/model.safetensors");
    Tensors after = Tensors::read(folder / "hf/model.safetensors");
    for (const auto &t : after.all) {
        const auto &b = before.find("transformer." + t.name);
        EXPECT_EQ(t.dtype, b.dtype);
        EXPECT_EQ(t.shape, b.shape) << t.name;
        EXPECT_TRUE(t.bytes == b.bytes) << t.name;
    }
    // The header is canonical: exported again, the file is the same.
    ASSERT_Z3D(import(folder / "hf", folder / "b"));
    Checkpoint(folder / "b").write(Z3D_INTEROP_HUGGINGFACE, Z3D_F32, folder / "again");
    EXPECT_TRUE(read_file(folder / "hf/model.safetensors") ==
                read_file(folder / "again/model.safetensors"));
    EXPECT_EQ(read_file(folder / "hf/config.json"), read_file(folder / "again/config.json"));
}

TEST_F(Alone, SixteenBitsAreKeptToo) {
    ASSERT_Z3D(import(fixture, folder / "a"));
    for (z3d_dtype dtype : {Z3D_BF16, Z3D_F16}) {
        std::string name = z3d_dtype_name(dtype);
        Checkpoint(folder / "a").write(Z3D_INTEROP_HUGGINGFACE, dtype, folder / name);
        ASSERT_Z3D(import(folder / name, folder / (name + "-c")));
        auto values = Checkpoint(folder / (name + "-c")).values(),
             all = Checkpoint(folder / "a").values();
        for (size_t t = 0; t < all.size(); t++)
            for (size_t i = 0; i < all[t].size(); i++)
                ASSERT_EQ(values[t][i], dtype == Z3D_BF16
                                            ? z3d_bf16_to_float(z3d_float_to_bf16(all[t][i]))
                                            : z3d_f16_to_float(z3d_float_to_f16(all[t][i])));
        Checkpoint(folder / (name + "-c"))
            .write(Z3D_INTEROP_HUGGINGFACE, dtype, folder / (name + "2"));
        EXPECT_TRUE(read_file(folder / (name + "/model.safetensors")) ==
                    read_file(folder / (name + "2/model.safetensors")));
    }
    EXPECT_EQ(Z3D_ERR_USAGE, Checkpoint(folder / "a").try_write(Z3D_INTEROP_LLMC, Z3D_F16, "x"));
}

TEST_F(Alone, LlmcsFilesAreThoseThatItsLayoutGives) {
    std::istringstream digests(read_file(fixture + "/llmc.txt"));
    ASSERT_Z3D(import(fixture, folder / "a"));
    auto all = Checkpoint(folder / "a").values();
    for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16}) {
        std::string wanted, name = folder / z3d_dtype_name(dtype);
        char digest[Z3D_DIGEST_TEXT];
        digests >> wanted;
        Checkpoint(folder / "a").write(Z3D_INTEROP_LLMC, dtype, name);
        std::string file = read_file(name);
        z3d_digest_text(z3d_digest_of(file.data(), (int64_t)file.size()), digest);
        EXPECT_EQ(digest, wanted);
        ASSERT_Z3D(import(name, name + "-c"));
        auto values = Checkpoint(name + "-c").values();
        for (size_t t = 0; t < all.size(); t++)
            for (size_t i = 0; i < all[t].size(); i++)
                ASSERT_EQ(values[t][i], dtype == Z3D_F32
                                            ? all[t][i]
                                            : z3d_bf16_to_float(z3d_float_to_bf16(all[t][i])));
        Checkpoint(name + "-c").write(Z3D_INTEROP_LLMC, dtype, name + "-2");
        EXPECT_TRUE(read_file(name + "-2") == file);
    }
}

TEST_F(Alone, LlmcsFilesAreCheckedBeforeTheyAreBelieved) {
    ASSERT_Z3D(import(fixture, folder / "a"));
    Checkpoint(folder / "a").write(Z3D_INTEROP_LLMC, Z3D_F32, folder / "good");
    std::string good = read_file(folder / "good");
    auto refused = [&](std::string file, z3d_status wanted, const char *what) {
        write_file(folder / "bad", file);
        EXPECT_EQ(wanted, import(folder / "bad", folder / "b")) << what;
        EXPECT_NE(strstr(z3d_error_message(), what), nullptr) << z3d_error_message();
        EXPECT_NE(strstr(z3d_error_message(), (folder / "bad").c_str()), nullptr);
        EXPECT_FALSE(std::filesystem::exists(folder / "b/step-00000000"));
    };
    auto with = [&](int place, int32_t value) {
        std::string file = good;
        memcpy(&file[(size_t)place * 4], &value, 4);
        return file;
    };
    refused("", Z3D_ERR_DATA, "expected a folder");
    refused(with(0, 20240520), Z3D_ERR_DATA, "not a checkpoint of llm.c: it begins with 20240520");
    refused(with(1, 2), Z3D_ERR_UNSUPPORTED, "version 2");
    refused(with(2, -1), Z3D_ERR_DATA, "-1 positions");
    refused(with(3, 0), Z3D_ERR_DATA, "0 token ids");
    refused(with(4, 1 << 30), Z3D_ERR_DATA, "layers");
    refused(with(4, 10000), Z3D_ERR_DATA, "bytes are too few for 10000 layers");
    refused(with(4, 1), Z3D_ERR_DATA, "; its header describes");
    refused(with(5, 7), Z3D_ERR_CONFIG, "heads");
    refused(with(6, 1 << 20), Z3D_ERR_DATA, "too few");
    refused(with(7, 556), Z3D_ERR_DATA, "the padded vocabulary (556) is smaller");
    refused(with(7, 1 << 30), Z3D_ERR_DATA, "; its header describes");
    refused(good.substr(0, good.size() - 1), Z3D_ERR_DATA, "; its header describes");
    refused(good + "x", Z3D_ERR_DATA, "; its header describes");
    // Ten thousand layers of one channel are a small file: no reason to be busy for minutes.
    std::string many = good.substr(0, 1024);
    const int32_t sizes[] = {1, 2, 10000, 1, 1, 2};
    memcpy(&many[8], sizes, sizeof sizes);
    many.resize(600000); // as many bytes as two for each parameter
    auto begin = std::chrono::steady_clock::now();
    refused(many, Z3D_ERR_DATA, "; its header describes");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

// The fixture's files, changed.
class HuggingFace : public Alone {
  protected:
    void SetUp() override {
        Alone::SetUp();
        std::filesystem::create_directories(folder / "in");
        std::filesystem::copy_file(fixture + "/config.json", folder / "in/config.json");
        tensors = Tensors::read(fixture + "/model.safetensors");
    }
    z3d_status again() {
        std::filesystem::remove_all(folder / "out");
        return import(folder / "in", folder / "out");
    }
    void refused(const std::function<void(Tensors &)> &change, z3d_status wanted,
                 const char *what) {
        Tensors changed = tensors;
        change(changed);
        changed.write(folder / "in/model.safetensors");
        EXPECT_EQ(wanted, again()) << what;
        EXPECT_NE(strstr(z3d_error_message(), what), nullptr) << z3d_error_message();
        EXPECT_FALSE(std::filesystem::exists(folder / "out/step-00000000"));
    }
    Tensors tensors;
};

TEST_F(HuggingFace, PrefixMasksAndATiedHeadDoNotMatter) {
    ASSERT_Z3D(import(fixture, folder / "a"));
    auto wanted = Checkpoint(folder / "a").values();
    Tensors t = tensors;
    std::string table = t.find("transformer.wte.weight").bytes;
    for (auto &each : t.all) each.name = each.name.substr(12);
    std::reverse(t.all.begin(), t.all.end());
    for (const char *layer : {"0", "1"}) {
        t.all.push_back({std::string("h.") + layer + ".attn.bias", "BOOL", "1,1,2,2", "abcd"});
        t.all.push_back({std::string("h.") + layer + ".attn.masked_bias", "F32", "1", "abcd"});
    }
    t.all.push_back({"lm_head.weight", "F32", "557,32", table});
    t.write(folder / "in/model.safetensors");
    ASSERT_Z3D(again());
    EXPECT_TRUE(Checkpoint(folder / "out").values() == wanted);
    // A second one into the same folder is refused, and harms nothing.
    EXPECT_EQ(Z3D_ERR_IO, import(folder / "in", folder / "out"));
    EXPECT_NE(strstr(z3d_error_message(), "it already has checkpoints"), nullptr);
    EXPECT_TRUE(Checkpoint(folder / "out").values() == wanted);
}

// Keys of the published config.json of GPT-2, of DistilGPT-2 and of DialoGPT, and of versions of
// transformers that wrote all keys; the type is newer than the first of them.
TEST_F(HuggingFace, KeysThatDoNotMatterAreAccepted) {
    std::string config = read_file(fixture + "/config.json");
    const std::string type = "\"model_type\": \"gpt2\",";
    config.replace(config.find(type), type.size(),
                   "\"n_ctx\": 32, \"n_special\": 0, \"predict_special_tokens\": true, "
                   "\"task_specific_params\": {\"conversational\": {\"max_length\": 1000}}, "
                   "\"_num_labels\": 1, \"id2label\": {\"0\": \"LABEL_0\"}, "
                   "\"finetuning_task\": null, \"output_past\": true, \"pruned_heads\": {}, "
                   "\"gradient_checkpointing\": false, \"do_sample\": true, \"max_length\": 50, "
                   "\"tokenizer_class\": \"GPT2Tokenizer\", \"pad_token_id\": 0,");
    write_file(folder / "in/config.json", config);
    tensors.write(folder / "in/model.safetensors");
    EXPECT_Z3D(again());
}

TEST_F(HuggingFace, BadTensorsAreNamed) {
    const std::string name = "transformer.h.1.mlp.c_fc.weight";
    refused([&](Tensors &t) { t.find(name).name = "transformer.h.1.mlp.c_gate.weight"; },
            Z3D_ERR_DATA,
            "tensor transformer.h.1.mlp.c_gate.weight does not belong to a GPT-2 of 2 layers");
    refused([&](Tensors &t) { t.all.erase(t.all.begin()); }, Z3D_ERR_DATA,
            "tensor h.0.attn.c_attn.bias is missing");
    refused([&](Tensors &t) { t.find(name).shape = "128,32"; }, Z3D_ERR_DATA,
            "tensor transformer.h.1.mlp.c_fc.weight: its shape does not fit config.json: expected "
            "[32, 128]");
    refused([&](Tensors &t) { t.find("transformer.ln_f.bias").shape = "32,1"; }, Z3D_ERR_DATA,
            "tensor transformer.ln_f.bias: its shape does not fit");
    refused([&](Tensors &t) { t.find(name).dtype = "I64"; }, Z3D_ERR_DATA,
            "c_fc.weight: expected dtype F32, F16 or BF16");
    refused([&](Tensors &t) { t.find(name).dtype = "F16"; }, Z3D_ERR_DATA,
            "c_fc.weight: \"data_offsets\"");
    refused([&](Tensors &t) { t.find(name).bytes.pop_back(); }, Z3D_ERR_DATA,
            "c_fc.weight: \"data_offsets\"");
    refused([&](Tensors &t) { t.all.push_back(t.all[0]); }, Z3D_ERR_DATA, "appears twice");
    refused(
        [&](Tensors &t) {
            t.all.push_back({"lm_head.weight", "F32", "557,32", std::string(557 * 32 * 4, 'x')});
        },
        Z3D_ERR_UNSUPPORTED, "tensor lm_head.weight differs from wte.weight");
    std::string file = read_file(fixture + "/model.safetensors");
    auto raw = [&](const std::string &bytes, const char *what) {
        write_file(folder / "in/model.safetensors", bytes);
        EXPECT_EQ(Z3D_ERR_DATA, again());
        EXPECT_NE(strstr(z3d_error_message(), what), nullptr) << z3d_error_message();
    };
    raw(file.substr(0, file.size() - 4), "end after the file's");
    raw(std::string(8, '\xff') + file.substr(8), "not a safetensors file");
    raw(file.substr(0, 8) + "[" + file.substr(9), "model.safetensors:");
    raw(file.substr(0, 1 << 16) + std::string(1 << 16, '\0'), "end after the file's");
    raw("", "too few");
}

// The specification: tensors do not overlap, there is no hole between them, the file ends with the
// last one. Offsets of the fixture's tensors are changed in the header only, or bytes added.
TEST_F(HuggingFace, TensorsFillTheFileOnce) {
    Tensors t = tensors;
    t.write(folder / "in/model.safetensors");
    const std::string good = read_file(folder / "in/model.safetensors");
    auto raw = [&](const std::string &bytes, const std::string &what) {
        write_file(folder / "in/model.safetensors", bytes);
        EXPECT_EQ(Z3D_ERR_DATA, again()) << what;
        EXPECT_NE(std::string(z3d_error_message()).find(what), std::string::npos)
            << z3d_error_message();
        EXPECT_FALSE(std::filesystem::exists(folder / "out/step-00000000"));
    };
    auto offsets = [&](const std::string &file, const std::string &name) {
        size_t at = file.find('[', file.find("data_offsets", file.find(name)));
        return std::make_pair(at, file.substr(at, file.find(']', at) + 1 - at));
    };
    uint64_t length = 0;
    memcpy(&length, good.data(), 8);
    std::string size = std::to_string(good.size() - 8 - length);
    raw(good + "tail",
        "model.safetensors: 4 bytes follow the last tensor, which ends at byte " + size);
    // A tensor of the second layer is given the place of the first layer's.
    auto [at_a, range_a] = offsets(good, "transformer.h.0.ln_1.weight");
    auto [at_b, range_b] = offsets(good, "transformer.h.1.ln_1.weight");
    std::string overlap = good, same = range_a;
    ASSERT_LE(same.size(), range_b.size());
    same.insert(1, range_b.size() - same.size(), ' ');
    overlap.replace(at_b, range_b.size(), same);
    raw(overlap, "tensor transformer.h.");
    EXPECT_NE(strstr(z3d_error_message(), ") overlaps tensor transformer.h."), nullptr)
        << z3d_error_message();
    // A mask, which is left out, no longer owns its bytes.
    t.all.insert(t.all.begin() + 3, {"h.0.attn.masked_bias", "F32", "1", "abcd"});
    t.write(folder / "in/model.safetensors");
    ASSERT_Z3D(again());
    std::string hole = read_file(folder / "in/model.safetensors");
    auto [at, range] = offsets(hole, "masked_bias");
    std::string begin = range.substr(1, range.find(',') - 1), none = "[" + begin + "," + begin;
    hole.replace(at, range.size(), none + std::string(range.size() - none.size() - 1, ' ') + "]");
    raw(hole, "model.safetensors: bytes " + begin + " to " + std::to_string(std::stol(begin) + 4) +
                  ", before tensor ");
}

// The same weights in three files, as transformers writes them beyond max_shard_size.
class Sharded : public HuggingFace {
  protected:
    void SetUp() override {
        HuggingFace::SetUp();
        if (IsSkipped()) return;
        std::string map;
        std::vector<Tensors> parts(3);
        for (size_t i = 0; i < tensors.all.size(); i++) {
            parts[i % 3].all.push_back(tensors.all[i]);
            map +=
                (map.empty() ? "\"" : ",\"") + tensors.all[i].name + "\":\"" + name(i % 3) + "\"";
        }
        for (size_t i = 0; i < 3; i++) parts[i].write(folder / ("in/" + name(i)));
        index = "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {" + map + "}}";
        write_file(folder / "in/model.safetensors.index.json", index);
    }
    static std::string name(size_t i) {
        return "model-0000" + std::to_string(i + 1) + "-of-00003.safetensors";
    }
    void refused_index(const std::string &text, z3d_status wanted, const char *what) {
        write_file(folder / "in/model.safetensors.index.json", text);
        EXPECT_EQ(wanted, again()) << what;
        EXPECT_NE(strstr(z3d_error_message(), what), nullptr) << z3d_error_message();
    }
    std::string index;
};

TEST_F(Sharded, GivesTheModelOfOneFile) {
    ASSERT_Z3D(import(fixture, folder / "a"));
    ASSERT_Z3D(again());
    EXPECT_TRUE(Checkpoint(folder / "out").values() == Checkpoint(folder / "a").values());
}

TEST_F(Sharded, BadShardsAreNamed) {
    refused_index("{}", Z3D_ERR_DATA, "model.safetensors.index.json: \"weight_map\" is missing");
    refused_index("{\"weight_map\": {}}", Z3D_ERR_DATA, "names no tensor");
    refused_index("{\"weight_map\": {\"a\": \"../x\"}}", Z3D_ERR_DATA,
                  "tensor a: expected the name");
    refused_index("{\"weight_map\": {\"a\": 1}}", Z3D_ERR_DATA, "tensor a: expected the name");
    std::string file = read_file(folder / ("in/" + name(1)));
    write_file(folder / ("in/" + name(1)), file + "x");
    refused_index(index, Z3D_ERR_DATA,
                  "model-00002-of-00003.safetensors: 1 bytes follow the last tensor");
    write_file(folder / ("in/" + name(1)), read_file(folder / ("in/" + name(0))));
    refused_index(index, Z3D_ERR_DATA, "appears twice");
    Tensors less;
    less.all = {tensors.all[1]};
    less.write(folder / ("in/" + name(1)));
    refused_index(index, Z3D_ERR_DATA, "is missing");
    std::filesystem::remove(folder / ("in/" + name(1)));
    refused_index(index, Z3D_ERR_IO, "model-00002-of-00003.safetensors: cannot open it");
    std::filesystem::remove(folder / "in/model.safetensors.index.json");
    EXPECT_EQ(Z3D_ERR_IO, again());
    EXPECT_NE(strstr(z3d_error_message(), "neither model.safetensors nor"), nullptr)
        << z3d_error_message();
}

TEST_F(HuggingFace, OtherModelsAreRefused) {
    std::string good = read_file(fixture + "/config.json");
    tensors.write(folder / "in/model.safetensors");
    auto with = [&](const std::string &from, const std::string &to, z3d_status wanted,
                    const char *what) {
        std::string config = good;
        size_t at = config.find(from);
        ASSERT_NE(at, std::string::npos) << from;
        config.replace(at, from.size(), to);
        write_file(folder / "in/config.json", config);
        EXPECT_EQ(wanted, again()) << to;
        EXPECT_NE(strstr(z3d_error_message(), what), nullptr) << z3d_error_message();
    };
    with("gelu_new", "relu", Z3D_ERR_UNSUPPORTED,
         "config.json: activation_function: relu is not supported; only gelu_new is");
    with("1e-05", "1e-06", Z3D_ERR_UNSUPPORTED,
         "layer_norm_epsilon: 1e-06 is not supported; only 1e-5 is");
    with("\"n_inner\": null", "\"n_inner\": 64", Z3D_ERR_UNSUPPORTED,
         "n_inner: 64 is not supported; only null or 4 times");
    with("\"model_type\": \"gpt2\"", "\"model_type\": \"bert\"", Z3D_ERR_UNSUPPORTED,
         "config.json: model_type bert is not supported; these are: gpt2, llama, mistral, qwen2, "
         "qwen3");
    // A BERT has none of GPT-2's keys: its type is what is said.
    with(good, "{\"model_type\": \"bert\", \"hidden_size\": 32}", Z3D_ERR_UNSUPPORTED,
         "config.json: model_type bert is not supported; these are: gpt2, llama, mistral, qwen2, "
         "qwen3");
    with("{", "{\"n_experts\": 8,", Z3D_ERR_UNSUPPORTED,
         "config.json: n_experts: this key is not known; if it does not change what the model "
         "computes, remove it from the file");
    with("\"scale_attn_weights\": true", "\"scale_attn_weights\": false", Z3D_ERR_UNSUPPORTED,
         "scale_attn_weights: false is not supported; only true is");
    with("\"n_layer\": 2", "\"n_layer\": 1", Z3D_ERR_DATA,
         "does not belong to a GPT-2 of 1 layers");
    with("\"n_layer\": 2", "\"n_layer\": 3", Z3D_ERR_DATA, "tensor h.2.ln_1.weight is missing");
    with("\"n_layer\": 2", "\"n_layer\": 30", Z3D_ERR_DATA, "too few");
    with("\"n_layer\": 2", "\"n_layers\": 2", Z3D_ERR_DATA, "config.json: \"n_layer\" is missing");
    with("\"n_head\": 4", "\"n_head\": 5", Z3D_ERR_CONFIG, "heads");
    with("\"n_embd\": 32", "\"n_embd\": -1", Z3D_ERR_DATA, "\"n_embd\": -1 is not a whole number");
    with("\"vocab_size\": 557", "\"vocab_size\": 556", Z3D_ERR_DATA,
         "wte.weight: its shape does not fit");
    with("{", "[", Z3D_ERR_DATA, "config.json:");
    std::filesystem::remove(folder / "in/config.json");
    EXPECT_EQ(Z3D_ERR_IO, again());
    EXPECT_NE(strstr(z3d_error_message(), "config.json"), nullptr) << z3d_error_message();
}

// A model with several end tokens keeps them all; one whose list has one keeps a list.
TEST_F(HuggingFace, EveryEndTokenStays) {
    tensors.write(folder / "in/model.safetensors");
    const std::string plain = read_file(folder / "in/config.json");
    for (const char *ends : {"[2, 5]", "[5]", "7"}) {
        const std::string one = "\"eos_token_id\": 556", key = one.substr(0, 16) + ends;
        std::string config = plain;
        write_file(folder / "in/config.json", config.replace(plain.find(one), one.size(), key));
        std::string out = folder / ("out " + key), hf = folder / ("hf " + key);
        ASSERT_Z3D(import(folder / "in", out, fixture.c_str()));
        Checkpoint(out).write(Z3D_INTEROP_HUGGINGFACE, Z3D_F32, hf);
        for (const char *name : {"/config.json", "/generation_config.json"})
            EXPECT_NE(read_file(hf + name).find(key), std::string::npos) << read_file(hf + name);
    }
}

// An imported model keeps its tokenizer, and its begin and end tokens; an export has them again.
TEST_F(HuggingFace, TheTokenizerStaysWithTheModel) {
    tensors.write(folder / "in/model.safetensors");
    ASSERT_Z3D(again());
    std::string config = z3d_checkpoint_get_info(Checkpoint(folder / "out").c)->config;
    EXPECT_NE(config.find("tokenizer: gpt2"), std::string::npos) << config;
    EXPECT_EQ(config.find("out/tokenizer"), std::string::npos) << config;
    // Nobody knows it: 557 ids have no token 50256.
    Checkpoint(folder / "out").write(Z3D_INTEROP_HUGGINGFACE, Z3D_F32, folder / "none");
    EXPECT_FALSE(std::filesystem::exists(folder / "none/vocab.json"));
    EXPECT_NE(read_file(folder / "none/config.json").find("\"bos_token_id\": null"),
              std::string::npos);
    EXPECT_EQ(Z3D_ERR_IO, import(folder / "in", folder / "third", "nowhere"));

    ASSERT_Z3D(import(folder / "in", folder / "other", fixture.c_str()));
    config = z3d_checkpoint_get_info(Checkpoint(folder / "other").c)->config;
    EXPECT_NE(config.find("\n  vocab: \"tokenizer\"\n"), std::string::npos) << config;
    // The file is that of a run that begins with the model's weights.
    for (auto [key, value] : {std::pair{"resume: \"auto\"\n  init_from: ", "\"step-00000000\""},
                              {" lr: ", "5e-05"},
                              {"gradient_clipping: ", "1"}}) {
        size_t at = config.find(key) + strlen(key);
        config.replace(at, config.find('\n', at) - at, value);
    }
    EXPECT_EQ(config, read_file(folder / "other/config.yaml"));
    // Moved, it still knows.
    std::filesystem::rename(folder / "other", folder / "moved");
    Checkpoint moved(folder / "moved");
    moved.write(Z3D_INTEROP_HUGGINGFACE, Z3D_F32, folder / "hf");
    EXPECT_TRUE(moved.tokenizer);
    for (const char *name : {"/vocab.json", "/merges.txt"})
        EXPECT_EQ(read_file((folder / "hf") + name), read_file(fixture + name));
    for (const char *name : {"hf/config.json", "hf/generation_config.json"}) {
        std::string text = read_file(folder / name);
        EXPECT_NE(text.find("\"bos_token_id\": 556"), std::string::npos) << name;
        EXPECT_NE(text.find("\"eos_token_id\": 556"), std::string::npos) << name;
    }
    for (const char *name : {"hf/tokenizer_config.json", "hf/special_tokens_map.json"})
        EXPECT_NE(read_file(folder / name).find("\"eos_token\": \"<|endoftext|>\""),
                  std::string::npos)
            << name;
    std::string tokenizer = read_file(folder / "hf/tokenizer.json");
    z3d_json *root = nullptr;
    ASSERT_Z3D(z3d_json_parse(tokenizer.data(), tokenizer.size(), "tokenizer.json", &root));
    const z3d_json *model = z3d_json_member(root, "model");
    EXPECT_EQ(z3d_json_member(model, "vocab")->count, 557);
    EXPECT_EQ(z3d_json_member(model, "merges")->count, 300);
    EXPECT_EQ(z3d_json_member(root, "added_tokens")->count, 1);
    z3d_json_free(root);
    // In and out again: every file is the same, to the byte; one that the user changed too.
    write_file(folder / "hf/tokenizer_config.json", "{\"mine\": 1}");
    std::filesystem::remove(folder / "hf/special_tokens_map.json"); // is not made beside it
    std::string padded = read_file(folder / "hf/config.json");
    padded.insert(padded.find("\"torch_dtype\""), "\"pad_token_id\": 3,\n  ");
    padded.replace(padded.find("\"bos_token_id\": 556"), 19, "\"bos_token_id\": null");
    write_file(folder / "hf/config.json", padded);
    ASSERT_Z3D(import(folder / "hf", folder / "again"));
    Checkpoint(folder / "again").write(Z3D_INTEROP_HUGGINGFACE, Z3D_F32, folder / "hf2");
    int files = 0;
    for (auto &entry : std::filesystem::directory_iterator(folder / "hf2")) {
        std::string name = entry.path().filename();
        EXPECT_TRUE(read_file(folder / ("hf/" + name)) == read_file(folder / ("hf2/" + name)))
            << name;
        files++;
    }
    EXPECT_EQ(files, 7);
    // In neither place: nothing is written. Another tokenizer, or none, can be given.
    std::filesystem::remove_all(folder / "moved/tokenizer");
    EXPECT_EQ(Z3D_ERR_IO, moved.try_write(Z3D_INTEROP_HUGGINGFACE, Z3D_F32, folder / "lost"));
    EXPECT_NE(strstr(z3d_error_message(), "give --vocab"), nullptr) << z3d_error_message();
    EXPECT_FALSE(std::filesystem::exists(folder / "lost"));
    EXPECT_Z3D(
        moved.try_write(Z3D_INTEROP_HUGGINGFACE, Z3D_F32, folder / "given", fixture.c_str()));
    EXPECT_EQ(read_file(folder / "given/vocab.json"), read_file(fixture + "/vocab.json"));
    EXPECT_Z3D(moved.try_write(Z3D_INTEROP_HUGGINGFACE, Z3D_F32, folder / "without", "none"));
    EXPECT_FALSE(moved.tokenizer);
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
