#!/bin/sh
# training.gemm.cuda: products are timed, by the plugin's own code over the host's library calls (tests/device/cuda_shim), whose
# algorithms 2 and 3 add in other orders, while 1 and mostly 4 refuse to run. A choice counts from 0.
. "$(dirname "$0")/lib.sh"
tiny
sed 's/, gemm: {[^}]*}//' tiny.yaml >cuda.yaml
expect fail "$ZERO3D" train cuda.yaml training.gemm.cuda=timed
says 'training.gemm.cuda=timed: has no effect on the cpu device'
expect fail "$ZERO3D" train cuda.yaml training.device=cuda training.gemm.cuda=fastest
says "training.gemm.cuda.*: 'fastest' is not a list of choices; write heuristic, timed, or the list in the config.yaml"
expect 1 "$ZERO3D" prove cuda.yaml cuda.yaml training.device=cuda training.gemm.cuda=timed
grep -q '^not proved' out && grep -q 'training.gemm.cuda is timed: ' out || fail "an open choice"
[ -e "${HOST_PLUGIN:-}/libzero3d_cuda.so" ] || exit 0
export ZERO3D_PLUGIN_PATH="$HOST_PLUGIN"

# run CODE GEMM NAME KEY...: trains, with the library as ZERO3D_SHIM_GEMM says; NAME.steps: what no clock is in.
run() {
    ends=$1 name=$3
    export ZERO3D_SHIM_GEMM="$2"
    shift 3
    # shellcheck disable=SC2086 # a list of words
    expect "$ends" ${launch:-} "$ZERO3D" train cuda.yaml training.device=cuda training.steps=2 model.seq_length=4 \
        model.num_layers=1 checkpoint.interval=2 run.dir="$name" "$@"
    unset ZERO3D_SHIM_GEMM
    [ "$ends" = fail ] || sed 's/,"seconds".*//' "$name/metrics.jsonl" >"$name.steps"
}
equal() { cmp "$1.steps" "$2.steps" || fail "$1 and $2 have other bits"; }
# choices NAME: the lines of its configuration, the machine's first.
choices() { sed -n '/^    cuda:/,/^  [a-z]/s/^      - "\(.*\)"$/\1/p' "$1/config.yaml"; }
# have NAME CHOICE: all of them.
have() {
    choices "$1" >list
    head -n 1 list | grep -q '^shim, cuBLASLt 13000[01]$' || fail "$1: which machine"
    [ "$(wc -l <list)" -gt 10 ] || fail "$1: few choices"
    [ "$(sed 1d list | grep -cv " $2\$")" -eq 0 ] || fail "$1: not all choices are $2"
}

# Every product of a step, of one shape in all ZeRO stages, has the choice: as if there were no other algorithm.
for stage in 0 3; do
    run 0 "slow 2" timed$stage training.gemm.cuda=timed zero_optimization.stage=$stage activation_checkpointing.partition_activations=false
    have timed$stage 2
done
run 0 "refuse 2" third
run 0 "slow 2" first
equal timed0 third
equal timed3 third
cmp first.steps third.steps && fail "the stand-in's algorithms have equal bits: this test shows nothing"

# Separate kernels where all fused ones are slower.
run 0 "slow 0" apart bf16.enabled=true training.gemm.cuda=timed
for epilogue in 164 192; do
    choices apart | grep -q " $epilogue 1 1 .* 4$" || fail "epilogue $epilogue: not in separate kernels"
done
choices apart | grep -q ' 1 1 1 .* [12]$' || fail "products without epilogue"

# A run that goes on keeps its choices, also where others would be faster now; so does one that has its configuration.
run 0 "refuse 2" third training.steps=4
run 0 "slow 3" timed0 training.gemm.cuda=timed training.steps=4
have timed0 2
equal timed0 third
given() { ZERO3D_SHIM_GEMM="$1" expect "$2" "$ZERO3D" train "$3" run.dir=given checkpoint.resume=auto; }
given "slow 3" 0 timed0/config.yaml
sed 's/,"seconds".*//' given/metrics.jsonl >given.steps
equal given third
expect 0 "$ZERO3D" prove timed0/config.yaml given/config.yaml
expect 1 "$ZERO3D" prove timed0/config.yaml third/config.yaml
grep -q '^not proved' out && grep -q '^  training.gemm.cuda: ' out || fail "other choices"

# Another library: a run that goes on is timed again, choices that are given are refused, generation needs none.
run 0 "newer 1" timed3 training.gemm.cuda=timed training.steps=3 zero_optimization.stage=3
grep -q "timed again: .*the choices are for 'shim, cuBLASLt 130000', and this machine has 'shim, cuBLASLt 130001'" err || fail "no word of it"
rm -rf given
given "newer 1" fail timed0/config.yaml
says "training.gemm.cuda: the choices are for 'shim, cuBLASLt 130000', and this machine has 'shim, cuBLASLt 130001'"
ZERO3D_SHIM_GEMM="newer 1" expect 0 "$ZERO3D" generate timed0/checkpoints --prompt Line --tokens 2
# Choices that nobody wrote.
bad() {
    sed "$1" timed0/config.yaml >bad.yaml
    cmp -s timed0/config.yaml bad.yaml && fail "nothing changed: $1"
    given "" fail bad.yaml
    says "$2"
    [ ! -e given/metrics.jsonl ] || fail "it trained"
}
for end in two "2 2" -1 99999999999999999999 ""; do
    bad "s/ 16 0 2\"\$/ 16 0 $end\"/" "' is not a choice: 19 numbers"
done

awk '{ print } / 16 0 2"$/ { for (i = 1; i < 4200; i++) { sub(/"[0-9]* /, "\"" i " "); print } }' timed0/config.yaml >bad.yaml
given "" fail bad.yaml
says 'more than 4096 choices of products'
sed 's/ 16 0 2"$/ 16 0 9"/' timed0/config.yaml >bad.yaml
given "" fail bad.yaml
says 'algorithm 9 is chosen for a product of [0-9]* x [0-9]* x [0-9]*, for which cuBLASLt has 4'

# Two ranks that find others fastest: of what both have, the lower one's counts, and on both.
cat >ranks <<'END'
#!/bin/sh
[ "$RANK" = 1 ] && export ZERO3D_SHIM_GEMM="$SECOND"
exec "$@"
END
chmod +x ranks
export ZERO3D_LAUNCH=tcp
launch="$LAUNCH -n 2 ./ranks"
SECOND="slow 3" run 0 "slow 2" two training.collectives=host training.gemm.cuda=timed
have two 2
SECOND="refuse 2" run 0 "refuse 2" alike training.collectives=host
equal two alike
SECOND="slow 3" run 0 "slow 2" stages training.collectives=host training.gemm.cuda=timed parallel.pipeline_model_parallel_size=2
for choice in 1 2; do choices stages | grep -q " $choice$" || fail "stages: not both ranks' choices"; done
SECOND="newer 1" run fail "slow 2" mixed training.collectives=host training.gemm.cuda=timed
says "training.gemm.cuda timed: .*the choices are for 'shim, cuBLASLt 130000', and this machine has 'shim, cuBLASLt 130001'"

# A recorded rank has them, too.
launch=""
run 0 "slow 2" recorded training.gemm.cuda=timed --record-rank 0 --steps 1:2
ZERO3D_SHIM_GEMM="slow 3" expect 0 "$ZERO3D" replay recorded/replay-rank0.z3d
grep -q '^equal: ' out || fail "the replay has other bits"
ZERO3D_SHIM_GEMM="newer 1" expect fail "$ZERO3D" replay recorded/replay-rank0.z3d
says "the choices are for 'shim, cuBLASLt 130000'"
