/* parallel: who sits where (the mesh), process groups, and collectives on device buffers, behind
 * one table per backend (messages, self, nccl, record, sim; within a node the messages backend
 * moves data through shared memory); what carries the messages, behind another (mpi, tcp); the side
 * channel over which ranks tell each other what they are doing when messages are blocked. It may
 * call src/base and src/device. Start reading at the mesh, then z3d_collective_start; inside:
 * interface/group.c, interface/progress.c, then messages/messages.c, interface/transport.h,
 * side/side.h. */
#ifndef ZERO3D_PARALLEL_PARALLEL_H
#define ZERO3D_PARALLEL_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/base.h"
#include "src/device/collectives.h"
#include "src/device/device.h"

/* ---- the mesh: ranks along named axes; pure arithmetic, no communication ---- */

/* The axes, fastest first: rank = tensor + T * (data + D * pipeline). Tensor ranks are adjacent
 * (inside a node), pipeline is outermost, as in Megatron-LM and DeepSpeed. Another axis is a row
 * here, and its size where configurations become meshes (z3d_plan_mesh). */
#define Z3D_AXIS_MAP(X) X(TENSOR, tensor) X(DATA, data) X(PIPELINE, pipeline)

typedef enum z3d_axis {
#define X(NAME, name) Z3D_AXIS_##NAME,
    Z3D_AXIS_MAP(X)
#undef X
        Z3D_AXIS_COUNT
} z3d_axis;

/* A set of axes, a bit for each. A process group is such a set: its members differ along these axes
 * only. Arrays of groups, and of what is counted by group, have Z3D_AXES_COUNT elements and are
 * indexed by the set. */
typedef uint8_t z3d_axes;
enum {
#define X(NAME, name) Z3D_AXES_##NAME = 1 << Z3D_AXIS_##NAME,
    Z3D_AXIS_MAP(X)
#undef X
        Z3D_AXES_COUNT = 1 << Z3D_AXIS_COUNT,
    Z3D_AXES_NONE = 0,
    Z3D_AXES_WORLD = Z3D_AXES_COUNT - 1
};

/* "tensor", "tensor+data", "none"; all axes: "world". In z3d_axes_name(axes).text. */
typedef struct z3d_axes_text {
#define X(NAME, name) "+" #name
    char text[sizeof(Z3D_AXIS_MAP(X))];
#undef X
} z3d_axes_text;
z3d_axes_text z3d_axes_name(z3d_axes axes);
/* Whether this set has a process group: each axis alone does, and the world. */
bool z3d_axes_have_group(z3d_axes axes);

typedef struct z3d_mesh {
    int size[Z3D_AXIS_COUNT]; /* ranks along each axis, 1 or more */
    int rank;                 /* whose view this is */
} z3d_mesh;

/* tensor x data x pipeline ranks, other axes of size 1. Errors: z3d_mesh_check's. */
z3d_status z3d_mesh_make(int tensor, int data, int pipeline, int rank, z3d_mesh *out);
/* ERR_TOPOLOGY unless sizes are positive, their product fits an int and holds the rank. */
z3d_status z3d_mesh_check(const z3d_mesh *mesh);

/* The groups of a set of axes. Members of each are in ascending order of rank. size: of every one
 * of them; of the world: all ranks. index: the position of `rank` in its group. member: the world
 * rank of the index-th member of the group that `rank` is in. */
int z3d_mesh_size(const z3d_mesh *mesh, z3d_axes axes);
int z3d_mesh_index(const z3d_mesh *mesh, z3d_axes axes, int rank);
int z3d_mesh_member(const z3d_mesh *mesh, z3d_axes axes, int rank, int index);

/* ---- the world: this process among all, and the nodes they run on ---- */

typedef struct z3d_world z3d_world;

/* How this process was started says who the others are: by an MPI launcher, they meet over MPI
 * (MPI_THREAD_FUNNELED); by srun alone, or with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in
 * their environments, over TCP; by none, it is a world of size 1. Finds nodes and opens the side
 * channel. Collective over all processes. argc, argv may be NULL. Errors: ERR_START, which this
 * rank alone can tell, where an environment contradicts itself or another rank's, where ranks do
 * not come in time or are lost, and for one process that srun did not start in a Slurm job of
 * several tasks; ERR_PEER where rank 0 has told this one such a thing; ERR_COMM. */
z3d_status z3d_world_create(int *argc, char ***argv, z3d_world **out);
/* The same, but one process alone may be in a Slurm job for several, as where one does what many
 * do. Whether it should have been one of them, z3d_world_check_alone says later: ERR_START. */
z3d_status z3d_world_create_or_alone(int *argc, char ***argv, z3d_world **out);
z3d_status z3d_world_check_alone(const z3d_world *world);
/* Collective: after success on all ranks only. Ends MPI, where it was started. */
void z3d_world_destroy(z3d_world *world);
/* One rank's failure stops all ranks: prints "zero3d: rank R: message" (once per run, the first
 * failure on top), tells the others over the side channel and ends the run with a non-zero exit on
 * every rank. Does not return. Not collective. */
void z3d_world_abort(z3d_world *world, z3d_status status, const char *message)
    __attribute__((noreturn));

/* ERR_TOPOLOGY, naming the ranks and nodes, when a tensor group would straddle nodes (the paper's
 * < 5 % case), or the mesh is of another world size. Not collective: same answer everywhere. */
z3d_status z3d_mesh_check_nodes(const z3d_world *world, const z3d_mesh *mesh);

/* The rank that the environment gives this process, 0 if none: before there is a world. */
int z3d_launched_rank(void);
/* The MPI library that this build has: "Open MPI v4.1.4", or that there is none. */
void z3d_mpi_version(char *text, size_t size);

int z3d_world_rank(const z3d_world *world);
int z3d_world_size(const z3d_world *world);
int z3d_world_node(const z3d_world *world, int rank); /* 0 .. nodes-1 of any rank */
int z3d_world_nodes(const z3d_world *world);
int z3d_world_local_rank(const z3d_world *world); /* among the ranks of this node */
int z3d_world_local_size(const z3d_world *world);
const char *z3d_world_hostname(const z3d_world *world);

/* Host-memory helpers for start-up (collective over the world, blocking, small data). */
z3d_status z3d_world_broadcast(z3d_world *world, void *data, int64_t bytes, int root);
/* `bytes` from every rank, in rank order. */
z3d_status z3d_world_gather_all(z3d_world *world, const void *mine, void *all, int64_t bytes);
/* OK on every rank if `status` was OK on every rank; else every rank gets the first failing rank's
 * status and message
 * ("rank R: ..."). How a check that one rank makes becomes everybody's answer. Collective. */
z3d_status z3d_world_agree(z3d_world *world, z3d_status status);

/* ---- groups and collectives ---- */

typedef struct z3d_group z3d_group;

const char *z3d_collective_name(z3d_collective_kind kind);

/* Order of a sum, of the call that src/device/collectives.h describes: element of row r is
 * (((x[r+1] + x[r+2]) + ...) + x[r]) with members modulo size, each partial sum rounded to dtype;
 * an all_reduce cuts its buffer into size near-equal rows and is a reduce_scatter followed by an
 * all_gather; up to 4096 bytes it instead sums in member order 0, 1, ... on every member. So with
 * mpi, tcp and self a result depends on sizes only, never on timing nor on which of them it is.
 * NCCL sums in the order of its own rings and trees, which it chooses by machine and size: its
 * results have equal bits from run to run on one machine, not those of mpi. */

/* Makes the group of this rank over a set of axes that is not empty. Collective over the world,
 * every rank the same sets in the same order. Size-1 groups get the self backend. The device's poll
 * is set, so that pending collectives move during kernels; the device must outlive its groups
 * (NULL: no polling). Errors: ERR_USAGE, ERR_TOPOLOGY, ERR_MEMORY, ERR_COMM. */
z3d_status z3d_group_create(z3d_world *world, const z3d_mesh *mesh, z3d_axes axes,
                            z3d_device *device, z3d_group **out);
/* Makes all that z3d_axes_have_group says, by set; NULL for the other sets. Collective over the
 * world. After a failure, too, the caller destroys them. */
z3d_status z3d_groups_create(z3d_world *world, const z3d_mesh *mesh, z3d_device *device,
                             z3d_group *group[Z3D_AXES_COUNT]);
void z3d_groups_destroy(z3d_group *group[Z3D_AXES_COUNT]);
/* A group of given size and index whose collectives do nothing: for recording. Not collective. */
z3d_status z3d_group_create_recording(z3d_axes axes, int size, int index, z3d_group **out);
/* The same, and every start and wait is written on the tape, which must outlive the group: for the
 * sim device. buffer_bytes: what the group counts as its own. Not collective. */
struct z3d_tape;
z3d_status z3d_group_create_sim(z3d_axes axes, int size, int index, struct z3d_tape *tape,
                                int64_t buffer_bytes, z3d_group **out);
/* Bytes of buffers that each rank of a group of `size` ranks on cpus owns; one_node: they share a
 * node, whose kernel lets them read each other's memory. */
int64_t z3d_group_buffers_on_cpus(int size, bool one_node);
void z3d_group_destroy(z3d_group *group);

z3d_axes z3d_group_axes(const z3d_group *group);
int z3d_group_size(const z3d_group *group);
int z3d_group_index(const z3d_group *group); /* this rank's place in it */
/* Bytes of communication buffers this group owns, allocated when it was made: for the ledger.
 * NULL: 0. */
int64_t z3d_group_buffer_bytes(const z3d_group *group);
const char *z3d_group_backend(const z3d_group *group); /* "mpi", "tcp", "self", "nccl", ... */
/* Whether its collectives are work on the device's own streams, and nothing on the host. NULL: it
 * has none that are not. */
bool z3d_group_on_stream(const z3d_group *group);

/* Starts a collective behind the kernels launched so far; the buffer belongs to it until its wait.
 * Collectives of one group are started in the same order by all members. *ticket is used once, in
 * wait or test. Collective over the group. Errors: ERR_COMM. */
typedef struct z3d_ticket {
    int64_t id;
} z3d_ticket;
z3d_status z3d_collective_start(z3d_group *group, const z3d_collective *call, z3d_ticket *ticket);
/* Kernels launched after this see the result. */
z3d_status z3d_collective_wait(z3d_group *group, z3d_ticket ticket);
/* OK when finished, AGAIN when not yet: never blocks. */
z3d_status z3d_collective_test(z3d_group *group, z3d_ticket ticket);
/* start + wait. */
z3d_status z3d_collective_run(z3d_group *group, const z3d_collective *call);

/* Called at every start on this group, before anything is sent: how traces are recorded and how the
 * executor asserts that what a unit does is what its recording did. A failure of `observe` fails
 * the start. NULL: none. */
void z3d_group_set_observer(z3d_group *group,
                            z3d_status (*observe)(void *context, z3d_group *group,
                                                  const z3d_collective *call),
                            void *context);

/* What a group has done since it was made. calls, bytes (volume_elements times the type's size) and
 * volume_elements leave out calls marked scalar. volume_elements: as the formulas count, in
 * elements that leave this rank on a ring: all_reduce 2 count (N-1)/N, reduce_scatter and
 * all_gather count (N-1) of a row each (= total x (N-1)/N), broadcast, send: count. */
typedef struct z3d_traffic {
    int64_t calls, bytes, volume_elements;
    int64_t scalar_calls, scalar_bytes;
    /* From a transfer's turn in the group's queue to its completion; spent inside wait; NAN: nobody
     * timed all of them. */
    double seconds, exposed_seconds;
} z3d_traffic;
/* NULL: none. */
const z3d_traffic *z3d_group_traffic(const z3d_group *group, z3d_collective_kind kind);
/* Adds `amount`, but its times, so often: what captured work does again (1) or for the first time,
 * when it was counted as it was captured (0), what was captured in vain (-1). What runs has no
 * times, and so all of its kind have none. NULL: nothing. */
void z3d_group_count(z3d_group *group, z3d_collective_kind kind, const z3d_traffic *amount,
                     int times);

/* ---- the side channel: what every rank is doing, over TCP, for the watchdog and for deaths ----
 */

typedef struct z3d_watchdog_config {
    double timeout_seconds; /* 0: no watchdog; the side channel still notices dead ranks */
} z3d_watchdog_config;

/* Starts this rank's side-channel thread. Rank 0 listens, the others connect; a connection that
 * ends without a goodbye is a death: the survivors' lowest rank prints "zero3d: rank 2 (host, pid)
 * died in reduce_grads block.3 of step 12" at once and every rank ends with a non-zero code. When
 * some rank has waited longer than the timeout in one place, or a pending I/O of its
 * (src/base/pending_io.h, any thread's) got no further for so long, rank 0 asks everybody where
 * they are, prints who waits for whom and whose disk does not answer, and ends the run; but waiting
 * for a rank whose pending I/O still get further is no hang. One rank alone has one, too, where
 * there is a timeout. Collective over the world.
 */
z3d_status z3d_watchdog_start(z3d_world *world, const z3d_watchdog_config *config);
/* Says goodbye. Collective. z3d_world_destroy calls it. */
void z3d_watchdog_stop(z3d_world *world);
/* This rank's place: `text` (copied, cut between words
 * behind 159 bytes: "step 12: wait reduce_grads block.3 (data
 * group)"); `waiting`: it stands in a wait. Cheap (no system call); called at every instruction.
 * Each call is a sign of life. */
void z3d_watchdog_position(z3d_world *world, bool waiting, const char *text);

/* Whether a stop was asked for (SIGUSR1, SIGTERM, SIGINT, mpirun's announcement) on this rank.
 * Handlers are installed by z3d_world_catch_signals; a second signal, half a second or more after
 * the first (one Ctrl-C can arrive as several), ends the process at once with code 128 + its
 * number. */
void z3d_world_catch_signals(z3d_world *world);
bool z3d_world_stop_requested(const z3d_world *world);
/* Whether one was asked for on any rank. Collective; the same answer everywhere. */
z3d_status z3d_world_agree_stop(z3d_world *world, bool *stop);

#endif
