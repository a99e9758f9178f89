#!/bin/sh
# The cuda device where it cannot be: one clear line on one rank and on several, before any step. Needs no GPU, and no CUDA either: only
# the last part uses the plugin, where it was built.
. "$(dirname "$0")/lib.sh"
tiny
export ZERO3D_GRACE_SECONDS=1
sed 's/, gemm: {[^}]*}//' tiny.yaml >cuda.yaml

# run OVERRIDE...: it must fail, and nothing be trained; run_two: on two ranks.
run() {
    rm -rf run
    # shellcheck disable=SC2086 # a list of words
    expect fail timeout 60 ${launch:-} "$ZERO3D" train cuda.yaml training.device=cuda "$@"
    [ ! -e run/metrics.jsonl ] || fail "it began to train"
}
run_two() {
    launch="$LAUNCH -n 2"
    run "$@"
    launch=""
}

# run_on GPU OVERRIDE...: on a GPU of the host plugin that cannot be used.
run_on() {
    export ZERO3D_SHIM_GPU="$1"
    shift
    run "$@"
    unset ZERO3D_SHIM_GPU
}

# No plugin, where it is looked for.
export ZERO3D_PLUGIN_PATH="$PWD/nowhere:$PWD/empty"
mkdir empty
run
says "no libzero3d_cuda.so in $PWD/nowhere:$PWD/empty; .*ZERO3D_PLUGIN_PATH"

# What is no library, no plugin, or one of another version.
mkdir letters plain other
echo 'no library' >letters/libzero3d_cuda.so
ZERO3D_PLUGIN_PATH=$PWD/letters run
says 'libzero3d_cuda.so cannot be loaded: '
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
ZERO3D_PLUGIN_PATH=$PWD/plain run
says 'libzero3d_cuda.so is not a zero3d plugin'
ZERO3D_PLUGIN_PATH=$PWD/other run_two
says 'libzero3d_cuda.so was built from another version: .*same source'

# Options of the other device.
for key in training.tf32=true training.attention=own training.collectives=nccl training.deterministic=false training.cuda_graph=on; do
    expect fail "$ZERO3D" train cuda.yaml $key
    says "$key: has no effect on the cpu device"
done
for key in training.nccl.min_ctas=2 training.nccl.max_ctas=2 training.nccl.traffic_class=3 training.nccl.windows=false; do
    expect fail "$ZERO3D" train cuda.yaml $key
    says "$key: has no effect on the cpu device"
    run training.collectives=host $key
    says "$key: has no effect with training.collectives host"
done
run training.nccl.min_ctas=3 training.nccl.max_ctas=2
says 'training.nccl.min_ctas=3: 3 is more than training.nccl.max_ctas 2'
run training.gemm.fp32=sgemm
says 'training.gemm.fp32=sgemm: has no effect on the cuda device'
run bf16.enabled=true training.tf32=true
says 'training.tf32=true: has no effect in a 16-bit run'
for key in training.digest=true training.trace_steps=1; do
    run training.cuda_graph=on $key
    says "training.cuda_graph=on: on is not possible with ${key%=*}, which looks at every instruction"
done
run training.attention=cudnn
says 'training.attention=cudnn: cudnn computes attention only in bf16 and fp16'

# GPUs that cannot be used, or whose host cannot, by the plugin's own code over the host's library calls (tests/device/cuda_shim).
if [ -e "${HOST_PLUGIN:-}/libzero3d_cuda.so" ]; then
    export ZERO3D_PLUGIN_PATH="$HOST_PLUGIN"
    run_on 'no driver'
    says 'no NVIDIA driver on this machine'
    run_on none
    says 'no GPU that this process may use'
    run_on old
    says 'compute capability 6.0; this build needs 8.0 or later'
    run_on new
    says 'no kernels for GPU 0 .*compute capability 13.0.; build it with CMAKE_CUDA_ARCHITECTURES=130-real'
    run_on small training.peak_tflops=1
    says 'does not fit: rank 0 needs .*, but has .* too little device memory'
    run_on huge training.peak_tflops=1 model.hidden_size=8192 model.num_layers=200 checkpoint.interval=1 checkpoint.async=true
    says 'does not fit: rank 0 needs .* too little host memory; .*: checkpoint.async=false needs'
    run_two training.peak_tflops=1
    says 'fewer GPUs than ranks: ranks 0 and 1 on .* training.collectives: host'
    run_two training.peak_tflops=1 training.collectives=host training.cuda_graph=on
    says 'training.cuda_graph: on is not possible here: collectives use host memory .*; use auto'
    expect 0 "$LAUNCH" -n 2 "$ZERO3D" train cuda.yaml training.device=cuda training.steps=1 training.collectives=host training.peak_tflops=1
    grep -q '^graph       none: collectives use host memory' out || fail "no word of the graph"
    # A capture that fails: the run goes on without, unless a graph was asked for.
    export ZERO3D_SHIM_CAPTURE=refuse
    set -- "$ZERO3D" train cuda.yaml training.device=cuda training.peak_tflops=1 model.seq_length=4 training.steps=3
    expect 0 "$@" run.dir=refused
    says 'training.cuda_graph auto: steps run without a graph: step 2, capturing its graph: cuda device: cudaStreamEndCapture: '
    expect fail "$@" run.dir=refused_on training.cuda_graph=on
    says 'step 2, capturing its graph: cuda device: cudaStreamEndCapture: '
    unset ZERO3D_SHIM_CAPTURE
    # A step as a graph, and a run that goes on from one: the same numbers as without.
    for graph in on off; do
        set -- "$ZERO3D" train cuda.yaml training.device=cuda training.peak_tflops=1 training.cuda_graph=$graph run.dir=$graph checkpoint.interval=2 model.seq_length=4
        expect 0 "$@" training.steps=2
        expect 0 "$@" training.steps=4
        sed 's/,"seconds".*"comm_bytes"/,"comm_bytes"/; s/,"outside".*//' $graph/metrics.jsonl >$graph.jsonl
    done
    [ "$(wc -l <on.jsonl)" -eq 4 ] && cmp on.jsonl off.jsonl || fail "a graph changes the run"
    sed 's/,"seconds".*"comm_bytes"/,"comm_bytes"/; s/,"outside".*//' refused/metrics.jsonl | head -n 2 >refused.jsonl
    head -n 2 off.jsonl | cmp - refused.jsonl || fail "a capture that fails changes the run"
    # Llama with all that its kernels know, trained and continued: as on the cpu.
    cat >llama.yaml <<END
model: { type: llama, num_layers: 2, hidden_size: 32, num_attention_heads: 4, num_key_value_heads: 2, sliding_window: 20, qk_norm: true, seq_length: 32, vocab_size: 257 }
train_batch_size: 4
optimizer: { params: { lr: 1e-2 } }
data: { train: train.bin }
checkpoint: { interval: 4 }
training: { steps: 4, threads: 1, log_interval: 1, peak_tflops: 1 }
run: { tensorboard: false }
END
    for device in cpu cuda; do
        expect 0 "$ZERO3D" train llama.yaml training.device=$device run.dir=$device
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
    export CUDA_VISIBLE_DEVICES=
    run
    says 'no NVIDIA driver on this machine|no GPU that this process may use'
fi
