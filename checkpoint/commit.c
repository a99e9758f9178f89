/* What saving a run's state and importing a model share: room, a folder for the step, the manifest
 * that makes it a checkpoint, and the lock that keeps two from doing it in one folder. */
#include <dirent.h>
#include <errno.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <xxhash.h>

#include "checkpoint/store.h"

const z3d_folder_lock_use z3d_checkpoint_lock = {
    .file = "lock",
    .busy =
        "another job saves its checkpoints there now; give this run a checkpoint.dir of its own, "
        "or wait until the other job ends",
    .lost = "its lock file was removed during the save: another job may have saved its checkpoints "
            "there",
};

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
    z3d_errand errand;
    char need_text[32], free_text[32];
    int64_t need = 1 << 20;
    for (int s = 0; s < shards; s++) need += sizes[s] + sizes[s] / 1000 + 65536;
    z3d_errand_begin(&errand, "checkpoint: looking for space in", dir);
    bool known = statvfs(dir, &disk) == 0 && disk.f_blocks != 0;
    z3d_errand_end(&errand);
    if (!known) return Z3D_OK;
    /* In floating point: some file systems say that they have more than 2^63 bytes. */
    double room = (double)disk.f_bavail * (double)disk.f_frsize;
    if (room >= (double)need) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_IO,
                     "%s: too little space for a checkpoint: %s are needed, %s are free", dir,
                     z3d_format_bytes(need, need_text, sizeof need_text),
                     z3d_format_bytes((int64_t)room, free_text, sizeof free_text));
}

/* Whether a save, or a removal on a network file system, may have left a file of this name. */
static bool is_ours(const char *name) {
    static const char *const ours[] = {"shard-", Z3D_VIRTUAL_FILE, Z3D_MANIFEST, ".nfs"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strncmp(name, ours[i], strlen(ours[i])) == 0) return true;
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

z3d_status z3d_remains_remove(const z3d_io_hook *hook, const char *folder) {
    struct stat info;
    z3d_errand errand;
    z3d_status status = Z3D_OK;
    z3d_errand_begin(&errand, "checkpoint: listing", folder);
    /* A link is removed, and not what it leads to. */
    bool real = lstat(folder, &info) == 0 && S_ISDIR(info.st_mode);
    DIR *list = real ? opendir(folder) : NULL;
    errno = 0;
    for (struct dirent *entry; list && status == Z3D_OK && (entry = readdir(list)); errno = 0)
        if (!is_ours(entry->d_name))
            status =
                Z3D_ERROR(Z3D_ERR_IO,
                          "%s: has no %s, so it is no checkpoint, and %.100s in it, so it is no "
                          "remains of one: move it away, or give this run a checkpoint.dir of "
                          "its own",
                          folder, Z3D_MANIFEST, entry->d_name);
    if (list && status == Z3D_OK && errno != 0)
        status = Z3D_ERROR(Z3D_ERR_IO, "cannot list %s: %s", folder, strerror(errno));
    if (list) closedir(list);
    z3d_errand_end(&errand);
    return status == Z3D_OK ? z3d_io_remove_tree(hook, folder, NULL) : status;
}

z3d_status z3d_step_folder_make(const z3d_io_hook *hook, const char *folder) {
    bool complete;
    Z3D_TRY(z3d_manifest_exists(folder, &complete));
    if (complete)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: there is a checkpoint of this step already", folder);
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
