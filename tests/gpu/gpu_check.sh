#!/bin/sh
# scripts/gpu-check.sh where there is no GPU: its parts over the host plugin, the table and the result file; and what must not look like a
# success. ZERO3D: bin/gpu_check.
. "$(dirname "$0")/../cli/lib.sh"
script=$SOURCE/scripts/gpu-check.sh
export BUILD="$work/build" ZERO3D_GRACE_SECONDS=0 TMPDIR="$work"

# ends PATTERN: the result file's last line.
ends() { tail -n 1 result | grep -Eq -- "$1" || fail "the result ends with: $(tail -n 1 result)"; }
has() { [ "$(grep -Ec -- "$2" result)" -eq "$1" ] || fail "$(grep -Ec -- "$2" result) times in the result, not $1: $2"; }

# A GPU that cannot be used, and no time: nothing is tried, or nothing more.
expect 1 env ZERO3D_SHIM_GPU=old "$script" --no-gpu "$ZERO3D" "$work/result"
ends '^gpu-check: FAILED: the GPU cannot be used: .*compute capability 6.0; this build needs 8.0'
has 0 '^## '
expect 1 env GPU_CHECK_SECONDS=0 "$script" --no-gpu "$ZERO3D" "$work/result"
ends '^gpu-check: FAILED: not everything held'
has 13 '^## .*FAILED \(left out, the time is over\)'

# A part that fails: an NCCL that cannot be asked to keep the order of two communicators' collectives.
expect 1 env GPU_CHECK_ONLY='NCCL|tokens/s' ZERO3D_SHIM_NCCL=old "$script" --no-gpu "$ZERO3D" "$work/result"
ends '^gpu-check: FAILED: not everything held'
has 1 '^## NCCL.*FAILED \(exit code'
has 1 'its version is 22005; install NCCL 2.27 or later'
has 1 '^## .*: held, 1 checks in '

# Only that one, and what was left out: now everything holds.
expect 0 env ZERO3D_SHIM_TRACE=1 "$script" --no-gpu "$ZERO3D" --continue "$work/result"
ends '^gpu-check: held$'
has 1 '^[0-9]+ s: [0-9]{3} checks held, 0 parts failed'
has 13 '^## .*: held, [0-9]+ checks in '
has 1 '^    info +gpt2-124m +.* [0-9.]+ ms a step, .* without a graph '
has 1 '^    info +llama-8b, 6 layers, 2k +.* [0-9.]+ ms a step, .* without a graph '
has 1 '^    info +gemm nt bf16 32x128x32 '
has 3 '^    info +attention_backward plain bf16 8x16x8 '
mv result.log result
has 1 '^ok +fp16 overflow .* graph in stage 3, .* bit for bit'
has 1 '^ok +fp32 dropout tp 2 .* losses ' # from one of two ranks
for epilogue in 164 192; do # GELU with its input kept, its gradient: fused, not only right
    grep -q "epilogue $epilogue of .*: there" result || fail "no product with epilogue $epilogue"
done
has 2 "NCCL's windows: none$" # where ranks use a buffer differently
for call in ncclReduceScatter ncclAllGather; do # of a bucket one, on two ranks of two communicators
    has 4 "^NCCL: $call, rows of 100$"
    has 4 "^NCCL: $call, rows of 101$"
done

# The host plugin does what is beside compute as late as it may; here as early, and with NCCL's collectives, in graphs
# too; ranks without MPI give each other its id.
expect 0 env ZERO3D_SHIM_ORDER=early ZERO3D_LAUNCH=tcp "$LAUNCH" -n 2 "$ZERO3D" --tiny train
grep -q "NCCL's windows: data, world$" err || fail "no windows"
grep -q '^ok .* collectives of at most 500 elements, .*: bit for bit' out || fail "no small buckets"
# Registering fails on one rank: none has windows, and the run goes on.
expect 0 env ZERO3D_SHIM_NCCL=window ZERO3D_LAUNCH=tcp "$LAUNCH" -n 2 "$ZERO3D" --tiny train
grep -q "NCCL's windows: data" err && fail "windows that not all ranks have"
grep -q "NCCL's windows: none: rank 1: NCCL: ncclCommWindowRegister of the data group on rank 1: " err || fail "no word of it"

# Two groups' collectives in any order would wait for each other.
expect 1 env NCCL_LAUNCH_ORDER_IMPLICIT=0 ZERO3D_LAUNCH=tcp "$LAUNCH" -n 2 "$ZERO3D" --tiny --steps=1 train
grep -q 'NCCL_LAUNCH_ORDER_IMPLICIT is 0 in the environment: .*; unset it' err || fail "an order of calls that nobody keeps"

# The limits of all parts, with the four tools of the sanitizer, are 25 minutes.
awk '/^ *part [0-9]+ / { sum += /compute-sanitizer/ ? 4 * $2 : $2 } END { exit !(sum > 600 && sum <= 1500) }' "$script" ||
    fail "the parts of gpu-check.sh take too long"

# What --dry-run would have built is not there.
expect 1 "$script" --built "$work/result"
ends '^gpu-check: FAILED: --built: there is no .*/bin/gpu_check; --dry-run builds it'

# Nothing to build with, or no GPU: one line, before anything is done, and nothing of an earlier run is left.
mkdir tools
for tool in sh cat date dirname env grep head mkdir python3 sed tail tee; do
    ln -s "$(command -v $tool)" tools/$tool
done
nothing() {
    echo 'gpu-check: held' >result
    expect 1 env -u CUDACXX PATH="$work/tools" CUDA_HOME=/nowhere "$script" "$work/result"
    [ "$(cat out err)" = "gpu-check: $1" ] || fail "not: $1"
    ends "^gpu-check: FAILED: "
    has 0 '^gpu-check: held'
    [ ! -e build/configure.log ] || fail "it began to build"
}
nothing "no nvcc: set CUDACXX to the CUDA compiler"
ln -s /bin/true tools/nvcc
nothing "no cmake on this machine"
for tool in cmake cc c++; do ln -s /bin/true tools/$tool; done
nothing "this machine shows no GPU (nvidia-smi, /dev/nvidia0): nothing was built or run; --dry-run builds"
