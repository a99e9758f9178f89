/* Measures the time of ZeRO-R's options. One GPT of hidden size HIDDEN trains with each option, all
 * in one process. The options take turns step by step, so noise affects all equally. offload HIDDEN
 * LAYERS SEQ BATCH [rounds] [fp32|bf16] [pair]; all ranks form one tensor group; pair: only plain
 * checkpoints and P_a+cpu, which takes less memory. Rank 0 prints one line for each option. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/parts/measure.h"
#include "src/model/gpt/gpt.h"
#include "zero/program.h"

struct way {
    const char *name;
    bool keep; /* no recompute */
    bool selective, replay_full, partition, offload, in_turn, sequence;
    int every; /* a checkpoint every so many blocks; 0: for each block */
};

static const struct way ways[] = {
    {"none", .keep = true},
    {"selective", .keep = true, .selective = true},
    {"full", .every = 0},
    {"full, replay: full", .replay_full = true},
    {"full, every 2 blocks", .every = 2},
    {"P_a", .partition = true},
    {"cpu", .offload = true},
    {"P_a+cpu", .partition = true, .offload = true},
    {"P_a+cpu, no overlap", .partition = true, .offload = true, .in_turn = true},
    {"sequence, none", .keep = true, .sequence = true},
    {"sequence, selective", .keep = true, .selective = true, .sequence = true},
    {"sequence, full", .sequence = true},
    {"sequence, full, cpu", .sequence = true, .offload = true},
};

enum {
    WAYS = sizeof ways / sizeof *ways,
    PLAIN = 2, /* the reference */
    BOTH = 7,
    MOST_ROUNDS = 32,
    VOCABULARY = 512
};

struct bench {
    bench_ranks ranks;
    z3d_model *model[2]; /* without and with sequence parallelism */
    int64_t hidden, layers, seq, batch;
    int rounds;
    bool pair;
    z3d_dtype dtype;
    int32_t *tokens;
    z3d_engine *engine[WAYS];
    double seconds[WAYS][MOST_ROUNDS], exposed[WAYS][MOST_ROUNDS];
};

static bool runs(const struct bench *b, int w) {
    return !b->pair || w == PLAIN || w == BOTH;
}

static z3d_status create_engine(struct bench *b, int w) {
    z3d_engine_config config = {
        .model = b->model[ways[w].sequence],
        .program = {.stage = 2,
                    .dtype = b->dtype,
                    .micro_batch = b->batch,
                    .recompute = !ways[w].keep,
                    .selective = ways[w].selective,
                    .replay_full = ways[w].replay_full,
                    .checkpoint_every = ways[w].every,
                    .partition_activations = ways[w].partition,
                    .checkpoint_space = ways[w].offload ? Z3D_SPACE_HOST : Z3D_SPACE_DEVICE,
                    .overlap = !ways[w].in_turn,
                    .reduce_bucket = 500000000,
                    .gather_bucket = 500000000},
        .gradient_clipping = 1};
    return bench_engine(&b->ranks, &config, &b->engine[w]);
}

static z3d_status create(struct bench *b) {
    int ranks = z3d_world_size(b->ranks.world);
    z3d_gpt_config gpt = {.num_layers = b->layers,
                          .hidden_size = b->hidden,
                          .num_heads = b->hidden / 64,
                          .seq_length = b->seq,
                          .vocab_size = VOCABULARY,
                          .vocab_multiple = 128,
                          .init_std = 0.02,
                          .tensor_size = ranks};
    Z3D_TRY(bench_make(&b->ranks, ranks, 1));
    for (int sequence = 0; sequence < 2; sequence++) {
        gpt.sequence_parallel = sequence == 1 && ranks > 1;
        Z3D_TRY(z3d_gpt_create(&gpt, &b->model[sequence]));
    }
    Z3D_TRY(z3d_new((size_t)(b->batch * b->seq), sizeof *b->tokens, "tokens", &b->tokens));
    for (int64_t i = 0; i < b->batch * b->seq; i++) b->tokens[i] = (int32_t)(i * 7919 % VOCABULARY);
    for (int w = 0; w < WAYS; w++)
        if (runs(b, w)) Z3D_TRY(create_engine(b, w));
    return Z3D_OK;
}

/* One step. The engines share a device and the last engine's scratch, because their kernels are the
 * same. */
static z3d_status step(struct bench *b, int w, int round) {
    z3d_micro_batch micro = {.field = {b->tokens, b->tokens}};
    z3d_step_input input = {
        .micro = &micro, .global_targets = b->batch * b->seq, .learning_rate = 1e-5F};
    z3d_step_result result;
    Z3D_TRY(z3d_engine_train_step(b->engine[w], &input, &result));
    if (round < 0) return Z3D_OK;
    b->seconds[w][round] = result.seconds;
    b->exposed[w][round] = result.exposed_transfer_seconds;
    return Z3D_OK;
}

/* `values` stay in the order of the rounds. */
static double median(const double *values, int count) {
    double sorted[MOST_ROUNDS];
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    return bench_median(sorted, count);
}

/* Medians of the ratios to the reference in the same round. */
static void print(const struct bench *b) {
    printf("hidden %lld, %lld layers, sequence %lld, batch %lld, %s, tensor %d\n",
           (long long)b->hidden, (long long)b->layers, (long long)b->seq, (long long)b->batch,
           z3d_dtype_name(b->dtype), z3d_mesh_size(&b->ranks.mesh, Z3D_AXES_TENSOR));
    for (int w = 0; w < WAYS; w++) {
        if (!runs(b, w)) continue;
        double ratio[MOST_ROUNDS];
        const z3d_ledger *planned = z3d_engine_planned(b->engine[w], Z3D_SPACE_DEVICE);
        for (int r = 0; r < b->rounds; r++) ratio[r] = b->seconds[w][r] / b->seconds[PLAIN][r];
        printf("%-21s %8.4f s/step, %.3f of full, transfers exposed %.5f s, activations %8.3f MB, "
               "host %8.3f MB\n",
               ways[w].name, median(b->seconds[w], b->rounds), median(ratio, b->rounds),
               median(b->exposed[w], b->rounds),
               (double)planned->peak[Z3D_CATEGORY_ACTIVATIONS] * 1e-6,
               (double)z3d_engine_program(b->engine[w], Z3D_MODE_TRAIN)->arena[Z3D_SPACE_HOST] *
                   1e-6);
    }
}

static z3d_status measure(struct bench *b) {
    Z3D_TRY(create(b));
    for (int round = -1; round < b->rounds; round++)
        for (int w = 0; w < WAYS; w++)
            if (runs(b, w)) Z3D_TRY(step(b, w, round));
    if (z3d_world_rank(b->ranks.world) == 0) print(b);
    return Z3D_OK;
}

static void destroy(struct bench *b) {
    for (int w = 0; w < WAYS; w++) z3d_engine_destroy(b->engine[w]);
    for (int sequence = 0; sequence < 2; sequence++) z3d_model_destroy(b->model[sequence]);
    free(b->tokens);
    bench_close(&b->ranks);
}

int main(int argc, char **argv) {
    struct bench b = {.rounds = 7, .dtype = Z3D_F32};
    if (argc < 5) {
        fprintf(stderr, "usage: offload HIDDEN LAYERS SEQ BATCH [rounds] [fp32|bf16] [pair]\n");
        return 2;
    }
    b.hidden = atoll(argv[1]);
    b.layers = atoll(argv[2]);
    b.seq = atoll(argv[3]);
    b.batch = atoll(argv[4]);
    if (argc > 5) b.rounds = atoi(argv[5]);
    if (b.rounds < 1 || b.rounds > MOST_ROUNDS) b.rounds = 7;
    if (argc > 6 && strcmp(argv[6], "bf16") == 0) b.dtype = Z3D_BF16;
    b.pair = argc > 7 && strcmp(argv[7], "pair") == 0;
    bench_open(&b.ranks, &argc, &argv);
    bench_must(&b.ranks, measure(&b));
    destroy(&b);
    return 0;
}
