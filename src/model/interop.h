/* Shared by the models' interop.c: reading Hugging Face's config.json. */
#ifndef ZERO3D_MODEL_INTEROP_H
#define ZERO3D_MODEL_INTEROP_H

#include "src/model/model.h"

bool z3d_ends_with(const char *text, const char *end);
/* Returns ERR_UNSUPPORTED: with the value of this key the model computes something else. supported:
 * the values that are supported, for the message. */
z3d_status z3d_refuse_member(const z3d_json *member, const char *supported);

/* ---- which keys are known ---- */

typedef enum z3d_key_rule {
    Z3D_KEY_ANY,   /* read elsewhere, or no effect on what the model computes */
    Z3D_KEY_FALSE, /* or null */
    Z3D_KEY_ONE,
    Z3D_KEY_SILU
} z3d_key_rule;

typedef struct z3d_known_keys {
    z3d_key_rule rule;
    const char *names; /* separated by spaces; NULL ends a list */
} z3d_known_keys;

/* Keys that any model's config.json may have: about storage, use and training, and, from older
 * versions of transformers, about generation. */
extern const z3d_known_keys z3d_common_keys[];

/* ERR_UNSUPPORTED if the rule does not allow the value of this key. */
z3d_status z3d_check_key(const z3d_json *member, z3d_key_rule rule);
/* Adds a problem for each key of `object` that is in neither list, because it may change what the
 * model computes, and for each known key with a wrong value. Null values are accepted. common may
 * be NULL. */
void z3d_check_keys(const z3d_json *object, const z3d_known_keys *known,
                    const z3d_known_keys *common, z3d_problems *problems);

#endif
