// Runs with parallel.device_speeds: as with equal ranks, resumed exactly, measured or as listed.
#include "run.h"

#include <algorithm>
#include <filesystem>

namespace {

// By these speeds data ranks have 6 and 2, or with four ranks 3, 2, 2 and 1, samples of 8.
std::string speeds() {
    return z3d_world_size(world) == 2 ? "[1, 0.34]" : "[1, 1, 0.8, 0.4]";
}

class Unequal : public ::testing::Test {
  protected:
    void SetUp() override {
        if (z3d_world_rank(world) == 0) {
            write_file(folder / "train.bin", token_bytes(some_tokens(20000)));
            write_file(folder / "val.bin", token_bytes(some_tokens(1000, 2)));
        }
        SharedFolder::barrier();
    }
    std::vector<double> losses(const std::string &more, const std::string &name) {
        Outcome o = train(folder, common + more + "run.dir=" + folder / name + "\n");
        EXPECT_EQ(o.status, Z3D_OK) << o.message;
        auto all = series(metrics(folder, name), "loss"),
             validation = series(metrics(folder, name), "validation_loss");
        EXPECT_FALSE(validation.empty());
        all.insert(all.end(), validation.begin(), validation.end());
        return all;
    }
    void expect_near(const std::vector<double> &a, const std::vector<double> &b) {
        ASSERT_EQ(a.size(), b.size());
        for (size_t i = 0; i < a.size(); i++) EXPECT_NEAR(a[i], b[i], 1e-5);
    }
    SharedFolder folder;
    std::string common = "model.num_layers=3\nmodel.hidden_dropout=0.1\ntrain_batch_size=16\n"
                         "train_micro_batch_size_per_gpu=auto\ngradient_accumulation_steps=2\n"
                         "data.validation=" +
                         folder / "val.bin" + "\n";
};

} // namespace

TEST_F(Unequal, TrainsLikeEqualRanks) {
    for (const char *stage : {"0", "3"}) {
        std::string more = "zero_optimization.stage=" + std::string(stage) + "\n", name = stage;
        auto equal = losses(more, "equal" + name);
        expect_near(equal, losses(more + "parallel.device_speeds=" + speeds() + "\n", name));
        more += "parallel.pipeline_model_parallel_size=2\n";
        expect_near(equal,
                    losses(more + "parallel.device_speeds=" + speeds() + "\n", "pipeline" + name));
    }
}

TEST_F(Unequal, ResumesExactly) {
    std::string more = "checkpoint.interval=3\nparallel.device_speeds=";
    losses(more + speeds() + "\n", "whole");
    losses(more + speeds() + "\ntraining.steps=3\n", "half");
    // What was measured, or written, before is kept.
    losses(more + "measured\n", "half");
    for (const char *name : {"loss", "grad_norm"}) {
        auto whole = metrics(folder, "whole"), half = metrics(folder, "half");
        auto of = [&](const std::vector<std::string> &lines) {
            std::vector<std::string> out;
            for (const std::string &line : lines)
                if (!field(line, name).empty()) out.push_back(field(line, name));
            return out;
        };
        EXPECT_EQ(of(whole).size(), 6u);
        EXPECT_EQ(of(whole), of(half)) << name;
    }
    std::string config = read_file(folder / "half/config.yaml");
    EXPECT_NE(config.find("device_speeds: \"" + speeds()), std::string::npos) << config;
}

TEST_F(Unequal, Measures) {
    Outcome o = train(folder, common + "parallel.device_speeds=measured\n");
    ASSERT_EQ(o.status, Z3D_OK) << o.message;
    std::string config = read_file(folder / "run/config.yaml"), key = "device_speeds: \"[";
    size_t at = config.find(key);
    ASSERT_NE(at, std::string::npos) << config;
    std::istringstream list(config.substr(at + key.size()));
    double speed, fastest = 0;
    int count = 0;
    for (char comma; list >> speed; list >> comma, count++) {
        EXPECT_GT(speed, 0);
        fastest = std::max(fastest, speed);
    }
    EXPECT_EQ(fastest, 1);
    EXPECT_EQ(count, z3d_world_size(world));
    if (z3d_world_rank(world) == 0) {
        EXPECT_NE(o.said.find("\nspeeds      "), std::string::npos) << o.said;
    }
}

TEST_F(Unequal, RefusesWhatGivesNothing) {
    auto refused = [&](const std::string &more) {
        Outcome o = train(folder, common + more + "\n");
        EXPECT_EQ(o.status, Z3D_ERR_CONFIG);
        return o.message;
    };
    int ranks = z3d_world_size(world);
    std::string far = ranks == 2 ? "[1, 0.1]" : "[1, 1, 1, 0.1]";
    std::string message = refused("parallel.device_speeds=" + far);
    EXPECT_NE(message.find("data rank " + std::to_string(ranks - 1) +
                           " is too slow for even one of a micro-batch's 8 samples; write "
                           "train_micro_batch_size_per_gpu " +
                           (ranks == 2 ? "6" : "8") + " or more"),
              std::string::npos)
        << message;
    message = refused("parallel.device_speeds=[1, 1, 1]");
    EXPECT_NE(message.find("the list has 3 numbers, but there are " + std::to_string(ranks)),
              std::string::npos)
        << message;
    if (ranks > 2) return;
    message = refused("parallel.pipeline_model_parallel_size=2\nparallel.device_speeds=[1, 0.01]");
    EXPECT_NE(message.find("pipeline stage 1 with speed 0.01 is too slow for even one of the "
                           "model's 5 units"),
              std::string::npos)
        << message;
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
