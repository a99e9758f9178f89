// Measures what a training step really uses, apart from all planning: which addresses kernels,
// copies and collectives touch at which instruction. From that alone come every buffer's lifetime
// and extent, and the peaks by category that the planned ones are compared with.
#ifndef ZERO3D_TESTS_ZERO_ACCESS_OBSERVER_H
#define ZERO3D_TESTS_ZERO_ACCESS_OBSERVER_H

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include "zero/execute/engine.h"
#include "zero/program/layout.h"
}

namespace harness {

class AccessObserver {
  public:
    AccessObserver();
    AccessObserver(const AccessObserver &) = delete;
    AccessObserver &operator=(const AccessObserver &) = delete;
    ~AccessObserver();

    // Both before the engine is created.
    void watch(z3d_device *device, z3d_engine_config *config);

    // What is touched from here on belongs to no instruction.
    void step_is_over();

    // After a training step: planned = measured, by space and category; and nothing was touched
    // that the instruction does not name.
    void expect_as_planned(const z3d_engine *engine);

  private:
    struct Range {
        const char *at;
        int64_t bytes;
    };
    struct Seen {
        int first = INT_MAX, last = -1;
        int64_t low = INT64_MAX, high = 0; // touched bytes, from the buffer's beginning
    };

    enum { BEFORE = -1, OVER = -2, ELSEWHERE = -3 }; // the first step; in another program
    const z3d_program *program = nullptr;            // the training step's
    int position = BEFORE;                           // or the instruction
    std::vector<Range> before;                       // touched by the engine's creation
    std::vector<std::vector<Range>> during;
    std::vector<Seen> seen; // by buffer
    std::vector<z3d_buffer> buffers;
    z3d_program as_measured{};
    std::string stray;

    static z3d_status entered(void *context, const z3d_program *p, int index);

    static void touched(void *context, const void *memory, int64_t bytes);

    // What was started is touched until it is waited for.
    void end_of(int wait);

    bool inside(const z3d_engine *engine, int buffer, const Range &r) const;

    void note(const z3d_engine *engine, int buffer, const Range &r, int index);

    // A range lies in one of the instruction's buffers, or in one that persists.
    void place(const z3d_engine *engine, int index, const Range &r);

    // Bytes of a group's flat padding at the end of a buffer that persists: kept, but nothing need
    // ever touch them.
    int64_t flat_padding(const z3d_engine *engine, const z3d_buffer &b) const;

    void settle(const z3d_engine *engine);
};

} // namespace harness

#endif
