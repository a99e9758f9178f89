// The delayed parameter update: the host steps a step's gradients beside the next step. Bits are
// those of a plain loop that applies each gradient one step late, on every stage, topology and
// tier.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/zero/harness.h"

using harness::Result;
using harness::same_bits;
using harness::train;
using harness::Trainer;
using Options = harness::Options;

namespace {

Options delayed(Options o, z3d_space optimizer, z3d_space parameters) {
    o.tiers.optimizer = optimizer;
    o.tiers.parameters = parameters;
    o.tiers.delayed = true;
    return o;
}

std::string name_of_tier(const Options &o) {
    return harness::name_of(o) + " optimizer in " + std::to_string(o.tiers.optimizer) +
           " parameters in " + std::to_string(o.tiers.parameters) + " sub_group " +
           std::to_string(o.tiers.sub_group) + " pieces " + std::to_string(o.tiers.pieces);
}

void expect_same(const Result &a, const Result &b) {
    EXPECT_TRUE(same_bits(a.loss, b.loss)) << "losses differ";
    EXPECT_TRUE(same_bits(a.norm, b.norm)) << "gradient norms differ";
    EXPECT_EQ(a.scale, b.scale);
    EXPECT_EQ(a.skipped, b.skipped);
}

// Every tier that the stage allows; on more ranks than one two of six or one of two, by turns.
void expect_tiers(const Options &o, const Result &expected, int turn) {
    const int every = z3d_world_size(world) == 1 ? 1 : o.stage < 3 ? 2 : 3;
    for (z3d_space optimizer : {Z3D_SPACE_HOST, Z3D_SPACE_DISK})
        for (z3d_space parameters : {Z3D_SPACE_DEVICE, Z3D_SPACE_HOST, Z3D_SPACE_DISK}) {
            if (parameters != Z3D_SPACE_DEVICE && o.stage < 3) continue;
            if (turn++ % every != 0) continue;
            const Options far = delayed(o, optimizer, parameters);
            SCOPED_TRACE(name_of_tier(far));
            expect_same(expected, train(far));
        }
}

// The recurrence in plain words. The gradient comes from a run without offload whose parameters are
// set before each step; what that run makes of it is thrown away.
class Reference {
  public:
    explicit Reference(const Options &o) : plain(o) {}

    void run(Result *out) {
        ASSERT_Z3D(plain.create());
        begin();
        for (int k = 0; k < plain.o.steps; k++) {
            for (size_t i = 0; i < all.size(); i++)
                ASSERT_Z3D(z3d_engine_set(plain.engine, Z3D_TENSOR_PARAMETER, all[i].group,
                                          all[i].parameter, all[i].master.data()));
            z3d_step_result s;
            ASSERT_Z3D(plain.step(&s));
            out->loss.push_back(s.loss);
            out->norm.push_back(s.grad_norm);
            out->scale.push_back(s.loss_scale);
            out->skipped.push_back(s.skipped);
            if (pending) apply();
            keep(s);
        }
    }

    // The parameters after the last step.
    void expect_parameters(z3d_engine *engine) {
        for (const Tensor &t : all) {
            std::vector<float> is(t.master.size());
            ASSERT_Z3D(
                z3d_engine_get(engine, Z3D_TENSOR_PARAMETER, t.group, t.parameter, is.data()));
            EXPECT_EQ(0, memcmp(is.data(), t.master.data(), is.size() * sizeof(float)));
        }
    }

  private:
    struct Tensor {
        int group, parameter;
        bool decays;
        std::vector<float> master, momentum, variance, gradient;
    };
    Trainer plain;
    std::vector<Tensor> all;
    bool pending = false;
    z3d_step_state state{};
    int64_t optimizer_step = 0;

    void begin() {
        for (int g = 0; g < plain.model->num_groups; g++)
            for (int p = 0; p < plain.model->group[g].num_parameters; p++) {
                const z3d_parameter &parameter = plain.model->group[g].parameter[p];
                size_t count = 1;
                for (int d = 0; d < parameter.dims; d++) count *= (size_t)parameter.shape[d];
                Tensor t{g, p, parameter.weight_decay, {}, {}, {}, {}};
                t.master.resize(count), t.momentum.resize(count);
                t.variance.resize(count), t.gradient.resize(count);
                ASSERT_Z3D(
                    z3d_engine_get(plain.engine, Z3D_TENSOR_PARAMETER, g, p, t.master.data()));
                all.push_back(std::move(t));
            }
    }

    void apply() {
        for (Tensor &t : all) {
            z3d_kernel kernel{};
            const int64_t count = (int64_t)t.master.size();
            const bool adamw = plain.o.optimizer == Z3D_OPTIMIZER_adamw;
            kernel.kind = adamw ? Z3D_KERNEL_adamw : Z3D_KERNEL_sgd;
            z3d_optimizer_update &u = kernel.as.update;
            u.master = t.master.data();
            u.momentum = t.momentum.data();
            u.variance = adamw ? t.variance.data() : nullptr;
            u.gradient = t.gradient.data();
            u.count = count;
            u.decayed = t.decays ? count : 0;
            u.dtype = u.gradient_dtype = Z3D_F32;
            u.constants = plain.config.optimizer;
            u.constants.lr_scale = 1;
            u.state = &state;
            ASSERT_Z3D(z3d_launch(plain.device, &kernel));
        }
    }

    // This step's gradients, without their loss scale, a power of two.
    void keep(const z3d_step_result &s) {
        pending = !s.skipped;
        if (s.skipped) return;
        for (Tensor &t : all)
            ASSERT_Z3D(z3d_engine_get(plain.engine, Z3D_TENSOR_GRADIENT, t.group, t.parameter,
                                      t.gradient.data()));
        const double clip = plain.o.clipping / (s.grad_norm + 1e-6);
        state.gradient_factor = (float)(clip < 1 ? clip : 1);
        state.learning_rate = 1e-2f;
        state.optimizer_step = ++optimizer_step;
    }
};

void compare_with_reference(Options o) {
    o.stage = 0;
    o.steps = 6;
    Result expected, is;
    Reference reference(o);
    reference.run(&expected);
    o.stage = 3;
    Trainer t(delayed(o, Z3D_SPACE_HOST, Z3D_SPACE_DEVICE));
    ASSERT_Z3D(t.create());
    for (int k = 0; k < o.steps; k++) {
        z3d_step_result s;
        ASSERT_Z3D(t.step(&s));
        is.loss.push_back(s.loss);
        is.norm.push_back(s.grad_norm);
        is.scale.push_back(s.loss_scale);
        is.skipped.push_back(s.skipped);
    }
    expect_same(expected, is);
    reference.expect_parameters(t.engine);
}

Options of_type(z3d_dtype dtype) {
    Options o;
    o.dtype = dtype;
    o.reduce_per_step = 0;
    if (dtype == Z3D_F16) o.scaler = {true, 262144, 1, 2, 1}; // it grows until it is too large
    return o;
}

} // namespace

TEST(Delayed, IsThePlainRecurrence) {
    for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16, Z3D_F16})
        for (z3d_optimizer optimizer : {Z3D_OPTIMIZER_adamw, Z3D_OPTIMIZER_sgd}) {
            Options o = of_type(dtype);
            o.optimizer = optimizer;
            SCOPED_TRACE(std::to_string(dtype) + z3d_optimizer_name(optimizer));
            compare_with_reference(o);
        }
}

// The first step has nothing to apply, so the second still has the first parameters.
TEST(Delayed, StepsAreOneBehindThoseOfTheRunWithout) {
    Options o;
    o.steps = 4;
    const Result without = train(o), with = train(delayed(o, Z3D_SPACE_HOST, Z3D_SPACE_DEVICE));
    EXPECT_EQ(without.loss[0], with.loss[0]);
    for (size_t k = 1; k < 4; k++) EXPECT_NE(without.loss[k], with.loss[k]);
    EXPECT_LT(with.loss[3], with.loss[0]);
}

TEST(Delayed, StagesTopologiesAndTiersAreBitwiseEqual) {
    const int ranks = z3d_world_size(world);
    int turn = 0;
    for (int tensor = 1; tensor <= ranks; tensor *= 2)
        for (int pipeline = 1; tensor * pipeline <= ranks && pipeline <= 2; pipeline *= 2) {
            Options o;
            o.tensor = tensor, o.pipeline = pipeline, o.accumulation = pipeline;
            o.reduce_per_step = 0;
            o.steps = 3;
            o.hidden = 40, o.vocabulary = 131; // no rank has padding only, which nothing steps
            const Result expected = train(delayed(o, Z3D_SPACE_HOST, Z3D_SPACE_DEVICE));
            for (o.stage = 0; o.stage < 4; o.stage++) expect_tiers(o, expected, turn + o.stage);
            turn++;
        }
}

TEST(Delayed, TypesAndAnOverflowAreBitwiseEqual) {
    int turn = z3d_world_size(world) / 2; // other tiers on 2 ranks than on 4
    for (z3d_dtype dtype : {Z3D_BF16, Z3D_F16}) {
        Options o = of_type(dtype);
        o.steps = 6;
        const Result expected = train(delayed(o, Z3D_SPACE_HOST, Z3D_SPACE_DEVICE));
        if (dtype == Z3D_F16) {
            const int skipped =
                (int)std::count(expected.skipped.begin(), expected.skipped.end(), true);
            EXPECT_GT(skipped, 0);
            EXPECT_LT(skipped, o.steps - 2);
        }
        for (int stage : {1, 3}) {
            o.stage = stage;
            o.overlap = stage == 1;
            expect_tiers(o, expected, turn + stage);
        }
        turn++;
    }
}

// A later micro-batch's gradients are added to the first one's, which went over the last step's.
TEST(Delayed, AccumulationAndPiecesAreBitwiseEqual) {
    int turn = 0;
    for (int per_step : {0, 1}) {
        Options o;
        o.accumulation = 2;
        o.reduce_per_step = per_step;
        o.steps = 4;
        o.hidden = 64;
        const Result expected = train(delayed(o, Z3D_SPACE_HOST, Z3D_SPACE_DEVICE));
        for (int stage : {0, 2, 3})
            for (int pieces : {1, 4}) {
                o.stage = stage;
                o.host_device = pieces > 1;
                o.tiers.sub_group = 3000;
                o.tiers.pieces = pieces;
                expect_tiers(o, expected, turn++ + per_step);
            }
        o.tiers = {};
    }
}

// What a checkpoint has of a run, in a run with other tiers and another stage.
TEST(Delayed, ARunGoesOnFromWhatIsReadOfIt) {
    for (int steps : {1, 3}) {
        Options o = of_type(Z3D_BF16);
        o.stage = 3;
        Trainer one(delayed(o, Z3D_SPACE_DISK, Z3D_SPACE_HOST));
        o.stage = 1;
        Trainer other(delayed(o, Z3D_SPACE_HOST, Z3D_SPACE_DEVICE));
        z3d_step_result a, b;
        ASSERT_Z3D(one.create());
        ASSERT_Z3D(other.create());
        for (int k = 0; k < steps; k++) ASSERT_Z3D(one.step(&a));
        const unsigned kinds = z3d_engine_kinds(one.engine);
        EXPECT_TRUE(kinds & Z3D_KIND(PENDING));
        for (int g = 0; g < one.model->num_groups; g++)
            for (int p = 0; p < one.model->group[g].num_parameters; p++)
                for (int kind = 0; kind < Z3D_STATE_KINDS; kind++) {
                    if (!(kinds >> kind & 1)) continue;
                    const z3d_parameter &parameter = one.model->group[g].parameter[p];
                    size_t count = 1;
                    for (int d = 0; d < parameter.dims; d++) count *= (size_t)parameter.shape[d];
                    std::vector<float> values(count);
                    ASSERT_Z3D(
                        z3d_engine_get(one.engine, (z3d_tensor_kind)kind, g, p, values.data()));
                    ASSERT_Z3D(
                        z3d_engine_set(other.engine, (z3d_tensor_kind)kind, g, p, values.data()));
                }
        z3d_engine_state state;
        z3d_engine_get_state(one.engine, &state);
        EXPECT_TRUE(state.pending.waits);
        z3d_engine_set_state(other.engine, &state);
        other.next_step = one.next_step;
        for (int k = 0; k < 3; k++) {
            ASSERT_Z3D(one.step(&a));
            ASSERT_Z3D(other.step(&b));
            EXPECT_EQ(a.loss, b.loss);
            EXPECT_EQ(a.grad_norm, b.grad_norm);
        }
    }
}

// The host has steps to do while forward runs, and its parameters go once they are read.
TEST(Delayed, TheHostStepsBesideForwardAndBackward) {
    for (int stage : {0, 3}) {
        Options o;
        o.stage = stage;
        o.layers = 6;
        Trainer t(delayed(o, Z3D_SPACE_HOST, Z3D_SPACE_DEVICE));
        ASSERT_Z3D(t.create());
        const z3d_program *p = z3d_engine_program(t.engine, Z3D_MODE_TRAIN);
        int forward = 0, backward = 0, behind = 0;
        bool back = false, control = false;
        for (int n = 0; n < p->num_instructions; n++) {
            const z3d_opcode opcode = p->instruction[n].opcode;
            back = back || opcode == Z3D_OP_BACKWARD;
            control = control || opcode == Z3D_OP_STEP_CONTROL;
            if (opcode == Z3D_OP_HOST_STEP) (control ? behind : back ? backward : forward)++;
        }
        EXPECT_GT(forward, 1);
        EXPECT_GT(backward, 1);
        EXPECT_EQ(behind, 0);
    }
}

TEST(Delayed, WhatTheDeviceStepsIsRefused) {
    for (double resident : {0.0, 0.5}) {
        Options o;
        o.tiers.delayed = true;
        o.tiers.optimizer = resident > 0 ? Z3D_SPACE_HOST : Z3D_SPACE_DEVICE;
        o.tiers.resident = resident;
        Trainer t(o);
        EXPECT_EQ(Z3D_ERR_CONFIG, t.create());
        EXPECT_NE(nullptr, strstr(z3d_error_message(), "delayed_param_update"));
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
