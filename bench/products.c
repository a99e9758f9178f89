/* Compares training.gemm `auto`, a table, with the fastest method of each product of GPT-2 124M's
 * layers, forward and backward. products [rows] [rounds] [threads]. The methods take turns; a
 * product's time with a method is the median over the rounds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/parts/measure.h"

enum { METHODS = 2, LAYERS = 5, PASSES = 3, MOST_ROUNDS = 64 };
static const z3d_gemm_method methods[METHODS] = {Z3D_GEMM_SGEMM, Z3D_GEMM_MATMUL};
static const struct layer {
    int64_t in, out;
    int times; /* number of such products in a step */
} layers[LAYERS] = {
    {768, 2304, 12}, {768, 768, 12}, {768, 3072, 12}, {3072, 768, 12}, {768, 50304, 1}};
static const char *const passes[PASSES] = {"forward", "input gradient", "weight gradient"};

typedef struct bench {
    z3d_device *device[METHODS];
    int64_t rows;
    int rounds;
    z3d_dtype dtype;
    char *a, *b, *c, *scratch;
    double table, fastest; /* seconds of a step's products */
} bench;

/* y = x w^T, dx = dy w, dw += dy^T x. */
static z3d_kernel product(const bench *b, struct layer l, int pass) {
    z3d_gemm g = {.a = b->a, .b = b->b, .c = b->c, .dtype = b->dtype, .c_dtype = b->dtype};
    g.m = pass == 2 ? l.out : b->rows;
    g.n = pass == 0 ? l.out : l.in;
    g.k = pass == 0 ? l.in : pass == 1 ? l.out : b->rows;
    g.transpose_a = pass == 2;
    g.transpose_b = pass == 0;
    g.accumulate = pass == 2;
    g.lda = pass == 0 ? l.in : l.out;
    g.ldb = l.in;
    g.ldc = g.n;
    return (z3d_kernel){.kind = Z3D_KERNEL_gemm, .as.gemm = g};
}

static z3d_status measure(bench *b, struct layer l, int pass) {
    double seconds[METHODS][MOST_ROUNDS], least = 1e30, table = 0;
    const z3d_kernel kernel = product(b, l, pass);
    for (int round = -1; round < b->rounds; round++)
        for (int m = 0; m < METHODS; m++) {
            const double start = z3d_now();
            const z3d_status status = z3d_launch(b->device[m], &kernel);
            if (status != Z3D_OK && status != Z3D_ERR_UNSUPPORTED) return status;
            if (round >= 0) seconds[m][round] = status == Z3D_OK ? z3d_now() - start : NAN;
        }
    printf("%s %-15s %4lld x %-5lld", z3d_dtype_name(b->dtype), passes[pass], (long long)l.in,
           (long long)l.out);
    for (int m = 0; m < METHODS; m++) {
        if (isnan(seconds[m][0])) continue; /* the library lacks it on this CPU */
        const double median = bench_median(seconds[m], b->rounds);
        if (median < least) least = median;
        if (methods[m] == z3d_gemm_from_table(b->dtype)) table = median;
        printf("  %s %7.2f ms", z3d_gemm_method_name(methods[m]), 1e3 * median);
    }
    printf("\n");
    b->table += l.times * table;
    b->fastest += l.times * least;
    return Z3D_OK;
}

static z3d_status run(bench *b, int threads) {
    const int64_t most = (50304 * (b->rows > 3072 ? b->rows : 3072)) * 4, scratch = 2 * most;
    z3d_device_config config = {.backend = "cpu", .threads = threads};
    for (int m = 0; m < METHODS; m++) {
        for (int t = 0; t < Z3D_DTYPE_COUNT; t++)
            if (t == Z3D_F32 || t == Z3D_BF16) config.gemm[t] = methods[m];
        Z3D_TRY(z3d_device_create(&config, &b->device[m]));
    }
    char **const memory[] = {&b->a, &b->b, &b->c, &b->scratch};
    for (int i = 0; i < 4; i++) {
        const int64_t bytes = i < 3 ? most : scratch;
        Z3D_TRY(z3d_device_alloc(b->device[0], Z3D_SPACE_DEVICE, bytes, (void **)memory[i]));
        memset(*memory[i], 0x3c, (size_t)bytes); /* a small number in each type */
    }
    for (int m = 0; m < METHODS; m++) z3d_device_set_scratch(b->device[m], b->scratch, scratch);
    printf("%s, %lld rows\n", z3d_device_description(b->device[0]), (long long)b->rows);
    static const z3d_dtype types[] = {Z3D_F32, Z3D_BF16};
    for (int t = 0; t < 2; t++) {
        b->dtype = types[t];
        b->table = b->fastest = 0;
        for (int l = 0; l < LAYERS; l++)
            for (int pass = 0; pass < PASSES; pass++) Z3D_TRY(measure(b, layers[l], pass));
        printf("%s: a step's products take %.3f s by the table (%s), %.3f s each by its fastest "
               "method: %+.1f %%\n",
               z3d_dtype_name(b->dtype), b->table,
               z3d_gemm_method_name(z3d_gemm_from_table(b->dtype)), b->fastest,
               100 * (b->table / b->fastest - 1));
    }
    return Z3D_OK;
}

int main(int argc, char **argv) {
    bench b = {.rows = argc > 1 ? atol(argv[1]) : 1024, .rounds = argc > 2 ? atoi(argv[2]) : 7};
    if (b.rows < 1) b.rows = 1024;
    if (b.rounds < 1 || b.rounds > MOST_ROUNDS) b.rounds = 7;
    z3d_status status = run(&b, argc > 3 ? atoi(argv[3]) : 0);
    if (status != Z3D_OK) fprintf(stderr, "%s\n", z3d_error_message());
    return status != Z3D_OK;
}
