/* zero3d submit */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/cli/cli.h"
#include "src/plan/choose/choose.h"
#include "src/plan/submit/submit.h"
#include "src/train/data.h"

static const char help[] =
    "usage: zero3d submit CONFIG... --nodes N --time T [options] [key=value ...] [--dry-run]\n"
    "\n"
    "Submits a run to Slurm. Plans it first: sizes that do not fit the nodes, and with --hardware\n"
    "a run that does not fit in memory, are refused before they are in the queue. The job stops\n"
    "before its time limit, saves, puts itself into the queue again and resumes, until the run is\n"
    "complete. Several CONFIGs become a job array.\n"
    "\n"
    "  --nodes N             nodes; a range such as 2-4 with parallel.elastic=true\n"
    "  --time T              time limit of each start, in sbatch's format: 8:00:00, 1-12, 30\n"
    "  --ranks-per-node N    default: the devices in a node of --hardware\n"
    "  --cpus-per-rank N     cores of each rank\n"
    "  --hardware FILE       the machine's description (configs/hardware): tells whether the\n"
    "                        run fits and how long it takes; default: training.hardware\n"
    "  --software NAME       speeds of software on it, as in `zero3d plan --software`\n"
    "  --runs DIR            each run's folder is in DIR, named as its CONFIG\n"
    "  --signal SECONDS      the ranks stop this long before the time limit (default 300; more if\n"
    "                        predicted steps are long)\n"
    "  --sbatch OPTION       another option of sbatch: --sbatch --partition=gpu, --sbatch -pgpu;\n"
    "                        may be given again. Options that the script decides are refused\n"
    "  --srun OPTION         an option of srun, by its long name: --srun --container-image=IMAGE\n"
    "  --setup LINE          a line of shell that each start of the job runs before srun: --setup\n"
    "                        \"module load gcc\"; may be given again\n"
    "  --setup-file FILE     the same for all lines of FILE, before those of --setup\n"
    "  --output FILE         keeps the script in FILE\n"
    "  --force               FILE may replace a file that is no script of submit\n"
    "  --dry-run             prints the script and submits nothing; the plan is on standard error\n"
    "\n"
    "example: zero3d submit configs/paper/fig2-zero-100B-400gpus.yaml --nodes 25 --time 8:00:00\n"
    "             --hardware configs/hardware/dgx2-v100.yaml checkpoint.interval=100 --dry-run\n";

typedef struct request {
    z3d_job job;
    const char *nodes, *hardware, *software, *output, *setup_file;
    bool dry_run, force;
    cli_values sbatch, srun, setup;
    z3d_string command; /* as it was typed */
    z3d_string missing; /* what a job would lack, for the warnings of a dry run */
} request;

enum { MOST = 1000000 };

static bool is_number(const char *text, int64_t *out) {
    return z3d_parse_int(text, out) == Z3D_OK && *out >= 1 && *out <= MOST;
}

static z3d_status read_nodes(const char *text, z3d_job *job) {
    char first[16];
    const char *dash = strchr(text, '-');
    const size_t length = dash ? (size_t)(dash - text) : strlen(text);
    snprintf(first, sizeof first, "%.*s", (int)(length < sizeof first ? length : 0), text);
    bool good = is_number(first, &job->nodes);
    job->most_nodes = job->nodes;
    if (dash) good = good && is_number(dash + 1, &job->most_nodes);
    if (good && job->most_nodes >= job->nodes) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_USAGE,
                     "--nodes %s: expected a whole number from 1 to %d, or a range such as 2-4",
                     text, MOST);
}

#define ONE_GPU "write --ranks-per-node N of submit: a rank has one GPU"

/* Options that the script decides: the message, and sbatch's long names and letters. */
static const struct {
    const char *instead, *names, *letters;
} decided[] = {
    {"write --nodes N of submit", "nodes", "N"},
    {"write --ranks-per-node N of submit",
     "ntasks ntasks-per-node ntasks-per-socket tasks-per-node", "n"},
    {ONE_GPU, "ntasks-per-gpu gpus-per-node gpus-per-task gpus-per-socket gpus", "G"},
    {"write --cpus-per-rank N of submit", "ntasks-per-core cpus-per-task mincpus", "c"},
    {"write --time T of submit", "time time-min", "t"},
    {"give submit several CONFIGs", "array", "a"},
    {"write --signal SECONDS of submit", "signal", ""},
    {"the job puts itself into the queue again", "requeue", ""},
    {"the job puts itself into the queue again; write a longer --time", "no-requeue", ""},
    {"a job that starts again appends to its log", "open-mode", ""},
    {"consecutive ranks share a node", "distribution", "m"},
    {"it is the CONFIG's name", "job-name", "J"},
    {"it is zero3d-NAME-JOB.log", "output", "o"},
    {"the script is the job", "wrap", ""},
    {"all ranks run zero3d", "multi-prog", ""},
};

/* Whether the text is one option on one line: "--partition=gpu", "-p gpu", "-pgpu". */
static bool is_option(const char *text) {
    const char *end = text + strcspn(text, "= \t\n");
    bool word = strncmp(text, "--", 2) == 0 && end - text > 2 && (*end == '\0' || *end == '=');
    bool letter = text[0] == '-' && isalpha((unsigned char)text[1]);
    return (word || letter) && !strchr(text, '\n');
}

/* Whether the text is --gres=gpu:2, --gres=gres/gpu:2 or --tres-per-node=gres/gpu:2; --gres may
 * request other things. */
static bool asks_for_gpus(const char *text) {
    const bool resources =
        strncmp(text, "--gres=", 7) == 0 || strncmp(text, "--tres-per-", 11) == 0;
    return resources && strstr(text, "gpu");
}

/* "-Hx": these letters take no value, and sbatch would ignore the text after them. */
static bool has_lost_value(const char *text) {
    return text[1] != '-' && strchr("HhkOQsuvVW", text[1]) && text[2];
}

static z3d_status refuse_decided(const char *of, const char *text, const char *instead) {
    return Z3D_ERROR(Z3D_ERR_USAGE, "--%s %s: the script decides this, as it is planned: %s", of,
                     text, instead);
}

/* Refuses an option that the script decides. of: "sbatch" or "srun". */
static z3d_status check_decided(const char *of, const char *text) {
    if (asks_for_gpus(text)) return refuse_decided(of, text, ONE_GPU);
    const size_t length = text[1] == '-' ? strcspn(text + 2, "=") : 0;
    for (size_t i = 0; i < sizeof decided / sizeof *decided; i++) {
        char name[32];
        bool same = !length && strchr(decided[i].letters, text[1]);
        for (const char *at = decided[i].names; length && z3d_next_word(&at, name, sizeof name);)
            same = same || strncmp(text + 2, name, length) == 0; /* names may be abbreviated */
        if (same) return refuse_decided(of, text, decided[i].instead);
    }
    return Z3D_OK;
}

static z3d_status check_sbatch(const char *text) {
    if (!is_option(text))
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--sbatch %s: expected an option of sbatch with its dashes: --sbatch "
                         "--partition=gpu",
                         text);
    if (has_lost_value(text))
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--sbatch %s: -%c takes no value; give each option its own --sbatch", text,
                         text[1]);
    return check_decided("sbatch", text);
}

static z3d_status check_srun(const char *text) {
    if (is_option(text) && text[1] == '-') return check_decided("srun", text);
    return Z3D_ERROR(Z3D_ERR_USAGE,
                     "--srun %s: expected the long name of an option of srun, with its dashes: "
                     "--srun --container-image=IMAGE",
                     text);
}

static z3d_status check_output(const request *r) {
    const cli_output output = {r->output, &z3d_output_script};
    const char *const others[] = {r->hardware, r->software, r->setup_file};
    Z3D_TRY(cli_check_outputs(&output, 1, (const char *const *)r->job.configs, r->job.config_count,
                              r->force));
    return cli_check_outputs(&output, 1, others, sizeof others / sizeof *others, r->force);
}

static z3d_status read_arguments(int argc, char **argv, request *r) {
    z3d_job *job = &r->job;
    int count;
    const cli_option options[] = {
        {"nodes", .value = &r->nodes},
        {"time", .value = &job->time},
        {"ranks-per-node", .number = &job->ranks, .least = 1, .most = MOST},
        {"cpus-per-rank", .number = &job->cpus, .least = 1, .most = MOST},
        {"hardware", .value = &r->hardware},
        {"software", .value = &r->software},
        {"runs", .value = &job->runs},
        {"signal", .number = &job->signal, .least = 1, .most = Z3D_JOB_MOST_SIGNAL},
        {"sbatch", .values = &r->sbatch},
        {"srun", .values = &r->srun},
        {"setup", .values = &r->setup},
        {"setup-file", .value = &r->setup_file},
        {"output", .value = &r->output},
        {"dry-run", .flag = &r->dry_run},
        {"force", .flag = &r->force},
        {.name = NULL}};
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    job->configs = argv + 1;
    while (job->config_count < count && !strchr(job->configs[job->config_count], '='))
        job->config_count++;
    job->assignments = job->configs + job->config_count;
    job->assignment_count = count - job->config_count;
    if (job->config_count == 0) return Z3D_ERROR(Z3D_ERR_USAGE, "no configuration: give its file");
    if (!r->nodes) return Z3D_ERROR(Z3D_ERR_USAGE, "--nodes N is missing");
    for (int i = 0; i < r->sbatch.count; i++) Z3D_TRY(check_sbatch(r->sbatch.value[i]));
    for (int i = 0; i < r->srun.count; i++) Z3D_TRY(check_srun(r->srun.value[i]));
    return check_output(r);
}

static z3d_status read_job(request *r) {
    z3d_job *job = &r->job;
    int64_t limit;
    job->options = r->sbatch.value;
    job->option_count = r->sbatch.count;
    job->srun = r->srun.value;
    job->srun_count = r->srun.count;
    Z3D_TRY(read_nodes(r->nodes, job));
    if (!job->time) return Z3D_ERROR(Z3D_ERR_USAGE, "--time T is missing");
    if (!z3d_job_seconds(job->time, &limit))
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--time %s: expected a time limit such as 8:00:00, 1-12 (days-hours) or "
                         "30 (minutes)",
                         job->time);
    return Z3D_OK;
}

/* The name of a configuration's file, without folder and ending. */
static void append_name(const char *path, z3d_string *out) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const size_t length = strlen(name);
    const bool ends = length > 5 && strcmp(name + length - 5, ".yaml") == 0;
    z3d_string_append(out, "%.*s", (int)(ends ? length - 5 : length), name);
}

/* The same as a job's name, which must be one word and fit in a file's name. */
static void append_job_name(const char *path, z3d_string *out) {
    const size_t begin = out->length;
    append_name(path, out);
    for (char *c = out->text ? out->text + begin : NULL; c && *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._+-", *c)) *c = '_';
}

static z3d_status read_machine(const request *r, const z3d_config *config, bool *known,
                               z3d_hardware *out) {
    const char *path = r->hardware;
    if (!path && config->training_hardware[0] && strcmp(config->training_hardware, "measure") != 0)
        path = config->training_hardware;
    *known = path != NULL;
    if (r->software && !path) return Z3D_ERROR(Z3D_ERR_USAGE, "--software needs --hardware NAME");
    return path ? z3d_hardware_read_with(path, r->software, out) : Z3D_OK;
}

/* ---- errors that would otherwise appear only when the job starts, hours later ---- */

static z3d_status check_data(const char *key, const z3d_data_list *files) {
    for (int i = 0; i < files->count; i++) {
        z3d_string index = {0};
        const char *path = files->path[i];
        z3d_string_append(&index, "%s.idx", path);
        const bool there =
            access(path, R_OK) == 0 || (!index.failed && access(index.text, R_OK) == 0);
        z3d_string_free(&index);
        if (!there)
            return Z3D_ERROR(Z3D_ERR_IO, "%s: %s: cannot read it: %s", key, path, strerror(errno));
    }
    return Z3D_OK;
}

/* Checks the program that the script calls, "${ZERO3D:-zero3d}". */
static z3d_status check_program(void) {
    const char *named = getenv("ZERO3D"), *name = named && *named ? named : "zero3d";
    if (strchr(name, '/') ? access(name, X_OK) == 0 : cli_is_in_path(name)) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_IO,
                     "the job would start %s, which does not exist: export ZERO3D=PATH of the "
                     "program, or put its folder into PATH",
                     name);
}

static z3d_status check_files(const request *r, const z3d_config *config) {
    if (config->data_train.count == 0)
        return z3d_config_error(config, "data.train", "it is not set: it needs a token file");
    Z3D_TRY(check_data("data.train", &config->data_train));
    Z3D_TRY(check_data("data.validation", &config->data_validation));
    /* A setup or a container may bring its own program. */
    return r->setup.count || r->setup_file || r->srun.count ? Z3D_OK : check_program();
}

/* A dry run only warns: it may run on another machine. */
static z3d_status check_or_say(request *r, const z3d_config *config, const char *name) {
    const z3d_status status = check_files(r, config);
    if (status == Z3D_OK || !r->dry_run) return status;
    z3d_string_append(&r->missing, "%s: %s; without --dry-run it is refused\n", name,
                      z3d_error_message());
    return Z3D_OK;
}

/* Folders that two runs of an array must not share. */
typedef struct folders {
    z3d_string run, checkpoints; /* checkpoints "": inside run */
} folders;

static const char *text_of(const z3d_string *string) {
    return string->text ? string->text : "";
}

static z3d_status note_folders(const z3d_config *config, const z3d_job *job, folders *folders,
                               int i) {
    struct folders *mine = &folders[i];
    if (job->runs) z3d_string_append(&mine->run, "%s/", job->runs);
    if (job->runs)
        append_name(job->configs[i], &mine->run);
    else
        z3d_string_append(&mine->run, "%s", config->run_dir);
    z3d_string_append(&mine->checkpoints, "%s",
                      config->checkpoint_dir ? config->checkpoint_dir : "");
    if (mine->run.failed || mine->checkpoints.failed)
        return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a folder's name");
    for (int k = 0; k < i; k++) {
        if (strcmp(text_of(&folders[k].run), text_of(&mine->run)) == 0)
            return Z3D_ERROR(Z3D_ERR_USAGE,
                             "%s and %s have the same run.dir, %s: give each its own%s",
                             job->configs[k], job->configs[i], text_of(&mine->run),
                             job->runs ? ", or other names" : ", or --runs DIR");
        if (mine->checkpoints.length &&
            strcmp(text_of(&folders[k].checkpoints), text_of(&mine->checkpoints)) == 0)
            return Z3D_ERROR(Z3D_ERR_USAGE,
                             "%s and %s have the same checkpoint.dir, %s: leave it out, then each "
                             "run's checkpoints are in its run.dir",
                             job->configs[k], job->configs[i], text_of(&mine->checkpoints));
    }
    return Z3D_OK;
}

static z3d_status plan_config(request *r, const char *name, folders *folders, int i) {
    z3d_job *job = &r->job;
    z3d_config *config;
    z3d_hardware hardware;
    bool known, chosen = false;
    const char *path = job->configs[i];
    Z3D_TRY(cli_read_config(path, job->assignment_count, job->assignments, 0, &config));
    z3d_status status = z3d_train_data_count(config);
    if (r->dry_run) status = Z3D_OK; /* the data may be on another machine */
    if (status == Z3D_OK) status = note_folders(config, job, folders, i);
    if (status == Z3D_OK) status = read_machine(r, config, &known, &hardware);
    if (status == Z3D_OK && known) status = z3d_choose_device(config, &hardware, &chosen);
    job->names_cuda = job->names_cuda || chosen;
    if (status == Z3D_OK && !job->ranks && known) job->ranks = (int64_t)hardware.devices;
    if (status == Z3D_OK && !job->ranks)
        status = Z3D_ERROR(Z3D_ERR_USAGE, "--ranks-per-node N is missing (or --hardware FILE, "
                                          "which says how many devices a node has)");
    if (status == Z3D_OK) status = z3d_choose_nodes(config, job->ranks);
    if (status == Z3D_OK && config->training_device == Z3D_TRAINING_CUDA) job->gpus = job->ranks;
    if (status == Z3D_OK) status = z3d_job_plan(job, name, config, known ? &hardware : NULL);
    if (status == Z3D_OK) status = check_or_say(r, config, name);
    z3d_config_destroy(config);
    const bool named = strncmp(z3d_error_message(), path, strlen(path)) == 0;
    return status == Z3D_OK || named ? status : z3d_error_context(status, "%s", path);
}

static z3d_status plan_all(request *r) {
    const z3d_job *job = &r->job;
    folders *folders;
    z3d_status status = Z3D_OK;
    Z3D_TRY(z3d_new((size_t)job->config_count, sizeof *folders, "folders", &folders));
    for (int i = 0; i < job->config_count && status == Z3D_OK; i++) {
        z3d_string name = {0};
        append_job_name(job->configs[i], &name);
        status = plan_config(r, text_of(&name), folders, i);
        z3d_string_free(&name);
    }
    for (int i = 0; i < job->config_count; i++) {
        z3d_string_free(&folders[i].run);
        z3d_string_free(&folders[i].checkpoints);
    }
    free(folders);
    int64_t limit;
    if (status == Z3D_OK && z3d_job_seconds(job->time, &limit) && job->signal >= limit)
        status = Z3D_ERROR(Z3D_ERR_CONFIG,
                           "--time %s: too short: the ranks need %lld seconds to finish a step and "
                           "save",
                           job->time, (long long)job->signal);
    return status;
}

static void append_command(int argc, char **argv, z3d_string *out) {
    z3d_string_append(out, "zero3d submit");
    for (int i = 1; i < argc; i++) {
        z3d_string_append(out, " ");
        z3d_string_append_shell(out, argv[i]);
    }
}

/* Calls sbatch, which reads the script from standard input and prints the job's number. */
static z3d_status call_sbatch(const z3d_string *script) {
    errno = 0;
    FILE *sbatch = popen("sbatch", "we");
    if (!sbatch) return Z3D_ERROR(Z3D_ERR_IO, "cannot start sbatch: %s", strerror(errno));
    (void)fwrite(script->text, 1, script->length, sbatch);
    int code = pclose(sbatch);
    if (code == 0) return Z3D_OK;
    if (WIFEXITED(code) && WEXITSTATUS(code) == 127)
        return Z3D_ERROR(Z3D_ERR_IO, "there is no sbatch here; --dry-run prints the script");
    return Z3D_ERROR(Z3D_ERR_IO, "sbatch refused the job; --dry-run prints the script");
}

static z3d_status give(const request *r, const z3d_string *script) {
    if (r->output) Z3D_TRY(cli_write(r->output, script));
    fputs(text_of(&r->job.facts), stderr);
    fputs(text_of(&r->missing), stderr);
    return r->dry_run ? Z3D_OK : call_sbatch(script);
}

static z3d_status submit(request *r, cli_answer *out) {
    z3d_job *job = &r->job;
    z3d_string script = {0}, name = {0};
    Z3D_TRY(read_job(r));
    z3d_status status = z3d_job_setup(r->setup_file, r->setup.value, r->setup.count, &job->setup);
    if (status == Z3D_OK) status = plan_all(r);
    append_job_name(job->configs[0], &name);
    job->name = name.text;
    job->command = text_of(&r->command);
    if (status == Z3D_OK && !name.failed) z3d_job_script(job, &script);
    if (status == Z3D_OK && (script.failed || name.failed))
        status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the script");
    if (status == Z3D_OK) status = give(r, &script);
    if (r->dry_run && !r->output)
        out->text = script;
    else
        z3d_string_free(&script);
    z3d_job_release(job);
    z3d_string_free(&name);
    return status;
}

static z3d_status answer(int argc, char **argv, cli_answer *out) {
    request r = {.job = {.signal = 300}};
    append_command(argc, argv, &r.command); /* before cli_parse removes the options */
    z3d_status status = read_arguments(argc, argv, &r);
    if (status == Z3D_OK) status = submit(&r, out);
    z3d_string_free(&r.command);
    z3d_string_free(&r.missing);
    return status;
}

const cli_command cli_submit = {
    "submit", "submit a run to Slurm, planned first", help, answer, NULL, false, NULL, true};
