/* Exchanges the replicas' states and sends answers to rank 0. */
#include "src/train/generation/answers.h"

#include <stdlib.h>
#include <string.h>

z3d_status z3d_answers_create(const z3d_generate_options *options, z3d_answers *out) {
    const z3d_mesh *mesh = options->mesh;
    const int ranks = z3d_world_size(options->world);
    *out = (z3d_answers){.options = options,
                         .replicas = z3d_mesh_size(mesh, Z3D_ROLE_SAMPLES),
                         .replica = z3d_mesh_index(mesh, Z3D_ROLE_SAMPLES, mesh->rank),
                         .collects = z3d_world_rank(options->world) == 0};
    size_t count = out->collects ? (size_t)options->count : 0;
    Z3D_TRY(z3d_new(count + 1, sizeof *out->waiting, "answers", &out->waiting));
    Z3D_TRY(z3d_new((size_t)out->replicas, sizeof *out->round, "answers", &out->round));
    return z3d_new((size_t)ranks, sizeof *out->ranks, "answers", &out->ranks);
}

void z3d_answers_release(z3d_answers *a) {
    for (int64_t i = 0; a->waiting && a->collects && i < a->options->count; i++)
        free((void *)(uintptr_t)a->waiting[i].text);
    free(a->waiting);
    free(a->round);
    free(a->ranks);
    z3d_string_free(&a->sent);
}

/* Rank 0: keeps an answer until all earlier ones were passed to the caller. */
static z3d_status take(z3d_answers *a, int64_t prompt, const z3d_answer *answer) {
    const z3d_generate_options *o = a->options;
    char *text;
    Z3D_TRY(z3d_new(answer->length + 1, 1, "an answer", &text));
    if (answer->length) memcpy(text, answer->text, answer->length);
    a->waiting[prompt] = *answer;
    a->waiting[prompt].text = text;
    for (; a->given < o->count && a->waiting[a->given].text; a->given++) {
        z3d_answer *next = &a->waiting[a->given];
        if (o->answer) Z3D_TRY(o->answer(o->context, a->given, next));
        free((void *)(uintptr_t)next->text);
        next->text = NULL;
    }
    return Z3D_OK;
}

z3d_status z3d_answers_add(z3d_answers *a, int64_t prompt, const z3d_answer *answer) {
    if (a->collects) return take(a, prompt, answer);
    if (a->replica == 0) return Z3D_OK; /* rank 0 has the answer itself */
    z3d_answer head = *answer;
    head.text = NULL;
    z3d_string_append_bytes(&a->sent, (const char *)&prompt, sizeof prompt);
    z3d_string_append_bytes(&a->sent, (const char *)&head, sizeof head);
    z3d_string_append_bytes(&a->sent, answer->text, answer->length);
    return a->sent.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for answers") : Z3D_OK;
}

static z3d_status take_all(z3d_answers *a, const char *bytes, int64_t count) {
    for (const char *at = bytes, *end = bytes + count; at < end;) {
        int64_t prompt;
        z3d_answer answer;
        memcpy(&prompt, at, sizeof prompt);
        memcpy(&answer, at + sizeof prompt, sizeof answer);
        answer.text = at + sizeof prompt + sizeof answer;
        Z3D_TRY(take(a, prompt, &answer));
        at = answer.text + answer.length;
    }
    return Z3D_OK;
}

/* Broadcasts answers from one rank of a replica: a world has no messages to a single rank. */
static z3d_status collect(z3d_answers *a, int speaker, int64_t bytes) {
    z3d_world *world = a->options->world;
    char *buffer = NULL;
    if (z3d_world_rank(world) == speaker)
        return z3d_world_broadcast(world, a->sent.text, bytes, speaker);
    Z3D_TRY(z3d_new((size_t)bytes, 1, "answers of another rank", &buffer));
    z3d_status status = z3d_world_broadcast(world, buffer, bytes, speaker);
    if (status == Z3D_OK && a->collects) status = take_all(a, buffer, bytes);
    free(buffer);
    return status;
}

z3d_status z3d_answers_exchange(z3d_answers *a, const z3d_round *mine, z3d_round **round,
                                bool *stop) {
    z3d_world *world = a->options->world;
    z3d_round own = *mine;
    own.bytes = (int64_t)a->sent.length;
    own.stop = z3d_world_stop_requested(world);
    *round = a->round;
    z3d_watchdog_position(world, true, "generation (waiting for all ranks)");
    Z3D_TRY(z3d_world_gather_all(world, &own, a->ranks, sizeof own));
    *stop = false;
    for (int rank = 0; rank < z3d_world_size(world); rank++) *stop |= a->ranks[rank].stop != 0;
    for (int r = 0; r < a->replicas; r++) {
        int speaker = z3d_mesh_member(a->options->mesh, Z3D_ROLE_SAMPLES, 0, r);
        a->round[r] = a->ranks[speaker];
        if (a->round[r].bytes > 0) Z3D_TRY(collect(a, speaker, a->round[r].bytes));
    }
    z3d_string_clear(&a->sent);
    return Z3D_OK;
}
