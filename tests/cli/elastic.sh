#!/bin/sh
# parallel.elastic: a run that goes on with fewer ranks, and with more again, keeps its global batch and its data order: its losses are those
# of an undisturbed run.
. "$(dirname "$0")/lib.sh"
tiny
export ZERO3D_GRACE_SECONDS=1 # what mpirun waits after a failure, twice
run() { # run RANKS ARGUMENT...: written for four ranks
    ranks=$1
    shift
    set -- "$ZERO3D" train tiny.yaml train_micro_batch_size_per_gpu=2 gradient_accumulation_steps=1 parallel.world_size=4 checkpoint.interval=4 "$@"
    [ "$ranks" -eq 1 ] || set -- "$LAUNCH" -n "$ranks" "$@"
    "$@" >out 2>err </dev/null
}
losses() { sed -n 's/^{"step":\([0-9]*\),"loss":\([0-9.]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }

run 4 run.dir=alone training.steps=12 || fail "the undisturbed run"
steps=0
for ranks in 2 4 1; do
    steps=$((steps + 4))
    run $ranks training.steps=$steps parallel.elastic=true || fail "on $ranks ranks"
    grep -q "^batch  *8 samples per step = 2 per rank x $((4 / ranks)) micro-batch" out || fail "another batch on $ranks ranks"
    [ $steps -eq 4 ] || grep -q "resuming after step $((steps - 4)) of" err || fail "not resumed on $ranks ranks"
done
losses alone >wanted
losses run >got
[ "$(wc -l <got)" -eq 12 ] || fail "steps are missing"
paste wanted got | awk '{ d = $2 / $4 - 1 } $1 != $3 || d > 1e-5 || d < -1e-5 { bad = 1; print } END { exit bad }' >out || fail "other losses"

# What it saved needs no batch.
for ranks in 1 2; do
    set -- "$ZERO3D" evaluate run/checkpoints train.bin
    [ $ranks -eq 1 ] || set -- "$LAUNCH" -n $ranks "$@"
    expect 0 "$@"
done
expect 0 "$ZERO3D" generate run/checkpoints --prompt The --tokens 2

# A micro-batch that does not divide becomes smaller; the file of the resolved configuration starts any number of ranks, too.
run 2 run.dir=three training.steps=1 parallel.elastic=true train_micro_batch_size_per_gpu=3 || fail "a micro-batch of 3"
grep -q '= 2 per rank x 2 micro-batches' out || fail "not the largest micro-batch that divides"
expect 0 "$ZERO3D" train three/config.yaml run.dir=four

export ZERO3D_LAUNCH=tcp # a failure over MPI takes seconds
run 3 run.dir=bad parallel.elastic=true
says 'train_batch_size: .*8 is not a multiple of 3 samples \(3 data ranks\), and parallel.elastic=true keeps this batch; start 2 ranks$'
run 2 run.dir=bad
says 'asks for 4 ranks'
expect 1 "$ZERO3D" train tiny.yaml run.dir=bad parallel.elastic=true
says 'parallel.elastic=true: true needs train_batch_size, which stays'
