// Runs programs that a test gives on real ranks, always from the same start, with every byte that a
// step must not depend on poisoned.
#ifndef ZERO3D_TESTS_ZERO_RUNNER_H
#define ZERO3D_TESTS_ZERO_RUNNER_H

#include <algorithm>
#include <vector>

#include "tests/zero/harness.h"

namespace harness {

class Runner {
  public:
    Trainer trainer;

    explicit Runner(const Options &o) : trainer(o) {}

    z3d_status create();

    const z3d_program &program() const;

    // Whether the engine has a program of this mode for when all rows of the parameters are there.
    bool has_gathered(z3d_mode mode);

    // Bits of `program` from the start, two steps where it trains: losses, norms, logits, and all
    // that the next step may use.
    z3d_status run(z3d_program *program, std::vector<char> &bits);

  private:
    z3d_program *own_ = nullptr;
    std::vector<char> start_[Z3D_SPACE_COUNT];
    z3d_engine_config unobserved_{}; // of installed programs, which the test destroys

    z3d_engine *engine();

    // What the engine has on its disk comes to memory: a mutant may use more than the file has.
    // Without a disk copies are the device's.
    z3d_status bring_disk();

    int64_t persistent_bytes(int space) const;

    std::vector<char> read(int space, int64_t from, int64_t bytes);

    // Once, in memory of which only what persists is left.
    z3d_status run_once(z3d_mode mode, std::vector<char> &bits);

    void write(int space, int64_t at, const std::vector<char> &data);

    // The bytes of a group's role that a step may start from: this rank's rows, or all where it
    // steps all.
    void rows(int group, z3d_state_role role, int64_t *first, int64_t *bytes) const;

    // Parameters and optimizer states are what a step starts from; the rest is garbage to it.
    void poison_start();

    void read_result(std::vector<char> &bits);

    // A mutant may live in larger arenas than the program it came from.
    z3d_status make_room(const int64_t *bytes);

    z3d_status install(z3d_program *program, z3d_program **replaced);
};

} // namespace harness

#endif
