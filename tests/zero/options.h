// What tests of zero/ vary: a tiny model, how it is divided, and how its step is made.
#ifndef ZERO3D_TESTS_ZERO_OPTIONS_H
#define ZERO3D_TESTS_ZERO_OPTIONS_H

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "src/model/gpt/gpt.h"
#include "src/model/llama/llama.h"
#include "src/model/model.h"
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
    int chunks = 1;                         // of each pipeline stage
    z3d_schedule_kind schedule = Z3D_SCHEDULE_1F1B;
    const z3d_schedule *file = nullptr; // of schedule FILE
    bool gather_per_step = false;
    int stage = 0, accumulation = 1, steps = SANITIZED ? 4 : 20, threads = 1;
    int64_t global_batch = 8, micro_batch = 0; // micro_batch 0: what global_batch leaves to it
    std::vector<int64_t> first_sample;         // of data ranks with unequal shares; empty: equal
    z3d_dtype dtype = Z3D_F32;
    bool grad_fp32 = false;
    int reduce_per_step = -1; // -1: by stage, as the configuration's auto
    bool recompute = true, replay_full = false, overlap = true, verify = true;
    bool selective = false, keep_activation = false;
    bool partition = false;                        // P_a
    z3d_space checkpoint_space = Z3D_SPACE_DEVICE; // of activation checkpoints
    bool sequence_parallel = false;
    int checkpoint_every = 1;
    int64_t bucket = 4096, prefetch = 0;
    double dropout = 0, clipping = 1.0;
    z3d_loss_scaler scaler = {false, 1, 1, 1000, 2};
    z3d_optimizer optimizer = Z3D_OPTIMIZER_adamw;
    bool tied = true; // GPT: the head's table is the embedding's
    int64_t layers = 2, hidden = 32, heads = 4, sequence = 16, vocabulary = 67;
    int64_t tiling = 1;
    int64_t generate_batch = 0, generate_positions = 0;
    z3d_offload_plan tiers{};
    bool host_device = false; // what is offloaded is stepped by a device of its own
    bool inference = false;
    const char *digest = nullptr;
    bool build_folder = false; // its disk is used; otherwise the temporary files', maybe in memory

    int ranks() const {
        return tensor * data * pipeline;
    }

    // Fills in what follows from the number of ranks.
    void resolve(int ranks) {
        if (data == 0) data = ranks / tensor / pipeline;
        if (micro_batch > 0)
            global_batch = micro_batch * data * accumulation;
        else
            micro_batch = global_batch / (data * accumulation);
    }

    z3d_dtype grad_dtype() const {
        return grad_fp32 ? Z3D_F32 : dtype;
    }

    z3d_status create_llama(z3d_model **out) const {
        z3d_llama_config llama{};
        llama.num_layers = layers;
        llama.hidden_size = hidden;
        llama.num_heads = heads;
        llama.num_key_value_heads = 2;
        llama.head_dim = 10;
        llama.intermediate_size = 44;
        llama.seq_length = sequence;
        llama.vocab_size = vocabulary;
        llama.vocab_multiple = 8;
        llama.sliding_window = kind == QWEN ? 5 : 0;
        llama.attention_dropout = dropout;
        llama.init_std = 0.08;
        llama.rms_norm_eps = 1e-5;
        llama.rope.theta = 100;
        llama.attention_bias = llama.qk_norm = llama.tie_word_embeddings = kind == QWEN;
        llama.tensor_size = tensor;
        llama.sequence_parallel = sequence_parallel;
        llama.tiling = tiling;
        return z3d_llama_create(&llama, out);
    }

    z3d_status create_model(z3d_model **out) const {
        if (config) {
            config->parallel_tensor_model_parallel_size = tensor;
            return z3d_model_from_config(config, out);
        }
        if (kind != GPT) return create_llama(out);
        z3d_gpt_config gpt{};
        gpt.num_layers = layers;
        gpt.hidden_size = hidden;
        gpt.num_heads = heads;
        gpt.seq_length = sequence;
        gpt.vocab_size = vocabulary;
        gpt.vocab_multiple = 8;
        gpt.hidden_dropout = gpt.attention_dropout = dropout;
        gpt.init_std = 0.08;
        gpt.tensor_size = tensor;
        gpt.sequence_parallel = sequence_parallel;
        gpt.tiling = tiling;
        Z3D_TRY(z3d_gpt_create(&gpt, out));
        if (!tied) untie(*out);
        return Z3D_OK;
    }

    // A parameter group more: the head has a table of its own.
    static void untie(z3d_model *model) {
        int last = model->num_groups++;
        model->group = (z3d_parameter_group *)realloc(model->group, (size_t)model->num_groups *
                                                                        sizeof *model->group);
        model->group[last] = model->group[0];
        strcpy(model->group[last].name, "lm_head");
        model->unit[model->num_units - 1].group[0] = last;
    }

    z3d_program_config program_config() const {
        z3d_program_config c{};
        c.stage = stage;
        c.dtype = dtype;
        c.optimizer = optimizer;
        c.grad_dtype = grad_dtype();
        c.micro_batch = micro_batch;
        c.first_sample = first_sample.empty() ? nullptr : first_sample.data();
        c.accumulation = accumulation;
        c.reduce_per_step = reduce_per_step >= 0 ? reduce_per_step == 1 : stage < 2;
        c.recompute = recompute;
        c.replay_full = replay_full;
        c.selective = selective;
        c.keep_activation = keep_activation;
        c.checkpoint_every = checkpoint_every;
        c.partition_activations = partition;
        c.checkpoint_space = checkpoint_space;
        c.overlap = overlap;
        c.reduce_bucket = c.gather_bucket = bucket;
        c.prefetch = prefetch;
        c.generate_batch = generate_batch;
        c.generate_positions = generate_positions;
        c.offload = tiers;
        c.inference = inference;
        c.pipeline.schedule = schedule;
        c.pipeline.chunks_per_stage = chunks;
        c.pipeline.file = file;
        c.pipeline.gather_per_step = gather_per_step;
        return c;
    }
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

inline std::string name_of(const Options &o) {
    static const char *const kinds[] = {"", "llama ", "qwen "};
    return kinds[o.kind] + std::string("stage") + std::to_string(o.stage) + " tensor" +
           std::to_string(o.tensor) + " data" + std::to_string(o.data) +
           (o.pipeline == 1 ? ""
                            : " pipeline" + std::to_string(o.pipeline) + " chunks" +
                                  std::to_string(o.chunks) + " " + z3d_schedule_name(o.schedule)) +
           (o.tiling > 1 ? " tiling" + std::to_string(o.tiling) : "") +
           (o.gather_per_step ? " gathered_once" : "") + " accumulation" +
           std::to_string(o.accumulation) +
           (o.program_config().reduce_per_step ? " per_step" : " per_microbatch") +
           (o.recompute ? " recompute" : "") + (o.selective ? " selective" : "") +
           (o.keep_activation ? " kept" : "") + (o.replay_full ? " replay" : "") +
           (o.partition ? " P_a" : "") +
           (const char *const[]){"", " cpu", " nvme"}[o.checkpoint_space] +
           (o.sequence_parallel ? " sequence" : "") + (o.checkpoint_every > 1 ? " segments" : "") +
           (o.overlap ? " overlap" : "") + " bucket" + std::to_string(o.bucket);
}

} // namespace harness

#endif
