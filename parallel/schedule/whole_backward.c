/* Schedules whose backward is in one piece: gpipe, 1f1b, interleaved. */
#include "parallel/schedule/internal.h"

void z3d_schedule_gpipe(z3d_task_list *list, int stage) {
    for (int i = 0; i < list->schedule->micros; i++)
        z3d_task_list_add(list, Z3D_PASS_FORWARD, stage);
    for (int i = 0; i < list->schedule->micros; i++)
        z3d_task_list_add(list, Z3D_PASS_BACKWARD, stage);
}

/* Forwards until the last stage has its first micro-batch; then one forward, one backward in turn.
 */
void z3d_schedule_1f1b(z3d_task_list *list, int stage) {
    for (int i = stage + 1; i < list->schedule->stages; i++)
        z3d_task_list_add(list, Z3D_PASS_FORWARD, stage);
    for (int i = 0; i < list->schedule->micros; i++) {
        z3d_task_list_add(list, Z3D_PASS_FORWARD, stage);
        z3d_task_list_add(list, Z3D_PASS_BACKWARD, stage);
    }
}

/* Megatron-LM's schedule (Narayanan et al., arXiv 2104.04473). A stage runs as many micro-batches
 * as there are stages through its first chunk, then the same micro-batches through its second
 * chunk, and so on; backward takes the chunks in reverse order. */
void z3d_schedule_interleaved(z3d_task_list *list, int stage) {
    int stages = list->schedule->stages, each = list->schedule->chunks / stages;
    int total = list->schedule->micros * each;
    int warmup = 2 * (stages - 1 - stage) + (each - 1) * stages; /* forwards before a backward */
    for (int i = 0; i < total + warmup; i++) {
        int forward = i / stages % each, backward = each - 1 - (i - warmup) / stages % each;
        if (i < total) z3d_task_list_add(list, Z3D_PASS_FORWARD, forward * stages + stage);
        if (i >= warmup) z3d_task_list_add(list, Z3D_PASS_BACKWARD, backward * stages + stage);
    }
}
