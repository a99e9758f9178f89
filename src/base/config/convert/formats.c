/* Recognizes files of other programs, which no converter reads, by a key at the top level. */
#include "src/base/config/convert/convert.h"

#include <ctype.h>
#include <string.h>

#define ACCELERATE                                                                                 \
    "a file of Accelerate; convert its deepspeed_config block, written as JSON, or the file that " \
    "its deepspeed_config_file names"
#define MODEL "the description of a model; `zero3d checkpoint import FOLDER TO` reads its folder"
#define NEOX                                                                                       \
    "a file of GPT-NeoX, which is not read; convert its DeepSpeed keys as a file of their own"
#define NEMO                                                                                       \
    ", which is not read; convert the run's log, with Megatron-LM's arguments (--from-megatron "   \
    "LOG)"

static const struct {
    const char *key, *what; /* key: with - instead of _ */
} formats[] = {
    {"distributed-type", ACCELERATE},
    {"compute-environment", ACCELERATE},
    {"deepspeed", "a program's own settings; convert the file that its key deepspeed names"},
    {"architectures", MODEL},
    {"model-type", MODEL},
    {"exp-manager", "a file of NeMo" NEMO},
    {"trainer", "a file of NeMo or another trainer" NEMO},
    {"pipe-parallel-size", NEOX},
    {"model-parallel-size", NEOX},
    {"per-device-train-batch-size",
     "a Trainer's arguments; convert the DeepSpeed file that they name"},
};

/* The length of a top-level key's name at `at`; 0: no key begins here. */
static size_t key_at(const char *at, int depth, bool starts_line) {
    const bool quoted = *at == '"';
    size_t length = 0;
    at += quoted;
    while (isalnum((unsigned char)at[length]) || at[length] == '_' || at[length] == '-') length++;
    const char *end = at + length + quoted;
    if (length == 0 || (quoted && at[length] != '"') || end[strspn(end, " ")] != ':') return 0;
    return depth == 1 || (depth == 0 && starts_line && isalpha((unsigned char)*at)) ? length : 0;
}

static bool is_key(const char *at, size_t length, const char *key) {
    size_t i = 0;
    for (; i < length && key[i]; i++)
        if ((at[i] == '_' ? '-' : at[i]) != key[i]) return false;
    return i == length && !key[i];
}

z3d_status config_refuse_format(const char *text, const char *file, const char *option) {
    int depth = 0;
    for (const char *at = text; *at; at++) {
        const bool starts_line = at == text || at[-1] == '\n';
        const bool starts_word = starts_line || strchr(" {,\t", at[-1]);
        const size_t length = starts_word ? key_at(at, depth, starts_line) : 0;
        const char *name = at + (*at == '"');
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        for (size_t i = 0; length && i < sizeof formats / sizeof *formats; i++)
            if (is_key(name, length, formats[i].key))
                return Z3D_ERROR(Z3D_ERR_DATA, "%s %.200s: this is %s", option, file,
                                 formats[i].what);
        if (*at == '"') { /* skip the string: its braces are text */
            for (at++; *at && *at != '"' && *at != '\n'; at++) at += *at == '\\' && at[1];
            if (!*at) break;
        }
    }
    return Z3D_OK;
}
