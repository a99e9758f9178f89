#!/usr/bin/env python3
"""Writes tokens.txt: what transformers' apply_chat_template makes of the conversations here with the templates of
models. Needs transformers and a folder of templates, which are not in this repository; the test reads the committed
file and needs neither.

  conversations.jsonl   the conversations, {"messages": [...]} in each line
  tokens.txt            "KIND TOKENIZER ADDED ..." (a kind of chat_kinds.c; a folder of ../tokenizers, which gets
                        those special tokens behind its own, none of them "normalized"), then for each conversation its tokens,
                        with "*" behind those that are trained, or "-" where the template raises an error

Trained is what the assistant says, from behind the prompt that generation has, to the token that ends its turn.

  tests/data/chat/make.py TEMPLATES   reads TEMPLATES/NAME.jinja for the names below
"""
import json
import pathlib
import sys
import tempfile

from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).resolve().parent
CHATML = ["<|im_end|>"]
LLAMA3 = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
GEMMA = ["<start_of_turn>", "<end_of_turn>"]

# The kind, its template, the tokenizer's folder, added tokens, what ends a turn, what comes before an answer although
# generation has no prompt.
FAMILIES = [("chatml", "chatml", "qwen", CHATML, "<|im_end|>", ""), ("chatml", "qwen3_instruct_2507", "qwen", CHATML, "<|im_end|>", ""),
            ("chatml", "chatml", "smollm", CHATML, "<|im_end|>", ""),
            ("qwen2.5", "qwen2_5", "qwen", CHATML, "<|im_end|>", ""), ("qwen3", "qwen3", "qwen", CHATML, "<|im_end|>", ""),
            ("llama3", "llama3", "llama3", LLAMA3, "<|eot_id|>", ""), ("llama3.1", "llama3_1", "llama3", LLAMA3, "<|eot_id|>", ""),
            ("mistral-v0.1", "mistral_v01", "llama2", [], "</s>", ""), ("mixtral", "mixtral", "llama2", [], "</s>", ""),
            ("mistral-v1", "mistral_v1", "llama2", [], "</s>", " "), ("mistral-v1", "mistral_v1", "mistral", [], "</s>", " "),
            ("mistral-v3", "mistral_v3", "mistral", ["[INST]", "[/INST]"], "</s>", " "),
            ("mistral-nemo", "mistral_nemo", "gemma", ["[INST]", "[/INST]"], "<pad>", ""),
            ("gemma", "gemma", "gemma", GEMMA, "<end_of_turn>", ""), ("gemma3", "gemma3", "gemma", GEMMA, "<end_of_turn>", "")]


def tokenizer_of(folder, added):
    source = HERE.parent / "tokenizers" / folder
    config = json.loads((source / "tokenizer_config.json").read_text())
    whole = json.loads((source / "tokenizer.json").read_text())
    size = int((source / "ids.txt").read_text().split()[0])
    for token in whole["added_tokens"]:  # as today's files have it
        token["normalized"] &= not token["special"]
    whole["added_tokens"] += [{"id": size + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                               "normalized": False, "special": True} for i, text in enumerate(added)]
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "tokenizer.json"
        path.write_text(json.dumps(whole))
        names = {key: value["content"] if isinstance(value, dict) else value for key, value in config.items() if key.endswith("_token")}
        return PreTrainedTokenizerFast(tokenizer_file=str(path), **names)


def spans(tokenizer, messages, text, end, lead):
    """Where the assistant's turns are in the text."""
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = tokenizer.apply_chat_template(messages[:i], tokenize=False, add_generation_prompt=True)
        assert text.startswith(prompt + lead), (text, prompt)
        begin = len(prompt + lead)
        last = message["content"].split("</think>")[-1].strip()  # which may have the end's text, too
        yield begin, text.index(end, text.index(last, begin) + len(last)) + len(end)


def line_of(tokenizer, messages, end, lead):
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    except Exception:
        return "-"
    ids = tokenizer.apply_chat_template(messages, return_dict=True)["input_ids"]
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    assert encoded["input_ids"] == ids
    trained = list(spans(tokenizer, messages, text, end, lead))
    marks = [any(a < stop and b > start for start, stop in trained) for a, b in encoded["offset_mapping"]]
    return " ".join(f"{token}{'*' if mark else ''}" for token, mark in zip(ids, marks))


def main():
    templates = pathlib.Path(sys.argv[1])
    conversations = [json.loads(line)["messages"] for line in (HERE / "conversations.jsonl").read_text().split("\n") if line]
    with open(HERE / "tokens.txt", "w") as out:
        for kind, name, folder, added, end, lead in FAMILIES:
            tokenizer = tokenizer_of(folder, added)
            tokenizer.chat_template = (templates / f"{name}.jinja").read_text()
            print(kind, folder, *added, file=out)
            for messages in conversations:
                lost = name in ("mistral_v3", "mistral_nemo") and messages[0]["role"] == "system"  # silently left out
                print("-" if lost else line_of(tokenizer, messages, end, lead), file=out)


main()
