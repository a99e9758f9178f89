/* `zero3d data tokenize`: text -> token files. Two passes: the first tokenizes every document into
 * a temporary stream and keeps its hash and length; the second copies each one to the training or
 * the validation file. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "src/train/data.h"
#include "src/train/data/token_file.h"
#include "src/train/data/token_writer.h"
#include "src/train/text/json_lines.h"
#include "src/train/text/text_files.h"

/* A document is at most LARGEST_DOCUMENT bytes; less where there is little text, so that some can
 * be held out. */
enum { LARGEST_DOCUMENT = 65536, SMALLEST_CUT = 1024, WANTED_DOCUMENTS = 200 };

typedef struct document {
    uint64_t hash;
    int64_t tokens;
    bool held_out;
} document;

typedef struct work {
    const z3d_tokenize_options *options;
    z3d_tokenize_result *result;
    z3d_tokenizer *tokenizer;
    z3d_text_list list;
    z3d_hash_set files_seen, documents_seen;
    z3d_token_writer stream, train, validation;
    document *document;
    int64_t capacity;
    size_t cut; /* bytes of a document at most */
    unsigned char *text;
    z3d_token_list ids;
    int64_t raw_json; /* files of JSON lines that were read as plain text */
    const char *first_raw_json;
    double begun;
    int64_t total_bytes, read_bytes, told_bytes; /* of the files; of them, read and told */
} work;

static z3d_status check_options(const z3d_tokenize_options *options) {
    if (options->count < 1) return Z3D_ERROR(Z3D_ERR_USAGE, "no file or folder to tokenize");
    if (!options->output_train || !*options->output_train)
        return Z3D_ERROR(Z3D_ERR_USAGE, "no name for the token file to write");
    if (options->limit_bytes < 0)
        return Z3D_ERROR(Z3D_ERR_USAGE, "limit of %lld bytes: expected 0 (none) or more",
                         (long long)options->limit_bytes);
    if (!options->output_validation) return Z3D_OK;
    if (strcmp(options->output_train, options->output_validation) == 0)
        return Z3D_ERROR(Z3D_ERR_USAGE, "%s cannot be both the training and the validation file",
                         options->output_train);
    if (!(options->validation_fraction > 0 && options->validation_fraction < 1))
        return Z3D_ERROR(Z3D_ERR_USAGE, "validation fraction %g: expected a number between 0 and 1",
                         options->validation_fraction);
    return Z3D_OK;
}

/* ---- first pass ---- */

/* `more` bytes of the files were read. */
static void advance(work *w, int64_t more, bool tell) {
    enum { STEP = 1 << 22 };
    w->read_bytes += more;
    if (!w->options->progress || (!tell && w->read_bytes - w->told_bytes < STEP)) return;
    w->told_bytes = w->read_bytes;
    const z3d_tokenize_progress progress = {w->read_bytes, w->total_bytes, w->stream.tokens,
                                            z3d_now() - w->begun};
    w->options->progress(w->options->context, &progress);
}

static z3d_status add_document(work *w, const unsigned char *text, size_t bytes) {
    z3d_content_hash hash = {{0, 0}};
    bool added;
    z3d_content_hash_add(&hash, text, bytes);
    Z3D_TRY(z3d_hash_set_add(&w->documents_seen, hash, &added));
    if (!added) {
        w->result->duplicate_documents++;
        return Z3D_OK;
    }
    if (w->result->documents == w->capacity) {
        int64_t capacity = w->capacity ? 2 * w->capacity : 256;
        document *grown = realloc(w->document, (size_t)capacity * sizeof *grown);
        if (!grown) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a list of documents");
        w->document = grown;
        w->capacity = capacity;
    }
    w->ids.count = 0;
    Z3D_TRY(z3d_tokenizer_document(w->tokenizer, (const char *)text, bytes, &w->ids));
    Z3D_TRY(z3d_token_writer_append(&w->stream, w->ids.id, w->ids.count));
    w->document[w->result->documents++] =
        (document){.hash = hash.word[0], .tokens = (int64_t)w->ids.count};
    w->result->bytes += (int64_t)bytes;
    return Z3D_OK;
}

/* Where to end a document of at most `count` bytes when more text follows: behind the last blank
 * line of its second half, else behind the last line, else before a character that is cut. */
static size_t find_cut(const unsigned char *text, size_t count) {
    size_t line = 0;
    for (size_t i = count - 1; i > count / 2; i--) {
        if (text[i] != '\n') continue;
        if (text[i - 1] == '\n') return i + 1;
        if (!line) line = i + 1;
    }
    if (line) return line;
    size_t rest;
    z3d_utf8_faults(text, count, &rest);
    return rest < count ? count - rest : count;
}

static z3d_status add_documents(work *w, int fd, const char *path, int64_t bytes) {
    int64_t limit = w->options->limit_bytes;
    for (int64_t at = 0; at < bytes;) {
        if (limit && w->result->bytes >= limit) {
            w->result->limited = true;
            return Z3D_OK;
        }
        size_t wanted = bytes - at < (int64_t)w->cut ? (size_t)(bytes - at) : w->cut;
        bool more = at + (int64_t)wanted < bytes;
        if (limit && limit - w->result->bytes < (int64_t)wanted) {
            wanted = (size_t)(limit - w->result->bytes);
            more = false; /* the last document ends where the limit does */
        }
        ssize_t count = pread(fd, w->text, wanted, at);
        if (count < 0 && errno == EINTR) continue;
        if (count != (ssize_t)wanted)
            return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot read %zu bytes at %lld: %s", path, wanted,
                             (long long)at,
                             count < 0 ? strerror(errno) : "the file became shorter");
        size_t cut = more ? find_cut(w->text, wanted) : wanted;
        Z3D_TRY(add_document(w, w->text, cut));
        at += (int64_t)cut;
        advance(w, (int64_t)cut, false);
    }
    return Z3D_OK;
}

/* One document a line, of any length. */
static z3d_status add_lines(work *w, z3d_json_lines *lines) {
    int64_t limit = w->options->limit_bytes;
    for (;;) {
        const char *text;
        size_t length;
        int64_t before = lines->offset;
        if (limit && w->result->bytes >= limit) {
            w->result->limited = true;
            return Z3D_OK;
        }
        Z3D_TRY(z3d_json_lines_next(lines, &text, &length));
        if (!text) return Z3D_OK;
        if (length == 0)
            w->result->empty_documents++;
        else
            Z3D_TRY(add_document(w, (const unsigned char *)text, length));
        advance(w, lines->offset - before, false);
    }
}

static z3d_status add_json_lines(work *w, int fd, const char *path) {
    z3d_json_lines lines = {
        .fd = fd, .path = path, .key = w->options->json_key, .option = "--json-key "};
    z3d_status status = add_lines(w, &lines);
    w->result->repairs.surrogates += lines.repairs.surrogates;
    w->result->repairs.nuls += lines.repairs.nuls;
    z3d_json_lines_free(&lines);
    return status;
}

/* Whether the file is text that was not there before; what is left out is counted. */
static z3d_status examine(work *w, int fd, const z3d_text_file *file, int64_t *bytes, bool *used) {
    z3d_tokenize_result *result = w->result;
    z3d_content_hash hash;
    bool text, added = true;
    *used = false;
    z3d_status status = z3d_text_survey(fd, file->path, &hash, bytes, &text);
    if (status == Z3D_ERR_IO && !file->named) {
        result->skipped_unreadable++;
        return Z3D_OK;
    }
    Z3D_TRY(status);
    if (text && *bytes > 0) Z3D_TRY(z3d_hash_set_add(&w->files_seen, hash, &added));
    result->skipped_binary += !text;
    result->skipped_empty += text && *bytes == 0;
    result->skipped_duplicate += !added;
    *used = text && *bytes > 0 && added;
    return Z3D_OK;
}

/* Whoever names a file and a key means JSON lines; in a folder, the file's name tells. */
static bool is_json(const work *w, const z3d_text_file *file) {
    return z3d_is_json_lines(file->path) || (w->options->json_key && file->named);
}

/* Raw JSON is no text to train on: whoever gives it says where the text is. */
static z3d_status refuse_raw_json(const work *w, const char *path) {
    return Z3D_ERROR(Z3D_ERR_USAGE,
                     "%s has JSON lines: name the key of their text, as in `zero3d data "
                     "tokenize %s --json-key text --output %s`",
                     path, w->options->inputs[0], w->options->output_train);
}

/* JSON lines under another name: refused in a .json file that was named, else told in the end. */
static z3d_status notice_raw_json(work *w, int fd, const z3d_text_file *file) {
    size_t length = strlen(file->path);
    bool lines;
    if (w->options->json_key && file->named) return Z3D_OK;
    Z3D_TRY(z3d_looks_like_json_lines(fd, file->path, &lines));
    if (!lines) return Z3D_OK;
    if (file->named && length > 5 && strcasecmp(file->path + length - 5, ".json") == 0)
        return refuse_raw_json(w, file->path);
    if (w->raw_json++ == 0) w->first_raw_json = file->path;
    return Z3D_OK;
}

static void warn_raw_json(const work *w) {
    char others[48] = "";
    if (w->raw_json == 0) return;
    if (w->raw_json > 1)
        snprintf(others, sizeof others, " (and %lld other file%s)", (long long)w->raw_json - 1,
                 w->raw_json == 2 ? "" : "s");
    z3d_log(Z3D_LOG_WARN,
            "%s%s: these look like JSON lines, but were read as plain text, with braces and keys; "
            "to use only the text in them, name each file and use --json-key KEY",
            w->first_raw_json, others);
}

static z3d_status add_file(work *w, const z3d_text_file *file) {
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && file->named)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot open the file: %s", file->path, strerror(errno));
    if (fd < 0) {
        w->result->skipped_unreadable++;
        return Z3D_OK;
    }
    int64_t bytes = file->bytes, before = w->read_bytes;
    bool used = bytes > 0, json = is_json(w, file);
    z3d_status status = Z3D_OK;
    if (json) /* its bad lines are errors, its equal lines are found one by one */
        w->result->skipped_empty += !used;
    else
        status = examine(w, fd, file, &bytes, &used);
    if (status == Z3D_OK && used && !json) status = notice_raw_json(w, fd, file);
    if (status == Z3D_OK && used) {
        w->result->files++;
        status = json ? add_json_lines(w, fd, file->path) : add_documents(w, fd, file->path, bytes);
    }
    close(fd);
    w->read_bytes = before;
    advance(w, file->bytes, status == Z3D_OK);
    return status;
}

static z3d_status check_json(const work *w) {
    const char *key = w->options->json_key, *found = NULL;
    for (int64_t i = 0; i < w->list.count && !found; i++)
        if (is_json(w, &w->list.file[i])) found = w->list.file[i].path;
    if (found && !key) return refuse_raw_json(w, found);
    if (key && !found)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--json-key %s: there is no .jsonl or .ndjson file in %s; a file with "
                         "another name is read as JSON lines if you name the file itself",
                         key, w->options->inputs[0]);
    return Z3D_OK;
}

/* ", 3 files are not text": appends one reason when there is something to it. */
static void append_reason(z3d_string *out, int64_t count, const char *one, const char *many) {
    if (count == 0) return;
    z3d_string_append(out, "%s%lld %s", out->length ? ", " : ": ", (long long)count,
                      count == 1 ? one : many);
}

static z3d_status refuse_no_text(const work *w) {
    const z3d_tokenize_result *r = w->result;
    z3d_string why = {0};
    bool others = r->skipped_binary || r->skipped_empty || r->skipped_unreadable;
    if (r->empty_documents && !others)
        z3d_string_append(&why, ": all %s documents are empty",
                          w->list.count > 1 ? "their" : "its");
    else
        append_reason(&why, r->empty_documents, "document is empty", "documents are empty");
    append_reason(&why, r->skipped_binary, "file is not text", "files are not text");
    append_reason(&why, r->skipped_empty, "file is empty", "files are empty");
    append_reason(&why, r->skipped_unreadable, "file or folder cannot be read",
                  "files or folders cannot be read");
    z3d_status status =
        Z3D_ERROR(Z3D_ERR_DATA, "no text found in %s%s%s", w->options->inputs[0],
                  w->options->count > 1 ? " and the others" : "", why.text ? why.text : "");
    z3d_string_free(&why);
    return status;
}

static z3d_status read_all(work *w) {
    int64_t total = 0;
    for (int i = 0; i < w->options->count; i++)
        Z3D_TRY(z3d_text_list_add(&w->list, w->options->inputs[i]));
    w->result->skipped_unreadable = w->list.unreadable;
    for (int64_t i = 0; i < w->list.count; i++)
        if (!z3d_add_i64(total, w->list.file[i].bytes, &total)) total = INT64_MAX / 2;
    w->total_bytes = total;
    Z3D_TRY(check_json(w));
    if (w->options->limit_bytes && total > w->options->limit_bytes) total = w->options->limit_bytes;
    int64_t cut = total / WANTED_DOCUMENTS;
    w->cut = (size_t)(cut < SMALLEST_CUT       ? SMALLEST_CUT
                      : cut > LARGEST_DOCUMENT ? LARGEST_DOCUMENT
                                               : cut);
    Z3D_TRY(z3d_new(w->cut, 1, "a document's text", &w->text));
    for (int64_t i = 0; i < w->list.count && !w->result->limited; i++)
        Z3D_TRY(add_file(w, &w->list.file[i]));
    warn_raw_json(w);
    return w->result->documents ? Z3D_OK : refuse_no_text(w);
}

/* ---- second pass ---- */

static z3d_status hold_out(work *w) {
    z3d_tokenize_result *result = w->result;
    int64_t count = result->documents, held = 0, smallest = 0;
    double fraction = w->options->validation_fraction;
    if (!w->options->output_validation) return Z3D_OK;
    if (count < 2)
        return Z3D_ERROR(
            Z3D_ERR_DATA,
            "the input is one document (%lld bytes), so none can be held out; give more "
            "text, or leave out the validation file",
            (long long)result->bytes);
    if (w->options->split == Z3D_SPLIT_TAIL) {
        held = llround(fraction * (double)count);
        held = held < 1 ? 1 : held > count - 1 ? count - 1 : held;
        for (int64_t i = count - held; i < count; i++) w->document[i].held_out = true;
    } else {
        for (int64_t i = 0; i < count; i++) {
            double uniform = (double)(w->document[i].hash >> 11) * 0x1p-53;
            w->document[i].held_out = uniform < fraction;
            held += w->document[i].held_out;
            if (w->document[i].hash < w->document[smallest].hash) smallest = i;
        }
        /* Few documents: chance may leave a side empty. */
        if (held == 0) w->document[smallest].held_out = true, held = 1;
        if (held == count) w->document[smallest].held_out = false, held--;
    }
    result->validation_documents = held;
    return Z3D_OK;
}

static z3d_status copy_document(work *w, FILE *stream, const document *document) {
    z3d_token_writer *writer = document->held_out ? &w->validation : &w->train;
    size_t size = (size_t)writer->bytes_per_token, count = (size_t)document->tokens;
    int32_t *ids = w->ids.id; /* has room for the longest document */
    if (fread(ids, size, count, stream) != count)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot read it again: %s", w->stream.temporary,
                         ferror(stream) ? strerror(errno) : "the file became shorter");
    for (size_t i = count; i-- > 0;) { /* widened in place, from the end */
        int32_t id = 0;
        memcpy(&id, (const char *)ids + i * size, size);
        ids[i] = id;
    }
    return z3d_token_writer_append(writer, ids, (size_t)document->tokens);
}

static z3d_status deal_out(work *w) {
    const z3d_tokenize_options *options = w->options;
    FILE *stream = fopen(w->stream.temporary, "rbe");
    z3d_status status = Z3D_OK;
    if (!stream || fseeko(stream, Z3D_TOKEN_HEADER_BYTES, SEEK_SET) != 0)
        status = Z3D_ERROR(Z3D_ERR_IO, "%s: cannot read it again: %s", w->stream.temporary,
                           strerror(errno));
    for (int64_t i = 0; i < w->result->documents && status == Z3D_OK; i++)
        status = copy_document(w, stream, &w->document[i]);
    if (stream) fclose(stream);
    if (status != Z3D_OK) return status;
    Z3D_TRY(z3d_token_writer_finish(&w->train));
    if (options->output_validation) {
        Z3D_TRY(z3d_token_writer_finish(&w->validation));
        Z3D_TRY(z3d_token_writer_publish(&w->validation));
    }
    return z3d_token_writer_publish(&w->train);
}

static z3d_status run(work *w) {
    const z3d_tokenize_options *options = w->options;
    z3d_tokenize_result *result = w->result;
    int32_t vocab_size = w->tokenizer->vocab_size;
    z3d_string stream = {0};
    /* Opened first: an output that cannot be written is told before gigabytes are read. */
    Z3D_TRY(z3d_token_writer_open(&w->train, options->output_train, vocab_size));
    if (options->output_validation)
        Z3D_TRY(z3d_token_writer_open(&w->validation, options->output_validation, vocab_size));
    z3d_string_append(&stream, "%s.all", options->output_train);
    z3d_status status = stream.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name")
                                      : z3d_token_writer_open(&w->stream, stream.text, vocab_size);
    z3d_string_free(&stream);
    Z3D_TRY(status);
    Z3D_TRY(read_all(w));
    if (fflush(w->stream.file) != 0)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot write the file: %s", w->stream.temporary,
                         strerror(errno));
    Z3D_TRY(hold_out(w));
    Z3D_TRY(deal_out(w));
    result->vocab_size = vocab_size;
    result->train_documents = result->documents - result->validation_documents;
    result->train_tokens = w->train.tokens;
    result->validation_tokens = w->validation.tokens;
    return Z3D_OK;
}

z3d_status z3d_data_tokenize(const z3d_tokenize_options *options, z3d_tokenize_result *result) {
    work w = {
        .options = options, .result = result, .tokenizer = options->tokenizer, .begun = z3d_now()};
    z3d_tokenizer *own = NULL;
    z3d_status status;
    *result = (z3d_tokenize_result){0};
    Z3D_TRY_GOTO(status, check_options(options), end);
    if (!w.tokenizer) {
        Z3D_TRY_GOTO(status, z3d_tokenizer_create(Z3D_TOKENIZER_BYTES, NULL, NULL, &own), end);
        w.tokenizer = own;
    }
    status = run(&w);
end:
    z3d_token_writer_discard(&w.stream);
    z3d_token_writer_discard(&w.validation);
    z3d_token_writer_discard(&w.train);
    z3d_hash_set_free(&w.files_seen);
    z3d_hash_set_free(&w.documents_seen);
    z3d_text_list_free(&w.list);
    z3d_tokenizer_destroy(own);
    free(w.document);
    free(w.text);
    z3d_token_list_free(&w.ids);
    return status;
}
