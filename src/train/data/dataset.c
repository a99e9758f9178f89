/* The dataset: finds the file of sample k and its window or documents in that file, and reads them.
 */
#include <stdlib.h>
#include <string.h>

#include "src/train/data.h"
#include "src/train/data/order.h"
#include "src/train/data/packing.h"

typedef struct data_source {
    z3d_token_file *file;
    int64_t windows;     /* whole windows, for training */
    int64_t padded;      /* the same with the last, short window, for validation */
    z3d_packing packing; /* if samples are documents */
} data_source;

struct z3d_dataset {
    bool documents; /* samples are documents, not windows */
    int64_t seq_length;
    int32_t vocab_size;
    uint64_t key;
    z3d_blend *blend;
    int count;
    data_source source[];
};

/* Larger parts are not checked at start-up, but when they are read. */
static const int64_t check_limit = (int64_t)4 << 30;

static z3d_status open_source(const z3d_dataset_config *config, const char *path,
                              data_source *out) {
    const int64_t seq = config->seq_length, least = config->whole_windows ? seq + 1 : 2;
    Z3D_TRY(z3d_token_file_open(path, &out->file));
    if (config->documents) {
        Z3D_TRY(z3d_token_file_find_documents(out->file));
        Z3D_TRY(z3d_packing_create(out->file, seq, config->too_long, &out->packing));
        out->windows = out->padded = out->packing.facts.samples;
        return Z3D_OK;
    }
    const int64_t tokens = out->file->tokens;
    out->windows = (tokens - 1) / seq;
    out->padded = (tokens - 1 + seq - 1) / seq;
    if (tokens < least)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: %lld tokens, but one sample needs %lld%s", path,
                         (long long)tokens, (long long)least,
                         config->whole_windows ? " (model.seq_length + 1)" : "");
    return Z3D_OK;
}

z3d_status z3d_dataset_open(const z3d_dataset_config *config, z3d_dataset **out) {
    const int count = config->files->count;
    z3d_dataset *dataset;
    z3d_status status = Z3D_OK;
    *out = NULL;
    Z3D_TRY(
        z3d_new(1, sizeof *dataset + (size_t)count * sizeof(data_source), "the dataset", &dataset));
    dataset->documents = config->documents;
    dataset->seq_length = config->seq_length;
    dataset->vocab_size = config->vocab_size;
    dataset->key = z3d_key(config->seed, "data order");
    dataset->count = count;
    for (int i = 0; i < count && status == Z3D_OK; i++)
        status = open_source(config, config->files->path[i], &dataset->source[i]);
    if (status == Z3D_OK) status = z3d_blend_create(config->files->weight, count, &dataset->blend);
    if (status == Z3D_OK)
        *out = dataset;
    else
        z3d_dataset_close(dataset);
    return status;
}

void z3d_dataset_close(z3d_dataset *dataset) {
    if (!dataset) return;
    for (int i = 0; i < dataset->count; i++) {
        z3d_token_file_close(dataset->source[i].file);
        z3d_packing_free(&dataset->source[i].packing);
    }
    free(dataset->blend);
    free(dataset);
}

int64_t z3d_dataset_tokens(const z3d_dataset *dataset) {
    int64_t tokens = 0;
    for (int i = 0; i < dataset->count; i++) tokens += dataset->source[i].file->tokens;
    return tokens;
}

int64_t z3d_dataset_samples(const z3d_dataset *dataset) {
    int64_t samples = 0;
    for (int i = 0; i < dataset->count; i++) samples += dataset->source[i].windows;
    return samples;
}

static int32_t largest_of(const int32_t *tokens, int64_t count, int32_t largest) {
    for (int64_t i = 0; i < count; i++) largest = tokens[i] > largest ? tokens[i] : largest;
    return largest;
}

z3d_status z3d_dataset_check(const z3d_dataset *dataset, int part, int parts, int32_t *largest) {
    enum { CHUNK = 1 << 16 };
    if (z3d_dataset_tokens(dataset) / parts > check_limit / 2) return Z3D_OK;
    int32_t *tokens;
    z3d_status status = Z3D_OK;
    Z3D_TRY(z3d_new(CHUNK, sizeof *tokens, "reading tokens", &tokens));
    for (int i = 0; i < dataset->count && status == Z3D_OK; i++) {
        const z3d_token_file *file = dataset->source[i].file;
        int64_t share = file->tokens / parts + 1, first = share * part, end = first + share;
        if (end > file->tokens) end = file->tokens;
        for (; first < end && status == Z3D_OK; first += CHUNK) {
            int64_t some = end - first < CHUNK ? end - first : CHUNK;
            status = z3d_token_file_read(file, first, some, dataset->vocab_size, tokens);
            if (status == Z3D_OK) *largest = largest_of(tokens, some, *largest);
        }
    }
    free(tokens);
    return status;
}

z3d_status z3d_dataset_check_tokenizer(const z3d_dataset *dataset, const z3d_config *config) {
    enum { ABOUT_BYTES = 512 };
    bool bytes = config->data_tokenizer == Z3D_TOKENIZER_BYTES, marked = false;
    z3d_tokenizer *tokenizer;
    z3d_status status = Z3D_OK;
    for (int i = 0; i < dataset->count; i++) marked |= dataset->source[i].file->digest != 0;
    bool known = bytes ? config->model_vocab_size <= ABOUT_BYTES : *config->data_vocab != 0;
    /* If the tokenizer's files are not on this machine, nothing is checked. */
    if (!marked || !known ||
        z3d_tokenizer_create((z3d_tokenizer_kind)config->data_tokenizer, config->data_vocab,
                             config->data_merges, &tokenizer) != Z3D_OK)
        return Z3D_OK;
    for (int i = 0; i < dataset->count && status == Z3D_OK; i++)
        status = z3d_token_file_check(dataset->source[i].file, tokenizer);
    z3d_tokenizer_destroy(tokenizer);
    return status;
}

static uint64_t epoch_key(const z3d_dataset *dataset, int64_t epoch, int file) {
    z3d_philox_block key = z3d_philox(dataset->key, (uint64_t)epoch, (uint64_t)file);
    return (uint64_t)key.word[0] << 32 | key.word[1];
}

void z3d_dataset_locate(const z3d_dataset *dataset, int64_t sample, z3d_sample_place *out) {
    int64_t nth;
    z3d_blend_locate(dataset->blend, sample, &out->file, &nth);
    int64_t windows = dataset->source[out->file].windows;
    out->epoch = nth / windows;
    out->window = z3d_permute(epoch_key(dataset, out->epoch, out->file), windows, nth % windows);
}

/* Fills a sample from token `at` on: inputs 0, targets ignored, one document. */
static void fill_up(const z3d_dataset *dataset, int64_t at, int32_t *tokens, int32_t *targets,
                    int32_t *positions) {
    for (int64_t i = at; i < dataset->seq_length; i++) {
        tokens[i] = 0;
        targets[i] = -1;
        if (positions) positions[i] = (int32_t)(i - at);
    }
}

/* Reads a window; the last one of a file may have fewer tokens. */
static z3d_status read_window(const z3d_dataset *dataset, const z3d_sample_place *place,
                              int32_t *tokens, int32_t *targets, int32_t *positions) {
    const z3d_token_file *from = dataset->source[place->file].file;
    int64_t seq = dataset->seq_length, first = place->window * seq, rest = from->tokens - 1 - first,
            valid = rest < seq ? rest : seq;
    /* Inputs and targets share all tokens but one: reads the targets, which end one token later,
     * and copies the inputs from them. */
    Z3D_TRY(z3d_token_file_read(from, first, 1, dataset->vocab_size, tokens));
    Z3D_TRY(z3d_token_file_read(from, first + 1, valid, dataset->vocab_size, targets));
    memcpy(tokens + 1, targets, (size_t)(valid - 1) * sizeof *tokens);
    z3d_token_file_ignore(from, first + 1, valid, targets);
    fill_up(dataset, valid, tokens, targets, NULL);
    for (int64_t i = 0; i < seq && positions; i++) positions[i] = (int32_t)i;
    return Z3D_OK;
}

/* Reads a document, or a part of one. */
static z3d_status read_piece(const z3d_dataset *dataset, const z3d_token_file *from,
                             const z3d_piece *piece, int32_t *tokens, int32_t *targets) {
    int64_t last = piece->length - 1;
    Z3D_TRY(z3d_token_file_read(from, piece->first, piece->length, dataset->vocab_size, tokens));
    memcpy(targets, tokens + 1, (size_t)last * sizeof *targets);
    targets[last] = -1;
    if (piece->more)
        Z3D_TRY(z3d_token_file_read(from, piece->first + piece->length, 1, dataset->vocab_size,
                                    targets + last));
    z3d_token_file_ignore(from, piece->first + 1, last + piece->more, targets);
    return Z3D_OK;
}

static z3d_status read_sample(const z3d_dataset *dataset, const z3d_sample_place *place,
                              int32_t *tokens, int32_t *targets, int32_t *positions) {
    const data_source *from = &dataset->source[place->file];
    uint64_t key = epoch_key(dataset, place->epoch, place->file);
    int64_t at = 0;
    z3d_piece piece;
    if (!dataset->documents) return read_window(dataset, place, tokens, targets, positions);
    for (int64_t n = 0; z3d_packing_piece(&from->packing, key, place->window, n, &piece); n++) {
        Z3D_TRY(read_piece(dataset, from->file, &piece, tokens + at, targets + at));
        for (int32_t i = 0; i < piece.length && positions; i++) positions[at + i] = i;
        at += piece.length;
    }
    fill_up(dataset, at, tokens, targets, positions);
    return Z3D_OK;
}

z3d_status z3d_dataset_read(const z3d_dataset *dataset, int64_t sample, int32_t *tokens,
                            int32_t *targets, int32_t *positions) {
    z3d_sample_place place;
    z3d_dataset_locate(dataset, sample, &place);
    return read_sample(dataset, &place, tokens, targets, positions);
}

bool z3d_dataset_masked(const z3d_dataset *dataset) {
    bool masked = false;
    for (int i = 0; i < dataset->count; i++) masked |= dataset->source[i].file->mask != NULL;
    return masked;
}

z3d_packing_facts z3d_dataset_packing(const z3d_dataset *dataset) {
    z3d_packing_facts all = {0};
    for (int i = 0; i < dataset->count; i++) {
        const z3d_packing_facts *facts = &dataset->source[i].packing.facts;
        all.documents += facts->documents;
        all.samples += facts->samples;
        all.tokens += facts->tokens;
        all.too_long += facts->too_long;
        all.untrained += facts->untrained;
        all.untrained_parts += facts->untrained_parts;
    }
    return all;
}

int64_t z3d_dataset_windows(const z3d_dataset *dataset) {
    int64_t windows = 0;
    for (int i = 0; i < dataset->count; i++) windows += dataset->source[i].padded;
    return windows;
}

int64_t z3d_dataset_file_windows(const z3d_dataset *dataset, int file, int64_t *first) {
    *first = 0;
    for (int i = 0; i < file; i++) *first += dataset->source[i].padded;
    return dataset->source[file].padded;
}

z3d_status z3d_dataset_window(const z3d_dataset *dataset, int64_t index, int32_t *tokens,
                              int32_t *targets, int32_t *positions) {
    z3d_sample_place place = {.window = index};
    while (place.file < dataset->count && place.window >= dataset->source[place.file].padded)
        place.window -= dataset->source[place.file++].padded;
    if (index >= 0 && place.file < dataset->count)
        return read_sample(dataset, &place, tokens, targets, positions);
    fill_up(dataset, 0, tokens, targets, positions);
    return Z3D_OK;
}
