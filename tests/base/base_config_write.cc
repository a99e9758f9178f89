/* What is written reads back to the same values; the reference page is the table's. */
#include "tests/base/config_harness.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

static bool same(int64_t a, int64_t b) {
    return a == b;
}
static bool same(int a, int b) {
    return a == b;
}
static bool same(bool a, bool b) {
    return a == b;
}
static bool same(double a, double b) {
    return memcmp(&a, &b, sizeof a) == 0;
}
static bool same(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}
static bool same(const z3d_config_FLOAT2 &a, const z3d_config_FLOAT2 &b) {
    return same(a.value[0], b.value[0]) && same(a.value[1], b.value[1]);
}
static bool same(const z3d_data_list &a, const z3d_data_list &b) {
    bool equal = a.count == b.count;
    for (int i = 0; equal && i < a.count; i++) {
        equal = same(a.path[i], b.path[i]) && same(a.weight[i], b.weight[i]);
    }
    return equal;
}

/* The paths of the keys in which two configurations differ. */
static std::string difference(const z3d_config *a, const z3d_config *b) {
    std::string paths;
#define X(field, path, ...)                                                                        \
    if (!same(a->field, b->field)) paths += path " ";
    Z3D_CONFIG_KEYS(X)
#undef X
    return paths;
}

/* ---- random configurations ---- */

static std::mt19937_64 generator(20240607);

static uint64_t draw(uint64_t below) {
    return generator() % below;
}

/* Any text that a quoted scalar can hold: every plane, YAML's own signs, line breaks of all kinds.
 */
static std::string random_text() {
    static const uint32_t special[] = {'"',      '\\',   '\n',   '\t',    ' ',     ':',
                                       '#',      '\'',   '%',    0x80,    0x85,    0xA0,
                                       0x2028,   0x2029, 0xFEFF, 0xFFFD,  0xFFFE,  0xFFFF,
                                       0x7F + 1, 0xD7FF, 0xE000, 0x10000, 0x1FFFE, 0x10FFFF};
    std::string text;
    for (uint64_t i = 0, count = draw(12); i < count; i++) {
        uint32_t code = draw(2) ? static_cast<uint32_t>(special[draw(std::size(special))])
                                : static_cast<uint32_t>(' ' + draw(95));
        if (code < 0x80) {
            text += static_cast<char>(code);
        } else if (code < 0x800) {
            text += static_cast<char>(0xC0 | code >> 6);
            text += static_cast<char>(0x80 | (code & 63));
        } else if (code < 0x10000) {
            text += static_cast<char>(0xE0 | code >> 12);
            text += static_cast<char>(0x80 | (code >> 6 & 63));
            text += static_cast<char>(0x80 | (code & 63));
        } else {
            text += static_cast<char>(0xF0 | code >> 18);
            text += static_cast<char>(0x80 | (code >> 12 & 63));
            text += static_cast<char>(0x80 | (code >> 6 & 63));
            text += static_cast<char>(0x80 | (code & 63));
        }
    }
    return text;
}

/* A number within an interval's ends, of any magnitude and with all its digits. */
static double random_number(double low, double high) {
    double unit = static_cast<double>(draw(1ull << 53)) * 0x1p-53;
    double scale = std::ldexp(unit, -static_cast<int>(draw(60)));
    double value = low + (high - low) * scale;
    return value > low && value < high ? value : (low + high) / 2;
}

static void ends_of(const char *rule, double *low, double *high) {
    ASSERT_EQ(sscanf(rule + 1, "%lf,%lf", low, high), 2) << rule;
}

static void randomise(int64_t *field, const char *rule) {
    double low, high;
    ends_of(rule, &low, &high);
    if (strstr(rule, "auto") && draw(3) == 0) {
        *field = Z3D_AUTO;
        return;
    }
    *field = draw(4) ? static_cast<int64_t>(random_number(low, high < 9e18 ? high : 9e18))
                     : static_cast<int64_t>(draw(2)       ? low
                                            : high < 9e18 ? high
                                                          : 9e18);
}
static void randomise(double *field, const char *rule) {
    double low, high;
    ends_of(rule, &low, &high);
    *field = rule[0] == '[' && draw(4) == 0 ? low : random_number(low, high);
}
static void randomise(bool *field, const char *) {
    *field = draw(2);
}
static void randomise(int *field, const char *rule) {
    uint64_t options = 1;
    for (; *rule; rule++) options += *rule == '|';
    *field = static_cast<int>(draw(options));
}
static void randomise(z3d_config_FLOAT2 *field, const char *rule) {
    randomise(&field->value[0], rule);
    randomise(&field->value[1], rule);
}
/* One of the rule's words, or a list of numbers. */
static std::string random_word(std::string rule) {
    std::string list = "[" + std::to_string(draw(9)) + ", " + std::to_string(draw(99)) + "]";
    for (uint64_t skip = draw(4); skip > 0; skip--) {
        size_t bar = rule.find('|');
        if (bar == std::string::npos) return list;
        rule = rule.substr(bar + 1);
    }
    return rule.substr(0, rule.find_first_of("| "));
}
static void randomise(const char **field, const char *rule) {
    free(const_cast<char *>(*field));
    *field = strdup((*rule ? random_word(rule) : random_text()).c_str());
}
static void randomise(z3d_data_list *field, const char *rule) {
    int count = static_cast<int>(draw(4));
    for (int i = 0; i < field->count; i++) free(const_cast<char *>(field->path[i]));
    field->path = static_cast<const char **>(realloc(field->path, (count + 1) * sizeof(char *)));
    field->weight = static_cast<double *>(realloc(field->weight, (count + 1) * sizeof(double)));
    field->count = count;
    for (int i = 0; i < count; i++) {
        field->path[i] = strdup(("p" + random_text()).c_str());
        field->weight[i] = *rule ? 1 : random_number(0, draw(2) ? 1 : 1e30); // texts have none
    }
}

TEST(Write, RandomConfigurationsReadBackToTheBit) {
    for (int round = 0; round < 400; round++) {
        Config c;
#define X(field, path, type, standard, rule, ...) randomise(&c->field, rule);
        Z3D_CONFIG_KEYS(X)
#undef X
        std::string text = c.written();
        Config again;
        ASSERT_EQ(again.read(text), Z3D_OK) << z3d_error_message() << "\n" << text;
        ASSERT_EQ(difference(c.get, again.get), "") << text;
        ASSERT_EQ(again.written(), text);
    }
}

TEST(Write, DefaultsReadBackAndEveryKeyIsThere) {
    Config c, again;
    std::string text = c.written();
    ASSERT_EQ(again.read(text), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(difference(c.get, again.get), "");
    z3d_string keys = {};
    z3d_config_list_keys(&keys);
    std::istringstream lines(keys.text);
    int count = 0;
    for (std::string path; std::getline(lines, path); count++) {
        EXPECT_TRUE(z3d_config_is_set(again.get, path.c_str())) << path;
    }
    EXPECT_GT(count, 60);
    z3d_string_free(&keys);
    EXPECT_EQ(z3d_config_check(again.get, NULL), Z3D_OK) << z3d_error_message();
}

static std::string value_of(const Config &c, const char *path) {
    z3d_string out = {};
    z3d_config_value(c.get, path, &out);
    std::string text(out.text, out.length);
    z3d_string_free(&out);
    return text;
}

// Also of values that a run wrote. No other key changes.
TEST(Write, InferenceTakesDefaultsOfTheKeysOfTraining) {
    const Config standard;
    for (int round = 0; round < 20; round++) {
        Config before, after;
#define X(field, path, type, standard, rule, ...) randomise(&before.get->field, rule);
        Z3D_CONFIG_KEYS(X)
#undef X
        ASSERT_EQ(after.read(before.written()), Z3D_OK) << z3d_error_message();
        ASSERT_EQ(z3d_config_leave_training(after.get), Z3D_OK) << z3d_error_message();
        for (const z3d_config_meaning &key : z3d_config_meanings) {
            const bool left = key.inference == Z3D_INFERENCE_STANDARD;
            EXPECT_EQ(value_of(after, key.path), value_of(left ? standard : before, key.path))
                << key.path;
        }
    }
}

TEST(Write, WhatItLooksLike) {
    Config c("data: {train: [a.bin, {path: \"b\\\"\\n.bin\", weight: 0.1}]}\n");
    std::string text = c.written();
    EXPECT_NE(text.find("  train:\n    - {path: \"a.bin\", weight: 1}\n"
                        "    - {path: \"b\\\"\\n.bin\", weight: 0.1}\n  validation: []\n"),
              std::string::npos)
        << text;
    EXPECT_EQ(text.find("model:\n  type: \"gpt2\"\n  num_layers: 12\n  hidden_size: 768\n"), 0u);
    EXPECT_NE(text.find("\noptimizer:\n  type: AdamW\n  params:\n    lr: 0.0006\n    betas: [0.9, "
                        "0.95]\n    eps: 1e-08\n"),
              std::string::npos)
        << text;
}

/* ---- the table as text ---- */

static std::string described(bool markdown) {
    z3d_string out = {};
    z3d_config_describe(markdown, &out);
    EXPECT_FALSE(out.failed);
    std::string text(out.text, out.length);
    z3d_string_free(&out);
    return text;
}

TEST(Describe, EveryKeyWithItsHelpAndDefault) {
    std::string text = described(false);
#define X(field, path, type, standard, rule, bits, resume, inference, help)                        \
    EXPECT_NE(text.find(path ": " help "\n"), std::string::npos) << path;
    Z3D_CONFIG_KEYS(X)
#undef X
    EXPECT_NE(text.find("zero_optimization.stage: "), std::string::npos);
    EXPECT_NE(text.find("    an integer from 0 to 3; default 2\n"), std::string::npos);
    EXPECT_NE(text.find("    one of full, selective, none, auto; default auto\n"),
              std::string::npos);
}

TEST(Describe, TheReferencePageIsUpToDate) {
    std::string path = std::string(ZERO3D_TEST_DATA) + "/../../docs/configuration.md";
    std::string text = described(true);
    if (getenv("ZERO3D_UPDATE")) std::ofstream(path) << text;
    std::ifstream file(path);
    std::stringstream page;
    page << file.rdbuf();
    EXPECT_EQ(page.str(), text)
        << "docs/configuration.md is old: zero3d config --markdown > docs/configuration.md";
}

TEST(Describe, EveryRowOfThePageHasItsColumns) {
    std::istringstream lines(described(true));
    size_t columns = 0;
    for (std::string line; std::getline(lines, line);) {
        size_t bars = 0;
        for (size_t i = 0; i < line.size(); i++) {
            bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\');
        }
        if (line.empty() || line[0] != '|') {
            columns = 0;
        } else if (columns == 0) {
            columns = bars;
        } else {
            EXPECT_EQ(bars, columns) << line;
        }
    }
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
