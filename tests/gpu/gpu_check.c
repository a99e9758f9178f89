/* gpu_check PART...: see check.h. Exits with 0 if every check held. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/check.h"

static const char usage[] =
    "usage: gpu_check [options] ops|train|graph|memory|speed|models|kernels|attention|nccl...\n"
    "  --steps N           steps of training (20) or of a timing (10)\n"
    "  --tensor N          tensor size for train (1)\n"
    "  --host-collectives  collectives through host memory; ranks may share a GPU\n"
    "  --own-attention     no cuDNN\n"
    "  --fast-attention    cuDNN, not deterministic\n"
    "  --tiny              all but ops at sizes for a machine without a GPU\n";

typedef struct options {
    int steps, tensor;
    bool tiny;
} options;

static void say(const char *kind, const char *name, const char *format, va_list arguments) {
    printf("%-7s %-34s ", kind, name);
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
}

void check_report(check_context *context, bool ok, const char *name, const char *format, ...) {
    va_list arguments;
    if (ok)
        context->passed++;
    else
        context->failed++;
    if (z3d_world_rank(context->world) != 0 && ok) return;
    va_start(arguments, format);
    say(ok ? "ok" : "FAILED", name, format, arguments);
    va_end(arguments);
}

void check_measured(check_context *context, const char *name, const char *format, ...) {
    va_list arguments;
    if (z3d_world_rank(context->world) != 0) return;
    va_start(arguments, format);
    say("info", name, format, arguments);
    va_end(arguments);
}

static z3d_status run_part(check_context *context, const options *o, const char *part) {
    const int timed = o->steps ? o->steps : 10;
    context->cuda.times =
        strcmp(part, "train") == 0 || strcmp(part, "graph") == 0 || strcmp(part, "nccl") == 0;
    if (strcmp(part, "ops") == 0) return check_ops(context);
    if (strcmp(part, "train") == 0)
        return check_training(context, o->tiny, o->steps ? o->steps : 20, o->tensor);
    if (strcmp(part, "graph") == 0) return check_graphs(context, o->tiny, o->tensor);
    if (strcmp(part, "nccl") == 0) return check_nccl(context);
    if (strcmp(part, "memory") == 0) return check_memory(context, o->tiny);
    if (strcmp(part, "speed") == 0) return check_speed(context, o->tiny, timed);
    if (strcmp(part, "models") == 0) return check_models(context, o->tiny, timed);
    if (strcmp(part, "kernels") == 0) return check_kernels(context, o->tiny);
    if (strcmp(part, "attention") == 0) return check_attention_speed(context, o->tiny);
    return Z3D_ERROR(Z3D_ERR_USAGE, "there is no part '%s'", part);
}

/* Takes the options off the front; where the parts begin, 0: wrong usage. */
static int read_options(int argc, char **argv, check_context *context, options *o) {
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        if (strcmp(argv[at], "--tiny") == 0)
            o->tiny = true;
        else if (strcmp(argv[at], "--host-collectives") == 0)
            context->cuda.host_collectives = true;
        else if (strcmp(argv[at], "--own-attention") == 0)
            context->cuda.attention = Z3D_ATTENTION_OWN;
        else if (strcmp(argv[at], "--fast-attention") == 0)
            context->cuda.nondeterministic = true;
        else if (strcmp(argv[at], "--steps") == 0 && at + 1 < argc)
            o->steps = atoi(argv[++at]);
        else if (strcmp(argv[at], "--tensor") == 0 && at + 1 < argc)
            o->tensor = atoi(argv[++at]);
        else
            return 0;
    }
    return at < argc && o->steps >= 0 && o->tensor > 0 ? at : 0;
}

int main(int argc, char **argv) {
    check_context context = {.cuda = {.backend = "cuda"}};
    options o = {.tensor = 1};
    int at = read_options(argc, argv, &context, &o);
    if (at == 0) {
        fputs(usage, stderr);
        return 2;
    }
    if (z3d_world_create(&argc, &argv, &context.world) != Z3D_OK) {
        fprintf(stderr, "zero3d: %s\n", z3d_error_message());
        return 1;
    }
    context.cuda.local_rank = z3d_world_local_rank(context.world);
    for (; at < argc; at++) {
        z3d_status status = run_part(&context, &o, argv[at]);
        if (status != Z3D_OK) z3d_world_abort(context.world, status, z3d_error_message());
    }
    if (z3d_world_rank(context.world) == 0)
        printf("%d checks held, %d failed\n", context.passed, context.failed);
    z3d_world_destroy(context.world);
    return context.failed > 0;
}
