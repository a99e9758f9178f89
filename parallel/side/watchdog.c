/* The side channel's interface: opening it, the watchdog's timeout, this rank's position, goodbye,
 * and the line that ends a run. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "parallel/side/side.h"

enum { CONNECT_SECONDS = 60 };

/* ---- opening ---- */

static z3d_status open_places(z3d_world *world, struct z3d_side *side) {
    void *at = NULL;
    side->slots_bytes = (size_t)world->local_size * sizeof(z3d_position_slot);
    if (world->size > 1 && world->local_rank == 0) z3d_shared_remove_dead();
    if (world->size > 1) Z3D_TRY(z3d_shared_create(world->local, side->slots_bytes, &at));
    side->slots_shared = at != NULL;
    /* Without shared memory only this rank's position is here; the others come as messages. */
    if (!at) Z3D_TRY(z3d_new(1, sizeof(z3d_position_slot), "this rank's place", &at));
    side->slots = at;
    int local = 0;
    for (int rank = 0; rank < world->size; rank++) {
        bool here = world->node[rank] == world->node[world->rank];
        side->slot_of[rank] = here && side->slots_shared ? local++ : -1;
    }
    if (!side->slots_shared) side->slot_of[world->rank] = 0;
    return Z3D_OK;
}

static z3d_status allocate(const z3d_world *world, struct z3d_side *side) {
    size_t size = (size_t)world->size;
    side->max_connections = world->size + Z3D_STRANGERS;
    size_t connections = (size_t)side->max_connections;
    Z3D_TRY(z3d_new(size, sizeof *side->peer, "the side channel", &side->peer));
    Z3D_TRY(z3d_new(size, sizeof *side->seen, "the side channel", &side->seen));
    Z3D_TRY(z3d_new(size, sizeof *side->slot_of, "the side channel", &side->slot_of));
    Z3D_TRY(
        z3d_new(connections, sizeof *side->connections, "the side channel", &side->connections));
    return z3d_new(connections + 2, sizeof *side->polls, "the side channel", &side->polls);
}

static z3d_status listen_here(const z3d_world *world, struct z3d_side *side) {
    z3d_peer *self = &side->peer[world->rank];
    memcpy(self->host, world->hostname, sizeof self->host);
    self->pid = (int32_t)getpid();
    side->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (side->wake < 0)
        return Z3D_ERROR(Z3D_ERR_COMM, "cannot open the side channel: %s", strerror(errno));
    if (getrandom(&side->token, sizeof side->token, 0) != sizeof side->token)
        return Z3D_ERROR(Z3D_ERR_COMM, "cannot get random numbers for the side channel's token");
    if (world->size == 1) return Z3D_OK; /* no rank connects */
    return z3d_wire_listen(world->nodes == 1, self, &side->listener);
}

/* Connects the ranks. The thread does not exist yet: the main thread of the coordinator runs the
 * loop until all ranks have connected. */
static z3d_status meet(const z3d_world *world, struct z3d_side *side) {
    double until = z3d_now() + CONNECT_SECONDS;
    if (world->rank != 0) {
        Z3D_TRY(z3d_wire_connect(side, 0, CONNECT_SECONDS, &side->connections[0].fd));
        side->num_connections = 1;
        return Z3D_OK;
    }
    while (z3d_coordinator_connected(side) < world->size - 1) {
        if (side->no_files)
            return Z3D_ERROR(Z3D_ERR_COMM,
                             "rank 0 cannot accept the connections of %d ranks: %s (limit %lld); "
                             "raise ulimit -n",
                             world->size - 1, strerror(side->no_files), z3d_socket_file_limit());
        if (z3d_now() > until)
            return Z3D_ERROR(
                Z3D_ERR_COMM,
                "only %d of %d ranks connected to the side channel of rank 0 within %d s",
                z3d_coordinator_connected(side), world->size - 1, CONNECT_SECONDS);
        z3d_coordinator_turn(side, 50);
    }
    return Z3D_OK;
}

/* Starts the thread with all signals blocked: the main thread handles them. */
static z3d_status start_thread(struct z3d_side *side) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&side->thread, NULL, z3d_coordinator_thread, side);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return Z3D_ERROR(Z3D_ERR_COMM, "cannot start the side channel's thread: %s",
                         strerror(error));
    return Z3D_OK;
}

/* Closes all connections and the port, so that a rank that waits for this one notices. */
static void hang_up(struct z3d_side *side) {
    for (int i = 0; i < side->num_connections; i++) close(side->connections[i].fd);
    side->num_connections = 0;
    if (side->listener >= 0) close(side->listener);
    side->listener = -1;
}

static void free_side(struct z3d_side *side) {
    if (!side) return;
    hang_up(side);
    if (side->wake >= 0) close(side->wake);
    if (side->slots_shared)
        z3d_shared_destroy(side->slots, side->slots_bytes);
    else
        free(side->slots);
    pthread_mutex_destroy(&side->lock);
    free(side->polls);
    free(side->connections);
    free(side->slot_of);
    free(side->seen);
    free(side->peer);
    free(side);
}

z3d_status z3d_side_open(z3d_world *world) {
    struct z3d_side *side = NULL;
    z3d_status status = z3d_new(1, sizeof *side, "the side channel", &side);
    if (status == Z3D_OK) {
        pthread_mutex_init(&side->lock, NULL);
        side->rank = world->rank;
        side->size = world->size;
        side->listener = side->wake = -1;
        status = allocate(world, side);
    }
    /* Each step needs all ranks: if one has failed, none goes on. */
    Z3D_TRY_GOTO(status, z3d_world_agree(world, status), failed);
    status = open_places(world, side);
    if (status == Z3D_OK) status = listen_here(world, side);
    Z3D_TRY_GOTO(status, z3d_world_agree(world, status), failed);
    const z3d_peer self = side->peer[world->rank];
    Z3D_TRY_GOTO(status, z3d_world_gather_all(world, &self, side->peer, sizeof self), failed);
    Z3D_TRY_GOTO(status, z3d_world_broadcast(world, &side->token, sizeof side->token, 0), failed);
    status = meet(world, side);
    if (status != Z3D_OK) hang_up(side);
    Z3D_TRY_GOTO(status, z3d_world_agree(world, status), failed);
    status = start_thread(side);
    if (status == Z3D_OK) world->side = side;
    status = z3d_world_agree(world, status);
    if (status == Z3D_OK) return Z3D_OK;
    if (world->side) z3d_side_close(world);
    return status;
failed:
    free_side(side);
    return status;
}

/* ---- requests to the thread ---- */

static void wake_thread(struct z3d_side *side) {
    uint64_t one = 1;
    ssize_t ignored = write(side->wake, &one, sizeof one);
    (void)ignored;
}

void z3d_side_close(z3d_world *world) {
    struct z3d_side *side = world->side;
    if (!side) return;
    pthread_mutex_lock(&side->lock);
    side->want_stop = true;
    pthread_mutex_unlock(&side->lock);
    wake_thread(side);
    pthread_join(side->thread, NULL);
    world->side = NULL;
    free_side(side);
}

void z3d_side_abort(z3d_world *world, const char *line) {
    struct z3d_side *side = world->side;
    pthread_mutex_lock(&side->lock);
    snprintf(side->abort_line, sizeof side->abort_line, "%s", line);
    side->want_abort = true;
    pthread_mutex_unlock(&side->lock);
    wake_thread(side);
    /* The thread ends this process after the coordinator has printed the line. */
    for (int i = 0; i < 50; i++) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

int z3d_side_port(const z3d_world *world, int rank) {
    return world->side ? (int)world->side->peer[rank].port : 0;
}

/* ---- the watchdog ---- */

z3d_status z3d_watchdog_start(z3d_world *world, double timeout) {
    if (!(timeout >= 0))
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "invalid watchdog timeout of %g s: expected 0 (off) or more", timeout);
    if (world->size == 1 && timeout == 0) return Z3D_OK;
    if (!world->side) Z3D_TRY(z3d_side_open(world));
    atomic_store(&world->side->timeout, timeout);
    wake_thread(world->side);
    return Z3D_OK;
}

void z3d_watchdog_position(z3d_world *world, bool waiting, const char *text) {
    struct z3d_side *side = world->side;
    if (!side) return;
    z3d_position place = {.waiting = waiting, .since = z3d_now()};
    size_t length = strnlen(text, sizeof place.text);
    memcpy(place.text, text, length);
    if (length == sizeof place.text) { /* too long: cut between two words */
        length -= sizeof " ...";
        while (length > 0 && place.text[length] != ' ') length--;
        memcpy(place.text + length, " ...", sizeof " ...");
    }
    z3d_position_write(&side->slots[side->slot_of[side->rank]], &place);
}
