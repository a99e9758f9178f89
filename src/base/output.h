/* Which files a command may write: none that it reads, and none that somebody else has made. */
#ifndef ZERO3D_BASE_OUTPUT_H
#define ZERO3D_BASE_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/status.h"

/* A kind of text that we write, and how every one begins: so it is known again. */
typedef struct z3d_output_kind {
    const char *name, *begins;
} z3d_output_kind;
extern const z3d_output_kind z3d_output_page, z3d_output_picture, z3d_output_timeline,
    z3d_output_script, z3d_output_config, z3d_output_machine, z3d_output_software;

/* Whether a regular file begins with these bytes. */
bool z3d_file_begins(const char *path, const void *bytes, size_t count);
/* Whether two names, of files that need not exist, are one name in one folder. */
bool z3d_same_place(const char *a, const char *b);

/* ERR_USAGE if `path` is one of the inputs (NULL: none), or, unless it is of its `own` kind, lies
 * in one that is a folder. */
z3d_status z3d_output_is_no_input(const char *path, bool own, const char *const *inputs, int count);
/* ERR_USAGE if `path` is a folder, or, without `force`, a regular file that is neither empty nor of
 * its `own` kind, whose name is `kind`. Terminals and pipes lose nothing. */
z3d_status z3d_output_check(const char *path, const char *kind, bool own, bool force);

#endif
