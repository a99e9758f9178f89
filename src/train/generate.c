/* Autoregressive sampling. */
#include "src/train/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Largest logit first, the smaller id among equals: one order on every rank. */
static bool before(const float *logits, int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* Restores the heap property (the last in order at the top) below `at`. */
static void sift(const float *logits, int32_t *heap, int64_t count, int64_t at) {
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= count) return;
        if (child + 1 < count && before(logits, heap[child], heap[child + 1])) child++;
        if (before(logits, heap[child], heap[at])) return;
        int32_t swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
        at = child;
    }
}

/* heap[0 .. k-1] become the ids of the k largest logits, in order. */
static void select_top(const float *logits, int32_t count, int64_t k, int32_t *heap) {
    for (int32_t i = 0; i < k; i++) heap[i] = i;
    for (int64_t i = k / 2; i-- > 0;) sift(logits, heap, k, i);
    for (int32_t i = (int32_t)k; i < count; i++)
        if (before(logits, i, heap[0])) {
            heap[0] = i;
            sift(logits, heap, k, 0);
        }
    for (int64_t left = k - 1; left > 0; left--) {
        int32_t last = heap[0];
        heap[0] = heap[left];
        heap[left] = last;
        sift(logits, heap, left, 0);
    }
}

/* How many of the k most likely are enough for top_p; *sum: theirs. */
static int64_t nucleus(const float *logits, const int32_t *top, int64_t k, double temperature,
                       double top_p, double *sum) {
    double wanted = top_p * *sum, reached = 0;
    for (int64_t i = 0; i < k; i++) {
        reached += exp((logits[top[i]] - (double)logits[top[0]]) / temperature);
        if (reached < wanted) continue;
        *sum = reached;
        return i + 1;
    }
    return k;
}

int32_t z3d_sample_token(const float *logits, int32_t count, double temperature, int64_t top_k,
                         double top_p, float uniform, int32_t *scratch) {
    int32_t best = 0;
    for (int32_t i = 0; i < count; i++) {
        if (isnan(logits[i])) return -1;
        if (before(logits, i, best)) best = i;
    }
    if (!isfinite(logits[best])) return -1;
    if (temperature == 0 || top_k == 1) return best;
    int64_t k = top_k > 0 && top_k < count ? top_k : count;
    select_top(logits, count, k, scratch);
    double sum = 0, largest = logits[best];
    for (int64_t i = 0; i < k; i++) sum += exp((logits[scratch[i]] - largest) / temperature);
    if (top_p < 1) k = nucleus(logits, scratch, k, temperature, top_p, &sum);
    double wanted = (double)uniform * sum, reached = 0;
    for (int64_t i = 0; i < k; i++) {
        reached += exp((logits[scratch[i]] - largest) / temperature);
        if (reached >= wanted) return scratch[i];
    }
    return scratch[k - 1];
}

typedef struct generation {
    z3d_engine *engine;
    z3d_tokenizer *tokenizer;
    const z3d_generate_options *options;
    int64_t seq, columns;      /* tokens that the program takes, logits that it gives */
    z3d_token_list history;    /* all tokens so far */
    int32_t *tokens, *targets; /* [seq] */
    float *logits;             /* [columns] */
    int32_t *scratch;
} generation;

/* An empty prompt stands for a text's beginning: where the tokenizer puts nothing there, it follows
 * the end of another one. */
static z3d_status encode_prompt(generation *g) {
    z3d_tokenizer *t = g->tokenizer;
    int32_t first = t->begin_of_text;
    if (first < 0 && !*g->options->prompt) first = t->end_of_text;
    Z3D_TRY(z3d_token_list_reserve(&g->history, 1));
    if (first >= 0) g->history.id[g->history.count++] = first;
    Z3D_TRY(t->ops->encode(t, g->options->prompt, strlen(g->options->prompt), &g->history));
    return z3d_token_list_reserve(&g->history, (size_t)g->options->tokens);
}

static z3d_status prepare(generation *g) {
    const z3d_tokenizer *tokenizer = g->tokenizer;
    const z3d_program *program = z3d_engine_program(g->engine, Z3D_MODE_GENERATE);
    const z3d_unit *last = &program->model->unit[program->model->num_units - 1];
    g->seq = program->model->field[0].bytes_per_sample / (int64_t)sizeof(int32_t);
    g->columns = last->output_elements[Z3D_MODE_GENERATE];
    if (g->columns < tokenizer->vocab_size)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "the model has %lld token ids; the %s tokenizer needs %d: use the "
                         "tokenizer of the run (data.tokenizer, data.vocab)",
                         (long long)g->columns, tokenizer->ops->name, tokenizer->vocab_size);
    Z3D_TRY(z3d_new((size_t)g->seq, sizeof(int32_t), "generation's input", &g->tokens));
    Z3D_TRY(z3d_new((size_t)g->columns, sizeof(float), "logits", &g->logits));
    Z3D_TRY(z3d_new((size_t)tokenizer->vocab_size, sizeof(int32_t), "sampling", &g->scratch));
    return encode_prompt(g);
}

/* The next token behind the history: the program takes one sample, its last seq tokens. */
static z3d_status next_token(generation *g, uint64_t draw) {
    int64_t length = (int64_t)g->history.count, known = length < g->seq ? length : g->seq;
    memcpy(g->tokens, g->history.id + length - known, (size_t)known * sizeof(int32_t));
    z3d_micro_batch micro = {.field = {g->tokens}}; /* no targets: nothing is compared */
    Z3D_TRY(z3d_engine_generate(g->engine, &micro, known - 1, g->logits));
    float uniform =
        z3d_philox_uniform(z3d_philox(z3d_key(g->options->seed, "generate"), draw, 0).word[0]);
    /* Only ids that the tokenizer knows: the model's vocabulary may be larger, or padded. */
    int32_t token = z3d_sample_token(g->logits, g->tokenizer->vocab_size, g->options->temperature,
                                     g->options->top_k, g->options->top_p, uniform, g->scratch);
    if (token < 0)
        return Z3D_ERROR(Z3D_ERR_NUMERIC, "generated token %llu: the logits are NaN or infinite",
                         (unsigned long long)draw);
    g->history.id[g->history.count++] = token;
    return Z3D_OK;
}

static z3d_status decode(const generation *g, size_t first, z3d_string *out) {
    const z3d_tokenizer *tokenizer = g->tokenizer;
    const int32_t *id = g->history.id;
    for (size_t i = first, begin = first; i <= g->history.count; i++) {
        bool end = i < g->history.count && id[i] == tokenizer->end_of_text;
        bool begins = begin > first || !*g->options->prompt;
        if (i < g->history.count && !end) continue;
        Z3D_TRY(tokenizer->ops->decode(tokenizer, id + begin, i - begin, begins, out));
        if (end) z3d_string_append(out, "\n<|endoftext|>\n");
        begin = i + 1;
    }
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the generated text") : Z3D_OK;
}

/* Whether some rank was asked to stop. Collective. */
static z3d_status agree_on_stop(generation *g, bool *stop) {
    z3d_world *world = g->options->world;
    if (!world) return Z3D_OK;
    z3d_watchdog_position(world, true, "generation (waiting for all ranks)");
    return z3d_world_agree_stop(world, stop);
}

z3d_status z3d_generate(z3d_engine *engine, z3d_tokenizer *tokenizer,
                        const z3d_generate_options *options, z3d_string *out, bool *stopped) {
    enum { TOKENS_A_QUESTION = 8 };
    generation g = {.engine = engine, .tokenizer = tokenizer, .options = options};
    z3d_status status = prepare(&g);
    size_t first = g.history.count;
    *stopped = false;
    for (int64_t i = 0; i < options->tokens && status == Z3D_OK; i++) {
        if (i % TOKENS_A_QUESTION == 0) status = agree_on_stop(&g, stopped);
        if (status != Z3D_OK || *stopped) break;
        status = next_token(&g, (uint64_t)i);
    }
    if (status == Z3D_OK) status = decode(&g, first, out);
    z3d_token_list_free(&g.history);
    free(g.tokens);
    free(g.logits);
    free(g.scratch);
    return status;
}
