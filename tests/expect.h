// What every room's tests expect of a call, and how much they do.
#ifndef ZERO3D_TESTS_EXPECT_H
#define ZERO3D_TESTS_EXPECT_H

#include <gtest/gtest.h>

#include <cstdlib>

extern "C" {
#include "src/base/base.h"
}

#define ASSERT_Z3D(call) ASSERT_EQ(Z3D_OK, (call)) << z3d_error_message()
#define EXPECT_Z3D(call) EXPECT_EQ(Z3D_OK, (call)) << z3d_error_message()

// Sanitizers look for other mistakes than the last bits of long runs.
#ifdef ZERO3D_SANITIZED
constexpr bool SANITIZED = true;
#else
constexpr bool SANITIZED = false;
#endif

// `make test-long`: all of what is only sampled otherwise.
inline bool is_long() {
    return getenv("ZERO3D_LONG") != nullptr;
}

#endif
