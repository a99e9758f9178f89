/* The tape: a growing list of events. */
#include "src/device/sim/tape.h"

#include <stdlib.h>

z3d_status z3d_tape_create(z3d_tape **out) {
    return z3d_new(1, sizeof **out, "a tape", out);
}

void z3d_tape_destroy(z3d_tape *tape) {
    if (!tape) return;
    free(tape->event);
    free(tape);
}

void z3d_tape_clear(z3d_tape *tape) {
    tape->count = 0;
}

z3d_status z3d_tape_append(z3d_tape *tape, const z3d_event *event) {
    if (tape->count == tape->capacity) {
        int64_t capacity = tape->capacity ? 2 * tape->capacity : 1024;
        z3d_event *bigger = realloc(tape->event, (size_t)capacity * sizeof *bigger);
        if (!bigger) return Z3D_ERROR(Z3D_ERR_MEMORY, "a tape of %lld events", (long long)capacity);
        tape->event = bigger;
        tape->capacity = capacity;
    }
    tape->event[tape->count++] = *event;
    return Z3D_OK;
}

static void describe_gemm(const z3d_gemm *kernel, z3d_event *event) {
    event->m = kernel->m;
    event->n = kernel->n;
    event->k = kernel->k;
    event->dtype = kernel->dtype;
}

static void describe_attention(int64_t matrices, int64_t seq, int64_t head_dim, z3d_dtype dtype,
                               z3d_event *event) {
    event->m = matrices;
    event->n = seq;
    event->k = head_dim;
    event->dtype = dtype;
}

z3d_status z3d_tape_kernel(z3d_tape *tape, const z3d_kernel *kernel, double seconds) {
    z3d_cost cost;
    z3d_kernel_cost(kernel, &cost);
    z3d_event event = {.kind = Z3D_EVENT_KERNEL,
                       .of = (int)kernel->kind,
                       .dtype = Z3D_F32,
                       .bytes = cost.bytes_read + cost.bytes_written,
                       .flops = cost.flops,
                       .seconds = seconds};
    const z3d_attention_forward *forward = &kernel->as.attention_forward;
    const z3d_attention_backward *backward = &kernel->as.attention_backward;
    if (kernel->kind == Z3D_KERNEL_gemm) describe_gemm(&kernel->as.gemm, &event);
    if (kernel->kind == Z3D_KERNEL_attention_forward)
        describe_attention(forward->batch * forward->heads, forward->seq, forward->head_dim,
                           forward->dtype, &event);
    if (kernel->kind == Z3D_KERNEL_attention_backward)
        describe_attention(backward->batch * backward->heads, backward->seq, backward->head_dim,
                           backward->dtype, &event);
    return z3d_tape_append(tape, &event);
}
