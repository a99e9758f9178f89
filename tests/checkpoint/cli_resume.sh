#!/bin/sh
# A run that is stopped and started again is a run that never stopped: metrics.jsonl to the bit, but for clocks. Started again on other
# ranks and stages it goes on too. What must not change is refused by name.
. "$(dirname "$0")/../cli/lib.sh"
tiny
more="model.hidden_dropout=0.1 gradient_accumulation_steps=2 training.steps=8"

# What must be equal: everything of a line but clocks and memory.
facts() { sed -E 's/,"(seconds|tokens_per_second|model_tflops|mfu|hfu|exposed_comm_seconds|exposed_transfer_seconds|comm_bytes)":[^,}]*//g; s/,"memory":\{[^}]*\}//' "$1/metrics.jsonl"; }

same() { # same RUN-A RUN-B
    facts "$1" >a.facts
    facts "$2" >b.facts
    [ -s a.facts ] && cmp -s a.facts b.facts || {
        diff a.facts b.facts | head -n 6
        fail "$1 and $2 differ"
    }
}

# Stopped in the middle by its time limit, and later by its end: two processes in place of one.
for options in "fp16.enabled=true training.gemm.fp32=auto training.gemm.fp16=sgemm zero_optimization.stage=2" "zero_optimization.stage=3 checkpoint.async=true" \
    "bf16.enabled=true training.gemm.fp32=auto training.gemm.bf16=sgemm zero_optimization.stage=0"; do
    # shellcheck disable=SC2086 # lists of words
    expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $more $options checkpoint.interval=100 run.dir=whole
    # shellcheck disable=SC2086
    expect 75 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $more $options checkpoint.interval=3 training.time_limit=1e-9 run.dir=parts
    grep -q 'time_limit is over' out || fail "does not say why it stopped"
    # Lines beyond the checkpoint, as a crash leaves them.
    echo '{"step":2,"loss":1.5,"lr":1}' >>parts/metrics.jsonl
    printf '{"step":3,"lo' >>parts/metrics.jsonl
    # shellcheck disable=SC2086
    expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $more $options checkpoint.interval=3 run.dir=parts
    same whole parts
    [ "$(ls parts/checkpoints | grep -c '^step-')" -eq 3 ] || fail "not three checkpoints are kept"
    # At its end nothing is left to do.
    # shellcheck disable=SC2086
    expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $more $options checkpoint.interval=3 run.dir=parts
    grep -q 'nothing to do' out || fail "an ended run does not say so"
    same whole parts
    rm -rf whole parts
done

# Elsewhere: from 2 ranks to 1, to tensor 2 x data 2 and another stage and precision.
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml training.steps=4 checkpoint.interval=2 run.dir=first zero_optimization.stage=1
expect 0 "$ZERO3D" train tiny.yaml training.steps=6 checkpoint.interval=2 run.dir=first zero_optimization.stage=3
grep -q 'going on behind step 4' err || fail "does not say where it goes on"
expect 0 "$LAUNCH" -n 4 "$ZERO3D" train tiny.yaml training.steps=8 checkpoint.interval=2 run.dir=first zero_optimization.stage=2 \
    bf16.enabled=true training.gemm.fp32=auto parallel.tensor_model_parallel_size=2
[ "$(wc -l <first/metrics.jsonl)" -eq 8 ] || fail "not eight lines of metrics"

# Refusals.
expect 1 "$ZERO3D" train tiny.yaml training.steps=9 checkpoint.interval=2 run.dir=first optimizer.params.lr=2e-3
says 'optimizer.params.lr: 0.002 here, 0.001 in the checkpoint of step 8'
expect 1 "$ZERO3D" train tiny.yaml training.steps=9 checkpoint.interval=2 run.dir=first checkpoint.resume=never
says 'checkpoint.resume: never, but first/checkpoints has a checkpoint of step 8'
expect 1 "$ZERO3D" train tiny.yaml training.steps=9 checkpoint.interval=2 run.dir=first checkpoint.resume=first/checkpoints/step-00000004
says 'has a checkpoint of step 8'
expect 1 "$ZERO3D" train tiny.yaml checkpoint.resume=nowhere
says 'nowhere: No such file'
expect 1 "$ZERO3D" train tiny.yaml checkpoint.resume=first
says 'first is no complete checkpoint'
expect 1 "$ZERO3D" train tiny.yaml checkpoint.keep=2
says 'checkpoint.keep: has no effect while checkpoint.interval is 0'

# From a path into another folder; weights only.
expect 0 "$ZERO3D" train tiny.yaml training.steps=5 run.dir=other checkpoint.resume=first/checkpoints/step-00000004
[ "$(head -n 1 other/metrics.jsonl | cut -c 1-9)" = '{"step":5' ] || fail "does not go on behind step 4"
expect 0 "$ZERO3D" train tiny.yaml training.steps=1 run.dir=third checkpoint.init_from=first/checkpoints/step-00000004 optimizer.params.lr=1e-4
[ "$(head -n 1 third/metrics.jsonl | cut -c 1-9)" = '{"step":1' ] || fail "init_from does not begin at step 1"

# A damaged newest checkpoint: the one before, loudly.
newest=$(ls -d first/checkpoints/step-* | tail -n 1)
printf 'x' | dd of="$newest/shard-00001.h5" bs=1 seek=5000 conv=notrunc 2>/dev/null
expect 0 "$ZERO3D" train tiny.yaml training.steps=8 checkpoint.interval=2 run.dir=first
grep -q 'step 8 cannot be used: .*shard-00001.h5: damaged' err || fail "damage is not named"
grep -q 'going on behind step 6' err || fail "does not fall back"
[ -d "$newest.damaged" ] || fail "the damaged one is not put aside"
