#!/bin/sh
# zero3d evaluate: transformers' losses, equal bits on every topology (ZERO3D_LONG: on more), texts and token files, and what is refused.
. "$(dirname "$0")/lib.sh"
export ZERO3D_GRACE_SECONDS=1 # what mpirun waits after a failure, twice
fixtures="$SOURCE/tests/data"

number() { sed -n "s/.*\"$1\": \([-0-9.e+]*\|null\)[,}].*/\1/p" "${2:-out}"; }
near() { # near NAME VALUE: within 1e-5 of it, relatively
    awk -v a="$(number "$1")" -v b="$2" 'BEGIN { d = a / b - 1; exit !(a != "" && d < 1e-5 && d > -1e-5) }' || fail "$1: expected $2"
}

# ---- transformers' numbers: 5.23 in fp32, on the same windows ----

text="$fixtures/gpt2_tiny/text.txt"
expect 0 "$ZERO3D" checkpoint import "$fixtures/gpt2_tiny" gpt2
expect 0 "$ZERO3D" evaluate gpt2 "$text" --json
near loss 0.6687772297498484
near perplexity 1.9518491977388996
near bits_per_byte 0.4555975315376334
[ "$(number tokens)" = 2862 ] && [ "$(number bytes)" = 6061 ] || fail "other tokens or bytes"
mv out text.json

{ # 300 tokens in llm.c's format
    printf '\210\330\064\001\001\000\000\000\054\001\000\000'
    head -c 1012 /dev/zero
    i=0
    # shellcheck disable=SC2059 # it is the format that has the bytes
    while [ $i -lt 300 ]; do printf "\\$(printf %03o $((i * i * 7 % 61)))\\000" && i=$((i + 1)); done
} >llama.bin
expect 0 "$ZERO3D" checkpoint import "$fixtures/hf_models/llama" llama
expect 0 "$ZERO3D" evaluate llama llama.bin --json
near perplexity 135.59354869972108
[ "$(number tokens)" = 299 ] && [ "$(number bytes)" = null ] && [ "$(number bits_per_byte)" = null ] || fail "bytes of what?"
expect 0 "$ZERO3D" evaluate llama llama.bin
grep -q '^bits per byte  n/a: ' out || fail "the reason is missing: $(cat out)"

# ---- equal bits ----

same() { # same FILE RANKS ARGUMENT...: as in FILE
    as=$1 ranks=$2
    shift 2
    if [ "$ranks" -eq 1 ]; then
        expect 0 "$ZERO3D" evaluate "$@" --json
    else
        expect 0 "$LAUNCH" -n "$ranks" "$ZERO3D" evaluate "$@" --json
    fi
    cmp "$as" out || fail "$ranks ranks, $*: other bits: $(cat "$as")"
}
for stage in 0 3; do same text.json 2 gpt2 "$text" zero_optimization.stage=$stage; done
if [ -n "${ZERO3D_LONG:-}" ]; then
    for stage in 1 2; do same text.json 2 gpt2 "$text" zero_optimization.stage=$stage; done
    same text.json 4 gpt2 "$text"
fi
same text.json 4 gpt2 "$text" zero_optimization.stage=3 parallel.pipeline_model_parallel_size=2
same text.json 1 gpt2 "$text" zero_optimization.stage=3 zero_optimization.offload_param.device=nvme zero_optimization.offload_param.nvme_path=.
expect 0 "$ZERO3D" evaluate gpt2 "$text" --json train_micro_batch_size_per_gpu=3 bf16.enabled=true
mv out three.json
! cmp -s three.json text.json || fail "bf16 changes nothing"
same three.json 4 gpt2 "$text" train_micro_batch_size_per_gpu=3 bf16.enabled=true
expect 0 "$LAUNCH" -n 2 "$ZERO3D" evaluate gpt2 "$text" --json parallel.tensor_model_parallel_size=2
near loss 0.6687772297498484

# ---- a run of its own: its last validation, as bytes, JSON lines and text ----

tiny
expect 0 "$ZERO3D" train tiny.yaml checkpoint.interval=5 data.validation=train.bin training.eval_steps=1000000 zero_optimization.stage=0
validation=$(sed -n 's/.*"validation_loss":\([0-9.]*\).*/\1/p' run/metrics.jsonl | tail -n 1)
expect 0 "$ZERO3D" evaluate run/checkpoints train.bin --json
near loss "$validation"
mv out bin.json
printf '{"text": "Line one.", "other": "x"}\n\n{"text": ""}\n{"other": "y", "text": "Line two, longer."}\n' >lines.jsonl
expect 0 "$ZERO3D" evaluate run/checkpoints lines.jsonl --json
[ "$(number bytes)" = 25 ] && [ "$(number tokens)" = 27 ] || fail "lines: $(cat out)" # each has an end; nothing predicts the first byte
expect 1 "$ZERO3D" evaluate run/checkpoints lines.jsonl --json-key none
says 'lines.jsonl:1: --json-key none: .*it has: text, other'
printf '{\n "text": "Line one."\n}\n' >pretty.json
expect 1 "$ZERO3D" evaluate run/checkpoints pretty.json # raw JSON is no text
says 'pretty.json:1: '
printf '\n[{"text": "Line one."},\n{"text": "Line two, longer."}]' >array.txt
expect 0 "$ZERO3D" evaluate run/checkpoints array.txt --json
[ "$(number bytes)" = 25 ] || fail "array: $(cat out)"
mkdir tmp
expect 0 env TMPDIR="$work/tmp" "$ZERO3D" evaluate run/checkpoints text
rmdir tmp || fail "a folder is left"
grep -q '^checkpoint  *step 5$' out || fail "the step is not said: $(cat out)"
grep -q '^tokens  *[0-9]*, [0-9]* bytes, in [0-9]* windows of 32$' out || fail "lines for people: $(cat out)"

# ---- what is refused ----

expect 2 "$ZERO3D" evaluate
says 'no checkpoint'
expect 2 "$ZERO3D" evaluate run/checkpoints
says 'no data'
expect 2 "$ZERO3D" evaluate run/checkpoints zero_optimization.stage=3
says 'no data'
expect 1 "$ZERO3D" evaluate run/checkpoints none.txt
says 'none.txt'
: >empty.txt
expect 1 env ZERO3D_LAUNCH=tcp "$LAUNCH" -n 2 "$ZERO3D" evaluate run/checkpoints empty.txt
says 'empty.txt: the file is empty'
printf 'a' >one.txt
expect 1 "$ZERO3D" evaluate run/checkpoints one.txt
says 'one.txt: .*1 tokens, but one sample needs 2'
head -c 64 /dev/zero >zeros
expect 1 "$ZERO3D" evaluate run/checkpoints zeros
says 'zeros: it is not text'
mkfifo pipe
expect 1 "$ZERO3D" evaluate run/checkpoints pipe
says 'pipe: it is a device or pipe, not a token file'
expect 1 "$ZERO3D" evaluate llama "$text"
says 'tokenizer'
expect 1 "$ZERO3D" evaluate llama train.bin
says 'outside the vocabulary'
