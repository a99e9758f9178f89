/* Private to src/train: tells people the values in an instruction's buffers. */
#ifndef ZERO3D_TRAIN_REPLAY_LOOK_H
#define ZERO3D_TRAIN_REPLAY_LOOK_H

#include "zero/zero.h"

/* The first instruction that `words` name: by its number, its description, or the first words of
 * its description. "start" and "wait" may be left out: then the wait is meant. A run of spaces
 * counts as one. -1: no such instruction. */
int z3d_find_instruction(const z3d_program *program, const char *words);
/* Appends a line for each buffer of the instruction: smallest and largest value, mean, root of the
 * mean square, number of values that are not finite. Call it after the instruction, while its step
 * runs. */
z3d_status z3d_look_at_instruction(const z3d_engine *engine, int index, z3d_string *out);

#endif
