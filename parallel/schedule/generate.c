/* Makes a schedule: refuses sizes that its kind cannot have, then calls the kind's generator for
 * the list of each stage. A new kind is a generator here. */
#include <stdlib.h>

#include "parallel/schedule/internal.h"

/* A stage's list while it is made. Passes of a chunk are in ascending order of micro-batch, so a
 * generator gives only pass and chunk, and `add` takes the next micro-batch. After the last
 * micro-batch it adds nothing, so a generator needs no special case for few micro-batches. */
typedef struct task_list {
    z3d_schedule *schedule;
    int count; /* tasks of all stages so far */
    int *next; /* micro-batch, by pass and chunk */
} task_list;

static void add(task_list *list, z3d_pass pass, int chunk) {
    z3d_schedule *schedule = list->schedule;
    int micro = list->next[pass * schedule->chunks + chunk]++;
    if (micro >= schedule->micros) return;
    schedule->task[list->count++] = (z3d_task){pass, chunk, micro};
}

/* ---- schedules whose backward is in one piece ---- */

static void gpipe(task_list *list, int stage) {
    for (int i = 0; i < list->schedule->micros; i++) add(list, Z3D_PASS_FORWARD, stage);
    for (int i = 0; i < list->schedule->micros; i++) add(list, Z3D_PASS_BACKWARD, stage);
}

/* Forwards until the last stage has its first micro-batch; then one forward, one backward in turn.
 */
static void one_f_one_b(task_list *list, int stage) {
    for (int i = stage + 1; i < list->schedule->stages; i++) add(list, Z3D_PASS_FORWARD, stage);
    for (int i = 0; i < list->schedule->micros; i++) {
        add(list, Z3D_PASS_FORWARD, stage);
        add(list, Z3D_PASS_BACKWARD, stage);
    }
}

/* Megatron-LM's schedule (Narayanan et al., arXiv 2104.04473). A stage runs as many micro-batches
 * as there are stages through its first chunk, then the same micro-batches through its second
 * chunk, and so on; backward takes the chunks in reverse order. */
static void interleaved(task_list *list, int stage) {
    int stages = list->schedule->stages, each = list->schedule->chunks / stages;
    int total = list->schedule->micros * each;
    int warmup = 2 * (stages - 1 - stage) + (each - 1) * stages; /* forwards before a backward */
    for (int i = 0; i < total + warmup; i++) {
        int forward = i / stages % each, backward = each - 1 - (i - warmup) / stages % each;
        if (i < total) add(list, Z3D_PASS_FORWARD, forward * stages + stage);
        if (i >= warmup) add(list, Z3D_PASS_BACKWARD, backward * stages + stage);
    }
}

/* ---- schedules whose backward is in two halves (Qi et al., arXiv 2401.10241) ---- */

/* Other stages wait only for the input half. The weight half fills time in which the stage would be
 * idle. */
static void both_halves(task_list *list, int chunk) {
    add(list, Z3D_PASS_BACKWARD_INPUT, chunk);
    add(list, Z3D_PASS_BACKWARD_WEIGHT, chunk);
}

/* 1f1b with the weight halves of stage s of p delayed by s micro-batches. At most p - s
 * micro-batches wait for their input half and s for their weight half, so every stage holds p
 * micro-batches. */
static void zb_h1(task_list *list, int stage) {
    for (int i = stage + 1; i < list->schedule->stages; i++) add(list, Z3D_PASS_FORWARD, stage);
    for (int i = 0; i < list->schedule->micros; i++) {
        add(list, Z3D_PASS_FORWARD, stage);
        add(list, Z3D_PASS_BACKWARD_INPUT, stage);
        if (i >= stage) add(list, Z3D_PASS_BACKWARD_WEIGHT, stage);
    }
    for (int i = 0; i < stage; i++) add(list, Z3D_PASS_BACKWARD_WEIGHT, stage);
}

/* Stage s of p has chunk s (down the stages) and chunk 2p - 1 - s (up again); stage 0 has the first
 * and the last chunk. With 2p - 1 micro-batches or more, and a forward as long as each half, a
 * stage never waits once it has begun. With fewer micro-batches the list is the one of 2p - 1,
 * without the passes of micro-batches that do not exist. */
static void zb_v(task_list *list, int stage) {
    int stages = list->schedule->stages, micros = list->schedule->micros;
    int down = stage, up = 2 * stages - 1 - stage, left = stages - stage;
    for (int i = 0; i < 2 * left - 1; i++) add(list, Z3D_PASS_FORWARD, down);
    for (int i = 0; i < stage; i++) {
        add(list, Z3D_PASS_FORWARD, up);
        add(list, Z3D_PASS_FORWARD, down);
    }
    for (int i = 0; i < left; i++) {
        add(list, Z3D_PASS_FORWARD, up);
        both_halves(list, up);
    }
    for (int i = stages; i < micros || i < 2 * stages - 1; i++) {
        add(list, Z3D_PASS_FORWARD, down);
        both_halves(list, down);
        add(list, Z3D_PASS_FORWARD, up);
        both_halves(list, up);
    }
    for (int i = 0; i < stage; i++) { /* no forwards are left; weight halves come last */
        add(list, Z3D_PASS_BACKWARD_INPUT, down);
        add(list, Z3D_PASS_BACKWARD_INPUT, up);
    }
    for (int i = 0; i < left; i++) both_halves(list, down);
    for (int i = 0; i < stage; i++) add(list, Z3D_PASS_BACKWARD_WEIGHT, up);
    for (int i = 0; i < stage; i++) add(list, Z3D_PASS_BACKWARD_WEIGHT, down);
}

/* ---- making ---- */

typedef void (*generator)(task_list *list, int stage);
static const generator generators[Z3D_SCHEDULE_FILE] = {
    [Z3D_SCHEDULE_1F1B] = one_f_one_b,
    [Z3D_SCHEDULE_GPIPE] = gpipe,
    [Z3D_SCHEDULE_INTERLEAVED] = interleaved,
    [Z3D_SCHEDULE_ZB_H1] = zb_h1,
    [Z3D_SCHEDULE_ZB_V] = zb_v,
};

static void all_forwards(task_list *list, int stage) {
    const z3d_schedule *schedule = list->schedule;
    for (int micro = 0; micro < schedule->micros; micro++) {
        for (int chunk = 0; chunk < schedule->chunks; chunk++) {
            if (schedule->stage_of_chunk[chunk] == stage) add(list, Z3D_PASS_FORWARD, chunk);
        }
    }
}

static z3d_status check_kind(const z3d_schedule *schedule) {
    const z3d_schedule_kind kind = schedule->kind;
    const int stages = schedule->stages, each = schedule->chunks / stages;
    const int round = (int)z3d_schedule_round(kind, stages), micros = schedule->micros;
    if (!z3d_schedule_has_chunks(kind, each))
        return Z3D_ERROR(Z3D_ERR_CONFIG, "%s, not %d", z3d_schedule_chunks_text(kind).text, each);
    if (micros % round == 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_CONFIG, "%s, not %d", z3d_schedule_round_text(kind, stages).text,
                     micros);
}

static z3d_status fill(z3d_schedule *schedule, generator generate) {
    task_list list = {schedule, 0, NULL};
    size_t counters = (size_t)schedule->chunks * Z3D_PASS_COUNT;
    Z3D_TRY(z3d_new(counters, sizeof(int), "a schedule", &list.next));
    for (int stage = 0; stage < schedule->stages; stage++) {
        generate(&list, stage);
        schedule->first[stage + 1] = list.count;
    }
    free(list.next);
    return z3d_schedule_check(schedule);
}

static z3d_status make(z3d_schedule_kind kind, int stages, int chunks, int micros,
                       bool forward_only, z3d_schedule **out) {
    z3d_schedule *schedule;
    Z3D_TRY(z3d_schedule_new(kind, stages, chunks, micros, &schedule));
    schedule->forward_only = forward_only;
    z3d_status status = forward_only ? Z3D_OK : check_kind(schedule);
    if (status == Z3D_OK) status = fill(schedule, forward_only ? all_forwards : generators[kind]);
    if (status == Z3D_OK)
        *out = schedule;
    else
        z3d_schedule_destroy(schedule);
    return status;
}

z3d_status z3d_schedule_create(z3d_schedule_kind kind, int stages, int chunks, int micros,
                               z3d_schedule **out) {
    *out = NULL;
    if (kind == Z3D_SCHEDULE_FILE)
        return Z3D_ERROR(Z3D_ERR_USAGE, "schedule file is read from its file, not generated");
    return make(kind, stages, chunks, micros, false, out);
}

z3d_status z3d_schedule_create_forward(z3d_schedule_kind kind, int stages, int chunks, int micros,
                                       z3d_schedule **out) {
    *out = NULL;
    return make(kind, stages, chunks, micros, true, out);
}
