/* What the models' interop.c share: reading config.json of Hugging Face. */
#ifndef ZERO3D_MODEL_INTEROP_H
#define ZERO3D_MODEL_INTEROP_H

#include "src/model/model.h"

bool z3d_ends_with(const char *text, const char *end);
/* ERR_UNSUPPORTED: a key whose value would mean another computation; `supported` says what it may
 * be. */
z3d_status z3d_refuse_member(const z3d_json *member, const char *supported);

/* ---- which keys there may be ---- */

typedef enum z3d_key_rule {
    Z3D_KEY_ANY,   /* read elsewhere, or without an effect on what the model computes */
    Z3D_KEY_FALSE, /* or null */
    Z3D_KEY_ONE,
    Z3D_KEY_SILU
} z3d_key_rule;

typedef struct z3d_known_key {
    const char *key; /* NULL ends a list */
    z3d_key_rule rule;
} z3d_known_key;

/* What every model's config.json may have: how it is stored, used or trained, and how versions of
 * transformers that kept it there let it generate. */
extern const z3d_known_key z3d_common_keys[];

/* ERR_UNSUPPORTED: the value of this key is not what the rule allows. */
z3d_status z3d_check_key(const z3d_json *member, z3d_key_rule rule);
/* Nobody knows what a key that is in neither list changes; one that is null changes nothing.
 * common: NULL: there is one list. */
void z3d_check_keys(const z3d_json *object, const z3d_known_key *known, const z3d_known_key *common,
                    z3d_problems *problems);

#endif
