/* Pipeline stages: the units of each chunk, and the times at which its passes end. */
#ifndef ZERO3D_ZERO_PIPELINE_H
#define ZERO3D_ZERO_PIPELINE_H

#include "zero/program/config.h"

/* The quantity that chunks share evenly. */
typedef enum z3d_balance {
    Z3D_BALANCE_TIME,       /* time: FLOPs, and bytes moved, of the recordings */
    Z3D_BALANCE_PARAMETERS, /* parameters */
    Z3D_BALANCE_UNIFORM     /* units */
} z3d_balance;

/* Sets pipeline.first_unit of `config`, whose other fields are decided, for so many stages: the
 * largest chunk, relative to its stage's speed, is as small as possible. speed: of each stage;
 * NULL: equal. Pure. Errors: ERR_CONFIG, also for a stage without which the others would be faster,
 * ERR_MEMORY, ERR_PROGRAM. */
z3d_status z3d_partition_units(const z3d_model *model, int stages, z3d_balance balance,
                               const double *speed, z3d_program_config *config);

/* When passes end if each takes its usual time, by chunk x micros + micro-batch. */
typedef struct z3d_timetable {
    const z3d_schedule *schedule; /* `made`, or the user's own */
    z3d_schedule *made;
    double *forward_end;
    double *gradient_end; /* of a whole backward, or of its input half; NULL: one stage */
} z3d_timetable;

typedef struct z3d_timetables {
    z3d_timetable train, forward; /* forward: for all other modes */
} z3d_timetables;

/* Errors: ERR_CONFIG, as z3d_schedule_create; ERR_MEMORY. */
z3d_status z3d_timetables_create(const z3d_program_config *config, int stages,
                                 z3d_timetables **out);
void z3d_timetables_destroy(z3d_timetables *timetables);

#endif
