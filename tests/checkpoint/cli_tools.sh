#!/bin/sh
# zero3d checkpoint list, show, verify, diff; zero3d generate.
. "$(dirname "$0")/../cli/lib.sh"
tiny
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml training.steps=2 checkpoint.interval=1 parallel.tensor_model_parallel_size=2 \
    parallel.sequence_parallel=true activation_checkpointing.partition_activations=true
grep -q 'partition_activations has no effect' err || fail "does not say that partition_activations has no effect"
expect 0 "$ZERO3D" checkpoint list run/checkpoints
[ "$(wc -l <out)" -eq 2 ] || fail "not two checkpoints are listed"
expect 0 "$ZERO3D" checkpoint show run/checkpoints
grep -q '^step: 2 ' out || fail "show: not the newest"
grep -q 'block.1/attn.c_attn.weight \[3, 4, 8, 32\]' out || fail "show: no tensors"
expect 0 "$ZERO3D" checkpoint verify run/checkpoints/step-00000001
grep -Eqx 'step 1: intact, [0-9.]+ .iB verified' out || fail "verify does not say what it verified"
expect 1 "$ZERO3D" checkpoint diff run/checkpoints/step-00000001 run/checkpoints/step-00000002
grep -q 'parameter of wte/weight: .* differ' out || fail "diff: no difference between two steps"

# No run resumes from an imported model, whether it is named or lies in the run's own folder: the way to use it is said.
expect 0 "$ZERO3D" checkpoint import "$SOURCE/tests/data/gpt2_tiny" imported
expect 1 "$ZERO3D" train tiny.yaml run.dir=other checkpoint.resume=imported
says 'imported/step-00000000 has weights only .it was imported.*: use checkpoint.init_from'
expect 1 "$ZERO3D" train tiny.yaml run.dir=other checkpoint.dir=imported checkpoint.interval=2
says 'imported/step-00000000 has weights only .it was imported.*: use checkpoint.init_from'

# The average of the parameters: the first step copies them.
for steps in 1 2; do
    expect 0 "$ZERO3D" train tiny.yaml run.dir=ema training.steps=$steps checkpoint.interval=1 optimizer.ema_decay=0.5
    expect 0 "$ZERO3D" checkpoint export ema/checkpoints plain$steps
    expect 0 "$ZERO3D" checkpoint export ema/checkpoints average$steps --ema
done
cmp -s plain1/model.safetensors average1/model.safetensors || fail "the first average is not what the parameters are"
! cmp -s plain2/model.safetensors average2/model.safetensors || fail "--ema exports the parameters"
expect 0 "$ZERO3D" checkpoint import average2 average
expect 0 "$ZERO3D" evaluate average train.bin
grep '^loss' out >by-import
expect 0 "$ZERO3D" evaluate ema/checkpoints train.bin
! grep -qx "$(cat by-import)" out || fail "the parameters have the loss of their average"
expect 0 "$LAUNCH" -n 2 "$ZERO3D" evaluate ema/checkpoints train.bin --ema
grep -qx "$(cat by-import)" out || fail "--ema evaluates something else than the average: $(cat by-import)"
expect 0 "$ZERO3D" generate average --prompt The --tokens 8
mv out by-import
expect 0 "$ZERO3D" generate ema/checkpoints --prompt The --tokens 8 --ema
cmp out by-import || fail "--ema generates with something else than the average"
expect 1 "$ZERO3D" generate run/checkpoints --prompt The --ema
says 'the checkpoint has no average of the parameters; train with optimizer.ema_decay'
expect 1 "$ZERO3D" checkpoint export run/checkpoints none --ema
says 'the checkpoint has no average of the parameters; train with optimizer.ema_decay'
expect 2 "$ZERO3D" checkpoint verify run/checkpoints --ema
says '.*--ema is for checkpoint export'

# Frozen parameters have no other tensors, and are their own average.
for steps in 1 2; do
    expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir=frozen training.steps=$steps checkpoint.interval=1 optimizer.ema_decay=0.5 \
        zero_optimization.stage=3 training.freeze="[wte, '*_proj.weight']"
done
expect 0 "$ZERO3D" checkpoint show frozen/checkpoints
grep -Eq '^parameters: [0-9.]+ K, [0-9.]+ K of them trained, each with momentum and variance and ema, fp32' out || fail "show: not what is trained"
expect 0 "$ZERO3D" checkpoint verify frozen/checkpoints
expect 1 "$ZERO3D" checkpoint diff frozen/checkpoints/step-00000001 frozen/checkpoints/step-00000002
! grep -Eq 'wte/|_proj.weight' out || fail "diff: frozen parameters were trained"
grep -q '^variance of block.0/attn.c_attn.weight: ' out || fail "diff: nothing was trained"
expect 1 "$ZERO3D" checkpoint diff ema/checkpoints frozen/checkpoints
grep -Eq '^[0-9]+ optimizer tensors .* only in the first' out || fail "diff: does not say that optimizer tensors are missing"
expect 0 "$ZERO3D" checkpoint export frozen/checkpoints frozen-average --ema
expect 0 "$ZERO3D" evaluate frozen/checkpoints train.bin --ema
expect 1 "$ZERO3D" train tiny.yaml run.dir=frozen training.steps=3 optimizer.ema_decay=0.5 zero_optimization.stage=3
says 'training.freeze: none here, wte, .*_proj.weight in the checkpoint of step 2: a resumed run must keep this value'

# The Python in docs/checkpoint-format.md runs as it stands there, and sees every tensor (where there is h5py, as in `make test-long`).
if /usr/bin/python3 -c 'import h5py' 2>/dev/null; then
    sed -n '/^```python$/,/^```$/{/^```/d;p;}' "$SOURCE/docs/checkpoint-format.md" >example.py
    expect 0 /usr/bin/python3 example.py run/checkpoints/step-00000002
    grep -q '^step 2 saved by zero3d' out || fail "the documentation's example: not the step"
    for kind in parameter momentum variance; do
        [ "$(grep -c "^$kind .* mean .* deviation" out)" -eq 28 ] || fail "the documentation's example: not 28 tensors of $kind"
    done
    ! grep -q '^momentum .* deviation 0\.0$' out || fail "the documentation's example: a tensor without momentum"
    expect 0 /usr/bin/python3 example.py imported/step-00000000
    expect 0 /usr/bin/python3 example.py frozen/checkpoints/step-00000002
    [ "$(grep -c ' deviation ' out)" -eq 28 ] || fail "the documentation's example: not 28 imported tensors"
else
    [ -z "${ZERO3D_LONG:-}" ] || fail "no h5py: the documentation's example cannot be tried"
fi

# The same state saved by other ranks is equal.
expect 0 "$ZERO3D" train tiny.yaml run.dir=other checkpoint.resume=run/checkpoints training.steps=2
expect 0 "$ZERO3D" train tiny.yaml run.dir=again checkpoint.interval=1 checkpoint.resume=run/checkpoints/step-00000001 training.steps=2
expect 0 "$ZERO3D" checkpoint diff run/checkpoints/step-00000001 run/checkpoints/step-00000001
grep -q '^equal' out || fail "diff: equal checkpoints are not"

# Text, the same on any number of ranks.
for n in 1 2; do
    expect 0 "$LAUNCH" -n $n "$ZERO3D" generate run/checkpoints --prompt 'A "line": {x}' --tokens 12 --temperature 0 --seed 3
    head -c 13 out | grep -Fxq 'A "line": {x}' || fail "the prompt does not stand in front"
    cp out text.$n
done
cmp -s text.1 text.2 || fail "generated text depends on the ranks"

# A prompt from standard input: asked for, or there; it is what --prompt gives. Ranks and the nucleus change nothing.
continued() {
    [ $? -eq 0 ] || fail "generate with standard input: $*"
    cmp -s out text.1 || fail "another text: $*"
}
same="--tokens 12 --temperature 0"
# shellcheck disable=SC2086 # options
printf 'A "line": {x}' | "$ZERO3D" generate run/checkpoints $same --prompt - >out 2>err
continued --prompt -
echo 'A "line": {x}' >prompt
# shellcheck disable=SC2086 # options
"$ZERO3D" generate run/checkpoints $same --top-p 0.5 >out 2>err <prompt
continued a file
# shellcheck disable=SC2086 # options
"$ZERO3D" generate run/checkpoints $same 'generate.prompt=A "line": {x}' >out 2>err <prompt
continued an override before standard input
# A loop's input is the loop's, where the run has a prompt.
expect 0 "$ZERO3D" train tiny.yaml run.dir=prompted training.steps=1 checkpoint.interval=1 generate.prompt=It generate.tokens=2
printf 'one\ntwo\nthree\n' | while read -r line; do
    "$ZERO3D" generate prompted/checkpoints >"said.$line" 2>err || exit 1
done || fail "generate in a loop"
for line in one two three; do
    head -c 2 "said.$line" | grep -q '^It' || fail "generate reads the loop's input"
done
# Rank 0 reads it for all.
rank() {
    number=$1
    shift
    # shellcheck disable=SC2086 # options
    RANK=$number WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$((10000 + $$ % 20000)) \
        "$ZERO3D" generate run/checkpoints $same "$@"
}
rank 1 --prompt - >out.1 2>err.1 </dev/null &
rank 0 --prompt - >out 2>err <prompt
continued --prompt - on two ranks
wait
"$LAUNCH" -n 2 "$ZERO3D" generate run/checkpoints >out 2>err <prompt && fail "two ranks read what nobody asked them to"
says 'no prompt'
expect 2 "$ZERO3D" generate run/checkpoints --prompt -
says 'standard input is empty'
printf 'a\0b' >nul
"$ZERO3D" generate run/checkpoints >out 2>err <nul && fail "a NUL byte is taken"
says 'has a NUL byte'
for n in 1 2; do
    expect 0 "$LAUNCH" -n $n "$ZERO3D" generate run/checkpoints --prompt "" --tokens 12 --top-p 0.7 --top-k 0 --seed 5
    cp out new.$n
done
cmp -s new.1 new.2 || fail "a new text depends on the ranks"
expect 0 "$ZERO3D" generate run/checkpoints generate.prompt= --tokens 12 --top-p 0.7 --top-k 0 --seed 5
cmp -s out new.1 || fail "generate.prompt= is not --prompt ''"
expect 1 "$ZERO3D" generate run/checkpoints --prompt x --top-p 1.5
says 'zero3d: --top-p 1.5: .1.5. is out of range'
expect 1 "$ZERO3D" generate run/checkpoints --prompt x --tokens 1_0
says '^zero3d: --tokens 1_0: '
expect 1 "$ZERO3D" generate run/checkpoints --prompt x data.seed=1_0
says 'override data.seed=1_0: '
: >empty
"$ZERO3D" generate run/checkpoints >out 2>err <empty && fail "no prompt, and a text"
says 'no prompt: give --prompt TEXT'
expect 1 "$ZERO3D" generate run/checkpoints
says 'no prompt: give --prompt TEXT'
expect 1 "$ZERO3D" generate run/checkpoints --prompt x --tokens many
says '^zero3d: --tokens many: '
expect 2 "$ZERO3D" generate
says 'no checkpoint: give its folder'

expect 0 "$ZERO3D" checkpoint export run/checkpoints exported
[ -s exported/model.safetensors ] || fail "nothing is exported"
[ ! -s err ] || fail "a short export says how far it is"
# Long jobs say how far they are.
ZERO3D_PROGRESS_SECONDS=0
export ZERO3D_PROGRESS_SECONDS
watched() { # watched JOB...
    expect 0 "$ZERO3D" checkpoint "$@"
    ! grep -Evq "^zero3d: $1: [0-9.]+ .*B of [0-9.]+ [KM]iB \([0-9]+ %\), .* left$" err || fail "checkpoint $1 has another progress"
    awk -F'[(% ]+' '{ for (i = 1; i < NF; i++) if ($i == "of") { bad += $(i + 3) < last; last = $(i + 3) } } END { exit bad || NR == 0 }' err ||
        fail "checkpoint $1: progress goes back, or there is none"
}
watched export run/checkpoints watched
watched import watched watched-back
cmp -s exported/model.safetensors watched/model.safetensors || fail "a watched export is another"
ZERO3D_PROGRESS_SECONDS=soon
expect 2 "$ZERO3D" checkpoint verify run/checkpoints
says "ZERO3D_PROGRESS_SECONDS='soon': expected a number of seconds"
unset ZERO3D_PROGRESS_SECONDS
expect 1 "$ZERO3D" checkpoint export nowhere exported
says 'nowhere: No such file'
cp -R exported before
expect 1 "$ZERO3D" checkpoint export run/checkpoints/step-00000001 exported
says 'exported is not empty, .* give another folder, or remove this one first'
diff -r before exported || fail "a refused export wrote"
mkdir new
expect 0 "$ZERO3D" checkpoint export run/checkpoints new
# The parameters are those of the run; what an import has not is one line.
expect 0 "$ZERO3D" checkpoint import exported back
expect 1 "$ZERO3D" checkpoint diff run/checkpoints back
printf '%s\n' '56 optimizer tensors (momentum and variance) only in the first' 'all 28 parameters are equal' | cmp -s - out ||
    fail "diff with an import"
for command in "generate exported --prompt x" "checkpoint list exported"; do
    # shellcheck disable=SC2086 # a list of words
    expect 1 "$ZERO3D" $command
    says 'exported is a Hugging Face model: import it first: zero3d checkpoint import exported DIR'
done
expect 0 "$ZERO3D" train tiny.yaml run.dir=unsaved training.steps=1
expect 1 "$ZERO3D" generate unsaved --prompt x
says 'unsaved is a run that saved no checkpoints \(checkpoint.interval was 0\)$'
expect 0 "$ZERO3D" train tiny.yaml run.dir=aside training.steps=1 checkpoint.interval=1 checkpoint.dir=kept
expect 1 "$ZERO3D" checkpoint list aside
says 'aside has no checkpoints: the run saves them in kept$'

# Damage is named; a missing shard too.
file=run/checkpoints/step-00000002/shard-00001.h5
cp $file keep
printf 'y' | dd of=$file bs=1 seek=60000 conv=notrunc 2>/dev/null
expect 1 "$ZERO3D" checkpoint verify run/checkpoints
says "rank 1's shard: .*shard-00001.h5: damaged: bytes .*: datasets /.* to /"
expect 1 "$ZERO3D" generate run/checkpoints --prompt x
says 'shard-00001.h5: damaged'
rm $file
expect 1 "$ZERO3D" checkpoint verify run/checkpoints
says 'shard-00001.h5: this file of the checkpoint is missing'
cp keep $file
expect 0 "$ZERO3D" checkpoint verify run/checkpoints

# A folder without checkpoints; one with another step's name; a disk that is not there.
mkdir nothing others
touch others/file
for tool in list show verify; do
    expect 1 "$ZERO3D" checkpoint $tool nothing
    says 'nothing has no checkpoints \(it is empty\)'
    expect 1 "$ZERO3D" checkpoint $tool others
    says 'others has no checkpoints: it holds other files only'
    expect 1 "$ZERO3D" checkpoint $tool run
    says 'run has no checkpoints itself: .* run/checkpoints'
done
mv run/checkpoints/step-00000001 run/checkpoints/step-00000020
for tool in show verify; do
    expect 1 "$ZERO3D" checkpoint $tool run/checkpoints
    says 'run/checkpoints/step-00000020 holds the checkpoint of step 1: .* the name step-00000001'
done
expect 1 "$ZERO3D" checkpoint list run/checkpoints
grep -q '^ *20  cannot be used: .*step-00000020 holds the checkpoint of step 1' out || fail "list: another step's name is not noticed"
grep -q '^ *2  tensor' out || fail "list: the good one is not listed"
expect 1 "$ZERO3D" train tiny.yaml training.steps=4 checkpoint.interval=1
says 'run/checkpoints/step-00000020 holds the checkpoint of step 1'
[ -d run/checkpoints/step-00000020 ] || fail "the folder with another step's name was moved"
mv run/checkpoints/step-00000020 run/checkpoints/step-00000001
ln -s /unmounted/step-00000012 run/checkpoints/step-00000012
expect 1 "$ZERO3D" train tiny.yaml training.steps=4 checkpoint.interval=1
says 'run/checkpoints/step-00000012 is a link to a folder that cannot be opened'
[ -L run/checkpoints/step-00000012 ] || fail "a link was removed"
expect 2 "$ZERO3D" checkpoint
expect 2 "$ZERO3D" checkpoint prune run
expect 2 "$ZERO3D" checkpoint diff run/checkpoints
