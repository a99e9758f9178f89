#!/bin/sh
# scripts/gpu-check.sh [--dry-run] [RESULT-FILE]: what only a machine with a GPU can show, in under 8 minutes. Needs a C and a C++ compiler,
# CMake and the CUDA toolkit; cuBLAS, cuDNN and NCCL are also found in Python's site-packages. Builds bin/gpu_check alone (ZERO3D_BARE: no MPI,
# no other library), compares every kernel and whole training runs with the cpu device, looks for bad accesses where compute-sanitizer
# is, then measures. With MPI (mpicc and mpirun) ranks that share the GPU are checked too. --dry-run: builds, and runs nothing.
# Ends with 0 if every check held. RESULT-FILE: gpu-check.txt in the build folder.
set -u
cd "$(dirname "$0")/.." || exit 1
dry=""
if [ "${1:-}" = --dry-run ]; then
    dry=yes
    shift
fi
build=${BUILD:-build-gpu}
result=${1:-$build/gpu-check.txt}
begin=$(date +%s)
budget=${GPU_CHECK_SECONDS:-450}

stop() {
    echo "gpu-check: $*" >&2
    exit 1
}

# ---- what there is ----

find_nvcc() {
    for candidate in "${CUDACXX:-}" "$(command -v nvcc)" "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"; do
        if [ -n "$candidate" ] && [ -x "$candidate" ]; then
            echo "$candidate"
            return
        fi
    done
}

# Folders under Python's site-packages (nvidia/*/lib, nvidia/*/include) that hold NVIDIA's libraries.
find_site() {
    command -v python3 >/dev/null || return 0
    python3 - "$1" <<'END'
import glob, os, site, sys, sysconfig
roots = set(site.getsitepackages() + [site.getusersitepackages(), sysconfig.get_paths()["purelib"]])
folders = [f for r in roots for f in glob.glob(os.path.join(r, "nvidia", "*", sys.argv[1]))]
print(":".join(sorted(f for f in folders if os.path.isdir(f))))
END
}

nvcc=$(find_nvcc)
[ -n "$nvcc" ] || stop "no nvcc: set CUDACXX to the CUDA compiler"
for tool in cmake cc c++; do
    command -v $tool >/dev/null || stop "no $tool on this machine"
done
toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
libraries=$(find_site lib)
headers=$(find_site include)
# The toolkit's own come first: its headers are the ones that nvcc knows.
export LD_LIBRARY_PATH="$toolkit/lib64:$toolkit/lib:${libraries:+$libraries:}${LD_LIBRARY_PATH:-}"
export LIBRARY_PATH="$toolkit/lib64:$toolkit/lib:${libraries:+$libraries:}${LIBRARY_PATH:-}"
export CPATH="${CPATH:+$CPATH:}$headers"

# ---- build ----

generator=""
command -v ninja >/dev/null && generator="-G Ninja"
mkdir -p "$build" "$(dirname "$result")"
echo "building $build/bin/gpu_check with $nvcc"
# shellcheck disable=SC2086 # a list of words
cmake -S . -B "$build" $generator -DZERO3D_BARE=ON -DZERO3D_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc" ${CMAKE_ARGS:-} >"$build/configure.log" 2>&1 ||
    stop "cmake failed: $(grep -m 1 -A 3 'CMake Error' "$build/configure.log" | tr '\n' ' ')"
cmake --build "$build" --target gpu_check zero3d_cuda -j "$(nproc)" >"$build/build.log" 2>&1 ||
    stop "the build failed: $(grep -m 1 -E 'error|Error' "$build/build.log")"
echo "built in $(($(date +%s) - begin)) s"
check=$build/bin/gpu_check
if [ -n "$dry" ]; then
    echo "dry run: nothing was run"
    exit 0
fi

# ---- run ----

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; then
    stop "the build is ready, but this machine shows no GPU (nvidia-smi -L): nothing was run"
fi
failed=0
{
    echo "zero3d GPU check, $(date -u +%Y-%m-%dT%H:%MZ), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
    "$nvcc" --version | tail -n 2
} >"$result"

# part SECONDS TITLE COMMAND...: one part of the report, within its own time and what is left of the whole.
part() {
    limit=$1 title=$2
    shift 2
    left=$((budget - ($(date +%s) - begin)))
    [ $limit -lt $left ] || limit=$left
    echo "" | tee -a "$result"
    if [ $limit -lt 5 ]; then
        echo "== $title: left out, the time is over" | tee -a "$result"
        failed=1
        return
    fi
    echo "== $title" | tee -a "$result"
    timeout $limit "$@" >"$build/part.txt" 2>&1
    code=$?
    tee -a "$result" <"$build/part.txt"
    if [ $code -ne 0 ]; then
        echo "== $title: FAILED (exit code $code)" | tee -a "$result"
        failed=1
    fi
}

part 60 "kernels against the cpu device" "$check" ops
part 60 "kernels, own attention" "$check" --own-attention ops
part 60 "training against the cpu device, one rank" "$check" train
part 60 "training, own attention" "$check" --own-attention train
if command -v mpirun >/dev/null && command -v mpicc >/dev/null; then
    BUILD_MPI="$build-mpi"
    # shellcheck disable=SC2086 # a list of words
    if cmake -S . -B "$BUILD_MPI" $generator -DZERO3D_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc" ${CMAKE_ARGS:-} >"$build/configure-mpi.log" 2>&1 &&
        cmake --build "$BUILD_MPI" --target gpu_check zero3d_cuda -j "$(nproc)" >"$build/build-mpi.log" 2>&1; then
        part 60 "two ranks on the GPU, data parallel" scripts/launch -n 2 "$BUILD_MPI/bin/gpu_check" --host-collectives train
        part 60 "two ranks on the GPU, tensor parallel" scripts/launch -n 2 "$BUILD_MPI/bin/gpu_check" --host-collectives --tensor 2 train
    else
        echo "== several ranks: not run, zero3d's libraries are not all here ($build/configure-mpi.log)" | tee -a "$result"
    fi
else
    echo "== several ranks: not run, there is no MPI" | tee -a "$result"
fi
if command -v compute-sanitizer >/dev/null; then
    part 90 "compute-sanitizer memcheck" compute-sanitizer --error-exitcode 9 "$check" --own-attention --steps 2 ops
else
    echo "== compute-sanitizer: not run, it is not here" | tee -a "$result"
fi
part 90 "GPT-2, deterministic" "$check" speed
part 60 "GPT-2, attention in any order" "$check" --fast-attention speed
part 45 "kernels at the shapes of GPT-2 1.5B, batch 4" "$check" kernels

# ---- the short table ----

echo ""
{
    echo ""
    echo "held    $(grep -c '^ok ' "$result")"
    echo "failed  $(grep -c '^FAILED' "$result")"
    grep -E '^(FAILED|ok +(speed|memory|losses|stages|products)|== .*(FAILED|not run|left out))' "$result"
} >"$build/table.txt"
cat "$build/table.txt" | tee -a "$result"
echo "in $(($(date +%s) - begin)) s; all of it in $result"
exit $failed
