#!/bin/sh
# A run with a tokenizer.json of Hugging Face: from text to tokens, to text, and out again.
. "$(dirname "$0")/../cli/lib.sh"
tokenizers=$SOURCE/tests/data/tokenizers

# Tokens of one family, on which a run trains, and which it speaks.
expect 0 "$ZERO3D" data tokenize "$SOURCE/tests/data/gpt2_tiny/text.txt" --output train.bin \
    --tokenizer huggingface --vocab "$tokenizers/llama2"
grep -q '^vocabulary 690' out || fail "another vocabulary"
cat >run.yaml <<END
model: { num_layers: 1, hidden_size: 16, num_attention_heads: 2, seq_length: 32, vocab_size: 690 }
train_batch_size: 2
data: { train: train.bin, tokenizer: huggingface, vocab: $tokenizers/llama2 }
training: { steps: 2, threads: 1 }
checkpoint: { interval: 2 }
generate: { prompt: "Every rank", tokens: 4, temperature: 0 }
run: { dir: run, tensorboard: false }
END
expect 0 "$ZERO3D" train run.yaml
grep -q '^Every rank' out || fail "no sample at the end"
expect 0 "$ZERO3D" generate run/checkpoints --prompt "Every rank" --tokens 4
expect 0 "$ZERO3D" checkpoint export run/checkpoints hf
for file in tokenizer.json tokenizer_config.json; do
    cmp -s "hf/$file" "$tokenizers/llama2/$file" || fail "the export's $file is another"
done
expect 0 "$ZERO3D" generate run/checkpoints --vocab hf --prompt "Every rank" --tokens 4
cp out by-export
expect 0 "$ZERO3D" generate run/checkpoints --prompt "Every rank" --tokens 4
cmp -s out by-export || fail "the exported tokenizer gives another text"

# Without its configuration the tokenizer has one made, by the names of its tokens.
mkdir bare
cp "$tokenizers/llama2/tokenizer.json" bare
expect 0 "$ZERO3D" checkpoint export run/checkpoints made --vocab bare
cmp -s made/tokenizer.json bare/tokenizer.json || fail "the export's tokenizer.json is another"
grep -q '"tokenizer_class": "PreTrainedTokenizerFast"' made/tokenizer_config.json || fail "another class of tokenizer"

# Tokens of another tokenizer: every rank ends, and so does evaluation. An option chooses special tokens.
expect 0 "$ZERO3D" data tokenize "$SOURCE/tests/data/gpt2_tiny/text.txt" --output bytes.bin
expect 1 "$LAUNCH" -n 2 "$ZERO3D" train run.yaml run.dir=other data.train=bytes.bin
says 'data.train: bytes.bin: another tokenizer made this file [(]257 ids'
expect 1 "$ZERO3D" evaluate run/checkpoints bytes.bin
says 'bytes.bin: another tokenizer made this file'
expect 0 "$ZERO3D" generate run/checkpoints --prompt "Every rank" --tokens 4 --special none
expect 2 "$ZERO3D" data tokenize run.yaml --output x.bin --special some
says '--special some: expected auto, none, bos, eos or both'
expect 0 "$ZERO3D" data tokenize run.yaml --output x.bin --special none

# Bad input.
expect 1 "$ZERO3D" train run.yaml data.merges=merges.txt
says 'data.merges.*with data.tokenizer huggingface: tokenizer.json has its own'
expect 1 "$ZERO3D" train run.yaml data.vocab=nowhere
says 'data.vocab: .*nowhere'
expect 2 "$ZERO3D" data tokenize run.yaml --output x.bin --tokenizer huggingface
says '--tokenizer huggingface needs --vocab'
expect 2 "$ZERO3D" data tokenize run.yaml --output x.bin --vocab bare
says '--vocab needs --tokenizer gpt2 or huggingface'
expect 1 "$ZERO3D" data tokenize run.yaml --output x.bin --tokenizer huggingface --vocab "$SOURCE/tests/data/gpt2_tiny"
says 'set data.tokenizer to gpt2'
sed 's/"type":"BPE"/"type":"Unigram"/' bare/tokenizer.json >unigram.json
expect 1 "$ZERO3D" data tokenize run.yaml --output x.bin --tokenizer huggingface --vocab unigram.json
says 'unigram.json:1: "model" of type Unigram is not supported; only BPE is'
