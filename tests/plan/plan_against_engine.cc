// What the engine refuses, a plan refuses, with the same text; what both accept takes the same
// memory, to the byte. Random configurations of random worlds.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

extern "C" {
#include "src/plan/plan.h"
#include "src/plan/price/simulate.h"
}

namespace {

constexpr int CASES = 200;

class Random {
  public:
    explicit Random(unsigned seed) : engine_(seed) {}
    int64_t of(std::initializer_list<int64_t> values) {
        return *(values.begin() + (long)(engine_() % values.size()));
    }
    bool chance(unsigned percent) {
        return engine_() % 100 < percent;
    }

  private:
    std::mt19937 engine_;
};

std::string number(const char *key, int64_t value) {
    return std::string(key) + ": " + std::to_string(value) + "\n";
}

// Some of these contradict each other: they are refused.
std::string random_config(Random &r) {
    int64_t tensor = r.of({1, 1, 2, 3, 4}), stage = r.of({0, 1, 2, 3});
    bool full = r.chance(60), sequence = tensor > 1 && r.chance(40);
    std::string text = "model: { num_layers: " + std::to_string(r.of({1, 2, 3, 5})) +
                       ", hidden_size: " + std::to_string(r.of({12, 24, 48})) +
                       ", num_attention_heads: " + std::to_string(r.of({2, 3, 4, 12})) +
                       ", seq_length: " + std::to_string(r.of({7, 8, 12})) +
                       ", vocab_size: " + std::to_string(r.of({5, 67, 257})) +
                       ", make_vocab_size_divisible_by: " + std::to_string(r.of({1, 8})) + " }\n";
    text += "parallel: { tensor_model_parallel_size: " + std::to_string(tensor) +
            (sequence ? ", sequence_parallel: true" : "") + " }\n";
    text += number("train_micro_batch_size_per_gpu", r.of({1, 2, 3}));
    text += number("gradient_accumulation_steps", r.of({1, 2, 3}));
    text += "zero_optimization: { stage: " + std::to_string(stage) +
            ", reduce_bucket_size: " + std::to_string(r.of({64, 1000, 100000})) +
            ", allgather_bucket_size: " + std::to_string(r.of({64, 1000, 100000})) +
            ", overlap_comm: " + (r.chance(70) ? "true" : "false") +
            (r.chance(30) ? ", grad_reduce: per_step" : "") + " }\n";
    text += std::string("activation_checkpointing: { granularity: ") +
            (full           ? "full"
             : r.chance(50) ? "none"
                            : "selective") +
            (full && r.chance(30) ? ", partition_activations: true" : "") +
            (full && r.chance(30) ? ", cpu_checkpointing: true" : "") +
            (full && r.chance(20) ? ", replay: full" : "") +
            (r.chance(50) ? ", recompute_activation: false" : "") + " }\n";
    if (r.chance(60))
        text += r.chance(50) ? "bf16: { enabled: true }\n" : "fp16: { enabled: true }\n";
    if (r.chance(20)) text += "data_types: { grad_accum_dtype: fp32 }\n";
    if (r.chance(30))
        text += std::string("optimizer: { type: ") + (r.chance(50)
                                                          ? "SGD }\n"
                                                          : "Adam, params: { exp_avg_dtype: bf16, "
                                                            "exp_avg_sq_dtype: bf16 } }\n");
    return text;
}

struct Outcome {
    z3d_status status = Z3D_OK;
    std::string message;
    int64_t arena[Z3D_SPACE_COUNT] = {};
    z3d_ledger ledger[Z3D_SPACE_COUNT] = {};
};

z3d_config *read(const std::string &text) {
    z3d_config *config = nullptr;
    EXPECT_EQ(z3d_config_create(&config), Z3D_OK);
    EXPECT_EQ(z3d_config_read_text(config, text.data(), text.size(), "test"), Z3D_OK)
        << z3d_error_message();
    return config;
}

Outcome plan(const std::string &text, int ranks, int rank) {
    Outcome out;
    z3d_plan *made = nullptr;
    z3d_config *config = read(text);
    out.status = z3d_plan_create(config, ranks, rank, &made);
    if (out.status != Z3D_OK) out.message = z3d_error_message();
    for (int space = 0; space < Z3D_SPACE_COUNT && made; space++) {
        for (int mode = 0; mode < Z3D_MODE_COUNT; mode++)
            if (made->set.program[mode])
                out.arena[space] =
                    std::max(out.arena[space], made->set.program[mode]->arena[space]);
        out.ledger[space] = made->ledger[Z3D_MODE_TRAIN][space];
    }
    z3d_plan_destroy(made);
    z3d_config_destroy(config);
    return out;
}

// As the trainer makes it: the configuration settled, the model, then an engine that verifies.
Outcome engine(const std::string &text, int ranks, int rank, int threads) {
    Outcome out;
    z3d_mesh mesh;
    z3d_model *model = nullptr;
    z3d_simulation *made = nullptr;
    z3d_config *config = read(text);
    z3d_program_config program;
    out.status = z3d_plan_place(config, ranks, rank, &mesh);
    if (out.status == Z3D_OK) out.status = z3d_model_from_config(config, &model);
    if (out.status == Z3D_OK) {
        EXPECT_EQ(Z3D_OK, z3d_plan_program_config(config, model, &program));
        z3d_sim_node node = {};
        node.threads = threads;
        out.status = z3d_simulation_create(model, &mesh, &program, 0, node, &made);
    }
    if (out.status != Z3D_OK) out.message = z3d_error_message();
    for (int space = 0; space < Z3D_SPACE_COUNT && made; space++) {
        z3d_engine_arena(made->engine, (z3d_space)space, &out.arena[space]);
        out.ledger[space] = *z3d_engine_measured(made->engine, (z3d_space)space);
    }
    z3d_simulation_destroy(made);
    z3d_model_destroy(model);
    z3d_config_destroy(config);
    return out;
}

} // namespace

TEST(PlanAgainstEngine, TheyRefuseAndTakeTheSame) {
    Random r(20261122);
    int accepted = 0, refused = 0;
    for (int i = 0; i < CASES; i++) {
        std::string text = random_config(r);
        int ranks = (int)r.of({1, 2, 3, 4, 6, 8}), rank = (int)r.of({0, 0, 1, 5}) % ranks;
        SCOPED_TRACE(text + std::to_string(ranks) + " ranks, rank " + std::to_string(rank));
        z3d_config *defaults = read("");
        int threads = z3d_plan_threads(defaults, ranks);
        z3d_config_destroy(defaults);
        Outcome a = plan(text, ranks, rank), b = engine(text, ranks, rank, threads);
        ASSERT_EQ(a.status, b.status) << a.message << " / " << b.message;
        ASSERT_EQ(a.message, b.message);
        (a.status == Z3D_OK ? accepted : refused)++;
        for (int space = 0; space < Z3D_SPACE_COUNT && a.status == Z3D_OK; space++) {
            ASSERT_EQ(a.arena[space], b.arena[space]);
            for (int c = 0; c < Z3D_CATEGORY_COUNT; c++)
                ASSERT_EQ(a.ledger[space].peak[c], b.ledger[space].peak[c])
                    << z3d_category_name((z3d_category)c);
        }
    }
    EXPECT_GT(accepted, CASES / 5);
    EXPECT_GT(refused, CASES / 5);
    RecordProperty("accepted", accepted);
}

// Configurations at the edges of what can be written down. part: of the refusal; "": accepted; "?":
// only that both say the same.
TEST(PlanAgainstEngine, HostileConfigurations) {
    struct Case {
        const char *text, *part;
    };
    const char *sizes =
        "model: {num_layers: 2, hidden_size: 12, num_attention_heads: 2, seq_length: "
        "8, vocab_size: 67, make_vocab_size_divisible_by: 1}\n"
        "train_micro_batch_size_per_gpu: 1\ngradient_accumulation_steps: 2\n";
    const Case optimizers[] = {
        {"optimizer: {type: SGD}", ""},
        {"optimizer: {type: SGD, params: {momentum: 0}}", ""},
        {"optimizer: {type: SGD, params: {momentum: 0.5, weight_decay: 0, lr: 0}}", ""},
        {"optimizer: {type: SGD, params: {betas: [0.5, 0.5]}}", "optimizer.params.betas"},
        {"optimizer: {type: SGD, params: {eps: 1e-3}}", "optimizer.params.eps"},
        {"optimizer: {type: SGD, params: {momentum: 0.5, eps: 1e-3}}", "optimizer.params.eps"},
        {"optimizer: {params: {momentum: 0.5}}", "optimizer.params.momentum"},
        {"optimizer: {params: {exp_avg_dtype: bf16, exp_avg_sq_dtype: bf16}}", ""},
        {"optimizer: {params: {exp_avg_dtype: bf16}}", "optimizer.params.exp_avg_sq_dtype"},
        {"optimizer: {type: Lion, params: {exp_avg_dtype: bf16}}",
         "optimizer.params.exp_avg_dtype"},
        {"optimizer: {type: Lion, params: {betas: [0.9, 0.99]}}", ""},
        {"optimizer: {type: Lion, params: {eps: 1e-3}}", "optimizer.params.eps"},
        {"optimizer: {type: Adagrad, params: {eps: 1e-3}}", ""},
        {"optimizer: {type: Adagrad, params: {betas: [0.5, 0.5]}}", "optimizer.params.betas"},
        {"optimizer: {type: AdamW, params: {momentum: 0.5}}", "optimizer.params.momentum"},
        {"parallel: {world_size: 12}", "world_size"},
        {"parallel: {pipeline_model_parallel_size: 2}", "?"},
        {"parallel: {pipeline_model_parallel_size: 5}", "pipeline_model_parallel_size"},
        {"parallel: {tensor_model_parallel_size: 5}", "?"},
        {"parallel: {sequence_parallel: true}", "?"},
        {"train_batch_size: 7", "train_batch_size"},
        {"zero_optimization: {stage: 3, reduce_bucket_size: 1, allgather_bucket_size: 1}", ""},
        {"zero_optimization: {reduce_bucket_size: 1000000000000}", ""},
        {"activation_checkpointing: {number_checkpoints: 1000000}", "?"},
        {"activation_checkpointing: {partition_activations: true}", "?"},
        {"data_types: {grad_accum_dtype: fp32}", "grad_accum_dtype"},
        {"fp16: {enabled: true}\nbf16: {enabled: true}", "?"},
    };
    const Case models[] = {
        {"model: {type: bert}", "bert"},
        {"model: {type: GPT2}", "GPT2"},
        {"model: {type: ''}", "?"},
        {"model: {hidden_size: 7, num_attention_heads: 2}", "num_attention_heads"},
        {"model: {hidden_size: 4, num_attention_heads: 8}", "num_attention_heads"},
        {"model: {num_layers: 1000000, hidden_size: 1048576, num_attention_heads: 16}", "?"},
        {"model: {num_layers: 1, seq_length: 16777216, hidden_size: 1048576, num_attention_heads: "
         "1, vocab_size: 16777216}",
         "?"},
        {"model: {num_layers: 1, hidden_size: 1, num_attention_heads: 1, seq_length: 1, "
         "vocab_size: "
         "2, make_vocab_size_divisible_by: 1}",
         "?"},
        {"model: {num_layers: 1, hidden_size: 8, num_attention_heads: 1, seq_length: 8, "
         "vocab_size: "
         "2, make_vocab_size_divisible_by: 65536}",
         ""},
        {"model: {num_layers: 1, hidden_size: 8, num_attention_heads: 1, seq_length: 16777216}\n"
         "train_micro_batch_size_per_gpu: 1000000",
         "?"},
    };
    auto expect_alike = [](const std::string &text, const std::string &part) {
        for (int ranks : {1, 4}) {
            SCOPED_TRACE(text + "\n" + std::to_string(ranks) + " ranks");
            z3d_config *defaults = read("");
            int threads = z3d_plan_threads(defaults, ranks);
            z3d_config_destroy(defaults);
            Outcome a = plan(text, ranks, ranks - 1), b = engine(text, ranks, ranks - 1, threads);
            EXPECT_EQ(a.status, b.status) << a.message << " / " << b.message;
            EXPECT_EQ(a.message, b.message);
            if (part == "") {
                EXPECT_EQ(a.status, Z3D_OK) << a.message;
            } else if (part != "?") {
                EXPECT_NE(a.status, Z3D_OK);
                EXPECT_NE(a.message.find(part), std::string::npos) << a.message;
            }
            for (int space = 0; space < Z3D_SPACE_COUNT && a.status == Z3D_OK; space++) {
                EXPECT_EQ(a.arena[space], b.arena[space]);
                for (int c = 0; c < Z3D_CATEGORY_COUNT; c++)
                    EXPECT_EQ(a.ledger[space].peak[c], b.ledger[space].peak[c])
                        << z3d_category_name((z3d_category)c);
            }
        }
    };
    for (const Case &c : optimizers) expect_alike(std::string(sizes) + c.text + "\n", c.part);
    for (const Case &c : models)
        expect_alike(
            std::string(c.text) + "\n" +
                (strstr(c.text, "micro_batch") ? "" : number("train_micro_batch_size_per_gpu", 1)),
            c.part);
}

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
