/* The lines that a run prints: a start summary, one aligned line per log step, a short end. Plain
 * text without control characters, so a file of it looks like the terminal. */
#ifndef ZERO3D_TRAIN_CONSOLE_H
#define ZERO3D_TRAIN_CONSOLE_H

#include <stdio.h>

#include "src/train/report/metrics.h"
#include "src/train/report/summary.h"

struct z3d_trainer;

typedef struct z3d_console {
    FILE *out; /* NULL: prints nothing (all ranks but 0) */
    int64_t steps, log_interval;
    double rate_unit; /* FLOP/s in one unit of the rate column: 1e12 or 1e9 */
    bool header_said, failure_said;
    /* Sums since the last line. */
    int64_t tokens;
    double seconds, model_tflops_seconds;
    /* Mean of recent steps, to estimate the remaining time. */
    double step_seconds;
    int64_t seen; /* steps since this start: a resumed run does not begin at step 1 */
} z3d_console;

/* Prints the start summary. memory: of the rank with the largest plan (z3d_trainer_find_memory). */
void z3d_console_start(z3d_console *console, FILE *out, const struct z3d_trainer *trainer,
                       const z3d_rank_memory *memory);
/* Call it for every step. Prints a line for the first step of a start, every log_interval steps,
 * the last step, and each skipped step. */
void z3d_console_step(z3d_console *console, const z3d_step_record *record);
void z3d_console_validation(z3d_console *console, int64_t step, double loss, double seconds);
/* Prints one line. */
void z3d_console_say(z3d_console *console, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints the end: few lines and the next commands; all tables with --verbose. */
void z3d_console_end(z3d_console *console, const z3d_run_end *end);

#endif
