/* The accuracy of predictions: comparisons with our runs and with published runs. */
#ifndef ZERO3D_PLAN_ACCURACY_H
#define ZERO3D_PLAN_ACCURACY_H

#include "src/device/sim/hardware.h"

typedef struct z3d_accuracy {
    const char *runs; /* which runs */
    int count;
    bool measured;       /* the machine was measured; else its description rests on estimates */
    double median, most; /* error of a step's time or speed, percent */
    const char *source;  /* the page with each run */
} z3d_accuracy;

enum { Z3D_ACCURACIES = 3 };
extern const z3d_accuracy z3d_accuracies[Z3D_ACCURACIES];

/* Measured over predicted time of the compared steps that are most like a run: the same software
 * and device, one node or several, similar sizes. One step of ten is below `low`, one above `high`;
 * with fewer than Z3D_COMPARED_FEW steps none. */
enum { Z3D_COMPARED_FEW = 10 };
typedef struct z3d_compared {
    int runs;
    double low, high;
} z3d_compared;

/* The numbers of `compared` in a software's file, for steps on one node or on several. */
typedef struct z3d_compared_class {
    double runs, low, high, ranks_least, ranks_most, billions_least, billions_most;
} z3d_compared_class;
void z3d_compared_set(z3d_hardware *hardware, bool nodes, const z3d_compared_class *to);

/* The properties of a run that decide which compared steps are like it. */
typedef struct z3d_run_kind {
    int ranks;         /* of the world */
    int stage;         /* of ZeRO; one data rank: 0 */
    int offload;       /* z3d_offload_kind */
    double parameters; /* of the model */
} z3d_run_kind;
int z3d_offload_kind(bool states, bool checkpoints);

/* Whether compared steps are like this run, and their numbers. They are in the ranges of nodes,
 * sizes, ZeRO stage and offload in the software's `compared`; on a cpu machine that was measured,
 * all runs on one node. */
bool z3d_compared_find(const z3d_hardware *hardware, const z3d_run_kind *run, z3d_compared *out);
/* Appends a line with the likely range of a step of `seconds`; or a line that no such step was
 * compared, and a line with the nearest ones. */
void z3d_compared_print(const z3d_hardware *hardware, const z3d_run_kind *run, double seconds,
                        z3d_string *out);
/* Appends a line for each software that was compared with steps of this device, if this software
 * was not. */
void z3d_compared_others_print(const z3d_hardware *hardware, z3d_string *out);
/* Appends ", with the software Megatron-LM of 2025 (the default)"; nothing without a name. */
void z3d_software_print(const z3d_hardware *hardware, z3d_string *out);

#endif
