#!/bin/sh
# scripts/launch itself, with small programs for ranks: the exit code is the ranks' own, however many end at the same time; a failure comes
# back soon; what it cannot start it refuses.
. "$(dirname "$0")/lib.sh"
export ZERO3D_LAUNCH=tcp

# A rank whose first thread ends before the others is a zombie that cannot be waited for yet; meanwhile another rank ends, and the launcher
# hears of that.
cat >slow_end.c <<END
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static void *last(void *code) {
    usleep(600000);
    exit(atoi(code));
}
int main(int argc, char **argv) {
    pthread_t thread;
    int rank = atoi(getenv("RANK"));
    (void)argc;
    usleep((useconds_t)rank * 200000);
    if (rank > 0) exit(atoi(argv[1]));
    pthread_create(&thread, NULL, last, argv[1]);
    pthread_exit(NULL);
}
END
"${CC:-cc}" -pthread -o slow_end slow_end.c || fail "cannot compile"
for shell in dash bash; do
    command -v $shell >/dev/null || continue
    for code in 0 75; do expect $code $shell "$LAUNCH" -n 3 ./slow_end $code; done
done

# Ranks that end together, while the machine is busy: nobody's end is taken for another's.
(while :; do :; done) &
background=$!
(while :; do :; done) &
background="$background $!"
for shell in dash bash; do
    command -v $shell >/dev/null || continue
    turn=0
    while [ $turn -lt 5 ]; do
        turn=$((turn + 1))
        expect 0 $shell "$LAUNCH" -n 9 sh -c 'exit 0'
        expect 75 $shell "$LAUNCH" -n 9 sh -c 'exit 75'
    done
done
# shellcheck disable=SC2086 # a list of process ids
kill -KILL $background
background=""

for shell in dash bash; do
    command -v $shell >/dev/null || continue
    # 75 where all is well, a failure where one failed, whichever comes first; ranks that still save are left alone after a 75.
    expect 75 env ZERO3D_GRACE_SECONDS=0 $shell "$LAUNCH" -n 4 sh -c '[ $RANK = 0 ] && { sleep 1.5; touch saved-'$shell'; }; exit 75'
    [ -e saved-$shell ] || fail "a rank that saved was killed"
    expect 3 $shell "$LAUNCH" -n 3 sh -c '[ $RANK = 1 ] || exit 75; sleep 0.3; exit 3'
    # Death by a signal, and programs that are not there.
    expect 137 $shell "$LAUNCH" -n 3 sh -c '[ $RANK != 2 ] || kill -KILL $$'
    grep -q "^launch: rank 2 ended by signal 9$" err || fail "which rank was killed"
    expect 127 $shell "$LAUNCH" -n 2 ./nowhere
    # What does not end after a failure is killed, what is frozen at once.
    expect 4 env ZERO3D_GRACE_SECONDS=1 timeout 30 $shell "$LAUNCH" -n 3 sh -c '[ $RANK != 2 ] || exit 4; exec sleep 1000'
    expect 4 env ZERO3D_GRACE_SECONDS=1000 timeout 30 $shell "$LAUNCH" -n 3 sh -c '[ $RANK != 2 ] || exit 4; [ $RANK = 0 ] || exit 0; kill -STOP $$'
done

# A signal that comes while ranks are started reaches all of them (one that does not expect it yet dies of it).
for shell in bash; do # with dash only those that are past their exec by then
    command -v $shell >/dev/null || continue
    timeout 60 $shell "$LAUNCH" -n 40 sh -c '[ $RANK != 0 ] || kill -TERM $PPID; trap "exit 75" TERM; i=0; while [ $i -lt 80 ]; do sleep 0.1; i=$((i + 1)); done; exit 9' >out 2>err
    code=$?
    [ $code -eq 75 ] || [ $code -eq 143 ] || fail "exit code $code of ranks that were all told to stop"
done

# As few tools as that: no seq.
mkdir tools
for tool in sh sleep date touch; do ln -s "$(command -v $tool)" tools/$tool; done
expect 0 env PATH="$PWD/tools" "$LAUNCH" -n 2 sh -c 'touch rank-$RANK'
[ -e rank-0 ] && [ -e rank-1 ] || fail "without seq no rank was started"

for over in tcp mpi; do
    export ZERO3D_LAUNCH=$over
    for ranks in 0 00 -1 x 1x 2.5 "" "1 2"; do
        expect 2 "$LAUNCH" -n "$ranks" sh -c 'touch started'
        head -n 1 err | grep -q "^launch: -n '$ranks': expected the number of ranks, 1 or more$" || fail "-n '$ranks' over $over is not refused in words"
    done
    expect 2 "$LAUNCH" sh
    expect 2 "$LAUNCH" -n 2
    [ ! -e started ] || fail "something was started"
done
ZERO3D_LAUNCH=tcp expect 2 "$LAUNCH" -n 2 --hostfile hosts sh
grep -q "'--hostfile' is an mpirun option" err || fail "mpirun's option is not named"

for seconds in 0.5 05 x -1; do
    expect 2 env ZERO3D_GRACE_SECONDS=$seconds "$LAUNCH" -n 2 sh -c 'touch started'
    grep -q "^launch: ZERO3D_GRACE_SECONDS='$seconds': expected a whole number of seconds$" err || fail "$seconds seconds are not refused in words"
    [ ! -e started ] && [ "$(wc -l <err)" -eq 1 ] || fail "ZERO3D_GRACE_SECONDS=$seconds: something was started, or more than a line"
done

# Whatever starts a command that computes: threads that wait do not spin for long, unless somebody has asked for it. It starts itself
# again for that, once, under its own name.
spinning() { # spinning TIMES COUNT COMMAND...
    times=$1 count=$2
    shift 2
    expect 1 env OMP_DISPLAY_ENV=verbose "$@"
    grep -q GOMP_SPINCOUNT err || return 0 # another OpenMP's
    [ "$(grep -c '^OPENMP DISPLAY ENVIRONMENT BEGIN' err)" -eq "$times" ] || fail "started other than $times times: $*"
    [ "$(grep GOMP_SPINCOUNT err | tail -n 1)" = "  GOMP_SPINCOUNT = '$count'" ] || fail "threads spin other than $count times: $*"
}
spinning 2 1000 env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT "$ZERO3D" generate nowhere
spinning 2 1000 env OMP_WAIT_POLICY= GOMP_SPINCOUNT= "$ZERO3D" generate nowhere
spinning 1 77 env -u OMP_WAIT_POLICY GOMP_SPINCOUNT=77 "$ZERO3D" generate nowhere
spinning 1 0 env -u GOMP_SPINCOUNT OMP_WAIT_POLICY=passive "$ZERO3D" generate nowhere
unset OMP_WAIT_POLICY GOMP_SPINCOUNT
spinning 2 1000 sh -c '"$0" generate nowhere <&- >&-' "$ZERO3D"
for over in tcp mpi; do
    spinning 4 1000 env ZERO3D_LAUNCH=$over "$LAUNCH" -n 2 "$ZERO3D" generate nowhere
done
# The dynamic linker as the program: /proc/self/exe is not the program then, and it goes on as it is.
linker=$(command -v ldd >/dev/null && ldd "$ZERO3D" | sed -n 's/^[[:space:]]*\(\/[^ ]*ld-linux[^ ]*\) .*/\1/p')
[ -z "$linker" ] || spinning 1 300000 "$linker" "$ZERO3D" generate nowhere
tiny
"$ZERO3D" train tiny.yaml run.dir=named training.steps=100000000 >out 2>err </dev/null &
background=$!
tries=0
until [ -s named/metrics.jsonl ]; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] && kill -0 $background || fail "the run does not begin"
    sleep 0.1
done
[ "$(cat /proc/$background/comm)" = "$(basename "$ZERO3D")" ] || fail "the program has another name"
[ "$(tr '\0' ' ' </proc/$background/cmdline | cut -d ' ' -f 1)" = "$ZERO3D" ] || fail "the program has another argv[0]"
kill $background
wait $background
background=""

# Standard output that nobody reads any more does not end a run; nor does it make a message where only a text is to be printed.
(
    "$ZERO3D" train tiny.yaml run.dir=unread training.steps=20 2>err
    echo $? >code
) | head -n 1 >out
[ "$(cat code)" -eq 0 ] || fail "the run ended with exit code $(cat code) without its reader"
[ "$(wc -l <unread/metrics.jsonl)" -eq 20 ] || fail "the run ended early without its reader"
[ "$(grep -c 'cannot write .* to standard output: Broken pipe' err)" -eq 1 ] || fail "the reader's end is not told once"
(
    sleep 0.2
    "$ZERO3D" config --keys 2>err
    echo $? >code
) | true
[ "$(cat code)" -eq 1 ] && [ ! -s err ] || fail "an unread text ends with exit code $(cat code), or in words"

# mpirun sleeps through twice its grace time after a failure; with all ranks dead there is nothing to wait for. A rank is a real one, which
# MPI waits for.
command -v mpirun >/dev/null || exit 0
export ZERO3D_LAUNCH=mpi
# (Not always, on a busy machine: mpirun may have collected all of them before it sleeps.)
soon="" turn=0
while [ -z "$soon" ] && [ $turn -lt 3 ]; do
    turn=$((turn + 1))
    begun=$(date +%s)
    ZERO3D_GRACE_SECONDS=12 expect fail timeout 50 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml train_batch_size=7
    says '7'
    [ $(($(date +%s) - begun)) -ge 12 ] || soon=yes
done
[ -n "$soon" ] || fail "a failure over MPI came back after the grace time only"
# One rank alone needs no mpirun.
begun=$(date +%s)
expect 2 env ZERO3D_GRACE_SECONDS=12 timeout 50 "$LAUNCH" -n 1 "$ZERO3D" train
says 'configuration|CONFIG'
[ $(($(date +%s) - begun)) -lt 12 ] || fail "a failure of one rank took the grace time"
# Nobody but mpirun knows why a rank of another program ended: one line says it.
expect 139 env ZERO3D_GRACE_SECONDS=1 "$LAUNCH" -n 2 sh -c '[ $OMPI_COMM_WORLD_RANK = 0 ] || kill -SEGV $$; sleep 0.5'
[ "$(wc -l <err)" -eq 1 ] && grep -q -E '^launch: (a rank|rank 1 on .*) ended by signal 11' err || fail "mpirun's lines about a signal"
expect fail env ZERO3D_GRACE_SECONDS=1 "$LAUNCH" -n 2 ./nowhere
grep -q '^Executable: *./nowhere' err || fail "what mpirun has to say is lost"
expect 75 env ZERO3D_GRACE_SECONDS=2 "$LAUNCH" -n 2 sh -c '[ $OMPI_COMM_WORLD_RANK = 0 ] || sleep 0.5; exit 75'

# Closed outputs leave nobody behind, and a limit with which mpirun would hang is told.
for closed in 1 2; do
    expect 3 timeout 60 sh -c '"$0" -n 2 sh -c "exit 3" '$closed'>&-' "$LAUNCH"
done
expect 1 timeout 60 sh -c 'ulimit -f 60 && "$0" -n 2 true' "$LAUNCH"
grep -q "^launch: the limit of a file's size is 30 KiB" err || fail "a small limit is not told"
