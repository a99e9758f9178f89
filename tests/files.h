// Temporary folders and whole files.
#ifndef ZERO3D_TESTS_FILES_H
#define ZERO3D_TESTS_FILES_H

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

// A folder that is gone when the test is.
class Folder {
  public:
    explicit Folder(const std::string &base = std::filesystem::temp_directory_path()) {
        path = base + "/zero3d-test-XXXXXX";
        if (!mkdtemp(path.data())) throw std::runtime_error("mkdtemp " + path);
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
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) throw std::runtime_error("cannot write " + path);
}

inline std::string read_file(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
}

#endif
