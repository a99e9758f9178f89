/* zero3d generate */
#include "parallel/parallel.h"
#include "src/cli/cli.h"
#include "src/train/train.h"

static const char help[] =
    "usage: zero3d generate CHECKPOINT [--prompt TEXT] [options] [key=value ...]\n"
    "       scripts/launch -n RANKS zero3d generate CHECKPOINT ...\n"
    "\n"
    "Continues a text with the weights of a checkpoint (a folder of checkpoints: its newest), on "
    "any\n"
    "number of ranks.\n"
    "\n"
    "  --prompt TEXT        text to continue (default: generate.prompt of the run that saved it)\n"
    "  --tokens N           tokens to generate\n"
    "  --temperature T      0: always the most likely token\n"
    "  --top-k K            draw from the K most likely tokens; 0: from all\n"
    "  --seed N             of the draws\n"
    "  --vocab PATH         GPT-2's vocab.json, or the folder with vocab.json and merges.txt\n"
    "                       (default: data.vocab of the run, or the folder that was imported)\n"
    "  --merges FILE        GPT-2's merges.txt, where it is not beside vocab.json\n"
    "  key=value            other keys of the configuration\n"
    "\n"
    "example: zero3d generate runs/demo/checkpoints --prompt \"It was\" --tokens 200\n";

enum { MAX_ASSIGNMENTS = 64, KEYS = 7 };

typedef struct arguments {
    const char *path;
    int count;
    char *assignment[MAX_ASSIGNMENTS];
    z3d_string text[KEYS]; /* of those made from options */
} arguments;

static z3d_status read_arguments(int argc, char **argv, arguments *a) {
    static const struct {
        const char *key;
        bool is_text; /* any text: as a quoted YAML scalar, which JSON's are */
    } keys[KEYS] = {
        {"generate.prompt", true}, {"generate.tokens", false}, {"generate.temperature", false},
        {"generate.top_k", false}, {"generate.seed", false},   {"data.vocab", true},
        {"data.merges", true}};
    const char *value[KEYS] = {NULL};
    const cli_option options[] = {{"prompt", &value[0], NULL},      {"tokens", &value[1], NULL},
                                  {"temperature", &value[2], NULL}, {"top-k", &value[3], NULL},
                                  {"seed", &value[4], NULL},        {"vocab", &value[5], NULL},
                                  {"merges", &value[6], NULL},      {NULL, NULL, NULL}};
    static char gpt2[] = "data.tokenizer=gpt2";
    int count;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    if (count < 1) return Z3D_ERROR(Z3D_ERR_USAGE, "from which checkpoint? its folder is wanted");
    if (count + KEYS >= MAX_ASSIGNMENTS) return Z3D_ERROR(Z3D_ERR_USAGE, "too many arguments");
    a->path = argv[1];
    for (int i = 2; i <= count; i++) a->assignment[a->count++] = argv[i];
    if (value[5]) a->assignment[a->count++] = gpt2;
    if (value[5] && !value[6]) value[6] = ""; /* those of another vocabulary are none of it */
    for (int k = 0; k < KEYS; k++) {
        if (!value[k]) continue;
        z3d_string_append(&a->text[k], "%s=", keys[k].key);
        if (keys[k].is_text)
            z3d_string_append_json(&a->text[k], value[k]);
        else
            z3d_string_append(&a->text[k], "%s", value[k]);
        if (a->text[k].failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for an argument");
        a->assignment[a->count++] = a->text[k].text;
    }
    return Z3D_OK;
}

static int run(int argc, char **argv) {
    arguments a = {0};
    z3d_world *world = NULL;
    z3d_string text = {0};
    z3d_status status = z3d_world_create_or_alone(NULL, NULL, &world);
    if (status != Z3D_OK) return cli_finish_rank(NULL, status, NULL);
    z3d_log_configure(Z3D_LOG_WARN, z3d_world_rank(world));
    status = read_arguments(argc, argv, &a);
    if (status == Z3D_OK) status = z3d_generate_from(world, a.path, a.assignment, a.count, &text);
    int code = cli_finish_rank(world, status, "generate");
    if (status == Z3D_OK && z3d_world_rank(world) == 0) code = cli_print(&text);
    z3d_string_free(&text);
    for (int k = 0; k < KEYS; k++) z3d_string_free(&a.text[k]);
    z3d_world_destroy(world);
    return code;
}

const cli_command cli_generate = {"generate", "text from a checkpoint", help, run};
