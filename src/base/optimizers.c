#include "src/base/optimizers.h"

#include <string.h>

static const struct {
    const char *name, *reads;
    unsigned states;
} table[] = {
#define X(_, id, name, reads, states, flops) {name, reads, states},
    Z3D_OPTIMIZERS(X, )
#undef X
};

const char *z3d_optimizer_name(z3d_optimizer optimizer) {
    return table[optimizer].name;
}

bool z3d_optimizer_reads(z3d_optimizer optimizer, const char *key) {
    const char *last = strrchr(key, '.'), *word = table[optimizer].reads;
    if (last) key = last + 1;
    for (size_t length; *word; word += length + (word[length] == ' ')) {
        length = strcspn(word, " ");
        if (strncmp(word, key, length) == 0 && key[length] == '\0') return true;
    }
    return false;
}

unsigned z3d_optimizer_kinds(z3d_optimizer optimizer) {
    return Z3D_KIND(PARAMETER) | table[optimizer].states;
}

const char *z3d_tensor_kind_name(int kind) {
    static const char *const names[] = {"parameter",
#define X(NAME, name) #name,
                                        Z3D_OPTIMIZER_STATES(X)
#undef X
                                            "pending_gradient"};
    return kind >= 0 && kind < Z3D_STATE_KINDS ? names[kind] : "?";
}

int z3d_count_kinds(unsigned kinds) {
    int count = 0;
    for (; kinds; kinds &= kinds - 1) count++;
    return count;
}

void z3d_append_kinds(z3d_string *out, unsigned kinds, const char *separator) {
    for (int kind = 0, found = 0; kind < Z3D_STATE_KINDS; kind++)
        if (kinds >> kind & 1)
            z3d_string_append(out, "%s%s", found++ ? separator : "", z3d_tensor_kind_name(kind));
}
