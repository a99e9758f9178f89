/* Log lines: who writes which, and that one call is one line. */
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

extern "C" {
#include "src/base/log.h"
}

/* What `write` puts on standard error; at most a pipe's 64 KiB. */
template <typename Function> static std::string captured(Function write_lines) {
    int pipe_ends[2], saved = dup(STDERR_FILENO);
    EXPECT_EQ(pipe(pipe_ends), 0);
    dup2(pipe_ends[1], STDERR_FILENO);
    write_lines();
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(pipe_ends[1]);
    std::string text;
    char buf[4096];
    for (ssize_t n; (n = read(pipe_ends[0], buf, sizeof buf)) > 0;) text.append(buf, n);
    close(pipe_ends[0]);
    return text;
}

static std::string one_of_each(z3d_log_level level, int rank) {
    return captured([&] {
        z3d_log_configure(level, rank);
        z3d_log(Z3D_LOG_ERROR, "e%d", 1);
        z3d_log(Z3D_LOG_WARN, "w%d", 2);
        z3d_log(Z3D_LOG_INFO, "i%d", 3);
        z3d_log(Z3D_LOG_DEBUG, "d%d", 4);
    });
}

TEST(Log, Levels) {
    EXPECT_EQ(one_of_each(Z3D_LOG_ERROR, 0), "zero3d: error: e1\n");
    EXPECT_EQ(one_of_each(Z3D_LOG_INFO, 0), "zero3d: error: e1\nzero3d: warning: w2\nzero3d: i3\n");
    EXPECT_EQ(one_of_each(Z3D_LOG_DEBUG, 0),
              "zero3d: error: e1\nzero3d: warning: w2\nzero3d: i3\nzero3d: debug: d4\n");
}

TEST(Log, OtherRanksSayWhoTheyAreAndKeepInformationToRank0) {
    EXPECT_EQ(one_of_each(Z3D_LOG_DEBUG, 3),
              "zero3d[rank 3]: error: e1\nzero3d[rank 3]: warning: w2\n");
    EXPECT_EQ(one_of_each(Z3D_LOG_INFO, -1),
              "zero3d: error: e1\nzero3d: warning: w2\nzero3d: i3\n");
}

TEST(Log, AMessageIsOneLine) {
    std::string text = captured([] {
        z3d_log_configure(Z3D_LOG_INFO, 0);
        z3d_log(Z3D_LOG_INFO, "a\nb\x1b[31m");
    });
    EXPECT_EQ(text, "zero3d: a b [31m\n");
}

TEST(Log, LongMessagesAreCutAndEndTheirLine) {
    std::string longer(10000, 'x');
    std::string text = captured([&] { z3d_log(Z3D_LOG_INFO, "%s", longer.c_str()); });
    EXPECT_LE(text.size(), 4096u);
    EXPECT_GT(text.size(), 4000u);
    EXPECT_EQ(text.find('\n'), text.size() - 1);
}

TEST(Log, ErrnoIsLeftAlone) {
    errno = ENOSPC;
    captured([] {
        z3d_log(Z3D_LOG_INFO, "x");
        EXPECT_EQ(errno, ENOSPC);
    });
}

TEST(Log, LinesOfThreadsDoNotMix) {
    std::string text = captured([] {
        z3d_log_configure(Z3D_LOG_INFO, 0);
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; t++) {
            threads.emplace_back([t] {
                std::string body(100, static_cast<char>('a' + t));
                for (int i = 0; i < 50; i++) z3d_log(Z3D_LOG_INFO, "%s", body.c_str());
            });
        }
        for (auto &thread : threads) thread.join();
    });
    size_t lines = 0;
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
        std::string line = text.substr(at, end - at);
        ASSERT_EQ(line.size(), 8u + 100u);
        EXPECT_EQ(line.substr(8), std::string(100, line[8]));
        lines++;
    }
    EXPECT_EQ(lines, 200u);
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
