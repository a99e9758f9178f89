/* How a run ended: tables for people, summary.json, and the commands to type next. */
#ifndef ZERO3D_TRAIN_SUMMARY_H
#define ZERO3D_TRAIN_SUMMARY_H

#include "parallel/parallel.h"
#include "src/base/base.h"
#include "src/base/config.h"
#include "src/device/device.h"
#include "src/train/report/resident.h"

/* What one rank takes. */
typedef struct z3d_rank_memory {
    int rank;
    int64_t arena_bytes;  /* in device memory */
    int64_t buffer_bytes; /* of communication, beside the arena */
    int64_t outside;      /* beyond the categories; -1: unknown */
    z3d_ledger planned[Z3D_SPACE_COUNT], measured[Z3D_SPACE_COUNT];
} z3d_rank_memory;

typedef struct z3d_run_end {
    const z3d_config *config; /* resolved */
    int64_t steps, skipped;   /* made, of which skipped */
    int64_t last_step;        /* of the run */
    bool stopped;             /* before the last step */
    bool time_is_over;        /* by training.time_limit, else by a signal */
    const char *early;        /* why it ended before the last step, not stopped; NULL: it did not */
    double seconds;           /* of the training loop, validation included */
    double first_loss, last_loss;
    double validation_loss; /* NAN: none */
    const char *best;       /* the checkpoint of the lowest one; NULL: none is kept */
    double best_loss;       /* its loss, and its step */
    int64_t best_step;
    double tokens_per_second, mfu;
    const z3d_rank_memory *memory; /* of the rank that takes most */
    int64_t arena_bytes;           /* rank 0's, of all memory spaces */
    const z3d_resident *resident;  /* rank 0's; NULL: unknown */
    z3d_group *const *group;       /* by set of axes */
    bool offloaded;                /* something is not in device memory: */
    /* Of all steps; of them waits for communication and for copies, NAN where nobody timed them;
     * for the disk; what the host's steps took. */
    double step_seconds, comm_seconds, transfer_seconds, disk_seconds, host_step_seconds;
    const char *checkpoint_dir; /* NULL: none are saved */
    const char *command;        /* that started the run, NULL: unknown */
    const char *program;        /* as it is called */
    bool chats;                 /* conversations are trained, with a chat template that is known */
    bool verbose;               /* all tables are shown */
} z3d_run_end;

/* Tables of memory by category, of the process's memory and of communication; without `all` only
 * what does not agree with the plan, which is nothing in a healthy run, and the collectives that
 * comms_logger reports. */
void z3d_summary_tables(const z3d_run_end *end, bool all, z3d_string *out);
/* All of them as one JSON object. */
void z3d_summary_json(const z3d_run_end *end, z3d_string *out);
/* "resume: ...", or "generate: ...", "export: ...", "report: ...", with `between` between them. */
void z3d_summary_next(const z3d_run_end *end, const char *between, z3d_string *out);

#endif
