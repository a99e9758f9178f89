#!/bin/sh
# `zero3d trace`: a real step's picture has all passes once, its shares are all of the time, and the merged timeline has all events.
. "$(dirname "$0")/lib.sh"
tiny
train() { # train RANKS FOLDER key=value...
    ranks=$1 folder=$2
    shift 2
    expect 0 "$LAUNCH" -n "$ranks" "$ZERO3D" train tiny.yaml run.dir="$folder" "$@"
}

# Two stages of two chunks, two tensor ranks. The last traced step is followed by the generation of text, which is no part of it.
train 4 run gradient_accumulation_steps=4 parallel.pipeline_model_parallel_size=2 parallel.virtual_pipeline_model_parallel_size=2 \
    parallel.tensor_model_parallel_size=2 training.trace_steps=5 generate.prompt=Line generate.tokens=2
expect 0 "$ZERO3D" trace run --schedule step.svg --merge all.json
grep -q '^step 5: ' out || fail "the last step is not the default"
grep -q ', tensor 2 x pipeline 2 x data 1, .* micro-batch 2 x 4, interleaved, 20' out || fail "the run has no title"
cat >look.py <<'END'
import json, re, sys, xml.etree.ElementTree
tree = xml.etree.ElementTree.parse("step.svg")
texts = [e.text for e in tree.iter() if e.tag.endswith("}text")]
tips = [e.text for e in tree.iter() if e.tag.endswith("}title")]
for rank in range(4):
    assert f"{rank}, stage {rank // 2}" in texts, texts
for micro in range(4):
    for chunk in range(4):
        found = [t for t in tips if t.startswith(f"forward, micro-batch {micro}, chunk {chunk}:")]
        assert len(found) == 2, (micro, chunk, found)  # tensor ranks
shares = re.findall(r"(?:exposed communication|bubble|compute|instructions) ([0-9.]+) %", " ".join(texts))
assert len(shares) == 4 and abs(sum(map(float, shares)) - 100) < 0.03, shares
for line in open("out").read().splitlines()[-5:]:
    assert abs(sum(map(float, line.split()[-4:])) - 100) < 0.03, line
    assert all(float(n) >= 0 for n in line.split()[-4:]), line

# Nothing is received before it was computed.
merged = json.load(open("all.json"))
passes = {}
for rank in range(4):
    own = [e for e in json.load(open(f"run/trace-rank{rank}.json")) if e.get("name", "zero3d") != "zero3d"]
    beside = [e for e in merged if e["pid"] == rank and e.get("tid", 0) >= 16]
    here = [e for e in merged if e["pid"] == rank and e.get("tid", 0) < 16 and e["name"] != "process_sort_index"]
    assert [e["name"] for e in own] == [e["name"] for e in here], rank
    assert {"name": f"rank {rank}, tensor {rank % 2}, pipeline {rank // 2}"} in [e["args"] for e in here if e["name"] == "process_name"]
    for e in here:
        if e["ph"] == "X":
            assert e["ts"] >= 0
        if e.get("cat") == "forward" and e["args"]["program"] == "train":
            begin, end = passes.get((rank % 2, e["args"]["step"], e["args"]["micro"], e["args"]["chunk"]), (1e18, 0))
            passes[rank % 2, e["args"]["step"], e["args"]["micro"], e["args"]["chunk"]] = min(begin, e["ts"]), max(end, e["ts"] + e["dur"])
    # What ran beside compute is a bar from its start to the end of its wait, by its name; bars of one row do not overlap.
    starts = {(e["args"]["step"], e["args"]["ticket"]): e for e in here if e.get("args", {}).get("phase") == "start" and e["args"]["program"] == "train"}
    waits = {(e["args"]["step"], e["args"]["ticket"]): e for e in here if e.get("args", {}).get("phase") == "wait" and e["args"]["program"] == "train"}
    bars = {(e["args"]["step"], e["args"]["started_by"]): e for e in beside if e["ph"] == "X"}
    assert len(starts) == len(waits) == len(bars) > 0
    for key, start in starts.items():
        wait, bar = waits[key], bars[key[0], start["args"]["entry"]]
        assert "start " + bar["name"] == start["name"] and "wait " + bar["name"] == wait["name"], (start, wait, bar)
        assert bar["args"]["awaited_by"] == wait["args"]["entry"] and bar["ts"] == start["ts"], (start, wait, bar)
        assert abs(bar["ts"] + bar["dur"] - wait["ts"] - wait["dur"]) < 0.01, (wait, bar)
    rows = {e["tid"]: e["args"]["name"] for e in beside if e["ph"] == "M"}
    for row, name in rows.items():
        assert name == f"beside compute {row - 15}", rows
        own = sorted((e["ts"], e["ts"] + e["dur"]) for e in bars.values() if e["tid"] == row)
        assert own and all(a[1] <= b[0] + 0.01 for a, b in zip(own, own[1:])), row
    assert {e["tid"] for e in bars.values()} == set(rows)
assert len(passes) == 2 * 5 * 4 * 4
for (tensor, step, micro, chunk), (begin, end) in passes.items():
    assert chunk == 3 or end <= passes[tensor, step, micro, chunk + 1][0] + 0.01, (step, micro, chunk)
# A collective's name says which, of which ranks, and for what.
names = {e["name"] for e in merged if e.get("cat") == "wait"}
for name in ["recv (pipeline group): recv_input head from stage 0 (micro 3, columns 0-1023)", "reduce_scatter (data group): reduce_grads block.1 (micro 0, columns 0-6463)", "all_reduce (tensor group): forward block.0 (micro 0)",
             "all_reduce (tensor group): backward block.1 (micro 1)", "all_reduce (world group): step_control"]:
    assert name in names, (name, sorted(names))
END
/usr/bin/python3 look.py >look 2>&1 || fail "$(cat look)"

# Another step; one stage, which has no bubble. Generation from the run's checkpoint leaves the timelines there alone.
train 2 data zero_optimization.stage=3 --trace checkpoint.interval=5
expect 0 "$ZERO3D" generate data/checkpoints --prompt Line --tokens 2
expect 0 "$ZERO3D" trace data --step 2
grep -q '^step 2: ' out || fail "--step is not the step"
grep -Eq '^ +1 +0 +[0-9.]+ +[0-9.]+ +0.00 +[0-9.]+$' out || fail "a bubble without a pipeline"

# What cannot be.
expect 1 "$ZERO3D" trace data --step 4
says '^zero3d: data/trace-rank0.json does not have step 4: it has steps 1 to 3$'
expect 1 "$ZERO3D" trace nowhere
says '^zero3d: nowhere has no trace-rank0.json; train with --trace'
mv run/trace-rank2.json kept
expect 1 "$ZERO3D" trace run
says '^zero3d: run/trace-rank2.json is missing: the run had 4 ranks'
cp data/trace-rank1.json run/trace-rank2.json
expect 1 "$ZERO3D" trace run
says '^zero3d: run/trace-rank2.json is the timeline of rank 1$'
cp data/trace-rank1.json run/trace-rank1.json
expect 1 "$ZERO3D" trace run
says '^zero3d: run/trace-rank1.json is of another run than trace-rank0.json: "'
expect 1 "$ZERO3D" trace data --merge no/such.json
says 'cannot write no/such.json'
