/* The table of pipeline schedules. A new one is a row here and its generator in parallel/schedule/:
 * the configuration's key, its checks and messages, and the searches of zero3d plan follow. In this
 * header, stage means pipeline stage. */
#ifndef ZERO3D_BASE_PIPELINE_SCHEDULES_H
#define ZERO3D_BASE_PIPELINE_SCHEDULES_H

#include <stdbool.h>
#include <stdint.h>

enum { Z3D_MAX_CHUNKS = 1024 }; /* of all stages together */

/* X(NAME, name, least, most, chunks, rounds, halves, places, all, bubble):
 *   name: the value of parallel.pipeline_schedule.
 *   least, most, chunks: the chunks per stage, in numbers and in words.
 *   rounds: the number of micro-batches must be a multiple of the stages.
 *   halves: backward may be cut into input and weight gradients.
 *   places: the stage of chunk c. ROUND: c mod stages; V: down the stages and up again.
 *   all: a stage may hold all micro-batches of a step at once, so searches do not try it.
 *   bubble: a stage waits for at least (stages - 1) / (bubble x chunks per stage) micro-batches'
 *   work (docs/pipelines.md; a weight half is at most a third of this work, a forward at least a
 *   quarter); 0: unknown.
 * `auto` is the first row that has the chunks per stage. */
#define Z3D_SCHEDULE_MAP(X)                                                                        \
    X(1F1B, "1f1b", 1, 1, "1", false, false, ROUND, false, 1)                                      \
    X(GPIPE, "gpipe", 1, 1, "1", false, false, ROUND, true, 1)                                     \
    X(INTERLEAVED, "interleaved", 2, Z3D_MAX_CHUNKS, "2 or more", true, false, ROUND, false, 1)    \
    X(ZB_H1, "zb-h1", 1, 1, "1", false, true, ROUND, false, 3)                                     \
    X(ZB_V, "zb-v", 2, 2, "2", false, true, V, false, 4)                                           \
    X(FILE, "file", 1, Z3D_MAX_CHUNKS, "any number", false, true, ROUND, true, 0)

typedef enum z3d_schedule_kind {
#define X(NAME, ...) Z3D_SCHEDULE_##NAME,
    Z3D_SCHEDULE_MAP(X)
#undef X
        Z3D_SCHEDULE_COUNT
} z3d_schedule_kind;

/* The rule of parallel.pipeline_schedule, and what virtual_pipeline_model_parallel_size says. */
#define Z3D_SCHEDULE_OPTION(NAME, name, ...) "|" name
#define Z3D_SCHEDULE_RULE "auto" Z3D_SCHEDULE_MAP(Z3D_SCHEDULE_OPTION)
#define Z3D_SCHEDULE_HAS(NAME, name, least, most, chunks, ...) "; " name " has " chunks
#define Z3D_SCHEDULE_CHUNKS Z3D_SCHEDULE_MAP(Z3D_SCHEDULE_HAS)

typedef struct z3d_schedule_row {
    const char *name;
    int least, most;
    const char *chunks;
    bool rounds, halves, v, all;
    double bubble;
} z3d_schedule_row;

const z3d_schedule_row *z3d_schedule_row_of(z3d_schedule_kind kind);
const char *z3d_schedule_name(z3d_schedule_kind kind); /* "?": there is no such kind */
bool z3d_schedule_has_chunks(z3d_schedule_kind kind, int64_t each);
/* The number of micro-batches is a multiple of this. */
int64_t z3d_schedule_round(z3d_schedule_kind kind, int64_t stages);
/* The schedule that a value of the key means: 0 is auto, else it is kind + 1. */
z3d_schedule_kind z3d_schedule_of_key(int64_t value, int64_t each);

typedef struct z3d_schedule_text {
    char text[96];
} z3d_schedule_text;
/* "zb-v has 2 chunks per pipeline stage" */
z3d_schedule_text z3d_schedule_chunks_text(z3d_schedule_kind kind);
/* "interleaved on 4 pipeline stages needs a multiple of 4 micro-batches" */
z3d_schedule_text z3d_schedule_round_text(z3d_schedule_kind kind, int64_t stages);
/* The generated schedules that have so many chunks per stage (0: any number); whole: without halves
 * of backwards. "interleaved or zb-v" */
z3d_schedule_text z3d_schedule_choices(int64_t each, bool whole);

#endif
