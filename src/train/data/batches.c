/* The samples that this rank reads. Their positions in the global batch do not depend on how the
 * batch is divided. */
#include <stdlib.h>

#include "src/base/xxh3.h"
#include "src/train/trainer.h"

/* The memory for a sample's positions; NULL: they are not needed. */
static int32_t *positions_at(const z3d_trainer *trainer, int64_t at) {
    return trainer->positions ? trainer->positions + at : NULL;
}

z3d_status z3d_trainer_read_step(z3d_trainer *trainer, int64_t step) {
    const z3d_config *config = trainer->config;
    int64_t rows = z3d_samples_of(&trainer->program, &trainer->mesh),
            before = z3d_samples_before(&trainer->program, &trainer->mesh),
            all = z3d_samples_in_all(&trainer->program, &trainer->mesh);
    int64_t seq = config->model_seq_length;
    int64_t base = (step - 1) * config->train_batch_size;
    for (int64_t micro = 0; micro < trainer->program.accumulation; micro++)
        for (int64_t row = 0; row < rows; row++) {
            int64_t position = micro * all + before + row;
            int64_t at = (micro * rows + row) * seq;
            Z3D_TRY(z3d_dataset_read(trainer->train, base + position, trainer->tokens + at,
                                     trainer->targets + at, positions_at(trainer, at)));
        }
    return Z3D_OK;
}

/* The number of windows to read from one file: eval_steps batches of train_batch_size, or all. */
static int64_t validation_windows(const z3d_trainer *trainer, int64_t windows) {
    int64_t wanted;
    if (!z3d_mul_i64(trainer->config->training_eval_steps, trainer->config->train_batch_size,
                     &wanted))
        return windows;
    return wanted < windows ? wanted : windows;
}

/* Spreads the windows evenly over the file. Computed in 128 bits, because the product may exceed
 * 2^63. */
static int64_t spread(int64_t index, int64_t windows, int64_t wanted) {
    return (int64_t)((__int128)index * windows / wanted);
}

int64_t z3d_trainer_validation_calls(const z3d_trainer *trainer, int file) {
    int64_t per_call = z3d_samples_in_all(&trainer->program, &trainer->mesh), unused;
    int64_t windows = z3d_dataset_file_windows(trainer->validation, file, &unused);
    return (validation_windows(trainer, windows) + per_call - 1) / per_call;
}

bool z3d_trainer_validation_is_cut(const z3d_trainer *trainer) {
    int64_t unused;
    bool cut = false;
    for (int file = 0; file < trainer->config->data_validation.count; file++) {
        const int64_t windows = z3d_dataset_file_windows(trainer->validation, file, &unused);
        cut |= validation_windows(trainer, windows) < windows;
    }
    return cut;
}

z3d_status z3d_trainer_read_validation(z3d_trainer *trainer, int file, int64_t call) {
    int64_t rows = z3d_samples_of(&trainer->program, &trainer->mesh),
            seq = trainer->config->model_seq_length;
    int64_t begin, windows = z3d_dataset_file_windows(trainer->validation, file, &begin),
                   wanted = validation_windows(trainer, windows);
    int64_t first = call * z3d_samples_in_all(&trainer->program, &trainer->mesh) +
                    z3d_samples_before(&trainer->program, &trainer->mesh);
    for (int64_t row = 0; row < rows; row++) {
        int64_t index = first + row;
        /* For index -1 all targets of the row are ignored. */
        int64_t window = index < wanted ? begin + spread(index, windows, wanted) : (int64_t)-1;
        Z3D_TRY(z3d_dataset_window(trainer->validation, window, trainer->tokens + row * seq,
                                   trainer->targets + row * seq, positions_at(trainer, row * seq)));
    }
    return Z3D_OK;
}

/* Adds the digest of one file. row: scratch, [2 x seq]. */
static z3d_status digest_file(const z3d_trainer *trainer, int file, int32_t *row,
                              uint64_t *digest) {
    const int64_t seq = trainer->config->model_seq_length;
    const size_t bytes = 2 * (size_t)seq * sizeof *row;
    int64_t begin, windows = z3d_dataset_file_windows(trainer->validation, file, &begin),
                   wanted = validation_windows(trainer, windows);
    const double weight = trainer->config->data_validation.weight[file];
    *digest = XXH3_64bits_withSeed(&weight, sizeof weight, *digest);
    for (int64_t i = 0; i < wanted; i++) {
        Z3D_TRY(z3d_dataset_window(trainer->validation, begin + spread(i, windows, wanted), row,
                                   row + seq, NULL));
        *digest = XXH3_64bits_withSeed(row, bytes, *digest);
    }
    return Z3D_OK;
}

z3d_status z3d_trainer_digest_validation(const z3d_trainer *trainer, int64_t *out) {
    enum { BITS = 53 };
    uint64_t digest = 0;
    int32_t *row;
    Z3D_TRY(z3d_new(2 * (size_t)trainer->config->model_seq_length, sizeof *row, "samples", &row));
    z3d_status status = Z3D_OK;
    for (int i = 0; i < trainer->config->data_validation.count && status == Z3D_OK; i++)
        status = digest_file(trainer, i, row, &digest);
    free(row);
    *out = (int64_t)(digest >> (64 - BITS)) | 1;
    return status;
}
