// The verifier: accepts what the builder makes, in every configuration; names the first entry that
// is wrong and why; finds circular waits between ranks. Also the text of programs and their volume.
#include <algorithm>
#include <functional>

#include "tests/zero/programs.h"

namespace {

using programs::Copy;
using programs::Options;
using programs::World;

Options options(int stage, int tensor, int data, int accumulation) {
    Options o = programs::small();
    o.stage = stage;
    o.tensor = tensor;
    o.data = data;
    o.accumulation = accumulation;
    return o;
}

void expect_accepted(const Options &o) {
    SCOPED_TRACE(programs::name_of(o));
    World world(o);
    ASSERT_Z3D(world.prepare());
    for (z3d_mode mode : {Z3D_MODE_TRAIN, Z3D_MODE_EVALUATE, Z3D_MODE_PREFILL,
                          Z3D_MODE_PREFILL_SHORT, Z3D_MODE_DECODE}) {
        ASSERT_Z3D(world.build(mode));
        for (z3d_program *p : world.programs) {
            ASSERT_Z3D(z3d_program_verify(p)) << "mode " << mode;
            EXPECT_LE((double)p->arena[Z3D_SPACE_DEVICE], 1.02 * (double)p->bound[0]);
        }
        ASSERT_Z3D(z3d_program_verify_world(world.programs.data(), world.size()));
    }
}

TEST(Verifier, AcceptsTheBuildersPrograms) {
    for (const Options &o : programs::dozen()) expect_accepted(o);
    for (const Options &o : programs::pipelines()) expect_accepted(o);
    for (int stage = 0; stage < 4; stage++) {
        for (int data : {1, 2, 3}) {
            for (int accumulation : {1, 2}) {
                for (int bits = 0; bits < 8; bits++) {
                    Options o = options(stage, 1 + (bits & 1), data, accumulation);
                    o.reduce_per_step = bits & 2;
                    o.recompute = bits & 4;
                    o.overlap = bits != 5;
                    o.layers = 1 + bits % 3;
                    o.bucket = 300 + 2000 * (bits % 2);
                    ASSERT_NO_FATAL_FAILURE(expect_accepted(o));
                }
            }
        }
    }
}

// A model too large for a test's memory costs nothing: only lists are made.
TEST(Verifier, AcceptsADeepModelWithManyMicroBatches) {
    Options o = options(3, 2, 4, 16);
    o.layers = 96;
    o.hidden = 12288;
    o.heads = 96;
    o.sequence = 2048;
    o.vocabulary = 50257;
    o.bucket = 500000000;
    World world(o);
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    ASSERT_Z3D(z3d_program_verify(world.programs[0]));
    ASSERT_Z3D(z3d_program_verify_world(world.programs.data(), world.size()));
    const z3d_program *p = world.programs[0];
    EXPECT_LE((double)p->arena[Z3D_SPACE_DEVICE], 1.02 * (double)p->bound[Z3D_SPACE_DEVICE]);
}

// ---- one wrong entry, named ----

struct Wrong {
    const char *what;
    Options o;
    std::function<void(Copy &)> apply;
    std::vector<const char *> words; // of the message
};

void expect_refused(const Wrong &wrong) {
    SCOPED_TRACE(wrong.what);
    World world(wrong.o);
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    Copy c(*world.programs[0]);
    wrong.apply(c);
    ASSERT_EQ(z3d_program_verify(c.sync()), Z3D_ERR_PROGRAM);
    for (const char *word : wrong.words)
        EXPECT_NE(std::string(z3d_error_message()).find(word), std::string::npos)
            << z3d_error_message() << "\n  lacks: " << word;
}

// One collective would add in another order than two halves do.
TEST(Verifier, RefusesOneCollectiveInsteadOfTwoHalves) {
    Options o = options(2, 1, 4, 1);
    o.outer = 2;
    o.sharding = Z3D_SHARDING_HIERARCHICAL;
    o.bucket = 1 << 20;
    expect_refused({"a flat reduction",
                    o,
                    [](Copy &c) {
                        for (z3d_instruction &in : c.entries)
                            if (in.opcode == Z3D_OP_REDUCE_GRADS && in.axes == Z3D_ROLE_BLOCKS) {
                                in.axes = Z3D_ROLE_ROWS;
                                in.count = c.program.layout->group[in.group].shard;
                            }
                    },
                    {"reduce_grads", "one half of"}});
}

// The first of the gathers of two groups that travel as one; the other follows.
z3d_instruction &joined(Copy &c) {
    return c.entries[(size_t)c.find(Z3D_OP_GATHER_PARAMS, 0, Z3D_PHASE_START)];
}

TEST(Verifier, RefusesWhatDoesNotTravelAsOne) {
    Options o = options(3, 1, 2, 1);
    o.frozen = {"*c_fc*"};
    o.bucket = 1 << 20;
    const auto packed = [](Copy &c) -> z3d_buffer & {
        return c.buffers[(size_t)joined(c).buffer[Z3D_SLOT_WORKSPACE]];
    };
    const Wrong list[] = {
        {"another column",
         o,
         [](Copy &c) { joined(c).column = 64; },
         {"does not fit its neighbours"}},
        {"more columns",
         o,
         [](Copy &c) { joined(c).columns += 64; },
         {"does not fit its neighbours"}},
        {"one is missing",
         o,
         [](Copy &c) {
             c.entries.erase(c.entries.begin() + c.find(Z3D_OP_GATHER_PARAMS, 1, Z3D_PHASE_START));
         },
         {"does not fit its neighbours"}},
        {"waits in another order",
         o,
         [](Copy &c) {
             const size_t wait = (size_t)c.find(Z3D_OP_GATHER_PARAMS, 0, Z3D_PHASE_WAIT);
             std::swap(c.entries[wait], c.entries[wait + 1]);
         },
         {"does not fit its neighbours"}},
        {"a packed matrix of their own",
         o,
         [](Copy &c) { joined(c).buffer[Z3D_SLOT_WORKSPACE] = joined(c).buffer[Z3D_SLOT_INPUT]; },
         {"does not fit its neighbours"}},
        {"a short packed matrix",
         o,
         [packed](Copy &c) { packed(c).bytes -= 2; },
         {"workspace", "bytes, but needs"}},
        {"a packed matrix that dies",
         o,
         [packed](Copy &c) { packed(c).last--; },
         {"workspace", "lives only"}},
    };
    for (const Wrong &wrong : list) ASSERT_NO_FATAL_FAILURE(expect_refused(wrong));
}

void erase(Copy &c, int index) {
    c.entries.erase(c.entries.begin() + index);
    c.settle();
}

// The executor looks at fields that an instruction's class does not have.
TEST(Verifier, RefusesFieldsThatTheClassDoesNotHave) {
    Options sharded = options(2, 2, 2, 2), whole = options(3, 1, 2, 1), tied = options(2, 1, 1, 2);
    sharded.reduce_per_step = 0;
    sharded.partition = true;
    tied.pipeline = 2;
    const Wrong list[] = {
        {"a sum begins later",
         sharded,
         [](Copy &c) { c.entries[(size_t)c.find(Z3D_OP_KEEP_SHARD)].first = 16; },
         {"keep_shard", "cannot have columns"}},
        {"a sum of nothing",
         sharded,
         [](Copy &c) {
             c.entries[(size_t)c.find(Z3D_OP_KEEP_SHARD)].buffer[Z3D_SLOT_GRADIENTS] = -1;
         },
         {"keep_shard", "gradients is missing"}},
        {"a gather adds",
         whole,
         [](Copy &c) {
             c.entries[(size_t)c.find(Z3D_OP_GATHER_PARAMS, 0, Z3D_PHASE_START)].accumulate = 1;
         },
         {"gather_params", "gradients to add to"}},
        {"a copy adds",
         sharded,
         [](Copy &c) { c.entries[(size_t)c.find(Z3D_OP_SAVE_INPUT)].accumulate = 1; },
         {"save_input", "gradients to add to"}},
        {"a backward keeps",
         whole,
         [](Copy &c) { c.entries[(size_t)c.find(Z3D_OP_BACKWARD)].keep = true; },
         {"backward head", "saved memory to keep"}},
        {"a send of a group's gradients with a unit",
         tied,
         [](Copy &c) {
             c.entries[(size_t)c.find(Z3D_OP_SEND_GRADS, 0, Z3D_PHASE_START)].unit = 9999;
         },
         {"send_grads", "cannot have a unit"}},
        {"a unit with a parameter group",
         whole,
         [](Copy &c) { c.entries[(size_t)c.find(Z3D_OP_FORWARD)].group = 9999; },
         {"forward", "cannot have a parameter group"}},
    };
    for (const Wrong &wrong : list) ASSERT_NO_FATAL_FAILURE(expect_refused(wrong));
}

// Everything that uses buffer `from` uses `to`, which is as long.
void replace(Copy &c, int from, int to) {
    z3d_buffer &b = c.buffers[(size_t)to];
    b.bytes = std::max(b.bytes, c.buffers[(size_t)from].bytes);
    for (programs::Instruction &e : c.entries)
        std::replace(e.slots.begin(), e.slots.end(), from, to);
    ASSERT_Z3D(c.settle());
}

// A unit reads its input, parameters and output gradient in any order.
TEST(Verifier, RefusesGradientsOverWhatTheUnitReads) {
    for (int slot : {(int)Z3D_SLOT_INPUT, (int)Z3D_SLOT_OUTPUT_GRADIENT})
        expect_refused({"gradients over what is read",
                        options(3, 1, 2, 1),
                        [slot](Copy &c) {
                            const z3d_instruction &b =
                                c.entries[(size_t)c.find(Z3D_OP_BACKWARD, 1)];
                            replace(c, b.buffer[Z3D_SLOT_GRADIENTS], b.buffer[slot]);
                        },
                        {"backward block.1", "are the same buffer"}});
}

// Gathered columns are gone once something that is no matrix was written over them, also those that
// are not its first ones.
TEST(Verifier, RefusesColumnsThatWereOverwritten) {
    World world(options(3, 1, 2, 1));
    world.o.bucket = 256;
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    Copy c(*world.programs[0]);
    int start = c.find(Z3D_OP_GATHER_PARAMS, 0, Z3D_PHASE_START);
    int forward = c.find(Z3D_OP_FORWARD, 1);
    programs::Instruction again = c.entries[(size_t)start];
    int wte = again.buffer[Z3D_SLOT_PARAMETERS];
    // The table stays for the head, which finds its first columns gathered again.
    for (size_t i = c.entries.size(); i-- > 0;) {
        z3d_instruction &e = c.entries[i];
        if (e.group != again.group || (int)i <= forward) continue;
        if (e.opcode == Z3D_OP_GATHER_PARAMS || e.opcode == Z3D_OP_RELEASE_PARAMS)
            c.entries.erase(c.entries.begin() + (long)i);
    }
    for (size_t i = 0; i < c.entries.size(); i++) {
        z3d_instruction &e = c.entries[i];
        if (e.opcode == Z3D_OP_RELEASE_PARAMS && e.group == again.group)
            c.entries.erase(c.entries.begin() + (long)i--);
    }
    for (z3d_instruction &e : c.entries) {
        const z3d_unit &u = world.model->unit[std::max(e.unit, 0)];
        for (int s = 0; e.unit >= 0 && s < u.num_groups; s++)
            if (u.group[s] == again.group && e.buffer[z3d_slot_parameters(s)] >= 0)
                e.buffer[z3d_slot_parameters(s)] = wte;
    }
    ASSERT_Z3D(c.settle());
    ASSERT_Z3D(z3d_program_verify(c.sync()));
    forward = c.find(Z3D_OP_FORWARD, 1);
    int &workspace = c.entries[(size_t)forward].buffer[Z3D_SLOT_WORKSPACE];
    ASSERT_GE(workspace, 0);
    c.buffers[(size_t)wte].bytes =
        std::max(c.buffers[(size_t)wte].bytes, c.buffers[(size_t)workspace].bytes);
    workspace = wte;
    again.ticket = c.program.num_tickets++;
    c.entries.insert(c.entries.begin() + forward + 1, again);
    again.phase = Z3D_PHASE_WAIT;
    c.entries.insert(c.entries.begin() + forward + 2, again);
    ASSERT_Z3D(c.settle());
    EXPECT_EQ(z3d_program_verify(c.sync()), Z3D_ERR_PROGRAM);
}

// The next evaluation relies on what this one gathered (config.gathered).
TEST(Verifier, RefusesAnEvaluationThatDoesNotLeaveWhatItGathered) {
    World world(options(1, 1, 2, 1));
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build(Z3D_MODE_EVALUATE));
    Copy c(*world.programs[0]);
    int kept = c.entries[(size_t)c.find(Z3D_OP_GATHER_PARAMS, 0, Z3D_PHASE_START)]
                   .buffer[Z3D_SLOT_PARAMETERS];
    z3d_buffer b = c.buffers[(size_t)kept];
    b.persistent = false;
    b.group = -1;
    c.buffers.push_back(b);
    for (z3d_instruction &e : c.entries) {
        std::replace(e.buffer, e.buffer + e.num_slots, kept, (int)c.buffers.size() - 1);
        if (e.opcode == Z3D_OP_GATHER_PARAMS &&
            e.buffer[Z3D_SLOT_PARAMETERS] == (int)c.buffers.size() - 1)
            e.buffer[Z3D_SLOT_INPUT] = kept;
    }
    ASSERT_Z3D(c.settle());
    EXPECT_EQ(z3d_program_verify(c.sync()), Z3D_ERR_PROGRAM);
    EXPECT_NE(std::string(z3d_error_message()).find("rows of other ranks"), std::string::npos)
        << z3d_error_message();
}

TEST(Verifier, NamesTheFirstWrongEntryOfTheDataflow) {
    Options plain = options(0, 1, 2, 2), sharded = options(3, 1, 2, 1);
    plain.recompute = false;
    const Wrong list[] = {
        {"a forward left out",
         plain,
         [](Copy &c) { erase(c, c.find(Z3D_OP_FORWARD, 1)); },
         {"forward block.1 (micro 0)", "input must hold output of block.0, micro-batch 0",
          "holds nothing defined"}},
        {"a forward reads another micro-batch",
         plain,
         [](Copy &c) {
             int a = c.find(Z3D_OP_FORWARD, 2), b = c.find(Z3D_OP_FORWARD, 6);
             c.entries[(size_t)b].buffer[Z3D_SLOT_INPUT] =
                 c.entries[(size_t)a].buffer[Z3D_SLOT_INPUT];
             c.settle();
         },
         {"forward block.1 (micro 1)", "output of block.0, micro-batch 1",
          "holds output of block.0, micro-batch 0"}},
        {"a backward left out",
         plain,
         [](Copy &c) { erase(c, c.find(Z3D_OP_BACKWARD, 1)); },
         {"backward block.0 (micro 0)", "output gradient of block.0"}},
        {"the first gradient is added to garbage",
         plain,
         [](Copy &c) { c.entries[(size_t)c.find(Z3D_OP_BACKWARD, 1)].accumulate = 1; },
         {"backward block.1 (micro 0)", "adds to the gradients of block.1, which have 0"}},
        {"the second micro-batch overwrites the first",
         plain,
         [](Copy &c) { c.entries[(size_t)c.find(Z3D_OP_BACKWARD, 5)].accumulate = 0; },
         {"backward block.1 (micro 1)", "overwrites the gradients of block.1, which have 1"}},
        {"a gather is used before its wait",
         sharded,
         [](Copy &c) {
             int wait = c.find(Z3D_OP_GATHER_PARAMS, 0, Z3D_PHASE_WAIT);
             std::swap(c.entries[(size_t)wait], c.entries[(size_t)c.find(Z3D_OP_FORWARD)]);
             c.settle();
         },
         {"forward embedding", "parameters is being written by entry", "start gather_params wte"}},
        {"a gather without a wait",
         sharded,
         [](Copy &c) { erase(c, c.find(Z3D_OP_REDUCE_GRADS, 0, Z3D_PHASE_WAIT)); },
         {"keep_shard", "gradients is being written by entry", "start reduce_grads"}},
        {"parameters used after their release",
         sharded,
         [](Copy &c) {
             programs::Instruction release = c.entries[(size_t)c.find(Z3D_OP_RELEASE_PARAMS)];
             c.entries.insert(c.entries.begin() + c.find(Z3D_OP_FORWARD), release);
             c.settle();
         },
         {"forward embedding", "must hold parameters of w", "holds nothing defined"}},
        {"a bucket that ends early",
         sharded,
         [](Copy &c) {
             for (z3d_phase phase : {Z3D_PHASE_START, Z3D_PHASE_WAIT})
                 c.entries[(size_t)c.find(Z3D_OP_GATHER_PARAMS, 0, phase)].count--;
         },
         {"forward embedding", "must hold parameters of wte", "holds nothing defined"}},
        {"an optimizer step before the control",
         plain,
         [](Copy &c) {
             int control = c.find(Z3D_OP_STEP_CONTROL), step = c.find(Z3D_OP_OPTIMIZER_STEP);
             std::swap(c.entries[(size_t)control], c.entries[(size_t)step]);
             c.settle();
         },
         {"optimizer_step", "must come after step_control"}},
        {"an optimizer step left out",
         plain,
         [](Copy &c) { erase(c, c.find(Z3D_OP_OPTIMIZER_STEP, 2)); },
         {"the end of the program", "after the optimizer step", "before the optimizer step"}},
        {"a reduction left out",
         plain,
         [](Copy &c) {
             erase(c, c.find(Z3D_OP_REDUCE_GRADS, 0, Z3D_PHASE_WAIT));
             erase(c, c.find(Z3D_OP_REDUCE_GRADS, 0, Z3D_PHASE_START));
         },
         {"gather_grads", "must hold a complete value", "not reduced"}},
    };
    for (const Wrong &wrong : list) expect_refused(wrong);
}

// What is offloaded.
TEST(Verifier, NamesTheFirstWrongEntryOfOffload) {
    Options disk = options(3, 1, 2, 1);
    disk.tiers.optimizer = disk.tiers.parameters = Z3D_SPACE_DISK;
    auto square = [](const Copy &c) { return c.find(Z3D_OP_SQUARE_GRADS); };
    const Wrong list[] = {
        {"a copy from the disk to the device",
         disk,
         [](Copy &c) {
             int kept = -1;
             for (z3d_phase phase : {Z3D_PHASE_START, Z3D_PHASE_WAIT}) {
                 int first = c.find(Z3D_OP_FETCH_PARAMS, 0, phase);
                 kept = c.entries[(size_t)first].buffer[Z3D_SLOT_INPUT];
                 c.entries.erase(c.entries.begin() + first);
             }
             const z3d_instruction second =
                 c.entries[(size_t)c.find(Z3D_OP_FETCH_PARAMS, 0, Z3D_PHASE_START)];
             for (z3d_instruction &i : c.entries)
                 if (i.opcode == Z3D_OP_FETCH_PARAMS && i.ticket == second.ticket)
                     i.buffer[Z3D_SLOT_INPUT] = kept;
             c.settle();
         },
         {"start fetch_params wte", "on the disk", "on the device",
          "one of them must be in host memory"}},
        {"squares left out",
         disk,
         [square](Copy &c) { erase(c, square(c)); },
         {"step_control", "nothing added up the squares of ln_f's gradients"}},
        {"squares twice",
         disk,
         [square](Copy &c) {
             c.entries.insert(c.entries.begin() + square(c), c.entries[(size_t)square(c)]);
             c.settle();
         },
         {"square_grads ln_f", "it would add the squares up again"}},
        {"squares after the control",
         disk,
         [square](Copy &c) {
             const programs::Instruction late = c.entries[(size_t)square(c)];
             c.entries.erase(c.entries.begin() + square(c));
             c.entries.insert(c.entries.begin() + c.find(Z3D_OP_STEP_CONTROL) + 1, late);
             c.settle();
         },
         {"step_control", "nothing added up the squares"}},
    };
    for (const Wrong &wrong : list) expect_refused(wrong);
}

// The entry at `from` comes to stand in front of the one at `to`.
void move_entry(Copy &c, int from, int to) {
    const programs::Instruction entry = c.entries[(size_t)from];
    c.entries.erase(c.entries.begin() + from);
    c.entries.insert(c.entries.begin() + (to > from ? to - 1 : to), entry);
    c.settle();
}

// A step of the host once more, in front of the entry at `to`.
void step_again(Copy &c, int to) {
    const programs::Instruction entry = c.entries[(size_t)c.find(Z3D_OP_HOST_STEP)];
    c.entries.insert(c.entries.begin() + to, entry);
    c.settle();
}

// The host steps the gradients of the step before, from before this step's take their place until
// nothing reads the old parameters.
TEST(Verifier, NamesTheFirstWrongEntryOfADelayedUpdate) {
    Options host = options(3, 1, 2, 1), whole = options(0, 1, 2, 1);
    host.tiers.optimizer = whole.tiers.optimizer = Z3D_SPACE_HOST;
    host.tiers.delayed = whole.tiers.delayed = true;
    whole.overlap = false;
    const Wrong list[] = {
        {"this step's gradients take the place of those that wait",
         host,
         [](Copy &c) { step_again(c, c.find(Z3D_OP_STORE_GRADS, 0, Z3D_PHASE_WAIT) + 1); },
         {"host_step", "gradients of ", "from the step before", "holds reduced gradients of"}},
        {"backward writes over those that wait",
         whole,
         [](Copy &c) {
             const int store = c.find(Z3D_OP_STORE_GRADS, 0, Z3D_PHASE_START);
             for (int next = 0; next < 3; next++) // until it is stepped
                 move_entry(c, store, c.find(Z3D_OP_BACKWARD) + 1 + next);
         },
         {"host_step wte", "gradients of wte from the step before",
          "contributions to gradient sum 0"}},
        {"a step behind the control",
         host,
         [](Copy &c) { step_again(c, c.find(Z3D_OP_STEP_CONTROL) + 1); },
         {"host_step", "it must come before step_control, which overwrites"}},
        {"new parameters before the last reader of the old ones",
         whole,
         [](Copy &c) {
             const int store = c.find(Z3D_OP_STORE_PARAMS, 0, Z3D_PHASE_START);
             const int group = c.entries[(size_t)store].group;
             int step = 0;
             while (c.entries[(size_t)step].opcode != Z3D_OP_HOST_STEP ||
                    c.entries[(size_t)step].group != group)
                 step++;
             move_entry(c, c.find(Z3D_OP_STORE_PARAMS, 0, Z3D_PHASE_WAIT), step + 1);
             move_entry(c, c.find(Z3D_OP_STORE_PARAMS, 0, Z3D_PHASE_START), step + 1);
         },
         {"must hold parameters of", "before the optimizer step", "after the optimizer step"}},
        {"a step left out",
         host,
         [](Copy &c) { erase(c, c.find(Z3D_OP_HOST_STEP)); },
         {"store_params", "a value that the entry may move", "nothing defined"}},
    };
    for (const Wrong &wrong : list) expect_refused(wrong);
}

TEST(Verifier, NamesWrongMemory) {
    Options plain = options(2, 1, 2, 1), disk = options(3, 1, 2, 1), kept = plain;
    Options nodes = options(3, 1, 4, 1);
    kept.recompute = true;
    nodes.outer = 2;
    nodes.sharding = Z3D_SHARDING_HIERARCHICAL;
    disk.tiers.optimizer = disk.tiers.parameters = Z3D_SPACE_DISK;
    const Wrong list[] = {
        {"a disk's block begins within another",
         disk,
         [](Copy &c) {
             const z3d_instruction &fetch =
                 c.entries[(size_t)c.find(Z3D_OP_FETCH_STATES, 0, Z3D_PHASE_START)];
             c.buffers[(size_t)fetch.buffer[Z3D_SLOT_OPTIMIZER]].offset += 512;
             c.program.arena[Z3D_SPACE_HOST] += 4096;
         },
         {"must be multiples of 4096"}},
        {"two buffers at one place",
         plain,
         [](Copy &c) {
             const z3d_instruction &forward = c.entries[(size_t)c.find(Z3D_OP_FORWARD, 1)];
             c.buffers[(size_t)forward.buffer[Z3D_SLOT_OUTPUT]].offset =
                 c.buffers[(size_t)forward.buffer[Z3D_SLOT_INPUT]].offset;
         },
         {"output block.0 m0", "output embedding m0", "share addresses"}},
        {"a buffer beyond the arena",
         plain,
         [](Copy &c) { c.buffers.back().offset = c.program.arena[0]; },
         {"the arena has"}},
        {"a buffer that dies too early",
         plain,
         [](Copy &c) {
             const z3d_instruction &backward = c.entries[(size_t)c.find(Z3D_OP_BACKWARD, 1)];
             c.buffers[(size_t)backward.buffer[Z3D_SLOT_INPUT]].last--;
         },
         {"lives only from entry"}},
        {"a buffer that is too small",
         plain,
         [](Copy &c) {
             const z3d_instruction &backward = c.entries[(size_t)c.find(Z3D_OP_BACKWARD, 1)];
             c.buffers[(size_t)backward.buffer[Z3D_SLOT_GRADIENTS]].bytes--;
         },
         {"backward block.1", "gradients", "but needs"}},
        {"a persistent buffer cut short",
         plain,
         [](Copy &c) { c.buffers[Z3D_BUFFER_STATE].bytes--; },
         {"the step state"}},
        {"an output over the batch",
         plain,
         [](Copy &c) {
             c.buffers[Z3D_BUFFER_BATCH].bytes = 1 << 20;
             c.entries[(size_t)c.find(Z3D_OP_FORWARD)].buffer[Z3D_SLOT_OUTPUT] = Z3D_BUFFER_BATCH;
         },
         {"batch"}},
        {"indices out of range",
         plain,
         [](Copy &c) { c.entries[(size_t)c.find(Z3D_OP_FORWARD)].unit = 99; },
         {"unit is 99, but must be 0 to 3"}},
        {"a buffer that the program does not have",
         plain,
         [](Copy &c) { c.entries[(size_t)c.find(Z3D_OP_FORWARD, 1)].buffer[0] = 9999; },
         {"its input is buffer 9999, but must be -1 (none) to "}},
        {"rows of other ranks",
         kept,
         [](Copy &c) { c.entries[(size_t)c.find(Z3D_OP_SAVE_INPUT)].rows = Z3D_ROWS_BLOCK; },
         {"rows is 3, but must be Z3D_ROWS_OWN or Z3D_ROWS_ALL"}},
        {"columns out of range",
         plain,
         [](Copy &c) {
             c.entries[(size_t)c.find(Z3D_OP_GATHER_PARAMS, 0, Z3D_PHASE_START)].first = INT64_MAX;
         },
         {"its matrix has columns 0 to"}},
        {"shards that are not complete before they become blocks",
         nodes,
         [](Copy &c) {
             for (z3d_phase phase : {Z3D_PHASE_START, Z3D_PHASE_WAIT})
                 c.entries[(size_t)c.find(Z3D_OP_GATHER_PARAMS, 0, phase)].count = 64;
         },
         {"rows of its parameters have 256 columns, but had 128 before"}},
    };
    for (const Wrong &wrong : list) expect_refused(wrong);
}

TEST(Verifier, NamesWrongInnerCollectives) {
    World world(options(0, 2, 1, 1));
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    Copy c(*world.programs[0]);
    z3d_instruction &in = c.entries[(size_t)c.find(Z3D_OP_FORWARD, 1)];
    ASSERT_EQ(in.num_children, 2); // Megatron's two all-reduces
    c.children.assign(in.child, in.child + 2);
    c.children[1].op = Z3D_MAX;
    in.child = c.children.data();
    ASSERT_EQ(z3d_program_verify(c.sync()), Z3D_ERR_PROGRAM);
    EXPECT_NE(std::string(z3d_error_message()).find("inner collective 2"), std::string::npos);
}

// ---- all ranks ----

TEST(World, NamesRanksThatDoDifferentCollectives) {
    World world(options(3, 1, 2, 1));
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    Copy c(*world.programs[1]);
    int first = c.find(Z3D_OP_GATHER_PARAMS, 0, Z3D_PHASE_START);
    int second = c.find(Z3D_OP_GATHER_PARAMS, 1, Z3D_PHASE_START);
    std::swap(c.entries[(size_t)first], c.entries[(size_t)second]);
    z3d_program *programs[] = {world.programs[0], c.sync()};
    ASSERT_EQ(z3d_program_verify_world(programs, 2), Z3D_ERR_PROGRAM);
    for (const char *word : {"rank 0", "rank 1", "start gather_params wte", "all_gather"})
        EXPECT_NE(std::string(z3d_error_message()).find(word), std::string::npos)
            << z3d_error_message();
}

TEST(World, NamesWhoWaitsForARankThatEnds) {
    World world(options(1, 1, 2, 1));
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    Copy c(*world.programs[1]);
    c.entries.erase(c.entries.begin() + c.find(Z3D_OP_STEP_CONTROL), c.entries.end());
    z3d_program *programs[] = {world.programs[0], c.sync()};
    ASSERT_EQ(z3d_program_verify_world(programs, 2), Z3D_ERR_PROGRAM);
    for (const char *word : {"1 of 2 ranks wait", "rank 0 waits in", "step_control",
                             "over the world group", "rank 1 has ended"})
        EXPECT_NE(std::string(z3d_error_message()).find(word), std::string::npos)
            << z3d_error_message();
}

// Each group's order is alike on its members, but across groups the ranks wait in a circle: 0 for
// 2 (data), 2 for 3 (tensor), 3 for 1 (data), 1 for 0 (tensor).
TEST(World, FindsACircleAcrossGroups) {
    World world(options(2, 2, 2, 1));
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    Copy zero(*world.programs[0]), three(*world.programs[3]);
    for (Copy *c : {&zero, &three}) {
        int start = c->find(Z3D_OP_REDUCE_GRADS, 0, Z3D_PHASE_START), last = start;
        while (c->entries[(size_t)last].num_children == 0) last++;
        programs::Instruction unit = c->entries[(size_t)last];
        ASSERT_GT(unit.num_children, 0);
        c->entries.erase(c->entries.begin() + last);
        c->entries.insert(c->entries.begin() + start, unit); // the unit before the reduction
    }
    z3d_program *programs[] = {zero.sync(), world.programs[1], world.programs[2], three.sync()};
    ASSERT_EQ(z3d_program_verify_world(programs, 4), Z3D_ERR_PROGRAM);
    EXPECT_NE(std::string(z3d_error_message()).find("no progress, 4 of 4 ranks wait"),
              std::string::npos)
        << z3d_error_message();
}

TEST(World, PlaysThousandsOfRanks) {
    Options o = options(3, 8, 2, 2);
    o.hidden = 64;
    o.heads = 8;
    World world(o);
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    // Programs of one tensor place are alike in what they communicate: 512 data ranks share one.
    Copy shared(*world.programs[0]);
    shared.program.mesh.size[Z3D_AXIS_DATA_INNER] = 512;
    std::vector<z3d_program *> all(4096, shared.sync());
    ASSERT_Z3D(z3d_program_verify_world(all.data(), 4096));
    Copy other(shared.program);
    erase(other, other.find(Z3D_OP_REDUCE_GRADS, 3, Z3D_PHASE_START));
    all[4095] = other.sync();
    EXPECT_EQ(z3d_program_verify_world(all.data(), 4096), Z3D_ERR_PROGRAM);
    EXPECT_NE(std::string(z3d_error_message()).find("rank 4095"), std::string::npos);
}

TEST(World, RefusesProgramsOfAnotherWorld) {
    World two(options(1, 1, 2, 1)), split(options(1, 2, 1, 1));
    ASSERT_Z3D(two.prepare());
    ASSERT_Z3D(two.build());
    ASSERT_Z3D(split.prepare());
    ASSERT_Z3D(split.build());
    z3d_program *mixed[] = {two.programs[0], split.programs[1]};
    EXPECT_EQ(z3d_program_verify_world(mixed, 2), Z3D_ERR_PROGRAM);
    EXPECT_EQ(z3d_program_verify_world(two.programs.data(), 1), Z3D_ERR_PROGRAM);
    EXPECT_EQ(z3d_program_verify_world(two.programs.data(), 0), Z3D_ERR_PROGRAM);
}

// ---- volume ----

int64_t volume(const Options &o, z3d_axes axes, bool children, int64_t *padded) {
    World world(o);
    EXPECT_EQ(world.prepare(), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(world.build(), Z3D_OK) << z3d_error_message();
    *padded = world.layouts[0]->padded_total;
    return z3d_program_volume(world.programs[0], axes, children);
}

TEST(Volume, OverTheDataGroupIsTheFormula) {
    for (int data : {1, 2, 4}) {
        for (int m : {1, 3}) {
            int64_t p;
            int64_t per_step0 = volume(options(0, 1, data, m), Z3D_AXES_DATA, true, &p);
            EXPECT_EQ(per_step0, 2 * p * (data - 1) / data);
            EXPECT_EQ(volume(options(1, 1, data, m), Z3D_AXES_DATA, true, &p),
                      2 * p * (data - 1) / data);
            EXPECT_EQ(volume(options(2, 1, data, m), Z3D_AXES_DATA, true, &p),
                      (m + 1) * p * (data - 1) / data);
            Options o = options(0, 1, data, m);
            o.reduce_per_step = false;
            EXPECT_EQ(volume(o, Z3D_AXES_DATA, true, &p), (m + 1) * p * (data - 1) / data);
        }
    }
}

TEST(Volume, OverTheTensorGroupIsTenBshABlock) {
    for (bool replay : {false, true}) {
        Options o = options(0, 2, 1, 1);
        o.replay_full = replay;
        int64_t p, bsh = o.micro_batch * o.sequence * o.hidden;
        o.layers = 2;
        int64_t two = volume(o, Z3D_AXES_TENSOR, true, &p);
        EXPECT_EQ(volume(o, Z3D_AXES_TENSOR, false, &p), 0);
        o.layers = 5;
        int64_t five = volume(o, Z3D_AXES_TENSOR, true, &p);
        EXPECT_EQ(five - two, 3 * (replay ? 12 : 10) * bsh / 2);
        EXPECT_EQ(two - 2 * (five - two) / 3,
                  2 * bsh); // outside the blocks: 2 bsh (t - 1) / t twice
    }
}

// ---- sequence parallelism ----

int count_of(const z3d_program &p, z3d_opcode opcode, z3d_phase phase, z3d_axes axes) {
    int count = 0;
    for (int i = 0; i < p.num_instructions; i++) {
        const z3d_instruction &in = p.instruction[i];
        count += in.opcode == opcode && in.phase == phase && in.axes == axes;
    }
    return count;
}

// Every group but wte has replicated parameters: each is summed once a step, however many
// micro-batches; a checkpoint is a part by nature, so partition_activations brings no gather.
TEST(SequenceParallel, SumsOnceAStepAndGathersNoCheckpoint) {
    for (int stage = 0; stage < 4; stage++) {
        Options o = options(stage, 2, 2, 3);
        o.sequence_parallel = o.partition = true;
        World world(o);
        ASSERT_Z3D(world.prepare());
        ASSERT_Z3D(world.build());
        const z3d_program &p = *world.programs[0];
        ASSERT_Z3D(z3d_program_verify(&p));
        ASSERT_Z3D(z3d_program_verify_world(world.programs.data(), 4));
        for (z3d_phase phase : {Z3D_PHASE_START, Z3D_PHASE_WAIT})
            EXPECT_EQ(count_of(p, Z3D_OP_SUM_REPLICATED, phase, Z3D_AXES_TENSOR),
                      world.model->num_groups - 1);
        EXPECT_EQ(count_of(p, Z3D_OP_GATHER_INPUT, Z3D_PHASE_START, Z3D_AXES_TENSOR), 0);
        EXPECT_EQ(count_of(p, Z3D_OP_LOAD_INPUT, Z3D_PHASE_WHOLE, Z3D_AXES_TENSOR),
                  o.layers * o.accumulation);
        z3d_string out = {};
        z3d_program_print(&p, &out);
        for (const char *part :
             {"sequence parallel: ", "activation checkpoints are such parts",
              "start sum_replicated", "all_gather tensor", "reduce_scatter tensor"})
            EXPECT_NE(std::string(out.text).find(part), std::string::npos) << part;
        z3d_string_free(&out);
    }
}

// Of all ranks together, the sums are about every replicated parameter once: wpe (s h), 6 h a
// block, ln_f (2 h).
TEST(SequenceParallel, SumsEveryReplicatedElementOnce) {
    Options o = options(3, 2, 4, 1);
    o.sequence_parallel = true;
    World world(o);
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    int64_t sum = 0;
    for (int data = 0; data < 4; data++)
        sum += z3d_program_volume(world.programs[(size_t)(2 * data)], Z3D_AXES_TENSOR, false);
    EXPECT_EQ(sum, o.sequence * o.hidden + 6 * o.hidden * o.layers + 2 * o.hidden);
}

// Without the sum, or with it in front of the last reduction, the step would be another.
TEST(SequenceParallel, TheSumIsNeededAfterTheReduction) {
    Options o = options(2, 2, 1, 2);
    o.sequence_parallel = true;
    o.reduce_per_step = false;
    World world(o);
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    Copy without(*world.programs[0]);
    for (z3d_phase phase : {Z3D_PHASE_WAIT, Z3D_PHASE_START})
        erase(without, without.find(Z3D_OP_SUM_REPLICATED, 0, phase));
    ASSERT_Z3D(without.settle());
    EXPECT_EQ(z3d_program_verify(&without.program), Z3D_ERR_PROGRAM);
    EXPECT_NE(std::string(z3d_error_message()).find("step_control"), std::string::npos)
        << z3d_error_message();
    EXPECT_NE(std::string(z3d_error_message()).find("without other ranks' addends"),
              std::string::npos)
        << z3d_error_message();
    Copy early(*world.programs[0]);
    int start = early.find(Z3D_OP_SUM_REPLICATED, 0, Z3D_PHASE_START);
    int keep = start; // of the second micro-batch
    while (early.entries[(size_t)keep].opcode != Z3D_OP_KEEP_SHARD ||
           early.entries[(size_t)keep].group != early.entries[(size_t)start].group)
        keep--;
    std::rotate(early.entries.begin() + keep, early.entries.begin() + start,
                early.entries.begin() + start + 1);
    ASSERT_Z3D(early.settle());
    EXPECT_EQ(z3d_program_verify(&early.program), Z3D_ERR_PROGRAM);
    EXPECT_NE(std::string(z3d_error_message()).find("sum_replicated"), std::string::npos)
        << z3d_error_message();
}

// Bytes of activations when backward begins: L blocks' inputs, the head's input and its gradient,
// and what the blocks saved where nothing is recomputed. (What the head saved is temporary.)
int64_t live_at_backward(const z3d_program &p) {
    int first = 0;
    int64_t live = 0;
    while (p.instruction[first].opcode != Z3D_OP_BACKWARD) first++;
    for (int b = 0; b < p.num_buffers; b++)
        if (p.buffer[b].category == Z3D_CATEGORY_ACTIVATIONS && p.buffer[b].first <= first &&
            p.buffer[b].last >= first)
            live += p.buffer[b].bytes;
    return live;
}

TEST(SequenceParallel, ActivationBytesAreTheFormulas) {
    const int64_t b = 4, s = 64, h = 64, heads = 4, layers = 3, w = 2;
    const int64_t bsh = b * s * h * w, floats = 4 * b * s;
    for (int64_t t : {1, 2, 4}) {
        for (bool sequence : {false, true}) {
            for (int way = 0; way < 6; way++) {
                const int granularity = way / 2; // full, selective, none
                const bool keep = way % 2 == 1;  // gelu's output
                if (sequence && t == 1) continue;
                Options o = options(2, (int)t, 1, 1);
                o.micro_batch = b, o.sequence = s, o.hidden = h, o.heads = heads, o.layers = layers;
                o.vocabulary = 128;
                o.sequence_parallel = sequence;
                o.recompute = granularity == 0;
                o.selective = granularity == 1;
                o.keep_activation = keep;
                World world(o);
                ASSERT_Z3D(world.prepare());
                ASSERT_Z3D(world.build());
                int64_t own = sequence ? t : 1; // what layernorms and residuals are divided by
                int64_t block = bsh / own + 7 * bsh / t + 4 * floats / own + heads * floats / t;
                if (granularity == 2) // layernorms' outputs, whole; attention's
                    block += 2 * bsh + bsh / t;
                if (keep) block += 4 * bsh / t;
                int64_t live = (layers + 2) * bsh / own + (granularity ? layers * block : 0);
                EXPECT_EQ(live_at_backward(*world.programs[0]), live)
                    << "t " << t << " granularity " << granularity << " sequence " << sequence
                    << " kept " << keep;
            }
        }
    }
}

// An activation that is kept costs no FLOPs in backward: 9 for an element of gelu, 5 of SwiGLU. A
// recompute computes it in their place.
struct Work {
    double flops[Z3D_CALL_COUNT];
    int64_t saved;
};

// Of a block, or of a tile.
Work work_of(harness::Kind model, int64_t tiling, bool keep) {
    Options o = options(2, 1, 1, 1);
    o.kind = model, o.tiling = tiling, o.keep_activation = keep;
    o.micro_batch = 8; // saved memory has no gaps
    World world(o);
    Work work = {};
    EXPECT_Z3D(world.prepare());
    const int kind = world.model->unit[tiling > 1 ? 2 : 1].kind; // behind a tiled attention
    for (int call = 0; call < Z3D_CALL_COUNT; call++) {
        const z3d_trace *trace = z3d_traces_get(world.traces, Z3D_MODE_TRAIN, kind, (z3d_call)call);
        work.flops[call] = trace->flops;
        work.saved = trace->saved;
    }
    return work;
}

TEST(Activation, ThatIsKeptIsNotComputedAgain) {
    const Options o = options(2, 1, 1, 1);
    for (harness::Kind model : {harness::GPT, harness::LLAMA})
        for (int64_t tiling : {1, 2}) {
            const Work again = work_of(model, tiling, false), kept = work_of(model, tiling, true);
            const int64_t inner = (model == harness::GPT ? 4 * o.hidden : 44) / tiling,
                          elements = 8 * o.sequence * inner,
                          size = (int64_t)z3d_dtype_size(o.dtype);
            const double flops = (model == harness::GPT ? 9.0 : 5.0) * (double)elements;
            EXPECT_EQ(kept.saved, again.saved + elements * size);
            EXPECT_EQ(kept.flops[Z3D_CALL_FORWARD], again.flops[Z3D_CALL_FORWARD]);
            EXPECT_EQ(kept.flops[Z3D_CALL_RECOMPUTE], again.flops[Z3D_CALL_RECOMPUTE] + flops);
            EXPECT_EQ(kept.flops[Z3D_CALL_BACKWARD], again.flops[Z3D_CALL_BACKWARD] - flops);
            EXPECT_EQ(kept.flops[Z3D_CALL_BACKWARD_INPUT], again.flops[Z3D_CALL_BACKWARD_INPUT]);
            EXPECT_EQ(kept.flops[Z3D_CALL_BACKWARD_WEIGHT],
                      again.flops[Z3D_CALL_BACKWARD_WEIGHT] - flops);
        }
}

// A checkpoint in host memory travels back beside all the work on what lies above it: it sets out
// before that is recomputed and is waited for where it is needed itself; of P_a's two legs the
// first has the same time but for the last backward, beside which the second goes.
TEST(HostCheckpoints, TravelBesideAllWorkAbove) {
    for (bool partition : {false, true}) {
        Options o = options(3, 2, 2, 1);
        o.layers = 6;
        o.checkpoint_every = 2;
        o.checkpoint_space = Z3D_SPACE_HOST;
        o.partition = partition;
        World world(o);
        ASSERT_Z3D(world.prepare());
        ASSERT_Z3D(world.build());
        const z3d_program &p = *world.programs[0];
        int out = -1, works = 0, seen = 0;
        for (int n = 0; n < p.num_instructions; n++) {
            const z3d_instruction &i = p.instruction[n];
            bool work = i.opcode == Z3D_OP_RECOMPUTE || i.opcode == Z3D_OP_BACKWARD;
            if (work && out >= 0 && i.unit > out) works++;
            if (i.opcode != Z3D_OP_LOAD_INPUT ||
                p.buffer[i.buffer[Z3D_SLOT_INPUT]].space != Z3D_SPACE_HOST)
                continue;
            if (i.phase == Z3D_PHASE_START) {
                out = i.unit, works = 0;
            } else if (i.phase == Z3D_PHASE_WAIT && i.unit + 2 <= 5) { // above: two blocks
                EXPECT_EQ(i.unit, out);
                EXPECT_EQ(works, partition ? 3 : 4)
                    << "unit " << i.unit; // 2 recomputes, 2 backwards
                seen++;
            }
        }
        EXPECT_EQ(seen, 2);
    }
}

// One on the disk goes there in two legs, each beside a forward, and sets out from there a
// checkpoint earlier, so that each leg of the way back has all the work on one checkpoint beside
// it. The last is still in host memory when it is wanted.
TEST(DiskCheckpoints, EachLegTravelsBesideWork) {
    Options o = options(3, 2, 2, 1);
    o.layers = 6;
    o.checkpoint_space = Z3D_SPACE_DISK;
    World world(o);
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    const z3d_program &p = *world.programs[0];
    std::vector<int> works((size_t)p.num_tickets, -1); // by ticket, while it is under way
    std::vector<int> leave(8, -1), store(8, -1), read(8, -1), load(8, -1);
    for (int n = 0; n < p.num_instructions; n++) {
        const z3d_instruction &i = p.instruction[n];
        z3d_opcode_class rules = z3d_opcode_info_of(i.opcode)->rules;
        if (rules == Z3D_CLASS_FORWARD || rules == Z3D_CLASS_BACKWARD)
            for (int &count : works) count += count >= 0;
        if (i.opcode != Z3D_OP_SAVE_INPUT && i.opcode != Z3D_OP_LOAD_INPUT) continue;
        int &beside = works[(size_t)i.ticket];
        if (i.phase == Z3D_PHASE_START) {
            beside = 0;
        } else {
            z3d_space from = p.buffer[i.buffer[Z3D_SLOT_INPUT]].space;
            z3d_space to = p.buffer[i.buffer[Z3D_SLOT_OUTPUT]].space;
            if (to == Z3D_SPACE_DISK) store[(size_t)i.unit] = beside;
            if (from == Z3D_SPACE_DISK) read[(size_t)i.unit] = beside;
            if (from == Z3D_SPACE_HOST && to == Z3D_SPACE_DEVICE) load[(size_t)i.unit] = beside;
            if (from == Z3D_SPACE_DEVICE) leave[(size_t)i.unit] = beside;
            beside = -1;
        }
    }
    EXPECT_EQ(leave, (std::vector<int>{-1, 1, 1, 1, 1, 1, 1, -1}));
    EXPECT_EQ(store, (std::vector<int>{-1, 1, 1, 1, 1, 1, 1, -1}));
    EXPECT_EQ(read, (std::vector<int>{-1, 2, 2, 2, 2, 1, -1, -1})); // 1: the head's backward
    EXPECT_EQ(load, (std::vector<int>{-1, 2, 2, 2, 2, 2, 1, -1}));
}

// Offloaded parameters that are on their way to the device behind the next unit's are no more than
// asked for, but at least one unit's; and as many are on their way from the disk.
TEST(OffloadedParameters, AreFetchedAheadByElements) {
    int64_t most_before = 0;
    for (int64_t prefetch : {0, 8000, 20000}) {
        Options o = options(3, 1, 2, 1);
        o.layers = 8;
        o.prefetch = prefetch;
        o.tiers.optimizer = o.tiers.parameters = Z3D_SPACE_DISK;
        World world(o);
        ASSERT_Z3D(world.prepare());
        ASSERT_Z3D(world.build());
        const z3d_program &p = *world.programs[0];
        const z3d_group_layout *group = p.layout->group;
        // By group: 1 from the start of the leg from the disk, 2 from that of the leg to the
        // device.
        std::vector<int> way((size_t)p.layout->num_groups, 0);
        int64_t largest = 0, most[3] = {};
        for (int g = 0; g < p.layout->num_groups; g++) largest = std::max(largest, group[g].padded);
        largest += p.layout->group[p.layout->num_groups - 1].padded; // the head has two groups
        for (int n = 0; n < p.num_instructions; n++) {
            const z3d_instruction &i = p.instruction[n];
            if (i.phase != Z3D_PHASE_START) continue;
            if (i.opcode == Z3D_OP_FETCH_PARAMS) way[(size_t)i.group]++;
            if (i.opcode == Z3D_OP_GATHER_PARAMS) way[(size_t)i.group] = 0;
            int64_t now[3] = {};
            for (int g = 0; g < p.layout->num_groups; g++) now[way[(size_t)g]] += group[g].padded;
            for (int leg : {1, 2}) most[leg] = std::max(most[leg], now[leg]);
        }
        EXPECT_LE(most[2], std::max(prefetch, largest));
        // At the turn from forward to backward a unit that was in use takes both legs at once.
        EXPECT_LE(most[1], std::max(prefetch, largest) + largest);
        EXPECT_GT(most[2], most_before);
        most_before = most[2];
    }
}

// Parameters that are gathered before the units that use them are no more than asked for, but at
// least the next unit's.
TEST(GatheredParameters, AreGatheredAheadByElements) {
    int64_t most_before = 0;
    for (int64_t ahead : {0, 8000, 20000}) {
        Options o = options(3, 1, 2, 1);
        o.layers = 8;
        o.gather_ahead = ahead;
        World world(o);
        ASSERT_Z3D(world.prepare());
        ASSERT_Z3D(world.build());
        const z3d_program &p = *world.programs[0];
        std::vector<int> way((size_t)p.layout->num_groups, 0); // 1: gathered, and not used yet
        int64_t largest = 0, most = 0;
        for (int g = 0; g < p.layout->num_groups; g++)
            largest = std::max(largest, p.layout->group[g].padded);
        largest += p.layout->group[p.layout->num_groups - 1].padded; // the head has two groups
        for (int n = 0; n < p.num_instructions; n++) {
            const z3d_instruction &i = p.instruction[n];
            int64_t now = 0;
            if (i.opcode == Z3D_OP_GATHER_PARAMS) way[(size_t)i.group] = i.phase != Z3D_PHASE_WAIT;
            for (int g = 0; g < p.layout->num_groups; g++)
                if (way[(size_t)g]) now += p.layout->group[g].padded;
            most = std::max(most, now);
        }
        EXPECT_LE(most, std::max(ahead, largest));
        EXPECT_GT(most, most_before);
        most_before = most;
    }
}

namespace {

struct Live {
    int64_t most; // elements gathered at a time
    int gathers;
};

// Of rank 0's training step with all of a step's reuse, of which so many elements may be gathered.
Live live_of(Options o, int64_t most, int64_t *largest_unit) {
    o.reuse_distance = 1 << 20;
    o.max_live = most;
    World world(o);
    EXPECT_Z3D(world.prepare());
    EXPECT_Z3D(world.build());
    const z3d_program &p = *world.programs[0];
    EXPECT_Z3D(z3d_program_verify(world.programs[0]));
    EXPECT_Z3D(z3d_program_verify_world(world.programs.data(), world.size()));
    *largest_unit = 0;
    for (int u = 0; u < p.model->num_units; u++) {
        int64_t elements = 0;
        for (int s = 0; s < p.model->unit[u].num_groups; s++)
            elements += p.layout->group[p.model->unit[u].group[s]].padded;
        *largest_unit = std::max(*largest_unit, elements);
    }
    std::vector<bool> live((size_t)p.layout->num_groups);
    Live out = {0, 0};
    for (int n = 0; n < p.num_instructions; n++) {
        const z3d_instruction &i = p.instruction[n];
        int64_t now = 0;
        if (i.opcode == Z3D_OP_GATHER_PARAMS && i.phase != Z3D_PHASE_WAIT) {
            out.gathers += !live[(size_t)i.group];
            live[(size_t)i.group] = true;
        }
        if (i.opcode == Z3D_OP_RELEASE_PARAMS) live[(size_t)i.group] = false;
        for (int g = 0; g < p.layout->num_groups; g++)
            if (live[(size_t)g]) now += p.layout->group[g].padded;
        out.most = std::max(out.most, now);
    }
    return out;
}

} // namespace

// No more than the limit is gathered at a time, but for the unit that runs; what the limit releases
// is gathered again. Without one every group is gathered once a step.
TEST(GatheredParameters, StayWithinTheLimit) {
    for (z3d_sharding sharding : {Z3D_SHARDING_FLAT, Z3D_SHARDING_HIERARCHICAL, Z3D_SHARDING_HPZ})
        for (z3d_space space : {Z3D_SPACE_DEVICE, Z3D_SPACE_HOST}) {
            Options o = options(3, 1, 4, 1);
            o.layers = 8, o.accumulation = 2, o.global_batch = 16;
            o.outer = sharding == Z3D_SHARDING_FLAT ? 1 : 2;
            o.sharding = sharding;
            o.tiers.optimizer = o.tiers.parameters = space;
            SCOPED_TRACE(name_of(o) + ", space " + std::to_string(space));
            int64_t largest = 0;
            Live before = live_of(o, 1, &largest);
            EXPECT_EQ(before.most, largest);
            for (int64_t limit : {3 * largest, 5 * largest, (int64_t)0}) {
                const Live now = live_of(o, limit, &largest);
                EXPECT_LE(now.most, limit ? limit : INT64_MAX);
                EXPECT_GT(now.most, before.most);
                EXPECT_LT(now.gathers, before.gathers);
                before = now;
            }
            World world(o);
            ASSERT_Z3D(world.prepare());
            EXPECT_EQ(before.gathers, world.model->num_groups);
        }
}

// ---- text ----

TEST(Print, ShowsConfigurationEntriesAndInnerCollectives) {
    Options o = options(2, 2, 2, 2);
    World world(o);
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    z3d_string out = {};
    z3d_program_print(world.programs[3], &out);
    ASSERT_FALSE(out.failed);
    std::string text(out.text, out.length);
    z3d_string_free(&out);
    for (const char *part :
         {"train, ZeRO stage 2, bf16", "2 samples x 2 micro-batches", "every micro-batch",
          "rank 3 of 4: tensor 1/2, data 1/2", "legend", "start reduce_grads", "wait  reduce_grads",
          "block.1", "optimizer_step", "2 x all_reduce tensor 256 x bf16", "(without output)"})
        EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
    std::string line;
    int lines = 0;
    for (char c : text) {
        if (c != '\n') {
            line += c;
            continue;
        }
        EXPECT_TRUE(line.empty() || line.back() != ' ') << "blanks at the end of: " << line;
        line.clear();
        lines++;
    }
    EXPECT_GE(lines, world.programs[3]->num_instructions);
}

TEST(Print, DescribesEntries) {
    World world(options(2, 1, 2, 2));
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    Copy c(*world.programs[0]);
    char text[160], small[8];
    auto describe = [&](int index) {
        return std::string(z3d_instruction_describe(c.sync(), index, text, sizeof text));
    };
    int reduce = c.find(Z3D_OP_REDUCE_GRADS, 0, Z3D_PHASE_WAIT);
    c.entries[(size_t)reduce].first = 0;
    c.entries[(size_t)reduce].count = 4096;
    EXPECT_EQ(describe(reduce), "wait reduce_grads ln_f (micro 0, columns 0-4095)");
    EXPECT_EQ(describe(0), "step_begin");
    EXPECT_EQ(describe(c.find(Z3D_OP_FORWARD, 1)), "forward block.0 (micro 0)");
    EXPECT_EQ(describe(-1), "the end of the program");
    EXPECT_EQ(describe((int)c.entries.size()), "the end of the program");
    EXPECT_STREQ(z3d_instruction_describe(&c.program, 0, small, sizeof small), "step_be");
    EXPECT_STREQ(z3d_opcode_name(Z3D_OP_KEEP_SHARD), "keep_shard");
    EXPECT_STREQ(z3d_opcode_name((z3d_opcode)99), "?");
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
