// A signal to one rank during generation ends it on all ranks; what is there is shown, and not
// written, because no sample of the model ends there. A program of
// its own: the request stays for the life of the process.
#include "stop.h"

namespace {

TEST(Stop, OneRanksSignalEndsAGeneration) {
    SharedFolder folder;
    if (z3d_world_rank(world) == 0)
        write_file(folder / "train.bin", token_bytes(some_tokens(20000)));
    SharedFolder::barrier();
    z3d_world_catch_signals();
    Outcome o;
    {
        // The last file before the generation, which would take minutes.
        SignalWhen signal(folder / "run/summary.json");
        o = train(folder, "training.steps=1\ngenerate.prompt=Hello\ngenerate.tokens=1000000\n"
                          "generate.every=5\n");
    }
    EXPECT_EQ(o.status, Z3D_OK) << o.message;
    if (z3d_world_rank(world) == 0) {
        EXPECT_NE(o.said.find("done: 1 step in"), std::string::npos) << o.said;
        EXPECT_NE(o.said.find("stopped early by a signal"), std::string::npos) << o.said;
        EXPECT_NE(o.said.find("\nHello"), std::string::npos) << o.said;
        EXPECT_EQ(std::filesystem::file_size(folder / "run/samples.jsonl"), 0u);
    }
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
