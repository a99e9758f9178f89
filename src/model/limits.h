/* Checks that several models share. Each check reports broken limits to the judge, by configuration
 * key, and reads only keys that have no error yet. */
#ifndef ZERO3D_MODEL_LIMITS_H
#define ZERO3D_MODEL_LIMITS_H

#include "src/model/model.h"

bool z3d_limits_sound(const z3d_config_judge *judge, const char *key);
void z3d_limits_complain(const z3d_config_judge *judge, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* `what` is wrong; below and above are the nearest valid numbers (equal: only one). */
void z3d_limits_complain_of(const z3d_config_judge *judge, const char *key, const char *what,
                            int64_t below, int64_t above);

/* An integer's limits: at least `least`; the arithmetic here allows at most 2^24. The table of keys
 * (src/base/config/keys.h) is stricter. */
typedef struct z3d_count_limit {
    const char *key;
    int64_t value, least;
} z3d_count_limit;
void z3d_limits_counts(const z3d_config_judge *judge, const z3d_count_limit *limits, size_t count);
/* A dropout's probability. */
void z3d_limits_dropout(const z3d_config_judge *judge, const char *key, double p);
void z3d_limits_init_std(const z3d_config_judge *judge, double std);
/* Whether this tensor size divides the number of the run's ranks; true if that number is not known.
 */
bool z3d_limits_shares(const z3d_config_judge *judge, int64_t tensor_size);
/* `value` of `key` must divide n, which is `what`. The error names the nearest divisors; of a
 * tensor size, those that divide the ranks. */
void z3d_limits_divisor(const z3d_config_judge *judge, const char *key, int64_t value, int64_t n,
                        const char *what);
/* Sequence parallelism needs a tensor size that divides the sequence. The sequence must be divided,
 * not the tokens of a micro-batch, because generation has one sample. */
void z3d_limits_sequence(const z3d_config_judge *judge, bool sequence_parallel, int64_t seq_length,
                         int tensor_size);
/* The number of tiles that model.tiling sets for an MLP of `mlp` elements and width `inner`. auto:
 * the fewest tiles of at most `attention` elements each. */
int64_t z3d_tiling_of(const z3d_config *config, int64_t attention, int64_t mlp, int64_t inner);
/* The tiles must divide a tensor rank's part of the MLP's width equally, and the number of units
 * must be in range. */
void z3d_limits_tiling(const z3d_config_judge *judge, int64_t tiling, int64_t inner,
                       int tensor_size, int64_t num_layers);
/* Whether the keys that decide a model's number of parameters have no error. */
bool z3d_limits_sizes_sound(const z3d_config_judge *judge);
/* Refuses a model whose bytes of parameters (16 each) and activations exceed int64_t. parameters
 * INT64_MAX: their number already does. */
void z3d_limits_size(const z3d_config_judge *judge, int64_t parameters, int64_t num_layers,
                     int64_t hidden_size, int64_t vocab_size);

/* A judge for a model that is created without a configuration: stores the first broken limit as
 * this thread's error, "<title>: <key>: ...". */
typedef struct z3d_refusal {
    const char *title;
    bool any;
} z3d_refusal;
z3d_config_judge z3d_refusal_judge(z3d_refusal *refusal);

#endif
