/* An SVG picture of a step on all ranks or pipeline stages: one row for each, time from left to
 * right. It draws the predicted step (price/) and the step of a run's trace (src/train/trace). */
#ifndef ZERO3D_PLAN_TIMELINE_PICTURE_H
#define ZERO3D_PLAN_TIMELINE_PICTURE_H

#include "zero/program.h"

/* The kinds of spans of a row. Waits are drawn over work. */
typedef enum z3d_timeline_kind {
    Z3D_TIMELINE_FORWARD,
    Z3D_TIMELINE_BACKWARD, /* or its input half; with recompute */
    Z3D_TIMELINE_WEIGHT,   /* the weight half of backward */
    Z3D_TIMELINE_OPTIMIZER,
    Z3D_TIMELINE_EXPOSED, /* waits for communication and copies */
    Z3D_TIMELINE_BUBBLE,  /* waits for another pipeline stage */
    Z3D_TIMELINE_KINDS
} z3d_timeline_kind;

/* Appends a text at x, y, in pixels; anchor: of SVG. Replaces the special characters of SVG,
 * because names may come from a file. */
void z3d_picture_text(z3d_string *out, double x, double y, const char *anchor, const char *text);

/* *out: the kind of span of an instruction; false: it is not drawn. */
bool z3d_timeline_kind_of(z3d_opcode opcode, z3d_timeline_kind *out);

typedef struct z3d_timeline_span {
    z3d_timeline_kind kind;
    int row, micro, chunk; /* micro, chunk: -1 if the span belongs to none */
    double begin, end;     /* seconds */
} z3d_timeline_span;

/* Seconds of all rows together; outside: in no instruction. The sum of the four is the whole
 * time. */
typedef struct z3d_timeline_shares {
    double compute, exposed, bubble, outside;
} z3d_timeline_shares;

typedef struct z3d_timeline_head {
    const char *title, *rows, *clock; /* rows, clock: the texts of the axes */
    const int *stage;                 /* by row, if rows are ranks: the rank's stage; NULL: rows are
                                         stages */
} z3d_timeline_head;

/* Writes a title: parameters, sizes, precision and schedule of a training. */
void z3d_timeline_title(const z3d_model *model, const z3d_mesh *mesh,
                        const z3d_program_config *program, z3d_string *out);

/* Add the spans of each row in the order of their begins. Adjacent spans of one kind, chunk and
 * micro-batch are drawn as one piece of work. finish appends the picture to `out` and frees it; out
 * NULL: only frees it. Errors: ERR_MEMORY. */
typedef struct z3d_timeline_picture z3d_timeline_picture;
z3d_status z3d_timeline_picture_create(int rows, double seconds, z3d_timeline_picture **out);
void z3d_timeline_picture_take(z3d_timeline_picture *picture, const z3d_timeline_span *span);
z3d_status z3d_timeline_picture_finish(z3d_timeline_picture *picture, const z3d_timeline_head *head,
                                       const z3d_timeline_shares *shares, z3d_string *out);

#endif
