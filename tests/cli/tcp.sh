#!/bin/sh
# Ranks that no MPI started: they train to the bit like mpirun's; environments that contradict themselves or each other, ranks that do not
# come and ports that are taken end in one clear line and on every rank.
. "$(dirname "$0")/lib.sh"
tiny
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
export ZERO3D_GRACE_SECONDS=1

numbers() { sed 's/.*\("loss":[^,]*\).*\("grad_norm":[^,]*\).*/\1 \2/' "$1/metrics.jsonl"; }
run() { expect 0 env ZERO3D_LAUNCH="$1" "$LAUNCH" -n 4 "$ZERO3D" train tiny.yaml run.dir="run-$1" parallel.tensor_model_parallel_size=2 zero_optimization.stage=2; }
run mpi
run tcp
[ "$(numbers run-mpi | grep -c '"loss":[0-9.]* "grad_norm":[0-9.]*$')" -eq 5 ] || fail "no numbers of five steps"
[ "$(numbers run-mpi)" = "$(numbers run-tcp)" ] || fail "other numbers over TCP than over MPI"

# Shared memory of a process that was killed goes away; that of the living, and what is new, stays.
if [ -w /dev/shm ]; then
    true &
    dead=$!
    wait $dead
    left=/dev/shm/zero3d-$dead-0123456789abcdef alive=/dev/shm/zero3d-$$-0123456789abcdef new=/dev/shm/zero3d-$dead-1123456789abcdef
    touch -d '2 minutes ago' "$left" "$alive" && touch "$new"
    run tcp
    [ ! -e "$left" ] && [ -e "$alive" ] && [ -e "$new" ]
    right=$?
    rm -f "$left" "$alive" "$new"
    [ $right -eq 0 ] || fail "files of the dead and the living in /dev/shm"
fi

# A configuration that cannot be is told once.
expect fail env ZERO3D_LAUNCH=tcp "$LAUNCH" -n 3 "$ZERO3D" train tiny.yaml parallel.tensor_model_parallel_size=2
says 'tensor'

# ---- environments ----

port=$((10000 + $$ % 20000))
train() { # train ASSIGNMENT...: one rank with these in its environment
    env MASTER_ADDR=localhost MASTER_PORT=$port ZERO3D_START_SECONDS=1 "$@" "$ZERO3D" train tiny.yaml run.dir=by-hand
}
one() { # one PATTERN ASSIGNMENT...: this rank says so at once
    pattern=$1
    shift
    expect 1 train "$@"
    says "$pattern"
}
one 'WORLD_SIZE is not set' RANK=0
one 'RANK is not set' WORLD_SIZE=2
one 'RANK=2 in the environment: expected a number from 0 to 1' RANK=2 WORLD_SIZE=2
one 'WORLD_SIZE=two in' RANK=0 WORLD_SIZE=two
one 'MASTER_ADDR is not set' RANK=0 WORLD_SIZE=2 MASTER_ADDR=
one 'MASTER_PORT=99999 in' RANK=0 WORLD_SIZE=2 MASTER_PORT=99999
one 'only 1 of 3 ranks connected to rank 0 at host .*, port .*, within 1 s; missing: 1, 2' RANK=0 WORLD_SIZE=3
one 'rank 1 could not connect to rank 0 at localhost, port .*, within 1 s: Connection refused' RANK=1 WORLD_SIZE=2
slurm() { # slurm PATTERN LIST
    expect 1 env SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURMD_NODENAME=n2 SLURM_STEP_NODELIST="$2" "$ZERO3D" train tiny.yaml
    says "$1"
}
slurm 'cannot read the first host from SLURM_STEP_NODELIST=n\[1-;' 'n[1-'
slurm 'rank 0 runs on n2, but the first host of the Slurm step is n07-a;' 'n[07-09,11]-a,m1'
slurm 'SLURM_JOB_ID is not set' 'n2,n1'

# An MPI that finds itself alone: its launcher was another's, or the shell's.
one 'an MPI launcher started 3 ranks \(PMI_SIZE\)' PMI_RANK=0 PMI_SIZE=3
one 'only 1 of 2 ranks connected' PMI_RANK=0 PMI_SIZE=1 RANK=0 WORLD_SIZE=2

# Every address of this machine will do.
for address in 127.0.1.1 ::1; do
    [ $address = 127.0.1.1 ] || grep -q ' lo$' /proc/net/if_inet6 2>/dev/null || continue
    train MASTER_ADDR=$address ZERO3D_START_SECONDS=5 RANK=1 WORLD_SIZE=2 >/dev/null 2>&1 </dev/null &
    expect 0 train MASTER_ADDR=$address ZERO3D_START_SECONDS=5 RANK=0 WORLD_SIZE=2
    wait $! || fail "rank 1 did not train"
done

# several ASSIGNMENT... -- ASSIGNMENT... [-- ...]: ranks side by side; what they say is in err, and each fails.
several() {
    : >err
    background=""
    set -- "$@" --
    arguments=""
    for word; do
        if [ "$word" = -- ]; then
            # shellcheck disable=SC2086 # a list of words
            train ZERO3D_START_SECONDS=2 $arguments >>out 2>>err </dev/null &
            background="$background $!"
            arguments=""
        else
            arguments="$arguments $word"
        fi
    done
    for child in $background; do
        wait "$child" && fail "a rank ended with exit code 0"
    done
    background=""
}
several RANK=0 WORLD_SIZE=3 -- RANK=1 WORLD_SIZE=3 -- RANK=1 WORLD_SIZE=3
says 'two processes were started as rank 1: pid [0-9]+ on host .* and pid [0-9]+ on host'
several RANK=0 WORLD_SIZE=2 -- RANK=2 WORLD_SIZE=3
says 'rank 2 \(host .*, pid [0-9]+\) was started with WORLD_SIZE 3, rank 0 with 2'
several RANK=0 WORLD_SIZE=2 -- RANK=0 WORLD_SIZE=2
grep -q 'cannot listen at port [0-9]* of host .*rendezvous: Address already in use; set MASTER_PORT' err || fail "the port is not said to be taken"

# ---- too few files ----

# On three ranks, the fewest of which one has two others; ZERO3D_LONG: on four.
ranks=3
[ -z "${ZERO3D_LONG:-}" ] || ranks=4
# Every limit ends in time, in a run or in words. What this process inherited decides at which limit the
# configuration, then nothing fails: all limits up to the first that suffices.
few() { # few FILES COMMAND...: with at most so many open files
    exec 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-
    ulimit -n "$1"
    shift
    "$@"
}
for files in 13 14 15 16 17 18 19 20 21 22 23 24 25 26; do
    (few $files env ZERO3D_LAUNCH=tcp ZERO3D_START_SECONDS=15 timeout 60 "$LAUNCH" -n $ranks "$ZERO3D" train tiny.yaml run.dir=few-files-$files train_batch_size=12 training.steps=1) \
        >out 2>err </dev/null
    code=$?
    [ $code -ne 0 ] || break
    [ $code -ne 124 ] || fail "with $files files the run does not end"
    grep -q 'Too many open files' err || fail "with $files files the reason is not named"
done
[ $code -eq 0 ] || fail "no limit up to $files suffices"

# A rank 0 that cannot accept the others names the limit. The launcher's shell itself needs more files than
# some of these limits, so the ranks are started by hand.
named=no
for files in 5 6 7 8 9 10 11 12 13 14 15 16; do
    background=""
    rank=0
    while [ $((rank += 1)) -lt $ranks ]; do
        train RANK=$rank WORLD_SIZE=$ranks >>out 2>&1 </dev/null &
        background="$background $!"
    done
    (few $files train RANK=0 WORLD_SIZE=$ranks) >out 2>err </dev/null && fail "with $files files rank 0 ended with exit code 0"
    for child in $background; do
        wait "$child" && fail "with $files files of rank 0 another rank ended with exit code 0"
    done
    background=""
    ! grep -Eq "accept.*Too many open files \(limit $files\); raise ulimit -n" err || {
        named=yes
        break
    }
done
[ $named = yes ] || fail "the connections do not name the limit of open files"

# ---- a batch script of Slurm's that forgets srun ----

unset RANK WORLD_SIZE
export SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NNODES=2 SLURM_NTASKS=4
expect 1 "$ZERO3D" train tiny.yaml run.dir=forgotten
says 'this Slurm job has 4 tasks on 2 nodes, but srun did not start this process, .*: srun zero3d .*'
expect 1 "$ZERO3D" doctor --measure here.yaml
says 'this Slurm job has 4 tasks'
[ ! -e here.yaml ] && [ ! -e forgotten ] || fail "what was refused left something"
# What one process does as well as many, and one rank on purpose.
expect 0 "$ZERO3D" train tiny.yaml run.dir=alone parallel.world_size=1 checkpoint.interval=5 checkpoint.dir=saved
expect 0 "$ZERO3D" generate saved --tokens 4 --prompt a
expect 0 "$ZERO3D" plan tiny.yaml --ranks 4

# ---- standard input ----

# Rank 0 has the launcher's, the others none; a launcher without one has none to give.
unset SLURM_JOB_ID SLURM_PROCID SLURM_NNODES SLURM_NTASKS
export ZERO3D_LAUNCH=tcp
printf 'Line 7' >prompt
for shell in dash bash; do
    command -v $shell >/dev/null || continue
    cat prompt | $shell "$LAUNCH" -n 2 "$ZERO3D" generate saved --prompt - --tokens 5 >out 2>err || fail "$shell: no text from a prompt on standard input"
    grep -q '^Line 7' out || fail "$shell: the prompt on standard input is lost"
    echo word | $shell "$LAUNCH" -n 3 sh -c 'read -r word; echo "$RANK:$word"' >out 2>err || true
    [ "$(sort out | tr '\n' ' ')" = '0:word 1: 2: ' ] || fail "$shell: standard input is not rank 0's alone"
    $shell "$LAUNCH" -n 2 sh -c 'read -r word; echo "$RANK:$word"' >out 2>err <&- || true
    [ "$(sort out | tr '\n' ' ')" = '0: 1: ' ] && [ ! -s err ] || fail "$shell: no ranks without standard input"
    # A limit at which a shell has no descriptor to spare for `command -v ... >/dev/null`.
    (ulimit -n 12 && exec $shell "$LAUNCH" -n 2 true) >out 2>err </dev/null
    ! grep -q 'there is no program' err || fail "$shell: with 12 descriptors a program is said not to be there"
done
