#!/bin/sh
# hpZ, hybrid sharding and hierarchical collectives from the command line: what they do to a run's
# bits, its checkpoints and its plan, and what is refused.
. "$(dirname "$0")/lib.sh"

for i in $(seq 400); do echo "Line $i of a text, and $((i * 7919 % 1009)) is another number."; done >text
"$ZERO3D" data tokenize text --output train.bin >/dev/null || fail tokenize
cat >run.yaml <<END
model: { num_layers: 2, hidden_size: 32, num_attention_heads: 4, seq_length: 32, vocab_size: 257 }
train_batch_size: 16
train_micro_batch_size_per_gpu: 2
optimizer: { params: { lr: 1e-3 } }
scheduler: { type: WarmupLR }
data: { train: train.bin }
training: { steps: 4, threads: 1 }
checkpoint: { interval: 2 }
END
hpz="zero_optimization.stage=3 zero_optimization.zero_hpz_partition_size=2"
hybrid="zero_optimization.stage=3 zero_optimization.mics_shard_size=2"
parts="zero_optimization.stage=2 parallel.collective_algorithm=hierarchical parallel.ranks_per_node=2"
run() { # RANKS DIR keys...
    ranks=$1 dir=$2
    shift 2
    "$LAUNCH" -n "$ranks" "$ZERO3D" train run.yaml run.dir="$dir" "$@" >out 2>&1
}
losses() { sed -n 's/^{"step":\([0-9]*\),"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2 \3/p' "$1/metrics.jsonl" | sort -n | uniq; }
# Equal but for the order of sums.
near() {
    losses "$1" >a && losses "$2" >b
    [ -s a ] && paste a b | awk '{ d = $2 - $5; if (d < 0) d = -d; if ($1 != $4 || d > 1e-5 * $2) exit 1 }' || fail "$1 and $2 train otherwise"
}

# shellcheck disable=SC2086 # keys
{
    run 4 flat zero_optimization.stage=3 || fail flat
    run 4 hpz $hpz || fail hpZ
    grep -q 'ZeRO stage 3, hpZ over 2 data ranks each' out || fail "the run does not say it: $(cat out)"
    run 4 parts $parts || fail hierarchical
    run 4 hybrid $hybrid || fail hybrid
}
near flat hpz
near flat hybrid
losses hpz >a && losses parts >b && cmp -s a b || fail "hpZ has other bits than stage 2 with hierarchical collectives"

run 2 one zero_optimization.mics_shard_size=4 || fail "one partition"
grep -q 'mics_shard_size has no effect: the 2 data ranks are one partition' out || fail "not said: $(cat out)"

# Each starts from the others' checkpoints.
cp -r hybrid resumed && rm -r resumed/checkpoints/*4 2>/dev/null
# shellcheck disable=SC2086
run 4 resumed $hpz || fail "hpZ from hybrid"
grep -q 'resuming after step 2' out || fail "not resumed: $(cat out)"
near flat resumed
rm -rf resumed/checkpoints/*4
# shellcheck disable=SC2086
run 2 resumed zero_optimization.stage=1 gradient_accumulation_steps=4 || fail "two ranks from hpZ"
near flat resumed
"$ZERO3D" checkpoint verify hybrid/checkpoints >out || fail verify

# What is proved, and what a step sends.
for name in hpz hybrid parts; do eval "keys=\$$name"; { cat run.yaml && for key in $keys; do echo "$key"; done | sed -n 's/^zero_optimization\.\(.*\)=/zero_optimization \1: /p;s/^parallel\.\(.*\)=/parallel \1: /p' |
    awk '{ s[$1] = s[$1] sprintf("  %s %s\n", $2, $3) } END { for (k in s) printf "%s:\n%s", k, s[k] }'; } >$name.yaml; done
"$ZERO3D" prove hpz.yaml parts.yaml --ranks 4 >out || fail "prove: $(cat out)"
"$ZERO3D" prove hpz.yaml hybrid.yaml --ranks 4 >out && fail "hpZ and hybrid sharding have other sums"
grep -q 'all_reduce(reduce_scatter(' out || fail "prove does not name the sums: $(cat out)"
"$ZERO3D" plan hpz.yaml --ranks 4 >out || fail plan
grep -q 'data_inner 2 x data_outer 2' out || fail "plan: $(cat out)"
"$ZERO3D" plan hybrid.yaml --ranks 16 train_batch_size=32 zero_optimization.mics_shard_size=8 --hardware "$SOURCE/configs/hardware/dgx-a100.yaml" >out || fail "priced plan"
grep -q 'exposed: data_outer group' out || fail "no price of what crosses nodes: $(cat out)"

# ---- what is refused ----
refused() { # MESSAGE keys...
    message=$1
    shift
    run 4 bad "$@" && fail "not refused: $*"
    grep -q "$message" out || fail "$*: $(cat out)"
}
# shellcheck disable=SC2086
{
    refused 'zero_hpz_partition_size=3: 3 does not divide the 4 data ranks; write 2 or 4' zero_optimization.stage=3 zero_optimization.zero_hpz_partition_size=3
    refused 'mics_shard_size=3: 3 does not divide the 4 data ranks; write 2 or 4' zero_optimization.mics_shard_size=3
    refused 'every gather stays inside the partition; write 1' $hpz zero_optimization.mics_shard_size=2
    refused 'stage 2 keeps whole parameters' zero_optimization.zero_hpz_partition_size=2
    refused 'stage 0 shards nothing' zero_optimization.stage=0 zero_optimization.mics_shard_size=2
    refused '0 ranks cannot share the states' zero_optimization.mics_shard_size=0
    refused '2 does not divide the 3 data ranks of a node' $hpz parallel.ranks_per_node=3
    refused 'then over the nodes; write ring' $hybrid parallel.collective_algorithm=auto
    refused 'then over the nodes; write ring' $hpz parallel.collective_algorithm=auto
    refused 'nodes of 3 data ranks do not divide the 4 data ranks' parallel.collective_algorithm=hierarchical parallel.ranks_per_node=3
}
"$ZERO3D" plan run.yaml --ranks 4 parallel.collective_algorithm=hierarchical >out 2>&1 && fail "nodes are not known"
grep -q 'set parallel.ranks_per_node, or write ring' out || fail "$(cat out)"
sed 's/^training:.*/parallel: { collective_algorithm: auto }/' run.yaml >auto.yaml
"$ZERO3D" prove auto.yaml run.yaml --ranks 4 >out 2>&1 && fail "auto is not known"
grep -q 'auto depends on the nodes' out || fail "$(cat out)"
run 4 auto parallel.collective_algorithm=auto parallel.ranks_per_node=3 || fail "auto where nodes do not divide"
grep -q 'hierarchical' out && fail "auto cuts what it cannot divide"

# A search leaves out the stages that a key excludes; other commands do not look at the keys.
"$ZERO3D" plan hybrid.yaml --ranks 16 train_batch_size=32 zero_optimization.mics_shard_size=8 --fit 16GiB >out 2>&1 || fail "fit: $(cat out)"
"$ZERO3D" plan hpz.yaml --ranks 16 train_batch_size=32 zero_optimization.zero_hpz_partition_size=8 --recommend --hardware "$SOURCE/configs/hardware/dgx-a100.yaml" >out 2>&1 || fail "recommend: $(cat out)"
for name in hpz hybrid; do
    "$LAUNCH" -n 3 "$ZERO3D" evaluate $name/checkpoints train.bin >out 2>&1 || fail "evaluate on three ranks: $(cat out)"
done
