#!/bin/sh
# scripts/gpu-check.sh [--dry-run | --no-gpu PROGRAM] [RESULT-FILE]: checks what only a machine with
# a GPU can show, in under 8 minutes. Needs a C and a C++ compiler, CMake and the CUDA toolkit;
# cuBLAS, cuDNN and NCCL are also found in Python's site-packages. Builds bin/gpu_check alone
# (ZERO3D_BARE: no MPI, no other library), compares every kernel and whole training runs with the
# cpu device, looks for bad accesses if compute-sanitizer is installed, then measures.
# --dry-run: builds, and runs nothing. --no-gpu PROGRAM: builds nothing, and runs this bin/gpu_check
# at tiny sizes over the plugin that ZERO3D_PLUGIN_PATH names; this tests the script. The exit code
# is 0 if every check passed; only then the last line of RESULT-FILE (gpu-check.txt in the build
# folder) says so.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build-gpu}
mode=run
check=$build/bin/gpu_check
tiny=""
case ${1:-} in
--dry-run)
    mode=build
    shift
    ;;
--no-gpu)
    mode=check
    check=${2:?--no-gpu wants a program}
    tiny="--tiny --steps 1"
    shift 2
    ;;
esac
result=${1:-$build/gpu-check.txt}
begin=$(date +%s)
budget=${GPU_CHECK_SECONDS:-450}

seconds_left() { echo $((budget - ($(date +%s) - begin))); }
say() { echo "$*" | tee -a "$result"; }

# Results of an earlier run must not count for this one.
mkdir -p "$build" "$(dirname "$result")" && : >"$result" || exit 1
stop() {
    echo "gpu-check: $*" >&2
    echo "gpu-check: FAILED: $*" >>"$result"
    exit 1
}

# ---- what this machine has ----

find_nvcc() {
    for candidate in "${CUDACXX:-}" "$(command -v nvcc)" "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"; do
        if [ -n "$candidate" ] && [ -x "$candidate" ]; then
            echo "$candidate"
            return
        fi
    done
}

# The toolkit's folder, as nvcc knows it: nvcc itself may be a link or a script.
find_toolkit() {
    top=$("$nvcc" --dryrun -x cu -c /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')
    (cd "${top:-$(dirname "$nvcc")/..}" && pwd -P)
}

# Folders under Python's site-packages (nvidia/*/lib, nvidia/*/include) that hold NVIDIA's
# libraries.
find_site() {
    command -v python3 >/dev/null || return 0
    python3 - "$1" 2>/dev/null <<'END'
import glob, os, sys
folders = [f for p in sys.path for f in glob.glob(os.path.join(p, "nvidia", "*", sys.argv[1]))]
print(":".join(sorted(set(f for f in folders if os.path.isdir(f)))))
END
}

# path FOLDERS...: a search path without empty parts, which would mean the working folder.
path() { printf '%s:' "$@" | sed 's/::*/:/g; s/^://; s/:$//'; }

show_gpu() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null; }

look_around() {
    nvcc=$(find_nvcc)
    [ -n "$nvcc" ] || stop "no nvcc: set CUDACXX to the CUDA compiler"
    for tool in cmake cc c++; do
        command -v $tool >/dev/null || stop "no $tool on this machine"
    done
    if [ $mode = run ] && { ! command -v nvidia-smi >/dev/null || [ -z "$(show_gpu name)" ]; }; then
        stop "this machine shows no GPU (nvidia-smi): nothing was built or run; --dry-run builds"
    fi
    toolkit=$(find_toolkit)
    # The toolkit's own folders come first: nvcc uses its headers.
    LD_LIBRARY_PATH=$(path "$toolkit/lib64" "$toolkit/lib" "$(find_site lib)" "${LD_LIBRARY_PATH:-}")
    LIBRARY_PATH=$(path "$toolkit/lib64" "$toolkit/lib" "$(find_site lib)" "${LIBRARY_PATH:-}")
    # Unlike CPATH, this is searched after the folders that cmake names: a package's headers may be
    # of another version.
    C_INCLUDE_PATH=$(path "${C_INCLUDE_PATH:-}" "$(find_site include)")
    export LD_LIBRARY_PATH LIBRARY_PATH C_INCLUDE_PATH
}

# ---- build ----

# make_check FOLDER SECONDS TARGETS ARGUMENT...: configures again and builds; its logs stay in the
# folder. A new warning of another compiler is not an error here: it must not waste the time with a
# GPU.
make_check() {
    folder=$1 limit=$2 targets=$3
    shift 3
    generator=""
    command -v ninja >/dev/null && generator="-G Ninja"
    mkdir -p "$folder"
    # shellcheck disable=SC2086 # lists of words
    timeout -k 5 "$((limit / 3))" cmake --fresh -S . -B "$folder" $generator -DZERO3D_WERROR=OFF "$@" ${CMAKE_ARGS:-} >"$folder/configure.log" 2>&1 &&
        timeout -k 5 "$((limit * 2 / 3))" cmake --build "$folder" --target $targets -j "$(nproc)" >"$folder/build.log" 2>&1
}

why_not() { # of the build in folder $1
    if [ ! -s "$1/build.log" ]; then
        echo "cmake: $(grep -m 1 -A 3 'CMake Error' "$1/configure.log" | tr -s '\n ' ' ')($1/configure.log)"
    else
        echo "$(grep -m 1 -iE '(error|undefined|cannot)' "$1/build.log" || echo 'it took too long') ($1/build.log)"
    fi
}

build_bare() {
    # Only for this GPU: half the time. An old nvidia-smi does not support this query.
    capability=$(show_gpu compute_cap | head -n 1 | tr -d .)
    architectures=""
    case $mode-$capability in
    run-*[!0-9]* | run- | build-*) ;;
    run-90) architectures="-DCMAKE_CUDA_ARCHITECTURES=90a-real" ;;
    *) architectures="-DCMAKE_CUDA_ARCHITECTURES=$capability-real" ;;
    esac
    echo "building $check with $nvcc"
    # shellcheck disable=SC2086 # one word or none
    make_check "$build" "$(($(seconds_left) * 2 / 3))" "gpu_check zero3d_cuda" -DZERO3D_BARE=ON -DZERO3D_CUDA=ON \
        -DCMAKE_CUDA_COMPILER="$nvcc" $architectures || stop "not built: $(why_not "$build")"
    echo "built in $(($(date +%s) - begin)) s"
}

# ---- run ----

failed=0
parts=0

# part SECONDS TITLE COMMAND...: one part of the report, within its own time and what is left of the
# whole.
part() {
    limit=$1 title=$2
    shift 2
    left=$(seconds_left)
    [ "$limit" -lt "$left" ] || limit=$left
    parts=$((parts + 1))
    say ""
    if [ "$limit" -lt 5 ]; then
        say "== $title: FAILED (left out, the time is over)"
        failed=1
        return
    fi
    say "== $title"
    timeout -k 5 "$limit" "$@" >"$build/part.txt" 2>&1
    code=$?
    tee -a "$result" <"$build/part.txt"
    case $code in
    0) ;;
    124 | 137) say "== $title: FAILED (not over within $limit s)" ;;
    *) say "== $title: FAILED (exit code $code)" ;;
    esac
    [ $code -eq 0 ] || failed=1
}

sanitize() {
    for sanitizer in compute-sanitizer "$toolkit/bin/compute-sanitizer"; do
        command -v "$sanitizer" >/dev/null || continue
        for tool in memcheck racecheck synccheck; do
            part 60 "compute-sanitizer $tool" "$sanitizer" --tool $tool --error-exitcode 9 "$check" --own-attention ops
        done
        return
    done
    say "== compute-sanitizer: not run, it is not here"
}

# After the simple parts, each in its own process, so errors with graphs hide nothing else.
# shellcheck disable=SC2086 # $tiny is a list of words
graphs() {
    part 60 "steps as CUDA graphs against plain steps" "$check" $tiny graph
    part 90 "GPT-2 with a graph and without" "$check" $tiny graph-speed
}

# Without cuDNN, only on a machine with a GPU. The program has no MPI: its ranks connect over TCP.
# shellcheck disable=SC2086 # $tiny is a list of words
run_parts() {
    export ZERO3D_LAUNCH=tcp
    part 60 "kernels against the cpu device" "$check" ops
    [ $mode = check ] || part 60 "kernels, own attention" "$check" --own-attention ops
    part 60 "training against the cpu device, one rank" "$check" $tiny train
    [ $mode = check ] || part 60 "training, own attention" "$check" --own-attention train
    part 90 "GPT-2, deterministic" "$check" $tiny speed
    [ $mode = check ] || part 60 "GPT-2, attention in any order" "$check" --fast-attention speed
    part 45 "kernels at the shapes of GPT-2 1.5B, batch 4" "$check" $tiny kernels
    part 60 "NCCL, two processes on the GPU" "$check" nccl
    part 60 "two ranks on the GPU, data parallel" scripts/launch -n 2 "$check" --host-collectives $tiny train
    part 60 "two ranks on the GPU, tensor parallel" scripts/launch -n 2 "$check" --host-collectives --tensor 2 $tiny train
    graphs
    [ $mode = check ] || sanitize
}

# The short table: failures, skipped parts, numbers.
table() {
    grep -E '^(FAILED|ok +(speed|memory|losses|stages|products|graph)|== .*: (FAILED|not run))' "$result" >"$build/table.txt"
    say ""
    tee -a "$result" <"$build/table.txt"
    say "$parts parts in $(($(date +%s) - begin)) s: $(grep -c '^ok ' "$result") checks held, $(grep -c '^FAILED' "$result") failed"
}

if [ $mode != check ]; then
    look_around
    build_bare
fi
if [ $mode = build ]; then
    echo "gpu-check: a dry run, nothing was run" >"$result"
    cat "$result"
    exit 0
fi
echo "zero3d GPU check, $(date -u +%Y-%m-%dT%H:%MZ), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)" >"$result"
if [ $mode = run ]; then
    show_gpu name,driver_version,memory.total >>"$result"
    "$nvcc" --version | tail -n 2 >>"$result"
else
    echo "no GPU: $check over ${ZERO3D_PLUGIN_PATH:-the plugin beside it}" >>"$result"
fi
run_parts
table
[ $failed = 0 ] || stop "not everything held; all of it in $result"
say "gpu-check: held"
