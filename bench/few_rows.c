/* Measures products of few rows, as in decoding: GPT-2's linear layers with 1 to 16 rows, compared
 * with the time in which all threads read as many bytes of weights. few_rows [threads] [rounds]
 * [fp32|bf16]. The weights are larger than the caches. Reading, products as in training and
 * products as in generation take turns. A ratio is the median over the rounds; the number in
 * parentheses is the ratio of the fastest runs, for a machine with other work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/parts/measure.h"

enum { SHAPES = 5, MOST_ROWS = 16, MOST_ROUNDS = 64, WAYS = 3 };
#define WEIGHT_BYTES ((int64_t)160 << 20)

static const int64_t rows_of[] = {1, 2, 4, 8, 16};
static const struct shape {
    int64_t in, out;
} shapes[SHAPES] = {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}, {768, 50304}};

struct bench {
    z3d_device *device;
    int threads, rounds;
    z3d_dtype dtype;
    char *weights, *x, *y, *scratch;
    int64_t scratch_bytes;
};

static z3d_kernel product(const struct bench *b, struct shape s, int64_t rows, bool inference) {
    return (z3d_kernel){.kind = Z3D_KERNEL_gemm,
                        .as.gemm = {.m = rows,
                                    .n = s.out,
                                    .k = s.in,
                                    .transpose_b = true,
                                    .inference = inference,
                                    .a = b->x,
                                    .b = b->weights,
                                    .c = b->y,
                                    .lda = s.in,
                                    .ldb = s.in,
                                    .ldc = s.out,
                                    .dtype = b->dtype,
                                    .c_dtype = b->dtype}};
}

static z3d_status take_scratch(struct bench *b, const z3d_kernel *kernel) {
    int64_t bytes = z3d_kernel_scratch(kernel, b->threads);
    if (bytes <= b->scratch_bytes) return Z3D_OK;
    z3d_device_free(b->device, Z3D_SPACE_DEVICE, b->scratch, b->scratch_bytes);
    b->scratch = NULL;
    b->scratch_bytes = bytes;
    Z3D_TRY(z3d_device_alloc(b->device, Z3D_SPACE_DEVICE, bytes, (void **)&b->scratch));
    z3d_device_set_scratch(b->device, b->scratch, bytes);
    return Z3D_OK;
}

/* Multiplies all weights, as matrices of this shape one after the other. */
static z3d_status run_once(struct bench *b, struct shape s, int64_t rows, int way,
                           double *seconds) {
    const int64_t matrix = s.in * s.out * (int64_t)z3d_dtype_size(b->dtype);
    const int64_t bytes = WEIGHT_BYTES / matrix * matrix;
    z3d_kernel kernel = product(b, s, rows, way == 2);
    Z3D_TRY(take_scratch(b, &kernel));
    double start = z3d_now();
    if (way == 0) bench_read(b->weights, bytes, b->threads);
    for (int64_t at = 0; way > 0 && at < bytes; at += matrix) {
        kernel.as.gemm.b = b->weights + at;
        Z3D_TRY(z3d_launch(b->device, &kernel));
    }
    *seconds = (z3d_now() - start) / (double)bytes;
    return Z3D_OK;
}

static z3d_status measure(struct bench *b, struct shape s, int64_t rows) {
    double per_byte[WAYS], least[WAYS] = {1, 1, 1}, ratio[WAYS][MOST_ROUNDS];
    for (int round = -1; round < b->rounds; round++) {
        for (int way = 0; way < WAYS; way++) Z3D_TRY(run_once(b, s, rows, way, &per_byte[way]));
        for (int way = 0; way < WAYS && round >= 0; way++) {
            ratio[way][round] = per_byte[0] / per_byte[way];
            if (per_byte[way] < least[way]) least[way] = per_byte[way];
        }
    }
    printf("%s %2lld rows, %4lld x %-5lld: read %4.1f GB/s; training %.2f (%.2f), inference %.2f "
           "(%.2f) of it\n",
           z3d_dtype_name(b->dtype), (long long)rows, (long long)s.in, (long long)s.out,
           1e-9 / least[0], bench_median(ratio[1], b->rounds), least[0] / least[1],
           bench_median(ratio[2], b->rounds), least[0] / least[2]);
    return Z3D_OK;
}

static z3d_status run(struct bench *b) {
    const int64_t most = 50304 * MOST_ROWS * 4;
    const z3d_device_config config = {.backend = "cpu", .threads = b->threads};
    Z3D_TRY(z3d_device_create(&config, &b->device));
    b->threads = z3d_device_threads(b->device);
    Z3D_TRY(z3d_device_alloc(b->device, Z3D_SPACE_DEVICE, WEIGHT_BYTES, (void **)&b->weights));
    Z3D_TRY(z3d_device_alloc(b->device, Z3D_SPACE_DEVICE, most, (void **)&b->x));
    Z3D_TRY(z3d_device_alloc(b->device, Z3D_SPACE_DEVICE, most, (void **)&b->y));
    memset(b->weights, 0x3c, (size_t)WEIGHT_BYTES); /* a small number in each type */
    memset(b->x, 0x3c, (size_t)most);
    printf("%s\n", z3d_device_description(b->device));
    for (size_t r = 0; r < sizeof rows_of / sizeof *rows_of; r++)
        for (int s = 0; s < SHAPES; s++) Z3D_TRY(measure(b, shapes[s], rows_of[r]));
    return Z3D_OK;
}

int main(int argc, char **argv) {
    struct bench b = {.rounds = 7, .dtype = Z3D_F32};
    if (argc > 1) b.threads = atoi(argv[1]);
    if (argc > 2) b.rounds = atoi(argv[2]);
    if (argc > 3 && strcmp(argv[3], "bf16") == 0) b.dtype = Z3D_BF16;
    if (b.rounds < 1 || b.rounds > MOST_ROUNDS) b.rounds = 7;
    z3d_status status = run(&b);
    if (status != Z3D_OK) fprintf(stderr, "%s\n", z3d_error_message());
    return status != Z3D_OK;
}
