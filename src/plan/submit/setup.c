/* The lines that prepare a node for the ranks: modules, variables, an environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/plan/submit/submit.h"

/* where: "--setup" or a file and a line's number. */
static z3d_status check_line(const char *where, const char *line, size_t length) {
    if (memchr(line, '\r', length))
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "%s: there is a carriage return, which a shell takes for a part of the "
                         "word; end lines with line feeds only",
                         where);
    if (length >= 7 && strncmp(line, "#SBATCH", 7) == 0)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "%s: sbatch does not read '#SBATCH' here; write --sbatch OPTION of submit",
                         where);
    return Z3D_OK;
}

static z3d_status append_file(const char *path, z3d_string *out) {
    enum { MOST = 1 << 20 };
    char *text, where[4096];
    size_t length;
    Z3D_TRY(z3d_read_file(path, MOST, &text, &length));
    z3d_status status = Z3D_OK;
    if (strlen(text) < length)
        status =
            Z3D_ERROR(Z3D_ERR_CONFIG, "%s: it has a NUL byte: no file of a shell's lines", path);
    int number = 1;
    for (const char *line = text; *line && status == Z3D_OK; number++) {
        const size_t bytes = strcspn(line, "\n");
        snprintf(where, sizeof where, "%s:%d", path, number);
        status = check_line(where, line, bytes);
        z3d_string_append(out, "%.*s\n", (int)bytes, line);
        line += bytes + (line[bytes] == '\n');
    }
    free(text);
    return status;
}

/* The lines must be whole commands, because they become the body of a function: an open quote or
 * `if` would swallow the rest of the script. Without bash on this machine nothing is checked. */
static z3d_status check_syntax(const z3d_string *lines) {
    FILE *bash = popen("exec bash -n 2>/dev/null", "we");
    if (!bash) return Z3D_OK;
    fprintf(bash, "setup() {\n:\n%s}\n", lines->text);
    const int code = pclose(bash);
    if (code != 2 << 8 && code != 1 << 8) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "bash does not understand the setup: does a quote, a bracket, an if or a "
                     "backslash at a line's end stay open?");
}

z3d_status z3d_job_setup(const char *file, const char *const *lines, int count, z3d_string *out) {
    if (file) Z3D_TRY(append_file(file, out));
    for (int i = 0; i < count; i++) {
        if (strchr(lines[i], '\n'))
            return Z3D_ERROR(Z3D_ERR_CONFIG,
                             "--setup takes one line: give --setup for each, or --setup-file FILE");
        Z3D_TRY(check_line("--setup", lines[i], strlen(lines[i])));
        z3d_string_append(out, "%s\n", lines[i]);
    }
    if (out->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the lines of a setup");
    return out->length ? check_syntax(out) : Z3D_OK;
}
