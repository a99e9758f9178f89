// A checkpoint of synthetic values for any topology, written in one process.
#ifndef ZERO3D_TESTS_CHECKPOINT_FOLDER_H
#define ZERO3D_TESTS_CHECKPOINT_FOLDER_H

#include <sys/stat.h>

#include <string>
#include <vector>

#include "tests/expect.h"
#include "tests/files.h"

extern "C" {
#include "checkpoint/checkpoint.h"
#include "checkpoint/shard.h"
#include "src/model/gpt/gpt.h"
}

// The value of element i of a tensor's state: distinct, exactly representable.
float value_of(int tensor, int kind, int64_t i);

// `count` of them from `first` on.
void values_of(int tensor, int kind, int64_t first, int64_t count, float *out);

// How many of `count` values at `got` are others.
int64_t wrong_values(int tensor, int kind, int64_t first, int64_t count, const float *got);

struct Gpt {
    int64_t layers = 2, hidden = 32, heads = 4, sequence = 16, vocabulary = 67, tiling = 1;
    z3d_model *make(int tensor_size) const;
};

struct Values {
    const z3d_manifest *manifest;
};

// What an extent's elements are, from the logical place of each.
z3d_status synthetic(void *context, const z3d_extent *e, int64_t at, int64_t count, float *out);

// Writes FOLDER as tensor x data ranks would.
void write_checkpoint(const std::string &folder, const Gpt &gpt, int tensor, int data,
                      int64_t step = 7);

#endif
