"""Compares the optimizers' steps with PyTorch's, fp32, in turns.

optimizers.py PROGRAM [THREADS] [ROUNDS] [ELEMENTS]: PROGRAM is bench/optimizer.c's. PyTorch's steps are fused if it has such a kernel (CPU: Adam,
AdamW, SGD, Adagrad); Lion, which it lacks, is written with its foreach operations. States in bf16 (adamw_bf16) are compared with AdamW. All
elements are one tensor and decay. Both make a step in each round; the least seconds of all rounds count.
"""

import re
import subprocess
import sys
import time

import torch

program = sys.argv[1]
threads, rounds, elements = (int(argument) for argument in (sys.argv[2:] + ["1", "5", "124000000"][len(sys.argv) - 2:]))
torch.set_num_threads(threads)
# All values are 0, as in optimizer.c: no kernel's time depends on the values.
parameter = torch.zeros(elements)
parameter.grad = torch.zeros(elements)


class Lion:
    def __init__(self, parameters, lr, betas, weight_decay):
        self.parameters, self.lr, self.betas, self.decay = parameters, lr, betas, weight_decay
        self.momentum = [torch.zeros_like(p) for p in parameters]

    def step(self):
        gradients, (beta1, beta2) = [p.grad for p in self.parameters], self.betas
        torch._foreach_mul_(self.parameters, 1 - self.lr * self.decay)
        update = torch._foreach_mul(self.momentum, beta1)
        torch._foreach_add_(update, gradients, alpha=1 - beta1)
        torch._foreach_sign_(update)
        torch._foreach_add_(self.parameters, update, alpha=-self.lr)
        torch._foreach_lerp_(self.momentum, gradients, 1 - beta2)


adam = {"lr": 1e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}
others = {
    "adamw": lambda p: torch.optim.AdamW(p, fused=True, **adam),
    "adam": lambda p: torch.optim.Adam(p, fused=True, **adam),
    "lion": lambda p: Lion(p, **adam),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-4, momentum=0.9, weight_decay=0.1, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-4, weight_decay=0.1, fused=True),
    "adamw_bf16": lambda p: torch.optim.AdamW(p, fused=True, **adam),
}
print(f"PyTorch {torch.__version__}, {elements} elements, {threads} threads, {rounds} rounds; ns an element")
for name, make in others.items():
    other = make([parameter])
    with torch.no_grad():
        other.step()
        ours, theirs = [], []
        for _ in range(rounds):
            said = subprocess.run([program, str(threads), "1", "fp32", name, str(elements)], check=True, capture_output=True, text=True).stdout
            ours.append(float(re.search(r"([0-9.]+) ns an element", said)[1]))
            begin = time.perf_counter()
            other.step()
            theirs.append(1e9 * (time.perf_counter() - begin) / elements)
    print(f"{name:11} {min(ours):.3f}  PyTorch {min(theirs):.3f}  PyTorch / this {min(theirs) / min(ours):.2f}", flush=True)
    del other
