// The printed programs of configurations that between them use every instruction and every
// schedule, compared with the files in tests/data/programs. Addresses and sizes of arenas are left
// out: they are the planner's. `plan_programs --write` writes the files anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/expect.h"
#include "tests/files.h"

extern "C" {
#include "src/plan/plan.h"
}

namespace {

bool writes = false; // --write

constexpr z3d_mode TRAIN = Z3D_MODE_TRAIN, EVALUATE = Z3D_MODE_EVALUATE, PREFILL = Z3D_MODE_PREFILL,
                   DECODE = Z3D_MODE_DECODE;

enum Command { TRAINS, GENERATES, EVALUATES };

struct Shown {
    int rank;
    std::vector<z3d_mode> modes;
    std::vector<z3d_mode> again = {}; // as they are when no parameter has changed
};

struct Golden {
    const char *name, *keys;
    int ranks;
    std::vector<Shown> shown;
    Command command = TRAINS;
};

// Of all of them, before their own keys.
const char *const KEYS =
    "model.num_layers=2 model.hidden_size=32 model.num_attention_heads=4 model.seq_length=8 "
    "model.vocab_size=100 model.make_vocab_size_divisible_by=4 training.threads=1 "
    "train_micro_batch_size_per_gpu=2 gradient_accumulation_steps=2 ";

#define LLAMA "model.type=llama model.num_key_value_heads=2 "
#define TENSOR_2 "parallel.tensor_model_parallel_size=2 "
#define STAGES_2 "parallel.pipeline_model_parallel_size=2 parallel.pipeline_partition=uniform "
#define CHUNKS_2 "parallel.virtual_pipeline_model_parallel_size=2 model.num_layers=4 "
#define FULL "activation_checkpointing.granularity=full "
#define NONE "activation_checkpointing.granularity=none "
#define HOST "zero_optimization.offload_optimizer.device=cpu "
#define BF16 "bf16.enabled=true "

const std::vector<Golden> GOLDEN = {
    {"zero0",
     NONE "zero_optimization.stage=0 generate.prompt=text",
     2,
     {{1, {TRAIN, EVALUATE, PREFILL, DECODE}}}},
    {"zero1-sequence-parallel",
     TENSOR_2 BF16
     "zero_optimization.stage=1 parallel.sequence_parallel=true "
     "data_types.grad_accum_dtype=fp32 activation_checkpointing.granularity=selective",
     4,
     {{3, {TRAIN, EVALUATE}, {EVALUATE}}}},
    {"zero2-buckets",
     FULL BF16 "zero_optimization.stage=2 zero_optimization.reduce_bucket_size=6000 "
               "zero_optimization.allgather_bucket_size=9000 "
               "zero_optimization.overlap_comm=false",
     2,
     {{0, {TRAIN}}}},
    {"zero3-tiled",
     FULL
     "zero_optimization.stage=3 model.tiling=2 model.num_layers=1 gradient_accumulation_steps=1",
     2,
     {{1, {TRAIN}}}},
    {"partitioned-checkpoints",
     TENSOR_2 FULL "zero_optimization.stage=2 activation_checkpointing.partition_activations=true "
                   "gradient_accumulation_steps=1",
     4,
     {{2, {TRAIN}}}},
    {"partitioned-checkpoints-on-host",
     TENSOR_2 FULL "zero_optimization.stage=1 activation_checkpointing.partition_activations=true "
                   "activation_checkpointing.cpu_checkpointing=true "
                   "activation_checkpointing.replay=full model.num_layers=4 "
                   "activation_checkpointing.number_checkpoints=2 gradient_accumulation_steps=1",
     2,
     {{1, {TRAIN}}}},
    {"frozen",
     STAGES_2 FULL BF16 "zero_optimization.stage=3 training.freeze=*weight",
     4,
     {{1, {TRAIN}}, {2, {TRAIN}}}},
    {"frozen-below",
     NONE "zero_optimization.stage=2 training.freeze=*[e0].*",
     2,
     {{1, {TRAIN, EVALUATE}}}},
    {"packed-documents",
     LLAMA TENSOR_2 NONE "data.samples=documents model.qk_norm=true zero_optimization.stage=2 "
                         "gradient_accumulation_steps=1",
     4,
     {{3, {TRAIN, EVALUATE}}}},
    {"hierarchical",
     FULL "zero_optimization.stage=0 parallel.collective_algorithm=hierarchical "
          "parallel.ranks_per_node=2 gradient_accumulation_steps=1",
     4,
     {{1, {TRAIN}}}},
    {"hpz",
     FULL "zero_optimization.stage=3 zero_optimization.zero_hpz_partition_size=2 "
          "gradient_accumulation_steps=1",
     4,
     {{2, {TRAIN, EVALUATE}, {EVALUATE}}}},
    {"hybrid",
     NONE "zero_optimization.stage=2 zero_optimization.mics_shard_size=2",
     4,
     {{2, {TRAIN}}}},
    {"pipeline-1f1b", STAGES_2 FULL "zero_optimization.stage=2", 4, {{1, {TRAIN}}, {2, {TRAIN}}}},
    {"pipeline-gpipe",
     LLAMA STAGES_2 FULL BF16 "zero_optimization.stage=0 parallel.pipeline_schedule=gpipe",
     4,
     {{3, {TRAIN}}}},
    {"pipeline-interleaved",
     STAGES_2 CHUNKS_2 FULL "zero_optimization.stage=3 zero_optimization.pipeline_gather=per_step",
     4,
     {{1, {TRAIN}}}},
    {"pipeline-zb-h1",
     STAGES_2 TENSOR_2 NONE BF16 "zero_optimization.stage=1 parallel.pipeline_schedule=zb-h1",
     8,
     {{3, {TRAIN}}}},
    {"pipeline-zb-v",
     STAGES_2 CHUNKS_2 NONE "zero_optimization.stage=3 parallel.pipeline_schedule=zb-v "
                            "zero_optimization.pipeline_gather=per_microbatch",
     4,
     {{0, {TRAIN}}}},
    {"offload-host",
     HOST NONE BF16 "zero_optimization.stage=2 zero_optimization.offload_optimizer.ratio=0.6 "
                    "zero_optimization.sub_group_size=4096",
     2,
     {{1, {TRAIN}}}},
    {"offload-delayed",
     HOST FULL "zero_optimization.stage=2 model.num_layers=1 "
               "zero_optimization.offload_optimizer.delayed_param_update=true",
     2,
     {{0, {TRAIN}}}},
    {"offload-disk",
     FULL BF16 "zero_optimization.stage=3 zero_optimization.offload_optimizer.device=nvme "
               "zero_optimization.offload_optimizer.nvme_path=disk "
               "zero_optimization.offload_param.device=nvme "
               "zero_optimization.offload_param.nvme_path=disk "
               "zero_optimization.stage3_prefetch_bucket_size=0 "
               "activation_checkpointing.cpu_checkpointing=nvme "
               "activation_checkpointing.nvme_path=disk gradient_accumulation_steps=1",
     2,
     {{1, {TRAIN}}}},
    {"generate",
     STAGES_2 TENSOR_2 "zero_optimization.stage=3 zero_optimization.offload_param.device=cpu",
     8,
     {{2, {PREFILL}}, {7, {DECODE}}},
     GENERATES},
    {"evaluate",
     LLAMA STAGES_2 "zero_optimization.stage=3 data.samples=documents",
     4,
     {{3, {EVALUATE}}},
     EVALUATES},
};

// ---- what is printed ----

struct Programs {
    z3d_config *config = nullptr;
    z3d_model *model = nullptr;
    z3d_program_config made = {};
    z3d_program_set set = {};
    z3d_status status;

    Programs(const Golden &golden, int rank) {
        z3d_mesh mesh;
        status = z3d_config_create(&config);
        std::istringstream words(std::string(KEYS) + golden.keys);
        for (std::string word; status == Z3D_OK && words >> word;)
            status = z3d_config_override(config, word.c_str());
        if (status == Z3D_OK) status = z3d_plan_place(config, golden.ranks, rank, &mesh);
        if (status == Z3D_OK) status = z3d_model_from_config(config, &model);
        if (status == Z3D_OK) status = z3d_plan_program_config(config, model, &made);
        made.inference = golden.command != TRAINS;
        made.evaluates = golden.command == EVALUATES;
        if (golden.command == GENERATES) made.generate_batch = 3, made.without_generation = false;
        if (status == Z3D_OK) status = z3d_program_set_create(model, &mesh, &made, 1, true, &set);
    }
    ~Programs() {
        z3d_program_set_release(&set);
        z3d_plan_program_config_release(&made);
        z3d_model_destroy(model);
        z3d_config_destroy(config);
    }
    Programs(const Programs &) = delete;
    Programs &operator=(const Programs &) = delete;
};

using Lines = std::vector<std::string>;

Lines lines_of(const std::string &text) {
    std::istringstream in(text);
    Lines out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
}

void remove(std::string *text, const std::string &what) {
    for (size_t at = 0; (at = text->find(what, at)) != std::string::npos;)
        text->erase(at, what.size());
}

// Without the legend, without numbers of instructions, so that a new one changes its own line only,
// and as if all buffers lay at address 0: "grads=gradients wte+", "out=stepped wte@h0".
std::string printed(z3d_program *program) {
    z3d_string text{};
    for (int b = 0; b < program->num_buffers; b++) program->buffer[b].offset = 0;
    memset(program->arena, 0, sizeof program->arena);
    memset(program->bound, 0, sizeof program->bound);
    z3d_program_print(program, &text);
    EXPECT_FALSE(text.failed);
    std::string all(text.text, text.length), out;
    z3d_string_free(&text);
    size_t legend = all.find("\nlegend:"), list = all.find("\n\n", legend);
    EXPECT_NE(list, std::string::npos);
    all.erase(legend, list + 1 - legend);
    remove(&all, "@0");
    remove(&all, "; device arena 0 B (bound 0 B), host arena 0 B");
    const size_t number = strlen("     #  ");
    for (const std::string &line : lines_of(all)) {
        bool numbered = line.size() > number && strchr("#0123456789", line[number - 3]) &&
                        line.compare(number - 2, 2, "  ") == 0;
        out += line.substr(numbered ? number : 0) + "\n";
    }
    return out;
}

std::string text_of(const Golden &golden) {
    std::string out;
    for (const Shown &shown : golden.shown) {
        Programs made(golden, shown.rank);
        EXPECT_Z3D(made.status) << golden.name;
        if (made.status != Z3D_OK) return out;
        for (z3d_mode mode : shown.modes)
            out += (out.empty() ? "" : "\n") + printed(made.set.program[mode]);
        for (z3d_mode mode : shown.again) out += "\n" + printed(made.set.again[mode]);
    }
    return out;
}

// ---- what has changed ----

// All lines that are in one of the two only, as diff prints them: what both have is as long as it
// can be.
std::string differences(const Lines &old, const Lines &now) {
    std::vector<std::vector<int>> common(old.size() + 1, std::vector<int>(now.size() + 1));
    for (size_t i = old.size(); i-- > 0;)
        for (size_t j = now.size(); j-- > 0;)
            common[i][j] = old[i] == now[j] ? common[i + 1][j + 1] + 1
                                            : std::max(common[i + 1][j], common[i][j + 1]);
    std::string out;
    for (size_t i = 0, j = 0; i < old.size() || j < now.size();) {
        if (i < old.size() && j < now.size() && old[i] == now[j]) {
            i++, j++;
        } else if (j == now.size() || (i < old.size() && common[i + 1][j] >= common[i][j + 1])) {
            out += std::to_string(i + 1) + " - " + old[i] + "\n";
            i++;
        } else {
            out += std::to_string(j + 1) + " + " + now[j] + "\n";
            j++;
        }
    }
    return out;
}

std::string path_of(const Golden &golden) {
    return std::string(ZERO3D_TEST_DATA) + "/programs/" + golden.name + ".txt";
}

TEST(Programs, AreThoseOfTheFiles) {
    for (const Golden &golden : GOLDEN) {
        std::string now = text_of(golden), path = path_of(golden);
        if (writes && !now.empty()) write_file(path, now);
        std::string changed = differences(lines_of(read_file(path)), lines_of(now));
        EXPECT_TRUE(changed.empty())
            << golden.name << " is another program than " << path << ":\n"
            << changed << "If it is right, plan_programs --write writes the file anew.";
    }
}

TEST(Programs, AllDifferencesAreShown) {
    EXPECT_EQ(differences({"a", "b", "c", "d"}, {"a", "c", "x", "d", "e"}),
              "2 - b\n3 + x\n5 + e\n");
    EXPECT_EQ(differences({}, {"a"}), "1 + a\n");
    EXPECT_EQ(differences({"a"}, {}), "1 - a\n");
}

// Between them they have all there is.
TEST(Programs, HaveEveryInstructionScheduleAndStage) {
    std::string all;
    std::set<int> stages, schedules;
    for (const Golden &golden : GOLDEN) {
        Programs made(golden, 0);
        all += read_file(path_of(golden));
        stages.insert(made.made.stage);
        schedules.insert(made.made.pipeline.schedule);
    }
    Lines words;
    std::istringstream in(all);
    for (std::string word; in >> word;) words.push_back(word);
#define X(NAME, name, ...)                                                                         \
    EXPECT_NE(std::count(words.begin(), words.end(), #name), 0) << "no program has " #name;
    Z3D_OPCODE_MAP(X)
#undef X
    EXPECT_EQ(stages.size(), 4u);
    EXPECT_EQ(schedules.size(), (size_t)Z3D_SCHEDULE_COUNT - 1); // a file's is the user's own
    std::filesystem::directory_iterator files(std::string(ZERO3D_TEST_DATA) + "/programs"), end;
    EXPECT_EQ((size_t)std::distance(files, end), GOLDEN.size());
    for (const char *part : {"cache=", "deferred=", "+\n", "@h0", "@d0"})
        EXPECT_NE(all.find(part), std::string::npos) << part;
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    writes = argc > 1 && strcmp(argv[1], "--write") == 0;
    return RUN_ALL_TESTS();
}
