/* Fuzzes what imports other programs' GPT-2. The input's first byte says what the rest is:
 *   l  llm.c's file
 *   h  config.json, a zero byte, model.safetensors
 *   t  config.json, a zero byte, the header of model.safetensors; its length comes in front, and
 *      zeros for its tensors behind it, at most a MiB, so that inputs stay small
 *   s  config.json, a zero byte, model.safetensors.index.json, a zero byte, a header as of t: the
 *      shard "a"
 * Whatever is accepted must be readable, to the last element. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/interop/interop.h"
#include "src/model/gpt/private.h"

/* A model is only described here: nothing runs its units, so what they do is not linked. */
const struct z3d_unit_ops z3d_embedding_ops = {0}, z3d_block_ops = {0}, z3d_tile_ops = {0},
                          z3d_head_ops = {0};

static char folder[64], file[80]; /* of this process */

/* FOLDER/NAME: `data` behind the 8 bytes of `length`, if it has one; as long as `bytes`, at least.
 */
static void put(const char *name, const uint64_t *length, const void *data, size_t size,
                size_t bytes) {
    char path[128];
    size_t front = length ? sizeof *length : 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || (length && pwrite(fd, length, front, 0) != (ssize_t)front) ||
        pwrite(fd, data, size, (off_t)front) != (ssize_t)size ||
        (bytes > front + size && ftruncate(fd, (off_t)bytes) != 0))
        abort();
    close(fd);
}

/* The first elements of every tensor and the last ones. */
static void read_all(const z3d_interop *f) {
    enum { SOME = 300 };
    float values[SOME];
    for (int t = 0; t < f->count; t++) {
        int64_t elements = z3d_tensor_elements(&f->tensor[t]);
        int64_t some = elements < SOME ? elements : SOME;
        if (z3d_interop_read(f, t, 0, some, values) != Z3D_OK ||
            z3d_interop_read(f, t, elements - some, some, values) != Z3D_OK)
            abort();
    }
}

static void import(const char *from) {
    z3d_interop f;
    if (z3d_interop_open(from, &f) == Z3D_OK) read_all(&f);
    z3d_interop_close(&f);
}

/* Where the last tensor of a header ends; at most `most`. */
static size_t tensors_of(const char *header, size_t length, size_t most) {
    z3d_json *root;
    int64_t largest = 0, end;
    if (z3d_json_parse(header, length, "header", &root) != Z3D_OK) return 0;
    for (const z3d_json *m = root->first; m; m = m->next) {
        const z3d_json *range = z3d_json_member(m, "data_offsets");
        if (range && range->first && z3d_json_int(range->first->next, &end) && end > largest)
            largest = end;
    }
    z3d_json_free(root);
    return largest > (int64_t)most ? most : (size_t)largest;
}

static void remove_folder(void) {
    (void)z3d_io_remove_tree(NULL, folder, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { ROOM = 1 << 20 };
    if (!*folder) {
        snprintf(folder, sizeof folder, "/dev/shm/zero3d-fuzz-XXXXXX");
        if (!mkdtemp(folder) || atexit(remove_folder) != 0) abort();
        snprintf(file, sizeof file, "%s/llmc.bin", folder);
    }
    if (size == 0) return 0;
    uint8_t kind = *data++;
    const uint8_t *zero = --size ? memchr(data, '\0', size) : NULL;
    if (kind == 'l') {
        put("llmc.bin", NULL, data, size, 0);
        import(file);
    } else if ((kind == 'h' || kind == 't' || kind == 's') && zero) {
        const uint8_t *rest = zero + 1, *end = data + size;
        put("config.json", NULL, data, (size_t)(zero - data), 0);
        const char *name = "model.safetensors";
        if (kind == 's') {
            const uint8_t *second = memchr(rest, '\0', (size_t)(end - rest));
            if (!second) return 0;
            char whole[128];
            snprintf(whole, sizeof whole, "%s/%s", folder, name);
            (void)unlink(whole);
            put("model.safetensors.index.json", NULL, rest, (size_t)(second - rest), 0);
            rest = second + 1;
            name = "a";
        }
        uint64_t length = (uint64_t)(end - rest);
        size_t whole = 8 + length + tensors_of((const char *)rest, length, ROOM);
        put(name, kind == 'h' ? NULL : &length, rest, length, kind == 'h' ? 0 : whole);
        import(folder);
    }
    return 0;
}
