/* Memory of this machine: that there is, and that can still be taken. */
#ifndef ZERO3D_BASE_HOST_MEMORY_H
#define ZERO3D_BASE_HOST_MEMORY_H

#include <stdint.h>

typedef struct z3d_host_memory {
    int64_t nominal; /* that the machine has, or a memory cgroup of this process may have, if that
                        is less; INT64_MAX: unknown. It does not depend on what else runs */
    int64_t bytes;   /* for all processes that share it; INT64_MAX: unknown */
    char from[176];  /* for messages, behind the bytes: "", or " (memory cgroup /a is limited to
                        8.00 GiB)" where that leaves less than the machine has */
} z3d_host_memory;

/* What the system can give without swapping, or what a memory cgroup of this process (version 1 or
 * 2) leaves, if that is less. */
void z3d_host_memory_find(z3d_host_memory *out);
/* The same of a system whose /proc and mount points are in the folder `root`. */
void z3d_host_memory_read(const char *root, z3d_host_memory *out);

#endif
