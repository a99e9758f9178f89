/* The ZeRO paper (arXiv 1910.02054) as configurations: every row of its figures 2, 3, 4, 6, 7 and 8
 * as a table, its tables 1 and 2 from the program's own accounting, and each published number
 * beside ours. Start reading at rows.c. Runs of other papers are files of configs/published
 * (published.c). */
#ifndef ZERO3D_PLAN_PAPER_H
#define ZERO3D_PLAN_PAPER_H

#include "src/plan/price/estimate.h"

enum { PAPER_SEQUENCE = 1024, PAPER_VOCABULARY = 51200 };

/* What is published of a row, as bits. */
enum {
    PAPER_SPEED = 1,  /* TFLOPS a GPU */
    PAPER_MEMORY = 2, /* GB cached at most */
    PAPER_FITS = 4,
    PAPER_LARGEST = 8, /* the largest model of its configuration */
    PAPER_FITTED = 16  /* the calibration uses it; all others are for validation */
};

/* One run of the paper. */
typedef struct z3d_paper_row {
    const char *figure, *system, *size;
    int layers, hidden, heads, gpus, tensor, batch; /* batch: of one model replica */
    int stage;
    bool partition, offload; /* P_a, P_a+cpu */
    bool fused_buffer;       /* Megatron's fp32 copy of all gradients in one buffer: 4P bytes */
    unsigned shows;          /* PAPER_* */
    double speed, memory;    /* published; NAN: left out */
    bool fits;
    double largest; /* published, in parameters; NAN: left out */
} z3d_paper_row;

extern const z3d_paper_row z3d_paper_rows[];
extern const int z3d_paper_row_count;

/* The row as a configuration file, with a comment on top. */
void z3d_paper_config(const z3d_paper_row *row, z3d_string *out);
/* "fig2-zero-100B.yaml" into buf. */
const char *z3d_paper_file(const z3d_paper_row *row, char *buf, size_t size);
/* The row on the sim device; layers: 0, or replaces the row's. */
z3d_status z3d_paper_case(const z3d_paper_row *row, int layers, z3d_case **out);
/* Priced; the fused buffer is in the memory. */
z3d_status z3d_paper_estimate(const z3d_paper_row *row, const z3d_case *of,
                              const z3d_hardware *hardware, z3d_estimate *out);

/* One published number and ours. */
typedef struct z3d_point {
    const char *paper, *title; /* NULL: the ZeRO paper; else of configs/published */
    const char *figure, *system;
    char size[16];
    int gpus;
    const char
        *quantity;    /* tflops_per_gpu, gb, fits, max_params; published.c has those of papers */
    double published; /* NAN: left out */
    double ours;      /* fits: 0 or 1 */
    double other;     /* speed: by the 72 convention; table 2: the formula itself; else NAN */
    bool fitted;
    int row; /* in z3d_paper_rows, -1: none */
} z3d_point;

typedef struct z3d_points {
    int count, capacity;
    z3d_point *point;
    int texts, texts_capacity; /* that points refer to */
    char **text;
} z3d_points;

void z3d_points_free(z3d_points *points);
z3d_status z3d_points_add(z3d_points *points, const z3d_point *point);
/* Whether the point is the first of its table or figure. */
bool z3d_points_begin_table(const z3d_points *points, int index);
/* The errors of those points that `belongs` wants, without those that fit or do not. */
typedef struct z3d_errors {
    int count;
    double median, worst; /* shares; median: without signs */
} z3d_errors;
typedef bool z3d_point_filter(const z3d_point *point, const void *context);
z3d_status z3d_points_errors(const z3d_points *points, z3d_point_filter *belongs,
                             const void *context, z3d_errors *out);
/* Of `context`'s table (a z3d_point) of a paper. */
z3d_point_filter z3d_points_same_table;
/* A copy of a text that lives as long as the points. */
z3d_status z3d_points_keep(z3d_points *points, const char *text, const char **out);

/* Table 1 as printed: rounded to three digits or so below 100, truncated from 100 on. */
z3d_status z3d_paper_table1(z3d_points *out);
/* Table 2: theory (row tensor size 1, the others that times printed row 1), and what fits here. */
z3d_status z3d_paper_table2(const z3d_hardware *hardware, z3d_points *out);
/* The largest number of layers of a row's shape that fits, 0: none. */
z3d_status z3d_paper_largest(const z3d_paper_row *row, const z3d_hardware *hardware, int *layers,
                             double *parameters);
double z3d_paper_printed(double gigabytes);

/* The ZeRO paper's: "table1" ... "fig8", or "zero": all of them. Another name adds nothing. */
bool z3d_paper_has(const char *what);
z3d_status z3d_paper_reproduce(const char *what, const z3d_hardware *hardware, z3d_points *out);

/* The names of the papers of configs/published, with spaces between them. configs: the folder that
 * has `hardware` and `published`. Errors: ERR_IO, ERR_CONFIG with file and line. */
z3d_status z3d_published_names(const char *configs, z3d_string *out);
/* Adds the points of the paper of that name; of "papers" or "all": of each. Errors: the same, and
 * those of z3d_case_create and z3d_estimate_make. */
z3d_status z3d_published_reproduce(const char *configs, const char *what, z3d_points *out);
z3d_status z3d_points_print(const z3d_points *points, z3d_string *out);
/* Tables for docs. */
z3d_status z3d_points_markdown(const z3d_points *points, z3d_string *out);
void z3d_points_json(const z3d_points *points, z3d_string *out);
/* One self-contained HTML page with the figures redrawn. */
z3d_status z3d_points_page(const z3d_points *points, const z3d_hardware *hardware, z3d_string *out);

/* How many constants paper-2019 has that are fitted. */
int z3d_paper_constants(void);
/* Fits them, each within its bounds, on the points marked PAPER_FITTED, starting from `hardware`,
 * which is set to the best found. before, after: the root of the mean squared log error. rounds:
 * searches started anew. */
z3d_status z3d_paper_calibrate(z3d_hardware *hardware, int rounds, double *before, double *after);
/* The calibration file: the constants with meaning and bounds. */
void z3d_paper_write_calibration(const z3d_hardware *hardware, z3d_string *out);

#endif
