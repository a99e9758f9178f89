/* The batch script. */
#include "src/plan/submit/submit.h"

#include <string.h>

/* Makes every line of the text a comment, so that none of it is run. */
static void append_comment(const char *text, z3d_string *out) {
    while (*text) {
        const int length = (int)strcspn(text, "\n");
        z3d_string_append(out, "# %.*s\n", length, text);
        text += length + (text[length] == '\n');
    }
}

/* Quotes a word for sbatch, which knows double quotes and backslashes. */
static void append_word(const char *word, z3d_string *out) {
    const bool quoted = strpbrk(word, " \t\"'\\#") != NULL;
    z3d_string_append(out, quoted ? " \"" : " ");
    for (const char *c = word; *c; c++)
        z3d_string_append(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    if (quoted) z3d_string_append(out, "\"");
}

/* "--name=value" is one word, "-p value" two. */
static void append_option(const char *option, z3d_string *out) {
    z3d_string_append(out, "#SBATCH");
    if (option[1] == '-') {
        append_word(option, out);
    } else {
        const char *value = option + 2 + strspn(option + 2, " \t");
        z3d_string_append(out, " %.2s", option);
        if (*value) append_word(value, out);
    }
    z3d_string_append(out, "\n");
}

/* After a requeue, a job with a number of tasks waits for as many nodes as it had at first. So with
 * a range of nodes the job asks only for the cores of each node. */
static void append_tasks(const z3d_job *job, z3d_string *out) {
    if (job->choices > 1) {
        z3d_string_append(out, "-%lld\n#SBATCH --mincpus=%lld\n",
                          (long long)job->choice[job->choices - 1],
                          (long long)(job->ranks * (job->cpus ? job->cpus : 1)));
        return;
    }
    z3d_string_append(out, "\n#SBATCH --ntasks-per-node=%lld\n", (long long)job->ranks);
    if (job->cpus) z3d_string_append(out, "#SBATCH --cpus-per-task=%lld\n", (long long)job->cpus);
}

static void append_header(const z3d_job *job, z3d_string *out) {
    z3d_string written = {0};
    z3d_string_append(&written, "Written by: %s", job->command);
    z3d_string_append(out, "#!/bin/bash\n");
    append_comment(written.text ? written.text : "", out);
    append_comment(job->facts.text ? job->facts.text : "", out);
    out->failed |= written.failed;
    z3d_string_free(&written);
    z3d_string_append(out, "#SBATCH --job-name=%s\n#SBATCH --nodes=%lld", job->name,
                      (long long)job->choice[0]);
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
    for (int i = 0; i < job->option_count; i++) append_option(job->options[i], out);
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

/* Slurm gives the job at least as many nodes as the first choice. */
static void append_nodes(const z3d_job *job, z3d_string *out) {
    z3d_string_append(out, "# As many of the job's nodes as divide the samples of a step.\n"
                           "for nodes in");
    for (int64_t i = job->choices; i > 0; i--)
        z3d_string_append(out, " %lld", (long long)job->choice[i - 1]);
    z3d_string_append(out, "; do\n"
                           "    [ \"$nodes\" -gt \"$SLURM_NNODES\" ] || break\n"
                           "done\n");
}

/* Writes the srun command, up to the program's name. */
static void append_srun(const z3d_job *job, z3d_string *out) {
    if (job->choices > 1)
        z3d_string_append(out,
                          "srun --nodes=\"$nodes\" --ntasks=$((nodes * %lld)) --cpus-per-task=%lld",
                          (long long)job->ranks, (long long)(job->cpus ? job->cpus : 1));
    else
        z3d_string_append(out,
                          "# srun does not take the cores of a task from the job.\n"
                          "srun ${SLURM_CPUS_PER_TASK:+--cpus-per-task=\"$SLURM_CPUS_PER_TASK\"}");
    for (int i = 0; i < job->srun_count; i++) {
        z3d_string_append(out, " ");
        z3d_string_append_shell(out, job->srun[i]);
    }
    z3d_string_append(out, " \\\n    ");
}

void z3d_job_script(const z3d_job *job, z3d_string *out) {
    const bool array = job->config_count > 1;
    append_header(job, out);
    z3d_string_append(out, "\n");
    /* Before the script's own variables, because the setup might set them. */
    if (job->setup.length)
        z3d_string_append(out, "# On each start, before the ranks:\n%s\n", job->setup.text);
    append_config(job, out);
    if (job->choices > 1) append_nodes(job, out);
    z3d_string_append(out, "code=0\n");
    append_srun(job, out);
    z3d_string_append(out, "\"${ZERO3D:-zero3d}\" train \"$config\"");
    if (job->runs) z3d_string_append(out, " run.dir=\"$run\"");
    if (job->names_cuda) z3d_string_append(out, " training.device=cuda");
    for (int i = 0; i < job->assignment_count; i++) {
        z3d_string_append(out, " ");
        z3d_string_append_shell(out, job->assignments[i]);
    }
    z3d_string_append(
        out,
        " || code=$?\n"
        "# 75: stopped by a signal and saved; start it again. Any other code ends the "
        "job.\n"
        "if [ $code -eq 75 ]; then\n"
        "    scontrol requeue \"%s\"\n"
        "fi\n"
        "exit $code\n",
        array ? "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" : "$SLURM_JOB_ID");
}
