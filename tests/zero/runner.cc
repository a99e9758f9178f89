#include "tests/zero/runner.h"

namespace harness {

z3d_status Runner::create() {
    Z3D_TRY(trainer.create());
    own_ = engine()->set.program[Z3D_MODE_TRAIN];
    Z3D_TRY(bring_disk());
    for (int s = 0; s < Z3D_SPACE_COUNT; s++) start_[s] = read(s, 0, persistent_bytes(s));
    poison_start();
    return Z3D_OK;
}

const z3d_program &Runner::program() const {
    return *own_;
}

bool Runner::has_gathered(z3d_mode mode) {
    return engine()->set.again[mode] != nullptr;
}

z3d_status Runner::run(z3d_program *program, std::vector<char> &bits) {
    z3d_engine *e = engine();
    z3d_program *replaced;
    Z3D_TRY(make_room(program->arena));
    e->state.step = e->state.optimizer_step = e->state.skipped_in_a_row = 0;
    trainer.next_step = 1;
    for (int s = 0; s < Z3D_SPACE_COUNT; s++) write(s, 0, start_[s]);
    z3d_engine_parameters_changed(e);
    bits.clear();
    // What relies on gathered parameters comes behind what gathers them.
    if (program->config.gathered) Z3D_TRY(run_once(program->mode, bits));
    Z3D_TRY(install(program, &replaced));
    z3d_status status = run_once(program->mode, bits);
    if (status == Z3D_OK && program->mode == Z3D_MODE_TRAIN) status = run_once(program->mode, bits);
    if (status == Z3D_OK) read_result(bits);
    z3d_status back = install(replaced, &replaced);
    return status != Z3D_OK ? status : back;
}

z3d_engine *Runner::engine() {
    return trainer.engine;
}

z3d_status Runner::bring_disk() {
    z3d_engine *e = engine();
    const int64_t bytes = e->arena_bytes[Z3D_SPACE_DISK];
    void *arena;
    if (!e->disk) return Z3D_OK;
    Z3D_TRY(z3d_device_alloc(trainer.device, Z3D_SPACE_DISK, bytes, &arena));
    Z3D_TRY(z3d_disk_read(e->disk, 0, arena, bytes));
    z3d_disk_destroy(e->disk);
    e->disk = nullptr;
    e->arena[Z3D_SPACE_DISK] = (char *)arena;
    for (int mode = 0; mode < Z3D_MODE_COUNT; mode++)
        for (z3d_executor *executor : {&e->executor[mode], &e->again_executor[mode]}) {
            executor->disk = nullptr;
            executor->arena[Z3D_SPACE_DISK] = (char *)arena;
        }
    return Z3D_OK;
}

int64_t Runner::persistent_bytes(int space) const {
    int64_t end = 0;
    for (int i = 0; i < own_->num_buffers; i++) {
        const z3d_buffer &b = own_->buffer[i];
        if (b.persistent && b.space == space)
            end = std::max(end, z3d_round_up(b.offset + b.bytes, 256));
    }
    return end;
}

std::vector<char> Runner::read(int space, int64_t from, int64_t bytes) {
    std::vector<char> out((size_t)bytes);
    if (bytes == 0) return out;
    EXPECT_Z3D(z3d_device_read(trainer.device, out.data(), engine()->arena[space] + from, bytes));
    return out;
}

z3d_status Runner::run_once(z3d_mode mode, std::vector<char> &bits) {
    z3d_step_result r{};
    double numbers[2] = {};
    std::vector<float> logits;
    z3d_status status;
    for (int s = 0; s < Z3D_SPACE_COUNT; s++)
        write(s, (int64_t)start_[s].size(),
              std::vector<char>((size_t)engine()->arena_bytes[s] - start_[s].size(), (char)0xff));
    if (mode == Z3D_MODE_TRAIN) {
        status = trainer.step(&r);
        numbers[0] = r.loss, numbers[1] = r.grad_norm;
    } else if (mode == Z3D_MODE_EVALUATE) {
        status = trainer.evaluate(&numbers[0]);
    } else {
        status = trainer.generate(&logits);
    }
    bits.insert(bits.end(), (const char *)numbers, (const char *)(numbers + 2));
    bits.insert(bits.end(), (const char *)logits.data(),
                (const char *)(logits.data() + logits.size()));
    return status;
}

void Runner::write(int space, int64_t at, const std::vector<char> &data) {
    if (data.empty()) return;
    EXPECT_Z3D(z3d_device_write(trainer.device, engine()->arena[space] + at, data.data(),
                                (int64_t)data.size()));
}

void Runner::rows(int group, z3d_state_role role, int64_t *first, int64_t *bytes) const {
    const z3d_buffer &b = own_->buffer[z3d_program_group_buffer(own_, group, role)];
    int64_t size = own_->layout->group[group].rows;
    bool all = z3d_state_is_whole(own_->layout, group, role);
    bool stepped = z3d_state_is_whole(own_->layout, group, Z3D_STATE_OPTIMIZER);
    *first = b.offset;
    *bytes = b.bytes;
    if (!all || stepped) return;
    *bytes = b.bytes / size;
    *first += own_->layout->group[group].own * *bytes;
}

void Runner::poison_start() {
    std::vector<char> poisoned[Z3D_SPACE_COUNT];
    for (int s = 0; s < Z3D_SPACE_COUNT; s++) poisoned[s].resize(start_[s].size(), (char)0xff);
    for (int g = 0; g < own_->layout->num_groups; g++) {
        for (z3d_state_role role : {Z3D_STATE_VALUE, Z3D_STATE_OPTIMIZER}) {
            const int s = own_->layout->group[g].state[role].at.space;
            int64_t first, bytes;
            rows(g, role, &first, &bytes);
            std::copy_n(start_[s].begin() + first, bytes, poisoned[s].begin() + first);
        }
    }
    for (int s = 0; s < Z3D_SPACE_COUNT; s++) start_[s] = poisoned[s];
}

void Runner::read_result(std::vector<char> &bits) {
    for (int g = 0; g < own_->layout->num_groups; g++) {
        for (z3d_state_role role : {Z3D_STATE_VALUE, Z3D_STATE_OPTIMIZER, Z3D_STATE_GRADIENT}) {
            int64_t first, bytes;
            rows(g, role, &first, &bytes);
            std::vector<char> part_bits =
                read(own_->layout->group[g].state[role].at.space, first, bytes);
            bits.insert(bits.end(), part_bits.begin(), part_bits.end());
        }
    }
}

z3d_status Runner::make_room(const int64_t *bytes) {
    z3d_engine *e = engine();
    for (int s = 0; s < Z3D_SPACE_COUNT; s++) {
        if (bytes[s] <= e->arena_bytes[s]) continue;
        void *arena;
        Z3D_TRY(z3d_device_alloc(trainer.device, (z3d_space)s, bytes[s], &arena));
        if (e->arena[s]) {
            memcpy(arena, e->arena[s], (size_t)e->arena_bytes[s]);
            z3d_device_free(trainer.device, (z3d_space)s, e->arena[s], e->arena_bytes[s]);
        }
        e->arena[s] = (char *)arena;
        e->arena_bytes[s] = bytes[s];
        for (int mode = 0; mode < Z3D_MODE_COUNT; mode++)
            for (z3d_executor *executor : {&e->executor[mode], &e->again_executor[mode]})
                executor->arena[s] = e->arena[s];
    }
    const z3d_buffer &scratch = own_->buffer[Z3D_BUFFER_SCRATCH];
    z3d_device_set_scratch(trainer.device, e->arena[0] + scratch.offset, scratch.bytes);
    return Z3D_OK;
}

z3d_status Runner::install(z3d_program *program, z3d_program **replaced) {
    z3d_engine *e = engine();
    bool gathered = program->config.gathered;
    z3d_executor *executor = &(gathered ? e->again_executor : e->executor)[program->mode];
    z3d_program **slot = &(gathered ? e->set.again : e->set.program)[program->mode];
    z3d_executor fresh{};
    fresh.device = e->config.device;
    fresh.host = e->config.host ? e->config.host : e->config.device;
    fresh.group = e->config.group;
    unobserved_ = e->config;
    unobserved_.enter = nullptr;
    fresh.config = &unobserved_;
    fresh.now.skip = 1;
    memcpy(fresh.arena, e->arena, sizeof fresh.arena);
    z3d_executor_destroy(executor);
    *executor = fresh;
    *replaced = *slot;
    *slot = program;
    return z3d_executor_create(program, executor);
}

} // namespace harness
