/* The versions of this program and its libraries. */
#ifndef ZERO3D_CLI_VERSION_H
#define ZERO3D_CLI_VERSION_H

#include "src/base/base.h"

const char *cli_version_number(void); /* "0.1.0" */
/* Several lines: version, compiler, libraries as loaded, CPU and instruction set. Errors:
 * z3d_device_create's. */
z3d_status cli_version(z3d_string *out);

#endif
