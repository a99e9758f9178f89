# shellcheck shell=sh disable=SC2034 # other scripts use its variables
# scripts/measuring.sh: what the scripts that measure training on this machine share. They read it in; $1 is the build
# folder. Files go to $work, which is removed at the end.
bin=$(cd "$1/bin" && pwd)
launch=$PWD/scripts/launch
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
load=$(cut -d ' ' -f 1 /proc/loadavg)
cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
cpu=${cpu:-$(uname -m)}

# make_tokens LINES: $work/train.bin, of a text with so many lines.
make_tokens() {
    awk "BEGIN { for (i = 0; i < $1; i++) print \"Line \" i \" of a text to train on, \" (i * 7919) % 1009 \".\" }" >"$work/text"
    "$bin/zero3d" data tokenize "$work/text" --output "$work/train.bin" >/dev/null
}
# Runs a command. Its output goes to $work/out. If the command fails, the output and the command are
# printed, and the script ends with status 1.
quietly() {
    "$@" >"$work/out" 2>&1 || {
        status=$?
        cat "$work/out" >&2
        echo "${0##*/}: status $status: $*" >&2
        exit 1
    }
}
# For awk programs: a number in a line of JSON.
field='function field(line, key) { sub(".*\"" key "\": *\\{?", "", line); sub("[,}].*", "", line); return line + 0 }'
