/* One entry of optimizer.param_groups: patterns of parameters' names, and the settings of these
 * parameters. As text: "*bias ln_* lr_scale=0.5 weight_decay=0". */
#ifndef ZERO3D_BASE_PARAM_GROUPS_H
#define ZERO3D_BASE_PARAM_GROUPS_H

#include <stdbool.h>

#include "src/base/status.h"

enum { Z3D_PARAM_GROUPS = 64 /* at most */, Z3D_PATTERN = 128 };

/* The settings: X(field, least, most). NAN: not set. */
#define Z3D_PARAM_GROUP_SETTINGS(X)                                                                \
    X(lr, 0, 1e6) /* the peak */                                                                   \
    X(lr_scale, 0, 1e6)                                                                            \
    X(weight_decay, 0, 1e3)

typedef struct z3d_param_group {
#define X(field, least, most) double field;
    Z3D_PARAM_GROUP_SETTINGS(X)
#undef X
} z3d_param_group;

z3d_status z3d_param_group_parse(const char *text, z3d_param_group *out);
/* Reads the next pattern of the text at *at and moves *at after it; false: no more patterns. */
bool z3d_param_group_next(const char **at, char pattern[Z3D_PATTERN]);
/* Whether a pattern matches a name such as "block.0.ln_1.bias": a pattern with * or ? must match
 * the whole name, any other one a part of it. */
bool z3d_pattern_matches(const char *pattern, const char *name);

#endif
