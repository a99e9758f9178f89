#!/bin/sh
# A real Slurm: two nodes on this machine, under this user. The job script of examples/ trains, is told to end, saves, puts itself into the
# queue again and goes on; then on fewer ranks. `zero3d submit` does the same, with an array and with nodes that go and come back. The
# scripts of the paper's runs are looked at by sbatch, for nodes that nobody has started. Left out (77) where Slurm is not installed.
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin
for command in munged slurmctld slurmd srun sbatch; do
    command -v $command >/dev/null || { echo "no $command here (packages munge, slurm-wlm)" && exit 77; }
done
unset RANK WORLD_SIZE

# ---- a cluster in this folder ----

port=$((10000 + $$ % 5000 * 4)) # four, which no other run of this test has at the same time
key="$work/munge.key"
mkdir state spool-n1 spool-n2
chmod 755 . # munged wants it
(umask 077 && head -c 128 /dev/urandom >"$key")
cat >slurm.conf <<END
ClusterName=test
GresTypes=gpu
SlurmdTimeout=0
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=100000
SuspendExcNodes=n1,n2
SlurmctldHost=localhost
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket,cred_expire=5
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd-%n.log
SlurmctldPort=$port
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1
KillWait=2
MpiDefault=none
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=2
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=2
NodeName=dgx[1-25] NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + 4)) CPUs=96 Gres=gpu:16 State=CLOUD
PartitionName=all Nodes=n1,n2 Default=YES
PartitionName=dgx Nodes=dgx[1-25]
END
echo 'CgroupPlugin=cgroup/v1' >cgroup.conf
export SLURM_CONF="$work/slurm.conf"
# Its nodes are no hosts.
export MASTER_ADDR=localhost MASTER_PORT=$((port + 3))

until_so() { # until_so WHAT COMMAND...: waits for it
    what=$1
    shift
    tries=600
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "waited in vain: $what ($(squeue -h -o '%T %r' 2>&1); $(tail -n 3 slurmctld.log))"
        sleep 0.1
    done
}
down() {
    code=$?
    scancel --user="$(id -un)" >/dev/null 2>&1
    for file in slurmd-n1.pid slurmd-n2.pid slurmctld.pid munged.pid; do
        [ -s $file ] && background="$background $(cat $file)"
    done
    # Steps outlive daemons that are gone; all of them are in this folder.
    for process in /proc/[0-9]*; do
        case $(readlink "$process/cwd") in
        "$work" | "$work"/*) [ "$process" = "/proc/$$" ] || background="$background ${process#/proc/}" ;;
        esac
    done
    # shellcheck disable=SC2086 # a list of process ids
    kill $background 2>/dev/null
    sleep 0.2
    (exit $code)
    finish
}
trap down EXIT
munged --key-file="$key" --socket="$work/munge.socket" --pid-file="$work/munged.pid" --log-file="$work/munged.log" \
    --seed-file="$work/munge.seed" >out 2>&1 || fail "munged does not start"
slurmctld -f "$SLURM_CONF" || fail "slurmctld does not start"
for node in n1 n2; do slurmd -f "$SLURM_CONF" -N $node || fail "slurmd does not start"; done
idle() { [ "$(sinfo -h -p all -t idle -o %D)" = 2 ]; }
until_so "two idle nodes" idle

# ---- the job ----

tiny
newest() { "$ZERO3D" checkpoint list run/checkpoints 2>/dev/null | sed -n 's/^ *\([0-9][0-9]*\) .*/\1/p' | sort -n | tail -n 1; }
submit() { # submit OPTION...: of sbatch's; prints the job's number
    sbatch --parsable --output=job.log --cpus-per-task=1 "$@" "$SOURCE/examples/slurm/train.sbatch" tiny.yaml checkpoint.interval=1000000
}
state() { [ "$(squeue -h -j "$job" -o %T 2>/dev/null)" = "$1" ]; }
sed -i 's/steps: 5,/steps: 100000000,/' tiny.yaml
job=$(submit --nodes=2 --ntasks-per-node=1) || fail "sbatch"
until_so "a first step" test -s run/metrics.jsonl
scancel --signal=USR1 "$job"
until_so "the job in the queue again" state PENDING
step=$(newest)
[ "${step:-0}" -ge 1 ] || fail "no checkpoint: $(cat job.log)"
sed -i "s/steps: 100000000,/steps: $((step + 3)),/" tiny.yaml
until_so "the job's end" state ""
grep -q '^next  *resume:   srun -n 2 ' job.log || fail "it does not say how srun goes on: $(cat job.log)"
grep -q "resuming after step $step of" job.log || fail "not resumed: $(cat job.log)"
[ "$(grep -c '^ranks  *2 = ' job.log)" -eq 2 ] || fail "not on two ranks twice: $(cat job.log)"
[ "$(newest)" -eq $((step + 3)) ] || fail "not complete: $(cat job.log)"

# Complete is complete; and more of it on one rank.
sed -i "s/steps: $((step + 3)),/steps: $((step + 5)),/" tiny.yaml
job=$(submit --nodes=1 --ntasks-per-node=1) || fail "sbatch"
until_so "the second job's end" state ""
[ "$(newest)" -eq $((step + 5)) ] || fail "not gone on alone: $(cat job.log)"

# ---- the paper's runs ----

for script in "$SOURCE"/examples/slurm/*.sbatch; do
    [ "${script##*/}" != train.sbatch ] || continue
    expect 0 sbatch --test-only --partition=dgx "$script"
    grep -q 'to start at .* in partition dgx$' err || fail "${script##*/} is not accepted"
done
expect fail sbatch --test-only --partition=dgx --nodes=26 "$SOURCE/examples/slurm/zero-100b.sbatch"

# ---- zero3d submit: two runs in an array ----

tiny
for run in a b; do sed 's/steps: 5,/steps: 4,/' tiny.yaml >$run.yaml; done
# Each start is prepared: here zero3d comes from the setup alone, and srun has an option.
printf 'PATH=$TOOLS:$PATH\n' >modules.sh
expect 0 env -u ZERO3D "$ZERO3D" submit a.yaml b.yaml --nodes 1 --ranks-per-node 1 --time 10 --runs array checkpoint.interval=2 training.seed=2 \
    --setup 'set -e' --setup "export TOOLS='${ZERO3D%/*}'" --setup '. ./modules.sh; echo "prepared  once"' --srun --label
job=$(sed -n 's/^Submitted batch job //p' out)
until_so "the array's end" state ""
[ "$(grep -lx 'prepared  once' zero3d-*.log | wc -l)" -eq 2 ] && grep -q '^0: model  ' zero3d-*.log || fail "the setup or srun's option has no effect: $(cat zero3d-*.log)"
for run in a b; do [ -e array/$run/checkpoints/step-00000004/manifest.json ] || fail "run $run: $(cat zero3d-*.log)"; done
cmp array/a/metrics.jsonl array/b/metrics.jsonl >/dev/null && fail "one run wrote both" # their times differ

# ---- and one that goes on with the nodes that there are: 4, 2 and 4 ranks, as if nothing had been ----

sed 's/steps: 5, //; s/train_batch_size: 8//; s/gradient_accumulation_steps: 1//' tiny.yaml >elastic.yaml
ranks_were() { [ "$(sed -n 's/^ranks  *\([0-9]*\) = .*/\1/p' zero3d-elastic-*.log | tr '\n' ' ')" = "$1" ]; }
grown() { [ "$(wc -l <elastic/elastic/metrics.jsonl)" -gt $((lines + 3)) ]; }
again() { # again RANKS: stops it and waits until it trains on so many
    scancel --signal=USR1 "$job"
    until_so "a run on $1 ranks" ranks_were "$1"
    lines=$(wc -l <elastic/elastic/metrics.jsonl)
    until_so "steps on $1 ranks" grown
}
sed -i 's/log_interval: 1/log_interval: 1, steps: 100000000/' elastic.yaml
expect 0 "$ZERO3D" submit elastic.yaml --nodes 1-2 --ranks-per-node 2 --cpus-per-rank 1 --time 1:00:00 --runs elastic --output elastic.sbatch \
    train_batch_size=8 train_micro_batch_size_per_gpu=2 parallel.elastic=true checkpoint.interval=1000000
job=$(sed -n 's/^Submitted batch job //p' out)
lines=0
until_so "a first step on 4 ranks" ranks_were "4 "
until_so "steps on 4 ranks" grown
scontrol update nodename=n2 state=drain reason=test
again "4 2 "
scontrol update nodename=n2 state=resume
again "4 2 4 "
scancel --signal=USR1 "$job"
until_so "the end" ranks_were "4 2 4 4 "
scancel "$job"
until_so "the job's end" state ""
losses() { sed -n 's/^{"step":\([0-9]*\),"loss":\([0-9.]*\),.*/\1 \2/p' "$1/metrics.jsonl" | head -n "$2"; }
steps=$(wc -l <elastic/elastic/metrics.jsonl)
[ "$steps" -lt 3000 ] || steps=3000
expect 0 "$LAUNCH" -n 4 "$ZERO3D" train elastic.yaml run.dir=alone4 train_batch_size=8 train_micro_batch_size_per_gpu=2 training.steps="$steps"
losses alone4 "$steps" >wanted
losses elastic/elastic "$steps" >got
paste wanted got | awk '{ d = $2 - $4; n++ } $1 != $3 || d > 1e-5 || d < -1e-5 { bad = 1; print } END { exit bad || n < 12 }' >out ||
    fail "other losses than an undisturbed run's"

# ---- the commands of docs/slurm.md, from the data on ----

line_with() { sed -n '/^```sh$/,/^```$/p' "$SOURCE/docs/slurm.md" | sed -n "/$1/p" | sed 's/  *#.*//; s/^zero3d /"$ZERO3D" /' | head -n 1; }
mkdir clone && cd clone || fail "no folder"
ln -s "$SOURCE/docs" "$SOURCE/README.md" "$SOURCE/configs" "$SOURCE/examples" .
for words in 'data tokenize' ' plan ' 'submit configs.*--dry-run'; do
    eval "$(line_with "$words")" >../out 2>../err || fail "docs/slurm.md: $words"
done
bash -n ../out || fail "--dry-run: no script"
eval "$(line_with 'submit configs.*=7000  *#')" >../out 2>../err || fail "docs/slurm.md: submit"
job=$(sed -n 's/^Submitted batch job //p' ../out)
until_so "steps of the documented run" test -s runs/demo/metrics.jsonl
stop=$(line_with "scancel --signal=USR1 JOB")
eval "${stop%JOB}$job"
until_so "its second start" grep -q 'resuming after step' zero3d-demo-"$job".log
eval "$(line_with 'checkpoint list')" | grep -q '^ *[1-9]' || fail "docs/slurm.md: no checkpoint"
scancel "$job"
until_so "the job's end" state ""
cd ..

# ---- without srun ----

expect 1 salloc -n 2 "$ZERO3D" train tiny.yaml run.dir=alone
grep -q '^zero3d: .*this Slurm job has 2 tasks' err || fail "one process trains in a job for two"
