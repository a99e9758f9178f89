/* Continues a text, one token at a time. */
#include "src/train/generation/generate.h"

#include <stdlib.h>
#include <string.h>

#include "src/train/generation/decoder.h"

typedef struct generation {
    z3d_tokenizer *tokenizer;
    const z3d_generate_options *options;
    z3d_decoder decoder;
    z3d_token_list ids; /* all so far: the sequence's tokens */
    z3d_sequence text;
    int32_t *scratch;
} generation;

static z3d_status prepare(generation *g, z3d_engine *engine) {
    const z3d_tokenizer *tokenizer = g->tokenizer;
    const char *prompt = g->options->prompt;
    Z3D_TRY(z3d_decoder_create(engine, &g->decoder));
    if (g->decoder.columns < tokenizer->vocab_size)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "the model has %lld token ids; the %s tokenizer needs %d: use the "
                         "tokenizer of the run (data.tokenizer, data.vocab)",
                         (long long)g->decoder.columns, tokenizer->ops->name,
                         tokenizer->vocab_size);
    Z3D_TRY(z3d_new((size_t)tokenizer->vocab_size, sizeof(int32_t), "sampling", &g->scratch));
    Z3D_TRY(z3d_tokenizer_prompt(g->tokenizer, prompt, strlen(prompt), &g->ids));
    Z3D_TRY(z3d_token_list_reserve(&g->ids, (size_t)g->options->tokens));
    g->text.token = g->ids.id;
    g->text.length = (int64_t)g->ids.count;
    if (g->text.length <= g->decoder.positions) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "the prompt has %lld tokens, but the model sees %lld (model.seq_length); "
                     "shorten it",
                     (long long)g->text.length, (long long)g->decoder.positions);
}

static z3d_status next_token(generation *g, uint64_t draw) {
    z3d_sequence *batch[] = {&g->text};
    Z3D_TRY(z3d_decoder_read(&g->decoder, batch));
    float uniform =
        z3d_philox_uniform(z3d_philox(z3d_key(g->options->seed, "generate"), draw, 0).word[0]);
    /* Only ids that the tokenizer knows: the model's vocabulary may be larger, or padded. */
    int32_t token =
        z3d_sample_token(g->decoder.last, g->tokenizer->vocab_size, g->options->temperature,
                         g->options->top_k, g->options->top_p, uniform, g->scratch);
    if (token < 0)
        return Z3D_ERROR(Z3D_ERR_NUMERIC, "generated token %llu: the logits are NaN or infinite",
                         (unsigned long long)draw);
    g->text.token[g->text.length++] = token;
    return Z3D_OK;
}

static z3d_status decode(const generation *g, int64_t first, z3d_string *out) {
    const z3d_tokenizer *tokenizer = g->tokenizer;
    for (int64_t i = first, begin = first; i <= g->text.length; i++) {
        bool end = i < g->text.length && g->text.token[i] == tokenizer->end_of_text;
        bool begins = begin > first || !*g->options->prompt;
        if (i < g->text.length && !end) continue;
        Z3D_TRY(tokenizer->ops->decode(tokenizer, g->text.token + begin, (size_t)(i - begin),
                                       begins, out));
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
    generation g = {.tokenizer = tokenizer, .options = options};
    z3d_status status = prepare(&g, engine);
    int64_t first = g.text.length;
    *stopped = false;
    for (int64_t i = 0; i < options->tokens && status == Z3D_OK; i++) {
        if (i % TOKENS_A_QUESTION == 0) status = agree_on_stop(&g, stopped);
        if (status != Z3D_OK || *stopped) break;
        status = next_token(&g, (uint64_t)i);
    }
    if (status == Z3D_OK) status = decode(&g, first, out);
    z3d_decoder_release(&g.decoder);
    z3d_token_list_free(&g.ids);
    free(g.scratch);
    return status;
}
