#!/bin/sh
# `zero3d plan --fit` and `--recommend`: their forms of output, the file they write, what they refuse.
. "$SOURCE/tests/cli/lib.sh"
v100="--hardware $SOURCE/configs/hardware/dgx2-v100.yaml --software paper-2019"
tiny
cat >>tiny.yaml <<END
activation_checkpointing: { granularity: none }
END

# The written file has all that is no default, and trains.
expect 0 "$ZERO3D" plan tiny.yaml --fit 848KiB --write best.yaml
grep -q 'nominal' out || fail "nothing says which machine"
grep -Eq '[1-9][0-9]* do not fit' out || fail "nothing says how many ways do not fit"
grep -q 'written: best.yaml' out || fail "nothing says what was written"
grep -q 'train_batch_size: 8$' best.yaml || fail "another global batch"
expect 0 "$ZERO3D" train best.yaml
expect 0 "$ZERO3D" plan tiny.yaml --fit 848KiB --json
grep -Eq '"best": \{"tensor": 1, .*"stage": [0-9], .*"memory": \{.*"rows": \[\{' out || fail "the JSON has another form"

# What fits is what `plan` says of the written file: the cpu device has other scratch than a GPU.
expect 0 "$ZERO3D" plan tiny.yaml --fit 1600KiB model.seq_length=256 train_batch_size=2 training.threads=2 --write scratch.yaml
used=$("$ZERO3D" plan scratch.yaml --ranks 1 | awk '$1 $2 == "devicearena" { print $3 }')
[ "$used" -le 1638400 ] || fail "$used bytes in 1600 KiB"

# What is set stays, the other sizes are searched.
# shellcheck disable=SC2086
expect 0 "$ZERO3D" plan tiny.yaml --fit 1GiB --ranks 4 parallel.pipeline_model_parallel_size=2 --write open.yaml
grep -Eq '^ +1 +[0-9]+ +(-|yes|no) +2 ' out || fail "another pipeline size than the configuration's"
grep -q 'pipeline_model_parallel_size: 2' open.yaml || fail "another pipeline size in the file"
expect 1 "$ZERO3D" plan tiny.yaml --fit 1GiB --ranks 4 parallel.pipeline_model_parallel_size=3
says 'tensor, pipeline and data size for 4 ranks .* with those that the configuration sets'

# Of 2 or 4 samples the second rank would get none, of 8 it gets one: no such row is tried.
expect 0 "$ZERO3D" plan tiny.yaml 'parallel.device_speeds=[1, 0.2]' train_batch_size=8 train_micro_batch_size_per_gpu=auto parallel.tensor_model_parallel_size=1 parallel.pipeline_model_parallel_size=1 --fit 16GiB --json
grep -q '"micro_batch": 4, "accumulation": 1' out || fail "no row with the whole batch"
grep -Eq '"micro_batch": [12],' out && fail "a row in which a rank has no sample"

# The paper's 100B on 400 devices, far from fitting without ZeRO.
# shellcheck disable=SC2086 # two options each
expect 0 "$ZERO3D" plan "$SOURCE/configs/paper/fig2-zero-100B-400gpus.yaml" parallel.pipeline_model_parallel_size=1 --fit device $v100 --write 100B.yaml
grep -Eq '[1-9][0-9]* do not fit' out || fail "ZeRO-0 cannot fit 100 B parameters"
# shellcheck disable=SC2086
expect 0 "$ZERO3D" plan 100B.yaml $v100 --json
grep -q '"fits": true' out || fail "what was found does not fit"

# shellcheck disable=SC2086
expect 1 "$ZERO3D" plan "$SOURCE/configs/paper/fig2-zero-100B-400gpus.yaml" parallel.pipeline_model_parallel_size=1 zero_optimization.offload_optimizer.device=none --fit 7GiB $v100 --write no.yaml
says 'no way fits 400 ranks with 7.00 GiB each: .* with ZeRO-3, .* too much'
[ ! -e no.yaml ] || fail "a file of nothing was written"
for wrong in 16Gib8 0 -- ''; do
    expect 2 "$ZERO3D" plan tiny.yaml "--fit=$wrong"
    says 'expected a size'
done
expect 2 "$ZERO3D" plan tiny.yaml --fit device
says 'needs --hardware FILE'
expect 2 "$ZERO3D" plan tiny.yaml --fit 1GiB --trace x.json
expect 2 "$ZERO3D" plan tiny.yaml --write x.yaml
says 'needs --fit, --recommend or --calibrate'
expect 1 "$ZERO3D" plan tiny.yaml --fit 1GiB --write no/such/folder.yaml
says 'no/such/folder.yaml'

# The keys that are printed, and the file, are those of the first line; the file trains.
h100="--hardware $SOURCE/configs/hardware/dgx-h100.yaml"
sed 's/, gemm: { fp32: sgemm }//' tiny.yaml >gpus.yaml && mv gpus.yaml tiny.yaml # it is of CPUs
# shellcheck disable=SC2086
expect 0 "$ZERO3D" plan tiny.yaml --recommend --ranks 2 $h100 --write found.yaml
grep -q 'written: found.yaml' out || fail "nothing says what was written"
sed -n '/^parallel:$/,/^gradient_accumulation_steps:/p' out >keys.yaml
sed -n '/^model:/,/^[^ m]/p' tiny.yaml | sed '$d' >pasted.yaml
cat keys.yaml >>pasted.yaml
for file in found.yaml pasted.yaml; do
    # shellcheck disable=SC2086
    expect 0 "$ZERO3D" plan $file --ranks 2 $h100 --json
    grep -o '"step": [0-9.e-]*' out >"$file.seconds"
done
cmp found.yaml.seconds pasted.yaml.seconds || fail "the printed keys are not those of the file"
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train found.yaml training.device=cpu # this machine has no GPUs
# shellcheck disable=SC2086
expect 0 "$ZERO3D" plan tiny.yaml --recommend --ranks 2 $h100 --json
grep -Eq '"best": \{"tensor": [0-9], .*"lost_shares": .*"rows": \[\{' out || fail "another form of JSON"
# shellcheck disable=SC2086
expect 1 "$ZERO3D" plan "$SOURCE/configs/paper/fig2-zero-100B-400gpus.yaml" parallel.world_size=auto zero_optimization.offload_optimizer.device=none --recommend --ranks 2 $v100
says 'no way fits 2 ranks with 31.* each: tensor .* too much \(its largest part is .*; use more ranks'
# shellcheck disable=SC2086
# The fastest may leave little memory free: said on its line.
cat >7b.yaml <<END
model: { num_layers: 32, hidden_size: 4096, num_attention_heads: 32, seq_length: 4096, vocab_size: 32000 }
train_batch_size: 256
bf16: { enabled: true }
data_types: { grad_accum_dtype: bf16 }
END
expect 0 "$ZERO3D" plan 7b.yaml --recommend --ranks 8 $h100
grep -q '^ 1 .*; tight$' out || fail "the first line leaves 4 % and says nothing"
grep -q '^tight: less than a tenth' out || fail "tight is not explained"

expect 1 "$ZERO3D" plan tiny.yaml --recommend --ranks 7 $h100
says 'no tensor, pipeline and data size for 7 ranks and train_batch_size 8'
# shellcheck disable=SC2086
expect 1 "$ZERO3D" plan tiny.yaml --recommend --ranks 4 $h100 model.num_attention_heads=3
says 'model.num_attention_heads=3: 3 does not divide model.hidden_size '
expect 2 "$ZERO3D" plan tiny.yaml --recommend
says '--recommend needs --hardware FILE'
# shellcheck disable=SC2086
expect 2 "$ZERO3D" plan tiny.yaml --recommend --fit 1GiB $h100
says 'use one of the two'
# shellcheck disable=SC2086
expect 2 "$ZERO3D" plan tiny.yaml --recommend --rank 1 $h100
says '--recommend accepts only'

# Numbers that rest on estimates have a mark, on a measured machine none; the keys come last.
sed 's/!estimate //' "$SOURCE/configs/hardware/dgx-h100.yaml" >measured.yaml
# shellcheck disable=SC2086
expect 0 "$ZERO3D" plan tiny.yaml --recommend --ranks 16 $h100 train_batch_size=16 model.num_attention_heads=16
grep -Eq '^ 1 .* ~[0-9.e-]+ +~[0-9.]+ % ' out || fail "no mark at what rests on estimates"
grep -q '^~ rests on estimates of the machine: device.memory_gib, .*software.overlap' out || fail "the mark is not explained"
grep -q 'off by .*24 published runs' out || fail "nothing says how far predictions were off"
grep -q '^Tensor sizes above 8, which leave a node, were left out' out || fail "nothing says that larger tensor sizes were left out"
sed -n '/^Recommended: /,$p' out | tail -n 1 | grep -q '^gradient_accumulation_steps: ' || fail "the keys are not the end"
sed "s/!estimate //" "$SOURCE/configs/software/megatron-2021.yaml" >sure.yaml
expect 0 "$ZERO3D" plan tiny.yaml --recommend --ranks 2 --hardware measured.yaml --software sure.yaml
grep -q '~' out && fail "a mark on a measured machine"
grep -q 'off by .*15 runs on a measured machine' out || fail "nothing says how far such predictions were off"
sed 's/!estimate /!guess /' "$SOURCE/configs/hardware/dgx-h100.yaml" >guess.yaml
expect 1 "$ZERO3D" plan tiny.yaml --recommend --ranks 2 --hardware guess.yaml
says 'guess.yaml:[0-9]+:[0-9]+: device.memory_gib: the only tag is !estimate'

# What the pages measured is what the program says.
grep -q '^15 runs: median error 2.8 % .*worst 10.3 %' "$SOURCE/docs/results/clock.md" || fail "clock.md has other errors than src/plan/price/accuracy.c"
grep -q 'median error over these 11 runs is 13 %' "$SOURCE/docs/results/offload-published.md" || fail "offload-published.md has other errors than src/plan/price/accuracy.c"

# What fits one V100 with offload only: the advice, the table, the keys and the file say so, and the
# file fits.
v100="--hardware $SOURCE/configs/hardware/dgx2-v100.yaml --software deepspeed-2021 --ranks 1"
cat >large.yaml <<END
model: { num_layers: 32, hidden_size: 4096, num_attention_heads: 32, seq_length: 1024, vocab_size: 50304 }
train_batch_size: 32
train_micro_batch_size_per_gpu: 8
fp16: { enabled: true }
END
shows() {
    grep -Eq -- "$1" out || fail "the output does not show: $1"
}
# shellcheck disable=SC2086
{
    expect 0 "$ZERO3D" plan large.yaml $v100
    shows '^  zero_optimization.offload_optimizer.device=cpu needs [0-9.]+ GiB$'
    expect 0 "$ZERO3D" plan large.yaml --fit device $v100 --write fits.yaml
    shows '^ 1 +1 +- +1 +1 +- +[0-9] +cpu '
    shows '^ 1  cpu +~[0-9.]+ +~[0-9.]+ +0 +[0-9.]+ +0.00$'
    shows '^[1-9][0-9]* ways do not fit: [1-9][0-9]* lack device memory, .*The nearest miss: .* needs .* too much'
    shows '^  offload_optimizer: . device: cpu .$'
    expect 0 "$ZERO3D" plan fits.yaml $v100 --json
    shows '"fits": true'
    expect 0 "$ZERO3D" plan large.yaml --fit device $v100 zero_optimization.offload_optimizer.device=nvme zero_optimization.offload_optimizer.nvme_path=/data
    shows '^  offload_optimizer: . device: nvme, nvme_path: /data .$'
    expect 1 "$ZERO3D" plan large.yaml --fit device $v100 zero_optimization.offload_optimizer.device=none
    says 'leave the devices of offload_optimizer and offload_param out'
    expect 0 "$ZERO3D" plan large.yaml $v100 model.num_layers=10 zero_optimization.stage=2 zero_optimization.offload_optimizer.device=cpu zero_optimization.offload_optimizer.ratio=auto
    shows '^offload_optimizer.ratio auto: 0.[0-9]+, [0-9.]+ s a step \(.*; 0.* do(es)? not fit\)$'
}
