#include "bench/parts/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/sort.h"

double bench_median(double *values, int count) {
    z3d_sort_numbers(values, (size_t)count);
    return values[count / 2];
}

static volatile float sink;

/* Sums in 64 lanes, so that adding is faster than reading. */
double bench_read(const char *bytes_at, int64_t bytes, int threads) {
    float total = 0;
    const double begin = z3d_now();
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : total)
    for (int64_t at = 0; at < bytes / 65536; at++) {
        const float *from = (const float *)(bytes_at + at * 65536);
        float sum[64] = {0};
        for (int64_t i = 0; i < 65536 / 4; i += 64)
#pragma omp simd
            for (int j = 0; j < 64; j++) sum[j] += from[i + j];
        for (int j = 0; j < 64; j++) total += sum[j];
    }
    sink = total;
    return z3d_now() - begin;
}

void bench_must(const bench_ranks *ranks, z3d_status status) {
    if (status != Z3D_OK) z3d_world_abort(ranks->world, status, z3d_error_message());
}

void bench_open(bench_ranks *ranks, int *argc, char ***argv) {
    if (z3d_world_create(argc, argv, &ranks->world) == Z3D_OK) return;
    fprintf(stderr, "%s\n", z3d_error_message());
    exit(1);
}

z3d_status bench_make(bench_ranks *ranks, int tensor, int threads) {
    const z3d_device_config cpu = {.backend = "cpu", .threads = threads};
    Z3D_TRY(z3d_mesh_make(tensor, z3d_world_size(ranks->world) / tensor, 1,
                          z3d_world_rank(ranks->world), &ranks->mesh));
    Z3D_TRY(z3d_device_create(&cpu, &ranks->device));
    return z3d_groups_create(ranks->world, &ranks->mesh, ranks->device, ranks->group);
}

z3d_status bench_engine(const bench_ranks *ranks, z3d_engine_config *config, z3d_engine **out) {
    config->mesh = ranks->mesh;
    config->device = ranks->device;
    config->world = ranks->world;
    config->program.accumulation = 1;
    config->program.grad_dtype = config->program.dtype;
    if (!config->program.reduce_bucket)
        config->program.reduce_bucket = config->program.gather_bucket = 4 << 20;
    config->optimizer.beta1 = 0.9f;
    config->optimizer.beta2 = 0.95f;
    config->optimizer.epsilon = 1e-8f;
    config->scaler.scale = 1;
    config->seed = 1;
    memcpy(config->group, ranks->group, sizeof config->group);
    return z3d_engine_create(config, out);
}

void bench_close(bench_ranks *ranks) {
    z3d_groups_destroy(ranks->group);
    z3d_device_destroy(ranks->device);
    z3d_world_destroy(ranks->world);
}
