#!/bin/sh
# Configurations: what is wrong is named with its place; what is written reads back; the reference page is that of this table.
. "$(dirname "$0")/lib.sh"

refuse() { # refuse PATTERN TEXT: config, plan and a text given as a file
    printf '%b' "$2" >bad.yaml
    expect 1 "$ZERO3D" config bad.yaml
    says "$1"
    expect 1 "$ZERO3D" plan bad.yaml
    says "$1"
}
refuse 'bad.yaml:2:3: .*num_layer' 'model:\n  num_layer: 4\n'
refuse 'bad.yaml:1:' 'train_batch_size: -4\n'
refuse 'bad.yaml:2:' 'model:\n\thidden_size: 64\n'
refuse 'bad.yaml:1:' 'train_batch_size: 1e30\n'
refuse 'bad.yaml:1:' 'train_batch_size: 8 # first\ntrain_batch_size: 16\n'
refuse 'bad.yaml:1:' 'zero_optimization: { stage: 4 }\n'
refuse 'bad.yaml:1:' 'bf16: { enabled: maybe }\n'
refuse 'bad.yaml' 'model: [\n'
refuse 'bad.yaml' 'model: { hidden_size: 100, num_attention_heads: 3 }\n'
refuse 'bad.yaml' 'fp16: { enabled: true }\nbf16: { enabled: true }\n'
expect 1 "$ZERO3D" config nowhere.yaml
says 'nowhere.yaml'
mkdir folder
expect 1 "$ZERO3D" config folder
says 'folder'
head -c 100000 /dev/urandom >noise.yaml
expect 1 "$ZERO3D" config noise.yaml
says 'noise.yaml'

: >empty.yaml
expect 0 "$ZERO3D" config empty.yaml
expect 1 "$ZERO3D" config empty.yaml modle.hidden_size=4
says 'modle.hidden_size'
expect 2 "$ZERO3D" config empty.yaml model.hidden_size
says 'key=value'
expect 0 "$ZERO3D" config empty.yaml zero_optimization.reduce_bucket_size=5e8
grep -q '500000000' out || fail "5e8 is not the integer 500000000"

for file in "$SOURCE"/configs/*.yaml; do
    expect 0 "$ZERO3D" config "$file"
    cp out first.yaml
    expect 0 "$ZERO3D" config first.yaml
    cmp -s out first.yaml || fail "$file: what config writes does not read back to the same"
    expect 0 "$ZERO3D" plan "$file"
done

expect 0 "$ZERO3D" config
cp out described
"$ZERO3D" config --keys | while read -r key; do
    grep -q "${key##*.}" described || fail "config does not describe $key"
done || exit 1
"$ZERO3D" config --markdown | cmp -s - "$SOURCE/docs/configuration.md" ||
    fail "docs/configuration.md is old: zero3d config --markdown > docs/configuration.md"
