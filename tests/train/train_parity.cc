// Models of Hugging Face's train and generate here as with transformers and PyTorch: the models of
// tests/data/hf_models are imported, trained and exported. tests/data/make-huggingface-fixtures.py
// trained them on the batches of tests/zero/harness.h with its optimizer: AdamW, betas 0.9 and
// 0.95, epsilon 1e-8, learning rate 0.01, decay 0.1 of matrices, gradients clipped to a norm of 1.
// On four ranks: tensor 2 x data 2, ZeRO-3.
//
// ZERO3D_KEEP=DIR keeps the exported models in DIR, with our logits, for that script's --check.
#include <algorithm>
#include <cmath>

#include "tests/checkpoint/huggingface.h"

extern "C" {
#include "src/base/json.h"
#include "src/train/generation/decoder.h"
}

namespace {

class Parity : public ::testing::TestWithParam<const char *> {
  protected:
    void SetUp() override {
        std::string text = read_file(family + "/training.json");
        ASSERT_Z3D(z3d_json_parse(text.data(), text.size(), "training.json", &wanted));
        start = imported(family, "start");
        o.config = start->config;
        o.tensor = std::min(2, z3d_world_size(world));
        o.stage = z3d_world_size(world) > 1 ? 3 : 0;
        o.sequence = start->config->model_seq_length;
        o.vocabulary = start->config->model_vocab_size;
    }
    void TearDown() override {
        z3d_json_free(wanted);
    }
    std::vector<double> list(const char *key) {
        std::vector<double> out;
        for (const z3d_json *i = z3d_json_member(wanted, key)->first; i; i = i->next)
            out.push_back(std::stod(i->text));
        return out;
    }
    // What rank 0 imports from a folder of Hugging Face's.
    std::unique_ptr<Checkpoint> imported(const std::string &from, const std::string &to) {
        if (z3d_world_rank(world) == 0) {
            EXPECT_Z3D(import(from, folder / to));
        }
        SharedFolder::barrier();
        return std::make_unique<Checkpoint>(folder / to);
    }
    // A file of the fixture whose tensors have the names and shapes of the model's.
    std::unique_ptr<Checkpoint> tensors(const std::string &file) {
        const std::string in = folder / (file + "-in");
        if (z3d_world_rank(world) == 0) {
            write_file(in + "/config.json", read_file(family + "/config.json"));
            write_file(in + "/model.safetensors", read_file(family + "/" + file + ".safetensors"));
        }
        return imported(in, file);
    }
    // Saves the trainer's parameters, exports and imports them.
    std::unique_ptr<Checkpoint> out_and_in(Trainer &t, int64_t step) {
        z3d_store *store;
        EXPECT_Z3D(open_store(t, folder / "run", false, 0, &store));
        z3d_checkpoint_info info = {};
        info.config = z3d_checkpoint_get_info(start->c)->config;
        EXPECT_Z3D(z3d_store_save(store, &info));
        z3d_store_close(store);
        SharedFolder::barrier();
        if (z3d_world_rank(world) == 0) {
            EXPECT_Z3D(Checkpoint(folder / "run", step).write(folder / "exported"));
        }
        return imported(folder / "exported", "again");
    }
    void keep(const std::vector<int32_t> &tokens, const std::vector<float> &logits) {
        const char *dir = getenv("ZERO3D_KEEP");
        if (!dir || z3d_world_rank(world) != 0) return;
        const std::string to = std::string(dir) + "/" + GetParam();
        const int32_t count = (int32_t)tokens.size();
        std::filesystem::create_directories(dir);
        std::filesystem::remove_all(to);
        std::filesystem::copy(folder / "exported", to);
        write_file(to + "/logits.bin",
                   std::string((const char *)&count, 4) +
                       std::string((const char *)tokens.data(), 4 * tokens.size()) +
                       std::string((const char *)logits.data(), 4 * logits.size()));
    }

    const std::string family = fixtures + GetParam();
    SharedFolder folder;
    z3d_json *wanted = nullptr;
    std::unique_ptr<Checkpoint> start;
    Options o;
};

// The largest difference of elements first .. last - 1, and the largest of b's.
struct Distance {
    double worst = 0, largest = 0;
    void add(const std::vector<float> &a, const std::vector<float> &b, size_t first, size_t last) {
        ASSERT_EQ(a.size(), b.size());
        for (size_t i = first; i < last; i++) {
            ASSERT_TRUE(std::isfinite(a[i])) << i;
            worst = std::max(worst, std::fabs((double)a[i] - b[i]));
            largest = std::max(largest, std::fabs((double)b[i]));
        }
    }
};

template <typename F> void for_each_parameter(const z3d_model *model, F f) {
    for (int g = 0; g < model->num_groups; g++)
        for (int p = 0; p < model->group[g].num_parameters; p++)
            f(g, p, model->group[g].name, model->group[g].parameter[p].name);
}

// No element is further from transformers' than 1e-5 of the tensor's largest.
void expect_gradients(Trainer &t, Checkpoint &wanted) {
    for_each_parameter(t.model, [&](int g, int p, const char *group, const char *name) {
        const std::vector<float> b = wanted.values(group, name);
        std::vector<float> a(b.size(), NAN);
        Distance d;
        ASSERT_Z3D(z3d_engine_get(t.engine, Z3D_TENSOR_GRADIENT, g, p, a.data()));
        d.add(a, b, 0, b.size());
        EXPECT_LT(d.worst, 1e-5 * d.largest) << group << " " << name;
    });
}

// No element is further from transformers' than 2e-4, a fiftieth of what one step moves it at most
// (the learning rate; all steps move some by 0.2). Adam makes such steps of small gradients, too,
// so their rounding errors count more here than in losses: 5e-5 has been seen.
//
// But for GPT-2's bias of keys: it adds the same to all scores of a query and changes no
// probability. Its gradient is rounding errors alone, and Adam makes steps of them.
void expect_trained(const z3d_model *model, Checkpoint &trained, Checkpoint &wanted) {
    for_each_parameter(model, [&](int, int, const char *group, const char *name) {
        const std::vector<float> a = trained.values(group, name), b = wanted.values(group, name);
        const bool qkv = std::string(name) == "attn.c_attn.bias";
        Distance d;
        d.add(a, b, 0, qkv ? b.size() / 3 : b.size());
        if (qkv) d.add(a, b, b.size() / 3 * 2, b.size());
        EXPECT_LT(d.worst, 2e-4) << group << " " << name;
    });
}

TEST_P(Parity, TrainsAsTransformers) {
    Trainer t(o), again(o);
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(load(t, *start));
    const std::vector<double> losses = list("losses");
    ASSERT_EQ(losses.size(), 20u);
    for (size_t k = 0; k < losses.size(); k++) {
        z3d_step_result r;
        ASSERT_Z3D(t.step(&r));
        EXPECT_NEAR(r.loss, losses[k], 1e-4 * losses[k]) << "step " << k + 1;
        if (k == 0) expect_gradients(t, *tensors("gradients"));
    }
    auto exported = out_and_in(t, (int64_t)losses.size());
    expect_trained(t.model, *exported, *tensors("trained"));
    ASSERT_Z3D(again.create());
    ASSERT_Z3D(load(again, *exported));
    const std::vector<int32_t> tokens = Logits(GetParam()).tokens;
    const std::vector<float> logits = logits_of(t, tokens);
    EXPECT_TRUE(logits == logits_of(again, tokens));
    keep(tokens, logits);
}

z3d_status read_on(z3d_decoder *d, z3d_sequence **sequence) {
    const z3d_decoder_work work = z3d_decoder_look(d, sequence);
    return z3d_decoder_read(d, z3d_decoder_mode(d, &work), sequence);
}

// 64 tokens, none near a tie: at each the two largest logits differ by more than 0.01, ours and
// transformers' by less than 1e-5.
TEST_P(Parity, GeneratesAsTransformers) {
    const int64_t prompt = 11;
    const std::vector<double> next = list("greedy");
    std::vector<int32_t> tokens = Logits(GetParam()).tokens, text(tokens);
    z3d_sequence sequence = {}, *one[] = {&sequence};
    z3d_decoder d;
    o.generate_batch = 1, o.inference = true;
    Trainer t(o);
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(load(t, *start));
    ASSERT_Z3D(z3d_decoder_create(t.engine, &d));
    ASSERT_EQ(d.positions, prompt + 64);
    text.resize((size_t)d.positions);
    sequence.token = text.data(), sequence.length = prompt;
    for (size_t i = 0; i < next.size(); i++) {
        while (sequence.read < sequence.length) ASSERT_Z3D(read_on(&d, one));
        const auto best = std::max_element(d.logits, d.logits + o.vocabulary) - d.logits;
        ASSERT_EQ(best, (int64_t)next[i]) << "token " << i + 1;
        text[(size_t)sequence.length++] = (int32_t)best;
    }
    EXPECT_EQ(sequence.length, d.positions);
    z3d_decoder_release(&d);
}

// Adapters of PEFT's (tests/data/make-lora-fixtures.py): from the same start the same losses, and
// each program loads the other's folder. The trained tensors differ as those of whole models do.
class Lora : public Parity {
  protected:
    void SetUp() override {
        Parity::SetUp();
        z3d_json_free(wanted);
        std::string text = read_file(peft + "/losses.json");
        ASSERT_Z3D(z3d_json_parse(text.data(), text.size(), "losses.json", &wanted));
        const bool gpt = std::string(GetParam()) == "gpt2";
        for (const char *key : gpt ? std::vector<const char *>{"lora.r=4", "lora.lora_alpha=6",
                                                               "lora.target_modules=all-linear"}
                                   : std::vector<const char *>{"lora.r=3", "lora.lora_alpha=4",
                                                               "lora.use_rslora=true",
                                                               "lora.modules_to_save=[lm_head]"})
            ASSERT_Z3D(z3d_config_override(o.config, key));
    }
    void begin(Trainer &t, const std::string &adapter) {
        ASSERT_Z3D(t.create());
        ASSERT_Z3D(load(t, *start));
        ASSERT_Z3D(z3d_adapter_load(world, adapter.c_str(), &base, o.config, t.model, t.engine));
    }
    void expect_losses(Trainer &t) {
        const std::vector<double> losses = list("losses");
        ASSERT_EQ(losses.size(), 20u);
        for (size_t k = 0; k < losses.size(); k++) {
            z3d_step_result r;
            ASSERT_Z3D(t.step(&r));
            EXPECT_NEAR(r.loss, losses[k], (k == 0 ? 1e-5 : 1e-4) * losses[k]) << "step " << k + 1;
        }
    }
    // Of a run's checkpoint: the adapter, or the model with it.
    void write(const std::string &to, bool merged) {
        if (z3d_world_rank(world) == 0) {
            Checkpoint saved(folder / "run", 20);
            z3d_export what = {};
            what.to = to.c_str(), what.merged = merged, what.vocab = merged ? "none" : nullptr;
            EXPECT_Z3D(z3d_checkpoint_export(saved.c, &what));
            EXPECT_EQ(what.adapter, !merged);
        }
        SharedFolder::barrier();
    }
    void save_run(Trainer &t) {
        z3d_store *store;
        z3d_string text = {};
        z3d_config_write(o.config, &text);
        z3d_checkpoint_info info = {};
        info.config = text.text;
        ASSERT_Z3D(open_store(t, folder / "run", false, 0, &store));
        EXPECT_Z3D(z3d_store_save(store, &info));
        z3d_store_close(store);
        z3d_string_free(&text);
        SharedFolder::barrier();
    }

    const std::string peft = ZERO3D_TEST_DATA "/lora/" + std::string(GetParam());
    const z3d_base base = {};
};

double farthest(const std::vector<float> &a, const std::vector<float> &b) {
    Distance d;
    d.add(a, b, 0, b.size());
    return d.worst / std::max(1.0, d.largest);
}

TEST_P(Lora, TrainsAsPeft) {
    const Logits recorded("../lora/" + std::string(GetParam()));
    Trainer t(o), again(o), peft_trained(o);
    begin(t, peft + "/start");
    expect_losses(t);
    save_run(t);
    write(folder / "exported", false);
    const std::vector<float> logits = logits_of(t, recorded.tokens);
    EXPECT_LT(farthest(logits, recorded.values), 1e-3);
    keep(recorded.tokens, logits);
    begin(again, folder / "exported");
    EXPECT_TRUE(logits == logits_of(again, recorded.tokens));
    begin(peft_trained, peft + "/trained");
    EXPECT_LT(farthest(logits_of(peft_trained, recorded.tokens), recorded.values), 1e-5);

    write(folder / "merged", true);
    auto merged = imported(folder / "merged", "whole");
    o.config = merged->config;
    Trainer whole(o);
    ASSERT_Z3D(whole.create());
    ASSERT_Z3D(load(whole, *merged));
    EXPECT_LT(farthest(logits_of(whole, recorded.tokens), logits), 1e-5);
}

// A folder that is none of this run's adapters, and what is said of it.
TEST_P(Lora, AnotherAdapterIsRefused) {
    const bool gpt = std::string(GetParam()) == "gpt2";
    const std::string from = peft + "/start", wrong = folder / "wrong";
    const auto edited = [&](const std::string &old, const std::string &now) {
        std::string text = read_file(from + "/adapter_config.json");
        text.replace(text.find(old), old.size(), now);
        if (z3d_world_rank(world) == 0) write_file(wrong + "/adapter_config.json", text);
        SharedFolder::barrier();
        return wrong;
    };
    const struct {
        const char *key, *old, *now, *said;
        z3d_status status;
    } cases[] = {
        {"lora.r=2", "", "", " in the adapter and 2 in this run; write lora.r=", Z3D_ERR_CONFIG},
        {"lora.lora_alpha=1", "", "", "lora_alpha is ", Z3D_ERR_CONFIG},
        {nullptr, "\"use_dora\": false", "\"use_dora\": true", "use_dora is not supported",
         Z3D_ERR_UNSUPPORTED},
        {nullptr, "\"rank_pattern\": {}", "\"rank_pattern\": {\"q\": 1}",
         "rank_pattern is not supported", Z3D_ERR_UNSUPPORTED},
        {nullptr, "\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\"",
         "init_lora_weights is not true, false, gaussian or orthogonal", Z3D_ERR_UNSUPPORTED},
        {nullptr, "\"LORA\"", "\"IA3\"", "peft_type is not LORA", Z3D_ERR_UNSUPPORTED},
        {nullptr, "{", "[{", "adapter_config.json", Z3D_ERR_DATA},
        {gpt ? "lora.target_modules=[c_attn]" : "lora.modules_to_save=[norm]", "", "",
         "is not trained in this run, but base_model.model.", Z3D_ERR_DATA},
        {gpt ? "lora.modules_to_save=[ln_f]" : "lora.target_modules=all-linear", "", "",
         " is missing; the run trains it (lora.target_modules, lora.modules_to_save), but the "
         "adapter "
         "does not",
         Z3D_ERR_DATA}};
    for (const auto &c : cases) {
        Options other = o;
        z3d_string text = {};
        z3d_config_write(o.config, &text);
        ASSERT_Z3D(z3d_config_create(&other.config));
        ASSERT_Z3D(z3d_config_read_text(other.config, text.text, text.length, "run.yaml"));
        if (c.key) {
            ASSERT_Z3D(z3d_config_override(other.config, c.key));
        }
        {
            Trainer t(other);
            ASSERT_Z3D(t.create());
            const std::string at = c.old[0] ? edited(c.old, c.now) : from;
            EXPECT_EQ(z3d_adapter_load(world, at.c_str(), &base, other.config, t.model, t.engine),
                      c.status);
            const std::string said = z3d_error_message();
            EXPECT_NE(said.find(c.said), std::string::npos) << said;
        }
        z3d_config_destroy(other.config);
        z3d_string_free(&text);
    }
}

TEST_P(Lora, TrainsAsPeftInAPipeline) {
    if (z3d_world_size(world) == 1) GTEST_SKIP() << "one rank has one stage";
    o.tensor = 1, o.pipeline = 2, o.stage = 2, o.accumulation = 2;
    for (z3d_schedule_kind schedule : {Z3D_SCHEDULE_1F1B, Z3D_SCHEDULE_ZB_H1}) {
        o.schedule = schedule;
        Trainer t(o);
        begin(t, peft + "/start");
        expect_losses(t);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Lora, ::testing::Values("gpt2", "llama"),
                         [](const auto &info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(Models, Parity,
                         ::testing::Values("gpt2", "llama", "smollm", "mistral", "qwen2", "qwen3"),
                         [](const auto &info) { return std::string(info.param); });

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
