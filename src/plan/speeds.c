/* Turns the ranks' speeds into shares of the work: units along the pipeline, samples along data. */
#include <stdlib.h>

#include "src/plan/plan.h"

void z3d_plan_speeds_release(z3d_plan_speeds *speeds) {
    free(speeds->stage);
    free(speeds->data);
    *speeds = (z3d_plan_speeds){0};
}

static void keep_slower(double *slowest, double speed) {
    if (*slowest == 0 || speed < *slowest) *slowest = speed;
}

/* A pipeline's ranks wait for each other. If slow stages have fewer units, a rank's speed counts
 * relative to the slowest rank of its stage. */
static z3d_status place(const z3d_config *config, const double *speed, int ranks,
                        z3d_plan_speeds *out) {
    z3d_mesh mesh;
    int unused;
    bool listed = z3d_config_partition(config, NULL, 0, &unused) == Z3D_PARTITION_LIST;
    Z3D_TRY(z3d_plan_mesh(config, ranks, 0, &mesh));
    const int stages = z3d_mesh_size(&mesh, Z3D_ROLE_STAGES);
    out->data_size = z3d_mesh_size(&mesh, Z3D_ROLE_SAMPLES);
    Z3D_TRY(z3d_new((size_t)stages, sizeof *out->stage, "speeds", &out->stage));
    Z3D_TRY(z3d_new((size_t)out->data_size, sizeof *out->data, "speeds", &out->data));
    for (int r = 0; r < ranks; r++)
        keep_slower(&out->stage[z3d_mesh_index(&mesh, Z3D_ROLE_STAGES, r)], speed[r]);
    for (int r = 0; r < ranks; r++) {
        double stage = out->stage[z3d_mesh_index(&mesh, Z3D_ROLE_STAGES, r)];
        keep_slower(&out->data[z3d_mesh_index(&mesh, Z3D_ROLE_SAMPLES, r)],
                    listed ? speed[r] : speed[r] / stage);
    }
    return Z3D_OK;
}

z3d_status z3d_plan_speeds_find(const z3d_config *config, z3d_plan_speeds *out) {
    double *speed = NULL;
    int ranks;
    *out = (z3d_plan_speeds){0};
    if (z3d_config_device_speeds(config, NULL, 0, &ranks) != Z3D_SPEEDS_LIST) return Z3D_OK;
    Z3D_TRY(z3d_new((size_t)ranks, sizeof *speed, "speeds", &speed));
    (void)z3d_config_device_speeds(config, speed, ranks, &ranks);
    z3d_status status = place(config, speed, ranks, out);
    if (status != Z3D_OK) z3d_plan_speeds_release(out);
    free(speed);
    return status;
}

int z3d_plan_largest_share(const z3d_program_config *program, const z3d_mesh *mesh) {
    int best = 0, data = z3d_mesh_size(mesh, Z3D_ROLE_SAMPLES);
    int64_t most = 0;
    for (int i = 0; i < data && program->first_sample; i++) {
        z3d_mesh at = *mesh;
        at.rank = z3d_mesh_member(mesh, Z3D_ROLE_SAMPLES, 0, i);
        if (z3d_samples_of(program, &at) <= most) continue;
        most = z3d_samples_of(program, &at);
        best = at.rank;
    }
    return best;
}

/* Finds the least micro-batch that gives the rank a sample: with it every other rank has as many
 * samples as it computes in the time of this rank's one. */
static z3d_status refuse_shares(const z3d_config *config, const z3d_plan_speeds *speeds,
                                int64_t samples) {
    int slowest = 0;
    int64_t enough = 0;
    for (int d = 1; d < speeds->data_size; d++)
        if (speeds->data[d] < speeds->data[slowest]) slowest = d;
    for (int d = 0; d < speeds->data_size; d++)
        enough += (int64_t)(speeds->data[d] / speeds->data[slowest]);
    return z3d_config_error(
        config, "parallel.device_speeds",
        "data rank %d is too slow for even one of a micro-batch's %lld samples; write "
        "train_micro_batch_size_per_gpu %lld or more, or leave its ranks out",
        slowest, (long long)samples,
        (long long)((enough + speeds->data_size - 1) / speeds->data_size));
}

z3d_status z3d_plan_shares(const z3d_config *config, const z3d_plan_speeds *speeds,
                           z3d_program_config *out) {
    int64_t *first = NULL, samples = out->micro_batch * speeds->data_size;
    if (speeds->data_size < 2) return Z3D_OK;
    Z3D_TRY(z3d_new((size_t)speeds->data_size + 1, sizeof *first, "shares of a batch", &first));
    out->first_sample = first;
    if (z3d_share_samples(samples, speeds->data, speeds->data_size, first)) return Z3D_OK;
    return refuse_shares(config, speeds, samples);
}
