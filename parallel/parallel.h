/* parallel: the mesh of ranks, process groups, and collectives on device buffers. Collectives have
 * one table per backend (messages, self, nccl, record, sim; inside a node the messages backend uses
 * shared memory). Messages have another table (mpi, tcp). The side channel tells ranks what others
 * are doing when messages are blocked. It may call src/base and src/device. Start reading at the
 * mesh, then z3d_collective_start; inside: interface/group.c, interface/progress.c, then
 * messages/messages.c, interface/transport.h, side/side.h. */
#ifndef ZERO3D_PARALLEL_PARALLEL_H
#define ZERO3D_PARALLEL_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/base.h"
#include "src/device/collectives.h"
#include "src/device/device.h"

/* ---- the mesh: ranks along named axes; pure arithmetic, no communication ---- */

/* The atomic axes, fastest first: rank = tensor + T * (data + D * pipeline), as in Megatron-LM and
 * DeepSpeed: tensor ranks are adjacent (inside a node). The data axis is two: data = data_inner +
 * I * data_outer. Its outer part is 1 unless something cuts it. Another axis is a row here and one
 * in the configuration's keys (Z3D_CONFIG_AXES). */
#define Z3D_AXIS_MAP(X)                                                                            \
    X(TENSOR, tensor)                                                                              \
    X(DATA_INNER, data_inner)                                                                      \
    X(DATA_OUTER, data_outer)                                                                      \
    X(PIPELINE, pipeline)

typedef enum z3d_axis {
#define X(NAME, name) Z3D_AXIS_##NAME,
    Z3D_AXIS_MAP(X)
#undef X
        Z3D_AXIS_COUNT
} z3d_axis;

/* Roles: what the ranks along a set of axes are to each other. Code asks for a role; only this
 * table says which axes it is. X(NAME, axes) */
#define Z3D_ROLE_MAP(X)                                                                            \
    /* train different samples, with the same parameters */                                        \
    X(SAMPLES, Z3D_AXES_DATA)                                                                      \
    /* have the rows of each parameter group's matrix: each steps its own */                       \
    X(ROWS, Z3D_AXES_DATA)                                                                         \
    /* the data axis is cut: the ranks of a node, which have all rows, a block each */             \
    X(BLOCKS, Z3D_AXES_DATA_INNER)                                                                 \
    /* and those with the same block on all nodes */                                               \
    X(NODES, Z3D_AXES_DATA_OUTER)                                                                  \
    /* compute each unit together: each has its part of a divided parameter */                     \
    X(PARTS, Z3D_AXES_TENSOR)                                                                      \
    /* have the same undivided parameters, some with a part of their gradients' sum each */        \
    X(REPLICAS, Z3D_AXES_TENSOR)                                                                   \
    /* have the units one after the other */                                                       \
    X(STAGES, Z3D_AXES_PIPELINE)

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
    Z3D_AXES_WORLD = Z3D_AXES_COUNT - 1,
    Z3D_AXES_DATA = Z3D_AXES_DATA_INNER | Z3D_AXES_DATA_OUTER,
#define X(NAME, axes) Z3D_ROLE_##NAME = (axes),
    Z3D_ROLE_MAP(X)
#undef X
};

/* "tensor", "tensor+data", "data_inner", "none"; all axes: "world". In z3d_axes_name(axes).text. */
typedef struct z3d_axes_text {
#define X(NAME, name) "+" #name
    char text[sizeof(Z3D_AXIS_MAP(X))];
#undef X
} z3d_axes_text;
z3d_axes_text z3d_axes_name(z3d_axes axes);

typedef struct z3d_mesh {
    int size[Z3D_AXIS_COUNT]; /* ranks along each axis, 1 or more */
    int rank;                 /* whose view this is */
} z3d_mesh;

/* tensor x data x pipeline ranks, other axes of size 1: the data axis is not cut. For other sizes
 * set them and call z3d_mesh_check. Errors: z3d_mesh_check's. */
z3d_status z3d_mesh_make(int tensor, int data, int pipeline, int rank, z3d_mesh *out);
/* ERR_TOPOLOGY unless sizes are positive, their product fits an int and holds the rank. */
z3d_status z3d_mesh_check(const z3d_mesh *mesh);

/* "tensor 2 x pipeline 2 x data 2" for people; one pipeline stage is not named. In .text. */
typedef struct z3d_sizes_text {
    char text[80];
} z3d_sizes_text;
z3d_sizes_text z3d_sizes_name(int tensor, int pipeline, int data);
z3d_sizes_text z3d_mesh_name(const z3d_mesh *mesh);
/* The axes as people see them, fastest first: the data axis is one where its outer part is 1.
 * Returns their number. */
int z3d_mesh_axes(const z3d_mesh *mesh, z3d_axes axes[Z3D_AXIS_COUNT]);
/* Whether this set always has a process group: each role does, and the world; parts of the data
 * axis where it is cut. */
bool z3d_axes_have_group(const z3d_mesh *mesh, z3d_axes axes);

/* The groups of a set of axes. Members of each are in ascending order of rank; where the data axis
 * is cut, the inner part counts more than the outer (index = inner x outer size + outer), so that
 * ranks of equal inner index have neighbouring rows. size: of every one of them; of the world: all
 * ranks. index: the position of `rank` in its group. member: the world rank of the index-th member
 * of the group that `rank` is in. */
int z3d_mesh_size(const z3d_mesh *mesh, z3d_axes axes);
int z3d_mesh_index(const z3d_mesh *mesh, z3d_axes axes, int rank);
int z3d_mesh_member(const z3d_mesh *mesh, z3d_axes axes, int rank, int index);
/* The i-th member in ascending order of rank, also where the data axis is cut. */
int z3d_mesh_ascending(const z3d_mesh *mesh, z3d_axes axes, int rank, int i);

/* ---- the world: this process among all, and the nodes they run on ---- */

typedef struct z3d_world z3d_world;

/* The launcher decides how the ranks connect: an MPI launcher, over MPI (MPI_THREAD_FUNNELED); srun
 * alone, or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment, over TCP; no
 * launcher, a world of size 1. Finds nodes and opens the side channel. Collective over all
 * processes. argc, argv may be NULL. Errors: ERR_START, known to this rank alone, if the
 * environment contradicts itself or another rank's, if ranks do not connect in time or end, and for
 * one process that srun did not start in a Slurm job of several tasks; ERR_PEER if rank 0 reports
 * such an error; ERR_COMM. */
z3d_status z3d_world_create(int *argc, char ***argv, z3d_world **out);
/* The same, but allows one process alone in a Slurm job of several tasks, for commands that need
 * only one. z3d_world_check_alone can refuse it later: ERR_START. */
z3d_status z3d_world_create_or_alone(int *argc, char ***argv, z3d_world **out);
z3d_status z3d_world_check_alone(const z3d_world *world);
/* Collective: call it only after success on all ranks. Ends MPI if it was started. */
void z3d_world_destroy(z3d_world *world);
/* One rank's failure stops all ranks: prints "zero3d: rank R: message" (once per run, the first
 * failure on top), tells the others over the side channel and ends the run with a non-zero exit on
 * every rank. Does not return. Not collective. */
void z3d_world_abort(z3d_world *world, z3d_status status, const char *message)
    __attribute__((noreturn));

/* ERR_TOPOLOGY, with the ranks and nodes, if a tensor group straddles nodes (the paper's < 5 %
 * case), or the mesh is of another world size. Not collective: same answer everywhere. */
z3d_status z3d_mesh_check_nodes(const z3d_world *world, const z3d_mesh *mesh);

/* The rank that the environment gives this process, 0 if none; for use before there is a world. */
int z3d_launched_rank(void);
/* The MPI library of this build: "Open MPI v4.1.4", or that there is none. */
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
 * status and message ("rank R: ..."). So one rank's check becomes everybody's answer. Collective.
 */
z3d_status z3d_world_agree(z3d_world *world, z3d_status status);

/* ---- groups and collectives ---- */

typedef struct z3d_group z3d_group;

const char *z3d_collective_name(z3d_collective_kind kind);

/* Order of a sum, of the call that src/device/collectives.h describes: element of row r is
 * (((x[r+1] + x[r+2]) + ...) + x[r]) with members modulo size, each partial sum rounded to dtype;
 * an all_reduce cuts its buffer into size near-equal rows and is a reduce_scatter followed by an
 * all_gather; up to Z3D_SMALL_BYTES it instead sums in member order 0, 1, ... on every member.
 * With a narrower type on the wire there is no ring, in which each hop would round: element of row
 * r is ((x[r] + x'[r+1]) + x'[r+2]) + ..., in fp32, where x' was rounded to that type once. An
 * all_reduce of any size then is such a reduce_scatter, and its rows are rounded once more, on
 * their own member too: all members have equal bits. A group of one member rounds nothing. So with
 * mpi, tcp and self a result depends on sizes only, not on timing or on the backend. NCCL sums in
 * the order of its own rings and trees, which it chooses by machine and size: its results have
 * equal bits from run to run on one machine, but not those of mpi. */

enum {
    Z3D_SMALL_BYTES = 4096,
    Z3D_RING_SEGMENT = 512 * 1024 /* bytes of one message */
};

/* Makes the group of this rank over a set of axes that is not empty. Collective over the world,
 * every rank the same sets in the same order. Size-1 groups get the self backend. It sets the
 * device's poll, so pending collectives progress during kernels. The device must outlive its groups
 * (NULL: no polling). Errors: ERR_USAGE, ERR_TOPOLOGY, ERR_MEMORY, ERR_COMM. */
z3d_status z3d_group_create(z3d_world *world, const z3d_mesh *mesh, z3d_axes axes,
                            z3d_device *device, z3d_group **out);
/* Makes all that z3d_axes_have_group says, by set; NULL for the other sets. Collective over the
 * world. After a failure, too, the caller destroys them. */
z3d_status z3d_groups_create(z3d_world *world, const z3d_mesh *mesh, z3d_device *device,
                             z3d_group *group[Z3D_AXES_COUNT]);
void z3d_groups_destroy(z3d_group *group[Z3D_AXES_COUNT]);
/* Says that collectives of these groups use this block of z3d_device_alloc's device memory. NCCL's
 * may then reach it at their peers without copies of their own (training.nccl.windows), where all
 * members have equal `bytes` and `layout`: a hash of where in the block each collective has its
 * buffer. Other groups, and all where NCCL cannot do it on one rank, go on as before; rank 0's log
 * says which is the case. Up to the block's end. bucket: bytes of the largest matrix that a group's
 * collectives cut out of a wider one (stride > count), 0: none does; NCCL's groups have a buffer of
 * their own for it. Collective over the world. Errors: ERR_COMM, ERR_MEMORY. */
z3d_status z3d_groups_use(z3d_group *const group[Z3D_AXES_COUNT], void *memory, int64_t bytes,
                          uint64_t layout, const int64_t bucket[Z3D_AXES_COUNT]);
/* What these groups count as between nodes: as if each `ranks` ranks that follow each other were a
 * node. Without this call nodes are the world's. */
void z3d_groups_play_nodes(z3d_group *const group[Z3D_AXES_COUNT], int ranks);
/* A group of given size and index whose collectives do nothing: for recording. Not collective. */
z3d_status z3d_group_create_recording(z3d_axes axes, int size, int index, z3d_group **out);
/* The same for the sim device: it writes every start and wait on the tape, which must outlive the
 * group. buffer_bytes: the buffers that the group counts as its own. Not collective. */
struct z3d_tape;
z3d_status z3d_group_create_sim(z3d_axes axes, int size, int index, struct z3d_tape *tape,
                                int64_t buffer_bytes, z3d_group **out);
/* Bytes of buffers that each rank of a group of `size` ranks on cpus owns; one_node: they share a
 * node and can read each other's memory. */
int64_t z3d_group_buffers_on_cpus(int size, bool one_node);
void z3d_group_destroy(z3d_group *group);

z3d_axes z3d_group_axes(const z3d_group *group);
int z3d_group_size(const z3d_group *group);
int z3d_group_index(const z3d_group *group); /* this rank's place in it */
/* Bytes of communication buffers that this group owns, allocated at its creation or by
 * z3d_groups_use: for the ledger.
 * NULL: 0. */
int64_t z3d_group_buffer_bytes(const z3d_group *group);
const char *z3d_group_backend(const z3d_group *group); /* "mpi", "tcp", "self", "nccl", ... */
/* Whether its collectives run on the device's own streams, without the host. NULL: it has none that
 * are not. */
bool z3d_group_on_stream(const z3d_group *group);

/* Starts a collective after the kernels launched so far; it owns the buffer until its wait. All
 * members start the collectives of a group in the same order. Use *ticket once, in wait or test.
 * Collective over the group. Errors: ERR_COMM. */
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

/* Called at every start on this group, before anything is sent. The recorder uses it, and the
 * executor compares a unit with its recording. A failure of `observe` fails the start. NULL: none.
 */
void z3d_group_set_observer(z3d_group *group,
                            z3d_status (*observe)(void *context, z3d_group *group,
                                                  const z3d_collective *call),
                            void *context);

/* Called at the end of each wait that exposed_seconds counts, with when it began and ended
 * (z3d_now). A timeline uses it. NULL: none. */
void z3d_group_set_wait_observer(z3d_group *group,
                                 void (*waited)(void *context, const z3d_group *group,
                                                const z3d_collective *call, double begin,
                                                double end),
                                 void *context);

/* The memory that a call fills in on this rank, in runs: number `run` (from 0) is *bytes at *at.
 * False: there are no more. A group of one member has none: what it has is the result. */
bool z3d_collective_result(const z3d_group *group, const z3d_collective *call, int run, void **at,
                           int64_t *bytes);
/* Called at the end of each wait, when the result is there: it may read it on the device, or write
 * it. With it a recording group gives what another run got. A failure fails the wait. NULL: none.
 */
void z3d_group_set_result_observer(z3d_group *group,
                                   z3d_status (*result)(void *context, z3d_group *group,
                                                        const z3d_collective *call),
                                   void *context);

/* What a group has done since its creation. calls, bytes (volume_elements in the type in which they
 * travel) and volume_elements do not count calls marked scalar. volume_elements, as in the
 * formulas: elements that leave this rank on a ring: all_reduce 2 count (N-1)/N, reduce_scatter and
 * all_gather count (N-1) of a row each (= total x (N-1)/N), broadcast, send: count. */
typedef struct z3d_traffic {
    int64_t calls, bytes, volume_elements;
    int64_t scalar_calls, scalar_bytes;
    double bytes_between_nodes; /* of both, what leaves a node: of a ring on average over members */
    /* seconds: from a transfer's turn in the group's queue to its completion; exposed_seconds:
     * spent in wait. NAN: not all were timed. */
    double seconds, exposed_seconds;
} z3d_traffic;
/* NULL: none. */
const z3d_traffic *z3d_group_traffic(const z3d_group *group, z3d_collective_kind kind);
/* Adds `amount`, without its times, so often: 1 if captured work runs again; 0 if it runs for the
 * first time (the capture counted it); -1 if the capture failed. NULL: nothing. */
void z3d_group_count(z3d_group *group, z3d_collective_kind kind, const z3d_traffic *amount,
                     int times);

/* ---- the side channel: what every rank is doing, over TCP, for the watchdog and for deaths ----
 */

typedef struct z3d_watchdog_config {
    double timeout_seconds; /* 0: no watchdog; the side channel still notices dead ranks */
} z3d_watchdog_config;

/* Starts this rank's side-channel thread. Rank 0 listens, the others connect. A connection that
 * ends without a goodbye is a death: the lowest surviving rank immediately prints "zero3d: rank 2
 * (host, pid) died in reduce_grads block.3 of step 12", and every rank ends with a non-zero code.
 * If a rank waits longer than the timeout at one position, or one of its threads' pending I/O
 * (src/base/pending_io.h) makes no progress for so long, rank 0 asks all ranks for their positions,
 * prints who waits for whom and whose disk does not answer, and ends the run. Waiting for a rank
 * whose pending I/O makes progress is not a hang. With a timeout, a single rank has a watchdog,
 * too. Collective over the world. */
z3d_status z3d_watchdog_start(z3d_world *world, const z3d_watchdog_config *config);
/* Says goodbye. Collective. z3d_world_destroy calls it. */
void z3d_watchdog_stop(z3d_world *world);
/* Sets this rank's position: `text` (copied, cut between words after 159 bytes: "step 12: wait
 * reduce_grads block.3 (data group)"); `waiting`: it is in a wait. Cheap (no system call); called
 * at every instruction. Each call counts as progress. */
void z3d_watchdog_position(z3d_world *world, bool waiting, const char *text);

/* Whether this rank was asked to stop (SIGUSR1, SIGTERM, SIGINT, mpirun's announcement).
 * z3d_world_catch_signals installs the handlers. A second signal, half a second or more after the
 * first (one Ctrl-C can arrive as several), ends the process immediately with code 128 + its
 * number. */
void z3d_world_catch_signals(void);
/* Keeps these signals until z3d_world_catch_signals, also if the program restarts itself (exec). */
void z3d_world_hold_signals(void);
/* Lets them end the process: zero3d-launch has it begin with all of them held. */
void z3d_world_release_signals(void);
bool z3d_world_stop_requested(const z3d_world *world);
/* Whether any rank was asked to stop. Collective; the same answer everywhere. */
z3d_status z3d_world_agree_stop(z3d_world *world, bool *stop);

#endif
