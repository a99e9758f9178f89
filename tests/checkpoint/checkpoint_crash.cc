// Saves that die at every point: killed processes, full and failing disks, short writes, power
// loss. A process that is killed leaves the disk as it was before its next change, so "killed at
// change k" is the hook that lets k changes happen and none after. ZERO3D_LONG: every change,
// otherwise some.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>

#include "engine.h"

namespace {

int points; // looked at

struct Fault {
    std::atomic<int> seen{0};
    int from = -1, to = -1; // changes from .. to-1 fail
    int error = EIO;        // or Z3D_IO_SHORT for writes
    bool torn = false;      // counts writes only, and half of write `from` is let through
    bool only_writes = false;
    z3d_io_hook hook{&Fault::before, this};
    static int before(void *context, const z3d_io_event *event) {
        Fault *f = (Fault *)context;
        bool write = event->kind == Z3D_IO_WRITE;
        int now = f->torn && !write ? f->seen - 1 : f->seen++;
        if (f->only_writes && !write) return 0;
        if (f->from < 0 || now < f->from || now >= f->to) return 0;
        return f->torn && write && now == f->from ? (int)Z3D_IO_SHORT : f->error;
    }
};

Options tiny(int stage) {
    Options o;
    o.stage = stage;
    o.layers = 1, o.hidden = 8, o.heads = 2, o.sequence = 4, o.vocabulary = 11;
    o.dtype = Z3D_BF16;
    return o;
}

int64_t newest_after_restart(Trainer &t, const std::string &dir) {
    z3d_store *store;
    int64_t step = -2;
    EXPECT_Z3D(open_store(t, dir, false, 1, &store));
    if (!store) return step;
    EXPECT_Z3D(z3d_store_resume(store, Z3D_VERIFY_FULL, nullptr, nullptr, nullptr, &step));
    z3d_store_close(store);
    return step;
}

// What happens at change k of the second save.
struct Disaster {
    int error;
    bool dead_from_then_on; // else the disk is well again
    int rank;               // whose, -1: all ranks'
    bool asynchronous;
    bool torn = false; // in the middle of write k
};

std::ostream &operator<<(std::ostream &out, const Disaster &d) {
    return out << strerror(d.error) << (d.dead_from_then_on ? ", dead, " : ", once, ")
               << (d.rank < 0 ? "all" : "rank ") << d.rank << (d.asynchronous ? ", async" : "")
               << (d.torn ? ", torn" : "");
}

// Saves twice, the second time with the disaster at change k, and checks what is left: a good
// checkpoint, none older than was committed, from which the run goes on as if nothing had been.
// *reached: there was a change k.
void one_point(Trainer &t, const Disaster &d, int k, bool *reached) {
    SharedFolder folder;
    Fault fault;
    Trace trace, again;
    z3d_store *store;
    int64_t unused;
    ASSERT_Z3D(open_store(t, folder.path, d.asynchronous, 1, &store, &fault.hook));
    steps(t, 1, trace);
    ASSERT_Z3D(save(store, 0));
    ASSERT_Z3D(z3d_store_poll(store, true, &unused));
    int64_t first_step = t.next_step - 1;
    auto first = everything(t);
    steps(t, 1, trace);
    auto second = everything(t);
    fault.seen = 0;
    fault.error = d.error;
    fault.torn = d.torn;
    fault.from = d.rank < 0 || d.rank == z3d_world_rank(world) ? k : -1;
    fault.to = d.dead_from_then_on ? INT32_MAX : k + 1;
    z3d_status status = save(store, 0);
    if (status == Z3D_OK) status = z3d_store_poll(store, true, &unused);
    int seen = fault.from < 0 ? 0 : fault.seen.load();
    std::vector<int> all((size_t)z3d_world_size(world));
    ASSERT_Z3D(z3d_world_gather_all(world, &seen, all.data(), sizeof seen));
    *reached = *std::max_element(all.begin(), all.end()) > k; // by some rank
    z3d_store_close(store);
    SharedFolder::barrier();
    int64_t found = newest_after_restart(t, folder.path);
    t.next_step = found + 1;
    ASSERT_GE(found, first_step);
    if (status == Z3D_OK) {
        EXPECT_EQ(found, first_step + 1);
    }
    EXPECT_TRUE(everything(t) == (found == first_step ? first : second));
    // It goes on, and can be saved again.
    ASSERT_Z3D(open_store(t, folder.path, false, 1, &store));
    steps(t, 1, again);
    if (found == first_step) {
        EXPECT_EQ(again.loss[0], trace.loss[1]);
        EXPECT_EQ(again.norm[0], trace.norm[1]);
    }
    ASSERT_Z3D(save(store, 0));
    z3d_store_close(store);
}

void every_point(const Disaster &d) {
    if (d.rank >= z3d_world_size(world)) return;
    SCOPED_TRACE(::testing::Message() << d);
    Trainer t(tiny(2));
    ASSERT_Z3D(t.create());
    // Where only some are looked at, they are others for each disaster.
    int stride = is_long() ? 1 : 7, k = is_long() ? 0 : (d.rank + 1 + 2 * d.asynchronous) % stride;
    for (bool reached = true; reached; k += stride) {
        SCOPED_TRACE(::testing::Message() << "change " << k);
        one_point(t, d, k, &reached);
        if (::testing::Test::HasFailure()) return;
        points += reached;
    }
    if (d.rank <= 0) {
        EXPECT_GT(k, d.torn ? 3 : 20);
    }
}

} // namespace

// All ranks die, and each: before every change that is made to the disk, and within every write.
TEST(Crash, Killed) {
    points = 0;
    for (bool asynchronous : {false, true})
        for (int rank = -1; rank < z3d_world_size(world); rank++)
            for (bool torn : {false, true})
                if (is_long() || !torn) every_point({EIO, true, rank, asynchronous, torn});
    if (is_long() && z3d_world_size(world) == 4) {
        EXPECT_GE(points, 200);
    }
    if (z3d_world_rank(world) == 0) printf("%d points\n", points);
}

TEST(Crash, FailingDisk) {
    every_point({ENOSPC, false, -1, false});
    every_point({EIO, false, 1, true});
    if (!is_long()) return;
    for (int error : {ENOSPC, EIO})
        for (bool asynchronous : {false, true})
            for (int rank : {-1, 0, 1}) every_point({error, false, rank, asynchronous});
}

TEST(Crash, ShortWritesAreGoneOnWith) {
    Trainer t(tiny(1));
    SharedFolder folder;
    Fault fault;
    fault.from = 0, fault.to = INT32_MAX, fault.error = Z3D_IO_SHORT, fault.only_writes = true;
    z3d_store *store;
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(open_store(t, folder.path, false, 0, &store, &fault.hook));
    // Halves of halves, down to single bytes.
    ASSERT_Z3D(save(store, 0));
    z3d_store_close(store);
    EXPECT_EQ(newest_after_restart(t, folder.path), 0);
}

namespace {

// What a disk keeps of a log of changes: data of a file from its sync on, names from their
// folder's.
class Disk {
  public:
    void apply(const z3d_io_event &e, const std::string &data) {
        switch (e.kind) {
        case Z3D_IO_CREATE:
            names[e.path] = (int)files.size(), files.emplace_back();
            break;
        case Z3D_IO_WRITE: {
            std::string &now = files[(size_t)names.at(e.path)].now;
            if (now.size() < (size_t)e.offset + data.size())
                now.resize((size_t)e.offset + data.size());
            now.replace((size_t)e.offset, data.size(), data);
            break;
        }
        case Z3D_IO_SYNC: {
            auto &file = files[(size_t)names.at(e.path)];
            file.durable = file.now;
            break;
        }
        case Z3D_IO_RENAME:
            names[e.to] = names.at(e.path), names.erase(e.path);
            break;
        case Z3D_IO_UNLINK:
            names.erase(e.path);
            break;
        case Z3D_IO_MAKE_FOLDER:
            names[e.path] = -1;
            break;
        case Z3D_IO_REMOVE_FOLDER:
            names.erase(e.path);
            break;
        case Z3D_IO_SYNC_FOLDER:
            sync_folder(e.path);
            break;
        default:
            break;
        }
    }
    // Lays out below `root` what is left: names that were synced (or, if early_names, all) with the
    // data that was.
    void lay_out(const std::string &base, const std::string &root, bool early_names) const {
        const auto &kept = early_names ? names : durable_names;
        for (const auto &[path, file] : kept) {
            if (path.rfind(base + "/", 0) != 0) continue;
            std::string to = root + path.substr(base.size());
            if (!reachable(kept, base, path)) continue;
            if (file < 0) {
                std::filesystem::create_directories(to);
            } else {
                std::filesystem::create_directories(std::filesystem::path(to).parent_path());
                write_file(to, files[(size_t)file].durable);
            }
        }
    }

  private:
    struct File {
        std::string now, durable;
    };
    std::vector<File> files;
    std::map<std::string, int> names, durable_names; // -1: a folder

    static std::string parent(const std::string &path) {
        return std::filesystem::path(path).parent_path().string();
    }
    void sync_folder(const std::string &folder) {
        for (auto it = durable_names.begin(); it != durable_names.end();)
            it = parent(it->first) == folder ? durable_names.erase(it) : std::next(it);
        for (const auto &[path, file] : names)
            if (parent(path) == folder) durable_names[path] = file;
    }
    static bool reachable(const std::map<std::string, int> &kept, const std::string &base,
                          const std::string &path) {
        std::string up = parent(path);
        return up == base || (kept.count(up) && reachable(kept, base, up));
    }
};

struct Recorder {
    struct Entry {
        z3d_io_event event;
        std::string path, to, data;
    };
    std::vector<std::unique_ptr<Entry>> log;
    z3d_io_hook hook{&Recorder::before, this};
    static int before(void *context, const z3d_io_event *event) {
        auto entry = std::make_unique<Entry>();
        entry->event = *event;
        entry->path = event->path;
        entry->to = event->to ? event->to : "";
        if (event->data) entry->data.assign((const char *)event->data, (size_t)event->bytes);
        entry->event.path = entry->path.c_str();
        entry->event.to = entry->to.c_str();
        ((Recorder *)context)->log.push_back(std::move(entry));
        return 0;
    }
};

} // namespace

// The power goes at every point of three saves and the removals between them. One rank: its log is
// the disk's.
TEST(Crash, PowerLossAtEveryChange) {
    if (z3d_world_size(world) > 1) GTEST_SKIP();
    Trainer t(tiny(1));
    Folder folder;
    Recorder recorder;
    z3d_store *store;
    Trace trace;
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(open_store(t, folder.path, false, 1, &store, &recorder.hook));
    std::vector<size_t> committed; // length of the log when save k returned
    std::vector<std::vector<std::vector<float>>> states;
    for (int k = 1; k <= 3; k++) {
        steps(t, 1, trace);
        ASSERT_Z3D(save(store, 0));
        committed.push_back(recorder.log.size());
        states.push_back(everything(t));
    }
    z3d_store_close(store);
    for (int early_names = 0; early_names < 2; early_names++) {
        Disk disk;
        for (size_t length = 0; length <= recorder.log.size(); length++) {
            SCOPED_TRACE(::testing::Message()
                         << "after change " << length << ", early names " << early_names);
            if (length > 0)
                disk.apply(recorder.log[length - 1]->event, recorder.log[length - 1]->data);
            if (!is_long() && length % 5 != (size_t)early_names) continue;
            Folder after;
            disk.lay_out(folder.path, after.path, early_names == 1);
            int64_t safe = -1;
            for (size_t k = 0; k < committed.size(); k++)
                if (length >= committed[k]) safe = (int64_t)k + 1;
            int64_t found = newest_after_restart(t, after.path);
            ASSERT_GE(found, safe);
            if (found > 0) {
                EXPECT_TRUE(everything(t) == states[(size_t)found - 1]);
            }
            for (const auto &entry : std::filesystem::directory_iterator(after.path))
                EXPECT_EQ(entry.path().string().find("damaged"), std::string::npos) << entry.path();
            if (::testing::Test::HasFailure()) return;
        }
    }
    EXPECT_GT(recorder.log.size(), 60u);
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
