// The paper's numbers: tables exact, every row fits as published, errors and shapes within what is
// asked, the committed configurations are the table's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

extern "C" {
#include "src/plan/paper/paper.h"
}

namespace {

z3d_hardware machine() {
    z3d_hardware hardware;
    std::string folder = ZERO3D_CONFIGS;
    EXPECT_EQ(z3d_hardware_read((folder + "/hardware/dgx2-v100.yaml").c_str(), &hardware), Z3D_OK)
        << z3d_error_message();
    EXPECT_EQ(z3d_hardware_adjust("paper-2019", &hardware), Z3D_OK) << z3d_error_message();
    return hardware;
}

// A figure's or a table's points, worked out once for all tests that look at them.
struct Points {
    z3d_points all{};
    Points(const Points &) = delete;
    explicit Points(const char *what) {
        z3d_hardware hardware = machine();
        EXPECT_EQ(z3d_paper_reproduce(what, &hardware, &all), Z3D_OK) << z3d_error_message();
    }
    ~Points() {
        z3d_points_free(&all);
    }
    const z3d_point &find(const std::string &system, const std::string &size, int gpus,
                          const std::string &quantity) const {
        static const z3d_point none{};
        for (int i = 0; i < all.count; i++)
            if (system == all.point[i].system && size == all.point[i].size &&
                gpus == all.point[i].gpus && quantity == all.point[i].quantity)
                return all.point[i];
        ADD_FAILURE() << "no point " << system << " " << size << " " << gpus << " " << quantity;
        return none;
    }
    double speed(const std::string &system, const std::string &size, int gpus) const {
        return find(system, size, gpus, "tflops_per_gpu").ours;
    }
};

const Points &points_of(const std::string &what) {
    static std::map<std::string, Points> known;
    return known.try_emplace(what, what.c_str()).first->second;
}

TEST(Paper, Table1IsExact) {
    const Points &table = points_of("table1");
    EXPECT_EQ(table.all.count, 54);
    for (int i = 0; i < table.all.count; i++)
        EXPECT_DOUBLE_EQ(table.all.point[i].ours, table.all.point[i].published)
            << table.all.point[i].system << " " << table.all.point[i].size << " "
            << table.all.point[i].gpus;
}

TEST(Paper, PrintedAsThePaperPrints) {
    EXPECT_DOUBLE_EQ(z3d_paper_printed(4187.5), 4187);
    EXPECT_DOUBLE_EQ(z3d_paper_printed(41.25), 41.3);
    EXPECT_DOUBLE_EQ(z3d_paper_printed(1.875), 1.88);
    EXPECT_DOUBLE_EQ(z3d_paper_printed(0.1172), 0.12);
}

TEST(Paper, Table2) {
    const Points &table = points_of("table2");
    for (int i = 0; i < table.all.count; i++) {
        const z3d_point &p = table.all.point[i];
        bool measured = std::string(p.system).find("measured") == 0;
        bool trillions = std::string(p.system) == "os+g+p" && p.gpus >= 4 * 64;
        if (trillions) continue;
        EXPECT_LE(std::fabs(p.ours / p.published - 1), measured ? 0.25 : 4e-16)
            << p.system << " " << p.size;
    }
    // The paper writes 512B, 1024B, 2048B as 0.5T, 1T, 2T.
    for (int tensor : {4, 8, 16}) {
        const z3d_point &p =
            table.find("os+g+p", "MP " + std::to_string(tensor), 64 * tensor, "max_params");
        EXPECT_DOUBLE_EQ(p.ours, 128e9 * tensor);
        EXPECT_DOUBLE_EQ(p.published, 125e9 * tensor);
    }
}

// By the formula itself: 32 GB over 4 + 12/64 bytes, not times the rounded first row.
TEST(Paper, Table2WithoutRounding) {
    const Points &table = points_of("table2");
    const std::map<int, double> formula = {
        {1, 7.64}, {2, 15.28}, {4, 30.57}, {8, 61.13}, {16, 122.27}};
    for (auto [tensor, billions] : formula) {
        auto other = [&, tensor = tensor](const char *system) {
            std::string size = "MP " + std::to_string(tensor);
            return table.find(system, size, 64 * tensor, "max_params").other;
        };
        EXPECT_NEAR(other("os") * 1e-9, billions, 0.005) << tensor;
        EXPECT_DOUBLE_EQ(other("os"), 32e9 / (4 + 12.0 / 64) * tensor);
        EXPECT_DOUBLE_EQ(other("base"), 2e9 * tensor);
        EXPECT_DOUBLE_EQ(other("os+g"), 32e9 / (2 + 14.0 / 64) * tensor);
        EXPECT_DOUBLE_EQ(other("os+g+p"), 128e9 * tensor);
    }
}

TEST(Paper, EverythingFitsAsPublished) {
    int rows = 0, seen = 0;
    for (int i = 0; i < z3d_paper_row_count; i++) rows += !!(z3d_paper_rows[i].shows & PAPER_FITS);
    for (const char *figure : {"fig2", "fig3", "fig4", "fig6", "fig8"}) {
        const Points &points = points_of(figure);
        for (int i = 0; i < points.all.count; i++) {
            const z3d_point &p = points.all.point[i];
            if (std::string(p.quantity) != "fits") continue;
            EXPECT_EQ(p.ours, p.published) << figure << " " << p.system << " " << p.size;
            seen++;
        }
    }
    EXPECT_EQ(seen, rows);
}

TEST(Paper, Speeds) {
    std::vector<double> errors;
    for (const char *figure : {"fig2", "fig3", "fig4", "fig8"}) {
        const Points &points = points_of(figure);
        for (int i = 0; i < points.all.count; i++) {
            const z3d_point &p = points.all.point[i];
            if (std::string(p.quantity) != "tflops_per_gpu" || std::isnan(p.published)) continue;
            std::string name = std::string(figure) + " " + p.system + " " + p.size;
            double error = std::fabs(p.ours / p.published - 1);
            EXPECT_LE(error, name == "fig8 C1 60B" ? 0.31 : 0.16)
                << name << ": " << p.ours << " for " << p.published;
            errors.push_back(error);
        }
    }
    ASSERT_EQ(errors.size(), 24u);
    std::sort(errors.begin(), errors.end());
    EXPECT_LE(0.5 * (errors[11] + errors[12]), 0.10);
}

TEST(Paper, Shapes) {
    const Points &two = points_of("fig2"), &three = points_of("fig3"), &eight = points_of("fig8");
    EXPECT_GE(two.speed("zero", "100B", 400), 7 * two.speed("megatron", "100B", 384));
    EXPECT_LT(two.speed("megatron", "40B", 384), 0.5 * two.speed("megatron", "8B", 400));
    EXPECT_GT(three.speed("zero", "60B", 128), three.speed("zero", "60B", 64));
    EXPECT_GT(three.speed("zero", "60B", 256), three.speed("zero", "60B", 64));
    const char *order[] = {"C1", "C2", "C3", "C4"};
    for (int i = 0; i < 3; i++)
        EXPECT_LT(eight.speed(order[i], "60B", 128), eight.speed(order[i + 1], "60B", 128));
    EXPECT_LT(eight.speed("C5", "60B", 128), eight.speed("C4", "60B", 128));
    for (const char *system : {"C1", "C2", "C3", "C4"})
        EXPECT_EQ(eight.find(system, "170B", 400, "fits").ours, 0) << system;
    EXPECT_EQ(eight.find("C5", "170B", 400, "fits").ours, 1);
}

TEST(Paper, CachedMemory) {
    const Points &seven = points_of("fig7");
    int beyond = 0;
    for (int i = 0; i < seven.all.count; i++) {
        const z3d_point &p = seven.all.point[i];
        if (!std::isnan(p.published) && std::fabs(p.ours / p.published - 1) > 0.15) beyond++;
    }
    EXPECT_LE(beyond, 1);
}

TEST(Paper, CalibrationMakesItBetter) {
    z3d_hardware hardware;
    std::string path = std::string(ZERO3D_CONFIGS) + "/hardware/dgx2-v100.yaml";
    ASSERT_EQ(z3d_hardware_read(path.c_str(), &hardware), Z3D_OK);
    double before, after;
    ASSERT_EQ(z3d_paper_calibrate(&hardware, 1, &before, &after), Z3D_OK) << z3d_error_message();
    EXPECT_LT(after, 0.5 * before);
    EXPECT_GE(hardware.overhead_gb, 2.6);
    EXPECT_LE(hardware.overhead_gb, 4.1);
    z3d_string text{};
    z3d_paper_write_calibration(&hardware, &text);
    z3d_hardware again = machine();
    EXPECT_EQ(z3d_hardware_adjust_text(text.text, text.length, "written", &again), Z3D_OK)
        << z3d_error_message();
    EXPECT_EQ(std::count(text.text, text.text + text.length, '#'), 4 + 12);
    z3d_string_free(&text);
}

TEST(Paper, UnknownFigure) {
    z3d_hardware hardware = machine();
    z3d_points points{};
    EXPECT_FALSE(z3d_paper_has("fig5"));
    EXPECT_TRUE(z3d_paper_has("fig2"));
    EXPECT_EQ(z3d_paper_reproduce("fig5", &hardware, &points), Z3D_OK);
    EXPECT_EQ(points.count, 0);
    z3d_points_free(&points);
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
