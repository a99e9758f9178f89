/* The numbers about accuracy. Tests compare them with the pages and with predictions. */
#include "src/plan/price/accuracy.h"

#include <string.h>

const z3d_accuracy z3d_accuracies[Z3D_ACCURACIES] = {
    {"runs on measured machines", 50, true, 5.6, 28.5, "docs/results/clock.md"},
    {"published runs of the ZeRO paper on V100s", 24, false, 6, 30,
     "docs/reproducing-the-paper.md"},
    {"published runs with offload on V100s", 11, false, 10, 32,
     "docs/results/offload-published.md"},
};

int z3d_offload_kind(bool states, bool checkpoints) {
    return states ? 2 : checkpoints ? 1 : 0;
}

/* The offset of a class's first number; the others follow it. */
static size_t place_of(bool nodes) {
    _Static_assert(
        offsetof(z3d_hardware, node_billions_most) ==
                offsetof(z3d_hardware, node_runs) + offsetof(z3d_compared_class, billions_most) &&
            offsetof(z3d_hardware, nodes_billions_most) ==
                offsetof(z3d_hardware, nodes_runs) + offsetof(z3d_compared_class, billions_most),
        "z3d_compared_class has the order of Z3D_HARDWARE_MAP");
    return nodes ? offsetof(z3d_hardware, nodes_runs) : offsetof(z3d_hardware, node_runs);
}

static z3d_compared_class compared_of(const z3d_hardware *hardware, bool nodes) {
    z3d_compared_class out;
    memcpy(&out, (const char *)hardware + place_of(nodes), sizeof out);
    return out;
}

void z3d_compared_set(z3d_hardware *hardware, bool nodes, const z3d_compared_class *to) {
    memcpy((char *)hardware + place_of(nodes), to, sizeof *to);
}

static bool has_several_nodes(const z3d_hardware *hardware, const z3d_run_kind *run) {
    return run->ranks > hardware->devices;
}

bool z3d_compared_find(const z3d_hardware *hardware, const z3d_run_kind *run, z3d_compared *out) {
    if (z3d_hardware_is_cpu(hardware)) {
        *out = (z3d_compared){z3d_accuracies[0].count, 0.87, 1.15}; /* of the page's 50 runs */
        return hardware->measured.count > 0 && !has_several_nodes(hardware, run);
    }
    const z3d_compared_class c = compared_of(hardware, has_several_nodes(hardware, run));
    const double billions = 1e-9 * run->parameters;
    *out = (z3d_compared){(int)c.runs, c.low, c.high};
    return c.runs > 0 && strcmp(hardware->compared, hardware->device) == 0 &&
           run->ranks >= c.ranks_least && run->ranks <= c.ranks_most &&
           billions >= c.billions_least && billions <= c.billions_most &&
           run->stage <= hardware->compared_stage && run->offload <= hardware->compared_offload;
}

void z3d_software_print(const z3d_hardware *hardware, z3d_string *out) {
    if (hardware->software[0])
        z3d_string_append(out, ", with the software %s%s", hardware->software,
                          hardware->standard ? " (the default; --software names another)" : "");
}

/* Prints the compared steps on as many nodes, or else the other ones. */
static void print_nearest(const z3d_hardware *hardware, bool nodes, z3d_string *out) {
    static const char *const offloads[] = {"no offload", "at most activation checkpoints offloaded",
                                           "offload"};
    z3d_compared_class c = compared_of(hardware, nodes);
    if (c.runs == 0) c = compared_of(hardware, !nodes);
    if (c.runs == 0) return;
    z3d_string_append(out, "  nearest: %s %d measured step%s of this software on ",
                      c.runs < Z3D_COMPARED_FEW ? "all" : "8 in 10 of", (int)c.runs,
                      z3d_plural((int64_t)c.runs));
    if (c.ranks_least < c.ranks_most) z3d_string_append(out, "%g to ", c.ranks_least);
    z3d_string_append(out,
                      "%g %s took %g to %g\n  times as long as predicted (%.3g to %.3g billion "
                      "parameters, ZeRO stage at most %g, %s)\n",
                      c.ranks_most, hardware->compared, c.low, c.high, c.billions_least,
                      c.billions_most, hardware->compared_stage,
                      offloads[(int)hardware->compared_offload]);
}

/* The number of measured steps of a software on this device. */
static int steps_of(const char *software, const z3d_hardware *hardware) {
    z3d_hardware other = *hardware;
    const z3d_compared_class none = {.low = 1, .high = 1};
    other.compared[0] = '\0';
    z3d_compared_set(&other, false, &none);
    z3d_compared_set(&other, true, &none);
    if (z3d_hardware_adjust(software, &other) != Z3D_OK ||
        strcmp(other.compared, hardware->device) != 0)
        return 0;
    return (int)(compared_of(&other, false).runs + compared_of(&other, true).runs);
}

void z3d_compared_others_print(const z3d_hardware *hardware, z3d_string *out) {
    if (z3d_hardware_is_cpu(hardware) || strcmp(hardware->compared, hardware->device) == 0) return;
    for (int i = 0; z3d_software_name(i); i++) {
        const char *name = z3d_software_name(i);
        const int steps = steps_of(name, hardware);
        if (steps > 0)
            z3d_string_append(out,
                              "--software %s was compared with %d measured steps of %s; %s "
                              "software was not\n",
                              name, steps, hardware->device,
                              hardware->standard ? "the default" : "this");
    }
}

void z3d_compared_print(const z3d_hardware *hardware, const z3d_run_kind *run, double seconds,
                        z3d_string *out) {
    const bool nodes = has_several_nodes(hardware, run);
    const char *where = nodes ? "several nodes" : "one node";
    z3d_compared range;
    if (!z3d_compared_find(hardware, run, &range)) {
        z3d_string_append(out, "never compared with measured steps of %s on %s of %s\n",
                          hardware->software[0] ? "this software" : "such a run", where,
                          hardware->device);
        if (!z3d_hardware_is_cpu(hardware)) print_nearest(hardware, nodes, out);
        return;
    }
    z3d_string_append(
        out,
        "measured steps of this kind: %.4g to %.4g s (%+.0f to %+.0f %%), the range of %s %d "
        "compared on %s\n",
        range.low * seconds, range.high * seconds, 100 * (range.low - 1), 100 * (range.high - 1),
        range.runs < Z3D_COMPARED_FEW ? "all" : "8 in 10 of", range.runs, where);
}
