/* The resident memory of this process as the system counts it, divided by the use of each page. */
#ifndef ZERO3D_TRAIN_RESIDENT_H
#define ZERO3D_TRAIN_RESIDENT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* X(NAME, text) */
#define Z3D_RESIDENT_MAP(X)                                                                        \
    X(ARENAS, "arenas, as planned")                                                                \
    X(SNAPSHOT, "copy for asynchronous saves")                                                     \
    X(EXCHANGE, "communication buffers") /* the ranks of a node share them */                      \
    X(MPI, "MPI: libraries, shared memory")                                                        \
    X(LIBRARIES, "other libraries")                                                                \
    X(PROGRAM, "the program")                                                                      \
    X(FILES, "mapped files")                                                                       \
    X(HEAP, "heap and stacks") /* malloc of all code; code that the math library generates */

typedef enum z3d_resident_part {
#define X(NAME, text) Z3D_RESIDENT_##NAME,
    Z3D_RESIDENT_MAP(X)
#undef X
        Z3D_RESIDENT_COUNT
} z3d_resident_part;

const char *z3d_resident_name(z3d_resident_part part);

/* A stretch of addresses whose use is known. */
typedef struct z3d_stretch {
    const void *at;
    int64_t bytes;
    z3d_resident_part part;
} z3d_stretch;

typedef struct z3d_resident {
    int64_t bytes[Z3D_RESIDENT_COUNT]; /* resident now */
    int64_t sum;                       /* sum of bytes[] */
    int64_t system;                    /* VmRSS in /proc/self/status */
} z3d_resident;

/* The system counts in two ways: by mapping, and as one number that each thread updates in batches
 * of pages. They may differ by this much. */
enum { Z3D_RESIDENT_TOLERANCE = 4 << 20 };

/* Reads /proc/self/smaps and status. known[0 .. count-1]: stretches that belong to a part. False:
 * the system does not have these files. */
bool z3d_resident_read(const z3d_stretch *known, int count, z3d_resident *out);

/* A number of /proc/self/status, such as "VmHWM:", in bytes; -1: unknown. */
int64_t z3d_process_bytes(const char *name);

/* The first half of z3d_resident_read: sums the sizes in a text with the format of /proc/PID/smaps.
 * program: the path of the running program. False: no line has this format. */
bool z3d_resident_parse(FILE *smaps, const char *program, const z3d_stretch *known, int count,
                        z3d_resident *out);

#endif
