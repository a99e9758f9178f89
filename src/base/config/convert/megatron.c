/* Converts Megatron-LM's arguments to our configuration, with Megatron-LM's defaults. */
#include "src/base/config/convert/megatron.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIGH_SCALE_POWER = 24 };

/* Megatron-LM ignores the flags of another optimizer. */
static void report_unread(megatron_converter *m, const char *name) {
    const z3d_optimizer optimizer = (z3d_optimizer)m->v.config->optimizer_type;
    char why[64];
    snprintf(why, sizeof why, "%s does not read it", z3d_optimizer_name(optimizer));
    megatron_rows(m, CONFIG_NO_EFFECT, name, why);
}

static bool is_read(megatron_converter *m, const char *name, const char *path) {
    const bool reads = z3d_optimizer_reads((z3d_optimizer)m->v.config->optimizer_type, path);
    if (!reads) report_unread(m, name);
    return reads;
}

/* Each optimizer has its own flags and defaults. */
static void convert_betas(megatron_converter *m) {
    static const char path[] = "optimizer.params.betas";
    static const struct {
        z3d_optimizer optimizer;
        const char *flag[2], *usual[2];
    } all[] = {
        {Z3D_OPTIMIZER_adamw, {"adam-beta1", "adam-beta2"}, {"0.9", "0.999"}},
        {Z3D_OPTIMIZER_lion, {"lion-beta1", "lion-beta2"}, {"0.95", "0.98"}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *const *flag = all[i].flag;
        const char *beta1 = megatron_value(&m->text, flag[0]),
                   *beta2 = megatron_value(&m->text, flag[1]);
        char betas[128], name[80];
        if ((int)all[i].optimizer != m->v.config->optimizer_type) {
            for (int k = 0; k < 2; k++) report_unread(m, flag[k]);
            continue;
        }
        snprintf(betas, sizeof betas, "[%.50s, %.50s]", beta1 ? beta1 : all[i].usual[0],
                 beta2 ? beta2 : all[i].usual[1]);
        snprintf(name, sizeof name, "--%s", flag[beta1 ? 0 : 1]);
        if (beta1 || beta2)
            config_take(&m->v, name, path, betas);
        else
            config_take_default(&m->v, path, betas, megatron_default);
        if (beta1 && beta2) megatron_row(m, CONFIG_TAKEN, flag[1], path);
    }
}

/* The moments' types: fp32, or bf16 for both. */
static void convert_moments(megatron_converter *m) {
    static const char *const types[][2] = {
        {"exp-avg-dtype", "optimizer.params.exp_avg_dtype"},
        {"exp-avg-sq-dtype", "optimizer.params.exp_avg_sq_dtype"}};
    for (size_t i = 0; i < 2; i++) {
        const char *type = megatron_value(&m->text, types[i][0]);
        if (!type || !is_read(m, types[i][0], types[i][1])) continue;
        if (strcmp(type, "fp32") == 0 || strcmp(type, "bf16") == 0)
            megatron_take(m, types[i][0], types[i][1]);
        else
            megatron_row(m, CONFIG_REFUSED, types[i][0], "write fp32, or bf16 for both moments");
    }
}

static void convert_optimizer_type(megatron_converter *m) {
    static const char *const types[][2] = {{"sgd", "SGD"}, {"lion", "Lion"}};
    const char *type = megatron_value(&m->text, "optimizer");
    const char *own = megatron_choice(m, "optimizer", types, sizeof types / sizeof *types);
    if (own) return config_take(&m->v, "--optimizer", "optimizer.type", own);
    if (!type) return;
    const bool adam = strcmp(type, "adam") == 0;
    megatron_row(m, adam ? CONFIG_TAKEN : CONFIG_REFUSED, "optimizer",
                 adam                             ? "optimizer.type: AdamW"
                 : z3d_optimizer_is_planned(type) ? "it is not built yet; write adam, sgd or lion"
                                                  : "write adam, sgd or lion");
}

/* Accepts only a constant weight decay. */
static void convert_decay(megatron_converter *m) {
    static const char *const ends[] = {"start-weight-decay", "end-weight-decay"};
    static const char changes[] = "the weight decay is fixed here: the run differs";
    const char *style = megatron_value(&m->text, "weight-decay-incr-style");
    double decay, end;
    for (size_t i = 0; i < 2; i++) {
        bool same = megatron_number(m, ends[i], &end) &&
                    megatron_number(m, "weight-decay", &decay) && end == decay;
        megatron_rows(m, same ? CONFIG_TAKEN : CONFIG_REFUSED, ends[i],
                      same ? "same as --weight-decay" : changes);
    }
    megatron_must(m, "weight-decay-incr-style", style && strcmp(style, "constant") == 0, changes);
}

static void convert_optimizer(megatron_converter *m) {
    static const char *const own[][2] = {{"adam-eps", "optimizer.params.eps"},
                                         {"sgd-momentum", "optimizer.params.momentum"}};
    convert_optimizer_type(m);
    convert_betas(m);
    convert_moments(m);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (is_read(m, own[i][0], own[i][1])) megatron_take(m, own[i][0], own[i][1]);
    if (!megatron_is_given(m, "weight-decay"))
        config_take_default(&m->v, "optimizer.params.weight_decay", "0.01", megatron_default);
    if (!megatron_is_given(m, "clip-grad"))
        config_take_default(&m->v, "gradient_clipping", "1", megatron_default);
    if (!megatron_is_given(m, "lr"))
        megatron_row(m, CONFIG_DIFFERENT, "lr", "not given; write optimizer.params.lr");
    if (!megatron_is_given(m, "log-interval"))
        config_take_default(&m->v, "training.log_interval", "100", megatron_default);
    convert_decay(m);
    megatron_convert_schedule(m);
}

static void convert_first_scale(megatron_converter *m) {
    double first = 4294967296.0;
    int power = 0;
    char text[24];
    bool given = megatron_number(m, "initial-loss-scale", &first);
    bool exact = first >= 1 && frexp(first, &power) == 0.5;
    snprintf(text, sizeof text, "%d", power - 1);
    if (!exact)
        megatron_row(m, CONFIG_REFUSED, "initial-loss-scale", "write a power of 2");
    else if (given)
        config_take(&m->v, "--initial-loss-scale", "fp16.initial_scale_power", text);
    else
        config_take_default(&m->v, "fp16.initial_scale_power", text, megatron_default);
    if (exact && power - 1 >= HIGH_SCALE_POWER)
        megatron_row(m, CONFIG_DIFFERENT, "initial-loss-scale",
                     "the first steps are skipped until the loss scale has fallen, about 16 steps "
                     "from 2^32; fp16.initial_scale_power 16 avoids this");
}

static void convert_precision(megatron_converter *m) {
    bool fp16 = megatron_has(m, "fp16"), fixed = megatron_has(m, "loss-scale");
    static const char sums[] = "accumulate-allreduce-grads-in-fp32",
                      type[] = "data_types.grad_accum_dtype";
    if (fp16 && fixed) megatron_take(m, "loss-scale", "fp16.loss_scale");
    if (fp16 && !fixed) {
        convert_first_scale(m);
        megatron_take(m, "loss-scale-window", "fp16.loss_scale_window");
        megatron_take_as(m, "hysteresis", "fp16.hysteresis", /* 0 and 1: at once */
                         megatron_counts(m, "hysteresis") ? NULL : "1");
        megatron_take(m, "min-loss-scale", "fp16.min_loss_scale");
    } else {
        megatron_rows(m, CONFIG_NO_EFFECT,
                      "initial-loss-scale loss-scale-window hysteresis min-loss-scale",
                      fp16 ? "the loss scale is fixed" : "it is for --fp16");
        if (!fp16) megatron_rows(m, CONFIG_NO_EFFECT, "loss-scale", "it is for --fp16");
    }
    if (!fp16 && !megatron_has(m, "bf16"))
        megatron_rows(m, CONFIG_TAKEN, sums, "always so in an fp32 run");
    else if (!megatron_take_as(m, sums, type, "fp32") && megatron_has(m, "bf16"))
        config_take_default(&m->v, type, "fp32", megatron_default);
}

static void convert_offload(megatron_converter *m) {
    megatron_take_as(m, "optimizer-cpu-offload", "zero_optimization.offload_optimizer.device",
                     "cpu");
    megatron_take(m, "remote-device", "zero_optimization.offload_param.device");
}

static void convert_zero(megatron_converter *m) {
    static const char *const strategies[][2] = {
        {"no_shard", "0"}, {"optim", "1"}, {"optim_grads", "2"}, {"optim_grads_params", "3"}};
    static const char key[] = "zero_optimization.stage", name[] = "data-parallel-sharding-strategy";
    const char *stage =
        megatron_choice(m, name, strategies, sizeof strategies / sizeof *strategies);
    const bool whole = megatron_has(m, "use-megatron-fsdp") || megatron_has(m, "use-custom-fsdp") ||
                       megatron_has(m, "use-torch-fsdp2");
    if (megatron_take(m, "zero-stage", key) || megatron_is_unknown(&m->text, "zero-stage")) {
        convert_offload(m);
        return;
    }
    megatron_rows(m, CONFIG_TAKEN,
                  "use-megatron-fsdp use-custom-fsdp use-torch-fsdp2 use-distributed-optimizer",
                  key);
    convert_offload(m);
    if (!whole)
        megatron_rows(m, CONFIG_NO_EFFECT, name, "it is for --use-megatron-fsdp");
    else if (stage)
        return config_take(&m->v, "--data-parallel-sharding-strategy", key, stage);
    else
        megatron_rows(m, CONFIG_REFUSED, name,
                      "write no_shard, optim, optim_grads or optim_grads_params");
    if (whole || megatron_has(m, "use-distributed-optimizer"))
        config_take_quietly(&m->v, key, whole ? "3" : "1");
    else
        config_take_default(&m->v, key, "0", megatron_default);
}

/* The blocks that are recomputed, and the layers that share a checkpoint. */
static void convert_recompute_layers(megatron_converter *m, bool full) {
    static const char idle[] = "it is for --recompute-granularity full";
    static const char number[] = "recompute-num-layers", method_name[] = "recompute-method";
    const char *method = megatron_value(&m->text, method_name);
    double every = 1, layers = 0;
    char text[24];
    const bool counted = megatron_number(m, number, &every),
               known = megatron_number(m, "num-layers", &layers);
    const bool block = method && strcmp(method, "block") == 0;
    const bool all = block && counted && known && every >= layers;
    if (method)
        megatron_row(m,
                     !full           ? CONFIG_NO_EFFECT
                     : block && !all ? CONFIG_REFUSED
                                     : CONFIG_TAKEN,
                     method_name,
                     !full   ? idle
                     : all   ? "every block is recomputed"
                     : block ? "every block is recomputed here; write uniform"
                             : "same as zero3d");
    if (counted && !full) {
        megatron_row(m, CONFIG_NO_EFFECT, number, idle);
    } else if (counted && block && !all) {
        megatron_row(m, CONFIG_REFUSED, number, "it is for --recompute-method block");
    } else if (counted && (block || every <= 1)) {
        megatron_row(m, CONFIG_TAKEN, number, "one checkpoint in each block, same as zero3d");
    } else if (counted && !known) {
        megatron_row(m, CONFIG_REFUSED, number, "--num-layers is not given; write it, too");
    } else if (counted) {
        snprintf(text, sizeof text, "%.0f", ceil(layers / every));
        config_take(&m->v, "--recompute-num-layers", "activation_checkpointing.number_checkpoints",
                    text);
    }
}

static void convert_recompute(megatron_converter *m) {
    static const char key[] = "activation_checkpointing.granularity",
                      parts[] = "distribute-saved-activations";
    const char *granularity = megatron_value(&m->text, "recompute-granularity");
    /* Older versions had a switch or a method instead of granularities. */
    const bool given = megatron_has(m, "checkpoint-activations"),
               older = given || megatron_is_renamed(&m->text, "recompute-method");
    const bool selective = megatron_take_as(m, "recompute-activations", key, "selective");
    if (!selective && older && !granularity)
        config_take(&m->v, given ? "--checkpoint-activations" : "--recompute-method", key,
                    granularity = "full");
    else if (!selective)
        megatron_take_or_default(m, "recompute-granularity", key, "none");
    const bool full = granularity && strcmp(granularity, "full") == 0;
    if (full)
        megatron_take_as(m, parts, "activation_checkpointing.partition_activations", "true");
    else
        megatron_rows(m, CONFIG_NO_EFFECT, parts, "it is for --recompute-granularity full");
    convert_recompute_layers(m, full);
    megatron_take_as(m, "checkpoint-in-cpu", "activation_checkpointing.cpu_checkpointing", "true");
}

/* ---- data ---- */

static z3d_status split(const char *word, z3d_data_list *out) {
    char *copy = strdup(word), *rest = NULL;
    z3d_status status = copy ? Z3D_OK : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for data paths");
    char *part = copy ? strtok_r(copy, " ", &rest) : NULL;
    for (; status == Z3D_OK && part; part = strtok_r(NULL, " ", &rest))
        status = config_list_append(out, part, 1);
    free(copy);
    return status;
}

static bool is_weight(const char *word) {
    double number;
    return z3d_parse_float(word, &number) == Z3D_OK && number > 0;
}

/* Whether the words are two or more weights with paths; "2 files" may be one path. */
static bool is_blend(const z3d_data_list *words) {
    for (int i = 0; i < words->count; i += 2)
        if (!is_weight(words->path[i])) return false;
    return words->count >= 4 && words->count % 2 == 0;
}

/* Makes files with weights from "0.3" "a" "0.7" "b", from "a" "b", or from one word with weights
 * and paths. */
static z3d_status read_data_words(const z3d_data_list *words, z3d_data_list *out) {
    z3d_data_list parts = {0};
    double weight = 0;
    z3d_status status = words->count == 1 ? split(words->path[0], &parts) : Z3D_OK;
    const z3d_data_list *list = is_blend(&parts) ? &parts : words;
    for (int i = 0; status == Z3D_OK && i < list->count; i++) {
        if (weight == 0 && is_weight(list->path[i])) {
            status = z3d_parse_float(list->path[i], &weight);
            continue;
        }
        status = config_list_append(out, list->path[i], weight == 0 ? 1 : weight);
        weight = 0;
    }
    if (status == Z3D_OK && weight > 0)
        status = Z3D_ERROR(Z3D_ERR_DATA, "the last weight has no path");
    config_list_free(&parts);
    return status;
}

static bool take_data(megatron_converter *m, const char *name, const char *path) {
    const z3d_data_list *words = megatron_words(&m->text, name);
    int key = config_find(path);
    z3d_data_list list = {0};
    if (!words) return megatron_is_unknown(&m->text, name);
    if (!words->count || read_data_words(words, &list) != Z3D_OK) {
        config_list_free(&list);
        megatron_row(m, CONFIG_REFUSED, name, "the paths cannot be read; write them out");
        return true;
    }
    z3d_data_list *field = config_field(m->v.config, &config_table[key]);
    config_list_free(field);
    *field = list;
    m->v.config->origin->place[key] = (config_place){0, 1, 1};
    megatron_row(m, CONFIG_TAKEN, name, path);
    return true;
}

/* Takes a tokenizer's file, if this tokenizer reads it. */
static void take_vocabulary(megatron_converter *m, const char *name, const char *path, bool reads,
                            const char *why) {
    if (reads)
        megatron_take(m, name, path);
    else
        megatron_rows(m, CONFIG_NO_EFFECT, name, why);
}

static void convert_tokenizer(megatron_converter *m) {
    static const char for_gpt2[] = "it is for GPT2BPETokenizer";
    const char *type = megatron_value(&m->text, "tokenizer-type");
    bool gpt2 = type && strcmp(type, "GPT2BPETokenizer") == 0;
    bool huggingface = type && strcmp(type, "HuggingFaceTokenizer") == 0;
    if (gpt2 || huggingface)
        config_take(&m->v, "--tokenizer-type", "data.tokenizer", gpt2 ? "gpt2" : "huggingface");
    else if (!megatron_is_given(m, "tokenizer-type") && !megatron_is_given(m, "vocab-size"))
        megatron_row(m, CONFIG_DIFFERENT, "tokenizer-type",
                     "not given, so the vocabulary is not known: write its size in "
                     "model.vocab_size, which is "
                     "50257 if unset");
    else if (type)
        megatron_row(
            m, CONFIG_DIFFERENT, "tokenizer-type",
            "text is tokenized with GPT2BPETokenizer, HuggingFaceTokenizer or bytes; write the "
            "size of your vocabulary in model.vocab_size");
    take_vocabulary(m, "vocab-file", "data.vocab", gpt2, for_gpt2);
    take_vocabulary(m, "merge-file", "data.merges", gpt2, for_gpt2);
    take_vocabulary(m, "tokenizer-model", "data.vocab", huggingface,
                    "tokens come from the data files; write model.vocab_size");
    if (huggingface)
        megatron_row(m, CONFIG_DIFFERENT, "tokenizer-model",
                     "data.vocab must be a folder with tokenizer.json, or this file, not a name in "
                     "a hub; write the size of its vocabulary in model.vocab_size");
}

static void convert_data(megatron_converter *m) {
    static const char *const evaluates[][2] = {
        {"eval-interval",
         "no validation data is taken; write data.validation and training.eval_interval"},
        {"eval-iters",
         "no validation data is taken; write data.validation and training.eval_steps"}};
    const bool splits = take_data(m, "data-path", "data.train");
    if (splits)
        megatron_row(
            m, CONFIG_DIFFERENT, "split",
            "data is not split here: all of --data-path is trained on; write another file in "
            "data.validation");
    else
        megatron_rows(m, CONFIG_NO_EFFECT, "split", "it is for --data-path");
    take_data(m, "train-data-path", "data.train");
    const bool unknown = megatron_is_unknown(&m->text, "valid-data-path");
    if (take_data(m, "valid-data-path", "data.validation") && !unknown) {
        megatron_take_or_default(m, "eval-interval", "training.eval_interval", "1000");
        megatron_take_or_default(m, "eval-iters", "training.eval_steps", "100");
    } else {
        for (size_t i = 0; i < 2; i++)
            megatron_rows(m, splits || unknown ? CONFIG_DIFFERENT : CONFIG_NO_EFFECT,
                          evaluates[i][0],
                          splits || unknown ? evaluates[i][1] : "there is no --valid-data-path");
    }
    convert_tokenizer(m);
    megatron_take_or_default(m, "seed", "training.seed", "1234");
    if (megatron_has(m, "seed"))
        config_take_quietly(&m->v, "data.seed", megatron_value(&m->text, "seed"));
}

static void convert_checkpoints(megatron_converter *m) {
    const char *save = megatron_value(&m->text, "save"), *load = megatron_value(&m->text, "load");
    /* A run with --save has checkpoints, even if the folder is a placeholder. */
    bool unknown = megatron_is_unknown(&m->text, "save"), saves = save || unknown;
    bool interval = saves && (megatron_take(m, "save-interval", "checkpoint.interval") ||
                              megatron_take(m, "persistent-save-interval", "checkpoint.interval"));
    megatron_take(m, "save", "checkpoint.dir");
    if (unknown)
        megatron_row(m, CONFIG_DIFFERENT, "save",
                     "the folder is not known: set checkpoint.dir (unset: checkpoints in run.dir)");
    if (saves && !interval) {
        char steps[24];
        snprintf(steps, sizeof steps, "%lld", (long long)m->v.config->training_steps);
        config_take_default(&m->v, "checkpoint.interval", steps,
                            "Megatron-LM's default (at the end only)");
    }
    if (!saves) megatron_rows(m, CONFIG_NO_EFFECT, "save-interval", "there is no --save");
    if (load && save && strcmp(load, save) == 0)
        megatron_row(m, CONFIG_TAKEN, "load", "checkpoint.resume: auto");
    else if (load)
        megatron_row(m, CONFIG_REFUSED, "load",
                     "Megatron-LM's checkpoints are not read; use checkpoint.resume or "
                     "checkpoint.init_from with one of this program's");
    if (!load && !megatron_is_unknown(&m->text, "load") && saves)
        config_take_default(&m->v, "checkpoint.resume", "never", megatron_default);
}

static void convert_by_table(megatron_converter *m, const megatron_given *given) {
    const megatron_argument *found = megatron_find(&m->text, given);
    if (!found) {
        megatron_row(m, CONFIG_REFUSED, given->name,
                     "unknown here; it may change the model or the run");
        config_doubt(m->v.config, given->name);
    } else if (found->kind == MEGATRON_KEY) {
        megatron_take(m, given->name, found->text);
    } else if (found->kind == MEGATRON_TRUE && given->values[0]) {
        megatron_row(m, CONFIG_REFUSED, given->name, "it is a switch, which has no value");
    } else if (found->kind == MEGATRON_TRUE) {
        megatron_take_as(m, given->name, found->text, "true");
    } else if (found->kind != MEGATRON_OWN) {
        megatron_row(m,
                     found->kind == MEGATRON_SAME    ? CONFIG_TAKEN
                     : found->kind == MEGATRON_LATER ? CONFIG_REFUSED
                                                     : CONFIG_NO_EFFECT,
                     given->name, found->text);
    }
}

/* Adds rows for placeholders and for older names. */
static void report_given(megatron_converter *m) {
    for (int i = 0; i < m->text.count; i++) {
        const megatron_given *given = &m->text.given[i];
        char what[200];
        if (given->unknown) {
            snprintf(what, sizeof what, "'%.100s' stands for a value: write the value",
                     given->values);
            megatron_row(m, CONFIG_REFUSED, given->name, what);
        }
        snprintf(what, sizeof what, "an older name of --%.80s", given->name);
        if (given->old) megatron_row(m, CONFIG_TAKEN, given->old, what);
    }
}

/* Refuses arguments without a row: their value has the wrong kind or contradicts another one. */
static void refuse_unread(megatron_converter *m) {
    for (int i = 0; i < m->text.count; i++) {
        const megatron_given *given = &m->text.given[i];
        char flag[80], what[160];
        snprintf(flag, sizeof flag, "--%.70s", given->name);
        snprintf(what, sizeof what, "'%.80s': not understood beside the other arguments",
                 given->values);
        if (!config_is_mentioned(&m->v, flag)) megatron_row(m, CONFIG_REFUSED, given->name, what);
    }
}

static void convert(megatron_converter *m) {
    report_given(m);
    for (int i = 0; i < m->text.count; i++) {
        const megatron_given *given = &m->text.given[i];
        const char *last = megatron_value(&m->text, given->name);
        if (last == given->values)
            convert_by_table(m, given);
        else if (last && strcmp(given->values, last) != 0)
            megatron_row(m, CONFIG_DIFFERENT, given->name, "given twice; the last value is taken");
    }
    megatron_convert_model(m);
    megatron_convert_pipeline(m);
    convert_optimizer(m);
    convert_precision(m);
    convert_zero(m);
    convert_recompute(m);
    convert_data(m);
    convert_checkpoints(m);
    config_take_device(&m->v);
    refuse_unread(m);
}

static z3d_status from(const char *source, char *text, const char *const *words, int count,
                       const z3d_config_rules *rules, z3d_string *yaml, z3d_string *table,
                       bool *complete) {
    megatron_converter *m;
    Z3D_TRY(z3d_new(1, sizeof *m, "Megatron-LM's arguments", &m));
    z3d_status status = config_conversion_begin(&m->v, source, "Megatron-LM");
    if (status == Z3D_OK)
        status = text ? megatron_read_text(text, source, &m->text)
                      : megatron_read_words(words, count, source, &m->text);
    if (status == Z3D_OK) {
        convert(m);
        status = config_conversion_finish(&m->v, rules, yaml, table, complete);
    }
    megatron_text_free(&m->text);
    config_conversion_end(&m->v);
    free(m);
    return status;
}

z3d_status z3d_config_from_megatron(const char *path, const z3d_config_rules *rules,
                                    z3d_string *yaml, z3d_string *table, bool *complete) {
    enum { LIMIT = 1 << 26 }; /* of a log */
    char *text = NULL;
    size_t length;
    Z3D_TRY(z3d_read_file(path, LIMIT, &text, &length));
    for (size_t i = 0; i < length; i++)
        if (!text[i]) text[i] = ' '; /* a truncated log may have NUL bytes */
    z3d_status status = from(path, text, NULL, 0, rules, yaml, table, complete);
    free(text);
    return status;
}

z3d_status z3d_config_from_megatron_command(const char *const *words, int count,
                                            const z3d_config_rules *rules, z3d_string *yaml,
                                            z3d_string *table, bool *complete) {
    return from("the command", NULL, words, count, rules, yaml, table, complete);
}
