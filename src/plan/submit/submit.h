/* A run as a Slurm job: what is planned before it is submitted, and its batch script. */
#ifndef ZERO3D_PLAN_SUBMIT_H
#define ZERO3D_PLAN_SUBMIT_H

#include "src/plan/price/estimate.h"

typedef struct z3d_job {
    const char *command;        /* that wrote it, for the script's first comment */
    const char *name;           /* of the job */
    int64_t nodes, most_nodes;  /* equal, or a range that the configurations' parallel.elastic
                                   allows */
    int64_t ranks;              /* on each node */
    int64_t cpus, gpus;         /* of each rank; of each node. 0: not asked for */
    bool names_cuda;            /* no configuration sets the device of the machine's GPUs */
    const char *time;           /* as sbatch has it */
    int64_t signal;             /* seconds before its end at which ranks are told to stop */
    const char *const *options; /* other options of sbatch, one line each: "--partition=gpu" */
    int option_count;
    const char *const *srun; /* options of srun, one word each */
    int srun_count;
    z3d_string setup;     /* z3d_job_setup: what each start runs before srun */
    char *const *configs; /* files; several: a job array */
    int config_count;
    const char *runs;         /* each run's folder is here, named as its file; NULL: run.dir */
    char *const *assignments; /* key=value */
    int assignment_count;
    z3d_string facts; /* lines about the plan */
    int64_t *choice;  /* numbers of nodes that all configurations can use, ascending */
    int64_t choices;
} z3d_job;

/* What Slurm takes in --signal. */
enum { Z3D_JOB_MOST_SIGNAL = 65535 };

/* Seconds of a time as sbatch has it: minutes, minutes:seconds, hours:minutes:seconds, and days-
 * before hours, hours:minutes or hours:minutes:seconds. False: it is none, or 0. */
bool z3d_job_seconds(const char *time, int64_t *out);

/* Appends the lines of a file (NULL: none), then `lines`: a shell's, to be run before the ranks
 * start. ERR_IO; ERR_CONFIG if they are no whole commands, or hold what only sbatch reads. */
z3d_status z3d_job_setup(const char *file, const char *const *lines, int count, z3d_string *out);

/* Plans one of the job's configurations, which it resolves, for its nodes: job->facts gets lines
 * for people, job->signal becomes longer where a step needs it, job->choice loses what this
 * configuration cannot use. hardware NULL: unknown; then neither room nor time are looked at.
 * Errors: ERR_CONFIG and ERR_TOPOLOGY for sizes that do not go with the nodes, ERR_MEMORY with
 * advice if it does not fit, and as z3d_plan_create. */
z3d_status z3d_job_plan(z3d_job *job, const char *name, z3d_config *config,
                        const z3d_hardware *hardware);
/* Frees what planning made. */
void z3d_job_release(z3d_job *job);

/* Appends the script for sbatch of a planned job: complete, it needs nothing but zero3d. */
void z3d_job_script(const z3d_job *job, z3d_string *out);

#endif
