/* Checks the files that tokens are to be written to. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/train/data/token_file.h"
#include "src/train/text/tokenize_work.h"

/* If X.idx exists, X.bin is always read as Megatron-LM's. */
static z3d_status check_index(const char *path) {
    z3d_string index = {0};
    const size_t length = strlen(path), end = strlen(".bin");
    if (length <= end || strcmp(path + length - end, ".bin") != 0) return Z3D_OK;
    z3d_string_append(&index, "%.*s.idx", (int)(length - end), path);
    z3d_status status =
        index.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name") : Z3D_OK;
    if (status == Z3D_OK && access(index.text, F_OK) == 0)
        status =
            Z3D_ERROR(Z3D_ERR_USAGE,
                      "%s: %s is beside it, so it would be read as a file of Megatron-LM; give "
                      "another name, or remove the index",
                      path, index.text);
    z3d_string_free(&index);
    return status;
}

static z3d_status check_output(const z3d_tokenize_options *options, const char *path) {
    struct stat there;
    const bool own = z3d_is_token_file(path);
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) /* the final rename would replace it */
        return Z3D_ERROR(Z3D_ERR_USAGE, "%s is no regular file; name another for the tokens", path);
    Z3D_TRY(check_index(path));
    Z3D_TRY(z3d_output_is_no_input(path, own, options->inputs, options->count));
    return z3d_output_check(path, "token file", own, options->force);
}

z3d_status z3d_check_outputs(const z3d_tokenize_options *options) {
    const char *train = options->output_train, *validation = options->output_validation;
    if (validation && z3d_same_place(train, validation))
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "%s cannot be both the training and the validation file (%s)", validation,
                         train);
    Z3D_TRY(check_output(options, train));
    return validation ? check_output(options, validation) : Z3D_OK;
}
