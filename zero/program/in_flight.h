/* Private to zero/: the started entries of one program without a wait yet. They are sorted by what
 * they move and by column, so a start and a wait need not search all of them. */
#ifndef ZERO3D_ZERO_IN_FLIGHT_H
#define ZERO3D_ZERO_IN_FLIGHT_H

#include "zero/program.h"

typedef struct z3d_in_flight {
    const z3d_program *program;
    int count;
    int *before, *after; /* by entry: its neighbours in its list, -1: none; before -2: not there */
    int *first, *last;   /* by opcode and group: both ends of the list, -1: empty */
} z3d_in_flight;

z3d_status z3d_in_flight_create(const z3d_program *program, z3d_in_flight *out);
void z3d_in_flight_release(z3d_in_flight *flight);
void z3d_in_flight_add(z3d_in_flight *flight, int entry);
void z3d_in_flight_remove(z3d_in_flight *flight, int entry);
/* The one that moves some of the columns that `entry` moves, -1: none. */
int z3d_in_flight_overlap(const z3d_in_flight *flight, int entry);
/* The first started one that `wait` is for: the same operands, buffers included where `buffers`.
 * -1: none. */
int z3d_in_flight_find(const z3d_in_flight *flight, int wait, bool buffers);
/* The one that stands first in the program, -1: none. */
int z3d_in_flight_first(const z3d_in_flight *flight);

#endif
