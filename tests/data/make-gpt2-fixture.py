#!/usr/bin/python3
"""Writes tests/data/gpt2_tiny: a tiny GPT-2 in Hugging Face's format, and other programs' results with it.

Needs PyPI's tokenizers, tiktoken, regex, transformers, safetensors, xxhash, and PyTorch. Tests read
the committed files and need none of them.

  tests/data/make-gpt2-fixture.py            all files from scratch (training uses this tree's texts, so all
                                          files change with them)
  tests/data/make-gpt2-fixture.py --check F  loads the folder F, which zero3d exported from the fixture,
                                          into transformers and compares names, logits and tokens

  vocab.json, merges.txt        byte-level BPE trained by `tokenizers` on this tree's text, ids in GPT-2's
                                order: bytes, merges, <|endoftext|>
  encodings.txt                 lines "HEX ID ID ...": a text's bytes and its tokens. Tokens of valid
                                UTF-8 come from `tokenizers`, those of all texts from `regex` (words) and
                                `tiktoken` (merges); the two must agree. The pattern sees bytes that are no
                                UTF-8 as lone surrogates.
  words.txt                     lines "HEX HEX ...": the words of the same texts, by `regex`
  config.json, model.safetensors  written by transformers after a short training
  text.txt                      the training text
  logits.bin                    int32 count, int32[count] tokens, float32[count, vocabulary] logits, fp32
  greedy.txt                    a prompt and transformers' greedy continuation of it
  llmc.txt                      XXH3-128 of the same weights in llm.c's format, fp32 and bf16
"""
import json
import pathlib
import struct
import sys

import regex
import tiktoken
import tokenizers
import torch
import xxhash
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

TREE = pathlib.Path(__file__).resolve().parents[2]
OUT = TREE / "tests/data/gpt2_tiny"
MERGES, END = 300, "<|endoftext|>"
PATTERN = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
PROMPT, TOKENS, STEPS = "Every rank", 18, 1200

# These texts give merges across characters of several bytes.
INTEROP = ["Größe, Maße und Übung: schön groß. ", "Это просто текст, и ещё немного текста. ",
           "これは日本語の文章です。日本語。", "naïve café déjà vu ", "👍🏽 🎉 👍🏽 🎉 "] * 20

TEXTS = [
    "", " ", "  ", "\n", "a", "Hello, world!", " Hello", "  Hello", "   three   spaces   ",
    "I'm you're we've they'll he'd it's can't", "I'M YOU'RE IT'S", "''s 's' '' 'sss 'lll 'r 're've",
    "don\u2019t", "x'd've", "tabs\tand\n\nnewlines\r\n  indented\n\t\tmore", "\n\n\nfoo\n \n bar \n",
    "a\u00a0b\u00a0\u00a0c", "a \u00a0b", "\u3000\u3000x \u3000y", "\u2028line\u2029para\u0085nel",
    "a \u0085b !\u0085! \u2028\u2028x \u2029!",
    "\u200bzero\u200bwidth \ufeffbom", "\x1c\x1d\x1e\x1f \x0b\x0c x\x00y\x7f\x80",
    "12345 3.14 1,000 x2y3", "½ ² Ⅷ ٣٤ १२ 𝟘𝟙 ①", " ½a²b", "Größe schön naïve café", "e\u0301a\u0308 n\u0303",
    "Это текст, и ещё.", "日本語の文章です。", "한국어 텍스트", "العربية: نص", "ไทย ภาษา", "हिन्दी पाठ",
    "👍🏽🎉 👩‍👩‍👧‍👦 family 🇩🇪", "x👍y 1🎉2", "!!! ??? ... -- => <= #include <a.h> /* c */",
    "price: $5.00 (10%) [a]{b}", END, "a" + END + "b", END * 2 + " x " + END, "<|endoftext", "<|endoftext|",
    "  " + END + "  tail", "<|endoftext|>>", "a" * 300, " " * 300, "ab" * 500, "é" * 100, "日" * 70 + " ",
    "_under_score_ __init__", "trailing space ", "trailing newline\n", "µm ŉ ǅ ʰ ª º", "\ue000\uffff\U0010ffff",
    "the quick brown fox jumps over the lazy dog " * 3,
    " lowfigge estodella rogramerame roupicmodel derndist estis-|-| estrametramet",  # merges that take others' place
]
BROKEN = [
    b"\xff", b"a\xffb", b" \xff\xfe x", b"\xc3", b"caf\xc3", b"\xc3\x28", b"\xe2\x82", b"\xe2\x82 x",
    b"\xf0\x9f\x91", b"\xf0\x9f\x91 \xf0\x9f\x91\x8d", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80\xed\xb0\x80",
    b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\x80\x80abc\x80 \x80", b"12\xff34", b"  \xff", b"\xff's", b"'\xffs",
    b"\xc2\x85\xc2", b"\xe3\x80\x80\xe3\x80", bytes(range(256)), bytes(reversed(range(256))),
]


def characters_of_bytes():
    """GPT-2's alphabet: printable bytes as themselves, the others from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def corpus():
    names = sorted([*TREE.glob("docs/*.md"), *TREE.glob("*.md"), *TREE.glob("zero/*.h")])
    return [name.read_text() for name in names] + INTEROP


def train_vocabulary():
    trained = tokenizers.Tokenizer(BPE())
    trained.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trained.train_from_iterator(corpus(), BpeTrainer(
        vocab_size=256 + MERGES, initial_alphabet=ByteLevel.alphabet(), show_progress=False))
    merges = json.loads(trained.to_str())["model"]["merges"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in merges][:MERGES]
    tokens = list(characters_of_bytes().values()) + [m.replace(" ", "") for m in merges] + [END]
    assert len(tokens) == len(set(tokens))
    vocabulary = {token: i for i, token in enumerate(tokens)}
    (OUT / "vocab.json").write_text(json.dumps(vocabulary))
    (OUT / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")


class Reference:
    """Two tokenizers that are not ours."""

    def __init__(self):
        self.vocabulary = json.loads((OUT / "vocab.json").read_text())
        self.fast = tokenizers.Tokenizer(BPE.from_file(str(OUT / "vocab.json"), str(OUT / "merges.txt")))
        self.fast.pre_tokenizer = ByteLevel(add_prefix_space=False)
        self.fast.decoder = tokenizers.decoders.ByteLevel()
        self.fast.add_special_tokens([END])
        byte_of = {c: b for b, c in characters_of_bytes().items()}
        self.end = self.vocabulary[END]
        ranks = {bytes(byte_of[c] for c in t): i for t, i in self.vocabulary.items() if t != END}
        self.merges = tiktoken.Encoding("tiny", pat_str=PATTERN, mergeable_ranks=ranks,
                                        special_tokens={END: self.end})

    def encode(self, data):
        ids = []
        for i, text in enumerate(data.split(END.encode())):
            ids += [self.end] if i else []
            for word in regex.findall(PATTERN, text.decode("utf-8", "surrogateescape")):
                ids += self.merges._encode_single_piece(word.encode("utf-8", "surrogateescape"))
        try:
            assert self.fast.encode(data.decode()).ids == ids, data
        except UnicodeDecodeError:
            pass
        return ids


def write_encodings(reference):
    with open(OUT / "encodings.txt", "w") as out:
        for data in [t.encode() for t in TEXTS] + BROKEN:
            print(data.hex() or "-", *reference.encode(data), file=out)


def write_words():
    with open(OUT / "words.txt", "w") as out:
        for data in [t.encode() for t in TEXTS] + BROKEN:
            words = regex.findall(PATTERN, data.decode("utf-8", "surrogateescape"))
            print(*[w.encode("utf-8", "surrogateescape").hex() for w in words], file=out)


def train_model(reference):
    torch.manual_seed(20240601)
    size = len(reference.vocabulary)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=size, n_positions=32, n_embd=32, n_layer=2, n_head=4,
                                       bos_token_id=reference.end, eos_token_id=reference.end))
    text = (TREE / "docs/architecture.md").read_text()[:6000]
    (OUT / "text.txt").write_text(text)
    ids = torch.tensor([reference.end, *reference.encode(text.encode())])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model.train()
    for step in range(STEPS):
        starts = torch.randint(len(ids) - 33, (16,))
        rows = torch.stack([ids[s:s + 32] for s in starts])
        loss = model(rows, labels=rows).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * (1 - step / STEPS)
    print(f"loss after training: {loss.item():.3f}")
    model.eval()
    model.save_pretrained(OUT, safe_serialization=True)
    (OUT / "generation_config.json").unlink()
    return model


def write_logits(model, ids):
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    with open(OUT / "logits.bin", "wb") as out:
        out.write(struct.pack(f"<{1 + len(ids)}i", len(ids), *ids))
        out.write(logits.numpy().astype("<f4").tobytes())


def write_greedy(model, reference):
    ids = reference.encode(PROMPT.encode())
    with torch.no_grad():
        for _ in range(TOKENS):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    assert len(ids) <= 32 and reference.end not in ids
    (OUT / "greedy.txt").write_text(reference.fast.decode(ids) + "\n")


def llmc(model, version):
    """llm.c's checkpoint: a header of 256 int32, then the tensors, each of all layers at once, matrices
    [out, in], the vocabulary padded with zeros to a multiple of 128."""
    config, w = model.config, model.state_dict()
    padded = -(-config.vocab_size // 128) * 128
    header = [20240326, version, config.n_positions, config.vocab_size, config.n_layer, config.n_head,
              config.n_embd, padded] + [0] * 248
    table = torch.zeros(padded, config.n_embd)
    table[:config.vocab_size] = w["transformer.wte.weight"]
    tensors = [table, w["transformer.wpe.weight"]]
    for name in ("ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight",
                 "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias",
                 "mlp.c_proj.weight", "mlp.c_proj.bias"):
        for layer in range(config.n_layer):
            value = w[f"transformer.h.{layer}.{name}"]
            tensors.append(value.t().contiguous() if value.dim() == 2 else value)
    tensors += [w["transformer.ln_f.weight"], w["transformer.ln_f.bias"]]
    data = struct.pack("<256i", *header)
    for t in tensors:
        t = t.detach().float()
        data += (t if version == 3 else t.bfloat16().view(torch.int16)).numpy().tobytes()
    return xxhash.xxh3_128_hexdigest(data)


def check(folder):
    model, info = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    data = (OUT / "logits.bin").read_bytes()
    count = struct.unpack_from("<i", data)[0]
    ids = list(struct.unpack_from(f"<{count}i", data, 4))
    wanted = torch.frombuffer(bytearray(data[4 + 4 * count:]), dtype=torch.float32).view(count, -1)
    with torch.no_grad():
        worst = float((model.eval()(torch.tensor([ids])).logits[0] - wanted).abs().max())
    print(f"{folder}: loaded by transformers, logits differ by {worst:.3g} at most")
    assert worst < 1e-4
    check_tokenizer(folder)


def check_tokenizer(folder):
    tokenizer, texts = AutoTokenizer.from_pretrained(folder), 0
    for line in (OUT / "encodings.txt").read_text().splitlines():
        data, *ids = line.split()
        try:
            text = "" if data == "-" else bytes.fromhex(data).decode()
        except UnicodeDecodeError:
            continue
        ids = [int(i) for i in ids]
        assert tokenizer.encode(text) == ids and tokenizer.decode(ids) == text, text
        texts += 1
    config = GPT2Config.from_pretrained(folder)
    end = tokenizer.convert_tokens_to_ids(END)
    assert config.bos_token_id == config.eos_token_id == tokenizer.eos_token_id == end
    print(f"{folder}: its tokenizer gives the tokens of {texts} texts, and end token {end}")


def main():
    torch.set_num_threads(1)
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        return check(sys.argv[2])
    OUT.mkdir(parents=True, exist_ok=True)
    train_vocabulary()
    reference = Reference()
    write_encodings(reference)
    write_words()
    model = train_model(reference)
    text = "Every rank gathers what it needs, it's the same program — größer für alle 👍."
    write_logits(model, [reference.end, *reference.encode(text.encode())][:32])
    write_greedy(model, reference)
    (OUT / "llmc.txt").write_text(f"{llmc(model, 3)}\n{llmc(model, 5)}\n")


if __name__ == "__main__":
    main()
