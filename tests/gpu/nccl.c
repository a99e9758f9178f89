/* NCCL without MPI, and on one GPU: two processes, each a rank, give each other the id through
 * shared memory and use the device's table of collectives. NCCL takes two ranks on a GPU only where
 * it is told that they are on two hosts, so what it moves goes through sockets: this checks
 * results, order and errors, not speed. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/device/collectives.h"
#include "tests/gpu/check.h"

enum { RANKS = 2, SECONDS = 50, WIDTH = 512, ELEMENTS = RANKS * WIDTH };

/* Between the two processes. */
typedef struct meeting {
    atomic_int made; /* 1: the id is there, 2: there is none */
    unsigned char id[Z3D_COLLECTIVES_ID_BYTES];
} meeting;

typedef struct member {
    int rank;
    meeting *meeting;
    z3d_device *device;
    const z3d_stream_collectives *table;
    void *self, *communicator[2];
    void *buffer, *copy; /* ELEMENTS of up to 8 bytes, of the device */
    int failed;
} member;

typedef struct trial {
    const char *name;
    z3d_collective_kind kind;
    z3d_dtype dtype;
    z3d_reduce_op op;
    int64_t count, stride;
    int peer;
} trial;

static const trial trials[] = {
    {"all_reduce", Z3D_COLLECTIVE_ALL_REDUCE, Z3D_F32, Z3D_SUM, 1000, 0, 0},
    {"all_reduce", Z3D_COLLECTIVE_ALL_REDUCE, Z3D_BF16, Z3D_SUM, 1001, 0, 0},
    {"all_reduce", Z3D_COLLECTIVE_ALL_REDUCE, Z3D_F64, Z3D_SUM, 7, 0, 0},
    {"all_reduce, largest", Z3D_COLLECTIVE_ALL_REDUCE, Z3D_F32, Z3D_MAX, 33, 0, 0},
    {"reduce_scatter", Z3D_COLLECTIVE_REDUCE_SCATTER, Z3D_BF16, Z3D_SUM, WIDTH, WIDTH, 0},
    {"reduce_scatter, a bucket", Z3D_COLLECTIVE_REDUCE_SCATTER, Z3D_F32, Z3D_SUM, 100, WIDTH, 0},
    {"all_gather", Z3D_COLLECTIVE_ALL_GATHER, Z3D_F16, Z3D_SUM, WIDTH, WIDTH, 0},
    {"all_gather, a bucket", Z3D_COLLECTIVE_ALL_GATHER, Z3D_BF16, Z3D_SUM, 100, WIDTH, 0},
    {"broadcast", Z3D_COLLECTIVE_BROADCAST, Z3D_I32, Z3D_SUM, 77, 0, 1},
    {"send and recv", Z3D_COLLECTIVE_SEND, Z3D_F32, Z3D_SUM, 300, 0, 0},
    {"barrier", Z3D_COLLECTIVE_BARRIER, Z3D_I32, Z3D_SUM, 0, 0, 0},
};

/* ---- what there is before and after ---- */

/* Small whole numbers: their sums are exact in every type. */
static double number(int rank, int64_t i) {
    return (double)((rank + 1) * (i % 7 + 1));
}

static double get(const void *from, z3d_dtype type, int64_t i) {
    return type == Z3D_I32 ? (double)((const int32_t *)from)[i] : check_number(from, type, i);
}

static void set(void *to, z3d_dtype type, int64_t i, double value) {
    if (type == Z3D_I32)
        ((int32_t *)to)[i] = (int32_t)value;
    else
        check_set_number(to, type, i, value);
}

/* Element i after the trial on `rank`; false: anything. */
static bool expected(const trial *t, int rank, int64_t i, double *out) {
    bool rows = t->stride > 0;
    int64_t row = rows ? i / t->stride : 0, column = rows ? i % t->stride : i;
    *out = number(rank, i);
    if (column >= t->count) return true; /* not part of it */
    switch (t->kind) {
    case Z3D_COLLECTIVE_ALL_REDUCE:
        *out = t->op == Z3D_MAX ? number(RANKS - 1, i) : number(0, i) + number(1, i);
        return true;
    case Z3D_COLLECTIVE_REDUCE_SCATTER:
        *out = number(0, i) + number(1, i);
        return row == rank;
    case Z3D_COLLECTIVE_ALL_GATHER:
        *out = number((int)row, i);
        return true;
    case Z3D_COLLECTIVE_BROADCAST:
        *out = number(t->peer, i);
        return true;
    case Z3D_COLLECTIVE_SEND: /* from 0 to 1 */
        *out = number(0, i);
        return true;
    default:
        return true;
    }
}

/* ---- a trial ---- */

static z3d_status run_collective(member *m, const trial *t, int communicator, double *seconds) {
    double exposed = 0;
    int64_t id = 0;
    z3d_collective call = {.kind = t->kind,
                           .op = t->op,
                           .dtype = t->dtype,
                           .buffer = m->buffer,
                           .count = t->count,
                           .stride = t->stride,
                           .peer = t->peer};
    if (t->kind == Z3D_COLLECTIVE_SEND) {
        call.kind = m->rank == 0 ? Z3D_COLLECTIVE_SEND : Z3D_COLLECTIVE_RECV;
        call.peer = 1 - m->rank;
    }
    Z3D_TRY(z3d_device_heard(m->device,
                             m->table->start(m->communicator[communicator], &call, seconds, &id)));
    return z3d_device_heard(m->device, m->table->wait(m->communicator[communicator], id, &exposed));
}

/* The operand comes out of a kernel and the result goes into one, without the host's waiting. */
static z3d_status run_between_kernels(member *m, const trial *t, int communicator, void *host,
                                      double *seconds) {
    int64_t bytes = ELEMENTS * (int64_t)z3d_dtype_size(t->dtype);
    Z3D_TRY(z3d_device_write(m->device, m->copy, host, bytes));
    Z3D_TRY(Z3D_LAUNCH(m->device, cast, .destination = m->buffer, .source = m->copy,
                       .count = ELEMENTS, .destination_dtype = t->dtype, .source_dtype = t->dtype));
    Z3D_TRY(run_collective(m, t, communicator, seconds));
    Z3D_TRY(Z3D_LAUNCH(m->device, cast, .destination = m->copy, .source = m->buffer,
                       .count = ELEMENTS, .destination_dtype = t->dtype, .source_dtype = t->dtype));
    Z3D_TRY(Z3D_LAUNCH(m->device, fill, .x = m->buffer, .count = ELEMENTS, .dtype = t->dtype));
    return z3d_device_read(m->device, host, m->copy, bytes);
}

static void say(member *m, bool ok, const char *name, z3d_dtype dtype, int64_t wrong) {
    m->failed += !ok;
    if (ok && m->rank > 0) return;
    printf("%-7s nccl %-30s %s, rank %d: %lld of %d elements wrong%s%s\n", ok ? "ok" : "FAILED",
           name, z3d_dtype_name(dtype), m->rank, (long long)wrong, (int)ELEMENTS,
           ok ? "" : "; the last error: ", ok ? "" : z3d_error_message());
    fflush(stdout);
}

static void try_one(member *m, const trial *t, int communicator) {
    static double host[ELEMENTS]; /* of any type */
    double seconds = -1, want = 0;
    int64_t wrong = 0;
    for (int64_t i = 0; i < ELEMENTS; i++) set(host, t->dtype, i, number(m->rank, i));
    z3d_status status = run_between_kernels(m, t, communicator, host, &seconds);
    for (int64_t i = 0; i < ELEMENTS && status == Z3D_OK; i++)
        wrong += expected(t, m->rank, i, &want) && get(host, t->dtype, i) != want;
    say(m, status == Z3D_OK && wrong == 0 && seconds > -1, t->name, t->dtype, wrong);
}

static z3d_status start_sum(member *m, int communicator, float *at, int64_t *id) {
    static double unused;
    z3d_collective call = {.kind = Z3D_COLLECTIVE_ALL_REDUCE,
                           .op = Z3D_SUM,
                           .dtype = Z3D_F32,
                           .buffer = at,
                           .count = ELEMENTS / 2};
    return z3d_device_heard(m->device,
                            m->table->start(m->communicator[communicator], &call, &unused, id));
}

static z3d_status wait_for_sum(member *m, int communicator, int64_t id) {
    static double unused;
    return z3d_device_heard(m->device, m->table->wait(m->communicator[communicator], id, &unused));
}

/* Both communicators at once, each on half of the buffer; what began first is waited for last. */
static z3d_status run_both(member *m, float *host) {
    int64_t id[2];
    float *buffer = m->buffer;
    Z3D_TRY(z3d_device_write(m->device, buffer, host, ELEMENTS * 4));
    for (int c = 0; c < 2; c++) Z3D_TRY(start_sum(m, c, buffer + c * ELEMENTS / 2, &id[c]));
    for (int c = 1; c >= 0; c--) Z3D_TRY(wait_for_sum(m, c, id[c]));
    return z3d_device_read(m->device, host, buffer, ELEMENTS * 4);
}

static void try_both(member *m) {
    float host[ELEMENTS];
    int64_t wrong = 0;
    for (int64_t i = 0; i < ELEMENTS; i++) host[i] = (float)number(m->rank, i);
    z3d_status status = run_both(m, host);
    for (int64_t i = 0; i < ELEMENTS && status == Z3D_OK; i++)
        wrong += host[i] != (float)(number(0, i) + number(1, i));
    say(m, status == Z3D_OK && wrong == 0, "two communicators at once", Z3D_F32, wrong);
}

/* ---- the end by force ---- */

/* A graph that has both communicators. */
static z3d_status run_captured(member *m, z3d_region **region) {
    int64_t id[2], launches;
    float *buffer = m->buffer;
    Z3D_TRY(z3d_capture_begin(m->device));
    for (int c = 0; c < 2; c++) Z3D_TRY(start_sum(m, c, buffer + c * ELEMENTS / 2, &id[c]));
    for (int c = 0; c < 2; c++) Z3D_TRY(wait_for_sum(m, c, id[c]));
    Z3D_TRY(z3d_capture_end(m->device, region, &launches));
    Z3D_TRY(z3d_region_launch(m->device, *region));
    return z3d_device_synchronize(m->device);
}

/* What NCCL refuses ends all communicators. It gives up none that a graph still has, but the error
 * is told before. */
static void try_refused(member *m, z3d_region **region) {
    double unused;
    int64_t id;
    z3d_collective call = {.kind = Z3D_COLLECTIVE_BROADCAST,
                           .dtype = Z3D_F32,
                           .buffer = m->buffer,
                           .count = 1,
                           .peer = RANKS};
    bool ran = run_captured(m, region) == Z3D_OK;
    bool told = ran && z3d_device_heard(m->device, m->table->start(m->communicator[1], &call,
                                                                   &unused, &id)) == Z3D_ERR_COMM;
    say(m, told && strstr(z3d_error_message(), "of the data group on rank"),
        "refused, with a graph", Z3D_F32, 0);
}

/* ---- the two ---- */

static z3d_status connect_ranks(member *m) {
    meeting *at = m->meeting;
    z3d_status status = z3d_device_heard(m->device, m->table->load(m->self));
    if (m->rank == 0) {
        if (status == Z3D_OK)
            status = z3d_device_heard(m->device, m->table->make_id(m->self, at->id));
        atomic_store(&at->made, status == Z3D_OK ? 1 : 2);
    }
    Z3D_TRY(status);
    while (atomic_load(&at->made) == 0) usleep(1000);
    Z3D_REQUIRE(atomic_load(&at->made) == 1, "the other rank has no id");
    Z3D_TRY(z3d_device_heard(m->device, m->table->connect(m->self, at->id, RANKS, m->rank)));
    for (int c = 0; c < 2; c++)
        Z3D_TRY(z3d_device_heard(m->device,
                                 m->table->split(m->self, c, m->rank, RANKS, c ? "data" : "tensor",
                                                 &m->communicator[c])));
    return Z3D_OK;
}

static z3d_status begin(member *m, const z3d_device_config *config) {
    z3d_device_config mine = *config;
    mine.local_rank = m->rank;
    mine.times = true;
    Z3D_TRY(z3d_device_create(&mine, &m->device));
    m->table = z3d_device_collectives(m->device, &m->self);
    Z3D_REQUIRE(m->table, "the device has no collectives");
    Z3D_TRY(z3d_device_alloc(m->device, Z3D_SPACE_DEVICE, ELEMENTS * 8, &m->buffer));
    Z3D_TRY(z3d_device_alloc(m->device, Z3D_SPACE_DEVICE, ELEMENTS * 8, &m->copy));
    return connect_ranks(m);
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

static int run_rank(int rank, meeting *at, const z3d_device_config *config) {
    member m = {.rank = rank, .meeting = at};
    z3d_region *region = NULL;
    alarm(SECONDS); /* a rank that waits for a dead one */
    set_environment(rank);
    if (begin(&m, config) != Z3D_OK) {
        printf("FAILED  nccl, rank %d: %s\n", rank, z3d_error_message());
        return 1;
    }
    for (int c = 0; c < 2; c++) { /* of two owners one goes */
        m.table->share(m.communicator[c]);
        m.table->destroy(m.communicator[c]);
    }
    for (size_t i = 0; i < 2 * sizeof trials / sizeof *trials; i++) /* communicators take turns */
        try_one(&m, &trials[i / 2], (int)(i % 2));
    try_both(&m);
    try_refused(&m, &region);
    z3d_region_destroy(m.device, region);
    for (int c = 0; c < 2; c++) m.table->destroy(m.communicator[c]);
    z3d_device_free(m.device, Z3D_SPACE_DEVICE, m.copy, ELEMENTS * 8);
    z3d_device_free(m.device, Z3D_SPACE_DEVICE, m.buffer, ELEMENTS * 8);
    z3d_device_destroy(m.device);
    return m.failed > 0;
}

int check_nccl(const z3d_device_config *config) {
    meeting *at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int failed = at == MAP_FAILED;
    fflush(stdout);
    for (int rank = 0; rank < RANKS && !failed; rank++) {
        pid_t child = fork();
        if (child == 0) {
            int code = run_rank(rank, at, config);
            fflush(stdout);
            _exit(code);
        }
        failed |= child < 0;
    }
    for (int status = 0; wait(&status) > 0;)
        failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    printf("%s\n", failed ? "FAILED  nccl: not every rank came to its end" : "ok      nccl");
    return failed;
}
