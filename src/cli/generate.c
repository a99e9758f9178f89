/* zero3d generate */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/cli/cli.h"
#include "src/train/train.h"

static const char help[] =
    "usage: zero3d generate CHECKPOINT [--prompt TEXT | --prompts FILE] [options] [key=value ...]\n"
    "       zero3d-launch -n RANKS zero3d generate CHECKPOINT ...\n"
    "\n"
    "Continues a text with the weights of a checkpoint, on any number of ranks. CHECKPOINT is a\n"
    "checkpoint's folder, or a folder of checkpoints: then the latest is used.\n"
    "\n"
    "  --prompt TEXT        text to continue; \"\" starts a new text; - reads standard input\n"
    "                       (default: generate.prompt of the checkpoint's run; if that is not\n"
    "                       set, and on one rank, standard input if it is a pipe or a file)\n"
    "  --prompts FILE       JSON lines {\"prompt\": \"...\"}: answers all of them, one line each,\n"
    "                       in this order; - reads standard input\n"
    "  --chat               the prompt is the user's message, in the model's chat template;\n"
    "                       prints only the answer. A line of a file may have messages:\n"
    "                       {\"messages\": [...]}\n"
    "  --system TEXT        with --chat: the system message before the prompt\n"
    "  --chat-template T    with --chat: auto (default): the template in the model's folder; or\n"
    "                       chatml, llama3, ... (docs/fine-tuning.md)\n"
    "  --output FILE        new file for the answers (default: standard output)\n"
    "  --batch N            prompts of the file that are continued together\n"
    "  --tokens N           tokens to generate\n"
    "  --temperature T      0: always the most likely token\n"
    "  --top-k K            sample from the K most likely tokens; 0: from all\n"
    "  --top-p P            sample from the most likely tokens whose probabilities sum to P;\n"
    "                       1: from all\n"
    "  --repetition-penalty R  makes tokens that the text already has less likely; 1: none\n"
    "  --stop TEXT          ends the text before TEXT; may be given several times\n"
    "  --seed N             seed of sampling\n"
    "  --ema                use the average of the parameters that optimizer.ema_decay keeps\n"
    "  --stream             prints the text as it comes, also if the output is no terminal\n"
    "  --verbose            at the end, tokens per second on standard error\n"
    "  --vocab PATH         tokenizer.json, GPT-2's vocab.json, or a folder with them\n"
    "                       (default: data.vocab of the run, or the imported tokenizer)\n"
    "  --merges FILE        GPT-2's merges.txt, if it is not beside vocab.json\n"
    "  --special HOW        tokens before a text: none, bos, eos, both or auto (default)\n"
    "  key=value            other keys of the configuration\n"
    "\n"
    "example: zero3d generate runs/demo/checkpoints --prompt \"It was\" --tokens 200\n"
    "         zero3d generate runs/demo/checkpoints --prompts in.jsonl --output out.jsonl\n";

/* Indices of the options that are keys of the configuration. */
enum { PROMPT, STOP, VOCAB, MERGES, TEXTS };
static const struct {
    const char *option, *key;
} keys[] = {[PROMPT] = {"prompt", "generate.prompt"},
            [STOP] = {"stop", "generate.stop"},
            [VOCAB] = {"vocab", "data.vocab"},
            [MERGES] = {"merges", "data.merges"},
            [TEXTS] = {"tokens", "generate.tokens"},
            {"temperature", "generate.temperature"},
            {"top-k", "generate.top_k"},
            {"top-p", "generate.top_p"},
            {"repetition-penalty", "generate.repetition_penalty"},
            {"seed", "generate.seed"},
            {"batch", "generate.batch"},
            {"special", "data.special"}};
enum { MAX_ASSIGNMENTS = 64, KEYS = sizeof keys / sizeof *keys };

typedef struct arguments {
    z3d_generate_request request;
    char *assignment[MAX_ASSIGNMENTS];
    z3d_string text[KEYS]; /* the assignments made from options */
    bool input, any_input; /* read the prompt from standard input; any_input: only if there is no
                              other prompt */
    bool stream, verbose;
} arguments;

/* Makes "key=value" for option `k`: texts as quoted YAML scalars (JSON strings are such), several
 * as a list. */
static z3d_status assign_all(arguments *a, int k, const char *const *value, int count) {
    z3d_string_append(&a->text[k], count > 1 ? "%s=[" : "%s=", keys[k].key);
    for (int i = 0; i < count; i++) {
        if (i > 0) z3d_string_append(&a->text[k], ", ");
        if (k < TEXTS)
            z3d_string_append_json(&a->text[k], value[i]);
        else
            z3d_string_append(&a->text[k], "%s", value[i]);
    }
    if (count > 1) z3d_string_append(&a->text[k], "]");
    if (a->text[k].failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for an argument");
    a->assignment[a->request.count++] = a->text[k].text;
    return Z3D_OK;
}

static z3d_status check_arguments(const arguments *a, const char *prompt) {
    const z3d_generate_request *r = &a->request;
    if (r->prompts && prompt)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--prompt and --prompts: give one of them");
    if (r->output && !r->prompts)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--output is for the answers of --prompts");
    if ((r->system || r->chat_template) && !r->chat)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--%s needs --chat",
                         r->system ? "system" : "chat-template");
    if (a->stream && r->prompts)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--stream is for one prompt; the answers of --prompts are "
                                        "written as they come anyway");
    return Z3D_OK;
}

static z3d_status read_arguments(int argc, char **argv, arguments *a) {
    const char *value[KEYS] = {NULL};
    enum { OTHERS = 8 };
    z3d_generate_request *r = &a->request;
    cli_option options[OTHERS + KEYS + 1] = {
        {"prompts", .value = &r->prompts}, {"output", .value = &r->output},
        {"chat", .flag = &r->chat},        {"ema", .flag = &r->ema},
        {"system", .value = &r->system},   {"chat-template", .value = &r->chat_template},
        {"stream", .flag = &a->stream},    {"verbose", .flag = &a->verbose}};
    cli_values stops = {.count = 0};
    for (int k = 0; k < KEYS; k++)
        options[OTHERS + k] =
            (cli_option){keys[k].option, .value = &value[k], .values = k == STOP ? &stops : NULL};
    int count;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    if (count < 1) return Z3D_ERROR(Z3D_ERR_USAGE, "no checkpoint: give its folder");
    if (count + KEYS >= MAX_ASSIGNMENTS) return Z3D_ERROR(Z3D_ERR_USAGE, "too many arguments");
    Z3D_TRY(check_arguments(a, value[PROMPT]));
    r->path = argv[1];
    r->assignments = a->assignment;
    if (r->chat_template && strcmp(r->chat_template, "auto") == 0) r->chat_template = NULL;
    a->any_input = !value[PROMPT] && !r->prompts;
    a->input = value[PROMPT] && strcmp(value[PROMPT], "-") == 0;
    if (a->input) value[PROMPT] = NULL;
    for (int i = 2; i <= count; i++) a->assignment[r->count++] = argv[i];
    /* With another vocabulary the run's merges do not apply. */
    if (value[VOCAB] && !value[MERGES]) value[MERGES] = "";
    for (int k = 0; k < KEYS; k++)
        if (value[k]) Z3D_TRY(assign_all(a, k, &value[k], 1));
    return stops.count > 0 ? assign_all(a, STOP, stops.value, stops.count) : Z3D_OK;
}

/* ---- a prompt from standard input ---- */

static bool can_be_read(void) {
    struct stat info;
    return fstat(STDIN_FILENO, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISREG(info.st_mode));
}

/* Tells a user at a terminal that the program waits for input. */
static void wait_for_input(void) {
    enum { SOON = 2000 };
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&input, 1, SOON) == 0)
        fputs("zero3d: reading the prompt from standard input (--prompt TEXT gives it instead)\n",
              stderr);
}

/* One line feed at the end is not part of the prompt. */
static z3d_status read_input(const arguments *a, z3d_string *out) {
    enum { MOST = 1 << 20 };
    char *text;
    size_t length;
    if (!a->input && !can_be_read()) return Z3D_OK;
    wait_for_input();
    Z3D_TRY(z3d_read_file("/dev/stdin", MOST, &text, &length));
    bool has_nul = memchr(text, '\0', length) != NULL;
    if (length > 0 && text[length - 1] == '\n') length--;
    z3d_string_append_bytes(out, text, length);
    free(text);
    if (has_nul) return Z3D_ERROR(Z3D_ERR_USAGE, "the prompt on standard input has a NUL byte");
    if (a->input && length == 0)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--prompt -: standard input is empty (--prompt \"\" starts a new text)");
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the prompt") : Z3D_OK;
}

/* Rank 0 reads standard input and sends it to all ranks. A launcher's standard input may never end,
 * so it is read only if the prompt must come from it. */
static z3d_status share_input(z3d_world *world, arguments *a) {
    z3d_string text = {0};
    int64_t length = 0;
    bool alone = z3d_world_size(world) == 1;
    bool configured = !a->any_input;
    if (!a->input && !(a->any_input && alone)) return Z3D_OK;
    /* If there is another prompt, standard input is not read: it may belong to a shell loop. */
    if (a->any_input && !a->input)
        Z3D_TRY(
            z3d_generate_has_prompt(a->request.path, a->assignment, a->request.count, &configured));
    if (!a->input && configured) return Z3D_OK;
    z3d_status status = z3d_world_rank(world) == 0 ? read_input(a, &text) : Z3D_OK;
    if (!alone) status = z3d_world_agree(world, status);
    length = (int64_t)text.length;
    if (status == Z3D_OK) status = z3d_world_broadcast(world, &length, sizeof length, 0);
    char *shared = NULL;
    if (status == Z3D_OK) status = z3d_new((size_t)length + 1, 1, "the prompt", &shared);
    if (status == Z3D_OK && text.length) memcpy(shared, text.text, text.length);
    if (status == Z3D_OK && length > 0) status = z3d_world_broadcast(world, shared, length, 0);
    const char *prompt = shared;
    if (status == Z3D_OK && length > 0) status = assign_all(a, PROMPT, &prompt, 1);
    free(shared);
    z3d_string_free(&text);
    return status;
}

/* If an error is about a key that an option set, names the option in the message. */
static void name_options(const arguments *a, z3d_status status) {
    const char *message = z3d_error_message();
    z3d_string named = {0};
    while (*message) {
        size_t skipped = 0;
        for (int k = 0; k < KEYS && !skipped; k++) {
            const char *assignment = a->text[k].text, *option = keys[k].option;
            size_t length = assignment ? strlen(assignment) : 0;
            if (!length || strncmp(message, "override ", 9) != 0 ||
                strncmp(message + 9, assignment, length) != 0 || message[9 + length] != ':')
                continue;
            z3d_string_append(&named, "--%s %s", option, strchr(assignment, '=') + 1);
            skipped = 9 + length;
        }
        if (!skipped) z3d_string_append_bytes(&named, message, skipped = 1);
        message += skipped;
    }
    if (!named.failed && named.length)
        (void)z3d_error_set_lines(status, __FILE__, __LINE__, named.text);
    z3d_string_free(&named);
}

/* ---- output ---- */

typedef struct screen {
    bool at_once; /* print pieces as they come; false: print the complete text, so a failure prints
                     none */
    bool closed;  /* the reader has closed standard output */
    z3d_string text;
} screen;

static z3d_status show(void *context, const char *text, size_t length) {
    screen *s = context;
    if (!s->at_once) {
        z3d_string_append_bytes(&s->text, text, length);
        return Z3D_OK;
    }
    errno = 0;
    if (fwrite(text, 1, length, stdout) == length && fflush(stdout) == 0) return Z3D_OK;
    s->closed = errno == EPIPE; /* the reader needs no more: `| head` */
    return Z3D_ERROR(Z3D_ERR_IO, "cannot write to standard output: %s", strerror(errno));
}

static void say_rate(const char *what, const z3d_generate_rate *rate) {
    if (rate->tokens > 0)
        fprintf(stderr, "; %s %lld tokens in %.3f s, %.1f tokens/s", what, (long long)rate->tokens,
                rate->seconds, (double)rate->tokens / rate->seconds);
}

static void say_result(const z3d_generate_result *r) {
    fprintf(stderr, "zero3d: %lld %s", (long long)r->prompts,
            r->prompts > 1 ? "prompts" : "prompt");
    if (r->prompts > 1) fprintf(stderr, ", %lld together", (long long)r->batch);
    if (r->replicas > 1)
        fprintf(stderr, " on each of %d replicas in ZeRO stage %d", r->replicas, r->stage);
    say_rate("prefill", &r->prefill);
    say_rate("decode", &r->decode);
    fprintf(stderr, "\n");
}

static z3d_status generate(z3d_world *world, arguments *a, screen *screen,
                           z3d_generate_result *result) {
    a->request.show = show;
    a->request.context = screen;
    z3d_status status = z3d_generate_from(world, &a->request, result);
    if (status != Z3D_OK || z3d_world_rank(world) != 0) return status;
    return a->request.prompts ? Z3D_OK : show(screen, "\n", 1);
}

/* Rank 0's last line. Missing answers are a failure. */
static int say_end(const arguments *a, const screen *screen, const z3d_generate_result *r) {
    int code = cli_print(&screen->text);
    if (code == CLI_OK && a->verbose) say_result(r);
    if (code != CLI_OK || !a->request.prompts || !r->stopped) return code;
    return cli_finish(Z3D_ERROR(Z3D_ERR_IO,
                                "stopped by a signal: %lld of %lld prompts have answers",
                                (long long)r->answers, (long long)r->prompts),
                      NULL);
}

static int run(int argc, char **argv) {
    arguments a = {0};
    z3d_world *world = NULL;
    screen screen = {0};
    z3d_generate_result result = {0};
    z3d_status status = z3d_world_create_or_alone(NULL, NULL, &world);
    if (status != Z3D_OK) return cli_finish_rank(NULL, status, NULL);
    z3d_log_configure(Z3D_LOG_WARN, z3d_world_rank(world));
    status = read_arguments(argc, argv, &a);
    screen.at_once = a.request.prompts || a.stream || isatty(STDOUT_FILENO);
    if (status == Z3D_OK) status = share_input(world, &a);
    if (status == Z3D_OK) status = generate(world, &a, &screen, &result);
    if (status == Z3D_ERR_CONFIG) name_options(&a, status);
    int code = screen.closed ? CLI_FAILED : cli_finish_rank(world, status, "generate");
    if (status == Z3D_OK && z3d_world_rank(world) == 0) code = say_end(&a, &screen, &result);
    z3d_string_free(&screen.text);
    for (int k = 0; k < KEYS; k++) z3d_string_free(&a.text[k]);
    z3d_world_destroy(world);
    return code;
}

const cli_command cli_generate = {
    "generate", "generate text from a checkpoint", help, NULL, run, true, NULL, false};
