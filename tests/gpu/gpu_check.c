/* gpu_check PART...: see check.h. Exits with 0 if every check held. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu/check.h"

static const char usage[] =
    "usage: gpu_check [options] ops|train|capture|memory|speed|models|llama|kernels|attention|"
    "nccl...\n"
    "  --steps=N           steps of training (20) or of a timing (10)\n"
    "  --tensor=N          tensor size for train (1)\n"
    "  --host-collectives  collectives through host memory; ranks may share a GPU\n"
    "  --own-attention     no cuDNN\n"
    "  --fast-attention    cuDNN, not deterministic\n"
    "  --tiny              all but ops at sizes for a machine without a GPU\n";

static const struct part {
    const char *name;
    z3d_status (*run)(check_context *context);
} parts[] = {{"ops", check_ops},       {"train", check_training}, {"capture", check_captures},
             {"memory", check_memory}, {"speed", check_speed},    {"models", check_speed},
             {"llama", check_speed},   {"kernels", check_speed},  {"attention", check_speed},
             {"nccl", check_nccl}};

void check_say(check_context *context, check_kind kind, const char *name, const char *format, ...) {
    static const char *const words[] = {"ok", "FAILED", "info"};
    va_list arguments;
    context->said[kind]++;
    if (z3d_world_rank(context->world) != 0 && kind != CHECK_FAILED) return;
    printf("%-7s %-46s ", words[kind], name);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
}

bool check_ran(check_context *context, z3d_status status, const char *name) {
    if (status == Z3D_OK) return true;
    if (z3d_world_size(context->world) > 1)
        z3d_world_abort(context->world, status, z3d_error_message());
    check_report(context, false, name, "%s", z3d_error_message());
    return false;
}

static void run_part(check_context *context, const char *name) {
    z3d_status status = Z3D_ERROR(Z3D_ERR_USAGE, "there is no such part");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(name, parts[i].name) == 0) {
            context->part = name;
            status = parts[i].run(context);
        }
    check_ran(context, status, name);
}

static bool take_option(check_context *context, const char *word) {
    z3d_device_config *cuda = &context->cuda;
    const bool own = strcmp(word, "--own-attention") == 0;
    bool *flag = strcmp(word, "--tiny") == 0               ? &context->tiny
                 : strcmp(word, "--host-collectives") == 0 ? &cuda->host_collectives
                 : strcmp(word, "--fast-attention") == 0   ? &cuda->nondeterministic
                                                           : NULL;
    if (flag) *flag = true;
    if (own) cuda->attention = Z3D_ATTENTION_OWN;
    return flag || own || sscanf(word, "--steps=%d", &context->steps) == 1 ||
           sscanf(word, "--tensor=%d", &context->tensor) == 1;
}

int main(int argc, char **argv) {
    check_context context = {.cuda = {.backend = "cuda", .nccl_windows = true}, .tensor = 1};
    int at = 1;
    while (at < argc && take_option(&context, argv[at])) at++;
    if (at == argc || argv[at][0] == '-' || context.steps < 0 || context.tensor < 1) {
        fputs(usage, stderr);
        return 2;
    }
    if (z3d_world_create(&argc, &argv, &context.world) != Z3D_OK) {
        fprintf(stderr, "zero3d: %s\n", z3d_error_message());
        return 1;
    }
    context.cuda.local_rank = z3d_world_local_rank(context.world);
    for (; at < argc; at++) run_part(&context, argv[at]);
    if (z3d_world_rank(context.world) == 0)
        printf("%d checks held, %d failed\n", context.said[CHECK_OK], context.said[CHECK_FAILED]);
    z3d_world_destroy(context.world);
    return context.said[CHECK_FAILED] > 0;
}
