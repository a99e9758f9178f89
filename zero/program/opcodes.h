/* The one table of instructions. The verifier, the play of all ranks, the executor, the printer,
 * digests and the watchdog read it. Only the builder, and plan's counts and pictures, know an
 * instruction by name.
 *
 *   X(NAME, name, class, subject, over, moves, from, to, modes)
 *
 * class: its rules (z3d_opcode_class). subject: a step, a unit or a parameter group. over: the
 * ranks that it communicates with, or whose rows of an input a copy moves. moves: the kind of its
 * data, and so its type. from, to: the slots that it reads and fills (for units and the optimizer
 * opcodes.c says it). modes: the programs that may have it. */
#ifndef ZERO3D_ZERO_OPCODES_H
#define ZERO3D_ZERO_OPCODES_H

#define Z3D_OPCODE_MAP(X)                                                                          \
    /* learning rate, seeds and zeroed sums go into the step state */                              \
    X(STEP_BEGIN, step_begin, BEGIN, STEP, NONE, NONE, COUNT, COUNT, ANY)                          \
    /* all-gather of group g's shards, one bucket; over the nodes it may fill the secondary        \
       value */                                                                                    \
    X(GATHER_PARAMS, gather_params, ALL_GATHER, GROUP, SHARD, PARAMETERS, INPUT, PARAMETERS, ANY)  \
    /* offload: group g's parameters come from the disk to the host, and from there to the own     \
       row of the gathered buffer */                                                               \
    X(FETCH_PARAMS, fetch_params, COPY, GROUP, NONE, PARAMETERS, INPUT, PARAMETERS, ANY)           \
    /* the gathered buffer is dead from here */                                                    \
    X(RELEASE_PARAMS, release_params, MARK, GROUP, NONE, NONE, COUNT, PARAMETERS, ANY)             \
    X(FORWARD, forward, FORWARD, UNIT, PARTS, NONE, COUNT, COUNT, ANY)                             \
    /* unit u's input becomes the activation checkpoint, and comes back */                         \
    X(SAVE_INPUT, save_input, COPY, UNIT, PARTS, ACTIVATIONS, INPUT, OUTPUT, TRAIN)                \
    X(LOAD_INPUT, load_input, COPY, UNIT, PARTS, ACTIVATIONS, INPUT, OUTPUT, TRAIN)                \
    /* all-gather of its parts on the tensor ranks */                                              \
    X(GATHER_INPUT, gather_input, ALL_GATHER, UNIT, PARTS, ACTIVATIONS, INPUT, OUTPUT, ANY)        \
    /* unit u's input comes from another pipeline stage; its gradient goes back */                 \
    X(SEND_INPUT, send_input, SEND, UNIT, STAGES, ACTIVATIONS, INPUT, COUNT, ANY)                  \
    X(RECV_INPUT, recv_input, RECV, UNIT, STAGES, ACTIVATIONS, COUNT, OUTPUT, ANY)                 \
    X(SEND_INPUT_GRADIENT, send_input_gradient, SEND, UNIT, STAGES, ACTIVATION_GRADIENTS, INPUT,   \
      COUNT, TRAIN)                                                                                \
    X(RECV_INPUT_GRADIENT, recv_input_gradient, RECV, UNIT, STAGES, ACTIVATION_GRADIENTS, COUNT,   \
      OUTPUT, TRAIN)                                                                               \
    X(GATHER_INPUT_GRADIENT, gather_input_gradient, ALL_GATHER, UNIT, PARTS, ACTIVATION_GRADIENTS, \
      INPUT, OUTPUT, TRAIN)                                                                        \
    X(RECOMPUTE, recompute, FORWARD, UNIT, PARTS, NONE, COUNT, COUNT, TRAIN)                       \
    X(BACKWARD, backward, BACKWARD, UNIT, PARTS, NONE, COUNT, COUNT, TRAIN)                        \
    /* the halves of backward: gradients of the input, then of the parameters; other units may     \
       run in between */                                                                           \
    X(BACKWARD_INPUT, backward_input, BACKWARD_INPUT, UNIT, PARTS, NONE, COUNT, COUNT, TRAIN)      \
    X(BACKWARD_WEIGHT, backward_weight, BACKWARD_WEIGHT, UNIT, PARTS, NONE, COUNT, COUNT, TRAIN)   \
    /* reduce-scatter of group g's gradients, one bucket */                                        \
    X(REDUCE_GRADS, reduce_grads, REDUCE_SCATTER, GROUP, SHARD, GRADIENTS, COUNT, GRADIENTS,       \
      TRAIN)                                                                                       \
    /* the reduced own shard is added to the kept gradients */                                     \
    X(KEEP_SHARD, keep_shard, SUM, GROUP, NONE, GRADIENTS, GRADIENTS, SHARD, TRAIN)                \
    /* group g is used in two chunks of the pipeline (a tied table), which have a sum each. On     \
       two stages each sends the other the kept own shard; the sums are added */                   \
    X(SEND_GRADS, send_grads, SEND, GROUP, STAGES, GRADIENTS, SHARD, COUNT, TRAIN)                 \
    X(RECV_GRADS, recv_grads, RECV, GROUP, STAGES, GRADIENTS, COUNT, GRADIENTS, TRAIN)             \
    X(ADD_GRADS, add_grads, SUM, GROUP, NONE, GRADIENTS, GRADIENTS, SHARD, TRAIN)                  \
    /* hybrid sharding: all-reduce of the kept own shard over the copies of the states */          \
    X(SUM_COPIES, sum_copies, ALL_REDUCE, GROUP, COPY, GRADIENTS, COUNT, SHARD, TRAIN)             \
    /* all-reduce of the partial gradients in the kept own shard */                                \
    X(SUM_REPLICATED, sum_replicated, ALL_REDUCE, GROUP, REPLICA, GRADIENTS, COUNT, SHARD, TRAIN)  \
    /* for gradients that leave the device: the own row's squares go into the control vector */    \
    X(SQUARE_GRADS, square_grads, NORM, GROUP, NONE, GRADIENTS, SHARD, COUNT, TRAIN)               \
    /* norm, overflow, loss, stop: one small collective */                                         \
    X(STEP_CONTROL, step_control, EXCHANGE, STEP, WORLD, NONE, COUNT, COUNT, TRAIN)                \
    /* stage 0: all-gather of reduced gradients, one bucket */                                     \
    X(GATHER_GRADS, gather_grads, ALL_GATHER, GROUP, SHARD, GRADIENTS, COUNT, SHARD, TRAIN)        \
    X(OPTIMIZER_STEP, optimizer_step, OPTIMIZER, GROUP, NONE, NONE, COUNT, COUNT, TRAIN)           \
    /* offload: gradients go to host or disk and come back; states come from the disk; the host    \
       steps a piece; its parameters and states go to host or disk */                              \
    X(STORE_GRADS, store_grads, COPY, GROUP, NONE, GRADIENTS, SHARD, OUTPUT, TRAIN)                \
    X(FETCH_GRADS, fetch_grads, COPY, GROUP, NONE, GRADIENTS, INPUT, SHARD, TRAIN)                 \
    X(FETCH_STATES, fetch_states, COPY, GROUP, NONE, STATES, INPUT, OPTIMIZER, TRAIN)              \
    X(HOST_STEP, host_step, HOST_OPTIMIZER, GROUP, NONE, NONE, COUNT, COUNT, TRAIN)                \
    X(STORE_PARAMS, store_params, COPY, GROUP, NONE, PARAMETERS, INPUT, PARAMETERS, TRAIN)         \
    X(STORE_STATES, store_states, COPY, GROUP, NONE, STATES, OPTIMIZER, OUTPUT, TRAIN)             \
    /* evaluate: the loss of all ranks; generation: all stages get the last unit's output */       \
    X(SUM_LOSS, sum_loss, EXCHANGE, STEP, WORLD, NONE, COUNT, COUNT, EVALUATE)                     \
    X(GATHER_OUTPUT, gather_output, RESULT, STEP, STAGES, NONE, INPUT, OUTPUT, GENERATE)

typedef enum z3d_opcode {
#define X(NAME, ...) Z3D_OP_##NAME,
    Z3D_OPCODE_MAP(X)
#undef X
        Z3D_OPCODE_COUNT
} z3d_opcode;

/* The verifier has one dataflow rule for each class. */
typedef enum z3d_opcode_class {
    Z3D_CLASS_MARK,     /* nothing runs; `to` is undefined from here */
    Z3D_CLASS_BEGIN,    /* the host's data and the step state come in */
    Z3D_CLASS_EXCHANGE, /* a small vector is summed over the group while all ranks wait */
    Z3D_CLASS_RESULT,   /* the last unit's output goes to all pipeline stages, and out */
    Z3D_CLASS_FORWARD,  /* a unit runs, with the inner collectives of its recording */
    Z3D_CLASS_BACKWARD,
    Z3D_CLASS_BACKWARD_INPUT,
    Z3D_CLASS_BACKWARD_WEIGHT,
    Z3D_CLASS_COPY, /* copies `from` to `to`: between memory spaces beside compute, or within one */
    Z3D_CLASS_SUM,  /* adds the own row of `from` to that of `to` */
    Z3D_CLASS_NORM, /* adds up squares of `from`'s own row for step_control */
    Z3D_CLASS_OPTIMIZER,
    Z3D_CLASS_HOST_OPTIMIZER, /* on columns of a group, in host memory */
    Z3D_CLASS_ALL_GATHER,     /* these are always started and waited for */
    Z3D_CLASS_REDUCE_SCATTER,
    Z3D_CLASS_ALL_REDUCE,
    Z3D_CLASS_SEND, /* on a lane of their own, first in, first out */
    Z3D_CLASS_RECV,
    Z3D_CLASS_COUNT
} z3d_opcode_class;

typedef enum z3d_opcode_over {
    Z3D_OVER_NONE,
    Z3D_OVER_PARTS, /* Z3D_ROLE_PARTS, Z3D_ROLE_STAGES */
    Z3D_OVER_STAGES,
    Z3D_OVER_WORLD,
    Z3D_OVER_SHARD,  /* the axes that shard its parameter group, or a part of them */
    Z3D_OVER_COPY,   /* the axes along which equal states of the group are kept */
    Z3D_OVER_REPLICA /* the axes over which the group's reduced gradients are summed */
} z3d_opcode_over;

typedef enum z3d_opcode_subject {
    Z3D_SUBJECT_STEP,
    Z3D_SUBJECT_UNIT,
    Z3D_SUBJECT_GROUP
} z3d_opcode_subject;

#endif
