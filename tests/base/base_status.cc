/* Status names, the thread's error text, places, and the macros built on them. */
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

extern "C" {
#include "src/base/status.h"
}

static z3d_status fails(void) {
    return Z3D_ERROR(Z3D_ERR_DATA, "shard %d of %s", 3, "train.bin");
}

static z3d_status tries(int *after) {
    Z3D_TRY(fails());
    *after = 1;
    return Z3D_OK;
}

static z3d_status tries_with_ladder(int *cleaned) {
    z3d_status status;
    Z3D_TRY_GOTO(status, fails(), out);
    *cleaned = -1;
out:
    ++*cleaned;
    return status;
}

static z3d_status requires_positive(int value) {
    Z3D_REQUIRE(value > 0, "value %d", value);
    return Z3D_OK;
}

TEST(Status, EveryCodeHasNameAndText) {
    for (int i = 0; i < Z3D_STATUS_COUNT; i++) {
        EXPECT_STRNE(z3d_status_name(static_cast<z3d_status>(i)), "?");
        EXPECT_STRNE(z3d_status_text(static_cast<z3d_status>(i)), "?");
    }
    EXPECT_STREQ(z3d_status_name(Z3D_OK), "OK");
    EXPECT_STREQ(z3d_status_name(Z3D_ERR_CONFIG), "ERR_CONFIG");
    EXPECT_STREQ(z3d_status_text(Z3D_ERR_CONFIG), "bad configuration");
    EXPECT_STREQ(z3d_status_name(Z3D_STATUS_COUNT), "?");
    EXPECT_STREQ(z3d_status_text(static_cast<z3d_status>(-1)), "?");
}

TEST(Status, ErrorStoresTextAndPlaceInTheTree) {
    int line = __LINE__ + 1;
    EXPECT_EQ(Z3D_ERROR(Z3D_ERR_IO, "cannot open %s", "x"), Z3D_ERR_IO);
    EXPECT_STREQ(z3d_error_message(), "cannot open x");
    EXPECT_EQ(std::string(z3d_error_place()), "tests/base/base_status.cc:" + std::to_string(line));
}

TEST(Status, ContextGoesInFront) {
    Z3D_ERROR(Z3D_ERR_IO, "disk full");
    std::string place = z3d_error_place();
    EXPECT_EQ(z3d_error_context(Z3D_ERR_IO, "writing %s", "metrics.jsonl"), Z3D_ERR_IO);
    z3d_error_context(Z3D_ERR_IO, "step %d", 7);
    EXPECT_STREQ(z3d_error_message(), "step 7: writing metrics.jsonl: disk full");
    EXPECT_EQ(place, z3d_error_place()); /* still where it was made */
}

TEST(Status, TheStoredTextMayBeAnArgument) {
    Z3D_ERROR(Z3D_ERR_IO, "inner");
    Z3D_ERROR(Z3D_ERR_PEER, "rank 2: %s", z3d_error_message());
    EXPECT_STREQ(z3d_error_message(), "rank 2: inner");
    z3d_error_context(Z3D_ERR_PEER, "%s again", z3d_error_message());
    EXPECT_STREQ(z3d_error_message(), "rank 2: inner again: rank 2: inner");
}

TEST(Status, MessageIsOneLineWhateverIsInIt) {
    Z3D_ERROR(Z3D_ERR_DATA, "a\nb\tc\r\x1b[31md\x7f");
    EXPECT_STREQ(z3d_error_message(), "a b c ?[31md?");
}

TEST(Status, LongMessagesAreCutWithDots) {
    std::string text(10000, 'x');
    Z3D_ERROR(Z3D_ERR_DATA, "%s", text.c_str());
    std::string stored = z3d_error_message();
    EXPECT_LT(stored.size(), 8192u);
    EXPECT_GT(stored.size(), 1000u);
    EXPECT_EQ(stored.substr(stored.size() - 4), "x...");
    z3d_error_context(Z3D_ERR_DATA, "head");
    stored = z3d_error_message();
    EXPECT_EQ(stored.substr(0, 7), "head: x");
    EXPECT_EQ(stored.substr(stored.size() - 3), "...");
}

TEST(Status, EachThreadHasItsOwn) {
    Z3D_ERROR(Z3D_ERR_DATA, "of the main thread");
    std::thread other([] {
        EXPECT_STREQ(z3d_error_message(), "");
        EXPECT_STREQ(z3d_error_place(), "");
        Z3D_ERROR(Z3D_ERR_IO, "of the other");
        EXPECT_STREQ(z3d_error_message(), "of the other");
    });
    other.join();
    EXPECT_STREQ(z3d_error_message(), "of the main thread");
}

TEST(Status, AKeptErrorOutlivesWhatComesAfterIt) {
    z3d_kept_error kept = z3d_error_keep(fails());
    const std::string place = z3d_error_place();
    Z3D_ERROR(Z3D_ERR_IO, "of the clean-up");
    EXPECT_EQ(z3d_error_restore(&kept), Z3D_ERR_DATA);
    EXPECT_STREQ(z3d_error_message(), "shard 3 of train.bin");
    EXPECT_EQ(z3d_error_place(), place);
    // Another thread's becomes this one's, as often as it is asked for.
    std::thread([&kept] { kept = z3d_error_keep(Z3D_ERROR(Z3D_ERR_IO, "of the other")); }).join();
    EXPECT_STREQ(z3d_error_message(), "shard 3 of train.bin");
    for (int i = 0; i < 2; i++) {
        Z3D_ERROR(Z3D_ERR_DATA, "in between");
        EXPECT_EQ(z3d_error_restore(&kept), Z3D_ERR_IO);
        EXPECT_STREQ(z3d_error_message(), "of the other");
    }
}

TEST(Status, WhereNoErrorWasKeptTheLastOneStays) {
    Z3D_ERROR(Z3D_ERR_IO, "of before");
    const z3d_kept_error well = z3d_error_keep(Z3D_OK), none = {};
    Z3D_ERROR(Z3D_ERR_IO, "of the clean-up");
    EXPECT_EQ(z3d_error_restore(&well), Z3D_OK);
    EXPECT_EQ(z3d_error_restore(&none), Z3D_OK);
    EXPECT_STREQ(z3d_error_message(), "of the clean-up");
}

TEST(Status, TryReturnsAndTryGotoJumps) {
    int after = 0, cleaned = 0;
    EXPECT_EQ(tries(&after), Z3D_ERR_DATA);
    EXPECT_EQ(after, 0);
    EXPECT_EQ(tries_with_ladder(&cleaned), Z3D_ERR_DATA);
    EXPECT_EQ(cleaned, 1);
    EXPECT_STREQ(z3d_error_message(), "shard 3 of train.bin");
}

TEST(Status, RequireIsInternal) {
    EXPECT_EQ(requires_positive(1), Z3D_OK);
    EXPECT_EQ(requires_positive(-1), Z3D_ERR_INTERNAL);
    EXPECT_STREQ(z3d_error_message(), "value -1");
}

TEST(Status, NewGivesZeroesAndRefusesWhatOverflows) {
    int *numbers = nullptr;
    ASSERT_EQ(z3d_new(100, sizeof *numbers, "numbers", &numbers), Z3D_OK);
    for (int i = 0; i < 100; i++) EXPECT_EQ(numbers[i], 0);
    free(numbers);
    char *nothing = nullptr;
    ASSERT_EQ(z3d_new(0, 4, "nothing", &nothing), Z3D_OK);
    EXPECT_NE(nothing, nullptr); /* no size is an error for its caller */
    free(nothing);
    char *huge = nullptr;
    EXPECT_EQ(z3d_new(SIZE_MAX / 2, 4, "the moon", &huge), Z3D_ERR_MEMORY);
    EXPECT_EQ(huge, nullptr);
    EXPECT_NE(strstr(z3d_error_message(), "the moon"), nullptr);
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
