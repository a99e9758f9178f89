/* Memory that can still be taken: of the machine, and under the limits of memory cgroups. */
#include <gtest/gtest.h>

#include "tests/files.h"

extern "C" {
#include "src/base/host_memory.h"
}

namespace {

constexpr int64_t MIB = INT64_C(1) << 20;

// A system in a folder: 1000 MiB are available.
struct System : Folder {
    System() {
        file("proc/meminfo", "MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:  1024000 kB\n");
        file("proc/self/cgroup", "7:cpu,cpuacct:/x\n4:memory:/job/step\n0::/new/scope\n");
    }
    void file(const std::string &name, const std::string &text) const {
        write_file(*this / name, text);
    }
    void mounts(const std::string &first, const std::string &second) const {
        file("proc/self/mountinfo",
             "23 1 8:1 / / rw,relatime - ext4 /dev/a rw\n"
             "32 31 0:29 / /cg/cpu rw,relatime shared:3 - cgroup cgroup rw,cpu,cpuacct\n"
             "35 31 0:32 " +
                 first +
                 " /cg/memory rw,relatime shared:4 - cgroup cgroup rw,memory\n"
                 "41 31 0:38 " +
                 second + " /cg/unified rw,relatime - cgroup2 cgroup2 rw\n");
    }
    void old(const std::string &group, int64_t limit, int64_t usage, int64_t cache) const {
        std::string in = "cg/memory" + group + "/memory.";
        file(in + "limit_in_bytes", std::to_string(limit) + "\n");
        file(in + "usage_in_bytes", std::to_string(usage) + "\n");
        file(in + "stat", "inactive_file 7\nactive_file 7\ntotal_inactive_file " +
                              std::to_string(cache) + "\ntotal_active_file " + std::to_string(MIB) +
                              "\n");
    }
    void unified(const std::string &group, const std::string &limit, int64_t usage) const {
        std::string in = "cg/unified" + group + "/memory.";
        file(in + "max", limit + "\n");
        file(in + "current", std::to_string(usage) + "\n");
        file(in + "stat", "anon 5\ninactive_file 0\nactive_file 0\n");
    }
    z3d_host_memory look() const {
        z3d_host_memory out;
        z3d_host_memory_read(path.c_str(), &out);
        return out;
    }
};

constexpr int64_t NO_LIMIT = INT64_C(9223372036854771712);

TEST(HostMemory, WithoutLimitTheMachineHasTheWord) {
    System system;
    EXPECT_EQ(system.look().bytes, 1000 * MIB);
    system.mounts("/", "/");
    system.old("", NO_LIMIT, 900 * MIB, 0);
    system.old("/job", NO_LIMIT, 900 * MIB, 0);
    system.old("/job/step", 5000 * MIB, 900 * MIB, 0); // leaves more than the machine
    system.unified("/new/scope", "max", 900 * MIB);
    EXPECT_EQ(system.look().bytes, 1000 * MIB);
    EXPECT_STREQ(system.look().from, "");
    system.old("/job", NO_LIMIT, 10 * MIB, 20 * MIB); // counted at different moments
    EXPECT_EQ(system.look().bytes, 1000 * MIB);
    EXPECT_STREQ(system.look().from, "");
}

// What caches files is given back.
TEST(HostMemory, Version1) {
    System system;
    system.mounts("/", "/");
    system.old("/job", 600 * MIB, 200 * MIB, 99 * MIB);
    EXPECT_EQ(system.look().bytes, 500 * MIB);
    EXPECT_STREQ(system.look().from, " (memory cgroup /job is limited to 600 MiB)");
    system.old("/job/step", 300 * MIB, 400 * MIB, 0); // the limit was lowered
    EXPECT_EQ(system.look().bytes, 0);
    EXPECT_STREQ(system.look().from, " (memory cgroup /job/step is limited to 300 MiB)");
    system.old("/job/step", 300 * MIB, 10 * MIB, 20 * MIB); // counted at different moments
    EXPECT_EQ(system.look().bytes, 300 * MIB);
    system.old("", 100 * MIB, 0, 0);
    EXPECT_STREQ(system.look().from, " (memory cgroup / is limited to 100 MiB)");
}

TEST(HostMemory, Version2) {
    System system;
    system.mounts("/", "/");
    system.unified("/new", std::to_string(700 * MIB), 100 * MIB);
    system.unified("/new/scope", "max", 50 * MIB);
    EXPECT_EQ(system.look().bytes, 600 * MIB);
    EXPECT_STREQ(system.look().from, " (memory cgroup /new is limited to 700 MiB)");
}

// A container sees its own cgroup at the mount point: by the name outside, or as "/".
TEST(HostMemory, InAContainer) {
    for (const char *mounted : {"/job", "/job/step", "/other"}) {
        System system;
        system.mounts(mounted, "/");
        system.old(std::string(mounted) == "/job" ? "/step" : "", 80 * MIB, 0, 0);
        EXPECT_EQ(system.look().bytes, 80 * MIB) << mounted;
    }
}

// What the machine has, or the smallest limit, whatever is used.
TEST(HostMemory, NominalMemoryDoesNotDependOnUse) {
    System system;
    EXPECT_EQ(system.look().nominal, 9 * 1024);
    system.file("proc/meminfo", "MemTotal: 2048000 kB\nMemAvailable:  1024000 kB\n");
    EXPECT_EQ(system.look().nominal, 2000 * MIB);
    system.mounts("/", "/");
    for (int64_t used : {100, 600}) {
        system.old("/job", 1500 * MIB, used * MIB, 0);
        system.unified("/new/scope", "max", used * MIB);
        EXPECT_EQ(system.look().nominal, 1500 * MIB);
    }
    system.unified("/new", std::to_string(700 * MIB), 100 * MIB);
    EXPECT_EQ(system.look().nominal, 700 * MIB);
}

TEST(HostMemory, OfThisMachine) {
    z3d_host_memory there;
    z3d_host_memory_find(&there);
    EXPECT_GT(there.bytes, MIB);
    EXPECT_GT(there.nominal, there.bytes);
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
