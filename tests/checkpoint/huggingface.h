// The models of tests/data/hf_models, which transformers saved, and what PyTorch makes of them
// (scripts/make-huggingface-fixtures.py).
#ifndef ZERO3D_TESTS_CHECKPOINT_HUGGINGFACE_H
#define ZERO3D_TESTS_CHECKPOINT_HUGGINGFACE_H

#include "engine.h"

extern "C" {
#include "src/model/model.h"
}

inline const std::string fixtures = ZERO3D_TEST_DATA "/hf_models/";

inline z3d_status import(const std::string &from, const std::string &to) {
    z3d_import what = {};
    char *folder;
    what.from = from.c_str(), what.to = to.c_str(), what.program = "test";
    z3d_status status = z3d_checkpoint_import(&what, &folder);
    free(folder);
    return status;
}

// DIR/step-NNNNNNNN and the configuration in it.
struct Checkpoint {
    explicit Checkpoint(const std::string &dir, int64_t step = 0) {
        char *folder = nullptr;
        EXPECT_Z3D(z3d_checkpoint_path(dir.c_str(), step, &folder));
        path = folder;
        free(folder);
        EXPECT_Z3D(z3d_checkpoint_open(path.c_str(), &c));
        EXPECT_Z3D(z3d_config_create(&config));
        const char *text = z3d_checkpoint_get_info(c)->config;
        EXPECT_Z3D(z3d_config_read_text(config, text, strlen(text), "configuration"));
    }
    ~Checkpoint() {
        z3d_checkpoint_close(c);
        z3d_config_destroy(config);
    }
    z3d_status write(const std::string &to, z3d_dtype dtype = Z3D_F32, int64_t max_shard = 0,
                     z3d_interop_format format = Z3D_INTEROP_HUGGINGFACE) {
        z3d_export what = {};
        what.format = format, what.dtype = dtype, what.to = to.c_str();
        what.max_shard = max_shard;
        z3d_status status = z3d_checkpoint_export(c, &what);
        shards = what.shards;
        return status;
    }
    std::vector<float> values(const char *group, const char *name) {
        const int tensor = z3d_checkpoint_find(c, group, name);
        z3d_part whole;
        EXPECT_GE(tensor, 0) << group << " " << name;
        z3d_checkpoint_whole(c, tensor, &whole);
        std::vector<float> out((size_t)whole.count);
        EXPECT_Z3D(z3d_checkpoint_read(c, Z3D_TENSOR_PARAMETER, tensor, &whole, 0, whole.count,
                                       out.data()));
        return out;
    }
    int shards = 0;
    std::string path;
    z3d_checkpoint *c = nullptr;
    z3d_config *config = nullptr;
};

// A fixture's tokens, and PyTorch's logits of what follows each: [tokens, vocabulary].
struct Logits {
    std::vector<int32_t> tokens;
    std::vector<float> values;
    explicit Logits(const std::string &model) {
        std::string file = read_file(fixtures + model + "/logits.bin");
        int32_t count = 0;
        memcpy(&count, file.data(), 4);
        tokens.resize((size_t)count);
        memcpy(tokens.data(), file.data() + 4, tokens.size() * 4);
        values.resize((file.size() - 4 - tokens.size() * 4) / 4);
        memcpy(values.data(), file.data() + 4 + tokens.size() * 4, values.size() * 4);
    }
};

// The same by a trainer.
inline std::vector<float> logits_of(Trainer &t, const std::vector<int32_t> &tokens) {
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

// A trainer's parameters become the checkpoint's.
inline z3d_status load(Trainer &t, const Checkpoint &checkpoint) {
    return z3d_checkpoint_load_all(world, checkpoint.path.c_str(), t.model, t.engine,
                                   Z3D_VERIFY_FULL, true, nullptr, nullptr, nullptr);
}

#endif
