/* The price of a whole training: time, energy, money. */
#ifndef ZERO3D_PLAN_BILL_H
#define ZERO3D_PLAN_BILL_H

#include "src/device/sim/hardware.h"

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

#endif
