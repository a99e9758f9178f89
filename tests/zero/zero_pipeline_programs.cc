// Programs of pipelines. What the verifier finds: sends and receives that do not belong together,
// wrong ends, waits at the wrong place, circular waits; the ranks or the stage are named. Bytes of
// activations by schedule. Text.
#include <functional>
#include <iterator>

#include "tests/zero/programs.h"
#include "tests/zero/random_schedule.h"

extern "C" {
#include "zero/program/set.h"
}

namespace {

using harness::Schedule;
using harness::SCHEDULES;
using programs::Copy;
using programs::Options;
using programs::World;

Options options(const Schedule &schedule, int pipeline, int tensor, int accumulation) {
    Options o = programs::small();
    o.schedule = schedule.kind;
    o.chunks = schedule.chunks;
    o.pipeline = pipeline;
    o.tensor = tensor;
    o.accumulation = accumulation;
    o.stage = 3;
    o.layers = 7;
    return o;
}

// Which entry: the n-th of its kind that is about this micro-batch (-1: any).
struct Entry {
    z3d_opcode opcode;
    z3d_phase phase;
    int micro, skip;
};

int find(const Copy &c, Entry e) {
    for (size_t i = 0; i < c.entries.size(); i++) {
        const z3d_instruction &in = c.entries[i];
        if (in.opcode == e.opcode && in.phase == e.phase && (e.micro < 0 || in.micro == e.micro) &&
            e.skip-- == 0)
            return (int)i;
    }
    ADD_FAILURE() << z3d_opcode_name(e.opcode) << " is not in the program";
    return 0;
}

z3d_instruction &at(Copy &c, Entry e) {
    return c.entries[(size_t)find(c, e)];
}

Entry start(z3d_opcode opcode, int micro = -1, int skip = 0) {
    return {opcode, Z3D_PHASE_START, micro, skip};
}

Entry wait(z3d_opcode opcode, int micro = -1, int skip = 0) {
    return {opcode, Z3D_PHASE_WAIT, micro, skip};
}

void erase(Copy &c, Entry e) {
    c.entries.erase(c.entries.begin() + find(c, e));
}

// Both halves of a send or receive.
void erase_both(Copy &c, z3d_opcode opcode, int micro = -1, int skip = 0) {
    int ticket = at(c, start(opcode, micro, skip)).ticket;
    for (size_t i = c.entries.size(); i-- > 0;)
        if (c.entries[i].phase != Z3D_PHASE_WHOLE && c.entries[i].ticket == ticket)
            c.entries.erase(c.entries.begin() + (long)i);
}

// Again, with a ticket of its own.
void twice(Copy &c, z3d_opcode opcode) {
    int first = find(c, start(opcode)), ticket = c.program.num_tickets++;
    programs::Instruction again = c.entries[(size_t)first];
    int last = first;
    while (c.entries[(size_t)last].phase != Z3D_PHASE_WAIT ||
           c.entries[(size_t)last].ticket != again.ticket)
        last++;
    for (z3d_phase phase : {Z3D_PHASE_WAIT, Z3D_PHASE_START}) {
        again.phase = phase;
        again.ticket = ticket;
        c.entries.insert(c.entries.begin() + last + 1, again);
    }
}

void move_before(Copy &c, Entry what, Entry where) {
    int from = find(c, what), to = find(c, where);
    programs::Instruction entry = c.entries[(size_t)from];
    c.entries.insert(c.entries.begin() + to, entry);
    c.entries.erase(c.entries.begin() + from + (to < from));
}

void move_behind(Copy &c, Entry what, Entry where) {
    int from = find(c, what), to = find(c, where) + 1;
    programs::Instruction entry = c.entries[(size_t)from];
    c.entries.insert(c.entries.begin() + to, entry);
    c.entries.erase(c.entries.begin() + from + (to < from));
}

// One fault, in the programs of some ranks.
struct Fault {
    const char *what;
    std::vector<int> ranks;
    std::function<void(Copy &)> apply;
    bool alone; // the program of the first of them is refused without the others', too
    std::vector<const char *> words;
};

void expect_words(const std::vector<const char *> &words) {
    for (const char *word : words)
        EXPECT_NE(nullptr, strstr(z3d_error_message(), word))
            << z3d_error_message() << "\n  lacks: " << word;
}

void expect_refused(World &world, const Fault &fault) {
    SCOPED_TRACE(programs::name_of(world.o) + ": " + fault.what);
    std::vector<std::unique_ptr<Copy>> copies;
    std::vector<z3d_program *> all = world.programs;
    for (int rank : fault.ranks) {
        copies.push_back(std::make_unique<Copy>(*all[(size_t)rank]));
        fault.apply(*copies.back());
        ASSERT_Z3D(copies.back()->settle());
        all[(size_t)rank] = copies.back()->sync();
    }
    EXPECT_EQ(z3d_program_verify(all[(size_t)fault.ranks[0]]),
              fault.alone ? Z3D_ERR_PROGRAM : Z3D_OK)
        << z3d_error_message();
    if (fault.words.empty()) return; // the ends agree
    EXPECT_EQ(z3d_program_verify_world(all.data(), (int)all.size()), Z3D_ERR_PROGRAM);
    expect_words(fault.words);
}

// Ranks 0 and 1 are the two stages.
const std::vector<Fault> &faults() {
    static const std::vector<Fault> list = {
        {"a send is missing",
         {0},
         [](Copy &c) { erase_both(c, Z3D_OP_SEND_INPUT); },
         false,
         {"rank 0", "rank 1", "send_input", "recv_input"}},
        {"a receive is missing",
         {1},
         [](Copy &c) { erase_both(c, Z3D_OP_RECV_INPUT); },
         true,
         {"rank 0", "rank 1", "send_input"}},
        {"a gradient is not sent back",
         {1},
         [](Copy &c) { erase_both(c, Z3D_OP_SEND_INPUT_GRADIENT, 1); },
         false,
         {"rank 0", "rank 1", "input_gradient"}},
        {"the last gradient is not sent back",
         {1},
         [](Copy &c) {
             int last = -1;
             while (c.find(Z3D_OP_SEND_INPUT_GRADIENT, last + 1, Z3D_PHASE_START) >= 0) last++;
             erase_both(c, Z3D_OP_SEND_INPUT_GRADIENT, -1, last);
         },
         false,
         {"rank 0", "rank 1", "recv_input_gradient"}},
        {"it is sent twice",
         {0},
         [](Copy &c) { twice(c, Z3D_OP_SEND_INPUT); },
         false,
         {"rank 0", "rank 1", "send_input"}},
        {"it is received twice",
         {1},
         [](Copy &c) { twice(c, Z3D_OP_RECV_INPUT); },
         false,
         {"rank 0", "rank 1", "recv_input"}},
        {"the tied table's gradients are not sent",
         {0},
         [](Copy &c) { erase_both(c, Z3D_OP_SEND_GRADS); },
         false,
         {"rank 0", "rank 1", "recv_grads wte"}},
        {"the tied table's gradients are not received",
         {1},
         [](Copy &c) { erase_both(c, Z3D_OP_RECV_GRADS); },
         true,
         {"rank 0", "rank 1", "send_grads wte"}},
        {"the tied table's gradients are not added",
         {0, 1},
         [](Copy &c) { c.entries.erase(c.entries.begin() + c.find(Z3D_OP_ADD_GRADS)); },
         true,
         {}},
        {"both send the tied table's gradients first",
         {1},
         [](Copy &c) { move_before(c, start(Z3D_OP_SEND_GRADS), start(Z3D_OP_RECV_GRADS)); },
         false,
         {"rank 0", "rank 1", "send_grads wte"}},
        {"a wait is missing", {1}, [](Copy &c) { erase(c, wait(Z3D_OP_RECV_INPUT)); }, true, {}},
        {"a receive waits for the next micro-batch's",
         {1},
         [](Copy &c) {
             z3d_instruction &a = at(c, wait(Z3D_OP_RECV_INPUT, 0)),
                             &b = at(c, wait(Z3D_OP_RECV_INPUT, 1));
             std::swap(a, b);
         },
         true,
         {}},
        {"it sends another micro-batch",
         {0},
         [](Copy &c) {
             at(c, start(Z3D_OP_SEND_INPUT, 0)).micro = 1;
             at(c, wait(Z3D_OP_SEND_INPUT, 0)).micro = 1;
         },
         true,
         {"rank 0", "rank 1", "micro 1", "micro 0"}},
        {"it receives another micro-batch",
         {1},
         [](Copy &c) {
             at(c, start(Z3D_OP_RECV_INPUT, 0)).micro = 1;
             at(c, wait(Z3D_OP_RECV_INPUT, 0)).micro = 1;
         },
         true,
         {"rank 0", "rank 1", "micro 1", "micro 0"}},
        {"it sends another unit's output",
         {0},
         [](Copy &c) {
             int unit = at(c, start(Z3D_OP_SEND_INPUT)).unit;
             for (z3d_instruction &in : c.entries)
                 if (in.opcode == Z3D_OP_SEND_INPUT && in.unit == unit) in.unit--;
         },
         true,
         {"rank 0", "rank 1", "do not belong together"}},
        {"a shorter part is sent",
         {0},
         [](Copy &c) {
             at(c, start(Z3D_OP_SEND_INPUT, 0)).count--;
             at(c, wait(Z3D_OP_SEND_INPUT, 0)).count--;
         },
         true,
         {"rank 0", "rank 1", "do not belong together"}},
        {"both ends move a shorter part",
         {0, 1},
         [](Copy &c) {
             for (z3d_instruction &in : c.entries)
                 if (z3d_is_point_to_point(&in) && in.unit >= 0) in.count--;
         },
         true,
         {}},
        {"a unit writes where the output before is still being sent",
         {0},
         [](Copy &c) {
             int sent = at(c, start(Z3D_OP_SEND_INPUT, 0)).buffer[Z3D_SLOT_INPUT], written = -1;
             size_t i = (size_t)find(c, start(Z3D_OP_SEND_INPUT, 0));
             size_t over = (size_t)find(c, wait(Z3D_OP_SEND_INPUT, 0));
             for (; i < over && written < 0; i++)
                 for (int slot : {Z3D_SLOT_OUTPUT, Z3D_SLOT_INPUT_GRADIENT, Z3D_SLOT_WORKSPACE})
                     written = std::max(written, c.entries[i].buffer[slot]);
             ASSERT_GE(written, 0);
             c.buffers[(size_t)sent].bytes = 1 << 20;
             for (programs::Instruction &in : c.entries)
                 for (int &buffer : in.slots)
                     if (buffer == written) buffer = sent;
         },
         true,
         {}},
    };
    return list;
}

// Four ranks, tensor 2 x pipeline 2, that meet nobody: rank 1 waits for its gradient before the
// collective for which rank 0 waits, rank 2 for rank 0's output before the one for which rank 3
// waits, and rank 3 gives rank 1 its gradient behind it. No two of them alone are in a circle.
void wait_in_a_circle(Copy &c, int rank) {
    const Entry second = {Z3D_OP_FORWARD, Z3D_PHASE_WHOLE, 1, 0};
    const Entry first_back = {Z3D_OP_BACKWARD, Z3D_PHASE_WHOLE, 0, 0};
    if (rank == 1) {
        move_before(c, start(Z3D_OP_RECV_INPUT_GRADIENT, 0), second);
        move_before(c, wait(Z3D_OP_RECV_INPUT_GRADIENT, 0), second);
    }
    if (rank == 2) {
        move_before(c, start(Z3D_OP_RECV_INPUT, 1), first_back);
        move_before(c, wait(Z3D_OP_RECV_INPUT, 1), first_back);
    }
    if (rank == 3) {
        // The gradient leaves before the next input is asked for.
        const Entry asked = start(Z3D_OP_RECV_INPUT, 1);
        int from = find(c, asked), to = find(c, start(Z3D_OP_SEND_INPUT_GRADIENT, 0));
        programs::Instruction entry = c.entries[(size_t)from];
        c.entries.insert(c.entries.begin() + to + 1, entry);
        c.entries.erase(c.entries.begin() + from);
    }
}

} // namespace

// Whatever order a user writes, with whatever else is on, the builder's programs can run.
TEST(Pipeline, AnyScheduleThatCanRunIsAccepted) {
    std::mt19937 random(20261123);
    auto of = [&](std::initializer_list<int> values) {
        return *(values.begin() + (long)(random() % values.size()));
    };
    for (unsigned seed = 0; seed < (SANITIZED ? 20 : 150); seed++) {
        Options o = options({Z3D_SCHEDULE_FILE, of({1, 1, 2, 3})}, of({1, 2, 3, 4}), of({1, 1, 2}),
                            of({1, 2, 3, 5}));
        harness::RandomSchedule any(seed, o.pipeline, o.chunks, o.accumulation);
        ASSERT_Z3D(z3d_schedule_check(&any.schedule));
        o.file = &any.schedule;
        o.data = of({1, 2});
        o.stage = of({0, 1, 2, 3});
        o.layers = o.pipeline * o.chunks - 2 + of({0, 1, 5});
        if (o.layers < 1) o.layers = 1;
        o.reduce_per_step = of({0, 1});
        o.recompute = of({0, 1});
        o.selective = !o.recompute && of({0, 1});
        o.sequence_parallel = o.tensor > 1 && of({0, 1});
        o.partition = o.recompute && o.tensor > 1 && of({0, 1});
        if (o.recompute)
            o.checkpoint_space = (z3d_space)of({Z3D_SPACE_DEVICE, Z3D_SPACE_HOST, Z3D_SPACE_DISK});
        o.checkpoint_every = o.recompute ? of({1, 2}) : 1;
        o.gather_per_step = of({0, 1});
        o.overlap = of({0, 1});
        o.keep_activation = of({0, 1});
        SCOPED_TRACE(programs::name_of(o) + " schedule " + std::to_string(seed));
        World world(o);
        ASSERT_Z3D(world.prepare());
        ASSERT_Z3D(world.build());
        for (const z3d_program *p : world.programs) ASSERT_Z3D(z3d_program_verify(p));
        ASSERT_Z3D(z3d_program_verify_world(world.programs.data(), world.size()));
    }
}

TEST(Pipeline, FaultsAreRefusedInEverySchedule) {
    for (const Schedule &schedule : SCHEDULES)
        for (bool overlap : {true, false}) {
            Options o = options(schedule, 2, 1, 4);
            o.overlap = overlap;
            o.recompute = false;
            World world(o);
            ASSERT_Z3D(world.prepare());
            ASSERT_Z3D(world.build());
            for (const Fault &fault : faults()) {
                if (strstr(fault.what, "tied table") && schedule.kind == Z3D_SCHEDULE_ZB_V)
                    continue; // one stage has both its uses
                if (!overlap && strstr(fault.what, "still being sent"))
                    continue; // it is over at once
                expect_refused(world, fault);
                if (HasFatalFailure()) return;
            }
        }
}

TEST(Pipeline, CollectivesAndReceivesInACircleAreRefused) {
    World world(options(SCHEDULES[0], 2, 2, 2));
    world.o.stage = 0;
    world.o.recompute = world.o.overlap = false;
    world.o.sequence_parallel = true; // what crosses is not gathered
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    std::vector<std::unique_ptr<Copy>> copies;
    std::vector<z3d_program *> all;
    for (int rank = 0; rank < 4; rank++) {
        copies.push_back(std::make_unique<Copy>(*world.programs[(size_t)rank]));
        wait_in_a_circle(*copies.back(), rank);
        ASSERT_Z3D(copies.back()->settle());
        all.push_back(copies.back()->sync());
        EXPECT_Z3D(z3d_program_verify(all.back())) << "rank " << rank;
    }
    EXPECT_EQ(z3d_program_verify_world(all.data(), 4), Z3D_ERR_PROGRAM);
    expect_words({"4 of 4 ranks wait", "rank 0 waits in", "rank 1 waits in", "rank 2 waits in",
                  "rank 3 waits in", "recv_input_gradient", "reduce_scatter of"});
    for (const std::vector<int> &mended : {std::vector<int>{2}, {1, 3}}) { // no circle then
        std::vector<z3d_program *> others = all;
        for (int rank : mended) others[(size_t)rank] = world.programs[(size_t)rank];
        EXPECT_Z3D(z3d_program_verify_world(others.data(), 4)) << "rank " << mended[0];
    }
}

// Collectives and transfers are on one lane: two data ranks of a stage that start a reduction and a
// transfer in different orders would wait for each other through the other stage, though the
// reductions among themselves, and the transfers, are in order.
TEST(Pipeline, CollectivesAndTransfersTakeTurns) {
    World world(options(SCHEDULES[0], 2, 1, 2));
    world.o.data = 2;
    world.o.stage = 2;
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    Copy zero(*world.programs[0]), one(*world.programs[1]);
    Copy two(*world.programs[2]), three(*world.programs[3]);
    const Entry received = start(Z3D_OP_RECV_INPUT_GRADIENT, 1),
                sent = start(Z3D_OP_SEND_INPUT_GRADIENT, 1);
    const Entry reduced = start(Z3D_OP_REDUCE_GRADS, 0), also = start(Z3D_OP_REDUCE_GRADS, 1);
    move_behind(zero, received, reduced);
    move_before(one, received, reduced);
    move_before(two, sent, also);
    move_behind(three, sent, also);
    z3d_program *all[] = {zero.sync(), one.sync(), two.sync(), three.sync()};
    EXPECT_EQ(z3d_program_verify_world(all, 4), Z3D_ERR_PROGRAM);
    expect_words({"4 of 4 ranks wait"});
    z3d_program *in_order[] = {all[0], world.programs[1], world.programs[2], all[3]};
    EXPECT_Z3D(z3d_program_verify_world(in_order, 4));
}

// A step of a large world: one program of each stage stands for all ranks of it.
TEST(Pipeline, ALargeWorldIsVerifiedByClasses) {
    for (const Schedule &schedule : SCHEDULES) {
        Options o = options(schedule, 4, 8, 8);
        o.data = 16;
        o.hidden = 64;
        o.heads = 8;
        o.sequence_parallel = true;
        SCOPED_TRACE(programs::name_of(o));
        z3d_model *model = nullptr;
        z3d_mesh mesh;
        z3d_program_config config = o.program_config();
        z3d_program_set set[4];
        std::vector<z3d_program *> all;
        ASSERT_Z3D(o.create_model(&model));
        for (int stage = 0; stage < 4; stage++) {
            ASSERT_Z3D(z3d_mesh_make(8, 16, 4, 5, &mesh));
            mesh.rank = z3d_mesh_member(&mesh, Z3D_AXES_PIPELINE, 5, stage);
            ASSERT_Z3D(z3d_program_set_create(model, &mesh, &config, 1, true, &set[stage]));
            EXPECT_TRUE(set[stage].classes);
            all.push_back(set[stage].program[Z3D_MODE_TRAIN]);
        }
        EXPECT_Z3D(z3d_program_verify_classes(all.data(), 4));
        std::vector<z3d_program *> wrong = all;
        Copy lost(*all[2]);
        erase_both(lost, Z3D_OP_SEND_INPUT, 3);
        wrong[2] = lost.sync();
        EXPECT_EQ(z3d_program_verify_classes(wrong.data(), 4), Z3D_ERR_PROGRAM);
        expect_words({"pipeline stage 2", "pipeline stage 3", "recv_input"});
        Copy late(*all[1]);
        erase(late, start(Z3D_OP_RECV_INPUT, 2));
        wrong = all;
        wrong[1] = late.sync();
        EXPECT_EQ(z3d_program_verify_classes(wrong.data(), 4), Z3D_ERR_PROGRAM);
        expect_words({"pipeline stage 1"});
        for (z3d_program_set &s : set) z3d_program_set_release(&s);
        z3d_model_destroy(model);
    }
}

TEST(Pipeline, SchedulesThatDoNotFitAreRefused) {
    Options o = options({Z3D_SCHEDULE_INTERLEAVED, 2}, 2, 1, 3);
    World world(o);
    ASSERT_Z3D(world.prepare());
    EXPECT_EQ(world.build(), Z3D_ERR_CONFIG);
    expect_words({"interleaved", "micro"});
    o = options(SCHEDULES[0], 4, 1, 4);
    o.layers = 1;
    World small(o);
    EXPECT_EQ(small.prepare(), Z3D_ERR_CONFIG);
    expect_words({"3 units", "4 chunks"});
}

namespace {

// Peak bytes of activations on the first stage.
int64_t activations(const Options &o, int64_t *saved) {
    World world(o);
    z3d_ledger ledger{};
    EXPECT_Z3D(world.prepare());
    EXPECT_Z3D(world.build());
    z3d_program_ledger(world.programs[0], Z3D_SPACE_DEVICE, &ledger);
    int block = world.model->unit[1].kind;
    *saved = z3d_traces_get(world.traces, Z3D_MODE_TRAIN, block, Z3D_CALL_RECOMPUTE)->saved;
    return ledger.peak[Z3D_CATEGORY_ACTIVATIONS];
}

} // namespace

// 1f1b keeps at most as many micro-batches as there are stages, gpipe all: of each the inputs of
// the stage's blocks. While the first of them goes back, the block has its saved memory and the
// gradients of its output and its input.
TEST(Pipeline, ActivationBytesAreTheFormulas) {
    for (int stages : {2, 3, 4})
        for (int micros : {1, 2, 4, 7})
            for (bool sequence : {false, true})
                for (z3d_schedule_kind kind : {Z3D_SCHEDULE_1F1B, Z3D_SCHEDULE_GPIPE}) {
                    Options o = options({kind, 1}, stages, sequence ? 2 : 1, micros);
                    o.overlap = false;
                    o.sequence_parallel = sequence;
                    o.layers = 4 * stages - 2; // embedding and three blocks on the first stage
                    SCOPED_TRACE(programs::name_of(o));
                    int64_t input = o.micro_batch * o.sequence * o.hidden * 2 / o.tensor, saved;
                    int kept = kind == Z3D_SCHEDULE_GPIPE ? micros : std::min(stages, micros);
                    int64_t bytes = activations(o, &saved);
                    EXPECT_EQ(bytes, kept * 3 * input + saved + 2 * input);
                    o.overlap = true; // one is still being sent, the next is on its way
                    int64_t beside = activations(o, &saved) - bytes;
                    EXPECT_TRUE(beside >= 0 && beside <= 2 * input) << beside;
                }
}

// Whatever a micro-batch keeps: 1f1b takes what gpipe takes for as many micro-batches as there are
// stages, and gpipe equally more for each more.
TEST(Pipeline, OnlyGpipesActivationsGrowWithTheMicroBatches) {
    for (bool selective : {false, true}) {
        int64_t gpipe[7], saved;
        Options o = options(SCHEDULES[1], 3, 1, 1);
        o.recompute = o.overlap = false;
        o.selective = selective;
        for (o.accumulation = 1; o.accumulation < 7; o.accumulation++)
            gpipe[o.accumulation] = activations(o, &saved);
        for (int m = 2; m < 6; m++) EXPECT_EQ(gpipe[m + 1] - gpipe[m], gpipe[2] - gpipe[1]) << m;
        EXPECT_GT(gpipe[2], gpipe[1]);
        o.schedule = Z3D_SCHEDULE_1F1B;
        for (o.accumulation = 1; o.accumulation < 7; o.accumulation++)
            EXPECT_EQ(activations(o, &saved), gpipe[std::min(o.accumulation, 3)]);
    }
}

TEST(Pipeline, TextNamesTheOtherStage) {
    World world(options(SCHEDULES[0], 2, 1, 2));
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    auto described = [&](int rank, Entry e) {
        Copy c(*world.programs[(size_t)rank]);
        char text[160];
        return std::string(z3d_instruction_describe(&c.program, find(c, e), text, sizeof text));
    };
    EXPECT_EQ(described(0, start(Z3D_OP_SEND_INPUT, 1)),
              "start send_input block.4 to stage 1 (micro 1, columns 0-255)");
    EXPECT_EQ(described(1, wait(Z3D_OP_RECV_INPUT, 0)),
              "wait recv_input block.4 from stage 0 (micro 0, columns 0-255)");
    EXPECT_EQ(described(1, start(Z3D_OP_SEND_INPUT_GRADIENT, 0)),
              "start send_input_gradient block.4 to stage 0 (micro 0, columns 0-255)");
    EXPECT_EQ(described(0, wait(Z3D_OP_RECV_INPUT_GRADIENT, 1)),
              "wait recv_input_gradient block.4 from stage 1 (micro 1, columns 0-255)");
    EXPECT_EQ(described(0, start(Z3D_OP_RECV_GRADS)).rfind("start recv_grads wte from stage 1", 0),
              0u);
    z3d_string out = {};
    z3d_program_print(world.programs[1], &out);
    ASSERT_FALSE(out.failed);
    std::string text(out.text, out.length);
    z3d_string_free(&out);
    for (const char *part :
         {"pipeline 1/2", "start recv_input", "512 B  stage 0  out=received block.3 m0@"})
        EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
