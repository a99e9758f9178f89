/* The backend of recording groups: any size, no data, no peers; only observers see the calls. */
#include "parallel/interface/internal.h"

static z3d_status record_start(z3d_group *group, z3d_operation *operation) {
    z3d_operation_finish(group, operation);
    return Z3D_OK;
}

static void record_destroy(z3d_group *group) {
    (void)group;
}

const z3d_group_ops z3d_record_ops = {.name = "record",
                                      .on_stream = true,
                                      .start = record_start,
                                      .progress = NULL,
                                      .destroy = record_destroy};
