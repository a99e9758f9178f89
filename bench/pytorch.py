"""Training steps of a GPT-2 in PyTorch: forward with scaled_dot_product_attention, backward, clip_grad_norm_, fused AdamW.

pytorch.py gpu: tokens/s of GPT-2 on a GPU, compiled, bf16 (scripts/gpu-check.sh).
pytorch.py cpu eager|compile fp32|bf16 BATCH SEQ THREADS STEPS LAYERS: seconds of each step on the CPU, one a line. Several ranks
(RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) share BATCH and use FSDP2 (scripts/bench-pytorch).
"""

import os
import sys
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
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        # With nn.Embedding's own N(0, 1) the softmax of the logits has many subnormal numbers, which CPUs handle slowly.
        for matrix in (p for p in self.parameters() if p.dim() == 2):
            nn.init.normal_(matrix, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.ln_f(x), self.wte.weight)
        return functional.cross_entropy(logits.float().view(-1, logits.size(-1)), targets.view(-1))


def stepper(model, run, device, dtype, batch, seq):
    """A function that runs one training step; run: the model, or the compiled model."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens, targets = torch.randint(50257, (2, batch, seq), device=device)

    def step():
        with torch.autocast(device, torch.bfloat16, enabled=dtype == "bf16"):
            loss = run(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def gpu_step_seconds(layers, width, heads, batch, steps=10):
    model = Gpt(layers, width, heads).cuda()
    step = stepper(model, torch.compile(model), "cuda", "bf16", batch, 1024)
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / steps


def gpu():
    torch.set_float32_matmul_precision("high")
    for name, sizes, batches in (("gpt2-124m", (12, 768, 12), (32,)), ("gpt2-1.5b", (48, 1600, 25), (16, 8, 4))):
        for batch in batches:
            try:
                seconds = gpu_step_seconds(*sizes, batch)
            except torch.OutOfMemoryError:
                print(f"info    {name:<46} {batch} x 1024 does not fit")
                torch.cuda.empty_cache()
                continue
            print(f"info    {name:<46} PyTorch {torch.__version__}, {batch} x 1024: {seconds * 1e3:.1f} ms a step, {batch * 1024 / seconds:.0f} tokens/s", flush=True)
            break


def shard(model, ranks, way):
    from torch.distributed import device_mesh, fsdp

    torch.distributed.init_process_group("gloo")
    mesh = device_mesh.init_device_mesh("cpu", (ranks,))
    for block in model.blocks:
        if way == "compile":
            block.compile()
        fsdp.fully_shard(block, mesh=mesh)
    fsdp.fully_shard(model, mesh=mesh)


def cpu(way, dtype, batch, seq, threads, steps, layers):
    torch.set_num_threads(threads)
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    model = run = Gpt(layers, 768, 12, seq=seq)
    if ranks > 1:
        shard(model, ranks, way)
    elif way == "compile":
        run = torch.compile(model)
    step = stepper(model, run, "cpu", dtype, batch // ranks, seq)
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        if os.environ.get("RANK", "0") == "0":
            print(f"{time.perf_counter() - begin:.4f}", flush=True)
    if ranks > 1:
        torch.distributed.destroy_process_group()


if sys.argv[1] == "gpu":
    gpu()
else:
    cpu(*sys.argv[2:4], *map(int, sys.argv[4:]))
