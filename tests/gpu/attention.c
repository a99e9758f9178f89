/* How far what tensor cores make of attention may be from the cpu device's.
 *
 * Their products take 16-bit operands and add in fp32. So between q, k, v (dout) and out (dq, dk,
 * dv) three things are rounded to the type: the probabilities p before they multiply the values
 * (in backward dout), the scores' gradients ds before they multiply keys and queries, and the
 * result. Each rounding is off by at most u = 2^-8 of the number in bf16, 2^-11 in fp16; the cpu
 * device, which computes in fp32, has the last one only. Hence, to first order in u, beside the
 * results' own rounding:
 *   |error of out_i| <= u sum_j p_ij |v_j|        |error of dv_j| <= u sum_i p_ij |dout_i|
 *   |error of dq_i|  <= u c sum_j |ds_ij| |k_j|   |error of dk_j| <= u c sum_i |ds_ij| |q_i|
 * with c = 1 / sqrt(head_dim), ds = p (dout . v - dout . out). These sums are the slack. Dropout
 * takes p to 0 or p / (1 - drop's p); the larger counts. Nothing of this is measured: an
 * implementation with random signs stays far below. log_sum_exp has none: it never was 16-bit. */
#include <math.h>
#include <stdlib.h>

#include "tests/gpu/check.h"

/* One query of one head, and the keys begin .. end - 1 that it sees. */
typedef struct row {
    const z3d_attention_forward *f;
    int64_t b, h, i, begin, end;
    double u, kept; /* 1 / (1 - drop's p) */
    double *p;      /* of all keys of the cache */
} row;

/* Where element e of the query, of key or value j, and of its output lies. */
static int64_t query_at(const row *r, int64_t e) {
    return (r->b * r->f->seq + r->i) * r->f->q_stride + r->h * r->f->head_dim + e;
}

static int64_t key_at(const row *r, int64_t j, int64_t e) {
    int64_t head = r->h / (r->f->heads / r->f->kv_heads);
    return (r->b * r->f->capacity + j) * r->f->kv_stride + head * r->f->head_dim + e;
}

static int64_t out_at(const row *r, int64_t e) {
    return ((r->b * r->f->seq + r->i) * r->f->heads + r->h) * r->f->head_dim + e;
}

static double number(const row *r, const void *from, int64_t at) {
    return check_number(from, r->f->dtype, at);
}

static void find_probabilities(row *r) {
    const z3d_attention_forward *f = r->f;
    int64_t position = r->i + (f->starts ? f->starts[r->b] : 0);
    double most = -INFINITY, sum = 0;
    r->end = position < f->capacity ? position + 1 : f->capacity;
    r->begin = f->window > 0 && position >= f->window ? position + 1 - f->window : 0;
    if (f->row_position)
        r->begin =
            (int64_t)fmax((double)r->begin, (double)(r->i - f->row_position[r->b * f->seq + r->i]));
    for (int64_t j = r->begin; j < r->end; j++) {
        r->p[j] = 0;
        for (int64_t e = 0; e < f->head_dim; e++)
            r->p[j] += number(r, f->q, query_at(r, e)) * number(r, f->k, key_at(r, j, e));
        r->p[j] /= sqrt((double)f->head_dim);
        most = fmax(most, r->p[j]);
    }
    for (int64_t j = r->begin; j < r->end; j++) sum += r->p[j] = exp(r->p[j] - most);
    for (int64_t j = r->begin; j < r->end; j++) r->p[j] /= sum;
}

static void add_output_slack(const row *r, double *slack) {
    for (int64_t j = r->begin; j < r->end; j++)
        for (int64_t e = 0; e < r->f->head_dim; e++)
            slack[out_at(r, e)] +=
                r->u * r->kept * r->p[j] * fabs(number(r, r->f->v, key_at(r, j, e)));
}

static void add_gradient_slack(const row *r, const z3d_attention_backward *g, double *dq) {
    const z3d_attention_forward *f = r->f;
    const int64_t size = (int64_t)z3d_dtype_size(f->dtype);
    double *dk = dq + ((char *)g->dk - (char *)g->dq) / size;
    double *dv = dq + ((char *)g->dv - (char *)g->dq) / size;
    double c = 1 / sqrt((double)f->head_dim), delta = 0;
    for (int64_t e = 0; e < f->head_dim; e++)
        delta += number(r, g->out, out_at(r, e)) * number(r, g->dout, out_at(r, e));
    for (int64_t j = r->begin; j < r->end; j++) {
        double dp = 0;
        for (int64_t e = 0; e < f->head_dim; e++)
            dp += number(r, g->dout, out_at(r, e)) * number(r, f->v, key_at(r, j, e));
        double ds = fabs(dp * r->kept - delta);
        if (r->kept > 1) ds = fmax(ds, fabs(delta));
        for (int64_t e = 0; e < f->head_dim; e++) {
            int64_t q = query_at(r, e), k = key_at(r, j, e);
            dq[q] += r->u * c * r->p[j] * ds * fabs(number(r, f->k, k));
            dk[k] += r->u * c * r->p[j] * ds * fabs(number(r, f->q, q));
            dv[k] += r->u * r->kept * r->p[j] * fabs(number(r, g->dout, out_at(r, e)));
        }
    }
}

void check_attention_slack(const z3d_attention_forward *f, const z3d_attention_backward *g,
                           double *slack) {
    row r = {.f = f, .u = f->dtype == Z3D_BF16 ? 0x1p-8 : 0x1p-11};
    if (f->dtype == Z3D_F32) return;
    r.kept = 1 / (1 - (double)f->dropout.p);
    r.p = check_new(f->capacity * (int64_t)sizeof *r.p);
    for (r.b = 0; r.b < f->batch; r.b++)
        for (r.h = 0; r.h < f->heads; r.h++)
            for (r.i = 0; r.i < f->seq; r.i++) {
                find_probabilities(&r);
                if (g)
                    add_gradient_slack(&r, g, slack);
                else
                    add_output_slack(&r, slack);
            }
    free(r.p);
}
