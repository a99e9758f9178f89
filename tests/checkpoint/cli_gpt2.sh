#!/bin/sh
# A model of Hugging Face from its folder to text, to training and back: tests/data/gpt2_tiny.
. "$(dirname "$0")/../cli/lib.sh"
gpt2=$SOURCE/tests/data/gpt2_tiny

# It speaks, as transformers lets it speak, on any number of ranks.
expect 0 "$ZERO3D" checkpoint import "$gpt2" imported
grep -q '^written to imported/step-00000000$' out || fail "import does not say where"
expect 0 "$ZERO3D" checkpoint verify imported
expect 0 "$ZERO3D" checkpoint show imported
grep -q 'without momentum and variance' out || fail "show: an imported model has no momentum"
expect 0 "$LAUNCH" -n 2 "$ZERO3D" generate imported --prompt "Every rank" --tokens 18 --temperature 0
cmp -s out "$gpt2/greedy.txt" || fail "not the continuation of transformers"

# The same from llm.c's file, which has no tokenizer beside it.
expect 0 "$ZERO3D" checkpoint export imported model.bin --format llm.c
expect 0 "$ZERO3D" checkpoint import model.bin from-llmc
expect 0 "$ZERO3D" checkpoint diff imported from-llmc
grep -q '^equal' out || fail "llm.c's file holds other weights"
expect 0 "$ZERO3D" generate from-llmc --vocab "$gpt2" --prompt "Every rank" --tokens 18 --temperature 0
cmp -s out "$gpt2/greedy.txt" || fail "llm.c's file: another continuation"

# A run that begins with it, on its own tokens; then out again, and in again.
expect 0 "$ZERO3D" data tokenize "$gpt2/text.txt" --output train.bin --tokenizer gpt2 --vocab "$gpt2"
grep -q '^vocabulary 557' out || fail "another vocabulary"
cat >run.yaml <<END
model: { num_layers: 2, hidden_size: 32, num_attention_heads: 4, seq_length: 32, vocab_size: 557 }
train_batch_size: 8
gradient_accumulation_steps: 1
data: { train: train.bin, tokenizer: gpt2, vocab: $gpt2 }
training: { steps: 2, threads: 1, log_interval: 1, gemm: { fp32: sgemm } }
checkpoint: { init_from: imported, interval: 2 }
generate: { prompt: "Every rank", tokens: 4, temperature: 0 }
run: { dir: run, tensorboard: false }
END
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train run.yaml parallel.tensor_model_parallel_size=2
grep -q '^Every rank' out || fail "no sample at the end"
loss=$(sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' run/metrics.jsonl | head -n 1)
awk "BEGIN { exit !($loss < 2) }" || fail "the first loss, $loss, is not that of a trained model"
expect 1 "$ZERO3D" checkpoint diff imported run/checkpoints
grep -q 'only in the second' out || fail "diff: momentum is not said to be in one only"
expect 0 "$ZERO3D" checkpoint export run/checkpoints hf --dtype bf16
expect 0 "$ZERO3D" checkpoint import hf back --vocab "$gpt2/vocab.json" --merges "$gpt2/merges.txt"
expect 0 "$ZERO3D" generate back --prompt "Every rank" --tokens 4

# No run goes on from an imported model.
expect 1 "$ZERO3D" train run.yaml run.dir=other checkpoint.resume=imported checkpoint.init_from= generate.prompt= \
    generate.tokens=200 generate.temperature=0.8
says 'imported|kept|must keep'
expect 1 "$ZERO3D" checkpoint import "$gpt2" imported
says 'imported: there are checkpoints in it already'
expect 1 "$ZERO3D" checkpoint import train.bin x
says 'train.bin: is no checkpoint of llm.c'
expect 1 "$ZERO3D" checkpoint import nowhere x
says 'nowhere: No such file'
expect 1 "$ZERO3D" generate from-llmc --prompt x
says 'data.vocab: the gpt2 tokenizer needs its vocabulary'
expect 1 "$ZERO3D" generate from-llmc --prompt x --vocab nowhere
says 'data.vocab: cannot open nowhere'
expect 2 "$ZERO3D" checkpoint export imported x --format onnx
says 'huggingface or llm.c is wanted'
expect 2 "$ZERO3D" checkpoint export imported x --dtype int8
expect 2 "$ZERO3D" checkpoint verify imported --dtype bf16
expect 2 "$ZERO3D" checkpoint import "$gpt2" y --merges m.txt
expect 2 "$ZERO3D" data tokenize run.yaml --output x.bin --tokenizer gpt2
says '--tokenizer gpt2 needs --vocab'
expect 2 "$ZERO3D" data tokenize run.yaml --output x.bin --vocab "$gpt2"
expect 2 "$ZERO3D" data tokenize run.yaml --output x.bin --tokenizer words
