/* Private to src/train: byte-pair encoding as Hugging Face's tokenizers do it; the tokenizer
 * `bytes` is one without merges. A text passes these stages, each a file:
 *
 *   added_tokens.c    finds added tokens in the text, such as <|endoftext|>
 *   normalize.c       rewrites the text between them: NFC, "▁" for a space
 *   split.c           cuts it into words (gpt2_words.c: GPT-2's words)
 *   bpe_words.c       merges a word's bytes or characters into tokens (bpe_vocabulary.c)
 *   bpe_tokenizer.c   runs the stages, and turns tokens into text
 *
 * tokenizer_json.c and tokenizer_parts.c read the stages from tokenizer.json, gpt2_files.c from
 * vocab.json and merges.txt. special_tokens.c finds the tokens that begin and end a text. */
#ifndef ZERO3D_TRAIN_BPE_H
#define ZERO3D_TRAIN_BPE_H

#include "src/train/tokenizer.h"

/* The text that stands for the end of a document in GPT-2's files. */
#define Z3D_END_OF_TEXT "<|endoftext|>"

/* Stands for a space in tokens of character-level vocabularies. */
#define Z3D_SPACE_MARK "\xe2\x96\x81" /* U+2581 */

enum { Z3D_MAX_TOKEN_ID = (1 << 24) - 1, Z3D_MAX_STAGES = 16 };

/* ---- tokens and merges ---- */

/* Two tokens that become one; of several possible merges the one with the lowest rank is made. */
typedef struct z3d_merge {
    int32_t left, right; /* left -1: an empty place of the table */
    int32_t rank, merged;
} z3d_merge;

typedef struct z3d_bpe_token {
    size_t begin, length; /* its bytes in `text`; length 0: no token has this id */
} z3d_bpe_token;

typedef struct z3d_vocabulary {
    int32_t size;
    bool byte_level;         /* the file writes bytes as characters (GPT-2's alphabet) */
    z3d_bpe_token *token;    /* [size] */
    unsigned char *added;    /* [size]: Z3D_ADDED_*, 0 for other tokens */
    z3d_string text, joined; /* joined: scratch memory of z3d_vocabulary_add_merge */
    int32_t *place;          /* tokens by their bytes: a hash table of ids, -1: empty */
    size_t places;           /* in it, a power of two */
    z3d_merge *merge;        /* a hash table */
    size_t merge_places;
    int32_t byte[256];  /* the token of each byte, for characters without a token; -1: none */
    int32_t unknown;    /* the token for text without a token; -1: such text is left out */
    bool fuse_unknown;  /* unknown neighbours become one token */
    bool ignore_merges; /* a word that is a token needs no merges */
    bool only_bytes;    /* ids 0-255 are the bytes; there are no merges */
} z3d_vocabulary;

/* Creates an empty vocabulary with room for ids 0 .. size - 1 and `merges` merges. Free also after
 * a failure. ERR_MEMORY. */
z3d_status z3d_vocabulary_create(z3d_vocabulary *v, int64_t size, int64_t merges, bool byte_level);
void z3d_vocabulary_free(z3d_vocabulary *v);
/* Adds a token; `text` is as the file writes it. Returns NULL, or the fault ("has the same text as
 * an earlier token"). v->text.failed: no memory. */
const char *z3d_vocabulary_add(z3d_vocabulary *v, int64_t id, const char *text, size_t length);
/* Adds a token that no merge makes, such as an added token; `text` is plain text. Returns as above.
 */
const char *z3d_vocabulary_add_outside(z3d_vocabulary *v, int64_t id, const char *text,
                                       size_t length);
/* Appends the bytes that characters of GPT-2's alphabet stand for; false: a character is not in it.
 */
bool z3d_vocabulary_append_bytes(const char *text, size_t length, z3d_string *out);
/* Adds a merge of two tokens, both as the file writes them. Returns as above; v->joined.failed: no
 * memory. */
const char *z3d_vocabulary_add_merge(z3d_vocabulary *v, int64_t rank, const char *left,
                                     size_t left_length, const char *right, size_t right_length);
/* The id of the token with these bytes; -1: none. */
int32_t z3d_vocabulary_find(const z3d_vocabulary *v, const char *bytes, size_t length);
/* The merge of two neighbours; NULL: none. */
const z3d_merge *z3d_vocabulary_find_merge(const z3d_vocabulary *v, int32_t left, int32_t right);
/* Sets byte[]: the token of each byte, in a character-level vocabulary "<0x0A>". Returns the number
 * of bytes without a token; *first is one of these. */
int z3d_vocabulary_set_bytes(z3d_vocabulary *v, int *first);
/* The byte of a token such as "<0x0A>"; -1: the token is no byte. */
int z3d_vocabulary_byte_of(const z3d_vocabulary *v, int32_t id);

/* ---- one word ---- */

typedef struct z3d_word_merger z3d_word_merger;

/* Destroy it also after a failure. ERR_MEMORY. */
z3d_status z3d_word_merger_create(const z3d_vocabulary *v, z3d_word_merger **out);
void z3d_word_merger_destroy(z3d_word_merger *m);
/* Appends a word's ids. Remembers short words, so one thread at a time. ERR_MEMORY. */
z3d_status z3d_word_merger_add(z3d_word_merger *m, const char *word, size_t length,
                               z3d_token_list *out);

/* ---- added tokens ---- */

/* A node of a trie: one byte in the texts of a set of tokens. */
typedef struct z3d_added_node {
    int32_t child, next; /* child: the first node for the next byte; next: the next sibling of this
                            node; -1: none */
    int32_t id;          /* the token whose text ends here; -1: none */
    unsigned char byte;
} z3d_added_node;

/* Zero-initialise. */
typedef struct z3d_added_set {
    z3d_added_node *node;
    int32_t count;
    int64_t capacity;
    int32_t first[256]; /* 1 + the node of a text's first byte; 0: none */
    int only;           /* the first byte of all texts, if they share it; -1: they differ */
} z3d_added_set;

/* Flags of added tokens, by id. LSTRIP, RSTRIP: the token takes white space before, after it. */
enum { Z3D_ADDED_SPECIAL = 1, Z3D_ADDED_LSTRIP = 2, Z3D_ADDED_RSTRIP = 4 };

typedef struct z3d_found {
    /* Of the token and the white space that it takes; begin == end: none found. */
    size_t begin, end;
    int32_t id;
} z3d_found;

void z3d_added_set_free(z3d_added_set *set);
z3d_status z3d_added_set_add(z3d_added_set *set, const char *text, size_t length, int32_t id);
/* The first token in text[from .. length); of several that begin there, the longest. `flags` are by
 * id. */
z3d_found z3d_added_set_find(const z3d_added_set *set, const unsigned char *flags, const char *text,
                             size_t length, size_t from);

/* ---- rewriting ---- */

typedef enum { Z3D_REWRITE_UNICODE, Z3D_REWRITE_PREPEND, Z3D_REWRITE_REPLACE } z3d_rewrite_kind;

typedef struct z3d_rewrite {
    z3d_rewrite_kind kind;
    int options;       /* utf8proc's options for a Unicode normal form */
    char *from, *into; /* REPLACE: all `from` become `into`; PREPEND: `into`. malloc'ed */
    bool if_missing;   /* PREPEND: only if the text does not begin with `into` */
} z3d_rewrite;

typedef struct z3d_rewrites {
    z3d_rewrite step[Z3D_MAX_STAGES];
    int count;
    z3d_string scratch[2];
} z3d_rewrites;

/* Adds a step; copies `from` and `into`. r->count must be less than Z3D_MAX_STAGES. ERR_MEMORY. */
z3d_status z3d_rewrites_add(z3d_rewrites *r, const z3d_rewrite *step);
void z3d_rewrites_free(z3d_rewrites *r);
/* Appends the text with each `from` (not empty) replaced by `into`. */
void z3d_append_replaced(const char *from, const char *into, const char *text, size_t length,
                         z3d_string *out);
/* Applies the steps: *text and *length become the result, valid until the next call. Without
 * `prepend` PREPEND steps are left out. An empty text stays empty. ERR_MEMORY. */
z3d_status z3d_rewrites_apply(z3d_rewrites *r, bool prepend, const char **text, size_t *length);

/* ---- words ---- */

/* The length in bytes of the word at the beginning of `text`, which has `length` (> 0) bytes. Words
 * are the matches of GPT-2's pattern, with Unicode's letters, numbers and white space:
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * A byte outside valid UTF-8 counts as a character that is neither letter, number nor white space.
 */
size_t z3d_gpt2_word(const char *text, size_t length);
/* The length in bytes of the white space at the beginning of `text`; 0: none. */
size_t z3d_space_length(const char *text, size_t length);
/* Whether a letter or a number is at the beginning of `text`. */
bool z3d_begins_word(const char *text, size_t length);
/* The length of the next word for vocabularies whose tokens have the space mark only at the
 * beginning. */
size_t z3d_marked_word(const char *text, size_t length);

typedef enum { Z3D_SPLIT_ISOLATED, Z3D_SPLIT_REMOVED, Z3D_SPLIT_MERGED } z3d_split_behaviour;

typedef struct z3d_splitters z3d_splitters;

z3d_status z3d_splitters_create(z3d_splitters **out);
void z3d_splitters_destroy(z3d_splitters *s);
/* Adds a stage. word(text, length): the length of the word at the beginning of the text. */
void z3d_splitters_add_function(z3d_splitters *s, size_t (*word)(const char *, size_t));
/* Adds a stage. pattern: in PCRE2's syntax, which includes that of Hugging Face's patterns;
 * literal: the pattern is plain text. ERR_DATA: the pattern is wrong; the error says where. */
z3d_status z3d_splitters_add_pattern(z3d_splitters *s, const char *pattern, bool literal,
                                     z3d_split_behaviour behaviour, bool invert);
int z3d_splitters_count(const z3d_splitters *s);
/* Cuts the text by the first stage, each piece by the second, and so on; appends the ids of the
 * resulting words. A byte outside valid UTF-8 counts as a control character. ERR_DATA: matching a
 * pattern takes too long; z3d_word_merger_add's errors. */
z3d_status z3d_splitters_run(z3d_splitters *s, const char *text, size_t length,
                             z3d_word_merger *merger, z3d_token_list *out);

/* ---- all of them ---- */

typedef struct z3d_bpe_tokenizer {
    z3d_tokenizer base;
    int32_t closing; /* the token that the post-processor puts after a text; -1: none */
    z3d_vocabulary vocabulary;
    z3d_word_merger *merger;
    z3d_added_set raw, rewritten; /* added tokens: `raw` ones are found in the original text,
                                     `rewritten` ones in the normalised text between them */
    z3d_rewrites normalizer;      /* for the text between `raw` tokens */
    z3d_rewrites spaces;          /* for the text between all added tokens */
    bool first_only;              /* `spaces` prepends only at the beginning of a text */
    z3d_splitters *splitters;
    bool byte_tokens; /* a token such as "<0x0A>" is one byte of text */
    bool unmark;      /* U+2581 in tokens stands for a space */
    bool strip;       /* decoding removes the space at the beginning of a text */
} z3d_bpe_tokenizer;

/* Creates a tokenizer without stages. Destroy it also after a failure. */
z3d_status z3d_bpe_tokenizer_create(z3d_tokenizer_kind kind, z3d_bpe_tokenizer **out);
/* Call it after the vocabulary is complete. Makes token `id` an added token, which is found by
 * `text` ("": by none). normalized: it is searched in normalised text. */
z3d_status z3d_bpe_tokenizer_mark(z3d_bpe_tokenizer *t, int32_t id, const char *text,
                                  bool normalized, int flags);
/* Call it when all stages are set. */
z3d_status z3d_bpe_tokenizer_finish(z3d_bpe_tokenizer *t);

/* ---- files ---- */

enum { Z3D_MAX_TOKENIZER_FILE = 1 << 27 };

/* Read all of a tokenizer: from vocab.json and merges.txt, or from tokenizer.json. In a tokenizer
 * of kind gpt2 <|endoftext|> ends a text; otherwise special_tokens.c finds the tokens that begin
 * and end a text. `path` is the file's name, for messages. ERR_IO, ERR_DATA (names file, line and
 * fault), ERR_UNSUPPORTED (names the part), ERR_MEMORY. */
z3d_status z3d_gpt2_files_read(z3d_bpe_tokenizer *t, const z3d_json *vocab, const char *vocab_path,
                               const char *merges_path);
z3d_status z3d_tokenizer_json_read(z3d_bpe_tokenizer *t, const z3d_json *root, const char *path);
/* Reads the stages of tokenizer.json; sets begin_of_text as its post-processor says. *byte_level:
 * its tokens are written in GPT-2's alphabet. Errors as above. */
z3d_status z3d_tokenizer_parts_read(z3d_bpe_tokenizer *t, const z3d_json *root, const char *path,
                                    bool *byte_level);
/* Finds the tokens that begin and end a text, in the post-processor and in tokenizer_config.json,
 * generation_config.json and config.json beside `path`. Errors as above. */
z3d_status z3d_special_tokens_find(z3d_bpe_tokenizer *t, const z3d_json *root, const char *path);
/* Reads the file `name` in the folder of `path`; *out NULL: no such file. ERR_IO, ERR_DATA,
 * ERR_MEMORY. */
z3d_status z3d_read_json_beside(const char *path, const char *name, z3d_json **out);
/* The id of the added token or the token of the vocabulary with this text; -1: none. */
int64_t z3d_tokenizer_json_id(const z3d_json *root, const char *text);

#endif
