/* The fuzzer's corpus without the fuzzer: every file as it is, cut at some lengths, and with bytes
 * changed; long tests do more of this. The fuzzer's own demands (tests/fuzz/config.c) end the
 * process when they are not met. */
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/expect.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void run(const std::string &bytes) {
    /* A copy of exactly that size, so that a read beyond it is seen by the address sanitizer. */
    std::vector<uint8_t> data(bytes.begin(), bytes.end());
    EXPECT_EQ(LLVMFuzzerTestOneInput(data.data(), data.size()), 0);
}

static std::vector<std::string> corpus() {
    std::vector<std::string> files;
    std::vector<std::filesystem::path> paths;
    for (const auto &entry : std::filesystem::directory_iterator(std::string(ZERO3D_TEST_DATA) +
                                                                 "/../fuzz/corpus/config")) {
        paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    for (const auto &path : paths) {
        std::ifstream file(path, std::ios::binary);
        files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return files;
}

TEST(Corpus, AsItIs) {
    std::vector<std::string> files = corpus();
    EXPECT_GT(files.size(), 20u);
    for (const std::string &bytes : files) run(bytes);
}

TEST(Corpus, CutOff) {
    for (const std::string &bytes : corpus()) {
        size_t step = 1 + bytes.size() / (is_long() ? 50 : 20);
        for (size_t length = 0; length < bytes.size(); length += step) run(bytes.substr(0, length));
    }
}

TEST(Corpus, WithBytesChanged) {
    static const char signs[] = "\t\n :-?{}[],&*!|>'\"%@#\\\0\xff\xc3~0";
    std::mt19937 random(1);
    for (const std::string &bytes : corpus()) {
        for (int i = 0; i < (is_long() ? 60 : 20) && !bytes.empty(); i++) {
            std::string changed = bytes;
            changed[random() % changed.size()] = signs[random() % (sizeof signs - 1)];
            run(changed);
        }
    }
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
