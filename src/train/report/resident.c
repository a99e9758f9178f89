/* Reads /proc/self/smaps: one paragraph per mapping; "Rss:" is its resident memory. */
#include "src/train/report/resident.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

const char *z3d_resident_name(z3d_resident_part part) {
    static const char *const names[] = {
#define X(NAME, text) text,
        Z3D_RESIDENT_MAP(X)
#undef X
    };
    return names[part];
}

static bool has(const char *path, const char *const *words) {
    for (; *words; words++)
        if (strstr(path, *words)) return true;
    return false;
}

static z3d_resident_part part_of(const char *path, const char *program) {
    static const char *const mpi[] = {"libmpi", "openmpi", "libopen-", "mca_",      "pmix",
                                      "libuc",  "fabric",  "libpsm",   "ibverbs",   "librdma",
                                      "mpich",  "ompi",    "vader",    "/dev/shm/", NULL};
    if (path[0] != '/') return Z3D_RESIDENT_HEAP;
    if (program[0] && strcmp(path, program) == 0) return Z3D_RESIDENT_PROGRAM;
    if (strstr(path, "/dev/shm/zero3d-")) return Z3D_RESIDENT_EXCHANGE;
    if (has(path, mpi)) return Z3D_RESIDENT_MPI;
    const char *library = strstr(path, ".so");
    if (library && (library[3] == '\0' || library[3] == '.')) return Z3D_RESIDENT_LIBRARIES;
    return strncmp(path, "/dev/", 5) == 0 ? Z3D_RESIDENT_HEAP : Z3D_RESIDENT_FILES;
}

/* Bytes that mapping and stretch share. */
static int64_t overlap(uintptr_t begin, uintptr_t end, const z3d_stretch *stretch) {
    uintptr_t from = (uintptr_t)stretch->at, to = from + (uintptr_t)stretch->bytes;
    to = (to + 4095) / 4096 * 4096; /* the whole last page counts */
    if (from < begin) from = begin;
    if (to > end) to = end;
    return stretch->bytes > 0 && to > from ? (int64_t)(to - from) : 0;
}

/* Divides the `bytes` resident bytes of a mapping: known stretches first, the rest goes to `part`.
 */
static void share(uintptr_t begin, uintptr_t end, z3d_resident_part part, int64_t bytes,
                  const z3d_stretch *known, int count, z3d_resident *out) {
    out->sum += bytes;
    for (int i = 0; i < count; i++) {
        int64_t of = overlap(begin, end, &known[i]);
        if (of > bytes) of = bytes;
        out->bytes[known[i].part] += of;
        bytes -= of;
    }
    out->bytes[part] += bytes;
}

static bool parse_header(const char *line, uintptr_t *begin, uintptr_t *end, const char **path) {
    unsigned long long from, to;
    int at = 0;
    if (sscanf(line, "%llx-%llx %*4s %*s %*s %*s %n", &from, &to, &at) != 2 || at == 0)
        return false;
    *begin = (uintptr_t)from;
    *end = (uintptr_t)to;
    *path = line + at;
    return true;
}

bool z3d_resident_parse(FILE *smaps, const char *program, const z3d_stretch *known, int count,
                        z3d_resident *out) {
    char line[4096 + 128];
    uintptr_t begin = 0, end = 0;
    z3d_resident_part part = Z3D_RESIDENT_HEAP;
    bool understood = false;
    *out = (z3d_resident){.system = -1};
    while (fgets(line, sizeof line, smaps)) {
        const char *path;
        long long kilobytes;
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "Rss: %lld kB", &kilobytes) == 1) {
            share(begin, end, part, kilobytes * 1024, known, count, out);
            understood = true;
        } else if (parse_header(line, &begin, &end, &path)) {
            part = part_of(path, program);
        }
    }
    return understood;
}

/* Every step calls this, so it uses no FILE, which would allocate. */
int64_t z3d_process_bytes(const char *name) {
    char text[4096];
    long long kilobytes;
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    const char *line = strstr(text, name);
    if (!line || sscanf(line + strlen(name), "%lld kB", &kilobytes) != 1) return -1;
    return kilobytes * 1024;
}

bool z3d_resident_read(const z3d_stretch *known, int count, z3d_resident *out) {
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    FILE *file = fopen("/proc/self/smaps", "re");
    if (!file) return false;
    bool read = z3d_resident_parse(file, program, known, count, out);
    fclose(file);
    out->system = z3d_process_bytes("VmRSS:");
    return read && out->system >= 0;
}
