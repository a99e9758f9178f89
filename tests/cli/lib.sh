# shellcheck shell=sh
# Sourced by the tests of the program. ZERO3D: the program; LAUNCH: scripts/launch; SOURCE: the repository. Works in a folder of its own
# that goes away at the end.
set -u
: "${ZERO3D:?}" "${LAUNCH:?}" "${SOURCE:?}"
work=$(mktemp -d "${TMPDIR:-/tmp}/zero3d-test.XXXXXX") || exit 1
cd "$work" || exit 1
background=""
finish() {
    code=$?
    # shellcheck disable=SC2086 # a list of process ids
    [ -z "$background" ] || kill -KILL $background 2>/dev/null
    cd / && rm -rf "$work"
    exit $code
}
trap finish EXIT
trap 'exit 1' INT TERM

fail() {
    echo "FAILED: $*"
    for file in out err; do
        [ -s $file ] && sed "s/^/  $file: /" $file | head -n 40
    done
    exit 1
}

# expect CODE COMMAND...: runs it, output in out and err, and checks the exit code; "fail" for any code but 0.
expect() {
    wanted=$1
    shift
    "$@" >out 2>err </dev/null
    code=$?
    case $wanted in
    fail) [ $code -ne 0 ] || fail "exit code 0, a failure was expected: $*" ;;
    *) [ $code -eq "$wanted" ] || fail "exit code $code, expected $wanted: $*" ;;
    esac
}

# says PATTERN: standard error has exactly one line of ours, before any other, and it matches. Lines "[host:pid] ..." are Open MPI's own:
# it writes one where it was just reading the memory of a process that was killed.
says() {
    grep -v '^\[[^]]*:[0-9]*\] ' err | head -n 1 | grep -q '^zero3d: ' || fail "the first line of standard error is not ours"
    [ "$(grep -c '^zero3d: ' err)" -eq 1 ] || fail "more than one line of ours"
    sed -n 's/^zero3d: error: /zero3d: /; /^zero3d: /p' err | grep -Eq -- "$1" || fail "our line does not match: $1"
}

# readme LANGUAGE SECTION [FILE]: the blocks of that language in a section of the README, or of another page.
readme() {
    awk -v begin="\`\`\`$1" -v section="## $2" \
        '/^## / { here = $0 == section } /^```/ { on = here && $0 == begin; next } on' "$SOURCE/${3:-README.md}"
}

# A model that trains in a moment, on text made here. Its peak is given: to measure one takes longer than all its steps (models.sh and
# readme.sh do).
tiny() {
    [ -f train.bin ] || {
        i=0
        while [ $i -lt 300 ]; do
            echo "Line $i of a text that is just long enough to be learnt from, $((i * 7919 % 1009))."
            i=$((i + 1))
        done >text
        "$ZERO3D" data tokenize text --output train.bin >/dev/null || fail "tokenize"
    }
    cat >tiny.yaml <<END
model: { num_layers: 2, hidden_size: 32, num_attention_heads: 4, seq_length: 32, vocab_size: 257 }
train_batch_size: 8
gradient_accumulation_steps: 1
optimizer: { params: { lr: 1e-3 } }
data: { train: train.bin }
training: { steps: 5, threads: 1, log_interval: 1, peak_tflops: 0.1, gemm: { fp32: sgemm } }
checkpoint: { interval: 0 }
run: { dir: run, tensorboard: false }
END
}
