// The verifier by mutation: every entry of a dozen programs is deleted, swapped, shortened and
// bent, one change at a time. The verifier refuses the changed program, or the change is shown to
// be none by running it: two training steps from the same start, with every byte that the step must
// not depend on poisoned, give the same bits. A mutant is tried on rank 0 alone and on all ranks.
// ZERO3D_LONG: all of them; otherwise each mutation of each kind of entry in each configuration at
// least once.
#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "tests/zero/programs.h"
#include "tests/zero/runner.h"

namespace {

using harness::Runner;
using programs::Copy;

// ---- mutations ----

struct Mutation {
    std::string name;
    bool settle; // lifetimes and plan are made anew, so that only the list is judged
    std::function<void(Copy &)> apply;
    bool draws = false; // another entry or buffer
};

const char *text(const z3d_program &p, int index, char *buf) {
    return z3d_instruction_describe(&p, index, buf, 160);
}

// The entry at `index`, seen from a copy.
z3d_instruction &at(Copy &c, int index) {
    return c.entries[(size_t)index];
}

int wait_of(const z3d_program &p, int start) {
    const z3d_instruction &s = p.instruction[start];
    for (int i = start + 1; i < p.num_instructions; i++) {
        const z3d_instruction &w = p.instruction[i];
        if (w.phase == Z3D_PHASE_WAIT && w.opcode == s.opcode && w.group == s.group &&
            w.first == s.first)
            return i;
    }
    return -1;
}

void swaps(const z3d_program &p, int i, std::mt19937 &random, std::vector<Mutation> &out) {
    int n = p.num_instructions, other = (int)(random() % (unsigned)n);
    auto swap = [i](int j) { return [i, j](Copy &c) { std::swap(at(c, i), at(c, j)); }; };
    if (i + 1 < n) {
        out.push_back({"swapped with the next", true, swap(i + 1)});
    }
    if (other != i)
        out.push_back({"swapped with entry " + std::to_string(other), true, swap(other), true});
}

void deletions(const z3d_program &p, int i, std::vector<Mutation> &out) {
    out.push_back({"deleted", true, [i](Copy &c) { c.entries.erase(c.entries.begin() + i); }});
    int wait = p.instruction[i].phase == Z3D_PHASE_START ? wait_of(p, i) : -1;
    if (wait >= 0) {
        out.push_back({"deleted with its wait", true, [i, wait](Copy &c) {
                           c.entries.erase(c.entries.begin() + wait);
                           c.entries.erase(c.entries.begin() + i);
                       }});
    }
    out.push_back({"doubled", true, [i](Copy &c) {
                       const programs::Instruction entry = at(c, i);
                       c.entries.insert(c.entries.begin() + i, entry);
                   }});
}

void shorter_columns(const z3d_program &p, int i, std::vector<Mutation> &out) {
    const z3d_instruction &in = p.instruction[i];
    if (in.count <= 0) return;
    out.push_back({"one column less", false, [i](Copy &c) { at(c, i).count--; }});
    out.push_back({"one column more", false, [i](Copy &c) { at(c, i).count++; }});
    out.push_back({"begins a column later", false, [i](Copy &c) {
                       at(c, i).first++;
                       at(c, i).count--;
                   }});
    int wait = in.phase == Z3D_PHASE_START ? wait_of(p, i) : -1;
    if (wait < 0) return;
    out.push_back({"one column less, its wait too", false, [i, wait](Copy &c) {
                       at(c, i).count--;
                       at(c, wait).count--;
                   }});
}

void shorter_children(const z3d_program &p, int i, std::vector<Mutation> &out) {
    int count = p.instruction[i].num_children;
    if (count == 0) return;
    out.push_back(
        {"without its last collective", false, [i](Copy &c) { at(c, i).num_children--; }});
    out.push_back({"without its first collective", false, [i](Copy &c) {
                       at(c, i).num_children--;
                       at(c, i).child++;
                   }});
    for (int k = 0; k < count; k++) {
        out.push_back(
            {"collective " + std::to_string(k) + " one element shorter", false, [i, k](Copy &c) {
                 z3d_instruction &in = at(c, i);
                 c.children.assign(in.child, in.child + in.num_children);
                 c.children[(size_t)k].count--;
                 in.child = c.children.data();
             }});
    }
}

void shorter_buffers(const z3d_program &p, int i, std::mt19937 &random,
                     std::vector<Mutation> &out) {
    for (int slot = 0; slot < p.instruction[i].num_slots; slot++) {
        int buffer = p.instruction[i].buffer[slot];
        if (buffer < 0) continue;
        std::string name = z3d_buffer_name(&p.buffer[buffer]).text;
        out.push_back({name + " a byte shorter", false,
                       [buffer](Copy &c) { c.buffers[(size_t)buffer].bytes--; }});
        out.push_back({name + " half as long", false,
                       [buffer](Copy &c) { c.buffers[(size_t)buffer].bytes /= 2; }});
        if (!p.buffer[buffer].persistent) {
            out.push_back({name + " dies an entry earlier", false,
                           [buffer](Copy &c) { c.buffers[(size_t)buffer].last--; }});
            out.push_back({name + " is born an entry later", false,
                           [buffer](Copy &c) { c.buffers[(size_t)buffer].first++; }});
        }
        int other = (int)(random() % (unsigned)p.num_buffers);
        out.push_back({"slot " + std::to_string(slot) + " in buffer " + std::to_string(other), true,
                       [i, slot, other](Copy &c) { at(c, i).buffer[slot] = other; }, true});
        out.push_back({"slot " + std::to_string(slot) + " empty", true,
                       [i, slot](Copy &c) { at(c, i).buffer[slot] = -1; }});
    }
}

// Other operands of an entry, where its opcode has them.
void bends(const z3d_program &p, int i, std::vector<Mutation> &out) {
    const z3d_instruction &in = p.instruction[i];
    out.push_back({"adds or overwrites", false, [i](Copy &c) { at(c, i).accumulate ^= 1; }});
    out.push_back({"keeps or not", false, [i](Copy &c) { at(c, i).keep ^= true; }});
    out.push_back(
        {"wants its output or not", false, [i](Copy &c) { at(c, i).need_output ^= true; }});
    if (in.count == 0)
        out.push_back({"begins 16 columns later", false, [i](Copy &c) { at(c, i).first += 16; }});
    out.push_back(
        {"phase", true, [i](Copy &c) { at(c, i).phase = (z3d_phase)((at(c, i).phase + 1) % 3); }});
    out.push_back({"opcode", true, [i](Copy &c) {
                       at(c, i).opcode = (z3d_opcode)((at(c, i).opcode + 1) % Z3D_OPCODE_COUNT);
                   }});
    if (in.phase != Z3D_PHASE_WHOLE)
        out.push_back({"another ticket", false, [i](Copy &c) { at(c, i).ticket ^= 1; }});
    if (in.count > 0 || in.opcode == Z3D_OP_STEP_CONTROL) {
        out.push_back({"axis", false, [i](Copy &c) {
                           at(c, i).axes = (z3d_axes)((at(c, i).axes + 1) % Z3D_AXES_COUNT);
                       }});
    }
    if (in.micro >= 0) {
        out.push_back({"next micro-batch", false, [i](Copy &c) { at(c, i).micro++; }});
        out.push_back({"micro-batch before", false, [i](Copy &c) { at(c, i).micro--; }});
    }
    if (in.peer >= 0) {
        out.push_back({"next peer", false, [i](Copy &c) { at(c, i).peer++; }});
        out.push_back({"peer before", false, [i](Copy &c) { at(c, i).peer--; }});
    }
    if (in.columns > 0) {
        out.push_back({"next column", false, [i](Copy &c) { at(c, i).column++; }});
        out.push_back({"one column more together", false, [i](Copy &c) { at(c, i).columns++; }});
        out.push_back({"travels alone", false, [i](Copy &c) {
                           at(c, i).column = at(c, i).columns = 0;
                           at(c, i).buffer[Z3D_SLOT_WORKSPACE] = -1;
                       }});
    }
    if (in.unit >= 0) out.push_back({"next unit", false, [i](Copy &c) { at(c, i).unit++; }});
    if (in.group >= 0) out.push_back({"next group", false, [i](Copy &c) { at(c, i).group++; }});
}

std::vector<Mutation> mutations_of(const z3d_program &p, int i, std::mt19937 &random) {
    std::vector<Mutation> list;
    deletions(p, i, list);
    swaps(p, i, random, list);
    shorter_columns(p, i, list);
    shorter_children(p, i, list);
    shorter_buffers(p, i, random, list);
    bends(p, i, list);
    return list;
}

// The changed copy of p, or false when it cannot even be planned (which refuses it, too).
// rough: its buffers lie apart from each other, which is planned in no time.
bool mutate(const Mutation &m, Copy &c, bool rough) {
    m.apply(c);
    c.sync();
    c.program.config.rough_memory = rough;
    return !m.settle || c.settle() == Z3D_OK;
}

// Which mutants are tried: the first of those that do the same to entries of the same kind, some of
// the others, and all that draw what they take.
class Sample {
  public:
    bool has(const z3d_instruction &in, const Mutation &m) {
        if (is_long() || m.draws) return true;
        std::string kind = std::to_string(in.opcode) + " " + std::to_string(in.phase) + " ";
        // The number of a slot or a collective is part of the kind, and that of a block is not.
        const bool numbered = m.name.rfind("slot ", 0) == 0 || m.name.rfind("collective ", 0) == 0;
        for (char c : m.name) kind += isdigit((unsigned char)c) && !numbered ? '#' : c;
        return seen_[kind]++ % 16 == 0;
    }

  private:
    std::map<std::string, int> seen_;
};

// ---- the test ----

// refused: by the verifier of one program; on_one: it passes, but ranks that still have the program
// itself cannot play with it; same: passes on rank 0 alone.
struct Counts {
    int mutants = 0, refused = 0, on_one = 0, same = 0;
};

enum Verdict : char { REFUSED, SAME_ON_ALL, SAME_ALONE };

// What one rank says of a mutant: of its own program, and where it is its turn, of the play.
enum Judgement : char { GOOD = 1, PLAYED = 2, ON_ALL = 4, ON_ONE = 8 };

// The rank of `stage` that has the same place in it as `rank` has in its own.
int counterpart(const z3d_mesh &mesh, int rank, int stage) {
    return z3d_mesh_member(&mesh, Z3D_AXES_PIPELINE, rank, stage);
}

int stage_of(const z3d_mesh &mesh, int rank) {
    return z3d_mesh_index(&mesh, Z3D_AXES_PIPELINE, rank);
}

// Plays one mutant of the programs of a stage's ranks, which are equal but for the rank: on all of
// them, and on the first alone. Played even where the mutant is refused already: it must end.
int play(programs::World &world, const z3d_mesh &mesh, int stage, const Mutation &m) {
    int size = world.size();
    std::vector<std::unique_ptr<Copy>> copies;
    std::vector<z3d_program *> all, one = world.programs;
    for (z3d_program *p : world.programs) {
        all.push_back(p);
        if (stage_of(mesh, p->mesh.rank) != stage) continue;
        copies.push_back(std::make_unique<Copy>(*p));
        m.apply(*copies.back());
        all.back() = copies.back()->sync();
    }
    size_t first = (size_t)counterpart(mesh, 0, stage);
    one[first] = all[first];
    bool on_all = z3d_program_verify_world(all.data(), size) == Z3D_OK;
    bool on_one = z3d_program_verify_world(one.data(), size) == Z3D_OK;
    return PLAYED | (on_all ? ON_ALL : 0) | (on_one ? ON_ONE : 0);
}

// All ranks judged their own program; each mutant was played by one.
Verdict verdict_of(const std::vector<char> &judgements, Counts &counts) {
    int played = 0;
    for (char j : judgements) {
        EXPECT_EQ(j & GOOD, judgements[0] & GOOD) << "a rank judges otherwise";
        if (j & PLAYED) played = j;
    }
    counts.mutants++;
    if (!(played & GOOD) || !(played & ON_ALL)) {
        counts.refused++;
        return REFUSED;
    }
    (played & ON_ONE ? counts.same : counts.on_one)++;
    return played & ON_ONE ? SAME_ALONE : SAME_ON_ALL;
}

// Sanitizers look for what the first ones show already, and make every one slow.
const size_t judge_every = SANITIZED ? 8 : 1, run_every = SANITIZED ? 10 : 1;

// The mutants of the programs of `stage`. Each rank judges what became of the program of its place
// there.
void judge_all(programs::World &world, int stage, std::vector<char> &verdicts, Counts &counts) {
    const size_t rank = (size_t)z3d_world_rank(::world), size = (size_t)z3d_world_size(::world);
    const z3d_mesh &mesh = world.programs[0]->mesh;
    const z3d_program &base = *world.programs[(size_t)counterpart(mesh, (int)rank, stage)];
    std::vector<char> mine;
    std::vector<size_t> tried; // by judgement: the mutant
    std::mt19937 random(1);
    Sample sample;
    for (int i = 0; i < base.num_instructions; i++) {
        for (const Mutation &m : mutations_of(base, i, random)) {
            size_t next = verdicts.size();
            verdicts.push_back(REFUSED); // not looked at, and not run
            if (next % judge_every != 0 || !sample.has(base.instruction[i], m)) continue;
            int judgement = 0;
            Copy copy(base);
            if (mutate(m, copy, true)) {
                if (z3d_program_verify(&copy.program) == Z3D_OK) judgement = GOOD;
                if (tried.size() % size == rank) judgement |= play(world, mesh, stage, m);
            }
            tried.push_back(next);
            mine.push_back((char)judgement);
        }
    }
    std::vector<char> all(mine.size() * size), one(size);
    ASSERT_Z3D(z3d_world_gather_all(::world, mine.data(), all.data(), (int64_t)mine.size()));
    for (size_t n = 0; n < mine.size(); n++) {
        for (size_t r = 0; r < size; r++) one[r] = all[r * mine.size() + n];
        verdicts[tried[n]] = verdict_of(one, counts);
    }
}

// Runs what was not refused: on the stage's first rank alone, or on all its ranks where they must
// change together.
void run_accepted(Runner &runner, const z3d_program &base, int stage,
                  const std::vector<char> &verdicts) {
    const z3d_program &own = runner.program();
    const z3d_mesh &mesh = own.mesh;
    std::vector<char> expected, bits;
    std::mt19937 random(1);
    size_t next = 0;
    size_t accepted = 0;
    char entry[160];
    {
        Copy same(own);
        ASSERT_Z3D(runner.run(same.sync(), expected));
        ASSERT_Z3D(runner.run(same.sync(), bits));
        ASSERT_TRUE(bits == expected) << "the program itself does not repeat";
    }
    for (int i = 0; i < base.num_instructions; i++) {
        for (const Mutation &m : mutations_of(base, i, random)) {
            char verdict = verdicts[next++];
            if (verdict == REFUSED || accepted++ % run_every != 0) continue;
            Copy copy(own);
            bool mine = verdict == SAME_ON_ALL ? stage_of(mesh, mesh.rank) == stage
                                               : mesh.rank == counterpart(mesh, 0, stage);
            // Judged in rough memory: what the packer does not plan is refused, on all ranks.
            z3d_status planned = Z3D_OK;
            if (mine && !mutate(m, copy, false))
                planned = Z3D_ERROR(Z3D_ERR_PROGRAM, "not planned: %s", m.name.c_str());
            if (z3d_world_agree(::world, planned) != Z3D_OK) continue;
            ASSERT_Z3D(runner.run(copy.sync(), bits)) << text(base, i, entry) << ": " << m.name;
            EXPECT_TRUE(bits == expected)
                << text(base, i, entry) << ": " << m.name << ": accepted, but another result";
        }
    }
}

void try_world(const programs::Options &o) {
    SCOPED_TRACE(programs::name_of(o));
    programs::World world(o);
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    Runner runner(o);
    ASSERT_Z3D(runner.create());
    int rank = z3d_world_rank(::world);
    for (int stage = 0; stage < o.pipeline; stage++) {
        SCOPED_TRACE("pipeline stage " + std::to_string(stage));
        Counts counts;
        std::vector<char> verdicts;
        int base = counterpart(runner.program().mesh, rank, stage);
        ASSERT_NO_FATAL_FAILURE(judge_all(world, stage, verdicts, counts));
        ASSERT_NO_FATAL_FAILURE(
            run_accepted(runner, *world.programs[(size_t)base], stage, verdicts));
        EXPECT_GT(counts.refused, counts.mutants / 2);
        if (rank != 0) continue;
        printf("%s, stage %d: %d mutants, %d refused, %d refused beside the program itself, %d "
               "accepted\n",
               programs::name_of(o).c_str(), stage, counts.mutants, counts.refused, counts.on_one,
               counts.on_one + counts.same);
    }
}

// The configurations that fit this world; RANKS 1, 2 and 4 together run all of them.
TEST(Mutants, AreRefusedOrGiveTheSameBits) {
    for (const programs::Options &o : programs::dozen()) {
        if (o.ranks() != z3d_world_size(world)) continue;
        ASSERT_NO_FATAL_FAILURE(try_world(o));
    }
}

TEST(Mutants, OfPipelinesAreRefusedOrGiveTheSameBits) {
    for (const programs::Options &o : programs::pipelines()) {
        if (o.ranks() != z3d_world_size(world)) continue;
        ASSERT_NO_FATAL_FAILURE(try_world(o));
    }
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
