#include "src/base/problems.h"

enum { MOST = 20 };

void z3d_problems_add(z3d_problems *p, z3d_status status) {
    if (status == Z3D_OK) return;
    if (p->count++ == 0) p->status = status;
    if (p->count > MOST) return;
    if (p->count > 1) z3d_string_append(&p->text, "\n");
    if (p->where) z3d_string_append(&p->text, "%s: ", p->where);
    z3d_string_append(&p->text, "%s", z3d_error_message());
}

z3d_status z3d_problems_end(z3d_problems *p) {
    z3d_status status = p->status;
    if (p->count > MOST)
        z3d_string_append(&p->text, "\nand %d errors more of this kind", p->count - MOST);
    if (status != Z3D_OK && !p->text.failed)
        (void)z3d_error_set_lines(status, __FILE__, __LINE__, p->text.text);
    z3d_string_free(&p->text);
    *p = (z3d_problems){.where = p->where};
    return status;
}
