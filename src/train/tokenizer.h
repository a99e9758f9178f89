/* Tokenizers: text <-> token ids. There are three kinds. `bytes`: ids 0-255 are the bytes, 256 ends
 * a document. `gpt2`: GPT-2's byte-level BPE, from the user's vocab.json and merges.txt.
 * `huggingface`: BPE as a tokenizer.json describes it. No function here is collective. */
#ifndef ZERO3D_TRAIN_TOKENIZER_H
#define ZERO3D_TRAIN_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/base.h"
#include "src/base/config.h"

/* A growing list of token ids. Zero-initialise. */
typedef struct z3d_token_list {
    int32_t *id;
    size_t count, capacity;
} z3d_token_list;

/* Makes room for `more` ids after the first `count`. ERR_MEMORY. */
z3d_status z3d_token_list_reserve(z3d_token_list *list, size_t more);
/* Appends an id. ERR_MEMORY. */
z3d_status z3d_token_list_add(z3d_token_list *list, int32_t id);
void z3d_token_list_free(z3d_token_list *list);

/* Only z3d_tokenizer_create and z3d_tokenizer_of_* make one. */
typedef struct z3d_tokenizer {
    const char *name;   /* of its kind: "bytes", "gpt2", "huggingface" */
    int32_t vocab_size; /* ids are 0 .. vocab_size-1 */
    int32_t model_ids;  /* the model has ids 0 .. model_ids-1, texts with other ids are refused; 0:
                           not limited */
    int32_t begin_of_text; /* the token that is put before a text; -1: none */
    int32_t usual_begin;   /* the token that data.special may put there: the post-processor's, or
                              bos_token of tokenizer_config.json; -1: none */
    bool contradicted;     /* add_bos_token of tokenizer_config.json contradicts begin_of_text */
    int32_t end_of_text;   /* the id that ends a document; >= 0 */
    z3d_special special;
    char *path;          /* of its file; NULL: it has no file */
    uint64_t digest;     /* of the text of each id; equal for equal vocabularies */
    z3d_token_list ends; /* ids that end a generated text; end_of_text may be among them */
} z3d_tokenizer;

/* Appends the ids of `length` bytes of any text, valid UTF-8 or not, to out. begins: the bytes
 * begin a text; some tokenizers put a space before every text. It may remember words, so one thread
 * at a time. ERR_MEMORY, ERR_USAGE (1 GiB of text at once is too much), ERR_DATA (a pattern of the
 * tokenizer's file fails on this text). */
z3d_status z3d_tokenizer_encode(z3d_tokenizer *tokenizer, const char *text, size_t length,
                                bool begins, z3d_token_list *out);
/* The same for text that follows a special token, such as <|im_end|>, inside a text. */
z3d_status z3d_tokenizer_encode_after(z3d_tokenizer *tokenizer, const char *text, size_t length,
                                      z3d_token_list *out);
/* Appends the text of `count` ids to out. Special tokens (end_of_text and others) have no text and
 * append nothing. begins: the ids begin a text, so the space that encode puts before every text is
 * left out. ERR_DATA for an id outside the vocabulary. */
z3d_status z3d_tokenizer_decode(const z3d_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                bool begins, z3d_string *out);
/* The first special token whose name is written in a text: points to the name, *bytes long. NULL:
 * none. */
const char *z3d_tokenizer_find_special(const z3d_tokenizer *tokenizer, const char *text,
                                       size_t length, size_t *bytes);
/* Appends the file's name of a token, also of a special one. */
void z3d_tokenizer_name_token(const z3d_tokenizer *tokenizer, int32_t id, z3d_string *out);
/* Whether end_of_text is put after documents. */
bool z3d_tokenizer_ends_documents(const z3d_tokenizer *tokenizer);
/* Whether this id ends a generated text. */
bool z3d_tokenizer_ends(const z3d_tokenizer *tokenizer, int32_t id);

/* Creates a tokenizer. bytes: vocab and merges are NULL or "". gpt2: `vocab` is vocab.json and
 * `merges` is merges.txt (without it the one beside vocab.json); or `vocab` is a tokenizer.json
 * with <|endoftext|>, or the folder with these files. huggingface: `vocab` is tokenizer.json or its
 * folder; this file and tokenizer_config.json, generation_config.json and config.json beside it say
 * which tokens begin and end a text. ERR_CONFIG: the files do not fit the kind; ERR_UNSUPPORTED
 * names the part of tokenizer.json that is not supported; ERR_IO; ERR_DATA names file and line;
 * ERR_MEMORY. */
z3d_status z3d_tokenizer_create(z3d_tokenizer_kind kind, const char *vocab, const char *merges,
                                z3d_tokenizer **out);
/* Creates the tokenizer of a configuration: of data.tokenizer, data.vocab, data.merges,
 * data.special and model.vocab_size. Errors: those of the function above and of
 * z3d_tokenizer_set_special and z3d_tokenizer_set_model. */
z3d_status z3d_tokenizer_of_config(const z3d_config *config, z3d_tokenizer **out);
/* Creates the tokenizer of a model's folder: a Hugging Face folder, an imported checkpoint, or a
 * run. special NULL: as the folder's configuration says. Errors: those of the functions above and
 * below; ERR_DATA: the folder has no tokenizer. */
z3d_status z3d_tokenizer_of_folder(const char *folder, const z3d_special *special,
                                   z3d_tokenizer **out);
/* Decides which tokens are put before and after a text. auto: as the files say; a warning tells if
 * they contradict each other. ERR_CONFIG: the tokenizer has no token that begins a text. */
z3d_status z3d_tokenizer_set_special(z3d_tokenizer *tokenizer, z3d_special special);
/* Fits the tokenizer to a model with `vocab_size` token ids. If the tokenizer has a few ids more, a
 * warning says so, and texts with these ids are refused. ERR_CONFIG if it has many more, or if
 * end_of_text is one of them: then it is another model's tokenizer. */
z3d_status z3d_tokenizer_set_model(z3d_tokenizer *tokenizer, int64_t vocab_size);
/* Checks that these files are a tokenizer for a model with `vocab_size` token ids. Errors: those
 * above. */
z3d_status z3d_tokenizer_check(z3d_tokenizer_kind kind, const char *vocab, int64_t vocab_size);
void z3d_tokenizer_destroy(z3d_tokenizer *tokenizer); /* NULL is fine */
/* The token that ends an answer in the chat template beside the tokenizer's file; -1: no known
 * template is there. */
int32_t z3d_tokenizer_answer_end(z3d_tokenizer *tokenizer);
/* Appends the ids of a prompt: the token that begins a text, if there is one, then the ids of the
 * text. If that gives no id (an empty text), appends end_of_text: a new text follows the end of
 * another. So a prompt has at least one id. Errors: encode's. */
z3d_status z3d_tokenizer_prompt(z3d_tokenizer *tokenizer, const char *text, size_t length,
                                z3d_token_list *out);
/* *out: the id of the special token with this name; decoding it gives no text. -1: no such token.
 * Errors: encode's. */
z3d_status z3d_tokenizer_special_token(z3d_tokenizer *tokenizer, const char *text, int32_t *out);
/* ERR_DATA if the model lacks one of the ids from index `first` on. */
z3d_status z3d_tokenizer_check_ids(const z3d_tokenizer *tokenizer, const z3d_token_list *ids,
                                   size_t first);
/* Appends a part of a document as training data; one call for a whole document. begins: puts before
 * it the token that begins a text, unless the end of the previous document is the same token. ends:
 * puts end_of_text after it. A token that the text already begins or ends with is not repeated.
 * Errors: encode's, ERR_DATA for an id that the model lacks. */
z3d_status z3d_tokenizer_part(z3d_tokenizer *tokenizer, const char *text, size_t length,
                              bool begins, bool ends, z3d_token_list *out);

#endif
