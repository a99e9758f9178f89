/* The ZeRO paper (arXiv 1910.02054) as configurations: every row of its figures 2, 3, 4, 6, 7 and 8
 * as a table, its tables 1 and 2 from the program's own accounting, and each published number
 * beside ours. Start reading at rows.c. Runs of other papers are files of configs/published
 * (published.c). */
#ifndef ZERO3D_PLAN_PAPER_H
#define ZERO3D_PLAN_PAPER_H

#include "src/plan/price/estimate.h"

enum { PAPER_SEQUENCE = 1024, PAPER_VOCABULARY = 51200 };

/* The published numbers of a row, as bits. */
enum {
    PAPER_SPEED = 1,  /* TFLOPS a GPU */
    PAPER_MEMORY = 2, /* largest GB cached */
    PAPER_FITS = 4,
    PAPER_LARGEST = 8, /* the largest model of its configuration */
    PAPER_FITTED = 16  /* for calibration; all others are for validation */
};

/* One run of the paper. */
typedef struct z3d_paper_row {
    const char *figure, *system, *size;
    int layers, hidden, heads, gpus, tensor, batch; /* batch: samples of one model replica */
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

/* Appends the row as a configuration file, with a comment on top. */
void z3d_paper_config(const z3d_paper_row *row, z3d_string *out);
/* Writes "fig2-zero-100B.yaml" into buf, and returns it. */
const char *z3d_paper_file(const z3d_paper_row *row, char *buf, size_t size);
/* The row on the sim device. layers: 0, or instead of the row's. Errors: as z3d_case_create. */
z3d_status z3d_paper_case(const z3d_paper_row *row, int layers, z3d_case **out);
/* Prices a row; the memory includes the fused buffer. Errors: as z3d_estimate_make. */
z3d_status z3d_paper_estimate(const z3d_paper_row *row, const z3d_case *of,
                              const z3d_hardware *hardware, z3d_estimate *out);

/* The predicted numbers of a published run (quantities.c). Their names are columns in
 * configs/published. */
#define Z3D_QUANTITIES(X)                                                                          \
    X(tflops_per_gpu)                                                                              \
    X(model_tflops_per_gpu)                                                                        \
    X(parameter_tflops_per_gpu)                                                                    \
    X(seconds)                                                                                     \
    X(samples_per_gpu_s)                                                                           \
    X(tokens_per_gpu_s)                                                                            \
    X(bubble)                                                                                      \
    X(block_forward_ms)                                                                            \
    X(block_backward_ms)                                                                           \
    X(states_gib)                                                                                  \
    X(activations_gib)                                                                             \
    X(memory_gib)                                                                                  \
    X(fits)
enum {
#define X(name) Z3D_Q_##name,
    Z3D_QUANTITIES(X)
#undef X
        Z3D_Q_COUNT
};
extern const char *const z3d_quantities[Z3D_Q_COUNT];

/* own: memory without the bytes that only the published software keeps; else NAN. */
typedef struct z3d_predicted {
    double value[Z3D_Q_COUNT], own[Z3D_Q_COUNT];
} z3d_predicted;

/* kept_per_bsh: bytes that only the published software keeps of a block for its backward, per token
 * of the micro-batch and element of hidden_size. Errors: as z3d_estimate_make. */
z3d_status z3d_quantities_find(const z3d_case *of, const z3d_hardware *hardware, int hidden_size,
                               double kept_per_bsh, z3d_predicted *out);

/* One published number and ours. */
typedef struct z3d_point {
    const char *paper, *title; /* of configs/published; NULL: the ZeRO paper */
    const char *figure, *system, *size;
    int gpus;
    const char *quantity; /* tflops_per_gpu, gb, fits, max_params; or one of z3d_quantities */
    double published;     /* NAN: left out */
    double ours;          /* fits: 0 or 1 */
    double other;         /* speed: in the 72 convention; table 2: the exact formula; else NAN */
    bool fitted;
} z3d_point;

typedef struct z3d_points {
    int count, texts;
    z3d_point *point;
    char **text; /* the texts that points refer to */
    int64_t capacity, texts_capacity;
} z3d_points;

void z3d_points_free(z3d_points *points);
z3d_status z3d_points_add(z3d_points *points, const z3d_point *point);
/* Whether the point is the first of its table or figure. */
bool z3d_points_begin_table(const z3d_points *points, int index);
/* The errors of the points that `belongs` selects, except those of `fits`. ERR_MEMORY. */
typedef struct z3d_errors {
    int count;
    double median, worst; /* shares; median: of absolute values */
} z3d_errors;
typedef bool z3d_point_filter(const z3d_point *point, const void *context);
z3d_status z3d_points_errors(const z3d_points *points, z3d_point_filter *belongs,
                             const void *context, z3d_errors *out);
/* Selects the points in the table of `context` (a z3d_point). */
z3d_point_filter z3d_points_same_table;
/* Copies a text; the copy lives as long as the points. ERR_MEMORY. */
z3d_status z3d_points_keep(z3d_points *points, const char *text, const char **out);

/* Adds table 1, with numbers as the paper prints them (z3d_paper_printed). */
z3d_status z3d_paper_table1(z3d_points *out);
/* Adds table 2: by formula (row 1; the other rows are multiples of its printed numbers), and the
 * largest models that fit here. */
z3d_status z3d_paper_table2(const z3d_hardware *hardware, z3d_points *out);
/* *parameters: of the largest model of a row's shape that fits; of one layer if none does. */
z3d_status z3d_paper_largest(const z3d_paper_row *row, const z3d_hardware *hardware,
                             double *parameters);
double z3d_paper_printed(double gigabytes);

/* Adds the points of "table1" ... "fig8" of the ZeRO paper, or all ("zero"). Another name adds
 * nothing. */
bool z3d_paper_has(const char *what);
z3d_status z3d_paper_reproduce(const char *what, const z3d_hardware *hardware, z3d_points *out);

/* Appends the names of the papers in configs/published, with spaces between them. configs: the
 * folder with `hardware` and `published`. Errors: ERR_IO, ERR_CONFIG with file and line. */
z3d_status z3d_published_names(const char *configs, z3d_string *out);
/* Adds the points of the paper `what`, or of all papers ("papers", "all"). Errors: the same, and
 * those of z3d_case_create and z3d_estimate_make. */
z3d_status z3d_published_reproduce(const char *configs, const char *what, z3d_points *out);
z3d_status z3d_points_print(const z3d_points *points, z3d_string *out);
/* Appends tables for docs. */
z3d_status z3d_points_markdown(const z3d_points *points, z3d_string *out);
void z3d_points_json(const z3d_points *points, z3d_string *out);
/* Appends a self-contained HTML page with the figures redrawn. */
z3d_status z3d_points_page(const z3d_points *points, const z3d_hardware *hardware, z3d_string *out);

/* The number of fitted constants of paper-2019. */
int z3d_paper_constants(void);
/* Fits these constants, each within its bounds, on the points marked PAPER_FITTED. Begins with
 * `hardware`, and sets it to the best result. rounds: number of searches, each begins with the best
 * so far. before, after: the root of the mean squared log error, plus penalties. */
z3d_status z3d_paper_calibrate(z3d_hardware *hardware, int rounds, double *before, double *after);
/* Appends the calibration file: the constants with their meaning and bounds. */
void z3d_paper_write_calibration(const z3d_hardware *hardware, z3d_string *out);

#endif
