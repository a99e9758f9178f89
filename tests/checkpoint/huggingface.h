// The models of tests/data/hf_models, which transformers saved, and what PyTorch makes of them
// (tests/data/make-huggingface-fixtures.py).
#ifndef ZERO3D_TESTS_CHECKPOINT_HUGGINGFACE_H
#define ZERO3D_TESTS_CHECKPOINT_HUGGINGFACE_H

#include "engine.h"

extern "C" {
#include "src/model/model.h"
}

inline const std::string fixtures = ZERO3D_TEST_DATA "/hf_models/";

z3d_status import(const std::string &from, const std::string &to, bool allow_nonfinite = false);

// DIR/step-NNNNNNNN and the configuration in it.
struct Checkpoint {
    explicit Checkpoint(const std::string &dir, int64_t step = 0);
    ~Checkpoint();
    z3d_status write(const std::string &to, z3d_dtype dtype = Z3D_F32, int64_t max_shard = 0,
                     z3d_interop_format format = Z3D_INTEROP_HUGGINGFACE);
    std::vector<float> values(const char *group, const char *name);
    int shards = 0;
    bool own_dtype = false, allow_nonfinite = false;
    std::string path;
    z3d_checkpoint *c = nullptr;
    z3d_config *config = nullptr;
};

// A fixture's tokens, and PyTorch's logits of what follows each: [tokens, vocabulary].
struct Logits {
    std::vector<int32_t> tokens;
    std::vector<float> values;
    explicit Logits(const std::string &model);
};

// The same by a trainer.
std::vector<float> logits_of(Trainer &t, const std::vector<int32_t> &tokens);

// A trainer's parameters become the checkpoint's.
z3d_status load(Trainer &t, const Checkpoint &checkpoint);

#endif
