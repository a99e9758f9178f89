/* Decides what a rank keeps between steps of every parameter group: the only file that reads ZeRO's
 * stage. Stage 1 shards the optimizer states, 2 also the gradients, 3 also the parameters (the
 * paper's P_os, P_os+g, P_os+g+p). Everything else reads the answer in the layout. */
#include "src/base/disk.h"
#include "zero/program.h"

/* Gradients that are reduced once a step must be whole on every rank until then. Where every
 * micro-batch is reduced, the others' rows are kept only to be gathered. */
static bool keeps_all_gradients(const z3d_program_config *config) {
    if (config->accumulation > 1) return config->stage < 1 || config->reduce_per_step;
    return config->stage < 2;
}

static unsigned stepped_kinds(const z3d_program_config *config) {
    return z3d_optimizer_kinds(config->optimizer) | (config->ema ? Z3D_KIND(EMA) : 0);
}

/* Only parameters, and each rank has read those that it keeps: nobody gathers what others step. */
static void keep_values_only(z3d_kept kept[Z3D_PART_COUNT]) {
    kept[Z3D_PART_GRADIENTS].kinds = kept[Z3D_PART_OPTIMIZER].kinds = 0;
    kept[Z3D_PART_OPTIMIZER].rows = kept[Z3D_PART_PARAMETERS].rows;
}

void z3d_states_decide(const z3d_program_config *config, int64_t elements, bool offloaded,
                       bool frozen, z3d_kept kept[Z3D_PART_COUNT]) {
    const bool small = elements <= config->persistence;
    const z3d_space optimizer = offloaded ? config->offload.optimizer : Z3D_SPACE_DEVICE;
    const bool all[Z3D_PART_COUNT] = {
        [Z3D_PART_PARAMETERS] = config->stage < 3 || small,
        [Z3D_PART_GRADIENTS] = keeps_all_gradients(config),
        [Z3D_PART_OPTIMIZER] = config->stage < 1,
    };
    for (int part = 0; part < Z3D_PART_COUNT; part++)
        kept[part] = (z3d_kept){.rows = all[part] ? Z3D_ROWS_ALL : Z3D_ROWS_OWN};
    kept[Z3D_PART_SECONDARY] = (z3d_kept){.rows = Z3D_ROWS_BLOCK, .dtype = config->dtype};
    if (config->sharding == Z3D_SHARDING_HPZ && !all[Z3D_PART_PARAMETERS])
        kept[Z3D_PART_SECONDARY].kinds = Z3D_KIND(PARAMETER);
    if (offloaded && !small) kept[Z3D_PART_PARAMETERS].space = config->offload.parameters;
    kept[Z3D_PART_OPTIMIZER].space = optimizer;
    /* All rows are added to by backward, which the device does. */
    if (!all[Z3D_PART_GRADIENTS]) kept[Z3D_PART_GRADIENTS].space = optimizer;
    const unsigned state = stepped_kinds(config), master = Z3D_KIND(PARAMETER);
    kept[Z3D_PART_PARAMETERS].dtype = config->dtype;
    kept[Z3D_PART_PARAMETERS].kinds = Z3D_KIND(PARAMETER);
    kept[Z3D_PART_GRADIENTS].dtype = config->grad_dtype;
    kept[Z3D_PART_GRADIENTS].kinds = Z3D_KIND(GRADIENT);
    kept[Z3D_PART_OPTIMIZER].dtype = Z3D_F32;
    bool own_master = config->dtype == Z3D_F32 && optimizer == Z3D_SPACE_DEVICE;
    kept[Z3D_PART_OPTIMIZER].kinds = own_master ? state & ~master : state;
    if (config->inference || frozen) keep_values_only(kept);
    if (frozen) kept[Z3D_PART_GRADIENTS].space = kept[Z3D_PART_OPTIMIZER].space = Z3D_SPACE_DEVICE;
}

unsigned z3d_state_kinds(const z3d_program_config *config) {
    if (config->inference) return Z3D_KIND(PARAMETER);
    return stepped_kinds(config) | (config->offload.delayed ? Z3D_KIND(PENDING) : 0);
}

bool z3d_states_reduce_per_step(int stage) {
    return stage < 2;
}

static const z3d_kept *kept_of(const z3d_layout *layout, int group, z3d_group_part part) {
    return &layout->group[group].kept[part];
}

bool z3d_keeps_all_rows(const z3d_layout *layout, int group, z3d_group_part part) {
    return kept_of(layout, group, part)->rows == Z3D_ROWS_ALL;
}

int64_t z3d_kept_elements(const z3d_layout *layout, int group, z3d_group_part part) {
    const z3d_group_layout *g = &layout->group[group];
    return g->held ? z3d_rows_elements(g, kept_of(layout, group, part)->rows) : 0;
}

int64_t z3d_rows_elements(const z3d_group_layout *group, z3d_rows rows) {
    if (rows == Z3D_ROWS_ALL) return group->padded;
    return rows == Z3D_ROWS_BLOCK ? group->block * group->shard : group->shard;
}

int64_t z3d_rows_first(const z3d_group_layout *group, z3d_rows rows) {
    if (rows == Z3D_ROWS_OWN) return group->own * group->shard;
    return rows == Z3D_ROWS_BLOCK ? group->own / group->block * group->block * group->shard : 0;
}

int64_t z3d_kept_first(const z3d_layout *layout, int group, z3d_group_part part) {
    return z3d_rows_first(&layout->group[group], kept_of(layout, group, part)->rows);
}

int64_t z3d_kept_stride(const z3d_layout *layout, int group, z3d_group_part part) {
    int64_t elements = z3d_kept_elements(layout, group, part);
    const z3d_kept *kept = kept_of(layout, group, part);
    if (kept->space != Z3D_SPACE_DISK) return elements;
    return z3d_round_up(elements, z3d_values_in(kept->dtype, Z3D_DISK_ALIGN));
}

int64_t z3d_kept_bytes(const z3d_layout *layout, int group, z3d_group_part part) {
    const z3d_kept *kept = kept_of(layout, group, part);
    return z3d_count_kinds(kept->kinds) *
           z3d_bytes_of(kept->dtype, z3d_kept_stride(layout, group, part));
}

int z3d_kept_index(const z3d_layout *layout, int group, z3d_group_part part, z3d_tensor_kind kind) {
    unsigned kinds = kept_of(layout, group, part)->kinds, own = 1U << kind;
    return kinds & own ? z3d_count_kinds(kinds & (own - 1)) : -1;
}

double z3d_offloaded_share(const z3d_layout *layout) {
    double offloaded = 0, all = 0;
    for (int g = 0; g < layout->num_groups; g++) {
        const bool counts = layout->group[g].held && !layout->group[g].frozen;
        const double elements = counts ? (double)layout->group[g].padded : 0;
        all += elements;
        if (kept_of(layout, g, Z3D_PART_OPTIMIZER)->space != Z3D_SPACE_DEVICE)
            offloaded += elements;
    }
    return all > 0 ? offloaded / all : 0;
}

bool z3d_keeps_whole_gradients(const z3d_layout *layout) {
    for (int g = 0; g < layout->num_groups; g++)
        if (!layout->group[g].frozen)
            return z3d_keeps_all_rows(layout, g, Z3D_PART_GRADIENTS) &&
                   !z3d_keeps_all_rows(layout, g, Z3D_PART_OPTIMIZER);
    return false;
}
