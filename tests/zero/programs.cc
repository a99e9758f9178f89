#include "tests/zero/programs.h"

namespace programs {

Options small() {
    Options o;
    o.data = 1;
    o.micro_batch = 2;
    o.dtype = Z3D_BF16;
    o.bucket = 1024;
    o.hidden = 16;
    o.heads = 2;
    o.sequence = 8;
    o.vocabulary = 27;
    return o;
}

World::~World() {
    destroy(programs);
    for (z3d_layout *layout : layouts) z3d_layout_destroy(layout);
    z3d_traces_destroy(traces);
    z3d_model_destroy(model);
}

int World::size() const {
    return o.ranks();
}

z3d_status World::prepare() {
    z3d_program_config c = o.program_config();
    Z3D_TRY(o.create_model(&model));
    for (int rank = 0; rank < size(); rank++) {
        z3d_mesh t;
        z3d_layout *layout;
        Z3D_TRY(o.make_mesh(rank, &t));
        Z3D_TRY(z3d_layout_create(model, &t, &c, &layout));
        layouts.push_back(layout);
    }
    return z3d_traces_record(model, layouts[0], &c, 1, &traces);
}

z3d_status World::build(z3d_mode mode, bool gathered) {
    z3d_program_config c = o.program_config();
    c.gathered = gathered;
    destroy(programs);
    for (int rank = 0; rank < size(); rank++) {
        z3d_mesh t;
        z3d_program *p;
        Z3D_TRY(o.make_mesh(rank, &t));
        Z3D_TRY(z3d_program_build(model, layouts[(size_t)rank], traces, &t, &c, mode, &p));
        programs.push_back(p);
        Z3D_TRY(z3d_program_plan(&p, 1));
    }
    return Z3D_OK;
}

void World::destroy(std::vector<z3d_program *> &list) {
    for (z3d_program *p : list) z3d_program_destroy(p);
    list.clear();
}

Copy::Copy(const z3d_program &p)
    : entries(p.instruction, p.instruction + p.num_instructions),
      buffers(p.buffer, p.buffer + p.num_buffers), program(p) {
    sync();
}

z3d_program *Copy::sync() {
    list_.assign(entries.begin(), entries.end());
    program.instruction = list_.data();
    program.num_instructions = (int)entries.size();
    program.buffer = buffers.data();
    program.num_buffers = (int)buffers.size();
    return &program;
}

z3d_status Copy::settle() {
    sync();
    for (z3d_buffer &b : buffers) {
        if (!b.persistent) b.first = INT_MAX, b.last = -1;
    }
    for (int i = 0; i < program.num_instructions; i++) {
        for (int index : entries[(size_t)i].slots) {
            if (index < 0 || buffers[(size_t)index].persistent) continue;
            z3d_buffer &b = buffers[(size_t)index];
            if (b.first == INT_MAX) b.first = i;
            b.last = i;
        }
    }
    for (z3d_buffer &b : buffers) {
        if (b.last < 0) b.first = b.last = 0, b.bytes = 0;
    }
    z3d_program *p = &program;
    return z3d_program_plan(&p, 1);
}

int Copy::find(z3d_opcode opcode, int skip, z3d_phase phase) const {
    for (size_t i = 0; i < entries.size(); i++) {
        if (entries[i].opcode == opcode && entries[i].phase == phase && skip-- == 0) return (int)i;
    }
    return -1;
}

std::vector<Options> dozen() {
    std::vector<Options> list;
    auto add = [&list](int stage, int tensor, int data, int accumulation, bool per_step,
                       bool recompute, bool overlap, int64_t bucket) {
        Options o = small();
        o.stage = stage;
        o.tensor = tensor;
        o.data = data;
        o.accumulation = accumulation;
        o.reduce_per_step = per_step;
        o.recompute = recompute;
        o.overlap = overlap;
        o.bucket = bucket;
        list.push_back(o);
    };
    add(0, 1, 1, 1, true, false, false, 1 << 20);
    add(0, 1, 2, 1, true, true, true, 2048);
    add(0, 1, 4, 2, true, true, true, 2048);
    add(0, 2, 2, 3, false, false, true, 2048);
    add(1, 1, 2, 2, true, true, false, 2048);
    add(1, 2, 2, 1, true, false, true, 1024);
    add(1, 1, 4, 3, false, true, true, 2048);
    add(2, 1, 2, 1, false, true, true, 1024);
    add(2, 2, 2, 2, false, true, true, 2048);
    add(2, 1, 4, 3, true, false, true, 2048);
    add(3, 1, 2, 2, false, true, true, 2048);
    add(3, 2, 2, 1, false, true, false, 1024);
    add(3, 1, 4, 2, true, true, true, 2048);
    add(3, 2, 1, 3, false, false, true, 1 << 20);
    list[3].dtype = Z3D_F32;
    list[8].grad_fp32 = true;
    list[11].replay_full = true;
    // ZeRO-R: checkpoints split, in host memory, both, and fewer than blocks.
    add(2, 2, 1, 1, false, true, true, 2048);
    list.back().partition = true;
    add(3, 1, 2, 1, false, true, true, 2048);
    list.back().checkpoint_space = Z3D_SPACE_HOST;
    add(1, 2, 2, 2, true, true, true, 2048);
    list.back().partition = true;
    list.back().checkpoint_space = Z3D_SPACE_HOST;
    add(3, 2, 1, 1, false, true, false, 1 << 20);
    list.back().partition = true;
    list.back().checkpoint_space = Z3D_SPACE_HOST;
    list.back().layers = 3;
    list.back().checkpoint_every = 2;
    // The same on the disk: whole, and in parts beside accumulation.
    add(2, 1, 2, 1, false, true, true, 2048);
    list.back().checkpoint_space = Z3D_SPACE_DISK;
    list.back().layers = 3;
    add(3, 2, 1, 2, false, true, true, 2048);
    list.back().partition = true;
    list.back().checkpoint_space = Z3D_SPACE_DISK;
    // Offload: pieces on the disk and parameters in host memory; all of it on the disk; the
    // optimizer alone, of whole rows.
    add(3, 1, 2, 2, false, true, true, 2048);
    list.back().tiers = {Z3D_SPACE_DISK, Z3D_SPACE_HOST, 2048, 3, 0.5, false};
    add(3, 2, 1, 1, false, true, true, 2048);
    list.back().tiers = {Z3D_SPACE_DISK, Z3D_SPACE_DISK, 0, 2, 0, false};
    list.back().prefetch = 10000;
    add(0, 1, 2, 1, true, true, false, 2048);
    list.back().tiers = {Z3D_SPACE_HOST, Z3D_SPACE_DEVICE, 0, 0, 0, false};
    // The same one step late: all on the disk, in pieces; whole rows that backward adds to; rows in
    // host memory of which the first micro-batch's go over the last step's.
    add(3, 1, 2, 1, false, true, true, 2048);
    list.back().tiers = {Z3D_SPACE_DISK, Z3D_SPACE_DISK, 2048, 3, 0, true};
    add(0, 1, 2, 2, true, true, true, 2048);
    list.back().tiers = {Z3D_SPACE_DISK, Z3D_SPACE_DEVICE, 0, 0, 0, true};
    add(3, 2, 1, 2, false, false, false, 2048);
    list.back().tiers = {Z3D_SPACE_HOST, Z3D_SPACE_HOST, 0, 0, 0, true};
    // Sequence parallelism: sums over the tensor group beside compute, over one data rank and two.
    add(0, 2, 2, 1, true, true, true, 2048);
    list.back().sequence_parallel = list.back().partition = true;
    add(3, 2, 1, 1, false, true, true, 2048);
    list.back().sequence_parallel = true;
    list.back().checkpoint_space = Z3D_SPACE_HOST;
    add(2, 2, 1, 2, false, false, false, 2048);
    list.back().sequence_parallel = true;
    // Frozen: below what is trained, and beside it; of whole rows that are kept elsewhere.
    add(3, 1, 2, 1, false, true, true, 2048);
    list.back().frozen = {"wte", "wpe", "block.0", "*c_fc*"};
    add(1, 2, 1, 2, true, false, true, 2048);
    list.back().frozen = {"*weight"};
    list.back().tiers = {Z3D_SPACE_HOST, Z3D_SPACE_DEVICE, 0, 0, 0, false};
    // A data axis that is cut: whole gradients in two parts; a secondary value, also of what lies
    // on the disk; copies of the states, with sums over the tensor group.
    auto cut = [&list](z3d_sharding sharding) {
        list.back().outer = 2;
        list.back().sharding = sharding;
    };
    add(0, 1, 4, 2, true, true, true, 2048);
    cut(Z3D_SHARDING_HIERARCHICAL);
    add(2, 1, 4, 1, false, true, false, 1024);
    cut(Z3D_SHARDING_HIERARCHICAL);
    add(3, 1, 4, 2, false, true, true, 2048);
    cut(Z3D_SHARDING_HPZ);
    list.back().frozen = {"*c_fc*"}; // small groups travel as one, in both parts
    add(3, 1, 4, 1, false, true, true, 1 << 20);
    cut(Z3D_SHARDING_HPZ);
    list.back().tiers = {Z3D_SPACE_DISK, Z3D_SPACE_DISK, 2048, 3, 0, false};
    list.back().prefetch = 10000;
    add(1, 2, 4, 2, true, false, true, 2048);
    cut(Z3D_SHARDING_HYBRID);
    list.back().sequence_parallel = true;
    add(3, 1, 4, 2, false, true, true, 2048);
    cut(Z3D_SHARDING_HYBRID);
    list.back().persistence = 500;
    add(3, 1, 2, 2, false, true, true, 2048);
    list.back().layers = 4;
    list.back().gather_ahead = 10000;
    // Gathered parameters that stay: for the turn to backward; for all of a step, but for a limit,
    // in halves and without; what comes from the disk.
    add(3, 1, 2, 2, false, true, true, 2048);
    list.back().reuse_distance = 20000;
    add(3, 1, 4, 2, false, false, true, 2048);
    cut(Z3D_SHARDING_HIERARCHICAL);
    list.back().layers = 4;
    list.back().reuse_distance = 1 << 20, list.back().max_live = 40000;
    add(3, 2, 1, 2, false, true, true, 2048);
    list.back().reuse_distance = 1 << 20, list.back().max_live = 20000;
    list.back().tiers = {Z3D_SPACE_DISK, Z3D_SPACE_DISK, 0, 2, 0, false};
    list.back().prefetch = 10000;
    // Trained and frozen groups that travel as one.
    add(1, 2, 2, 2, true, true, true, 1 << 20);
    list.back().frozen = {"*c_fc*"};
    return list;
}

std::vector<Options> pipelines() {
    std::vector<Options> list;
    auto add = [&list](const harness::Schedule &schedule, int pipeline, int tensor, int data,
                       int stage, int accumulation, bool per_step) {
        Options o = small();
        o.schedule = schedule.kind;
        o.chunks = schedule.chunks;
        o.pipeline = pipeline;
        o.tensor = tensor;
        o.data = data;
        o.stage = stage;
        o.accumulation = accumulation;
        o.reduce_per_step = per_step;
        o.layers = 3; // with embedding and head 5 units: no number of chunks divides them
        o.bucket = 1 << 20;
        list.push_back(o);
        return &list.back();
    };
    int turn = 0;
    for (const harness::Schedule &schedule : harness::SCHEDULES) {
        add(schedule, 2, 1, 1, turn % 4, 2, turn % 2)->recompute = turn % 2;
        add(schedule, 2, 1, 2, 3 - turn % 4, 2, false)->gather_per_step = turn % 2 == 0;
        add(schedule, 2, 2, 1, (turn + 2) % 4, 2, turn % 2 == 0)->overlap = turn % 2;
        turn++;
    }
    Options *o = add(harness::SCHEDULES[0], 4, 1, 1, 2, 4, false);
    o->layers = 2; // a unit for each stage
    o = add(harness::SCHEDULES[0], 2, 2, 1, 3, 2, false);
    o->sequence_parallel = true;
    o->checkpoint_space = Z3D_SPACE_HOST;
    o = add(harness::SCHEDULES[1], 2, 2, 1, 1, 2, true);
    o->partition = true;
    o->checkpoint_space = Z3D_SPACE_HOST;
    o->checkpoint_every = 2;
    o = add(harness::SCHEDULES[0], 2, 1, 1, 2, 4, true);
    o->checkpoint_space = Z3D_SPACE_DISK;
    o = add(harness::SCHEDULES[0], 2, 1, 2, 2, 1, true); // one micro-batch
    o->recompute = false;
    o->selective = true;
    o->keep_activation = true;
    o = add(harness::SCHEDULES[3], 2, 1, 1, 3, 2, false); // halves, and a frozen tied table
    o->frozen = {"wte", "wpe", "block.0", "block.2", "*ln_1*"};
    return list;
}

} // namespace programs
