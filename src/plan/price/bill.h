/* A whole training: its time, energy and price; on machines that fail, also how often they fail,
 * the cost of a failure, how often to save, and the share of time that trains. */
#ifndef ZERO3D_PLAN_BILL_H
#define ZERO3D_PLAN_BILL_H

#include "src/plan/price/estimate.h"

typedef struct z3d_bill {
    double tokens, seconds, device_hours;
    double joules;        /* of all nodes, at the highest power in data sheets; -1: not known */
    double device_joules; /* of their devices alone */
    double price;         /* of all device hours */
    int ranks, nodes;
} z3d_bill;

/* ERR_USAGE: `tokens` are fewer than a step has. */
z3d_status z3d_bill_check(double tokens, double of_a_step);
/* The bill of a training on `tokens` tokens. */
z3d_bill z3d_bill_make(const z3d_hardware *hardware, int ranks, double tokens,
                       double tokens_per_second);
/* z3d_string_append_member; a value below 0 (not known) is null. */
void z3d_known_json(z3d_string *out, const char *name, double value);
/* Append one or two lines; JSON members, each after a comma. */
void z3d_bill_print(const z3d_hardware *hardware, const z3d_bill *bill, z3d_string *out);
void z3d_bill_json(const z3d_bill *bill, z3d_string *out);

/* In seconds; below 0: the machine's description does not say. */
typedef struct z3d_goodput {
    double mtbf;         /* of the run: a node's / number of nodes */
    double start, load;  /* launching all ranks; loading a checkpoint */
    double stall, write; /* of a checkpoint: training stands still; it is being written */
    double young, daly;  /* best interval between two checkpoints, by either formula */
    double interval;     /* the interval in use: daly in whole steps; at least the write of
                            checkpoint.async */
    double steps;        /* of the interval */
    double failures;     /* expected in the run; without an interval: in bill->seconds */
    double share;        /* goodput: the share of all time that trains and is not lost */
    double seconds;      /* of the run, with all losses */
} z3d_goodput;

/* Young's interval (A first order approximation to the optimum checkpoint interval, CACM 17(9),
 * 1974), Daly's (A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS
 * 22, 2006, equation 37), and the share of time that trains by Daly's model (equation 20): failures
 * come at random at a constant rate, also during checkpoints and restarts. All in seconds. stall: a
 * checkpoint; restart: a failure, without the lost training. */
double z3d_young_interval(double mtbf, double stall);
double z3d_daly_interval(double mtbf, double stall);
double z3d_goodput_share(double mtbf, double stall, double restart, double interval);

/* For a training that takes bill->seconds without failures, in steps of step_seconds. ERR_CONFIG:
 * failures are too frequent for a checkpoint or a restart. */
z3d_status z3d_goodput_find(const z3d_hardware *hardware, const z3d_saving *saving,
                            const z3d_bill *bill, double step_seconds, z3d_goodput *out);
/* Append lines, with the bill of the run with failures; a JSON member, after a comma. */
void z3d_goodput_print(const z3d_hardware *hardware, const z3d_goodput *goodput,
                       const z3d_bill *bill, z3d_string *out);
void z3d_goodput_json(const z3d_goodput *goodput, z3d_string *out);

#endif
