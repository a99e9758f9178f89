#!/bin/sh
# The best checkpoint and the patience of a run that is stopped, resumed on other ranks and rotated; samples on the way change no bit; an
# average evaluated where it lies and where it is exported to.
. "$(dirname "$0")/lib.sh"

# losses RUN KEY: step and value, with all digits, of each line of metrics.jsonl that has KEY.
losses() {
    sed -n "s/^{\"step\":\([0-9]*\),\(.*,\)*\"$2\":\([^,]*\),.*/\1 \3/p" "$1/metrics.jsonl"
}
checkpoints() {
    (cd "$1/checkpoints" && echo step-*)
}

tiny
i=0
while [ $i -lt 150 ]; do
    echo "$((i * 7919 % 10007)) $((i * 104729 % 99991)) $((i * 31337 % 65521))"
    i=$((i + 1))
done >other
"$ZERO3D" data tokenize other --output other.bin >/dev/null || fail "tokenize"

worse="tiny.yaml data.validation=other.bin optimizer.params.lr=3e-2 training.eval_interval=2 training.eval_steps=2 checkpoint.interval=3 \
checkpoint.keep=1 checkpoint.keep_best=true training.early_stopping_patience=3 checkpoint.async=true"

# The rate is so high that the first validation loss is the lowest. Two ranks begin, one goes on: the patience counts the evaluations of
# both.
# shellcheck disable=SC2086
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train $worse training.steps=4 parallel.tensor_model_parallel_size=2 train_micro_batch_size_per_gpu=8
# shellcheck disable=SC2086
expect 0 "$ZERO3D" train $worse training.steps=12
low=$(losses run validation_loss | LC_ALL=C sort -g -k2 | head -n 1)
[ "${low%% *}" = 2 ] || fail "the lowest validation loss is not at step 2: $low"
grep -q '^ended early: 4 steps ' out || fail "not ended early after 4 more steps"
[ "$(readlink run/checkpoints/best)" = step-00000002 ] || fail "best is $(readlink run/checkpoints/best)"
[ "$(checkpoints run)" = "step-00000002 step-00000008" ] || fail "checkpoints: $(checkpoints run)"

# A stop in a step with a validation loss leaves it to the resumed run, also in the last step.
for _ in 1 2; do
    # shellcheck disable=SC2086
    expect 75 "$ZERO3D" train $worse run.dir=stopped training.steps=2 training.time_limit=1e-6 generate.prompt=Line generate.every=2
done
cp -r stopped ended
# shellcheck disable=SC2086
expect 0 "$ZERO3D" train $worse run.dir=ended training.steps=2
[ "$(readlink ended/checkpoints/best)" = step-00000002 ] || fail "a stop in the last step leaves out the best checkpoint"
# shellcheck disable=SC2086
expect 0 "$ZERO3D" train $worse run.dir=stopped training.steps=4 generate.prompt=Line generate.every=2
# shellcheck disable=SC2086
expect 0 "$ZERO3D" train $worse run.dir=whole training.steps=4
[ "$(losses stopped validation_loss)" = "$(losses whole validation_loss)" ] || fail "a stop leaves out a validation loss"
[ "$(readlink stopped/checkpoints/best)" = step-00000002 ] || fail "a stop leaves out the best checkpoint"
[ "$(wc -l <stopped/samples.jsonl)" -eq 2 ] || fail "a stop leaves out a sample"

# Texts on the way, where no rank has the whole model.
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir=quiet training.steps=3 zero_optimization.stage=3
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir=texts training.steps=3 zero_optimization.stage=3 generate.prompt=Line \
    generate.every=1 generate.tokens=4
[ "$(wc -l <texts/samples.jsonl)" -eq 3 ] || fail "samples.jsonl"
for key in loss grad_norm; do
    losses quiet $key >a
    losses texts $key >b
    [ "$(wc -l <a)" -eq 3 ] || fail "not three steps of $key"
    cmp -s a b || fail "generate.every changes $key"
done

# The average of a run, and the model that is made of it.
expect 0 "$ZERO3D" train tiny.yaml run.dir=average optimizer.ema_decay=0.7 optimizer.params.lr=1e-2 checkpoint.interval=10
expect 0 "$ZERO3D" checkpoint export average/checkpoints exported --ema
expect 0 "$ZERO3D" checkpoint import exported imported
for which in "average/checkpoints other.bin --ema" "average/checkpoints other.bin" "imported other.bin"; do
    # shellcheck disable=SC2086
    expect 0 "$ZERO3D" evaluate $which --json training.gemm.fp32=sgemm
    sed 's/.*"loss": \([^,]*\),.*/\1/' out
done >of
[ "$(sed -n 1p of)" = "$(sed -n 3p of)" ] || fail "the average and its export: $(tr '\n' ' ' <of)"
[ "$(sed -n 1p of)" != "$(sed -n 2p of)" ] || fail "the average is the last model"
