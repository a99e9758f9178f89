// The sim device against the cpu device: the same program, the same instructions in the same order,
// the same bytes by category and the same traffic by group and kind, in 20 configurations.
#include "tests/zero/harness.h"

extern "C" {
#include "src/plan/price/simulate.h"
}

using namespace harness;

namespace {

z3d_status note(void *context, const z3d_program *, int index) {
    static_cast<std::vector<int> *>(context)->push_back(index);
    return Z3D_OK;
}

std::vector<int> instructions(const z3d_tape *tape) {
    std::vector<int> list;
    for (int64_t i = 0; i < tape->count; i++)
        if (z3d_tape_at(tape, i).kind == Z3D_EVENT_INSTRUCTION)
            list.push_back(static_cast<int>(z3d_tape_at(tape, i).id));
    return list;
}

void expect_same_traffic(z3d_group *a, z3d_group *b) {
    for (int k = 0; k < Z3D_COLLECTIVE_COUNT; k++) {
        const z3d_traffic *x = z3d_group_traffic(a, static_cast<z3d_collective_kind>(k));
        const z3d_traffic *y = z3d_group_traffic(b, static_cast<z3d_collective_kind>(k));
        const char *name = z3d_collective_name(static_cast<z3d_collective_kind>(k));
        EXPECT_EQ(x->calls, y->calls) << name;
        EXPECT_EQ(x->bytes, y->bytes) << name;
        EXPECT_EQ(x->volume_elements, y->volume_elements) << name;
        EXPECT_EQ(x->scalar_calls, y->scalar_calls) << name;
        EXPECT_EQ(x->scalar_bytes, y->scalar_bytes) << name;
    }
}

void expect_same_ledger(const z3d_ledger *real, const z3d_ledger *sim) {
    for (int t = 0; t < Z3D_CATEGORY_COUNT; t++)
        EXPECT_EQ(real->peak[t], sim->peak[t]) << z3d_category_name(static_cast<z3d_category>(t));
    EXPECT_EQ(real->total_peak, sim->total_peak);
}

// Copies started and waited for, and collectives by axis, are paired on the tape.
void expect_paired(const z3d_tape *tape) {
    int64_t open[Z3D_AXES_COUNT + 1] = {};
    for (int64_t i = 0; i < tape->count; i++) {
        const z3d_event e = z3d_tape_at(tape, i);
        if (e.kind == Z3D_EVENT_START) open[e.axes]++;
        if (e.kind == Z3D_EVENT_WAIT) open[e.axes]--;
        if (e.kind == Z3D_EVENT_COPY_START) open[Z3D_AXES_COUNT]++;
        if (e.kind == Z3D_EVENT_COPY_WAIT) open[Z3D_AXES_COUNT]--;
    }
    for (int64_t count : open) EXPECT_EQ(count, 0);
}

void compare(const Options &o) {
    Trainer real(o);
    std::vector<int> order;
    real.config.enter = note;
    real.config.enter_context = &order;
    ASSERT_Z3D(real.create());
    z3d_step_result result;
    ASSERT_Z3D(real.step(&result));
    ASSERT_FALSE(result.skipped);

    z3d_simulation *sim;
    ASSERT_Z3D(z3d_simulation_create(real.model, &real.mesh, &real.config.program, o.clipping,
                                     {o.threads, z3d_world_size(world), false}, &sim));
    EXPECT_EQ(order, instructions(sim->stage[0].tape));
    EXPECT_FALSE(order.empty());
    expect_paired(sim->stage[0].tape);
    for (z3d_space space : {Z3D_SPACE_DEVICE, Z3D_SPACE_HOST}) {
        expect_same_ledger(z3d_engine_planned(real.engine, space),
                           z3d_engine_planned(sim->engine, space));
        expect_same_ledger(z3d_engine_measured(real.engine, space),
                           z3d_engine_measured(sim->engine, space));
    }
    EXPECT_EQ(z3d_engine_arena_bytes(real.engine), z3d_engine_arena_bytes(sim->engine));
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
        SCOPED_TRACE(z3d_axes_name(static_cast<z3d_axes>(axes)).text);
        expect_same_traffic(real.group[axes], sim->group[axes]);
    }
    z3d_simulation_destroy(sim);
}

TEST(SimAgainstCpu, Configurations) {
    int ranks = z3d_world_size(world);
    for (int stage = 0; stage < 4; stage++) {
        for (int variant = 0; variant < 5; variant++) {
            Options o;
            o.stage = stage;
            o.tensor = ranks == 1 ? 1 : variant == 3 ? 4 : variant % 2 == 0 ? 2 : 1;
            o.accumulation = variant == 1 ? 2 : 1;
            o.dtype = variant == 2 ? Z3D_BF16 : Z3D_F32;
            o.recompute = variant != 4;
            o.replay_full = variant == 2;
            o.overlap = variant != 3;
            o.partition = variant == 3 && ranks > 1;
            if (variant == 0 || variant == 3)
                o.checkpoint_space = stage % 2 ? Z3D_SPACE_DISK : Z3D_SPACE_HOST;
            o.dropout = variant == 1 ? 0.1 : 0;
            o.grad_fp32 = variant == 1;
            SCOPED_TRACE("stage " + std::to_string(stage) + ", variant " + std::to_string(variant));
            compare(o);
        }
    }
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
