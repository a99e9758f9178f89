/* Runs of other papers. configs/published/papers.csv lists the papers; NAME.yaml is the common part
 * of a paper's runs; NAME.csv has a row for each run, with its sizes and published numbers.
 * docs/reproducing-the-paper.md explains the columns. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/plan/calibrate/calibrate.h"
#include "src/plan/choose/choose.h"
#include "src/plan/paper/paper.h"

/* Columns for a run's name and place. Other columns are published numbers, numbers of the machine's
 * or the software's description, or keys of the configuration. */
enum { TABLE, SYSTEM, SIZE, HARDWARE, SOFTWARE, RANKS, RANK, KEPT, FACTS };
static const char *const facts[FACTS] = {"table",    "system", "size", "hardware",
                                         "software", "ranks",  "rank", "kept_per_bsh"};

static int find_name(const char *name, const char *const *names, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

typedef struct run {
    const char *configs, *paper, *title;
    z3d_csv csv;
    z3d_config *config;
    z3d_hardware hardware;
    const char *fact[FACTS]; /* NULL: no such column */
    int ranks, rank;
    double kept;
} run;

static z3d_status find_file(const char *configs, const char *folder, const char *name,
                            const char *ending, z3d_string *path) {
    z3d_string_append(path, "%s/%s/%s.%s", configs, folder, name, ending);
    return path->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for a name") : Z3D_OK;
}

/* ---- rows ---- */

static const char *fact(const run *r, int which) {
    return r->fact[which] ? r->fact[which] : "";
}

static z3d_status read_number(const z3d_csv *csv, int column, double *out) {
    if (z3d_parse_float(csv->field[column], out) == Z3D_OK) return Z3D_OK;
    char what[160];
    snprintf(what, sizeof what, "%.120s is no number", csv->column[column]);
    return z3d_csv_refuse(csv, what, csv->field[column]);
}

static z3d_status read_fact(run *r, int column, int which) {
    const z3d_csv *csv = &r->csv;
    double number = 0;
    r->fact[which] = csv->field[column];
    if (which == RANKS) return z3d_row_ranks(csv, column, &r->ranks);
    if ((which != RANK && which != KEPT) || !csv->field[column][0]) return Z3D_OK;
    Z3D_TRY(read_number(csv, column, &number));
    if (which == KEPT) {
        r->kept = number;
        return Z3D_OK;
    }
    if (!(number >= 0 && number < 1e6 && number == floor(number)))
        return z3d_csv_refuse(csv, "rank is not a rank of the run", csv->field[column]);
    r->rank = (int)number;
    return Z3D_OK;
}

/* Reads the machine and the software first, because other columns change their numbers. */
static z3d_status read_facts(run *r) {
    const z3d_csv *csv = &r->csv;
    z3d_string path = {0};
    r->rank = 0;
    r->kept = 0;
    for (int i = 0; i < csv->columns; i++) {
        int which = find_name(csv->column[i], facts, FACTS);
        if (which >= 0) Z3D_TRY(read_fact(r, i, which));
    }
    Z3D_TRY(find_file(r->configs, "hardware", fact(r, HARDWARE), "yaml", &path));
    const char *software = fact(r, SOFTWARE);
    z3d_status status =
        z3d_hardware_read_with(path.text, software[0] ? software : NULL, &r->hardware);
    z3d_string_free(&path);
    return z3d_row_context(&r->csv, status);
}

static z3d_status check_header(const z3d_csv *csv) {
    static const int needed[] = {TABLE, HARDWARE, RANKS};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!z3d_csv_field(csv, facts[needed[i]]))
            return z3d_csv_refuse(csv, "the header lacks the column", facts[needed[i]]);
    return Z3D_OK;
}

static z3d_status read_keys(run *r) {
    const z3d_csv *csv = &r->csv;
    for (int i = 0; i < csv->columns; i++) {
        if (find_name(csv->column[i], facts, FACTS) >= 0) continue;
        if (find_name(csv->column[i], z3d_quantities, Z3D_Q_COUNT) >= 0) continue;
        double number, low, high;
        const char *meaning;
        if (!z3d_hardware_describe(csv->column[i], &low, &high, &meaning)) {
            Z3D_TRY(z3d_row_assign(csv, i, r->config));
        } else if (csv->field[i][0]) {
            Z3D_TRY(read_number(csv, i, &number));
            if (number < low || number > high) {
                char what[160];
                snprintf(what, sizeof what, "%.80s is from %g to %g", csv->column[i], low, high);
                return z3d_csv_refuse(csv, what, csv->field[i]);
            }
            z3d_hardware_set(&r->hardware, csv->column[i], number);
        }
    }
    return Z3D_OK;
}

static z3d_status add_points(const run *r, const z3d_predicted *predicted, z3d_points *out) {
    const z3d_csv *csv = &r->csv;
    z3d_point point = {.gpus = r->ranks, .other = NAN};
    Z3D_TRY(z3d_points_keep(out, r->paper, &point.paper));
    Z3D_TRY(z3d_points_keep(out, r->title, &point.title));
    Z3D_TRY(z3d_points_keep(out, fact(r, TABLE), &point.figure));
    Z3D_TRY(z3d_points_keep(out, fact(r, SYSTEM), &point.system));
    Z3D_TRY(z3d_points_keep(out, fact(r, SIZE), &point.size));
    for (int i = 0; i < csv->columns; i++) {
        int which = find_name(csv->column[i], z3d_quantities, Z3D_Q_COUNT);
        if (which < 0 || csv->field[i][0] == '\0') continue;
        Z3D_TRY(read_number(csv, i, &point.published));
        const bool yes_or_no = point.published == 0 || point.published == 1;
        if (which == Z3D_Q_fits ? !yes_or_no : !(point.published > 0))
            return z3d_csv_refuse(csv,
                                  which == Z3D_Q_fits ? "fits is 0 or 1" : "expected more than 0",
                                  csv->field[i]);
        point.quantity = z3d_quantities[which];
        point.ours = predicted->value[which];
        point.other = predicted->own[which];
        Z3D_TRY(z3d_points_add(out, &point));
    }
    return Z3D_OK;
}

static z3d_status read_base(const run *r) {
    z3d_string path = {0};
    z3d_status status = find_file(r->configs, "published", r->paper, "yaml", &path);
    if (status == Z3D_OK) status = z3d_config_read_file(r->config, path.text);
    z3d_string_free(&path);
    return status;
}

static z3d_status run_row(run *r, z3d_points *out) {
    z3d_predicted predicted;
    z3d_case *of;
    Z3D_TRY(read_base(r));
    Z3D_TRY(read_facts(r));
    Z3D_TRY(read_keys(r));
    z3d_status status = z3d_choose_nodes(r->config, (int64_t)r->hardware.devices);
    if (status == Z3D_OK)
        status = z3d_case_create(r->config, r->ranks, r->rank,
                                 z3d_case_node(r->config, &r->hardware), &of);
    Z3D_TRY(z3d_row_context(&r->csv, status));
    status = z3d_row_context(&r->csv, z3d_quantities_find(of, &r->hardware,
                                                          (int)r->config->model_hidden_size,
                                                          r->kept, &predicted));
    z3d_case_destroy(of);
    return status == Z3D_OK ? add_points(r, &predicted, out) : status;
}

static z3d_status run_rows(run *r, z3d_points *out) {
    for (bool found;;) {
        Z3D_TRY(z3d_csv_next(&r->csv, &found));
        if (!found) return Z3D_OK;
        Z3D_TRY(z3d_config_create(&r->config));
        z3d_status status = run_row(r, out);
        z3d_config_destroy(r->config);
        Z3D_TRY(status);
    }
}

/* ---- papers ---- */

static z3d_status run_paper(run *r, z3d_points *out) {
    z3d_string path = {0};
    z3d_status status = find_file(r->configs, "published", r->paper, "csv", &path);
    if (status == Z3D_OK) status = z3d_csv_open(path.text, &r->csv);
    if (status == Z3D_OK) {
        status = z3d_row_name_keys(&r->csv);
        if (status == Z3D_OK) status = check_header(&r->csv);
        if (status == Z3D_OK) status = run_rows(r, out);
        z3d_csv_close(&r->csv);
    }
    z3d_string_free(&path);
    return status;
}

static z3d_status open_list(const char *configs, z3d_string *path, z3d_csv *out) {
    Z3D_TRY(find_file(configs, "published", "papers", "csv", path));
    Z3D_TRY(z3d_csv_open(path->text, out));
    if (z3d_csv_field(out, "name") && z3d_csv_field(out, "title")) return Z3D_OK;
    z3d_status status = z3d_csv_refuse(out, "expected the columns name and title", NULL);
    z3d_csv_close(out);
    return status;
}

/* Appends the papers' names to `names`, and the points of `what` to `points`; each may be NULL. */
static z3d_status each_paper(const char *configs, const char *what, z3d_string *names,
                             z3d_points *points) {
    z3d_csv list = {0};
    z3d_string path = {0};
    bool found = true, every = strcmp(what, "all") == 0 || strcmp(what, "papers") == 0;
    z3d_status status = open_list(configs, &path, &list);
    while (status == Z3D_OK && found) {
        status = z3d_csv_next(&list, &found);
        if (status != Z3D_OK || !found) break;
        run r = {.configs = configs,
                 .paper = z3d_csv_field(&list, "name"),
                 .title = z3d_csv_field(&list, "title")};
        if (names) z3d_string_append(names, "%s%s", names->length ? " " : "", r.paper);
        if (points && (every || strcmp(what, r.paper) == 0)) status = run_paper(&r, points);
    }
    z3d_csv_close(&list);
    z3d_string_free(&path);
    return status;
}

z3d_status z3d_published_names(const char *configs, z3d_string *out) {
    return each_paper(configs, "", out, NULL);
}

z3d_status z3d_published_reproduce(const char *configs, const char *what, z3d_points *out) {
    return each_paper(configs, what, NULL, out);
}
