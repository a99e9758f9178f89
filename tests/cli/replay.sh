#!/bin/sh
# `zero3d train --record-rank` and `zero3d replay`: one rank of several runs again, alone, to the bit. ZERO3D_LONG: of more runs.
. "$(dirname "$0")/lib.sh"
tiny

# replayed NAME RANKS RANK KEY...: records steps 3 and 4 of a run and plays them.
replayed() {
    name=$1 ranks=$2 rank=$3
    shift 3
    expect 0 "$LAUNCH" -n "$ranks" "$ZERO3D" train tiny.yaml run.dir="$name" "$@" --record-rank "$rank" --steps 3:4
    expect 0 "$ZERO3D" replay "$name/replay-rank$rank.z3d"
    grep -q "rank $rank of $ranks, steps 3 to 4" out || fail "$name: what was replayed"
    grep -Eq '^equal: [1-9][0-9]+ instructions, 2 whole steps; loss ' out || fail "$name: not equal"
    # The last step's loss and norm are those of the run, digit by digit.
    loss=$(sed -n 's/.*loss \([^,]*\), .*/\1/p' out)
    norm=$(sed -n 's/.*norm \(.*\)/\1/p' out)
    /usr/bin/python3 - "$name/metrics.jsonl" "$loss" "$norm" <<'END' || fail "$name: loss or norm of step 4"
import json, sys
line = [l for l in map(json.loads, open(sys.argv[1])) if l.get("step") == 4 and "grad_norm" in l][0]
assert (line["loss"], line["grad_norm"]) == (float(sys.argv[2]), float(sys.argv[3])), line
END
}

stages="0 3"
[ -z "${ZERO3D_LONG:-}" ] || stages="0 1 2 3"
for stage in $stages; do
    replayed stage$stage 4 $stage zero_optimization.stage=$stage parallel.tensor_model_parallel_size=2 gradient_accumulation_steps=2 \
        model.attention_dropout=0.1 bf16.enabled=true training.gemm.bf16=sgemm communication_data_type=bf16
done
[ -z "${ZERO3D_LONG:-}" ] || replayed last 2 1 parallel.pipeline_model_parallel_size=2 gradient_accumulation_steps=2
replayed first 2 0 parallel.pipeline_model_parallel_size=2 gradient_accumulation_steps=2 zero_optimization.stage=2 optimizer.type=Lion \
    "optimizer.param_groups=*bias lr_scale=0.5"
# Step 3 is skipped: the loss scale is state, too.
replayed fp16 2 1 zero_optimization.stage=1 fp16.enabled=true fp16.initial_scale_power=20 fp16.hysteresis=1 training.gemm.fp16=sgemm training.gemm.fp32=auto
[ -z "${ZERO3D_LONG:-}" ] ||
    replayed fp16-sharded 2 1 zero_optimization.stage=3 fp16.enabled=true fp16.initial_scale_power=20 fp16.hysteresis=1 training.gemm.fp16=sgemm training.gemm.fp32=auto
expect 1 "$ZERO3D" train tiny.yaml run.dir=skipped fp16.enabled=true fp16.initial_scale_power=40 training.gemm.fp16=sgemm \
    --record-rank 0 --steps 1:2
grep -q 'steps 1 to 2 of rank 0 will be recorded' err || fail "what will be recorded"
expect 0 "$ZERO3D" replay skipped/replay-rank0.z3d
grep -Eq '^equal: .*, 2 whole steps; loss [^,]*, skipped: overflow$' out || fail "a skipped step"
[ -z "${ZERO3D_LONG:-}" ] ||
    replayed host 2 1 zero_optimization.stage=2 zero_optimization.offload_optimizer.device=cpu bf16.enabled=true training.gemm.bf16=sgemm
# The gradients that wait are state, too; these are in host memory.
replayed late 2 1 zero_optimization.stage=2 bf16.enabled=true training.gemm.bf16=sgemm zero_optimization.offload_optimizer.device=cpu \
    zero_optimization.offload_optimizer.delayed_param_update=true
mkdir ssd
replayed nvme 2 1 zero_optimization.stage=3 zero_optimization.offload_optimizer.device=nvme zero_optimization.offload_optimizer.nvme_path="$PWD/ssd" \
    zero_optimization.offload_param.device=nvme zero_optimization.offload_param.nvme_path="$PWD/ssd"
# On another machine the disk is elsewhere.
mv ssd elsewhere
expect 1 "$ZERO3D" replay nvme/replay-rank1.z3d
says 'ssd'
expect 0 "$ZERO3D" replay nvme/replay-rank1.z3d zero_optimization.offload_optimizer.nvme_path="$PWD/elsewhere" \
    zero_optimization.offload_param.nvme_path="$PWD/elsewhere"

# Stops at an instruction.
file=stage3/replay-rank3.z3d
expect 0 "$ZERO3D" replay $file --until "backward block.1"
grep -Eq '^step 3, entry [0-9]+: backward block.1 \(micro 0\)$' out || fail "where it stops"
grep -Eq '^  full gradients block.1 m0 +written .* fp32 ' out || fail "no gradients"
grep -q ', 0 whole steps$' out || fail "it did not stop"
entry=$(sed -n 's/^step 3, entry \([0-9]*\):.*/\1/p' out)
cp out by_name
expect 0 "$ZERO3D" replay $file --until "$entry"
cmp -s out by_name || fail "an entry by number"
expect 0 "$ZERO3D" replay $file --until "$entry" --step 4
grep -q '^step 4, entry' out && grep -q ', 1 whole step;' out || fail "another step"
# As it stands in the program.
expect 0 "$ZERO3D" replay $file --until "backward        block.1 "
cmp -s out by_name || fail "words with more spaces"
# What another lane moves at that moment cannot be looked at yet.
expect 0 "$ZERO3D" replay $file --until "start gather_params block.1"
grep -Eq '^  gathered block.1 +written .* under way$' out || fail "a start"
expect 1 "$ZERO3D" replay $file --until "backward block.9"
says 'no instruction "backward block.9"'
expect 1 "$ZERO3D" replay $file --step 5
says 'steps 3 to 4 are'

# Files that are not what was written.
expect 1 "$ZERO3D" replay nowhere
says 'nowhere'
expect 1 "$ZERO3D" replay text
says 'text is no recording'
size=$(wc -c <$file)
head -c $((size - 100)) $file >cut
expect 1 "$ZERO3D" replay cut
says 'the recording ends in step 4; 1 whole step before it is as recorded: cut ends at byte'
mkfifo pipe
expect 1 "$ZERO3D" replay pipe
says 'pipe is a device or pipe, no recording'
expect 1 "$ZERO3D" replay .
says 'is a folder, no recording'
bytes="20 40 $((size / 2)) $((size - 5))"
[ -z "${ZERO3D_LONG:-}" ] || bytes="$bytes 2000"
for at in $bytes; do
    cp $file changed
    byte=$(od -An -tu1 -j $at -N 1 changed | tr -d ' ')
    printf '%b' "\\0$(printf %o $(((byte + 1) % 256)))" | dd of=changed bs=1 seek=$at conv=notrunc 2>/dev/null
    expect 1 "$ZERO3D" replay changed
    says 'changed: the block at byte .* was changed|changed ends at byte'
done
{ cat $file && echo; } >longer
expect 1 "$ZERO3D" replay longer
says 'longer has more bytes after its recording'
# Threads are not part of a result. Every other key is: it stays as recorded.
expect 0 "$ZERO3D" replay $file training.threads=2
[ ! -s err ] || fail "another number of threads"
for changed in optimizer.params.lr=5 training.seed=9 training.steps=2 zero_optimization.stage=2 training.threads.more=1 'training={threads: 2}'; do
    expect 1 "$ZERO3D" replay $file "$changed"
    says "${changed%%=*} cannot be changed: .*training.threads"
done

# A recording that cannot be written ends; the run does not.
(
    ulimit -f 64
    expect 0 "$ZERO3D" train tiny.yaml run.dir=full --record-rank 0 --steps 2:4
) || exit 1
grep -q 'full/replay-rank0.z3d: File too large; the recording ends here$' err || fail "a full disk"
expect 1 "$ZERO3D" replay full/replay-rank0.z3d
says 'full/replay-rank0.z3d ends at byte'

# What cannot be recorded.
expect 2 "$ZERO3D" train tiny.yaml --record-rank 0
says 'record-rank 0 needs --steps A:B'
expect 2 "$ZERO3D" train tiny.yaml --record-rank 0 --steps 4
says 'first and the last step'
expect fail "$ZERO3D" train tiny.yaml run.dir=none --record-rank 1 --steps 1:2
says 'ranks 0 to 0'
expect fail "$ZERO3D" train tiny.yaml run.dir=none --record-rank 0 --steps 1:9
says 'this run has 5 steps'
# A run that was stopped and goes on behind these steps has nothing to record.
expect 0 "$ZERO3D" train tiny.yaml run.dir=on training.steps=3 checkpoint.interval=3
expect 0 "$ZERO3D" train tiny.yaml run.dir=on checkpoint.interval=3 --record-rank 0 --steps 3:4
grep -q 'nothing is recorded, the run resumes at step 4' err || fail "a resumed run"
# One that resumes in front of them does.
expect 0 "$ZERO3D" train tiny.yaml run.dir=on training.steps=7 checkpoint.interval=3 --record-rank 0 --steps 6:7
expect 0 "$ZERO3D" replay on/replay-rank0.z3d
grep -q 'steps 6 to 7' out || fail "a resumed run's recording"
