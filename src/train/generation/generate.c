/* Continues prompts: gives them to the samples of all replicas, and generates one token of each at
 * a time. */
#include "src/train/generation/generate.h"

#include <stdlib.h>
#include <string.h>

#include "src/train/generation/answers.h"

/* A sample of the batch. */
typedef struct slot {
    const z3d_prompt *prompt; /* NULL: free */
    int64_t index;            /* of the prompt */
    z3d_sequence sequence;
    z3d_string text;
    size_t told; /* bytes of the text that were passed to `piece` */
    bool begins; /* the next token begins a text */
} slot;

typedef struct generation {
    z3d_tokenizer *tokenizer;
    const z3d_generate_options *options;
    z3d_decoder decoder;
    slot *slot;              /* [batch] */
    z3d_sequence **sequence; /* [batch] */
    z3d_answers answers;
    int64_t next; /* the first prompt without a sample */
    int64_t broken;
    int32_t *scratch;
} generation;

static z3d_status prepare(generation *g, z3d_engine *engine) {
    const z3d_tokenizer *tokenizer = g->tokenizer;
    Z3D_TRY(z3d_decoder_create(engine, &g->decoder));
    size_t batch = (size_t)g->decoder.batch;
    Z3D_TRY(z3d_new(batch, sizeof *g->slot, "generation", &g->slot));
    Z3D_TRY(z3d_new(batch, sizeof *g->sequence, "generation", &g->sequence));
    Z3D_TRY(z3d_new((size_t)tokenizer->vocab_size, sizeof(int32_t), "sampling", &g->scratch));
    return z3d_answers_create(g->options, &g->answers);
}

static void release(generation *g) {
    for (int64_t i = 0; g->slot && i < g->decoder.batch; i++) {
        free(g->slot[i].sequence.token);
        z3d_string_free(&g->slot[i].text);
    }
    free(g->slot);
    free(g->sequence);
    free(g->scratch);
    z3d_answers_release(&g->answers);
    z3d_decoder_release(&g->decoder);
}

/* ---- giving prompts to samples ---- */

static z3d_status begin(generation *g, int64_t index) {
    const z3d_prompt *prompt = &g->options->prompt[index];
    int64_t i = 0;
    while (g->slot[i].prompt) i++;
    slot *s = &g->slot[i];
    size_t room = (size_t)(prompt->length + prompt->tokens);
    s->prompt = prompt;
    s->index = index;
    s->told = 0;
    s->begins = prompt->begins;
    z3d_string_clear(&s->text);
    s->sequence = (z3d_sequence){.length = prompt->length};
    g->sequence[i] = &s->sequence;
    Z3D_TRY(z3d_new(room, sizeof(int32_t), "generated tokens", &s->sequence.token));
    memcpy(s->sequence.token, prompt->token, (size_t)prompt->length * sizeof *prompt->token);
    return Z3D_OK;
}

/* Gives each next prompt to the replica with the most free samples. Every rank computes the same.
 */
static z3d_status deal(generation *g, z3d_round *round) {
    const int replicas = g->answers.replicas;
    for (; g->next < g->options->count; g->next++) {
        int64_t tokens = g->options->prompt[g->next].length;
        int to = 0;
        for (int r = 1; r < replicas; r++)
            if (round[r].free > round[to].free) to = r;
        if (round[to].free == 0) return Z3D_OK;
        round[to].free--;
        z3d_decoder_count(&round[to].work, tokens);
        if (to == g->answers.replica) Z3D_TRY(begin(g, g->next));
    }
    return Z3D_OK;
}

static z3d_round look(const generation *g) {
    z3d_round round = {.work = z3d_decoder_look(&g->decoder, g->sequence), .broken = g->broken};
    for (int64_t i = 0; i < g->decoder.batch; i++) round.free += !g->slot[i].prompt;
    return round;
}

/* ---- from samples to answers ---- */

static z3d_status append_token(generation *g, slot *s, int32_t token) {
    const z3d_tokenizer *tokenizer = g->tokenizer;
    const size_t before = s->text.length;
    const bool ends = z3d_tokenizer_ends(tokenizer, token);
    if (ends) {
        z3d_string_append(&s->text, "\n");
        z3d_tokenizer_name_token(tokenizer, token, &s->text);
        z3d_string_append(&s->text, "\n");
    } else {
        Z3D_TRY(z3d_tokenizer_decode(tokenizer, &token, 1, s->begins, &s->text));
    }
    s->begins = ends || (s->begins && s->text.length == before);
    return s->text.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the generated text") : Z3D_OK;
}

/* Passes the new part of the first answer to `piece`. */
static z3d_status tell(generation *g, slot *s, size_t sure) {
    const z3d_generate_options *o = g->options;
    if (!o->piece || s->index != 0 || !g->answers.collects || sure <= s->told) return Z3D_OK;
    size_t from = s->told;
    s->told = sure;
    return o->piece(o->context, s->text.text + from, sure - from);
}

static z3d_status finish(generation *g, int64_t i, bool stopped) {
    slot *s = &g->slot[i];
    Z3D_TRY(tell(g, s, s->text.length));
    z3d_answer answer = {.text = s->text.text ? s->text.text : "",
                         .length = s->text.length,
                         .tokens = s->sequence.length - s->prompt->length,
                         .stopped = stopped};
    free(s->sequence.token);
    s->sequence = (z3d_sequence){0};
    s->prompt = NULL;
    g->sequence[i] = NULL;
    return z3d_answers_add(&g->answers, s->index, &answer);
}

/* Number of ids that both tokenizer and model have: the model's vocabulary may be larger, padded,
 * or a little smaller. */
static int32_t ids_of(const z3d_tokenizer *t) {
    return t->model_ids > 0 && t->model_ids < t->vocab_size ? t->model_ids : t->vocab_size;
}

/* -1: the logits are NaN or infinite. */
static int32_t draw(generation *g, int64_t i) {
    const slot *s = &g->slot[i];
    const z3d_prompt *prompt = s->prompt;
    const z3d_sampling *sampling = &g->options->sampling;
    float *logits = g->decoder.logits + i * g->decoder.columns;
    const int32_t count = ids_of(g->tokenizer);
    uint64_t index = (uint64_t)(s->sequence.length - prompt->length);
    float uniform = z3d_philox_uniform(
        z3d_philox(z3d_key(prompt->seed, "generate"), index, prompt->line).word[0]);
    z3d_penalize(logits, count, sampling->repetition_penalty, s->sequence.token, s->sequence.length,
                 g->scratch);
    return z3d_sample_token(logits, count, sampling, uniform, g->scratch);
}

/* Generates the next token of sample i, which was read to its end. */
static z3d_status advance(generation *g, int64_t i) {
    slot *s = &g->slot[i];
    const z3d_stops *stops = g->options->stops;
    size_t before = s->text.length, at;
    const int32_t token = draw(g, i);
    if (token < 0) { /* all replicas are told before the next call */
        g->broken = s->sequence.length - s->prompt->length + 1;
        return Z3D_OK;
    }
    s->sequence.token[s->sequence.length++] = token;
    if (z3d_stops_at_token(stops, token)) return finish(g, i, true);
    Z3D_TRY(append_token(g, s, token));
    const char *text = s->text.text ? s->text.text : "";
    if (z3d_stops_find(stops, text, s->text.length, before, &at)) {
        s->text.length = at;
        s->text.text[at] = '\0';
        return finish(g, i, true);
    }
    Z3D_TRY(tell(g, s, z3d_stops_sure(stops, text, s->text.length)));
    if (s->sequence.length - s->prompt->length < s->prompt->tokens) return Z3D_OK;
    return finish(g, i, false);
}

static void count(const generation *g, z3d_mode mode, const z3d_round *all, double seconds,
                  z3d_generate_totals *totals) {
    totals->seconds[mode] += seconds;
    for (int r = 0; r < g->answers.replicas; r++) {
        int64_t tokens = all[r].work.sequences;
        if (z3d_mode_prefills(mode)) tokens = all[r].work.unread;
        if (z3d_mode_prefills(mode) && tokens > g->decoder.tokens[mode])
            tokens = g->decoder.tokens[mode];
        totals->tokens[mode] += tokens;
    }
}

/* One call of the engine on all replicas, then a token for each sample that was read to its end. */
static z3d_status call(generation *g, const z3d_round *all, z3d_generate_totals *totals) {
    const z3d_decoder *d = &g->decoder;
    z3d_mode mode = Z3D_MODE_DECODE; /* the longest mode that any replica needs */
    for (int r = 0; r < g->answers.replicas; r++) {
        const z3d_mode wanted = z3d_decoder_mode(d, &all[r].work);
        if (wanted < mode) mode = wanted;
    }
    double start = z3d_now();
    Z3D_TRY(z3d_decoder_read(&g->decoder, mode, g->sequence));
    count(g, mode, all, z3d_now() - start, totals);
    for (int64_t i = 0; i < d->batch; i++) {
        const z3d_sequence *sequence = g->sequence[i];
        if (sequence && sequence->read == sequence->length) Z3D_TRY(advance(g, i));
    }
    return Z3D_OK;
}

static z3d_status work(generation *g, z3d_generate_totals *totals) {
    for (;;) {
        int64_t sequences = 0;
        z3d_round mine = look(g), *all;
        Z3D_TRY(z3d_answers_exchange(&g->answers, &mine, &all, &totals->stopped));
        if (totals->stopped) return Z3D_OK;
        for (int r = 0; r < g->answers.replicas; r++)
            if (all[r].broken)
                return Z3D_ERROR(Z3D_ERR_NUMERIC,
                                 "generated token %lld: the logits are NaN or infinite",
                                 (long long)all[r].broken - 1);
        Z3D_TRY(deal(g, all));
        for (int r = 0; r < g->answers.replicas; r++) sequences += all[r].work.sequences;
        if (sequences == 0) return Z3D_OK;
        Z3D_TRY(call(g, all, totals));
    }
}

z3d_status z3d_generate(z3d_engine *engine, z3d_tokenizer *tokenizer,
                        const z3d_generate_options *options, z3d_generate_totals *totals) {
    generation g = {.tokenizer = tokenizer, .options = options};
    *totals = (z3d_generate_totals){0};
    z3d_status status = prepare(&g, engine);
    if (status == Z3D_OK) status = work(&g, totals);
    /* After a stop, passes the rest of the first text to `piece`. */
    for (int64_t i = 0; totals->stopped && i < g.decoder.batch && status == Z3D_OK; i++)
        if (g.slot[i].prompt) status = tell(&g, &g.slot[i], g.slot[i].text.length);
    totals->answers = g.answers.given;
    release(&g);
    return status;
}
