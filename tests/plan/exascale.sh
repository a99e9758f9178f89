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

# One node prints no failures; a checkpoint that takes longer than the run lives leaves no goodput.
run 0 configs/gpt2-124m.yaml --ranks 8 --hardware dgx-h100 --tokens 1B
! grep -q '^failures' "$work/out" || fail "failures of one node"
run 0 configs/gpt2-124m.yaml train_batch_size=64 --ranks 16 --hardware dgx-h100 --tokens 1B
shows '^failures \(predicted\)$'
sed 's/disk_write_gb_per_s: .*/disk_write_gb_per_s: 0.0005/' configs/hardware/dgx-h100.yaml >"$work/slow.yaml"
# shellcheck disable=SC2086
run 0 $million --hardware "$work/slow.yaml"
shows '^  no goodput: a checkpoint takes .*, and a run on 131072 nodes of DGX H100.* fails every 2 min 54 s: .*checkpoint.async=true'
# shellcheck disable=SC2086
run 0 $million --hardware "$work/slow.yaml" checkpoint.async=true
shows '^  no goodput: a checkpoint takes .*: too little time is left to train between failures; use fewer nodes'
# shellcheck disable=SC2086
run 0 $million --hardware "$work/slow.yaml" --json
shows '"goodput": null'
# A plan that does not fit has no bill.
run 0 configs/turing-nlg-17b.yaml parallel.world_size=16 --hardware dgx-h100 --tokens 1B parallel.tensor_model_parallel_size=1 train_batch_size=128 zero_optimization.stage=0
shows "^time and price of the tokens are not shown: the plan does not fit$"
sed 's/mtbf_hours: .*/mtbf_hours: -1/' configs/hardware/dgx-h100.yaml >"$work/wrong.yaml"
run 1 configs/gpt2-124m.yaml train_batch_size=64 --ranks 16 --hardware "$work/wrong.yaml" --tokens 1B
grep -q "wrong.yaml:[0-9]*:[0-9]*: node.mtbf_hours: '-1' is not a number from 0 to " "$work/err" || fail "a time below 0 is no error"

# On many ranks no large group travels with its small neighbours: copies would cost more than a message saves.
run 0 configs/gpt2-124m.yaml model.hidden_size=4096 model.num_attention_heads=32 model.num_layers=2 zero_optimization.stage=3 bf16.enabled=true lora.r=16 train_batch_size=1024 train_micro_batch_size_per_gpu=1 \
    --ranks 1024 --print-program
grep -q ' joined, ' "$work/out" && grep ' joined, ' "$work/out" | grep -Eq '[0-9]{2,} MiB| GiB' && fail "a large group travels with its neighbours"
true
