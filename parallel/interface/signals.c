/* Requests to stop a run: SIGUSR1 (which mpirun forwards), SIGTERM and SIGINT set a flag that the
 * trainer reads between steps; a second signal ends the process at once. A signal handler can use
 * static variables only: these two are the exception to the rule of no global state. */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "parallel/interface/internal.h"

/* When the first signal came, in milliseconds; 0: none came. */
static atomic_llong first_signal;
/* mpirun has announced that it will end its ranks. */
static atomic_bool announced;

static long long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000 + 1;
}

/* One Ctrl-C can arrive as a SIGINT from the terminal and one or two SIGTERM from mpirun: all
 * signals within half a second are one request. */
static void on_stop_signal(int number) {
    long long none = 0, now = milliseconds();
    if (atomic_compare_exchange_strong(&first_signal, &none, now)) return;
    if (now - none > 500 && !atomic_load(&announced)) _exit(128 + number);
}

/* mpirun (Open MPI 4.1) ends its ranks in three steps: a SIGCONT, a SIGTERM after half of the grace
 * time, a SIGKILL at its end. We stop at the SIGCONT, so we have the whole grace time; then the
 * SIGTERM is no second request, even if another signal came before it. */
static void on_continue(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    if (info->si_code == SI_USER && info->si_pid == getppid()) atomic_store(&announced, true);
}

/* Under mpirun only. If mpirun forwards job control, a SIGCONT is no announcement. */
static void catch_announcement(void) {
    struct sigaction action = {.sa_sigaction = on_continue,
                               .sa_flags = SA_RESTART | SA_ONSTACK | SA_SIGINFO};
    if (!getenv("OMPI_COMM_WORLD_RANK") || getenv("OMPI_MCA_orte_forward_job_control")) return;
    sigemptyset(&action.sa_mask);
    sigaction(SIGCONT, &action, NULL);
}

static const int requests[] = {SIGUSR1, SIGTERM, SIGINT};
enum { REQUESTS = sizeof requests / sizeof *requests };

static void set_mask(int how) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < REQUESTS; i++) sigaddset(&set, requests[i]);
    sigprocmask(how, &set, NULL);
}

void z3d_world_hold_signals(void) {
    set_mask(SIG_BLOCK);
}

void z3d_world_release_signals(void) {
    set_mask(SIG_UNBLOCK);
}

/* Handlers run on a stack of their own: oneDNN's compiled matrix products use the stack pointer as
 * one more register, so a handler on the normal stack would write into the heap. The main thread
 * calls this, and the kernel gives it the process's signals. */
void z3d_world_catch_signals(void) {
    static char stack[65536];
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    struct sigaction action = {.sa_handler = on_stop_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < REQUESTS; i++) sigaction(requests[i], &action, NULL);
    catch_announcement();
    set_mask(SIG_UNBLOCK);
}

bool z3d_world_stop_requested(const z3d_world *world) {
    (void)world;
    return atomic_load(&first_signal) != 0 || atomic_load(&announced);
}

z3d_status z3d_world_agree_stop(z3d_world *world, bool *stop) {
    return z3d_world_any(world, z3d_world_stop_requested(world), stop);
}
