#!/bin/sh
# zero3d submit: what it plans and refuses, and the scripts that it writes; those of examples/slurm are what their second line says. (With a
# real Slurm: slurm.sh.)
. "$(dirname "$0")/lib.sh"
tiny
submit() { # submit CODE ARGUMENT...
    code=$1
    shift
    expect "$code" "$ZERO3D" submit "$@"
}

# ---- the examples ----

for script in "$SOURCE"/examples/slurm/*.sbatch; do
    [ "${script##*/}" != train.sbatch ] || continue
    command=$(sed -n '2s/^# Written by: zero3d //p' "$script")
    # shellcheck disable=SC2086 # the command's words, which need no quotes
    (cd "$SOURCE" && "$ZERO3D" $command) >out 2>err || fail "${script##*/}: its command fails"
    cmp "$script" out || fail "${script##*/} is not what its command writes: run it again"
    bash -n out || fail "${script##*/}: bash does not read it"
done

# ---- a script does what it says: with a shell function for srun ----

play() { # play NODES: runs the script in `out` in an allocation of so many nodes
    cp out job.sh
    {
        echo 'srun() { echo "srun $*"; return 75; }; scontrol() { echo "scontrol $*"; }'
        cat job.sh
    } >played.sh
    env SLURM_NNODES="$1" SLURM_JOB_ID=7 SLURM_ARRAY_JOB_ID=6 SLURM_ARRAY_TASK_ID=1 ZERO3D=zero3d bash played.sh >play
    [ $? -eq 75 ] || fail "the job's exit code is not the run's"
}
submit 0 tiny.yaml --nodes 2 --time 1-12 --ranks-per-node 2 --cpus-per-rank 3 --sbatch --partition=x --sbatch --account=y \
    --dry-run checkpoint.interval=5 "run.dir=it's mine"
for line in --nodes=2 --ntasks-per-node=2 --cpus-per-task=3 --time=1-12 --signal=USR1@300 --requeue --open-mode=append --partition=x --account=y; do
    grep -qx -- "#SBATCH $line" out || fail "no $line in the script"
done
! grep -q gpus out || fail "GPUs for a cpu run"
grep -q '^tiny: not written, so the defaults: .*a constant rate, no clipping' err || fail "the defaults are not told"
grep -q '^tiny: 4 ranks = tensor 1 x data 4 on 2 nodes; .* on rank 0 (--hardware says' err || fail "the plan is not told"
play 2
grep -qx "srun zero3d train tiny.yaml checkpoint.interval=5 run.dir=it's mine" play || fail "another command: $(cat play)"
grep -qx 'scontrol requeue 7' play || fail "not put into the queue again"

sed 's/run: { dir: run,/run: { dir: other,/' tiny.yaml >other.yaml
submit 0 tiny.yaml other.yaml --nodes 1 --time 30 --ranks-per-node 1 --dry-run checkpoint.interval=5
play 1
grep -qx 'srun zero3d train other.yaml checkpoint.interval=5' play || fail "another run of the array: $(cat play)"
grep -qx 'scontrol requeue 6_1' play || fail "the whole array is put into the queue again"
submit 0 tiny.yaml other.yaml --nodes 1 --time 30 --ranks-per-node 1 --dry-run checkpoint.interval=5 --runs many
play 1
grep -qx 'srun zero3d train other.yaml run.dir=many/other checkpoint.interval=5' play || fail "no folder of its own: $(cat play)"

# 8 samples: 3 nodes would not divide them, 4 do.
elastic="parallel.elastic=true train_micro_batch_size_per_gpu=1 checkpoint.interval=5"
# shellcheck disable=SC2086
submit 0 tiny.yaml --nodes 1-5 --time 30 --ranks-per-node 1 --dry-run $elastic
! grep -q ntasks-per-node out && grep -qx '#SBATCH --nodes=1-4' out && grep -qx '#SBATCH --mincpus=1' out || fail "a range of nodes"
uses() { # uses CAME:USED...
    for nodes in "$@"; do
        play ${nodes%:*}
        grep -q "^srun --nodes=${nodes#*:} --ntasks=${nodes#*:} " play || fail "$nodes: $(cat play)"
    done
}
uses 4:4 3:2 2:2 1:1
# No nodes are asked for that hold no copy of the model.
# shellcheck disable=SC2086
submit 0 tiny.yaml --nodes 1-8 --time 30 --ranks-per-node 1 --dry-run $elastic parallel.tensor_model_parallel_size=4
grep -qx '#SBATCH --nodes=4-8' out || fail "nodes without a copy of the model"
uses 8:8 7:4 4:4
# Four ranks a stage would have 3 micro-batches, which two stages cannot interleave.
interleaved="parallel.pipeline_model_parallel_size=2 parallel.virtual_pipeline_model_parallel_size=2 parallel.pipeline_schedule=interleaved"
# shellcheck disable=SC2086
submit 0 tiny.yaml --nodes 2-12 --time 30 --ranks-per-node 1 --dry-run $elastic $interleaved model.num_layers=4 train_batch_size=12
grep -qx 'for nodes in 12 6 4 2; do' out || fail "nodes that the schedule does not go with"
# shellcheck disable=SC2086
submit 1 tiny.yaml --nodes 7-9 --time 30 --ranks-per-node 1 --dry-run $elastic $interleaved model.num_layers=4 train_batch_size=12
says 'needs a multiple of 2 micro-batches in a step, not 3'
# All runs of an array must divide: 8 and 12 samples.
sed 's/train_batch_size: 8/train_batch_size: 12/; s/dir: run,/dir: twelve,/' tiny.yaml >twelve.yaml
# shellcheck disable=SC2086
submit 0 tiny.yaml twelve.yaml --nodes 1-8 --time 30 --ranks-per-node 1 --dry-run $elastic
grep -qx '#SBATCH --nodes=1-4' out || fail "nodes for one run of an array only"
uses 4:4 3:2 1:1
# shellcheck disable=SC2086
submit 1 tiny.yaml twelve.yaml --nodes 5-8 --time 30 --ranks-per-node 1 --dry-run $elastic
says 'twelve.yaml: --nodes 5-8: .* the 12 samples .* and the samples of the other runs'

# ---- names, words and lines of the user's are one word each, and never a command ----

mkdir "a b" && cp tiny.yaml "a b/it's \"mine\".yaml"
submit 0 "a b/it's \"mine\".yaml" --nodes 1 --time 30 --ranks-per-node 1 --dry-run checkpoint.interval=5 \
    --sbatch '--comment=a "b" #\' "generate.prompt=one
touch injected; exit 0"
grep -qx '#SBATCH --job-name=it_s__mine_' out || fail "the job's name is more than a word"
grep -qxF '#SBATCH "--comment=a \"b\" #\\"' out || fail "sbatch's option is more than a word"
play 1
[ ! -e injected ] || fail "a line of a prompt is a command"
printf '%s\n' "srun zero3d train a b/it's \"mine\".yaml checkpoint.interval=5 generate.prompt=one" 'touch injected; exit 0' 'scontrol requeue 7' >wanted
cmp -s wanted play || fail "another command: $(cat play)"

# ---- what the job runs before its ranks, and options of srun ----

printf 'export FROM=file\nprepare() { echo "prepared $*"; }\n' >prepare.sh
submit 0 tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 --dry-run checkpoint.interval=5 --setup-file prepare.sh --setup 'set -eu; config=x' \
    --setup 'prepare "$FROM, it'"'"'s  \"two\""' --srun "--container-image=it's mine.sqsh" --srun '--container-mounts=$HOME:/a;b' --srun --cpu-bind=none
play 1
printf '%s\n' "prepared file, it's  \"two\"" \
    "srun --container-image=it's mine.sqsh --container-mounts=\$HOME:/a;b --cpu-bind=none zero3d train tiny.yaml checkpoint.interval=5" \
    'scontrol requeue 7' >wanted
cmp -s wanted play || fail "another start: $(cat play)"
# shellcheck disable=SC2086
submit 0 tiny.yaml --nodes 1-2 --time 30 --ranks-per-node 1 --dry-run $elastic --setup 'nodes=9' --srun --mpi=none
play 2
grep -qx 'srun --nodes=2 --ntasks=2 --cpus-per-task=1 --mpi=none zero3d train tiny.yaml .*' play || fail "a range without its option: $(cat play)"
# Nothing that takes the rest of the script into itself.
for line in 'echo "x' "echo 'x" 'module load x \' 'if true; then' 'cat <<E' 'x=$(' '(' '}' 'f() {' 'a &&'; do
    submit 1 tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 --dry-run checkpoint.interval=5 --setup "$line"
    says 'bash does not understand the setup: '
done
submit 1 tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 --dry-run checkpoint.interval=5 --setup 'one
two'
says '--setup takes one line'
printf 'one\n#SBATCH --partition=x\n' >old.sbatch
submit 1 tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 --dry-run checkpoint.interval=5 --setup-file old.sbatch
says "old.sbatch:2: sbatch does not read '#SBATCH' here; write --sbatch OPTION"
printf 'module load x\r\n' >dos.sh
printf 'a\0b' >binary.sh
for file in dos.sh:1 binary.sh none.sh; do
    submit 1 tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 --dry-run checkpoint.interval=5 --setup-file ${file%:*}
    says "$file:? "
done
for option in --nodes=2 --ntasks=3 --n=3 --time=1 --gres=gpu:1 --distribution=cyclic --multi-prog; do
    submit 2 tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 --srun "$option"
    says "--srun $option: the script decides this, as it is planned: "
done
for option in -K container-image=x '--label
exit'; do
    submit 2 tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 --srun "$option"
    says '--srun .*expected the long name of an option of srun'
done

# ---- on described hardware ----

v100="--hardware $SOURCE/configs/hardware/dgx2-v100.yaml --software paper-2019"
paper="$SOURCE/configs/paper"
# shellcheck disable=SC2086
submit 1 "$paper/fig2-zero-170B-400gpus.yaml" --nodes 25 --time 8:00:00 $v100 --dry-run checkpoint.interval=9 activation_checkpointing.cpu_checkpointing=false
says 'fig2-zero-170B-400gpus.yaml: .* has .* GiB, of which .* lie outside the plan: .*(needs|take|fit)'
[ ! -s out ] || fail "a script for what does not fit"
# shellcheck disable=SC2086
submit 1 "$paper/fig2-zero-170B-400gpus.yaml" --nodes 24 --time 8:00:00 $v100 --dry-run checkpoint.interval=9
says "^zero3d: $paper/fig2-zero-170B-400gpus.yaml:[0-9]*:[0-9]*: parallel.world_size: asks for 400 ranks" # the file once
# shellcheck disable=SC2086
submit 1 "$paper/fig2-zero-170B-400gpus.yaml" --nodes 25 --time 4 $v100 --dry-run checkpoint.interval=9
says 'too short: the ranks need 300 seconds'

# A plan for GPUs is a job for GPUs; its file has what was decided and what is no default.
h100="--hardware $SOURCE/configs/hardware/dgx-h100.yaml"
printf 'model: { num_layers: 4, hidden_size: 1024, num_attention_heads: 16 }\ntrain_batch_size: 64\nbf16: { enabled: true }\n' >small.yaml
# shellcheck disable=SC2086
expect 0 "$ZERO3D" plan small.yaml --recommend $h100 --ranks 16 --write best.yaml
grep -q '^  device: cuda' best.yaml || fail "a plan for GPUs is a cpu run"
grep -q '^  device: cuda' out || fail "the printed plan is a cpu run"
grep -q '^  stage: ' best.yaml || fail "what the search decided is not written"
! grep -q 'watchdog_timeout\|repetition_penalty' best.yaml || fail "defaults are written"
[ "$(wc -l <best.yaml)" -lt 45 ] || fail "a long file"
# shellcheck disable=SC2086
submit 0 best.yaml --nodes 2 --time 8:00:00 $h100 --dry-run checkpoint.interval=9
grep -qx '#SBATCH --gpus-per-node=8' out || fail "a plan for GPUs asks for none"
# shellcheck disable=SC2086
submit 0 small.yaml --nodes 2 --time 8:00:00 $h100 --dry-run checkpoint.interval=9 train_micro_batch_size_per_gpu=1
grep -qx '#SBATCH --gpus-per-node=8' out || fail "a machine of GPUs asks for none"
grep -q 'train "$config" training.device=cuda ' out || fail "the job would run on CPUs"
# shellcheck disable=SC2086
submit 1 best.yaml --nodes 2 --time 8:00:00 $h100 --dry-run checkpoint.interval=9 training.device=cpu
says 'training.device=cpu: cpu, but the described machine, .*, computes on GPUs'
# shellcheck disable=SC2086
expect 1 "$ZERO3D" plan best.yaml $h100 training.device=cpu
says 'write cuda, or describe another machine'

# ---- what is refused ----

submit 2
says 'no configuration'
submit 2 tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 --partition=x
says 'unknown option --partition=x; if it is sbatch.s, write --sbatch --partition=VALUE'
submit 2 tiny.yaml --time 30
says '--nodes N is missing'
submit 2 tiny.yaml --nodes 1
says '--time T is missing'
for time in x 0 1: 1:2:3:4 -5 1- 5m 1--2 '1 2' '
30' 1234567 '1:	2'; do
    submit 2 tiny.yaml --nodes 1 --time="$time" --ranks-per-node 1
    says 'expected a time limit'
done
for nodes in 0 x 2-1 1-x 1- -1 ''; do
    submit 2 tiny.yaml --nodes="$nodes"
    says "--nodes $nodes: expected a whole number from 1 to 1000000, or a range such as 2-4"
done
for option in partition=x '--partition x' '--exclusive
exit'; do
    submit 2 tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 --sbatch "$option"
    says 'expected an option of sbatch'
done
for option in --nodes=3 '-N 3' -N3 --ntasks-per-node=4 -n4 -c2 --cpus-per-task=2 --time=1 -t1 --array=0-3 -a0-3 \
    --no-requeue --no-req --requeue --signal=B:TERM@10 --gpus-per-node=1 --gres=gpu:2 --gres=craynetwork:1,gpu:2 \
    --tres-per-task=gres/gpu:1 --ntasks-per-gpu=1 --ntasks-per-socket=2 --gpus-per-socket=1 --job-name=x -Jx --output=x --open-mode=truncate; do
    submit 2 tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 --sbatch "$option"
    says "--sbatch $option: the script decides this, as it is planned: "
done
for option in -HN2 '-H N2' -Hn4 -kx; do
    submit 2 tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 --sbatch "$option"
    says "--sbatch $option: .* takes no value"
done
submit 0 tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 --dry-run checkpoint.interval=5 --sbatch '-A my project' --sbatch -Cfast \
    --sbatch '-q high' --sbatch --mem=0 --sbatch --exclusive --sbatch -H --sbatch --gres=nvme:1
for line in '-A "my project"' '-C fast' '-q high' --mem=0 --exclusive -H --gres=nvme:1; do
    grep -qxF -- "#SBATCH $line" out || fail "no $line in the script"
done
submit 2 tiny.yaml --nodes 1 --time 10000 --ranks-per-node 1 --signal 65536
says '--signal 65536: expected a whole number from 1 to 65535'
submit 1 tiny.yaml --nodes 1000000 --time 30 --ranks-per-node 1000000 --dry-run checkpoint.interval=5
says '--nodes 1000000: .* too many'
submit 2 tiny.yaml --nodes 1 --time 30 checkpoint.interval=5 --dry-run
says '--ranks-per-node N is missing'
submit 1 tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 --dry-run
says 'checkpoint.interval.* a job that is stopped could not go on'
submit 1 tiny.yaml --nodes 1-2 --time 30 --ranks-per-node 1 --dry-run checkpoint.interval=5
says 'a range needs parallel.elastic=true'
# shellcheck disable=SC2086
submit 1 tiny.yaml --nodes 3-3 --time 30 --ranks-per-node 1 --dry-run $elastic
says '8 is not a multiple of 3 samples'
# shellcheck disable=SC2086
submit 1 tiny.yaml --nodes 5-7 --time 30 --ranks-per-node 1 --dry-run $elastic
says '--nodes 5-7: no number of nodes'
submit 2 tiny.yaml tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 --dry-run checkpoint.interval=5
says 'have the same run.dir, run: '
submit 2 tiny.yaml "a b/../tiny.yaml" --nodes 1 --time 30 --ranks-per-node 1 --dry-run checkpoint.interval=5 --runs many
says 'have the same run.dir, many/tiny: '
submit 2 tiny.yaml other.yaml --nodes 1 --time 30 --ranks-per-node 1 --dry-run checkpoint.interval=5 checkpoint.dir=one
says 'have the same checkpoint.dir, one: '
submit 1 tiny.yaml --nodes 1-2 --time 30 --ranks-per-node 1 --dry-run checkpoint.interval=5 parallel.elastic=true train_batch_size=auto
says 'a range needs parallel.elastic=true, train_batch_size'
submit 1 tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 checkpoint.interval=5 data.train=none.bin
says 'data.train: none.bin: cannot read it'
submit 1 tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 checkpoint.interval=5 data.validation=none.bin
says 'data.validation: none.bin: cannot read it'
submit 0 tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 checkpoint.interval=5 data.train=none.bin --dry-run
grep -q '^tiny: data.train: none.bin: cannot read it: .*; without --dry-run it is refused$' err || fail "a dry run does not say that data is missing"
submit 1 nowhere.yaml --nodes 1 --time 30 --ranks-per-node 1
says 'nowhere.yaml'
# No Slurm here.
mkdir tools
for tool in sh cat; do ln -s "$(command -v $tool)" tools/$tool; done
expect 1 env PATH="$PWD/tools" "$ZERO3D" submit tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 checkpoint.interval=5
grep -q '^zero3d: error: there is no sbatch here' err || fail "the missing sbatch is not named"
# No zero3d for the job.
expect 1 env -u ZERO3D PATH="$PWD/tools" "$ZERO3D" submit tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 checkpoint.interval=5
says 'the job would start zero3d, which does not exist: export ZERO3D'
# What prepares the node may bring it: then only sbatch is missing.
expect 1 env -u ZERO3D PATH="$PWD/tools" "$ZERO3D" submit tiny.yaml --nodes 1 --time 30 --ranks-per-node 1 checkpoint.interval=5 --setup 'module load zero3d'
grep -q '^zero3d: error: there is no sbatch here' err || fail "a setup may not bring the program"
