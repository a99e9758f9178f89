#include "tests/checkpoint/huggingface.h"

z3d_status import(const std::string &from, const std::string &to, bool allow_nonfinite) {
    z3d_import what = {};
    char *folder;
    what.from = from.c_str(), what.to = to.c_str(), what.program = "test";
    what.allow_nonfinite = allow_nonfinite;
    z3d_status status = z3d_checkpoint_import(&what, &folder);
    free(folder);
    return status;
}

Checkpoint::Checkpoint(const std::string &dir, int64_t step) {
    char *folder = nullptr;
    EXPECT_Z3D(z3d_checkpoint_path(dir.c_str(), step, &folder));
    path = folder;
    free(folder);
    EXPECT_Z3D(z3d_checkpoint_open(path.c_str(), &c));
    EXPECT_Z3D(z3d_config_create(&config));
    const char *text = z3d_checkpoint_get_info(c)->config;
    EXPECT_Z3D(z3d_config_read_text(config, text, strlen(text), "configuration"));
}

Checkpoint::~Checkpoint() {
    z3d_checkpoint_close(c);
    z3d_config_destroy(config);
}

z3d_status Checkpoint::write(const std::string &to, z3d_dtype dtype, int64_t max_shard,
                             z3d_interop_format format) {
    z3d_export what = {};
    what.format = format, what.dtype = dtype, what.to = to.c_str();
    what.max_shard = max_shard;
    what.own_dtype = own_dtype, what.allow_nonfinite = allow_nonfinite;
    z3d_status status = z3d_checkpoint_export(c, &what);
    shards = what.shards;
    return status;
}

std::vector<float> Checkpoint::values(const char *group, const char *name) {
    const int tensor = z3d_checkpoint_find(c, group, name);
    z3d_part whole;
    EXPECT_GE(tensor, 0) << group << " " << name;
    z3d_checkpoint_whole(c, tensor, &whole);
    std::vector<float> out((size_t)whole.count);
    EXPECT_Z3D(
        z3d_checkpoint_read(c, Z3D_TENSOR_PARAMETER, tensor, &whole, 0, whole.count, out.data()));
    return out;
}

Logits::Logits(const std::string &model) {
    std::string file = read_file(fixtures + model + "/logits.bin");
    int32_t count = 0;
    memcpy(&count, file.data(), 4);
    tokens.resize((size_t)count);
    memcpy(tokens.data(), file.data() + 4, tokens.size() * 4);
    values.resize((file.size() - 4 - tokens.size() * 4) / 4);
    memcpy(values.data(), file.data() + 4 + tokens.size() * 4, values.size() * 4);
}

std::vector<float> logits_of(Trainer &t, const std::vector<int32_t> &tokens) {
    const z3d_unit &head = t.model->unit[t.model->num_units - 1];
    const int64_t vocabulary = t.o.config->model_vocab_size;
    std::vector<int32_t> prompt(tokens);
    std::vector<float> row((size_t)head.output_elements[Z3D_MODE_PREFILL]), all;
    prompt.resize((size_t)t.model->tokens[Z3D_MODE_PREFILL]);
    for (int32_t i = 0; i < (int32_t)tokens.size(); i++) {
        const int32_t positions[] = {0, i};
        EXPECT_Z3D(z3d_engine_generate(t.engine, Z3D_MODE_PREFILL, 0, prompt.data(), positions,
                                       row.data()));
        all.insert(all.end(), row.begin(), row.begin() + vocabulary);
    }
    return all;
}

z3d_status load(Trainer &t, const Checkpoint &checkpoint) {
    return z3d_checkpoint_load_all(world, checkpoint.path.c_str(), nullptr, t.model, t.engine,
                                   Z3D_VERIFY_FULL, true, nullptr, nullptr, nullptr);
}
