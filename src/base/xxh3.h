/* xxHash. libxxhash may have one function for each x86 instruction set, chosen at run time: four
 * times as fast as SSE2's. */
#ifndef ZERO3D_BASE_XXH3_H
#define ZERO3D_BASE_XXH3_H

#ifdef ZERO3D_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#endif
