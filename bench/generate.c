/* Compares generation with GPT-2 124M or a Llama of its shape, one prompt, with the machine's
 * limits: generate gpt2|llama [threads] [fp32|bf16] [rounds]. The limit of a prefill of 1,024
 * tokens is its matrix products alone in fp32 (parts/floor.c). The limit of a decoded token is
 * reading as many bytes as the weights have. A token and a reading take turns; a ratio is the
 * median over the rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/parts/measure.h"
#include "bench/parts/model.h"

enum { POSITIONS = 1024, MOST_ROUNDS = 256, PREFILLS = 5 };

struct bench {
    bench_ranks ranks;
    z3d_model *model;
    z3d_engine *engine;
    int threads, rounds;
    z3d_dtype dtype;
    bool llama;
    int32_t token[POSITIONS];
    float *logits;
    char *weights; /* as many bytes as the model's weights */
    int64_t bytes;
};

static z3d_status create(struct bench *b) {
    Z3D_TRY(bench_make(&b->ranks, 1, b->threads));
    Z3D_TRY(bench_model_create(b->llama, POSITIONS, false, &b->model));
    b->threads = z3d_device_threads(b->ranks.device);
    z3d_engine_config config = {
        .model = b->model,
        .program = {.dtype = b->dtype, .micro_batch = 1, .inference = true, .generate_batch = 1}};
    Z3D_TRY(bench_engine(&b->ranks, &config, &b->engine));
    Z3D_TRY(z3d_new(PADDED, sizeof(float), "logits", &b->logits));
    b->bytes = z3d_model_parameter_count(b->model) * (int64_t)z3d_dtype_size(b->dtype);
    Z3D_TRY(z3d_new((size_t)b->bytes, 1, "as many bytes as the weights", &b->weights));
    memset(b->weights, 0x3c, (size_t)b->bytes);
    for (int i = 0; i < POSITIONS; i++) b->token[i] = i * 7919 % VOCABULARY;
    return Z3D_OK;
}

/* Runs tokens [first, first + count) of the text. */
static z3d_status read_tokens(struct bench *b, z3d_mode mode, int first, int count) {
    const int32_t position[2] = {first, count - 1};
    return z3d_engine_generate(b->engine, mode, 0, b->token + first, position, b->logits);
}

static z3d_status time_prefill(struct bench *b, double *out) {
    const int at_once = (int)b->model->tokens[Z3D_MODE_PREFILL];
    double seconds[PREFILLS];
    for (int k = -1; k < PREFILLS; k++) {
        const double begin = z3d_now();
        for (int at = 0; at < POSITIONS; at += at_once)
            Z3D_TRY(read_tokens(b, Z3D_MODE_PREFILL, at, at_once));
        if (k >= 0) seconds[k] = z3d_now() - begin;
    }
    *out = bench_median(seconds, PREFILLS);
    return Z3D_OK;
}

/* Times one token in each round; the text before it has 16 tokens and grows by one each round. */
static z3d_status time_decode(struct bench *b, double *token, double *ratio) {
    double seconds[MOST_ROUNDS], share[MOST_ROUNDS];
    for (int k = -1; k < b->rounds; k++) {
        const double begin = z3d_now();
        Z3D_TRY(read_tokens(b, Z3D_MODE_DECODE, 17 + k, 1));
        const double mine = z3d_now() - begin;
        const double reading = bench_read(b->weights, b->bytes, b->threads);
        if (k >= 0) seconds[k] = mine, share[k] = reading / mine;
    }
    *token = bench_median(seconds, b->rounds);
    *ratio = bench_median(share, b->rounds);
    return Z3D_OK;
}

static z3d_status measure(struct bench *b) {
    double prefill, token, ratio;
    Z3D_TRY(create(b));
    Z3D_TRY(time_prefill(b, &prefill));
    Z3D_TRY(time_decode(b, &token, &ratio));
    const double bare = bench_floor_prefill(b->llama, POSITIONS);
    printf("%s %s threads %d: prefill of %d tokens %.3f s, %.0f tokens/s, products alone %.3f s, "
           "ratio %.2f; decode %.2f ms, %.1f tokens/s, reading %.0f MB / this %.2f\n",
           b->llama ? "llama-123M" : "gpt2-124M", z3d_dtype_name(b->dtype), b->threads, POSITIONS,
           prefill, POSITIONS / prefill, bare, bare / prefill, 1e3 * token, 1 / token,
           1e-6 * (double)b->bytes, ratio);
    return Z3D_OK;
}

int main(int argc, char **argv) {
    static struct bench b = {.rounds = 64, .dtype = Z3D_F32};
    if (argc < 2) {
        fprintf(stderr, "usage: generate gpt2|llama [threads] [fp32|bf16] [rounds, at most 256]\n");
        return 2;
    }
    b.llama = strcmp(argv[1], "llama") == 0;
    if (argc > 2) b.threads = atoi(argv[2]);
    if (argc > 3 && strcmp(argv[3], "bf16") == 0) b.dtype = Z3D_BF16;
    if (argc > 4) b.rounds = atoi(argv[4]);
    if (b.rounds < 1 || b.rounds > MOST_ROUNDS) b.rounds = 64;
    bench_open(&b.ranks, &argc, &argv);
    bench_must(&b.ranks, measure(&b));
    free(b.weights);
    free(b.logits);
    z3d_engine_destroy(b.engine);
    z3d_model_destroy(b.model);
    bench_close(&b.ranks);
    return 0;
}
