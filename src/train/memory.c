/* What a rank holds outside the memory that the planner lays out. */
#include <stdio.h>

#include "src/train/trainer.h"

/* VmHWM; not getrusage's, which also counts what was there before exec. -1: unknown. */
static int64_t peak_resident(void) {
    char line[128];
    long long kilobytes = -1;
    FILE *file = fopen("/proc/self/status", "re");
    if (!file) return -1;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %lld kB", &kilobytes) == 1) break;
    fclose(file);
    return kilobytes < 0 ? -1 : kilobytes * 1024;
}

int64_t z3d_trainer_buffer_bytes(const z3d_trainer *trainer) {
    int64_t bytes = 0;
    for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++)
        if (trainer->group[axis]) bytes += z3d_group_buffer_bytes(trainer->group[axis]);
    return bytes;
}

static int64_t owned(const z3d_trainer *trainer) {
    int64_t bytes = z3d_trainer_buffer_bytes(trainer);
    for (int space = 0; space < Z3D_SPACE_COUNT; space++) {
        int64_t arena = 0;
        for (int mode = 0; mode < Z3D_MODE_COUNT; mode++) {
            const z3d_program *program = z3d_engine_program(trainer->engine, (z3d_mode)mode);
            if (program && program->arena[space] > arena) arena = program->arena[space];
        }
        bytes += arena;
    }
    return bytes;
}

int64_t z3d_trainer_outside_bytes(const z3d_trainer *trainer) {
    int64_t used = z3d_device_used_bytes(trainer->device);
    if (used >= 0) return used - z3d_engine_arena_bytes(trainer->engine);
    int64_t peak = peak_resident(), ours = owned(trainer);
    if (peak < 0) return -1;
    return peak > ours ? peak - ours : 0; /* pages that nothing has touched yet are not resident */
}
