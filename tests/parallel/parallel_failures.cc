// Dead, failing, silent and hanging ranks. This program is its own victim: the driver starts it on
// several ranks through scripts/launch with a way to fail, and reads what a person would see.
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "parallel/tcp/tcp.h"
}

// ---- the victim ----

namespace {

struct Victim {
    z3d_world *world = nullptr;
    z3d_group *group = nullptr;
    std::vector<float> data = std::vector<float>(20000);
    int rank = 0;
};

void check(Victim &v, z3d_status status) {
    if (status != Z3D_OK) z3d_world_abort(v.world, status, z3d_error_message());
}

void place(Victim &v, bool waiting, const std::string &text) {
    z3d_watchdog_position(v.world, waiting, text.c_str());
}

void one_step(Victim &v, int step) {
    std::string prefix = "step " + std::to_string(step) + ": ";
    place(v, false, prefix + "backward block.8");
    z3d_collective call = {};
    call.kind = Z3D_COLLECTIVE_ALL_REDUCE;
    call.dtype = Z3D_F32;
    call.buffer = v.data.data();
    call.count = call.stride = int64_t(v.data.size());
    z3d_ticket ticket;
    check(v, z3d_collective_start(v.group, &call, &ticket));
    place(v, true, prefix + "wait reduce_grads block.7 (data group)");
    check(v, z3d_collective_wait(v.group, ticket));
    place(v, false, prefix + "optimizer_step");
}

[[noreturn]] void sleep_for_ever() {
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

// A disk that gets further every now and then for longer than the watchdog's time, or not at all.
void ask_disk(bool slow) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "checkpoint: writing", "shard.h5");
    for (int i = 0; i < 15 || !slow; i++) {
        if (slow || i == 0) z3d_pending_io_at(&io, i, 15);
        usleep(100000);
    }
    z3d_pending_io_end(&io);
}

// A port that strangers find: garbage, a greeting with a wrong token, silence.
void knock(int port) {
    const char *texts[] = {"GET / HTTP/1.1\r\n\r\n", "", "sd"};
    for (int i = 0; i < 40; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in to = {};
        to.sin_family = AF_INET;
        to.sin_port = htons(uint16_t(port));
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (connect(fd, (sockaddr *)&to, sizeof to) != 0) abort();
        const std::string text = i % 4 == 3 ? std::string(3000, 's') : texts[i % 4];
        if (send(fd, text.data(), text.size(), MSG_NOSIGNAL) < 0) continue;
        if (i % 2) close(fd);
    }
}

// As if every rank had a node of its own: real addresses, no memory shared, places as messages.
void move_apart(Victim &v) {
    z3d_side_close(v.world);
    for (int r = 0; r < v.world->size; r++) v.world->node[r] = r;
    v.world->nodes = v.world->size;
    z3d_channel_close(v.world->local);
    if (z3d_channel_open(v.world, &v.rank, 1, 0, &v.world->local) != Z3D_OK) abort();
    v.world->local_rank = 0;
    v.world->local_size = 1;
}

// This process ends, and its connection with that port with a reset, soon after there is one.
[[noreturn]] void reset_connection(int port) {
    for (;;) {
        usleep(300000);
        for (int fd = 3; fd < 64; fd++) {
            sockaddr_in to = {};
            socklen_t length = sizeof to;
            linger no = {1, 0};
            if (getpeername(fd, (sockaddr *)&to, &length) != 0 || ntohs(to.sin_port) != port)
                continue;
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &no, sizeof no);
            _exit(0);
        }
    }
}

// Meets the others, and is gone when they want to talk to it, or before, or does not move.
[[noreturn]] void fail_at_the_start(const std::string &how) {
    z3d_launcher launch;
    uint64_t token;
    int listener = z3d_socket_listen(true, 0);
    if (z3d_launcher_detect(&launch) != Z3D_OK) _exit(9);
    std::vector<z3d_tcp_place> all(size_t(launch.size));
    z3d_tcp_place place = {"here", "", z3d_socket_port(listener), int32_t(getpid())};
    if (how == "reset-at-start") {
        std::thread([&] { reset_connection(launch.port); }).detach();
        (void)z3d_tcp_rendezvous(&launch, &place, all.data(), &token);
        sleep_for_ever();
    }
    bool met = z3d_tcp_rendezvous(&launch, &place, all.data(), &token) == Z3D_OK;
    if (how == "freeze-at-start") raise(SIGSTOP);
    _exit(met ? 0 : 9);
}

// Rank 2 is in rank 1's queue of connections, and more strangers behind it than rank 1 keeps.
void flood(Victim &v) {
    if (v.rank == 1) usleep(600000);
    if (v.rank != 2) return;
    char byte = 0;
    z3d_message message;
    check(v, z3d_message_start(v.world->channel, false, &byte, 1, 1, 7, &message));
    for (int i = 0; i < 30; i++) usleep(10000), z3d_world_progress(v.world);
    knock(z3d_tcp_port(v.world, 1));
    z3d_message_drop(&message);
}

int victim(int argc, char **argv) {
    Victim v;
    std::string how = argv[2];
    int who = atoi(argv[3]);
    if (how.find("-at-start") != how.npos && z3d_launched_rank() == who) fail_at_the_start(how);
    if (how == "reset-at-start" && z3d_launched_rank() == 2) usleep(800000);
    z3d_status created = z3d_world_create(&argc, &argv, &v.world);
    if (created != Z3D_OK) {
        fprintf(stderr, "refused: %s (%s)\n", z3d_error_message(), z3d_status_name(created));
        return 3;
    }
    v.rank = z3d_world_rank(v.world);
    bool apart = how.find("far-") == 0;
    if (apart) {
        move_apart(v);
        how = how.substr(4);
    }
    z3d_mesh mesh;
    check(v, z3d_mesh_make(1, z3d_world_size(v.world), 1, v.rank, &mesh));
    check(v, z3d_group_create(v.world, &mesh, Z3D_AXES_DATA, nullptr, &v.group));
    bool disk = how.find("-disk") != how.npos;
    bool hangs = how.find("hang") == 0 || how == "freeze";
    check(v, z3d_watchdog_start(v.world, disk ? 1.0 : hangs ? 2.0 : 600.0));
    if (how != "kill-bare") z3d_world_catch_signals();
    bool me = v.rank == who;
    if (how == "flood") flood(v);
    if (how == "deaf") printf("running\n"), fflush(stdout), sleep_for_ever();
    int steps = how == "until-stopped" ? 1000000 : 50;
    for (int step = 1; step <= steps; step++) {
        if (step == 20 && me) {
            place(v, false, "step 20: backward block.3");
            if (disk) ask_disk(how == "slow-disk");
            if (apart) usleep(1000000); // the place is on its way
            if (how == "kill" || how == "kill-bare") raise(SIGKILL);
            if (how == "freeze") raise(SIGSTOP);
            if (how == "hang-long") {
                std::string text = "step 20: backward";
                for (int i = 0; i < 40; i++) text += " (columns 0-63)";
                place(v, false, text);
            }
            if (how.find("hang") == 0) sleep_for_ever();
            if (how == "exit") _exit(0);
            if (how == "crash") raise(SIGSEGV);
            if (how == "fail") z3d_world_abort(v.world, Z3D_ERR_DATA, "token 70000 in file x.bin");
            if (how == "knock") knock(z3d_side_port(v.world, 0));
            if (how == "knock-tcp") knock(z3d_tcp_port(v.world, 0));
            if (how == "differ") v.data.resize(10000);
        }
        if (step == 20 && how == "all-fail") {
            z3d_status mine = me ? z3d_error_set(Z3D_ERR_IO, "f", 1, "disk full") : Z3D_OK;
            z3d_status all = z3d_world_agree(v.world, mine);
            z3d_world_abort(v.world, all, z3d_error_message());
        }
        one_step(v, step);
        if (how == "until-stopped") {
            int stop = z3d_world_stop_requested(v.world), any = 0;
            std::vector<int> stops(size_t(z3d_world_size(v.world)));
            check(v, z3d_world_gather_all(v.world, &stop, stops.data(), sizeof stop));
            for (int s : stops) any |= s;
            if (step == 1 && v.rank == 0) printf("running\n"), fflush(stdout);
            if (any) {
                if (v.rank == 0) printf("stopped cleanly\n");
                break;
            }
        }
    }
    z3d_group_destroy(v.group);
    z3d_world_destroy(v.world);
    if (v.rank == 0) printf("finished\n");
    return 0;
}

// ---- the driver ----

std::string self_path;

struct Outcome {
    int code = -1; // exit code; 1000 + signal
    std::string text;
    double seconds = 0;
};

std::string launch_line(int ranks, const std::string &how, int who) {
    return std::string(ZERO3D_TEST_DATA) + "/../../scripts/launch -n " + std::to_string(ranks) +
           " " + self_path + " victim " + how + " " + std::to_string(who);
}

// Runs a command by the shell, output and errors together. Once it has said "running", what
// `interrupt` does to its process happens.
Outcome run_command(const std::string &command, void (*interrupt)(pid_t) = nullptr) {
    Outcome out;
    auto begun = std::chrono::steady_clock::now();
    int ends[2];
    if (pipe(ends) != 0) abort();
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
        _exit(127);
    }
    close(ends[1]);
    for (bool open = true; open;) {
        out.seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
        if (out.seconds > 60) break;
        pollfd one = {ends[0], POLLIN, 0};
        if (poll(&one, 1, 1000) <= 0) continue;
        char buffer[4096];
        ssize_t got = read(ends[0], buffer, sizeof buffer);
        if (got > 0) out.text.append(buffer, size_t(got));
        open = got > 0;
        if (interrupt && out.text.find("running\n") != std::string::npos) {
            interrupt(pid);
            interrupt = nullptr;
        }
    }
    close(ends[0]);
    if (out.seconds > 60) kill(pid, SIGKILL), out.text += "\n(ended by the test after 60 s)";
    int status;
    waitpid(pid, &status, 0);
    out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    return out;
}

int count(const std::string &text, const std::string &what) {
    int n = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) n++;
    return n;
}

// Our line is the first of all, it is there once, the run ends in time with a non-zero code.
void expect_death(const Outcome &o, const std::string &start, const std::string &place) {
    EXPECT_NE(o.code, 0) << o.text;
    EXPECT_LT(o.seconds, 30) << o.text;
    EXPECT_EQ(o.text.find("zero3d: " + start), 0u) << o.text;
    EXPECT_EQ(count(o.text, "zero3d: "), 1) << o.text;
    std::string line = o.text.substr(0, o.text.find('\n'));
    EXPECT_NE(line.find(place), std::string::npos) << o.text;
}

} // namespace

TEST(Failures, NormalEndIsSilent) {
    for (int ranks : {1, 4}) {
        Outcome o = run_command(launch_line(ranks, "none", 0));
        EXPECT_EQ(o.code, 0);
        EXPECT_EQ(o.text, "finished\n");
    }
}

TEST(Failures, KilledRankIsNamedWithItsPlace) {
    for (int who : {3, 0}) {
        Outcome o = run_command(launch_line(4, "kill", who));
        expect_death(o, "rank " + std::to_string(who) + " (host ",
                     "died in step 20: backward block.3");
    }
}

TEST(Failures, KilledRankIsNamedWithoutSignalHandlersToo) {
    expect_death(run_command(launch_line(3, "kill-bare", 1)), "rank 1 (host ",
                 "step 20: backward block.3");
}

TEST(Failures, RanksOnOtherNodesAreNamedToo) {
    expect_death(run_command(launch_line(3, "far-kill", 0)), "rank 0 (host ",
                 "died in step 20: backward block.3");
    Outcome o = run_command(launch_line(3, "far-hang", 2));
    EXPECT_NE(o.code, 0);
    EXPECT_LT(o.seconds, 30);
    EXPECT_NE(o.text.find("in step 20: wait reduce_grads block.7 (data group); rank 2 is still in "
                          "step 20: backward block.3\n"),
              std::string::npos)
        << o.text;
}

TEST(Failures, CrashAndQuietExitAreDeaths) {
    expect_death(run_command(launch_line(2, "exit", 1)), "rank 1 (host ", "died in step 20");
    Outcome o = run_command(launch_line(2, "crash", 0));
    EXPECT_NE(o.code, 0);
    EXPECT_NE(o.text.find("zero3d: rank 0 (host "), std::string::npos) << o.text;
}

TEST(Failures, OneRanksErrorEndsAllWithItsMessageOnTop) {
    expect_death(run_command(launch_line(3, "fail", 0)), "rank 0: ", "token 70000 in file x.bin");
}

TEST(Failures, AgreedErrorIsPrintedOnce) {
    expect_death(run_command(launch_line(4, "all-fail", 2)), "rank 2: disk full", "disk full");
}

TEST(Failures, HangIsReportedWithWhoWaitsForWhom) {
    Outcome o = run_command(launch_line(3, "hang", 0)); // another rank: LongPlaces, below
    EXPECT_NE(o.code, 0);
    EXPECT_LT(o.seconds, 30);
    EXPECT_EQ(o.text.find("zero3d: watchdog: rank "), 0u) << o.text;
    EXPECT_NE(o.text.find("in step 20: wait reduce_grads block.7 (data group); rank 0 is still in "
                          "step 20: backward block.3\n"),
              std::string::npos)
        << o.text;
}

TEST(Failures, ADeadDiskIsNamedAndNotWhoWaitsForIt) {
    Outcome o = run_command(launch_line(3, "far-dead-disk", 1));
    EXPECT_EQ(o.code, 1);
    EXPECT_LT(o.seconds, 30);
    EXPECT_EQ(o.text.find("zero3d: watchdog: rank 1's disk has not answered for 1 s: checkpoint: "
                          "writing shard.h5 at byte 0 of 15 (in step 20: backward block.3)\n"
                          "zero3d:   ranks 0, 2: waiting in step 20: wait reduce_grads"),
              0u)
        << o.text;
}

TEST(Failures, WaitingForASlowDiskIsNoHang) {
    Outcome o = run_command(launch_line(3, "far-slow-disk", 1));
    EXPECT_EQ(o.code, 0);
    EXPECT_GT(o.seconds, 1.5);
    EXPECT_EQ(o.text, "finished\n");
}

TEST(Failures, FrozenRankIsReported) {
    Outcome o = run_command(launch_line(3, "freeze", 1));
    EXPECT_NE(o.code, 0);
    EXPECT_LT(o.seconds, 30);
    EXPECT_NE(o.text.find("rank 1 does not answer; it was last in step 20: backward block.3"),
              std::string::npos)
        << o.text;
}

// Rank 0 is who the others would tell; without it they agree on who speaks, once. An mpirun wakes a
// frozen rank up to end it: nor does that one blame anybody.
TEST(Failures, FrozenFirstRankIsReportedOnceAndNobodyElse) {
    for (const char *over : {"tcp", "mpi"}) {
        Outcome o = run_command(std::string("env ZERO3D_LAUNCH=") + over + " " +
                                launch_line(4, "freeze", 0));
        EXPECT_EQ(o.code, 1) << o.text;
        expect_death(o, "rank 0 (host ", "does not answer in step 20: backward block.3; ending");
    }
}

// What does not fit is cut between two words, never inside one.
TEST(Failures, LongPlacesAreCutBetweenWords) {
    Outcome o = run_command(launch_line(2, "hang-long", 1));
    EXPECT_NE(o.code, 0);
    size_t at = o.text.find("rank 1 is still in step 20: backward (columns 0-63) (columns 0-63) ");
    ASSERT_NE(at, std::string::npos) << o.text;
    std::string line = o.text.substr(at, o.text.find('\n', at) - at);
    EXPECT_GT(line.size(), size_t(140));
    EXPECT_TRUE(line.substr(line.size() - 10) == " 0-63) ..." ||
                line.substr(line.size() - 12) == " (columns ...")
        << line;
}

TEST(Failures, StrangersAtThePortChangeNothing) {
    Outcome o = run_command(launch_line(3, "knock", 2));
    EXPECT_EQ(o.code, 0);
    EXPECT_EQ(o.text, "finished\n");
}

// mpirun forwards SIGUSR1, and turns SIGTERM and Ctrl-C into a SIGTERM for every rank.
TEST(Failures, SignalsToTheLauncherStopTheRunCleanly) {
    void (*signals[])(pid_t) = {[](pid_t pid) { kill(pid, SIGUSR1); },
                                [](pid_t pid) { kill(pid, SIGTERM); },
                                [](pid_t pid) { kill(pid, SIGINT); }};
    for (auto interrupt : signals) {
        Outcome o = run_command("env ZERO3D_GRACE_SECONDS=3 " + launch_line(3, "until-stopped", 0),
                                interrupt);
        size_t stopped = o.text.find("stopped cleanly\n"); // mpirun may speak in between
        ASSERT_NE(stopped, std::string::npos) << o.text;
        EXPECT_NE(o.text.find("finished\n", stopped), std::string::npos) << o.text;
        if (interrupt == signals[0]) {
            EXPECT_EQ(o.code, 0) << o.text;
        }
    }
}

// The first asks for a stop, and what comes with it is the same request; a later one does not ask.
TEST(Failures, SecondSignalEndsAtOnce) {
    Outcome o = run_command(self_path + " victim deaf 0", [](pid_t pid) {
        kill(pid, SIGUSR1);
        kill(pid, SIGTERM);
        usleep(1000000);
        kill(pid, SIGINT);
    });
    EXPECT_EQ(o.code, 128 + SIGINT) << o.text;
}

// mpirun announces an end by a SIGCONT, sends SIGTERM only after half the grace time, and is no
// second request then. A SIGCONT from anybody else is no request.
TEST(Failures, TheLaunchersAnnouncementIsARequest) {
    for (auto [under_mpirun, asked] : {std::pair(true, false), {false, false}, {true, true}}) {
        pid_t pid = fork();
        if (pid == 0) {
            under_mpirun ? setenv("OMPI_COMM_WORLD_RANK", "0", 1)
                         : unsetenv("OMPI_COMM_WORLD_RANK");
            z3d_world_catch_signals();
            raise(SIGCONT);
            bool by_itself = z3d_world_stop_requested(nullptr);
            if (asked) raise(SIGUSR1); // its SIGTERM is no second request either
            raise(SIGSTOP);            // until the parent goes on
            bool by_parent = z3d_world_stop_requested(nullptr);
            usleep(600000);
            raise(SIGTERM);
            _exit(!by_itself && by_parent == under_mpirun ? 0 : 1);
        }
        int status = -1;
        EXPECT_EQ(waitpid(pid, &status, WUNTRACED), pid);
        EXPECT_TRUE(WIFSTOPPED(status));
        kill(pid, SIGCONT);
        EXPECT_EQ(waitpid(pid, &status, 0), pid);
        EXPECT_EQ(status, 0);
    }
}

// Code that uses the stack pointer as a register must not be hurt by a signal.
TEST(Failures, SignalsHaveAStackOfTheirOwn) {
    pid_t pid = fork();
    if (pid == 0) {
        struct sigaction action;
        stack_t stack;
        z3d_world_catch_signals();
        bool own = sigaltstack(nullptr, &stack) == 0 && !(stack.ss_flags & SS_DISABLE) &&
                   stack.ss_size >= 32768;
        for (int number : {SIGUSR1, SIGTERM, SIGINT})
            own = own && sigaction(number, nullptr, &action) == 0 && (action.sa_flags & SA_ONSTACK);
        _exit(own ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
}

// Over TCP, with no mpirun that would end the others; also other ranks than those above.
TEST(Failures, RanksWithoutMpiAreNamedToo) {
    setenv("ZERO3D_LAUNCH", "tcp", 1);
    for (int who : {2, 0})
        expect_death(run_command(launch_line(3, who ? "far-kill" : "kill", who)),
                     "rank " + std::to_string(who) + " (host ",
                     "died in step 20: backward block.3");
    expect_death(run_command(launch_line(4, "fail", 2)), "rank 2: ", "token 70000 in file x.bin");
    for (int who : {0, 2}) {
        Outcome o = run_command(launch_line(4, "die-at-start", who));
        EXPECT_EQ(o.code, 3) << o.text;
        EXPECT_LT(o.seconds, 5) << o.text;
        EXPECT_NE(o.text.find("refused: lost the connection to rank " + std::to_string(who) +
                              " (host here, pid "),
                  std::string::npos)
            << o.text;
        EXPECT_EQ(count(o.text, "refused: lost the connection to rank "), 3) << o.text;
        EXPECT_EQ(count(o.text, "(ERR_START)\n"), 3) << o.text;
    }
    // Both have a message that the other has no room for: one of them is the first to say so.
    expect_death(run_command(launch_line(2, "far-differ", 1)), "rank ",
                 "0000 bytes, but this rank sends ");
    for (const char *how : {"far-knock-tcp", "far-flood"})
        EXPECT_EQ(run_command(launch_line(3, how, 2)).text, "finished\n");
    Outcome o =
        run_command(launch_line(3, "until-stopped", 0), [](pid_t pid) { kill(pid, SIGTERM); });
    EXPECT_EQ(o.code, 0) << o.text;
    EXPECT_NE(o.text.find("stopped cleanly\nfinished\n"), std::string::npos) << o.text;
    unsetenv("ZERO3D_LAUNCH");
}

TEST(Failures, RanksThatAreLostWhileTheyMeetAreNamed) {
    setenv("ZERO3D_LAUNCH", "tcp", 1);
    Outcome o = run_command(launch_line(3, "reset-at-start", 1));
    EXPECT_EQ(o.code, 3) << o.text;
    EXPECT_EQ(count(o.text, "rank 1 (host here, pid "), 2) << o.text;
    EXPECT_EQ(count(o.text, ") ended before all ranks had connected"), 2) << o.text;
    // Rank 0 has found it, and told rank 2.
    EXPECT_EQ(count(o.text, " connected (ERR_START)\n"), 1) << o.text;
    EXPECT_EQ(count(o.text, " connected (ERR_PEER)\n"), 1) << o.text;
    // One that is frozen is ended when the others have.
    o = run_command("env ZERO3D_START_SECONDS=1 " + launch_line(3, "freeze-at-start", 0));
    EXPECT_EQ(o.code, 3) << o.text;
    EXPECT_LT(o.seconds, 10) << o.text;
    EXPECT_EQ(count(o.text, "refused: no answer from rank 0 (host here, pid "), 2) << o.text;
    unsetenv("ZERO3D_LAUNCH");
}

// As one that connects to a port of the kernel's own choice before anybody listens there.
TEST(Failures, SocketThatMeetsItselfHasMetNobody) {
    sockaddr_in at = {};
    socklen_t length = sizeof at;
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(bind(fd, (sockaddr *)&at, sizeof at), 0);
    ASSERT_EQ(getsockname(fd, (sockaddr *)&at, &length), 0);
    ASSERT_EQ(connect(fd, (sockaddr *)&at, sizeof at), 0);
    EXPECT_EQ(z3d_socket_outcome(fd), ECONNREFUSED);
    close(fd);
    int port = ntohs(at.sin_port), listener = z3d_socket_listen(true, port);
    ASSERT_GE(listener, 0) << "the port is still taken: " << strerror(errno);
    fd = z3d_socket_connect("127.0.0.1", port, z3d_now() + 5);
    EXPECT_GE(fd, 0) << strerror(errno);
    close(fd);
    close(listener);
}

// Environments as Slurm makes them: of a batch script, of a shell by salloc, of a step.
TEST(Failures, OneProcessOfAnAllocationForSeveralIsRefused) {
    auto run = [](const std::string &variables) {
        return run_command("env SLURM_JOB_ID=7 SLURM_PROCID=0 env " + variables + " " + self_path +
                           " victim none 0");
    };
    const char *batch[][2] = {
        {"SLURM_NNODES=2 SLURM_NTASKS=4", "4 tasks on 2 nodes"},
        {"-u SLURM_PROCID SLURM_NNODES=1 SLURM_NTASKS=4", "4 tasks on 1 node,"},
        {"SLURM_NNODES=2 SLURM_TASKS_PER_NODE='4(x2)'", "2 tasks on 2 nodes"},
        {"SLURM_NNODES=2 SLURM_NTASKS_PER_NODE=3", "6 tasks on 2 nodes"},
        {"SLURM_NNODES=1 SLURM_NTASKS=1 SLURM_HET_SIZE=2", "2 tasks on 2 nodes"},
        {"SLURM_NNODES=2 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1", "4 tasks on 2 nodes"},
        {"SLURM_NNODES=2 SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=1", "2 tasks on 2 nodes"},
    };
    for (auto &[variables, found] : batch) {
        Outcome o = run(variables);
        EXPECT_EQ(o.code, 3) << variables;
        EXPECT_EQ(o.text.find(std::string("refused: this Slurm job has ") + found), 0u)
            << variables << ": " << o.text;
        EXPECT_EQ(run(std::string(variables) + " RANK=0 WORLD_SIZE=1").text, "finished\n");
    }
    for (const char *one :
         {"SLURM_NNODES=1 SLURM_NTASKS=1", "SLURM_NNODES=1 SLURM_TASKS_PER_NODE=4",
          "SLURM_NNODES=1 SLURM_NTASKS=1 SLURM_NTASKS_PER_NODE=2 SLURM_JOB_NUM_NODES=2 "
          "SLURM_STEP_NUM_TASKS=1"})
        EXPECT_EQ(run(one).text, "finished\n") << one;
    EXPECT_EQ(run_command("env SLURM_NTASKS=4 " + self_path + " victim none 0").text,
              "finished\n"); // what srun is to do, no job
}

int main(int argc, char **argv) {
    if (argc >= 4 && std::string(argv[1]) == "victim") return victim(argc, argv);
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return 1;
    self_path.assign(path, size_t(length));
    setenv("ZERO3D_GRACE_SECONDS", "1", 0);
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
