/* Fuzzes what reads checkpoints: the input is a manifest's body, a zero byte, and the index of its
 * one shard; both get right digests, so that what lies behind those checks is reached. Whatever is
 * accepted is checked and read whole. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/format.h"

static void put(const char *folder, const char *name, const char *text, size_t length) {
    if (z3d_io_write_file(NULL, folder, name, text, (int64_t)length) != Z3D_OK) abort();
}

/* FOLDER/manifest.json: the first line, the body, and in it the index's true size and digest in
 * place of "@". */
static void put_manifest(const char *folder, const char *body, size_t length, z3d_digest index,
                         size_t index_length) {
    z3d_string text = {0}, whole = {0};
    char digest[Z3D_DIGEST_TEXT];
    for (size_t i = 0; i < length; i++) {
        if (body[i] != '@') {
            z3d_string_append_bytes(&text, &body[i], 1);
            continue;
        }
        z3d_string_append(&text, "{\"name\":\"i.json\",\"size\":%zu,\"xxh3_128\":\"%s\"}",
                          index_length, z3d_digest_text(index, digest));
    }
    const char *bytes = text.text ? text.text : "";
    z3d_digest of = z3d_digest_of(bytes, (int64_t)text.length);
    z3d_string_append(&whole, "{\"xxh3_128\":\"%s\",\n", z3d_digest_text(of, digest));
    z3d_string_append_bytes(&whole, bytes, text.length);
    put(folder, Z3D_MANIFEST, whole.text, whole.length);
    z3d_string_free(&text);
    z3d_string_free(&whole);
}

static void read_all(z3d_checkpoint *c) {
    float values[256];
    for (int t = 0; t < z3d_checkpoint_num_tensors(c) && t < 64; t++)
        for (int kind = 0; kind < Z3D_STATE_KINDS; kind++) {
            z3d_part whole;
            z3d_checkpoint_whole(c, t, &whole);
            for (int64_t at = 0; at < whole.count && at < 65536; at += 256)
                if (z3d_checkpoint_read(c, (z3d_tensor_kind)kind, t, &whole, at,
                                        whole.count - at < 256 ? whole.count - at : 256,
                                        values) != Z3D_OK)
                    break;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char folder[64]; /* of this process */
    if (!*folder) {
        snprintf(folder, sizeof folder, "/dev/shm/zero3d-fuzz-XXXXXX");
        if (!mkdtemp(folder)) abort();
        char shard[4096] = {0};
        put(folder, "s.h5", shard, sizeof shard);
    }
    const char *text = (const char *)data;
    const char *zero = memchr(text, '\0', size);
    size_t body = zero ? (size_t)(zero - text) : size;
    const char *index = zero ? zero + 1 : "";
    size_t index_length = zero ? size - body - 1 : 0;
    put(folder, "i.json", index, index_length);
    put_manifest(folder, text, body, z3d_digest_of(index, (int64_t)index_length), index_length);
    z3d_checkpoint *c;
    if (z3d_checkpoint_open(folder, &c) == Z3D_OK) {
        z3d_checkpoint_set_verify(c, Z3D_VERIFY_SIZES);
        (void)z3d_checkpoint_check(c, Z3D_VERIFY_FULL, 0, 0, 1, NULL);
        read_all(c);
        z3d_checkpoint_close(c);
    }
    return 0;
}
