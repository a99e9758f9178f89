#include "tests/checkpoint/engine.h"

z3d_status open_store(Trainer &t, const std::string &dir, bool asynchronous, int64_t keep,
                      z3d_store **out, const z3d_io_hook *hook, Commit commit, const char *base) {
    z3d_store_config c = {};
    c.world = world;
    c.mesh = &t.mesh;
    c.model = t.model;
    c.engine = t.engine;
    c.dir = dir.c_str();
    c.keep = keep;
    c.asynchronous = asynchronous;
    c.program = "test";
    c.dtype = t.o.dtype;
    c.zero_stage = t.o.stage;
    c.hook = hook;
    c.before_commit = commit.before;
    c.commit_context = commit.context;
    c.base = base;
    c.begins = true; // or the copy of an asynchronous save grows
    return z3d_store_open(&c, out);
}

z3d_status save(z3d_store *store, int64_t samples) {
    z3d_checkpoint_info info = {};
    info.samples = samples;
    info.config = const_cast<char *>("model: {}\n");
    return z3d_store_save(store, &info);
}

void steps(Trainer &t, int count, Trace &trace) {
    for (int k = 0; k < count; k++) {
        z3d_step_result r;
        ASSERT_Z3D(t.step(&r));
        trace.loss.push_back(r.loss);
        trace.norm.push_back(r.grad_norm);
        trace.scale.push_back(r.loss_scale);
    }
}

std::vector<std::vector<float>> everything(Trainer &t) {
    std::vector<std::vector<float>> all;
    for (int kind = 0; kind < Z3D_STATE_KINDS; kind++)
        for (int g = 0; g < t.model->num_groups && z3d_engine_kinds(t.engine) >> kind & 1; g++)
            for (int i = 0; i < t.model->group[g].num_parameters; i++) {
                const z3d_parameter &p = t.model->group[g].parameter[i];
                size_t n = 1;
                if (p.frozen && kind != Z3D_TENSOR_PARAMETER) continue;
                for (int d = 0; d < p.dims; d++) n *= (size_t)p.shape[d];
                all.emplace_back(n);
                EXPECT_Z3D(
                    z3d_engine_get(t.engine, (z3d_tensor_kind)kind, g, i, all.back().data()));
            }
    return all;
}

void resume(Trainer &t, const std::string &dir) {
    z3d_store *store;
    z3d_checkpoint_info info;
    int64_t step;
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(open_store(t, dir, false, 0, &store));
    ASSERT_Z3D(z3d_store_resume(store, Z3D_VERIFY_FULL, nullptr, nullptr, &info, &step));
    EXPECT_EQ(info.engine.step, step);
    t.next_step = step + 1;
    z3d_store_close(store);
    z3d_base_free(&info.base);
}
