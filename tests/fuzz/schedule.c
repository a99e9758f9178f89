/* Fuzzes the reader of schedule files: any bytes are a schedule or are refused. What is read passes
 * the check, has times, and is read again from what is written of it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "parallel/schedule/schedule.h"

enum { STAGES = 2, CHUNKS = 4, MICROS = 2 };

static z3d_status read_bytes(const uint8_t *data, size_t size, z3d_schedule **out) {
    char path[64];
    int fd = memfd_create("schedule", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    z3d_status status = z3d_schedule_read(path, STAGES, CHUNKS, MICROS, out);
    close(fd);
    return status;
}

static void write_and_read(const z3d_schedule *schedule, z3d_schedule **out) {
    char path[64];
    int fd = memfd_create("schedule", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd < 0 || z3d_schedule_write(schedule, path) != Z3D_OK ||
        z3d_schedule_read(path, STAGES, CHUNKS, MICROS, out) != Z3D_OK)
        abort();
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const double cost[Z3D_PASS_COUNT] = {1, 2, 1, 1};
    double end[CHUNKS * MICROS * 3];
    z3d_schedule *schedule, *again;
    if (read_bytes(data, size, &schedule) != Z3D_OK) return 0;
    if (z3d_schedule_check(schedule) != Z3D_OK) abort();
    if (z3d_schedule_times(schedule, cost, 0, end) != Z3D_OK) abort();
    write_and_read(schedule, &again);
    size_t bytes = sizeof(z3d_task) * (size_t)schedule->first[STAGES];
    if (memcmp(schedule->first, again->first, sizeof(int) * (STAGES + 1)) != 0 ||
        memcmp(schedule->task, again->task, bytes) != 0)
        abort();
    z3d_schedule_destroy(schedule);
    z3d_schedule_destroy(again);
    return 0;
}
