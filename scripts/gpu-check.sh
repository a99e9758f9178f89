#!/bin/sh
# scripts/gpu-check.sh [--dry-run | --built | --no-gpu PROGRAM] [--continue] [PAGE]: checks and
# measures a machine with a GPU, in at most half an hour; the first 6 minutes give correctness and
# tokens/s. Needs a C and a C++ compiler, CMake, the CUDA toolkit and
# compute-sanitizer; cuBLAS, cuDNN and NCCL are also found in Python's site-packages. Builds
# bin/gpu_check alone (ZERO3D_BARE: no MPI, no other library).
# Compares with PyTorch if python3 has it with CUDA, and with llm.c if LLMC names a folder with
# train_gpt2cu. PAGE (gpu-check.md in the build folder) gets each part's verdict and numbers; a .log
# next to it gets all output. The exit code is 0 if every check passed; only then the last line of
# PAGE says so.
# --continue: keeps the parts of PAGE that passed, and runs the others.
# GPU_CHECK_SECONDS (1800: 25 minutes for all parts, the rest for the build): if the time is over,
# the parts that remain are left out.
# GPU_CHECK_ONLY: a pattern of the titles of parts; others are left out.
# --dry-run: builds, and runs nothing (CMAKE_ARGS=-DCMAKE_CUDA_ARCHITECTURES=90a-real: for an H100).
# --built: builds nothing, and runs the build of --dry-run, also on another machine.
# --no-gpu PROGRAM: builds nothing, and runs this bin/gpu_check at tiny sizes over the plugin that
# ZERO3D_PLUGIN_PATH names; this tests the script.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build-gpu}
mode=run
check=$build/bin/gpu_check
tiny=""
continued=no
built=no
usage="usage: scripts/gpu-check.sh [--dry-run | --built | --no-gpu PROGRAM] [--continue] [PAGE]"
case ${1:-} in
-h | --help)
    echo "$usage"
    sed -n '2,/^set -u/{/^#/s/^# //p}' "$0"
    exit 0
    ;;
--dry-run)
    mode=build
    shift
    ;;
--built)
    built=yes
    shift
    ;;
--no-gpu)
    mode=check
    check=${2:?--no-gpu wants a program}
    tiny=--tiny
    shift 2
    ;;
esac
if [ "${1:-}" = --continue ]; then
    continued=yes
    shift
fi
case ${1:-}:$# in
-*:* | *:[2-9]*)
    echo "$usage" >&2
    exit 2
    ;;
esac
page=${1:-$build/gpu-check.md}
log=${page%.md}.log
case $built in
yes) commit=$(cat "$build/commit" 2>/dev/null || echo unknown) ;;
no) commit=$(git describe --always --dirty 2>/dev/null || echo unknown) ;;
esac
begin=$(date +%s)
budget=${GPU_CHECK_SECONDS:-1800}
only=${GPU_CHECK_ONLY:-.}

seconds_left() { echo $((budget - ($(date +%s) - begin))); }
say() { echo "$*" | tee -a "$page"; }

mkdir -p "$build" "$(dirname "$page")" || exit 1
stop() {
    echo "gpu-check: $*" >&2
    printf '\ngpu-check: FAILED: %s\n' "$*" >>"$page"
    exit 1
}
if [ $continued = no ]; then # results of an earlier run must not count for this one
    : >"$page" && : >"$log" || exit 1
elif ! grep -q "^# GPU check, .*, commit $commit$" "$page"; then
    stop "--continue: $page has no results of commit $commit"
fi

# ---- this machine ----

find_nvcc() {
    for candidate in "${CUDACXX:-}" "$(command -v nvcc)" "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"; do
        if [ -n "$candidate" ] && [ -x "$candidate" ]; then
            echo "$candidate"
            return
        fi
    done
}

# The toolkit's folder, asked from nvcc, because nvcc itself may be a link or a script.
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

# path FOLDERS...: prints a search path without empty parts, which would mean the working folder.
path() { printf '%s:' "$@" | sed 's/::*/:/g; s/^://; s/:$//'; }

show_gpu() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null; }

look_around() {
    nvcc=$(find_nvcc)
    if [ $built = no ]; then
        [ -n "$nvcc" ] || stop "no nvcc: set CUDACXX to the CUDA compiler"
        for tool in cmake cc c++; do
            command -v $tool >/dev/null || stop "no $tool on this machine"
        done
    fi
    # A container may have a GPU without nvidia-smi.
    if [ $mode = run ] && [ -z "$(show_gpu name)" ] && [ ! -e /dev/nvidia0 ]; then
        stop "this machine shows no GPU (nvidia-smi, /dev/nvidia0): nothing was built or run; --dry-run builds"
    fi
    toolkit=${CUDA_HOME:-/usr/local/cuda}
    [ -z "$nvcc" ] || toolkit=$(find_toolkit)
    # The toolkit's own folders come first: nvcc uses its headers.
    LD_LIBRARY_PATH=$(path "$toolkit/lib64" "$toolkit/lib" "$(find_site lib)" "${LD_LIBRARY_PATH:-}")
    LIBRARY_PATH=$(path "$toolkit/lib64" "$toolkit/lib" "$(find_site lib)" "${LIBRARY_PATH:-}")
    # Unlike CPATH, this is searched after the folders that cmake names: a package's headers may be
    # of another version.
    C_INCLUDE_PATH=$(path "${C_INCLUDE_PATH:-}" "$(find_site include)")
    export LD_LIBRARY_PATH LIBRARY_PATH C_INCLUDE_PATH
}

# ---- build ----

# Configures again and builds; its logs stay in the folder. A new warning of another compiler is not
# an error here: it must not waste the time with a GPU.
configure_and_build() {
    limit=$(($(seconds_left) / 3))
    generator=""
    command -v ninja >/dev/null && generator="-G Ninja"
    # Builds only for this GPU, which halves the time. An old nvidia-smi does not support this
    # query.
    capability=$(show_gpu compute_cap | head -n 1 | tr -d .)
    architectures=""
    case $mode-$capability in
    run-*[!0-9]* | run- | build-*) ;;
    run-90) architectures="-DCMAKE_CUDA_ARCHITECTURES=90a-real" ;;
    *) architectures="-DCMAKE_CUDA_ARCHITECTURES=$capability-real" ;;
    esac
    : >"$build/build.log"
    echo "$commit" >"$build/commit"
    # shellcheck disable=SC2086 # lists of words
    timeout -k 5 $limit cmake --fresh -S . -B "$build" $generator -DZERO3D_WERROR=OFF -DZERO3D_BARE=ON -DZERO3D_CUDA=ON \
        -DCMAKE_CUDA_COMPILER="$nvcc" $architectures ${CMAKE_ARGS:-} >"$build/configure.log" 2>&1 &&
        timeout -k 5 $limit cmake --build "$build" --target gpu_check zero3d_cuda -j "$(nproc)" >"$build/build.log" 2>&1
}

why_not() {
    if [ ! -s "$build/build.log" ]; then
        echo "cmake: $(grep -m 1 -A 3 'CMake Error' "$build/configure.log" | tr -s '\n ' ' ')($build/configure.log)"
    else
        echo "$(grep -m 1 -iE '(error|undefined|cannot)' "$build/build.log" || echo 'it took too long') ($build/build.log)"
    fi
}

build_bare() {
    echo "building $check with $nvcc"
    configure_and_build && echo "built in $(($(date +%s) - begin)) s" && return
    cat "$build/configure.log" "$build/build.log" >>"$log"
    stop "not built: $(why_not)"
}

# ---- run ----

failed=0

# Records the clocks and the power of GPU 0 while a part runs.
watch_gpu() {
    [ $mode = check ] || exec nvidia-smi -i 0 -lms 500 --format=csv,noheader,nounits \
        --query-gpu=utilization.gpu,clocks.sm,power.draw,temperature.gpu
}
report_gpu() {
    awk -F', *' '$1 > 50 { n++; s += $2; p += $3; if (n == 1 || $2 < least) least = $2; if ($4 > hot) hot = $4 }
        END { if (n) printf "GPU busy: %.0f MHz (at least %d), %.0f W, at most %d C\n", s / n, least, p / n, hot }' "$1"
}

verdict() { # of a part: CODE SECONDS-THAT-IT-HAD
    case $1 in
    0) echo "held, $(grep -c '^ok ' "$build/part.txt") checks in $2 s" ;;
    124 | 137) echo "FAILED (not over within $3 s)" ;;
    *) echo "FAILED (exit code $1)" ;;
    esac
}

# Whether the part with this title is wanted and has not yet passed.
wanted() { echo "$1" | grep -Eq -- "$only" && ! grep -qF "## $1: held" "$page"; }

missing() { # TITLE WHY: a part that cannot run, which is a failure
    wanted "$1" || return 0
    say ""
    say "## $1: FAILED ($2)"
    failed=$((failed + 1))
}

# Runs a command of a part within the part's time.
within() { timeout -k 5 "$limit" "$@"; }
# shellcheck disable=SC2086 # $tiny is a word or none
gpu() { within "$check" $tiny "$@"; }
# shellcheck disable=SC2086
two_ranks() { within scripts/launch -n 2 "$check" --host-collectives $tiny "$@"; }

# The GPU's description by the program. Without a GPU each part would only waste its time.
probe() {
    timeout -k 5 60 "$check" --tiny memory >"$build/probe.txt" 2>&1
    device=$(sed -n 's/^info *device *//p' "$build/probe.txt")
    [ -n "$device" ] || stop "the GPU cannot be used: $(head -n 1 "$build/probe.txt")"
}

# part SECONDS TITLE COMMAND...: runs one part of the page, within its own time and the time left of
# the whole. Its checks that failed and its numbers go to the page.
part() {
    limit=$1 title=$2
    [ $mode = run ] || limit=$((limit * 6)) # a CPU beside other work
    shift 2
    wanted "$title" || return 0
    left=$(seconds_left)
    [ "$limit" -lt "$left" ] || limit=$left
    if [ "$limit" -lt 5 ]; then
        missing "$title" "left out, the time is over"
        return
    fi
    started=$(date +%s)
    watch_gpu >"$build/clocks.txt" 2>/dev/null &
    watcher=$!
    "$@" >"$build/part.txt" 2>&1
    code=$?
    kill $watcher 2>/dev/null
    wait $watcher 2>/dev/null
    [ $code -eq 0 ] || failed=$((failed + 1))
    say ""
    say "## $title: $(verdict $code $(($(date +%s) - started)) "$limit")"
    { echo "== $title" && cat "$build/part.txt"; } >>"$log"
    {
        grep -E '^(FAILED|info) ' "$build/part.txt" | head -n 200
        [ $code -eq 0 ] || grep -vE '^(FAILED|info|ok) ' "$build/part.txt" | tail -n 8
        report_gpu "$build/clocks.txt"
    } | sed 's/^/    /' | tee -a "$page"
    case $code in 124 | 137) probe ;; esac
}

# Prints the algorithm and the epilogue that cuBLASLt ran for each product of a step, from its own
# log.
algorithms() {
    gpu_log="$build/cublaslt.log"
    within env CUBLASLT_LOG_LEVEL=5 CUBLASLT_LOG_FILE="$gpu_log" "$check" --steps=1 speed >/dev/null || return
    grep -F '[cublasLtMatmul]' "$gpu_log" |
        sed -E 's/^.*\[cublasLtMatmul\] *//; s/[A-Za-z]+=0[xX][0-9A-Fa-f]+ ?//g' | sort | uniq -c | sort -rn |
        head -n 40 | sed 's/^/info   /' >"$build/algorithms.txt"
    cat "$build/algorithms.txt"
    [ -s "$build/algorithms.txt" ] || echo "FAILED  cuBLASLt left no log"
    [ -s "$build/algorithms.txt" ]
}

# llm_c LAYERS SAMPLES: GPT-2 from scratch on random tokens.
llm_c() {
    python3 - "$build/tokens.bin" <<'END' || return
import array, random, sys
count = 1 << 20
tokens = array.array("H", (random.randrange(50257) for _ in range(count)))
with open(sys.argv[1], "wb") as file:
    array.array("i", [20240520, 1, count] + [0] * 253).tofile(file)
    tokens.tofile(file)
END
    within "$LLMC/train_gpt2cu" -i "$build/tokens.bin" -j "$build/tokens.bin" -e "d$1" -b "$2" -t 1024 \
        -d $(($2 * 1024)) -x 12 -v 0 -s 0 -h 0 >"$build/llmc.txt" 2>&1
    tail -n 3 "$build/llmc.txt"
    sed -n "s|^step .*12/12 .*|info    llm.c, $1 layers, $2 x 1024: &|p" "$build/llmc.txt"
    grep -q '^step .*12/12 ' "$build/llmc.txt"
}

others() {
    if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
        part 150 "PyTorch, compiled, SDPA" within python3 bench/pytorch.py gpu
    else
        say "" && say "## PyTorch: not run, python3 has no torch with CUDA here"
    fi
    if [ -x "${LLMC:-}/train_gpt2cu" ]; then
        part 60 "llm.c, 124M" llm_c 12 32
        part 90 "llm.c, 1.5B" llm_c 48 16
    else
        say "" && say "## llm.c: not run, LLMC names no folder with train_gpt2cu"
    fi
}

sanitize() {
    sanitizer=$(PATH=$PATH:$toolkit/bin:$(find_site compute-sanitizer):$(find_site bin) command -v compute-sanitizer)
    for tool in memcheck initcheck racecheck synccheck; do
        if [ -z "$sanitizer" ]; then
            missing "compute-sanitizer $tool" "there is no compute-sanitizer in PATH, in $toolkit/bin or in Python's packages"
            continue
        fi
        part 90 "compute-sanitizer $tool, kernels" within "$sanitizer" --tool $tool --error-exitcode 9 "$check" --own-attention ops
        part 30 "compute-sanitizer $tool, a train step" within "$sanitizer" --tool $tool --error-exitcode 9 "$check" --tiny --steps=1 train
    done
}

# Without a GPU, parts that need more than the host plugin are left out.
run_parts() {
    part 45 "kernels against the cpu device" gpu ops
    part 45 "training: cpu device, ZeRO stages, graphs" gpu train
    part 45 "GPT-2, tokens/s" gpu speed
    part 20 "memory, copies, a product" gpu memory
    part 20 "captured copies and scratch, what a capture refuses" gpu capture
    part 30 "NCCL, two processes on the GPU" within scripts/launch -n 2 "$check" nccl
    part 60 "two ranks on the GPU, data parallel" two_ranks --steps=5 train
    part 60 "two ranks on the GPU, tensor parallel" two_ranks --tensor=2 --steps=5 train
    part 40 "each kernel of a step" gpu kernels
    part 45 "Llama 8B's layers at 2k and 8k tokens" gpu llama
    part 30 "attention, cuDNN" gpu attention
    part 30 "attention, own" gpu --own-attention attention
    part 75 "GPT-2, more sizes" gpu models
    [ $mode != check ] || return 0
    part 30 "kernels, own attention" gpu --own-attention ops
    part 45 "training, own attention" gpu --own-attention train
    part 45 "GPT-2, attention in any order" gpu --fast-attention speed
    part 30 "products: algorithms and epilogues" algorithms
    others
    sanitize
}

if [ $mode != check ]; then
    [ $built = no ] || [ -x "$check" ] || stop "--built: there is no $check; --dry-run builds it"
    look_around
    [ $built = yes ] || build_bare
fi
if [ $mode = build ]; then
    say "gpu-check: a dry run, nothing was run"
    exit 0
fi
export ZERO3D_LAUNCH=tcp # the program has no MPI
say "# GPU check, $(date -u +%Y-%m-%dT%H:%MZ), commit $commit"
say ""
if [ $mode = run ]; then
    say "    $(show_gpu name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit)"
    [ -z "$nvcc" ] || say "    $("$nvcc" --version | grep release)"
else
    say "    no GPU: $check over ${ZERO3D_PLUGIN_PATH:-the plugin beside it}"
fi
probe
say "    $device"
run_parts
held=$(awk '/^## .*: held, [0-9]+ checks/ { sub(/.*: held, /, ""); sum += $1 } END { print sum + 0 }' "$page")
say ""
say "$(($(date +%s) - begin)) s: $held checks held, $failed parts failed; all output is in $log"
[ $failed = 0 ] || stop "not everything held"
[ "$only" = . ] || stop "only some parts were run"
say "gpu-check: held"
