// The recordings of backward's halves: together they are the whole's. Units whose halves do not fit
// are refused.
#include "tests/zero/programs.h"

#include <algorithm>
#include <functional>
#include <tuple>

using namespace programs;

namespace {

// Everything that a collective moves, sorted: the halves may have them in another order.
std::vector<std::tuple<int, int, int, int64_t>> children(std::vector<const z3d_trace *> traces) {
    std::vector<std::tuple<int, int, int, int64_t>> out;
    for (const z3d_trace *trace : traces)
        for (int i = 0; i < trace->num_children; i++) {
            const z3d_child &c = trace->child[i];
            out.push_back({c.kind, c.op, c.dtype, c.count});
        }
    std::sort(out.begin(), out.end());
    return out;
}

void expect_sum(const z3d_trace *whole, const z3d_trace *input, const z3d_trace *weight) {
    EXPECT_TRUE(input->recorded && weight->recorded);
    EXPECT_EQ(whole->flops, input->flops + weight->flops);
    EXPECT_EQ(children({whole}), children({input, weight}));
    EXPECT_EQ(whole->saved, input->saved);
    EXPECT_EQ(whole->saved, weight->saved);
    EXPECT_EQ(0, whole->deferred);
    EXPECT_EQ(input->deferred, weight->deferred);
    EXPECT_LE(std::max(input->workspace, weight->workspace), whole->workspace);
    EXPECT_LE(std::max(input->scratch, weight->scratch), whole->scratch);
    EXPECT_EQ(whole->reads_input, input->reads_input || weight->reads_input);
    EXPECT_EQ(whole->reads_output_gradient,
              input->reads_output_gradient || weight->reads_output_gradient);
    for (int slot = 0; slot < Z3D_MAX_UNIT_GROUPS; slot++)
        EXPECT_EQ(whole->reads_parameters[slot],
                  input->reads_parameters[slot] || weight->reads_parameters[slot]);
}

void record(const Options &options) {
    World w(options);
    ASSERT_Z3D(w.prepare());
    for (int kind = 0; kind < w.traces->num_kinds; kind++) {
        auto get = [&](z3d_call call) {
            return z3d_traces_get(w.traces, Z3D_MODE_TRAIN, kind, call);
        };
        SCOPED_TRACE(kind);
        expect_sum(get(Z3D_CALL_BACKWARD), get(Z3D_CALL_BACKWARD_INPUT),
                   get(Z3D_CALL_BACKWARD_WEIGHT));
        EXPECT_FALSE(
            z3d_traces_get(w.traces, Z3D_MODE_EVALUATE, kind, Z3D_CALL_BACKWARD_INPUT)->recorded);
    }
}

// A unit of a model that says in code what each half does. Its group has 8 elements.
struct Acts {
    bool input_defers, weight_defers, input_writes_gradient, weight_writes_gradient;
    bool input_writes_input_gradient, weight_writes_input_gradient, weight_saves;
} acts;

z3d_status fill(z3d_unit_run *run, void *x) {
    z3d_kernel kernel = {};
    kernel.kind = Z3D_KERNEL_fill;
    kernel.as.fill = {x, 8, Z3D_F32, 0};
    return x ? z3d_launch(run->device, &kernel) : Z3D_OK;
}

z3d_status act(z3d_unit_run *run, bool saves, bool defers, bool gradient, bool input_gradient) {
    void *memory;
    if (saves) Z3D_TRY(z3d_unit_take_saved(run, 8, 4, &memory));
    if (defers) Z3D_TRY(z3d_unit_take_deferred(run, 8, 4, &memory));
    if (gradient) Z3D_TRY(fill(run, z3d_unit_gradient(run, 0, 0)));
    return input_gradient ? fill(run, run->input_gradient) : Z3D_OK;
}

z3d_status forward(z3d_unit_run *run) {
    return act(run, true, false, false, false);
}

z3d_status backward(z3d_unit_run *run) {
    return act(run, true, true, true, true);
}

z3d_status backward_halves(z3d_unit_run *run, z3d_halves halves) {
    if (halves == Z3D_BOTH_HALVES) return backward(run);
    if (halves == Z3D_INPUT_HALF)
        return act(run, true, acts.input_defers, acts.input_writes_gradient,
                   acts.input_writes_input_gradient);
    return act(run, acts.weight_saves, acts.weight_defers, acts.weight_writes_gradient,
               acts.weight_writes_input_gradient);
}

const z3d_unit_ops CUT = {forward, nullptr, backward_halves};
const z3d_unit_ops WHOLE = {forward, backward, nullptr};

// Records two units of one kind, of which the second is looked at.
z3d_status record_unit(const z3d_unit_ops *ops, bool *cut) {
    z3d_model *model = nullptr;
    z3d_layout *layout = nullptr;
    z3d_traces *traces = nullptr;
    z3d_mesh mesh;
    z3d_program_config config = {};
    config.micro_batch = 1;
    EXPECT_Z3D(z3d_mesh_make(1, 1, 1, 0, &mesh));
    EXPECT_Z3D(z3d_model_create(1, 1, 2, &model));
    z3d_parameter &weight = model->group[0].parameter[0];
    strcpy(model->group[0].name, "group");
    strcpy(weight.name, "weight");
    weight.dims = 1, weight.shape[0] = 8, weight.split_dim = -1;
    model->group[0].num_parameters = 1;
    for (int u = 0; u < 2; u++)
        model->unit[u] = {"unit", u ? ops : &WHOLE, nullptr, u, u,  false, 1,
                          {0},    {8 * !u},         0,       0, {}, {}};
    EXPECT_Z3D(z3d_layout_create(model, &mesh, &config, &layout));
    z3d_status status = z3d_traces_record(model, layout, &config, 1, &traces);
    if (status == Z3D_OK)
        *cut = z3d_traces_get(traces, Z3D_MODE_TRAIN, 1, Z3D_CALL_BACKWARD_WEIGHT)->recorded;
    z3d_traces_destroy(traces);
    z3d_layout_destroy(layout);
    z3d_model_destroy(model);
    return status;
}

const Acts RIGHT = {true, true, false, true, true, false, true};

} // namespace

TEST(Halves, TogetherTheyAreTheWhole) {
    for (int tensor : {1, 2})
        for (bool sequence_parallel : {false, true})
            for (bool selective : {false, true})
                for (double dropout : {0.0, 0.1}) {
                    Options o = small();
                    if (sequence_parallel && tensor == 1) continue;
                    o.tensor = tensor;
                    o.sequence_parallel = sequence_parallel;
                    o.selective = selective;
                    o.recompute = !selective;
                    o.keep_activation = dropout > 0;
                    o.dropout = dropout;
                    SCOPED_TRACE(name_of(o));
                    record(o);
                }
}

// What lies between the halves of a block, in batch x seq x hidden: the gradients of x1, of fc's
// output (4) and of qkv (3). Dropout leaves the gradients before it, of the mlp and of the
// projection, in place of x1's; a lean block keeps the attention. And four rows of sums.
TEST(Halves, Deferred) {
    for (bool lean : {false, true})
        for (double dropout : {0.0, 0.1}) {
            Options o = small();
            o.micro_batch = 16; // all are multiples of the alignment
            o.selective = lean;
            o.recompute = false;
            o.dropout = dropout;
            World w(o);
            ASSERT_Z3D(w.prepare());
            int64_t unit = 16 * o.sequence * o.hidden * 2;
            int64_t deferred =
                z3d_traces_get(w.traces, Z3D_MODE_TRAIN, 1, Z3D_CALL_BACKWARD_INPUT)->deferred;
            EXPECT_EQ((8 + (dropout > 0) + lean) * unit, deferred / unit * unit);
            EXPECT_LE(deferred % unit, 2 * 256);
        }
}

// Of frozen layers nothing lies there: of a block that trains norms only four rows of sums; beside
// them the gradient that the projection's weight reads, and of a lean block the attention.
TEST(Halves, FrozenLayersDeferNothing) {
    for (bool lean : {false, true})
        for (double dropout : {0.0, 0.1})
            for (bool projection : {false, true}) {
                Options o = small();
                o.micro_batch = 16;
                o.selective = lean;
                o.recompute = false;
                o.dropout = dropout;
                o.frozen = {"mlp", projection ? "c_attn" : "attn"};
                World w(o);
                ASSERT_Z3D(w.prepare());
                int64_t unit = 16 * o.sequence * o.hidden * 2;
                int64_t deferred =
                    z3d_traces_of(w.traces, Z3D_MODE_TRAIN, 2, Z3D_CALL_BACKWARD_INPUT)->deferred;
                EXPECT_EQ((projection ? 1 + lean : 0) * unit, deferred / unit * unit);
                EXPECT_LE(deferred % unit, 2 * 256);
            }
}

TEST(Halves, ThatDoNotFitAreRefused) {
    const struct {
        std::function<void()> spoil;
        const char *message;
    } cases[] = {
        {[] { acts.weight_defers = false; },
         "unit unit: backward_weight requests 0 bytes of deferred memory, but backward_input "
         "requested 32"},
        {[] { acts.input_writes_gradient = true; },
         "unit unit: backward_input writes gradients of parameter group 0"},
        {[] { acts.weight_writes_gradient = false; },
         "unit unit: backward_weight writes no gradients of parameter group 0 of the unit, but "
         "backward does"},
        {[] { acts.input_writes_input_gradient = false; },
         "unit unit: backward_input does not write input_gradient"},
        {[] { acts.weight_writes_input_gradient = true; },
         "unit unit: backward_weight writes input_gradient"},
        {[] { acts.weight_saves = false; },
         "unit unit: backward_weight requests 0 bytes of saved memory, but forward requested 32"},
    };
    bool cut = false;
    acts = RIGHT;
    ASSERT_Z3D(record_unit(&CUT, &cut));
    EXPECT_TRUE(cut);
    for (const auto &c : cases) {
        acts = RIGHT;
        c.spoil();
        EXPECT_EQ(Z3D_ERR_PROGRAM, record_unit(&CUT, &cut)) << c.message;
        EXPECT_NE(std::string(z3d_error_message()).find(c.message), std::string::npos)
            << z3d_error_message();
    }
    acts = RIGHT;
    ASSERT_Z3D(record_unit(&WHOLE, &cut));
    EXPECT_FALSE(cut);
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
