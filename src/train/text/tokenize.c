/* `zero3d data tokenize`: text -> token files. A text file or a JSON line is a document. Two
 * passes: the first tokenizes every document, a large one in parts, into a temporary stream and
 * keeps its hash and length; the second (deal_out.c) copies each one to the training or the
 * validation file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/train/text/bpe.h"
#include "src/train/text/input.h"
#include "src/train/text/tokenize_work.h"

/* A part has at most LARGEST_PART bytes, and about half of that if lines allow. If the end of one
 * file may have to be held out, a part has about 1 / WANTED_PARTS of all text. */
enum { LARGEST_PART = 1 << 20, SMALLEST_PART = 1024, WANTED_PARTS = 200 };

static z3d_status check_options(const z3d_tokenize_options *options) {
    if (options->count < 1) return Z3D_ERROR(Z3D_ERR_USAGE, "no file or folder to tokenize");
    if (!options->output_train || !*options->output_train)
        return Z3D_ERROR(Z3D_ERR_USAGE, "no name for the token file to write");
    if (options->limit_bytes < 0)
        return Z3D_ERROR(Z3D_ERR_USAGE, "limit of %lld bytes: expected 0 (none) or more",
                         (long long)options->limit_bytes);
    if (!options->output_validation) return Z3D_OK;
    if (!(options->validation_fraction > 0 && options->validation_fraction < 1))
        return Z3D_ERROR(Z3D_ERR_USAGE, "validation fraction %g: expected a number between 0 and 1",
                         options->validation_fraction);
    return Z3D_OK;
}

/* ---- first pass ---- */

/* Sets the bytes of the files that were read; may report progress. tell: also after a few bytes. */
static void advance(z3d_tokenize_work *w, int64_t bytes, bool tell) {
    enum { STEP = 1 << 22 };
    w->read_bytes = bytes;
    if (!w->options->progress || (!tell && w->read_bytes - w->told_bytes < STEP)) return;
    w->told_bytes = w->read_bytes;
    const z3d_tokenize_progress progress = {w->read_bytes, w->total_bytes, w->stream.tokens,
                                            z3d_now() - w->begun};
    w->options->progress(w->options->context, &progress);
}

static z3d_status begin_document(z3d_tokenize_work *w, uint64_t hash, const char *path) {
    Z3D_TRY(z3d_grow(w->result->documents, &w->document_capacity, sizeof *w->document,
                     "a list of documents", &w->document));
    w->document[w->result->documents++] =
        (z3d_tokenize_document){.hash = hash, .first_part = w->parts, .path = path};
    return Z3D_OK;
}

/* Adds `bytes` bytes of text to the last document; they may begin it, end it, or be in its middle.
 */
static z3d_status add_text(z3d_tokenize_work *w, const char *text, size_t bytes, bool begins,
                           bool ends) {
    z3d_tokenize_document *last = &w->document[w->result->documents - 1];
    w->ids.count = 0;
    Z3D_TRY(z3d_tokenizer_part(w->tokenizer, text, bytes, begins, ends, &w->ids));
    Z3D_TRY(z3d_token_writer_append(&w->stream, w->ids.id, w->ids.count));
    last->tokens += (int64_t)w->ids.count;
    w->result->bytes += (int64_t)bytes;
    if (!last->path) return Z3D_OK;
    Z3D_TRY(z3d_grow(w->parts, &w->part_capacity, sizeof *w->part, "a list of parts of texts",
                     &w->part));
    last->parts++;
    w->part[w->parts++] = (z3d_tokenize_part){(int64_t)w->ids.count, text[bytes - 1] == '\n'};
    return Z3D_OK;
}

/* ---- parts of a text ---- */

/* Whether the character before `at` (> 0) is white space. */
static bool follows_space(const char *text, size_t count, size_t at) {
    for (at--; at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80;) at--;
    return z3d_space_length(text + at, count - at) > 0;
}

/* The length of a part of at least `smallest` bytes; 0: no place to cut. A cut is between a line's
 * end without white space before it and a letter or digit. There the patterns of GPT-2, Llama 3,
 * Qwen, o200k and DeepSeek have a border of words (but a sign may join the line's end before it, as
 * in o200k's "!\n/"), and no token of Llama 2 or Gemma crosses it. So the parts have the tokens of
 * the whole text. */
static size_t find_cut(const char *text, size_t count, size_t smallest) {
    for (size_t at = smallest; at < count; at++)
        if (text[at - 1] == '\n' && !follows_space(text, count, at - 1) &&
            z3d_begins_word(text + at, count - at))
            return at;
    return 0;
}

/* A cut after any line. It is used if nothing else can be held out: then the tokens of one word
 * matter less. */
static size_t find_line(const char *text, size_t count, size_t smallest) {
    for (size_t at = smallest; at < count; at++)
        if (text[at - 1] == '\n' && text[at] != '\n' && text[at] != '\r') return at;
    return 0;
}

/* The count without an incomplete character at the end. */
static size_t whole_characters(const char *text, size_t count) {
    size_t rest;
    z3d_utf8_faults((const unsigned char *)text, count, &rest);
    return rest < count ? count - rest : count;
}

/* The cut of a part without such a line: after its last line, else after its last character. Words
 * at the cut may have other tokens than in the whole text. */
static size_t force_cut(const char *text, size_t count) {
    const char *line = memrchr(text, '\n', count);
    return line ? (size_t)(line - text) + 1 : whole_characters(text, count);
}

/* The bytes of a text that were read and not used yet: w->text[begin .. end). w->text has room for
 * two parts. */
typedef struct window {
    z3d_input *input;
    size_t begin, end;
} window;

/* Reads until the window has at least `wanted` bytes. */
static z3d_status fill_window(const z3d_tokenize_work *w, window *v, size_t wanted) {
    size_t count, used = v->end - v->begin;
    if (used >= wanted) return Z3D_OK;
    memmove(w->text, w->text + v->begin, used);
    v->begin = 0;
    Z3D_TRY(z3d_input_read(v->input, w->text + used, (size_t)2 * LARGEST_PART - used, &count));
    v->end = used + count;
    if (v->end >= wanted) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_IO, "%s: the file became shorter", v->input->path);
}

/* The length of the part that begins at `text`, at most `wanted`; more: the text continues after
 * the window. */
static size_t end_of_part(const z3d_tokenize_work *w, const char *text, size_t wanted, bool more) {
    size_t cut = find_cut(text, wanted, w->part_bytes);
    if (!cut && w->options->output_validation && !find_cut(text, wanted, 2))
        cut = find_line(text, wanted, w->part_bytes);
    if (!cut && more) cut = force_cut(text, wanted);
    return cut ? cut : wanted;
}

static z3d_status add_parts(z3d_tokenize_work *w, window *v, int64_t bytes) {
    int64_t before = w->read_bytes;
    for (int64_t at = 0; at < bytes;) {
        size_t wanted = bytes - at < LARGEST_PART ? (size_t)(bytes - at) : LARGEST_PART;
        Z3D_TRY(fill_window(w, v, wanted));
        const char *text = w->text + v->begin;
        if (w->result->limited && at + (int64_t)wanted == bytes) {
            wanted = whole_characters(text, wanted);
            bytes = at + (int64_t)wanted;
        }
        size_t cut = end_of_part(w, text, wanted, at + (int64_t)wanted < bytes);
        Z3D_TRY(add_text(w, text, cut, at == 0, at + (int64_t)cut == bytes));
        at += (int64_t)cut;
        v->begin += cut;
        advance(w, before + v->input->position, false);
    }
    return Z3D_OK;
}

static z3d_status add_file_text(z3d_tokenize_work *w, z3d_input *input, int64_t bytes,
                                uint64_t hash) {
    int64_t limit = w->options->limit_bytes, room = limit ? limit - w->result->bytes : bytes;
    window v = {.input = input};
    if (room < bytes) w->result->limited = true, bytes = room;
    if (bytes <= 0) return Z3D_OK;
    Z3D_TRY(z3d_input_rewind(input));
    Z3D_TRY(begin_document(w, hash, input->path));
    return add_parts(w, &v, bytes);
}

/* ---- JSON lines ---- */

/* Begins the document of a JSON line, unless one with the same bytes was seen before. */
static z3d_status begin_line(z3d_tokenize_work *w, const void *bytes, size_t count, bool *added) {
    z3d_content_hash hash = {{0, 0}};
    z3d_content_hash_add(&hash, bytes, count);
    Z3D_TRY(z3d_hash_set_add(&w->seen, hash, added));
    w->result->duplicate_documents += !*added;
    return *added ? begin_document(w, hash.word[0], NULL) : Z3D_OK;
}

static z3d_status add_line(z3d_tokenize_work *w, const char *text, size_t bytes) {
    bool added;
    Z3D_TRY(begin_line(w, text, bytes, &added));
    return added ? add_text(w, text, bytes, true, true) : Z3D_OK;
}

static z3d_status add_instruction(z3d_tokenize_work *w, z3d_json_lines *lines) {
    int64_t bytes;
    bool added;
    w->ids.count = 0;
    Z3D_TRY(z3d_instructions_encode(&w->in, lines, &w->ids, &bytes));
    lines->bad = false;
    Z3D_TRY(begin_line(w, w->ids.id, w->ids.count * sizeof *w->ids.id, &added));
    if (!added) return Z3D_OK;
    Z3D_TRY(z3d_token_writer_append(&w->stream, w->ids.id, w->ids.count));
    w->document[w->result->documents - 1].tokens = (int64_t)w->ids.count;
    w->result->bytes += bytes;
    w->result->special_messages += w->in.special_messages;
    return Z3D_OK;
}

/* *ended: the file has ended. */
static z3d_status add_object(z3d_tokenize_work *w, z3d_json_lines *lines, bool *ended) {
    const char *text;
    size_t length;
    if (!w->json_key) {
        Z3D_TRY(z3d_json_lines_next_object(lines));
        *ended = !lines->object;
        return *ended ? Z3D_OK : add_instruction(w, lines);
    }
    Z3D_TRY(z3d_json_lines_next(lines, &text, &length));
    *ended = !text;
    if (text && length == 0) w->result->empty_documents++;
    return length > 0 && text ? add_line(w, text, length) : Z3D_OK;
}

/* Counts a wrong line and names the first ones; without skip_bad its error ends the work. */
static z3d_status skip_line(z3d_tokenize_work *w, const z3d_json_lines *lines, z3d_status status) {
    z3d_tokenize_result *result = w->result;
    size_t used = strlen(result->bad_lines);
    if (status != Z3D_ERR_DATA || !lines->bad || !w->options->skip_bad) return status;
    char place[sizeof result->bad_lines];
    z3d_json_lines_place(lines, place, sizeof place);
    if (result->bad_documents++ < Z3D_BAD_LINES_NAMED)
        snprintf(result->bad_lines + used, sizeof result->bad_lines - used, "%s%s",
                 used ? ", " : "", place);
    return Z3D_OK;
}

/* Adds a document for each line, of any length. */
static z3d_status add_lines(z3d_tokenize_work *w, z3d_json_lines *lines) {
    int64_t limit = w->options->limit_bytes, before = w->read_bytes;
    for (bool ended = false; !ended;) {
        if (limit && w->result->bytes >= limit) {
            w->result->limited = true;
            return Z3D_OK;
        }
        z3d_status status = add_object(w, lines, &ended);
        if (status != Z3D_OK) Z3D_TRY(skip_line(w, lines, status));
        advance(w, before + lines->input.position, false);
    }
    return Z3D_OK;
}

static z3d_status add_json_lines(z3d_tokenize_work *w, z3d_input *input) {
    z3d_json_lines lines = {.path = input->path, .key = w->json_key, .option = "--json-key "};
    z3d_status status = z3d_json_lines_take(&lines, input);
    if (status == Z3D_OK) status = add_lines(w, &lines);
    w->result->repairs.surrogates += lines.repairs.surrogates;
    w->result->repairs.nuls += lines.repairs.nuls;
    z3d_json_lines_free(&lines);
    return status;
}

/* ---- a file ---- */

/* A file that is not UTF-8: an error if the user named it; else it is left out, with a warning for
 * the first one. */
static z3d_status leave_out(z3d_tokenize_work *w, const z3d_text_file *file, z3d_text_kind kind) {
    z3d_tokenize_result *result = w->result;
    z3d_status refusal = z3d_text_refuse(file->path, file->path, kind);
    if (file->named) return refusal;
    if (kind == Z3D_TEXT_NONE)
        result->skipped_binary++;
    else if (result->skipped_encoding++ == 0)
        z3d_log(Z3D_LOG_WARN, "left out, and others like it: %s", z3d_error_message());
    return Z3D_OK;
}

/* Whether the file is new text; counts files that are left out. */
static z3d_status examine(z3d_tokenize_work *w, const z3d_text_file *file, z3d_input *input,
                          z3d_content_hash *hash, int64_t *bytes, bool *used) {
    z3d_tokenize_result *result = w->result;
    z3d_text_kind kind;
    bool added = true;
    *used = false;
    z3d_status status = z3d_text_survey(input, hash, bytes, &kind);
    if (status == Z3D_ERR_IO && !file->named) {
        result->skipped_unreadable++;
        return Z3D_OK;
    }
    Z3D_TRY(status);
    if (kind != Z3D_TEXT_UTF8) return leave_out(w, file, kind);
    if (*bytes > 0) Z3D_TRY(z3d_hash_set_add(&w->seen, *hash, &added));
    result->skipped_empty += *bytes == 0;
    if (!added && result->skipped_duplicate++ == 0)
        snprintf(result->duplicate_file, sizeof result->duplicate_file, "%s", file->path);
    *used = *bytes > 0 && added;
    return Z3D_OK;
}

/* Decides by the name; in folders .json may be anything. */
static bool has_json_name(const z3d_text_file *file) {
    return z3d_is_json_lines(file->path) || (file->named && z3d_is_json(file->path));
}

/* The name decides; else the content, if the user named the file or its name ends with .json. */
static bool is_json(const z3d_tokenize_work *w, const z3d_text_file *file, z3d_json_look look) {
    if (has_json_name(file)) return true; /* find_format has found its format */
    if (w->format == Z3D_FORMAT_AUTO) return false;
    return file->named ? look != Z3D_LOOK_TEXT : z3d_is_json(file->path) && look == Z3D_LOOK_LIST;
}

/* Handles JSON that would be read as text: refuses a named file, and records in .json; other files
 * are told at the end. */
static z3d_status notice_raw_json(z3d_tokenize_work *w, const z3d_text_file *file,
                                  z3d_json_look look) {
    if (look == Z3D_LOOK_TEXT) return Z3D_OK;
    if (file->named || (look == Z3D_LOOK_LIST && z3d_is_json(file->path)))
        return z3d_refuse_raw_json(file->path);
    if (w->raw_json++ == 0) w->first_raw_json = file->path;
    return Z3D_OK;
}

static z3d_status judge_raw_json(const z3d_tokenize_work *w) {
    char others[48] = "";
    if (w->raw_json == 0) return Z3D_OK;
    if (w->raw_json == w->result->files) return z3d_refuse_raw_json(w->first_raw_json);
    if (w->raw_json > 1)
        snprintf(others, sizeof others, " (and %lld other file%s)", (long long)w->raw_json - 1,
                 w->raw_json == 2 ? "" : "s");
    z3d_log(Z3D_LOG_WARN,
            "%s%s: this is JSON, but was read as plain text, with braces and keys; name the file "
            "and add --json-key KEY to read the texts in its lines or its array",
            w->first_raw_json, others);
    return Z3D_OK;
}

static z3d_status add_input(z3d_tokenize_work *w, const z3d_text_file *file, z3d_input *input) {
    int64_t bytes = file->bytes, before = w->read_bytes;
    z3d_content_hash hash;
    z3d_status status = Z3D_OK;
    const z3d_json_look look = has_json_name(file) ? Z3D_LOOK_LIST : z3d_look_at_input(input);
    const bool json = is_json(w, file, look);
    bool used = bytes > 0;
    const bool other = w->format > Z3D_FORMAT_TEXT && !json && !file->named;
    w->result->skipped_no_json += other;
    if (other)
        used = false;
    else if (json) /* bad lines are errors, duplicate lines are found one by one */
        w->result->skipped_empty += !used;
    else
        status = examine(w, file, input, &hash, &bytes, &used);
    if (status == Z3D_OK && used && !json) status = notice_raw_json(w, file, look);
    if (status == Z3D_OK && used) {
        w->result->files++;
        w->json_files += json;
        status = json ? add_json_lines(w, input) : add_file_text(w, input, bytes, hash.word[0]);
    }
    advance(w, before + file->bytes, status == Z3D_OK);
    return status;
}

/* Opens the file once for its examination and its reading. Its format may have been found earlier
 * (find_format). */
static z3d_status add_file(z3d_tokenize_work *w, const z3d_text_file *file) {
    z3d_input input;
    z3d_status status = z3d_input_open(&input, file->path);
    const bool left_out = status == Z3D_ERR_IO && !file->named;
    w->result->skipped_unreadable += left_out;
    if (status == Z3D_OK) status = add_input(w, file, &input);
    z3d_input_close(&input);
    return left_out ? Z3D_OK : status;
}

static z3d_status refuse_no_json(const z3d_tokenize_work *w) {
    const bool key = w->options->json_key != NULL;
    return Z3D_ERROR(Z3D_ERR_USAGE,
                     "--%s %s: there is no JSON in %s%s: no .jsonl, .ndjson or .json file, and no "
                     "named file that begins like JSON",
                     key ? "json-key" : "format",
                     key ? w->options->json_key : z3d_tokenize_format_name(w->format),
                     w->options->inputs[0], w->options->count > 1 ? " and the others" : "");
}

/* The format of the first readable object; AUTO: it has no known keys, or there is no object. If
 * the object also has the keys of `wanted`, that is the format (AUTO: no preference). */
static z3d_status format_of(const char *path, z3d_tokenize_format wanted,
                            z3d_tokenize_format *out) {
    enum { TRIED = 3 };
    z3d_json_lines lines = {.path = path};
    z3d_status status = z3d_json_lines_open(&lines);
    if (status == Z3D_OK) status = z3d_json_lines_next_object(&lines);
    for (int i = 1; i < TRIED && status != Z3D_OK && lines.bad;
         i++) /* their errors are reported when they are read */
        status = z3d_json_lines_next_object(&lines);
    *out = wanted;
    if (status == Z3D_OK && lines.object &&
        (wanted == Z3D_FORMAT_AUTO || !z3d_instruction_has_keys(lines.object, wanted)))
        *out = z3d_instruction_format(lines.object);
    if (lines.bad) status = Z3D_OK;
    z3d_json_lines_free(&lines);
    return status;
}

/* Whether the file has objects, by its name or its content. */
static bool has_objects(const z3d_text_file *file) {
    if (has_json_name(file)) return true;
    if (!file->named && !z3d_is_json(file->path)) return false;
    return z3d_look_for_json(file->path) == Z3D_LOOK_LIST;
}

/* All files of one token file must have one format. first: the file that decided it. */
static z3d_status compare_format(const z3d_text_file *file, const z3d_text_file *first,
                                 z3d_tokenize_format wanted) {
    z3d_tokenize_format found;
    Z3D_TRY(format_of(file->path, wanted, &found));
    if (found == wanted) return Z3D_OK;
    if (found == Z3D_FORMAT_AUTO) return z3d_refuse_raw_json(file->path);
    return Z3D_ERROR(
        Z3D_ERR_USAGE,
        "%s: its objects are of the format %s, those of %s of %s: make a token file of "
        "each (data.train takes several), or give --format",
        file->path, z3d_tokenize_format_name(found), first->path, z3d_tokenize_format_name(wanted));
}

/* Finds the format of the objects before gigabytes are read: the user's, or that of the first
 * object. */
static z3d_status find_format(z3d_tokenize_work *w) {
    const z3d_tokenize_options *options = w->options;
    const z3d_text_file *first = NULL; /* the file that decided the format */
    bool possible = false;
    w->format = options->json_key ? Z3D_FORMAT_TEXT : options->format;
    for (int64_t i = 0; i < w->list.count; i++) {
        const z3d_text_file *file = &w->list.file[i];
        possible |= file->named || z3d_is_json_lines(file->path) || z3d_is_json(file->path);
        if ((w->format != Z3D_FORMAT_AUTO && !first) || !has_objects(file)) continue;
        if (first) {
            Z3D_TRY(compare_format(file, first, w->format));
            continue;
        }
        Z3D_TRY(format_of(file->path, Z3D_FORMAT_AUTO, &w->format));
        if (w->format == Z3D_FORMAT_AUTO) return z3d_refuse_raw_json(file->path);
        first = file;
    }
    if (w->format == Z3D_FORMAT_TEXT) w->json_key = options->json_key ? options->json_key : "text";
    w->result->format = w->format;
    return w->format != Z3D_FORMAT_AUTO && !possible ? refuse_no_json(w) : Z3D_OK;
}

/* Untrained tokens exist only in instruction data, so the options about them are refused for other
 * data. */
static z3d_status prepare_instructions(z3d_tokenize_work *w) {
    const z3d_tokenize_options *options = w->options;
    const bool texts = w->format <= Z3D_FORMAT_TEXT;
    if (texts && (options->chat_template ||
                  (options->loss_on != Z3D_LOSS_AUTO && options->loss_on != Z3D_LOSS_ALL)))
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--%s is for conversations and prompts in JSON, but %s has texts: all "
                         "tokens of texts are trained",
                         options->chat_template ? "chat-template" : "loss-on", options->inputs[0]);
    if (texts) return Z3D_OK;
    Z3D_TRY(z3d_instructions_create(options, w->format, w->tokenizer, &w->in));
    Z3D_TRY(z3d_token_writer_mask(&w->train));
    return options->output_validation ? z3d_token_writer_mask(&w->validation) : Z3D_OK;
}

static z3d_status refuse_no_text(const z3d_tokenize_work *w) {
    z3d_string why = {0};
    z3d_tokenize_left_out(w->result, ": ", &why);
    z3d_status status =
        Z3D_ERROR(Z3D_ERR_DATA, "no text found in %s%s%s", w->options->inputs[0],
                  w->options->count > 1 ? " and the others" : "", why.text ? why.text : "");
    z3d_string_free(&why);
    return status;
}

static z3d_status prepare(z3d_tokenize_work *w) {
    int64_t total = 0;
    for (int i = 0; i < w->options->count; i++)
        Z3D_TRY(z3d_text_list_add(&w->list, w->options->inputs[i]));
    w->result->skipped_unreadable = w->list.unreadable;
    for (int64_t i = 0; i < w->list.count; i++)
        if (!z3d_add_i64(total, w->list.file[i].bytes, &total)) total = INT64_MAX / 2;
    w->total_bytes = total;
    if (w->options->limit_bytes && total > w->options->limit_bytes) total = w->options->limit_bytes;
    int64_t part = w->options->output_validation ? total / WANTED_PARTS : LARGEST_PART;
    if (part < SMALLEST_PART) part = SMALLEST_PART;
    w->part_bytes = (size_t)(part > LARGEST_PART / 2 ? LARGEST_PART / 2 : part);
    Z3D_TRY(find_format(w));
    return prepare_instructions(w);
}

static z3d_status read_all(z3d_tokenize_work *w) {
    Z3D_TRY(z3d_new((size_t)2 * LARGEST_PART, 1, "a part of a text", &w->text));
    for (int64_t i = 0; i < w->list.count && !w->result->limited; i++)
        Z3D_TRY(add_file(w, &w->list.file[i]));
    Z3D_TRY(judge_raw_json(w));
    if (w->result->documents == 0) return refuse_no_text(w);
    return w->format != Z3D_FORMAT_AUTO && w->json_files == 0 && !w->result->limited
               ? refuse_no_json(w)
               : Z3D_OK;
}

/* ---- both ---- */

/* Opens the stream of all tokens. Tokens of instruction data have four bytes there, because of the
 * flag of untrained tokens. */
static z3d_status open_stream(z3d_tokenize_work *w) {
    z3d_string path = {0};
    const bool marked = w->format > Z3D_FORMAT_TEXT;
    z3d_string_append(&path, "%s.all", w->options->output_train);
    z3d_status status = path.failed
                            ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name")
                            : z3d_token_writer_open(&w->stream, path.text,
                                                    marked ? INT32_MAX : w->tokenizer->vocab_size);
    z3d_string_free(&path);
    return status;
}

static void fill_result(const z3d_tokenize_work *w) {
    z3d_tokenize_result *result = w->result;
    result->vocab_size = w->tokenizer->vocab_size;
    result->train_documents = result->documents - result->validation_documents;
    result->validation_documents += w->cut >= 0;
    result->train_tokens = w->train.tokens;
    result->validation_tokens = w->validation.tokens;
    result->untrained_tokens = w->train.untrained + w->validation.untrained;
    if (w->in.chat.kind)
        snprintf(result->chat_template, sizeof result->chat_template, "%s", w->in.chat.kind->name);
}

static z3d_status run(z3d_tokenize_work *w) {
    const z3d_tokenize_options *options = w->options;
    int32_t vocab_size = w->tokenizer->vocab_size;
    /* Opened first, so that an output that cannot be written is an error before gigabytes are read.
     */
    Z3D_TRY(z3d_token_writer_open(&w->train, options->output_train, vocab_size));
    if (options->output_validation)
        Z3D_TRY(z3d_token_writer_open(&w->validation, options->output_validation, vocab_size));
    w->train.digest = w->validation.digest = w->tokenizer->digest;
    Z3D_TRY(prepare(w));
    Z3D_TRY(open_stream(w));
    Z3D_TRY(read_all(w));
    if (fflush(w->stream.file) != 0)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot write the file: %s", w->stream.temporary,
                         strerror(errno));
    Z3D_TRY(z3d_tokenize_hold_out(w));
    Z3D_TRY(z3d_tokenize_deal_out(w));
    fill_result(w);
    return Z3D_OK;
}

z3d_status z3d_data_tokenize(const z3d_tokenize_options *options, z3d_tokenize_result *result) {
    z3d_tokenize_work w = {.options = options,
                           .result = result,
                           .tokenizer = options->tokenizer,
                           .begun = z3d_now(),
                           .cut = -1};
    z3d_tokenizer *own = NULL;
    z3d_status status;
    *result = (z3d_tokenize_result){0};
    Z3D_TRY_GOTO(status, check_options(options), end);
    Z3D_TRY_GOTO(status, z3d_check_outputs(options), end);
    if (!w.tokenizer) {
        Z3D_TRY_GOTO(status, z3d_tokenizer_create(Z3D_TOKENIZER_BYTES, NULL, NULL, &own), end);
        w.tokenizer = own;
    }
    status = run(&w);
end:
    z3d_token_writer_discard(&w.stream);
    z3d_token_writer_discard(&w.validation);
    z3d_token_writer_discard(&w.train);
    z3d_hash_set_free(&w.seen);
    z3d_text_list_free(&w.list);
    z3d_instructions_free(&w.in);
    z3d_tokenizer_destroy(own);
    free(w.document);
    free(w.part);
    free(w.text);
    z3d_token_list_free(&w.ids);
    return status;
}
