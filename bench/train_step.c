/* Compares the seconds of a training step through the engine, of GPT-2 124M or of a Llama of its
 * shape, with the seconds of its matrix products alone (parts/floor.c), in one process: train_step
 * gpt2|llama BATCH SEQ [stage] [threads] [steps] [dtype] [documents]. BATCH is the global batch
 * over all ranks. documents: each sample has several documents of 32 to SEQ tokens; attention stays
 * in a document, and its products are counted at the rate of the other products. Rank 0 prints one
 * line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/parts/measure.h"
#include "bench/parts/model.h"

struct bench {
    bench_ranks ranks;
    z3d_model *model;
    z3d_engine *engine;
    int64_t batch, seq;
    int stage, threads, steps;
    z3d_dtype dtype;
    bool llama, packed;
};

static z3d_status create(struct bench *s) {
    Z3D_TRY(bench_make(&s->ranks, 1, s->threads));
    Z3D_TRY(bench_model_create(s->llama, s->seq, s->packed, &s->model));
    z3d_engine_config config = {
        .model = s->model,
        .program = {.stage = s->stage,
                    .dtype = s->dtype,
                    .micro_batch = s->batch / z3d_world_size(s->ranks.world),
                    .reduce_per_step = s->stage < 2,
                    .overlap = true},
        .optimizer = {.weight_decay = 0.1f},
        .gradient_clipping = 1};
    return bench_engine(&s->ranks, &config, &s->engine);
}

/* Fills in the positions of `count` tokens in their documents; returns the pairs of tokens that
 * attention joins, a token and itself included. A document has at least 32 tokens and at most the
 * rest of its sample. */
static double fill_positions(const struct bench *s, int64_t count, int32_t *positions) {
    double pairs = 0;
    uint32_t random = 1;
    for (int64_t i = 0, length; i < count; i += length) {
        const int64_t left = s->seq - i % s->seq;
        random = random * 1664525u + 1013904223u;
        length = s->packed ? 32 + (random >> 8) % (s->seq > 32 ? s->seq - 31 : 1) : s->seq;
        if (length > left - 32) length = left;
        for (int64_t j = 0; j < length; j++) positions[i + j] = (int32_t)j;
        pairs += 0.5 * (double)length * (double)(length + 1);
    }
    return pairs;
}

/* Median seconds of a step, without the first step. */
static z3d_status time_steps(struct bench *s, double *median, double *pairs) {
    int64_t count = s->batch / z3d_world_size(s->ranks.world) * s->seq;
    double seconds[64];
    int32_t *tokens = malloc((size_t)count * 8);
    if (!tokens) return Z3D_ERROR(Z3D_ERR_MEMORY, "batch");
    for (int64_t i = 0; i < count; i++) tokens[i] = (int32_t)((i * 7919) % VOCABULARY);
    *pairs = fill_positions(s, count, tokens + count);
    z3d_micro_batch micro = {.field = {tokens, tokens, s->packed ? tokens + count : NULL}};
    z3d_step_input input = {
        .micro = &micro, .global_targets = s->batch * s->seq, .learning_rate = 1e-4f};
    z3d_status status = Z3D_OK;
    for (int k = 0; k <= s->steps && status == Z3D_OK; k++) {
        z3d_step_result result;
        status = z3d_engine_train_step(s->engine, &input, &result);
        if (k > 0) seconds[k - 1] = result.seconds;
    }
    free(tokens);
    *median = bench_median(seconds, s->steps);
    return status;
}

/* FLOPs of attention: two products forward and five backward, of the joined pairs. */
static double attention_flops(double pairs) {
    return 7.0 * 2.0 * pairs * LAYERS * HEADS * HEAD_DIM;
}

/* FLOPs of the products that bench_floor_train measures. */
static double product_flops(const struct bench *s) {
    const bench_product *block = bench_model_products(s->llama);
    double elements = (double)HIDDEN * PADDED;
    for (int i = 0; i < BENCH_PRODUCTS; i++)
        elements += LAYERS * (double)block[i].in * (double)block[i].out;
    return 3.0 * 2.0 * elements * (double)(s->batch * s->seq);
}

static z3d_status measure(struct bench *s) {
    double step = 0, pairs = 0;
    Z3D_TRY(create(s));
    Z3D_TRY(time_steps(s, &step, &pairs));
    bool alone = z3d_world_size(s->ranks.world) == 1;
    double bare = alone ? bench_floor_train(s->llama, s->batch * s->seq) : 0;
    double attention = bare * attention_flops(pairs) / product_flops(s);
    if (z3d_world_rank(s->ranks.world) > 0) return Z3D_OK;
    printf("%s %s B %lld x T %lld stage %d ranks %d threads %d: %.3f s/step, %.0f tokens/s",
           s->llama ? "llama-123M" : "gpt2-124M", z3d_dtype_name(s->dtype), (long long)s->batch,
           (long long)s->seq, s->stage, z3d_world_size(s->ranks.world),
           z3d_device_threads(s->ranks.device), step, (double)(s->batch * s->seq) / step);
    if (s->packed) printf(" in documents");
    if (alone)
        printf(", attention's products %.3f s, products alone %.3f s, ratio %.3f", attention, bare,
               bare / step);
    printf("\n");
    return Z3D_OK;
}

int main(int argc, char **argv) {
    struct bench s = {.stage = 0, .threads = 0, .steps = 5, .dtype = Z3D_F32};
    if (argc < 4) {
        fprintf(stderr, "usage: train_step gpt2|llama BATCH SEQ [stage] [threads] [steps, at most "
                        "64] [fp32|bf16] [documents]\n");
        return 2;
    }
    s.llama = strcmp(argv[1], "llama") == 0;
    s.batch = atoll(argv[2]);
    s.seq = atoll(argv[3]);
    if (argc > 4) s.stage = atoi(argv[4]);
    if (argc > 5) s.threads = atoi(argv[5]);
    if (argc > 6) s.steps = atoi(argv[6]);
    if (argc > 7 && strcmp(argv[7], "bf16") == 0) s.dtype = Z3D_BF16;
    s.packed = argc > 8 && strcmp(argv[8], "documents") == 0;
    if (s.steps < 1 || s.steps > 64) s.steps = 5;
    bench_open(&s.ranks, &argc, &argv);
    bench_must(&s.ranks, measure(&s));
    z3d_engine_destroy(s.engine);
    z3d_model_destroy(s.model);
    bench_close(&s.ranks);
    return 0;
}
