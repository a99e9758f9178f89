// Classes of states of the test's own, with placements that no state of zero/ has: layout, memory
// plan and verifier know them, a step keeps their bytes, and nothing else changes.
#include "tests/zero/harness.h"

#include "tests/zero/programs.h"

using namespace harness;
using programs::Copy;
using programs::World;

namespace {

z3d_state_class added(const char *name, z3d_category category, z3d_placement at, int tensors,
                      bool of_all) {
    z3d_state_class c = {};
    c.name = name;
    c.category = category;
    c.state = {at, (1U << tensors) - 1};
    c.of_all = of_all;
    return c;
}

// A moment more in host memory; a 16-bit copy of a node's rows; an anchor that every rank has.
const std::vector<z3d_state_class> ADDED = {
    added("moment", Z3D_CATEGORY_OPTIMIZER, {Z3D_ROLE_ROWS, Z3D_SPACE_HOST, Z3D_F32}, 2, false),
    added("copy", Z3D_CATEGORY_PARAMETERS, {Z3D_ROLE_BLOCKS, Z3D_SPACE_DEVICE, Z3D_BF16}, 1, true),
    added("anchor", Z3D_CATEGORY_OPTIMIZER, {Z3D_AXES_NONE, Z3D_SPACE_DISK, Z3D_F32}, 1, false)};

z3d_state_role role_of(size_t index) {
    return z3d_state_role(Z3D_STATE_COUNT + index);
}

Options tiny(int stage) {
    Options o = programs::small();
    o.stage = stage;
    o.accumulation = 2;
    o.steps = 3;
    return o;
}

// Every way in which rows are divided, with an offloaded optimizer, and with frozen parameters.
std::vector<Options> four_ranks() {
    std::vector<Options> list;
    for (int stage : {0, 1, 2, 3}) list.push_back(tiny(stage));
    for (z3d_sharding sharding :
         {Z3D_SHARDING_HIERARCHICAL, Z3D_SHARDING_HPZ, Z3D_SHARDING_HYBRID}) {
        list.push_back(tiny(3));
        list.back().sharding = sharding;
        list.back().outer = 2;
    }
    list.push_back(tiny(2));
    list.back().tiers.optimizer = Z3D_SPACE_HOST;
    list.push_back(tiny(3));
    list.back().frozen = {"block.0/*"};
    for (Options &o : list) o.data = 4;
    list.push_back(tiny(1));
    list.back().data = list.back().pipeline = 2;
    return list;
}

// What the placement says, without the layout's functions.
int64_t expected_bytes(const Options &o, const z3d_group_layout &g, const z3d_state_class &of) {
    const int64_t inner = o.data / o.outer;
    const int64_t ranks =
        of.state.at.sharded == Z3D_AXES_NONE                                          ? 1
        : o.sharding == Z3D_SHARDING_HYBRID || of.state.at.sharded == Z3D_ROLE_BLOCKS ? inner
                                                                                      : o.data;
    int64_t elements = g.padded / ranks;
    if (!g.held || (g.frozen && !of.of_all)) return 0;
    if (of.state.at.space == Z3D_SPACE_DISK) // of blocks of 4 KiB
        elements = (elements + 1023) / 1024 * 1024;
    return elements * (of.state.at.codec == Z3D_F32 ? 4 : 2) * z3d_count_kinds(of.state.kinds);
}

int64_t peak(const z3d_program &p, z3d_space space, z3d_category category) {
    z3d_ledger ledger;
    z3d_program_ledger(&p, space, &ledger);
    return ledger.peak[category];
}

// The memory plan has exactly those bytes more, each in its space and category.
void expect_more(const Options &o, const z3d_program &with, const z3d_program &without) {
    for (int space = 0; space < Z3D_SPACE_COUNT; space++)
        for (z3d_category category : {Z3D_CATEGORY_PARAMETERS, Z3D_CATEGORY_OPTIMIZER}) {
            int64_t more = 0;
            for (const z3d_state_class &of : ADDED)
                for (int g = 0; g < with.model->num_groups; g++)
                    if (of.state.at.space == space && of.category == category)
                        more += expected_bytes(o, with.layout->group[g], of);
            EXPECT_EQ(peak(with, z3d_space(space), category),
                      peak(without, z3d_space(space), category) + more)
                << space << " " << z3d_category_name(category);
        }
    EXPECT_EQ(with.num_instructions, without.num_instructions);
    EXPECT_EQ(with.num_buffers - without.num_buffers, with.model->num_groups * (int)ADDED.size());
}

void expect_refused(Copy &c, const std::string &why) {
    EXPECT_EQ(z3d_program_verify(c.sync()), Z3D_ERR_PROGRAM);
    EXPECT_NE(std::string(z3d_error_message()).find(why), std::string::npos) << z3d_error_message();
}

// A byte of every added state of this rank, by its place.
char byte_at(size_t index, int group, int64_t at) {
    return char(mix(uint64_t(at) * 64 + index * 16 + uint64_t(group)));
}

struct Bytes {
    bool write, equal;
};

// Writes them all, or compares.
void walk(const Trainer &t, Bytes &bytes) {
    const z3d_executor *executor = z3d_engine_main(t.engine);
    const z3d_layout *layout = z3d_engine_layout(t.engine);
    for (size_t k = 0; k < ADDED.size(); k++)
        for (int g = 0; g < layout->num_groups; g++) {
            const z3d_state &state = layout->group[g].state[role_of(k)];
            const int64_t size =
                z3d_bytes_of(state.at.codec, z3d_state_elements(layout, g, role_of(k)));
            for (int tensor = 0; tensor < z3d_count_kinds(state.kinds); tensor++) {
                std::vector<char> want((size_t)size), have((size_t)size);
                for (int64_t i = 0; i < size; i++)
                    want[(size_t)i] = byte_at(k, g, tensor * size + i);
                const int64_t first = z3d_state_first(layout, g, role_of(k));
                ASSERT_Z3D((bytes.write ? z3d_executor_write_state(executor, g, role_of(k), tensor,
                                                                   first, want.data(), size)
                                        : z3d_executor_read_state(executor, g, role_of(k), tensor,
                                                                  first, have.data(), size)));
                bytes.equal = bytes.equal && (bytes.write || want == have);
            }
        }
}

} // namespace

TEST(AddedStates, HaveTheirPlacesInEveryProgram) {
    if (z3d_world_size(world) > 1) GTEST_SKIP() << "one rank builds all programs";
    for (const Options &plain : four_ranks()) {
        SCOPED_TRACE(name_of(plain));
        Options more = plain;
        more.added_states = ADDED;
        World without(plain), with(more);
        ASSERT_Z3D(without.prepare());
        ASSERT_Z3D(with.prepare());
        for (z3d_mode mode : {Z3D_MODE_TRAIN, Z3D_MODE_EVALUATE}) {
            ASSERT_Z3D(without.build(mode));
            ASSERT_Z3D(with.build(mode));
            for (size_t rank = 0; rank < with.programs.size(); rank++) {
                ASSERT_Z3D(z3d_program_verify(with.programs[rank]));
                expect_more(with.o, *with.programs[rank], *without.programs[rank]);
            }
        }
    }
}

TEST(AddedStates, AreVerified) {
    if (z3d_world_size(world) > 1) GTEST_SKIP() << "one rank builds all programs";
    World built(tiny(2));
    built.o.data = 4;
    built.o.added_states = ADDED;
    ASSERT_Z3D(built.prepare());
    ASSERT_Z3D(built.build());
    const z3d_program &p = *built.programs[0];
    const int moment = z3d_program_group_buffer(&p, 1, role_of(0)),
              copy = z3d_program_group_buffer(&p, 1, role_of(1));
    Copy smaller(p), elsewhere(p), released(p), written(p);
    smaller.buffers[(size_t)moment].bytes -= 256;
    expect_refused(smaller, "moment");
    elsewhere.buffers[(size_t)moment].space = Z3D_SPACE_DEVICE;
    expect_refused(elsewhere, "in host memory");
    released.buffers[(size_t)copy].persistent = false;
    expect_refused(released, "must be copy: persistent");
    // An entry leaves its result there, too.
    const int keep = written.find(Z3D_OP_KEEP_SHARD);
    programs::Instruction again = written.entries[(size_t)keep];
    again.buffer[Z3D_SLOT_SHARD] = z3d_program_group_buffer(&p, again.group, role_of(1));
    written.entries.insert(written.entries.begin() + keep, again);
    ASSERT_Z3D(written.settle());
    expect_refused(written, "must hold copy of");
}

TEST(AddedStates, WrongOnesAreRefused) {
    if (z3d_world_size(world) > 1) GTEST_SKIP() << "needs no ranks";
    World tensor(tiny(1)), many(tiny(1));
    tensor.o.added_states = {ADDED[0]};
    tensor.o.added_states[0].state.at.sharded = Z3D_ROLE_PARTS;
    EXPECT_EQ(tensor.prepare(), Z3D_ERR_CONFIG);
    EXPECT_NE(std::string(z3d_error_message()).find("moment"), std::string::npos);
    many.o.added_states.assign(5, ADDED[0]);
    EXPECT_EQ(many.prepare(), Z3D_ERR_CONFIG);
}

// Steps, evaluation and a move to another engine keep every byte, and no loss changes.
TEST(AddedStates, AreKeptByEveryRun) {
    for (int turn = 0; turn < 4; turn++) {
        Options o = tiny(turn % 4);
        o.data = 0;
        o.micro_batch = 0;
        o.global_batch = 16;
        if (turn == 2) o.tiers.optimizer = Z3D_SPACE_HOST;
        if (turn == 3 && z3d_world_size(world) == 4) o.sharding = Z3D_SHARDING_HPZ, o.outer = 2;
        SCOPED_TRACE(name_of(o));
        const Result plain = train(o);
        o.added_states = ADDED;
        Trainer t(o);
        ASSERT_Z3D(t.create());
        Bytes bytes = {true, true};
        walk(t, bytes);
        bytes.write = false;
        std::vector<double> losses;
        for (int k = 0; k < o.steps; k++) {
            z3d_step_result r;
            ASSERT_Z3D(t.step(&r));
            losses.push_back(r.loss);
        }
        double loss;
        ASSERT_Z3D(t.evaluate(&loss));
        walk(t, bytes);
        EXPECT_TRUE(bytes.equal);
        EXPECT_TRUE(same_bits(plain.loss, losses));
        std::vector<char> kept;
        ASSERT_Z3D(z3d_engine_move_kept(
            t.engine, false,
            [](void *to, void *piece, int64_t count) {
                std::vector<char> &all = *static_cast<std::vector<char> *>(to);
                all.insert(all.end(), static_cast<char *>(piece),
                           static_cast<char *>(piece) + count);
                return Z3D_OK;
            },
            &kept));
        Trainer other(o);
        ASSERT_Z3D(other.create());
        const char *from = kept.data();
        ASSERT_Z3D(z3d_engine_move_kept(
            other.engine, true,
            [](void *at, void *piece, int64_t count) {
                const char *&next = *static_cast<const char **>(at);
                std::memcpy(piece, next, size_t(count));
                next += count;
                return Z3D_OK;
            },
            &from));
        EXPECT_EQ(from, kept.data() + kept.size());
        walk(other, bytes);
        EXPECT_TRUE(bytes.equal);
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
