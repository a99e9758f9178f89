#include "src/train/text/outputs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/train/data/token_file.h"

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static z3d_status check_output(const z3d_tokenize_options *options, const char *path) {
    struct stat output, input;
    if (stat(path, &output) != 0) return Z3D_OK; /* a folder that is missing is made */
    for (int i = 0; i < options->count; i++)
        if (stat(options->inputs[i], &input) == 0 && same_file(&input, &output))
            return Z3D_ERROR(Z3D_ERR_USAGE,
                             "%s is an input: the tokens would replace it; name another file "
                             "for them",
                             path);
    if (S_ISREG(output.st_mode) && (output.st_size == 0 || z3d_is_token_file(path))) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_USAGE,
                     "%s exists and is no token file: it is not overwritten; name another file "
                     "for the tokens, or remove it",
                     path);
}

/* Of files that need not exist: one name in one folder. */
static bool same_place(const char *a, const char *b) {
    struct stat folder[2];
    const char *path[] = {a, b}, *name[2];
    for (int i = 0; i < 2; i++) {
        const char *slash = strrchr(path[i], '/');
        char *parent = slash ? strndup(path[i], (size_t)(slash + 1 - path[i])) : strdup(".");
        const bool known = parent && stat(parent, &folder[i]) == 0;
        free(parent);
        if (!known) return strcmp(a, b) == 0;
        name[i] = slash ? slash + 1 : path[i];
    }
    return strcmp(name[0], name[1]) == 0 && same_file(&folder[0], &folder[1]);
}

z3d_status z3d_check_outputs(const z3d_tokenize_options *options) {
    const char *train = options->output_train, *validation = options->output_validation;
    if (validation && same_place(train, validation))
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "%s cannot be both the training and the validation file (%s)", validation,
                         train);
    Z3D_TRY(check_output(options, train));
    return validation ? check_output(options, validation) : Z3D_OK;
}
