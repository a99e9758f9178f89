#!/bin/sh
# A model of Hugging Face from its folder to text, to training and back: tests/data/gpt2_tiny.
. "$(dirname "$0")/../cli/lib.sh"
gpt2=$SOURCE/tests/data/gpt2_tiny

# It speaks, as transformers lets it speak, on any number of ranks.
expect 0 "$ZERO3D" checkpoint import "$gpt2" imported
grep -q '^written to imported/step-00000000$' out || fail "import does not say where"
grep -q '^gpt2: 44.3 K parameters, tokenizer gpt2 of 557 ids; next: zero3d generate imported ' out || fail "import does not say what"
expect 0 "$ZERO3D" checkpoint verify imported
expect 0 "$ZERO3D" checkpoint show imported
grep -q 'without optimizer states' out || fail "show: an imported model has no momentum"
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
grep -q '^56 optimizer tensors .* only in the second$' out || fail "diff: momentum is not said to be in one only"
expect 0 "$ZERO3D" checkpoint export run/checkpoints hf --dtype bf16
grep -q 'with the tokenizer$' out || fail "export does not say that the tokenizer is there"
for file in vocab.json merges.txt; do
    cmp -s hf/$file "$gpt2/$file" || fail "the export's $file is another"
done
grep -q '"eos_token_id": 556' hf/config.json || fail "the export has no end token"
expect 0 "$ZERO3D" checkpoint import hf back --vocab "$gpt2/vocab.json" --merges "$gpt2/merges.txt"
expect 0 "$ZERO3D" generate back --prompt "Every rank" --tokens 4

# What the import writes trains from its weights, wherever one stands; so does that run's own file with more steps.
mkdir elsewhere
expect 0 sh -c "cd elsewhere && '$ZERO3D' train ../imported/config.yaml data.train=../train.bin train_batch_size=8 training.steps=1 run.dir=one"
grep -q '^weights     step 0 of /.*/imported/step-00000000 (checkpoint.init_from)$' out || fail "does not say where its weights come from"
grep -q ' 5.000e-05 ' out || fail "not the learning rate of fine-tuning"
grep -q '^gradient_clipping: 1$' elsewhere/one/config.yaml || fail "gradients are not clipped"
expect 0 "$ZERO3D" train elsewhere/one/config.yaml data.train=train.bin training.steps=2 run.dir=two checkpoint.init_from=
grep -q '^weights     random (training.seed 1)$' out || fail "does not say that its weights are random"
expect 1 "$ZERO3D" train elsewhere/one
says 'elsewhere/one is a folder; .* write elsewhere/one/config.yaml'
expect 1 "$ZERO3D" train imported/config.yaml data.train=train.bin train_batch_size=8 model.seq_length=16 run.dir=short
says 'wpe/weight is .*; the checkpoint has model.seq_length=32$'
expect 1 "$ZERO3D" train run.yaml run.dir=llama model.type=llama
says 'is missing in the checkpoint; the checkpoint has model.type=gpt2$'
expect 1 "$ZERO3D" checkpoint import openai-community/gpt2 hub
says 'download it first: hf download openai-community/gpt2 '

# The exported folder needs nothing else, nor does a model that was moved; tokenizer.json alone is enough.
rm hf/vocab.json hf/merges.txt
expect 0 "$ZERO3D" checkpoint import hf alone
mv alone moved
expect 0 "$ZERO3D" generate moved --prompt "Every rank" --tokens 18 --temperature 0
cp out by-json
expect 0 "$ZERO3D" generate back --prompt "Every rank" --tokens 18 --temperature 0
cmp -s out by-json || fail "tokenizer.json gives another text than vocab.json and merges.txt"
# A copy has its own files, whatever becomes of those of the first: to speak, to train and to be exported.
cp -r back copied
echo broken >back/tokenizer/vocab.json
expect 0 "$ZERO3D" generate copied --prompt "Every rank" --tokens 18 --temperature 0
cmp -s out by-json || fail "a copy says something else"
mkdir tokenizer # of another program
expect 0 "$ZERO3D" train copied/config.yaml data.train=train.bin train_batch_size=8 \
    training.steps=1 training.threads=1 generate.prompt=Every generate.tokens=2 run.dir=from-copy
grep -q '^weights     step 0 of /.*/copied/' out || fail "a copy trains from other weights"
grep -q 'vocab: "/.*/copied/tokenizer"$' from-copy/config.yaml || fail "the run does not say where its tokenizer is"
rmdir tokenizer
expect 0 "$ZERO3D" checkpoint export copied hf-copied
cmp -s hf-copied/vocab.json "$gpt2/vocab.json" || fail "a copy's export has another tokenizer"
expect 0 "$ZERO3D" data tokenize "$gpt2/text.txt" --output by-json.bin --tokenizer gpt2 --vocab hf/tokenizer.json
cmp -s train.bin by-json.bin || fail "tokenizer.json gives other tokens"

# JSON lines: refused without a key that is known, with the command; a bad line is named and leaves nothing.
cat >lines.jsonl <<END
{"text": "One.\\nline", "id": 1}
{"text": "Tw\\u00f6", "id": 2}
END
sed 's/text/body/' lines.jsonl >bodies.jsonl
expect 1 "$ZERO3D" data tokenize bodies.jsonl --output lines.bin
says 'bodies.jsonl has objects in JSON of no known format .their keys: .*body.*--json-key KEY'
expect 0 "$ZERO3D" data tokenize lines.jsonl --json-key text --output lines.bin
grep -q 'lines.bin: 15 tokens, 2 documents' out || fail "not one document a line"
[ ! -s err ] || fail "a short input reports its progress"
echo '{"text": 3}' >>lines.jsonl
expect 1 "$ZERO3D" data tokenize lines.jsonl --json-key text --output bad.bin
says 'lines.jsonl:3: --json-key text: its value is not a string'
[ "$(find . -name 'bad.bin*')" = "" ] || fail "something half written is left"

# A run on bytes has a tokenizer too.
cat >bytes.yaml <<END
model: { num_layers: 1, hidden_size: 16, num_attention_heads: 2, seq_length: 8, vocab_size: 257 }
train_batch_size: 1
data: { train: lines.bin }
training: { steps: 1, threads: 1, gemm: { fp32: sgemm } }
checkpoint: { interval: 1 }
run: { dir: bytes, tensorboard: false }
END
expect 0 "$ZERO3D" train bytes.yaml
expect 0 "$ZERO3D" checkpoint export bytes/checkpoints hf-bytes
grep -q '"eos_token_id": 256' hf-bytes/config.json || fail "the bytes' export has no end token"
expect 0 "$ZERO3D" checkpoint import hf-bytes from-bytes
for from in bytes/checkpoints from-bytes; do
    expect 0 "$ZERO3D" generate $from --prompt "Größe" --tokens 12 --temperature 0
    [ $from = from-bytes ] || cp out by-run
done
cmp -s out by-run || fail "the exported bytes are another tokenizer"
expect 2 "$ZERO3D" checkpoint export imported x.bin --format llm.c --vocab "$gpt2"
says 'has no effect with --format llm.c'
# It replaces a file of its kind, no other one, and none of the checkpoint.
expect 0 "$ZERO3D" checkpoint export imported model.bin --format llm.c
cp "$gpt2/text.txt" other.txt
expect 1 "$ZERO3D" checkpoint export imported other.txt --format llm.c
says 'other.txt exists and is no checkpoint of llm.c: it is not overwritten; .* --force'
cmp -s other.txt "$gpt2/text.txt" || fail "a text was overwritten"
expect 0 "$ZERO3D" checkpoint export imported other.txt --format llm.c --force
manifest=$(echo imported/step-*/manifest.json)
expect 1 "$ZERO3D" checkpoint export imported "$manifest" --format llm.c --force
says 'manifest.json is a file of .*, which is an input'
expect 2 "$ZERO3D" checkpoint export imported fresh --force
says '--force is for checkpoint export --format llm.c'

# No run goes on from an imported model.
expect 1 "$ZERO3D" train run.yaml run.dir=other checkpoint.resume=imported checkpoint.init_from= generate.prompt= \
    generate.tokens=200 generate.temperature=0.8
says 'imported|kept|must keep'
expect 1 "$ZERO3D" checkpoint import "$gpt2" imported
says 'imported: it already has checkpoints'
expect 1 "$ZERO3D" checkpoint import train.bin x
says 'train.bin: not a checkpoint of llm.c'
expect 1 "$ZERO3D" checkpoint import hf-bytes x --vocab "$gpt2"
says "vocab_size 257 is too small: the gpt2 tokenizer has 557 tokens; if tokens were added to it, --vocab-size N gives the model rows of them; --vocab none imports the model without a tokenizer$"
cp -r hf-bytes hf-other
rm hf-other/vocab.json hf-other/merges.txt
echo '{"model": {"type": "WordPiece", "vocab": {}}}' >hf-other/tokenizer.json
expect 1 "$ZERO3D" checkpoint import hf-other x
says 'hf-other/tokenizer.json:1: "model" of type WordPiece is not supported; only BPE is; --vocab none imports'
[ ! -e x/tokenizer ] && [ ! -e x/step-00000000 ] && [ ! -e x/config.yaml ] || fail "a refused import leaves files"
expect 0 "$ZERO3D" checkpoint import hf-other x --vocab none
expect 1 "$ZERO3D" generate x --prompt a
says 'data.vocab: the gpt2 tokenizer needs its vocabulary'
expect 1 "$ZERO3D" checkpoint import nowhere x
says 'nowhere: No such file'
expect 1 "$ZERO3D" generate from-llmc --prompt x
says 'data.vocab: the gpt2 tokenizer needs its vocabulary'
expect 1 "$ZERO3D" generate from-llmc --prompt x --vocab nowhere
says 'data.vocab: cannot open nowhere'
expect 2 "$ZERO3D" checkpoint export imported x --format onnx
says 'expected huggingface or llm.c'
expect 2 "$ZERO3D" checkpoint export imported x --dtype int8
expect 2 "$ZERO3D" checkpoint verify imported --dtype bf16
expect 2 "$ZERO3D" checkpoint import "$gpt2" y --merges m.txt
expect 2 "$ZERO3D" data tokenize run.yaml --output x.bin --tokenizer gpt2
says '--tokenizer gpt2 needs --vocab'
expect 2 "$ZERO3D" data tokenize run.yaml --output x.bin --vocab "$gpt2"
expect 2 "$ZERO3D" data tokenize run.yaml --output x.bin --tokenizer words
