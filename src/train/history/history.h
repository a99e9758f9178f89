/* What a run's folder says of its past: metrics.jsonl and events.jsonl read back (read.c), its
 * facts in words (facts.c), and several runs on one page (page.c). */
#ifndef ZERO3D_TRAIN_HISTORY_H
#define ZERO3D_TRAIN_HISTORY_H

#include "parallel/parallel.h"
#include "src/base/base.h"

/* X(NAME, member of a step's line): a column of numbers. Lines without it, or with null, have
 * NAN. */
#define Z3D_COLUMN_MAP(X)                                                                          \
    X(STEP, "step")                                                                                \
    X(TIME, "time")                                                                                \
    X(LOSS, "loss")                                                                                \
    X(LR, "lr")                                                                                    \
    X(GRAD_NORM, "grad_norm")                                                                      \
    X(TOKENS, "tokens")                                                                            \
    X(TOTAL_TOKENS, "total_tokens")                                                                \
    X(SECONDS, "seconds")                                                                          \
    X(RATE, "tokens_per_second")                                                                   \
    X(MFU, "mfu")                                                                                  \
    X(COMM, "exposed_comm_seconds")                                                                \
    X(TRANSFER, "exposed_transfer_seconds")                                                        \
    X(DISK, "exposed_disk_seconds")                                                                \
    X(HOST_STEP, "host_step_seconds")                                                              \
    X(LOSS_SCALE, "loss_scale")                                                                    \
    X(SKIPPED, "skipped") /* 0 or 1 */                                                             \
    X(VALIDATION, "validation_loss")

typedef enum z3d_column {
#define X(NAME, name) Z3D_COLUMN_##NAME,
    Z3D_COLUMN_MAP(X)
#undef X
        Z3D_COLUMN_COUNT
} z3d_column;

/* Columns of equal length. */
typedef struct z3d_history_table {
    int64_t count, capacity;
    double *column[Z3D_COLUMN_COUNT];
} z3d_history_table;

/* A line of events.jsonl. */
typedef struct z3d_history_event {
    int64_t step;
    double time, seconds; /* NAN: not said */
    char *event, *detail; /* detail: "" where there is none */
    char *device, *type;  /* of a start, likewise */
    double peak_tflops;   /* measured at it, of one rank; NAN: not said */
} z3d_history_event;

/* Categories, host memory, and what is outside of both. */
enum { Z3D_HISTORY_MEMORIES = Z3D_CATEGORY_COUNT + 2 };

typedef struct z3d_history {
    char *name; /* as it was given */
    z3d_history_table steps, validations;
    /* Bytes of each kind of collective: of all steps that say so; inside a node, between nodes. */
    double sent[Z3D_COLLECTIVE_COUNT][2];
    int64_t sent_steps;
    double memory[Z3D_HISTORY_MEMORIES]; /* bytes, of the last step that says so; NAN: not said */
    int events, events_capacity;
    z3d_history_event *event;
} z3d_history;

/* Reads a run's folder, or one file of metrics. A last line that is cut, as a run that was killed
 * leaves it, is warned of and left out; any other line that is wrong is an error with file and
 * line. A folder without events.jsonl has no events. Release *out after a failure, too. ERR_IO,
 * ERR_DATA, ERR_MEMORY. */
z3d_status z3d_history_read(const char *path, z3d_history *out);
/* The same of events alone; there may be none. */
z3d_status z3d_history_read_events(const char *folder, z3d_history *out);
void z3d_history_release(z3d_history *history);

/* "parameters", ..., "host", "outside". */
const char *z3d_history_memory_name(int memory);
/* Events of this kind. */
int z3d_history_count(const z3d_history *history, const char *event);

/* Calls `take` with what there is to say of a run: "loss", "5.76 -> 1.86 (step 700)". */
void z3d_history_facts(const z3d_history *history,
                       void (*take)(void *context, const char *name, const char *text),
                       void *context);
/* All facts of a run as text. */
void z3d_history_text(const z3d_history *history, z3d_string *out);
/* All runs on a page of HTML. ERR_MEMORY. */
z3d_status z3d_history_page(const z3d_history *history, int count, z3d_string *out);

#endif
