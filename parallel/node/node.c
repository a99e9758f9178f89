/* Collectives inside a node. Small data goes through slots of shared memory: every member copies
 * its vector into its slot, posts the number of the collective, and reads the others' slots. Large
 * data stays in place: members read each other's memory (process_vm_readv), with one copy, even
 * while the owner computes. Every flag has one writer and only grows. A flag's value is the number
 * of a collective:
 *
 *   posted    others may read my slot or buffer for this collective
 *   reduced   my row of this collective is complete
 *   finished  I have read all that I need for this collective
 *
 * Every member has two slots and two posted addresses, chosen by the parity of the number: a member
 * posts number n after all members have finished n - 2. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "parallel/node/node.h"
#include "parallel/reduce/reduce.h"

enum {
    SLOT = 1024 * 1024, /* the most bytes of a vector in shared memory */
    ROW = 128 * 1024,   /* an all_gather reads rows of so many bytes or more in place */
    CHUNK = 256 * 1024, /* bytes of one piece of work: two pieces fit the cache */
    LINE = 128          /* flags of different writers do not share a cache line */
};

typedef struct member {
    _Alignas(LINE) _Atomic uint64_t posted;
    _Alignas(LINE) _Atomic uint64_t reduced;
    _Alignas(LINE) _Atomic uint64_t finished;
    _Alignas(LINE) _Atomic uint64_t address[2];
    _Atomic int64_t pid;
} member;

typedef enum { POST, SUM_SMALL, REDUCE, GATHER, FINISH, DRAIN, DONE } stage;

struct z3d_node {
    int size, index;
    member *members; /* in shared memory; the slots follow */
    char *slots;
    size_t shared_bytes;
    bool can_read;            /* members can read each other's memory */
    pid_t *pid;               /* by member */
    char *partial, *incoming; /* CHUNK bytes each */
    /* The current collective. */
    uint64_t number;
    stage stage;
    bool large;
    int next;   /* gather: members done */
    int64_t at; /* bytes done of the current row */
};

/* ---- making ---- */

/* Tries to read another member's memory: containers and hardened kernels may forbid it. */
static z3d_status try_reading(z3d_node *node, z3d_channel *channel) {
    enum { MAGIC = 0x5a3d };
    uint64_t mine = MAGIC + (uint64_t)node->index, read = 0;
    int next = (node->index + 1) % node->size, everybody = 1;
    member *self = &node->members[node->index];
    atomic_store(&self->address[0], (uint64_t)(uintptr_t)&mine);
    atomic_store(&self->pid, getpid());
    z3d_status status = z3d_channel_min(channel, &everybody); /* a barrier */
    for (int m = 0; m < node->size; m++) node->pid[m] = (pid_t)atomic_load(&node->members[m].pid);
    struct iovec to = {.iov_base = &read, .iov_len = sizeof read};
    struct iovec from = {.iov_base =
                             (void *)(uintptr_t)atomic_load(&node->members[next].address[0]),
                         .iov_len = sizeof read};
    ssize_t got = process_vm_readv(node->pid[next], &to, 1, &from, 1, 0);
    int good = got == (ssize_t)sizeof read && read == MAGIC + (uint64_t)next;
    /* This is also a barrier: `mine` must live until all members have read it. */
    if (status == Z3D_OK) status = z3d_channel_min(channel, &good);
    node->can_read = good;
    return status;
}

z3d_status z3d_node_create(z3d_channel *channel, bool may_read, z3d_node **out) {
    z3d_node *node = NULL;
    void *shared = NULL;
    *out = NULL;
    z3d_status status = z3d_new(1, sizeof *node, "a node's group", &node);
    if (status == Z3D_OK) {
        node->size = channel->size;
        node->index = channel->index;
        size_t size = (size_t)node->size;
        node->shared_bytes = size * (sizeof(member) + 2 * (size_t)SLOT);
        status = z3d_new(size, sizeof *node->pid, "a node's group", &node->pid);
        if (status == Z3D_OK) status = z3d_new(2, CHUNK, "communication buffers", &node->partial);
    }
    int all = status == Z3D_OK;
    z3d_status agreed = z3d_channel_min(channel, &all);
    if (agreed == Z3D_OK && all) agreed = z3d_shared_create(channel, node->shared_bytes, &shared);
    if (status == Z3D_OK) status = agreed;
    if (status != Z3D_OK || !shared) {
        z3d_node_destroy(node);
        return status;
    }
    node->incoming = node->partial + CHUNK;
    node->members = shared;
    node->slots = (char *)shared + (size_t)node->size * sizeof(member);
    memset(node->slots + (size_t)node->index * 2 * SLOT, 0, 2 * SLOT); /* first touch */
    *out = node;
    return may_read ? try_reading(node, channel) : Z3D_OK;
}

void z3d_node_destroy(z3d_node *node) {
    if (!node) return;
    z3d_shared_destroy(node->members, node->shared_bytes);
    free(node->partial);
    free(node->pid);
    free(node);
}

int64_t z3d_node_buffer_bytes(void) {
    return (int64_t)(sizeof(member) + 2 * (size_t)SLOT + 2 * (size_t)CHUNK);
}

bool z3d_node_takes_all(const z3d_node *node) {
    return node->can_read;
}

/* ---- where things are ---- */

/* Bytes of the whole vector, or of the rows of all members. */
static int64_t whole_bytes(const z3d_node *node, const z3d_collective *call) {
    if (call->kind == Z3D_COLLECTIVE_BARRIER) return 0;
    const int rows = z3d_collective_has_rows(call->kind) ? node->size : 1;
    return z3d_bytes_of(call->dtype, call->count) * rows;
}

/* Up to these sizes two copies through a slot, in the cache, are faster than one copy by the kernel
 * (measured). */
static bool is_large(const z3d_node *node, const z3d_collective *call) {
    if (whole_bytes(node, call) > SLOT) return true;
    return call->kind == Z3D_COLLECTIVE_ALL_GATHER && node->can_read &&
           z3d_bytes_of(call->dtype, call->count) >= ROW;
}

bool z3d_node_takes(const z3d_node *node, const z3d_collective *call) {
    return node->can_read || !is_large(node, call);
}

/* A row's bytes, and its first byte in the user's buffer and in a slot. Rows in a slot have no
 * gaps.
 */
typedef struct row {
    int64_t bytes, in_buffer, in_slot;
} row;

static row find_row(const z3d_node *node, const z3d_collective *call, int index) {
    const int64_t bytes = z3d_bytes_of(call->dtype, call->count);
    if (call->kind == Z3D_COLLECTIVE_BROADCAST) return (row){.bytes = bytes};
    if (z3d_collective_has_rows(call->kind))
        return (row){.bytes = bytes,
                     .in_buffer = z3d_bytes_of(call->dtype, index * call->stride),
                     .in_slot = index * bytes};
    int64_t first = z3d_bytes_of(call->dtype, z3d_row_first(call->count, node->size, index));
    return (row){.bytes = z3d_bytes_of(call->dtype, z3d_row_count(call->count, node->size, index)),
                 .in_buffer = first,
                 .in_slot = first};
}

static char *slot_of(const z3d_node *node, int m) {
    return node->slots + ((size_t)m * 2 + node->number % 2) * SLOT;
}

static uint64_t flag(_Atomic uint64_t *value) {
    return atomic_load_explicit(value, memory_order_acquire);
}

static void raise_flag(_Atomic uint64_t *value, uint64_t number) {
    atomic_store_explicit(value, number, memory_order_release);
}

static bool all_posted(const z3d_node *node) {
    for (int m = 0; m < node->size; m++)
        if (flag(&node->members[m].posted) < node->number) return false;
    return true;
}

static bool all_finished(const z3d_node *node, uint64_t number) {
    for (int m = 0; m < node->size; m++)
        if (flag(&node->members[m].finished) < number) return false;
    return true;
}

static z3d_status read_peer(const z3d_node *node, int m, int64_t offset, void *to, int64_t bytes) {
    uint64_t base =
        atomic_load_explicit(&node->members[m].address[node->number % 2], memory_order_relaxed);
    while (bytes > 0) {
        struct iovec here = {.iov_base = to, .iov_len = (size_t)bytes};
        struct iovec there = {.iov_base = (void *)(uintptr_t)(base + (uint64_t)offset),
                              .iov_len = (size_t)bytes};
        ssize_t got = process_vm_readv(node->pid[m], &here, 1, &there, 1, 0);
        if (got <= 0)
            return Z3D_ERROR(Z3D_ERR_COMM, "cannot read the memory of group member %d (pid %d): %s",
                             m, (int)node->pid[m], got < 0 ? strerror(errno) : "no bytes read");
        to = (char *)to + got;
        offset += got;
        bytes -= got;
    }
    return Z3D_OK;
}

/* ---- the stages ---- */

/* Does one piece of work, if one can be done now: *worked. */
typedef z3d_status (*stage_work)(z3d_node *node, const z3d_collective *call, bool *worked);

static stage after_post(const z3d_node *node, const z3d_collective *call) {
    switch (call->kind) {
    case Z3D_COLLECTIVE_REDUCE_SCATTER:
        return REDUCE;
    case Z3D_COLLECTIVE_ALL_REDUCE:
        return whole_bytes(node, call) <= Z3D_SMALL_BYTES && call->wire == Z3D_F32 ? SUM_SMALL
                                                                                   : REDUCE;
    case Z3D_COLLECTIVE_BROADCAST:
        return node->index == call->peer ? FINISH : GATHER;
    case Z3D_COLLECTIVE_ALL_GATHER:
        return GATHER;
    default:
        return SUM_SMALL; /* a barrier is a sum of nothing */
    }
}

/* Copies into the slot what the others will read. */
static void copy_in(const z3d_node *node, const z3d_collective *call) {
    char *slot = slot_of(node, node->index);
    const char *buffer = call->buffer;
    if (call->kind == Z3D_COLLECTIVE_BARRIER || call->count == 0) return;
    if (call->kind == Z3D_COLLECTIVE_BROADCAST) {
        if (node->index == call->peer) memcpy(slot, buffer, (size_t)find_row(node, call, 0).bytes);
        return;
    }
    bool small = after_post(node, call) == SUM_SMALL;
    for (int r = 0; r < node->size; r++) {
        row at = find_row(node, call, r);
        bool wanted =
            call->kind == Z3D_COLLECTIVE_ALL_GATHER ? r == node->index : small || r != node->index;
        if (wanted) memcpy(slot + at.in_slot, buffer + at.in_buffer, (size_t)at.bytes);
    }
}

static z3d_status post(z3d_node *node, const z3d_collective *call, bool *worked) {
    member *self = &node->members[node->index];
    *worked = node->number <= 2 || all_finished(node, node->number - 2);
    if (!*worked) return Z3D_OK;
    if (node->large)
        atomic_store_explicit(&self->address[node->number % 2], (uint64_t)(uintptr_t)call->buffer,
                              memory_order_relaxed);
    else
        copy_in(node, call);
    raise_flag(&self->posted, node->number);
    node->stage = after_post(node, call);
    return Z3D_OK;
}

static z3d_status sum_small(z3d_node *node, const z3d_collective *call, bool *worked) {
    *worked = all_posted(node);
    if (!*worked) return Z3D_OK;
    int64_t bytes = whole_bytes(node, call);
    if (bytes > 0) {
        z3d_reduce_function reduce = z3d_reduce_find(call->dtype, call->op);
        memcpy(call->buffer, slot_of(node, 0), (size_t)bytes);
        for (int m = 1; m < node->size; m++)
            reduce(call->buffer, call->buffer, slot_of(node, m), call->count);
    }
    node->stage = FINISH;
    return Z3D_OK;
}

/* Member m's part of one chunk of the own row: in its slot, or read into `to`. */
static z3d_status find_part(const z3d_node *node, int m, const row *at, char *to, int64_t bytes,
                            const char **part) {
    *part = node->large ? to : slot_of(node, m) + at->in_slot + node->at;
    return node->large ? read_peer(node, m, at->in_buffer + node->at, to, bytes) : Z3D_OK;
}

/* Adds the members' parts of one chunk of the own row in the order of parallel.h: the next member's
 * part first, the own part last. */
static z3d_status reduce_chunk(z3d_node *node, const z3d_collective *call, const row *at, char *own,
                               int64_t bytes) {
    z3d_reduce_function reduce = z3d_reduce_find(call->dtype, call->op);
    int64_t count = z3d_values_in(call->dtype, bytes);
    const char *sum = NULL, *part;
    for (int k = 1; k < node->size; k++) {
        int m = (node->index + k) % node->size;
        Z3D_TRY(find_part(node, m, at, sum ? node->incoming : node->partial, bytes, &part));
        if (sum) reduce(node->partial, sum, part, count);
        sum = sum ? node->partial : part;
    }
    reduce(own, sum, own, count);
    return Z3D_OK;
}

/* The same sum as if the parts had travelled in the wire's type: the own part first, then the other
 * parts, rounded. The row of an all_reduce is rounded, too, because others will get it. */
static z3d_status reduce_rounded(z3d_node *node, const z3d_collective *call, const row *at,
                                 char *own, int64_t bytes) {
    const z3d_codec *codec = z3d_codec_of(call->wire);
    z3d_reduce_function reduce = z3d_reduce_find(call->dtype, call->op);
    int64_t count = z3d_values_in(call->dtype, bytes);
    const char *part;
    for (int k = 1; k < node->size; k++) {
        int m = (node->index + k) % node->size;
        Z3D_TRY(find_part(node, m, at, node->incoming, bytes, &part));
        codec->encode(node->partial, (const float *)(const void *)part, count);
        codec->decode((float *)(void *)node->incoming, node->partial, count);
        reduce(own, own, node->incoming, count);
    }
    if (call->kind != Z3D_COLLECTIVE_ALL_REDUCE) return Z3D_OK;
    codec->encode(node->partial, (const float *)(const void *)own, count);
    codec->decode((float *)(void *)own, node->partial, count);
    return Z3D_OK;
}

static z3d_status reduce_part(z3d_node *node, const z3d_collective *call, const row *at,
                              int64_t bytes) {
    char *own = (char *)call->buffer + at->in_buffer + node->at;
    Z3D_TRY(call->wire == Z3D_F32 ? reduce_chunk(node, call, at, own, bytes)
                                  : reduce_rounded(node, call, at, own, bytes));
    if (!node->large && call->kind == Z3D_COLLECTIVE_ALL_REDUCE)
        memcpy(slot_of(node, node->index) + at->in_slot + node->at, own, (size_t)bytes);
    return Z3D_OK;
}

static z3d_status reduce_own_row(z3d_node *node, const z3d_collective *call, bool *worked) {
    if (node->at == 0 && !all_posted(node)) return Z3D_OK;
    row at = find_row(node, call, node->index);
    int64_t left = at.bytes - node->at, bytes = left < CHUNK ? left : CHUNK;
    if (bytes > 0) Z3D_TRY(reduce_part(node, call, &at, bytes));
    node->at += bytes;
    *worked = true;
    if (node->at < at.bytes) return Z3D_OK;
    node->at = 0;
    raise_flag(&node->members[node->index].reduced, node->number);
    node->stage = call->kind == Z3D_COLLECTIVE_ALL_REDUCE ? GATHER : FINISH;
    return Z3D_OK;
}

/* Copies a chunk of the next member's row; a broadcast has one row, the root's. */
static z3d_status gather_row(z3d_node *node, const z3d_collective *call, bool *worked) {
    bool broadcast = call->kind == Z3D_COLLECTIVE_BROADCAST;
    int m = broadcast ? call->peer : (node->index + 1 + node->next) % node->size;
    member *from = &node->members[m];
    bool reduced = call->kind == Z3D_COLLECTIVE_ALL_REDUCE;
    if (flag(reduced ? &from->reduced : &from->posted) < node->number) return Z3D_OK;
    row at = find_row(node, call, m);
    int64_t left = at.bytes - node->at, bytes = left < CHUNK ? left : CHUNK;
    char *to = (char *)call->buffer + at.in_buffer + node->at;
    if (node->large)
        Z3D_TRY(read_peer(node, m, at.in_buffer + node->at, to, bytes));
    else if (bytes > 0)
        memcpy(to, slot_of(node, m) + at.in_slot + node->at, (size_t)bytes);
    node->at += bytes;
    *worked = true;
    if (node->at < at.bytes) return Z3D_OK;
    node->at = 0;
    node->next++;
    if (broadcast || node->next == node->size - 1) node->stage = FINISH;
    return Z3D_OK;
}

/* Ends the collective, except on a member whose buffer others read: it waits until they have read.
 */
static z3d_status finish(z3d_node *node, const z3d_collective *call, bool *worked) {
    raise_flag(&node->members[node->index].finished, node->number);
    bool read_by_others =
        node->large && (call->kind != Z3D_COLLECTIVE_BROADCAST || node->index == call->peer);
    node->stage = read_by_others ? DRAIN : DONE;
    *worked = true;
    return Z3D_OK;
}

static z3d_status drain(z3d_node *node, const z3d_collective *call, bool *worked) {
    (void)call;
    *worked = all_finished(node, node->number);
    if (*worked) node->stage = DONE;
    return Z3D_OK;
}

void z3d_node_begin(z3d_node *node, const z3d_collective *call, uint64_t number) {
    node->number = number;
    node->stage = POST;
    node->large = is_large(node, call);
    node->next = 0;
    node->at = 0;
}

void z3d_node_skip(z3d_node *node, uint64_t number) {
    member *self = &node->members[node->index];
    raise_flag(&self->posted, number);
    raise_flag(&self->reduced, number);
    raise_flag(&self->finished, number);
}

z3d_status z3d_node_progress(z3d_node *node, const z3d_collective *call, bool *moved, bool *done) {
    static const stage_work work_of[] = {
        [POST] = post,         [SUM_SMALL] = sum_small, [REDUCE] = reduce_own_row,
        [GATHER] = gather_row, [FINISH] = finish,       [DRAIN] = drain};
    bool step = true;
    while (step && node->stage != DONE) {
        stage before = node->stage;
        bool worked = false;
        Z3D_TRY(work_of[before](node, call, &worked));
        if (worked) *moved = true;
        /* One large chunk is enough for a poll; changes of the stage cost nothing. */
        step = worked && (!node->large || node->stage != before);
    }
    *done = node->stage == DONE;
    return Z3D_OK;
}
