/* Routes: copies and gathers beside compute, from buffer to buffer. */
#include "zero/build/builder.h"

struct route z3d_builder_route(struct subject subject, int from) {
    return (struct route){.subject = subject, .stop = {from}, .ticket = -1};
}

void z3d_builder_extend(struct route *route, z3d_opcode opcode, int to) {
    const bool copies = z3d_opcode_info_of(opcode)->rules == Z3D_CLASS_COPY;
    if (copies && to == z3d_builder_end(route)) return;
    route->opcode[route->legs++] = opcode;
    route->stop[route->legs] = to;
    route->left += 2;
}

int z3d_builder_end(const struct route *route) {
    return route->stop[route->legs];
}

void z3d_builder_move(struct builder *b, z3d_opcode opcode, z3d_phase phase, int *ticket,
                      struct subject subject, int from, int to) {
    const z3d_opcode_info *info = z3d_opcode_info_of(opcode);
    z3d_instruction *i = z3d_builder_emit_subject(b, opcode, phase, ticket, &subject);
    i->buffer[info->from] = from;
    i->buffer[info->to] = to;
}

void z3d_builder_advance(struct builder *b, struct route *route, int left) {
    for (; route->left > left; route->left--) {
        const int leg = route->legs - (route->left + 1) / 2;
        z3d_builder_move(b, route->opcode[leg], route->left % 2 ? Z3D_PHASE_WAIT : Z3D_PHASE_START,
                         &route->ticket, route->subject, route->stop[leg], route->stop[leg + 1]);
    }
}
