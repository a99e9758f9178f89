#!/usr/bin/python3
"""Writes tests/data/lora: PEFT's adapters for two models of tests/data/hf_models, and the results of training them
with PEFT and PyTorch in fp32, as tests/data/make-huggingface-fixtures.py trains whole models.

Needs PyPI's peft, and what that script needs. Tests read the committed files and need none of them.

  tests/data/make-lora-fixtures.py              all folders
  tests/data/make-lora-fixtures.py --check DIR  PEFT loads each DIR/NAME, which zero3d exported, over the fixture's model
                                             and computes the logits of DIR/NAME/logits.bin. This makes a DIR:
      ZERO3D_KEEP=DIR scripts/launch -n 4 build/bin/train_parity --gtest_filter='*Lora*'

  NAME/start/adapter_config.json, adapter_model.safetensors  written by save_pretrained before the first step
  NAME/trained/...   the same after all steps
  NAME/losses.json   of all steps
  NAME/logits.bin    of the trained model with its adapter; as tests/data/hf_models/NAME/logits.bin
"""
import importlib.util
import json
import pathlib
import shutil
import struct
import sys

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model

HERE = pathlib.Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("fixtures", HERE / "make-huggingface-fixtures.py")
fixtures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fixtures)
OUT = HERE / "lora"
# Adapters on all linear layers; adapters on PEFT's default layers with a trained head and a scale
# by the root of the rank.
CONFIGS = {
    "gpt2": dict(r=4, lora_alpha=6, target_modules="all-linear", fan_in_fan_out=True),
    "llama": dict(r=3, lora_alpha=4, use_rslora=True, modules_to_save=["lm_head"]),
}


def adapted(name):
    model, _ = fixtures.load(fixtures.OUT / name)
    torch.manual_seed(sum(map(ord, name)))
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **CONFIGS[name]))
    for key, parameter in model.named_parameters():
        if "lora_B" in key:  # zeros, which would leave the other factor without a gradient
            parameter.data = torch.randn(parameter.shape) * 0.1
    return model


def save(model, folder):
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = None
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def train(model):
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=fixtures.LR, betas=fixtures.BETAS, eps=fixtures.EPS,
                                  weight_decay=fixtures.DECAY)
    losses = []
    for step in range(fixtures.STEPS):
        tokens, targets = fixtures.batch(step)
        loss = F.cross_entropy(model(tokens).logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, fixtures.CLIP)
        optimizer.step()
        losses.append(loss.item())
    return losses


def write(name):
    torch.set_num_threads(1)
    model = adapted(name)
    shutil.rmtree(OUT / name, ignore_errors=True)
    save(model, OUT / name / "start")
    (OUT / name / "losses.json").write_text(json.dumps({"losses": train(model)}, indent=0) + "\n")
    save(model, OUT / name / "trained")
    raw = (fixtures.OUT / name / "logits.bin").read_bytes()
    count, = struct.unpack("<i", raw[:4])
    tokens = struct.unpack(f"<{count}i", raw[4:4 + 4 * count])
    logits = fixtures.logits_of(model, list(tokens)).flatten().tolist()
    (OUT / name / "logits.bin").write_bytes(raw[:4 + 4 * count] + struct.pack(f"<{len(logits)}f", *logits))


def check(folder):
    raw = (folder / "logits.bin").read_bytes()
    count, = struct.unpack("<i", raw[:4])
    tokens = struct.unpack(f"<{count}i", raw[4:4 + 4 * count])
    base, _ = fixtures.load(fixtures.OUT / folder.name)
    logits = fixtures.logits_of(PeftModel.from_pretrained(base, folder), list(tokens))
    ours = torch.tensor(struct.unpack(f"<{logits.numel()}f", raw[4 + 4 * count:])).view_as(logits)
    far = (logits - ours).abs().max().item()
    print(f"{folder.name}: PEFT's logits and ours differ by {far:.1e}")
    return far < 1e-5 * max(1, logits.abs().max().item())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        sys.exit(not all([check(f) for f in sorted(pathlib.Path(sys.argv[2]).iterdir())]))
    for each in CONFIGS:
        write(each)
