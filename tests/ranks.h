// Tests that are started on several ranks: their world, a folder that all of them see, main().
#ifndef ZERO3D_TESTS_RANKS_H
#define ZERO3D_TESTS_RANKS_H

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "tests/expect.h"
#include "tests/files.h"

extern "C" {
#include "parallel/parallel.h"
}

inline z3d_world *world = nullptr;

// Made and removed by rank 0. One node: tests do not span several.
class SharedFolder {
  public:
    SharedFolder();
    ~SharedFolder();
    static void barrier();
    std::string operator/(const std::string &name) const;
    std::string path;

  private:
    std::unique_ptr<Folder> own;
};

// One report is enough: rank 0's. Failures of the others are shown.
class FailuresOnly : public ::testing::EmptyTestEventListener {
    void OnTestPartResult(const ::testing::TestPartResult &result) override;
};

// `start` and `end`: what all tests of a program share besides the world.
int main_on_ranks(int argc, char **argv, z3d_status (*start)() = nullptr, void (*end)() = nullptr);

#endif
