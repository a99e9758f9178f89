/* Which files the tokens may be written to. */
#ifndef ZERO3D_TRAIN_OUTPUTS_H
#define ZERO3D_TRAIN_OUTPUTS_H

#include "src/train/data.h"

/* ERR_USAGE unless the outputs are two files, none of them an input, and each new, empty or a token
 * file (with options->force any file): no text is lost. */
z3d_status z3d_check_outputs(const z3d_tokenize_options *options);

#endif
