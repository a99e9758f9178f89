#!/bin/sh
# `zero3d report`: what it says of a run, lines that are cut or broken, and the page.
. "$(dirname "$0")/lib.sh"
mkdir a
step() { # step N LOSS SECONDS SKIPPED
    echo "{\"step\":$1,\"time\":1763900000.000,\"loss\":$2,\"lr\":0.001,\"grad_norm\":$2,\"tokens\":1000,\"total_tokens\":${1}000,\"seconds\":$3,\"tokens_per_second\":$((1000 / $3)),\"mfu\":0.25,\"exposed_comm_seconds\":0.5,\"exposed_transfer_seconds\":0.25,\"loss_scale\":1,\"skipped\":$4,\"memory\":{\"parameters\":1048576,\"gradients\":2097152,\"cache\":0,\"outside\":1024}}"
}
{
    step 1 4 9 false
    step 2 null 2 true
    step 3 2.5 2 false
    echo '{"step":3,"time":1763900001.000,"validation_loss":0,"validation_targets":10,"seconds":1}'
    step 4 3 4 false
} >a/metrics.jsonl
cat >a/events.jsonl <<'END'
{"step":0,"event":"start","time":1763900000.000,"detail":"first"}
{"step":3,"event":"checkpoint","time":1763900000.000,"seconds":0.5}
{"step":3,"event":"failure","time":1763900000.000,"detail":"gone"}
{"step":3,"event":"resume","time":1763900000.000,"detail":"3 M parameters, <ZeRO> & more"}
{"step":4,"event":"end","time":1763900100.000,"seconds":2}
END
expect 0 "$ZERO3D" report a
cat >wanted <<'END'
a
  run            first; after step 3: 3 M parameters, <ZeRO> & more
  steps          1 to 4, 1 skipped, 2.67 s each
  loss           4.000000 -> 3.000000, lowest 2.500000 at step 3
  validation     0.000000 at step 3, perplexity 1
  learning rate  0.001 at last, 0.001 at most
  speed          375 tokens/s, MFU 25.0 %, 4.00 K tokens in total
  exposed        communication 11.76 %, host transfers 5.88 % of the steps' time
  memory         parameters 1.00 MiB, gradients 2.00 MiB, outside 1.00 KiB
  checkpoints    1, the last of step 3 in 500 ms
  resumed        1 time, last after step 3
  state          complete at step 4 (2025-11-23 12:15 UTC)
END
cmp -s out wanted || fail "other facts: $(diff out wanted)"
sed -i '$d' a/events.jsonl
expect 0 "$ZERO3D" report a
grep -q '^  state  *not ended: ' out || fail "a run without an end has one"
sed -i '$d' a/events.jsonl
expect 0 "$ZERO3D" report a
grep -q '^  state  *failed at step 3: gone (' out || fail "the failure is not said"

# The page.
page() { /usr/bin/python3 "$SOURCE/tests/page.py" "$@" >look 2>&1 || fail "$(cat look)"; }
expect 0 "$ZERO3D" report a --html a.html
page a.html --charts=7 "Training of 1 run" Memory Runs
# Points in one path: loss has 2, a gap and 1, in steps 1 to 4 over 2000 units, from 2.5 to 4.
grep -q 'd="M0 [0-9]*h0M1333 [0-9]*h0L2000 [0-9]*"/>' a.html || fail "the loss is drawn at other places"
# Gradient norms between two powers of ten have an axis with numbers; what is one number but for a step without it is not drawn.
mkdir near
for s in 1 2 3; do
    echo "{\"step\":$s,\"loss\":$s,\"grad_norm\":0.6$s,\"seconds\":1,\"exposed_comm_seconds\":$([ $s = 1 ] && echo null || echo 0.5)}"
done >near/metrics.jsonl
printf '{"step":0,"event":"start","detail":"\\u001b[2Ja\\nb"}\n' >near/events.jsonl
expect 0 "$ZERO3D" report near
grep -q '^  run             \[2Ja b$' out || fail "a file's text is more than one line of text"
expect 0 "$ZERO3D" report near --html near.html
page near.html --charts=2 "Training of 1 run" Runs
sed -n '/gradient norm/,/figure>/p' near.html | grep -q 'class="y" [^>]*>0.62<' || fail "an axis without numbers"
evil='<script>"&'
mkdir "$evil" && cp a/metrics.jsonl "$evil"
expect 0 "$ZERO3D" report a "$evil" --html two.html
page two.html --charts=7 "Training of 2 runs" Memory Runs
expect 2 "$ZERO3D" report --html two.html
says 'expected the folder of a run'
expect 1 "$ZERO3D" report a --html no/such.html
says 'cannot write no/such.html'

# A long run is drawn with few points.
mkdir long
awk 'BEGIN { for (s = 1; s <= 20000; s++) printf "{\"step\":%d,\"loss\":%f,\"lr\":1e-4,\"grad_norm\":%f,\"tokens\":8,\"seconds\":1,\"tokens_per_second\":8,\"mfu\":0.5,\"exposed_comm_seconds\":%f}\n", s, 2 + 3 / s + s % 7 / 10, s % 5, s % 3 / 10 }' >long/metrics.jsonl
expect 0 "$ZERO3D" report long long long --html long.html
page long.html --charts=6 "Training of 3 runs" Runs
[ "$(wc -c <long.html)" -lt 150000 ] || fail "three runs of 20000 steps take $(wc -c <long.html) bytes"

# A run that was killed within a line, and files that are wrong.
printf '{"step":5,"lo' >>a/metrics.jsonl
expect 0 "$ZERO3D" report a
says '^zero3d: .*a/metrics.jsonl:6: the last line is incomplete: it is left out$'
grep -q '^  steps  *1 to 4,' out || fail "a cut line counts"
echo >>a/metrics.jsonl
expect 1 "$ZERO3D" report a
says '^zero3d: a/metrics.jsonl:6: '
echo '{"loss":1}' >a/metrics.jsonl
expect 1 "$ZERO3D" report a
says '^zero3d: a/metrics.jsonl:1: this line has no step$'
expect 1 "$ZERO3D" report nowhere
says '^zero3d: cannot open nowhere: .*; expected a run.s folder'
mkdir empty
expect 1 "$ZERO3D" report empty
says '^zero3d: cannot open empty/metrics.jsonl: .*; expected a run.s folder'
: >empty/metrics.jsonl
expect 0 "$ZERO3D" report empty --html empty.html
page empty.html --charts=0 "Training of 1 run" Runs
expect 0 "$ZERO3D" report empty
grep -q '^  steps  *none yet$' out || fail "an empty run"

# A real one. What its end says to do next works as it stands there.
tiny
next() { # next WORD: the command
    sed -n "s/^\(next\)\{0,1\} *$1: *//p" out
}
stopped() { expect 75 "$ZERO3D" train tiny.yaml "run.dir=my run" checkpoint.interval=2 training.time_limit=1e-9; }
stopped
grep -q '^stopped by training.time_limit: 1 step in ' out || fail "the end does not say why"
grep -q '^files    my run: .*; checkpoints in my run/checkpoints$' out || fail "the end has no files"
command=$(next resume)
[ "$command" = "$ZERO3D train tiny.yaml 'run.dir=my run' checkpoint.interval=2 training.time_limit=1e-9" ] || fail "another command: $command"
expect 75 sh -c "$command"
expect 0 "$ZERO3D" train tiny.yaml "run.dir=my run" checkpoint.interval=2 --verbose
for table in '^memory of rank 0 ' '^resident memory of rank 0 now$' '^next     generate: '; do
    grep -q "$table" out || fail "--verbose has no $table"
done
cp out end
for word in generate export report; do
    cp end out
    expect 0 sh -c "$(next $word) $([ $word != generate ] || echo --tokens 2)"
done
[ -s "my run/exported/config.json" ] || fail "nothing was exported"
page report.html "Training of 1 run" Memory Runs
cat >look.py <<'END'
import json
s = json.load(open("my run/summary.json"))
assert (s["end"], s["last_step"], s["steps"]) == ("complete", 5, 3), s
assert s["memory"]["device"]["planned"] == s["memory"]["device"]["measured"] and s["memory"]["device"]["planned"]["total"] > 0
assert s["communication"]["groups"] and s["resident"]["total"] > 0 and s["validation_loss"] is None
END
/usr/bin/python3 look.py >look 2>&1 || fail "$(cat look)"
expect 0 "$ZERO3D" report "my run"
for fact in 'run .*ZeRO-' 'steps  *1 to 5,' 'checkpoints  *4, the last of step 5 ' 'resumed  *2 times, last after step 2' 'state  *complete at step 5 '; do
    grep -q "^  $fact" out || fail "a real run has no $fact"
done

# 100 % of MFU: of all starts on the same device the largest peak counts.
grep -q '"event":"start".*"device":"cpu: .*"type":"fp32"}' "my run/events.jsonl" || fail "a given peak is noted as measured"
measured() { expect 0 "$ZERO3D" train tiny.yaml training.peak_tflops=0 training.threads=1 run.dir=peak checkpoint.interval=100 training.steps=$1 --verbose; }
measured 2
grep -q '^peak .*(measured with matrix products)$' out || fail "the peak of a new run is another's"
sed -i 's/"device":"cpu/"device":"other/; s/"peak_tflops":[0-9.]*/"peak_tflops":99/' peak/events.jsonl
measured 3
grep -q '^peak .*(measured with matrix products)$' out || fail "the peak is another device's"
sed -i '/resume/s/"peak_tflops":[0-9.]*/"peak_tflops":77/' peak/events.jsonl
measured 4
grep -q '^peak  *77 TFLOP/s per rank, .*(measured at an earlier start)$' out || fail "the largest peak of the run is forgotten"
grep -q '"step":3,"event":"resume".*"peak_tflops":77}' peak/events.jsonl || fail "the next start does not know it"

# examples/follow.py, with modules that write down what they are told.
mkdir fake
cat >fake/calls.py <<'END'
def note(*what):
    with open("calls", "a") as file:
        print(*what, file=file)
END
cat >fake/wandb.py <<'END'
from calls import note
class Run:
    id = "w1"
    def define_metric(self, name, step_metric=None): pass
    def save(self, path, base_path, policy): open(path)
    def log(self, values): note("log", values["step"], *(f"{k}={values[k]:g}" for k in sorted(values) if "loss" in k and "scale" not in k))
    def finish(self, exit_code): note("finish", exit_code)
def init(project, name, id, resume):
    note("init", project, name, id)
    return Run()
END
cat >fake/mlflow.py <<'END'
from calls import note
def set_experiment(name): note("experiment", name)
def start_run(run_id, run_name):
    note("init", run_id, run_name)
    return type("Run", (), {"info": type("Info", (), {"run_id": "m1"})})
def log_artifact(path): open(path)
def log_metrics(values, step): note("log", step, all(isinstance(v, float) for v in values.values()), "train/loss" in values)
def end_run(status): note("finish", status)
END
follow() { PYTHONPATH=fake timeout 20 /usr/bin/python3 "$SOURCE/examples/follow.py" "$@" --seconds 0.05; }
called() { # called LINE...: these calls, no others
    printf '%s\n' "$@" >wanted
    cmp -s calls wanted || fail "other calls: $(diff calls wanted)"
    rm calls
}
await() { # await FILE PATTERN
    tries=0
    until grep -q "$2" "$1" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || fail "$1 has no $2"
        sleep 0.05
    done
}
follow live --wandb >follow.log 2>&1 &
follower=$!
background="$background $follower"
await follow.log '^follow: waits for '
mkdir live && : >live/config.yaml
step 1 4 9 false >live/metrics.jsonl
echo '{"step":0,"event":"start","time":1.5}' >live/events.jsonl
await calls 'log 1'
{
    step 2 null 2 true
    step 3 2.5 2 false
    echo '{"step":3,"time":1,"validation_loss":2,"validation_losses":[1,3],"seconds":1}'
    printf '{"step":4,"lo'
} >>live/metrics.jsonl
await calls 'log 3 validation'
# Killed, and resumed after step 1: steps 2 and 3 are made again, with shorter lines.
step 1 4 9 false >live/metrics.jsonl
echo '{"step":1,"event":"resume","time":2.5}' >>live/events.jsonl
for s in 2 3 4; do step $s 2 2 false; done >>live/metrics.jsonl
await calls 'log 4'
echo '{"step":4,"event":"stop","time":3}' >>live/events.jsonl
wait $follower || fail "following ends badly: $(cat follow.log)"
called "init zero3d live None" "log 1 train/loss=4" "log 2" "log 3 train/loss=2.5" "log 3 validation/loss=2 validation/loss/0=1 validation/loss/1=3" \
    "log 4 train/loss=2" "finish 0"
echo '{"step":4,"event":"resume","time":4}' >>live/events.jsonl
step 5 1 2 false >>live/metrics.jsonl
echo '{"step":5,"event":"failure","time":5}' >>live/events.jsonl
expect 0 follow live --wandb --project p
called "init p live w1" "log 5 train/loss=1" "finish 1"
expect 0 follow "my run" --mlflow
called "experiment zero3d" "init None my run" "log 1 True True" "log 2 True True" "log 3 True True" "log 4 True True" "log 5 True True" "finish FINISHED"
echo '{"step":0,"event":"start","time":9}' >live/events.jsonl # another run
echo broken >live/metrics.jsonl
expect 1 follow live --wandb
grep -q '^follow: .*live/metrics.jsonl: a line behind byte 0 is no JSON$' err || fail "a broken line is not named"
called "init zero3d live None" "finish 0"
mkdir norun
expect 1 follow norun --wandb
grep -q '^follow: .*/norun is no folder of a run' err || fail "a folder without a run is waited for"
sed -i 's/^def set_experiment.*/def set_experiment(name): raise RuntimeError("no store\\nmore")/' fake/mlflow.py
expect 1 follow "my run" --mlflow
[ "$(cat err)" = "follow: mlflow: no store" ] || fail "a failure of the module takes more than a line"
expect 1 /usr/bin/python3 -I "$SOURCE/examples/follow.py" --mlflow live
grep -q "^follow: .*mlflow.*; install it: python3 -m pip install mlflow$" err || fail "a missing module has no way out"
