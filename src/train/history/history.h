/* The history of a run, from its folder: read.c reads metrics.jsonl and events.jsonl, facts.c tells
 * the facts in words, page.c draws several runs on one page. */
#ifndef ZERO3D_TRAIN_HISTORY_H
#define ZERO3D_TRAIN_HISTORY_H

#include "parallel/parallel.h"
#include "src/base/base.h"

/* X(NAME, member of a step's line): a column of numbers; NAN where a line lacks the member or has
 * null. */
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
    double time, seconds; /* NAN: unknown */
    char *event, *detail; /* detail: "" if the line has none */
    char *device, *type;  /* of a start; "" otherwise */
    double peak_tflops;   /* of one rank, measured at a start; NAN: unknown */
} z3d_history_event;

/* The memory categories, host memory, and memory outside of both. */
enum { Z3D_HISTORY_MEMORIES = Z3D_CATEGORY_COUNT + 2 };

typedef struct z3d_history {
    char *name; /* the path as the user gave it */
    z3d_history_table steps, validations;
    /* Bytes of each kind of collective, inside a node [0] and between nodes [1], summed over the
     * `sent_steps` steps whose lines have them. */
    double sent[Z3D_COLLECTIVE_COUNT][2];
    int64_t sent_steps;
    double memory[Z3D_HISTORY_MEMORIES]; /* bytes, of the last step whose line has them; NAN:
                                            unknown */
    int events;
    int64_t events_capacity;
    z3d_history_event *event;
} z3d_history;

/* Reads a run's folder, or one file of metrics. A killed run may leave an incomplete last line: it
 * is left out with a warning. Any other wrong line is an error with file and line. A folder without
 * events.jsonl has no events. Release *out also after a failure. ERR_IO, ERR_DATA, ERR_MEMORY. */
z3d_status z3d_history_read(const char *path, z3d_history *out);
/* Reads events.jsonl only; the file may be missing. */
z3d_status z3d_history_read_events(const char *folder, z3d_history *out);
void z3d_history_release(z3d_history *history);

/* "parameters", ..., "host", "outside". */
const char *z3d_history_memory_name(int memory);
/* "2026-11-29 12:40:00", in UTC; "" if the time is not finite. */
const char *z3d_history_time(double time, char out[32]);
/* The number of events of this kind. */
int z3d_history_count(const z3d_history *history, const char *event);

/* Calls `take` for each fact of a run: "loss", "5.76 -> 1.86 (step 700)". */
void z3d_history_facts(const z3d_history *history,
                       void (*take)(void *context, const char *name, const char *text),
                       void *context);
/* Appends all facts of a run as text. */
void z3d_history_text(const z3d_history *history, z3d_string *out);
/* Appends an HTML page with `count` runs. ERR_MEMORY. */
z3d_status z3d_history_page(const z3d_history *history, int count, z3d_string *out);

#endif
