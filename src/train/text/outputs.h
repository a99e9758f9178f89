/* Checks the files that tokens are to be written to. */
#ifndef ZERO3D_TRAIN_OUTPUTS_H
#define ZERO3D_TRAIN_OUTPUTS_H

#include "src/train/data.h"

/* ERR_USAGE unless the outputs are different files, none of them is an input, and each is new,
 * empty or a token file (with options->force any file). So no text is overwritten. */
z3d_status z3d_check_outputs(const z3d_tokenize_options *options);

#endif
