#!/bin/sh
# elastic.sh LAUNCH PROGRAM: every topology of tensor and data sizes 1, 2 and 4 on up to 8 ranks saves, and some with pipeline stages and
# chunks, and every one loads what every one saved: 169 pairs, bit for bit, and the losses that follow.
set -eu
ZERO3D_ELASTIC=$(mktemp -d "${TMPDIR:-/tmp}/zero3d-elastic.XXXXXX")
export ZERO3D_ELASTIC
trap 'rm -rf "$ZERO3D_ELASTIC"' EXIT
for what in Save Load; do
    for ranks in 1 2 4 8; do "$1" -n $ranks "$2" --gtest_filter="*.$what"; done
done
