// z3d_replay_rank says what differs, of a recording whose configuration is another than the run's.
// tests/cli/replay.sh replays what runs have left.
extern "C" {
#include "src/train/replay/file.h"
#include "src/train/trainer.h"
}
#include "run.h"

namespace {

// Steps 2 and 3 of rank 0.
std::string record(const SharedFolder &folder) {
    z3d_config *config = nullptr;
    EXPECT_EQ(z3d_config_create(&config), Z3D_OK);
    std::istringstream lines(
        "model.num_layers=1\nmodel.hidden_size=16\nmodel.num_attention_heads=2\nmodel.seq_length=16"
        "\nmodel.vocab_size=257\ntrain_batch_size=8\ngradient_accumulation_steps=1\n"
        "training.steps=3\ntraining.threads=1\ntraining.peak_tflops=0.1\n"
        "training.gemm.fp32=sgemm\nzero_optimization.reduce_bucket_size=9999\n"
        "optimizer.params.weight_decay=0.1\nrun.dir=" +
        folder / "run" + "\ndata.train=" + folder / "train.bin");
    for (std::string line; std::getline(lines, line);)
        EXPECT_EQ(z3d_config_override(config, line.c_str()), Z3D_OK) << z3d_error_message();
    if (z3d_world_rank(world) == 0)
        write_file(folder / "train.bin", token_bytes(some_tokens(4000)));
    SharedFolder::barrier();
    z3d_train_options options{};
    options.record_first = 2;
    options.record_last = 3;
    bool unfinished;
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(z3d_train_part(world, config, &options, &unfinished), Z3D_OK) << z3d_error_message();
    (void)::testing::internal::GetCapturedStdout();
    z3d_config_destroy(config);
    return folder / "run/replay-rank0.z3d";
}

// The same recording with another text in its configuration, and digests that fit.
std::string edit(const std::string &path, const std::string &from, const std::string &to) {
    const std::string changed = path + ".changed";
    z3d_block_file *in = nullptr, *out = nullptr;
    std::string data;
    EXPECT_EQ(from.size(), to.size());
    EXPECT_EQ(z3d_block_file_open(path.c_str(), &in), Z3D_OK) << z3d_error_message();
    for (char byte; z3d_block_file_get(in, &byte, 1) == Z3D_OK;) data += byte;
    z3d_block_file_close(in);
    const size_t at = data.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) data.replace(at, to.size(), to);
    EXPECT_EQ(z3d_block_file_create(changed.c_str(), &out), Z3D_OK);
    EXPECT_EQ(z3d_block_file_put(out, data.data(), (int64_t)data.size()), Z3D_OK);
    EXPECT_EQ(z3d_block_file_flush(out), Z3D_OK);
    z3d_block_file_close(out);
    return changed;
}

struct Replay {
    z3d_status status;
    std::string message;
    int64_t steps;
};

Replay replay(const std::string &path) {
    z3d_replay_request request{};
    z3d_replay_result result;
    request.path = path.c_str();
    Replay out;
    out.status = z3d_replay_rank(&request, &result);
    out.message = out.status == Z3D_OK ? "" : z3d_error_message();
    out.steps = result.steps;
    z3d_string_free(&result.text);
    return out;
}

} // namespace

TEST(Replay, NamesTheFirstInstructionThatDiffers) {
    SharedFolder folder;
    const std::string path = record(folder);
    if (z3d_world_rank(world) > 0) return;
    Replay r = replay(edit(path, "weight_decay: 0.1", "weight_decay: 0.1"));
    EXPECT_EQ(r.status, Z3D_OK) << r.message;
    EXPECT_EQ(r.steps, 2);
    r = replay(edit(path, "weight_decay: 0.1", "weight_decay: 0.3"));
    EXPECT_EQ(r.status, Z3D_ERR_NUMERIC);
    EXPECT_EQ(r.message.find("step 2, optimizer_step "), 0u) << r.message;
    EXPECT_NE(r.message.find("differs from the run's (digest "), std::string::npos) << r.message;
    EXPECT_NE(r.message.find("recorded on cpu"), std::string::npos) << r.message;
}

// What the recording has next is of another instruction.
TEST(Replay, RefusesAnotherProgramsRecording) {
    SharedFolder folder;
    const std::string path = record(folder);
    if (z3d_world_rank(world) > 0) return;
    const Replay r = replay(edit(path, "reduce_bucket_size: 9999", "reduce_bucket_size: 1000"));
    EXPECT_EQ(r.status, Z3D_ERR_DATA);
    EXPECT_NE(r.message.find("has an output ("), std::string::npos) << r.message;
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
