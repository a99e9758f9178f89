#ifndef ZERO3D_BASE_DISK_H
#define ZERO3D_BASE_DISK_H
#include "src/base/status.h"
#include <stdbool.h>
#include <stdint.h>
enum { Z3D_DISK_ALIGN = 4096 };
typedef struct z3d_disk z3d_disk;
typedef struct z3d_disk_config {
    const char *folder;
    int64_t bytes;
    int depth;
    bool threads;
} z3d_disk_config;
z3d_status z3d_disk_create(const z3d_disk_config *config, z3d_disk **out);
void z3d_disk_destroy(z3d_disk *disk);
z3d_status z3d_disk_start(z3d_disk *disk, bool write, int64_t offset, void *memory, int64_t bytes,
                          int64_t *ticket);
z3d_status z3d_disk_wait(z3d_disk *disk, int64_t ticket);
z3d_status z3d_disk_read(z3d_disk *disk, int64_t offset, void *memory, int64_t bytes);
z3d_status z3d_disk_write(z3d_disk *disk, int64_t offset, const void *memory, int64_t bytes);
#endif
