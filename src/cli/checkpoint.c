/* zero3d checkpoint list | show | verify | diff | export */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "src/cli/cli.h"

static const char help[] =
    "usage: zero3d checkpoint list DIR\n"
    "       zero3d checkpoint show CHECKPOINT\n"
    "       zero3d checkpoint verify CHECKPOINT\n"
    "       zero3d checkpoint diff A B\n"
    "       zero3d checkpoint export CHECKPOINT FOLDER\n"
    "\n"
    "  list     the checkpoints in a folder (a run's are in RUN/checkpoints), oldest first\n"
    "  show     what a checkpoint is of: step, topology, tensors, the run's configuration\n"
    "  verify   reads every byte of a checkpoint and checks it against its digests\n"
    "  diff     compares all tensors of two checkpoints; they may have different topologies\n"
    "  export   writes model.safetensors and config.json, as Hugging Face's GPT-2 has them\n"
    "\n"
    "CHECKPOINT is a checkpoint's folder, or a folder of checkpoints: its newest is meant.\n"
    "Exit code: 0, or 1 when there is damage or a difference.\n"
    "\n"
    "example: zero3d checkpoint verify runs/demo/checkpoints\n";

static z3d_status open_path(const char *path, z3d_checkpoint **out) {
    char *folder;
    *out = NULL;
    Z3D_TRY(z3d_checkpoint_resolve(path, &folder));
    z3d_status status = z3d_checkpoint_open(folder, out);
    free(folder);
    return status;
}

/* ---- list ---- */

static void list_line(const char *dir, int64_t step, z3d_string *text) {
    char *folder = NULL;
    z3d_checkpoint *c = NULL;
    if (z3d_checkpoint_path(dir, step, &folder) == Z3D_OK &&
        z3d_checkpoint_open(folder, &c) == Z3D_OK) {
        const z3d_checkpoint_info *info = z3d_checkpoint_get_info(c);
        z3d_string_append(text, "%10lld  tensor %d x data %d, ZeRO stage %d, %s  %s\n",
                          (long long)step, info->tensor_size, info->data_size, info->zero_stage,
                          z3d_dtype_name(info->dtype), folder);
    } else {
        z3d_string_append(text, "%10lld  cannot be used: %s\n", (long long)step,
                          z3d_error_message());
    }
    z3d_checkpoint_close(c);
    free(folder);
}

static z3d_status list(int count, char **arguments, z3d_string *text, bool *bad) {
    int64_t *steps;
    int found;
    (void)bad;
    (void)count;
    Z3D_TRY(z3d_checkpoint_list(arguments[0], &steps, &found));
    if (found == 0) {
        free(steps);
        return Z3D_ERROR(Z3D_ERR_IO, "%s: there is no checkpoint in it", arguments[0]);
    }
    for (int i = 0; i < found; i++) list_line(arguments[0], steps[i], text);
    free(steps);
    return Z3D_OK;
}

/* ---- show ---- */

static void show_tensors(const z3d_checkpoint *c, z3d_string *text) {
    int64_t parameters = 0;
    char number[32];
    for (int i = 0; i < z3d_checkpoint_num_tensors(c); i++) {
        const char *group, *name;
        const int64_t *shape;
        int dims;
        z3d_part whole;
        z3d_checkpoint_tensor(c, i, &group, &name, &dims, &shape);
        z3d_checkpoint_whole(c, i, &whole);
        parameters += whole.count;
        z3d_string_append(text, "  %s/%s [", group, name);
        for (int d = 0; d < dims; d++)
            z3d_string_append(text, "%s%lld", d ? ", " : "", (long long)shape[d]);
        z3d_string_append(text, "]\n");
    }
    z3d_string_append(text, "parameters: %s, each with momentum and variance, fp32\n",
                      z3d_format_count((double)parameters, number, sizeof number));
}

static z3d_status show(int count, char **arguments, z3d_string *text, bool *bad) {
    z3d_checkpoint *c;
    (void)bad;
    (void)count;
    Z3D_TRY(open_path(arguments[0], &c));
    const z3d_checkpoint_info *info = z3d_checkpoint_get_info(c);
    z3d_string_append(text,
                      "step: %lld (%lld optimizer steps, %lld samples)\n"
                      "saved by: %s (%s), tensor %d x data %d, ZeRO stage %d, %s\n",
                      (long long)info->engine.step, (long long)info->engine.optimizer_step,
                      (long long)info->samples, info->program, info->libraries, info->tensor_size,
                      info->data_size, info->zero_stage, z3d_dtype_name(info->dtype));
    if (info->dtype == Z3D_F16)
        z3d_string_append(text, "loss scale: %g\n", (double)info->engine.loss_scale);
    z3d_string_append(text, "tensors:\n");
    show_tensors(c, text);
    z3d_string_append(text, "configuration:\n");
    for (const char *line = info->config; *line;) {
        int length = (int)strcspn(line, "\n");
        z3d_string_append(text, "  %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
    z3d_checkpoint_close(c);
    return Z3D_OK;
}

/* ---- verify ---- */

static z3d_status verify(int count, char **arguments, z3d_string *text, bool *bad) {
    z3d_checkpoint *c;
    int64_t bytes = 0;
    char size[32];
    (void)bad;
    (void)count;
    Z3D_TRY(open_path(arguments[0], &c));
    z3d_status status = z3d_checkpoint_check(c, Z3D_VERIFY_FULL, 0, 1, &bytes);
    if (status == Z3D_OK)
        z3d_string_append(text, "step %lld: whole, all %s give their digests\n",
                          (long long)z3d_checkpoint_get_info(c)->engine.step,
                          z3d_format_bytes(bytes, size, sizeof size));
    z3d_checkpoint_close(c);
    return status;
}

/* ---- diff ---- */

enum { CHUNK = 1 << 18 };

typedef struct difference {
    int64_t elements;
    double largest;
} difference;

/* Bit by bit: two NaNs of the same bits are equal, 0 and -0 are not. */
static void compare_chunk(const float *a, const float *b, int64_t count, difference *d) {
    for (int64_t k = 0; k < count; k++) {
        uint32_t bits_a, bits_b;
        memcpy(&bits_a, &a[k], sizeof bits_a);
        memcpy(&bits_b, &b[k], sizeof bits_b);
        if (bits_a == bits_b) continue;
        double distance = fabs((double)a[k] - (double)b[k]);
        d->elements++;
        if (!(distance <= d->largest)) d->largest = distance;
    }
}

static z3d_status compare_state(z3d_checkpoint *a, z3d_checkpoint *b, int kind, int i, int j,
                                float *chunk, difference *d) {
    z3d_part whole;
    z3d_checkpoint_whole(a, i, &whole);
    for (int64_t at = 0; at < whole.count; at += CHUNK) {
        int64_t count = whole.count - at < CHUNK ? whole.count - at : CHUNK;
        Z3D_TRY(z3d_checkpoint_read(a, (z3d_tensor_kind)kind, i, &whole, at, count, chunk));
        Z3D_TRY(z3d_checkpoint_read(b, (z3d_tensor_kind)kind, j, &whole, at, count, chunk + CHUNK));
        compare_chunk(chunk, chunk + CHUNK, count, d);
    }
    return Z3D_OK;
}

static bool same_shape(const z3d_checkpoint *a, int i, const z3d_checkpoint *b, int j) {
    const char *group, *name;
    const int64_t *shape_a, *shape_b;
    int dims_a, dims_b;
    z3d_part whole_a, whole_b;
    z3d_checkpoint_tensor(a, i, &group, &name, &dims_a, &shape_a);
    z3d_checkpoint_tensor(b, j, &group, &name, &dims_b, &shape_b);
    z3d_checkpoint_whole(a, i, &whole_a);
    z3d_checkpoint_whole(b, j, &whole_b);
    return dims_a == dims_b && memcmp(shape_a, shape_b, (size_t)dims_a * sizeof *shape_a) == 0 &&
           memcmp(&whole_a, &whole_b, sizeof whole_a) == 0;
}

static z3d_status compare_tensors(z3d_checkpoint *a, z3d_checkpoint *b, float *chunk,
                                  z3d_string *text, bool *bad) {
    static const char *const kinds[] = {"parameter", "momentum", "variance"};
    int matched = 0;
    for (int i = 0; i < z3d_checkpoint_num_tensors(a); i++) {
        const char *group, *name;
        const int64_t *shape;
        int dims;
        z3d_checkpoint_tensor(a, i, &group, &name, &dims, &shape);
        int j = z3d_checkpoint_find(b, group, name);
        matched += j >= 0;
        if (j < 0 || !same_shape(a, i, b, j)) {
            z3d_string_append(text, "%s/%s: %s in the second\n", group, name,
                              j < 0 ? "not" : "of another shape");
            *bad = true;
            continue;
        }
        for (int kind = 0; kind < 3; kind++) {
            difference d = {0};
            Z3D_TRY(compare_state(a, b, kind, i, j, chunk, &d));
            if (d.elements == 0) continue;
            z3d_string_append(text, "%s of %s/%s: %lld elements differ, by %g at most\n",
                              kinds[kind], group, name, (long long)d.elements, d.largest);
            *bad = true;
        }
    }
    if (matched < z3d_checkpoint_num_tensors(b)) {
        z3d_string_append(text, "%d tensors only in the second\n",
                          z3d_checkpoint_num_tensors(b) - matched);
        *bad = true;
    }
    return Z3D_OK;
}

static z3d_status diff(int count, char **arguments, z3d_string *text, bool *bad) {
    z3d_checkpoint *a = NULL, *b = NULL;
    float *chunk = NULL;
    (void)count;
    z3d_status status = open_path(arguments[0], &a);
    if (status == Z3D_OK) status = open_path(arguments[1], &b);
    if (status == Z3D_OK) status = z3d_new(2 * CHUNK, sizeof *chunk, "a buffer", &chunk);
    if (status == Z3D_OK) status = compare_tensors(a, b, chunk, text, bad);
    if (status == Z3D_OK && !*bad)
        z3d_string_append(text, "equal: all tensors of step %lld and step %lld, to the bit\n",
                          (long long)z3d_checkpoint_get_info(a)->engine.step,
                          (long long)z3d_checkpoint_get_info(b)->engine.step);
    free(chunk);
    z3d_checkpoint_close(a);
    z3d_checkpoint_close(b);
    return status;
}

/* ---- export ---- */

static z3d_status export(int count, char **arguments, z3d_string *text, bool *bad) {
    z3d_checkpoint *c;
    (void)bad;
    (void)count;
    Z3D_TRY(open_path(arguments[0], &c));
    z3d_status status = z3d_checkpoint_export(c, arguments[1]);
    if (status == Z3D_OK)
        z3d_string_append(text, "step %lld: written to %s/model.safetensors and config.json\n",
                          (long long)z3d_checkpoint_get_info(c)->engine.step, arguments[1]);
    z3d_checkpoint_close(c);
    return status;
}

static const struct {
    const char *name;
    int arguments;
    z3d_status (*run)(int count, char **arguments, z3d_string *text, bool *bad);
} tools[] = {{"list", 1, list},
             {"show", 1, show},
             {"verify", 1, verify},
             {"diff", 2, diff},
             {"export", 2, export}};

static z3d_status run_tool(int argc, char **argv, z3d_string *text, bool *bad) {
    const cli_option options[] = {{NULL, NULL, NULL}};
    int count;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    for (size_t i = 0; count > 0 && i < sizeof tools / sizeof *tools; i++) {
        if (strcmp(tools[i].name, argv[1]) != 0) continue;
        if (count - 1 != tools[i].arguments)
            return Z3D_ERROR(Z3D_ERR_USAGE, "checkpoint %s takes %s", argv[1],
                             tools[i].arguments == 1 ? "one folder" : "two folders");
        return tools[i].run(count - 1, argv + 2, text, bad);
    }
    return Z3D_ERROR(Z3D_ERR_USAGE, "what to do with checkpoints? there are list, show, verify, "
                                    "diff, export");
}

static int run(int argc, char **argv) {
    z3d_string text = {0};
    bool bad = false;
    z3d_status status = run_tool(argc, argv, &text, &bad);
    int code = status == Z3D_OK ? cli_print(&text) : cli_finish(status, "checkpoint");
    z3d_string_free(&text);
    return code == CLI_OK && bad ? CLI_FAILED : code;
}

const cli_command cli_checkpoint = {"checkpoint", "look at checkpoints, verify, compare", help,
                                    run};
