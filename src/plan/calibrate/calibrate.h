/* A description of software from measured steps: a CSV file with a line for each step that somebody
 * has measured, at most three numbers that are fitted on them, and the error on lines that a fit
 * did not see. */
#ifndef ZERO3D_PLAN_CALIBRATE_H
#define ZERO3D_PLAN_CALIBRATE_H

#include "src/plan/price/estimate.h"

enum { Z3D_CALIBRATED_MOST = 3, Z3D_STEPS_LEAST = 4, Z3D_STEPS_MOST = 1000 };

typedef struct z3d_measured_step {
    z3d_case *of;
    double seconds;
} z3d_measured_step;

typedef struct z3d_measured_steps {
    int count;
    z3d_measured_step *step;
} z3d_measured_steps;

/* Adds a step that `config` took on so many ranks. Errors: ERR_CONFIG: too many, or `seconds` is
 * not from 1e-6 to 1e6; those of z3d_choose_nodes and z3d_case_create. */
z3d_status z3d_measured_steps_add(z3d_config *config, const z3d_hardware *hardware, int ranks,
                                  double seconds, z3d_measured_steps *to);
/* Adds those of `path`: a header that names columns, then a line for each step. Columns: `ranks`,
 * `seconds` and keys of the configuration, some of which have a short name; what is no column
 * stands in `config`. Two columns of one meaning are an error.
 * Errors: ERR_CONFIG with path and line; those of z3d_measured_steps_add. */
z3d_status z3d_measured_steps_read(const z3d_config *config, const z3d_hardware *hardware,
                                   const char *path, z3d_measured_steps *to);
void z3d_measured_steps_free(z3d_measured_steps *steps);

/* Of all software of configs/software on this machine the one that predicts the steps best; its
 * name in *name. */
z3d_status z3d_nearest_software(const z3d_measured_steps *steps, z3d_hardware *hardware,
                                const char **name);

typedef struct z3d_calibration {
    int steps, rows; /* rows: steps of one configuration are one, with their mean time */
    int count;       /* of fitted numbers */
    const char *path[Z3D_CALIBRATED_MOST];
    double value[Z3D_CALIBRATED_MOST];
    /* Mean absolute errors of the predicted times: as the software was, as it is fitted on all
     * rows, and of each half of the rows with numbers fitted on the other half. */
    double before, fitted, unseen;
} z3d_calibration;

/* Fits `hardware` and says in it how far measured steps are from predicted ones, and of what kind
 * they are (the keys of compared); a class of fewer than Z3D_STEPS_LEAST rows is never compared. A
 * number is fitted if so many rows depend on it. Errors: ERR_CONFIG: fewer rows than that, or a
 * mean error on unseen rows above 50 %. */
z3d_status z3d_calibrate(const z3d_measured_steps *steps, z3d_hardware *hardware,
                         z3d_calibration *out);
void z3d_calibration_print(const z3d_calibration *calibration, z3d_string *out);

#endif
