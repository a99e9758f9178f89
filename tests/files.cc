#include "tests/files.h"

Folder::Folder() : Folder(std::filesystem::temp_directory_path()) {}

Folder::Folder(const std::string &base) {
    path = base + "/zero3d-test-XXXXXX";
    if (!mkdtemp(path.data())) throw std::runtime_error("mkdtemp " + path);
}

Folder::~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
}

std::string Folder::operator/(const std::string &name) const {
    return path + "/" + name;
}

void write_file(const std::string &path, const std::string &bytes) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) throw std::runtime_error("cannot write " + path);
}

std::string read_file(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
}
