// Trains a tiny GPT on deterministic tokens through the engine, for tests on any number of ranks.
#ifndef ZERO3D_TESTS_ZERO_HARNESS_H
#define ZERO3D_TESTS_ZERO_HARNESS_H

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "src/model/gpt/gpt.h"
#include "zero/execute/engine.h"
#include "zero/program/layout.h"
#include "zero/zero.h"
}

#include "tests/ranks.h"
#include "tests/zero/access_observer.h"
#include "tests/zero/options.h"

namespace harness {

struct Result {
    Result();
    Result(const Result &);
    Result &operator=(const Result &);
    ~Result();
    std::vector<double> loss, norm;
    std::vector<float> scale;
    std::vector<bool> skipped;
    std::vector<int> overflow_group;
};

uint64_t mix(uint64_t x);

// Token `i` of sample `s`: a noisy counting sequence, so that there is something to learn.
int32_t token(int64_t s, int64_t i, int64_t vocabulary);

// Each parameter's values, whole, in the order of groups; empty where it has no such tensor.
using Tensors = std::vector<std::vector<float>>;

// A trainer over all ranks of the world: tensor x (size / tensor).
class Trainer {
  public:
    Options o;
    z3d_mesh mesh{};
    z3d_model *model = nullptr;
    z3d_device *device = nullptr;
    z3d_group *group[Z3D_AXES_COUNT] = {};
    z3d_engine *engine = nullptr;
    z3d_engine_config config{};
    std::string nvme_path;
    int64_t next_step = 1;
    AccessObserver access_observer; // of the first step, unless the test looks on itself

    explicit Trainer(const Options &options);
    Trainer(const Trainer &) = delete;
    Trainer &operator=(const Trainer &) = delete;
    // Whatever was trained, its memory was as planned, but for halves of frozen parameters.
    ~Trainer();

    z3d_status create();

    // This rank's samples of a step: tokens, targets and positions of each micro-batch.
    void batch(int64_t step, std::vector<std::vector<int32_t>> &storage,
               std::vector<z3d_micro_batch> &micro);

    z3d_step_input input(int64_t step, const std::vector<z3d_micro_batch> &micro);

    z3d_status step(z3d_step_result *out);

    // The loss of the first batch.
    z3d_status evaluate(double *loss);

    Tensors whole(z3d_tensor_kind kind);

    // What follows position 3 of the first batch.
    z3d_status generate(std::vector<float> *logits);

  private:
    bool stepped = false;
};

Result train(const Options &o);

bool same_bits(const std::vector<double> &a, const std::vector<double> &b);

} // namespace harness

#endif
