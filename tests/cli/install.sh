#!/bin/sh
# install.sh BUILD: installs to a folder, moves it, and builds programs of a user's own: one of the faces, and an example, with the commands
# of docs/your-own-model.md.
. "$(dirname "$0")/lib.sh"
build=${1:?build folder}

expect 0 cmake --install "$build" --prefix "$work/first"
mv first zero3d # nothing may remember where it was
prefix=$work/zero3d
expect 0 "$prefix/bin/zero3d" --version
expect 0 "$prefix/bin/zero3d" reproduce table1 # by the descriptions that were installed
expect 0 "$prefix/bin/zero3d" reproduce zero-infinity

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
expect 0 ${CC:-cc} -std=c11 faces.c -o faces $(pkg-config --cflags --libs zero3d)
expect 0 ./faces
grep -qx 124439808 out || fail "GPT-2 124M has 124439808 parameters"

# The commands of docs/your-own-model.md as they stand there, but for `make`, this test's compiler and -Werror. The examples run from the
# build, with the launcher that was installed; the program outside of the repository is built with gcc and with CMake.
page=docs/your-own-model.md
ln -s "$SOURCE/examples" .
mkdir -p build mine
ln -s "$build/bin" build/bin
readme sh 'Run the two examples' $page | grep -v '^make build$' >commands
expect 0 env PATH="$prefix/bin:$PATH" timeout 150 sh -e commands
[ "$(grep -c 'of 256 unseen points right' out)" -eq 1 ] || fail "$page does not run two_spirals"
[ "$(grep -c '^step 60 ' out)" -eq 3 ] || fail "$page does not run own_block three times"

readme cmake 'Build outside this repository' $page >mine/CMakeLists.txt
readme sh 'Build outside this repository' $page | grep -v '^make install PREFIX=$HOME/zero3d ' >commands
[ "$(grep -c '^gcc \|^cmake \|/zero3d-launch ' commands)" -eq 5 ] || fail "the commands of $page for a program of one's own have changed"
sed -i "s|^gcc -std=c11 -Wall -Wextra |${CC:-cc} -std=c11 -Wall -Wextra -Werror |" commands
grep -q -- '-std=c11 -Wall -Wextra -Werror' commands || fail "the compile line of $page has changed"
expect 0 env HOME="$work" timeout 250 sh -e commands
[ "$(grep -c '^step 60 ' out)" -eq 2 ] || fail "the two programs of $page have not run"

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
