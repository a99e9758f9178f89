// Schedules as a user might write them: any order of passes that can run, backwards whole or in
// halves.
#ifndef ZERO3D_TESTS_ZERO_RANDOM_SCHEDULE_H
#define ZERO3D_TESTS_ZERO_RANDOM_SCHEDULE_H

#include <random>
#include <vector>

extern "C" {
#include "parallel/schedule/schedule.h"
}

namespace harness {

class RandomSchedule {
  public:
    z3d_schedule schedule{};

    RandomSchedule(unsigned seed, int stages, int chunks_per_stage, int micros);
    RandomSchedule(const RandomSchedule &) = delete;
    RandomSchedule &operator=(const RandomSchedule &) = delete;

  private:
    struct Chunk {
        int forward = 0, input = 0, weight = 0; // micro-batches that are done
    };
    std::mt19937 random_;
    int micros_;
    std::vector<Chunk> state_;
    std::vector<std::vector<z3d_task>> list_;
    std::vector<int> first_, stage_;
    std::vector<z3d_task> task_;

    void run(int chunk, z3d_pass pass, int micro);

    // One pass of the chunk, if any can run. How many forwards and weight gradients that ends.
    int try_one(int chunk);
};

} // namespace harness

#endif
