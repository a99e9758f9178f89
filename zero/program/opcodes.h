/* The one table of instructions. The verifier, the play of all ranks, the printer, digests, the
 * watchdog and the executor read what an instruction is here; only the builder, which places it,
 * and the executor's function, which runs it, know it by name.
 *
 *   X(NAME, name, rules, subject, axis, moves, slot, writes, modes)
 *
 * rules: its class, which says what must hold for it. subject: what it is about. axis: the group of
 * its collective. moves: whose data it moves, and so of which type. slot: the buffer that a
 * collective works in. writes: the buffers that hold something new behind it, for digests. modes:
 * the programs that may have it. */
#ifndef ZERO3D_ZERO_OPCODES_H
#define ZERO3D_ZERO_OPCODES_H

#define Z3D_OPCODE_MAP(X)                                                                          \
    /* learning rate, seeds, zeroed sums into the step state */                                    \
    X(STEP_BEGIN, step_begin, CONTROL, STEP, WORLD, NONE, COUNT, 0, ANY)                           \
    /* all-gather of group g's shards, one bucket */                                               \
    X(GATHER_PARAMS, gather_params, ALL_GATHER, GROUP, DATA, PARAMETERS, PARAMETERS, 0, ANY)       \
    /* the gathered buffer is dead from here */                                                    \
    X(RELEASE_PARAMS, release_params, MARK, GROUP, WORLD, NONE, COUNT, 0, ANY)                     \
    X(FORWARD, forward, UNIT, UNIT, TENSOR, NONE, COUNT, Z3D_WRITES_FORWARD, ANY)                  \
    /* unit u's input is kept as the activation checkpoint, and brought back */                    \
    X(SAVE_INPUT, save_input, COPY, UNIT, WORLD, ACTIVATIONS, OUTPUT, 0, TRAIN)                    \
    X(LOAD_INPUT, load_input, COPY, UNIT, WORLD, ACTIVATIONS, OUTPUT, 0, TRAIN)                    \
    /* all-gather of its parts on the tensor ranks */                                              \
    X(GATHER_INPUT, gather_input, ALL_GATHER, UNIT, TENSOR, ACTIVATIONS, OUTPUT, 0, TRAIN)         \
    X(RECOMPUTE, recompute, UNIT, UNIT, TENSOR, NONE, COUNT, Z3D_WRITES_FORWARD, TRAIN)            \
    X(BACKWARD, backward, UNIT, UNIT, TENSOR, NONE, COUNT, Z3D_WRITES_BACKWARD, TRAIN)             \
    /* reduce-scatter of group g's gradients, one bucket */                                        \
    X(REDUCE_GRADS, reduce_grads, REDUCE_SCATTER, GROUP, DATA, GRADIENTS, GRADIENTS, 0, TRAIN)     \
    /* the reduced own shard is added to the gradients kept */                                     \
    X(KEEP_SHARD, keep_shard, SUM, GROUP, WORLD, GRADIENTS, COUNT, Z3D_WRITES_SHARD, TRAIN)        \
    /* all-reduce of the kept own shard's part that is of group g's replicated parameters */       \
    X(SUM_REPLICATED, sum_replicated, ALL_REDUCE, GROUP, TENSOR, GRADIENTS, SHARD, 0, TRAIN)       \
    /* norm, overflow, loss, stop: one small collective */                                         \
    X(STEP_CONTROL, step_control, EXCHANGE, STEP, WORLD, NONE, COUNT, 0, TRAIN)                    \
    /* stage 0: all-gather of reduced gradients, one bucket */                                     \
    X(GATHER_GRADS, gather_grads, ALL_GATHER, GROUP, DATA, GRADIENTS, SHARD, 0, TRAIN)             \
    X(OPTIMIZER_STEP, optimizer_step, OPTIMIZER, GROUP, WORLD, NONE, COUNT, Z3D_WRITES_STEP,       \
      TRAIN)                                                                                       \
    /* evaluate: the loss of all ranks; generate: the last unit's output is handed over */         \
    X(SUM_LOSS, sum_loss, EXCHANGE, STEP, WORLD, NONE, COUNT, 0, EVALUATE)                         \
    X(GATHER_OUTPUT, gather_output, CONTROL, STEP, WORLD, NONE, COUNT, 0, GENERATE)

typedef enum z3d_opcode {
#define X(NAME, ...) Z3D_OP_##NAME,
    Z3D_OPCODE_MAP(X)
#undef X
        Z3D_OPCODE_COUNT
} z3d_opcode;

typedef enum z3d_opcode_class {
    Z3D_CLASS_MARK,     /* nothing runs */
    Z3D_CLASS_CONTROL,  /* the step state and the host */
    Z3D_CLASS_EXCHANGE, /* a small vector is added up over the group while everybody waits */
    Z3D_CLASS_UNIT,     /* a unit runs, with the inner collectives of its recording */
    Z3D_CLASS_COPY,     /* between memory spaces, beside compute, or within one */
    Z3D_CLASS_SUM,
    Z3D_CLASS_OPTIMIZER,
    Z3D_CLASS_ALL_GATHER, /* these three are always started and waited for */
    Z3D_CLASS_REDUCE_SCATTER,
    Z3D_CLASS_ALL_REDUCE
} z3d_opcode_class;

typedef enum z3d_opcode_subject {
    Z3D_SUBJECT_STEP,
    Z3D_SUBJECT_UNIT,
    Z3D_SUBJECT_GROUP
} z3d_opcode_subject;

#endif
