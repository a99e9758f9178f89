#include "src/base/optimizers.h"

static const struct {
    const char *name;
    unsigned states;
} table[] = {
#define X(_, id, name, states, flops) {name, states},
    Z3D_OPTIMIZERS(X, )
#undef X
};

const char *z3d_optimizer_name(z3d_optimizer optimizer) {
    return table[optimizer].name;
}

unsigned z3d_optimizer_kinds(z3d_optimizer optimizer) {
    return Z3D_KIND(PARAMETER) | table[optimizer].states;
}

const char *z3d_tensor_kind_name(int kind) {
    static const char *const names[] = {"parameter",
#define X(NAME, name) #name,
                                        Z3D_OPTIMIZER_STATES(X)
#undef X
    };
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
