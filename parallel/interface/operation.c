/* Collectives: their names, and the end of an operation of any backend. */
#include "parallel/interface/internal.h"

const char *z3d_collective_name(z3d_collective_kind kind) {
    static const char *const names[] = {
#define X(NAME, name) #name,
        Z3D_COLLECTIVE_MAP(X)
#undef X
    };
    return (unsigned)kind < Z3D_COLLECTIVE_COUNT ? names[kind] : "?";
}

void z3d_operation_finish(z3d_group *group, z3d_operation *operation) {
    operation->done = true;
    group->pending--;
    if (group->world)
        group->traffic[operation->call.kind].seconds += z3d_now() - operation->started;
}
