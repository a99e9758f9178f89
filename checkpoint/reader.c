/* Reads a checkpoint: any range of any slice of any tensor, from all shards that have a part of it.
 * It reads files in blocks, and checks a block's digest before it uses the bytes. It does not use
 * HDF5. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/format.h"
#include "checkpoint/prefetch.h"

enum { CACHED_BLOCKS = 8, OPEN_SHARDS = 32 }; /* often a process may open 1024 files only */
/* In a file that is read once, blocks so far before the current one leave the page cache. */
enum { BEHIND = 8 };

/* A block, or (block 0) a file, that was used a short time ago. */
typedef struct slot {
    int shard; /* -1: empty */
    int64_t block;
    uint64_t used; /* by `clock` */
} slot;

/* The blocks that were used last. They depend only on the sequence of requests: the reading thread
 * and the caller make the same requests, so they know the same blocks. */
typedef struct recent {
    slot slot[CACHED_BLOCKS];
    uint64_t clock;
} recent;

typedef struct source {
    int shard;
    const z3d_extent *extent;
} source;

struct z3d_checkpoint {
    char *folder;
    z3d_manifest manifest;
    z3d_checkpoint_verify verify;
    slot open[OPEN_SHARDS];
    int fd[OPEN_SHARDS]; /* of `open`; -1: none */
    int *first_source;   /* by tensor * Z3D_STATE_KINDS + kind; one more at the end */
    source *source;
    recent cache;
    char *bytes[CACHED_BLOCKS]; /* the blocks of `cache` */
    uint64_t clock;             /* of `open` */
    int64_t bytes_read;
    bool has_base;          /* the base's shards are among the manifest's */
    z3d_progress *progress; /* NULL: none */
};

/* ---- open and close ---- */

/* Sorts all datasets by tensor and state (a counting sort). */
static z3d_status sort_sources(z3d_checkpoint *c) {
    const z3d_manifest *m = &c->manifest;
    size_t kinds = (size_t)m->num_tensors * Z3D_STATE_KINDS, total = 0;
    for (int s = 0; s < m->num_shards; s++) total += (size_t)m->shard[s].num_extents;
    Z3D_TRY(z3d_new(kinds + 2, sizeof *c->first_source, "the list of datasets", &c->first_source));
    Z3D_TRY(z3d_new(total + 1, sizeof *c->source, "the list of datasets", &c->source));
    for (int s = 0; s < m->num_shards; s++)
        for (int i = 0; i < m->shard[s].num_extents; i++) {
            const z3d_extent *e = &m->shard[s].extent[i];
            c->first_source[e->tensor * Z3D_STATE_KINDS + e->kind + 2]++;
        }
    for (size_t k = 1; k < kinds + 2; k++) c->first_source[k] += c->first_source[k - 1];
    for (int s = 0; s < m->num_shards; s++)
        for (int i = 0; i < m->shard[s].num_extents; i++) {
            const z3d_extent *e = &m->shard[s].extent[i];
            c->source[c->first_source[e->tensor * Z3D_STATE_KINDS + e->kind + 1]++] =
                (source){s, e};
        }
    return Z3D_OK;
}

static void forget(recent *r) {
    for (int i = 0; i < CACHED_BLOCKS; i++) r->slot[i].shard = -1;
}

z3d_status z3d_checkpoint_open(const char *folder, z3d_checkpoint **out) {
    z3d_checkpoint *c = NULL;
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *c, "a checkpoint", &c));
    forget(&c->cache);
    for (int i = 0; i < OPEN_SHARDS; i++) c->open[i].shard = c->fd[i] = -1;
    c->folder = strdup(folder);
    z3d_status status =
        c->folder ? Z3D_OK : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a folder's name");
    if (status == Z3D_OK) status = z3d_manifest_read(folder, &c->manifest);
    if (status == Z3D_OK) status = sort_sources(c);
    if (status == Z3D_OK)
        *out = c;
    else
        z3d_checkpoint_close(c);
    return status;
}

z3d_status z3d_checkpoint_open_base(z3d_checkpoint *c, const char *base) {
    if (c->has_base) return Z3D_OK;
    if (!c->manifest.info.base.folder) {
        if (!base || !*base) return Z3D_OK;
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "%s: it has all its parameters, so a base has no effect; remove "
                         "checkpoint.base=%s",
                         c->folder, base);
    }
    Z3D_TRY(z3d_manifest_add_base(&c->manifest, c->folder, base));
    c->has_base = true;
    free(c->first_source);
    free(c->source);
    c->first_source = NULL;
    c->source = NULL;
    return sort_sources(c);
}

const z3d_manifest *z3d_checkpoint_manifest(const z3d_checkpoint *c) {
    return &c->manifest;
}

void z3d_checkpoint_close(z3d_checkpoint *c) {
    if (!c) return;
    for (int i = 0; i < OPEN_SHARDS; i++)
        if (c->fd[i] >= 0) close(c->fd[i]);
    for (int i = 0; i < CACHED_BLOCKS; i++) free(c->bytes[i]);
    free(c->first_source);
    free(c->source);
    free(c->folder);
    z3d_manifest_free(&c->manifest);
    free(c);
}

const char *z3d_checkpoint_folder(const z3d_checkpoint *c) {
    return c->folder;
}

const z3d_checkpoint_info *z3d_checkpoint_get_info(const z3d_checkpoint *checkpoint) {
    return &checkpoint->manifest.info;
}

void z3d_checkpoint_set_verify(z3d_checkpoint *checkpoint, z3d_checkpoint_verify verify) {
    checkpoint->verify = verify;
}

int64_t z3d_checkpoint_bytes_read(const z3d_checkpoint *checkpoint) {
    return checkpoint->bytes_read;
}

int z3d_checkpoint_num_tensors(const z3d_checkpoint *checkpoint) {
    return checkpoint->manifest.num_tensors;
}

const z3d_tensor *z3d_checkpoint_tensor(const z3d_checkpoint *checkpoint, int index) {
    return &checkpoint->manifest.tensor[index];
}

void z3d_checkpoint_whole(const z3d_checkpoint *checkpoint, int tensor, z3d_part *out) {
    const z3d_tensor *t = &checkpoint->manifest.tensor[tensor];
    *out = (z3d_part){t->outer, t->global, t->inner, 0, t->global, 0, z3d_tensor_elements(t)};
}

int z3d_checkpoint_find_parameter(const z3d_checkpoint *c, const z3d_parameter_group *group,
                                  int parameter) {
    return z3d_checkpoint_find(c, z3d_parameter_home(group, parameter),
                               group->parameter[parameter].name);
}

bool z3d_has_new_rows(const z3d_checkpoint *c, const z3d_parameter_group *group, int parameter) {
    const z3d_parameter *p = &group->parameter[parameter];
    const int tensor =
        p->dims == 2 && p->padded_dim > 0 ? z3d_checkpoint_find_parameter(c, group, parameter) : -1;
    if (tensor < 0) return false;
    const z3d_tensor *t = &c->manifest.tensor[tensor];
    return t->outer == 1 && t->inner == p->shape[1] && t->global < p->shape[0];
}

unsigned z3d_checkpoint_kinds(const z3d_checkpoint *checkpoint) {
    return z3d_manifest_kinds(&checkpoint->manifest);
}

z3d_status z3d_checkpoint_need_average(const z3d_checkpoint *checkpoint) {
    if (z3d_checkpoint_kinds(checkpoint) & Z3D_KIND(EMA)) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_USAGE,
                     "--ema: the checkpoint has no average of the parameters; train with "
                     "optimizer.ema_decay, as 0.999");
}

int z3d_checkpoint_find(const z3d_checkpoint *checkpoint, const char *group, const char *name) {
    const z3d_manifest *m = &checkpoint->manifest;
    return z3d_find_tensor(m->tensor, m->num_tensors, group, name);
}

/* ---- blocks ---- */

/* Opens a file of a checkpoint and checks its length. */
static z3d_status open_file(const char *folder, const char *name, int64_t size, int *fd) {
    char *path;
    int64_t length = 0;
    Z3D_TRY(z3d_join_path(folder, name, &path));
    z3d_status status = z3d_io_open(path, fd, &length);
    if (status == Z3D_OK && length != size) {
        status = Z3D_ERROR(Z3D_ERR_DATA, "%s: damaged: %lld bytes long, expected %lld", path,
                           (long long)length, (long long)size);
        close(*fd);
        *fd = -1;
    }
    if (status == Z3D_OK) (void)posix_fadvise(*fd, 0, 0, POSIX_FADV_SEQUENTIAL); /* a hint */
    free(path);
    return status;
}

static const char *folder_of(const z3d_checkpoint *c, const z3d_shard *shard) {
    return shard->folder ? shard->folder : c->folder;
}

/* Adds to a failure whose shard it is. */
static z3d_status blame(const z3d_checkpoint *c, int s, z3d_status status) {
    if (status == Z3D_OK) return Z3D_OK;
    if (!c->manifest.shard[s].folder) return z3d_error_context(status, "rank %d's shard", s);
    return z3d_base_failed(z3d_error_context(status, "the base of %s", c->folder));
}

static z3d_status open_shard_file(const z3d_checkpoint *c, int s, int *fd) {
    const z3d_shard *shard = &c->manifest.shard[s];
    return blame(c, s, open_file(folder_of(c, shard), shard->name, shard->size, fd));
}

/* The slot of a block. *there: the slot has the block already; else it is the slot whose last use
 * is longest ago. */
static int slot_of(slot *slots, int count, uint64_t *clock, int s, int64_t block, bool *there) {
    int at = 0;
    *there = false;
    for (int i = 0; i < count && !*there; i++) {
        *there = slots[i].shard == s && slots[i].block == block;
        if (*there || slots[i].used < slots[at].used) at = i;
    }
    slots[at] = (slot){s, block, ++*clock};
    return at;
}

/* Opens a shard, unless it is open; closes the one whose last use is longest ago. */
static z3d_status need_shard(z3d_checkpoint *c, int s, int *fd) {
    bool there;
    const int at = slot_of(c->open, OPEN_SHARDS, &c->clock, s, 0, &there);
    if (!there) {
        if (c->fd[at] >= 0) close(c->fd[at]);
        c->fd[at] = -1;
        c->open[at] = (slot){.shard = -1}; /* if it fails: the next one to use */
        Z3D_TRY(open_shard_file(c, s, &c->fd[at]));
        c->open[at] = (slot){s, 0, c->clock};
    }
    *fd = c->fd[at];
    return Z3D_OK;
}

static void append_dataset(const z3d_manifest *m, const z3d_extent *e, z3d_string *out) {
    z3d_string_append(out, "/%s/%s/%s", z3d_tensor_kind_name(e->kind), m->tensor[e->tensor].group,
                      m->tensor[e->tensor].name);
}

/* For messages: the first and the last dataset with values in a block. */
static void append_datasets(const z3d_manifest *m, const z3d_shard *shard, int64_t block,
                            z3d_string *out) {
    int64_t from = block * Z3D_BLOCK_BYTES, to = from + Z3D_BLOCK_BYTES;
    const z3d_extent *first = NULL, *last = NULL;
    for (int i = 0; i < shard->num_extents; i++) {
        const z3d_extent *e = &shard->extent[i];
        if (e->offset >= to || e->offset + e->count * 4 <= from) continue;
        if (!first || e->offset < first->offset) first = e;
        if (!last || e->offset > last->offset) last = e;
    }
    if (!first) {
        z3d_string_append(out, "the file's metadata");
        return;
    }
    z3d_string_append(out, first == last ? "dataset " : "datasets ");
    append_dataset(m, first, out);
    if (first == last) return;
    z3d_string_append(out, " to ");
    append_dataset(m, last, out);
}

static z3d_status check_block(const z3d_checkpoint *c, int s, int64_t block, const char *bytes,
                              int64_t count) {
    const z3d_shard *shard = &c->manifest.shard[s];
    z3d_string where = {0};
    if (z3d_digest_equal(z3d_digest_of(bytes, count), shard->block[block])) return Z3D_OK;
    append_datasets(&c->manifest, shard, block, &where);
    z3d_status status =
        Z3D_ERROR(Z3D_ERR_DATA, "%s/%s: damaged: bytes %lld-%lld do not match their digest: %s",
                  folder_of(c, shard), shard->name, (long long)(block * Z3D_BLOCK_BYTES),
                  (long long)(block * Z3D_BLOCK_BYTES + count - 1), where.text ? where.text : "");
    z3d_string_free(&where);
    return blame(c, s, status);
}

static int64_t block_bytes(const z3d_shard *shard, int64_t block) {
    int64_t left = shard->size - block * Z3D_BLOCK_BYTES;
    return left < Z3D_BLOCK_BYTES ? left : Z3D_BLOCK_BYTES;
}

/* Drops pages of a file that is read once, from front to back. The next reads reuse them. Without
 * this the system would first free other pages, which this node still needs, or a virtual machine
 * would get more memory from its host. */
static void forget_behind(int fd, int64_t block) {
    if (block <= BEHIND || block % BEHIND > 0) return;
    (void)posix_fadvise(fd, 0, (block - BEHIND) * Z3D_BLOCK_BYTES,
                        POSIX_FADV_DONTNEED); /* a hint */
}

/* Reads one whole block of a shard into `bytes`. once: the shard's blocks are not read again. */
static z3d_status read_block(z3d_checkpoint *c, int s, int64_t block, bool once, char *bytes) {
    const z3d_shard *shard = &c->manifest.shard[s];
    int64_t count = block_bytes(shard, block);
    int fd;
    Z3D_TRY(need_shard(c, s, &fd));
    Z3D_TRY(blame(c, s, z3d_io_read(fd, shard->name, bytes, count, block * Z3D_BLOCK_BYTES)));
    c->bytes_read += count;
    if (once) forget_behind(fd, block);
    return Z3D_OK;
}

static z3d_status verify_block(const z3d_checkpoint *c, int s, int64_t block, const char *bytes) {
    if (c->verify == Z3D_VERIFY_SIZES) return Z3D_OK;
    return check_block(c, s, block, bytes, block_bytes(&c->manifest.shard[s], block));
}

static int slot_of_block(recent *r, int s, int64_t block, bool *there) {
    return slot_of(r->slot, CACHED_BLOCKS, &r->clock, s, block, there);
}

/* The block, which is read into the cache if it is not there. ahead: NULL, or takes blocks that
 * were read ahead; this block is the next one then. */
static z3d_status cached(z3d_checkpoint *c, z3d_prefetch *ahead, int s, int64_t block,
                         const char **bytes) {
    bool there;
    const int at_slot = slot_of_block(&c->cache, s, block, &there);
    char **at = &c->bytes[at_slot];
    z3d_status status = Z3D_OK;
    *bytes = NULL;
    if (!there) {
        if (!*at) status = z3d_new(Z3D_BLOCK_BYTES, 1, "a block", at);
        if (status == Z3D_OK)
            status = ahead ? z3d_prefetch_take(ahead, at) : read_block(c, s, block, false, *at);
        if (status == Z3D_OK) status = verify_block(c, s, block, *at);
        if (status != Z3D_OK) c->cache.slot[at_slot].shard = -1;
    }
    *bytes = *at;
    return status;
}

/* ---- tensors ---- */

/* How many elements, from element `at` of the slice on, are contiguous in a dataset; 0: none.
 * *within: the first one's index in the dataset. */
static int64_t run_in(const z3d_part *want, const z3d_extent *e, int64_t at, int64_t left,
                      int64_t *within) {
    int64_t plane = want->valid * want->inner, o = at / plane, rest = at % plane;
    int64_t row = want->offset + rest / want->inner, column = rest % want->inner;
    if (row < e->row_first || row >= e->row_first + e->rows) return 0;
    int64_t index = (o * e->rows + (row - e->row_first)) * want->inner + column;
    if (index < e->first || index >= e->first + e->count) return 0;
    *within = index - e->first;
    int64_t run = e->count - *within;
    if (e->row_first != want->offset || e->rows != want->valid) {
        int64_t end = want->offset + want->valid;
        if (e->row_first + e->rows < end) end = e->row_first + e->rows;
        if ((end - row) * want->inner - column < run) run = (end - row) * want->inner - column;
    }
    return run < left ? run : left;
}

static z3d_status check_slice(const z3d_checkpoint *c, int kind, int tensor, const z3d_part *slice,
                              int64_t first, int64_t count) {
    if (kind < 0 || kind >= Z3D_STATE_KINDS || tensor < 0 || tensor >= c->manifest.num_tensors)
        return Z3D_ERROR(Z3D_ERR_USAGE, "no state %d of tensor %d in a checkpoint", kind, tensor);
    const z3d_tensor *t = &c->manifest.tensor[tensor];
    if (slice->outer != t->outer || slice->global != t->global || slice->inner != t->inner ||
        slice->offset < 0 || slice->valid < 0 || slice->offset > t->global - slice->valid ||
        first < 0 || count < 0 || count > t->outer * slice->valid * t->inner - first)
        return Z3D_ERROR(Z3D_ERR_USAGE, "%s/%s: no such slice", t->group, t->name);
    return Z3D_OK;
}

/* A position in a list of ranges, and in a run of elements that are contiguous in a file. */
typedef struct cursor {
    const z3d_checkpoint *c;
    const z3d_wanted *range;
    int count, at;
    int64_t first, left; /* next element of range `at`, and how many are left */
    int source;
    int64_t offset, run; /* next byte in its shard, and elements left of the run */
} cursor;

/* Elements of a range that are in one block. */
typedef struct piece {
    int range, shard;
    int64_t first, count;  /* elements of the range's slice */
    int64_t block, within; /* first byte in the block */
} piece;

static z3d_status next_run(cursor *w) {
    const z3d_checkpoint *c = w->c;
    const z3d_wanted *range = &w->range[w->at];
    int begin = c->first_source[range->tensor * Z3D_STATE_KINDS + (int)range->kind];
    int end = c->first_source[range->tensor * Z3D_STATE_KINDS + (int)range->kind + 1];
    int64_t within = 0;
    for (int tried = begin; tried < end && w->run == 0; tried++) {
        if (w->source < begin || w->source >= end) w->source = begin;
        /* Begins with the dataset of the last piece: it mostly has the next one, too. */
        const z3d_extent *e = c->source[w->source].extent;
        w->run = run_in(&range->slice, e, w->first, w->left, &within);
        w->offset = e->offset + within * 4;
        if (w->run == 0) w->source++;
    }
    if (w->run > 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA, "%s: damaged: no shard has element %lld of /%s/%s/%s", c->folder,
                     (long long)w->first, z3d_tensor_kind_name((int)range->kind),
                     c->manifest.tensor[range->tensor].group,
                     c->manifest.tensor[range->tensor].name);
}

/* The next piece; its count is 0 after the last one. */
static z3d_status next_piece(cursor *w, piece *out) {
    *out = (piece){0};
    while (w->left == 0 && w->at + 1 < w->count) {
        const z3d_wanted *r = &w->range[++w->at];
        Z3D_TRY(check_slice(w->c, (int)r->kind, r->tensor, &r->slice, r->first, r->count));
        w->first = r->first, w->left = r->count;
    }
    if (w->left == 0) return Z3D_OK;
    if (w->run == 0) Z3D_TRY(next_run(w));
    int64_t within = w->offset % Z3D_BLOCK_BYTES, count = (Z3D_BLOCK_BYTES - within) / 4;
    if (w->run < count) count = w->run;
    *out = (piece){w->at, w->c->source[w->source].shard, w->first,
                   count, w->offset / Z3D_BLOCK_BYTES,   within};
    w->first += count, w->left -= count, w->run -= count, w->offset += count * 4;
    return Z3D_OK;
}

z3d_status z3d_checkpoint_read(z3d_checkpoint *c, z3d_tensor_kind kind, int tensor,
                               const z3d_part *slice, int64_t first, int64_t count, float *out) {
    const z3d_wanted range = {kind, tensor, *slice, first, count};
    cursor w = {.c = c, .range = &range, .count = 1, .at = -1};
    piece p;
    for (;;) {
        const char *bytes;
        Z3D_TRY(next_piece(&w, &p));
        if (p.count == 0) return Z3D_OK;
        if (p.count == Z3D_BLOCK_BYTES / 4) { /* a whole block: no copy is needed */
            Z3D_TRY(read_block(c, p.shard, p.block, false, (char *)out));
            Z3D_TRY(verify_block(c, p.shard, p.block, (char *)out));
        } else {
            Z3D_TRY(cached(c, NULL, p.shard, p.block, &bytes));
            memcpy(out, bytes + p.within, (size_t)p.count * sizeof *out);
        }
        out += p.count;
    }
}

/* ---- many ranges, read ahead ---- */

/* The reading thread's state: the same positions as the caller's, and the blocks that will be in
 * the caller's cache. */
typedef struct scout {
    z3d_checkpoint *c;
    cursor cursor;
    recent cache;
    bool once; /* no other rank reads the same blocks */
} scout;

/* The next piece whose block is not in the cache; its count is 0 after the last one. */
static z3d_status next_unread(scout *s, piece *p) {
    bool there = true;
    while (there) {
        Z3D_TRY(next_piece(&s->cursor, p));
        if (p->count == 0) return Z3D_OK;
        (void)slot_of_block(&s->cache, p->shard, p->block, &there);
    }
    return Z3D_OK;
}

static z3d_status next_block(void *context, char *bytes, bool *end) {
    scout *s = context;
    piece p;
    Z3D_TRY(next_unread(s, &p));
    *end = p.count == 0;
    return *end ? Z3D_OK : read_block(s->c, p.shard, p.block, s->once, bytes);
}

/* Whether almost all blocks are read by one rank only, if each of `ranks` ranks reads as many
 * blocks as these ranges need. Not if each rank keeps everything, or if the rows of a matrix are
 * cut in another way than in the files. */
static z3d_status read_once(scout s, int ranks, bool *once) {
    const z3d_manifest *m = &s.c->manifest;
    double all = 0, mine = 0;
    piece p;
    for (int i = 0; i < s.cursor.count; i++)
        all += 4 * (double)z3d_tensor_elements(&m->tensor[s.cursor.range[i].tensor]);
    for (*once = true; *once; *once = mine * ranks <= 1.25 * all) {
        Z3D_TRY(next_unread(&s, &p));
        if (p.count == 0) return Z3D_OK;
        mine += Z3D_BLOCK_BYTES;
    }
    return Z3D_OK;
}

z3d_status z3d_checkpoint_read_all(z3d_checkpoint *c, const z3d_wanted *range, int count, int ranks,
                                   z3d_wanted_values take, void *context) {
    cursor w = {.c = c, .range = range, .count = count, .at = -1};
    scout s = {.c = c, .cursor = w};
    z3d_prefetch *ahead;
    piece p;
    forget(&c->cache);
    s.cache = c->cache;
    Z3D_TRY(read_once(s, ranks, &s.once));
    Z3D_TRY(z3d_prefetch_start(next_block, &s, Z3D_BLOCK_BYTES, &ahead));
    z3d_status status;
    while ((status = next_piece(&w, &p)) == Z3D_OK && p.count > 0) {
        const char *bytes;
        Z3D_TRY_GOTO(status, cached(c, ahead, p.shard, p.block, &bytes), end);
        Z3D_TRY_GOTO(status,
                     take(context, p.range, p.first, p.count, (const float *)(bytes + p.within)),
                     end);
    }
end:
    z3d_prefetch_stop(ahead);
    return status;
}

/* ---- progress ---- */

void z3d_checkpoint_watch(z3d_checkpoint *c, z3d_progress *progress) {
    c->progress = progress;
}

z3d_progress *z3d_checkpoint_progress(const z3d_checkpoint *c) {
    return c->progress;
}

/* ---- checking whole files ---- */

static z3d_status check_small_file(const z3d_checkpoint *c, const z3d_file_entry *file,
                                   z3d_checkpoint_verify verify, int64_t *checked) {
    int fd;
    char *bytes = NULL;
    Z3D_TRY(open_file(c->folder, file->name, file->size, &fd));
    z3d_status status = Z3D_OK;
    if (verify == Z3D_VERIFY_FULL) {
        status = z3d_new((size_t)file->size + 1, 1, file->name, &bytes);
        if (status == Z3D_OK) status = z3d_io_read(fd, file->name, bytes, file->size, 0);
        if (status == Z3D_OK && !z3d_digest_equal(z3d_digest_of(bytes, file->size), file->digest))
            status = Z3D_ERROR(Z3D_ERR_DATA, "%s/%s: damaged: it does not match its digest",
                               c->folder, file->name);
        *checked += file->size;
    }
    free(bytes);
    close(fd);
    return status;
}

/* Marks the shard's blocks that hold tensors of these kinds. */
static void mark_blocks(const z3d_shard *shard, unsigned kinds, bool *mark) {
    for (int i = 0; i < shard->num_extents; i++) {
        const z3d_extent *e = &shard->extent[i];
        if (!(kinds >> e->kind & 1) || e->count == 0) continue;
        for (int64_t b = e->offset / Z3D_BLOCK_BYTES;
             b <= (e->offset + e->count * 4 - 1) / Z3D_BLOCK_BYTES; b++)
            mark[b] = true;
    }
}

/* Part `part` of the blocks of all shards. One counter runs through all shards, so the parts are
 * even. */
typedef struct turns {
    unsigned kinds;
    int part, parts;
    int64_t counter;
    char *bytes;     /* a buffer for a block */
    int64_t checked; /* bytes */
} turns;

static z3d_status check_blocks(const z3d_checkpoint *c, int s, int fd, turns *t, const bool *left) {
    const z3d_shard *shard = &c->manifest.shard[s];
    for (int64_t b = 0; b < shard->num_blocks; b++) {
        if (left[b] || t->counter++ / 16 % t->parts != t->part) continue;
        int64_t count = block_bytes(shard, b);
        Z3D_TRY(blame(c, s, z3d_io_read(fd, shard->name, t->bytes, count, b * Z3D_BLOCK_BYTES)));
        Z3D_TRY(check_block(c, s, b, t->bytes, count));
        t->checked += count;
        z3d_progress_add(c->progress, count);
    }
    return Z3D_OK;
}

static z3d_status check_shard(const z3d_checkpoint *c, int s, turns *t) {
    const z3d_shard *shard = &c->manifest.shard[s];
    bool *left = NULL;
    int fd = -1;
    z3d_status status = open_shard_file(c, s, &fd);
    if (status == Z3D_OK)
        status = z3d_new((size_t)shard->num_blocks + 1, sizeof *left, "blocks to check", &left);
    if (status == Z3D_OK) {
        mark_blocks(shard, t->kinds, left);
        status = check_blocks(c, s, fd, t, left);
    }
    free(left);
    if (fd >= 0) close(fd);
    return status;
}

static int64_t bytes_of_shards(const z3d_checkpoint *c) {
    int64_t bytes = 0;
    for (int s = 0; s < c->manifest.num_shards; s++) bytes += c->manifest.shard[s].size;
    return bytes;
}

z3d_status z3d_checkpoint_check(const z3d_checkpoint *c, z3d_checkpoint_verify verify,
                                unsigned read_kinds, int part, int parts, int64_t *bytes_read) {
    turns t = {.kinds = read_kinds, .part = part, .parts = parts};
    z3d_progress_begin(c->progress, bytes_of_shards(c));
    for (int i = part; i < c->manifest.num_files; i += parts)
        Z3D_TRY(check_small_file(c, &c->manifest.file[i], verify, &t.checked));
    Z3D_TRY(z3d_new(Z3D_BLOCK_BYTES, 1, "a block", &t.bytes));
    z3d_status status = Z3D_OK;
    for (int s = 0; s < c->manifest.num_shards && status == Z3D_OK; s++) {
        int fd;
        if (verify == Z3D_VERIFY_FULL) {
            status = check_shard(c, s, &t);
        } else if (s % parts == part) {
            status = open_shard_file(c, s, &fd);
            if (status == Z3D_OK) close(fd);
        }
    }
    free(t.bytes);
    if (bytes_read) *bytes_read += t.checked;
    return status;
}
