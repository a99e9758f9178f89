#!/bin/sh
# Checkpoints of runs with pipeline stages: a resumed run is one that never stopped; another number of stages, another schedule and another
# ZeRO stage load what was saved; models are imported and exported; what two stages hold is written once.
. "$(dirname "$0")/../cli/lib.sh"
tiny
PIPELINE=parallel.pipeline_model_parallel_size
CHUNKS="parallel.virtual_pipeline_model_parallel_size=2 parallel.pipeline_schedule=interleaved"
more="model.hidden_dropout=0.1 gradient_accumulation_steps=4 training.steps=8"
facts() { sed -E 's/,"(seconds|time|tokens_per_second|model_tflops|mfu|hfu|exposed_comm_seconds|exposed_transfer_seconds|comm_bytes)":[^,}]*//g; s/,"memory":\{[^}]*\}//' "$1/metrics.jsonl"; }

# train RANKS FOLDER key=value...
train() {
    ranks=$1 folder=$2
    shift 2
    # shellcheck disable=SC2086 # a list of words
    expect 0 "$LAUNCH" -n "$ranks" "$ZERO3D" train tiny.yaml $more run.dir="$folder" "$@"
}

# never_stopped RANKS key=value...: eight steps, and four and four in new processes.
never_stopped() {
    ranks=$1
    shift
    train "$ranks" whole "$@" checkpoint.interval=100
    train "$ranks" parts "$@" checkpoint.interval=4 training.steps=4
    train "$ranks" parts "$@" checkpoint.interval=4
    grep -q 'resuming after step 4' err || fail "the second part does not resume"
    facts whole >a.facts
    facts parts >b.facts
    [ "$(wc -l <a.facts)" -eq 8 ] && cmp -s a.facts b.facts || fail "a resumed run is another: $ranks ranks, $*"
    rm -rf whole parts
}
never_stopped 2 $PIPELINE=2 zero_optimization.stage=1
# shellcheck disable=SC2086 # a list of words
never_stopped 4 $PIPELINE=2 $CHUNKS zero_optimization.stage=3 fp16.enabled=true training.gemm.fp32=auto training.gemm.fp16=sgemm checkpoint.async=true

# Elsewhere: what two pipeline stages saved goes on with one, with four, with chunks, with tensor ranks, and back.
train 2 run $PIPELINE=2 checkpoint.interval=2 training.steps=2 zero_optimization.stage=2
expect 0 "$ZERO3D" checkpoint verify run/checkpoints
expect 0 "$ZERO3D" checkpoint show run/checkpoints
grep -q 'tensor 1 x pipeline 2 x data 1' out || fail "show does not say the pipeline stages"
step=2
resumes() { # resumes RANKS SAVED-WITH key=value...
    ranks=$1 saved=$2
    shift 2
    step=$((step + 1))
    train "$ranks" run checkpoint.interval=1 training.steps=$step "$@"
    grep -q "resuming after step $((step - 1)) of run/checkpoints (saved with $saved, " err || fail "does not resume what $saved saved"
}
resumes 1 'tensor 1 x pipeline 2 x data 1' zero_optimization.stage=0
resumes 4 'tensor 1 x data 1' $PIPELINE=4 zero_optimization.stage=3
# shellcheck disable=SC2086 # a list of words
resumes 4 'tensor 1 x pipeline 4 x data 1' $PIPELINE=2 $CHUNKS parallel.tensor_model_parallel_size=2
resumes 2 'tensor 2 x pipeline 2 x data 1' $PIPELINE=2 parallel.pipeline_schedule=gpipe zero_optimization.stage=1
# The run without stages, but for the order in which gradients are added: its losses.
train 1 alone training.steps=$step
sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' run/metrics.jsonl >a.losses
sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' alone/metrics.jsonl | paste a.losses - |
    awk '{ d = $1 / $2 - 1; bad += d * d > 1e-10 } END { exit NR != '$step' || bad }' || fail "other losses than one rank's"

# The same state, saved with and without stages, is equal; so every tensor is there, once.
train 1 one checkpoint.resume=run/checkpoints/step-00000004 checkpoint.interval=1 training.steps=5 zero_optimization.stage=0
train 2 two checkpoint.resume=one/checkpoints/step-00000005 checkpoint.interval=1 training.steps=6 $PIPELINE=2
train 2 three checkpoint.resume=one/checkpoints/step-00000005 checkpoint.interval=1 training.steps=6 $PIPELINE=2 parallel.pipeline_schedule=gpipe zero_optimization.stage=3
expect 0 "$ZERO3D" checkpoint diff two/checkpoints three/checkpoints
grep -q '^equal' out || fail "two schedules left other states"
bytes() { cat "$1"/checkpoints/"$2"/shard-*.h5 | wc -c; }
[ "$(($(bytes two step-00000006) - $(bytes one step-00000005)))" -lt 20000 ] || fail "more is written with two stages than with one"

# Out and in again: exports of a checkpoint of two stages are those of one; an imported model is trained by two.
for format in llm.c huggingface; do
    expect 0 "$ZERO3D" checkpoint export two/checkpoints out.$format --format $format
    expect 0 "$ZERO3D" checkpoint import out.$format in.$format
    expect 1 "$ZERO3D" checkpoint diff two/checkpoints in.$format
    ! grep -q '^parameter' out || fail "$format: another model came back"
    rm -rf run
    train 2 run $PIPELINE=2 checkpoint.init_from=in.$format training.steps=2 model.hidden_dropout=0 zero_optimization.stage=3
    train 1 direct checkpoint.init_from=two/checkpoints/step-00000006 training.steps=2 model.hidden_dropout=0
    head -n 1 run/metrics.jsonl | sed 's/.*"loss":\([0-9]*.[0-9]\{6\}\).*/\1/' >a.loss
    head -n 1 direct/metrics.jsonl | sed 's/.*"loss":\([0-9]*.[0-9]\{6\}\).*/\1/' | cmp -s - a.loss || fail "$format: the imported model has another loss"
done
expect 0 "$LAUNCH" -n 2 "$ZERO3D" generate two/checkpoints --prompt "Line" --tokens 8 --temperature 0
cp out text
expect 0 "$ZERO3D" generate two/checkpoints --prompt "Line" --tokens 8 --temperature 0
cmp -s out text || fail "another text on two ranks"
