// What most tests include, compiled once for all of them.
#ifndef ZERO3D_TESTS_PRECOMPILED_H
#define ZERO3D_TESTS_PRECOMPILED_H

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#endif
