/* Finds text among files and folders, and detects duplicates. */
#ifndef ZERO3D_TRAIN_TEXT_FILES_H
#define ZERO3D_TRAIN_TEXT_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/base.h"
#include "src/train/text/input.h"

typedef struct z3d_text_file {
    char *path;
    int64_t bytes;
    bool named; /* given by the user, not found in a folder: if it cannot be read, that is an error
                 */
} z3d_text_file;

typedef struct z3d_text_list {
    z3d_text_file *file;
    int64_t count, capacity;
    int64_t unreadable; /* folders and files in a folder that cannot be opened or are no regular
                           files */
} z3d_text_list;

/* Appends a file, or all regular files below a folder, in name order. In folders, names that begin
 * with a dot are left out; links are followed; no folder is entered twice. ERR_IO: `path` itself
 * cannot be read; ERR_USAGE: it is neither a file nor a folder; ERR_MEMORY. */
z3d_status z3d_text_list_add(z3d_text_list *list, const char *path);
void z3d_text_list_free(z3d_text_list *list);

/* A 128-bit hash of a content; it does not resist an attacker. Zero-initialise. */
typedef struct z3d_content_hash {
    uint64_t word[2];
} z3d_content_hash;
void z3d_content_hash_add(z3d_content_hash *hash, const void *bytes, size_t count);

/* A set of hashes. Zero-initialise. */
typedef struct z3d_hash_set {
    z3d_content_hash *slot;
    size_t capacity, count;
} z3d_hash_set;
/* *added: the hash was not in the set before. ERR_MEMORY. */
z3d_status z3d_hash_set_add(z3d_hash_set *set, z3d_content_hash hash, bool *added);
void z3d_hash_set_free(z3d_hash_set *set);

typedef enum z3d_text_kind {
    Z3D_TEXT_UTF8, /* no NUL byte, and almost no byte outside valid UTF-8 */
    Z3D_TEXT_UTF16LE,
    Z3D_TEXT_UTF16BE,
    Z3D_TEXT_UTF32LE,
    Z3D_TEXT_UTF32BE,
    Z3D_TEXT_OTHER_ENCODING, /* one byte a character, such as Latin-1 */
    Z3D_TEXT_NONE
} z3d_text_kind;

/* Reads a file from its beginning, also a packed one: hash and length of its text, and its kind.
 * ERR_IO, ERR_DATA (the packed data are damaged), ERR_MEMORY. */
z3d_status z3d_text_survey(z3d_input *input, z3d_content_hash *hash, int64_t *bytes,
                           z3d_text_kind *kind);
/* Returns ERR_DATA for a file that is not UTF-8. The error names its kind and the command that
 * converts it. place: the path, or the path and line where that was found. */
z3d_status z3d_text_refuse(const char *path, const char *place, z3d_text_kind kind);
/* ERR_DATA if the first bytes of a file show that it is UTF-16 or UTF-32. */
z3d_status z3d_refuse_wide(const char *path, const char *begin, size_t count);

/* Number of bytes among `count` that are no valid UTF-8. The bytes of an incomplete character at
 * the end are not counted there but in *rest. */
int64_t z3d_utf8_faults(const unsigned char *bytes, size_t count, size_t *rest);

/* Appends text for a terminal. Control characters become '?', except line feed and tab; bytes that
 * are no valid UTF-8 become U+FFFD. */
void z3d_text_printable(const char *text, size_t length, z3d_string *out);

#endif
