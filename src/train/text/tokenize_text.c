/* The messages of `zero3d data tokenize`. */
#include "src/train/data.h"

/* "3 no text, 1 empty": appends one reason when there is something to it. */
static void append_reason(z3d_string *out, bool *any, int64_t count, const char *reason) {
    if (count == 0) return;
    z3d_string_append(out, "%s%lld %s", *any ? ", " : "left out   ", (long long)count, reason);
    *any = true;
}

void z3d_tokenize_summary(const z3d_tokenize_options *options, const z3d_tokenize_result *result,
                          z3d_string *out) {
    char bytes[32];
    bool any = false;
    z3d_string_append(out, "read       %lld text files, %s, %lld documents%s\n",
                      (long long)result->files,
                      z3d_format_bytes(result->bytes, bytes, sizeof bytes),
                      (long long)result->documents, result->limited ? " (limit reached)" : "");
    append_reason(out, &any, result->skipped_binary, "files that are not text");
    append_reason(out, &any, result->skipped_encoding, "files that are not UTF-8");
    append_reason(out, &any, result->skipped_duplicate, "duplicate files");
    append_reason(out, &any, result->duplicate_documents, "duplicate documents");
    append_reason(out, &any, result->skipped_empty, "empty files");
    append_reason(out, &any, result->skipped_unreadable, "unreadable files and folders");
    append_reason(out, &any, result->empty_documents, "empty documents");
    append_reason(out, &any, result->bad_documents, "lines without a text");
    if (any) z3d_string_append(out, "\n");
    if (result->bad_documents)
        z3d_string_append(out, "           lines without a text: %s%s\n", result->bad_lines,
                          result->bad_documents > Z3D_BAD_LINES_NAMED ? ", ..." : "");
    if (result->repairs.surrogates || result->repairs.nuls)
        z3d_string_append(out,
                          "repaired   in JSON strings: %lld halves of surrogate pairs replaced by "
                          "U+FFFD, %lld NUL characters kept\n",
                          (long long)result->repairs.surrogates, (long long)result->repairs.nuls);
    z3d_string_append(out, "training   %s: %lld tokens, %lld documents\n", options->output_train,
                      (long long)result->train_tokens, (long long)result->train_documents);
    if (options->output_validation)
        z3d_string_append(out, "held out   %s: %lld tokens, %lld documents\n",
                          options->output_validation, (long long)result->validation_tokens,
                          (long long)result->validation_documents);
    if (result->cut_file[0])
        z3d_string_append(out,
                          "           the end of %s: whole documents are too few or too unequal to "
                          "hold out the share that was asked for\n",
                          result->cut_file);
    z3d_string_append(
        out, "vocabulary %d (model.vocab_size must be at least this; an import has set it)\n",
        result->vocab_size);
}

/* Decimal units, as disks and networks have them. */
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
