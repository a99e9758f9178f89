/* For models' limits: checks that several of them share. Each reports what is broken to the judge,
 * by its configuration key, and looks only at keys that are sound. */
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
/* Whether the run's ranks, where they are known, have whole groups of this tensor size. */
bool z3d_limits_shares(const z3d_config_judge *judge, int64_t tensor_size);
/* `value` of `key` must divide n, which is `what`. The error names the nearest divisors; of a
 * tensor size, those that divide the ranks. */
void z3d_limits_divisor(const z3d_config_judge *judge, const char *key, int64_t value, int64_t n,
                        const char *what);
/* What sequence parallelism needs. It looks at the sequence, not at a micro-batch's tokens, because
 * generation has one sample. */
void z3d_limits_sequence(const z3d_config_judge *judge, bool sequence_parallel, int64_t seq_length,
                         int tensor_size);
/* The tiles of an MLP of `mlp` elements that model.tiling asks for: auto gives the fewest of at
 * most `attention` elements each. inner: the MLP's width. */
int64_t z3d_tiling_of(const z3d_config *config, int64_t attention, int64_t mlp, int64_t inner);
/* Tiles must share a tensor rank's part of the MLP's width equally, and the units must be
 * countable.
 */
void z3d_limits_tiling(const z3d_config_judge *judge, int64_t tiling, int64_t inner,
                       int tensor_size, int64_t num_layers);
/* Whether a model's number of parameters can be counted: no key that it depends on is broken. */
bool z3d_limits_sizes_sound(const z3d_config_judge *judge);
/* All bytes of the parameters (16 each) and activations are counted in int64_t, so a model beyond
 * that is refused. parameters: INT64_MAX, beyond 64 bits. */
void z3d_limits_size(const z3d_config_judge *judge, int64_t parameters, int64_t num_layers,
                     int64_t hidden_size, int64_t vocab_size);

/* A judge for a model that is created without a configuration: the first limit that does not hold
 * is the error, "<title>: <key>: ...". */
typedef struct z3d_refusal {
    const char *title;
    bool any;
} z3d_refusal;
z3d_config_judge z3d_refusal_judge(z3d_refusal *refusal);

#endif
