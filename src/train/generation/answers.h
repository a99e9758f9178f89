/* Messages between the replicas of a generation: how much each has to do, whether a rank was asked
 * to stop, and answers. Rank 0 passes answers to the caller in the order of their prompts. */
#ifndef ZERO3D_TRAIN_ANSWERS_H
#define ZERO3D_TRAIN_ANSWERS_H

#include "src/train/generation/decoder.h"
#include "src/train/generation/generate.h"

/* The state of one replica before a call of the engine. */
typedef struct z3d_round {
    int64_t free;          /* samples without a prompt */
    z3d_decoder_work work; /* of the samples with a prompt */
    int64_t bytes;         /* of answers that were not sent to rank 0 yet */
    int64_t stop;          /* this rank was asked to stop */
    int64_t broken; /* number (from 1) of the generated token whose logits are NaN; 0: none */
} z3d_round;

typedef struct z3d_answers {
    const z3d_generate_options *options;
    int replicas, replica; /* data ranks of the mesh, and this one's */
    bool collects;         /* this is rank 0 */
    int64_t given; /* rank 0: the answers of the first `given` prompts were passed to the caller */
    /* Private. */
    z3d_answer *waiting; /* rank 0, [count]: texts are malloc'ed; text NULL: no answer yet */
    z3d_string sent;     /* answers that were not sent to rank 0 yet */
    z3d_round *round;    /* [replicas] */
    z3d_round *ranks;    /* [world] */
} z3d_answers;

/* Zero-initialise *out before; release it also after a failure. ERR_MEMORY. Not collective. */
z3d_status z3d_answers_create(const z3d_generate_options *options, z3d_answers *out);
void z3d_answers_release(z3d_answers *answers);
/* Stores an answer for the next exchange. Every rank of the replica calls this with the same
 * answer. Not collective. */
z3d_status z3d_answers_add(z3d_answers *answers, int64_t prompt, const z3d_answer *answer);
/* Sends the stored answers to rank 0. *round: [replicas], the state of each replica; valid until
 * the next call, the caller may change it. *stop: a rank was asked to stop. Collective over the
 * world. */
z3d_status z3d_answers_exchange(z3d_answers *answers, const z3d_round *mine, z3d_round **round,
                                bool *stop);

#endif
