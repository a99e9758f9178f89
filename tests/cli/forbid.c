/* forbid CALL ERRNO COMMAND...: runs the command, in which a system call fails with that number.
 * 77: this system does not let it. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
    enum { CANNOT = 77 };
    if (argc < 4) return CANNOT;
    unsigned call = strcmp(argv[1], "io_uring_setup") == 0 ? SYS_io_uring_setup : SYS_fallocate;
    unsigned refused = SECCOMP_RET_ERRNO | (unsigned)atoi(argv[2]);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, refused),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return CANNOT;
    execvp(argv[3], argv + 3);
    perror(argv[3]);
    return CANNOT;
}
