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
    Folder();
    explicit Folder(const std::string &base);
    ~Folder();
    std::string operator/(const std::string &name) const;
    std::string path;
};

void write_file(const std::string &path, const std::string &bytes);

std::string read_file(const std::string &path);

#endif
