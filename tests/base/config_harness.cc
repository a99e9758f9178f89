#include "tests/base/config_harness.h"

Config::Config() {
    EXPECT_EQ(z3d_config_create(&get), Z3D_OK) << z3d_error_message();
}

Config::Config(const std::string &text) : Config() {
    EXPECT_EQ(read(text), Z3D_OK) << z3d_error_message() << "\n" << text;
}

Config::~Config() {
    z3d_config_destroy(get);
}

z3d_config *Config::operator->() const {
    return get;
}

z3d_status Config::read(const std::string &text, const char *name) const {
    return z3d_config_read_text(get, text.data(), text.size(), name);
}

z3d_status Config::set(const char *assignment) const {
    return z3d_config_override(get, assignment);
}

std::string Config::written() const {
    z3d_string out = {};
    z3d_config_write(get, &out);
    EXPECT_FALSE(out.failed);
    std::string text(out.text, out.length);
    z3d_string_free(&out);
    return text;
}

std::string refusal(const std::string &text) {
    Config config;
    z3d_status status = config.read(text);
    EXPECT_EQ(status, Z3D_ERR_CONFIG) << text;
    return status == Z3D_OK ? "accepted" : z3d_error_message();
}

std::string check(const std::string &text, const z3d_config_rules *rules) {
    Config config(text);
    z3d_status status = z3d_config_check(config.get, rules);
    EXPECT_TRUE(status == Z3D_OK || status == Z3D_ERR_CONFIG);
    return status == Z3D_OK ? "accepted" : z3d_error_message();
}

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

std::string all_errors(const std::string &text, std::initializer_list<const char *> set, int world,
                       const z3d_config_rules *rules) {
    Config c;
    int data;
    (void)c.read(text);
    for (const char *assignment : set) (void)c.set(assignment);
    z3d_status status =
        world ? z3d_config_settle(c.get, rules, world, &data) : z3d_config_check(c.get, rules);
    EXPECT_TRUE(status == Z3D_OK || status == Z3D_ERR_CONFIG);
    return status == Z3D_OK ? "accepted" : z3d_error_message();
}
