// Stores, saves and resumes of tiny trainers, for tests on several ranks.
#ifndef ZERO3D_TESTS_CHECKPOINT_ENGINE_H
#define ZERO3D_TESTS_CHECKPOINT_ENGINE_H

#include "folder.h"
#include "tests/zero/harness.h"

using harness::Options;
using harness::Trainer;

struct Commit {
    z3d_status (*before)(void *context);
    void *context;
};

z3d_status open_store(Trainer &t, const std::string &dir, bool asynchronous, int64_t keep,
                      z3d_store **out, const z3d_io_hook *hook = nullptr, Commit commit = {},
                      const char *base = nullptr);

z3d_status save(z3d_store *store, int64_t samples);

struct Trace {
    std::vector<double> loss, norm;
    std::vector<float> scale;
};

void steps(Trainer &t, int count, Trace &trace);

// All states of all tensors, whole.
std::vector<std::vector<float>> everything(Trainer &t);

void resume(Trainer &t, const std::string &dir);

#endif
