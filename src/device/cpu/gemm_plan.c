/* Cuts a product into tiles and finds the scratch that they need. */
#include "src/device/cpu/gemm.h"

#include "src/base/strings.h"

enum {
    TILE_M = 512,
    TILE_N = 768,            /* 16 times oneDNN's 48 columns */
    SMALLEST_TILE_M = 32,    /* in smaller tiles packing costs more than multiplying */
    SMALLEST_TILE_N = 192,   /* likewise */
    FEWEST_USES = 64,        /* of a copied element; a copy costs as much as 32 save */
    FEWEST_TILES = 8,        /* small products are cut finer, so that several threads have work */
    CHUNK_K = 1024,          /* 0.8 GFLOP in the largest tile */
    PANEL_ELEMENTS = 1 << 22 /* 16 MiB of fp32 */
};

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Cuts `length` into equal parts of at most `part`, each a multiple of `unit` but the last. */
static int64_t equal_parts(int64_t length, int64_t part, int64_t unit) {
    if (length <= 0) return unit;
    return z3d_round_up(ceil_div(length, ceil_div(length, part)), unit);
}

/* Columns are cut first: each tile packs its part of B again, and packing a transposed B (as in
 * every forward) is the most expensive. */
static void cut_tiles(const z3d_gemm *gemm, z3d_gemm_plan *plan) {
    int64_t tile_m = equal_parts(gemm->m, TILE_M, 8), tile_n = equal_parts(gemm->n, TILE_N, 16);
    while (ceil_div(gemm->m, tile_m) * ceil_div(gemm->n, tile_n) < FEWEST_TILES) {
        if (tile_n / 2 >= SMALLEST_TILE_N)
            tile_n = equal_parts(gemm->n, tile_n / 2, 16);
        else if (tile_m / 2 >= SMALLEST_TILE_M)
            tile_m = equal_parts(gemm->m, tile_m / 2, 8);
        else
            break;
    }
    plan->tile_m = tile_m;
    plan->tile_n = tile_n;
    plan->chunk_k = equal_parts(gemm->k, CHUNK_K, 16);
}

/* Whether rows of this fp32 operand lie such that oneDNN reads them slowly, and each element is
 * used often enough. */
static bool worth_a_copy(int64_t ld, int64_t uses) {
    return z3d_gemm_panel_ld(ld) != ld && uses >= FEWEST_USES;
}

static int64_t floats(int64_t rows, int64_t cols) {
    return z3d_round_up(rows * cols * (int64_t)sizeof(float), 64);
}

/* Of a panel and of the smaller ones at the product's end. */
static int64_t panel(int64_t rows, int64_t cols, bool transposed) {
    const int64_t padding = z3d_gemm_panel_ld(0);
    return transposed ? floats(cols, rows + padding) : floats(rows, cols + padding);
}

static void find_scratch(const z3d_gemm *gemm, z3d_gemm_plan *plan) {
    if (plan->panel_a) plan->bytes.a = panel(plan->panel_m, plan->panel_k, gemm->transpose_a);
    if (plan->panel_b) plan->bytes.b = panel(plan->panel_k, plan->panel_n, gemm->transpose_b);
    if (plan->panel_c)
        plan->bytes.c = floats(plan->panel_m, plan->panel_n);
    else if (plan->wide_c)
        plan->bytes.tile = floats(plan->tile_m, plan->tile_n);
    if (gemm->bias && gemm->dtype != Z3D_F32) plan->bytes.bias = floats(1, plan->tile_n);
}

z3d_gemm_plan z3d_cpu_gemm_plan(const z3d_gemm *gemm, z3d_gemm_method method, bool copies) {
    z3d_gemm_plan plan = {.panel_m = gemm->m, .panel_n = gemm->n, .panel_k = gemm->k};
    cut_tiles(gemm, &plan);
    if (gemm->dtype != Z3D_F32) {
        plan.panel_a = plan.panel_b = method != Z3D_GEMM_MATMUL;
    } else if (copies && method == Z3D_GEMM_SGEMM) {
        plan.panel_a = gemm->transpose_a && worth_a_copy(gemm->lda, gemm->n);
        plan.panel_b = !gemm->transpose_b && worth_a_copy(gemm->ldb, gemm->m);
    }
    plan.wide_c = gemm->c_dtype != Z3D_F32;
    if (plan.panel_a || plan.panel_b) {
        /* Sums of 16-bit tiles must stay in scratch from panel to panel, so there are few along k.
         * Else panels are short along k: then they have many tiles, which all threads share. */
        plan.panel_k = min_int64(gemm->k, plan.wide_c ? 4 * plan.chunk_k : plan.chunk_k);
        int64_t lines = PANEL_ELEMENTS / (plan.panel_k > 0 ? plan.panel_k : 1);
        if (plan.panel_a || plan.wide_c)
            plan.panel_m = min_int64(gemm->m, lines / plan.tile_m * plan.tile_m);
        if (plan.panel_b || plan.wide_c)
            plan.panel_n = min_int64(gemm->n, lines / plan.tile_n * plan.tile_n);
    }
    plan.panel_c = plan.wide_c && plan.panel_k < gemm->k;
    find_scratch(gemm, &plan);
    return plan;
}

int64_t z3d_cpu_gemm_scratch(const z3d_gemm_plan *plan, int threads) {
    return plan->bytes.a + plan->bytes.b + plan->bytes.c +
           threads * (plan->bytes.tile + plan->bytes.bias);
}
