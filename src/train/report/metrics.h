/* What a run writes to its folder: metrics.jsonl, one JSON object per step and one per validation;
 * events.jsonl, one per start, checkpoint and end. */
#ifndef ZERO3D_TRAIN_METRICS_H
#define ZERO3D_TRAIN_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "parallel/parallel.h"
#include "src/base/base.h"

/* A file of lines. Each is written whole and immediately, so a full disk is noticed at the line
 * that is lost, and a reader does not see half a line for long. */
typedef struct z3d_line_file {
    char *path;
    int fd;
} z3d_line_file;

/* Empties or makes the file. ERR_IO. */
z3d_status z3d_line_file_open(z3d_line_file *file, const char *path);
/* Makes a file that must not be there yet. ERR_IO. */
z3d_status z3d_line_file_create(z3d_line_file *file, const char *path);
/* Continues the file of a run that resumes after `step`. Appends the lines of later steps, and an
 * unfinished one, to *beyond; the caller keeps them before z3d_line_file_cut removes them. Creates
 * the file if there is none. */
z3d_status z3d_line_file_continue(z3d_line_file *file, const char *path, int64_t step,
                                  z3d_string *beyond);
/* Removes so many bytes from its end. */
z3d_status z3d_line_file_cut(z3d_line_file *file, int64_t bytes);
/* Brings the lines to the disk. */
z3d_status z3d_line_file_sync(z3d_line_file *file);
z3d_status z3d_line_file_write(z3d_line_file *file, const void *bytes, size_t count);
z3d_status z3d_line_file_close(z3d_line_file *file);

/* Writes a small file whole: under a temporary name, then renamed. ERR_IO. */
z3d_status z3d_write_whole_file(const char *path, const char *text, size_t length);

/* What this rank sends of one kind of collective: all bytes, and those that leave its node. */
typedef struct z3d_sent {
    int64_t bytes;
    double between_nodes;
} z3d_sent;

/* Over all groups so far, by kind; gives the bytes of all kinds. */
int64_t z3d_metrics_sent(z3d_group *const group[Z3D_AXES_COUNT],
                         z3d_sent sent[Z3D_COLLECTIVE_COUNT]);

/* One training step. A number that is not finite is written as null: JSON has no other word. */
typedef struct z3d_step_record {
    int64_t step;
    double time; /* of its end, seconds since 1970 */
    double loss, grad_norm;
    float lr, loss_scale;
    bool skipped;
    const char *overflow_group;  /* of a skipped step; NULL: none, or the forward pass */
    int64_t tokens;              /* of this step, over all ranks */
    int64_t trained_tokens;      /* of these, those that the loss is of */
    int64_t total_tokens;        /* of all steps up to this one */
    double seconds;              /* of this step on the wall, reading data included */
    double model_tflops;         /* of one rank: model FLOPs without recompute */
    double mfu, hfu;             /* shares of one rank's peak, NAN when that is unknown; hfu with
                                    what is replayed (z3d_plan_hardware_flops) */
    double exposed_comm_seconds; /* compute waited for collectives */
    double exposed_transfer_seconds;     /* and for copies from and to host memory */
    bool offloaded;                      /* optimizer states, or to a disk; else without these: */
    double exposed_disk_seconds;         /* compute waited for the disk */
    double host_step_seconds;            /* the host stepped, and nothing else computed */
    int64_t comm_bytes;                  /* this rank's, over all groups */
    bool logged[Z3D_COLLECTIVE_COUNT];   /* kinds that comms_logger reports */
    z3d_sent sent[Z3D_COLLECTIVE_COUNT]; /* of these */
    int64_t memory[Z3D_CATEGORY_COUNT];  /* measured peaks of this rank, bytes */
    int64_t host_memory;                 /* of its arena in host memory; 0: none, left out */
    int64_t outside_memory;              /* beyond the categories; -1: unknown, left out */
} z3d_step_record;

void z3d_metrics_step_line(const z3d_step_record *record, z3d_string *out);
/* {"step", "validation_loss", "validation_losses", "validation_targets", "seconds", "time"};
 * validation_losses is of each of several files. */
void z3d_metrics_validation_line(int64_t step, double time, double loss, const double *of_file,
                                 int files, int64_t targets, double seconds, z3d_string *out);
/* {"step", "event", "time", "seconds", "detail"}: seconds NAN, detail NULL: left out. */
void z3d_metrics_event_line(int64_t step, const char *event, double time, double seconds,
                            const char *detail, z3d_string *out);
/* A start of the run, and as what it ran. */
typedef struct z3d_start_record {
    int64_t step; /* that it resumes after; 0: a new run */
    double time;
    const char *detail, *device, *type;
    double peak_tflops; /* of one rank, as measured; NAN: it was not */
} z3d_start_record;

/* {"step", "event": "start" or "resume", "time", "detail", "device", "type", "peak_tflops"} */
void z3d_metrics_start_line(const z3d_start_record *start, z3d_string *out);
/* All traffic of this rank's groups by kind, as one JSON object. A NULL group is left out. */
void z3d_metrics_traffic(z3d_group *const group[Z3D_AXES_COUNT], int64_t steps, z3d_string *out);

#endif
