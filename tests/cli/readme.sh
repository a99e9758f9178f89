#!/bin/sh
# What pages tell a newcomer to type works as it stands there: the README's section "Your first run", with fewer steps; the commands of
# docs/checkpoints.md, with that run; and docs/combinations.md's command with three dimensions, on that run's tokens.
. "$(dirname "$0")/lib.sh"

HOME=$work
export HOME
ln -s "$SOURCE/docs" "$SOURCE/configs" .
mkdir build
ln -s "$(dirname "$ZERO3D")" build/bin
readme sh 'Your first run' >commands
for word in '^export PATH=' 'zero3d data tokenize' 'my.yaml' 'zero3d plan my' 'zero3d-launch -n 4 zero3d train my' 'zero3d generate' 'zero3d report' 'zero3d checkpoint export'; do
    grep -q -- "$word" commands || fail "the README's run has no $word"
done
sed -i 's/steps: 300/steps: 4/; s/warmup_num_steps: 30/warmup_num_steps: 2/; s/interval: 100/interval: 2/; s/--tokens 100/--tokens 8/' commands
expect 0 timeout 250 sh -e commands
grep -q '^memory of rank 0 ' out || fail "the README's run says nothing of memory before it trains"
grep -Eq '^ *4/4 ' out || fail "the README's run has not trained its 4 steps"
[ -d runs/mine/checkpoints/step-00000004 ] || fail "the README's run has saved nothing"
grep -q '^The step' out || fail "the README's run has written nothing"
[ -s report.html ] || fail "the README's run has no report"
[ -s exported/model.safetensors ] || fail "the README's run has exported nothing"

PATH=$PWD/build/bin:$PATH
mv exported gpt2 # stands for the downloaded one
awk '/^```/ { on = $0 == "```sh"; next } on' "$SOURCE/docs/checkpoints.md" >commands
[ "$(grep -c '^zero3d ' commands)" -eq 7 ] || fail "docs/checkpoints.md has other commands"
expect 0 timeout 100 sh -e commands
grep -q '^It was' out && [ -s exported/model.safetensors ] || fail "the commands of docs/checkpoints.md have written nothing"

command=$(grep '^zero3d-launch -n 8 zero3d train configs/demo-3d.yaml$' "$SOURCE/docs/combinations.md") || fail "docs/combinations.md does not run configs/demo-3d.yaml"
expect 0 timeout 100 sh -c "$command data.train=data/train.bin data.validation=data/val.bin training.steps=4 training.eval_interval=4 \
    training.eval_steps=1 scheduler.params.warmup_num_steps=2 checkpoint.interval=4 generate.tokens=4"
grep -q '^ranks       8 = tensor 2 x pipeline 2 x data 2 on 1 node$' out || fail "configs/demo-3d.yaml has other dimensions"
