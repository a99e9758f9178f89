// The builder by mutation: each of its decisions (number_decisions.py says which there are) is made
// the other way, one at a time. The builder, the planner or the verifier refuses what comes of it,
// or it is the same program, or running it gives the same bits on real ranks.
#include <sys/resource.h>
#include <sys/wait.h>

#include <fcntl.h>

#include "tests/zero/programs.h"
#include "tests/zero/runner.h"

extern "C" {
#include "tests/zero/decisions.h"
}

namespace {

int chosen = -1;           // made the other way
std::vector<bool> reached; // by decision: since it was cleared

} // namespace

bool z3d_decide(int number, bool value) {
    reached[(size_t)number] = true;
    return value != (number == chosen);
}

bool z3d_decide_bound(int number) {
    reached[(size_t)number] = true;
    return number == chosen;
}

namespace {

using harness::Runner;
using programs::World;

using Programs = std::vector<z3d_program *>; // by rank

struct Kind {
    z3d_mode mode;
    bool gathered;
};

const Kind kinds[] = {{Z3D_MODE_TRAIN, false},
                      {Z3D_MODE_EVALUATE, false},
                      {Z3D_MODE_EVALUATE, true},
                      {Z3D_MODE_GENERATE, false}};

enum Verdict : char { UNSEEN, REFUSED, KILLED, EQUAL, ACCEPTED, VERDICTS };

bool same_program(const z3d_program *a, const z3d_program *b) {
    return a->num_instructions == b->num_instructions && a->num_buffers == b->num_buffers &&
           memcmp(a->instruction, b->instruction,
                  (size_t)a->num_instructions * sizeof *a->instruction) == 0 &&
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

// In a child: what crashes or does not come to its end is refused, too.
Verdict judge(World &world, const Programs &right, const Kind &kind, int decision) {
    pid_t child = fork();
    if (child == 0) {
        const rlimit seconds = {SANITIZED ? 20 : 2, SANITIZED ? 20 : 2},
                     bytes = {4l << 30, 4l << 30}, none = {0, 0};
        setrlimit(RLIMIT_CPU, &seconds);
        setrlimit(RLIMIT_CORE, &none);
        if (!SANITIZED) setrlimit(RLIMIT_AS, &bytes);
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        _exit(judge_here(world, right, kind, decision));
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return KILLED;
    int verdict = WEXITSTATUS(status);
    return verdict < VERDICTS ? (Verdict)verdict : KILLED; // a sanitizer's exit code
}

// The decisions that building these programs reaches, judged: the ranks share the work.
std::vector<char> judge_all(World &world, Programs &right, const Kind &kind) {
    size_t size = (size_t)z3d_world_size(::world), rank = (size_t)z3d_world_rank(::world);
    size_t count = (size_t)z3d_decision_count;
    reached.assign(count, false);
    EXPECT_Z3D(world.build(kind.mode, kind.gathered));
    right.swap(world.programs);
    const std::vector<bool> looked_at = reached;
    std::vector<char> mine(count, UNSEEN), all(count * size);
    for (size_t n = rank; n < count; n += size)
        if (looked_at[n]) mine[n] = judge(world, right, kind, (int)n);
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
        // What reads beyond an array's end may be accepted here and refused there.
        z3d_status status = build_and_verify(world, kind, n);
        if (z3d_world_agree(::world, status) != Z3D_OK) continue;
        ASSERT_Z3D(runner.run(world.programs[rank], bits)) << z3d_decision_names[n];
        EXPECT_TRUE(bits == expected) << z3d_decision_names[n] << ": accepted, but another result";
    }
}

void try_options(const programs::Options &o) {
    SCOPED_TRACE(programs::name_of(o));
    World world(o);
    Runner runner(o);
    int count[VERDICTS] = {};
    reached.assign((size_t)z3d_decision_count, false);
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(runner.create());
    for (const Kind &kind : kinds) {
        SCOPED_TRACE("mode " + std::to_string(kind.mode) + (kind.gathered ? ", gathered" : ""));
        if (kind.gathered && !runner.has_gathered(kind.mode)) continue;
        Programs right;
        const std::vector<char> verdicts = judge_all(world, right, kind);
        for (char verdict : verdicts) count[(size_t)verdict]++;
        run_accepted(world, right, kind, runner, verdicts);
        World::destroy(right);
        ASSERT_FALSE(testing::Test::HasFatalFailure());
    }
    EXPECT_GT(count[REFUSED], count[ACCEPTED]);
    if (z3d_world_rank(::world) == 0)
        printf("%s: %d refused, %d crash or do not end, %d change nothing, %d accepted\n",
               programs::name_of(o).c_str(), count[REFUSED], count[KILLED], count[EQUAL],
               count[ACCEPTED]);
}

// The configurations that fit this world; RANKS 1, 2 and 4 together run all of them.
TEST(Decisions, AreRefusedOrGiveTheSameBits) {
    for (const programs::Options &o : programs::dozen()) {
        if (o.tensor * o.data != z3d_world_size(::world)) continue;
        ASSERT_NO_FATAL_FAILURE(try_options(o));
    }
}

} // namespace

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
