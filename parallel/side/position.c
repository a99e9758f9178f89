/* Positions: a version lock (seqlock) around atomic words. A reader on another thread or in another
 * process never blocks the writer and never reads half a text. */
#include <string.h>

#include "parallel/side/side.h"

enum { WORDS = Z3D_POSITION_BYTES / 8 };

/* Every word is stored with release order: a reader cannot see it before the odd version. */
void z3d_position_write(z3d_position_slot *slot, const z3d_position *place) {
    uint32_t version = atomic_load_explicit(&slot->version, memory_order_relaxed);
    uint64_t words[WORDS];
    memcpy(words, place->text, sizeof words);
    atomic_store_explicit(&slot->version, version | 1u, memory_order_relaxed);
    atomic_store_explicit(&slot->waiting, place->waiting, memory_order_release);
    atomic_store_explicit(&slot->since, place->since, memory_order_release);
    for (int i = 0; i < WORDS; i++)
        atomic_store_explicit(&slot->text[i], words[i], memory_order_release);
    atomic_store_explicit(&slot->version, (version | 1u) + 1u, memory_order_release);
}

void z3d_position_read(z3d_position_slot *slot, z3d_position *out) {
    /* A writer that was killed in the middle leaves an odd version: stop after 1000 attempts. */
    for (int attempt = 0; attempt < 1000; attempt++) {
        uint64_t words[WORDS];
        uint32_t before = atomic_load_explicit(&slot->version, memory_order_acquire);
        out->waiting = atomic_load_explicit(&slot->waiting, memory_order_acquire) != 0;
        out->since = atomic_load_explicit(&slot->since, memory_order_acquire);
        for (int i = 0; i < WORDS; i++)
            words[i] = atomic_load_explicit(&slot->text[i], memory_order_acquire);
        memcpy(out->text, words, sizeof words);
        out->text[sizeof out->text - 1] = '\0';
        uint32_t after = atomic_load_explicit(&slot->version, memory_order_relaxed);
        if (before == after && before % 2 == 0) return;
    }
}

bool z3d_too_long(const struct z3d_side *side, double since) {
    double timeout = atomic_load(&side->timeout);
    return timeout > 0 && since > 0 && z3d_now() - since > timeout;
}
