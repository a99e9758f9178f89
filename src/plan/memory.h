/* Analyses a program's memory plan: the buffers that are alive at each instruction, the distance of
 * the packing from the lower bound, and the memory that allocators would take that see one request
 * after the other. */
#ifndef ZERO3D_PLAN_MEMORY_H
#define ZERO3D_PLAN_MEMORY_H

#include "src/plan/plan.h"

/* One program in one memory space; bytes. first_fit and caching are -1 if the program has more than
 * Z3D_COMPARED_BUFFERS buffers, because the search of free blocks would take minutes. */
enum { Z3D_COMPARED_BUFFERS = 30000 };
typedef struct z3d_packing {
    int64_t bound;     /* the largest sum of live bytes: no placement takes less */
    int peak;          /* the first instruction that has this sum */
    int64_t arena;     /* as planned: the end of the highest buffer */
    int64_t first_fit; /* the same requests, served in program order: lowest gap that is large
                          enough, freed neighbours merged, 256-byte granules */
    int64_t caching;   /* the same, by a caching allocator as deep-learning frameworks use: 512-byte
                          granules; small requests (to 1 MiB) from segments of 2 MiB, others below 10
                          MiB from segments of 20 MiB, larger ones from their own, in steps of 2 MiB;
                          the tightest free block is split (large: if more than 1 MiB is left); freed
                          neighbours of a segment merge, no segment is returned */
} z3d_packing;

/* Analyses one space of a program whose memory is planned. ERR_MEMORY. */
z3d_status z3d_plan_packing(const z3d_program *program, z3d_space space, z3d_packing *out);

/* Prints the training step's memory: for each space the bound, the bytes alive at it by category,
 * and how far the packing and the other allocators are above it. ERR_MEMORY. */
z3d_status z3d_plan_memory_print(const z3d_plan *plan, z3d_string *out);
/* Draws the arenas over the training step as an SVG picture: offsets against instructions, coloured
 * by category. ERR_MEMORY. */
z3d_status z3d_plan_picture(const z3d_plan *plan, z3d_string *out);

/* *out: bytes alive in `space` at every instruction of the program; the caller frees it.
 * ERR_MEMORY. */
z3d_status z3d_plan_live_bytes(const z3d_program *program, z3d_space space, int64_t **out);

#endif
