#!/bin/sh
# Help, version, completion, and wrong usage of every command.
. "$(dirname "$0")/lib.sh"

commands="train plan reproduce data checkpoint generate evaluate submit config doctor digest replay trace report completion"
expect 0 "$ZERO3D" --help
for command in $commands; do
    grep -q "^  $command " out || fail "--help does not list $command"
done
for command in $commands; do
    expect 0 "$ZERO3D" "$command" --help
    head -n 1 out | grep -q "^usage: zero3d $command" || fail "help of $command does not begin with its usage"
    [ "$(wc -l <out)" -le 40 ] || fail "help of $command is longer than a screen"
    ! grep -Eq '.{101}' out || fail "help of $command is wider than 100 columns"
    cp out help
    expect 0 "$ZERO3D" help "$command"
    cmp -s out help || fail "help $command differs from $command --help"
    # Every option that the help names is one that the command takes: none may be called unknown.
    for option in $(grep -oE '^  --[a-z0-9-]+' help); do
        nothing="" # reproduce works without arguments: for minutes
        [ "$command" != reproduce ] || nothing=--hardware=nowhere
        # shellcheck disable=SC2086 # one word or none
        "$ZERO3D" "$command" $nothing "$option" >out 2>err </dev/null
        ! grep -q 'unknown option' err || fail "$command does not know its option $option"
    done
    expect 2 "$ZERO3D" "$command" --no-such-option
    says 'unknown option --no-such-option'
done

# The examples of plan's help work as they stand there.
"$ZERO3D" plan --help | sed -n '/^examples:/,$s/^.* zero3d plan //p' >examples
[ "$(wc -l <examples)" -eq 2 ] || fail "plan has other examples"
while read -r example; do
    # shellcheck disable=SC2086 # the example's words
    (cd "$SOURCE" && "$ZERO3D" plan $example) >out 2>err </dev/null || fail "plan's example fails: $example"
done <examples

expect 0 "$ZERO3D" --version
for word in '^zero3d [0-9]' '^oneDNN' '^MPI' '^libyaml' '^hwloc' '^HDF5' '^xxHash' '^utf8proc' '^PCRE2' '^zlib' '^zstd' '^device    cpu'; do
    grep -q "$word" out || fail "--version does not say: $word"
done

expect 2 "$ZERO3D"
expect 2 "$ZERO3D" tarin
says "no command 'tarin'; did you mean .zero3d train.[?]"
expect 2 "$ZERO3D" train
says 'a configuration file is missing'
expect 2 "$ZERO3D" plan x.yaml --ranks
says 'needs a value'
expect 2 "$ZERO3D" plan x.yaml --ranks zero
says 'whole number'
expect 2 "$ZERO3D" plan x.yaml --ranks 0
says '--ranks 0: expected a whole number of at least 1;'
expect 2 "$ZERO3D" plan x.yaml --ranks 3000000000
says '--ranks 3000000000: expected a whole number from 1 to 2147483647;'
expect 2 "$ZERO3D" data
expect 2 "$ZERO3D" data tokenize
expect 2 "$ZERO3D" data tokenize x
says 'output'
expect 2 "$ZERO3D" data tokenize x --output y.bin --tokenizer nowhere
says "there is no such folder; expected bytes, gpt2, huggingface or a model's folder"
expect 1 "$ZERO3D" data tokenize x --output y.bin --tokenizer .
says '[.] has no tokenizer: expected the folder of a model'
expect 2 "$ZERO3D" config --keys x.yaml
expect 2 "$ZERO3D" digest a
expect 2 "$ZERO3D" replay
expect 2 "$ZERO3D" replay x --step 0
says 'whole number of at least 1'
expect 2 "$ZERO3D" trace
expect 2 "$ZERO3D" trace nowhere --step 0
says 'whole number of at least 1'
expect 2 "$ZERO3D" completion tcsh
expect 2 "$ZERO3D" doctor now
PATH=/nowhere expect 0 "$ZERO3D" doctor
tail -n 1 out | grep -q '^ready     to train on the CPU.*Not ready for MPI: mpirun is not in PATH .*; zero3d submit: sbatch is not in PATH$' || fail "doctor has no verdict"
if [ -c /dev/full ]; then
    "$ZERO3D" config >/dev/full 2>err && fail "writing to a full disk was no error"
    says 'standard output'
    echo '{"train_batch_size": 8}' >ds.json
    "$ZERO3D" config --from-deepspeed ds.json >/dev/full 2>err && fail "writing a converted file to a full disk was no error"
    says 'cannot write to standard output: No space left'
fi

# Whatever rank the environment gives: what needs no other ranks, and what is wrong with it, is told.
export RANK=1 WORLD_SIZE=2
for command in --help --version "help plan" "config --keys"; do
    # shellcheck disable=SC2086 # a list of words
    expect 0 "$ZERO3D" $command
    [ -s out ] || fail "$command prints nothing to rank 1"
done
expect 2 "$ZERO3D" tarin
says "no command 'tarin'"
expect 1 "$ZERO3D" plan nowhere.yaml
says nowhere.yaml
expect fail env -u WORLD_SIZE SLURM_PROCID=1 "$ZERO3D" checkpoint verify nowhere
says nowhere
unset RANK WORLD_SIZE

# Completion of other shells and the man page have every command with every option of its help.
for form in zsh fish man; do
    expect 0 "$ZERO3D" completion $form
    cp out $form
done
for command in $commands; do
    grep -q "^        '$command:[a-z]" zsh || fail "zsh has no $command"
    grep -q "^complete -c zero3d -n __fish_use_subcommand -f -a $command -d '[a-z]" fish || fail "fish has no $command"
    grep -qi "^.SH \"ZERO3D $command\"\$" man || fail "the man page has no $command"
    for option in $("$ZERO3D" "$command" --help | grep -oE '^  --[a-z0-9-]+'); do
        sed -n "/^    $command)/,/;;/p" zsh | grep -q -- "'$option:[^ ]" || fail "zsh: $command has no $option"
        grep -q -- "'__fish_seen_subcommand_from $command' -l ${option#--}\( -r\)\{0,1\} -d '[^ ]" fish || fail "fish: $command has no $option"
    done
done
# A description that goes on below is cut where a part of it ends.
grep -q "'__fish_seen_subcommand_from plan' -l ranks -r -d 'number of ranks; default: parallel.world_size'\$" fish || fail "a description ends anywhere"
grep -q "'__fish_seen_subcommand_from submit' -l signal -r -d 'the ranks stop this long before the time limit'\$" fish || fail "a description ends in brackets"
! command -v zsh >/dev/null || expect 0 zsh -n zsh
! command -v fish >/dev/null || {
    expect 0 env PATH="$(dirname "$ZERO3D"):$PATH" HOME="$work" fish -c 'source fish; complete -C "zero3d checkpoint veri"; complete -C "zero3d plan x.yaml zero_optimization.over"'
    [ "$(paste -sd, out)" = "verify,zero_optimization.overlap_comm=" ] || fail "fish completes otherwise"
    expect 0 env PATH="${PATH#"$(dirname "$ZERO3D"):"}" HOME="$work" fish -c "source fish; complete -C '$ZERO3D plan x.yaml zero_optimization.over'"
    [ "$(cat out)" = "zero_optimization.overlap_comm=" ] || fail "fish completes otherwise where the program is not on the path"
}
! command -v groff >/dev/null || {
    expect 0 groff -man -Tascii -ww man
    [ ! -s err ] || fail "the man page is not well-formed"
}

# Completion, asked as bash would.
command -v bash >/dev/null || exit 0
complete_words() {
    PATH="$(dirname "$ZERO3D"):$PATH" bash -c '
        source <(zero3d completion bash)
        compopt() { :; }
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _zero3d; printf "%s\n" "${COMPREPLY[@]}"' - "$@" >out 2>err
}
complete_words zero3d trai
[ "$(cat out)" = train ] || fail "completion of 'trai'"
complete_words zero3d plan --print
[ "$(cat out)" = --print-program ] || fail "completion of an option"
complete_words zero3d checkpoint ver
[ "$(cat out)" = verify ] || fail "completion of a second word"
complete_words zero3d train x.yaml zero_optimization.overlap
[ "$(cat out)" = zero_optimization.overlap_comm= ] || fail "completion of a key"
mkdir files && : >"files/a b *.yaml" && : >files/c.yaml
complete_words zero3d train files/
printf '%s\n' 'files/a b *.yaml' files/c.yaml >wanted
LC_ALL=C sort out | cmp -s - wanted || fail "completion of files: $(cat out)"
