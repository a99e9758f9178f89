/* Pipeline stages: which units each chunk has, and when its passes end. */
#ifndef ZERO3D_ZERO_PIPELINE_H
#define ZERO3D_ZERO_PIPELINE_H

#include "zero/program/config.h"

/* What the chunks have about as much of. */
typedef enum z3d_balance {
    Z3D_BALANCE_TIME, /* chunks take about as long: FLOPs, and bytes moved, of the recordings */
    Z3D_BALANCE_PARAMETERS, /* chunks have about as many parameters */
    Z3D_BALANCE_UNIFORM     /* chunks have as many units */
} z3d_balance;

/* Sets pipeline.first_unit of `config`, whose other fields are decided, for so many stages: the
 * chunk with most, for its stage's speed, has as little as possible. speed: of each stage; NULL:
 * they are equal. Pure. Errors: ERR_CONFIG, also for a stage so slow that the others were faster
 * without it, ERR_MEMORY, ERR_PROGRAM. */
z3d_status z3d_partition_units(const z3d_model *model, int stages, z3d_balance balance,
                               const double *speed, z3d_program_config *config);

/* The moments at which passes end if each takes its usual time, by chunk x micros + micro-batch. */
typedef struct z3d_timetable {
    const z3d_schedule *schedule; /* made, or the user's own */
    z3d_schedule *made;
    double *forward_end;
    double *gradient_end; /* of a whole backward, or of its input half; NULL: there is one stage */
} z3d_timetable;

typedef struct z3d_timetables {
    z3d_timetable train, forward; /* forward: of the other modes */
} z3d_timetables;

/* For so many stages. Errors: ERR_CONFIG, as z3d_schedule_create. */
z3d_status z3d_timetables_create(const z3d_program_config *config, int stages,
                                 z3d_timetables **out);
void z3d_timetables_destroy(z3d_timetables *timetables);

#endif
