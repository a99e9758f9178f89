#include "tests/model/chain.h"

uint64_t chain_key(const std::string &name) {
    return z3d_key(7, name.c_str());
}

double chain_value(uint64_t key, int64_t i) {
    return 2.0 * z3d_philox_uniform(z3d_philox(key, (uint64_t)i, 0).word[0]) - 1.0;
}

void put(z3d_dtype dtype, void *to, int64_t i, double v) {
    if (dtype == Z3D_F32)
        ((float *)to)[i] = (float)v;
    else if (dtype == Z3D_BF16)
        ((uint16_t *)to)[i] = z3d_float_to_bf16((float)v);
    else
        ((uint16_t *)to)[i] = z3d_float_to_f16((float)v);
}

double get(z3d_dtype dtype, const void *from, int64_t i) {
    if (dtype == Z3D_F32) return ((const float *)from)[i];
    uint16_t bits = ((const uint16_t *)from)[i];
    return dtype == Z3D_BF16 ? z3d_bf16_to_float(bits) : z3d_f16_to_float(bits);
}

int64_t elements_of(const z3d_parameter &p) {
    int64_t elements = 1;
    for (int d = 0; d < p.dims; d++) elements *= z3d_parameter_extent(&p, d);
    return elements;
}

std::vector<double> tile_of(const z3d_parameter &p, const std::vector<double> &whole) {
    if (p.tile_count == 0) return whole;
    int64_t inner = 1;
    for (int d = p.split_dim + 1; d < p.dims; d++) inner *= p.shape[d];
    std::vector<double> tile;
    for (size_t e = 0; e < whole.size(); e++) {
        int64_t at = (int64_t)e / inner % p.shape[p.split_dim] - p.tile_first;
        if (at >= 0 && at < p.tile_count) tile.push_back(whole[e]);
    }
    return tile;
}

std::vector<double> local_part(const z3d_parameter &p, const std::vector<double> &whole, int size,
                               int index) {
    if (p.split_dim < 0) return whole;
    int64_t outer = 1, inner = 1, extent = z3d_parameter_extent(&p, p.split_dim);
    for (int d = 0; d < p.split_dim; d++) outer *= p.shape[d];
    for (int d = p.split_dim + 1; d < p.dims; d++) inner *= p.shape[d];
    int64_t local = (p.padded_dim ? p.padded_dim : extent) / size, first = local * index;
    std::vector<double> part((size_t)(outer * local * inner), 0.0);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t l = 0; l < local && first + l < extent; l++)
            for (int64_t i = 0; i < inner; i++)
                part[(size_t)((o * local + l) * inner + i)] =
                    whole[(size_t)((o * extent + first + l) * inner + i)];
    return part;
}

Chain::Chain(const z3d_model *model, z3d_device *device, z3d_group *tensor, int64_t batch,
             z3d_dtype dtype, z3d_dtype gradient_dtype)
    : model(model), device(device), tensor(tensor), dtype(dtype), gradient_dtype(gradient_dtype),
      batch(batch), size(z3d_group_size(tensor)), index(z3d_group_index(tensor)),
      workspace(MEMORY) {
    state.seed = 99;
    state.loss_scale = 1;
    whole.resize((size_t)model->num_groups);
    offset.resize(whole.size());
    for (size_t g = 0; g < whole.size(); g++) {
        int64_t next = 0;
        for (int i = 0; i < model->group[g].num_parameters; i++) {
            const z3d_parameter &p = model->group[g].parameter[i];
            offset[g].push_back(next);
            next += z3d_parameter_local_elements(&p, size);
            int64_t elements = 1;
            for (int d = 0; d < p.dims; d++) elements *= p.shape[d];
            std::vector<double> v((size_t)elements);
            std::string name = std::string(z3d_parameter_home(&model->group[g], i)) + "/" + p.name;
            const uint64_t key = chain_key(name);
            for (int64_t e = 0; e < elements; e++)
                v[(size_t)e] = 0.5 * chain_value(key, e) + (p.init == Z3D_INIT_ONES ? 1 : 0);
            whole[g].push_back(tile_of(p, v));
        }
        parameters.emplace_back((size_t)next * z3d_dtype_size(dtype));
        gradients.emplace_back((size_t)next * z3d_dtype_size(gradient_dtype));
    }
    for (int u = 0; u < model->num_units; u++) {
        saved.emplace_back(MEMORY);
        output.emplace_back();
        cache.emplace_back((size_t)(batch * model->positions * model->unit[u].cache_columns) *
                               z3d_dtype_size(dtype),
                           '\xff');
    }
    positions.assign((size_t)(2 * batch), 0);
    saved_used.resize(saved.size());
    load();
}

const z3d_parameter &Chain::parameter(size_t g, size_t i) const {
    return model->group[g].parameter[i];
}

void Chain::load() {
    for (size_t g = 0; g < whole.size(); g++)
        for (size_t i = 0; i < whole[g].size(); i++) {
            std::vector<double> part = local_part(parameter(g, i), whole[g][i], size, index);
            for (size_t e = 0; e < part.size(); e++)
                put(dtype, parameters[g].data(), offset[g][i] + (int64_t)e, part[e]);
        }
}

std::vector<double> Chain::gradient(size_t g, size_t i) const {
    int64_t elements = z3d_parameter_local_elements(&parameter(g, i), size);
    std::vector<double> out((size_t)elements);
    for (int64_t e = 0; e < elements; e++)
        out[(size_t)e] = get(gradient_dtype, gradients[g].data(), offset[g][i] + e);
    return out;
}

void Chain::set_data(std::vector<int32_t> new_tokens, std::vector<int32_t> new_targets) {
    tokens = new_tokens, targets = new_targets;
    int64_t valid = 0;
    for (int32_t t : targets) valid += t >= 0;
    state.gradient_seed = 1.0f / (float)valid;
}

z3d_unit_run Chain::run_of(int u, z3d_mode mode) {
    const z3d_unit *unit = &model->unit[u];
    z3d_unit_run run{};
    run.unit = unit;
    run.device = device;
    run.process_group[0] = tensor;
    run.dtype = dtype;
    run.gradient_dtype = gradient_dtype;
    run.mode = mode;
    run.batch = batch;
    run.tokens = model->tokens[mode];
    run.cache_samples = batch;
    run.positions = model->positions;
    run.sample = 3;
    run.need_output = true;
    run.lean = lean;
    run.keep_activation = keep_activation;
    run.field[0] = tokens.data();
    run.field[1] = z3d_mode_generates(mode) ? positions.data() : targets.data();
    if (z3d_mode_generates(mode)) run.cache = cache[(size_t)u].data();
    run.input = u ? output[(size_t)u - 1].data() : NULL;
    run.state = &state;
    run.saved = {saved[(size_t)u].data(), 0, 0, (int64_t)MEMORY};
    run.workspace = {workspace.data(), 0, 0, (int64_t)MEMORY};
    for (int s = 0; s < unit->num_groups; s++) {
        run.group[s].parameters = parameters[(size_t)unit->group[s]].data();
        run.group[s].offset = offset[(size_t)unit->group[s]].data();
    }
    return run;
}

void Chain::poison(std::vector<char> &memory) {
    memset(memory.data(), 0xff, memory.size()); // NaN in every dtype
}

z3d_status Chain::forward(z3d_mode mode) {
    state.loss_sum = state.valid_targets = 0;
    for (int u = 0; u < model->num_units; u++) {
        int64_t elements = batch * model->unit[u].output_elements[mode];
        output[(size_t)u].assign((size_t)elements * z3d_dtype_size(dtype), '\xff');
        poison(saved[(size_t)u]);
        z3d_unit_run run = run_of(u, mode);
        run.output = elements ? output[(size_t)u].data() : NULL;
        Z3D_TRY(model->unit[u].ops->forward(&run));
        saved_used[(size_t)u] = run.saved.used;
    }
    return Z3D_OK;
}

z3d_unit_run Chain::backward_run(int u, bool input, bool weight, std::vector<bool> &written) {
    z3d_unit_run run = run_of(u, Z3D_MODE_TRAIN);
    poison(workspace);
    run.output_gradient = output_gradient[(size_t)u].data();
    if (input && u) {
        output_gradient[(size_t)u - 1].assign(output[(size_t)u - 1].size(), '\xff');
        run.input_gradient = output_gradient[(size_t)u - 1].data();
    }
    if (!input || !weight) run.deferred = {deferred[(size_t)u].data(), 0, 0, (int64_t)MEMORY};
    for (int s = 0; weight && s < model->unit[u].num_groups; s++) {
        size_t g = (size_t)model->unit[u].group[s];
        run.group[s].gradients = gradients[g].data();
        run.group[s].accumulate = written[g];
        written[g] = true;
    }
    return run;
}

z3d_status Chain::backward(bool add) {
    std::vector<bool> written(whole.size(), add);
    output_gradient.assign((size_t)model->num_units, {});
    deferred.assign(halves ? (size_t)model->num_units : 0, std::vector<char>(MEMORY, '\xff'));
    deferred_used.assign((size_t)model->num_units, 0);
    if (!add)
        for (auto &g : gradients) poison(g);
    for (int u = model->num_units - 1; u >= 0; u--) {
        const z3d_unit_ops *ops = model->unit[u].ops;
        if (recompute && model->unit[u].checkpoint) {
            z3d_unit_run again = run_of(u, Z3D_MODE_TRAIN);
            poison(saved[(size_t)u]);
            again.need_output = false;
            Z3D_TRY(ops->forward(&again));
        }
        z3d_unit_run run = backward_run(u, true, !halves, written);
        Z3D_TRY(ops->backward_halves(&run, halves ? Z3D_INPUT_HALF : Z3D_BOTH_HALVES));
        deferred_used[(size_t)u] = run.deferred.used;
    }
    for (int u = model->num_units - 1; halves && u >= 0; u--) {
        z3d_unit_run run = backward_run(u, false, true, written);
        Z3D_TRY(model->unit[u].ops->backward_halves(&run, Z3D_WEIGHT_HALF));
        if (run.deferred.used != deferred_used[(size_t)u])
            return Z3D_ERROR(Z3D_ERR_INTERNAL, "unit %d: halves defer %lld and %lld bytes", u,
                             (long long)deferred_used[(size_t)u], (long long)run.deferred.used);
    }
    return Z3D_OK;
}

z3d_status Chain::sum_partial() {
    for (size_t g = 0; g < whole.size(); g++)
        for (size_t i = 0; i < whole[g].size(); i++) {
            if (!z3d_parameter_is_partial(model, &parameter(g, i))) continue;
            z3d_collective sum{};
            sum.kind = Z3D_COLLECTIVE_ALL_REDUCE;
            sum.dtype = gradient_dtype;
            sum.buffer =
                gradients[g].data() + offset[g][i] * (int64_t)z3d_dtype_size(gradient_dtype);
            sum.count = z3d_parameter_local_elements(&parameter(g, i), size);
            Z3D_TRY(z3d_collective_run(tensor, &sum));
        }
    return Z3D_OK;
}

z3d_status Chain::train() {
    Z3D_TRY(forward(Z3D_MODE_TRAIN));
    Z3D_TRY(backward(false));
    if (accumulate_again) {
        Z3D_TRY(forward(Z3D_MODE_TRAIN));
        Z3D_TRY(backward(true));
    }
    return sum_partial();
}

double Chain::mean_loss() const {
    return state.loss_sum / state.valid_targets;
}

double norm(const std::vector<double> &v) {
    double sum = 0;
    for (double x : v) sum += x * x;
    return std::sqrt(sum);
}

double distance(const std::vector<double> &a, const std::vector<double> &b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return std::sqrt(sum) / norm(b);
}
