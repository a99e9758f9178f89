/* The order of samples, as pure functions: a keyed permutation and a blend of sources by weight. */
#ifndef ZERO3D_TRAIN_ORDER_H
#define ZERO3D_TRAIN_ORDER_H

#include <stdint.h>

#include "src/base/base.h"

/* Element `index` of the permutation of 0 .. count-1 that `key` names. Needs no memory and no
 * state: a Feistel network over the next even power of two is applied again until its result is
 * less than `count` (cycle walking). 0 <= index < count. */
int64_t z3d_permute(uint64_t key, int64_t count, int64_t index);

/* Gives samples to sources in proportion to their weights (exact to 1/65536 of the samples). At
 * every point of the order each source has its share of the samples so far, to about one sample. */
typedef struct z3d_blend z3d_blend;

enum { Z3D_BLEND_PERIOD = 65536, Z3D_BLEND_MAX = 4096 };

/* Free it with free(). ERR_CONFIG when count is not 1 .. Z3D_BLEND_MAX or a weight is not positive
 * and finite; ERR_MEMORY. */
z3d_status z3d_blend_create(const double *weight, int count, z3d_blend **out);
/* Sample `sample` (from 0) of the run is sample *nth (from 0) of source *source. */
void z3d_blend_locate(const z3d_blend *blend, int64_t sample, int *source, int64_t *nth);

#endif
