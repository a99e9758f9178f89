#!/bin/sh
# `zero3d digest`: finds the first instruction in which two runs differ.
. "$(dirname "$0")/lib.sh"

printf '1 0 forward a 11\n1 1 backward a 22\n' >a
printf '1 0 forward a 11\n1 1 backward a 23\n1 2 more 4\n' >b
head -n 1 a >c
: >empty
expect 0 "$ZERO3D" digest a a
grep -q '2 instructions' out || fail "equal files"
expect 1 "$ZERO3D" digest a b
grep -q 'line 2' out && grep -q 'backward a 22' out && grep -q 'backward a 23' out || fail "first difference"
expect 1 "$ZERO3D" digest a c
grep -q 'ends here' out || fail "shorter file"
expect 1 "$ZERO3D" digest empty empty
says 'empty'
expect 1 "$ZERO3D" digest a nowhere
says 'nowhere'

# Real runs: the same twice, then with another learning rate, which parts them at the first optimizer step and not before.
tiny
for run in one two; do
    expect 0 "$ZERO3D" train tiny.yaml run.dir=$run training.steps=2 bf16.enabled=true training.gemm.fp32=auto training.gemm.bf16=sgemm --digest
done
expect 0 "$ZERO3D" train tiny.yaml run.dir=three training.steps=2 optimizer.params.lr=2e-3 bf16.enabled=true training.gemm.fp32=auto training.gemm.bf16=sgemm --digest
grep -q '^exposed' out && fail "one rank communicates nothing"
expect 0 "$ZERO3D" report three
grep -q 'exposed' out && fail "one rank's report has communication"
expect 0 "$ZERO3D" digest one/digest-rank0.txt two/digest-rank0.txt
# Checkpoints that went to host memory come back with the same bytes.
for run in four five; do
    expect 0 "$ZERO3D" train tiny.yaml run.dir=$run training.steps=2 activation_checkpointing.cpu_checkpointing=true --digest --trace
    [ "$(head -n 1 $run/trace-rank0.json)$(tail -n 1 $run/trace-rank0.json)" = '[{}]' ] || fail "the timeline is not whole"
    grep -q '"name":"backward head (micro 0)"' $run/trace-rank0.json || fail "no backward in the timeline"
    grep -Eq '^exposed  host transfers [0-9.]+ % of the steps. time$' out || fail "the summary does not say what was exposed"
    grep -q '"exposed_transfer_seconds":[0-9.e-]*[1-9]' $run/metrics.jsonl || fail "no exposed transfers in the metrics"
done
expect 0 "$ZERO3D" digest four/digest-rank0.txt five/digest-rank0.txt
grep -q ' load_input' four/digest-rank0.txt || fail "no digest of what came back"
expect 1 "$ZERO3D" digest one/digest-rank0.txt three/digest-rank0.txt
grep -q 'optimizer_step' out || fail "another learning rate shows first in the optimizer step"

# A sum over the tensor group has a digest, too.
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir=sums training.steps=1 parallel.tensor_model_parallel_size=2 \
    parallel.sequence_parallel=true --digest
grep -q 'wait sum_replicated ln_f' sums/digest-rank1.txt || fail "no digest of a sum over the tensor group"
