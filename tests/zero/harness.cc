#include "tests/zero/harness.h"

#include <filesystem>

#include "tests/groups.h"

namespace harness {

uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

int32_t token(int64_t s, int64_t i, int64_t vocabulary) {
    uint64_t r = mix((uint64_t)s * 1000003u + (uint64_t)i);
    return (int32_t)((r % 4 == 0 ? mix(r) : (uint64_t)(s * 7 + i * 3)) % (uint64_t)vocabulary);
}

Result::Result() = default;
Result::Result(const Result &) = default;
Result &Result::operator=(const Result &) = default;
Result::~Result() = default;

Trainer::Trainer(const Options &options) : o(options) {}

Trainer::~Trainer() {
    // What a unit saves is planned up to the second half of its backward, which may not read it.
    const bool halves = o.schedule == Z3D_SCHEDULE_ZB_H1 || o.schedule == Z3D_SCHEDULE_ZB_V;
    if (stepped && !(halves && z3d_model_trained_count(model) < z3d_model_parameter_count(model)))
        access_observer.expect_as_planned(engine);
    z3d_engine_destroy(engine);
    groups::give_back(group);
    z3d_device_destroy(config.host);
    z3d_device_destroy(device);
    z3d_model_destroy(model);
}

z3d_status Trainer::create() {
    int ranks = z3d_world_size(world);
    o.resolve(ranks);
    Z3D_TRY(o.make_mesh(z3d_world_rank(world), &mesh));
    Z3D_TRY(o.create_model(&model));
    z3d_device_config device_config = {};
    device_config.backend = "cpu";
    device_config.threads = o.threads;
    Z3D_TRY(z3d_device_create(&device_config, &device));
    if (o.host_device) Z3D_TRY(z3d_device_create(&device_config, &config.host));
    Z3D_TRY(groups::take(mesh, device, group));
    config.model = model;
    config.mesh = mesh;
    config.device = device;
    memcpy(config.group, group, sizeof group);
    config.world = world;
    config.program = o.program_config();
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
    nvme_path = o.build_folder ? "." : std::filesystem::temp_directory_path().string();
    config.nvme_path = nvme_path.c_str();
    if (!config.enter) access_observer.watch(device, &config);
    return z3d_engine_create(&config, &engine);
}

void Trainer::batch(int64_t step, std::vector<std::vector<int32_t>> &storage,
                    std::vector<z3d_micro_batch> &micro) {
    const int64_t rows = z3d_samples_of(&config.program, &mesh);
    const size_t fields = 3;
    storage.assign((size_t)o.accumulation * fields,
                   std::vector<int32_t>((size_t)(rows * o.sequence)));
    micro.assign((size_t)o.accumulation, {});
    for (int m = 0; m < o.accumulation; m++) {
        std::vector<int32_t> *field = &storage[(size_t)m * fields];
        for (int64_t b = 0; b < rows; b++) {
            int64_t p = m * z3d_samples_in_all(&config.program, &mesh) +
                        z3d_samples_before(&config.program, &mesh) + b;
            int64_t sample = (step - 1) * o.global_batch + p;
            int32_t *at[fields];
            for (size_t f = 0; f < fields; f++) at[f] = field[f].data() + b * o.sequence;
            for (int64_t i = 0; i < o.sequence; i++) {
                at[0][i] = token(sample, i, o.vocabulary);
                at[1][i] = token(sample, i + 1, o.vocabulary);
            }
            if (o.sample) o.sample(sample, at[0], at[1], at[2]);
        }
        for (size_t f = 0; f < fields; f++) micro[(size_t)m].field[f] = field[f].data();
    }
}

z3d_step_input Trainer::input(int64_t step, const std::vector<z3d_micro_batch> &micro) {
    z3d_step_input in = {};
    in.micro = micro.data();
    in.sample_base = (step - 1) * o.global_batch;
    in.global_targets = o.global_batch * o.sequence;
    in.learning_rate = 1e-2f;
    return in;
}

z3d_status Trainer::step(z3d_step_result *out) {
    std::vector<std::vector<int32_t>> storage;
    std::vector<z3d_micro_batch> micro;
    batch(next_step, storage, micro);
    const z3d_step_input in = input(next_step++, micro);
    Z3D_TRY(z3d_engine_train_step(engine, &in, out));
    access_observer.step_is_over();
    stepped = true;
    return Z3D_OK;
}

z3d_status Trainer::evaluate(double *loss) {
    std::vector<std::vector<int32_t>> storage;
    std::vector<z3d_micro_batch> micro;
    double targets = 0;
    bool stop;
    batch(1, storage, micro);
    const z3d_step_input in = input(1, micro);
    *loss = 0;
    return z3d_engine_evaluate(engine, &in, loss, &targets, &stop);
}

Tensors Trainer::whole(z3d_tensor_kind kind) {
    Tensors all;
    for (int g = 0; g < model->num_groups; g++)
        for (int i = 0; i < model->group[g].num_parameters; i++) {
            const z3d_parameter &p = model->group[g].parameter[i];
            size_t n = 1;
            for (int d = 0; d < p.dims; d++) n *= (size_t)p.shape[d];
            const bool has = kind == Z3D_TENSOR_PARAMETER || !p.frozen;
            all.emplace_back(has ? n : 0);
            if (!has) continue;
            EXPECT_Z3D(z3d_engine_get(engine, kind, g, i, all.back().data()));
        }
    return all;
}

z3d_status Trainer::generate(std::vector<float> *logits) {
    const z3d_unit &head = model->unit[model->num_units - 1];
    const size_t tokens = (size_t)model->tokens[Z3D_MODE_PREFILL];
    std::vector<int32_t> prompt(tokens), positions{0, 3};
    for (size_t i = 0; i < tokens; i++) prompt[i] = token(0, (int64_t)i, o.vocabulary);
    logits->assign((size_t)head.output_elements[Z3D_MODE_PREFILL], 0);
    return z3d_engine_generate(engine, Z3D_MODE_PREFILL, 0, prompt.data(), positions.data(),
                               logits->data());
}

Result train(const Options &o) {
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

bool same_bits(const std::vector<double> &a, const std::vector<double> &b) {
    return a.size() == b.size() && !a.empty() &&
           memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

} // namespace harness
