#!/bin/sh
# Configurations: what is wrong is named with its place; what is written reads back; the reference page is that of this table.
. "$(dirname "$0")/lib.sh"

refuse() { # refuse PATTERN TEXT: config, plan and a text given as a file
    printf '%b' "$2" >bad.yaml
    expect 1 "$ZERO3D" config bad.yaml
    says "$1"
    expect 1 "$ZERO3D" plan bad.yaml
    says "$1"
}
refuse 'bad.yaml:2:3: .*num_layer' 'model:\n  num_layer: 4\n'
refuse 'bad.yaml:1:' 'train_batch_size: -4\n'
refuse 'bad.yaml:2:' 'model:\n\thidden_size: 64\n'
refuse 'bad.yaml:1:' 'train_batch_size: 1e30\n'
refuse 'bad.yaml:1:' 'train_batch_size: 8 # first\ntrain_batch_size: 16\n'
refuse 'bad.yaml:1:' 'zero_optimization: { stage: 4 }\n'
refuse 'bad.yaml:1:' 'bf16: { enabled: maybe }\n'
refuse 'bad.yaml' 'model: [\n'
refuse 'bad.yaml' 'model: { hidden_size: 100, num_attention_heads: 3 }\n'
refuse 'bad.yaml' 'fp16: { enabled: true }\nbf16: { enabled: true }\n'
expect 1 "$ZERO3D" config nowhere.yaml
says 'nowhere.yaml'
mkdir folder
expect 1 "$ZERO3D" config folder
says 'folder'
head -c 100000 /dev/urandom >noise.yaml
expect 1 "$ZERO3D" config noise.yaml
says 'noise.yaml'

# A part of a configuration reads well; it is no run: nobody means GPT-2 124M by saying nothing.
echo 'train_batch_size: 8' >part.yaml
expect 0 "$ZERO3D" config part.yaml
for command in plan train; do
    expect 1 "$ZERO3D" $command part.yaml run.dir=none
    says 'part.yaml: there is no model; write its sizes in a section `model`'
done
expect 1 "$ZERO3D" prove part.yaml part.yaml
says 'part.yaml: there is no model'
[ ! -e none ] || fail "a run without a model"
expect 0 "$ZERO3D" plan part.yaml model.num_layers=2

# By default a run keeps its model; its steps are few here, so it does at its end only.
tiny
sed '/^checkpoint/d' tiny.yaml >keeps.yaml
expect 0 "$ZERO3D" train keeps.yaml run.dir=keeps
grep -q '^checkpoints at the end, in keeps/checkpoints' out || fail "no word of checkpoints"
[ -e keeps/checkpoints/step-00000005 ] || fail "the model is lost"
grep -q '^  interval: 1000$' keeps/config.yaml || fail "what auto became"
grep -q '^  granularity: none$' keeps/config.yaml || fail "what auto became"
grep -q '^activation  granularity auto: none: a rank needs ' out || fail "no word of what is kept"

: >empty.yaml
expect 0 "$ZERO3D" config empty.yaml
expect 1 "$ZERO3D" config empty.yaml modle.hidden_size=4
says 'modle.hidden_size'
expect 2 "$ZERO3D" config empty.yaml model.hidden_size
says 'key=value'
expect 0 "$ZERO3D" config empty.yaml zero_optimization.reduce_bucket_size=5e8
grep -q '500000000' out || fail "5e8 is not the integer 500000000"

for file in "$SOURCE"/configs/*.yaml; do
    expect 0 "$ZERO3D" config "$file"
    cp out first.yaml
    expect 0 "$ZERO3D" config first.yaml
    cmp -s out first.yaml || fail "$file: what config writes does not read back to the same"
    expect 0 "$ZERO3D" plan "$file"
done

# All errors at once, one line each below the first, and once on several ranks.
printf 'model:\n  num_layer: 4\ntrain_batch_size: -4\ntraining: { steps: 1_0 }\n' >bad.yaml
expect 1 "$ZERO3D" config bad.yaml optimizer.params.lr=fast
says 'bad.yaml:2:3: unknown key model.num_layer'
[ "$(grep -c '^        ' err)" -eq 3 ] || fail "three more errors were expected"
grep -q '^        bad.yaml:4:20: training.steps: .1_0. has an underscore' err || fail "the underscore"
grep -q '^        override optimizer.params.lr=fast: ' err || fail "the override"
expect fail "$LAUNCH" -n 2 "$ZERO3D" train bad.yaml optimizer.params.lr=fast
[ "$(grep -c 'unknown key model.num_layer' err)" -eq 1 ] || fail "told by more than one rank"
[ "$(grep -c 'underscore' err)" -eq 1 ] || fail "told by more than one rank"

# The DeepSpeed examples of Hugging Face's documentation run, with their offload to the host.
tiny
for example in hf_zero2 hf_zero3; do
    file=$SOURCE/tests/data/configs/$example.json
    cp "$file" $example.json
    expect 0 "$LAUNCH" -n 2 "$ZERO3D" train $example.json model.num_layers=2 model.hidden_size=32 \
        model.num_attention_heads=4 model.seq_length=32 model.vocab_size=257 data.train=train.bin \
        training.steps=3 run.dir=runs/$example
    [ "$(wc -l <runs/$example/metrics.jsonl)" -ge 3 ] || fail "$example did not train"
    expect 0 "$ZERO3D" config --from-deepspeed $example.json
    cp out converted.yaml
    expect 0 "$ZERO3D" config converted.yaml
done
expect 0 "$ZERO3D" config --from-megatron "$SOURCE/tests/data/configs/megatron_gpt.sh"
cp out converted.yaml
expect 0 "$ZERO3D" config converted.yaml
expect 1 "$ZERO3D" config --from-megatron nowhere
says 'nowhere'
expect 2 "$ZERO3D" config --from-megatron a --from-deepspeed b

# An override switches off a block that is not supported.
printf 'zero_optimization: { offload_optimizer: { device: nvme } }\ncurriculum_learning: { enabled: true }\n' >offload.yaml
expect 1 "$ZERO3D" config offload.yaml curriculum_learning.enabled=false
says 'offload.yaml:1:43: zero_optimization.offload_optimizer.device: nvme needs a folder'
[ "$(wc -l <err)" -eq 1 ] || fail "an override did not take back the error of curriculum_learning"
expect 0 "$ZERO3D" config offload.yaml curriculum_learning.enabled=false zero_optimization.offload_optimizer.device=none

# Options that a command does not have.
expect 2 "$ZERO3D" train keeps.yaml --steps 10
says '--steps 10 is what --record-rank R records .*; for the length of the run write training.steps=10'
expect 2 "$ZERO3D" train --config empty.yaml
says 'the file comes without an option'
expect 2 "$ZERO3D" generate x --top_p 0.5
says 'did you mean --top-p?'
expect 2 "$ZERO3D" generate x --max-new-tokens 5
says 'did you mean --tokens?'
expect 2 "$ZERO3D" plan empty.yaml --frobnicate 5
says 'unknown option --frobnicate; see'

# What only an override left without effect is told.
printf 'data: { train: train.bin, validation: train.bin }\ntraining: { eval_interval: 7 }\n' >eval.yaml
expect 0 "$ZERO3D" config eval.yaml data.validation=
says 'training.eval_interval has no effect without data.validation'
grep -q 'eval_interval: 100' out || fail "the default is not back"

expect 0 "$ZERO3D" config
cp out described
"$ZERO3D" config --keys | while read -r key; do
    grep -q "${key##*.}" described || fail "config does not describe $key"
done || exit 1
"$ZERO3D" config --markdown | cmp -s - "$SOURCE/docs/configuration.md" ||
    fail "docs/configuration.md is old: zero3d config --markdown > docs/configuration.md"
