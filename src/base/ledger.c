/* The memory ledger: sums by category and their peaks. */
#include "src/base/ledger.h"

const char *z3d_category_name(z3d_category category) {
    static const char *const names[] = {
#define X(NAME, name) #name,
        Z3D_CATEGORY_MAP(X)
#undef X
    };
    return (unsigned)category < Z3D_CATEGORY_COUNT ? names[category] : "?";
}

static void add(int64_t *live, int64_t *peak, int64_t bytes) {
    *live += bytes;
    if (*live > *peak) *peak = *live;
}

void z3d_ledger_add(z3d_ledger *ledger, z3d_category category, int64_t bytes) {
    add(&ledger->live[category], &ledger->peak[category], bytes);
    add(&ledger->total_live, &ledger->total_peak, bytes);
}
