/* Private to zero3d: the bytes of llm.c's format, and what the readers of both formats of token
 * files share. */
#ifndef ZERO3D_TRAIN_TOKEN_FORMAT_H
#define ZERO3D_TRAIN_TOKEN_FORMAT_H

#include "src/train/data/token_file.h"

/* llm.c's header: 256 int32, of which llm.c reads three. Later ones are ours: they say which
 * tokenizer made the file, and which tables follow the tokens: a mask, one bit for each token, the
 * lowest bit first (1: trained as a target); then the index of each document's first token, int64.
 */
enum {
    Z3D_TOKEN_HEADER_INTS = 256,
    Z3D_TOKEN_HEADER_BYTES = 1024,
    Z3D_TOKEN_MAGIC_U16 = 20240520,
    Z3D_TOKEN_VERSION_U16 = 1,
    Z3D_TOKEN_MAGIC_U32 = 20240801,
    Z3D_TOKEN_VERSION_U32 = 7,
    Z3D_TOKEN_MARK = 0x7a336474,
    Z3D_TOKEN_MARK_AT = 8,
    Z3D_TOKEN_VOCABULARY_AT = 9,
    Z3D_TOKEN_DIGEST_AT = 10, /* two of them */
    Z3D_TOKEN_FLAGS_AT = 12,
    Z3D_TOKEN_DOCUMENTS_AT = 13 /* their number; two of them */
};
enum { Z3D_TOKEN_HAS_MASK = 1, Z3D_TOKEN_HAS_DOCUMENTS = 2 };

/* A file mapped for reading. */
typedef struct z3d_mapped_file {
    char *path;
    int fd;
    const unsigned char *data; /* NULL when empty */
    int64_t bytes;
} z3d_mapped_file;

int z3d_token_type_bytes(z3d_token_type type);

/* ERR_IO: the file is missing, unreadable or no regular file. Unmap also after a failure. */
z3d_status z3d_map_file(const char *path, z3d_mapped_file *out);
void z3d_unmap_file(z3d_mapped_file *file);

/* Fills in type, tokens and sequences from file->index; file->data is the mapped .bin. */
z3d_status z3d_megatron_read_sequences(z3d_token_file *file);
/* Sets document and documents from file->index, unchecked. */
z3d_status z3d_megatron_read_documents(z3d_token_file *file);

#endif
