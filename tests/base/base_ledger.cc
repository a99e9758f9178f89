/* The ledger of memory categories. */
#include <gtest/gtest.h>

extern "C" {
#include "src/base/ledger.h"
}

TEST(Ledger, Names) {
    EXPECT_STREQ(z3d_category_name(Z3D_CATEGORY_PARAMETERS), "parameters");
    EXPECT_STREQ(z3d_category_name(Z3D_CATEGORY_COMMUNICATION), "communication");
    EXPECT_STREQ(z3d_category_name(Z3D_CATEGORY_COUNT), "?");
}

TEST(Ledger, PeaksAreThoseOfEachCategoryAndOfTheSum) {
    z3d_ledger ledger = {};
    z3d_ledger_add(&ledger, Z3D_CATEGORY_PARAMETERS, 100);
    z3d_ledger_add(&ledger, Z3D_CATEGORY_ACTIVATIONS, 50);
    z3d_ledger_add(&ledger, Z3D_CATEGORY_ACTIVATIONS, -50);
    z3d_ledger_add(&ledger, Z3D_CATEGORY_TEMPORARY, 30);
    z3d_ledger_add(&ledger, Z3D_CATEGORY_ACTIVATIONS, 40);
    EXPECT_EQ(ledger.live[Z3D_CATEGORY_PARAMETERS], 100);
    EXPECT_EQ(ledger.live[Z3D_CATEGORY_ACTIVATIONS], 40);
    EXPECT_EQ(ledger.peak[Z3D_CATEGORY_ACTIVATIONS], 50);
    EXPECT_EQ(ledger.peak[Z3D_CATEGORY_TEMPORARY], 30);
    EXPECT_EQ(ledger.total_live, 170);
    EXPECT_EQ(ledger.total_peak, 170); /* not 100 + 50 + 30: not live together */
    z3d_ledger_add(&ledger, Z3D_CATEGORY_PARAMETERS, -100);
    EXPECT_EQ(ledger.total_live, 70);
    EXPECT_EQ(ledger.total_peak, 170);
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
