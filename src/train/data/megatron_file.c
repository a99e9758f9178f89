/* Megatron-LM's index files (.idx), as its IndexedDataset writes them: magic "MMIDIDX\0\0", version
 * 1 (uint64), type code (uint8), numbers of sequences and of document boundaries (uint64), then the
 * lengths of the sequences in tokens (int32), their first bytes in the .bin (int64) and the
 * documents' first sequences (int64); multimodal ones add a mode byte for each sequence. All little
 * endian and unaligned. */
#include "src/train/data/token_format.h"

#include <string.h>

enum { MAGIC_BYTES = 9, HEADER_BYTES = 34 };

static int64_t read_i64(const unsigned char *bytes) {
    int64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static int32_t read_i32(const unsigned char *bytes) {
    int32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* Codes of token types; the others (6, 7) are floating point. */
static bool type_of_code(int code, z3d_token_type *out) {
    static const z3d_token_type types[] = {
        [1] = Z3D_TOKEN_U8,  [2] = Z3D_TOKEN_I8,  [3] = Z3D_TOKEN_I16,
        [4] = Z3D_TOKEN_I32, [5] = Z3D_TOKEN_I64, [8] = Z3D_TOKEN_U16};
    const bool known = (code >= 1 && code <= 5) || code == 8;
    if (known) *out = types[code];
    return known;
}

/* An index file and what its header says. */
typedef struct index_file {
    z3d_mapped_file file;
    z3d_token_type type;
    int64_t sequences, documents;
    const unsigned char *length, *pointer, *boundary; /* the three lists */
} index_file;

static z3d_status read_header(index_file *header) {
    const z3d_mapped_file *index = &header->file;
    const unsigned char *bytes = index->data;
    if (index->bytes == 0) return Z3D_ERROR(Z3D_ERR_DATA, "%s: the index is empty", index->path);
    if (index->bytes < MAGIC_BYTES || memcmp(bytes, "MMIDIDX\0\0", MAGIC_BYTES) != 0)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: not an index of Megatron-LM: it does not begin with MMIDIDX",
                         index->path);
    if (index->bytes < HEADER_BYTES)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: truncated: %lld bytes; the header alone has %d",
                         index->path, (long long)index->bytes, HEADER_BYTES);
    if (read_i64(bytes + 9) != 1)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: index version %lld is not supported; expected 1",
                         index->path, (long long)read_i64(bytes + 9));
    if (!type_of_code(bytes[17], &header->type))
        return Z3D_ERROR(
            Z3D_ERR_DATA,
            "%s: type code %d is not a token type (1 uint8, 2 int8, 3 int16, 4 int32, 5 "
            "int64, 8 uint16)",
            index->path, bytes[17]);
    const int64_t sequences = read_i64(bytes + 18), documents = read_i64(bytes + 26),
                  room = index->bytes - HEADER_BYTES;
    /* Each number is checked alone first, so that the sum cannot overflow. */
    bool fits = sequences >= 0 && documents >= 0 && sequences <= room / 12 && documents <= room / 8;
    int64_t wanted = fits ? 12 * sequences + 8 * documents : 0;
    if (!fits || wanted > room)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: truncated: %lld bytes cannot hold %lld sequences and %lld document "
                         "boundaries",
                         index->path, (long long)index->bytes, (long long)sequences,
                         (long long)documents);
    if (room != wanted && room != wanted + sequences)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: wrong size: the file has %lld bytes; its header describes %lld",
                         index->path, (long long)index->bytes, (long long)(HEADER_BYTES + wanted));
    header->sequences = sequences;
    header->documents = documents;
    header->length = bytes + HEADER_BYTES;
    header->pointer = header->length + 4 * sequences;
    header->boundary = header->pointer + 8 * sequences;
    return Z3D_OK;
}

/* Checks that every sequence is inside the .bin. *contiguous: they follow each other from its first
 * byte on. */
static z3d_status check_sequences(const index_file *index, z3d_token_file *file, bool *contiguous) {
    int64_t size = z3d_token_type_bytes(file->type), end = 0;
    *contiguous = true;
    for (int64_t i = 0; i < index->sequences; i++) {
        int64_t length = read_i32(index->length + 4 * i), byte = read_i64(index->pointer + 8 * i);
        if (length < 0 || byte < 0 || byte % size != 0)
            return Z3D_ERROR(Z3D_ERR_DATA, "%s: sequence %lld has %lld tokens at byte %lld",
                             index->file.path, (long long)i, (long long)length, (long long)byte);
        if (byte > file->data->bytes || length * size > file->data->bytes - byte)
            return Z3D_ERROR(Z3D_ERR_DATA,
                             "%s: truncated: sequence %lld of its index has %lld tokens at byte "
                             "%lld, but the file has %lld bytes",
                             file->data->path, (long long)i, (long long)length, (long long)byte,
                             (long long)file->data->bytes);
        *contiguous &= byte == end;
        end = byte + length * size;
        file->tokens += length;
    }
    if (*contiguous && end != file->data->bytes)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: wrong size: the file has %lld bytes; its index describes %lld",
                         file->data->path, (long long)file->data->bytes, (long long)end);
    return Z3D_OK;
}

static z3d_status check_documents(const index_file *index) {
    int64_t before = 0;
    for (int64_t i = 0; i < index->documents; i++) {
        int64_t first = read_i64(index->boundary + 8 * i);
        if (first < before || first > index->sequences)
            return Z3D_ERROR(Z3D_ERR_DATA,
                             "%s: document %lld begins at sequence %lld; expected %lld to %lld",
                             index->file.path, (long long)i, (long long)first, (long long)before,
                             (long long)index->sequences);
        before = first;
    }
    return Z3D_OK;
}

static z3d_status keep_sequences(const index_file *index, z3d_token_file *file) {
    const size_t count = (size_t)index->sequences + 1;
    Z3D_TRY(z3d_new(count, sizeof(int64_t), "a token file's sequences", &file->sequence_first));
    Z3D_TRY(z3d_new(count, sizeof(int64_t), "a token file's sequences", &file->sequence_byte));
    file->sequences = index->sequences;
    for (int64_t i = 0; i < index->sequences; i++) {
        file->sequence_first[i + 1] = file->sequence_first[i] + read_i32(index->length + 4 * i);
        file->sequence_byte[i] = read_i64(index->pointer + 8 * i);
    }
    return Z3D_OK;
}

static z3d_status read_sequences(const index_file *index, z3d_token_file *file) {
    bool contiguous;
    file->type = index->type;
    Z3D_TRY(check_sequences(index, file, &contiguous));
    Z3D_TRY(check_documents(index));
    if (file->tokens == 0) return Z3D_ERROR(Z3D_ERR_DATA, "%s: it has no tokens", file->data->path);
    return contiguous ? Z3D_OK : keep_sequences(index, file);
}

/* Each document begins with a sequence; empty ones are left out, and the last border is the end. */
static z3d_status read_documents(const index_file *index, z3d_token_file *file) {
    int64_t token = 0, sequence = 0, count = 0;
    Z3D_TRY(check_documents(index));
    Z3D_TRY(z3d_new((size_t)index->documents + 1, sizeof(int64_t), "a token file's documents",
                    &file->found_document));
    for (int64_t i = 0; i < index->documents && token < file->tokens; i++) {
        for (; sequence < read_i64(index->boundary + 8 * i); sequence++)
            token += read_i32(index->length + 4 * sequence);
        if (token < file->tokens && (count == 0 || file->found_document[count - 1] != token))
            file->found_document[count++] = token;
    }
    file->document = (const unsigned char *)file->found_document;
    file->documents = count;
    return Z3D_OK;
}

static z3d_status read_index(z3d_token_file *file,
                             z3d_status (*read)(const index_file *index, z3d_token_file *file)) {
    index_file index;
    z3d_status status = z3d_map_file(file->index, &index.file);
    if (status == Z3D_OK) status = read_header(&index);
    if (status == Z3D_OK) status = read(&index, file);
    z3d_unmap_file(&index.file);
    return status;
}

z3d_status z3d_megatron_read_sequences(z3d_token_file *file) {
    return read_index(file, read_sequences);
}

z3d_status z3d_megatron_read_documents(z3d_token_file *file) {
    return read_index(file, read_documents);
}
