/* zero3d generate */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parallel/parallel.h"
#include "src/cli/cli.h"
#include "src/train/train.h"

static const char help[] =
    "usage: zero3d generate CHECKPOINT [--prompt TEXT] [options] [key=value ...]\n"
    "       scripts/launch -n RANKS zero3d generate CHECKPOINT ...\n"
    "\n"
    "Continues a text with the weights of a checkpoint, on any number of ranks. CHECKPOINT is a\n"
    "checkpoint's folder, or a folder of checkpoints: then the latest is used.\n"
    "\n"
    "  --prompt TEXT        text to continue; \"\" starts a new text; - reads standard input\n"
    "                       (default: generate.prompt of the checkpoint's run; if that is not\n"
    "                       set, and on one rank, standard input if it is a pipe or a file)\n"
    "  --tokens N           tokens to generate\n"
    "  --temperature T      0: always the most likely token\n"
    "  --top-k K            sample from the K most likely tokens; 0: from all\n"
    "  --top-p P            sample from the most likely tokens whose probabilities add up\n"
    "                       to P; 1: from all\n"
    "  --seed N             seed of sampling\n"
    "  --vocab PATH         tokenizer.json, GPT-2's vocab.json, or a folder with them\n"
    "                       (default: data.vocab of the run, or the imported tokenizer)\n"
    "  --merges FILE        GPT-2's merges.txt, if it is not beside vocab.json\n"
    "  key=value            other keys of the configuration\n"
    "\n"
    "example: zero3d generate runs/demo/checkpoints --prompt \"It was\" --tokens 200\n"
    "         zero3d generate runs/demo/checkpoints --top-p 0.9 <prompt.txt\n";

enum { MAX_ASSIGNMENTS = 64, KEYS = 8, PROMPT = 0 };

static const char *const option_names[KEYS] = {"prompt", "tokens", "temperature", "top-k",
                                               "top-p",  "seed",   "vocab",       "merges"};

typedef struct arguments {
    const char *path;
    int count;
    char *assignment[MAX_ASSIGNMENTS];
    z3d_string text[KEYS]; /* of those made from options */
    bool input, any_input; /* the prompt is to come from standard input; if there is no other */
} arguments;

/* "key=value" for option `k`. is_text: any text, as a quoted YAML scalar, which JSON's are. */
static z3d_status assign(arguments *a, int k, const char *key, bool is_text, const char *value) {
    z3d_string_append(&a->text[k], "%s=", key);
    if (is_text)
        z3d_string_append_json(&a->text[k], value);
    else
        z3d_string_append(&a->text[k], "%s", value);
    if (a->text[k].failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for an argument");
    a->assignment[a->count++] = a->text[k].text;
    return Z3D_OK;
}

static z3d_status read_arguments(int argc, char **argv, arguments *a) {
    static const struct {
        const char *key;
        bool is_text;
    } keys[KEYS] = {
        {"generate.prompt", true}, {"generate.tokens", false}, {"generate.temperature", false},
        {"generate.top_k", false}, {"generate.top_p", false},  {"generate.seed", false},
        {"data.vocab", true},      {"data.merges", true}};
    const char *value[KEYS] = {NULL};
    const char **vocab = &value[6], **merges = &value[7];
    cli_option options[KEYS + 1] = {{NULL, NULL, NULL}};
    for (int k = 0; k < KEYS; k++) options[k] = (cli_option){option_names[k], &value[k], NULL};
    int count;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    if (count < 1) return Z3D_ERROR(Z3D_ERR_USAGE, "no checkpoint: give its folder");
    if (count + KEYS >= MAX_ASSIGNMENTS) return Z3D_ERROR(Z3D_ERR_USAGE, "too many arguments");
    a->path = argv[1];
    a->any_input = !value[PROMPT];
    a->input = value[PROMPT] && strcmp(value[PROMPT], "-") == 0;
    if (a->input) value[PROMPT] = NULL;
    for (int i = 2; i <= count; i++) a->assignment[a->count++] = argv[i];
    if (*vocab && !*merges) *merges = ""; /* those of another vocabulary are none of it */
    for (int k = 0; k < KEYS; k++)
        if (value[k]) Z3D_TRY(assign(a, k, keys[k].key, keys[k].is_text, value[k]));
    return Z3D_OK;
}

/* ---- a prompt from standard input ---- */

static bool can_be_read(void) {
    struct stat info;
    return fstat(STDIN_FILENO, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISREG(info.st_mode));
}

/* Whoever waits for nothing is told what for. */
static void wait_for_input(void) {
    enum { SOON = 2000 };
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&input, 1, SOON) == 0)
        fputs("zero3d: reading the prompt from standard input (--prompt TEXT gives it instead)\n",
              stderr);
}

/* One line feed at the end is the line's, not the prompt's. */
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

/* Rank 0 reads, all ranks get it. Launchers give ranks an input that may never end, so it is read
 * only if the prompt must come from it. */
static z3d_status share_input(z3d_world *world, arguments *a) {
    z3d_string text = {0};
    int64_t length = 0;
    bool alone = z3d_world_size(world) == 1;
    bool configured = !a->any_input;
    if (!a->input && !(a->any_input && alone)) return Z3D_OK;
    /* Otherwise it is not read: it may belong to a shell loop. */
    if (a->any_input && !a->input)
        Z3D_TRY(z3d_generate_has_prompt(a->path, a->assignment, a->count, &configured));
    if (!a->input && configured) return Z3D_OK;
    z3d_status status = z3d_world_rank(world) == 0 ? read_input(a, &text) : Z3D_OK;
    if (!alone) status = z3d_world_agree(world, status);
    length = (int64_t)text.length;
    if (status == Z3D_OK) status = z3d_world_broadcast(world, &length, sizeof length, 0);
    char *shared = NULL;
    if (status == Z3D_OK) status = z3d_new((size_t)length + 1, 1, "the prompt", &shared);
    if (status == Z3D_OK && text.length) memcpy(shared, text.text, text.length);
    if (status == Z3D_OK && length > 0) status = z3d_world_broadcast(world, shared, length, 0);
    if (status == Z3D_OK && length > 0) status = assign(a, PROMPT, "generate.prompt", true, shared);
    free(shared);
    z3d_string_free(&text);
    return status;
}

/* Options are keys of the configuration: an error about one names the option. */
static void name_options(const arguments *a, z3d_status status) {
    const char *message = z3d_error_message();
    z3d_string named = {0};
    while (*message) {
        size_t skipped = 0;
        for (int k = 0; k < KEYS && !skipped; k++) {
            const char *assignment = a->text[k].text, *option = option_names[k];
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

static int run(int argc, char **argv) {
    arguments a = {0};
    z3d_world *world = NULL;
    z3d_string text = {0};
    z3d_status status = z3d_world_create_or_alone(NULL, NULL, &world);
    if (status != Z3D_OK) return cli_finish_rank(NULL, status, NULL);
    z3d_log_configure(Z3D_LOG_WARN, z3d_world_rank(world));
    status = read_arguments(argc, argv, &a);
    if (status == Z3D_OK) status = share_input(world, &a);
    if (status == Z3D_OK) status = z3d_generate_from(world, a.path, a.assignment, a.count, &text);
    if (status == Z3D_ERR_CONFIG) name_options(&a, status);
    int code = cli_finish_rank(world, status, "generate");
    if (status == Z3D_OK && z3d_world_rank(world) == 0) code = cli_print(&text);
    z3d_string_free(&text);
    for (int k = 0; k < KEYS; k++) z3d_string_free(&a.text[k]);
    z3d_world_destroy(world);
    return code;
}

const cli_command cli_generate = {"generate", "generate text from a checkpoint", help, run, true};
