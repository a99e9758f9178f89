/* Feeds sequences to the programs of generation. */
#include "src/train/generation/decoder.h"
#include "zero/program.h"

#include <stdlib.h>
#include <string.h>

/* Up to this many tokens are read one by one: a prefill would compute all its rows for them. */
enum { ONE_BY_ONE = 4 };

z3d_status z3d_decoder_create(z3d_engine *engine, z3d_decoder *out) {
    const z3d_program *program = z3d_engine_program(engine, Z3D_MODE_PREFILL);
    *out = (z3d_decoder){.engine = engine};
    if (!program)
        return Z3D_ERROR(Z3D_ERR_USAGE, "this model has no output, so it cannot generate");
    const z3d_model *model = program->model;
    out->batch = z3d_samples_in_caches(&program->config);
    out->positions = z3d_cache_positions(&program->config, model);
    out->tokens = model->tokens;
    out->columns = model->unit[model->num_units - 1].output_elements[Z3D_MODE_DECODE];
    const int64_t prefill = out->tokens[Z3D_MODE_PREFILL];
    size_t logits = (size_t)(out->batch * out->columns);
    Z3D_TRY(z3d_new((size_t)(prefill > out->batch ? prefill : out->batch), sizeof(int32_t),
                    "generation's input", &out->token));
    Z3D_TRY(
        z3d_new((size_t)(2 * out->batch), sizeof(int32_t), "generation's input", &out->position));
    return z3d_new(logits, sizeof(float), "logits", &out->logits);
}

void z3d_decoder_release(z3d_decoder *decoder) {
    free(decoder->token);
    free(decoder->position);
    free(decoder->logits);
}

static int64_t unread(const z3d_sequence *sequence) {
    return sequence ? sequence->length - sequence->read : 0;
}

/* Leaves out the beginning of a text that has become too long. Its other tokens move to other
 * positions, so the model must read them again. */
static void keep_in_sight(const z3d_decoder *d, z3d_sequence *sequence) {
    int64_t kept = d->positions / 2 > 0 ? d->positions / 2 : 1;
    if (!sequence || sequence->length - sequence->base <= d->positions) return;
    sequence->base = sequence->read = sequence->length - kept;
}

/* Sets the input of sample i of `samples`: its next `tokens` tokens. If it has fewer, the cache
 * after them gets values that are overwritten before they are read. Near the last position earlier
 * tokens are read again. */
static void give(z3d_decoder *d, int64_t i, int64_t samples, z3d_sequence *sequence,
                 int64_t tokens) {
    int32_t *to = d->token + i * tokens;
    memset(to, 0, (size_t)tokens * sizeof *to);
    d->position[i] = d->position[samples + i] = 0;
    if (!sequence) return;
    int64_t start = sequence->read - sequence->base, left = d->positions - tokens;
    if (start > left) start = left;
    int64_t known = sequence->length - sequence->base - start;
    if (known > tokens) known = tokens;
    memcpy(to, sequence->token + sequence->base + start, (size_t)known * sizeof *to);
    d->position[i] = (int32_t)start;
    d->position[samples + i] = (int32_t)(known > 0 ? known - 1 : 0);
    if (sequence->base + start + known > sequence->read)
        sequence->read = sequence->base + start + known;
}

/* The sequence with the most unread tokens. */
static int64_t longest(const z3d_decoder *d, z3d_sequence *const *sequence) {
    int64_t most = 0;
    for (int64_t i = 1; i < d->batch; i++)
        if (unread(sequence[i]) > unread(sequence[most])) most = i;
    return most;
}

void z3d_decoder_count(z3d_decoder_work *work, int64_t unread) {
    work->sequences += unread > 0;
    work->waiting += unread > ONE_BY_ONE;
    if (unread > work->unread) work->unread = unread;
}

z3d_decoder_work z3d_decoder_look(const z3d_decoder *d, z3d_sequence *const *sequence) {
    z3d_decoder_work work = {0};
    for (int64_t i = 0; i < d->batch; i++) {
        keep_in_sight(d, sequence[i]);
        z3d_decoder_count(&work, unread(sequence[i]));
    }
    return work;
}

/* A short prefill costs about as much as a decode of many samples. A long prefill costs as much as
 * the short ones that read half of its tokens. */
z3d_mode z3d_decoder_mode(const z3d_decoder *d, const z3d_decoder_work *work) {
    if (work->unread <= ONE_BY_ONE || work->unread <= work->waiting) return Z3D_MODE_DECODE;
    return 2 * work->unread > d->tokens[Z3D_MODE_PREFILL] ? Z3D_MODE_PREFILL
                                                          : Z3D_MODE_PREFILL_SHORT;
}

z3d_status z3d_decoder_read(z3d_decoder *d, z3d_mode mode, z3d_sequence *const *sequence) {
    const int64_t tokens = d->tokens[mode], one = longest(d, sequence);
    if (mode == Z3D_MODE_DECODE) {
        for (int64_t i = 0; i < d->batch; i++) give(d, i, d->batch, sequence[i], tokens);
        return z3d_engine_generate(d->engine, mode, 0, d->token, d->position, d->logits);
    }
    give(d, 0, 1, sequence[one], tokens);
    return z3d_engine_generate(d->engine, mode, one, d->token, d->position,
                               d->logits + one * d->columns);
}
