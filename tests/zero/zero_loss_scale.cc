// Dynamic loss scaling by DeepSpeed's rules.
#include <gtest/gtest.h>

extern "C" {
#include "zero/execute/engine.h"
}

namespace {
z3d_engine_state start(const z3d_loss_scaler &scaler) {
    z3d_engine_state state{};
    state.loss_scale = scaler.scale;
    state.hysteresis_left = scaler.hysteresis;
    return state;
}
} // namespace

TEST(LossScale, DoublesAfterAWindowWithoutOverflow) {
    z3d_loss_scaler scaler = {true, 1024, 1, 3, 1};
    z3d_engine_state now = start(scaler);
    for (float expected : {1024.f, 1024.f, 2048.f, 2048.f, 2048.f, 4096.f}) {
        z3d_loss_scale_update(&scaler, &now, false);
        EXPECT_EQ(now.loss_scale, expected);
    }
    z3d_loss_scale_update(&scaler, &now, true); // the window begins anew
    EXPECT_EQ(now.loss_scale, 2048);
    for (float expected : {2048.f, 2048.f, 4096.f}) {
        z3d_loss_scale_update(&scaler, &now, false);
        EXPECT_EQ(now.loss_scale, expected);
    }
}

TEST(LossScale, HalvesWhenHysteresisIsUsedUp) {
    z3d_loss_scaler scaler = {true, 1024, 1, 2, 3};
    z3d_engine_state now = start(scaler);
    for (float expected : {1024.f, 1024.f, 512.f, 256.f}) {
        z3d_loss_scale_update(&scaler, &now, true);
        EXPECT_EQ(now.loss_scale, expected);
    }
    z3d_loss_scale_update(&scaler, &now, false);
    z3d_loss_scale_update(&scaler, &now, false); // doubled, and the hysteresis is whole again
    EXPECT_EQ(now.loss_scale, 512);
    z3d_loss_scale_update(&scaler, &now, true);
    z3d_loss_scale_update(&scaler, &now, true);
    EXPECT_EQ(now.loss_scale, 512);
    z3d_loss_scale_update(&scaler, &now, true);
    EXPECT_EQ(now.loss_scale, 256);
}

TEST(LossScale, NeverBelowItsMinimumNorInfinite) {
    z3d_loss_scaler scaler = {true, 4, 2, 1, 1};
    z3d_engine_state now = start(scaler);
    for (int k = 0; k < 5; k++) z3d_loss_scale_update(&scaler, &now, true);
    EXPECT_EQ(now.loss_scale, 2);
    for (int k = 0; k < 300; k++) z3d_loss_scale_update(&scaler, &now, false);
    EXPECT_LT(now.loss_scale, 3.4e38f);
}

TEST(LossScale, AFixedOneStays) {
    z3d_loss_scaler scaler = {false, 128, 1, 1, 1};
    z3d_engine_state now = start(scaler);
    z3d_loss_scale_update(&scaler, &now, true);
    z3d_loss_scale_update(&scaler, &now, false);
    EXPECT_EQ(now.loss_scale, 128);
}

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
