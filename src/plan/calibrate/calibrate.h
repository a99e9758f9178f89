/* Fits a description of software to measured steps: a CSV file has a line for each measured step;
 * at most three numbers are fitted; the error is told for lines that the fit did not use. */
#ifndef ZERO3D_PLAN_CALIBRATE_H
#define ZERO3D_PLAN_CALIBRATE_H

#include "src/base/csv.h"
#include "src/plan/price/estimate.h"

/* Rows of a table as configurations: a column is a key, or a short name of one. */

/* Short names of columns become those of their keys. ERR_CONFIG if two columns mean the same. */
z3d_status z3d_row_name_keys(z3d_csv *csv);
/* Sets the key of a column to its value in the current row; an empty field changes nothing. */
z3d_status z3d_row_assign(const z3d_csv *csv, int column, z3d_config *config);
/* Reads the number of ranks in this column. */
z3d_status z3d_row_ranks(const z3d_csv *csv, int column, int *out);
/* Puts file and line before the message of an error without them; returns `status`. */
z3d_status z3d_row_context(const z3d_csv *csv, z3d_status status);

enum { Z3D_CALIBRATED_MOST = 3, Z3D_STEPS_LEAST = 4, Z3D_STEPS_MOST = 1000 };

typedef struct z3d_measured_step {
    z3d_case *of;
    double seconds;
} z3d_measured_step;

typedef struct z3d_measured_steps {
    int count;
    z3d_measured_step *step;
} z3d_measured_steps;

/* Adds a step of `config` on `ranks` ranks that took `seconds`. Errors: ERR_CONFIG: too many, or
 * `seconds` is not from 1e-6 to 1e6; those of z3d_choose_nodes and z3d_case_create. */
z3d_status z3d_measured_steps_add(z3d_config *config, const z3d_hardware *hardware, int ranks,
                                  double seconds, z3d_measured_steps *to);
/* Adds the steps of the CSV file `path`: a header with the columns' names, then a line for each
 * step. Columns: `ranks`, `seconds` and keys of the configuration, some with a short name. Keys
 * without a column have their value from `config`. Two columns of one meaning are an error. Errors:
 * ERR_CONFIG with path and line; those of z3d_measured_steps_add. */
z3d_status z3d_measured_steps_read(const z3d_config *config, const z3d_hardware *hardware,
                                   const char *path, z3d_measured_steps *to);
void z3d_measured_steps_free(z3d_measured_steps *steps);

/* Finds the software of configs/software that predicts the steps best on this machine and applies
 * it to `hardware`; *name is its name. */
z3d_status z3d_nearest_software(const z3d_measured_steps *steps, z3d_hardware *hardware,
                                const char **name);

typedef struct z3d_calibration {
    int steps, rows; /* rows: all steps of one configuration are one row, with their mean time */
    int count;       /* of fitted numbers */
    const char *path[Z3D_CALIBRATED_MOST];
    double value[Z3D_CALIBRATED_MOST];
    /* Mean absolute errors of the predicted times: before: with the software as given; fitted: with
     * the numbers fitted on all rows; unseen: of each half of the rows, with numbers fitted on the
     * other half. */
    double before, fitted, unseen;
} z3d_calibration;

/* Fits numbers of `hardware`, and sets its keys of `compared`: how far measured steps are from
 * predicted ones, and the kinds of these steps. A class of fewer than Z3D_STEPS_LEAST rows is not
 * compared; a number on which fewer rows depend is not fitted. Errors: ERR_CONFIG: fewer rows than
 * that in all, or a mean error on unseen rows above 50 %. */
z3d_status z3d_calibrate(const z3d_measured_steps *steps, z3d_hardware *hardware,
                         z3d_calibration *out);
void z3d_calibration_print(const z3d_calibration *calibration, z3d_string *out);

#endif
