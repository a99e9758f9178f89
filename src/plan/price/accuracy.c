/* The one place of these figures; tests compare them with the pages and with what they predict. */
#include "src/plan/price/accuracy.h"

const z3d_accuracy z3d_accuracies[Z3D_ACCURACIES] = {
    {"runs on a measured machine", 15, true, 2.8, 10.3, "docs/results/clock.md"},
    {"published runs of the ZeRO paper", 24, false, 7, 41, "docs/reproducing-the-paper.md"},
    {"published runs with offload", 11, false, 13, 44, "docs/results/offload-published.md"},
};
