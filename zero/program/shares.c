/* The samples of a micro-batch on each data rank, and the number in a call. */
#include "zero/program/config.h"

/* Samples of the data ranks before `index`. */
static int64_t first_of(const z3d_program_config *config, int index) {
    return config->first_sample ? config->first_sample[index] : index * config->micro_batch;
}

int64_t z3d_samples_before(const z3d_program_config *config, const z3d_mesh *mesh) {
    return first_of(config, z3d_mesh_index(mesh, Z3D_ROLE_SAMPLES, mesh->rank));
}

int64_t z3d_samples_in_all(const z3d_program_config *config, const z3d_mesh *mesh) {
    return first_of(config, z3d_mesh_size(mesh, Z3D_ROLE_SAMPLES));
}

int64_t z3d_samples_of(const z3d_program_config *config, const z3d_mesh *mesh) {
    int index = z3d_mesh_index(mesh, Z3D_ROLE_SAMPLES, mesh->rank);
    return first_of(config, index + 1) - first_of(config, index);
}

/* Whether rank i ends before rank j with one more sample each; at equal times the one with fewer
 * samples. */
static bool ends_first(const int64_t *samples, const double *speed, int i, int j) {
    double here = (double)(samples[i] + 1) / speed[i], there = (double)(samples[j] + 1) / speed[j];
    return here < there || (here == there && samples[i] < samples[j]);
}

/* Every share is rounded down; the rest goes, one by one, to the rank that ends first with one
 * more. */
bool z3d_share_samples(int64_t samples, const double *speed, int count, int64_t *first) {
    double sum = 0;
    int64_t left = samples;
    bool all = true;
    for (int i = 0; i < count; i++) sum += speed[i];
    for (int i = 0; i < count; i++) {
        first[i] =
            (int64_t)((double)samples * speed[i] / sum); /* until the end: samples of rank i */
        left -= first[i];
    }
    for (; left > 0; left--) {
        int best = 0;
        for (int i = 1; i < count; i++)
            if (ends_first(first, speed, i, best)) best = i;
        first[best]++;
    }
    int64_t before = 0;
    for (int i = 0; i < count; i++) {
        int64_t mine = first[i];
        all = all && mine > 0;
        first[i] = before;
        before += mine;
    }
    first[count] = before;
    return all;
}

int64_t z3d_samples_in_caches(const z3d_program_config *config) {
    return config->generate_batch ? config->generate_batch : 1;
}

int64_t z3d_cache_positions(const z3d_program_config *config, const z3d_model *model) {
    const int64_t wanted = config->generate_positions, prefill = model->tokens[Z3D_MODE_PREFILL];
    if (wanted == 0 || wanted > model->positions) return model->positions;
    return wanted < prefill ? prefill : wanted;
}

int64_t z3d_samples_in_mode(const z3d_program_config *config, z3d_mode mode) {
    if (z3d_mode_prefills(mode)) return 1;
    return mode == Z3D_MODE_DECODE ? z3d_samples_in_caches(config) : config->micro_batch;
}
