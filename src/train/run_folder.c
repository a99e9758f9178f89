/* Keeps the files of earlier runs, and locks the folder. */
#include "src/train/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/folder_lock.h"

/* Another name than "lock", the lock file of the folder of checkpoints: both may be the same
 * folder. */
static const z3d_folder_lock_use run_lock = {
    .file = "run.lock",
    .busy = "another job writes to this run folder now; set another run.dir, or wait until the "
            "other job ends",
    .lost = "its lock file was removed",
};

/* The number in "metrics.1.jsonl" and "events.1"; 0: none. */
static int number_of(const char *name) {
    const char *point = strchr(name, '.');
    char *end = NULL;
    long number = point ? strtol(point + 1, &end, 10) : 0;
    bool whole = point && end != point + 1 && (*end == '\0' || *end == '.');
    return whole && number > 0 && number < 1000000 ? (int)number : 0;
}

/* Finds a number that is larger than all numbers in the folder. */
static z3d_status find_number(z3d_run_folder *folder) {
    DIR *directory = opendir(folder->path);
    if (!directory)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot list it: %s", folder->path, strerror(errno));
    folder->number = 1;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (number_of(entry->d_name) >= folder->number)
            folder->number = number_of(entry->d_name) + 1;
    closedir(directory);
    return Z3D_OK;
}

z3d_status z3d_run_folder_take(z3d_run_folder *folder, const char *path) {
    *folder = (z3d_run_folder){.path = path, .lock = -1};
    Z3D_TRY(z3d_make_folders(path));
    if (access(path, W_OK | X_OK) != 0)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot write there: %s", path, strerror(errno));
    Z3D_TRY(z3d_folder_lock_take(path, &run_lock, &folder->lock));
    return find_number(folder);
}

void z3d_run_folder_release(z3d_run_folder *folder) {
    if (folder->path) z3d_folder_lock_release(&folder->lock);
    z3d_string_free(&folder->list);
    *folder = (z3d_run_folder){.lock = -1};
}

enum { NAMED = 3 }; /* names in the line about kept files */

static bool is_event_file(const char *name) {
    return strncmp(name, "events.out.", 11) == 0;
}

z3d_status z3d_run_folder_kept_path(z3d_run_folder *folder, const char *name, z3d_string *path) {
    const char *end = strrchr(name, '.');
    int stem = end ? (int)(end - name) : (int)strlen(name);
    z3d_string_append(path, "%s/", folder->path);
    size_t begin = path->length;
    if (is_event_file(name))
        z3d_string_append(path, "events.%d/%s", folder->number, name);
    else
        z3d_string_append(path, "%.*s.%d%s", stem, name, folder->number, end ? end : "");
    if (path->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name");
    if (folder->kept++ < NAMED)
        z3d_string_append(&folder->list, "%s%s", folder->list.length ? ", " : "",
                          path->text + begin);
    return Z3D_OK;
}

static z3d_status keep_file(z3d_run_folder *folder, const char *name) {
    char *from;
    z3d_string to = {0};
    struct stat info;
    z3d_status status = z3d_join_path(folder->path, name, &from);
    if (status != Z3D_OK || stat(from, &info) != 0 || !S_ISREG(info.st_mode) || !info.st_size)
        goto end;
    Z3D_TRY_GOTO(status, z3d_run_folder_kept_path(folder, name, &to), end);
    if (is_event_file(name)) {
        char *slash = strrchr(to.text, '/');
        *slash = '\0';
        status = z3d_make_folders(to.text);
        *slash = '/';
    }
    if (status == Z3D_OK && rename(from, to.text) != 0)
        status =
            Z3D_ERROR(Z3D_ERR_IO, "%s: cannot rename it to %s: %s", from, to.text, strerror(errno));
end:
    free(from);
    z3d_string_free(&to);
    return status;
}

z3d_status z3d_run_folder_keep(z3d_run_folder *folder, const char *pattern) {
    struct dirent **entry = NULL;
    z3d_status status = Z3D_OK;
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "keeping the files of an earlier run in", folder->path);
    int count = scandir(folder->path, &entry, NULL, alphasort);
    if (count < 0)
        status = Z3D_ERROR(Z3D_ERR_IO, "%s: cannot list it: %s", folder->path, strerror(errno));
    for (int i = 0; i < count; i++) {
        const char *name = entry[i]->d_name;
        if (status == Z3D_OK && number_of(name) == 0 && fnmatch(pattern, name, 0) == 0)
            status = keep_file(folder, name);
        free(entry[i]);
    }
    free(entry);
    z3d_pending_io_end(&io);
    return status;
}

void z3d_run_folder_say(z3d_run_folder *folder) {
    if (folder->kept > 0)
        z3d_log(Z3D_LOG_INFO, "%s: kept the files of an earlier run as %s%s", folder->path,
                folder->list.text ? folder->list.text : "numbered files",
                folder->kept > NAMED ? ", ..." : "");
    folder->kept = 0;
    z3d_string_clear(&folder->list);
}
