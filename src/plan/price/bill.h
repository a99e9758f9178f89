/* What a whole training takes: time, energy, money. */
#ifndef ZERO3D_PLAN_BILL_H
#define ZERO3D_PLAN_BILL_H

#include "src/device/sim/hardware.h"

typedef struct z3d_bill {
    double tokens, seconds, device_hours;
    double joules;        /* of all nodes at the most that they draw, by data sheets, */
    double device_joules; /* of their devices alone; -1: not known */
    double price;         /* of all device hours; -1: not known */
    int ranks, nodes;
} z3d_bill;

/* Of a training on `tokens` tokens, at so many a second. */
/* ERR_USAGE: a training of fewer tokens than a step has. */
z3d_status z3d_bill_check(double tokens, double of_a_step);
z3d_bill z3d_bill_make(const z3d_hardware *hardware, int ranks, double tokens,
                       double tokens_per_second);
/* A member of a JSON object after others; a value below 0 is not known: null. */
void z3d_known_json(z3d_string *out, const char *name, double value);
/* One or two lines; and JSON members, each after a comma. */
void z3d_bill_print(const z3d_hardware *hardware, const z3d_bill *bill, z3d_string *out);
void z3d_bill_json(const z3d_bill *bill, z3d_string *out);

#endif
