/* Growing strings, JSON, numbers for people. */
#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

extern "C" {
#include "src/base/strings.h"
}

static std::string take(z3d_string *string) {
    EXPECT_FALSE(string->failed);
    std::string text = string->text ? std::string(string->text, string->length) : "";
    z3d_string_free(string);
    EXPECT_EQ(string->text, nullptr);
    EXPECT_EQ(string->length, 0u);
    return text;
}

static std::string json(const char *text) {
    z3d_string string = {};
    z3d_string_append_json(&string, text);
    return take(&string);
}

static std::string number(double value) {
    z3d_string string = {};
    z3d_string_append_number(&string, value);
    return take(&string);
}

TEST(Strings, GrowsByFormatAndBytes) {
    z3d_string string = {};
    std::string expected;
    for (int i = 0; i < 3000; i++) {
        z3d_string_append(&string, "%d,", i);
        expected += std::to_string(i) + ",";
        ASSERT_EQ(string.length, expected.size());
        ASSERT_EQ(string.text[string.length], '\0');
    }
    z3d_string_append_bytes(&string, "a\0b", 3);
    expected.append("a\0b", 3);
    std::string wide(5000, 'w');
    z3d_string_append(&string, "%s|", wide.c_str());
    EXPECT_EQ(take(&string), expected + wide + "|");
}

TEST(Strings, EveryLengthAroundTheFirstCapacities) {
    for (size_t first = 0; first < 300; first++) {
        z3d_string string = {};
        std::string a(first, 'a');
        z3d_string_append(&string, "%s", a.c_str());
        z3d_string_append(&string, "b");
        EXPECT_EQ(take(&string), a + "b");
    }
}

TEST(Strings, AppendingNothingGivesAnEmptyText) {
    z3d_string string = {};
    z3d_string_append(&string, "%s", "");
    ASSERT_NE(string.text, nullptr);
    EXPECT_STREQ(string.text, "");
    EXPECT_EQ(take(&string), "");
    z3d_string_append_bytes(&string, nullptr, 0);
    EXPECT_EQ(take(&string), "");
}

TEST(Strings, AFailedStringStaysAsItIs) {
    z3d_string string = {};
    z3d_string_append(&string, "kept");
    z3d_string_append_bytes(&string, "x", SIZE_MAX - 2); /* cannot be had */
    EXPECT_TRUE(string.failed);
    z3d_string_append(&string, "more");
    z3d_string_append_json(&string, "more");
    EXPECT_STREQ(string.text, "kept");
    EXPECT_EQ(string.length, 4u);
    z3d_string_free(&string);
    EXPECT_FALSE(string.failed);
}

TEST(Json, Escapes) {
    EXPECT_EQ(json("plain"), "\"plain\"");
    EXPECT_EQ(json(""), "\"\"");
    EXPECT_EQ(json(nullptr), "null");
    EXPECT_EQ(json("a\"b\\c/d"), "\"a\\\"b\\\\c/d\"");
    EXPECT_EQ(json("\n\r\t\b\f"), "\"\\n\\r\\t\\b\\f\"");
    EXPECT_EQ(json("\x01\x1f\x7f"), "\"\\u0001\\u001f\\u007f\"");
}

TEST(Json, Utf8Passes) {
    EXPECT_EQ(json("\u00e9\u20ac\U0001F600"), "\"\u00e9\u20ac\U0001F600\"");
    EXPECT_EQ(json("\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEF\xBF\xBF\xF4\x8F\xBF\xBF"),
              "\"\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEF\xBF\xBF\xF4\x8F\xBF\xBF\"");
}

TEST(Json, WhatIsNoUtf8IsReplacedByteByByte) {
    const std::string r = "\uFFFD";
    EXPECT_EQ(json("a\xFFz"), "\"a" + r + "z\"");
    EXPECT_EQ(json("\xC0\x80"), "\"" + r + r + "\"");         /* overlong */
    EXPECT_EQ(json("\xE0\x80\x80"), "\"" + r + r + r + "\""); /* overlong */
    EXPECT_EQ(json("\xF0\x8F\xBF\xBF"), "\"" + r + r + r + r + "\"");
    EXPECT_EQ(json("\xED\xA0\x80"), "\"" + r + r + r + "\"");         /* surrogate */
    EXPECT_EQ(json("\xF4\x90\x80\x80"), "\"" + r + r + r + r + "\""); /* beyond U+10FFFF */
    EXPECT_EQ(json("\xF5\x80\x80\x80"), "\"" + r + r + r + r + "\"");
    EXPECT_EQ(json("\xC3"), "\"" + r + "\""); /* cut off: nothing is read beyond the end */
    EXPECT_EQ(json("\xE2\x82"), "\"" + r + r + "\"");
    EXPECT_EQ(json("\xF0\x9F\x98"), "\"" + r + r + r + "\"");
    EXPECT_EQ(json("\x80\xBF"), "\"" + r + r + "\"");
}

TEST(Json, NumbersAreShortAndReadBack) {
    EXPECT_EQ(number(0), "0");
    EXPECT_EQ(number(1), "1");
    EXPECT_EQ(number(-2.5), "-2.5");
    EXPECT_EQ(number(0.1), "0.1");
    EXPECT_EQ(number(0.1 + 0.2), "0.30000000000000004");
    EXPECT_EQ(number(1e300), "1e+300");
    EXPECT_EQ(number(5e-324), "4.94065645841247e-324");
    EXPECT_EQ(number(NAN), "null");
    EXPECT_EQ(number(INFINITY), "null");
    std::mt19937_64 random(7);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = random();
        double value;
        memcpy(&value, &bits, sizeof value);
        if (std::isfinite(value)) {
            ASSERT_EQ(strtod(number(value).c_str(), nullptr), value);
        }
    }
}

TEST(Json, ThePointIsAPointInEveryLocale) {
    const char *found = nullptr;
    for (const char *name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"}) {
        if (!found) found = setlocale(LC_NUMERIC, name);
    }
    EXPECT_EQ(number(2.5), "2.5"); /* in C's, where none of them is installed */
    double value;
    EXPECT_EQ(z3d_parse_float("2.5", &value), Z3D_OK);
    EXPECT_EQ(value, 2.5);
    setlocale(LC_NUMERIC, "C");
}

static std::string bytes(int64_t value) {
    char buf[32];
    return z3d_format_bytes(value, buf, sizeof buf);
}

static std::string count(double value) {
    char buf[32];
    return z3d_format_count(value, buf, sizeof buf);
}

static std::string seconds(double value) {
    char buf[32];
    return z3d_format_seconds(value, buf, sizeof buf);
}

TEST(Format, Bytes) {
    EXPECT_EQ(bytes(0), "0 B");
    EXPECT_EQ(bytes(1023), "1023 B");
    EXPECT_EQ(bytes(1024), "1.00 KiB");
    EXPECT_EQ(bytes(1536), "1.50 KiB");
    EXPECT_EQ(bytes(10239), "10.0 KiB");
    EXPECT_EQ(bytes((1 << 20) - 1), "1.00 MiB"); /* not 1024 KiB */
    EXPECT_EQ(bytes(INT64_C(3) << 29), "1.50 GiB");
    EXPECT_EQ(bytes(INT64_C(100) << 30), "100 GiB");
    EXPECT_EQ(bytes(-1536), "-1.50 KiB");
    EXPECT_EQ(bytes(INT64_MAX), "8.00 EiB");
    EXPECT_EQ(bytes(INT64_MIN), "-8.00 EiB");
}

TEST(Format, Counts) {
    EXPECT_EQ(count(0), "0");
    EXPECT_EQ(count(999), "999");
    EXPECT_EQ(count(999.9), "1.00 K");
    EXPECT_EQ(count(12.345), "12.3");
    EXPECT_EQ(count(12345678), "12.3 M");
    EXPECT_EQ(count(124439808), "124 M");
    EXPECT_EQ(count(1.5e9), "1.50 B");
    EXPECT_EQ(count(3e15), "3000 T");
    EXPECT_EQ(count(-1500), "-1.50 K");
    EXPECT_EQ(count(NAN), "?");
}

TEST(Format, Durations) {
    EXPECT_EQ(seconds(0), "0 us");
    EXPECT_EQ(seconds(1.5e-6), "1.50 us");
    EXPECT_EQ(seconds(0.0123), "12.3 ms");
    EXPECT_EQ(seconds(0.99999), "1.00 s");
    EXPECT_EQ(seconds(12.34), "12.3 s");
    EXPECT_EQ(seconds(59.96), "1 min 00 s"); /* not 60.0 s */
    EXPECT_EQ(seconds(725), "12 min 05 s");
    EXPECT_EQ(seconds(3599.9), "1 h 00 min");
    EXPECT_EQ(seconds(7380), "2 h 03 min");
    EXPECT_EQ(seconds(86399), "1 d 00 h");
    EXPECT_EQ(seconds(3 * 86400 + 4 * 3600), "3 d 04 h");
    EXPECT_EQ(seconds(-12.34), "-12.3 s");
    EXPECT_EQ(seconds(NAN), "?");
    EXPECT_EQ(seconds(INFINITY), "?");
}

TEST(Format, NeverWritesBeyondTheBuffer) {
    char buf[8] = "#######";
    z3d_format_bytes(INT64_MIN, buf, 4);
    EXPECT_STREQ(buf, "-8.");
    EXPECT_STREQ(buf + 4, "###");
    z3d_format_seconds(7380, buf, 3);
    EXPECT_STREQ(buf, "2 ");
}

TEST(Arithmetic, RefusesOverflow) {
    int64_t out = 0;
    EXPECT_TRUE(z3d_mul_i64(3037000499, 3037000499, &out));
    EXPECT_EQ(out, INT64_C(9223372030926249001));
    EXPECT_FALSE(z3d_mul_i64(3037000500, 3037000500, &out));
    EXPECT_TRUE(z3d_mul_i64(0, INT64_MAX, &out));
    EXPECT_EQ(out, 0);
    EXPECT_TRUE(z3d_add_i64(INT64_MAX - 1, 1, &out));
    EXPECT_EQ(out, INT64_MAX);
    EXPECT_FALSE(z3d_add_i64(INT64_MAX, 1, &out));
}

TEST(Arithmetic, RoundUp) {
    EXPECT_EQ(z3d_round_up(0, 8), 0);
    EXPECT_EQ(z3d_round_up(1, 8), 8);
    EXPECT_EQ(z3d_round_up(8, 8), 8);
    EXPECT_EQ(z3d_round_up(50257, 256), 50432);
    EXPECT_EQ(z3d_round_up(INT64_MAX, 1), INT64_MAX);
    EXPECT_EQ(z3d_round_up(INT64_MAX - 6, 128), -1);
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
