#include "tests/zero/random_schedule.h"

namespace harness {

RandomSchedule::RandomSchedule(unsigned seed, int stages, int chunks_per_stage, int micros)
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

void RandomSchedule::run(int chunk, z3d_pass pass, int micro) {
    list_[(size_t)stage_[(size_t)chunk]].push_back({pass, chunk, micro});
}

int RandomSchedule::try_one(int chunk) {
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

} // namespace harness
