// A signal to one rank during a validation ends the run on all of them at once. A program of its
// own: the request stays for the life of the process.
#include "stop.h"

namespace {

TEST(Stop, OneRanksSignalEndsAValidation) {
    SharedFolder folder;
    if (z3d_world_rank(world) == 0) {
        write_file(folder / "train.bin", token_bytes(some_tokens(20000)));
        write_file(folder / "val.bin", token_bytes(some_tokens(4000000)));
    }
    SharedFolder::barrier();
    z3d_world_catch_signals();
    Outcome o;
    {
        // The step's line is written before the validation, which would take minutes.
        SignalWhen signal(folder / "run/metrics.jsonl");
        o = train(folder, "training.steps=1\ngenerate.prompt=x\ndata.validation=" +
                              folder / "val.bin" + "\ntraining.eval_steps=1000000\n");
    }
    EXPECT_EQ(o.status, Z3D_OK) << o.message;
    ASSERT_EQ(metrics(folder).size(), 1u); // half a validation is none
    if (z3d_world_rank(world) == 0) {
        EXPECT_NE(o.said.find("stopped by a signal: 1 step in"), std::string::npos) << o.said;
        EXPECT_EQ(o.said.find("validation loss"), std::string::npos) << o.said;
        EXPECT_EQ(o.said.find("sample ("), std::string::npos) << o.said;
    }
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
