#!/bin/sh
# What a command writes never replaces what it reads, and replaces another file only with --force: every command that writes a file.
. "$(dirname "$0")/lib.sh"
tiny
sed -i 's/, gemm: { fp32: sgemm }//' tiny.yaml
cp tiny.yaml kept
mkdir folder
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir=run training.steps=2 training.trace_steps=1
h100="--hardware $SOURCE/configs/hardware/dgx-h100.yaml"

# writes OPTION INPUT COMMAND...: FILE comes behind OPTION.
writes() {
    option=$1 input=$2
    shift 2
    cp text other
    cp "$input" before
    for force in "" --force; do
        # shellcheck disable=SC2086 # a word or none
        expect 1 "$ZERO3D" "$@" "$option" "$input" $force
        says " (is an input|is a file of .*, which is an input)"
        cmp -s "$input" before || fail "$1 $option: its input is gone"
        [ -n "$force" ] || {
            expect 1 "$ZERO3D" "$@" "$option" other
            says 'other exists and is no .*: it is not overwritten; name another file, or write --force'
            cmp -s other text || fail "$1 $option: a file is gone"
        }
    done
    expect 0 "$ZERO3D" "$@" "$option" other --force
    ! cmp -s other text || fail "$1 $option: --force does not write"
    expect 0 "$ZERO3D" "$@" "$option" other # of its kind now
    expect 1 "$ZERO3D" "$@" "$option" folder
    says 'folder is a folder; name a file'
}
# shellcheck disable=SC2086 # lists of words
{
    writes --output tiny.yaml submit tiny.yaml --nodes 1 --ranks-per-node 1 --time 30 --dry-run checkpoint.interval=5
    writes --write tiny.yaml plan tiny.yaml --ranks 1 --fit 40GiB
    writes --trace tiny.yaml plan tiny.yaml --ranks 1 $h100
    writes --schedule tiny.yaml plan tiny.yaml --ranks 1 $h100
}
writes --html run/metrics.jsonl report run
writes --schedule run/trace-rank0.json trace run
writes --merge run/trace-rank1.json trace run
cmp -s tiny.yaml kept || fail "the configuration is gone"

# Without a file of its own to read; and two outputs in one file.
expect 1 "$ZERO3D" plan tiny.yaml --memory=kept
[ ! -s out ] || fail "a plan beside the refusal"
expect 2 "$ZERO3D" trace run --merge two --schedule ./two
says 'two is given for two outputs; name two files'
expect 1 "$ZERO3D" reproduce table1 --page kept
says 'kept exists and is no page of zero3d'
expect 1 "$ZERO3D" doctor --measure kept
says 'kept exists and is no machine.s description of doctor'
cmp -s tiny.yaml kept || fail "a file is gone"
# What cannot be written names its option.
# shellcheck disable=SC2086 # a list of words
expect 1 "$ZERO3D" plan tiny.yaml --ranks 1 $h100 --trace no/such.json
says '--trace no/such.json: cannot write it: No such file or directory'
# What cannot be lost.
expect 0 "$ZERO3D" report run --html /dev/stdout
grep -q '</html>' out || fail "no page on standard output"
