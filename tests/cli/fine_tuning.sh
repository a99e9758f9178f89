#!/bin/sh
# The commands of docs/fine-tuning.md work as they stand there: a model made here, with a chat template, stands for the downloaded one. A
# run trains on the conversations, each in one sample, and evaluation counts what it counts.
. "$(dirname "$0")/lib.sh"

HOME=$work
export HOME
PATH=$(dirname "$ZERO3D"):$PATH
export PATH
tiny

mkdir tokenizer
sed 's/"added_tokens":\[/&{"id":518,"content":"<|im_end|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},/' \
    "$SOURCE/tests/data/tokenizers/smollm/tokenizer.json" >tokenizer/tokenizer.json
cat >tokenizer/tokenizer_config.json <<'END'
{"eos_token": "<|im_end|>", "chat_template": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a test<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"}
END
expect 0 "$ZERO3D" data tokenize text --output first.bin --tokenizer huggingface --vocab tokenizer
grep -q '^vocabulary 519 ' out || fail "the tokenizer has other ids"
expect 0 "$ZERO3D" train tiny.yaml training.steps=1 checkpoint.interval=1 run.dir=first model.type=llama model.vocab_size=519 data.train=first.bin \
    data.tokenizer=huggingface data.vocab=tokenizer
expect 0 "$ZERO3D" checkpoint export first/checkpoints SmolLM2-135M-Instruct

mkdir folder
printf 'A page.\n' >folder/README.md
printf '{"prompt": "a", "completion": "b"}\n' >folder/a.jsonl
expect 0 "$ZERO3D" data tokenize folder --output folder.bin
grep -q '^left out   1 file that is no JSON$' out || fail "a page beside prompts is trained"
grep -q '^read       1 text file, .*, 1 document$' out || fail "a page beside prompts is read"

printf '{"question": "hi", "answer": "yo"}\n' >other.jsonl
expect 1 "$ZERO3D" data tokenize other.jsonl --output other.bin
says "other.jsonl has objects in JSON of no known format .their keys: question, answer.; .*--format"
printf '{"prompt": "a", "chosen": "b", "rejected": "c"}\n' >other.jsonl
expect 1 "$ZERO3D" data tokenize other.jsonl --output other.bin
says 'preference data ..chosen., .rejected.., which is not trained'
printf '{"prompt": "a", "completion": "b"}\n%.0s' 1 2 3 >twice.jsonl
expect 0 "$ZERO3D" data tokenize twice.jsonl --output twice.bin
grep -q '^read       1 text file, .*, 1 of 3 documents$' out || fail "what is read is not what is there"
printf 'PAR1\025\004\025text' >cut.parquet
expect 1 "$ZERO3D" data tokenize cut.parquet --output cut.bin
says 'parquet is not read'

awk '/^```/ { on = $0 == "```sh"; next } on' "$SOURCE/docs/fine-tuning.md" >commands
sed -i 's/train_batch_size=2 /&training.peak_tflops=0.1 training.gemm.fp32=sgemm /' commands
expect 0 timeout 100 sh -e commands
[ -f exported/chat/model.safetensors ] || fail "the commands leave no model"
cmp SmolLM2-135M-Instruct/tokenizer_config.json exported/chat/tokenizer_config.json || fail "the chat template is not exported"
[ -f exported/adapter/adapter_model.safetensors ] && [ ! -f exported/adapter/model.safetensors ] || fail "the adapter is not exported alone"
! cmp -s exported/merged/model.safetensors SmolLM2-135M-Instruct/model.safetensors || fail "the merged model has no adapter in it"
grep -q 'checkpoints do not have the frozen parameters: they use those of .*/models/chat/step-00000000, so keep it$' out err || fail "nothing is said of the base"
grep -q 'the adapter is that of exported/adapter$' out err || fail "a run does not begin with an adapter"
[ -f exported/best/model.safetensors ] && [ -s runs/best/samples.jsonl ] || fail "the commands leave no best model, or no samples"
grep -q 'next: zero3d generate models/chat --chat --prompt TEXT$' out || fail "the import says another command than a chat model's"
grep -q 'generate: .*zero3d generate runs/chat/checkpoints --chat --prompt Hello$' out || fail "the run says another command than a chat model's"
grep -q '^note: the chat template ends an answer with <|im_end|>: add its id, 518, to eos_token_id of exported/chat/generation_config.json$' out || fail "nothing is said of an end that transformers does not know"
grep -Eq '^best     validation loss [0-9.]+ at step [0-9]+: runs/best/checkpoints/best$' out || fail "the run does not say which is best"
grep -q '^format     messages, by the keys of the first object; chat template chatml$' out || fail "the conversations are not recognised"
grep -Eq '^trained    [0-9]+ of [0-9]+ tokens: the assistant'\''s messages$' out || fail "nothing is said of what is trained"

expect 0 "$ZERO3D" train models/chat/config.yaml data.train=data/chats.bin data.validation=data/held-out.bin data.samples=documents \
    model.seq_length=128 train_batch_size=1 training.epochs=1 training.eval_interval=1 training.peak_tflops=0.1 training.gemm.fp32=sgemm \
    checkpoint.interval=1 run.dir=run
! grep -Eq 'a loss takes|the run is' out || fail "a whole file is called a part, or epochs are said twice"
grep -Eq '^documents   2 in (1 sample|2 samples) an epoch, which they fill to [0-9.]+ %$' out || fail "the run says nothing of its documents"
grep -Eq 'training.epochs 1: [12] steps?; a pass is [12] samples?$' out || fail "an epoch is not all documents once"
loss=$(sed -n 's/^ *\([12]\)\/\1  *\([0-9.]*\)  validation loss.*/\2/p' out)
expect 0 "$ZERO3D" evaluate run/checkpoints data/held-out.bin
grep -q "^loss  *$loss$" out || fail "evaluation has another loss than the run: $loss"
! grep -q 'cut where' err || fail "evaluate warns of documents that are whole"
expect 0 "$ZERO3D" evaluate models/chat data/held-out.bin
grep -q 'cut where a window ends: data.samples=documents keeps them whole$' err || fail "evaluate says nothing of windows of conversations"
expect 0 "$ZERO3D" train models/chat/config.yaml data.train=data/chats.bin model.seq_length=32 train_batch_size=1 training.steps=1 \
    data.validation=data/chats.bin training.eval_steps=1 training.peak_tflops=0.1 training.gemm.fp32=sgemm checkpoint.interval=0 run.dir=windows
grep -q '^data .*, validation [0-9]* (a loss takes 1 batch of it: training.eval_steps); ' out || fail "nothing is said of the validation data that no loss takes"
grep -q 'cut where a window ends: data.samples=documents keeps them whole$' out || fail "windows of conversations are not noticed"
expect 0 "$ZERO3D" train models/chat/config.yaml data.train=data/chats.bin model.seq_length=8 train_batch_size=1 training.steps=300 \
    training.max_skipped_steps=1 training.peak_tflops=0.1 training.gemm.fp32=sgemm checkpoint.interval=0 run.dir=few
grep -Eq '^ +more than 10 passes over the data; training.epochs=3 makes 3$' out || fail "many passes are not noticed"
grep -q 'skipped: no token of its data is trained$' out || fail "no step is without a trained token"
grep -q '"loss":null.*"trained_tokens":0,.*"skipped":true' few/metrics.jsonl || fail "a step without a trained token has a loss"
grep -Eq '^done: .* loss .* -> [1-9][0-9.]*,' out || fail "the last loss is that of a step without a trained token"
expect 1 "$ZERO3D" train models/chat/config.yaml data.train=train.bin data.samples=documents run.dir=other
says 'data.train: train.bin: '
expect 1 "$ZERO3D" train models/chat/config.yaml data.train=chats.jsonl run.dir=other
says 'chats.jsonl: this is JSON, not a token file: make one with `zero3d data tokenize`$'

sed 's/"content": "/&<|im_end|>/' chats.jsonl >strange.jsonl
expect 0 "$ZERO3D" data tokenize strange.jsonl --tokenizer models/chat --output strange.bin
grep -Eq '^special    [0-9]+ messages? with a special token in the text; it is kept as this token' out || fail "nothing is said of special tokens: $(cat out)"

# A message is answered in the template, as if it had been written out.
expect 0 "$ZERO3D" generate models/chat --chat --prompt Hi --tokens 6 --temperature 0 model.seq_length=64
mv out by-template
printf '<|im_start|>system\nYou are a test<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n' >prompt
expect 0 "$ZERO3D" generate models/chat --prompt "$(cat prompt)
" --tokens 6 --temperature 0 model.seq_length=64
cat by-template >>prompt
cmp prompt out || fail "a message has another answer than what its template writes"
printf '%s\n' '{"prompt": "Hi"}' '{"messages": [{"role": "user", "content": "Hi"}], "id": 7}' >in.jsonl
expect 0 "$LAUNCH" -n 2 "$ZERO3D" generate models/chat --chat --prompts in.jsonl --tokens 6 --temperature 0 model.seq_length=64 --system 'You are a test'
[ "$(sed 's/.*"text"/"text"/' out | uniq | wc -l)" -eq 1 ] || fail "a prompt and a conversation have other answers"
grep -q '^{"messages": \[{"role": "user", "content": "Hi"}\], "id": 7, "text": ' out || fail "the answer has lost its conversation"
expect 1 "$ZERO3D" generate first/checkpoints --chat --prompt Hi --vocab "$SOURCE/tests/data/tokenizers/smollm"
says 'the model.s folder has no chat template; name one with --chat-template: chatml, .*, plain$'
expect 2 "$ZERO3D" generate models/chat --prompt Hi --system x
says '^zero3d: --system needs --chat'
expect 1 "$ZERO3D" evaluate models/chat chats.jsonl
says 'chats.jsonl: its objects are of the format messages: make a token file .*: zero3d data tokenize chats.jsonl --tokenizer FOLDER --output FILE.bin$'

# Adapters go on with the factor that they were trained with.
expect 1 "$ZERO3D" train models/chat/config.yaml data.train=data/chats.bin data.samples=documents model.seq_length=1024 train_batch_size=2 training.steps=1 \
    checkpoint.init_from=runs/adapter/checkpoints lora.r=8 lora.lora_alpha=8 lora.target_modules=all-linear run.dir=runs/other
says 'lora.lora_alpha=8: 8 here, 16 in the checkpoint; write 16, or begin with its base: checkpoint.init_from=/.*/models/chat/step-00000000$'

# A checkpoint of adapters has these alone, and says where the base is.
saved=$(echo runs/adapter/checkpoints/step-*)
! grep -q embed_tokens "$saved/shard-00000.h5" || fail "a checkpoint has its base's parameters"
expect 0 "$ZERO3D" checkpoint show runs/adapter/checkpoints
grep -Eq "^base: $work/models/chat/step-00000000, digest [0-9a-f]{32}; it has the frozen parameters" out || fail "show: no base"
expect 0 "$ZERO3D" checkpoint verify runs/adapter/checkpoints
grep -q 'intact, .* verified, with its base .*/models/chat/step-00000000$' out || fail "verify: no base"
expect 0 "$ZERO3D" checkpoint diff runs/adapter/checkpoints runs/adapter/checkpoints
grep -q '"base_model_name_or_path": ".*/SmolLM2-135M-Instruct"' exported/adapter/adapter_config.json || fail "the adapter has no base"
cmp SmolLM2-135M-Instruct/tokenizer_config.json exported/adapter/tokenizer_config.json || fail "the adapter has no tokenizer"
expect 2 "$ZERO3D" checkpoint verify models/chat --base models/chat
says '.--base has no effect: .* leaves out no parameters'
expect 2 "$ZERO3D" checkpoint show models/chat --base models/chat
says '.--base is for checkpoint verify, diff and export'

# New rows of a frozen table are in no base: it is saved, too, and needs none.
expect 0 "$ZERO3D" train models/chat/config.yaml data.train=data/chats.bin model.seq_length=64 train_batch_size=1 training.steps=1 lora.r=2 \
    model.vocab_size=600 run.dir=runs/rows training.peak_tflops=0.1 training.gemm.fp32=sgemm checkpoint.async=true
grep -q embed_tokens runs/rows/checkpoints/step-*/shard-00000.h5 || fail "a frozen table with new rows is not saved"
! grep -q 'leave out the frozen' err || fail "a base without the new rows is one"
expect 0 "$ZERO3D" checkpoint verify runs/rows/checkpoints

# A plan knows what is saved: a billion bytes less.
for from in "" models/chat; do
    expect 0 "$ZERO3D" plan tiny.yaml --ranks 1 --hardware "$SOURCE/configs/hardware/dgx-h100.yaml" model.hidden_size=1024 model.num_layers=24 \
        train_batch_size=1 lora.r=8 checkpoint.init_from="$from" training.gemm.fp32=auto
    sed -n 's/^checkpoint .predicted.: \([0-9]*\)\..*/\1/p' out
done >saved
[ "$(tr '\n' ' ' <saved)" = "1 0 " ] || fail "the plan saves the base: $(cat saved)"

# Other adapters begin with the base, and what else is no adapter of this run is said in one line.
adapter="data.train=data/chats.bin data.samples=documents model.seq_length=1024 train_batch_size=2 lora.r=8 lora.lora_alpha=16
    lora.target_modules=all-linear training.peak_tflops=0.1 training.gemm.fp32=sgemm"
# After the lines on how the run begins.
ends() { [ "$(grep -c '^zero3d: error: ' err)" -eq 1 ] && grep -Eq -- "^zero3d: error: .*$1" err || fail "it does not end with: $1"; }
# shellcheck disable=SC2086 # options
train() { "$ZERO3D" train models/chat/config.yaml $adapter "$@"; }
expect 1 train run.dir=runs/adapter training.epochs=3 optimizer.params.lr=2e-4 lora.target_modules=[q_proj]
says "to change it, start a new run from the base.s weights .checkpoint.init_from=$work/models/chat/step-00000000. in another run.dir$"
expect 1 train run.dir=runs/other training.steps=1 checkpoint.init_from=runs/adapter/checkpoints lora.target_modules=[q_proj]
says 'lora_A.weight of the checkpoint is not in this run.s model; keep its section lora .zero3d checkpoint show.*, begin with its base'
for folder in runs/adapter runs/adapter/checkpoints "$saved"; do
    expect 1 train run.dir=runs/other training.steps=1 lora.init_from="$folder"
    ends "has a run.s checkpoints, not PEFT.s folder of an adapter; begin with base and adapter: checkpoint.init_from=runs/adapter/checkpoints"
done
expect 1 train run.dir=runs/other training.steps=1 lora.init_from=exported/adapter lora.target_modules=[q_proj]
ends 'tensor base_model.model.model.layers.0.mlp.down_proj.lora_A.weight is not trained in this run, but base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight is; the adapter is for another model, or for other lora.target_modules'
expect 1 train run.dir=runs/other training.steps=1 lora.init_from=exported/adapter checkpoint.init_from=
ends 'the adapter was trained on a base with the digest [0-9a-f]{32}, and this run begins with random weights; set checkpoint.init_from'
# PEFT says a name only, which may be another name of the same base.
expect 0 train run.dir=runs/random training.steps=1 checkpoint.init_from=
expect 0 "$ZERO3D" checkpoint export runs/random/checkpoints exported/named
sed -i 's|"base_model_name_or_path": null|"base_model_name_or_path": "org/other"|' exported/named/adapter_config.json
expect 0 train run.dir=runs/other training.steps=1 lora.init_from=exported/named checkpoint.interval=0
grep -Eq 'exported/named: the adapter was trained on org/other .*, and this run.s base was imported from .*/SmolLM2-135M-Instruct: only' err ||
    fail "nothing is said of another base's name"
expect 0 "$ZERO3D" train tiny.yaml lora.r=2 training.steps=1 checkpoint.interval=1 run.dir=random
expect 0 "$ZERO3D" checkpoint export random/checkpoints exported/random
expect 1 train run.dir=runs/other training.steps=1 lora.init_from=exported/random lora.r=2 lora.lora_alpha=8
ends 'tensor base_model.model.transformer.h.0.attn.c_attn.lora_A.weight is not trained in this run, but '
expect 1 "$ZERO3D" train tiny.yaml model.hidden_size=64 lora.r=2 lora.init_from=exported/random run.dir=runs/other
ends 'its shape does not fit the run.s model: expected \[2, 64\]; the adapter is for a model of other sizes$'

# The base may move, and be imported again; another one is refused with both digests, also for its adapter.
mv models/chat models/moved
expect 1 "$LAUNCH" -n 2 "$ZERO3D" evaluate runs/adapter/checkpoints data/held-out.bin
says 'its base is gone: the frozen parameters were in .*/models/chat/step-00000000 .digest [0-9a-f]{32}.*; write where it is now: checkpoint.base=PATH .of zero3d checkpoint: --base PATH.$'
expect 1 "$ZERO3D" checkpoint export runs/adapter/checkpoints exported/gone --merged
says 'its base is gone'
expect 1 "$ZERO3D" checkpoint list runs/adapter/checkpoints
grep -q 'cannot be used: .*: its base is gone' out || fail "list: a checkpoint without its base is good"
expect 0 "$ZERO3D" checkpoint export runs/adapter/checkpoints exported/again
expect 0 "$ZERO3D" checkpoint import exported/merged models/chat
digests='digest [0-9a-f]{32}, and the run began with [0-9a-f]{32}; if that base is elsewhere, write where it is now'
expect 1 "$LAUNCH" -n 2 "$ZERO3D" evaluate runs/adapter/checkpoints data/held-out.bin
says "its base has changed: .*models/chat/step-00000000 has the $digests"
expect 1 "$ZERO3D" checkpoint export runs/adapter/checkpoints exported/gone --merged --base models/chat
says "its base has changed: .*models/chat/step-00000000 has the $digests"
expect 1 train run.dir=runs/other training.steps=1 lora.init_from=exported/adapter
ends 'the adapter has another base: it was trained on a base with the digest [0-9a-f]{32}, and .*/models/chat/step-00000000 has [0-9a-f]{32}; set checkpoint.init_from'
expect 0 "$ZERO3D" checkpoint import SmolLM2-135M-Instruct models/again
# What a run has trained beside a frozen part of that base is another base.
expect 0 "$ZERO3D" train models/again/config.yaml data.train=data/chats.bin model.seq_length=64 train_batch_size=1 training.steps=1 training.freeze=embed_tokens \
    run.dir=runs/frozen training.peak_tflops=0.1 training.gemm.fp32=sgemm
expect 1 train run.dir=runs/other training.steps=1 checkpoint.init_from=runs/frozen/checkpoints lora.init_from=exported/adapter
ends 'the adapter has another base: it was trained on a base with the digest [0-9a-f]{32}, and .* has [0-9a-f]{32}; set checkpoint.init_from'
expect 0 "$ZERO3D" checkpoint export runs/adapter/checkpoints exported/same --merged --base models/again
cmp exported/same/model.safetensors exported/merged/model.safetensors || fail "the merged model depends on where the base is"
expect 0 "$LAUNCH" -n 2 "$ZERO3D" generate runs/adapter/checkpoints --prompt Hi --tokens 4 checkpoint.base=models/moved
expect 1 "$LAUNCH" -n 2 "$ZERO3D" evaluate models/again data/held-out.bin checkpoint.base=models/moved
ends 'models/again/.*: it has all its parameters, so a base has no effect; remove checkpoint.base=models/moved$'
# What a run goes on with it saves has it there.
expect 0 train run.dir=runs/adapter training.epochs=6 optimizer.params.lr=2e-4 checkpoint.base=models/again
expect 0 "$ZERO3D" generate runs/adapter/checkpoints --prompt Hi --tokens 4
