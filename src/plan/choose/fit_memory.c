/* plan --fit and --recommend: the memory of a candidate. */
#include <stdlib.h>
#include <string.h>

#include "src/plan/choose/ways.h"

const char *const z3d_fit_granularities[] = {"full", "selective", "none"};

/* ---- the frame ---- */

/* The configuration allows up to 10^6 samples and as many micro-batches; its own pair is one of the
 * divisors. Some schedules need whole rounds of micro-batches, a schedule file its own number. */
static void find_divisors(z3d_fit_frame *w) {
    enum { MOST = 1000000 };
    int64_t round = z3d_schedule_round(z3d_config_pipeline_schedule(w->config), w->layout.pipeline);
    for (int64_t d = 1; d <= MOST && d <= w->samples; d++) {
        int64_t micros = w->samples / d;
        if (w->samples % d || micros > MOST || micros % round) continue;
        if (!w->micros || micros == w->micros) w->divisor[w->divisors++] = d;
    }
}

/* Drops micro-batches so small that a data rank gets no sample; the configuration's own one is
 * large enough. */
static z3d_status drop_small(z3d_fit_frame *w) {
    z3d_plan_speeds speeds;
    z3d_status status = Z3D_ERR_CONFIG;
    int small = 0;
    if (w->divisors == 0)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "no number of micro-batches for %lld samples of a data rank suits the "
                         "schedule; write another train_batch_size",
                         (long long)w->samples);
    Z3D_TRY(z3d_plan_speeds_find(w->config, &speeds));
    for (; small < w->divisors; small++) {
        z3d_program_config program = {.micro_batch = w->divisor[small]};
        status = z3d_plan_shares(w->config, &speeds, &program);
        z3d_plan_program_config_release(&program);
        if (status != Z3D_ERR_CONFIG) break;
    }
    w->divisors -= small;
    memmove(w->divisor, w->divisor + small, (size_t)w->divisors * sizeof *w->divisor);
    z3d_plan_speeds_release(&speeds);
    return status;
}

static void take_layout(z3d_fit_frame *w) {
    const z3d_config *c = w->config;
    const bool open = w->layout.cut_open;
    const int data = z3d_mesh_size(&w->mesh, Z3D_ROLE_SAMPLES);
    w->layout = (z3d_fit_layout){
        .tensor = z3d_mesh_size(&w->mesh, Z3D_ROLE_PARTS),
        .pipeline = z3d_mesh_size(&w->mesh, Z3D_ROLE_STAGES),
        .data = data,
        .chunks = (int)c->parallel_virtual_pipeline_model_parallel_size,
        .schedule = c->parallel_pipeline_schedule,
        .sequence_parallel = c->parallel_sequence_parallel,
        .across_nodes = c->parallel_allow_tensor_across_nodes,
        .cut = z3d_config_data_cut(c),
        .inner = (int)z3d_config_data_inner(c, data),
        .cut_open = open,
    };
    w->whole = w->layout.pipeline > 1 && z3d_schedule_row_of(z3d_config_pipeline_schedule(c))->all;
}

static void apply_cut(z3d_config *config, const z3d_fit_layout *layout) {
    const int inner = layout->inner;
    const bool nodes = layout->cut == Z3D_CUT_HIERARCHICAL;
    config->zero_optimization_mics_shard_size = layout->cut == Z3D_CUT_HYBRID ? inner : -1;
    config->zero_optimization_zero_hpz_partition_size = layout->cut == Z3D_CUT_HPZ ? inner : 1;
    config->parallel_collective_algorithm = nodes ? Z3D_ALGORITHM_HIERARCHICAL : Z3D_ALGORITHM_RING;
    config->parallel_ranks_per_node = nodes ? inner * layout->tensor : Z3D_AUTO;
}

void z3d_fit_apply_layout(z3d_config *config, const z3d_fit_layout *layout) {
    config->parallel_world_size = (int64_t)layout->tensor * layout->pipeline * layout->data;
    config->parallel_tensor_model_parallel_size = layout->tensor;
    config->parallel_sequence_parallel = layout->sequence_parallel;
    config->parallel_allow_tensor_across_nodes = layout->across_nodes;
    config->parallel_pipeline_model_parallel_size = layout->pipeline;
    config->parallel_virtual_pipeline_model_parallel_size = layout->chunks;
    config->parallel_pipeline_schedule = layout->schedule;
    if (layout->cut_open) apply_cut(config, layout);
}

void z3d_fit_close(z3d_fit_frame *w) {
    z3d_model_destroy(w->model);
    free(w->share);
}

static z3d_status find_shares(z3d_fit_frame *w) {
    const z3d_model *model = w->model;
    double all = 0, most = 0;
    Z3D_TRY(z3d_new((size_t)model->num_units, sizeof *w->share, "units", &w->share));
    for (int u = 0; u < model->num_units; u++) {
        for (int s = 0; s < model->unit[u].num_groups; s++) {
            const z3d_parameter_group *g = &model->group[model->unit[u].group[s]];
            for (int i = 0; i < g->num_parameters; i++)
                w->share[u] +=
                    (double)z3d_parameter_local_elements(&g->parameter[i], w->layout.tensor);
        }
        if (w->share[u] > most) most = w->share[u];
        all += w->share[u];
    }
    for (int u = 0; u < model->num_units; u++) w->share[u] /= all;
    w->trained = (double)z3d_model_trained_count(model) / (double)z3d_model_parameter_count(model);
    w->largest_unit = most * (double)z3d_bytes_of(z3d_plan_dtype(w->config), 1);
    return Z3D_OK;
}

z3d_status z3d_fit_open(z3d_fit_frame *w, int ranks) {
    z3d_config *c = w->config;
    Z3D_TRY(z3d_plan_place(c, ranks, 0, &w->mesh));
    take_layout(w);
    w->node = z3d_case_node(c, w->hardware);
    w->node.rough = w->rough;
    Z3D_TRY(z3d_model_from_config(c, &w->model));
    Z3D_TRY(z3d_links_find(&w->mesh, Z3D_ROLE_ROWS, (int)w->hardware->devices, &w->links));
    Z3D_TRY(find_shares(w));
    w->samples = c->train_micro_batch_size_per_gpu * c->gradient_accumulation_steps;
    find_divisors(w);
    return drop_small(w);
}

z3d_status z3d_fit_apply(const z3d_fit_frame *w, const z3d_fit_row *row, int64_t accumulation) {
    z3d_config *c = w->config;
    bool full = row->granularity == Z3D_GRANULARITY_FULL;
    z3d_fit_apply_layout(c, &w->layout);
    c->zero_optimization_stage = row->stage;
    c->zero_optimization_pipeline_gather = row->gather;
    c->activation_checkpointing_granularity = row->granularity;
    c->activation_checkpointing_partition_activations = row->partition;
    c->activation_checkpointing_cpu_checkpointing = row->offload ? Z3D_OFFLOAD_ON : Z3D_OFFLOAD_OFF;
    c->activation_checkpointing_replay = full ? w->replay : Z3D_REPLAY_MINIMAL;
    c->activation_checkpointing_number_checkpoints = full ? w->checkpoints : Z3D_AUTO;
    c->train_micro_batch_size_per_gpu = row->micro_batch;
    c->gradient_accumulation_steps = accumulation;
    c->train_batch_size = row->micro_batch * accumulation * w->layout.data;
    return z3d_tiers_apply(c, row->tiers);
}

/* ---- memory ---- */

/* The rank with the most samples of a pipeline stage. */
static z3d_mesh place_of_stage(const z3d_fit_frame *w, const z3d_program_config *config,
                               int index) {
    z3d_mesh mesh = w->mesh;
    mesh.rank =
        z3d_mesh_member(&w->mesh, Z3D_ROLE_STAGES, z3d_plan_largest_share(config, &w->mesh), index);
    return mesh;
}

/* Whether the caller only asks if the row fits. */
static bool is_quick(const z3d_fit_frame *w) {
    return w->rough && w->node.rough;
}

/* The row's ledger and memory are those of the pipeline stage that needs most. */
static z3d_status take_stage(const z3d_fit_frame *w, const z3d_program_config *config, int index,
                             z3d_fit_row *row) {
    z3d_program_set set;
    z3d_memory_need need;
    z3d_mesh mesh = place_of_stage(w, config, index);
    int64_t snapshot;
    Z3D_TRY(z3d_plan_snapshot(w->config, config, w->model, &mesh, &snapshot));
    z3d_status status =
        z3d_program_set_create(w->model, &mesh, config, w->node.threads, false, &set);
    if (status == Z3D_OK) {
        const z3d_program *train = set.program[Z3D_MODE_TRAIN];
        z3d_memory_find(config->rough_memory ? train->bound : train->arena, snapshot, w->hardware,
                        z3d_mesh_size(&w->mesh, Z3D_AXES_WORLD), 0, &need);
        if (index == 0 || z3d_memory_room(&need) < z3d_memory_room(&row->memory)) {
            row->memory = need;
            if (!is_quick(w)) z3d_program_ledger(train, Z3D_SPACE_DEVICE, &row->ledger);
        }
    }
    z3d_program_set_release(&set);
    return status;
}

z3d_status z3d_fit_memory(const z3d_fit_frame *w, z3d_fit_row *row, int64_t accumulation) {
    z3d_program_config config;
    int data;
    Z3D_TRY(z3d_fit_apply(w, row, accumulation));
    z3d_status status = z3d_config_check(w->config, &z3d_model_rules);
    if (status == Z3D_OK)
        status = z3d_config_resolve(w->config, &z3d_model_rules,
                                    z3d_mesh_size(&w->mesh, Z3D_AXES_WORLD), &data);
    if (status == Z3D_OK) status = z3d_plan_program_config(w->config, w->model, &config);
    Z3D_TRY(status);
    config.rough_memory = w->node.rough;
    int last = w->layout.pipeline - 1;
    z3d_timetables *timetables;
    status = z3d_timetables_create(&config, w->layout.pipeline, &timetables);
    config.pipeline.timetables = timetables;
    bool enough = false; /* one stage that does not fit decides */
    for (int i = 0; i <= last && status == Z3D_OK && !enough;
         i = w->rough && i == 1 && last > 1 ? last : i + 1) {
        status = take_stage(w, &config, i, row);
        enough = is_quick(w) && !row->memory.fits;
    }
    z3d_mesh fullest = place_of_stage(w, &config, 0);
    int64_t samples = z3d_samples_of(&config, &fullest);
    z3d_plan_program_config_release(&config);
    z3d_timetables_destroy(timetables);
    Z3D_TRY(status);
    z3d_fit_add_batch(w, row, samples, accumulation);
    return Z3D_OK;
}

void z3d_fit_add_batch(const z3d_fit_frame *w, z3d_fit_row *row, int64_t samples,
                       int64_t accumulation) {
    int64_t left_out = 0;
    for (int f = 0; f < w->model->num_fields; f++)
        left_out += samples * w->model->field[f].bytes_per_sample[Z3D_MODE_TRAIN];
    left_out *= row->accumulation - accumulation;
    row->ledger.peak[Z3D_CATEGORY_TEMPORARY] += left_out;
    row->memory.arena += left_out;
    row->memory.free -= (double)left_out;
    row->fits = row->memory.free >= 0 && row->memory.fits;
}

int64_t z3d_fit_few(const z3d_fit_frame *w, int64_t accumulation) {
    int64_t few = 3 * w->layout.pipeline;
    return accumulation < few || w->whole ? accumulation : few;
}

z3d_status z3d_fit_try(const z3d_fit_frame *w, z3d_fit_row *row, int64_t micro_batch) {
    row->micro_batch = micro_batch;
    row->accumulation = w->samples / micro_batch;
    int64_t few = z3d_fit_few(w, row->accumulation);
    return z3d_fit_memory(w, row, few < row->accumulation ? few - w->layout.pipeline : few);
}

z3d_category z3d_fit_largest(const z3d_ledger *ledger) {
    int largest = 0;
    for (int category = 1; category < Z3D_CATEGORY_COUNT; category++)
        if (ledger->peak[category] > ledger->peak[largest]) largest = category;
    return (z3d_category)largest;
}
