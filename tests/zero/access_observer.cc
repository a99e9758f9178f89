#include "tests/zero/access_observer.h"

namespace harness {

AccessObserver::AccessObserver() = default;
AccessObserver::~AccessObserver() = default;

void AccessObserver::watch(z3d_device *device, z3d_engine_config *config) {
    z3d_device_set_access_observer(device, touched, this);
    if (config->host) z3d_device_set_access_observer(config->host, touched, this);
    config->enter = entered;
    config->enter_context = this;
}

void AccessObserver::step_is_over() {
    if (position >= 0) position = OVER;
}

void AccessObserver::expect_as_planned(const z3d_engine *engine) {
    if (!program) return;
    if (seen.empty()) settle(engine);
    EXPECT_EQ("", stray);
    for (int space = 0; space < Z3D_SPACE_DISK; space++) { // a disk has no addresses
        z3d_ledger measured{};
        z3d_program_ledger(&as_measured, (z3d_space)space, &measured);
        z3d_ledger planned = *z3d_engine_planned(engine, (z3d_space)space);
        if (space == Z3D_SPACE_DEVICE) { // the collectives' own buffers lie outside the arena
            planned.peak[Z3D_CATEGORY_COMMUNICATION] -= engine->group_bytes;
            planned.total_peak -= engine->group_bytes;
        }
        for (int k = 0; k < Z3D_CATEGORY_COUNT; k++)
            EXPECT_EQ(planned.peak[k], measured.peak[k])
                << z3d_category_name((z3d_category)k) << " in space " << space;
        EXPECT_EQ(planned.total_peak, measured.total_peak) << "space " << space;
    }
}

z3d_status AccessObserver::entered(void *context, const z3d_program *p, int index) {
    AccessObserver *w = static_cast<AccessObserver *>(context);
    if (w->position == OVER) return Z3D_OK;
    if (p->mode != Z3D_MODE_TRAIN) {
        w->position = w->program ? OVER : ELSEWHERE;
        return Z3D_OK;
    }
    if (!w->program) {
        w->program = p;
        w->during.resize((size_t)p->num_instructions);
    } else if (index == 0) {
        w->position = OVER;
        return Z3D_OK;
    }
    w->position = index;
    if (p->instruction[index].phase == Z3D_PHASE_WAIT) w->end_of(index);
    return Z3D_OK;
}

void AccessObserver::touched(void *context, const void *memory, int64_t bytes) {
    AccessObserver *w = static_cast<AccessObserver *>(context);
    if (w->position == OVER || w->position == ELSEWHERE) return;
    std::vector<Range> &to =
        w->position == BEFORE ? w->before : w->during[static_cast<size_t>(w->position)];
    to.push_back({static_cast<const char *>(memory), bytes});
}

void AccessObserver::end_of(int wait) {
    const z3d_instruction &w = program->instruction[wait];
    int start = wait - 1;
    for (; start >= 0; start--) {
        const z3d_instruction &s = program->instruction[start];
        if (s.phase == Z3D_PHASE_START && s.opcode == w.opcode && s.unit == w.unit &&
            s.micro == w.micro && s.group == w.group && s.first == w.first && s.count == w.count &&
            s.rows == w.rows)
            break;
    }
    ASSERT_GE(start, 0) << "instruction " << wait << " waits for nothing";
    during[(size_t)wait] = during[(size_t)start];
}

bool AccessObserver::inside(const z3d_engine *engine, int buffer, const Range &r) const {
    const z3d_buffer &b = program->buffer[buffer];
    const char *at = engine->arena[b.space] + b.offset;
    return r.at >= at && r.at + r.bytes <= at + b.bytes;
}

void AccessObserver::note(const z3d_engine *engine, int buffer, const Range &r, int index) {
    const z3d_buffer &b = program->buffer[buffer];
    int64_t at = r.at - (engine->arena[b.space] + b.offset);
    Seen &s = seen[(size_t)buffer];
    s.first = std::min(s.first, index);
    s.last = std::max(s.last, index);
    s.low = std::min(s.low, at);
    s.high = std::max(s.high, at + r.bytes);
}

void AccessObserver::place(const z3d_engine *engine, int index, const Range &r) {
    if (r.at == (const char *)&engine->executor[Z3D_MODE_TRAIN].now) return; // the host's copy
    for (int s = 0; index >= 0 && s < program->instruction[index].num_slots; s++) {
        int buffer = program->instruction[index].buffer[s];
        if (buffer >= 0 && inside(engine, buffer, r)) return note(engine, buffer, r, index);
    }
    for (int b = 0; b < program->num_buffers && program->buffer[b].persistent; b++)
        if (inside(engine, b, r)) return note(engine, b, r, index);
    if (index < 0) return; // tests look in: whole tensors in memory of their own
    char what[96];
    stray += "entry " + std::to_string(index) + " (" +
             z3d_instruction_describe(program, index, what, sizeof what) + ") touches " +
             std::to_string(r.bytes) + " bytes outside of what it names; ";
}

int64_t AccessObserver::flat_padding(const z3d_engine *engine, const z3d_buffer &b) const {
    const z3d_layout *layout = engine->set.layout;
    const z3d_group_layout &g = layout->group[b.group];
    int64_t element = (int64_t)z3d_dtype_size(program->config.dtype);
    z3d_state_role role = Z3D_STATE_VALUE;
    if (b.category == Z3D_CATEGORY_OPTIMIZER) element = 4, role = Z3D_STATE_OPTIMIZER;
    bool all = z3d_state_is_whole(layout, b.group, role);
    int64_t end = all ? g.padded : (g.own + 1) * g.shard;
    int64_t own = all ? g.padded : g.shard;
    int64_t padding = std::min(std::max(end - g.elements, (int64_t)0), own);
    return padding == own ? b.bytes : padding * element;
}

void AccessObserver::settle(const z3d_engine *engine) {
    seen.resize((size_t)program->num_buffers);
    for (const Range &r : before) place(engine, -1, r);
    for (int i = 0; i < program->num_instructions; i++)
        for (const Range &r : during[(size_t)i]) place(engine, i, r);
    buffers.assign(program->buffer, program->buffer + program->num_buffers);
    for (size_t k = 0; k < buffers.size(); k++) {
        z3d_buffer &b = buffers[k];
        const Seen &s = seen[k];
        int64_t planned = b.bytes;
        b.bytes = s.high > 0 ? s.high - s.low : 0;
        if (b.persistent && b.group >= 0 && b.bytes < planned &&
            b.bytes + flat_padding(engine, program->buffer[k]) == planned)
            b.bytes = planned;
        if (b.persistent) continue;
        b.first = s.last < 0 ? 0 : s.first;
        b.last = std::max(s.last, 0);
    }
    as_measured = *program;
    as_measured.buffer = buffers.data();
}

} // namespace harness
