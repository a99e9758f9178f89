// A signal to one rank that comes during the start-up ends the run on all of them before a step is
// made. A program of its own: the request stays for the life of the process.
#include <csignal>
#include <memory>

#include "run.h"

namespace {

TEST(Stop, OneRanksSignalDuringTheStartIsHeardBeforeTheFirstStep) {
    SharedFolder folder;
    int last = z3d_world_size(world) - 1;
    if (z3d_world_rank(world) == 0)
        write_file(folder / "train.bin", token_bytes(some_tokens(20000)));
    SharedFolder::barrier();
    z3d_world_catch_signals();
    if (z3d_world_rank(world) == last) raise(SIGUSR1);
    Outcome o = train(folder, "training.steps=1000000\ngenerate.prompt=x\ndata.validation=" +
                                  folder / "train.bin" + "\ntraining.eval_interval=1\n");
    const std::string &said = o.said;
    EXPECT_EQ(o.status, Z3D_OK) << o.message;
    EXPECT_EQ(metrics(folder).size(), 0u);
    if (z3d_world_rank(world) == 0) {
        EXPECT_NE(said.find("stopped by a signal before the first step (the run is at step 0)"),
                  std::string::npos)
            << said;
        EXPECT_EQ(said.find("sample ("), std::string::npos);
    }
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
