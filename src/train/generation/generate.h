/* Generation: text from the model in memory, one token at a time. */
#ifndef ZERO3D_TRAIN_GENERATE_H
#define ZERO3D_TRAIN_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "parallel/parallel.h"
#include "src/base/base.h"
#include "src/train/tokenizer.h"
#include "zero/zero.h"

typedef struct z3d_generate_options {
    const char *prompt; /* follows what begins a text; "": a new text (z3d_tokenizer_prompt) */
    int64_t tokens;     /* to generate; the end of a document does not stop it */
    double temperature; /* 0: always the most likely token */
    int64_t top_k;      /* sample from the k most likely; 0: from all */
    double top_p;  /* of these, from the most likely ones whose probabilities add up to p; 1: from
                      all */
    uint64_t seed; /* draw i is a pure function of (seed, i) */
    z3d_world *world; /* every few tokens all ranks agree on a requested stop; NULL: none */
} z3d_generate_options;

/* Continues the prompt; *out receives the new text only, a document's end as a line
 * "<|endoftext|>". Where the text becomes longer than the model's sequence, its beginning is left
 * out (decoder.h). *stopped: some rank was asked to stop, so the text is shorter. Collective over
 * the world: every rank feeds the same tokens and samples the same one. Errors (not agreed): the
 * engine's, ERR_CONFIG if the prompt is longer than the sequence, ERR_NUMERIC if a logit is NaN. */
z3d_status z3d_generate(z3d_engine *engine, z3d_tokenizer *tokenizer,
                        const z3d_generate_options *options, z3d_string *out, bool *stopped);

/* One draw: uniform in (0,1] picks from softmax(logits / temperature) over the top_k largest (equal
 * logits: the smaller id first), cut behind the first of them whose probabilities, added up in that
 * order, reach top_p. scratch: int32[count]. -1 when a logit is NaN or none is finite. */
int32_t z3d_sample_token(const float *logits, int32_t count, double temperature, int64_t top_k,
                         double top_p, float uniform, int32_t *scratch);

#endif
