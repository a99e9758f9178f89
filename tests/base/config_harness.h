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

    Config() {
        EXPECT_EQ(z3d_config_create(&get), Z3D_OK) << z3d_error_message();
    }
    explicit Config(const std::string &text) : Config() {
        EXPECT_EQ(read(text), Z3D_OK) << z3d_error_message() << "\n" << text;
    }
    ~Config() {
        z3d_config_destroy(get);
    }
    Config(const Config &) = delete;
    Config &operator=(const Config &) = delete;

    z3d_config *operator->() const {
        return get;
    }
    z3d_status read(const std::string &text, const char *name = "run.yaml") const {
        return z3d_config_read_text(get, text.data(), text.size(), name);
    }
    z3d_status set(const char *assignment) const {
        return z3d_config_override(get, assignment);
    }
    std::string written() const {
        z3d_string out = {};
        z3d_config_write(get, &out);
        EXPECT_FALSE(out.failed);
        std::string text(out.text, out.length);
        z3d_string_free(&out);
        return text;
    }
};

/* The message with which a text is refused. */
inline std::string refusal(const std::string &text) {
    Config config;
    z3d_status status = config.read(text);
    EXPECT_EQ(status, Z3D_ERR_CONFIG) << text;
    return status == Z3D_OK ? "accepted" : z3d_error_message();
}

/* The message with which z3d_config_check refuses a text that reads well. */
inline std::string check(const std::string &text, const z3d_config_rules *rules = nullptr) {
    Config config(text);
    z3d_status status = z3d_config_check(config.get, rules);
    EXPECT_TRUE(status == Z3D_OK || status == Z3D_ERR_CONFIG);
    return status == Z3D_OK ? "accepted" : z3d_error_message();
}

inline bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

/* Everything wrong with a file and its overrides, as a program tells it. */
inline std::string all_errors(const std::string &text, std::initializer_list<const char *> set,
                              int world = 0, const z3d_config_rules *rules = nullptr) {
    Config c;
    int data;
    (void)c.read(text);
    for (const char *assignment : set) (void)c.set(assignment);
    z3d_status status =
        world ? z3d_config_settle(c.get, rules, world, &data) : z3d_config_check(c.get, rules);
    EXPECT_TRUE(status == Z3D_OK || status == Z3D_ERR_CONFIG);
    return status == Z3D_OK ? "accepted" : z3d_error_message();
}

#endif
