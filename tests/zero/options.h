// What tests of zero/ vary: a tiny model, how it is divided, and how its step is made.
#ifndef ZERO3D_TESTS_ZERO_OPTIONS_H
#define ZERO3D_TESTS_ZERO_OPTIONS_H

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

extern "C" {
#include "src/model/gpt/gpt.h"
#include "src/model/llama/llama.h"
#include "src/model/model.h"
#include "zero/program/states.h"
#include "zero/zero.h"
}

#include "tests/expect.h"

namespace harness {

// QWEN is a Llama with all that it may have. Both have 2 heads of keys and values.
enum Kind { GPT, LLAMA, QWEN };

struct Options {
    Kind kind = GPT;
    z3d_config *config = nullptr;           // describes the model instead, but for its tensor size
    int tensor = 1, data = 0, pipeline = 1; // data 0: all ranks of the world
    int outer = 1;                          // of data: its outer part
    z3d_sharding sharding = Z3D_SHARDING_FLAT;
    int64_t persistence = 0; // elements of groups that stage 3 keeps whole
    int chunks = 1;          // of each pipeline stage
    z3d_schedule_kind schedule = Z3D_SCHEDULE_1F1B;
    const z3d_schedule *file = nullptr; // of schedule FILE
    bool gather_per_step = false;
    int stage = 0, accumulation = 1, steps = SANITIZED ? 4 : 20, threads = 1;
    int64_t global_batch = 8, micro_batch = 0; // micro_batch 0: what global_batch leaves to it
    std::vector<int64_t> first_sample;         // of data ranks with unequal shares; empty: equal
    z3d_dtype dtype = Z3D_F32;
    bool grad_fp32 = false;
    z3d_dtype wire = Z3D_F32; // of fp32 gradients
    int reduce_per_step = -1; // -1: by stage, as the configuration's auto
    bool recompute = true, replay_full = false, overlap = true, verify = true;
    bool selective = false, keep_activation = false;
    bool partition = false;                        // P_a
    z3d_space checkpoint_space = Z3D_SPACE_DEVICE; // of activation checkpoints
    bool sequence_parallel = false;
    int checkpoint_every = 1;
    int64_t bucket = 4096, prefetch = 0, gather_ahead = 0, reuse_distance = 0, max_live = 0;
    double dropout = 0, clipping = 1.0;
    z3d_loss_scaler scaler = {false, 1, 1, 1000, 2};
    z3d_optimizer optimizer = Z3D_OPTIMIZER_adamw;
    bool ema = false;
    std::vector<z3d_state_class> added_states;
    bool tied = true; // GPT: the head's table is the embedding's
    int64_t layers = 2, hidden = 32, heads = 4, sequence = 16, vocabulary = 67;
    int64_t tiling = 1;
    int64_t generate_batch = 0, generate_positions = 0;
    z3d_offload_plan tiers{};
    bool host_device = false; // what is offloaded is stepped by a device of its own
    bool inference = false;
    const char *digest = nullptr;
    std::vector<std::string> frozen; // patterns of names, as in training.freeze
    int64_t lora = 0;                // rank of adapters of all layers; only these are trained
    bool packed = false;             // documents: samples have positions
    // Changes global sample `s`: o.sequence tokens, targets, and positions (zeros; of packed ones).
    std::function<void(int64_t s, int32_t *tokens, int32_t *targets, int32_t *positions)> sample;
    bool build_folder = false; // its disk is used; otherwise the temporary files', maybe in memory

    Options();
    Options(const Options &);
    Options &operator=(const Options &);
    ~Options();

    int ranks() const;

    // Fills in what follows from the number of ranks.
    void resolve(int ranks);

    z3d_status make_mesh(int rank, z3d_mesh *out) const;

    z3d_dtype grad_dtype() const;

    z3d_status create_llama(z3d_model **out) const;

    z3d_status create_model(z3d_model **out) const;

    z3d_status describe_model(z3d_model **out) const;

    // A parameter group more: the head has a table of its own.
    static void untie(z3d_model *model);

    z3d_program_config program_config() const;
};

// Every schedule, with the chunks that a stage has.
struct Schedule {
    z3d_schedule_kind kind;
    int chunks;
};

inline const Schedule SCHEDULES[] = {{Z3D_SCHEDULE_1F1B, 1},
                                     {Z3D_SCHEDULE_GPIPE, 1},
                                     {Z3D_SCHEDULE_INTERLEAVED, 2},
                                     {Z3D_SCHEDULE_ZB_H1, 1},
                                     {Z3D_SCHEDULE_ZB_V, 2}};

std::string name_of(const Options &o);

} // namespace harness

#endif
