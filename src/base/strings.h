/* Growing strings, checked number reading, human units, and JSON writing. */
#ifndef ZERO3D_BASE_STRINGS_H
#define ZERO3D_BASE_STRINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"

/* A string that grows. Zero-initialise; after an allocation failure `failed` stays set and appends
 * do nothing. */
typedef struct z3d_string {
    char *text; /* NUL-terminated; NULL if nothing was appended */
    size_t length, capacity;
    bool failed;
} z3d_string;

void z3d_string_append(z3d_string *string, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void z3d_string_append_bytes(z3d_string *string, const char *bytes, size_t count);
/* Appends `text` as a JSON string with quotes. Bytes that are not UTF-8 become U+FFFD; NULL becomes
 * null. */
void z3d_string_append_json(z3d_string *string, const char *text);
void z3d_string_append_json_bytes(z3d_string *string, const char *text, size_t count);
/* Appends a word of a shell command, quoted if necessary. */
void z3d_string_append_shell(z3d_string *string, const char *text);
/* Bytes of the well-formed UTF-8 character at `text`; at most `left` bytes are read. 0: no such
 * character. */
size_t z3d_utf8_length(const char *text, size_t left);
/* Appends a number with the fewest digits that read back to the same double; null (for JSON) if it
 * is not finite. */
void z3d_string_append_number(z3d_string *string, double value);
/* Append a member of a JSON object, with a comma before it if it is not the first one: its name and
 * colon; a number; a text. */
void z3d_string_append_key(z3d_string *string, const char *name);
void z3d_string_append_member(z3d_string *string, const char *name, double value);
void z3d_string_append_member_text(z3d_string *string, const char *name, const char *text);
/* A name from a file, fit for a message: at most Z3D_SHOWN printable characters. */
enum { Z3D_SHOWN = 100 };
const char *z3d_shown(const char *name, char out[Z3D_SHOWN + 1]);
/* Edit distance with swaps of neighbours (optimal string alignment); ignores case and the
 * difference between - and _. Z3D_FAR_AWAY if a word has Z3D_WORD bytes or more. */
enum { Z3D_WORD = 64, Z3D_FAR_AWAY = 1000 };
int z3d_word_distance(const char *a, const char *b);
/* Words separated by spaces: takes the next one into buf, cut to size (false: none is left);
 * whether a word, or the last part of a dotted path, is one of them. */
bool z3d_next_word(const char **words, char *buf, size_t size);
bool z3d_has_word(const char *words, const char *word);
bool z3d_has_leaf(const char *words, const char *path);
/* Makes the string empty and not failed; keeps its memory for reuse. */
void z3d_string_clear(z3d_string *string);
void z3d_string_free(z3d_string *string);

/* The whole text must be one number (no leading zeros, no trailing text), else ERR_CONFIG. Integers
 * may be written 500000000, 5e8 or 500000000.0; 1.5 and values beyond int64 are refused. */
z3d_status z3d_parse_int(const char *text, int64_t *out);
z3d_status z3d_parse_float(const char *text, double *out); /* finite only */
/* "16GiB", "512 MiB", "3e9", "80GB" -> bytes. */
z3d_status z3d_parse_bytes(const char *text, int64_t *out);
/* "1T", "300 B", "1e12" -> a number: K, M, B and T are thousands, as z3d_format_count writes them.
 */
z3d_status z3d_parse_count(const char *text, double *out);

/* "1.50 GiB", "12.3 M", "2 h 03 min" into buf; returns buf. */
const char *z3d_format_bytes(int64_t bytes, char *buf, size_t size);
const char *z3d_format_count(double count, char *buf, size_t size);
const char *z3d_format_seconds(double seconds, char *buf, size_t size);
/* The same texts by value: z3d_bytes_text(bytes).text. */
typedef struct z3d_number_text {
    char text[32];
} z3d_number_text;
z3d_number_text z3d_bytes_text(int64_t bytes);
z3d_number_text z3d_count_text(double count);
z3d_number_text z3d_seconds_text(double seconds);

/* The plural's "s"; "" if count is 1. */
const char *z3d_plural(int64_t count);

/* The fewest digits that read back to the same double ("6e-04" is written "0.0006"); the decimal
 * point is a point in every locale. 32 bytes are enough. */
const char *z3d_format_number(double value, char *buf, size_t size);

/* Product and sum that refuse overflow (return false). Operands are not negative. */
bool z3d_mul_i64(int64_t a, int64_t b, int64_t *out);
bool z3d_add_i64(int64_t a, int64_t b, int64_t *out);
/* The smallest multiple of `multiple` (> 0) that is at least `value` (>= 0); -1 if it exceeds
 * int64. */
int64_t z3d_round_up(int64_t value, int64_t multiple);

/* Reads a whole file (at most `limit` bytes) into a NUL-terminated malloc'ed text. ERR_IO,
 * ERR_MEMORY. */
z3d_status z3d_read_file(const char *path, size_t limit, char **out, size_t *out_length);
/* Whether the path is a folder, also by a link. */
bool z3d_is_folder(const char *path);
/* *out becomes "FOLDER/NAME", malloc'ed. ERR_MEMORY. */
z3d_status z3d_join_path(const char *folder, const char *name, char **out);
/* *out becomes the path of the file `name` in the folder of the file `path`, malloc'ed. ERR_MEMORY.
 */
z3d_status z3d_path_beside(const char *path, const char *name, char **out);
/* Creates a folder and its parents. ERR_IO. */
z3d_status z3d_make_folders(const char *path);
/* Monotonic clock, seconds. */
double z3d_now(void);

#endif
