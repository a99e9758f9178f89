/* zero3d digest: compares the digests of two runs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/cli/cli.h"

static const char help[] =
    "usage: zero3d digest A B\n"
    "\n"
    "Compares two digest files and names the first instruction whose output differs. A file\n"
    "belongs to one rank of a run with `zero3d train --digest`. Each line is one instruction of\n"
    "the step program:\n"
    "\n"
    "  step index hash description\n"
    "\n"
    "The runs begin to differ at the first line that differs. Later differences follow from it.\n"
    "\n"
    "Exit code: 0: the files are equal; 1: they differ, or cannot be read; 2: wrong usage.\n"
    "\n"
    "example: zero3d digest runs/a/digest-rank0.txt runs/b/digest-rank0.txt\n";

typedef struct reader {
    const char *path;
    FILE *file;
    char *line;
    size_t capacity;
} reader;

static z3d_status open_reader(reader *r, const char *path) {
    *r = (reader){.path = path, .file = fopen(path, "r")};
    if (!r->file) return Z3D_ERROR(Z3D_ERR_IO, "%s: %s", path, strerror(errno));
    return Z3D_OK;
}

static void close_reader(reader *r) {
    if (r->file) fclose(r->file);
    free(r->line);
}

/* The next line without its newline, NULL at the end. */
static z3d_status next_line(reader *r, const char **out) {
    errno = 0;
    ssize_t length = getline(&r->line, &r->capacity, r->file);
    *out = NULL;
    if (length < 0) {
        if (ferror(r->file) || errno == ENOMEM)
            return Z3D_ERROR(Z3D_ERR_IO, "%s: %s", r->path, strerror(errno));
        return Z3D_OK;
    }
    if (length > 0 && r->line[length - 1] == '\n') r->line[length - 1] = '\0';
    *out = r->line;
    return Z3D_OK;
}

static z3d_status compare(reader *a, reader *b, cli_answer *out) {
    for (long number = 1;; number++) {
        const char *left, *right;
        Z3D_TRY(next_line(a, &left));
        Z3D_TRY(next_line(b, &right));
        if (!left && !right) {
            if (number == 1)
                return Z3D_ERROR(Z3D_ERR_DATA, "%s and %s are empty; there is nothing to compare",
                                 a->path, b->path);
            z3d_string_append(&out->text, "equal: %ld instructions\n", number - 1);
            return Z3D_OK;
        }
        if (left && right && strcmp(left, right) == 0) continue;
        out->code = CLI_FAILED;
        z3d_string_append(&out->text,
                          "first difference: line %ld, after %ld equal instructions\n"
                          "  %s\n"
                          "    %s\n"
                          "  %s\n"
                          "    %s\n",
                          number, number - 1, a->path, left ? left : "(ends here)", b->path,
                          right ? right : "(ends here)");
        return Z3D_OK;
    }
}

static z3d_status answer(int argc, char **argv, cli_answer *out) {
    const cli_option options[] = {{.name = NULL}};
    int count;
    reader a = {0}, b = {0};
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    if (count != 2) return Z3D_ERROR(Z3D_ERR_USAGE, "expected two digest files, got %d", count);
    z3d_status status = open_reader(&a, argv[1]);
    if (status == Z3D_OK) status = open_reader(&b, argv[2]);
    if (status == Z3D_OK) status = compare(&a, &b, out);
    close_reader(&a);
    close_reader(&b);
    return status;
}

const cli_command cli_digest = {"digest", "find the first instruction in which two runs differ",
                                help,     answer,
                                NULL,     false,
                                NULL,     false};
