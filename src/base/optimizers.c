#include "src/base/optimizers.h"

#include <string.h>
#include <strings.h>

static const struct {
    const char *name, *reads;
    unsigned states;
} table[] = {
#define X(_, id, name, reads, states, flops) {name, reads, states},
    Z3D_OPTIMIZER_KERNELS(X, )
#undef X
};

const char *z3d_optimizer_name(z3d_optimizer optimizer) {
    return table[optimizer].name;
}

z3d_optimizer z3d_optimizer_in_bf16(z3d_optimizer optimizer) {
    return optimizer == Z3D_OPTIMIZER_adamw  ? Z3D_OPTIMIZER_adamw_bf16
           : optimizer == Z3D_OPTIMIZER_adam ? Z3D_OPTIMIZER_adam_bf16
                                             : optimizer;
}

const char *z3d_optimizer_named(const char *text) {
    static const char *const others[][2] = {
        {"adamw_torch", "AdamW"},       {"adamw_torch_fused", "AdamW"},
        {"adamw_hf", "AdamW"},          {"adamw_apex_fused", "AdamW"},
        {"paged_adamw_32bit", "AdamW"}, {"FusedAdam", "AdamW"},
        {"DeepSpeedCPUAdam", "AdamW"},  {"lion_32bit", "Lion"},
        {"paged_lion_32bit", "Lion"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcasecmp(text, others[i][0]) == 0) return others[i][1];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcasecmp(text, table[i].name) == 0) return table[i].name;
    return text;
}

bool z3d_optimizer_is_planned(const char *text) {
    static const char *const planned[] = {"LAMB", "Adafactor", "Muon", "8bit"};
    for (size_t i = 0; i < sizeof planned / sizeof *planned; i++)
        if (strcasestr(text, planned[i])) return true;
    return false;
}

bool z3d_optimizer_reads(z3d_optimizer optimizer, const char *key) {
    return z3d_has_leaf(table[optimizer].reads, key);
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
