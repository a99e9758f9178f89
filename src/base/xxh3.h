/* xxHash. With its x86 dispatch, libxxhash chooses the function for the instruction set at run
 * time: four times as fast as SSE2. */
#ifndef ZERO3D_BASE_XXH3_H
#define ZERO3D_BASE_XXH3_H

#ifdef ZERO3D_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#endif
