/* Token files: two formats, llm.c's .bin and Megatron-LM's .bin/.idx pairs. */
#ifndef ZERO3D_TRAIN_TOKEN_FILE_H
#define ZERO3D_TRAIN_TOKEN_FILE_H

#include "src/base/base.h"
#include "src/train/tokenizer.h"

/* Element types a token file can have. */
typedef enum z3d_token_type {
    Z3D_TOKEN_U8,
    Z3D_TOKEN_I8,
    Z3D_TOKEN_U16,
    Z3D_TOKEN_I16,
    Z3D_TOKEN_U32,
    Z3D_TOKEN_I32,
    Z3D_TOKEN_I64
} z3d_token_type;

/* Whether a regular file begins with a magic number of llm.c. */
bool z3d_is_token_file(const char *path);
/* Whether the path is that of a token file by its content or by its name: .bin, .idx, or a
 * Megatron-LM pair without an ending; or that of a device or pipe, which z3d_token_file_open
 * refuses.
 */
bool z3d_names_token_file(const char *path);

typedef struct z3d_token_file {
    struct z3d_mapped_file *data; /* private: the .bin */
    char *path;                   /* as given */
    char *index;                  /* the .idx of a Megatron-LM pair; NULL: llm.c's format */
    z3d_token_type type;
    int64_t begin; /* byte of the first token, if the tokens are contiguous */
    int64_t tokens;
    uint64_t digest;               /* of the tokenizer that made it; 0: unknown */
    int32_t vocab_size;            /* of that tokenizer */
    const unsigned char *mask;     /* NULL: all tokens are trained */
    const unsigned char *document; /* of `documents` int64, not aligned: z3d_token_file_document */
    int64_t documents;             /* 0: their borders are not known */
    int64_t *found_document;       /* memory of `document` for a Megatron-LM pair; else NULL */
    /* Megatron-LM's pairs whose sequences do not follow each other in the .bin; else NULL. */
    int64_t sequences;
    int64_t *sequence_first; /* [sequences + 1]: index of each sequence's first token */
    int64_t *sequence_byte;  /* [sequences]: the byte of the .bin where each begins */
} z3d_token_file;

/* Maps a token file: llm.c's .bin with uint16 or uint32 tokens, whose number is header[2]; or
 * Megatron-LM's .bin/.idx pair, named by its .idx, its .bin or the path without an ending. The
 * sequences of a pair are read one after the other, as one stream. Errors:
 * ERR_IO (missing, unreadable), ERR_DATA (empty, truncated, trailing bytes, wrong magic or version,
 * not a token type). */
z3d_status z3d_token_file_open(const char *path, z3d_token_file **out);
void z3d_token_file_close(z3d_token_file *file); /* NULL is fine */
/* Finds where documents begin, unless that is known: reads the index of a Megatron-LM pair.
 * ERR_DATA: the file does not say. */
z3d_status z3d_token_file_find_documents(z3d_token_file *file);
/* The index of the first token of document 0 .. documents - 1; for `documents`, the number of
 * tokens. */
int64_t z3d_token_file_document(const z3d_token_file *file, int64_t document);
/* Whether one of the tokens first .. first+count-1 is trained as a target. */
bool z3d_token_file_trains(const z3d_token_file *file, int64_t first, int64_t count);
/* Sets targets[0 .. count) to -1 (ignored) where the token is not trained; targets[0] is token
 * `first`. */
void z3d_token_file_ignore(const z3d_token_file *file, int64_t first, int64_t count,
                           int32_t *targets);
/* ERR_CONFIG if another tokenizer made the file. */
z3d_status z3d_token_file_check(const z3d_token_file *file, const z3d_tokenizer *tokenizer);
/* Tokens first .. first+count-1. ERR_DATA with file, position and value if one is not in 0 ..
 * vocab_size-1; ERR_IO if the file became shorter during the run. */
z3d_status z3d_token_file_read(const z3d_token_file *file, int64_t first, int64_t count,
                               int32_t vocab_size, int32_t *out);

#endif
