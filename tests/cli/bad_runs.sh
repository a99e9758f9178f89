#!/bin/sh
# Runs that cannot be: one clear line, a non-zero exit code, on one rank and on several.
. "$(dirname "$0")/lib.sh"
tiny
export ZERO3D_GRACE_SECONDS=1 # what mpirun waits after a failure, twice

# Ranks over TCP: over MPI every failure costs seconds; config.sh, launch.sh and offload.sh have some, and so has this test below.
run() { expect fail env ZERO3D_LAUNCH=tcp timeout 60 "$LAUNCH" -n "$1" "$ZERO3D" train tiny.yaml "$2"; }

expect 1 "$ZERO3D" train nowhere.yaml
says 'nowhere.yaml'
run 2 model.hiden_size=4
says 'model.hiden_size'
run 3 parallel.tensor_model_parallel_size=2
says 'tensor'
run 2 train_batch_size=7
says '7'
run 2 parallel.world_size=4
says '4'
run 2 data.train=nowhere.bin
says 'nowhere.bin'

# Data that is none.
: >empty.bin
head -c 700 train.bin >short.bin
head -c $(($(wc -c <train.bin) - 1)) train.bin >cut.bin
head -c 4096 /dev/urandom >magic.bin
for file in empty short cut magic; do
    expect 1 "$ZERO3D" train tiny.yaml data.train=$file.bin
    says "$file.bin"
done
run 2 model.vocab_size=100
says 'train.bin'

# Run folders that cannot be written. Permissions mean nothing to root, a file in the way does.
echo >file
run 2 run.dir=file/run
says 'file/run'
expect 1 "$ZERO3D" train tiny.yaml run.dir=/proc/zero3d
says '/proc/zero3d'
if [ -c /dev/full ]; then
    mkdir full
    ln -s /dev/full full/metrics.jsonl
    expect 1 "$ZERO3D" train tiny.yaml run.dir=full
    says 'metrics.jsonl'
fi

# What one rank alone cannot do while the engine is built: the others do not wait for it.
mkdir -p apart/digest-rank1.txt
expect fail timeout 60 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir=apart --digest
says 'rank 1: .*digest-rank1.txt'

# More than any machine has: refused before memory is taken, with what would help.
expect fail timeout 60 "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml model.hidden_size=8192 model.num_layers=200
says 'does not fit: rank 0 needs .* too little device memory; the largest part is .*; no single change'

# A file that must not grow so far: the error has words. What dash counts in 512 bytes bash counts in 1024.
limited() { # limited BLOCKS [key=value]...
    blocks=$1
    shift
    (
        ulimit -f "$blocks"
        exec "$ZERO3D" train tiny.yaml run.dir=limited "$@"
    )
}
expect 1 limited 4 # LLVM's OpenMP takes 1 KB of shared memory
says 'limited/.*File too large'
expect 1 limited 60 run.dir=limited-saves checkpoint.interval=2
says 'File too large'

# Standard streams that are closed: no socket and no file becomes one of them.
closed() { "$@" <&- >&- 2>&-; }
expect 0 closed env ZERO3D_LAUNCH=tcp "$LAUNCH" -n 2 "$ZERO3D" train tiny.yaml run.dir=closed
[ "$(grep -c '^{"step":' closed/metrics.jsonl)" -eq 5 ] || fail "with closed streams there are no five steps"
[ "$(wc -l <closed/metrics.jsonl)" -eq 5 ] || fail "something else was printed into metrics.jsonl"
