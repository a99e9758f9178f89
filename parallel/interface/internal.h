/* Private to parallel/: the fields of a world and a group, the table of a collectives backend, and
 * the operations in progress. */
#ifndef ZERO3D_PARALLEL_INTERNAL_H
#define ZERO3D_PARALLEL_INTERNAL_H

#include "parallel/interface/transport.h"
#include "parallel/parallel.h"
#include "parallel/sim/links.h"

/* What the members of a group on one node share. Results are the same; tests ask for less. */
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
    z3d_collective target;        /* staged: the call as it came, on device memory */
    void *staging;                /* staged: host memory for it, kept for the next operation */
    int64_t staging_bytes;
    int64_t device_id;   /* nccl: the device's own number of it */
    z3d_message message; /* send, recv: the piece under way */
    int64_t moved;       /* send, recv: bytes finished */
    int tag;
} z3d_operation;

/* A collectives backend. */
typedef struct z3d_group_ops {
    const char *name;
    /* Works behind the kernels launched so far by itself, on device memory. Else start is called
     * when they are over, and with host memory. */
    bool on_stream;
    /* Takes an operation whose arguments are checked; may finish it at once. Never blocks. */
    z3d_status (*start)(z3d_group *group, z3d_operation *operation);
    /* Moves what can move without blocking; sets *moved if anything did. NULL: nothing is ever
     * pending. */
    z3d_status (*progress)(z3d_group *group, bool *moved);
    /* Called when a wait or test finds this operation complete. NULL: no callback. */
    z3d_status (*waited)(z3d_group *group, const z3d_operation *operation);
    /* Frees group->state. */
    void (*destroy)(z3d_group *group);
} z3d_group_ops;

struct z3d_group {
    z3d_axes axes;
    int size, index;
    z3d_mesh mesh;      /* of all ranks; none: recording */
    z3d_world *world;   /* NULL: recording */
    z3d_device *device; /* NULL: recording */
    const z3d_group_ops *ops;
    void *state; /* the backend's */
    int64_t buffer_bytes;
    z3d_status (*observe)(void *context, z3d_group *group, const z3d_collective *call);
    void *observe_context;
    void (*waited)(void *context, const z3d_group *group, const z3d_collective *call, double begin,
                   double end);
    void *waited_context;
    z3d_status (*result)(void *context, z3d_group *group, const z3d_collective *call);
    void *result_context;
    z3d_traffic traffic[Z3D_COLLECTIVE_COUNT];
    z3d_places places; /* for the traffic between nodes; none: recording */
    int hops;          /* z3d_links_hops */
    int across;        /* members on other nodes */
    int64_t next_id;
    int pending;                  /* live operations that are not done */
    z3d_operation *live, *latest; /* in the order of their starts, which is that of most waits */
    z3d_operation *free;
    z3d_kept_error broken; /* an error met while polling: every later call answers it */
    z3d_group *next;       /* of the same world */
};

struct z3d_world {
    const z3d_transport *transport; /* NULL: alone */
    void *transport_state;
    z3d_channel *channel, *local; /* all ranks; those of this node */
    int rank, size;
    int64_t job_tasks, job_nodes; /* of a launcher (launcher.h) that did not choose one rank */
    int nodes, local_rank, local_size;
    int *node; /* by rank */
    char hostname[64];
    int cores;             /* that this process may use */
    z3d_sharing sharing;   /* of groups made from now on */
    bool progressing;      /* guards against a poll inside a poll */
    z3d_group *groups;     /* all that were made on this world */
    struct z3d_side *side; /* the side channel, NULL: none (alone, or not started) */
};

extern const z3d_group_ops z3d_self_ops, z3d_record_ops, z3d_message_ops, z3d_nccl_ops;

/* messages/: bytes of buffers that a group of `size` members has. node: they share memory; reads:
 * they also read each other's. */
int64_t z3d_message_buffer_bytes(int size, bool node, bool reads);
/* messages/: makes the state of a group; members are ranks of the world. Collective over the world.
 */
z3d_status z3d_message_group_create(z3d_group *group, const int *members, z3d_sharing sharing);

/* nccl/: the same on the device's own collectives (z3d_device_collectives is not NULL). Collective
 * over the world. */
z3d_status z3d_nccl_group_create(z3d_group *group);

/* staging.c: where the host cannot follow device pointers, an operation works on a packed copy in
 * host memory; its result is copied back when it is waited for. */
z3d_status z3d_staging_begin(z3d_group *group, z3d_operation *operation);
z3d_status z3d_staging_end(z3d_group *group, const z3d_operation *operation);
void z3d_staging_free(z3d_group *group, z3d_operation *operation);

/* group.c: an operation has ended. */
void z3d_operation_finish(z3d_group *group, z3d_operation *operation);

/* progress.c: moves every group's pending operations once; true if anything moved. Errors stay with
 * their group. */
bool z3d_world_progress(z3d_world *world);
void z3d_world_poll(void *world);
/* What a wait does when nothing moved for the idle-th time in a row. */
void z3d_world_idle(const z3d_world *world, int64_t idle);

/* mesh.c: the tensor group's check against a map of nodes by rank. */
z3d_status z3d_mesh_check_node_map(const z3d_mesh *mesh, const int *node);

/* shared.c: zeroed memory that all members of `channel`, which sit on one node, see. *out is NULL
 * on every member when it is to be had nowhere (no or a full /dev/shm): that is no error.
 * Collective over the channel; the end is not. */
z3d_status z3d_shared_create(z3d_channel *channel, size_t bytes, void **out);
void z3d_shared_destroy(void *at, size_t bytes);
/* What killed runs left of such memory goes away. For one rank of a node, when it starts. */
void z3d_shared_remove_dead(void);

/* side/: opens the channel (collective), says goodbye and closes it (collective), and hands over a
 * line that ends the run; the last one returns only when the channel cannot do it. */
z3d_status z3d_side_open(z3d_world *world);
void z3d_side_close(z3d_world *world);
void z3d_side_abort(z3d_world *world, const char *line);
/* Writes to standard error at once. */
void z3d_side_print(const char *text);
/* The port on which a rank listens, 0: none. */
int z3d_side_port(const z3d_world *world, int rank);

/* tcp/: the port on which a rank listens for the others' messages, 0: they go another way. */
int z3d_tcp_port(const z3d_world *world, int rank);

/* Row `row` of `size` near-equal rows of `count` elements: the first count % size rows have one
 * more. */
static inline int64_t z3d_row_first(int64_t count, int size, int row) {
    int64_t base = count / size, rest = count % size;
    return row * base + (row < rest ? row : rest);
}
static inline int64_t z3d_row_count(int64_t count, int size, int row) {
    return count / size + (row < count % size);
}

#endif
