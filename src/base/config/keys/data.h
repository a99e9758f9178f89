/* Keys: token files and the tokenizer. src/base/config/keys.h says what a row is. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_DATA_H
#define ZERO3D_BASE_CONFIG_KEYS_DATA_H

/* clang-format off */
#define Z3D_CONFIG_DATA_KEYS(X) \
    X(data_train, "data.train", \
      LIST, "", "", FILES, KEPT, STAYS, \
      "token file(s) to train on: a path, or a list of paths or {path, weight}") \
    X(data_validation, "data.validation", \
      LIST, "", "", NONE, FREE, STAYS, \
      "held-out token file(s) for validation") \
    X(data_seed, "data.seed", \
      INT, "1234", "[0,9223372036854775807]", DECIDE, KEPT, STAYS, \
      "seed of the order of samples") \
    X(data_samples, "data.samples", \
      ENUM, "windows", "windows|documents", DECIDE, KEPT, STAYS, \
      "form of a sample. windows: seq_length tokens, wherever documents begin; documents: whole " \
      "documents, packed by best fit. For token files of data tokenize and Megatron-LM") \
    X(data_too_long, "data.too_long", \
      ENUM, "truncate", "truncate|drop|split", DECIDE, KEPT, STAYS, \
      "with data.samples documents: documents of more than seq_length tokens. truncate: their " \
      "first tokens are kept; drop: they are left out; split: they become several documents") \
    X(data_tokenizer, "data.tokenizer", \
      ENUM, "bytes", "bytes|gpt2|huggingface", NONE, FREE, STAYS, \
      "how generate makes tokens from text: bytes; GPT-2's files; a tokenizer.json of Hugging " \
      "Face (byte-pair encoding)") \
    X(data_vocab, "data.vocab", \
      STRING, "", "", NONE, FREE, STAYS, \
      "the tokenizer's file or its folder: tokenizer.json; for gpt2 also vocab.json. A relative " \
      "path is looked for beside this file first") \
    X(data_special, "data.special", \
      ENUM, "auto", "auto|none|bos|eos|both", NONE, FREE, STAYS, \
      "tokens that are put around a text (generate, evaluate). bos: the token that begins a " \
      "text; eos: the token that ends a document. auto: before a text the tokens of " \
      "tokenizer.json's post_processor, after a document the token that ends it. A text that has " \
      "them already gets no second ones") \
    X(data_merges, "data.merges", \
      STRING, "", "", NONE, FREE, STAYS, \
      "the gpt2 tokenizer's merges.txt; unset: the one beside vocab.json")
/* clang-format on */

#endif
