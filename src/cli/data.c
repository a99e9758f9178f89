/* zero3d data tokenize */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/cli/cli.h"
#include "src/train/data.h"

static const char help[] =
    "usage: zero3d data tokenize INPUT... --output FILE.bin [--validation FILE.bin] [options]\n"
    "\n"
    "Turns text into a token file for `zero3d train`. INPUT are files and folders, with all files\n"
    "below them, also packed (.gz, .zst). Empty files, duplicates and, in folders, files that are\n"
    "not UTF-8 text are left out. Each JSON object is a document: in .jsonl and .ndjson files, in\n"
    ".json files that you name or that have lines or an array of objects, and in other files that\n"
    "you name and that begin like JSON. An output is no input; it replaces only token files.\n"
    "\n"
    "  --output FILE       file of the tokens to train on\n"
    "  --validation FILE   file of the tokens of held-out documents: whole files and JSON lines;\n"
    "                      if there are too few files, the end of one file\n"
    "  --fraction F        share of the documents that is held out (default 0.1)\n"
    "  --split HOW         hash: by the documents' content (default); tail: the last ones read\n"
    "  --limit BYTES       stop after this much text: 100MB, 2GiB\n"
    "  --format HOW        the format of JSON objects: text, messages, prompt-completion, alpaca\n"
    "                      or sharegpt; auto (default): found by the keys of the first object\n"
    "  --json-key KEY      the key of their text; data.text: the key text in the object data\n"
    "  --loss-on WHAT      the tokens to train. completions: those of the completion (default) or\n"
    "                      of the last answer of a conversation; assistant: of all its answers\n"
    "                      (default for conversations); all\n"
    "  --chat-template T   how conversations are written: auto (default): the template in the\n"
    "                      tokenizer's folder; or chatml, llama3, ... (docs/fine-tuning.md)\n"
    "  --on-error HOW      wrong objects: stop (default); or skip: leave them out, count them,\n"
    "                      and name the first ones\n"
    "  --tokenizer HOW     the folder of a model, imported or of Hugging Face: its tokenizer;\n"
    "                      bytes (default): ids 0-255, and 256 ends a document; gpt2: GPT-2's\n"
    "                      byte-level BPE; huggingface: as a tokenizer.json says (BPE)\n"
    "  --vocab PATH        for gpt2 and huggingface: tokenizer.json, for gpt2 also vocab.json; or\n"
    "                      a folder with it. The files beside it say which tokens begin and end\n"
    "                      a document\n"
    "  --merges FILE       for gpt2: merges.txt, if it is not beside vocab.json\n"
    "  --special HOW       the tokens around a document. auto (default): before it the token of\n"
    "                      tokenizer.json's post_processor, after it the end of text; none; bos,\n"
    "                      eos: one of them; both. A token that the text has is not repeated\n"
    "  --force             replaces other files too, but never an input\n"
    "\n"
    "example: zero3d data tokenize ~/books --output data/train.bin --validation data/val.bin\n"
    "         zero3d data tokenize pile.jsonl --json-key text --output data/train.bin\n"
    "         zero3d data tokenize chats.jsonl --tokenizer models/qwen --output data/chats.bin\n";

/* Progress on standard error: on a terminal a line that is overwritten, else a line every ten
 * seconds. Short work prints nothing. */
typedef struct meter {
    bool terminal, told;
    double next; /* seconds */
} meter;

static void show_progress(void *context, const z3d_tokenize_progress *progress) {
    const double pause = 10, blink = 0.5;
    meter *m = context;
    z3d_string line = {0};
    if (progress->seconds < m->next) return;
    m->next = progress->seconds + (m->terminal ? blink : pause);
    m->told = true;
    z3d_tokenize_progress_line(progress, &line);
    if (!line.failed) fprintf(stderr, m->terminal ? "\r%s\033[K" : "tokenized %s\n", line.text);
    fflush(stderr);
    z3d_string_free(&line);
}

/* The words of options, by z3d_tokenize_split, skip_bad, z3d_loss_on and z3d_special. */
static const char *const splits[] = {[Z3D_SPLIT_HASH] = "hash", [Z3D_SPLIT_TAIL] = "tail", NULL};
static const char *const errors[] = {[false] = "stop", [true] = "skip", NULL};
static const char *const losses[] = {[Z3D_LOSS_AUTO] = "auto",
                                     [Z3D_LOSS_COMPLETIONS] = "completions",
                                     [Z3D_LOSS_ASSISTANT] = "assistant",
                                     [Z3D_LOSS_ALL] = "all",
                                     NULL};
static const char *const specials[] = {
    [Z3D_SPECIAL_AUTO] = "auto", [Z3D_SPECIAL_NONE] = "none", [Z3D_SPECIAL_BOS] = "bos",
    [Z3D_SPECIAL_EOS] = "eos",   [Z3D_SPECIAL_BOTH] = "both", NULL};

/* The options that need more than a value. Not given: NULL; -1 for split and special; the default,
 * 0, for on_error, format and loss_on. */
typedef struct asked {
    const char *fraction, *limit, *tokenizer, *vocab, *merges;
    int split, on_error, special, format, loss_on;
} asked;

static z3d_status read_amounts(const asked *a, z3d_tokenize_options *options) {
    if (!options->output_train) return Z3D_ERROR(Z3D_ERR_USAGE, "--output FILE.bin is missing");
    if ((a->fraction || a->split >= 0) && !options->output_validation)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--%s needs --validation FILE.bin",
                         a->fraction ? "fraction" : "split");
    if (options->output_validation) options->validation_fraction = 0.1;
    if (a->fraction && z3d_parse_float(a->fraction, &options->validation_fraction) != Z3D_OK)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--fraction %s: expected a number between 0 and 1",
                         a->fraction);
    if (a->limit &&
        (z3d_parse_bytes(a->limit, &options->limit_bytes) != Z3D_OK || options->limit_bytes < 1))
        return Z3D_ERROR(Z3D_ERR_USAGE, "--limit %s: expected a size such as 100MB or 2GiB",
                         a->limit);
    return Z3D_OK;
}

static z3d_status use_choices(const asked *a, z3d_tokenize_options *options) {
    options->split = a->split < 0 ? Z3D_SPLIT_HASH : (z3d_tokenize_split)a->split;
    options->skip_bad = a->on_error == 1;
    options->format = (z3d_tokenize_format)a->format;
    options->loss_on = (z3d_loss_on)a->loss_on;
    if (options->chat_template && strcmp(options->chat_template, "auto") == 0)
        options->chat_template = NULL;
    if (options->json_key && a->format > Z3D_FORMAT_TEXT)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--json-key is the key of texts: not with --format %s",
                         z3d_tokenize_format_name(options->format));
    return Z3D_OK;
}

/* The kind with this name; false: none, so the name may be a folder. */
static bool is_kind(const char *name, z3d_tokenizer_kind *out) {
    static const char *const names[] = {[Z3D_TOKENIZER_BYTES] = "bytes",
                                        [Z3D_TOKENIZER_GPT2] = "gpt2",
                                        [Z3D_TOKENIZER_HUGGINGFACE] = "huggingface"};
    for (int i = 0; i <= Z3D_TOKENIZER_HUGGINGFACE; i++) {
        *out = (z3d_tokenizer_kind)i;
        if (strcmp(name, names[i]) == 0) return true;
    }
    return false;
}

static z3d_status make_of_kind(z3d_tokenizer_kind kind, const char *vocab, const char *merges,
                               z3d_tokenizer **out) {
    if (kind == Z3D_TOKENIZER_BYTES && vocab)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--vocab needs --tokenizer gpt2 or huggingface");
    if (kind != Z3D_TOKENIZER_GPT2 && merges)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--merges needs --tokenizer gpt2");
    if (kind == Z3D_TOKENIZER_GPT2 && !vocab)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--tokenizer gpt2 needs --vocab: vocab.json, "
                                        "tokenizer.json, or a folder with them");
    if (kind == Z3D_TOKENIZER_HUGGINGFACE && !vocab)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--tokenizer huggingface needs --vocab: tokenizer.json, "
                                        "or a folder with it");
    return z3d_tokenizer_create(kind, vocab, merges, out);
}

static z3d_status make_tokenizer(const asked *a, z3d_tokenizer **out) {
    const char *name = a->tokenizer;
    const z3d_special special = a->special < 0 ? Z3D_SPECIAL_AUTO : (z3d_special)a->special;
    z3d_tokenizer_kind kind;
    *out = NULL;
    if (is_kind(name, &kind)) {
        Z3D_TRY(make_of_kind(kind, a->vocab, a->merges, out));
        return z3d_tokenizer_set_special(*out, special);
    }
    if (!z3d_is_folder(name))
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--tokenizer %s: there is no such folder; expected bytes, gpt2, "
                         "huggingface or a model's folder",
                         name);
    if (a->vocab || a->merges)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--tokenizer %s is a folder with its files: leave out --%s",
                         name, a->vocab ? "vocab" : "merges");
    return z3d_tokenizer_of_folder(name, a->special >= 0 ? &special : NULL, out);
}

static z3d_status answer(int argc, char **argv, cli_answer *out) {
    const char *formats[Z3D_FORMAT_SHAREGPT + 2] = {NULL};
    for (int i = 0; i <= Z3D_FORMAT_SHAREGPT; i++)
        formats[i] = z3d_tokenize_format_name((z3d_tokenize_format)i);
    asked a = {.tokenizer = "bytes", .split = -1, .special = -1};
    meter meter = {.terminal = isatty(STDERR_FILENO)};
    meter.next = meter.terminal ? 2 : 10;
    z3d_tokenize_options tokenize = {.progress = show_progress, .context = &meter};
    z3d_tokenize_result result;
    const cli_option options[] = {{"output", .value = &tokenize.output_train},
                                  {"validation", .value = &tokenize.output_validation},
                                  {"fraction", .value = &a.fraction},
                                  {"split", .choice = &a.split, .names = splits},
                                  {"limit", .value = &a.limit},
                                  {"json-key", .value = &tokenize.json_key},
                                  {"on-error", .choice = &a.on_error, .names = errors},
                                  {"tokenizer", .value = &a.tokenizer},
                                  {"vocab", .value = &a.vocab},
                                  {"format", .choice = &a.format, .names = formats},
                                  {"loss-on", .choice = &a.loss_on, .names = losses},
                                  {"chat-template", .value = &tokenize.chat_template},
                                  {"merges", .value = &a.merges},
                                  {"special", .choice = &a.special, .names = specials},
                                  {"force", .flag = &tokenize.force},
                                  {.name = NULL}};
    int count;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    if (count < 1 || strcmp(argv[1], "tokenize") != 0)
        return Z3D_ERROR(Z3D_ERR_USAGE, "expected: zero3d data tokenize INPUT...");
    if (count < 2) return Z3D_ERROR(Z3D_ERR_USAGE, "no input: give files or folders of text");
    Z3D_TRY(read_amounts(&a, &tokenize));
    Z3D_TRY(use_choices(&a, &tokenize));
    tokenize.inputs = (const char *const *)(argv + 2);
    tokenize.count = count - 1;
    z3d_status status = make_tokenizer(&a, &tokenize.tokenizer);
    if (status == Z3D_OK) status = z3d_data_tokenize(&tokenize, &result);
    if (meter.told && meter.terminal) fputs("\r\033[K", stderr);
    if (status == Z3D_OK)
        z3d_string_append(&out->text, "tokenizer  %s, of %d ids\n", tokenize.tokenizer->name,
                          (int)tokenize.tokenizer->vocab_size);
    if (status == Z3D_OK) z3d_tokenize_summary(&tokenize, &result, &out->text);
    z3d_tokenizer_destroy(tokenize.tokenizer);
    return status;
}

const cli_command cli_data = {
    "data", "turn text into token files", help, answer, NULL, false, "tokenize", false};
