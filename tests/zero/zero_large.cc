// Programs of very many layers and buckets: made and verified in time linear in their length, and
// refused where they would be too long. A search through all layers or buckets for every entry
// takes many times as long: then a timer of CPU time ends the test. An eighth of the length, which
// comes first, twice, says how long a linear program takes on this machine.
#include <sys/resource.h>
#include <sys/time.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/zero/programs.h"

namespace {

using programs::Options;
using programs::World;

double cpu_seconds() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    auto seconds = [](const timeval &t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Seconds of CPU time from here on; 0: no limit.
void allow(double seconds) {
    itimerval limit{};
    limit.it_value.tv_sec = (time_t)seconds;
    limit.it_value.tv_usec = (suseconds_t)(1e6 * (seconds - std::floor(seconds)));
    ASSERT_EQ(0, setitimer(ITIMER_PROF, &limit, nullptr));
}

enum { SHORTER = 8, PATIENCE = 40 };

// Length n takes at most four times as long as n / 8 makes one expect.
void expect_linear(int n, const std::function<void(int)> &look) {
    double best = INFINITY; // the first one may wait for memory or for caches
    for (int k = 0; k < 2; k++) {
        const double begin = cpu_seconds();
        ASSERT_NO_FATAL_FAILURE(look(n / SHORTER));
        best = std::min(best, cpu_seconds() - begin);
    }
    ASSERT_NO_FATAL_FAILURE(allow(0.5 + 4 * SHORTER * best));
    ASSERT_NO_FATAL_FAILURE(look(n));
    ASSERT_NO_FATAL_FAILURE(allow(0));
}

// Not World::build: the packer's effort is another matter (and limited).
void build_and_verify(World &world, z3d_mode mode) {
    z3d_program_config c = world.o.program_config();
    z3d_mesh t;
    ASSERT_Z3D(world.prepare());
    world.programs.assign((size_t)world.size(), nullptr);
    for (int rank = 0; rank < world.size(); rank++) {
        ASSERT_Z3D(world.o.make_mesh(rank, &t));
        ASSERT_Z3D(z3d_program_build(world.model, world.layouts[(size_t)rank], world.traces, &t, &c,
                                     mode, &world.programs[(size_t)rank]));
    }
    for (int stage = 0; stage < world.o.pipeline; stage++)
        ASSERT_Z3D(
            z3d_program_verify(world.programs[(size_t)(stage * world.size() / world.o.pipeline)]));
    ASSERT_Z3D(z3d_program_verify_world(world.programs.data(), world.size()));
}

Options tiny(int stage, int64_t layers) {
    Options o = programs::small();
    o.stage = stage;
    o.layers = layers;
    o.data = 2;
    o.hidden = 4;
    o.sequence = 4;
    o.bucket = 1 << 20;
    return o;
}

TEST(Large, TensOfThousandsOfLayersAreLinear) {
    for (int stage : {0, 3, 2})
        expect_linear(20000, [stage](int layers) {
            Options o = tiny(stage, layers);
            if (stage == 2) {
                o.checkpoint_space = Z3D_SPACE_HOST;
                o.checkpoint_every = layers / 3;
            }
            World world(o);
            ASSERT_NO_FATAL_FAILURE(build_and_verify(world, Z3D_MODE_TRAIN));
        });
}

TEST(Large, ThousandsOfMicroBatchesThroughPipelinesAreLinear) {
    for (const harness::Schedule &schedule : harness::SCHEDULES)
        expect_linear(2000, [&schedule](int accumulation) {
            Options o = tiny(2, 6); // with embedding and head a unit for each chunk
            o.schedule = schedule.kind, o.chunks = schedule.chunks;
            o.pipeline = 4, o.data = 1;
            o.accumulation = accumulation / 4 * 4; // interleaved wants whole rounds
            SCOPED_TRACE(programs::name_of(o));
            World world(o);
            ASSERT_NO_FATAL_FAILURE(build_and_verify(world, Z3D_MODE_TRAIN));
        });
}

// Buckets of one layer; their number grows with the square of its size.
TEST(Large, HundredThousandsOfBucketsAreLinear) {
    for (int stage : {0, 2})
        expect_linear(128 * 128, [stage](int squared) {
            Options o = tiny(stage, 1);
            o.hidden = (int64_t)std::sqrt((double)squared) / 2 * 2;
            o.bucket = 4;
            World world(o);
            ASSERT_NO_FATAL_FAILURE(build_and_verify(world, Z3D_MODE_TRAIN));
            if (squared == 128 * 128) {
                EXPECT_GT(world.programs[0]->num_instructions, 125000);
            }
        });
}

// Addresses of what is alive together are compared by neighbours, not by pairs.
TEST(Large, AddressesOfManyBuffersAreVerified) {
    World world(tiny(2, 3000));
    allow(PATIENCE);
    ASSERT_Z3D(world.prepare());
    ASSERT_Z3D(world.build());
    ASSERT_Z3D(z3d_program_verify(world.programs[0]));
    allow(0);
    programs::Copy copy(*world.programs[0]);
    int last = copy.program.num_buffers - 1,
        other = z3d_program_group_buffer(&copy.program, 1500, Z3D_STATE_OPTIMIZER);
    copy.buffers[(size_t)last].offset = copy.buffers[(size_t)other].offset;
    EXPECT_EQ(z3d_program_verify(&copy.program), Z3D_ERR_PROGRAM);
    EXPECT_NE(nullptr, strstr(z3d_error_message(), "share addresses")) << z3d_error_message();
}

TEST(Large, TooManyBucketsAreRefusedWithAdvice) {
    Options o = tiny(2, 12);
    o.hidden = 512;
    o.bucket = 1;
    World world(o);
    ASSERT_Z3D(world.prepare());
    EXPECT_EQ(world.build(), Z3D_ERR_CONFIG);
    for (const char *word :
         {"more than 5000000 entries", "zero_optimization.allgather_bucket_size 1 cuts",
          "use a larger allgather_bucket_size"})
        EXPECT_NE(nullptr, strstr(z3d_error_message(), word)) << z3d_error_message();
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
