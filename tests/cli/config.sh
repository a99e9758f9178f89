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

# A file without a model is no run: nobody means GPT-2 124M by saying nothing.
echo 'train_batch_size: 8' >part.yaml
echo 'model: {}' >nothing.yaml
for command in config plan train; do
    expect 1 "$ZERO3D" $command nothing.yaml run.dir=none
    says 'nothing.yaml: there is no model'
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
expect 0 "$ZERO3D" train keeps.yaml run.dir=keeps training.gemm.fp32=auto --verbose
grep -q '^checkpoints at the end, in keeps/checkpoints' out || fail "no word of checkpoints"
[ -e keeps/checkpoints/step-00000005 ] || fail "the model is lost"
grep -q '^  interval: 1000$' keeps/config.yaml || fail "what auto became"
grep -q '^  granularity: none$' keeps/config.yaml || fail "what auto became"
grep -q '^products    training.gemm.fp32 auto: [a-z]*$' out || fail "no word of the product's method"
grep -q '^activation  granularity auto: none: a rank needs ' out || fail "no word of what is kept"
# The start fits on a screen, and says what most readers want; the rest is for --verbose.
sed -n '/^$/q;p' out >whole-start
expect 0 "$ZERO3D" train keeps.yaml run.dir=short
sed -n '/^$/q;p' out >short-start
[ "$(wc -l <short-start)" -le 12 ] && [ "$(wc -l <whole-start)" -gt "$(wc -l <short-start)" ] || fail "the start has $(wc -l <short-start) lines, with --verbose $(wc -l <whole-start)"
for line in model ranks device method batch optimizer data weights memory checkpoints 'run folder'; do
    grep -q "^$line  *[^ ]" short-start || fail "the start does not say: $line"
done

: >empty.yaml
expect 1 "$ZERO3D" config empty.yaml
says 'empty.yaml: there is no model'
expect 1 "$ZERO3D" config empty.yaml modle.hidden_size=4
says 'modle.hidden_size'
expect 2 "$ZERO3D" config empty.yaml model.hidden_size
says 'key=value'
expect 0 "$ZERO3D" config empty.yaml model.num_layers=2 zero_optimization.reduce_bucket_size=4e8
grep -q '400000000' out || fail "4e8 is not the integer 400000000"

for file in "$SOURCE"/configs/*.yaml; do
    expect 0 "$ZERO3D" config "$file" --all
    cp out first.yaml
    expect 0 "$ZERO3D" config "$file"
    [ "$(wc -l <out)" -le 50 ] || fail "$file: config prints more than a screen"
    cp out changed.yaml
    expect 0 "$ZERO3D" config changed.yaml --all
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
    expect 0 "$ZERO3D" config converted.yaml model.num_layers=2
done
expect 0 "$ZERO3D" config --from-megatron "$SOURCE/tests/data/configs/megatron_gpt.txt"
cp out converted.yaml
expect 0 "$ZERO3D" config converted.yaml

# The launch line of a script with branches: the shell says what it is, and trains two steps with it.
cat >launch.sh <<'SCRIPT'
#!/bin/bash
HIDDEN=16
HIDDEN=32
if [ "${RECOMPUTE:-false}" = true ]; then
    MORE="--recompute-granularity full"
else
    MORE=""
fi
train() {
    python() { :; }
    python convert.py --num-layers 7 --lr 5
    $BEFORE torchrun --nproc-per-node ${TP:-1} pretrain_gpt.py --num-layers $((8 / 4)) --lr 1e-3 \
        --hidden-size $HIDDEN --num-attention-heads 4 --seq-length 32 --vocab-size 257 \
        --hidden-dropout 0 --micro-batch-size 1 --global-batch-size 2 --train-samples 4 \
        --max-position-embeddings 32 --data-path train.bin --split 100,0,0 $MORE
}
train
SCRIPT
BEFORE="$ZERO3D config --from-megatron --" expect 0 bash launch.sh
cp out launched.yaml
grep -q 'num_layers: 2' out || fail "not the value that the shell computes"
grep -q 'hidden_size: 32' out || fail "not the last value of a variable"
grep -q 'granularity: none' out || fail "the branch that is not taken is taken"
expect 0 "$ZERO3D" plan launched.yaml --ranks 1
expect 0 "$LAUNCH" -n 1 "$ZERO3D" train launched.yaml training.device=cpu run.dir=runs/launched
[ "$(wc -l <runs/launched/metrics.jsonl)" -ge 2 ] || fail "two steps were expected"
RECOMPUTE=true BEFORE="$ZERO3D config --from-megatron --" expect 0 bash launch.sh
grep -q 'granularity: full' out || fail "the branch is not taken"
expect 1 "$ZERO3D" config --from-megatron launch.sh
says "launch.sh:2: an assignment: only a shell can read this.*--from-megatron --"
[ ! -s out ] || fail "a refused script has a configuration"
expect 2 "$ZERO3D" config --from-megatron launch.sh --bf16
printf 'compute_environment: LOCAL_MACHINE\ndeepspeed_config: { zero_stage: 3 }\n' >accelerate.yaml
expect 1 "$ZERO3D" config --from-deepspeed accelerate.yaml
says 'a file of Accelerate'
[ ! -s out ] || fail "a refused file has a configuration"
expect 1 "$ZERO3D" config --from-deepspeed "$SOURCE/tests/data/configs/megatron_gpt.txt"

# Of the grid (tests/base/base_config_convert.cc) some trains two steps.
small="model.num_layers=2 model.hidden_size=32 model.num_attention_heads=4 model.seq_length=32 model.vocab_size=257
    data.train=train.bin training.steps=2 training.device=cpu train_micro_batch_size_per_gpu=1"
converts=0
trains_converted() { # trains_converted OPTION TEXT: convert, config, plan, two steps on two ranks
    converts=$((converts + 1))
    printf '%s' "$2" >"grid.$converts"
    expect 0 "$ZERO3D" config "$1" "grid.$converts"
    cp out grid.yaml
    # shellcheck disable=SC2086
    expect 0 "$ZERO3D" config grid.yaml $small
    # shellcheck disable=SC2086
    expect 0 "$ZERO3D" plan grid.yaml $small --ranks 2
    # shellcheck disable=SC2086
    expect 0 "$LAUNCH" -n 2 "$ZERO3D" train grid.yaml $small "run.dir=runs/grid.$converts"
    [ "$(wc -l <"runs/grid.$converts/metrics.jsonl")" -ge 2 ] || fail "$2 did not train"
}
trains_converted --from-deepspeed '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "sub_group_size": 1e14,
    "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}, "prefetch_bucket_size": 100}}'
trains_converted --from-deepspeed '{"_note": 1, "bf16": {"enabled": "auto"}, "wandb": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}}}'
trains_converted --from-deepspeed '{"tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 2,
    "offload_param": {"device": "cpu"}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 4000}}}'
trains_converted --from-megatron '--lr 1e-3 --zero-stage 1 --checkpoint-activations --model-parallel-size 2 --sequence-parallel'
trains_converted --from-megatron 'ARGS:
  --lr: 1e-3
  --swiglu: true
  --normalization: RMSNorm
  --position-embedding-type: rope
  --disable-bias-linear: true
  --hidden-dropout: 0.0
  --use-distributed-optimizer: true'

# One check for config, plan and train; generate and evaluate take it.
printf 'zero_optimization: { stage: 3, offload_param: { device: cpu } }\n' >alone.yaml
expect 1 "$ZERO3D" config alone.yaml model.num_layers=2
says 'in training the host steps these parameters'

# Text of a list as it stands.
expect 0 "$ZERO3D" config empty.yaml model.num_layers=2 'data.train=corpus #2.bin'
grep -q 'path: "corpus #2.bin"' out || fail "a # in a path is no comment"
expect 1 "$ZERO3D" config empty.yaml "data.train='corpus' # 2"
says "would be a comment"
expect 1 "$ZERO3D" config --from-megatron nowhere
says 'nowhere'
expect 2 "$ZERO3D" config --from-megatron a --from-deepspeed b

# An override switches off a block that is not supported.
printf 'zero_optimization: { offload_optimizer: { device: nvme } }\ncurriculum_learning: { enabled: true }\n' >offload.yaml
expect 1 "$ZERO3D" config offload.yaml model.num_layers=2 curriculum_learning.enabled=false
says 'offload.yaml:1:43: zero_optimization.offload_optimizer.device: nvme needs a folder'
[ "$(wc -l <err)" -eq 1 ] || fail "an override did not take back the error of curriculum_learning"
expect 0 "$ZERO3D" config offload.yaml model.num_layers=2 curriculum_learning.enabled=false zero_optimization.offload_optimizer.device=none

# Options that a command does not have.
expect 2 "$ZERO3D" train keeps.yaml --steps 10
says '--steps 10 is what --record-rank R records .*; for the length of the run write training.steps=10'
expect 2 "$ZERO3D" train --config empty.yaml
says 'the file comes without an option'
expect 2 "$ZERO3D" generate x --top_p 0.5
says 'did you mean --top-p?'
expect 2 "$ZERO3D" generate x --max-new-tokens 5
says 'did you mean --tokens?'
expect 2 "$ZERO3D" plan empty.yaml --hardwear x
says 'did you mean --hardware[?]'
expect 2 "$ZERO3D" plan empty.yaml --frobnicate 5
says 'unknown option --frobnicate; see'

# What only an override left without effect is told.
printf 'data: { train: train.bin, validation: train.bin }\ntraining: { eval_interval: 7 }\n' >eval.yaml
expect 0 "$ZERO3D" config eval.yaml model.num_layers=2 data.validation=
says 'training.eval_interval has no effect without data.validation'
! grep -q 'eval_interval' out || fail "the default is not back"

# A pasted DeepSpeed file: notes, the type's last, then what is wrong.
cp "$SOURCE/tests/data/configs/hf_zero3.json" ds.json
expect 1 "$ZERO3D" config ds.json
[ "$(wc -l <err)" -le 12 ] || fail "the answer is long"
[ "$(grep -vc '^zero3d: note: ' err)" -eq 1 ] || fail "not all but the error are notes"
tail -n 1 err | grep -q '^zero3d: error: ds.json: there is no model; .*`zero3d config --from-deepspeed ds.json > run.yaml`' || fail "the error is not last"
tail -n 2 err | head -n 1 | grep -q 'auto, so this is fp32; ' || fail "nobody is told of fp32"
expect 1 "$ZERO3D" config ds.json model.num_layer=2 train_batch_size=x
tail -n 2 err >last
printf 'zero3d: error: override model.num_layer=2: unknown key model.num_layer; did you mean model.num_layers?\n        override ' >wanted
head -c "$(wc -c <wanted)" last | cmp -s - wanted || fail "the errors are not last, or not told from notes"

# How long a run is, in passes over its data.
tiny
sed 's/steps: 5/epochs: 0.1/' tiny.yaml >epochs.yaml
expect 0 "$ZERO3D" config epochs.yaml
grep -q '^  steps: auto$' out && grep -q '^  epochs: 0.1$' out || fail "config decides what only the data says"
expect 0 "$ZERO3D" plan epochs.yaml --ranks 2 data.train=nowhere.bin checkpoint.interval=epoch
expect 1 "$ZERO3D" config tiny.yaml checkpoint.interval=epoch
says 'checkpoint.interval=epoch: epoch needs training.epochs'
expect 0 "$ZERO3D" config tiny.yaml --all training.steps=1000
cp out all.yaml
expect 0 "$ZERO3D" config all.yaml training.epochs=2
[ ! -s err ] || fail "a note about training.steps that nobody wrote"
expect 0 "$ZERO3D" train epochs.yaml scheduler.type=WarmupDecayLR checkpoint.interval=100
steps=$(sed -n 's/^ *training.epochs 0.1: \([0-9]*\) steps; a pass is [0-9]* samples$/\1/p' out)
[ "${steps:-0}" -gt 5 ] || fail "the start does not say how many steps epochs are"
grep -q "^  steps: $steps$" run/config.yaml && grep -q "total_num_steps: $steps$" run/config.yaml || fail "config.yaml has other steps"
expect 0 "$ZERO3D" train epochs.yaml scheduler.type=WarmupDecayLR checkpoint.interval=100
grep -q "complete (step $steps)" out || fail "the same epochs are another run"
expect 1 "$ZERO3D" train epochs.yaml data.train=nowhere.bin
says 'training.epochs needs the data to count its steps: data.train: nowhere.bin: '
expect 1 "$ZERO3D" submit epochs.yaml --nodes 1 --ranks-per-node 1 --time 10 data.train=nowhere.bin checkpoint.interval=100
says 'training.epochs needs the data '
expect 0 "$ZERO3D" submit epochs.yaml --nodes 1 --ranks-per-node 1 --time 10 --dry-run data.train=nowhere.bin checkpoint.interval=100

expect 0 "$ZERO3D" config
cp out described
"$ZERO3D" config --keys | while read -r key; do
    grep -q "${key##*.}" described || fail "config does not describe $key"
done || exit 1
"$ZERO3D" config --markdown | cmp -s - "$SOURCE/docs/configuration.md" ||
    fail "docs/configuration.md is old: zero3d config --markdown > docs/configuration.md"
