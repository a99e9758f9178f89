// GPT-2's description, its memory and its communication, on the recording device; no rank, no data.
#include <set>
#include <string>

#include "tests/expect.h"
#include "tests/model/chain.h"

namespace {

z3d_gpt_config gpt2() {
    z3d_gpt_config c{};
    c.num_layers = 12;
    c.hidden_size = 768;
    c.num_heads = 12;
    c.seq_length = 1024;
    c.vocab_size = 50257;
    c.vocab_multiple = 128;
    c.init_std = 0.02;
    c.tensor_size = 1;
    return c;
}

struct Model {
    z3d_model *model = NULL;
    explicit Model(const z3d_gpt_config &config) {
        if (z3d_gpt_create(&config, &model) != Z3D_OK) ADD_FAILURE() << z3d_error_message();
    }
    ~Model() {
        z3d_model_destroy(model);
    }
    const z3d_parameter *find(const std::string &group, const std::string &name) const {
        for (int g = 0; g < model->num_groups; g++)
            for (int i = 0; i < model->group[g].num_parameters; i++)
                if (group == model->group[g].name && name == model->group[g].parameter[i].name)
                    return &model->group[g].parameter[i];
        ADD_FAILURE() << "no " << group << " " << name;
        return NULL;
    }
};

TEST(Description, Gpt2HasItsPublishedSize) {
    Model small(gpt2());
    EXPECT_EQ(124439808, z3d_model_parameter_count(small.model));
    z3d_gpt_config xl = gpt2();
    xl.num_layers = 48, xl.hidden_size = 1600, xl.num_heads = 25;
    EXPECT_EQ(1557611200, z3d_model_parameter_count(Model(xl).model));
}

TEST(Description, GroupsAndUnits) {
    Model gpt(gpt2());
    const z3d_model *m = gpt.model;
    ASSERT_EQ(15, m->num_groups);
    ASSERT_EQ(14, m->num_units);
    EXPECT_STREQ("wte", m->group[0].name);
    EXPECT_STREQ("wpe", m->group[1].name);
    EXPECT_STREQ("block.11", m->group[13].name);
    EXPECT_STREQ("ln_f", m->group[14].name);
    EXPECT_STREQ("embedding", m->unit[0].name);
    EXPECT_STREQ("block.0", m->unit[1].name);
    EXPECT_STREQ("head", m->unit[13].name);
    std::set<int> used;
    for (int u = 0; u < m->num_units; u++) {
        EXPECT_EQ(u, m->unit[u].index);
        EXPECT_EQ(u >= 1 && u <= 12, m->unit[u].checkpoint);
        for (int s = 0; s < m->unit[u].num_groups; s++) used.insert(m->unit[u].group[s]);
    }
    EXPECT_EQ(15u, used.size());
    EXPECT_EQ(m->unit[1].kind, m->unit[12].kind);
    EXPECT_NE(m->unit[0].kind, m->unit[13].kind);
    EXPECT_EQ(1024 * 768, m->unit[12].output_elements[Z3D_MODE_TRAIN]);
    EXPECT_EQ(0, m->unit[13].output_elements[Z3D_MODE_TRAIN]);
    EXPECT_EQ(50304, m->unit[13].output_elements[Z3D_MODE_PREFILL]);
    EXPECT_EQ(2, m->num_fields);
    EXPECT_EQ(4096, m->field[1].bytes_per_sample[Z3D_MODE_TRAIN]);
}

TEST(Description, InitAndDecay) {
    Model gpt(gpt2());
    for (int g = 0; g < gpt.model->num_groups; g++)
        for (int i = 0; i < gpt.model->group[g].num_parameters; i++) {
            const z3d_parameter &p = gpt.model->group[g].parameter[i];
            std::string name = p.name, group = gpt.model->group[g].name;
            bool norm = name.find("ln_") == 0 || group == "ln_f";
            bool bias = name.find("bias") != std::string::npos;
            EXPECT_EQ(!norm && !bias, p.weight_decay) << name;
            EXPECT_EQ(bias ? Z3D_INIT_ZEROS : norm ? Z3D_INIT_ONES : Z3D_INIT_NORMAL, p.init);
        }
    EXPECT_FLOAT_EQ(0.02f, gpt.find("wte", "weight")->standard_deviation);
    EXPECT_FLOAT_EQ(0.02f, gpt.find("block.3", "attn.c_attn.weight")->standard_deviation);
    float residual = 0.02f / std::sqrt(24.0f);
    EXPECT_FLOAT_EQ(residual, gpt.find("block.3", "attn.c_proj.weight")->standard_deviation);
    EXPECT_FLOAT_EQ(residual, gpt.find("block.3", "mlp.c_proj.weight")->standard_deviation);
}

TEST(Description, SplitOverTensorRanks) {
    z3d_gpt_config config = gpt2();
    config.tensor_size = 4;
    Model gpt(config);
    EXPECT_EQ(50688, gpt.model->facts.padded_vocabulary); // 99 x 128 x 4
    EXPECT_EQ(50688, gpt.find("wte", "weight")->padded_dim);
    EXPECT_EQ(50257, gpt.find("wte", "weight")->shape[0]);
    EXPECT_EQ(50688 / 4 * 768, z3d_parameter_local_elements(gpt.find("wte", "weight"), 4));
    auto local = [&](const char *name) {
        return z3d_parameter_local_elements(gpt.find("block.0", name), 4);
    };
    EXPECT_EQ(3 * 768 * 768 / 4, local("attn.c_attn.weight"));
    EXPECT_EQ(3 * 768 / 4, local("attn.c_attn.bias"));
    EXPECT_EQ(768 * 768 / 4, local("attn.c_proj.weight"));
    EXPECT_EQ(768, local("attn.c_proj.bias"));
    EXPECT_EQ(4 * 768 / 4, local("mlp.c_fc.bias"));
    EXPECT_EQ(768, local("mlp.c_proj.bias"));
    EXPECT_EQ(768, local("ln_1.weight"));
    EXPECT_EQ(1024 * 768, z3d_parameter_local_elements(gpt.find("wpe", "weight"), 4));
}

TEST(Description, RefusesWhatCannotBe) {
    struct Bad {
        const char *part;
        void (*change)(z3d_gpt_config *);
    } bad[] = {
        {"model.num_attention_heads: 12 does not divide model.hidden_size 770",
         [](z3d_gpt_config *c) { c->hidden_size = 770; }},
        {"tensor_model_parallel_size: 8 does not divide model.num_attention_heads 12",
         [](z3d_gpt_config *c) { c->tensor_size = 8; }},
        {"model.num_layers: 0 is out of range; write 1 to 16777216",
         [](z3d_gpt_config *c) { c->num_layers = 0; }},
        {"seq_length: -1", [](z3d_gpt_config *c) { c->seq_length = -1; }},
        {"vocab_size", [](z3d_gpt_config *c) { c->vocab_size = INT64_MAX; }},
        {"hidden_size", [](z3d_gpt_config *c) { c->hidden_size = INT64_MIN; }},
        {"tensor_model_parallel_size", [](z3d_gpt_config *c) { c->tensor_size = 0; }},
        {"hidden_dropout", [](z3d_gpt_config *c) { c->hidden_dropout = NAN; }},
        {"attention_dropout", [](z3d_gpt_config *c) { c->attention_dropout = 1; }},
        {"init_method_std", [](z3d_gpt_config *c) { c->init_std = -1; }},
        {"too large a model for 64-bit sizes",
         [](z3d_gpt_config *c) {
             c->num_layers = 1000000, c->hidden_size = 1 << 20, c->num_heads = 1 << 10;
         }},
    };
    for (const Bad &b : bad) {
        z3d_gpt_config config = gpt2();
        b.change(&config);
        z3d_model *model = (z3d_model *)&config;
        EXPECT_EQ(Z3D_ERR_CONFIG, z3d_gpt_create(&config, &model)) << b.part;
        EXPECT_EQ(nullptr, model);
        EXPECT_NE(std::string::npos, std::string(z3d_error_message()).find(b.part))
            << z3d_error_message();
    }
}

// Narayanan et al. (2104.04473), equation 3: 96 B s l h^2 (1 + s/6h + V/16lh).
TEST(Flops, Formula) {
    Model gpt(gpt2());
    double l = 12, h = 768, s = 1024, v = 50257;
    EXPECT_NEAR(96 * l * h * h * (1 + s / (6 * h) + v / (16 * l * h)),
                gpt.model->facts.flops.recomputed_step, 1);
    EXPECT_NEAR(72 * l * h * h * (1 + s / (6 * h) + v / (12 * l * h)), gpt.model->facts.flops.step,
                1);
}

// ---- on the recording device ----

struct Recording {
    z3d_device *device = NULL;
    z3d_group *group = NULL;
    std::string collectives;
    std::vector<int64_t> offset;
    Recording(int size, int index) {
        z3d_device_config config{};
        config.backend = "record";
        EXPECT_EQ(Z3D_OK, z3d_device_create(&config, &device));
        EXPECT_EQ(Z3D_OK, z3d_group_create_recording(Z3D_AXES_TENSOR, size, index, &group));
        z3d_group_set_observer(group, observe, this);
        offset.assign(40, 0);
    }
    ~Recording() {
        z3d_group_destroy(group);
        z3d_device_destroy(device);
    }
    static z3d_status observe(void *context, z3d_group *, const z3d_collective *call) {
        ((Recording *)context)->collectives += std::string(z3d_collective_name(call->kind)) +
                                               (call->scalar ? ":scalar:" : ":") +
                                               std::to_string(call->count) + " ";
        return Z3D_OK;
    }
    z3d_unit_run run(const z3d_model *model, int u, z3d_mode mode, int64_t batch, z3d_dtype dtype) {
        static char anything[64];
        z3d_unit_run run{};
        run.unit = &model->unit[u];
        run.device = device;
        run.process_group[0] = group;
        run.dtype = run.gradient_dtype = dtype;
        run.mode = mode;
        run.batch = batch;
        run.tokens = model->tokens[mode];
        run.need_output = true;
        run.input = run.output_gradient = run.field[0] = run.field[1] = anything;
        run.output = run.input_gradient = anything;
        run.state = (z3d_step_state *)anything;
        for (int s = 0; s < run.unit->num_groups; s++) {
            run.group[s].parameters = run.group[s].gradients = anything;
            run.group[s].offset = offset.data();
        }
        run.saved = {(char *)(uintptr_t)(1ull << 44), 0, 0, INT64_C(1) << 43};
        run.workspace = {(char *)(uintptr_t)(1ull << 45), 0, 0, INT64_C(1) << 43};
        return run;
    }
    std::string take() {
        std::string text;
        text.swap(collectives);
        return text;
    }
};

// Two all-reduces forward, two backward, one in the recompute; the cross entropy's two small ones.
TEST(Communication, PerUnit) {
    z3d_gpt_config config = gpt2();
    config.tensor_size = 2;
    config.seq_length = 64;
    Model gpt(config);
    Recording record(2, 1);
    std::string bsh = "all_reduce:" + std::to_string(4 * 64 * 768) + " ";
    for (int u : {0, 1, 13}) {
        z3d_unit_run run = record.run(gpt.model, u, Z3D_MODE_TRAIN, 4, Z3D_BF16);
        const z3d_unit_ops *ops = run.unit->ops;
        z3d_unit_run backward = run, recompute = run;
        ASSERT_Z3D(ops->forward(&run));
        EXPECT_EQ(u == 0   ? bsh
                  : u == 1 ? bsh + bsh
                           : "all_reduce:scalar:256 all_reduce:scalar:512 ",
                  record.take());
        ASSERT_Z3D(ops->backward_halves(&backward, Z3D_BOTH_HALVES));
        EXPECT_EQ(u == 0 ? "" : u == 1 ? bsh + bsh : bsh, record.take());
        EXPECT_EQ(run.saved.used, backward.saved.used);
        if (u != 1) continue;
        recompute.need_output = false;
        recompute.output = NULL;
        ASSERT_Z3D(ops->forward(&recompute));
        EXPECT_EQ(bsh, record.take());
        EXPECT_EQ(run.saved.used, recompute.saved.used);
    }
    z3d_unit_run run = record.run(gpt.model, 13, Z3D_MODE_PREFILL, 3, Z3D_BF16);
    ASSERT_Z3D(run.unit->ops->forward(&run));
    EXPECT_EQ("all_gather:25216 all_gather:25216 all_gather:25216 ", record.take());
    EXPECT_EQ(0, run.saved.used);
}

// With its input a block keeps at most 12 batch x seq x hidden (and statistics); the embedding
// keeps nothing.
TEST(Memory, SavedBytes) {
    for (int tensor_size : {1, 2, 4})
        for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16}) {
            z3d_gpt_config config = gpt2();
            config.tensor_size = tensor_size;
            config.hidden_dropout = 0.1;
            Model gpt(config);
            Recording record(tensor_size, 0);
            int64_t rows = 8 * 1024, element = (int64_t)z3d_dtype_size(dtype);
            int64_t bsh = rows * 768 * element;
            int64_t statistics = rows * 4 * (4 + 12 / tensor_size) + 11 * 256;
            z3d_unit_run run = record.run(gpt.model, 1, Z3D_MODE_TRAIN, 8, dtype);
            ASSERT_Z3D(run.unit->ops->forward(&run));
            EXPECT_LE(run.saved.used, 3 * bsh + 8 * bsh / tensor_size + statistics);
            EXPECT_LE(run.saved.used + bsh, 12 * bsh + statistics);
            // The gelu's output while it is needed, nothing else.
            EXPECT_LE(run.workspace.peak, 4 * bsh / tensor_size);

            run = record.run(gpt.model, 0, Z3D_MODE_TRAIN, 8, dtype);
            ASSERT_Z3D(run.unit->ops->forward(&run));
            EXPECT_EQ(0, run.saved.used);
        }
}

TEST(Memory, ExhaustionIsAnError) {
    Model gpt(gpt2());
    Recording record(1, 0);
    z3d_unit_run run = record.run(gpt.model, 1, Z3D_MODE_TRAIN, 1, Z3D_F32);
    run.saved.capacity = 1 << 20;
    EXPECT_EQ(Z3D_ERR_INTERNAL, run.unit->ops->forward(&run));
    EXPECT_NE(nullptr, strstr(z3d_error_message(), "block.0"));
    run = record.run(gpt.model, 1, Z3D_MODE_TRAIN, 1, Z3D_F32);
    run.workspace.capacity = 1 << 20;
    EXPECT_EQ(Z3D_ERR_INTERNAL, run.unit->ops->backward_halves(&run, Z3D_BOTH_HALVES));
    // Sizes whose product is no int64 do not wrap around into small ones.
    run = record.run(gpt.model, 13, Z3D_MODE_TRAIN, INT64_C(1) << 51, Z3D_F32);
    EXPECT_EQ(Z3D_ERR_MEMORY, run.unit->ops->forward(&run));
    void *memory;
    EXPECT_EQ(Z3D_ERR_MEMORY, z3d_unit_take_workspace(&run, INT64_MAX / 2, 3, &memory));
    EXPECT_EQ(Z3D_ERR_MEMORY, z3d_unit_take_workspace(&run, -1, 4, &memory));
}

TEST(Memory, Bump) {
    z3d_unit unit{};
    z3d_unit_run run{};
    alignas(256) static char memory[2048];
    run.unit = &unit;
    run.workspace = {memory, 0, 0, 1024};
    auto workspace = [&run](int64_t bytes) {
        void *taken = nullptr;
        return z3d_unit_take_workspace(&run, bytes, 1, &taken) == Z3D_OK ? taken : nullptr;
    };
    EXPECT_EQ(memory, workspace(1));
    int64_t mark = z3d_unit_workspace_mark(&run);
    EXPECT_EQ(memory + 256, workspace(300));
    EXPECT_EQ(nullptr, workspace(257)); // from 768 on there are 256
    EXPECT_EQ(memory + 768, workspace(256));
    EXPECT_EQ(nullptr, workspace(1));
    EXPECT_EQ(nullptr, workspace(-1));
    EXPECT_EQ(nullptr, workspace(INT64_MAX));
    z3d_unit_workspace_release(&run, mark);
    EXPECT_EQ(memory + 256, workspace(8));
    EXPECT_EQ(1024, run.workspace.peak);
    void *none;
    EXPECT_EQ(Z3D_ERR_INTERNAL, z3d_unit_take_saved(&run, 8, 1, &none)); // no memory at all
}

} // namespace

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
