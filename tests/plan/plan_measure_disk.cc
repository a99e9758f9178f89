// The disk as `zero3d doctor --measure` measures it: rates where there is a disk, a refusal where
// there is none, and nothing left behind in any case.
#include <sys/resource.h>
#include <sys/vfs.h>

#include <csignal>
#include <filesystem>

#include "tests/zero/harness.h"

extern "C" {
#include "src/plan/price/measure.h"
}

namespace {

// A folder on the disk that this is built on, the same for all ranks.
struct Folder {
    std::string path = std::filesystem::current_path() / "zero3d-measure-disk";
    Folder() {
        std::filesystem::create_directories(path);
        EXPECT_EQ(z3d_world_agree(world, Z3D_OK), Z3D_OK);
    }
    ~Folder() {
        EXPECT_TRUE(std::filesystem::is_empty(path)); // while the other ranks' may still be there
        EXPECT_EQ(z3d_world_agree(world, Z3D_OK), Z3D_OK);
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
};

void expect_refused(const char *folder, const std::string &word) {
    z3d_hardware hardware{};
    EXPECT_EQ(z3d_measure_disk(world, folder, &hardware), Z3D_ERR_IO) << folder;
    EXPECT_NE(std::string(z3d_error_message()).find(word), std::string::npos)
        << z3d_error_message();
    EXPECT_EQ(hardware.disk_write, 0);
    EXPECT_EQ(hardware.disk_read, 0);
    EXPECT_EQ(hardware.nvme_write, 0);
    EXPECT_EQ(hardware.nvme_read, 0);
}

TEST(MeasureDisk, Rates) {
    Folder folder;
    struct statfs info {};
    ASSERT_EQ(statfs(folder.path.c_str(), &info), 0);
    if (info.f_type == 0x01021994) GTEST_SKIP() << "this is built in memory (tmpfs)";
    z3d_hardware hardware{};
    ASSERT_EQ(z3d_measure_disk(world, folder.path.c_str(), &hardware), Z3D_OK)
        << z3d_error_message();
    EXPECT_GT(hardware.disk_write, 0);
    EXPECT_GT(hardware.disk_read, 0);
    EXPECT_GT(hardware.nvme_write, 0);
    EXPECT_GT(hardware.nvme_read, 0);
    const int count = 5;
    double mine[] = {hardware.disk_write, hardware.disk_read, hardware.nvme_write,
                     hardware.nvme_read, hardware.nvme_duplex},
           theirs[2 * count];
    ASSERT_EQ(z3d_world_gather_all(world, mine, theirs, sizeof mine), Z3D_OK);
    for (int i = 0; i < 2 * count; i++) EXPECT_EQ(theirs[i], mine[i % count]); // the node's
}

TEST(MeasureDisk, WhatCannotBeMeasured) {
    expect_refused("no/such/folder", "no/such/folder");
    expect_refused("/dev/shm", "/dev/shm"); // memory, or too little of it
}

// One rank's disk fails in the middle.
TEST(MeasureDisk, NothingStaysAfterAFailure) {
    Folder folder;
    struct rlimit before {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit less = {8 << 20, before.rlim_max};
    if (z3d_world_rank(world) == z3d_world_size(world) - 1) {
        (void)signal(SIGXFSZ, SIG_IGN);
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &less), 0);
    }
    expect_refused(folder.path.c_str(), "cannot write");
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
