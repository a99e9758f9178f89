/* Compares the bus bandwidth of our collectives with MPI's own and with direct shared memory, in
 * one run:
 *   scripts/launch -n 4 build/bin/collectives [MB ...]
 * Bytes are of the whole buffer and bus bandwidth is counted as by nccl-tests: an all_reduce moves
 * 2 (N-1)/N of them, the others (N-1)/N. "direct" keeps the buffers in a shared window, and each
 * rank reads its peers' rows in place: the best that one node can do. fp32, the best of several
 * rounds, the three ways taking turns. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/parts/measure.h"

typedef struct bench {
    bench_ranks ranks;
    z3d_group *group;
    int rank, size;
    MPI_Win window;
    float *shared;           /* this rank's buffer in the shared window */
    float **peer;            /* every rank's buffer in the window */
    float *own, *out;        /* private memory */
    int64_t bytes, elements; /* bytes: of the buffers; elements: of the size that is measured */
} bench;

typedef enum { OURS, LIBRARY, DIRECT, WAYS } way;

/* ---- one collective, three ways ---- */

static void ours(bench *b, z3d_collective_kind kind) {
    bool whole = kind == Z3D_COLLECTIVE_ALL_REDUCE;
    int64_t row = b->elements / b->size;
    z3d_collective call = {.kind = kind,
                           .dtype = Z3D_F32,
                           .buffer = b->own,
                           .count = whole ? b->elements : row,
                           .stride = row};
    bench_must(&b->ranks, z3d_collective_run(b->group, &call));
}

static void library(bench *b, z3d_collective_kind kind) {
    int row = (int)(b->elements / b->size);
    if (kind == Z3D_COLLECTIVE_ALL_REDUCE)
        MPI_Allreduce(MPI_IN_PLACE, b->own, (int)b->elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (kind == Z3D_COLLECTIVE_REDUCE_SCATTER)
        MPI_Reduce_scatter_block(b->own, b->out, row, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, b->own, row, MPI_FLOAT, MPI_COMM_WORLD);
}

static void direct_reduce(bench *b, int64_t row) {
    float *to = b->shared + b->rank * row;
    for (int k = 1; k < b->size; k++) {
        const float *from = b->peer[(b->rank + k) % b->size] + b->rank * row;
        for (int64_t i = 0; i < row; i++) to[i] += from[i];
    }
}

static void direct_gather(bench *b, int64_t row) {
    for (int k = 1; k < b->size; k++) {
        int from = (b->rank + k) % b->size;
        memcpy(b->shared + from * row, b->peer[from] + from * row, (size_t)row * sizeof(float));
    }
}

static void direct(bench *b, z3d_collective_kind kind) {
    int64_t row = b->elements / b->size;
    MPI_Barrier(MPI_COMM_WORLD);
    if (kind != Z3D_COLLECTIVE_ALL_GATHER) direct_reduce(b, row);
    if (kind == Z3D_COLLECTIVE_ALL_REDUCE) MPI_Barrier(MPI_COMM_WORLD);
    if (kind != Z3D_COLLECTIVE_REDUCE_SCATTER) direct_gather(b, row);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- measuring ---- */

static double seconds_of(bench *b, z3d_collective_kind kind, way which, int repeats) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = z3d_now(), mine, slowest;
    for (int i = 0; i < repeats; i++) {
        if (which == OURS) ours(b, kind);
        if (which == LIBRARY) library(b, kind);
        if (which == DIRECT) direct(b, kind);
    }
    mine = (z3d_now() - begun) / repeats;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static void measure(bench *b, z3d_collective_kind kind, double megabytes) {
    enum { ROUNDS = 7 };
    double best[WAYS] = {1e9, 1e9, 1e9}, rate[WAYS];
    b->elements = (int64_t)(megabytes * 1048576 / sizeof(float)) / b->size * b->size;
    double bytes = (double)b->elements * sizeof(float);
    int repeats = bytes < 4e6 ? 20 : 3;
    for (int round = 0; round < ROUNDS; round++)
        for (way w = OURS; w < WAYS; w++) {
            double seconds = seconds_of(b, kind, w, repeats);
            if (seconds < best[w]) best[w] = seconds;
        }
    double moved = bytes * (b->size - 1) / b->size;
    if (kind == Z3D_COLLECTIVE_ALL_REDUCE) moved *= 2;
    for (way w = OURS; w < WAYS; w++) rate[w] = moved / best[w] / 1e9;
    if (b->rank == 0)
        printf("%5d  %-15s %7.2f  %8.2f %8.2f %8.2f  %8.2f %8.2f\n", b->size,
               z3d_collective_name(kind), megabytes, rate[OURS], rate[LIBRARY], rate[DIRECT],
               rate[OURS] / rate[LIBRARY], rate[OURS] / rate[DIRECT]);
}

/* One block for all sizes, like the engine's arena: small blocks would have no huge pages. */
static void make_buffers(bench *b, double megabytes) {
    int64_t bytes = (int64_t)(megabytes * 1048576);
    void *own, *out;
    bench_must(&b->ranks, z3d_device_alloc(b->ranks.device, Z3D_SPACE_DEVICE, bytes, &own));
    bench_must(&b->ranks, z3d_device_alloc(b->ranks.device, Z3D_SPACE_DEVICE, bytes, &out));
    bench_must(&b->ranks, z3d_new((size_t)b->size, sizeof *b->peer, "pointers", &b->peer));
    b->bytes = bytes;
    b->own = own;
    b->out = out;
    MPI_Win_allocate_shared((MPI_Aint)bytes, sizeof(float), MPI_INFO_NULL, MPI_COMM_WORLD,
                            &b->shared, &b->window);
    for (int r = 0; r < b->size; r++) {
        MPI_Aint size;
        int unit;
        MPI_Win_shared_query(b->window, r, &size, &unit, &b->peer[r]);
    }
    memset(b->shared, 0, (size_t)bytes);
}

static void free_buffers(bench *b) {
    MPI_Win_free(&b->window);
    free(b->peer);
    z3d_device_free(b->ranks.device, Z3D_SPACE_DEVICE, b->own, b->bytes);
    z3d_device_free(b->ranks.device, Z3D_SPACE_DEVICE, b->out, b->bytes);
}

int main(int argc, char **argv) {
    static const double standard[] = {0.00390625, 0.0625, 1, 16, 64};
    static const z3d_collective_kind kinds[] = {
        Z3D_COLLECTIVE_REDUCE_SCATTER, Z3D_COLLECTIVE_ALL_GATHER, Z3D_COLLECTIVE_ALL_REDUCE};
    bench b = {0};
    bench_open(&b.ranks, &argc, &argv);
    b.rank = z3d_world_rank(b.ranks.world);
    b.size = z3d_world_size(b.ranks.world);
    if (b.size < 2 || z3d_world_nodes(b.ranks.world) > 1)
        bench_must(&b.ranks, Z3D_ERROR(Z3D_ERR_USAGE,
                                       "start on 2 or more ranks of one node, by scripts/launch"));
    const z3d_device_config config = {.backend = "cpu", .threads = 1};
    bench_must(&b.ranks, z3d_device_create(&config, &b.ranks.device));
    bench_must(&b.ranks, z3d_mesh_make(1, b.size, 1, b.rank, &b.ranks.mesh));
    bench_must(&b.ranks, z3d_group_create(b.ranks.world, &b.ranks.mesh, Z3D_AXES_DATA,
                                          b.ranks.device, &b.group));
    if (b.rank == 0)
        printf("bus bandwidth, GB/s, backend %s\nranks  %-15s %7s  %8s %8s %8s  %8s %8s\n",
               z3d_group_backend(b.group), "collective", "MB", "ours", "MPI", "direct", "/ MPI",
               "/ direct");
    int count = argc > 1 ? argc - 1 : (int)(sizeof standard / sizeof standard[0]);
    double largest = 0;
    for (int i = 0; i < count; i++) {
        double megabytes = argc > 1 ? atof(argv[i + 1]) : standard[i];
        if (!(megabytes > 0 && megabytes <= 4096))
            bench_must(&b.ranks, Z3D_ERROR(Z3D_ERR_USAGE, "sizes are MB between 0 and 4096"));
        if (megabytes > largest) largest = megabytes;
    }
    make_buffers(&b, largest);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < count; i++)
            measure(&b, kinds[k], argc > 1 ? atof(argv[i + 1]) : standard[i]);
    free_buffers(&b);
    z3d_group_destroy(b.group);
    bench_close(&b.ranks);
    return EXIT_SUCCESS;
}
