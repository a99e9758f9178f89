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
grep -Eq '^[1-9][0-9]* of [0-9]+ candidates do not fit' out || fail "nothing says how many candidates do not fit"
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
grep -Eq '^[1-9][0-9]* of [0-9]+ candidates do not fit' out || fail "ZeRO-0 cannot fit 100 B parameters"
# shellcheck disable=SC2086
expect 0 "$ZERO3D" plan 100B.yaml $v100 --json
grep -q '"fits": true' out || fail "what was found does not fit"

# shellcheck disable=SC2086
expect 1 "$ZERO3D" plan "$SOURCE/configs/paper/fig2-zero-100B-400gpus.yaml" parallel.pipeline_model_parallel_size=1 zero_optimization.offload_optimizer.device=none --fit 7GiB $v100 --write no.yaml
says 'no candidate fits 400 ranks with 7.00 GiB each: .* with ZeRO-3, .* too much'
[ ! -e no.yaml ] || fail "a file of nothing was written"
for wrong in 16Gib8 0 24 -24G 3e9 -- ''; do # a number alone is no size
    expect 2 "$ZERO3D" plan tiny.yaml "--fit=$wrong"
    says 'expected a size with its unit, such as 24GiB or 24G, or device'
done
expect 0 "$ZERO3D" plan tiny.yaml --fit 24G
grep -Eq ' of 24 GiB a device$' out || fail "24G are not 24 GiB"
expect 2 "$ZERO3D" plan tiny.yaml --fit device
says 'needs --hardware NAME'
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
says 'no candidate fits 2 ranks with 31.* each: tensor .* too much \(its largest part is .*; use more ranks'
# shellcheck disable=SC2086
# The answer comes first, then a table of at most 100 columns; without --ranks it is for a node.
cat >7b.yaml <<END
model: { num_layers: 32, hidden_size: 4096, num_attention_heads: 32, seq_length: 4096, vocab_size: 32000 }
train_batch_size: 256
bf16: { enabled: true }
data_types: { grad_accum_dtype: bf16 }
END
expect 0 "$ZERO3D" plan 7b.yaml --recommend --hardware h100
head -n 1 out | grep -q '^# Recommended for 8 ranks (1 node) of DGX H100' || fail "not a node's devices"
sed -n 3p out | grep -q '^parallel:$' || fail "the keys do not come first"
sed -n '/^    tp /,/^With less /p' out >table
[ "$(wc -l <table)" = 12 ] && ! grep -Eq '.{101}' table || fail "no table of ten ways in 100 columns"
[ "$(grep -c '~' out)" = 1 ] || fail "more marks than one"
grep -q ' GB' out && fail "memory in two units"
grep -q 'tokens/s bubble' out && fail "details without --verbose"
# Of those that are equally fast, one that is not tight comes first.
grep -q 'tight: less than a tenth' out && fail "a tight way is the first"
expect 0 "$ZERO3D" plan 7b.yaml --recommend --hardware h100 --verbose
for word in 'tokens/s bubble tensor' '^   GiB  *of the rank that needs most' '^estimates in the machine.s description: device.memory_gib, .*software.overlap'; do
    grep -q "$word" out || fail "--verbose does not show $word"
done

expect 1 "$ZERO3D" plan tiny.yaml --recommend --ranks 7 $h100
says 'no tensor, pipeline and data size for 7 ranks and train_batch_size 8'
# shellcheck disable=SC2086
expect 1 "$ZERO3D" plan tiny.yaml --recommend --ranks 4 $h100 model.num_attention_heads=3
says 'model.num_attention_heads=3: 3 does not divide model.hidden_size '
expect 2 "$ZERO3D" plan tiny.yaml --recommend
says '--recommend needs --hardware NAME'
# shellcheck disable=SC2086
expect 2 "$ZERO3D" plan tiny.yaml --recommend --fit 1GiB $h100
says 'use one of the two'
# shellcheck disable=SC2086
expect 2 "$ZERO3D" plan tiny.yaml --recommend --rank 1 $h100
says '--recommend accepts only'

# A number that rests on estimates has a mark, on a measured machine none.
sed 's/!estimate //' "$SOURCE/configs/hardware/dgx-h100.yaml" >measured.yaml
# shellcheck disable=SC2086
expect 0 "$ZERO3D" plan tiny.yaml --recommend --ranks 16 --verbose $h100 train_batch_size=16 model.num_attention_heads=16
grep -Eq '^~[0-9.e-]+ s a step' out || fail "no mark at what rests on estimates"
grep -q ' 24 published runs' out || fail "nothing says how far predictions were off"
grep -q '^Tensor sizes above 8, which leave a node, were left out' out || fail "nothing says that larger tensor sizes were left out"
sed "s/!estimate //" "$SOURCE/configs/software/megatron-2021.yaml" >sure.yaml
expect 0 "$ZERO3D" plan tiny.yaml --recommend --ranks 2 --hardware measured.yaml --software sure.yaml
grep -q '~' out && fail "a mark on a measured machine"
grep -q '5.6 % and 28.5 % in 50 runs on measured machines' out || fail "nothing says how far such predictions were off"
sed 's/!estimate /!guess /' "$SOURCE/configs/hardware/dgx-h100.yaml" >guess.yaml
expect 1 "$ZERO3D" plan tiny.yaml --recommend --ranks 2 --hardware guess.yaml
says 'guess.yaml:[0-9]+:[0-9]+: device.memory_gib: the only tag is !estimate'

# What the pages measured is what the program says.
grep -q 'Of the 50 runs the median error is 5.6 % .*worst 28.5 %' "$SOURCE/docs/results/clock.md" || fail "clock.md has other errors than src/plan/price/accuracy.c"
grep -q 'median error over these 11 runs is 10 %' "$SOURCE/docs/results/offload-published.md" || fail "offload-published.md has other errors than src/plan/price/accuracy.c"

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
    shows '^  zero_optimization.offload_optimizer.device=cpu needs [0-9.]+ GiB, [0-9.]+ s a step$'
    expect 0 "$ZERO3D" plan large.yaml --fit device $v100 --verbose --write fits.yaml
    shows '^ 1 +1 +- +1 +1 +- +[0-9] +cpu '
    shows '^ 1  cpu +[0-9.]+ +[0-9.]+ +0 +[0-9.]+ +0.00$'
    shows '^[1-9][0-9]* of [0-9]+ candidates do not fit: [1-9][0-9]* lack device memory, '
    shows '^The nearest miss: .* needs .* too much'
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

# Without a machine and without ranks: one rank, and the size is read first.
expect 2 "$ZERO3D" plan 7b.yaml --fit 24
says 'expected a size with its unit'
expect 0 "$ZERO3D" plan 7b.yaml --fit 24GiB model.num_layers=2
# Sequence parallelism does not keep --days from trying tensor size 1.
expect 0 "$ZERO3D" plan 7b.yaml --recommend --hardware h100 --tokens 300B --days 30 parallel.sequence_parallel=true parallel.tensor_model_parallel_size=2

# A training: days, energy and price; and how many nodes it needs.
expect 0 "$ZERO3D" plan 7b.yaml --recommend --hardware h100 --tokens 300B --price-per-device-hour 2
shows '^300 B tokens: [0-9]+ d .* on 8 ranks \(1 node\), [0-9]+ device hours$'
shows '^  about [0-9.]+e\+[0-9]+ J, [0-9.e+]+ MWh \([0-9.e+]+ MWh of them the devices\): 1.02e\+04 W a node, without switches and cooling; price [0-9]+, at 2 a device hour$'
expect 0 "$ZERO3D" plan 7b.yaml --ranks 8 --hardware aws-p5 --tokens 300B train_micro_batch_size_per_gpu=1 zero_optimization.stage=3 activation_checkpointing.granularity=full
shows '^  at least [0-9.]+e\+[0-9]+ J, [0-9.e+]+ MWh \(the devices alone\): 700 W a device; node.watts is not known$'
expect 2 "$ZERO3D" plan 7b.yaml --hardware h100 --tokens 1t
says '--tokens 1t: expected a number above 0, at most 1e\+18, such as 300B or 1T'
# Before the search, which would find that nothing fits.
expect 1 "$ZERO3D" plan tiny.yaml --fit 1KiB --ranks 2 --hardware h100 --tokens 1
says '--tokens 1: one step has '
expect 1 "$ZERO3D" plan 7b.yaml --hardware H100x
says "there is no machine 'H100x'"

# A measured step begins with the keys that differ from their defaults: steps 1000 in the file is none beside epochs.
printf 'layers,ranks,seconds\n1,8,1\n2,8,2\n3,8,3\n4,8,4\n' >steps.csv
cp 7b.yaml epochs.yaml
printf 'training: { steps: 1000 }\n' >>epochs.yaml
expect 0 "$ZERO3D" plan epochs.yaml --hardware h100 --calibrate steps.csv --write software.yaml training.epochs=2

# Products in a type that the machine does not have are not free: no form of plan prices them.
cp 7b.yaml bf16.yaml
printf 'layers,ranks,seconds\n1,16,1\n2,16,1\n3,16,1\n4,16,1\n' >bf16.csv
for how in '' --recommend '--fit device' '--calibrate bf16.csv --write no.yaml' '--recommend --tokens 1T --days 900'; do
    # shellcheck disable=SC2086 # words
    expect 1 "$ZERO3D" plan bf16.yaml train_batch_size=16 --hardware V100 $how
    says 'V100-SXM3-32GB has no bf16 products \(device.peak_tflops.bf16 of dgx2-v100\): write fp16: \{ enabled: true \}, or give the number'
done
expect 1 "$ZERO3D" plan bf16.yaml train_batch_size=16 --ranks 16 training.device=cuda training.hardware=dgx2-v100
says 'has no bf16 products'
expect 0 "$ZERO3D" plan 7b.yaml --recommend --hardware h100 --tokens 300B --days 7 --json
nodes=$(grep -o '"ranks": [0-9]*' out | head -n 1 | awk '{ print $2 / 8 }')
seconds=$(grep -o '"train_seconds": [0-9.]*' out | head -n 1 | awk '{ print $2 }')
awk -v n="$nodes" -v s="$seconds" 'BEGIN { exit !(n > 5 && n < 16 && s <= 7 * 86400) }' || fail "$nodes nodes take $seconds s"
expect 1 "$ZERO3D" plan tiny.yaml --recommend --hardware h100 --tokens 1e18 --days 1
says 'no number of nodes that was tried trains on the tokens in 1 days; the fastest takes .* larger train_batch_size|for [0-9]+ ranks and train_batch_size 8'
expect 1 "$ZERO3D" plan tiny.yaml --recommend --hardware h100 --tokens 1e18 --days 1e-6
says '1e-06 days are too few for 1e\+18 tokens'
for wrong in '--tokens 0' '--tokens x' '--tokens 1e19' '--tokens 1T --days -1' '--tokens 1T --price-per-device-hour 0' '--days 30' '--tokens 1T --days 30 --ranks 8' '--price-per-device-hour 2'; do
    # shellcheck disable=SC2086
    expect 2 "$ZERO3D" plan tiny.yaml --recommend --hardware h100 $wrong
    says 'expected a number above 0|--days D finds how many nodes|needs --tokens N'
done

# Described machines by name.
expect 0 "$ZERO3D" plan --hardware list
shows '^dgx-h100 +DGX H100'
expect 1 "$ZERO3D" plan tiny.yaml --hardware h1000
says "there is no machine 'h1000'; known are .*dgx-h100, "
expect 1 "$ZERO3D" plan tiny.yaml --hardware dgx
says "several machines have 'dgx' in their name: .*dgx-a100, .*write one"
