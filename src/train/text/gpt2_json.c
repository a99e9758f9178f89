/* Reads tokenizer.json, Hugging Face's tokenizer in one file. If it is not GPT-2's kind, names the
 * part that differs. */
#include <string.h>

#include "src/train/text/gpt2.h"

static z3d_status refuse(const char *path, const z3d_json *part, const char *what) {
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "%s:%lld: \"%s\"%s is not supported; %s", path,
                     (long long)part->line, part->key, part->type == Z3D_JSON_OBJECT ? " here" : "",
                     what);
}

static bool is_none(const z3d_json *m) {
    return !m || m->type == Z3D_JSON_NULL;
}

static bool is_text(const z3d_json *m, const char *text) {
    return m && m->type == Z3D_JSON_STRING && strcmp(m->text, text) == 0;
}

/* A member that is not there has the value `missing`. */
static bool flag(const z3d_json *object, const char *key, bool missing) {
    const z3d_json *m = z3d_json_member(object, key);
    return m && m->type == Z3D_JSON_BOOL ? m->truth : missing;
}

static z3d_status refuse_type(const char *path, const z3d_json *part, const char *supported) {
    const z3d_json *type = z3d_json_member(part, "type");
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                     "%s:%lld: \"%s\" of type %.40s is not supported; only %s is", path,
                     (long long)part->line, part->key,
                     type && type->type == Z3D_JSON_STRING ? type->text : "(none)", supported);
}

/* How text becomes words. */
static z3d_status check_words(const z3d_json *root, const char *path) {
    const z3d_json *normalizer = z3d_json_member(root, "normalizer");
    const z3d_json *words = z3d_json_member(root, "pre_tokenizer");
    const z3d_json *decoder = z3d_json_member(root, "decoder");
    if (!is_none(normalizer)) return refuse_type(path, normalizer, "null");
    if (is_none(words))
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                         "%s: no \"pre_tokenizer\": only one of type ByteLevel is supported", path);
    if (!is_text(z3d_json_member(words, "type"), "ByteLevel"))
        return refuse_type(path, words, "ByteLevel (GPT-2's pattern)");
    if (flag(words, "add_prefix_space", true))
        return refuse(path, words, "\"add_prefix_space\" must be false");
    if (!flag(words, "use_regex", true))
        return refuse(path, words, "\"use_regex\" must be true (GPT-2's pattern)");
    if (!is_none(decoder) && !is_text(z3d_json_member(decoder, "type"), "ByteLevel"))
        return refuse_type(path, decoder, "ByteLevel");
    return Z3D_OK;
}

/* Whether a template of one text is only that text. */
static bool adds_nothing(const z3d_json *template) {
    const z3d_json *single = z3d_json_member(template, "single");
    if (!single || single->type != Z3D_JSON_ARRAY) return false;
    for (const z3d_json *m = single->first; m; m = m->next)
        if (!z3d_json_member(m, "Sequence")) return false;
    return true;
}

/* What comes after all tokens are made: ByteLevel's changes none of them. */
static z3d_status check_end(const z3d_json *part, const char *path) {
    const z3d_json *type = z3d_json_member(part, "type");
    if (is_none(part) || is_text(type, "ByteLevel")) return Z3D_OK;
    if (is_text(type, "TemplateProcessing") && adds_nothing(part)) return Z3D_OK;
    if (is_text(type, "Sequence")) {
        const z3d_json *all = z3d_json_member(part, "processors");
        for (const z3d_json *m = all ? all->first : NULL; m; m = m->next)
            Z3D_TRY(check_end(m, path));
        return Z3D_OK;
    }
    return Z3D_ERROR(
        Z3D_ERR_UNSUPPORTED,
        "%s:%lld: \"post_processor\" of type %.40s adds tokens to every text, which is "
        "not supported; only ByteLevel is",
        path, (long long)part->line, type && type->type == Z3D_JSON_STRING ? type->text : "(none)");
}

/* How words become tokens. */
static z3d_status check_model(const z3d_json *model, const char *path) {
    static const char *const marks[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const z3d_json *type = z3d_json_member(model, "type");
    const z3d_json *dropout = z3d_json_member(model, "dropout");
    if (type && !is_text(type, "BPE")) return refuse_type(path, model, "BPE");
    if (!is_none(dropout)) return refuse(path, dropout, "it must be null");
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const z3d_json *m = z3d_json_member(model, marks[i]);
        if (!is_none(m) && !is_text(m, "")) return refuse(path, m, "it must be null");
    }
    if (flag(model, "byte_fallback", false))
        return refuse(path, z3d_json_member(model, "byte_fallback"), "it must be false");
    if (flag(model, "ignore_merges", false))
        return refuse(path, z3d_json_member(model, "ignore_merges"), "it must be false");
    return Z3D_OK;
}

/* Added tokens are found in a text before its words are: of ours only <|endoftext|> is. */
static z3d_status read_added(const z3d_json *root, const char *path, int64_t *end_of_text) {
    const z3d_json *added = z3d_json_member(root, "added_tokens");
    for (const z3d_json *m = added ? added->first : NULL; m; m = m->next) {
        const z3d_json *content = z3d_json_member(m, "content");
        if (!is_text(content, Z3D_END_OF_TEXT))
            return Z3D_ERROR(
                Z3D_ERR_UNSUPPORTED, "%s:%lld: added token %.40s is not supported; only %s is",
                path, (long long)m->line,
                content && content->type == Z3D_JSON_STRING ? content->text : "(no \"content\")",
                Z3D_END_OF_TEXT);
        if (flag(m, "lstrip", false) || flag(m, "rstrip", false) || flag(m, "single_word", false))
            return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                             "%s:%lld: added token %s: \"lstrip\", \"rstrip\" and \"single_word\" "
                             "must be false",
                             path, (long long)m->line, Z3D_END_OF_TEXT);
        if (!z3d_json_int(z3d_json_member(m, "id"), end_of_text))
            return Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: added token %s has no \"id\"", path,
                             (long long)m->line, Z3D_END_OF_TEXT);
    }
    return Z3D_OK;
}

bool z3d_gpt2_is_tokenizer_json(const z3d_json *root) {
    const z3d_json *model = z3d_json_member(root, "model");
    return model && model->type == Z3D_JSON_OBJECT;
}

z3d_status z3d_gpt2_tokenizer_json(const z3d_json *root, const char *path, const z3d_json **vocab,
                                   const z3d_json **merges, int64_t *end_of_text) {
    const z3d_json *model = z3d_json_member(root, "model");
    *end_of_text = -1;
    Z3D_TRY(check_model(model, path));
    Z3D_TRY(check_words(root, path));
    Z3D_TRY(check_end(z3d_json_member(root, "post_processor"), path));
    Z3D_TRY(read_added(root, path, end_of_text));
    z3d_status status = z3d_json_get(model, "vocab", Z3D_JSON_OBJECT, vocab);
    if (status == Z3D_OK) status = z3d_json_get(model, "merges", Z3D_JSON_ARRAY, merges);
    return status == Z3D_OK ? Z3D_OK : z3d_error_context(status, "%s: \"model\"", path);
}
