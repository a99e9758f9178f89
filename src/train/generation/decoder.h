/* Sequences of tokens that a model continues together. Its caches hold the keys and values of the
 * tokens that it has read, so the cost of a text does not grow with the square of its length. */
#ifndef ZERO3D_TRAIN_DECODER_H
#define ZERO3D_TRAIN_DECODER_H

#include <stdbool.h>
#include <stdint.h>

#include "zero/zero.h"

/* The text of one sample of the batch. The owner appends tokens and counts them in `length`. */
typedef struct z3d_sequence {
    int32_t *token; /* the owner's */
    int64_t length; /* tokens so far, at least 1 */
    int64_t base;   /* index of the first token that the model still sees */
    int64_t read;   /* tokens 0 .. read - 1 were read; the caches hold those from `base` on */
} z3d_sequence;

typedef struct z3d_decoder {
    z3d_engine *engine;
    int64_t batch;         /* sequences in one call of DECODE */
    int64_t positions;     /* of a sequence in the caches, the most that the model sees */
    int64_t columns;       /* logits of a sequence */
    const int64_t *tokens; /* [Z3D_MODE_COUNT]: of a sequence in one call, the model's */
    int32_t *token;        /* [max(batch, tokens)] */
    int32_t *position;     /* [2, batch] */
    float *logits;         /* [batch, columns]: of the last call; the owner may change them */
} z3d_decoder;

/* Errors: ERR_USAGE if the model cannot generate, ERR_MEMORY. Release it also after a failure. Not
 * collective. */
z3d_status z3d_decoder_create(z3d_engine *engine, z3d_decoder *out);
void z3d_decoder_release(z3d_decoder *decoder);
/* The work of a model replica: the sequences with unread tokens; those of them (`waiting`) with
 * more than a few, for which a prefill may pay; the most unread tokens of one sequence.
 * z3d_decoder_count adds a sequence with `unread` unread tokens. */
typedef struct z3d_decoder_work {
    int64_t sequences, waiting, unread;
} z3d_decoder_work;
void z3d_decoder_count(z3d_decoder_work *work, int64_t unread);
/* The work of sequence[0 .. batch - 1] (NULL: no sequence). If a sequence is longer than the
 * model's positions, its beginning is left out: the model reads its last positions / 2 tokens
 * again. */
z3d_decoder_work z3d_decoder_look(const z3d_decoder *decoder, z3d_sequence *const *sequence);

/* The mode in which a model replica reads fastest. A prefill reads one sequence while the others
 * wait; DECODE reads one token of every sequence. DECODE is chosen if no sequence has more than a
 * few unread tokens, or more than there are waiting sequences. */
z3d_mode z3d_decoder_mode(const z3d_decoder *decoder, const z3d_decoder_work *work);

/* One call of the engine, after z3d_decoder_look. A prefill reads from the sequence with the most
 * unread tokens. If sequence i is then read to its end, logits[i, :] are the logits of its next
 * token. Collective over the world: every rank gives the same mode, and the ranks of a model
 * replica give the same tokens. Errors: z3d_engine_generate's. */
z3d_status z3d_decoder_read(z3d_decoder *decoder, z3d_mode mode, z3d_sequence *const *sequence);

#endif
