/* The end of a run: tables for people, summary.json, and the commands to type next. */
#ifndef ZERO3D_TRAIN_SUMMARY_H
#define ZERO3D_TRAIN_SUMMARY_H

#include "parallel/parallel.h"
#include "src/base/base.h"
#include "src/base/config.h"
#include "src/device/device.h"
#include "src/train/report/resident.h"

/* The memory of one rank, bytes. */
typedef struct z3d_rank_memory {
    int rank;
    int64_t arena_bytes;  /* in device memory */
    int64_t buffer_bytes; /* communication buffers, not in the arena */
    int64_t outside;      /* outside the categories; -1: unknown */
    z3d_ledger planned[Z3D_SPACE_COUNT], measured[Z3D_SPACE_COUNT];
} z3d_rank_memory;

/* Sums over the steps of this start. */
typedef struct z3d_run_sums {
    int64_t steps, skipped; /* skipped: of these steps */
    double first_loss, last_loss;
    double validation_loss; /* the last one; NAN: none */
    double steady_seconds;  /* of all steps except the first, which includes warming up */
    /* Seconds of all steps. Of these: waits for communication and waits for copies, NAN if not
     * timed; waits for the disk; steps on the host. */
    double step_seconds, comm_seconds, transfer_seconds, disk_seconds, host_step_seconds;
} z3d_run_sums;

struct z3d_trainer;

typedef struct z3d_run_end {
    const struct z3d_trainer *trainer;
    const z3d_run_sums *sums;
    bool stopped;      /* before training.steps, by a signal or training.time_limit */
    bool time_is_over; /* it was training.time_limit */
    const char *early; /* why training.early_stopping_patience ended it; NULL: it did not */
    double seconds;    /* of the training loop, validation included */
    const char *best;  /* the checkpoint with the lowest validation loss; NULL: none is kept */
    double tokens_per_second, mfu;
    const z3d_rank_memory *memory; /* of the rank with the largest plan (z3d_trainer_find_memory) */
    const z3d_resident *resident;  /* rank 0's; NULL: unknown */
    bool offloaded; /* some resident state is not in device memory; then the disk and host times
                       are told */
    const char *checkpoint_dir; /* NULL: no checkpoints are saved */
    bool chats;                 /* the data are conversations, and their chat template is known */
} z3d_run_end;

/* Appends tables of memory by category, of the process's memory and of communication. Without `all`
 * only categories that differ from the plan (none in a healthy run) and the collectives that
 * comms_logger reports. */
void z3d_summary_tables(const z3d_run_end *end, bool all, z3d_string *out);
/* Appends all tables as one JSON object. */
void z3d_summary_json(const z3d_run_end *end, z3d_string *out);
/* Appends the next commands, separated by `between`: "resume: ...", or "generate: ...", "export:
 * ...", "report: ...". */
void z3d_summary_next(const z3d_run_end *end, const char *between, z3d_string *out);

#endif
