/* Checks the files that a command is to write: it must not overwrite its inputs, nor files that
 * zero3d did not write. */
#ifndef ZERO3D_BASE_OUTPUT_H
#define ZERO3D_BASE_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/status.h"

/* A kind of text that zero3d writes. Every text of the kind begins with `begins`, which recognises
 * it. */
typedef struct z3d_output_kind {
    const char *name, *begins;
} z3d_output_kind;
extern const z3d_output_kind z3d_output_page, z3d_output_picture, z3d_output_timeline,
    z3d_output_script, z3d_output_config, z3d_output_machine, z3d_output_software;

/* Whether a regular file begins with these bytes. */
bool z3d_file_begins(const char *path, const void *bytes, size_t count);
/* Whether two paths are the same name in the same folder; the files need not exist. */
bool z3d_same_place(const char *a, const char *b);

/* ERR_USAGE if `path` is one of the inputs (a NULL input is skipped), or is in an input that is a
 * folder, unless the file is of its `own` kind. */
z3d_status z3d_output_is_no_input(const char *path, bool own, const char *const *inputs, int count);
/* ERR_USAGE if `path` is a folder; without `force` also if it is a regular file that is neither
 * empty nor of its `own` kind. kind: the kind's name, for the message. Terminals and pipes are
 * accepted. */
z3d_status z3d_output_check(const char *path, const char *kind, bool own, bool force);

#endif
