#include "tests/checkpoint/folder.h"

#include <algorithm>
#include <cstring>

float value_of(int tensor, int kind, int64_t i) {
    return (float)((tensor * 3 + kind) * 100003 % 1000) + (float)(i % 8191) / 8192.0f;
}

void values_of(int tensor, int kind, int64_t first, int64_t count, float *out) {
    static const std::vector<float> parts = [] {
        std::vector<float> made(8191);
        for (size_t i = 0; i < made.size(); i++) made[i] = (float)i / 8192.0f;
        return made;
    }();
    const float base = value_of(tensor, kind, 0), *part = parts.data();
    int64_t at = first % 8191;
    for (int64_t i = 0; i < count; i++) {
        out[i] = base + part[at];
        if (++at == 8191) at = 0;
    }
}

int64_t wrong_values(int tensor, int kind, int64_t first, int64_t count, const float *got) {
    std::vector<float> want((size_t)count);
    values_of(tensor, kind, first, count, want.data());
    if (memcmp(want.data(), got, want.size() * sizeof *got) == 0) return 0;
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; i++) wrong += got[i] != want[(size_t)i];
    return wrong;
}

z3d_model *Gpt::make(int tensor_size) const {
    z3d_gpt_config gpt = {};
    gpt.num_layers = layers;
    gpt.hidden_size = hidden;
    gpt.num_heads = heads;
    gpt.seq_length = sequence;
    gpt.vocab_size = vocabulary;
    gpt.vocab_multiple = 8;
    gpt.init_std = 0.02;
    gpt.tensor_size = tensor_size;
    gpt.tiling = tiling;
    z3d_model *model = nullptr;
    EXPECT_EQ(Z3D_OK, z3d_gpt_create(&gpt, &model)) << z3d_error_message();
    return model;
}

z3d_status synthetic(void *context, const z3d_extent *e, int64_t at, int64_t count, float *out) {
    const z3d_tensor *t = &((Values *)context)->manifest->tensor[e->tensor];
    const int64_t plane = e->rows * t->inner;
    for (int64_t k = 0, run; k < count; k += run) { // to the end of a plane
        int64_t i = e->first + at + k;
        run = std::min(count - k, plane - i % plane);
        values_of(e->tensor, e->kind, (i / plane * t->global + e->row_first) * t->inner + i % plane,
                  run, out + k);
    }
    return Z3D_OK;
}

void write_checkpoint(const std::string &folder, const Gpt &gpt, int tensor, int data,
                      int64_t step) {
    z3d_model *model = gpt.make(tensor);
    z3d_manifest m = {};
    int ranks = tensor * data;
    std::filesystem::create_directories(folder);
    ASSERT_Z3D(z3d_tensors_of(model, &m.tensor, &m.num_tensors));
    m.info.engine = {step, step, 0, 1, 0, 2, {}};
    m.info.tensor_size = tensor, m.info.data_size = data, m.info.pipeline_size = 1;
    m.info.config = strdup("# a \"text\"\n"), m.info.program = strdup("test");
    m.info.libraries = strdup("none");
    m.num_shards = m.num_files = ranks;
    m.shard = (z3d_shard *)calloc((size_t)ranks, sizeof *m.shard);
    m.file = (z3d_file_entry *)calloc((size_t)ranks + 1, sizeof *m.file);
    Values values = {&m};
    for (int r = 0; r < ranks; r++) {
        z3d_mesh place;
        z3d_extent *extent;
        int count;
        z3d_image image;
        ASSERT_Z3D(z3d_mesh_make(tensor, data, 1, r, &place));
        ASSERT_Z3D(z3d_shard_plan(model, &place, nullptr, z3d_optimizer_kinds(Z3D_OPTIMIZER_adamw),
                                  false, &count, &extent));
        ASSERT_Z3D(z3d_image_make(m.tensor, r, step, count, extent, &image));
        ASSERT_Z3D(
            z3d_image_write(&image, nullptr, folder.c_str(), synthetic, &values, &m.file[r]));
        m.shard[r] = image.shard;
        close(image.fd);
    }
    ASSERT_Z3D(z3d_virtual_write(&m, nullptr, folder.c_str(), &m.file[ranks]));
    m.num_files++;
    z3d_string text = {};
    ASSERT_Z3D(z3d_manifest_write(&m, &text));
    ASSERT_Z3D(
        z3d_io_write_file(nullptr, folder.c_str(), Z3D_MANIFEST, text.text, (int64_t)text.length));
    z3d_string_free(&text);
    z3d_manifest_free(&m);
    z3d_model_destroy(model);
}
