#include "tests/ranks.h"

#include "tests/groups.h"

extern "C" {
#include "parallel/interface/internal.h"
}

SharedFolder::SharedFolder() {
    char name[256] = {};
    if (z3d_world_rank(world) == 0) {
        own = std::make_unique<Folder>();
        strncpy(name, own->path.c_str(), sizeof name - 1);
    }
    EXPECT_Z3D(z3d_world_broadcast(world, name, sizeof name, 0));
    path = name;
}

SharedFolder::~SharedFolder() {
    barrier(); // nobody reads any more
}

void SharedFolder::barrier() {
    EXPECT_Z3D(z3d_world_agree(world, Z3D_OK));
}

std::string SharedFolder::operator/(const std::string &name) const {
    return path + "/" + name;
}

void FailuresOnly::OnTestPartResult(const ::testing::TestPartResult &result) {
    if (result.failed())
        fprintf(stderr, "rank %d: %s:%d: %s\n", z3d_world_rank(world),
                result.file_name() ? result.file_name() : "?", result.line_number(),
                result.message());
}

int main_on_ranks(int argc, char **argv, z3d_status (*start)(), void (*end)()) {
    ::testing::InitGoogleTest(&argc, argv);
    if (z3d_world_create(&argc, &argv, &world) != Z3D_OK || (start && start() != Z3D_OK)) {
        fprintf(stderr, "%s\n", z3d_error_message());
        return 1;
    }
    world->cores = 1; // ranks that wait sleep: other tests run beside them
    z3d_log_configure(Z3D_LOG_WARN, z3d_world_rank(world));
    if (z3d_world_rank(world) != 0) {
        ::testing::TestEventListeners &listeners = ::testing::UnitTest::GetInstance()->listeners();
        delete listeners.Release(listeners.default_result_printer());
        listeners.Append(new FailuresOnly);
    }
    int failed = RUN_ALL_TESTS();
    if (end) end();
    groups::destroy_all();
    // One rank's failed expectation is everybody's.
    z3d_status agreed =
        z3d_world_agree(world, failed ? Z3D_ERROR(Z3D_ERR_INTERNAL, "a test failed") : Z3D_OK);
    z3d_world_destroy(world);
    return agreed == Z3D_OK ? 0 : 1;
}
