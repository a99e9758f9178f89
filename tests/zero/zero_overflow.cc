// A step whose gradients are no finite numbers is skipped, and the unit that had it is named.
#include "tests/zero/harness.h"

#include <limits>

using namespace harness;

namespace {

constexpr int BLOCKS = 2; // the parameter groups: wte, wpe, the blocks, ln_f

int64_t elements(const z3d_parameter &p) {
    int64_t count = 1;
    for (int d = 0; d < p.dims; d++) count *= p.shape[d];
    return count;
}

// Every element of a parameter, on all ranks.
void set(Trainer &t, int group, const std::string &name, float value) {
    const z3d_parameter_group &g = t.model->group[group];
    for (int i = 0; i < g.num_parameters; i++) {
        if (g.parameter[i].name != name) continue;
        std::vector<float> values((size_t)elements(g.parameter[i]), value);
        EXPECT_Z3D(z3d_engine_set(t.engine, Z3D_TENSOR_PARAMETER, group, i, values.data()));
        return;
    }
    ADD_FAILURE() << g.name << " has no " << name;
}

// The hidden layer's output is zero, so block k gives what it would without it; the gradient that
// comes back through its huge weights is not finite, and what leaves the block downwards is not.
void poison_backward(Trainer &t, int k) {
    set(t, BLOCKS + k, "mlp.c_fc.weight", 0);
    set(t, BLOCKS + k, "mlp.c_fc.bias", 0);
    set(t, BLOCKS + k, "mlp.c_proj.weight", 60000);
}

template <typename Poison> void expect_overflow(Options o, int group, const Poison &poison) {
    o.dtype = Z3D_F16;
    o.layers = 4;
    if (o.scaler.scale == 1) o.scaler.scale = 65536;
    const struct { int tensor, pipeline; } ways[] = {{1, 1}, {2, 1}, {1, 2}}; // of two ranks
    for (const auto &way : ways) {
        if (z3d_world_size(world) % (way.tensor * way.pipeline) != 0) continue;
        for (o.stage = 0; o.stage < 4; o.stage++) {
            o.tensor = way.tensor, o.pipeline = way.pipeline;
            if (o.pipeline > 1) o.accumulation = 2;
            SCOPED_TRACE(name_of(o));
            Trainer t(o);
            ASSERT_Z3D(t.create());
            poison(t);
            z3d_step_result result;
            ASSERT_Z3D(t.step(&result));
            EXPECT_TRUE(result.skipped);
            EXPECT_EQ(result.overflow_group, group);
        }
    }
}

} // namespace

// Backward carries it down to the embedding: all groups below have it too.
TEST(Overflow, NamesTheBlockWhereItBegan) {
    for (int k : {0, 2})
        expect_overflow({}, BLOCKS + k, [k](Trainer &t) { poison_backward(t, k); });
}

TEST(Overflow, OfTheLossScaleNamesTheHead) {
    Options o;
    o.scaler.scale = 1e30f;
    expect_overflow(o, BLOCKS + 4, [](Trainer &) {});
}

// Nothing is known then of where: the loss is no number, and so is every gradient.
TEST(Overflow, OfTheForwardNamesNoGroup) {
    expect_overflow({}, -1, [](Trainer &t) {
        set(t, BLOCKS + 1, "mlp.c_fc.bias", std::numeric_limits<float>::infinity());
    });
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
