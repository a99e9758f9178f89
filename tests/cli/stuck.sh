#!/bin/sh
# A rank that stands still is named with what it does, before the first step and between steps: rank 0 writes to a pipe that nobody reads.
. "$(dirname "$0")/lib.sh"
tiny
export ZERO3D_GRACE_SECONDS=1 # what mpirun waits after a failure, twice

stuck() { # stuck PATTERN [key=value]...: the run ends by itself and says who stands where
    pattern=$1
    shift
    expect fail timeout 60 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml training.watchdog_timeout=2 training.peak_tflops=1 "$@"
    grep -q "^zero3d: watchdog: rank 1 waits .* rank 0 is still in $pattern" err || fail "the report does not say: $pattern"
}

mkdir run
mkfifo run/metrics.jsonl
stuck "start-up: opening the run's files"

# A reader that opens the pipe and then sleeps: it is full after some steps.
sleep 60 <run/metrics.jsonl &
background=$!
stuck "step [0-9]*: writing metrics" training.steps=1000000 training.log_interval=1000000

# A disk that does not answer while a checkpoint is saved: rank 0's fsync of its shard.
cat >fsync.c <<END
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd) {
    char link[64], path[4096] = "";
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) > 0 && rank && !strcmp(rank, "0") && strstr(path, "/shard-"))
        for (;;) pause();
    return (int)syscall(SYS_fsync, fd);
}
END
"${CC:-cc}" -shared -fPIC -o fsync.so fsync.c || fail "cannot compile"
export LD_PRELOAD="$work/fsync.so" ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0"
stuck "checkpoint: writing shards" run.dir=saving checkpoint.interval=2
