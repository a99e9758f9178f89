/* What the replicas of a generation tell each other: how much they have to do, who was asked to
 * stop, and answers, which rank 0 gives on in the order of their prompts. */
#ifndef ZERO3D_TRAIN_ANSWERS_H
#define ZERO3D_TRAIN_ANSWERS_H

#include "src/train/generation/decoder.h"
#include "src/train/generation/generate.h"

/* Of one replica, before a call of the engine. */
typedef struct z3d_round {
    int64_t free;          /* samples without a prompt */
    z3d_decoder_work work; /* of the others */
    int64_t bytes;         /* of answers that rank 0 does not have */
    int64_t stop;          /* this rank was asked to stop */
    int64_t broken;        /* the generated token whose logits are NaN, from 1; 0: none */
} z3d_round;

typedef struct z3d_answers {
    const z3d_generate_options *options;
    int replicas, replica; /* data ranks of the mesh, and this one's */
    bool collects;         /* this is rank 0 */
    int64_t given;         /* the first prompts, whose answers were given on; rank 0 */
    /* Private. */
    z3d_answer *waiting; /* [count]: texts are malloc'ed; NULL: none yet */
    z3d_string sent;     /* answers that rank 0 does not have */
    z3d_round *round;    /* [replicas] */
    z3d_round *ranks;    /* [world] */
} z3d_answers;

/* Zero-initialise; release it in any case. ERR_MEMORY. */
z3d_status z3d_answers_create(const z3d_generate_options *options, z3d_answers *out);
void z3d_answers_release(z3d_answers *answers);
/* All ranks of the replica have it. */
z3d_status z3d_answers_add(z3d_answers *answers, int64_t prompt, const z3d_answer *answer);
/* Brings answers to rank 0. round[replica]: what each has; the caller may change it. *stop: some
 * rank was asked to. Collective over the world. */
z3d_status z3d_answers_exchange(z3d_answers *answers, const z3d_round *mine, z3d_round **round,
                                bool *stop);

#endif
