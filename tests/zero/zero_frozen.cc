// Frozen parameters: a value and nothing else. Stages, schedules and tiers train bitwise equally;
// what is trained has the gradients of a run that trains everything; memory is the formula.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "tests/zero/harness.h"
#include "tests/zero/programs.h"

extern "C" {
#include "src/base/param_groups.h"
}

using namespace harness;

namespace {

using Patterns = std::vector<std::string>;
using Named = std::map<std::string, std::vector<float>>;

// Below what is trained, with the tied table; above it; beside it in every group; all but tables.
const Patterns GPT_FROZEN[] = {{"wte", "wpe", "block.0"},
                               {"block.1", "ln_f*"},
                               {"*weight"},
                               {"block.", "ln_f*"}},
               LLAMA_FROZEN[] = {{"embed_tokens", "layers.0"},
                                 {"*_proj.*"},
                                 {"layers.1", "*norm*"},
                                 {"*mlp*", "embed*", "layers.0.self_attn.o_proj.weight"}};

const Patterns &frozen_of(Kind kind, size_t which) {
    return (kind == GPT ? GPT_FROZEN : LLAMA_FROZEN)[which % 4];
}

// By name, as the whole model's description has them: gradients of what is trained, or all values.
Named by_name(Trainer &t, z3d_tensor_kind kind) {
    Named out;
    Tensors all = t.whole(kind);
    size_t at = 0;
    for (int g = 0; g < t.model->num_groups; g++)
        for (int i = 0; i < t.model->group[g].num_parameters; i++, at++) {
            const z3d_parameter &p = t.model->group[g].parameter[i];
            // Tiles of a parameter are whole tensors with zeros elsewhere.
            std::vector<float> &sum =
                out[z3d_parameter_home(&t.model->group[g], i) + std::string(".") + p.name];
            sum.resize(std::max(sum.size(), all[at].size()));
            for (size_t k = 0; k < all[at].size(); k++) sum[k] += all[at][k];
            if (all[at].empty())
                out.erase(z3d_parameter_home(&t.model->group[g], i) + std::string(".") + p.name);
        }
    return out;
}

struct Trained {
    std::vector<double> loss, norm;
    Named first, gradients, last; // values before and after all steps; gradients of the first
};

Trained run(const Options &o) {
    Trained r;
    Trainer t(o);
    z3d_status status = t.create();
    EXPECT_Z3D(status);
    if (status == Z3D_OK) r.first = by_name(t, Z3D_TENSOR_PARAMETER);
    for (int k = 0; k < o.steps && status == Z3D_OK; k++) {
        z3d_step_result s;
        EXPECT_Z3D(status = t.step(&s));
        r.loss.push_back(s.loss);
        r.norm.push_back(s.grad_norm);
        if (k == 0 && status == Z3D_OK && !o.tiers.delayed)
            r.gradients = by_name(t, Z3D_TENSOR_GRADIENT);
    }
    if (status == Z3D_OK) r.last = by_name(t, Z3D_TENSOR_PARAMETER);
    return r;
}

void expect_same(const Trained &a, const Trained &b) {
    EXPECT_TRUE(same_bits(a.loss, b.loss)) << "losses differ";
    EXPECT_TRUE(same_bits(a.norm, b.norm)) << "gradient norms differ";
    EXPECT_TRUE(a.last == b.last) << "parameters differ";
}

// Frozen values stay, the others move.
void expect_stay(const Trained &r, const Patterns &frozen) {
    int stay = 0;
    for (const auto &[name, values] : r.first) {
        bool stays = false;
        for (const std::string &pattern : frozen)
            stays = stays || z3d_pattern_matches(pattern.c_str(), name.c_str());
        EXPECT_EQ(values == r.last.at(name), stays) << name;
        stay += stays;
    }
    EXPECT_GT(stay, 0);
    EXPECT_LT(stay, (int)r.first.size());
}

Options base(Kind kind, size_t frozen) {
    Options o;
    o.kind = kind;
    o.frozen = frozen_of(kind, frozen);
    o.steps = 3;
    return o;
}

// Tensor and pipeline sizes of this world.
std::vector<std::pair<int, int>> sizes() {
    std::vector<std::pair<int, int>> out;
    for (int tensor : {1, 2})
        for (int pipeline : {1, 2})
            if (z3d_world_size(world) % (tensor * pipeline) == 0) out.push_back({tensor, pipeline});
    return out;
}

} // namespace

TEST(Frozen, StagesAreBitwiseEqual) {
    size_t turn = 0;
    for (auto [tensor, pipeline] : sizes())
        for (Kind kind : {GPT, QWEN})
            for (int k = 0; k < (SANITIZED ? 1 : 2); k++, turn++) {
                Options o = base(kind, turn);
                o.tensor = tensor;
                o.pipeline = pipeline;
                o.accumulation = pipeline;
                o.reduce_per_step = turn % 2 == 0;
                o.dtype = turn % 3 ? Z3D_BF16 : Z3D_F32;
                o.recompute = turn % 2;
                SCOPED_TRACE(name_of(o) + " " + o.frozen[0]);
                Trained zero = run(o);
                expect_stay(zero, o.frozen);
                for (o.stage = 1; o.stage <= 3; o.stage++) expect_same(zero, run(o));
            }
}

// The weight half of a tile's backward does not read the tile's input then.
TEST(Frozen, ATileTrainsItsBiasesAlone) {
    Options o = base(GPT, 2);
    o.tiling = 2;
    o.recompute = false;
    o.steps = 1;
    if (z3d_world_size(world) > 1) {
        o.pipeline = 2;
        o.schedule = Z3D_SCHEDULE_ZB_H1;
        o.layers = 3;
        o.accumulation = 2;
    }
    const Named some = run(o).gradients;
    o.frozen.clear();
    const Named all = run(o).gradients;
    EXPECT_EQ(some.count("block.0.mlp.c_fc.weight"), 0u);
    EXPECT_EQ(some.count("block.0.mlp.c_fc.bias"), 1u);
    for (const auto &[name, values] : some) EXPECT_EQ(values, all.at(name)) << name;
}

// What is trained has the gradients that it has where everything is trained.
TEST(Frozen, GradientsAreThoseOfAFullRun) {
    std::mt19937 random(5);
    auto pick = [&random](int count) { return (int)(random() % (unsigned)count); };
    const int ranks = z3d_world_size(world);
    for (int n = 0; n < (SANITIZED ? 4 : 16); n++) {
        const Schedule &schedule = SCHEDULES[pick(5)];
        Options o = base((Kind)pick(3), (size_t)pick(4));
        o.steps = 1;
        o.pipeline = ranks > 1 && pick(2) ? 2 : 1;
        o.tensor = o.pipeline == ranks ? 1 : 1 << pick(o.pipeline == 1 && ranks == 4 ? 3 : 2);
        if (ranks % (o.tensor * o.pipeline)) o.tensor = 1;
        if (o.pipeline > 1) o.schedule = schedule.kind, o.chunks = schedule.chunks;
        o.layers = o.pipeline > 1 ? 3 : 2;
        o.accumulation = o.pipeline > 1 ? 2 : 1 + pick(2);
        o.tiling = o.tensor < 4 && pick(3) == 0 ? 2 : 1;
        o.recompute =
            o.schedule != Z3D_SCHEDULE_ZB_H1 && o.schedule != Z3D_SCHEDULE_ZB_V && pick(2);
        o.selective = !o.recompute && pick(2);
        o.sequence_parallel = o.tensor > 1 && pick(2);
        o.dropout = pick(2) ? 0.1 : 0;
        o.stage = pick(4);
        SCOPED_TRACE(name_of(o) + " " + o.frozen[0]);
        Trained some = run(o);
        o.frozen.clear();
        Trained all = run(o);
        EXPECT_TRUE(same_bits(some.loss, all.loss));
        EXPECT_LT(some.gradients.size(), all.gradients.size());
        for (const auto &[name, values] : some.gradients) {
            const std::vector<float> &wanted = all.gradients.at(name);
            float most = 0, off = 0; // rows of other data ranks are added in another order
            for (size_t k = 0; k < values.size(); k++) {
                most = std::max(most, std::fabs(wanted[k]));
                off = std::max(off, std::fabs(wanted[k] - values[k]));
            }
            EXPECT_LE(off, 1e-6f * most) << name;
        }
    }
}

// Also a frozen tied table on two stages, and stages without any backward.
TEST(Frozen, SchedulesAreBitwiseEqual) {
    if (z3d_world_size(world) < 2) GTEST_SKIP() << "one rank has no pipeline";
    for (size_t frozen : {0, 2}) {
        Options o = base(GPT, frozen);
        o.pipeline = 2;
        o.layers = 3;
        o.accumulation = 4;
        o.stage = 2;
        o.recompute = false;
        o.reduce_per_step = 0;
        Trained first = run(o);
        for (const Schedule &schedule : SCHEDULES) {
            o.schedule = schedule.kind;
            o.chunks = schedule.chunks;
            o.stage = schedule.chunks > 1 ? 3 : 1;
            SCOPED_TRACE(name_of(o));
            expect_same(first, run(o));
        }
    }
}

TEST(Frozen, TiersAreBitwiseEqual) {
    for (size_t frozen : {0, 1}) {
        Options o = base(GPT, frozen);
        o.dtype = Z3D_BF16;
        o.stage = 3;
        Trained first = run(o);
        o.tiers = {Z3D_SPACE_HOST, Z3D_SPACE_HOST, 0, 0, 0, false};
        expect_same(first, run(o));
        o.tiers = {Z3D_SPACE_DISK, Z3D_SPACE_DISK, 2048, 3, 0, false};
        expect_same(first, run(o));
        o.tiers = {Z3D_SPACE_HOST, Z3D_SPACE_DEVICE, 0, 0, 0.5, false};
        expect_same(first, run(o));
        o.tiers = {Z3D_SPACE_HOST, Z3D_SPACE_HOST, 0, 0, 0, true};
        expect_stay(run(o), o.frozen);
    }
}

// 2 bytes of each frozen parameter, 16 of each trained one, over the data ranks.
TEST(Frozen, MemoryIsTheFormula) {
    Options o = base(GPT, 2);
    o.stage = 3;
    o.dtype = Z3D_BF16;
    Trainer t(o);
    z3d_step_result s;
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(t.step(&s));
    const z3d_layout *layout = z3d_engine_layout(t.engine);
    int64_t all = 0, trained = 0;
    for (int g = 0; g < layout->num_groups; g++) {
        all += layout->group[g].shard;
        if (!layout->group[g].frozen) trained += layout->group[g].shard;
    }
    for (const z3d_ledger *ledger : {z3d_engine_planned(t.engine, Z3D_SPACE_DEVICE),
                                     z3d_engine_measured(t.engine, Z3D_SPACE_DEVICE)}) {
        EXPECT_EQ(ledger->peak[Z3D_CATEGORY_PARAMETERS], 2 * all);
        EXPECT_EQ(ledger->peak[Z3D_CATEGORY_GRADIENTS], 2 * trained);
        EXPECT_EQ(ledger->peak[Z3D_CATEGORY_OPTIMIZER], 12 * trained);
    }
    EXPECT_LT(trained, all / 10);
}

// Units below the first trained parameter run forward only, and nothing is gathered or reduced for
// what is frozen in stages 0 to 2.
TEST(Frozen, ProgramsHaveNoMoreThanTheyNeed) {
    if (z3d_world_size(world) > 1) GTEST_SKIP() << "one rank builds them all";
    for (int pipeline : {1, 2})
        for (int stage : {1, 3}) {
            Options o = programs::small();
            o.frozen = frozen_of(GPT, 0);
            o.pipeline = pipeline;
            o.data = 2;
            o.stage = stage;
            programs::World w(o);
            ASSERT_Z3D(w.prepare());
            ASSERT_Z3D(w.build());
            ASSERT_EQ(w.layouts[0]->first_trained, 2);
            for (const z3d_program *p : w.programs) {
                ASSERT_Z3D(z3d_program_verify(p));
                for (int n = 0; n < p->num_instructions; n++) {
                    const z3d_instruction &in = p->instruction[n];
                    const z3d_opcode_info *info = z3d_opcode_info_of(in.opcode);
                    const bool back = z3d_instruction_call(&in) >= Z3D_CALL_BACKWARD;
                    if (in.unit >= 0 && in.unit < 2) {
                        EXPECT_FALSE(back || in.opcode == Z3D_OP_SAVE_INPUT || in.keep);
                    }
                    EXPECT_NE(in.opcode, Z3D_OP_SEND_INPUT_GRADIENT);
                    if (in.group < 0 || !p->layout->group[in.group].frozen) continue;
                    EXPECT_TRUE(info->moves == Z3D_MOVES_PARAMETERS ||
                                in.opcode == Z3D_OP_RELEASE_PARAMS)
                        << info->name;
                    EXPECT_EQ(stage, 3) << info->name;
                }
            }
            EXPECT_Z3D(z3d_program_verify_world(w.programs.data(), w.size()));
        }
}

TEST(Frozen, ModelsThatCannotBeTrainedAreRefused) {
    if (z3d_world_size(world) > 1) GTEST_SKIP() << "it needs one rank";
    Options o = programs::small();
    o.frozen = {"*"};
    programs::World none(o);
    ASSERT_Z3D(none.prepare());
    EXPECT_EQ(none.build(), Z3D_ERR_CONFIG);
    EXPECT_STREQ(z3d_error_message(), "all parameters are frozen, so there is nothing to train");
    z3d_mesh alone;
    z3d_layout *layout;
    ASSERT_Z3D(z3d_mesh_make(1, 1, 1, 0, &alone));
    z3d_model *model = nullptr;
    o.frozen.clear();
    ASSERT_Z3D(o.describe_model(&model));
    model->group[2].parameter[1].frozen = true;
    EXPECT_EQ(z3d_layout_create(model, &alone, nullptr, &layout), Z3D_ERR_CONFIG);
    EXPECT_STREQ(z3d_error_message(),
                 "parameter group block.0: ln_1.bias is frozen, but the group is not; call "
                 "z3d_model_divide when the model is described");
    z3d_model_destroy(model);
    o.kind = LLAMA;
    o.frozen = {"layers.1.self_attn.k_proj.weight"};
    EXPECT_EQ(o.create_model(&model), Z3D_ERR_CONFIG);
    EXPECT_STREQ(z3d_error_message(),
                 "layers.1.self_attn.k_proj.weight is frozen, but self_attn.q_proj.weight is "
                 "trained, and one product reads both; freeze both or neither");
    z3d_model_destroy(model);
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
