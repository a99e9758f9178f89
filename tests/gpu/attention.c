/* Attention by its plain formula, in double: what forward leaves for backward, and how far what
 * tensor cores make of it may be.
 *
 * Their products take 16-bit operands and add in fp32. So between qkv (dout) and out (dqkv) three
 * things are rounded to the type: the probabilities p before they multiply the values (in backward
 * dout), the scores' gradients ds before they multiply keys and queries, and the result. Each
 * rounding is off by at most u = 2^-8 of the number in bf16, 2^-11 in fp16; the cpu device, which
 * computes in fp32, has the last one only. Hence, to first order in u, beside the results' own
 * rounding:
 *   |error of out_i| <= u sum_j p_ij |v_j|        |error of dv_j| <= u sum_i p_ij |dout_i|
 *   |error of dq_i|  <= u c sum_j |ds_ij| |k_j|   |error of dk_j| <= u c sum_i |ds_ij| |q_i|
 * with c = 1 / sqrt(head_dim), ds = p (dout . v - dout . out). These sums are the slack. Nothing of
 * it is measured: an implementation with random signs stays far below. log_sum_exp has none: it
 * never was 16-bit. */
#include <math.h>
#include <stdlib.h>

#include "tests/gpu/check.h"

/* One query of one head. */
typedef struct row {
    const check_attention *a;
    int64_t b, h, i;
    double *p; /* of the keys 0 .. i */
} row;

static double out_number(const row *r, const void *from, int64_t e) {
    const check_attention *a = r->a;
    return check_number(from, a->dtype,
                        ((r->b * a->seq + r->i) * a->heads + r->h) * a->head_dim + e);
}

/* Where element e of query (part 0), key (1) or value (2) j lies. */
static int64_t qkv_at(const row *r, int64_t j, int part, int64_t e) {
    const check_attention *a = r->a;
    return (((r->b * a->seq + j) * 3 + part) * a->heads + r->h) * a->head_dim + e;
}

static double qkv_number(const row *r, int64_t j, int part, int64_t e) {
    return check_number(r->a->qkv, r->a->dtype, qkv_at(r, j, part, e));
}

static void find_probabilities(const row *r) {
    const check_attention *a = r->a;
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= r->i; j++) {
        r->p[j] = 0;
        for (int64_t e = 0; e < a->head_dim; e++)
            r->p[j] += qkv_number(r, r->i, 0, e) * qkv_number(r, j, 1, e);
        r->p[j] /= sqrt((double)a->head_dim);
        if (r->p[j] > most) most = r->p[j];
    }
    for (int64_t j = 0; j <= r->i; j++) sum += r->p[j] = exp(r->p[j] - most);
    for (int64_t j = 0; j <= r->i; j++) r->p[j] /= sum;
    a->log_sum_exp[(r->b * a->heads + r->h) * a->seq + r->i] = (float)(most + log(sum));
}

static void find_output(const row *r, double u) {
    const check_attention *a = r->a;
    for (int64_t e = 0; e < a->head_dim; e++) {
        double out = 0, slack = 0;
        for (int64_t j = 0; j <= r->i; j++) {
            out += r->p[j] * qkv_number(r, j, 2, e);
            slack += u * r->p[j] * fabs(qkv_number(r, j, 2, e));
        }
        int64_t at = ((r->b * a->seq + r->i) * a->heads + r->h) * a->head_dim + e;
        check_set_number(a->out, a->dtype, at, out);
        a->out_slack[at] = slack;
    }
}

static void find_gradient_slack(const row *r, double u) {
    const check_attention *a = r->a;
    double c = 1 / sqrt((double)a->head_dim), delta = 0;
    for (int64_t e = 0; e < a->head_dim; e++)
        delta += out_number(r, a->out, e) * out_number(r, a->dout, e);
    for (int64_t j = 0; j <= r->i; j++) {
        double dp = 0;
        for (int64_t e = 0; e < a->head_dim; e++)
            dp += out_number(r, a->dout, e) * qkv_number(r, j, 2, e);
        double ds = r->p[j] * fabs(dp - delta);
        for (int64_t e = 0; e < a->head_dim; e++) {
            a->dqkv_slack[qkv_at(r, r->i, 0, e)] += u * c * ds * fabs(qkv_number(r, j, 1, e));
            a->dqkv_slack[qkv_at(r, j, 1, e)] += u * c * ds * fabs(qkv_number(r, r->i, 0, e));
            a->dqkv_slack[qkv_at(r, j, 2, e)] += u * r->p[j] * fabs(out_number(r, a->dout, e));
        }
    }
}

z3d_status check_attention_reference(const check_attention *a) {
    double u = a->dtype == Z3D_BF16 ? 0x1p-8 : a->dtype == Z3D_F16 ? 0x1p-11 : 0;
    row r = {.a = a};
    Z3D_TRY(z3d_new((size_t)a->seq, sizeof *r.p, "a row of probabilities", &r.p));
    for (r.b = 0; r.b < a->batch; r.b++)
        for (r.h = 0; r.h < a->heads; r.h++)
            for (r.i = 0; r.i < a->seq; r.i++) {
                find_probabilities(&r);
                find_output(&r, u);
                if (a->dqkv_slack) find_gradient_slack(&r, u);
            }
    free(r.p);
    return Z3D_OK;
}
