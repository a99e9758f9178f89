/* Memory of this machine: how much it has, and how much is available. */
#ifndef ZERO3D_BASE_HOST_MEMORY_H
#define ZERO3D_BASE_HOST_MEMORY_H

#include <stdint.h>

typedef struct z3d_host_memory {
    int64_t nominal; /* memory of the machine, or the limit of a memory cgroup of this process, if
                        that is less; INT64_MAX: unknown. Does not depend on other processes */
    int64_t bytes;   /* available, for all processes together; INT64_MAX: unknown */
    char from[176];  /* for messages, after the bytes: "", or " (memory cgroup /a is limited to 8.00
                        GiB)" if that limit decides `bytes` */
} z3d_host_memory;

/* Reads them from the system. bytes: what the system can give without swapping, or what a memory
 * cgroup of this process (version 1 or 2) leaves, if that is less. */
void z3d_host_memory_find(z3d_host_memory *out);
/* The same for a system whose /proc and mount points are in the folder `root`. */
void z3d_host_memory_read(const char *root, z3d_host_memory *out);

#endif
