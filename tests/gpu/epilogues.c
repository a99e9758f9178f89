/* What the products of a layer take: with what follows them as an epilogue, as separate kernels,
 * and by the fastest of the library's algorithms. */
#include <float.h>

#include "src/device/interface/epilogue.h"
#include "tests/gpu/check.h"

enum { REPEATS = 5 };

/* Of a linear layer: tokens, outputs, inputs. */
typedef struct layer {
    int64_t tokens, out, in;
} layer;

static const layer layers[] = {
    {16384, 6400, 1600}, {16384, 4800, 1600}, {32768, 3072, 768}, {8192, 16384, 4096}};

typedef struct operands {
    char *x, *y, *weight, *other, *row; /* bf16; `other` is like y; a row: outputs or inputs */
} operands;

/* Forward; the gradient of the input (of a layer behind a gelu); of the weight. */
static z3d_gemm product_of(const layer *l, const operands *o, int way) {
    z3d_gemm forward = {.m = l->tokens, .n = l->out, .k = l->in, .transpose_b = true};
    z3d_gemm input = {.m = l->tokens, .n = l->out, .k = l->in};
    z3d_gemm weight = {.m = l->out, .n = l->in, .k = l->tokens, .transpose_a = true};
    z3d_gemm g = way == 0 ? forward : way == 1 ? input : weight;
    g.a = way < 2 ? o->x : o->y;
    g.b = way < 2 ? o->weight : o->x;
    g.c = way < 2 ? o->y : o->weight;
    g.lda = way < 2 ? l->in : l->out;
    g.ldb = way == 1 ? l->out : l->in;
    g.ldc = g.n;
    g.dtype = g.c_dtype = Z3D_BF16;
    return g;
}

static z3d_status seconds_of(z3d_device *device, const z3d_kernel *kernel, double *least) {
    *least = DBL_MAX;
    for (int i = 0; i < REPEATS; i++) {
        double seconds;
        Z3D_TRY(z3d_device_time(device, kernel, &seconds));
        if (seconds < *least) *least = seconds;
    }
    return Z3D_OK;
}

/* The first algorithm's time, and the least; the library goes on from one that refuses to run. */
static z3d_status plain(z3d_device *device, const z3d_gemm *g, double *first, double *least,
                        int *best) {
    const z3d_kernel kernel = {.kind = Z3D_KERNEL_gemm, .as.gemm = *g};
    z3d_gemm_choice choice;
    Z3D_TRY(z3d_device_gemm_choice(device, g, &choice));
    for (int i = 0; i < choice.algorithms; i++) {
        double seconds;
        choice.chosen = i;
        Z3D_TRY(z3d_device_choose_gemm(device, &choice));
        z3d_status status = seconds_of(device, &kernel, &seconds);
        if (status == Z3D_ERR_UNSUPPORTED) break; /* all from here on refuse */
        Z3D_TRY(status);
        Z3D_TRY(z3d_device_gemm_choice(device, g, &choice));
        i = choice.chosen; /* the one that ran */
        if (*first == 0) *first = *least = seconds, *best = i;
        if (seconds < *least) *best = i, *least = seconds;
    }
    choice.chosen = 0;
    return z3d_device_choose_gemm(device, &choice);
}

static z3d_status apart(z3d_device *device, const z3d_gemm *g, double *seconds) {
    z3d_kernel part[Z3D_GEMM_PARTS];
    *seconds = 0;
    for (int i = 0, parts = z3d_gemm_parts(g, part); i < parts; i++) {
        double more;
        Z3D_TRY(seconds_of(device, &part[i], &more));
        *seconds += more;
    }
    return Z3D_OK;
}

static z3d_status measure_layer(check_context *context, z3d_device *device, const layer *l,
                                const operands *o) {
    static const char *const names[] = {"forward, gelu", "input's gradient, gelu's",
                                        "weight's gradient, bias's"};
    for (int way = 0; way < 3; way++) {
        z3d_gemm g = product_of(l, o, way);
        double first = 0, least = 0, fused, parts;
        int best = 0;
        Z3D_TRY(plain(device, &g, &first, &least, &best));
        if (way == 0) g.gelu = o->other, g.bias = o->row;
        if (way == 1) g.before_gelu = o->other;
        if (way == 2) g.bias_gradient = o->row;
        const z3d_kernel kernel = {.kind = Z3D_KERNEL_gemm, .as.gemm = g};
        z3d_gemm_choice choice;
        Z3D_TRY(z3d_device_gemm_choice(device, &g, &choice));
        Z3D_TRY(seconds_of(device, &kernel, &fused));
        Z3D_TRY(apart(device, &g, &parts));
        check_measured(context, names[way],
                       "%lld x %lld x %lld: %s %.1f us, apart %.1f; the product alone %.1f, by "
                       "algorithm %d %.1f",
                       (long long)g.m, (long long)g.n, (long long)g.k,
                       choice.algorithms > 0 ? "fused" : "not fused", fused * 1e6, parts * 1e6,
                       first * 1e6, best, least * 1e6);
        check_report(context, (choice.algorithms > 0) == (way < 2) && first > 0, names[way],
                     way < 2 ? "is fused" : "is not fused");
    }
    return Z3D_OK;
}

static z3d_status with_operands(check_context *context, z3d_device *device, const layer *l) {
    const int64_t size = (int64_t)z3d_dtype_size(Z3D_BF16);
    const int64_t counts[] = {l->tokens * l->in, l->tokens * l->out, l->out * l->in,
                              l->tokens * l->out, l->out + l->in};
    char *block[5] = {0};
    z3d_status status = Z3D_OK;
    for (int i = 0; i < 5 && status == Z3D_OK; i++) {
        status = z3d_device_alloc(device, Z3D_SPACE_DEVICE, counts[i] * size, (void **)&block[i]);
        if (status == Z3D_OK)
            status = z3d_device_fill_random(device, block[i], counts[i], Z3D_BF16);
    }
    const operands o = {block[0], block[1], block[2], block[3], block[4]};
    if (status == Z3D_OK) status = measure_layer(context, device, l, &o);
    for (int i = 0; i < 5; i++)
        if (block[i]) z3d_device_free(device, Z3D_SPACE_DEVICE, block[i], counts[i] * size);
    return status;
}

z3d_status check_epilogues(check_context *context) {
    const layer tiny = {16, 32, 24};
    z3d_device *device;
    Z3D_TRY(z3d_device_create(&context->cuda, &device));
    z3d_status status = Z3D_OK;
    for (size_t i = 0; i < (context->tiny ? 1 : sizeof layers / sizeof *layers); i++)
        if (status == Z3D_OK)
            status = with_operands(context, device, context->tiny ? &tiny : &layers[i]);
    z3d_device_destroy(device);
    return status;
}
