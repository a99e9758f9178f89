/* Compares saving and loading a training state with raw writes and reads of as many bytes, in one
 * run, on one rank or on the ranks of scripts/launch:
 *   build/bin/checkpoint FOLDER [MB]
 * FOLDER is on the disk to be measured. The ways take turns; medians of five rounds.
 * - Raw: writes of 4 MiB and one fsync, to a separate file; reads of 4 MiB of the shard.
 * - Save: z3d_store_save until the checkpoint is durable.
 * - Load: a whole resumption, each byte checked against its digest. Cold: the shard is not in the
 *   page cache; warm: it is.
 * - Stall: the time that an asynchronous save adds to the step that begins it, compared with a copy
 *   of the same states, by the same calls, to memory of the same kind as the snapshot's.
 * - Beside: a step while a checkpoint is written.
 * Cold loads and stalls are measured in pairs with their comparison, three pairs a round, in
 * alternating order. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/parts/measure.h"
#include "checkpoint/checkpoint.h"
#include "src/base/sort.h"
#include "src/model/gpt/gpt.h"

enum { ROUNDS = 5, PAIRS = 3 * ROUNDS, PIECE = 4 << 20, SEQ = 64, MOST_RANKS = 64 };

typedef enum way {
    RAW_WARM,
    LOAD_WARM,
    STEP,
    /* ways that are measured in pairs: */
    RAW_WRITE,
    SAVE,
    RAW_COLD,
    LOAD_COLD,
    COPY,
    STALL,
    STEP_BESIDE,
    WAYS
} way;

typedef struct bench {
    const char *folder;
    bench_ranks ranks;
    z3d_model *model;
    z3d_engine *engine;
    z3d_store *store, *beside;
    int64_t bytes; /* of this rank's shard */
    char *state, *copy;
    float *snapshot;
    int64_t snapshot_bytes;
    int32_t *tokens;
    double seconds[WAYS][PAIRS]; /* ways from RAW_WRITE on: of all pairs; others: of the rounds */
} bench;

static void must(bench *b, z3d_status status) {
    bench_must(&b->ranks, status);
}

static void meet(bench *b) {
    must(b, z3d_world_agree(b->ranks.world, Z3D_OK));
}

/* ---- the saved state ---- */

static z3d_store *open_store(bench *b, const char *name, bool asynchronous) {
    char path[4096];
    z3d_store *store;
    snprintf(path, sizeof path, "%s/%s", b->folder, name);
    z3d_store_config config = {.world = b->ranks.world,
                               .mesh = &b->ranks.mesh,
                               .model = b->model,
                               .engine = b->engine,
                               .dir = path,
                               .asynchronous = asynchronous,
                               .program = "bench",
                               .zero_stage = 1};
    must(b, z3d_store_open(&config, &store));
    return store;
}

static void create(bench *b, int64_t megabytes) {
    /* A block of hidden size 512 has 38 MB of states. */
    z3d_gpt_config gpt = {.num_layers = megabytes / 38 + 1,
                          .hidden_size = 512,
                          .num_heads = 8,
                          .seq_length = SEQ,
                          .vocab_size = 1024,
                          .vocab_multiple = 1,
                          .init_std = 0.02,
                          .tensor_size = 1};
    must(b, bench_make(&b->ranks, 1, z3d_world_size(b->ranks.world) > 1 ? 1 : 0));
    must(b, z3d_gpt_create(&gpt, &b->model));
    z3d_engine_config config = {
        .model = b->model,
        .program = {.stage = 1, .micro_batch = 1, .reduce_per_step = true, .overlap = true}};
    must(b, bench_engine(&b->ranks, &config, &b->engine));
    b->store = open_store(b, "store", false);
    b->beside = open_store(b, "beside", true);
    must(b, z3d_new(SEQ, sizeof *b->tokens, "tokens", &b->tokens));
    for (int i = 0; i < SEQ; i++) b->tokens[i] = i * 7919 % 1024;
}

static double step(bench *b) {
    z3d_micro_batch micro = {.field = {b->tokens, b->tokens}};
    z3d_step_result result;
    z3d_step_input input = {.micro = &micro,
                            .global_targets = SEQ * z3d_world_size(b->ranks.world),
                            .learning_rate = 1e-4f};
    meet(b);
    double begin = z3d_now();
    must(b, z3d_engine_train_step(b->engine, &input, &result));
    return z3d_now() - begin;
}

/* ---- the ways ---- */

static void shard_path(const bench *b, char *path, size_t size) {
    z3d_engine_state state;
    z3d_engine_get_state(b->engine, &state);
    snprintf(path, size, "%s/store/step-%08lld/shard-%05d.h5", b->folder, (long long)state.step,
             z3d_world_rank(b->ranks.world));
}

static void raw_path(const bench *b, char *path, size_t size) {
    snprintf(path, size, "%s/raw-%d", b->folder, z3d_world_rank(b->ranks.world));
}

static double raw(bench *b, const char *path, bool write) {
    meet(b);
    double begin = z3d_now();
    int fd = open(path, write ? O_RDWR | O_CREAT | O_TRUNC : O_RDONLY, 0666);
    for (int64_t at = 0; fd >= 0 && at < b->bytes; at += PIECE) {
        size_t some = (size_t)(b->bytes - at < PIECE ? b->bytes - at : PIECE);
        ssize_t done = write ? pwrite(fd, b->state + at, some, at) : pread(fd, b->copy, some, at);
        if (done != (ssize_t)some) must(b, Z3D_ERROR(Z3D_ERR_IO, "%s: failed", path));
    }
    if (fd < 0 || (write && fsync(fd) != 0)) must(b, Z3D_ERROR(Z3D_ERR_IO, "%s: failed", path));
    close(fd);
    meet(b);
    return z3d_now() - begin;
}

static double save(bench *b, z3d_store *store) {
    z3d_checkpoint_info info = {.config = ""};
    meet(b);
    double begin = z3d_now();
    must(b, z3d_store_save(store, &info));
    return z3d_now() - begin;
}

static double load(bench *b) {
    char path[4096];
    shard_path(b, path, sizeof path);
    *strrchr(path, '/') = '\0';
    meet(b);
    double begin = z3d_now();
    must(b, z3d_checkpoint_load_all(b->ranks.world, path, NULL, b->model, b->engine,
                                    Z3D_VERIFY_FULL, false, NULL, NULL, NULL));
    return z3d_now() - begin;
}

/* Its pages are clean after an fsync. */
static void drop(bench *b, const char *path) {
    int fd = open(path, O_RDONLY);
    if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
        must(b, Z3D_ERROR(Z3D_ERR_IO, "%s: cannot be dropped from the cache", path));
    close(fd);
}

/* Removes the files of the last round, so that they do not affect the next one. */
static void clear(bench *b) {
    char text[4200];
    meet(b);
    if (z3d_world_rank(b->ranks.world) > 0) return;
    snprintf(text, sizeof text, "rm -rf '%s'/store/step-* '%s'/beside/step-* '%s'/raw-*", b->folder,
             b->folder, b->folder);
    if (system(text) != 0) must(b, Z3D_ERROR(Z3D_ERR_IO, "%s failed", text));
    sync();
}

/* Times a copy of the states to memory of the same kind as the snapshot of an asynchronous save. */
static double copy(bench *b) {
    float *to = b->snapshot;
    meet(b);
    double begin = z3d_now();
    for (int kind = 0; kind < Z3D_STATE_KINDS; kind++)
        for (int g = 0; g < b->model->num_groups && z3d_engine_kinds(b->engine) >> kind & 1; g++)
            for (int i = 0; i < b->model->group[g].num_parameters; i++) {
                z3d_part part;
                z3d_engine_kept_part(b->engine, g, i, &part);
                must(b, z3d_engine_read_part(b->engine, (z3d_tensor_kind)kind, g, i, part.first,
                                             part.count, to));
                to += part.count;
            }
    double seconds = z3d_now() - begin;
    if ((char *)to - (char *)b->snapshot != b->snapshot_bytes)
        must(b, Z3D_ERROR(Z3D_ERR_INTERNAL, "the copy is not the snapshot's size"));
    return seconds;
}

/* The size of the shard is known from the first save. */
static void prepare(bench *b) {
    char path[4096];
    struct stat info;
    step(b);
    save(b, b->store);
    shard_path(b, path, sizeof path);
    if (stat(path, &info) != 0) must(b, Z3D_ERROR(Z3D_ERR_IO, "%s: not there", path));
    b->bytes = info.st_size;
    must(b, z3d_new((size_t)b->bytes + PIECE, 1, "bytes", &b->state));
    must(b, z3d_new((size_t)b->bytes + PIECE, 1, "bytes", &b->copy));
    int fd = open(path, O_RDONLY);
    if (fd < 0 || pread(fd, b->state, (size_t)b->bytes, 0) != b->bytes)
        must(b, Z3D_ERROR(Z3D_ERR_IO, "%s: cannot read it", path));
    close(fd);
    memset(b->copy, 1, (size_t)b->bytes);
    (void)z3d_store_snapshot(b->beside, &b->snapshot_bytes);
    void *memory;
    must(b, z3d_device_alloc(b->ranks.device, Z3D_SPACE_HOST, b->snapshot_bytes, &memory));
    b->snapshot = memory;
}

/* A copy and an asynchronous save; then a step while that is written. */
static void pair(bench *b, int p) {
    int64_t durable;
    step(b);
    for (int k = 0; k < 2; k++) {
        if (k == p % 2)
            b->seconds[COPY][p] = copy(b);
        else
            b->seconds[STALL][p] = save(b, b->beside);
    }
    usleep(20000); /* time in which rank 0 makes the folder */
    must(b, z3d_store_poll(b->beside, false, &durable));
    b->seconds[STEP_BESIDE][p] = step(b);
    must(b, z3d_store_poll(b->beside, true, &durable));
}

/* Each save finds the page cache's memory that the save before it used. */
static void save_pair(bench *b, int p) {
    char path[4096];
    raw_path(b, path, sizeof path);
    for (int k = 0; k < 2; k++) {
        clear(b);
        if (k == p % 2)
            b->seconds[RAW_WRITE][p] = raw(b, path, true);
        else
            b->seconds[SAVE][p] = save(b, b->store);
    }
}

static void cold_pair(bench *b, const char *shard, int p) {
    for (int k = 0; k < 2; k++) {
        drop(b, shard);
        if (k == p % 2)
            b->seconds[RAW_COLD][p] = raw(b, shard, false);
        else
            b->seconds[LOAD_COLD][p] = load(b);
    }
}

static void round_of_all(bench *b, int r) {
    char path[4096];
    b->seconds[STEP][r] = step(b);
    for (int p = r; p < PAIRS; p += ROUNDS) save_pair(b, p);
    clear(b);
    save(b, b->store);
    shard_path(b, path, sizeof path);
    for (int p = r; p < PAIRS; p += ROUNDS) cold_pair(b, path, p);
    raw(b, path, false); /* now it is in the page cache */
    b->seconds[RAW_WARM][r] = raw(b, path, false);
    b->seconds[LOAD_WARM][r] = load(b);
    for (int p = r; p < PAIRS; p += ROUNDS) {
        clear(b);
        pair(b, p);
    }
}

/* ---- results ---- */

static int times(int w) {
    return w < RAW_WRITE ? ROUNDS : PAIRS;
}

/* The slowest rank's seconds, for each measurement. */
static void slowest(bench *b, int w, double of[PAIRS]) {
    double all[MOST_RANKS];
    for (int k = 0; k < times(w); k++) {
        must(b, z3d_world_gather_all(b->ranks.world, &b->seconds[w][k], all, sizeof(double)));
        of[k] = 0;
        for (int rank = 0; rank < z3d_world_size(b->ranks.world); rank++)
            if (all[rank] > of[k]) of[k] = all[rank];
    }
}

static double median(bench *b, int w) {
    double of[PAIRS];
    slowest(b, w, of);
    return bench_median(of, times(w));
}

/* The ratio of two ways' seconds, pair by pair, because the machine's speed changes between
 * pairs. */
static void report_pairs(bench *b, way over, way under) {
    double ratio[PAIRS], of[PAIRS];
    slowest(b, over, ratio);
    slowest(b, under, of);
    for (int p = 0; p < PAIRS; p++) ratio[p] /= of[p];
    z3d_sort_numbers(ratio, PAIRS);
    if (z3d_world_rank(b->ranks.world) == 0)
        printf("ratio %.2f (quarter to three quarters of %d pairs: %.2f to %.2f)\n",
               ratio[PAIRS / 2], PAIRS, ratio[PAIRS / 4], ratio[PAIRS - 1 - PAIRS / 4]);
}

static void report(bench *b) {
    static const struct {
        const char *name;
        way ours, raw;
    } line[] = {{"save", SAVE, RAW_WRITE},
                {"load, warm", LOAD_WARM, RAW_WARM},
                {"load, cold", LOAD_COLD, RAW_COLD}};
    double bytes = (double)b->bytes * z3d_world_size(b->ranks.world), of[WAYS];
    for (int w = 0; w < WAYS; w++) of[w] = median(b, w);
    bool speaks = z3d_world_rank(b->ranks.world) == 0;
    if (speaks)
        printf("%d rank%s, %.0f MB\n", z3d_world_size(b->ranks.world),
               z3d_world_size(b->ranks.world) > 1 ? "s" : "", bytes / 1e6);
    for (size_t i = 0; i < sizeof line / sizeof *line; i++) {
        if (speaks)
            printf("%-12s %7.0f MB/s  raw %7.0f MB/s  ", line[i].name,
                   bytes / of[line[i].ours] / 1e6, bytes / of[line[i].raw] / 1e6);
        if (times(line[i].ours) == PAIRS)
            report_pairs(b, line[i].raw, line[i].ours);
        else if (speaks)
            printf("ratio %.2f\n", of[line[i].raw] / of[line[i].ours]);
    }
    if (speaks)
        printf("asynchronous save: stalls %.4f s, the copy alone takes %.4f s: ", of[STALL],
               of[COPY]);
    report_pairs(b, STALL, COPY);
    if (speaks) printf("a step %.3f s, while it is written %.3f s\n", of[STEP], of[STEP_BESIDE]);
}

int main(int argc, char **argv) {
    bench b = {.folder = argc > 1 ? argv[1] : "."};
    int64_t megabytes = argc > 2 ? atoll(argv[2]) : 512;
    bench_open(&b.ranks, &argc, &argv);
    if (z3d_world_size(b.ranks.world) > MOST_RANKS)
        must(&b, Z3D_ERROR(Z3D_ERR_USAGE, "start at most %d ranks", MOST_RANKS));
    create(&b, megabytes);
    prepare(&b);
    for (int r = 0; r < ROUNDS; r++) round_of_all(&b, r);
    report(&b);
    clear(&b);
    z3d_store_close(b.store);
    z3d_store_close(b.beside);
    z3d_device_free(b.ranks.device, Z3D_SPACE_HOST, b.snapshot, b.snapshot_bytes);
    z3d_engine_destroy(b.engine);
    z3d_model_destroy(b.model);
    free(b.state);
    free(b.copy);
    free(b.tokens);
    bench_close(&b.ranks);
    return 0;
}
