#!/bin/sh
# `zero3d reproduce`, of the ZeRO paper and of others, and `zero3d plan --hardware`: forms of output, files written, what is refused.
. "$SOURCE/tests/cli/lib.sh"
v100="--hardware $SOURCE/configs/hardware/dgx2-v100.yaml"
fit="--software paper-2019"
run() { # shellcheck disable=SC2086 # two options each
    expect "$1" "$ZERO3D" reproduce --configs "$SOURCE/configs" $v100 $fit "$2" "$3" "$4"
}

run 0 all --json --page=page.html
cp out points.json
grep -q '^{"figure": "fig8", "system": "C1", "size": "60B", "gpus": 128, "quantity": "tflops_per_gpu", "published": 11.9, "ours": ' out ||
    fail "the JSON has another form"
grep -q '"quantity": "tflops_per_gpu", "published": null, "ours": ' out || fail "a point left out has no null"
grep -q '"quantity": "fits", "published": false, "ours": false' out || fail "fits is no truth value"
megatron="Megatron-LM, Narayanan et al. (arXiv 2104.04473)" bubble="Zero bubble, Qi et al. (arXiv 2401.10241)"
korthikanti="Sequence parallelism and selective recompute, Korthikanti et al. (arXiv 2205.05198)"
infinity="ZeRO-Infinity, Rajbhandari et al. (arXiv 2104.07857)"
/usr/bin/python3 "$SOURCE/tests/page.py" page.html --charts=1 "The ZeRO paper's figures, published and ours" "Figure 2" "Figure 3" "Figure 4" \
    "C1 to C5" "Figure 6" "Figure 7" "Figure 8" "Table 1" "Table 2" "$megatron" "$megatron" "$korthikanti" "$korthikanti" "$korthikanti" "$bubble" "$bubble" \
    "ZeRO-Offload, Ren et al. (arXiv 2101.06840)" "$infinity" "$infinity" "H100s" "H100s" "H100s" >out 2>err || fail "the page of figures"
# A bar for each speed, memory and size, and a ring for what is published of them; ZeRO and Megatron of one size beside each other.
/usr/bin/python3 - >look 2>&1 <<'END' || fail "$(cat look)"
import json, re
page = open("page.html").read()
points = json.load(open("points.json"))
papers = [p for p in points if p["paper"] != "zero"]
assert {p["paper"] for p in papers} == {"megatron2", "korthikanti", "zero-bubble", "zero-offload", "zero-infinity", "h100"}
assert all(p["ours"] is not None and p["published"] is not None for p in papers) and len(papers) > 80
bars = [p for p in points if p["paper"] == "zero" and (p["figure"], p["quantity"]) in [("fig2", "tflops_per_gpu"), ("fig4", "tflops_per_gpu"), ("fig6", "max_params"), ("fig7", "gb"), ("fig8", "tflops_per_gpu")]]
assert page.count('class="fill ') == len(bars) > 30, len(bars)
assert page.count('class="ring"') == sum(p["published"] is not None for p in bars)
assert max(float(w) for w in re.findall(r"(?:width|left):([0-9.]+)%", page)) <= 100
for size in ["1.5B", "8B", "40B", "60B", "80B", "100B", "120B", "140B", "170B"]:
    assert re.search(rf"<b>{size}</b>\n<span>ZeRO .*\n<span>Megatron .*\n(<b>|</div>)", page), size
exact = [p for p in points if p["published"] == p["ours"]]
folded = sum(int(n) for n in re.findall("<summary>([0-9]+) numbers? exactly as published", page))
assert folded == len(exact) > 50, (folded, len(exact))
END
run 2 fig5 --json --page=other.html
says 'cannot reproduce .fig5.'
[ ! -e other.html ] || fail "a page of nothing was written"
says 'or a paper: megatron2 korthikanti zero-bubble zero-offload zero-infinity h100; see '
# A paper's rows name their machine and their software.
expect 0 "$ZERO3D" reproduce zero-infinity --configs "$SOURCE/configs"
grep -q '^ZeRO-Infinity, .*, sizes$' out || fail "a table has no name"
grep -q '^zero-infinity .* 5 points: median error [0-9.]* %, worst [-+][0-9.]* %$' out || fail "a table's errors are missing"
expect 2 "$ZERO3D" reproduce zero-infinity --configs "$SOURCE/configs" --software megatron-2021
says "are for the ZeRO paper's rows; those of 'zero-infinity' name their machine and software"
expect 2 "$ZERO3D" reproduce table1 --json --markdown
says 'two forms'
expect 1 "$ZERO3D" reproduce papers --configs nowhere
says 'nowhere'
# The name is looked at first, wherever the machine's description is.
run 2 fig5 --hardware nowhere.yaml
says 'cannot reproduce .fig5.'

# The shipped rows are some of what it writes.
expect 0 "$ZERO3D" reproduce --write-configs rows
[ "$(ls rows | wc -l)" -gt 50 ] || fail "not every row was written"
for file in "$SOURCE"/configs/paper/fig*.yaml; do
    cmp -s "$file" "rows/${file##*/}" || fail "${file##*/} is not its row: run zero3d reproduce --write-configs"
done
# Again is fine. A file that somebody changed stays, and nothing else is written.
expect 0 "$ZERO3D" reproduce --write-configs rows
echo "# mine" >>rows/fig2-zero-100B-400gpus.yaml
cp rows/fig2-zero-100B-400gpus.yaml mine.yaml
rm rows/fig2-zero-8B-400gpus.yaml
expect 1 "$ZERO3D" reproduce --write-configs rows
says 'nothing is written: rows/fig2-zero-100B-400gpus.yaml would be overwritten with other contents; name another folder, or delete it$'
cmp -s rows/fig2-zero-100B-400gpus.yaml mine.yaml || fail "a changed file was overwritten"
[ ! -e rows/fig2-zero-8B-400gpus.yaml ] || fail "a refused call wrote a file"
for other in fig2 --json --calibrate --page=page.html "$v100" "$fit"; do
    # shellcheck disable=SC2086 # an option and its value
    expect 2 "$ZERO3D" reproduce --write-configs elsewhere $other
    says 'takes nothing else'
done
[ ! -e elsewhere ] || fail "a refused call made a folder"

config=$SOURCE/configs/paper/fig2-zero-100B-400gpus.yaml
# shellcheck disable=SC2086
expect 0 "$ZERO3D" plan "$config" $v100 $fit --tokens 3e11 --trace timeline.json --rank 399
grep -q 'predicted' out || fail "a prediction that does not say so"
grep -q 'device hours' out || fail "no device hours"
grep -q '"name":"backward block.7 (micro 0)"' timeline.json || fail "the timeline has no backward"
# shellcheck disable=SC2086
expect 0 "$ZERO3D" plan "$config" $v100 --json
grep -q '"fits": true' out || fail "the JSON does not say whether it fits"
grep -q '"save_seconds": null' out || fail "a disk that nobody described has a speed"
expect 2 "$ZERO3D" plan "$config" --json
says 'need --hardware'
echo "name: x" >bad.yaml
expect 1 "$ZERO3D" plan "$config" --hardware bad.yaml
says 'bad.yaml'
# shellcheck disable=SC2086
expect 1 "$ZERO3D" plan "$config" $v100 --trace no/such/folder.json
says 'no/such/folder.json'
# shellcheck disable=SC2086
expect 1 "$ZERO3D" plan "$SOURCE/configs/paper/fig2-megatron-40B-384gpus.yaml" $v100 parallel.allow_tensor_across_nodes=false
says 'straddle nodes'

# A plan for GPUs says with which software, and how long compared steps of its kind took. A file of one's own is software, too.
a100=$SOURCE/configs/hardware/hgx-a100-800g.yaml
printf 'model: { num_layers: 2, hidden_size: 256, num_attention_heads: 4, seq_length: 256 }\ntrain_batch_size: 8\nbf16: { enabled: true }\n' >small.yaml
expect 0 "$ZERO3D" plan small.yaml --ranks 8 --hardware "$a100"
grep -q '^step time (predicted, with the software Megatron-LM of 2025 (the default; --software names another))$' out || fail "nothing says which software"
grep -q '^  never compared with measured steps of this software on one node of A100' out || fail "nothing says that nobody compared it"
grep -q '^--software megatron-2021 was compared with 396 measured steps of A100-SXM4-80GB; the default software was not$' out || fail "nothing names the software that was compared"
grow="zero_optimization.stage=1 model.num_layers=12 model.hidden_size=1024 model.num_attention_heads=16"
# shellcheck disable=SC2086 # a list of assignments
expect 0 "$ZERO3D" plan small.yaml $grow --ranks 8 --hardware "$a100" --software megatron-2021
grep -q '^  measured steps of this kind: .*, the range of 8 in 10 of 360 compared on one node$' out || fail "no range"
# shellcheck disable=SC2086
expect 0 "$ZERO3D" plan small.yaml $grow --ranks 8 --hardware "$a100" --software megatron-2021 --json
grep -q '"software": "Megatron-LM of 2021", .*"compared_steps": 360, "step_low": ' out || fail "the JSON has no software or no range"
# shellcheck disable=SC2086
expect 0 "$ZERO3D" plan small.yaml $grow --ranks 8 --hardware "$a100" --software megatron-2021 zero_optimization.stage=2
grep -q '^  nearest: 8 in 10 of 360 measured steps of this software on 2 to 8 A100-SXM4-80GB took 0.87 to 1.13$' out || fail "ZeRO-3 has the range of ZeRO-0"
expect 0 "$ZERO3D" plan small.yaml --ranks 8 --hardware "$a100" --software megatron-2021
grep -q '^  never compared ' out || fail "a tiny model has the range of larger ones"
grep -q '^  exposed: launches .* [1-9][0-9.]* %$' out || fail "launches of a small model are hidden"
expect 0 "$ZERO3D" plan small.yaml --ranks 2 --recommend --hardware "$a100"
grep -q ', with the software Megatron-LM of 2025 (the default' out || fail "--recommend does not say which software"
tail -n 1 out | grep -q '^--software megatron-2021 was compared with ' || fail "--recommend does not end with the software that was compared"
expect 1 "$ZERO3D" plan small.yaml --ranks 8 --hardware "$a100" --software megatron
says "there is no software 'megatron'; known are deepspeed-2021, .*; a file has a slash in its name, or ends in .yaml"
printf 'node: { link_gb_per_s: 1 }\n' >link.yaml
expect 1 "$ZERO3D" plan small.yaml --ranks 8 --hardware "$a100" --software link.yaml
says 'link.yaml:1:[0-9]+: node.link_gb_per_s: is no key of a software description'

# Software fitted to measured steps.
printf 'tensor,batch,ranks,seconds\n1,8,1,0.05\n1,8,2,0.04\n2,8,2,0.06\n2,8,4,0.05\n' >steps.csv
expect 0 "$ZERO3D" plan small.yaml --hardware "$a100" --calibrate steps.csv --write ours.yaml
grep -q '^starts with .*, which is nearest to these steps$' out || fail "nothing says where the fit starts"
grep -q '^4 measured steps, [01] fitted number' out || fail "more than one number for four steps"
grep -q '% of steps that the fit did not use' out || grep -q '%  of steps that the fit did not use' out || fail "no error of unseen steps"
expect 0 "$ZERO3D" plan small.yaml --ranks 2 --hardware "$a100" --software ours.yaml
grep -q 'compared on one node$' out || fail "the fitted file has no range"
sed 2,3d steps.csv >few.csv
expect 1 "$ZERO3D" plan small.yaml --hardware "$a100" --calibrate few.csv --write few.yaml
says '2 measured steps of 2 different configurations are too few: give at least 4'
sed 's/^2,8,2/2,8,x/' steps.csv >wrong.csv
expect 1 "$ZERO3D" plan small.yaml --hardware "$a100" --calibrate wrong.csv --write few.yaml
says 'wrong.csv, line 4: ranks is no number from 1 to 1000000: x'
[ ! -e few.yaml ] || fail "a refused calibration wrote a file"
expect 2 "$ZERO3D" plan small.yaml --hardware "$a100" --calibrate steps.csv
says 'needs --hardware NAME and --write FILE'
expect 1 "$ZERO3D" plan small.yaml --hardware "$a100" --calibrate steps.csv --write small.yaml
says 'small.yaml'
cp steps.csv more.csv
expect 1 "$ZERO3D" plan small.yaml --hardware "$a100" --calibrate steps.csv --calibrate more.csv --write more.csv --force
says 'more.csv is an input'
cmp -s steps.csv more.csv || fail "measured steps were overwritten"
expect 2 "$ZERO3D" reproduce --calibrate --software mine.yaml
says 'accepts only --hardware, --write and --force'
expect 1 "$ZERO3D" reproduce --calibrate --write small.yaml
says 'small.yaml exists and is no description of software'

# Runs are measured steps, too: the median of all but the first.
for micro in 1 2 4 8; do
    mkdir run$micro
    sed '$d' small.yaml >run$micro/config.yaml
    printf 'bf16: { enabled: true }\ntrain_micro_batch_size_per_gpu: %s\nparallel: { world_size: 1 }\ntraining: { device: cuda }\n' "$micro" >>run$micro/config.yaml
    for step in 1 2 3 4; do
        echo "{\"step\":$step,\"loss\":5,\"tokens\":2048,\"seconds\":0.00$((9 / step + 4 + micro / 8)),\"time\":$step}"
    done >run$micro/metrics.jsonl
done
set -- small.yaml --hardware "$a100" --write runs.yaml
expect 0 "$ZERO3D" plan "$@" --calibrate run1 --calibrate run2 --calibrate run4 --calibrate run8
grep -q '^4 measured steps' out || fail "four runs are not four steps"
grep -q '^  name: .*, from steps"$' runs.yaml || fail "the written software has no name of its own"
head -n 1 run1/metrics.jsonl >run2/metrics.jsonl
rm runs.yaml
expect 1 "$ZERO3D" plan "$@" --calibrate run2
says 'run2: a run of one step is too short'
sed 's/cuda/cpu/' run1/config.yaml >run4/config.yaml
expect 1 "$ZERO3D" plan "$@" --calibrate run4
says 'run4: run4/config.yaml:[0-9:]* training.device: cpu, but the described machine'
rm run8/config.yaml
expect 1 "$ZERO3D" plan "$@" --calibrate run8
says 'run8/config.yaml'
[ ! -e runs.yaml ] || fail "a refused calibration wrote a file"

expect 1 "$ZERO3D" doctor --measure no/such/here.yaml
says 'no/such/here.yaml'

expect 1 env ZERO3D_MEASURE_TURNS=0 "$ZERO3D" doctor --measure here.yaml
says "ZERO3D_MEASURE_TURNS='0': expected a whole number of at least 1"

# A description of this machine, measured on two ranks, is one that plan takes. (Half a minute under sanitizers, for kernels that other
# tests run there.) One turn of everything gives all of its lines; more turns make their numbers exact.
[ -z "${SANITIZE:-}" ] || exit 0
expect 0 env ZERO3D_MEASURE_TURNS=1 "$LAUNCH" -n 2 "$ZERO3D" doctor --measure here.yaml
cp out measured
expect 0 "$ZERO3D" plan "$SOURCE/configs/demo.yaml" --ranks 4 --hardware here.yaml
grep -q 'MFU [0-9]' out || fail "no MFU from a measured peak"
grep -q 'ranks write .* [0-9.]* s$' out || grep -q '^! disk not measured' measured || fail "no time of a save, and nothing says why"
grep -Eq '  devices: 2 ' here.yaml || fail "two ranks were measured, the file says otherwise"
