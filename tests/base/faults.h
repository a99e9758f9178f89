// Faults that the system itself makes: children of their own, seccomp filters, mounts.
#ifndef ZERO3D_TESTS_BASE_FAULTS_H
#define ZERO3D_TESTS_BASE_FAULTS_H

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace faults {

enum { CANNOT = 77 }; // what a child exits with if this system does not let it make the fault

// Runs `body` in a child process. False: the child could not make its fault.
template <typename Body> bool in_child(Body body) {
    fflush(nullptr);
    pid_t child = fork();
    if (child == 0) {
        body();
        fflush(nullptr);
        _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT) return false;
    EXPECT_EQ(status, 0);
    return true;
}

inline void or_cannot(bool made) {
    if (!made) _exit(CANNOT);
}

// From now on the system call fails with `error`, in all threads that are started from now on; if
// `flag` is not 0, only if its argument number `argument` has one of these bits.
inline void forbid(int call, int error, int argument = 0, unsigned flag = 0) {
    unsigned refused = SECCOMP_RET_ERRNO | static_cast<unsigned>(error);
    unsigned at = static_cast<unsigned>(offsetof(seccomp_data, args) + 8 * argument);
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flag, 0, static_cast<unsigned char>(flag != 0)),
        BPF_STMT(BPF_RET | BPF_K, refused),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog program = {sizeof code / sizeof *code, code};
    or_cannot(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
              prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

// Mounts are this process's own from now on.
inline void own_mounts() {
    or_cannot(unshare(CLONE_NEWNS) == 0 &&
              mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
}

inline void mount_memory(const std::string &folder, const std::string &size) {
    or_cannot(mount("none", folder.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0);
}

} // namespace faults

#endif
