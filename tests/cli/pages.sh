#!/bin/sh
# No page names a file, a heading, a key, a command, an option, a job of make or a variable that is not there.
. "$(dirname "$0")/lib.sh"
pages() { /usr/bin/python3 "$SOURCE/tests/cli/pages.py" "$SOURCE" "$ZERO3D" "$@"; }

# The check itself: one wrong thing of each kind is named, what is right beside it is not.
cat >wrong.md <<'END'
# One page, with `code` & more
[here](#one-page-with-code--more) and [there](#nowhere), [a page](wrong.md#one-page-with-code--more) and [no page](missing.md)
`src/base/base.h`, `src/base/*.h`, `tests/<module>/tests.cmake`, `src/{base,plan}` and `src/base/nothing.h`, `tests/nothing/*.cc`, `src/{base,none}`
`zero_optimization.stage: 3`, `training.gemm.*`, `model.safetensors`, `checkpoint: { interval: 100 }` and `zero_optimization.stages`,
`checkpoint: { every: 100 }`, `offload_optimizer.where`
`zero3d plan --fit 16GiB`, `plan --hardware` and `zero3d plans`, `zero3d plan --fits 16GiB`, `train --nothing`, `zero3d checkpoint lists`
`make test` and `make tests`; ZERO3D_LAUNCH and ZERO3D_NOTHING; `offload.md` and `nothing.md`; `trainings.steps=3`

```sh
zero3d submit run.yaml --nodes 2 --time 30 \
    --sbatch --partition=gpu                # --nothing
zero3d-launch -n 2 zero3d train run.yaml zero_optimization.stages=3 \
    --nothing
build/bin/zero3d train run.yaml
scripts/launch -n 2 zero3d train run.yaml
make nothing
```

```yaml
parallel:
  pipeline_schedule: 1f1b
  nothing: 1
train_batch_sizes: 8
```
END
expect 1 pages wrong.md
cat >wanted <<'END'
wrong.md:2: a link leads to #nowhere: that page has no such heading
wrong.md:2: a link leads to missing.md: no such file
wrong.md:3: there is no src/base/nothing.h
wrong.md:3: there is no src/{base,none}
wrong.md:3: there is no tests/nothing/*.cc
wrong.md:4: the configuration has no key zero_optimization.stages
wrong.md:5: the configuration has no key checkpoint.every
wrong.md:5: the configuration has no key offload_optimizer.where
wrong.md:6: there is no zero3d checkpoint lists
wrong.md:6: there is no zero3d plans
wrong.md:6: zero3d plan has no --fits
wrong.md:6: zero3d train has no --nothing
wrong.md:7: no source reads ZERO3D_NOTHING
wrong.md:7: the configuration has no key trainings.steps
wrong.md:7: there is no make tests
wrong.md:7: there is no page nothing.md
wrong.md:12: the configuration has no key zero_optimization.stages
wrong.md:12: zero3d train has no --nothing
wrong.md:14: build/bin/zero3d: pages write zero3d and zero3d-launch -n
wrong.md:15: scripts/launch -n: pages write zero3d and zero3d-launch -n
wrong.md:16: there is no make nothing
wrong.md:22: the configuration has no key parallel.nothing
wrong.md:23: the configuration has no key train_batch_sizes
END
cmp -s out wanted || fail "the check finds other things than there are"

expect 0 pages
