/* How far predictions have been off: the runs of ours and of others that were compared with them.
 */
#ifndef ZERO3D_PLAN_ACCURACY_H
#define ZERO3D_PLAN_ACCURACY_H

#include "src/device/sim/hardware.h"

typedef struct z3d_accuracy {
    const char *runs; /* which */
    int count;
    bool measured;       /* the machine was measured; else its description rests on estimates */
    double median, most; /* error of a step's time or speed, percent */
    const char *source;  /* the page that has them one by one */
} z3d_accuracy;

enum { Z3D_ACCURACIES = 3 };
extern const z3d_accuracy z3d_accuracies[Z3D_ACCURACIES];

/* Measured over predicted time of the compared steps that are nearest: of this software, on this
 * device, on one node or on several,
 * of like sizes. Of ten steps one is below `low` and one above `high`; of fewer
 * than Z3D_COMPARED_FEW none. */
enum { Z3D_COMPARED_FEW = 10 };
typedef struct z3d_compared {
    int runs;
    double low, high;
} z3d_compared;

/* The numbers of `compared` about steps on one node, or on several. */
typedef struct z3d_compared_class {
    double runs, low, high, ranks_least, ranks_most, billions_least, billions_most;
} z3d_compared_class;
void z3d_compared_set(z3d_hardware *hardware, bool nodes, const z3d_compared_class *to);

/* What of a run decides which compared steps are like it. */
typedef struct z3d_run_kind {
    int ranks;         /* of the world */
    int stage;         /* of ZeRO; one data rank: 0 */
    int pipeline;      /* stages */
    int offload;       /* as compared.offload says it */
    double parameters; /* of the model */
} z3d_run_kind;
int z3d_offload_kind(bool states, bool checkpoints);

/* Whether there are any: on as many nodes, with the sizes, the ZeRO stage and the offload that
 * `compared` of the software has; on a cpu machine without pipeline and offload. */
bool z3d_compared_find(const z3d_hardware *hardware, const z3d_run_kind *run, z3d_compared *out);
/* A line: between what times a step of `seconds` is; or that nothing like it was compared, and a
 * line with what is nearest. */
void z3d_compared_print(const z3d_hardware *hardware, const z3d_run_kind *run, double seconds,
                        z3d_string *out);
/* A line for each software that was compared with steps of this device, if this one was not. */
void z3d_compared_others_print(const z3d_hardware *hardware, z3d_string *out);
/* ", with the software Megatron-LM of 2025 (the default)"; nothing where none is named. */
void z3d_software_print(const z3d_hardware *hardware, z3d_string *out);

#endif
