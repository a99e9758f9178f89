/* zero3d data tokenize */
#include <string.h>

#include "src/cli/cli.h"
#include "src/train/data.h"

static const char help[] =
    "usage: zero3d data tokenize INPUT... --output FILE.bin [--validation FILE.bin] [options]\n"
    "\n"
    "Turns text into a token file that `zero3d train` reads (llm.c's .bin format). INPUT are files "
    "and\n"
    "folders; folders are walked. What is no text, empty, or there already is left out.\n"
    "\n"
    "  --output FILE       tokens to train on\n"
    "  --validation FILE   tokens of documents held out: whole documents, never in both\n"
    "  --fraction F        share of the documents held out (default 0.1)\n"
    "  --split HOW         hash: by the documents' content (default); tail: the last ones read\n"
    "  --limit BYTES       stop after so much text: 100MB, 2GiB\n"
    "  --tokenizer HOW     bytes (default), or gpt2: GPT-2's byte-level BPE\n"
    "  --vocab PATH        for gpt2: vocab.json, or the folder with vocab.json and merges.txt\n"
    "  --merges FILE       for gpt2: merges.txt, where it is not beside vocab.json\n"
    "\n"
    "With bytes, tokens are bytes (0-255) and 256 at the end of a document: model.vocab_size 257.\n"
    "With gpt2, <|endoftext|> in a text is the token that ends a document, as with Hugging Face.\n"
    "\n"
    "example: zero3d data tokenize ~/books --output data/train.bin --validation data/val.bin\n";

static z3d_status read_options(const char *fraction, const char *split, const char *limit,
                               z3d_tokenize_options *options) {
    if (!options->output_train)
        return Z3D_ERROR(Z3D_ERR_USAGE, "where to? --output FILE.bin is missing");
    if (fraction && !options->output_validation)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--fraction needs --validation FILE.bin");
    if (split && !options->output_validation)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--split needs --validation FILE.bin");
    if (options->output_validation) options->validation_fraction = 0.1;
    if (fraction && z3d_parse_float(fraction, &options->validation_fraction) != Z3D_OK)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--fraction %s: a number between 0 and 1 is wanted",
                         fraction);
    if (limit &&
        (z3d_parse_bytes(limit, &options->limit_bytes) != Z3D_OK || options->limit_bytes < 1))
        return Z3D_ERROR(Z3D_ERR_USAGE, "--limit %s: a size such as 100MB or 2GiB is wanted",
                         limit);
    options->split = Z3D_SPLIT_HASH;
    if (split && strcmp(split, "tail") == 0)
        options->split = Z3D_SPLIT_TAIL;
    else if (split && strcmp(split, "hash") != 0)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--split %s: hash or tail is wanted", split);
    return Z3D_OK;
}

static z3d_status make_tokenizer(const char *name, const char *vocab, const char *merges,
                                 z3d_tokenizer **out) {
    bool gpt2 = name && strcmp(name, "gpt2") == 0;
    *out = NULL;
    if (name && !gpt2 && strcmp(name, "bytes") != 0)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--tokenizer %s: bytes or gpt2 is wanted", name);
    if (!gpt2 && (vocab || merges))
        return Z3D_ERROR(Z3D_ERR_USAGE, "--%s needs --tokenizer gpt2", vocab ? "vocab" : "merges");
    if (gpt2 && !vocab)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--tokenizer gpt2 needs --vocab: vocab.json, or the folder "
                                        "with vocab.json and merges.txt");
    return z3d_tokenizer_create(gpt2 ? Z3D_TOKENIZER_GPT2 : Z3D_TOKENIZER_BYTES, vocab, merges,
                                out);
}

static z3d_status tokenize(int argc, char **argv, z3d_string *text) {
    const char *fraction = NULL, *split = NULL, *limit = NULL;
    const char *tokenizer = NULL, *vocab = NULL, *merges = NULL;
    z3d_tokenize_options tokenize = {0};
    z3d_tokenize_result result;
    const cli_option options[] = {{"output", &tokenize.output_train, NULL},
                                  {"validation", &tokenize.output_validation, NULL},
                                  {"fraction", &fraction, NULL},
                                  {"split", &split, NULL},
                                  {"limit", &limit, NULL},
                                  {"tokenizer", &tokenizer, NULL},
                                  {"vocab", &vocab, NULL},
                                  {"merges", &merges, NULL},
                                  {NULL, NULL, NULL}};
    int count;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    if (count < 1 || strcmp(argv[1], "tokenize") != 0)
        return Z3D_ERROR(Z3D_ERR_USAGE, "what to do with data? there is: zero3d data tokenize");
    if (count < 2) return Z3D_ERROR(Z3D_ERR_USAGE, "which text? files or folders are wanted");
    Z3D_TRY(read_options(fraction, split, limit, &tokenize));
    tokenize.inputs = (const char *const *)(argv + 2);
    tokenize.count = count - 1;
    Z3D_TRY(make_tokenizer(tokenizer, vocab, merges, &tokenize.tokenizer));
    z3d_status status = z3d_data_tokenize(&tokenize, &result);
    if (status == Z3D_OK) z3d_tokenize_summary(&tokenize, &result, text);
    z3d_tokenizer_destroy(tokenize.tokenizer);
    return status;
}

static int run(int argc, char **argv) {
    z3d_string text = {0};
    z3d_status status = tokenize(argc, argv, &text);
    int code = status == Z3D_OK ? cli_print(&text) : cli_finish(status, "data");
    z3d_string_free(&text);
    return code;
}

const cli_command cli_data = {"data", "turn text into token files", help, run};
