// What z3d_prove says, and why: one reason at a time. tests/train/train_prove.cc holds it against
// training.
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "tests/expect.h"

extern "C" {
#include "src/plan/prove/prove.h"
}

namespace {

const char *const base = "model.num_layers=2\nmodel.hidden_size=32\nmodel.num_attention_heads=4\n"
                         "model.seq_length=8\nmodel.vocab_size=67\ntrain_batch_size=8\n"
                         "train_micro_batch_size_per_gpu=1\n";

z3d_config *read(const std::string &more) {
    z3d_config *config = nullptr;
    EXPECT_Z3D(z3d_config_create(&config));
    const bool bf16 = more.find("bf16.enabled=true") != std::string::npos,
               cuda = more.find("device=cuda") != std::string::npos,
               given = more.find("training.gemm") != std::string::npos;
    std::string method = bf16 ? "training.gemm.bf16=sgemm\n" : "training.gemm.fp32=sgemm\n";
    std::istringstream lines(base + (cuda || given ? "" : method) + more);
    for (std::string line; std::getline(lines, line);)
        EXPECT_EQ(z3d_config_override(config, line.c_str()), Z3D_OK)
            << line << ": " << z3d_error_message();
    return config;
}

struct Verdict {
    bool equal = false, open = false, parameters = false, losses = false;
    std::string text;
    bool names(const std::string &what) const {
        return text.find("\n  " + what) != std::string::npos;
    }
};

Verdict prove(int ranks_a, const std::string &a, int ranks_b, const std::string &b) {
    Verdict out;
    z3d_proof proof;
    z3d_config *config[2] = {read(a), read(b)};
    const z3d_prove_side left = {config[0], ranks_a, "a.yaml"},
                         right = {config[1], ranks_b, "b.yaml"};
    EXPECT_EQ(z3d_prove(&left, &right, &proof), Z3D_OK) << z3d_error_message();
    out.equal = z3d_proof_is_equal(&proof);
    out.open = proof.open;
    out.parameters = proof.parameters;
    out.losses = proof.losses;
    out.text = proof.text.text ? proof.text.text : "";
    z3d_string_free(&proof.text);
    for (z3d_config *c : config) z3d_config_destroy(c);
    return out;
}

Verdict prove(int ranks, const std::string &a, const std::string &b) {
    return prove(ranks, a, ranks, b);
}

const std::string two_stages = "parallel.pipeline_model_parallel_size=2\n",
                  untied = "model.type=llama\n", zero2 = "zero_optimization.stage=2\n",
                  zero1 = "zero_optimization.stage=1\n";

} // namespace

TEST(Prove, ChangesNoBit) {
    for (const char *more :
         {"zero_optimization.stage=0\n", "zero_optimization.overlap_comm=false\n",
          "zero_optimization.reduce_bucket_size=100\n",
          "zero_optimization.allgather_bucket_size=100\n",
          "activation_checkpointing.granularity=none\n",
          "activation_checkpointing.granularity=selective\n",
          "zero_optimization.offload_optimizer.device=cpu\n", "training.threads=3\n",
          "training.log_interval=7\n", "run.dir=elsewhere\n", "training.steps=7\n"}) {
        Verdict v = prove(
            2, zero1, (std::string(more).find(".stage") == std::string::npos ? zero1 : "") + more);
        EXPECT_TRUE(v.equal) << more << v.text;
        EXPECT_TRUE(v.parameters && v.losses && !v.open);
        EXPECT_NE(v.text.find("equal to the bit"), std::string::npos);
    }
}

// A tied table has a sum for each of its chunks, wherever these are.
TEST(Prove, SchedulesAreEqual) {
    const std::string many =
        "gradient_accumulation_steps=4\ntrain_micro_batch_size_per_gpu=2\n" + two_stages;
    for (const char *other : {"gpipe", "zb-h1", "interleaved", "zb-v"}) {
        std::string schedule = "parallel.pipeline_schedule=" + std::string(other) + "\n";
        if (strchr("iz", other[0]) && strcmp(other, "zb-h1") != 0)
            schedule += "parallel.virtual_pipeline_model_parallel_size=2\n";
        Verdict v = prove(2, many, many + schedule);
        EXPECT_TRUE(v.equal) << other << v.text;
    }
}

TEST(Prove, NamesTheTiedTable) {
    Verdict v = prove(2, "", 4, two_stages);
    EXPECT_FALSE(v.equal || v.open || v.parameters);
    EXPECT_TRUE(v.names("gradients of wte\n")) << v.text;
    EXPECT_NE(v.text.find("reduce_scatter(head m0 += embedding m0)"), std::string::npos) << v.text;
    EXPECT_EQ(v.text.find("wpe"), std::string::npos) << v.text;
    v = prove(2, untied, 4, untied + two_stages);
    EXPECT_TRUE(v.equal) << v.text;
}

TEST(Prove, NamesReductions) {
    Verdict v = prove(2, zero1, zero2);
    EXPECT_FALSE(v.equal || v.open);
    EXPECT_NE(v.text.find("reduce_scatter(m0 += m1 += m2 += m3)"), std::string::npos) << v.text;
    EXPECT_NE(v.text.find("reduce_scatter(m0) + reduce_scatter(m1)"), std::string::npos) << v.text;
    EXPECT_EQ(v.text.find("loss"), std::string::npos) << v.text;
    // Told to reduce at the same times, they are equal.
    v = prove(2, zero1, zero2 + "zero_optimization.grad_reduce=per_step\n");
    EXPECT_TRUE(v.equal) << v.text;
    // Of one data rank only a product's rounding is left.
    v = prove(1, untied + zero1, untied + zero2);
    EXPECT_TRUE(v.open) << v.text;
    const std::string bf16 = untied + "bf16.enabled=true\n",
                      narrow = bf16 + "data_types.grad_accum_dtype=bf16\n";
    v = prove(1, narrow + zero1, narrow + zero2);
    EXPECT_FALSE(v.open || v.equal) << v.text;
    v = prove(1, bf16 + zero1, bf16 + zero2);
    EXPECT_TRUE(v.open) << v.text;
}

// In bf16 `auto` is fp32 where micro-batches are added up, and bf16 where there is one.
TEST(Prove, AutomaticTypesOfGradientsAreCompared) {
    const std::string key = "data_types.grad_accum_dtype", bf16 = "bf16.enabled=true\n",
                      one = bf16 + "train_micro_batch_size_per_gpu=4\n";
    EXPECT_TRUE(prove(2, bf16, bf16 + key + "=fp32\n").equal);
    EXPECT_TRUE(prove(2, one, one + key + "=bf16\n").equal);
    Verdict v = prove(2, bf16, one);
    EXPECT_TRUE(v.names(key)) << v.text;
    const std::string fp16 = "fp16.enabled=true\ntraining.gemm.fp16=sgemm\n";
    EXPECT_TRUE(prove(2, fp16, fp16 + key + "=fp16\n").equal);
    v = prove(2, fp16, fp16 + key + "=fp32\n");
    EXPECT_TRUE(v.names(key)) << v.text;
}

// Each way of rounding what travels makes another sum, also of the same ranks in another order.
TEST(Prove, ComparesTypesOnTheWire) {
    const std::string bf16 = "bf16.enabled=true\ndata_types.grad_accum_dtype=fp32\n",
                      key = "communication_data_type", narrow = bf16 + key + "=bf16\n";
    EXPECT_TRUE(prove(2, bf16, bf16 + key + "=fp32\n").equal);
    EXPECT_TRUE(prove(1, bf16, narrow).equal) << "one rank sends nothing";
    EXPECT_TRUE(prove(4, narrow + zero2, narrow + "zero_optimization.stage=3\n").equal);
    Verdict v = prove(2, bf16, narrow);
    EXPECT_FALSE(v.equal || v.open || v.parameters) << v.text;
    EXPECT_NE(v.text.find("reduce_scatter in bf16(m0"), std::string::npos) << v.text;
    EXPECT_NE(v.text.find("bf16 on the wire"), std::string::npos) << v.text;
    EXPECT_FALSE(prove(2, narrow, bf16 + key + "=fp16\n").parameters);
    const std::string untied16 = untied + narrow + "train_micro_batch_size_per_gpu=2\n";
    EXPECT_FALSE(prove(2, untied16 + "train_batch_size=8\n", 4, untied16 + "train_batch_size=8\n")
                     .parameters);
}

// Two data ranks add as two micro-batches do; four begin in other places in each shard.
TEST(Prove, DataRanksLikeMicroBatches) {
    const std::string big = zero2 + "train_batch_size=2\n", four = zero2 + "train_batch_size=4\n";
    Verdict v = prove(1, big, 2, big);
    EXPECT_TRUE(v.open && v.parameters && v.losses) << v.text;
    EXPECT_TRUE(v.names("gradient norm")) << v.text;
    EXPECT_NE(v.text.find("Still equal to the bit: parameters, losses"), std::string::npos);
    v = prove(1, big + "gradient_clipping=1\n", 2, big + "gradient_clipping=1\n");
    EXPECT_TRUE(v.open && !v.parameters && !v.losses) << v.text;
    v = prove(1, four, 4, four);
    EXPECT_FALSE(v.open || v.parameters) << v.text;
    EXPECT_TRUE(v.names("gradients of wpe to ln_f")) << v.text;
}

TEST(Prove, ComparesSharesOfSamples) {
    const std::string pairs = "train_micro_batch_size_per_gpu=4\ngradient_accumulation_steps=1\n";
    Verdict v = prove(2, pairs, pairs + "parallel.device_speeds=[1, 0.34]\n");
    EXPECT_FALSE(v.equal || v.open);
    EXPECT_NE(v.text.find("2 to 6 samples each"), std::string::npos) << v.text;
    v = prove(2, pairs + "parallel.device_speeds=[1, 0.34]\n",
              pairs + "parallel.device_speeds=[1, 0.35]\n");
    EXPECT_TRUE(v.equal) << v.text;
}

TEST(Prove, NamesKeys) {
    Verdict v = prove(2, "training.seed=3\n", "optimizer.params.lr=0.1\n");
    EXPECT_FALSE(v.equal || v.open || v.parameters);
    EXPECT_TRUE(v.names("training.seed\n    A: 3\n    B: 1\n")) << v.text;
    EXPECT_TRUE(v.names("optimizer.params.lr\n    A: 0.0006\n    B: 0.1\n")) << v.text;
    v = prove(2, "scheduler.type=WarmupDecayLR\n",
              "scheduler.type=WarmupDecayLR\ntraining.steps=9\n");
    EXPECT_TRUE(v.names("scheduler.params.total_num_steps")) << v.text;
    v = prove(2, "data.train=a.bin\n", "data.train='[a.bin, b.bin]'\n");
    EXPECT_TRUE(v.names("data.train")) << v.text;
}

// It depends on the data whether a norm is ever so large.
TEST(Prove, LeavesBoundsOpen) {
    Verdict v = prove(2, "", "gradient_clipping=1\n");
    EXPECT_TRUE(v.open && v.names("gradient_clipping: decides bits only")) << v.text;
    v = prove(2, "fp16.enabled=true\ntraining.gemm.fp16=sgemm\n",
              "fp16.enabled=true\ntraining.gemm.fp16=sgemm\nfp16.initial_scale_power=8\n");
    EXPECT_TRUE(v.open && v.names("fp16.initial_scale_power: decides bits only")) << v.text;
    v = prove(2, "", "training.gemm.fp32=portable\n");
    EXPECT_TRUE(v.open && v.names("training.gemm")) << v.text;
}

// Equal files, values that no step comes to, or a difference that rounding takes away: what may be
// equal is not called different.
TEST(Prove, LeavesOpenWhatMayBeEqual) {
    const std::string still = "optimizer.params.lr=0\n", loaded = "checkpoint.init_from=c\n";
    const struct {
        std::string key, both, a, b;
    } cases[] = {
        {"model.make_vocab_size_divisible_by", "", "64", "32"},
        {"model.sliding_window", untied, "0", "8"},
        {"model.rope_scaling.rope_type", untied, "default", "linear"},
        {"model.head_dim", untied, "auto", "8"},
        {"model.intermediate_size", untied, "auto", "128"},
        {"model.init_method_std", loaded, "0.02", "0.03"},
        {"training.seed", loaded, "1", "2"},
        {"checkpoint.init_from", "", "c", "d"},
        {"checkpoint.resume", "", "auto", "d"},
        {"data.train", "", "a.bin", "./a.bin"},
        {"data.train", "", "a.bin", "[{path: a.bin, weight: 2}]"},
        {"data.seed", "", "1", "2"},
        {"optimizer.params.weight_decay", still, "0", "0.1"},
        {"optimizer.params.eps", still, "1e-8", "1e-7"},
        {"optimizer.params.betas", still, "[0.9, 0.95]", "[0.9, 0.999]"},
        {"optimizer.params.betas", "training.steps=1\n", "[0.9, 0.95]", "[0.9, 0.999]"},
        {"optimizer.params.lr", "", "1e-3", "1.0000000001e-3"},
        {"optimizer.params.lr", "", "1e-20", "2e-20"},
        {"scheduler.type", "", "constant", "WarmupLR"},
        {"optimizer.params.betas", "optimizer.type=Lion\n", "[0.9, 0.95]", "[0.9, 0.99]"},
        {"optimizer.params.lr", "optimizer.param_groups=* lr=1e-3\n", "1e-3", "2e-3"},
        {"optimizer.param_groups", "", "*bias lr_scale=0", "bias lr_scale=0"},
        {"scheduler.params.num_cycles", "scheduler.type=cosine_with_restarts\n", "1", "2"},
        {"scheduler.params.power", "scheduler.type=polynomial\n", "1", "2"},
        {"scheduler.type", "", "constant", "WarmupDecayLR"},
    };
    for (const auto &at : cases) {
        const std::string a = at.both + at.key + "=" + at.a + "\n",
                          b = at.both + at.key + "=" + at.b + "\n";
        const Verdict v = prove(2, a, b), back = prove(2, b, a);
        EXPECT_TRUE(v.open && !v.parameters && v.names(at.key + ": ")) << v.text;
        EXPECT_TRUE(back.open && back.names(at.key + ": ")) << back.text;
        EXPECT_EQ(v.text.find("total_num_steps"), std::string::npos) << v.text;
        EXPECT_EQ(back.text.find("total_num_steps"), std::string::npos) << back.text;
    }
}

TEST(Prove, CallsDifferentWhatCannotBeEqual) {
    const std::string cosine =
        "scheduler.type=WarmupCosineLR\nscheduler.params.warmup_num_steps=9\n";
    const struct {
        std::string key, both, a, b;
    } cases[] = {
        {"model.num_layers", "", "2", "3"},
        {"model.intermediate_size", untied, "64", "128"},
        {"model.init_method_std", "", "0.02", "0.03"},
        {"train_batch_size", "", "8", "16"},
        {"optimizer.type", "", "AdamW", "SGD"},
        {"optimizer.params.lr", cosine, "1e-3", "2e-3"},
        {"optimizer.params.betas", "", "[0.9, 0.95]", "[0.9, 0.999]"},
    };
    for (const auto &at : cases) {
        const Verdict v =
            prove(2, at.both + at.key + "=" + at.a + "\n", at.both + at.key + "=" + at.b + "\n");
        EXPECT_FALSE(v.open || v.equal || v.parameters) << v.text;
        EXPECT_TRUE(v.names(at.key + "\n")) << v.text;
    }
}

// The first step of a delayed update has no gradients yet; those of the second are compared.
TEST(Prove, ReadsDelayedUpdates) {
    const std::string host = "zero_optimization.offload_optimizer.device=cpu\n",
                      key = "zero_optimization.offload_optimizer.delayed_param_update",
                      delayed = host + key + "=true\n";
    Verdict v = prove(2, zero1 + host, zero1 + delayed);
    EXPECT_FALSE(v.open || v.equal) << v.text;
    EXPECT_TRUE(v.names(key + "\n")) << v.text;
    v = prove(2, zero1 + delayed, zero2 + delayed);
    EXPECT_FALSE(v.open || v.equal) << v.text;
    EXPECT_TRUE(v.names("gradients of ")) << v.text;
    v = prove(2, zero1 + delayed, zero1 + delayed + "zero_optimization.overlap_comm=false\n");
    EXPECT_TRUE(v.equal) << v.text;
}

// What is in every sum is named alone.
TEST(Prove, StopsWhereNoSumIsAlike) {
    for (const char *more : {"bf16.enabled=true\n", "parallel.tensor_model_parallel_size=2\n",
                             "model.hidden_size=64\n", "model.tiling=2\n"}) {
        Verdict v = prove(2, "", 2, more);
        EXPECT_FALSE(v.equal || v.open) << more;
        EXPECT_NE(v.text.find("Every sum depends on a key named here"), std::string::npos)
            << v.text;
        EXPECT_EQ(v.text.find("gradients of"), std::string::npos) << v.text;
    }
    // A tile for everything is no tile.
    EXPECT_TRUE(prove(2, "", "model.tiling=1\n").equal);
}

// Another value of a key, of its type and within its rule; "": none is known.
static std::string another(const char *type, const std::string &standard, const std::string &rule) {
    if (std::string(type) == "BOOL") return standard == "true" ? "false" : "true";
    if (std::string(type) == "ENUM") {
        std::istringstream options(rule);
        for (std::string option; std::getline(options, option, '|');)
            if (option != standard) return option;
    }
    if (std::string(type) == "FLOAT2") return "[0.8, 0.9]";
    if (std::string(type) == "INT") return standard == "2" ? "1" : "2";
    if (std::string(type) == "FLOAT") return standard == "0.5" ? "0.25" : "0.5";
    return "";
}

// No key changes bits behind its class: one of class NONE or SUM leaves the proof to the programs,
// another value of one that decides is never called equal. A key without a class does not compile.
TEST(Prove, GoesByTheClassOfEachKey) {
    int seen = 0, decide = 0;
    auto look = [&](const char *path, const char *type, z3d_config_bits bits, const char *standard,
                    const char *rule) {
        const std::string value = another(type, standard, rule);
        const bool decides = bits != Z3D_BITS_NONE && bits != Z3D_BITS_SUM &&
                             bits != Z3D_BITS_DECIDE_ON_GPUS && bits != Z3D_BITS_METHOD_ON_GPUS;
        if (value.empty()) return;
        z3d_config *config[2] = {read(untied), read(untied)};
        z3d_proof proof = {};
        int data;
        if (z3d_config_override(config[1], (std::string(path) + "=" + value).c_str()) == Z3D_OK &&
            z3d_config_settle(config[1], &z3d_model_rules, 2, &data) == Z3D_OK) {
            z3d_string now[2] = {};
            for (int side = 0; side < 2; side++) z3d_config_value(config[side], path, &now[side]);
            const z3d_prove_side a = {config[0], 2, "a.yaml"}, b = {config[1], 2, "b.yaml"};
            if (strcmp(now[0].text, now[1].text) != 0 && z3d_prove(&a, &b, &proof) == Z3D_OK) {
                seen++, decide += decides;
                if (decides) {
                    EXPECT_FALSE(z3d_proof_is_equal(&proof)) << path << "\n" << proof.text.text;
                }
                if (bits == Z3D_BITS_NONE) {
                    EXPECT_TRUE(z3d_proof_is_equal(&proof)) << path << "\n" << proof.text.text;
                }
            }
            for (z3d_string &text : now) z3d_string_free(&text);
        }
        z3d_string_free(&proof.text);
        for (z3d_config *c : config) z3d_config_destroy(c);
    };
#define X(field, path, type, standard, rule, bits, ...)                                            \
    look(path, #type, Z3D_BITS_##bits, standard, rule);
    Z3D_CONFIG_KEYS(X)
#undef X
    EXPECT_GT(seen, 50);
    EXPECT_GT(decide, 15);
}

// Its sums may round alike, and of small ones they do.
TEST(Prove, SequenceParallelismMayBeEqual) {
    const std::string two = untied + "parallel.tensor_model_parallel_size=2\n";
    Verdict v = prove(2, two, two + "parallel.sequence_parallel=true\n");
    EXPECT_TRUE(v.open && v.names("parallel.sequence_parallel")) << v.text;
}

TEST(Prove, LeavesOpenWhatARunDecides) {
    Verdict v = prove(2, "training.gemm.fp32=measured\n", "training.gemm.fp32=measured\n");
    EXPECT_TRUE(v.open && !v.parameters) << v.text;
    EXPECT_TRUE(v.names("training.gemm is measured")) << v.text;
    EXPECT_TRUE(prove(2, "training.gemm.fp32=measured\n", "").open);
    // A table says what auto is.
    v = prove(2, "training.gemm.fp32=auto\n", "training.gemm.fp32=auto\n");
    EXPECT_TRUE(v.equal) << v.text;
    v = prove(2, "training.gemm.fp32=auto\n", "");
    EXPECT_TRUE(v.open && v.names("training.gemm.fp32")) << v.text;
    // No method would make two types alike.
    v = prove(2, "training.gemm.fp32=auto\n", "bf16.enabled=true\ntraining.gemm.bf16=auto\n");
    EXPECT_FALSE(v.equal || v.open) << v.text;
    EXPECT_EQ(v.text.find("training.gemm"), std::string::npos) << v.text;
    v = prove(2, "parallel.device_speeds=measured\n", "parallel.device_speeds=measured\n");
    EXPECT_TRUE(v.open && v.names("parallel.device_speeds is measured")) << v.text;
    // One rank has all samples.
    v = prove(1, "parallel.device_speeds=measured\n", "parallel.device_speeds=measured\n");
    EXPECT_TRUE(v.equal) << v.text;
}

// NCCL's order is its own, and the host's step is not the GPU's.
TEST(Prove, TrustsNcclWithEqualSizesOnly) {
    const std::string cuda = "training.device=cuda\n", host = cuda + "training.collectives=host\n",
                      pieces = "zero_optimization.reduce_bucket_size=100\n";
    EXPECT_TRUE(prove(2, cuda, cuda).equal);
    EXPECT_FALSE(prove(2, cuda, cuda + pieces).equal);
    const std::string windows = cuda + "training.nccl.windows=true\n";
    EXPECT_TRUE(prove(2, windows, windows).equal);
    EXPECT_TRUE(prove(2, cuda, windows).open);
    EXPECT_TRUE(prove(2, host, host + pieces).equal);
    Verdict v = prove(2, cuda, cuda + "zero_optimization.offload_optimizer.device=cpu\n");
    EXPECT_TRUE(v.names("zero_optimization.offload_optimizer.device")) << v.text;
    const std::string some = host + "zero_optimization.offload_optimizer.device=cpu\n"
                                    "zero_optimization.offload_optimizer.ratio=0.5\n";
    EXPECT_TRUE(prove(2, some, some).equal);
    v = prove(2, some + "zero_optimization.stage=2\n", some + "zero_optimization.stage=3\n");
    EXPECT_TRUE(v.open && v.names("zero_optimization.offload_optimizer.ratio")) << v.text;
    const std::string any = cuda + "bf16.enabled=true\ntraining.deterministic=false\n";
    v = prove(2, any, any);
    EXPECT_TRUE(v.open) << v.text;
    EXPECT_FALSE(prove(2, "", cuda).equal);
}

// A GPU's product in 16 bits gives gelu of what it has not rounded yet.
TEST(Prove, KnowsThatAKeptActivationMayBeRoundedOtherwise) {
    const std::string key = "activation_checkpointing.recompute_activation",
                      cuda = "training.device=cuda\n", bf16 = cuda + "bf16.enabled=true\n",
                      again = key + "=true\n", kept = key + "=false\n";
    EXPECT_TRUE(prove(2, again, kept).equal);
    EXPECT_TRUE(prove(2, cuda + again, cuda + kept).equal);
    EXPECT_TRUE(prove(2, bf16 + kept, bf16 + kept).equal);
    for (const std::string &side : {again, std::string()}) {
        Verdict v = prove(2, bf16 + side, bf16 + kept);
        EXPECT_TRUE(v.open && v.names(key.c_str())) << v.text;
    }
}

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
