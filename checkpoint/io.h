/* Private to checkpoint/ and its tests: every change to a disk goes through this file, so tests can
 * make each change fail, kill the process there, and record it. */
#ifndef ZERO3D_CHECKPOINT_IO_H
#define ZERO3D_CHECKPOINT_IO_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/base.h"

typedef enum z3d_io_kind {
    Z3D_IO_CREATE,
    Z3D_IO_WRITE,
    Z3D_IO_SYNC,
    Z3D_IO_RENAME,
    Z3D_IO_SYNC_FOLDER,
    Z3D_IO_MAKE_FOLDER,
    Z3D_IO_UNLINK,
    Z3D_IO_REMOVE_FOLDER
} z3d_io_kind;

typedef struct z3d_io_event {
    z3d_io_kind kind;
    const char *path, *to; /* to: of a rename */
    const void *data;      /* of a write */
    int64_t offset, bytes;
} z3d_io_event;

enum { Z3D_IO_SHORT = -1 }; /* a hook's answer to a write: write only half of it this time */

/* `before` is called before each change. It returns 0 to allow the change, or the errno with which
 * the change fails. NULL: no hook. */
typedef struct z3d_io_hook {
    int (*before)(void *context, const z3d_io_event *event);
    void *context;
} z3d_io_hook;

/* Changes. All errors are ERR_IO with the path and the system's reason. */

/* Creates a file, or empties it. */
z3d_status z3d_io_create(const z3d_io_hook *hook, const char *path, int *fd);
/* Writes all `bytes` at `offset`. whole: the file's final size in bytes, for reports of progress;
 * negative: unknown. */
z3d_status z3d_io_write(const z3d_io_hook *hook, int fd, const char *path, const void *data,
                        int64_t bytes, int64_t offset, int64_t whole);
z3d_status z3d_io_sync(const z3d_io_hook *hook, int fd, const char *path);
/* A failure goes to *status, unless it has an earlier one. */
void z3d_io_close(int fd, const char *path, z3d_status *status);
z3d_status z3d_io_rename(const z3d_io_hook *hook, const char *from, const char *to);
z3d_status z3d_io_sync_folder(const z3d_io_hook *hook, const char *path);
/* OK if the folder exists already. */
z3d_status z3d_io_make_folder(const z3d_io_hook *hook, const char *path);
/* Makes a symbolic link to `target`. The hook sees a created file. */
z3d_status z3d_io_link(const z3d_io_hook *hook, const char *target, const char *path);
/* OK if the path does not exist. */
z3d_status z3d_io_unlink(const z3d_io_hook *hook, const char *path);
/* Removes a folder with everything in it; of a link only the link. first: a name in the folder that
 * is removed, durably, before all others; or NULL. OK if the path does not exist. */
z3d_status z3d_io_remove_tree(const z3d_io_hook *hook, const char *path, const char *first);

/* Writes a small file durably: writes FOLDER/NAME.part, syncs, renames, syncs the folder. */
z3d_status z3d_io_write_file(const z3d_io_hook *hook, const char *folder, const char *name,
                             const void *data, int64_t bytes);

/* *out becomes "PATH.part", the name of a file until it is complete, malloc'ed. Errors: ERR_MEMORY.
 */
z3d_status z3d_io_part(const char *path, char **out);
/* Whether a path exists. Only ENOENT and ENOTDIR mean no. Errors: ERR_IO if the system cannot tell
 * (the server of a network file system is away, a folder cannot be searched). */
z3d_status z3d_io_exists(const char *path, bool *exists);
/* The same for FOLDER/NAME. A folder with Z3D_MANIFEST is a checkpoint. */
z3d_status z3d_io_has(const char *folder, const char *name, bool *there);
/* Whether a failed read is permanent damage: EIO of a file system (its f_type) on a disk of this
 * machine. Network file systems return EIO also while their server is away. */
bool z3d_io_is_damage(int error, int64_t file_system);
/* Opens a file of a checkpoint for reading; *size is its length. Errors: ERR_DATA if the file is
 * damaged: it is missing, is not a regular file, or its disk cannot read it; ERR_IO for a failure
 * that the next try may not have (too many open files, no permission, a network disk). */
z3d_status z3d_io_open(const char *path, int *fd, int64_t *size);
/* Reads exactly `bytes`. Errors: those of z3d_io_open; ERR_DATA also if the file ends before. */
z3d_status z3d_io_read(int fd, const char *path, void *out, int64_t bytes, int64_t offset);

/* XXH3-128 as 32 lower-case hexadecimal digits, canonical order. */
enum { Z3D_DIGEST_BYTES = 16, Z3D_DIGEST_TEXT = 33 };
typedef struct z3d_digest {
    uint8_t byte[Z3D_DIGEST_BYTES];
} z3d_digest;
z3d_digest z3d_digest_of(const void *data, int64_t bytes);
const char *z3d_digest_text(z3d_digest digest, char text[Z3D_DIGEST_TEXT]);
bool z3d_digest_parse(const char *text, z3d_digest *out);
bool z3d_digest_equal(z3d_digest a, z3d_digest b);

#endif
