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

    RandomSchedule(unsigned seed, int stages, int chunks_per_stage, int micros)
        : random_(seed), micros_(micros), state_((size_t)(stages * chunks_per_stage)),
          list_((size_t)stages) {
        for (int c = 0; c < stages * chunks_per_stage; c++) stage_.push_back(c % stages);
        int left = 2 * micros * (int)stage_.size();
        while (left > 0) left -= try_one((int)(random_() % stage_.size()));
        for (const std::vector<z3d_task> &list : list_) {
            first_.push_back((int)task_.size());
            task_.insert(task_.end(), list.begin(), list.end());
        }
        first_.push_back((int)task_.size());
        schedule.kind = Z3D_SCHEDULE_FILE;
        schedule.stages = stages, schedule.chunks = (int)stage_.size(), schedule.micros = micros;
        schedule.first = first_.data(), schedule.task = task_.data();
        schedule.stage_of_chunk = stage_.data();
    }
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

    void run(int chunk, z3d_pass pass, int micro) {
        list_[(size_t)stage_[(size_t)chunk]].push_back({pass, chunk, micro});
    }

    // One pass of the chunk, if any can run. How many forwards and weight gradients that ends.
    int try_one(int chunk) {
        Chunk &c = state_[(size_t)chunk];
        const Chunk *before = chunk > 0 ? &c - 1 : nullptr;
        const Chunk *behind = chunk + 1 < (int)state_.size() ? &c + 1 : nullptr;
        bool back = c.input < c.forward && (!behind || c.input < behind->input);
        switch (random_() % 4) {
        case 0:
            if (c.forward == micros_ || (before && c.forward == before->forward)) return 0;
            run(chunk, Z3D_PASS_FORWARD, c.forward++);
            return 1;
        case 1:
            if (!back || c.weight < c.input) return 0;
            run(chunk, Z3D_PASS_BACKWARD, c.input++);
            c.weight++;
            return 1;
        case 2:
            if (!back) return 0;
            run(chunk, Z3D_PASS_BACKWARD_INPUT, c.input++);
            return 0;
        default:
            if (c.weight == c.input) return 0;
            run(chunk, Z3D_PASS_BACKWARD_WEIGHT, c.weight++);
            return 1;
        }
    }
};

} // namespace harness

#endif
