#!/bin/sh
# `zero3d plan`: memory of what persists equals the paper's formulas, for every stage; bad worlds are refused.
. "$(dirname "$0")/lib.sh"

demo=$SOURCE/configs/demo.yaml
category() { awk -v name="$1" '$1 == name { print $2; exit }' out; }
plan() { expect 0 "$ZERO3D" plan "$demo" --ranks 8 parallel.world_size=8 train_batch_size=16 bf16.enabled=true "$@"; }

# 16-bit, tensor 2 x data 4: 16P, 4P + 12P/N, 2P + 14P/N, 16P/N.
for stage in 0 1 2 3; do
    plan zero_optimization.stage=$stage gradient_accumulation_steps=1
    parameters=$(category parameters) gradients=$(category gradients) optimizer=$(category optimizer)
    [ $stage = 0 ] && p=$((parameters / 2))
    case $stage in
    0) wanted="$((2 * p)) $((2 * p)) $((12 * p))" ;;
    1) wanted="$((2 * p)) $((2 * p)) $((3 * p))" ;;
    2) wanted="$((2 * p)) $((p / 2)) $((3 * p))" ;;
    3) wanted="$((p / 2)) $((p / 2)) $((3 * p))" ;;
    esac
    [ "$parameters $gradients $optimizer" = "$wanted" ] ||
        fail "stage $stage: $parameters $gradients $optimizer bytes, the formulas give $wanted"
done

# Buckets without effect are told.
plan zero_optimization.reduce_bucket_size=100000
grep -Eq "reduce bucket +100 K  elements at most; the largest group has [0-9.]+ [KM]; with NCCL each bucket is copied$" out || fail "nothing about a bucket that cuts"
grep -Eq 'gather bucket .* one bucket a group' out || fail "nothing about a bucket that is never full"

plan --rank 7 --print-program zero_optimization.stage=3
for word in gather_params release_params forward backward reduce_grads step_control optimizer_step; do
    grep -q "$word" out || fail "the program of stage 3 has no $word"
done
plan --print-program zero_optimization.stage=0
! grep -q release_params out || fail "the program of stage 0 releases parameters"

# Gradients that are reduced once a step are whole on every rank until then, whatever the stage.
plan zero_optimization.stage=2 train_batch_size=32 gradient_accumulation_steps=2 zero_optimization.grad_reduce=per_step
grep -q 'gradients in fp32, reduced once a step and kept whole until then' out || fail "nothing about what per_step keeps in stage 2"
plan zero_optimization.stage=2 train_batch_size=32 gradient_accumulation_steps=2
! grep -q 'kept whole' out || fail "stage 2 does not keep whole gradients by itself"

# What was verified is said: all ranks against each other, or in large worlds this one.
plan
grep -q 'verified: these programs, and the programs of all ranks against each other' out || fail "nothing verified"
expect 0 "$ZERO3D" plan "$demo" parallel.world_size=auto train_batch_size=256 --ranks 128
grep -q 'verified: these programs, of which one stands for all ranks' out || fail "a large world was not verified by its class"

expect 1 "$ZERO3D" plan "$demo" --ranks 3
expect 1 "$ZERO3D" plan "$demo" parallel.world_size=auto --ranks 3
says 'tensor'
expect 1 "$ZERO3D" plan "$demo" --rank 4
says 'rank 4'
expect 1 "$ZERO3D" plan "$demo" parallel.world_size=auto --ranks 2000000000
says .

# The memory over a step, its picture, and where neither can be.
plan --memory arena.svg
for word in 'lower bound' 'arena, as planned' 'a first-fit allocator' 'a caching allocator'; do
    grep -q "$word" out || fail "--memory says nothing of $word"
done
head -c 5 arena.svg | grep -q '<svg ' || fail "--memory drew no picture"
plan --memory
plan --memory=other.picture
[ -s other.picture ] || fail "--memory=FILE drew no picture"
expect 1 "$ZERO3D" plan "$demo" --memory nowhere/arena.svg
says 'nowhere/arena.svg'
# Where their search would take minutes, other allocators are left out, and it is said.
expect 0 "$ZERO3D" plan "$demo" --ranks 1 --memory parallel.tensor_model_parallel_size=1 parallel.world_size=1 train_micro_batch_size_per_gpu=1 \
    train_batch_size=32 gradient_accumulation_steps=auto model.num_layers=250
grep -q 'other allocators are not compared: more than 30000 buffers' out || fail "a large program is compared with other allocators"

# The copy of an asynchronous save is host memory too: of this machine's rank, and against a described one's.
for where in "" "--hardware $SOURCE/configs/hardware/dgx2-v100.yaml"; do
    # shellcheck disable=SC2086 # a list of words
    expect 0 "$ZERO3D" plan "$demo" checkpoint.interval=5 checkpoint.async=true $where
    grep -q 'checkpoint copy\|copy of checkpoint.async' out || fail "the plan does not know the copy of an asynchronous save"
done

# What does not fit gets advice.
expect 0 "$ZERO3D" plan "$SOURCE/configs/paper/fig8-C4-170B-400gpus.yaml" --hardware "$SOURCE/configs/hardware/dgx2-v100.yaml"
for word in 'does not fit: rank 0 needs' 'the largest part is parameters' 'zero_optimization.stage=3 needs'; do
    grep -q "$word" out || fail "the advice says nothing of $word"
done

# Recomputed FLOPs are counted only where there are some; memory is in GiB.
h100="$SOURCE/configs/gpt2-124m.yaml --ranks 1 --hardware h100"
for full in full none; do
    # shellcheck disable=SC2086 # a list of words
    expect 0 "$ZERO3D" plan $h100 activation_checkpointing.granularity=$full
    grep -q 'TFLOPS a device.*recompute counted' out && counted=full || counted=none
    [ $counted = $full ] || fail "granularity $full: recomputed FLOPs"
    grep -q '^memory of rank 0 on H100-SXM5-80GB, GiB$' out || fail "memory in another unit"
done
# shellcheck disable=SC2086
expect 1 "$ZERO3D" plan $h100 --tokens 10
says '--tokens 10: one step has '
expect 0 "$ZERO3D" plan $h100 --tokens 10B --price-per-device-hour 2 --json
grep -Eq '"train_tokens": 10000000000, "train_seconds": [0-9.]+, "device_hours": [0-9.]+, "joules": [0-9.e+]+, "device_joules": [0-9.e+]+, "price": [0-9.]+' out || fail "no bill"

# Pipeline stages: each is listed, the fullest named; a picture of the predicted step; any stage's rank.
set -- "$SOURCE/configs/gpt2-124m.yaml" --ranks 8 parallel.pipeline_model_parallel_size=4 train_batch_size=auto gradient_accumulation_steps=8
expect 0 "$ZERO3D" plan "$@" --rank 7
grep -q 'this is rank 7 (tensor 0, data 1, pipeline 3)' out || fail "not told which pipeline stage rank 7 is on"
grep -Eq '^pipeline +1f1b, 4 stages x 1 chunk; stage [0-3] needs most memory' out || fail "no stage needs most memory"
[ "$(grep -Ec '^ +[0-3] +[0-9]+ .* (embedding|block|head)' out)" = 4 ] || fail "not four stages"
expect 0 "$ZERO3D" plan "$@" --hardware "$SOURCE/configs/hardware/dgx-a100.yaml" --schedule step.svg
grep -Eq 'bubble +[0-9.]+ % of all stages. time' out || fail "no bubble"
grep -q '</svg>' step.svg || fail "no picture of the schedule"
grep -q 'fewer micro-batches' out && fail "warned of too few of 8 micro-batches"
expect 0 "$ZERO3D" plan "$@" gradient_accumulation_steps=2
grep -q 'fewer micro-batches (2) than pipeline stages (4): at most 2 stages work at a time' out || fail "not told that stages wait"
expect 0 "$ZERO3D" plan "$@" zero_optimization.stage=3 --hardware "$SOURCE/configs/hardware/dgx-a100.yaml"
grep -Eq '^pipeline_gather auto: (per_step|per_microbatch) \(per_step: [0-9.]+ s' out || fail "not told when parameters are gathered"
[ "$(grep -Ec '^ +per_(step|microbatch) .* s a step, arena .* GiB, fits' out)" = 2 ] || fail "not both prices"
[ "$(grep -c ': used here' out)" = 1 ] || fail "not told which of the two prices is the plan's"
expect 2 "$ZERO3D" plan "$@" --schedule step.svg
says 'need --hardware'

# One rank: whether it has room on this machine. Of several ranks nobody knows where they run.
alone=$SOURCE/configs/gpt2-124m.yaml
expect 0 "$ZERO3D" plan "$alone" --ranks 1
grep -Eq '^this machine: it fits: the rank needs [0-9.]+ [KMG]iB \(24.0 MiB of it outside the plan\) of [0-9.]+ [MGT]iB that are free' out || fail "nothing says that it fits this machine"
expect 0 "$ZERO3D" plan "$alone" --ranks 1 model.hidden_size=131072 model.num_attention_heads=1024
grep -Eq '^this machine: does not fit: rank 0 needs [0-9.]+ [TP]iB, but has ' out || fail "nothing says that it does not fit this machine"
plan
! grep -q '^this machine' out || fail "a word about this machine for eight ranks"
