// Against PyTorch: the tiny GPT-2 of tests/data/gpt2_reference.bin (tests/data/make-reference.py
// says what is in it), from the same weights and batches, on every way to divide the ranks.
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

extern "C" {
#include "src/model/gpt/gpt.h"
#include "zero/zero.h"
}

#include "tests/groups.h"
#include "tests/ranks.h"

namespace {

struct Tensor {
    std::string group, name;
    std::vector<float> initial, gradient, exact_gradient;
};

struct Reference {
    int64_t layers, hidden, heads, seq, vocab, batch, steps, tensors, reserved;
    double lr, beta1, beta2, epsilon, decay, clip;
    std::vector<std::vector<int32_t>> tokens, targets;
    std::vector<double> loss, norm, exact_loss;
    std::vector<Tensor> tensor;
};

template <typename T> void read(std::ifstream &in, std::vector<T> &out, int64_t count) {
    out.resize((size_t)count);
    in.read((char *)out.data(), (std::streamsize)(out.size() * sizeof(T)));
}

Reference load() {
    Reference r;
    std::ifstream in(ZERO3D_TEST_DATA "/gpt2_reference.bin", std::ios::binary);
    char magic[8];
    in.read(magic, 8);
    EXPECT_EQ(0, memcmp(magic, "z3dref02", 8));
    in.read((char *)&r.layers, 9 * 8);
    in.read((char *)&r.lr, 6 * 8);
    r.tokens.resize((size_t)r.steps), r.targets.resize((size_t)r.steps);
    for (size_t s = 0; s < r.tokens.size(); s++) {
        read(in, r.tokens[s], r.batch * r.seq);
        read(in, r.targets[s], r.batch * r.seq);
    }
    read(in, r.loss, r.steps), read(in, r.norm, r.steps), read(in, r.exact_loss, r.steps);
    for (int64_t t = 0; t < r.tensors; t++) {
        char text[97] = {0};
        int64_t elements = 0;
        Tensor tensor;
        in.read(text, 96);
        in.read((char *)&elements, 8);
        tensor.group = text, tensor.name = text + 48;
        read(in, tensor.initial, elements);
        read(in, tensor.gradient, elements);
        read(in, tensor.exact_gradient, elements);
        r.tensor.push_back(tensor);
    }
    EXPECT_TRUE(in.good());
    return r;
}

double distance(const std::vector<float> &a, const std::vector<float> &b) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a.size(); i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return std::sqrt(difference / norm);
}

// One way to divide the world, with everything an engine needs.
struct Training {
    const Reference &r;
    int tensor, pipeline, data, accumulation;
    z3d_mesh mesh{};
    z3d_model *model = NULL;
    z3d_device *device = NULL;
    z3d_group *group[Z3D_AXES_COUNT] = {};
    z3d_engine *engine = NULL;

    Training(const Reference &r, int tensor, int pipeline, int accumulation)
        : r(r), tensor(tensor), pipeline(pipeline), data(z3d_world_size(world) / tensor / pipeline),
          accumulation(accumulation) {}

    ~Training() {
        z3d_engine_destroy(engine);
        groups::give_back(group);
        z3d_device_destroy(device);
        z3d_model_destroy(model);
    }

    z3d_status start(int stage, bool recompute) {
        z3d_gpt_config gpt{};
        gpt.num_layers = r.layers, gpt.hidden_size = r.hidden, gpt.num_heads = r.heads;
        gpt.seq_length = r.seq, gpt.vocab_size = r.vocab, gpt.vocab_multiple = 8;
        gpt.init_std = 0.02, gpt.tensor_size = tensor;
        Z3D_TRY(z3d_gpt_create(&gpt, &model));
        Z3D_TRY(z3d_mesh_make(tensor, data, pipeline, z3d_world_rank(world), &mesh));
        z3d_device_config cpu{};
        cpu.backend = "cpu", cpu.threads = 1;
        Z3D_TRY(z3d_device_create(&cpu, &device));
        Z3D_TRY(groups::take(mesh, device, group));
        z3d_engine_config config{};
        config.model = model, config.mesh = mesh, config.device = device;
        memcpy(config.group, group, sizeof group);
        config.program.stage = stage;
        config.program.dtype = config.program.grad_dtype = Z3D_F32;
        config.program.micro_batch = r.batch / data / accumulation;
        config.program.accumulation = accumulation;
        config.program.reduce_per_step = stage < 2;
        config.program.recompute = recompute;
        config.program.overlap = true;
        config.program.reduce_bucket = config.program.gather_bucket = 10000;
        config.optimizer.beta1 = (float)r.beta1, config.optimizer.beta2 = (float)r.beta2;
        config.optimizer.epsilon = (float)r.epsilon, config.optimizer.weight_decay = (float)r.decay;
        config.gradient_clipping = r.clip;
        config.scaler.scale = config.scaler.min_scale = 1;
        config.seed = 1, config.verify = true;
        Z3D_TRY(z3d_engine_create(&config, &engine));
        for (const Tensor &t : r.tensor) {
            int g, p;
            find(t, &g, &p);
            Z3D_TRY(z3d_engine_set(engine, Z3D_TENSOR_PARAMETER, g, p, t.initial.data()));
        }
        return Z3D_OK;
    }

    void find(const Tensor &tensor, int *g, int *p) {
        for (*g = 0; *g < model->num_groups; ++*g)
            for (*p = 0;
                 tensor.group == model->group[*g].name && *p < model->group[*g].num_parameters;
                 ++*p)
                if (tensor.name == model->group[*g].parameter[*p].name) return;
        FAIL() << "no parameter " << tensor.group << " " << tensor.name;
    }

    // This rank's samples of step s: micro-batch m of data rank d is the m-th part of d's part.
    z3d_status step(size_t s, z3d_step_result *result) {
        std::vector<z3d_micro_batch> micro((size_t)accumulation);
        int64_t mine = r.batch / data, per_micro = mine / accumulation, valid = 0;
        for (int m = 0; m < accumulation; m++) {
            int64_t sample = z3d_mesh_index(&mesh, Z3D_AXES_DATA, mesh.rank) * mine + m * per_micro;
            micro[(size_t)m].field[0] = &r.tokens[s][(size_t)(sample * r.seq)];
            micro[(size_t)m].field[1] = &r.targets[s][(size_t)(sample * r.seq)];
        }
        for (int32_t t : r.targets[s]) valid += t >= 0;
        z3d_step_input input{};
        input.micro = micro.data();
        input.sample_base = (int64_t)s * r.batch;
        input.global_targets = valid;
        input.learning_rate = (float)r.lr;
        return z3d_engine_train_step(engine, &input, result);
    }
};

void compare(const Reference &r, int tensor, int pipeline, int stage, int accumulation,
             bool recompute) {
    SCOPED_TRACE("tensor " + std::to_string(tensor) + " pipeline " + std::to_string(pipeline) +
                 " stage " + std::to_string(stage) + " accumulation " +
                 std::to_string(accumulation));
    Training training(r, tensor, pipeline, accumulation);
    ASSERT_Z3D(training.start(stage, recompute));
    for (size_t s = 0; s < (size_t)r.steps; s++) {
        z3d_step_result result;
        ASSERT_Z3D(training.step(s, &result));
        double bound = s ? 1e-4 : 1e-5;
        ASSERT_NEAR(r.loss[s], result.loss, bound * r.loss[s]) << "step " << s + 1;
        ASSERT_NEAR(r.exact_loss[s], result.loss, bound * r.loss[s]) << "step " << s + 1;
        ASSERT_NEAR(r.norm[s], result.grad_norm, (s ? 1e-3 : 1e-5) * r.norm[s]);
        ASSERT_FALSE(result.skipped);
        if (s) continue;
        for (const Tensor &t : r.tensor) {
            int g, p;
            training.find(t, &g, &p);
            std::vector<float> gradient(t.gradient.size(), NAN);
            ASSERT_Z3D(z3d_engine_get(training.engine, Z3D_TENSOR_GRADIENT, g, p, gradient.data()));
            ASSERT_LT(distance(gradient, t.gradient), 1e-5) << t.group << " " << t.name;
            ASSERT_LT(distance(gradient, t.exact_gradient), 1e-5) << t.group << " " << t.name;
        }
    }
}

TEST(Reference, LikePyTorch) {
    Reference r = load();
    ASSERT_FALSE(HasFailure());
    int size = z3d_world_size(world);
    // Every stage somewhere; that stages agree to the bit is the equivalence test's.
    for (int tensor = 1, odd = 1; tensor <= size; tensor *= 2, odd = !odd)
        for (int stage = odd; stage <= 3; stage += 2)
            compare(r, tensor, 1, stage, size / tensor < 4 && stage > 1 ? 2 : 1, stage >= 2);
}

// Tensor 2 x pipeline 2 with ZeRO-3 among them.
TEST(Reference, PipelinesLikePyTorch) {
    Reference r = load();
    ASSERT_FALSE(HasFailure());
    int size = z3d_world_size(world);
    if (size < 2) GTEST_SKIP() << "two stages";
    for (int stage = 0; stage <= 3; stage++) compare(r, size / 2, 2, stage, 2, stage >= 2);
    if (size == 4) compare(r, 1, 2, 3, 2, true);
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
