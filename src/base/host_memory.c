/* Reads /proc/meminfo, and the limits of the memory cgroups that this process is in. */
#include "src/base/host_memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/strings.h"

enum { PATH = 4096 };

/* The files of a version of cgroups. The kernel can take back the part of the usage that only
 * caches files. */
typedef struct version {
    const char *type, *limit, *usage, *inactive, *active;
} version;

static const version versions[] = {
    {"cgroup", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ",
     "total_active_file "},
    {"cgroup2", "memory.max", "memory.current", "inactive_file ", "active_file "},
};

/* The number after `name` in the first line of `path` that begins with `name`; -1: none, or a word.
 */
static int64_t read_number(const char *path, const char *name) {
    char line[256];
    long long value = -1;
    size_t length = strlen(name);
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, name, length) != 0) continue;
        if (sscanf(line + length, "%lld", &value) != 1) value = -1;
        break;
    }
    fclose(file);
    return value;
}

/* The same for a file in a folder; -1: none. */
static int64_t number_in(const char *folder, const char *file, const char *name) {
    char path[4 * PATH];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return read_number(path, name);
}

/* Lowers *out to the memory that the cgroup in `folder` leaves, if that is less. */
static void look_at(const version *v, const char *folder, const char *name, z3d_host_memory *out) {
    char text[32];
    int64_t limit = number_in(folder, v->limit, ""), usage = number_in(folder, v->usage, "");
    if (limit >= 0 && limit < out->nominal) out->nominal = limit;
    if (limit < 0 || usage < 0) return;
    int64_t inactive = number_in(folder, "memory.stat", v->inactive);
    int64_t active = number_in(folder, "memory.stat", v->active);
    int64_t cached = (inactive > 0 ? inactive : 0) + (active > 0 ? active : 0);
    if (cached > usage) cached = usage; /* the two were read at different times */
    int64_t left = limit - (usage - cached);
    if (left < 0) left = 0;
    if (left >= out->bytes) return;
    out->bytes = left;
    snprintf(out->from, sizeof out->from, " (memory cgroup %.100s is limited to %s)",
             *name ? name : "/", z3d_format_bytes(limit, text, sizeof text));
}

/* This process's cgroup in a hierarchy: "4:memory:/a/b" of version 1, "0::/a/b" of version 2. */
static bool find_group(const char *root, bool first, char *out, size_t size) {
    char line[PATH];
    bool found = false;
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *file = fopen(line, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'),
             *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        found = first ? strstr(controllers, "memory") != NULL : controllers[1] == '\0';
        if (found) snprintf(out, size, "%s", path);
    }
    if (file) fclose(file);
    return found;
}

/* Looks at all cgroups from the process's own up to the mounted one. A container may mount a part
 * of the hierarchy; then the part's name is the beginning of the process's name. */
static void look_up(const version *v, const char *root, const char *mounted, const char *point,
                    z3d_host_memory *out) {
    char group[PATH], folder[3 * PATH];
    if (!find_group(root, v == &versions[0], group, sizeof group)) return;
    size_t begin = strcmp(mounted, "/") == 0 ? 0 : strlen(mounted);
    const char *name = strncmp(group, mounted, begin) == 0 ? group + begin : "";
    size_t head = (size_t)snprintf(folder, sizeof folder, "%s%s", root, point);
    snprintf(folder + head, sizeof folder - head, "%s", name);
    for (char *last = folder; last;) {
        look_at(v, folder, folder + head, out);
        last = strrchr(folder + head, '/');
        if (last) *last = '\0';
    }
}

/* A line of mountinfo: "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory". */
static void look_at_mount(const char *line, const char *root, z3d_host_memory *out) {
    char mounted[PATH], point[PATH], type[32], options[PATH];
    const char *rest = strstr(line, " - ");
    if (!rest || sscanf(line, "%*s %*s %*s %4095s %4095s", mounted, point) != 2 ||
        sscanf(rest, " - %31s %*s %4095s", type, options) != 2)
        return;
    for (int k = 0; k < 2; k++)
        if (strcmp(type, versions[k].type) == 0 && (k == 1 || strstr(options, "memory")))
            look_up(&versions[k], root, mounted, point, out);
}

void z3d_host_memory_read(const char *root, z3d_host_memory *out) {
    char path[PATH], *line = NULL;
    size_t capacity = 0;
    *out = (z3d_host_memory){.nominal = INT64_MAX, .bytes = INT64_MAX};
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    int64_t total = read_number(path, "MemTotal:"), kilobytes = read_number(path, "MemAvailable:");
    if (total >= 0) out->nominal = total * 1024;
    if (kilobytes >= 0) out->bytes = kilobytes * 1024;
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
    FILE *mounts = fopen(path, "re");
    if (!mounts) return;
    while (getline(&line, &capacity, mounts) > 0) look_at_mount(line, root, out);
    free(line);
    fclose(mounts);
}

void z3d_host_memory_find(z3d_host_memory *out) {
    z3d_host_memory_read("", out);
}
