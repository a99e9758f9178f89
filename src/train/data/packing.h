/* Private to src/train/data: whole documents of a token file, packed into samples of seq_length
 * tokens by best fit decreasing: the longest document first, each into the sample with the least
 * room that is enough.
 *
 * Which lengths lie together is decided once. An epoch deals the documents of one length out to the
 * places of that length by a keyed permutation. So the number of samples is the same in every
 * epoch, and a sample of any epoch is found without those before it. */
#ifndef ZERO3D_TRAIN_PACKING_H
#define ZERO3D_TRAIN_PACKING_H

#include "src/train/data.h"

typedef struct z3d_piece {
    int64_t first; /* its first token in the file */
    int32_t length;
    bool more; /* its document goes on: its last token predicts the next one */
} z3d_piece;

typedef struct z3d_packing {
    int64_t seq_length, pieces;
    z3d_piece *piece; /* [pieces] the longest first */
    int64_t *end;     /* [seq_length + 2] behind the last piece of this length or more */
    int32_t *place;   /* [pieces] sample by sample, each as a piece of the same length */
    int64_t *sample;  /* [facts.samples + 1] its first place, and one behind to work in */
    z3d_packing_facts facts;
} z3d_packing;

/* Of an open file whose documents are known. Those without a trained target are left out. ERR_DATA:
 * nothing is left, or too many; ERR_MEMORY. Destroy also after a failure; NULL is fine. */
z3d_status z3d_packing_create(const z3d_token_file *file, const char *path, int64_t seq_length,
                              z3d_too_long too_long, z3d_packing **out);
void z3d_packing_destroy(z3d_packing *packing);
/* Piece `nth` of a sample, in the epoch that has this key; false: it has no more. */
bool z3d_packing_piece(const z3d_packing *packing, uint64_t key, int64_t sample, int64_t nth,
                       z3d_piece *out);

#endif
