#!/bin/sh
# Trains what does not fit: under a limit of memory for all ranks together, with everything on the disk. ZERO3D_LONG: GPT-2 with 1.5 B
# parameters under 8 GiB.
skip() {
    echo "skipped: $*"
    exit 77
}
[ -z "${SANITIZE:-}" ] || skip "a sanitizer takes more memory than the model"
case $(stat -f -c %T "$1") in tmpfs | ramfs) skip "$1 is in memory" ;; esac
export TMPDIR="$1" # not in memory: what is there counts as this process's
. "$SOURCE/tests/cli/memory_cgroup.sh"
. "$SOURCE/tests/cli/lib.sh"
trap 'end=$?; leave_group; (exit $end); finish' EXIT
make_group || skip "this process may not make a memory cgroup"
export ZERO3D_GRACE_SECONDS=1
tiny
mkdir tier
OFFLOAD=zero_optimization.offload_optimizer
PARAM=zero_optimization.offload_param
optimizer="$OFFLOAD.device=nvme $OFFLOAD.nvme_path=tier"
disk="$optimizer $PARAM.device=nvme $PARAM.nvme_path=tier"
stage="zero_optimization.stage=3 train_batch_size=2 training.peak_tflops=0.1"

losses() {
    sed -n 's/.*"step": *\([0-9]*\),.*"loss": *\([^,]*\),.*"grad_norm": *\([^,]*\),.*/\1 \2 \3/p' "$1/metrics.jsonl"
}
train() { # train FOLDER ARGUMENT...
    folder=$1
    shift
    "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir="$folder" "$@"
}
same() { # same FOLDER OTHER: five losses, equal to the bit
    losses "$1" >"$1.losses"
    losses "$2" >"$2.losses"
    [ "$(wc -l <"$1.losses")" -eq 5 ] || fail "$1 has not five losses"
    cmp "$1.losses" "$2.losses" || fail "$1 and $2 have other losses"
}
# states ARGUMENT...: all becomes the bytes of parameters, gradients and optimizer states of both ranks.
states() {
    expect 0 "$ZERO3D" plan tiny.yaml --ranks 2 "$@"
    all=$(awk '/^  (parameters|gradients|optimizer) / { sum += $2 } END { printf "%.0f\n", 2 * sum }' out)
}
# Bytes in megabytes.
mega() {
    echo $(($1 / 1000000))
}

# shellcheck disable=SC2086 # lists of arguments
small() {
    model="$stage model.num_layers=24 model.hidden_size=384 training.gemm.fp32=sgemm"
    states $model
    limit=$((all / 3))
    expect 0 train without $model
    # What is outside of the plan counts: the plan alone would fit, and the kernel would kill the run.
    limit_memory 6291456
    expect 0 enter_group "$ZERO3D" plan tiny.yaml --ranks 1
    grep -q '^this machine: does not fit: rank 0 needs 25.6 MiB, but has [0-9.]* MiB (memory cgroup ' out || fail "a plan that fits without its rank"
    expect 1 enter_group "$ZERO3D" train tiny.yaml run.dir=refused
    says 'does not fit: rank 0 needs 25.6 MiB, but has .* 24.0 MiB are outside the plan \(libraries, heap, communication buffers\)'
    expect 0 "$ZERO3D" train tiny.yaml run.dir=saved checkpoint.interval=5
    expect 1 enter_group "$ZERO3D" generate saved/checkpoints --prompt a --tokens 2
    says 'generation takes 24.* MiB on this rank \(24.0 MiB of it outside the plan\), but [0-9.]* MiB are available'
    limit_memory $limit
    expect fail enter_group "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir=refused $model
    says 'does not fit: rank 0 needs .* but has .* \(memory cgroup .*zero3d-test.* is limited to .*\)'
    expect 0 enter_group "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir=limited $model $disk zero_optimization.sub_group_size=2e5 zero_optimization.stage3_prefetch_bucket_size=2e6 \
        checkpoint.interval=5
    same without limited
    "$ZERO3D" checkpoint verify limited/checkpoints >/dev/null 2>&1 || fail "the checkpoint is damaged"
    echo "$(mega $all) MB of states, limit $(mega $limit) MB, at most $(mega "$(peak_memory)") MB"
}

# A line of the end's table of resident memory, in bytes.
resident() {
    awk -v part="$1" 'index($0, "  " part "  ") == 1 {
        $0 = substr($0, 33)
        unit = $2 == "GiB" ? 2^30 : $2 == "MiB" ? 2^20 : $2 == "KiB" ? 2^10 : 1
        printf "%.0f\n", $1 * unit }' out
}

# The most memory is what was planned and what the end names, within 5 %. Both ranks have equal parts.
check_peak() {
    peak=$(peak_memory)
    [ -n "$peak" ] || return 0
    named=$((2 * $(resident total)))
    [ $((100 * peak)) -le $((105 * named)) ] || fail "$(mega "$peak") MB at most, but $(mega $named) MB are named"
    [ $((100 * peak)) -ge $((95 * named)) ] || fail "only $(mega "$peak") MB at most, but $(mega $named) MB are named"
}

# Gradients, parameters and optimizer states of 1.56 B parameters are 25 GB.
# shellcheck disable=SC2086 # lists of arguments
large() {
    model="$stage model.num_layers=48 model.hidden_size=1600 model.num_attention_heads=25 model.vocab_size=50257 model.seq_length=128
        bf16.enabled=true training.gemm.bf16=auto training.gemm.fp32=auto"
    pieces=zero_optimization.sub_group_size=1e7
    states $model
    free=$(($(df -Pk . | awk 'NR == 2 { print $4 }') * 1024))
    available=$(($(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo) * 1024))
    [ $free -gt $((all * 13 / 10)) ] || skip "1.5 B parameters: $(mega $((all * 13 / 10))) MB of disk are needed, $(mega $free) MB are free"
    [ $available -gt 10000000000 ] || skip "1.5 B parameters: the run to compare with takes up to 10 GB of memory"
    limit_memory 8589934592
    expect 0 enter_group "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir=limited $model $disk $pieces --verbose
    cat out
    check_peak
    echo "$(mega $all) MB of states, at most $(mega "$(peak_memory)") MB"
    # The same without the limit, with as much in memory as this machine has.
    [ $available -gt $((all * 12 / 10)) ] || model="$model $optimizer $pieces"
    expect 0 train without $model
    same without limited
}

small
[ -z "${ZERO3D_LONG:-}" ] || large
