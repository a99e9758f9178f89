/* Schedules whose backward is in one piece: gpipe, 1f1b, interleaved. */
#include "parallel/schedule/internal.h"

void z3d_schedule_gpipe(z3d_task_list *list, int stage) {
    for (int i = 0; i < list->schedule->micros; i++)
        z3d_task_list_add(list, Z3D_PASS_FORWARD, stage);
    for (int i = 0; i < list->schedule->micros; i++)
        z3d_task_list_add(list, Z3D_PASS_BACKWARD, stage);
}

/* Forwards until the last stage has its first micro-batch; then one forward, one backward. */
void z3d_schedule_1f1b(z3d_task_list *list, int stage) {
    for (int i = stage + 1; i < list->schedule->stages; i++)
        z3d_task_list_add(list, Z3D_PASS_FORWARD, stage);
    for (int i = 0; i < list->schedule->micros; i++) {
        z3d_task_list_add(list, Z3D_PASS_FORWARD, stage);
        z3d_task_list_add(list, Z3D_PASS_BACKWARD, stage);
    }
}

/* Megatron-LM's. A stage takes as many micro-batches as there are stages through its first chunk,
 * then through its second, and so on; backward goes through the chunks the other way. */
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
