/* Bandwidth of saving and loading a shard beside the same bytes written and read raw, in one run:
 *   build/bin/checkpoint FOLDER [MB]
 * FOLDER is on the disk to be measured. The ways take turns; medians of five. Raw: writes of 4 MiB,
 * fsync; reads of 4 MiB. Reading finds the bytes in the page cache in both ways, so that what is
 * compared is our work. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/shard.h"
#include "src/model/model.h"

enum { ROUNDS = 5, PIECE = 4 << 20 };

typedef struct bench {
    const char *folder;
    z3d_model *model;
    z3d_tensor *tensor;
    int num_tensors;
    float *values; /* a piece's worth, for every read of values */
    char *raw;
    int64_t bytes;
} bench;

static void must(z3d_status status) {
    if (status == Z3D_OK) return;
    fprintf(stderr, "%s\n", z3d_error_message());
    exit(1);
}

static z3d_status some_values(void *context, const z3d_extent *e, int64_t at, int64_t count,
                              float *out) {
    (void)e, (void)at;
    memcpy(out, ((bench *)context)->values, (size_t)count * sizeof *out);
    return Z3D_OK;
}

/* What the last round left is no part of this one. */
static void clear(const bench *b, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", b->folder, name);
    unlink(path);
}

/* As one rank, whole: shard, index, manifest. */
static double save(bench *b) {
    z3d_topology alone;
    z3d_extent *extent;
    z3d_image image;
    int count;
    z3d_string text = {0};
    double begin = z3d_now();
    z3d_manifest m = {.num_shards = 1, .num_files = 1};
    z3d_shard shard;
    z3d_file_entry entry;
    must(z3d_topology_make(1, 1, 1, 0, &alone));
    must(z3d_shard_plan(b->model, &alone, &count, &extent));
    must(z3d_image_make(b->tensor, 0, 1, count, extent, &image));
    must(z3d_image_write(&image, NULL, b->folder, some_values, b, &entry));
    b->bytes = image.shard.size;
    shard = image.shard;
    m.tensor = b->tensor, m.num_tensors = b->num_tensors;
    m.shard = &shard, m.file = &entry;
    m.info = (z3d_checkpoint_info){.config = "", .program = "", .libraries = ""};
    must(z3d_manifest_write(&m, &text));
    must(z3d_io_write_file(NULL, b->folder, Z3D_MANIFEST, text.text, (int64_t)text.length));
    double seconds = z3d_now() - begin;
    z3d_string_free(&text);
    z3d_image_free(&image);
    return seconds;
}

static double load(bench *b) {
    z3d_checkpoint *c;
    double begin = z3d_now();
    must(z3d_checkpoint_open(b->folder, &c));
    for (int kind = 0; kind < Z3D_STATE_KINDS; kind++)
        for (int t = 0; t < b->num_tensors; t++) {
            z3d_part whole;
            z3d_checkpoint_whole(c, t, &whole);
            for (int64_t at = 0; at < whole.count; at += PIECE / 4)
                must(z3d_checkpoint_read(
                    c, (z3d_tensor_kind)kind, t, &whole, at,
                    whole.count - at < PIECE / 4 ? whole.count - at : PIECE / 4, b->values));
        }
    z3d_checkpoint_close(c);
    return z3d_now() - begin;
}

static double raw(bench *b, bool write) {
    char path[4096];
    snprintf(path, sizeof path, "%s/raw", b->folder);
    double begin = z3d_now();
    int fd = open(path, write ? O_RDWR | O_CREAT | O_TRUNC : O_RDONLY, 0666);
    for (int64_t at = 0; fd >= 0 && at < b->bytes; at += PIECE) {
        size_t some = (size_t)(b->bytes - at < PIECE ? b->bytes - at : PIECE);
        ssize_t done = write ? pwrite(fd, b->raw, some, at) : pread(fd, b->raw, some, at);
        if (done != (ssize_t)some) fd = -1;
    }
    if (fd < 0 || (write && fsync(fd) != 0)) must(Z3D_ERROR(Z3D_ERR_IO, "%s: failed", path));
    close(fd);
    return z3d_now() - begin;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void report(const char *what, double *ours, double *theirs, int64_t bytes) {
    qsort(ours, ROUNDS, sizeof *ours, ascending);
    qsort(theirs, ROUNDS, sizeof *theirs, ascending);
    double a = (double)bytes / ours[ROUNDS / 2] / 1e6, b = (double)bytes / theirs[ROUNDS / 2] / 1e6;
    printf("%-5s %8.0f MB/s  raw %8.0f MB/s  ratio %.2f\n", what, a, b, a / b);
}

int main(int argc, char **argv) {
    bench b = {.folder = argc > 1 ? argv[1] : "."};
    double saved[ROUNDS], written[ROUNDS], loaded[ROUNDS], read[ROUNDS];
    int64_t megabytes = argc > 2 ? atoll(argv[2]) : 512;
    /* A block of hidden size 512 has 38 MB of states. */
    z3d_gpt_config gpt = {.num_layers = megabytes / 38 + 1,
                          .hidden_size = 512,
                          .num_heads = 8,
                          .seq_length = 256,
                          .vocab_size = 1024,
                          .vocab_multiple = 1,
                          .init_std = 0.02,
                          .tensor_size = 1};
    must(z3d_gpt_create(&gpt, &b.model));
    must(z3d_tensors_of(b.model, &b.tensor, &b.num_tensors));
    must(z3d_new(PIECE, 1, "values", &b.values));
    must(z3d_new(PIECE, 1, "bytes", &b.raw));
    for (int i = 0; i < PIECE / 4; i++) b.values[i] = (float)i;
    memcpy(b.raw, b.values, PIECE);
    must(z3d_make_folders(b.folder));
    save(&b); /* tells the size */
    for (int r = 0; r < ROUNDS; r++) {
        clear(&b, "raw");
        clear(&b, "shard-00000.h5");
        written[r] = raw(&b, true);
        saved[r] = save(&b);
        read[r] = raw(&b, false);
        loaded[r] = load(&b);
    }
    printf("one rank, %.0f MB\n", (double)b.bytes / 1e6);
    report("save", saved, written, b.bytes);
    report("load", loaded, read, b.bytes);
    z3d_model_destroy(b.model);
    free(b.tensor);
    free(b.values);
    free(b.raw);
    return 0;
}
