/* The batch script. */
#include "src/plan/submit/submit.h"

#include <string.h>

/* A job that is given a number of tasks waits for as many nodes as it had at first: with a range of
 * nodes it asks for the cores of a node only. */
static void append_tasks(const z3d_job *job, z3d_string *out) {
    if (job->most_nodes > job->nodes) {
        z3d_string_append(out, "-%lld\n#SBATCH --mincpus=%lld\n", (long long)job->most_nodes,
                          (long long)(job->ranks * (job->cpus ? job->cpus : 1)));
        return;
    }
    z3d_string_append(out, "\n#SBATCH --ntasks-per-node=%lld\n", (long long)job->ranks);
    if (job->cpus) z3d_string_append(out, "#SBATCH --cpus-per-task=%lld\n", (long long)job->cpus);
}

static void append_header(const z3d_job *job, z3d_string *out) {
    z3d_string_append(out, "#!/bin/bash\n# Written by: %s\n%s", job->command,
                      job->facts.text ? job->facts.text : "");
    z3d_string_append(out, "#SBATCH --job-name=%s\n#SBATCH --nodes=%lld", job->name,
                      (long long)job->nodes);
    append_tasks(job, out);
    if (job->gpus) z3d_string_append(out, "#SBATCH --gpus-per-node=%lld\n", (long long)job->gpus);
    z3d_string_append(out,
                      "# Consecutive ranks share a node: tensor groups stay inside of one.\n"
                      "#SBATCH --distribution=block\n"
                      "#SBATCH --time=%s\n"
                      "#SBATCH --requeue\n"
                      "#SBATCH --open-mode=append\n"
                      "#SBATCH --output=zero3d-%%x-%s.log\n"
                      "# Tells the ranks to stop so many seconds before the time limit.\n"
                      "#SBATCH --signal=USR1@%lld\n",
                      job->time, job->config_count > 1 ? "%A_%a" : "%j", (long long)job->signal);
    if (job->config_count > 1)
        z3d_string_append(out, "#SBATCH --array=0-%d\n", job->config_count - 1);
    for (int i = 0; i < job->option_count; i++)
        z3d_string_append(out, "#SBATCH %s\n", job->options[i]);
}

static void append_config(const z3d_job *job, z3d_string *out) {
    if (job->config_count == 1) {
        z3d_string_append(out, "config=");
        z3d_string_append_shell(out, job->configs[0]);
    } else {
        z3d_string_append(out, "configs=(\n");
        for (int i = 0; i < job->config_count; i++) {
            z3d_string_append(out, "    ");
            z3d_string_append_shell(out, job->configs[i]);
            z3d_string_append(out, "\n");
        }
        z3d_string_append(out, ")\nconfig=${configs[$SLURM_ARRAY_TASK_ID]}");
    }
    z3d_string_append(out, "\n");
    if (!job->runs) return;
    z3d_string_append(out, "name=${config##*/}\nrun=");
    z3d_string_append_shell(out, job->runs);
    z3d_string_append(out, "/${name%%.yaml}\n");
}

/* The most nodes of those that came whose ranks divide the batch. */
static void append_nodes(const z3d_job *job, z3d_string *out) {
    z3d_string_append(out,
                      "# Of the nodes that came as many as divide the %lld samples of a step.\n"
                      "nodes=$SLURM_NNODES\n"
                      "while [ \"$nodes\" -gt 1 ] && [ $((nodes * %lld %% %lld)) -ne 0 -o "
                      "$((%lld %% (nodes * %lld / %lld))) -ne 0 ]; do\n"
                      "    nodes=$((nodes - 1))\n"
                      "done\n",
                      (long long)job->batch, (long long)job->ranks, (long long)job->model_ranks,
                      (long long)job->batch, (long long)job->ranks, (long long)job->model_ranks);
}

void z3d_job_script(const z3d_job *job, z3d_string *out) {
    const bool range = job->most_nodes > job->nodes, array = job->config_count > 1;
    append_header(job, out);
    z3d_string_append(out, "\n");
    append_config(job, out);
    if (range) append_nodes(job, out);
    if (range)
        z3d_string_append(out,
                          "srun --nodes=\"$nodes\" --ntasks=$((nodes * %lld)) --cpus-per-task=%lld",
                          (long long)job->ranks, (long long)(job->cpus ? job->cpus : 1));
    else
        z3d_string_append(out,
                          "# srun does not take the cores of a task from the job.\n"
                          "srun ${SLURM_CPUS_PER_TASK:+--cpus-per-task=\"$SLURM_CPUS_PER_TASK\"}");
    z3d_string_append(out, " \\\n    \"${ZERO3D:-zero3d}\" train \"$config\"");
    if (job->runs) z3d_string_append(out, " run.dir=\"$run\"");
    for (int i = 0; i < job->assignment_count; i++) {
        z3d_string_append(out, " ");
        z3d_string_append_shell(out, job->assignments[i]);
    }
    z3d_string_append(
        out,
        "\ncode=$?\n"
        "# 75: stopped by a signal and saved; start it again. Any other code ends the "
        "job.\n"
        "if [ $code -eq 75 ]; then\n"
        "    scontrol requeue \"%s\"\n"
        "fi\n"
        "exit $code\n",
        array ? "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" : "$SLURM_JOB_ID");
}
