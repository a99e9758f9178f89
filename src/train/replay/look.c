#include "src/train/replay/look.h"
#include "zero/program.h"

#include <math.h>
#include <string.h>

static bool begins_with(const char *text, const char *name) {
    const size_t length = strlen(name);
    return strncmp(text, name, length) == 0 && (text[length] == '\0' || text[length] == ' ');
}

/* Squeezes runs of spaces to one space and removes those at the ends, as in descriptions;
 * --print-program writes its columns with more spaces. False: longer than `size`. */
static bool squeeze(const char *name, char *out, size_t size) {
    size_t length = 0;
    for (; *name; name++) {
        if (*name == ' ' && (length == 0 || name[1] == ' ' || name[1] == '\0')) continue;
        if (length + 1 == size) return false;
        out[length++] = *name;
    }
    out[length] = '\0';
    return true;
}

int z3d_find_instruction(const z3d_program *program, const char *words) {
    int64_t number;
    char name[96];
    if (!squeeze(words, name, sizeof name)) return -1;
    if (strspn(name, "0123456789") == strlen(name))
        return z3d_parse_int(name, &number) == Z3D_OK && number < program->num_instructions
                   ? (int)number
                   : -1;
    for (int n = 0; n < program->num_instructions; n++) {
        char what[96];
        z3d_instruction_describe(program, n, what, sizeof what);
        if (begins_with(what, name)) return n;
        if (strncmp(what, "wait ", 5) == 0 && begins_with(what + 5, name)) return n;
    }
    return -1;
}

typedef struct statistics {
    double smallest, largest, sum, squares;
    int64_t numbers, others; /* others: infinities and NaNs */
} statistics;

static void add(statistics *s, double x) {
    if (!isfinite(x)) {
        s->others++;
        return;
    }
    if (s->numbers == 0 || x < s->smallest) s->smallest = x;
    if (s->numbers == 0 || x > s->largest) s->largest = x;
    s->sum += x;
    s->squares += x * x;
    s->numbers++;
}

static z3d_status measure(const z3d_engine *engine, int buffer, int64_t bytes, z3d_dtype dtype,
                          statistics *out) {
    enum { PIECE = 1 << 14 };
    char piece[PIECE];
    float value[PIECE];
    *out = (statistics){0};
    for (int64_t done = 0; done < bytes; done += PIECE) {
        const int64_t part = bytes - done < PIECE ? bytes - done : PIECE;
        Z3D_TRY(z3d_engine_read_buffer(engine, buffer, done, piece, part));
        const int64_t count = z3d_values_in(dtype, part);
        z3d_codec_of(dtype)->decode(value, piece, count);
        for (int64_t k = 0; k < count; k++) add(out, (double)value[k]);
    }
    return Z3D_OK;
}

/* The type of a slot; false: it has pieces of several types. */
static bool type_of(const z3d_program *program, int slot, z3d_dtype *out) {
    const z3d_slot role = z3d_slot_role(slot);
    *out = program->config.dtype;
    if (role == Z3D_SLOT_OPTIMIZER) *out = Z3D_F32;
    if (role == Z3D_SLOT_GRADIENTS || role == Z3D_SLOT_SHARD) *out = program->config.grad_dtype;
    return slot != Z3D_SLOT_SAVED && slot != Z3D_SLOT_WORKSPACE && slot != Z3D_SLOT_DEFERRED &&
           slot != Z3D_SLOT_CACHE;
}

static const char *access_name(unsigned access) {
    return access & Z3D_ACCESS_CLOBBER                         ? "used"
           : (access & Z3D_ACCESS_UPDATE) == Z3D_ACCESS_UPDATE ? "updated"
           : access & Z3D_ACCESS_WRITE                         ? "written"
                                                               : "read";
}

z3d_status z3d_look_at_instruction(const z3d_engine *engine, int index, z3d_string *out) {
    const z3d_program *p = z3d_engine_program(engine, Z3D_MODE_TRAIN);
    const z3d_instruction *i = &p->instruction[index];
    char bytes[32];
    z3d_string_append(out, "  %-28s %-8s %-11s %-5s %12s %12s %12s %12s %s\n", "buffer", "", "size",
                      "type", "min", "max", "mean", "rms", "inf or NaN");
    for (int slot = 0; slot < i->num_slots; slot++) {
        const int buffer = i->buffer[slot];
        statistics s;
        z3d_dtype dtype;
        if (buffer < 0) continue;
        const z3d_buffer *b = &p->buffer[buffer];
        z3d_string_append(out, "  %-28s %-8s %-11s", z3d_buffer_name(b).text,
                          access_name(z3d_instruction_access(i, slot)),
                          z3d_format_bytes(b->bytes, bytes, sizeof bytes));
        const bool under_way =
            i->phase == Z3D_PHASE_START && z3d_instruction_access(i, slot) & Z3D_ACCESS_WRITE;
        const bool one_type = type_of(p, slot, &dtype);
        if (under_way || !one_type) {
            z3d_string_append(out, under_way ? " under way\n" : " several\n");
            continue;
        }
        Z3D_TRY(measure(engine, buffer, b->bytes, dtype, &s));
        const double count = s.numbers > 0 ? (double)s.numbers : NAN;
        z3d_string_append(out, " %-5s %12.5g %12.5g %12.5g %12.5g %lld\n", z3d_dtype_name(dtype),
                          s.smallest, s.largest, s.sum / count, sqrt(s.squares / count),
                          (long long)s.others);
    }
    return Z3D_OK;
}
