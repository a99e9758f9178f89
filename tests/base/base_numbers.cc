/* Numbers are read whole: what strtol would have read otherwise is in these lists. */
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

extern "C" {
#include "src/base/strings.h"
}

static void expect_int(const char *text, int64_t expected) {
    int64_t value = -99;
    ASSERT_EQ(z3d_parse_int(text, &value), Z3D_OK) << text << ": " << z3d_error_message();
    EXPECT_EQ(value, expected) << text;
}

/* Refused, saying so; the value is left alone. */
static void refuse_int(const char *text, const char *why) {
    int64_t value = -99;
    ASSERT_EQ(z3d_parse_int(text, &value), Z3D_ERR_CONFIG) << text << " gave " << value;
    EXPECT_NE(strstr(z3d_error_message(), why), nullptr) << text << ": " << z3d_error_message();
}

static void expect_float(const char *text, double expected) {
    double value = -99;
    ASSERT_EQ(z3d_parse_float(text, &value), Z3D_OK) << text << ": " << z3d_error_message();
    EXPECT_EQ(value, expected) << text;
}

static void refuse_float(const char *text, const char *why) {
    double value = -99;
    ASSERT_EQ(z3d_parse_float(text, &value), Z3D_ERR_CONFIG) << text << " gave " << value;
    EXPECT_NE(strstr(z3d_error_message(), why), nullptr) << text << ": " << z3d_error_message();
    EXPECT_EQ(value, -99);
}

static void expect_bytes(const char *text, int64_t expected) {
    int64_t value = -99;
    ASSERT_EQ(z3d_parse_bytes(text, &value), Z3D_OK) << text << ": " << z3d_error_message();
    EXPECT_EQ(value, expected) << text;
}

static void refuse_bytes(const char *text, const char *why) {
    int64_t value = -99;
    ASSERT_EQ(z3d_parse_bytes(text, &value), Z3D_ERR_CONFIG) << text << " gave " << value;
    EXPECT_NE(strstr(z3d_error_message(), why), nullptr) << text << ": " << z3d_error_message();
}

TEST(ParseCount, UnitsAreThousands) {
    double value = -99;
    for (const char *text : {"1T", "1 T", "1000B", "1e12", "1000000 M", "1e9K"}) {
        ASSERT_EQ(z3d_parse_count(text, &value), Z3D_OK) << text << ": " << z3d_error_message();
        EXPECT_EQ(value, 1e12) << text;
    }
    ASSERT_EQ(z3d_parse_count("1.5B", &value), Z3D_OK);
    EXPECT_EQ(value, 1.5e9);
    for (const char *text : {"", "T", " T", "1TT", "1t", "1 tokens", "1e308T"})
        EXPECT_EQ(z3d_parse_count(text, &value), Z3D_ERR_CONFIG) << text << " gave " << value;
}

TEST(ParseInt, Whole) {
    expect_int("0", 0);
    expect_int("-0", 0);
    expect_int("+5", 5);
    expect_int("-1", -1);
    expect_int("500000000", 500000000);
    expect_int("5e8", 500000000);
    expect_int("5E+8", 500000000);
    expect_int("200000000.0", 200000000);
    expect_int("1.0", 1);
    expect_int("-7.", -7);
    expect_int("1.5e3", 1500);
    expect_int("50e-1", 5);
    expect_int("1000e-3", 1);
    expect_int("0e999999999999999999999", 0);
    expect_int("0e-5", 0);
    expect_int("9223372036854775807", INT64_MAX);
    expect_int("-9223372036854775808", INT64_MIN);
    expect_int("9.223372036854775807e18", INT64_MAX);
    expect_int("92233720368547758070e-1", INT64_MAX);
}

TEST(ParseInt, Refused) {
    for (const char *text : {"",    " ",   "x",     "-",   "+",    "e8",   ".",    "_1",
                             "1 ",  " 1",  "1e",    "1e+", "1e8x", "0x10", "0b1",  "1,000",
                             "--1", "+-1", "12abc", "nan", "inf",  "true", "auto", "1\n"}) {
        refuse_int(text, "is not a");
    }
    refuse_int("010", "has a leading zero; write 10");
    refuse_int("-010", "has a leading zero; write -10");
    refuse_int("00", "has a leading zero; write 0");
    refuse_int("007", "write 7");
    for (const char *text : {"1_0", "1_000", "1_", "1__0", "1_e8", "1_000_000"})
        refuse_int(text, "has an underscore; write the digits without it");
    refuse_int("1.5", "fraction");
    refuse_int("1.55e1", "fraction");
    refuse_int("5e-1", "fraction");
    refuse_int("1e-999999999999", "fraction");
    refuse_int("9223372036854775808", "beyond 64-bit");
    refuse_int("-9223372036854775809", "beyond 64-bit");
    refuse_int("18446744073709551616", "beyond 64-bit");
    refuse_int("1e19", "beyond 64-bit");
    refuse_int("1e30", "beyond 64-bit");
    refuse_int("1e99999999999999999999", "beyond 64-bit");
    refuse_int("340282366920938463463374607431768211456", "beyond 64-bit"); /* 2^128 */
    refuse_int(std::string(5000, '9').c_str(), "too long");
}

TEST(ParseInt, AgreesWithDecimalText) {
    std::mt19937_64 random(3);
    for (int i = 0; i < 20000; i++) {
        int64_t value = static_cast<int64_t>(random()) >> (random() % 64);
        expect_int(std::to_string(value).c_str(), value);
    }
}

TEST(ParseFloat, Whole) {
    expect_float("0", 0);
    expect_float("6e-4", 6e-4);
    expect_float("1e-08", 1e-8);
    expect_float(".5", 0.5);
    expect_float("1.", 1);
    expect_float("-2.5E3", -2500);
    expect_float("0.1", 0.1);
    expect_float("1.7976931348623157e308", 1.7976931348623157e308);
    expect_float("5e-324", 5e-324);
    expect_float("0e999999999", 0);
    expect_float("0.30000000000000004", 0.1 + 0.2);
}

TEST(ParseFloat, Refused) {
    for (const char *text : {"", ".", "-", "e5", "1e", "1.5.2", "1,5", "nan", "inf", ".inf", ".nan",
                             "-.inf", "infinity", "0x1p3", "1f", "1 2", "$1", "._5"}) {
        refuse_float(text, "is not a");
    }
    for (const char *text : {"1_000.5", "1_0", "1.0_1", "1._5"})
        refuse_float(text, "has an underscore");
    refuse_float("01.5", "leading zero; write 1.5");
    refuse_float("-00.5", "leading zero; write -0.5");
    refuse_float("1e309", "too large");
    refuse_float("-1e309", "too large");
    refuse_float("1e-400", "too small");
    refuse_float("1e999999999999999999999", "too large");
}

TEST(ParseFloat, AgreesWithStrtod) {
    std::mt19937_64 random(5);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = random();
        double value;
        memcpy(&value, &bits, sizeof value);
        if (!(value - value == 0)) continue; /* not finite */
        char text[64];
        snprintf(text, sizeof text, i % 2 ? "%.17g" : "%.20e", value);
        expect_float(text, value);
    }
}

TEST(ParseBytes, Units) {
    expect_bytes("0", 0);
    expect_bytes("123", 123);
    expect_bytes("3e9", 3000000000);
    expect_bytes("16GiB", INT64_C(16) << 30);
    expect_bytes("512 MiB", INT64_C(512) << 20);
    expect_bytes("80GB", INT64_C(80000000000));
    expect_bytes("1.5 KiB", 1536);
    expect_bytes("0.5kB", 500);
    expect_bytes("1 B", 1);
    expect_bytes("2TiB", INT64_C(2) << 40);
    expect_bytes("8191PiB", INT64_C(8191) << 50);
}

TEST(ParseBytes, Refused) {
    refuse_bytes("", "is not a");
    refuse_bytes("GiB", "is not a");
    refuse_bytes("16G", "unknown unit; write 3e9, 16GiB");
    refuse_bytes("16gib", "unknown unit");
    refuse_bytes("16  GiB", "unknown unit");
    refuse_bytes("16GiBs", "unknown unit");
    refuse_bytes("-1GiB", "negative");
    refuse_bytes("0.3B", "not a whole number of bytes");
    refuse_bytes("0.0001KiB", "not a whole number of bytes");
    refuse_bytes("8192PiB", "beyond 64-bit");
    refuse_bytes("1e30GiB", "beyond 64-bit");
    refuse_bytes("010GiB", "leading zero");
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
