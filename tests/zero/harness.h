// Trains a tiny GPT on deterministic tokens through the engine, for tests on any number of ranks.
#ifndef ZERO3D_TESTS_ZERO_HARNESS_H
#define ZERO3D_TESTS_ZERO_HARNESS_H

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "src/model/model.h"
#include "zero/execute/engine.h"
#include "zero/zero.h"
}

#include "tests/zero/access_observer.h"

namespace harness {

inline z3d_world *world = nullptr;

#define ASSERT_Z3D(call) ASSERT_EQ(Z3D_OK, (call)) << z3d_error_message()
#define EXPECT_Z3D(call) EXPECT_EQ(Z3D_OK, (call)) << z3d_error_message()

// Sanitizers look for other mistakes than the last bits of long runs.
#ifdef ZERO3D_SANITIZED
constexpr bool SANITIZED = true;
#else
constexpr bool SANITIZED = false;
#endif
constexpr int STEPS = SANITIZED ? 4 : 20;

struct Options {
    int tensor = 1, stage = 0, accumulation = 1, steps = STEPS, global_batch = 8, threads = 1;
    z3d_dtype dtype = Z3D_F32, grad_dtype = Z3D_F32;
    bool grad_fp32 = false;
    int reduce_per_step = -1; // -1: by stage, as the configuration's auto
    bool recompute = true, replay_full = false, overlap = true, verify = true;
    bool selective = false;
    bool partition = false, offload = false; // P_a, P_a+cpu
    bool sequence_parallel = false;
    int checkpoint_every = 1;
    int64_t bucket = 4096;
    double dropout = 0, clipping = 1.0;
    z3d_loss_scaler scaler = {false, 1, 1, 1000, 2};
    z3d_optimizer optimizer = Z3D_OPTIMIZER_adamw;
    int64_t layers = 2, hidden = 32, heads = 4, sequence = 16, vocabulary = 67;
    const char *digest = nullptr;
};

struct Result {
    std::vector<double> loss, norm;
    std::vector<float> scale;
    std::vector<bool> skipped;
    std::vector<int> overflow_group;
};

inline uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Token `i` of sample `s`: a noisy counting sequence, so that there is something to learn.
inline int32_t token(int64_t s, int64_t i, int64_t vocabulary) {
    uint64_t r = mix((uint64_t)s * 1000003u + (uint64_t)i);
    return (int32_t)((r % 4 == 0 ? mix(r) : (uint64_t)(s * 7 + i * 3)) % (uint64_t)vocabulary);
}

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
    int64_t next_step = 1;
    AccessObserver access_observer; // of the first step, unless the test looks on itself

    explicit Trainer(const Options &options) : o(options) {}
    Trainer(const Trainer &) = delete;
    Trainer &operator=(const Trainer &) = delete;
    // Whatever was trained, its memory was as planned.
    ~Trainer() {
        if (stepped) access_observer.expect_as_planned(engine);
        z3d_engine_destroy(engine);
        for (z3d_group *g : group) z3d_group_destroy(g);
        z3d_device_destroy(device);
        z3d_model_destroy(model);
    }

    int data() const {
        return z3d_mesh_size(&mesh, Z3D_AXES_DATA);
    }
    int64_t micro_batch() const {
        return o.global_batch / (data() * o.accumulation);
    }

    z3d_status create() {
        int ranks = z3d_world_size(world);
        Z3D_TRY(z3d_mesh_make(o.tensor, ranks / o.tensor, 1, z3d_world_rank(world), &mesh));
        z3d_gpt_config gpt = {};
        gpt.num_layers = o.layers;
        gpt.hidden_size = o.hidden;
        gpt.num_heads = o.heads;
        gpt.seq_length = o.sequence;
        gpt.vocab_size = o.vocabulary;
        gpt.vocab_multiple = 8;
        gpt.hidden_dropout = gpt.attention_dropout = o.dropout;
        gpt.init_std = 0.08;
        gpt.tensor_size = o.tensor;
        gpt.sequence_parallel = o.sequence_parallel;
        Z3D_TRY(z3d_gpt_create(&gpt, &model));
        z3d_device_config device_config = {};
        device_config.backend = "cpu";
        device_config.threads = o.threads;
        Z3D_TRY(z3d_device_create(&device_config, &device));
        Z3D_TRY(z3d_groups_create(world, &mesh, device, group));
        config.model = model;
        config.mesh = mesh;
        config.device = device;
        memcpy(config.group, group, sizeof group);
        config.world = world;
        config.program.stage = o.stage;
        config.program.dtype = o.dtype;
        config.program.grad_dtype = o.grad_fp32 ? Z3D_F32 : o.dtype;
        config.program.optimizer = o.optimizer;
        config.program.micro_batch = micro_batch();
        config.program.accumulation = o.accumulation;
        config.program.reduce_per_step =
            o.reduce_per_step >= 0 ? o.reduce_per_step == 1 : o.stage < 2;
        config.program.recompute = o.recompute;
        config.program.replay_full = o.replay_full;
        config.program.selective = o.selective;
        config.program.checkpoint_every = o.checkpoint_every;
        config.program.partition_activations = o.partition;
        config.program.offload_activations = o.offload;
        config.program.overlap = o.overlap;
        config.program.reduce_bucket = config.program.gather_bucket = o.bucket;
        config.optimizer.beta1 = 0.9f;
        config.optimizer.beta2 = 0.95f;
        config.optimizer.epsilon = 1e-8f;
        config.optimizer.momentum = 0.9f;
        config.optimizer.weight_decay = 0.1f;
        config.gradient_clipping = o.clipping;
        config.scaler = o.scaler;
        config.seed = 42;
        config.verify = o.verify;
        config.digest_path = o.digest;
        if (!config.enter) access_observer.watch(device, &config);
        return z3d_engine_create(&config, &engine);
    }

    // This rank's tokens and targets of a step.
    void batch(int64_t step, std::vector<std::vector<int32_t>> &storage,
               std::vector<z3d_micro_batch> &micro) {
        storage.assign((size_t)o.accumulation * 2, {});
        micro.assign((size_t)o.accumulation, {});
        for (int m = 0; m < o.accumulation; m++) {
            for (int64_t b = 0; b < micro_batch(); b++) {
                int64_t p =
                    (m * data() + z3d_mesh_index(&mesh, Z3D_AXES_DATA, mesh.rank)) * micro_batch() +
                    b;
                int64_t sample = (step - 1) * o.global_batch + p;
                for (int64_t i = 0; i < o.sequence; i++) {
                    storage[(size_t)(2 * m)].push_back(token(sample, i, o.vocabulary));
                    storage[(size_t)(2 * m + 1)].push_back(token(sample, i + 1, o.vocabulary));
                }
            }
            micro[(size_t)m].field[0] = storage[(size_t)(2 * m)].data();
            micro[(size_t)m].field[1] = storage[(size_t)(2 * m + 1)].data();
        }
    }

    z3d_status step(z3d_step_result *out) {
        std::vector<std::vector<int32_t>> storage;
        std::vector<z3d_micro_batch> micro;
        batch(next_step, storage, micro);
        z3d_step_input input = {};
        input.micro = micro.data();
        input.sample_base = (next_step - 1) * o.global_batch;
        input.global_targets = o.global_batch * o.sequence;
        input.learning_rate = 1e-2f;
        next_step++;
        Z3D_TRY(z3d_engine_train_step(engine, &input, out));
        access_observer.step_is_over();
        stepped = true;
        return Z3D_OK;
    }

  private:
    bool stepped = false;
};

inline Result train(const Options &o) {
    Result r;
    Trainer t(o);
    z3d_status status = t.create();
    EXPECT_EQ(Z3D_OK, status) << z3d_error_message();
    for (int k = 0; k < o.steps && status == Z3D_OK; k++) {
        z3d_step_result s;
        status = t.step(&s);
        EXPECT_EQ(Z3D_OK, status) << z3d_error_message();
        if (status != Z3D_OK) break;
        r.loss.push_back(s.loss);
        r.norm.push_back(s.grad_norm);
        r.scale.push_back(s.loss_scale);
        r.skipped.push_back(s.skipped);
        r.overflow_group.push_back(s.overflow_group);
    }
    return r;
}

inline bool same_bits(const std::vector<double> &a, const std::vector<double> &b) {
    return a.size() == b.size() && !a.empty() &&
           memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

inline int main_with_world(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    if (z3d_world_create(&argc, &argv, &world) != Z3D_OK) {
        fprintf(stderr, "%s\n", z3d_error_message());
        return 1;
    }
    if (z3d_world_rank(world) != 0) { // one report is enough; failures of the others are shown
        ::testing::TestEventListeners &listeners = ::testing::UnitTest::GetInstance()->listeners();
        delete listeners.Release(listeners.default_result_printer());
        class FailuresOnly : public ::testing::EmptyTestEventListener {
            void OnTestPartResult(const ::testing::TestPartResult &result) override {
                if (result.failed())
                    fprintf(stderr, "rank %d: %s:%d: %s\n", z3d_world_rank(world),
                            result.file_name() ? result.file_name() : "?", result.line_number(),
                            result.message());
            }
        };
        listeners.Append(new FailuresOnly);
    }
    int failed = RUN_ALL_TESTS();
    z3d_world_destroy(world);
    return failed;
}

} // namespace harness

#endif
