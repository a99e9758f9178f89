#include "tests/train/text.h"

Tokenizer::Tokenizer(z3d_tokenizer_kind kind, const std::string &vocab, const char *merges) {
    status = z3d_tokenizer_create(kind, vocab.c_str(), merges, &tokenizer);
    if (status != Z3D_OK) message = z3d_error_message();
}

Tokenizer::~Tokenizer() {
    z3d_tokenizer_destroy(tokenizer);
}

std::vector<int32_t> Tokenizer::encode(const std::string &text) {
    z3d_token_list list = {};
    EXPECT_EQ(z3d_tokenizer_encode(tokenizer, text.data(), text.size(), true, &list), Z3D_OK)
        << z3d_error_message();
    std::vector<int32_t> ids(list.id, list.id + list.count);
    z3d_token_list_free(&list);
    return ids;
}

std::string Tokenizer::decode(const std::vector<int32_t> &ids, bool begins) {
    z3d_string out = {};
    EXPECT_EQ(z3d_tokenizer_decode(tokenizer, ids.data(), ids.size(), begins, &out), Z3D_OK);
    std::string text(out.text ? out.text : "", out.length);
    z3d_string_free(&out);
    return text;
}

std::string from_hex(const std::string &hex) {
    std::string out;
    for (size_t i = 0; hex != "-" && i < hex.size(); i += 2)
        out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    return out;
}

std::string random_bytes(size_t count, uint32_t state) {
    std::string text;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        text.push_back(static_cast<char>(state >> 24));
    }
    return text;
}
