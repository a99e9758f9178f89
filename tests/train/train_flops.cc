// Hardware FLOPs count what a step really replays.
#include <gtest/gtest.h>

#include <sstream>

extern "C" {
#include "src/plan/plan.h"
}

namespace {

struct Flops {
    double hardware, kernels, tokens; // a token by the formula; a step by what the kernels do
};

const double L = 4, H = 128, S = 32, V = 257;

Flops flops(const std::string &more) {
    z3d_config *config = nullptr;
    EXPECT_EQ(z3d_config_create(&config), Z3D_OK);
    std::istringstream lines("model.num_layers=4\nmodel.hidden_size=128\n"
                             "model.num_attention_heads=2\nmodel.seq_length=32\n"
                             "model.vocab_size=257\ntrain_batch_size=8\n"
                             "train_micro_batch_size_per_gpu=2\ntraining.threads=1\n" +
                             more);
    for (std::string line; std::getline(lines, line);)
        EXPECT_EQ(z3d_config_override(config, line.c_str()), Z3D_OK) << z3d_error_message();
    z3d_plan *plan = nullptr;
    Flops out{};
    EXPECT_EQ(z3d_plan_create(config, 2, 1, &plan), Z3D_OK) << z3d_error_message();
    if (plan) {
        out = {z3d_plan_hardware_flops(plan->set.program[Z3D_MODE_TRAIN]), plan->stage[0].flops,
               4 * 32};
        EXPECT_EQ(z3d_mesh_size(&plan->mesh, Z3D_AXES_DATA), 2);
    }
    z3d_plan_destroy(plan);
    z3d_config_destroy(config);
    return out;
}

TEST(HardwareFlops, CountWhatIsReplayed) {
    const std::string granularity = "activation_checkpointing.granularity=",
                      replay = "activation_checkpointing.replay=",
                      number = "activation_checkpointing.number_checkpoints=";
    double block = 24 * H * H + 4 * S * H, model = 3 * L * block + 6 * V * H, matrix = 8 * H * H;
    EXPECT_DOUBLE_EQ(flops(granularity + "none\n").hardware, model);
    EXPECT_DOUBLE_EQ(flops(granularity + "selective\n").hardware, model + L * 4 * S * H);
    EXPECT_DOUBLE_EQ(flops(replay + "full\n").hardware, model + L * block);
    EXPECT_DOUBLE_EQ(flops(replay + "minimal\n").hardware, model + L * (block - matrix));
    // Two stretches of two blocks: the first of each is replayed whole, for the second.
    EXPECT_DOUBLE_EQ(flops(number + "2\n").hardware, model + L * block - 2 * matrix);
}

// The formula against the kernels of the plan: what one way of replaying costs more than another.
TEST(HardwareFlops, DifferAsTheKernelsDo) {
    Flops none = flops("activation_checkpointing.granularity=none\n"),
          minimal = flops("activation_checkpointing.replay=minimal\n"),
          full = flops("activation_checkpointing.replay=full\n");
    auto near = [](const Flops &more, const Flops &less) {
        double formula = (more.hardware - less.hardware) * more.tokens;
        EXPECT_NEAR((more.kernels - less.kernels) / formula, 1, 0.05);
    };
    near(full, minimal);
    near(minimal, none);
}

} // namespace

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
