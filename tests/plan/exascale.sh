#!/bin/sh
# `zero3d plan --tokens` on several nodes: failures, the checkpoint interval, goodput; a million ranks in 1 GiB; what the page shows is what
# is printed.
. "$SOURCE/tests/cli/lib.sh"
cd "$SOURCE" || exit 1 # the page's commands name configs; nothing is written here
shows() {
    grep -Eq -- "$1" "$work/out" || fail "the output does not show: $1"
}
run() { # run CODE ARGUMENT...: as expect, with its files in the folder of this test
    wanted=$1
    shift
    "$ZERO3D" plan "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    [ $code -eq "$wanted" ] || {
        cat "$work/err"
        fail "exit code $code, expected $wanted: $*"
    }
}

# The page's commands print the page's lines.
for section in 'A trillion parameters' 'Turing-NLG'; do
    command=$(readme sh "$section" docs/exascale.md | grep '^zero3d plan ')
    readme text "$section" docs/exascale.md >"$work/page"
    [ "$(wc -l <"$work/page")" -gt 5 ] || fail "no output of $section in the page"
    # shellcheck disable=SC2086 # words
    run 0 ${command#zero3d plan }
    while IFS= read -r line; do
        grep -Fxq -- "$line" "$work/out" || fail "the page shows what is not printed: $line"
    done <"$work/page"
done
shows '^  between failures of the run  not known .*node.mtbf_hours'

# A million ranks; a sanitizer's own memory is larger than the bound.
million="configs/trillion.yaml parallel.world_size=1048576 train_batch_size=262144 --tokens 20T"
[ -n "${SANITIZE:-}" ] || ulimit -v 1048576
# shellcheck disable=SC2086
run 0 $million --hardware dgx-h100 --json
shows '"ranks": 1048576, .*"failures": \{"mtbf_seconds": 17[0-9.]+, "launch_seconds": 300, .*"checkpoint_interval": [1-9][0-9]*, "failures": [0-9.e+]+, "goodput": 0\.[0-9]+, "train_seconds": [0-9.e+]+\}\}$'

# One node prints no failures; a checkpoint that takes longer than the run lives is refused.
run 0 configs/gpt2-124m.yaml --ranks 8 --hardware dgx-h100 --tokens 1B
! grep -q '^failures' "$work/out" || fail "failures of one node"
run 0 configs/gpt2-124m.yaml train_batch_size=64 --ranks 16 --hardware dgx-h100 --tokens 1B
shows '^failures \(predicted\)$'
sed 's/disk_write_gb_per_s: .*/disk_write_gb_per_s: 0.0005/' configs/hardware/dgx-h100.yaml >"$work/slow.yaml"
# shellcheck disable=SC2086
for form in '' --json; do
    run 1 $million --hardware "$work/slow.yaml" $form
    grep -q '^zero3d: error: a checkpoint takes .*, and a run on 131072 nodes of DGX H100.* fails every 2 min 54 s: .*checkpoint.async=true' "$work/err" ||
        fail "nothing says that checkpoints take too long"
done
sed 's/mtbf_hours: .*/mtbf_hours: -1/' configs/hardware/dgx-h100.yaml >"$work/wrong.yaml"
run 1 configs/gpt2-124m.yaml train_batch_size=64 --ranks 16 --hardware "$work/wrong.yaml" --tokens 1B
grep -q "wrong.yaml:[0-9]*:[0-9]*: node.mtbf_hours: '-1' is not a number from 0 to " "$work/err" || fail "a time below 0 is no error"
