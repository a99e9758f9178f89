/* The builder's decisions, numbered by number_decisions.py: one at a time is made the other way. */
#ifndef ZERO3D_TESTS_ZERO_DECISIONS_H
#define ZERO3D_TESTS_ZERO_DECISIONS_H

#include <stdbool.h>

/* By number: "builder.c:23: inverted: accumulation == 1". */
extern const char *const z3d_decision_names[];
extern const int z3d_decision_count;

/* value, or, of the decision that the test has chosen, its opposite. */
bool z3d_decide(int number, bool value);
/* Whether the decision is the chosen one: then its comparison includes its bound, or no longer. */
bool z3d_decide_bound(int number);

#endif
