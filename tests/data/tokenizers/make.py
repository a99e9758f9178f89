#!/usr/bin/env python3
"""Writes this folder: small tokenizers in the style of each family, and what Hugging Face's `tokenizers`
makes of texts with them. Needs PyPI's tokenizers; tests read the committed files and need nothing.

  texts.txt           a text in each line, as hexadecimal digits of its UTF-8 ("-": an empty one)
  NAME/tokenizer.json trained here on the texts below, with the family's stages, as the library writes it
  NAME/tokenizer_config.json  names the tokens that begin and end a text
  NAME/ids.txt        "VOCABULARY BEGIN END" (BEGIN: what the post-processor puts before a text, -1: nothing), then for
                      each text "DECODED ID ID ...": DECODED is the text that the library makes of the ids without
                      special tokens ("=": the same text; "?": not compared, see decoded())

Names are of the families whose stages they have:
  gpt2      ByteLevel with GPT-2's pattern
  llama3    a pattern, ignore_merges, a token before each text; merges as "left right", as older files have them
  qwen      NFC, a pattern; added tokens that are not special (Qwen3's)
  smollm    digits alone, then GPT-2's words; bytes that it never saw have no token
  llama2    characters, "▁" for spaces by normalizers, bytes for unknown characters; added tokens that are looked for
            in the rewritten text or take the white space beside them
  mistral   the same by the pre-tokenizer Metaspace, which cuts, too; "▁" at the text's beginning only
  gemma     "▁" by a normalizer, a split behind each space, no space in front
  deepseek  several patterns one behind the other; NFKC

  tests/data/tokenizers/make.py
"""
import json
import pathlib
import random

import tokenizers
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

OUT = pathlib.Path(__file__).resolve().parent
MERGES = 260

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

CORPUS = ["The quick brown fox jumps over the lazy dog, and it's the program that they're reading. ",
          "We've seen what I'm told: every rank gathers what it needs; nothing is lost, don't worry! ",
          "for (int i = 0; i < count; i++) {\n    sum += value[i] * 3.14159;\n}\n\n", "#include <stdio.h>\n\t\treturn 0;\n",
          "1234567890 100 2024 42 007 ", "Größe, Maße und Übung: schön groß. ", "naïve café déjà vu, garçon ",
          "Это просто текст, и ещё немного текста. ", "これは日本語の文章です。日本語。", "中文文本,中文。", "한국어 텍스트 ",
          "👍🏽 🎉 👍🏽 🎉 ", "THE END OF THE TEXT. IT'S OVER. "] * 10

ADDED = ["<|endoftext|>", "<|im_start|>", "<think>", "</think>", "<s>", "</s>", "<unk>", "<pad>", "<|user|>"]

TEXTS = [
    "", " ", "  ", "\n", "a", "Hello, world!", " Hello", "  Hello", "   three   spaces   ", "the the  the",
    "I'm you're we've they'll he'd it's can't", "I'M YOU'RE IT'S WE'LL HE'D", "''s 's' '' 'sss 'lll 'r 're've 'ſ",
    "don\u2019t", "x'd've", "tabs\tand\n\nnewlines\r\n  indented\n\t\tmore", "\n\n\nfoo\n \n bar \n", "a  \n\n  b \r\n\r\n c",
    "a\u00a0b\u00a0\u00a0c", "\u3000\u3000x \u3000y", "\u2028line\u2029para\u0085nel", "\u180emongolian\u180e vowel",
    "\u200bzero\u200bwidth \ufeffbom", "\x1c\x1d\x1e\x1f \x0b\x0c x\x7f\x80",
    "12345 3.14 1,000 x2y3 1234567", "½ ² Ⅷ ٣٤ १२ 𝟘𝟙 ①", " ½a²b", "Größe schön naïve café", "e\u0301a\u0308 n\u0303 \u0301x",
    "Å \u212b \ufb01ne \u1e9b\u0323 \u0958 \u1100\u1161\u11a8 \uac00\u11a8", "a\u0328\u0301 a\u0301\u0328 \U0001d15e",
    "Это текст, и ещё.", "日本語の文章です。カタカナ中文", "한국어 텍스트", "العربية: نص", "ไทย ภาษา", "हिन्दी पाठ",
    "👍🏽🎉 👩‍👩‍👧‍👦 family 🇩🇪", "x👍y 1🎉2", "!!! ??? ... -- => <= #include <a.h> /* c */", "price: $5.00 (10%) [a]{b}",
    "a<|endoftext|>b", "<|endoftext|><|endoftext|> x <|endoftext|>", "<|endoftext", "  <|endoftext|>  tail",
    "<|im_start|>user\nhi<|im_start|> there", "<think> so </think>\nyes", "a <s>b</s> <unk>", " <s> x", "x<pad>y <pad> z",
    "<|user|>\n\nhello <|user|>  \t there", "▁ ▁▁a b▁c", "<0x41> <0x0A>", "a" * 40, " " * 40, "ab" * 30, "é" * 20, "日" * 20,
    "_under_score_ __init__", "trailing space ", "trailing newline\n", "µm ŉ ǅ ʰ ª º", "\ue000\uffff\U0010ffff\U000f0000",
    " brownfox jumpsover thequick", "ВСЕ Это", "THE end OF",
]

ALPHABETS = ["abcdefghijklmnopqrstuvwxyz", "ABCDE'sdtmlr", "0123456789", "      \n\n\t\r", "!?.,:;-_(){}[]<>|/\\\"'#$%&*+=@^`~",
             "äöüßéèñçøåÀÉ", "абвгдежЯ", "日本語中文のはカ", "한국어텍", "👍🏽🎉👩‍🇩🇪", "\u0301\u0308\u0323\u0327", "\u00a0\u3000\u2003\u0085",
             "½²Ⅷ٣१𝟘", "ﬁℵΩ㎏", "▁", "\x01\x7f\u200b\ufeff"]


def random_texts(number):
    chance = random.Random(16)
    for _ in range(number):
        text = ""
        for _ in range(chance.randint(1, 6)):
            alphabet = chance.choice(ALPHABETS)
            text += "".join(chance.choice(alphabet) for _ in range(chance.randint(1, 6)))
            if chance.random() < 0.1:
                text += chance.choice(ADDED)
            if chance.random() < 0.3:
                text += chance.choice(["the", " the", "ing ", "text ", "'re", "что"])
        yield text


def part(kind, **more):
    return {"type": kind, **more}


def sequence(name, *parts):
    return part("Sequence", **{name: list(parts)})


def split(pattern, behavior="Isolated", kind="Regex"):
    return part("Split", pattern={kind: pattern}, behavior=behavior, invert=False)


def added(number, content, **more):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True, **more}


BYTES = part("ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
WORDS = {**BYTES, "use_regex": True}
REPLACE = part("Replace", pattern={"String": " "}, content="▁")
BACK = part("Replace", pattern={"String": "▁"}, content=" ")
STRIP = part("Strip", content=" ", start=1, stop=0)


def train(pre_tokenizer, alphabet, size=256 + MERGES):
    """Vocabulary without added tokens, and merges."""
    trained = Tokenizer(BPE())
    trained.pre_tokenizer = pre_tokenizer
    trained.train_from_iterator(CORPUS, BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), model["merges"]


def begin_with(token, number):
    return part("TemplateProcessing", single=[{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                pair=[{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                special_tokens={token: {"id": token, "ids": [number], "tokens": [token]}})


def byte_level(tokens, trained, normalizer=None, stages=WORDS, ignore_merges=False, begin=None):
    """tokens: added ones, behind the vocabulary."""
    names, merges = trained
    count = len(names)
    tokens = [added(count + i, name, **more) for i, (name, more) in enumerate(tokens)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer,
            "pre_tokenizer": stages,
            "post_processor": sequence("processors", BYTES, begin_with(begin, count)) if begin else BYTES,
            "decoder": BYTES,
            "model": part("BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                          fuse_unk=False, byte_fallback=False, ignore_merges=ignore_merges,
                          vocab={name: i for i, name in enumerate(names)}, merges=merges)}


def characters(tokens, trained, decoder, normalizer=None, stages=None, post=None):
    """tokens: added ones, the first three of which begin the vocabulary, as Llama 2's."""
    names, merges = trained
    names = [name for name, _ in tokens[:3]] + [f"<0x{b:02X}>" for b in range(256)] + names
    vocabulary = {name: i for i, name in enumerate(names)}
    tokens = [added(vocabulary.setdefault(name, len(vocabulary)), name, **more) for name, more in tokens]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer,
            "pre_tokenizer": stages, "post_processor": post, "decoder": decoder,
            "model": part("BPE", dropout=None, unk_token="<unk>", continuing_subword_prefix=None, end_of_word_suffix=None,
                          fuse_unk=True, byte_fallback=True, ignore_merges=False, vocab=dict(list(vocabulary.items())[:len(names)]),
                          merges=merges)}


def styles():
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    gpt2 = train(pre_tokenizers.ByteLevel(add_prefix_space=False), alphabet)
    pattern = train(pre_tokenizers.Sequence([pre_tokenizers.Split(tokenizers.Regex(LLAMA3), "isolated"),
                                             pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), alphabet)
    unseen = {chr(byte) for byte in range(0xef, 0x100) if byte != 0xf0}
    seen = train(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                          pre_tokenizers.ByteLevel(add_prefix_space=False)]),
                 [c for c in alphabet if c not in unseen])
    marked = train(pre_tokenizers.Metaspace(prepend_scheme="first"), [], size=2 * MERGES)
    plain = {}
    yield "gpt2", byte_level([("<|endoftext|>", plain)], gpt2), "<|endoftext|>", False
    # Words that merges do not make: only ignore_merges gives them.
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = [to_bytes.pre_tokenize_str(word)[0][0] for word in (" hello", "Hello", "family", " IT", "YOU", "日本")]
    llama3 = byte_level([("<|begin_of_text|>", plain), ("<|endoftext|>", plain), ("<|im_start|>", plain)],
                        (pattern[0] + [word for word in words if word not in pattern[0]], pattern[1]),
                        stages=sequence("pretokenizers", split(LLAMA3), BYTES), ignore_merges=True, begin="<|begin_of_text|>")
    yield "llama3", llama3, "<|endoftext|>", True
    yield ("qwen", byte_level([("<|endoftext|>", plain), ("<|im_start|>", plain), ("<think>", {"special": False}),
                               ("</think>", {"special": False})], pattern, normalizer=part("NFC"),
                              stages=sequence("pretokenizers", split(QWEN), BYTES)), "<|im_start|>", False)
    yield ("smollm", byte_level([("<|endoftext|>", plain), ("<|im_start|>", plain)], seen,
                                stages=sequence("pretokenizers", part("Digits", individual_digits=True), WORDS)),
           "<|endoftext|>", False)
    first = [("<unk>", plain), ("<s>", plain), ("</s>", {"normalized": True})]
    yield ("llama2", characters(first + [("<pad>", {"lstrip": True}), ("<|user|>", {"rstrip": True}),
                                         ("<think>", {"normalized": True, "special": False})], marked,
                                sequence("decoders", BACK, part("ByteFallback"), part("Fuse"), STRIP),
                                normalizer=sequence("normalizers", part("Prepend", prepend="▁"), REPLACE),
                                post=begin_with("<s>", 1)), "</s>", False)
    yield ("mistral", characters([("<unk>", plain), ("<s>", plain), ("</s>", plain)], marked,
                                 sequence("decoders", BACK, part("ByteFallback"), part("Fuse"), STRIP),
                                 stages=part("Metaspace", replacement="▁", prepend_scheme="first", split=True),
                                 post=begin_with("<s>", 1)), "</s>", False)
    yield ("gemma", characters([("<pad>", plain), ("<s>", plain), ("<unk>", plain)], marked,
                               sequence("decoders", BACK, part("ByteFallback"), part("Fuse")), normalizer=REPLACE,
                               stages=split(" ", "MergedWithPrevious", "String"), post=begin_with("<s>", 1)), "<pad>", False)
    yield ("deepseek", byte_level([("<|endoftext|>", plain), ("<|user|>", {"lstrip": True, "rstrip": True})], pattern,
                                  normalizer=part("NFKC"),
                                  stages=sequence("pretokenizers", split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK),
                                                  BYTES)), "<|endoftext|>", False)


def old_merges(text):
    """As `tokenizers` before 0.20 wrote them."""
    whole = json.loads(text)
    whole["model"]["merges"] = [" ".join(pair) for pair in whole["model"]["merges"]]
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


def decoded(tokenizer, ids, text):
    back = tokenizer.decode(ids)
    tokens = tokenizer.get_added_tokens_decoder()
    # Version 0.23 gives tokens that it finds in rewritten text the text "▁</s>"; version 0.19 does not.
    changed = any(i in tokens and tokenizer.id_to_token(i) != tokens[i].content for i in ids)
    return "?" if changed or "\ufffd" in back else "=" if back == text else back.encode().hex() or "-"


def write(name, whole, end, old, texts):
    folder = OUT / name
    folder.mkdir(exist_ok=True)
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    text = tokenizer.to_str(pretty=False)
    (folder / "tokenizer.json").write_text(old_merges(text) if old else text)
    assert not old or Tokenizer.from_str(old_merges(text)).to_str() == tokenizer.to_str()
    with_begin, without = tokenizer.encode("a").ids, tokenizer.encode("a", add_special_tokens=False).ids
    begin = with_begin[0] if len(with_begin) > len(without) else -1
    config = {"eos_token": end}
    if begin >= 0:
        config["bos_token"] = {"content": tokenizer.id_to_token(begin), "lstrip": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")
    with open(folder / "ids.txt", "w") as out:
        print(max(tokenizer.get_vocab().values()) + 1, begin, tokenizer.token_to_id(end), file=out)
        for text in texts:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            print(decoded(tokenizer, ids, text), *ids, file=out)


def main():
    texts = TEXTS + list(random_texts(200))
    (OUT / "texts.txt").write_text("".join((text.encode().hex() or "-") + "\n" for text in texts))
    for style in styles():
        write(*style, texts)


if __name__ == "__main__":
    main()
