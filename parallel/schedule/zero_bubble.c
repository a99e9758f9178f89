/* Schedules whose backward is in two halves (Qi et al., arXiv 2401.10241). Other stages wait only
 * for the input half; the weight half fills time in which the stage would be idle. */
#include "parallel/schedule/internal.h"

static void both_halves(z3d_task_list *list, int chunk) {
    z3d_task_list_add(list, Z3D_PASS_BACKWARD_INPUT, chunk);
    z3d_task_list_add(list, Z3D_PASS_BACKWARD_WEIGHT, chunk);
}

/* 1f1b with the weight halves of stage s of p delayed by s micro-batches. At most p - s
 * micro-batches wait for their input half and s for their weight half, so every stage holds p
 * micro-batches. */
void z3d_schedule_zb_h1(z3d_task_list *list, int stage) {
    for (int i = stage + 1; i < list->schedule->stages; i++)
        z3d_task_list_add(list, Z3D_PASS_FORWARD, stage);
    for (int i = 0; i < list->schedule->micros; i++) {
        z3d_task_list_add(list, Z3D_PASS_FORWARD, stage);
        z3d_task_list_add(list, Z3D_PASS_BACKWARD_INPUT, stage);
        if (i >= stage) z3d_task_list_add(list, Z3D_PASS_BACKWARD_WEIGHT, stage);
    }
    for (int i = 0; i < stage; i++) z3d_task_list_add(list, Z3D_PASS_BACKWARD_WEIGHT, stage);
}

/* Stage s of p has chunk s (down the stages) and chunk 2p - 1 - s (up again); stage 0 has the first
 * and the last chunk. With 2p - 1 micro-batches or more, and a forward as long as each half, a
 * stage never waits once it has begun. With fewer micro-batches the list is the one of 2p - 1,
 * without the passes of micro-batches that do not exist. */
void z3d_schedule_zb_v(z3d_task_list *list, int stage) {
    int stages = list->schedule->stages, micros = list->schedule->micros;
    int down = stage, up = 2 * stages - 1 - stage, left = stages - stage;
    for (int i = 0; i < 2 * left - 1; i++) z3d_task_list_add(list, Z3D_PASS_FORWARD, down);
    for (int i = 0; i < stage; i++) {
        z3d_task_list_add(list, Z3D_PASS_FORWARD, up);
        z3d_task_list_add(list, Z3D_PASS_FORWARD, down);
    }
    for (int i = 0; i < left; i++) {
        z3d_task_list_add(list, Z3D_PASS_FORWARD, up);
        both_halves(list, up);
    }
    for (int i = stages; i < micros || i < 2 * stages - 1; i++) {
        z3d_task_list_add(list, Z3D_PASS_FORWARD, down);
        both_halves(list, down);
        z3d_task_list_add(list, Z3D_PASS_FORWARD, up);
        both_halves(list, up);
    }
    for (int i = 0; i < stage; i++) { /* no forwards are left; weight halves come last */
        z3d_task_list_add(list, Z3D_PASS_BACKWARD_INPUT, down);
        z3d_task_list_add(list, Z3D_PASS_BACKWARD_INPUT, up);
    }
    for (int i = 0; i < left; i++) both_halves(list, down);
    for (int i = 0; i < stage; i++) z3d_task_list_add(list, Z3D_PASS_BACKWARD_WEIGHT, up);
    for (int i = 0; i < stage; i++) z3d_task_list_add(list, Z3D_PASS_BACKWARD_WEIGHT, down);
}
