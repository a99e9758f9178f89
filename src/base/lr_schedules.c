#include "src/base/lr_schedules.h"

#include <strings.h>

#include "src/base/strings.h"

static const struct {
    const char *name, *reads;
} table[] = {
#define X(_, ID, name, reads) {name, reads},
    Z3D_LR_SCHEDULES(X, )
#undef X
};

const char *z3d_lr_schedule_name(z3d_lr_schedule schedule) {
    return table[schedule].name;
}

const char *z3d_lr_schedule_named(const char *text) {
    if (strcasecmp(text, "cosine_with_min_lr") == 0) return table[Z3D_LR_COSINE].name;
    if (strcasecmp(text, "wsd") == 0) return table[Z3D_LR_WARMUP_STABLE_DECAY].name;
    return text;
}

bool z3d_lr_schedule_reads(z3d_lr_schedule schedule, const char *key) {
    return z3d_has_leaf(table[schedule].reads, key);
}
