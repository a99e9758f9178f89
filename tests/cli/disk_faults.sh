#!/bin/sh
# A disk that fails in the middle of a run on one and on two ranks: one line, all ranks end, nothing stays in the folder, and the run goes on
# from its last checkpoint when the disk is well again. Then the folder itself. (Faults of a whole file system: disk_breaks.sh.)
# ZERO3D_LONG: every fault of the file on one rank, too.
export TMPDIR="$1" # a disk, not memory
. "$SOURCE/tests/cli/lib.sh"
. "$SOURCE/tests/cli/disk_run.sh"

# ---- one rank's file: the last rank's ----

cut() {
    : >"$(unnamed_file)"
}
change() {
    file=$(unnamed_file)
    bytes=$(stat -L -c %s "$file")
    dd if=/dev/urandom of="$file" bs=4096 count=$((bytes / 4096)) conv=notrunc 2>/dev/null
}
# What lies after three quarters cannot be written, in a checkpoint's shard neither.
stop_growth() {
    bytes=$(stat -L -c %s "$(unnamed_file)")
    prlimit --pid "$victim" --fsize=$((bytes * 3 / 16384 * 4096))
}
where='(step [0-9]+, .*|checkpoint not saved: .*)' # a step's disk or a save's, whichever comes first
for ranks in 1 2; do
    broken_by cut "$where/tier: (the unnamed file ends at byte [0-9]+ of|4096 bytes at byte [0-9]+ of the unnamed file are not what was written)"
    [ $ranks -eq 2 ] || [ -n "${ZERO3D_LONG:-}" ] || continue
    broken_by change "$where/tier: 4096 bytes at byte [0-9]+ of the unnamed file are not what was written there"
    [ -z "$(command -v prlimit)" ] ||
        broken_by stop_growth "($where/tier: cannot write [0-9]+ bytes at byte [0-9]+ of the unnamed file|checkpoint not saved: .*shard-[0-9]+.h5): File too large"
done

# ---- the folder ----

# A rank that is killed leaves nothing; a folder that is removed while the run has its file in it is not missed before the next start.
kill_victim() {
    kill -KILL "$victim"
}
remove_folder() {
    rmdir tier
    steps=$(wc -l <run/metrics.jsonl)
    until_more_than $((steps + 3))
    kill -USR1 "$pid"
}
ranks=2
broken_by kill_victim 'rank [01] .*died'
begin
remove_folder
ended
[ $code -eq 75 ] || fail "a run whose folder was removed ended with exit code $code"
expect fail resume
says 'offload to nvme_path: .*/tier: cannot create a file in this folder: No such file or directory'
mkdir tier
expect 75 resume

# Two runs have two files in one folder.
begin
other=$work/other
run_to_end() { # run_to_end FOLDER ARGUMENT...: five steps
    folder=$1
    shift
    # shellcheck disable=SC2086 # a list of arguments
    expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir="$folder" $stage "$@"
}
# shellcheck disable=SC2086
run_to_end "$other" $disk
run_to_end "$other-alone"
losses "$other" >one
losses "$other-alone" | cmp - one || fail "two runs in one folder disturb each other"
kill -USR1 "$pid"
ended
[ $code -eq 75 ] || fail "the first of two runs in one folder ended with exit code $code"

# What a folder in memory is, and a system without io_uring: said, and trained with.
if [ -w /dev/shm ] && [ "$(stat -f -c %T /dev/shm)" = tmpfs ]; then
    memory=$(mktemp -d /dev/shm/zero3d-test.XXXXXX)
    # shellcheck disable=SC2086
    run_to_end "$work/memory" $disk $OFFLOAD.nvme_path="$memory" $PARAM.nvme_path="$memory"
    rmdir "$memory" || fail "something is left in memory"
    grep -q "^zero3d: $memory is read and written with .*buffered (tmpfs: in memory)" err || fail "nothing says that this is no disk"
    losses memory | cmp - one || fail "other losses in memory"
fi
# shellcheck disable=SC2086
"$FORBID" io_uring_setup 1 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir="$work/threads" $stage $disk >out 2>err
code=$?
if [ $code -ne 77 ]; then
    [ $code -eq 0 ] || fail "without io_uring: exit code $code"
    grep -Eq '^zero3d: .*/tier is read and written with [0-9]+ threads \(io_uring: Operation not permitted\)' err || fail "nothing says that io_uring is forbidden"
    losses threads | cmp - one || fail "other losses without io_uring"
fi
