/* Loads a checkpoint into an engine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/format.h"
#include "src/model/lora.h"

/* Sizes in elements. Pieces of LARGE or more go directly to the engine. Smaller ones (from a
 * topology that cut the tensors in another way) are joined first, because each transfer to a device
 * has its cost. */
enum { CHUNK = Z3D_BLOCK_BYTES / 4, LARGE = CHUNK / 16 };

/* Advice for a run that lacks some of the checkpoint's adapters. */
#define NO_SUCH_ADAPTER                                                                            \
    "; keep its section lora (zero3d checkpoint show), begin with its base, or with its export "   \
    "--merged"

static z3d_status refuse_model(const z3d_checkpoint *c, const char *what) {
    return Z3D_ERROR(Z3D_ERR_CONFIG, "the checkpoint of step %lld is from a different model: %s",
                     (long long)z3d_checkpoint_get_info(c)->engine.step, what);
}

static void append_shape(z3d_string *text, const z3d_tensor *t) {
    for (int d = 0; d < t->dims; d++)
        z3d_string_append(text, "%s%lld", d ? " x " : "", (long long)t->shape[d]);
}

/* Compares a tensor of the model with the checkpoint's tensor of that name. */
static z3d_status compare_tensor(const z3d_checkpoint *c, const z3d_tensor *t) {
    const int index = z3d_checkpoint_find(c, t->group, t->name);
    const z3d_tensor *other = index < 0 ? NULL : z3d_checkpoint_tensor(c, index);
    z3d_string text = {0};
    if (other && other->dims == t->dims &&
        memcmp(other->shape, t->shape, (size_t)t->dims * sizeof *t->shape) == 0)
        return Z3D_OK;
    z3d_string_append(&text, "%s/%s ", t->group, t->name);
    if (!other) {
        z3d_string_append(&text, "is missing in the checkpoint");
    } else {
        z3d_string_append(&text, "is ");
        append_shape(&text, other);
        z3d_string_append(&text, " in the checkpoint and ");
        append_shape(&text, t);
        z3d_string_append(&text, " in this run");
    }
    z3d_status status = refuse_model(c, text.text ? text.text : "a tensor differs");
    z3d_string_free(&text);
    return status;
}

/* Whether a parameter is an adapter that the checkpoint lacks. */
static bool is_new_adapter(const z3d_checkpoint *c, const z3d_parameter_group *group, int i) {
    return group->parameter[i].adapter && z3d_checkpoint_find_parameter(c, group, i) < 0;
}

static bool is_new(const z3d_checkpoint *c, const z3d_model *model, const z3d_tensor *t) {
    int g, i;
    return z3d_find_parameter(model, t, &g, &i) &&
           (z3d_has_new_rows(c, &model->group[g], i) || is_new_adapter(c, &model->group[g], i));
}

/* begins: a new run may have more token ids than the checkpoint, and new adapters. */
static z3d_status compare_models(const z3d_checkpoint *c, const z3d_model *model, bool begins) {
    z3d_tensor *tensor;
    int count;
    z3d_status status = z3d_tensors_of(model, &tensor, &count);
    for (int i = 0; i < count && status == Z3D_OK; i++)
        if (!begins || !is_new(c, model, &tensor[i])) status = compare_tensor(c, &tensor[i]);
    for (int i = 0; i < z3d_checkpoint_num_tensors(c) && status == Z3D_OK; i++) {
        const z3d_tensor *t = z3d_checkpoint_tensor(c, i);
        char text[2 * Z3D_NAME + sizeof NO_SUCH_ADAPTER + 60];
        snprintf(text, sizeof text, "%s/%s of the checkpoint is not in this run's model%s",
                 t->group, t->name, z3d_is_adapter(t->name) ? NO_SUCH_ADAPTER : "");
        if (z3d_find_tensor(tensor, count, t->group, t->name) < 0) status = refuse_model(c, text);
    }
    free(tensor);
    return status;
}

/* The ranges to load, and the elements that wait in `chunk` for more of their range. */
typedef struct loading {
    z3d_engine *engine;
    bool average; /* the average is loaded as the parameters */
    const z3d_model *model;
    z3d_wanted *range; /* one kind after the other, as in the files */
    struct home {
        int group, parameter;
    } * home; /* by range */
    int count;
    float *chunk;
    int held;                /* the range of the elements in `chunk` */
    int64_t first, elements; /* first one, and their number */
} loading;

static z3d_status plan_ranges(const z3d_checkpoint *c, unsigned kinds, loading *l) {
    size_t tensors = (size_t)z3d_count_parameters(l->model);
    size_t most = tensors * Z3D_STATE_KINDS + 1;
    Z3D_TRY(z3d_new(most, sizeof *l->range, "what is to be read", &l->range));
    Z3D_TRY(z3d_new(most, sizeof *l->home, "what is to be read", &l->home));
    Z3D_TRY(z3d_new(CHUNK, sizeof *l->chunk, "a buffer to load through", &l->chunk));
    for (int kind = 0; kind < Z3D_STATE_KINDS; kind++)
        for (int g = 0; g < l->model->num_groups && kinds >> kind & 1; g++)
            for (int i = 0; i < l->model->group[g].num_parameters; i++) {
                if (l->model->group[g].frozen && kind != Z3D_TENSOR_PARAMETER && !l->average)
                    continue;
                if (is_new_adapter(c, &l->model->group[g], i)) continue;
                z3d_wanted *r = &l->range[l->count];
                r->tensor = z3d_checkpoint_find_parameter(c, &l->model->group[g], i);
                r->kind = (z3d_tensor_kind)kind;
                if (l->average)
                    r->kind = z3d_value_kind(z3d_checkpoint_tensor(c, r->tensor), r->kind);
                z3d_engine_kept_part(l->engine, g, i, &r->slice);
                if (z3d_has_new_rows(c, &l->model->group[g], i))
                    z3d_without_new_rows(c, r->tensor, &r->slice);
                r->first = r->slice.first;
                r->count = r->slice.count;
                l->home[l->count++] = (struct home){g, i};
            }
    return Z3D_OK;
}

static z3d_status put(loading *l, int range, int64_t first, int64_t count, const float *values) {
    const z3d_tensor_kind kind = l->average ? Z3D_TENSOR_PARAMETER : l->range[range].kind;
    return z3d_engine_write_part(l->engine, kind, l->home[range].group, l->home[range].parameter,
                                 first, count, values);
}

static z3d_status flush(loading *l) {
    int64_t elements = l->elements;
    l->elements = 0;
    return elements ? put(l, l->held, l->first, elements, l->chunk) : Z3D_OK;
}

static z3d_status take(void *context, int range, int64_t first, int64_t count,
                       const float *values) {
    loading *l = context;
    if (range != l->held || count >= LARGE || l->elements + count > CHUNK) Z3D_TRY(flush(l));
    if (count >= LARGE) return put(l, range, first, count, values);
    if (l->elements == 0) l->held = range, l->first = first;
    memcpy(l->chunk + l->elements, values, (size_t)count * sizeof *values);
    l->elements += count;
    return Z3D_OK;
}

static z3d_status load_states(z3d_checkpoint *c, int ranks, const z3d_model *model,
                              z3d_engine *engine, unsigned kinds) {
    loading l = {.engine = engine, .model = model, .average = kinds == Z3D_KIND(EMA)};
    z3d_status status = plan_ranges(c, kinds, &l);
    if (status == Z3D_OK) status = z3d_checkpoint_read_all(c, l.range, l.count, ranks, take, &l);
    if (status == Z3D_OK) status = flush(&l);
    free(l.range);
    free(l.home);
    free(l.chunk);
    return status;
}

/* Refuses to resume from an imported model. This comes before its configuration is compared with
 * the run's, because it lacks a run's values. */
static z3d_status need_states(const z3d_checkpoint *c, const char *folder) {
    if (z3d_checkpoint_kinds(c) != Z3D_KIND(PARAMETER)) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "%s has weights only (it was imported), so no run can resume from it: use "
                     "checkpoint.init_from to start a new run with its weights",
                     folder);
}

/* Compares the optimizers' tensors. Gradients that wait for the next step are not among them. */
static z3d_status compare_optimizers(const z3d_checkpoint *c, unsigned kinds) {
    z3d_string text = {0};
    const unsigned theirs = z3d_checkpoint_kinds(c) & ~Z3D_KIND(PENDING);
    const unsigned ours = kinds & ~Z3D_KIND(PENDING);
    if (theirs == ours) return Z3D_OK;
    z3d_append_kinds(&text, theirs, ", ");
    z3d_string_append(&text, "; this run's has ");
    z3d_append_kinds(&text, ours, ", ");
    z3d_status status = Z3D_ERROR(
        Z3D_ERR_CONFIG, "the checkpoint of step %lld is from a different optimizer: it has %s",
        (long long)z3d_checkpoint_get_info(c)->engine.step, text.failed ? "others" : text.text);
    z3d_string_free(&text);
    return status;
}

/* Compares which parameters are frozen. */
static z3d_status compare_frozen(const z3d_checkpoint *c, const z3d_model *model) {
    for (int g = 0; g < model->num_groups; g++)
        for (int i = 0; i < model->group[g].num_parameters; i++) {
            const z3d_tensor *t =
                z3d_checkpoint_tensor(c, z3d_checkpoint_find_parameter(c, &model->group[g], i));
            const bool frozen = t->frozen;
            if (frozen == model->group[g].frozen) continue;
            return Z3D_ERROR(Z3D_ERR_CONFIG,
                             "%s/%s is %s in the checkpoint of step %lld and %s in this run; a "
                             "resumed run must keep training.freeze",
                             t->group, t->name, frozen ? "frozen" : "trained",
                             (long long)z3d_checkpoint_get_info(c)->engine.step,
                             frozen ? "trained" : "frozen");
        }
    return Z3D_OK;
}

/* A run without delayed updates would never apply gradients that wait. */
static z3d_status compare_delays(const z3d_checkpoint *c, unsigned kinds) {
    if (!z3d_checkpoint_get_info(c)->engine.pending.waits || kinds & Z3D_KIND(PENDING))
        return Z3D_OK;
    return Z3D_ERROR(
        Z3D_ERR_CONFIG,
        "the checkpoint of step %lld has gradients that its run would apply in the next step "
        "(delayed_param_update), and this run would lose them; set "
        "zero_optimization.offload_optimizer.delayed_param_update=true and "
        "offload_optimizer.device "
        "to cpu or nvme, or start a new run with its weights (checkpoint.init_from)",
        (long long)z3d_checkpoint_get_info(c)->engine.step);
}

/* RESUME: loads all states. BEGIN: the weights, for a new run. USE: the weights, for a model that
 * is not trained. USE_AVERAGE: their average, for such a model. */
typedef enum purpose { RESUME, BEGIN, USE, USE_AVERAGE } purpose;

/* The kinds of tensors that are loaded. */
static unsigned kinds_to_load(const z3d_checkpoint *c, const z3d_engine *engine, purpose purpose) {
    const bool waits = z3d_checkpoint_get_info(c)->engine.pending.waits;
    if (purpose != RESUME) return purpose == USE_AVERAGE ? Z3D_KIND(EMA) : Z3D_KIND(PARAMETER);
    return waits ? z3d_engine_kinds(engine) : z3d_engine_kinds(engine) & ~Z3D_KIND(PENDING);
}

/* Loads this rank's parts; `ranks` ranks do so at once. */
static z3d_status load(z3d_checkpoint *c, int ranks, const z3d_model *model, z3d_engine *engine,
                       purpose purpose) {
    const bool weights_only = purpose != RESUME;
    const unsigned kinds = kinds_to_load(c, engine, purpose);
    Z3D_TRY(compare_models(c, model, purpose == BEGIN));
    if (!weights_only) Z3D_TRY(compare_optimizers(c, kinds));
    if (!weights_only) Z3D_TRY(compare_frozen(c, model));
    if (!weights_only) Z3D_TRY(compare_delays(c, kinds));
    z3d_engine_parameters_changed(engine);
    z3d_status status = load_states(c, ranks, model, engine, kinds);
    if (status == Z3D_OK && !weights_only) {
        const z3d_checkpoint_info *info = z3d_checkpoint_get_info(c);
        z3d_engine_state state = info->engine, now;
        z3d_engine_get_state(engine, &now);
        if (info->dtype != Z3D_F16) { /* only fp16 has a loss scale to continue */
            state.loss_scale = now.loss_scale;
            state.good_steps = now.good_steps;
            state.hysteresis_left = now.hysteresis_left;
        }
        z3d_engine_set_state(engine, &state);
    }
    return status;
}

z3d_status z3d_checkpoint_agree(z3d_world *world, const char *what, z3d_status mine) {
    char text[96];
    snprintf(text, sizeof text, "%.60s (waiting for all ranks)", what);
    z3d_watchdog_position(world, true, text);
    z3d_status status = z3d_world_agree(world, mine);
    z3d_watchdog_position(world, false, what);
    return status;
}

/* Gives the caller the checkpoint's numbers, and the base of the run that resumes or begins. */
static z3d_status tell(const z3d_checkpoint *c, const z3d_model *model, purpose purpose,
                       z3d_checkpoint_info *info) {
    if (!info) return Z3D_OK;
    *info = *z3d_checkpoint_get_info(c);
    info->config = info->program = info->libraries = info->imported = NULL;
    const z3d_base base = info->base;
    info->base = (z3d_base){0};
    if (purpose == RESUME) return z3d_base_copy(&base, &info->base);
    return purpose == BEGIN ? z3d_checkpoint_find_base(c, model, &info->base) : Z3D_OK;
}

static z3d_status open_checkpoint(const char *folder, const char *base, purpose purpose,
                                  z3d_checkpoint **c) {
    z3d_status status = z3d_checkpoint_open(folder, c);
    if (status == Z3D_OK && purpose == RESUME) status = need_states(*c, folder);
    if (status == Z3D_OK && purpose == USE_AVERAGE) status = z3d_checkpoint_need_average(*c);
    return status == Z3D_OK ? z3d_checkpoint_open_base(*c, base) : status;
}

/* accept NULL: accepts all. */
static z3d_status load_kinds(z3d_world *world, const char *folder, const char *base,
                             const z3d_model *model, z3d_engine *engine,
                             z3d_checkpoint_verify verify, purpose purpose,
                             z3d_checkpoint_accept accept, void *context,
                             z3d_checkpoint_info *info) {
    z3d_checkpoint *c = NULL;
    static const char *const opening = "checkpoint: opening",
                             *const checking = "checkpoint: checking files",
                             *const reading = "checkpoint: reading";
    z3d_watchdog_position(world, false, opening);
    z3d_status status =
        z3d_checkpoint_agree(world, opening, open_checkpoint(folder, base, purpose, &c));
    if (status == Z3D_OK) {
        z3d_watchdog_position(world, false, checking);
        status = z3d_checkpoint_check(c, verify, kinds_to_load(c, engine, purpose),
                                      z3d_world_rank(world), z3d_world_size(world), NULL);
        status = z3d_checkpoint_agree(world, checking, status);
    }
    if (status == Z3D_OK && accept)
        status = z3d_checkpoint_agree(world, checking, accept(context, z3d_checkpoint_get_info(c)));
    if (status == Z3D_OK) {
        z3d_watchdog_position(world, false, reading);
        z3d_checkpoint_set_verify(c, verify);
        status = load(c, z3d_world_size(world), model, engine, purpose);
        status = z3d_checkpoint_agree(world, reading, status);
    }
    if (status == Z3D_OK && purpose == BEGIN) status = z3d_fill_new_rows(world, c, model, engine);
    if (status == Z3D_OK)
        status = z3d_checkpoint_agree(world, reading, tell(c, model, purpose, info));
    z3d_checkpoint_close(c);
    return status;
}

z3d_status z3d_checkpoint_load_all(z3d_world *world, const char *folder, const char *base,
                                   const z3d_model *model, z3d_engine *engine,
                                   z3d_checkpoint_verify verify, bool weights_only,
                                   z3d_checkpoint_accept accept, void *context,
                                   z3d_checkpoint_info *info) {
    return load_kinds(world, folder, base, model, engine, verify, weights_only ? BEGIN : RESUME,
                      accept, context, info);
}

z3d_status z3d_checkpoint_load_weights(z3d_world *world, const char *folder, const char *base,
                                       const z3d_model *model, z3d_engine *engine,
                                       z3d_checkpoint_verify verify, bool average,
                                       z3d_checkpoint_info *info) {
    return load_kinds(world, folder, base, model, engine, verify, average ? USE_AVERAGE : USE, NULL,
                      NULL, info);
}
