#!/bin/sh
# File systems that fail: one that breaks in the middle of a run, one that is full before it begins, and one that another program fills. In
# mounts of its own.
if [ -z "${INSIDE:-}" ]; then
    INSIDE=1 unshare --mount --propagation private true 2>/dev/null || {
        echo "skipped: this process may not mount"
        exit 77
    }
    INSIDE=1 exec unshare --mount --propagation private "$0" "$@"
fi
export TMPDIR="$1"
. "$SOURCE/tests/cli/lib.sh"
. "$SOURCE/tests/cli/disk_run.sh"
trap 'end=$?; umount -l "$work/tier" "$work/under" 2>/dev/null; (exit $end); finish' EXIT
mkdir under

# A disk in a file, which is cut: errors, and where the system makes up zeros, blocks that nobody wrote.
mount_image() {
    mount -t tmpfs -o size=24m none under && truncate -s 48M under/image &&
        mkfs.ext4 -q -O ^has_journal under/image >/dev/null 2>&1 && mount -o loop under/image tier 2>/dev/null
}
cut_image() {
    truncate -s 64K under/image
}
broken_file_system() { # broken_file_system COMMAND: breaks it; afterwards another one is there
    begin
    "$1"
    ended
    check_broken "$1" "$where/tier: (cannot (read|write) [0-9]+ bytes at byte [0-9]+ of the unnamed file: Input/output error|4096 bytes at byte [0-9]+ of the unnamed file are not what was written)"
    umount -l tier
    umount -l under
    expect 75 resume
    grep -q 'resuming after step [0-9]*0 of' err || fail "$1 on $ranks ranks: the run does not go on from its checkpoint"
}
where='(step [0-9]+, .*|checkpoint not saved: .*)'
for ranks in 1 2; do
    mount_image || { echo "skipped: no disk in a file can be mounted" && exit 77; }
    broken_file_system cut_image
done

# Less space than the file needs: refused with both numbers, before anything is saved.
mount -t tmpfs -o size=256k none tier || fail "no tmpfs"
# shellcheck disable=SC2086 # lists of arguments
expect fail "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir="$work/small" $stage $disk $long
says 'offload to nvme_path: .*/tier: a file of [0-9]+ KiB is needed here, but only [0-9]+ KiB are free'
[ -z "$(ls small/checkpoints 2>/dev/null)" ] || fail "a refused run saved something"
umount tier

# Where space cannot be reserved each of two ranks finds enough, but together they do not: gradients, which are written last, have none.
mount -t tmpfs -o size=800k none tier || fail "no tmpfs"
if "$FORBID" fallocate 95 true; then
    # shellcheck disable=SC2086
    "$FORBID" fallocate 95 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir="$work/run" $stage $disk $long >out 2>err </dev/null
    code=$?
    sed -i '/^zero3d: .* \(is read and written with\|kept the files of\) /d; /^zero3d: resuming /d' err # the start's lines
    check_broken "a full disk" 'step [0-9]+, .*/tier: cannot write [0-9]+ bytes at byte [0-9]+ of the unnamed file: No space left on device'
fi
umount tier
expect 75 resume
