/* The entries of a folder of checkpoints: checkpoints, the remains of unfinished saves, and other
 * people's files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/store.h"

const z3d_folder_lock_use z3d_checkpoint_lock = {
    .file = "lock",
    .busy =
        "another job is saving checkpoints there; set another checkpoint.dir for this run, or wait "
        "until that job ends",
    .lost =
        "its lock file was removed during the save: another job may have saved checkpoints there",
};

/* ---- steps and their names ---- */

enum { NAME_BYTES = 32 };

static const char *step_name(int64_t step, char out[NAME_BYTES]) {
    snprintf(out, NAME_BYTES, "step-%08lld", (long long)step);
    return out;
}

z3d_status z3d_checkpoint_path(const char *dir, int64_t step, char **out) {
    char name[NAME_BYTES];
    return z3d_join_path(dir, step_name(step, name), out);
}

/* Accepts only names that z3d_checkpoint_path makes. Else step 7 could have two folders, "step-7"
 * and "step-00000007". */
static bool parse_name(const char *name, int64_t *step) {
    char wanted[NAME_BYTES];
    if (strncmp(name, "step-", 5) != 0 || strspn(name + 5, "0123456789") > 18) return false;
    *step = strtoll(name + 5, NULL, 10);
    return strcmp(name, step_name(*step, wanted)) == 0;
}

z3d_status z3d_folder_check_step(const char *folder, int64_t step) {
    char last[NAME_BYTES], right[NAME_BYTES];
    size_t end = strlen(folder), begin;
    int64_t named;
    while (end > 0 && folder[end - 1] == '/') end--;
    for (begin = end; begin > 0 && folder[begin - 1] != '/';) begin--;
    snprintf(last, sizeof last, "%.*s", (int)(end - begin), folder + begin);
    if (end - begin >= sizeof last || !parse_name(last, &named) || named == step) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_IO,
                     "%s holds the checkpoint of step %lld: its folder was renamed or copied; give "
                     "it the name %s, or move it to another folder",
                     folder, (long long)step, step_name(step, right));
}

/* ---- entries of a folder ---- */

/* Whether DIR/step-N is a checkpoint. A link whose target does not exist may be one (its disk may
 * not be mounted): an error. */
static z3d_status is_complete(const char *dir, int64_t step, bool *complete) {
    char *folder;
    struct stat info;
    Z3D_TRY(z3d_checkpoint_path(dir, step, &folder));
    z3d_status status = z3d_io_has(folder, Z3D_MANIFEST, complete);
    if (status == Z3D_OK && !*complete && lstat(folder, &info) == 0 && S_ISLNK(info.st_mode) &&
        stat(folder, &info) != 0)
        status = Z3D_ERROR(Z3D_ERR_IO,
                           "%s is a link to a folder that cannot be opened (%s): mount its disk, "
                           "or move the link away",
                           folder, strerror(errno));
    free(folder);
    return status;
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The steps of the folders with (complete) or without a manifest. If one cannot be read, the whole
 * list is an error: the callers remove folders, or resume from an older step, by this list. */
static z3d_status read_folder(const char *dir, bool complete, int64_t **steps, int *count) {
    DIR *folder = opendir(dir);
    int64_t room = 0;
    z3d_status status = Z3D_OK;
    if (!folder && errno == ENOENT) return Z3D_OK;
    if (!folder && errno == ENOTDIR)
        return Z3D_ERROR(Z3D_ERR_IO, "%s is a file, or is inside one: expected a folder", dir);
    while (folder && status == Z3D_OK) {
        int64_t step;
        bool is;
        errno = 0;
        struct dirent *entry = readdir(folder);
        if (!entry) break;
        if (!parse_name(entry->d_name, &step)) continue;
        status = is_complete(dir, step, &is);
        if (status != Z3D_OK || is != complete) continue;
        status = z3d_grow(*count, &room, sizeof **steps, "a list of checkpoints", steps);
        if (status == Z3D_OK) (*steps)[(*count)++] = step;
    }
    if (status == Z3D_OK && errno != 0)
        status = Z3D_ERROR(Z3D_ERR_IO, "%s: cannot list the folder: %s", dir, strerror(errno));
    if (folder) closedir(folder);
    return status;
}

z3d_status z3d_folder_steps(const char *dir, bool complete, int64_t **steps, int *count) {
    z3d_pending_io io;
    *steps = NULL;
    *count = 0;
    z3d_pending_io_begin(&io, "checkpoint: listing", dir);
    z3d_status status = read_folder(dir, complete, steps, count);
    z3d_pending_io_end(&io);
    if (status == Z3D_OK && *count) qsort(*steps, (size_t)*count, sizeof **steps, ascending);
    if (status == Z3D_OK) return Z3D_OK;
    free(*steps);
    *steps = NULL;
    *count = 0;
    return status;
}

z3d_status z3d_checkpoint_list(const char *dir, int64_t **steps, int *count) {
    return z3d_folder_steps(dir, true, steps, count);
}

z3d_status z3d_checkpoint_resolve(const char *path, char **out) {
    int64_t *steps = NULL;
    int count = 0;
    bool itself;
    *out = NULL;
    Z3D_TRY(z3d_io_has(path, Z3D_MANIFEST, &itself));
    if (!itself) Z3D_TRY(z3d_checkpoint_list(path, &steps, &count));
    if (count > 0) {
        z3d_status status = z3d_checkpoint_path(path, steps[count - 1], out);
        free(steps);
        return status;
    }
    free(steps);
    *out = strdup(path);
    return *out ? Z3D_OK : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a folder's name");
}

/* ---- the best one ---- */

/* The step that our link names; -1: no link. Anything else with this name is not ours: an error. */
static z3d_status read_link(const char *path, int64_t *step) {
    char text[NAME_BYTES];
    *step = -1;
    ssize_t length = readlink(path, text, sizeof text - 1);
    if (length < 0 && errno == ENOENT) return Z3D_OK;
    text[length > 0 ? length : 0] = '\0';
    if (parse_name(text, step)) return Z3D_OK;
    *step = -1;
    return Z3D_ERROR(Z3D_ERR_IO,
                     "%s: no save made it, but checkpoint.keep_best needs this name for a link: "
                     "move it away, or set another checkpoint.dir",
                     path);
}

z3d_status z3d_folder_link_best(const z3d_io_hook *hook, const char *dir, int64_t step,
                                int64_t *before) {
    char name[NAME_BYTES], *link = NULL, *part = NULL;
    int64_t unfinished;
    bool complete = false;
    *before = -1;
    z3d_status status = z3d_join_path(dir, Z3D_BEST, &link);
    if (status == Z3D_OK) status = z3d_io_part(link, &part);
    if (status == Z3D_OK) status = read_link(link, before);
    if (status == Z3D_OK) status = read_link(part, &unfinished);
    if (status == Z3D_OK && step > 0) status = is_complete(dir, step, &complete);
    if (status == Z3D_OK && unfinished >= 0) status = z3d_io_unlink(hook, part);
    if (status == Z3D_OK && step == 0 && *before >= 0) {
        status = z3d_io_unlink(hook, link);
        if (status == Z3D_OK) status = z3d_io_sync_folder(hook, dir);
    } else if (status == Z3D_OK && complete && *before != step) {
        status = z3d_io_link(hook, step_name(step, name), part);
        if (status == Z3D_OK) status = z3d_io_rename(hook, part, link);
        if (status == Z3D_OK)
            status = z3d_io_sync_folder(hook, dir);
        else
            (void)unlink(part);
    }
    free(link);
    free(part);
    return status;
}

/* ---- files of a save, and other files ---- */

static bool is_shard(const char *name, size_t length) {
    size_t digits =
        length > 6 && strncmp(name, "shard-", 6) == 0 ? strspn(name + 6, "0123456789") : 0;
    const char *end = name + 6 + digits;
    size_t rest = digits >= 5 ? length - 6 - digits : 0;
    return (rest == 3 && strncmp(end, ".h5", 3) == 0) ||
           (rest == 5 && strncmp(end, ".json", 5) == 0);
}

static bool is_file_of_a_save(const char *name) {
    size_t length = strlen(name);
    if (length > 5 && strcmp(name + length - 5, ".part") == 0) length -= 5;
    return is_shard(name, length) ||
           (length == strlen(Z3D_VIRTUAL_FILE) && strncmp(name, Z3D_VIRTUAL_FILE, length) == 0) ||
           (length == strlen(Z3D_MANIFEST) && strncmp(name, Z3D_MANIFEST, length) == 0) ||
           strncmp(name, ".nfs", 4) == 0; /* NFS keeps an open file that was removed */
}

/* Whether a save may have left this entry of a folder. */
static bool is_ours(int folder, const char *name) {
    struct stat info;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return true;
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT;
    return S_ISREG(info.st_mode) && is_file_of_a_save(name);
}

static z3d_status find_foreign(const char *folder, char what[Z3D_STRANGERS_TEXT]) {
    struct stat info;
    *what = '\0';
    if (lstat(folder, &info) != 0)
        return errno == ENOENT
                   ? Z3D_OK
                   : Z3D_ERROR(Z3D_ERR_IO, "%s: cannot open it: %s", folder, strerror(errno));
    if (!S_ISDIR(info.st_mode)) {
        snprintf(what, Z3D_STRANGERS_TEXT, "is %s",
                 S_ISLNK(info.st_mode)   ? "a link"
                 : S_ISREG(info.st_mode) ? "a file"
                                         : "not a folder");
        return Z3D_OK;
    }
    DIR *list = opendir(folder);
    if (!list)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot list the folder: %s", folder, strerror(errno));
    errno = 0;
    for (struct dirent *entry; !*what && (entry = readdir(list)); errno = 0)
        if (!is_ours(dirfd(list), entry->d_name))
            snprintf(what, Z3D_STRANGERS_TEXT, "holds \"%.100s\"", entry->d_name);
    int error = *what ? 0 : errno;
    closedir(list);
    return error == 0
               ? Z3D_OK
               : Z3D_ERROR(Z3D_ERR_IO, "%s: cannot list the folder: %s", folder, strerror(error));
}

z3d_status z3d_folder_strangers(const char *folder, char what[Z3D_STRANGERS_TEXT]) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "checkpoint: listing", folder);
    z3d_status status = find_foreign(folder, what);
    z3d_pending_io_end(&io);
    return status;
}

z3d_status z3d_remains_remove(const z3d_io_hook *hook, const char *folder) {
    char what[Z3D_STRANGERS_TEXT];
    Z3D_TRY(z3d_folder_strangers(folder, what));
    if (!*what) return z3d_io_remove_tree(hook, folder, NULL);
    return Z3D_ERROR(Z3D_ERR_IO,
                     "%s %s: it is not a checkpoint, and no save left it, so it is not removed; "
                     "move it away, or set another checkpoint.dir",
                     folder, what);
}

/* ---- why there is no checkpoint ---- */

/* What a folder without a manifest looks like: empty, the remains of a save, a Hugging Face model,
 * a run's folder. */
typedef struct looks {
    bool empty, saved, weights, config, run;
} looks;

static void look_into(const char *folder, looks *l) {
    static const char weights[] = ".safetensors";
    DIR *list = opendir(folder);
    *l = (looks){.empty = list != NULL};
    for (struct dirent *entry; list && (entry = readdir(list));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        size_t length = strlen(entry->d_name), end = sizeof weights - 1;
        l->empty = l->empty && strcmp(entry->d_name, z3d_checkpoint_lock.file) == 0;
        l->saved = l->saved || is_file_of_a_save(entry->d_name);
        l->weights =
            l->weights || (length > end && strcmp(entry->d_name + length - end, weights) == 0);
        l->config = l->config || strcmp(entry->d_name, "config.json") == 0;
        l->run = l->run || strcmp(entry->d_name, "metrics.jsonl") == 0;
    }
    if (list) closedir(list);
}

/* The error for a run's folder without checkpoints: its configuration tells why. */
static z3d_status refuse_run(const char *folder) {
    z3d_config *config = NULL;
    char *path;
    Z3D_TRY(z3d_join_path(folder, "config.yaml", &path));
    bool known =
        z3d_config_create(&config) == Z3D_OK && z3d_config_read_file(config, path) == Z3D_OK;
    const char *elsewhere = known && config->checkpoint_dir ? config->checkpoint_dir : "";
    z3d_status status =
        *elsewhere
            ? Z3D_ERROR(Z3D_ERR_IO, "%s has no checkpoints: the run saves them in %s", folder,
                        elsewhere)
            : Z3D_ERROR(Z3D_ERR_IO, "%s is a run that saved no checkpoints%s", folder,
                        known && config->checkpoint_interval == 0 ? " (checkpoint.interval was 0)"
                                                                  : "");
    z3d_config_destroy(config);
    free(path);
    return status;
}

z3d_status z3d_checkpoint_none(const char *folder) {
    struct stat info;
    looks looks;
    bool inside;
    int64_t *steps = NULL;
    char *checkpoints;
    int count;
    if (stat(folder, &info) != 0) return Z3D_ERROR(Z3D_ERR_IO, "%s: %s", folder, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return Z3D_ERROR(Z3D_ERR_IO, "%s is a file: expected a checkpoint's folder", folder);
    Z3D_TRY(z3d_folder_steps(folder, false, &steps, &count));
    int64_t last = count ? steps[count - 1] : -1;
    free(steps);
    look_into(folder, &looks);
    if (looks.saved)
        return Z3D_ERROR(Z3D_ERR_IO, "%s is incomplete: its save did not finish (it has no %s)",
                         folder, Z3D_MANIFEST);
    if (last >= 0)
        return Z3D_ERROR(Z3D_ERR_IO,
                         "%s has no complete checkpoint: the save of step %lld did not finish",
                         folder, (long long)last);
    Z3D_TRY(z3d_join_path(folder, "checkpoints", &checkpoints));
    inside = stat(checkpoints, &info) == 0 && S_ISDIR(info.st_mode);
    free(checkpoints);
    if (inside)
        return Z3D_ERROR(Z3D_ERR_IO,
                         "%s has no checkpoints itself: the run's checkpoints are in "
                         "%s/checkpoints",
                         folder, folder);
    if (looks.weights || looks.config)
        return Z3D_ERROR(Z3D_ERR_IO,
                         "%s is a Hugging Face model: import it first: zero3d checkpoint import %s "
                         "DIR",
                         folder, folder);
    if (looks.run) return refuse_run(folder);
    return Z3D_ERROR(Z3D_ERR_IO, "%s has no checkpoints%s", folder,
                     looks.empty ? " (it is empty)" : ": it holds other files only");
}
