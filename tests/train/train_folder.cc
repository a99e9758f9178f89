// The run's folder: what an earlier run left is kept with a number, and one job at a time has it.
#include "run.h"

extern "C" {
#include "src/train/run_folder.h"
}

namespace {

namespace fs = std::filesystem;

int rank() {
    return z3d_world_rank(world);
}

class RunFolder : public ::testing::Test {
  protected:
    void SetUp() override {
        on_rank_0([&] { write_file(folder / "train.bin", token_bytes(some_tokens(20000))); });
    }
    template <typename F> void on_rank_0(F f) {
        SharedFolder::barrier();
        if (rank() == 0) f();
        SharedFolder::barrier();
    }
    std::string text(const std::string &name) {
        return read_file(folder / ("run/" + name));
    }
    bool there(const std::string &name) {
        return fs::exists(folder / ("run/" + name));
    }
    int events(const std::string &name) {
        int count = 0;
        if (fs::exists(folder / name))
            for (auto &entry : fs::directory_iterator(folder / name))
                count += entry.path().filename().string().find("tfevents") != std::string::npos;
        return count;
    }
    void runs(const std::string &more) {
        Outcome o = train(folder, more);
        ASSERT_EQ(o.status, Z3D_OK) << o.message;
    }
    SharedFolder folder;
};

TEST_F(RunFolder, ANewRunKeepsTheFilesOfTheOneBefore) {
    runs("training.digest=true\ntraining.trace_steps=1\ntraining.steps=3");
    std::string metrics_of_first = text("metrics.jsonl"), config_of_first = text("config.yaml"),
                digest = text("digest-rank0.txt"), trace = text("trace-rank0.json"),
                traffic = text("summary.json");
    runs("training.digest=true\ntraining.steps=2\ntraining.seed=5");
    EXPECT_EQ(metrics(folder).size(), 2u);
    EXPECT_EQ(text("metrics.1.jsonl"), metrics_of_first);
    EXPECT_EQ(text("config.1.yaml"), config_of_first);
    EXPECT_EQ(text("digest-rank0.1.txt"), digest);
    EXPECT_EQ(text("trace-rank0.1.json"), trace);
    EXPECT_EQ(text("summary.1.json"), traffic);
    EXPECT_FALSE(there("trace-rank0.json"));
    EXPECT_EQ(events("run"), 1);
    EXPECT_EQ(events("run/events.1"), 1);
    std::string metrics_of_second = text("metrics.jsonl");
    runs("training.steps=1");
    EXPECT_EQ(text("metrics.1.jsonl"), metrics_of_first);
    EXPECT_EQ(text("metrics.2.jsonl"), metrics_of_second);
    EXPECT_TRUE(there("digest-rank0.2.txt") && !there("digest-rank0.txt"));
    EXPECT_EQ(events("run/events.2"), 1);
}

// A resumed run appends; only lines that it makes again, and files that it would replace, are kept
// elsewhere.
TEST_F(RunFolder, AResumedRunAppendsAndLosesNoLine) {
    runs("checkpoint.interval=3");
    runs("checkpoint.interval=3\ntraining.steps=9");
    EXPECT_EQ(metrics(folder).size(), 9u);
    EXPECT_FALSE(there("metrics.1.jsonl"));
    EXPECT_TRUE(there("config.1.yaml")); // training.steps is another
    EXPECT_TRUE(there("summary.1.json"));
    EXPECT_EQ(events("run"), 2);
    auto lines = metrics(folder);
    on_rank_0([&] {
        fs::remove_all(folder / "run/checkpoints/step-00000009");
        std::ofstream(folder / "run/metrics.jsonl", std::ios::app) << "{\"step\":10,\"lo";
    });
    runs("checkpoint.interval=3\ntraining.steps=9");
    EXPECT_EQ(metrics(folder).size(), 9u);
    EXPECT_FALSE(there("config.2.yaml")); // it is the same
    EXPECT_EQ(text("metrics.2.jsonl"),
              lines[6] + "\n" + lines[7] + "\n" + lines[8] + "\n{\"step\":10,\"lo");
    EXPECT_EQ(events("run"), 3);
    std::string all;
    std::istringstream in(text("events.jsonl"));
    for (std::string line; std::getline(in, line);)
        all += field(line, "step") + field(line, "event") + " ";
    EXPECT_EQ(all, "0\"start\" 3\"checkpoint\" 6\"checkpoint\" 6\"end\" "
                   "6\"resume\" 9\"checkpoint\" 9\"end\" 6\"resume\" 9\"checkpoint\" 9\"end\" ");
}

TEST_F(RunFolder, OneJobHasIt) {
    z3d_run_folder other = {};
    on_rank_0([&] {
        ASSERT_EQ(z3d_run_folder_take(&other, (folder / "run").c_str()), Z3D_OK);
        write_file(folder / "run/metrics.jsonl", "{\"step\":1}\n");
    });
    std::string path = folder / "run";
    Outcome o = train(folder, "checkpoint.interval=2\ncheckpoint.dir=" + folder / "elsewhere");
    EXPECT_EQ(o.status, Z3D_ERR_IO);
    std::string pid = rank() == 0 ? "(it is pid " + std::to_string(getpid()) + " on host " : "pid ";
    for (std::string word : {std::string("run.dir: "),
                             std::string("another job writes to this run "
                                         "folder now; set another "
                                         "run.dir, or wait"),
                             pid})
        EXPECT_NE(o.message.find(word), std::string::npos) << word << " in: " << o.message;
    EXPECT_EQ(text("metrics.jsonl"), "{\"step\":1}\n");
    on_rank_0([&] { z3d_run_folder_release(&other); });
    runs("checkpoint.interval=2\ncheckpoint.dir=" + path); // checkpoints in the same folder
    EXPECT_EQ(text("metrics.1.jsonl"), "{\"step\":1}\n");
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
