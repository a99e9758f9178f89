/* The files of lines in a run's folder: metrics.jsonl, one JSON object per step and one per
 * validation; events.jsonl, one per start, checkpoint and end. Rank 0 writes them; no function here
 * is collective. */
#ifndef ZERO3D_TRAIN_METRICS_H
#define ZERO3D_TRAIN_METRICS_H

#include "zero/zero.h"

/* A file of lines. Each line is written whole and at once, so the first line that a full disk loses
 * is an error, and a reader rarely sees half a line. */
typedef struct z3d_line_file {
    char *path;
    int fd;
} z3d_line_file;

/* Creates the file, or empties it. ERR_IO. */
z3d_status z3d_line_file_open(z3d_line_file *file, const char *path);
/* Creates the file; ERR_IO if it exists. */
z3d_status z3d_line_file_create(z3d_line_file *file, const char *path);
/* Opens the file of a run that resumes after `step`; creates it if it does not exist. Appends the
 * lines of later steps and an incomplete last line to *beyond: the caller stores them elsewhere,
 * then removes them with z3d_line_file_cut. ERR_IO, ERR_MEMORY. */
z3d_status z3d_line_file_continue(z3d_line_file *file, const char *path, int64_t step,
                                  z3d_string *beyond);
/* Removes the last `bytes` bytes. ERR_IO. */
z3d_status z3d_line_file_cut(z3d_line_file *file, int64_t bytes);
/* Syncs the file to the disk. ERR_IO. */
z3d_status z3d_line_file_sync(z3d_line_file *file);
z3d_status z3d_line_file_write(z3d_line_file *file, const void *bytes, size_t count);
z3d_status z3d_line_file_close(z3d_line_file *file);

/* Writes a small file under a temporary name, then renames it. ERR_IO. */
z3d_status z3d_write_whole_file(const char *path, const char *text, size_t length);

/* Bytes that this rank sends in one kind of collective: all, and those that leave its node. */
typedef struct z3d_sent {
    int64_t bytes;
    double between_nodes;
} z3d_sent;

/* Sets sent[] to the sums over all groups since the start, by kind. */
void z3d_metrics_sent(z3d_group *const group[Z3D_AXES_COUNT], z3d_sent sent[Z3D_COLLECTIVE_COUNT]);

/* One training step. A number that is not finite is written as null: JSON has no other word. */
typedef struct z3d_step_record {
    z3d_step_result result;
    double time; /* when it ended, seconds since 1970 */
    float lr;
    /* the name of the parameter group result.overflow_group, of a skipped step; NULL: not skipped,
     * or the overflow was in the forward pass */
    const char *overflow_group;
    int64_t tokens; /* of this step, over all ranks; a run's steps all have so many */
    double seconds; /* wall-clock time of this step, reading data included; result.seconds: without
                       that */
    double model_tflops; /* of one rank: model FLOPs without recompute */
    double mfu, hfu; /* shares of one rank's peak, NAN if the peak is unknown; hfu counts recompute
                        too (z3d_plan_hardware_flops) */
    bool offloaded;  /* optimizer states are offloaded, or something is on a disk; else the result's
                        exposed_disk_seconds and host_step_seconds are not written */
    int64_t comm_bytes;                  /* sent by this rank, over all groups */
    bool logged[Z3D_COLLECTIVE_COUNT];   /* kinds that comms_logger reports */
    z3d_sent sent[Z3D_COLLECTIVE_COUNT]; /* of these kinds */
    int64_t memory[Z3D_CATEGORY_COUNT];  /* measured peaks of this rank, bytes */
    int64_t host_memory; /* of this rank's arena in host memory; 0: it has none, the member is left
                            out */
    int64_t outside_memory; /* outside the categories; -1: unknown, the member is left out */
} z3d_step_record;

/* Appends ,"name":value with the fewest digits that read back to the same bits, because runs are
 * compared by them. */
void z3d_metrics_number(const char *name, double value, z3d_string *out);
void z3d_metrics_step_line(const z3d_step_record *record, z3d_string *out);
/* {"step", "validation_loss", "validation_losses", "validation_targets", "seconds", "time"}.
 * validation_losses has the loss of each file, if there are several. */
void z3d_metrics_validation_line(int64_t step, double time, double loss, const double *of_file,
                                 int files, int64_t targets, double seconds, z3d_string *out);
/* A line of events.jsonl. A NULL text and a number that is NAN are left out. */
typedef struct z3d_event_record {
    int64_t step; /* "resume": the run resumes after this step */
    const char *event;
    double time, seconds;
    const char *detail;
    /* Of "start" and "resume": */
    const char *device, *type;
    double peak_tflops; /* of one rank, as it was measured */
} z3d_event_record;

/* {"step", "event", "time", "seconds", "detail", "device", "type", "peak_tflops"} */
void z3d_metrics_event_line(const z3d_event_record *event, z3d_string *out);
/* Appends all traffic of this rank's groups by kind, as one JSON object. A NULL group is left out.
 */
void z3d_metrics_traffic(z3d_group *const group[Z3D_AXES_COUNT], int64_t steps, z3d_string *out);

#endif
