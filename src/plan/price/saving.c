/* The time and bytes of a checkpoint on described hardware. */
#include "checkpoint/checkpoint.h"
#include "src/plan/price/estimate.h"

/* Number of nodes whose bytes are counted. If there are more, these are evenly spaced: they include
 * all pipeline stages, and shards of one stage differ only at the ends of tensors. */
enum { LOOKED_AT = 512 };

/* Whether a lower rank of its data group is on the same node, whose first rank is `first`. */
static bool has_peer_before(const z3d_mesh *mesh, int rank, int first) {
    int index = z3d_mesh_index(mesh, Z3D_ROLE_ROWS, rank);
    return index > 0 && z3d_mesh_member(mesh, Z3D_ROLE_ROWS, rank, index - 1) >= first;
}

/* Bytes that the ranks of node `node` move. If every data rank loads all states, the node reads
 * them only once from the disk. */
static z3d_status node_bytes(const z3d_case *of, int node, int devices, double *saved,
                             double *loaded) {
    const z3d_mesh *mesh = &of->mesh;
    int world = z3d_mesh_size(mesh, Z3D_AXES_WORLD);
    z3d_state state[Z3D_MAX_STATES];
    z3d_states_decide(&of->program, Z3D_ROLE_ROWS, INT64_MAX, true, false, state);
    bool all_rows = state[Z3D_STATE_OPTIMIZER].at.sharded == Z3D_AXES_NONE;
    int first = node * devices;
    *saved = *loaded = 0;
    for (int rank = first; rank < first + devices && rank < world; rank++) {
        z3d_mesh at = *mesh;
        double out, in;
        at.rank = rank;
        Z3D_TRY(z3d_checkpoint_bytes(of->model, &at, &of->program, of->begins, &out, &in));
        *saved += out;
        if (!all_rows || !has_peer_before(mesh, rank, first)) *loaded += in;
    }
    return Z3D_OK;
}

static double seconds_at(double bytes, double gb_per_s) {
    return gb_per_s > 0 ? bytes / (gb_per_s * 1e9) : -1;
}

/* Each value is written once. */
static double all_bytes(const z3d_case *of) {
    const double trained = (double)z3d_model_trained_count(of->model);
    const double frozen = (double)z3d_model_parameter_count(of->model) - trained;
    const int kinds = z3d_count_kinds(z3d_state_kinds(&of->program));
    return sizeof(float) * (kinds * trained + (of->begins ? 0 : frozen));
}

/* Training stands still until the checkpoint is on the disk; with checkpoint.async until the copy
 * is in host memory. */
static double stall_seconds(const z3d_case *of, const z3d_hardware *hardware, double save_seconds) {
    int64_t copied = 0;
    for (int s = 0; s < of->simulation->stages; s++)
        if (of->simulation->stage[s].snapshot > copied) copied = of->simulation->stage[s].snapshot;
    if (copied == 0) return save_seconds;
    const z3d_event copy = {.kind = Z3D_EVENT_COPY_START, .bytes = copied, .to = Z3D_SPACE_HOST};
    return z3d_hardware_copy(hardware, &copy, z3d_mesh_size(&of->mesh, Z3D_AXES_WORLD));
}

z3d_status z3d_saving_find(const z3d_case *of, const z3d_hardware *hardware, z3d_saving *out) {
    const int devices = (int)hardware->devices, world = z3d_mesh_size(&of->mesh, Z3D_AXES_WORLD);
    const int64_t nodes = ((int64_t)world + devices - 1) / devices;
    const int64_t looks = nodes < LOOKED_AT ? nodes : LOOKED_AT;
    *out = (z3d_saving){.bytes = all_bytes(of)};
    for (int64_t i = 0; i < looks; i++) {
        double saved, loaded;
        Z3D_TRY(node_bytes(of, (int)(i * nodes / looks), devices, &saved, &loaded));
        if (saved > out->node_saved) out->node_saved = saved;
        if (loaded > out->node_loaded) out->node_loaded = loaded;
    }
    out->save_seconds = seconds_at(out->node_saved, hardware->disk_write);
    out->load_seconds = seconds_at(out->node_loaded, hardware->disk_read);
    out->stall_seconds = stall_seconds(of, hardware, out->save_seconds);
    return Z3D_OK;
}
