// The builder by mutation: each of its decisions (number_decisions.py says which there are) is made
// the other way, one at a time. The builder, the planner or the verifier refuses what comes of it,
// or it is the same program, or running it gives the same bits on real ranks. ZERO3D_LONG: every
// decision in every configuration.
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <fcntl.h>

#include <csignal>
#include <set>

#include "tests/zero/programs.h"
#include "tests/zero/runner.h"

extern "C" {
#include "tests/zero/decisions.h"
}

namespace {

int chosen = -1;           // made the other way
std::vector<char> reached; // by decision: since it was cleared

} // namespace

bool z3d_decide(int number, bool value) {
    reached[(size_t)number] = 1;
    return value != (number == chosen);
}

bool z3d_decide_bound(int number) {
    reached[(size_t)number] = 1;
    return number == chosen;
}

namespace {

using harness::Runner;
using programs::Copy;
using programs::World;

using Programs = std::vector<z3d_program *>; // by rank

struct Kind {
    z3d_mode mode;
    bool gathered;
};

const Kind kinds[] = {{Z3D_MODE_TRAIN, false},
                      {Z3D_MODE_EVALUATE, false},
                      {Z3D_MODE_EVALUATE, true},
                      {Z3D_MODE_PREFILL, false}};

enum Verdict : char { UNSEEN, REFUSED, KILLED, EQUAL, ACCEPTED, VERDICTS };

bool same_instruction(z3d_instruction a, z3d_instruction b) {
    a.buffer = b.buffer; // the slots lie elsewhere
    return memcmp(&a, &b, sizeof a) == 0;
}

bool same_program(const z3d_program *a, const z3d_program *b) {
    return a->num_instructions == b->num_instructions && a->num_buffers == b->num_buffers &&
           a->num_slots == b->num_slots &&
           std::equal(a->instruction, a->instruction + a->num_instructions, b->instruction,
                      same_instruction) &&
           memcmp(a->slot, b->slot, (size_t)a->num_slots * sizeof *a->slot) == 0 &&
           memcmp(a->buffer, b->buffer, (size_t)a->num_buffers * sizeof *a->buffer) == 0;
}

z3d_status build_and_verify(World &world, const Kind &kind, int decision) {
    chosen = decision;
    z3d_status status = world.build(kind.mode, kind.gathered);
    chosen = -1;
    Z3D_TRY(status);
    for (z3d_program *p : world.programs) Z3D_TRY(z3d_program_verify(p));
    return z3d_program_verify_world(world.programs.data(), world.size());
}

Verdict judge_here(World &world, const Programs &right, const Kind &kind, int decision) {
    if (build_and_verify(world, kind, decision) != Z3D_OK) return REFUSED;
    for (size_t rank = 0; rank < world.programs.size(); rank++)
        if (!same_program(world.programs[rank], right[rank])) return ACCEPTED;
    return EQUAL;
}

template <typename T> void put(FILE *to, const T *what, int count) {
    fwrite(what, sizeof *what, (size_t)count, to);
}

template <typename T> bool take(FILE *from, T *what, int count) {
    return fread(what, sizeof *what, (size_t)count, from) == (size_t)count;
}

// What a child may take: what crashes or does not come to its end is refused, too.
void limit_child() {
    const itimerval patience = {
        {}, {SANITIZED ? 2 : 0, 250000}}; // of CPU time: 20 times what any takes that ends
    const rlimit bytes = {4l << 30, 4l << 30}, none = {0, 0};
    setitimer(ITIMER_PROF, &patience, nullptr);
    setrlimit(RLIMIT_CORE, &none);
    if (!SANITIZED) setrlimit(RLIMIT_AS, &bytes);
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    // MPI's handlers would take memory, whose lock the crash may hold.
    for (int crash : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) signal(crash, SIG_DFL);
}

// Everything that such a builder does is done in a child, since it may write anywhere. If it is
// accepted, *own is this rank's program: the child's memory lies at the same addresses.
Verdict judge(World &world, const Programs &right, const Kind &kind, int decision,
              std::unique_ptr<Copy> *own) {
    int end[2], rank = z3d_world_rank(::world);
    Verdict verdict = KILLED;
    if (pipe(end) != 0) return KILLED;
    pid_t child = fork();
    if (child == 0) {
        limit_child();
        verdict = judge_here(world, right, kind, decision);
        FILE *to = fdopen(end[1], "w");
        put(to, &verdict, 1);
        if (verdict == ACCEPTED) {
            const z3d_program *p = world.programs[(size_t)rank];
            put(to, p, 1);
            put(to, p->instruction, p->num_instructions);
            put(to, p->slot, p->num_slots);
            put(to, p->buffer, p->num_buffers);
        }
        _exit(fflush(to));
    }
    close(end[1]);
    FILE *from = fdopen(end[0], "r");
    if (!take(from, &verdict, 1)) verdict = KILLED;
    z3d_program p;
    if (verdict == ACCEPTED && take(from, &p, 1)) {
        std::vector<z3d_instruction> instructions((size_t)p.num_instructions);
        std::vector<z3d_buffer> buffers((size_t)p.num_buffers);
        std::vector<int> slots((size_t)p.num_slots);
        bool whole = take(from, instructions.data(), p.num_instructions) &&
                     take(from, slots.data(), p.num_slots) &&
                     take(from, buffers.data(), p.num_buffers);
        int *next = slots.data();
        for (z3d_instruction &in : instructions) in.buffer = next, next += in.num_slots;
        p.instruction = instructions.data();
        p.buffer = buffers.data();
        if (whole) *own = std::make_unique<Copy>(p);
    }
    fclose(from);
    int status = 0;
    waitpid(child, &status, 0);
    return status == 0 ? verdict : KILLED;
}

// Which decisions are looked at: where a program is the first that reaches one, and by turns in
// some of the others. A child that never ends takes seconds with sanitizers.
class Sample {
  public:
    Sample(size_t every, size_t sanitized) : every_(SANITIZED ? sanitized : every) {}
    void next_program() {
        turn_++;
    }
    bool has(size_t decision) {
        bool first = !SANITIZED && seen_.insert(decision).second;
        return is_long() || first || (decision + turn_) % every_ == 0;
    }

  private:
    size_t every_, turn_ = 0;
    std::set<size_t> seen_;
};

// The decisions that building these programs reaches, judged: the ranks share the work.
std::vector<char> judge_all(World &world, Programs &right, const Kind &kind, Sample &sample) {
    size_t size = (size_t)z3d_world_size(::world), rank = (size_t)z3d_world_rank(::world);
    size_t count = (size_t)z3d_decision_count;
    reached.assign(count, 0);
    EXPECT_Z3D(world.build(kind.mode, kind.gathered));
    right.swap(world.programs);
    std::vector<char> looked_at = reached;
    for (size_t n = 0; n < count; n++) looked_at[n] = looked_at[n] && sample.has(n);
    std::vector<char> mine(count, UNSEEN), all(count * size);
    std::unique_ptr<Copy> unused;
    for (size_t n = rank; n < count; n += size)
        if (looked_at[n]) mine[n] = judge(world, right, kind, (int)n, &unused);
    EXPECT_Z3D(z3d_world_gather_all(::world, mine.data(), all.data(), (int64_t)count));
    for (size_t n = 0; n < count; n++) mine[n] = all[n % size * count + n];
    return mine;
}

void run_accepted(World &world, const Programs &right, const Kind &kind, Runner &runner,
                  const std::vector<char> &verdicts) {
    size_t rank = (size_t)z3d_world_rank(::world);
    std::vector<char> expected, bits;
    ASSERT_Z3D(runner.run(right[rank], expected));
    for (int n = 0; n < z3d_decision_count; n++) {
        if (verdicts[(size_t)n] != ACCEPTED) continue;
        if (rank == 0) printf("accepted, run: %s\n", z3d_decision_names[n]), fflush(stdout);
        std::unique_ptr<Copy> own;
        judge(world, right, kind, n, &own);
        // What reads beyond an array's end may be accepted here and refused there.
        z3d_status status = own ? Z3D_OK : Z3D_ERROR(Z3D_ERR_PROGRAM, "refused");
        if (z3d_world_agree(::world, status) != Z3D_OK) continue;
        ASSERT_Z3D(runner.run(&own->program, bits)) << z3d_decision_names[n];
        EXPECT_TRUE(bits == expected) << z3d_decision_names[n] << ": accepted, but another result";
    }
}

void try_options(const programs::Options &o, Sample &sample, std::vector<int> &total) {
    SCOPED_TRACE(programs::name_of(o));
    World world(o);
    Runner runner(o);
    int count[VERDICTS] = {};
    reached.assign((size_t)z3d_decision_count, 0);
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(runner.create());
    for (const Kind &kind : kinds) {
        SCOPED_TRACE("mode " + std::to_string(kind.mode) + (kind.gathered ? ", gathered" : ""));
        if (kind.gathered && !runner.has_gathered(kind.mode)) continue;
        Programs right;
        sample.next_program();
        const std::vector<char> verdicts = judge_all(world, right, kind, sample);
        for (char verdict : verdicts) count[(size_t)verdict]++;
        run_accepted(world, right, kind, runner, verdicts);
        World::destroy(right);
        ASSERT_FALSE(testing::Test::HasFatalFailure());
    }
    for (int v = 0; v < VERDICTS; v++) total[(size_t)v] += count[v];
    if (z3d_world_rank(::world) == 0)
        printf("%s: %d refused, %d crash or do not end, %d change nothing, %d accepted\n",
               programs::name_of(o).c_str(), count[REFUSED], count[KILLED], count[EQUAL],
               count[ACCEPTED]);
}

void try_all(const std::vector<programs::Options> &list, Sample sample) {
    std::vector<int> total(VERDICTS);
    for (const programs::Options &o : list) {
        if (o.ranks() != z3d_world_size(::world)) continue;
        ASSERT_NO_FATAL_FAILURE(try_options(o, sample, total));
    }
    if (total == std::vector<int>(VERDICTS)) GTEST_SKIP() << "other worlds have them";
    // Most are refused: by the verifier, not by a crash.
    EXPECT_GT(total[REFUSED], total[ACCEPTED]);
    EXPECT_GT(total[REFUSED], total[KILLED]);
}

// The configurations that fit this world; RANKS 1, 2 and 4 together run all of them.
TEST(Decisions, AreRefusedOrGiveTheSameBits) {
    try_all(programs::dozen(), Sample(16, 16));
}

TEST(Decisions, OfPipelinesAreRefusedOrGiveTheSameBits) {
    try_all(programs::pipelines(), Sample(16, 64));
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
