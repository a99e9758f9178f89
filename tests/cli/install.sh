#!/bin/sh
# install.sh BUILD: installs to a folder, moves it, and builds a program of a user's own with pkg-config and with find_package.
. "$(dirname "$0")/lib.sh"
# Users' programs do not have our list of what libraries keep to the end.
[ -z "${SANITIZE:-}" ] || export ASAN_OPTIONS=detect_leaks=0
build=${1:?build folder}
example=$SOURCE/examples/two_spirals.c

expect 0 cmake --install "$build" --prefix "$work/first"
mv first prefix # nothing may remember where it was
prefix=$work/prefix
expect 0 "$prefix/bin/zero3d" --version
expect 0 "$prefix/bin/zero3d" reproduce table1 # by the descriptions that were installed

pc=$(find "$prefix" -name zero3d.pc)
[ -n "$pc" ] || fail "no zero3d.pc"
PKG_CONFIG_PATH=$(dirname "$pc")${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
export PKG_CONFIG_PATH

cat >faces.c <<'END'
#include <stdio.h>
#include <string.h>
#include <zero3d.h>
static const char text[] = "train_batch_size: 1\ngradient_accumulation_steps: 1\n";
int main(void) {
    z3d_config *config;
    z3d_plan *plan;
    if (z3d_config_create(&config) != Z3D_OK) return 1;
    if (z3d_config_read_text(config, text, strlen(text), "text") != Z3D_OK ||
        z3d_plan_create(config, 1, 0, &plan) != Z3D_OK) {
        puts(z3d_error_message());
        return 1;
    }
    printf("%lld\n", (long long)z3d_model_parameter_count(plan->model));
    z3d_plan_destroy(plan);
    z3d_config_destroy(config);
    return 0;
}
END
cp "$example" two_spirals.c
for program in faces two_spirals; do
    # shellcheck disable=SC2046 # words
    expect 0 ${CC:-cc} -std=gnu11 ${SANITIZE:+-fsanitize=$SANITIZE} $program.c -o with-pkg-config-$program $(pkg-config --cflags --libs zero3d)
done
expect 0 ./with-pkg-config-faces
grep -qx 124439808 out || fail "GPT-2 124M has 124439808 parameters"

cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(zero3d 0.1 REQUIRED)
foreach(program faces two_spirals)
  add_executable(${program} ${program}.c)
  target_link_libraries(${program} zero3d::zero3d)
endforeach()
END
expect 0 cmake -S . -B user -DCMAKE_PREFIX_PATH="$prefix" ${SANITIZE:+-DCMAKE_C_FLAGS=-fsanitize=$SANITIZE}
expect 0 cmake --build user
expect 0 ./user/faces
expect 0 timeout 250 "$prefix/bin/zero3d-launch" -n 4 ./user/two_spirals

# The same header is good for C++.
echo '#include <zero3d.h>' >faces.cc
# shellcheck disable=SC2046 # words
expect 0 c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only faces.cc $(pkg-config --cflags zero3d)

# A build without MPI asks its users for none, nor for the mpirun that may be there.
expect 0 cmake -S "$SOURCE" -B without -DZERO3D_MPI=OFF -DZERO3D_CUDA=OFF -DZERO3D_TESTS=OFF
expect 1 grep -riE 'libmpi|openmpi|MPI::' without/package --include=zero3d.pc
expect 0 grep -x 'if(OFF)' without/package/zero3dConfig.cmake
# shellcheck disable=SC2016 # the ranks' own
expect 0 without/package/zero3d-launch -n 2 sh -c 'echo $RANK of $WORLD_SIZE'
[ "$(sort out | paste -sd,)" = "0 of 2,1 of 2" ] || fail "the launcher of a build without MPI starts no ranks over TCP"
