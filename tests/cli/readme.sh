#!/bin/sh
# What the README tells a newcomer to type works as it stands there: its section "A run", with fewer steps, and every `make` that it names.
. "$(dirname "$0")/lib.sh"

ln -s "$SOURCE/scripts" "$SOURCE/docs" "$SOURCE/configs" .
mkdir build
ln -s "$(dirname "$ZERO3D")" build/bin
readme sh 'A run' >commands
for word in 'data tokenize' 'my.yaml' 'plan my' 'train my' 'generate'; do
    grep -q -- "$word" commands || fail "the README's run has no $word"
done
sed -i 's/steps: 300/steps: 4/; s/warmup_num_steps: 30/warmup_num_steps: 2/; s/interval: 100/interval: 2/; s/--tokens 100/--tokens 8/' commands
expect 0 timeout 250 sh -e commands
grep -q '^step program: train, ZeRO stage 3' out || fail "the README's run prints no program"
grep -Eq '^ *4/4 ' out || fail "the README's run has not trained its 4 steps"
[ -d runs/mine/checkpoints/step-00000004 ] || fail "the README's run has saved nothing"

# The command with three dimensions, on those tokens.
command=$(grep '^scripts/launch -n 8 build/bin/zero3d train configs/demo-3d.yaml$' "$SOURCE/README.md") || fail "the README does not run configs/demo-3d.yaml"
expect 0 timeout 100 sh -c "$command data.train=data/train.bin data.validation=data/val.bin training.steps=4 training.eval_interval=4 \
    training.eval_steps=1 scheduler.params.warmup_num_steps=2 checkpoint.interval=4 generate.tokens=4"
grep -q '^ranks       8 = tensor 2 x pipeline 2 x data 2 on 1 node$' out || fail "configs/demo-3d.yaml has other dimensions"

for job in $(sed -n 's/^make \([a-z-]*\).*/\1/p' "$SOURCE/README.md" | sort -u); do
    make -C "$SOURCE" -n "$job" >/dev/null 2>&1 || fail "the README names make $job, which there is not"
done
