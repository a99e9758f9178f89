/* Memory shared by the processes of one node. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "parallel/interface/internal.h"

static void *map_shared(int fd, size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* Names of files in FOLDER: OURS, the id of the process that made it, '-' and a random number. */
#define OURS "zero3d-"
#define FOLDER "/dev/shm"

/* A process that is killed between create_named and shm_unlink leaves its file. This removes files
 * older than a minute whose process no longer exists. (A living process in another container may
 * look dead from here; but within a minute all its ranks have opened the file, and the name is not
 * needed any more.) */
void z3d_shared_remove_dead(void) {
    enum { OLD = 60 };
    DIR *names = opendir(FOLDER);
    for (struct dirent *e; names && (e = readdir(names));) {
        char *end;
        struct stat at;
        const int here = dirfd(names);
        if (strncmp(e->d_name, OURS, strlen(OURS)) != 0) continue;
        long process = strtol(e->d_name + strlen(OURS), &end, 10);
        if (*end != '-' || process < 1 || kill((pid_t)process, 0) == 0 || errno != ESRCH) continue;
        if (fstatat(here, e->d_name, &at, AT_SYMLINK_NOFOLLOW) != 0 || at.st_uid != geteuid())
            continue;
        if (time(NULL) - at.st_mtime > OLD) unlinkat(here, e->d_name, 0);
    }
    if (names) closedir(names);
}

/* Reserves the space now: on a full /dev/shm the first write would raise SIGBUS. */
static void *create_named(char *name, size_t name_size, size_t bytes) {
    uint64_t random = 0;
    ssize_t got = getrandom(&random, sizeof random, GRND_NONBLOCK);
    snprintf(name, name_size, "/" OURS "%d-%016llx", (int)getpid(),
             (unsigned long long)(got == sizeof random ? random : 0));
    int fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    void *at = NULL;
    if (fd >= 0 && posix_fallocate(fd, 0, (off_t)bytes) == 0) at = map_shared(fd, bytes);
    if (fd >= 0) close(fd);
    if (fd >= 0 && !at) shm_unlink(name);
    if (!at) name[0] = '\0';
    return at;
}

static void *open_named(const char *name, size_t bytes) {
    int fd = name[0] ? shm_open(name, O_RDWR | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return NULL;
    void *at = map_shared(fd, bytes);
    close(fd);
    return at;
}

z3d_status z3d_shared_create(z3d_channel *channel, size_t bytes, void **out) {
    char name[64] = "";
    bool first = channel->index == 0;
    *out = NULL;
    void *at = first ? create_named(name, sizeof name, bytes) : NULL;
    z3d_status status = z3d_channel_broadcast(channel, name, sizeof name, 0);
    if (status == Z3D_OK && !first) at = open_named(name, bytes);
    int all = at != NULL;
    if (status == Z3D_OK) status = z3d_channel_min(channel, &all);
    /* All members have opened it, or never will: without its name the memory ends with them. */
    if (first && at) shm_unlink(name);
    if (status == Z3D_OK && all)
        *out = at;
    else
        z3d_shared_destroy(at, bytes);
    return status;
}

void z3d_shared_destroy(void *at, size_t bytes) {
    if (at) munmap(at, bytes);
}
