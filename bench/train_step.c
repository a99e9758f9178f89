/* Seconds of a training step through the engine, of GPT-2 124M or of a Llama of its shape, beside
 * the seconds of its matrix products alone, each by the faster of oneDNN's sgemm and its matmul
 * primitive whose right operand is packed beforehand at no cost, measured in the same process:
 * train_step gpt2|llama BATCH SEQ [stage] [threads] [steps] [dtype]. BATCH is the global batch over
 * all ranks. Rank 0 prints one line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dnnl.h>

#include "src/model/gpt/gpt.h"
#include "src/model/llama/llama.h"
#include "zero/zero.h"

struct bench {
    z3d_world *world;
    z3d_mesh mesh;
    z3d_model *model;
    z3d_device *device;
    z3d_group *group[Z3D_AXES_COUNT];
    z3d_engine *engine;
    int64_t batch, seq;
    int stage, threads, steps;
    z3d_dtype dtype;
    bool llama;
};

enum { LAYERS = 12, HIDDEN = 768, VOCABULARY = 50257, PADDED = 50304 };
enum { HEADS = 12, KV_HEADS = 4, HEAD_DIM = HIDDEN / HEADS, LLAMA_INNER = 2048 };

/* A block's products, in -> out. */
typedef struct product {
    int64_t in, out;
} product;

static const product gpt2_products[] = {
    {HIDDEN, 3 * HIDDEN}, {HIDDEN, HIDDEN}, {HIDDEN, 4 * HIDDEN}, {4 * HIDDEN, HIDDEN}};
static const product llama_products[] = {{HIDDEN, (HEADS + 2 * KV_HEADS) * HEAD_DIM},
                                         {HIDDEN, HIDDEN},
                                         {HIDDEN, 2 * LLAMA_INNER},
                                         {LLAMA_INNER, HIDDEN}};

/* ---- the floor: the step's matrix products alone ---- */

static double time_sgemm(int64_t m, int64_t n, int64_t k, char ta, char tb, const float *a,
                         const float *b, float *c) {
    double best = 1e30;
    for (int r = 0; r < 4; r++) {
        double begin = z3d_now();
        dnnl_sgemm(ta, tb, m, n, k, 1, a, ta == 'N' ? k : m, b, tb == 'N' ? n : k, 0, c, n);
        double seconds = z3d_now() - begin;
        if (r > 0 && seconds < best) best = seconds;
    }
    return best;
}

static dnnl_status_t make_matmul(dnnl_engine_t engine, int64_t m, int64_t n, int64_t k, char ta,
                                 dnnl_memory_desc_t operand[3], dnnl_primitive_t *out) {
    const dnnl_dims_t left = {m, k}, right = {k, n}, product = {m, n};
    const dnnl_dims_t rows = {k, 1}, columns = {1, m}, plain = {n, 1};
    dnnl_matmul_desc_t operation;
    dnnl_primitive_desc_t made;
    dnnl_status_t status = dnnl_memory_desc_init_by_strides(&operand[0], 2, left, dnnl_f32,
                                                            ta == 'N' ? rows : columns);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_tag(&operand[1], 2, right, dnnl_f32, dnnl_format_tag_any);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_strides(&operand[2], 2, product, dnnl_f32, plain);
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&operation, &operand[0], &operand[1], NULL, &operand[2]);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(&made, &operation, NULL, engine, NULL);
    if (status != dnnl_success) return status;
    operand[1] = *dnnl_primitive_desc_query_md(made, dnnl_query_weights_md, 0);
    status = dnnl_primitive_create(out, made);
    dnnl_primitive_desc_destroy(made);
    return status;
}

/* The right operand lies as the primitive likes it best. */
static double time_packed(int64_t m, int64_t n, int64_t k, char ta, const float *a, float *c) {
    dnnl_engine_t engine = NULL;
    dnnl_stream_t stream = NULL;
    dnnl_primitive_t matmul = NULL;
    dnnl_memory_desc_t operand[3];
    dnnl_memory_t memory[3] = {NULL};
    void *at[3] = {(void *)(uintptr_t)a, DNNL_MEMORY_ALLOCATE, c};
    double best = 1e30;
    bool made = dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success &&
                dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success &&
                make_matmul(engine, m, n, k, ta, operand, &matmul) == dnnl_success;
    for (int i = 0; i < 3 && made; i++)
        made = dnnl_memory_create(&memory[i], &operand[i], engine, at[i]) == dnnl_success;
    for (int r = 0; r < 4 && made; r++) {
        const dnnl_exec_arg_t arguments[] = {
            {DNNL_ARG_SRC, memory[0]}, {DNNL_ARG_WEIGHTS, memory[1]}, {DNNL_ARG_DST, memory[2]}};
        double begin = z3d_now();
        made = dnnl_primitive_execute(matmul, stream, 3, arguments) == dnnl_success &&
               dnnl_stream_wait(stream) == dnnl_success;
        double seconds = z3d_now() - begin;
        if (made && r > 0 && seconds < best) best = seconds;
    }
    for (int i = 0; i < 3; i++)
        if (memory[i]) dnnl_memory_destroy(memory[i]);
    if (matmul) dnnl_primitive_destroy(matmul);
    if (stream) dnnl_stream_destroy(stream);
    if (engine) dnnl_engine_destroy(engine);
    return best;
}

static double time_product(int64_t m, int64_t n, int64_t k, char ta, char tb, const float *a,
                           const float *b, float *c) {
    double sgemm = time_sgemm(m, n, k, ta, tb, a, b, c), packed = time_packed(m, n, k, ta, a, c);
    return sgemm < packed ? sgemm : packed;
}

/* A linear layer's forward and two backward products. */
static double linear_floor(int64_t rows, int64_t in, int64_t out, const float *a, const float *b,
                           float *c) {
    return time_product(rows, out, in, 'N', 'T', a, b, c) +
           time_product(rows, in, out, 'N', 'N', a, b, c) +
           time_product(out, in, rows, 'T', 'N', a, b, c);
}

static double floor_seconds(bool llama, int64_t rows) {
    const product *block = llama ? llama_products : gpt2_products;
    size_t most = (size_t)PADDED * (rows > HIDDEN ? (size_t)rows : HIDDEN);
    float *a = malloc(most * 4), *b = malloc(most * 4), *c = malloc(most * 4);
    double sum = -1;
    if (a && b && c) {
        for (size_t i = 0; i < most; i++) a[i] = b[i] = c[i] = (float)(i % 13) * 0.1f;
        sum = linear_floor(rows, HIDDEN, PADDED, a, b, c);
        for (int i = 0; i < 4; i++)
            sum += LAYERS * linear_floor(rows, block[i].in, block[i].out, a, b, c);
    }
    free(a);
    free(b);
    free(c);
    return sum;
}

/* ---- the step ---- */

static z3d_status create_model(struct bench *s) {
    const z3d_gpt_config gpt = {.num_layers = LAYERS,
                                .hidden_size = HIDDEN,
                                .num_heads = HEADS,
                                .seq_length = s->seq,
                                .vocab_size = VOCABULARY,
                                .vocab_multiple = 128,
                                .init_std = 0.02,
                                .tensor_size = 1};
    const z3d_llama_config llama = {.num_layers = LAYERS,
                                    .hidden_size = HIDDEN,
                                    .num_heads = HEADS,
                                    .num_key_value_heads = KV_HEADS,
                                    .head_dim = HEAD_DIM,
                                    .intermediate_size = LLAMA_INNER,
                                    .seq_length = s->seq,
                                    .vocab_size = VOCABULARY,
                                    .vocab_multiple = 128,
                                    .init_std = 0.02,
                                    .rms_norm_eps = 1e-5,
                                    .rope = {.theta = 10000},
                                    .tie_word_embeddings = true,
                                    .tensor_size = 1};
    return s->llama ? z3d_llama_create(&llama, &s->model) : z3d_gpt_create(&gpt, &s->model);
}

static z3d_status create(struct bench *s) {
    int ranks = z3d_world_size(s->world);
    Z3D_TRY(z3d_mesh_make(1, ranks, 1, z3d_world_rank(s->world), &s->mesh));
    Z3D_TRY(create_model(s));
    Z3D_TRY(z3d_device_create(&(z3d_device_config){.backend = "cpu", .threads = s->threads},
                              &s->device));
    Z3D_TRY(z3d_groups_create(s->world, &s->mesh, s->device, s->group));
    z3d_engine_config config = {
        .model = s->model,
        .mesh = s->mesh,
        .device = s->device,
        .world = s->world,
        .program = {.stage = s->stage,
                    .dtype = s->dtype,
                    .grad_dtype = s->dtype,
                    .micro_batch = s->batch / ranks,
                    .accumulation = 1,
                    .reduce_per_step = s->stage < 2,
                    .overlap = true,
                    .reduce_bucket = 4 << 20,
                    .gather_bucket = 4 << 20},
        .optimizer = {.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f},
        .gradient_clipping = 1,
        .scaler = {.scale = 1},
        .seed = 1};
    memcpy(config.group, s->group, sizeof s->group);
    return z3d_engine_create(&config, &s->engine);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds of a step, the first left out. */
static z3d_status time_steps(struct bench *s, double *median) {
    int64_t count = s->batch / z3d_world_size(s->world) * s->seq;
    double seconds[64];
    int32_t *tokens = malloc((size_t)count * 4);
    if (!tokens) return Z3D_ERROR(Z3D_ERR_MEMORY, "batch");
    for (int64_t i = 0; i < count; i++) tokens[i] = (int32_t)((i * 7919) % VOCABULARY);
    z3d_micro_batch micro = {.field = {tokens, tokens}};
    z3d_step_input input = {
        .micro = &micro, .global_targets = s->batch * s->seq, .learning_rate = 1e-4f};
    z3d_status status = Z3D_OK;
    for (int k = 0; k <= s->steps && status == Z3D_OK; k++) {
        z3d_step_result result;
        status = z3d_engine_train_step(s->engine, &input, &result);
        if (k > 0) seconds[k - 1] = result.seconds;
    }
    free(tokens);
    qsort(seconds, (size_t)s->steps, sizeof *seconds, by_value);
    *median = seconds[s->steps / 2];
    return status;
}

static z3d_status measure(struct bench *s) {
    double step = 0;
    Z3D_TRY(create(s));
    Z3D_TRY(time_steps(s, &step));
    bool alone = z3d_world_size(s->world) == 1;
    double bare = alone ? floor_seconds(s->llama, s->batch * s->seq) : 0;
    if (z3d_world_rank(s->world) > 0) return Z3D_OK;
    printf("%s %s B %lld x T %lld stage %d ranks %d threads %d: %.3f s/step, %.0f tokens/s",
           s->llama ? "llama-123M" : "gpt2-124M", z3d_dtype_name(s->dtype), (long long)s->batch,
           (long long)s->seq, s->stage, z3d_world_size(s->world), z3d_device_threads(s->device),
           step, (double)(s->batch * s->seq) / step);
    if (alone) printf(", products alone %.3f s, ratio %.3f", bare, bare / step);
    printf("\n");
    return Z3D_OK;
}

int main(int argc, char **argv) {
    struct bench s = {.stage = 0, .threads = 0, .steps = 5, .dtype = Z3D_F32};
    if (argc < 4) {
        fprintf(stderr, "usage: train_step gpt2|llama BATCH SEQ [stage] [threads] [steps, at most "
                        "64] [fp32|bf16]\n");
        return 2;
    }
    s.llama = strcmp(argv[1], "llama") == 0;
    s.batch = atoll(argv[2]);
    s.seq = atoll(argv[3]);
    if (argc > 4) s.stage = atoi(argv[4]);
    if (argc > 5) s.threads = atoi(argv[5]);
    if (argc > 6) s.steps = atoi(argv[6]);
    if (argc > 7 && strcmp(argv[7], "bf16") == 0) s.dtype = Z3D_BF16;
    if (s.steps < 1 || s.steps > 64) s.steps = 5;
    if (z3d_world_create(&argc, &argv, &s.world) != Z3D_OK) {
        fprintf(stderr, "%s\n", z3d_error_message());
        return 1;
    }
    z3d_status status = measure(&s);
    if (status != Z3D_OK) z3d_world_abort(s.world, status, z3d_error_message());
    z3d_engine_destroy(s.engine);
    z3d_groups_destroy(s.group);
    z3d_device_destroy(s.device);
    z3d_model_destroy(s.model);
    z3d_world_destroy(s.world);
    return 0;
}
