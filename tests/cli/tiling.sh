#!/bin/sh
# model.tiling: training, plans, checkpoints and exports of any tiling, generation, and values that are refused. ZERO3D_LONG: more ways.
. "$(dirname "$0")/lib.sh"
tiny

ranks=2
train() { # train FOLDER ARGUMENT...
    folder=$1
    shift
    set -- "$ZERO3D" train tiny.yaml run.dir="$folder" zero_optimization.stage=3 checkpoint.interval=3 "$@"
    [ $ranks -eq 1 ] || set -- "$LAUNCH" -n $ranks "$@"
    expect 0 "$@"
}
losses() {
    sed -n 's/.*"step": *\([0-9]*\),.*"loss": *\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"
}
near() { # near A B COUNT: losses of the same steps, but for the order of sums
    paste "$1" "$2" | awk -v count="$3" '{ d = ($2 - $4) / $2; if ($1 != $3 || d > 1e-6 || d < -1e-6) exit 1; n++ } END { exit n != count }'
}

# Training is that of whole blocks, and goes on with another tiling.
train whole
losses whole >whole.losses
tail -n 2 whole.losses >last.losses
[ -n "${ZERO3D_LONG:-}" ] && all=2 || all=""
for tiling in $all 4 auto; do
    train tiled$tiling model.tiling=$tiling
    losses tiled$tiling >tiled.losses
    near whole.losses tiled.losses 5 || fail "tiling $tiling: other losses than without"
done
cmp -s whole.losses tiled.losses && fail "tiles add in another order; if they do not, the documentation says so wrongly"
set -- "whole 4" "tiled4 2"
[ -z "${ZERO3D_LONG:-}" ] || set -- "$@" "tiled4 1"
for from; do
    rm -rf other
    train other model.tiling="${from#* }" checkpoint.resume="${from% *}/checkpoints/step-00000003"
    losses other >other.losses
    near last.losses other.losses 2 || fail "from $from: other losses than without"
done

# First values, checkpoints and exports are those of whole blocks (of one rank), to the bit.
for model in "model.type=gpt2" "model.type=llama model.intermediate_size=48 model.attention_bias=true"; do
    for tiling in 1 4; do
        async=true ranks=2
        [ $tiling = 4 ] || async=false ranks=1
        rm -rf zero$tiling hf$tiling
        # shellcheck disable=SC2086 # a list of arguments
        train zero$tiling $model model.tiling=$tiling optimizer.params.lr=0 training.steps=1 checkpoint.interval=1 checkpoint.async=$async
        expect 0 "$ZERO3D" checkpoint verify zero$tiling/checkpoints
        expect 0 "$ZERO3D" checkpoint export zero$tiling/checkpoints hf$tiling
    done
    "$ZERO3D" checkpoint diff zero1/checkpoints zero4/checkpoints >out 2>err
    grep -q 'parameters are equal' out || fail "$model: the tiled checkpoint has other parameters"
    cmp hf1/model.safetensors hf4/model.safetensors || fail "$model: another export"
    cmp hf1/config.json hf4/config.json || fail "$model: another config.json"
done

# Generation.
expect 0 "$ZERO3D" generate whole/checkpoints --prompt Line --tokens 20 --temperature 0
cp out by-whole
expect 0 "$LAUNCH" -n 2 "$ZERO3D" generate whole/checkpoints --prompt Line --tokens 20 --temperature 0 model.tiling=4
cmp -s out by-whole || fail "tiles say something else"

# A plan shows the largest group that is gathered, and its memory.
for tiling in 1 auto 8; do
    expect 0 "$ZERO3D" plan tiny.yaml --ranks 2 zero_optimization.stage=3 model.hidden_size=256 model.tiling=$tiling
    sed -n 's/.*the largest group has \([0-9.]*\) K: .*/\1/p' out | head -n 1 >largest$tiling
    sed -n 's/^  device arena *\([0-9]*\) .*/\1/p' out >arena$tiling
done
awk '{ n[NR] = $1 } END { exit !(n[1] > 2.9 * n[2] && n[2] == n[3]) }' largest1 largestauto largest8 ||
    fail "largest groups: $(cat largest1 largestauto largest8)"
awk '{ n[NR] = $1 } END { exit !(n[1] > n[2] + 8 * 256 * 256 * 4) }' arena1 arenaauto || fail "arenas: $(cat arena1 arenaauto)"

# A block keeps its own input only.
for number in auto 1; do
    expect 0 "$ZERO3D" plan tiny.yaml model.tiling=4 --print-program activation_checkpointing.number_checkpoints=$number
    grep -c ' save_input ' out >>saved
done
[ "$(tr '\n' ' ' <saved)" = "2 1 " ] || fail "activation checkpoints: $(cat saved)"

# What cannot be cut.
expect 1 "$ZERO3D" plan tiny.yaml model.tiling=3
says 'model.tiling=3: 3 tiles cannot share the MLP.s 128 columns equally; write 2 or 4$'
expect 1 "$ZERO3D" plan tiny.yaml --ranks 2 parallel.tensor_model_parallel_size=2 model.type=llama model.intermediate_size=60 model.tiling=4
says 'model.tiling=4: 4 tiles cannot share the MLP.s 30 columns of a tensor rank equally; write 3 or 5$'
expect 1 "$ZERO3D" plan tiny.yaml model.tiling=0
says "model.tiling=0: '0' is out of range"
