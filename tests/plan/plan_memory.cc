// What a plan says of memory: every shipped configuration is packed within two per cent of the
// least possible, buffers do not grow with the model, activations take the paper's bytes at full
// size, and the picture shows what the plan has.
#include <gtest/gtest.h>

#include <climits>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/expect.h"
#include "tests/files.h"

extern "C" {
#include "src/plan/memory.h"
#include "src/plan/paper/paper.h"
#include "zero/program/layout.h"
}

namespace {

struct Plan {
    z3d_config *config = nullptr;
    z3d_plan *plan = nullptr;

    Plan(const std::string &text, int ranks, int rank = 0) {
        EXPECT_EQ(z3d_config_create(&config), Z3D_OK);
        EXPECT_EQ(z3d_config_read_text(config, text.data(), text.size(), "test"), Z3D_OK)
            << z3d_error_message();
        make(ranks, rank);
    }
    Plan(const Plan &) = delete;
    Plan &operator=(const Plan &) = delete;
    ~Plan() {
        z3d_plan_destroy(plan);
        z3d_config_destroy(config);
    }
    const z3d_program &train() const {
        return *plan->set.program[Z3D_MODE_TRAIN];
    }
    int64_t peak(z3d_category category, z3d_space space = Z3D_SPACE_DEVICE) const {
        return plan->ledger[Z3D_MODE_TRAIN][space].peak[category];
    }
    // The sum of all buffers whose names begin so; how many of them there are.
    int64_t bytes(const std::string &name, z3d_space space, int *count = nullptr) const {
        int64_t sum = 0;
        for (int i = 0; i < train().num_buffers; i++) {
            const z3d_buffer &b = train().buffer[i];
            if (b.space != space || std::string(z3d_buffer_name(&b).text).rfind(name, 0) != 0)
                continue;
            sum += b.bytes;
            if (count) ++*count;
        }
        return sum;
    }
    // The most bytes of buffers with such names that are alive at once.
    int64_t at_once(const std::string &name, z3d_space space) const {
        int64_t most = 0;
        for (int n = 0; n < train().num_instructions; n++) {
            int64_t sum = 0;
            for (int i = 0; i < train().num_buffers; i++) {
                const z3d_buffer &b = train().buffer[i];
                if (b.space == space && b.first <= n && n <= b.last &&
                    std::string(z3d_buffer_name(&b).text).rfind(name, 0) == 0)
                    sum += b.bytes;
            }
            most = std::max(most, sum);
        }
        return most;
    }

  private:
    void make(int ranks, int rank) {
        EXPECT_EQ(z3d_plan_create(config, ranks, rank, &plan), Z3D_OK) << z3d_error_message();
    }
};

std::string gpt(int layers, int hidden, int heads, int tensor, int batch, int stage,
                const std::string &activations, const std::string &zero = "") {
    return "model: { num_layers: " + std::to_string(layers) +
           ", hidden_size: " + std::to_string(hidden) +
           ", num_attention_heads: " + std::to_string(heads) +
           ", vocab_size: 51200 }\nparallel: { tensor_model_parallel_size: " +
           std::to_string(tensor) + " }\ntrain_micro_batch_size_per_gpu: " + std::to_string(batch) +
           "\ngradient_accumulation_steps: 1\nfp16: { enabled: true }\nzero_optimization: { "
           "stage: " +
           std::to_string(stage) + zero + " }\nactivation_checkpointing: { " + activations + " }\n";
}

#if defined(ZERO3D_SANITIZED)
constexpr size_t EVERY = 10;
constexpr int MANY = 50;
#else
constexpr size_t EVERY = 1;
constexpr int MANY = 200;
#endif

TEST(MemoryPlan, EveryConfigurationIsWithinTwoPercentOfTheBound) {
    std::map<std::string, std::string> texts; // by name: the shipped ones, and the paper's rows
    for (const auto &entry : std::filesystem::directory_iterator(ZERO3D_CONFIGS))
        if (entry.path().extension() == ".yaml") texts[entry.path()] = read_file(entry.path());
    for (int i = 0; i < z3d_paper_row_count; i++) {
        char name[96];
        z3d_string text{};
        z3d_paper_config(&z3d_paper_rows[i], &text);
        texts[z3d_paper_file(&z3d_paper_rows[i], name, sizeof name)] = text.text;
        z3d_string_free(&text);
    }
    ASSERT_GT(texts.size(), 50u);
    size_t next = 0;
    for (const auto &[name, text] : texts) {
        if (next++ % EVERY != 0) continue;
        SCOPED_TRACE(name);
        Plan p(text, 0);
        ASSERT_NE(p.plan, nullptr);
        for (z3d_space space : {Z3D_SPACE_DEVICE, Z3D_SPACE_HOST}) {
            z3d_packing packing;
            ASSERT_EQ(z3d_plan_packing(&p.train(), space, &packing), Z3D_OK);
            EXPECT_EQ(packing.bound, p.plan->ledger[Z3D_MODE_TRAIN][space].total_peak);
            EXPECT_GE(packing.arena, packing.bound);
            EXPECT_LE((double)packing.arena, 1.02 * (double)packing.bound);
            EXPECT_LE(packing.arena, packing.first_fit);
            EXPECT_LE(packing.arena, packing.caching);
        }
    }
}

// From 2 to 200 layers nothing grows but what persists and what is kept of each block: temporary
// memory not by a byte, communication by the 8 bytes that the control vector has for each group.
TEST(MemoryPlan, BuffersDoNotGrowWithLayers) {
    for (int stage = 0; stage < 4; stage++) {
        std::vector<int64_t> temporary, communication;
        for (int layers : {2, 20, MANY}) {
            Plan p(
                gpt(layers, 512, 8, 2, 2, stage, "granularity: full, partition_activations: true"),
                8);
            ASSERT_NE(p.plan, nullptr);
            temporary.push_back(p.peak(Z3D_CATEGORY_TEMPORARY));
            communication.push_back(p.peak(Z3D_CATEGORY_COMMUNICATION) - 8 * layers);
        }
        EXPECT_EQ(temporary, std::vector<int64_t>(3, temporary[0])) << "stage " << stage;
        EXPECT_EQ(communication, std::vector<int64_t>(3, communication[0])) << "stage " << stage;
    }
}

TEST(MemoryPlan, LargeBucketsAreSaidToBe) {
    z3d_string text{};
    Plan p(gpt(2, 512, 8, 1, 2, 2, "granularity: none",
               ", reduce_bucket_size: 5e8, allgather_bucket_size: 1000000"),
           2);
    z3d_plan_print(p.plan, false, &text);
    EXPECT_NE(std::string(text.text).find("500 M  elements at most; the largest group has 26.2 M: "
                                          "one bucket a group\n"),
              std::string::npos)
        << text.text;
    EXPECT_NE(std::string(text.text).find("1.00 M  elements at most; the largest group has 26.2 M; "
                                          "with NCCL each bucket is copied\n"),
              std::string::npos)
        << text.text;
    z3d_string_free(&text);
}

// In bf16 micro-batches are added up in fp32, if nobody asks for less.
TEST(MemoryPlan, GradientsThatAreAddedUpAreWide) {
    const auto gradients = [](const char *run, int micros, const std::string &type) {
        Plan p(
            "model: { num_layers: 2, hidden_size: 64, num_attention_heads: 4, vocab_size: 512 }\n" +
                std::string(run) + ": { enabled: true }\ndata_types: { grad_accum_dtype: " + type +
                " }\ntrain_micro_batch_size_per_gpu: 1\ngradient_accumulation_steps: " +
                std::to_string(micros) + "\n",
            1);
        return p.peak(Z3D_CATEGORY_GRADIENTS);
    };
    EXPECT_EQ(gradients("bf16", 2, "auto"), gradients("bf16", 2, "fp32"));
    EXPECT_EQ(gradients("bf16", 2, "auto"), 2 * gradients("bf16", 2, "bf16"));
    EXPECT_EQ(gradients("bf16", 1, "auto"), gradients("bf16", 1, "bf16"));
    EXPECT_EQ(gradients("fp16", 2, "auto"), gradients("fp16", 2, "fp16"));
}

// By default a group is one bucket, and so one call, however large it is: all elements of each row
// are in it. Llama 3 8B's table has 525 M elements, a block of its 70B 856 M.
TEST(MemoryPlan, ADefaultBucketIsAWholeGroup) {
    for (const char *model : {"num_layers: 32, hidden_size: 4096, num_attention_heads: 32, "
                              "intermediate_size: 14336",
                              "num_layers: 2, hidden_size: 8192, num_attention_heads: 64, "
                              "intermediate_size: 28672"})
        for (int stage : {2, 3}) {
            Plan p("model: { type: llama, num_key_value_heads: 8, vocab_size: 128256, " +
                       std::string(model) + " }\nbf16: { enabled: true }\n" +
                       "zero_optimization: { stage: " + std::to_string(stage) +
                       " }\ntrain_micro_batch_size_per_gpu: 1\n",
                   8);
            const z3d_layout &layout = *p.plan->set.layout;
            EXPECT_GT(z3d_layout_largest(&layout), 500000000);
            std::map<int, int> reductions;
            for (int i = 0; i < p.train().num_instructions; i++) {
                const z3d_instruction &in = p.train().instruction[i];
                if (in.phase != Z3D_PHASE_START ||
                    (in.opcode != Z3D_OP_REDUCE_GRADS && in.opcode != Z3D_OP_GATHER_PARAMS))
                    continue;
                EXPECT_EQ(in.count, layout.group[in.group].shard)
                    << p.plan->model->group[in.group].name;
                if (in.opcode == Z3D_OP_REDUCE_GRADS) reductions[in.group]++;
            }
            ASSERT_EQ((int)reductions.size(), layout.num_groups);
            for (const auto &[group, count] : reductions)
                EXPECT_EQ(count, 1) << p.plan->model->group[group].name;
        }
}

// The paper's section 5.1: 1.5 B parameters, 48 layers, hidden 1600, sequence 1024, 32 samples:
// about 60 GB of activations, 8 with checkpoints.
TEST(MemoryPlan, ThePapersActivationExample) {
    const int64_t layers = 48, b = 32, s = 1024, h = 1600, heads = 16, bsh2 = b * s * h * 2;
    Plan none(gpt(48, 1600, 16, 1, 32, 0, "granularity: none"), 1);
    ASSERT_NE(none.plan, nullptr);
    // What a block keeps beside the 12 b s h: fp32 mean and reciprocal deviation of two
    // layernorms, the attention's log-sum-exp.
    const int64_t statistics = 4 * b * s * 4 + heads * b * s * 4;
    int64_t kept = none.bytes("saved block.", Z3D_SPACE_DEVICE) +
                   none.bytes("output block.", Z3D_SPACE_DEVICE);
    EXPECT_EQ(kept, layers * (12 * bsh2 + statistics));
    EXPECT_NEAR((double)(12 * bsh2 * layers) * 1e-9, 60.4, 0.05);
    EXPECT_LT(statistics * 100, 12 * bsh2);

    Plan full(gpt(48, 1600, 16, 1, 32, 0, "granularity: full"), 1);
    ASSERT_NE(full.plan, nullptr);
    // Checkpoints are the blocks' inputs: the outputs of the embedding and of all blocks but the
    // last.
    EXPECT_EQ(full.at_once("output ", Z3D_SPACE_DEVICE) -
                  full.at_once("output gradient ", Z3D_SPACE_DEVICE),
              layers * bsh2);
    EXPECT_NEAR((double)(layers * bsh2) * 1e-9, 5.03, 0.005);
    int64_t one = full.at_once("saved block.", Z3D_SPACE_DEVICE);
    EXPECT_LE(one, 12 * bsh2 + statistics);
    EXPECT_NEAR((double)(12 * bsh2) * 1e-9, 1.26, 0.005);
    EXPECT_LT((double)full.peak(Z3D_CATEGORY_ACTIVATIONS) * 1e-9, 8);
    // Logits are temporary, in both.
    for (const Plan *p : {&none, &full}) {
        EXPECT_GE(p->at_once("saved head", Z3D_SPACE_DEVICE), b * s * 51200 * 2);
        EXPECT_GE(p->peak(Z3D_CATEGORY_TEMPORARY), b * s * 51200 * 2);
    }
}

// 100 B parameters: 125 layers, hidden 8192, 32 samples.
TEST(MemoryPlan, ThePapersCheckpointsOf100B) {
    if (EVERY > 1) GTEST_SKIP() << "for sanitizers the example above is long enough";
    const int64_t layers = 125, bsh2 = (int64_t)32 * 1024 * 8192 * 2;
    const std::string full = "granularity: full, replay: full";
    Plan plain(gpt(125, 8192, 64, 16, 32, 2, full), 400);
    Plan split(gpt(125, 8192, 64, 16, 32, 2, full + ", partition_activations: true"), 400);
    Plan host(gpt(125, 8192, 64, 16, 32, 2,
                  full + ", partition_activations: true, cpu_checkpointing: true"),
              400);
    ASSERT_TRUE(plain.plan && split.plan && host.plan);
    // With replay: full a block's recomputed output is another one of its size beside them.
    EXPECT_EQ(plain.at_once("output ", Z3D_SPACE_DEVICE) / bsh2 * bsh2,
              plain.at_once("output ", Z3D_SPACE_DEVICE));
    EXPECT_GE(plain.at_once("output ", Z3D_SPACE_DEVICE), layers * bsh2);
    EXPECT_EQ((layers * bsh2 + 50000000) / 100000000, 671); // 67.1 GB

    int count = 0;
    EXPECT_EQ(split.bytes("checkpoint ", Z3D_SPACE_DEVICE, &count), layers * bsh2 / 16);
    EXPECT_EQ(split.at_once("checkpoint ", Z3D_SPACE_DEVICE), layers * bsh2 / 16);
    EXPECT_EQ(count, layers);
    EXPECT_EQ((layers * bsh2 / 16 + 5000000) / 10000000, 419); // 4.19 GB

    EXPECT_EQ(host.bytes("checkpoint ", Z3D_SPACE_DEVICE), 0);
    EXPECT_EQ(host.at_once("checkpoint ", Z3D_SPACE_HOST), layers * bsh2 / 16);
    EXPECT_EQ(host.peak(Z3D_CATEGORY_ACTIVATIONS, Z3D_SPACE_HOST), layers * bsh2 / 16);
    // The double buffer: the one that is used and the one that is coming, whole.
    EXPECT_EQ(host.at_once("loaded ", Z3D_SPACE_DEVICE), 2 * bsh2);
    EXPECT_LT(host.peak(Z3D_CATEGORY_ACTIVATIONS),
              split.peak(Z3D_CATEGORY_ACTIVATIONS) - layers * bsh2 / 16 + 2 * bsh2);
}

// The extra communication of P_a, as a share of what the blocks send besides.
TEST(MemoryPlan, PartitionedActivationsShare) {
    for (bool full : {true, false}) {
        Plan p(gpt(6, 512, 8, 4, 2, 2,
                   std::string("granularity: full, partition_activations: true, replay: ") +
                       (full ? "full" : "minimal")),
               4);
        ASSERT_NE(p.plan, nullptr);
        const int64_t extra = 6 * (int64_t)2 * 1024 * 512 * 3 / 4;
        EXPECT_EQ(z3d_program_volume(&p.train(), Z3D_AXES_TENSOR, false), extra);
        z3d_string text{};
        z3d_plan_print(p.plan, false, &text);
        std::string wanted = "of them P_a         " + std::string(9, ' ') + std::to_string(extra) +
                             "  = " + (full ? "8.3" : "10.0") + " % more than";
        EXPECT_NE(std::string(text.text).find(wanted), std::string::npos) << text.text;
        z3d_string_free(&text);
    }
}

// ---- the other allocators, on requests small enough to follow by hand ----

struct Requests {
    std::vector<z3d_buffer> list;
    z3d_program program{};
    Requests &add(int64_t bytes, int first, int last) {
        z3d_buffer b{};
        b.bytes = bytes;
        b.first = first;
        b.last = last;
        b.persistent = last == INT_MAX;
        list.push_back(b);
        return *this;
    }
    z3d_packing serve(int instructions) {
        z3d_packing packing{};
        program.num_instructions = instructions;
        program.num_buffers = (int)list.size();
        program.buffer = list.data();
        z3d_program *p = &program;
        EXPECT_EQ(z3d_program_plan(&p, 1), Z3D_OK);
        EXPECT_EQ(z3d_plan_packing(&program, Z3D_SPACE_DEVICE, &packing), Z3D_OK);
        return packing;
    }
};

constexpr int64_t MIB = 1 << 20;

TEST(Allocators, FirstFitLeavesHoles) {
    // a b c; b goes; d does not fit into its place: 3 + 2 beside the bound's 1 + 1 + 2.
    Requests r;
    z3d_packing p = r.add(256, 0, 9).add(256, 0, 0).add(256, 0, 9).add(512, 1, 9).serve(10);
    EXPECT_EQ(p.bound, 1024);
    EXPECT_EQ(p.arena, 1024);
    EXPECT_EQ(p.first_fit, 5 * 256);
}

TEST(Allocators, FirstFitMergesAndGrowsTheTop) {
    // Two neighbours at the top are freed: the next one takes both and a little more.
    Requests r;
    z3d_packing p = r.add(1000, 0, 9).add(256, 0, 0).add(256, 0, 0).add(600, 1, 9).serve(10);
    EXPECT_EQ(p.bound, 1600);
    EXPECT_EQ(p.first_fit, 1024 + 768);
}

TEST(Allocators, CachingRoundsToSegments) {
    EXPECT_EQ(Requests().add(1, 0, 0).serve(1).caching, 2 * MIB);
    EXPECT_EQ(Requests().add(3 * MIB, 0, 0).serve(1).caching, 20 * MIB);
    EXPECT_EQ(Requests().add(11 * MIB, 0, 0).serve(1).caching, 12 * MIB);
    // Small ones share a segment; the large pool's blocks are not for them.
    EXPECT_EQ(Requests().add(MIB, 0, 0).add(MIB, 0, 0).serve(1).caching, 2 * MIB);
    EXPECT_EQ(Requests().add(3 * MIB, 0, 0).add(1, 0, 0).serve(1).caching, 22 * MIB);
}

TEST(Allocators, CachingKeepsAndSplits) {
    // 40 is kept and split for 30; the 10 that are left serve 10, not 12.
    Requests r;
    r.add(40 * MIB, 0, 0).add(30 * MIB, 1, 2).add(10 * MIB, 2, 2);
    EXPECT_EQ(r.serve(3).caching, 40 * MIB);
    r.add(12 * MIB, 2, 2);
    EXPECT_EQ(r.serve(3).caching, 52 * MIB);
    // A rest of at most 1 MiB stays with its block.
    Requests s;
    s.add(12 * MIB, 0, 0).add(11 * MIB, 1, 1).add(1 * MIB, 1, 1);
    EXPECT_EQ(s.serve(2).caching, 14 * MIB);
    // The tightest block is taken, though a larger one stands first.
    Requests t;
    t.add(40 * MIB, 0, 0).add(20 * MIB, 0, 0).add(20 * MIB, 1, 1).add(40 * MIB, 1, 1);
    EXPECT_EQ(t.serve(2).caching, 60 * MIB);
}

// ---- the picture ----

int occurrences(const std::string &text, const std::string &what) {
    int count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
        count++;
    return count;
}

TEST(Picture, ShowsEveryBufferOfBothArenas) {
    Plan p(gpt(3, 256, 4, 2, 2, 3,
               "granularity: full, partition_activations: true, cpu_checkpointing: true"),
           4);
    z3d_string drawn{};
    ASSERT_EQ(z3d_plan_picture(p.plan, &drawn), Z3D_OK);
    std::string svg(drawn.text, drawn.length);
    z3d_string_free(&drawn);
    const std::string left_out = " buffers too small";
    int small = 0;
    for (size_t at = svg.find(left_out); at != std::string::npos; at = svg.find(left_out, at + 1)) {
        size_t number = svg.find_last_not_of("0123456789", at - 1) + 1;
        small += std::stoi(svg.substr(number, at - number));
    }
    EXPECT_EQ(occurrences(svg, "<title>") + small, p.train().num_buffers);
    EXPECT_LT(small, 20);
    for (const char *word : {"offset in the device arena, MiB", "offset in the host arena, KiB",
                             "activations, ", ">forward<", ">backward<", ">optimizer<"})
        EXPECT_NE(svg.find(word), std::string::npos) << word;
    for (const char *tag : {"svg", "g", "text", "rect", "title", "style"}) {
        std::string open = std::string("<") + tag, close = std::string("</") + tag + ">";
        int empty = 0;
        if (open == "<rect") empty = occurrences(svg, "\"/>") - occurrences(svg, "<path");
        EXPECT_EQ(occurrences(svg, open + " ") + occurrences(svg, open + ">"),
                  occurrences(svg, close) + empty)
            << tag;
    }
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
}

// Halves of backward are backward, and the host's steps are the optimizer's: with a delayed update
// they stand among forward and backward.
TEST(Picture, NamesHalvesAndTheHostsSteps) {
    const std::string model = "model: {num_layers: 2, hidden_size: 64, num_attention_heads: 2, "
                              "seq_length: 8, vocab_size: 128}\ngradient_accumulation_steps: 2\n"
                              "activation_checkpointing: {granularity: none}\n";
    auto drawn = [&](const std::string &keys, int ranks) {
        Plan p(model + keys, ranks);
        z3d_string picture{};
        EXPECT_Z3D(z3d_plan_picture(p.plan, &picture));
        std::string svg(picture.text, picture.length);
        z3d_string_free(&picture);
        return svg;
    };
    std::string halves = drawn("parallel: {pipeline_model_parallel_size: 2, pipeline_schedule: "
                               "zb-h1}\nzero_optimization: {stage: 1}\n",
                               2);
    EXPECT_NE(halves.find(">backward<"), std::string::npos);
    std::string delayed = drawn("zero_optimization: {stage: 2, offload_optimizer: {device: cpu, "
                                "delayed_param_update: true}}\n",
                                2);
    EXPECT_NE(delayed.find(">optimizer<"), std::string::npos);
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
