"""PyTorch's tokens/s with the same GPT-2s on the same GPU: torch.compile, flash attention, fused AdamW, bf16 autocast."""

import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(self.ln_1(x)).split(c, 2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, vocabulary=50304, seq=1024):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(seq, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)), nn.LayerNorm(width))

    def forward(self, tokens, targets):
        logits = functional.linear(self.blocks(self.wte(tokens) + self.wpe.weight), self.wte.weight)
        return functional.cross_entropy(logits.float().view(-1, logits.size(-1)), targets.view(-1))


def step_seconds(layers, width, heads, batch, steps=10):
    model = Gpt(layers, width, heads).cuda()
    run = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(50257, (2, batch, 1024), device="cuda")
    for i in range(steps + 3):
        if i == 3:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(tokens[0], tokens[1])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / steps


torch.set_float32_matmul_precision("high")
for name, sizes, batches in (("gpt2-124m", (12, 768, 12), (32,)), ("gpt2-1.5b", (48, 1600, 25), (16, 8, 4))):
    for batch in batches:
        try:
            seconds = step_seconds(*sizes, batch)
        except torch.OutOfMemoryError:
            print(f"info    {name:<46} {batch} x 1024 does not fit")
            torch.cuda.empty_cache()
            continue
        print(f"info    {name:<46} PyTorch {torch.__version__}, {batch} x 1024: {seconds * 1e3:.1f} ms a step, {batch * 1024 / seconds:.0f} tokens/s", flush=True)
        break
