/* A whole training on machines that fail: how often, what a failure costs, how often to save, and
 * what share of the time trains. */
#ifndef ZERO3D_PLAN_GOODPUT_H
#define ZERO3D_PLAN_GOODPUT_H

#include "src/plan/price/bill.h"
#include "src/plan/price/estimate.h"

/* Seconds; below 0: not known, because the machine's description does not say. */
typedef struct z3d_goodput {
    double mtbf;         /* of the run: that of a node over the nodes */
    double start, load;  /* launch of all ranks, before they load; loading a checkpoint */
    double stall, write; /* of a checkpoint: training stands still; until it can be loaded */
    double young, daly;  /* training between two checkpoints, by either formula */
    double interval;     /* what is used: daly, in whole steps, and not less than a write beside
                            training takes */
    double steps;        /* of it */
    double failures; /* expected in the run; without an interval: in its time without failures */
    double share;    /* goodput: of all time, what trains and is not lost */
    double seconds;  /* of the run, with all that is lost */
} z3d_goodput;

/* Young's interval (A first order approximation to the optimum checkpoint interval, CACM 17(9),
 * 1974), Daly's (A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS
 * 22, 2006, equation 37), and the share of time that trains by Daly's model (equation 20): failures
 * come at random at a constant rate, also during checkpoints and restarts. stall: seconds of a
 * checkpoint; restart: of a failure, beside the training that is lost. */
double z3d_young_interval(double mtbf, double stall);
double z3d_daly_interval(double mtbf, double stall);
double z3d_goodput_share(double mtbf, double stall, double restart, double interval);

/* Of a training that takes bill->seconds without failures, in steps of step_seconds. ERR_CONFIG: a
 * checkpoint takes so long that the best interval is shorter. */
z3d_status z3d_goodput_find(const z3d_hardware *hardware, const z3d_saving *saving,
                            const z3d_bill *bill, double step_seconds, z3d_goodput *out);
/* Lines, with the bill of a run that fails; and a JSON member, after a comma. */
void z3d_goodput_print(const z3d_hardware *hardware, const z3d_goodput *goodput,
                       const z3d_bill *bill, z3d_string *out);
void z3d_goodput_json(const z3d_goodput *goodput, z3d_string *out);

#endif
