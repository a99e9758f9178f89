/* What a run prints: a start summary, one aligned line per log step, the end in few lines. Plain
 * text without control characters, so a file of it reads like the terminal. */
#ifndef ZERO3D_TRAIN_CONSOLE_H
#define ZERO3D_TRAIN_CONSOLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "parallel/parallel.h"
#include "src/base/base.h"
#include "src/base/config.h"
#include "src/model/model.h"
#include "src/train/data.h"
#include "src/train/report/metrics.h"
#include "src/train/report/summary.h"
#include "zero/zero.h"

/* Everything in the start summary. */
typedef struct z3d_run_facts {
    const z3d_config *config; /* resolved */
    const z3d_model *model;
    const z3d_engine *engine;
    const z3d_mesh *mesh;
    const char *device; /* description */
    int nodes;
    const char *offload_why; /* what cpu_checkpointing auto became and why; NULL: it was not auto */
    const char *gather_why;  /* and pipeline_gather, */
    const char *granularity_why;             /* granularity, */
    const char *activation_why;              /* recompute_activation, */
    const char *ratio_why;                   /* offload_optimizer.ratio, */
    const char *products_why;                /* and training.gemm of the run's type */
    const char *graph_obstacle;              /* why steps cannot be captured; NULL: they can */
    const z3d_rank_memory *memory;           /* of the rank that takes most */
    double peak_tflops;                      /* of one rank; 0: unknown */
    bool peak_measured, peak_kept;           /* kept: at an earlier start of the run */
    int64_t train_tokens, validation_tokens; /* in the files */
    bool validation_cut; /* a loss takes training.eval_steps batches of a file, not all */
    int train_files;
    z3d_packing_facts packing; /* of them */
    bool masked;               /* not all of their tokens are trained */
    int64_t train_samples;     /* of one pass */
    double epochs;             /* training.epochs; 0: training.steps is given */
    int32_t largest_token;     /* -1: unknown */
    const char *checkpoint_dir;
    const char *weights; /* where they come from */
    bool verbose;        /* also what was decided, and why */
} z3d_run_facts;

typedef struct z3d_console {
    FILE *out; /* NULL: says nothing (all ranks but 0) */
    int64_t steps, log_interval;
    double rate_unit; /* FLOP/s in one unit of the rate column: 1e12 or 1e9 */
    bool header_said, failure_said;
    /* Since the last line. */
    int64_t tokens, counted;
    double seconds, model_tflops_seconds;
    /* Mean over recent steps, for the remaining time. */
    double step_seconds;
    int64_t seen; /* steps since start: a run may begin anywhere */
} z3d_console;

void z3d_console_start(z3d_console *console, FILE *out, const z3d_run_facts *facts);
/* Called for every step; says a line at the first one of a start, every log_interval steps, the
 * last step and steps that were skipped. */
void z3d_console_step(z3d_console *console, const z3d_step_record *record);
void z3d_console_validation(z3d_console *console, int64_t step, double loss, double seconds);
/* One line of its own. */
void z3d_console_say(z3d_console *console, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Few lines and what to do next; all tables if end->verbose. */
void z3d_console_end(z3d_console *console, const z3d_run_end *end);

#endif
