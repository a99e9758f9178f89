/* Megatron-LM's pipelines: every chunk has the same number of layers; embedding and head are extra,
 * or count as layers. The split becomes a list of units per chunk. */
#include "src/base/config/convert/megatron.h"

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

/* How layers are split. A pipeline stage's share is -1 if the layers do not divide. */
typedef struct split {
    int64_t layers, stages, chunks; /* chunks: per stage */
    int64_t first, middle, last; /* layers of the first, each middle and the last pipeline stage */
    bool embedding, loss;        /* count as layers */
    bool uneven;
} split;

static bool layers_of(const megatron_converter *m, const char *name, int64_t *out) {
    const char *value = megatron_value(&m->text, name);
    return value && z3d_parse_int(value, out) == Z3D_OK;
}

/* Finds the layers of the first, the last and each middle pipeline stage. */
static void share_layers(const megatron_converter *m, split *s) {
    int64_t rest = s->layers, stages = s->stages;
    bool first = layers_of(m, FIRST, &s->first), last = layers_of(m, LAST, &s->last);
    s->embedding = megatron_has(m, EMBEDDING);
    s->loss = megatron_has(m, LOSS);
    s->uneven = first || last;
    rest += s->embedding + s->loss - (first ? s->first : 0) - (last ? s->last : 0);
    stages -= first + last;
    bool fits = stages > 0 ? rest > 0 && rest % stages == 0 : rest == 0;
    s->middle = fits && stages > 0 ? rest / stages : -1;
    if (!first || !fits) s->first = s->middle;
    if (!last || !fits) s->last = s->middle;
}

/* Appends "[3, 2, 3]"; false: the layers do not divide over the chunks. */
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

static void take_chunks(megatron_converter *m, split *s) {
    char number[24];
    int64_t layers;
    const char *given = megatron_value(&m->text, CHUNKS);
    s->chunks = 1;
    if (given) {
        config_take(&m->v, "--" CHUNKS, chunks_key, given);
        megatron_rows(m, CONFIG_REFUSED, LAYERS, "--" CHUNKS " is given; leave it out");
    } else if (megatron_value(&m->text, LAYERS)) {
        if (!layers_of(m, LAYERS, &layers) || layers < 1 || s->uneven || s->middle < 1 ||
            s->middle % layers != 0) {
            megatron_row(m, CONFIG_REFUSED, LAYERS,
                         "it does not divide the layers of a pipeline stage; write the number of "
                         "chunks per stage in parallel.virtual_pipeline_model_parallel_size");
            return;
        }
        snprintf(number, sizeof number, "%lld", (long long)(s->middle / layers));
        config_take(&m->v, "--" LAYERS, chunks_key, number);
    }
    s->chunks = m->v.config->parallel_virtual_pipeline_model_parallel_size;
}

static void take_split(megatron_converter *m, const split *s) {
    static const char flags[] = EMBEDDING " " LOSS " " FIRST " " LAST;
    z3d_string units = {0};
    bool fits = s->stages * s->chunks <= Z3D_MAX_CHUNKS && append_units(s, &units);
    if (fits) {
        config_take_default(&m->v, partition, units.text, "Megatron-LM's split");
        megatron_rows(m, CONFIG_TAKEN, flags, partition);
    } else {
        megatron_row(m, CONFIG_REFUSED, "pipeline-model-parallel-size",
                     "the layers do not divide over these chunks; parallel.pipeline_partition "
                     "time splits any number of layers");
        megatron_rows(m, CONFIG_REFUSED, flags,
                      "write the units of each chunk in parallel.pipeline_partition");
    }
    z3d_string_free(&units);
}

/* A group always has as many micro-batches as there are pipeline stages. */
static void check_group(megatron_converter *m, const split *s) {
    int64_t group;
    megatron_must(m, GROUP, layers_of(m, GROUP, &group) && group == s->stages,
                  "it is the number of pipeline stages here; write that");
}

void megatron_convert_pipeline(megatron_converter *m) {
    split s = {.layers = m->v.config->model_num_layers,
               .stages = m->v.config->parallel_pipeline_model_parallel_size};
    megatron_must(m, "no-pipeline-parallel", s.stages == 1,
                  "--pipeline-model-parallel-size says otherwise; leave out one");
    if (s.stages == 1)
        return megatron_rows(m, CONFIG_NO_EFFECT,
                             EMBEDDING " " LOSS " " FIRST " " LAST " " LAYERS " " CHUNKS " " GROUP,
                             "there is one pipeline stage");
    share_layers(m, &s);
    take_chunks(m, &s);
    check_group(m, &s);
    if (megatron_value(&m->text, "num-layers")) take_split(m, &s);
}
