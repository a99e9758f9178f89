// Models that users bring: what is wrong with one is said before anything is built; unusual but
// right ones work.
#include "tests/zero/harness.h"

#include <functional>

extern "C" {
#include "tensor_parallel/tensor_parallel.h"
}

using namespace harness;

namespace {

z3d_status nothing(z3d_unit_run *) {
    return Z3D_OK;
}

// A unit that only communicates: no kernel of its own.
z3d_status only_collectives(z3d_unit_run *run) {
    for (int k = 0; k < 9; k++) {
        z3d_collective call = {};
        call.kind = Z3D_COLLECTIVE_ALL_REDUCE;
        call.dtype = Z3D_F64;
        call.buffer = &run->state->loss_sum;
        call.count = 1;
        call.scalar = true;
        Z3D_TRY(z3d_collective_run(run->process_group[0], &call));
    }
    return Z3D_OK;
}

const z3d_unit_ops NOTHING = {nothing, nothing, nullptr};
const z3d_unit_ops COLLECTIVES = {only_collectives, nothing, nullptr};

struct Model {
    z3d_model *model = nullptr;
    Model() {
        EXPECT_Z3D(z3d_model_create(1, 2, 3, &model));
        model->tensor_size = 1;
        snprintf(model->group[0].name, Z3D_NAME, "group");
        model->group[0].num_parameters = 1;
        z3d_parameter *p = &model->group[0].parameter[0];
        snprintf(p->name, Z3D_NAME, "weight");
        p->dims = 2;
        p->shape[0] = 4;
        p->shape[1] = 6;
        p->split_dim = -1;
        for (int u = 0; u < 3; u++) {
            z3d_unit *unit = &model->unit[u];
            snprintf(unit->name, Z3D_NAME, "unit.%d", u);
            unit->ops = &NOTHING;
            unit->index = u;
            unit->num_groups = 1;
        }
    }
    ~Model() {
        z3d_model_destroy(model);
    }
    z3d_status lay_out(int tensor = 1) {
        z3d_mesh mesh;
        model->tensor_size = tensor;
        EXPECT_Z3D(z3d_mesh_make(tensor, 1, 1, 0, &mesh));
        z3d_layout *layout = nullptr;
        z3d_status status = z3d_layout_create(model, &mesh, nullptr, &layout);
        z3d_layout_destroy(layout);
        return status;
    }
};

} // namespace

TEST(Models, WrongOnesAreRefused) {
    const struct {
        std::function<void(z3d_model *)> spoil;
        const char *message;
        int tensor;
    } cases[] = {
        {[](z3d_model *m) { m->unit[1].num_groups = 65; },
         "unit unit.1: 65 parameter groups, but at most 64", 1},
        {[](z3d_model *m) { m->unit[1].ops = nullptr; },
         "a forward, and either backward or backward_halves", 1},
        {[](z3d_model *m) { m->unit[1].kind = -1; }, "unit unit.1: kind -1", 1},
        {[](z3d_model *m) { m->unit[2].group[0] = 1; }, "parameter group 1 does not exist", 1},
        {[](z3d_model *m) { m->unit[2].output_elements[0] = -4; }, "its output has -4 elements", 1},
        {[](z3d_model *m) { m->group[0].num_parameters = 99; }, "it has 99", 1},
        {[](z3d_model *m) { m->group[0].parameter[0].dims = 5; }, "5 dimensions", 1},
        {[](z3d_model *m) { m->group[0].parameter[0].split_dim = 3; }, "split along dimension 3",
         1},
        {[](z3d_model *m) { m->group[0].parameter[0].shape[1] = 0; }, "dimension 1 is 0", 1},
        {[](z3d_model *m) { m->group[0].parameter[0].split_dim = 0; },
         "cannot be divided among 3 tensor ranks", 3},
        {[](z3d_model *m) {
             m->group[0].parameter[0].split_dim = 1;
             m->group[0].parameter[0].padded_dim = 3;
         },
         "cannot be divided among 3 tensor ranks", 3},
        {[](z3d_model *m) { memset(m->group[0].parameter[0].name, 'x', Z3D_NAME); }, "has no name",
         1},
        {[](z3d_model *m) {
             m->group[0].num_parameters = 2;
             m->group[0].parameter[1] = m->group[0].parameter[0];
         },
         "two parameters are called weight", 1},
        {[](z3d_model *m) { m->unit[1].num_process_groups = 5; }, "unit unit.1: 5 process groups",
         1},
        {[](z3d_model *m) {
             m->unit[1].num_process_groups = 1;
             m->unit[1].process_axes[0] = Z3D_AXES_WORLD;
         },
         "process group 0 is over axes world, but it must be over axes of one pipeline stage", 1},
        {[](z3d_model *m) { m->num_fields = 1; }, "field 0: 0 bytes per sample", 1},
    };
    for (const auto &c : cases) {
        Model m;
        EXPECT_Z3D(m.lay_out());
        c.spoil(m.model);
        EXPECT_EQ(m.lay_out(c.tensor), Z3D_ERR_CONFIG) << c.message;
        EXPECT_NE(std::string(z3d_error_message()).find(c.message), std::string::npos)
            << z3d_error_message();
    }
}

TEST(Models, UnitsOfOneKindThatOnlyCommunicateAreRecordedOnce) {
    Model m;
    for (int u = 0; u < 3; u++) m.model->unit[u].ops = &COLLECTIVES;
    z3d_mesh mesh;
    z3d_layout *layout = nullptr;
    z3d_traces *traces = nullptr;
    z3d_program_config config = {};
    config.micro_batch = 1;
    EXPECT_Z3D(z3d_mesh_make(1, 1, 1, 0, &mesh));
    ASSERT_Z3D(z3d_layout_create(m.model, &mesh, &config, &layout));
    ASSERT_Z3D(z3d_traces_record(m.model, layout, &config, 1, &traces));
    EXPECT_EQ(z3d_traces_get(traces, Z3D_MODE_TRAIN, 0, Z3D_CALL_FORWARD)->num_children, 9);
    z3d_traces_destroy(traces);
    z3d_layout_destroy(layout);
}

TEST(Models, StepsBeyondAllMeasureAreRefused) {
    Options o;
    o.accumulation = 1000000;
    o.global_batch = 1000000 * z3d_world_size(world);
    o.verify = false;
    Trainer t(o);
    EXPECT_EQ(t.create(), Z3D_ERR_CONFIG);
    EXPECT_NE(std::string(z3d_error_message()).find("use fewer gradient accumulation steps"),
              std::string::npos)
        << z3d_error_message();
}

namespace {

// Three numbers a sample, gelu of gelu of gelu, and four classes split over the tensor group: parts
// of an output are not equal.
constexpr int64_t ODD = 3, CLASSES = 4;

z3d_status gelu_forward(z3d_unit_run *run) {
    if (!run->output) return Z3D_OK; // a recompute: nothing of it is kept
    z3d_kernel kernel = {};
    kernel.kind = Z3D_KERNEL_gelu_forward;
    kernel.as.gelu_forward = {run->input ? run->input : run->field[0], run->output,
                              run->batch * ODD, Z3D_F32};
    return z3d_launch(run->device, &kernel);
}

z3d_status gelu_backward(z3d_unit_run *run) {
    if (!run->input) return Z3D_OK;
    z3d_kernel kernel = {};
    kernel.kind = Z3D_KERNEL_gelu_backward;
    kernel.as.gelu_backward = {run->input, run->output_gradient, run->input_gradient,
                               run->batch * ODD, Z3D_F32};
    return z3d_launch(run->device, &kernel);
}

z3d_status classify(z3d_unit_run *run, bool backward) {
    z3d_tensor_lane lane = {run->device, run->process_group[0], run->dtype, run->gradient_dtype,
                            false};
    int64_t local = CLASSES / z3d_group_size(run->process_group[0]), rows = run->batch;
    z3d_vocab_range classes =
        z3d_vocab_range_of(CLASSES, CLASSES, z3d_group_size(run->process_group[0]),
                           z3d_group_index(run->process_group[0]));
    const int32_t *which = (const int32_t *)run->field[1];
    z3d_linear linear = {};
    linear.rows = rows, linear.in = ODD, linear.out = local;
    linear.weight = z3d_unit_parameter(run, 0, 0);
    linear.weight_gradient = z3d_unit_gradient(run, 0, 0);
    linear.accumulate = run->group[0].accumulate;
    void *logits;
    float *statistics;
    Z3D_TRY(z3d_unit_take_saved(run, rows * local, sizeof(float), &logits));
    Z3D_TRY(z3d_unit_take_saved(run, rows * 3, sizeof(float), &statistics));
    if (!backward) {
        Z3D_TRY(z3d_column_linear_forward(&lane, &linear, run->input, logits));
        return z3d_vocab_cross_entropy_forward(&lane, classes, logits, which, rows, statistics,
                                               run->state);
    }
    Z3D_TRY(z3d_vocab_cross_entropy_backward(&lane, classes, logits, which, rows, statistics,
                                             run->state));
    return z3d_column_linear_backward(&lane, &linear, run->input, logits, run->input_gradient);
}

const z3d_unit_ops GELU = {gelu_forward, gelu_backward, nullptr};
const z3d_unit_ops CLASSIFY = {[](z3d_unit_run *run) { return classify(run, false); },
                               [](z3d_unit_run *run) { return classify(run, true); }, nullptr};

// A unit with two process groups: sums over the second, then over the tensor ranks, which all have
// the same. The gradient of these sums is the same sums.
z3d_status sum_twice(z3d_unit_run *run, const void *from, void *to) {
    if (!to) return Z3D_OK; // a recompute
    z3d_kernel copy = {};
    copy.kind = Z3D_KERNEL_cast;
    copy.as.cast = {to, from, run->batch * ODD, Z3D_F32, Z3D_F32, 0, 0, 0};
    Z3D_TRY(z3d_launch(run->device, &copy));
    // Later it does not do what was recorded.
    const bool swapped = *(const bool *)run->unit->data;
    for (int slot : {swapped ? 0 : 1, swapped ? 1 : 0}) {
        z3d_collective call = {};
        call.kind = Z3D_COLLECTIVE_ALL_REDUCE;
        call.dtype = Z3D_F32;
        call.buffer = to;
        call.count = run->batch * ODD;
        Z3D_TRY(z3d_collective_run(run->process_group[slot], &call));
    }
    return Z3D_OK;
}

const z3d_unit_ops SUM_TWICE = {
    [](z3d_unit_run *run) { return sum_twice(run, run->input, run->output); },
    [](z3d_unit_run *run) { return sum_twice(run, run->output_gradient, run->input_gradient); },
    nullptr};

// A unit of many parameters in many groups: h becomes h + W h, one matrix after the other. Forward
// keeps each h.
constexpr int GROUPS = 6, EACH = 10;

z3d_status multiply(z3d_unit_run *run, bool backward, int group, int index, const void *from,
                    void *to) {
    z3d_kernel kernel = {};
    kernel.kind = Z3D_KERNEL_gemm;
    z3d_gemm &g = kernel.as.gemm;
    g.m = run->batch, g.n = g.k = g.lda = g.ldb = g.ldc = ODD;
    g.transpose_b = !backward;
    g.a = g.residual = from;
    g.b = z3d_unit_parameter(run, group, index);
    g.c = to;
    return z3d_launch(run->device, &kernel);
}

z3d_status weight_gradient(z3d_unit_run *run, int group, int index, const void *h, const void *d) {
    z3d_kernel kernel = {};
    kernel.kind = Z3D_KERNEL_gemm;
    z3d_gemm &g = kernel.as.gemm;
    g.m = g.n = g.lda = g.ldb = g.ldc = ODD, g.k = run->batch;
    g.transpose_a = true;
    g.accumulate = run->group[group].accumulate;
    g.a = d, g.b = h;
    g.c = z3d_unit_gradient(run, group, index);
    return g.c ? z3d_launch(run->device, &kernel) : Z3D_OK;
}

z3d_status many(z3d_unit_run *run, bool backward) {
    const int count = GROUPS * EACH;
    const void *h[count];
    for (int i = 0; i < count; i++)
        Z3D_TRY(z3d_unit_take_saved(run, run->batch * ODD, sizeof(float), &h[i]));
    for (int i = 0; i < count && !backward; i++) {
        void *next = i + 1 < count ? (void *)h[i + 1] : run->output;
        const void *from = i > 0 ? h[i] : run->input;
        if (next) Z3D_TRY(multiply(run, false, i / EACH, i % EACH, from, next));
    }
    const void *d = run->output_gradient;
    for (int i = count - 1; i >= 0 && backward; i--) {
        void *next = run->input_gradient;
        Z3D_TRY(weight_gradient(run, i / EACH, i % EACH, i > 0 ? h[i] : run->input, d));
        if (i > 0) Z3D_TRY(z3d_unit_take_workspace(run, run->batch * ODD, sizeof(float), &next));
        if (next) Z3D_TRY(multiply(run, true, i / EACH, i % EACH, d, next)); // else nobody wants it
        d = next;
    }
    return Z3D_OK;
}

const z3d_unit_ops MANY = {[](z3d_unit_run *run) { return many(run, false); },
                           [](z3d_unit_run *run) { return many(run, true); }, nullptr};

void add_matrix(z3d_parameter_group *group, const char *name, int64_t rows, float deviation) {
    z3d_parameter &p = group->parameter[group->num_parameters++];
    snprintf(p.name, Z3D_NAME, "%s", name);
    p.dims = 2, p.shape[0] = rows, p.shape[1] = ODD, p.split_dim = -1;
    p.weight_decay = true, p.init = Z3D_INIT_NORMAL, p.standard_deviation = deviation;
}

// freeze: every third parameter, so that each group becomes two.
z3d_status create_many(bool freeze, z3d_model **out) {
    EXPECT_Z3D(z3d_model_create(GROUPS + 1, EACH, 3, out));
    z3d_model *model = *out;
    model->num_fields = 2;
    model->field[0] = {"numbers", {ODD * sizeof(float), ODD * sizeof(float)}};
    model->field[1] = {"class", {sizeof(int32_t), sizeof(int32_t)}};
    for (int g = 0; g < GROUPS; g++) {
        snprintf(model->group[g].name, Z3D_NAME, "many.%d", g);
        for (int i = 0; i < EACH; i++) {
            add_matrix(&model->group[g], std::to_string(i).c_str(), ODD, 0.1f);
            model->group[g].parameter[i].frozen = freeze && i % 3 == 0;
        }
    }
    strcpy(model->group[GROUPS].name, "classes");
    add_matrix(&model->group[GROUPS], "weight", CLASSES, 1);
    model->unit[0] = {"gelu", &GELU, nullptr, 0, 0, false, 0, {}, {ODD, ODD}, 0, 0, {}, {}};
    model->unit[1] = {"many", &MANY, nullptr, 1, 1, true, GROUPS, {}, {ODD, ODD}, 0, 0, {}, {}};
    for (int g = 0; g < GROUPS; g++) model->unit[1].group[g] = g;
    model->unit[2] = {"classify", &CLASSIFY, nullptr, 2, 2, false, 1, {GROUPS}, {}, 0, 0, {}, {}};
    return z3d_model_divide(model);
}

// Loss and norm of three steps of two micro-batches, and all values after them.
std::vector<double> train_many(int stage, bool freeze) {
    Options o;
    o.stage = stage;
    Trainer t(o); // for its world
    z3d_model *model = nullptr;
    z3d_engine *engine = nullptr;
    std::vector<double> out;
    EXPECT_Z3D(t.create());
    EXPECT_Z3D(create_many(freeze, &model));
    z3d_engine_config config = t.config;
    config.model = model;
    config.program.micro_batch = 1;
    config.program.accumulation = 2;
    config.program.reduce_per_step = false;
    config.enter = nullptr;
    EXPECT_Z3D(z3d_engine_create(&config, &engine));
    EXPECT_EQ(model->unit[1].num_groups, freeze ? 2 * GROUPS : GROUPS);
    for (int step = 0; engine && step < 3; step++) {
        const float own = (float)(1 + z3d_world_rank(world));
        float numbers[2][ODD] = {{1.f, -own, 3.f}, {-.5f, .1f * own, 2.f}};
        int32_t which[2] = {2, z3d_world_rank(world) % 2};
        z3d_micro_batch micro[2] = {{{numbers[0], &which[0]}}, {{numbers[1], &which[1]}}};
        z3d_step_input input = {micro, 0, 1, 1e-3f, false};
        z3d_step_result result = {};
        EXPECT_Z3D(z3d_engine_train_step(engine, &input, &result));
        out.push_back(result.loss);
        out.push_back(result.grad_norm);
    }
    for (int g = 0; engine && g < model->num_groups; g++)
        for (int i = 0; i < model->group[g].num_parameters; i++) {
            std::vector<float> value((size_t)(CLASSES * ODD));
            EXPECT_Z3D(z3d_engine_get(engine, Z3D_TENSOR_PARAMETER, g, i, value.data()));
            out.insert(out.end(), value.begin(), value.end());
        }
    z3d_engine_destroy(engine);
    z3d_model_destroy(model);
    return out;
}

// Three units without parameters, and the classes.
z3d_model *create_odd(int tensor) {
    z3d_model *model = nullptr;
    EXPECT_Z3D(z3d_model_create(1, 1, 4, &model));
    model->tensor_size = tensor;
    model->num_fields = 2;
    model->field[0] = {"numbers", {ODD * sizeof(float), ODD * sizeof(float)}};
    model->field[1] = {"class", {sizeof(int32_t), sizeof(int32_t)}};
    z3d_parameter &weight = model->group[0].parameter[0];
    strcpy(model->group[0].name, "group");
    strcpy(weight.name, "weight");
    weight.dims = 2, weight.shape[0] = CLASSES, weight.shape[1] = ODD;
    weight.weight_decay = true, weight.init = Z3D_INIT_NORMAL, weight.standard_deviation = 1;
    model->group[0].num_parameters = 1;
    for (int u = 0; u < 3; u++)
        model->unit[u] = {"gelu", &GELU, nullptr, u > 0, u, u > 0, 0, {}, {ODD, ODD}, 0, 0, {}, {}};
    model->unit[3] = {"classify", &CLASSIFY, nullptr, 2, 3, false, 1, {0}, {}, 0, 0, {}, {}};
    return model;
}

z3d_step_result step_odd(z3d_engine *engine, z3d_status expected = Z3D_OK) {
    float numbers[] = {1.f, -2.f, 3.f};
    int32_t which = 2;
    z3d_micro_batch micro = {{numbers, &which}};
    z3d_step_input input = {&micro, 0, 1, 0.1f, false};
    z3d_step_result result = {};
    EXPECT_EQ(z3d_engine_train_step(engine, &input, &result), expected) << z3d_error_message();
    return result;
}

// Loss and norm of three steps.
std::vector<double> train_odd(bool partition, z3d_space space) {
    Options o;
    o.tensor = 2;
    Trainer t(o); // for its world
    EXPECT_Z3D(t.create());
    z3d_engine_config config = t.config;
    z3d_model *model = create_odd(2);
    config.model = model;
    config.program.micro_batch = 1;
    config.program.partition_activations = partition;
    config.program.checkpoint_space = space;
    config.enter = nullptr;
    z3d_engine *engine = nullptr;
    std::vector<double> out;
    EXPECT_Z3D(z3d_engine_create(&config, &engine));
    for (int step = 0; engine && step < 3; step++) {
        const z3d_step_result result = step_odd(engine);
        out.push_back(result.loss);
        out.push_back(result.grad_norm);
    }
    z3d_engine_destroy(engine);
    z3d_model_destroy(model);
    return out;
}

} // namespace

// A unit has as many parameters as a group has room for, and a dozen groups.
TEST(Models, ManyParametersInManyGroupsTrainEquallyInAllStages) {
    for (bool freeze : {false, true}) {
        const std::vector<double> first = train_many(0, freeze);
        ASSERT_EQ(first.size(), 6u + CLASSES * ODD * (GROUPS * EACH + 1));
        EXPECT_LT(first[4], first[0]);
        for (int stage = 1; stage < 4; stage++)
            EXPECT_TRUE(same_bits(first, train_many(stage, freeze))) << stage << freeze;
    }
}

// A checkpoint that does not divide by the tensor size: its parts are padded.
TEST(Models, PartsOfCheckpointsArePadded) {
    if (z3d_world_size(world) != 2) GTEST_SKIP() << "two tensor ranks";
    std::vector<double> whole = train_odd(false, Z3D_SPACE_DEVICE);
    ASSERT_EQ(whole.size(), 6u);
    EXPECT_LT(whole[4], whole[0]);
    for (z3d_space space : {Z3D_SPACE_DEVICE, Z3D_SPACE_HOST, Z3D_SPACE_DISK})
        EXPECT_TRUE(same_bits(whole, train_odd(true, space))) << space;
}

// The recording, the executor and the play of all ranks know the collectives of both, also of one
// over a set of axes that no role is.
TEST(Models, AUnitHasAProcessGroupForEachSetOfAxesThatItDeclares) {
    const int ranks = z3d_world_size(world);
    Options o;
    o.tensor = ranks == 4 ? 2 : 1;
    o.outer = ranks > 1 ? 2 : 1;
    for (z3d_axes axes :
         {(z3d_axes)Z3D_ROLE_SAMPLES, (z3d_axes)(Z3D_ROLE_PARTS | Z3D_ROLE_NODES)}) {
        Trainer t(o); // for its world
        ASSERT_Z3D(t.create());
        bool swapped = false;
        z3d_model *model = create_odd(o.tensor);
        model->unit[1] = {"sums", &SUM_TWICE, &swapped,   3, 1, false,
                          0,      {},         {ODD, ODD}, 0, 2, {Z3D_ROLE_PARTS, axes},
                          {}};
        z3d_engine_config config = t.config;
        config.model = model;
        config.program.micro_batch = 1;
        config.enter = nullptr;
        z3d_engine *engine = nullptr;
        if (!z3d_axes_have_group(&t.mesh, axes)) {
            EXPECT_EQ(z3d_engine_create(&config, &engine), Z3D_ERR_USAGE);
            EXPECT_STREQ(z3d_error_message(),
                         "unit sums has a process group over tensor+data_outer, but "
                         "the engine is given none; make it with "
                         "z3d_group_create");
            ASSERT_Z3D(z3d_group_create(world, &t.mesh, axes, t.device, &config.group[axes]));
        }
        ASSERT_Z3D(z3d_engine_create(&config, &engine));
        const z3d_traces *traces = z3d_engine_program(engine, Z3D_MODE_TRAIN)->traces;
        for (z3d_call call : {Z3D_CALL_FORWARD, Z3D_CALL_BACKWARD}) {
            const z3d_trace *trace = z3d_traces_get(traces, Z3D_MODE_TRAIN, 3, call);
            ASSERT_EQ(trace->num_children, 2);
            EXPECT_EQ(trace->child[0].axes, axes);
            EXPECT_EQ(trace->child[1].axes, Z3D_ROLE_PARTS);
        }
        const double first = step_odd(engine).loss;
        EXPECT_LT(step_odd(engine).loss, first);
        swapped = true;
        step_odd(engine, Z3D_ERR_PROGRAM);
        const std::string here = z3d_axes_name(axes).text, message = z3d_error_message();
        EXPECT_NE(
            message.find("its collective 1 is all_reduce of 3 fp32 over the tensor group, but "
                         "its recording has all_reduce of 3 fp32 over the " +
                         here + " group"),
            std::string::npos)
            << message;
        z3d_engine_destroy(engine);
        if (!z3d_axes_have_group(&t.mesh, axes)) z3d_group_destroy(config.group[axes]);
        z3d_model_destroy(model);
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
