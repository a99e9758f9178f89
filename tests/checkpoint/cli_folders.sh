#!/bin/sh
# Folders that checkpoints cannot be saved in: another job's, read-only ones, too small a disk.
. "$(dirname "$0")/../cli/lib.sh"
tiny

# The second job of a folder is refused while the first lives; one that died leaves no lock.
"$ZERO3D" train tiny.yaml run.dir=first training.steps=100000000 checkpoint.interval=1000000 checkpoint.dir=shared >/dev/null 2>&1 </dev/null &
background=$!
tries=0
until [ -s first/metrics.jsonl ]; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || fail "the first job does not begin"
    sleep 0.05
done
expect 1 "$ZERO3D" train tiny.yaml run.dir=second checkpoint.interval=2 checkpoint.dir=shared
says 'shared: another job is saving checkpoints there; set another checkpoint.dir'
kill -KILL $background
wait $background 2>/dev/null
background=""
expect 0 "$ZERO3D" train tiny.yaml run.dir=second checkpoint.interval=2 checkpoint.dir=shared

# A file.
echo x >file
for dir in file file/below; do
    expect 1 "$ZERO3D" train tiny.yaml run.dir=third checkpoint.interval=2 checkpoint.dir=$dir
    says "$dir is a file, or is inside one: expected a folder"
done

# A folder that may not be written: said before training. Permissions mean nothing to root, unless it gives that right up.
modest() { "$@"; }
if [ "$(id -u)" -eq 0 ]; then
    modest() { setpriv --bounding-set -dac_override,-dac_read_search --inh-caps -dac_override,-dac_read_search "$@"; }
fi
if modest true 2>/dev/null; then
    mkdir closed
    chmod 555 closed
    expect 1 modest "$ZERO3D" train tiny.yaml run.dir=third checkpoint.interval=2 checkpoint.dir=closed
    says 'closed/lock: cannot write there: Permission denied'
    expect 1 modest "$ZERO3D" train tiny.yaml run.dir=third checkpoint.interval=2 checkpoint.dir=closed/within
    says 'closed/within.*: Permission denied'
    [ ! -s third/metrics.jsonl ] || fail "it trained first"
fi

# Too small a disk: said before the save starts, and what was saved is still there.
small() { # small SIZE COMMAND...: the command sees a disk of that size at ./small
    size=$1
    shift
    # shellcheck disable=SC2016 # for the inner shell
    unshare --mount --map-root-user sh -c 'mount -t tmpfs -o size="$1" none small && shift && "$@"' sh "$size" "$@"
}
mkdir small
if small 1m true 2>/dev/null; then
    # shellcheck disable=SC2016
    expect 1 small 3m sh -c '"$1" train tiny.yaml run.dir=fourth training.steps=20 checkpoint.interval=1 checkpoint.keep=0 checkpoint.dir=small/here
        code=$?
        "$1" checkpoint verify small/here >verified 2>&1 || code=90
        ls small/here >left
        exit $code' sh "$ZERO3D"
    says 'checkpoint not saved: small/here: not enough space for a checkpoint: [0-9.]+ .iB needed \(at most [0-9.]+ .iB of shards, and [0-9.]+ .iB for the files that describe them\), [0-9.]+ .* free'
    grep -q '^step [0-9]*: intact, ' verified || fail "what was saved before is not intact"
    ! grep -q part left || fail "a save was begun"
else
    echo "no small disk: this user may not mount one"
fi
