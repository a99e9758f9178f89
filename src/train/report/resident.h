/* The memory of this process as the system counts it, by use of each page. */
#ifndef ZERO3D_TRAIN_RESIDENT_H
#define ZERO3D_TRAIN_RESIDENT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* X(NAME, text) */
#define Z3D_RESIDENT_MAP(X)                                                                        \
    X(ARENAS, "arenas, as planned")                                                                \
    X(SNAPSHOT, "copy for asynchronous saves")                                                     \
    X(EXCHANGE, "communication buffers") /* shared by the ranks of a node: also the others' */     \
    X(MPI, "MPI: libraries, shared memory")                                                        \
    X(LIBRARIES, "other libraries")                                                                \
    X(PROGRAM, "the program")                                                                      \
    X(FILES, "mapped files")                                                                       \
    X(HEAP, "heap and stacks") /* malloc: ours, MPI's, the math library's; code it generates */

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
    int64_t sum;                       /* of them */
    int64_t system;                    /* what /proc/self/statm says */
} z3d_resident;

/* The system counts in two ways: by mapping, and as one number that each thread updates in batches
 * of pages. They may differ by this much. */
enum { Z3D_RESIDENT_TOLERANCE = 4 << 20 };

/* False where the system does not say. */
bool z3d_resident_read(const z3d_stretch *known, int count, z3d_resident *out);

/* The first half of it: sums up a text as /proc/PID/smaps has it. program: the path of the running
 * program. False when it has no line that is understood. */
bool z3d_resident_parse(FILE *smaps, const char *program, const z3d_stretch *known, int count,
                        z3d_resident *out);

#endif
