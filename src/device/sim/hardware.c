/* Reading and writing hardware descriptions. */
#include "src/device/sim/hardware.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { FILE_LIMIT = 1 << 20, MAX_DEPTH = 3, PATH = 96 };

static const char MEASURED[] = "measured_us.", ESTIMATE[] = "!estimate";

static const struct number {
    const char *path;
    size_t offset;
    double low, high, standard;
    const char *meaning;
} numbers[] = {
#define X(field, path, low, high, standard, meaning)                                               \
    {path, offsetof(z3d_hardware, field), low, high, standard, meaning},
    Z3D_HARDWARE_MAP(X)
#undef X
};
enum { NUMBERS = Z3D_HARDWARE_NUMBERS };

static const struct text {
    const char *path;
    size_t offset, size;
} texts[] = {
    {"name", offsetof(z3d_hardware, name), sizeof((z3d_hardware *)0)->name},
    {"device.name", offsetof(z3d_hardware, device), sizeof((z3d_hardware *)0)->device},
    {"device.kind", offsetof(z3d_hardware, kind), sizeof((z3d_hardware *)0)->kind},
    {"software.name", offsetof(z3d_hardware, software), sizeof((z3d_hardware *)0)->software},
    {"compared.device", offsetof(z3d_hardware, compared), sizeof((z3d_hardware *)0)->compared}};
enum { TEXTS = sizeof texts / sizeof *texts, MACHINE_TEXTS = 3 };

/* Kinds of files. STANDARD: a software description that gives only the numbers that the machine's
 * file leaves open. If the machine's file says that attention is not fused, software does not
 * change that. */
typedef enum file_kind { MACHINE, SOFTWARE, STANDARD } file_kind;

typedef struct reader {
    const char *name;
    file_kind kind;
    yaml_parser_t parser;
    z3d_hardware *hardware;
    bool seen[NUMBERS + TEXTS];
} reader;

static double *number_at(const z3d_hardware *hardware, int index) {
    return (double *)((uintptr_t)hardware + numbers[index].offset);
}

/* NUMBERS: no number has this path. */
static int number_called(const char *path) {
    int index = 0;
    while (index < NUMBERS && strcmp(numbers[index].path, path) != 0) index++;
    return index;
}

static z3d_status refuse(const reader *r, yaml_mark_t mark, const char *path, const char *what) {
    return Z3D_ERROR(Z3D_ERR_CONFIG, "%.200s:%zu:%zu: %.96s%s%.200s", r->name, mark.line + 1,
                     mark.column + 1, path, path[0] ? ": " : "", what);
}

static z3d_status set_number(reader *r, yaml_mark_t mark, int index, const char *value,
                             bool estimate) {
    const struct number *n = &numbers[index];
    char what[160];
    double number;
    if (z3d_parse_float(value, &number) != Z3D_OK || number < n->low || number > n->high) {
        snprintf(what, sizeof what, "'%.40s' is not a number from %g to %g", value, n->low,
                 n->high);
        return refuse(r, mark, n->path, what);
    }
    double *at = number_at(r->hardware, index);
    const bool counts = at == &r->hardware->devices || at == &r->hardware->threads;
    if (counts && number != floor(number)) {
        snprintf(what, sizeof what, "'%.40s' is not a whole number", value);
        return refuse(r, mark, n->path, what);
    }
    if (r->kind == STANDARD && r->hardware->given[index]) return Z3D_OK;
    const bool fuses = at == &r->hardware->attention_fused;
    if (r->kind == SOFTWARE && fuses && r->hardware->given[index] && number > *at) return Z3D_OK;
    *at = number;
    r->hardware->estimates[index] = estimate;
    if (r->kind == MACHINE) r->hardware->given[index] = true;
    return Z3D_OK;
}

static z3d_status set_text(reader *r, yaml_mark_t mark, int index, const char *value) {
    char *to = (char *)r->hardware + texts[index].offset;
    if (value[0] == 0 || strlen(value) >= texts[index].size)
        return refuse(r, mark, texts[index].path, "expected a text of 1 to 63 bytes");
    if (index == 2 && strcmp(value, "gpu") != 0 && strcmp(value, "cpu") != 0)
        return refuse(r, mark, texts[index].path, "expected gpu or cpu");
    for (const char *c = value; *c; c++)
        if ((unsigned char)*c < 0x20)
            return refuse(r, mark, texts[index].path, "control character");
    snprintf(to, texts[index].size, "%s", value);
    return Z3D_OK;
}

static z3d_status set_measured(reader *r, yaml_mark_t mark, const char *path, const char *value) {
    z3d_sample sample;
    double microseconds;
    z3d_status status = z3d_sample_parse(path + strlen(MEASURED), &sample);
    if (status == Z3D_OK && (z3d_parse_float(value, &microseconds) != Z3D_OK || microseconds <= 0 ||
                             microseconds > 1e12))
        return refuse(r, mark, path, "expected microseconds above 0 and up to 1e12");
    if (status == Z3D_OK) {
        sample.seconds = microseconds * 1e-6;
        status = z3d_measured_add(&r->hardware->measured, &sample);
    }
    if (status == Z3D_OK) return Z3D_OK;
    return refuse(r, mark, "", z3d_error_message());
}

/* Whether the number at `path` depends on the software, not only on the machine. */
static bool is_softwares(const char *path) {
    static const char *const parts[] = {"software.", "compared.",   "_efficiency", "_latency_us",
                                        "launch_us", "overhead_gb", ".gemm_",      ".attention_"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(path, parts[i])) return true;
    return false;
}

/* tag: the YAML tag before the value, or NULL. */
static z3d_status set(reader *r, yaml_mark_t mark, const char *path, const char *value,
                      const char *tag) {
    if (tag && strcmp(tag, ESTIMATE) != 0)
        return refuse(r, mark, path, "the only tag is !estimate, before a number");
    const bool measured = strncmp(path, MEASURED, strlen(MEASURED)) == 0;
    if (r->kind != MACHINE && (measured || !is_softwares(path)))
        return refuse(r, mark, path,
                      "is no key of a software description; facts about the machine belong in "
                      "the machine's description");
    if (measured) return set_measured(r, mark, path, value);
    for (int i = 0; i < NUMBERS + TEXTS; i++) {
        const char *known = i < NUMBERS ? numbers[i].path : texts[i - NUMBERS].path;
        if (strcmp(known, path) != 0) continue;
        if (r->seen[i]) return refuse(r, mark, path, "is written twice");
        r->seen[i] = true;
        return i < NUMBERS ? set_number(r, mark, i, value, tag != NULL)
                           : set_text(r, mark, i - NUMBERS, value);
    }
    return refuse(r, mark, path, "unknown key in a hardware description");
}

static z3d_status next(reader *r, yaml_event_t *event) {
    if (yaml_parser_parse(&r->parser, event)) return Z3D_OK;
    memset(event, 0, sizeof *event);
    return refuse(r, r->parser.problem_mark, "",
                  r->parser.problem ? r->parser.problem : "no valid YAML");
}

/* The pairs of one mapping; `prefix` ends with a dot, or is empty. */
static z3d_status read_mapping(reader *r, const char *prefix, int depth) {
    for (;;) {
        yaml_event_t key, value;
        char path[PATH];
        Z3D_TRY(next(r, &key));
        yaml_mark_t mark = key.start_mark;
        bool end = key.type == YAML_MAPPING_END_EVENT, scalar = key.type == YAML_SCALAR_EVENT;
        int length = !scalar ? 0
                             : snprintf(path, sizeof path, "%s%s", prefix,
                                        (const char *)key.data.scalar.value);
        yaml_event_delete(&key);
        if (end) return Z3D_OK;
        if (!scalar || length <= 0 || length >= PATH - 2)
            return refuse(r, mark, "", "expected a short key");
        Z3D_TRY(next(r, &value));
        z3d_status status;
        if (value.type == YAML_SCALAR_EVENT) {
            status = set(r, value.start_mark, path, (const char *)value.data.scalar.value,
                         (const char *)value.data.scalar.tag);
        } else if (value.type == YAML_MAPPING_START_EVENT && depth < MAX_DEPTH) {
            path[length] = '.';
            path[length + 1] = 0;
            status = read_mapping(r, path, depth + 1);
        } else {
            status = refuse(r, value.start_mark, path, "expected one number or text");
        }
        yaml_event_delete(&value);
        Z3D_TRY(status);
    }
}

static z3d_status read_document(reader *r) {
    static const yaml_event_type_t opening[] = {YAML_STREAM_START_EVENT, YAML_DOCUMENT_START_EVENT,
                                                YAML_MAPPING_START_EVENT};
    for (int i = 0; i < 3; i++) {
        yaml_event_t event;
        Z3D_TRY(next(r, &event));
        yaml_event_type_t type = event.type;
        yaml_mark_t mark = event.start_mark;
        yaml_event_delete(&event);
        if (type != opening[i])
            return refuse(r, mark, "", "not a hardware description: expected 'key: value' lines");
    }
    return read_mapping(r, "", 1);
}

/* Checks that the low end of each range is not above its high end. */
static z3d_status check_compared(const z3d_hardware *h, const char *name) {
    const struct pair {
        const char *of;
        double low, high;
    } pairs[] = {{"node_low above compared.node_high", h->node_low, h->node_high},
                 {"nodes_low above compared.nodes_high", h->nodes_low, h->nodes_high}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].low > pairs[i].high)
            return Z3D_ERROR(Z3D_ERR_CONFIG, "%.200s: compared.%s: %g is more than %g", name,
                             pairs[i].of, pairs[i].low, pairs[i].high);
    return Z3D_OK;
}

static z3d_status read_over(const char *text, size_t length, const char *name, file_kind kind,
                            z3d_hardware *hardware) {
    reader r = {.name = name, .kind = kind, .hardware = hardware};
    if (memchr(text, 0, length)) return Z3D_ERROR(Z3D_ERR_CONFIG, "%.200s: not a text file", name);
    if (!yaml_parser_initialize(&r.parser))
        return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory to read %.200s", name);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, length);
    z3d_status status = read_document(&r);
    yaml_parser_delete(&r.parser);
    Z3D_TRY(status);
    for (int i = 0; i < NUMBERS + MACHINE_TEXTS && kind == MACHINE; i++) {
        if (r.seen[i] || (i < NUMBERS && !isnan(numbers[i].standard))) continue;
        return Z3D_ERROR(Z3D_ERR_CONFIG, "%.200s: %s is missing%s%s", name,
                         i < NUMBERS ? numbers[i].path : texts[i - NUMBERS].path,
                         i < NUMBERS ? ": " : "", i < NUMBERS ? numbers[i].meaning : "");
    }
    return check_compared(hardware, name);
}

z3d_status z3d_hardware_read_text(const char *text, size_t length, const char *name,
                                  z3d_hardware *out) {
    *out = (z3d_hardware){.name = ""};
    snprintf(out->file, sizeof out->file, "%s", name);
    for (int i = 0; i < NUMBERS; i++)
        *number_at(out, i) = isnan(numbers[i].standard) ? 0 : numbers[i].standard;
    return read_over(text, length, name, MACHINE, out);
}

z3d_status z3d_hardware_adjust_text(const char *text, size_t length, const char *name,
                                    z3d_hardware *hardware) {
    return read_over(text, length, name, SOFTWARE, hardware);
}

static z3d_status read_file(const char *path, z3d_hardware *out,
                            z3d_status (*read)(const char *text, size_t length, const char *name,
                                               z3d_hardware *out)) {
    char *text;
    size_t length;
    Z3D_TRY(z3d_read_file(path, FILE_LIMIT, &text, &length));
    z3d_status status = read(text, length, path, out);
    free(text);
    return status;
}

z3d_status z3d_hardware_read(const char *path, z3d_hardware *out) {
    return z3d_is_description(path) ? read_file(path, out, z3d_hardware_read_text)
                                    : z3d_machine_read(path, out);
}

/* ---- software ---- */

/* configs/software, which the build writes into the program. */
static const struct shipped {
    const char *name, *text;
} shipped[] = {
#include "src/device/sim/software_texts.h"
};
enum { SHIPPED = sizeof shipped / sizeof *shipped };

const char *z3d_software_name(int index) {
    return index < SHIPPED ? shipped[index].name : NULL;
}

static z3d_status adjust_by_name(const char *name, file_kind kind, z3d_hardware *hardware) {
    z3d_string known = {0};
    for (int i = 0; i < SHIPPED; i++)
        if (strcmp(shipped[i].name, name) == 0)
            return read_over(shipped[i].text, strlen(shipped[i].text), name, kind, hardware);
    for (int i = 0; i < SHIPPED; i++)
        z3d_string_append(&known, "%s%s", i ? ", " : "", shipped[i].name);
    z3d_status status =
        Z3D_ERROR(Z3D_ERR_USAGE,
                  "there is no software '%.80s'; known are %s; a file has a slash in its name, or "
                  "ends in .yaml",
                  name, known.text ? known.text : "");
    z3d_string_free(&known);
    return status;
}

z3d_status z3d_hardware_adjust(const char *software, z3d_hardware *hardware) {
    if (strcmp(hardware->kind, "cpu") == 0)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "%s is a cpu machine, which only zero3d's own measurements describe; "
                         "software descriptions are for GPUs",
                         hardware->name);
    if (!z3d_is_description(software)) {
        const bool standard = strcmp(software, Z3D_SOFTWARE_STANDARD) == 0;
        return adjust_by_name(software, standard ? STANDARD : SOFTWARE, hardware);
    }
    return read_file(software, hardware, z3d_hardware_adjust_text);
}

z3d_status z3d_hardware_read_with(const char *path, const char *software, z3d_hardware *out) {
    Z3D_TRY(z3d_hardware_read(path, out));
    if (software) return z3d_hardware_adjust(software, out);
    if (strcmp(out->kind, "gpu") != 0) return Z3D_OK;
    out->standard = true;
    return adjust_by_name(Z3D_SOFTWARE_STANDARD, STANDARD, out);
}

double *z3d_hardware_number(z3d_hardware *hardware, const char *path) {
    const int index = number_called(path);
    return index < NUMBERS ? number_at(hardware, index) : NULL;
}

void z3d_hardware_set(z3d_hardware *hardware, const char *path, double value) {
    const int index = number_called(path);
    if (index == NUMBERS) return;
    *number_at(hardware, index) = value;
    hardware->estimates[index] = false;
}

bool z3d_hardware_describe(const char *path, double *low, double *high, const char **meaning) {
    const int index = number_called(path);
    if (index == NUMBERS) return false;
    *low = numbers[index].low;
    *high = numbers[index].high;
    *meaning = numbers[index].meaning;
    return true;
}

/* Numbers that decide whether a run fits into memory, not how long it takes. */
static bool decides_fit(int number) {
    return z3d_has_word("device.memory_gib device.overhead_gb node.host_memory_gib node.nvme_gib",
                        numbers[number].path);
}

/* Numbers that decide neither of the two. */
static bool is_cost(int number) {
    const char *path = numbers[number].path;
    return strstr(path, "watts") || strstr(path, "price") || strstr(path, "mtbf") ||
           strstr(path, "restart");
}

bool z3d_hardware_estimates(const z3d_hardware *hardware, bool time, z3d_string *out) {
    bool some = false;
    for (int i = 0; i < NUMBERS; i++) {
        if (!hardware->estimates[i] || decides_fit(i) == time || is_cost(i)) continue;
        if (out) z3d_string_append(out, "%s%s", some ? ", " : "", numbers[i].path);
        some = true;
    }
    return some;
}

static void write_measured(const z3d_measured *measured, z3d_string *out) {
    char number[32], name[96];
    if (measured->count > 0)
        z3d_string_append(out, "measured_us:   # kernel, form, type and sizes: microseconds\n");
    for (int i = 0; i < measured->count; i++) {
        const z3d_sample *sample = &measured->sample[i];
        double microseconds = fmax(1, round(sample->seconds * 1e8)) / 100;
        z3d_string_append(out, "  %s: %s\n", z3d_sample_name(sample, name, sizeof name),
                          z3d_format_number(microseconds, number, sizeof number));
    }
}

/* Writes the "a.b: value" pairs of one section as nested mappings; the table has the paths in the
 * order of the file. software: writes only the numbers that depend on the software. */
static void write_section(const z3d_hardware *hardware, const char *section, bool software,
                          z3d_string *out) {
    const size_t length = strlen(section);
    char number[32];
    for (int i = 0; i < NUMBERS; i++) {
        const char *key = numbers[i].path + length, *deeper = strchr(key, '.');
        if (strncmp(numbers[i].path, section, length) != 0) continue;
        if (software && !is_softwares(numbers[i].path)) continue;
        if (deeper && strcmp(deeper, ".fp16") == 0)
            z3d_string_append(out, "  %.*s:\n", (int)(deeper - key), key);
        z3d_string_append(out, "%s%s: %s%s   # %s\n", deeper ? "    " : "  ",
                          deeper ? deeper + 1 : key, hardware->estimates[i] ? "!estimate " : "",
                          z3d_format_number(*number_at(hardware, i), number, sizeof number),
                          numbers[i].meaning);
    }
}

static void write_text(const char *key, const char *value, z3d_string *out) {
    if (!value[0]) return;
    z3d_string_append(out, "%s: ", key);
    z3d_string_append_json(out, value);
    z3d_string_append(out, "\n");
}

void z3d_hardware_write(const z3d_hardware *hardware, const char *comment, z3d_string *out) {
    z3d_string_append(out, "%s", comment);
    write_text("name", hardware->name, out);
    z3d_string_append(out, "device:\n");
    write_text("  name", hardware->device, out);
    z3d_string_append(out, "  kind: %s\n", hardware->kind);
    write_section(hardware, "device.", false, out);
    z3d_string_append(out, "node:\n");
    write_section(hardware, "node.", false, out);
    z3d_string_append(out, "software:\n");
    write_section(hardware, "software.", false, out);
    write_measured(&hardware->measured, out);
}

void z3d_software_write(const z3d_hardware *hardware, const char *comment, z3d_string *out) {
    z3d_string_append(out, "%ssoftware:\n", comment);
    write_text("  name", hardware->software, out);
    write_section(hardware, "software.", true, out);
    z3d_string_append(out, "device:\n");
    write_section(hardware, "device.", true, out);
    z3d_string_append(out, "node:\n");
    write_section(hardware, "node.", true, out);
    z3d_string_append(out, "compared:\n");
    write_text("  device", hardware->compared, out);
    write_section(hardware, "compared.", true, out);
}
