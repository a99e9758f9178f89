/* The disk lane: what is read is what was written, by io_uring and by threads, whatever the disk
 * does. Faults are the system's where a test can make them, else those of a hook. */
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "tests/base/allocations.h"
#include "tests/base/faults.h"
#include "tests/files.h"

extern "C" {
#include "src/base/disk/disk.h"
#include "src/base/pending_io.h"
}

namespace fs = std::filesystem;

namespace {

constexpr int64_t KIB = 1024, MIB = 1024 * KIB, BLOCK = Z3D_DISK_ALIGN;

struct Memory {
    explicit Memory(int64_t size) : bytes(size) {
        at = static_cast<unsigned char *>(aligned_alloc(BLOCK, static_cast<size_t>(size)));
        memset(at, 0xA5, static_cast<size_t>(size));
    }
    ~Memory() {
        free(at);
    }
    Memory(const Memory &) = delete;
    void fill(unsigned seed) {
        uint64_t word = seed;
        for (int64_t i = 0; i + 8 <= bytes; i += 8) {
            word = word * 6364136223846793005u + 1442695040888963407u;
            memcpy(at + i, &word, 8);
        }
    }
    unsigned char *at;
    int64_t bytes;
};

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

// Whose hook is asked by all disks of a test.
struct Hook {
    std::function<int(bool write, int64_t offset, int64_t bytes)> answer;
    static int before(void *context, bool write, int64_t offset, int64_t bytes) {
        return static_cast<Hook *>(context)->answer(write, offset, bytes);
    }
    z3d_disk_hook hook = {before, this};
};

class Disk {
  public:
    Disk(const std::string &folder, int64_t bytes, bool threads, int depth = 0,
         const z3d_disk_hook *hook = nullptr) {
        z3d_disk_config config{folder.c_str(), bytes, depth, 0, threads, hook};
        status = z3d_disk_create(&config, &disk);
        EXPECT_EQ(status, Z3D_OK) << z3d_error_message();
    }
    ~Disk() {
        z3d_disk_destroy(disk);
    }
    Disk(const Disk &) = delete;
    int64_t start(bool write, int64_t offset, void *memory, int64_t bytes) {
        int64_t ticket = 0;
        EXPECT_EQ(z3d_disk_start(disk, write, offset, memory, bytes, &ticket), Z3D_OK)
            << z3d_error_message();
        return ticket;
    }
    z3d_status wait(int64_t ticket) {
        return z3d_disk_wait(disk, ticket);
    }
    z3d_status move(bool write, int64_t offset, void *memory, int64_t bytes) {
        return wait(start(write, offset, memory, bytes));
    }
    std::string description() const {
        return z3d_disk_description(disk);
    }
    z3d_disk *disk = nullptr;
    z3d_status status;
};

std::string refusal(const std::string &folder, int64_t bytes) {
    z3d_disk_config config{folder.c_str(), bytes, 0, 0, false, nullptr};
    z3d_disk *disk;
    EXPECT_EQ(z3d_disk_create(&config, &disk), Z3D_ERR_IO);
    EXPECT_EQ(disk, nullptr);
    return z3d_error_message();
}

// On the disk that this is built on: temporary folders may be in memory.
struct OnDisk : Folder {
    OnDisk() : Folder(fs::current_path()) {}
};

class Ways : public testing::TestWithParam<bool> {
  protected:
    OnDisk folder;
    bool threads() const {
        return GetParam();
    }
};

INSTANTIATE_TEST_SUITE_P(Disk, Ways, testing::Values(false, true), [](const auto &info) {
    return std::string(info.param ? "Threads" : "Ring");
});

// Whole blocks from `at` on, none of which another range of this round has.
struct Range {
    int64_t offset, bytes, ticket;
    bool write;
};

std::vector<Range> cut(int64_t whole, std::mt19937 &random) {
    std::vector<Range> ranges;
    for (int64_t at = 0; at < whole && ranges.size() < 60;) {
        int64_t most = random() % 4 == 0 ? 5 * MIB : 64 * KIB;
        int64_t bytes = (1 + random() % (most / BLOCK)) * BLOCK;
        bytes = std::min(bytes, whole - at);
        ranges.push_back({at, bytes, 0, random() % 2 == 0});
        at += bytes + random() % 3 * BLOCK;
    }
    std::shuffle(ranges.begin(), ranges.end(), random);
    return ranges;
}

TEST_P(Ways, ReadWhatWasWrittenInAnyOrder) {
    constexpr int64_t WHOLE = 24 * MIB;
    Disk disk(folder.path, WHOLE, threads(), 3);
    Memory memory(WHOLE);
    std::string expected(WHOLE, '\0');
    std::mt19937 random(17);
    for (int round = 0; round < 12; round++) {
        std::vector<Range> ranges = cut(WHOLE, random);
        memory.fill(round);
        for (Range &r : ranges)
            r.ticket = disk.start(r.write, r.offset, memory.at + r.offset, r.bytes);
        std::shuffle(ranges.begin(), ranges.end(), random);
        for (const Range &r : ranges) {
            ASSERT_EQ(disk.wait(r.ticket), Z3D_OK) << z3d_error_message();
            char *bytes = reinterpret_cast<char *>(memory.at) + r.offset;
            if (r.write)
                expected.replace(r.offset, r.bytes, bytes, r.bytes);
            else
                ASSERT_EQ(memcmp(bytes, &expected[r.offset], r.bytes), 0)
                    << "round " << round << ", byte " << r.offset;
        }
    }
    ASSERT_EQ(disk.move(false, 0, memory.at, WHOLE), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(memcmp(memory.at, expected.data(), WHOLE), 0);
}

TEST_P(Ways, RangesOfAnySize) {
    constexpr int64_t WHOLE = 9 * MIB;
    Disk disk(folder.path, WHOLE, threads());
    Memory source(WHOLE);
    source.fill(5);
    const char *bytes = reinterpret_cast<char *>(source.at);
    std::string expected(WHOLE, '\0');
    std::mt19937 random(5);
    for (int round = 0; round < 40; round++) {
        int64_t size = round % 4 == 0 ? random() % (6 * MIB) : random() % (3 * BLOCK);
        int64_t offset = random() % (WHOLE - size), from = random() % (WHOLE - size);
        ASSERT_EQ(z3d_disk_write(disk.disk, offset, &bytes[from], size), Z3D_OK)
            << z3d_error_message();
        expected.replace(offset, size, bytes + from, size);
        std::string got(size + 100, '?');
        int64_t at = std::max<int64_t>(0, offset - 50), read = std::min(size + 100, WHOLE - at);
        ASSERT_EQ(z3d_disk_read(disk.disk, at, got.data(), read), Z3D_OK) << z3d_error_message();
        ASSERT_EQ(memcmp(got.data(), &expected[at], read), 0) << "round " << round;
    }
    std::string got(WHOLE, '?');
    ASSERT_EQ(z3d_disk_read(disk.disk, 0, got.data(), WHOLE), Z3D_OK);
    EXPECT_TRUE(got == expected);
    EXPECT_EQ(z3d_disk_write(disk.disk, WHOLE - 1, "ab", 2), Z3D_ERR_INTERNAL);
    EXPECT_EQ(z3d_disk_read(disk.disk, 0, got.data(), 0), Z3D_OK);
}

TEST_P(Ways, TheRulesOfARequest) {
    Disk disk(folder.path, 2 * MIB, threads());
    Memory memory(MIB);
    int64_t ticket, other;
    auto start = [&](bool write, int64_t offset, int64_t bytes, int64_t shift = 0) {
        return z3d_disk_start(disk.disk, write, offset, memory.at + shift, bytes, &other);
    };
    EXPECT_EQ(start(true, 1, BLOCK), Z3D_ERR_INTERNAL);
    EXPECT_EQ(start(true, 0, 100), Z3D_ERR_INTERNAL);
    EXPECT_EQ(start(true, 0, BLOCK, 8), Z3D_ERR_INTERNAL);
    EXPECT_EQ(start(true, 0, 0), Z3D_ERR_INTERNAL);
    EXPECT_EQ(start(true, -BLOCK, BLOCK), Z3D_ERR_INTERNAL);
    EXPECT_EQ(start(true, 2 * MIB, BLOCK), Z3D_ERR_INTERNAL);
    EXPECT_EQ(start(false, MIB + BLOCK, MIB), Z3D_ERR_INTERNAL);
    ticket = disk.start(true, 0, memory.at, 2 * BLOCK);
    EXPECT_EQ(start(false, BLOCK, BLOCK), Z3D_ERR_INTERNAL);
    EXPECT_TRUE(has(z3d_error_message(), "overlaps one that is under way")) << z3d_error_message();
    EXPECT_EQ(start(true, 0, BLOCK), Z3D_ERR_INTERNAL);
    EXPECT_EQ(disk.wait(ticket), Z3D_OK);
    EXPECT_EQ(disk.wait(ticket), Z3D_ERR_INTERNAL);
    EXPECT_EQ(disk.wait(0), Z3D_ERR_INTERNAL);
    std::vector<int64_t> tickets;
    for (int i = 0; i < 64; i++)
        tickets.push_back(disk.start(false, 0, memory.at + i * BLOCK, BLOCK));
    EXPECT_EQ(start(false, 0, BLOCK, 100 * BLOCK), Z3D_ERR_INTERNAL);
    EXPECT_TRUE(has(z3d_error_message(), "more than 64 requests")) << z3d_error_message();
    EXPECT_EQ(z3d_disk_read(disk.disk, 5, memory.at + MIB - 9, 9),
              Z3D_OK); // it has a place of its own
    for (int64_t t : tickets) EXPECT_EQ(disk.wait(t), Z3D_OK);
}

TEST_P(Ways, NothingIsAllocatedAfterCreate) {
    Disk disk(folder.path, 8 * MIB, threads());
    Memory memory(8 * MIB);
    ASSERT_EQ(disk.move(true, 0, memory.at, memory.bytes), Z3D_OK); // threads begin
    long ours = allocations::ours;
    allocations::begin();
    for (int i = 0; i < 20; i++) {
        int64_t write, read;
        z3d_disk_start(disk.disk, true, 0, memory.at, 4 * MIB, &write);
        z3d_disk_start(disk.disk, false, 4 * MIB, memory.at + 4 * MIB, 4 * MIB, &read);
        z3d_disk_wait(disk.disk, read);
        z3d_disk_wait(disk.disk, write);
        z3d_disk_write(disk.disk, 77, memory.at, 9999);
    }
    for (const auto &[library, calls] : allocations::end())
        ADD_FAILURE() << library << " allocated " << calls << " times";
    EXPECT_EQ(allocations::ours, ours);
}

// The caller may give up while requests are under way.
TEST_P(Ways, DestroyedWithRequestsUnderWay) {
    Memory memory(32 * MIB);
    Disk disk(folder.path, memory.bytes, threads(), 2);
    for (int i = 0; i < 32; i++) disk.start(i % 2, i * MIB, memory.at + i * MIB, MIB);
}

// ---- the file ----

TEST_P(Ways, TwoDisksInOneFolderDoNotMeet) {
    Disk first(folder.path, MIB, threads()), second(folder.path, MIB, threads());
    Memory a(MIB), b(MIB), back(MIB);
    a.fill(1), b.fill(2);
    EXPECT_TRUE(fs::is_empty(folder.path));
    ASSERT_EQ(first.move(true, 0, a.at, MIB), Z3D_OK);
    ASSERT_EQ(second.move(true, 0, b.at, MIB), Z3D_OK);
    ASSERT_EQ(first.move(false, 0, back.at, MIB), Z3D_OK);
    EXPECT_EQ(memcmp(back.at, a.at, MIB), 0);
    ASSERT_EQ(second.move(false, 0, back.at, MIB), Z3D_OK);
    EXPECT_EQ(memcmp(back.at, b.at, MIB), 0);
}

// Killed in the middle of a write; also where unnamed files are not to be had.
TEST_P(Ways, NothingStaysOfAKilledProcess) {
    for (bool named : {false, true}) {
        pid_t child = fork();
        if (child == 0) {
            if (named) faults::forbid(SYS_openat, EOPNOTSUPP, 2, O_TMPFILE & ~O_DIRECTORY);
            Memory memory(8 * MIB);
            Disk disk(folder.path, memory.bytes, threads());
            for (;;) {
                if (disk.move(true, 0, memory.at, memory.bytes) != Z3D_OK) _exit(1);
                raise(SIGKILL);
            }
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_TRUE((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
                    (named && WEXITSTATUS(status) == faults::CANNOT));
        EXPECT_TRUE(fs::is_empty(folder.path));
    }
}

TEST(Disk, FoldersThatCannotHaveIt) {
    OnDisk folder;
    EXPECT_EQ(refusal(folder / "no", MIB),
              (folder / "no") + ": cannot create a file in this folder: No such file or directory");
    write_file(folder / "file", "x");
    EXPECT_TRUE(has(refusal(folder / "file", MIB), "Not a directory"));
    EXPECT_TRUE(has(refusal("/proc", MIB), "/proc: cannot create a file in this folder"));
    std::string text = refusal(folder.path, int64_t{1} << 55);
    EXPECT_TRUE(has(text, "a file of 32.0 PiB is needed here, but only ")) << text;
    EXPECT_TRUE(has(text, " are free")) << text;
    if (geteuid() != 0) GTEST_SKIP() << "not root";
    faults::in_child([&] {
        faults::or_cannot(chmod(folder.path.c_str(), 0755) == 0 && setuid(65534) == 0);
        EXPECT_TRUE(has(refusal(folder.path, MIB), "Permission denied")) << z3d_error_message();
    });
}

TEST(Disk, TooSmallIsRefusedBefore) {
    OnDisk folder;
    bool made = faults::in_child([&] {
        faults::own_mounts();
        faults::mount_memory(folder.path, "8m");
        EXPECT_EQ(refusal(folder.path, 9 * MIB),
                  folder.path + ": a file of 9.00 MiB is needed here, but only 8.00 MiB are free");
        Disk first(folder.path, 5 * MIB, false);
        EXPECT_TRUE(has(first.description(), "buffered (tmpfs: in memory)")) << first.description();
        EXPECT_TRUE(has(refusal(folder.path, 5 * MIB), "only 3.00 MiB are free"));
    });
    if (!made) GTEST_SKIP() << "this process may not mount";
}

// Of a quota statvfs says nothing.
TEST(Disk, SpaceThatCannotBeReserved) {
    OnDisk folder;
    for (int error : {ENOSPC, EDQUOT, EIO}) {
        bool made = faults::in_child([&] {
            faults::forbid(SYS_fallocate, error);
            EXPECT_TRUE(has(refusal(folder.path, MIB),
                            error == ENOSPC ? "a file of 1.00 MiB is needed here"
                                            : std::string("cannot reserve space for a file in "
                                                          "this folder: ") +
                                                  strerror(error)))
                << z3d_error_message();
        });
        if (!made) GTEST_SKIP() << "no seccomp here";
    }
}

TEST(Disk, TooLargeForTheLimitIsRefused) {
    OnDisk folder;
    faults::in_child([&] {
        rlimit limit{4 * MIB, RLIM_INFINITY};
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
        EXPECT_TRUE(has(refusal(folder.path, 8 * MIB),
                        "this process may write files of at most 4.00 MiB (ulimit -f)"));
    });
}

// ---- how ----

TEST(Disk, WithoutIoUringThreadsDoIt) {
    OnDisk folder;
    bool made = faults::in_child([&] {
        faults::forbid(SYS_io_uring_setup, EPERM);
        Disk disk(folder.path, 4 * MIB, false, 2);
        EXPECT_TRUE(has(disk.description(), "4 threads (io_uring: ")) << disk.description();
        Memory memory(4 * MIB), back(4 * MIB);
        memory.fill(3);
        ASSERT_EQ(disk.move(true, 0, memory.at, memory.bytes), Z3D_OK);
        ASSERT_EQ(disk.move(false, 0, back.at, back.bytes), Z3D_OK);
        EXPECT_EQ(memcmp(memory.at, back.at, back.bytes), 0);
    });
    if (!made) GTEST_SKIP() << "no seccomp here";
    // Setup allowed, use forbidden.
    faults::in_child([&] {
        faults::forbid(SYS_io_uring_enter, EPERM);
        Disk disk(folder.path, MIB, false);
        EXPECT_TRUE(has(disk.description(), "16 threads (io_uring: ")) << disk.description();
    });
}

TEST(Disk, WithoutODirectThePageCacheDoesIt) {
    OnDisk folder;
    bool made = faults::in_child([&] {
        faults::forbid(SYS_fcntl, EINVAL, 2, O_DIRECT);
        Disk disk(folder.path, MIB, true, 1);
        EXPECT_EQ(disk.description(), "2 threads, buffered (this file system refuses O_DIRECT)");
        Memory memory(MIB);
        EXPECT_EQ(disk.move(true, 0, memory.at, MIB), Z3D_OK);
        EXPECT_EQ(disk.move(false, 0, memory.at, MIB), Z3D_OK);
    });
    if (!made) GTEST_SKIP() << "no seccomp here";
}

// ---- faults ----

// One request fails, with its first place; the others do not notice.
TEST_P(Ways, AnErrorIsOneRequests) {
    Hook fault;
    fault.answer = [](bool, int64_t offset, int64_t) { return offset >= 9 * MIB ? EIO : 0; };
    Disk disk(folder.path, 16 * MIB, threads(), 4, &fault.hook);
    Memory memory(16 * MIB);
    for (bool write : {true, false}) {
        int64_t good = disk.start(write, 0, memory.at, 4 * MIB);
        int64_t bad = disk.start(write, 4 * MIB, memory.at + 4 * MIB, 12 * MIB);
        EXPECT_EQ(disk.wait(bad), Z3D_ERR_IO);
        EXPECT_EQ(std::string(z3d_error_message()),
                  folder.path + ": cannot " + (write ? "write" : "read") +
                      " 1048576 bytes at byte 9437184 of the unnamed file: Input/output error");
        EXPECT_EQ(disk.wait(good), Z3D_OK);
        EXPECT_EQ(disk.move(write, 4 * MIB, memory.at + 4 * MIB, 4 * MIB), Z3D_OK);
    }
    EXPECT_EQ(z3d_disk_read(disk.disk, 9 * MIB + 5, memory.at, 1), Z3D_ERR_IO);
    EXPECT_EQ(z3d_disk_write(disk.disk, 9 * MIB + 5, memory.at, 1), Z3D_ERR_IO);
}

// What is left of a request after an error is not tried; what waits behind it is.
TEST_P(Ways, AfterAnErrorTheNextRequest) {
    std::atomic<int> asked{0};
    std::atomic<bool> begin{false};
    Hook fault;
    fault.answer = [&](bool, int64_t offset, int64_t) {
        while (!begin) usleep(100);
        if (offset < 8 * MIB) asked++;
        return offset < 8 * MIB ? EIO : 0;
    };
    Disk disk(folder.path, 16 * MIB, threads(), 1, &fault.hook);
    Memory memory(16 * MIB);
    int64_t bad = disk.start(true, 0, memory.at, 8 * MIB);
    int64_t good = disk.start(true, 8 * MIB, memory.at + 8 * MIB, 2 * MIB);
    begin = true;
    EXPECT_EQ(disk.wait(good), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(disk.wait(bad), Z3D_ERR_IO);
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(disk.move(true, 12 * MIB, memory.at + 12 * MIB, 2 * MIB), Z3D_OK);
}

TEST_P(Ways, HalfAnswersAndInterruptionsGoOn) {
    std::atomic<unsigned> asked{0};
    Hook fault;
    fault.answer = [&](bool, int64_t, int64_t) {
        unsigned n = asked++;
        return n % 7 == 1 ? EINTR : n % 11 == 2 ? EAGAIN : n % 2 ? Z3D_DISK_SHORT : 0;
    };
    Disk disk(folder.path, 8 * MIB, threads(), 3, &fault.hook);
    Memory memory(8 * MIB), back(8 * MIB);
    memory.fill(4);
    ASSERT_EQ(disk.move(true, 0, memory.at, memory.bytes), Z3D_OK) << z3d_error_message();
    ASSERT_EQ(disk.move(false, 0, back.at, back.bytes), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(memcmp(memory.at, back.at, back.bytes), 0);
    EXPECT_GT(asked, 32u);
    fault.answer = [](bool, int64_t, int64_t) { return EAGAIN; }; // for ever
    EXPECT_EQ(disk.move(false, 0, back.at, BLOCK), Z3D_ERR_IO);
    EXPECT_TRUE(has(z3d_error_message(), "Resource temporarily unavailable"));
}

// The system's own limit, in the middle of a request.
TEST_P(Ways, AFileThatMayNotGrow) {
    faults::in_child([&] {
        Disk disk(folder.path, 8 * MIB, threads());
        Memory memory(8 * MIB);
        rlimit limit{5 * MIB + BLOCK, RLIM_INFINITY};
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
        EXPECT_EQ(disk.move(true, 0, memory.at, memory.bytes), Z3D_ERR_IO);
        EXPECT_TRUE(has(z3d_error_message(), "1044480 bytes at byte 5246976 of the unnamed file: "
                                             "File too large"))
            << z3d_error_message();
        EXPECT_EQ(disk.move(true, 0, memory.at, 5 * MIB), Z3D_OK);
    });
}

// A file system that cannot reserve space, and another program that fills it.
TEST_P(Ways, ADiskThatFillsUp) {
    bool made = faults::in_child([&] {
        faults::own_mounts();
        faults::mount_memory(folder.path, "16m");
        faults::forbid(SYS_fallocate, EOPNOTSUPP);
        Disk disk(folder.path, 12 * MIB, threads());
        Memory memory(12 * MIB);
        EXPECT_EQ(disk.move(true, 0, memory.at, 4 * MIB), Z3D_OK) << z3d_error_message();
        write_file(folder / "other", std::string(8 * MIB, 'x'));
        EXPECT_EQ(disk.move(true, 4 * MIB, memory.at, 8 * MIB), Z3D_ERR_IO);
        EXPECT_TRUE(has(z3d_error_message(), "No space left on device")) << z3d_error_message();
        EXPECT_EQ(disk.move(false, 0, memory.at, 4 * MIB), Z3D_OK) << z3d_error_message();
    });
    if (!made) GTEST_SKIP() << "this process may not mount";
}

// A real disk that breaks: a file system in a file that first cannot grow, then is cut.
TEST_P(Ways, ADiskThatBreaks) {
    bool made = faults::in_child([&] {
        faults::own_mounts();
        faults::mount_memory(folder.path, "64m");
        std::string image = folder / "image", inner = folder / "inner";
        fs::create_directory(inner);
        write_file(image, "");
        fs::resize_file(image, 48 * MIB);
        std::string make = "mkfs.ext4 -q -O ^has_journal " + image + " >/dev/null 2>&1 && " +
                           "mount -o loop " + image + " " + inner + " 2>/dev/null";
        faults::or_cannot(system(make.c_str()) == 0);
        Disk disk(inner, 32 * MIB, threads());
        Memory memory(16 * MIB);
        EXPECT_EQ(disk.move(true, 0, memory.at, 8 * MIB), Z3D_OK) << z3d_error_message();
        EXPECT_EQ(disk.move(false, 0, memory.at, 8 * MIB), Z3D_OK) << z3d_error_message();
        std::ofstream filler(folder / "filler");
        while (filler << std::string(64 * KIB, 'x') << std::flush) {
        }
        EXPECT_EQ(disk.move(true, 16 * MIB, memory.at, 16 * MIB), Z3D_ERR_IO);
        std::string text = z3d_error_message();
        EXPECT_TRUE(has(text, inner + ": cannot write ")) << text;
        EXPECT_TRUE(has(text, "Input/output error") || has(text, "No space left")) << text;
        fs::resize_file(image, 64 * KIB);
        EXPECT_EQ(disk.move(false, 0, memory.at, 8 * MIB), Z3D_ERR_IO);
        EXPECT_TRUE(has(z3d_error_message(), "Input/output error")) << z3d_error_message();
    });
    if (!made) GTEST_SKIP() << "this process may not mount";
}

// The unnamed file as another program could get at it.
int open_underneath() {
    for (const auto &entry : fs::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        std::string to = fs::read_symlink(entry.path(), gone).string();
        if (has(to, "zero3d-test-") && has(to, "(deleted)"))
            return open(entry.path().c_str(), O_RDWR);
    }
    return -1;
}

TEST_P(Ways, AFileThatIsChangedUnderneath) {
    Disk disk(folder.path, 8 * MIB, threads());
    Memory memory(8 * MIB), back(8 * MIB);
    memory.fill(6);
    int underneath = open_underneath();
    ASSERT_GE(underneath, 0);
    ASSERT_EQ(disk.move(true, 0, memory.at, memory.bytes), Z3D_OK);
    ASSERT_EQ(pwrite(underneath, "?", 1, 3 * MIB + 5 * BLOCK + 17), 1);
    ASSERT_EQ(fsync(underneath), 0);
    EXPECT_EQ(disk.move(false, 2 * MIB, back.at, 4 * MIB), Z3D_ERR_IO);
    EXPECT_EQ(std::string(z3d_error_message()),
              folder.path + ": 4096 bytes at byte 3166208 of the unnamed file are not what was "
                            "written there: the disk is damaged, or another program changed the "
                            "file");
    EXPECT_EQ(disk.move(false, 4 * MIB, back.at, 4 * MIB), Z3D_OK) << z3d_error_message();
    // Written again it is right again, also if only in part.
    ASSERT_EQ(disk.move(true, 3 * MIB, memory.at, MIB), Z3D_OK);
    EXPECT_EQ(disk.move(false, 0, back.at, back.bytes), Z3D_OK) << z3d_error_message();
    ASSERT_EQ(ftruncate(underneath, 6 * MIB + 100), 0);
    EXPECT_EQ(disk.move(false, 0, back.at, 8 * MIB), Z3D_ERR_IO);
    EXPECT_EQ(std::string(z3d_error_message()),
              folder.path + ": the unnamed file ends at byte 6291456 of 8388608: another program "
                            "cut it");
    close(underneath);
}

// The watchdog sees a disk that does not answer.
TEST_P(Ways, AHangingDiskIsNamed) {
    std::atomic<bool> answers{false}, asked{false};
    Hook fault;
    fault.answer = [&](bool, int64_t offset, int64_t) {
        if (offset < MIB) return 0;
        asked = true;
        while (!answers) usleep(1000);
        return 0;
    };
    Disk disk(folder.path, 4 * MIB, threads(), 1, &fault.hook);
    Memory memory(4 * MIB);
    for (bool write : {true, false}) {
        asked = answers = false;
        int64_t ticket = disk.start(write, MIB, memory.at, 2 * MIB);
        while (!asked) usleep(1000);
        z3d_pending_ios seen;
        z3d_pending_io_look(&seen);
        EXPECT_GT(seen.since, 0);
        EXPECT_TRUE(has(seen.text, write ? "writing to the unnamed file in "
                                         : "reading from the unnamed file in "))
            << seen.text;
        EXPECT_TRUE(has(seen.text, folder.path.substr(folder.path.size() - 20) +
                                       " at byte 1048576 of 4194304"))
            << seen.text;
        answers = true;
        EXPECT_EQ(disk.wait(ticket), Z3D_OK);
    }
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
