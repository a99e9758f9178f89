// Temporary folders and small files for the tests of src/train.
#ifndef ZERO3D_TESTS_TRAIN_FILES_H
#define ZERO3D_TESTS_TRAIN_FILES_H

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

// A folder that is gone when the test is.
class Folder {
  public:
    Folder() {
        std::string name = (std::filesystem::temp_directory_path() / "zero3d-test-XXXXXX").string();
        if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
        path = name;
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    std::string operator/(const std::string &name) const {
        return path + "/" + name;
    }
    std::string path;
};

inline void write_file(const std::string &path, const std::string &bytes) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream out(path, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string read_file(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
}

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
