/* The one place of these figures; tests compare them with the pages and with what they predict. */
#include "src/plan/price/accuracy.h"

#include <string.h>

const z3d_accuracy z3d_accuracies[Z3D_ACCURACIES] = {
    {"runs on a measured machine", 15, true, 2.8, 10.3, "docs/results/clock.md"},
    {"published runs of the ZeRO paper", 24, false, 7, 41, "docs/reproducing-the-paper.md"},
    {"published runs with offload", 11, false, 13, 42, "docs/results/offload-published.md"},
};

bool z3d_compared_find(const z3d_hardware *hardware, int ranks, z3d_compared *out) {
    const bool nodes = ranks > hardware->devices;
    if (z3d_hardware_is_cpu(hardware) && hardware->measured.count > 0) {
        *out = (z3d_compared){z3d_accuracies[0].count, 0.94, 1.07}; /* of the page's 15 runs */
        return !nodes;
    }
    *out =
        nodes ? (z3d_compared){(int)hardware->nodes_runs, hardware->nodes_low, hardware->nodes_high}
              : (z3d_compared){(int)hardware->node_runs, hardware->node_low, hardware->node_high};
    return out->runs > 0 && strcmp(hardware->compared, hardware->device) == 0;
}

void z3d_software_print(const z3d_hardware *hardware, z3d_string *out) {
    if (hardware->software[0])
        z3d_string_append(out, ", with the software %s%s", hardware->software,
                          hardware->standard ? " (the default; --software names another)" : "");
}

void z3d_compared_print(const z3d_hardware *hardware, int ranks, double seconds, z3d_string *out) {
    const char *where = ranks > hardware->devices ? "several nodes" : "one node";
    z3d_compared range;
    if (!z3d_compared_find(hardware, ranks, &range)) {
        z3d_string_append(out, "never compared with measured steps of this software on %s of %s\n",
                          where, hardware->device);
        return;
    }
    z3d_string_append(
        out,
        "measured steps of this kind: %.4g to %.4g s (%+.0f to %+.0f %%), as %s %d that "
        "were compared on %s\n",
        range.low * seconds, range.high * seconds, 100 * (range.low - 1), 100 * (range.high - 1),
        range.runs < Z3D_COMPARED_FEW ? "all" : "8 of 10 of", range.runs, where);
}
