/* The present place of a run, for the watchdog, and agreements of its ranks. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/train/trainer.h"

void z3d_trainer_place(z3d_trainer *trainer, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(trainer->place, sizeof trainer->place, format, arguments);
    va_end(arguments);
    z3d_watchdog_position(trainer->world, false, trainer->place);
}

void z3d_trainer_wait_place(z3d_trainer *trainer) {
    char text[sizeof trainer->place + 32];
    snprintf(text, sizeof text, "%s (waiting for all ranks)", trainer->place);
    z3d_watchdog_position(trainer->world, true, text);
}

z3d_status z3d_trainer_agree(z3d_trainer *trainer, z3d_status mine) {
    const z3d_kept_error own = z3d_error_keep(mine);
    z3d_trainer_wait_place(trainer);
    z3d_status status = z3d_world_agree(trainer->world, mine);
    z3d_watchdog_position(trainer->world, false, trainer->place);
    /* Rank 0's own error gets no "rank 0:": usually all ranks have the same error. */
    return mine != Z3D_OK && trainer->rank == 0 ? z3d_error_restore(&own) : status;
}

z3d_status z3d_trainer_take_from_root(z3d_trainer *trainer, z3d_status mine, void *data,
                                      int64_t bytes) {
    Z3D_TRY(z3d_trainer_agree(trainer, mine));
    z3d_trainer_wait_place(trainer);
    return z3d_world_broadcast(trainer->world, data, bytes, 0);
}

z3d_status z3d_trainer_share(z3d_trainer *trainer, int rank, z3d_string *text) {
    int64_t length = (int64_t)text->length;
    char *all = NULL;
    z3d_trainer_wait_place(trainer);
    Z3D_TRY(z3d_world_broadcast(trainer->world, &length, sizeof length, rank));
    z3d_status status = z3d_new((size_t)length + 1, 1, "a rank's text", &all);
    status = z3d_trainer_agree(trainer, status);
    if (status == Z3D_OK && trainer->rank == rank && length > 0)
        memcpy(all, text->text, text->length);
    z3d_trainer_wait_place(trainer);
    if (status == Z3D_OK) status = z3d_world_broadcast(trainer->world, all, length, rank);
    if (status == Z3D_OK) {
        z3d_string_free(text);
        *text = (z3d_string){.text = all, .length = (size_t)length, .capacity = (size_t)length + 1};
        all = NULL;
    }
    free(all);
    return status;
}

z3d_status z3d_trainer_stop_all(z3d_trainer *trainer, z3d_status status) {
    if (z3d_world_size(trainer->world) == 1) return status;
    z3d_world_abort(trainer->world, status, z3d_error_message());
}
