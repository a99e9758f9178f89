#include "src/base/output.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const z3d_output_kind z3d_output_page = {
    "page of zero3d", "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                      "<meta name=\"generator\" content=\"zero3d\">\n"};
const z3d_output_kind z3d_output_picture = {"picture of zero3d", "<svg class=\"zero3d\" "};
const z3d_output_kind z3d_output_timeline = {
    "timeline of zero3d",
    "[\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":0,\"args\":{\"sort_index\":0}}"};
const z3d_output_kind z3d_output_script = {"script of submit",
                                           "#!/bin/bash\n# Written by: zero3d submit "};
const z3d_output_kind z3d_output_config = {"configuration that plan has written",
                                           "# Written by `zero3d plan "};
const z3d_output_kind z3d_output_machine = {"machine's description of doctor",
                                            "# Measured by `zero3d doctor --measure` "};
const z3d_output_kind z3d_output_software = {"description of software that was fitted",
                                             "# Software, fitted by `zero3d "};

bool z3d_file_begins(const char *path, const void *bytes, size_t count) {
    char start[256];
    struct stat info;
    if (count > sizeof start || stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    const bool whole = read(fd, start, count) == (ssize_t)count;
    close(fd);
    return whole && memcmp(start, bytes, count) == 0;
}

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool stat_folder_of(const char *path, struct stat *out) {
    const char *name = name_of(path);
    char *folder = name > path ? strndup(path, (size_t)(name - path)) : strdup(".");
    const bool known = folder && stat(folder, out) == 0;
    free(folder);
    return known;
}

bool z3d_same_place(const char *a, const char *b) {
    struct stat folder_a, folder_b;
    if (!stat_folder_of(a, &folder_a) || !stat_folder_of(b, &folder_b)) return strcmp(a, b) == 0;
    return strcmp(name_of(a), name_of(b)) == 0 && same_file(&folder_a, &folder_b);
}

z3d_status z3d_output_is_no_input(const char *path, bool own, const char *const *inputs,
                                  int count) {
    struct stat output, folder, input;
    if (stat(path, &output) != 0) return Z3D_OK;
    const bool inside = !own && S_ISREG(output.st_mode) && stat_folder_of(path, &folder);
    for (int i = 0; i < count; i++) {
        if (!inputs[i] || stat(inputs[i], &input) != 0) continue;
        if (same_file(&input, &output))
            return Z3D_ERROR(Z3D_ERR_USAGE,
                             "%s is an input: the output would replace it; name another file",
                             path);
        if (inside && same_file(&input, &folder))
            return Z3D_ERROR(Z3D_ERR_USAGE,
                             "%s is a file of %s, which is an input; name another file", path,
                             inputs[i]);
    }
    return Z3D_OK;
}

z3d_status z3d_output_check(const char *path, const char *kind, bool own, bool force) {
    struct stat info;
    if (own || stat(path, &info) != 0) return Z3D_OK;
    if (S_ISDIR(info.st_mode)) return Z3D_ERROR(Z3D_ERR_USAGE, "%s is a folder; name a file", path);
    if (force || !S_ISREG(info.st_mode) || info.st_size == 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_USAGE,
                     "%s exists and is no %s: it is not overwritten; name another file, or write "
                     "--force",
                     path, kind);
}
