// Programs of all ranks of a world, built in one process: the builder is pure.
#ifndef ZERO3D_TESTS_ZERO_PROGRAMS_H
#define ZERO3D_TESTS_ZERO_PROGRAMS_H

#include <climits>
#include <vector>

#include "tests/zero/options.h"

extern "C" {
#include "zero/program.h"
#include "zero/program/layout.h"
}

namespace programs {

using harness::name_of;
using harness::Options;

// The smallest model, on one data rank: most of what is looked at here is never run.
Options small();

class World {
  public:
    Options o;
    z3d_model *model = nullptr;
    z3d_traces *traces = nullptr;
    std::vector<z3d_layout *> layouts;
    std::vector<z3d_program *> programs; // by rank, of the mode built last

    explicit World(const Options &options) : o(options) {}
    World(const World &) = delete;
    World &operator=(const World &) = delete;
    ~World();

    int size() const;

    z3d_status prepare();

    // Planned programs of every rank in `mode`. gathered: all rows of the parameters are there.
    z3d_status build(z3d_mode mode = Z3D_MODE_TRAIN, bool gathered = false);

    static void destroy(std::vector<z3d_program *> &list);
};

// An entry of a copy, with slots of its own.
struct Instruction : z3d_instruction {
    std::vector<int> slots;
    Instruction(const z3d_instruction &in)
        : z3d_instruction(in), slots(in.buffer, in.buffer + in.num_slots) {
        buffer = slots.data();
    }
    Instruction(const Instruction &in) : Instruction((const z3d_instruction &)in) {}
    Instruction(Instruction &&) = default;
    Instruction &operator=(const Instruction &in) {
        return *this = Instruction(in);
    }
    Instruction &operator=(Instruction &&) = default;
};

// A copy of a program whose entries and buffers a test may change. The copy shares the rest.
class Copy {
  public:
    std::vector<Instruction> entries;
    std::vector<z3d_buffer> buffers;
    std::vector<z3d_child> children; // of one changed entry
    z3d_program program;

    explicit Copy(const z3d_program &p);
    Copy(const Copy &) = delete;
    Copy &operator=(const Copy &) = delete;

    // After a change of the entries.
    z3d_program *sync();

    // Lifetimes as the entries use the buffers now, as the builder would have them, and a new plan:
    // so that a change of the list is judged by what it does, not by leftover lifetimes.
    z3d_status settle();

    int find(z3d_opcode opcode, int skip = 0, z3d_phase phase = Z3D_PHASE_WHOLE) const;

  private:
    std::vector<z3d_instruction> list_; // the entries, as a program has them
};

// A dozen and more configurations: every stage, parallel size, accumulation, recompute, overlap,
// bucket size and reduction policy at least once.
std::vector<Options> dozen();

// Pipelines: every schedule, alone and beside tensor, sequence and data parallelism, in every ZeRO
// stage, with what else may stand between a stage's receives and sends.
std::vector<Options> pipelines();

} // namespace programs

#endif
