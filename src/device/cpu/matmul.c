/* oneDNN's matmul primitive, cached by shape. Primitives are made for one thread (z3d_launch sets
 * OpenMP's default to 1): we cut a product into tiles, and each tile is one execution. */
#include "src/device/cpu/gemm.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

/* One thread's memory objects for one primitive: A, B, C, scratch. Their pointers change with each
 * run. */
enum { ARGUMENTS = 4 };
typedef dnnl_memory_t arguments[ARGUMENTS];

struct z3d_matmul {
    z3d_matmul_shape shape;
    dnnl_primitive_t primitive;
    const_dnnl_primitive_desc_t description; /* of the primitive, which owns it */
    arguments *thread;
};

struct z3d_gemm_state {
    dnnl_engine_t engine;
    dnnl_stream_t *stream; /* by thread: a stream is not thread-safe */
    void **scratch;        /* by thread: as much as the largest primitive needs */
    int64_t scratch_bytes;
    int threads;
    z3d_matmul **made;
    int64_t count, capacity;
};

static z3d_status library_error(dnnl_status_t status, const char *what) {
    if (status == dnnl_unimplemented)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                         "oneDNN's matmul does not have this type on this CPU; write sgemm or auto "
                         "in training.gemm");
    return Z3D_ERROR(status == dnnl_out_of_memory ? Z3D_ERR_MEMORY : Z3D_ERR_DEVICE,
                     "oneDNN: %s failed with status %d", what, (int)status);
}

#define DNNL_TRY(call, what)                                                                       \
    do {                                                                                           \
        dnnl_status_t dnnl_try_status = (call);                                                    \
        if (dnnl_try_status != dnnl_success) return library_error(dnnl_try_status, what);          \
    } while (0)

z3d_status z3d_cpu_gemm_state_create(int threads, struct z3d_gemm_state **out) {
    struct z3d_gemm_state *state;
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *state, "the cache of products", &state));
    state->threads = threads;
    *out = state;
    Z3D_TRY(z3d_new((size_t)threads, sizeof *state->stream, "oneDNN's streams", &state->stream));
    Z3D_TRY(z3d_new((size_t)threads, sizeof *state->scratch, "scratch", &state->scratch));
    DNNL_TRY(dnnl_engine_create(&state->engine, dnnl_cpu, 0), "creating the CPU engine");
    for (int t = 0; t < threads; t++)
        DNNL_TRY(dnnl_stream_create(&state->stream[t], state->engine, dnnl_stream_default_flags),
                 "creating a stream");
    return Z3D_OK;
}

static void destroy_matmul(z3d_matmul *matmul, int threads) {
    for (int t = 0; matmul->thread && t < threads; t++)
        for (int i = 0; i < ARGUMENTS; i++)
            if (matmul->thread[t][i]) dnnl_memory_destroy(matmul->thread[t][i]);
    if (matmul->primitive) dnnl_primitive_destroy(matmul->primitive);
    free(matmul->thread);
    free(matmul);
}

void z3d_cpu_gemm_state_destroy(struct z3d_gemm_state *state) {
    if (!state) return;
    for (int64_t i = 0; i < state->count; i++) destroy_matmul(state->made[i], state->threads);
    free(state->made);
    for (int t = 0; t < state->threads; t++) {
        if (state->stream && state->stream[t]) dnnl_stream_destroy(state->stream[t]);
        if (state->scratch) free(state->scratch[t]);
    }
    if (state->engine) dnnl_engine_destroy(state->engine);
    free(state->stream);
    free(state->scratch);
    free(state);
}

/* A rows x cols matrix, stored row by row or, transposed, column by column. */
static dnnl_status_t describe(dnnl_memory_desc_t *out, int64_t rows, int64_t cols, int64_t ld,
                              bool transposed, int64_t dtype) {
    const dnnl_dims_t dims = {rows, cols};
    const dnnl_dims_t strides = {transposed ? 1 : ld, transposed ? ld : 1};
    return dnnl_memory_desc_init_by_strides(out, 2, dims, dtype == Z3D_BF16 ? dnnl_bf16 : dnnl_f32,
                                            strides);
}

static dnnl_status_t make_attributes(bool accumulate, dnnl_primitive_attr_t *out) {
    dnnl_status_t status = dnnl_primitive_attr_create(out);
    if (status != dnnl_success) return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (status != dnnl_success || !accumulate) return status;
    dnnl_post_ops_t operations;
    status = dnnl_post_ops_create(&operations);
    if (status != dnnl_success) return status;
    status = dnnl_post_ops_append_sum(operations, 1.0f);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(*out, operations);
    dnnl_post_ops_destroy(operations);
    return status;
}

static z3d_status make_primitive(z3d_matmul *matmul, dnnl_engine_t engine,
                                 const dnnl_memory_desc_t description[3]) {
    dnnl_matmul_desc_t operation;
    DNNL_TRY(
        dnnl_matmul_desc_init(&operation, &description[0], &description[1], NULL, &description[2]),
        "describing a product");
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t made = NULL;
    dnnl_status_t status = make_attributes(matmul->shape.accumulate, &attributes);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(&made, &operation, attributes, engine, NULL);
    if (status == dnnl_success) status = dnnl_primitive_create(&matmul->primitive, made);
    if (attributes) dnnl_primitive_attr_destroy(attributes);
    if (made) dnnl_primitive_desc_destroy(made);
    if (status != dnnl_success) return library_error(status, "making a matmul primitive");
    DNNL_TRY(dnnl_primitive_get_primitive_desc(matmul->primitive, &matmul->description),
             "asking for a primitive's description");
    return Z3D_OK;
}

static z3d_status make_scratch(struct z3d_gemm_state *state, int64_t bytes) {
    if (bytes <= state->scratch_bytes) return Z3D_OK;
    state->scratch_bytes = 0;
    size_t size = (size_t)((bytes + 4095) / 4096 * 4096);
    for (int t = 0; t < state->threads; t++) {
        free(state->scratch[t]);
        state->scratch[t] = aligned_alloc(4096, size);
        if (!state->scratch[t])
            return Z3D_ERROR(Z3D_ERR_MEMORY, "%zu bytes of scratch for oneDNN", size);
    }
    state->scratch_bytes = bytes;
    return Z3D_OK;
}

static z3d_status make_arguments(z3d_matmul *matmul, struct z3d_gemm_state *state,
                                 const dnnl_memory_desc_t description[3],
                                 const dnnl_memory_desc_t *scratch) {
    Z3D_TRY(z3d_new((size_t)state->threads, sizeof *matmul->thread, "a product's arguments",
                    &matmul->thread));
    for (int t = 0; t < state->threads; t++)
        for (int i = 0; i < ARGUMENTS; i++)
            DNNL_TRY(dnnl_memory_create(&matmul->thread[t][i], i < 3 ? &description[i] : scratch,
                                        state->engine, DNNL_MEMORY_NONE),
                     "making a memory object");
    return Z3D_OK;
}

static z3d_status make(struct z3d_gemm_state *state, z3d_matmul *matmul) {
    const z3d_matmul_shape *shape = &matmul->shape;
    dnnl_memory_desc_t description[3];
    DNNL_TRY(
        describe(&description[0], shape->m, shape->k, shape->lda, shape->transpose_a, shape->dtype),
        "describing A");
    DNNL_TRY(
        describe(&description[1], shape->k, shape->n, shape->ldb, shape->transpose_b, shape->dtype),
        "describing B");
    DNNL_TRY(describe(&description[2], shape->m, shape->n, shape->ldc, false, Z3D_F32),
             "describing C");
    Z3D_TRY(make_primitive(matmul, state->engine, description));
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(matmul->description, dnnl_query_scratchpad_md, 0);
    if (!scratch) return Z3D_ERROR(Z3D_ERR_DEVICE, "oneDNN: a primitive does not know its scratch");
    Z3D_TRY(make_scratch(state, (int64_t)dnnl_memory_desc_get_size(scratch)));
    return make_arguments(matmul, state, description, scratch);
}

z3d_status z3d_cpu_matmul_get(z3d_cpu *cpu, const z3d_matmul_shape *shape, z3d_matmul **out) {
    struct z3d_gemm_state *state = cpu->gemm_state;
    for (int64_t i = 0; i < state->count; i++)
        if (memcmp(&state->made[i]->shape, shape, sizeof *shape) == 0) {
            *out = state->made[i];
            return Z3D_OK;
        }
    Z3D_TRY(z3d_grow(state->count, &state->capacity, sizeof(z3d_matmul *), "the cache of products",
                     &state->made));
    z3d_matmul *matmul;
    Z3D_TRY(z3d_new(1, sizeof *matmul, "a product", &matmul));
    matmul->shape = *shape;
    z3d_status status = make(state, matmul);
    if (status != Z3D_OK) {
        destroy_matmul(matmul, state->threads);
        return z3d_error_context(status, "gemm by matmul, tile %lld x %lld x %lld of %s",
                                 (long long)shape->m, (long long)shape->n, (long long)shape->k,
                                 z3d_dtype_name((z3d_dtype)shape->dtype));
    }
    state->made[state->count++] = matmul;
    *out = matmul;
    return Z3D_OK;
}

bool z3d_cpu_matmul_run(z3d_cpu *cpu, z3d_matmul *matmul, int thread, const void *a, const void *b,
                        float *c) {
    const struct z3d_gemm_state *state = cpu->gemm_state;
    dnnl_memory_t *with = matmul->thread[thread];
    /* The library's interface has no pointers to const; it does not write to A and B. */
    void *const at[] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, c, state->scratch[thread]};
    bool ok = true;
    for (int i = 0; i < ARGUMENTS; i++)
        ok = ok && dnnl_memory_set_data_handle(with[i], at[i]) == dnnl_success;
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, with[0]},
                                         {DNNL_ARG_WEIGHTS, with[1]},
                                         {DNNL_ARG_DST, with[2]},
                                         {DNNL_ARG_SCRATCHPAD, with[3]}};
    return ok && dnnl_primitive_execute(matmul->primitive, state->stream[thread], ARGUMENTS,
                                        arguments) == dnnl_success;
}
