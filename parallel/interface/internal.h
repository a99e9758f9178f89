/* Private to parallel/: the fields of a world and a group, the table of a collectives backend, and
 * the operations in progress. */
#ifndef ZERO3D_PARALLEL_INTERNAL_H
#define ZERO3D_PARALLEL_INTERNAL_H

#include "parallel/interface/transport.h"
#include "parallel/parallel.h"
#include "parallel/sim/links.h"

/* What the members of a group on one node share. It changes no result; tests ask for less. */
typedef enum z3d_sharing {
    Z3D_SHARE_EVERYTHING, /* slots, and each other's memory where the kernel lets them read it */
    Z3D_SHARE_SLOTS,      /* slots for small vectors, messages for the rest */
    Z3D_SHARE_NOTHING     /* messages only, as between nodes */
} z3d_sharing;

/* One collective from its start to its wait. */
typedef struct z3d_operation {
    int64_t id; /* the ticket */
    z3d_collective call;
    bool done;
    double started;
    struct z3d_operation *next;   /* in the group's list of live or of free operations */
    struct z3d_operation *queued; /* in the backend's own queue */
    z3d_collective target;        /* staged: the caller's call, on device memory */
    void *staging;                /* staged: host memory for it, kept for the next operation */
    int64_t staging_bytes;
    int64_t device_id;   /* nccl: the device's number of this operation */
    z3d_message message; /* send, recv: the piece under way */
    int64_t moved;       /* send, recv: bytes finished */
    int tag;
} z3d_operation;

/* A collectives backend. */
typedef struct z3d_group_ops {
    const char *name;
    /* True: the backend works on device memory and itself waits for the kernels launched so far.
     * False: start is called after these kernels have ended, with memory that the host reads. */
    bool on_stream;
    /* Starts an operation with checked arguments; may finish it at once. Never blocks. */
    z3d_status (*start)(z3d_group *group, z3d_operation *operation);
    /* Advances the group's operations without blocking; sets *moved if any advanced. NULL: the
     * backend's operations are never pending. */
    z3d_status (*progress)(z3d_group *group, bool *moved);
    /* Called when a wait or test finds this operation complete. NULL: no callback. */
    z3d_status (*waited)(z3d_group *group, const z3d_operation *operation);
    /* Frees group->state. NULL: it has none of its own. */
    void (*destroy)(z3d_group *group);
} z3d_group_ops;

struct z3d_group {
    z3d_axes axes;
    int size, index;
    z3d_mesh mesh;      /* of all ranks; empty: recording */
    z3d_world *world;   /* NULL: recording */
    z3d_device *device; /* NULL: recording */
    const z3d_group_ops *ops;
    void *state; /* the backend's */
    int64_t buffer_bytes;
    z3d_observer observe, result;
    z3d_wait_observer waited;
    void *observe_context, *result_context, *waited_context;
    z3d_traffic traffic[Z3D_COLLECTIVE_COUNT];
    z3d_places places; /* for the traffic between nodes; empty: recording */
    int hops;          /* z3d_links_hops */
    int across;        /* members on other nodes */
    int64_t next_id;
    int pending;                  /* live operations that are not done */
    z3d_operation *live, *latest; /* in the order of their starts; most waits have this order */
    z3d_operation *free;
    z3d_kept_error broken; /* an error during a poll: every later call returns it */
    z3d_group *next;       /* of the same world */
};

struct z3d_world {
    const z3d_transport *transport; /* NULL: alone */
    void *transport_state;
    z3d_channel *channel, *local; /* all ranks; those of this node */
    int rank, size;
    int64_t job_tasks, job_nodes; /* z3d_launcher's tasks and nodes */
    int nodes, local_rank, local_size;
    int *node; /* by rank */
    char hostname[64];
    int cores;             /* cores that this process may use */
    z3d_sharing sharing;   /* of groups made from now on */
    bool progressing;      /* guards against a poll inside a poll */
    z3d_group *groups;     /* all groups of this world */
    struct z3d_side *side; /* the side channel, NULL: none (alone, or not started) */
};

extern const z3d_group_ops z3d_self_ops, z3d_record_ops, z3d_message_ops, z3d_nccl_ops;

/* group.c: z3d_group_create with a backend of the caller's. make_backend sets the group's ops and
 * state; the group has more than one member. It is collective over the world, so it may create
 * groups of its own: a composite collective consists of collectives on such groups. After a failure
 * ops->destroy frees the state. */
z3d_status z3d_group_create_with(z3d_world *world, const z3d_mesh *mesh, z3d_axes axes,
                                 z3d_device *device, z3d_status (*make_backend)(z3d_group *group),
                                 z3d_group **out);

/* messages/: buffers of one member of a group of `size` members, in bytes. node: the members share
 * memory; reads: they also read each other's memory. */
int64_t z3d_message_buffer_bytes(int size, bool node, bool reads);
/* messages/: makes the state of a group. Collective over the world. Errors: ERR_COMM, ERR_MEMORY;
 * group->ops->destroy frees the rest. */
z3d_status z3d_message_group_create(z3d_group *group, z3d_sharing sharing);

/* nccl/: the same with the device's own collectives (z3d_device_collectives is not NULL).
 * Collective over the world. Errors: those of the device; ERR_COMM. */
z3d_status z3d_nccl_group_create(z3d_group *group);

/* staging.c: where the host cannot read device memory, an operation works on a packed copy in host
 * memory. begin makes the copy; end, in the wait, copies the result back. Errors: those of the
 * device. */
z3d_status z3d_staging_begin(z3d_group *group, z3d_operation *operation);
z3d_status z3d_staging_end(z3d_group *group, const z3d_operation *operation);
void z3d_staging_free(z3d_group *group, z3d_operation *operation);

/* operation.c: marks an operation as done and counts its time. */
void z3d_operation_finish(z3d_group *group, z3d_operation *operation);

/* progress.c: advances the pending operations of all groups once; true if any advanced. An error is
 * kept in its group (`broken`). */
bool z3d_world_progress(z3d_world *world);
/* The same, with the signature of a device's poll. */
void z3d_world_poll(void *world);
/* Pauses a wait in which nothing has moved `idle` times in a row: it spins, then yields, then
 * sleeps. */
void z3d_world_idle(const z3d_world *world, int64_t idle);

/* mesh.c: z3d_mesh_check_nodes for the map node[rank]. */
z3d_status z3d_mesh_check_node_map(const z3d_mesh *mesh, const int *node);

/* shared.c: zeroed memory that all members of `channel` share; they are on one node. If one member
 * cannot have it (/dev/shm is missing or full), *out is NULL on every member: no error. Collective
 * over the channel. Errors: ERR_COMM. */
z3d_status z3d_shared_create(z3d_channel *channel, size_t bytes, void **out);
void z3d_shared_destroy(void *at, size_t bytes);
/* Removes the shared memory that killed runs have left. One rank of a node calls it at the start.
 */
void z3d_shared_remove_dead(void);

/* side/: opens the side channel. Collective over the world. Errors: ERR_COMM, ERR_MEMORY. */
z3d_status z3d_side_open(z3d_world *world);
/* Says goodbye and closes the channel. Collective over the world. */
void z3d_side_close(z3d_world *world);
/* Gives the coordinator a line to print, which ends the run. Returns only if the side channel does
 * not end this process within 5 s. */
void z3d_side_abort(z3d_world *world, const char *line);
/* Writes to standard error without a buffer. */
void z3d_side_print(const char *text);
/* The port on which a rank's side channel listens; 0: none. */
int z3d_side_port(const z3d_world *world, int rank);

/* mpi/: whether this build has MPI. */
extern const bool z3d_mpi_built;
/* Starts MPI, unless the caller has, and sets the world's transport, rank and size. If the
 * transport is set, the caller calls its `end`, also after an error. Collective over the launcher's
 * processes. Errors: ERR_COMM. */
z3d_status z3d_mpi_start(int *argc, char ***argv, z3d_world *world);

/* tcp/: the port on which a rank listens for messages; 0: messages do not go over TCP. */
int z3d_tcp_port(const z3d_world *world, int rank);

/* Whether the buffer is a matrix with a row for each member. */
static inline bool z3d_collective_has_rows(z3d_collective_kind kind) {
    return kind == Z3D_COLLECTIVE_REDUCE_SCATTER || kind == Z3D_COLLECTIVE_ALL_GATHER;
}

/* `count` elements cut into `size` near-equal rows: the first count % size rows have one element
 * more. First element and number of elements of row `row`. */
static inline int64_t z3d_row_first(int64_t count, int size, int row) {
    int64_t base = count / size, rest = count % size;
    return row * base + (row < rest ? row : rest);
}
static inline int64_t z3d_row_count(int64_t count, int size, int row) {
    return count / size + (row < count % size);
}

#endif
