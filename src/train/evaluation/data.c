/* Token files and texts to evaluate. */
#include "src/train/evaluation/data.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/train/data/token_file.h"
#include "src/train/data/token_writer.h"
#include "src/train/text/instruction.h"
#include "src/train/text/json_lines.h"
#include "src/train/text/text_files.h"

/* Decides by the name, or by the content. */
static bool is_json(const char *path) {
    return z3d_is_json_lines(path) || z3d_is_json(path) || z3d_look_for_json(path) != Z3D_LOOK_TEXT;
}

/* ---- text ---- */

/* Reads a whole text; *text is malloc'ed. */
static z3d_status read_text(z3d_input *input, char **text, size_t *length) {
    enum { MOST = 1 << 30 };
    const char *path = input->path;
    z3d_content_hash unused;
    z3d_text_kind kind;
    int64_t bytes;
    Z3D_TRY(z3d_text_survey(input, &unused, &bytes, &kind));
    if (kind != Z3D_TEXT_UTF8) return z3d_text_refuse(path, path, kind);
    if (bytes == 0) return Z3D_ERROR(Z3D_ERR_DATA, "%s: the file is empty", path);
    if (bytes > MOST)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: %lld bytes of text: expected at most %d", path,
                         (long long)bytes, MOST);
    Z3D_TRY(z3d_new((size_t)bytes, 1, "a text", text));
    Z3D_TRY(z3d_input_rewind(input));
    return z3d_input_read(input, *text, (size_t)bytes, length);
}

static z3d_status write_text(const char *path, z3d_tokenizer *tokenizer, z3d_token_writer *writer) {
    char *text = NULL;
    size_t length;
    z3d_token_list ids = {0};
    z3d_input input;
    z3d_status status = z3d_input_open(&input, path);
    if (status == Z3D_OK) status = read_text(&input, &text, &length);
    if (status == Z3D_OK) status = z3d_tokenizer_prompt(tokenizer, text, length, &ids);
    if (status == Z3D_OK) status = z3d_token_writer_append(writer, ids.id, ids.count);
    z3d_token_list_free(&ids);
    z3d_input_close(&input);
    free(text);
    return status;
}

static z3d_status write_line(const char *text, size_t length, z3d_tokenizer *tokenizer,
                             z3d_token_list *ids, z3d_token_writer *writer) {
    ids->count = 0;
    Z3D_TRY(z3d_tokenizer_part(tokenizer, text, length, true, true, ids));
    return z3d_token_writer_append(writer, ids->id, ids->count);
}

/* Refuses conversations: only a token file says which of their tokens are trained, and evaluation
 * counts only these. */
static z3d_status refuse_instructions(const char *path, const z3d_json *object, z3d_status status) {
    if (status != Z3D_ERR_DATA || !object || z3d_instruction_format(object) <= Z3D_FORMAT_TEXT)
        return status;
    return Z3D_ERROR(
        Z3D_ERR_DATA,
        "%s: its objects are of the format %s: make a token file from it with the model's "
        "tokenizer and evaluate that file: zero3d data tokenize %s --tokenizer "
        "FOLDER --output FILE.bin",
        path, z3d_tokenize_format_name(z3d_instruction_format(object)), path);
}

static z3d_status write_lines(const char *path, const char *key, z3d_tokenizer *tokenizer,
                              z3d_token_writer *writer) {
    z3d_token_list ids = {0};
    const char *text = "";
    size_t length;
    z3d_json_lines lines = {.path = path, .key = key, .option = "--json-key "};
    z3d_status status = z3d_json_lines_open(&lines);
    while (status == Z3D_OK && text) {
        status = z3d_json_lines_next(&lines, &text, &length);
        status = refuse_instructions(path, lines.object, status);
        if (status == Z3D_OK && text && length > 0)
            status = write_line(text, length, tokenizer, &ids, writer);
    }
    if (status == Z3D_OK && writer->tokens == 0)
        status = Z3D_ERROR(Z3D_ERR_DATA, "%s: no text in it", path);
    z3d_json_lines_free(&lines);
    z3d_token_list_free(&ids);
    return status;
}

static z3d_status open_tokens(const char *file, const char *name, const z3d_config *run,
                              bool documents, z3d_dataset **out) {
    double weight = 1;
    const z3d_data_list files = {.count = 1, .path = &file, .weight = &weight};
    z3d_dataset_config config = z3d_dataset_config_of(run, &files);
    config.documents = documents;
    z3d_status status = z3d_dataset_open(&config, out);
    /* Do not name our own temporary file: the user does not know it. */
    return status == Z3D_OK || file == name ? status : z3d_error_context(status, "%s", name);
}

/* Writes the token file to a new folder, to which no other process writes. */
static z3d_status open_text(const char *path, const char *json_key, z3d_tokenizer *tokenizer,
                            const char *folder, const z3d_config *run, z3d_dataset **out) {
    z3d_token_writer writer = {0};
    char *file;
    Z3D_TRY(z3d_join_path(folder, "tokens.bin", &file));
    z3d_status status = z3d_token_writer_open(&writer, file, (int32_t)run->model_vocab_size);
    if (status == Z3D_OK)
        status = is_json(path) ? write_lines(path, json_key, tokenizer, &writer)
                               : write_text(path, tokenizer, &writer);
    if (status == Z3D_OK) status = z3d_token_writer_finish(&writer);
    if (status == Z3D_OK) status = z3d_token_writer_publish(&writer);
    if (status == Z3D_OK) status = open_tokens(file, path, run, false, out);
    (void)unlink(file);
    z3d_token_writer_discard(&writer);
    free(file);
    return status;
}

z3d_status z3d_evaluation_data_open(const char *path, const char *json_key,
                                    z3d_tokenizer *tokenizer, const z3d_config *run,
                                    z3d_dataset **out) {
    *out = NULL;
    if (z3d_names_token_file(path))
        return open_tokens(path, path, run, run->data_samples == Z3D_SAMPLES_DOCUMENTS, out);
    const char *parent = getenv("TMPDIR");
    z3d_string folder = {0};
    z3d_string_append(&folder, "%s/zero3d-evaluate.XXXXXX", parent && *parent ? parent : "/tmp");
    z3d_status status = Z3D_OK;
    if (folder.failed)
        status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a path");
    else if (!mkdtemp(folder.text))
        status =
            Z3D_ERROR(Z3D_ERR_IO, "%s: cannot make the folder: %s", folder.text, strerror(errno));
    if (status == Z3D_OK) {
        status = open_text(path, json_key, tokenizer, folder.text, run, out);
        (void)rmdir(folder.text);
    }
    z3d_string_free(&folder);
    return status;
}

/* ---- its bytes ---- */

z3d_status z3d_evaluation_bytes(const z3d_dataset *dataset, const z3d_tokenizer *tokenizer,
                                int64_t seq_length, int64_t *out) {
    int32_t *tokens;
    z3d_string text = {0};
    int64_t bytes = 0, windows = z3d_dataset_windows(dataset);
    z3d_status status = Z3D_OK;
    Z3D_TRY(z3d_new(2 * (size_t)seq_length, sizeof *tokens, "a window", &tokens));
    int32_t *targets = tokens + seq_length;
    for (int64_t w = 0; w < windows && status == Z3D_OK && bytes >= 0; w++) {
        status = z3d_dataset_window(dataset, w, tokens, targets, NULL);
        if (status != Z3D_OK) break;
        z3d_string_clear(&text);
        size_t kept = 0;
        for (int64_t i = 0; i < seq_length; i++)
            if (targets[i] >= 0) targets[kept++] = targets[i];
        const z3d_status decoded = z3d_tokenizer_decode(tokenizer, targets, kept, false, &text);
        if (text.failed) status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a text");
        bytes = decoded == Z3D_OK ? bytes + (int64_t)text.length : -1;
    }
    free(tokens);
    z3d_string_free(&text);
    *out = bytes;
    return status;
}
