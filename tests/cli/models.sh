#!/bin/sh
# The commands of docs/models.md work as they stand there, for each family, with fewer steps: models made here stand for the downloaded ones.
. "$(dirname "$0")/lib.sh"

HOME=$work
export HOME
mkdir docs
PATH=$(dirname "$ZERO3D"):$PATH # with zero3d-launch
export PATH
cp "$SOURCE/docs/models.md" docs/
tiny

# family NAME MODEL_TYPE KEYS...: a folder as Hugging Face has it where the block NAME expects one, and the block.
family() {
    name=$1 type=$2
    shift 2
    awk -v begin="\`\`\`sh $name" '/^```/ { on = $0 == begin; next } on' docs/models.md >commands
    folder=$(sed -n 's/.*checkpoint import ~\/\([^ ]*\) .*/\1/p' commands)
    [ -n "$folder" ] || fail "docs/models.md imports no $name"
    for word in 'data tokenize' 'train' 'generate' 'checkpoint export'; do
        grep -q "zero3d $word" commands || fail "docs/models.md has no $word of $name"
    done
    expect 0 "$ZERO3D" train tiny.yaml training.steps=1 checkpoint.interval=1 run.dir="first-$name" "$@"
    expect 0 "$ZERO3D" checkpoint export "first-$name/checkpoints" "$folder"
    sed -i 's/seq_length=512/seq_length=16/; s/steps=100/steps=2/; s/interval=100/interval=2/; s/--tokens 40/--tokens 4/' commands
    expect 0 timeout 100 sh -e commands
    grep -Eq '^ *2/2 ' out || fail "$name has not trained its 2 steps"
    grep -q '^The step.' out || fail "$name has written nothing"
    grep -q "\"model_type\": \"$type\"" "exported/$name/config.json" || fail "what was a $type is exported as something else"
    cmp "$folder/tokenizer.json" "exported/$name/tokenizer.json" || fail "the tokenizer of $name has changed"
}

llama='model.type=llama model.num_key_value_heads=2 model.intermediate_size=40'
# shellcheck disable=SC2086 # lists of arguments
{
    family gpt2 gpt2
    family smollm llama $llama model.tie_word_embeddings=true
    family llama llama $llama model.rope_scaling.rope_type=llama3 model.rope_scaling.factor=8 \
        model.rope_scaling.original_max_position_embeddings=16
    family mistral mistral $llama model.sliding_window=8
    family qwen2 qwen2 $llama model.attention_bias=true
    family qwen3 qwen3 $llama model.qk_norm=true model.head_dim=16
}
[ "$(grep -c '^```sh ' docs/models.md)" -eq 6 ] || fail "docs/models.md has a block that this test does not run"

# Nothing that is there is written over.
mkdir mine && echo mine >mine/config.yaml
expect 1 "$ZERO3D" checkpoint import gpt2 mine
says 'mine: it already has config.yaml; import into a new folder$'
