// Runs a model's units forward and backward without zero/: parameters lie flat in the order of the
// description, every unit has its own saved memory, gradients are poisoned before they are written.
#ifndef ZERO3D_TESTS_MODEL_CHAIN_H
#define ZERO3D_TESTS_MODEL_CHAIN_H

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "src/model/gpt/gpt.h"
#include "src/model/llama/llama.h"
}

// Deterministic values in [-1, 1), by name and global element.
uint64_t chain_key(const std::string &name);
double chain_value(uint64_t key, int64_t i);

void put(z3d_dtype dtype, void *to, int64_t i, double v);

double get(z3d_dtype dtype, const void *from, int64_t i);

// Elements of a parameter, or of a tile of it, on all tensor ranks.
int64_t elements_of(const z3d_parameter &p);

// What a tile has of a whole logical tensor.
std::vector<double> tile_of(const z3d_parameter &p, const std::vector<double> &whole);

// Part `index` of `size` of a logical tensor (of a tile, where the group has one), padding zero.
std::vector<double> local_part(const z3d_parameter &p, const std::vector<double> &whole, int size,
                               int index);

struct Chain {
    const z3d_model *model;
    z3d_device *device;
    z3d_group *tensor;
    z3d_dtype dtype, gradient_dtype;
    int64_t batch;
    int size, index;
    bool recompute = false;        // throw saved memory of checkpointed units away, run them again
    bool accumulate_again = false; // run backward twice: gradients double
    bool lean = false;             // keep less
    bool keep_activation = false;
    bool halves = false; // backward's input halves of all units, then its weight halves
    z3d_step_state state{};
    std::vector<int32_t> tokens, targets;
    std::vector<int32_t> positions;       // of generation: first ones, rows of the output
    std::vector<std::vector<char>> cache; // of generation, by unit
    std::vector<std::vector<std::vector<double>>>
        whole; // [group][parameter][element], of tiles theirs
    std::vector<std::vector<int64_t>> offset;
    std::vector<std::vector<char>> parameters, gradients;
    std::vector<std::vector<char>> output, saved;
    std::vector<char> workspace;
    std::vector<int64_t> saved_used;
    static constexpr size_t MEMORY = 1 << 17;

    Chain(const z3d_model *model, z3d_device *device, z3d_group *tensor, int64_t batch,
          z3d_dtype dtype = Z3D_F32, z3d_dtype gradient_dtype = Z3D_F32);

    const z3d_parameter &parameter(size_t g, size_t i) const;

    // Local parameters from the whole ones.
    void load();

    std::vector<double> gradient(size_t g, size_t i) const;

    void set_data(std::vector<int32_t> new_tokens, std::vector<int32_t> new_targets);

    z3d_unit_run run_of(int u, z3d_mode mode);

    void poison(std::vector<char> &memory);

    z3d_status forward(z3d_mode mode);

    // Unit u's memory from backward_input to backward_weight, and the gradient of its output.
    std::vector<std::vector<char>> deferred, output_gradient;
    std::vector<int64_t> deferred_used;

    // The run of a backward: with the memory of both halves or of one.
    z3d_unit_run backward_run(int u, bool input, bool weight, std::vector<bool> &written);

    z3d_status backward(bool add);

    // What a model leaves to be done: some replicated parameters' gradients are parts.
    z3d_status sum_partial();

    z3d_status train();

    double mean_loss() const;
};

double norm(const std::vector<double> &v);

// |a - b| / |b|
double distance(const std::vector<double> &a, const std::vector<double> &b);

#endif
