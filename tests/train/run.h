// Small runs of z3d_train in this process, for tests that are started on one or several ranks.
#ifndef ZERO3D_TESTS_TRAIN_RUN_H
#define ZERO3D_TESTS_TRAIN_RUN_H

#include <gtest/gtest.h>

#include <sstream>

extern "C" {
#include "src/train/train.h"
}
#include "files.h"
#include "tests/ranks.h"

// Text-like tokens below 257, learnable: each token nearly determines the next.
std::vector<uint16_t> some_tokens(size_t count, unsigned seed = 1);

struct Outcome {
    z3d_status status = Z3D_OK;
    std::string message, said;    // the error; standard output
    int recompute_activation = 0; // of the run's configuration on this rank
};

// A tiny GPT on RUN/train.bin; `more` are lines of key=value.
Outcome train(const SharedFolder &folder, const std::string &more, bool verbose = false);

// The lines of RUN/metrics.jsonl.
std::vector<std::string> metrics(const SharedFolder &folder, const std::string &run = "run");

// The text of field `name` of a line, "" without.
std::string field(const std::string &line, const std::string &name);

// The fields `name` of all lines that have it.
std::vector<double> series(const std::vector<std::string> &lines, const std::string &name);

#endif
