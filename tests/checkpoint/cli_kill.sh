#!/bin/sh
# Ranks are killed (SIGKILL: one of them, or all with their launcher) at arbitrary moments of a run that saves at every step; it is
# started again each time. The run as a whole must be one that was never killed. ZERO3D_LONG: 200 times.
. "$(dirname "$0")/../cli/lib.sh"
tiny
export ZERO3D_GRACE_SECONDS=1 # what mpirun waits after a rank's death, twice
kills=2
[ -z "${ZERO3D_LONG:-}" ] || kills=200
steps=$((kills * 6))
facts() { sed -E 's/,"(seconds|time|tokens_per_second|model_tflops|mfu|hfu|exposed_comm_seconds|exposed_transfer_seconds|comm_bytes)":[^,}]*//g; s/,"memory":\{[^}]*\}//' "$1/metrics.jsonl"; }
run() { # run FOLDER more...
    folder=$1
    shift
    "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir="$work/$folder" training.steps=$steps checkpoint.interval=1 checkpoint.keep=2 \
        model.hidden_dropout=0.1 zero_optimization.stage=2 bf16.enabled=true training.gemm.fp32=auto training.gemm.bf16=sgemm "$@"
}
# What was said to be saved is a checkpoint: the last such line of `out`, its step or a later one, is on the disk.
expect_said_is_saved() {
    said=$(sed -n 's/^checkpoint of step \([0-9]*\) saved.*/\1/p' out | tail -n 1)
    [ -z "$said" ] || [ "$(newest | sed 's/step-0*//')" -ge "$said" ] || fail "step $said was said to be saved, the newest is $(newest)"
}
newest() { ls killed/checkpoints 2>/dev/null | while read -r f; do [ -e "killed/checkpoints/$f/manifest.json" ] && echo "$f"; done | tail -n 1; }

expect 0 run whole

i=0
while [ $i -lt "$kills" ]; do
    before=$(newest)
    async=false
    [ $((i % 3)) -eq 1 ] && async=true
    run killed checkpoint.async=$async >out 2>err </dev/null &
    pid=$!
    background=$pid
    # Until it has saved anew, then a little longer: another moment every time.
    tries=0
    while [ "$(newest)" = "$before" ] && kill -0 $pid 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "the run does not save"
        sleep 0.05
    done
    sleep "0.0$((i * 37 % 10))$((i * 53 % 10))"
    last=$(newest)
    ranks=$(ps -e -o pid= -o args= | grep -F "run.dir=$work/killed" | grep -v -e mpirun -e grep | awk '{print $1}')
    if [ $((i % 2)) -eq 0 ]; then
        # shellcheck disable=SC2086 # a list of process ids
        kill -KILL $ranks $pid 2>/dev/null
    else
        kill -KILL "$(echo "$ranks" | tail -n 1)" 2>/dev/null
    fi
    wait $pid
    background=""
    tries=0
    while ps -e -o args= | grep -F "run.dir=$work/killed" | grep -v grep | grep -q 'zero3d train'; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || fail "a rank is left"
        sleep 0.1
    done
    expect_said_is_saved
    [ -z "$last" ] || [ -e "killed/checkpoints/$last/manifest.json" ] || [ "$(newest)" \> "$last" ] || fail "a committed checkpoint is gone: $last"
    i=$((i + 1))
done
mkdir -p killed/checkpoints/step-99999999
echo x >killed/checkpoints/step-99999999/shard-00000.h5.part
expect 0 run killed
expect_said_is_saved
grep -q 'step-99999999: removed, because it is incomplete' err || fail "does not say what it removes"
[ ! -e killed/checkpoints/step-99999999 ] || fail "the remains of a save are left"
! ls killed/checkpoints | grep damaged || fail "a committed checkpoint is damaged"
facts whole >a.facts
facts killed >b.facts
cmp -s a.facts b.facts || {
    diff a.facts b.facts | head -n 6
    fail "the killed run is another"
}
