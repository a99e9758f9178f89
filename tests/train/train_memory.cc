// A step of the whole trainer, with its data, metrics, TensorBoard events and console, allocates
// nothing after the first: a longer run allocates as often as a short one. With everything on the
// disk the process and its folder stay as they are.
#include <set>

#include "run.h"
#include "tests/base/allocations.h"

namespace {

struct Counts {
    long ours;
    std::map<std::string, long> by_library;
};

Counts allocations_of(const SharedFolder &folder, int steps, const std::string &more) {
    static int runs = 0; // a folder of its own for each: what is kept of an earlier run allocates
    std::string run = folder / ("run" + std::to_string(runs++));
    long before = allocations::ours;
    allocations::begin();
    Outcome o = train(folder, "run.dir=" + run + "\ntraining.log_interval=1\ntraining.steps=" +
                                  std::to_string(steps) + "\n" + more);
    Counts counts = {0, allocations::end()};
    counts.ours = allocations::ours - before;
    EXPECT_EQ(o.status, Z3D_OK) << o.message;
    return counts;
}

} // namespace

class Memory : public testing::Test {
  protected:
    Memory() {
        if (z3d_world_rank(world) == 0)
            write_file(folder / "train.bin", token_bytes(some_tokens(4000)));
        SharedFolder::barrier();
    }
    std::string on_the_disk() const {
        std::string lines = "zero_optimization.stage=3\n";
        for (const char *block : {"optimizer", "param"}) {
            std::string key = std::string("zero_optimization.offload_") + block;
            lines += key + ".device=nvme\n" + key + ".nvme_path=" + folder.path + "\n";
        }
        return lines;
    }
    void allocate_nothing(const std::string &more) const;
    SharedFolder folder;
};

void Memory::allocate_nothing(const std::string &more) const {
    constexpr int FEW = 3, MORE = 20;
    allocations_of(folder, FEW, more); // what is made once a process
    Counts few = allocations_of(folder, FEW, more), many = allocations_of(folder, FEW + MORE, more);
    EXPECT_GT(few.ours, 100) << "the counter must count";
    EXPECT_LT(many.ours - few.ours, MORE) << "not even one a step";
    // The C library's own, as an opened FILE's; MPI makes it allocate, too.
    if (z3d_world_size(world) == 1) {
        EXPECT_LT(many.by_library["libc.so.6"] - few.by_library["libc.so.6"], MORE);
    }
    if (z3d_world_rank(world) != 0) return;
    for (const auto &[name, calls] : many.by_library) {
        long more = calls - few.by_library[name];
        if (more >= MORE)
            printf("allocations a step by %s: %.1f\n", name.c_str(), (double)more / MORE);
    }
}

TEST_F(Memory, ATrainersStepAllocatesNothing) {
    allocate_nothing("zero_optimization.stage=2\n");
}

TEST_F(Memory, WithTheDiskNeither) {
    allocate_nothing(on_the_disk());
}

std::set<std::string> names_in(const std::string &folder) {
    std::set<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(folder))
        names.insert(entry.path().filename());
    return names;
}

// The most memory outside of the plan, open files, and what is in the disk's folder.
// A long run tells the least leak.
TEST_F(Memory, HundredsOfStepsLeaveThemAsTheyWere) {
    const int64_t FEW = 50, MANY = SANITIZED ? 100 : is_long() ? 1000 : 250;
    const int64_t TOLERANCE = (MANY - FEW) * 1024; // bytes
    const std::string lines =
        on_the_disk() + "run.tensorboard=false\ntraining.log_interval=1000\ntraining.steps=";
    ASSERT_EQ(train(folder, lines + "3\n").status, Z3D_OK);
    size_t files = names_in("/proc/self/fd").size();
    std::set<std::string> there = names_in(folder.path);
    SharedFolder::barrier();
    Outcome o = train(folder, lines + std::to_string(MANY) + "\n");
    ASSERT_EQ(o.status, Z3D_OK) << o.message;
    EXPECT_EQ(names_in("/proc/self/fd").size(), files);
    EXPECT_EQ(names_in(folder.path), there);
    if (z3d_world_rank(world) != 0) return;
    std::vector<std::string> steps = metrics(folder);
    ASSERT_EQ((int64_t)steps.size(), MANY);
    int64_t first = std::stoll(field(steps[FEW - 1], "outside")),
            last = std::stoll(field(steps[MANY - 1], "outside"));
    EXPECT_GT(first, 0);
    if (!SANITIZED) {
        EXPECT_LE(last - first, TOLERANCE);
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
