/* The timelines that a run's ranks wrote (training.trace_steps), read back: a picture of one step,
 * and one timeline of all ranks. file.c reads a file, ranks.c compares all files of a run, step.c
 * finds what one step's time was, merge.c joins them. */
#ifndef ZERO3D_TRAIN_TRACE_H
#define ZERO3D_TRAIN_TRACE_H

#include "parallel/parallel.h"
#include "src/plan/timeline_picture.h"

/* ---- file.c ---- */

/* What a rank's timeline says of its run. */
typedef struct z3d_trace_head {
    char run[256];
    z3d_mesh mesh;
    int node, entries; /* entries: of the training step's program */
} z3d_trace_head;

/* An instruction of the training step, or a wait for a collective within the instruction that
 * follows it. -1: not about one. */
typedef struct z3d_trace_event {
    bool wait; /* for a collective */
    z3d_opcode opcode;
    z3d_phase phase;
    int64_t step;
    int entry, chunk, micro, ticket, peer;
    double begin, end; /* seconds on the clock of the rank's node */
} z3d_trace_event;

/* A line of a file that is an event. */
typedef struct z3d_trace_line {
    const z3d_json *json;         /* all of it */
    const z3d_trace_event *event; /* NULL: of another program, or a name of a row */
    double begin;                 /* seconds; 0: a name of a row */
} z3d_trace_line;

/* Calls `take` for each event of a timeline, in order; NULL: nobody wants them. A failure of `take`
 * ends it. Whole steps of training have all their instructions, one after the other; the last one
 * may end early. Errors: ERR_IO; ERR_DATA with file and line. */
z3d_status z3d_trace_read(const char *path, z3d_trace_head *head,
                          z3d_status (*take)(void *context, const z3d_trace_line *line),
                          void *context);

/* ---- ranks.c ---- */

/* A step of training: when its step_control ended (-1: not yet); whether it is whole. */
typedef struct z3d_trace_step {
    int64_t step;
    double control_end;
    bool whole;
} z3d_trace_step;

typedef struct z3d_trace_rank {
    z3d_trace_head head;
    int num_steps;
    z3d_trace_step *step;
    double first; /* begin of its first event */
    double ahead; /* seconds by which its clock is ahead of rank 0's */
} z3d_trace_rank;

typedef struct z3d_trace_run {
    const char *folder;
    int count, read; /* ranks; those that were read */
    z3d_trace_rank *rank;
    int64_t step; /* the one that is looked at */
    int cut;      /* the first rank whose timeline ends within a step; -1: none */
} z3d_trace_run;

/* Reads the timelines of all ranks of a run. step: 0: the last one that all ranks have. They must
 * be of one run. Clocks of nodes are set by the end of that step's step_control: the rank of each
 * node that leaves it first leaves it with rank 0's first. Release *out after a failure, too.
 * Errors: ERR_IO, ERR_DATA. */
z3d_status z3d_trace_run_read(const char *folder, int64_t step, z3d_trace_run *out);
void z3d_trace_run_release(z3d_trace_run *run);
/* FOLDER/trace-rank3.json; z3d_trace_read of it. */
z3d_status z3d_trace_read_rank(const z3d_trace_run *run, int rank, z3d_trace_head *head,
                               z3d_status (*take)(void *context, const z3d_trace_line *line),
                               void *context);

/* ---- step.c, merge.c ---- */

/* Where the step's time went on each rank, as text; its picture. picture NULL: none. Errors: as
 * z3d_trace_run_read's; ERR_MEMORY. */
z3d_status z3d_trace_step_report(const z3d_trace_run *run, z3d_string *text, z3d_string *picture);
/* All events of all ranks on one clock, in Chrome's trace format. Errors: the same. */
z3d_status z3d_trace_merge(const z3d_trace_run *run, z3d_string *out);

#endif
