/* Matrix products: OpenMP runs the tiles of gemm_plan.c, each with one of three multipliers. oneDNN
 * computes one tile on one thread. So the result does not depend on the number of threads, bias and
 * rounding happen while a tile is in cache, and the launching thread can poll between its tiles. */
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#include "src/base/strings.h"
#include "src/device/cpu/gemm.h"

/* One launch. */
typedef struct product {
    z3d_cpu *cpu;
    const z3d_gemm *gemm;
    z3d_gemm_method method;
    z3d_gemm_plan plan;
    float *panel_a, *panel_b; /* NULL: the operand itself is read */
    float *panel_c;
    char *per_thread; /* by thread: tile, bias */
    /* Indices: tile is the last in m; in n; chunk is the last in k; product adds to C. */
    z3d_matmul *matmul[2][2][2][2];
    int failed; /* set by any thread, read after the parallel region */
} product;

/* A part of one dimension. */
typedef struct range {
    int64_t first, length;
} range;

static range cut(int64_t first, int64_t length, int64_t end) {
    return (range){first, min_int64(length, end - first)};
}

/* Where element (row, col) of op(X) is stored. */
static int64_t offset(bool transposed, int64_t ld, int64_t row, int64_t col) {
    return transposed ? col * ld + row : row * ld + col;
}

static int64_t element_size(const product *p) {
    return (int64_t)z3d_dtype_size(p->gemm->dtype);
}

/* Widens or copies op(X)[rows, cols] into a panel that is stored the way X is. */
static void fill_panel(const product *p, float *panel, const void *x, bool transposed, int64_t ld,
                       range rows, range cols) {
    const z3d_dtype dtype = p->gemm->dtype;
    const range outer = transposed ? cols : rows, inner = transposed ? rows : cols;
    const int64_t panel_ld = z3d_gemm_panel_ld(inner.length), size = element_size(p);
    const char *from = (const char *)x + (outer.first * ld + inner.first) * size;
#pragma omp parallel for num_threads(p->cpu->threads) schedule(static)
    for (int64_t line = 0; line < outer.length; line++)
        p->cpu->isa->widen(panel + line * panel_ld, from + line * ld * size, dtype, inner.length);
    z3d_cpu_poll(p->cpu);
}

typedef struct operand {
    const void *pointer;
    int64_t ld;
} operand;

/* Where element (row, col) of op(X) is: in the panel [rows, cols], or, without one, in X itself. */
static operand locate(const product *p, const float *panel, const void *x, bool transposed,
                      int64_t ld, range rows, range cols, int64_t row, int64_t col) {
    if (panel) {
        int64_t panel_ld = z3d_gemm_panel_ld(transposed ? rows.length : cols.length);
        return (operand){panel + offset(transposed, panel_ld, row - rows.first, col - cols.first),
                         panel_ld};
    }
    return (operand){(const char *)x + offset(transposed, ld, row, col) * element_size(p), ld};
}

static bool multiply(const product *p, int thread, range m, range n, range k, operand a, operand b,
                     float *c, int64_t ldc, bool add) {
    const z3d_gemm *gemm = p->gemm;
    const bool ta = gemm->transpose_a, tb = gemm->transpose_b;
    switch (p->method) {
    case Z3D_GEMM_MATMUL: {
        z3d_matmul *matmul = p->matmul[m.length < p->plan.tile_m][n.length < p->plan.tile_n]
                                      [k.length < p->plan.chunk_k][add];
        return z3d_cpu_matmul_run(p->cpu, matmul, thread, a.pointer, b.pointer, c);
    }
    case Z3D_GEMM_PORTABLE:
        p->cpu->isa->portable_gemm(m.length, n.length, k.length, ta, tb, a.pointer, a.ld, b.pointer,
                                   b.ld, c, ldc, add);
        return true;
    default:
        return dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m.length, n.length, k.length, 1.0f,
                          a.pointer, a.ld, b.pointer, b.ld, add ? 1.0f : 0.0f, c,
                          ldc) == dnnl_success;
    }
}

/* Finishes a tile's sum: adds the bias in fp32, then rounds once. */
static void finish_tile(const product *p, int thread, range m, range n, float *sum, int64_t ld) {
    const z3d_gemm *gemm = p->gemm;
    const z3d_cpu_isa *isa = p->cpu->isa;
    const float *bias = NULL;
    if (gemm->bias && gemm->dtype == Z3D_F32) bias = (const float *)gemm->bias + n.first;
    if (gemm->bias && gemm->dtype != Z3D_F32) {
        float *wide = (float *)(p->per_thread + thread * (p->plan.bytes.tile + p->plan.bytes.bias) +
                                p->plan.bytes.tile);
        isa->widen(wide, (const uint16_t *)gemm->bias + n.first, gemm->dtype, n.length);
        bias = wide;
    }
    for (int64_t row = 0; row < m.length; row++) {
        float *line = sum + row * ld;
        if (bias) {
#pragma omp simd
            for (int64_t col = 0; col < n.length; col++) line[col] += bias[col];
        }
        if (p->plan.wide_c)
            isa->narrow((uint16_t *)gemm->c + (m.first + row) * gemm->ldc + n.first, gemm->c_dtype,
                        line, n.length);
    }
}

/* Where a tile is summed, and the distance between its rows. */
static float *tile_sum(const product *p, int thread, range pm, range pn, range m, range n,
                       int64_t *ld) {
    const z3d_gemm *gemm = p->gemm;
    if (!p->plan.wide_c) {
        *ld = gemm->ldc;
        return (float *)gemm->c + m.first * gemm->ldc + n.first;
    }
    if (p->plan.panel_c) {
        *ld = pn.length;
        return p->panel_c + (m.first - pm.first) * pn.length + n.first - pn.first;
    }
    *ld = n.length;
    return (float *)(p->per_thread + thread * (p->plan.bytes.tile + p->plan.bytes.bias));
}

/* Prepares a tile's sum before the first chunk: C's old values if the product adds to them. Returns
 * false if the first chunk overwrites the sum instead of adding to it. */
static bool begin_tile(const product *p, range m, range n, float *sum, int64_t ld) {
    const z3d_gemm *gemm = p->gemm;
    if (gemm->accumulate && p->plan.wide_c)
        for (int64_t row = 0; row < m.length; row++)
            p->cpu->isa->widen(sum + row * ld,
                               (const uint16_t *)gemm->c + (m.first + row) * gemm->ldc + n.first,
                               gemm->c_dtype, n.length);
    if (!gemm->accumulate && gemm->k == 0)
        for (int64_t row = 0; row < m.length; row++)
            memset(sum + row * ld, 0, (size_t)n.length * sizeof *sum);
    return gemm->accumulate;
}

/* One tile over the k range of the panels pm, pn, pk. */
static bool run_tile(const product *p, int thread, range pm, range pn, range pk, range m, range n) {
    const z3d_gemm *gemm = p->gemm;
    int64_t ld;
    float *sum = tile_sum(p, thread, pm, pn, m, n, &ld);
    bool add = pk.first == 0 ? begin_tile(p, m, n, sum, ld) : true;
    bool ok = true;
    const int64_t end = pk.first + pk.length;
    for (int64_t at = pk.first; at < end; at += p->plan.chunk_k) {
        range k = cut(at, p->plan.chunk_k, end);
        operand a =
            locate(p, p->panel_a, gemm->a, gemm->transpose_a, gemm->lda, pm, pk, m.first, k.first);
        operand b =
            locate(p, p->panel_b, gemm->b, gemm->transpose_b, gemm->ldb, pk, pn, k.first, n.first);
        ok = multiply(p, thread, m, n, k, a, b, sum, ld, add) && ok;
        if (thread == 0) z3d_cpu_poll(p->cpu);
        add = true;
    }
    if (end == gemm->k) finish_tile(p, thread, m, n, sum, ld);
    return ok;
}

/* All tiles of a panel of C. Tiles with the same columns follow each other, so B's columns stay in
 * cache. */
static void run_tiles(product *p, range pm, range pn, range pk) {
    const int64_t tile_m = p->plan.tile_m, tile_n = p->plan.tile_n;
    const int64_t count_m = (pm.length + tile_m - 1) / tile_m;
    const int64_t count = count_m * ((pn.length + tile_n - 1) / tile_n);
#pragma omp parallel num_threads(z3d_cpu_team(p->cpu, count))
    {
        const int thread = omp_get_thread_num();
#pragma omp for schedule(dynamic)
        for (int64_t tile = 0; tile < count; tile++) {
            range m = cut(pm.first + tile % count_m * tile_m, tile_m, pm.first + pm.length);
            range n = cut(pn.first + tile / count_m * tile_n, tile_n, pn.first + pn.length);
            if (!run_tile(p, thread, pm, pn, pk, m, n)) {
#pragma omp atomic write
                p->failed = 1;
            }
        }
    }
}

static void run_panels(product *p) {
    const z3d_gemm *gemm = p->gemm;
    const z3d_gemm_plan *plan = &p->plan;
    for (int64_t im = 0; im < gemm->m; im += plan->panel_m)
        for (int64_t in = 0; in < gemm->n; in += plan->panel_n) {
            int64_t ik = 0;
            do { /* also once if k = 0 */
                range m = cut(im, plan->panel_m, gemm->m), n = cut(in, plan->panel_n, gemm->n),
                      k = cut(ik, plan->panel_k, gemm->k);
                /* If k has one panel, A's panel is used for all panels of columns. */
                if (plan->panel_a && (in == 0 || plan->panel_k < gemm->k))
                    fill_panel(p, p->panel_a, gemm->a, gemm->transpose_a, gemm->lda, m, k);
                if (plan->panel_b)
                    fill_panel(p, p->panel_b, gemm->b, gemm->transpose_b, gemm->ldb, k, n);
                run_tiles(p, m, n, k);
                ik += plan->panel_k;
            } while (ik < gemm->k);
        }
}

/* Makes the primitives for the shapes of the tiles: full ones and last ones. */
static z3d_status get_matmuls(product *p) {
    const z3d_gemm *gemm = p->gemm;
    const int64_t full[3] = {p->plan.tile_m, p->plan.tile_n, p->plan.chunk_k};
    const int64_t size[3] = {gemm->m, gemm->n, gemm->k};
    int64_t length[3][2]; /* of the full parts, of the last one; 0: there is none */
    for (int d = 0; d < 3; d++) {
        length[d][0] = size[d] >= full[d] ? full[d] : 0;
        length[d][1] = size[d] % full[d];
    }
    for (int i = 0; i < 16; i++) {
        int lm = i & 1, ln = i >> 1 & 1, lk = i >> 2 & 1, add = i >> 3;
        z3d_matmul_shape shape = {
            .m = length[0][lm],
            .n = length[1][ln],
            .k = length[2][lk],
            .lda = gemm->lda,
            .ldb = gemm->ldb,
            .transpose_a = gemm->transpose_a,
            .transpose_b = gemm->transpose_b,
            .accumulate = add,
            .dtype = (int64_t)gemm->dtype,
        };
        bool adds = gemm->accumulate || gemm->k > full[2], begins = !gemm->accumulate;
        if (!shape.m || !shape.n || !shape.k || (add ? !adds : !begins)) continue;
        shape.ldc = p->plan.wide_c ? shape.n : gemm->ldc;
        Z3D_TRY(z3d_cpu_matmul_get(p->cpu, &shape, &p->matmul[lm][ln][lk][add]));
    }
    return Z3D_OK;
}

static z3d_status take_scratch(product *p) {
    z3d_cpu *cpu = p->cpu;
    int64_t wanted = z3d_cpu_gemm_scratch(&p->plan, cpu->threads);
    Z3D_REQUIRE(wanted <= cpu->scratch_bytes,
                "kernel gemm: scratch of %lld bytes, %lld wanted for %lld x %lld x %lld",
                (long long)cpu->scratch_bytes, (long long)wanted, (long long)p->gemm->m,
                (long long)p->gemm->n, (long long)p->gemm->k);
    char *at = cpu->scratch;
    p->panel_a = p->plan.panel_a ? (float *)at : NULL;
    p->panel_b = p->plan.panel_b ? (float *)(at + p->plan.bytes.a) : NULL;
    p->panel_c = (float *)(at + p->plan.bytes.a + p->plan.bytes.b);
    p->per_thread = at + p->plan.bytes.a + p->plan.bytes.b + p->plan.bytes.c;
    return Z3D_OK;
}

z3d_status z3d_cpu_gemm(z3d_cpu *cpu, const z3d_kernel *kernel) {
    const z3d_gemm *gemm = &kernel->as.gemm;
    if (gemm->m == 0 || gemm->n == 0) return Z3D_OK;
    product p = {.cpu = cpu, .gemm = gemm, .method = cpu->gemm[gemm->dtype]};
    p.plan = z3d_cpu_gemm_plan(gemm, p.method, cpu->isa == &z3d_cpu_isa_avx2);
    Z3D_TRY(take_scratch(&p));
    if (p.method == Z3D_GEMM_MATMUL) Z3D_TRY(get_matmuls(&p));
    run_panels(&p);
    if (p.failed)
        return Z3D_ERROR(Z3D_ERR_DEVICE,
                         "kernel gemm: oneDNN failed in a product of %lld x %lld x %lld by %s",
                         (long long)gemm->m, (long long)gemm->n, (long long)gemm->k,
                         z3d_gemm_method_name(p.method));
    return Z3D_OK;
}

void z3d_cpu_sgemm_serial(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                          const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                          float *c, int64_t ldc) {
    dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
