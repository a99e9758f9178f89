#!/bin/sh
# comms_logger: four ranks that play two nodes report what crosses between them, in metrics, at the end
# and in reports; it is what the plan of such a machine says.
. "$(dirname "$0")/lib.sh"

for i in $(seq 400); do echo "Line $i of a text, and $((i * 7919 % 1009)) is another number."; done >text
"$ZERO3D" data tokenize text --output train.bin >/dev/null || fail tokenize
cat >run.yaml <<END
model: { num_layers: 2, hidden_size: 32, num_attention_heads: 4, seq_length: 32, vocab_size: 257 }
train_batch_size: 16
train_micro_batch_size_per_gpu: 2
zero_optimization: { stage: 3 }
data: { train: train.bin }
training: { steps: 2, threads: 1 }
checkpoint: { interval: 0 }
parallel: { ranks_per_node: 2 }
comms_logger: { enabled: true, verbose: false, prof_all: true, debug: false }
END
sed -E 's/^(  devices): [^ ]*/\1: 2/' "$SOURCE/configs/hardware/dgx-a100.yaml" >nodes.yaml
run() { # keys...
    rm -rf run
    expect 0 "$LAUNCH" -n 4 "$ZERO3D" train run.yaml run.dir=run "$@"
}
# counted MEMBER: of the first step, over the kinds of collectives that move parameters and gradients
counted() {
    head -n 1 run/metrics.jsonl | sed 's/.*"comms":{//; s/}},.*/}/; s/"all_reduce":{"inside_node":52,"between_nodes":52},//' |
        grep -o "\"$1\":[0-9]*" | awk -F: '{ s += $2 } END { print s + 0 }'
}
# planned GREP...: bytes that a rank sends over the data axis
planned() { grep -o '"bytes_sent": *{[^}]*}' plan.json | grep -o '"[a-z_]*": *[0-9.e+]*' | grep data | grep "$@" | awk -F: '{ s += $2 } END { print s + 0 }'; }

for keys in parallel.ranks_per_node=2 zero_optimization.zero_hpz_partition_size=2 parallel.collective_algorithm=hierarchical; do
    run $keys
    grep -q 'communication of rank 0 *calls  inside a node  between nodes' out || fail "$keys: no table"
    "$ZERO3D" plan run.yaml --ranks 4 --hardware nodes.yaml --json $keys >plan.json 2>err || fail "$keys: no plan"
    between=$(planned between_nodes)
    all=$(planned -v between_nodes)
    [ "$between" -gt 0 ] && [ "$(counted between_nodes)" = "$between" ] || fail "$keys: not the $between bytes between nodes of the plan: $(head -n 1 run/metrics.jsonl)"
    [ "$(counted inside_node)" = $((all - between)) ] || fail "$keys: not the $((all - between)) bytes inside a node of the plan: $(head -n 1 run/metrics.jsonl)"
done
"$ZERO3D" report run --html page.html >out && "$ZERO3D" report run >out || fail report
grep -q 'sent a step *all_reduce 52 B inside a node, 52 B between nodes; reduce_scatter 153 KiB inside a node, 76.5 KiB between nodes; all_gather 301 KiB inside a node, 150 KiB between nodes' out || fail "report"
grep -q '<dt>sent a step</dt><dd>all_reduce 52 B inside a node' page.html || fail "page"
grep -q '"bytes_between_nodes":' run/summary.json || fail "summary"

# Gradients cross once a step; other kinds are left out where only some are named.
run zero_optimization.mics_shard_size=2 comms_logger.prof_all=false 'comms_logger.prof_ops=[all_reduce]'
grep -q '"comms":{"all_reduce":{"inside_node":52,"between_nodes":78132}}' run/metrics.jsonl || fail "hybrid: $(cat run/metrics.jsonl)"
grep -q 'data_outer all_reduce' out && ! grep -q 'data_inner all_gather' out || fail "the table has other kinds"
run comms_logger.enabled=false
grep -q '"comms"' run/metrics.jsonl && fail "logged, but off"
grep -q 'communication of rank 0' out && fail "a table, but off"
exit 0
