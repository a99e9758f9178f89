/* parallel: the mesh of ranks, process groups, and collectives on device buffers. Collectives have
 * one table per backend (messages, self, nccl, record, sim; inside a node the messages backend uses
 * shared memory). Messages have another table (mpi, tcp). The side channel tells ranks what others
 * are doing when messages are blocked. This folder may call src/base and src/device. Start reading
 * inside at interface/group.c, interface/progress.c, messages/messages.c, interface/transport.h,
 * side/side.h. Most callers need six calls, in this order:
 *
 *   z3d_world_create, z3d_groups_create           (z3d_mesh_make between them)
 *   z3d_collective_start, z3d_collective_wait     any number of times
 *   z3d_groups_destroy, z3d_world_destroy
 *
 * "Collective over X" means: all ranks of X call the function, and all make their collective calls
 * in the same order; if one rank does not, the others wait. Other functions are not collective.
 * Only the main thread makes collective calls (MPI_THREAD_FUNNELED). */
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
 * DeepSpeed: tensor ranks are adjacent (inside a node). The data axis consists of two: data =
 * data_inner + I * data_outer, where I is the size of data_inner. data_outer has size 1 unless the
 * configuration cuts the data axis. A new axis needs a row here and a row in the configuration's
 * keys (Z3D_CONFIG_AXES). */
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

/* Roles: the relation between the ranks along a set of axes. Code asks for a role; only this table
 * says which axes a role is. Each comment reads "the ranks ...". X(NAME, axes) */
#define Z3D_ROLE_MAP(X)                                                                            \
    /* train different samples with the same parameters */                                         \
    X(SAMPLES, Z3D_AXES_DATA)                                                                      \
    /* share the rows of each parameter group's matrix: each rank steps its own row */             \
    X(ROWS, Z3D_AXES_DATA)                                                                         \
    /* of one node hold all rows, one row block each (where the data axis is cut) */               \
    X(BLOCKS, Z3D_AXES_DATA_INNER)                                                                 \
    /* of different nodes hold the same row block (where the data axis is cut) */                  \
    X(NODES, Z3D_AXES_DATA_OUTER)                                                                  \
    /* compute each unit together: each rank has its part of a divided parameter */                \
    X(PARTS, Z3D_AXES_TENSOR)                                                                      \
    /* hold the same undivided parameters; a gradient of one may be a sum over these ranks */      \
    X(REPLICAS, Z3D_AXES_TENSOR)                                                                   \
    /* compute the units one after the other */                                                    \
    X(STAGES, Z3D_AXES_PIPELINE)

/* A set of axes, one bit per axis. A process group is such a set: its members differ along these
 * axes only. An array of one value per group has Z3D_AXES_COUNT elements; the set is the index. */
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

/* The name of a set of axes: "tensor", "tensor+data", "data_inner", "none"; "world" for all axes.
 * The text is z3d_axes_name(axes).text. */
typedef struct z3d_axes_text {
#define X(NAME, name) "+" #name
    char text[sizeof(Z3D_AXIS_MAP(X))];
#undef X
} z3d_axes_text;
z3d_axes_text z3d_axes_name(z3d_axes axes);

typedef struct z3d_mesh {
    int size[Z3D_AXIS_COUNT]; /* ranks along each axis, 1 or more */
    int rank;                 /* the rank that looks at the mesh */
} z3d_mesh;

/* Makes the mesh of tensor x data x pipeline ranks as `rank` sees it; the data axis is not cut. For
 * a cut data axis, set the sizes and call z3d_mesh_check. Errors: those of z3d_mesh_check. */
z3d_status z3d_mesh_make(int tensor, int data, int pipeline, int rank, z3d_mesh *out);
/* Errors: ERR_TOPOLOGY unless all sizes are positive, their product fits an int, and the mesh's
 * rank is below the product. */
z3d_status z3d_mesh_check(const z3d_mesh *mesh);

/* "tensor 2 x pipeline 2 x data 2", for people; pipeline is left out if it is 1. The text is the
 * member `text`. */
typedef struct z3d_sizes_text {
    char text[80];
} z3d_sizes_text;
z3d_sizes_text z3d_sizes_name(int tensor, int pipeline, int data);
z3d_sizes_text z3d_mesh_name(const z3d_mesh *mesh);
/* The axes as people see them, fastest first: the two data axes are one axis unless the data axis
 * is cut. Returns their number. */
int z3d_mesh_axes(const z3d_mesh *mesh, z3d_axes axes[Z3D_AXIS_COUNT]);
/* Whether every run has a process group of this set: true for the roles and the world; for
 * data_inner and data_outer alone only where the data axis is cut. */
bool z3d_axes_have_group(const z3d_mesh *mesh, z3d_axes axes);

/* The groups of a set of axes. Members of a group are in ascending order of rank. Exception: where
 * the data axis is cut, the index along data is inner x outer size + outer, so that the ranks of
 * equal inner index have neighbouring rows. */

/* Members of each group. */
int z3d_mesh_size(const z3d_mesh *mesh, z3d_axes axes);
/* The index of `rank` in its group. */
int z3d_mesh_index(const z3d_mesh *mesh, z3d_axes axes, int rank);
/* The world rank of member `index` of the group that `rank` is in. */
int z3d_mesh_member(const z3d_mesh *mesh, z3d_axes axes, int rank, int index);
/* The same, but always in ascending order of rank. */
int z3d_mesh_ascending(const z3d_mesh *mesh, z3d_axes axes, int rank, int i);

/* ---- the world: this process among all, and the nodes they run on ---- */

typedef struct z3d_world z3d_world;

/* Connects the ranks, finds the nodes and opens the side channel. The launcher decides how ranks
 * connect: over MPI (MPI_THREAD_FUNNELED) under an MPI launcher; over TCP under srun alone, or with
 * RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment; without a launcher the world
 * has size 1. argc, argv may be NULL. Collective over all processes. Errors: ERR_START (only this
 * rank knows the failure) if the environment contradicts itself or another rank's, if ranks end or
 * do not connect in time, or if srun did not start this process in a Slurm job of several tasks;
 * ERR_PEER if another rank has reported the failure; ERR_COMM, ERR_MEMORY. */
z3d_status z3d_world_create(int *argc, char ***argv, z3d_world **out);
/* The same, but accepts a process that runs alone in a Slurm job of several tasks: for commands
 * that need only one process. z3d_world_check_alone refuses it later. */
z3d_status z3d_world_create_or_alone(int *argc, char ***argv, z3d_world **out);
/* ERR_START for a process that runs alone in a Slurm job of several tasks. */
z3d_status z3d_world_check_alone(const z3d_world *world);
/* Closes the side channel and ends MPI if z3d_world_create started it. Collective over the world:
 * only after success on all ranks. After a failure, call z3d_world_abort. */
void z3d_world_destroy(z3d_world *world);
/* Ends the run because this rank failed: prints "zero3d: rank R: message" (once per run; the first
 * failure is the one printed), tells the others over the side channel, and ends every rank with a
 * non-zero exit code. Does not return. */
void z3d_world_abort(z3d_world *world, z3d_status status, const char *message)
    __attribute__((noreturn));

/* Errors: ERR_TOPOLOGY if a tensor group spans nodes (the ZeRO paper measures less than 5 % of the
 * peak there), or if the mesh and the world differ in size. Same answer on all ranks. */
z3d_status z3d_mesh_check_nodes(const z3d_world *world, const z3d_mesh *mesh);

/* The rank that the environment gives this process, 0 without one. May be called before
 * z3d_world_create. */
int z3d_launched_rank(void);
/* Writes the MPI library of this build: "Open MPI v4.1.4", or that the build has none. */
void z3d_mpi_version(char *text, size_t size);

int z3d_world_rank(const z3d_world *world);
int z3d_world_size(const z3d_world *world);
int z3d_world_node(const z3d_world *world, int rank); /* 0 .. nodes-1; -1: no such rank */
int z3d_world_nodes(const z3d_world *world);
int z3d_world_local_rank(const z3d_world *world); /* among the ranks of this node */
int z3d_world_local_size(const z3d_world *world);
const char *z3d_world_hostname(const z3d_world *world);

/* Helpers on small data in host memory. All four block and are collective over the world. Errors:
 * ERR_USAGE for a wrong root or size; ERR_COMM. */

/* Copies the root's `bytes` to every rank's `data`. */
z3d_status z3d_world_broadcast(z3d_world *world, void *data, int64_t bytes, int root);
/* Gathers `bytes` of every rank into all[size x bytes], in rank order. bytes fits an int. */
z3d_status z3d_world_gather_all(z3d_world *world, const void *mine, void *all, int64_t bytes);
/* *any: whether `mine` is true on any rank. */
z3d_status z3d_world_any(z3d_world *world, bool mine, bool *any);
/* Returns OK on every rank if `status` was OK on every rank. Else every rank gets the status and
 * message of the lowest rank that failed ("rank R: ..."); its ERR_START becomes ERR_PEER. So one
 * rank's check becomes the answer on all ranks. */
z3d_status z3d_world_agree(z3d_world *world, z3d_status status);

/* ---- groups and collectives ---- */

typedef struct z3d_group z3d_group;

const char *z3d_collective_name(z3d_collective_kind kind);

/* The order of sums is part of the contract. src/device/collectives.h describes the calls and their
 * rows. x[m] is an element of member m; m counts modulo the group's size.
 *
 *   reduce_scatter   row r = (((x[r+1] + x[r+2]) + ...) + x[r]); every partial sum is rounded to
 *                    dtype.
 *   all_reduce       of more than Z3D_SMALL_BYTES: the buffer is cut into near-equal rows, one for
 *                    each member; a reduce_scatter follows, then an all_gather. Up to
 *                    Z3D_SMALL_BYTES: every member adds x[0] + x[1] + ... in this order.
 *   a narrower wire  row r = ((x[r] + x'[r+1]) + x'[r+2]) + ..., in fp32; x' is x rounded once to
 *                    the wire's type. (In a ring each hop would round.) An all_reduce, small or
 *                    large, is this reduce_scatter; each member then rounds its complete row, and
 *                    an all_gather sends the rounded rows: all members have equal bits. A group
 *                    of one member rounds nothing.
 *
 * So with mpi, tcp and self a result depends on sizes only, not on timing or on the backend. NCCL
 * sums in the order of its own rings and trees, which it chooses by machine and size: its results
 * have equal bits from run to run on one machine, but differ from those of mpi. */
enum {
    Z3D_SMALL_BYTES = 4096,
    Z3D_RING_SEGMENT = 512 * 1024 /* bytes of one message */
};

/* Makes the group of this rank along a set of axes, which must not be empty. The device must
 * outlive its groups. This function sets the device's poll, so pending collectives advance during
 * kernels; device NULL: no polling. A group of one member gets the self backend. Collective over
 * the world: all ranks make the same sets in the same order. Errors: ERR_USAGE, ERR_TOPOLOGY,
 * ERR_MEMORY, ERR_COMM. */
z3d_status z3d_group_create(z3d_world *world, const z3d_mesh *mesh, z3d_axes axes,
                            z3d_device *device, z3d_group **out);
/* Makes a group for each set that z3d_axes_have_group names; the other elements of group[] become
 * NULL. The caller destroys the groups, also after a failure. Collective over the world. Errors:
 * those of z3d_group_create. */
z3d_status z3d_groups_create(z3d_world *world, const z3d_mesh *mesh, z3d_device *device,
                             z3d_group *group[Z3D_AXES_COUNT]);
/* Destroys them and sets the elements to NULL. Collective over the world. */
void z3d_groups_destroy(z3d_group *group[Z3D_AXES_COUNT]);
/* Tells these groups that the buffers of their collectives are in the block of z3d_device_alloc
 * that begins at `memory`. NCCL may then reach the block at other members without copies of its own
 * (training.nccl.windows). The members of a group must have equal `bytes` and equal `layout` (a
 * hash of the offsets of all buffers in the block); else the group goes on as before. So do all
 * groups if NCCL fails on one rank. Rank 0's log names the groups that have windows.
 *
 * bucket: for each group, bytes of the largest matrix that a collective cuts out of a wider one
 * (stride > count), 0 without one; an NCCL group allocates a buffer of this size. Collective over
 * the world. Errors: ERR_COMM, ERR_MEMORY. */
z3d_status z3d_groups_use(z3d_group *const group[Z3D_AXES_COUNT], void *memory, int64_t bytes,
                          uint64_t layout, const int64_t bucket[Z3D_AXES_COUNT]);
/* Changes what these groups count as traffic between nodes: every `ranks` consecutive ranks count
 * as one node. Without this call the world's nodes count. It does not change how data moves. */
void z3d_groups_play_nodes(z3d_group *const group[Z3D_AXES_COUNT], int ranks);
/* Makes a group of given size and index for recording: observers see its collectives, which move no
 * data. Errors: ERR_USAGE, ERR_MEMORY. */
z3d_status z3d_group_create_recording(z3d_axes axes, int size, int index, z3d_group **out);
/* The same for the sim device: the group writes every start and wait on the tape, which must
 * outlive the group. z3d_group_buffer_bytes will return `buffer_bytes`. */
struct z3d_tape;
z3d_status z3d_group_create_sim(z3d_axes axes, int size, int index, struct z3d_tape *tape,
                                int64_t buffer_bytes, z3d_group **out);
/* The buffers, in bytes per rank, of a group of `size` ranks on the cpu device. one_node: the ranks
 * share a node and can read each other's memory. */
int64_t z3d_group_buffers_on_cpus(int size, bool one_node);
/* NULL: does nothing. Collective over the group. */
void z3d_group_destroy(z3d_group *group);

z3d_axes z3d_group_axes(const z3d_group *group);
int z3d_group_size(const z3d_group *group);
int z3d_group_index(const z3d_group *group); /* this rank's place in it */
/* Communication buffers that this group owns, in bytes: allocated at its creation or by
 * z3d_groups_use, counted in the ledger. NULL: 0. */
int64_t z3d_group_buffer_bytes(const z3d_group *group);
const char *z3d_group_backend(const z3d_group *group); /* "mpi", "tcp", "self", "nccl", ... */
/* Whether its collectives need no work of the host: they run on the device's own streams, or move
 * nothing. NULL: true. */
bool z3d_group_on_stream(const z3d_group *group);

/* Starts a collective after the kernels launched so far. The collective owns the buffer until its
 * wait. Use *ticket once: in z3d_collective_wait, or in z3d_collective_test until it returns OK.
 * Example, between whose calls kernels on other buffers may run:
 *
 *   z3d_collective sum = {Z3D_COLLECTIVE_ALL_REDUCE, .dtype = Z3D_F32, .buffer = x, .count = n};
 *   Z3D_TRY(z3d_collective_start(group[Z3D_ROLE_SAMPLES], &sum, &ticket));
 *   Z3D_TRY(z3d_collective_wait(group[Z3D_ROLE_SAMPLES], ticket));
 *
 * Collective over the group, except send and recv, which are two members' calls. Errors: ERR_USAGE
 * for a wrong call, ERR_UNSUPPORTED for a wire type that the backend lacks, ERR_COMM, ERR_MEMORY,
 * those of the device and of the observer. */
typedef struct z3d_ticket {
    int64_t id;
} z3d_ticket;
z3d_status z3d_collective_start(z3d_group *group, const z3d_collective *call, z3d_ticket *ticket);
/* Waits for the collective. Kernels launched after this see the result. Errors: ERR_USAGE for an
 * unknown ticket, ERR_COMM, those of the device and of the result observer. */
z3d_status z3d_collective_wait(z3d_group *group, z3d_ticket ticket);
/* The same without blocking: AGAIN if the collective is not finished. */
z3d_status z3d_collective_test(z3d_group *group, z3d_ticket ticket);
/* start + wait. */
z3d_status z3d_collective_run(z3d_group *group, const z3d_collective *call);

/* Observers: functions that the group calls, one of each kind. NULL removes the observer. */
typedef z3d_status (*z3d_observer)(void *context, z3d_group *group, const z3d_collective *call);
typedef void (*z3d_wait_observer)(void *context, const z3d_group *group, const z3d_collective *call,
                                  double begin, double end);

/* `observe` is called at every start on this group, before data moves. The recorder uses it, and
 * the executor compares a unit with its recording. A failure of `observe` fails the start. */
void z3d_group_set_observer(z3d_group *group, z3d_observer observe, void *context);

/* `waited` is called at the end of each wait that exposed_seconds counts; begin and end are times
 * of z3d_now. Timelines use it. */
void z3d_group_set_wait_observer(z3d_group *group, z3d_wait_observer waited, void *context);

/* The memory that a call fills in on this rank, as runs of contiguous bytes. Run number `run` (from
 * 0) begins at *at and has *bytes bytes. Returns false after the last run. A group of one member
 * has no run: its buffer is the result already. */
bool z3d_collective_result(const z3d_group *group, const z3d_collective *call, int run, void **at,
                           int64_t *bytes);
/* `result` is called at the end of each wait, when the result is complete; it may read or write the
 * result on the device. A replay uses it: a recording group then returns the data of another run. A
 * failure of `result` fails the wait. */
void z3d_group_set_result_observer(z3d_group *group, z3d_observer result, void *context);

/* Elements that leave this rank on a ring of N members, as in the ZeRO paper (section 7):
 * all_reduce 2 count (N-1)/N; reduce_scatter and all_gather count (N-1), where count is a row
 * (= total x (N-1)/N); broadcast and send count. */
int64_t z3d_collective_volume(z3d_collective_kind kind, int64_t count, int size);

/* What a group has moved since its creation, by kind of collective. volume_elements: the sum of
 * z3d_collective_volume. bytes: these elements in the type in which they travel. calls, bytes
 * and volume_elements leave out calls marked scalar. */
typedef struct z3d_traffic {
    int64_t calls, bytes, volume_elements;
    int64_t scalar_calls, scalar_bytes;
    /* The part of bytes + scalar_bytes that leaves this node; on a ring the mean of its members. */
    double bytes_between_nodes;
    /* seconds: from a transfer's turn in the group's queue to its completion; exposed_seconds:
     * spent in z3d_collective_wait. NAN: some were not timed. */
    double seconds, exposed_seconds;
} z3d_traffic;
/* NULL: all zero. */
const z3d_traffic *z3d_group_traffic(const z3d_group *group, z3d_collective_kind kind);
/* Adds `times` times `amount`, except its seconds. */
void z3d_traffic_add(z3d_traffic *traffic, const z3d_traffic *amount, int times);
/* Corrects a group's counts in the same way for captured work (a CUDA graph), which the capture has
 * counted once. times: 0 for the first run of the work, 1 for each later run, -1 if the capture
 * failed. group NULL: does nothing. */
void z3d_group_count(z3d_group *group, z3d_collective_kind kind, const z3d_traffic *amount,
                     int times);

/* ---- the side channel: reports positions and deaths of ranks over TCP ---- */

/* Sets the watchdog's timeout in seconds; 0: no watchdog, but the side channel still notices dead
 * ranks. Its threads run since z3d_world_create; a world of one rank gets its thread here, if there
 * is a timeout.
 *
 * Deaths: if a connection ends without a goodbye, the rank at its other end has died. The lowest
 * surviving rank immediately prints "zero3d: rank 2 (host, pid) died in reduce_grads block.3 of
 * step 12", and every rank ends with a non-zero code.
 *
 * Hangs: a rank hangs if it waits at one position longer than the timeout, or if pending I/O of one
 * of its threads (src/base/pending_io.h) makes no progress for so long. Rank 0 then asks all ranks
 * for their positions, prints who waits for whom and whose disk does not answer, and ends the run.
 * A rank that waits for a rank whose pending I/O makes progress does not hang.
 *
 * Collective over the world. Errors: ERR_USAGE for a negative timeout; ERR_COMM, ERR_MEMORY. */
z3d_status z3d_watchdog_start(z3d_world *world, double timeout);
/* Sets this rank's position. text: "step 12: wait reduce_grads block.3 (data group)"; it is copied,
 * and cut between two words if it is longer than 159 bytes. waiting: the rank is in a wait. Each
 * call counts as progress. The executor calls it at every instruction: no system call. */
void z3d_watchdog_position(z3d_world *world, bool waiting, const char *text);

/* Requests to stop a run: SIGUSR1, SIGTERM and SIGINT; also the SIGCONT by which mpirun announces
 * that it will end its ranks. */

/* Installs the handlers. A second signal, more than half a second after the first (one Ctrl-C can
 * arrive as several signals), ends the process immediately with exit code 128 + its number. */
void z3d_world_catch_signals(void);
/* Blocks SIGUSR1, SIGTERM and SIGINT until z3d_world_catch_signals, also if the program restarts
 * itself (exec). */
void z3d_world_hold_signals(void);
/* Unblocks them, so that they end the process. zero3d-launch starts a process with all of them
 * blocked. */
void z3d_world_release_signals(void);
/* Whether this rank has a request to stop. */
bool z3d_world_stop_requested(const z3d_world *world);
/* *stop: whether any rank has a request to stop, the same answer on all ranks. Collective over the
 * world. Errors: ERR_COMM. */
z3d_status z3d_world_agree_stop(z3d_world *world, bool *stop);

#endif
