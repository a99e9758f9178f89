// Training with optimizers other than AdamW: torch.optim.SGD's recurrence from the engine's own
// gradients, and every stage to the bit with each.
#include "tests/zero/harness.h"

#include <algorithm>
#include <cmath>

using namespace harness;

namespace {

std::vector<int> tensor_sizes() {
    std::vector<int> sizes;
    for (int t = 1; t <= 2 && z3d_world_size(world) % t == 0; t *= 2) sizes.push_back(t);
    return sizes;
}

Options options(int tensor, z3d_dtype dtype) {
    Options o;
    o.tensor = tensor;
    o.dtype = dtype;
    o.optimizer = Z3D_OPTIMIZER_sgd;
    o.steps = 3;
    o.hidden = 16;
    o.heads = 2;
    o.sequence = 8;
    o.vocabulary = 27;
    o.bucket = 1000;
    return o;
}

std::vector<bool> decays(const z3d_model *model) {
    std::vector<bool> all;
    for (int g = 0; g < model->num_groups; g++)
        for (int i = 0; i < model->group[g].num_parameters; i++)
            all.push_back(model->group[g].parameter[i].weight_decay);
    return all;
}

} // namespace

// v = momentum v + g + decay p; p -= lr v. Matrices decay; clipping scales g before decay is added.
TEST(Sgd, TrainsLikeTorch) {
    for (int tensor : tensor_sizes())
        for (int stage = 0; stage < 4; stage++)
            for (double clipping : {0.0, 0.05}) {
                Options o = options(tensor, Z3D_F32);
                o.stage = stage;
                o.clipping = clipping;
                o.accumulation = 1 + stage % 2;
                SCOPED_TRACE(name_of(o) + " clipping " + std::to_string(clipping));
                Trainer t(o);
                ASSERT_Z3D(t.create());
                std::vector<bool> decayed = decays(t.model);
                Tensors p = t.whole(Z3D_TENSOR_PARAMETER), v = t.whole(Z3D_TENSOR_MOMENTUM);
                for (const auto &tensor_values : v)
                    for (float x : tensor_values) ASSERT_EQ(x, 0.0f);
                for (int k = 0; k < o.steps; k++) {
                    z3d_step_result r;
                    ASSERT_Z3D(t.step(&r));
                    Tensors g = t.whole(Z3D_TENSOR_GRADIENT);
                    double squares = 0;
                    for (const auto &tensor_values : g)
                        for (float x : tensor_values) squares += (double)x * x;
                    double norm = std::sqrt(squares);
                    ASSERT_NEAR(norm, r.grad_norm, 1e-4 * norm) << "unscaled, before clipping";
                    double factor = clipping > 0 ? std::min(1.0, clipping / norm) : 1;
                    if (clipping > 0) {
                        ASSERT_LT(factor, 1) << "the test wants a clipped step";
                    }
                    Tensors new_p = t.whole(Z3D_TENSOR_PARAMETER),
                            new_v = t.whole(Z3D_TENSOR_MOMENTUM);
                    for (size_t i = 0; i < p.size(); i++)
                        for (size_t j = 0; j < p[i].size(); j++) {
                            double momentum =
                                0.9 * v[i][j] + factor * g[i][j] + (decayed[i] ? 0.1 * p[i][j] : 0);
                            ASSERT_NEAR(new_v[i][j], momentum, 1e-6 + 1e-5 * std::fabs(momentum));
                            ASSERT_NEAR(new_p[i][j], p[i][j] - 0.01 * momentum, 1e-6);
                        }
                    p = new_p, v = new_v;
                }
                std::vector<float> none(p[0].size());
                EXPECT_EQ(z3d_engine_get(t.engine, Z3D_TENSOR_VARIANCE, 0, 0, none.data()),
                          Z3D_ERR_USAGE);
            }
}

// The first step copies the parameters.
void expect_average(Trainer &t, const Tensors &before, int step) {
    const Tensors p = t.whole(Z3D_TENSOR_PARAMETER), ema = t.whole(Z3D_TENSOR_EMA);
    for (size_t i = 0; i < p.size(); i++)
        for (size_t j = 0; j < p[i].size(); j++) {
            const double want = step == 1 ? p[i][j] : 0.75 * before[i][j] + 0.25 * p[i][j];
            ASSERT_NEAR(ema[i][j], want, step == 1 ? 0 : 1e-7 + 1e-6 * std::fabs(want));
        }
}

void expect_equal_stages(z3d_optimizer optimizer, const std::vector<z3d_dtype> &dtypes) {
    for (int tensor : tensor_sizes())
        for (z3d_dtype dtype : dtypes)
            for (int accumulation : {1, 2})
                for (int per_step = 0; per_step < accumulation; per_step++) {
                    if (!is_long() && (accumulation == 1) != (dtype == Z3D_F16)) continue;
                    Options o = options(tensor, dtype);
                    o.optimizer = optimizer;
                    o.accumulation = accumulation;
                    o.reduce_per_step = per_step;
                    if (dtype == Z3D_F16) { // the first is skipped, the last is not
                        o.scaler = {true, 4194304, 1, 1000, 1};
                        o.steps = 6;
                    }
                    if (tensor > 1 && dtype == Z3D_BF16) o.sequence_parallel = true;
                    Result first;
                    Tensors states;
                    for (o.stage = 0; o.stage < 4; o.stage++) {
                        SCOPED_TRACE(name_of(o) + " " + z3d_dtype_name(dtype) + " " +
                                     z3d_optimizer_name(optimizer));
                        Trainer t(o);
                        Result r;
                        ASSERT_Z3D(t.create());
                        for (int k = 0; k < o.steps; k++) {
                            z3d_step_result s;
                            ASSERT_Z3D(t.step(&s));
                            r.loss.push_back(s.loss);
                            r.norm.push_back(s.grad_norm);
                            r.skipped.push_back(s.skipped);
                        }
                        Tensors now;
                        for (int kind = 0; kind < Z3D_STATE_KINDS; kind++)
                            if (z3d_optimizer_kinds(optimizer) >> kind & 1)
                                for (auto &tensor_values : t.whole((z3d_tensor_kind)kind))
                                    now.push_back(tensor_values);
                        if (o.stage == 0) {
                            first = r;
                            states = now;
                            EXPECT_NE(r.loss.front(), r.loss.back());
                            EXPECT_FALSE(r.skipped.back());
                            EXPECT_EQ(r.skipped.front(), dtype == Z3D_F16);
                        }
                        EXPECT_TRUE(same_bits(first.loss, r.loss));
                        EXPECT_TRUE(same_bits(first.norm, r.norm));
                        EXPECT_EQ(first.skipped, r.skipped);
                        EXPECT_TRUE(states == now);
                    }
                }
}

// Biases at half the rate, with a weight decay of their own, and a table that stays, beside others;
// shards cut parameters anywhere. In every stage and tier.
TEST(Optimizers, GroupsOfParametersHaveTheirNumbers) {
    const z3d_optimizer_group groups[] = {{0.5f, true, 0.2f}, {0, false, 0}};
    for (int tensor : tensor_sizes()) {
        Tensors first;
        for (int turn = 0; turn < 5; turn++) {
            Options o = options(tensor, Z3D_F32);
            o.stage = turn % 4;
            o.clipping = 0;
            if (turn == 4) o.tiers.optimizer = Z3D_SPACE_HOST;
            SCOPED_TRACE(name_of(o) + " " + std::to_string(turn));
            Trainer t(o);
            t.config.optimizer_group = groups;
            ASSERT_Z3D(t.create());
            std::vector<int> own;
            for (int g = 0; g < t.model->num_groups; g++)
                for (int i = 0; i < t.model->group[g].num_parameters; i++) {
                    z3d_parameter &p = t.model->group[g].parameter[i];
                    const bool bias = std::string(p.name).find("bias") != std::string::npos;
                    p.optimizer_group = bias ? 1 : g == 0 && i == 0 ? 2 : 0;
                    own.push_back(p.optimizer_group);
                }
            std::vector<bool> decayed = decays(t.model);
            Tensors p = t.whole(Z3D_TENSOR_PARAMETER), v = t.whole(Z3D_TENSOR_MOMENTUM);
            for (int k = 0; k < 2; k++) {
                z3d_step_result r;
                ASSERT_Z3D(t.step(&r));
                Tensors g = t.whole(Z3D_TENSOR_GRADIENT), now = t.whole(Z3D_TENSOR_PARAMETER);
                Tensors momentum = t.whole(Z3D_TENSOR_MOMENTUM);
                for (size_t i = 0; i < p.size(); i++)
                    for (size_t j = 0; j < p[i].size(); j++) {
                        const double decay = own[i] == 1 ? 0.2 : decayed[i] ? 0.1 : 0;
                        const double rate = own[i] == 1 ? 0.005 : own[i] == 2 ? 0 : 0.01;
                        const double m = 0.9 * v[i][j] + g[i][j] + decay * p[i][j];
                        ASSERT_NEAR(momentum[i][j], m, 1e-6 + 1e-5 * std::fabs(m));
                        ASSERT_NEAR(now[i][j], p[i][j] - rate * m, 1e-6);
                        if (own[i] == 2) {
                            ASSERT_EQ(now[i][j], p[i][j]);
                        }
                    }
                p = now, v = momentum;
            }
            if (turn == 0) first = p;
            EXPECT_TRUE(first == p);
        }
    }
}

TEST(Optimizers, StagesAreBitwiseEqual) {
    const std::vector<z3d_dtype> all = {Z3D_F32, Z3D_BF16, Z3D_F16};
    expect_equal_stages(Z3D_OPTIMIZER_sgd, all);
    expect_equal_stages(Z3D_OPTIMIZER_lion, is_long() ? all : std::vector{Z3D_BF16});
    expect_equal_stages(Z3D_OPTIMIZER_adam, is_long() ? all : std::vector{Z3D_F16});
    expect_equal_stages(Z3D_OPTIMIZER_adamw_bf16, is_long() ? all : std::vector{Z3D_BF16});
    expect_equal_stages(Z3D_OPTIMIZER_adagrad, is_long() ? all : std::vector{Z3D_F32});
}

TEST(Optimizers, AnAverageOfTheParameters) {
    for (z3d_optimizer optimizer : {Z3D_OPTIMIZER_sgd, Z3D_OPTIMIZER_adamw, Z3D_OPTIMIZER_lion,
                                    Z3D_OPTIMIZER_adagrad, Z3D_OPTIMIZER_adamw_bf16}) {
        Tensors first;
        for (int stage : {0, 3, 4}) {
            Options o = options(1, optimizer == Z3D_OPTIMIZER_lion ? Z3D_BF16 : Z3D_F32);
            o.optimizer = optimizer;
            o.ema = true;
            o.stage = stage % 4;
            if (stage == 4) o.tiers.optimizer = Z3D_SPACE_HOST;
            SCOPED_TRACE(name_of(o) + " " + z3d_optimizer_name(optimizer));
            Trainer t(o);
            t.config.optimizer.ema_decay = 0.75f;
            ASSERT_Z3D(t.create());
            Tensors before;
            for (int step = 1; step <= 3; step++) {
                z3d_step_result r;
                ASSERT_Z3D(t.step(&r));
                expect_average(t, before, step);
                before = t.whole(Z3D_TENSOR_EMA);
            }
            if (stage == 0) first = before;
            EXPECT_TRUE(first == before);
        }
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
