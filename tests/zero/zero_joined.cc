// Neighbouring parameter groups that travel as one collective: the bits are those of groups that
// travel alone, in as many collectives as if a unit had one group.
#include "tests/zero/harness.h"

using namespace harness;

namespace {

struct Trained {
    std::vector<double> loss, norm;
    Tensors values;
    int64_t gathers = 0, reductions = 0; // collectives of the last step
    int joined = 0;                      // entries of the program that do not travel alone
};

int64_t calls(const Trainer &t, z3d_collective_kind kind) {
    int64_t all = 0;
    for (z3d_axes axes : {Z3D_AXES_DATA, Z3D_AXES_DATA_INNER, Z3D_AXES_DATA_OUTER})
        if (z3d_group_traffic(t.group[axes], kind))
            all += z3d_group_traffic(t.group[axes], kind)->calls;
    return all;
}

Trained run(const Options &o) {
    Trained r;
    Trainer t(o);
    z3d_status status = t.create();
    EXPECT_Z3D(status);
    for (int k = 0; k < 3 && status == Z3D_OK; k++) {
        const int64_t gathers = calls(t, Z3D_COLLECTIVE_ALL_GATHER),
                      reductions = calls(t, Z3D_COLLECTIVE_REDUCE_SCATTER);
        z3d_step_result s;
        EXPECT_Z3D(status = t.step(&s));
        r.loss.push_back(s.loss);
        r.norm.push_back(s.grad_norm);
        r.gathers = calls(t, Z3D_COLLECTIVE_ALL_GATHER) - gathers;
        r.reductions = calls(t, Z3D_COLLECTIVE_REDUCE_SCATTER) - reductions;
    }
    if (status != Z3D_OK) return r;
    r.values = t.whole(Z3D_TENSOR_PARAMETER);
    const z3d_program *p = t.engine->set.program[Z3D_MODE_TRAIN];
    for (int n = 0; n < p->num_instructions; n++) r.joined += p->instruction[n].columns > 0;
    return r;
}

Options small() {
    Options o;
    o.hidden = 16;
    o.dtype = Z3D_BF16;
    o.micro_batch = 2;
    return o;
}

// In buckets of the fewest columns everything travels alone.
void expect_same_as_alone(Options o) {
    SCOPED_TRACE(name_of(o));
    o.bucket = 1 << 20;
    const Trained together = run(o);
    o.bucket = 128;
    const Trained alone = run(o);
    EXPECT_EQ(alone.joined, 0);
    EXPECT_TRUE(same_bits(together.loss, alone.loss)) << "losses differ";
    EXPECT_TRUE(same_bits(together.norm, alone.norm)) << "gradient norms differ";
    EXPECT_TRUE(together.values == alone.values) << "parameters differ";
    EXPECT_LT(together.gathers + together.reductions, alone.gathers + alone.reductions);
    if (o.data != 1 && o.stage == 3) {
        EXPECT_GT(together.joined, 0);
    }
}

// Adapters; trained and frozen parameters in every block, and two trained groups in one unit.
const std::function<void(Options &)> FROZEN[] = {[](Options &o) { o.lora = 2; },
                                                 [](Options &o) { o.frozen = {"*c_fc*"}; }};

} // namespace

TEST(Joined, BitsAreThoseOfGroupsThatTravelAlone) {
    for (const auto &freeze : FROZEN)
        for (int stage = 1; stage <= 3; stage++)
            for (auto [tensor, pipeline] : {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2)}) {
                Options o = small();
                freeze(o);
                o.stage = stage;
                o.tensor = tensor;
                o.pipeline = pipeline;
                o.accumulation = pipeline;
                if (z3d_world_size(world) == 2 && tensor * pipeline == 2) continue; // no data ranks
                expect_same_as_alone(o);
            }
}

TEST(Joined, BitsOfADataAxisThatIsCut) {
    if (z3d_world_size(world) < 4) GTEST_SKIP() << "it has two nodes of two ranks";
    for (const auto &freeze : FROZEN)
        for (auto [stage, sharding] :
             {std::pair(2, Z3D_SHARDING_HIERARCHICAL), std::pair(3, Z3D_SHARDING_HIERARCHICAL),
              std::pair(3, Z3D_SHARDING_HPZ), std::pair(1, Z3D_SHARDING_HYBRID),
              std::pair(3, Z3D_SHARDING_HYBRID)}) {
            Options o = small();
            freeze(o);
            o.stage = stage;
            o.outer = 2;
            o.sharding = sharding;
            o.accumulation = 2;
            expect_same_as_alone(o);
        }
}

TEST(Joined, BitsWithoutOverlapOffloadedAndOfWholeGradients) {
    for (const auto &freeze : FROZEN) {
        Options o = small();
        freeze(o);
        o.stage = 3;
        o.overlap = false;
        expect_same_as_alone(o);
        o.overlap = true;
        o.accumulation = 2;
        o.tiers = {Z3D_SPACE_HOST, Z3D_SPACE_HOST, 0, 0, 0, false};
        expect_same_as_alone(o);
        o.tiers = {};
        o.stage = 0;
        o.reduce_per_step = 1;
        expect_same_as_alone(o);
    }
}

// Every unit is gathered before its forward; the blocks, which have the adapters, also before their
// backward, and each reduces these.
TEST(Joined, AUnitTravelsInOneCollective) {
    for (Kind kind : {GPT, LLAMA}) {
        Options o = small();
        o.kind = kind;
        o.lora = 2;
        o.stage = 3;
        o.bucket = 1 << 20;
        const Trained r = run(o);
        EXPECT_EQ(r.gathers, 2 * o.layers + 2);
        EXPECT_EQ(r.reductions, o.layers);
    }
}

// What has a message of its own does not travel with others.
TEST(Joined, LargeGroupsTravelAlone) {
    Options o = small();
    o.frozen = {"*c_fc*"};
    o.stage = 3;
    o.hidden = 256; // of 4 ranks and in fp32, c_fc's row is 256 KiB, and what is beside it 512 KiB
    o.dtype = Z3D_F32;
    o.layers = 1;
    o.bucket = INT64_C(1) << 40;
    Trainer t(o);
    ASSERT_Z3D(t.create());
    const z3d_program *p = t.engine->set.program[Z3D_MODE_TRAIN];
    for (int n = 0; n < p->num_instructions; n++) {
        const z3d_instruction &in = p->instruction[n];
        if (in.opcode != Z3D_OP_GATHER_PARAMS) continue;
        const std::string name = t.model->group[in.group].name;
        EXPECT_EQ(in.columns > 0, name.compare(0, 5, "block") != 0) << name;
        EXPECT_LE(z3d_bytes_of(Z3D_F32, in.columns), Z3D_RING_SEGMENT);
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
