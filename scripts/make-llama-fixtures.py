#!/usr/bin/python3
"""Writes tests/data/hf_models: tiny random models of Llama's relatives as transformers saves them, and
their logits by PyTorch.

Needs PyPI's transformers and PyTorch. Tests read the committed files and need neither.

  scripts/make-llama-fixtures.py              all folders
  scripts/make-llama-fixtures.py --check DIR  for each folder DIR/NAME, which zero3d exported from the
                                              fixture NAME: transformers loads it as the same kind of model
                                              and it computes the same logits

  NAME/config.json, NAME/model*.safetensors*  as save_pretrained writes them
  NAME/logits.bin   int32 count, int32[count] tokens, float32[count, vocabulary] logits, fp32
"""
import pathlib
import struct
import sys

import torch
from transformers import (AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config)

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/hf_models"
COUNT = 24
SIZES = dict(vocab_size=61, hidden_size=20, num_hidden_layers=2, max_position_embeddings=32,
             bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=8)
YARN = dict(rope_type="yarn", rope_theta=300.0, factor=4.0, original_max_position_embeddings=8)

# name: configuration, type, and how large a file may be
MODELS = {
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
        scale, shift = (0.2, 1.0) if "norm" in name else (0.3, 0.0)
        parameter.data = torch.randn(parameter.shape) * scale + shift
    return model


def logits_of(model, tokens):
    with torch.no_grad():
        return model.eval()(torch.tensor([tokens])).logits[0]


def load(folder):
    """In fp32, whatever the file has: angles, too, which .float() would not give back."""
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32,
                                                output_loading_info=True)


def write(name):
    config, dtype, shard = MODELS[name]
    torch.manual_seed(sum(map(ord, name)))
    model = random_model(config).to(dtype)
    model.save_pretrained(OUT / name, max_shard_size=shard)
    (OUT / name / "generation_config.json").unlink(missing_ok=True)
    tokens = torch.randint(SIZES["vocab_size"], (COUNT,)).tolist()
    with open(OUT / name / "logits.bin", "wb") as out:
        out.write(struct.pack(f"<{1 + COUNT}i", COUNT, *tokens))
        out.write(logits_of(load(OUT / name)[0], tokens).numpy().astype("<f4").tobytes())


def check(name, folder):
    data = (OUT / name / "logits.bin").read_bytes()
    tokens = list(struct.unpack_from(f"<{COUNT}i", data, 4))
    wanted = torch.frombuffer(bytearray(data), dtype=torch.float32, offset=4 + 4 * COUNT).view(COUNT, -1)
    model, info = load(folder / name)
    worst = (logits_of(model, tokens) - wanted).abs().max().item()
    print(f"{name}: {type(model).__name__}, logits differ by {worst:.2g} at most")
    assert model.config.model_type == MODELS[name][0].model_type
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    assert worst < 1e-5


if __name__ == "__main__":
    for each in MODELS:
        check(each, pathlib.Path(sys.argv[2])) if sys.argv[1:2] == ["--check"] else write(each)
