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

/* *out: the index of `value` among `count` names; unchanged if the option was not given. */
static z3d_status read_name(const char *option, const char *value, const char *const *names,
                            int count, int *out) {
    z3d_string all = {0};
    if (!value) return Z3D_OK;
    for (int i = 0; i < count; i++) {
        if (strcmp(value, names[i]) == 0) {
            *out = i;
            z3d_string_free(&all);
            return Z3D_OK;
        }
        z3d_string_append(&all, "%s%s", i == 0 ? "" : i < count - 1 ? ", " : " or ", names[i]);
    }
    z3d_status status = Z3D_ERROR(Z3D_ERR_USAGE, "--%s %s: expected %s", option, value,
                                  all.text ? all.text : "another value");
    z3d_string_free(&all);
    return status;
}

static z3d_status read_options(const char *fraction, const char *split, const char *limit,
                               z3d_tokenize_options *options) {
    static const char *const splits[] = {[Z3D_SPLIT_HASH] = "hash", [Z3D_SPLIT_TAIL] = "tail"};
    int how = Z3D_SPLIT_HASH;
    if (!options->output_train) return Z3D_ERROR(Z3D_ERR_USAGE, "--output FILE.bin is missing");
    if (fraction && !options->output_validation)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--fraction needs --validation FILE.bin");
    if (split && !options->output_validation)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--split needs --validation FILE.bin");
    if (options->output_validation) options->validation_fraction = 0.1;
    if (fraction && z3d_parse_float(fraction, &options->validation_fraction) != Z3D_OK)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--fraction %s: expected a number between 0 and 1",
                         fraction);
    if (limit &&
        (z3d_parse_bytes(limit, &options->limit_bytes) != Z3D_OK || options->limit_bytes < 1))
        return Z3D_ERROR(Z3D_ERR_USAGE, "--limit %s: expected a size such as 100MB or 2GiB", limit);
    Z3D_TRY(read_name("split", split, splits, Z3D_SPLIT_TAIL + 1, &how));
    options->split = (z3d_tokenize_split)how;
    return Z3D_OK;
}

static z3d_status read_instructions(const char *format, const char *loss_on,
                                    z3d_tokenize_options *options) {
    static const char *const losses[] = {"auto", "completions", "assistant", "all"};
    const char *formats[Z3D_FORMAT_SHAREGPT + 1];
    int which = Z3D_FORMAT_AUTO, loss = Z3D_LOSS_AUTO;
    for (int i = 0; i <= Z3D_FORMAT_SHAREGPT; i++)
        formats[i] = z3d_tokenize_format_name((z3d_tokenize_format)i);
    Z3D_TRY(read_name("format", format, formats, Z3D_FORMAT_SHAREGPT + 1, &which));
    Z3D_TRY(read_name("loss-on", loss_on, losses, Z3D_LOSS_ALL + 1, &loss));
    options->format = (z3d_tokenize_format)which;
    options->loss_on = (z3d_loss_on)loss;
    if (options->chat_template && strcmp(options->chat_template, "auto") == 0)
        options->chat_template = NULL;
    if (options->json_key && which > Z3D_FORMAT_TEXT)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--json-key is the key of texts: not with --format %s",
                         format);
    return Z3D_OK;
}

static z3d_status read_on_error(const char *how, z3d_tokenize_options *options) {
    static const char *const names[] = {"stop", "skip"};
    int skip = 0;
    Z3D_TRY(read_name("on-error", how, names, 2, &skip));
    options->skip_bad = skip == 1;
    return Z3D_OK;
}

static z3d_status read_special(const char *how, z3d_special *out) {
    static const char *const names[] = {[Z3D_SPECIAL_AUTO] = "auto",
                                        [Z3D_SPECIAL_NONE] = "none",
                                        [Z3D_SPECIAL_BOS] = "bos",
                                        [Z3D_SPECIAL_EOS] = "eos",
                                        [Z3D_SPECIAL_BOTH] = "both"};
    int special = Z3D_SPECIAL_AUTO;
    Z3D_TRY(read_name("special", how, names, Z3D_SPECIAL_BOTH + 1, &special));
    *out = (z3d_special)special;
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

/* Creates a tokenizer from the files of --vocab and --merges. */
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

static z3d_status make_tokenizer(const char *name, const char *vocab, const char *merges,
                                 const char *special_name, z3d_tokenizer **out) {
    z3d_tokenizer_kind kind;
    z3d_special special = Z3D_SPECIAL_AUTO;
    *out = NULL;
    if (special_name) Z3D_TRY(read_special(special_name, &special));
    if (is_kind(name, &kind)) {
        Z3D_TRY(make_of_kind(kind, vocab, merges, out));
        return z3d_tokenizer_set_special(*out, special);
    }
    if (!z3d_is_folder(name))
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--tokenizer %s: there is no such folder; expected bytes, gpt2, "
                         "huggingface or a model's folder",
                         name);
    if (vocab || merges)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--tokenizer %s is a folder with its files: leave out --%s",
                         name, vocab ? "vocab" : "merges");
    return z3d_tokenizer_of_folder(name, special_name ? &special : NULL, out);
}

static z3d_status answer(int argc, char **argv, cli_answer *out) {
    const char *fraction = NULL, *split = NULL, *limit = NULL;
    const char *tokenizer = "bytes", *vocab = NULL, *merges = NULL, *on_error = NULL,
               *special = NULL, *format = NULL, *loss_on = NULL;
    meter meter = {.terminal = isatty(STDERR_FILENO)};
    meter.next = meter.terminal ? 2 : 10;
    z3d_tokenize_options tokenize = {.progress = show_progress, .context = &meter};
    z3d_tokenize_result result;
    const cli_option options[] = {{"output", &tokenize.output_train, NULL, NULL},
                                  {"validation", &tokenize.output_validation, NULL, NULL},
                                  {"fraction", &fraction, NULL, NULL},
                                  {"split", &split, NULL, NULL},
                                  {"limit", &limit, NULL, NULL},
                                  {"json-key", &tokenize.json_key, NULL, NULL},
                                  {"on-error", &on_error, NULL, NULL},
                                  {"tokenizer", &tokenizer, NULL, NULL},
                                  {"vocab", &vocab, NULL, NULL},
                                  {"format", &format, NULL, NULL},
                                  {"loss-on", &loss_on, NULL, NULL},
                                  {"chat-template", &tokenize.chat_template, NULL, NULL},
                                  {"merges", &merges, NULL, NULL},
                                  {"special", &special, NULL, NULL},
                                  {"force", NULL, &tokenize.force, NULL},
                                  {NULL, NULL, NULL, NULL}};
    int count;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    if (count < 1 || strcmp(argv[1], "tokenize") != 0)
        return Z3D_ERROR(Z3D_ERR_USAGE, "expected: zero3d data tokenize INPUT...");
    if (count < 2) return Z3D_ERROR(Z3D_ERR_USAGE, "no input: give files or folders of text");
    Z3D_TRY(read_options(fraction, split, limit, &tokenize));
    Z3D_TRY(read_on_error(on_error, &tokenize));
    Z3D_TRY(read_instructions(format, loss_on, &tokenize));
    tokenize.inputs = (const char *const *)(argv + 2);
    tokenize.count = count - 1;
    z3d_status status = make_tokenizer(tokenizer, vocab, merges, special, &tokenize.tokenizer);
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
