/* Plays the tapes of all pipeline stages together on described hardware. A stage runs until it must
 * wait for another one. Times do not depend on the order in which stages are played. */
#include <math.h>
#include <stdlib.h>

#include "src/plan/price/simulate.h"

/* A side lane, which works in order: a group's collectives, copies, a disk. Its clock counts the
 * seconds of work that it could have done so far; while kernels run it goes at `overlap` speed. */
typedef struct lane {
    double clock, free; /* free: when the latest start will be over, on the lane's clock */
    double overlap;     /* speed while other work runs */
    struct ending {
        double clock, now; /* the lane's, the stage's */
    } * end; /* by id: when it will be over; now: if compute does not wait until then */
    int64_t ids;
} lane;

typedef struct price {
    double seconds, bytes, between_nodes;
    double launch;  /* seconds of the host's thread before the event */
    double taken;   /* seconds that a collective takes from the device's other work */
    double lists;   /* seconds of the host before it starts, while the device stands still */
    double overlap; /* of a send or receive */
    bool host;      /* a kernel of the host's lane */
} price;

typedef struct transfer {
    const z3d_event *call;
    double started, seconds;
    double begin, end; /* set when both ends have started it */
} transfer;

typedef struct player {
    struct play *play;
    const z3d_sim_stage *stage;
    int number;
    price *price; /* by event of the tape */
    lane lane[Z3D_LANES];
    unsigned char *copy_lane; /* by id */
    int64_t copies;
    transfer *transfer; /* all sends and receives so far */
    int first_transfer; /* id of the first one */
    int started, met;   /* counts; the first `met` have met their other ends */
    int64_t capacity;   /* of transfers */
    double link_free;   /* when the latest of these will be over */
    int meetings;       /* meetings of the world that this stage has left */
    bool arrived;       /* at the next meeting */
    int64_t next;       /* tape entry */
    int instruction;    /* the running one; -1: none */
    double now, entered;
    double host; /* time of the host's thread: `now`, or earlier while enqueued kernels run */
    z3d_step_time *out;
} player;

/* A collective of the world, which begins when all stages have come. */
typedef struct meeting {
    int arrived;
    double latest;
} meeting;

typedef struct play {
    const z3d_simulation *simulation;
    int ranks; /* of the world */
    const z3d_hardware *hardware;
    const z3d_spans *spans;
    z3d_links links[Z3D_AXES_COUNT];
    double crowding;
    bool host_computes; /* device and host are the same cores */
    player *player;
    meeting meeting[2]; /* the next one and the one before; no stage is further ahead */
} play;

/* ---- prices ---- */

static bool is_transfer(const z3d_event *event) {
    return event->of == Z3D_COLLECTIVE_SEND || event->of == Z3D_COLLECTIVE_RECV;
}

static price price_transfer(const player *p, const z3d_event *event) {
    const play *w = p->play;
    z3d_transfer_price of =
        z3d_links_transfer(w->hardware, &w->links[event->axes], &p->stage->mesh, event);
    price out = {.seconds = of.seconds,
                 .launch = w->hardware->host_launch_us * 1e-6,
                 .overlap = z3d_hardware_overlap(w->hardware, of.between_nodes)};
    if (!of.between_nodes) out.seconds *= w->crowding;
    if (event->of == Z3D_COLLECTIVE_SEND) out.bytes = of.bytes;
    if (of.between_nodes) out.between_nodes = out.bytes;
    /* Each end pays half of what sending and receiving a byte takes. */
    out.taken = w->crowding * z3d_links_core(w->hardware, of.between_nodes ? of.bytes / 2 : 0);
    return out;
}

static price price_of(const player *p, const z3d_event *event) {
    const play *w = p->play;
    const z3d_links *links = &w->links[event->axes];
    price out = {0};
    switch (event->kind) {
    case Z3D_EVENT_KERNEL:
        out.host = event->to == Z3D_SPACE_HOST && !w->host_computes;
        out.seconds = out.host ? z3d_hardware_host_kernel(w->hardware, event, w->ranks)
                               : w->crowding * z3d_hardware_kernel(w->hardware, event);
        if (!out.host)
            out.launch =
                z3d_hardware_launches(w->hardware, event) * w->hardware->host_launch_us * 1e-6;
        break;
    case Z3D_EVENT_START:
        if (is_transfer(event)) return price_transfer(p, event);
        if (links->members > 1) out.launch = w->hardware->host_launch_us * 1e-6;
        out.seconds = z3d_links_collective(w->hardware, links, event);
        if (links->nodes == 1) out.seconds *= w->crowding; /* on a cpu the cores move the data */
        out.bytes = z3d_links_bytes(w->hardware, links, event, &out.between_nodes);
        out.taken = w->crowding * z3d_links_taken(w->hardware, links, event, out.between_nodes);
        out.lists = z3d_links_lists(w->hardware, links, event);
        break;
    case Z3D_EVENT_COPY_START:
        out.seconds = z3d_hardware_copy(w->hardware, event, w->ranks);
        break;
    default:
        break;
    }
    return out;
}

/* ---- time passes on one stage ---- */

/* The lane whose clock counts for lane l: with one_lane all groups share the world's. */
static int clock_of(const player *p, int l) {
    return l < Z3D_AXES_COUNT && p->play->hardware->one_lane > 0 ? Z3D_AXES_WORLD : l;
}

static void tell(const player *p, z3d_span_kind kind, int lane, double begin, double end) {
    const z3d_spans *spans = p->play->spans;
    if (!spans || end <= begin) return;
    z3d_span span = {kind, p->number, lane, p->instruction, begin, end};
    spans->take(spans->context, &span);
}

static void compute(player *p, double seconds) {
    p->now += seconds;
    p->out->compute += seconds;
    for (int l = 0; l < Z3D_LANES; l++) p->lane[l].clock += seconds * p->lane[l].overlap;
}

/* Compute waits for lane `l`; -1: for another stage. While it waits for a stage, disk or host, all
 * lanes run at full speed, since the device is idle. */
static void stand_still(player *p, int l, double seconds) {
    const bool idle = l < 0 || l >= Z3D_LANE_DISK;
    const int moving = idle ? l : clock_of(p, l);
    tell(p, l < 0 ? Z3D_SPAN_BUBBLE : Z3D_SPAN_WAIT, l < 0 ? 0 : l, p->now, p->now + seconds);
    p->now += seconds;
    for (int other = 0; other < Z3D_LANES; other++)
        p->lane[other].clock += seconds * (other == moving || idle ? 1 : p->lane[other].overlap);
}

/* The host's thread enqueues a kernel or collective. A device without other work waits for it. */
static void launch(player *p, double seconds) {
    if (seconds <= 0) return;
    p->host += seconds;
    double missing = p->host - p->now;
    if (missing <= 0) return;
    stand_still(p, Z3D_LANE_HOST, missing);
    p->out->launch += missing;
}

/* The host works before it starts a collective, after the device has done all that came before. */
static void make_lists(player *p, double seconds) {
    if (seconds <= 0) return;
    stand_still(p, Z3D_LANE_HOST, seconds);
    p->host = p->now;
    p->out->launch += seconds;
}

/* The host's thread runs a kernel; the device goes on with its enqueued work. */
static void compute_on_host(player *p, double seconds) {
    double end = p->host + seconds, missing = end - p->now;
    tell(p, Z3D_SPAN_BESIDE, Z3D_LANE_HOST, p->host, end);
    p->host = end;
    if (missing <= 0) return;
    stand_still(p, Z3D_LANE_HOST, missing);
    p->out->host += missing;
}

static void idle(player *p, double until) {
    double seconds = until - p->now;
    if (seconds <= 0) return;
    stand_still(p, -1, seconds);
    p->out->bubble += seconds;
}

/* Makes room for an id in an array by id; lanes share ids, so some may be missing. */
static z3d_status make_room(int64_t id, int64_t *ids, size_t bytes, void *array) {
    while (id >= *ids) Z3D_TRY(z3d_grow(*ids, ids, bytes, "a simulation", array));
    return Z3D_OK;
}

static z3d_status start(player *p, int l, int64_t id, double seconds) {
    lane *lane = &p->lane[l], *clock = &p->lane[clock_of(p, l)];
    Z3D_TRY(make_room(id, &lane->ids, sizeof *lane->end, &lane->end));
    const double begin = clock->free > clock->clock ? clock->free : clock->clock;
    const double at = p->now + begin - clock->clock;
    clock->free = begin + seconds;
    lane->end[id] = (struct ending){clock->free, at + seconds};
    tell(p, Z3D_SPAN_BESIDE, l, at, at + seconds);
    return Z3D_OK;
}

/* Returns the seconds that compute waits. The host waits for copies, too: until the copy is over,
 * not until the enqueued kernels are. */
static double wait(player *p, int l, int64_t id) {
    if (id >= p->lane[l].ids) return 0;
    const struct ending *end = &p->lane[l].end[id];
    double missing = end->clock - p->lane[clock_of(p, l)].clock;
    const bool blocks = l >= Z3D_AXES_COUNT;
    if (blocks && p->host < end->now) p->host = end->now < p->now ? end->now : p->now;
    if (missing <= 0) return 0;
    stand_still(p, l, missing);
    if (blocks) p->host = p->now;
    return missing;
}

/* ---- stages meet ---- */

/* Pairs transfers of two stages, in order, as long as both ends have started. */
static void meet_peers(player *p) {
    while (p->met < p->started) {
        transfer *mine = &p->transfer[p->met];
        player *q = &p->play->player[mine->call->peer];
        if (q->met == q->started) return;
        transfer *other = &q->transfer[q->met];
        if (other->call->peer != p->number || other->call->of == mine->call->of) return;
        const double begin =
            fmax(fmax(mine->started, other->started), fmax(p->link_free, q->link_free));
        mine->begin = other->begin = begin;
        mine->end = other->end = p->link_free = q->link_free = begin + mine->seconds;
        p->met++, q->met++;
        tell(p, Z3D_SPAN_BESIDE, mine->call->axes, begin, mine->end);
        tell(q, Z3D_SPAN_BESIDE, mine->call->axes, begin, mine->end);
        meet_peers(q);
    }
}

/* With one_lane a transfer begins after the collectives that were started before it. */
static double after_collectives(const player *p) {
    const lane *all = &p->lane[Z3D_AXES_WORLD];
    const bool waits = p->play->hardware->one_lane > 0 && all->free > all->clock;
    return waits ? p->now + all->free - all->clock : p->now;
}

/* The slowdown of kernels by a transfer counts when it starts. */
static z3d_status start_transfer(player *p, const z3d_event *event, int id, const price *of) {
    if (p->started == 0) p->first_transfer = id;
    Z3D_REQUIRE(id - p->first_transfer == p->started && event->peer >= 0 &&
                    event->peer < p->play->simulation->stages,
                "send or receive %d of pipeline stage %d", id, p->number);
    Z3D_TRY(z3d_grow(p->started, &p->capacity, sizeof *p->transfer, "a simulation", &p->transfer));
    p->transfer[p->started++] =
        (transfer){.call = event, .started = after_collectives(p), .seconds = of->seconds};
    double taken = of->seconds * (1 - of->overlap);
    if (taken > 0) stand_still(p, event->axes, taken);
    p->out->exposed[event->axes] += taken;
    meet_peers(p);
    return Z3D_OK;
}

/* Returns whether the other end has started; then waits until the transfer is over. */
static bool wait_transfer(player *p, const z3d_event *event, int id) {
    if (id - p->first_transfer >= p->met) return false;
    const transfer *t = &p->transfer[id - p->first_transfer];
    if (t->end > p->now) {
        idle(p, t->begin);
        double missing = t->end - p->now;
        stand_still(p, event->axes, missing);
        p->out->exposed[event->axes] += missing;
    }
    if (p->play->hardware->transfers_block != 0) p->host = p->now;
    return true;
}

/* Returns whether all stages have come. */
static bool meet_world(player *p) {
    play *w = p->play;
    meeting *m = &w->meeting[p->meetings % 2];
    int stages = w->simulation->stages;
    if (!p->arrived) {
        p->arrived = true;
        if (p->now > m->latest) m->latest = p->now;
        if (++m->arrived == stages) w->meeting[(p->meetings + 1) % 2] = (meeting){0};
    }
    if (m->arrived < stages) return false;
    idle(p, m->latest);
    p->arrived = false;
    p->meetings++;
    return true;
}

/* ---- copies ---- */

static int lane_of_copy(const player *p, const z3d_event *event) {
    if (event->from == Z3D_SPACE_DISK) return Z3D_LANE_DISK;
    if (event->to != Z3D_SPACE_DISK) return Z3D_LANE_COPY;
    return p->play->hardware->nvme_duplex > 0 ? Z3D_LANE_DISK_WRITE : Z3D_LANE_DISK;
}

static void wait_copy(player *p, int64_t id) {
    if (id >= p->copies) return;
    int l = p->copy_lane[id];
    *(l == Z3D_LANE_COPY ? &p->out->transfer : &p->out->disk) += wait(p, l, id);
}

/* Software without overlap (copy_overlap < 1) waits for a copy at its start. */
static z3d_status start_copy(player *p, const z3d_event *event, int id, const price *of) {
    int l = lane_of_copy(p, event);
    Z3D_TRY(make_room(id, &p->copies, sizeof *p->copy_lane, &p->copy_lane));
    p->copy_lane[id] = (unsigned char)l;
    Z3D_TRY(start(p, l, id, of->seconds));
    if (l == Z3D_LANE_COPY && p->play->hardware->copy_overlap < 1) wait_copy(p, id);
    return Z3D_OK;
}

/* ---- events ---- */

/* The host reads the result of an exchange, so it waits for the device. */
static void leave_instruction(player *p) {
    if (p->instruction < 0) return;
    tell(p, Z3D_SPAN_INSTRUCTION, 0, p->entered, p->now);
    z3d_opcode opcode = p->stage->entry[p->instruction].opcode;
    if (z3d_opcode_info_of(opcode)->rules == Z3D_CLASS_EXCHANGE) p->host = p->now;
}

/* With one_lane a collective begins after the transfers that were started before it. Returns
 * whether these have met their other ends; only then their end is known. */
static bool pass_transfers(player *p) {
    lane *all = &p->lane[Z3D_AXES_WORLD];
    if (p->play->hardware->one_lane == 0) return true;
    if (p->met < p->started) return false;
    const double free = all->clock + p->link_free - p->now;
    if (free > all->free) all->free = free;
    return true;
}

static z3d_status start_collective(player *p, const z3d_event *event, int id, const price *of,
                                   bool *stays) {
    const double least = p->play->hardware->gathers_again;
    const bool again = least > 0 && p->instruction >= 0 &&
                       (double)p->stage->entry[p->instruction].recomputed > least;
    const double times = again ? 2 : 1;
    *stays = (!is_transfer(event) && !pass_transfers(p)) ||
             (event->axes == Z3D_AXES_WORLD && !meet_world(p));
    if (*stays) return Z3D_OK;
    launch(p, times * of->launch);
    make_lists(p, times * of->lists);
    if (of->taken > 0) compute(p, times * of->taken);
    p->out->busy[event->axes] += times * of->seconds;
    p->out->bytes[event->axes] += times * of->bytes;
    p->out->bytes_between_nodes[event->axes] += times * of->between_nodes;
    if (is_transfer(event)) return start_transfer(p, event, id, of);
    return start(p, event->axes, id, times * of->seconds);
}

/* *stays: the stage must wait for another one. */
static z3d_status play_entry(player *p, z3d_tape_entry entry, bool *stays) {
    const z3d_event *event = &p->stage->tape->event[entry.event];
    const price *of = &p->price[entry.event];
    switch (event->kind) {
    case Z3D_EVENT_INSTRUCTION:
        leave_instruction(p);
        p->instruction = entry.id;
        p->entered = p->now;
        return Z3D_OK;
    case Z3D_EVENT_KERNEL:
        launch(p, of->launch);
        if (of->host)
            compute_on_host(p, of->seconds);
        else
            compute(p, of->seconds);
        return Z3D_OK;
    case Z3D_EVENT_START:
        return start_collective(p, event, entry.id, of, stays);
    case Z3D_EVENT_WAIT:
        if (is_transfer(event))
            *stays = !wait_transfer(p, event, entry.id);
        else
            p->out->exposed[event->axes] += wait(p, event->axes, entry.id);
        return Z3D_OK;
    case Z3D_EVENT_COPY_START:
        return start_copy(p, event, entry.id, of);
    case Z3D_EVENT_COPY_WAIT:
        wait_copy(p, entry.id);
        return Z3D_OK;
    }
    return Z3D_ERROR(Z3D_ERR_INTERNAL, "unknown event %d on a tape", (int)event->kind);
}

/* Plays a stage until it must wait. *moved: it played an entry. */
static z3d_status run(player *p, bool *moved) {
    const z3d_tape *tape = p->stage->tape;
    while (p->next < tape->count) {
        bool stays = false;
        Z3D_TRY(play_entry(p, tape->entry[p->next], &stays));
        if (stays) break;
        *moved = true;
        p->next++;
    }
    return Z3D_OK;
}

static z3d_status refuse(const play *w) {
    const player *p = w->player;
    while (p->next == p->stage->tape->count) p++;
    const z3d_sim_entry *at = p->stage->entry;
    return Z3D_ERROR(Z3D_ERR_PROGRAM, "pipeline stage %d waits for ever, in instruction %d (%s)",
                     p->number, p->instruction,
                     at && p->instruction >= 0 ? z3d_opcode_name(at[p->instruction].opcode) : "?");
}

static z3d_status run_all(const play *w) {
    int stages = w->simulation->stages, done = 0;
    for (bool moved = true; moved && done < stages;) {
        moved = false;
        done = 0;
        for (int s = 0; s < stages; s++) {
            Z3D_TRY(run(&w->player[s], &moved));
            done += w->player[s].next == w->player[s].stage->tape->count;
        }
    }
    return done < stages ? refuse(w) : Z3D_OK;
}

/* ---- a play ---- */

static z3d_status open_player(play *w, int s) {
    player *p = &w->player[s];
    z3d_sim_stage *stage = &w->simulation->stage[s];
    *p = (player){.play = w, .stage = stage, .number = s, .instruction = -1, .out = &stage->time};
    stage->time = (z3d_step_time){0};
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        p->lane[axes].overlap = z3d_hardware_overlap(w->hardware, w->links[axes].nodes > 1);
    p->lane[Z3D_LANE_COPY].overlap = w->hardware->overlap;
    p->lane[Z3D_LANE_DISK].overlap = p->lane[Z3D_LANE_DISK_WRITE].overlap = 1;
    Z3D_TRY(z3d_new((size_t)stage->tape->events + 1, sizeof *p->price, "prices", &p->price));
    for (int e = 0; e < stage->tape->events; e++) p->price[e] = price_of(p, &stage->tape->event[e]);
    return Z3D_OK;
}

static z3d_status open_play(play *w) {
    const z3d_simulation *simulation = w->simulation;
    const z3d_mesh *mesh = &simulation->mesh;
    w->ranks = z3d_mesh_size(mesh, Z3D_AXES_WORLD);
    w->crowding = z3d_hardware_crowding(w->hardware, w->ranks);
    w->host_computes = z3d_hardware_is_cpu(w->hardware);
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        if (z3d_axes_have_group(mesh, (z3d_axes)axes))
            Z3D_TRY(
                z3d_links_find(mesh, (z3d_axes)axes, (int)w->hardware->devices, &w->links[axes]));
    Z3D_TRY(z3d_new((size_t)simulation->stages, sizeof *w->player, "a simulation", &w->player));
    for (int s = 0; s < simulation->stages; s++) Z3D_TRY(open_player(w, s));
    return Z3D_OK;
}

static void close_play(play *w) {
    for (int s = 0; s < w->simulation->stages && w->player; s++) {
        for (int l = 0; l < Z3D_LANES; l++) free(w->player[s].lane[l].end);
        free(w->player[s].transfer);
        free(w->player[s].copy_lane);
        free(w->player[s].price);
    }
    free(w->player);
}

static int passes_of(const z3d_sim_stage *stage) {
    int passes = 0;
    for (int i = 0; i < stage->num_entries; i++) passes += z3d_sim_is_pass(stage->entry[i].opcode);
    return passes;
}

/* All stages wait for the last one at the end of the step. */
static void finish(const play *w, double memory_used) {
    int stages = w->simulation->stages;
    const double full = fmin(1, fmax(0, (memory_used - 0.88) / 0.12));
    double last = 0;
    for (int s = 0; s < stages; s++) last = fmax(last, w->player[s].now);
    for (int s = 0; s < stages; s++) {
        player *p = &w->player[s];
        leave_instruction(p);
        idle(p, last);
        p->out->allocator = passes_of(p->stage) * full * w->hardware->allocator_ms * 1e-3;
        p->out->seconds = p->now + p->out->allocator;
        p->out->control = p->out->exposed[Z3D_AXES_WORLD];
    }
}

z3d_status z3d_simulation_play(const z3d_simulation *simulation, const z3d_hardware *hardware,
                               double memory_used, const z3d_spans *spans, z3d_step_time *out) {
    play w = {.simulation = simulation, .hardware = hardware, .spans = spans};
    *out = (z3d_step_time){0};
    z3d_status status = open_play(&w);
    if (status == Z3D_OK) status = run_all(&w);
    if (status == Z3D_OK) {
        finish(&w, memory_used);
        *out = simulation->stage[simulation->own].time;
    }
    close_play(&w);
    return status;
}

/* ---- all stages ---- */

static double waiting(const z3d_sim_stage *stage) {
    return stage->time.bubble + stage->time.exposed[Z3D_ROLE_STAGES];
}

int z3d_simulation_slowest(const z3d_simulation *simulation) {
    int slowest = 0;
    for (int s = 1; s < simulation->stages; s++)
        if (waiting(&simulation->stage[s]) < waiting(&simulation->stage[slowest])) slowest = s;
    return slowest;
}

double z3d_simulation_bubble(const z3d_simulation *simulation, double *sends) {
    double bubble = 0, exposed = 0, seconds = 0;
    for (int s = 0; s < simulation->stages; s++) {
        const z3d_step_time *time = &simulation->stage[s].time;
        bubble += time->bubble;
        exposed += time->exposed[Z3D_ROLE_STAGES];
        seconds += time->seconds;
    }
    *sends = seconds > 0 ? exposed / seconds : 0;
    return seconds > 0 ? bubble / seconds : 0;
}
