// What the table of instructions and z3d_instruction_operand say of random programs: rows agree
// with their class, starts and waits pair by ticket, operands lie in their buffers, and nothing is
// read that was not written.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>

#include "tests/zero/programs.h"

using harness::Options;
using programs::World;

namespace {

bool collective(z3d_opcode_class rules) {
    return rules == Z3D_CLASS_ALL_GATHER || rules == Z3D_CLASS_REDUCE_SCATTER ||
           rules == Z3D_CLASS_ALL_REDUCE || rules == Z3D_CLASS_SEND || rules == Z3D_CLASS_RECV;
}

std::vector<Options> random_options(int count) {
    std::mt19937 random(20261122);
    auto of = [&](std::initializer_list<int> values) {
        return *(values.begin() + (long)(random() % values.size()));
    };
    std::vector<Options> list;
    while ((int)list.size() < count) {
        Options o = programs::small();
        o.tensor = of({1, 1, 2});
        o.data = of({1, 2, 3, 4});
        o.stage = (int)list.size() % 4;
        o.accumulation = of({1, 2, 3});
        o.micro_batch = of({1, 2, 3});
        o.reduce_per_step = of({-1, 0, 1});
        o.layers = of({1, 2, 3, 5});
        o.vocabulary = of({5, 27, 67});
        o.bucket = of({64, 1000, 100000});
        o.overlap = of({0, 1, 1});
        o.optimizer = of({0, 1}) ? Z3D_OPTIMIZER_sgd : Z3D_OPTIMIZER_adamw;
        int type = of({0, 1, 2});
        o.dtype = type == 0 ? Z3D_F32 : type == 1 ? Z3D_BF16 : Z3D_F16;
        o.grad_fp32 = type > 0 && of({0, 0, 1});
        int granularity = of({0, 0, 1, 2});
        o.recompute = granularity == 0;
        o.selective = granularity == 1;
        o.keep_activation = list.size() % 2 == 1;
        o.sequence_parallel = o.tensor > 1 && of({0, 1});
        o.pipeline = of({1, 1, 2, 3, 4});
        if (o.pipeline > 1) {
            const harness::Schedule &s =
                harness::SCHEDULES[random() % std::size(harness::SCHEDULES)];
            o.schedule = s.kind;
            o.chunks = s.chunks;
            o.gather_per_step = of({0, 1});
            o.layers += o.pipeline * o.chunks;
            o.accumulation *= o.pipeline; // interleaved wants whole rounds of the stages
        }
        if (o.data == 4 && of({0, 1})) {
            o.outer = 2;
            o.sharding = (z3d_sharding)of({Z3D_SHARDING_HIERARCHICAL,
                                           o.stage == 3 ? Z3D_SHARDING_HPZ : Z3D_SHARDING_HYBRID,
                                           Z3D_SHARDING_HYBRID});
            if (o.stage == 0) o.sharding = Z3D_SHARDING_HIERARCHICAL;
        }
        if (o.recompute) {
            o.partition = o.tensor > 1 && !o.sequence_parallel && of({0, 1});
            o.checkpoint_space =
                (z3d_space)of({Z3D_SPACE_DEVICE, Z3D_SPACE_DEVICE, Z3D_SPACE_HOST, Z3D_SPACE_DISK});
            o.replay_full = of({0, 0, 1});
            o.checkpoint_every = of({1, 1, 2});
        }
        list.push_back(o);
    }
    return list;
}

std::vector<Options> all_options() {
    std::vector<Options> list = programs::dozen();
    for (const Options &o : programs::pipelines()) list.push_back(o);
    for (const Options &o : random_options(40)) list.push_back(o);
    return list;
}

// Every program of every configuration: all ranks, all modes, with and without the gathers.
template <typename Look> void for_each_program(Look look) {
    for (const Options &o : all_options()) {
        World w(o);
        ASSERT_Z3D(w.prepare());
        for (int mode = 0; mode < Z3D_MODE_COUNT; mode++)
            for (bool gathered : {false, true}) {
                // What gathers before each use does so again: only whole parameters, or a
                // secondary value, are reused.
                if (gathered &&
                    (mode == Z3D_MODE_TRAIN || (o.stage == 3 && o.sharding != Z3D_SHARDING_HPZ)))
                    continue;
                ASSERT_Z3D(w.build((z3d_mode)mode, gathered));
                for (const z3d_program *p : w.programs) {
                    SCOPED_TRACE(name_of(o) + " mode " + std::to_string(mode) +
                                 (gathered ? " gathered" : "") + " rank " +
                                 std::to_string(p->mesh.rank));
                    look(*p);
                    if (testing::Test::HasFailure()) return;
                }
            }
    }
}

std::string describe(const z3d_program &p, int i) {
    char text[160];
    return std::to_string(i) + " " + z3d_instruction_describe(&p, i, text, sizeof text);
}

z3d_dtype type_of(const z3d_program &p, int slot) {
    if (slot == Z3D_SLOT_OPTIMIZER) return Z3D_F32;
    const z3d_slot role = z3d_slot_role(slot);
    return role >= Z3D_SLOT_GRADIENTS ? p.config.grad_dtype : p.config.dtype;
}

} // namespace

TEST(Opcodes, EveryRowAgreesWithItsClass) {
    std::set<std::string> names;
    for (int i = 0; i < Z3D_OPCODE_COUNT; i++) {
        z3d_opcode opcode = (z3d_opcode)i;
        const z3d_opcode_info *info = z3d_opcode_info_of(opcode);
        ASSERT_TRUE(info && info->name);
        SCOPED_TRACE(info->name);
        EXPECT_STREQ(info->name, z3d_opcode_name(opcode));
        EXPECT_TRUE(names.insert(info->name).second);
        ASSERT_LT((int)info->rules, Z3D_CLASS_COUNT);
        EXPECT_NE(info->modes, 0u);
        EXPECT_EQ(info->modes >> Z3D_MODE_COUNT, 0u);
        EXPECT_LE((int)info->from, Z3D_SLOT_COUNT);
        EXPECT_LE((int)info->to, Z3D_SLOT_COUNT);
        if (collective(info->rules) || info->rules == Z3D_CLASS_EXCHANGE ||
            info->rules == Z3D_CLASS_RESULT) {
            EXPECT_NE(info->over, Z3D_OVER_NONE);
        }
        if (collective(info->rules)) {
            EXPECT_NE(info->moves, Z3D_MOVES_NONE);
            // A send fills nothing here, a receive reads nothing.
            EXPECT_EQ(info->to == Z3D_SLOT_COUNT, info->rules == Z3D_CLASS_SEND);
            if (info->rules == Z3D_CLASS_RECV) {
                EXPECT_EQ(info->from, Z3D_SLOT_COUNT);
            }
        }
        // A group's axes are known only of an entry about a group.
        if (info->over == Z3D_OVER_SHARD || info->over == Z3D_OVER_REPLICA) {
            EXPECT_EQ(info->subject, Z3D_SUBJECT_GROUP);
        }
        if (info->rules == Z3D_CLASS_FORWARD || info->rules == Z3D_CLASS_BACKWARD) {
            EXPECT_EQ(info->subject, Z3D_SUBJECT_UNIT);
        }
        if (info->rules == Z3D_CLASS_OPTIMIZER || info->rules == Z3D_CLASS_SUM) {
            EXPECT_EQ(info->subject, Z3D_SUBJECT_GROUP);
        }
        if (info->moves == Z3D_MOVES_ACTIVATIONS) {
            EXPECT_EQ(info->subject, Z3D_SUBJECT_UNIT);
        }
        if (info->moves == Z3D_MOVES_PARAMETERS || info->moves == Z3D_MOVES_GRADIENTS) {
            EXPECT_EQ(info->subject, Z3D_SUBJECT_GROUP);
        }
        if (info->moves == Z3D_MOVES_GRADIENTS) {
            EXPECT_EQ(info->modes, 1u << Z3D_MODE_TRAIN);
        }
        for (z3d_slot slot : {info->from, info->to})
            if (slot != Z3D_SLOT_COUNT && info->moves == Z3D_MOVES_ACTIVATIONS) {
                EXPECT_LT((int)slot, (int)Z3D_SLOT_PARAMETERS);
            }
    }
    for (int wrong : {-1, (int)Z3D_OPCODE_COUNT, 1 << 20}) {
        const z3d_opcode_info *info = z3d_opcode_info_of((z3d_opcode)wrong);
        ASSERT_NE(info, nullptr) << wrong;
        EXPECT_NE(z3d_opcode_name((z3d_opcode)wrong), nullptr);
    }
}

namespace {

// The entry that is looked at, said if something fails: to say it of each takes longer than to
// look.
class Entry {
  public:
    Entry(const z3d_program &p, int i) : program_(p), index_(i) {}
    ~Entry() {
        if (testing::Test::HasFailure()) ADD_FAILURE() << "of " << describe(program_, index_);
    }

  private:
    const z3d_program &program_;
    int index_;
};

std::set<int> seen; // opcodes

void expect_entries_agree_with_their_row(const z3d_program &p) {
    for (int i = 0; i < p.num_instructions; i++) {
        const z3d_instruction &in = p.instruction[i];
        const Entry entry(p, i);
        ASSERT_GE((int)in.opcode, 0);
        ASSERT_LT((int)in.opcode, Z3D_OPCODE_COUNT);
        seen.insert(in.opcode);
        const z3d_opcode_info *info = z3d_opcode_info_of(in.opcode);
        ASSERT_TRUE(info->modes >> p.mode & 1);
        if (info->subject == Z3D_SUBJECT_UNIT) {
            ASSERT_TRUE(in.unit >= 0 && in.unit < p.model->num_units);
            ASSERT_TRUE(in.micro >= 0 && in.micro < p.config.accumulation);
        } else {
            ASSERT_EQ(in.unit, -1);
        }
        if (info->subject == Z3D_SUBJECT_GROUP) {
            ASSERT_TRUE(in.group >= 0 && in.group < p.layout->num_groups);
        } else {
            ASSERT_EQ(in.group, -1);
        }
        const z3d_axes axes = z3d_opcode_axes(p.layout, in.opcode, in.group);
        if (info->over == Z3D_OVER_SHARD && p.layout->group[in.group].block > 1)
            ASSERT_TRUE(in.axes == Z3D_ROLE_BLOCKS || in.axes == Z3D_ROLE_NODES);
        else
            ASSERT_EQ((int)in.axes, (int)axes);
        ASSERT_EQ(z3d_is_collective(&in), collective(info->rules));
        ASSERT_EQ(z3d_communicates(&in), collective(info->rules) ||
                                             info->rules == Z3D_CLASS_EXCHANGE ||
                                             info->rules == Z3D_CLASS_RESULT);
        ASSERT_EQ(in.peer >= 0, z3d_is_point_to_point(&in));
        ASSERT_TRUE(in.peer < p.layout->stages && in.peer != p.layout->stage);
        if (collective(info->rules)) {
            ASSERT_NE(in.phase, Z3D_PHASE_WHOLE);
        }
        if (in.phase != Z3D_PHASE_WHOLE) {
            ASSERT_TRUE(collective(info->rules) || info->rules == Z3D_CLASS_COPY);
        }
    }
}

void expect_every_start_has_one_wait(const z3d_program &p) {
    std::map<int, int> open; // ticket: its start
    std::set<int> used;
    for (int i = 0; i < p.num_instructions; i++) {
        const z3d_instruction &in = p.instruction[i];
        const Entry entry(p, i);
        if (in.phase == Z3D_PHASE_WHOLE) {
            ASSERT_EQ(in.ticket, -1);
        } else if (in.phase == Z3D_PHASE_START) {
            ASSERT_TRUE(in.ticket >= 0 && in.ticket < p.num_tickets);
            ASSERT_TRUE(used.insert(in.ticket).second);
            open[in.ticket] = i;
        } else {
            ASSERT_EQ(open.count(in.ticket), 1u);
            const z3d_instruction &start = p.instruction[open[in.ticket]];
            ASSERT_EQ(start.opcode, in.opcode);
            ASSERT_EQ(start.unit, in.unit);
            ASSERT_EQ(start.micro, in.micro);
            ASSERT_EQ(start.group, in.group);
            ASSERT_EQ(start.peer, in.peer);
            ASSERT_EQ((int)start.axes, (int)in.axes);
            ASSERT_EQ(start.rows, in.rows);
            ASSERT_EQ(start.first, in.first);
            ASSERT_EQ(start.count, in.count);
            ASSERT_EQ(start.num_slots, in.num_slots);
            for (int s = 0; s < in.num_slots; s++) {
                ASSERT_EQ(start.buffer[s], in.buffer[s]);
                z3d_buffer_operand a = z3d_instruction_operand(&p, &start, s),
                                   b = z3d_instruction_operand(&p, &in, s);
                ASSERT_EQ(a.access, b.access);
                ASSERT_EQ(a.rows, b.rows);
                ASSERT_EQ(a.first, b.first);
                ASSERT_EQ(a.count, b.count);
            }
            open.erase(in.ticket);
        }
    }
    ASSERT_TRUE(open.empty()) << "nobody waits for " << describe(p, open.begin()->second);
    ASSERT_EQ((int)used.size(), p.num_tickets);
}

void expect_operands_lie_in_their_buffers(const z3d_program &p) {
    for (int i = 0; i < p.num_instructions; i++) {
        const z3d_instruction &in = p.instruction[i];
        for (int s = 0; s < in.num_slots; s++) {
            z3d_buffer_operand o = z3d_instruction_operand(&p, &in, s);
            if (o.slot == s && o.buffer < 0 && in.buffer[s] < 0) continue; // most slots
            const Entry entry(p, i);
            ASSERT_EQ(o.slot, s);
            ASSERT_EQ(o.buffer, in.buffer[s]);
            ASSERT_LT(o.buffer, p.num_buffers);
            const z3d_buffer &b = p.buffer[o.buffer];
            EXPECT_NE(o.access, 0u) << "it names a buffer that it does not use";
            EXPECT_LE(b.first, i);
            EXPECT_GE(b.last, i);
            ASSERT_NE(o.rows, 0);
            EXPECT_EQ(o.rows & ~Z3D_ROWS_ALL, 0);
            EXPECT_GE(o.first, 0);
            EXPECT_GT(o.count, 0);
            if (o.group < 0 && in.columns > 0) { // its columns of what travels as one
                const z3d_matrix m = z3d_instruction_matrix(&p, &in);
                EXPECT_EQ(o.first, in.column);
                EXPECT_EQ(o.count, m.columns);
                EXPECT_EQ(b.bytes, z3d_bytes_of(m.dtype, m.ranks * in.columns));
                continue;
            }
            if (o.group < 0) {
                EXPECT_EQ(o.first, 0);
                EXPECT_EQ(o.count, INT64_MAX) << "all columns that there are";
                continue;
            }
            ASSERT_LT(o.group, p.layout->num_groups);
            const z3d_group_layout &g = p.layout->group[o.group];
            if (b.group >= 0) {
                EXPECT_EQ(b.group, o.group);
            }
            EXPECT_LE(o.first + o.count, o.columns > 0 ? o.columns : g.shard);
            EXPECT_EQ(o.rows & ~b.rows, 0) << "rows that do not lie in it";
            int64_t elements = b.rows == Z3D_ROWS_ALL     ? g.padded
                               : b.rows == Z3D_ROWS_BLOCK ? g.shard * g.block
                                                          : g.shard;
            EXPECT_GE(b.bytes, elements * (int64_t)z3d_dtype_size(type_of(p, s)));
        }
        if (testing::Test::HasFailure()) return;
    }
}

struct Run {
    int64_t first, count;
};

// One a row; without allocations: there are millions.
class Runs {
  public:
    Runs &push(Run run) {
        if (count_ == std::size(run_)) throw std::out_of_range("rows");
        run_[count_++] = run;
        return *this;
    }
    const Run *begin() const {
        return run_;
    }
    const Run *end() const {
        return run_ + count_;
    }

  private:
    Run run_[4];
    size_t count_ = 0;
};

// The elements of a group's flat buffer that an operand is about. What is no group's matrix is one
// element here, or, of several groups', one in each column.
Runs runs_of(const z3d_program &p, const z3d_buffer_operand &o, int rows) {
    Runs runs;
    if (o.group < 0) return runs.push({o.first, o.count == INT64_MAX ? 1 : o.count});
    const z3d_group_layout &g = p.layout->group[o.group];
    if (o.columns == 0) return runs.push({0, g.padded});
    const int64_t block = o.columns / g.shard, own = g.own / block;
    for (int64_t row = 0; row < g.rows / block; row++) {
        const bool near = row * block / g.block == g.own / g.block;
        const int kind = row == own ? Z3D_ROWS_OWN : near ? Z3D_ROWS_NEAR : Z3D_ROWS_FAR;
        if (rows & kind) runs.push({row * o.columns + o.first, o.count});
    }
    return runs;
}

// Which elements of each buffer hold something.
class Written {
  public:
    explicit Written(const z3d_program &p) : element_((size_t)p.num_buffers) {
        for (int i = 0; i < p.num_instructions; i++)
            for (int s = 0; s < p.instruction[i].num_slots; s++) {
                z3d_buffer_operand o = z3d_instruction_operand(&p, &p.instruction[i], s);
                const int64_t own = o.count == INT64_MAX ? 1 : p.instruction[i].columns;
                if (o.buffer >= 0)
                    make(o.buffer, o.group < 0 ? own : p.layout->group[o.group].padded);
            }
        for (int g = 0; g < p.layout->num_groups; g++) {
            const z3d_group_layout &l = p.layout->group[g];
            const Run whole = {0, l.padded}, own = {l.own * l.shard, l.shard};
            const bool all =
                z3d_state_is_whole(p.layout, g, Z3D_STATE_VALUE) &&
                (z3d_state_is_whole(p.layout, g, Z3D_STATE_OPTIMIZER) || p.config.gathered);
            for (int part = 0; part < Z3D_STATE_COUNT; part++)
                make(z3d_program_group_buffer(&p, g, (z3d_state_role)part), l.padded);
            set(z3d_program_group_buffer(&p, g, Z3D_STATE_VALUE), all ? whole : own, true);
            if (p.config.gathered)
                set(z3d_program_group_buffer(&p, g, Z3D_STATE_SECONDARY),
                    {l.own / l.block * l.block * l.shard, l.block * l.shard}, true);
            if (p.mode == Z3D_MODE_TRAIN)
                set(z3d_program_group_buffer(&p, g, Z3D_STATE_OPTIMIZER), whole, true);
            if (p.mode == Z3D_MODE_TRAIN && p.config.offload.delayed) // the last step's
                set(z3d_program_group_buffer(&p, g, Z3D_STATE_GRADIENT),
                    z3d_state_is_whole(p.layout, g, Z3D_STATE_GRADIENT) ? whole : own, true);
        }
    }
    void set(int buffer, Run run, bool value) {
        memset(at(buffer, run), value, (size_t)run.count);
    }
    bool all(int buffer, Run run) {
        return !memchr(at(buffer, run), 0, (size_t)run.count);
    }

  private:
    std::vector<std::vector<char>> element_;
    void make(int buffer, int64_t elements) {
        std::vector<char> &b = element_[(size_t)buffer];
        if (b.empty()) b.assign((size_t)elements, 0);
        EXPECT_EQ((int64_t)b.size(), elements) << "one buffer, two matrices";
    }
    char *at(int buffer, Run run) {
        std::vector<char> &b = element_[(size_t)buffer];
        if (run.first < 0 || run.first + run.count > (int64_t)b.size())
            throw std::out_of_range("elements");
        return &b[(size_t)run.first];
    }
};

// Operand by operand in list order; what runs beside compute has read at its start and has written
// at its wait.
void expect_nothing_is_read_that_was_not_written(const z3d_program &p) {
    Written written(p);
    for (int i = 0; i < p.num_instructions; i++) {
        const z3d_instruction &in = p.instruction[i];
        for (int pass = 0; pass < 2; pass++)
            for (int s = 0; s < in.num_slots; s++) {
                z3d_buffer_operand o = z3d_instruction_operand(&p, &in, s);
                if (o.buffer < 0) continue;
                // An all-gather in place updates all rows from everybody's own ones.
                int rows = o.rows;
                z3d_opcode_class rules = z3d_opcode_info_of(in.opcode)->rules;
                if (rules == Z3D_CLASS_ALL_GATHER && pass == 0)
                    rows &= z3d_instruction_own_rows(&p, &in);
                // A cache has what earlier runs left in it.
                bool defined = s == Z3D_SLOT_CACHE;
                if (pass == 0 && in.phase != Z3D_PHASE_WAIT && !defined &&
                    o.access & Z3D_ACCESS_READ) {
                    for (const Run &run : runs_of(p, o, rows))
                        ASSERT_TRUE(written.all(o.buffer, run))
                            << describe(p, i) << " reads "
                            << z3d_buffer_name(&p.buffer[o.buffer]).text << ", slot " << s
                            << ", rows " << rows << ", elements " << run.first << "+" << run.count;
                }
                if (pass == 1 && in.phase != Z3D_PHASE_START &&
                    o.access & (Z3D_ACCESS_WRITE | Z3D_ACCESS_CLOBBER))
                    for (const Run &run : runs_of(p, o, rows))
                        written.set(o.buffer, run, (o.access & Z3D_ACCESS_WRITE) != 0);
            }
    }
}

// Between a start and its wait nobody else touches what it writes, or writes what it reads.
void expect_the_side_lane_owns_its_buffers(const z3d_program &p) {
    struct Held {
        int entry;
        z3d_buffer_operand operand;
        Runs runs;
    };
    std::vector<Held> held;
    for (int i = 0; i < p.num_instructions; i++) {
        const z3d_instruction &in = p.instruction[i];
        if (in.phase == Z3D_PHASE_WAIT) {
            std::vector<Held> rest;
            for (const Held &h : held)
                if (p.instruction[h.entry].ticket != in.ticket) rest.push_back(h);
            held = rest;
            continue;
        }
        std::vector<Held> own;
        for (int s = 0; s < in.num_slots; s++) {
            z3d_buffer_operand o = z3d_instruction_operand(&p, &in, s);
            if (o.buffer < 0 || o.access == 0) continue;
            own.push_back({i, o, runs_of(p, o, o.rows)});
            for (const Held &h : held) {
                const z3d_buffer_operand &other = h.operand;
                bool same = false;
                for (const Run &x : h.runs)
                    for (const Run &y : own.back().runs)
                        same = same || (other.buffer == o.buffer && x.first < y.first + y.count &&
                                        y.first < x.first + x.count);
                bool reads = o.access == Z3D_ACCESS_READ && other.access == Z3D_ACCESS_READ;
                ASSERT_TRUE(!same || reads)
                    << describe(p, i) << " uses " << z3d_buffer_name(&p.buffer[o.buffer]).text
                    << " that belongs to " << describe(p, h.entry);
            }
        }
        if (in.phase == Z3D_PHASE_START) held.insert(held.end(), own.begin(), own.end());
    }
}

} // namespace

// All rules on each program: to build them takes longer than to look.
TEST(Programs, KeepTheRulesOfTheTable) {
    for_each_program([](const z3d_program &p) {
        expect_entries_agree_with_their_row(p);
        expect_every_start_has_one_wait(p);
        expect_operands_lie_in_their_buffers(p);
        expect_nothing_is_read_that_was_not_written(p);
        expect_the_side_lane_owns_its_buffers(p);
    });
    EXPECT_EQ(seen.size(), (size_t)Z3D_OPCODE_COUNT) << "some instruction is in no program";
}

// The paper's table, with accumulation and grad_reduce as docs/configuration.md has them: reducing
// once a step keeps whole gradients; else stage 1 needs others' rows in no micro-batch but its own.
TEST(States, KeptRowsAreThePapers) {
    for (int stage = 0; stage < 4; stage++)
        for (int accumulation : {1, 2, 5})
            for (int per_step : {0, 1})
                for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16, Z3D_F16})
                    for (int k = 0; k < Z3D_OPTIMIZER_COUNT; k++) {
                        Options o = programs::small();
                        o.data = 4;
                        o.stage = stage;
                        o.accumulation = accumulation;
                        o.reduce_per_step = per_step;
                        o.dtype = dtype;
                        o.optimizer = (z3d_optimizer)k;
                        SCOPED_TRACE(name_of(o) + " " + z3d_optimizer_name(o.optimizer));
                        World w(o);
                        ASSERT_Z3D(w.prepare());
                        bool narrow = dtype != Z3D_F32, two = o.optimizer == Z3D_OPTIMIZER_adamw ||
                                                              o.optimizer == Z3D_OPTIMIZER_adam;
                        bool parameters = stage < 3, optimizer = stage < 1;
                        bool gradients = accumulation > 1 ? stage < 1 || per_step : stage < 2;
                        int64_t bytes[Z3D_STATE_COUNT] = {};
                        for (const z3d_layout *layout : w.layouts)
                            for (int g = 0; g < layout->num_groups; g++) {
                                EXPECT_EQ(z3d_state_is_whole(layout, g, Z3D_STATE_VALUE),
                                          parameters);
                                EXPECT_EQ(z3d_state_is_whole(layout, g, Z3D_STATE_GRADIENT),
                                          gradients);
                                EXPECT_EQ(z3d_state_is_whole(layout, g, Z3D_STATE_OPTIMIZER),
                                          optimizer);
                                for (int part = 0; part < Z3D_STATE_COUNT; part++)
                                    bytes[part] += z3d_state_bytes(layout, g, (z3d_state_role)part);
                            }
                        int64_t p = 4 * w.layouts[0]->padded_total, own = p / 4; // of four ranks
                        int64_t states = (narrow ? 4 : 0) + (two ? 8 : 4);
                        EXPECT_EQ(bytes[Z3D_STATE_VALUE],
                                  (narrow ? 2 : 4) * (parameters ? p : own));
                        EXPECT_EQ(bytes[Z3D_STATE_GRADIENT],
                                  (narrow ? 2 : 4) * (gradients ? p : own));
                        EXPECT_EQ(bytes[Z3D_STATE_OPTIMIZER], states * (optimizer ? p : own));
                    }
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
