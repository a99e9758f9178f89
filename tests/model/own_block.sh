#!/bin/sh
# own_block.sh LAUNCH PROGRAM: the example learns, its gradients are right, stages 0 and 3 give equal losses on four ranks, and one rank
# gives them within 1e-5.
set -e
fail() {
    echo "$*" >&2
    exit 1
}
three=$("$1" -n 4 "$2" 3)
zero=$("$1" -n 4 "$2" 0)
one=$("$1" -n 1 "$2" 3)
printf '%s\n' "4 ranks, ZeRO stage 3:" "$three" "1 rank:" "$one"
[ "$three" = "$zero" ] || fail "stage 0 gives other losses: $zero"
printf '%s\n%s\n' "$three" "$one" | awk '
    /^gradients: / && $3 < 0.001 { checks++ }
    /^step / { if ($2 in loss) { d = $4 - loss[$2]; if (d > 1e-5 || d < -1e-5) exit 1 } loss[$2] = $4 }
    END { if (checks != 2 || loss[1] < 2.5 || loss[60] > 0.1) exit 1 }' ||
    fail "expected: gradients within 0.001; a loss from above 2.5 to below 0.1; one rank within 1e-5 of four"
