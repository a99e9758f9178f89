/* Plays a schedule: every stage starts its next task as soon as the tasks that it needs have ended.
 * A play that stops before the end has a circular wait. */
#include <stdlib.h>

#include "parallel/schedule/internal.h"

typedef struct play {
    const z3d_schedule *schedule;
    const double *cost;
    double transfer;
    double *end;             /* by task */
    double *forward, *input; /* when they ended, by chunk and micro-batch; -1: not yet */
    int *next;               /* the task that a stage runs next */
    int *waiting;            /* a ring of stages that may be able to go on */
    int first, count;        /* of the ring */
    bool *is_waiting;        /* by stage */
} play;

/* The tasks that must end before `task`. A whole backward counts as its input half here. */
static int needs(const z3d_schedule *schedule, z3d_task task, z3d_task out[2]) {
    int count = 0, chunk = task.chunk, micro = task.micro;
    if (task.pass == Z3D_PASS_FORWARD) {
        if (chunk > 0) out[count++] = (z3d_task){Z3D_PASS_FORWARD, chunk - 1, micro};
    } else if (task.pass == Z3D_PASS_BACKWARD_WEIGHT) {
        out[count++] = (z3d_task){Z3D_PASS_BACKWARD_INPUT, chunk, micro};
    } else {
        out[count++] = (z3d_task){Z3D_PASS_FORWARD, chunk, micro};
        if (chunk + 1 < schedule->chunks)
            out[count++] = (z3d_task){Z3D_PASS_BACKWARD_INPUT, chunk + 1, micro};
    }
    return count;
}

static double *ended(const play *p, z3d_task task) {
    double *at = task.pass == Z3D_PASS_FORWARD ? p->forward : p->input;
    return &at[task.chunk * p->schedule->micros + task.micro];
}

/* Whether `task` needs a task that has not ended: *missing is the first one. Else *start becomes
 * the time at which it can start. */
static bool must_wait(const play *p, z3d_task task, double *start, z3d_task *missing) {
    z3d_task need[2];
    const int *stage = p->schedule->stage_of_chunk;
    int count = needs(p->schedule, task, need);
    for (int i = 0; i < count; i++) {
        double at = *ended(p, need[i]);
        *missing = need[i];
        if (at < 0) return true;
        if (stage[need[i].chunk] != stage[task.chunk]) at += p->transfer;
        if (at > *start) *start = at;
    }
    return false;
}

static void wake(play *p, int chunk) {
    if (chunk < 0 || chunk >= p->schedule->chunks) return;
    int stage = p->schedule->stage_of_chunk[chunk];
    if (p->is_waiting[stage]) return;
    p->is_waiting[stage] = true;
    p->waiting[(p->first + p->count++) % p->schedule->stages] = stage;
}

static void run_stage(play *p, int stage) {
    const z3d_schedule *schedule = p->schedule;
    int i = p->next[stage];
    double now = i > schedule->first[stage] ? p->end[i - 1] : 0;
    for (; i < schedule->first[stage + 1]; i++) {
        z3d_task task = schedule->task[i], missing;
        if (must_wait(p, task, &now, &missing)) break;
        now += p->cost[task.pass];
        p->end[i] = now;
        if (task.pass == Z3D_PASS_BACKWARD_WEIGHT) continue;
        *ended(p, task) = now;
        wake(p, task.pass == Z3D_PASS_FORWARD ? task.chunk + 1 : task.chunk - 1);
    }
    p->next[stage] = i;
}

static void run_all(play *p) {
    int tasks = p->schedule->chunks * p->schedule->micros;
    for (int i = 0; i < tasks; i++) p->forward[i] = p->input[i] = -1;
    for (int stage = 0; stage < p->schedule->stages; stage++) {
        p->next[stage] = p->schedule->first[stage];
        p->waiting[stage] = stage;
        p->is_waiting[stage] = true;
    }
    p->count = p->schedule->stages;
    while (p->count > 0) {
        int stage = p->waiting[p->first];
        p->first = (p->first + 1) % p->schedule->stages;
        p->count--;
        p->is_waiting[stage] = false;
        run_stage(p, stage);
    }
}

static bool is_done(const play *p, int stage) {
    return p->next[stage] == p->schedule->first[stage + 1];
}

/* The stage and the task that a stage waits for. It may be the same stage: a task further down its
 * list. */
static int waits_for(const play *p, int stage, z3d_task *missing) {
    double start = 0;
    must_wait(p, p->schedule->task[p->next[stage]], &start, missing);
    if (missing->pass != Z3D_PASS_FORWARD) missing->pass = Z3D_PASS_BACKWARD; /* whole or half */
    return p->schedule->stage_of_chunk[missing->chunk];
}

static void append_wait(z3d_string *text, const play *p, int stage) {
    z3d_task missing, task = p->schedule->task[p->next[stage]];
    int other = waits_for(p, stage, &missing);
    z3d_string_append(text, "pipeline stage %d at %s waits for stage %d's %s", stage,
                      z3d_task_name(task).text, other, z3d_task_name(missing).text);
}

/* A stage that is stuck waits for a stage that is stuck, too. So we follow the waits; after as many
 * steps as there are stages we are in the circle. If a task is missing from the lists, the waits
 * lead to a stage that is done. */
static z3d_status refuse_wait(const play *p, int stage) {
    enum { SHOWN = 8 };
    z3d_task missing;
    z3d_string text = {0};
    for (int i = 0; i < p->schedule->stages; i++) {
        int other = waits_for(p, stage, &missing);
        if (is_done(p, other)) break;
        stage = other;
    }
    int begin = stage, shown = 0;
    do {
        if (shown > 0 && shown < SHOWN) z3d_string_append(&text, "; ");
        if (shown++ < SHOWN) append_wait(&text, p, stage);
        stage = waits_for(p, stage, &missing);
    } while (stage != begin && !is_done(p, stage));
    if (shown > SHOWN) z3d_string_append(&text, "; and so on: %d stages", shown);
    z3d_status status;
    if (text.failed)
        status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a message");
    else if (stage != begin)
        status = Z3D_ERROR(Z3D_ERR_CONFIG, "%s, which is in no list", text.text);
    else
        status = Z3D_ERROR(Z3D_ERR_CONFIG, "circular wait: %s", text.text);
    z3d_string_free(&text);
    return status;
}

static void free_play(play *p) {
    free(p->forward);
    free(p->input);
    free(p->next);
    free(p->waiting);
    free(p->is_waiting);
}

static z3d_status new_play(const z3d_schedule *schedule, play *p) {
    static const char what[] = "the play of a schedule";
    size_t stages = (size_t)schedule->stages;
    size_t tasks = (size_t)schedule->chunks * (size_t)schedule->micros;
    Z3D_TRY(z3d_new(tasks, sizeof(double), what, &p->forward));
    Z3D_TRY(z3d_new(tasks, sizeof(double), what, &p->input));
    Z3D_TRY(z3d_new(stages, sizeof(int), what, &p->next));
    Z3D_TRY(z3d_new(stages, sizeof(int), what, &p->waiting));
    return z3d_new(stages, sizeof(bool), what, &p->is_waiting);
}

z3d_status z3d_schedule_times(const z3d_schedule *schedule, const double cost[Z3D_PASS_COUNT],
                              double transfer, double *end) {
    int task;
    Z3D_TRY(z3d_schedule_check_ranges(schedule, &task));
    play p = {.schedule = schedule, .cost = cost, .transfer = transfer, .end = end};
    z3d_status status = new_play(schedule, &p);
    if (status == Z3D_OK) {
        run_all(&p);
        for (int stage = 0; stage < schedule->stages && status == Z3D_OK; stage++)
            if (!is_done(&p, stage)) status = refuse_wait(&p, stage);
    }
    free_play(&p);
    return status;
}
