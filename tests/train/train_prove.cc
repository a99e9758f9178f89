// What `zero3d prove` says of random pairs of configurations, against their training on real ranks:
// what it calls equal has equal bits, what it calls different differs in at least one.
//
// All worlds draw the same pairs. Each trains those configurations that have its number of ranks
// and leaves the results in a file; the largest world compares.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <sstream>

extern "C" {
#include "src/base/xxh3.h"
#include "src/plan/prove/prove.h"
#include "src/train/schedule.h"
#include "src/train/trainer.h"
}
#include "run.h"

namespace {

constexpr int STEPS = 4, LARGEST = 4;
constexpr int64_t BATCH = 8;

class Random {
  public:
    explicit Random(unsigned seed) : engine_(seed) {}
    template <typename T> T of(std::initializer_list<T> values) {
        return *(values.begin() + (long)(engine_() % values.size()));
    }
    int below(int count) {
        return (int)(engine_() % (unsigned)count);
    }
    bool chance(unsigned percent) {
        return engine_() % 100 < percent;
    }

  private:
    std::mt19937 engine_;
};

struct Sizes {
    int tensor, pipeline, data;
};

struct Case {
    std::string model = "gpt2", dtype = "fp32", optimizer = "AdamW", granularity = "full",
                schedule = "1f1b", grad_reduce = "auto", gemm = "sgemm", frozen, cut, wire = "auto";
    Sizes sizes{1, 1, 1};
    int accumulation = 1, stage = 0, threads = 1, seed = 1, data_seed = 1, tiling = 1, offload = 0;
    int reduce_bucket = 1000, gather_bucket = 1000;
    double clipping = 0, dropout = 0, lr = 1e-2;
    bool tied = false, grad_fp32 = false, sequence = false, overlap = true, partition = false,
         on_host = false, unequal = false;

    int ranks() const {
        return sizes.tensor * sizes.pipeline * sizes.data;
    }
    // What the sizes leave of the other choices.
    void settle() {
        int least = sizes.pipeline == 1 ? 1 : sizes.pipeline;
        if (accumulation < least) accumulation = least;
        while (accumulation * sizes.data > BATCH) accumulation /= 2;
    }
    int64_t micro_batch() const {
        return BATCH / (sizes.data * accumulation);
    }
    std::string text() const;
};

std::string line(const std::string &key, const std::string &value) {
    return key + "=" + value + "\n";
}
std::string line(const std::string &key, double value) {
    std::ostringstream out;
    out << value;
    return line(key, out.str());
}

std::string text_of_model(const Case &c) {
    std::string t = line("model.type", c.model) + line("model.num_layers", 2) +
                    line("model.hidden_size", 32) + line("model.num_attention_heads", 4) +
                    line("model.seq_length", 8) + line("model.vocab_size", 67) +
                    line("model.make_vocab_size_divisible_by", 8) +
                    line("model.init_method_std", 0.08);
    if (c.model == "llama" && c.tied) t += line("model.tie_word_embeddings", "true");
    if (c.model == "gpt2" && c.dropout > 0) t += line("model.hidden_dropout", c.dropout);
    if (c.tiling > 1) t += line("model.tiling", c.tiling);
    if (!c.frozen.empty()) t += line("training.freeze", c.frozen);
    return t;
}

std::string text_of_sizes(const Case &c) {
    std::string t = line("parallel.tensor_model_parallel_size", c.sizes.tensor) +
                    line("parallel.pipeline_model_parallel_size", c.sizes.pipeline);
    if (c.sizes.tensor > 1 && c.sequence) t += line("parallel.sequence_parallel", "true");
    if (c.sizes.pipeline == 2) {
        t += line("parallel.pipeline_schedule", c.schedule);
        if (c.schedule == "interleaved" || c.schedule == "zb-v")
            t += line("parallel.virtual_pipeline_model_parallel_size", 2);
    }
    if (c.unequal && c.sizes.data == 2 && c.ranks() == 2 && c.micro_batch() > 1)
        t += line("parallel.device_speeds", "[1, 0.34]");
    return t + line("train_batch_size", BATCH) +
           line("train_micro_batch_size_per_gpu", (double)c.micro_batch()) +
           line("gradient_accumulation_steps", c.accumulation);
}

std::string text_of_memory(const Case &c) {
    std::string t = line("zero_optimization.stage", c.stage) +
                    line("zero_optimization.reduce_bucket_size", c.reduce_bucket) +
                    line("zero_optimization.allgather_bucket_size", c.gather_bucket) +
                    line("zero_optimization.grad_reduce", c.grad_reduce) +
                    line("zero_optimization.overlap_comm", c.overlap ? "true" : "false") +
                    line("activation_checkpointing.granularity", c.granularity);
    if (c.cut == "hierarchical")
        t += line("parallel.collective_algorithm", c.cut) + line("parallel.ranks_per_node", 2);
    if (c.cut == "hpz" && c.stage == 3) t += line("zero_optimization.zero_hpz_partition_size", 2);
    if (c.cut == "mics" && c.stage > 0) t += line("zero_optimization.mics_shard_size", 2);
    if (c.offload > 0) t += line("zero_optimization.offload_optimizer.device", "cpu");
    if (c.offload > 1 && c.stage == 3) t += line("zero_optimization.offload_param.device", "cpu");
    bool full = c.granularity == "full";
    if (full && c.partition && c.sizes.tensor > 1)
        t += line("activation_checkpointing.partition_activations", "true");
    if (full && c.on_host) t += line("activation_checkpointing.cpu_checkpointing", "true");
    return t;
}

std::string Case::text() const {
    std::string t = text_of_model(*this) + text_of_sizes(*this) + text_of_memory(*this);
    if (dtype != "fp32") t += line(dtype + ".enabled", "true");
    if (dtype != "fp32")
        t += line("data_types.grad_accum_dtype",
                  grad_fp32 ? "fp32" : dtype); // auto depends on accumulation
    if (dtype == "fp32" || grad_fp32) t += line("communication_data_type", wire);
    return t +
           line("training.gemm." + dtype, dtype == "fp32" || gemm != "matmul" ? gemm : "sgemm") +
           line("optimizer.type", optimizer) + line("optimizer.params.lr", lr) +
           line("gradient_clipping", clipping) + line("training.seed", seed) +
           line("data.seed", data_seed) + line("training.threads", threads) +
           line("training.steps", STEPS) + line("training.peak_tflops", 0.1);
}

// ---- drawing ----

Sizes some_sizes(Random &r) {
    return r.of<Sizes>({{1, 1, 1},
                        {1, 1, 2},
                        {1, 1, 2},
                        {1, 1, 4},
                        {2, 1, 1},
                        {2, 1, 2},
                        {1, 2, 1},
                        {1, 2, 2},
                        {2, 2, 1},
                        {4, 1, 1},
                        {1, 4, 1}});
}

// What changes no bit, and what may: by number, so that one of them is drawn again.
enum { FREE = 9, DECIDING = 18 };

void draw_free(Random &r, Case &c, int which) {
    switch (which) {
    case 0:
        c.granularity = r.of<const char *>({"full", "selective", "none"});
        break;
    case 1:
        c.schedule = r.of<const char *>({"1f1b", "gpipe", "interleaved", "zb-h1", "zb-v"});
        break;
    case 2:
        c.threads = r.of({1, 2});
        break;
    case 3:
        c.reduce_bucket = r.of({100, 1000, 1000000});
        break;
    case 4:
        c.gather_bucket = r.of({300, 1000, 1000000});
        break;
    case 5:
        c.overlap = r.chance(60);
        break;
    case 6:
        c.partition = r.chance(50);
        break;
    case 7:
        c.on_host = r.chance(30);
        break;
    default:
        c.offload = r.of({0, 0, 1, 2});
    }
}

void draw_deciding(Random &r, Case &c, int which) {
    switch (which) {
    case 0:
    case 1:
        c.stage = r.of({0, 1, 2, 3});
        break;
    case 2:
    case 3:
        c.sizes = some_sizes(r);
        break;
    case 4:
        c.accumulation = r.of({1, 2, 4});
        break;
    case 5:
        c.grad_reduce = r.of<const char *>({"auto", "per_step", "per_microbatch"});
        break;
    case 6:
        c.dtype = r.of<const char *>({"fp32", "fp32", "bf16", "fp16"});
        break;
    case 7:
        c.grad_fp32 = r.chance(40);
        break;
    case 8:
        c.optimizer = r.of<const char *>({"AdamW", "Lion", "SGD"});
        break;
    case 9:
        c.tiling = r.of({1, 1, 2});
        break;
    case 10:
        c.clipping = r.of({0.0, 0.05, 0.1}); // smaller than every norm
        break;
    case 11:
        c.dropout = r.of({0.0, 0.0, 0.1});
        break;
    case 12:
        c.sequence = r.chance(40);
        break;
    case 13:
        c.seed = r.of({1, 1, 2});
        break;
    case 14:
        c.data_seed = r.of({1, 1, 2});
        break;
    case 15:
        c.gemm = r.of<const char *>({"sgemm", "sgemm", "matmul", "portable"});
        break;
    case 16:
        c.lr = r.of({1e-2, 1e-2, 2e-2});
        break;
    default:
        c.unequal = r.chance(40);
    }
}

struct Pair {
    Case of[2];
};

Pair some_pair(Random &r) {
    Pair pair;
    Case &a = pair.of[0], &b = pair.of[1];
    a.model = r.of<const char *>({"gpt2", "gpt2", "llama"});
    a.tied = r.chance(30);
    for (int k = 0; k < DECIDING; k++) draw_deciding(r, a, k);
    for (int k = 0; k < FREE; k++) draw_free(r, a, k);
    b = a;
    for (int k = 0; k < FREE; k++) draw_free(r, b, k);
    // In three of four pairs one to three of what may decide bits are drawn again.
    int again = r.of({0, 1, 2, 3});
    for (int k = 0; k < again; k++) draw_deciding(r, b, r.below(DECIDING));
    if (again == 0 && r.chance(60)) b.stage = r.of({0, 1, 2, 3});
    a.settle();
    b.settle();
    return pair;
}

int count_pairs() {
    return getenv("ZERO3D_LONG") ? 1000 : SANITIZED ? 30 : 100;
}

// With the pairs of configurations whose norms alone are added in another order: two data ranks
// have the samples of two micro-batches, which are added as they are.
std::vector<Pair> all_pairs() {
    Random r(18);
    std::vector<Pair> pairs;
    for (int k = 0; k < count_pairs(); k++) pairs.push_back(some_pair(r));
    for (const char *dtype : {"fp32", "bf16"})
        for (double clipping : {0.0, 0.05}) {
            Pair pair;
            for (Case &c : pair.of) {
                c.dtype = dtype;
                c.clipping = clipping;
                c.stage = 2;
            }
            pair.of[0].sizes.data = 2;
            pair.of[1].accumulation = 2;
            pairs.push_back(pair);
        }
    Random other(32); // some parameters are frozen: a block, the first, in each
    for (int k = 0; k < count_pairs() / 10; k++) {
        Pair pair = some_pair(other);
        pair.of[0].frozen = pair.of[1].frozen =
            other.of<const char *>({".1.", ".0.", "*mlp*", "*m*.weight"});
        pairs.push_back(pair);
    }
    Random cuts(33); // the data axis is cut, on one side or on both
    for (int k = 0; k < count_pairs() / 5; k++) {
        Pair pair = some_pair(cuts);
        for (Case &c : pair.of) {
            c.cut = cuts.of<const char *>({"", "hierarchical", "hpz", "mics"});
            c.sizes = {1, 1, 4};
            if (c.cut == "hpz") c.stage = 3;
            if (pair.of[0].cut == "mics" && cuts.chance(50)) c.cut = "mics";
            c.settle();
        }
        pairs.push_back(pair);
    }
    Random wires(34); // gradients travel in 16 bits, on one side or on both
    for (int k = 0; k < count_pairs() / 8; k++) {
        Pair pair = some_pair(wires);
        const Sizes sizes =
            wires.of<Sizes>({{1, 1, 2}, {1, 1, 4}, {1, 1, 4}, {2, 1, 2}, {1, 2, 2}});
        for (Case &c : pair.of) {
            c.grad_fp32 = true;
            c.wire = wires.of<const char *>({"auto", "bf16", "bf16", "fp16"});
            c.sizes = sizes;
        }
        if (wires.chance(60)) pair.of[1].wire = pair.of[0].wire;
        if (wires.chance(30)) pair.of[1].sizes = {1, 1, 4};
        for (Case &c : pair.of) c.settle();
        pairs.push_back(pair);
    }
    return pairs;
}

// ---- training ----

struct Result {
    double loss[STEPS], norm[STEPS];
    uint64_t parameters; // their digest
};

z3d_config *read_case(const Case &c, const SharedFolder &folder) {
    z3d_config *config = nullptr;
    EXPECT_EQ(z3d_config_create(&config), Z3D_OK);
    std::istringstream lines(c.text() + line("data.train", folder / "train.bin") +
                             line("run.dir", folder / "run") + line("run.tensorboard", "false"));
    for (std::string text; std::getline(lines, text);)
        EXPECT_EQ(z3d_config_override(config, text.c_str()), Z3D_OK)
            << text << ": " << z3d_error_message();
    return config;
}

uint64_t digest_parameters(const z3d_trainer &trainer) {
    uint64_t digest = 0;
    for (int g = 0; g < trainer.model->num_groups; g++)
        for (int p = 0; p < trainer.model->group[g].num_parameters; p++) {
            const z3d_parameter &parameter = trainer.model->group[g].parameter[p];
            size_t count = 1;
            for (int d = 0; d < parameter.dims; d++) count *= (size_t)parameter.shape[d];
            std::vector<float> values(count);
            EXPECT_EQ(z3d_engine_get(trainer.engine, Z3D_TENSOR_PARAMETER, g, p, values.data()),
                      Z3D_OK)
                << z3d_error_message();
            digest = XXH3_64bits_withSeed(values.data(), count * sizeof(float), digest);
        }
    return digest;
}

void run_steps(z3d_trainer &trainer, Result *out) {
    const z3d_config *config = trainer.config;
    for (int64_t step = 1; step <= STEPS; step++) {
        z3d_step_result result{};
        z3d_step_input input{};
        input.micro = trainer.micro;
        input.sample_base = (step - 1) * config->train_batch_size;
        input.global_targets = config->train_batch_size * config->model_seq_length;
        input.learning_rate = z3d_learning_rate(config, step);
        ASSERT_EQ(z3d_trainer_read_step(&trainer, step), Z3D_OK) << z3d_error_message();
        ASSERT_EQ(z3d_engine_train_step(trainer.engine, &input, &result), Z3D_OK)
            << z3d_error_message();
        out->loss[step - 1] = result.loss;
        out->norm[step - 1] = result.grad_norm;
    }
    out->parameters = digest_parameters(trainer);
}

Result train_case(const Case &c, const SharedFolder &folder) {
    Result result{};
    z3d_trainer trainer{};
    trainer.world = world;
    trainer.config = read_case(c, folder);
    z3d_train_options options{};
    trainer.options = &options;
    ::testing::internal::CaptureStdout();
    z3d_status status = z3d_trainer_setup(&trainer);
    (void)::testing::internal::GetCapturedStdout();
    EXPECT_EQ(status, Z3D_OK) << c.text() << z3d_error_message();
    if (status == Z3D_OK) run_steps(trainer, &result);
    z3d_trainer_destroy(&trainer);
    z3d_config_destroy(trainer.config);
    SharedFolder::barrier();
    return result;
}

// ---- results of all worlds: by pair and side ----

struct Entry {
    int64_t id;
    Result result;
};

std::string file_of(int ranks) {
    return "prove-" + std::to_string(ranks) + ".bin";
}

std::map<int64_t, Result> all_results() {
    std::map<int64_t, Result> all;
    for (int ranks : {1, 2, 4}) {
        std::ifstream in(file_of(ranks), std::ios::binary);
        EXPECT_TRUE(in.good()) << file_of(ranks) << ": run the test on fewer ranks first";
        Entry entry;
        while (in.read((char *)&entry, sizeof entry)) all[entry.id] = entry.result;
    }
    return all;
}

struct Counts {
    int equal = 0, different = 0, open = 0, only_norm = 0;
};

// One pair: the verdict against the bits.
void judge(const Pair &pair, const Result &a, const Result &b, const SharedFolder &folder,
           Counts *counts) {
    z3d_config *config[2];
    for (int side = 0; side < 2; side++) config[side] = read_case(pair.of[side], folder);
    const z3d_prove_side left = {config[0], pair.of[0].ranks(), "A"},
                         right = {config[1], pair.of[1].ranks(), "B"};
    z3d_proof proof;
    ASSERT_EQ(z3d_prove(&left, &right, &proof), Z3D_OK) << z3d_error_message();
    SCOPED_TRACE(std::string(proof.text.text) + "\n" + pair.of[0].text() + "\n" +
                 pair.of[1].text());
    bool losses = memcmp(a.loss, b.loss, sizeof a.loss) == 0,
         norms = memcmp(a.norm, b.norm, sizeof a.norm) == 0,
         parameters = a.parameters == b.parameters;
    EXPECT_TRUE(losses || !proof.losses);
    EXPECT_TRUE(norms || !proof.norms);
    EXPECT_TRUE(parameters || !proof.parameters);
    const bool equal = z3d_proof_is_equal(&proof);
    EXPECT_TRUE(proof.open || (losses && norms && parameters) == equal);
    counts->equal += equal;
    counts->open += proof.open;
    counts->different += !equal && !proof.open;
    counts->only_norm += proof.parameters && proof.losses && !proof.norms;
    z3d_string_free(&proof.text);
    for (z3d_config *c : config) z3d_config_destroy(c);
}

} // namespace

TEST(Prove, SaysWhatTrainingDoes) {
    const int ranks = z3d_world_size(world);
    const std::vector<Pair> pairs = all_pairs();
    SharedFolder folder;
    std::vector<Entry> entries;
    if (z3d_world_rank(world) == 0)
        write_file(folder / "train.bin", token_bytes([] {
                       std::vector<uint16_t> tokens = some_tokens(4000);
                       for (uint16_t &t : tokens) t %= 67;
                       return tokens;
                   }()));
    SharedFolder::barrier();
    for (size_t k = 0; k < pairs.size(); k++)
        for (int side = 0; side < 2; side++)
            if (pairs[k].of[side].ranks() == ranks)
                entries.push_back({2 * (int64_t)k + side, train_case(pairs[k].of[side], folder)});
    if (z3d_world_rank(world) == 0) {
        std::ofstream(file_of(ranks), std::ios::binary)
            .write((const char *)entries.data(), (long)(entries.size() * sizeof(Entry)));
        if (ranks < LARGEST) return;
        Counts counts;
        const std::map<int64_t, Result> all = all_results();
        for (size_t k = 0; k < pairs.size(); k++)
            judge(pairs[k], all.at(2 * (int64_t)k), all.at(2 * (int64_t)k + 1), folder, &counts);
        printf("%d pairs are equal, %d differ, %d are open, %d of these only in their norm\n",
               counts.equal, counts.different, counts.open, counts.only_norm);
        EXPECT_GE(counts.equal, count_pairs() / 4);
        EXPECT_GE(counts.different, count_pairs() / 4);
        EXPECT_LE(counts.open, count_pairs() / 4 + 4); // with all of the last pairs
        EXPECT_GE(counts.only_norm, 2);
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
