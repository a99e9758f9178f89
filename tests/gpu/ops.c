/* Kernels of one device against the cpu device's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/check.h"

void check_must(z3d_status status) {
    if (status == Z3D_OK) return;
    fprintf(stderr, "zero3d: %s\n", z3d_error_message());
    exit(1);
}

void *check_new(int64_t bytes) {
    void *made;
    check_must(z3d_new((size_t)bytes, 1, "an array", &made));
    return made;
}

void check_launch_cpu(z3d_device *cpu, const z3d_kernel *kernel) {
    void *scratch = NULL;
    int64_t bytes = z3d_kernel_scratch(kernel, z3d_device_threads(cpu));
    check_must(z3d_device_alloc(cpu, Z3D_SPACE_DEVICE, bytes, &scratch));
    z3d_device_set_scratch(cpu, scratch, bytes);
    check_must(z3d_launch(cpu, kernel));
    z3d_device_set_scratch(cpu, NULL, 0);
    z3d_device_free(cpu, Z3D_SPACE_DEVICE, scratch, bytes);
}

/* ---- copies ---- */

void check_move_operand(z3d_kernel *kernel, const void *from, int64_t bytes, void *to) {
    char *words = (char *)&kernel->as;
    for (size_t at = 0; at + sizeof(void *) <= sizeof kernel->as; at += sizeof(void *)) {
        uintptr_t word, first = (uintptr_t)from;
        memcpy(&word, words + at, sizeof word);
        if (word < first || word - first >= (uintptr_t)bytes) continue;
        char *moved = (char *)to + (word - first);
        memcpy(words + at, &moved, sizeof moved);
    }
}

/* A kernel with operands of its own, each with exactly its bytes, `offset` behind what the
 * allocator gives. What is not read is NaN. */
typedef struct copy {
    z3d_kernel kernel;
    z3d_cost cost;                 /* of the original */
    char *block[Z3D_MAX_OPERANDS]; /* NULL: in place, the same as an operand before */
    int64_t offset;
} copy;

/* An operand in place occurs twice. */
static bool is_first(const z3d_cost *cost, int operand, bool *read) {
    *read = false;
    for (int i = 0; i < cost->num_operands; i++) {
        if (cost->operands[i].pointer != cost->operands[operand].pointer) continue;
        if (i < operand) return false;
        *read |= cost->operands[i].read;
    }
    return true;
}

/* In host memory, or (device) in the device's. */
static copy make_copy(const z3d_kernel *original, int64_t offset, z3d_device *device) {
    copy made = {.kernel = *original, .offset = offset};
    z3d_kernel_cost(original, &made.cost);
    for (int i = 0; i < made.cost.num_operands; i++) {
        const z3d_operand *o = &made.cost.operands[i];
        const int64_t bytes = offset + o->bytes;
        bool read;
        if (!is_first(&made.cost, i, &read)) continue;
        char *block = check_new(bytes);
        memset(block, 0xff, (size_t)bytes);
        if (read) memcpy(block + offset, o->pointer, (size_t)o->bytes);
        if (device) {
            void *there;
            check_must(z3d_device_alloc(device, Z3D_SPACE_DEVICE, bytes, &there));
            check_must(z3d_device_write(device, there, block, bytes));
            free(block);
            block = there;
        }
        made.block[i] = block;
        check_move_operand(&made.kernel, o->pointer, o->bytes, block + offset);
    }
    return made;
}

/* From the device to host memory. */
static void fetch_copy(copy *c, z3d_device *device) {
    for (int i = 0; i < c->cost.num_operands; i++) {
        const int64_t bytes = c->offset + c->cost.operands[i].bytes;
        if (!c->block[i]) continue;
        char *here = check_new(bytes);
        check_must(z3d_device_read(device, here, c->block[i], bytes));
        z3d_device_free(device, Z3D_SPACE_DEVICE, c->block[i], bytes);
        c->block[i] = here;
    }
}

static void drop_copy(copy *c) {
    for (int i = 0; i < c->cost.num_operands; i++) free(c->block[i]);
}

/* ---- comparing ---- */

/* How far `got` is from `want`, in units of what is allowed. Where there is slack, one may have an
 * infinity where the other has NaN. */
static double distance(const check_array *a, int64_t i, double got, double want) {
    if ((got == want && signbit(got) == signbit(want)) || (isnan(got) && isnan(want))) return 0;
    if (a->slack && (a->slack[i] == INFINITY || (!isfinite(got) && !isfinite(want)))) return 0;
    double allowed = a->relative * fabs(want) + a->absolute + (a->slack ? a->slack[i] : 0);
    if (a->relative + a->absolute > 0 && a->type == Z3D_BF16) allowed += 0x1p-7 * fabs(want);
    if (a->relative + a->absolute > 0 && a->type == Z3D_F16)
        allowed += 0x1p-10 * fabs(want) + 0x1p-24;
    double far = fabs(got - want) / allowed;
    return isnan(far) ? INFINITY : far;
}

/* The element that is furthest off. */
typedef struct furthest {
    double far, got, want;
    int64_t element;
    int operand;
} furthest;

static void compare_operand(const check_case *c, const z3d_operand *operand, const char *got,
                            const char *want, furthest *worst) {
    const check_array *a = c->array;
    const char *at = operand->pointer, *data = a->data;
    while (at < data || at >= data + a->count * (int64_t)z3d_dtype_size(a->type))
        data = (++a)->data;
    int64_t size = (int64_t)z3d_dtype_size(a->type), before = (at - data) / size;
    for (int64_t i = 0; i < operand->bytes / size; i++) {
        double x = check_number(got, a->type, i), y = check_number(want, a->type, i);
        double far = distance(a, before + i, x, y);
        if (far > worst->far) *worst = (furthest){far, x, y, i, worst->operand};
    }
}

/* bits: all must be equal. */
static furthest compare(const check_case *c, const copy *got, const copy *want, bool bits) {
    furthest worst = {0};
    for (int i = 0; i < got->cost.num_operands; i++) {
        const z3d_operand *operand = &got->cost.operands[i];
        if (!got->block[i]) continue;
        const char *a = got->block[i] + got->offset, *b = want->block[i] + want->offset;
        furthest here = {.operand = i};
        if (!bits)
            compare_operand(c, operand, a, b, &here);
        else if (memcmp(a, b, (size_t)operand->bytes) != 0)
            here.far = INFINITY;
        if (here.far > worst.far) worst = here;
    }
    return worst;
}

/* ---- running ---- */

typedef struct checked {
    check_context *context;
    const check_target *target;
    z3d_device *cpu;
    int cases[Z3D_KERNEL_COUNT];
    double worst[Z3D_KERNEL_COUNT];
} checked;

/* Everything that helps to find the case again. */
static void report_failure(const checked *k, const check_case *c, const copy *got, int way,
                           const furthest *worst, const char *error) {
    char name[64], operands[256] = "";
    snprintf(name, sizeof name, "%s %s case %d", z3d_kernel_name(c->kernel.kind),
             z3d_dtype_name(c->type), k->cases[c->kernel.kind]);
    for (int i = 0; i < got->cost.num_operands; i++)
        snprintf(operands + strlen(operands), sizeof operands - strlen(operands), " %lld",
                 (long long)got->cost.operands[i].bytes);
    check_report(k->context, false, name,
                 "operand %d, element %lld: %.9g, not %.9g: %.3g of what is allowed (way %d, %lld "
                 "bytes behind alignment, operands of%s bytes)%s",
                 worst->operand, (long long)worst->element, worst->got, worst->want, worst->far,
                 way, (long long)got->offset, operands, error);
}

/* bits: must give the bits of `want`, else about what the cpu device gives. */
static copy run_way(checked *k, const check_case *c, const copy *want, int64_t offset, int way,
                    bool bits) {
    z3d_device *device = k->target->device;
    copy got = make_copy(&c->kernel, offset, device);
    z3d_status ran = k->target->launch(k->target, &got.kernel, way);
    if (device) fetch_copy(&got, device);
    furthest worst = ran == Z3D_OK ? compare(c, &got, want, bits) : (furthest){.far = INFINITY};
    if (worst.far > 1)
        report_failure(k, c, &got, way, &worst, ran == Z3D_OK ? "" : z3d_error_message());
    double *most = &k->worst[c->kernel.kind];
    *most = fmax(*most, worst.far);
    return got;
}

/* In every way: one must give about what the cpu device gives, the others the bits of the first. */
static void run_all_ways(checked *k, const check_case *c, const copy *want, int64_t offset) {
    copy first = run_way(k, c, want, offset, 0, false);
    for (int way = 1; way < k->target->ways; way++) {
        copy other = run_way(k, c, &first, offset, way, true);
        drop_copy(&other);
    }
    drop_copy(&first);
}

/* Operands that are not aligned run the same code on shorter vectors: on a GPU and with ZERO3D_LONG
 * in every way, too, else in one, which changes from case to case without a period. */
static void run_case(void *argument, const check_case *c) {
    checked *k = argument;
    copy want = make_copy(&c->kernel, 0, NULL);
    check_launch_cpu(k->cpu, &want.kernel);
    const uint32_t number = (uint32_t)k->cases[c->kernel.kind]++;
    run_all_ways(k, c, &want, 0);
    if (k->target->device || getenv("ZERO3D_LONG")) {
        run_all_ways(k, c, &want, 8);
    } else {
        const uint32_t mixed = number * 2654435761u >> 16;
        copy shifted = run_way(k, c, &want, 8, (int)(mixed % (uint32_t)k->target->ways), false);
        drop_copy(&shifted);
    }
    drop_copy(&want);
}

void check_all_kernels(check_context *context, const check_target *target, z3d_dtype type) {
    checked k = {.context = context, .target = target};
    /* The same reference on every machine. */
    z3d_device_config generic = {.backend = "cpu", .isa = "generic", .threads = 1, CHECK_GEMM};
    check_must(z3d_device_create(&generic, &k.cpu));
    check_each_case(type, target->device != NULL, k.cpu, run_case, &k);
    z3d_device_destroy(k.cpu);
    for (int kind = 0; kind < Z3D_KERNEL_COUNT; kind++) {
        char name[64];
        if (kind == Z3D_KERNEL_gemm && !target->device) continue;
        snprintf(name, sizeof name, "%s %s", z3d_kernel_name((z3d_kernel_kind)kind),
                 z3d_dtype_name(type));
        check_report(context, k.cases[kind] > 0 && k.worst[kind] <= 1, name,
                     "%d cases, at most %.3g of what is allowed", k.cases[kind], k.worst[kind]);
    }
}

static z3d_status launch(const check_target *target, const z3d_kernel *kernel, int way) {
    (void)way;
    Z3D_TRY(z3d_launch(target->device, kernel));
    return z3d_device_synchronize(target->device);
}

z3d_status check_ops(check_context *context) {
    check_target target = {.ways = 1, .launch = launch};
    Z3D_TRY(z3d_device_create(&context->cuda, &target.device));
    check_all_kernels(context, &target, Z3D_F32);
    check_all_kernels(context, &target, Z3D_BF16);
    check_all_kernels(context, &target, Z3D_F16);
    z3d_device_destroy(target.device);
    return Z3D_OK;
}
