/* The stages of tokenizer.json: normalizer, pre_tokenizer, decoder, post_processor. An error names
 * a part that is not supported. */
#include <string.h>
#include <utf8proc.h>

#include "src/train/text/bpe.h"

typedef struct reader {
    z3d_bpe_tokenizer *t;
    const z3d_json *root;
    const char *path;
    const char *stage; /* the present stage: "normalizer" */
    bool byte_level;   /* the last pre-tokenizer turned bytes into characters */
    bool fused;        /* a decoder has joined the tokens' texts */
} reader;

typedef z3d_status read_part(reader *r, const z3d_json *part);

static bool has_text(const z3d_json *object, const char *key, const char *text) {
    return strcmp(z3d_json_text(object, key), text) == 0;
}

static z3d_status refuse(const reader *r, const z3d_json *part, const char *what) {
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "%s:%lld: \"%s\" of type %.40s is not supported%s%s",
                     r->path, (long long)part->line, r->stage, z3d_json_text(part, "type"),
                     *what ? ": " : "", what);
}

/* Reads each part of a Sequence, or the single part. */
static z3d_status for_each(reader *r, const z3d_json *part, const char *list, read_part *read) {
    if (z3d_json_is_none(part)) return Z3D_OK;
    if (!has_text(part, "type", "Sequence")) return read(r, part);
    const z3d_json *all = z3d_json_member(part, list);
    if (!all || all->type != Z3D_JSON_ARRAY) return refuse(r, part, "its list is missing");
    for (const z3d_json *m = all->first; m; m = m->next) Z3D_TRY(for_each(r, m, list, read));
    return Z3D_OK;
}

/* ---- normalizer ---- */

static z3d_status add_rewrite(const reader *r, const z3d_json *part, z3d_rewrites *all,
                              z3d_rewrite step) {
    if (all->count == Z3D_MAX_STAGES) return refuse(r, part, "there are too many stages");
    return z3d_rewrites_add(all, &step);
}

static z3d_rewrite replace(const char *from, const char *into) {
    return (z3d_rewrite){.kind = Z3D_REWRITE_REPLACE, .from = (char *)from, .into = (char *)into};
}

static z3d_rewrite prepend(const char *into, bool if_missing) {
    return (z3d_rewrite){
        .kind = Z3D_REWRITE_PREPEND, .into = (char *)into, .if_missing = if_missing};
}

static z3d_status read_normalizer(reader *r, const z3d_json *part) {
    enum { STABLE = UTF8PROC_STABLE, COMPATIBLE = UTF8PROC_STABLE | UTF8PROC_COMPAT };
    static const struct {
        const char *name;
        int options;
    } forms[] = {{"NFC", STABLE | UTF8PROC_COMPOSE},
                 {"NFD", STABLE | UTF8PROC_DECOMPOSE},
                 {"NFKC", COMPATIBLE | UTF8PROC_COMPOSE},
                 {"NFKD", COMPATIBLE | UTF8PROC_DECOMPOSE}};
    z3d_rewrites *all = &r->t->normalizer;
    const z3d_json *pattern = z3d_json_member(part, "pattern");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (has_text(part, "type", forms[i].name))
            return add_rewrite(
                r, part, all,
                (z3d_rewrite){.kind = Z3D_REWRITE_UNICODE, .options = forms[i].options});
    if (has_text(part, "type", "Prepend"))
        return add_rewrite(r, part, all, prepend(z3d_json_text(part, "prepend"), false));
    if (!has_text(part, "type", "Replace"))
        return refuse(r, part, "NFC, NFD, NFKC, NFKD, Prepend and Replace are");
    if (!*z3d_json_text(pattern, "String"))
        return refuse(r, part, "its pattern must be {\"String\": text}");
    return add_rewrite(r, part, all,
                       replace(z3d_json_text(pattern, "String"), z3d_json_text(part, "content")));
}

/* ---- pre_tokenizer ---- */

static z3d_status add_pattern(reader *r, const z3d_json *part, const char *pattern, bool literal,
                              z3d_split_behaviour behaviour, bool invert) {
    z3d_status status =
        z3d_splitters_add_pattern(r->t->splitters, pattern, literal, behaviour, invert);
    return status == Z3D_OK
               ? status
               : z3d_error_context(status, "%s:%lld: the pattern of \"%s\" %s", r->path,
                                   (long long)part->line, r->stage, z3d_json_text(part, "type"));
}

static z3d_status read_split(reader *r, const z3d_json *part) {
    static const struct {
        const char *name;
        z3d_split_behaviour behaviour;
    } behaviours[] = {{"Isolated", Z3D_SPLIT_ISOLATED},
                      {"Removed", Z3D_SPLIT_REMOVED},
                      {"MergedWithPrevious", Z3D_SPLIT_MERGED}};
    const z3d_json *pattern = z3d_json_member(part, "pattern");
    const char *regex = z3d_json_text(pattern, "Regex"), *text = z3d_json_text(pattern, "String");
    if (!*regex && !*text)
        return refuse(r, part, "its pattern must be {\"Regex\": text} or {\"String\": text}");
    for (size_t i = 0; i < sizeof behaviours / sizeof *behaviours; i++)
        if (has_text(part, "behavior", behaviours[i].name))
            return add_pattern(r, part, *regex ? regex : text, !*regex, behaviours[i].behaviour,
                               z3d_json_flag(part, "invert", false));
    return refuse(r, part, "its behavior must be Isolated, Removed or MergedWithPrevious");
}

static z3d_status read_byte_level(reader *r, const z3d_json *part) {
    z3d_bpe_tokenizer *t = r->t;
    bool first = z3d_splitters_count(t->splitters) == 0 && t->spaces.count == 0;
    r->byte_level = true;
    if (z3d_json_flag(part, "add_prefix_space", true)) {
        if (!first) return refuse(r, part, "after other stages add_prefix_space must be false");
        Z3D_TRY(add_rewrite(r, part, &t->spaces, prepend(" ", true)));
    }
    if (z3d_json_flag(part, "use_regex", true))
        z3d_splitters_add_function(t->splitters, z3d_gpt2_word);
    return Z3D_OK;
}

/* Older files have add_prefix_space in place of prepend_scheme. */
static z3d_status read_metaspace(reader *r, const z3d_json *part) {
    z3d_bpe_tokenizer *t = r->t;
    const char *scheme = z3d_json_text(part, "prepend_scheme");
    if (!*scheme) scheme = z3d_json_flag(part, "add_prefix_space", true) ? "always" : "never";
    if (z3d_splitters_count(t->splitters) > 0 || t->spaces.count > 0)
        return refuse(r, part, "it must be the first stage");
    if (!has_text(part, "replacement", Z3D_SPACE_MARK))
        return refuse(r, part, "its replacement must be U+2581");
    Z3D_TRY(add_rewrite(r, part, &t->spaces, replace(" ", Z3D_SPACE_MARK)));
    if (strcmp(scheme, "never") != 0)
        Z3D_TRY(add_rewrite(r, part, &t->spaces, prepend(Z3D_SPACE_MARK, true)));
    t->first_only = strcmp(scheme, "first") == 0;
    if (!z3d_json_flag(part, "split", true)) return Z3D_OK;
    return add_pattern(r, part, "\\x{2581}[^\\x{2581}]*|[^\\x{2581}]+", false, Z3D_SPLIT_ISOLATED,
                       false);
}

static z3d_status read_pre_tokenizer(reader *r, const z3d_json *part) {
    if (z3d_splitters_count(r->t->splitters) == Z3D_MAX_STAGES - 1)
        return refuse(r, part, "there are too many stages");
    if (r->byte_level) return refuse(r, part, "ByteLevel must be the last stage");
    if (has_text(part, "type", "Split")) return read_split(r, part);
    if (has_text(part, "type", "ByteLevel")) return read_byte_level(r, part);
    if (has_text(part, "type", "Metaspace")) return read_metaspace(r, part);
    if (has_text(part, "type", "Digits"))
        return add_pattern(r, part,
                           z3d_json_flag(part, "individual_digits", false) ? "\\p{N}" : "\\p{N}+",
                           false, Z3D_SPLIT_ISOLATED, false);
    return refuse(r, part, "ByteLevel, Split, Digits and Metaspace are");
}

/* ---- decoder ---- */

static z3d_status read_strip(reader *r, const z3d_json *part) {
    int64_t start = -1, stop = -1;
    (void)z3d_json_int(z3d_json_member(part, "start"), &start);
    (void)z3d_json_int(z3d_json_member(part, "stop"), &stop);
    if (!has_text(part, "content", " ") || start < 0 || start > 1 || stop != 0 || !r->fused)
        return refuse(r, part, "only one space at the beginning may be stripped, after Fuse");
    r->t->strip = start == 1;
    return Z3D_OK;
}

static z3d_status read_decoder(reader *r, const z3d_json *part) {
    z3d_bpe_tokenizer *t = r->t;
    if (has_text(part, "type", "ByteLevel") != r->byte_level)
        return refuse(r, part, "it must be ByteLevel exactly where the pre_tokenizer is");
    if (r->byte_level) return Z3D_OK;
    if (has_text(part, "type", "Strip")) return read_strip(r, part);
    if (has_text(part, "type", "Fuse")) {
        r->fused = true;
    } else if (has_text(part, "type", "ByteFallback")) {
        t->byte_tokens = true;
    } else if (has_text(part, "type", "Metaspace")) {
        t->unmark = true;
        t->strip = !has_text(part, "prepend_scheme", "never") &&
                   z3d_json_flag(part, "add_prefix_space", true);
    } else if (has_text(part, "type", "Replace") && has_text(part, "content", " ") &&
               has_text(z3d_json_member(part, "pattern"), "String", Z3D_SPACE_MARK)) {
        t->unmark = true;
    } else {
        return refuse(r, part,
                      "ByteLevel, Metaspace, Replace of U+2581 by a space, ByteFallback, Fuse and "
                      "Strip are");
    }
    return Z3D_OK;
}

static z3d_status read_decoders(reader *r) {
    const z3d_json *decoder = z3d_json_member(r->root, "decoder");
    if (z3d_json_is_none(decoder) && !r->byte_level)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                         "%s: no \"pre_tokenizer\" of type ByteLevel and no \"decoder\": it does "
                         "not say how tokens become text",
                         r->path);
    return for_each(r, decoder, "decoders", read_decoder);
}

/* ---- post_processor ---- */

/* One token before a text is supported, and one after it, which must be the end of documents. */
static z3d_status read_template(reader *r, const z3d_json *part) {
    const z3d_json *single = z3d_json_member(part, "single");
    bool text = false;
    for (const z3d_json *m = single ? single->first : NULL; m; m = m->next) {
        const z3d_json *token = z3d_json_member(m, "SpecialToken");
        text = text || z3d_json_member(m, "Sequence");
        if (!token) continue;
        int32_t *place = text ? &r->t->closing : &r->t->base.begin_of_text;
        if (*place >= 0)
            return refuse(r, part, "it may add one token before a text, and one after it");
        int64_t id = z3d_tokenizer_json_id(r->root, z3d_json_text(token, "id"));
        if (id < 0 || id > Z3D_MAX_TOKEN_ID)
            return Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: \"%s\": no token %.40s", r->path,
                             (long long)part->line, r->stage, z3d_json_text(token, "id"));
        *place = (int32_t)id;
    }
    return Z3D_OK;
}

static z3d_status read_post_processor(reader *r, const z3d_json *part) {
    if (has_text(part, "type", "ByteLevel")) return Z3D_OK; /* it changes no tokens */
    if (has_text(part, "type", "TemplateProcessing")) return read_template(r, part);
    return refuse(r, part, "ByteLevel and TemplateProcessing are");
}

/* ---- all ---- */

z3d_status z3d_tokenizer_parts_read(z3d_bpe_tokenizer *t, const z3d_json *root, const char *path,
                                    bool *byte_level) {
    reader r = {.t = t, .root = root, .path = path, .stage = "normalizer"};
    Z3D_TRY(for_each(&r, z3d_json_member(root, r.stage), "normalizers", read_normalizer));
    r.stage = "pre_tokenizer";
    Z3D_TRY(for_each(&r, z3d_json_member(root, r.stage), "pretokenizers", read_pre_tokenizer));
    r.stage = "decoder";
    Z3D_TRY(read_decoders(&r));
    r.stage = "post_processor";
    Z3D_TRY(for_each(&r, z3d_json_member(root, r.stage), "processors", read_post_processor));
    *byte_level = r.byte_level;
    return Z3D_OK;
}
