/* Generation: texts from the model in memory, many together. generate.c gives prompts to the
 * replicas and their samples, decoder.h reads them, sampling.c draws tokens, stops.h ends texts. */
#ifndef ZERO3D_TRAIN_GENERATE_H
#define ZERO3D_TRAIN_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "parallel/parallel.h"
#include "src/base/base.h"
#include "src/train/generation/stops.h"
#include "src/train/tokenizer.h"
#include "zero/zero.h"

/* How a token is drawn, in this order, as in transformers. */
typedef struct z3d_sampling {
    double repetition_penalty; /* 1: none */
    double temperature;        /* 0: always the most likely token */
    int64_t top_k;             /* sample from the k most likely; 0: from all */
    double top_p; /* of these, from the most likely ones whose probabilities add up to p; 1: from
                     all */
} z3d_sampling;

/* A prompt as tokens (z3d_tokenizer_prompt). */
typedef struct z3d_prompt {
    int32_t *token;
    int64_t length;      /* at least 1 */
    bool begins;         /* its answer begins a text */
    int64_t tokens;      /* to generate at most */
    uint64_t seed, line; /* the draw of token i is a pure function of (seed, line, i) */
} z3d_prompt;

typedef struct z3d_answer {
    const char *text; /* any bytes: the new text only, a document's end as a line "<|endoftext|>" */
    size_t length;
    int64_t tokens; /* generated, with one that ended it */
    bool stopped;   /* a stop ended it; else it has as many tokens as were asked for */
} z3d_answer;

typedef struct z3d_generate_options {
    const z3d_prompt *prompt;
    int64_t count;
    z3d_sampling sampling;
    const z3d_stops *stops;
    const z3d_mesh *mesh;
    z3d_world *world; /* all ranks agree on a requested stop; NULL: one rank, no stops */
    /* Rank 0, each may be NULL. piece: what the first prompt's answer has become longer by, whole
     * characters. answer: of every prompt, in order. An error ends the generation. */
    z3d_status (*piece)(void *context, const char *text, size_t length);
    z3d_status (*answer)(void *context, int64_t prompt, const z3d_answer *answer);
    void *context;
} z3d_generate_options;

/* What a generation did, over all replicas. */
typedef struct z3d_generate_totals {
    int64_t answers;                /* that are complete; rank 0 knows */
    int64_t tokens[Z3D_MODE_COUNT]; /* that calls in this mode read */
    double seconds[Z3D_MODE_COUNT];
    bool stopped; /* some rank was asked to stop: answers are missing */
} z3d_generate_totals;

/* Continues all prompts. Each model replica works on as many together as its engine has samples;
 * where one ends, the next begins at once. Where a text becomes longer than the model's sequence,
 * its beginning is left out (decoder.h). Collective over the world: every rank gives the same
 * prompts. Errors (not agreed): the engine's, the callbacks', ERR_CONFIG if the model has fewer ids
 * than the tokenizer. Agreed: ERR_NUMERIC if a logit is NaN. */
z3d_status z3d_generate(z3d_engine *engine, z3d_tokenizer *tokenizer,
                        const z3d_generate_options *options, z3d_generate_totals *totals);

/* Divides the positive logits of all ids in token[0 .. length - 1] by the penalty and multiplies
 * the negative ones (Keskar et al., CTRL). scratch: int32[count]. */
void z3d_penalize(float *logits, int32_t count, double penalty, const int32_t *token,
                  int64_t length, int32_t *scratch);

/* One draw: uniform in (0,1] picks from softmax(logits / temperature) over the top_k largest (equal
 * logits: the smaller id first), cut behind the first of them whose probabilities, added up in that
 * order, reach top_p. scratch: int32[count]. -1 when a logit is NaN or none is finite. */
int32_t z3d_sample_token(const float *logits, int32_t count, const z3d_sampling *sampling,
                         float uniform, int32_t *scratch);

#endif
