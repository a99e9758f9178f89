// Small files for the tests of src/train.
#ifndef ZERO3D_TESTS_TRAIN_FILES_H
#define ZERO3D_TESTS_TRAIN_FILES_H

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/files.h"

template <typename T> void put(std::string &out, T value) {
    out.append(reinterpret_cast<const char *>(&value), sizeof value);
}

// llm.c's format.
template <typename T>
std::string token_bytes(const std::vector<T> &tokens, int32_t magic, int32_t version) {
    std::string out;
    std::vector<int32_t> header(256, 0);
    header[0] = magic, header[1] = version, header[2] = static_cast<int32_t>(tokens.size());
    for (int32_t h : header) put(out, h);
    for (T t : tokens) put(out, t);
    return out;
}
inline std::string token_bytes(const std::vector<uint16_t> &tokens) {
    return token_bytes(tokens, 20240520, 1);
}

#endif
