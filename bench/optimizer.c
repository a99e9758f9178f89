/* Compares an optimizer's step with a copy of memory: optimizer [threads] [rounds] [fp32|bf16]
 * [kernel] [elements]. The kernel is adamw, sgd, ..., adamw_bf16 (src/base/optimizers.h). AdamW
 * reads gradients, master copy, momentum and variance and writes the last three (in bf16 also
 * parameters), of 32 M elements; the copy moves as many bytes. The two take turns; the ratio is the
 * median over the rounds. The host runs this step for offloaded optimizer states. optimizers.py
 * compares it with PyTorch's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/parts/measure.h"

enum { MOST_ROUNDS = 64, ARRAYS = 5 };

static const struct {
    const char *name;
    z3d_kernel_kind kind;
    unsigned states;
} kernels[] = {
#define X(_, id, name, reads, states, flops) {#id, Z3D_KERNEL_##id, states},
    Z3D_OPTIMIZER_KERNELS(X, )
#undef X
};

struct bench {
    z3d_device *device;
    int threads, rounds;
    size_t kernel; /* index in the table of kernels */
    int64_t elements;
    z3d_dtype dtype;
    float *array[ARRAYS]; /* master, the optimizer's own two, gradient, parameter */
    z3d_step_state *state;
};

static int64_t bytes_moved(const struct bench *b) {
    const int64_t narrow = (int64_t)z3d_dtype_size(b->dtype);
    const int64_t kept = 1 + z3d_count_kinds(kernels[b->kernel].states);
    return b->elements * (2 * 4 * kept + narrow + (b->dtype == Z3D_F32 ? 0 : narrow));
}

static z3d_status step(struct bench *b) {
    const z3d_kernel kernel = {
        .kind = kernels[b->kernel].kind,
        .as.update = {.master = b->array[0],
                      .momentum = b->array[1],
                      .variance = b->array[2],
                      .square_sum = b->array[1],
                      .moments = b->array[1],
                      .gradient = b->array[3],
                      .parameter = b->dtype == Z3D_F32 ? NULL : b->array[4],
                      .count = b->elements,
                      .decayed = b->elements,
                      .dtype = b->dtype,
                      .gradient_dtype = b->dtype,
                      .place = {.local = b->elements, .global = b->elements, .inner = 1},
                      .constants = {.beta1 = 0.9f,
                                    .beta2 = 0.95f,
                                    .epsilon = 1e-8f,
                                    .momentum = 0.9f,
                                    .weight_decay = 0.1f,
                                    .lr_scale = 1},
                      .state = b->state}};
    return z3d_launch(b->device, &kernel);
}

/* Copies one half of the arrays to the other, each thread its own part; the rate counts reading and
 * writing. */
static void copy(struct bench *b) {
    const int64_t half = bytes_moved(b) / 2, one = b->elements * 4;
#pragma omp parallel num_threads(b->threads)
    for (int64_t done = 0, k = 0; done < half; done += one, k++) {
        const int64_t part = half - done < one ? half - done : one;
#pragma omp for schedule(static) nowait
        for (int64_t at = 0; at < part; at += 1 << 20)
            memcpy((char *)b->array[2 * k % 4 + 1] + at, (char *)b->array[2 * k % 4] + at,
                   (size_t)(part - at < 1 << 20 ? part - at : 1 << 20));
    }
}

static z3d_status measure(struct bench *b) {
    double ratio[MOST_ROUNDS], seconds[MOST_ROUNDS];
    for (int k = -1; k < b->rounds; k++) {
        double begin = z3d_now();
        Z3D_TRY(step(b));
        const double mine = z3d_now() - begin;
        begin = z3d_now();
        copy(b);
        const double copied = z3d_now() - begin;
        if (k >= 0) seconds[k] = mine, ratio[k] = copied / mine;
    }
    const double best = bench_median(seconds, b->rounds);
    printf("%s %s threads %d: %.3f ns an element, %.1f GB/s, copy / this %.2f\n",
           kernels[b->kernel].name, z3d_dtype_name(b->dtype), b->threads,
           1e9 * best / (double)b->elements, 1e-9 * (double)bytes_moved(b) / best,
           bench_median(ratio, b->rounds));
    return Z3D_OK;
}

static z3d_status run(struct bench *b) {
    Z3D_TRY(z3d_device_create(&(z3d_device_config){.backend = "cpu", .threads = b->threads},
                              &b->device));
    b->threads = z3d_device_threads(b->device);
    for (int i = 0; i < ARRAYS; i++) {
        Z3D_TRY(
            z3d_device_alloc(b->device, Z3D_SPACE_DEVICE, b->elements * 4, (void **)&b->array[i]));
        memset(b->array[i], 0, (size_t)b->elements * 4);
    }
    Z3D_TRY(z3d_device_alloc(b->device, Z3D_SPACE_DEVICE, sizeof *b->state, (void **)&b->state));
    *b->state = (z3d_step_state){
        .optimizer_step = 1, .learning_rate = 1e-4f, .gradient_factor = 1, .loss_scale = 1};
    return measure(b);
}

int main(int argc, char **argv) {
    static struct bench b = {.rounds = 9, .dtype = Z3D_F32, .elements = 32 << 20};
    const size_t all = sizeof kernels / sizeof *kernels;
    if (argc > 1) b.threads = atoi(argv[1]);
    if (argc > 2) b.rounds = atoi(argv[2]);
    if (argc > 3 && strcmp(argv[3], "bf16") == 0) b.dtype = Z3D_BF16;
    while (argc > 4 && b.kernel < all && strcmp(argv[4], kernels[b.kernel].name) != 0) b.kernel++;
    if (argc > 5) b.elements = atoll(argv[5]);
    if (b.kernel == all || b.elements < 1) {
        fprintf(stderr, "usage: optimizer [threads] [rounds] [fp32|bf16] [kernel] [elements]\n");
        return 2;
    }
    if (b.rounds < 1 || b.rounds > MOST_ROUNDS) b.rounds = 9;
    z3d_status status = run(&b);
    if (status != Z3D_OK) fprintf(stderr, "%s\n", z3d_error_message());
    z3d_device_destroy(b.device);
    return status == Z3D_OK ? 0 : 1;
}
