#!/usr/bin/python3
"""Writes tests/data/hf_models: tiny random models of GPT-2, Llama and its relatives as transformers saves
them, and the results of transformers and PyTorch with them in fp32: logits, gradients, losses, greedy tokens.

Needs PyPI's transformers, safetensors and PyTorch. Tests read the committed files and need none of them.

  tests/data/make-huggingface-fixtures.py              all folders
  tests/data/make-huggingface-fixtures.py --check DIR  for each folder DIR/NAME, which zero3d exported: transformers
                                                    loads it as the same kind of model as the fixture NAME, and
                                                    it computes the logits of DIR/NAME/logits.bin, or, without
                                                    that file, the fixture's. This makes a DIR of trained models:
      ZERO3D_KEEP=DIR scripts/launch -n 4 build/bin/train_parity

  NAME/config.json, NAME/model*.safetensors*  written by save_pretrained
  NAME/logits.bin   int32 count, int32[count] tokens, float32[count, vocabulary] logits, fp32
  NAME/gradients.safetensors  of the mean loss of the first batch, with the tensors' names
  NAME/trained.safetensors    the tensors after all steps
  NAME/training.json          "losses" of all steps; "greedy": the tokens that follow the first PROMPT ones of
                              logits.bin, none of which is near a tie
"""
import json
import pathlib
import struct
import sys

import safetensors.torch
import torch
import torch.nn.functional as F
from transformers import (AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config,
                          Qwen3Config)

OUT = pathlib.Path(__file__).resolve().parent / "hf_models"
COUNT, PROMPT, GREEDY, GAP, DIFFERENT = 24, 11, 64, 1e-2, 10
# The training of tests/zero/harness.h: AdamW, decay of matrices only, clipping of the global norm.
BATCH, STEPS = 8, 20
LR, BETAS, EPS, DECAY, CLIP = 1e-2, (0.9, 0.95), 1e-8, 0.1, 1.0
SIZES = dict(vocab_size=61, hidden_size=20, num_hidden_layers=2, max_position_embeddings=PROMPT + GREEDY,
             bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=8)
YARN = dict(rope_type="yarn", rope_theta=300.0, factor=3.0, original_max_position_embeddings=25)

# name: configuration, type, and the largest size of a file
MODELS = {
    "gpt2": (GPT2Config(**SIZES, n_head=2, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0), torch.float32, "5GB"),
    "llama": (LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
                          intermediate_size=26, rope_parameters=LLAMA3), torch.float32, "5GB"),
    "smollm": (LlamaConfig(**SIZES, num_attention_heads=2, num_key_value_heads=2, intermediate_size=30,
                           rms_norm_eps=1e-5, tie_word_embeddings=True,
                           rope_parameters=dict(rope_type="linear", rope_theta=100.0, factor=2.0)),
               torch.bfloat16, "5GB"),
    "mistral": (MistralConfig(**SIZES, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                              intermediate_size=34, sliding_window=7,
                              rope_parameters=dict(rope_type="default", rope_theta=200.0)),
                torch.float16, "6KB"),
    "qwen2": (Qwen2Config(**SIZES, num_attention_heads=2, num_key_value_heads=1, intermediate_size=42,
                          use_sliding_window=False, rope_parameters=YARN), torch.float32, "12KB"),
    "qwen3": (Qwen3Config(**SIZES, num_attention_heads=4, num_key_value_heads=2, head_dim=10,
                          intermediate_size=24, tie_word_embeddings=True, use_sliding_window=True,
                          sliding_window=9, max_window_layers=0,
                          rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
              torch.float32, "8KB"),
}


def random_model(config):
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for name, parameter in model.named_parameters():
        norm = ("norm" in name or "ln_" in name) and name.endswith("weight")
        scale, shift = (0.2, 1.0) if norm else (0.3, 0.0)
        parameter.data = torch.randn(parameter.shape) * scale + shift
    return model


def logits_of(model, tokens):
    with torch.no_grad():
        return model.eval()(torch.tensor([tokens])).logits[0]


def load(folder):
    """The model in fp32, whatever the file's type: also the angles, which .float() would not restore."""
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32,
                                                output_loading_info=True)


def mix(x):
    x = (x + 0x9e3779b97f4a7c15) % 2**64
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9 % 2**64
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb % 2**64
    return x ^ (x >> 31)


def token(sample, i):
    """The tokens of tests/zero/harness.h."""
    r = mix(sample * 1000003 + i)
    return (mix(r) if r % 4 == 0 else sample * 7 + i * 3) % SIZES["vocab_size"]


def batch(step):
    length = SIZES["max_position_embeddings"]
    rows = torch.tensor([[token(step * BATCH + b, i) for i in range(length + 1)] for b in range(BATCH)])
    return rows[:, :-1], rows[:, 1:]


def tensors_of(model, value):
    """Copies, in fp32, with the names of save_pretrained."""
    return {name: value(parameter).detach().clone() for name, parameter in model.named_parameters()}


def train(model, out):
    """Trains and returns the losses. Writes the gradients of the first step and the tensors after the last."""
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": DECAY},
         {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}],
        lr=LR, betas=BETAS, eps=EPS)
    losses = []
    for step in range(STEPS):
        tokens, targets = batch(step)
        loss = F.cross_entropy(model(tokens).logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            safetensors.torch.save_file(tensors_of(model, lambda p: p.grad), out / "gradients.safetensors")
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        losses.append(loss.item())
    safetensors.torch.save_file(tensors_of(model, lambda p: p), out / "trained.safetensors")
    return losses


def greedy(model, prompt):
    """The tokens that transformers generates, and the least distance between the best and the second token."""
    ids = torch.tensor([prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=GREEDY, do_sample=False,
                         eos_token_id=None, output_logits=True, return_dict_in_generate=True)
    first, second = torch.cat(out.logits).topk(2).values.unbind(-1)
    return out.sequences[0, len(prompt):].tolist(), (first - second).min().item()


def write(name):
    """A model whose greedy tokens are not near a tie, and not always the same."""
    config, dtype, shard = MODELS[name]
    seed, gap, continuation = sum(map(ord, name)), 0, []
    while gap < GAP or len(set(continuation)) < DIFFERENT:
        torch.manual_seed(seed)
        model = random_model(config).to(dtype)
        model.save_pretrained(OUT / name, max_shard_size=shard)
        (OUT / name / "generation_config.json").unlink(missing_ok=True)
        tokens = torch.randint(SIZES["vocab_size"], (COUNT,)).tolist()
        model = load(OUT / name)[0].eval()
        continuation, gap = greedy(model, tokens[:PROMPT])
        seed += 1
    with open(OUT / name / "logits.bin", "wb") as out:
        out.write(struct.pack(f"<{1 + COUNT}i", COUNT, *tokens))
        out.write(logits_of(model, tokens).numpy().astype("<f4").tobytes())
    losses = train(model, OUT / name)
    (OUT / name / "training.json").write_text(
        json.dumps({"losses": losses, "greedy": continuation}) + "\n")
    print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}, {len(set(continuation))} different greedy tokens, "
          f"none nearer to a tie than {gap:.2g}")


def check(name, folder):
    logits = folder / name / "logits.bin"
    data = (logits if logits.exists() else OUT / name / "logits.bin").read_bytes()
    tokens = list(struct.unpack_from(f"<{COUNT}i", data, 4))
    wanted = torch.frombuffer(bytearray(data), dtype=torch.float32, offset=4 + 4 * COUNT).view(COUNT, -1)
    model, info = load(folder / name)
    worst = (logits_of(model, tokens) - wanted).abs().max().item()
    print(f"{name}: {type(model).__name__}, logits (up to {wanted.abs().max().item():.3g}) differ by {worst:.2g} "
          "at most")
    assert model.config.model_type == MODELS[name][0].model_type
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    assert worst < 1e-5


if __name__ == "__main__":
    torch.set_num_threads(1)
    for each in MODELS:
        check(each, pathlib.Path(sys.argv[2])) if sys.argv[1:2] == ["--check"] else write(each)
