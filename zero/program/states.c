/* Decides the states that a rank keeps of every parameter group: the only file that reads ZeRO's
 * stage. Stage 1 shards the optimizer states, 2 also the gradients, 3 also the parameters (the
 * paper's P_os, P_os+g, P_os+g+p). All other code reads the answer in the layout. */
#include "src/base/disk.h"
#include "zero/program/layout.h"

/* Whether a rank keeps all rows of gradients: until the reduction, if they are reduced once a step.
 * If every micro-batch is reduced, the others' rows are kept only to be gathered. */
static bool keeps_all_gradients(const z3d_program_config *config) {
    if (config->accumulation > 1) return config->stage < 1 || config->reduce_per_step;
    return config->stage < 2;
}

static unsigned stepped_kinds(const z3d_program_config *config) {
    return z3d_optimizer_kinds(config->optimizer) | (config->ema ? Z3D_KIND(EMA) : 0);
}

/* ---- classes ---- */

int z3d_state_classes(const z3d_program_config *config) {
    return Z3D_STATE_COUNT + config->num_added_states;
}

const z3d_state_class *z3d_state_class_of(const z3d_program_config *config, int role) {
    static const z3d_state_class classes[] = {
        [Z3D_STATE_VALUE] = {.name = "parameters", .category = Z3D_CATEGORY_PARAMETERS},
        [Z3D_STATE_SECONDARY] = {.name = "secondary", .category = Z3D_CATEGORY_PARAMETERS},
        [Z3D_STATE_GRADIENT] = {.name = "gradients", .category = Z3D_CATEGORY_GRADIENTS},
        [Z3D_STATE_OPTIMIZER] = {.name = "optimizer", .category = Z3D_CATEGORY_OPTIMIZER}};
    return role < Z3D_STATE_COUNT ? &classes[role] : &config->added_state[role - Z3D_STATE_COUNT];
}

z3d_status z3d_states_check(const z3d_program_config *config) {
    const int most = Z3D_MAX_STATES - Z3D_STATE_COUNT;
    if (config->num_added_states < 0 || config->num_added_states > most ||
        (config->num_added_states > 0 && !config->added_state))
        return Z3D_ERROR(Z3D_ERR_CONFIG, "%d classes of states were added, but at most %d can be",
                         config->num_added_states, most);
    for (int role = Z3D_STATE_COUNT; role < z3d_state_classes(config); role++) {
        const z3d_state_class *added = z3d_state_class_of(config, role);
        const z3d_axes axes = added->state.at.sharded;
        if (!added->name || (unsigned)added->state.at.space >= Z3D_SPACE_COUNT ||
            (unsigned)added->category >= Z3D_CATEGORY_COUNT)
            return Z3D_ERROR(Z3D_ERR_CONFIG,
                             "an added class of states needs a name, a space and a category");
        if (axes != Z3D_AXES_NONE && axes != Z3D_ROLE_ROWS && axes != Z3D_ROLE_BLOCKS)
            return Z3D_ERROR(Z3D_ERR_CONFIG,
                             "states %s: they cannot be sharded over axes %s, only over %s, over "
                             "%s, or not at all",
                             added->name, z3d_axes_name(axes).text,
                             z3d_axes_name(Z3D_ROLE_ROWS).text,
                             z3d_axes_name(Z3D_ROLE_BLOCKS).text);
    }
    return Z3D_OK;
}

/* ---- the classes of zero/ ---- */

void z3d_states_decide(const z3d_program_config *config, z3d_axes axes, int64_t elements,
                       bool offloaded, bool frozen, z3d_state state[Z3D_MAX_STATES]) {
    const bool whole = config->stage < 3 || elements <= config->persistence;
    const bool all_gradients = keeps_all_gradients(config), steps_all = config->stage < 1;
    const z3d_space optimizer = offloaded && !frozen ? config->offload.optimizer : Z3D_SPACE_DEVICE;
    const z3d_space parameters =
        offloaded && elements > config->persistence ? config->offload.parameters : Z3D_SPACE_DEVICE;
    const unsigned stepped = stepped_kinds(config), master = Z3D_KIND(PARAMETER);
    const bool own_master = config->dtype == Z3D_F32 && optimizer == Z3D_SPACE_DEVICE;
    state[Z3D_STATE_VALUE] =
        (z3d_state){{whole ? Z3D_AXES_NONE : axes, parameters, config->dtype}, Z3D_KIND(PARAMETER)};
    state[Z3D_STATE_SECONDARY] =
        (z3d_state){{Z3D_ROLE_BLOCKS, Z3D_SPACE_DEVICE, config->dtype},
                    config->sharding == Z3D_SHARDING_HPZ && !whole ? Z3D_KIND(PARAMETER) : 0};
    /* Backward adds to all rows, on the device. */
    state[Z3D_STATE_GRADIENT] =
        (z3d_state){{all_gradients ? Z3D_AXES_NONE : axes,
                     all_gradients ? Z3D_SPACE_DEVICE : optimizer, config->grad_dtype},
                    Z3D_KIND(GRADIENT)};
    state[Z3D_STATE_OPTIMIZER] = (z3d_state){{steps_all ? Z3D_AXES_NONE : axes, optimizer, Z3D_F32},
                                             own_master ? stepped & ~master : stepped};
    if (config->inference || frozen) {
        state[Z3D_STATE_GRADIENT].kinds = state[Z3D_STATE_OPTIMIZER].kinds = 0;
        /* The rows that are kept are the rows that would be stepped, so no gather is needed. */
        state[Z3D_STATE_OPTIMIZER].at.sharded = state[Z3D_STATE_VALUE].at.sharded;
    }
    for (int role = Z3D_STATE_COUNT; role < z3d_state_classes(config); role++) {
        const z3d_state_class *added = z3d_state_class_of(config, role);
        state[role] = added->state;
        if ((config->inference || frozen) && !added->of_all) state[role].kinds = 0;
    }
}

unsigned z3d_state_kinds(const z3d_program_config *config) {
    if (config->inference) return Z3D_KIND(PARAMETER);
    return stepped_kinds(config) | (config->offload.delayed ? Z3D_KIND(PENDING) : 0);
}

bool z3d_states_reduce_per_step(int stage) {
    return stage < 2;
}

/* ---- what the layout says ---- */

static const z3d_state *state_of(const z3d_layout *layout, int group, z3d_state_role role) {
    return &layout->group[group].state[role];
}

z3d_rows z3d_state_rows(const z3d_layout *layout, int group, z3d_state_role role) {
    const z3d_axes sharded = state_of(layout, group, role)->at.sharded;
    if (sharded == Z3D_AXES_NONE) return Z3D_ROWS_ALL;
    return sharded == layout->group[group].shard_axes ? Z3D_ROWS_OWN : Z3D_ROWS_BLOCK;
}

bool z3d_state_is_whole(const z3d_layout *layout, int group, z3d_state_role role) {
    return z3d_state_rows(layout, group, role) == Z3D_ROWS_ALL;
}

int64_t z3d_state_elements(const z3d_layout *layout, int group, z3d_state_role role) {
    const z3d_group_layout *g = &layout->group[group];
    return g->held ? z3d_rows_elements(g, z3d_state_rows(layout, group, role)) : 0;
}

int64_t z3d_rows_elements(const z3d_group_layout *group, z3d_rows rows) {
    if (rows == Z3D_ROWS_ALL) return group->padded;
    return rows == Z3D_ROWS_BLOCK ? group->block * group->shard : group->shard;
}

int64_t z3d_rows_first(const z3d_group_layout *group, z3d_rows rows) {
    if (rows == Z3D_ROWS_OWN) return group->own * group->shard;
    return rows == Z3D_ROWS_BLOCK ? group->own / group->block * group->block * group->shard : 0;
}

int64_t z3d_state_first(const z3d_layout *layout, int group, z3d_state_role role) {
    return z3d_rows_first(&layout->group[group], z3d_state_rows(layout, group, role));
}

int64_t z3d_state_bytes(const z3d_layout *layout, int group, z3d_state_role role) {
    const z3d_state *state = state_of(layout, group, role);
    int64_t elements = z3d_state_elements(layout, group, role);
    if (state->at.space == Z3D_SPACE_DISK) /* each tensor has whole blocks */
        elements = z3d_round_up(elements, z3d_values_in(state->at.codec, Z3D_DISK_ALIGN));
    return z3d_count_kinds(state->kinds) * z3d_bytes_of(state->at.codec, elements);
}

int z3d_state_index(const z3d_layout *layout, int group, z3d_state_role role,
                    z3d_tensor_kind kind) {
    unsigned kinds = state_of(layout, group, role)->kinds, own = 1U << kind;
    return kinds & own ? z3d_count_kinds(kinds & (own - 1)) : -1;
}

double z3d_offloaded_share(const z3d_layout *layout) {
    double offloaded = 0, all = 0;
    for (int g = 0; g < layout->num_groups; g++) {
        const bool counts = layout->group[g].held && !layout->group[g].frozen;
        const double elements = counts ? (double)layout->group[g].padded : 0;
        all += elements;
        if (state_of(layout, g, Z3D_STATE_OPTIMIZER)->at.space != Z3D_SPACE_DEVICE)
            offloaded += elements;
    }
    return all > 0 ? offloaded / all : 0;
}

bool z3d_keeps_whole_gradients(const z3d_layout *layout) {
    for (int g = 0; g < layout->num_groups; g++)
        if (!layout->group[g].frozen)
            return z3d_state_is_whole(layout, g, Z3D_STATE_GRADIENT) &&
                   !z3d_state_is_whole(layout, g, Z3D_STATE_OPTIMIZER);
    return false;
}
