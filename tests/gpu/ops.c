/* Kernels of one device against the cpu device's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/check.h"

/* ---- copies ---- */

/* Copies of a case's operands on a device, each `offset` bytes behind what alloc gives. */
typedef struct check_copy {
    z3d_device *device;
    int64_t offset;
    z3d_kernel kernel; /* on that device's memory */
    z3d_cost cost;     /* of the original */
    void *block[Z3D_MAX_OPERANDS];
} check_copy;

/* The original struct's words that point into an operand point into its copy afterwards. */
static void replace(check_copy *copy, const z3d_kernel *original, const z3d_operand *from,
                    char *to) {
    const char *words = (const char *)&original->as;
    for (size_t at = 0; at + sizeof(void *) <= sizeof original->as; at += sizeof(void *)) {
        uintptr_t word, first = (uintptr_t)from->pointer;
        memcpy(&word, words + at, sizeof word);
        if (word < first || word - first >= (uintptr_t)from->bytes) continue;
        char *moved = to + (word - first);
        memcpy((char *)&copy->kernel.as + at, &moved, sizeof moved);
    }
}

/* An operand in place occurs twice: the first of its occurrences. */
static int first_of(const z3d_cost *cost, int operand) {
    for (int i = 0; i < operand; i++)
        if (cost->operands[i].pointer == cost->operands[operand].pointer) return i;
    return operand;
}

static z3d_status copy_operand(check_copy *copy, const z3d_kernel *original, int index) {
    const z3d_operand *o = &copy->cost.operands[index];
    void *poison = NULL;
    bool read = false;
    for (int i = 0; i < copy->cost.num_operands; i++)
        read |= first_of(&copy->cost, i) == index && copy->cost.operands[i].read;
    Z3D_TRY(z3d_device_alloc(copy->device, Z3D_SPACE_DEVICE, o->bytes + copy->offset,
                             &copy->block[index]));
    copy->block[index] = (char *)copy->block[index] + copy->offset;
    replace(copy, original, o, copy->block[index]);
    if (read) return z3d_device_write(copy->device, copy->block[index], o->pointer, o->bytes);
    Z3D_TRY(z3d_new((size_t)o->bytes, 1, "poison", &poison));
    memset(poison, 0xff, (size_t)o->bytes);
    z3d_status status = z3d_device_write(copy->device, copy->block[index], poison, o->bytes);
    free(poison);
    return status;
}

static void check_copy_drop(check_copy *copy) {
    for (int i = 0; i < copy->cost.num_operands; i++)
        if (copy->block[i])
            z3d_device_free(copy->device, Z3D_SPACE_DEVICE, (char *)copy->block[i] - copy->offset,
                            copy->cost.operands[i].bytes + copy->offset);
    memset(copy->block, 0, sizeof copy->block);
}

static z3d_status check_copy_make(const check_case *c, z3d_device *device, int64_t offset,
                                  check_copy *out) {
    *out = (check_copy){.device = device, .offset = offset, .kernel = c->kernel};
    z3d_kernel_cost(&c->kernel, &out->cost);
    z3d_status status = Z3D_OK;
    for (int i = 0; i < out->cost.num_operands && status == Z3D_OK; i++)
        if (first_of(&out->cost, i) == i) status = copy_operand(out, &c->kernel, i);
    if (status != Z3D_OK) check_copy_drop(out);
    return status;
}

/* Where an operand of the original lies in the copy; NULL: nowhere. */
static void *check_copy_find(const check_copy *copy, const void *original) {
    for (int i = 0; i < copy->cost.num_operands; i++)
        if (copy->cost.operands[i].pointer == original) return copy->block[i];
    return NULL;
}

/* ---- comparing ---- */

/* Largest distance of `got` from `want`, in units of what is allowed: the type's rounding,
 * `tolerance` times the root mean square, and the element's slack. Not finite where only one is a
 * number. */
static double distance(const void *got, const void *want, z3d_dtype type, int64_t count,
                       double tolerance, double roundings, const double *slack) {
    double squares = 0, most = 0;
    double rounding = type == Z3D_BF16 ? 0x1p-7 : type == Z3D_F16 ? 0x1p-9 : 0x1p-22;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(check_number(want, type, i))) squares += pow(check_number(want, type, i), 2);
    double typical = count > 0 ? sqrt(squares / (double)count) : 0;
    for (int64_t i = 0; i < count; i++) {
        double a = check_number(got, type, i), b = check_number(want, type, i);
        if (a == b || (isnan(a) && isnan(b))) continue;
        double allowed =
            rounding * (1 + roundings / 2) * fabs(b) + (tolerance + rounding * 0x1p-3) * typical;
        if (slack) allowed += slack[i];
        double far = fabs(a - b) / (allowed > 0 ? allowed : 1e-30);
        if (!(far <= most)) most = isnan(far) ? INFINITY : far;
    }
    return most;
}

static int64_t bytes_of(const check_copy *copy, const void *original) {
    for (int i = 0; i < copy->cost.num_operands; i++)
        if (copy->cost.operands[i].pointer == original) return copy->cost.operands[i].bytes;
    return 0;
}

/* What kernels change in a step state, else all elements. */
static double compare(const check_case *c, int result, const void *got, const void *want,
                      int64_t bytes) {
    if (c->type[result] == Z3D_U8) {
        const z3d_step_state *a = got, *b = want;
        double loss = distance(&a->loss_sum, &b->loss_sum, Z3D_F64, 1, c->tolerance, 0, NULL);
        bool equal = a->valid_targets == b->valid_targets && a->skip == b->skip &&
                     a->gradient_factor == b->gradient_factor;
        return equal ? loss : INFINITY;
    }
    return distance(got, want, c->type[result], bytes / (int64_t)z3d_dtype_size(c->type[result]),
                    c->tolerance, c->roundings, c->slack[result]);
}

typedef struct pair {
    check_context *context;
    z3d_device *cuda, *cpu;
    int64_t offset; /* of cuda's operands */
} pair;

static z3d_status compare_results(const check_case *c, const check_copy *got,
                                  const check_copy *want, double *worst) {
    *worst = 0;
    for (int r = 0; r < CHECK_RESULTS && c->result[r]; r++) {
        int64_t bytes = bytes_of(want, c->result[r]);
        void *a = NULL, *b = NULL;
        z3d_status status = z3d_new((size_t)bytes, 1, "a result", &a);
        if (status == Z3D_OK) status = z3d_new((size_t)bytes, 1, "a result", &b);
        if (status == Z3D_OK)
            status = z3d_device_read(got->device, a, check_copy_find(got, c->result[r]), bytes);
        if (status == Z3D_OK)
            status = z3d_device_read(want->device, b, check_copy_find(want, c->result[r]), bytes);
        double far = status == Z3D_OK ? compare(c, r, a, b, bytes) : INFINITY;
        if (!(far <= *worst)) *worst = far;
        free(a);
        free(b);
        Z3D_TRY(status);
    }
    return Z3D_OK;
}

/* The cpu device's scratch for one kernel. */
static z3d_status launch_cpu(z3d_device *cpu, const z3d_kernel *kernel) {
    void *scratch = NULL;
    int64_t bytes = z3d_kernel_scratch(kernel, z3d_device_threads(cpu));
    Z3D_TRY(z3d_device_alloc(cpu, Z3D_SPACE_DEVICE, bytes, &scratch));
    z3d_device_set_scratch(cpu, scratch, bytes);
    z3d_status status = z3d_launch(cpu, kernel);
    z3d_device_set_scratch(cpu, NULL, 0);
    z3d_device_free(cpu, Z3D_SPACE_DEVICE, scratch, bytes);
    return status;
}

static z3d_status run_case(void *argument, check_case *c) {
    pair *p = argument;
    check_copy got, want;
    double worst = INFINITY;
    Z3D_TRY(check_copy_make(c, p->cpu, 0, &want));
    z3d_status status = check_copy_make(c, p->cuda, p->offset, &got);
    if (status == Z3D_OK) {
        z3d_status ran = z3d_launch(p->cuda, &got.kernel);
        if (ran == Z3D_OK) ran = z3d_device_synchronize(p->cuda);
        status = launch_cpu(p->cpu, &want.kernel);
        if (ran == Z3D_OK && status == Z3D_OK) ran = compare_results(c, &got, &want, &worst);
        check_report(p->context, ran == Z3D_OK && worst <= 1, c->name,
                     "%.3g of what is allowed%s%s", worst, ran == Z3D_OK ? "" : ": ",
                     ran == Z3D_OK ? "" : z3d_error_message());
        check_copy_drop(&got);
    }
    check_copy_drop(&want);
    return status;
}

z3d_status check_ops(check_context *context) {
    static const check_sizes sizes[] = {
        {.batch = 2, .seq = 9, .heads = 2, .head_dim = 8, .vocabulary = 67}, /* odd rows; operands
                                                                   between two multiples of 16 */
        {.batch = 1, .seq = 128, .heads = 2, .head_dim = 64, .vocabulary = 300},
    };
    static const z3d_dtype types[] = {Z3D_F32, Z3D_BF16, Z3D_F16};
    pair p = {.context = context};
    z3d_device_config cpu = {.backend = "cpu"};
    z3d_status status = z3d_device_create(&context->cuda, &p.cuda);
    if (status == Z3D_OK) status = z3d_device_create(&cpu, &p.cpu);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t t = 0; t < sizeof types / sizeof *types && status == Z3D_OK; t++) {
            p.offset = s == 0 ? 8 : 0;
            status = check_each_case(&sizes[s], types[t], run_case, &p);
        }
    z3d_device_destroy(p.cuda);
    z3d_device_destroy(p.cpu);
    return status;
}
