/* Private to the printing of plan --fit and --recommend: the words of a row. */
#ifndef ZERO3D_PLAN_RECOMMEND_TEXT_H
#define ZERO3D_PLAN_RECOMMEND_TEXT_H

#include "src/plan/choose/ways.h"

extern const char *const z3d_offload_names[]; /* by z3d_offload_device */
extern const char *const z3d_gather_names[];  /* by z3d_pipeline_gather */
extern const char *const z3d_cut_names[];     /* by z3d_data_cut, short */

/* "-" with one pipeline stage. */
const char *z3d_row_schedule(const z3d_fit_layout *layout);
/* "-", "cpu", "nvme, cpu": optimizer states, and parameters. */
typedef struct z3d_row_text {
    char text[32];
} z3d_row_text;
z3d_row_text z3d_row_tiers(const z3d_fit_row *row);
double z3d_row_mfu(const z3d_recommendation *r, const z3d_fit_row *row);
/* Bytes of device memory that the row uses. */
double z3d_row_used(const z3d_fit_row *row);
/* Bytes that a rank sends in a step, of the row that sends least. */
double z3d_least_sent(const z3d_recommendation *r);
z3d_bill z3d_row_bill(const z3d_recommendation *r, const z3d_fit_row *row);

/* recommend_details.c: the tables of --verbose. */
void z3d_recommend_details(const z3d_recommendation *r, z3d_string *out);

#endif
