/* The messages of `zero3d data tokenize`. */
#include "src/train/text/tokenize_work.h"

void z3d_tokenize_left_out(const z3d_tokenize_result *r, const char *begin, z3d_string *out) {
    const bool instructed = r->format > Z3D_FORMAT_TEXT;
    const struct {
        int64_t count;
        const char *one, *more;
    } reasons[] = {
        {r->skipped_binary, "file that is not text", "files that are not text"},
        {r->skipped_encoding, "file that is not UTF-8", "files that are not UTF-8"},
        {r->skipped_no_json, "file that is no JSON", "files that are no JSON"},
        {r->skipped_duplicate, "duplicate file", "duplicate files"},
        {r->duplicate_documents, "duplicate document", "duplicate documents"},
        {r->skipped_empty, "empty file", "empty files"},
        {r->skipped_unreadable, "unreadable file or folder", "unreadable files and folders"},
        {r->empty_documents, "empty document", "empty documents"},
        {r->bad_documents,
         instructed ? "line or element that is wrong" : "line or element without a text",
         instructed ? "lines and elements that are wrong" : "lines and elements without a text"}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (reasons[i].count == 0) continue;
        z3d_string_append(out, "%s%lld %s", begin, (long long)reasons[i].count,
                          reasons[i].count == 1 ? reasons[i].one : reasons[i].more);
        begin = ", ";
    }
}

/* Tells a split that is far from the requested share, and a text that was cut. */
static void append_split(const z3d_tokenize_options *options, const z3d_tokenize_result *r,
                         z3d_string *out) {
    const double far = 1.5, wanted = options->validation_fraction;
    const double share =
        (double)r->validation_tokens / (double)(r->train_tokens + r->validation_tokens);
    if (share > far * wanted || share < wanted / far)
        z3d_string_append(
            out, "           %lld of %lld documents, %.3g %% of the tokens; %g %% were requested\n",
            (long long)r->validation_documents, (long long)r->documents, 100 * share, 100 * wanted);
    if (!r->cut_file[0]) return;
    z3d_string_append(out, "           the end of %s", r->cut_file);
    if (r->validation_documents > 1)
        z3d_string_append(out, " and the %lld document%s after it",
                          (long long)r->validation_documents - 1,
                          z3d_plural(r->validation_documents - 1));
    z3d_string_append(
        out, ": whole documents are too few or too unequal to hold out the requested share\n");
}

/* Appends "287 of 300 documents" if some are left out. */
static void append_documents(const z3d_tokenize_result *r, z3d_string *out) {
    const int64_t all =
        r->documents + r->duplicate_documents + r->empty_documents + r->bad_documents;
    z3d_string_append(out, "%lld", (long long)r->documents);
    if (all > r->documents) z3d_string_append(out, " of %lld", (long long)all);
    z3d_string_append(out, " document%s", z3d_plural(all));
}

static const char *loss_name(const z3d_tokenize_options *options, const z3d_tokenize_result *r) {
    static const char *const names[] = {[Z3D_LOSS_COMPLETIONS] = "the completions",
                                        [Z3D_LOSS_ASSISTANT] = "the assistant's messages",
                                        [Z3D_LOSS_ALL] = "all"};
    const bool talks = r->format == Z3D_FORMAT_MESSAGES || r->format == Z3D_FORMAT_SHAREGPT;
    if (options->loss_on != Z3D_LOSS_AUTO) return names[options->loss_on];
    return names[talks ? Z3D_LOSS_ASSISTANT : Z3D_LOSS_COMPLETIONS];
}

/* Tells the format of JSON objects, and whether their keys decided it. */
static void append_format(const z3d_tokenize_options *options, const z3d_tokenize_result *r,
                          z3d_string *out) {
    const int64_t tokens = r->train_tokens + r->validation_tokens;
    const bool told = options->format == Z3D_FORMAT_AUTO && !options->json_key;
    if (r->format == Z3D_FORMAT_AUTO || (r->format == Z3D_FORMAT_TEXT && !told)) return;
    z3d_string_append(out, "format     %s%s", z3d_tokenize_format_name(r->format),
                      told ? ", by the keys of the first object" : "");
    if (r->chat_template[0]) z3d_string_append(out, "; chat template %s", r->chat_template);
    z3d_string_append(out, "\n");
    if (r->format > Z3D_FORMAT_TEXT)
        z3d_string_append(out, "trained    %lld of %lld tokens: %s\n",
                          (long long)(tokens - r->untrained_tokens), (long long)tokens,
                          loss_name(options, r));
    if (r->special_messages > 0)
        z3d_string_append(out,
                          "special    %lld message%s with a special token in the text; it is kept "
                          "as this token, as in apply_chat_template\n",
                          (long long)r->special_messages, z3d_plural(r->special_messages));
}

void z3d_tokenize_summary(const z3d_tokenize_options *options, const z3d_tokenize_result *result,
                          z3d_string *out) {
    char bytes[32];
    const bool instructed = result->format > Z3D_FORMAT_TEXT;
    const bool ends = !options->tokenizer || z3d_tokenizer_ends_documents(options->tokenizer);
    z3d_string_append(out, "read       %lld text file%s, %s, ", (long long)result->files,
                      z3d_plural(result->files),
                      z3d_format_bytes(result->bytes, bytes, sizeof bytes));
    append_documents(result, out);
    z3d_string_append(out, "%s%s\n", ends && !instructed ? ", each with its end token" : "",
                      result->limited ? " (limit reached)" : "");
    const size_t before = out->length;
    z3d_tokenize_left_out(result, "left out   ", out);
    if (out->length > before) z3d_string_append(out, "\n");
    if (result->skipped_duplicate)
        z3d_string_append(out, "           duplicate files: %s%s\n", result->duplicate_file,
                          result->skipped_duplicate > 1 ? ", ..." : "");
    if (result->bad_documents)
        z3d_string_append(out, "           %s: %s%s\n", instructed ? "wrong" : "without a text",
                          result->bad_lines,
                          result->bad_documents > Z3D_BAD_LINES_NAMED ? ", ..." : "");
    if (result->repairs.surrogates || result->repairs.nuls)
        z3d_string_append(out,
                          "repaired   in JSON strings: %lld halves of surrogate pairs replaced by "
                          "U+FFFD, %lld NUL characters kept\n",
                          (long long)result->repairs.surrogates, (long long)result->repairs.nuls);
    append_format(options, result, out);
    z3d_string_append(out, "training   %s: %lld tokens, %lld document%s\n", options->output_train,
                      (long long)result->train_tokens, (long long)result->train_documents,
                      z3d_plural(result->train_documents));
    if (options->output_validation) {
        z3d_string_append(out, "held out   %s: %lld tokens, %lld document%s\n",
                          options->output_validation, (long long)result->validation_tokens,
                          (long long)result->validation_documents,
                          z3d_plural(result->validation_documents));
        append_split(options, result, out);
    }
    z3d_string_append(
        out, "vocabulary %d (model.vocab_size must be at least this; an import has set it)\n",
        result->vocab_size);
}

/* In decimal units, as for disks and networks. */
static void append_megabytes(z3d_string *out, int64_t bytes) {
    double mb = (double)bytes / 1e6;
    if (mb < 1000)
        z3d_string_append(out, "%.1f MB", mb);
    else
        z3d_string_append(out, "%.2f GB", mb / 1e3);
}

void z3d_tokenize_progress_line(const z3d_tokenize_progress *p, z3d_string *out) {
    char tokens[32];
    double seconds = p->seconds > 0 ? p->seconds : 1e-9;
    append_megabytes(out, p->bytes);
    z3d_string_append(out, " of ");
    append_megabytes(out, p->total_bytes);
    z3d_string_append(out, " (%.0f %%), %.1f MB/s, %s tokens",
                      p->total_bytes ? 100.0 * (double)p->bytes / (double)p->total_bytes : 100.0,
                      (double)p->bytes / 1e6 / seconds,
                      z3d_format_count((double)p->tokens, tokens, sizeof tokens));
}
