/* Lists the files of folders, surveys files, hashes contents. */
#include "src/train/text/text_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* ---- listing ---- */

static z3d_status append_file(z3d_text_list *list, const char *path, int64_t bytes, bool named) {
    Z3D_TRY(
        z3d_grow(list->count, &list->capacity, sizeof *list->file, "a list of files", &list->file));
    char *copy = strdup(path);
    if (!copy) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the name of %s", path);
    list->file[list->count++] = (z3d_text_file){copy, bytes, named};
    return Z3D_OK;
}

void z3d_text_list_free(z3d_text_list *list) {
    for (int64_t i = 0; i < list->count; i++) free(list->file[i].path);
    free(list->file);
    *list = (z3d_text_list){0};
}

static int is_shown(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

/* By byte value, in every locale. */
static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Counts a path that cannot be read; if the user named it, the caller reports an error instead. */
static z3d_status leave_out(z3d_text_list *list) {
    list->unreadable++;
    return Z3D_OK;
}

static z3d_status add_path(z3d_text_list *list, z3d_hash_set *visited, const char *path,
                           bool named);

static z3d_status add_folder(z3d_text_list *list, z3d_hash_set *visited, const char *path,
                             const struct stat *info, bool named) {
    bool added;
    z3d_content_hash identity = {{(uint64_t)info->st_dev + 1, (uint64_t)info->st_ino}};
    Z3D_TRY(z3d_hash_set_add(visited, identity, &added));
    if (!added) return Z3D_OK; /* a link back to a folder, or the same folder given twice */
    struct dirent **entry;
    const int count = scandir(path, &entry, is_shown, by_name);
    if (count < 0 && errno == ENOMEM)
        return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the names in %s", path);
    if (count < 0 && !named) return leave_out(list);
    if (count < 0)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot read the folder: %s", path, strerror(errno));
    const bool slash = path[strlen(path) - 1] == '/';
    z3d_status status = Z3D_OK;
    for (int i = 0; i < count; i++) {
        z3d_string below = {0};
        z3d_string_append(&below, "%s%s%s", path, slash ? "" : "/", entry[i]->d_name);
        if (status == Z3D_OK && below.failed)
            status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a name in %s", path);
        if (status == Z3D_OK) status = add_path(list, visited, below.text, false);
        z3d_string_free(&below);
        free(entry[i]);
    }
    free(entry);
    return status;
}

static z3d_status add_path(z3d_text_list *list, z3d_hash_set *visited, const char *path,
                           bool named) {
    struct stat info;
    const bool found = stat(path, &info) == 0;
    if (!found && !named) return leave_out(list);
    if (!found) return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot read the file: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) return add_folder(list, visited, path, &info, named);
    if (S_ISREG(info.st_mode)) return append_file(list, path, info.st_size, named);
    if (!named) return leave_out(list);
    return Z3D_ERROR(Z3D_ERR_USAGE, "%s: it is neither a file nor a folder", path);
}

z3d_status z3d_text_list_add(z3d_text_list *list, const char *path) {
    if (!*path) return Z3D_ERROR(Z3D_ERR_USAGE, "an input has an empty name");
    z3d_hash_set visited = {0};
    z3d_status status = add_path(list, &visited, path, true);
    z3d_hash_set_free(&visited);
    return status;
}

/* ---- contents ---- */

static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void z3d_content_hash_add(z3d_content_hash *hash, const void *bytes, size_t count) {
    const unsigned char *at = bytes;
    uint64_t a = hash->word[0] ^ mix(count), b = hash->word[1] + count;
    for (; count > 0; at += 8) {
        uint64_t word = 0;
        size_t taken = count < 8 ? count : 8;
        memcpy(&word, at, taken);
        count -= taken;
        a = mix(a ^ word) + 0x9e3779b97f4a7c15u;
        b = mix(b + word * 0xd6e8feb86659fd93u) ^ a;
    }
    hash->word[0] = a;
    hash->word[1] = b;
}

static bool insert(z3d_content_hash *slot, size_t capacity, z3d_content_hash hash) {
    size_t at = mix(hash.word[0] ^ hash.word[1]) & (capacity - 1);
    for (; slot[at].word[0] | slot[at].word[1]; at = (at + 1) & (capacity - 1))
        if (slot[at].word[0] == hash.word[0] && slot[at].word[1] == hash.word[1]) return false;
    slot[at] = hash;
    return true;
}

z3d_status z3d_hash_set_add(z3d_hash_set *set, z3d_content_hash hash, bool *added) {
    if (!(hash.word[0] | hash.word[1])) hash.word[0] = 1; /* zero marks an empty slot */
    if (2 * (set->count + 1) > set->capacity) {
        size_t capacity = set->capacity ? 2 * set->capacity : 256;
        z3d_content_hash *slot;
        Z3D_TRY(z3d_new(capacity, sizeof *slot, "a set of hashes", &slot));
        for (size_t i = 0; i < set->capacity; i++)
            if (set->slot[i].word[0] | set->slot[i].word[1]) insert(slot, capacity, set->slot[i]);
        free(set->slot);
        set->slot = slot;
        set->capacity = capacity;
    }
    *added = insert(set->slot, set->capacity, hash);
    set->count += *added;
    return Z3D_OK;
}

void z3d_hash_set_free(z3d_hash_set *set) {
    free(set->slot);
    *set = (z3d_hash_set){0};
}

/* Whether the end cuts off the character at `bytes`, which is not complete. */
static bool is_cut_off(const unsigned char *bytes, size_t count) {
    const unsigned char lead = bytes[0];
    const size_t length = lead < 0xc2 || lead > 0xf4 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (count >= length) return false;
    for (size_t i = 1; i < count; i++)
        if ((bytes[i] & 0xc0) != 0x80) return false;
    return true;
}

int64_t z3d_utf8_faults(const unsigned char *bytes, size_t count, size_t *rest) {
    int64_t faults = 0;
    size_t i = 0;
    *rest = 0;
    while (i < count) {
        size_t length = bytes[i] < 0x80 ? 1 : z3d_utf8_length((const char *)bytes + i, count - i);
        if (length == 0 && is_cut_off(bytes + i, count - i)) {
            *rest = count - i;
            break;
        }
        faults += length == 0;
        i += length > 0 ? length : 1;
    }
    return faults;
}

void z3d_text_printable(const char *text, size_t length, z3d_string *out) {
    const unsigned char *bytes = (const unsigned char *)text;
    for (size_t i = 0; i < length;) {
        size_t taken = z3d_utf8_length(text + i, length - i);
        bool control = (bytes[i] < 0x20 && bytes[i] != '\n' && bytes[i] != '\t') ||
                       bytes[i] == 0x7f || (taken == 2 && bytes[i] == 0xc2 && bytes[i + 1] < 0xa0);
        if (taken == 0)
            z3d_string_append(out, "\xef\xbf\xbd");
        else if (control)
            z3d_string_append(out, "?");
        else
            z3d_string_append_bytes(out, text + i, taken);
        i += taken > 0 ? taken : 1;
    }
}

/* ---- the kind of a file ---- */

/* UTF-16 or UTF-32 by the mark at the beginning, or by a zero at the same place in each pair of
 * bytes. */
static z3d_text_kind wide_kind(const unsigned char *bytes, size_t count) {
    size_t zeros[2] = {0, 0};
    if (count >= 4 && memcmp(bytes, "\xff\xfe\0", 4) == 0) return Z3D_TEXT_UTF32LE;
    if (count >= 4 && memcmp(bytes, "\0\0\xfe\xff", 4) == 0) return Z3D_TEXT_UTF32BE;
    if (count >= 2 && bytes[0] == 0xff && bytes[1] == 0xfe) return Z3D_TEXT_UTF16LE;
    if (count >= 2 && bytes[0] == 0xfe && bytes[1] == 0xff) return Z3D_TEXT_UTF16BE;
    for (size_t i = 0; i < count; i++) zeros[i % 2] += bytes[i] == 0;
    if (count < 4) return Z3D_TEXT_NONE;
    if (zeros[1] > count / 4 && zeros[0] == 0) return Z3D_TEXT_UTF16LE;
    if (zeros[0] > count / 4 && zeros[1] == 0) return Z3D_TEXT_UTF16BE;
    return Z3D_TEXT_NONE;
}

static bool is_parquet(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && strcasecmp(dot, ".parquet") == 0;
}

z3d_status z3d_text_refuse(const char *path, const char *place, z3d_text_kind kind) {
    static const char *const from[] = {[Z3D_TEXT_UTF16LE] = "UTF-16LE",
                                       [Z3D_TEXT_UTF16BE] = "UTF-16BE",
                                       [Z3D_TEXT_UTF32LE] = "UTF-32LE",
                                       [Z3D_TEXT_UTF32BE] = "UTF-32BE",
                                       [Z3D_TEXT_OTHER_ENCODING] = "WINDOWS-1252"};
    if (kind == Z3D_TEXT_NONE && is_parquet(path))
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: parquet is not read; convert it to JSON lines with `python3 -c "
                         "\"import pandas; pandas.read_parquet('%s').to_json('%s.jsonl', "
                         "orient='records', lines=True)\"`",
                         place, path, path);
    if (kind == Z3D_TEXT_NONE)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: it is not text: it has bytes that no text has", place);
    return Z3D_ERROR(
        Z3D_ERR_DATA,
        "%s: it is not UTF-8; it looks like %s: convert it with `iconv -f %s -t UTF-8 "
        "%s > %s.utf8`%s",
        place, kind == Z3D_TEXT_OTHER_ENCODING ? "Latin-1 or another 8-bit encoding" : from[kind],
        from[kind], path, path,
        kind == Z3D_TEXT_OTHER_ENCODING ? ", or with the encoding that it has (iconv -l lists them)"
                                        : "");
}

z3d_status z3d_refuse_wide(const char *path, const char *begin, size_t count) {
    enum { ENOUGH = 64 };
    z3d_text_kind kind = wide_kind((const unsigned char *)begin, count < ENOUGH ? count : ENOUGH);
    return kind == Z3D_TEXT_NONE ? Z3D_OK : z3d_text_refuse(path, path, kind);
}

typedef struct survey {
    int64_t bytes, faults, characters; /* characters: those of several bytes */
    bool nul;
    z3d_text_kind wide;
} survey;

static int64_t many_byte_characters(const unsigned char *bytes, size_t count) {
    int64_t found = 0;
    for (size_t i = 0; i < count; i++) found += bytes[i] >= 0xc2 && bytes[i] <= 0xf4;
    return found;
}

/* Counts faults and characters in the buffer. Leaves a character that is cut off for the next call:
 * *count becomes less. */
static void look_at(survey *s, const unsigned char *buffer, size_t *count, bool last) {
    size_t rest;
    if (s->bytes == 0) s->wide = wide_kind(buffer, *count);
    s->nul |= memchr(buffer, 0, *count) != NULL;
    /* Parquet's mark, and after it the first byte of a page, which no text has. */
    if (s->bytes == 0 && *count > 4 && memcmp(buffer, "PAR1\x15", 5) == 0) s->nul = true;
    int64_t faults = z3d_utf8_faults(buffer, *count, &rest);
    if (last)
        faults += (int64_t)rest;
    else
        *count -= rest;
    s->faults += faults;
    s->characters += many_byte_characters(buffer, *count);
    s->bytes += (int64_t)*count;
}

/* A few faults may be accidents, but not if most characters beyond ASCII are faults. */
static z3d_text_kind kind_of(const survey *s) {
    enum { RARE = 10000 };
    if (s->wide != Z3D_TEXT_NONE) return s->wide;
    if (s->nul) return Z3D_TEXT_NONE;
    bool many = s->faults * RARE > s->bytes;
    return many && 2 * s->faults > s->characters ? Z3D_TEXT_OTHER_ENCODING : Z3D_TEXT_UTF8;
}

z3d_status z3d_text_survey(z3d_input *input, z3d_content_hash *hash, int64_t *bytes,
                           z3d_text_kind *kind) {
    enum { CHUNK = 1 << 16 };
    unsigned char *buffer;
    survey s = {.wide = Z3D_TEXT_NONE};
    size_t kept = 0, count = 1;
    *hash = (z3d_content_hash){{0, 0}};
    Z3D_TRY(z3d_new(CHUNK, 1, "reading text", &buffer));
    z3d_status status = z3d_input_rewind(input);
    while (status == Z3D_OK && !s.nul) {
        status = z3d_input_read(input, buffer + kept, CHUNK - kept, &count);
        if (status != Z3D_OK || kept + count == 0) break;
        size_t used = kept + count, all = used;
        look_at(&s, buffer, &used, count == 0);
        z3d_content_hash_add(hash, buffer, used);
        kept = all - used;
        memmove(buffer, buffer + used, kept);
    }
    free(buffer);
    *bytes = s.bytes;
    *kind = kind_of(&s);
    return status;
}
