#!/bin/sh
# `zero3d prove`: exit codes, what it names, what it refuses; and that a run does what was proved.
. "$(dirname "$0")/lib.sh"

tiny
sed 's/^train_batch_size/zero_optimization: { stage: 3, overlap_comm: false }\n&/' tiny.yaml >three.yaml
sed 's/lr: 1e-3/lr: 2e-3/' tiny.yaml >fast.yaml
expect 0 "$ZERO3D" prove tiny.yaml three.yaml --ranks 2
grep -q '^A: tiny.yaml: 2 ranks (tensor 1 x data 2), ZeRO-2, 1 micro-batch of 8 samples, fp32$' out || fail "what A is"
grep -q '^equal to the bit: losses, gradient norms and parameters of every step' out || fail "equal"
expect 1 "$ZERO3D" prove tiny.yaml fast.yaml --ranks 2
grep -A 2 '^  optimizer.params.lr$' out | grep -q 'B: 0.002' || fail "the rate is not named"
[ ! -s err ] || fail "a difference is no error"
# What is over both files; ranks of each.
expect 0 "$ZERO3D" prove tiny.yaml fast.yaml optimizer.params.lr=1e-2
expect 1 "$ZERO3D" prove tiny.yaml tiny.yaml --ranks 2,1
grep -q '^A: tiny.yaml: 2 ranks' out && grep -q '^B: tiny.yaml: 1 rank ' out || fail "ranks of each"
grep -q '^not equal' out || fail "other shares of samples"
# A table says what auto is; what is measured may be another method in each run.
expect 0 "$ZERO3D" prove tiny.yaml three.yaml training.gemm.fp32=auto
expect 1 "$ZERO3D" prove tiny.yaml three.yaml training.gemm.fp32=measured
grep -q '^not proved' out && grep -q 'training.gemm is measured' out || fail "an open choice"

# The proof holds: also of the configurations that runs leave.
for name in tiny three; do
    expect 0 "$LAUNCH" -n 2 "$ZERO3D" train $name.yaml run.dir=$name
    grep -o '"loss":[^,]*,\|"grad_norm":[^,]*,' $name/metrics.jsonl >$name.numbers
done
[ "$(wc -l <tiny.numbers)" -ge 10 ] || fail "no losses"
cmp tiny.numbers three.numbers || fail "the runs differ"
expect 0 "$ZERO3D" prove tiny/config.yaml three/config.yaml

expect 2 "$ZERO3D" prove tiny.yaml
says 'expected two configuration files'
expect 2 "$ZERO3D" prove tiny.yaml key=value
says 'expected two configuration files'
for ranks in 0 2, 1,2,3 x 2,-1; do
    expect 2 "$ZERO3D" prove tiny.yaml three.yaml --ranks $ranks
    says "--ranks $ranks: expected one or two whole numbers"
done
expect 1 "$ZERO3D" prove tiny.yaml nowhere.yaml
says 'nowhere.yaml'
expect 1 "$ZERO3D" prove tiny.yaml three.yaml --ranks 2,3
says 'three.yaml:.*train_batch_size'
echo 'model: { num_layers: x }' >wrong.yaml
expect 1 "$ZERO3D" prove tiny.yaml wrong.yaml
says 'wrong.yaml:1:.*model.num_layers'
