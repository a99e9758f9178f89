/* Asking a run to stop: SIGUSR1 (which mpirun forwards), SIGTERM and SIGINT set a flag that the
 * trainer reads between steps; a second one ends the process at once. A signal handler can reach
 * nothing but a static variable: these two are the exception to having no global state. */
#include <signal.h>
#include <unistd.h>

#include "parallel/interface/internal.h"

static volatile sig_atomic_t stop_signals;

static void on_stop_signal(int number) {
    if (stop_signals) _exit(128 + number);
    stop_signals = 1;
}

void z3d_world_catch_signals(z3d_world *world) {
    (void)world;
    struct sigaction action = {.sa_handler = on_stop_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}

bool z3d_world_stop_requested(const z3d_world *world) {
    (void)world;
    return stop_signals != 0;
}
