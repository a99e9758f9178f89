#!/bin/sh
# two_spirals.sh LAUNCH PROGRAM: the example, on one rank and on four, tells the spirals apart.
set -e
for ranks in 1 4; do
    output=$("$1" -n $ranks "$2")
    right=$(echo "$output" | sed -n 's/^loss [0-9.]*, \([0-9]*\) of 256 unseen points right$/\1/p')
    echo "$ranks ranks: $output"
    [ "${right:-0}" -ge 245 ] || { echo "expected 245 or more of 256 right, once" >&2; exit 1; }
done
