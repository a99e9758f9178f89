/* The files of a Hugging Face tokenizer: copied next to an imported model, and written next to an
 * exported one. Missing files are made from vocab.json and merges.txt. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/interop/interop.h"

enum { MAX_FILE = 1 << 26 };

#define END_OF_TEXT "<|endoftext|>"

static const char *const names[Z3D_TOKENIZER_FILES] = {
    [Z3D_FILE_VOCAB] = "vocab.json",
    [Z3D_FILE_MERGES] = "merges.txt",
    [Z3D_FILE_TOKENIZER] = "tokenizer.json",
    [Z3D_FILE_TOKENIZER_CONFIG] = "tokenizer_config.json",
    [Z3D_FILE_SPECIAL] = "special_tokens_map.json",
    [Z3D_FILE_ADDED] = "added_tokens.json",
    [Z3D_FILE_SENTENCEPIECE] = "tokenizer.model",
    [Z3D_FILE_CHAT_TEMPLATE] = "chat_template.jinja",
    [Z3D_FILE_GENERATION] = "generation_config.json",
    [Z3D_FILE_CONFIG] = "config.json"};

/* ---- reading ---- */

static z3d_status read_into(const char *path, z3d_string *out) {
    char *text;
    size_t length;
    Z3D_TRY(z3d_read_file(path, MAX_FILE, &text, &length));
    z3d_string_free(out);
    *out = (z3d_string){text, length, length + 1, false};
    return Z3D_OK;
}

/* Reads FOLDER/NAME, if it exists. */
static z3d_status read_beside(const char *folder, int file, z3d_tokenizer_files *out) {
    char *path;
    bool there;
    Z3D_TRY(z3d_join_path(folder, names[file], &path));
    z3d_status status = z3d_io_exists(path, &there);
    if (status == Z3D_OK && there) status = read_into(path, &out->text[file]);
    free(path);
    return status;
}

static z3d_status parse(const z3d_tokenizer_files *files, int file, z3d_json **out) {
    *out = NULL;
    if (!files->text[file].text) return Z3D_OK;
    return z3d_json_parse(files->text[file].text, files->text[file].length, names[file], out);
}

/* Finds the id of <|endoftext|> in vocab.json or tokenizer.json. */
static z3d_status find_end(z3d_tokenizer_files *files) {
    z3d_json *vocab, *whole = NULL;
    z3d_status status = parse(files, Z3D_FILE_VOCAB, &vocab);
    if (status == Z3D_OK && !vocab) status = parse(files, Z3D_FILE_TOKENIZER, &whole);
    const z3d_json *tokens = vocab;
    if (whole) tokens = z3d_json_member(z3d_json_member(whole, "model"), "vocab");
    files->end = -1;
    if (!z3d_json_int(z3d_json_member(tokens, END_OF_TEXT), &files->end) && whole) {
        const z3d_json *added = z3d_json_member(whole, "added_tokens");
        for (const z3d_json *m = added ? added->first : NULL; m; m = m->next)
            if (z3d_json_is_text(z3d_json_member(m, "content"), END_OF_TEXT))
                (void)z3d_json_int(z3d_json_member(m, "id"), &files->end);
    }
    z3d_json_free(vocab);
    z3d_json_free(whole);
    return status;
}

static int64_t id_of(const z3d_json *config, const char *key) {
    const z3d_json *m = z3d_json_member(config, key);
    int64_t id;
    if (m && m->type == Z3D_JSON_ARRAY) m = m->first;
    return z3d_json_int(m, &id) ? id : -1;
}

/* named: eos_token_id of config.json; a list stays a list. NULL: uses eos alone. */
static void set_ends(z3d_tokenizer_files *files, const z3d_json *named) {
    int count = 0;
    int64_t id;
    z3d_string_clear(&files->ends);
    const z3d_json *first = named && named->type == Z3D_JSON_ARRAY ? named->first : NULL;
    for (const z3d_json *m = first; m; m = m->next)
        if (z3d_json_int(m, &id))
            z3d_string_append(&files->ends, "%s%lld", count++ ? ", " : "[", (long long)id);
    if (count)
        z3d_string_append(&files->ends, "]");
    else if (files->eos >= 0)
        z3d_string_append(&files->ends, "%lld", (long long)files->eos);
}

static z3d_status find_ids(z3d_tokenizer_files *files) {
    const z3d_json *bos;
    z3d_json *config;
    Z3D_TRY(find_end(files));
    Z3D_TRY(parse(files, Z3D_FILE_CONFIG, &config));
    files->bos = id_of(config, "bos_token_id");
    files->eos = id_of(config, "eos_token_id");
    files->pad = id_of(config, "pad_token_id");
    bos = z3d_json_member(config, "bos_token_id");
    const bool none = bos && bos->type == Z3D_JSON_NULL; /* the model has no such token */
    if (files->bos < 0 && !none) files->bos = files->end;
    if (files->eos < 0) files->eos = files->end;
    set_ends(files, z3d_json_member(config, "eos_token_id"));
    z3d_json_free(config);
    return files->ends.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for eos_token_id") : Z3D_OK;
}

/* Reads a file: tokenizer.json if it has this name; else vocab.json, and merges.txt next to it. */
static z3d_status read_named(const char *vocab, const char *merges, z3d_tokenizer_files *out) {
    const char *slash = strrchr(vocab, '/'), *name = slash ? slash + 1 : vocab;
    if (strcmp(name, names[Z3D_FILE_TOKENIZER]) == 0)
        return read_into(vocab, &out->text[Z3D_FILE_TOKENIZER]);
    Z3D_TRY(read_into(vocab, &out->text[Z3D_FILE_VOCAB]));
    if (merges && *merges) return Z3D_OK;
    char *folder = slash ? strndup(vocab, (size_t)(slash + 1 - vocab)) : strdup(".");
    if (!folder) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name");
    z3d_status status = read_beside(folder, Z3D_FILE_MERGES, out);
    free(folder);
    return status;
}

z3d_status z3d_tokenizer_files_read(const char *vocab, const char *merges,
                                    z3d_tokenizer_files *out) {
    if (!z3d_is_folder(vocab)) {
        Z3D_TRY(read_named(vocab, merges, out));
    } else {
        for (int i = 0; i < Z3D_TOKENIZER_FILES; i++) Z3D_TRY(read_beside(vocab, i, out));
    }
    if (merges && *merges) Z3D_TRY(read_into(merges, &out->text[Z3D_FILE_MERGES]));
    bool pair = out->text[Z3D_FILE_VOCAB].text && out->text[Z3D_FILE_MERGES].text;
    out->known = pair || out->text[Z3D_FILE_TOKENIZER].text;
    return find_ids(out);
}

z3d_status z3d_tokenizer_files_read_config(const char *folder, z3d_tokenizer_files *out) {
    Z3D_TRY(read_beside(folder, Z3D_FILE_CONFIG, out));
    Z3D_TRY(read_beside(folder, Z3D_FILE_GENERATION, out));
    return find_ids(out);
}

/* ---- making ---- */

/* GPT-2 writes each byte as a character: a printable one as itself, the others from U+0100 on. */
void z3d_tokenizer_files_of_bytes(z3d_tokenizer_files *out) {
    z3d_string *vocab = &out->text[Z3D_FILE_VOCAB];
    unsigned next = 256;
    z3d_string_append(vocab, "{");
    for (unsigned b = 0; b < 256; b++) {
        bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        z3d_string_append(vocab, "\"\\u%04x\": %u, ", itself ? b : next++, b);
    }
    z3d_string_append(vocab, "\"" END_OF_TEXT "\": 256}\n");
    z3d_string_append(&out->text[Z3D_FILE_MERGES], "#version: 0.2\n");
    out->known = true;
    out->end = out->bos = out->eos = 256;
    out->pad = -1;
    set_ends(out, NULL);
}

static z3d_status append_merges(const z3d_string *merges, z3d_string *out) {
    const char *end = merges->text + merges->length;
    bool first = true;
    for (const char *at = merges->text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at);
        size_t used = length > 0 && at[length - 1] == '\r' ? length - 1 : length;
        bool version = at == merges->text && strncmp(at, "#version", 8) == 0;
        if (used > 0 && !version) {
            char *line = strndup(at, used);
            if (!line) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for tokenizer.json");
            z3d_string_append(out, "%s", first ? "" : ",\n      ");
            z3d_string_append_json(out, line);
            free(line);
            first = false;
        }
        at += length + 1;
    }
    return Z3D_OK;
}

static z3d_status make_tokenizer(z3d_tokenizer_files *files) {
    z3d_string *out = &files->text[Z3D_FILE_TOKENIZER];
    const char *byte_level = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                             "\"trim_offsets\": true, \"use_regex\": true}";
    if (out->text) return Z3D_OK;
    z3d_string_append(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n"
                           "  \"padding\": null,\n  \"added_tokens\": [");
    if (files->end >= 0)
        z3d_string_append(out,
                          "{\"id\": %lld, \"content\": \"" END_OF_TEXT "\", "
                          "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                          "\"normalized\": false, \"special\": true}",
                          (long long)files->end);
    z3d_string_append(out,
                      "],\n  \"normalizer\": null,\n  \"pre_tokenizer\": %s,\n"
                      "  \"post_processor\": null,\n  \"decoder\": %s,\n"
                      "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n"
                      "    \"unk_token\": null,\n    \"continuing_subword_prefix\": null,\n"
                      "    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
                      "    \"byte_fallback\": false,\n    \"vocab\": ",
                      byte_level, byte_level);
    z3d_string_append_bytes(out, files->text[Z3D_FILE_VOCAB].text,
                            files->text[Z3D_FILE_VOCAB].length);
    z3d_string_append(out, ",\n    \"merges\": [");
    Z3D_TRY(append_merges(&files->text[Z3D_FILE_MERGES], out));
    z3d_string_append(out, "]\n  }\n}\n");
    return Z3D_OK;
}

/* Appends `  "bos_token": "<s>"`, and the same for the end and for unknown tokens. The texts of the
 * ids are in tokenizer.json's added_tokens. */
static void append_special(const z3d_tokenizer_files *files, const z3d_json *tokenizer,
                           z3d_string *out) {
    const int64_t ids[] = {files->bos, files->eos, files->end};
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token"};
    const z3d_json *added = z3d_json_member(tokenizer, "added_tokens");
    for (int i = 0; i < 3; i++)
        for (const z3d_json *m = added ? added->first : NULL; m; m = m->next) {
            const z3d_json *content = z3d_json_member(m, "content");
            bool named = content && content->type == Z3D_JSON_STRING;
            if (!named || ids[i] < 0 || id_of(m, "id") != ids[i]) continue;
            z3d_string_append(out, "%s  \"%s\": ", out->length ? ",\n" : "", keys[i]);
            z3d_string_append_json(out, content->text);
            break;
        }
}

/* Makes tokenizer_config.json and special_tokens_map.json; nothing if the tokenizer has its own. */
static z3d_status make_configs(z3d_tokenizer_files *files, int64_t positions) {
    z3d_string *config = &files->text[Z3D_FILE_TOKENIZER_CONFIG];
    z3d_string *special = &files->text[Z3D_FILE_SPECIAL];
    bool gpt2 = files->text[Z3D_FILE_VOCAB].text && files->text[Z3D_FILE_MERGES].text;
    z3d_string tokens = {0};
    z3d_json *tokenizer;
    if (config->text) return Z3D_OK;
    Z3D_TRY(parse(files, Z3D_FILE_TOKENIZER, &tokenizer));
    append_special(files, tokenizer, &tokens);
    const char *text = tokens.text ? tokens.text : "";
    z3d_string_append(config,
                      "{\n  \"tokenizer_class\": \"%s\",\n%s"
                      "  \"clean_up_tokenization_spaces\": false,\n"
                      "  \"model_max_length\": %lld%s%s\n}\n",
                      gpt2 ? "GPT2Tokenizer" : "PreTrainedTokenizerFast",
                      gpt2 ? "  \"add_prefix_space\": false,\n" : "", (long long)positions,
                      *text ? ",\n" : "", text);
    if (!special->text && *text) z3d_string_append(special, "{\n%s\n}\n", text);
    config->failed |= tokens.failed;
    z3d_string_free(&tokens);
    z3d_json_free(tokenizer);
    return Z3D_OK;
}

z3d_status z3d_tokenizer_files_complete(z3d_tokenizer_files *files, int64_t positions) {
    z3d_string *generation = &files->text[Z3D_FILE_GENERATION];
    Z3D_TRY(make_tokenizer(files));
    Z3D_TRY(make_configs(files, positions));
    if (!generation->text && files->bos >= 0 && files->eos >= 0)
        z3d_string_append(generation, "{\n  \"bos_token_id\": %lld,\n  \"eos_token_id\": %s\n}\n",
                          (long long)files->bos, files->ends.text);
    for (int i = 0; i < Z3D_TOKENIZER_FILES; i++)
        if (files->text[i].failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for %s", names[i]);
    return Z3D_OK;
}

/* ---- writing ---- */

z3d_status z3d_tokenizer_files_write(const z3d_tokenizer_files *files, bool config,
                                     const char *folder) {
    for (int i = 0; i < Z3D_TOKENIZER_FILES; i++)
        if (files->text[i].text && (config || i != Z3D_FILE_CONFIG))
            Z3D_TRY(z3d_io_write_file(NULL, folder, names[i], files->text[i].text,
                                      (int64_t)files->text[i].length));
    return Z3D_OK;
}

void z3d_tokenizer_files_free(z3d_tokenizer_files *files) {
    for (int i = 0; i < Z3D_TOKENIZER_FILES; i++) z3d_string_free(&files->text[i]);
    z3d_string_free(&files->ends);
    *files = (z3d_tokenizer_files){0};
}
