/* Private to src/train: a tape, some training steps of one rank with all data that it received. The
 * same calls record the tape, while the rank runs among others, and play it, while the rank runs
 * alone: playing reads in the order in which recording wrote. */
#ifndef ZERO3D_TRAIN_REPLAY_TAPE_H
#define ZERO3D_TRAIN_REPLAY_TAPE_H

#include "src/train/replay/file.h"
#include "zero/zero.h"

/* The beginning of a tape. */
typedef struct z3d_rank_tape_title {
    int64_t ranks, rank;
    struct {
        int64_t first, last;
    } steps;
    char version[16]; /* of the program */
    char device[104]; /* z3d_device_description */
    int64_t config_bytes;
} z3d_rank_tape_title;

typedef struct z3d_rank_tape {
    z3d_block_file *file;
    bool plays;
    bool ended; /* recording: a write failed; a warning was given, and nothing more is written */
    z3d_rank_tape_title title;
    z3d_engine *engine;
    z3d_group *const *group; /* by set of axes */
    int64_t step, entries;   /* the step that runs; instructions compared so far */
    int64_t vocab_size;      /* of the data: the limit of its tokens */
    /* Playing: called after each instruction whose output was equal to the recorded one. AGAIN ends
     * the step. May be NULL. */
    z3d_status (*finished)(void *context, const z3d_program *program, int index);
    void *context;
} z3d_rank_tape;

/* Writes or reads the title and the text of the configuration; the caller frees *config. */
z3d_status z3d_rank_tape_put_title(z3d_rank_tape *tape, const char *config);
z3d_status z3d_rank_tape_get_title(z3d_rank_tape *tape, char **config);
/* Records or plays the next step. Before the first step the rank's resident state is recorded or
 * loaded; after the last one the end of the tape is written or checked. Playing: the numbers of
 * *input come from the tape; its micro-batches, [accumulation], are overwritten. Recording is
 * collective, as z3d_engine_train_step; playing is not. Errors: the step's; ERR_DATA: the file;
 * ERR_NUMERIC: the output of an instruction or a result differs. */
z3d_status z3d_rank_tape_step(z3d_rank_tape *tape, z3d_step_input *input, z3d_step_result *result);

#endif
