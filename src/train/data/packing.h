/* Private to src/train/data: whole documents of a token file, packed into samples of seq_length
 * tokens by best fit decreasing: the longest document first, each into the fullest sample that it
 * fits in.
 *
 * The lengths in each sample are decided once. In each epoch a keyed permutation assigns the
 * documents of one length to the places of that length. So the number of samples is the same in
 * every epoch, and a sample of any epoch is found without computing earlier ones. */
#ifndef ZERO3D_TRAIN_PACKING_H
#define ZERO3D_TRAIN_PACKING_H

#include "src/train/data.h"

typedef struct z3d_piece {
    int64_t first; /* its first token in the file */
    int32_t length;
    bool more; /* the next piece continues its document: its last token predicts that piece's first
                */
} z3d_piece;

typedef struct z3d_packing {
    int64_t seq_length, pieces;
    z3d_piece *piece; /* [pieces] the longest first */
    int64_t *end;     /* [seq_length + 2] index after the last piece of at least this length */
    int32_t *place;   /* [pieces] sample by sample, each place names a piece of its length */
    int64_t *sample;  /* [facts.samples + 2] each sample's first place, then the end; the last
                         element is used while building */
    z3d_packing_facts facts;
} z3d_packing;

/* Packs an open file whose documents are known. Documents without a trained target are left out.
 * ERR_DATA: no document is left, or too many; ERR_MEMORY. Free *out also after a failure. */
z3d_status z3d_packing_create(const z3d_token_file *file, int64_t seq_length, z3d_too_long too_long,
                              z3d_packing *out);
void z3d_packing_free(z3d_packing *packing);
/* Piece `nth` of a sample, in the epoch with this key; false: the sample has no such piece. */
bool z3d_packing_piece(const z3d_packing *packing, uint64_t key, int64_t sample, int64_t nth,
                       z3d_piece *out);

#endif
