#!/bin/sh
# The cuda device where it cannot be: one clear line on one rank and on several, before any step. Needs no GPU, and no CUDA either: only
# the last part uses the plugin, where it was built.
. "$(dirname "$0")/lib.sh"
tiny
export ZERO3D_GRACE_SECONDS=1 ZERO3D_PLUGIN_PATH="$PWD/nowhere:$PWD/empty" ZERO3D_SHIM_GPU="" ZERO3D_SHIM_CAPTURE=""
sed 's/, gemm: {[^}]*}//' tiny.yaml >cuda.yaml
launch=""
two="$LAUNCH -n 2"

# refuses PATTERN OVERRIDE...: nothing is trained.
refuses() {
    pattern=$1
    shift
    rm -rf run
    # shellcheck disable=SC2086 # a list of words
    expect fail timeout 60 $launch "$ZERO3D" train cuda.yaml training.device=cuda "$@"
    says "$pattern"
    [ ! -e run/metrics.jsonl ] || fail "it began to train"
}

# No plugin, where it is looked for; what is no library, no plugin, or one of another version.
mkdir empty letters plain other
refuses "no libzero3d_cuda.so in $PWD/nowhere:$PWD/empty; .*ZERO3D_PLUGIN_PATH"
echo 'no library' >letters/libzero3d_cuda.so
ZERO3D_PLUGIN_PATH=$PWD/letters refuses 'libzero3d_cuda.so cannot be loaded: '
echo 'int nothing;' >plain.c
cat >other.c <<END
#include "src/device/plugin/plugin.h"
const z3d_plugin *z3d_plugin_tables(void);
const z3d_plugin *z3d_plugin_tables(void) {
    static const z3d_plugin other = {.magic = Z3D_PLUGIN_MAGIC, .interface = Z3D_PLUGIN_INTERFACE + 1, .bytes = Z3D_PLUGIN_BYTES};
    return &other;
}
END
for name in plain other; do
    "${CC:-cc}" -shared -fPIC -I "$SOURCE" $name.c -o $name/libzero3d_cuda.so || fail "compiling $name.c"
done
ZERO3D_PLUGIN_PATH=$PWD/plain refuses 'libzero3d_cuda.so is not a zero3d plugin'
launch=$two ZERO3D_PLUGIN_PATH=$PWD/other refuses 'libzero3d_cuda.so was built from another version: .*same source'

# NCCL's key where it does not run, and what is asked of NCCL itself.
expect fail "$ZERO3D" train cuda.yaml training.nccl.windows=true
says 'training.nccl.windows=true: has no effect on the cpu device'
refuses 'training.nccl.windows=true: has no effect with training.collectives host' training.collectives=host training.nccl.windows=true
refuses 'training.nccl.max_ctas.*NCCL_MAX_CTAS in the environment' training.nccl.max_ctas=2

# numbers RUN: what a run must have equal.
numbers() { sed 's/,"seconds".*"comm_bytes"/,"comm_bytes"/; s/,"outside".*//' "$1/metrics.jsonl"; }

# By the plugin's own code over the host's library calls (tests/device/cuda_shim).
if [ -e "${HOST_PLUGIN:-}/libzero3d_cuda.so" ]; then
    export ZERO3D_PLUGIN_PATH="$HOST_PLUGIN"
    # GPUs that cannot be used, or whose host cannot.
    ZERO3D_SHIM_GPU='no driver' refuses 'no NVIDIA driver on this machine'
    ZERO3D_SHIM_GPU=none refuses 'no GPU that this process may use'
    ZERO3D_SHIM_GPU=old refuses 'compute capability 6.0; this build needs 8.0 or later'
    ZERO3D_SHIM_GPU=new refuses 'no kernels for GPU 0 .*compute capability 13.0.; build it with CMAKE_CUDA_ARCHITECTURES=130-real'
    # What libraries take beside the plan, in a GPU of 1 GiB.
    ZERO3D_SHIM_GPU=small refuses 'does not fit: rank 0 needs .*, but has .* too little device memory; .* 1.12 GiB more are left for CUDA' \
        bf16.enabled=true
    # Memory that cannot be pinned: the driver has its own, or not.
    for pin in registered none; do
        ZERO3D_SHIM_PIN=$pin "$ZERO3D" train cuda.yaml training.device=cuda training.steps=1 run.dir=$pin >out 2>err
        echo $? >$pin.code
    done
    [ "$(cat registered.code)" -eq 0 ] || fail "no memory of the driver's own"
    [ "$(cat none.code)" -ne 0 ] && says 'cuda device: cannot pin .* of host memory: cudaErrorInvalidValue'
    ZERO3D_SHIM_GPU=huge refuses 'does not fit: rank 0 needs .* too little host memory; .*: checkpoint.async=false needs' \
        model.hidden_size=8192 model.num_layers=200 checkpoint.interval=1 checkpoint.async=true
    launch=$two refuses 'fewer GPUs than ranks: ranks 0 and 1 on .* training.collectives: host'
    launch=$two refuses 'training.cuda_graph: on is not possible here: collectives use host memory .*; use auto' \
        training.collectives=host training.cuda_graph=on
    expect 0 "$LAUNCH" -n 2 "$ZERO3D" train cuda.yaml training.device=cuda training.steps=1 training.collectives=host --verbose
    grep -q '^graph       none: collectives use host memory' out || fail "no word of the graph"
    # A step as a graph, and a run that goes on from one: the same numbers as without. So has a run whose capture fails, unless a graph
    # was asked for.
    for graph in off on auto; do
        [ $graph != auto ] || ZERO3D_SHIM_CAPTURE=refuse
        for steps in 2 4; do
            expect 0 "$ZERO3D" train cuda.yaml training.device=cuda training.cuda_graph=$graph run.dir=$graph checkpoint.interval=2 \
                model.seq_length=4 training.steps=$steps
        done
        [ "$(wc -l <$graph/metrics.jsonl)" -eq 4 ] || fail "not four steps"
        [ "$(numbers off)" = "$(numbers $graph)" ] || fail "cuda_graph=$graph changes the run"
    done
    grep -q 'training.cuda_graph auto: steps run without a graph: step 4, capturing its graph: cuda device: cudaStreamEndCapture: ' err ||
        fail "no word of the capture that failed"
    expect fail "$ZERO3D" train cuda.yaml training.device=cuda training.cuda_graph=on run.dir=refused
    says 'step 2, capturing its graph: cuda device: cudaStreamEndCapture: '
    ZERO3D_SHIM_CAPTURE=""
    # A run that goes on keeps GELU's output or not, as it did before: the library's GELU and ours have other bits.
    for steps in 2 4; do
        expect 0 "$ZERO3D" train cuda.yaml training.device=cuda bf16.enabled=true run.dir=resumed checkpoint.interval=2 \
            model.seq_length=4 training.steps=$steps
    done
    expect 0 "$ZERO3D" train cuda.yaml training.device=cuda bf16.enabled=true run.dir=whole model.seq_length=4 training.steps=4
    [ "$(numbers whole)" = "$(numbers resumed)" ] || fail "a resumed run has other bits"
    # Llama with all that its kernels know, trained and continued: as on the cpu.
    for device in cpu cuda; do
        expect 0 "$ZERO3D" train cuda.yaml training.device=$device run.dir=$device model.type=llama model.num_key_value_heads=2 \
            model.sliding_window=20 model.qk_norm=true train_batch_size=4 optimizer.params.lr=1e-2 checkpoint.interval=4 training.steps=4
        sed 's/.*"loss":\([0-9]*\.[0-9]\{3\}\).*/\1/' $device/metrics.jsonl >$device.losses
        expect 0 "$ZERO3D" generate cpu/checkpoints training.device=$device training.threads=1 --prompt "Line 1" --tokens 30 --temperature 0
        mv out $device.text
    done
    [ "$(wc -l <cpu.losses)" -eq 4 ] && cmp cpu.losses cuda.losses || fail "Llama has other losses on the cuda device"
    cmp cpu.text cuda.text || fail "Llama has other words on the cuda device"
fi

# The plugin itself, with every GPU hidden.
unset ZERO3D_PLUGIN_PATH
if [ -e "$(dirname "$ZERO3D")/libzero3d_cuda.so" ]; then
    CUDA_VISIBLE_DEVICES="" refuses 'no NVIDIA driver on this machine|no GPU that this process may use'
fi
