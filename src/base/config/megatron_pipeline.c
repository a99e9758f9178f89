/* Megatron-LM's pipelines: every chunk has equally many layers, and the embedding and the head come
 * on top unless they count as layers. Its split becomes a list of units per chunk. */
#include "src/base/config/megatron.h"

#include <stdio.h>

#define EMBEDDING "account-for-embedding-in-pipeline-split"
#define LOSS "account-for-loss-in-pipeline-split"
#define FIRST "decoder-first-pipeline-num-layers"
#define LAST "decoder-last-pipeline-num-layers"
#define LAYERS "num-layers-per-virtual-pipeline-stage"
#define CHUNKS "num-virtual-stages-per-pipeline-rank"
#define GROUP "microbatch-group-size-per-virtual-pipeline-stage"

static const char partition[] = "parallel.pipeline_partition",
                  chunks_key[] = "parallel.virtual_pipeline_model_parallel_size";

/* How layers are split. A stage's share is -1 where it does not divide. */
typedef struct split {
    int64_t layers, stages, chunks; /* chunks: per stage */
    int64_t first, middle, last;    /* layers of a stage, with what counts as one */
    bool embedding, loss;           /* count as layers */
    bool uneven;
} split;

static bool number_of(const megatron_text *text, const char *name, int64_t *out) {
    const char *value = megatron_value(text, name);
    return value && z3d_parse_int(value, out) == Z3D_OK;
}

static void row(config_conversion *v, config_verdict verdict, const char *name, const char *what) {
    char flag[80];
    snprintf(flag, sizeof flag, "--%.70s", name);
    config_report_add(&v->report, verdict, flag, "%s", what);
}

static void row_if_given(config_conversion *v, const megatron_text *text, config_verdict verdict,
                         const char *name, const char *what) {
    if (megatron_value(text, name)) row(v, verdict, name, what);
}

/* The layers of the first stage, of the last, and of each between. */
static void share_layers(const megatron_text *text, split *s) {
    int64_t rest = s->layers, stages = s->stages;
    bool first = number_of(text, FIRST, &s->first), last = number_of(text, LAST, &s->last);
    s->embedding = megatron_value(text, EMBEDDING) != NULL;
    s->loss = megatron_value(text, LOSS) != NULL;
    s->uneven = first || last;
    rest += s->embedding + s->loss - (first ? s->first : 0) - (last ? s->last : 0);
    stages -= first + last;
    bool fits = stages > 0 ? rest > 0 && rest % stages == 0 : rest == 0;
    s->middle = fits && stages > 0 ? rest / stages : -1;
    if (!first || !fits) s->first = s->middle;
    if (!last || !fits) s->last = s->middle;
}

/* "[3, 2, 3]"; false: a chunk's layers are no number above 0. */
static bool append_units(const split *s, z3d_string *out) {
    const int64_t all = s->stages * s->chunks;
    for (int64_t i = 0; i < all; i++) {
        int64_t stage = i % s->stages, share = stage == 0               ? s->first
                                               : stage == s->stages - 1 ? s->last
                                                                        : s->middle;
        if (share < s->chunks || share % s->chunks != 0) return false;
        int64_t units = share / s->chunks + (i == 0 && !s->embedding) + (i == all - 1 && !s->loss);
        z3d_string_append(out, "%s%lld", i ? ", " : "[", (long long)units);
    }
    z3d_string_append(out, "]");
    return !out->failed;
}

static void take_chunks(config_conversion *v, const megatron_text *text, split *s) {
    char number[24];
    int64_t layers;
    const char *given = megatron_value(text, CHUNKS);
    s->chunks = 1;
    if (given) {
        config_take(v, "--" CHUNKS, chunks_key, given);
        row_if_given(v, text, CONFIG_REFUSED, LAYERS, "--" CHUNKS " is given; leave it out");
    } else if (megatron_value(text, LAYERS)) {
        if (!number_of(text, LAYERS, &layers) || layers < 1 || s->uneven || s->middle < 1 ||
            s->middle % layers != 0) {
            row(v, CONFIG_REFUSED, LAYERS,
                "it does not divide a stage's layers; write the number of chunks per stage in "
                "parallel.virtual_pipeline_model_parallel_size");
            return;
        }
        snprintf(number, sizeof number, "%lld", (long long)(s->middle / layers));
        config_take(v, "--" LAYERS, chunks_key, number);
    }
    s->chunks = v->config->parallel_virtual_pipeline_model_parallel_size;
}

static void take_split(config_conversion *v, const megatron_text *text, const split *s) {
    static const char *const flags[] = {EMBEDDING, LOSS, FIRST, LAST};
    const size_t count = sizeof flags / sizeof *flags;
    z3d_string units = {0};
    bool fits = s->stages * s->chunks <= Z3D_CONFIG_MAX_CHUNKS && append_units(s, &units);
    if (fits) {
        config_take_default(v, partition, units.text, "Megatron-LM's split");
        for (size_t i = 0; i < count; i++) row_if_given(v, text, CONFIG_TAKEN, flags[i], partition);
    } else {
        row(v, CONFIG_REFUSED, "pipeline-model-parallel-size",
            "the layers do not divide into these chunks; parallel.pipeline_partition is time, "
            "which splits any number of layers");
        for (size_t i = 0; i < count; i++)
            row_if_given(v, text, CONFIG_REFUSED, flags[i],
                         "write the units of each chunk in parallel.pipeline_partition");
    }
    z3d_string_free(&units);
}

/* Each micro-batch's group is as large as the pipeline. */
static void check_group(config_conversion *v, const megatron_text *text, const split *s) {
    int64_t group;
    if (!megatron_value(text, GROUP)) return;
    bool same = number_of(text, GROUP, &group) && group == s->stages;
    row(v, same ? CONFIG_TAKEN : CONFIG_REFUSED, GROUP,
        same ? "same as zero3d" : "it is the number of pipeline stages here; write that");
}

void megatron_convert_pipeline(config_conversion *v, const megatron_text *text) {
    static const char *const flags[] = {EMBEDDING, LOSS, FIRST, LAST, LAYERS, CHUNKS, GROUP};
    split s = {.layers = v->config->model_num_layers,
               .stages = v->config->parallel_pipeline_model_parallel_size};
    row_if_given(v, text, s.stages == 1 ? CONFIG_TAKEN : CONFIG_REFUSED, "no-pipeline-parallel",
                 s.stages == 1 ? "same as zero3d"
                               : "--pipeline-model-parallel-size says otherwise; leave out one");
    if (s.stages == 1) {
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
            row_if_given(v, text, CONFIG_NO_EFFECT, flags[i], "there is one pipeline stage");
        return;
    }
    share_layers(text, &s);
    take_chunks(v, text, &s);
    check_group(v, text, &s);
    if (megatron_value(text, "num-layers")) take_split(v, text, &s);
}
