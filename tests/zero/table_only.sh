#!/bin/sh
# Facts that stand in one place: what a rank keeps, what an instruction is, which models there are. SOURCE: the checkout.
set -eu
cd "$SOURCE"
failed=0
none() { # none WHY PATTERN FILE...: no line has the pattern
    why=$1 pattern=$2
    shift 2
    if grep -nE -- "$pattern" "$@"; then
        echo "$why" >&2
        failed=1
    fi
}
# Each folder with its headers; no name here has a space.
sources() {
    find "$@" -name '*.[ch]' ! -path '*/paper/*' ! -name states.c
}
[ "$(sources zero | wc -l)" -gt 20 ]
# shellcheck disable=SC2046
{
    none "z3d_model_input names the unit whose output is read" '\b(unit|u) - 1\b' $(sources zero)
    none "zero/program/states.c decides what a stage keeps" \
        'stage (==|!=|>=) [0-3]|stage <=? [12]|stage < 3|stage > [0-2]' \
        $(sources zero src/plan src/train src/cli checkpoint)
    none "zero/program/opcodes.h says what an instruction is" 'Z3D_OP_[A-Z]' \
        $(sources zero/verify zero/execute zero/program | grep -v opcodes.h)
    none "the layout says over which axes a group is sharded and summed" \
        'Z3D_AX(IS|ES)_(DATA|PIPELINE)' $(sources zero/verify zero/build)
    none "src/model/registry.c lists the models" 'only gpt2' $(sources checkpoint src)
}
exit $failed
