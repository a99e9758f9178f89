#!/bin/sh
# A Llama from training to Hugging Face's folder in shards, back, to text and to training again.
. "$(dirname "$0")/../cli/lib.sh"

printf 'It was the best of times, it was the worst of times. ' >text.txt
expect 0 "$ZERO3D" data tokenize text.txt --output train.bin
cat >run.yaml <<END
model:
  { type: llama, num_layers: 2, hidden_size: 16, num_attention_heads: 4, num_key_value_heads: 2, seq_length: 16,
    vocab_size: 257, intermediate_size: 44, qk_norm: true, rope_scaling: { rope_type: linear, factor: 2 } }
train_batch_size: 2
gradient_accumulation_steps: 1
data: { train: train.bin }
training: { steps: 2, threads: 1, gemm: { fp32: sgemm } }
checkpoint: { interval: 2 }
run: { dir: run, tensorboard: false }
END
expect 0 "$ZERO3D" train run.yaml
expect 0 "$ZERO3D" checkpoint export run/checkpoints hf --max-shard-size 20KB
grep -q 'written to hf/model-00001-of-0000[2-9].safetensors ... and config.json, fp32, with the tokenizer$' out ||
    fail "the export does not say how many shards"
[ ! -e hf/model.safetensors ] && [ -s hf/model.safetensors.index.json ] || fail "the export is not in shards"
grep -q '"model_type": "qwen3"' hf/config.json || fail "a Llama with norms of queries and keys is a Qwen3"

# Back: the same tensors, which speak the same.
expect 0 "$ZERO3D" checkpoint import hf back
expect 1 "$ZERO3D" checkpoint diff run/checkpoints back
grep -q 'parameters are equal$' out || fail "the imported parameters are others"
expect 0 "$LAUNCH" -n 2 "$ZERO3D" generate back --prompt "" --tokens 12 --temperature 0
cp out by-import
expect 0 "$ZERO3D" generate run/checkpoints --prompt "" --tokens 12 --temperature 0
cmp -s out by-import || fail "the imported model says something else"

# Caches are as long as the texts, not as the model: with these they would take hundreds of GB.
i=0
while [ $i -lt 200 ]; do
    echo '{"prompt": "It", "tokens": 2}'
    i=$((i + 1))
done >in.jsonl
expect 0 "$ZERO3D" generate back --prompts in.jsonl model.seq_length=16777216 generate.batch=200
[ "$(wc -l <out)" -eq 200 ] || fail "not every prompt has an answer"

# A run with shorter samples exports the model's own context, and its type.
expect 0 "$ZERO3D" checkpoint export back hf16 --dtype bf16
sed -i 's/"max_position_embeddings": 16/"max_position_embeddings": 99/' hf16/config.json
expect 0 "$ZERO3D" checkpoint import hf16 own
expect 0 "$ZERO3D" train own/config.yaml run.dir=short data.train=train.bin model.seq_length=8 training.steps=1 \
    train_batch_size=2 gradient_accumulation_steps=1 checkpoint.interval=1 run.tensorboard=false
grep -q 'largest token [0-9]* of vocabulary 257$' out || fail "the start does not say the largest token"
expect 0 "$ZERO3D" checkpoint export short/checkpoints hf-short
grep -q '"max_position_embeddings": 99,' hf-short/config.json || fail "the export has the context of the run"
grep -q '"torch_dtype": "bfloat16"' hf-short/config.json || fail "the export has another type"

# On to training, on any sizes.
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train run.yaml run.dir=on checkpoint.init_from=back parallel.tensor_model_parallel_size=2
expect 0 "$LAUNCH" -n 2 "$ZERO3D" train run.yaml run.dir=on2 checkpoint.init_from=back parallel.pipeline_model_parallel_size=2

# A run with more token ids than the model: the new rows are the mean of the others, in equal bits on all sizes, and are exported.
expect 1 "$ZERO3D" checkpoint import hf fewer --vocab-size 256
says 'the model has 257 token ids, and none can be left out; expected 257 or more$'
expect 1 "$ZERO3D" checkpoint import hf fewer --vocab-size 99999999999
says '--vocab-size: .*model.vocab_size.* 16777216'
[ ! -e fewer ] || fail "a refused import leaves its folder"
expect 0 "$ZERO3D" checkpoint import hf more --vocab-size 261
expect 1 "$ZERO3D" evaluate back train.bin model.vocab_size=261 # which is not trained
says 'embed_tokens/weight is 257 x 16 in the checkpoint and 261 x 16 in this run; the checkpoint has model.vocab_size=257$'
grep -q '^  vocab_size: 261' more/config.yaml || fail "a run that begins with the model has not 261 token ids"
grow='run.tensorboard=false data.train=train.bin train_batch_size=2 training.steps=1 training.peak_tflops=0.1 training.gemm.fp32=sgemm
    optimizer.params.lr=0 optimizer.params.weight_decay=0 checkpoint.interval=1'
# shellcheck disable=SC2086 # a list of arguments
{
    expect 0 "$ZERO3D" train more/config.yaml run.dir=more1 $grow
    grep -q 'model.vocab_size 261 exceeds the checkpoint.s 257: 4 new rows of each token table start at the mean of the others$' err ||
        fail "nothing is said of new token ids"
    expect 0 "$LAUNCH" -n 2 "$ZERO3D" train more/config.yaml run.dir=more2 parallel.tensor_model_parallel_size=2 $grow
    expect 0 "$LAUNCH" -n 2 "$ZERO3D" train more/config.yaml run.dir=more3 parallel.pipeline_model_parallel_size=2 $grow
    expect 0 "$ZERO3D" data tokenize text.txt --output ids.bin --special none # the end of a text has the last id
    expect 1 "$ZERO3D" train more/config.yaml run.dir=more4 model.vocab_size=256 $grow data.train=ids.bin
    says 'embed_tokens/weight is 257 x 16 in the checkpoint and 256 x 16 in this run'
}
for run in more1 more2 more3; do
    expect 0 "$ZERO3D" checkpoint export $run/checkpoints $run-hf --vocab none
done
cmp more1-hf/model.safetensors more2-hf/model.safetensors || fail "two tensor ranks have other new rows"
cmp more1-hf/model.safetensors more3-hf/model.safetensors || fail "two pipeline stages have other new rows"
grep -q '"vocab_size": 261,' more1-hf/config.json || fail "the export has another vocabulary"
/usr/bin/python3 - hf more1-hf <<'END' || fail "a new row is not the mean of the others"
import glob, json, struct, sys
def tables(folder):
    out = {}
    for path in glob.glob(folder + "/*.safetensors"):
        data = open(path, "rb").read()
        size = struct.unpack("<Q", data[:8])[0]
        for name, t in json.loads(data[8:8 + size]).items():
            if "embed_tokens" in name or "lm_head" in name:
                a, b = (8 + size + at for at in t["data_offsets"])
                out[name] = [struct.unpack("<16f", data[at:at + 64]) for at in range(a, b, 64)]
    return out
old, new = tables(sys.argv[1]), tables(sys.argv[2])
assert len(old) == 2 and set(old) == set(new), old.keys()
for name, rows in old.items():
    mean = tuple(struct.unpack("<f", struct.pack("<f", sum(column) / 257))[0] for column in zip(*rows))
    assert new[name][:257] == rows and new[name][257:] == [mean] * 4, name
END

expect 1 "$ZERO3D" checkpoint export back x.bin --format llm.c
says 'llm.c has no llama, only GPT-2'
expect 2 "$ZERO3D" checkpoint export back x --max-shard-size much
says '--max-shard-size much: expected a size'
expect 2 "$ZERO3D" checkpoint export back x --max-shard-size 1GB --format llm.c
says 'has no effect with --format llm.c'
expect 2 "$ZERO3D" checkpoint verify back --max-shard-size 1GB
rm hf/model-00001-of-*.safetensors
expect 1 "$ZERO3D" checkpoint import hf other
says 'hf/model-00001-of-0000[2-9].safetensors: cannot open it'
