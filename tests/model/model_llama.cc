// Llama's description, and its forward pass against plain loops in fp64.
#include <algorithm>
#include <string>

#include "tests/expect.h"
#include "tests/model/chain.h"

namespace {

z3d_llama_config llama3_8b() {
    z3d_llama_config c{};
    c.num_layers = 32;
    c.hidden_size = 4096;
    c.num_heads = 32;
    c.num_key_value_heads = 8;
    c.head_dim = 128;
    c.intermediate_size = 14336;
    c.seq_length = 8192;
    c.vocab_size = 128256;
    c.vocab_multiple = 128;
    c.init_std = 0.02;
    c.rms_norm_eps = 1e-5;
    c.rope.theta = 500000;
    c.tensor_size = 1;
    return c;
}

z3d_llama_config llama3_70b() {
    z3d_llama_config c = llama3_8b();
    c.num_layers = 80, c.hidden_size = 8192, c.num_heads = 64, c.intermediate_size = 28672;
    return c;
}

// Qwen3-0.6B: norms of queries and keys, tied tables, heads wider than hidden / heads.
z3d_llama_config qwen3() {
    z3d_llama_config c = llama3_8b();
    c.num_layers = 28, c.hidden_size = 1024, c.num_heads = 16, c.intermediate_size = 3072;
    c.vocab_size = 151936, c.qk_norm = c.tie_word_embeddings = true;
    return c;
}

// Qwen2-0.5B: biases, tied tables.
z3d_llama_config qwen2() {
    z3d_llama_config c = llama3_8b();
    c.num_layers = 24, c.hidden_size = 896, c.num_heads = 14, c.num_key_value_heads = 2;
    c.head_dim = 64, c.intermediate_size = 4864, c.vocab_size = 151936;
    c.attention_bias = c.tie_word_embeddings = true;
    return c;
}

struct Model {
    z3d_model *model = NULL;
    explicit Model(const z3d_llama_config &config) {
        if (z3d_llama_create(&config, &model) != Z3D_OK) ADD_FAILURE() << z3d_error_message();
    }
    ~Model() {
        z3d_model_destroy(model);
    }
};

TEST(Llama, HasItsPublishedSize) {
    EXPECT_EQ(8030261248, z3d_model_parameter_count(Model(llama3_8b()).model));
    EXPECT_EQ(70553706496, z3d_model_parameter_count(Model(llama3_70b()).model));
    EXPECT_EQ(596049920, z3d_model_parameter_count(Model(qwen3()).model));
    EXPECT_EQ(494032768, z3d_model_parameter_count(Model(qwen2()).model));
}

TEST(Llama, GroupsUnitsAndParameters) {
    Model llama(llama3_8b());
    const z3d_model *m = llama.model;
    ASSERT_EQ(35, m->num_groups);
    ASSERT_EQ(34, m->num_units);
    EXPECT_STREQ("embed_tokens", m->group[0].name);
    EXPECT_STREQ("layers.31", m->group[32].name);
    EXPECT_STREQ("norm", m->group[33].name);
    EXPECT_STREQ("lm_head", m->group[34].name);
    EXPECT_EQ(34, m->unit[33].group[0]);
    EXPECT_EQ(1, m->unit[0].num_groups);
    const char *names[] = {
        "input_layernorm.weight",  "self_attn.q_proj.weight", "self_attn.k_proj.weight",
        "self_attn.v_proj.weight", "self_attn.o_proj.weight", "post_attention_layernorm.weight",
        "mlp.gate_proj.weight",    "mlp.up_proj.weight",      "mlp.down_proj.weight"};
    ASSERT_EQ(9, m->group[1].num_parameters);
    for (int i = 0; i < 9; i++) EXPECT_STREQ(names[i], m->group[1].parameter[i].name);
    Model tied(qwen3());
    EXPECT_EQ(30, tied.model->num_groups);
    EXPECT_EQ(0, tied.model->unit[29].group[0]);
}

// With 16 ranks two of them share a head of keys and values.
TEST(Llama, GradientsThatArePartsOfASum) {
    for (int tensor : {1, 8, 16})
        for (bool sequence_parallel : {false, true}) {
            if (sequence_parallel && tensor == 1) continue;
            z3d_llama_config config = llama3_8b();
            config.tensor_size = tensor, config.qk_norm = true;
            config.sequence_parallel = sequence_parallel;
            Model llama(config);
            const z3d_parameter_group &layer = llama.model->group[1];
            for (int i = 0; i < layer.num_parameters; i++) {
                const z3d_parameter &p = layer.parameter[i];
                std::string name = p.name;
                bool kv = name.find("k_proj") != std::string::npos ||
                          name.find("v_proj") != std::string::npos;
                bool head = name.find("_norm.") != std::string::npos;
                bool norm = head || name.find("layernorm") != std::string::npos;
                bool replicated = norm || (kv && tensor == 16);
                EXPECT_EQ(replicated, p.split_dim < 0) << name;
                EXPECT_EQ(tensor > 1 && replicated && (head || kv || sequence_parallel),
                          z3d_parameter_is_partial(llama.model, &p))
                    << name << " " << tensor;
            }
        }
}

TEST(Llama, FlopsAreThoseOfItsProducts) {
    z3d_llama_config c = llama3_8b();
    z3d_model_flops f = Model(c).model->facts.flops;
    double matrices = 8030261248.0 - 128256.0 * 4096 - 65.0 * 4096; // without the lookup and norms
    EXPECT_DOUBLE_EQ(6 * matrices + 3 * 32 * 4 * 8192.0 * 4096, f.step);
    c.sliding_window = 1024;
    EXPECT_DOUBLE_EQ(f.attention / 8, Model(c).model->facts.flops.attention);
}

TEST(Llama, RefusesWhatCannotBe) {
    struct Bad {
        const char *part;
        void (*change)(z3d_llama_config *);
    } bad[] = {
        {"Llama: model.num_key_value_heads: 5 does not divide model.num_attention_heads 32",
         [](z3d_llama_config *c) { c->num_key_value_heads = 5; }},
        {"12 ranks cannot share 32 attention heads, 8 key/value heads and 14336 columns of the MLP "
         "equally; write 8 or 16",
         [](z3d_llama_config *c) { c->tensor_size = 12; }},
        {"tensor_model_parallel_size: 64 ranks", [](z3d_llama_config *c) { c->tensor_size = 64; }},
        {"model.head_dim: 1 is odd", [](z3d_llama_config *c) { c->head_dim = 1; }},
        {"rms_norm_eps", [](z3d_llama_config *c) { c->rms_norm_eps = 0; }},
        {"rope_theta", [](z3d_llama_config *c) { c->rope.theta = NAN; }},
        {"sliding_window", [](z3d_llama_config *c) { c->sliding_window = -1; }},
        {"intermediate_size", [](z3d_llama_config *c) { c->intermediate_size = INT64_MIN; }},
        {"head_dim", [](z3d_llama_config *c) { c->head_dim = INT64_MAX; }},
        {"tensor_model_parallel_size", [](z3d_llama_config *c) { c->tensor_size = 0; }},
        {"too large a model for 64-bit sizes",
         [](z3d_llama_config *c) {
             c->num_layers = 1 << 24, c->hidden_size = 1 << 24, c->intermediate_size = 1 << 24;
         }},
    };
    for (const Bad &b : bad) {
        z3d_llama_config config = llama3_8b();
        b.change(&config);
        z3d_model *model = NULL;
        EXPECT_EQ(Z3D_ERR_CONFIG, z3d_llama_create(&config, &model)) << b.part;
        EXPECT_EQ(nullptr, model);
        EXPECT_NE(std::string(z3d_error_message()).find(b.part), std::string::npos)
            << z3d_error_message();
    }
}

// ---- the forward pass ----

constexpr int SEQ = 9, VOCAB = 11;

using Rows = std::vector<std::vector<double>>;

// The mathematics of the papers, one token and one head at a time.
struct Reference {
    const Chain &chain;
    const z3d_llama_config &c;

    const std::vector<double> &find(const std::string &group, const std::string &name) const {
        for (size_t g = 0; g < chain.whole.size(); g++)
            for (size_t i = 0; group == chain.model->group[g].name && i < chain.whole[g].size();
                 i++)
                if (name == chain.parameter(g, i).name) return chain.whole[g][i];
        static const std::vector<double> none;
        return none;
    }

    // W x + b
    static std::vector<double> times(const std::vector<double> &w, const std::vector<double> &b,
                                     const std::vector<double> &x) {
        std::vector<double> y(w.size() / x.size());
        for (size_t o = 0; o < y.size(); o++) {
            y[o] = b.empty() ? 0 : b[o];
            for (size_t i = 0; i < x.size(); i++) y[o] += w[o * x.size() + i] * x[i];
        }
        return y;
    }

    // Each vector of `size` elements.
    std::vector<double> normalised(std::vector<double> x, const std::vector<double> &w,
                                   size_t size) const {
        for (size_t first = 0; first < x.size(); first += size) {
            double sum = 0;
            for (size_t i = 0; i < size; i++) sum += x[first + i] * x[first + i];
            double rstd = 1 / std::sqrt(sum / (double)size + c.rms_norm_eps);
            for (size_t i = 0; i < size; i++) x[first + i] *= rstd * w[i];
        }
        return x;
    }

    void turn(std::vector<double> &x, int position) const {
        size_t d = (size_t)c.head_dim;
        for (size_t first = 0; first < x.size(); first += d)
            for (size_t i = 0; i < d / 2; i++) {
                double angle = position * std::pow(c.rope.theta, -2.0 * (double)i / (double)d);
                double a = x[first + i], b = x[first + i + d / 2];
                x[first + i] = a * std::cos(angle) - b * std::sin(angle);
                x[first + i + d / 2] = b * std::cos(angle) + a * std::sin(angle);
            }
    }

    // One row of attention's output.
    std::vector<double> attend(const Rows &q, const Rows &k, const Rows &v, size_t row) const {
        size_t d = (size_t)c.head_dim, group = (size_t)(c.num_heads / c.num_key_value_heads);
        size_t window = (size_t)c.sliding_window,
               from = window && row >= window ? row - window + 1 : 0;
        std::vector<double> out(q[row].size());
        for (size_t h = 0; h < (size_t)c.num_heads; h++) {
            double sum = 0;
            for (size_t key = from; key <= row; key++) {
                double score = 0;
                for (size_t i = 0; i < d; i++)
                    score += q[row][h * d + i] * k[key][h / group * d + i];
                double p = std::exp(score / std::sqrt((double)d));
                sum += p;
                for (size_t i = 0; i < d; i++) out[h * d + i] += p * v[key][h / group * d + i];
            }
            for (size_t i = 0; i < d; i++) out[h * d + i] /= sum;
        }
        return out;
    }

    static void add(std::vector<double> &x, const std::vector<double> &y) {
        for (size_t i = 0; i < x.size(); i++) x[i] += y[i];
    }

    void run_block(const std::string &layer, Rows &x) const {
        size_t hidden = (size_t)c.hidden_size, d = (size_t)c.head_dim;
        auto w = [&](const char *name) -> const std::vector<double> & { return find(layer, name); };
        Rows q, k, v;
        for (int t = 0; t < SEQ; t++) {
            std::vector<double> n = normalised(x[(size_t)t], w("input_layernorm.weight"), hidden);
            q.push_back(times(w("self_attn.q_proj.weight"), w("self_attn.q_proj.bias"), n));
            k.push_back(times(w("self_attn.k_proj.weight"), w("self_attn.k_proj.bias"), n));
            v.push_back(times(w("self_attn.v_proj.weight"), w("self_attn.v_proj.bias"), n));
            if (c.qk_norm) {
                q.back() = normalised(q.back(), w("self_attn.q_norm.weight"), d);
                k.back() = normalised(k.back(), w("self_attn.k_norm.weight"), d);
            }
            turn(q.back(), t);
            turn(k.back(), t);
        }
        for (size_t t = 0; t < SEQ; t++) {
            add(x[t], times(w("self_attn.o_proj.weight"), {}, attend(q, k, v, t)));
            std::vector<double> n = normalised(x[t], w("post_attention_layernorm.weight"), hidden);
            std::vector<double> gate = times(w("mlp.gate_proj.weight"), {}, n),
                                up = times(w("mlp.up_proj.weight"), {}, n);
            for (size_t i = 0; i < gate.size(); i++) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
            add(x[t], times(w("mlp.down_proj.weight"), {}, gate));
        }
    }

    double loss(const std::vector<int32_t> &tokens, const std::vector<int32_t> &targets) const {
        size_t hidden = (size_t)c.hidden_size;
        const std::vector<double> &table = find("embed_tokens", "weight"),
                                  &head = c.tie_word_embeddings ? table : find("lm_head", "weight");
        Rows x;
        double total = 0;
        for (int32_t token : tokens)
            x.emplace_back(table.begin() + token * c.hidden_size,
                           table.begin() + (token + 1) * c.hidden_size);
        for (int layer = 0; layer < c.num_layers; layer++)
            run_block("layers." + std::to_string(layer), x);
        for (size_t t = 0; t < SEQ; t++) {
            std::vector<double> logits =
                times(head, {}, normalised(x[t], find("norm", "weight"), hidden));
            double sum = 0;
            for (double l : logits) sum += std::exp(l);
            total += std::log(sum) - logits[(size_t)targets[t]];
        }
        return total / SEQ;
    }
};

TEST(Llama, LossIsThatOfPlainLoops) {
    z3d_device *device;
    z3d_group *alone;
    z3d_device_config settings{};
    settings.backend = "cpu", settings.threads = 1;
    ASSERT_EQ(Z3D_OK, z3d_device_create(&settings, &device));
    std::vector<char> scratch(1 << 22);
    z3d_device_set_scratch(device, scratch.data(), (int64_t)scratch.size());
    ASSERT_EQ(Z3D_OK, z3d_group_create_recording(Z3D_AXES_TENSOR, 1, 0, &alone));
    for (int way = 0; way < 8; way++) {
        z3d_llama_config c{};
        c.num_layers = 2, c.hidden_size = 16, c.num_heads = 4, c.num_key_value_heads = 2;
        c.head_dim = 6, c.intermediate_size = 20, c.seq_length = SEQ, c.vocab_size = VOCAB;
        c.vocab_multiple = 4, c.init_std = 0.02, c.rms_norm_eps = 1e-3, c.rope.theta = 100;
        c.tensor_size = 1;
        c.attention_bias = way & 1, c.qk_norm = way & 2, c.tie_word_embeddings = way & 4;
        c.sliding_window = way & 4 ? 4 : 0;
        Model llama(c);
        Chain chain(llama.model, device, alone, 1);
        std::vector<int32_t> tokens, targets;
        for (int i = 0; i < SEQ; i++) {
            tokens.push_back((i * 7 + 3) % VOCAB);
            targets.push_back((i * 5 + 1) % VOCAB);
        }
        chain.set_data(tokens, targets);
        ASSERT_EQ(Z3D_OK, chain.forward(Z3D_MODE_TRAIN)) << z3d_error_message();
        double expected = Reference{chain, c}.loss(tokens, targets);
        EXPECT_NEAR(expected, chain.mean_loss(), 1e-6 * expected) << way;
    }
    z3d_group_destroy(alone);
    z3d_device_destroy(device);
}

} // namespace

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
