// How often a run fails and saves, and what share of its time trains: the formulas by hand, and
// whole runs from them.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

extern "C" {
#include "src/plan/price/bill.h"
}

namespace {

// 2 x 50 s x 10,000 s is 1,000,000 s^2; 50 / 20,000 is a 400th, whose root is a 20th.
TEST(Goodput, TheFormulasByHand) {
    EXPECT_DOUBLE_EQ(z3d_young_interval(10000, 50), 1000);
    EXPECT_NEAR(z3d_daly_interval(10000, 50), 1000 * (1 + 1 / 60.0 + 1 / 3600.0) - 50, 1e-9);
    EXPECT_DOUBLE_EQ(z3d_daly_interval(100, 200), 100); // a checkpoint of two such times or more
    EXPECT_DOUBLE_EQ(z3d_daly_interval(100, 500), 100);
    // 1,000 s of training, 50 s of saving, a 40th of the failures' time to restart.
    EXPECT_NEAR(z3d_goodput_share(10000, 50, 250, 1000),
                0.1 / (std::exp(0.025) * (std::exp(0.105) - 1)), 1e-12);
}

// Daly's interval is the best one, to the third order that the formula has.
TEST(Goodput, NoIntervalIsMuchBetter) {
    for (double stall : {1.0, 30.0, 300.0}) {
        const double mtbf = 10000, daly = z3d_daly_interval(mtbf, stall);
        const double best = z3d_goodput_share(mtbf, stall, 100, daly);
        for (double other : {0.5, 0.8, 0.95, 1.05, 1.2, 2.0})
            EXPECT_LT(z3d_goodput_share(mtbf, stall, 100, other * daly), best * 1.0001) << stall;
    }
}

struct Training {
    Training() {
        hardware.devices = 8;
        hardware.node_mtbf = 5000;
        hardware.restart = 300;
        saving.save_seconds = saving.stall_seconds = 60;
        saving.load_seconds = 40;
    }
    z3d_goodput find(int ranks, double days, z3d_status expected = Z3D_OK) {
        bill = z3d_bill_make(&hardware, ranks, 1e12, 1e12 / (days * 86400));
        z3d_goodput out{};
        EXPECT_EQ(z3d_goodput_find(&hardware, &saving, &bill, 10, &out), expected)
            << z3d_error_message();
        return out;
    }
    z3d_hardware hardware{};
    z3d_saving saving{};
    z3d_bill bill{};
};

// 1,000 nodes fail every 5 h = 18,000 s. Young: sqrt(2 x 60 x 18,000) = 1,470 s.
TEST(Goodput, OfARun) {
    Training run;
    const z3d_goodput g = run.find(8000, 30);
    EXPECT_DOUBLE_EQ(g.mtbf, 18000);
    EXPECT_NEAR(g.young, 1469.7, 0.1);
    EXPECT_NEAR(g.daly, 1469.7 * (1 + std::sqrt(1 / 600.0) / 3 + 1 / 5400.0) - 60, 0.1);
    EXPECT_EQ(g.steps, 143); // of 10 s: 1,430 s of Daly's 1,430
    EXPECT_EQ(g.interval, 1430);
    const double share = 1430 / (18000 * std::exp(340 / 18000.0) * std::expm1(1490 / 18000.0));
    EXPECT_NEAR(g.seconds, 300 + 30 * 86400 / share, 1e-3);
    EXPECT_NEAR(g.share, 30 * 86400 / g.seconds, 1e-12);
    EXPECT_NEAR(g.failures, g.seconds / 18000, 1e-9);
}

// A copy of 2 s, written beside training for 60 s: more goodput, though what is half written is
// lost, and no copy before the write is over.
TEST(Goodput, WritesBesideTraining) {
    Training run;
    const double waits = run.find(8000, 30).share;
    run.saving.stall_seconds = 2;
    const z3d_goodput beside = run.find(8000, 30);
    EXPECT_GT(beside.share, waits);
    EXPECT_NEAR(beside.young, std::sqrt(2 * 2 * 18000), 1e-9);
    run.saving.save_seconds = 1000;
    EXPECT_EQ(run.find(8000, 30).steps, 100);
}

// A checkpoint of 0.78 of the time between failures and more leaves no interval.
TEST(Goodput, TooManyFailuresAreRefused) {
    Training run;
    run.saving.save_seconds = run.saving.stall_seconds = 15000;
    run.find(8000, 30, Z3D_ERR_CONFIG);
    EXPECT_NE(std::string(z3d_error_message())
                  .find("a checkpoint takes 4 h 10 min, and a run on "
                        "1000 nodes of "),
              std::string::npos)
        << z3d_error_message();
    run.saving.stall_seconds = 2;
    run.find(8000, 30);
    run.saving.save_seconds = 18000;
    run.find(8000, 30, Z3D_ERR_CONFIG);
    run.saving.save_seconds = run.saving.stall_seconds = 0.001;
    run.hardware.restart = 1e6; // 55 times the time between failures
    run.find(8000, 30, Z3D_ERR_CONFIG);
    EXPECT_NE(std::string(z3d_error_message()).find("too often for a step"), std::string::npos)
        << z3d_error_message();
}

// What the description does not say is not known, and says so.
TEST(Goodput, UnknownNumbers) {
    Training run;
    run.saving.save_seconds = run.saving.stall_seconds = -1;
    const z3d_goodput no_disk = run.find(8000, 30);
    EXPECT_LT(no_disk.share, 0);
    EXPECT_EQ(no_disk.failures, 30 * 24 / 5.0);
    z3d_string text{};
    z3d_goodput_print(&run.hardware, &no_disk, &run.bill, &text);
    for (const char *said :
         {"no node.disk_write_gb_per_s", "goodput                      not known"})
        EXPECT_NE(std::string(text.text).find(said), std::string::npos) << text.text;
    z3d_string_free(&text);
    run.hardware.node_mtbf = 0;
    z3d_goodput_json(&no_disk, &text);
    EXPECT_NE(std::string(text.text).find("\"goodput\": null"), std::string::npos) << text.text;
    EXPECT_LT(run.find(8000, 30).failures, 0);
    z3d_string_free(&text);
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
