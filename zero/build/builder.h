/* Private to the builder (build/, activation_checkpointing/): the program under construction. */
#ifndef ZERO3D_ZERO_BUILDER_H
#define ZERO3D_ZERO_BUILDER_H

#include "zero/program.h"
#include "zero/program/layout.h"
#include "zero/program/pipeline.h"

/* What must move for a parameter group. decide() finds it from the layout and the configuration. */
struct decisions {
    bool gather_each_use;  /* parameters: gathered before each use, then released */
    bool gather_at_start;  /* parameters: each rank has stepped its own rows; the next step begins
                              with a gather */
    bool gather_gradients; /* gradients: all ranks need all rows after the reduction */
    bool reduce_kept; /* backward adds to the kept gradients, which are reduced in place in the last
                         micro-batch; else each micro-batch has its own gradients, which are reduced
                         and added to the kept ones */
    bool in_parts;    /* a collective has two halves: over the ranks of a node, over the nodes */
    bool sum_copies;  /* reduced gradients must be summed over the copies of the states */
    bool sum_replicated; /* reduced gradients of replicated parameters must be summed over the
                            tensor group */
};

/* The data that moves: rows and columns of a parameter group's matrix, or of a unit's input. */
struct subject {
    int unit, micro, group; /* -1: none */
    z3d_rows rows;
    int64_t first, count;
};

/* A subject's way from one buffer to another, through at most two other buffers. Each leg is a copy
 * or a gather, and starts after the wait of the leg before it. */
struct route {
    struct subject subject;
    z3d_opcode opcode[3]; /* of each leg */
    int stop[4];          /* buffers: leg n goes from stop n to stop n + 1 */
    int legs, ticket;
    int left; /* how many starts and waits are still to be added to the list */
};

/* Values of route.left. */
enum { ARRIVED = 0, ON_LAST_LEG = 1, ON_LEG_BEFORE = 3 };

/* The sum of a group's gradients over the micro-batches. If two chunks of this pipeline stage use
 * the group, each has a sum (z3d_layout_use). */
struct sum_state {
    int group;
    int kept;        /* buffer with the training step's sum */
    int gradients;   /* buffer that backward writes, -1: none yet for this micro-batch */
    bool written;    /* `gradients` has values: later writes add to them */
    int last_writer; /* the unit whose backward completes the gradient, -1: none */
    int reducing;    /* first entry of the reduction under way, -1: none */
    int narrowing;   /* the same for the second half of a reduction in parts */
    bool under_way;  /* the reduction has started and is not over */
};

struct group_state {
    int parameters;  /* buffer to read parameters from, -1: not gathered */
    int last_reader; /* number of the last work that reads the parameters */
    int wanted;      /* number of the next work that reads the gathered parameters */
    int block;       /* buffer for the parameters of its row block, -1: none */
    bool fresh;      /* hpZ: the secondary value is up to date */
    /* First entries of gathers under way, -1: none. widening: parameters, over the nodes.
     * gathering: parameters, over the node's ranks or over all. sharing: reduced gradients. */
    int widening, gathering, sharing;
    int summing; /* ticket of sum_copies or sum_replicated */
    bool shared; /* this rank has all rows of its gradients */
    /* Offload: parameters to the device; gradients to host or disk, and back. */
    struct route parameters_in, gradients_out, gradients_in;
    int first_piece, end_piece; /* its pieces in host_steps.piece */
    struct decisions decided;
    struct sum_state sum[2]; /* by chunk of this pipeline stage that uses the group */
};

/* Columns of a group that the host steps at a time. */
struct piece {
    struct subject subject;
    struct route gradients, states;                  /* to host memory */
    struct route stepped_parameters, stepped_states; /* to where they are kept */
};

/* The pieces in the order of the host's steps. Transfers to the host have started for the first
 * `begun`, the first `stepped` are stepped, the states of the first `over` are stored. */
struct host_steps {
    struct piece *piece;
    int count, begun, stepped, over;
    /* Delayed steps: numbers of pieces, in the order in which stores of their parameters started.
     * The first `stored` are over; the first `due` started before the current work. */
    int *storing, num_storing, due, stored;
    int64_t elements, done; /* of all pieces; of the stepped ones */
    double beside, been;    /* FLOPs of all work that may overlap the steps; of the work so far */
};

/* The sum_states of one micro-batch with a collective under way, by descending group. */
enum { REDUCTIONS = 16 };
struct started {
    int count, micro, task;
    struct sum_state *of[Z3D_MAX_UNIT_GROUPS];
};

/* The buffers of one unit and micro-batch. */
struct unit_state {
    int output, output_gradient, saved; /* output: its newest copy */
    int deferred, input; /* for the second half of backward: what the first half wrote, and the
                            unit's input */
    int in_host; /* buffer in host memory for its input, also on the way to or from the disk,
                    -1: none */
    int kept;    /* index of its struct kept_input, -1: none */
};

/* The routes of an activation checkpoint. They are not in unit_state, because many units may
 * have no checkpoint. */
struct kept_input {
    struct route save, load;
    bool loads; /* `load` has begun */
};

/* One call of a unit. */
struct work {
    z3d_call kind; /* RECOMPUTE even if its trace is forward's */
    int unit, micro;
    int task; /* of this pipeline stage's schedule */
};

/* A transfer between pipeline stages: the input of unit `unit`, or its gradient. when: the planned
 * time (z3d_schedule_times) at which the pass that makes the data ends. All ranks start transfers
 * in this order, so nothing deadlocks: sender and receiver of the first unfinished transfer both
 * start it before they wait for another one. */
struct transfer {
    double when;
    int unit, micro, task; /* task: the one that sends or reads it */
    bool gradient, send;
    int ticket, buffer; /* known after its start */
};

/* The transfers of one task, -1: none. */
struct crossing {
    int receive, send;
};

/* Most entries of a list before the waits of its buckets; more would take gigabytes. */
enum { MAX_ENTRIES = 5000000 };

struct builder {
    z3d_program *program;
    int instruction_capacity, slot_capacity, buffer_capacity, num_work;
    bool joins; /* collectives of a unit's groups may be joined: the model has a frozen group.
                   Without one, a unit with two groups has an embedding table, which is usually
                   large enough to travel alone */
    struct group_state *group;
    /* Under way. reducing: the oldest first. narrowing: second halves. summing: sum_copies and
     * sum_replicated. */
    struct started reducing[REDUCTIONS], narrowing, summing;
    int num_reducing;
    int *leaving, num_leaving; /* groups whose gradients may be on their way to host or disk */
    struct host_steps host;
    int work_over;            /* number of the current work: so many are over */
    struct unit_state *state; /* z3d_builder_state */
    struct kept_input *input; /* in the order of z3d_builder_keep */
    int input_capacity, num_inputs;
    struct work saving, storing; /* work whose activation checkpoint is on the way to the host
                                    (saving), or from there to the disk (storing); unit -1: none */
    int *kept_from; /* by unit: the nearest unit at or before it in its chunk that keeps its
                       input, -1: none */
    struct work *work;
    z3d_timetables *timetables; /* NULL: the configuration's are used */
    const z3d_timetable *timetable;
    const z3d_task *task; /* of this pipeline stage */
    struct transfer *transfer;
    struct crossing *of_task; /* by task; NULL: one pipeline stage */
    int num_tasks, num_transfers;
    int started, finished; /* the first `started` transfers have started; the sends among the
                              first `finished` are over */
    z3d_status status;     /* first failure; later emits do nothing */
};

/* list.c. Allocates the first entry, slots and input, which z3d_builder_emit_slots and
 * z3d_builder_keep return after a failure. */
void z3d_builder_begin(struct builder *b);
/* A new buffer (-1 for 0 bytes; what, owner, micro: see z3d_buffer) and a new entry. A start sets
 * *ticket to a new one, a wait takes the ticket of its start. */
int z3d_builder_buffer(struct builder *b, z3d_category category, int64_t bytes, const char *what,
                       const char *owner, int micro);
z3d_instruction *z3d_builder_emit(struct builder *b, z3d_opcode opcode, z3d_phase phase,
                                  int *ticket);
/* An entry with `slots` slots; of a parameter group; of a subject. */
z3d_instruction *z3d_builder_emit_slots(struct builder *b, z3d_opcode opcode, z3d_phase phase,
                                        int *ticket, int slots);
z3d_instruction *z3d_builder_emit_group(struct builder *b, z3d_opcode opcode, z3d_phase phase,
                                        int *ticket, int group);
z3d_instruction *z3d_builder_emit_subject(struct builder *b, z3d_opcode opcode, z3d_phase phase,
                                          int *ticket, const struct subject *subject);
/* The buffers of a unit in a micro-batch; the buffer with its input, -1: none. */
struct unit_state *z3d_builder_state(const struct builder *b, int unit, int micro);
int z3d_builder_input(const struct builder *b, int unit, int micro);
/* Adds a kept input, all zero; earlier ones may move. */
struct kept_input *z3d_builder_keep(struct builder *b, struct unit_state *unit);

/* A collective on a group's matrix, which is in `buffer`. A gather copies its own rows there from
 * buffer `from`, -1: they are in place. */
struct matrix_move {
    z3d_opcode opcode;
    z3d_axes axes;
    int group, micro, buffer, from;
    int *under_way; /* the field of group_state or sum_state that gets its first entry */
};

/* moves.c. The axes of a collective on group g: `part` if it is in parts, else all that the group
 * is sharded over. */
z3d_axes z3d_builder_axes(const struct builder *b, int g, z3d_axes part);
/* joined: how many moves, from the first on, travel as one collective: together their matrices fit
 * in a bucket, this rank's rows in a message; 1: the first travels alone. Buffers may be unset.
 * start: with count > 1 these moves joined, one entry for each; with 1 one entry for each bucket;
 * with 0 nothing. */
int z3d_builder_joined(const struct builder *b, const struct matrix_move *move, int count);
void z3d_builder_start(struct builder *b, const struct matrix_move *move, int count);
/* Waits for the moves whose first start is entry `first`, and resets their under_way; -1: none. */
void z3d_builder_wait(struct builder *b, int first);

/* routes.c. route: starts in buffer `from`, has no legs. extend: adds a leg to buffer `to`, unless
 * it is a copy to the route's present last buffer. end: the last buffer. advance: adds starts and
 * waits to the list until `left` remain. */
struct route z3d_builder_route(struct subject subject, int from);
void z3d_builder_extend(struct route *route, z3d_opcode opcode, int to);
int z3d_builder_end(const struct route *route);
void z3d_builder_advance(struct builder *b, struct route *route, int left);
/* One entry of a leg: its start, its wait, or the whole move. */
void z3d_builder_move(struct builder *b, z3d_opcode opcode, z3d_phase phase, int *ticket,
                      struct subject subject, int from, int to);

/* gathers.c. Gathers of parameters: at the start of a program; before work number `at`, for this
 * work and for later work. */
void z3d_builder_gather_at_start(struct builder *b);
void z3d_builder_gather_before(struct builder *b, int at);

/* live.c. whole: the buffer for all rows of group g's parameters; a new one if they are gathered
 * before each use. block: that for its row block: the secondary value, else the same as whole. */
int z3d_builder_whole_buffer(struct builder *b, int g);
int z3d_builder_block_buffer(struct builder *b, int g);
/* Whether group g keeps a secondary value (hpZ). */
bool z3d_builder_keeps_block(const struct builder *b, int g);
/* release_after, after work number `at`: releases groups that do not stay for later work.
 * make_room, before a gather for work number `at`: releases groups of later work until
 * config.max_live allows the gather; false: it still does not. */
void z3d_builder_release_after(struct builder *b, int at);
bool z3d_builder_make_room(struct builder *b, int at);

/* gradients.c: chooses or makes the buffers of the sums. */
void z3d_builder_place_sums(struct builder *b);
/* The buffer where backward `w` writes group g's gradients. give: puts the buffers of all groups
 * into its entry i. */
int z3d_builder_gradient_buffer(struct builder *b, struct work w, int g);
void z3d_builder_give_gradients(struct builder *b, struct work w, z3d_instruction *i,
                                const int gradients[Z3D_MAX_UNIT_GROUPS]);
/* reduce_after, after a backward: starts the reductions of the groups whose gradients it completes.
 * reduce_between, after a task whose last work is number `at`: ends the oldest reductions until
 * the temporary gradients under way need at most the memory of the next backward's, and none of
 * them goes on to host or disk. */
void z3d_builder_reduce_after(struct builder *b, struct work w);
void z3d_builder_reduce_between(struct builder *b, int at);
/* complete_gradients, after the last task: ends all sums. share_wait, before the optimizer steps
 * group g: waits for all rows of its gradients, if the optimizer needs them. */
void z3d_builder_complete_gradients(struct builder *b);
void z3d_builder_share_wait(struct builder *b, int g);

/* work.c: makes the list of work and of transfers. */
z3d_status z3d_builder_order(struct builder *b);
/* The unit has a backward: it or a unit before it is trained. */
bool z3d_builder_goes_back(const z3d_program *p, int unit);
/* The unit's forward is repeated from an activation checkpoint before its backward. */
bool z3d_builder_recomputes(const z3d_program *p, int unit);
/* The unit's input is an activation checkpoint. */
bool z3d_builder_keeps_input(const struct builder *b, int unit);
/* Whether the unit's recompute gives its output: config.replay_full, or the next unit's recompute
 * reads it. */
bool z3d_builder_replays_output(const struct builder *b, int unit);
/* The recording that a piece of work follows. */
const z3d_trace *z3d_builder_trace(const struct builder *b, struct work w);
/* Whether work number `at` reads the parameters of `group`. */
bool z3d_builder_reads_group(const struct builder *b, int at, int group);

/* transfers.c: transfers between pipeline stages. receive, before a task: receives what it reads.
 * send, after a task: sends what it made. finish_sends: waits for all sends that have started.
 * exchange: swaps this rank's shard of the group's kept gradients with the other stage that holds
 * the group; returns the buffer with the other stage's shard. */
z3d_status z3d_builder_list_transfers(struct builder *b);
void z3d_builder_receive(struct builder *b, int task);
void z3d_builder_send(struct builder *b, int task);
void z3d_builder_finish_sends(struct builder *b);
int z3d_builder_exchange(struct builder *b, int group);

/* offload.c. fetches: whether group g's parameters must come from host or disk. fetch: advances
 * their route until `left` starts and waits remain; returns its last buffer, which gets this rank's
 * row. */
bool z3d_builder_fetches(const struct builder *b, int g);
int z3d_builder_fetch(struct builder *b, int g, int left);
/* The same for the sum of gradients so far: fetch_sum is like fetch; store_sum sends the sum from
 * sum[0].kept to host or disk; go_on_storing advances all such sums. */
int z3d_builder_fetch_sum(struct builder *b, int g, int left);
void z3d_builder_store_sum(struct builder *b, int g);
void z3d_builder_go_on_storing(struct builder *b);
/* steps_on_host: whether the host steps group g of this stage. step_on_host: all steps of the host.
 */
bool z3d_builder_steps_on_host(const struct builder *b, int g);
void z3d_builder_step_on_host(struct builder *b);
/* Delayed steps of the host; without offload.delayed these add no entries. begin_delayed: before
 * all work. step_before: before an entry writes group g's kept gradients. step_beside: after a
 * unit's entry, which overlaps the steps. store_parameters: after each work. finish_delayed: after
 * all work. */
void z3d_builder_begin_delayed(struct builder *b);
void z3d_builder_step_before(struct builder *b, int g);
void z3d_builder_step_beside(struct builder *b);
void z3d_builder_store_parameters(struct builder *b);
void z3d_builder_finish_delayed(struct builder *b);

/* activation_checkpointing/checkpoints.c. save_input: after a unit's forward. finish_saves: after
 * the next forward, or before a recompute or a backward, except second halves. load_input: before a
 * recompute. prefetch_input: in backward, for later loads. */
void z3d_builder_save_input(struct builder *b, struct work w);
void z3d_builder_finish_saves(struct builder *b);
void z3d_builder_load_input(struct builder *b, struct work w);
void z3d_builder_prefetch_input(struct builder *b, struct work w);

#endif
