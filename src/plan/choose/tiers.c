/* plan --fit and --recommend: the places of optimizer states and parameters, and the least time
 * that host and disk take for them. */
#include <math.h>

#include "src/plan/choose/ways.h"

#define OPTIMIZER "zero_optimization.offload_optimizer"
#define PARAM "zero_optimization.offload_param"

const char z3d_tiers_folder[] = "/local_nvme";

/* ---- the places ---- */

static bool is_offered(const z3d_ways *w, int device) {
    const z3d_hardware *h = w->hardware;
    bool cpu = z3d_hardware_is_cpu(h), stepped = cpu || h->host_optimizer > 0;
    if (device == Z3D_OFFLOAD_DEVICE_NONE) return true;
    if (device == Z3D_OFFLOAD_DEVICE_CPU) return stepped && !cpu;
    return stepped && h->nvme_read > 0 && h->nvme_write > 0;
}

/* written: the device that the configuration sets; -1: none. */
static bool is_tried(const z3d_ways *w, int written, int device) {
    return written < 0 ? is_offered(w, device) : device == written;
}

static int written_device(const z3d_config *config, const char *path, int device) {
    return z3d_config_is_set(config, path) ? device : -1;
}

z3d_status z3d_tiers_find(z3d_ways *w) {
    const z3d_config *c = w->config;
    const int optimizer = written_device(c, OPTIMIZER ".device",
                                         c->zero_optimization_offload_optimizer_device),
              param = written_device(c, PARAM ".device", c->zero_optimization_offload_param_device);
    for (int p = Z3D_OFFLOAD_DEVICE_NONE; p <= Z3D_OFFLOAD_DEVICE_NVME; p++)
        for (int o = Z3D_OFFLOAD_DEVICE_NONE; o <= Z3D_OFFLOAD_DEVICE_NVME; o++) {
            bool both = optimizer >= 0 && param >= 0;
            if ((o >= p || both) && is_tried(w, optimizer, o) && is_tried(w, param, p))
                w->tiers[w->num_tiers++] = (z3d_fit_tiers){o, p};
        }
    w->tiers_written = optimizer >= 0 || param >= 0;
    const double ratio = c->zero_optimization_offload_optimizer_ratio;
    w->all = z3d_is_auto(ratio) || ratio == 1;
    if (w->num_tiers > 0) return Z3D_OK;
    return z3d_config_error(c, PARAM ".device",
                            "in training " OPTIMIZER " must be at least as far, and the machine's "
                            "description lacks what prices that; write " OPTIMIZER ".device, too");
}

/* If the optimizer is offloaded, parameters on the device are copied back to it at the end of the
 * step. Parameters in host memory are copied when they are used, beside compute, which may be
 * faster. */
bool z3d_tiers_no_slower(z3d_fit_tiers a, z3d_fit_tiers b) {
    bool none = a.optimizer == Z3D_OFFLOAD_DEVICE_NONE;
    if (a.parameters == Z3D_OFFLOAD_DEVICE_NONE && b.parameters != Z3D_OFFLOAD_DEVICE_NONE)
        return none;
    return a.optimizer <= b.optimizer && a.parameters <= b.parameters;
}

/* ---- keys ---- */

/* other: the path of the other block; a rank has one file for both. */
static z3d_status set_folder(z3d_config *config, const char *path, const char *now, bool needed,
                             const char *other) {
    z3d_string assignment = {0};
    if (needed == (*now != '\0')) return Z3D_OK;
    z3d_string_append(&assignment, "%s=%s", path, !needed ? "" : *other ? other : z3d_tiers_folder);
    z3d_status status = assignment.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for a key")
                                          : z3d_config_override(config, assignment.text);
    z3d_string_free(&assignment);
    return status;
}

z3d_status z3d_tiers_apply(z3d_config *c, z3d_fit_tiers tiers) {
    c->zero_optimization_offload_optimizer_device = tiers.optimizer;
    c->zero_optimization_offload_param_device = tiers.parameters;
    Z3D_TRY(set_folder(c, OPTIMIZER ".nvme_path", c->zero_optimization_offload_optimizer_nvme_path,
                       tiers.optimizer == Z3D_OFFLOAD_DEVICE_NVME,
                       c->zero_optimization_offload_param_nvme_path));
    return set_folder(c, PARAM ".nvme_path", c->zero_optimization_offload_param_nvme_path,
                      tiers.parameters == Z3D_OFFLOAD_DEVICE_NVME,
                      c->zero_optimization_offload_optimizer_nvme_path);
}

/* ---- time ---- */

/* All ranks of a node share its cores and disks. */
static double shared(const z3d_ways *w, double bytes, double rate) {
    return rate > 0 ? bytes * z3d_hardware_node_ranks(w->hardware, w->ranks) / (rate * 1e9) : 0;
}

static double disk(const z3d_ways *w, double read, double write) {
    read = shared(w, read, w->hardware->nvme_read);
    write = shared(w, write, w->hardware->nvme_write);
    return w->hardware->nvme_duplex > 0 ? fmax(read, write) : read + write;
}

double z3d_tiers_step(const z3d_ways *w, z3d_fit_tiers tiers, double bytes) {
    const z3d_hardware *h = w->hardware;
    if (tiers.optimizer == Z3D_OFFLOAD_DEVICE_NONE) return 0;
    double step = z3d_hardware_is_cpu(h) ? 0 : shared(w, 2 * bytes, h->host_optimizer);
    return tiers.optimizer == Z3D_OFFLOAD_DEVICE_CPU ? step : fmax(step, disk(w, bytes, bytes));
}

double z3d_tiers_copies(const z3d_ways *w, z3d_fit_copies bytes) {
    const z3d_event copy = {.from = Z3D_SPACE_HOST, .bytes = (int64_t)bytes.link};
    return fmax(z3d_hardware_copy(w->hardware, &copy, w->ranks), disk(w, bytes.read, bytes.write));
}
