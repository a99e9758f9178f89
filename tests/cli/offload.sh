#!/bin/sh
# Optimizer states, parameters and activation checkpoints in host memory or on the disk: training, resuming, generation, plans, and folders that
# are refused. ZERO3D_LONG: resuming with every pair of tiers.
. "$(dirname "$0")/lib.sh"
tiny
export ZERO3D_GRACE_SECONDS=1 # what mpirun waits after a failure, twice
mkdir tier
OPTIMIZER=zero_optimization.offload_optimizer
PARAM=zero_optimization.offload_param
host="$OPTIMIZER.device=cpu"
disk="$OPTIMIZER.device=nvme $OPTIMIZER.nvme_path=tier"
parameters="$PARAM.device=nvme $PARAM.nvme_path=tier"
stage="zero_optimization.stage=3"

ranks=2
train() { # train CODE FOLDER ARGUMENT...
    code=$1 folder=$2
    shift 2
    set -- "$ZERO3D" train tiny.yaml run.dir="$folder" "$@" --verbose
    [ "$ranks" = 1 ] || set -- "$LAUNCH" -n "$ranks" "$@"
    expect "$code" "$@"
}
losses() {
    sed -n 's/.*"step": *\([0-9]*\),.*"loss": *\([^,]*\),.*"grad_norm": *\([^,]*\),.*/\1 \2 \3/p' "$1/metrics.jsonl"
}
same() { # same FOLDER: the losses of the run without
    losses "$1" >"$1.losses"
    [ "$(wc -l <"$1.losses")" -eq 5 ] || fail "$1 has not five losses"
    cmp without.losses "$1.losses" || fail "$1: other losses than the run without"
    # shellcheck disable=SC2012 # its own names
    [ -z "$(ls -A tier)" ] || fail "$1 left something behind: $(ls -A tier)"
}

# The bits of the run without, whatever is kept elsewhere; the start says where, the end how much.
# shellcheck disable=SC2086 # lists of arguments
{
    train 0 without $stage checkpoint.interval=3
    losses without >without.losses
    tail -n 2 without.losses >last.losses
    [ "$(wc -l <without.losses)" -eq 5 ] || fail "no five losses: $(cat without/metrics.jsonl)"
    train 0 host $stage $host checkpoint.interval=3
    same host
    grep -q '^offload     optimizer states in host memory, parameters on the device$' out || fail "the start does not say where"
    grep -q 'offload_optimizer.device cpu frees no memory on the cpu device' err || fail "what it is good for"
    train 0 shared $stage $host $OPTIMIZER.ratio=auto
    same shared
    grep -q '^offload     offload_optimizer.ratio auto: 0: a rank needs .* of which a tenth stays free$' out || fail "the start does not say how much is offloaded"
    grep -q ' ratio: 0$' shared/config.yaml || fail "the run's configuration has no ratio"
    train 0 disk $stage $disk checkpoint.interval=3 checkpoint.async=true
    same disk
    grep -q '^zero3d: checkpoint.async has no effect with zero_optimization.offload_optimizer.device nvme' err ||
        fail "nothing says that saves are not asynchronous"
    ! grep -q 'copy for asynchronous saves' out || fail "what is on the disk is copied to memory"
    grep -Eq '^offload     optimizer states on the disk, parameters on the device; disk: .*(io_uring|threads).*(O_DIRECT|buffered)' out ||
        fail "the start does not say how the disk is read"
    train 0 both $stage $disk $parameters zero_optimization.sub_group_size=2000 training.digest=true
    grep -q ' wait store_states ' both/digest-rank1.txt || fail "no digest of what goes to the disk"
    same both
    grep -Eq '^  on the disk +[0-9.]+ [KM]iB +[0-9.]+ [KM]iB$' out || fail "the end does not say what is on the disk"
    for lane in 'host transfers: .* exposed' 'disk: .* exposed' 'host step: .*'; do
        grep -Eq "^$lane, [0-9.]+ % of the steps' time$" out || fail "the end does not say what was exposed: $lane"
    done
    grep -Eq '"exposed_disk_seconds":[0-9.e-]*[1-9][0-9.e-]*,"host_step_seconds":[0-9.e-]*[1-9]' both/metrics.jsonl ||
        fail "the metrics do not say what was exposed"
    ! grep -q host_step_seconds without/metrics.jsonl || fail "a run without offload has no host step"
    ! grep -q '^  !' out || fail "memory is not as planned"
    # Activation checkpoints, alone in the file.
    train 0 acts $stage activation_checkpointing.cpu_checkpointing=nvme activation_checkpointing.nvme_path=tier training.digest=true
    same acts
    grep -q ' wait save_input .*block' acts/digest-rank1.txt || fail "no digest of checkpoints"
    grep -Eq '^offload     activation checkpoints on the disk; disk: ' out || fail "the start does not say where checkpoints are"
    grep -Eq '^  on the disk +[0-9.]+ [KM]iB +[0-9.]+ [KM]iB$' out || fail "the end does not say what checkpoints are on the disk"
    ! grep -q '^  !' out || fail "memory is not as planned with checkpoints on the disk"
    train 0 first zero_optimization.stage=1 $disk
    same first

    # A run goes on with other tiers.
    set -- "without $host" "without $disk $parameters" "disk "
    [ -z "${ZERO3D_LONG:-}" ] || set -- "$@" "without " "disk $host" "disk $disk $parameters" "host " "host $host" "host $disk $parameters"
    for way; do
        rm -rf other
        train 0 other $stage ${way#* } checkpoint.resume=${way%% *}/checkpoints/step-00000003
        losses other | cmp -s - last.losses || fail "from $way: other losses than the run without: $(losses other)"
    done

    # One step late: other losses, the same on every tier; its checkpoints have the gradients that
    # wait.
    late=$OPTIMIZER.delayed_param_update=true
    train 0 late zero_optimization.stage=2 $host $late checkpoint.interval=3
    grep -q "^offload     delayed_param_update: a step's gradients change the parameters one step later" out ||
        fail "the start does not say that updates are late"
    losses late >late.losses
    ! cmp -s without.losses late.losses || fail "a delayed update changes nothing"
    tail -n 2 late.losses >last.losses
    train 0 late-disk $stage $disk $parameters $late
    losses late-disk | cmp - late.losses || fail "a delayed update depends on the tier"
    rm -rf other
    train 0 other $stage $disk $late checkpoint.resume=late/checkpoints/step-00000003
    losses other | cmp -s - last.losses || fail "a delayed update does not resume: $(losses other)"
    rm -rf other
    ranks=1
    train fail other $stage checkpoint.resume=late/checkpoints/step-00000003
    says 'step 3 has gradients that its run would apply in the next step .*; set zero_optimization.offload_optimizer.delayed_param_update=true'
    rm -rf other
    train fail other $stage $disk $late checkpoint.resume=late/checkpoints/step-00000003 bf16.enabled=true
    grep -q 'bf16.enabled=true: true here, false in the checkpoint of step 3' err || fail "gradients that wait take another precision"
    ranks=2
    expect 0 "$ZERO3D" checkpoint export late/checkpoints/step-00000003 exported
    expect 0 "$ZERO3D" plan tiny.yaml --ranks 2 $stage $disk $late --print-program
    grep -q '^delayed parameter update: the host steps the gradients of the step before' out || fail "the program does not say so"

    # Generation reads parameters from where they are kept.
    printf '{"prompt": "Line 1"}\n{"prompt": "and"}\n' >in.jsonl
    generate="generate without/checkpoints --prompts in.jsonl --tokens 8"
    expect 0 "$ZERO3D" $generate
    cp out shown
    expect 0 "$LAUNCH" -n 2 "$ZERO3D" $generate zero_optimization.stage=3 $parameters
    cmp -s shown out || fail "parameters on the disk: other answers"
    expect 0 "$ZERO3D" $generate zero_optimization.stage=3 $PARAM.device=cpu
    cmp -s shown out || fail "parameters in host memory: other answers"

    # Plans say what lies where.
    expect 0 "$ZERO3D" plan tiny.yaml --ranks 2 $stage $disk $PARAM.device=cpu
    grep -Eq '^  parameters +[1-9][0-9]* +[0-9.]+ KiB  in host memory$' out || fail "parameters in host memory"
    grep -Eq '^  optimizer +[1-9][0-9]* +[0-9.]+ KiB  on the disk$' out || fail "the optimizer on the disk"
    grep -Eq '^  host arena +[1-9]' out || fail "the host arena"
    grep -Eq '^  disk file +[1-9]' out || fail "the disk file"
    # On a described machine: how long the device stands still for what, with a lane for each.
    expect 0 "$ZERO3D" plan tiny.yaml --ranks 2 $stage $disk $parameters --hardware "$SOURCE/configs/hardware/dgx2-v100.yaml" --trace lanes.json
    grep -Eq '^  exposed: disk +[0-9.]*[1-9][0-9.]* s ' out || fail "no price of the disk"
    grep -Eq '^  exposed: host optimizer +[0-9.]*[1-9][0-9.]* s ' out || fail "no price of the host's step"
    for lane in copies disk 'disk writes' host; do
        grep -q "\"args\":{\"name\":\"$lane\"}" lanes.json || fail "no lane '$lane'"
        grep -q "\"name\":\"$lane\",\"cat\":\"beside\"" lanes.json || fail "nothing on the lane '$lane'"
    done
    grep -q '"name":"wait: disk"' lanes.json || fail "nobody waits for the disk"

    expect 0 "$ZERO3D" plan tiny.yaml --ranks 2 $stage $disk $parameters --fit 1GiB --write fit.yaml
    grep -q '^  stage: 3$' fit.yaml || fail "parameters that are kept elsewhere need stage 3"
    grep -q '^    device: nvme$' fit.yaml || fail "--fit leaves out where parameters are kept"

    # What is refused: on every rank, in one line, before anything starts. Two ranks have all that one of them may find out, one rank the
    # rest.
    refused() { # refused PATTERN ARGUMENT...
        pattern=$1
        shift
        rm -rf none
        train fail none $stage "$@"
        says "$pattern"
        [ ! -e none/checkpoints ] || fail "a refused run left checkpoints"
    }
    : >file
    for folder in missing file /proc; do
        [ $folder = missing ] || ranks=1
        refused "offload to nvme_path: $folder: cannot create a file in this folder" $OPTIMIZER.device=nvme $OPTIMIZER.nvme_path=$folder
    done
    ranks=2
    refused 'offload_optimizer.nvme_path=.*NOT_SET is not set on this rank' $OPTIMIZER.device=nvme "$OPTIMIZER.nvme_path=\$NOT_SET/a"
    ranks=1
    refused 'cpu_checkpointing=nvme: nvme needs a folder on a local disk' activation_checkpointing.cpu_checkpointing=nvme
    refused 'offload_param: in training the host steps these parameters' $parameters
}
