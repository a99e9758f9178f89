// Where a device's copies go on while the host does (cuda: z3d_copy_wait does not block), a disk
// must not read into host memory that is still being copied, nor write it: the host has seen the
// copy's end before.
#include <gtest/gtest.h>

#include <map>

#include "tests/zero/harness.h"

extern "C" {
#include "src/base/disk.h"

struct Copy {
    const char *end[2];
    int64_t bytes;
};
static std::map<int64_t, Copy> under_way; // for all that the host knows
static int requests, overlaps;

z3d_status __real_z3d_copy_start(z3d_device *, void *, const void *, int64_t, z3d_copy *);
z3d_status __wrap_z3d_copy_start(z3d_device *device, void *to, const void *from, int64_t bytes,
                                 z3d_copy *copy) {
    z3d_status status = __real_z3d_copy_start(device, to, from, bytes, copy);
    under_way[copy->id] = {{(const char *)to, (const char *)from}, bytes};
    return status;
}

z3d_status __wrap_z3d_copy_finish(z3d_device *device, z3d_copy copy) {
    under_way.erase(under_way.begin(), under_way.upper_bound(copy.id)); // in the order of starts
    return z3d_copy_wait(device, copy);
}

z3d_status __real_z3d_device_read(z3d_device *, void *, const void *, int64_t);
z3d_status __wrap_z3d_device_read(z3d_device *device, void *host, const void *source,
                                  int64_t bytes) {
    under_way.clear(); // all have been waited for where something is read
    return __real_z3d_device_read(device, host, source, bytes);
}

z3d_status __real_z3d_disk_start(z3d_disk *, bool, int64_t, void *, int64_t, int64_t *);
z3d_status __wrap_z3d_disk_start(z3d_disk *disk, bool write, int64_t offset, void *memory,
                                 int64_t bytes, int64_t *ticket) {
    const char *at = (const char *)memory;
    requests++;
    for (const auto &[id, copy] : under_way)
        for (const char *end : copy.end) overlaps += end < at + bytes && at < end + copy.bytes;
    return __real_z3d_disk_start(disk, write, offset, memory, bytes, ticket);
}
}

TEST(HostCopies, AreOverBeforeADiskUsesTheirMemory) {
    for (z3d_space checkpoints : {Z3D_SPACE_HOST, Z3D_SPACE_DISK})
        for (z3d_space parameters : {Z3D_SPACE_DEVICE, Z3D_SPACE_HOST, Z3D_SPACE_DISK}) {
            harness::Options o;
            o.stage = 3;
            o.sequence = 64;
            o.steps = 1;
            o.accumulation = parameters == Z3D_SPACE_DISK ? 1 : 2;
            o.checkpoint_every = 2;
            o.checkpoint_space = checkpoints;
            o.tiers.optimizer = Z3D_SPACE_DISK;
            o.tiers.parameters = parameters;
            SCOPED_TRACE(harness::name_of(o));
            requests = overlaps = 0;
            harness::train(o);
            EXPECT_GT(requests, 0);
            EXPECT_EQ(overlaps, 0);
        }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
