#!/bin/sh
# Runs with pipeline stages: what they say, that MPI and TCP train alike, who is named when a rank hangs or dies, and wrong configurations.
# ZERO3D_LONG: more schedules and sizes.
. "$(dirname "$0")/lib.sh"
tiny
export ZERO3D_GRACE_SECONDS=1 # what mpirun waits after a failure, twice
PIPELINE=parallel.pipeline_model_parallel_size TENSOR=parallel.tensor_model_parallel_size
CHUNKS=parallel.virtual_pipeline_model_parallel_size SCHEDULE=parallel.pipeline_schedule

numbers() { sed 's/.*\("loss":[^,]*\).*\("grad_norm":[^,]*\).*/\1 \2/' "$1/metrics.jsonl"; }
# Hardware FLOPs by model FLOPs: with what is computed twice.
twice() { sed -n 's/.*"mfu":\([^,]*\),"hfu":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl" | awk 'END { printf "%.3f", $2 / $1 }'; }
run() { # run RANKS FOLDER key=value...
    ranks=$1 folder=$2
    shift 2
    expect 0 "$LAUNCH" -n "$ranks" "$ZERO3D" train tiny.yaml gradient_accumulation_steps=4 run.dir="$folder" "$@"
}

# Stages 0 and 3 are equal to the bit, over MPI and TCP, and all FLOPs are counted: those of one rank. (Two samples to a micro-batch: with
# one, the tensor ranks of two stages would be another batch than that of one rank.)
run 1 one
for stage in 0 3; do
    run 4 mpi-$stage $PIPELINE=2 $TENSOR=2 zero_optimization.stage=$stage
    grep -q '^ranks       4 = tensor 2 x pipeline 2 x data 1 on 1 node$' out || fail "the header does not name the sizes"
    grep -q '^pipeline    1f1b, 2 stages, units of the 2 chunks: 2, 2' out || fail "the header does not name the schedule"
    [ "$(twice mpi-$stage)" = "$(twice one)" ] || fail "hfu / mfu is $(twice mpi-$stage), one rank's $(twice one)"
    ! grep '^  !' out || fail "memory was not as planned"
done
export ZERO3D_LAUNCH=tcp
others="mpi-3 tcp-gpipe zb-h1 zb-v"
if [ -n "${ZERO3D_LONG:-}" ]; then
    run 4 tcp-3 $PIPELINE=2 $TENSOR=2 zero_optimization.stage=3
    others="$others tcp-3"
fi
run 4 tcp-gpipe $PIPELINE=2 $TENSOR=2 zero_optimization.stage=3 $SCHEDULE=gpipe
unset ZERO3D_LAUNCH
run 4 zb-h1 $PIPELINE=2 $TENSOR=2 zero_optimization.stage=2 $SCHEDULE=zb-h1
run 4 zb-v $PIPELINE=2 $TENSOR=2 zero_optimization.stage=1 $SCHEDULE=zb-v $CHUNKS=2
for other in $others; do
    [ "$(numbers mpi-0)" = "$(numbers $other)" ] || fail "mpi-0 and $other have other numbers"
done
numbers one | tr ':,' '  ' | awk '{ print $2, $4 }' >one.numbers
numbers mpi-0 | tr ':,' '  ' | awk '{ print $2, $4 }' | paste one.numbers - |
    awk '{ d = $1 / $3 - 1; bad += d * d > 1e-10 } END { exit NR != 5 || bad }' || fail "other losses than one rank's"

# The rank that takes most is not rank 0.
run 2 most $PIPELINE=2 parallel.pipeline_partition=1,3
grep -Eq '^memory      [0-9.]+ .iB on rank 1, which takes most, in one block' out || fail "the start does not name the rank that takes most"
grep -Eq '^memory   peak [0-9.]+ .iB on rank 1: ' out || fail "the end does not name the rank that takes most"

# A timeline of every stage, with its sends and receives.
run 2 traced $PIPELINE=2 $CHUNKS=2 --trace generate.prompt=Line generate.tokens=2
grep -q '"name":"start send_input block.1 to stage 0 (micro 3' traced/trace-rank1.json || fail "the timeline does not have rank 1's sends"
grep -q '"name":"wait recv_input_gradient block.0 from stage 1 (micro 0' traced/trace-rank0.json || fail "the timeline does not have rank 0's receives"
grep -q '^Line' out || fail "no sample at the end"

# Text on pipeline stages: sizes that are not given follow from the ranks and from those that are.
run 1 saved checkpoint.interval=5
expect 0 "$ZERO3D" generate saved/checkpoints --prompt Line --tokens 8
mv out one.text
set -- "$PIPELINE=2" "$PIPELINE=2 $CHUNKS=2 $SCHEDULE=zb-v $TENSOR=1"
[ -z "${ZERO3D_LONG:-}" ] || set -- "$@" "$PIPELINE=4" "$PIPELINE=2 $CHUNKS=2"
for sizes; do
    # shellcheck disable=SC2086 # several arguments
    expect 0 "$LAUNCH" -n 4 "$ZERO3D" generate saved/checkpoints --prompt Line --tokens 8 $sizes
    cmp out one.text || fail "$sizes: another text than on one rank"
done

# A rank that hangs in a matrix product: the report begins with who waits, for what, and names the one that does not wait.
cat >hang.c <<END
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
typedef int product(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t, float, float *, int64_t);
int dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
               float beta, float *c, int64_t ldc) {
    static int calls;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    product *next = (product *)(uintptr_t)dlsym((void *)-1L, "dnnl_sgemm");
    if (!rank) rank = getenv("RANK");
    if (rank && *rank == '2')
        while (calls == 60) pause();
    calls++;
    return next(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
END
"${CC:-cc}" -shared -fPIC -o hang.so hang.c -ldl || fail "cannot compile"
hang() {
    expect fail env ZERO3D_LAUNCH="$1" LD_PRELOAD="$work/hang.so" ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0" timeout -k 1 60 \
        "$LAUNCH" -n 4 "$ZERO3D" train tiny.yaml model.num_layers=6 gradient_accumulation_steps=4 $PIPELINE=4 training.watchdog_timeout=3 run.dir="hang-$1"
    grep -Eq "^zero3d: watchdog: rank [013] has waited [0-9]+ s in step [1-9]: wait (recv|send)_input.* (from|to) stage [0-3] \(micro [0-3], .*; rank 2 is still in step [1-9]: [a-z]+ block.[34] \(micro [0-3]\);" err ||
        fail "the report does not name who waits for what"
}
hang mpi
hang tcp

# A rank that dies: one line, and all end.
"$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $PIPELINE=2 training.steps=100000000 training.log_interval=100000000 run.dir="$work/killed" >out 2>err </dev/null &
background=$!
tries=0
until [ -s killed/metrics.jsonl ]; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || fail "the run does not begin"
    sleep 0.05
done
victim=$(ps -e -o pid= -o args= | grep -F "run.dir=$work/killed" | grep -v -e mpirun -e grep -e launch | awk 'END { print $1 }')
kill -KILL "$victim"
wait $background
code=$?
background=""
[ $code -ne 0 ] || fail "a run of which a rank was killed ends with 0"
says "^zero3d: rank [01] \(host .*, pid $victim\) died in step [0-9]+: "

# bad RANKS PATTERN key=value...: all ranks end, one of them says why. Over TCP: over MPI every failure costs seconds.
bad() {
    ranks=$1 pattern=$2
    shift 2
    expect 1 env ZERO3D_LAUNCH=tcp "$LAUNCH" -n "$ranks" "$ZERO3D" train tiny.yaml gradient_accumulation_steps=4 run.dir=bad "$@"
    says "$pattern"
    [ ! -e bad ] || fail "a run that cannot be has a folder"
}
bad 4 '3 needs a multiple of 3 ranks, but the run has 4; start 3 or 6 ranks' $PIPELINE=3
bad 3 '2 x parallel.tensor_model_parallel_size 2 needs a multiple of 4 ranks, but the run has 3' $PIPELINE=2 $TENSOR=2
bad 4 "4 stages are more than the model's 3 units .*; write at most 3" $PIPELINE=4 model.num_layers=1
bad 2 'zb-v has 2 chunks per pipeline stage, not 1; set parallel.virtual_pipeline_model_parallel_size to 2' $PIPELINE=2 $SCHEDULE=zb-v
bad 2 'needs a multiple of 2 micro-batches in a step, not 1; write 2, or choose 1 chunk per pipeline stage' $PIPELINE=2 $CHUNKS=2 gradient_accumulation_steps=1
bad 2 "the list's sum is 5; write numbers whose sum is the model's 4 units" $PIPELINE=2 parallel.pipeline_partition=1,4
printf 'stage,pass,chunk,micro\n0,forward,0,0\n0,sideways,0,0\n' >mine.csv
bad 2 "^zero3d: mine.csv, line 3: there is no pass 'sideways'; use forward, " $PIPELINE=2 $SCHEDULE=file parallel.pipeline_schedule_file=mine.csv

# Each rank reads the schedule: it must be the same one. With gpipe here and 1f1b there both would wait for ever.
mkdir node0 node1
printf 'stage,pass,chunk,micro\n0,forward,0,0\n0,forward,0,1\n0,backward,0,0\n0,backward,0,1\n' | tee node0/mine.csv >node1/mine.csv
printf '1,forward,1,0\n1,forward,1,1\n1,backward,1,0\n1,backward,1,1\n' >>node0/mine.csv
printf '1,forward,1,0\n1,backward,1,0\n1,forward,1,1\n1,backward,1,1\n' >>node1/mine.csv
cat >in_node.sh <<END
cd "$work/node\${OMPI_COMM_WORLD_RANK:-\$RANK}" && exec "\$@"
END
expect 1 timeout -k 1 60 "$LAUNCH" -n 2 sh in_node.sh "$ZERO3D" train ../tiny.yaml data.train=../train.bin gradient_accumulation_steps=2 run.dir="$work/bad" \
    training.watchdog_timeout=5 $PIPELINE=2 $SCHEDULE=file parallel.pipeline_schedule_file=mine.csv
says '^zero3d: rank 1: .*parallel.pipeline_schedule_file=mine.csv: the file differs from the one that rank 0 reads; give all ranks the same file'
[ ! -e bad ] || fail "a run that cannot be has a folder"
