/* zero3d reproduce */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/cli/cli.h"
#include "src/plan/paper/paper.h"

static const char help[] =
    "usage: zero3d reproduce [NAME] [--json|--markdown] [--page FILE] [--configs DIR]\n"
    "                        [--hardware FILE] [--software NAME]\n"
    "       zero3d reproduce --calibrate [--write FILE] [--hardware FILE]\n"
    "       zero3d reproduce --write-configs DIR\n"
    "\n"
    "Prints published numbers beside ours. Each row is a configuration that runs at full size\n"
    "on the sim device: with the step program of training, without memory, on a virtual clock.\n"
    "docs/reproducing-the-paper.md lists the assumptions.\n"
    "\n"
    "  NAME                table1, table2, fig2, fig3, fig4, fig6, fig7, fig8: of the ZeRO paper\n"
    "                      (arXiv 1910.02054); zero: all of these; a paper of configs/published,\n"
    "                      such as megatron2; papers: all of those; all (the default): everything\n"
    "  --json              prints one array of objects: figure, system, size, gpus, quantity,\n"
    "                      published, ours, paper\n"
    "  --markdown          prints tables for docs\n"
    "  --page FILE         also writes a self-contained HTML page with the figures redrawn\n"
    "  --configs DIR       the folder of machines (hardware) and papers (published); default:\n"
    "                      configs, in this folder or as installed\n"
    "  --hardware FILE     the machine of the ZeRO paper; default: dgx2-v100. Rows of other\n"
    "                      papers name their machine and their software\n"
    "  --software NAME     its software: a file, or one of configs/software; default: paper-2019\n"
    "  --calibrate         fits the constants of paper-2019 to the points marked `fitted` again\n"
    "                      (about a minute), and writes them to --write FILE, by default\n"
    "                      configs/software/paper-2019.yaml\n"
    "  --write-configs DIR\n"
    "                      writes every row as a configuration file; refuses to overwrite files\n"
    "                      with other contents\n"
    "  --force             an output may replace a file of another kind\n";

/* The content that a row's file must have, and the content that it has; NULL: no such file. */
typedef struct row_file {
    char path[512];
    z3d_string wanted;
    char *found;
} row_file;

static void close_row(row_file *file) {
    z3d_string_free(&file->wanted);
    free(file->found);
}

static z3d_status open_row(const char *folder, const z3d_paper_row *row, row_file *out) {
    char name[96];
    size_t length;
    *out = (row_file){.found = NULL};
    snprintf(out->path, sizeof out->path, "%.380s/%s", folder,
             z3d_paper_file(row, name, sizeof name));
    z3d_paper_config(row, &out->wanted);
    if (out->wanted.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a configuration");
    if (access(out->path, F_OK) != 0) return Z3D_OK;
    return z3d_read_file(out->path, 1 << 20, &out->found, &length);
}

static z3d_status keep_changed(const char *folder) {
    enum { NAMED = 3 };
    int changed = 0;
    z3d_string names = {0};
    z3d_status status = Z3D_OK;
    for (int i = 0; i < z3d_paper_row_count && status == Z3D_OK; i++) {
        row_file file;
        status = open_row(folder, &z3d_paper_rows[i], &file);
        if (status == Z3D_OK && file.found && strcmp(file.found, file.wanted.text) != 0 &&
            ++changed <= NAMED)
            z3d_string_append(&names, "%s%s", changed > 1 ? ", " : "", file.path);
        close_row(&file);
    }
    if (changed > NAMED) z3d_string_append(&names, " and %d more", changed - NAMED);
    if (status == Z3D_OK && changed)
        status = Z3D_ERROR(Z3D_ERR_IO,
                           "nothing is written: %s would be overwritten with other contents; name "
                           "another folder, or delete %s",
                           names.failed ? "a file" : names.text, changed > 1 ? "them" : "it");
    z3d_string_free(&names);
    return status;
}

static z3d_status write_configs(const char *folder, z3d_string *text) {
    Z3D_TRY(keep_changed(folder));
    Z3D_TRY(z3d_make_folders(folder));
    for (int i = 0; i < z3d_paper_row_count; i++) {
        row_file file;
        z3d_status status = open_row(folder, &z3d_paper_rows[i], &file);
        if (status == Z3D_OK && !file.found) status = cli_write(file.path, &file.wanted);
        close_row(&file);
        Z3D_TRY(status);
    }
    z3d_string_append(text, "%d configurations written to %s\n", z3d_paper_row_count, folder);
    return Z3D_OK;
}

static z3d_status calibrate(z3d_hardware *hardware, const char *path, z3d_string *text) {
    enum { ROUNDS = 6 };
    double before, after;
    z3d_string file = {0};
    Z3D_TRY(z3d_paper_calibrate(hardware, ROUNDS, &before, &after));
    z3d_paper_write_calibration(hardware, &file);
    z3d_status status = cli_write(path, &file);
    if (status == Z3D_OK)
        z3d_string_append(text,
                          "%sroot of the mean squared log error on the fitted points: %.4f "
                          "before, %.4f after; written to %s\n",
                          file.text, before, after, path);
    z3d_string_free(&file);
    return status;
}

/* The request of `zero3d reproduce`. configs NULL: find the folder. */
typedef struct asked {
    const char *what, *page, *configs;
    bool json, markdown;
} asked;

static z3d_status write_points(const asked *a, const z3d_points *points,
                               const z3d_hardware *hardware, z3d_string *text) {
    z3d_string html = {0};
    if (a->page) Z3D_TRY(cli_save(z3d_points_page(points, hardware, &html), a->page, &html));
    if (a->markdown) return z3d_points_markdown(points, text);
    if (!a->json) return z3d_points_print(points, text);
    z3d_points_json(points, text);
    return Z3D_OK;
}

/* The path of `name` in the folder of configurations: the one of --configs, `configs` in this
 * folder, or the one that `make install` creates. */
static z3d_status find_configs(const asked *a, const char *name, z3d_string *out) {
    char program[512];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (a->configs) {
        z3d_string_append(out, "%s%s", a->configs, name);
    } else if (access("configs", F_OK) != 0 && length > 0) {
        program[length] = '\0';
        char *slash = strrchr(program, '/');
        if (slash) *slash = '\0';
        z3d_string_append(out, "%s/../share/zero3d/configs%s", program, name);
    } else {
        z3d_string_append(out, "configs%s", name);
    }
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for the name of a file")
                       : Z3D_OK;
}

static z3d_status reproduce(const asked *a, const z3d_hardware *hardware, z3d_string *text) {
    z3d_points points = {0};
    z3d_string configs = {0};
    z3d_log_configure(Z3D_LOG_WARN, 0); /* no notes on each row's configuration */
    z3d_status status = find_configs(a, "", &configs);
    if (status == Z3D_OK) status = z3d_paper_reproduce(a->what, hardware, &points);
    if (status == Z3D_OK && !z3d_paper_has(a->what))
        status = z3d_published_reproduce(configs.text, a->what, &points);
    if (status == Z3D_OK) status = write_points(a, &points, hardware, text);
    z3d_string_free(&configs);
    z3d_points_free(&points);
    return status;
}

/* ERR_USAGE if no table, figure or paper has this name. */
static z3d_status check_name(const asked *a) {
    const char *what = a->what;
    z3d_string configs = {0}, papers = {0};
    if (z3d_paper_has(what) || strcmp(what, "all") == 0 || strcmp(what, "papers") == 0)
        return Z3D_OK;
    z3d_status status = find_configs(a, "", &configs);
    if (status == Z3D_OK) status = z3d_published_names(configs.text, &papers);
    const char *names = papers.text ? papers.text : "";
    if (status == Z3D_OK && !z3d_has_leaf(names, what))
        status = Z3D_ERROR(Z3D_ERR_USAGE,
                           "cannot reproduce '%.40s'; use table1, table2, fig2, fig3, fig4, fig6, "
                           "fig7, fig8, zero, papers, all, or a paper: %s",
                           what, names);
    z3d_string_free(&configs);
    z3d_string_free(&papers);
    return status;
}

static z3d_status read_hardware(const asked *a, const char *machine, const char *software,
                                z3d_hardware *out) {
    z3d_string described = {0};
    if (machine) return z3d_hardware_read_with(machine, software, out);
    z3d_status status = find_configs(a, "/hardware/dgx2-v100.yaml", &described);
    if (status == Z3D_OK) status = z3d_hardware_read_with(described.text, software, out);
    z3d_string_free(&described);
    return status;
}

static z3d_status check_choices(const asked *a, bool machine) {
    if (a->json && a->markdown)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--json and --markdown are two forms; use one of them");
    if (machine && !z3d_paper_has(a->what) && strcmp(a->what, "all") != 0)
        return Z3D_ERROR(
            Z3D_ERR_USAGE,
            "--hardware and --software are for the ZeRO paper's rows; those of '%.40s' "
            "name their machine and software in configs/published",
            a->what);
    return Z3D_OK;
}

static z3d_status answer(int argc, char **argv, cli_answer *out) {
    const char *machine = NULL, *software = NULL, *configs = NULL, *write = NULL;
    bool fit = false, force = false;
    asked a = {.what = "all"};
    const cli_option options[] = {{"hardware", .value = &machine},
                                  {"software", .value = &software},
                                  {"page", .value = &a.page},
                                  {"configs", .value = &a.configs},
                                  {"write-configs", .value = &configs},
                                  {"write", .value = &write},
                                  {"json", .flag = &a.json},
                                  {"markdown", .flag = &a.markdown},
                                  {"calibrate", .flag = &fit},
                                  {"force", .flag = &force},
                                  {.name = NULL}};
    int count;
    z3d_hardware hardware;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    if (count > 1)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "expected one figure, table or paper, or all; '%.40s' is one too many",
                         argv[2]);
    if (count == 1) a.what = argv[1];
    Z3D_TRY(check_name(&a));
    const bool prints = count || software || a.page || a.json || a.markdown || a.configs;
    if (configs && (prints || machine || write || fit || force))
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--write-configs writes every row and takes nothing else beside it");
    if (configs) return write_configs(configs, &out->text);
    if ((write && !fit) || (fit && prints))
        return Z3D_ERROR(Z3D_ERR_USAGE, "--calibrate fits paper-2019 and accepts only --hardware, "
                                        "--write and --force beside it; --write needs it");
    Z3D_TRY(check_choices(&a, machine || software));
    const char *written = !fit ? NULL : write ? write : "configs/software/paper-2019.yaml";
    const cli_output outputs[] = {{a.page, &z3d_output_page}, {written, &z3d_output_software}};
    const char *const inputs[] = {machine, software};
    Z3D_TRY(cli_check_outputs(outputs, 2, inputs, 2, force));
    Z3D_TRY(read_hardware(&a, machine, software ? software : "paper-2019", &hardware));
    return fit ? calibrate(&hardware, written, &out->text) : reproduce(&a, &hardware, &out->text);
}

const cli_command cli_reproduce = {"reproduce",
                                   "print papers' numbers beside ours",
                                   help,
                                   answer,
                                   NULL,
                                   false,
                                   "table1 table2 fig2 fig3 fig4 fig6 fig7 fig8 zero papers all",
                                   false};
