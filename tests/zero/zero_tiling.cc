// MLPs in tiles: stages, schedules and tiers are equal to the bit; training is that of whole blocks
// but for the order of sums; and less lies gathered.
#include <cmath>

#include "tests/zero/harness.h"

using namespace harness;

namespace {

// Options by turns, so that all are used in a few runs. A tiled block's units are recomputed from
// its input, or from inputs of their own.
Options way_of(Options o, int way) {
    const Schedule schedules[] = {SCHEDULES[0], SCHEDULES[3], SCHEDULES[2], SCHEDULES[4]};
    o.stage = way % 4;
    o.recompute = way != 2;
    o.selective = way == 2;
    o.keep_activation = way > 1;
    o.checkpoint_every = way == 3 ? 1 : (int)o.tiling + 1;
    o.partition = way == 1 && o.tensor > 1;
    o.checkpoint_space = way == 3 ? Z3D_SPACE_HOST : Z3D_SPACE_DEVICE;
    if (way == 0) o.tiers.optimizer = Z3D_SPACE_HOST;
    if (way == 3) o.tiers.optimizer = Z3D_SPACE_DISK, o.tiers.parameters = Z3D_SPACE_HOST;
    if (o.pipeline > 1) o.schedule = schedules[way].kind, o.chunks = schedules[way].chunks;
    return o;
}

Options whole_blocks(Options o) {
    o.tiling = 1;
    return o;
}

void expect_near(const Result &a, const Result &b) {
    for (size_t k = 0; k < a.loss.size(); k++) {
        EXPECT_LT(std::fabs(a.loss[k] - b.loss[k]) / b.loss[k], 3e-6) << "step " << k + 1;
        EXPECT_LT(std::fabs(a.norm[k] - b.norm[k]) / b.norm[k], 3e-5) << "step " << k + 1;
    }
}

void compare_ways(Options o) {
    const Result whole = train(whole_blocks(o));
    ASSERT_EQ(whole.loss.size(), (size_t)o.steps);
    Result first;
    for (int way = 0; way < 4; way++) {
        const Options turn = way_of(o, way);
        SCOPED_TRACE(name_of(turn));
        const Result r = train(turn);
        if (way == 0) first = r;
        ASSERT_EQ(r.loss.size(), (size_t)o.steps);
        EXPECT_TRUE(same_bits(first.loss, r.loss));
        EXPECT_TRUE(same_bits(first.norm, r.norm));
        expect_near(r, whole);
    }
}

} // namespace

// 44 columns of four tensor ranks are cut into 11 tiles.
TEST(Tiling, WaysAreBitwiseEqualAndTrainLikeWholeBlocks) {
    const int ranks = z3d_world_size(world);
    for (Kind kind : {GPT, LLAMA})
        for (int tensor = 1; tensor <= ranks; tensor *= 2)
            for (int pipeline = 1; tensor * pipeline <= ranks && pipeline <= 2; pipeline *= 2) {
                Options o;
                o.kind = kind;
                o.tensor = tensor, o.pipeline = pipeline, o.accumulation = 2;
                o.reduce_per_step = 0;
                o.steps = 3;
                o.dropout = kind == GPT ? 0.1 : 0;
                o.tiling = kind == GPT ? 4 : tensor == 4 ? 11 : 2;
                o.sequence_parallel = tensor > 1 && (kind == LLAMA) == (pipeline == 1);
                compare_ways(o);
            }
}

namespace {

// Bytes of parameters that ZeRO-3 gathers, and of gradients, of the largest group.
void largest_groups(Options o, int64_t *gathered, int64_t *gradients, int64_t *peak) {
    *gathered = *gradients = *peak = 0;
    Trainer t(o);
    ASSERT_Z3D(t.create());
    const z3d_program *p = z3d_engine_program(t.engine, Z3D_MODE_TRAIN);
    for (int i = 0; i < p->num_buffers; i++) {
        const z3d_buffer &b = p->buffer[i];
        const std::string name = z3d_buffer_name(&b).text;
        if (name.find("gathered") == 0) *gathered = std::max(*gathered, b.bytes);
        if (name.find("full gradients") == 0) *gradients = std::max(*gradients, b.bytes);
    }
    *peak = p->arena[Z3D_SPACE_DEVICE];
}

} // namespace

TEST(Tiling, LessIsGathered) {
    Options o;
    o.stage = 3;
    o.hidden = 128, o.heads = 8, o.vocabulary = 40;
    o.micro_batch = 1;
    int64_t gathered[3], gradients[3], peak[3];
    const int64_t tiles[] = {1, 2, 8}, h = o.hidden;
    for (int k = 0; k < 3; k++) {
        o.tiling = tiles[k];
        o.checkpoint_every = k ? (int)tiles[k] + 1 : 1;
        largest_groups(o, &gathered[k], &gradients[k], &peak[k]);
    }
    // 12 h^2 a block, 4 h^2 its attention and a half of its MLP; the rest is biases and norms.
    EXPECT_NEAR((double)gathered[0] / (4.0 * 12 * h * h), 1, 0.03);
    for (int k : {1, 2}) {
        EXPECT_NEAR((double)gathered[k] / (4.0 * 4 * h * h), 1, 0.03);
        EXPECT_NEAR((double)gradients[k] / (4.0 * 4 * h * h), 1, 0.03);
        EXPECT_LT(peak[k], peak[0] - 4 * 8 * h * h);
    }
}

TEST(Tiling, BadTilesAreRefused) {
    Options o;
    o.tiling = 3; // of 128
    z3d_model *model = nullptr;
    EXPECT_EQ(Z3D_ERR_CONFIG, o.create_model(&model));
    EXPECT_STREQ("GPT: model.tiling: 3 tiles cannot share the MLP's 128 columns equally; write 2 "
                 "or 4",
                 z3d_error_message());
    o.tiling = 2;
    ASSERT_Z3D(o.create_model(&model));
    z3d_mesh alone;
    z3d_layout *layout = nullptr;
    ASSERT_Z3D(z3d_mesh_make(1, 1, 1, 0, &alone));
    z3d_parameter *fc = &model->group[3].parameter[0];
    for (int64_t first : {(int64_t)-1, (int64_t)65}) {
        fc->tile_first = first;
        EXPECT_EQ(Z3D_ERR_CONFIG, z3d_layout_create(model, &alone, nullptr, &layout)) << first;
    }
    z3d_model_destroy(model);
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
