/* A run as a Slurm job: its plan and its batch script. Not collective: one process writes a job. */
#ifndef ZERO3D_PLAN_SUBMIT_H
#define ZERO3D_PLAN_SUBMIT_H

#include "src/plan/price/estimate.h"

typedef struct z3d_job {
    const char *command;        /* the command line that wrote the script, for its first comment */
    const char *name;           /* of the job */
    int64_t nodes, most_nodes;  /* equal, or a range that the configurations' parallel.elastic
                                   allows */
    int64_t ranks;              /* on each node */
    int64_t cpus, gpus;         /* cpus of each rank, gpus of each node. 0: the job does not ask for
                                   them */
    bool names_cuda;            /* no configuration sets training.device, and the machine has GPUs:
                                   the script does */
    const char *time;           /* in the form of sbatch */
    int64_t signal;             /* ranks are told to stop so many seconds before the time limit */
    const char *const *options; /* other options of sbatch, one line each: "--partition=gpu" */
    int option_count;
    const char *const *srun; /* options of srun, one word each */
    int srun_count;
    z3d_string setup;     /* z3d_job_setup: lines that each start runs before srun */
    char *const *configs; /* files; several: a job array */
    int config_count;
    const char *runs;         /* each run's folder is here, named as its file; NULL: run.dir */
    char *const *assignments; /* key=value */
    int assignment_count;
    z3d_string facts; /* lines about the plan */
    int64_t *choice;  /* numbers of nodes that all configurations can use, ascending */
    int64_t choices;
} z3d_job;

/* The most seconds that Slurm accepts in --signal. */
enum { Z3D_JOB_MOST_SIGNAL = 65535 };

/* *out: seconds of a time in the form of sbatch: minutes, minutes:seconds, hours:minutes:seconds;
 * also days-hours, days-hours:minutes and days-hours:minutes:seconds. False: not such a time, or
 * 0. */
bool z3d_job_seconds(const char *time, int64_t *out);

/* Appends the lines of a file (NULL: no file), then `lines`: shell commands that run before the
 * ranks start. ERR_IO; ERR_CONFIG if they are not whole commands, or have lines for sbatch. */
z3d_status z3d_job_setup(const char *file, const char *const *lines, int count, z3d_string *out);

/* Plans one of the job's configurations for its nodes, and resolves it. Appends lines for people to
 * job->facts, raises job->signal if a step is longer, and removes numbers of nodes from job->choice
 * that the configuration cannot use. hardware NULL: unknown; then memory and time are not checked.
 * Errors: ERR_CONFIG and ERR_TOPOLOGY for sizes that do not suit the nodes, ERR_MEMORY with advice
 * if the run does not fit, and as z3d_plan_create. */
z3d_status z3d_job_plan(z3d_job *job, const char *name, z3d_config *config,
                        const z3d_hardware *hardware);
/* Frees everything that planning allocated. */
void z3d_job_release(z3d_job *job);

/* Appends the batch script of a planned job. It is complete: on the machine it needs only
 * zero3d. */
void z3d_job_script(const z3d_job *job, z3d_string *out);

#endif
