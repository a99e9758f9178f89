/* Sequences of tokens that a model continues together, with the keys and values of what it has read
 * in its caches: a token's cost does not grow with the square of the text. */
#ifndef ZERO3D_TRAIN_DECODER_H
#define ZERO3D_TRAIN_DECODER_H

#include <stdbool.h>
#include <stdint.h>

#include "zero/zero.h"

/* The text of one sample of the batch. The owner appends tokens and counts them in `length`. */
typedef struct z3d_sequence {
    int32_t *token; /* the owner's */
    int64_t length; /* tokens so far, at least 1 */
    int64_t base;   /* the first of them that the model still sees */
    int64_t read;   /* how many the model has read: those before are in the caches */
} z3d_sequence;

typedef struct z3d_decoder {
    z3d_engine *engine;
    int64_t batch;                  /* sequences that the engine works on together */
    int64_t positions;              /* of a sequence in the caches: the model sees no more */
    int64_t columns;                /* logits of a sequence */
    int64_t tokens[Z3D_MODE_COUNT]; /* of a sequence in one call */
    int32_t *token;                 /* [max(batch, tokens)] */
    int32_t *position;              /* [2, batch] */
    float *logits;                  /* [batch, columns]: of the last call; the owner's to change */
} z3d_decoder;

/* Errors: ERR_USAGE if the model cannot generate, ERR_MEMORY. Release it in any case. */
z3d_status z3d_decoder_create(z3d_engine *engine, z3d_decoder *out);
void z3d_decoder_release(z3d_decoder *decoder);
/* What the model has to read: how many sequences have tokens, how many more than are read one by
 * one anyway, and the most that one has. count: one sequence more. */
typedef struct z3d_decoder_work {
    int64_t sequences, waiting, unread;
} z3d_decoder_work;
void z3d_decoder_count(z3d_decoder_work *work, int64_t unread);
/* Of sequence[0 .. batch - 1] (NULL: nobody is there). A sequence that is longer than the model's
 * positions loses its beginning: its last half of the positions is read again. */
z3d_decoder_work z3d_decoder_look(const z3d_decoder *decoder, z3d_sequence *const *sequence);

/* How a model replica reads best. A prefill is of one sequence, while the others wait; a few
 * tokens, and those of many sequences that have not many more, are read one by one of all. */
z3d_mode z3d_decoder_mode(const z3d_decoder *decoder, const z3d_decoder_work *work);

/* One call, after a look: a prefill reads the sequence with the most tokens. Where a sequence is
 * read to its end, logits[i, :] are those of what follows it. Collective over the world: every rank
 * gives the same mode, and the ranks of a model replica the same tokens. */
z3d_status z3d_decoder_read(z3d_decoder *decoder, z3d_mode mode, z3d_sequence *const *sequence);

#endif
