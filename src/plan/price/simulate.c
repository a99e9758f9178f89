/* Runs a step on the sim device, and plays its tape on described hardware. */
#include "src/plan/price/simulate.h"

#include <stdlib.h>
#include <string.h>

/* ---- running ---- */

static z3d_status enter(void *context, const z3d_program *program, int index) {
    (void)program;
    z3d_simulation *simulation = context;
    return z3d_tape_append(simulation->tape,
                           &(z3d_event){.kind = Z3D_EVENT_INSTRUCTION, .id = index});
}

static z3d_status run_step(z3d_simulation *simulation, const z3d_model *model,
                           const z3d_program_config *program, double gradient_clipping) {
    z3d_micro_batch *micro;
    z3d_step_result result;
    z3d_engine_config config = {
        .model = model,
        .mesh = simulation->mesh,
        .device = simulation->device,
        .program = *program,
        .optimizer = {.beta1 = 0.9F, .beta2 = 0.95F, .epsilon = 1e-8F},
        .gradient_clipping = gradient_clipping,
        .scaler = {.scale = 1},
        .without_values = true,
        .enter = enter,
        .enter_context = simulation,
    };
    memcpy(config.group, simulation->group, sizeof config.group);
    Z3D_TRY(z3d_engine_create(&config, &simulation->engine));
    Z3D_TRY(z3d_new((size_t)program->accumulation, sizeof *micro, "micro-batches", &micro));
    z3d_tape_clear(simulation->tape);
    z3d_step_input input = {.micro = micro, .global_targets = 1};
    z3d_status status = z3d_engine_train_step(simulation->engine, &input, &result);
    free(micro);
    return status;
}

static z3d_status create_group(z3d_simulation *simulation, z3d_axes axes, int node_ranks) {
    const z3d_mesh *at = &simulation->mesh;
    int size = z3d_mesh_size(at, axes);
    int64_t buffers = 0;
    if (node_ranks > 0) { /* ranks of a group ascend */
        int first = z3d_mesh_member(at, axes, at->rank, 0);
        int last = z3d_mesh_member(at, axes, at->rank, size - 1);
        buffers = z3d_group_buffers_on_cpus(size, first / node_ranks == last / node_ranks);
    }
    return z3d_group_create_sim(axes, size, z3d_mesh_index(at, axes, at->rank), simulation->tape,
                                buffers, &simulation->group[axes]);
}

z3d_status z3d_simulation_create(const z3d_model *model, const z3d_mesh *mesh,
                                 const z3d_program_config *program, double gradient_clipping,
                                 z3d_sim_node node, z3d_simulation **out) {
    *out = NULL;
    z3d_simulation *made;
    z3d_status status = z3d_new(1, sizeof *made, "a simulation", &made);
    if (status != Z3D_OK) return status;
    made->mesh = *mesh;
    Z3D_TRY_GOTO(status, z3d_tape_create(&made->tape), failed);
    z3d_device_config device = {.backend = "sim", .threads = node.threads, .tape = made->tape};
    Z3D_TRY_GOTO(status, z3d_device_create(&device, &made->device), failed);
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        if (z3d_axes_have_group((z3d_axes)axes))
            Z3D_TRY_GOTO(status, create_group(made, (z3d_axes)axes, node.ranks), failed);
    Z3D_TRY_GOTO(status, run_step(made, model, program, gradient_clipping), failed);
    *out = made;
    return Z3D_OK;
failed:
    z3d_simulation_destroy(made);
    return status;
}

void z3d_simulation_destroy(z3d_simulation *simulation) {
    if (!simulation) return;
    z3d_engine_destroy(simulation->engine);
    z3d_groups_destroy(simulation->group);
    z3d_device_destroy(simulation->device);
    z3d_tape_destroy(simulation->tape);
    free(simulation);
}

/* ---- playing ---- */

/* Something that works beside compute, in order: a group's collectives, or the copies. Its clock
 * counts what it could have worked so far, at its `overlap` speed while kernels run. */
enum { LANE_COPY = Z3D_AXES_COUNT, LANES };
typedef struct lane {
    double clock, free; /* free: when the last that was started will be over, on the lane's clock */
    double overlap;     /* speed while something else runs */
    double *end;        /* by id: when each will be over */
    int64_t ids;
    int row; /* of the timeline; 0 is compute's */
} lane;

typedef struct player {
    const z3d_simulation *simulation;
    const z3d_hardware *hardware;
    z3d_links links[Z3D_AXES_COUNT];
    lane lane[LANES];
    double now, crowding;
    FILE *timeline;
    int instruction; /* that runs, -1: none */
    double entered;
    z3d_step_time *out;
} player;

static void span(const player *p, const char *name, const char *what, int row, double begin,
                 double end) {
    if (!p->timeline || end <= begin) return;
    z3d_string text = {0};
    z3d_string_append_json(&text, name);
    fprintf(p->timeline,
            "{\"name\":%s,\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,"
            "\"dur\":%.3f},\n",
            text.text ? text.text : "\"?\"", what, p->simulation->mesh.rank, row, begin * 1e6,
            (end - begin) * 1e6);
    z3d_string_free(&text);
}

static void compute(player *p, double seconds) {
    p->now += seconds;
    p->out->compute += seconds;
    for (int l = 0; l < LANES; l++) p->lane[l].clock += seconds * p->lane[l].overlap;
}

static z3d_status start(player *p, int l, int64_t id, double seconds) {
    lane *lane = &p->lane[l];
    if (id >= lane->ids) {
        int64_t ids = 2 * id + 64;
        double *end = realloc(lane->end, (size_t)ids * sizeof *end);
        if (!end)
            return Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory to simulate %lld collectives",
                             (long long)ids);
        lane->end = end;
        lane->ids = ids;
    }
    double begin = lane->free > lane->clock ? lane->free : lane->clock;
    lane->end[id] = lane->free = begin + seconds;
    span(p, l == LANE_COPY ? "copy" : z3d_axes_name((z3d_axes)l).text, "beside", lane->row,
         p->now + begin - lane->clock, p->now + begin - lane->clock + seconds);
    return Z3D_OK;
}

/* Seconds that compute stands still. */
static double wait(player *p, int l, int64_t id) {
    if (id >= p->lane[l].ids) return 0;
    double missing = p->lane[l].end[id] - p->lane[l].clock;
    if (missing <= 0) return 0;
    span(p, "wait", "wait", 0, p->now, p->now + missing);
    p->now += missing;
    for (int other = 0; other < LANES; other++)
        p->lane[other].clock += missing * (other == l ? 1 : p->lane[other].overlap);
    return missing;
}

static void leave_instruction(player *p) {
    char name[96];
    if (p->instruction < 0) return;
    const z3d_program *program = z3d_engine_program(p->simulation->engine, Z3D_MODE_TRAIN);
    span(p, z3d_instruction_describe(program, p->instruction, name, sizeof name), "compute", 0,
         p->entered, p->now);
}

static z3d_status start_collective(player *p, const z3d_event *event) {
    const z3d_links *links = &p->links[event->axes];
    double seconds = z3d_links_collective(p->hardware, links, event), between;
    if (links->nodes == 1) seconds *= p->crowding; /* on a cpu cores move the data */
    p->out->busy[event->axes] += seconds;
    p->out->bytes[event->axes] += z3d_links_bytes(p->hardware, links, event, &between);
    p->out->bytes_between_nodes[event->axes] += between;
    return start(p, event->axes, event->id, seconds);
}

/* Software that does not go on before a copy is over waits at its start. */
static z3d_status start_copy(player *p, const z3d_event *event) {
    Z3D_TRY(start(p, LANE_COPY, event->id, z3d_hardware_copy(p->hardware, event->bytes)));
    if (p->hardware->copy_overlap < 1) p->out->transfer += wait(p, LANE_COPY, event->id);
    return Z3D_OK;
}

static z3d_status play(player *p, const z3d_event *event) {
    switch (event->kind) {
    case Z3D_EVENT_INSTRUCTION:
        if (p->timeline) leave_instruction(p);
        p->instruction = (int)event->id;
        p->entered = p->now;
        return Z3D_OK;
    case Z3D_EVENT_KERNEL:
        p->out->kernel_flops += event->flops;
        compute(p, p->crowding * z3d_hardware_kernel(p->hardware, event));
        return Z3D_OK;
    case Z3D_EVENT_START:
        return start_collective(p, event);
    case Z3D_EVENT_WAIT:
        p->out->exposed[event->axes] += wait(p, event->axes, event->id);
        return Z3D_OK;
    case Z3D_EVENT_COPY_START:
        return start_copy(p, event);
    case Z3D_EVENT_COPY_WAIT:
        p->out->transfer += wait(p, LANE_COPY, event->id);
        return Z3D_OK;
    }
    return Z3D_ERROR(Z3D_ERR_INTERNAL, "unknown event %d on a tape", (int)event->kind);
}

static z3d_status open_lanes(player *p) {
    const z3d_mesh *mesh = &p->simulation->mesh;
    const z3d_hardware *hardware = p->hardware;
    p->crowding = z3d_hardware_crowding(hardware, z3d_mesh_size(mesh, Z3D_AXES_WORLD));
    int row = 1;
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
        if (!p->simulation->group[axes]) continue;
        z3d_links *links = &p->links[axes];
        Z3D_TRY(z3d_links_find(mesh, (z3d_axes)axes, (int)hardware->devices, links));
        bool network = links->nodes > 1 && hardware->network_overlap >= 0;
        p->lane[axes].overlap = network ? hardware->network_overlap : hardware->overlap;
        p->lane[axes].row = row++;
    }
    p->lane[LANE_COPY].overlap = hardware->overlap;
    p->lane[LANE_COPY].row = row;
    return Z3D_OK;
}

static void name_row(const player *p, int row, const char *name, const char *what) {
    fprintf(p->timeline,
            "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":"
            "\"%s%s\"}},\n",
            p->simulation->mesh.rank, row, name, what);
}

static void begin_timeline(const player *p) {
    if (!p->timeline) return;
    fprintf(p->timeline, "[\n");
    name_row(p, 0, "compute", "");
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        if (p->simulation->group[axes])
            name_row(p, p->lane[axes].row, z3d_axes_name((z3d_axes)axes).text, " group");
    name_row(p, p->lane[LANE_COPY].row, "copies", "");
}

static void finish(player *p, double memory_used) {
    if (p->timeline) {
        leave_instruction(p);
        fprintf(p->timeline, "{}]\n");
    }
    double full = (memory_used - 0.88) / 0.12;
    full = full < 0 ? 0 : full > 1 ? 1 : full;
    p->out->allocator = p->now * full * p->hardware->allocator_slowdown;
    p->out->seconds = p->now + p->out->allocator;
    p->out->control = p->out->exposed[Z3D_AXES_WORLD];
}

z3d_status z3d_simulation_play(const z3d_simulation *simulation, const z3d_hardware *hardware,
                               double memory_used, FILE *timeline, z3d_step_time *out) {
    *out = (z3d_step_time){0};
    player p = {.simulation = simulation,
                .hardware = hardware,
                .timeline = timeline,
                .out = out,
                .instruction = -1};
    z3d_status status = Z3D_OK;
    Z3D_TRY(open_lanes(&p));
    begin_timeline(&p);
    for (int64_t i = 0; i < simulation->tape->count && status == Z3D_OK; i++)
        status = play(&p, &simulation->tape->event[i]);
    if (status == Z3D_OK) finish(&p, memory_used);
    for (int l = 0; l < LANES; l++) free(p.lane[l].end);
    if (status == Z3D_OK && timeline && ferror(timeline))
        status = Z3D_ERROR(Z3D_ERR_IO, "cannot write the timeline");
    return status;
}

/* ---- memory ---- */

double z3d_memory_host_free(const z3d_memory_need *need) {
    return need->host_capacity - (double)(need->host_arena + need->snapshot);
}

void z3d_memory_find(const int64_t arena[Z3D_SPACE_COUNT], int64_t snapshot,
                     const z3d_hardware *hardware, double extra, z3d_memory_need *out) {
    *out = (z3d_memory_need){
        .arena = arena[Z3D_SPACE_DEVICE],
        .host_arena = arena[Z3D_SPACE_HOST],
        .snapshot = snapshot,
        .overhead = hardware->overhead_gb * 1e9,
        .extra = extra,
        .capacity = hardware->memory_gib * 1073741824.0,
        .host_capacity = hardware->host_memory_gib * 1073741824.0 / hardware->devices,
    };
    out->free = out->capacity - (double)out->arena - out->overhead - extra;
    out->fits = out->free >= 0 && z3d_memory_host_free(out) >= 0;
}

void z3d_simulation_memory(const z3d_simulation *simulation, int64_t snapshot,
                           const z3d_hardware *hardware, double extra, z3d_memory_need *out) {
    const z3d_program *train = z3d_engine_program(simulation->engine, Z3D_MODE_TRAIN);
    z3d_memory_find(train->arena, snapshot, hardware, extra, out);
}
