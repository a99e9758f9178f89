/* A picture of a step on all ranks or pipeline stages, as SVG: a row for each, time from left to
 * right. The predicted step (price/) and the one of a run's trace (src/train/trace) are drawn by
 * it. */
#ifndef ZERO3D_PLAN_TIMELINE_PICTURE_H
#define ZERO3D_PLAN_TIMELINE_PICTURE_H

#include "zero/program.h"

/* What a stretch of a row is. Waits lie over work. */
typedef enum z3d_timeline_kind {
    Z3D_TIMELINE_FORWARD,
    Z3D_TIMELINE_BACKWARD, /* or its input half; recompute */
    Z3D_TIMELINE_WEIGHT,   /* half of backward */
    Z3D_TIMELINE_OPTIMIZER,
    Z3D_TIMELINE_EXPOSED, /* waits for communication and copies */
    Z3D_TIMELINE_BUBBLE,  /* waits for another pipeline stage */
    Z3D_TIMELINE_KINDS
} z3d_timeline_kind;

/* What an instruction is drawn as; false: it is not drawn. */
bool z3d_timeline_kind_of(z3d_opcode opcode, z3d_timeline_kind *out);

typedef struct z3d_timeline_span {
    z3d_timeline_kind kind;
    int row, micro, chunk; /* micro, chunk: -1: not about one */
    double begin, end;     /* seconds */
} z3d_timeline_span;

/* Seconds of all rows together; outside: in no instruction. The four are all of their time. */
typedef struct z3d_timeline_shares {
    double compute, exposed, bubble, outside;
} z3d_timeline_shares;

typedef struct z3d_timeline_head {
    const char *title, *rows, *clock; /* rows, clock: what is along the axes */
    const int *stage;                 /* of each row, which is a rank; NULL: rows are stages */
} z3d_timeline_head;

/* The parameters, sizes, precision and schedule of a training: a title. */
void z3d_timeline_title(const z3d_model *model, const z3d_mesh *mesh,
                        const z3d_program_config *program, z3d_string *out);

/* Takes the spans of each row in the order of their begins: spans of one kind, chunk and
 * micro-batch that follow each other are one piece of work. finish appends the picture and frees
 * it; out NULL: only frees it. Errors: ERR_MEMORY. */
typedef struct z3d_timeline_picture z3d_timeline_picture;
z3d_status z3d_timeline_picture_create(int rows, double seconds, z3d_timeline_picture **out);
void z3d_timeline_picture_take(z3d_timeline_picture *picture, const z3d_timeline_span *span);
z3d_status z3d_timeline_picture_finish(z3d_timeline_picture *picture, const z3d_timeline_head *head,
                                       const z3d_timeline_shares *shares, z3d_string *out);

#endif
