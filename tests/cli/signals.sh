#!/bin/sh
# A run that is asked to stop ends cleanly after the step, by SIGUSR1, Ctrl-C and SIGTERM, without a word of mpirun's; one whose rank is
# killed ends soon, on all ranks, with our line.
. "$(dirname "$0")/lib.sh"
tiny

start() { # start RUN OPTION...: a run on two ranks in the background that would last for hours; waits until it trains
    run=$1
    shift
    before=$(cat "$run/metrics.jsonl" 2>/dev/null | wc -l)
    # Or a shell has its background processes ignore Ctrl-C.
    env --default-signal=INT "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir="$run" training.steps=100000000 "$@" >out 2>err </dev/null &
    pid=$!
    background=$pid
    tries=0
    until [ "$(cat "$run/metrics.jsonl" 2>/dev/null | wc -l)" -gt $((before + 3)) ]; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "the run does not begin"
        kill -0 $pid 2>/dev/null || fail "the run ended before its time"
        sleep 0.1
    done
}

ended_within() { # ended_within SECONDS: leaves the exit code in $code
    tries=0
    while kill -0 $pid 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt $(($1 * 10)) ] || fail "the run is still there after $1 s"
        sleep 0.1
    done
    wait $pid
    code=$?
    background=""
}

# Of the run's mpirun, or over TCP of the launcher.
a_rank() {
    parent=$(ps -o pid=,comm= --ppid $pid | awk '$2 == "mpirun" { print $1 }')
    ps -o pid= --ppid "${parent:-$pid}" | tail -n 1
}
no_mpirun() { # no_mpirun WHAT
    ! grep -qe '^-----' -e mpirun err || fail "$1: mpirun speaks"
}

stops_at() { # stops_at SIGNAL STAGE: of two ranks
    start "$1" zero_optimization.stage="$2"
    kill -"$1" $pid
    ended_within 30
    [ $code -eq 0 ] || fail "SIG$1: exit code $code"
    no_mpirun "SIG$1"
    grep -q '^stopped by a signal: ' out || fail "SIG$1: no summary of the stopped run"
    # Every line is whole: the last one ends with its newline and its brace.
    [ "$(tail -c 2 "$1"/metrics.jsonl)" = '}' ] || fail "SIG$1: metrics.jsonl ends within a line"
}

stops_at USR1 3
export ZERO3D_GRACE_SECONDS=2
stops_at TERM 1
stops_at INT 0

# With checkpoints a signal saves one and asks to be started again, and the run goes on behind it; so does SIGTERM of
# one rank.
for signal in USR1 TERM INT rank; do
    start saved checkpoint.interval=100000000
    victim=$pid
    [ $signal != rank ] || victim=$(a_rank) signal=TERM
    kill -$signal "$victim"
    ended_within 30
    [ $code -eq 75 ] || fail "SIG$signal with checkpoints: exit code $code"
    no_mpirun "SIG$signal with checkpoints"
    last=$(wc -l <saved/metrics.jsonl)
    [ -e "saved/checkpoints/step-$(printf %08d "$last")/manifest.json" ] || fail "SIG$signal: step $last is not saved"
done
grep -q "resuming after step" err || fail "the second run does not resume from the first one's checkpoint"
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir=saved training.steps=$((last + 1)) checkpoint.interval=100000000
grep -q "resuming after step $last" err || fail "the third run does not resume after step $last"
[ "$(wc -l <saved/metrics.jsonl)" -eq $((last + 1)) ] || fail "a step is missing or made twice"

# A request in the first moments is kept until the ranks hear it, to the launcher and to a rank, and one Ctrl-C that comes as two signals
# is one request.
for way in mpi,0.05 mpi,0.2 mpi,0.4 tcp,0.05 tcp,0.1 tcp,0.3; do
    rm -rf early
    ZERO3D_LAUNCH=${way%,*} "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir=early training.steps=100000000 checkpoint.interval=100000000 \
        >out 2>err </dev/null &
    pid=$!
    background=$pid
    sleep "${way#*,}"
    kill -TERM $pid
    sleep 0.02
    kill -TERM $pid
    ended_within 30
    [ $code -eq 75 ] || fail "a request at the start ($way): exit code $code"
    grep -q -e 'before the first step' -e 'checkpoint of step [0-9]* saved' out || fail "a request at the start ($way): no word of it"
done

# Ctrl-C of a terminal comes to the launcher and to the ranks that it starts itself: one request.
for moment in 0.06 0.1 0.14 0.18; do
    rm -rf early
    ZERO3D_LAUNCH=tcp setsid env --default-signal=INT "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir=early training.steps=100000000 checkpoint.interval=100000000 \
        >out 2>err </dev/null &
    pid=$!
    background=$pid
    sleep $moment
    kill -INT "-$pid"
    ended_within 30
    [ $code -eq 75 ] || fail "Ctrl-C at the start ($moment s): exit code $code"
done
# Also one to a rank that has not reached its first line: the launcher has it held.
mkdir early-rank
cp /bin/sh early-rank/zero3d
# shellcheck disable=SC2016 # the rank's
early='kill -TERM $$; exec "$@"'
for way in mpi tcp; do
    rm -rf early
    expect 75 env ZERO3D_LAUNCH=$way "$LAUNCH" -n 2 early-rank/zero3d -c "$early" rank "$ZERO3D" train tiny.yaml run.dir=early training.steps=100000000 checkpoint.interval=100000000
    grep -q 'before the first step' out || fail "a request before a rank's first line ($way): no word of it"
done
# What does not end in order ends at once.
expect 143 env ZERO3D_LAUNCH=tcp "$LAUNCH" -n 1 early-rank/zero3d -c "$early" rank "$ZERO3D" plan tiny.yaml
# A script of the name hears them: nothing is held of it.
mkdir script
cat >script/zero3d <<'END'
#!/usr/bin/env bash
trap 'echo heard; exit 3' TERM
kill -TERM $$
END
chmod +x script/zero3d
for way in mpi tcp; do
    expect 3 env ZERO3D_LAUNCH=$way "$LAUNCH" -n 1 script/zero3d
    grep -q '^heard$' out || fail "a script named zero3d hears no SIGTERM ($way)"
done

start "$work/killed" zero_optimization.stage=2
kill -KILL "$(a_rank)"
ended_within 30
[ $code -ne 0 ] || fail "a rank was killed, but the run ended with exit code 0"
grep '^zero3d: ' err | grep -Eq 'rank [01]' || fail "no line of ours about the dead rank"
no_mpirun "a killed rank"
! ps -e -o comm= -o args= | grep '^zero3d ' | grep -qF "$work" || fail "a rank is left"

# A launcher that is killed leaves no rank either.
start "$work/launcher" zero_optimization.stage=2
kill -KILL $pid
background=""
tries=0
while ps -e -o comm= -o args= | grep '^zero3d ' | grep -qF "$work/launcher"; do
    tries=$((tries + 1))
    [ $tries -lt 200 ] || fail "ranks are left without their launcher"
    sleep 0.1
done
