#!/bin/sh
# install.sh BUILD: installs to a folder, moves it, and builds programs of a user's own: one of the faces, and the README's, with the
# README's commands.
. "$(dirname "$0")/lib.sh"
# Users' programs do not have our list of what libraries keep to the end.
[ -z "${SANITIZE:-}" ] || export ASAN_OPTIONS=detect_leaks=0
build=${1:?build folder}

expect 0 cmake --install "$build" --prefix "$work/first"
mv first zero3d # nothing may remember where it was
prefix=$work/zero3d
expect 0 "$prefix/bin/zero3d" --version
expect 0 "$prefix/bin/zero3d" reproduce table1 # by the descriptions that were installed

for file in bash-completion/completions/zero3d zsh/site-functions/_zero3d fish/vendor_completions.d/zero3d.fish man/man1/zero3d.1; do
    grep -q reproduce "$prefix/share/$file" || fail "share/$file was not installed"
done

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
# shellcheck disable=SC2046,SC2086 # words
expect 0 ${CC:-cc} -std=c11 ${SANITIZE:+-fsanitize=$SANITIZE} faces.c -o faces $(pkg-config --cflags --libs zero3d)
expect 0 ./faces
grep -qx 124439808 out || fail "GPT-2 124M has 124439808 parameters"

# The README's own program: everything after `make install`, as it stands there, but for this test's compiler and -Werror.
mkdir examples spirals
ln -s "$SOURCE/examples/two_spirals.c" examples
readme cmake 'Your own model' >spirals/CMakeLists.txt
readme sh 'Your own model' | sed -n '/^make install PREFIX=$HOME\/zero3d /,$p' | sed 1d >commands
[ "$(grep -c '^gcc \|^cmake \|/zero3d-launch ' commands)" -eq 5 ] || fail "the README's commands for a program of one's own have changed"
sed -i "s|^gcc -std=c11 -Wall -Wextra |${CC:-cc} -std=c11 -Wall -Wextra -Werror ${SANITIZE:+-fsanitize=$SANITIZE }|
    s|^cmake -S .*|& ${SANITIZE:+-DCMAKE_C_FLAGS=-fsanitize=$SANITIZE}|" commands
grep -q -- '-std=c11 -Wall -Wextra -Werror' commands || fail "the README's compile line has changed"
expect 0 env HOME="$work" timeout 250 sh -e commands
[ "$(grep -c 'of 256 unseen points right' out)" -eq 2 ] || fail "the README's two programs have not run"

# The same header is good for C++.
echo '#include <zero3d.h>' >faces.cc
# shellcheck disable=SC2046 # words
expect 0 c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only faces.cc $(pkg-config --cflags zero3d)

# A build without MPI asks its users for none, nor for the mpirun that may be there.
expect 0 cmake -S "$SOURCE" -B without -DZERO3D_MPI=OFF -DZERO3D_CUDA=OFF -DZERO3D_TESTS=OFF
expect 1 grep -riE 'libmpi|openmpi|MPI::' without/package --include=zero3d.pc
expect 0 grep -x 'if(OFF)' without/package/zero3dConfig.cmake
# shellcheck disable=SC2016 # the ranks' own
expect 0 without/bin/zero3d-launch -n 2 sh -c 'echo $RANK of $WORLD_SIZE'
[ "$(sort out | paste -sd,)" = "0 of 2,1 of 2" ] || fail "the launcher of a build without MPI starts no ranks over TCP"
