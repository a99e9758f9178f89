/* Private to src/train: what an instruction's buffers hold, for people. */
#ifndef ZERO3D_TRAIN_REPLAY_LOOK_H
#define ZERO3D_TRAIN_REPLAY_LOOK_H

#include "zero/zero.h"

/* The first instruction that `words` mean: its number, its description, or how that begins, up to a
 * space; without "start" or "wait" also the wait. A run of spaces counts as one. -1: none. */
int z3d_find_instruction(const z3d_program *program, const char *words);
/* Appends a line for each buffer of the instruction: smallest and largest value, mean, root of the
 * mean square, values that are no numbers. While its step runs, behind it. */
z3d_status z3d_look_at_instruction(const z3d_engine *engine, int index, z3d_string *out);

#endif
