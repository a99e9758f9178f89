/* Work that is captured and launched as one, without a model: what it must do, and must refuse. */
#include <string.h>

#include "parallel/interface/internal.h"
#include "tests/gpu/check.h"

enum { COUNT = 256, COPIES = 100, OTHERS = 24, OTHER_BYTES = 1 << 20 };

typedef struct blocks {
    z3d_device *device;
    float *x;    /* COUNT on the device */
    float *host; /* 2 x COUNT, pinned */
    z3d_region *region;
    int64_t launches; /* in it */
} blocks;

static z3d_status fill(const blocks *b, float *x, int64_t count, float value) {
    return Z3D_LAUNCH(b->device, fill, .x = x, .count = count, .dtype = Z3D_F32, .value = value);
}

/* ---- what is refused ---- */

static z3d_status read(const blocks *b) {
    return z3d_device_read(b->device, b->host, b->x, sizeof *b->host);
}

static z3d_status leave_a_copy(const blocks *b) {
    z3d_copy copy;
    return z3d_copy_start(b->device, b->host, b->x, sizeof *b->host, &copy);
}

static z3d_status allocate(const blocks *b) {
    void *more = NULL;
    z3d_status status = z3d_device_alloc(b->device, Z3D_SPACE_DEVICE, 64, &more);
    z3d_device_free(b->device, Z3D_SPACE_DEVICE, more, 64);
    return status;
}

/* That the device works on then, the cases behind this one show. */
static z3d_status refused(const blocks *b, z3d_status captured) {
    (void)b;
    Z3D_REQUIRE(captured != Z3D_OK, "NOT refused");
    return Z3D_OK;
}

/* ---- copies ---- */

/* Beside compute, more often than there are events for it; what the first has read is overwritten
 * as soon as that was waited for. */
static z3d_status copy_each(const blocks *b) {
    z3d_copy copy[COPIES];
    Z3D_TRY(z3d_device_post(b->device, b->x, b->host, COUNT * sizeof *b->x));
    for (int i = 0; i < COPIES; i++)
        Z3D_TRY(z3d_copy_start(b->device, b->host + COUNT + i, b->x + i, sizeof *b->x, &copy[i]));
    Z3D_TRY(z3d_copy_wait(b->device, copy[0]));
    Z3D_TRY(fill(b, b->x, 1, -1));
    for (int i = 1; i < COPIES; i++) Z3D_TRY(z3d_copy_wait(b->device, copy[i]));
    Z3D_TRY(fill(b, b->x, COUNT, 0));
    return z3d_device_fetch(b->device, b->host, b->x, COUNT * sizeof *b->x);
}

static z3d_status copied(const blocks *b, z3d_status captured) {
    Z3D_TRY(captured);
    Z3D_REQUIRE(b->launches == COPIES + 4, "%lld pieces of work", (long long)b->launches);
    for (int round = 1000; round <= 3000; round += 1000) {
        for (int i = 0; i < COUNT; i++) b->host[i] = (float)(round + i);
        Z3D_TRY(z3d_region_launch(b->device, b->region));
        Z3D_TRY(z3d_device_synchronize(b->device));
        for (int i = 0; i < COPIES; i++)
            Z3D_REQUIRE(b->host[COUNT + i] == (float)(round + i), "copy %d is wrong", i);
        for (int i = 0; i < COUNT; i++) Z3D_REQUIRE(b->host[i] == 0, "element %d is wrong", i);
    }
    return Z3D_OK;
}

/* ---- scratch ---- */

/* x[0 .. 1], as a double, becomes the number of ones behind it: through the kernels' scratch. */
static z3d_status count_ones(const blocks *b) {
    Z3D_TRY(fill(b, b->x, COUNT, 1));
    Z3D_TRY(fill(b, b->x, 2, 0));
    Z3D_TRY(Z3D_LAUNCH(b->device, sum_squares, .x = b->x + 4, .count = COUNT - 4, .dtype = Z3D_F32,
                       .out = (double *)(void *)b->x));
    return z3d_device_fetch(b->device, b->host, b->x, sizeof(double));
}

/* A kernel that wants more scratch than there is by default. */
static z3d_status grow_scratch(const blocks *b) {
    enum { ROWS = 8192, COLS = 544 };
    int64_t bytes = (ROWS + 1) * COLS * (int64_t)sizeof(float);
    float *dy = NULL;
    Z3D_TRY(z3d_device_alloc(b->device, Z3D_SPACE_DEVICE, bytes, (void **)&dy));
    z3d_status status =
        Z3D_LAUNCH(b->device, bias_backward, .dy = dy, .gradient = dy + ROWS * COLS, .rows = ROWS,
                   .cols = COLS, .dtype = Z3D_F32, .gradient_dtype = Z3D_F32);
    z3d_device_free(b->device, Z3D_SPACE_DEVICE, dy, bytes);
    return status;
}

/* The graph has its own: what takes the place of scratch that was let go would be written over. */
static z3d_status kept(const blocks *b, z3d_status captured) {
    float *other[OTHERS] = {NULL}, got[2] = {7, 7};
    double ones;
    Z3D_TRY(captured);
    z3d_status status = grow_scratch(b);
    for (int i = 0; i < OTHERS && status == Z3D_OK; i++) {
        status = z3d_device_alloc(b->device, Z3D_SPACE_DEVICE, OTHER_BYTES, (void **)&other[i]);
        if (status == Z3D_OK) status = fill(b, other[i], OTHER_BYTES / sizeof(float), 7);
    }
    if (status == Z3D_OK) status = z3d_region_launch(b->device, b->region);
    for (int i = 0; i < OTHERS && status == Z3D_OK && got[0] == 7 && got[1] == 7; i++)
        status = z3d_device_read(b->device, got, other[i], sizeof got);
    for (int i = 0; i < OTHERS; i++)
        z3d_device_free(b->device, Z3D_SPACE_DEVICE, other[i], OTHER_BYTES);
    memcpy(&ones, b->host, sizeof ones);
    Z3D_TRY(status);
    Z3D_REQUIRE(got[0] == 7 && got[1] == 7 && ones == COUNT - 4, "NOT kept for the graph");
    return Z3D_OK;
}

/* On several nodes a graph is made for whoever asks for it. */
static void check_nodes(check_context *context, z3d_device *device) {
    z3d_world world = {.nodes = 1};
    z3d_engine_config engine = {.device = device, .world = &world, .graph = Z3D_GRAPH_AUTO};
    const bool on_one = !z3d_graph_obstacle(&engine);
    world.nodes = 2;
    const char *obstacle = z3d_graph_obstacle(&engine);
    engine.graph = Z3D_GRAPH_ON;
    check_report(context, on_one && obstacle && !z3d_graph_obstacle(&engine),
                 "graphs on several nodes", "auto: %s", obstacle ? obstacle : "they are made");
}

/* ---- all of it ---- */

typedef struct capture_case {
    const char *name;
    z3d_status (*work)(const blocks *b);                       /* is captured */
    z3d_status (*check)(const blocks *b, z3d_status captured); /* what came of it */
} capture_case;

static const capture_case cases[] = {{"capture with a read", read, refused},
                                     {"capture with a copy left open", leave_a_copy, refused},
                                     {"capture with an allocation", allocate, refused},
                                     {"capture copies", copy_each, copied},
                                     {"capture, then scratch grows", count_ones, kept}};

static void check_case_of(check_context *context, blocks *b, const capture_case *c) {
    z3d_status status = z3d_capture_begin(b->device);
    if (status == Z3D_OK) status = c->work(b);
    z3d_status ended =
        z3d_capture_end(b->device, status == Z3D_OK ? &b->region : NULL, &b->launches);
    if (check_ran(context, c->check(b, status == Z3D_OK ? ended : status), c->name))
        check_report(context, true, c->name, "as it must");
    z3d_region_destroy(b->device, b->region);
    b->region = NULL;
}

z3d_status check_captures(check_context *context) {
    const int64_t bytes = COUNT * sizeof(float);
    blocks b = {0};
    Z3D_TRY(z3d_device_create(&context->cuda, &b.device));
    z3d_status status = z3d_device_alloc(b.device, Z3D_SPACE_DEVICE, bytes, (void **)&b.x);
    if (status == Z3D_OK)
        status = z3d_device_alloc(b.device, Z3D_SPACE_HOST, 2 * bytes, (void **)&b.host);
    if (status == Z3D_OK) status = count_ones(&b); /* a capture makes no scratch */
    for (size_t i = 0; i < sizeof cases / sizeof *cases && status == Z3D_OK; i++)
        check_case_of(context, &b, &cases[i]);
    check_nodes(context, b.device);
    z3d_device_free(b.device, Z3D_SPACE_DEVICE, b.x, bytes);
    z3d_device_free(b.device, Z3D_SPACE_HOST, b.host, 2 * bytes);
    z3d_device_destroy(b.device);
    return status;
}
