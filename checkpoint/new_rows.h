/* Private to checkpoint/: the rows of token ids that a model has and the checkpoint lacks. */
#ifndef ZERO3D_CHECKPOINT_NEW_ROWS_H
#define ZERO3D_CHECKPOINT_NEW_ROWS_H

#include "checkpoint/format.h"

/* reader.c: the parameter's tensor; -1: none. */
int z3d_checkpoint_find_parameter(const z3d_checkpoint *checkpoint,
                                  const z3d_parameter_group *group, int parameter);
/* reader.c: whether a parameter is a token table with more rows than the checkpoint's. */
bool z3d_has_new_rows(const z3d_checkpoint *checkpoint, const z3d_parameter_group *group,
                      int parameter);
/* Cuts the new rows off a slice of such a table. */
void z3d_without_new_rows(const z3d_checkpoint *checkpoint, int tensor, z3d_part *slice);
/* Sets each new row to the mean of the checkpoint's rows and logs it. Rank 0 adds the rows in fp64
 * in their order: equal bits on any topology. place: see z3d_checkpoint_agree. Errors: those of
 * z3d_checkpoint_read. Collective; agreed. */
z3d_status z3d_fill_new_rows(z3d_world *world, const char *place, z3d_checkpoint *checkpoint,
                             const z3d_model *model, z3d_engine *engine);

#endif
