/* A configuration that frees itself, and what a text is refused with. */
#ifndef ZERO3D_TESTS_BASE_CONFIG_HARNESS_H
#define ZERO3D_TESTS_BASE_CONFIG_HARNESS_H

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

extern "C" {
#include "src/base/base.h"
#include "src/base/config.h"
}

class Config {
  public:
    z3d_config *get = nullptr;

    Config();
    explicit Config(const std::string &text);
    ~Config();
    Config(const Config &) = delete;
    Config &operator=(const Config &) = delete;

    z3d_config *operator->() const;
    z3d_status read(const std::string &text, const char *name = "run.yaml") const;
    z3d_status set(const char *assignment) const;
    std::string written() const;
};

/* The message with which a text is refused. */
std::string refusal(const std::string &text);

/* The message with which z3d_config_check refuses a text that reads well. */
std::string check(const std::string &text, const z3d_config_rules *rules = nullptr);

bool has(const std::string &text, const std::string &part);

/* Everything wrong with a file and its overrides, as a program tells it. */
std::string all_errors(const std::string &text, std::initializer_list<const char *> set,
                       int world = 0, const z3d_config_rules *rules = nullptr);

#endif
