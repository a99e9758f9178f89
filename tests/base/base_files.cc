/* Files read whole, folders made, what is asked of a disk, the clock. */
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <thread>

extern "C" {
#include "src/base/output.h"
#include "src/base/pending_io.h"
#include "src/base/strings.h"
}

namespace fs = std::filesystem;

class Files : public testing::Test {
  protected:
    fs::path folder;
    void SetUp() override {
        std::string name = (fs::temp_directory_path() / "zero3d-base-XXXXXX").string();
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        folder = name;
    }
    void TearDown() override {
        fs::remove_all(folder);
    }
    std::string write(const char *name, const std::string &bytes) const {
        std::string path = (folder / name).string();
        std::ofstream(path, std::ios::binary) << bytes;
        return path;
    }
};

TEST_F(Files, ReadWholeWithTheirZeroBytes) {
    std::string bytes("a\0b\n", 4);
    char *text;
    size_t length;
    ASSERT_EQ(z3d_read_file(write("x", bytes).c_str(), 100, &text, &length), Z3D_OK);
    EXPECT_EQ(std::string(text, length), bytes);
    EXPECT_EQ(text[length], '\0');
    free(text);
    ASSERT_EQ(z3d_read_file(write("empty", "").c_str(), 100, &text, &length), Z3D_OK);
    EXPECT_EQ(length, 0u);
    EXPECT_STREQ(text, "");
    free(text);
}

TEST_F(Files, AnOutputReplacesItsKindOnlyAndNeverAnInput) {
    std::string text = write("a.txt", "only copy"), page = write("p.html", z3d_output_page.begins);
    std::string empty = write("empty", ""), none = (folder / "none").string();
    std::string again = (folder / "./a.txt").string(), link = (folder / "link").string();
    fs::create_symlink(text, link);
    auto is_page = [](const std::string &path) {
        return z3d_file_begins(path.c_str(), z3d_output_page.begins,
                               strlen(z3d_output_page.begins));
    };
    EXPECT_TRUE(is_page(page));
    for (const std::string &other : {text, empty, none, folder.string(), std::string("/dev/zero")})
        EXPECT_FALSE(is_page(other)) << other;
    auto check = [&](const std::string &path, bool force) {
        return z3d_output_check(path.c_str(), "page", is_page(path), force);
    };
    for (const std::string &good : {page, empty, none, std::string("/dev/null")})
        EXPECT_EQ(check(good, false), Z3D_OK) << good;
    EXPECT_EQ(check(text, false), Z3D_ERR_USAGE);
    EXPECT_EQ(check(text, true), Z3D_OK);
    EXPECT_EQ(check(folder.string(), true), Z3D_ERR_USAGE);
    const std::string whole = folder.string();
    for (const char *read : {text.c_str(), whole.c_str()}) {
        const char *inputs[] = {nullptr, "missing", read};
        for (const std::string &path : {text, again})
            EXPECT_EQ(z3d_output_is_no_input(path.c_str(), false, inputs, 3), Z3D_ERR_USAGE);
        EXPECT_EQ(z3d_output_is_no_input(page.c_str(), true, inputs, 3), Z3D_OK);
        EXPECT_EQ(z3d_output_is_no_input(none.c_str(), false, inputs, 3), Z3D_OK);
    }
    const char *linked[] = {link.c_str()};
    EXPECT_EQ(z3d_output_is_no_input(text.c_str(), true, linked, 1), Z3D_ERR_USAGE);
    EXPECT_TRUE(z3d_same_place(none.c_str(), (folder / "./none").string().c_str()));
    EXPECT_FALSE(z3d_same_place(none.c_str(), text.c_str()));
}

TEST_F(Files, TheLimitIsExact) {
    char *text;
    size_t length;
    for (size_t size : {10u, 65534u, 65535u, 65536u, 200000u}) {
        std::string path = write("x", std::string(size, 'x'));
        ASSERT_EQ(z3d_read_file(path.c_str(), size, &text, &length), Z3D_OK) << size;
        EXPECT_EQ(length, size);
        free(text);
        EXPECT_EQ(z3d_read_file(path.c_str(), size - 1, &text, &length), Z3D_ERR_IO);
        EXPECT_NE(strstr(z3d_error_message(), "larger than"), nullptr);
    }
}

TEST_F(Files, EndlessOnesAreRefused) {
    char *text;
    size_t length;
    EXPECT_EQ(z3d_read_file("/dev/zero", 1 << 20, &text, &length), Z3D_ERR_IO);
}

// A named pipe that nobody writes to does not keep a run waiting; the output of a command is read
// to its end.
TEST_F(Files, Pipes) {
    char *text;
    size_t length;
    std::string path = write("x", "");
    unlink(path.c_str());
    ASSERT_EQ(0, mkfifo(path.c_str(), 0600));
    ASSERT_EQ(z3d_read_file(path.c_str(), 100, &text, &length), Z3D_OK);
    EXPECT_EQ(length, 0u);
    free(text);
    int ends[2];
    ASSERT_EQ(0, pipe(ends));
    std::thread writer([&] {
        usleep(50000);
        EXPECT_EQ(4, ::write(ends[1], "late", 4));
        close(ends[1]);
    });
    path = "/dev/fd/" + std::to_string(ends[0]);
    EXPECT_EQ(z3d_read_file(path.c_str(), 100, &text, &length), Z3D_OK);
    EXPECT_STREQ(text, "late");
    free(text);
    writer.join();
    close(ends[0]);
}

TEST_F(Files, MissingAndFoldersAreNamed) {
    char *text;
    size_t length;
    std::string path = (folder / "nowhere").string();
    EXPECT_EQ(z3d_read_file(path.c_str(), 100, &text, &length), Z3D_ERR_IO);
    EXPECT_EQ(std::string(z3d_error_message()),
              "cannot open " + path + ": No such file or directory");
    EXPECT_EQ(z3d_read_file(folder.c_str(), 100, &text, &length), Z3D_ERR_IO);
    EXPECT_NE(strstr(z3d_error_message(), "it is a folder"), nullptr);
}

TEST_F(Files, FoldersAndTheirParents) {
    std::string path = (folder / "a/b//c/").string();
    EXPECT_EQ(z3d_make_folders(path.c_str()), Z3D_OK);
    EXPECT_TRUE(fs::is_directory(folder / "a/b/c"));
    EXPECT_EQ(z3d_make_folders(path.c_str()), Z3D_OK); /* they are there: fine */
    EXPECT_EQ(z3d_make_folders((folder / "d").c_str()), Z3D_OK);
    EXPECT_TRUE(fs::is_directory(folder / "d"));
    EXPECT_EQ(z3d_make_folders("/"), Z3D_OK);
    EXPECT_EQ(z3d_make_folders("."), Z3D_OK);
}

TEST_F(Files, AFileInTheWayIsNamed) {
    std::string file = write("file", "x");
    EXPECT_EQ(z3d_make_folders((file + "/sub").c_str()), Z3D_ERR_IO);
    EXPECT_NE(strstr(z3d_error_message(), (file + " is a file").c_str()), nullptr)
        << z3d_error_message();
    EXPECT_EQ(z3d_make_folders(""), Z3D_ERR_IO);
    EXPECT_EQ(z3d_make_folders(std::string(10000, 'x').c_str()), Z3D_ERR_IO);
    EXPECT_EQ(z3d_make_folders("/proc/zero3d/x"), Z3D_ERR_IO);
}

namespace {

z3d_pending_ios look() {
    z3d_pending_ios out;
    z3d_pending_io_look(&out);
    return out;
}

} // namespace

// A call within another is what the thread does; at its end the outer one goes on, from then.
TEST(PendingIo, TheInnermostOfAThreadCounts) {
    z3d_pending_io outer, inner;
    EXPECT_EQ(look().since, 0);
    EXPECT_STREQ(look().text, "");
    z3d_pending_io_begin(&outer, "listing", "folder");
    double begun = look().since;
    z3d_pending_io_begin(&inner, "writing", "file");
    EXPECT_STREQ(look().text, "writing file");
    z3d_pending_io_at(&inner, 4, -1);
    EXPECT_STREQ(look().text, "writing file at byte 4");
    z3d_pending_io_at(&inner, 5, 9);
    EXPECT_STREQ(look().text, "writing file at byte 5 of 9");
    z3d_pending_io_end(&inner);
    EXPECT_STREQ(look().text, "listing folder");
    EXPECT_GT(look().since, begun);
    z3d_pending_io_end(&outer);
    EXPECT_EQ(look().since, 0);
    EXPECT_GT(look().last, begun);
}

// Whoever gets further does not hide who stands still.
TEST(PendingIo, OfManyThreadsTheOneThatStandsStillIsSeen) {
    z3d_pending_io still;
    z3d_pending_io_begin(&still, "reading", "dead");
    double begun = look().since;
    std::thread([] {
        z3d_pending_io lively;
        for (int i = 0; i < 10; i++) {
            z3d_pending_io_begin(&lively, "writing", "alive");
            z3d_pending_io_at(&lively, i, 10);
            z3d_pending_io_end(&lively);
        }
    }).join();
    EXPECT_STREQ(look().text, "reading dead");
    EXPECT_EQ(look().since, begun);
    EXPECT_GT(look().last, begun);
    z3d_pending_io_end(&still);
}

TEST(PendingIo, OfALongPathTheEndIsSaid) {
    z3d_pending_io io;
    std::string path = std::string(5000, 'x') + "/step-00000010/shard-00000.h5.part";
    z3d_pending_io_begin(&io, "checkpoint: fsync of folder", path.c_str());
    z3d_pending_io_at(&io, INT64_MAX, INT64_MAX);
    std::string text = look().text, most = std::to_string(INT64_MAX);
    z3d_pending_io_end(&io);
    EXPECT_EQ(text.find("checkpoint: fsync of folder ...xxx"), 0u);
    EXPECT_NE(text.find("xxx/step-00000010/shard-00000.h5.part at byte " + most + " of " + most),
              std::string::npos)
        << text;
}

TEST_F(Files, TheClockDoesNotGoBack) {
    double before = z3d_now();
    for (int i = 0; i < 1000; i++) {
        double now = z3d_now();
        ASSERT_GE(now, before);
        before = now;
    }
    EXPECT_GT(before, 0);
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
