/* The request of zero3d plan. Private to its files. */
#ifndef ZERO3D_CLI_PLAN_H
#define ZERO3D_CLI_PLAN_H

#include "src/cli/cli.h"
#include "src/plan/choose/choose.h"

typedef struct cli_plan_asked {
    const char *hardware, *software, *tokens, *days_text, *price_text, *trace, *schedule, *fit,
        *write, *picture;
    double train_tokens, days, price; /* 0: not given */
    int64_t ranks, rank;              /* 0, -1: not given */
    cli_values steps;                 /* of --calibrate: CSV files, and folders of runs */
    bool json, print_program, memory, recommend, verbose, force;
} cli_plan_asked;

/* *out: the machine of --hardware, or the one that the configuration names; *known: there is one.
 */
z3d_status cli_plan_hardware(z3d_config *config, const cli_plan_asked *asked, bool *known,
                             z3d_hardware *out);
/* --fit and --recommend. *config becomes that of the best candidate. */
z3d_status cli_plan_best(z3d_config **config, const cli_plan_asked *asked, z3d_string *text);
/* --calibrate; software NULL: starts with the nearest one. */
z3d_status cli_plan_calibrate(const z3d_config *config, const cli_plan_asked *asked,
                              z3d_string *text);

#endif
