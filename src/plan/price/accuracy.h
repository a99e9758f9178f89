/* How far predictions have been off: the runs of ours and of others that were compared with them.
 */
#ifndef ZERO3D_PLAN_ACCURACY_H
#define ZERO3D_PLAN_ACCURACY_H

#include <stdbool.h>

typedef struct z3d_accuracy {
    const char *runs; /* which */
    int count;
    bool measured;       /* the machine was measured; else its description rests on estimates */
    double median, most; /* error of a step's time or speed, percent */
    const char *source;  /* the page that has them one by one */
} z3d_accuracy;

enum { Z3D_ACCURACIES = 3 };
extern const z3d_accuracy z3d_accuracies[Z3D_ACCURACIES];

#endif
