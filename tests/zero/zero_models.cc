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
        Z3D_TRY(z3d_collective_run(run->tensor, &call));
    }
    return Z3D_OK;
}

const z3d_unit_ops NOTHING = {nothing, nothing, nullptr, nullptr};
const z3d_unit_ops COLLECTIVES = {only_collectives, nothing, nullptr, nullptr};

struct Model {
    z3d_model *model = nullptr;
    Model() {
        EXPECT_Z3D(z3d_model_create(1, 3, &model));
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
        {[](z3d_model *m) { m->unit[1].num_groups = 7; },
         "unit unit.1: 7 parameter groups, but at most 4", 1},
        {[](z3d_model *m) { m->unit[1].ops = nullptr; }, "a forward and a backward", 1},
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
    z3d_tensor_lane lane = {run->device, run->tensor, run->dtype, run->gradient_dtype, false};
    int64_t local = CLASSES / z3d_group_size(run->tensor), rows = run->batch;
    z3d_vocab_range classes = z3d_vocab_range_of(CLASSES, CLASSES, z3d_group_size(run->tensor),
                                                 z3d_group_index(run->tensor));
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

const z3d_unit_ops GELU = {gelu_forward, gelu_backward, nullptr, nullptr};
const z3d_unit_ops CLASSIFY = {[](z3d_unit_run *run) { return classify(run, false); },
                               [](z3d_unit_run *run) { return classify(run, true); }, nullptr,
                               nullptr};

// Loss and norm of three steps.
std::vector<double> train_odd(bool partition, z3d_space space) {
    Options o;
    o.tensor = 2;
    Trainer t(o); // for its world
    EXPECT_Z3D(t.create());
    z3d_model *model = nullptr;
    EXPECT_Z3D(z3d_model_create(1, 4, &model));
    model->tensor_size = 2;
    model->num_fields = 2;
    model->field[0] = {"numbers", {ODD * sizeof(float), ODD * sizeof(float)}};
    model->field[1] = {"class", {sizeof(int32_t), sizeof(int32_t)}};
    z3d_parameter weight = {};
    strcpy(weight.name, "weight");
    weight.dims = 2, weight.shape[0] = CLASSES, weight.shape[1] = ODD;
    weight.weight_decay = true, weight.init = Z3D_INIT_NORMAL, weight.standard_deviation = 1;
    model->group[0] = {"group", 1, {weight}};
    for (int u = 0; u < 3; u++)
        model->unit[u] = {"gelu", &GELU, nullptr, u > 0, u, u > 0, 0, {}, {ODD, ODD}, 0};
    model->unit[3] = {"classify", &CLASSIFY, nullptr, 2, 3, false, 1, {0}, {}, 0};
    z3d_engine_config config = t.config;
    config.model = model;
    config.program.micro_batch = 1;
    config.program.partition_activations = partition;
    config.program.checkpoint_space = space;
    config.enter = nullptr;
    z3d_engine *engine = nullptr;
    std::vector<double> out;
    EXPECT_Z3D(z3d_engine_create(&config, &engine));
    float numbers[] = {1.f, -2.f, 3.f};
    int32_t which = 2;
    z3d_micro_batch micro = {{numbers, &which}};
    z3d_step_input input = {&micro, 0, 1, 0.1f, false};
    for (int step = 0; engine && step < 3; step++) {
        z3d_step_result result;
        EXPECT_Z3D(z3d_engine_train_step(engine, &input, &result));
        out.push_back(result.loss);
        out.push_back(result.grad_norm);
    }
    z3d_engine_destroy(engine);
    z3d_model_destroy(model);
    return out;
}

} // namespace

// A checkpoint that does not divide by the tensor size: its parts are padded.
TEST(Models, PartsOfCheckpointsArePadded) {
    if (z3d_world_size(world) != 2) GTEST_SKIP() << "two tensor ranks";
    std::vector<double> whole = train_odd(false, Z3D_SPACE_DEVICE);
    ASSERT_EQ(whole.size(), 6u);
    EXPECT_LT(whole[4], whole[0]);
    for (z3d_space space : {Z3D_SPACE_DEVICE, Z3D_SPACE_HOST, Z3D_SPACE_DISK})
        EXPECT_TRUE(same_bits(whole, train_odd(true, space))) << space;
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
