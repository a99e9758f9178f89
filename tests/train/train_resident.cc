// Where a process' resident memory goes: every page has a name, and the sum is what the system
// says.
#include <gtest/gtest.h>

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <string>

extern "C" {
#include "src/train/report/resident.h"
}

namespace {

z3d_resident parse(const std::string &text, const z3d_stretch *arenas, int count,
                   bool *understood) {
    z3d_resident r{};
    FILE *file = fmemopen(const_cast<char *>(text.data()), text.size(), "r");
    *understood = z3d_resident_parse(file, "/opt/bin/zero3d", arenas, count, &r);
    fclose(file);
    return r;
}

TEST(Resident, EveryMappingHasAName) {
    const std::string text =
        "00400000-00500000 r-xp 00000000 08:01 11   /opt/bin/zero3d\n"
        "Size:               1024 kB\nRss:                 100 kB\nPss:  90 kB\n"
        "00700000-00800000 rw-p 00000000 00:00 0    [heap]\nRss: 200 kB\n"
        "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \nRss: 4096 kB\nVmFlags: rd wr hg\n"
        "7f0001000000-7f0001100000 rw-s 00000000 00:01 5  /dev/shm/zero3d-77-ab (deleted)\n"
        "Rss: 8 kB\n"
        "7f0002000000-7f0002100000 rw-s 00000000 00:01 6  /dev/shm/vader_segment.h.1\nRss: 16 kB\n"
        "7f0003000000-7f0003100000 r-xp 00000000 08:01 7  /usr/lib/libmpi.so.40.30\nRss: 32 kB\n"
        "7f0004000000-7f0004100000 r-xp 00000000 08:01 8  /usr/lib/libdnnl.so.2\nRss: 64 kB\n"
        "7f0005000000-7f0005100000 r--s 00000000 08:01 9  /data/tokens of mine.bin\nRss: 128 kB\n"
        "7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0  [stack]\nRss: 4 kB\n";
    // The arena is the middle half of a mapping that the copy for saves and something else share.
    const z3d_stretch known[] = {
        {reinterpret_cast<void *>(0x7f0000100000), 0x200000, Z3D_RESIDENT_ARENAS},
        {reinterpret_cast<void *>(0x7f0000300000), 0x80000, Z3D_RESIDENT_SNAPSHOT},
        {nullptr, 0, Z3D_RESIDENT_SNAPSHOT}};
    bool understood;
    z3d_resident r = parse(text, known, 3, &understood);
    ASSERT_TRUE(understood);
    EXPECT_EQ(r.bytes[Z3D_RESIDENT_ARENAS], 2048 * 1024);
    EXPECT_EQ(r.bytes[Z3D_RESIDENT_SNAPSHOT], 512 * 1024);
    EXPECT_EQ(r.bytes[Z3D_RESIDENT_PROGRAM], 100 * 1024);
    EXPECT_EQ(r.bytes[Z3D_RESIDENT_EXCHANGE], 8 * 1024);
    EXPECT_EQ(r.bytes[Z3D_RESIDENT_MPI], (16 + 32) * 1024);
    EXPECT_EQ(r.bytes[Z3D_RESIDENT_LIBRARIES], 64 * 1024);
    EXPECT_EQ(r.bytes[Z3D_RESIDENT_FILES], 128 * 1024);
    EXPECT_EQ(r.bytes[Z3D_RESIDENT_HEAP], (200 + 1536 + 4) * 1024);
    EXPECT_EQ(r.sum, (100 + 200 + 4096 + 8 + 16 + 32 + 64 + 128 + 4) * 1024);
}

TEST(Resident, NothingUnderstood) {
    bool understood;
    for (const char *text : {"x", "\n\n", "Rss: lots\n", "00400000 r-xp\n"}) {
        z3d_resident r = parse(text, nullptr, 0, &understood);
        EXPECT_FALSE(understood) << text;
        EXPECT_EQ(r.sum, 0);
    }
}

// This very process: a touched mapping is found where it was named, and the sum is the system's.
TEST(Resident, ThisProcess) {
    const size_t bytes = 24 << 20;
    void *arena = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(arena, MAP_FAILED);
    z3d_stretch stretch = {arena, static_cast<int64_t>(bytes), Z3D_RESIDENT_ARENAS};
    z3d_resident before, after;
    if (!z3d_resident_read(&stretch, 1, &before)) GTEST_SKIP() << "no /proc/self/smaps here";
    memset(arena, 1, bytes);
    ASSERT_TRUE(z3d_resident_read(&stretch, 1, &after));
    EXPECT_EQ(after.bytes[Z3D_RESIDENT_ARENAS], static_cast<int64_t>(bytes));
    EXPECT_GT(after.bytes[Z3D_RESIDENT_PROGRAM], 0);
    EXPECT_GT(after.bytes[Z3D_RESIDENT_LIBRARIES], 0);
    EXPECT_GT(after.bytes[Z3D_RESIDENT_HEAP], 0);
    int64_t sum = 0;
    for (int64_t part : after.bytes) sum += part;
    EXPECT_EQ(sum, after.sum);
    EXPECT_LE(std::llabs(static_cast<long long>(after.sum - after.system)), Z3D_RESIDENT_TOLERANCE);
    munmap(arena, bytes);
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
