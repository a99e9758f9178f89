/* Private to the builder (build/, activation_checkpointing/): the program under construction. */
#ifndef ZERO3D_ZERO_BUILDER_H
#define ZERO3D_ZERO_BUILDER_H

#include "zero/program.h"
#include "zero/program/layout.h"
#include "zero/program/pipeline.h"

/* What the kept rows of a parameter group and the reduction policy mean for the list. */
struct decisions {
    bool gather_each_use;  /* parameters: gathered before each use, released after */
    bool gather_at_start;  /* parameters: each rank stepped its rows; the others' are fetched at the
                              start of the next step */
    bool gather_gradients; /* gradients: after the reduction every rank wants all rows */
    bool reduce_kept; /* backward accumulates into the kept gradients, which are reduced in place in
                         the last micro-batch; otherwise each micro-batch has gradients of its own,
                         reduced and added to the kept ones */
    bool in_parts;    /* collectives are over the ranks of a node and over the nodes apart */
    bool sum_copies;  /* the reduced gradients are parts of a sum over the copies of the states */
    bool sum_replicated; /* the reduced gradients of replicated parameters are parts of a sum over
                            the tensor group */
};

/* What moves: rows and columns of a parameter group's matrix, or of a unit's input. */
struct subject {
    int unit, micro, group; /* -1: not about one */
    z3d_rows rows;
    int64_t first, count;
};

/* The way of a subject from a buffer over others to its end. Each leg is started and waited for
 * before the next one starts. */
struct route {
    struct subject subject;
    z3d_opcode opcode[3]; /* of each leg */
    int stop[4];          /* buffers: leg n goes from stop n to stop n + 1 */
    int legs, left, ticket;
};

/* Starts and waits of a route that are left: none; it is on its last leg; on the one before. */
enum { ARRIVED = 0, ON_LAST_LEG = 1, ON_LEG_BEFORE = 3 };

/* One of a group's sums of gradients (z3d_layout_use). */
struct sum_state {
    int group;
    int kept;        /* buffer that the step's sum is in */
    int gradients;   /* buffer that backward writes, -1: none yet in this micro-batch */
    bool written;    /* something was written to it: add from now on */
    int last_writer; /* the unit whose backward completes the gradient */
    int reducing;    /* first entry of what is under way, -1: nothing */
    int narrowing;   /* the same of the second half of a reduction in parts */
    bool under_way;  /* its reduction, with both halves */
};

struct group_state {
    int parameters;  /* buffer to read parameters from, -1: not gathered */
    int last_reader; /* the last work that reads the parameters */
    int wanted;      /* gathered: the next work that reads them */
    int block;       /* buffer with the parameters of its block, or where they will be, -1: none */
    bool fresh;      /* hpZ: the secondary value is that of the parameters */
    int widening, gathering, sharing; /* first entry of what is under way, -1: nothing */
    int summing;                      /* ticket */
    bool shared;                      /* all rows of its gradients are there */
    /* Of offloaded parameters to the device; of gradients to where they are kept, and back. */
    struct route parameters_in, gradients_out, gradients_in;
    int first_piece, end_piece; /* of the host's steps */
    struct decisions decided;
    struct sum_state sum[2]; /* of its first use, and of another chunk's */
};

/* Columns of a group that the host steps at a time. */
struct piece {
    struct subject subject;
    struct route gradients, states;                  /* to host memory */
    struct route stepped_parameters, stepped_states; /* to where they are kept */
};

/* The host's steps in their order. Pieces before these are on their way, stepped, and with their
 * states where these are kept. */
struct host_steps {
    struct piece *piece;
    int count, begun, stepped, over;
    /* Delayed: pieces whose parameters go to where they are kept, in the order in which they set
     * out; those before `arrived` are there. */
    int *leaving, left, left_before, arrived; /* left_before: when the last work was over */
    int64_t elements, done;                   /* of all pieces; of those that are stepped */
    double beside, been; /* FLOPs of the work that may be beside a step; of what was so far */
};

/* Sums of gradients, the last group's first, whose collective was started for one micro-batch and
 * not yet waited for. */
enum { REDUCTIONS = 16 };
struct started {
    int count, micro, task;
    struct sum_state *of[Z3D_MAX_UNIT_GROUPS];
};

/* What there is in memory of one unit and micro-batch. */
struct unit_state {
    int output, output_gradient, saved; /* buffers; output: the newest copy of it */
    int deferred, input; /* between the halves of its backward: their memory, and what it reads */
    int in_host; /* its kept input in host memory: where it is kept, or on its way; -1: not there */
    int kept;    /* struct kept_input, -1: none */
};

/* Of a unit's kept input: to where the activation checkpoint lies, and back. Apart from unit_state,
 * because few units of a large program have it. */
struct kept_input {
    struct route save, load;
    bool loads; /* `load` has begun */
};

enum work_kind {
    WORK_FORWARD,
    WORK_RECOMPUTE,
    WORK_BACKWARD,
    WORK_BACKWARD_INPUT,
    WORK_BACKWARD_WEIGHT
};

struct work {
    enum work_kind kind;
    int unit, micro;
    int task; /* of this stage's schedule */
};

/* What crosses pipeline stages: the input of unit `unit`, or its gradient on the way back. All
 * ranks start theirs in one order, that of `when`: the end of the pass that makes it, if every pass
 * took its usual time, and transfers a little (z3d_schedule_times). So the first in that order of
 * those that are not over has been started at both ends, or will be before its rank waits for
 * another one. */
struct transfer {
    double when;
    int unit, micro, task; /* task: of this stage, that sends or needs it */
    bool gradient, send;
    int ticket, buffer; /* once it has been started */
};

/* The transfers of one task, -1: none. */
struct crossing {
    int receive, send;
};

/* Longer steps are refused: every rank's list would take gigabytes. */
enum { MAX_ENTRIES = 5000000 };

struct builder {
    z3d_program *program;
    int instruction_capacity, slot_capacity, buffer_capacity, num_work;
    bool joins; /* Moves of a unit's groups may travel as one: where something is frozen. Elsewhere
                   a unit has one group, but for an embedding whose table is mostly a message or
                   more by itself. */
    struct group_state *group;
    /* Reductions, the oldest first; their second half, where they are in parts; sums of reduced
     * gradients. */
    struct started reducing[REDUCTIONS], narrowing, summing;
    int num_reducing;
    int *leaving, num_leaving; /* groups whose gradients may be on their way out, once each */
    struct host_steps host;
    int work_over;            /* pieces of work that are over */
    struct unit_state *state; /* z3d_builder_state */
    struct kept_input *input; /* in the order in which they are kept */
    int input_capacity, num_inputs;
    struct work saving, storing; /* whose checkpoints are on their way to the host, from there to
                                    the disk; unit -1: none */
    int *kept_from; /* by unit: the nearest unit at or below it that keeps its input, -1: none */
    struct work *work;
    z3d_timetables *timetables; /* NULL: the configuration's are used */
    const z3d_timetable *timetable;
    const z3d_task *task; /* of this stage */
    struct transfer *transfer;
    struct crossing *of_task; /* NULL: there is one stage */
    int num_tasks, num_transfers;
    int started, finished; /* transfers: the next to start; sends before this one are over */
    z3d_status status;     /* first failure; later emits do nothing */
};

/* list.c. Room for one entry and one kept input from the start: after a failed allocation there is
 * one to hand out. */
void z3d_builder_begin(struct builder *b);
/* A new buffer (-1 for 0 bytes; what, owner, micro: z3d_buffer's) and a new entry. A start gets a
 * new ticket, a wait takes that of its start. */
int z3d_builder_buffer(struct builder *b, z3d_category category, int64_t bytes, const char *what,
                       const char *owner, int micro);
z3d_instruction *z3d_builder_emit(struct builder *b, z3d_opcode opcode, z3d_phase phase,
                                  int *ticket);
/* The same with so many slots; of a parameter group. */
z3d_instruction *z3d_builder_emit_slots(struct builder *b, z3d_opcode opcode, z3d_phase phase,
                                        int *ticket, int slots);
z3d_instruction *z3d_builder_emit_group(struct builder *b, z3d_opcode opcode, z3d_phase phase,
                                        int *ticket, int group);
/* A unit's memory in a micro-batch; the buffer with what it reads there, -1: none. */
struct unit_state *z3d_builder_state(const struct builder *b, int unit, int micro);
int z3d_builder_input(const struct builder *b, int unit, int micro);
/* Room for its kept input, all zero; earlier ones may move. */
struct kept_input *z3d_builder_keep(struct builder *b, struct unit_state *unit);

/* A collective about a group's matrix: its opcode and axes, the buffer, and the one that a gather
 * copies its own rows from, or -1. */
struct matrix_move {
    z3d_opcode opcode;
    z3d_axes axes;
    int group, micro, buffer, from;
    int *under_way; /* gets its first entry: in the state of its group, or of its sum */
};

/* moves.c. The axes of a collective about group g: `part`, where these are in parts, else all that
 * the group is sharded over. */
z3d_axes z3d_builder_axes(const struct builder *b, int g, z3d_axes part);
/* Of moves of one kind, of a unit's groups, whose buffers need not be known yet: how many
 * from the first on travel as one collective, since their own rows together are one bucket, and no
 * larger than a message; 1: it travels alone. Starts so many moves, or fewer of them: an entry
 * each, or of one that travels alone for each bucket. */
int z3d_builder_joined(const struct builder *b, const struct matrix_move *move, int count);
void z3d_builder_start(struct builder *b, const struct matrix_move *move, int count);
/* Waits for all that was started at entry `first` (-1: that is over), and forgets it. */
void z3d_builder_wait(struct builder *b, int first);

/* routes.c: a route from a buffer; one leg more, unless a copy's end is where it begins; its last
 * stop; starts and waits until only so many are left; a wait, and the start of the leg
 * after it. */
struct route z3d_builder_route(struct subject subject, int from);
void z3d_builder_extend(struct route *route, z3d_opcode opcode, int to);
int z3d_builder_end(const struct route *route);
void z3d_builder_advance(struct builder *b, struct route *route, int left);
void z3d_builder_next_leg(struct builder *b, struct route *route);
/* The one entry of a leg: a start, a wait, or a move that is whole. */
void z3d_builder_move(struct builder *b, z3d_opcode opcode, z3d_phase phase, int *ticket,
                      struct subject subject, int from, int to);

/* gathers.c. At the start of a step, and before work number `step`: parameters are there, or on
 * their way. */
void z3d_builder_gather_at_start(struct builder *b);
void z3d_builder_gather_before(struct builder *b, int step);

/* live.c. The buffer for all rows of group g's parameters; where its rows come together first: the
 * secondary value, which persists, or all its rows. */
int z3d_builder_whole_buffer(struct builder *b, int g);
int z3d_builder_block_buffer(struct builder *b, int g);
/* hpZ: it keeps a secondary value. */
bool z3d_builder_keeps_block(const struct builder *b, int g);
/* After work number `step`: what does not stay for later work is released. Before a gather
 * for work `step`: of what is wanted later, as much is released as makes room for it. False: what
 * is left and it are more than config.max_live. */
void z3d_builder_release_after(struct builder *b, int step);
bool z3d_builder_make_room(struct builder *b, int step);

/* gradients.c: buffers for the sums; where this micro-batch's backward of the unit writes group g's
 * gradients, and that it does; after it. After a task, whose last work is number `step`: the
 * reductions go on beside the next task up to its backward, if their gradients need no more memory
 * than those that the backward writes; gradients that persist go on beside that, too. After the
 * last task: every group's own row is complete. Before a step that wants all rows: they are there.
 */
void z3d_builder_place_sums(struct builder *b);
int z3d_builder_gradient_buffer(struct builder *b, struct work w, int g);
void z3d_builder_give_gradients(struct builder *b, struct work w, z3d_instruction *i,
                                const int gradients[Z3D_MAX_UNIT_GROUPS]);
void z3d_builder_reduce_after(struct builder *b, struct work w);
void z3d_builder_reduce_between(struct builder *b, int step);
void z3d_builder_complete_gradients(struct builder *b);
void z3d_builder_share_wait(struct builder *b, int g);

/* work.c: the order of work, and what of it there is. */
z3d_status z3d_builder_order(struct builder *b);
/* Whether work number `step` is the first, the last of its task. */
bool z3d_builder_begins_task(const struct builder *b, int step);
bool z3d_builder_ends_task(const struct builder *b, int step);
/* Unit u has a backward: it or a unit before it is trained. */
bool z3d_builder_goes_back(const z3d_program *p, int unit);
/* Unit u's forward is repeated from a checkpoint before its backward. */
bool z3d_builder_recomputes(const z3d_program *p, int unit);
/* Unit u is the first of those that are recomputed from one checkpoint. */
bool z3d_builder_keeps_input(const struct builder *b, int unit);
/* Whether recomputing u must also give its output (for the next unit of its checkpoint). */
bool z3d_builder_replays_output(const struct builder *b, int unit);
/* The recording that a piece of work follows. */
const z3d_trace *z3d_builder_trace(const struct builder *b, struct work w);
/* Whether work number `step` reads the parameters of `group`. */
bool z3d_builder_reads_group(const struct builder *b, int step, int group);

/* transfers.c: what crosses pipeline stages. Before a task: what it needs is here; after it: what
 * it made is on its way. exchange: of a group that another stage holds, too, both send the kept own
 * shard; gives the buffer with the other's. */
z3d_status z3d_builder_list_transfers(struct builder *b);
void z3d_builder_receive(struct builder *b, int task);
void z3d_builder_send(struct builder *b, int task);
void z3d_builder_finish_sends(struct builder *b);
int z3d_builder_exchange(struct builder *b, int group);

/* offload.c: whether group g's parameters are kept elsewhere than on the device; brings them until
 * so much of their route is left, and gives the buffer that has them in its own row once they
 * arrived. Whether its gradients are kept elsewhere: brings the sum so far likewise; sends the sum
 * out, from sum[0].kept; the sums on their way out go on. Whether the host steps; all of its
 * step. */
bool z3d_builder_fetches(const struct builder *b, int g);
int z3d_builder_fetch(struct builder *b, int g, int left);
int z3d_builder_fetch_sum(struct builder *b, int g, int left);
void z3d_builder_store_sum(struct builder *b, int g);
void z3d_builder_go_on_storing(struct builder *b);
bool z3d_builder_steps_on_host(const struct builder *b, int g);
void z3d_builder_step_on_host(struct builder *b);
/* The same one step late. Before all work; before an entry writes the gradients that group g keeps;
 * behind a unit, which runs beside it; after each piece of work; at the end. Nothing happens where
 * steps are not delayed. */
void z3d_builder_begin_delayed(struct builder *b);
void z3d_builder_step_before(struct builder *b, int g);
void z3d_builder_step_beside(struct builder *b);
void z3d_builder_let_parameters_go(struct builder *b);
void z3d_builder_finish_delayed(struct builder *b);

/* activation_checkpointing/checkpoints.c: after forward of a unit that keeps its input; before
 * another piece of work; before its recompute; ahead of that, as far as it may overlap. */
void z3d_builder_save_input(struct builder *b, struct work w);
void z3d_builder_finish_saves(struct builder *b);
void z3d_builder_load_input(struct builder *b, struct work w);
void z3d_builder_prefetch_input(struct builder *b, struct work w);

#endif
