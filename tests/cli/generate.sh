#!/bin/sh
# zero3d generate: prompts from a file, streams, stops by a signal, and what is refused.
. "$(dirname "$0")/lib.sh"
tiny
export ZERO3D_GRACE_SECONDS=1 # what mpirun waits after a failure, twice
expect 0 "$ZERO3D" train tiny.yaml training.steps=30 optimizer.params.lr=1e-2 checkpoint.interval=30
generate() { # generate CODE ARGUMENT...
    code=$1
    shift
    expect "$code" "$ZERO3D" generate run/checkpoints training.threads=1 "$@"
}

# Answers in order, to the screen or a new file; standard input; a byte for a byte on two ranks.
printf '{"prompt": "Line 1", "id": "x"}\n\n{"tokens": 3, "prompt": ""}\n' >in.jsonl
generate 0 --prompts in.jsonl --tokens 8
mv out shown
[ "$(wc -l <shown)" -eq 2 ] || fail "not two answers: $(cat shown)"
head -n 1 shown | grep -q '^{"prompt": "Line 1", "id": "x", "text": ".*", "tokens": 8, "finish": "length"}$' || fail "first answer: $(cat shown)"
tail -n 1 shown | grep -q '^{"prompt": "", "text": ".*", "tokens": 3, "finish": "length"}$' || fail "second answer: $(cat shown)"
generate 0 --prompts in.jsonl --tokens 8 --output answers.jsonl --verbose
cmp shown answers.jsonl || fail "the file has other answers"
[ ! -s out ] || fail "a file of answers and text on standard output"
grep -Eq '^zero3d: 2 prompts, 2 together; (prefill|decode) [0-9]+ tokens in [0-9.]+ s, [0-9.]+ tokens/s' err || fail "no rates: $(cat err)"
"$ZERO3D" generate run/checkpoints --prompts - --tokens 8 <in.jsonl >out || fail "prompts on standard input"
cmp shown out || fail "other answers from standard input"
for sizes in parallel.tensor_model_parallel_size=1 parallel.tensor_model_parallel_size=2 parallel.pipeline_model_parallel_size=2; do
    expect 0 "$LAUNCH" -n 2 "$ZERO3D" generate run/checkpoints --prompts in.jsonl --tokens 8 $sizes
    cmp shown out || fail "$sizes: other answers"
done

# A stop and a penalty change the text; a stream is the same text.
generate 0 --prompt Line --tokens 20
mv out whole
letter=$(sed 's/^Line//' whole | tr -cd 'a-z0-9' | cut -c 1)
generate 0 --prompt Line --tokens 20 --stop "${letter:?}"
! sed 's/^Line//' out | grep -q "$letter" || fail "the text goes on behind its stop: $(cat out)"
for stops in "--stop $letter --stop=ZZ" "--stop ZZ --stop $letter"; do
    # shellcheck disable=SC2086
    generate 0 --prompt Line --tokens 20 $stops
    ! sed 's/^Line//' out | grep -q "$letter" || fail "$stops: only one counts: $(cat out)"
done
generate 0 --prompt Line --tokens 20 --repetition-penalty 5
! cmp -s out whole || fail "a penalty changes nothing"
generate 0 --prompt Line --tokens 20 --stream
cmp out whole || fail "a stream has another text"

# What transformers 5.23 generates from the same folder with do_sample=False, repetition_penalty=1.3, max_new_tokens=20.
expect 0 "$ZERO3D" checkpoint import "$SOURCE/tests/data/gpt2_tiny" gpt2
printf '{"prompt": "%s"}\n' "It was" zero "A long time" >three.jsonl
expect 0 "$ZERO3D" generate gpt2 --prompts three.jsonl --tokens 20 --temperature 0 --repetition-penalty 1.3 generate.ignore_eos=true
cat >expected <<'END'
{"prompt": "It was", "text": " |\n| `step_conward` | one small collective over the", "tokens": 20, "finish": "length"}
{"prompt": "zero", "text": "3d plan --print-program)\n                        ─", "tokens": 20, "finish": "length"}
{"prompt": "A long time", "text": " from P_ands, in the reads.\n### Memory", "tokens": 20, "finish": "length"}
END
cmp out expected || fail "other answers than transformers'"

# Stopped: what is there, in whole lines.
: >out # or the loop may see the last one's, and the signal come before the program
"$ZERO3D" generate run/checkpoints --prompt Line --tokens 1000000 --stream >out 2>err &
pid=$! background=$pid
until [ "$(wc -c <out)" -gt 20 ]; do sleep 0.1; done
kill -INT $pid
wait $pid || fail "a stopped text is no failure"
background=
grep -q '^Line' out || fail "no text"
printf '{"prompt": "a", "tokens": 2}\n{"prompt": "b", "tokens": 1000000}\n' >long.jsonl
"$ZERO3D" generate run/checkpoints --prompts long.jsonl --output long.answers >out 2>err &
pid=$! background=$pid
until [ -s long.answers ]; do sleep 0.1; done
kill -TERM $pid
wait $pid && fail "answers are missing, and nobody says so"
background=
says 'stopped by a signal: 1 of 2 prompts have answers'
[ "$(wc -l <long.answers)" -eq 1 ] || fail "half a line"

printf '{"prompt": "b", "tokens": 1000000}\n' >long.jsonl
"$ZERO3D" generate run/checkpoints --prompts long.jsonl --output none.answers >out 2>err &
pid=$! background=$pid
until [ -e none.answers ]; do sleep 0.1; done
kill -TERM $pid
wait $pid && fail "answers are missing, and nobody says so"
background=
says 'stopped by a signal: 0 of 1 prompts have answers'
[ ! -e none.answers ] || fail "a file without an answer is left"

# Refused, before anything is computed or written.
generate 1 --prompts in.jsonl --output answers.jsonl
says '--output answers.jsonl: the file exists'
cmp shown answers.jsonl || fail "a file was overwritten"
printf '{"prompt": 1}\n{"prompt": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}\n{"prompt"' >bad.jsonl
for ranks in 1 2; do
    expect fail "$LAUNCH" -n $ranks "$ZERO3D" generate run/checkpoints --prompts bad.jsonl --output bad.answers
    says 'bad.jsonl:1: prompt: its value is not a string'
    grep -q '^        bad.jsonl:2: the prompt has 40 tokens, but the model sees 32' err || fail "line 2 is not named"
    grep -q '^        bad.jsonl:3: ' err || fail "line 3 is not named"
    [ ! -e bad.answers ] || fail "a file for answers that there are none of"
done
echo 'It was' >plain.txt
generate 1 --prompts plain.txt
says 'plain.txt: it has no JSON lines: each line must be \{"prompt": "a text"\}$'
: >empty.jsonl
generate 1 --prompts empty.jsonl
says 'empty.jsonl has no prompts'
generate 1 --prompts nowhere.jsonl
says 'cannot open nowhere.jsonl'
generate 2 --prompts in.jsonl --prompt a
says '--prompt and --prompts: give one of them'
generate 2 --prompt a --output b
says '--output is for the answers of --prompts'
generate 2 --prompts in.jsonl --stream
generate 1 --prompt a --batch 4
says '--batch 4: one prompt has no batch; leave it out, or give --prompts FILE$'
generate 1 --prompt a generate.batch=4
says 'generate.batch=4: one prompt has no batch'
generate 1 --prompts in.jsonl --batch 0
says '--batch 0: .*expected an integer from 1 to 65536 or auto'
generate 1 --prompts in.jsonl 'generate.stop=[[a]]'
says 'generate.stop.*expected a text, or a list of texts'
generate 1 --prompt a --repetition-penalty 0
says '--repetition-penalty 0: .*above 0'
[ ! -w /dev/full ] || {
    "$ZERO3D" generate run/checkpoints --prompts in.jsonl >/dev/full 2>err && fail "a full disk is no failure"
    says 'cannot write to standard output: No space left on device'
}

# Samples as a run goes: those of its checkpoints, and no bit of the training changes. A run that goes on has each step's once.
set -- generate.prompt=Line "generate.prompts=[a b]" generate.tokens=5 generate.every=2
train="zero_optimization.stage=3 checkpoint.interval=2 checkpoint.keep=0"
# shellcheck disable=SC2086 # lists of words
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $train training.steps=3 run.dir=sampled "$@"
grep -q '^sample of step 2 (5 tokens, ' out && grep -q '^sample (5 tokens, ' out || fail "the run does not show its samples"
rm -r sampled/checkpoints/step-00000003
# shellcheck disable=SC2086
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $train training.steps=4 run.dir=sampled "$@"
# shellcheck disable=SC2086
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml $train training.steps=4 run.dir=plain
expect 0 "$ZERO3D" checkpoint diff sampled/checkpoints plain/checkpoints
i=0
for step in 2 4; do
    for prompt in Line "a b"; do
        i=$((i + 1))
        expect 0 "$ZERO3D" generate "sampled/checkpoints/step-0000000$step" --prompt "$prompt" --tokens 5
        cp out "answer.$i"
        sed -n "${i}p" sampled/samples.jsonl >sample
        python3 - $step "$prompt" "answer.$i" <<'END' || fail "line $i of samples.jsonl is another: $(cat sample)"
import json, sys
line = json.load(open("sample"))
assert list(line) == ["step", "prompt", "text"], line
assert (str(line["step"]), line["prompt"]) == tuple(sys.argv[1:3]), line
assert line["prompt"] + line["text"] + "\n" == open(sys.argv[3]).read(), line
END
    done
done
[ "$(wc -l <sampled/samples.jsonl)" -eq 4 ] || fail "not four samples"
expect 1 "$ZERO3D" train tiny.yaml training.steps=2 run.dir=long "generate.prompts=['$(head -n 2 text | tr -d "'\n")']"
says 'generate.prompts: the prompt has [0-9]* tokens, but the model sees 32'
expect 1 "$ZERO3D" train tiny.yaml generate.every=2
says 'generate.every=2: has no effect without generate.prompt and generate.prompts; set one of them'
generate 1 --prompt a generate.every=2
says 'generate.every=2: only a run has steps; leave it out'
