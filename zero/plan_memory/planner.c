/* The memory planner: from lifetimes of a program's buffers to offsets in one arena for each memory
 * space, and to the peak of every category. Persistent buffers come first, in list order, at the
 * same offsets in all programs; the others are packed after them (packer.c). */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/disk.h"
#include "zero/plan_memory/packer.h"
#include "zero/program.h"

/* Sums of sizes must not overflow: no arena of ours comes near this. */
static const int64_t bytes_limit = INT64_C(1) << 60;

static z3d_status check_buffers(const z3d_program *program) {
    int64_t total = 0;
    for (int i = 0; i < program->num_buffers; i++) {
        const z3d_buffer *b = &program->buffer[i];
        if (b->bytes < 0 || b->bytes > bytes_limit ||
            (total += z3d_round_up(b->bytes, Z3D_PACK_ALIGN)) > bytes_limit) {
            return Z3D_ERROR(
                Z3D_ERR_PROGRAM,
                "buffer %d (%s) has %lld bytes; each size, and their sum, must be 0 to 2^60", i,
                z3d_buffer_name(b).text, (long long)b->bytes);
        }
        if (b->persistent) continue;
        if (b->first < 0 || b->first > b->last || b->last >= program->num_instructions) {
            return Z3D_ERROR(
                Z3D_ERR_PROGRAM,
                "buffer %d (%s) lives from instruction %d to %d, but the instructions are 0 to %d",
                i, z3d_buffer_name(b).text, b->first, b->last, program->num_instructions - 1);
        }
    }
    return Z3D_OK;
}

/* caches: also the caches of generation, which come last. */
static const z3d_buffer *next_persistent(const z3d_program *program, bool caches, int *index) {
    while (*index < program->num_buffers) {
        const z3d_buffer *b = &program->buffer[(*index)++];
        if (b->persistent && (caches || b->category != Z3D_CATEGORY_CACHE)) return b;
    }
    return NULL;
}

/* Persistent buffers have one address in all programs, so the lists must be equal. */
static z3d_status check_persistent(const z3d_program *a, const z3d_program *b) {
    const bool caches = z3d_mode_generates(a->mode) && z3d_mode_generates(b->mode);
    int i = 0, j = 0;
    for (;;) {
        const z3d_buffer *x = next_persistent(a, caches, &i), *y = next_persistent(b, caches, &j);
        if (x == NULL && y == NULL) return Z3D_OK;
        if (x == NULL || y == NULL || x->bytes != y->bytes || x->space != y->space ||
            x->micro != y->micro || strcmp(x->what, y->what) != 0 ||
            strcmp(x->owner, y->owner) != 0) {
            return Z3D_ERROR(Z3D_ERR_PROGRAM,
                             "persistent buffers of two programs differ: %s (%lld bytes) in one, "
                             "%s (%lld bytes) in the other",
                             x ? z3d_buffer_name(x).text : "none", x ? (long long)x->bytes : 0LL,
                             y ? z3d_buffer_name(y).text : "none", y ? (long long)y->bytes : 0LL);
        }
    }
}

static bool uses_disk(z3d_program *const *programs, int count) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < programs[i]->num_buffers; k++)
            if (programs[i]->buffer[k].space == Z3D_SPACE_DISK && programs[i]->buffer[k].bytes > 0)
                return true;
    return false;
}

/* align: sizes are first rounded up to it. */
static int64_t place_persistent(z3d_program *program, z3d_space space, int align) {
    int64_t top = 0;
    for (int i = 0; i < program->num_buffers; i++) {
        z3d_buffer *b = &program->buffer[i];
        if (!b->persistent || b->space != space) continue;
        b->offset = top;
        top += z3d_round_up(z3d_round_up(b->bytes, align), Z3D_PACK_ALIGN);
    }
    return top;
}

/* Packs the buffers that do not persist into `space`, from `base` on. */
static z3d_status place_lifetimes(z3d_program *program, z3d_space space, int align, int64_t base) {
    z3d_span *spans = NULL;
    int count = 0, next = 0;
    Z3D_TRY(z3d_new((size_t)program->num_buffers + 1, sizeof *spans, "memory plan", &spans));
    for (int i = 0; i < program->num_buffers; i++) {
        const z3d_buffer *b = &program->buffer[i];
        if (b->persistent || b->space != space) continue;
        spans[count++] =
            (z3d_span){.first = b->first, .last = b->last, .bytes = z3d_round_up(b->bytes, align)};
    }
    int64_t height, bound;
    z3d_status status = (program->config.rough_memory ? z3d_pack_apart : z3d_pack)(
        spans, count, program->num_instructions, &height, &bound);
    for (int i = 0; status == Z3D_OK && i < program->num_buffers; i++) {
        z3d_buffer *b = &program->buffer[i];
        if (!b->persistent && b->space == space) b->offset = base + spans[next++].offset;
    }
    if (status == Z3D_OK) {
        program->arena[space] = base + height;
        program->bound[space] = base + bound;
    }
    free(spans);
    return status;
}

z3d_status z3d_program_plan(z3d_program **programs, int count) {
    int64_t arena[Z3D_SPACE_COUNT] = {0}, bound[Z3D_SPACE_COUNT] = {0};
    const bool disk = uses_disk(programs, count);
    for (int i = 0; i < count; i++) {
        Z3D_TRY(check_buffers(programs[i]));
        Z3D_TRY(check_persistent(programs[i > 0 ? i - 1 : 0], programs[i]));
        for (int space = 0; space < Z3D_SPACE_COUNT; space++) {
            /* With a disk, buffers on it and in host memory are whole blocks. */
            const int align = disk && space != Z3D_SPACE_DEVICE ? Z3D_DISK_ALIGN : 1;
            int64_t base = place_persistent(programs[i], (z3d_space)space, align);
            Z3D_TRY(place_lifetimes(programs[i], (z3d_space)space, align, base));
            if (programs[i]->arena[space] > arena[space]) arena[space] = programs[i]->arena[space];
            if (programs[i]->bound[space] > bound[space]) bound[space] = programs[i]->bound[space];
        }
    }
    for (int i = 0; i < count; i++) {
        memcpy(programs[i]->arena, arena, sizeof arena);
        memcpy(programs[i]->bound, bound, sizeof bound);
    }
    return Z3D_OK;
}

/* ---- peaks by category ---- */

typedef struct change {
    int time; /* 2 * instruction at birth, + 1 at death: births come before deaths */
    z3d_category category;
    int64_t bytes;
} change;

static int by_time(const void *a, const void *b) {
    int x = ((const change *)a)->time, y = ((const change *)b)->time;
    return (x > y) - (x < y);
}

void z3d_program_ledger(const z3d_program *program, z3d_space space, z3d_ledger *out) {
    change *changes = NULL;
    int count = 0;
    memset(out, 0, sizeof *out);
    if (z3d_new(2 * (size_t)program->num_buffers + 1, sizeof *changes, "ledger", &changes) !=
        Z3D_OK)
        return;
    for (int i = 0; i < program->num_buffers; i++) {
        const z3d_buffer *b = &program->buffer[i];
        if (b->space != space) continue;
        if (b->persistent) {
            z3d_ledger_add(out, b->category, b->bytes);
            continue;
        }
        changes[count++] = (change){2 * b->first, b->category, b->bytes};
        changes[count++] = (change){2 * b->last + 1, b->category, -b->bytes};
    }
    qsort(changes, (size_t)count, sizeof *changes, by_time);
    for (int i = 0; i < count; i++) z3d_ledger_add(out, changes[i].category, changes[i].bytes);
    free(changes);
}
