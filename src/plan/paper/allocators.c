/* The memory that general allocators would need for a program's buffers. A buffer is requested at
 * its first instruction and returned after its last. Both allocators have a list of blocks in
 * address order; they differ in the choice of a free block, in rounding, and in growth. */
#include <stdlib.h>

#include "src/plan/memory.h"

enum {
    KIB = 1024,
    MIB = 1024 * KIB,
    CACHING_GRANULE = 512,
    SMALL_REQUEST = MIB,
    SMALL_SEGMENT = 2 * MIB,
    MIDDLE_REQUEST = 10 * MIB,
    MIDDLE_SEGMENT = 20 * MIB,
    LARGE_STEP = 2 * MIB,
    FIRST_FIT_GRANULE = 256
};

/* Neighbours in the list are neighbours in memory if they have the same segment. */
typedef struct block {
    int64_t bytes;
    bool used;
    int segment;
    int before, after; /* in the list, -1: none */
} block;

typedef struct heap {
    bool caching;
    block *block; /* two for each buffer: a request makes a segment or splits a block */
    int count, first, last, spare; /* spare: head of the unused blocks, linked by `after` */
    int segments;
    int64_t reserved;
} heap;

static int new_block(heap *h, block value) {
    int index = h->spare;
    if (index >= 0)
        h->spare = h->block[index].after;
    else
        index = h->count++;
    h->block[index] = value;
    return index;
}

static void link_after(heap *h, int index, int before) {
    int after = before >= 0 ? h->block[before].after : h->first;
    h->block[index].before = before;
    h->block[index].after = after;
    *(before >= 0 ? &h->block[before].after : &h->first) = index;
    *(after >= 0 ? &h->block[after].before : &h->last) = index;
}

static void unlink_block(heap *h, int index) {
    int before = h->block[index].before, after = h->block[index].after;
    *(before >= 0 ? &h->block[before].after : &h->first) = after;
    *(after >= 0 ? &h->block[after].before : &h->last) = before;
    h->block[index].after = h->spare;
    h->spare = index;
}

static bool is_small(int64_t bytes) {
    return bytes <= SMALL_REQUEST;
}

/* The caching allocator has a pool for small requests (segment < 0) and one for others. */
static int find_free(const heap *h, int64_t bytes) {
    int best = -1;
    for (int i = h->first; i >= 0; i = h->block[i].after) {
        const block *b = &h->block[i];
        if (b->used || b->bytes < bytes) continue;
        if (!h->caching) return i;
        if ((b->segment < 0) != is_small(bytes)) continue;
        if (best < 0 || b->bytes < h->block[best].bytes) best = i;
    }
    return best;
}

static int64_t segment_bytes(int64_t bytes) {
    if (is_small(bytes)) return SMALL_SEGMENT;
    return bytes < MIDDLE_REQUEST ? MIDDLE_SEGMENT : z3d_round_up(bytes, LARGE_STEP);
}

/* Adds a free block of at least `bytes` at the end of the list. */
static int grow_heap(heap *h, int64_t bytes) {
    if (h->caching) {
        int64_t size = segment_bytes(bytes);
        int segment = ++h->segments;
        int made =
            new_block(h, (block){.bytes = size, .segment = is_small(bytes) ? -segment : segment});
        link_after(h, made, h->last);
        h->reserved += size;
        return made;
    }
    int top = h->last;
    if (top < 0 || h->block[top].used) {
        top = new_block(h, (block){.bytes = 0});
        link_after(h, top, h->last);
    }
    h->reserved += bytes - h->block[top].bytes;
    h->block[top].bytes = bytes;
    return top;
}

static int take(heap *h, int64_t wanted) {
    int64_t bytes = z3d_round_up(wanted, h->caching ? CACHING_GRANULE : FIRST_FIT_GRANULE);
    int index = find_free(h, bytes);
    if (index < 0) index = grow_heap(h, bytes);
    block *b = &h->block[index];
    int64_t rest = b->bytes - bytes;
    bool split = h->caching && !is_small(bytes) ? rest > MIB : rest > 0;
    b->used = true;
    if (split) {
        b->bytes = bytes;
        int part = new_block(h, (block){.bytes = rest, .segment = b->segment});
        link_after(h, part, index);
    }
    return index;
}

static bool free_neighbours(const heap *h, int a, int b) {
    return a >= 0 && b >= 0 && !h->block[a].used && !h->block[b].used &&
           h->block[a].segment == h->block[b].segment;
}

static void give(heap *h, int index) {
    h->block[index].used = false;
    int before = h->block[index].before, after = h->block[index].after;
    if (free_neighbours(h, index, after)) {
        h->block[index].bytes += h->block[after].bytes;
        unlink_block(h, after);
    }
    if (free_neighbours(h, before, index)) {
        h->block[before].bytes += h->block[index].bytes;
        unlink_block(h, index);
    }
}

/* ---- playing a program's requests ---- */

typedef struct request {
    int time; /* 2 * instruction: request; + 1: return */
    int buffer;
} request;

static int by_time(const void *a, const void *b) {
    const request *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

static int list_requests(const z3d_program *program, z3d_space space, request *out) {
    int count = 0;
    for (int i = 0; i < program->num_buffers; i++) {
        const z3d_buffer *b = &program->buffer[i];
        if (b->space != space || b->bytes == 0) continue;
        out[count++] = (request){b->persistent ? -1 : 2 * b->first, i};
        if (!b->persistent) out[count++] = (request){2 * b->last + 1, i};
    }
    qsort(out, (size_t)count, sizeof *out, by_time);
    return count;
}

/* place: scratch, one entry for each buffer. */
static z3d_status play(const z3d_program *program, const request *requests, int count, bool caching,
                       int *place, int64_t *out) {
    heap h = {.caching = caching, .first = -1, .last = -1, .spare = -1};
    Z3D_TRY(z3d_new(2 * (size_t)program->num_buffers + 1, sizeof *h.block, "allocators", &h.block));
    for (int i = 0; i < count; i++) {
        int buffer = requests[i].buffer;
        bool back = requests[i].time > 0 && requests[i].time % 2 == 1;
        if (back)
            give(&h, place[buffer]);
        else
            place[buffer] = take(&h, program->buffer[buffer].bytes);
    }
    free(h.block);
    *out = h.reserved;
    return Z3D_OK;
}

static z3d_status play_both(const z3d_program *program, z3d_space space, z3d_packing *out) {
    request *requests = NULL;
    int *place = NULL;
    size_t buffers = (size_t)program->num_buffers + 1;
    z3d_status status = z3d_new(2 * buffers, sizeof *requests, "allocators", &requests);
    if (status == Z3D_OK) status = z3d_new(buffers, sizeof *place, "allocators", &place);
    if (status == Z3D_OK) {
        int count = list_requests(program, space, requests);
        status = play(program, requests, count, false, place, &out->first_fit);
        if (status == Z3D_OK) status = play(program, requests, count, true, place, &out->caching);
    }
    free(place);
    free(requests);
    return status;
}

/* ---- live bytes ---- */

z3d_status z3d_plan_live_bytes(const z3d_program *program, z3d_space space, int64_t **out) {
    int64_t *live;
    int moments = program->num_instructions;
    Z3D_TRY(z3d_new((size_t)moments + 1, sizeof *live, "memory over a step", &live));
    for (int i = 0; i < program->num_buffers; i++) {
        const z3d_buffer *b = &program->buffer[i];
        if (b->space != space) continue;
        live[b->persistent ? 0 : b->first] += b->bytes;
        live[b->persistent ? moments : b->last + 1] -= b->bytes;
    }
    for (int n = 1; n <= moments; n++) live[n] += live[n - 1];
    *out = live;
    return Z3D_OK;
}

z3d_status z3d_plan_packing(const z3d_program *program, z3d_space space, z3d_packing *out) {
    int64_t *live;
    *out = (z3d_packing){0};
    Z3D_TRY(z3d_plan_live_bytes(program, space, &live));
    for (int n = 0; n < program->num_instructions; n++)
        if (live[n] > out->bound) {
            out->bound = live[n];
            out->peak = n;
        }
    free(live);
    for (int i = 0; i < program->num_buffers; i++) {
        const z3d_buffer *b = &program->buffer[i];
        if (b->space == space && b->offset + b->bytes > out->arena)
            out->arena = b->offset + b->bytes;
    }
    if (program->num_buffers <= Z3D_COMPARED_BUFFERS) return play_both(program, space, out);
    out->first_fit = out->caching = -1;
    return Z3D_OK;
}
