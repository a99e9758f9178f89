#!/bin/sh
# A run that is stopped and started again, in new processes, is a run that never stopped: metrics.jsonl to the bit, but for clocks. Started
# again on other ranks and stages it goes on too. train_resume has every combination, in one process.
. "$(dirname "$0")/../cli/lib.sh"
tiny
more="model.hidden_dropout=0.1 gradient_accumulation_steps=2 training.steps=8"

# What must be equal: everything of a line but clocks and memory.
facts() { sed -E 's/,"(seconds|time|tokens_per_second|model_tflops|mfu|hfu|exposed_comm_seconds|exposed_transfer_seconds|comm_bytes)":[^,}]*//g; s/,"memory":\{[^}]*\}//' "$1/metrics.jsonl"; }

same() { # same RUN-A RUN-B
    facts "$1" >a.facts
    facts "$2" >b.facts
    [ -s a.facts ] && cmp -s a.facts b.facts || {
        diff a.facts b.facts | head -n 6
        fail "$1 and $2 differ"
    }
}

# Stopped in the middle by its time limit, and later by its end: two jobs in place of one. ZERO3D_LONG: more ways.
set -- "fp16.enabled=true training.gemm.fp32=auto training.gemm.fp16=sgemm zero_optimization.stage=2 checkpoint.async=true"
[ -z "${ZERO3D_LONG:-}" ] || set -- "$@" "zero_optimization.stage=3" \
    "bf16.enabled=true training.gemm.fp32=auto training.gemm.bf16=sgemm zero_optimization.stage=0"
for options; do
    # shellcheck disable=SC2086 # lists of words
    expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $more $options checkpoint.interval=100 run.dir=whole --verbose
    case $options in
    *async*) grep -q '^  copy for asynchronous saves  ' out || fail "the memory of an asynchronous save has no name" ;;
    esac
    # shellcheck disable=SC2086
    expect 75 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $more $options checkpoint.interval=3 training.time_limit=1e-9 run.dir=parts
    grep -q 'stopped by training.time_limit' out || fail "does not say why it stopped"
    # shellcheck disable=SC2086
    expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $more $options checkpoint.interval=3 run.dir=parts
    same whole parts
    [ "$(ls parts/checkpoints | grep -c '^step-')" -eq 3 ] || fail "not three checkpoints are kept"
    rm -rf whole parts
done

# ZERO3D_LONG: 40 steps against 20 and 20 in new processes, every stage and precision, tensor 2 once.
[ -z "${ZERO3D_LONG:-}" ] || for stage in 0 1 2 3; do
    for type in fp32 bf16 fp16; do
        options="zero_optimization.stage=$stage"
        [ $type = fp32 ] || options="$options $type.enabled=true training.gemm.fp32=auto training.gemm.$type=sgemm"
        [ $stage != 2 ] || [ $type != bf16 ] || options="$options parallel.tensor_model_parallel_size=2"
        for part in "40 whole" "20 parts" "40 parts"; do
            # shellcheck disable=SC2086 # lists of words
            expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $more $options checkpoint.interval=20 training.steps=${part% *} run.dir=${part#* }
        done
        grep -q 'resuming after step 20' err || fail "stage $stage, $type: the second part does not go on"
        same whole parts
        rm -rf whole parts
    done
done

# Elsewhere: from 2 ranks to 1, to tensor 2 x data 2 and another stage and precision.
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml training.steps=4 checkpoint.interval=2 run.dir=first zero_optimization.stage=1
expect 0 "$ZERO3D" train tiny.yaml training.steps=6 checkpoint.interval=2 run.dir=first zero_optimization.stage=3
grep -q 'resuming after step 4' err || fail "does not say where it goes on"
expect 0 "$LAUNCH" -n 4 "$ZERO3D" train tiny.yaml training.steps=8 checkpoint.interval=2 run.dir=first zero_optimization.stage=2 \
    bf16.enabled=true training.gemm.fp32=auto parallel.tensor_model_parallel_size=2 parallel.sequence_parallel=true
[ "$(wc -l <first/metrics.jsonl)" -eq 8 ] || fail "not eight lines of metrics"
expect 1 "$ZERO3D" train tiny.yaml training.steps=9 checkpoint.interval=2 run.dir=first optimizer.params.lr=2e-3
says 'optimizer.params.lr=2e-3: 0.002 here, 0.001 in the checkpoint of step 8'

# A second job in the run folder of one that lives is refused on every rank, and leaves its files alone; one that was killed leaves no lock.
"$ZERO3D" train tiny.yaml run.dir=busy training.steps=100000000 checkpoint.interval=1000000 checkpoint.dir=one >/dev/null 2>&1 </dev/null &
background=$!
tries=0
until [ -s busy/metrics.jsonl ]; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || fail "the first job does not begin"
    sleep 0.05
done
first=$(head -n 1 busy/metrics.jsonl)
expect 1 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir=busy checkpoint.interval=2 checkpoint.dir=two
says "run.dir: busy: another job writes to this run folder now; .* \(it is pid $background on host "
[ "$(head -n 1 busy/metrics.jsonl)" = "$first" ] || fail "the first job's metrics are gone"
kill -KILL $background
wait $background 2>/dev/null
background=""
lines=$(wc -l <busy/metrics.jsonl)
expect 0 "$ZERO3D" train tiny.yaml run.dir=busy checkpoint.interval=2 checkpoint.dir=two
[ "$(wc -l <busy/metrics.1.jsonl)" -eq "$lines" ] && [ "$(head -n 1 busy/metrics.1.jsonl)" = "$first" ] || fail "not kept"
grep -q '^zero3d: busy: kept the files of an earlier run as metrics.1.jsonl, events.1.jsonl, config.1.yaml$' err || fail "does not say what it keeps"

# More steps behind a schedule's end: the refusal prints the command that does it.
cosine="scheduler.type=WarmupCosineLR scheduler.params.warmup_num_steps=1 scheduler.params.min_lr=1e-4 checkpoint.interval=2"
# shellcheck disable=SC2086 # lists of words
expect 0 "$ZERO3D" train tiny.yaml $cosine "run.dir=my run" training.steps=4 --extend
grep -q '^zero3d: --extend has no effect: there is no checkpoint to resume from$' err || fail "--extend of a new run"
# shellcheck disable=SC2086
expect 1 "$ZERO3D" train tiny.yaml $cosine "run.dir=my run" training.steps=6
says "^zero3d: add --extend to the command: the checkpoint's learning-rate schedule ends at step 4; --extend trains on at its final rate, 0.0001$"
# shellcheck disable=SC2086
expect 0 "$ZERO3D" train tiny.yaml $cosine "run.dir=my run" training.steps=6 --extend
grep -q '^zero3d: --extend: the learning-rate schedule still ends at step 4; steps 5 to 6 train at its final learning rate, 0.0001$' err ||
    fail "does not say what --extend does"
rates=$(sed -n 's/.*"lr":\([^,]*\).*/\1/p' "my run/metrics.jsonl" | tail -n 2)
[ "$(echo "$rates" | sort -u | wc -l)" -eq 1 ] || fail "steps 5 and 6 have other learning rates: $rates"
expect 0 "$ZERO3D" train tiny.yaml checkpoint.interval=2 run.dir=constant
expect 0 "$ZERO3D" train tiny.yaml checkpoint.interval=2 run.dir=constant training.steps=8 --extend
grep -q '^zero3d: --extend has no effect: the learning-rate schedule has no end$' err || fail "--extend of a constant rate"
grep -q '^6/8 ' out || fail "a resumed run does not show its first step"

# Where the schedule ends at 0 nothing would be learnt: its end moves, and from then on it stays there.
decay="scheduler.type=WarmupDecayLR scheduler.params.warmup_num_steps=1 checkpoint.interval=2 run.dir=decay"
# shellcheck disable=SC2086
expect 0 "$ZERO3D" train tiny.yaml $decay training.steps=4
# shellcheck disable=SC2086
expect 1 "$ZERO3D" train tiny.yaml $decay training.steps=8
says 'add --extend to the command: .* ends at step 4 with the rate 0; --extend moves its end to step 8$'
# shellcheck disable=SC2086
expect 0 "$ZERO3D" train tiny.yaml $decay training.steps=8 --extend
grep -q '^zero3d: --extend: the learning-rate schedule ended at step 4 with learning rate 0; it now ends at step 8$' err ||
    fail "does not say that the schedule ends elsewhere"
# A straight line from step 1 (0.001) to 0 after step 8: half of it at step 5.
awk -F'"lr":' '{ split($2, a, ","); wanted = NR < 5 ? (5 - NR) / 4 : (9 - NR) / 8; d = a[1] - 0.001 * wanted; bad += d * d > 1e-14 }
    END { exit NR != 8 || bad }' decay/metrics.jsonl || fail "not the learning rates of the two schedules"

# A complete run needs no --extend to be complete; its files stay as they are, and nothing is announced.
for run in "$decay training.steps=8" "$decay training.steps=6" "$cosine run.dir=extended training.steps=6"; do
    case $run in *extended*)
        # shellcheck disable=SC2086
        expect 0 "$ZERO3D" train tiny.yaml $cosine run.dir=extended training.steps=4
        # shellcheck disable=SC2086
        expect 0 "$ZERO3D" train tiny.yaml $run --extend
        ;;
    esac
    # shellcheck disable=SC2012 # names of ours
    ls decay extended 2>/dev/null >before
    # shellcheck disable=SC2086
    expect 0 "$ZERO3D" train tiny.yaml $run
    case $run in
    *steps=8) wanted='Nothing to do: the run is complete (step 8). To train further, raise training.steps.' ;;
    *extended*) wanted='Nothing to do: the run is complete (step 6). To train further, raise training.steps.' ;;
    *) wanted='Nothing to do: the checkpoint is at step 8, beyond training.steps 6. To train further, raise training.steps.' ;;
    esac
    [ "$(cat out)" = "$wanted" ] || fail "not one line that says that there is nothing to do"
    # shellcheck disable=SC2012
    ls decay extended 2>/dev/null | cmp -s - before || fail "a run with nothing to do leaves other files"
done

# Fewer steps than the schedule has; several ranks.
# shellcheck disable=SC2086
expect 0 "$ZERO3D" train tiny.yaml $decay run.dir=fewer training.steps=2 scheduler.params.total_num_steps=20
# shellcheck disable=SC2086
expect 1 "$ZERO3D" train tiny.yaml $decay run.dir=fewer training.steps=6
says "the checkpoint's learning-rate schedule ends at step 20, this run's at step 6; scheduler.params.total_num_steps=20 keeps it$"
# shellcheck disable=SC2086
expect 1 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $decay run.dir=fewer training.steps=22
says 'add --extend to the command: .* ends at step 20 with the rate 0; --extend moves its end to step 22$'

# A save in flight belongs to a run that fails: the message counts it.
expect 1 "$ZERO3D" train tiny.yaml run.dir=diverged checkpoint.async=true checkpoint.interval=1 checkpoint.keep=2 training.steps=14 \
    optimizer.params.lr=1e5 optimizer.params.weight_decay=1000
newest=$(ls diverged/checkpoints | sed -n 's/^step-0*//p' | tail -n 1)
says "the run failed: .*; the latest checkpoint is step $newest;"

# A loss scale that had no time to fall is no reason for another learning rate.
expect 1 "$ZERO3D" train tiny.yaml run.dir=scale fp16.enabled=true fp16.initial_scale_power=32 training.gemm.fp32=auto training.gemm.fp16=sgemm training.steps=3
says 'the run failed: all its steps .* the loss scale is still falling \(now [0-9.e+]*\): train more steps, or set fp16.initial_scale_power to 16$'

# The best checkpoint is kept beside the newest one, and the count of early_stopping_patience goes on, on other ranks too.
tr a-z n-za-m <text | head -n 30 >other
"$ZERO3D" data tokenize other --output other.bin >/dev/null || fail "tokenize"
best="data.validation=other.bin training.eval_interval=4 optimizer.params.lr=1e-2 checkpoint.interval=6 checkpoint.keep=1 checkpoint.keep_best=true"
# shellcheck disable=SC2086 # lists of words
samples="generate.prompt=Line generate.tokens=2 generate.every=6"
# shellcheck disable=SC2086 # lists of words
expect 0 "$ZERO3D" train tiny.yaml $best $samples training.early_stopping_patience=4 training.steps=16 run.dir=best
grep -q '^checkpoints every 6 steps and at each lower validation loss in best/checkpoints, keeps the latest 1 and the best$' out ||
    fail "the start does not say when checkpoints are saved"
[ "$(grep -E '^(checkpoint|sample) of step 6 ' out | cut -d ' ' -f 1 | tr '\n' ' ')" = "checkpoint sample " ] ||
    fail "a sample is made before the save that is due"
# shellcheck disable=SC2086
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $best $samples training.early_stopping_patience=4 training.steps=40 run.dir=best
! grep -q 'start again' err || fail "on other ranks the count begins anew"
step=$(sed -n 's/.*"step":\([0-9]*\),"validation_loss":\([^,]*\),.*/\2 \1/p' best/metrics.jsonl | sort -g | sed -n '1s/.* //p')
end=$((step + 16))
[ "$end" -gt 16 ] && [ "$end" -lt 40 ] || fail "the loss does not rise where the test needs it"
grep -Eq "^ended early: .* validation loss " out && grep -q "^early    no lower validation loss in 4 evaluations since step $step " out ||
    fail "the end does not say that it is early"
grep -Eq "^best     validation loss [0-9.]+ at step $step: best/checkpoints/best$" out || fail "the end does not say which is best"
grep -q '"end":"early"' best/summary.json || fail "summary.json has another end"
[ "$(sed -n 's/.*"step":\([0-9]*\),"event":"end".*/\1/p' best/events.jsonl | tr '\n' ' ')" = "16 $end " ] || fail "not both ends are events"
[ "$(tail -n 1 best/samples.jsonl | cut -d , -f 1)" = "{\"step\":$end" ] || fail "the last sample is not written"
expect 0 "$ZERO3D" report best
grep -Eq "ended early at step $end: no lower validation loss in 4 evaluations since step $step " out || fail "the report has another end"
# shellcheck disable=SC2046
[ "$(ls best/checkpoints | tr '\n' ' ')" = "best lock $(printf 'step-%08d ' "$step" "$end")" ] || fail "others are kept: $(ls best/checkpoints)"
[ "$(readlink best/checkpoints/best)" = "$(printf 'step-%08d' "$step")" ] || fail "best is another one"
expect 0 "$ZERO3D" generate best/checkpoints/best --prompt Line --tokens 2
expect 0 "$ZERO3D" checkpoint verify best/checkpoints/best
grep -q "^step $step: intact" out || fail "best is not checked"
# Killed behind a commit: the next start makes link and rotation what they should be.
ln -sfn step-00000002 best/checkpoints/best
cp -r "best/checkpoints/$(printf 'step-%08d' "$step")" best/checkpoints/step-00000002
# shellcheck disable=SC2086
expect 0 "$ZERO3D" train tiny.yaml $best training.early_stopping_patience=4 training.steps=40 run.dir=best
[ "$(readlink best/checkpoints/best)" = "$(printf 'step-%08d' "$step")" ] || fail "best stays another one"
[ ! -e best/checkpoints/step-00000002 ] || fail "an old checkpoint stays"
grep -q "^Nothing to do: the run ended early at step $end: no lower .*raise the patience.$" out || fail "a run that ended early goes on"
# shellcheck disable=SC2086
expect 0 "$ZERO3D" train tiny.yaml $best training.early_stopping_patience=5 training.steps=40 run.dir=best
[ "$(wc -l <best/metrics.jsonl)" -eq $((end + 4 + (end + 4) / 4 )) ] || fail "not one evaluation more"
# The best one is gone, or is another run's: it is looked for anew.
cp -r best gone
best_folder=$(readlink best/checkpoints/best)
rm -rf "gone/checkpoints/$best_folder"
# shellcheck disable=SC2086
expect 0 "$ZERO3D" train tiny.yaml $best training.steps=$((end + 8)) run.dir=gone
grep -q "^zero3d: the checkpoint of the lowest validation loss so far, of step $step, is not in gone/checkpoints: .* start again$" err ||
    fail "the best one is missed by nobody"
[ "$(readlink gone/checkpoints/best)" = "$(printf 'step-%08d' $((end + 8)))" ] || fail "no other is the best one"
# shellcheck disable=SC2086
expect 0 "$ZERO3D" train tiny.yaml $best training.seed=7 training.steps="$step" run.dir=stranger
rm -rf gone
cp -r best gone
rm -rf "gone/checkpoints/$best_folder"
cp -r "stranger/checkpoints/$best_folder" gone/checkpoints
# shellcheck disable=SC2086
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $best training.steps=$((end + 8)) run.dir=gone
grep -q "of step $step, is not in gone/checkpoints: .* start again$" err || fail "another run's checkpoint is the best one"

# Losses of other validation data are not compared.
cp -r best others
for ranks in 1 2; do
    # shellcheck disable=SC2086
    expect 0 "$LAUNCH" -n $ranks "$ZERO3D" train tiny.yaml $best training.eval_steps=$ranks training.early_stopping_patience=5 \
        training.steps=$((end + 4 + 4 * ranks)) run.dir=others
    grep -q '^zero3d: the validation losses so far are for other samples or weights .* start again$' err || fail "other data, but the same count"
done

# What a user calls so stays as it is: with keep_best it is refused, else it is of no interest.
for name in best best.part; do
    rm -rf "mine/checkpoints"
    mkdir -p "mine/checkpoints/$name"
    [ $name = best ] || { rmdir mine/checkpoints/$name && echo mine >mine/checkpoints/$name; }
    # shellcheck disable=SC2086
    expect 1 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $best run.dir=mine
    says "mine/checkpoints/$name: no save made it, .*: move it away, or set another checkpoint.dir"
    [ -e "mine/checkpoints/$name" ] || fail "$name of a user is gone"
done
echo mine >mine/checkpoints/best
expect 0 "$ZERO3D" train tiny.yaml checkpoint.interval=6 run.dir=mine
[ "$(cat mine/checkpoints/best)" = mine ] || fail "a user's file is gone"

# Without keep_best the best checkpoint may go: its link goes first.
# shellcheck disable=SC2086
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $best checkpoint.keep_best=false training.steps=$((end + 8)) run.dir=best
grep -q "^zero3d: checkpoint.keep_best is false: the link best/checkpoints/best to the checkpoint of step $step is removed" err ||
    fail "does not say that the best one is not kept"
[ ! -L best/checkpoints/best ] || fail "a link to nothing stays"

# At the last step, too, it is the patience that ends a run.
flat="data.validation=other.bin training.eval_interval=1 optimizer.params.lr=0 checkpoint.interval=3 training.early_stopping_patience=2 run.dir=flat"
# shellcheck disable=SC2086
expect 0 "$ZERO3D" train tiny.yaml $flat training.steps=3
grep -q '^ended early: 3 steps' out || fail "the run ends otherwise"
# shellcheck disable=SC2086
expect 0 "$ZERO3D" train tiny.yaml $flat training.steps=5
grep -q '^Nothing to do: the run ended early at step 3: .*raise the patience.$' out || fail "and goes on otherwise"

# No loss was finite, and no token can be drawn: the run goes on until its own checks end it, and the count outlives it.
for ranks in 1 2; do
    nan="data.validation=other.bin training.eval_interval=7 checkpoint.interval=7 training.early_stopping_patience=2 training.steps=28 \
        optimizer.params.lr=1e5 optimizer.params.weight_decay=1000 run.dir=nan$ranks"
    # shellcheck disable=SC2086
    expect 0 "$LAUNCH" -n $ranks "$ZERO3D" train tiny.yaml $nan $samples
    grep -q '^early    no finite validation loss in 2 evaluations (training.early_stopping_patience)$' out || fail "not finite, and not said"
    grep -Eq '^zero3d: (warning: )?step 12: no sample: generated token 0: the logits are NaN or infinite$' err || fail "no word of a sample without a token"
    # shellcheck disable=SC2086
    expect 0 "$LAUNCH" -n $ranks "$ZERO3D" train tiny.yaml $nan
    grep -q '^Nothing to do: the run ended early at step 14: no finite ' out || fail "the count is forgotten"
done

# A signal while a sample is made: the step (2, 3) is saved once, before or behind it, and half a text is not written.
for last in 2 3; do
    rm -rf cut
    "$ZERO3D" train tiny.yaml checkpoint.interval=2 checkpoint.async=true generate.prompt=Line generate.tokens=1000000 generate.every=$last run.dir=cut >out 2>err </dev/null &
    background=$!
    tries=0
    until [ -e cut/checkpoints/step-00000002 ]; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "the run does not begin"
        sleep 0.05
    done
    kill -TERM $background
    wait $background
    [ $? -eq 75 ] || fail "not the exit code of a run that is to be started again"
    background=""
    [ "$(grep -c "^checkpoint of step $last saved" out)" -eq 1 ] && [ "$(ls cut/checkpoints | tail -n 1)" = step-0000000$last ] ||
        fail "the step is not saved once"
    [ ! -s cut/samples.jsonl ] || fail "half a sample is written"
done

expect 1 "$ZERO3D" train tiny.yaml checkpoint.keep_best=true checkpoint.interval=2 run.dir=none
says 'checkpoint.keep_best=true: has no effect without data.validation; set data.validation'
expect 1 "$ZERO3D" train tiny.yaml training.early_stopping_patience=1 training.eval_interval=0 data.validation=other.bin run.dir=none
says 'has no effect while training.eval_interval is 0: '
