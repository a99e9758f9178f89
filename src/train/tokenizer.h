/* Tokenizers: text <-> token ids, behind one table. `bytes`: ids 0-255 are the bytes, 256 ends a
 * document. `gpt2`: GPT-2's byte-level BPE, from the user's vocab.json and merges.txt.
 * `huggingface`: BPE as a tokenizer.json says. */
#ifndef ZERO3D_TRAIN_TOKENIZER_H
#define ZERO3D_TRAIN_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/base.h"
#include "src/base/config.h"

typedef struct z3d_tokenizer z3d_tokenizer;

/* Token ids that grow. Zero-initialise; what is behind `count` has room up to `capacity`. */
typedef struct z3d_token_list {
    int32_t *id;
    size_t count, capacity;
} z3d_token_list;

/* Makes room for `more` ids behind those that are there. ERR_MEMORY. */
z3d_status z3d_token_list_reserve(z3d_token_list *list, size_t more);
void z3d_token_list_free(z3d_token_list *list);

struct z3d_tokenizer_ops {
    const char *name;
    /* Appends the ids of `length` bytes of any text, valid UTF-8 or not, to out. begins: they begin
     * a text, so the space comes first that some tokenizers put before every text. It may remember
     * words: one thread at a time. ERR_MEMORY, ERR_USAGE (1 GiB of text at once is too much),
     * ERR_DATA (a pattern of the tokenizer's file fails on this text). */
    z3d_status (*encode)(z3d_tokenizer *tokenizer, const char *text, size_t length, bool begins,
                         z3d_token_list *out);
    /* The same for text that follows a token of its own, such as <|im_end|>, in one text. */
    z3d_status (*encode_behind)(z3d_tokenizer *tokenizer, const char *text, size_t length,
                                z3d_token_list *out);
    /* Appends the text of `count` ids to out. Ids that are no text (end_of_text and other special
     * tokens) append nothing. begins: they begin a text, so a space that encode puts before every
     * text is left out. ERR_DATA for an id outside the vocabulary. */
    z3d_status (*decode)(const z3d_tokenizer *tokenizer, const int32_t *ids, size_t count,
                         bool begins, z3d_string *out);
    /* The first special token that is written in a text: its own text of *bytes. NULL: none is. */
    const char *(*find_special)(const z3d_tokenizer *tokenizer, const char *text, size_t length,
                                size_t *bytes);
    /* Appends what the file calls a token, also one that is no text. */
    void (*name_token)(const z3d_tokenizer *tokenizer, int32_t id, z3d_string *out);
    void (*destroy)(z3d_tokenizer *tokenizer);
};

/* Implementations put their own fields behind this. */
struct z3d_tokenizer {
    const struct z3d_tokenizer_ops *ops;
    int32_t vocab_size;    /* ids are 0 .. vocab_size-1 */
    int32_t model_ids;     /* texts with other ids are refused; 0: with none */
    int32_t begin_of_text; /* what is put before a text; -1: nothing */
    int32_t usual_begin;   /* what may be: as tokenizer_config.json names it; -1: nothing */
    bool contradicted;     /* by add_bos_token of tokenizer_config.json */
    int32_t end_of_text;   /* the id that ends a document; >= 0 */
    z3d_special special;
    char *path;          /* of its file; NULL: it has none */
    uint64_t digest;     /* of what each id stands for; equal for equal vocabularies */
    z3d_token_list ends; /* ids that end a generated text like end_of_text, which may be one */
};

/* Whether its documents end with end_of_text. */
bool z3d_tokenizer_ends_documents(const z3d_tokenizer *tokenizer);
/* Whether it ends a generated text. */
bool z3d_tokenizer_ends(const z3d_tokenizer *tokenizer, int32_t id);

/* bytes: vocab and merges are NULL or "". gpt2: `vocab` is vocab.json, `merges` is merges.txt,
 * without it the one beside vocab.json; or `vocab` is a tokenizer.json with <|endoftext|>, or the
 * folder that has either. huggingface: `vocab` is tokenizer.json or its folder; which tokens begin
 * and end a text is read there and in tokenizer_config.json, generation_config.json and config.json
 * beside it. ERR_CONFIG when the files do not go with the kind, ERR_UNSUPPORTED naming what a
 * tokenizer.json has that is not supported, ERR_IO, ERR_DATA naming the file and the line,
 * ERR_MEMORY. */
z3d_status z3d_tokenizer_create(z3d_tokenizer_kind kind, const char *vocab, const char *merges,
                                z3d_tokenizer **out);
/* The tokenizer of a configuration: data.tokenizer and the keys beside it, model.vocab_size.
 * Errors: those above and of the two below. */
z3d_status z3d_tokenizer_of_config(const z3d_config *config, z3d_tokenizer **out);
/* The tokenizer of a model's folder: of Hugging Face's, of one that was imported, or of a run.
 * special: NULL: as its configuration says. Errors: those of the functions around this; ERR_DATA:
 * the folder has none. */
z3d_status z3d_tokenizer_of_folder(const char *folder, const z3d_special *special,
                                   z3d_tokenizer **out);
/* Which tokens are put around a text. auto: a warning says where the files contradict each other.
 * ERR_CONFIG: it has none that begins one. */
z3d_status z3d_tokenizer_set_special(z3d_tokenizer *tokenizer, z3d_special special);
/* For a model of `vocab_size` token ids. A few tokens more are told, and texts with them refused.
 * ERR_CONFIG if it has many more, or the end of a text is among them: it is another model's. */
z3d_status z3d_tokenizer_set_model(z3d_tokenizer *tokenizer, int64_t vocab_size);
/* Whether these files are a tokenizer for a model of `vocab_size` token ids. Errors: those above.
 */
z3d_status z3d_tokenizer_check(z3d_tokenizer_kind kind, const char *vocab, int64_t vocab_size);
void z3d_tokenizer_destroy(z3d_tokenizer *tokenizer); /* NULL is fine */
/* The token that ends an answer in the chat template beside its file; -1: there is no template that
 * is known. */
int32_t z3d_tokenizer_answer_end(z3d_tokenizer *tokenizer);
/* Appends what a model continues: what begins a text, then the text's ids. An empty text is a new
 * one: where nothing begins a text, it follows the end of another. So there is at least one id.
 * Errors: encode's. */
z3d_status z3d_tokenizer_prompt(z3d_tokenizer *tokenizer, const char *text, size_t length,
                                z3d_token_list *out);
/* The id of the token that has this text and is found wherever it is, without a text of its own in
 * what is decoded (a special token); -1: there is none. Errors: encode's. */
z3d_status z3d_tokenizer_special_token(z3d_tokenizer *tokenizer, const char *text, int32_t *out);
/* ERR_DATA if the model has not each of the ids behind `first`, which are of a text. */
z3d_status z3d_tokenizer_check_ids(const z3d_tokenizer *tokenizer, const z3d_token_list *ids,
                                   size_t first);
/* Appends a document as a model is to see it in training: what begins a text, unless the end of the
 * one before it is that, too; the text's ids; end_of_text. None of both twice, where the text has
 * it itself. Errors: encode's, ERR_DATA for an id that the model has not. */
z3d_status z3d_tokenizer_document(z3d_tokenizer *tokenizer, const char *text, size_t length,
                                  z3d_token_list *out);
/* The same for a document that comes in parts: one call for each part, the first with `begins`, the
 * last with `ends`. */
z3d_status z3d_tokenizer_part(z3d_tokenizer *tokenizer, const char *text, size_t length,
                              bool begins, bool ends, z3d_token_list *out);

#endif
