/* Private to src/train: byte-pair encoding as Hugging Face's tokenizers do it. A text passes these
 * stages, each a file:
 *
 *   added_tokens.c    tokens that are found in the text as they are, such as <|endoftext|>
 *   normalize.c       what lies between them is rewritten: NFC, "▁" for a space
 *   split.c           and cut into words (gpt2_words.c: GPT-2's)
 *   bpe_words.c       a word's bytes or characters are merged into tokens (bpe_vocabulary.c)
 *   bpe_tokenizer.c   runs the stages, and turns tokens into text
 *
 * The stages are read by tokenizer_json.c and tokenizer_parts.c from tokenizer.json, by
 * gpt2_files.c from vocab.json and merges.txt. special_tokens.c finds what begins and ends a text.
 */
#ifndef ZERO3D_TRAIN_BPE_H
#define ZERO3D_TRAIN_BPE_H

#include "src/train/tokenizer.h"

/* The text that stands for the end of a document in GPT-2's files. */
#define Z3D_END_OF_TEXT "<|endoftext|>"

/* What stands for a space where tokens are of characters. */
#define Z3D_SPACE_MARK "\xe2\x96\x81" /* U+2581 */

enum { Z3D_MAX_TOKEN_ID = (1 << 24) - 1, Z3D_MAX_STAGES = 16 };

/* ---- tokens and merges ---- */

/* Two tokens that become one; the lowest rank goes first. */
typedef struct z3d_merge {
    int32_t left, right; /* left -1: an empty place of the table */
    int32_t rank, merged;
} z3d_merge;

typedef struct z3d_bpe_token {
    size_t begin, length; /* of its bytes in `text`; length 0: no token has this id */
} z3d_bpe_token;

typedef struct z3d_vocabulary {
    int32_t size;
    bool byte_level;      /* in the file, characters stand for bytes (GPT-2's alphabet) */
    z3d_bpe_token *token; /* [size] */
    z3d_string text;
    int32_t *place;   /* tokens by their bytes: a hash table of ids, -1: empty */
    size_t places;    /* in it, a power of two */
    z3d_merge *merge; /* a hash table */
    size_t merge_places;
    int32_t byte[256];  /* the token of each byte, where characters have none; -1: none */
    int32_t unknown;    /* of what has no token; -1: such text is left out */
    bool fuse_unknown;  /* neighbours that are unknown are one token */
    bool ignore_merges; /* a word that is a token needs no merges */
} z3d_vocabulary;

/* An empty vocabulary for ids 0 .. size - 1 and that many merges. Free also after a failure. */
z3d_status z3d_vocabulary_create(z3d_vocabulary *v, int64_t size, int64_t merges, bool byte_level);
void z3d_vocabulary_free(z3d_vocabulary *v);
/* Adds a token as the file writes it. NULL, or what is wrong ("has the same text as an earlier
 * token"). No memory: v->text.failed. */
const char *z3d_vocabulary_add(z3d_vocabulary *v, int64_t id, const char *text, size_t length);
/* Adds one that only its id stands for: it is text as it is, and no merge makes it. */
const char *z3d_vocabulary_add_outside(z3d_vocabulary *v, int64_t id, const char *text,
                                       size_t length);
/* Appends the bytes that characters of GPT-2's alphabet stand for; false when one is none of
 * them. */
bool z3d_vocabulary_append_bytes(const char *text, size_t length, z3d_string *out);
/* Adds a merge of two tokens as the file writes them; `joined` is memory to work in. */
const char *z3d_vocabulary_add_merge(z3d_vocabulary *v, int64_t rank, const char *left,
                                     size_t left_length, const char *right, size_t right_length,
                                     z3d_string *joined);
/* A token by its bytes: -1 when there is none. */
int32_t z3d_vocabulary_find(const z3d_vocabulary *v, const char *bytes, size_t length);
/* What becomes of two neighbours; NULL: they stay two. */
const z3d_merge *z3d_vocabulary_find_merge(const z3d_vocabulary *v, int32_t left, int32_t right);
/* Sets byte[]: bytes' own tokens, or "<0x0A>" where tokens are of characters. Returns how many
 * bytes have none; *first is one of them. */
int z3d_vocabulary_set_bytes(z3d_vocabulary *v, int *first);
/* The byte of a token "<0x0A>"; -1: it is another one. */
int z3d_vocabulary_byte_of(const z3d_vocabulary *v, int32_t id);

/* ---- one word ---- */

typedef struct z3d_word_merger z3d_word_merger;

z3d_status z3d_word_merger_create(const z3d_vocabulary *v, z3d_word_merger **out);
void z3d_word_merger_destroy(z3d_word_merger *m);
/* Appends a word's ids; short words are remembered. */
z3d_status z3d_word_merger_add(z3d_word_merger *m, const char *word, size_t length,
                               z3d_token_list *out);

/* ---- added tokens ---- */

/* One step in the texts of a set of tokens. */
typedef struct z3d_added_node {
    int32_t child, next; /* the first step behind it, another one beside it; -1: none */
    int32_t id;          /* the token that ends here; -1: none */
    unsigned char byte;
} z3d_added_node;

typedef struct z3d_added_set {
    z3d_added_node *node;
    int32_t count, capacity;
    int32_t first[256]; /* by a text's first byte */
    int only;           /* the first byte of all of them; -1: there are several; -2: none */
} z3d_added_set;

/* Flags by id, of tokens that are added. */
enum { Z3D_ADDED_SPECIAL = 1, Z3D_ADDED_LSTRIP = 2, Z3D_ADDED_RSTRIP = 4 };

typedef struct z3d_found {
    size_t begin, end; /* of the token, with white space that it takes; begin == end: none */
    int32_t id;
} z3d_found;

void z3d_added_set_init(z3d_added_set *set);
void z3d_added_set_free(z3d_added_set *set);
z3d_status z3d_added_set_add(z3d_added_set *set, const char *text, size_t length, int32_t id);
/* The first one in text[from .. length), the longest there; `flags` are by id. */
z3d_found z3d_added_set_find(const z3d_added_set *set, const unsigned char *flags, const char *text,
                             size_t length, size_t from);

/* ---- rewriting ---- */

typedef enum { Z3D_REWRITE_UNICODE, Z3D_REWRITE_PREPEND, Z3D_REWRITE_REPLACE } z3d_rewrite_kind;

typedef struct z3d_rewrite {
    z3d_rewrite_kind kind;
    int options;       /* utf8proc's, of a normal form */
    char *from, *into; /* replace all of `from`; prepend `into`. malloc'ed */
    bool if_missing;   /* prepend: unless the text begins with it */
} z3d_rewrite;

typedef struct z3d_rewrites {
    z3d_rewrite step[Z3D_MAX_STAGES];
    int count;
    z3d_string scratch[2];
} z3d_rewrites;

/* Copies `from` and `into`. r->count < Z3D_MAX_STAGES. */
z3d_status z3d_rewrites_add(z3d_rewrites *r, const z3d_rewrite *step);
void z3d_rewrites_free(z3d_rewrites *r);
/* *text and *length become what the steps make of them, valid until the next call. Without
 * `prepend` steps that put text in front are left out. An empty text stays empty. */
z3d_status z3d_rewrites_apply(z3d_rewrites *r, bool prepend, const char **text, size_t *length);

/* ---- words ---- */

/* Bytes of the word that begins at `text`, of which `length` (> 0) bytes are there. Words are what
 * GPT-2's pattern matches, with Unicode's letters, numbers and white space:
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * A byte that is no part of valid UTF-8 counts as a character that is none of the three. */
size_t z3d_gpt2_word(const char *text, size_t length);
/* Bytes of the white space at `text`; 0: there is none. */
size_t z3d_space_length(const char *text, size_t length);
/* The next word where tokens have the space's mark at their beginning only. */
size_t z3d_marked_word(const char *text, size_t length);

typedef enum { Z3D_SPLIT_ISOLATED, Z3D_SPLIT_REMOVED, Z3D_SPLIT_MERGED } z3d_split_behaviour;

typedef struct z3d_splitters z3d_splitters;
typedef z3d_status (*z3d_word_sink)(void *context, const char *word, size_t length);

z3d_status z3d_splitters_create(z3d_splitters **out);
void z3d_splitters_destroy(z3d_splitters *s);
/* Adds a stage. word: it finds the next word's length. */
z3d_status z3d_splitters_add_function(z3d_splitters *s, size_t (*word)(const char *, size_t));
/* pattern: PCRE2's syntax, which has that of Hugging Face's; literal: it is text. ERR_DATA: the
 * pattern is wrong (context: where in it). */
z3d_status z3d_splitters_add_pattern(z3d_splitters *s, const char *pattern, bool literal,
                                     z3d_split_behaviour behaviour, bool invert);
int z3d_splitters_count(const z3d_splitters *s);
/* Gives sink the words, each cut by the first stage, then by the second, and so on. A byte that is
 * no part of valid UTF-8 counts as a control character. ERR_DATA: a pattern takes too long. */
z3d_status z3d_splitters_run(z3d_splitters *s, const char *text, size_t length, z3d_word_sink sink,
                             void *context);

/* ---- all of them ---- */

typedef struct z3d_bpe_tokenizer {
    z3d_tokenizer base;
    int32_t closing; /* that the post-processor puts behind a text; -1: none */
    z3d_vocabulary vocabulary;
    z3d_word_merger *merger;
    z3d_added_set raw, rewritten; /* tokens found in the text as it is; in what is between them */
    unsigned char *added;         /* [vocabulary.size]: Z3D_ADDED_* */
    z3d_rewrites normalizer;      /* of what lies between tokens found in the text as it is */
    z3d_rewrites spaces;          /* of what lies between all added tokens */
    bool first_only;              /* `spaces` prepends at a text's beginning only */
    z3d_splitters *splitters;
    bool byte_tokens; /* "<0x0A>" is a byte of text */
    bool unmark;      /* in tokens' text U+2581 stands for a space */
    bool strip;       /* the space that begins a text is not the text's */
} z3d_bpe_tokenizer;

/* Without stages. gpt2: of that name. Free with the tokenizer's destroy, also after a failure. */
z3d_status z3d_bpe_tokenizer_create(bool gpt2, z3d_bpe_tokenizer **out);
/* Once the vocabulary is there: makes one of its tokens an added one, which is found by `text`.
 * normalized: in rewritten text. */
z3d_status z3d_bpe_tokenizer_mark(z3d_bpe_tokenizer *t, int32_t id, const char *text,
                                  bool normalized, int flags);
/* When all stages are there. */
z3d_status z3d_bpe_tokenizer_finish(z3d_bpe_tokenizer *t);

/* Adds the next id's text to a tokenizer's digest. */
void z3d_tokenizer_digest(z3d_tokenizer *t, const char *token, size_t length);

/* ---- files ---- */

enum { Z3D_MAX_TOKENIZER_FILE = 1 << 27 };

/* vocab.json and merges.txt, or tokenizer.json: of GPT-2's kind, <|endoftext|> ends a text;
 * else special_tokens.c says what begins and ends one. `path` is the file's name, for messages.
 * ERR_IO, ERR_DATA (file and line, what is wrong), ERR_UNSUPPORTED (what, by its name), ERR_MEMORY.
 */
z3d_status z3d_gpt2_files_read(z3d_bpe_tokenizer *t, const z3d_json *vocab, const char *vocab_path,
                               const char *merges_path);
z3d_status z3d_tokenizer_json_read(z3d_bpe_tokenizer *t, const z3d_json *root, const char *path);
/* The stages of tokenizer.json; begin_of_text as its post-processor has it. *byte_level: its tokens
 * are written in GPT-2's alphabet. */
z3d_status z3d_tokenizer_parts_read(z3d_bpe_tokenizer *t, const z3d_json *root, const char *path,
                                    bool *byte_level);
/* What begins and ends a text: the post-processor, and tokenizer_config.json,
 * generation_config.json and config.json beside `path`. */
z3d_status z3d_special_tokens_find(z3d_bpe_tokenizer *t, const z3d_json *root, const char *path);
/* FOLDER/name beside `path`; NULL when there is none. */
z3d_status z3d_read_json_beside(const char *path, const char *name, z3d_json **out);
/* The id of a token by its text: an added one, or one of the vocabulary. -1: there is none. */
int64_t z3d_tokenizer_json_id(const z3d_json *root, const char *text);

#endif
