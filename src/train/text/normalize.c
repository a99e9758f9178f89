/* Rewrites a text: Unicode normal forms, prepended text, replaced text. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "src/train/text/bpe.h"

/* ---- normal forms ---- */

static size_t ascii_run(const char *text, size_t length) {
    size_t at = 0;
    for (uint64_t word; at + 8 <= length; at += 8) {
        memcpy(&word, text + at, 8);
        if (word & 0x8080808080808080u) break;
    }
    while (at < length && (unsigned char)text[at] < 0x80) at++;
    return at;
}

/* Length of the run of valid UTF-8 without ASCII at `text`. */
static size_t other_run(const char *text, size_t length) {
    size_t at = 0;
    while (at < length && (unsigned char)text[at] >= 0x80) {
        size_t bytes = z3d_utf8_length(text + at, length - at);
        if (bytes == 0) break;
        at += bytes;
    }
    return at;
}

static z3d_status append_form(const char *text, size_t length, int options, z3d_string *out) {
    utf8proc_uint8_t *form = NULL;
    utf8proc_ssize_t bytes = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)length,
                                          &form, (utf8proc_option_t)options);
    if (bytes < 0) {
        free(form);
        return Z3D_ERROR(Z3D_ERR_MEMORY, "no normal form of %zu bytes of text: %s", length,
                         utf8proc_errmsg(bytes));
    }
    z3d_string_append_bytes(out, (const char *)form, (size_t)bytes);
    free(form);
    return Z3D_OK;
}

/* ASCII characters are in normal form and never combine with the character before them. So only
 * runs of other characters are normalised, each with the character before it. Invalid bytes stay.
 */
static z3d_status append_normal(const char *text, size_t length, int options, z3d_string *out) {
    for (size_t at = 0; at < length;) {
        size_t plain = ascii_run(text + at, length - at);
        size_t other = other_run(text + at + plain, length - at - plain);
        size_t joined = plain > 0 && other > 0;
        z3d_string_append_bytes(out, text + at, plain - joined);
        at += plain - joined;
        if (other > 0) Z3D_TRY(append_form(text + at, joined + other, options, out));
        at += joined + other;
        if (plain + other > 0) continue;
        z3d_string_append_bytes(out, text + at, 1);
        at++;
    }
    return Z3D_OK;
}

/* ---- texts ---- */

void z3d_append_replaced(const char *from, const char *into, const char *text, size_t length,
                         z3d_string *out) {
    const size_t bytes = strlen(from);
    for (const char *end = text + length; text < end;) {
        const char *found = bytes == 1 ? memchr(text, from[0], (size_t)(end - text))
                                       : memmem(text, (size_t)(end - text), from, bytes);
        if (!found) found = end;
        z3d_string_append_bytes(out, text, (size_t)(found - text));
        if (found == end) break;
        z3d_string_append_bytes(out, into, strlen(into));
        text = found + bytes;
    }
}

static void append_prepended(const z3d_rewrite *step, const char *text, size_t length,
                             z3d_string *out) {
    size_t into = strlen(step->into);
    bool there = step->if_missing && length >= into && memcmp(text, step->into, into) == 0;
    if (!there) z3d_string_append_bytes(out, step->into, into);
    z3d_string_append_bytes(out, text, length);
}

/* ---- all ---- */

z3d_status z3d_rewrites_add(z3d_rewrites *r, const z3d_rewrite *step) {
    z3d_rewrite copy = *step;
    copy.from = step->from ? strdup(step->from) : NULL;
    copy.into = step->into ? strdup(step->into) : NULL;
    r->step[r->count++] = copy;
    return (step->from && !copy.from) || (step->into && !copy.into)
               ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a normalizer")
               : Z3D_OK;
}

void z3d_rewrites_free(z3d_rewrites *r) {
    for (int i = 0; i < r->count; i++) {
        free(r->step[i].from);
        free(r->step[i].into);
    }
    for (int i = 0; i < 2; i++) z3d_string_free(&r->scratch[i]);
    *r = (z3d_rewrites){0};
}

z3d_status z3d_rewrites_apply(z3d_rewrites *r, bool prepend, const char **text, size_t *length) {
    for (int i = 0; i<r->count && * length> 0; i++) {
        const z3d_rewrite *step = &r->step[i];
        if (step->kind == Z3D_REWRITE_PREPEND && !prepend) continue;
        z3d_string *out = &r->scratch[i % 2];
        z3d_string_clear(out);
        if (step->kind == Z3D_REWRITE_UNICODE)
            Z3D_TRY(append_normal(*text, *length, step->options, out));
        else if (step->kind == Z3D_REWRITE_PREPEND)
            append_prepended(step, *text, *length, out);
        else
            z3d_append_replaced(step->from, step->into, *text, *length, out);
        if (out->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for rewritten text");
        *text = out->text ? out->text : "";
        *length = out->length;
    }
    return Z3D_OK;
}
