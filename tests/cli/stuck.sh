#!/bin/sh
# Who stands still is named with what it does: ranks that others wait for, and disks that do not answer, where nobody waits for anybody.
. "$(dirname "$0")/lib.sh"
tiny
export ZERO3D_GRACE_SECONDS=1 # what mpirun waits after a failure, twice

# stuck_disk RANKS PATTERN [key=value]...: the run ends by itself and says what was asked of the disk, and where the rank was.
stuck_disk() {
    ranks=$1 pattern=$2
    shift 2
    set -- "$ZERO3D" train tiny.yaml "$@"
    [ "$ranks" = 1 ] || set -- "$LAUNCH" -n "$ranks" "$@"
    expect 1 timeout -k 1 30 "$@" # a run that stands still hears no SIGTERM
    grep -Eq "^zero3d: watchdog: rank ([01])'s disk has not answered for [0-9]+ s: $pattern" err || fail "the report does not say: $pattern"
}

mkdir run
mkfifo run/metrics.jsonl
stuck_disk 1 "opening run/metrics.jsonl \(in start-up: opening the run's files\)" training.watchdog_timeout=0.5

# A reader that opens the pipe and then sleeps: it is full after some steps.
sleep 60 <run/metrics.jsonl &
background=$!
stuck_disk 1 "writing run/metrics.jsonl \(in step [0-9]+: writing metrics\)" training.watchdog_timeout=0.5 training.steps=1000000 \
    training.log_interval=1000000

# A network disk without its server: a call on a file never returns. STUCK=CALL:PART OF ITS PATH. SLOW=1: it goes on, but not fast.
cat >stuck.c <<END
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static int here(const char *call, const char *path) {
    const char *stuck = getenv("STUCK");
    size_t length = strlen(call);
    return stuck && !strncmp(stuck, call, length) && stuck[length] == ':' && strstr(path, stuck + length + 1);
}
static void stand(const char *call, const char *path) {
    while (here(call, path)) pause();
}
static const char *path_of(int fd) {
    static _Thread_local char path[4096];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    return path;
}
int fsync(int fd) {
    stand("fsync", path_of(fd));
    return (int)syscall(SYS_fsync, fd);
}
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at) {
    if (getenv("SLOW") && here("pwrite", path_of(fd))) {
        usleep(100000);
        if (bytes > 40000) bytes = 40000;
    } else {
        stand("pwrite", path_of(fd));
    }
    return syscall(SYS_pwrite64, fd, data, bytes, at);
}
ssize_t pread(int fd, void *data, size_t bytes, off_t at) {
    stand("pread", path_of(fd));
    return syscall(SYS_pread64, fd, data, bytes, at);
}
int mkdir(const char *path, mode_t mode) {
    stand("mkdir", path);
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}
END
"${CC:-cc}" -shared -fPIC -o stuck.so stuck.c || fail "cannot compile"
export LD_PRELOAD="$work/stuck.so" ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0"
saved() { # saved RANKS PATTERN [key=value]...: of a run of its own
    rm -rf saving
    ranks=$1 pattern=$2
    shift 2
    stuck_disk "$ranks" "$pattern" run.dir=saving checkpoint.interval=2 "$@"
}
export STUCK=mkdir:saving/checkpoints
saved 1 "making folder saving/checkpoints \(in checkpoint: taking the folder\)" training.watchdog_timeout=0.5

# All ranks at once: the first line names who has waited longest, which may be either; each has its file in the report.
export STUCK=fsync:/shard-
saved 2 "checkpoint: fsync of saving/checkpoints/step-00000002/shard-0000\1.h5.part at byte ([0-9]*) of \2 \(in checkpoint: writing shards\)" \
    training.watchdog_timeout=2
for rank in 0 1; do
    grep -q "^zero3d:   ranks $rank: in checkpoint: writing shards ([0-9]* s); disk: checkpoint: fsync of .*/shard-0000$rank.h5.part" err ||
        fail "the report does not name rank $rank's file"
done

# Beside training, which goes on.
export STUCK=pwrite:/shard-
saved 1 "checkpoint: writing saving/checkpoints/step-00000020/shard-00000.h5.part at byte 0 of [0-9]+ \(in " checkpoint.interval=20 \
    training.watchdog_timeout=0.5 checkpoint.async=true training.steps=1000000 training.log_interval=1000000
last=$(tail -n 1 saving/metrics.jsonl | sed 's/{"step":\([0-9]*\).*/\1/')
[ "$last" -gt 30 ] || fail "training did not go on beside the save: step $last"

# A save that is slow, but gets further, takes longer than the watchdog's time, and is none. What it saved cannot be read.
rm -rf saving
SLOW=1 expect 0 timeout 60 "$ZERO3D" train tiny.yaml run.dir=saving checkpoint.interval=5 training.watchdog_timeout=0.5
seconds=$(sed -n 's/.*checkpoint of step 5 saved in \([0-9.]*\) s.*/\1/p' out err)
[ "${seconds%.*}" -ge 1 ] || fail "the slow save took ${seconds:-?} s, too little to show anything"
STUCK=pread:/shard-00000.h5 stuck_disk 1 "checkpoint: reading shard-00000.h5 at byte [0-9]+ \(in checkpoint: reading\)" \
    training.watchdog_timeout=0.5 run.dir=saving checkpoint.interval=5 training.steps=10
