/* Generation: the model in memory continues many prompts together. generate.c gives prompts to the
 * replicas and their samples, decoder.h feeds them to the model, sampling.c draws tokens, stops.h
 * ends texts. */
#ifndef ZERO3D_TRAIN_GENERATE_H
#define ZERO3D_TRAIN_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "parallel/parallel.h"
#include "src/base/base.h"
#include "src/train/generation/stops.h"
#include "src/train/tokenizer.h"
#include "zero/zero.h"

/* How a token is drawn. The members are applied in this order, as in transformers. */
typedef struct z3d_sampling {
    double repetition_penalty; /* 1: none */
    double temperature;        /* 0: always the most likely token */
    int64_t top_k;             /* sample from the k most likely; 0: from all */
    double top_p; /* sample from the most likely of these, the fewest whose probabilities sum to at
                     least p; 1: from all of these */
} z3d_sampling;

/* A prompt as tokens (z3d_tokenizer_prompt). */
typedef struct z3d_prompt {
    int32_t *token;
    int64_t length; /* at least 1 */
    bool begins;    /* the answer begins a text: no text of the prompt comes directly before it */
    int64_t tokens; /* of the answer, at most */
    uint64_t seed, line; /* the draw of token i is a pure function of (seed, line, i) */
    z3d_string head;     /* of a file: the beginning of the answer's line, which has the prompt and
                            the other keys of the prompt's line */
} z3d_prompt;

typedef struct z3d_answer {
    const char
        *text; /* the new text only, any bytes; a document's end is a line like "<|endoftext|>" */
    size_t length;
    int64_t tokens; /* generated, a stop token included */
    bool stopped;   /* a stop ended it; false: it has prompt.tokens tokens */
} z3d_answer;

typedef struct z3d_generate_options {
    const z3d_prompt *prompt;
    int64_t count;
    z3d_sampling sampling;
    const z3d_stops *stops;
    const z3d_mesh *mesh;
    z3d_world *world; /* all ranks agree whether to stop */
    /* Called on rank 0; each may be NULL. piece: the new text of the first prompt's answer since
     * the last call, whole characters. answer: called for every prompt, in order. An error ends the
     * generation. */
    z3d_status (*piece)(void *context, const char *text, size_t length);
    z3d_status (*answer)(void *context, int64_t prompt, const z3d_answer *answer);
    void *context;
} z3d_generate_options;

/* Sums over all replicas. */
typedef struct z3d_generate_totals {
    int64_t answers;                /* complete ones; rank 0 only */
    int64_t tokens[Z3D_MODE_COUNT]; /* read by calls in this mode */
    double seconds[Z3D_MODE_COUNT];
    bool stopped; /* a rank was asked to stop: answers are missing */
} z3d_generate_totals;

/* Continues all prompts. Each model replica continues as many together as its engine has samples;
 * when an answer ends, the next prompt takes its sample at once. If a text becomes longer than the
 * model's sequence, its beginning is left out (decoder.h). Collective over the world: every rank
 * gives the same prompts. Errors (not agreed): the engine's, the callbacks'. Agreed:
 * ERR_NUMERIC if a logit is NaN. */
z3d_status z3d_generate(z3d_engine *engine, z3d_tokenizer *tokenizer,
                        const z3d_generate_options *options, z3d_generate_totals *totals);

/* For each id in token[0 .. length - 1], once: divides its logit by the penalty if it is positive,
 * else multiplies it (Keskar et al., CTRL). scratch: int32[count]. */
void z3d_penalize(float *logits, int32_t count, double penalty, const int32_t *token,
                  int64_t length, int32_t *scratch);

/* Draws one id. `uniform`, in (0,1], picks from softmax(logits / temperature) over the top_k
 * largest logits, in falling order (equal logits: the smaller id first). Of these it keeps the
 * first ones, up to the one with which the sum of probabilities reaches top_p. scratch:
 * int32[count]. Returns -1 if a logit is NaN or none is finite. */
int32_t z3d_sample_token(const float *logits, int32_t count, const z3d_sampling *sampling,
                         float uniform, int32_t *scratch);

#endif
