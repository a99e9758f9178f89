/* The tape: a growing list of events. Equal events are stored once. */
#include "src/device/sim/tape.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "src/device/interface/epilogue.h"

z3d_status z3d_tape_create(z3d_tape **out) {
    return z3d_new(1, sizeof **out, "a tape", out);
}

void z3d_tape_destroy(z3d_tape *tape) {
    if (!tape) return;
    free(tape->entry);
    free(tape->event);
    free(tape->slot);
    free(tape);
}

void z3d_tape_clear(z3d_tape *tape) {
    tape->count = tape->events = 0;
    if (tape->slot) memset(tape->slot, 0, 2 * (size_t)tape->event_capacity * sizeof *tape->slot);
}

z3d_event z3d_tape_at(const z3d_tape *tape, int64_t index) {
    z3d_event event = tape->event[tape->entry[index].event];
    event.id = tape->entry[index].id;
    return event;
}

/* The event's slot, or the free slot for it. An event has no padding, so its words can be hashed
 * and compared. Each word has its own odd factor, so the processor can do the multiplications in
 * parallel. */
static int *slot_of(const z3d_tape *tape, const z3d_event *event) {
    enum { WORDS = sizeof *event / sizeof(uint64_t) };
    static const uint64_t golden = 0x9e3779b97f4a7c15U;
    uint64_t word[WORDS], other[WORDS], hash = 0;
    _Static_assert(sizeof *event % sizeof(uint64_t) == 0, "an event is whole words");
    memcpy(word, event, sizeof word);
    for (uint64_t i = 0; i < WORDS; i++) hash += word[i] * (golden * (2 * i + 1));
    hash = (hash ^ hash >> 32) * golden;
    uint64_t last = 2 * (uint64_t)tape->event_capacity - 1; /* a power of two, less one */
    for (uint64_t i = (hash >> 32) & last;; i = (i + 1) & last) {
        if (tape->slot[i] == 0) return &tape->slot[i];
        memcpy(other, &tape->event[tape->slot[i] - 1], sizeof other);
        if (memcmp(other, word, sizeof word) == 0) return &tape->slot[i];
    }
}

static z3d_status grow_events(z3d_tape *tape) {
    int64_t capacity = tape->event_capacity;
    int *slot;
    Z3D_TRY(z3d_grow(tape->events, &capacity, sizeof *tape->event, "a tape", &tape->event));
    Z3D_TRY(z3d_new(2 * (size_t)capacity, sizeof *slot, "a tape", &slot));
    free(tape->slot);
    tape->slot = slot;
    tape->event_capacity = capacity;
    for (int i = 0; i < tape->events; i++) *slot_of(tape, &tape->event[i]) = i + 1;
    return Z3D_OK;
}

z3d_status z3d_tape_append(z3d_tape *tape, const z3d_event *event) {
    z3d_event kind = *event;
    kind.id = 0;
    Z3D_REQUIRE(event->id >= 0 && event->id <= INT_MAX, "the id of an event");
    if (tape->events == tape->event_capacity) Z3D_TRY(grow_events(tape));
    Z3D_TRY(z3d_grow(tape->count, &tape->capacity, sizeof *tape->entry, "a tape", &tape->entry));
    int *slot = slot_of(tape, &kind);
    if (*slot == 0) {
        tape->event[tape->events++] = kind;
        *slot = tape->events;
    }
    tape->entry[tape->count++] = (z3d_tape_entry){*slot - 1, (int)event->id};
    return Z3D_OK;
}

/* The types in Z3D_KERNEL_MAP. */
#define TYPE_dtype(kernel) (kernel).dtype
#define TYPE_x_dtype(kernel) (kernel).x_dtype
#define TYPE_destination_dtype(kernel) (kernel).destination_dtype
#define TYPE_fp32(kernel) Z3D_F32

static z3d_dtype dtype_of(const z3d_kernel *kernel) {
    switch (kernel->kind) {
#define X(name, type)                                                                              \
    case Z3D_KERNEL_##name:                                                                        \
        return TYPE_##type(kernel->as.name);
        Z3D_KERNEL_MAP(X)
#undef X
    case Z3D_KERNEL_COUNT:
        break;
    }
    return Z3D_F32;
}

/* Bytes that remain to be moved if the product before the kernel computes it, too: C is then in
 * registers. 0: the kernel always runs alone. */
static int64_t fused_bytes(const z3d_kernel *part) {
    z3d_cost cost;
    z3d_kernel_cost(part, &cost);
    if (part->kind == Z3D_KERNEL_gelu_backward) return cost.bytes_read / 2; /* of x, without dy */
    return part->kind == Z3D_KERNEL_gelu_forward ? cost.bytes_written : 0;
}

static z3d_status append_kernel(z3d_tape *tape, const z3d_kernel *kernel, z3d_space space,
                                double seconds, int64_t fused) {
    z3d_cost cost;
    z3d_kernel_cost(kernel, &cost);
    z3d_event event = {.kind = Z3D_EVENT_KERNEL,
                       .of = (int)kernel->kind,
                       .dtype = dtype_of(kernel),
                       .to = (int)space,
                       .bytes = cost.bytes_read + cost.bytes_written,
                       .fused = fused,
                       .flops = cost.flops,
                       .seconds = seconds};
    switch (kernel->kind) {
    case Z3D_KERNEL_gemm:
        event.m = kernel->as.gemm.m;
        event.n = kernel->as.gemm.n;
        event.k = kernel->as.gemm.k;
        event.form = 2 * kernel->as.gemm.transpose_a + kernel->as.gemm.transpose_b;
        break;
    case Z3D_KERNEL_attention_forward:
    case Z3D_KERNEL_attention_backward:
        event.m = kernel->as.attention.batch * kernel->as.attention.heads;
        event.n = kernel->as.attention.seq;
        event.k = kernel->as.attention.head_dim;
        event.form = kernel->as.attention.dropout.p > 0;
        break;
    case Z3D_KERNEL_dropout_forward:
        event.form = kernel->as.dropout_forward.dropout.p > 0;
        break;
    case Z3D_KERNEL_dropout_backward:
        event.form = kernel->as.dropout_backward.dropout.p > 0;
        break;
    default:
        break;
    }
    return z3d_tape_append(tape, &event);
}

z3d_status z3d_tape_kernel(z3d_tape *tape, const z3d_kernel *kernel, z3d_space space,
                           double seconds) {
    z3d_kernel part[Z3D_GEMM_PARTS];
    if (kernel->kind != Z3D_KERNEL_gemm) return append_kernel(tape, kernel, space, seconds, 0);
    int parts = z3d_gemm_parts(&kernel->as.gemm, part);
    for (int i = 0; i < parts; i++)
        Z3D_TRY(append_kernel(tape, &part[i], space, i > 0 ? 0 : seconds,
                              i > 0 ? fused_bytes(&part[i]) : 0));
    return Z3D_OK;
}
