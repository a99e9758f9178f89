/* Steps of a save that an import needs, too: the check of free space, a folder for the step, and
 * the manifest that makes the folder a checkpoint. */
#include <hdf5.h>
#include <sys/statvfs.h>
#include <xxhash.h>

#include "checkpoint/store.h"

z3d_status z3d_libraries(char **out) {
    unsigned major = 0, minor = 0, release = 0, xxhash = XXH_versionNumber();
    z3d_string text = {0};
    H5get_libversion(&major, &minor, &release);
    z3d_string_append(&text, "HDF5 %u.%u.%u, xxHash %u.%u.%u", major, minor, release,
                      xxhash / 10000, xxhash / 100 % 100, xxhash % 100);
    *out = text.text;
    return text.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a checkpoint's texts") : Z3D_OK;
}

z3d_status z3d_space_check(const char *dir, const int64_t *sizes, int shards) {
    struct statvfs disk;
    z3d_pending_io io;
    char need_text[32], shard_text[32], other_text[32], free_text[32];
    int64_t written = 0, other = 1 << 20;
    for (int s = 0; s < shards; s++) {
        written += sizes[s];
        other += sizes[s] / 1000 + 65536;
    }
    z3d_pending_io_begin(&io, "checkpoint: checking the free space of", dir);
    bool known = statvfs(dir, &disk) == 0 && disk.f_blocks != 0;
    z3d_pending_io_end(&io);
    if (!known) return Z3D_OK;
    /* In floating point: some file systems say that they have more than 2^63 bytes. */
    double available = (double)disk.f_bavail * (double)disk.f_frsize;
    if (available >= (double)(written + other)) return Z3D_OK;
    return Z3D_ERROR(
        Z3D_ERR_IO,
        "%s: not enough space for a checkpoint: %s needed (at most %s of shards, and %s for the "
        "files that describe them), %s free",
        dir, z3d_format_bytes(written + other, need_text, sizeof need_text),
        z3d_format_bytes(written, shard_text, sizeof shard_text),
        z3d_format_bytes(other, other_text, sizeof other_text),
        z3d_format_bytes((int64_t)available, free_text, sizeof free_text));
}

z3d_status z3d_step_folder_make(const z3d_io_hook *hook, const char *folder) {
    bool complete;
    Z3D_TRY(z3d_io_has(folder, Z3D_MANIFEST, &complete));
    if (complete)
        return Z3D_ERROR(Z3D_ERR_IO, "%s already holds a checkpoint of this step", folder);
    Z3D_TRY(z3d_remains_remove(hook, folder));
    return z3d_io_make_folder(hook, folder);
}

z3d_status z3d_commit(z3d_manifest *m, const z3d_io_hook *hook, const char *folder) {
    z3d_string text = {0};
    Z3D_TRY(z3d_virtual_write(m, hook, folder, &m->file[m->num_files]));
    m->num_files++;
    z3d_status status = z3d_manifest_write(m, &text);
    if (status == Z3D_OK)
        status = z3d_io_write_file(hook, folder, Z3D_MANIFEST, text.text, (int64_t)text.length);
    z3d_string_free(&text);
    return status;
}
