/* Maps and reads token files: llm.c's .bin here, Megatron-LM's index in megatron_file.c. */
#include "src/train/data/token_format.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool z3d_is_token_file(const char *path) {
    const int32_t u16 = Z3D_TOKEN_MAGIC_U16, u32 = Z3D_TOKEN_MAGIC_U32;
    return z3d_file_begins(path, &u16, sizeof u16) || z3d_file_begins(path, &u32, sizeof u32);
}

/* Documents follow each other from the first token on, and none is empty. */
static z3d_status check_documents(const z3d_token_file *file) {
    int64_t before = -1;
    for (int64_t i = 0; i < file->documents; i++) {
        int64_t first = z3d_token_file_document(file, i);
        if (first <= before || first >= file->tokens || (i == 0 && first != 0))
            return Z3D_ERROR(Z3D_ERR_DATA,
                             "%s: document %lld begins at token %lld of %lld, the one before at "
                             "%lld; make the file again",
                             file->path, (long long)i, (long long)first, (long long)file->tokens,
                             (long long)before);
        before = first;
    }
    return Z3D_OK;
}

/* Finds the tables that follow the tokens. */
static z3d_status find_sections(z3d_token_file *file, int32_t flags) {
    const int64_t bytes = file->data->bytes;
    const bool masked = flags & Z3D_TOKEN_HAS_MASK, known = flags & Z3D_TOKEN_HAS_DOCUMENTS;
    if (flags & ~(Z3D_TOKEN_HAS_MASK | Z3D_TOKEN_HAS_DOCUMENTS))
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: its header has flags %#x; this version knows only 1 and 2; make "
                         "the file again with `zero3d data tokenize`",
                         file->path, (unsigned)flags);
    if (known ? file->documents < 1 || file->documents > file->tokens : file->documents != 0)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: its header describes %lld documents of %lld tokens",
                         file->path, (long long)file->documents, (long long)file->tokens);
    int64_t tokens = file->begin + file->tokens * z3d_token_type_bytes(file->type);
    int64_t mask = masked ? (file->tokens + 7) / 8 : 0;
    int64_t wanted = tokens + mask + file->documents * (int64_t)sizeof(int64_t);
    if (file->tokens < 0 || bytes != wanted)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: %s: its header describes %lld tokens%s (%lld bytes), but the "
                         "file has %lld bytes",
                         file->path, bytes < wanted ? "truncated" : "wrong size",
                         (long long)file->tokens,
                         masked && known ? ", their mask and documents"
                         : masked        ? " and their mask"
                         : known         ? " and their documents"
                                         : "",
                         (long long)wanted, (long long)bytes);
    if (file->tokens == 0) return Z3D_ERROR(Z3D_ERR_DATA, "%s: it has no tokens", file->path);
    if (masked) file->mask = file->data->data + tokens;
    if (known) file->document = file->data->data + tokens + mask;
    return check_documents(file);
}

/* The kind of a file that begins with text; NULL: no text. */
static const char *text_at(const z3d_mapped_file *data) {
    enum { LOOKED_AT = 64 };
    int64_t at = 0;
    while (at < data->bytes && at < LOOKED_AT &&
           (data->data[at] >= ' ' || strchr("\t\r\n", data->data[at]) != NULL) && data->data[at])
        at++;
    if (at < LOOKED_AT && at < data->bytes) return NULL;
    return strchr("{[", data->data[0]) ? "JSON" : "a text";
}

static z3d_status refuse_other(const z3d_token_file *file, int32_t begin) {
    const char *text = text_at(file->data);
    if (text)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: this is %s, not a token file: make one with `zero3d data tokenize`",
                         file->path, text);
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "%s: not a token file: it begins with %d, expected llm.c's magic number %d "
                     "or %d; make token files from text with `zero3d data tokenize`",
                     file->path, begin, Z3D_TOKEN_MAGIC_U16, Z3D_TOKEN_MAGIC_U32);
}

static z3d_status read_llmc_header(z3d_token_file *file) {
    const z3d_mapped_file *data = file->data;
    int32_t flags = 0;
    if (data->bytes == 0) return Z3D_ERROR(Z3D_ERR_DATA, "%s: the token file is empty", file->path);
    int32_t header[Z3D_TOKEN_HEADER_INTS] = {0};
    size_t known =
        data->bytes < Z3D_TOKEN_HEADER_BYTES ? (size_t)data->bytes : Z3D_TOKEN_HEADER_BYTES;
    memcpy(header, data->data, known);
    bool u16 = header[0] == Z3D_TOKEN_MAGIC_U16, u32 = header[0] == Z3D_TOKEN_MAGIC_U32;
    if (!u16 && !u32) return refuse_other(file, header[0]);
    if (known < Z3D_TOKEN_HEADER_BYTES)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: truncated: %lld bytes; the header alone has %d",
                         file->path, (long long)data->bytes, Z3D_TOKEN_HEADER_BYTES);
    int version = u16 ? Z3D_TOKEN_VERSION_U16 : Z3D_TOKEN_VERSION_U32;
    if (header[1] != version)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: version %d of the format (magic number %d) is not supported; "
                         "expected version %d",
                         file->path, header[1], header[0], version);
    file->type = u16 ? Z3D_TOKEN_U16 : Z3D_TOKEN_U32;
    file->begin = Z3D_TOKEN_HEADER_BYTES;
    file->tokens = header[2];
    if (header[Z3D_TOKEN_MARK_AT] == Z3D_TOKEN_MARK) {
        file->vocab_size = header[Z3D_TOKEN_VOCABULARY_AT];
        memcpy(&file->digest, &header[Z3D_TOKEN_DIGEST_AT], sizeof file->digest);
        flags = header[Z3D_TOKEN_FLAGS_AT];
        memcpy(&file->documents, &header[Z3D_TOKEN_DOCUMENTS_AT], sizeof file->documents);
    }
    return find_sections(file, flags);
}

static bool ends_with(const char *text, const char *end) {
    size_t a = strlen(text), b = strlen(end);
    return a > b && strcmp(text + a - b, end) == 0;
}

/* The .idx of the Megatron-LM pair that `path` names, malloc'ed; NULL: it names none. */
static char *find_index(const char *path) {
    const bool index = ends_with(path, ".idx"), data = ends_with(path, ".bin");
    const int stem = (int)strlen(path) - (index || data ? 4 : 0);
    z3d_string name = {0};
    z3d_string_append(&name, "%.*s.idx", stem, path);
    if (index && !name.failed) return name.text;
    const bool stem_only = !data && access(path, F_OK) != 0;
    if ((data || stem_only) && !name.failed && access(name.text, F_OK) == 0) return name.text;
    z3d_string_free(&name);
    return NULL;
}

bool z3d_names_token_file(const char *path) {
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) return true;
    char *index = find_index(path);
    const bool pair = index != NULL;
    free(index);
    return pair || ends_with(path, ".bin") || z3d_is_token_file(path);
}

static z3d_status open_pair(z3d_token_file *file) {
    z3d_string path = {0};
    z3d_string_append(&path, "%.*s.bin", (int)strlen(file->index) - 4, file->index);
    z3d_status status = path.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a path")
                                    : z3d_map_file(path.text, file->data);
    z3d_string_free(&path);
    return status == Z3D_OK ? z3d_megatron_read_sequences(file) : status;
}

static z3d_status open_file(z3d_token_file *file) {
    if (file->index) return open_pair(file);
    Z3D_TRY(z3d_map_file(file->path, file->data));
    return read_llmc_header(file);
}

z3d_status z3d_token_file_open(const char *path, z3d_token_file **out) {
    z3d_token_file *file;
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *file + sizeof *file->data, "a token file", &file));
    file->data = (z3d_mapped_file *)(file + 1);
    file->data->fd = -1;
    file->path = strdup(path);
    file->index = find_index(path);
    z3d_status status =
        file->path ? open_file(file) : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a path");
    if (status == Z3D_OK)
        *out = file;
    else
        z3d_token_file_close(file);
    return status;
}

void z3d_token_file_close(z3d_token_file *file) {
    if (!file) return;
    z3d_unmap_file(file->data);
    free(file->path);
    free(file->index);
    free(file->sequence_first);
    free(file->sequence_byte);
    free(file->found_document);
    free(file);
}

z3d_status z3d_token_file_find_documents(z3d_token_file *file) {
    if (file->documents > 0) return Z3D_OK;
    if (file->index) Z3D_TRY(z3d_megatron_read_documents(file));
    if (file->documents > 0) return check_documents(file);
    return Z3D_ERROR(
        Z3D_ERR_DATA,
        "%s: it does not say where its documents begin, but data.samples documents needs that: "
        "make it with `zero3d data tokenize`, or set data.samples to windows",
        file->path);
}

z3d_status z3d_token_file_check(const z3d_token_file *file, const z3d_tokenizer *tokenizer) {
    if (!file->digest || file->digest == tokenizer->digest) return Z3D_OK;
    return Z3D_ERROR(
        Z3D_ERR_CONFIG,
        "%s: another tokenizer made this file (%d ids, digest %016llx) than the model's "
        "(%s, %d ids, digest %016llx): tokenize the text again with the model's, or set "
        "data.tokenizer and data.vocab to the tokenizer that made it",
        file->path, file->vocab_size, (unsigned long long)file->digest, tokenizer->name,
        tokenizer->vocab_size, (unsigned long long)tokenizer->digest);
}

int64_t z3d_token_file_document(const z3d_token_file *file, int64_t document) {
    int64_t first;
    if (document >= file->documents) return file->tokens;
    memcpy(&first, file->document + document * (int64_t)sizeof first, sizeof first);
    return first;
}

static bool is_trained(const z3d_token_file *file, int64_t token) {
    return !file->mask || file->mask[token / 8] >> (token % 8) & 1;
}

bool z3d_token_file_trains(const z3d_token_file *file, int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; i++)
        if (is_trained(file, i)) return true;
    return false;
}

void z3d_token_file_ignore(const z3d_token_file *file, int64_t first, int64_t count,
                           int32_t *targets) {
    for (int64_t i = 0; i < count && file->mask; i++)
        if (!is_trained(file, first + i)) targets[i] = -1;
}

/* Widens `count` stored tokens (unaligned) to int32. Returns the index of the first one outside the
 * vocabulary, -1: none; *wrong: its value. Searches for it only after the loop, which has no
 * branches and so is fast. */
#define WIDEN(NAME, STORED)                                                                        \
    static int64_t widen_##NAME(const unsigned char *bytes, int64_t count, int32_t vocab_size,     \
                                int32_t *out, long long *wrong) {                                  \
        bool bad = false;                                                                          \
        for (int64_t i = 0; i < count; i++) {                                                      \
            STORED value;                                                                          \
            memcpy(&value, bytes + i * (int64_t)sizeof value, sizeof value);                       \
            bad |= (uint64_t)(int64_t)value >= (uint64_t)vocab_size;                               \
            out[i] = (int32_t)value;                                                               \
        }                                                                                          \
        for (int64_t i = 0; bad && i < count; i++) {                                               \
            STORED value;                                                                          \
            memcpy(&value, bytes + i * (int64_t)sizeof value, sizeof value);                       \
            *wrong = (long long)value;                                                             \
            if ((uint64_t)(int64_t)value >= (uint64_t)vocab_size) return i;                        \
        }                                                                                          \
        return -1;                                                                                 \
    }
WIDEN(u8, uint8_t)
WIDEN(i8, int8_t)
WIDEN(u16, uint16_t)
WIDEN(i16, int16_t)
WIDEN(u32, uint32_t)
WIDEN(i32, int32_t)
WIDEN(i64, int64_t)

static int64_t (*const widen[])(const unsigned char *bytes, int64_t count, int32_t vocab_size,
                                int32_t *out, long long *wrong) = {
    [Z3D_TOKEN_U8] = widen_u8,   [Z3D_TOKEN_I8] = widen_i8,   [Z3D_TOKEN_U16] = widen_u16,
    [Z3D_TOKEN_I16] = widen_i16, [Z3D_TOKEN_U32] = widen_u32, [Z3D_TOKEN_I32] = widen_i32,
    [Z3D_TOKEN_I64] = widen_i64};

/* The sequence that holds token `position`. */
static int64_t find_sequence(const z3d_token_file *file, int64_t position) {
    int64_t low = 0, high = file->sequences - 1;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (file->sequence_first[middle] <= position)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

z3d_status z3d_token_file_read(const z3d_token_file *file, int64_t first, int64_t count,
                               int32_t vocab_size, int32_t *out) {
    Z3D_REQUIRE(first >= 0 && count >= 0 && first <= file->tokens - count,
                "%s: tokens %lld to %lld of %lld were requested", file->path, (long long)first,
                (long long)(first + count), (long long)file->tokens);
    /* Reading beyond the end of a shortened file would end the process by SIGBUS. */
    struct stat info;
    if (fstat(file->data->fd, &info) != 0 || info.st_size < file->data->bytes)
        return Z3D_ERROR(Z3D_ERR_IO,
                         "%s: the file became shorter during the run (%lld bytes before, %lld now)",
                         file->path, (long long)file->data->bytes, (long long)info.st_size);
    int size = z3d_token_type_bytes(file->type);
    while (count > 0) {
        int64_t byte = file->begin + first * size, stretch = count;
        if (file->sequence_first) {
            int64_t sequence = find_sequence(file, first);
            int64_t rest = file->sequence_first[sequence + 1] - first;
            byte = file->sequence_byte[sequence] + (first - file->sequence_first[sequence]) * size;
            stretch = rest < count ? rest : count;
        }
        long long wrong;
        int64_t bad = widen[file->type](file->data->data + byte, stretch, vocab_size, out, &wrong);
        if (bad >= 0)
            return Z3D_ERROR(
                Z3D_ERR_DATA,
                "%s: token %lld is %lld, outside the vocabulary (model.vocab_size %d: ids 0 to %d)",
                file->path, (long long)(first + bad), wrong, vocab_size, vocab_size - 1);
        first += stretch, out += stretch, count -= stretch;
    }
    return Z3D_OK;
}
