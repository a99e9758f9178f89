/* The clock. */
#include <time.h>

#include "src/base/strings.h"

double z3d_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
