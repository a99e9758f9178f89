// That a save really asks the system: its own calls of fsync, rename, mkdir and unlink, in order.
// The power-loss tests see what checkpoint/io.c says that it does; here the calls themselves are
// watched, in the place of the C library's.
#include <fcntl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <mutex>

#include "engine.h"

namespace {

struct Call {
    enum Kind { SYNC, RENAME, MAKE, UNLINK } kind;
    std::string path, to; // of a sync the file's name at the time
    int64_t size;         // of a sync: the file's at the time
};

std::mutex mutex; // asynchronous saves write in a thread
std::vector<Call> calls;

void note(const Call &call) {
    const std::lock_guard<std::mutex> guard(mutex);
    calls.push_back(call);
}

std::string name_of(int fd) {
    char name[4096];
    ssize_t length =
        readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof name - 1);
    return length > 0 ? std::string(name, (size_t)length) : "";
}

std::string parent(const std::string &path) {
    return std::filesystem::path(path).parent_path().string();
}

bool ends_with(const std::string &text, const std::string &end) {
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Whether `path` was synced between two places of the log.
bool synced(size_t from, size_t to, const std::string &path) {
    return std::any_of(calls.begin() + (long)from, calls.begin() + (long)to,
                       [&](const Call &c) { return c.kind == Call::SYNC && c.path == path; });
}

} // namespace

extern "C" {
int fsync(int fd) {
    struct stat info = {};
    fstat(fd, &info);
    int result = (int)syscall(SYS_fsync, fd);
    note({Call::SYNC, name_of(fd), "", info.st_size}); // from here on it holds
    return result;
}
int rename(const char *from, const char *to) {
    note({Call::RENAME, from, to, 0});
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
int mkdir(const char *path, mode_t mode) {
    note({Call::MAKE, path, "", 0});
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}
int unlink(const char *path) {
    note({Call::UNLINK, path, "", 0});
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
}

namespace {

// A file gets its name when all its bytes are on the disk.
void expect_synced_before_named(size_t at) {
    const Call &named = calls[at];
    auto c = std::find_if(calls.begin(), calls.begin() + (long)at, [&](const Call &k) {
        return k.kind == Call::SYNC && k.path == named.path;
    });
    ASSERT_NE(c, calls.begin() + (long)at) << named.path << " was named without an fsync";
    EXPECT_EQ(c->size, (int64_t)std::filesystem::file_size(named.to)) << named.to;
}

// All files that this rank has named, and their folder, are on the disk before the manifest's
// rename (rank 0: before its own; another rank: at the end of its writing), the folder's own name
// too; and the rename itself before the save ends. Returns how many files were named.
int expect_durable(const std::string &step) {
    int named = 0;
    bool committed = false;
    for (size_t i = 0; i < calls.size(); i++) {
        if (calls[i].kind != Call::RENAME || parent(calls[i].to) != step) continue;
        named++;
        expect_synced_before_named(i);
        bool commits = ends_with(calls[i].to, "/manifest.json");
        EXPECT_TRUE(!commits || synced(0, i, parent(step))) << "the name of " << step;
        committed = committed || commits;
        // The next of its folder's syncs comes before the commit, and before the end.
        auto commit = std::find_if(calls.begin() + (long)i + 1, calls.end(), [](const Call &c) {
            return c.kind == Call::RENAME && ends_with(c.to, "/manifest.json");
        });
        EXPECT_TRUE(synced(i, (size_t)(commit - calls.begin()), step)) << calls[i].to;
    }
    EXPECT_EQ(committed, z3d_world_rank(world) == 0);
    return named;
}

// Of a checkpoint that is removed the manifest goes first, and is gone from the disk before
// anything else is touched.
void expect_durably_removed(const std::string &step) {
    auto first = std::find_if(calls.begin(), calls.end(), [&](const Call &c) {
        return c.kind == Call::UNLINK && parent(c.path) == step;
    });
    ASSERT_NE(first, calls.end()) << step << " was not removed";
    EXPECT_EQ(first->path, step + "/manifest.json");
    auto next = std::find_if(first + 1, calls.end(), [&](const Call &c) {
        return c.kind == Call::UNLINK && parent(c.path) == step;
    });
    ASSERT_NE(next, calls.end());
    EXPECT_TRUE(synced((size_t)(first - calls.begin()), (size_t)(next - calls.begin()), step));
}

} // namespace

TEST(Sync, EverythingIsOnTheDiskBeforeTheCommit) {
    Options o;
    o.stage = 2, o.layers = 1, o.hidden = 8, o.heads = 2, o.sequence = 4, o.vocabulary = 11;
    for (bool asynchronous : {false, true}) {
        SCOPED_TRACE(asynchronous ? "asynchronous" : "synchronous");
        SharedFolder folder;
        // Where the links of a path lead: fsync's names are whole ones.
        std::string base = std::filesystem::canonical(folder.path).string(), dir = base + "/a/b";
        bool root = z3d_world_rank(world) == 0;
        Trainer t(o);
        Trace trace;
        z3d_store *store;
        int64_t unused;
        ASSERT_Z3D(t.create());
        calls.clear();
        ASSERT_Z3D(open_store(t, dir, asynchronous, 1, &store));
        if (root) {
            EXPECT_TRUE(synced(0, calls.size(), base)) << "the name of a";
            EXPECT_TRUE(synced(0, calls.size(), base + "/a")) << "the name of b";
        }
        for (int k = 1; k <= 2; k++) {
            std::string step = dir + "/step-0000000" + std::to_string(k);
            calls.clear();
            steps(t, 1, trace);
            ASSERT_Z3D(save(store, 0));
            ASSERT_Z3D(z3d_store_poll(store, true, &unused));
            SharedFolder::barrier();
            // A shard and its index; rank 0: checkpoint.h5 and the manifest too.
            EXPECT_EQ(expect_durable(step), root ? 4 : 2);
            if (root && k == 2) expect_durably_removed(dir + "/step-00000001");
        }
        z3d_store_close(store);
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
