/* The time and bytes of a checkpoint on described hardware. */
#include "checkpoint/checkpoint.h"
#include "src/plan/price/estimate.h"

/* Whether another rank of its data group comes before it on its node, which begins with rank
 * `first`. */
static bool has_peer_before(const z3d_mesh *mesh, int rank, int first) {
    int index = z3d_mesh_index(mesh, Z3D_ROLE_ROWS, rank);
    return index > 0 && z3d_mesh_member(mesh, Z3D_ROLE_ROWS, rank, index - 1) >= first;
}

/* What the ranks of node `node` move. States that all data ranks keep are read by each of them, but
 * only once from the disk. */
static z3d_status node_bytes(const z3d_case *of, int node, int devices, double *saved,
                             double *loaded) {
    const z3d_mesh *mesh = &of->mesh;
    int world = z3d_mesh_size(mesh, Z3D_AXES_WORLD);
    z3d_state state[Z3D_STATE_COUNT];
    z3d_states_decide(&of->program, INT64_MAX, true, false, state);
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

z3d_status z3d_saving_find(const z3d_case *of, const z3d_hardware *hardware, z3d_saving *out) {
    int devices = (int)hardware->devices, world = z3d_mesh_size(&of->mesh, Z3D_AXES_WORLD);
    *out = (z3d_saving){0};
    for (int node = 0; node * (int64_t)devices < world; node++) {
        double saved, loaded;
        Z3D_TRY(node_bytes(of, node, devices, &saved, &loaded));
        out->bytes += saved;
        if (saved > out->node_saved) out->node_saved = saved;
        if (loaded > out->node_loaded) out->node_loaded = loaded;
    }
    out->save_seconds = seconds_at(out->node_saved, hardware->disk_write);
    out->load_seconds = seconds_at(out->node_loaded, hardware->disk_read);
    return Z3D_OK;
}
