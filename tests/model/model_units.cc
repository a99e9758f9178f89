// The models' units on real ranks: gradients against finite differences on one rank, and every
// tensor size against one rank.
#include "tests/model/chain.h"
#include "tests/ranks.h"

namespace {

z3d_mesh mesh;
z3d_device *device;
z3d_group *tensor, *alone; // all ranks; this one
int ranks;

constexpr int64_t BATCH = 3, SEQ = 8, VOCAB = 11;

// QWEN: a Llama with all that it may have; TILED: the MLPs are cut into tiles; ADAPTED: all layers
// have adapters.
enum Kind { GPT, LLAMA, QWEN, TILED_GPT, TILED_LLAMA, TILED_QWEN, ADAPTED_GPT, ADAPTED_LLAMA };

constexpr Kind KINDS[] = {GPT, LLAMA, QWEN, TILED_GPT, TILED_LLAMA, ADAPTED_GPT, ADAPTED_LLAMA};

// Dropout only where tensor ranks do not share a layer's input.
z3d_lora lora_of(const z3d_lora_module *modules, double dropout) {
    z3d_lora lora{3, 0.7, dropout, 0};
    for (int i = 0; modules[i].name; i++) {
        const std::string name = modules[i].name;
        const bool row = name.find("c_proj") != name.npos || name.find("o_proj") != name.npos ||
                         name.find("down_proj") != name.npos;
        if (!row || dropout == 0 || ranks == 1) lora.targets |= 1U << i;
    }
    return lora;
}

z3d_status create_gpt(int64_t tiling, int tensor_size, double dropout, bool sequence_parallel,
                      bool adapted, z3d_model **out) {
    z3d_gpt_config config{};
    if (adapted) config.lora = lora_of(z3d_gpt_modules, dropout);
    config.num_layers = 2;
    config.hidden_size = 16;
    config.num_heads = 4;
    config.seq_length = SEQ;
    config.vocab_size = VOCAB;
    config.vocab_multiple = 4;
    config.hidden_dropout = dropout;
    config.attention_dropout = dropout / 2;
    config.init_std = 0.02;
    config.tensor_size = tensor_size;
    config.sequence_parallel = sequence_parallel;
    config.tiling = tiling;
    return z3d_gpt_create(&config, out);
}

// Four tensor ranks share two heads of keys and values.
z3d_status create_llama(bool qwen, int64_t tiling, int tensor_size, double dropout,
                        bool sequence_parallel, bool adapted, z3d_model **out) {
    z3d_llama_config config{};
    if (adapted) config.lora = lora_of(z3d_llama_modules, dropout);
    config.num_layers = 2;
    config.hidden_size = 16;
    config.num_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 6;
    config.intermediate_size = 20;
    config.seq_length = SEQ;
    config.vocab_size = VOCAB;
    config.vocab_multiple = 4;
    config.sliding_window = qwen ? 3 : 0;
    config.attention_dropout = dropout / 2;
    config.init_std = 0.02;
    config.rms_norm_eps = 1e-5;
    config.rope.type = qwen ? Z3D_ROPE_LINEAR : Z3D_ROPE_DEFAULT;
    config.rope.theta = 100;
    config.rope.factor = 2;
    config.attention_bias = config.qk_norm = config.tie_word_embeddings = qwen;
    config.tensor_size = tensor_size;
    config.sequence_parallel = sequence_parallel;
    config.tiling = tiling;
    return z3d_llama_create(&config, out);
}

struct Model {
    z3d_model *model = NULL;
    Model(Kind kind, int tensor_size, double dropout = 0, bool sequence_parallel = false) {
        bool gpt = kind == GPT || kind == TILED_GPT || kind == ADAPTED_GPT;
        bool qwen = kind == QWEN || kind == TILED_QWEN, adapted = kind >= ADAPTED_GPT;
        int64_t tiling = kind < TILED_GPT || adapted ? 1 : gpt ? 4 : 5;
        z3d_status status =
            gpt ? create_gpt(tiling, tensor_size, dropout, sequence_parallel, adapted, &model)
                : create_llama(qwen, tiling, tensor_size, dropout, sequence_parallel, adapted,
                               &model);
        if (status != Z3D_OK) ADD_FAILURE() << z3d_error_message();
    }
    ~Model() {
        z3d_model_destroy(model);
    }
};

void fill(Chain &chain) {
    std::vector<int32_t> tokens, targets;
    for (int i = 0; i < BATCH * SEQ; i++) {
        tokens.push_back((i * 7 + 3) % (int)VOCAB);
        targets.push_back(i == 4 ? -1 : (i * 5 + 1) % (int)VOCAB);
    }
    chain.set_data(tokens, targets);
}

// Loss with parameter (g, i) moved by step x direction.
double moved_loss(Chain &chain, size_t g, size_t i, const std::vector<double> &direction,
                  double step) {
    std::vector<double> kept = chain.whole[g][i];
    for (size_t e = 0; e < kept.size(); e++) chain.whole[g][i][e] += step * direction[e];
    chain.load();
    EXPECT_EQ(Z3D_OK, chain.forward(Z3D_MODE_TRAIN)) << z3d_error_message();
    double loss = chain.mean_loss();
    chain.whole[g][i] = kept;
    chain.load();
    return loss;
}

// Directional derivatives, along the gradient and along a random direction (more of them in long
// tests): an error in any element of any gradient shows in the latter.
void check_gradients(Kind kind, double dropout) {
    Model model(kind, 1, dropout);
    Chain chain(model.model, device, alone, BATCH);
    fill(chain);
    ASSERT_Z3D(chain.train());
    std::vector<std::vector<char>> gradients = chain.gradients;
    const uint64_t key = chain_key("direction");
    for (size_t g = 0; g < chain.whole.size(); g++)
        for (size_t i = 0; i < chain.whole[g].size(); i++) {
            chain.gradients = gradients;
            std::vector<double> gradient = chain.gradient(g, i);
            gradient.resize(chain.whole[g][i].size()); // without the vocabulary's padding
            double size = norm(gradient);
            for (int trial = 0; trial < (is_long() ? 4 : 2); trial++) {
                std::vector<double> u = gradient;
                for (size_t e = 0; trial && e < u.size(); e++)
                    u[e] = chain_value(key, (int64_t)(1000 * g + 100 * i + e * 7) + trial);
                double length = norm(u), expected = 0;
                for (size_t e = 0; e < u.size(); e++)
                    u[e] /= length, expected += u[e] * gradient[e];
                double step = 4e-3;
                double slope =
                    (moved_loss(chain, g, i, u, step) - moved_loss(chain, g, i, u, -step)) /
                    (2 * step);
                ASSERT_NEAR(expected, slope, 2e-3 * size + 1e-4)
                    << model.model->group[g].name << " " << chain.parameter(g, i).name << " trial "
                    << trial;
            }
        }
}

TEST(Gradients, FiniteDifferences) {
    if (ranks > 1) GTEST_SKIP() << "nothing that one rank does not show";
    for (Kind kind : KINDS) check_gradients(kind, 0);
}

TEST(Gradients, FiniteDifferencesWithDropout) {
    if (ranks > 1) GTEST_SKIP() << "nothing that one rank does not show";
    for (Kind kind : KINDS) check_gradients(kind, 0.3);
}

// This rank's part of one rank's gradients, tensor by tensor.
void expect_same(const Chain &one, const Chain &split, double tolerance, const char *what) {
    for (size_t g = 0; g < one.whole.size(); g++)
        for (size_t i = 0; i < one.whole[g].size(); i++) {
            const z3d_parameter &p = split.parameter(g, i);
            std::vector<double> whole = one.gradient(g, i), mine = split.gradient(g, i);
            whole.resize((size_t)elements_of(p));
            std::vector<double> expected = local_part(p, whole, split.size, split.index);
            ASSERT_EQ(expected.size(), mine.size());
            // Where this rank has padding only, its gradient is zero exactly.
            double scale = std::max(norm(expected), norm(whole) * 1e-3), sum = 0;
            for (size_t e = 0; e < mine.size(); e++) {
                ASSERT_TRUE(std::isfinite(mine[e])) << "not written: " << p.name << " " << e;
                sum += (mine[e] - expected[e]) * (mine[e] - expected[e]);
            }
            EXPECT_LE(std::sqrt(sum), tolerance * scale)
                << what << ": " << one.model->group[g].name << " " << p.name;
        }
}

void compare_sizes(Kind kind, double dropout, bool sequence_parallel) {
    SCOPED_TRACE(kind);
    Model whole(kind, 1, dropout), split(kind, ranks, dropout, sequence_parallel);
    Chain one(whole.model, device, alone, BATCH), many(split.model, device, tensor, BATCH);
    fill(one), fill(many);
    ASSERT_Z3D(one.train());
    ASSERT_Z3D(many.train());
    EXPECT_NEAR(one.mean_loss(), many.mean_loss(), 1e-5 * one.mean_loss());
    expect_same(one, many, 1e-5, "one rank");

    // Recomputing blocks from their inputs gives the same bits; so does no memory of the first run.
    std::vector<std::vector<char>> kept = many.gradients;
    many.recompute = true;
    ASSERT_Z3D(many.train());
    EXPECT_EQ(kept, many.gradients);
    many.recompute = false, many.lean = true;
    ASSERT_Z3D(many.train());
    EXPECT_EQ(kept, many.gradients);
    // So does an activation that backward reads instead of computing it again.
    many.keep_activation = true;
    ASSERT_Z3D(many.train());
    EXPECT_EQ(kept, many.gradients);
    many.recompute = true;
    ASSERT_Z3D(many.train());
    EXPECT_EQ(kept, many.gradients);

    Chain twice(split.model, device, tensor, BATCH);
    fill(twice);
    twice.accumulate_again = true;
    ASSERT_Z3D(twice.train());
    for (auto &memory : many.gradients) // all fp32: doubling is exact but for the order of sums
        for (size_t e = 0; e < memory.size() / sizeof(float); e++)
            put(Z3D_F32, memory.data(), (int64_t)e, 2 * get(Z3D_F32, memory.data(), (int64_t)e));
    for (size_t g = 0; g < many.whole.size(); g++)
        for (size_t i = 0; i < many.whole[g].size(); i++) {
            std::vector<double> expected = many.gradient(g, i);
            if (norm(expected) == 0) continue;
            EXPECT_LE(distance(twice.gradient(g, i), expected), 1e-6) << many.parameter(g, i).name;
        }
}

TEST(TensorParallel, LikeOneRank) {
    for (Kind kind : KINDS) compare_sizes(kind, 0, false);
}

TEST(TensorParallel, LikeOneRankWithDropout) {
    for (Kind kind : KINDS) compare_sizes(kind, 0.3, false);
}

// Three samples on four ranks: a rank's rows begin and end inside samples.
TEST(SequenceParallel, LikeOneRank) {
    if (ranks == 1) GTEST_SKIP() << "nothing to split";
    for (Kind kind : KINDS) compare_sizes(kind, 0, true);
    for (Kind kind : KINDS) compare_sizes(kind, 0.3, true);
}

TEST(SequenceParallel, WantsRowsThatDivide) {
    z3d_gpt_config config{};
    z3d_model *model = NULL;
    config.num_layers = 1, config.hidden_size = 16, config.num_heads = 4, config.vocab_size = 11;
    config.vocab_multiple = 4, config.init_std = 0.02;
    config.sequence_parallel = true;
    for (int tensor_size : {1, 2, 4}) {
        config.tensor_size = tensor_size;
        config.seq_length = 6;
        z3d_status status = z3d_gpt_create(&config, &model);
        EXPECT_EQ(tensor_size == 2 ? Z3D_OK : Z3D_ERR_CONFIG, status) << tensor_size;
        z3d_model_destroy(model);
    }
}

TEST(Dropout, OnlyInTraining) {
    for (Kind kind : KINDS) {
        if (kind >= ADAPTED_GPT && ranks > 1) continue; // without dropout these have more adapters
        Model with(kind, ranks, 0.3), without(kind, ranks);
        Chain a(with.model, device, tensor, BATCH), b(without.model, device, tensor, BATCH);
        fill(a), fill(b);
        ASSERT_Z3D(a.forward(Z3D_MODE_EVALUATE));
        ASSERT_Z3D(b.forward(Z3D_MODE_TRAIN));
        EXPECT_EQ(b.state.loss_sum, a.state.loss_sum);
        ASSERT_Z3D(a.forward(Z3D_MODE_TRAIN));
        EXPECT_NE(b.state.loss_sum, a.state.loss_sum);
        EXPECT_EQ((double)(BATCH * SEQ - 1), a.state.valid_targets);
    }
}

// The logits that generation hands out give the loss that EVALUATE computes.
void compare_logits(Kind kind, bool sequence_parallel) {
    Model model(kind, ranks, 0, sequence_parallel);
    Chain chain(model.model, device, tensor, BATCH);
    fill(chain);
    ASSERT_Z3D(chain.forward(Z3D_MODE_EVALUATE));
    double expected = chain.state.loss_sum, loss = 0;
    int64_t padded =
        model.model->unit[model.model->num_units - 1].output_elements[Z3D_MODE_PREFILL];
    for (int64_t position = 0; position < SEQ; position++) {
        for (int64_t b = 0; b < BATCH; b++)
            chain.positions[(size_t)(BATCH + b)] = (int32_t)position;
        ASSERT_Z3D(chain.forward(Z3D_MODE_PREFILL));
        for (int64_t b = 0; b < BATCH; b++) {
            int32_t target = chain.targets[(size_t)(b * SEQ + position)];
            const float *logits = (const float *)chain.output.back().data() + b * padded;
            double sum = 0;
            for (int64_t v = 0; v < VOCAB; v++) sum += std::exp((double)logits[v]);
            if (target >= 0) loss += std::log(sum) - logits[target];
        }
    }
    EXPECT_NEAR(expected, loss, 1e-5 * expected);
}

TEST(Generate, LogitsAreThoseOfTheLoss) {
    for (Kind kind : KINDS) {
        compare_logits(kind, false);
        if (ranks > 1) compare_logits(kind, true);
    }
}

void check_sixteen_bits(Kind kind) {
    SCOPED_TRACE(kind);
    for (z3d_dtype dtype : {Z3D_BF16, Z3D_F16}) {
        Model whole(kind, 1), split(kind, ranks, 0, dtype == Z3D_BF16 && ranks > 1);
        Chain one(whole.model, device, alone, BATCH);
        Chain many(split.model, device, tensor, BATCH, dtype, Z3D_F32);
        fill(one), fill(many);
        // The reference starts from the rounded parameters.
        for (auto &group : one.whole)
            for (auto &values : group)
                for (double &v : values) {
                    char rounded[sizeof(float)];
                    put(dtype, rounded, 0, v);
                    v = get(dtype, rounded, 0);
                }
        one.load();
        ASSERT_Z3D(one.train());
        ASSERT_Z3D(many.train());
        // What an adapter adds is rounded twice more.
        double bound = (dtype == Z3D_BF16 ? 0.03 : 0.004) * (kind >= ADAPTED_GPT ? 4. / 3 : 1);
        EXPECT_NEAR(one.mean_loss(), many.mean_loss(), bound * one.mean_loss());
        // The tables, and of both blocks the first matrix of the MLP.
        for (size_t g = 0; g < one.whole.size(); g++)
            for (size_t i = 0; i < one.whole[g].size(); i++) {
                const z3d_parameter &p = many.parameter(g, i);
                const std::string name = p.name;
                if (name != "mlp.c_fc.weight" && name != "mlp.gate_proj.weight" && g > 0) continue;
                std::vector<double> expected = one.gradient(g, i);
                expected.resize(one.whole[g][i].size());
                expected = local_part(p, expected, many.size, many.index);
                if (norm(expected) == 0) continue; /* padding only */
                EXPECT_LE(distance(many.gradient(g, i), expected), 3 * bound)
                    << z3d_dtype_name(dtype) << " group " << g;
            }
    }
}

TEST(Precision, SixteenBits) {
    for (Kind kind : KINDS) check_sixteen_bits(kind);
}

// The gradient of a parameter's home in a model that is not tiled.
std::vector<double> gradient_at_home(const Chain &chain, const char *group, const char *name) {
    for (size_t g = 0; g < chain.whole.size(); g++)
        for (size_t i = 0; i < chain.whole[g].size(); i++)
            if (std::string(chain.model->group[g].name) == group &&
                std::string(chain.parameter(g, i).name) == name)
                return chain.gradient(g, i);
    ADD_FAILURE() << group << " has no " << name;
    return {};
}

// Tiles compute what whole blocks do, with the same dropout, but for the order of sums.
void compare_tiles(Kind whole_kind, Kind tiled_kind, double dropout) {
    SCOPED_TRACE(whole_kind);
    Model whole(whole_kind, 1, dropout), tiled(tiled_kind, 1, dropout);
    Chain one(whole.model, device, alone, BATCH), many(tiled.model, device, alone, BATCH);
    EXPECT_EQ(z3d_model_parameter_count(whole.model), z3d_model_parameter_count(tiled.model));
    EXPECT_LT(whole.model->num_units, tiled.model->num_units);
    fill(one), fill(many);
    ASSERT_Z3D(one.train());
    ASSERT_Z3D(many.train());
    EXPECT_NEAR(one.mean_loss(), many.mean_loss(), 1e-6 * one.mean_loss());
    for (size_t g = 0; g < many.whole.size(); g++)
        for (size_t i = 0; i < many.whole[g].size(); i++) {
            const z3d_parameter &p = many.parameter(g, i);
            const char *home = z3d_parameter_home(&tiled.model->group[g], (int)i);
            std::vector<double> expected = tile_of(p, gradient_at_home(one, home, p.name));
            ASSERT_EQ(expected.size(), many.gradient(g, i).size());
            EXPECT_LE(distance(many.gradient(g, i), expected), 3e-6) << home << " " << p.name;
        }
}

TEST(Tiling, LikeWholeBlocks) {
    if (ranks > 1) GTEST_SKIP() << "nothing that one rank does not show";
    for (double dropout : {0.0, 0.3}) {
        compare_tiles(GPT, TILED_GPT, dropout);
        compare_tiles(LLAMA, TILED_LLAMA, dropout);
        compare_tiles(QWEN, TILED_QWEN, dropout);
    }
}

struct Types {
    z3d_dtype dtype, gradient;
};

// What changes the calls of a backward.
struct Way {
    bool sequence_parallel, lean, again;
};

// Each of the halves leaves its part of backward to the other: what one forgets is missing, since
// all memory begins as NaN, and other units run between the two.
void compare_halves(Kind kind, double dropout, Way way, Types types) {
    SCOPED_TRACE(testing::Message()
                 << "kind " << kind << " of " << z3d_dtype_name(types.dtype) << ", gradients "
                 << z3d_dtype_name(types.gradient) << ", dropout " << dropout
                 << ", sequence parallel " << way.sequence_parallel << ", lean " << way.lean
                 << ", again " << way.again);
    Model model(kind, ranks, dropout, way.sequence_parallel);
    Chain whole(model.model, device, tensor, BATCH, types.dtype, types.gradient);
    Chain cut(model.model, device, tensor, BATCH, types.dtype, types.gradient);
    for (Chain *chain : {&whole, &cut}) {
        fill(*chain);
        chain->lean = way.lean;
        chain->accumulate_again = way.again;
        chain->halves = chain == &cut;
        chain->keep_activation = way.again && chain == &cut;
        ASSERT_Z3D(chain->train());
    }
    for (size_t u = 0; u + 1 < whole.output_gradient.size(); u++)
        EXPECT_EQ(whole.output_gradient[u], cut.output_gradient[u]) << "of unit " << u;
    for (size_t g = 0; g < whole.gradients.size(); g++)
        EXPECT_EQ(whole.gradients[g], cut.gradients[g]) << model.model->group[g].name;
}

// Every kind in every way; of types and dropout two of eight pairs, others for the next kind and
// way. Long tests: all.
TEST(Halves, AreTheWholeToTheBit) {
    const Types all[] = {
        {Z3D_F32, Z3D_F32}, {Z3D_BF16, Z3D_F32}, {Z3D_BF16, Z3D_BF16}, {Z3D_F16, Z3D_F16}};
    for (int way = 0; way < 8; way++)
        for (Kind kind : KINDS)
            for (int types = 0; types < 4; types++)
                for (bool dropout : {false, true}) {
                    if (way & 1 && ranks == 1) continue; // nothing to split
                    const bool its_turn = types == (way + kind + 2 * dropout) % 4;
                    if (!its_turn && !is_long()) continue;
                    compare_halves(kind, dropout ? 0.3 : 0,
                                   {(way & 1) != 0, (way & 2) != 0, (way & 4) != 0}, all[types]);
                }
}

constexpr int64_t SCRATCH = 1 << 22;
void *scratch;

z3d_status start() {
    ranks = z3d_world_size(world);
    Z3D_TRY(z3d_mesh_make(ranks, 1, 1, z3d_world_rank(world), &mesh));
    z3d_device_config config{};
    config.backend = "cpu";
    config.threads = 1;
    Z3D_TRY(z3d_device_create(&config, &device));
    Z3D_TRY(z3d_device_alloc(device, Z3D_SPACE_DEVICE, SCRATCH, &scratch));
    z3d_device_set_scratch(device, scratch, SCRATCH);
    Z3D_TRY(z3d_group_create(world, &mesh, Z3D_AXES_TENSOR, device, &tensor));
    return z3d_group_create(world, &mesh, Z3D_AXES_DATA, device, &alone);
}

void end() {
    z3d_group_destroy(alone);
    z3d_group_destroy(tensor);
    z3d_device_free(device, Z3D_SPACE_DEVICE, scratch, SCRATCH);
    z3d_device_destroy(device);
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv, start, end);
}
