#include "bench/parts/model.h"

#include <stdlib.h>

#include <dnnl.h>

static double time_sgemm(int64_t m, int64_t n, int64_t k, char ta, char tb, const float *a,
                         const float *b, float *c) {
    double best = 1e30;
    for (int r = 0; r < 4; r++) {
        double begin = z3d_now();
        dnnl_sgemm(ta, tb, m, n, k, 1, a, ta == 'N' ? k : m, b, tb == 'N' ? n : k, 0, c, n);
        double seconds = z3d_now() - begin;
        if (r > 0 && seconds < best) best = seconds;
    }
    return best;
}

static dnnl_status_t make_matmul(dnnl_engine_t engine, int64_t m, int64_t n, int64_t k, char ta,
                                 dnnl_memory_desc_t operand[3], dnnl_primitive_t *out) {
    const dnnl_dims_t left = {m, k}, right = {k, n}, product = {m, n};
    const dnnl_dims_t rows = {k, 1}, columns = {1, m}, plain = {n, 1};
    dnnl_matmul_desc_t operation;
    dnnl_primitive_desc_t made;
    dnnl_status_t status = dnnl_memory_desc_init_by_strides(&operand[0], 2, left, dnnl_f32,
                                                            ta == 'N' ? rows : columns);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_tag(&operand[1], 2, right, dnnl_f32, dnnl_format_tag_any);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_strides(&operand[2], 2, product, dnnl_f32, plain);
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&operation, &operand[0], &operand[1], NULL, &operand[2]);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(&made, &operation, NULL, engine, NULL);
    if (status != dnnl_success) return status;
    operand[1] = *dnnl_primitive_desc_query_md(made, dnnl_query_weights_md, 0);
    status = dnnl_primitive_create(out, made);
    dnnl_primitive_desc_destroy(made);
    return status;
}

/* The right operand is packed in the primitive's preferred layout. */
static double time_packed(int64_t m, int64_t n, int64_t k, char ta, const float *a, float *c) {
    dnnl_engine_t engine = NULL;
    dnnl_stream_t stream = NULL;
    dnnl_primitive_t matmul = NULL;
    dnnl_memory_desc_t operand[3];
    dnnl_memory_t memory[3] = {NULL};
    void *at[3] = {(void *)(uintptr_t)a, DNNL_MEMORY_ALLOCATE, c};
    double best = 1e30;
    bool made = dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success &&
                dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success &&
                make_matmul(engine, m, n, k, ta, operand, &matmul) == dnnl_success;
    for (int i = 0; i < 3 && made; i++)
        made = dnnl_memory_create(&memory[i], &operand[i], engine, at[i]) == dnnl_success;
    for (int r = 0; r < 4 && made; r++) {
        const dnnl_exec_arg_t arguments[] = {
            {DNNL_ARG_SRC, memory[0]}, {DNNL_ARG_WEIGHTS, memory[1]}, {DNNL_ARG_DST, memory[2]}};
        double begin = z3d_now();
        made = dnnl_primitive_execute(matmul, stream, 3, arguments) == dnnl_success &&
               dnnl_stream_wait(stream) == dnnl_success;
        double seconds = z3d_now() - begin;
        if (made && r > 0 && seconds < best) best = seconds;
    }
    for (int i = 0; i < 3; i++)
        if (memory[i]) dnnl_memory_destroy(memory[i]);
    if (matmul) dnnl_primitive_destroy(matmul);
    if (stream) dnnl_stream_destroy(stream);
    if (engine) dnnl_engine_destroy(engine);
    return best;
}

static double time_product(int64_t m, int64_t n, int64_t k, char ta, char tb, const float *a,
                           const float *b, float *c) {
    double sgemm = time_sgemm(m, n, k, ta, tb, a, b, c), packed = time_packed(m, n, k, ta, a, c);
    return sgemm < packed ? sgemm : packed;
}

static double forward(int64_t rows, int64_t in, int64_t out, const float *a, const float *b,
                      float *c) {
    return time_product(rows, out, in, 'N', 'T', a, b, c);
}

static double train(int64_t rows, int64_t in, int64_t out, const float *a, const float *b,
                    float *c) {
    return forward(rows, in, out, a, b, c) + time_product(rows, in, out, 'N', 'N', a, b, c) +
           time_product(out, in, rows, 'T', 'N', a, b, c);
}

typedef double products_of(int64_t rows, int64_t in, int64_t out, const float *a, const float *b,
                           float *c);

static double sum(bool llama, int64_t rows, int64_t head_rows, products_of *of) {
    const bench_product *block = bench_model_products(llama);
    size_t most = (size_t)PADDED * (rows > HIDDEN ? (size_t)rows : HIDDEN);
    float *a = malloc(most * 4), *b = malloc(most * 4), *c = malloc(most * 4);
    double seconds = -1;
    if (a && b && c) {
        for (size_t i = 0; i < most; i++) a[i] = b[i] = c[i] = (float)(i % 13) * 0.1f;
        seconds = of(head_rows, HIDDEN, PADDED, a, b, c);
        for (int i = 0; i < BENCH_PRODUCTS; i++)
            seconds += LAYERS * of(rows, block[i].in, block[i].out, a, b, c);
    }
    free(a);
    free(b);
    free(c);
    return seconds;
}

double bench_floor_train(bool llama, int64_t rows) {
    return sum(llama, rows, rows, train);
}

double bench_floor_prefill(bool llama, int64_t rows) {
    return sum(llama, rows, 1, forward);
}
