// Tokenizers in tests.
#pragma once
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

extern "C" {
#include "src/train/tokenizer.h"
}

struct Tokenizer {
    Tokenizer(z3d_tokenizer_kind kind, const std::string &vocab, const char *merges = nullptr);
    ~Tokenizer();
    std::vector<int32_t> encode(const std::string &text);
    std::string decode(const std::vector<int32_t> &ids, bool begins = true);
    z3d_tokenizer *tokenizer = nullptr;
    z3d_status status;
    std::string message;
};

// "-": nothing.
std::string from_hex(const std::string &hex);

// Any bytes, the same ones for the same number.
std::string random_bytes(size_t count, uint32_t state = 1);
