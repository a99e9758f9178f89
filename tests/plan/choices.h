// What tests of plan's choices share: a configuration from text, a machine with little memory.
#ifndef ZERO3D_TESTS_PLAN_CHOICES_H
#define ZERO3D_TESTS_PLAN_CHOICES_H

#include <gtest/gtest.h>

#include <string>

extern "C" {
#include "src/plan/choose/choose.h"
}

struct Config {
    explicit Config(const std::string &text) {
        EXPECT_EQ(z3d_config_create(&it), Z3D_OK);
        EXPECT_EQ(z3d_config_read_text(it, text.data(), text.size(), "test"), Z3D_OK)
            << z3d_error_message();
    }
    ~Config() {
        z3d_config_destroy(it);
    }
    Config(const Config &) = delete;
    Config &operator=(const Config &) = delete;
    z3d_config *it = nullptr;
};

inline z3d_hardware machine(double mib) {
    z3d_hardware hardware{};
    EXPECT_EQ(z3d_hardware_read_with(ZERO3D_CONFIGS "/hardware/dgx-h100.yaml", nullptr, &hardware),
              Z3D_OK);
    hardware.overhead_gb = 0;
    hardware.memory_gib = mib / 1024;
    return hardware;
}

#endif
