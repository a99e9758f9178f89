/* Reads the timelines that a run's ranks wrote (training.trace_steps). file.c reads a file, ranks.c
 * compares all files of a run, step.c tells and draws how one step used its time, merge.c joins all
 * ranks in one timeline. No function here is collective. */
#ifndef ZERO3D_TRAIN_TRACE_H
#define ZERO3D_TRAIN_TRACE_H

#include "parallel/parallel.h"
#include "src/plan/timeline_picture.h"

/* ---- file.c ---- */

/* The head of a rank's timeline. */
typedef struct z3d_trace_head {
    char run[256];
    z3d_mesh mesh;
    int node, entries; /* entries: number of entries of the training step's program */
} z3d_trace_head;

/* An instruction of the training step. Or a wait for a collective inside an instruction; that
 * instruction's event follows. A number is -1 if the event has none. */
typedef struct z3d_trace_event {
    bool wait; /* a wait for a collective */
    z3d_opcode opcode;
    z3d_phase phase;
    int64_t step;
    int entry, chunk, micro, ticket, peer;
    double begin, end; /* seconds on the clock of the rank's node */
} z3d_trace_event;

/* A line of a file. */
typedef struct z3d_trace_line {
    const z3d_json *json;         /* the whole line */
    const z3d_trace_event *event; /* NULL: an event of another program, or the name of a row */
    double begin;                 /* seconds; 0: the name of a row */
} z3d_trace_line;

typedef z3d_status (*z3d_trace_taker)(void *context, const z3d_trace_line *line);

/* ---- ranks.c ---- */

/* A training step. control_end: when its step_control ended, -1: not reached. whole: the step is
 * complete. */
typedef struct z3d_trace_step {
    int64_t step;
    double control_end;
    bool whole;
} z3d_trace_step;

typedef struct z3d_trace_rank {
    z3d_trace_head head;
    int num_steps;
    int64_t capacity;
    z3d_trace_step *step;
    double first; /* when its first event began */
    double ahead; /* seconds by which its clock is ahead of rank 0's */
} z3d_trace_rank;

typedef struct z3d_trace_run {
    const char *folder;
    int count, read; /* ranks of the run; ranks that were read */
    int64_t capacity;
    z3d_trace_rank *rank;
    int64_t step; /* the step that is examined */
    int cut;      /* the first rank whose timeline ends inside a step; -1: none */
} z3d_trace_run;

/* Reads the timelines of all ranks; all must be of one run. step: the step to examine; 0: the last
 * one that all ranks have. The clocks of nodes are aligned at this step's step_control, a
 * collective of all ranks: the first rank of each node is assumed to leave it at the same moment.
 * Release *out also after a failure. Errors: ERR_IO, ERR_DATA. */
z3d_status z3d_trace_run_read(const char *folder, int64_t step, z3d_trace_run *out);
void z3d_trace_run_release(z3d_trace_run *run);
/* file.c. Reads *head of FOLDER/trace-rank<rank>.json and calls `take` for each line, in order; an
 * error of `take` ends the reading. Checks that every training step has all its instructions in
 * order; only the last step may be incomplete. Errors: ERR_IO; ERR_DATA with file and line; take's.
 */
z3d_status z3d_trace_read_rank(const z3d_trace_run *run, int rank, z3d_trace_head *head,
                               z3d_trace_taker take, void *context);

/* ---- step.c, merge.c ---- */

/* Appends a text that says how each rank used the step's time, and a picture (picture NULL: none).
 * Errors: z3d_trace_run_read's; ERR_MEMORY. */
z3d_status z3d_trace_step_report(const z3d_trace_run *run, z3d_string *text, z3d_string *picture);
/* Appends all events of all ranks on one clock, in Chrome's trace format. Errors: the same. */
z3d_status z3d_trace_merge(const z3d_trace_run *run, z3d_string *out);

#endif
