#!/usr/bin/python3
"""Writes tests/data/gpt2_reference.bin: a tiny GPT-2 trained by PyTorch, to compare with.

Needs PyTorch (Debian: python3-torch, then run with /usr/bin/python3; or PyPI's torch). Tests read
the committed file and need neither. The model is written out here with torch's own operators and
autograd; only the weights' names and their [out, in] layout are ours. Dropout is 0.

The file, little-endian, nothing padded:
  char[8]   "z3dref02"
  int64[9]  layers, hidden, heads, seq, vocab, batch, steps, tensors, 0
  float64[6] lr, beta1, beta2, eps, weight decay (matrices only), gradient clipping (global norm)
  per step: int32[batch, seq] tokens, int32[batch, seq] targets (-1: ignored)
  float64[steps] losses in fp32 arithmetic, float64[steps] gradient norms before clipping,
  float64[steps] losses in fp64 arithmetic
  per tensor: char[48] group, char[48] name, int64 elements,
              float32[] initial value, float32[] gradient of step one computed in fp32,
              float32[] the same computed in fp64 (rounded)
"""
import math
import struct
import sys

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, SEQ, VOCAB, BATCH, STEPS = 2, 48, 4, 32, 67, 4, 20
LR, BETAS, EPS, DECAY, CLIP = 5e-3, (0.9, 0.95), 1e-8, 0.1, 1.5


def initial_weights(generator):
    """Every tensor has values that matter: no zero biases, no unit norms."""
    h = HIDDEN

    def normal(*shape, std=0.08, mean=0.0):
        return mean + std * torch.randn(*shape, generator=generator)

    weights = {("wte", "weight"): normal(VOCAB, h), ("wpe", "weight"): normal(SEQ, h)}
    for i in range(LAYERS):
        block = {
            "ln_1.weight": normal(h, mean=1.0), "ln_1.bias": normal(h),
            "attn.c_attn.weight": normal(3 * h, h, std=0.2), "attn.c_attn.bias": normal(3 * h),
            "attn.c_proj.weight": normal(h, h), "attn.c_proj.bias": normal(h),
            "ln_2.weight": normal(h, mean=1.0), "ln_2.bias": normal(h),
            "mlp.c_fc.weight": normal(4 * h, h, std=0.15), "mlp.c_fc.bias": normal(4 * h),
            "mlp.c_proj.weight": normal(h, 4 * h), "mlp.c_proj.bias": normal(h),
        }
        for name, value in block.items():
            weights[(f"block.{i}", name)] = value
    weights[("ln_f", "weight")] = normal(h, mean=1.0)
    weights[("ln_f", "bias")] = normal(h)
    return weights


def batches(generator):
    """Noisy arithmetic sequences, so that there is something to learn; a few targets ignored."""
    out = []
    for _ in range(STEPS):
        start = torch.randint(VOCAB, (BATCH, 1), generator=generator)
        stride = torch.randint(1, 4, (BATCH, 1), generator=generator)
        text = (start + stride * torch.arange(SEQ + 1)) % VOCAB
        noise = torch.randint(VOCAB, text.shape, generator=generator)
        text = torch.where(torch.rand(text.shape, generator=generator) < 0.1, noise, text)
        targets = text[:, 1:].clone()
        targets[torch.rand(targets.shape, generator=generator) < 0.05] = -1
        out.append((text[:, :-1].contiguous(), targets))
    return out


def loss_of(w, tokens, targets):
    x = w[("wte", "weight")][tokens] + w[("wpe", "weight")]
    mask = torch.full((SEQ, SEQ), -math.inf, dtype=x.dtype).triu(1)
    for i in range(LAYERS):
        p = {name: value for (group, name), value in w.items() if group == f"block.{i}"}
        y = F.layer_norm(x, (HIDDEN,), p["ln_1.weight"], p["ln_1.bias"])
        qkv = F.linear(y, p["attn.c_attn.weight"], p["attn.c_attn.bias"])
        q, k, v = (t.view(BATCH, SEQ, HEADS, -1).transpose(1, 2) for t in qkv.split(HIDDEN, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(HIDDEN // HEADS) + mask
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(BATCH, SEQ, HIDDEN)
        x = x + F.linear(y, p["attn.c_proj.weight"], p["attn.c_proj.bias"])
        y = F.layer_norm(x, (HIDDEN,), p["ln_2.weight"], p["ln_2.bias"])
        y = F.linear(y, p["mlp.c_fc.weight"], p["mlp.c_fc.bias"])
        y = F.gelu(y, approximate="tanh")
        x = x + F.linear(y, p["mlp.c_proj.weight"], p["mlp.c_proj.bias"])
    x = F.layer_norm(x, (HIDDEN,), w[("ln_f", "weight")], w[("ln_f", "bias")])
    logits = F.linear(x, w[("wte", "weight")])
    return F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1), ignore_index=-1)


def train(weights, data, dtype):
    """Losses, norms and the first step's gradients."""
    w = {key: value.to(dtype, copy=True).requires_grad_(True) for key, value in weights.items()}
    optimizer = torch.optim.AdamW(
        [{"params": [v for v in w.values() if v.dim() > 1], "weight_decay": DECAY},
         {"params": [v for v in w.values() if v.dim() == 1], "weight_decay": 0.0}],
        lr=LR, betas=BETAS, eps=EPS)
    losses, norms, gradients = [], [], None
    for tokens, targets in data:
        optimizer.zero_grad()
        loss = loss_of(w, tokens, targets)
        loss.backward()
        if gradients is None:
            gradients = {key: value.grad.clone() for key, value in w.items()}
        norms.append(float(torch.nn.utils.clip_grad_norm_(list(w.values()), CLIP)))
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, norms, gradients


def floats(tensor):
    return tensor.detach().to(torch.float32).contiguous().numpy().astype("<f4").tobytes()


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/data/gpt2_reference.bin"
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(20240601)
    weights, data = initial_weights(generator), batches(generator)
    losses, norms, gradients = train(weights, data, torch.float32)
    losses64, _, gradients64 = train(weights, data, torch.float64)
    with open(path, "wb") as out:
        out.write(b"z3dref02")
        out.write(struct.pack("<9q", LAYERS, HIDDEN, HEADS, SEQ, VOCAB, BATCH, STEPS,
                              len(weights), 0))
        out.write(struct.pack("<6d", LR, *BETAS, EPS, DECAY, CLIP))
        for tokens, targets in data:
            out.write(tokens.numpy().astype("<i4").tobytes())
            out.write(targets.numpy().astype("<i4").tobytes())
        for values in (losses, norms, losses64):
            out.write(struct.pack(f"<{STEPS}d", *values))
        for key, value in weights.items():
            out.write(struct.pack("<48s48sq", key[0].encode(), key[1].encode(), value.numel()))
            out.write(floats(value) + floats(gradients[key]) + floats(gradients64[key]))
    for step, (loss, norm, exact) in enumerate(zip(losses, norms, losses64), 1):
        print(f"step {step}: loss {loss:.9g} (fp64 {exact:.9g}), gradient norm {norm:.6g}")
    worst = max(float((gradients[k].double() - gradients64[k]).norm() / gradients64[k].norm())
                for k in weights)
    print(f"{path}: largest relative error of fp32's own gradients {worst:.2e}")


if __name__ == "__main__":
    main()
