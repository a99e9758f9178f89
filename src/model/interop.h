/* What the models' interop.c share: reading config.json of Hugging Face. */
#ifndef ZERO3D_MODEL_INTEROP_H
#define ZERO3D_MODEL_INTEROP_H

#include "src/model/model.h"

bool z3d_ends_with(const char *text, const char *end);
/* ERR_UNSUPPORTED: a key whose value would mean another computation; `supported` says what it may
 * be. */
z3d_status z3d_refuse_member(const z3d_json *member, const char *supported);

#endif
