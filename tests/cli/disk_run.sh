# shellcheck shell=sh
# Sourced behind lib.sh by tests of disks that fail: runs with everything on the disk that would last for hours, what ends them, and what
# is left. `ranks`: on so many.
export ZERO3D_GRACE_SECONDS=1
tiny
mkdir tier
OFFLOAD=zero_optimization.offload_optimizer
PARAM=zero_optimization.offload_param
stage="zero_optimization.stage=3"
disk="$OFFLOAD.device=nvme $OFFLOAD.nvme_path=$work/tier $PARAM.device=nvme $PARAM.nvme_path=$work/tier"
long="training.steps=100000000 training.log_interval=100000000 checkpoint.interval=10 checkpoint.keep=2"

losses() {
    sed -n 's/.*"step": *\([0-9]*\),.*"loss": *\([^,]*\),.*"grad_norm": *\([^,]*\),.*/\1 \2 \3/p' "$1/metrics.jsonl"
}

until_more_than() { # until_more_than STEPS
    tries=0
    until [ -e run/metrics.jsonl ] && [ "$(wc -l <run/metrics.jsonl)" -gt "$1" ]; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "the run does not get on"
        kill -0 "$pid" 2>/dev/null || fail "the run ended before its time"
        sleep 0.1
    done
}

# The run's processes.
rank_processes() {
    ps -ww -e -o pid=,comm=,args= | awk -v name="$(basename "$ZERO3D")" -v run=" run.dir=$work/run " '$2 == name && index($0 " ", run) { print $1 }'
}

# begin: the run, in the background, until it has checkpoints; `victim` is its last rank.
begin() {
    rm -rf run
    # shellcheck disable=SC2086 # lists of arguments
    "$LAUNCH" -n "$ranks" "$ZERO3D" train tiny.yaml run.dir="$work/run" $stage $disk $long >out 2>err </dev/null &
    pid=$!
    background=$pid
    until_more_than 25
    for process in $(rank_processes); do
        ! tr '\0' '\n' <"/proc/$process/environ" | grep -Eqx "(OMPI_COMM_WORLD_|PMI_|PMIX_|)RANK=$((ranks - 1))" || victim=$process
    done
}

# ended: within 60 s, with the exit code in $code.
ended() {
    tries=0
    while kill -0 "$pid" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "the run is still there after 60 s"
        sleep 0.1
    done
    wait "$pid"
    code=$?
    # shellcheck disable=SC2034 # lib.sh's
    background=""
}

# resume: a step more, as a run that is started again makes it.
resume() {
    # shellcheck disable=SC2086
    "$LAUNCH" -n "$ranks" "$ZERO3D" train tiny.yaml run.dir="$work/run" $stage $disk $long training.time_limit=0.001
}

# The file of the victim, as another program can get at it.
unnamed_file() {
    find /proc/"$victim"/fd -lname "$work/tier/*" 2>/dev/null
}

# check_broken WHAT PATTERN: the run ended with this line, on all ranks; its last checkpoint is whole.
check_broken() {
    [ "$code" -ne 0 ] || fail "$1 on $ranks ranks: exit code 0"
    [ "$code" -ne 75 ] || fail "$1 on $ranks ranks: the run asks to be started again"
    says "$2"
    [ -z "$(rank_processes)" ] || fail "$1 on $ranks ranks: a rank is left"
    expect 0 "$ZERO3D" checkpoint verify run/checkpoints
}

# broken_by COMMAND PATTERN: it breaks the disk in the middle of a run. Afterwards the disk is well again.
broken_by() {
    begin
    "$1"
    ended
    check_broken "$1" "$2"
    # shellcheck disable=SC2012 # its own names
    [ -z "$(ls -A tier)" ] || fail "$1: something is left in the folder: $(ls -A tier)"
    expect 75 resume
    grep -q 'resuming after step [0-9]*0 of' err || fail "$1 on $ranks ranks: the run does not go on from its checkpoint"
}
