/* Private to src/train: some training steps of one rank with all that came into it. The same calls
 * write a tape, while the rank runs among others, and play it, while it runs alone: what is written
 * on one side is expected on the other. */
#ifndef ZERO3D_TRAIN_REPLAY_TAPE_H
#define ZERO3D_TRAIN_REPLAY_TAPE_H

#include "src/train/replay/file.h"
#include "zero/zero.h"

typedef struct z3d_rank_tape_steps {
    int64_t first, last; /* steps */
} z3d_rank_tape_steps;

/* What a tape says first. */
typedef struct z3d_rank_tape_title {
    int64_t ranks, rank;
    z3d_rank_tape_steps steps;
    char version[16]; /* of the program */
    char device[104]; /* z3d_device_description */
    int64_t config_bytes;
} z3d_rank_tape_title;

typedef struct z3d_rank_tape {
    z3d_block_file *file;
    bool plays;
    bool ended; /* recording: it cannot be written any more, which was warned of */
    z3d_rank_tape_title title;
    z3d_engine *engine;
    z3d_group *const *group; /* by set of axes */
    int64_t step, entries;   /* under way; instructions compared */
    int64_t vocab_size;      /* of the data */
    /* Playing: sees each instruction that is over and as it was. AGAIN ends the step. NULL: none.
     */
    z3d_status (*finished)(void *context, const z3d_program *program, int index);
    void *context;
} z3d_rank_tape;

/* Writes or reads the title and the configuration's text, which is the caller's to free. */
z3d_status z3d_rank_tape_put_title(z3d_rank_tape *tape, const char *config);
z3d_status z3d_rank_tape_get_title(z3d_rank_tape *tape, char **config);
/* Runs the next step, with what the rank keeps in front of the first; and the tape's end behind the
 * last. Playing: *input's numbers come from the tape; its micro-batches are memory of
 * [accumulation], written to. Errors: the step's; ERR_DATA of the file; ERR_NUMERIC: an instruction
 * has written something else, or a result differs. */
z3d_status z3d_rank_tape_step(z3d_rank_tape *tape, z3d_step_input *input, z3d_step_result *result);

#endif
