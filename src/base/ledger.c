/* The memory ledger: sums by tenant and their peaks. */
#include "src/base/ledger.h"

const char *z3d_tenant_name(z3d_tenant tenant) {
    static const char *const names[] = {
#define X(NAME, name) #name,
        Z3D_TENANT_MAP(X)
#undef X
    };
    return (unsigned)tenant < Z3D_TENANT_COUNT ? names[tenant] : "?";
}

static void add(int64_t *live, int64_t *peak, int64_t bytes) {
    *live += bytes;
    if (*live > *peak) *peak = *live;
}

void z3d_ledger_add(z3d_ledger *ledger, z3d_tenant tenant, int64_t bytes) {
    add(&ledger->live[tenant], &ledger->peak[tenant], bytes);
    add(&ledger->total_live, &ledger->total_peak, bytes);
}
