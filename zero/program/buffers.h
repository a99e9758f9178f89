/* The memory of a step program: its buffers, and the ones that all programs of a configuration
 * have. */
#ifndef ZERO3D_ZERO_BUFFERS_H
#define ZERO3D_ZERO_BUFFERS_H

#include "zero/program/states.h"

typedef struct z3d_layout z3d_layout;
typedef struct z3d_program z3d_program;

/* A run of bytes with one lifetime. */
typedef struct z3d_buffer {
    const char *what, *owner; /* its name: literals, or names of the model */
    int64_t bytes, offset;    /* offset: in the arena of its space, set by the planner */
    int64_t first_column;     /* of a matrix's own row: the first column in it */
    int first, last; /* the first and last instruction that use it; persistent: 0 and INT_MAX */
    int micro;       /* its micro-batch, -1: none */
    int group;       /* of a state: its group, else -1 */
    z3d_category category;
    z3d_space space;
    z3d_rows rows; /* of a matrix: the rows in it, OWN, BLOCK or ALL; else ALL */
    bool persistent;
} z3d_buffer;

/* "saved block.3 m0", in z3d_buffer_name(buffer).text. */
typedef struct z3d_buffer_text {
    char text[2 * Z3D_NAME];
} z3d_buffer_text;
z3d_buffer_text z3d_buffer_name(const z3d_buffer *buffer);

/* Every program of a configuration begins with the same persistent buffers: step state, control
 * vector, kernel scratch, the batch's fields, then each state of each parameter group. */
enum { Z3D_BUFFER_STATE, Z3D_BUFFER_CONTROL, Z3D_BUFFER_SCRATCH, Z3D_BUFFER_BATCH };
int z3d_program_batch_buffer(const z3d_program *program, int micro, int field);
int z3d_program_group_buffer(const z3d_program *program, int group, z3d_state_role role);
/* In generation's programs each unit's cache follows. */
int z3d_program_cache_buffer(const z3d_program *program, int unit);
/* Bytes of these buffers; bytes of a field's data in this mode. */
int64_t z3d_program_batch_bytes(const z3d_program *program, int micro, int field);
int64_t z3d_program_cache_bytes(const z3d_program *program, int unit);
int64_t z3d_program_field_bytes(const z3d_program *program, int field);

/* A unit's output for one micro-batch of this program. */
int64_t z3d_program_output_elements(const z3d_program *program, int unit);
int64_t z3d_program_output_bytes(const z3d_program *program, int unit);

/* The control vector, float64: loss, targets, stop requests, the skip flag (set after the sum); in
 * training then the squared gradients by group. */
enum {
    Z3D_CONTROL_LOSS,
    Z3D_CONTROL_TARGETS,
    Z3D_CONTROL_STOP,
    Z3D_CONTROL_SKIP,
    Z3D_CONTROL_FIXED,
    Z3D_CONTROL_SQUARES = Z3D_CONTROL_FIXED
};
/* Numbers in it; numbers that this program uses, 0: none. */
int z3d_control_capacity(const z3d_layout *layout);
int z3d_control_count(const z3d_program *program);

#endif
