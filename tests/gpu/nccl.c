/* NCCL without MPI, and on one GPU: two ranks. Every collective is also run on the cpu device, over
 * TCP, and must give the same bits: sums are exact. NCCL takes two ranks on a GPU only where it is
 * told that they are on two hosts, so what it moves goes through sockets: this checks results,
 * order and errors, not speed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/interface/internal.h"
#include "tests/gpu/check.h"

enum { RANKS = 2, WIDTH = 512, ELEMENTS = RANKS * WIDTH, BYTES = ELEMENTS * 8 };

/* One device with two communicators of both ranks: data parallel, and tensor parallel. */
typedef struct side {
    z3d_device *device;
    z3d_group *groups[2][Z3D_AXES_COUNT], *group[2];
    char *buffer, *copy; /* ELEMENTS of up to 8 bytes */
} side;

typedef struct trial {
    const char *name;
    z3d_collective call; /* SEND: from 0 to 1 */
} trial;

#define TRIAL(KIND, OP, TYPE, COUNT, STRIDE, PEER)                                                 \
    { Z3D_COLLECTIVE_##KIND, Z3D_##OP, Z3D_##TYPE, Z3D_F32, NULL, COUNT, STRIDE, PEER, false }

static const trial trials[] = {
    {"nccl all_reduce", TRIAL(ALL_REDUCE, SUM, F32, 1000, 0, 0)},
    {"nccl all_reduce", TRIAL(ALL_REDUCE, SUM, BF16, 1001, 0, 0)},
    {"nccl all_reduce", TRIAL(ALL_REDUCE, SUM, F64, 7, 0, 0)},
    {"nccl all_reduce, largest", TRIAL(ALL_REDUCE, MAX, F32, 33, 0, 0)},
    {"nccl reduce_scatter", TRIAL(REDUCE_SCATTER, SUM, BF16, WIDTH, WIDTH, 0)},
    {"nccl reduce_scatter, a bucket", TRIAL(REDUCE_SCATTER, SUM, F16, 100, WIDTH, 0)},
    {"nccl all_gather", TRIAL(ALL_GATHER, SUM, F16, WIDTH, WIDTH, 0)},
    {"nccl all_gather, a bucket", TRIAL(ALL_GATHER, SUM, BF16, 100, WIDTH, 0)},
    /* rows so long that one copy of all refuses them, in the stand-in */
    {"nccl reduce_scatter, a bucket", TRIAL(REDUCE_SCATTER, SUM, F32, 101, WIDTH, 0)},
    {"nccl all_gather, a bucket", TRIAL(ALL_GATHER, SUM, F32, 101, WIDTH, 0)},
    {"nccl broadcast", TRIAL(BROADCAST, SUM, F32, 77, 0, 1)},
    {"nccl send and recv", TRIAL(SEND, SUM, F32, 300, 0, 0)},
    {"nccl barrier", TRIAL(BARRIER, SUM, F32, 0, 0, 0)},
};

/* ---- a trial ---- */

static z3d_status cast(z3d_device *device, void *to, const void *from, z3d_dtype dtype) {
    return Z3D_LAUNCH(device, cast, .destination = to, .source = from, .count = ELEMENTS,
                      .destination_dtype = dtype, .source_dtype = dtype);
}

/* The operand comes out of a kernel and the result goes into one, without the host's waiting. */
static z3d_status run_between_kernels(const side *s, const trial *t, int rank, int communicator,
                                      void *host) {
    z3d_collective call = t->call;
    int64_t bytes = ELEMENTS * (int64_t)z3d_dtype_size(call.dtype);
    call.buffer = s->buffer;
    if (call.kind == Z3D_COLLECTIVE_SEND) {
        call.kind = rank == 0 ? Z3D_COLLECTIVE_SEND : Z3D_COLLECTIVE_RECV;
        call.peer = 1 - rank;
    }
    Z3D_TRY(z3d_device_write(s->device, s->copy, host, bytes));
    Z3D_TRY(cast(s->device, s->buffer, s->copy, t->call.dtype));
    Z3D_TRY(z3d_collective_run(s->group[communicator], &call));
    Z3D_TRY(cast(s->device, s->copy, s->buffer, t->call.dtype));
    Z3D_TRY(Z3D_LAUNCH(s->device, fill, .x = s->buffer, .count = ELEMENTS, .dtype = t->call.dtype));
    return z3d_device_read(s->device, host, s->copy, bytes);
}

/* Small whole numbers: their sums are exact in every type. */
static void fill_in(void *host, z3d_dtype dtype, int rank) {
    for (int64_t i = 0; i < ELEMENTS; i++)
        check_set_number(host, dtype, i, (double)((rank + 1) * (i % 7 + 1)));
}

static z3d_status try_one(check_context *context, const side *sides, const trial *t,
                          int communicator) {
    char host[2][BYTES];
    int rank = z3d_world_rank(context->world);
    bool scatter = t->call.kind == Z3D_COLLECTIVE_REDUCE_SCATTER; /* other rows: anything */
    for (int i = 0; i < 2; i++) {
        fill_in(host[i], t->call.dtype, rank);
        Z3D_TRY(run_between_kernels(&sides[i], t, rank, communicator, host[i]));
    }
    size_t size = z3d_dtype_size(t->call.dtype), row = scatter ? (size_t)rank * WIDTH * size : 0;
    bool same = !memcmp(host[0] + row, host[1] + row, (scatter ? WIDTH : ELEMENTS) * size);
    check_report(context, same, t->name, "%s", z3d_dtype_name(t->call.dtype));
    return Z3D_OK;
}

/* ---- both communicators at once, each on half of the buffer ---- */

/* What began first is waited for last. */
static z3d_status run_both(const side *s) {
    z3d_ticket ticket[2];
    z3d_collective call = {
        .kind = Z3D_COLLECTIVE_ALL_REDUCE, .dtype = Z3D_F32, .count = ELEMENTS / 2};
    for (int c = 0; c < 2; c++) {
        call.buffer = (float *)s->buffer + c * ELEMENTS / 2;
        Z3D_TRY(z3d_collective_start(s->group[c], &call, &ticket[c]));
    }
    for (int c = 1; c >= 0; c--) Z3D_TRY(z3d_collective_wait(s->group[c], ticket[c]));
    return Z3D_OK;
}

/* On the GPU in a graph, too. */
static z3d_status run_graph(const side *s, z3d_region **region) {
    int64_t launches;
    if (z3d_device_host_reads(s->device)) return run_both(s);
    Z3D_TRY(z3d_capture_begin(s->device));
    Z3D_TRY(run_both(s));
    Z3D_TRY(z3d_capture_end(s->device, region, &launches));
    return z3d_region_launch(s->device, *region);
}

/* Twice: the second adds up what the first left. */
static z3d_status try_both(check_context *context, const side *sides, z3d_region **region) {
    float host[2][ELEMENTS];
    for (int i = 0; i < 2; i++) {
        const side *s = &sides[i];
        fill_in(host[i], Z3D_F32, z3d_world_rank(context->world));
        Z3D_TRY(z3d_device_write(s->device, s->buffer, host[i], sizeof host[i]));
        Z3D_TRY(run_both(s));
        Z3D_TRY(run_graph(s, region));
        Z3D_TRY(z3d_device_read(s->device, host[i], s->buffer, sizeof host[i]));
    }
    check_report(context, !memcmp(host[0], host[1], sizeof host[0]), "nccl two communicators",
                 "at once, in a graph too");
    return Z3D_OK;
}

/* By the device's own clock; then what NCCL refuses, which ends all communicators. It gives up none
 * that a graph still has, but the error is told before. */
static z3d_status try_refused(check_context *context, const side *s) {
    double seconds = 0, exposed = 0;
    int64_t id;
    void *self, *communicator = s->group[0]->state;
    const z3d_stream_collectives *table = z3d_device_collectives(s->device, &self);
    z3d_collective call = {
        .kind = Z3D_COLLECTIVE_BROADCAST, .dtype = Z3D_F32, .buffer = s->buffer, .count = 1};
    Z3D_TRY(z3d_device_heard(s->device, table->start(communicator, &call, &seconds, &id)));
    Z3D_TRY(z3d_device_heard(s->device, table->wait(communicator, id, &exposed)));
    Z3D_TRY(z3d_device_synchronize(s->device));
    check_report(context, seconds > 0, "nccl times", "%.3g s", seconds);
    call.peer = RANKS;
    bool told = z3d_device_heard(s->device, table->start(communicator, &call, &seconds, &id)) ==
                Z3D_ERR_COMM;
    check_report(context, told && strstr(z3d_error_message(), "of the data group on rank"),
                 "nccl refused, with a graph", "%s", z3d_error_message());
    return Z3D_OK;
}

/* ---- the two ---- */

/* The buffer comes after NCCL, so that communicators can have windows of it. The first has one, the
 * other not: its ranks say that they use the buffer differently. */
static z3d_status begin(z3d_world *world, const z3d_device_config *config, side *s) {
    const int64_t bucket[Z3D_AXES_COUNT] = {
        [Z3D_AXES_TENSOR] = RANKS * 101 * 4, [Z3D_AXES_DATA] = RANKS * 101 * 4};
    z3d_mesh mesh[2];
    int rank = z3d_world_rank(world);
    Z3D_TRY(z3d_mesh_make(1, RANKS, 1, rank, &mesh[0]));
    Z3D_TRY(z3d_mesh_make(RANKS, 1, 1, rank, &mesh[1]));
    Z3D_TRY(z3d_device_create(config, &s->device));
    for (int c = 0; c < 2; c++)
        Z3D_TRY(z3d_groups_create(world, &mesh[c], s->device, s->groups[c]));
    Z3D_TRY(z3d_device_alloc(s->device, Z3D_SPACE_DEVICE, BYTES, (void **)&s->buffer));
    Z3D_TRY(z3d_device_alloc(s->device, Z3D_SPACE_DEVICE, BYTES, (void **)&s->copy));
    Z3D_TRY(z3d_groups_use(s->groups[1], s->buffer, BYTES, 0, bucket));
    z3d_groups_destroy(s->groups[1]); /* with its window; an engine's block goes before */
    Z3D_TRY(z3d_groups_create(world, &mesh[1], s->device, s->groups[1]));
    for (int c = 0; c < 2; c++)
        Z3D_TRY(z3d_groups_use(s->groups[c], s->buffer, BYTES, (uint64_t)(c * rank), bucket));
    z3d_group_destroy(s->groups[0][Z3D_AXES_WORLD]); /* of two owners one goes */
    s->groups[0][Z3D_AXES_WORLD] = NULL;
    s->group[0] = s->groups[0][Z3D_AXES_DATA];
    s->group[1] = s->groups[1][Z3D_AXES_TENSOR];
    return Z3D_OK;
}

static void end(side *s) {
    z3d_device_free(s->device, Z3D_SPACE_DEVICE, s->copy, BYTES);
    z3d_device_free(s->device, Z3D_SPACE_DEVICE, s->buffer, BYTES);
    for (int c = 0; c < 2; c++) z3d_groups_destroy(s->groups[c]);
    z3d_device_destroy(s->device);
}

/* What NCCL wants to hear of two ranks on a GPU. */
static void set_environment(int rank) {
    char host[16];
    snprintf(host, sizeof host, "rank%d", rank);
    setenv("NCCL_HOSTID", host, 0);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_MNNVL_ENABLE", "0", 0);
    setenv("NCCL_MAX_CTAS", "2", 0);
}

z3d_status check_nccl(check_context *context) {
    side sides[2] = {0}; /* cuda, cpu */
    z3d_region *region = NULL;
    z3d_device_config cuda = context->cuda;
    cuda.times = true;
    set_environment(z3d_world_rank(context->world));
    Z3D_TRY(begin(context->world, &cuda, &sides[0]));
    Z3D_TRY(begin(context->world, &(z3d_device_config){.backend = "cpu", .threads = 1}, &sides[1]));
    for (size_t i = 0; i < 2 * sizeof trials / sizeof *trials; i++) /* communicators take turns */
        Z3D_TRY(try_one(context, sides, &trials[i / 2], (int)(i % 2)));
    Z3D_TRY(try_both(context, sides, &region));
    Z3D_TRY(try_refused(context, &sides[0]));
    z3d_region_destroy(sides[0].device, region);
    for (int i = 0; i < 2; i++) end(&sides[i]);
    return Z3D_OK;
}
