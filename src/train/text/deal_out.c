/* The second pass of `zero3d data tokenize`: decides which documents are held out, and copies each
 * document to its file. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "src/train/data/token_format.h"
#include "src/train/text/tokenize_work.h"

/* ---- deciding ---- */

static void hold_out_last(z3d_tokenize_work *w) {
    int64_t count = w->result->documents;
    int64_t held = llround(w->options->validation_fraction * (double)count);
    held = held < 1 ? 1 : held > count - 1 ? count - 1 : held;
    for (int64_t i = count - held; i < count; i++) w->document[i].held_out = true;
}

static void hold_out_by_hash(z3d_tokenize_work *w) {
    int64_t count = w->result->documents, held = 0, smallest = 0;
    for (int64_t i = 0; i < count; i++) {
        double uniform = (double)(w->document[i].hash >> 11) * 0x1p-53;
        w->document[i].held_out = uniform < w->options->validation_fraction;
        held += w->document[i].held_out;
        if (w->document[i].hash < w->document[smallest].hash) smallest = i;
    }
    /* With few documents chance may leave one file empty. */
    if (held == 0) w->document[smallest].held_out = true;
    if (held == count) w->document[smallest].held_out = false;
}

/* Holds out the last `wanted` tokens of all text; cuts at the nearest end of a line. Changes
 * nothing if the cut would be in a document without such a line's end. */
static void hold_out_tail(z3d_tokenize_work *w, double wanted) {
    z3d_tokenize_result *result = w->result;
    int64_t at = result->documents - 1, best = 0, tokens = 0;
    double after = 0;
    while (at > 0 && after + (double)w->document[at].tokens < wanted)
        after += (double)w->document[at--].tokens;
    const z3d_tokenize_document *d = &w->document[at];
    const double target = (double)d->tokens - (wanted - after);
    for (int64_t i = d->first_part; i < d->first_part + d->parts - 1; i++) {
        tokens += w->part[i].tokens;
        bool nearer = fabs((double)tokens - target) < fabs((double)best - target);
        if (w->part[i].ends_line && (best == 0 || nearer)) best = tokens;
    }
    if (best == 0) return;
    for (int64_t i = 0; i < result->documents; i++) w->document[i].held_out = i > at;
    w->cut = at;
    w->cut_tokens = best;
    snprintf(result->cut_file, sizeof result->cut_file, "%s", d->path);
}

z3d_status z3d_tokenize_hold_out(z3d_tokenize_work *w) {
    enum { FAR = 4 };
    z3d_tokenize_result *result = w->result;
    double all = 0, held = 0;
    if (!w->options->output_validation) return Z3D_OK;
    if (result->documents > 1) {
        if (w->options->split == Z3D_SPLIT_TAIL)
            hold_out_last(w);
        else
            hold_out_by_hash(w);
    }
    for (int64_t i = 0; i < result->documents; i++) {
        all += (double)w->document[i].tokens;
        held += w->document[i].held_out ? (double)w->document[i].tokens : 0;
    }
    const double wanted = w->options->validation_fraction * all;
    if (held < wanted / FAR || held > wanted * FAR) hold_out_tail(w, wanted);
    if (result->documents == 1 && w->cut < 0)
        return Z3D_ERROR(
            Z3D_ERR_DATA,
            "the input is one document (%lld bytes) without a line's end to cut it at, so nothing "
            "can be held out; give more text, or leave out the validation file",
            (long long)result->bytes);
    for (int64_t i = 0; i < result->documents; i++)
        result->validation_documents += w->document[i].held_out;
    return Z3D_OK;
}

/* ---- copying ---- */

static z3d_status copy_tokens(z3d_tokenize_work *w, FILE *stream, int64_t tokens,
                              z3d_token_writer *writer) {
    enum { BLOCK = 1 << 18 };
    const size_t size = (size_t)w->stream.bytes_per_token;
    w->ids.count = 0;
    Z3D_TRY(z3d_token_list_reserve(&w->ids, BLOCK));
    int32_t *ids = w->ids.id;
    while (tokens > 0) {
        size_t count = tokens < BLOCK ? (size_t)tokens : BLOCK;
        if (fread(ids, size, count, stream) != count)
            return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot read it again: %s", w->stream.temporary,
                             ferror(stream) ? strerror(errno) : "the file became shorter");
        for (size_t i = count; i-- > 0;) { /* widened in place, so from the end on */
            int32_t id = 0;
            memcpy(&id, (const char *)ids + i * size, size);
            ids[i] = id;
        }
        Z3D_TRY(z3d_token_writer_append(writer, ids, count));
        tokens -= (int64_t)count;
    }
    return Z3D_OK;
}

/* Writes the tokens that begin or end a document. */
static z3d_status write_border(z3d_tokenize_work *w, bool begins, z3d_token_writer *writer) {
    w->ids.count = 0;
    Z3D_TRY(z3d_tokenizer_part(w->tokenizer, "", 0, begins, !begins, &w->ids));
    return z3d_token_writer_append(writer, w->ids.id, w->ids.count);
}

/* The document with the cut becomes two: one ends at the cut, one begins there. */
static z3d_status copy_both_ends(z3d_tokenize_work *w, FILE *stream, int64_t tokens) {
    Z3D_TRY(z3d_token_writer_document(&w->train));
    Z3D_TRY(copy_tokens(w, stream, w->cut_tokens, &w->train));
    Z3D_TRY(write_border(w, false, &w->train));
    Z3D_TRY(z3d_token_writer_document(&w->validation));
    Z3D_TRY(write_border(w, true, &w->validation));
    return copy_tokens(w, stream, tokens - w->cut_tokens, &w->validation);
}

static z3d_status copy_document(z3d_tokenize_work *w, FILE *stream, int64_t index) {
    const z3d_tokenize_document *d = &w->document[index];
    z3d_token_writer *writer = d->held_out ? &w->validation : &w->train;
    if (d->tokens == 0) return Z3D_OK;
    if (index == w->cut) return copy_both_ends(w, stream, d->tokens);
    Z3D_TRY(z3d_token_writer_document(writer));
    return copy_tokens(w, stream, d->tokens, writer);
}

z3d_status z3d_tokenize_deal_out(z3d_tokenize_work *w) {
    const z3d_tokenize_options *options = w->options;
    FILE *stream = fopen(w->stream.temporary, "rbe");
    z3d_status status = Z3D_OK;
    if (!stream || fseeko(stream, Z3D_TOKEN_HEADER_BYTES, SEEK_SET) != 0)
        status = Z3D_ERROR(Z3D_ERR_IO, "%s: cannot read it again: %s", w->stream.temporary,
                           strerror(errno));
    for (int64_t i = 0; i < w->result->documents && status == Z3D_OK; i++)
        status = copy_document(w, stream, i);
    if (stream) fclose(stream);
    if (status != Z3D_OK) return status;
    Z3D_TRY(z3d_token_writer_finish(&w->train));
    if (options->output_validation) {
        Z3D_TRY(z3d_token_writer_finish(&w->validation));
        Z3D_TRY(z3d_token_writer_publish(&w->validation));
    }
    return z3d_token_writer_publish(&w->train);
}
